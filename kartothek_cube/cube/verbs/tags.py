"""The verbs `tag_cube`, `list_cube_tags` and `drop_cube_tag`: names for states of a cube."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from kartothek_cube.core.commit.commit import check_store_can_commit
from kartothek_cube.core.dataset.history import tags_frame
from kartothek_cube.core.metadata.naming import new_id
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.metadata.tag import Tag, check_tag_name, may_be_tag
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.snapshots.time_travel import (
    PlannedTag,
    check_pinned,
    find_tag,
    free_place,
    plan_tag,
    put_state,
    put_tag,
    remove_tag,
)
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.stores.open import open_instrumented
from kartothek_cube.cube.cube import Cube, prefix_of
from kartothek_cube.cube.members.discovery import cube_of, load_cube, load_members
from kartothek_cube.cube.members.tags import cube_tags, known_cube_tag, latest_state
from kartothek_cube.errors import CommitOutcomeUnknown, HistoryUnavailable, InvalidRequest
from kartothek_cube.typing import CubeState, StoreLike

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["drop_cube_tag", "list_cube_tags", "tag_cube"]


def tag_cube(
    cube: Cube | str, store: StoreLike, name: str, *, as_of: CubeState | None = None, options: Overrides | None = None
) -> None:
    """Give one state of a cube a name, which keeps it: ``as_of=name`` reads it from then on.

    The tag has each dataset that the cube has in this state, and appears as a whole. Garbage
    collection leaves their files alone until the tag is dropped, whatever ``options(retain=...)``
    says. No document is touched: nothing conflicts with a tag. See the page *Tags*.

    Parameters
    ----------
    cube : Cube or str
        The cube, or its uuid prefix.
    store : str, path, store or callable
        The store of the cube; everything that `open_store` takes.
    name : str
        The name: 1 to 200 printable characters without ``/``, which read neither as a moment nor
        as the id of a commit.
    as_of : str, datetime or dict, optional
        The state: a commit, a moment, another tag, or the ``commits`` of a plan; by default the
        newest state.
    options : optional
        What `options` returns: settings for this call.

    Raises
    ------
    InvalidInput
        If the name is not allowed, or the cube not valid.
    AlreadyExists
        If the cube or one of its datasets has a tag of this name. Nothing was changed.
    HistoryUnavailable
        If history does not reach back to ``as_of``, or its files were removed meanwhile. There is
        no new tag.
    CommitOutcomeUnknown
        If the store does not answer. The tag may exist.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, append_to_cube, build_cube, count_cube, open_store
    >>> from kartothek_cube import tag_cube
    >>> store = open_store("hmemory://")
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> _ = build_cube(pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]}), cube, store)
    >>> tag_cube(cube, store, "model 7")
    >>> _ = append_to_cube(pa.table({"PRODUCT_ID": [3], "COUNTRY_CODE": ["DE"]}), cube, store)
    >>> count_cube(cube, store), count_cube(cube, store, as_of="model 7")
    (3, 2)
    """
    with operation("tag_cube", options, cube=cube):
        checked, opened = check_tag_name(name), open_instrumented(store)
        check_store_can_commit(opened)
        found = _cube(cube, opened)
        seed, tagging = found.ktk_dataset_uuid(found.seed_dataset), new_id()
        states = {snapshot.uuid: snapshot for snapshot in load_cube(found, opened, as_of=as_of).values()}
        # Also a dataset that the state does not have may have a tag of this name.
        newest = {snapshot.uuid: snapshot for snapshot in load_members(found.uuid_prefix, opened).values()}
        places = zip(newest, map_in_threads(lambda uuid: free_place(opened, uuid, checked), newest), strict=True)
        replaced = dict(places)
        origin = None
        if isinstance(as_of, str) and may_be_tag(as_of):
            origin = known_cube_tag(found.uuid_prefix, opened, seed, as_of)

        def plan(snapshot: Snapshot) -> PlannedTag:
            uuid = snapshot.uuid
            return plan_tag(
                opened,
                newest.get(uuid, snapshot),
                snapshot,
                checked,
                origin=origin,
                replaced=replaced.get(uuid),
                seed=seed,
                tagging=tagging,
            )

        _put_tags(opened, seed, {p.tag.state.uuid: p for p in map_in_threads(plan, states.values(), store=opened)})


def _put_tags(store: Store, seed: str, plans: Mapping[str, PlannedTag]) -> None:
    """Put the shares, and last the object of the seed, which is the tag."""
    states = tuple(plan.tag.state for plan in plans.values())
    whole = replace(plans[seed], tag=replace(plans[seed].tag, members=states))
    shares = [plan for uuid, plan in plans.items() if uuid != seed]
    try:
        list(map_in_threads(partial(put_state, store), [*shares, whole], store=store))
        list(map_in_threads(partial(put_tag, store), shares, store=store))
        put_tag(store, whole)
        list(map_in_threads(partial(check_pinned, store), [*shares, whole], store=store))
        list(map_in_threads(partial(_check_held, store), shares, store=store))
    except CommitOutcomeUnknown:
        raise  # the tag may exist
    except Exception:
        with suppress(Exception):  # what stays without the object of the seed is garbage
            _remove(store, whole.tag)
        raise


def _check_held(store: Store, share: PlannedTag) -> None:
    # Another tagging of the same name, or a garbage collection without grace, may have taken the
    # share while the seed did not have the tag yet.
    tag = share.tag
    found = find_tag(store, tag.state.uuid, tag.name)
    if found is None or found.id != tag.id:
        raise HistoryUnavailable(
            f"Tag {tag.name!r}: another process worked on the same name, and dataset {tag.state.uuid!r} has lost its "
            "share. There is no new tag."
        )


def _remove(store: Store, tag: Tag) -> None:
    """Remove a tag of a cube: first the object of the seed, then the shares."""
    remove_tag(store, tag)
    shares = [replace(tag, state=state) for state in tag.members if state.uuid != tag.seed]
    list(map_in_threads(partial(remove_tag, store), shares, store=store))


def list_cube_tags(cube: Cube | str, store: StoreLike, *, options: Overrides | None = None) -> pd.DataFrame:
    """The tags of a cube by name. Tags of single datasets are not among them.

    Parameters
    ----------
    cube, store, options
        As in `tag_cube`.

    Returns
    -------
    pandas.DataFrame
        ``name``; ``commit``, the last commit to any dataset of the state, and ``time``, that of the
        commit (UTC). Both are null where they are not known.

    Raises
    ------
    DatasetNotFound, InvalidInput
        If the cube does not exist.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube, list_cube_tags, open_store, tag_cube
    >>> store = open_store("hmemory://")
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> _ = build_cube(pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]}), cube, store)
    >>> tag_cube(cube, store, "model 7")
    >>> list_cube_tags("sales", store)["name"].to_list()
    ['model 7']
    """
    with operation("list_cube_tags", options, cube=cube):
        opened = open_instrumented(store)
        found = _cube(cube, opened)
        seed = load_snapshot(opened, found.ktk_dataset_uuid(found.seed_dataset)).uuid
        return tags_frame(latest_state(tag.members) for tag in cube_tags(opened, seed))


def drop_cube_tag(cube: Cube | str, store: StoreLike, name: str, *, options: Overrides | None = None) -> None:
    """Drop a tag of a cube. What only this tag kept, the next garbage collection removes.

    Parameters
    ----------
    cube, store, name, options
        As in `tag_cube`.

    Raises
    ------
    HistoryUnavailable
        If the cube has no such tag.
    InvalidRequest
        If it is a tag of the seed alone, which `drop_dataset_tag` drops.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube, drop_cube_tag, list_cube_tags, open_store
    >>> from kartothek_cube import tag_cube
    >>> store = open_store("hmemory://")
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> _ = build_cube(pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]}), cube, store)
    >>> tag_cube(cube, store, "model 7")
    >>> drop_cube_tag(cube, store, "model 7")
    >>> len(list_cube_tags(cube, store))
    0
    """
    with operation("drop_cube_tag", options, cube=cube):
        opened = open_instrumented(store)
        check_store_can_commit(opened)
        found = _cube(cube, opened)
        seed = load_snapshot(opened, found.ktk_dataset_uuid(found.seed_dataset)).uuid
        tag = find_tag(opened, seed, str(name))
        if tag is not None and tag.seed is None:
            raise InvalidRequest(
                f"Tag {name!r} is of dataset {seed!r} alone: drop_dataset_tag drops it. Nothing was changed."
            )
        _remove(opened, known_cube_tag(found.uuid_prefix, opened, seed, str(name)))


def _cube(cube: Cube | str, store: Store) -> Cube:
    return cube if isinstance(cube, Cube) else cube_of(cube, load_members(prefix_of(cube), store), store)
