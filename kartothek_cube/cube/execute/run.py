"""Execution of a plan: one table, a table per group, or a stream of groups with bounded memory.

Small partitions are read and joined in batches: the fixed cost of each is higher than that of its
rows.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, groupby, islice, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.arrow.keys import AMPLIFICATION_LIMIT, IntArray, Spill, split_groups
from kartothek_cube.core.expressions.predicates import Clause
from kartothek_cube.core.io.reader import TooLarge
from kartothek_cube.core.runtime.executor import SizeEstimate, map_batches
from kartothek_cube.core.runtime.options import Phase, current_options
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.cube.execute.join import BuildSide, JoinedRows, RowSelection, join_cells, newest_rows
from kartothek_cube.cube.execute.partition_loader import (
    PartitionLoader,
    clauses_of,
    is_ordered,
    is_shared,
    ordered_rows,
    sorted_by_cell,
)
from kartothek_cube.cube.execute.row_order import concat_sorted
from kartothek_cube.cube.query.groups import DatasetFiles, Group, GroupContext, GroupPartition
from kartothek_cube.cube.query.intention import DatasetRole
from kartothek_cube.cube.query.plan import QueryPlan

__all__ = [
    "BatchLoader",
    "JoinedBatch",
    "grouped_tables",
    "iter_groups",
    "load_ahead",
    "shares_seed_files",
    "whole_table",
]

_PARTITIONS, _GROUPS = Phase("read", "partitions"), Phase("read", "groups")
# Memory and number of the partitions of a batch.
_BYTES, _LIMIT = 4 * 2**20, 64
# If their rows are filtered, a batch may take long: so there are that many for each thread.
_FILTERED_LIMIT, _BATCHES = 32, 2
# When the rows of one dataset take this multiple of the memory, its groups are joined singly.
_SPARE = 4
_NO_FILES = DatasetFiles((), ())


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
    """Key and rows of one group after the other; the next ones load meanwhile.

    Groups without rows are left out, except from a plan of changed groups.

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
    # A changed group without rows is a result: the caller has to forget what it had.
    return ((key, table) for key, table in loaded if table.num_rows or plan.removed is not None)


def load_ahead(batches: BatchLoader, groups: Sequence[Group]) -> Iterator[pa.Table]:
    """One table per group: all loaded now while groups are small, else all but the first lazily."""
    joined = batches.join(groups)
    tables = next(joined).tables()
    while batches.limit() >= len(groups) and (batch := next(joined, None)) is not None:
        tables += batch.tables()
    return chain(tables, chain.from_iterable(map(JoinedBatch.tables, joined)))


def _batches(plan: QueryPlan, store: Store) -> BatchLoader:
    # Requests to a remote store run in parallel: no partition has to wait for another.
    return BatchLoader(PartitionLoader(store), plan.context, single=store.is_remote, partitions=len(plan.slices))


def _iter_spilled(
    plan: QueryPlan, loaded: Generator[tuple[dict[str, Any], pa.Table], None, None], limit: int
) -> Iterator[tuple[dict[str, Any], pa.Table]]:
    keys = plan.group_keys()
    order = (*plan.context.dimension_columns, *plan.context.partition_columns)
    # A caller may stop early: closing ends the loads that are under way.
    with Spill(plan.schema, limit) as spill, closing(loaded):
        for _, table in loaded:
            for number, rows in split_groups(keys, table):
                spill.add(number, rows)
        for number in spill.numbers() if plan.removed is None else range(keys.num_rows):
            tables = spill.take(number) or [plan.schema.empty_table()]
            yield keys.slice(number, 1).to_pylist()[0], ordered_rows(pa.concat_tables(tables), order)


# --- batches --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JoinedBatch:
    """Neighbouring groups with their joined rows.

    With ``counts``, the number of rows of each group, all groups are joined in one item of
    ``parts``. Without, there is one group.
    """

    groups: Sequence[Group]
    parts: list[JoinedRows]
    counts: IntArray | None = None

    def tables(self) -> list[pa.Table]:
        """One table a group."""
        context = self.groups[0].context
        tables = [part.table(context.schema) for part in self.parts]
        if self.counts is None:
            return [sorted_by_cell(context, tables)]
        ends = np.cumsum(self.counts).tolist()
        return [tables[0].slice(begin, end - begin) for begin, end in pairwise([0, *ends])]


