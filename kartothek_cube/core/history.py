"""Older snapshots: reading history entries, and going back from the newest state by them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeAlias

from kartothek_cube.core.metadata.chain import SCHEMA_KEY, Commit, CubeCommit, fingerprint
from kartothek_cube.core.metadata.document import Document
from kartothek_cube.core.metadata.history import HistoryEntry, decode_entry, document_before, history_key
from kartothek_cube.core.metadata.snapshot import Snapshot, make_snapshot
from kartothek_cube.core.naming import index_key
from kartothek_cube.core.parallel import map_in_threads
from kartothek_cube.core.schema_file import parse_embedded_schemas
from kartothek_cube.core.snapshots import load_snapshot
from kartothek_cube.core.store import Store
from kartothek_cube.errors import CorruptDocument, InvalidInput, InvalidType, KeyNotFound

__all__ = [
    "AsOf",
    "BeforeCreation",
    "PastState",
    "check_as_of",
    "is_wanted",
    "known_since",
    "load_snapshot_as_of",
    "older_snapshot",
    "read_entry",
    "snapshot_at",
    "states",
]

AsOf: TypeAlias = str | datetime
"""A commit's id, or a moment; one without a zone is UTC."""

_READ_AHEAD = 16
# Names the index file of a state that never wrote it.
_NEVER = datetime(1970, 1, 1)  # noqa: DTZ001 - as in the keys of indices


@dataclass(frozen=True, slots=True)
class PastState:
    """A dataset after one commit, found by going back.

    ``commit`` and ``time`` are None where a foreign writer came last, ``parent`` also for the first commit; ``entry`` says how it differs from the state
    before, and is None where that is not kept.
    """

    commit: str | None
    parent: str | None
    time: datetime | None
    cube: CubeCommit | None
    document: Document
    entry: HistoryEntry | None


def check_as_of(as_of: object) -> AsOf | None:
    """A commit's id, or a moment with its zone; text in ISO form is a moment, as no id looks like that.

    Raises
    ------
    InvalidType
        If it is neither.

    Examples
    --------
    >>> check_as_of(datetime(2024, 5, 1)).isoformat()
    '2024-05-01T00:00:00+00:00'
    >>> check_as_of("2024-05-01 12:00").isoformat()
    '2024-05-01T12:00:00+00:00'
    >>> check_as_of("0f1e2d")
    '0f1e2d'
    """
    if isinstance(as_of, datetime):
        return as_of.replace(tzinfo=UTC) if as_of.tzinfo is None else as_of.astimezone(UTC)
    if isinstance(as_of, str):
        try:
            return check_as_of(datetime.fromisoformat(as_of))
        except ValueError:
            return as_of
    if as_of is None:
        return None
    raise InvalidType(f"as_of is the id of a commit (text) or a moment (datetime), not {type(as_of).__name__}: {as_of!r}.")


class BeforeCreation(InvalidInput):
    """The dataset did not exist at the moment that was asked for."""


def load_snapshot_as_of(store: Store, uuid: str, as_of: object = None) -> Snapshot:
    """The snapshot of a dataset as it was after a commit or at a moment; with None the newest.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist now.
    InvalidInput
        If the history that is kept does not reach back so far, or has no such commit.
    """
    wanted, newest = check_as_of(as_of), load_snapshot(store, uuid)
    return newest if wanted is None else snapshot_at(store, newest, wanted)


def snapshot_at(store: Store, newest: Snapshot, as_of: AsOf) -> Snapshot:
    """The older snapshot that a newest one leads back to; errors as of `load_snapshot_as_of`.

    Raises
    ------
    BeforeCreation
        For a moment before the dataset was made.
    """
    if _is_newest(newest, as_of):
        return newest
    last: PastState | None = None
    for state in states(store, newest):
        if is_wanted(state.commit, state.time, state.cube, as_of):
            return newest if last is None else older_snapshot(store, newest, state.document)
        last = state
    assert last is not None
    raise _unknown(newest, as_of, last)


def _is_newest(newest: Snapshot, as_of: AsOf) -> bool:
    if newest.has_foreign_commit:
        return isinstance(as_of, datetime) and as_of >= datetime.now(UTC)
    last = newest.chain[-1]
    return is_wanted(last.id, last.time, last.cube, as_of)


def is_wanted(commit: str | None, time: datetime | None, cube: CubeCommit | None, as_of: AsOf) -> bool:
    """Whether of the commits from the newest back, this is the first that ``as_of`` means."""
    if isinstance(as_of, datetime):
        return time is not None and time <= as_of
    return as_of in (commit, None if cube is None else cube.id)


def _unknown(newest: Snapshot, as_of: AsOf, oldest: PastState) -> InvalidInput:
    what = as_of.isoformat() if isinstance(as_of, datetime) else f"commit {as_of!r}"
    text = f"Dataset {newest.uuid!r} cannot be read as of {what}: {known_since(newest, oldest)}. `history` lists the commits that are kept."
    made = oldest.entry is not None and oldest.entry.before is None
    return BeforeCreation(text) if made and isinstance(as_of, datetime) else InvalidInput(text)


