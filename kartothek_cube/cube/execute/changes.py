"""The rows of a query that came, went or changed between two states, partition by partition."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa

from kartothek_cube.core.arrow.difference import Difference, DifferenceBuffer, changes_schema, row_difference
from kartothek_cube.core.runtime.executor import SizeEstimate, map_in_threads
from kartothek_cube.core.runtime.options import current_options
from kartothek_cube.core.runtime.progress import Phase
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.cube.execute.partition_loader import PartitionLoader
from kartothek_cube.cube.query.changes import StatePlan, changed_pairs
from kartothek_cube.cube.query.groups import Group

__all__ = ["iter_changes"]


def iter_changes(before: StatePlan, after: StatePlan, store: Store) -> Iterator[pa.Table]:
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

    def changes() -> Iterator[pa.Table]:
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
