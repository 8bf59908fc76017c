"""Checks of what the document says of its commits: the chain, writers that know none, unfinished conversions and renames, kept history."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.maintenance.verify.inspection import DAMAGE, Inspection
from kartothek_cube.core.maintenance.verify.report import Finding
from kartothek_cube.core.metadata.commit_log import COMMITS_KEY, MOVING_KEY, Commit
from kartothek_cube.core.metadata.history_entry import HistoryEntry, decode_entry, is_history_key
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.runtime.progress import Phase
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.text import pluralize
from kartothek_cube.errors import KeyNotFound

__all__ = ["History", "commit_findings", "history_findings", "history_of"]


@dataclass(frozen=True, slots=True)
class History:
    """The kept history entries of a dataset that can be read, oldest first, and findings about the others."""

    entries: tuple[HistoryEntry, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def kept(self) -> frozenset[str]:
        """Keys that older snapshots need: data files; without their indices they answer more slowly."""
        return frozenset(key for entry in self.entries for key in entry.files)


def commit_findings(subject: Inspection) -> Iterator[Finding]:
    """An unfinished conversion or rename, a chain that is damaged, and a writer without commit ids that came last."""
    document, uuid = subject.snapshot.document, subject.uuid
    if MOVING_KEY in document.metadata:
        text = "A rename or a conversion of the document was interrupted, or is under way. Nobody can commit until it is finished."
        mend = f"call rename_dataset or convert_metadata_format({uuid!r}, ...) again, whichever it was"
        yield Finding("warning", "moving", uuid, text, key=subject.snapshot.key, mend=mend)
    chain = subject.snapshot.chain
    if COMMITS_KEY in document.metadata and not _is_linked(chain):
        text = "The list of commits cannot be read, or an entry does not name the one before it. Outcomes of commits cannot be told from it."
        yield Finding(
            "warning",
            "commit-chain",
            uuid,
            text,
            key=subject.snapshot.key,
            mend="any commit of this library begins a new list",
        )
    elif chain and subject.snapshot.has_foreign_commit:
        text = f"A writer without commit ids (kartothek, plateau) committed after {chain[-1].id}. Two such writers at a time lose each other's rows."
        yield Finding(
            "warning",
            "foreign-commit",
            uuid,
            text,
            key=subject.snapshot.key,
            mend="let one library write at a time; the next commit of this one begins a new list",
        )


def _is_linked(chain: Sequence[Commit]) -> bool:
    return (
        bool(chain)
        and all(newer.parent == older.id for older, newer in pairwise(chain))
        and len({c.id for c in chain}) == len(chain)
    )


# --- history --------------------------------------------------------------------------------------


def history_of(store: Store, subject: Inspection) -> History:
    """The history entries that lie below the dataset."""
    keys = [key for key in subject.entries if is_history_key(subject.uuid, key)]
    found = list(map_in_threads(lambda key: _entry(store, subject.uuid, key), keys, phase=Phase("verify", "commits")))
    entries = sorted(
        (e for e in found if isinstance(e, HistoryEntry)), key=lambda e: e.time
    )  # None has been collected since it was listed
    return History(tuple(entries), tuple(f for f in found if isinstance(f, Finding)))


def _entry(store: Store, uuid: str, key: str) -> HistoryEntry | Finding | None:
    try:
        return decode_entry(store.get(key), key)
    except KeyNotFound:
        return None
    except DAMAGE as error:
        return Finding(
            "warning",
            "history-unreadable",
            uuid,
            f"Snapshots before this commit cannot be read. {error}",
            key=key,
            mend=f"delete {key!r}",
        )


def history_findings(subject: Inspection, history: History) -> Iterator[Finding]:
    """What cannot be gone back to: entries that cannot be read, and files that they need and that are gone; and writers without commit ids in between."""
    yield from history.findings
    data = {key for entry in history.entries for key in entry.files}
    lost = sorted(key for key in data if key.startswith(f"{subject.uuid}/") and key not in subject.entries)
    for key in lost:
        yield Finding(
            "warning",
            "history-file",
            subject.uuid,
            "A file that only older snapshots need is not in the store; they cannot be read.",
            key=key,
        )
    # All but the oldest that began a new list of commits on a dataset that was there.
    between = [e for e in history.entries[1:] if e.parent is None and e.before is not None]
    if between or subject.snapshot.has_foreign_commit:
        yield from _lost(subject, history)
    if between:
        text = f"A writer without commit ids (kartothek, plateau) committed before {between[-1].commit}. Older commits cannot be gone back to."
        yield Finding("info", "foreign-between", subject.uuid, text, count=len(between))


def _lost(subject: Inspection, history: History) -> Iterator[Finding]:
    """Commits of which nothing is left and that no other commit took back: a writer that does not compare overwrites what it has not seen."""
    chain = {commit.id for commit in subject.snapshot.chain}
    removed = [entry.removed.labels for entry in history.entries]
    known = pa.concat_arrays([subject.snapshot.partitions.labels, *removed])
    for entry in history.entries:
        if (
            entry.commit not in chain
            and len(entry.added)
            and not pc.any(pc.is_in(entry.added, value_set=known)).as_py()
        ):
            when = f"{entry.time:%Y-%m-%d %H:%M} UTC"
            text = f"Nothing is left of the {pluralize(len(entry.added), 'partition')} that commit {entry.commit} added at {when}:"
            text += " it failed, or a writer without commit ids (kartothek, plateau) removed or overwrote them."
            mend = "write the rows again if they were lost; until garbage collection their files lie under the label"
            yield Finding("warning", "lost-commit", subject.uuid, text, label=entry.added[0].as_py(), mend=mend)
