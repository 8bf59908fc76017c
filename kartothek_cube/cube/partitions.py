"""Steps 1 to 3 of planning, for one dataset: labels, pre-conditions, partition-by values; arrays throughout. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from kartothek_cube.core.evaluate import Mask, matching_all
from kartothek_cube.core.index import SecondaryIndex
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.predicates import Clause, by_column
from kartothek_cube.core.rowkeys import IntArray, expand_ranges, group_starts, pack, pack_one, take_rows
from kartothek_cube.core.scan import index_mask, rejects_null
from kartothek_cube.cube.cube import Cube
from kartothek_cube.cube.intention import DatasetRole, Intention

__all__ = ["DatasetPartitions", "dataset_partitions", "needed_indices"]


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
    without_value : Mapping[str, int]
        Of those, the files in which a ``partition_by`` column has no value at all, by column; none where a condition on
        the column has dropped them anyway.
    """

    keys: pa.Table
    offsets: IntArray
    files: IntArray
    total: int
    matched: int
    without_value: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def files_of(self, parts: IntArray) -> IntArray:
        """Positions of the files of some partitions, one partition after the other."""
        return self.files[expand_ranges(self.offsets[parts], self.offsets[parts + 1] - self.offsets[parts])[1]]

    def renumbered(self, kept: IntArray) -> DatasetPartitions:
        """The same with positions among some kept files; partitions that have others must not be asked for any more."""
        numbers = np.full(self.total, -1, dtype=np.int64)
        numbers[kept] = np.arange(len(kept))
        return replace(self, files=numbers[self.files])


def needed_indices(role: DatasetRole, intention: Intention, snapshot: Snapshot) -> dict[str, list[Clause]]:
    """Secondary indices that planning reads of a dataset, each with the conditions that limit what is read of it."""
    clauses = by_column(role.clauses)
    helpful = {c for c, asked in clauses.items() if any(map(rejects_null, asked))}
    columns = (helpful & snapshot.pruning_columns) | (set(intention.partition_by) & snapshot.secondary_columns)
    return {c: clauses.get(c, []) for c in sorted(columns)}


def dataset_partitions(role: DatasetRole, intention: Intention, snapshot: Snapshot, indices: Mapping[str, SecondaryIndex]) -> DatasetPartitions:
    """Which partitions of a dataset are left by the conditions, cut by the ``partition_by`` values that it has indexed."""
    shared = [c for c in snapshot.partition_keys if c in intention.cube.partition_columns]
    labels = _Labels(role, intention.cube, snapshot, indices, _units(snapshot, shared))
    alive = labels.alive()
    files = np.flatnonzero(alive)
    rows = take_rows(snapshot.values.select(shared), files)
    without_value = {}
    for column in intention.partition_by:
        if column in snapshot.indexed_columns and column in role.schema.names and column not in shared:
            pairs = labels.indexed_pairs(column)
            without_value[column] = labels.without_value(column, pairs[0], alive)
            files, rows = _expand(files, rows, column, *labels.pairs(column, pairs, alive))
    return _compact(files, rows, alive, without_value)


def _units(snapshot: Snapshot, shared: Sequence[str]) -> IntArray:
    """A number for each label: equal where later files override cells of earlier ones.

    That is within equal values of the cube's partition columns.
    """
    if not shared:
        return np.zeros(len(snapshot.partitions), dtype=np.int64)
    return np.unique(pack_one(snapshot.values, shared), return_inverse=True)[1].ravel().astype(np.int64)


