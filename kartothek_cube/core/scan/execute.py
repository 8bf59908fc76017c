"""Running a scan: files in threads, results in the order of the plan, whole or by group."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import chain
from typing import TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from kartothek_cube.core.arrow.grouping import AMPLIFICATION_LIMIT, Spill, split_groups
from kartothek_cube.core.arrow.pandas import concat_encoded, encoded
from kartothek_cube.core.arrow.sort_keys import empty_rows
from kartothek_cube.core.io.reader import FileRequest, open_rows, read_rows
from kartothek_cube.core.runtime.executor import READ_FILES, SizeEstimate, map_in_threads, thread_count
from kartothek_cube.core.runtime.options import current_options
from kartothek_cube.core.runtime.progress import Phase
from kartothek_cube.core.scan.groups import GroupPlan, TableRead
from kartothek_cube.core.scan.plan import FilePlan, ScanTask
from kartothek_cube.core.stores.contract import Store

__all__ = ["iter_groups", "joined", "load_groups", "load_scan", "load_tables", "stream_pieces", "stream_tables"]

T = TypeVar("T")

# Smaller pieces of a file would cost more time than memory they save.
_LEAST_PIECE = 2**20


def load_tables(
    store: Store, request: FileRequest, tasks: Sequence[ScanTask], categoricals: Sequence[str] = ()
) -> list[pa.Table]:
    """All files, in order; categoricals become dictionaries as soon as a file is read."""
    return list(
        map_in_threads(
            lambda task: encoded(read_rows(store, task.key, request, task.constants), categoricals),
            tasks,
            store=store,
            phase=READ_FILES,
        )
    )


def load_scan(store: Store, plan: FilePlan, categoricals: Sequence[str] = ()) -> pa.Table:
    """All files of a plan as one table."""
    return joined(load_tables(store, plan.request, plan.tasks(), categoricals), plan.request, categoricals)


def stream_tables(store: Store, request: FileRequest, tasks: Sequence[ScanTask]) -> Generator[pa.Table, None, None]:
    """The rows of all files as they are, as by `stream_pieces`."""
    return stream_pieces(store, request, tasks, lambda table: table)


def stream_pieces(
    store: Store, request: FileRequest, tasks: Sequence[ScanTask], convert: Callable[[pa.Table], T]
) -> Generator[T, None, None]:
    """What ``convert`` makes of the rows of all files, piece by piece and in order; all pieces on their way take about ``bytes_in_flight``.

    The next files are opened in threads meanwhile. Those that fit into a piece, as most do, are
    read there, too; larger ones piece by piece when it is their turn.
    """
    settings, weight = current_options(), SizeEstimate()
    nbytes = max(
        _LEAST_PIECE, settings.bytes_in_flight // (2 * thread_count(store))
    )  # `map_in_threads` has up to two tasks a thread on their way

    def load(task: ScanTask) -> Iterator[T]:
        is_small, pieces = open_rows(store, task.key, request, nbytes, task.constants)
        if not is_small:
            return map(convert, pieces)
        tables = list(pieces)
        weight.measured(sum(table.nbytes for table in tables))
        return iter([convert(table) for table in tables])

    return _flat(map_in_threads(load, tasks, store=store, weight=weight, phase=READ_FILES))


def _flat(parts: Generator[Iterator[T], None, None]) -> Generator[T, None, None]:
    with closing(parts):
        for part in parts:
            yield from part


def joined(tables: Sequence[pa.Table], request: FileRequest, categoricals: Sequence[str] = ()) -> pa.Table:
    """Tables of one request as one; without any, an empty one of the same type."""
    if not request.columns:
        return empty_rows(sum(table.num_rows for table in tables))
    if not tables:
        tables = [encoded(pa.schema([request.schema.field(c) for c in request.columns]).empty_table(), categoricals)]
    return concat_encoded(tables, categoricals)


Convert: TypeAlias = Callable[[dict[str, pa.Table]], T]

"""What is made of the tables of a group, in the thread that has loaded them."""

Parts: TypeAlias = Generator[list[tuple[int, pa.Table]], None, None]

"""The rows of one piece of a file after the other, by the number of their group."""

Entry: TypeAlias = tuple[int, dict[str, list[pa.Table]]]

"""The number of a group, and its rows of each table that has some."""


def iter_groups(store: Store, plan: GroupPlan, convert: Convert[T]) -> Generator[T, None, None]:
    """One entry after the other; the next ones are loaded meanwhile, as far as memory allows.

    Where groups share files much, these are all read before the first entry, each once; rows wait
    for their group, on disk if they are many.
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
    return list(
        _load_shared(store, plan, convert, math.inf)
        if plan.groups.amplification() > 1
        else iter_groups(store, plan, convert)
    )


def _load_group(store: Store, plan: GroupPlan, i: int) -> dict[str, pa.Table]:
    positions = plan.groups.partitions(i)
    tasks = {read.table: plan.tasks(read, positions) for read in plan.reads}
    return {
        read.table: joined(
            load_tables(store, plan.request(read, i), tasks[read.table], read.categoricals),
            read.request,
            read.categoricals,
        )
        for read in plan.reads
        # Only the one group of everything has no partition at all; it still has all tables.
        if tasks[read.table] or not len(positions)
    }


# --- each file once ---------------------------------------------------------------------------------------------------


def _load_shared(store: Store, plan: GroupPlan, convert: Convert[T], limit: float) -> Generator[T, None, None]:
    # Both runs begin here, where the options of the call hold; they do nothing before the first
    # step.
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
