"""Older snapshots: history entries lead back from the newest state, and tags name states.

In order:

- tags: found, listed, and the states that they name
- walking back
- the commits that history keeps or the chain names
- making and dropping tags: the state, the tag, a look whether the files stayed
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from kartothek_cube.core.metadata.commit_log import SCHEMA_KEY, Commit, fingerprint
from kartothek_cube.core.metadata.document import OWN_PREFIX, STATE_KEYS, Document
from kartothek_cube.core.metadata.history_entry import HistoryEntry, document_before_all
from kartothek_cube.core.metadata.naming import new_id
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.metadata.tag import (
    TAGS_FOLDER,
    Tag,
    TaggedState,
    decode_state,
    decode_tag,
    encode_state,
    encode_tag,
    is_tag_key,
    may_be_tag,
    name_of_key,
    names_text,
    new_state_key,
    state_document,
    tag_key,
)
from kartothek_cube.core.runtime.executor import at_once, map_in_threads, thread_count
from kartothek_cube.core.snapshots.documents import compare_and_swap
from kartothek_cube.core.snapshots.loader import last_seen, load_snapshot, past_snapshot, read_entry
from kartothek_cube.core.stores.contract import Store, Version
from kartothek_cube.errors import AlreadyExists, CorruptDocument, HistoryUnavailable, InvalidType, KeyNotFound


class StoredTag(Struct, frozen=True):
    """A tag and the version of its object."""

    tag: Tag
    version: Version


def read_tag(store: Store, uuid: str, name: str) -> StoredTag | None:
    """The object of a tag, or None; whether it counts is for `find_tag` to say."""
    key = tag_key(uuid, name)
    try:
        data, version = store.get_versioned(key)
    except KeyNotFound:
        return None
    return StoredTag(decode_tag(data, key), version)


def find_tag(store: Store, uuid: str, name: str) -> Tag | None:
    """The tag of a name, or None if there is none.

    A share in a cube's tag counts as long as the seed has that tag: its object is put last, and
    removed first.
    """
    found = read_tag(store, uuid, name)
    return found.tag if found is not None and counting_tags(store, [found.tag]) else None


def known_tag(store: Store, uuid: str, name: str) -> Tag:
    """The tag of a name.

    Raises
    ------
    HistoryUnavailable
        If there is none; the message has those that exist.
    """
    found = find_tag(store, uuid, name)
    if found is None:
        raise HistoryUnavailable(
            f"Dataset {uuid!r} has no tag {name!r}: {names_text(name, tag_names(store, uuid))} "
            "`history` lists commits and tags. A time is written as 2024-01-31 or 2024-01-31T12:00."
        )
    return found


def counting_tags(store: Store, tags: Sequence[Tag]) -> list[Tag]:
    """The tags that count: not those whose cube tag is gone."""
    shares = [tag for tag in tags if tag.is_share]
    vain = zip(shares, map_in_threads(lambda tag: is_orphaned(store, tag), shares, store=store), strict=True)
    ids = {tag.id for tag, is_one in vain if is_one}
    return [tag for tag in tags if tag.id not in ids]


def is_orphaned(store: Store, share: Tag, tags: Mapping[str, Tag | CorruptDocument | None] | None = None) -> bool:
    """Whether the seed does not have the tag to which a share belongs.

    One call, unless it is among ``tags``, which have been read just now.
    """
    key = tag_key(str(share.seed), share.name)
    whole = tags[key] if tags is not None and key in tags else stored_tags(store, [key])[key]
    # One that cannot be read is unknown, and the state of the share can be read.
    return whole is None or (isinstance(whole, Tag) and whole.id != share.id)


def tag_names(store: Store, uuid: str) -> list[str]:
    """The names of the tags of a dataset. One listing request. Includes orphaned shares."""
    with suppress(KeyNotFound):
        keys = store.list(f"{uuid}/{TAGS_FOLDER}/").keys
        return sorted(name_of_key(key) for key in keys if is_tag_key(key))
    return []


def stored_tags(store: Store, keys: Iterable[str]) -> dict[str, Tag | CorruptDocument | None]:
    """The tags of these keys, read in parallel: an error if unreadable, None if gone."""

    def read(key: str) -> Tag | CorruptDocument | None:
        try:
            return decode_tag(store.get(key), key)
        except KeyNotFound:
            return None
        except CorruptDocument as error:
            return error

    wanted = [key for key in keys if is_tag_key(key)]
    return dict(zip(wanted, map_in_threads(read, wanted, store=store), strict=True))


def readable_tags(store: Store, uuid: str) -> list[Tag]:
    """The tags of a dataset that can be read, by name. Includes orphaned shares."""
    keys = (tag_key(uuid, name) for name in tag_names(store, uuid))
    tags = [tag for tag in stored_tags(store, keys).values() if isinstance(tag, Tag)]
    return sorted(tags, key=lambda tag: tag.name)


def list_tags(store: Store, uuid: str) -> list[Tag]:
    """The tags of a dataset that can be read and count, by name."""
    return counting_tags(store, readable_tags(store, uuid))


def read_state(store: Store, state: TaggedState) -> Document:
    """The document of a tagged state.

    Raises
    ------
    HistoryUnavailable
        If the state is not in the store any more.
    CorruptDocument
        If it cannot be read.
    """
    try:
        return decode_state(store.get(state.key), state.key)
    except KeyNotFound:
        raise HistoryUnavailable(
            f"Dataset {state.uuid!r}: tag {state.name!r} has lost its state. The tag was dropped meanwhile, "
            "or the dataset was deleted since."
        ) from None


# --- walking back ---------------------------------------------------------------------------------


AsOf: TypeAlias = str | datetime
"""The id of a commit, the name of a tag, or a moment, which is UTC if it has no zone."""

Target: TypeAlias = AsOf | TaggedState
"""What ``as_of=`` means for one dataset; a tagged state if the tag has been looked up already."""

_READ_AHEAD = 16


class PastState(Struct, frozen=True):
    """A dataset as it was after one commit.

    ``last`` is the commit, None if a foreign writer came last. ``entry`` has the difference from
    the state before; None if it is not kept.
    """

    last: Commit | None
    document: Document
    entry: HistoryEntry | None = None

    @property
    def commit(self) -> str | None:
        """The id of the commit."""
        return None if self.last is None else self.last.id

    @property
    def time(self) -> datetime | None:
        """The time of the commit."""
        return None if self.last is None else self.last.time


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


class ResolvedState(NamedTuple):
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


def _order(before: ResolvedState, after: ResolvedState) -> int:
    if before.age is not None and after.age is not None:
        return after.age - before.age
    # A tag may name a state that history has lost. Then only the clocks of the writers tell.
    if before.time is not None and after.time is not None:
        return (before.time > after.time) - (before.time < after.time)
    return (before.age is not None) - (after.age is not None)


def _snapshots(
    store: Store, newest: Snapshot, targets: Sequence[Target | None], *, only_history: bool = False
) -> list[ResolvedState]:
    """The state at each target."""
    last = newest.chain[-1].time if newest.chain and not newest.has_foreign_commit else None
    found, rest = dict[Target | None, ResolvedState](), list[AsOf]()
    for as_of in targets:
        if isinstance(as_of, TaggedState) or may_be_tag(as_of):
            found[as_of] = _tagged(store, newest, as_of)
        elif as_of is None or _is_newest(newest, as_of):
            found[as_of] = ResolvedState(newest, 0, last)
        else:
            rest.append(as_of)
    if found.keys() >= set(targets):
        return [found[as_of] for as_of in targets]
    oldest, entries = PastState(None, newest.document), list[HistoryEntry]()
    for age, (commit, entry) in enumerate(() if newest.has_foreign_commit else _walk(store, newest, rest)):
        for as_of in rest:
            if as_of not in found and is_wanted(commit, as_of):
                snapshot = newest
                if age:
                    document = _before(replace(newest.document, partitions=newest.partitions), commit, entries)
                    snapshot = older_snapshot(store, newest, document, commit.id)
                found[as_of] = ResolvedState(snapshot, age, commit.time)
        if found.keys() >= set(targets):
            return [found[as_of] for as_of in targets]
        oldest = PastState(commit, newest.document, entry)
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


def _tagged(store: Store, newest: Snapshot, as_of: Target | None) -> ResolvedState:
    """The state that a tag names."""
    state = as_of if isinstance(as_of, TaggedState) else known_tag(store, newest.uuid, str(as_of)).state
    age = None if state.commit is None or newest.has_foreign_commit else _age(newest, state.commit)
    return ResolvedState(older_snapshot(store, newest, read_state(store, state), state.commit), age, state.time)


def _is_newest(newest: Snapshot, as_of: AsOf) -> bool:
    if newest.has_foreign_commit:
        # A foreign writer leaves no time: the newest state is certain for moments from now on only.
        return isinstance(as_of, datetime) and as_of >= datetime.now(UTC)
    return is_wanted(newest.chain[-1], as_of)


def is_wanted(commit: Commit | None, as_of: AsOf) -> bool:
    """Whether ``as_of`` names a commit; of several, from the newest back, the first one counts."""
    if commit is None:
        return False
    if isinstance(as_of, datetime):
        return commit.time is not None and commit.time <= as_of
    return as_of in (commit.id, None if commit.cube is None else commit.cube.id)


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
        oldest = PastState(None, newest.document)
        with suppress(CorruptDocument):
            for state in states(store, newest):
                oldest = state
        entry = oldest.entry
        is_between = entry is not None and entry.parent is None and entry.before is not None
        reason = known_since(newest, oldest) if newest.has_foreign_commit or is_between else ""
        return f" Dataset {newest.uuid!r}: {reason}." if reason else ""

    return "".join(map_in_threads(found, list(datasets), store=store))


def load_with_entries(store: Store, uuid: str) -> tuple[Snapshot, dict[str, HistoryEntry]]:
    """The newest snapshot, and history entries that it is likely to have, by commit.

    Of a far store both come at once: the entries are those of the state that was seen last.
    """
    seen = last_seen(store, uuid) if store.is_remote and thread_count(store) > 1 else None
    chain = () if seen is None or seen.has_foreign_commit else seen.chain
    commits = [commit.id for commit in reversed(chain)][:_READ_AHEAD]

    def read(commit: str) -> HistoryEntry | None:
        with suppress(CorruptDocument):
            return read_entry(store, uuid, commit)
        return None

    tasks: list[Callable[[], Any]] = [partial(load_snapshot, store, uuid), *(partial(read, c) for c in commits)]
    newest, *entries = map_in_threads(lambda task: task(), tasks, store=store)
    return newest, {entry.commit: entry for entry in entries if entry is not None}


def states(
    store: Store, newest: Snapshot, known: Mapping[str, HistoryEntry] = MappingProxyType({})
) -> Iterator[PastState]:
    """The newest state and those before it, as far as entries are kept.

    ``known`` are entries that need not be read.

    Raises
    ------
    CorruptDocument
        If an entry cannot be read, or does not lead to the state before its commit. The known
        states come first.
    """
    document = replace(newest.document, partitions=newest.partitions)
    if newest.has_foreign_commit:
        yield PastState(None, document)
        return
    later: HistoryEntry | None = None
    for commit, entry in _walk(store, newest, known=known):
        if later is not None:
            document = _before(document, commit, [later])
        yield PastState(commit, document, entry)
        later = entry


def _walk(
    store: Store,
    newest: Snapshot,
    targets: Sequence[AsOf | None] = (),
    known: Mapping[str, HistoryEntry] = MappingProxyType({}),
) -> Iterator[tuple[Commit, HistoryEntry | None]]:
    """The commits from the newest back with their entries; the last may have none."""
    commits = {c.id: c for c in newest.chain}
    commit = newest.chain[-1]
    for entry in _entries(store, newest, targets, known):
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


def _entries(
    store: Store, newest: Snapshot, targets: Sequence[AsOf | None], known: Mapping[str, HistoryEntry]
) -> Iterator[HistoryEntry | CorruptDocument | None]:
    """The entries from the newest commit back; the last may be None (not kept) or its error."""

    def read(commit: str) -> HistoryEntry | CorruptDocument | None:
        try:
            return known.get(commit) or read_entry(store, newest.uuid, commit)
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
    return next((age for age, c in commits if is_wanted(c, as_of)), None)


def older_snapshot(store: Store, newest: Snapshot, document: Document, commit: str | None) -> Snapshot:
    """An older state of a dataset as a snapshot; without a version, so that it is never cached."""
    snapshot = past_snapshot(store, document, newest.key, newest.document.indices)
    return replace(snapshot, past_commit=commit)


# --- the commits that history keeps or the chain names --------------------------------------------


class PastCommit(Commit, frozen=True):
    """A commit, and what history knows of it.

    Attributes
    ----------
    added, removed : int | None
        Numbers of partitions; None once history has expired.
    kept : bool
        Whether history has the state after the commit.
    creates : bool
        Whether the commit is known to have created the dataset.
    is_empty : bool
        Whether the commit is known to have changed nothing.
    """

    added: int | None = None
    removed: int | None = None
    kept: bool = False
    creates: bool = False
    is_empty: bool = False


def past_commits(store: Store, newest: Snapshot) -> list[PastCommit]:
    """The known commits of a dataset, newest first."""
    found: dict[str, PastCommit] = {}
    # History ends at the first entry that cannot be read.
    with suppress(CorruptDocument):
        for state in states(store, newest):
            if state.last is not None:
                found[state.last.id] = _past_commit(state.last, state)
    # The document's chain of commits reaches further back than the history entries.
    older = (_past_commit(commit, None) for commit in reversed(newest.chain) if commit.id not in found)
    return [*found.values(), *older]


def _past_commit(commit: Commit, state: PastState | None) -> PastCommit:
    """A commit with what its state tells, if history has it."""
    past = PastCommit(commit.id, commit.parent, commit.fingerprint, commit.time, commit.cube, kept=state is not None)
    if state is None or (entry := state.entry) is None:
        return past
    return replace(
        past,
        added=len(entry.added),
        removed=len(entry.removed),
        creates=entry.before is None,
        is_empty=changes_nothing(state, entry),
    )


def changes_nothing(state: PastState, entry: HistoryEntry) -> bool:
    """Whether a commit left all partitions, indices, columns and user metadata as they were."""
    before, after = entry.before, state.document
    if before is None or len(entry.added) or len(entry.removed):
        return False
    every = {*before.metadata, *after.metadata}
    keys = {key for key in every if key in (SCHEMA_KEY, *STATE_KEYS) or not key.startswith(OWN_PREFIX)}
    return (
        before.partition_keys == after.partition_keys
        and dict(before.indices) == dict(after.indices)
        and all(before.metadata.get(key) == after.metadata.get(key) for key in keys)
    )


# --- making and dropping tags ---------------------------------------------------------------------


class PlannedTag(Struct, frozen=True):
    """A tag that is to be put.

    Attributes
    ----------
    tag : Tag
        The tag.
    snapshot : Snapshot
        Its state.
    origin : Tag | None
        The tag from which the state was read, if it was one.
    replaced : Version | None
        The version of an object of the same name that does not count.
    """

    tag: Tag
    snapshot: Snapshot
    origin: Tag | None
    replaced: Version | None


def tag_state(store: Store, uuid: str, name: str, as_of: AsOf | None) -> Tag:
    """Give a state of a dataset a name.

    Raises
    ------
    AlreadyExists
        If the dataset has a tag of this name.
    HistoryUnavailable
        If history does not reach back to the state, or is removed meanwhile.
    """
    replaced, newest = at_once(store, lambda: free_place(store, uuid, name), lambda: load_snapshot(store, uuid))
    origin = known_tag(store, uuid, str(as_of)) if may_be_tag(as_of) else None
    target = as_of if origin is None else origin.state
    snapshot = newest if target is None else snapshot_at(store, newest, target, only_history=True)
    plan = plan_tag(store, newest, snapshot, name, origin=origin, replaced=replaced)
    put_state(store, plan)
    put_tag(store, plan)
    try:
        check_pinned(store, plan)
    except Exception:
        remove_tag(store, plan.tag)
        raise
    return plan.tag


def free_place(store: Store, uuid: str, name: str) -> Version | None:
    """The version of the object that a new tag replaces, which does not count; mostly None.

    Raises
    ------
    AlreadyExists
        If there is such a tag.
    """
    found = read_tag(store, uuid, name)
    if found is None:
        return None
    if find_tag(store, uuid, name) is not None:
        state = found.tag.state
        raise AlreadyExists(
            f"Dataset {uuid!r} has a tag {name!r} already, of commit {state.commit}. Drop it first, or take another "
            "name. Nothing was changed."
        )
    return found.version


def plan_tag(
    store: Store,
    newest: Snapshot,
    snapshot: Snapshot,
    name: str,
    *,
    origin: Tag | None = None,
    replaced: Version | None = None,
    seed: str | None = None,
    tagging: str | None = None,
) -> PlannedTag:
    """The tag of a snapshot; ``tagging`` is its id, ``seed`` that of its cube."""
    commit = snapshot.commit
    time = next((c.time for c in newest.chain if c.id == commit), None)
    if origin is not None:
        time = next(state.time for state in (*origin.members, origin.state) if state.uuid == newest.uuid)
    elif time is None and commit is not None:
        entry = read_entry(store, newest.uuid, commit)
        time = None if entry is None else entry.time
    state = TaggedState(newest.uuid, name, commit, time, new_state_key(newest.uuid, commit))
    return PlannedTag(Tag(tagging or new_id(), state, datetime.now(UTC), seed), snapshot, origin, replaced)


def put_state(store: Store, plan: PlannedTag) -> None:
    """Write the state of a tag. Without its tag it is garbage."""
    store.put(plan.tag.state.key, encode_state(state_document(plan.snapshot)))


def put_tag(store: Store, plan: PlannedTag) -> None:
    """Write the tag, if its name is still free.

    Raises
    ------
    AlreadyExists
        If another process has taken the name. The state of the tag is removed again.
    CommitOutcomeUnknown
        If the store does not answer.
    """
    tag, data = plan.tag, encode_tag(plan.tag)
    key, context = tag_key(tag.state.uuid, tag.name), f"Tag {tag.name!r} of dataset {tag.state.uuid!r}"
    # The bytes have an id of this tagging: equal bytes are ours, although the answer was lost.
    result = compare_and_swap(
        store, key, data, plan.replaced, is_applied=lambda stored: stored == data, context=context
    )
    if not result.applied:
        store.delete(tag.state.key)
        raise AlreadyExists(f"{context} was made by another process meanwhile.") from result.error


def check_pinned(store: Store, plan: PlannedTag) -> None:
    """Check, once the tag is in the store, that garbage collection had left its files alone.

    Raises
    ------
    HistoryUnavailable
        If files of the state may be gone.
    """
    # Garbage collection reads the documents, removes expired history entries, then lists the tags,
    # and then removes files that neither of them names. If the state can still be reached here,
    # the entries that lead to it are removed later, if ever. So the tags are listed later, too,
    # and this one is among them. If the state is gone, the tags may have been listed before this
    # one was put, and its files may be removed any moment. The same holds for the document of the
    # newest state, and for the tag from which the state was read.
    state, origin = plan.tag.state, plan.origin
    if origin is not None:
        if known_tag(store, origin.state.uuid, origin.name).id != origin.id:
            raise HistoryUnavailable(f"Tag {origin.name!r}, whose state was being tagged, is another one now.")
        return
    newest = load_snapshot(store, state.uuid)
    if state.commit is not None:
        # Not by a tag, which would be this one.
        snapshot_at(store, newest, state.commit, only_history=True)
    elif not newest.has_foreign_commit or fingerprint(newest.partitions) != fingerprint(plan.snapshot.partitions):
        raise HistoryUnavailable(
            f"Dataset {state.uuid!r} was changed while its newest state was being tagged. The state was of a writer "
            "that keeps no history (kartothek, plateau), so it is lost. There is no new tag."
        )


def remove_tag(store: Store, tag: Tag) -> None:
    """Remove a tag, unless another one has its name by now, and then its state."""
    found = read_tag(store, tag.state.uuid, tag.name)
    if found is not None and found.tag.id == tag.id:
        store.delete(tag_key(tag.state.uuid, tag.name))
    store.delete(tag.state.key)
