"""Secondary indices as Arrow columns of value → label pairs: build, merge, drop, select.

First come lists of labels, of which equal ones exist once: a column of lists is a dictionary array,
row *i* has the code of a list, a list has codes of labels. Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from kartothek_cube.core.arrow.keys import Hashes, IntArray, mixed_bits, pack_one
from kartothek_cube.core.arrow.types import normal_type
from kartothek_cube.core.expressions.predicates import (
    MANY,
    Clause,
    Mask,
    can_be_searched,
    matching_all,
    matching_ranges,
)
from kartothek_cube.errors import CorruptData, InvalidInput, Unsupported

_Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]

# Labels that are hashed at a time, so that eight bytes for each of them fit into the cache.
_BLOCK = 2**18
# Finding out which lists are equal takes longer than keeping so few labels.
_FEW = 1024
_ODD = np.uint64(0x9E3779B97F4A7C15)


def lists_of_one(labels: pa.DictionaryArray) -> pa.DictionaryArray:
    """A list of one label for each label."""
    count = len(labels.dictionary)
    codes = pa.array(np.arange(count, dtype=np.int32))
    members = pa.DictionaryArray.from_arrays(codes, labels.dictionary)
    offsets = pa.array(np.arange(count + 1, dtype=np.int32))
    return pa.DictionaryArray.from_arrays(labels.indices, pa.ListArray.from_arrays(offsets, members))


def names_of(lists: pa.DictionaryArray) -> pa.Array:
    """The labels by their codes; not every one of them is in a list."""
    return _distinct(lists).values.dictionary


def number_of_labels(lists: pa.DictionaryArray) -> IntArray:
    """The length of the list of each row."""
    counts: IntArray = np.diff(_offsets(_distinct(lists)))[lists.indices.to_numpy()]
    return counts


def labels_of(lists: pa.DictionaryArray) -> pa.DictionaryArray:
    """The labels of all rows, one after the other."""
    distinct, codes = _distinct(lists), lists.indices.to_numpy()
    # Lists that differ from row to row are in the order of the rows, and need not be gathered.
    if len(codes) and (np.diff(codes) == 1).all():
        return cast("pa.DictionaryArray", distinct.slice(int(codes[0]), len(codes)).flatten())
    return cast("pa.DictionaryArray", distinct.take(lists.indices).flatten())


def interned(lists: pa.ListArray) -> pa.DictionaryArray:
    """The same lists, each one once; their items are codes, and no list is empty.

    Few lists, and those with the same hash that differ, stay apart.
    """
    offsets = _offsets(lists)
    if len(lists) < 2 or offsets[-1] < _FEW:
        return pa.DictionaryArray.from_arrays(pa.array(np.arange(len(lists), dtype=np.int32)), lists)
    if offsets[-1] == len(lists):
        return _interned_ones(lists.flatten())
    numbers = pc.dictionary_encode(pa.array(_hashes(_codes(lists), offsets))).indices.to_numpy()
    alike = np.zeros(int(numbers.max()) + 1, dtype=np.int64)
    rows = np.arange(len(lists))
    alike[numbers[::-1]] = rows[::-1]  # the first row of each hash
    first = alike[numbers]
    first = np.where(_are_equal(lists, first), first, rows)
    is_first = first == rows
    codes = (np.cumsum(is_first) - 1).astype(np.int32)[first]
    distinct = lists.take(pa.array(np.flatnonzero(is_first)))
    return pa.DictionaryArray.from_arrays(pa.array(codes), distinct)


def _interned_ones(items: pa.Array) -> pa.DictionaryArray:
    """A list of one for each item, equal ones once."""
    is_coded = isinstance(items, pa.DictionaryArray)
    used = (items.indices if is_coded else items).dictionary_encode()
    members = pa.DictionaryArray.from_arrays(used.dictionary, items.dictionary) if is_coded else used.dictionary
    offsets = pa.array(np.arange(len(members) + 1, dtype=np.int32))
    return pa.DictionaryArray.from_arrays(used.indices, pa.ListArray.from_arrays(offsets, members))


def _are_equal(lists: pa.ListArray, others: IntArray) -> _Mask:
    """Whether each list has the items of another one, whose row is given."""
    lengths = np.diff(_offsets(lists))
    equal: _Mask = lengths == lengths[others]
    # Lists of different lengths cannot be compared item by item: they are compared to themselves.
    compared = np.where(equal, others, np.arange(len(lists)))
    for start, end in _blocks(_offsets(lists)):
        part = lists.slice(start, end - start)
        same = _codes(part) == _codes(lists.take(pa.array(compared[start:end])))
        if not same.all():
            equal[start:end] &= np.logical_and.reduceat(same, _offsets(part)[:-1])
    return equal


def _hashes(codes: IntArray, offsets: IntArray) -> Hashes:
    """A hash of each list that tells orders apart: the sum of its items' hashes times a power."""
    mixed = mixed_bits(np.arange(int(codes.max()) + 1, dtype=np.uint64) * _ODD)
    hashes = np.empty(len(offsets) - 1, dtype=np.uint64)
    for start, end in _blocks(offsets):
        begin = offsets[start]
        places = offsets[start:end] - begin
        items = mixed[codes[begin : offsets[end]]]
        items *= _powers(len(items), int(_ODD))
        # Odd numbers have an inverse, so a list has the same hash wherever it begins.
        hashes[start:end] = np.add.reduceat(items, places) * _powers(len(items), pow(int(_ODD), -1, 2**64))[places]
    return hashes


