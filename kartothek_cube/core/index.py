"""Secondary indices as Arrow columns: value → label pairs; build, merge, drop, select."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from kartothek_cube.core.evaluate import Mask, matching_all
from kartothek_cube.core.predicates import Clause
from kartothek_cube.core.ranges import MANY, can_be_searched, matching_ranges
from kartothek_cube.core.rowkeys import pack_one
from kartothek_cube.core.schema import normal_type
from kartothek_cube.errors import CorruptData, InvalidInput, Unsupported

__all__ = [
    "INDEX_ROWS",
    "SecondaryIndex",
    "build_index",
    "column_index",
    "distinct_pairs",
    "drop_labels",
    "index_from_table",
    "index_labels",
    "index_table",
    "index_type",
    "keep_labels",
    "merge_indices",
    "run_starts",
]

# Rows of a row group of an index file: an equality or a range reads only matching groups.
INDEX_ROWS = 10_000
_LABELS = "partition"


@dataclass(frozen=True, slots=True)
class SecondaryIndex:
    """Pairs of a value of ``column`` and the label of a partition that holds it.

    ``values`` and ``labels`` have one entry a pair; ``labels`` is a dictionary array, so that a label that occurs in
    many pairs is kept once. Nulls are never in an index.
    """

    column: str
    values: pa.Array
    labels: pa.DictionaryArray
    # Whether values ascend, once it was asked for; an index that is kept is asked again and again.
    _known_sorted: bool | None = field(default=None, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.values)

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_bytes, (self.column, _to_bytes(pa.table({"values": self.values, "labels": self.labels})))

    def select(self, clauses: Sequence[Clause]) -> SecondaryIndex:
        """The pairs whose value satisfies all clauses."""
        if len(self) <= MANY or not can_be_searched(clauses) or not self._is_sorted():
            return self.filter(matching_all(self.values, clauses))
        pieces = [self._slice(low, high) for low, high in matching_ranges(self.values, clauses)]
        return pieces[0] if len(pieces) == 1 else merge_indices(pieces or [self._slice(0, 0)])

    def _slice(self, low: int, high: int) -> SecondaryIndex:
        return SecondaryIndex(self.column, self.values.slice(low, high - low), self.labels.slice(low, high - low))

    def _is_sorted(self) -> bool:
        if self._known_sorted is None:
            ascends = pc.all(pc.less_equal(self.values[:-1], self.values[1:])).as_py() and not _is_null(self.values).any()
            object.__setattr__(self, "_known_sorted", bool(ascends))
        return bool(self._known_sorted)

    def filter(self, mask: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> SecondaryIndex:
        """The pairs where the mask is true."""
        picked = pa.array(mask)
        return SecondaryIndex(self.column, self.values.filter(picked), self.labels.filter(picked))

    def positions(self, all_labels: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """For each pair the position of its label in ``all_labels``; -1 where it is not among them."""
        codes = pc.fill_null(pc.index_in(self.labels.dictionary, value_set=all_labels), -1)
        return codes.to_numpy().astype(np.int64)[self.labels.indices.to_numpy()] if len(self) else np.zeros(0, dtype=np.int64)


def _to_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _from_bytes(column: str, data: bytes) -> SecondaryIndex:
    table = pa.ipc.open_stream(data).read_all().combine_chunks()
    values, labels = (c.chunk(0) if c.num_chunks else pa.array([], type=c.type) for c in table.columns)
    return SecondaryIndex(column, values, cast("pa.DictionaryArray", labels))


def index_type(kind: pa.DataType, column: str, where: str | None = None) -> pa.DataType:
    """The type of an index on a column of this type."""
    if column == _LABELS:
        place = f" in dataset {where}" if where else ""
        raise InvalidInput(f"A column called {column!r} cannot be indexed{place}: index files use the name themselves. Rename it.")
    normal = normal_type(kind)
    if pt.is_null(normal) or pt.is_nested(normal) or pt.is_decimal(normal) or pt.is_time(normal) or pt.is_duration(normal):
        place = f" of dataset {where}" if where else ""
        raise Unsupported(f"Column {column!r}{place} has the type {kind}, on which no index can be built.")
    return normal


def build_index(column: str, kind: pa.DataType, entries: Iterable[tuple[pa.Array, str]]) -> SecondaryIndex:
    """An index from the distinct values of each partition."""
    pairs = [(values if values.type.equals(kind) else values.cast(kind), label) for values, label in entries]
    values = pa.concat_arrays([v for v, _ in pairs]) if pairs else pa.array([], type=kind)
    codes = np.repeat(np.arange(len(pairs), dtype=np.int32), [len(v) for v, _ in pairs])
    labels = pa.array([label for _, label in pairs], type=pa.string())
    return SecondaryIndex(column, values, pa.DictionaryArray.from_arrays(pa.array(codes, type=pa.int32()), labels))


def column_index(column: str, values: pa.Array | pa.ChunkedArray, labels: pa.Array) -> SecondaryIndex:
    """An index from one value a label, as a partition key has; nulls are left out."""
    values = pa.concat_arrays(values.chunks) if isinstance(values, pa.ChunkedArray) and values.num_chunks else values
    values = pa.array([], type=values.type) if isinstance(values, pa.ChunkedArray) else values
    pairs = SecondaryIndex(column, values, pa.DictionaryArray.from_arrays(pa.array(np.arange(len(labels), dtype=np.int32)), labels))
    null = _is_null(values)
    return pairs.filter(~null) if null.any() else pairs


def merge_indices(indices: Sequence[SecondaryIndex]) -> SecondaryIndex:
    """All pairs of several indices on one column; their types must agree."""
    first = indices[0]
    labels = cast("pa.DictionaryArray | pa.ChunkedArray", pa.chunked_array([i.labels for i in indices]).unify_dictionaries().combine_chunks())
    values = pa.concat_arrays([i.values.cast(first.values.type) for i in indices])
    return SecondaryIndex(first.column, values, cast("pa.DictionaryArray", labels.chunk(0)) if isinstance(labels, pa.ChunkedArray) else labels)


def drop_labels(index: SecondaryIndex, removed: pa.Array) -> SecondaryIndex:
    """The index without the pairs of these labels."""
    gone = pc.is_in(index.labels.dictionary, value_set=removed).to_numpy(zero_copy_only=False)
    if not gone.any():
        return index
    return index.filter(~gone[index.labels.indices.to_numpy()])


def keep_labels(index: SecondaryIndex, kept: pa.Array) -> SecondaryIndex:
    """The index without the pairs of all other labels."""
    return drop_labels(index, index.labels.dictionary.filter(pc.invert(pc.is_in(index.labels.dictionary, value_set=kept))))


def index_labels(index: SecondaryIndex) -> pa.Array:
    """The labels that occur in a pair, each once, sorted."""
    found = pc.unique(index.labels.dictionary.take(pc.unique(index.labels.indices)))
    return found.take(pc.array_sort_indices(found))


def distinct_pairs(index: SecondaryIndex) -> SecondaryIndex:
    """Every pair once, sorted by value and then label; the dictionary has the labels in use, sorted."""
    names = index_labels(index)
    codes = index.positions(names)
    _, first = np.unique(pack_one(pa.table({"value": index.values, "label": codes}), ["value", "label"]), return_index=True)
    labels = pa.DictionaryArray.from_arrays(pa.array(codes[first].astype(np.int32)), names)
    return SecondaryIndex(index.column, index.values.take(pa.array(first)), labels)


def index_table(index: SecondaryIndex) -> pa.Table:
    """The index in the form of its file: one row a value, sorted, with the list of its labels."""
    order = np.asarray(pc.sort_indices(index.values))
    values = index.values.take(pa.array(order))
    starts = run_starts(values)
    offsets = pa.array(np.append(starts, len(values)), type=pa.int32())
    labels = index.labels.take(pa.array(order)).cast(pa.string())
    lists = pa.ListArray.from_arrays(offsets, labels)
    return pa.table([values.take(pa.array(starts)), lists], names=[index.column, _LABELS])


def run_starts(values: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Positions where a run of equal values begins, in values without nulls."""
    if not len(values):
        return np.zeros(0, dtype=np.int64)
    changed = pc.not_equal(values[1:], values[:-1]).to_numpy(zero_copy_only=False).astype(bool)
    return np.concatenate(([0], np.flatnonzero(changed) + 1)).astype(np.int64)


