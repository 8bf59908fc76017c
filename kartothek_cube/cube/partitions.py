"""Steps 1 to 3 of planning, for one dataset: labels, pre-conditions, partition-by values; arrays throughout. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from kartothek_cube.core.evaluate import Mask
from kartothek_cube.core.index import SecondaryIndex
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.predicates import Clause, by_column
from kartothek_cube.core.rowkeys import IntArray, expand_ranges, group_starts, pack_one, take_rows
from kartothek_cube.core.scan import indexed_clauses, labels_by_key, needed_indices
from kartothek_cube.cube.cube import Cube
from kartothek_cube.cube.intention import DatasetRole

__all__ = ["DatasetLabels", "DatasetPartitions", "dataset_partitions", "indices_of_query", "prune_by_values"]


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

    def narrowed(self, parts: IntArray, files: IntArray) -> DatasetPartitions:
        """Some of the partitions, by ascending positions; their files become positions among ``files``, which are sorted and have them all."""
        counts = self.offsets[parts + 1] - self.offsets[parts]
        offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        return replace(self, keys=take_rows(self.keys, parts), offsets=offsets, files=np.searchsorted(files, self.files_of(parts)))


@dataclass(frozen=True, slots=True)
class DatasetLabels:
    """The labels of one dataset that some of the conditions leave. Sets of labels are positions, ascending; None is all.

    Attributes
    ----------
    cells : numpy.ndarray, optional
        Labels that the conditions on dimension and partition columns leave. Such a column is part of a
        cell's address, so that a condition on it drops each file for itself.
    payload : numpy.ndarray, optional
        Labels that the conditions on other columns leave. The newest row of a cell wins and conditions
        apply to it, so that files which may hold the same cells are dropped together only.
    """

    role: DatasetRole
    cube: Cube
    snapshot: Snapshot
    cells: IntArray | None = None
    payload: IntArray | None = None

    @property
    def shared(self) -> tuple[str, ...]:
        """Partition columns of the cube that are partition keys of the dataset."""
        return tuple(c for c in self.snapshot.partition_keys if c in self.cube.partition_columns)

    @property
    def everything(self) -> DatasetPartitions:
        """All partitions, which are sorted only where a label's neighbours matter."""
        return _everything(self.snapshot, self.shared)

    @property
    def alive(self) -> IntArray | None:
        """The labels that are left."""
        if self.payload is None:
            return self.cells
        units = _units(self.snapshot, self.everything)
        passing = np.unique(units[self._common(self.cells, self.payload)])
        return self._common(self.cells, np.sort(self.everything.files_of(passing)))

    @property
    def is_one_file(self) -> bool:
        """Whether one file at most is left, and one partition of the cube."""
        if not set(self.cube.partition_columns).issubset(self.snapshot.partition_keys):
            return False
        alive = self.alive
        return (len(self.snapshot.partitions) if alive is None else len(alive)) <= 1

    def prune_by_indices(self, indices: Mapping[str, SecondaryIndex]) -> DatasetLabels:
        """The labels that secondary indices leave of these."""
        asked = indexed_clauses(self.role.clauses, frozenset(indices) - set(self.snapshot.partition_keys))
        places = {c: self.snapshot.partitions.places(indices[c].select(own).labels) for c, own in asked.items()}
        return self.narrowed({c: np.unique(found[found >= 0]) for c, found in places.items()})

    def narrowed(self, matching: Mapping[str, IntArray]) -> DatasetLabels:
        """The labels that satisfy the conditions on more columns, too, given by column."""
        cells, payload = self.cells, self.payload
        for column, found in matching.items():
            if self._is_address(column):
                cells = self._common(cells, found)
            else:
                payload = self._common(payload, found)
        return replace(self, cells=cells, payload=payload)

    def _is_address(self, column: str) -> bool:
        return column in self.cube.dimension_columns or column in self.cube.partition_columns

    def _common(self, left: IntArray | None, right: IntArray) -> IntArray:
        return right if left is None else left[self._mask(right)[left]]

    def without_value(self, column: str, where: IntArray, alive: IntArray) -> int:
        """How many labels that are alive the index does not know; none with conditions on the column, for which it may have been read in part."""
        return 0 if column in by_column(self.role.clauses) else len(alive) - int(self._mask(where)[alive].sum())

    def _mask(self, labels: IntArray) -> Mask:
        mask = np.zeros(len(self.snapshot.partitions), dtype=bool)  # pages without a label are never touched
        mask[labels] = True
        return mask

    def pairs(self, column: str, pairs: tuple[IntArray, pa.Array], alive: IntArray) -> tuple[IntArray, pa.Array]:
        """Those of the column's pairs whose labels are alive; a value of payload spreads over all files that may hold the same cells."""
        where, values = pairs
        keep = self._mask(alive)[where]
        where, values = where[keep], values.filter(pa.array(keep))
        return (where, values) if self._is_address(column) else self._spread(where, values, alive)

    def indexed_pairs(self, column: str, indices: Mapping[str, SecondaryIndex]) -> tuple[IntArray, pa.Array]:
        """(label, value) pairs of an indexed column, with the values that satisfy the conditions on it."""
        clauses = by_column(self.role.clauses).get(column, [])
        if column in self.snapshot.partition_keys:
            where = self.snapshot.labels_with(column, clauses)
            return where, self.snapshot.values.column(column).take(pa.array(where)).combine_chunks()
        index = indices[column].select(clauses)
        where = self.snapshot.partitions.places(index.labels)
        return where[where >= 0], index.values.filter(pa.array(where >= 0))

    def _spread(self, where: IntArray, values: pa.Array, alive: IntArray) -> tuple[IntArray, pa.Array]:
        """A value that one file of a unit holds concerns all files of the unit: a newer row may override the older one."""
        unit_of = _units(self.snapshot, self.everything)
        keys = pack_one(pa.table({"unit": unit_of[where], "value": values}), ["unit", "value"])
        _, first = np.unique(keys, return_index=True)
        units, values = unit_of[where][first], values.take(pa.array(first))
        order = np.argsort(unit_of[alive], kind="stable")
        members, member_units = alive[order], unit_of[alive][order]
        low = np.searchsorted(member_units, units, side="left")
        repeated, positions = expand_ranges(low, np.searchsorted(member_units, units, side="right") - low)
        return members[positions], values.take(pa.array(repeated))


