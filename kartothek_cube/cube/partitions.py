"""Steps 1 to 3 of planning, for one dataset: labels, pre-conditions, partition-by values; arrays throughout. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from kartothek_cube.core.evaluate import Mask, matching_values
from kartothek_cube.core.index import SecondaryIndex
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.predicates import Clause
from kartothek_cube.core.rowkeys import IntArray, expand_ranges, group_starts, pack, pack_one, take_rows
from kartothek_cube.core.scan import index_mask, rejects_null
from kartothek_cube.cube.cube import Cube
from kartothek_cube.cube.intention import DatasetRole, Intention

__all__ = ["DatasetPartitions", "clauses_by_column", "dataset_partitions", "needed_indices"]


@dataclass(frozen=True, slots=True)
class DatasetPartitions:
    """The partitions of one dataset that a query may touch.

    Attributes
    ----------
    keys : pyarrow.Table
        One row a partition: values of the cube's partition columns that are keys of the dataset, and of the
        ``partition_by`` columns that it has indexed.
    offsets, files : numpy.ndarray
        Partition *i* consists of the files ``files[offsets[i]:offsets[i + 1]]``, positions among the dataset's labels
        in the order of the document.
    total, matched : int
        Files of the dataset, and those left by the pre-conditions.
    """

    keys: pa.Table
    offsets: IntArray
    files: IntArray
    total: int
    matched: int

    def __len__(self) -> int:
        return len(self.offsets) - 1


def needed_indices(role: DatasetRole, intention: Intention, snapshot: Snapshot) -> dict[str, list[Clause]]:
    """Secondary indices that planning reads of a dataset, each with the conditions that limit what is read of it."""
    clauses = clauses_by_column(role.clauses)
    columns = (set(clauses) | set(intention.partition_by)) & snapshot.secondary_columns
    return {c: clauses.get(c, []) for c in sorted(columns)}


def clauses_by_column(clauses: Sequence[Clause]) -> dict[str, list[Clause]]:
    """Clauses grouped by their column."""
    found: dict[str, list[Clause]] = {}
    for clause in clauses:
        found.setdefault(clause.column, []).append(clause)
    return found


def dataset_partitions(role: DatasetRole, intention: Intention, snapshot: Snapshot, indices: Mapping[str, SecondaryIndex]) -> DatasetPartitions:
    """Which partitions of a dataset are left by the conditions, cut by the ``partition_by`` values that it has indexed."""
    units = _units(snapshot, intention.cube)
    alive = _alive(role, snapshot, indices, intention.cube, units)
    shared = [c for c in snapshot.partition_keys if c in intention.cube.partition_columns]
    files = np.flatnonzero(alive)
    rows = take_rows(snapshot.values.select(shared), files)
    for column in intention.partition_by:
        if column in snapshot.indexed_columns and column in role.schema.names and column not in shared:
            files, rows = _expand(column, role, snapshot, indices, intention.cube, units, alive, files, rows)
    return _compact(files, rows, len(snapshot.partitions), int(alive.sum()))


def _units(snapshot: Snapshot, cube: Cube) -> IntArray:
    """A number for each label: equal where later files override cells of earlier ones, that is within equal values of
    the cube's partition columns."""
    shared = [c for c in snapshot.partition_keys if c in cube.partition_columns]
    if not shared:
        return np.zeros(len(snapshot.partitions), dtype=np.int64)
    return np.unique(pack_one(snapshot.values, shared), return_inverse=True)[1].ravel().astype(np.int64)


def _alive(role: DatasetRole, snapshot: Snapshot, indices: Mapping[str, SecondaryIndex], cube: Cube, units: IntArray) -> Mask:
    """Labels that the pre-conditions leave.

    The newest row of a cell wins and conditions apply to it. So a condition on payload drops files only together with
    all files that may hold the same cells; a condition on a dimension or partition column, which is part of the cell's
    address, drops each file for itself.
    """
    alive = np.ones(len(units), dtype=bool)
    passes = np.ones(len(units), dtype=bool)
    for column, clauses in clauses_by_column(role.clauses).items():
        mask = _mask(column, clauses, snapshot, indices)
        if mask is None:
            continue
        if column in cube.dimension_columns or column in cube.partition_columns:
            alive &= mask
        else:
            passes &= mask
    return alive & _units_with(passes & alive, units)[units] if len(units) else alive


