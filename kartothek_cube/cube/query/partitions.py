"""Steps 1 to 3 of planning, for one dataset: labels, pre-conditions, partition-by values. Pure.

Arrays throughout: a plan has as many labels as the dataset has files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from kartothek_cube.core.arrow.keys import IntArray, expand_ranges, group_starts, pack_one, take_rows
from kartothek_cube.core.expressions.predicates import Clause, Mask, by_column
from kartothek_cube.core.metadata.index import SecondaryIndex
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.metadata.statistics import FileStatistics
from kartothek_cube.core.scan.plan import indexed_clauses, labels_by_key, needed_indices
from kartothek_cube.cube.cube import Cube
from kartothek_cube.cube.query.intention import DatasetRole

__all__ = [
    "DatasetLabels",
    "DatasetPartitions",
    "columns_of_statistics",
    "dataset_partitions",
    "indices_to_read",
    "prune_by_statistics",
    "prune_by_values",
]


@dataclass(frozen=True, slots=True)
class DatasetPartitions:
    """The partitions of one dataset that a query may touch.

    Attributes
    ----------
    keys : pyarrow.Table
        One row a partition: values of the cube's partition columns that are keys of the dataset,
        and of the ``partition_by`` columns that it has indexed.
    offsets, files : numpy.ndarray
        Partition *i* consists of the files ``files[offsets[i]:offsets[i + 1]]``, positions among
        the dataset's labels in the order of the document.
    total, matched : int
        Number of files of the dataset, and of those that satisfy the pre-conditions.
    without_value : Mapping[str, int]
        Number of matched files without any value in a ``partition_by`` column, by column; 0 where
        a condition on the column has dropped them anyway.
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

    def prune(self, parts: IntArray, files: IntArray) -> DatasetPartitions:
        """The partitions at ascending positions.

        Their files become positions in ``files``, which are sorted and contain all of them.
        """
        counts = self.offsets[parts + 1] - self.offsets[parts]
        offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        positions = np.searchsorted(files, self.files_of(parts))
        return replace(self, keys=take_rows(self.keys, parts), offsets=offsets, files=positions)


