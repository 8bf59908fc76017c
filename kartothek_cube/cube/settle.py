"""Reading all datasets of a cube before or after a write to several of them, not in between."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from kartothek_cube.core.metadata.chain import CubeCommit
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.parallel import map_in_threads
from kartothek_cube.core.snapshots import find_snapshot
from kartothek_cube.core.store import Store
from kartothek_cube.errors import IncompleteCubeWarning

__all__ = ["read_consistent"]

# Seconds before each of the further looks. Between two swaps of one write there are a few requests to the store.
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
        # Each write has its own looks: one that has stopped must not use up those of one that is under way.
        open_writes = [h for h in _partial_commits(found) if (store.identity, h.write.id) not in _warned and looks[h.write.id] < len(_PAUSES)]
        if not open_writes:
            break
        time.sleep(_PAUSES[min(looks[h.write.id] for h in open_writes)])
        looks.update(h.write.id for h in open_writes)
        names = sorted({name for h in open_writes for name in (*h.landed, *h.lacking)})
        fresh = map_in_threads(lambda uuid: find_snapshot(store, uuid), [found[name].uuid for name in names], store=store)
        found = {name: own for name, own in {**found, **dict(zip(names, fresh, strict=True))}.items() if own is not None}
    for partial in _partial_commits(found):
        _warn(uuid_prefix, store, partial, found)
    return found


def _partial_commits(members: Mapping[str, Snapshot]) -> Iterator[PartialCommit]:
    """Writes that are the last commit of a dataset, and that another dataset which takes part does not know."""
    last = {name: chain[-1] for name, snapshot in members.items() if (chain := snapshot.chain) and chain[-1].cube is not None}
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
