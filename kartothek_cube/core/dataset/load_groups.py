"""Loading the entries of a plan of groups: one after the other with bounded memory, or all at once; files that many groups need are read once."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import chain
from typing import TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from kartothek_cube.core.dataset.groups import GroupPlan, TableRead
from kartothek_cube.core.dataset.load import joined, load_tables, stream_pieces
from kartothek_cube.core.frames import encoded
from kartothek_cube.core.options import current_options
from kartothek_cube.core.parallel import SizeEstimate, map_in_threads
from kartothek_cube.core.progress import Phase
from kartothek_cube.core.regroup import AMPLIFICATION_LIMIT, Spill, split_groups
from kartothek_cube.core.store import Store

__all__ = ["iter_groups", "load_groups"]

T = TypeVar("T")

Convert: TypeAlias = Callable[[dict[str, pa.Table]], T]
"""What is made of the tables of a group, in the thread that has loaded them."""
Parts: TypeAlias = Generator[list[tuple[int, pa.Table]], None, None]
"""The rows of one piece of a file after the other, by the number of their group."""
Entry: TypeAlias = tuple[int, dict[str, list[pa.Table]]]
"""The number of a group, and its rows of each table that has some."""


def iter_groups(store: Store, plan: GroupPlan, convert: Convert[T]) -> Generator[T, None, None]:
    """One entry after the other; the next ones are loaded meanwhile, as far as memory allows.

    Where groups share files much, these are all read before the first entry, each once; rows wait for their group, on disk if they are many.
    """
    if plan.groups.amplification() > AMPLIFICATION_LIMIT:
        return _load_shared(store, plan, convert, current_options().bytes_in_flight)
    weight = SizeEstimate()

    def load(i: int) -> T:
        tables = _load_group(store, plan, i)
        weight.measured(sum(table.nbytes for table in tables.values()))
        return convert(tables)

    phase = Phase("read", "groups" if plan.dispatch_columns else "partitions")
    return map_in_threads(load, range(len(plan.groups)), store=store, weight=weight, phase=phase)


def load_groups(store: Store, plan: GroupPlan, convert: Convert[T]) -> list[T]:
    """All entries; a file that several of them need is read once."""
    return list(_load_shared(store, plan, convert, math.inf) if plan.groups.amplification() > 1 else iter_groups(store, plan, convert))


def _load_group(store: Store, plan: GroupPlan, i: int) -> dict[str, pa.Table]:
    positions = plan.groups.partitions(i)
    tasks = {read.table: plan.tasks(read, positions) for read in plan.reads}
    return {
        read.table: joined(load_tables(store, plan.request(read, i), tasks[read.table], read.categoricals), read.request, read.categoricals)
        for read in plan.reads
        # Only the one group of everything has no partition at all; it still has all tables.
        if tasks[read.table] or not len(positions)
    }


# --- each file once ---------------------------------------------------------------------------------------------------


def _load_shared(store: Store, plan: GroupPlan, convert: Convert[T], limit: float) -> Generator[T, None, None]:
    # Both runs begin here, where the options of the call hold; they do nothing before the first step.
    entries = _regrouped(plan, [_split_pieces(store, plan, read) for read in plan.reads], limit)

    def weight(entry: Entry) -> int:
        return sum(rows.nbytes for tables in entry[1].values() for rows in tables)

    results = map_in_threads(lambda entry: convert(_entry_tables(plan, *entry)), entries, weight=weight)
    return _owning(results, entries)


def _owning(results: Generator[T, None, None], entries: Generator[Entry, None, None]) -> Generator[T, None, None]:
    with closing(entries), closing(results):
        yield from results


def _split_pieces(store: Store, plan: GroupPlan, read: TableRead) -> Parts:
    columns, keys = list(read.request.columns), plan.groups.keys
    request = replace(read.request, columns=tuple(dict.fromkeys((*columns, *plan.dispatch_columns))))

    def split(piece: pa.Table) -> list[tuple[int, pa.Table]]:
        return [(number, rows.select(columns)) for number, rows in split_groups(keys, piece)]

    return stream_pieces(store, request, plan.tasks(read, np.unique(plan.groups.positions)), split)


def _regrouped(plan: GroupPlan, parts: list[Parts], limit: float) -> Generator[Entry, None, None]:
    """All entries, after all pieces were read."""
    with ExitStack() as stack:
        spills: dict[str, Spill] = {}
        for read, found in zip(plan.reads, parts, strict=True):
            schema = pa.schema([read.request.schema.field(c) for c in read.request.columns])
            spills[read.table] = stack.enter_context(Spill(schema, limit / len(parts)))
            with closing(found):
                for number, rows in chain.from_iterable(found):
                    spills[read.table].add(number, rows)
        for i in range(len(plan.groups)):
            yield i, {table: pieces for table, spill in spills.items() if (pieces := spill.take(i))}


def _entry_tables(plan: GroupPlan, i: int, rows: dict[str, list[pa.Table]]) -> dict[str, pa.Table]:
    positions = plan.groups.partitions(i)
    reads = [read for read in plan.reads if read.table in rows or plan.tasks(read, positions)]
    tables = {read.table: [encoded(table, read.categoricals) for table in rows.pop(read.table, [])] for read in reads}
    return {read.table: joined(tables[read.table], read.request, read.categoricals) for read in reads}