def _powers(count: int, base: int) -> Hashes:
    return _first_powers(base)[:count] if count <= 2 * _BLOCK else _accumulated(count, base)


@cache
def _first_powers(base: int) -> Hashes:
    return _accumulated(2 * _BLOCK, base)


def _accumulated(count: int, base: int) -> Hashes:
    factors = np.full(count, base, dtype=np.uint64)
    factors[:1] = 1
    return np.multiply.accumulate(factors)


def _blocks(offsets: IntArray) -> Iterator[tuple[int, int]]:
    """Ranges of lists that have about as many items as are hashed at a time."""
    bounds = np.searchsorted(offsets, np.arange(offsets[0], offsets[-1], _BLOCK))
    edges = np.unique(np.append(bounds, len(offsets) - 1)).tolist()
    return pairwise(edges)


def concat_lists(columns: Sequence[pa.DictionaryArray]) -> pa.DictionaryArray:
    """The rows of several columns of lists; what is equal in two of them exists twice."""
    distinct = [_distinct(lists) for lists in columns]
    firsts = np.cumsum([0, *map(len, distinct)]).astype(np.int32)
    codes = np.concatenate([lists.indices.to_numpy() + n for lists, n in zip(columns, firsts, strict=False)])
    return pa.DictionaryArray.from_arrays(pa.array(codes), pa.concat_arrays(distinct))


def joined(lists: pa.DictionaryArray, starts: IntArray) -> pa.DictionaryArray:
    """One list for each run of rows, with the labels of all of them; runs begin at ``starts``."""
    counts, codes = np.diff(np.append(starts, len(lists))), lists.indices.to_numpy()
    longer = np.flatnonzero(counts > 1)
    rows = np.repeat(counts > 1, counts)
    # Few sequences of lists are different, so few of them are joined. All other lists stay.
    offsets = np.concatenate(([0], np.cumsum(counts[longer])))
    sequences = interned(pa.ListArray.from_arrays(pa.array(offsets, type=pa.int32()), pa.array(codes[rows])))
    pieces = _distinct(lists).take(_distinct(sequences).flatten())
    ends = _offsets(pieces)[_offsets(_distinct(sequences))]
    whole = pa.ListArray.from_arrays(pa.array(ends, type=pa.int32()), pieces.flatten())
    after = codes[starts]
    after[longer] = len(lists.dictionary) + sequences.indices.to_numpy()
    column = pa.DictionaryArray.from_arrays(pa.array(after), pa.concat_arrays([_distinct(lists), whole]))
    # Packed once the rows have less than half of the labels that are kept for them.
    lengths, used = np.diff(_offsets(_distinct(column))), np.zeros(len(column.dictionary), dtype=bool)
    used[column.indices.to_numpy()] = True
    return packed(column) if 2 * lengths[used].sum() < lengths.sum() else column


