"""Execution of a plan: one table, a table per group, or a stream of groups with bounded memory."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from itertools import chain
from typing import Any

import pyarrow as pa

from kartothek_cube.core.arrow.grouping import AMPLIFICATION_LIMIT, Spill, split_groups
from kartothek_cube.core.runtime.executor import SizeEstimate, map_batches
from kartothek_cube.core.runtime.options import current_options
from kartothek_cube.core.runtime.progress import Phase
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.cube.execute.batching import BatchLoader, JoinedBatch
from kartothek_cube.cube.execute.join import JoinedRows
from kartothek_cube.cube.execute.partition_loader import PartitionLoader, is_shared, ordered_rows
from kartothek_cube.cube.execute.sort import concat_sorted
from kartothek_cube.cube.query.groups import Group
from kartothek_cube.cube.query.plan import QueryPlan

__all__ = ["grouped_tables", "iter_groups", "load_ahead", "shares_seed_files", "whole_table"]

_PARTITIONS, _GROUPS = Phase("read", "partitions"), Phase("read", "groups")


def whole_table(plan: QueryPlan, store: Store) -> pa.Table:
    """All rows, ordered by dimension columns, then partition columns."""
    batches = _batches(plan, store)
    unshared = [i for i, role in enumerate(plan.context.roles) if not is_shared(plan.context, role)]

    def join(groups: Sequence[Group]) -> list[list[JoinedRows]]:
        # One item per group, as progress counts groups. A batch is the item of its first group.
        return [item for batch in batches.join(groups) for item in (parts_of(batch), *([] for _ in batch.groups[1:]))]

    def parts_of(batch: JoinedBatch) -> list[JoinedRows]:
        return batch.parts if batch.counts is not None else [part.compacted(unshared) for part in batch.parts]

    parts = map_batches(join, plan.slices, batches.limit, store=store, phase=_PARTITIONS)
    return concat_sorted(chain.from_iterable(parts), plan.schema, plan.context.dimension_columns)


def shares_seed_files(plan: QueryPlan) -> bool:
    """Whether the groups share so many files of the seed that each is better read only once."""
    # Files of other datasets do not count: rows that several partitions need stay in memory anyway.
    seed = plan.context.roles[0].id
    return bool(plan.context.partition_by) and plan.reads([seed]) > AMPLIFICATION_LIMIT * plan.file_counts()[seed]


def grouped_tables(plan: QueryPlan, store: Store) -> list[pa.Table]:
    """One table per ``partition_by`` value, without empty ones."""
    return [table for _, table in split_groups(plan.group_keys(), whole_table(plan, store))]


def iter_groups(plan: QueryPlan, store: Store) -> Iterator[tuple[dict[str, Any], pa.Table]]:
    """Key and rows of one group after the other, without empty ones; the next ones load meanwhile.

    Where the groups share files of the seed, these are read once, and their rows wait in temporary
    Arrow files for their group. The options of the call apply to all groups, whenever they load.
    """
    batches, weight = _batches(plan, store), SizeEstimate()

    def load(groups: Sequence[Group]) -> Iterator[tuple[dict[str, Any], pa.Table]]:
        tables = load_ahead(batches, groups)
        return chain([weighed(groups[0], next(tables))], map(weighed, groups[1:], tables))

    def weighed(group: Group, table: pa.Table) -> tuple[dict[str, Any], pa.Table]:
        weight.measured(table.nbytes)
        return dict(group.key), table

    if shares_seed_files(plan):
        loaded = map_batches(load, plan.slices, batches.limit, store=store, weight=weight, phase=_PARTITIONS)
        return _iter_spilled(plan, loaded, current_options().bytes_in_flight)
    limit, phase = ((lambda: 1), _GROUPS) if plan.context.partition_by else (batches.limit, _PARTITIONS)
    loaded = map_batches(load, plan.groups, limit, store=store, weight=weight, phase=phase)
    return ((key, table) for key, table in loaded if table.num_rows)


def load_ahead(batches: BatchLoader, groups: Sequence[Group]) -> Iterator[pa.Table]:
    """One table per group: all loaded now while groups are small, else all but the first lazily."""
    joined = batches.join(groups)
    tables = next(joined).tables()
    while batches.limit() >= len(groups) and (batch := next(joined, None)) is not None:
        tables += batch.tables()
    return chain(tables, chain.from_iterable(map(JoinedBatch.tables, joined)))


def _batches(plan: QueryPlan, store: Store) -> BatchLoader:
    # Requests to a remote store run in parallel: no partition has to wait for another.
    return BatchLoader(PartitionLoader(store), plan.context, single=store.is_remote)


def _iter_spilled(
    plan: QueryPlan, loaded: Generator[tuple[dict[str, Any], pa.Table], None, None], limit: int
) -> Iterator[tuple[dict[str, Any], pa.Table]]:
    keys = plan.group_keys()
    order = (*plan.context.dimension_columns, *plan.context.partition_columns)
    with Spill(plan.schema, limit) as spill, closing(loaded):
        for _, table in loaded:
            for number, rows in split_groups(keys, table):
                spill.add(number, rows)
        for number in spill.numbers():
            yield keys.slice(number, 1).to_pylist()[0], ordered_rows(pa.concat_tables(spill.take(number)), order)