@dataclass(frozen=True, slots=True)
class DatasetLabels:
    """The labels of one dataset that satisfy the conditions applied so far.

    Sets of labels are ascending positions; None stands for all labels.

    Attributes
    ----------
    cells : numpy.ndarray, optional
        Labels that satisfy the conditions on dimension and partition columns. Such a column is part
        of the address of a cell, so a condition on it drops each file on its own.
    payload : numpy.ndarray, optional
        Labels that satisfy the conditions on other columns. Conditions apply to the newest row of a
        cell, so files that may hold the same cells are dropped together or not at all.
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
        """All partitions of the dataset. Only conditions on payload need them: they are sorted."""
        return _everything(self.snapshot, self.shared)

    @property
    def alive(self) -> IntArray | None:
        """The labels that satisfy all conditions."""
        if self.payload is None:
            return self.cells
        units = _units(self.snapshot, self.everything)
        passing = np.unique(units[self._common(self.cells, self.payload)])
        return self._common(self.cells, np.sort(self.everything.files_of(passing)))

    @property
    def is_one_file(self) -> bool:
        """Whether at most one file is left, and so one partition of the cube."""
        return self.has_partition_columns and self.count <= 1

    @property
    def has_partition_columns(self) -> bool:
        """Whether each file belongs to one partition of the cube."""
        return set(self.cube.partition_columns).issubset(self.snapshot.partition_keys)

    @property
    def count(self) -> int:
        """The number of labels that satisfy all conditions."""
        alive = self.alive
        return len(self.snapshot.partitions) if alive is None else len(alive)

    def prune_by_indices(self, indices: Mapping[str, SecondaryIndex]) -> DatasetLabels:
        """The labels that also satisfy the conditions on columns with secondary indices."""
        by_index = indexed_clauses(self.role.clauses, frozenset(indices) - set(self.snapshot.partition_keys))
        places = {
            c: self.snapshot.partitions.places(indices[c].select(clauses).labels) for c, clauses in by_index.items()
        }
        # -1: the index still has the label of a file that is gone.
        return self.where({c: np.unique(labels[labels >= 0]) for c, labels in places.items()})

    def where(self, matching: Mapping[str, IntArray]) -> DatasetLabels:
        """The labels that are also in ``matching``: column → labels that satisfy its conditions."""
        if not matching:
            return self
        cells, payload = self.cells, self.payload
        for column, labels in matching.items():
            if self._is_address(column):
                cells = self._common(cells, labels)
            else:
                payload = self._common(payload, labels)
        return replace(self, cells=cells, payload=payload)

    def _is_address(self, column: str) -> bool:
        return column in self.cube.dimension_columns or column in self.cube.partition_columns

    def _common(self, left: IntArray | None, right: IntArray) -> IntArray:
        return right if left is None else left[self._mask(right)[left]]

    def _mask(self, labels: IntArray) -> Mask:
        mask = np.zeros(len(self.snapshot.partitions), dtype=bool)  # pages without a label are never touched
        mask[labels] = True
        return mask

    def without_value(self, column: str, labels: IntArray, alive: IntArray) -> int:
        """The number of labels in ``alive`` that are not in the index of the column."""
        # With conditions on the column the index may have been read in part.
        return 0 if column in by_column(self.role.clauses) else len(alive) - int(self._mask(labels)[alive].sum())

    def indexed_pairs(self, column: str, indices: Mapping[str, SecondaryIndex]) -> tuple[IntArray, pa.Array]:
        """(label, value) pairs of an indexed column whose values satisfy the conditions on it."""
        clauses = by_column(self.role.clauses).get(column, [])
        if column in self.snapshot.partition_keys:
            labels = self.snapshot.labels_with(column, clauses)
            return labels, self.snapshot.values.column(column).take(pa.array(labels)).combine_chunks()
        index = indices[column].select(clauses)
        labels = self.snapshot.partitions.places(index.labels)
        return labels[labels >= 0], index.values.filter(pa.array(labels >= 0))

    def pairs(self, column: str, pairs: tuple[IntArray, pa.Array], alive: IntArray) -> tuple[IntArray, pa.Array]:
        """The (label, value) pairs of a column by which the labels in ``alive`` are grouped."""
        labels, values = pairs
        keep = self._mask(alive)[labels]
        labels, values = labels[keep], values.filter(pa.array(keep))
        if self._is_address(column):
            return labels, values
        # A value of payload is paired with all files that may hold the same cells: a newer row in
        # one of them may override the row with the value, and the group has to see that.
        unit_of = _units(self.snapshot, self.everything)
        keys = pack_one(pa.table({"unit": unit_of[labels], "value": values}), ["unit", "value"])
        _, first = np.unique(keys, return_index=True)
        units, values = unit_of[labels][first], values.take(pa.array(first))
        order = np.argsort(unit_of[alive], kind="stable")
        rows, positions = _equal_pairs(units, unit_of[alive][order])
        return alive[order][positions], values.take(pa.array(rows))


def prune_by_values(role: DatasetRole, cube: Cube, snapshot: Snapshot) -> DatasetLabels:
    """The labels of a dataset whose partition values satisfy the conditions."""
    return DatasetLabels(role, cube, snapshot).where(labels_by_key(snapshot, role.clauses))


def indices_to_read(labels: DatasetLabels, partition_by: Sequence[str]) -> dict[str, Sequence[Clause]]:
    """The secondary indices that planning reads of a dataset, each with the clauses to select."""
    grouping = set(partition_by) & labels.snapshot.secondary_columns
    # An index takes as long to read as the one file that it could drop.
    return needed_indices(
        labels.snapshot, (labels.role.clauses,), grouping, pruning=bool(labels.role.clauses) and not labels.is_one_file
    )


def columns_of_statistics(
    labels: DatasetLabels, seed: DatasetLabels, indices: Mapping[str, SecondaryIndex]
) -> list[str]:
    """The columns whose statistics planning reads, for labels that the indices have left."""
    # Statistics take as long to read as the one file that they could drop.
    if labels.is_one_file or (seed.is_one_file and labels.has_partition_columns):
        return []
    return [c for c in labels.snapshot.columns_with_statistics(by_column(labels.role.clauses)) if c not in indices]


def prune_by_statistics(labels: DatasetLabels, statistics: FileStatistics) -> DatasetLabels:
    """The labels whose files may hold matching rows; ``statistics`` has a row for each label."""
    types, clauses = labels.role.schema, by_column(labels.role.clauses)
    columns = [c for c in statistics.columns if c in clauses]
    return labels.where({c: np.flatnonzero(statistics.possible(clauses[c], types.field(c).type)) for c in columns})


def dataset_partitions(
    labels: DatasetLabels, partition_by: Sequence[str], indices: Mapping[str, SecondaryIndex]
) -> DatasetPartitions:
    """The partitions of a dataset that satisfy the conditions, cut by ``partition_by`` values.

    ``labels`` are those that partition values, indices and statistics have left.
    """
    snapshot, shared = labels.snapshot, labels.shared
    by = [
        c for c in partition_by if c in snapshot.indexed_columns and c in labels.role.schema.names and c not in shared
    ]
    matching = labels.alive
    if matching is None and not by:
        return _everything(snapshot, shared)
    alive = np.arange(len(snapshot.partitions)) if matching is None else matching
    files, keys, without_value = alive, take_rows(snapshot.values.select(shared), alive), {}
    for column in by:
        pairs = labels.indexed_pairs(column, indices)
        without_value[column] = labels.without_value(column, pairs[0], alive)
        positions, values = labels.pairs(column, pairs, alive)
        # One row per file and value of the column, instead of one per file.
        order = np.argsort(positions, kind="stable")
        rows, matches = _equal_pairs(files, positions[order])
        picked = values.take(pa.array(order[matches]))
        files, keys = files[rows], take_rows(keys, rows).append_column(column, pa.chunked_array([picked]))
    return _compact(files, keys, len(snapshot.partitions), len(alive), without_value)


def _equal_pairs(keys: IntArray, sorted_keys: IntArray) -> tuple[IntArray, IntArray]:
    """All pairs of positions with equal keys, in the order of ``keys``."""
    low = np.searchsorted(sorted_keys, keys, side="left")
    return expand_ranges(low, np.searchsorted(sorted_keys, keys, side="right") - low)


def _everything(snapshot: Snapshot, shared: tuple[str, ...]) -> DatasetPartitions:
    """All partitions, cached on the snapshot: the next query has nothing to sort."""

    def make() -> DatasetPartitions:
        n = len(snapshot.partitions)
        return _compact(np.arange(n), snapshot.values.select(shared), n, n, {})

    return snapshot.partitions.derived(("everything", shared), snapshot.values, make)


def _units(snapshot: Snapshot, everything: DatasetPartitions) -> IntArray:
    """The number of the partition of each label: its later files override cells of earlier ones."""

    def make() -> IntArray:
        units = np.empty(len(everything.files), dtype=np.int64)
        units[everything.files] = np.repeat(np.arange(len(everything)), np.diff(everything.offsets))
        return units

    return snapshot.partitions.derived(("units", *everything.keys.column_names), everything, make)


def _compact(
    files: IntArray, rows: pa.Table, total: int, matched: int, without_value: Mapping[str, int]
) -> DatasetPartitions:
    """One partition for all rows with equal keys, with a list of files; sorted by key."""
    keys = pack_one(rows, rows.column_names) if rows.num_columns else np.zeros(len(files), dtype=np.int64)
    order = np.lexsort((files, keys))
    starts = group_starts(keys[order])
    offsets = np.append(starts, len(files)).astype(np.int64)
    return DatasetPartitions(take_rows(rows, order[starts]), offsets, files[order], total, matched, without_value)