def without_labels(lists: pa.DictionaryArray, gone: _Mask) -> pa.DictionaryArray:
    """The lists without the labels, by their codes, that are gone; null where none is left."""
    distinct, names = _distinct(lists), names_of(lists)
    codes, offsets = _codes(distinct), _offsets(distinct)
    kept = ~gone[codes]
    ends = np.concatenate(([0], np.cumsum(kept)))[offsets]
    members = pa.array((np.cumsum(~gone) - 1).astype(np.int32)[codes[kept]])
    labels = pa.DictionaryArray.from_arrays(members, names.filter(pa.array(~gone)))
    filled = np.flatnonzero(np.diff(ends))
    left = pa.ListArray.from_arrays(pa.array(np.append(ends[filled], ends[-1]), type=pa.int32()), labels)
    unique = interned(left)
    numbers = pc.index_in(lists.indices, value_set=pa.array(filled.astype(np.int32)))
    return pa.DictionaryArray.from_arrays(unique.indices.take(numbers), unique.dictionary)


def compacted(lists: pa.DictionaryArray) -> pa.DictionaryArray:
    """The same rows, where equal lists exist once."""
    unique = interned(_distinct(lists))
    return pa.DictionaryArray.from_arrays(unique.indices.take(lists.indices), unique.dictionary)


def packed(lists: pa.DictionaryArray) -> pa.DictionaryArray:
    """The same rows without lists and labels that none of them has."""
    used = lists.indices.dictionary_encode()
    distinct = _distinct(lists).take(used.dictionary)
    members = cast("pa.DictionaryArray", distinct.flatten())
    codes = members.indices.dictionary_encode()
    labels = pa.DictionaryArray.from_arrays(codes.indices, members.dictionary.take(codes.dictionary))
    return pa.DictionaryArray.from_arrays(used.indices, pa.ListArray.from_arrays(distinct.offsets, labels))


def _distinct(lists: pa.DictionaryArray) -> pa.ListArray:
    return cast("pa.ListArray", lists.dictionary)


def _offsets(lists: pa.ListArray) -> IntArray:
    """Begin and end of each list in `_codes`."""
    offsets: IntArray = lists.offsets.to_numpy()
    return offsets - offsets[:1]


def _codes(lists: pa.ListArray) -> IntArray:
    """The items of all lists, which are codes."""
    items = lists.flatten()
    codes: IntArray = (items.indices if isinstance(items, pa.DictionaryArray) else items).to_numpy()
    return codes


# Looking up one label costs about as much as scanning this many.
_COST = 16


def positions_among(names: pa.Array, labels: pa.Array) -> IntArray:
    """The position of each name among the labels, which are distinct; -1 where it is missing."""
    if len(names) * _COST > len(labels):
        return np.asarray(pc.fill_null(pc.index_in(names, value_set=labels), -1), dtype=np.int64)
    # Few names: a table of these is smaller than one of all labels.
    found = pc.indices_nonzero(pc.is_in(labels, value_set=names))
    positions = np.append(found.to_numpy(), -1).astype(np.int64)
    places: IntArray = positions[pc.fill_null(pc.index_in(names, value_set=labels.take(found)), -1).to_numpy()]
    return places


# Rows of a row group of an index file: reads with predicates decode only matching row groups.
INDEX_ROWS = 10_000

# Searching the place of one value takes as long as sorting so many.
_MERGED = 100
# The column of the lists in an index file.
LABELS = "partition"


