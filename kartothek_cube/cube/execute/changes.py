"""The rows of a query that came, went or changed between two states, partition by partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import chain

import numpy as np
import pyarrow as pa

from kartothek_cube.core.arrow.difference import Difference, DifferenceBuffer, changes_schema, row_difference
from kartothek_cube.core.runtime.executor import SizeEstimate, map_batches
from kartothek_cube.core.runtime.options import current_options
from kartothek_cube.core.runtime.progress import Phase
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.cube.execute.partition_loader import PartitionLoader
from kartothek_cube.cube.execute.run import BatchLoader
from kartothek_cube.cube.query.changes import StatePlan, changed_pairs, select_groups
from kartothek_cube.cube.query.plan import QueryPlan

__all__ = ["iter_changes"]


def iter_changes(before: StatePlan, after: StatePlan, store: Store) -> Iterator[pa.Table]:
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

    def changes() -> Iterator[pa.Table]:
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
