"""Tags in a store: found by name, listed, and the states that they name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from kartothek_cube.core.metadata.document import Document
from kartothek_cube.core.metadata.tag import (
    TAGS_FOLDER,
    Tag,
    TaggedState,
    decode_state,
    decode_tag,
    is_tag_key,
    name_of_key,
    names_text,
    tag_key,
)
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.stores.contract import Store, Version
from kartothek_cube.errors import CorruptDocument, HistoryUnavailable, KeyNotFound

__all__ = [
    "StoredTag",
    "find_tag",
    "is_vain",
    "known_tag",
    "list_tags",
    "read_state",
    "read_tag",
    "stored_tags",
    "tag_names",
]


@dataclass(frozen=True, slots=True)
class StoredTag:
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
    return found.tag if found is not None and _counting(store, [found.tag]) else None


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


def _counting(store: Store, tags: Sequence[Tag]) -> list[Tag]:
    """Those of some tags that count."""
    shares = [tag for tag in tags if tag.is_share]
    vain = zip(shares, map_in_threads(lambda tag: is_vain(store, tag), shares, store=store), strict=True)
    ids = {tag.id for tag, is_one in vain if is_one}
    return [tag for tag in tags if tag.id not in ids]


def is_vain(store: Store, share: Tag) -> bool:
    """Whether the seed does not have the tag to which a share belongs; one call."""
    try:
        whole = read_tag(store, str(share.seed), share.name)
    except CorruptDocument:
        return False  # unknown, and the state of the share can be read
    return whole is None or whole.tag.id != share.id


def tag_names(store: Store, uuid: str) -> list[str]:
    """The names of the tags of a dataset; one listing. Shares in vain are among them."""
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


def list_tags(store: Store, uuid: str) -> list[Tag]:
    """The tags of a dataset that can be read, by name."""
    keys = (tag_key(uuid, name) for name in tag_names(store, uuid))
    tags = [tag for tag in stored_tags(store, keys).values() if isinstance(tag, Tag)]
    return sorted(_counting(store, tags), key=lambda tag: tag.name)


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