@dataclass(frozen=True, slots=True)
class SecondaryIndex:
    """Pairs of a value of ``column`` and the label of a partition that holds it.

    Attributes
    ----------
    column : str
        The indexed column.
    keys : pyarrow.Array
        Values without nulls; in an index that is `grouped`, each once, ascending.
    lists : pyarrow.DictionaryArray
        For each key the list of its labels. Equal lists exist once, and so does a label of many
        lists: a million pairs may be some kilobytes.
    """

    column: str
    keys: pa.Array
    lists: pa.DictionaryArray
    # Whether keys ascend; cached, as every query of a cached index needs it.
    _ascends: bool | None = field(default=None, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.keys) if self._is_flat else int(number_of_labels(self.lists).sum())

    @property
    def type(self) -> pa.DataType:
        """The type of the values."""
        return self.keys.type

    @property
    def values(self) -> pa.Array:
        """The value of each pair."""
        if self._is_flat:
            return self.keys
        return self.keys.take(pa.array(np.repeat(np.arange(len(self.keys)), number_of_labels(self.lists))))

    @property
    def labels(self) -> pa.DictionaryArray:
        """The label of each pair; a label of many pairs is stored once."""
        return labels_of(self.lists)

    @property
    def _is_flat(self) -> bool:
        """Whether every key has one label."""
        return len(self.lists.dictionary) == len(self.lists.dictionary.flatten())

    def __reduce__(self) -> tuple[Any, ...]:
        # Compressed Arrow IPC, as pickles travel to executors.
        batch = pa.RecordBatch.from_arrays([self.keys, self.packed().lists], names=["keys", "lists"])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_batch(batch)
        return SecondaryIndex.from_bytes, (self.column, bytes(sink.getvalue()))

    @staticmethod
    def from_bytes(column: str, data: bytes) -> SecondaryIndex:
        """The index that a pickle has."""
        keys, lists = pa.ipc.open_stream(data).read_next_batch().columns
        return SecondaryIndex(column, keys, cast("pa.DictionaryArray", lists))

    def select(self, clauses: Sequence[Clause]) -> SecondaryIndex:
        """The pairs whose value satisfies all clauses."""
        if len(self.keys) <= MANY or not can_be_searched(clauses) or not self._is_ascending():
            return self.where(matching_all(self.keys, clauses))
        ranges = matching_ranges(self.keys, clauses)
        return self.take(np.concatenate([np.zeros(0, dtype=np.int64), *(np.arange(low, high) for low, high in ranges)]))

    def _is_ascending(self) -> bool:
        if self._ascends is None:
            ascends = pc.all(pc.less_equal(self.keys[:-1], self.keys[1:])).as_py()
            object.__setattr__(self, "_ascends", bool(ascends and not _is_null(self.keys).any()))
        return bool(self._ascends)

    def where(self, mask: Mask) -> SecondaryIndex:
        """The keys where the mask is true, with all of their labels."""
        picked = pa.array(mask)
        return SecondaryIndex(self.column, self.keys.filter(picked), self.lists.filter(picked))

    def take(self, rows: IntArray) -> SecondaryIndex:
        """The keys of these rows, with all of their labels."""
        picked = pa.array(rows)
        return SecondaryIndex(self.column, self.keys.take(picked), self.lists.take(picked))

    def slice(self, start: int, length: int) -> SecondaryIndex:
        """The keys of a range of rows, with all of their labels."""
        return SecondaryIndex(self.column, self.keys.slice(start, length), self.lists.slice(start, length))

    def packed(self) -> SecondaryIndex:
        """The same, without lists and labels that no key has."""
        return SecondaryIndex(self.column, self.keys, packed(self.lists))

    def compacted(self) -> SecondaryIndex:
        """The same, where equal lists exist once."""
        return SecondaryIndex(self.column, self.keys, compacted(self.lists))

    def filter(self, mask: Mask) -> SecondaryIndex:
        """The pairs where the mask is true."""
        return self.where(mask) if self._is_flat else index_of_pairs(self.column, self.values, self.labels).where(mask)

    def cast(self, data_type: pa.DataType) -> SecondaryIndex:
        """The same pairs with values of this type."""
        return SecondaryIndex(self.column, self.keys.cast(data_type), self.lists)

    def positions(self, all_labels: pa.Array) -> IntArray:
        """For each pair the position of its label in ``all_labels``, -1 where it is missing."""
        if not len(self.keys):
            return np.zeros(0, dtype=np.int64)
        labels = self.labels
        codes = pc.fill_null(pc.index_in(labels.dictionary, value_set=all_labels), -1)
        positions: IntArray = codes.to_numpy().astype(np.int64)[labels.indices.to_numpy()]
        return positions


def index_of_pairs(column: str, values: pa.Array, labels: pa.DictionaryArray) -> SecondaryIndex:
    """An index of a value and a label for each pair; neither has nulls."""
    return SecondaryIndex(column, values, lists_of_one(labels))


