"""Making and dropping tags: the state first, then the tag, then a look whether the files stayed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from kartothek_cube.core.metadata.commit_log import fingerprint
from kartothek_cube.core.metadata.naming import new_id
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.metadata.tag import (
    Tag,
    TaggedState,
    encode_state,
    encode_tag,
    may_be_tag,
    new_state_key,
    state_document,
    tag_key,
)
from kartothek_cube.core.snapshots.document_store import compare_and_swap
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.snapshots.past_state import read_entry
from kartothek_cube.core.snapshots.tags import find_tag, known_tag, read_tag
from kartothek_cube.core.snapshots.time_travel import AsOf, snapshot_at
from kartothek_cube.core.stores.contract import Store, Version
from kartothek_cube.errors import AlreadyExists, HistoryUnavailable

__all__ = [
    "PlannedTag",
    "check_pinned",
    "free_place",
    "plan_tag",
    "put_state",
    "put_tag",
    "remove_tag",
    "tag_state",
]


@dataclass(frozen=True, slots=True)
class PlannedTag:
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
    replaced = free_place(store, uuid, name)
    newest = load_snapshot(store, uuid)
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
