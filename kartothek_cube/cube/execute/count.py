"""The number of rows of a plan: from statistics where they suffice, else from footers and cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.arrow.keys import IntArray
from kartothek_cube.core.expressions.predicates import Bounds, Mask
from kartothek_cube.core.io.reader import file_rows
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.runtime.options import Phase
from kartothek_cube.core.snapshots.statistics import extents_of_files, statistics_of_files
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.cube.execute.partition_loader import PartitionLoader
from kartothek_cube.cube.query.groups import Group
from kartothek_cube.cube.query.plan import QueryPlan

__all__ = ["count_planned"]

_PARTITIONS = Phase("read", "partitions")


def count_planned(plan: QueryPlan, members: Mapping[str, Snapshot], store: Store) -> int:
    """The number of rows of a query without payload, see `count_cube`.

    ``members`` are the datasets of which the plan was made.
    """
    context, loader = plan.context, PartitionLoader(store)
    seed, *others = context.roles
    filtered = any(c.column not in context.partition_columns for c in seed.clauses)
    if others or filtered or not {*seed.dimensions} <= {*context.cell_columns}:

        def join(group: Group) -> int:
            return sum(loader.join_partition(context, part).rows for part in group.partitions)

        return sum(map_in_threads(join, plan.slices, store=store, phase=_PARTITIONS))

    keys = [[key for part in group.partitions for key in part.files[seed.id].keys] for group in plan.slices]
    known = _known_rows(members[seed.id], store, keys, seed.dimensions)

    def count(group: Group) -> int:
        # A cell occurs once in a file, but maybe in several files of a partition.
        (part,) = group.partitions
        (first, *more) = part.files[seed.id].keys
        return loader.join_partition(context, part).rows if more else file_rows(store, first, members[seed.id].uuid)

    unknown = list(compress(plan.slices, (rows < 0 for rows in known)))
    return sum(rows for rows in known if rows >= 0) + sum(
        map_in_threads(count, unknown, store=store, phase=_PARTITIONS)
    )


def _known_rows(seed: Snapshot, store: Store, keys: Sequence[Sequence[str]], dimensions: Sequence[str]) -> list[int]:
    """The number of cells of each group of files, by its keys; -1 where statistics do not tell."""
    files = pa.array([key for group in keys for key in group], type=pa.string())
    counts = np.fromiter(map(len, keys), dtype=np.int64, count=len(keys))
    groups, inside = np.repeat(np.arange(len(keys)), counts), [c for c in dimensions if c not in seed.partition_keys]
    if len(files) == len(keys):
        statistics = extents_of_files(store, seed, files)
    else:
        statistics = statistics_of_files(store, seed, files, inside)
    rows = pc.fill_null(statistics.rows, -1).to_numpy(zero_copy_only=False)
    apart: Mask = counts <= 1
    for column in inside if len(files) > len(keys) else ():
        apart |= disjoint_groups(groups, statistics.bounds(column, seed.schema.field(column).type))
    is_known = apart & (np.bincount(groups, weights=rows < 0, minlength=len(keys)) == 0)
    totals = np.bincount(groups, weights=rows, minlength=len(keys)).astype(np.int64)
    return [int(n) for n in np.where(is_known, totals, -1)]


def disjoint_groups(groups: IntArray, bounds: Bounds) -> Mask:
    """Whether no two files of a group can have an equal value of a column, for each group.

    A file has the number of its group in ``groups``, and a place in ``bounds``.
    """
    # Nulls are equal, too: the bounds of files with nulls are as unknown as null bounds.
    lower = pc.if_else(pa.array(bounds.has_null), pa.scalar(None, bounds.minimum.type), bounds.minimum)
    keys = pa.table([groups, lower], names=["group", "lower"])
    order = pc.sort_indices(keys, sort_keys=[("group", "ascending"), ("lower", "ascending")])
    numbers, lower, upper = groups[order.to_numpy()], lower.take(order), bounds.maximum.take(order)
    is_less = pc.fill_null(pc.less(upper[:-1], lower[1:]), False).to_numpy(zero_copy_only=False)
    meet = (numbers[:-1] == numbers[1:]) & ~is_less
    result: Mask = ~np.isin(np.arange(groups.max(initial=-1) + 1), numbers[:-1][meet])
    return result