def index_type(data_type: pa.DataType, column: str, dataset: str | None = None) -> pa.DataType:
    """The type of an index on a column of this type."""
    if column == LABELS:
        place = f" in dataset {dataset}" if dataset else ""
        raise InvalidInput(
            f"A column called {column!r} cannot be indexed{place}: index files use the name themselves. Rename it."
        )
    normal = normal_type(data_type)
    if any(is_type(normal) for is_type in (pt.is_null, pt.is_nested, pt.is_decimal, pt.is_time, pt.is_duration)):
        place = f" of dataset {dataset}" if dataset else ""
        raise Unsupported(f"Column {column!r}{place} has the type {data_type}, on which no index can be built.")
    return normal


def build_index(column: str, data_type: pa.DataType, entries: Iterable[tuple[pa.Array, str]]) -> SecondaryIndex:
    """An index from the distinct values of each partition."""
    pairs = [(values if values.type.equals(data_type) else values.cast(data_type), label) for values, label in entries]
    values = pa.concat_arrays([v for v, _ in pairs]) if pairs else pa.array([], type=data_type)
    codes = np.repeat(np.arange(len(pairs), dtype=np.int32), [len(v) for v, _ in pairs])
    labels = pa.array([label for _, label in pairs], type=pa.string())
    return index_of_pairs(column, values, pa.DictionaryArray.from_arrays(pa.array(codes, type=pa.int32()), labels))


def column_index(column: str, values: pa.Array | pa.ChunkedArray, labels: pa.Array) -> SecondaryIndex:
    """An index from one value per label, without nulls: that of a partition key."""
    values = pa.concat_arrays(values.chunks) if isinstance(values, pa.ChunkedArray) and values.num_chunks else values
    values = pa.array([], type=values.type) if isinstance(values, pa.ChunkedArray) else values
    codes = pa.array(np.arange(len(labels), dtype=np.int32))
    pairs = index_of_pairs(column, values, pa.DictionaryArray.from_arrays(codes, labels))
    null = _is_null(values)
    return pairs.where(~null) if null.any() else pairs


def merge_indices(indices: Sequence[SecondaryIndex]) -> SecondaryIndex:
    """All pairs of several indices on one column; their types must agree."""
    first = indices[0]
    keys = pa.concat_arrays([i.keys.cast(first.type) for i in indices])
    return SecondaryIndex(first.column, keys, concat_lists([i.lists for i in indices]))


def grouped(index: SecondaryIndex) -> SecondaryIndex:
    """The same pairs with each value once, ascending."""
    keys = index.keys
    ascends = pc.less(keys[:-1], keys[1:]).to_numpy(zero_copy_only=False)
    if ascends.all():
        return index
    order = _ascending_order(keys, int(np.argmin(ascends)) + 1)
    keys, lists = keys.take(order), index.lists.take(order)
    starts = run_starts(keys)
    if len(starts) < len(keys):
        keys, lists = keys.take(pa.array(starts)), joined(lists, starts)
    return SecondaryIndex(index.column, keys, lists)


def _ascending_order(keys: pa.Array, first: int) -> pa.Array:
    """The positions of the keys, stably sorted; those before ``first`` ascend."""
    added = pc.sort_indices(keys[first:]).to_numpy().astype(np.int64) + first
    if _MERGED * len(added) > first:
        return pc.sort_indices(keys)
    # A commit adds few values to many, which are not sorted again.
    if pt.is_primitive(keys.type):
        numbers = keys.to_numpy(zero_copy_only=False)
        places = np.searchsorted(numbers[:first], numbers[added], side="right")
    else:
        texts = keys.cast(pa.binary())  # Arrow orders texts by their bytes
        new = texts.take(pa.array(added)).to_pylist()
        places = np.array([bisect_right(range(first), text, key=lambda i: texts[i].as_py()) for text in new])
    return pa.array(np.insert(np.arange(first), places, added))


def drop_labels(index: SecondaryIndex, removed: pa.Array) -> SecondaryIndex:
    """The index without the pairs of these labels."""
    gone = pc.is_in(names_of(index.lists), value_set=removed).to_numpy(zero_copy_only=False)
    if not gone.any():
        return index
    left = SecondaryIndex(index.column, index.keys, without_labels(index.lists, gone))
    return left.where(left.lists.is_valid().to_numpy(zero_copy_only=False))


