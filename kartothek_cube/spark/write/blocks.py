"""Blocks of rows that fit into a task's memory, and an external sort of rows that do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby, pairwise
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from kartothek_cube.core.arrow.keys import Spill, group_starts, pack, pack_one, sorted_table, stable_order
from kartothek_cube.spark.tasks import aperiodic

__all__ = ["blocks", "concat_grouped", "runs", "sorted_pieces", "take_until"]

_COUNTED = 2**16


def blocks(tables: Iterable[pa.Table], limit: int) -> Iterator[pa.Table]:
    """The rows in blocks of about ``limit`` bytes, the last block smaller; none without rows."""
    buffer: list[pa.Table] = []
    size = 0
    for table in tables:
        if table.num_rows:
            buffer.append(table)
            size += table.nbytes
        if size >= limit:
            size = 0
            yield _drain(buffer)
    if buffer:
        yield _drain(buffer)


def _drain(buffer: list[pa.Table]) -> pa.Table:
    block = pa.concat_tables(buffer).combine_chunks()
    # The caller may keep the block for long, so the pieces are released now.
    buffer.clear()
    return block


def take_until(pieces: Iterator[pa.Table], limit: int) -> tuple[Iterator[pa.Table], int, int, bool]:
    """Take pieces until they have more than ``limit`` bytes.

    Returns an iterator over all pieces, the rows and bytes that were taken, and whether all pieces
    were taken.
    """
    taken: list[pa.Table] = []
    size = 0
    for piece in pieces:
        taken.append(piece)
        size += piece.nbytes
        if size > limit:
            return chain(_popped(taken), pieces), sum(t.num_rows for t in taken), size, False
    return _popped(taken), sum(t.num_rows for t in taken), size, True


def _popped(taken: list[pa.Table]) -> Iterator[pa.Table]:
    """The pieces in their order; each is released as it is returned."""
    taken.reverse()
    while taken:
        yield taken.pop()


def concat_grouped(tables: Iterable[pa.Table], columns: Sequence[str]) -> pa.Table:
    """All rows as one table, grouped by some columns; rows of a group stay in order."""
    table = pa.concat_tables(tables)
    keys = pack_one(table, columns)
    # NumPy sorts 16-bit integers by radix, which is many times as fast.
    order = stable_order(keys.astype(np.uint16) if int(keys.max()) < _COUNTED else keys)
    return table if order is None else table.take(pa.array(order))


def runs(tables: Iterable[pa.Table], columns: Sequence[str]) -> Iterator[Iterator[pa.Table]]:
    """The rows of each run of equal values in some columns, in pieces.

    As with `itertools.groupby`, consume a run before the next one.
    """
    for _, keyed in groupby(_cut(tables, columns), itemgetter(0)):
        yield map(itemgetter(1), keyed)


def _cut(tables: Iterable[pa.Table], columns: Sequence[str]) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
    """Pieces of equal values in some columns, with these values."""
    for table in tables:
        if not table.num_rows:
            continue
        starts = group_starts(pack_one(table, columns)).tolist() if columns else [0]
        for start, end in zip(starts, [*starts[1:], table.num_rows], strict=True):
            key = tuple(_comparable(table.column(c)[start]) for c in columns)
            yield key, table.slice(start, end - start)


def _comparable(value: pa.Scalar) -> Any:
    # Python compares aware times by their instant, and has neither far years nor text with invalid
    # bytes. The stored numbers and bytes are exact.
    if isinstance(value, (pa.TimestampScalar, pa.Date32Scalar)):
        return value.value
    if isinstance(value, pa.StringScalar | pa.LargeStringScalar):
        return value.cast(pa.large_binary()).as_py()
    return value.as_py()


_ARRIVAL = "__kartothek_cube_arrival"

# Sampled rows of a block, from which the bounds of the ranges are taken.
_SAMPLES = 64

# Ranges of one pass. With more, a range's part of a block gets so short that it costs more than its
# rows.
_RANGES = 256

# A range with so many times the bytes of the limit, or of a block, is sorted in another pass.
_TOO_LARGE = 1.5


def sorted_pieces(pieces: Iterable[pa.Table], columns: Sequence[str], limit: int) -> Iterator[pa.Table]:
    """The rows sorted by some columns, in pieces of about ``limit`` bytes; the sort is stable.

    An external sample sort: blocks are sorted as they come and spilled to a temporary file. Samples
    of all blocks give the bounds of ranges of about one block. Each range is then merged from its
    parts of all blocks.
    """
    rest = iter(pieces)
    first = next(rest, None)
    if first is None:
        return
    # The number of arrival makes the sort stable. The name is longer than that of any column.
    arrival = max((_ARRIVAL, *first.column_names), key=len) + "_"

    def numbered() -> Iterator[pa.Table]:
        seen = 0
        for piece in chain((first,), rest):
            yield piece.append_column(arrival, pa.array(np.arange(seen, seen + piece.num_rows)))
            seen += piece.num_rows

    for piece in _sorted(numbered(), (*columns, arrival), limit):
        # Arrow's allocator keeps what earlier ranges have freed, and a container's limit counts it.
        pa.default_memory_pool().release_unused()
        yield piece.drop_columns([arrival])


def _sorted(rows: Iterator[pa.Table], keys: Sequence[str], limit: int) -> Iterator[pa.Table]:
    first = next(rows, None)
    if first is None:
        return
    with Spill(first.schema, limit) as ranges:
        sizes, largest = _fill(ranges, chain((first,), rows), first.schema, keys, limit)
        for number, size in sorted(sizes.items()):
            if size > _TOO_LARGE * max(limit, largest):
                yield from _sorted(ranges.pieces(number), keys, limit)
            else:
                yield sorted_table(pa.concat_tables(ranges.take(number)), keys)


def _fill(
    ranges: Spill, rows: Iterable[pa.Table], schema: pa.Schema, keys: Sequence[str], limit: int
) -> tuple[Counter[int], int]:
    """Put rows into ranges; returns the bytes of each range with rows, and of the largest block."""
    sizes, largest = Counter[int](), 0
    with Spill(schema, limit) as waiting:
        samples = []
        for number, block in enumerate(blocks(rows, limit)):
            ordered = sorted_table(block, keys)
            waiting.add(number, ordered)
            # Shifted by an aperiodic amount, so that equal blocks give different samples.
            sampled = _evenly(ordered.num_rows, _SAMPLES, aperiodic(number))
            samples.append(ordered.select(list(keys)).take(pa.array(sampled)))
            del block, ordered  # the next block is as large
        if not samples:
            return sizes, largest
        merged = sorted_table(pa.concat_tables(samples), keys)
        cuts = merged.take(pa.array(_evenly(merged.num_rows, min(len(samples), _RANGES))[1:]))
        for number in waiting.numbers():
            block = pa.concat_tables(waiting.take(number))
            largest = max(largest, block.nbytes)
            block_keys, bounds = pack([block, cuts], keys)
            ends = [*np.searchsorted(block_keys, bounds).tolist(), len(block_keys)]
            for i, (begin, end) in enumerate(pairwise([0, *ends])):
                if end > begin:
                    part = block.slice(begin, end - begin)
                    ranges.add(i, part)
                    sizes[i] += part.nbytes
    return sizes, largest


def _evenly(rows: int, n: int, shift: float = 0.0) -> np.ndarray[Any, np.dtype[np.int64]]:
    """At most ``n`` row positions at even distances, shifted by a share of the distance."""
    return np.unique(np.minimum((np.arange(n) + shift) * rows / n, rows - 1).astype(np.int64))
