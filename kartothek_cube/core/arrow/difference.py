"""The difference of two sets of rows: which rows came, went, or replaced each other. Pure.

Null equals null, NaN equals NaN, null is not NaN. Equal rows cancel one by one. At the end,
hashes of rows, which tell whether two bags of rows are equal.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from decimal import Context
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from msgspec import Struct

from kartothek_cube.core.arrow.keys import (
    BoolArray,
    Hashes,
    IntArray,
    Spill,
    empty_rows,
    expand_ranges,
    group_starts,
    mixed_bits,
    pack,
    stable_order,
    take_rows,
)
from kartothek_cube.core.arrow.types import normal_type, stored_type

CHANGE_TYPE = "_change_type"
_INSERT, _PREIMAGE, _POSTIMAGE, _DELETE = CHANGE_TYPES = ("insert", "update_preimage", "update_postimage", "delete")

# Parts in which rows that do not fit into memory are compared.
_BUCKETS = 64
# A comparison takes so many times the memory of its rows.
_WORKING = 4
# Less memory than this is not worth another piece.
_LEAST_ROOM = 2**20


class Difference(Struct, frozen=True):
    """Rows that are in one of two states only.

    Row *i* of ``preimages`` became row *i* of ``postimages``.
    """

    preimages: pa.Table
    postimages: pa.Table
    deleted: pa.Table
    inserted: pa.Table

    def updates(self, schema: pa.Schema) -> pa.Table:
        """The images of all updates, the two of one update side by side, with `CHANGE_TYPE`."""
        n = self.preimages.num_rows
        order = np.arange(2 * n).reshape(2, n).T.ravel()
        images = pa.concat_tables([self.preimages, self.postimages])
        return _with_type(take_rows(images, order), schema, pa.array([_PREIMAGE, _POSTIMAGE] * n, pa.string()))

    def others(self, schema: pa.Schema) -> pa.Table:
        """The deleted rows, then the inserted ones, with `CHANGE_TYPE`."""
        counts = (self.deleted.num_rows, self.inserted.num_rows)
        kinds = pa.array([_DELETE, _INSERT], pa.string()).take(pa.array(np.repeat([0, 1], counts)))
        return _with_type(pa.concat_tables([self.deleted, self.inserted]), schema, kinds)


def changes_schema(schema: pa.Schema) -> pa.Schema:
    """The columns of changes: the kind of the change, then those of the rows."""
    return pa.schema([pa.field(CHANGE_TYPE, pa.string()), *schema])


def _with_type(rows: pa.Table, schema: pa.Schema, kinds: pa.Array) -> pa.Table:
    columns = [rows.column(name) for name in schema.names[1:]]
    return pa.table([kinds, *columns], schema=schema)


def row_difference(
    before: pa.Table,
    after: pa.Table,
    on: Sequence[str] | None = None,
    within: Sequence[str] = (),
    hidden: Sequence[str] = (),
) -> Difference:
    """The difference of two tables with the same columns, of which ``before`` came first.

    With the key columns ``on``, rows of one key that are left on both sides are updates: of several
    such rows first those that agree in the columns ``within``, too. Those of them that are
    ``hidden`` do not make rows differ.

    Examples
    --------
    >>> before = pa.table({"PRODUCT_ID": [1, 2], "UNITS": [3, None]})
    >>> after = pa.table({"PRODUCT_ID": [2, 1], "UNITS": [None, 4]})
    >>> difference = row_difference(before, after, on=["PRODUCT_ID"])
    >>> difference.postimages.to_pylist(), difference.inserted.num_rows
    ([{'PRODUCT_ID': 1, 'UNITS': 4}], 0)
    """
    nothing = before.slice(0, 0)
    if not before.num_rows or not after.num_rows:
        return Difference(nothing, nothing, before, after)
    left, right = _comparable(before), _comparable(after)
    rest = np.arange(before.num_rows), np.arange(after.num_rows)
    updated: list[tuple[IntArray, IntArray]] = []
    keys = [] if on is None else _sorted_keys([left, right], on)
    if keys and all(side.are_distinct for side in keys):
        # No full keys are needed: each row has at most one partner.
        rows = _pairs(*keys)
        differs = ~_equal_rows(_taken(left, rows[0]), _taken(right, rows[1]), [*(on or ()), *hidden])
        updated.append((rows[0][differs], rows[1][differs]))
        rest = _without(rest, rows)
    else:
        names, sides = before.column_names, [left, right]
        equal = [names, [c for c in names if c not in hidden]] if hidden else [names]
        for step, by in enumerate([*equal, *(() if on is None else ([*on, *within], on))]):
            matches = _pairs(*_sorted_keys(sides, by))
            rows = rest[0][matches[0]], rest[1][matches[1]]
            if step >= len(equal):
                updated.append(rows)
            rest = _without(rest, rows)
            sides = [take_rows(left, rest[0]), take_rows(right, rest[1])]
    old, new = (np.concatenate([empty, *(rows[side] for rows in updated)]) for side, empty in enumerate(_NO_ROWS))
    return Difference(_taken(before, old), _taken(after, new), _taken(before, rest[0]), _taken(after, rest[1]))


def _taken(table: pa.Table, positions: IntArray) -> pa.Table:
    """Some rows; without a copy if they are all of them in their order."""
    is_whole = len(positions) == table.num_rows and bool((positions == np.arange(len(positions))).all())
    return table if is_whole else take_rows(table, positions)


_NO_ROWS = (np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))


class _SortedKeys(Struct, frozen=True):
    """The keys of rows in ascending order, and their positions in it."""

    keys: IntArray
    positions: IntArray
    are_distinct: bool


def _sorted_keys(tables: Sequence[pa.Table], columns: Sequence[str]) -> list[_SortedKeys]:
    found = []
    for keys in pack(tables, columns):
        order = stable_order(keys)
        positions, ordered = (np.arange(len(keys)), keys) if order is None else (order, keys[order])
        found.append(_SortedKeys(ordered, positions, bool((ordered[1:] > ordered[:-1]).all())))
    return found


def _pairs(left: _SortedKeys, right: _SortedKeys) -> tuple[IntArray, IntArray]:
    """Positions with equal keys; of several, the first left row goes with the first right one."""
    places = np.searchsorted(right.keys, left.keys, side="left")
    if left.are_distinct and right.are_distinct:
        has_partner = np.append(right.keys, -1)[places] == left.keys
    else:
        starts = group_starts(left.keys)
        _, nth = expand_ranges(np.zeros(len(starts), np.int64), np.diff(np.append(starts, len(left.keys))))
        has_partner = nth < np.searchsorted(right.keys, left.keys, side="right") - places
        places = places + nth
    return left.positions[has_partner], right.positions[places[has_partner]]


def _without(rows: tuple[IntArray, IntArray], gone: tuple[IntArray, IntArray]) -> tuple[IntArray, IntArray]:
    left, right = (np.setdiff1d(every, some, assume_unique=True) for every, some in zip(rows, gone, strict=True))
    return left, right


def _equal_rows(left: pa.Table, right: pa.Table, known: Sequence[str]) -> BoolArray:
    """For each row whether both tables have the same values; those in ``known`` are the same."""
    equal = np.ones(left.num_rows, dtype=bool)
    for name in left.column_names:
        mine, other = left.column(name), right.column(name)
        if name in known or mine.equals(other):
            continue
        same = pc.fill_null(pc.equal(mine, other), False).to_numpy()
        same = same | (mine.is_null().to_numpy() & other.is_null().to_numpy())
        if pt.is_floating(mine.type):
            nan = [pc.fill_null(pc.is_nan(column), False).to_numpy() for column in (mine, other)]
            same = same | (nan[0] & nan[1])
        equal &= same
    return equal


def _comparable(table: pa.Table) -> pa.Table:
    """The table with columns that Arrow can compare and sort, and the same equal rows."""
    return pa.table({name: _plain(table.column(name)) for name in table.column_names}) if table.num_columns else table


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    data_type = column.type
    if pt.is_dictionary(data_type):
        return _plain(column.cast(data_type.value_type))
    if pt.is_nested(data_type):
        # Lists have no order in Arrow. Their text has one, and tells NaN from null.
        texts = [None if value is None else _text(value) for value in column.to_pylist()]
        return pa.chunked_array([pa.array(texts, pa.string())])
    if pt.is_null(data_type):
        return column.cast(pa.bool_())
    if pt.is_temporal(data_type):
        # Python has no dates after the year 9999.
        return column.cast(pa.int32() if data_type.bit_width == 32 else pa.int64())
    if pt.is_floating(data_type):
        column = column.cast(pa.float32()) if pt.is_float16(data_type) else column
        # Arrow tells one NaN from another by its bits: 0 / 0 has not those of float("nan").
        is_nan = pc.is_nan(column)
        return pc.if_else(is_nan, pa.scalar(np.nan, column.type), column) if pc.any(is_nan).as_py() else column
    return column


def _text(value: object) -> str:
    """A text that equal lists or structs have in common, and no others of their type."""
    if isinstance(value, dict):
        value = list(value.items())
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_text, value))}]"
    # The sum makes -0.0 the 0.0 that it equals.
    return repr(value + 0.0 if isinstance(value, float) else value)


# --- more rows than memory ------------------------------------------------------------------------


class DifferenceBuffer:
    """Collects rows of two states and compares them in the end.

    Up to ``limit`` bytes stay in memory. More rows wait in a temporary file, which is removed at
    the end of the block, and are compared part by part.
    """

    def __init__(
        self,
        schema: pa.Schema,
        on: Sequence[str] | None,
        within: Sequence[str],
        limit: int,
        hidden: Sequence[str] = (),
    ) -> None:
        self._schema, self._on, self._limit = schema, on, limit
        self._within, self._hidden = tuple(within), tuple(hidden)
        self._held: tuple[list[pa.Table], list[pa.Table]] = ([], [])
        self._bytes = 0
        self._open = ExitStack()
        self._spill: Spill | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._open.close()

    def add(self, before: pa.Table | None, after: pa.Table | None) -> None:
        """Keep rows of the earlier and of the later state."""
        for side, rows in enumerate((before, after)):
            if rows is None or not rows.num_rows:
                continue
            if self._spill is not None:
                self._scatter(self._spill, side, rows)
                continue
            self._held[side].append(rows)
            self._bytes += rows.nbytes
        if self._bytes > self._limit:
            self._spill, self._bytes = self._open.enter_context(Spill(self._schema, self._limit)), 0
            for side, tables in enumerate(self._held):
                while tables:
                    self._scatter(self._spill, side, tables.pop())

    def _scatter(self, spill: Spill, side: int, rows: pa.Table) -> None:
        """Add rows to the part of their key, which is the same on both sides."""
        parts = self._numbers(rows) >> np.uint64(58)
        order = np.argsort(parts.astype(np.int8), kind="stable")
        ends = np.searchsorted(parts[order], np.arange(_BUCKETS + 1, dtype=np.uint64))
        ordered = take_rows(rows, order)
        for part in range(_BUCKETS):
            if ends[part + 1] > ends[part]:
                spill.add(2 * part + side, ordered.slice(int(ends[part]), int(ends[part + 1] - ends[part])))

    def _numbers(self, rows: pa.Table) -> Hashes:
        """A well-mixed hash of each row's key."""
        columns = _comparable(rows.select(list(self._schema.names if self._on is None else self._on)))
        return row_hashes(columns, columns.column_names)

    def differences(self) -> Iterator[Difference]:
        """The differences of all rows, a few at a time."""
        if self._spill is None:
            yield self._compared(*self._held)
            return
        for part in range(_BUCKETS):
            yield from self._in_pieces(self._spill.take(2 * part), self._spill.take(2 * part + 1))

    def _in_pieces(self, before: list[pa.Table], after: list[pa.Table]) -> Iterator[Difference]:
        """The differences of one part, which is cut by its keys if it is large."""
        size = sum(table.nbytes for table in (*before, *after))
        pieces = min(_BUCKETS, 1 + size * _WORKING // max(_LEAST_ROOM, self._limit))
        if pieces == 1:
            yield self._compared(before, after)
            return
        numbers = [[self._piece_of(table, pieces) for table in side] for side in (before, after)]
        for piece in range(pieces):
            yield self._compared(
                *(
                    [table.filter(pa.array(of == piece)) for table, of in zip(side, each, strict=True)]
                    for side, each in zip((before, after), numbers, strict=True)
                )
            )

    def _piece_of(self, rows: pa.Table, pieces: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        # Rows of a part agree in the six high bits; the next ones are as good.
        pieces_of: np.ndarray[Any, Any] = ((self._numbers(rows) << np.uint64(6)) >> np.uint64(40)) % np.uint64(pieces)
        return pieces_of.astype(np.uint8)

    def _compared(self, before: list[pa.Table], after: list[pa.Table]) -> Difference:
        left, right = self._joined(before), self._joined(after)
        before.clear()
        after.clear()
        return row_difference(left, right, self._on, self._within, self._hidden)

    def _joined(self, tables: list[pa.Table]) -> pa.Table:
        if not len(self._schema):  # `pa.concat_tables` forgets the number of rows
            return empty_rows(sum(table.num_rows for table in tables))
        return pa.concat_tables([self._schema.empty_table(), *tables])


# --- hashes of rows -------------------------------------------------------------------------------

_NULL = np.uint64(0x6B61727461746C6E)

# Wide enough for the 76 digits of a decimal256.
_EXACT = Context(prec=80)


def row_hashes(table: pa.Table, columns: Sequence[str]) -> Hashes:
    """One 64-bit hash a row over these columns, in whatever order they are given.

    Integers, floats, strings and timestamps hash as the widest type of their family. Null and NaN
    are one value, and so are 0.0 and -0.0.
    """
    hashes = np.full(table.num_rows, _NULL, dtype=np.uint64)
    for name in sorted(columns):
        arrays = [_array_hashes(chunk) for chunk in table.column(name).chunks]
        values = np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.uint64)
        hashes = mixed_bits(hashes ^ mixed_bits(values + _text_hash(name.encode())))
    return hashes


def total_hash(hashes: Hashes) -> np.uint64:
    """The hash of a bag of rows: independent of their order, dependent on how often each occurs."""
    # The sum wraps around at 2^64. Under an exclusive or, equal rows would cancel out.
    return np.uint64(hashes.sum(dtype=np.uint64))


def _text_hash(text: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little"))


def _array_hashes(array: pa.Array) -> Hashes:
    """One hash a value; the hash of null does not depend on the type."""
    data_type = normal_type(stored_type(array.type))
    array = array.cast(data_type)
    if pt.is_null(data_type):
        return np.full(len(array), _NULL, dtype=np.uint64)
    if pt.is_list(data_type):
        hashes = _list_hashes(array)
    elif pt.is_struct(data_type):
        fields = [f.name for f in data_type]
        # By position: names of fields may repeat.
        columns = [pc.struct_field(array, [i]) for i in range(len(fields))]
        hashes = row_hashes(pa.table(columns, names=fields), fields)
    else:
        bits = _fixed_width_bits(array, data_type)
        hashes = mixed_bits(bits) if bits is not None else _distinct_hashes(array)
    nulls = pc.is_null(array, nan_is_null=pt.is_floating(data_type)).to_numpy(zero_copy_only=False)
    return np.where(nulls, _NULL, hashes).astype(np.uint64, copy=False)


def _fixed_width_bits(array: pa.Array, data_type: pa.DataType) -> Hashes | None:
    """The values as 64-bit patterns, of a null any; None for types of variable width."""
    if pt.is_floating(data_type):
        wide = pc.add(array, 0.0).fill_null(0.0)  # -0.0 + 0.0 is 0.0
    else:
        if pt.is_date(data_type):
            array = array.cast(pa.int32())
        if pt.is_boolean(data_type):
            array = array.cast(pa.int8())
        if not (pt.is_integer(array.type) or pt.is_temporal(array.type)):
            return None
        wide = (array if pt.is_uint64(array.type) else array.cast(pa.int64())).fill_null(0)
    bits: Hashes = wide.to_numpy(zero_copy_only=False).view(np.uint64)
    return bits


def _distinct_hashes(array: pa.Array) -> Hashes:
    """Hashes of text, bytes, decimals and maps."""
    if not (pt.is_string(array.type) or pt.is_binary(array.type)):
        # A decimal without the zeros that only its scale adds; a map as its pairs.
        is_decimal = pt.is_decimal(array.type)
        values = array.to_pylist()
        texts = [None if v is None else str(v.normalize(_EXACT)) if is_decimal else repr(v) for v in values]
        array = pa.array(texts, type=pa.string())
    # blake2b runs in Python, once for each value: hash each distinct value once.
    encoded = array.dictionary_encode()
    hashes = [_text_hash(v.encode() if isinstance(v, str) else v) for v in encoded.dictionary.to_pylist()]
    positions = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)
    return mixed_bits(np.array(hashes or [_NULL], dtype=np.uint64)[positions])


def _list_hashes(array: pa.Array) -> Hashes:
    """Hashes of the elements with their positions; ``[]``, ``[null]`` and null all differ."""
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    elements = _array_hashes(array.flatten())
    starts = np.cumsum(lengths) - lengths
    positions = np.arange(len(elements)) - np.repeat(starts, lengths)
    placed = mixed_bits(elements ^ mixed_bits(positions.astype(np.uint64)))
    # The sum of a list is the difference of two prefix sums, modulo 2^64.
    sums = np.concatenate((np.zeros(1, dtype=np.uint64), np.cumsum(placed, dtype=np.uint64)))
    return mixed_bits(sums[starts + lengths] - sums[starts] + lengths.astype(np.uint64))