def keep_labels(index: SecondaryIndex, kept: pa.Array) -> SecondaryIndex:
    """The index without the pairs of all other labels."""
    labels = names_of(index.lists)
    return drop_labels(index, labels.filter(pc.invert(pc.is_in(labels, value_set=kept))))


def index_labels(index: SecondaryIndex) -> pa.Array:
    """The distinct labels of the pairs, sorted."""
    labels = pc.unique(names_of(index.packed().lists))
    return labels.take(pc.array_sort_indices(labels))


def distinct_pairs(index: SecondaryIndex) -> SecondaryIndex:
    """The distinct pairs, sorted by value and then label; the dictionary is `index_labels`."""
    names = index_labels(index)
    codes = index.positions(names)
    values = index.values
    keys = pack_one(pa.table({"value": values, "label": codes}), ["value", "label"])
    _, first = np.unique(keys, return_index=True)
    labels = pa.DictionaryArray.from_arrays(pa.array(codes[first].astype(np.int32)), names)
    return index_of_pairs(index.column, values.take(pa.array(first)), labels)


def run_starts(values: pa.Array) -> IntArray:
    """Positions where a run of equal values begins; the values have no nulls."""
    if not len(values):
        return np.zeros(0, dtype=np.int64)
    changed = pc.not_equal(values[1:], values[:-1]).to_numpy(zero_copy_only=False).astype(bool)
    return np.concatenate(([0], np.flatnonzero(changed) + 1)).astype(np.int64)


def index_from_table(
    table: pa.Table, column: str, data_type: pa.DataType, key: str, clauses: Sequence[Clause] = ()
) -> SecondaryIndex:
    """The pairs of an index file of any writer: values, each with the list of its labels.

    Only values that satisfy all clauses.
    """
    # Other writers leave large strings, any order of values, and values that occur twice.
    if column not in table.column_names or LABELS not in table.column_names:
        raise CorruptData(
            f"The index file {key} should have the columns {column!r} and {LABELS!r}, but has {table.column_names}."
        )
    try:
        keys = pa.concat_arrays(table.column(column).cast(normal_type(data_type)).chunks or [pa.array([], data_type)])
        lists: Any = table.column(LABELS).combine_chunks()
        lists = pa.concat_arrays(lists.chunks) if isinstance(lists, pa.ChunkedArray) else lists
        if clauses:
            picked = pa.array(matching_all(keys, clauses))
            keys, lists = keys.filter(picked), lists.filter(picked)
        counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
        labels = _coded(lists.flatten())
        null_key, null_label = _is_null(keys), labels.is_null().to_numpy(zero_copy_only=False)
        if null_key.any() or null_label.any():
            rows = np.repeat(np.arange(len(keys)), counts)
            kept = ~(null_key[rows] | null_label)
            labels, counts = labels.filter(pa.array(kept)), np.bincount(rows[kept], minlength=len(keys))
        filled = np.flatnonzero(counts)
        offsets = np.concatenate(([0], np.cumsum(counts[filled])))
        whole = pa.ListArray.from_arrays(pa.array(offsets, type=pa.int32()), labels)
        return SecondaryIndex(column, keys.take(pa.array(filled)), interned(whole))
    except pa.ArrowException as error:
        raise CorruptData(f"The file {key} is no index on {column!r}, which is {data_type}: {error}") from error


def _coded(labels: pa.Array) -> pa.DictionaryArray:
    """Labels as codes of texts, as they were read or encoded here."""
    is_coded = labels.type == pa.dictionary(pa.int32(), pa.string())
    if is_coded and isinstance(labels, pa.DictionaryArray) and not labels.dictionary.null_count:
        labels.validate(full=True)  # Arrow reads any code from a damaged file
        return labels
    return labels.cast(pa.string()).dictionary_encode()


def _is_null(values: pa.Array) -> Mask:
    mask: Mask = pc.is_null(values, nan_is_null=pt.is_floating(values.type)).to_numpy(zero_copy_only=False)
    return mask


def distinct_values(column: pa.ChunkedArray) -> pa.Array:
    """The distinct values of a column, without nulls and NaN."""
    distinct = column.unique()
    distinct = distinct.drop_null() if distinct.null_count else distinct
    return distinct.filter(pc.invert(pc.is_nan(distinct))) if pt.is_floating(distinct.type) else distinct