def known_since(newest: Snapshot, oldest: PastState) -> str:
    """Why nothing before the oldest state is known."""
    if newest.has_foreign_commit:
        return "a writer that keeps no history (kartothek, plateau) came last"
    when = "" if oldest.time is None else f" of {oldest.time.isoformat(timespec='seconds')}"
    if oldest.entry is not None and oldest.entry.before is None:
        return f"it was made by commit {oldest.commit}{when}"
    if oldest.entry is not None and oldest.entry.parent is None:
        return f"before commit {oldest.commit}{when} came a writer that keeps no history (kartothek, plateau)"
    return f"history is kept since commit {oldest.commit}{when}"


def states(store: Store, newest: Snapshot) -> Iterator[PastState]:
    """The newest state and those before it, as far as entries are kept.

    Raises
    ------
    CorruptDocument
        If an entry cannot be read, or does not lead to the state that its commit was made for; after the last state that is known.
    """
    document = replace(newest.document, partitions=newest.partitions)
    if newest.has_foreign_commit:
        yield PastState(None, None, None, None, document, None)
        return
    known = {c.id: c for c in newest.chain}
    commit = newest.chain[-1]
    for entry in _entries(store, newest):
        yield _state(commit, document, None if isinstance(entry, CorruptDocument) else entry)
        if isinstance(entry, CorruptDocument):
            raise entry
        before = None if entry is None else document_before(entry, document)
        if entry is None or entry.before is None or before is None or entry.parent is None:
            return
        parent = known.get(entry.parent, Commit(entry.parent, None, ""))
        if not _leads_to(parent, entry, commit, before):
            raise CorruptDocument(f"Dataset {newest.uuid!r}: the history entry of commit {entry.commit} does not lead to commit {entry.parent}.")
        document, commit = before, parent


def _leads_to(parent: Commit, entry: HistoryEntry, commit: Commit, before: Document) -> bool:
    """As far as the chain knows the parent."""
    if commit.parent not in (None, parent.id):
        return False
    listed = before.partitions if entry.before is None or entry.before.explicit else None
    return not parent.fingerprint or parent.fingerprint == fingerprint(listed)


def _state(commit: Commit, document: Document, entry: HistoryEntry | None) -> PastState:
    if entry is None:
        return PastState(commit.id, commit.parent, commit.time, commit.cube, document, None)
    return PastState(commit.id, entry.parent, commit.time or entry.time, commit.cube or entry.cube, document, entry)


def _entries(store: Store, newest: Snapshot) -> Iterator[HistoryEntry | CorruptDocument | None]:
    """The entries from the newest commit back; the last one may be None, or why it cannot be read."""
    ids: list[str] = [c.id for c in reversed(newest.chain)]
    seen = set(ids)
    while ids:
        parent = None
        for entry in _read_ahead(store, newest.uuid, ids):
            yield entry
            if not isinstance(entry, HistoryEntry):
                return
            parent = entry.parent
        ids = [] if parent is None or parent in seen else [parent]
        seen.update(ids)


def _read_ahead(store: Store, uuid: str, ids: Sequence[str]) -> Iterator[HistoryEntry | CorruptDocument | None]:
    def read(commit: str) -> HistoryEntry | CorruptDocument | None:
        try:
            return read_entry(store, uuid, commit)
        except CorruptDocument as error:
            return error

    for start in range(0, len(ids), _READ_AHEAD):
        yield from map_in_threads(read, ids[start : start + _READ_AHEAD], store=store)


def read_entry(store: Store, uuid: str, commit: str) -> HistoryEntry | None:
    """The entry of one commit; None if it is not kept.

    Raises
    ------
    CorruptDocument
        If it cannot be read.
    """
    key = history_key(uuid, commit)
    try:
        entry = decode_entry(store.get(key), key)
    except KeyNotFound:
        return None
    if entry.commit != commit:
        raise CorruptDocument(f"The history entry {key} says that it is of commit {entry.commit!r}.")
    return entry


def older_snapshot(store: Store, newest: Snapshot, document: Document) -> Snapshot:
    """An older state of a dataset as a snapshot. It has no version, so that nothing takes it for the newest one."""
    schemas = parse_embedded_schemas(str(document.metadata.get(SCHEMA_KEY)), document.uuid)
    columns = list(document.indices)
    there = map_in_threads(lambda column: _has_index(store, newest, document.indices[column], column), columns, store=store)
    lost = frozenset(column for column, found in zip(columns, there, strict=True) if not found)
    # An index that was superseded before it was written has no key.
    indices = {c: index_key(document.uuid, c, _NEVER) if key is None else key for c, key in document.indices.items()}
    return replace(make_snapshot(replace(document, indices=indices), newest.key, None, schemas), lost=lost)


def _has_index(store: Store, newest: Snapshot, key: object, column: str) -> bool:
    if not isinstance(key, str):
        return key is not None
    return newest.document.indices.get(column) == key or store.contains(key)
