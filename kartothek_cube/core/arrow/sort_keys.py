"""Sort keys: the key columns of a row, packed into one int64 that keeps their order.

Every sort, duplicate check and join compares these. Pure.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
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
    "sorted_table",
    "stable_order",
    "take_chunked",
    "take_rows",
]

BoolArray = np.ndarray[Any, np.dtype[np.bool_]]
IntArray = np.ndarray[Any, np.dtype[np.int64]]

# Packed keys are below this, so that neither sums nor differences of two overflow.
PACKED_LIMIT = 2**62


def pack_one(table: pa.Table, columns: Sequence[str]) -> IntArray:
    """One int64 per row, in the lexicographic order of the key columns; nulls are last."""
    return pack([table], columns)[0]


def pack(tables: Sequence[pa.Table], columns: Sequence[str]) -> list[IntArray]:
    """`pack_one` for several tables: keys are comparable across the tables."""
    keys, span, owned = [np.zeros(t.num_rows, dtype=np.int64) for t in tables], 1, False
    for column in columns:
        codes, low, width = _codes([t.column(column) for t in tables])
        if width == 1:
            continue
        # The range is too large: ranks are in a range no larger than the number of distinct keys.
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
    """Keys with one more column, written to ``out`` or new memory."""
    # `codes` may be the buffer of a column, which must not be written to.
    if span == 1:
        return np.subtract(codes, low, out=scratch(len(codes))) if low else codes
    keys = np.multiply(keys, width, out=scratch(len(keys)) if out is None else out)
    keys += codes
    if low:
        keys -= low
    return keys


def scratch(rows: int, dtype: type[np.signedinteger[Any]] = np.int64) -> np.ndarray[Any, Any]:
    """Memory for numbers, not initialized."""
    # The allocator of Arrow keeps freed memory, while NumPy gets each page anew from the system.
    return np.frombuffer(pa.allocate_buffer(rows * np.dtype(dtype).itemsize), dtype=dtype)


def _compress(keys: Sequence[IntArray]) -> tuple[list[IntArray], int]:
    """The ranks of the values, and the number of ranks."""
    distinct, inverse = np.unique(np.concatenate(keys), return_inverse=True)
    ends = np.cumsum([len(k) for k in keys])[:-1]
    return [part.astype(np.int64, copy=False) for part in np.split(inverse.ravel(), ends)], max(1, len(distinct))


def _codes(columns: Sequence[pa.ChunkedArray]) -> tuple[list[IntArray], int, int]:
    """Order-preserving codes, the least code, and the width of their range."""
    columns = [c.cast(c.type.value_type) if pa.types.is_dictionary(c.type) else c for c in columns]
    if any(c.type != columns[0].type for c in columns):
        # Datasets may store the same column in several widths.
        schemas = [pa.schema([("", c.type)]) for c in columns]
        common = pa.unify_schemas(schemas, promote_options="permissive").field(0).type
        columns = [c.cast(common) for c in columns]
    if not all(map(is_plain_integer, columns)):
        codes, values = ranks(pa.chunked_array([chunk for c in columns for chunk in c.chunks], type=columns[0].type))
        return np.split(codes, np.cumsum([len(c) for c in columns])[:-1]), 0, len(values) + 1
    arrays = [as_int64(c) for c in columns]
    filled = [a for a in arrays if len(a)]
    if not filled:
        return arrays, 0, 1
    low, high = min(int(a.min()) for a in filled), max(int(a.max()) for a in filled)
    if high - low >= PACKED_LIMIT:
        compressed, width = _compress(arrays)
        return compressed, 0, width
    return arrays, low, high - low + 1


def is_plain_integer(column: pa.ChunkedArray) -> bool:
    """Whether the values are ordered as signed integers and none is null."""
    data_type = column.type
    if column.null_count or pa.types.is_uint64(data_type):
        return False
    types = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_date32, pa.types.is_timestamp)
    return any(is_type(data_type) for is_type in types)


def as_int64(column: pa.ChunkedArray) -> IntArray:
    """The integers of such a column; perhaps the column's own buffer, which must not be changed."""
    data_type = column.type
    if pa.types.is_date32(data_type):
        column = column.cast(pa.int32())
    if pa.types.is_boolean(data_type):
        column = column.cast(pa.int8())
    out: IntArray = (column if pa.types.is_int64(data_type) else column.cast(pa.int64())).to_numpy()
    return out


