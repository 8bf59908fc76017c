"""Planning a query: its metadata are read, then everything is pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kartothek_cube.core.dataset.plan import load_indices
from kartothek_cube.core.explain import Step
from kartothek_cube.core.index import SecondaryIndex
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.rowkeys import IntArray, group_starts, pack_one, stable_order, take_rows
from kartothek_cube.core.store import Store
from kartothek_cube.cube.align import Aligned, align, sort_into_groups, start
from kartothek_cube.cube.consistency import check_infos, infos_of
from kartothek_cube.cube.discovery import load_cube
from kartothek_cube.cube.groups import GroupContext
from kartothek_cube.cube.intention import Intention, QueryArguments, make_intention
from kartothek_cube.cube.partitions import DatasetLabels, DatasetPartitions, dataset_partitions, indices_of_query, prune_by_values
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

# Numbers fewer by this factor than their range are sorted: a mask of the range would cost more.
_FEW = 64


def make_plan(arguments: QueryArguments, store: Store) -> QueryPlan:
    """The plan of a query. Metadata and the indices that help are read, no data file; errors as of `query_cube`."""
    snapshots = _snapshots(arguments, store)
    intention = make_intention(arguments, infos_of(snapshots))
    labels = {r.id: prune_by_values(r, intention.cube, snapshots[r.id]) for r in intention.roles}
    needed = [(own.snapshot, indices_of_query(own, intention.partition_by)) for own in labels.values()]
    return plan_query(intention, labels, dict(zip(labels, load_indices(store, needed), strict=True)))


def _snapshots(arguments: QueryArguments, store: Store) -> dict[str, Snapshot]:
    cube, datasets = arguments.cube, arguments.datasets
    if not isinstance(datasets, Mapping):
        return load_cube(cube, store, datasets, as_of=arguments.as_of)
    check_not_loaded(arguments.as_of)
    snapshots = {i: metadata.snapshot for i, metadata in given_datasets(datasets).items()}
    check_infos(infos_of(snapshots), cube)
    return snapshots


def _present(numbers: IntArray, n: int) -> IntArray:
    """The distinct numbers below ``n``, ascending."""
    if len(numbers) * _FEW < n:
        return np.unique(numbers)
    mask = np.zeros(n, dtype=bool)
    mask[numbers] = True
    return np.flatnonzero(mask)


def plan_query(intention: Intention, labels: Mapping[str, DatasetLabels], indices: Mapping[str, Mapping[str, SecondaryIndex]]) -> QueryPlan:
    """Plan a query, step by step as kartothek's query system.

    ``labels`` are those that partition values leave of each dataset; ``indices`` has what
    `indices_of_query` asked for.
    """
    roles = intention.roles
    partitions = {i: dataset_partitions(own, intention.partition_by, indices[i]) for i, own in labels.items()}
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
    read = {i: _read(own, labels[i].snapshot, aligned.parts[i]) for i, own in partitions.items()}
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
    positions = np.where(parts < 0, -1, np.searchsorted(used, parts))
    return _Read(positions, own.narrowed(used, files), snapshot.files.take(pa.array(files)), take_rows(snapshot.values, files))


def _last_steps(plan: QueryPlan) -> tuple[Step, ...]:
    files, context = plan.file_counts(), plan.context
    return (
        regrouping_step(plan.intention, len(plan.aligned), len(plan.groups)),
        join_step(plan.intention, files, context.cell_columns),
        order_step((*context.dimension_columns, *context.partition_columns), sum(files.values()), plan.reads()),
    )
