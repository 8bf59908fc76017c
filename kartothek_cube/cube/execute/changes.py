"""The rows of a query that came, went or changed between two states, partition by partition."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import accumulate, chain
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.arrow.difference import Difference, DifferenceBuffer, changes_schema, row_difference
from kartothek_cube.core.arrow.keys import IntArray, pack
from kartothek_cube.core.io.reader import FileRequest, TooLarge, read_rows
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.runtime.executor import SizeEstimate, map_batches, map_in_threads, thread_count
from kartothek_cube.core.runtime.options import Phase, current_options
from kartothek_cube.core.scan.execute import read_batch
from kartothek_cube.core.scan.plan import FilePlan, ScanTask
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.cube.cube import Cube, visible_columns
from kartothek_cube.cube.execute.join import newest_rows
from kartothek_cube.cube.execute.partition_loader import PartitionLoader
from kartothek_cube.cube.execute.run import BatchLoader
from kartothek_cube.cube.query.changes import StatePlan, changed_pairs, select_groups
from kartothek_cube.cube.query.plan import QueryPlan

__all__ = ["iter_changes", "iter_dataset_changes"]


def iter_changes(before: StatePlan, after: StatePlan, store: Store) -> Generator[pa.Table, None, None]:
    """The changes of all cells, in any order, the two images of an update side by side.

    Only partitions are loaded that read a file which one of the states does not have. A cell that
    is missing on one side of a partition may be in another partition on the other side. So such
    rows wait until all partitions are compared, on disk if they are many.
    """
    context, weight = after.plan.context, SizeEstimate()
    cells, schema, plans = context.cell_columns, context.schema, (before.plan, after.plan)
    places = [(int(old), int(new)) for old, new in zip(*changed_pairs(before, after), strict=True)]
    # Within a partition only: what is left of several partitions meets in the end.
    keys = [*cells, *(column for column in context.partition_columns if column not in cells)]
    # Whether partitions suit batches depends on the roles: those of one plan stand for both.
    is_alike = before.plan.context.roles == context.roles
    batches = BatchLoader(PartitionLoader(store), context, single=store.is_remote or not is_alike)

    def load(plan: QueryPlan, positions: Sequence[int]) -> pa.Table:
        groups = list(select_groups(plan, np.array([i for i in positions if i >= 0], dtype=np.int64)).groups)
        parts = [part for batch in batches.join(groups) for part in batch.parts] if groups else []
        return pa.concat_tables([schema.empty_table(), *(part.table(schema) for part in parts)])

    def compare(pairs: Sequence[tuple[int, int]]) -> list[list[Difference]]:
        old, new = (load(plan, positions) for plan, positions in zip(plans, zip(*pairs, strict=True), strict=True))
        weight.measured((old.nbytes + new.nbytes) // len(pairs))
        # Progress counts partitions: the difference of a batch is that of its first one.
        return [[row_difference(old, new, cells if len(pairs) == 1 else keys)], *([] for _ in pairs[1:])]

    # Called here, where the options of the call hold, and not at the first step of a generator.
    phase = Phase("compare", "partitions")
    compared = map_batches(compare, places, batches.limit, store=store, weight=weight, phase=phase)
    rest = DifferenceBuffer(schema, cells, (), current_options().bytes_in_flight // 2)
    # Without partitions on one side no cell can have moved.
    may_move = len(places) > 1 and all(any(pair[side] >= 0 for pair in places) for side in (0, 1))
    result = changes_schema(schema)

    def changes() -> Generator[pa.Table, None, None]:
        with closing(compared), rest:
            for difference in chain.from_iterable(compared):
                yield difference.updates(result)
                if may_move:
                    rest.add(difference.deleted, difference.inserted)
                else:
                    yield difference.others(result)
            for difference in rest.differences():
                yield difference.updates(result)
                yield difference.others(result)

    return changes()


# --- the datasets themselves ----------------------------------------------------------------------


def iter_dataset_changes(cube: Cube, before: Snapshot, after: Snapshot, store: Store) -> Iterator[Difference]:
    """The changes of the cells of one dataset of a cube, in any order, with the later columns.

    Of several stored rows of a cell the newest counts, as in a query. Only physical partitions are
    read of which one state has a file that the other lacks. A cell that moved is an update.
    """
    names = visible_columns(after.schema.names)
    schema = pa.schema([(name, after.schema.field(name).type) for name in names])
    dimensions = [c for c in cube.dimension_columns if c in names]
    by = [c for c in cube.partition_columns if all(c in state.values.column_names for state in (before, after))]
    cells, pairs = [*dimensions, *by], _changed_partitions(before, after, by)
    files = _StoredRows(store, FileRequest(after.uuid, schema, tuple(names)), (before, after))
    weight, largest, nothing = SizeEstimate(), 0, schema.empty_table()

    def compare(batch: Sequence[FilePair]) -> list[list[Difference]]:
        nonlocal largest
        try:
            old, new = files.read(batch)
        except TooLarge:
            return [compare([pair])[0] for pair in batch]
        size = (old.nbytes + new.nbytes) // len(batch)
        weight.measured(size)
        largest = max(largest, size)
        # Progress counts partitions: the difference of a batch is that of its first one.
        difference = row_difference(newest_rows(old, cells), newest_rows(new, cells), cells)
        return [[difference], *([] for _ in batch[1:])]

    # Called here, where the options of the call hold, and not at the first step of a generator.
    phase = Phase("compare", "partitions")
    compared = map_batches(compare, pairs, lambda: files.limit(largest), store=store, weight=weight, phase=phase)
    rest = DifferenceBuffer(schema, dimensions, (), current_options().bytes_in_flight // 2)
    may_move = len(pairs) > 1 and all(any(len(pair[side]) for pair in pairs) for side in (0, 1))

    def differences() -> Iterator[Difference]:
        with closing(compared), rest:
            for difference in chain.from_iterable(compared):
                if may_move:
                    rest.add(difference.deleted, difference.inserted)
                    yield replace(difference, deleted=nothing, inserted=nothing)
                else:
                    yield difference
            yield from rest.differences()

    return differences()


FilePair: TypeAlias = tuple[IntArray, IntArray]
"""Positions of the files of a physical partition in the older and in the later state."""

# Small partitions are read and compared together: each costs more than its rows.
_MOST_PARTITIONS, _BATCH_BYTES = 64, 4 * 2**20


class _StoredRows:
    """Reads all stored rows of some physical partitions in two states; each file once."""

    def __init__(self, store: Store, request: FileRequest, states: tuple[Snapshot, Snapshot]) -> None:
        self._store, self._request, self._nothing = store, request, request.schema.empty_table()
        self._plans = [FilePlan(request, state.files, state.values, len(state.partitions)) for state in states]
        self._room = min(_BATCH_BYTES, max(1, current_options().bytes_in_flight // (2 * thread_count(store))))
        # Files of a batch have the same partition keys.
        before, after = (state.values.column_names for state in states)
        self._is_regular = before == after and not store.is_remote

    def limit(self, size: int) -> int:
        """How many partitions of about so many bytes to read together."""
        return min(_MOST_PARTITIONS, self._room // size) if size and self._is_regular else 1

    def read(self, pairs: Sequence[FilePair]) -> tuple[pa.Table, pa.Table]:
        """The rows then and now, in the order of the documents.

        Raises
        ------
        TooLarge
            If the rows of several partitions take too much room.
        """
        sides = zip(self._plans, zip(*pairs, strict=True), strict=True)
        old, new = (plan.take(np.concatenate(positions)).tasks() for plan, positions in sides)
        tasks = {task.key: task for task in (*old, *new)}
        if len(pairs) > 1:
            table, counts = read_batch(self._store, self._request, list(tasks.values()), self._room)
            tables = [table.slice(end - n, n) for end, n in zip(accumulate(counts), counts, strict=True)]
        else:
            load = partial(_read_task, self._store, self._request)
            tables = list(map_in_threads(load, list(tasks.values()), store=self._store))
        rows = dict(zip(tasks, tables, strict=True))
        then, now = (pa.concat_tables([self._nothing, *(rows[task.key] for task in side)]) for side in (old, new))
        return then, now


def _read_task(store: Store, request: FileRequest, task: ScanTask) -> pa.Table:
    return read_rows(store, task.key, request, task.constants)


def _changed_partitions(before: Snapshot, after: Snapshot, by: Sequence[str]) -> list[FilePair]:
    """The physical partitions by these columns whose files differ."""
    states = (before, after)
    keys = pack([s.values for s in states], by) if by else [np.zeros(len(s.partitions), np.int64) for s in states]
    is_other = [
        ~pc.is_in(mine.files, value_set=others.files).to_numpy(zero_copy_only=False)
        for mine, others in (states, states[::-1])
    ]
    changed = np.unique(np.concatenate([key[other] for key, other in zip(keys, is_other, strict=True)]))
    positions = []
    for key in keys:
        # Stable: the files of a partition stay in the order of the document, the newest last.
        order = np.argsort(key, kind="stable")
        ends = [np.searchsorted(key[order], changed, side=side) for side in ("left", "right")]
        positions.append([order[begin:end] for begin, end in zip(*ends, strict=True)])
    return list(zip(*positions, strict=True))
