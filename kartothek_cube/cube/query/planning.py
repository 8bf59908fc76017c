"""Planning a query: `make_plan` reads metadata and indices, `plan_query` and the rest are pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from kartothek_cube.core.arrow.keys import (
    IntArray,
    group_starts,
    pack_one,
    take_rows,
)
from kartothek_cube.core.display import Step
from kartothek_cube.core.metadata.index import SecondaryIndex
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.metadata.statistics import FileStatistics
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.scan.plan import check_same_types, load_indices, with_past_indices
from kartothek_cube.core.snapshots.statistics import statistics_of_files
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.cube.consistent_read import check_infos, infos_of, state_text
from kartothek_cube.cube.cube import check_not_loaded, given_datasets
from kartothek_cube.cube.members import load_cube, load_states
from kartothek_cube.cube.query.intention import Intention, QueryArguments, make_intention
from kartothek_cube.cube.query.partitions import (
    Aligned,
    DatasetLabels,
    align,
    columns_of_statistics,
    dataset_partitions,
    indices_to_read,
    prune_by_statistics,
    prune_by_values,
    sort_into_groups,
    start,
)
from kartothek_cube.cube.query.plan import (
    GroupContext,
    QueryPlan,
    StatePlan,
    alignment_step,
    changed_pairs,
    changed_step,
    conditions_step,
    join_step,
    labels_step,
    order_step,
    partition_by_step,
    past_members,
    regrouping_step,
    select_groups,
    statistics_steps,
    with_types_of,
)
from kartothek_cube.errors import InvalidInput
from kartothek_cube.typing import CubeState

# With fewer numbers than 1/64 of their range, sorting them is faster than a mask of the range.
_FEW = 64


# --- reading ----------------------------------------------------------------


def make_plan(arguments: QueryArguments, store: Store) -> QueryPlan:
    """Load what planning needs from the store, and plan the query.

    Documents, schemas and the indices that help are read, no data file; errors as of `query_cube`.
    """
    if arguments.changed_since is None:
        return plan_members(arguments, load_members_of(arguments, store), store)
    before, after = plan_states(arguments, arguments.changed_since, store, compared=False)
    return changed_plan(before, after, state_text(arguments.changed_since))


def load_members_of(arguments: QueryArguments, store: Store) -> Mapping[str, Snapshot]:
    """The datasets of a query, checked: loaded from the store, or as the user has passed them."""
    cube, datasets = arguments.cube, arguments.datasets
    if not isinstance(datasets, Mapping):
        return load_cube(cube, store, datasets, as_of=arguments.as_of)
    check_not_loaded(arguments.as_of)
    snapshots = {i: metadata.snapshot for i, metadata in given_datasets(datasets).items()}
    check_infos(infos_of(snapshots), cube)
    return snapshots


def plan_members(arguments: QueryArguments, snapshots: Mapping[str, Snapshot], store: Store) -> QueryPlan:
    """Plan a query of a cube whose datasets are loaded; only indices are read."""
    cube, intention = arguments.cube, make_intention(arguments, infos_of(snapshots))
    # Partition values come first: they are in the documents, and tell which indices to read.
    labels = {r.id: prune_by_values(r, cube, snapshots[r.id]) for r in intention.roles}
    needed = [(snapshots[i], indices_to_read(labels[i], intention.partition_by)) for i in labels]
    indices = dict(zip(labels, load_indices(store, needed), strict=True))
    indexed = {i: labels[i].prune_by_indices(indices[i]) for i in labels}
    seed = indexed[intention.roles[0].id]
    asked = {i: columns_of_statistics(indexed[i], seed, indices[i]) for i in labels}

    def load(i: str) -> FileStatistics:
        return statistics_of_files(store, snapshots[i], snapshots[i].files, asked[i])

    useful = [i for i, columns in asked.items() if columns]
    statistics = dict(zip(useful, map_in_threads(load, useful, store=store), strict=True))
    plan = plan_query(intention, indexed, indices, statistics)
    return replace(plan, commits={i: snapshot.commit for i, snapshot in snapshots.items()})


def plan_states(
    arguments: QueryArguments, since: CubeState, store: Store, *, compared: bool = True
) -> tuple[StatePlan, StatePlan]:
    """Plan a query of the state at ``since``, and the same query of the state ``as_of``.

    What the older state lacks is null there: columns, and whole datasets. If their rows will be
    ``compared``, the types of the results hold the values of both.

    Raises
    ------
    InvalidInput
        As in `load_states`, and if a column had another type then.
    """
    if isinstance(arguments.datasets, Mapping):
        raise InvalidInput(
            "changed_since and since cannot go together with datasets that are loaded already: give their ids."
        )
    names = ("since", "until") if arguments.changed_since is None else ("changed_since", "as_of")
    states = load_states(arguments.cube, store, arguments.datasets, since, arguments.as_of, names)
    return plan_between(arguments, *states, store, compared=compared)


def plan_between(
    arguments: QueryArguments,
    before: Mapping[str, Snapshot],
    now: Mapping[str, Snapshot],
    store: Store,
    *,
    compared: bool = True,
) -> tuple[StatePlan, StatePlan]:
    """Plan a query of two states of `load_states`, as `plan_states`."""
    now = with_types_of(now, before) if compared else now
    plan = plan_members(arguments, now, store)
    intention = plan.intention
    address = {*intention.cube.dimension_columns, *intention.cube.partition_columns, *intention.partition_by}
    used = address.union(intention.conjunction.columns, intention.output_columns if compared else ())
    types = pa.schema({f.name: f for snapshot in now.values() for f in snapshot.schema}.values())
    for snapshot in before.values():
        check_same_types(snapshot.schema, types, sorted(used), snapshot.uuid)
    then = past_members(before, now, arguments.cube)
    then = {i: with_past_indices(store, snapshot, now[i], intention.partition_by) for i, snapshot in then.items()}
    payload = [c for c in intention.output_columns if c not in address]
    try:
        check_infos(infos_of(then), arguments.cube)
        past = plan_members(replace(arguments, payload_columns=payload), then, store)
    except InvalidInput as error:
        raise InvalidInput(f"Cube {arguments.cube.uuid_prefix!r} was another one then: {error}") from error
    files = [{i: snapshot.files for i, snapshot in members.items()} for members in (then, now)]
    return StatePlan(past, files[0]), StatePlan(plan, files[1])


# --- pure -------------------------------------------------------------------


def plan_query(
    intention: Intention,
    indexed: Mapping[str, DatasetLabels],
    indices: Mapping[str, Mapping[str, SecondaryIndex]],
    statistics: Mapping[str, FileStatistics],
) -> QueryPlan:
    """Plan a query in the steps of kartothek's query system, and one for statistics.

    ``indexed`` has the labels that partition values and indices have left, ``indices`` those of
    `indices_to_read`, ``statistics`` a row for each file, for datasets where they help.
    """
    roles = intention.roles
    labels = {i: prune_by_statistics(indexed[i], statistics[i]) if i in statistics else indexed[i] for i in indexed}
    partitions = {i: dataset_partitions(labels[i], intention.partition_by, indices[i]) for i in labels}
    matched = {i: of_dataset.count for i, of_dataset in indexed.items()}
    aligned = start(roles[0].id, partitions[roles[0].id])
    counts = [len(aligned)]
    for role in roles[1:]:
        aligned = align(aligned, role.id, partitions[role.id], inner=role.restricts)
        counts.append(len(aligned))
    steps = [
        labels_step(intention, partitions),
        conditions_step(intention, partitions, matched, indices),
        *statistics_steps(intention, partitions, matched, {i: s.columns for i, s in statistics.items()}),
        partition_by_step(partitions),
        alignment_step(roles, counts),
    ]
    columns = intention.cube.partition_columns
    aligned, offsets = sort_into_groups(aligned, intention.partition_by, columns)
    order, slices = _slices(aligned, columns) if intention.partition_by else (np.arange(len(aligned)), offsets)
    context = GroupContext(
        intention.cube.uuid_prefix,
        roles,
        intention.dimension_columns,
        columns,
        intention.partition_by,
        intention.schema,
    )
    files = {i: labels[i].snapshot.files for i in labels}
    values = {i: labels[i].snapshot.values for i in labels}
    plan = _pruned(QueryPlan(intention, context, aligned, offsets, order, slices, partitions, files, values, ()))
    regrouping = regrouping_step(intention, len(plan.aligned), len(plan.groups))
    return replace(plan, steps=(*steps, regrouping, *last_steps(plan)))


def changed_plan(before: StatePlan, after: StatePlan, since: str) -> QueryPlan:
    """The later plan with only the groups that read a file which came or went since."""
    plan = after.plan
    earlier, later = changed_pairs(before, after)
    groups = np.sort(later[later >= 0])
    some, columns = select_groups(plan, groups), plan.context.partition_columns
    order, slices = np.arange(len(some.aligned)), some.group_offsets
    if plan.context.partition_by:
        order, slices = _slices(some.aligned, columns)
    removed = before.plan.group_keys().take(pa.array(np.sort(earlier[later < 0])))
    changed = _pruned(replace(some, slice_order=order, slice_offsets=slices, removed=removed))
    step = changed_step(since, len(plan.groups), len(groups), removed.num_rows)
    return replace(changed, steps=(*plan.steps[:-2], step, *last_steps(changed)))


def last_steps(plan: QueryPlan) -> tuple[Step, Step]:
    """The steps after the groups are chosen: the join, and the order of the result."""
    files, context = plan.file_counts(), plan.context
    order = (*context.dimension_columns, *context.partition_columns)
    return (
        join_step(plan.intention, files, context.cell_columns),
        order_step(order, sum(files.values()), plan.reads()),
    )


def _slices(aligned: Aligned, columns: Sequence[str]) -> tuple[IntArray, IntArray]:
    """The order of the aligned partitions by the cube's partition columns, and slice offsets."""
    keys = pack_one(aligned.keys, columns)
    order = np.argsort(keys, kind="stable")
    return order, np.append(group_starts(keys[order]), len(aligned)).astype(np.int64)