def ranks(column: pa.ChunkedArray) -> tuple[IntArray, pa.Array]:
    """For each row the rank of its value, nulls last; and the sorted distinct values."""
    if pa.types.is_null(column.type):
        return np.zeros(len(column), dtype=np.int64), pa.nulls(0)
    if pa.types.is_floating(column.type):
        column = pc.add(column, 0.0)  # the sum of -0.0 and 0.0 is 0.0: they are one value
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
    """Whether the rows are sorted by some columns and no two are equal there.

    False also for columns with nulls: only packed keys can tell.
    """
    rising: BoolArray | None = None
    here: Any
    there: Any
    for name in reversed(columns):
        column = table.column(name)
        if is_plain_integer(column):
            values = as_int64(column)
            here, there = values[:-1], values[1:]
        else:
            column = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
            here, there = column.slice(0, max(len(column) - 1, 0)), column.slice(1)
        less = _compared(operator.lt, pc.less, here, there)
        rising = less if rising is None else less | (_compared(operator.eq, pc.equal, here, there) & rising)
    return table.num_rows < 2 if rising is None else bool(rising.all())


def _compared(
    numpy: Callable[[Any, Any], Any],
    arrow: Callable[[Any, Any], Any],
    here: IntArray | pa.ChunkedArray,
    there: IntArray | pa.ChunkedArray,
) -> BoolArray:
    """A comparison by NumPy or by Arrow, where it is false for null."""
    result: BoolArray = (
        numpy(here, there) if isinstance(here, np.ndarray) else pc.fill_null(arrow(here, there), False).to_numpy()
    )
    return result


def stable_order(keys: IntArray) -> IntArray | None:
    """Positions that sort the rows by key, equal keys in their order; None if they are sorted."""
    if np.all(keys[1:] >= keys[:-1]):
        return None
    return np.argsort(keys, kind="stable")


def sorted_table(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """The rows sorted by some columns, nulls last, equal rows in their order."""
    order = stable_order(pack_one(table, columns))
    return table if order is None else table.take(pa.array(order))


def group_starts(keys: IntArray) -> IntArray:
    """Positions at which a run of equal keys begins."""
    if not len(keys):
        return np.zeros(0, dtype=np.int64)
    return np.concatenate(([0], np.flatnonzero(keys[1:] != keys[:-1]) + 1)).astype(np.int64)


def expand_ranges(first: IntArray, counts: IntArray) -> tuple[IntArray, IntArray]:
    """All positions in several ranges, in order: for each the number of its range, and itself.

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
    """`pyarrow.Table.take`, also for a table without columns."""
    return table.take(pa.array(positions)) if table.num_columns else empty_rows(len(positions))


def take_chunked(table: pa.Table, positions: IntArray) -> pa.Table:
    """As `take_rows`, for many chunks: Arrow would join all chunks of a text column first."""
    batches = table.to_batches() if table.num_columns else []
    if len(batches) < 2:
        return take_rows(table, positions)
    starts = np.cumsum([0, *(batch.num_rows for batch in batches)])
    order = np.argsort(positions, kind="stable")
    ascending = positions[order]
    bounds = np.searchsorted(ascending, starts)
    pieces = [
        batch.take(pa.array(ascending[low:high] - start))
        for batch, start, low, high in zip(batches, starts, bounds, bounds[1:], strict=False)
        if low < high
    ]
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    return take_rows(pa.Table.from_batches(pieces, table.schema), places)


def empty_rows(n: int) -> pa.Table:
    """A table of ``n`` rows without columns."""
    return pa.table({"": np.zeros(n, dtype=np.int8)}).select([])
