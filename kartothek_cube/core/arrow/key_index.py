"""Finding rows of a table by the values of some columns: prepared once, for any number of searches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.arrow.sort_keys import (
    PACKED_LIMIT,
    BoolArray,
    IntArray,
    as_int64,
    is_plain_integer,
    pack,
    ranks,
    scratch,
    stable_order,
)

__all__ = ["KeyIndex", "Positions", "index_type"]

Positions = np.ndarray[Any, np.dtype[np.signedinteger[Any]]]
"""Row numbers; -1 where there is no row."""

# A table of all possible keys may be so many times longer than the keys that there are: searching
# takes more time from there on.
_SPARSE = 16
# A table of so many keys is no matter at all.
_SMALL = 2**15


def index_type(rows: int) -> type[np.signedinteger[Any]]:
    """The narrowest type that numbers so many rows, if there are many."""
    return np.int32 if rows < 2**31 else np.int64


class _Codes(Protocol):
    """How the values of one column become numbers, and how many there may be."""

    @property
    def width(self) -> int: ...

    def codes(self, column: pa.ChunkedArray) -> tuple[IntArray, int] | None:
        """Numbers, and what is to be subtracted from them: those outside of the range are of unknown values. None for a column of another type."""


@dataclass(frozen=True, slots=True)
class _Range:
    """Integers, dates, times: their distance from the least one."""

    data_type: pa.DataType
    low: int
    width: int

    def codes(self, column: pa.ChunkedArray) -> tuple[IntArray, int] | None:
        alike = column.type.equals(self.data_type) or (pa.types.is_integer(column.type) and pa.types.is_integer(self.data_type))
        return (as_int64(column), self.low) if alike and is_plain_integer(column) else None


@dataclass(frozen=True, slots=True)
class _Ranks:
    """Anything else: the rank among the sorted distinct values, null last."""

    values: pa.Array
    width: int

    def codes(self, column: pa.ChunkedArray) -> tuple[IntArray, int] | None:
        if not column.type.equals(self.values.type):
            return None
        column = pc.add(column, 0.0) if pa.types.is_floating(column.type) else column
        found = pc.fill_null(pc.index_in(column, value_set=self.values), -1).to_numpy().astype(np.int64)
        if column.null_count:
            found[column.is_null().to_numpy()] = len(self.values)
        return found, 0


class KeyIndex:
    """The last row of a table for each combination of values of some columns.

    Examples
    --------
    >>> import pyarrow as pa
    >>> KeyIndex(pa.table({"x": [3, 1, 1]}), ["x"]).positions(pa.table({"x": [1, 2, 3]})).tolist()
    [2, -1, 0]
    """

    def __init__(self, table: pa.Table, on: Sequence[str]) -> None:
        self._table, self._on = table.select(list(on)), tuple(on)
        made = [_coded(self._table.column(c)) for c in on]
        self._columns = [column for column, _ in made]
        self._span = span = int(np.prod([column.width for column in self._columns], dtype=object))
        self._places = (
            _Places(_packed([(*codes, column.width) for column, codes in made], table.num_rows), span)
            if span < PACKED_LIMIT
            else None
        )

    @property
    def nbytes(self) -> int:
        """Memory beyond that of the table."""
        return 0 if self._places is None else self._places.nbytes

    def positions(self, table: pa.Table) -> Positions:
        """For each row of another table the number of the row with the same values, or -1."""
        if not len(self._table) or not len(table):
            return np.full(len(table), -1, dtype=np.int64)
        codes = [c.codes(table.column(name)) for c, name in zip(self._columns, self._on, strict=True)]
        found = [c for c in codes if c is not None]
        if self._places is None or len(found) < len(codes):
            own, others = pack([self._table, table.select(list(self._on))], self._on)
            return _Places(own, PACKED_LIMIT).find(others)
        unknown = _outside(found, [c.width for c in self._columns])
        keys = _packed([(*c, column.width) for c, column in zip(found, self._columns, strict=True)], len(table))
        return self._places.find(keys) if unknown is None else self._places.find_known(keys, unknown)


def _coded(column: pa.ChunkedArray) -> tuple[_Codes, tuple[IntArray, int]]:
    """How the values of a column become numbers, and these."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if is_plain_integer(column):
        numbers = as_int64(column)
        low, high = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)
        return _Range(column.type, low, high - low + 1), (numbers, low)
    codes, values = ranks(column)
    return _Ranks(values, len(values) + 1), (codes, 0)


def _packed(columns: Sequence[tuple[IntArray, int, int]], rows: int) -> IntArray:
    """One number a row from the numbers of its columns, each with what is to be subtracted and how many there are."""
    keys, low = np.zeros(rows, dtype=np.int64), 0
    for i, (codes, least, width) in enumerate(columns):
        keys = np.multiply(keys, width, out=scratch(rows)) if i else codes
        if i:
            keys += codes
        low = low * width + least
    if low:  # sums wrap around, also that of the least ones; the difference is right again
        keys = np.subtract(
            keys, np.int64((low + 2**63) % 2**64 - 2**63), out=keys if len(columns) > 1 else scratch(rows)
        )
    return keys


def _outside(codes: Sequence[tuple[IntArray, int]], widths: Sequence[int]) -> BoolArray | None:
    """Which rows have a number outside of its range; None if no row has."""
    unknown: BoolArray | None = None
    for (numbers, low), width in zip(codes, widths, strict=True):
        if int(numbers.min()) < low or int(numbers.max()) >= low + width:
            outside = (numbers < low) | (numbers >= low + width)
            unknown = outside if unknown is None else unknown | outside
    return unknown


class _Places:
    """Keys below a span, and where each of them is: as a table of all keys if that is not much longer than the keys, else sorted."""

    def __init__(self, keys: IntArray, span: int) -> None:
        self._order: IntArray | None = None
        self._table: Positions | None = None
        if span <= max(_SPARSE * len(keys), _SMALL):
            self._table = scratch(span, index_type(len(keys)))
            self._table.fill(-1)
            self._table[keys] = np.arange(len(keys), dtype=self._table.dtype)  # the last one of equal keys stays
        else:
            self._order = stable_order(keys)
            self._keys = keys if self._order is None else keys[self._order]

    @property
    def nbytes(self) -> int:
        """Memory that is held."""
        return sum(
            a.nbytes
            for a in (self._table, self._order, None if self._table is not None else self._keys)
            if a is not None
        )

    def find(self, keys: IntArray) -> Positions:
        """Where the keys are, which are inside the span."""
        if self._table is not None:
            return self._table.take(
                keys, out=scratch(len(keys), self._table.dtype.type), mode="clip"
            )  # with a check it copies
        found = np.searchsorted(self._keys, keys, side="right") - 1
        last = found if self._order is None else self._order[found]
        return np.where(self._keys[found] == keys, last, -1)

    def find_known(self, keys: IntArray, unknown: BoolArray) -> Positions:
        """The same where some rows have keys that mean nothing."""
        found = self.find(keys)
        found[unknown] = -1
        return found