def _pruned(plan: QueryPlan) -> QueryPlan:
    """The plan with only those partitions and files that its groups read: plans travel to tasks."""
    parts, partitions = dict(plan.aligned.parts), dict(plan.partitions)
    files, values = dict(plan.file_columns), dict(plan.value_columns)
    for i, of_dataset in plan.partitions.items():
        used = _distinct(parts[i][parts[i] >= 0], len(of_dataset))
        whole = len(used) == len(of_dataset)
        positions = _distinct(of_dataset.files if whole else of_dataset.files_of(used), len(files[i]))
        if whole and len(positions) == len(files[i]):
            continue
        parts[i] = np.where(parts[i] < 0, -1, np.searchsorted(used, parts[i]))
        partitions[i] = of_dataset.prune(used, positions)
        files[i], values[i] = files[i].take(pa.array(positions)), take_rows(values[i], positions)
    aligned = Aligned(plan.aligned.keys, parts)
    return replace(plan, aligned=aligned, partitions=partitions, file_columns=files, value_columns=values)


def _distinct(numbers: IntArray, n: int) -> IntArray:
    """The distinct numbers below ``n``, ascending."""
    if len(numbers) * _FEW < n:
        return np.unique(numbers)
    mask = np.zeros(n, dtype=bool)
    mask[numbers] = True
    return np.flatnonzero(mask)
