"""Cutting the rows of a task: into blocks that fit into memory, or where their keys change. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from kartothek_cube.core.rowkeys import group_starts, pack_one, stable_order

__all__ = ["blocks", "filled", "runs", "together"]

_COUNTED = 2**16


def blocks(tables: Iterable[pa.Table], most: int) -> Iterator[pa.Table]:
    """The rows again, put together to blocks of about ``most`` bytes, the last one smaller; none if there are no rows."""
    held: list[pa.Table] = []
    size = 0
    for table in tables:
        if table.num_rows:
            held.append(table)
            size += table.nbytes
        if size >= most:
            size = 0
            yield _given_up(held)
    if held:
        yield _given_up(held)


def _given_up(held: list[pa.Table]) -> pa.Table:
    """The rows as one, of which nothing is kept here: neither the list nor the pieces."""
    together = pa.concat_tables(held).combine_chunks()
    held.clear()
    return together


def filled(pieces: Iterator[pa.Table], most: int) -> tuple[Iterator[pa.Table], int, int, bool]:
    """Take pieces until they have more than ``most`` bytes: all pieces again, the rows and bytes that were taken, and whether these were all."""
    held: list[pa.Table] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += piece.nbytes
        if size > most:
            return chain(_popped(held), pieces), sum(t.num_rows for t in held), size, False
    return _popped(held), sum(t.num_rows for t in held), size, True


def _popped(held: list[pa.Table]) -> Iterator[pa.Table]:
    """The pieces in their order, without keeping those that were given."""
    held.reverse()
    while held:
        yield held.pop()


def together(tables: Iterable[pa.Table], columns: Sequence[str]) -> pa.Table:
    """All rows as one table, those together that are equal in some columns, in the order in which they come."""
    table = pa.concat_tables(tables)
    keys = pack_one(table, columns)
    # Numbers of 16 bits are sorted by counting, which is many times as fast.
    order = stable_order(keys.astype(np.uint16) if int(keys.max()) < _COUNTED else keys)
    return table if order is None else table.take(pa.array(order))


def runs(tables: Iterable[pa.Table], columns: Sequence[str]) -> Iterator[Iterator[pa.Table]]:
    """For each run of equal values in some columns its rows in pieces. A run has to be taken before the next one, as with `itertools.groupby`."""
    for _, numbered in groupby(_numbered(tables, columns), itemgetter(0)):
        yield map(itemgetter(1), numbered)


def _numbered(tables: Iterable[pa.Table], columns: Sequence[str]) -> Iterator[tuple[int, pa.Table]]:
    number, last = 0, None
    for table in tables:
        for key, piece in _cut(table, columns):
            number += last is not None and key != last
            last = key
            yield number, piece


def _cut(table: pa.Table, columns: Sequence[str]) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
    if not table.num_rows:
        return
    starts = group_starts(pack_one(table, columns)).tolist() if columns else [0]
    for start, end in zip(starts, [*starts[1:], table.num_rows], strict=True):
        key = tuple(_comparable(table.column(c)[start]) for c in columns)
        yield key, table.slice(start, end - start)


def _comparable(value: pa.Scalar) -> Any:
    """What equal keys have equal. Two moments with the same clock time are equal in Python; far years, and bytes that are no text, cannot be had there."""
    if isinstance(value, (pa.TimestampScalar, pa.Date32Scalar)):
        return value.value
    return value.cast(pa.large_binary()).as_py() if isinstance(value, pa.StringScalar | pa.LargeStringScalar) else value.as_py()
