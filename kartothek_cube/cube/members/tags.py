"""Tags of a cube: found at its seed, with the states of all datasets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from kartothek_cube.core.arguments import join_names
from kartothek_cube.core.metadata.snapshot import KTK_CUBE_METADATA_KEY_IS_SEED, LEGACY_IS_SEED, Snapshot
from kartothek_cube.core.metadata.tag import Tag, TaggedState, names_text
from kartothek_cube.core.snapshots.time_travel import find_tag, list_tags
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.errors import HistoryUnavailable

__all__ = ["cube_tags", "known_cube_tag", "latest_state", "tag_of_members", "tagged_members"]


def cube_tags(store: Store, seed: str) -> list[Tag]:
    """The tags of a cube by name; ``seed`` is the uuid of its seed."""
    return [tag for tag in list_tags(store, seed) if tag.seed == seed]


def known_cube_tag(uuid_prefix: str, store: Store, seed: str | None, name: str) -> Tag:
    """The tag of a cube.

    Raises
    ------
    HistoryUnavailable
        If there is none; the message has those that exist.
    """
    found = None if seed is None else find_tag(store, seed, name)
    if found is not None and found.seed == seed:
        return found
    names = [] if seed is None else [tag.name for tag in cube_tags(store, seed)]
    alone = "" if found is None else f" Only its seed {seed!r} has a tag of this name, from tag_dataset."
    raise HistoryUnavailable(
        f"Cube {uuid_prefix!r} has no tag {name!r}: {names_text(name, names)}{alone} "
        "A time is written as 2024-01-31 or 2024-01-31T12:00."
    )


def tag_of_members(uuid_prefix: str, store: Store, newest: Mapping[str, Snapshot], name: str) -> Tag:
    """The tag of the cube that has these datasets; errors as of `known_cube_tag`."""
    flags = (KTK_CUBE_METADATA_KEY_IS_SEED, LEGACY_IS_SEED)
    seeds = [s.uuid for s in newest.values() if any(s.document.metadata.get(flag) for flag in flags)]
    return known_cube_tag(uuid_prefix, store, next(iter(seeds), None), name)


def tagged_members(uuid_prefix: str, store: Store, newest: Mapping[str, Snapshot], name: str) -> dict[str, TaggedState]:
    """The states of a tag by the ids of the datasets.

    Raises
    ------
    HistoryUnavailable
        If the cube has no such tag, or a dataset of the tag was deleted since.
    """
    states = {state.uuid: state for state in tag_of_members(uuid_prefix, store, newest, name).members}
    gone = states.keys() - {snapshot.uuid for snapshot in newest.values()}
    if gone:
        raise HistoryUnavailable(
            f"Cube {uuid_prefix!r}: tag {name!r} has datasets that were deleted since: {join_names(gone)}."
        )
    return {i: states[snapshot.uuid] for i, snapshot in newest.items() if snapshot.uuid in states}


def latest_state(members: Iterable[TaggedState]) -> TaggedState:
    """The state with the last commit among those of a tag."""
    unknown = datetime.min.replace(tzinfo=UTC)
    return max(members, key=lambda state: (state.time or unknown, state.uuid))
