"""Key columns of rows, packed into one order-preserving int64 per row: the base of every sort, duplicate check and join."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["IntArray", "expand_ranges", "group_starts", "is_strictly_sorted", "pack", "pack_one", "stable_order", "take_rows"]

IntArray = np.ndarray[Any, np.dtype[np.int64]]

_LIMIT = 2**62


def pack_one(table: pa.Table, columns: Sequence[str]) -> IntArray:
    """One int64 a row; comparing two of them compares the rows' key columns lexicographically, nulls last."""
    return pack([table], columns)[0]


def pack(tables: Sequence[pa.Table], columns: Sequence[str]) -> list[IntArray]:
    """The same for several tables at once: keys are comparable across the tables."""
    keys = [np.zeros(t.num_rows, dtype=np.int64) for t in tables]
    span = 1
    for column in columns:
        codes, width = _codes(_alike([t.column(column) for t in tables]))
        if span * width > _LIMIT:
            keys, span = _compress(keys)
        if span * width > _LIMIT:
            codes, width = _compress(codes)
        keys = [k * width + c for k, c in zip(keys, codes, strict=True)]
        span *= width
    return keys


def _compress(keys: Sequence[IntArray]) -> tuple[list[IntArray], int]:
    """Replace values by their ranks, so that the range is not larger than the number of distinct values."""
    distinct, inverse = np.unique(np.concatenate(keys), return_inverse=True)
    ends = np.cumsum([len(k) for k in keys])[:-1]
    return [part.astype(np.int64, copy=False) for part in np.split(inverse.ravel(), ends)], max(1, len(distinct))


def _alike(columns: Sequence[pa.ChunkedArray]) -> Sequence[pa.ChunkedArray]:
    """The columns in one type: datasets may hold the same column in several widths."""
    columns = [c.cast(c.type.value_type) if pa.types.is_dictionary(c.type) else c for c in columns]
    if all(c.type == columns[0].type for c in columns):
        return columns
    common = pa.unify_schemas([pa.schema([("", c.type)]) for c in columns], promote_options="permissive").field(0).type
    return [c.cast(common) for c in columns]


def _codes(columns: Sequence[pa.ChunkedArray]) -> tuple[list[IntArray], int]:
    """Order-preserving codes from zero, and how many there may be."""
    if all(_is_plain_integer(c) for c in columns):
        return _shifted([_as_int64(c) for c in columns])
    return _ranked(columns)


def _is_plain_integer(column: pa.ChunkedArray) -> bool:
    kind = column.type
    if column.null_count or pa.types.is_uint64(kind):
        return False
    return bool(pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_date32(kind) or pa.types.is_timestamp(kind))


def _as_int64(column: pa.ChunkedArray) -> IntArray:
    kind = column.type
    if pa.types.is_date32(kind):
        column = column.cast(pa.int32())
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    out: IntArray = column.cast(pa.int64()).to_numpy()
    return out


def _shifted(arrays: list[IntArray]) -> tuple[list[IntArray], int]:
    filled = [a for a in arrays if len(a)]
    if not filled:
        return arrays, 1
    low, high = min(int(a.min()) for a in filled), max(int(a.max()) for a in filled)
    if high - low >= _LIMIT:
        return _compress(arrays)
    return [a - low for a in arrays], high - low + 1


def _ranked(columns: Sequence[pa.ChunkedArray]) -> tuple[list[IntArray], int]:
    """Ranks among the sorted distinct values; null comes after all of them."""
    if pa.types.is_floating(columns[0].type):
        columns = [pc.add(c, 0.0) for c in columns]  # -0.0 and 0.0 are one value
    chunks = [chunk for c in columns for chunk in c.chunks]
    distinct = pc.unique(pa.chunked_array(chunks, type=columns[0].type)).drop_null()
    ordered = distinct.take(pc.array_sort_indices(distinct))
    codes = [pc.fill_null(pc.index_in(c, value_set=ordered), len(ordered)) for c in columns]
    return [c.to_numpy().astype(np.int64) for c in codes], len(ordered) + 1


def is_strictly_sorted(keys: IntArray) -> bool:
    """Whether the keys ascend without a repetition."""
    return bool(np.all(keys[1:] > keys[:-1]))


def stable_order(keys: IntArray) -> IntArray | None:
    """Positions that sort the rows by key, equal keys in their order; None if they are sorted already."""
    if np.all(keys[1:] >= keys[:-1]):
        return None
    return np.argsort(keys, kind="stable")


def group_starts(keys: IntArray) -> IntArray:
    """Positions where a run of equal keys begins, in keys where equal ones lie together."""
    if not len(keys):
        return np.zeros(0, dtype=np.int64)
    return np.concatenate(([0], np.flatnonzero(keys[1:] != keys[:-1]) + 1)).astype(np.int64)


def expand_ranges(first: IntArray, counts: IntArray) -> tuple[IntArray, IntArray]:
    """All positions of several ranges one after the other: for each the number of its range, and the position.

    Examples
    --------
    >>> import numpy as np
    >>> expand_ranges(np.array([5, 9]), np.array([2, 1]))
    (array([0, 0, 1]), array([5, 6, 9]))
    """
    rows = np.repeat(np.arange(len(first)), counts)
    within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    return rows, first[rows] + within


def take_rows(table: pa.Table, positions: IntArray) -> pa.Table:
    """``table.take``, also for a table without columns."""
    return table.take(pa.array(positions)) if table.num_columns else empty_rows(len(positions))


def empty_rows(n: int) -> pa.Table:
    """A table of ``n`` rows without columns."""
    return pa.table({"": np.zeros(n, dtype=np.int8)}).select([])
