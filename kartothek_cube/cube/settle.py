"""Reading all datasets of a cube before or after a write to several of them, not in between."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from kartothek_cube.core.metadata.chain import CubeCommit
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.parallel import map_in_threads
from kartothek_cube.core.snapshots import find_snapshot
from kartothek_cube.core.store import Store
from kartothek_cube.errors import IncompleteCubeWarning

__all__ = ["settled"]

# Seconds before each of the further looks. Between two swaps of one write there are a few requests to the store.
_PAUSES = (0.0, 0.01, 0.03, 0.1, 0.3)
_MOST_LOOKS = 3 * len(_PAUSES)
_warned: set[tuple[Hashable, str]] = set()


@dataclass(frozen=True, slots=True)
class _Halfway:
    """A write that some of its datasets have and others lack; ids of these datasets in the cube."""

    write: CubeCommit
    landed: tuple[str, ...]
    lacking: tuple[str, ...]


def settled(uuid_prefix: str, store: Store, members: Mapping[str, Snapshot]) -> dict[str, Snapshot]:
    """The same datasets, read again where a write to several of them is between two of its commits.

    After a few looks it is taken for one that stopped there: then a warning says so, once for each of these writes.
    """
    found, looks = dict(members), Counter[str]()
    for _ in range(_MOST_LOOKS):
        # Each write has its own looks: one that has stopped must not use up those of one that is under way.
        open_writes = [h for h in _halfway(found) if (store.identity, h.write.id) not in _warned and looks[h.write.id] < len(_PAUSES)]
        if not open_writes:
            break
        time.sleep(_PAUSES[min(looks[h.write.id] for h in open_writes)])
        looks.update(h.write.id for h in open_writes)
        found = _again(store, found, {name for h in open_writes for name in (*h.landed, *h.lacking)})
    for halfway in _halfway(found):
        _warn(uuid_prefix, store, halfway, found)
    return found


def _again(store: Store, members: Mapping[str, Snapshot], names: Iterable[str]) -> dict[str, Snapshot]:
    chosen = sorted(names)
    fresh = dict(zip(chosen, map_in_threads(lambda name: find_snapshot(store, members[name].uuid), chosen, store=store), strict=True))
    return {name: snapshot for name, snapshot in {**members, **fresh}.items() if snapshot is not None}


def _halfway(members: Mapping[str, Snapshot]) -> Iterator[_Halfway]:
    """Writes that are the last commit of a dataset, and that another dataset which takes part does not know."""
    last = {name: chain[-1] for name, snapshot in members.items() if (chain := snapshot.chain) and chain[-1].cube is not None}
    for write in {commit.cube.id: commit.cube for commit in last.values() if commit.cube is not None}.values():
        landed = tuple(name for name, commit in last.items() if commit.cube is not None and commit.cube.id == write.id)
        when = last[landed[0]].time
        others = [name for name, snapshot in members.items() if snapshot.uuid in write.datasets and name not in landed]
        lacking = tuple(name for name in others if not _may_have(members[name], write.id, when))
        if lacking and not any(members[name].has_foreign_commit for name in landed):
            yield _Halfway(write, landed, lacking)


def _may_have(snapshot: Snapshot, write: str, when: datetime | None) -> bool:
    """Whether a dataset has a write, or may have forgotten it: its chain is of later commits, or a foreign writer came last."""
    chain = snapshot.chain
    if any(c.cube is not None and c.cube.id == write for c in chain):
        return True
    oldest = chain[0].time if chain else None
    return oldest is None or when is None or oldest > when or snapshot.has_foreign_commit


def _warn(uuid_prefix: str, store: Store, halfway: _Halfway, members: Mapping[str, Snapshot]) -> None:
    seen = (store.identity, halfway.write.id)
    if seen in _warned:
        return
    _warned.add(seen)
    undo = "; ".join(f"undo({members[name].uuid!r}, store, {halfway.write.id!r})" for name in halfway.landed)
    warnings.warn(
        f"Cube {uuid_prefix!r}: the write {halfway.write.id} is in {', '.join(halfway.landed)} but not in {', '.join(halfway.lacking)}. "
        f"It stopped halfway, or takes long. Queries see what is there. Repeat the write, or take it back: {undo}.",
        IncompleteCubeWarning,
        stacklevel=2,
    )
