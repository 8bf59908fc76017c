"""Scan planning: which files of one dataset may hold rows that satisfy predicates. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from kartothek_cube.core.evaluate import Mask, matching_all
from kartothek_cube.core.files import FileRequest
from kartothek_cube.core.index import SecondaryIndex
from kartothek_cube.core.metadata.partitions import PartitionColumns
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.naming import meant
from kartothek_cube.core.predicates import Clause, Predicates, accepts_null, by_column, check_constants, columns_of
from kartothek_cube.core.rowkeys import IntArray, take_rows
from kartothek_cube.errors import UnknownColumn

__all__ = [
    "FilePlan",
    "ScanStep",
    "ScanTask",
    "check_predicate_columns",
    "conjunction_masks",
    "index_mask",
    "indexed_clauses",
    "labels_by_key",
    "needed_indices",
    "partition_mask",
    "plan_scan",
    "rejects_null",
]


@dataclass(frozen=True, slots=True)
class ScanTask:
    """One file to read, with its partition values."""

    key: str
    constants: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ScanStep:
    """What one step of planning did: how many files before and after it. ``column`` is the secondary index that was asked, None for the partition values."""

    column: str | None
    before: int
    after: int


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
        """One task a file."""
        rows = self.values.to_pylist() if self.values.num_columns else [{}] * len(self.files)
        return [ScanTask(key, constants) for key, constants in zip(self.files.to_pylist(), rows, strict=True)]

    def take(self, positions: IntArray) -> FilePlan:
        """The plan with these of its files, in this order."""
        return replace(self, files=self.files.take(pa.array(positions)), values=take_rows(self.values, positions))


def rejects_null(clause: Clause) -> bool:
    """Whether a null never satisfies the comparison."""
    return not accepts_null(clause)


def indexed_clauses(conjunction: Sequence[Clause], columns: frozenset[str]) -> dict[str, list[Clause]]:
    """Clauses that an index may answer, by column.

    An index does not know nulls, so that it can only exclude a file where the clauses on its column reject them.
    """
    found = by_column(clause for clause in conjunction if clause.column in columns)
    return {column: clauses for column, clauses in found.items() if any(map(rejects_null, clauses))}


def index_mask(index: SecondaryIndex, clauses: Sequence[Clause], partitions: PartitionColumns) -> Mask:
    """One boolean a partition: whether the index knows a value of it that satisfies the clauses."""
    mask = np.zeros(len(partitions) + 1, dtype=bool)  # one more for labels that the document does not know (-1)
    mask[partitions.places(index.select(clauses).labels)] = True
    return mask[:-1]


def partition_mask(snapshot: Snapshot, conjunction: Sequence[Clause]) -> Mask:
    """One boolean a label: whether its partition values satisfy the clauses on partition keys."""
    mask = np.ones(len(snapshot.partitions), dtype=bool)
    for column, clauses in by_column(conjunction).items():
        if column in snapshot.partition_keys:
            mask &= matching_all(snapshot.values.column(column), clauses)
    return mask


def labels_by_key(snapshot: Snapshot, conjunction: Sequence[Clause]) -> dict[str, IntArray]:
    """For each partition key with clauses the positions of the labels whose value satisfies these, ascending."""
    clauses = by_column(conjunction)
    return {c: snapshot.labels_with(c, own) for c, own in clauses.items() if c in snapshot.partition_keys}


def plan_scan(snapshot: Snapshot, table: str, columns: Sequence[str], predicates: Predicates | None, indices: Mapping[str, SecondaryIndex]) -> FilePlan:
    """The files that may hold matching rows. ``indices`` has those that `needed_indices` asked for."""
    schema = snapshot.schemas[table]
    check_predicate_columns(predicates, schema, snapshot.uuid)
    files = snapshot.partitions.files.get(table, pa.nulls(len(snapshot.partitions), pa.string()))
    masks, steps = conjunction_masks(snapshot, predicates, indices, files.is_valid().to_numpy(zero_copy_only=False))
    picked = np.flatnonzero(np.logical_or.reduce(masks))
    values = take_rows(snapshot.values, picked)
    return FilePlan(FileRequest(snapshot.uuid, schema, tuple(columns), predicates), files.take(pa.array(picked)), values, len(snapshot.partitions), steps)


def conjunction_masks(
    snapshot: Snapshot, predicates: Predicates | None, indices: Mapping[str, SecondaryIndex], among: Mask
) -> tuple[list[Mask], tuple[ScanStep, ...]]:
    """For each conjunction one boolean a label: whether it is ``among`` these and may hold rows that satisfy the conjunction; and what each step left.

    Without predicates there is one conjunction, which everything satisfies.
    """
    conjunctions: Predicates = ((),) if predicates is None else predicates
    counts = [int(among.sum())]
    masks = [among & partition_mask(snapshot, conjunction) for conjunction in conjunctions]
    counts.append(_count(masks))
    for column in sorted(indices):
        for i, conjunction in enumerate(conjunctions):
            clauses = indexed_clauses(conjunction, frozenset([column])).get(column)
            if clauses:
                masks[i] = masks[i] & index_mask(indices[column], clauses, snapshot.partitions)
        counts.append(_count(masks))
    return masks, tuple(ScanStep(*step) for step in zip([None, *sorted(indices)], counts, counts[1:], strict=False))


def _count(masks: Sequence[Mask]) -> int:
    return int(np.logical_or.reduce(masks).sum())


def needed_indices(snapshot: Snapshot, predicates: Predicates | None, also: Collection[str] = (), *, pruning: bool = True) -> dict[str, Sequence[Clause]]:
    """Secondary indices to read: those that can exclude files, unless ``pruning`` is not wanted, and ``also`` these.

    Each comes with clauses that limit what is read of it. With several conjunctions nothing does.
    """
    conjunctions = predicates or ()
    excluding = (c for conjunction in conjunctions for c in indexed_clauses(conjunction, snapshot.pruning_columns))
    clauses = by_column(conjunctions[0]) if len(conjunctions) == 1 else {}
    return {c: clauses.get(c, ()) for c in sorted({*(excluding if pruning else ()), *also})}


def check_predicate_columns(predicates: Predicates | None, schema: pa.Schema, dataset: str) -> None:
    """Refuse unknown columns and constants that do not fit the column's type.

    Raises
    ------
    UnknownColumn
        If a column is not in the schema; the message lists what is, and the names that are close.
    InvalidType
        If a constant does not fit the type of its column.
    """
    unknown = sorted(columns_of(predicates) - set(schema.names))
    if unknown:
        raise UnknownColumn(
            f"The predicates name columns that dataset {dataset!r} does not have: {', '.join(unknown)}. It has {schema.names}.{meant(unknown, schema.names)}"
        )
    check_constants(chain.from_iterable(predicates or ()), schema, f" of dataset {dataset!r}")
