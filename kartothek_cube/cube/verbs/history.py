"""The verbs `cube_history` and `undo_cube`: the writes to a cube, and undoing one of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from kartothek_cube.core.arguments import join_names
from kartothek_cube.core.arrow.pandas import to_frame
from kartothek_cube.core.commit.change import UndoPlan
from kartothek_cube.core.commit.commit import check_store_can_commit
from kartothek_cube.core.dataset.history import (
    CreatedDataset,
    LacksCommit,
    plan_undo,
    undo_change,
)
from kartothek_cube.core.kartothek.dataset_metadata import DatasetMetadata
from kartothek_cube.core.metadata.commit_log import Commit
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.snapshots.time_travel import PastCommit, foreign_commits, past_commits
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.stores.open import open_instrumented
from kartothek_cube.cube.cube import Cube, prefix_of
from kartothek_cube.cube.members.discovery import cube_of, read_members
from kartothek_cube.cube.members.history import past_writes, write_id, writes_in_order
from kartothek_cube.cube.members.tags import cube_tags, latest_state
from kartothek_cube.cube.write.commit import publish
from kartothek_cube.errors import CommitConflict, InvalidInput, InvalidRequest, InvalidType
from kartothek_cube.typing import StoreLike

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["cube_history", "plan_cube_undo", "undo_cube"]

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
        walks = map_in_threads(lambda name: past_commits(opened, members[name]), list(members), store=opened)
        histories = dict(zip(members, walks, strict=True))
        writes = past_writes(histories, {name: s.uuid for name, s in members.items()}, described.seed_dataset)
        rows = [{name: getattr(write, name) for name in _SCHEMA.names[1:]} | {"commit": write.id} for write in writes]
        # Nullable integers: with nulls, pandas would return floats.
        counts = {"added": "Int64", "removed": "Int64"}
        frame = to_frame(pa.Table.from_pylist(rows, schema=_SCHEMA)).astype(counts)
        written_by = {commit.id: write_id(commit) for past in histories.values() for commit in past}
        tags: dict[str, list[str]] = {}
        for tag in cube_tags(opened, described.ktk_dataset_uuid(described.seed_dataset)):
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
    found: list[tuple[str, Commit | PastCommit]]
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
