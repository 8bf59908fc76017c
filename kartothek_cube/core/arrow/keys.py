"""Rows by their keys: sorted, searched, grouped.

In order:

- sort keys: the key columns of a row in one int64 that keeps their order
- key indices: rows found by values of some columns
- groups: tables are split, rows wait on disk for the rest of their group
- Z-order (Morton order)
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

BoolArray = np.ndarray[Any, np.dtype[np.bool_]]
IntArray = np.ndarray[Any, np.dtype[np.int64]]
Hashes = np.ndarray[Any, np.dtype[np.uint64]]

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
    return table if order is None else take_rows(table, order)


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


# --- key indices ----------------------------------------------------------------------------------


Positions = np.ndarray[Any, np.dtype[np.signedinteger[Any]]]
"""Row numbers; -1 where there is no row."""

# A direct table may be this many times longer than the keys; beyond, binary search is faster.
_SPARSE = 16
# A direct table of this length costs nothing.
_SMALL = 2**15
# The golden ratio in 64 bits: products with it spread any keys evenly (Fibonacci hashing).
# The increment and the two multipliers of splitmix64.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def mixed_bits(values: Hashes) -> Hashes:
    """The finalizer of splitmix64: each bit of a value changes half of the bits of the result."""
    values = values + _GOLDEN
    values = (values ^ (values >> np.uint64(30))) * _FIRST
    values = (values ^ (values >> np.uint64(27))) * _SECOND
    return values ^ (values >> np.uint64(31))


def position_type(rows: int) -> type[np.signedinteger[Any]]:
    """The integer type for positions of so many rows: half the memory below 2**31 rows."""
    return np.int32 if rows < 2**31 else np.int64


class _Codes(Protocol):
    """The mapping of the values of one column to numbers; ``width`` is the size of their range."""

    @property
    def width(self) -> int: ...

    def codes(self, column: pa.ChunkedArray) -> tuple[IntArray, int] | None:
        """The numbers and the least number of the range; None for a column of another type.

        Numbers outside of the range stand for unknown values.
        """


class _Range(Struct, frozen=True):
    """Integers, dates and times: the distance from the least value."""

    data_type: pa.DataType
    low: int
    width: int

    def codes(self, column: pa.ChunkedArray) -> tuple[IntArray, int] | None:
        both_integers = pa.types.is_integer(column.type) and pa.types.is_integer(self.data_type)
        is_comparable = column.type.equals(self.data_type) or both_integers
        return (as_int64(column), self.low) if is_comparable and is_plain_integer(column) else None


class _Ranks(Struct, frozen=True):
    """All other types: the rank among the sorted distinct values, null last."""

    values: pa.Array
    width: int

    def codes(self, column: pa.ChunkedArray) -> tuple[IntArray, int] | None:
        if not column.type.equals(self.values.type):
            return None
        column = pc.add(column, 0.0) if pa.types.is_floating(column.type) else column
        numbers = pc.fill_null(pc.index_in(column, value_set=self.values), -1).to_numpy().astype(np.int64)
        if column.null_count:
            numbers[column.is_null().to_numpy()] = len(self.values)
        return numbers, 0


class KeyIndex:
    """The last row of a table for each combination of values of some columns.

    With ``few_hits``, rows without an equal are passed over quickly, and others take a bit longer.

    Examples
    --------
    >>> import pyarrow as pa
    >>> KeyIndex(pa.table({"x": [3, 1, 1]}), ["x"]).positions(pa.table({"x": [1, 2, 3]})).tolist()
    [2, -1, 0]
    """

    def __init__(self, table: pa.Table, on: Sequence[str], *, few_hits: bool = False) -> None:
        self._table, self._on = table.select(list(on)), tuple(on)
        coded = [_coded(self._table.column(c)) for c in on]
        self._columns = [column for column, _ in coded]
        span = int(np.prod([column.width for column in self._columns], dtype=object))
        self._places: _Places | None = None
        # Wider keys have no common numbering: each search packs both tables together.
        if span < PACKED_LIMIT:
            self._places = _Places(_packed([(*codes, c.width) for c, codes in coded], table.num_rows), span, few_hits)

    @property
    def is_numeric(self) -> bool:
        """True if lookups need no ranking of columns: the cost is linear in the rows searched."""
        return self._places is not None and all(isinstance(column, _Range) for column in self._columns)

    @property
    def nbytes(self) -> int:
        """Bytes in memory beyond those of the table."""
        return 0 if self._places is None else self._places.nbytes

    @property
    def is_unique(self) -> bool:
        """Whether no two rows of the table have the same values."""
        if self._places is not None:
            return self._places.is_unique
        return bool(np.all(self.positions(self._table) == np.arange(len(self._table))))

    def positions(self, table: pa.Table) -> Positions:
        """For each row of another table the position of the row with the same values, or -1."""
        if not len(self._table) or not len(table):
            return np.full(len(table), -1, dtype=np.int64)
        codes = [c.codes(table.column(name)) for c, name in zip(self._columns, self._on, strict=True)]
        numbers = [c for c in codes if c is not None]
        if self._places is None or len(numbers) < len(codes):
            keys, others = pack([self._table, table.select(list(self._on))], self._on)
            return _Places(keys, PACKED_LIMIT).find(others)
        coded = [(*n, column.width) for n, column in zip(numbers, self._columns, strict=True)]
        positions = self._places.find(_packed(coded, len(table)))
        # A number outside of its column's range may give the key of another row.
        for number, low, width in coded:
            if int(number.min()) < low or int(number.max()) >= low + width:
                positions[(number < low) | (number >= low + width)] = -1
        return positions


def _coded(column: pa.ChunkedArray) -> tuple[_Codes, tuple[IntArray, int]]:
    """The mapping of the values of a column to numbers, and the numbers."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if is_plain_integer(column):
        numbers = as_int64(column)
        low, high = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)
        return _Range(column.type, low, high - low + 1), (numbers, low)
    codes, values = ranks(column)
    return _Ranks(values, len(values) + 1), (codes, 0)


