"""Planning a query: `make_plan` reads metadata and indices, `plan_query` and the rest are pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kartothek_cube.core.arrow.sort_keys import IntArray, group_starts, pack_one, stable_order, take_rows
from kartothek_cube.core.metadata.index import SecondaryIndex
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.scan.plan import load_indices
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.cube.arguments import check_not_loaded, given_datasets
from kartothek_cube.cube.members.consistency import check_infos, infos_of
from kartothek_cube.cube.members.discovery import load_cube
from kartothek_cube.cube.query.align import Aligned, align, sort_into_groups, start
from kartothek_cube.cube.query.explain_steps import (
    alignment_step,
    conditions_step,
    join_step,
    labels_step,
    order_step,
    partition_by_step,
    regrouping_step,
)
from kartothek_cube.cube.query.groups import GroupContext
from kartothek_cube.cube.query.intention import Intention, QueryArguments, make_intention
from kartothek_cube.cube.query.partitions import (
    DatasetLabels,
    DatasetPartitions,
    dataset_partitions,
    indices_to_read,
    prune_by_values,
)
from kartothek_cube.cube.query.plan import QueryPlan

__all__ = ["load_members_of", "make_plan", "plan_members", "plan_query"]

# With fewer numbers than 1/64 of their range, sorting them is faster than a mask of the range.
_FEW = 64


# --- reading ----------------------------------------------------------------


def make_plan(arguments: QueryArguments, store: Store) -> QueryPlan:
    """Load what planning needs from the store, and plan the query.

    Documents, schemas and the indices that help are read, no data file; errors as of `query_cube`.
    """
    return plan_members(arguments, load_members_of(arguments, store), store)


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
    return plan_query(intention, labels, dict(zip(labels, load_indices(store, needed), strict=True)))


# --- pure -------------------------------------------------------------------


def plan_query(
    intention: Intention, labels: Mapping[str, DatasetLabels], indices: Mapping[str, Mapping[str, SecondaryIndex]]
) -> QueryPlan:
    """Plan a query in the steps of kartothek's query system.

    ``labels`` come from `prune_by_values`, ``indices`` has those of `indices_to_read`.
    """
    roles = intention.roles
    partitions = {i: dataset_partitions(labels[i], intention.partition_by, indices[i]) for i in labels}
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
    context = GroupContext(
        intention.cube.uuid_prefix,
        roles,
        intention.dimension_columns,
        columns,
        intention.partition_by,
        intention.schema,
    )
    scans = {i: _scan(partitions[i], labels[i].snapshot, aligned.parts[i]) for i in partitions}
    plan = QueryPlan(
        intention,
        context,
        Aligned(aligned.keys, {i: scan.parts for i, scan in scans.items()}),
        offsets,
        order,
        slices,
        {i: scan.partitions for i, scan in scans.items()},
        {i: scan.files for i, scan in scans.items()},
        {i: scan.values for i, scan in scans.items()},
        (),
    )
    files = plan.file_counts()
    last_steps = (
        regrouping_step(intention, len(plan.aligned), len(plan.groups)),
        join_step(intention, files, context.cell_columns),
        order_step((*context.dimension_columns, *context.partition_columns), sum(files.values()), plan.reads()),
    )
    return replace(plan, steps=(*steps, *last_steps))


def _slices(aligned: Aligned, columns: Sequence[str]) -> tuple[IntArray, IntArray]:
    """The order of the aligned partitions by the cube's partition columns, and slice offsets."""
    keys = pack_one(aligned.keys, columns)
    sorting = stable_order(keys)
    order = np.arange(len(keys)) if sorting is None else sorting
    return order, np.append(group_starts(keys[order]), len(aligned)).astype(np.int64)


class DatasetScan(NamedTuple):
    """The partitions, files and partition values of one dataset that a plan reads.

    ``parts`` has the position in ``partitions`` for each aligned partition. Files and values are in
    the order of the document.
    """

    parts: IntArray
    partitions: DatasetPartitions
    files: pa.Array
    values: pa.Table


def _scan(partitions: DatasetPartitions, snapshot: Snapshot, parts: IntArray) -> DatasetScan:
    # Plans travel to executors: they carry only the partitions and files to read.
    used = _distinct(parts[parts >= 0], len(partitions))
    whole = len(used) == len(partitions)
    files = _distinct(partitions.files if whole else partitions.files_of(used), partitions.total)
    if whole and len(files) == partitions.total:
        return DatasetScan(parts, partitions, snapshot.files, snapshot.values)
    positions = np.where(parts < 0, -1, np.searchsorted(used, parts))
    keys, values = snapshot.files.take(pa.array(files)), take_rows(snapshot.values, files)
    return DatasetScan(positions, partitions.prune(used, files), keys, values)


def _distinct(numbers: IntArray, n: int) -> IntArray:
    """The distinct numbers below ``n``, ascending."""
    if len(numbers) * _FEW < n:
        return np.unique(numbers)
    mask = np.zeros(n, dtype=bool)
    mask[numbers] = True
    return np.flatnonzero(mask)
