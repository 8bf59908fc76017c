"""Checks of secondary indices: files, types, labels, and coverage of the partitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.arguments import pluralize
from kartothek_cube.core.arrow.keys import IntArray
from kartothek_cube.core.arrow.types import compatible, stored_type
from kartothek_cube.core.io.formats import INDEX_SUFFIX
from kartothek_cube.core.io.parquet import read_columns
from kartothek_cube.core.maintenance.verify.inspection import DAMAGE, Inspection
from kartothek_cube.core.maintenance.verify.report import Finding, Severity
from kartothek_cube.core.metadata.index import SecondaryIndex, index_from_table, index_labels, index_type
from kartothek_cube.core.metadata.snapshot import type_of_column
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.runtime.options import Phase
from kartothek_cube.core.snapshots.loader import load_index
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.errors import KeyNotFound

__all__ = ["Indices", "coverage_findings", "index_findings", "indices_of", "labelled_values", "rebuild", "uncovered"]


@dataclass(frozen=True, slots=True)
class Indices:
    """The readable secondary indices by column, and findings about all of them."""

    loaded: Mapping[str, SecondaryIndex] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


def rebuild(uuid: str, column: str) -> str:
    """The call that rebuilds an index."""
    return f"build_dataset_indices(store, {uuid!r}, [{column!r}])"


def indices_of(store: Store, subject: Inspection) -> Indices:
    """Read all secondary indices whole, and check their columns and files."""
    columns = sorted(subject.snapshot.document.indices)
    types = {column: _index_type(subject, column) for column in columns}
    findings = [f for column in columns for f in _column_faults(subject, column, types[column])]
    usable = [(column, data_type) for column, data_type in types.items() if data_type is not None]
    results = list(map_in_threads(lambda item: _load(store, subject, *item), usable, phase=Phase("verify", "indices")))
    loaded = {c: index for (c, _), (index, _) in zip(usable, results, strict=True) if index is not None}
    return Indices(loaded, (*findings, *(f for _, faults in results for f in faults)))


def _index_type(subject: Inspection, column: str) -> pa.DataType | None:
    """The type of an index on a column; None if the column cannot have one."""
    try:
        return index_type(type_of_column(subject.snapshot.schemas, column, subject.uuid), column, subject.uuid)
    except DAMAGE:
        return None


def _column_faults(subject: Inspection, column: str, data_type: pa.DataType | None) -> Iterator[Finding]:
    schemas = subject.snapshot.schemas
    if not any(column in schema.names for schema in schemas.values()):
        if schemas:
            text = "There is an index on a column that the schema lacks."
            yield Finding("error", "index-column", subject.uuid, text, column=column)
    elif data_type is None:
        column_type = type_of_column(schemas, column, subject.uuid)
        text = f"There is an index on a column of type {column_type}, on which there can be none."
        yield Finding("error", "index-column", subject.uuid, text, column=column)
    if column in subject.snapshot.partition_keys:
        text = "There is an index on a partition column, which needs none: every check of a cube fails."
        yield Finding("warning", "index-on-partition-column", subject.uuid, text, column=column)


def _load(
    store: Store, subject: Inspection, column: str, data_type: pa.DataType
) -> tuple[SecondaryIndex | None, list[Finding]]:
    uuid, key, mend = subject.uuid, _key(subject, column), rebuild(subject.uuid, column)
    try:
        if key is None:
            return load_index(store, subject.snapshot, column)[0], []
        table, _ = read_columns(store, key, uuid)
        findings = []
        # kartothek once wrote index files beside the documents.
        is_legacy = key == f"{uuid}.{column}{INDEX_SUFFIX}"
        if not key.startswith(f"{uuid}/") and not is_legacy:
            text = f"The index file is outside of {uuid}/: its owner may delete it."
            findings.append(Finding("warning", "foreign-file", uuid, text, key=key, column=column, mend=mend))
        # `index_from_table` casts whatever Arrow can cast, also values of another family of types.
        file_type = table.schema.field(column).type if column in table.schema.names else None
        if file_type is not None and not compatible(stored_type(file_type), data_type):
            text = f"The index file has values of type {file_type}, but the column is {data_type}."
            findings.append(Finding("error", "index-type", uuid, text, key=key, column=column, mend=mend))
            return None, findings
        return index_from_table(table, column, data_type, key), findings
    except KeyNotFound:
        text = "The index file is not in the store. Queries on the column, and all updates in kartothek, fail."
        return None, [Finding("error", "missing-index", uuid, text, key=key, column=column, mend=mend)]
    except DAMAGE as error:
        return None, [Finding("error", "index-unreadable", uuid, str(error), key=key, column=column, mend=mend)]


# --- labels of the entries ----------------------------------------------------------------------


def index_findings(subject: Inspection, indices: Indices) -> Iterator[Finding]:
    """Faults of the index files, and entries with a label that the document lacks."""
    yield from indices.findings
    for column, index in indices.loaded.items():
        labels = index_labels(index)
        dangling = labels.filter(pc.invert(pc.is_in(labels, value_set=subject.snapshot.partitions.labels)))
        if len(dangling):
            text = (
                f"The index names {len(dangling):,} labels that the document does not have; "
                "kartothek fails to read what matches them."
            )
            key, label, mend = _key(subject, column), dangling[0].as_py(), rebuild(subject.uuid, column)
            yield Finding("error", "index-label", subject.uuid, text, key, label, column, mend)


def _key(subject: Inspection, column: str) -> str | None:
    """Key of an index file; None if the document embeds the index."""
    reference = subject.snapshot.document.indices[column]
    return reference if isinstance(reference, str) else None


def uncovered(subject: Inspection, index: SecondaryIndex) -> IntArray:
    """Positions of the partitions that no entry of an index names."""
    labels = subject.snapshot.partitions.labels
    return np.flatnonzero(~pc.is_in(labels, value_set=index_labels(index)).to_numpy(zero_copy_only=False))


def coverage_findings(subject: Inspection, indices: Indices) -> Iterator[Finding]:
    """Partitions that no entry of an index names."""
    # Right for a partition without values in the column, which only its data shows; queries miss
    # the rows of any other. This library indexes every partition that it commits; others may not.
    is_ours = not subject.snapshot.has_foreign_commit
    severity: Severity = "info" if is_ours else "warning"
    for column, index in indices.loaded.items():
        positions = uncovered(subject, index)
        if len(positions):
            text = (
                f"No entry of the index names {pluralize(len(positions), 'partition')}. "
                "Either no value is there, or queries miss rows: deep=True tells."
            )
            label = subject.snapshot.partitions.labels[int(positions[0])].as_py()
            key, mend = _key(subject, column), "" if is_ours else rebuild(subject.uuid, column)
            yield Finding(
                severity, "index-coverage", subject.uuid, text, key, label, column, mend, count=len(positions)
            )


def labelled_values(subject: Inspection, index: SecondaryIndex) -> tuple[pa.Array, IntArray]:
    """The values of an index by partition: *i* has ``values[starts[i]:starts[i + 1]]``."""
    positions = index.positions(subject.snapshot.partitions.labels)
    order = np.argsort(positions, kind="stable")
    starts = np.searchsorted(positions[order], np.arange(len(subject.snapshot.partitions) + 1))
    return index.values.take(pa.array(order)), starts.astype(np.int64)