def _packed(columns: Sequence[tuple[IntArray, int, int]], rows: int) -> IntArray:
    """One number per row, from the numbers, the least number and the width of each column."""
    keys, low = np.zeros(rows, dtype=np.int64), 0
    for i, (codes, least, width) in enumerate(columns):
        keys = np.multiply(keys, width, out=scratch(rows)) if i else codes
        if i:
            keys += codes
        low = low * width + least
    if low:
        # Sums wrap around, also the sum of the least numbers, so the difference is right again.
        wrapped = np.int64((low + 2**63) % 2**64 - 2**63)
        keys = np.subtract(keys, wrapped, out=keys if len(columns) > 1 else scratch(rows))
    return keys


class _Places:
    """Positions of keys below a span: a direct table if it is not much longer, else sorted keys."""

    def __init__(self, keys: IntArray, span: int, few_hits: bool = False) -> None:
        self._filter: _Filter | None = None
        self._rows = len(keys)
        self._order: IntArray | None = None
        self._table: Positions | None = None
        if span <= max(_SPARSE * len(keys), _SMALL):
            self._table = scratch(span, position_type(len(keys)))
            self._table.fill(-1)
            self._table[keys] = np.arange(len(keys), dtype=self._table.dtype)  # the last one of equal keys stays
        else:
            self._order = stable_order(keys)
            self._keys = keys if self._order is None else keys[self._order]
            self._filter = _Filter(self._keys) if few_hits else None

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        if self._table is not None:
            return self._table.nbytes
        others = (self._order, self._filter)
        return self._keys.nbytes + sum(0 if other is None else other.nbytes for other in others)

    @property
    def is_unique(self) -> bool:
        """Whether no key occurs twice."""
        if self._table is not None:
            return int(np.count_nonzero(self._table >= 0)) == self._rows
        return not np.any(self._keys[1:] == self._keys[:-1])

    def find(self, keys: IntArray) -> Positions:
        """The position of the last row with each key, or -1; arbitrary outside of the span."""
        if self._table is not None:
            # Without `mode` NumPy checks the bounds, and copies because of `out`.
            return self._table.take(keys, out=scratch(len(keys), self._table.dtype.type), mode="clip")
        if self._filter is None:
            return self._search(keys)
        positions = np.full(len(keys), -1, dtype=position_type(len(self._keys)))
        maybe = self._filter.candidates(keys)
        positions[maybe] = self._search(keys[maybe])
        return positions

    def _search(self, keys: IntArray) -> Positions:
        rows = np.searchsorted(self._keys, keys, side="right") - 1
        last = rows if self._order is None else self._order[rows]
        return np.where(self._keys[rows] == keys, last, -1)


