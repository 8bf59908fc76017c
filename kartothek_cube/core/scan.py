"""Scan planning: which files of one dataset may hold rows that satisfy predicates. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from kartothek_cube.core.evaluate import Mask, matching_all
from kartothek_cube.core.index import SecondaryIndex
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.parquet import FileRequest
from kartothek_cube.core.predicates import Clause, Predicates, by_column, columns_of, is_null
from kartothek_cube.core.rowkeys import take_rows
from kartothek_cube.core.schema import check_literal
from kartothek_cube.errors import InvalidInput

__all__ = ["ScanPlan", "ScanTask", "index_mask", "indexed_clauses", "plan_scan", "rejects_null"]


@dataclass(frozen=True, slots=True)
class ScanTask:
    """One file to read, with its partition values."""

    key: str
    constants: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """The files of one table that a read touches, in the order of the document."""

    request: FileRequest
    files: pa.Array
    values: pa.Table
    total: int

    def __len__(self) -> int:
        return len(self.files)

    def tasks(self) -> list[ScanTask]:
        """One task a file."""
        rows = self.values.to_pylist() if self.values.num_columns else [{}] * len(self.files)
        return [ScanTask(key, constants) for key, constants in zip(self.files.to_pylist(), rows, strict=True)]


def rejects_null(clause: Clause) -> bool:
    """Whether a null never satisfies the comparison."""
    if clause.op == "in":
        return not any(is_null(v) for v in clause.value)
    return (clause.op == "!=") == is_null(clause.value)


def indexed_clauses(conjunction: Sequence[Clause], columns: frozenset[str]) -> dict[str, list[Clause]]:
    """Clauses that an index may answer, by column.

    An index does not know nulls, so that it can only exclude a file where the clauses on its column reject them.
    """
    found = by_column(clause for clause in conjunction if clause.column in columns)
    return {column: clauses for column, clauses in found.items() if any(map(rejects_null, clauses))}


def index_mask(index: SecondaryIndex, clauses: Sequence[Clause], labels: pa.Array) -> Mask:
    """One boolean a label: whether the index knows a value of it that satisfies the clauses."""
    mask = np.zeros(len(labels) + 1, dtype=bool)  # one more for labels that the document does not know (-1)
    mask[index.select(clauses).positions(labels)] = True
    return mask[:-1]


def partition_mask(snapshot: Snapshot, conjunction: Sequence[Clause]) -> Mask:
    """One boolean a label: whether its partition values satisfy the clauses on partition keys."""
    mask = np.ones(len(snapshot.partitions), dtype=bool)
    for column, clauses in by_column(conjunction).items():
        if column in snapshot.partition_keys:
            mask &= matching_all(snapshot.values.column(column), clauses)
    return mask


def plan_scan(snapshot: Snapshot, table: str, columns: Sequence[str], predicates: Predicates | None, indices: Mapping[str, SecondaryIndex]) -> ScanPlan:
    """The files that may hold matching rows. ``indices`` has those that `needed_indices` asked for."""
    schema = snapshot.schemas[table]
    check_predicate_columns(predicates, schema, snapshot.uuid)
    mask = np.zeros(len(snapshot.partitions), dtype=bool) if predicates is not None else np.ones(len(snapshot.partitions), dtype=bool)
    for conjunction in predicates or ():
        mask |= _conjunction_mask(snapshot, conjunction, indices)
    files = snapshot.partitions.files.get(table, pa.nulls(len(snapshot.partitions), pa.string()))
    mask &= files.is_valid().to_numpy(zero_copy_only=False)
    picked = np.flatnonzero(mask)
    values = take_rows(snapshot.values, picked)
    return ScanPlan(FileRequest(snapshot.uuid, schema, tuple(columns), predicates), files.take(pa.array(picked)), values, len(snapshot.partitions))


def _conjunction_mask(snapshot: Snapshot, conjunction: Sequence[Clause], indices: Mapping[str, SecondaryIndex]) -> Mask:
    mask = partition_mask(snapshot, conjunction)
    for column, clauses in indexed_clauses(conjunction, frozenset(indices)).items():
        mask &= index_mask(indices[column], clauses, snapshot.partitions.labels)
    return mask


def needed_indices(snapshot: Snapshot, predicates: Predicates | None) -> frozenset[str]:
    """Secondary indices that can exclude files."""
    return frozenset(c for conjunction in predicates or () for c in indexed_clauses(conjunction, snapshot.secondary_columns))


def check_predicate_columns(predicates: Predicates | None, schema: pa.Schema, dataset: str) -> None:
    """Refuse unknown columns and constants that do not fit the column's type."""
    unknown = sorted(columns_of(predicates) - set(schema.names))
    if unknown:
        raise InvalidInput(f"The predicates name columns that dataset {dataset!r} does not have: {', '.join(unknown)}. It has {schema.names}.")
    for conjunction in predicates or ():
        for clause in conjunction:
            for value in clause.value if clause.op == "in" else (clause.value,):
                if not is_null(value):
                    check_literal(value, schema.field(clause.column).type, clause.column, f" of dataset {dataset!r}")
