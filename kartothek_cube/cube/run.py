"""Executing a plan: whole, in groups, or as a stream of groups with bounded memory."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa

from kartothek_cube.core.options import current_options
from kartothek_cube.core.parallel import Weight, run
from kartothek_cube.core.regroup import AMPLIFICATION_LIMIT, Spill, split_groups
from kartothek_cube.core.store import Store
from kartothek_cube.cube.load import Loader, ordered_rows
from kartothek_cube.cube.plan import Group, QueryPlan

__all__ = ["grouped_tables", "iter_groups", "shares_seed_files", "slice_tables", "whole_table"]


def slice_tables(plan: QueryPlan, store: Store) -> Iterator[pa.Table]:
    """The rows of the query, one table an aligned partition, in partition order. Every seed file is read once."""
    loader = Loader(store)
    yield from run(loader.load, plan.slices)


def whole_table(plan: QueryPlan, store: Store) -> pa.Table:
    """All rows, ordered by dimension columns, then partition columns."""
    tables = [t for t in slice_tables(plan, store) if t.num_rows]
    table = pa.concat_tables(tables) if tables else plan.schema.empty_table()
    return ordered_rows(table, (*plan.context.dimension_columns, *plan.context.partition_columns))


def shares_seed_files(plan: QueryPlan) -> bool:
    """Whether the groups share files of the seed so much that each is better read once and its rows split by group.

    Files of other datasets do not count: what several partitions need of them stays in memory anyway.
    """
    seed = plan.context.roles[0].id
    return bool(plan.context.partition_by) and plan.reads([seed]) > AMPLIFICATION_LIMIT * plan.file_counts()[seed]


def grouped_tables(plan: QueryPlan, store: Store) -> list[pa.Table]:
    """One table per ``partition_by`` value, empty ones left out."""
    return [table for _, table in split_groups(plan.group_keys(), whole_table(plan, store))]


def iter_groups(plan: QueryPlan, store: Store) -> Iterator[tuple[dict[str, Any], pa.Table]]:
    """Key and rows of one group after the other, empty ones left out; the next ones are loaded meanwhile.

    Where the groups share files of the seed, these are read once and their rows wait in temporary Arrow files for their
    group. The options that hold for the call hold for all groups, also for those that are asked for after its block.
    """
    loader, weight = Loader(store), Weight()

    def load(group: Group) -> pa.Table:
        table = loader.load(group)
        weight.measured(table.nbytes)
        return table

    if shares_seed_files(plan):
        return _iter_spilled(plan, run(load, plan.slices, weight=weight), current_options().bytes_in_flight)
    loaded = run(lambda group: (dict(group.key), load(group)), plan.groups, weight=weight)
    return ((key, table) for key, table in loaded if table.num_rows)


def _iter_spilled(plan: QueryPlan, loaded: Generator[pa.Table, None, None], limit: int) -> Iterator[tuple[dict[str, Any], pa.Table]]:
    keys = plan.group_keys()
    order = (*plan.context.dimension_columns, *plan.context.partition_columns)
    with Spill(plan.schema, limit) as spill, closing(loaded):
        for table in loaded:
            for number, rows in split_groups(keys, table):
                spill.add(number, rows)
        for number in spill.numbers():
            yield keys.slice(number, 1).to_pylist()[0], ordered_rows(pa.concat_tables(spill.take(number)), order)
