"""The state of each dataset that a reader sees: at a moment of the past, or now, with no write to the cube half shown."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from kartothek_cube.core.metadata.commit_log import CubeCommit
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.snapshots.loader import find_snapshot
from kartothek_cube.core.snapshots.time_travel import AsOf, BeforeCreation, PastState, is_wanted, snapshot_at, states
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.errors import IncompleteCubeWarning, InvalidInput

__all__ = ["members_at", "read_consistent"]


def members_at(uuid_prefix: str, store: Store, newest: Mapping[str, Snapshot], as_of: AsOf) -> dict[str, Snapshot]:
    """Older snapshots of the datasets of a cube by id; a dataset that did not exist then is left out.

    The id of a write to the cube takes each dataset that it wrote to as it left it. The id of a
    commit to one dataset takes this one. All others are taken as of the time of that commit, of
    several the last one.

    Raises
    ------
    InvalidInput
        If the history of a dataset does not reach back so far, none has such a commit, or none
        existed then.
    """
    if isinstance(as_of, datetime):
        existing = _existing(store, newest, dict.fromkeys(newest, as_of))
        if newest and not existing:
            names, then = ", ".join(sorted(newest)), as_of.isoformat(timespec="seconds")
            text = f"Cube {uuid_prefix!r} cannot be read as of {then}: of its datasets {names} none existed then."
            raise InvalidInput(f"{text} `history` lists the commits of a dataset.")
        return existing
    found = _found(store, newest, as_of)
    times = [state.time for state in found.values() if state.time is not None]
    if not found or (not times and len(found) < len(newest)):
        raise InvalidInput(
            f"Cube {uuid_prefix!r} cannot be read as of commit {as_of!r}: none of the datasets {', '.join(sorted(newest))} has it in the history that is kept. "
            "`history` lists the commits of a dataset."
        )
    return _existing(store, newest, {name: as_of if name in found else max(times) for name in newest})


def _existing(store: Store, newest: Mapping[str, Snapshot], wanted: Mapping[str, AsOf]) -> dict[str, Snapshot]:
    def load(name: str) -> Snapshot | None:
        try:
            return snapshot_at(store, newest[name], wanted[name])
        except BeforeCreation:
            return None

    return {
        name: found
        for name, found in zip(newest, map_in_threads(load, list(newest), store=store), strict=True)
        if found is not None
    }


def _found(store: Store, newest: Mapping[str, Snapshot], commit: str) -> dict[str, PastState]:
    """The datasets that have a commit.

    Those whose chain is too short to tell are searched, if none of the others knows who took part.
    """
    named = {name: state for name, snapshot in newest.items() if (state := _in_chain(snapshot, commit)) is not None}
    parts = {
        uuid
        for state in named.values()
        if state.cube is not None and state.cube.id == commit
        for uuid in state.cube.datasets
    }
    rest = [name for name, snapshot in newest.items() if name not in named and (not named or snapshot.uuid in parts)]
    return named | _searched(store, newest, rest, commit)


def _in_chain(snapshot: Snapshot, commit: str) -> PastState | None:
    of_chain = [c for c in snapshot.chain if is_wanted(c.id, c.time, c.cube, commit)]
    if not of_chain or snapshot.has_foreign_commit:
        return None
    return PastState(
        of_chain[-1].id, of_chain[-1].parent, of_chain[-1].time, of_chain[-1].cube, snapshot.document, None
    )


def _searched(store: Store, newest: Mapping[str, Snapshot], names: Iterable[str], commit: str) -> dict[str, PastState]:
    def search(name: str) -> PastState | None:
        return next((s for s in states(store, newest[name]) if is_wanted(s.commit, s.time, s.cube, commit)), None)

    names = list(names)
    return {
        name: state
        for name, state in zip(names, map_in_threads(search, names, store=store), strict=True)
        if state is not None
    }


# Seconds before each of the further looks. Between two swaps of one write there are a few requests
# to the store.
_PAUSES = (0.0, 0.01, 0.03, 0.1, 0.3)

_MOST_LOOKS = 3 * len(_PAUSES)

_warned: set[tuple[Hashable, str]] = set()


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
    found, looks = dict(members), Counter[str]()
    for _ in range(_MOST_LOOKS):
        # Each write has its own looks: one that has stopped must not use up those of one that is
        # under way.
        open_writes = [
            h
            for h in _partial_commits(found)
            if (store.identity, h.write.id) not in _warned and looks[h.write.id] < len(_PAUSES)
        ]
        if not open_writes:
            break
        time.sleep(_PAUSES[min(looks[h.write.id] for h in open_writes)])
        looks.update(h.write.id for h in open_writes)
        names = sorted({name for h in open_writes for name in (*h.landed, *h.lacking)})
        fresh = map_in_threads(
            lambda uuid: find_snapshot(store, uuid), [found[name].uuid for name in names], store=store
        )
        found = {
            name: own for name, own in {**found, **dict(zip(names, fresh, strict=True))}.items() if own is not None
        }
    for partial in _partial_commits(found):
        _warn(uuid_prefix, store, partial, found)
    return found


def _partial_commits(members: Mapping[str, Snapshot]) -> Iterator[PartialCommit]:
    """Writes that are the last commit of a dataset, and that another dataset which takes part does not know."""
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
    """Whether a dataset has a write, or may have forgotten it: its chain is of later commits, or a foreign writer came last."""
    chain = snapshot.chain
    if any(c.cube is not None and c.cube.id == write for c in chain):
        return True
    oldest = chain[0].time if chain else None
    return oldest is None or when is None or oldest > when or snapshot.has_foreign_commit


def _warn(uuid_prefix: str, store: Store, partial: PartialCommit, members: Mapping[str, Snapshot]) -> None:
    seen = (store.identity, partial.write.id)
    if seen in _warned:
        return
    _warned.add(seen)
    undo = "; ".join(f"undo({members[name].uuid!r}, store, {partial.write.id!r})" for name in partial.landed)
    warnings.warn(
        f"Cube {uuid_prefix!r}: the write {partial.write.id} is in {', '.join(partial.landed)} but not in {', '.join(partial.lacking)}. "
        f"It stopped halfway, or takes long. Queries see what is there. Repeat the write, or take it back: {undo}.",
        IncompleteCubeWarning,
        stacklevel=2,
    )
