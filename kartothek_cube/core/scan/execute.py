"""Execution of scans: files are read in threads, results come in plan order, as one or by group."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from kartothek_cube.core.arrow.keys import AMPLIFICATION_LIMIT, Spill, empty_rows, split_groups
from kartothek_cube.core.arrow.pandas import concat_encoded, encoded
from kartothek_cube.core.io.reader import FileRequest, TooLarge, open_rows, read_rows, read_together
from kartothek_cube.core.runtime.executor import READ_FILES, SizeEstimate, map_batches, map_in_threads, thread_count
from kartothek_cube.core.runtime.options import Phase, current_options
from kartothek_cube.core.scan.plan import FilePlan, ScanTask
from kartothek_cube.core.stores.contract import Store

if TYPE_CHECKING:
    from kartothek_cube.core.scan.groups import GroupPlan, TableRead

__all__ = [
    "iter_groups",
    "joined",
    "load_groups",
    "load_scan",
    "load_tables",
    "read_batch",
    "stream_pieces",
    "stream_tables",
    "stream_together",
]

T = TypeVar("T")

Convert: TypeAlias = Callable[[dict[str, pa.Table]], T]
"""Makes the result of a group from its tables, in the thread that has loaded them."""

NumberedRows: TypeAlias = Generator[list[tuple[int, pa.Table]], None, None]
"""One item per piece of a file: its rows, by the number of their group."""

GroupRows: TypeAlias = tuple[int, dict[str, list[pa.Table]]]
"""The number of a group, and its rows of each table that has some."""

# Smaller pieces of a file would cost more time than they save memory.
_LEAST_PIECE = 2**20

# Small files are read together: at most so many, of about so many bytes in memory.
_MOST_FILES, _BATCH_BYTES = 64, 4 * 2**20


# --- one table ------------------------------------------------------------------------------------


def load_scan(store: Store, plan: FilePlan, categoricals: Sequence[str] = ()) -> pa.Table:
    """All files of a plan as one table."""
    return joined(load_tables(store, plan.request, plan.tasks(), categoricals), plan.request, categoricals)


def load_tables(
    store: Store, request: FileRequest, tasks: Sequence[ScanTask], categoricals: Sequence[str] = ()
) -> list[pa.Table]:
    """One table per file, in order; categoricals are encoded as soon as a file is read."""

    def load(task: ScanTask) -> pa.Table:
        return encoded(read_rows(store, task.key, request, task.constants), categoricals)

    return list(map_in_threads(load, tasks, store=store, phase=READ_FILES))


def joined(tables: Sequence[pa.Table], request: FileRequest, categoricals: Sequence[str] = ()) -> pa.Table:
    """The tables of one request as one table; no tables make an empty one of the same type."""
    if not request.columns:
        return empty_rows(sum(table.num_rows for table in tables))
    if not tables:
        tables = [encoded(pa.schema([request.schema.field(c) for c in request.columns]).empty_table(), categoricals)]
    return concat_encoded(tables, categoricals)


def stream_tables(store: Store, request: FileRequest, tasks: Sequence[ScanTask]) -> Generator[pa.Table, None, None]:
    """The rows of all files, as by `stream_pieces` without a conversion."""
    return stream_pieces(store, request, tasks, lambda table: table)


def stream_pieces(
    store: Store, request: FileRequest, tasks: Sequence[ScanTask], convert: Callable[[pa.Table], T]
) -> Generator[T, None, None]:
    """The rows of all files in order, in pieces that ``convert`` has turned into results.

    All pieces in flight take about ``bytes_in_flight``. The next files are opened in threads
    meanwhile. A file that fits into one piece, as most do, is read there, too; a larger one is read
    piece by piece when its turn comes.
    """
    size_estimate = SizeEstimate()
    # `map_in_threads` has up to two tasks per thread in flight.
    nbytes = max(_LEAST_PIECE, current_options().bytes_in_flight // (2 * thread_count(store)))

    def load(task: ScanTask) -> Iterator[T]:
        is_small, pieces = open_rows(store, task.key, request, nbytes, task.constants)
        if not is_small:
            return map(convert, pieces)
        tables = list(pieces)
        size_estimate.measured(sum(table.nbytes for table in tables))
        return iter([convert(table) for table in tables])

    # Called here, where the options of the call hold, and not at the first step of a generator.
    results = map_in_threads(load, tasks, store=store, weight=size_estimate, phase=READ_FILES)

    def flattened() -> Generator[T, None, None]:
        with closing(results):
            for pieces in results:
                yield from pieces

    return flattened()


def stream_together(store: Store, request: FileRequest, tasks: Sequence[ScanTask]) -> Generator[pa.Table, None, None]:
    """All rows as by `stream_tables`; where files are small, of many in one table."""
    nbytes = max(1, current_options().bytes_in_flight // (2 * thread_count(store)))
    room, weight, largest = min(_BATCH_BYTES, nbytes), SizeEstimate(), 0

    def load_one(task: ScanTask) -> Iterator[pa.Table]:
        nonlocal largest
        is_small, pieces = open_rows(store, task.key, request, nbytes, task.constants)
        tables = list(pieces) if is_small else []
        size = sum(table.nbytes for table in tables) if is_small else nbytes
        weight.measured(size)
        largest = max(largest, size)
        return iter(tables) if is_small else pieces

    def load(batch: Sequence[ScanTask]) -> Iterable[Iterator[pa.Table]]:
        if len(batch) > 1:
            with suppress(TooLarge):
                return [iter([read_batch(store, request, batch, room)[0]]), *(iter(()) for _ in batch[1:])]
        return map(load_one, batch)

    def limit() -> int:
        return min(_MOST_FILES, room // largest) if largest else 1

    loaded = map_batches(load, tasks, limit, store=store, weight=weight, phase=READ_FILES)

    def flattened() -> Generator[pa.Table, None, None]:
        with closing(loaded):
            for tables in loaded:
                yield from tables

    return flattened()


def read_batch(
    store: Store, request: FileRequest, batch: Sequence[ScanTask], room: int
) -> tuple[pa.Table, Sequence[int]]:
    """All rows of several files with the same partition keys, and the number of rows of each.

    Raises
    ------
    TooLarge
        If the rows take more than ``room`` bytes.
    """
    values = batch[0].constants.keys()
    # Without the partition values, which would make each file a case of its own.
    inside = replace(request, columns=tuple(c for c in request.columns if c not in values))
    table, counts = read_together(store, [(task.key, {}) for task in batch], inside, room)
    numbers = pa.array(np.repeat(np.arange(len(batch)), counts))
    columns = {
        c: pa.array([task.constants[c] for task in batch], request.schema.field(c).type).take(numbers)
        if c in values
        else table.column(c)
        for c in request.columns
    }
    return pa.table(columns), counts


# --- several tables, by group ---------------------------------------------------------------------


def iter_groups(store: Store, plan: GroupPlan, convert: Convert[T]) -> Generator[T, None, None]:
    """One group after the other; the next ones are loaded meanwhile, as far as memory allows.

    If groups share many files, all files are read once before the first group; their rows wait, on
    disk if they are many.
    """
    if plan.groups.amplification() > AMPLIFICATION_LIMIT:
        return _load_shared(store, plan, convert, current_options().bytes_in_flight)
    size_estimate = SizeEstimate()

    def load(i: int) -> T:
        positions = plan.groups.partitions(i)
        tables = {}
        for read in plan.reads:
            tasks = plan.tasks(read, positions)
            # Only the one group of everything can have no partition. It still has all tables.
            if tasks or not len(positions):
                files = load_tables(store, plan.request(read, i), tasks, read.categoricals)
                tables[read.table] = joined(files, read.request, read.categoricals)
        size_estimate.measured(sum(table.nbytes for table in tables.values()))
        return convert(tables)

    phase = Phase("read", "groups" if plan.group_columns else "partitions")
    return map_in_threads(load, range(len(plan.groups)), store=store, weight=size_estimate, phase=phase)


def load_groups(store: Store, plan: GroupPlan, convert: Convert[T]) -> list[T]:
    """All groups; a file that several of them need is read once."""
    if plan.groups.amplification() > 1:
        # Without a limit, since all groups will be in memory.
        return list(_load_shared(store, plan, convert, math.inf))
    return list(iter_groups(store, plan, convert))


def _load_shared(store: Store, plan: GroupPlan, convert: Convert[T], limit: float) -> Generator[T, None, None]:
    """All groups, each file read once; rows beyond ``limit`` bytes wait on disk."""

    def weight(group: GroupRows) -> int:
        return sum(rows.nbytes for tables in group[1].values() for rows in tables)

    def load(group: GroupRows) -> T:
        i, rows = group
        positions = plan.groups.partitions(i)
        reads = [read for read in plan.reads if read.table in rows or plan.tasks(read, positions)]
        # `pop` frees the plain rows of a table as soon as they are encoded.
        tables = {r.table: [encoded(table, r.categoricals) for table in rows.pop(r.table, [])] for r in reads}
        return convert({read.table: joined(tables[read.table], read.request, read.categoricals) for read in reads})

    # Both are called here, where the options of the call hold; nothing is read before a step.
    groups = _regrouped(plan, [_split_pieces(store, plan, read) for read in plan.reads], limit)
    results = map_in_threads(load, groups, weight=weight)

    def closing_both() -> Generator[T, None, None]:
        with closing(groups), closing(results):
            yield from results

    return closing_both()


def _split_pieces(store: Store, plan: GroupPlan, read: TableRead) -> NumberedRows:
    """The rows of one table, each file read once, with the number of their group."""
    # The group columns are read to split the rows, and dropped unless they were requested.
    columns, keys = list(read.request.columns), plan.groups.keys
    request = replace(read.request, columns=tuple(dict.fromkeys((*columns, *plan.group_columns))))

    def split(piece: pa.Table) -> list[tuple[int, pa.Table]]:
        return [(number, rows.select(columns)) for number, rows in split_groups(keys, piece)]

    return stream_pieces(store, request, plan.tasks(read, np.unique(plan.groups.positions)), split)


def _regrouped(plan: GroupPlan, tables: list[NumberedRows], limit: float) -> Generator[GroupRows, None, None]:
    """All groups with their rows, after all pieces of all tables were read."""
    with ExitStack() as stack:
        spills: dict[str, Spill] = {}
        for read, pieces in zip(plan.reads, tables, strict=True):
            schema = pa.schema([read.request.schema.field(c) for c in read.request.columns])
            spills[read.table] = stack.enter_context(Spill(schema, limit / len(tables)))
            with closing(pieces):
                for number, rows in chain.from_iterable(pieces):
                    spills[read.table].add(number, rows)
        for i in range(len(plan.groups)):
            yield i, {table: waiting for table, spill in spills.items() if (waiting := spill.take(i))}