def prune_by_values(role: DatasetRole, cube: Cube, snapshot: Snapshot) -> DatasetLabels:
    """The labels of a dataset that its partition values leave."""
    return DatasetLabels(role, cube, snapshot).narrowed(labels_by_key(snapshot, role.clauses))


def indices_of_query(labels: DatasetLabels, partition_by: Sequence[str]) -> dict[str, Sequence[Clause]]:
    """Secondary indices that planning reads of a dataset, each with the clauses that limit what is read of it.

    No index is asked which files to drop where the conditions on partition keys leave one file of a single
    partition of the cube: the index takes as long to read as that file.
    """
    grouping = set(partition_by) & labels.snapshot.secondary_columns
    return needed_indices(labels.snapshot, (labels.role.clauses,), grouping, pruning=not labels.is_one_file)


def dataset_partitions(labels: DatasetLabels, partition_by: Sequence[str], indices: Mapping[str, SecondaryIndex]) -> DatasetPartitions:
    """Which partitions of a dataset the conditions leave, cut by the ``partition_by`` values that it has indexed.

    ``labels`` are those that `prune_by_values` has left.
    """
    snapshot, shared = labels.snapshot, labels.shared
    by = [c for c in partition_by if c in snapshot.indexed_columns and c in labels.role.schema.names and c not in shared]
    found = labels.prune_by_indices(indices).alive
    if found is None and not by:
        return _everything(snapshot, shared)
    alive = np.arange(len(snapshot.partitions)) if found is None else found
    files, rows, without_value = alive, take_rows(snapshot.values.select(shared), alive), {}
    for column in by:
        pairs = labels.indexed_pairs(column, indices)
        without_value[column] = labels.without_value(column, pairs[0], alive)
        files, rows = _expand(files, rows, column, *labels.pairs(column, pairs, alive))
    return _compact(files, rows, len(snapshot.partitions), len(alive), without_value)


def _everything(snapshot: Snapshot, shared: tuple[str, ...]) -> DatasetPartitions:
    """All partitions; the snapshot remembers them, so that the next query has nothing to sort."""

    def make() -> DatasetPartitions:
        n = len(snapshot.partitions)
        return _compact(np.arange(n), snapshot.values.select(shared), n, n, {})

    return snapshot.partitions.derived(("everything", shared), snapshot.values, make)


def _units(snapshot: Snapshot, everything: DatasetPartitions) -> IntArray:
    """For each label the number of its partition: later files of one override cells of earlier ones."""

    def make() -> IntArray:
        units = np.empty(len(everything.files), dtype=np.int64)
        units[everything.files] = np.repeat(np.arange(len(everything)), np.diff(everything.offsets))
        return units

    return snapshot.partitions.derived(("units", *everything.keys.column_names), everything, make)


def _expand(files: IntArray, rows: pa.Table, column: str, where: IntArray, values: pa.Array) -> tuple[IntArray, pa.Table]:
    """One row per file and value of a ``partition_by`` column, instead of one per file."""
    order = np.argsort(where, kind="stable")
    where, values = where[order], values.take(pa.array(order))
    first = np.searchsorted(where, files, side="left")
    repeated, positions = expand_ranges(first, np.searchsorted(where, files, side="right") - first)
    picked = values.take(pa.array(positions))
    return files[repeated], take_rows(rows, repeated).append_column(column, pa.chunked_array([picked]))


def _compact(files: IntArray, rows: pa.Table, total: int, matched: int, without_value: Mapping[str, int]) -> DatasetPartitions:
    """Rows with equal keys become one partition with a list of files; partitions are in the order of their keys."""
    keys = pack_one(rows, rows.column_names) if rows.num_columns else np.zeros(len(files), dtype=np.int64)
    order = np.lexsort((files, keys))
    starts = group_starts(keys[order])
    offsets = np.append(starts, len(files)).astype(np.int64)
    return DatasetPartitions(take_rows(rows, order[starts]), offsets, files[order], total, matched, without_value)
