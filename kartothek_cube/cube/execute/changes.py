"""The rows of a query that came, went or changed between two states, partition by partition."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.arrow.difference import Difference, DifferenceBuffer, changes_schema, row_difference
from kartothek_cube.core.arrow.sort_keys import IntArray, pack
from kartothek_cube.core.io.reader import FileRequest, read_rows
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.runtime.executor import SizeEstimate, map_in_threads
from kartothek_cube.core.runtime.options import current_options
from kartothek_cube.core.runtime.progress import Phase
from kartothek_cube.core.scan.plan import FilePlan
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.cube.cube import Cube, visible_columns
from kartothek_cube.cube.execute.join import newest_rows
from kartothek_cube.cube.execute.partition_loader import PartitionLoader
from kartothek_cube.cube.query.changes import StatePlan, changed_pairs
from kartothek_cube.cube.query.groups import Group

__all__ = ["iter_changes", "iter_dataset_changes"]


def iter_changes(before: StatePlan, after: StatePlan, store: Store) -> Generator[pa.Table, None, None]:
    """The changes of all cells, in any order, the two images of an update side by side.

    Only partitions are loaded that read a file which one of the states does not have. A cell that
    is missing on one side of a partition may be in another partition on the other side. So such
    rows wait until all partitions are compared, on disk if they are many.
    """
    context, loader, weight = after.plan.context, PartitionLoader(store), SizeEstimate()
    cells, schema = context.cell_columns, context.schema
    groups = (before.plan.groups, after.plan.groups)
    pairs = [
        tuple(side[int(i)] if i >= 0 else None for side, i in zip(groups, pair, strict=True))
        for pair in zip(*changed_pairs(before, after), strict=True)
    ]

    def compare(pair: tuple[Group | None, ...]) -> Difference:
        old, new = (schema.empty_table() if group is None else loader.load(group) for group in pair)
        weight.measured(old.nbytes + new.nbytes)
        return row_difference(old, new, cells)

    # Called here, where the options of the call hold, and not at the first step of a generator.
    compared = map_in_threads(compare, pairs, store=store, weight=weight, phase=Phase("compare", "partitions"))
    rest = DifferenceBuffer(schema, cells, (), current_options().bytes_in_flight // 2)
    # Without partitions on one side no cell can have moved.
    may_move = len(pairs) > 1 and all(any(pair[side] is not None for pair in pairs) for side in (0, 1))
    result = changes_schema(schema)

    def changes() -> Generator[pa.Table, None, None]:
        with closing(compared), rest:
            for difference in compared:
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
    """The changes of the cells of one dataset of a cube, in any order; states are of `load_states`.

    Of several stored rows of a cell the newest counts, as in a query. Only physical partitions are
    read of which one state has a file that the other lacks. A cell that moved is an update.
    """
    names = visible_columns(after.schema.names)
    schema = pa.schema([(name, after.schema.field(name).type) for name in names])
    dimensions = [c for c in cube.dimension_columns if c in names]
    request, weight = FileRequest(after.uuid, after.schema, tuple(names)), SizeEstimate()
    plans = [FilePlan(request, state.files, state.values, len(state.partitions)) for state in (before, after)]
    pairs = _changed_partitions(before, after, cube.partition_columns)
    nothing = schema.empty_table()

    def compare(pair: tuple[IntArray, IntArray]) -> Difference:
        sides = [plan.take(positions).tasks() for plan, positions in zip(plans, pair, strict=True)]
        tasks = {task.key: task for side in sides for task in side}
        read = map_in_threads(
            lambda task: read_rows(store, task.key, request, task.constants), list(tasks.values()), store=store
        )
        tables = dict(zip(tasks, read, strict=True))
        old, new = (pa.concat_tables([nothing, *(tables[task.key] for task in side)]) for side in sides)
        weight.measured(old.nbytes + new.nbytes)
        return row_difference(newest_rows(old, dimensions), newest_rows(new, dimensions), dimensions)

    # Called here, where the options of the call hold, and not at the first step of a generator.
    compared = map_in_threads(compare, pairs, store=store, weight=weight, phase=Phase("compare", "partitions"))
    rest = DifferenceBuffer(schema, dimensions, (), current_options().bytes_in_flight // 2)
    may_move = len(pairs) > 1 and all(any(len(pair[side]) for pair in pairs) for side in (0, 1))

    def differences() -> Iterator[Difference]:
        with closing(compared), rest:
            for difference in compared:
                if may_move:
                    rest.add(difference.deleted, difference.inserted)
                    yield replace(difference, deleted=nothing, inserted=nothing)
                else:
                    yield difference
            yield from rest.differences()

    return differences()


def _changed_partitions(before: Snapshot, after: Snapshot, columns: Sequence[str]) -> list[tuple[IntArray, IntArray]]:
    """Of each physical partition whose files differ, the positions of its files then and now."""
    states = (before, after)
    by = [c for c in columns if all(c in state.values.column_names for state in states)]
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
