"""Older snapshots: history entries lead back from the newest state, commit by commit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from kartothek_cube.core.metadata.commit_log import Commit, CubeCommit, fingerprint
from kartothek_cube.core.metadata.document import Document
from kartothek_cube.core.metadata.history_entry import HistoryEntry, document_before_all
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.metadata.tag import TaggedState, may_be_tag
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.snapshots.past_state import past_snapshot, read_entry
from kartothek_cube.core.snapshots.tags import known_tag, list_tags, read_state
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.errors import CorruptDocument, HistoryUnavailable, InvalidType

__all__ = [
    "AsOf",
    "BeforeCreation",
    "PastState",
    "StatePair",
    "Target",
    "check_as_of",
    "foreign_commits",
    "is_wanted",
    "known_since",
    "load_snapshot_as_of",
    "older_snapshot",
    "snapshot_at",
    "snapshots_between",
    "states",
]

AsOf: TypeAlias = str | datetime
"""The id of a commit, the name of a tag, or a moment, which is UTC if it has no zone."""

Target: TypeAlias = AsOf | TaggedState
"""What ``as_of=`` means for one dataset; a tagged state if the tag has been looked up already."""

_READ_AHEAD = 16


@dataclass(frozen=True, slots=True)
class PastState:
    """A dataset as it was after one commit.

    ``commit`` and ``time`` are None if a foreign writer came last; ``parent`` is None also for the
    first commit. ``entry`` has the difference from the state before; None if it is not kept.
    """

    commit: str | None
    parent: str | None
    time: datetime | None
    cube: CubeCommit | None
    document: Document
    entry: HistoryEntry | None


def check_as_of(as_of: object, argument: str = "as_of") -> AsOf | None:
    """A commit or tag, or a moment with its zone; ``argument`` is its name for errors.

    Text in ISO form is a moment: ids have another form, and tags may not have it.

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
    raise InvalidType(
        f"{argument} is the id of a commit or a tag (text), or a moment (datetime), not {type(as_of).__name__}: "
        f"{as_of!r}."
    )


class StatePair(NamedTuple):
    """Two states of one dataset.

    ``order`` is negative if ``before`` is the older one, 0 if both are the same state.
    """

    before: Snapshot
    after: Snapshot
    order: int


class _Found(NamedTuple):
    """A state, the number of commits since (None if not known), and the time of its commit."""

    snapshot: Snapshot
    age: int | None
    time: datetime | None


class BeforeCreation(HistoryUnavailable):
    """The dataset did not exist at the moment of ``as_of``."""


def load_snapshot_as_of(store: Store, uuid: str, as_of: object = None) -> Snapshot:
    """The snapshot of a dataset after a commit, of a tag, or at a moment; None is the newest.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist now.
    HistoryUnavailable
        If the history does not reach back so far, or has no such commit or tag.
    """
    target, newest = check_as_of(as_of), load_snapshot(store, uuid)
    return newest if target is None else snapshot_at(store, newest, target)


def snapshot_at(store: Store, newest: Snapshot, as_of: Target, *, only_history: bool = False) -> Snapshot:
    """The snapshot at ``as_of``, found from the newest one; errors as of `load_snapshot_as_of`.

    A commit that history has lost is found by its tag, unless ``only_history`` counts.

    Raises
    ------
    BeforeCreation
        For a moment before the dataset was created.
    """
    (found,) = _snapshots(store, newest, [as_of], only_history=only_history)
    return found.snapshot


def snapshots_between(store: Store, newest: Snapshot, since: Target, until: Target | None) -> StatePair:
    """The states at ``since`` and ``until`` (None: the newest), found in one walk.

    Raises
    ------
    HistoryUnavailable
        If the history does not reach back to one of them.
    """
    before, after = _snapshots(store, newest, [since, until])
    return StatePair(before.snapshot, after.snapshot, _order(before, after))


def _order(before: _Found, after: _Found) -> int:
    if before.age is not None and after.age is not None:
        return after.age - before.age
    # A tag may name a state that history has lost. Then only the clocks of the writers tell.
    if before.time is not None and after.time is not None:
        return (before.time > after.time) - (before.time < after.time)
    return (before.age is not None) - (after.age is not None)


