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
from kartothek_cube.core.scan import rejects_null
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

    def narrowed(self, parts: IntArray, files: IntArray) -> DatasetPartitions:
        """Some of the partitions, by ascending positions; their files become positions among ``files``, which are sorted and have them all."""
        counts = self.offsets[parts + 1] - self.offsets[parts]
        offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        return replace(self, keys=take_rows(self.keys, parts), offsets=offsets, files=np.searchsorted(files, self.files_of(parts)))


def needed_indices(role: DatasetRole, intention: Intention, snapshot: Snapshot) -> dict[str, list[Clause]]:
    """Secondary indices that planning reads of a dataset, each with the conditions that limit what is read of it.

    None is asked which files to drop where the conditions on partition keys leave one of a single partition of the cube:
    the index takes as long to read as that file, which knows its values itself.
    """
    clauses = by_column(role.clauses)
    helpful = {c for c, asked in clauses.items() if any(map(rejects_null, asked))} & snapshot.pruning_columns
    grouping = set(intention.partition_by) & snapshot.secondary_columns
    if helpful and _is_one_file(role, intention.cube, snapshot):
        helpful = set()
    return {c: clauses.get(c, []) for c in sorted(helpful | grouping)}


def _is_one_file(role: DatasetRole, cube: Cube, snapshot: Snapshot) -> bool:
    """Whether partition keys leave one file at most, and one partition of the cube."""
    if not set(cube.partition_columns).issubset(snapshot.partition_keys):
        return False
    alive = _Labels(role, cube, snapshot, {}, ()).alive()
    return (len(snapshot.partitions) if alive is None else len(alive)) <= 1


def dataset_partitions(role: DatasetRole, intention: Intention, snapshot: Snapshot, indices: Mapping[str, SecondaryIndex]) -> DatasetPartitions:
    """Which partitions of a dataset are left by the conditions, cut by the ``partition_by`` values that it has indexed."""
    shared = tuple(c for c in snapshot.partition_keys if c in intention.cube.partition_columns)
    by = [c for c in intention.partition_by if c in snapshot.indexed_columns and c in role.schema.names and c not in shared]
    labels = _Labels(role, intention.cube, snapshot, indices, shared)
    found = labels.alive()
    if found is None and not by:
        return _everything(snapshot, shared)
    alive = np.arange(len(snapshot.partitions)) if found is None else found
    files, rows, without_value = alive, take_rows(snapshot.values.select(shared), alive), {}
    for column in by:
        pairs = labels.indexed_pairs(column)
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


@dataclass(frozen=True, slots=True)
class _Labels:
    """The labels of one dataset with what conditions and indices say of them. Sets of labels are their positions, ascending; None is all of them."""

    role: DatasetRole
    cube: Cube
    snapshot: Snapshot
    indices: Mapping[str, SecondaryIndex]
    shared: tuple[str, ...]

    @property
    def everything(self) -> DatasetPartitions:
        """All partitions, which are sorted only where a label's neighbours matter."""
        return _everything(self.snapshot, self.shared)

    def alive(self) -> IntArray | None:
        """Labels that the pre-conditions leave.

        The newest row of a cell wins and conditions apply to it. So a condition on payload drops files only together
        with all files that may hold the same cells; a condition on a dimension or partition column, which is part of
        the cell's address, drops each file for itself.
        """
        alive = passes = None
        for column, clauses in by_column(self.role.clauses).items():
            found = self._matching(column, clauses)
            if self._is_address(column):
                alive = self._common(alive, found)
            else:
                passes = self._common(passes, found)
        return alive if passes is None else self._common(alive, self._with_their_units(self._common(alive, passes)))

    def _is_address(self, column: str) -> bool:
        return column in self.cube.dimension_columns or column in self.cube.partition_columns

    def _common(self, left: IntArray | None, right: IntArray | None) -> IntArray | None:
        if left is None or right is None:
            return left if right is None else right
        mask = np.zeros(len(self.snapshot.partitions), dtype=bool)  # of which only the pages are touched where a label is
        mask[right] = True
        return left[mask[left]]

    def _with_their_units(self, found: IntArray | None) -> IntArray | None:
        """All labels of the partitions that have one of these."""
        if found is None:
            return None
        return np.sort(self.everything.files_of(np.unique(_units(self.snapshot, self.everything)[found])))

    def _matching(self, column: str, clauses: Sequence[Clause]) -> IntArray | None:
        """Labels in which the clauses on one column may hold."""
        if column in self.snapshot.partition_keys:
            return self.snapshot.labels_with(column, clauses)
        if column not in self.indices or not any(map(rejects_null, clauses)):
            # An index knows no nulls, so it says nothing where a null may match.
            return None
        found = np.unique(self.snapshot.partitions.places(self.indices[column].select(clauses).labels))
        return found[np.searchsorted(found, 0) :]

    def without_value(self, column: str, where: IntArray, alive: IntArray) -> int:
        """How many labels that are alive the index does not know; none with conditions on the column, for which it may have been read in part."""
        return 0 if column in by_column(self.role.clauses) else len(alive) - int(self._mask(where)[alive].sum())

    def _mask(self, labels: IntArray) -> Mask:
        mask = np.zeros(len(self.snapshot.partitions), dtype=bool)
        mask[labels] = True
        return mask

    def pairs(self, column: str, pairs: tuple[IntArray, pa.Array], alive: IntArray) -> tuple[IntArray, pa.Array]:
        """Those of the column's pairs whose labels are alive; a value of payload spreads over all files that may hold the same cells."""
        where, values = pairs
        keep = self._mask(alive)[where]
        where, values = where[keep], values.filter(pa.array(keep))
        return (where, values) if self._is_address(column) else self._spread(where, values, alive)

    def indexed_pairs(self, column: str) -> tuple[IntArray, pa.Array]:
        """(label, value) pairs of an indexed column, with the values that satisfy the conditions on it."""
        clauses = by_column(self.role.clauses).get(column, [])
        if column in self.snapshot.partition_keys:
            where = self.snapshot.labels_with(column, clauses)
            return where, self.snapshot.values.column(column).take(pa.array(where)).combine_chunks()
        index = self.indices[column].select(clauses)
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
