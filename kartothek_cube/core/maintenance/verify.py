"""Verifying one dataset: the checks of its metadata, and of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from kartothek_cube.core.document_store import StoredDocument
from kartothek_cube.core.maintenance.verify_commits import History, commit_findings, history_findings, history_of
from kartothek_cube.core.maintenance.verify_files import file_findings, leftover_findings, named_files
from kartothek_cube.core.maintenance.verify_indices import Indices, coverage_findings, index_findings, indices_of
from kartothek_cube.core.maintenance.verify_labels import label_findings
from kartothek_cube.core.maintenance.verify_movers import migration_findings
from kartothek_cube.core.maintenance.verify_report import Counts, Finding
from kartothek_cube.core.maintenance.verify_rows import row_findings
from kartothek_cube.core.maintenance.verify_schema import schema_findings
from kartothek_cube.core.maintenance.verify_subject import Inspection, documents_of, subject_of
from kartothek_cube.core.store import Store

__all__ = ["VerifyPass", "verify", "verify_rows"]

_LOOKS = 3


@dataclass(frozen=True, slots=True)
class VerifyPass:
    """What one look at a dataset found; ``subject`` is None if its document cannot be read. ``history`` has the entries that can."""

    subject: Inspection | None
    indices: Indices
    findings: tuple[Finding, ...]
    counts: Counts
    history: History = field(default_factory=History)


def verify(store: Store, uuid: str, *, deep: bool) -> VerifyPass:
    """Verify the documents, schema files, index files and keys of a dataset; no data file is read.

    ``deep`` leaves to `verify_rows` what only rows can tell. If the dataset is changed meanwhile, what looks like a fault may be the change:
    then it is looked at again, a few times.

    Raises
    ------
    DatasetNotFound
        If there is no document.
    """
    look, changed = _look(store, uuid, deep=deep)
    for _ in range(_LOOKS - 1):
        if not changed:
            break
        look, changed = _look(store, uuid, deep=deep)
    return look


def _look(store: Store, uuid: str, *, deep: bool) -> tuple[VerifyPass, bool]:
    """One look, and whether it found fault while the document was changed."""
    stored, findings = documents_of(store, uuid)
    if stored is None:
        return VerifyPass(None, Indices(), tuple(findings), Counts(datasets=1)), False
    look = _looked_at(store, stored, findings)
    if not deep and look.subject is not None:
        look = replace(look, findings=(*look.findings, *coverage_findings(look.subject, look.indices)))
    return look, any(f.severity != "info" for f in look.findings) and store.changed(stored.key, stored.token)


def _looked_at(store: Store, stored: StoredDocument, findings: Sequence[Finding]) -> VerifyPass:
    subject, damage = subject_of(store, stored)
    indices, history = indices_of(store, subject), history_of(store, subject)
    found = [
        *findings,
        *damage,
        *commit_findings(subject),
        *history_findings(subject, history),
        *file_findings(store, subject),
        *label_findings(subject),
        *schema_findings(subject),
        *index_findings(subject, indices),
        *migration_findings(subject),
        *leftover_findings(subject, history.kept),
    ]
    keys = named_files(subject).column("key").to_pylist()
    size = sum(subject.entries[key].size or 0 for key in set(keys) & subject.entries.keys())
    counts = Counts(1, len(subject.snapshot.partitions), len(keys), size)
    return VerifyPass(subject, indices, tuple(found), counts, history)


def verify_rows(store: Store, look: VerifyPass, cells: Sequence[str] = ()) -> VerifyPass:
    """The same with the checks that read all data; ``cells`` are the dimension columns, in order, of a dataset of a cube."""
    subject = look.subject
    if subject is None or not subject.decoded:
        return look
    present = [c for c in cells if c in subject.snapshot.schema.names]
    findings, rows = row_findings(store, subject, look.indices, present)
    return replace(look, findings=(*look.findings, *findings), counts=look.counts + Counts(rows=rows))
