"""Checks of the commit list, of unfinished conversions and renames, and of the kept history."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.arguments import pluralize
from kartothek_cube.core.maintenance.verify.inspection import DAMAGE, Inspection
from kartothek_cube.core.maintenance.verify.report import Finding
from kartothek_cube.core.metadata.commit_log import COMMITS_KEY, MOVING_KEY
from kartothek_cube.core.metadata.history_entry import HistoryEntry, decode_entry, is_history_key
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.runtime.options import Phase
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.errors import KeyNotFound

__all__ = ["History", "commit_findings", "history_findings", "history_of"]


@dataclass(frozen=True, slots=True)
class History:
    """The readable history entries of a dataset, oldest first, and findings about the others."""

    entries: tuple[HistoryEntry, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def kept(self) -> frozenset[str]:
        """Keys of the data files that older snapshots need."""
        # Not those of index files: without them older snapshots are only slower.
        return frozenset(key for entry in self.entries for key in entry.files)


def commit_findings(subject: Inspection) -> Iterator[Finding]:
    """An unfinished conversion or rename, a damaged commit list, a last commit without id."""
    document, uuid = subject.snapshot.document, subject.uuid
    if MOVING_KEY in document.metadata:
        text = (
            "A rename or a conversion of the document was interrupted, or is under way. "
            "No commit succeeds until it is finished."
        )
        mend = f"call rename_dataset or convert_metadata_format({uuid!r}, ...) again, whichever it was"
        yield Finding("warning", "moving", uuid, text, key=subject.snapshot.key, mend=mend)
    chain = subject.snapshot.chain
    has_parents = all(newer.parent == older.id for older, newer in pairwise(chain))
    is_linked = bool(chain) and has_parents and len({c.id for c in chain}) == len(chain)
    if COMMITS_KEY in document.metadata and not is_linked:
        text = (
            "The list of commits cannot be read, or an entry does not name the one before it. "
            "It does not show which commits landed."
        )
        mend = "any commit of this library begins a new list"
        yield Finding("warning", "commit-chain", uuid, text, key=subject.snapshot.key, mend=mend)
    elif chain and subject.snapshot.has_foreign_commit:
        text = (
            f"A writer without commit ids (kartothek, plateau) committed after {chain[-1].id}. "
            "Two such writers at a time lose each other's rows."
        )
        mend = "let one library write at a time; the next commit of this one begins a new list"
        yield Finding("warning", "foreign-commit", uuid, text, key=subject.snapshot.key, mend=mend)


# --- history --------------------------------------------------------------------------------------


def history_of(store: Store, subject: Inspection) -> History:
    """Read the history entries of a dataset."""

    def read(key: str) -> HistoryEntry | Finding | None:
        try:
            return decode_entry(store.get(key), key)
        except KeyNotFound:
            return None  # a garbage collection removed it since the listing
        except DAMAGE as error:
            text = f"Snapshots before this commit cannot be read. {error}"
            return Finding("warning", "history-unreadable", subject.uuid, text, key=key, mend=f"delete {key!r}")

    keys = [key for key in subject.entries if is_history_key(subject.uuid, key)]
    results = list(map_in_threads(read, keys, phase=Phase("verify", "commits")))
    entries = sorted((e for e in results if isinstance(e, HistoryEntry)), key=lambda e: e.time)
    return History(tuple(entries), tuple(f for f in results if isinstance(f, Finding)))


def history_findings(subject: Inspection, history: History) -> Iterator[Finding]:
    """Older snapshots that cannot be read, and commits without id in between."""
    yield from history.findings
    data = {key for entry in history.entries for key in entry.files}
    for key in sorted(key for key in data if key.startswith(f"{subject.uuid}/") and key not in subject.entries):
        text = "A file that only older snapshots need is not in the store; they cannot be read."
        yield Finding("warning", "history-file", subject.uuid, text, key=key)
    # Entries that began a new commit list on an existing dataset; for the oldest it is normal.
    restarts = [e for e in history.entries[1:] if e.parent is None and e.before is not None]
    if restarts or subject.snapshot.has_foreign_commit:
        yield from _lost_commits(subject, history)
    if restarts:
        text = (
            f"A writer without commit ids (kartothek, plateau) committed before {restarts[-1].commit}. "
            "Older commits cannot be gone back to."
        )
        yield Finding("info", "foreign-between", subject.uuid, text, count=len(restarts))


def _lost_commits(subject: Inspection, history: History) -> Iterator[Finding]:
    """Commits whose partitions have all vanished, although no other commit removed them."""
    # A writer that does not compare and swap overwrites commits that it has not seen.
    chain = {commit.id for commit in subject.snapshot.chain}
    removed = [entry.removed.labels for entry in history.entries]
    accounted = pa.concat_arrays([subject.snapshot.partitions.labels, *removed])
    for entry in history.entries:
        if entry.commit in chain or not len(entry.added):
            continue
        if not pc.any(pc.is_in(entry.added, value_set=accounted)).as_py():
            text = (
                f"Nothing is left of the {pluralize(len(entry.added), 'partition')} that commit {entry.commit} added "
                f"at {entry.time:%Y-%m-%d %H:%M} UTC: it failed, or a writer without commit ids (kartothek, plateau) "
                "removed or overwrote them."
            )
            mend = "write the rows again if they were lost; their files stay until garbage collection"
            yield Finding("warning", "lost-commit", subject.uuid, text, label=entry.added[0].as_py(), mend=mend)
