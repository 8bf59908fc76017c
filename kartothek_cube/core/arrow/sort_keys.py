"""Key columns of rows, packed into one order-preserving int64 per row: the base of every sort, duplicate check and join."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = [
    "PACKED_LIMIT",
    "BoolArray",
    "IntArray",
    "as_int64",
    "ascends",
    "empty_rows",
    "expand_ranges",
    "group_starts",
    "is_plain_integer",
    "pack",
    "pack_one",
    "ranks",
    "scratch",
    "stable_order",
    "take_rows",
]

BoolArray = np.ndarray[Any, np.dtype[np.bool_]]
IntArray = np.ndarray[Any, np.dtype[np.int64]]

# What packed keys stay below.
PACKED_LIMIT = 2**62


def pack_one(table: pa.Table, columns: Sequence[str]) -> IntArray:
    """One int64 a row; comparing two of them compares the rows' key columns lexicographically, nulls last."""
    return pack([table], columns)[0]


def pack(tables: Sequence[pa.Table], columns: Sequence[str]) -> list[IntArray]:
    """The same for several tables at once: keys are comparable across the tables."""
    keys, span, owned = [np.zeros(t.num_rows, dtype=np.int64) for t in tables], 1, False
    for column in columns:
        codes, low, width = _codes(_alike([t.column(column) for t in tables]))
        if width == 1:
            continue
        if span * width > PACKED_LIMIT:
            keys, span = _compress(keys)
        if span * width > PACKED_LIMIT:
            codes, width = _compress(codes)
            low = 0
        keys = [_appended(k, span, c, low, width, out=k if owned else None) for k, c in zip(keys, codes, strict=True)]
        owned = span > 1 or low != 0
        span *= width
    return keys


def _appended(keys: IntArray, span: int, codes: IntArray, low: int, width: int, out: IntArray | None) -> IntArray:
    """Keys with one more column behind those that they have, in ``out`` or memory of their own; ``codes`` belong to others."""
    if span == 1:
        return np.subtract(codes, low, out=scratch(len(codes))) if low else codes
    keys = np.multiply(keys, width, out=scratch(len(keys)) if out is None else out)
    keys += codes
    if low:
        keys -= low
    return keys


def scratch(rows: int, dtype: type[np.signedinteger[Any]] = np.int64) -> np.ndarray[Any, Any]:
    """Memory for numbers.

    Arrow keeps what is freed at hand, while the system has to give numpy each page anew.
    """
    return np.frombuffer(pa.allocate_buffer(rows * np.dtype(dtype).itemsize), dtype=dtype)


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


def _codes(columns: Sequence[pa.ChunkedArray]) -> tuple[list[IntArray], int, int]:
    """Order-preserving codes, the least one, and how many there may be from there."""
    if all(map(is_plain_integer, columns)):
        return _integers([as_int64(c) for c in columns])
    codes, values = ranks(pa.chunked_array([chunk for c in columns for chunk in c.chunks], type=columns[0].type))
    return np.split(codes, np.cumsum([len(c) for c in columns])[:-1]), 0, len(values) + 1


def is_plain_integer(column: pa.ChunkedArray) -> bool:
    """Whether the values are ordered as signed integers, and none is null."""
    data_type = column.type
    if column.null_count or pa.types.is_uint64(data_type):
        return False
    return bool(
        pa.types.is_integer(data_type)
        or pa.types.is_boolean(data_type)
        or pa.types.is_date32(data_type)
        or pa.types.is_timestamp(data_type)
    )


def as_int64(column: pa.ChunkedArray) -> IntArray:
    """The integers of such a column; not to be written to."""
    data_type = column.type
    if pa.types.is_date32(data_type):
        column = column.cast(pa.int32())
    if pa.types.is_boolean(data_type):
        column = column.cast(pa.int8())
    out: IntArray = (column if pa.types.is_int64(data_type) else column.cast(pa.int64())).to_numpy()
    return out


def _integers(arrays: list[IntArray]) -> tuple[list[IntArray], int, int]:
    filled = [a for a in arrays if len(a)]
    if not filled:
        return arrays, 0, 1
    low, high = min(int(a.min()) for a in filled), max(int(a.max()) for a in filled)
    if high - low >= PACKED_LIMIT:
        codes, width = _compress(arrays)
        return codes, 0, width
    return arrays, low, high - low + 1


def ranks(column: pa.ChunkedArray) -> tuple[IntArray, pa.Array]:
    """For each row the rank of its value among the sorted distinct values, null after all of them; and these values."""
    if pa.types.is_floating(column.type):
        column = pc.add(column, 0.0)  # -0.0 and 0.0 are one value
    chunks = column.dictionary_encode().unify_dictionaries().chunks
    if not chunks:
        return np.zeros(0, dtype=np.int64), pa.array([], column.type)
    values = chunks[0].dictionary
    order = pc.array_sort_indices(values).to_numpy()
    rank_of = np.empty(len(values) + 1, dtype=np.int64)
    rank_of[order] = np.arange(len(values))
    rank_of[-1] = len(values)
    codes = np.concatenate([pc.fill_null(c.indices, len(values)).to_numpy() for c in chunks])
    return rank_of[codes], values.take(pa.array(order))


def ascends(table: pa.Table, columns: Sequence[str]) -> bool:
    """Whether the rows are sorted by some columns, no two alike.

    No is also said where only packed keys can tell, as with nulls.
    """
    rising: BoolArray | None = None
    for here, there in map(_neighbours, map(table.column, reversed(columns))):
        rising = _less(here, there) if rising is None else _less(here, there) | (_equal(here, there) & rising)
    return table.num_rows < 2 if rising is None else bool(rising.all())


def _neighbours(column: pa.ChunkedArray) -> tuple[Any, Any]:
    """The values but for the last one, and those that follow them."""
    if is_plain_integer(column):
        values = as_int64(column)
        return values[:-1], values[1:]
    column = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
    return column.slice(0, max(len(column) - 1, 0)), column.slice(1)


def _less(here: Any, there: Any) -> BoolArray:
    """Not so where one of them is null."""
    found: BoolArray = (
        here < there if isinstance(here, np.ndarray) else pc.fill_null(pc.less(here, there), False).to_numpy()
    )
    return found


def _equal(here: Any, there: Any) -> BoolArray:
    """Not so where one of them is null."""
    found: BoolArray = (
        here == there if isinstance(here, np.ndarray) else pc.fill_null(pc.equal(here, there), False).to_numpy()
    )
    return found


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