def index_from_table(table: pa.Table, column: str, kind: pa.DataType, where: str) -> SecondaryIndex:
    """The reverse of `index_table`, for files of any writer: large strings, any order, repeated values."""
    if column not in table.column_names or _LABELS not in table.column_names:
        raise CorruptData(f"The index file {where} should have the columns {column!r} and {_LABELS!r}, but has {table.column_names}.")
    try:
        return _from_lists(column, table.column(column).cast(normal_type(kind)), table.column(_LABELS).combine_chunks())
    except pa.ArrowException as error:
        raise CorruptData(f"The file {where} is no index on {column!r}, which is {kind}: {error}") from error


def _from_lists(column: str, values: pa.ChunkedArray, lists: pa.Array | pa.ChunkedArray) -> SecondaryIndex:
    lists = lists if isinstance(lists, pa.Array) else pa.concat_arrays(lists.chunks)
    counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    labels = lists.flatten().cast(pa.string())
    repeated = values.combine_chunks().take(pa.array(np.repeat(np.arange(len(values)), counts)))
    known = ~(_is_null(repeated) | _is_null(labels))
    if not known.all():
        repeated, labels = repeated.filter(pa.array(known)), labels.filter(pa.array(known))
    return SecondaryIndex(column, repeated, labels.dictionary_encode())


def _is_null(values: pa.Array) -> Mask:
    mask: Mask = pc.is_null(values, nan_is_null=pt.is_floating(values.type)).to_numpy(zero_copy_only=False)
    return mask