class _Filter:
    """A set of hashes of keys: a search among many keys is slow where it finds nothing."""

    def __init__(self, keys: IntArray) -> None:
        bits = min(27, max(10, (8 * len(keys)).bit_length()))
        self._shift = np.uint64(64 - bits)
        self._seen = np.zeros(1 << bits, dtype=bool)
        self._seen[self._hashes(keys)] = True

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self._seen.nbytes

    def _hashes(self, keys: IntArray) -> IntArray:
        products = np.multiply(keys.view(np.uint64), _GOLDEN)
        products >>= self._shift
        return products.view(np.int64)

    def candidates(self, keys: IntArray) -> IntArray:
        """Positions of all keys of the set, and of few others."""
        return np.flatnonzero(self._seen.take(self._hashes(keys), mode="clip"))


# --- groups ---------------------------------------------------------------------------------------


# With more reads per file than this, files are read once and their rows split by group.
AMPLIFICATION_LIMIT = 2.0


def group_numbers(keys: pa.Table, table: pa.Table) -> IntArray:
    """For each row the number of its group among the ascending keys; -1 if it is in no group."""
    by = keys.column_names
    groups, rows = pack([keys, table.select(by)], by)
    if not len(groups):
        return np.full(table.num_rows, -1, dtype=np.int64)
    numbers = np.minimum(np.searchsorted(groups, rows), len(groups) - 1)
    return np.where(groups[numbers] == rows, numbers, -1)


