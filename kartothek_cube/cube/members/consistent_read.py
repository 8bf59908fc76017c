"""One state of a cube for a reader: of a past moment, or the newest without a partial commit.

A write commits one dataset after another. A reader that comes between two of these commits sees a
partial commit, and waits.
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from kartothek_cube.core.metadata.commit_log import CubeCommit
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.metadata.tag import may_be_tag
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.snapshots.loader import find_snapshot
from kartothek_cube.core.snapshots.time_travel import (
    BeforeCreation,
    PastState,
    Target,
    is_wanted,
    snapshot_at,
    snapshots_between,
    states,
)
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.text import pluralize
from kartothek_cube.cube.members.tags import tagged_members
from kartothek_cube.errors import HistoryUnavailable, IncompleteCubeWarning, InvalidInput
from kartothek_cube.typing import CubeState

__all__ = ["members_at", "members_between", "read_consistent", "state_text"]

# Seconds before each retry. Two commits of one write are a few requests to the store apart.
_PAUSES = (0.0, 0.01, 0.03, 0.1, 0.3)
# Other writes may begin meanwhile, each with retries of its own; a reader must not wait forever.
_MOST_ROUNDS = 3 * len(_PAUSES)
# Stores and writes for which there was a warning.
_warned: set[tuple[Hashable, str]] = set()


# --- a state of the past --------------------------------------------------------------------------


def members_at(uuid_prefix: str, store: Store, newest: Mapping[str, Snapshot], as_of: CubeState) -> dict[str, Snapshot]:
    """Older snapshots of the datasets of a cube by id, without those that did not exist then.

    The id of a write to the cube selects each dataset as that write left it. The id of a commit to
    one dataset selects that commit. All other datasets are read as of the time of the commit, of
    several commits the latest. A tag, and the commits of several datasets, select exactly these.

    Raises
    ------
    HistoryUnavailable
        If the history of a dataset does not reach back so far, none has such a commit, or none
        existed then.
    """
    moments = _moments(uuid_prefix, store, newest, as_of)

    def load(name: str) -> Snapshot | None:
        with suppress(BeforeCreation):
            return snapshot_at(store, newest[name], moments[name])
        return None

    snapshots = zip(moments, map_in_threads(load, list(moments), store=store), strict=True)
    existing = {name: snapshot for name, snapshot in snapshots if snapshot is not None}
    if newest and not existing:
        raise _before_creation(uuid_prefix, newest, as_of)
    return existing


def members_between(
    uuid_prefix: str,
    store: Store,
    newest: Mapping[str, Snapshot],
    since: CubeState,
    until: CubeState | None,
    names: tuple[str, str] = ("since", "until"),
) -> tuple[dict[str, Snapshot], dict[str, Snapshot]]:
    """The datasets of a cube at two moments, each without those that did not exist then.

    ``since`` and ``until`` as ``as_of`` of `members_at`. None: the newest state. In errors they
    have these ``names``.

    Raises
    ------
    InvalidInput
        If ``until`` comes before ``since``.
    HistoryUnavailable
        As in `members_at`.
    """
    from_each = _moments(uuid_prefix, store, newest, since)
    to_each: Mapping[str, Target | None]
    to_each = dict.fromkeys(newest) if until is None else _moments(uuid_prefix, store, newest, until)

    def load(name: str) -> tuple[Snapshot | None, Snapshot | None, int]:
        if name in from_each and name in to_each:
            with suppress(BeforeCreation):
                return snapshots_between(store, newest[name], from_each[name], to_each[name])
        then, now = state_at(name, from_each), state_at(name, to_each)
        return then, now, (then is not None) - (now is not None)

    def state_at(name: str, moments: Mapping[str, Target | None]) -> Snapshot | None:
        with suppress(BeforeCreation):
            if name in moments:
                as_of = moments[name]
                return newest[name] if as_of is None else snapshot_at(store, newest[name], as_of)
        return None

    pairs = dict(zip(newest, map_in_threads(load, list(newest), store=store), strict=True))
    before = {name: state for name, (state, _, _) in pairs.items() if state is not None}
    after = {name: state for name, (_, state, _) in pairs.items() if state is not None}
    if newest and not after and until is not None:
        raise _before_creation(uuid_prefix, newest, until)
    if newest and not before:
        raise _before_creation(uuid_prefix, newest, since)
    # Clocks of two writers may differ: the datasets whose commits were not named may be reversed.
    orders = [order for _, _, order in pairs.values()]
    if max(orders, default=0) > 0 and min(orders) >= 0:
        raise InvalidInput(
            f"Cube {uuid_prefix!r}: {names[1]}={state_text(until)} comes before {names[0]}={state_text(since)}. "
            "Exchange them to see the changes."
        )
    return before, after


def state_text(state: CubeState | None) -> str:
    """A state of a cube in a line."""
    if isinstance(state, Mapping):
        return f"the commits of {pluralize(len(state), 'dataset')}"
    return state.isoformat() if isinstance(state, datetime) else str(state)


def _moments(uuid_prefix: str, store: Store, newest: Mapping[str, Snapshot], as_of: CubeState) -> dict[str, Target]:
    """The commit, moment or tagged state that ``as_of`` means for each dataset that existed."""
    if isinstance(as_of, Mapping):
        unknown = [newest[name].uuid for name, commit in as_of.items() if commit is None and name in newest]
        if unknown:
            raise HistoryUnavailable(
                f"Dataset {unknown[0]!r}: its last commit then was of a writer that keeps no history "
                "(kartothek, plateau), so its state then is not known."
            )
        return {name: commit for name, commit in as_of.items() if commit is not None and name in newest}
    if isinstance(as_of, datetime):
        return dict.fromkeys(newest, as_of)
    if not newest:  # whoever looks for the cube has a better error
        return {}
    if may_be_tag(as_of):
        return {**tagged_members(uuid_prefix, store, newest, as_of)}
    past = _states_of_commit(store, newest, as_of)
    times = [state.time for state in past.values() if state.time is not None]
    if not past or (not times and len(past) < len(newest)):
        raise HistoryUnavailable(
            f"Cube {uuid_prefix!r} cannot be read as of commit {as_of!r}: "
            f"none of the datasets {', '.join(sorted(newest))} has it in the history that is kept. "
            "`history` lists the commits of a dataset."
        )
    return {name: as_of if name in past else max(times) for name in newest}


def _before_creation(uuid_prefix: str, newest: Mapping[str, Snapshot], as_of: CubeState) -> HistoryUnavailable:
    names = ", ".join(sorted(newest))
    text = f"Cube {uuid_prefix!r} cannot be read as of {state_text(as_of)}: of its datasets {names} none existed then."
    return HistoryUnavailable(f"{text} `history` lists the commits of a dataset.")


def _states_of_commit(store: Store, newest: Mapping[str, Snapshot], commit: str) -> dict[str, PastState]:
    """The datasets that have a commit, as it left them."""

    def in_chain(snapshot: Snapshot) -> PastState | None:
        matching = [c for c in snapshot.chain if is_wanted(c.id, c.time, c.cube, commit)]
        if not matching or snapshot.has_foreign_commit:
            return None
        last = matching[-1]
        return PastState(last.id, last.parent, last.time, last.cube, snapshot.document, None)

    def in_history(name: str) -> PastState | None:
        return next((s for s in states(store, newest[name]) if is_wanted(s.commit, s.time, s.cube, commit)), None)

    past = {name: state for name, snapshot in newest.items() if (state := in_chain(snapshot)) is not None}
    # A chain holds the last few commits. Where it is too short to tell, the history is searched,
    # which takes requests: only of the datasets that took part, if another dataset names these.
    writes = [state.cube for state in past.values() if state.cube is not None and state.cube.id == commit]
    parts = {uuid for write in writes for uuid in write.datasets}
    rest = [name for name, snapshot in newest.items() if name not in past and (not past or snapshot.uuid in parts)]
    searched = zip(rest, map_in_threads(in_history, rest, store=store), strict=True)
    return past | {name: state for name, state in searched if state is not None}


# --- the newest state -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PartialCommit:
    """A write that some of its datasets have and others lack; ids of these datasets in the cube."""

    write: CubeCommit
    landed: tuple[str, ...]
    lacking: tuple[str, ...]


def read_consistent(uuid_prefix: str, store: Store, members: Mapping[str, Snapshot]) -> dict[str, Snapshot]:
    """The same datasets, read again while a write to several of them is between two of its commits.

    After a few retries the write counts as abandoned: a warning says so, once for each write.
    """
    snapshots, retries = dict(members), Counter[str]()
    for _ in range(_MOST_ROUNDS):
        # Each write has retries of its own: an abandoned one must not use up those of one that is
        # under way.
        open_writes = [
            partial
            for partial in _partial_commits(snapshots)
            if (store.identity, partial.write.id) not in _warned and retries[partial.write.id] < len(_PAUSES)
        ]
        if not open_writes:
            break
        time.sleep(_PAUSES[min(retries[partial.write.id] for partial in open_writes)])
        retries.update(partial.write.id for partial in open_writes)
        names = sorted({name for partial in open_writes for name in (*partial.landed, *partial.lacking)})
        uuids = [snapshots[name].uuid for name in names]
        fresh = map_in_threads(lambda uuid: find_snapshot(store, uuid), uuids, store=store)
        for name, snapshot in zip(names, fresh, strict=True):
            if snapshot is None:  # deleted meanwhile
                del snapshots[name]
            else:
                snapshots[name] = snapshot
    for partial in _partial_commits(snapshots):
        # A warning, no error: a writer that died would make all reads fail until a repair.
        _warn(uuid_prefix, store, partial, snapshots)
    return snapshots


def _partial_commits(members: Mapping[str, Snapshot]) -> Iterator[PartialCommit]:
    """Writes that are the last commit of one of their datasets and lacking in another one."""
    last = {
        name: chain[-1]
        for name, snapshot in members.items()
        if (chain := snapshot.chain) and chain[-1].cube is not None
    }
    for write in {commit.cube.id: commit.cube for commit in last.values() if commit.cube is not None}.values():
        landed = tuple(name for name, commit in last.items() if commit.cube is not None and commit.cube.id == write.id)
        when = last[landed[0]].time
        others = [name for name, snapshot in members.items() if snapshot.uuid in write.datasets and name not in landed]
        lacking = tuple(name for name in others if not _may_have(members[name], write.id, when))
        if lacking and not any(members[name].has_foreign_commit for name in landed):
            yield PartialCommit(write, landed, lacking)


def _may_have(snapshot: Snapshot, write: str, when: datetime | None) -> bool:
    """Whether a dataset has a write, or may have forgotten it."""
    chain = snapshot.chain
    if any(c.cube is not None and c.cube.id == write for c in chain):
        return True
    # The chain is cut at its old end, and a foreign writer drops it.
    oldest = chain[0].time if chain else None
    return oldest is None or when is None or oldest > when or snapshot.has_foreign_commit


def _warn(uuid_prefix: str, store: Store, partial: PartialCommit, members: Mapping[str, Snapshot]) -> None:
    """Warn of an abandoned write, once in this process."""
    if (store.identity, partial.write.id) in _warned:
        return
    _warned.add((store.identity, partial.write.id))
    undo = "; ".join(f"undo({members[name].uuid!r}, store, {partial.write.id!r})" for name in partial.landed)
    warnings.warn(
        f"Cube {uuid_prefix!r}: the write {partial.write.id} is in {', '.join(partial.landed)} "
        f"but not in {', '.join(partial.lacking)}. It stopped halfway, or takes long. "
        f"Queries see what is there. Repeat the write, or take it back: {undo}.",
        IncompleteCubeWarning,
        stacklevel=2,
    )
