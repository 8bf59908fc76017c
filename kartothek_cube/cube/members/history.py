"""The writes of the past to a cube, merged from the commits of its datasets. Pure."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from kartothek_cube.core.metadata.commit_log import Commit
from kartothek_cube.core.snapshots.time_travel import PastCommit

__all__ = ["PastWrite", "past_writes", "write_id", "writes_in_order"]

C = TypeVar("C", Commit, PastCommit)

_LATEST = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class PastWrite:
    """One write to a cube: to several of its datasets, or a commit to one.

    Attributes
    ----------
    id : str
        The write, or the commit.
    time : datetime | None
        The time of the last of its commits in UTC, by the writer's clock.
    datasets : tuple of str
        The ids of the datasets that it changed.
    added, removed : int | None
        Numbers of partitions in all of these; None once the history of one of them has expired.
    kept : bool
        Whether history has the state of the whole cube after the write.
    """

    id: str
    time: datetime | None
    datasets: tuple[str, ...]
    added: int | None
    removed: int | None
    kept: bool


def write_id(commit: Commit | PastCommit) -> str:
    """The id of the write to a cube that a commit is a part of, or its own."""
    return commit.id if commit.cube is None else commit.cube.id


def writes_in_order(chains: Mapping[str, Sequence[C]]) -> Iterator[dict[str, C]]:
    """The commits of each write by dataset, the newest write first.

    A write comes after all later commits of each of its datasets, whatever their clocks say; else
    times decide.

    Parameters
    ----------
    chains
        Dataset → its commits, newest first.
    """
    writes: dict[str, dict[str, C]] = defaultdict(dict)
    for name, chain in chains.items():
        for commit in chain:
            writes[write_id(commit)].setdefault(name, commit)
    left = {name: deque(chain) for name, chain in chains.items() if chain}

    def is_next(write: str) -> bool:
        return all(name in left and write_id(left[name][0]) == write for name in writes[write])

    while left:
        candidates = {write_id(commits[0]) for commits in left.values()}
        # Writers without one order may have crossed each other: then times alone decide.
        ready = [write for write in candidates if is_next(write)] or candidates
        newest = max(ready, key=lambda write: (max(c.time or _LATEST for c in writes[write].values()), write))
        yield writes.pop(newest)
        for commits in left.values():
            while commits and write_id(commits[0]) not in writes:
                commits.popleft()
        left = {name: commits for name, commits in left.items() if commits}


def past_writes(histories: Mapping[str, Sequence[PastCommit]], uuids: Mapping[str, str], seed: str) -> list[PastWrite]:
    """The writes to a cube, newest first.

    Parameters
    ----------
    histories
        Dataset → its commits, newest first.
    uuids
        Dataset → its uuid.
    seed
        Without it, there is no state of the cube.
    """
    first_kept = {
        name: min((c.time for c in commits if c.kept and c.time is not None), default=_LATEST)
        for name, commits in histories.items()
    }
    # A dataset that did not exist yet is no gap.
    whole = {name for name, commits in histories.items() if name != seed and any(c.creates for c in commits)}

    def described(commits: Mapping[str, PastCommit]) -> PastWrite:
        parts, times = list(commits.values()), [c.time for c in commits.values() if c.time is not None]
        when = max(times, default=None)
        others = [name for name in histories if name not in commits]
        known = when is not None and all(name in whole or first_kept[name] <= when for name in others)
        listed = [name for name, c in commits.items() if c.cube is None or uuids[name] in c.cube.datasets] or commits
        # A dataset that was only touched, so that the write could be seen as one, is not meant.
        changed = [name for name in listed if not commits[name].is_empty] or listed
        added, removed = [c.added for c in parts], [c.removed for c in parts]
        return PastWrite(
            write_id(parts[0]),
            when,
            tuple(sorted(changed)),
            None if None in added else sum(n for n in added if n is not None),
            None if None in removed else sum(n for n in removed if n is not None),
            all(c.kept for c in parts) and (known or not others),
        )

    return [described(commits) for commits in writes_in_order(histories)]
