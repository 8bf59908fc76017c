"""The past commits of a dataset: those that history keeps, and those that the chain names."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from kartothek_cube.core.metadata.commit_log import SCHEMA_KEY, CubeCommit
from kartothek_cube.core.metadata.document import OWN_PREFIX, STATE_KEYS
from kartothek_cube.core.metadata.history_entry import HistoryEntry
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.snapshots.time_travel import PastState, states
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.errors import CorruptDocument

__all__ = ["PastCommit", "changes_nothing", "past_commits"]


@dataclass(frozen=True, slots=True)
class PastCommit:
    """What is known of one commit of a dataset.

    Attributes
    ----------
    id, parent : str, str | None
        The commit, and the one before.
    time : datetime | None
        The time of the commit in UTC, by the writer's clock.
    cube : CubeCommit | None
        The write to a cube that the commit is a part of.
    added, removed : int | None
        Numbers of partitions; None once history has expired.
    kept : bool
        Whether history has the state after the commit.
    creates : bool
        Whether the commit is known to have created the dataset.
    is_empty : bool
        Whether the commit is known to have changed nothing.
    """

    id: str
    parent: str | None
    time: datetime | None
    cube: CubeCommit | None
    added: int | None = None
    removed: int | None = None
    kept: bool = False
    creates: bool = False
    is_empty: bool = False


def past_commits(store: Store, newest: Snapshot) -> list[PastCommit]:
    """The known commits of a dataset, newest first."""
    found: dict[str, PastCommit] = {}
    # History ends at the first entry that cannot be read.
    with suppress(CorruptDocument):
        for state in states(store, newest):
            if state.commit is None:
                continue
            commit = PastCommit(state.commit, state.parent, state.time, state.cube, kept=True)
            entry = state.entry
            if entry is not None:
                commit = replace(
                    commit,
                    added=len(entry.added),
                    removed=len(entry.removed),
                    creates=entry.before is None,
                    is_empty=changes_nothing(state, entry),
                )
            found[commit.id] = commit
    # The document's chain of commits reaches further back than the history entries.
    older = (c for c in reversed(newest.chain) if c.id not in found)
    return [*found.values(), *(PastCommit(c.id, c.parent, c.time, c.cube) for c in older)]


def changes_nothing(state: PastState, entry: HistoryEntry) -> bool:
    """Whether a commit left all partitions, indices, columns and user metadata as they were."""
    before, after = entry.before, state.document
    if before is None or len(entry.added) or len(entry.removed):
        return False
    every = {*before.metadata, *after.metadata}
    keys = {key for key in every if key in (SCHEMA_KEY, *STATE_KEYS) or not key.startswith(OWN_PREFIX)}
    return (
        before.partition_keys == after.partition_keys
        and dict(before.indices) == dict(after.indices)
        and all(before.metadata.get(key) == after.metadata.get(key) for key in keys)
    )
