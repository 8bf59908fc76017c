"""Checks of secondary indices: their files, types, labels, and which partitions they know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.arrow.schema import compatible
from kartothek_cube.core.arrow.sort_keys import IntArray
from kartothek_cube.core.arrow.types import stored_type
from kartothek_cube.core.io.file_format import INDEX_SUFFIX
from kartothek_cube.core.io.parquet import read_columns
from kartothek_cube.core.maintenance.verify.inspection import DAMAGE, Inspection
from kartothek_cube.core.maintenance.verify.report import Finding
from kartothek_cube.core.metadata.index import SecondaryIndex, index_from_table, index_labels, index_type
from kartothek_cube.core.metadata.snapshot import type_of_column
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.runtime.progress import Phase
from kartothek_cube.core.snapshots.loader import load_index
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.text import pluralize
from kartothek_cube.errors import KeyNotFound

__all__ = ["Indices", "coverage_findings", "index_findings", "indices_of", "labelled_values", "rebuild", "uncovered"]


@dataclass(frozen=True, slots=True)
class Indices:
    """The secondary indices that can be read, by column, and findings about all of them."""

    loaded: Mapping[str, SecondaryIndex] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


def rebuild(uuid: str, column: str) -> str:
    """The call that makes an index anew."""
    return f"build_dataset_indices(store, {uuid!r}, [{column!r}])"


def indices_of(store: Store, subject: Inspection) -> Indices:
    """All secondary indices, read whole, with what is wrong with their files."""
    columns = sorted(subject.snapshot.document.indices)
    findings = [f for column in columns for f in _roles(subject, column)]
    known = [c for c in columns if _type(subject, c) is not None]
    results = list(
        map_in_threads(lambda column: _loaded(store, subject, column), known, phase=Phase("verify", "indices"))
    )
    loaded = {c: index for c, (index, _) in zip(known, results, strict=True) if index is not None}
    return Indices(loaded, (*findings, *(f for _, found in results for f in found)))


def _type(subject: Inspection, column: str) -> pa.DataType | None:
    """The type of an index on a column; None if there can be none."""
    try:
        return index_type(type_of_column(subject.snapshot.schemas, column, subject.uuid), column, subject.uuid)
    except DAMAGE:
        return None


def _roles(subject: Inspection, column: str) -> Iterator[Finding]:
    if not any(column in schema.names for schema in subject.snapshot.schemas.values()):
        if subject.snapshot.schemas:
            yield Finding(
                "error",
                "index-column",
                subject.uuid,
                "There is an index on a column that the schema lacks.",
                column=column,
            )
    elif _type(subject, column) is None:
        kind = type_of_column(subject.snapshot.schemas, column, subject.uuid)
        yield Finding(
            "error",
            "index-column",
            subject.uuid,
            f"There is an index on a column of type {kind}, on which there can be none.",
            column=column,
        )
    if column in subject.snapshot.partition_keys:
        text = "There is an index on a partition column, which needs none: every check of a cube fails."
        yield Finding("warning", "index-on-partition-column", subject.uuid, text, column=column)


def _loaded(store: Store, subject: Inspection, column: str) -> tuple[SecondaryIndex | None, list[Finding]]:
    reference, kind = subject.snapshot.document.indices[column], _type(subject, column)
    key = reference if isinstance(reference, str) else None
    assert kind is not None  # of others nothing is loaded
    try:
        if key is None:
            return load_index(store, subject.snapshot, column)[0], []
        table, _ = read_columns(store, key, subject.uuid)
        findings = list(_misplaced(subject, column, key)) + list(_typed(subject, column, key, table.schema, kind))
        return (
            (None, findings)
            if any(f.severity == "error" for f in findings)
            else (index_from_table(table, column, kind, key), findings)
        )
    except KeyNotFound:
        text = "The index file is not in the store. Queries on the column, and all updates in kartothek, fail."
        return None, [
            Finding(
                "error", "missing-index", subject.uuid, text, key=key, column=column, mend=rebuild(subject.uuid, column)
            )
        ]
    except DAMAGE as error:
        return None, [
            Finding(
                "error",
                "index-unreadable",
                subject.uuid,
                str(error),
                key=key,
                column=column,
                mend=rebuild(subject.uuid, column),
            )
        ]


def _typed(
    subject: Inspection, column: str, key: str, schema: pa.Schema, kind: pa.DataType | None
) -> Iterator[Finding]:
    """`index_from_table` casts what it can; what comes out of another family is no index on the column."""
    if column in schema.names and kind is not None and not compatible(stored_type(schema.field(column).type), kind):
        text = f"The index file has values of type {schema.field(column).type}, but the column is {kind}."
        yield Finding(
            "error", "index-type", subject.uuid, text, key=key, column=column, mend=rebuild(subject.uuid, column)
        )


def _misplaced(subject: Inspection, column: str, key: str) -> Iterator[Finding]:
    legacy = key == f"{subject.uuid}.{column}{INDEX_SUFFIX}"
    if not key.startswith(f"{subject.uuid}/") and not legacy:
        text = f"The index file lies outside of {subject.uuid}/: its owner may delete it."
        yield Finding(
            "warning", "foreign-file", subject.uuid, text, key=key, column=column, mend=rebuild(subject.uuid, column)
        )


# --- what an index says of labels -----------------------------------------------------------------


def index_findings(subject: Inspection, indices: Indices) -> Iterator[Finding]:
    """What is wrong with the files, and entries whose label the document does not have."""
    yield from indices.findings
    for column, index in indices.loaded.items():
        found = index_labels(index)
        dangling = found.filter(pc.invert(pc.is_in(found, value_set=subject.snapshot.partitions.labels)))
        if len(dangling):
            text = f"The index names {len(dangling):,} labels that the document does not have; kartothek fails to read what matches them."
            label, mend = dangling[0].as_py(), rebuild(subject.uuid, column)
            yield Finding(
                "error",
                "index-label",
                subject.uuid,
                text,
                key=_key(subject, column),
                label=label,
                column=column,
                mend=mend,
            )


def _key(subject: Inspection, column: str) -> str | None:
    reference = subject.snapshot.document.indices[column]
    return reference if isinstance(reference, str) else None


def uncovered(subject: Inspection, index: SecondaryIndex) -> IntArray:
    """Positions of the partitions that no entry of an index names."""
    labels = subject.snapshot.partitions.labels
    return np.flatnonzero(~pc.is_in(labels, value_set=index_labels(index)).to_numpy(zero_copy_only=False))


def coverage_findings(subject: Inspection, indices: Indices) -> Iterator[Finding]:
    """Partitions that no entry names: right if they have no value there, which only their data says; else queries miss their rows."""
    ours = not subject.snapshot.has_foreign_commit
    for column, index in indices.loaded.items():
        positions = uncovered(subject, index)
        if len(positions):
            # This library covers every partition that it commits; others do not see to it.
            text = f"No entry of the index names {pluralize(len(positions), 'partition')}. Either no value is there, or queries miss rows: deep=True tells."
            label = subject.snapshot.partitions.labels[int(positions[0])].as_py()
            mend = "" if ours else rebuild(subject.uuid, column)
            severity, n = ("info" if ours else "warning"), len(positions)
            yield Finding(severity, "index-coverage", subject.uuid, text, _key(subject, column), label, column, mend, n)  # type: ignore[arg-type]


def labelled_values(subject: Inspection, index: SecondaryIndex) -> tuple[pa.Array, IntArray]:
    """The values of an index by partition: those of partition *i* are ``values[starts[i]:starts[i + 1]]``."""
    positions = index.positions(subject.snapshot.partitions.labels)
    order = np.argsort(positions, kind="stable")
    starts = np.searchsorted(positions[order], np.arange(len(subject.snapshot.partitions) + 1))
    return index.values.take(pa.array(order)), starts.astype(np.int64)
