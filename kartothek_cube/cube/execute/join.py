"""Joining rows of one aligned partition: cells once, positions by key; payload is moved only when it is known where to. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.arrow._fast.from_buffers import bit_array, where_valid
from kartothek_cube.core.arrow.key_index import KeyIndex, Positions
from kartothek_cube.core.arrow.sort_keys import BoolArray, ascends, pack_one, stable_order, take_rows

__all__ = ["BuildSide", "JoinedRows", "RowSelection", "join_cells", "newest_rows", "rows_at"]


# Copy the selected rows when they are under 1/4 of the table, so that the rest can be freed.
_FEW = 4


class BuildSide:
    """Rows of one dataset to be found by ``on``. Of several rows of a cell the last one counts.

    Those that are ``aligned`` have the keys of the seed row by row; then ``table`` need not have
    them.
    """

    def __init__(self, table: pa.Table, on: Sequence[str], *, aligned: bool = False) -> None:
        self.table, self.on, self.aligned = table, tuple(on), aligned

    @cached_property
    def payload(self) -> pa.Table:
        """The columns that it adds to a result."""
        return self.table.drop_columns([c for c in self.on if c in self.table.column_names])

    @cached_property
    def key_index(self) -> KeyIndex:
        """Finds the rows; made when it is needed."""
        return KeyIndex(self.table, self.on)

    @property
    def nbytes(self) -> int:
        """Memory of the rows and of what finds them."""
        return int(self.table.nbytes) + self.key_index.nbytes


@dataclass(frozen=True, slots=True)
class RowSelection:
    """The rows of a table that stand in the rows of a result: all of them in their order, or those at some positions, -1 for none."""

    table: pa.Table
    positions: Positions | None = None

    def indices(self) -> Indices | None:
        """What `rows_at` takes for these rows."""
        return None if self.positions is None else indices_of(self.positions)

    def compacted(self) -> RowSelection:
        """The same with a table of no other rows, where they are few."""
        if self.positions is None or _FEW * len(self.positions) > len(self.table):
            return self
        there = self.positions >= 0
        table = take_rows(self.table, self.positions[there])
        return RowSelection(table, None if len(table) == len(there) else np.where(there, np.cumsum(there) - 1, -1))

    def where(self, rows: BoolArray) -> RowSelection:
        """The same for some of the rows of the result."""
        return RowSelection(self.table, np.flatnonzero(rows) if self.positions is None else self.positions[rows])


@dataclass(frozen=True, slots=True)
class JoinedRows:
    """Rows of one aligned partition, before their payload is moved: the seed and then the other datasets side by side, and columns of one value.

    ``owners`` says in which part a column is. A column that is nowhere is null.
    """

    rows: int = 0
    parts: tuple[RowSelection, ...] = ()
    owners: Mapping[str, int] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)

    def table(self, schema: pa.Schema) -> pa.Table:
        """The rows with the columns and types of a schema."""
        needed = {self.owners[c] for c in schema.names if c in self.owners and c not in self.constants}
        indices = {i: self.parts[i].indices() for i in needed}
        return pa.table([self._column(f, indices) for f in schema], schema=schema)

    def with_constants(self, schema: pa.Schema) -> JoinedRows:
        """The same with constants as columns of the seed."""
        seed, *others = self.parts
        table = seed.table
        for name in (c for c in schema.names if c in self.constants):
            kind = schema.field(name)
            rest = table.drop_columns(name) if name in table.column_names else table
            table = rest.append_column(kind, repeated(self.constants[name], kind.type, len(table)))
        return JoinedRows(
            self.rows,
            (RowSelection(table, seed.positions), *others),
            {**self.owners, **dict.fromkeys(self.constants, 0)},
        )

    def compacted(self, numbers: Collection[int]) -> JoinedRows:
        """The same with only those rows of some parts that are needed, where these are few: the others are not held any longer."""
        return replace(
            self, parts=tuple(part.compacted() if i in numbers else part for i, part in enumerate(self.parts))
        )

    def _column(self, wanted: pa.Field, indices: Mapping[int, Indices | None]) -> pa.ChunkedArray | pa.Array:
        if wanted.name in self.constants:
            return repeated(self.constants[wanted.name], wanted.type, self.rows)
        if wanted.name not in self.owners:
            return pa.nulls(self.rows, wanted.type)
        owner = self.owners[wanted.name]
        return rows_at(self.parts[owner].table.column(wanted.name), indices[owner])


class Indices(NamedTuple):
    """Positions as Arrow takes them: any row where there is none, and which these are."""

    places: pa.Array
    valid: pa.Array | None


def indices_of(positions: Positions) -> Indices:
    """The indices for some positions."""
    if not len(positions) or int(positions.min()) >= 0:
        return Indices(pa.array(positions), None)
    return Indices(pa.array(np.maximum(positions, 0)), bit_array(positions >= 0))


def rows_at(column: pa.ChunkedArray, indices: Indices | None) -> pa.ChunkedArray:
    """The values at indices, null where there is no row; the column itself without indices."""
    if indices is None:
        return column
    places, valid = indices
    if valid is None:
        return pc.take(column, places, boundscheck=False)
    if len(column) and pa.types.is_primitive(column.type):  # several times faster than null indices
        return where_valid(pc.take(column, places, boundscheck=False), valid)
    return pc.take(column, pc.if_else(valid, places, pa.scalar(None, places.type)), boundscheck=False)


def repeated(value: object, kind: pa.DataType, rows: int) -> pa.Array:
    """One value in so many rows."""
    if not rows or value is None:
        return pa.nulls(rows, kind)
    return pc.run_end_decode(
        pa.RunEndEncodedArray.from_arrays(pa.array([rows]), pa.array([value], kind))
    )  # faster than pyarrow.repeat


def newest_rows(table: pa.Table, cells: Sequence[str]) -> pa.Table:
    """One row a cell, the last one, sorted by cell.

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
    """Whether the keys are the same row by row, and all different as ``cells`` are on the left."""
    if right.aligned:
        return True
    if left.num_rows != right.table.num_rows or not set(cells) <= set(right.on):
        return False
    return all(left.column(c).equals(right.table.column(c)) for c in right.on)