class BatchLoader:
    """Decides how many groups a loader joins at a time, and joins them. Safe for threads.

    Groups are joined one by one if ``single``, or where they are large. Without the number of
    ``partitions`` of the plan they are, too, where they are filtered.
    """

    def __init__(self, loader: PartitionLoader, context: GroupContext, *, single: bool, partitions: int = 0) -> None:
        # Where a filter drops rows, the size of a result does not tell how much was read.
        filtered = any(
            role.restricts or any(c.column not in context.partition_columns for c in role.clauses)
            for role in context.roles
        )
        few = min(_FILTERED_LIMIT, partitions // (_BATCHES * current_options().thread_count))
        self._most = few if filtered else _LIMIT
        suits = is_ordered(context) and bool(context.partition_columns) and not (filtered and _reads_others(context))
        self._loader, self._single = loader, single or self._most < 2 or not suits
        self._largest: int | None = None
        self._room = min(_BYTES, current_options().bytes_in_flight // _LIMIT)

    def limit(self) -> int:
        """The number of groups to take at a time, estimated from the largest one so far."""
        if self._single or self._largest is None:
            return 1
        return min(self._most, max(1, self._room // max(1, self._largest)))

    def join(self, groups: Sequence[Group]) -> Iterator[JoinedBatch]:
        """Join neighbouring groups lazily, in as few batches as possible."""
        context = groups[0].context
        shared = [role.id for role in context.roles if is_shared(context, role)]

        def shared_files(group: Group) -> list[tuple[str, ...]]:
            return [part.files.get(i, _NO_FILES).keys for part in group.partitions for i in shared]

        # A batch reads the files of shared datasets once: all of its groups have to need the same.
        is_split = shared and len(groups) > 1
        runs = [list(run) for _, run in groupby(groups, shared_files)] if is_split else [list(groups)]
        for run in runs:
            batch = self._join_run(run)
            if batch is not None:
                yield batch
            else:
                yield from map(self._join_single, run)

    def _join_run(self, groups: Sequence[Group]) -> JoinedBatch | None:
        """All groups in one batch; None if they cannot be joined together."""
        if self._single or len(groups) == 1 or any(len(group.partitions) != 1 for group in groups):
            return None
        parts = [group.partitions[0] for group in groups]
        if _needs_newest_first(groups[0].context, parts):
            return None
        try:
            joined, counts = _join_parts(self._loader, groups[0].context, parts, _SPARE * self._room)
        except TooLarge:  # unlike the groups before
            return None
        return JoinedBatch(groups, [joined], counts)

    def _join_single(self, group: Group) -> JoinedBatch:
        roles, parts = group.context.roles, self._loader.join(group)
        sizes = (
            selection.table.nbytes
            for joined in parts
            for role, selection in zip(roles, joined.parts, strict=False)
            if not is_shared(group.context, role)
        )
        self._largest = max(self._largest or 0, sum(sizes))
        return JoinedBatch([group], parts)


def _reads_others(context: GroupContext) -> bool:
    """Whether a dataset with a part for each partition tells which rows of the seed are of use."""
    return any(role.restricts and role.clauses and not is_shared(context, role) for role in context.roles)


def _needs_newest_first(context: GroupContext, parts: Sequence[GroupPartition]) -> bool:
    """Whether a condition on payload holds for several files of a partition."""
    late = [
        role.id
        for role in context.roles
        if not is_shared(context, role) and any(c.column not in role.dimensions for c in clauses_of(role, parts[0], {}))
    ]
    return any(len(part.files.get(i, _NO_FILES).keys) > 1 for part in parts for i in late)


def _join_parts(
    loader: PartitionLoader, context: GroupContext, parts: Sequence[GroupPartition], room: int
) -> tuple[JoinedRows, IntArray]:
    """The rows of several partitions, and the number of rows of each."""
    # The number of the partition is one more key column. It takes the name of a partition column:
    # these are not read from files, so the name is free.
    number, cells = context.partition_columns[0], context.cell_columns
    seed_role, *roles = context.roles
    clauses = {role.id: clauses_of(role, parts[0], {}) for role in context.roles}
    found, runtime_filter = dict[str, BuildSide](), tuple[Clause, ...]()

    def read(role: DatasetRole) -> pa.Table:
        files = [part.files.get(role.id, _NO_FILES) for part in parts]
        table, counts = loader.read_batch(context, role, files, room, clauses[role.id], runtime_filter)
        return table.append_column(number, pa.array(np.repeat(np.arange(len(parts)), counts)))

    def read_other(role: DatasetRole) -> BuildSide:
        if role.id in found:
            return found[role.id]
        if not is_shared(context, role):
            return BuildSide(read(role), (number, *role.dimensions))
        return loader.read_build_side(context, role, parts[0].files.get(role.id), clauses[role.id], shared=True)

    restricting = [role for role in roles if role.restricts]
    for role in restricting:
        if clauses[role.id]:
            found[role.id] = read_other(role)
            runtime_filter += found[role.id].runtime_filter
    seed = newest_rows(read(seed_role), (number, *seed_role.dimensions))
    seed = newest_rows(seed, (number, *cells)) if set(seed_role.dimensions) - set(cells) else seed
    others = map(read_other, roles)  # those that restrict come first
    joined = join_cells(seed, (number, *cells), islice(others, len(restricting)), others, {})
    if not joined.rows:
        return joined, np.zeros(len(parts), dtype=np.int64)
    numbers, rows = seed.column(number), joined.parts[0].positions
    counts = np.bincount(numbers.to_numpy() if rows is None else numbers.to_numpy()[rows], minlength=len(parts))
    return _with_partition_values(joined, context, parts, numbers), counts


def _with_partition_values(
    joined: JoinedRows, context: GroupContext, parts: Sequence[GroupPartition], numbers: pa.ChunkedArray
) -> JoinedRows:
    """The same rows with the values of the partition columns instead of the partition's number."""
    number = context.partition_columns[0]
    tables = [p.table.drop_columns(number) if number in p.table.column_names else p.table for p in joined.parts]
    # In the order of the schema, as in groups that are joined singly: the tables are concatenated.
    columns = [c for c in context.schema.names if c in context.partition_columns]
    for column in columns:
        field = context.schema.field(column)
        values = pc.take(pa.array([part.values[column] for part in parts], field.type), numbers, boundscheck=False)
        tables[0] = tables[0].append_column(field, values)
    selections = tuple(RowSelection(table, part.positions) for table, part in zip(tables, joined.parts, strict=True))
    return JoinedRows(joined.rows, selections, {**joined.owners, **dict.fromkeys(columns, 0)})
