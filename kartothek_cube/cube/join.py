"""Joining rows of one aligned partition: cells once, positions by packed keys, payload by ``take``. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from kartothek_cube.core.rowkeys import IntArray, is_strictly_sorted, pack, pack_one, stable_order

__all__ = ["Joinable", "join_cells", "newest_rows", "positions_of"]


@dataclass(frozen=True, slots=True)
class Joinable:
    """Rows of one dataset to be joined on ``on``: at most one row a cell."""

    table: pa.Table
    on: tuple[str, ...]
    inner: bool


def newest_rows(table: pa.Table, cells: Sequence[str]) -> pa.Table:
    """One row a cell, the last one, sorted by cell. A table that is sorted and has no cell twice is returned as it is."""
    if table.num_rows < 2:
        return table
    keys = pack_one(table, cells)
    if is_strictly_sorted(keys):
        return table
    order = stable_order(keys)
    order = np.arange(len(keys)) if order is None else order
    keys = keys[order]
    last = np.append(keys[1:] != keys[:-1], True)
    return table.take(pa.array(order[last]))


def positions_of(left: pa.Table, right: pa.Table, on: Sequence[str]) -> IntArray:
    """For each left row the position of the right row with the same key, or -1. Keys of the right rows are unique."""
    if left.num_rows == right.num_rows and all(left.column(c).equals(right.column(c)) for c in on):
        return np.arange(left.num_rows, dtype=np.int64)
    if right.num_rows == 0:
        return np.full(left.num_rows, -1, dtype=np.int64)
    left_keys, right_keys = pack([left, right], on)
    order = stable_order(right_keys)
    if order is not None:
        right_keys = right_keys[order]
    found = np.minimum(np.searchsorted(right_keys, left_keys), len(right_keys) - 1)
    hit = right_keys[found] == left_keys
    return np.where(hit, found if order is None else order[found], -1)


def join_cells(seed: pa.Table, others: Mapping[str, Joinable], schema: pa.Schema) -> pa.Table:
    """The seed's rows with the payload of the other datasets; inner joins restrict the rows before any payload is moved.

    ``schema`` names the columns to return, with their types; those that no table has are null.
    """
    positions = {i: positions_of(seed, other.table, other.on) for i, other in others.items()}
    keep = np.ones(seed.num_rows, dtype=bool)
    for i, other in others.items():
        if other.inner:
            keep &= positions[i] >= 0
    if not keep.all():
        seed = seed.filter(pa.array(keep))
        positions = {i: p[keep] for i, p in positions.items()}
    owners = {c: i for i, other in others.items() for c in other.table.column_names if c not in other.on}
    columns = [_column(f, seed, others, positions, owners) for f in schema]
    return pa.table(columns, schema=schema)


def _column(field: pa.Field, seed: pa.Table, others: Mapping[str, Joinable], positions: Mapping[str, IntArray], owners: Mapping[str, str]) -> pa.ChunkedArray:
    if field.name in seed.column_names:
        return seed.column(field.name)
    if field.name not in owners:
        return pa.chunked_array([pa.nulls(seed.num_rows, field.type)])
    owner = owners[field.name]
    return _gather(others[owner].table.column(field.name), positions[owner])


def _gather(column: pa.ChunkedArray, positions: IntArray) -> pa.ChunkedArray:
    if len(positions) == len(column) and np.array_equal(positions, np.arange(len(column))):
        return column
    missing = positions < 0
    return column.take(pa.array(positions, mask=missing if missing.any() else None))
