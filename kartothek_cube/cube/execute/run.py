"""Execution of a plan: one table, a table per group, or a stream with bounded memory.

In order:

- the order of rows: sorted parts merged, each payload column copied once
- numbers of rows: from statistics, else from footers and cells
- the run; small partitions are joined in batches, which saves their fixed costs
- rows that came, went or changed between two states
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import accumulate, chain, compress, groupby, islice, pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from kartothek_cube.core.arrow.difference import Difference, DifferenceBuffer, changes_schema, row_difference
from kartothek_cube.core.arrow.keys import (
    AMPLIFICATION_LIMIT,
    IntArray,
    Positions,
    Spill,
    pack,
    position_type,
    scratch,
    sorted_table,
    split_groups,
)
from kartothek_cube.core.expressions.predicates import Bounds, Clause, Mask
from kartothek_cube.core.io.reader import FileRequest, TooLarge, file_rows, read_rows
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.runtime.executor import SizeEstimate, map_batches, map_in_threads, thread_count
from kartothek_cube.core.runtime.options import Phase, current_options
from kartothek_cube.core.scan.execute import read_batch
from kartothek_cube.core.scan.plan import FilePlan
from kartothek_cube.core.snapshots.statistics import extents_of_files, statistics_of_files
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.cube.cube import Cube, visible_columns
from kartothek_cube.cube.execute.load import (
    BuildSide,
    JoinedRows,
    PartitionLoader,
    RowSelection,
    TakeIndices,
    clauses_of,
    few_cells,
    is_ordered,
    is_shared,
    join_cells,
    newest_rows,
    rows_at,
    sorted_by_cell,
    take_indices,
)
from kartothek_cube.cube.query.intention import DatasetRole
from kartothek_cube.cube.query.plan import (
    DatasetFiles,
    Group,
    GroupContext,
    GroupPartition,
    QueryPlan,
    StatePlan,
    changed_pairs,
    select_groups,
)

# A table of all possible keys takes less memory than sorting up to this multiple of the keys. Up to
# so many keys a thread would start as long as it fills the table.
_SPARSE, _SHARE_ROWS = 8, 250_000

# --- the rows of several partitions in one order --------------------------------------------------


def concat_sorted(parts: Iterable[JoinedRows], schema: pa.Schema, columns: Sequence[str]) -> pa.Table:
    """The rows of all parts ordered by some columns; equal rows in the order of the parts."""
    filled, keys = [part for part in parts if part.rows], pa.schema([schema.field(c) for c in columns])
    order = merged_order(pack(list(map_in_threads(lambda part: part.table(keys), filled)), columns))
    if isinstance(order, list):
        tables = list(map_in_threads(lambda part: part.table(schema), [filled[i] for i in order]))
        return pa.concat_tables(tables) if tables else schema.empty_table()
    copies = _column_copies([part.with_constants(schema) for part in filled], schema, pa.array(order))
    # The source of a column is freed once the column is copied: nothing else may refer to it.
    del filled, parts
    copies.reverse()
    lazily = (copies.pop() for _ in range(len(copies)))
    return pa.table(list(map_in_threads(lambda copy: copy(), lazily)), schema=schema)


def merged_order(keys: Sequence[IntArray]) -> list[int] | Positions:
    """The order that sorts several arrays: of whole arrays if that is enough, else of all values.

    The order is stable. Values are not negative.
    """
    filled = [i for i, values in enumerate(keys) if len(values)]
    if all(bool((keys[i][1:] >= keys[i][:-1]).all()) for i in filled):
        runs = sorted(filled, key=lambda i: (int(keys[i][0]), i))
        if all(keys[a][-1] < keys[b][0] or (keys[a][-1] == keys[b][0] and a < b) for a, b in pairwise(runs)):
            return runs
    order = _dense_order(keys)
    return np.argsort(np.concatenate(keys), kind="stable") if order is None else order


def _dense_order(keys: Sequence[IntArray]) -> Positions | None:
    """The order of distinct values that are dense enough for a table of all possible values."""
    rows, span = sum(map(len, keys)), 1 + max(int(values.max()) for values in keys if len(values))
    if span > _SPARSE * rows:
        return None
    # One pass to fill the table and one to read it, instead of a sort.
    places: Positions = scratch(span, position_type(rows))
    places.fill(-1)
    ends = np.cumsum([0, *map(len, keys)])

    def fill(numbers: range) -> None:
        for i in numbers:
            places[keys[i]] = np.arange(ends[i], ends[i + 1], dtype=places.dtype)

    shares = np.linspace(0, rows, 1 + max(1, min(thread_count(), rows // _SHARE_ROWS)))
    cuts = np.searchsorted(ends, shares).tolist()
    list(map_in_threads(fill, [range(*cut) for cut in pairwise(cuts)]))
    order = places if span == rows else places[places >= 0]
    return order if len(order) == rows and int(order.min()) >= 0 else None


def _column_copies(
    parts: Sequence[JoinedRows], schema: pa.Schema, order: pa.Array
) -> list[Callable[[], pa.ChunkedArray | pa.Array]]:
    """A function for each column that copies it from all parts in this order."""
    # All parts have the same datasets.
    numbers, owners = range(len(parts[0].parts)), parts[0].owners
    sources = list(map_in_threads(lambda number: _source(parts, number, order), numbers))

    def copy(field: pa.Field) -> Callable[[], pa.ChunkedArray | pa.Array]:
        if field.name not in owners:
            return partial(pa.nulls, len(order), field.type)
        table, indices = sources[owners[field.name]]
        return partial(rows_at, table.column(field.name), indices)

    return [copy(field) for field in schema]


def _source(parts: Sequence[JoinedRows], number: int, order: pa.Array) -> tuple[pa.Table, TakeIndices]:
    """The rows of one dataset of all parts, and their indices in the order of the result."""
    selections = [part.parts[number] for part in parts]
    tables = [selection.table for selection in selections]
    shared = all(table is tables[0] for table in tables)
    table = tables[0] if shared else pa.concat_tables(tables)
    if not shared and all(selection.positions is None for selection in selections):
        return table, TakeIndices(order, None)
    width = position_type(len(table))

    def positions_in_table(selection: RowSelection, begin: int) -> Positions:
        if selection.positions is None:
            return np.arange(begin, begin + len(selection.table), dtype=width)
        positions = selection.positions.astype(width, copy=False)
        return np.where(positions < 0, positions, positions + width(begin)) if begin else positions

    begins = [0] * len(tables) if shared else np.cumsum([0, *map(len, tables)]).tolist()[:-1]
    positions = np.concatenate(list(map(positions_in_table, selections, begins)))
    return table, take_indices(pc.take(pa.array(positions), order, boundscheck=False).to_numpy())


_PARTITIONS_TO_COUNT = Phase("read", "partitions")


# --- numbers of rows ------------------------------------------------------------------------------


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

        return sum(map_in_threads(join, plan.slices, store=store, phase=_PARTITIONS_TO_COUNT))

    keys = [[key for part in group.partitions for key in part.files[seed.id].keys] for group in plan.slices]
    known = _known_rows(members[seed.id], store, keys, seed.dimensions)

    def count(group: Group) -> int:
        # A cell occurs once in a file, but maybe in several files of a partition.
        (part,) = group.partitions
        (first, *more) = part.files[seed.id].keys
        return loader.join_partition(context, part).rows if more else file_rows(store, first, members[seed.id].uuid)

    unknown = list(compress(plan.slices, (rows < 0 for rows in known)))
    return sum(rows for rows in known if rows >= 0) + sum(
        map_in_threads(count, unknown, store=store, phase=_PARTITIONS_TO_COUNT)
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


# --- the run --------------------------------------------------------------------------------------


_PARTITIONS, _GROUPS = Phase("read", "partitions"), Phase("read", "groups")
# Memory and number of the partitions of a batch.
_BYTES, _LIMIT = 4 * 2**20, 64
# If their rows are filtered, a batch may take long: so there are that many for each thread.
_FILTERED_LIMIT, _BATCHES = 32, 2
# So few partitions are joined before it pays to look at one of them.
_FEW = 4
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

    # Where so little of each partition is decoded, Python takes longer: threads would wait for it.
    alone = batches.limit() >= _LIMIT
    parts = map_batches(join, plan.slices, batches.limit, store=store, phase=_PARTITIONS, at_once=True, is_alone=alone)
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
        loaded = map_batches(
            load, plan.slices, batches.limit, store=store, weight=weight, phase=_PARTITIONS, at_once=True
        )
        return _iter_spilled(plan, loaded, current_options().bytes_in_flight)
    limit, phase = ((lambda: 1), _GROUPS) if plan.context.partition_by else (batches.limit, _PARTITIONS)
    loaded = map_batches(load, plan.groups, limit, store=store, weight=weight, phase=phase, at_once=True)
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
    slices = plan.slices
    sample = slices[0].partitions[0] if len(slices) > _FEW else None
    loader = PartitionLoader(store)
    return BatchLoader(loader, plan.context, single=store.is_remote, partitions=len(slices), sample=sample)


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
            yield keys.slice(number, 1).to_pylist()[0], sorted_table(pa.concat_tables(tables), order)


# --- batches --------------------------------------------------------------------------------------


class JoinedBatch(Struct, frozen=True):
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
    ``partitions`` of the plan they are, too, where they are filtered, unless the ``sample``, which
    is one of them, shows that few rows are decoded.
    """

    def __init__(
        self,
        loader: PartitionLoader,
        context: GroupContext,
        *,
        single: bool,
        partitions: int = 0,
        sample: GroupPartition | None = None,
    ) -> None:
        # Where a filter drops rows, the size of a result does not tell how much was read.
        filtered = any(
            role.restricts or any(c.column not in context.partition_columns for c in role.clauses)
            for role in context.roles
        )
        few = min(_FILTERED_LIMIT, partitions // (_BATCHES * current_options().thread_count))
        self._most = few if filtered else _LIMIT
        suits = is_ordered(context) and bool(context.partition_columns) and not (filtered and _reads_others(context))
        self._loader, self._context, self._single = loader, context, single or not suits
        self._sample = sample if filtered and not self._single else None
        self._at_once = 0
        self._largest: int | None = None
        self._room = min(_BYTES, current_options().bytes_in_flight // _LIMIT)

    def limit(self) -> int:
        """The number of groups to take at a time, estimated from the largest one so far."""
        if self._sample is not None:
            self._at_once, self._sample = self._loader.parts_at_once(self._context, self._sample), None
        if self._at_once:
            return max(self._most, min(_LIMIT, self._at_once))
        if self._single or self._most < 2 or self._largest is None:
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
    if roles and clauses[seed_role.id] and loader.has_large_file(context, seed_role, parts[0]):
        runtime_filter += few_cells(seed, seed_role.dimensions, len(parts))
    others = map(read_other, roles)  # those that restrict come first
    joined = join_cells(seed, (number, *cells), islice(others, len(restricting)), others, {})
    if not joined.rows:
        return joined, np.zeros(len(parts), dtype=np.int64)
    numbers, rows = seed.column(number), joined.parts[0].positions  # both ascend
    ends = np.searchsorted(numbers.to_numpy(), np.arange(len(parts) + 1))
    counts = np.diff(ends if rows is None else np.searchsorted(rows, ends))
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


# --- rows that came -------------------------------------------------------------------------------


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
            store, request = self._store, self._request
            found = map_in_threads(lambda t: read_rows(store, t.key, request, t.constants), tasks.values(), store=store)
            tables = list(found)
        rows = dict(zip(tasks, tables, strict=True))
        then, now = (pa.concat_tables([self._nothing, *(rows[task.key] for task in side)]) for side in (old, new))
        return then, now


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
