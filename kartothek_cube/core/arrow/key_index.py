"""Key indices: rows of a table found by the values of some columns, in any number of searches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.arrow.sort_keys import (
    PACKED_LIMIT,
    IntArray,
    as_int64,
    is_plain_integer,
    pack,
    ranks,
    scratch,
    stable_order,
)

__all__ = ["KeyIndex", "Positions", "position_type"]

Positions = np.ndarray[Any, np.dtype[np.signedinteger[Any]]]
"""Row numbers; -1 where there is no row."""

# A direct table may be this many times longer than the keys; beyond, binary search is faster.
_SPARSE = 16
# A direct table of this length costs nothing.
_SMALL = 2**15
# The golden ratio in 64 bits: products with it spread any keys evenly (Fibonacci hashing).
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


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


@dataclass(frozen=True, slots=True)
class _Range:
    """Integers, dates and times: the distance from the least value."""

    data_type: pa.DataType
    low: int
    width: int

    def codes(self, column: pa.ChunkedArray) -> tuple[IntArray, int] | None:
        both_integers = pa.types.is_integer(column.type) and pa.types.is_integer(self.data_type)
        is_comparable = column.type.equals(self.data_type) or both_integers
        return (as_int64(column), self.low) if is_comparable and is_plain_integer(column) else None


@dataclass(frozen=True, slots=True)
class _Ranks:
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
        """Whether a search costs no more than its rows: no column has to be ranked for it."""
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