def _units_with(mask: Mask, units: IntArray) -> Mask:
    found: Mask = np.bincount(units[mask], minlength=int(units.max()) + 1) > 0
    return found


def _mask(column: str, clauses: list[Clause], snapshot: Snapshot, indices: Mapping[str, SecondaryIndex]) -> Mask | None:
    if column in snapshot.partition_keys:
        mask = np.ones(len(snapshot.partitions), dtype=bool)
        for clause in clauses:
            mask &= matching_values(snapshot.values.column(column), clause)
        return mask
    if column not in indices or not any(map(rejects_null, clauses)):
        return None  # an index knows no nulls, so it says nothing where a null may match
    return index_mask(indices[column], clauses, snapshot.partitions.labels)


def _expand(
    column: str,
    role: DatasetRole,
    snapshot: Snapshot,
    indices: Mapping[str, SecondaryIndex],
    cube: Cube,
    units: IntArray,
    alive: Mask,
    files: IntArray,
    rows: pa.Table,
) -> tuple[IntArray, pa.Table]:
    """One row per file and value of a ``partition_by`` column, instead of one per file."""
    where, values = _pairs(column, role, snapshot, indices)
    keep = alive[where]
    where, values = where[keep], values.filter(pa.array(keep))
    if column not in cube.dimension_columns:
        where, values = _spread(where, values, units, alive)
    order = np.argsort(where, kind="stable")
    where, values = where[order], values.take(pa.array(order))
    first, last = np.searchsorted(where, files, side="left"), np.searchsorted(where, files, side="right")
    repeated, positions = expand_ranges(first, last - first)
    picked = values.take(pa.array(positions))
    return files[repeated], take_rows(rows, repeated).append_column(column, pa.chunked_array([picked]))


def _pairs(column: str, role: DatasetRole, snapshot: Snapshot, indices: Mapping[str, SecondaryIndex]) -> tuple[IntArray, pa.Array]:
    """(label position, value) pairs that satisfy the conditions on the column."""
    clauses = clauses_by_column(role.clauses).get(column, [])
    if column in snapshot.partition_keys:
        values = snapshot.values.column(column).combine_chunks()
        mask = np.ones(len(values), dtype=bool)
        for clause in clauses:
            mask &= matching_values(values, clause)
        return np.flatnonzero(mask), values.filter(pa.array(mask))
    index = indices[column].select(clauses)
    where = index.positions(snapshot.partitions.labels)
    return where[where >= 0], index.values.filter(pa.array(where >= 0))


def _spread(where: IntArray, values: pa.Array, units: IntArray, alive: Mask) -> tuple[IntArray, pa.Array]:
    """A value that one file of a unit holds concerns all files of the unit: a newer row may override the older one."""
    pairs = pa.table({"unit": units[where], "value": values})
    keys = pack_one(pairs, ["unit", "value"])
    _, first = np.unique(keys, return_index=True)
    pair_units, pair_values = units[where][first], values.take(pa.array(first))
    order = np.argsort(units[alive], kind="stable")
    members, member_units = np.flatnonzero(alive)[order], units[alive][order]
    low, high = np.searchsorted(member_units, pair_units, side="left"), np.searchsorted(member_units, pair_units, side="right")
    repeated, positions = expand_ranges(low, high - low)
    return members[positions], pair_values.take(pa.array(repeated))


def _compact(files: IntArray, rows: pa.Table, total: int, matched: int) -> DatasetPartitions:
    """Rows with equal keys become one partition with a list of files."""
    keys = pack([rows], rows.column_names)[0] if rows.num_columns else np.zeros(len(files), dtype=np.int64)
    order = np.lexsort((files, keys))
    starts = group_starts(keys[order])
    offsets = np.append(starts, len(files)).astype(np.int64)
    return DatasetPartitions(take_rows(rows, order[starts]), offsets, files[order], total, matched)