@dataclass(frozen=True, slots=True)
class _Labels:
    """The labels of one dataset with what conditions and indices say of them."""

    role: DatasetRole
    cube: Cube
    snapshot: Snapshot
    indices: Mapping[str, SecondaryIndex]
    units: IntArray

    def alive(self) -> Mask:
        """Labels that the pre-conditions leave.

        The newest row of a cell wins and conditions apply to it. So a condition on payload drops files only together
        with all files that may hold the same cells; a condition on a dimension or partition column, which is part of
        the cell's address, drops each file for itself.
        """
        alive, passes = np.ones(len(self.units), dtype=bool), np.ones(len(self.units), dtype=bool)
        for column, clauses in by_column(self.role.clauses).items():
            target = alive if self._is_address(column) else passes
            target &= self._mask(column, clauses)
        return alive & self._units_with(passes & alive)

    def _is_address(self, column: str) -> bool:
        return column in self.cube.dimension_columns or column in self.cube.partition_columns

    def _units_with(self, mask: Mask) -> Mask:
        """Labels of the units that have a label in the mask."""
        if not len(self.units):
            return mask
        found: Mask = np.bincount(self.units[mask], minlength=int(self.units.max()) + 1) > 0
        return found[self.units]

    def _mask(self, column: str, clauses: Sequence[Clause]) -> Mask:
        """Labels in which the clauses on one column may hold."""
        if column in self.snapshot.partition_keys:
            return matching_all(self.snapshot.values.column(column), clauses)
        if column not in self.indices or not any(map(rejects_null, clauses)):
            # An index knows no nulls, so it says nothing where a null may match.
            return np.ones(len(self.units), dtype=bool)
        return index_mask(self.indices[column], clauses, self.snapshot.partitions.labels)

    def without_value(self, column: str, where: IntArray, alive: Mask) -> int:
        """How many labels that are alive the index does not know; none with conditions on the column, for which it may have been read in part."""
        known = np.zeros(len(alive), dtype=bool)
        known[where] = True
        return 0 if column in by_column(self.role.clauses) else int((alive & ~known).sum())

    def pairs(self, column: str, pairs: tuple[IntArray, pa.Array], alive: Mask) -> tuple[IntArray, pa.Array]:
        """Those of the column's pairs whose labels are alive; a value of payload spreads over all files that may hold the same cells."""
        where, values = pairs
        keep = alive[where]
        where, values = where[keep], values.filter(pa.array(keep))
        return (where, values) if self._is_address(column) else self._spread(where, values, alive)

    def indexed_pairs(self, column: str) -> tuple[IntArray, pa.Array]:
        """(label, value) pairs of an indexed column, with the values that satisfy the conditions on it."""
        clauses = by_column(self.role.clauses).get(column, [])
        if column in self.snapshot.partition_keys:
            values = self.snapshot.values.column(column).combine_chunks()
            mask = matching_all(values, clauses)
            return np.flatnonzero(mask), values.filter(pa.array(mask))
        index = self.indices[column].select(clauses)
        where = index.positions(self.snapshot.partitions.labels)
        return where[where >= 0], index.values.filter(pa.array(where >= 0))

    def _spread(self, where: IntArray, values: pa.Array, alive: Mask) -> tuple[IntArray, pa.Array]:
        """A value that one file of a unit holds concerns all files of the unit: a newer row may override the older one."""
        keys = pack_one(pa.table({"unit": self.units[where], "value": values}), ["unit", "value"])
        _, first = np.unique(keys, return_index=True)
        units, values = self.units[where][first], values.take(pa.array(first))
        order = np.argsort(self.units[alive], kind="stable")
        members, member_units = np.flatnonzero(alive)[order], self.units[alive][order]
        low = np.searchsorted(member_units, units, side="left")
        repeated, positions = expand_ranges(low, np.searchsorted(member_units, units, side="right") - low)
        return members[positions], values.take(pa.array(repeated))


def _expand(files: IntArray, rows: pa.Table, column: str, where: IntArray, values: pa.Array) -> tuple[IntArray, pa.Table]:
    """One row per file and value of a ``partition_by`` column, instead of one per file."""
    order = np.argsort(where, kind="stable")
    where, values = where[order], values.take(pa.array(order))
    first = np.searchsorted(where, files, side="left")
    repeated, positions = expand_ranges(first, np.searchsorted(where, files, side="right") - first)
    picked = values.take(pa.array(positions))
    return files[repeated], take_rows(rows, repeated).append_column(column, pa.chunked_array([picked]))


def _compact(files: IntArray, rows: pa.Table, alive: Mask, without_value: Mapping[str, int]) -> DatasetPartitions:
    """Rows with equal keys become one partition with a list of files."""
    keys = pack([rows], rows.column_names)[0] if rows.num_columns else np.zeros(len(files), dtype=np.int64)
    order = np.lexsort((files, keys))
    starts = group_starts(keys[order])
    offsets = np.append(starts, len(files)).astype(np.int64)
    return DatasetPartitions(take_rows(rows, order[starts]), offsets, files[order], len(alive), int(alive.sum()), without_value)
