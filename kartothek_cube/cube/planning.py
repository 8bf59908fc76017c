"""Planning a query: its metadata are read, then everything is pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kartothek_cube.core.explain import Step
from kartothek_cube.core.index import SecondaryIndex
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.parallel import run
from kartothek_cube.core.rowkeys import IntArray, group_starts, pack_one, stable_order, take_rows
from kartothek_cube.core.snapshots import load_index, remember
from kartothek_cube.core.store import Store
from kartothek_cube.cube.align import Aligned, align, sort_into_groups, start
from kartothek_cube.cube.consistency import check_infos, infos_of
from kartothek_cube.cube.discovery import load_cube
from kartothek_cube.cube.groups import GroupContext
from kartothek_cube.cube.intention import Intention, QueryArguments, make_intention
from kartothek_cube.cube.partitions import DatasetPartitions, dataset_partitions, needed_indices
from kartothek_cube.cube.plan import QueryPlan
from kartothek_cube.cube.selection import check_not_loaded, given_datasets
from kartothek_cube.cube.steps import (
    alignment_step,
    conditions_step,
    join_step,
    labels_step,
    order_step,
    partition_by_step,
    regrouping_step,
)

__all__ = ["make_plan", "plan_query"]

# A larger index (of value-label pairs) is not kept in memory between queries.
_KEPT_PAIRS = 1_000_000
# So many times fewer numbers are sorted instead of looked for among all.
_FEW = 64


def make_plan(arguments: QueryArguments, store: Store) -> QueryPlan:
    """The plan of a query. Metadata and the indices that help are read, no data file; errors as of `query_cube`."""
    snapshots = _snapshots(arguments, store)
    intention = make_intention(arguments, infos_of(snapshots))
    return plan_query(intention, snapshots, _indices(intention, snapshots, store))


def _snapshots(arguments: QueryArguments, store: Store) -> dict[str, Snapshot]:
    cube, datasets = arguments.cube, arguments.datasets
    if not isinstance(datasets, Mapping):
        return load_cube(cube, store, datasets, as_of=arguments.as_of)
    check_not_loaded(arguments.as_of)
    snapshots = {i: metadata.snapshot for i, metadata in given_datasets(datasets).items()}
    check_infos(infos_of(snapshots), cube)
    return snapshots


def _indices(intention: Intention, snapshots: Mapping[str, Snapshot], store: Store) -> dict[str, dict[str, SecondaryIndex]]:
    """The secondary indices that planning needs, read side by side, each only where its values may match."""
    wanted = [(r.id, c, clauses) for r in intention.roles for c, clauses in needed_indices(r, intention, snapshots[r.id]).items()]
    loaded = list(run(lambda w: load_index(store, snapshots[w[0]], w[1], w[2]), wanted, at=store))
    indices: dict[str, dict[str, SecondaryIndex]] = {r.id: {} for r in intention.roles}
    whole: dict[str, dict[str, SecondaryIndex]] = {r.id: {} for r in intention.roles}
    for (dataset, column, _), (index, is_whole) in zip(wanted, loaded, strict=True):
        indices[dataset][column] = index
        if is_whole and len(index) <= _KEPT_PAIRS:
            whole[dataset][column] = index
    _keep(store, snapshots, whole)
    return indices


def _keep(store: Store, snapshots: Mapping[str, Snapshot], whole: Mapping[str, Mapping[str, SecondaryIndex]]) -> None:
    """Indices that were read whole stay with the cached snapshot, so that the next query does not read them again."""
    for dataset, indices in whole.items():
        if set(indices) - set(snapshots[dataset].indices):
            remember(store, snapshots[dataset].with_indices(indices))


def _present(numbers: IntArray, n: int) -> IntArray:
    """The distinct numbers below ``n``, ascending."""
    if len(numbers) * _FEW < n:
        return np.unique(numbers)
    mask = np.zeros(n, dtype=bool)
    mask[numbers] = True
    return np.flatnonzero(mask)


def plan_query(intention: Intention, snapshots: Mapping[str, Snapshot], indices: Mapping[str, Mapping[str, SecondaryIndex]]) -> QueryPlan:
    """Plan a query, step by step as kartothek's query system. ``indices`` has what `needed_indices` asked for, by dataset."""
    roles = intention.roles
    partitions = {r.id: dataset_partitions(r, intention, snapshots[r.id], indices.get(r.id, {})) for r in roles}
    aligned = start(roles[0].id, partitions[roles[0].id])
    counts = [len(aligned)]
    for role in roles[1:]:
        aligned = align(aligned, role.id, partitions[role.id], inner=role.restricts)
        counts.append(len(aligned))
    steps = [
        labels_step(intention, partitions),
        conditions_step(intention, partitions, indices),
        partition_by_step(partitions),
        alignment_step(roles, counts),
    ]
    columns = intention.cube.partition_columns
    aligned, offsets = sort_into_groups(aligned, intention.partition_by, columns)
    order, slices = _slices(aligned, columns) if intention.partition_by else (np.arange(len(aligned)), offsets)
    context = GroupContext(intention.cube.uuid_prefix, roles, intention.dimension_columns, columns, intention.partition_by, intention.schema)
    read = {i: _read(own, snapshots[i], aligned.parts[i]) for i, own in partitions.items()}
    plan = QueryPlan(
        intention,
        context,
        Aligned(aligned.keys, {i: r.parts for i, r in read.items()}),
        offsets,
        order,
        slices,
        {i: r.partitions for i, r in read.items()},
        {i: r.files for i, r in read.items()},
        {i: r.values for i, r in read.items()},
        (),
    )
    return replace(plan, steps=(*steps, *_last_steps(plan)))


def _slices(aligned: Aligned, columns: Sequence[str]) -> tuple[IntArray, IntArray]:
    """The aligned partitions in the order of the cube's partition columns, and where each combination of them begins."""
    keys = pack_one(aligned.keys, columns)
    sorting = stable_order(keys)
    order = np.arange(len(keys)) if sorting is None else sorting
    return order, np.append(group_starts(keys[order]), len(aligned)).astype(np.int64)


class _Read(NamedTuple):
    """What a plan reads of a dataset: for each aligned partition which of ``partitions`` stands there; their files and values in the order of the document."""

    parts: IntArray
    partitions: DatasetPartitions
    files: pa.Array
    values: pa.Table


def _read(own: DatasetPartitions, snapshot: Snapshot, parts: IntArray) -> _Read:
    """A plan travels: it carries the partitions and files that it reads, not those of the whole dataset."""
    used = _present(parts[parts >= 0], len(own))
    whole = len(used) == len(own)
    files = _present(own.files if whole else own.files_of(used), own.total)
    if whole and len(files) == own.total:
        return _Read(parts, own, snapshot.files, snapshot.values)
    narrowed = own.narrowed(used, files)
    return _Read(_renumbered(parts, used), narrowed, snapshot.files.take(pa.array(files)), take_rows(snapshot.values, files))


def _renumbered(parts: IntArray, used: IntArray) -> IntArray:
    """The same partitions by their positions among those that are used."""
    return np.where(parts < 0, -1, np.searchsorted(used, parts))


def _last_steps(plan: QueryPlan) -> tuple[Step, ...]:
    files, context = plan.file_counts(), plan.context
    return (
        regrouping_step(plan.intention, len(plan.aligned), len(plan.groups)),
        join_step(plan.intention, files, context.cell_columns),
        order_step((*context.dimension_columns, *context.partition_columns), sum(files.values()), plan.reads()),
    )
