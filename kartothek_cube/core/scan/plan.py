"""Scan planning for one table: the secondary indices to load, and the files that may match.

Values and pruning are pure; the last section loads indices and makes the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.arguments import did_you_mean
from kartothek_cube.core.arrow.keys import IntArray, take_rows
from kartothek_cube.core.expressions.predicates import (
    Clause,
    Mask,
    Predicates,
    accepts_null,
    by_column,
    check_constants,
    columns_of,
    matching_all,
)
from kartothek_cube.core.io.reader import FileRequest
from kartothek_cube.core.metadata.document import PartitionColumns
from kartothek_cube.core.metadata.index import SecondaryIndex
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.metadata.statistics import FileStatistics
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.scan.arguments import LabelFilter, check_table, checked_columns
from kartothek_cube.core.snapshots.loader import load_index, remember
from kartothek_cube.core.snapshots.statistics import statistics_of_files
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.errors import UnknownColumn

__all__ = [
    "FilePlan",
    "KeepIndices",
    "ScanStep",
    "ScanTask",
    "check_predicate_columns",
    "conjunction_masks",
    "index_mask",
    "indexed_clauses",
    "indices_for",
    "labels_by_key",
    "labels_of",
    "load_indices",
    "make_file_plan",
    "needed_indices",
    "partition_mask",
    "plan_scan",
    "prune_by_statistics",
    "rejects_null",
]

KeepIndices: TypeAlias = Callable[[Snapshot], object]
"""Takes a snapshot with more indices loaded, to keep them as long as the caller likes."""

# A larger index (in value-label pairs) is not kept in memory between reads.
_KEPT_PAIRS = 1_000_000


@dataclass(frozen=True, slots=True)
class ScanTask:
    """One file to read, with its partition values."""

    key: str
    constants: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ScanStep:
    """One step of pruning: the number of files before and after it.

    ``column`` is the secondary index that was used; None stands for the partition values.
    ``statistics`` are the columns whose statistics were used instead.
    """

    column: str | None
    before: int
    after: int
    statistics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FilePlan:
    """The files of one table that a read touches, in the order of the document."""

    request: FileRequest
    files: pa.Array
    values: pa.Table
    total: int
    steps: tuple[ScanStep, ...] = ()

    def __len__(self) -> int:
        return len(self.files)

    def tasks(self) -> list[ScanTask]:
        """One task for each file."""
        rows = self.values.to_pylist() if self.values.num_columns else [{}] * len(self.files)
        return [ScanTask(key, constants) for key, constants in zip(self.files.to_pylist(), rows, strict=True)]

    def take(self, positions: IntArray) -> FilePlan:
        """The plan with only the files at these positions, in this order."""
        return replace(self, files=self.files.take(pa.array(positions)), values=take_rows(self.values, positions))


# --- pruning: pure --------------------------------------------------------------------------------


def check_predicate_columns(predicates: Predicates | None, schema: pa.Schema, dataset: str) -> None:
    """Raise for unknown columns, and for constants that do not fit the column's type.

    Raises
    ------
    UnknownColumn
        If a column is not in the schema; the message lists the columns and close names.
    InvalidType
        If a constant does not fit the type of its column.
    """
    unknown = sorted(columns_of(predicates) - set(schema.names))
    if unknown:
        raise UnknownColumn(
            f"The predicates name columns that dataset {dataset!r} does not have: {', '.join(unknown)}. "
            f"It has {schema.names}.{did_you_mean(unknown, schema.names)}"
        )
    check_constants(chain.from_iterable(predicates or ()), schema, f" of dataset {dataset!r}")


def rejects_null(clause: Clause) -> bool:
    """Whether a null never satisfies the comparison."""
    return not accepts_null(clause)


def indexed_clauses(conjunction: Sequence[Clause], columns: frozenset[str]) -> dict[str, list[Clause]]:
    """The clauses that an index on one of these columns can answer, by column."""
    candidates = by_column(clause for clause in conjunction if clause.column in columns)
    # Indices do not list nulls: one can exclude a file only if the clauses reject null.
    return {column: clauses for column, clauses in candidates.items() if any(map(rejects_null, clauses))}


def needed_indices(
    snapshot: Snapshot, predicates: Predicates | None, also: Collection[str] = (), *, pruning: bool = True
) -> dict[str, Sequence[Clause]]:
    """The secondary indices to read: ``also``, and with ``pruning`` those that can exclude files.

    The clauses of each index limit which of its rows are read. Several conjunctions set no limit.
    """
    conjunctions = predicates or ()
    excluding = (c for conjunction in conjunctions for c in indexed_clauses(conjunction, snapshot.pruning_columns))
    clauses = by_column(conjunctions[0]) if len(conjunctions) == 1 else {}
    return {c: clauses.get(c, ()) for c in sorted({*(excluding if pruning else ()), *also})}


def partition_mask(snapshot: Snapshot, conjunction: Sequence[Clause]) -> Mask:
    """One boolean per label: whether its partition values satisfy the clauses on partition keys."""
    mask = np.ones(len(snapshot.partitions), dtype=bool)
    for column, clauses in by_column(conjunction).items():
        if column in snapshot.partition_keys:
            mask &= matching_all(snapshot.values.column(column), clauses)
    return mask


def index_mask(index: SecondaryIndex, clauses: Sequence[Clause], partitions: PartitionColumns) -> Mask:
    """One boolean per label: whether the index lists a value of it that satisfies the clauses."""
    mask = np.zeros(len(partitions) + 1, dtype=bool)  # the last place takes labels unknown to the document (-1)
    mask[partitions.places(index.select(clauses).labels)] = True
    return mask[:-1]


def labels_by_key(snapshot: Snapshot, conjunction: Sequence[Clause]) -> dict[str, IntArray]:
    """For each partition key with clauses: the ascending positions of the labels that match."""
    clauses = by_column(conjunction)
    return {c: snapshot.labels_with(c, clauses[c]) for c in clauses if c in snapshot.partition_keys}


def conjunction_masks(
    snapshot: Snapshot, predicates: Predicates | None, indices: Mapping[str, SecondaryIndex], candidates: Mask
) -> tuple[list[Mask], tuple[ScanStep, ...]]:
    """For each conjunction: which of the candidate labels may hold matching rows; and the steps.

    Without predicates there is one conjunction, which everything satisfies.
    """
    conjunctions: Predicates = ((),) if predicates is None else predicates
    counts = [int(candidates.sum())]
    masks = [candidates & partition_mask(snapshot, conjunction) for conjunction in conjunctions]
    counts.append(_count(masks))
    # By name, so that the steps in an explained plan do not vary.
    for column in sorted(indices):
        for i, conjunction in enumerate(conjunctions):
            clauses = indexed_clauses(conjunction, frozenset([column])).get(column)
            if clauses:
                masks[i] = masks[i] & index_mask(indices[column], clauses, snapshot.partitions)
        counts.append(_count(masks))
    return masks, tuple(ScanStep(*step) for step in zip([None, *sorted(indices)], counts, counts[1:], strict=False))


def _count(masks: Sequence[Mask]) -> int:
    return int(np.logical_or.reduce(masks).sum())


def plan_scan(
    snapshot: Snapshot,
    table: str,
    columns: Sequence[str],
    predicates: Predicates | None,
    indices: Mapping[str, SecondaryIndex],
) -> FilePlan:
    """The files that may hold matching rows; ``indices`` are those of `needed_indices`."""
    schema = snapshot.schemas[table]
    check_predicate_columns(predicates, schema, snapshot.uuid)
    files = snapshot.partitions.files.get(table, pa.nulls(len(snapshot.partitions), pa.string()))
    masks, steps = conjunction_masks(snapshot, predicates, indices, files.is_valid().to_numpy(zero_copy_only=False))
    positions = np.flatnonzero(np.logical_or.reduce(masks))
    request = FileRequest(snapshot.uuid, schema, tuple(columns), predicates)
    values = take_rows(snapshot.values, positions)
    return FilePlan(request, files.take(pa.array(positions)), values, len(snapshot.partitions), steps)


def prune_by_statistics(plan: FilePlan, statistics: FileStatistics) -> FilePlan:
    """The plan without files that cannot hold matching rows; ``statistics`` has a row for each."""
    if plan.request.predicates is None or not statistics.columns:
        return plan
    positions = np.flatnonzero(statistics.matching(plan.request.predicates, plan.request.schema))
    step = ScanStep(None, len(plan), len(positions), tuple(sorted(statistics.columns)))
    return replace(plan.take(positions), steps=(*plan.steps, step))


def labels_of(plan: FilePlan, snapshot: Snapshot, table: str) -> list[str]:
    """The labels of the planned files."""
    files = snapshot.partitions.files.get(table, pa.array([], type=pa.string()))
    labels: list[str] = snapshot.partitions.labels.take(pc.index_in(plan.files, value_set=files)).to_pylist()
    return labels


# --- indices are loaded ---------------------------------------------------------------------------


def make_file_plan(
    store: Store,
    snapshot: Snapshot,
    table: str,
    names: Sequence[str] | None,
    predicates: Predicates | None,
    label_filter: LabelFilter | None = None,
    *,
    keep: KeepIndices | None = None,
) -> FilePlan:
    """Check columns and predicates against the snapshot, load the indices that help, and plan."""
    schema = check_table(snapshot, table)
    columns = checked_columns(names, schema, snapshot.uuid)
    # Before any index is read, so that a wrong predicate costs no store call.
    check_predicate_columns(predicates, schema, snapshot.uuid)
    plan = plan_scan(snapshot, table, columns, predicates, indices_for(store, snapshot, predicates, keep=keep))
    # Statistics take as long to read as the one file that they could drop.
    if len(plan) > 1 and (asked := snapshot.columns_with_statistics(columns_of(predicates))):
        plan = prune_by_statistics(plan, statistics_of_files(store, snapshot, plan.files, asked))
    if label_filter is None:
        return plan
    selected = np.array([bool(label_filter(label)) for label in labels_of(plan, snapshot, table)], dtype=bool)
    return plan.take(np.flatnonzero(selected))


def indices_for(
    store: Store,
    snapshot: Snapshot,
    predicates: Predicates | None,
    also: Collection[str] = (),
    *,
    keep: KeepIndices | None = None,
) -> dict[str, SecondaryIndex]:
    """The indices of `needed_indices` for one dataset, loaded.

    With ``keep`` they are read whole, and ``keep`` gets the snapshot with all of them instead of
    the cache.
    """
    needed = needed_indices(snapshot, predicates, also)
    if keep is None:
        return load_indices(store, [(snapshot, needed)])[0]
    loaded = map_in_threads(lambda column: load_index(store, snapshot, column)[0], list(needed), store=store)
    indices = dict(zip(needed, loaded, strict=True))
    if indices.keys() - snapshot.indices.keys():
        keep(snapshot.with_indices(indices))
    return indices


def load_indices(
    store: Store, needed: Sequence[tuple[Snapshot, Mapping[str, Sequence[Clause]]]]
) -> list[dict[str, SecondaryIndex]]:
    """Secondary indices of several datasets, read in parallel; one dictionary per dataset.

    Only the row groups of an index file are read in which values may satisfy the clauses. Small
    indices that were read whole stay with the cached snapshot for the next call.
    """
    reads = [(snapshot, column, clauses) for snapshot, columns in needed for column, clauses in columns.items()]
    loaded = iter(list(map_in_threads(lambda read: load_index(store, *read), reads, store=store)))
    indices = []
    for snapshot, columns in needed:
        of_dataset = {column: next(loaded) for column in columns}
        small = {c: index for c, (index, is_whole) in of_dataset.items() if is_whole and len(index) <= _KEPT_PAIRS}
        if small.keys() - snapshot.indices.keys():
            remember(store, snapshot.with_indices(small))
        indices.append({column: index for column, (index, _) in of_dataset.items()})
    return indices