def _snapshots(
    store: Store, newest: Snapshot, targets: Sequence[Target | None], *, only_history: bool = False
) -> list[_Found]:
    """The state at each target."""
    last = newest.chain[-1].time if newest.chain and not newest.has_foreign_commit else None
    found, rest = dict[Target | None, _Found](), list[AsOf]()
    for as_of in targets:
        if isinstance(as_of, TaggedState) or may_be_tag(as_of):
            found[as_of] = _tagged(store, newest, as_of)
        elif as_of is None or _is_newest(newest, as_of):
            found[as_of] = _Found(newest, 0, last)
        else:
            rest.append(as_of)
    if found.keys() >= set(targets):
        return [found[as_of] for as_of in targets]
    oldest, entries = PastState(None, None, None, None, newest.document, None), list[HistoryEntry]()
    for age, (commit, entry) in enumerate(() if newest.has_foreign_commit else _walk(store, newest, rest)):
        for as_of in rest:
            if as_of not in found and is_wanted(commit.id, commit.time, commit.cube, as_of):
                snapshot = _older(store, newest, commit, entries) if age else newest
                found[as_of] = _Found(snapshot, age, commit.time)
        if found.keys() >= set(targets):
            return [found[as_of] for as_of in targets]
        oldest = PastState(commit.id, commit.parent, commit.time, commit.cube, newest.document, entry)
        if entry is not None:
            entries.append(entry)
    lost = [as_of for as_of in rest if isinstance(as_of, str) and as_of not in found]
    if lost and not only_history:
        pinned = {tag.state.commit: tag.state for tag in list_tags(store, newest.uuid)}
        found |= {as_of: _tagged(store, newest, pinned[as_of]) for as_of in lost if as_of in pinned}
        if found.keys() >= set(targets):
            return [found[as_of] for as_of in targets]
    missing = next(as_of for as_of in rest if as_of not in found)
    target = missing.isoformat() if isinstance(missing, datetime) else f"commit {missing!r}"
    is_first = oldest.entry is not None and oldest.entry.before is None
    reason = known_since(newest, oldest)
    if is_first and not isinstance(missing, datetime):
        reason = f"it has no such commit, and its history is whole: {reason}"
    text = (
        f"Dataset {newest.uuid!r} cannot be read as of {target}: {reason}. `history` lists the commits that are kept."
    )
    raise BeforeCreation(text) if is_first and isinstance(missing, datetime) else HistoryUnavailable(text)


def _tagged(store: Store, newest: Snapshot, as_of: Target | None) -> _Found:
    """The state that a tag names."""
    state = as_of if isinstance(as_of, TaggedState) else known_tag(store, newest.uuid, str(as_of)).state
    age = None if state.commit is None or newest.has_foreign_commit else _age(newest, state.commit)
    return _Found(older_snapshot(store, newest, read_state(store, state), state.commit), age, state.time)


def _is_newest(newest: Snapshot, as_of: AsOf) -> bool:
    if newest.has_foreign_commit:
        # A foreign writer leaves no time: the newest state is certain for moments from now on only.
        return isinstance(as_of, datetime) and as_of >= datetime.now(UTC)
    last = newest.chain[-1]
    return is_wanted(last.id, last.time, last.cube, as_of)


def is_wanted(commit: str | None, time: datetime | None, cube: CubeCommit | None, as_of: AsOf) -> bool:
    """Whether ``as_of`` names a commit; of several, from the newest back, the first one counts."""
    if isinstance(as_of, datetime):
        return time is not None and time <= as_of
    return as_of in (commit, None if cube is None else cube.id)


def known_since(newest: Snapshot, oldest: PastState) -> str:
    """The reason why no state before the oldest one is known, for errors."""
    if newest.has_foreign_commit:
        after = f", after commit {newest.chain[-1].id}{_when(newest.chain[-1].time)}" if newest.chain else ""
        return f"a writer that keeps no history (kartothek, plateau) came last{after}"
    when = _when(oldest.time)
    if oldest.entry is not None and oldest.entry.before is None:
        return f"it was made by commit {oldest.commit}{when}"
    if oldest.entry is not None and oldest.entry.parent is None:
        return f"before commit {oldest.commit}{when} came a writer that keeps no history (kartothek, plateau)"
    return f"history is kept since commit {oldest.commit}{when}"


def _when(time: datetime | None) -> str:
    return "" if time is None else f" of {time.isoformat(timespec='seconds')}"


def foreign_commits(store: Store, datasets: Iterable[Snapshot]) -> str:
    """Where a writer that keeps no history ends what is known of datasets, as further sentences.

    Empty if it does nowhere. For errors that name several datasets.
    """

    def found(newest: Snapshot) -> str:
        oldest = PastState(None, None, None, None, newest.document, None)
        with suppress(CorruptDocument):
            for state in states(store, newest):
                oldest = state
        entry = oldest.entry
        is_between = entry is not None and entry.parent is None and entry.before is not None
        reason = known_since(newest, oldest) if newest.has_foreign_commit or is_between else ""
        return f" Dataset {newest.uuid!r}: {reason}." if reason else ""

    return "".join(map_in_threads(found, list(datasets), store=store))


