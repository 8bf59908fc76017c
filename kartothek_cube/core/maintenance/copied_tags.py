"""Tags of a copy: which states come along, and how their objects are written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from kartothek_cube.core.metadata.document import Document
from kartothek_cube.core.metadata.naming import new_id
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.metadata.tag import (
    Tag,
    TaggedState,
    encode_state,
    encode_tag,
    moved_state_key,
    new_state_key,
    tag_key,
)
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.snapshots.time_travel import find_tag, list_tags, read_state
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.errors import AlreadyExists

__all__ = ["CopiedTag", "check_tags", "joined_tags", "moved_tag", "put_states", "put_tags", "tagged_states"]


@dataclass(frozen=True, slots=True)
class CopiedTag:
    """A tag of a copy, its state, and the tag of the source."""

    tag: Tag
    document: Document
    origin: Tag


def tagged_states(source: Store, snapshot: Snapshot) -> list[tuple[Tag, Document]]:
    """The tags of a dataset with their states, which name only index files that exist.

    Raises
    ------
    HistoryUnavailable, CorruptDocument
        If a state is lost, or cannot be read.
    """
    tags = list_tags(source, snapshot.uuid)
    states = map_in_threads(lambda tag: read_state(source, tag.state), tags, store=source)

    def with_present_indices(document: Document) -> Document:
        # Older states lose their index files first, and can be read without.
        keys = sorted(document.index_files)
        present = dict(zip(keys, map_in_threads(source.contains, keys, store=source), strict=True))
        indices = {c: None if present.get(str(key)) is False else key for c, key in document.indices.items()}
        return replace(document, indices=indices)

    return [(tag, with_present_indices(document)) for tag, document in zip(tags, states, strict=True)]


def moved_tag(tag: Tag, uuid: str, renamed: Mapping[str, str]) -> Tag:
    """The tag of a copy with this uuid.

    It is one of the dataset alone, unless its whole cube is ``renamed``, uuid by uuid.
    """
    if tag.seed is None or any(old not in renamed for old in (tag.seed, *(state.uuid for state in tag.members))):
        state = replace(tag.state, uuid=uuid, key=new_state_key(uuid, tag.state.commit))
        return Tag(new_id(), state, datetime.now(UTC))

    def moved(state: TaggedState) -> TaggedState:
        new = renamed[state.uuid]
        return replace(state, uuid=new, key=moved_state_key(state.key, new))

    return Tag(tag.id, moved(tag.state), datetime.now(UTC), renamed[tag.seed], tuple(map(moved, tag.members)))


def joined_tags(copies: Mapping[str, tuple[CopiedTag, ...]]) -> dict[str, tuple[CopiedTag, ...]]:
    """The tags of the datasets of a copied cube, with those of the cube as tags of the copy.

    A tag whose seed is not copied stays one of each dataset alone.
    """
    every = [copied for tags in copies.values() for copied in tags if copied.origin.seed is not None]
    wholes = {copied.origin.id: copied.tag for copied in every if not copied.origin.is_share}

    def joined(copied: CopiedTag) -> CopiedTag:
        whole, is_share = wholes.get(copied.origin.id), copied.origin.is_share
        if whole is None:
            return copied
        states = tuple(other.tag.state for other in every if other.origin.id == copied.origin.id)
        tag = replace(copied.tag, id=whole.id, seed=whole.state.uuid, members=() if is_share else states)
        return replace(copied, tag=tag)

    return {name: tuple(map(joined, tags)) for name, tags in copies.items()}


def check_tags(store: Store, tags: Iterable[CopiedTag]) -> None:
    """Refuse to replace the share of a dataset in a tag of another cube."""
    for copied in tags:
        name, uuid = copied.tag.name, copied.tag.state.uuid
        present = find_tag(store, uuid, name)
        if present is not None and present.seed is not None and copied.tag.seed != present.seed:
            raise AlreadyExists(
                f"Tag {name!r} of dataset {uuid!r} in the store {store.name} belongs to its cube, and the copy has one "
                "of the same name. Drop it first. Nothing was changed."
            )


def put_states(store: Store, tags: Iterable[CopiedTag]) -> None:
    """Write the states of the tags of a copy."""
    list(map_in_threads(lambda t: store.put(t.tag.state.key, encode_state(t.document)), list(tags), store=store))


def put_tags(store: Store, tags: Iterable[CopiedTag]) -> None:
    """Write the tags of copies that are visible; those of a cube appear as a whole."""

    def put(tag: Tag) -> None:
        store.put(tag_key(tag.state.uuid, tag.name), encode_tag(tag))

    every = [copied.tag for copied in tags]
    # Not before, since the name might belong to a dataset that another process has made meanwhile.
    for is_share in (True, False):
        list(map_in_threads(put, [tag for tag in every if tag.is_share == is_share], store=store))
