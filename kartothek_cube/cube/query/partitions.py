"""Steps 1 to 5 of planning: the partitions of each dataset, then of all. Pure.

In order:

- steps 1 to 3, for one dataset: labels, pre-conditions, partition-by values; arrays, as a plan has
  as many labels as the dataset has files
- steps 4 and 5: partitions of all datasets side by side, then grouped
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from kartothek_cube.core.arrow.keys import (
    IntArray,
    expand_ranges,
    group_starts,
    pack,
    pack_one,
    stable_order,
    take_rows,
)
from kartothek_cube.core.expressions.predicates import Clause, Mask, by_column, matching_ranges
from kartothek_cube.core.metadata.index import SecondaryIndex
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.metadata.statistics import FileStatistics
from kartothek_cube.core.scan.plan import indexed_clauses, labels_by_key, needed_indices
from kartothek_cube.cube.cube import Cube
from kartothek_cube.cube.query.intention import DatasetRole


class DatasetPartitions(Struct, frozen=True):
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


class DatasetLabels(Struct, frozen=True):
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
    # Reading an index costs as much as reading the single file it might prune.
    return needed_indices(
        labels.snapshot, (labels.role.clauses,), grouping, pruning=bool(labels.role.clauses) and not labels.is_one_file
    )


def columns_of_statistics(
    labels: DatasetLabels, seed: DatasetLabels, indices: Mapping[str, SecondaryIndex]
) -> list[str]:
    """The columns whose statistics planning reads, for labels that the indices have left."""
    # Reading statistics costs as much as reading the single file they might prune.
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


# --- steps 4 and 5 --------------------------------------------------------------------------------


# When the left rows are fewer by this factor, the right rows are searched instead of sorted.
_FEW = 64


class Aligned(Struct, frozen=True):
    """Partitions of several datasets side by side.

    ``keys`` has one row per aligned partition: the cube's partition columns and the
    ``partition_by`` columns. ``parts`` has the position of the partition of each dataset in each
    row, -1 for none.
    """

    keys: pa.Table
    parts: Mapping[str, IntArray]

    def __len__(self) -> int:
        return len(next(iter(self.parts.values())))

    def take(self, positions: IntArray | None) -> Aligned:
        """The aligned partitions at these positions; None stands for all of them, in order."""
        if positions is None:
            return self
        return Aligned(take_rows(self.keys, positions), {i: p[positions] for i, p in self.parts.items()})


def start(seed: str, partitions: DatasetPartitions) -> Aligned:
    """The partitions of the seed, which other datasets join."""
    return Aligned(partitions.keys, {seed: np.arange(len(partitions), dtype=np.int64)})


def align(left: Aligned, dataset: str, right: DatasetPartitions, *, inner: bool) -> Aligned:
    """Join one more dataset on all shared key columns; without such columns, a cross join."""
    rows, parts = _match(left.keys, len(left), right.keys, len(right), inner=inner)
    joined = left.take(rows)
    keys = {c: joined.keys.column(c) for c in joined.keys.column_names}
    new = [c for c in right.keys.column_names if c not in keys]
    if not new:
        return Aligned(joined.keys, {**joined.parts, dataset: parts})
    positions = pa.array(parts, mask=parts < 0)
    keys.update({c: right.keys.column(c).take(positions) for c in new})
    return Aligned(pa.table(keys), {**joined.parts, dataset: parts})


def _match(
    left: pa.Table, n_left: int, right: pa.Table, n_right: int, *, inner: bool
) -> tuple[IntArray | None, IntArray]:
    """Pairs of positions with equal shared columns, as `_pairs` returns them."""
    shared = [c for c in left.column_names if c in right.column_names]
    if not shared:
        return _pairs(np.zeros(n_left, np.int64), np.full(n_left, n_right), inner=inner)
    if len(shared) == right.num_columns and left.select(shared).equals(right.select(shared)):
        return None, np.arange(n_right)  # no two partitions of a dataset are alike
    skipped, near = _near(left, right) if n_left * _FEW < n_right else (0, right)
    left_keys, right_keys = pack([left, near], shared)
    order = stable_order(right_keys)
    right_keys = right_keys if order is None else right_keys[order]
    starts = group_starts(right_keys)
    first = counts = np.zeros(n_left, np.int64)
    if len(starts):
        # Search among the distinct keys: there are fewer of them.
        runs = np.minimum(np.searchsorted(right_keys[starts], left_keys), len(starts) - 1)
        first = starts[runs]
        sizes = np.diff(np.append(starts, len(right_keys)))
        counts = np.where(right_keys[first] == left_keys, sizes[runs], 0)
    rows, parts = _pairs(first, counts, inner=inner)
    # The last place is for rows without a partner: -1 finds it and stays -1.
    places = np.append(np.arange(len(right_keys)) if order is None else order, -1 - skipped) + skipped
    return rows, places[parts]


def _pairs(first: IntArray, counts: IntArray, *, inner: bool) -> tuple[IntArray | None, IntArray]:
    """Pair each row with the ``counts`` positions from its ``first`` one on.

    Without any, an inner join drops the row and a left join pairs it with -1. The rows are None if
    each of them comes once.
    """
    if len(counts) and counts.max() <= 1 and (not inner or counts.min() == 1):
        return None, np.where(counts > 0, first, -1)
    rows, positions = expand_ranges(first, counts if inner else np.maximum(counts, 1))
    return rows, np.where(counts[rows] > 0, positions, -1)


def _near(left: pa.Table, right: pa.Table) -> tuple[int, pa.Table]:
    """The rows of ``right`` whose first column is in the range of ``left``, and their offset.

    ``right`` is sorted by its columns.
    """
    column = right.column_names[0]
    if column not in left.column_names or not left.num_rows:
        return 0, right
    few, many = left.column(column), right.column(column)
    # A binary search needs one chunk, and NaN has no place in an order.
    if few.null_count or few.type != many.type or pa.types.is_floating(many.type) or many.num_chunks != 1:
        return 0, right
    span = pc.min_max(few).as_py()
    valid = many.chunk(0).slice(0, len(many) - many.null_count)  # nulls come last
    ranges = matching_ranges(valid, [Clause(column, ">=", span["min"]), Clause(column, "<=", span["max"])])
    low, high = ranges[0] if ranges else (0, 0)
    return low, right.slice(low, high - low)


def sort_into_groups(
    aligned: Aligned, partition_by: Sequence[str], partition_columns: Sequence[str]
) -> tuple[Aligned, IntArray]:
    """Aligned partitions in the order of their groups, and the offsets of the groups.

    A group is one combination of ``partition_by`` values, or one aligned partition if there are no
    such columns. A row without a value is in no group.
    """
    if partition_by:
        valid = np.logical_and.reduce([aligned.keys.column(c).is_valid().to_numpy() for c in partition_by])
        aligned = aligned.take(np.flatnonzero(valid))
    by = list(partition_by) or list(partition_columns)
    full = [*by, *(c for c in partition_columns if c not in by)]
    keys = pack_one(aligned.keys, full)
    order = stable_order(keys)
    aligned, keys = (aligned, keys) if order is None else (aligned.take(order), keys[order])
    starts = group_starts(keys if by == full else pack_one(aligned.keys, by))
    return aligned, np.append(starts, len(aligned)).astype(np.int64)
