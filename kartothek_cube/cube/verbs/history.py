"""The history of a cube: writes, tags, undo, and what changed between two states."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec.structs import replace

from kartothek_cube.core.arguments import join_names
from kartothek_cube.core.arrow.difference import changes_schema
from kartothek_cube.core.arrow.pandas import to_frame
from kartothek_cube.core.commit.change import UndoPlan
from kartothek_cube.core.dataset.history import CreatedDataset, LacksCommit, plan_undo, tags_frame, undo_change
from kartothek_cube.core.kartothek.dataset_metadata import DatasetMetadata
from kartothek_cube.core.metadata.commit_log import Commit
from kartothek_cube.core.metadata.naming import new_id
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.metadata.tag import Tag, check_tag_name, may_be_tag
from kartothek_cube.core.runtime.executor import at_once, map_in_threads
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.scan.plan import check_change_type
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.snapshots.time_travel import (
    PlannedTag,
    check_pinned,
    find_tag,
    foreign_commits,
    free_place,
    is_orphaned,
    past_commits,
    plan_tag,
    put_state,
    put_tag,
    read_tag,
    remove_tag,
)
from kartothek_cube.core.stores.contract import Store, Version, check_store_can_commit
from kartothek_cube.core.stores.open import open_instrumented
from kartothek_cube.cube.consistent_read import cube_tags, known_cube_tag, latest_state
from kartothek_cube.cube.cube import Cube, prefix_of
from kartothek_cube.cube.execute.run import iter_changes
from kartothek_cube.cube.members import (
    cube_and_store,
    cube_of,
    dataset_ids,
    load_cube,
    load_members,
    load_named,
    past_writes,
    read_members,
    valid_members,
    write_id,
    writes_in_order,
)
from kartothek_cube.cube.query.intention import QueryArguments
from kartothek_cube.cube.query.planning import plan_states
from kartothek_cube.cube.write.commit import publish
from kartothek_cube.errors import (
    CommitConflict,
    CommitOutcomeUnknown,
    HistoryUnavailable,
    InvalidInput,
    InvalidRequest,
    InvalidType,
)
from kartothek_cube.typing import Columns, CubeState, IntoConditions, StoreLike

if TYPE_CHECKING:
    import pandas as pd


_SCHEMA = pa.schema(
    [
        ("commit", pa.string()),
        ("time", pa.timestamp("us", "UTC")),
        ("added", pa.int64()),
        ("removed", pa.int64()),
        ("kept", pa.bool_()),
    ]
)


def cube_history(cube: Cube | str, store: StoreLike, *, options: Overrides | None = None) -> pd.DataFrame:
    """The known writes to a cube, newest first. See the page *History*.

    A write to several datasets is one row, and so is each commit to a single dataset. A row comes
    before all older commits of its datasets, whatever the clocks of their writers say; otherwise
    times decide.

    Parameters
    ----------
    cube : Cube or str
        The cube, or its uuid prefix.
    store : str, path, store or callable
        The store, in any form that `open_store` takes.
    options : optional
        What `options` returns: settings for this call.

    Returns
    -------
    pandas.DataFrame
        - ``commit``: id of the write, or of the commit to one dataset, for `undo_cube` and
          ``as_of=``.
        - ``time``: time of the write by the writer's clock (UTC), or null.
        - ``datasets``: list of the ids of the datasets that the write changed.
        - ``tags``: list of the names of the tags of this state.
        - ``added``, ``removed``: numbers of partitions of all datasets, ``Int64``; null once
          history has expired. A replaced partition counts in both.
        - ``kept``: whether ``as_of=`` can read the state of the cube after the write.

    Raises
    ------
    InvalidInput
        If the cube does not exist.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, append_to_cube, build_cube, cube_history, open_store
    >>> store, cube = open_store("hmemory://"), Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> sales = pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> prices = pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"], "PRICE": [0.9, 1.4]})
    >>> _ = build_cube({"seed": sales, "prices": prices}, cube, store)
    >>> _ = append_to_cube(sales.slice(1), cube, store)
    >>> cube_history(cube, store)[["datasets", "added", "removed", "kept"]]
             datasets  added  removed  kept
    0          [seed]      1        0  True
    1  [prices, seed]      4        0  True
    """
    with operation("cube_history", options, cube=cube):
        opened = open_instrumented(store)
        described, members = _loaded(cube, opened)
        walks, stored_tags = at_once(
            opened,
            lambda: list(map_in_threads(lambda i: past_commits(opened, members[i]), list(members), store=opened)),
            lambda: cube_tags(opened, described.ktk_dataset_uuid(described.seed_dataset)),
        )
        histories = dict(zip(members, walks, strict=True))
        writes = past_writes(histories, {name: s.uuid for name, s in members.items()}, described.seed_dataset)
        rows = [{name: getattr(write, name) for name in _SCHEMA.names[1:]} | {"commit": write.id} for write in writes]
        # Nullable integers: with nulls, pandas would return floats.
        counts = {"added": "Int64", "removed": "Int64"}
        frame = to_frame(pa.Table.from_pylist(rows, schema=_SCHEMA)).astype(counts)
        written_by = {commit.id: write_id(commit) for past in histories.values() for commit in past}
        tags: dict[str, list[str]] = {}
        for tag in stored_tags:
            last = str(latest_state(tag.members).commit)
            tags.setdefault(written_by.get(last, last), []).append(tag.name)
        frame.insert(2, "datasets", [list(write.datasets) for write in writes])
        frame.insert(3, "tags", [list(tags.get(write.id, ())) for write in writes])
        return frame


def undo_cube(
    cube: Cube | str, store: StoreLike, commit: str | None = None, *, options: Overrides | None = None
) -> dict[str, DatasetMetadata]:
    """Undo one write to a cube, in all of its datasets at once, by a new write.

    In each dataset the write is undone as by `undo`: what it added goes, what it removed comes back
    in its place, later writes stay. All datasets are checked before the first one changes. An undo
    can be undone. See the page *History*.

    Parameters
    ----------
    cube : Cube or str
        The cube, or its uuid prefix.
    store : str, path, store or callable
        The store, in any form that `open_store` takes.
    commit : str, optional
        Id of the write, as `cube_history` lists it, or of one of its commits; by default the newest
        write.
    options : optional
        What `options` returns: settings for this call.

    Returns
    -------
    dict
        Dataset id → `DatasetMetadata` of the datasets that changed, the seed first.

    Raises
    ------
    InvalidInput
        If there is no such cube, history has no such write, or the write has expired.
    InvalidRequest
        If the write created one of its datasets (`delete_cube` deletes it), or changed the schema,
        the partition keys or the indices, and later commits exist.
    CommitConflict
        If a later or concurrent commit replaced or removed what the write added, or used a label
        again that the write removed. The message names dataset, partition and commits. No dataset
        has changed.
    CommitOutcomeUnknown
        If the store does not say whether the undo is visible: in all datasets or in none.
    KeyNotFound
        If files that the write removed are gone from the store.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, append_to_cube, build_cube, count_cube, open_store
    >>> from kartothek_cube import undo_cube
    >>> store, cube = open_store("hmemory://"), Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> sales = pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> prices = pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"], "PRICE": [0.9, 1.4]})
    >>> _ = build_cube({"seed": sales.slice(1), "prices": prices.slice(1)}, cube, store)
    >>> _ = append_to_cube({"seed": sales.slice(0, 1), "prices": prices.slice(0, 1)}, cube, store)
    >>> count_cube(cube, store)
    2
    >>> list(undo_cube(cube, store))
    ['seed', 'prices']
    >>> count_cube(cube, store)
    1
    """
    with operation("undo_cube", options, cube=cube):
        if commit is not None and not isinstance(commit, str):
            raise InvalidType(f"commit is the id of a write, not {type(commit).__name__}: {commit!r}.")
        opened = open_instrumented(store)
        check_store_can_commit(opened)
        described, members = _loaded(cube, opened)
        plans = plan_cube_undo(described, opened, members, commit)
        changed = map_in_threads(lambda plan: undo_change(opened, plan), list(plans.values()), store=opened)
        changes = dict(zip(plans, changed, strict=True))
        landed = publish(opened, described, changes, {name: members[name] for name in changes})
        return {name: DatasetMetadata.of(snapshot) for name, snapshot in landed.items()}


def _loaded(cube: Cube | str, store: Store) -> tuple[Cube, dict[str, Snapshot]]:
    """The cube as its datasets describe it, which may not be valid: then an undo may mend it."""
    prefix = prefix_of(cube)
    members = read_members(prefix, store)
    return cube_of(prefix, members, store), members


def plan_cube_undo(
    cube: Cube, store: Store, members: Mapping[str, Snapshot], commit: str | None
) -> dict[str, UndoPlan]:
    """What is to be undone in each dataset, the seed first; errors as of `undo_cube`."""
    prefix, (write, names) = cube.uuid_prefix, _datasets_of_write(cube, store, members, commit)

    def planned(name: str) -> UndoPlan | CreatedDataset | None:
        try:
            return plan_undo(store, members[name], write)
        except LacksCommit:  # the dataset was made again since
            return None
        except CreatedDataset as error:
            return error
        except (CommitConflict, InvalidInput) as error:
            what = f"Cube {prefix!r}: the write {write} cannot be undone, and no dataset was changed."
            raise type(error)(f"{what} {error}") from error

    outcomes = dict(zip(names, map_in_threads(planned, names, store=store), strict=True))
    made = [name for name, outcome in outcomes.items() if isinstance(outcome, CreatedDataset)]
    if made:
        raise InvalidRequest(
            f"Cube {prefix!r}: the write {write} cannot be undone, because it made {join_names(made)}. "
            "delete_cube deletes datasets. Nothing was changed."
        )
    plans = {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, UndoPlan)}
    # A dataset that was only touched, so that the write could be seen as one, has nothing to undo.
    return {name: plan for name, plan in plans.items() if not plan.changes_nothing} or plans


def _datasets_of_write(
    cube: Cube, store: Store, members: Mapping[str, Snapshot], commit: str | None
) -> tuple[str, list[str]]:
    """The id of a write, and the datasets that may have it."""
    chains = {name: snapshot.chain[::-1] for name, snapshot in members.items()}
    found: list[tuple[str, Commit]]
    if commit is None:
        found = list(next(writes_in_order(chains), {}).items())
    else:
        found = [(name, c) for name, chain in chains.items() for c in chain if commit in (c.id, write_id(c))]
    if not found and commit is not None:
        # Older than the commits that the documents list.
        walks = map_in_threads(lambda name: past_commits(store, members[name]), list(members), store=store)
        pasts = zip(members, walks, strict=True)
        found = [(name, c) for name, past in pasts for c in past if commit in (c.id, write_id(c))]
    if not found:
        what = "no write that could be undone" if commit is None else f"no write or commit {commit!r} in its history"
        why = foreign_commits(store, members.values())
        raise InvalidInput(
            f"Cube {cube.uuid_prefix!r} has {what}: `cube_history` lists the writes that are kept. "
            f"Nothing was changed.{why}"
        )
    first = found[0][1]
    parts = set() if first.cube is None else set(first.cube.datasets)
    names = {name for name, _ in found} | {name for name, snapshot in members.items() if snapshot.uuid in parts}
    return write_id(first), sorted(names, key=lambda name: (name != cube.seed_dataset, name))


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
        members = None if as_of is None else load_cube(found, opened, as_of=as_of)
        # Also a dataset that the state does not have may have a tag of this name. These come last:
        # until the shares are put, another process may tag.
        ids = sorted(dataset_ids(found.uuid_prefix, opened))
        present, places = at_once(
            opened,
            lambda: load_named(found.uuid_prefix, opened, ids),
            lambda: list(map_in_threads(partial(_free_place, found, opened, checked), ids, store=opened)),
        )
        newest = {snapshot.uuid: snapshot for snapshot in present.values()}
        replaced = {found.ktk_dataset_uuid(i): version for i, version in zip(ids, places, strict=True)}
        members = valid_members(found, opened, present) if members is None else members
        states = {snapshot.uuid: snapshot for snapshot in members.values()}
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


def _free_place(cube: Cube, store: Store, name: str, dataset: str) -> Version | None:
    return free_place(store, cube.ktk_dataset_uuid(dataset), name)


def _put_tags(store: Store, seed: str, plans: Mapping[str, PlannedTag]) -> None:
    """Put the shares, and last the object of the seed, which is the tag."""
    states = tuple(plan.tag.state for plan in plans.values())
    whole = replace(plans[seed], tag=replace(plans[seed].tag, members=states))
    shares = [plan for uuid, plan in plans.items() if uuid != seed]
    try:
        list(map_in_threads(partial(put_state, store), [*shares, whole], store=store))
        list(map_in_threads(partial(put_tag, store), shares, store=store))
        put_tag(store, whole)
        at_once(
            store,
            lambda: list(map_in_threads(partial(check_pinned, store), [*shares, whole], store=store)),
            lambda: list(map_in_threads(partial(_check_held, store), shares, store=store)),
        )
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
    found, is_lost = at_once(store, lambda: read_tag(store, tag.state.uuid, tag.name), lambda: is_orphaned(store, tag))
    if found is None or found.tag.id != tag.id or is_lost:
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


def query_cube_changes(
    cube: Cube | str,
    store: StoreLike,
    since: CubeState,
    until: CubeState | None = None,
    conditions: IntoConditions = None,
    datasets: Columns = None,
    dimension_columns: Columns = None,
    payload_columns: Columns = None,
    *,
    options: Overrides | None = None,
) -> pa.RecordBatchReader:
    """Query the cells of a cube that came, went or changed between two states.

    The result is the net difference of ``query_cube_arrow(…, as_of=since)`` and
    ``query_cube_arrow(…, as_of=until)`` by cell, whatever the commits between them were. Only
    partitions of the cube are read for which one of the states has a file that the other has not.
    Null equals null, and NaN equals NaN. See the page *What changed*.

    Parameters
    ----------
    cube, store, conditions, dimension_columns, payload_columns
        As in `query_cube`.
    since, until : str, datetime or dict
        The older and the later state, as ``as_of`` of `query_cube`: a commit, a tag, a moment, or
        the ``commits`` of a plan of the same datasets. Those that a dict lacks did not exist then.
        Without ``until``, the newest state.
    datasets : str or iterable of str, optional
        The datasets that take part, the seed among them. By default all.
    options : optional
        The result of `options`: settings for this call and for the loading of its batches. Rows
        beyond ``bytes_in_flight`` wait in a temporary file.

    Returns
    -------
    pyarrow.RecordBatchReader
        The column ``_change_type``: ``insert``, ``delete``, or ``update_preimage`` followed by its
        ``update_postimage``; then the columns of the query, with the types of ``until``, or wider
        where an overwrite has narrowed them. A cell that moved to another partition is an update.
        Columns and datasets that ``since`` lacks are null there. No other order is promised.

    Raises
    ------
    HistoryUnavailable
        If history does not reach back to ``since`` or ``until``.
    InvalidInput, InvalidType
        If ``until`` comes before ``since``, a column had another type then, or as in `query_cube`.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import Cube, append_to_cube, build_cube, open_store, plan_cube_query
    >>> from kartothek_cube import query_cube_changes
    >>> store, cube = open_store("hmemory://"), Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> sales = pd.DataFrame({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = build_cube(sales, cube, store)
    >>> seen = plan_cube_query(cube, store).commits
    >>> _ = append_to_cube(sales[1:].assign(UNITS=5), cube, store)
    >>> query_cube_changes(cube, store, seen).read_pandas()
           _change_type COUNTRY_CODE  PRODUCT_ID  UNITS
    0   update_preimage           FR           2      4
    1  update_postimage           FR           2      5
    """
    with operation("query_cube_changes", options, cube=cube) as op:
        cube, opened = cube_and_store(cube, store, until)
        arguments = QueryArguments(cube, conditions, datasets, dimension_columns, None, payload_columns, until)
        before, after = plan_states(arguments, since, opened)
        check_change_type(after.plan.schema.names, f"Cube {cube.uuid_prefix!r}")
        tables = iter_changes(before, after, opened)
        batches = (batch for table in tables for batch in table.to_batches() if batch.num_rows)
        return pa.RecordBatchReader.from_batches(changes_schema(after.plan.schema), op.lasting(batches))