def split_groups(keys: pa.Table, table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each group that has some, in group order; within a group in their own order."""
    numbers = group_numbers(keys, table)
    # NumPy sorts narrow integers by radix, an order of magnitude faster.
    order = np.argsort(numbers.astype(np.int16) if keys.num_rows < 2**15 else numbers, kind="stable")
    # Rows without a group (-1) are sorted first.
    order = order[np.searchsorted(numbers[order], 0) :]
    sorted_rows, starts = take_rows(table, order), group_starts(numbers[order])
    lengths = np.diff(np.append(starts, len(order)))
    for number, start, length in zip(numbers[order[starts]].tolist(), starts.tolist(), lengths.tolist(), strict=True):
        yield number, sorted_rows.slice(start, length)


class Spill:
    """Rows of one schema that wait for their group: in memory, and beyond a limit in an Arrow file.

    All rows are added before any are taken. The temporary file is created when it is needed and
    removed at the end of the block.
    """

    def __init__(self, schema: pa.Schema, limit: float) -> None:
        self._schema, self._limit = schema, limit
        self._waiting: defaultdict[int, list[pa.Table]] = defaultdict(list)
        self._bytes = 0
        self._stored: defaultdict[int, list[range]] = defaultdict(list)
        self._written = 0
        self._open, self._writing = ExitStack(), ExitStack()
        self._path: Path | None = None
        self._writer: Any = None
        self._reader: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._open.close()

    def add(self, number: int, rows: pa.Table) -> None:
        """Keep rows for a group."""
        self._waiting[number].append(rows)
        self._bytes += rows.nbytes
        if self._bytes <= self._limit:
            return
        if self._path is None:
            import tempfile  # loads much, and rows that fit into memory need none

            folder = self._open.enter_context(tempfile.TemporaryDirectory(prefix="kartothek_cube-"))
            self._path = Path(folder) / "rows.arrow"
            self._open.enter_context(self._writing)
            sink = self._writing.enter_context(pa.OSFile(str(self._path), "wb"))
            self._writer = self._writing.enter_context(pa.ipc.new_file(sink, self._schema))
        for waiting, tables in self._waiting.items():
            for batches in (table.to_batches() for table in tables):
                for batch in batches:
                    self._writer.write_batch(batch)
                # The file gives batches back by position.
                self._stored[waiting].append(range(self._written, self._written + len(batches)))
                self._written += len(batches)
        self._waiting.clear()
        self._bytes = 0

    def numbers(self) -> list[int]:
        """The groups that have rows, in order."""
        return sorted({*self._waiting, *self._stored})

    def take(self, number: int) -> list[pa.Table]:
        """The tables of one group, in the order of `add`; they are removed from the spill."""
        return list(self.pieces(number))

    def pieces(self, number: int) -> Iterator[pa.Table]:
        """The same as an iterator that reads one table at a time."""
        for positions in self._stored.pop(number, []):
            if self._reader is None:
                # The footer of an Arrow file is written when the writer is closed.
                self._writing.close()
                self._reader = pa.ipc.open_file(self._open.enter_context(pa.OSFile(str(self._path), "rb")))
            yield pa.Table.from_batches([self._reader.get_batch(i) for i in positions], self._schema)
        yield from self._waiting.pop(number, [])

    def table(self) -> pa.Table:
        """The rows of all groups, those in the file mapped; nothing is added afterwards."""
        waiting = list(chain.from_iterable(self._waiting.values()))
        if self._path is None:
            return pa.concat_tables([self._schema.empty_table(), *waiting]).combine_chunks()
        self._writing.close()
        stored = self._open.enter_context(pa.memory_map(str(self._path), "rb"))
        return pa.concat_tables([pa.ipc.open_file(stored).read_all(), *waiting])


# --- Z-order --------------------------------------------------------------------------------------


# Bits of all columns together, so that keys are not negative.
_BITS = 62
# Tables of 256 entries spread the bits of a byte at once.
_BYTE = 8


def z_order_keys(table: pa.Table, columns: Sequence[str]) -> IntArray:
    """One int64 per row, whose order is the Z-order of some columns.

    Not values but quantiles count: each bit of a column halves the rows, however skewed the values
    are, and columns of any types are comparable. Nulls are last.

    Examples
    --------
    >>> sales = pa.table({"WEEK": [1, 9, 1, 9], "BRAND": ["Acme", "Acme", "Volt", "Volt"]})
    >>> z_order_keys(sales, ["WEEK", "BRAND"]).argsort().tolist()
    [0, 2, 1, 3]
    """
    bits, quantiles = _BITS // len(columns), list[IntArray]()
    for column in columns:
        keys = pack_one(table, [column])
        order = np.argsort(keys, kind="stable")
        starts = group_starts(keys[order])
        lesser = np.empty(len(keys), dtype=np.int64)
        lesser[order] = np.repeat(starts, np.diff(np.append(starts, len(keys))))
        # The share of rows with lesser values, as an integer of so many bits.
        quantiles.append((lesser * (2.0**bits / max(1, len(keys)))).astype(np.int64))
    return interleave(quantiles, bits)


def interleave(numbers: Sequence[IntArray], bits: int) -> IntArray:
    """The bits of several numbers in turns, the highest ones first; each has ``bits`` bits.

    Examples
    --------
    >>> interleave([np.array([0b11, 0b00]), np.array([0b00, 0b11])], 2).tolist()
    [10, 5]
    """
    step, octets = len(numbers), np.arange(2**_BYTE)
    spread = np.zeros(2**_BYTE, dtype=np.int64)
    for bit in range(min(bits, _BYTE)):
        spread |= ((octets >> bit) & 1) << (bit * step)
    keys = np.zeros(len(numbers[0]), dtype=np.int64)
    for place, number in enumerate(reversed(numbers)):
        for begin in range(0, bits, _BYTE):
            keys |= spread[(number >> begin) & (2**_BYTE - 1)] << (begin * step + place)
    return keys
