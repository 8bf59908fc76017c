"""Bringing the rows of several aligned partitions into one order: every payload column is moved once. Pure but for threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.arrow.key_index import Positions, position_type
from kartothek_cube.core.arrow.sort_keys import IntArray, pack, scratch
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.cube.execute.join import Indices, JoinedRows, RowSelection, indices_of, rows_at

__all__ = ["in_order", "merged_order"]

T = TypeVar("T")

# A table of all possible keys may be so many times longer than the keys that there are: sorting
# takes less memory from there on.
_SPARSE = 8


def in_order(parts: Iterable[JoinedRows], schema: pa.Schema, columns: Sequence[str]) -> pa.Table:
    """The rows of all parts ordered by some columns; equal ones in the order of the parts."""
    filled, wanted = [part for part in parts if part.rows], pa.schema([schema.field(c) for c in columns])
    order = merged_order(pack(list(map_in_threads(lambda part: part.table(wanted), filled)), columns))
    if isinstance(order, list):
        tables = list(map_in_threads(lambda part: part.table(schema), [filled[i] for i in order]))
        return pa.concat_tables(tables) if tables else schema.empty_table()
    moves = _moves([part.with_constants(schema) for part in filled], schema, pa.array(order))
    del filled, parts  # a column that was moved is not held any longer
    return pa.table(list(map_in_threads(lambda move: move(), _drain(moves))), schema=schema)


def _drain(items: list[T]) -> Iterator[T]:
    """The items in order; each is forgotten when it is given."""
    items.reverse()
    while items:
        yield items.pop()


def merged_order(keys: Sequence[IntArray]) -> list[int] | Positions:
    """Which of several arrays come one after the other to sort them all; where that does not suffice, the stable order of all values.

    Values are not negative.
    """
    filled = [i for i, own in enumerate(keys) if len(own)]
    if all(bool((keys[i][1:] >= keys[i][:-1]).all()) for i in filled):
        runs = sorted(filled, key=lambda i: (int(keys[i][0]), i))
        if all(keys[a][-1] < keys[b][0] or (keys[a][-1] == keys[b][0] and a < b) for a, b in pairwise(runs)):
            return runs
    order = _dense_order(keys)
    return np.argsort(np.concatenate(keys), kind="stable") if order is None else order


def _dense_order(keys: Sequence[IntArray]) -> Positions | None:
    """The order of values that are all different and not far apart; None if they are not."""
    rows, span = sum(map(len, keys)), 1 + max(int(own.max()) for own in keys if len(own))
    if span > _SPARSE * rows:
        return None
    places: Positions = scratch(span, position_type(rows))
    places.fill(-1)
    begin = 0
    for own in keys:
        places[own] = np.arange(begin, begin + len(own), dtype=places.dtype)
        begin += len(own)
    order = places[places >= 0]
    return order if len(order) == rows else None


def _moves(
    parts: Sequence[JoinedRows], schema: pa.Schema, order: pa.Array
) -> list[Callable[[], pa.ChunkedArray | pa.Array]]:
    """What gives each column of all parts in this order."""
    # In all parts the datasets are the same.
    sources, owners = (
        list(map_in_threads(lambda number: _source(parts, number, order), range(len(parts[0].parts)))),
        parts[0].owners,
    )

    def move(field: pa.Field) -> Callable[[], pa.ChunkedArray | pa.Array]:
        if field.name not in owners:
            return partial(pa.nulls, len(order), field.type)
        table, indices = sources[owners[field.name]]
        return partial(rows_at, table.column(field.name), indices)

    return [move(field) for field in schema]


def _source(parts: Sequence[JoinedRows], number: int, order: pa.Array) -> tuple[pa.Table, Indices]:
    """The rows of one dataset of all parts, and where among them those of the result are."""
    own = [part.parts[number] for part in parts]
    tables = [part.table for part in own]
    shared = all(table is tables[0] for table in tables)
    table = tables[0] if shared else pa.concat_tables(tables)
    if not shared and all(part.positions is None for part in own):
        return table, Indices(order, None)
    begins = [0] * len(own) if shared else np.cumsum([0, *map(len, tables)]).tolist()[:-1]
    positions = np.concatenate(
        [_shifted(part, begin, position_type(len(table))) for part, begin in zip(own, begins, strict=True)]
    )
    return table, indices_of(pc.take(pa.array(positions), order, boundscheck=False).to_numpy())


def _shifted(part: RowSelection, begin: int, kind: type[np.signedinteger[Any]]) -> Positions:
    """The positions of a part among the rows of all parts, of which it has those from ``begin`` on."""
    if part.positions is None:
        return np.arange(begin, begin + len(part.table), dtype=kind)
    positions = part.positions.astype(kind, copy=False)
    return np.where(positions < 0, positions, positions + kind(begin)) if begin else positions