def positions_of(left: pa.Table, right: BuildSide, cells: Sequence[str]) -> Positions | None:
    """For each left row the position of the last right row with the same key, or -1; None if the keys are the same row by row."""
    return None if has_same_keys(left, right, cells) else right.key_index.positions(left)


def join_cells(
    seed: pa.Table,
    cells: Sequence[str],
    restricting: Iterable[BuildSide],
    others: Iterable[BuildSide],
    constants: Mapping[str, Any],
) -> JoinedRows:
    """The seed's rows that all restricting datasets have, with the rows of all datasets.

    No two rows of the seed have the same ``cells``.

    Where no row is left, the remaining datasets are not asked for.

    Constants win over columns of that name, and the seed's columns over those of other datasets.
    """
    parts = [RowSelection(seed)]
    keep = np.ones(seed.num_rows, dtype=bool)
    for other in _while_rows(restricting, keep):
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
            parts.append(
                RowSelection(
                    other.payload, other.key_index.positions(left if all_stay else left.filter(pa.array(keep)))
                )
            )
    owners = {c: i for i, part in enumerate(parts) for c in part.table.column_names}
    return JoinedRows(
        int(np.count_nonzero(keep)), tuple(parts), owners | dict.fromkeys(seed.column_names, 0), constants
    )


def _while_rows(restricting: Iterable[BuildSide], keep: BoolArray) -> Iterator[BuildSide]:
    """The datasets one after the other as long as a row is left."""
    if keep.any():
        for other in restricting:
            yield other
            if not keep.any():
                return
