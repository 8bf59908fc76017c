"""Verification of one dataset: the checks of its metadata, and those of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from kartothek_cube.core.maintenance.verify.bounds import statistics_findings
from kartothek_cube.core.maintenance.verify.commits import History, commit_findings, history_findings, history_of
from kartothek_cube.core.maintenance.verify.document import label_findings, schema_findings
from kartothek_cube.core.maintenance.verify.files import file_findings, leftover_findings, named_files
from kartothek_cube.core.maintenance.verify.indices import Indices, coverage_findings, index_findings, indices_of
from kartothek_cube.core.maintenance.verify.inspection import Inspection, documents_of, inspect_dataset, seen_document
from kartothek_cube.core.maintenance.verify.migration import migration_findings
from kartothek_cube.core.maintenance.verify.report import Counts, Finding
from kartothek_cube.core.maintenance.verify.rows import row_findings
from kartothek_cube.core.maintenance.verify.tags import tag_findings, tagged_files
from kartothek_cube.core.stores.contract import Store

__all__ = ["VerifyPass", "verify", "verify_rows"]

_MAX_PASSES = 3


@dataclass(frozen=True, slots=True)
class VerifyPass:
    """The result of one pass; ``subject`` is None if the document cannot be read.

    ``history`` has the readable entries.
    """

    subject: Inspection | None
    indices: Indices
    findings: tuple[Finding, ...]
    counts: Counts
    history: History = field(default_factory=History)


def verify(store: Store, uuid: str, *, deep: bool) -> VerifyPass:
    """Verify the documents, schema files, index files and keys of a dataset; no data file is read.

    ``deep`` leaves the checks that need rows to `verify_rows`.

    Raises
    ------
    DatasetNotFound
        If there is no document.
    """
    # A commit during a pass can look like a fault: repeat the pass, a few times.
    result, is_disturbed = _verify_once(store, uuid, deep=deep)
    for _ in range(_MAX_PASSES - 1):
        if not is_disturbed:
            break
        result, is_disturbed = _verify_once(store, uuid, deep=deep)
    return result


def _verify_once(store: Store, uuid: str, *, deep: bool) -> tuple[VerifyPass, bool]:
    """One pass, and whether it found a fault while the document was changed."""
    stored, document_faults = documents_of(store, uuid)
    if stored is None:
        return VerifyPass(None, Indices(), tuple(document_faults), Counts(datasets=1)), False
    seen, pending = seen_document(store, stored)
    document_faults += pending
    if seen is None:
        return VerifyPass(None, Indices(), tuple(document_faults), Counts()), False
    stored = seen
    subject, damage = inspect_dataset(store, stored)
    indices, history, tags = indices_of(store, subject), history_of(store, subject), tagged_files(store, subject)
    findings = (
        *document_faults,
        *damage,
        *commit_findings(subject),
        *history_findings(subject, history),
        *tag_findings(subject, tags),
        *file_findings(store, subject),
        *label_findings(subject),
        *schema_findings(subject),
        *index_findings(subject, indices),
        *statistics_findings(store, subject),
        *migration_findings(subject),
        *leftover_findings(subject, history.kept, tags.kept),
        *(() if deep else coverage_findings(subject, indices)),
    )
    keys = named_files(subject).column("key").to_pylist()
    size = sum(subject.entries[key].size or 0 for key in set(keys) & subject.entries.keys())
    counts = Counts(1, len(subject.snapshot.partitions), len(keys), size)
    has_fault = any(f.severity != "info" for f in findings)
    return VerifyPass(subject, indices, findings, counts, history), (
        has_fault and store.changed(stored.key, stored.token)
    )


def verify_rows(store: Store, metadata_pass: VerifyPass, dimensions: Sequence[str] = ()) -> VerifyPass:
    """Add the checks that read all data.

    ``dimensions`` are the dimension columns, in order, of a dataset of a cube.
    """
    subject = metadata_pass.subject
    if subject is None or not subject.decoded:
        return metadata_pass
    present = [c for c in dimensions if c in subject.snapshot.schema.names]
    findings, rows = row_findings(store, subject, metadata_pass.indices, present)
    counts = metadata_pass.counts + Counts(rows=rows)
    return replace(metadata_pass, findings=(*metadata_pass.findings, *findings), counts=counts)
