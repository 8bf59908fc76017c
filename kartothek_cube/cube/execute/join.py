"""Joins the rows of an aligned partition by position: payload is not moved here. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.arrow.keys import (
    BoolArray,
    KeyIndex,
    Positions,
    ascends,
    bit_array,
    overwrite,
    pack,
    pack_one,
    stable_order,
    take_rows,
    where_valid,
)
from kartothek_cube.core.expressions.predicates import Clause, Constants

__all__ = [
    "BuildSide",
    "JoinedRows",
    "RowSelection",
    "TakeIndices",
    "join_cells",
    "newest_rows",
    "rows_at",
    "with_overlays",
]

# The keys of more rows, or of a column with more values, are not looked for in other files.
_MOST_ROWS, _MOST_VALUES = 2**16, 2**12

# Copy the selected rows when they are under 1/4 of the table, so that the rest can be freed.
_FEW = 4


class BuildSide:
    """Rows of one dataset to look up by ``on``. Of several rows of a cell the last one counts.

    An ``aligned`` table has the keys of the seed row by row, and may lack the key columns.
    """

    def __init__(self, table: pa.Table, on: Sequence[str], *, aligned: bool = False) -> None:
        self.table, self.on, self.aligned = table, tuple(on), aligned

    @cached_property
    def payload(self) -> pa.Table:
        """The columns that the dataset adds to a result."""
        return self.table.drop_columns([c for c in self.on if c in self.table.column_names])

    @cached_property
    def key_index(self) -> KeyIndex:
        """The index of the rows by ``on``, built on first use."""
        return KeyIndex(self.table, self.on)

    @cached_property
    def runtime_filter(self) -> tuple[Clause, ...]:
        """What all keys of these rows satisfy, if a condition can say it: that they are one of few.

        Only of the column with the most values: it excludes more rows of another dataset.
        """
        if self.table.num_rows > _MOST_ROWS:
            return ()
        # Not floats: joins and conditions may differ about NaN and zeros of two signs.
        exact = (pa.types.is_integer, pa.types.is_date32, pa.types.is_string)
        columns = [c for c in self.on if any(is_type(self.table.schema.field(c).type) for is_type in exact)]
        distinct = {c: pc.unique(self.table.column(c)) for c in columns}
        few = {c: values for c, values in distinct.items() if len(values) <= _MOST_VALUES and not values.null_count}
        if not few:
            return ()
        column = max(few, key=lambda c: len(few[c]))
        return (Clause(column, "in", Constants(few[column].to_pylist())),)

    @property
    def nbytes(self) -> int:
        """Memory of the rows and of their index."""
        return int(self.table.nbytes) + self.key_index.nbytes


@dataclass(frozen=True, slots=True)
class RowSelection:
    """One row of a table for each row of a result: all in order, or by position, -1 for none."""

    table: pa.Table
    positions: Positions | None = None

    def indices(self) -> TakeIndices | None:
        """The argument of `rows_at` for these rows."""
        return None if self.positions is None else take_indices(self.positions)

    def compacted(self) -> RowSelection:
        """The same selection from a table without other rows, if the selected rows are few."""
        if self.positions is None or _FEW * len(self.positions) > len(self.table):
            return self
        present = self.positions >= 0
        table = take_rows(self.table, self.positions[present])
        positions = None if len(table) == len(present) else np.where(present, np.cumsum(present) - 1, -1)
        return RowSelection(table, positions)

    def where(self, rows: BoolArray) -> RowSelection:
        """The selection for some rows of the result."""
        return RowSelection(self.table, np.flatnonzero(rows) if self.positions is None else self.positions[rows])


@dataclass(frozen=True, slots=True)
class JoinedRows:
    """Rows of one aligned partition before their payload is copied.

    ``parts`` has the seed, then the other datasets side by side; ``owners`` the number of the part
    of each column; ``constants`` the columns of one value. Any other column is null.
    """

    rows: int = 0
    parts: tuple[RowSelection, ...] = ()
    owners: Mapping[str, int] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)

    def table(self, schema: pa.Schema) -> pa.Table:
        """The rows with the columns and types of a schema."""
        columns: list[pa.ChunkedArray | pa.Array] = []
        indices: dict[int, TakeIndices | None] = {}
        for column in schema:
            if column.name in self.constants:
                columns.append(constant_array(self.constants[column.name], column.type, self.rows))
            elif column.name not in self.owners:
                columns.append(pa.nulls(self.rows, column.type))
            else:
                owner = self.owners[column.name]
                if owner not in indices:
                    indices[owner] = self.parts[owner].indices()
                columns.append(rows_at(self.parts[owner].table.column(column.name), indices[owner]))
        return pa.table(columns, schema=schema)

    def with_constants(self, schema: pa.Schema) -> JoinedRows:
        """The same rows with constants as columns of the seed."""
        seed, *others = self.parts
        table = seed.table
        for column in (schema.field(c) for c in schema.names if c in self.constants):
            rest = table.drop_columns(column.name) if column.name in table.column_names else table
            table = rest.append_column(column, constant_array(self.constants[column.name], column.type, len(table)))
        owners = {**self.owners, **dict.fromkeys(self.constants, 0)}
        return JoinedRows(self.rows, (RowSelection(table, seed.positions), *others), owners)

    def compacted(self, numbers: Collection[int]) -> JoinedRows:
        """The same rows with `RowSelection.compacted` for the parts with these numbers."""
        return replace(
            self, parts=tuple(part.compacted() if i in numbers else part for i, part in enumerate(self.parts))
        )


class TakeIndices(NamedTuple):
    """Indices for `pyarrow.compute.take`: any row where there is none, and a mask of valid ones."""

    places: pa.Array
    valid: pa.Array | None


def take_indices(positions: Positions) -> TakeIndices:
    """The indices for positions, of which -1 stands for no row."""
    if not len(positions) or int(positions.min()) >= 0:
        return TakeIndices(pa.array(positions), None)
    return TakeIndices(pa.array(np.maximum(positions, 0)), bit_array(positions >= 0))


def rows_at(column: pa.ChunkedArray, indices: TakeIndices | None) -> pa.ChunkedArray:
    """The values at indices, null where there is no row; the column itself without indices."""
    if indices is None:
        return column
    places, valid = indices
    if valid is None:
        return pc.take(column, places, boundscheck=False)
    if len(column) and pa.types.is_primitive(column.type):  # several times faster than null indices
        return where_valid(pc.take(column, places, boundscheck=False), valid)
    return pc.take(column, pc.if_else(valid, places, pa.scalar(None, places.type)), boundscheck=False)


def constant_array(value: object, data_type: pa.DataType, rows: int) -> pa.Array:
    """One value in every row."""
    if not rows or value is None:
        return pa.nulls(rows, data_type)
    # Faster than pyarrow.repeat.
    return pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(pa.array([rows]), pa.array([value], data_type)))


def with_overlays(tables: Sequence[pa.Table], cells: Sequence[str]) -> pa.Table:
    """The rows of several files, older ones first. The caller must not use the tables any more.

    If the first one is sorted by cell and has all cells of the others, their rows replace its rows.
    Then only columns are copied that cannot be changed in place, such as texts.
    """
    base, rest = tables[0], pa.concat_tables(tables[1:] or [tables[0].slice(0, 0)])
    if not base.num_rows or not rest.num_rows:
        return pa.concat_tables(tables)
    keys, newer = pack([base, rest], cells)
    places = np.minimum(np.searchsorted(keys, newer), len(keys) - 1)
    if not (keys[1:] > keys[:-1]).all() or not (keys[places] == newer).all():
        return pa.concat_tables(tables)
    order = np.arange(len(keys))
    order[places] = np.arange(len(keys), len(keys) + len(newer))
    indices = TakeIndices(pa.array(order), None)

    def replaced(name: str) -> pa.ChunkedArray:
        column, values = base.column(name), rest.column(name)
        # Equal keys are the same values, but for zeros of different sign.
        if (name in cells and not pa.types.is_floating(column.type)) or overwrite(column, places, values):
            return column
        return rows_at(pa.chunked_array([*column.chunks, *values.chunks], column.type), indices)

    return pa.table([replaced(field.name) for field in base.schema], schema=base.schema)


def newest_rows(table: pa.Table, cells: Sequence[str]) -> pa.Table:
    """The last row of each cell, sorted by cell.

    A table that is sorted and has no cell twice is returned as it is.
    """
    if table.num_rows < 2 or ascends(table, cells):
        return table
    keys = pack_one(table, cells)
    order = stable_order(keys)
    order = np.arange(len(keys)) if order is None else order
    keys = keys[order]
    last = np.append(keys[1:] != keys[:-1], True)
    return table.take(pa.array(order[last]))


def has_same_keys(left: pa.Table, right: BuildSide, cells: Sequence[str]) -> bool:
    """Whether the keys are equal row by row, and distinct as ``cells`` are on the left."""
    if right.aligned:
        return True
    if left.num_rows != right.table.num_rows or not set(cells) <= set(right.on):
        return False
    return all(left.column(c).equals(right.table.column(c)) for c in right.on)


def positions_of(left: pa.Table, right: BuildSide, cells: Sequence[str]) -> Positions | None:
    """The position of the last right row with the same key for each left row, -1 for none.

    None if the keys are equal row by row.
    """
    return None if has_same_keys(left, right, cells) else right.key_index.positions(left)


def join_cells(
    seed: pa.Table,
    cells: Sequence[str],
    restricting: Iterable[BuildSide],
    others: Iterable[BuildSide],
    constants: Mapping[str, Any],
) -> JoinedRows:
    """The rows of the seed that all restricting datasets have, with the rows of all datasets.

    No two rows of the seed have the same ``cells``. Constants win over columns of that name, and
    columns of the seed over those of other datasets.
    """
    parts = [RowSelection(seed)]
    keep = np.ones(seed.num_rows, dtype=bool)
    remaining = iter(restricting)
    # The datasets load when they are taken: once no row is left, the others are never read.
    while keep.any() and (other := next(remaining, None)) is not None:
        parts.append(RowSelection(other.payload, positions_of(seed, other, cells)))
        if parts[-1].positions is not None:
            keep &= parts[-1].positions >= 0
    if not keep.any():
        return JoinedRows()
    all_stay = bool(keep.all())
    parts = parts if all_stay else [part.where(keep) for part in parts]
    for other in others:
        if has_same_keys(seed, other, cells):
            parts.append(RowSelection(other.payload) if all_stay else RowSelection(other.payload).where(keep))
        else:
            left = seed.select(other.on)
            positions = other.key_index.positions(left if all_stay else left.filter(pa.array(keep)))
            parts.append(RowSelection(other.payload, positions))
    owners = {c: i for i, part in enumerate(parts) for c in part.table.column_names}
    owners |= dict.fromkeys(seed.column_names, 0)
    return JoinedRows(int(np.count_nonzero(keep)), tuple(parts), owners, constants)
