"""Secondary indices as Arrow columns of value → label pairs: build, merge, drop, select."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from kartothek_cube.core.arrow.sort_keys import IntArray, pack_one
from kartothek_cube.core.arrow.types import normal_type
from kartothek_cube.core.expressions.evaluate import MANY, Mask, can_be_searched, matching_all, matching_ranges
from kartothek_cube.core.expressions.predicates import Clause
from kartothek_cube.errors import CorruptData, InvalidInput, Unsupported

__all__ = [
    "INDEX_ROWS",
    "SecondaryIndex",
    "build_index",
    "column_index",
    "distinct_pairs",
    "distinct_values",
    "drop_labels",
    "index_from_table",
    "index_labels",
    "index_table",
    "index_type",
    "keep_labels",
    "merge_indices",
    "run_starts",
]

# Rows of a row group of an index file: reads with predicates decode only matching row groups.
INDEX_ROWS = 10_000

_LABELS = "partition"


@dataclass(frozen=True, slots=True)
class SecondaryIndex:
    """Pairs of a value of ``column`` and the label of a partition that holds it.

    Row *i* of ``values`` and ``labels`` is pair *i*. ``labels`` is a dictionary array: a label of
    many pairs is stored once. Nulls are never in an index.
    """

    column: str
    values: pa.Array
    labels: pa.DictionaryArray
    # Whether values ascend; cached, as every query of a cached index needs it.
    _ascends: bool | None = field(default=None, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.values)

    def __reduce__(self) -> tuple[Any, ...]:
        # Compressed Arrow IPC, as pickles travel to executors.
        table, sink = pa.table({"values": self.values, "labels": self.labels}), pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_table(table)
        return _from_bytes, (self.column, bytes(sink.getvalue()))

    def select(self, clauses: Sequence[Clause]) -> SecondaryIndex:
        """The pairs whose value satisfies all clauses."""
        if len(self) <= MANY or not can_be_searched(clauses) or not self._is_ascending():
            return self.filter(matching_all(self.values, clauses))
        pieces = [self._slice(low, high) for low, high in matching_ranges(self.values, clauses)]
        return pieces[0] if len(pieces) == 1 else merge_indices(pieces or [self._slice(0, 0)])

    def _slice(self, low: int, high: int) -> SecondaryIndex:
        return SecondaryIndex(self.column, self.values.slice(low, high - low), self.labels.slice(low, high - low))

    def _is_ascending(self) -> bool:
        if self._ascends is None:
            ascends = pc.all(pc.less_equal(self.values[:-1], self.values[1:])).as_py()
            object.__setattr__(self, "_ascends", bool(ascends and not _is_null(self.values).any()))
        return bool(self._ascends)

    def filter(self, mask: Mask) -> SecondaryIndex:
        """The pairs where the mask is true."""
        picked = pa.array(mask)
        return SecondaryIndex(self.column, self.values.filter(picked), self.labels.filter(picked))

    def positions(self, all_labels: pa.Array) -> IntArray:
        """For each pair the position of its label in ``all_labels``, -1 where it is missing."""
        if not len(self):
            return np.zeros(0, dtype=np.int64)
        codes = pc.fill_null(pc.index_in(self.labels.dictionary, value_set=all_labels), -1)
        positions: IntArray = codes.to_numpy().astype(np.int64)[self.labels.indices.to_numpy()]
        return positions


def _from_bytes(column: str, data: bytes) -> SecondaryIndex:
    table = pa.ipc.open_stream(data).read_all().combine_chunks()
    values, labels = (c.chunk(0) if c.num_chunks else pa.array([], type=c.type) for c in table.columns)
    return SecondaryIndex(column, values, cast("pa.DictionaryArray", labels))


def index_type(data_type: pa.DataType, column: str, dataset: str | None = None) -> pa.DataType:
    """The type of an index on a column of this type."""
    if column == _LABELS:
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
    return SecondaryIndex(column, values, pa.DictionaryArray.from_arrays(pa.array(codes, type=pa.int32()), labels))


def column_index(column: str, values: pa.Array | pa.ChunkedArray, labels: pa.Array) -> SecondaryIndex:
    """An index from one value per label, without nulls: that of a partition key."""
    values = pa.concat_arrays(values.chunks) if isinstance(values, pa.ChunkedArray) and values.num_chunks else values
    values = pa.array([], type=values.type) if isinstance(values, pa.ChunkedArray) else values
    codes = pa.array(np.arange(len(labels), dtype=np.int32))
    pairs = SecondaryIndex(column, values, pa.DictionaryArray.from_arrays(codes, labels))
    null = _is_null(values)
    return pairs.filter(~null) if null.any() else pairs


def merge_indices(indices: Sequence[SecondaryIndex]) -> SecondaryIndex:
    """All pairs of several indices on one column; their types must agree."""
    first = indices[0]
    unified: Any = pa.chunked_array([i.labels for i in indices]).unify_dictionaries().combine_chunks()
    labels = unified.chunk(0) if isinstance(unified, pa.ChunkedArray) else unified
    values = pa.concat_arrays([i.values.cast(first.values.type) for i in indices])
    return SecondaryIndex(first.column, values, cast("pa.DictionaryArray", labels))


def drop_labels(index: SecondaryIndex, removed: pa.Array) -> SecondaryIndex:
    """The index without the pairs of these labels."""
    gone = pc.is_in(index.labels.dictionary, value_set=removed).to_numpy(zero_copy_only=False)
    if not gone.any():
        return index
    return index.filter(~gone[index.labels.indices.to_numpy()])


def keep_labels(index: SecondaryIndex, kept: pa.Array) -> SecondaryIndex:
    """The index without the pairs of all other labels."""
    labels = index.labels.dictionary
    return drop_labels(index, labels.filter(pc.invert(pc.is_in(labels, value_set=kept))))


def index_labels(index: SecondaryIndex) -> pa.Array:
    """The distinct labels of the pairs, sorted."""
    labels = pc.unique(index.labels.dictionary.take(pc.unique(index.labels.indices)))
    return labels.take(pc.array_sort_indices(labels))


def distinct_pairs(index: SecondaryIndex) -> SecondaryIndex:
    """The distinct pairs, sorted by value and then label; the dictionary is `index_labels`."""
    names = index_labels(index)
    codes = index.positions(names)
    keys = pack_one(pa.table({"value": index.values, "label": codes}), ["value", "label"])
    _, first = np.unique(keys, return_index=True)
    labels = pa.DictionaryArray.from_arrays(pa.array(codes[first].astype(np.int32)), names)
    return SecondaryIndex(index.column, index.values.take(pa.array(first)), labels)


def index_table(index: SecondaryIndex) -> pa.Table:
    """The index as its file has it: distinct values, sorted, each with the list of its labels."""
    order = np.asarray(pc.sort_indices(index.values))
    values = index.values.take(pa.array(order))
    starts = run_starts(values)
    offsets = pa.array(np.append(starts, len(values)), type=pa.int32())
    labels = index.labels.take(pa.array(order)).cast(pa.string())
    lists = pa.ListArray.from_arrays(offsets, labels)
    return pa.table([values.take(pa.array(starts)), lists], names=[index.column, _LABELS])


def run_starts(values: pa.Array) -> IntArray:
    """Positions where a run of equal values begins; the values have no nulls."""
    if not len(values):
        return np.zeros(0, dtype=np.int64)
    changed = pc.not_equal(values[1:], values[:-1]).to_numpy(zero_copy_only=False).astype(bool)
    return np.concatenate(([0], np.flatnonzero(changed) + 1)).astype(np.int64)


def index_from_table(table: pa.Table, column: str, data_type: pa.DataType, key: str) -> SecondaryIndex:
    """The reverse of `index_table`, for files of any writer."""
    # Other writers leave large strings, any order of values, and values that occur twice.
    if column not in table.column_names or _LABELS not in table.column_names:
        raise CorruptData(
            f"The index file {key} should have the columns {column!r} and {_LABELS!r}, but has {table.column_names}."
        )
    try:
        values = table.column(column).cast(normal_type(data_type))
        lists: Any = table.column(_LABELS).combine_chunks()
        lists = pa.concat_arrays(lists.chunks) if isinstance(lists, pa.ChunkedArray) else lists
        counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
        labels = lists.flatten().cast(pa.string())
        repeated = values.combine_chunks().take(pa.array(np.repeat(np.arange(len(values)), counts)))
        valid = ~(_is_null(repeated) | _is_null(labels))
        if not valid.all():
            repeated, labels = repeated.filter(pa.array(valid)), labels.filter(pa.array(valid))
        return SecondaryIndex(column, repeated, labels.dictionary_encode())
    except pa.ArrowException as error:
        raise CorruptData(f"The file {key} is no index on {column!r}, which is {data_type}: {error}") from error


def _is_null(values: pa.Array) -> Mask:
    mask: Mask = pc.is_null(values, nan_is_null=pt.is_floating(values.type)).to_numpy(zero_copy_only=False)
    return mask


def distinct_values(column: pa.ChunkedArray) -> pa.Array:
    """The distinct values of a column, without nulls and NaN."""
    distinct = column.unique()
    distinct = distinct.drop_null() if distinct.null_count else distinct
    return distinct.filter(pc.invert(pc.is_nan(distinct))) if pt.is_floating(distinct.type) else distinct