def states(store: Store, newest: Snapshot) -> Iterator[PastState]:
    """The newest state and those before it, as far as entries are kept.

    Raises
    ------
    CorruptDocument
        If an entry cannot be read, or does not lead to the state before its commit. The known
        states come first.
    """
    document = replace(newest.document, partitions=newest.partitions)
    if newest.has_foreign_commit:
        yield PastState(None, None, None, None, document, None)
        return
    later: HistoryEntry | None = None
    for commit, entry in _walk(store, newest):
        if later is not None:
            document = _before(document, commit, [later])
        yield PastState(commit.id, commit.parent, commit.time, commit.cube, document, entry)
        later = entry


def _walk(
    store: Store, newest: Snapshot, targets: Sequence[AsOf | None] = ()
) -> Iterator[tuple[Commit, HistoryEntry | None]]:
    """The commits from the newest back with their entries; the last may have none."""
    commits = {c.id: c for c in newest.chain}
    commit = newest.chain[-1]
    for entry in _entries(store, newest, targets):
        if not isinstance(entry, HistoryEntry):
            yield commit, None
            if entry is not None:
                raise entry
            return
        time, cube = commit.time or entry.time, commit.cube or entry.cube
        yield replace(commit, parent=entry.parent, time=time, cube=cube), entry
        if entry.before is None or entry.parent is None:
            return
        if commit.parent not in (None, entry.parent):
            raise _astray(newest.uuid, entry)
        # An older commit than those of the chain has neither parent nor fingerprint.
        commit = commits.get(entry.parent, Commit(entry.parent, None, ""))


def _before(after: Document, commit: Commit, entries: Sequence[HistoryEntry]) -> Document:
    """The document that a commit has left, before some entries; checked by its fingerprint."""
    before, header = document_before_all(entries, after), entries[-1].before
    listed = before.partitions if header is not None and header.explicit else None
    if commit.fingerprint and commit.fingerprint != fingerprint(listed):
        raise _astray(after.uuid, entries[-1])
    return before


def _astray(uuid: str, entry: HistoryEntry) -> CorruptDocument:
    return CorruptDocument(
        f"Dataset {uuid!r}: the history entry of commit {entry.commit} does not lead to commit {entry.parent}."
    )


def _older(store: Store, newest: Snapshot, commit: Commit, entries: Sequence[HistoryEntry]) -> Snapshot:
    document = _before(replace(newest.document, partitions=newest.partitions), commit, entries)
    return older_snapshot(store, newest, document, commit.id)


def _entries(
    store: Store, newest: Snapshot, targets: Sequence[AsOf | None]
) -> Iterator[HistoryEntry | CorruptDocument | None]:
    """The entries from the newest commit back; the last may be None (not kept) or its error."""

    def read(commit: str) -> HistoryEntry | CorruptDocument | None:
        try:
            return read_entry(store, newest.uuid, commit)
        except CorruptDocument as error:
            # Returned, since the entries that were read with this one come first.
            return error

    # The chain names its commits, so their entries are read in parallel; before it, one by one.
    ids: list[str] = [c.id for c in reversed(newest.chain)]
    seen, first = set(ids), _READ_AHEAD
    ages = [_age(newest, as_of) for as_of in targets if as_of is not None]
    if ages and None not in ages:  # no entry is read that is not needed
        first = 1 + max(age for age in ages if age is not None)
    while ids:
        parent = None
        for start, end in pairwise([0, *range(first, len(ids), _READ_AHEAD), len(ids)]):
            for entry in map_in_threads(read, ids[start:end], store=store):
                yield entry
                if not isinstance(entry, HistoryEntry):
                    return
                parent = entry.parent
        ids = [] if parent is None or parent in seen else [parent]
        seen.update(ids)


def _age(newest: Snapshot, as_of: AsOf) -> int | None:
    """The number of commits since, None where the chain does not tell."""
    commits = enumerate(reversed(newest.chain))
    return next((age for age, c in commits if is_wanted(c.id, c.time, c.cube, as_of)), None)


def older_snapshot(store: Store, newest: Snapshot, document: Document, commit: str | None) -> Snapshot:
    """An older state of a dataset as a snapshot; without a version, so that it is never cached."""
    snapshot = past_snapshot(store, document, newest.key, newest.document.indices)
    return replace(snapshot, past_commit=commit)
