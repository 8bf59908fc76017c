"""Sorting the rows of a partition that do not fit into memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from kartothek_cube.core.regroup import Spill
from kartothek_cube.core.rowkeys import pack, pack_one, stable_order
from kartothek_cube.spark.stage_runs import blocks
from kartothek_cube.spark.tasks import aperiodic

__all__ = ["sorted_pieces"]

_ARRIVAL = "__kartothek_cube_arrival"
# The rows of a block that say where the order is cut.
_SAMPLES = 64
# Ranges at a time: of more of them the parts would be so short that they cost more than their rows.
_RANGES = 256
# A range that has so many times the bytes that were asked for, or of a block, is divided once more.
_TOO_LARGE = 1.5


def sorted_pieces(pieces: Iterable[pa.Table], columns: Sequence[str], most: int) -> Iterator[pa.Table]:
    """The rows sorted by some columns, equal ones in the order of their arrival, in pieces of about ``most`` bytes.

    Blocks are sorted as they come and wait in a temporary file. When all rows are known, so is where the order can be cut into ranges of about one block,
    and each range is put together from its part of each block.
    """
    rest = iter(pieces)
    first = next(rest, None)
    if first is None:
        return
    arrival = max((_ARRIVAL, *first.column_names), key=len) + "_"  # longer than the name of any column, thus none of them
    for piece in _sorted(_numbered(chain((first,), rest), arrival), (*columns, arrival), most):
        yield piece.drop_columns([arrival])


def _numbered(pieces: Iterable[pa.Table], arrival: str) -> Iterator[pa.Table]:
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


def _fill(ranges: Spill, rows: Iterable[pa.Table], schema: pa.Schema, keys: Sequence[str], most: int) -> tuple[Counter[int], int]:
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
