"""Rows of a task in blocks that fit into memory, and the external sort of those that do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby, pairwise
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from kartothek_cube.core.arrow.grouping import Spill
from kartothek_cube.core.arrow.sort_keys import group_starts, pack, pack_one, stable_order
from kartothek_cube.spark.tasks import aperiodic

__all__ = ["blocks", "concat_grouped", "runs", "sorted_pieces", "take_until"]

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


def take_until(pieces: Iterator[pa.Table], most: int) -> tuple[Iterator[pa.Table], int, int, bool]:
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


def concat_grouped(tables: Iterable[pa.Table], columns: Sequence[str]) -> pa.Table:
    """All rows as one table, those together that are equal in some columns, in the order in which they come."""
    table = pa.concat_tables(tables)
    keys = pack_one(table, columns)
    # Numbers of 16 bits are sorted by counting, which is many times as fast.
    order = stable_order(keys.astype(np.uint16) if int(keys.max()) < _COUNTED else keys)
    return table if order is None else table.take(pa.array(order))


def runs(tables: Iterable[pa.Table], columns: Sequence[str]) -> Iterator[Iterator[pa.Table]]:
    """For each run of equal values in some columns its rows in pieces.

    A run has to be taken before the next one, as with `itertools.groupby`.
    """
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
    """What equal keys have equal.

    Two moments with the same clock time are equal in Python; far years, and bytes that are no text,
    cannot be had there.
    """
    if isinstance(value, (pa.TimestampScalar, pa.Date32Scalar)):
        return value.value
    return (
        value.cast(pa.large_binary()).as_py()
        if isinstance(value, pa.StringScalar | pa.LargeStringScalar)
        else value.as_py()
    )


_ARRIVAL = "__kartothek_cube_arrival"

# The rows of a block that say where the order is cut.
_SAMPLES = 64

# Ranges at a time: of more of them the parts would be so short that they cost more than their rows.
_RANGES = 256

# A range that has so many times the bytes that were asked for, or of a block, is divided once more.
_TOO_LARGE = 1.5


def sorted_pieces(pieces: Iterable[pa.Table], columns: Sequence[str], most: int) -> Iterator[pa.Table]:
    """The rows sorted by some columns, equal ones in the order of their arrival, in pieces of about ``most`` bytes.

    Blocks are sorted as they come and wait in a temporary file. When all rows are known, so is
    where the order can be cut into ranges of about one block, and each range is put together from
    its part of each block.
    """
    rest = iter(pieces)
    first = next(rest, None)
    if first is None:
        return
    arrival = (
        max((_ARRIVAL, *first.column_names), key=len) + "_"
    )  # longer than the name of any column, thus none of them
    for piece in _sorted(_with_arrival(chain((first,), rest), arrival), (*columns, arrival), most):
        yield piece.drop_columns([arrival])


def _with_arrival(pieces: Iterable[pa.Table], arrival: str) -> Iterator[pa.Table]:
    seen = 0
    for piece in pieces:
        yield piece.append_column(arrival, pa.array(np.arange(seen, seen + piece.num_rows)))
        seen += piece.num_rows


def _sorted(rows: Iterator[pa.Table], keys: Sequence[str], most: int) -> Iterator[pa.Table]:
    first = next(rows, None)
    if first is None:
        return
    with Spill(first.schema, most) as ranges:
        sizes, largest = _fill(ranges, chain((first,), rows), first.schema, keys, most)
        for number, size in sorted(sizes.items()):
            if size > _TOO_LARGE * max(most, largest):
                yield from _sorted(ranges.pieces(number), keys, most)
            else:
                yield _ordered(pa.concat_tables(ranges.take(number)), keys)


def _fill(
    ranges: Spill, rows: Iterable[pa.Table], schema: pa.Schema, keys: Sequence[str], most: int
) -> tuple[Counter[int], int]:
    """Put rows into the ranges to which they belong; the bytes of each that has some, and of the largest block."""
    sizes, largest = Counter[int](), 0
    with Spill(schema, most) as waiting:
        cuts = _cuts([_kept(waiting, i, block, keys) for i, block in enumerate(blocks(rows, most))], keys)
        for number in waiting.numbers():
            block = pa.concat_tables(waiting.take(number))
            largest = max(largest, block.nbytes)
            assert cuts is not None  # there are blocks
            for i, part in enumerate(_divided(block, cuts, keys)):
                if part.num_rows:
                    ranges.add(i, part)
                    sizes[i] += part.nbytes
    return sizes, largest


def _ordered(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    order = stable_order(pack_one(table, keys))
    return table if order is None else table.take(pa.array(order))


def _kept(waiting: Spill, number: int, block: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Keep a block, sorted; the keys of some of its rows, evenly spread, and in blocks that are alike not the same ones."""
    ordered = _ordered(block, keys)
    waiting.add(number, ordered)
    return ordered.select(list(keys)).take(pa.array(_evenly(ordered.num_rows, _SAMPLES, aperiodic(number))))


def _cuts(samples: Sequence[pa.Table], keys: Sequence[str]) -> pa.Table | None:
    """The keys at which the order is cut into as many ranges as there are blocks; None where there are no rows."""
    if not samples:
        return None
    known = _ordered(pa.concat_tables(samples), keys)
    return known.take(pa.array(_evenly(known.num_rows, min(len(samples), _RANGES))[1:]))


def _evenly(rows: int, n: int, shift: float = 0.0) -> np.ndarray[Any, np.dtype[np.int64]]:
    """At most ``n`` of some positions, in even distances, the first one less than that from the beginning."""
    return np.unique(np.minimum((np.arange(n) + shift) * rows / n, rows - 1).astype(np.int64))


def _divided(block: pa.Table, cuts: pa.Table, keys: Sequence[str]) -> Iterator[pa.Table]:
    """The rows of a sorted block, range by range."""
    own, bounds = pack([block, cuts], keys)
    for begin, end in pairwise([0, *np.searchsorted(own, bounds).tolist(), len(own)]):
        yield block.slice(begin, end - begin)
