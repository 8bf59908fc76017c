"""The order of a query's rows: sorted parts merged, each payload column copied once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.arrow.keys import IntArray, Positions, pack, position_type, scratch
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.cube.execute.join import JoinedRows, RowSelection, TakeIndices, rows_at, take_indices

__all__ = ["concat_sorted", "merged_order"]

# A table of all possible keys takes less memory than sorting up to this multiple of the keys.
_SPARSE = 8

# --- the rows of several partitions in one order --------------------------------------------------


def concat_sorted(parts: Iterable[JoinedRows], schema: pa.Schema, columns: Sequence[str]) -> pa.Table:
    """The rows of all parts ordered by some columns; equal rows in the order of the parts."""
    filled, keys = [part for part in parts if part.rows], pa.schema([schema.field(c) for c in columns])
    order = merged_order(pack(list(map_in_threads(lambda part: part.table(keys), filled)), columns))
    if isinstance(order, list):
        tables = list(map_in_threads(lambda part: part.table(schema), [filled[i] for i in order]))
        return pa.concat_tables(tables) if tables else schema.empty_table()
    copies = _column_copies([part.with_constants(schema) for part in filled], schema, pa.array(order))
    # The source of a column is freed once the column is copied: nothing else may refer to it.
    del filled, parts
    copies.reverse()
    lazily = (copies.pop() for _ in range(len(copies)))
    return pa.table(list(map_in_threads(lambda copy: copy(), lazily)), schema=schema)


def merged_order(keys: Sequence[IntArray]) -> list[int] | Positions:
    """The order that sorts several arrays: of whole arrays if that is enough, else of all values.

    The order is stable. Values are not negative.
    """
    filled = [i for i, values in enumerate(keys) if len(values)]
    if all(bool((keys[i][1:] >= keys[i][:-1]).all()) for i in filled):
        runs = sorted(filled, key=lambda i: (int(keys[i][0]), i))
        if all(keys[a][-1] < keys[b][0] or (keys[a][-1] == keys[b][0] and a < b) for a, b in pairwise(runs)):
            return runs
    order = _dense_order(keys)
    return np.argsort(np.concatenate(keys), kind="stable") if order is None else order


def _dense_order(keys: Sequence[IntArray]) -> Positions | None:
    """The order of distinct values that are dense enough for a table of all possible values."""
    rows, span = sum(map(len, keys)), 1 + max(int(values.max()) for values in keys if len(values))
    if span > _SPARSE * rows:
        return None
    # One pass to fill the table and one to read it, instead of a sort.
    places: Positions = scratch(span, position_type(rows))
    places.fill(-1)
    begin = 0
    for values in keys:
        places[values] = np.arange(begin, begin + len(values), dtype=places.dtype)
        begin += len(values)
    order = places[places >= 0]
    return order if len(order) == rows else None


def _column_copies(
    parts: Sequence[JoinedRows], schema: pa.Schema, order: pa.Array
) -> list[Callable[[], pa.ChunkedArray | pa.Array]]:
    """A function for each column that copies it from all parts in this order."""
    # All parts have the same datasets.
    numbers, owners = range(len(parts[0].parts)), parts[0].owners
    sources = list(map_in_threads(lambda number: _source(parts, number, order), numbers))

    def copy(field: pa.Field) -> Callable[[], pa.ChunkedArray | pa.Array]:
        if field.name not in owners:
            return partial(pa.nulls, len(order), field.type)
        table, indices = sources[owners[field.name]]
        return partial(rows_at, table.column(field.name), indices)

    return [copy(field) for field in schema]


def _source(parts: Sequence[JoinedRows], number: int, order: pa.Array) -> tuple[pa.Table, TakeIndices]:
    """The rows of one dataset of all parts, and their indices in the order of the result."""
    selections = [part.parts[number] for part in parts]
    tables = [selection.table for selection in selections]
    shared = all(table is tables[0] for table in tables)
    table = tables[0] if shared else pa.concat_tables(tables)
    if not shared and all(selection.positions is None for selection in selections):
        return table, TakeIndices(order, None)
    width = position_type(len(table))

    def positions_in_table(selection: RowSelection, begin: int) -> Positions:
        if selection.positions is None:
            return np.arange(begin, begin + len(selection.table), dtype=width)
        positions = selection.positions.astype(width, copy=False)
        return np.where(positions < 0, positions, positions + width(begin)) if begin else positions

    begins = [0] * len(tables) if shared else np.cumsum([0, *map(len, tables)]).tolist()[:-1]
    positions = np.concatenate(list(map(positions_in_table, selections, begins)))
    return table, take_indices(pc.take(pa.array(positions), order, boundscheck=False).to_numpy())
