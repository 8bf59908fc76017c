"""Group commit: the threads of a process that commit to one dataset form a queue, and the first one commits for those behind it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kartothek_cube.core.apply import AppliedChange
from kartothek_cube.core.change import Change
from kartothek_cube.core.metadata.chain import LENGTH
from kartothek_cube.core.metadata.snapshot import Snapshot

__all__ = ["PendingCommit", "PreparedCommit", "group_commit"]

# Commits of one swap: few enough that the chain still names all of them after another group has been swapped in.
_LARGEST_GROUP = LENGTH // 2


@dataclass(frozen=True, slots=True)
class PreparedCommit:
    """A change that was applied to a state of its dataset, so that an unchanged dataset spares doing it again.

    Attributes
    ----------
    change : Change
        The change as it was given.
    newest : Snapshot | None
        The newest state when it was prepared.
    loaded : Snapshot | None
        The same state with the indices that the change touches.
    applied : AppliedChange
        What the change makes of it.
    """

    change: Change
    newest: Snapshot | None
    loaded: Snapshot | None
    applied: AppliedChange


@dataclass(frozen=True, slots=True, eq=False)
class PendingCommit:
    """A change that waits to be committed.

    Attributes
    ----------
    change : Change
        The change.
    base : Snapshot | None
        The state that it was made for.
    retries : int
        How often it is tried again after other writers were faster.
    prepared : PreparedCommit | None
        The change as it was prepared before.
    outcome : Future
        The snapshot that the commit left, or its error. Whoever leads the group sets it, exactly once.
    """

    change: Change
    base: Snapshot | None
    retries: int
    prepared: PreparedCommit | None = None
    outcome: Future[Snapshot] = field(default_factory=Future)

    @contextmanager
    def own_errors(self) -> Iterator[None]:
        """Make an error inside the block the outcome of this commit, so that it does not stop the others of its group."""
        try:
            yield
        except Exception as error:
            self.outcome.set_exception(error)


@dataclass(slots=True)
class CommitQueue:
    """Those who commit to one dataset. Whoever holds ``turn`` leads; ``people`` counts the threads that are inside."""

    # Reentrant, for a callback that commits to the very dataset whose change is being committed.
    turn: Any = field(default_factory=threading.RLock)
    waiting: list[PendingCommit] = field(default_factory=list)
    people: int = 0


class _CommitQueues:
    """The queues of this process, by store and dataset. Safe for threads."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all queues. The lock is new, since the thread that held the old one may not exist any more."""
        self._queues: dict[Hashable, CommitQueue] = {}
        self._guard = threading.Lock()

    def join(self, key: Hashable, pending: PendingCommit) -> CommitQueue:
        with self._guard:
            queue = self._queues.setdefault(key, CommitQueue())
            queue.waiting.append(pending)
            queue.people += 1
            return queue

    def waiting(self, key: Hashable) -> list[PendingCommit]:
        with self._guard:
            return list(self._queues[key].waiting) if key in self._queues else []

    def take(self, queue: CommitQueue, own: PendingCommit) -> list[PendingCommit]:
        """The own commit, so that a leader always learns of its errors, and those that have waited longest."""
        with self._guard:
            others = [pending for pending in queue.waiting if pending is not own]
            queue.waiting = others[_LARGEST_GROUP - 1 :]
            return [own, *others[: _LARGEST_GROUP - 1]]

    def give_back(self, queue: CommitQueue, group: list[PendingCommit]) -> None:
        with self._guard:
            queue.waiting[:0] = group

    def leave(self, key: Hashable, queue: CommitQueue, pending: PendingCommit) -> None:
        with self._guard:
            queue.waiting = [other for other in queue.waiting if other is not pending]
            queue.people -= 1
            if not queue.people:
                self._queues.pop(key, None)


_queues = _CommitQueues()

if hasattr(os, "register_at_fork"):
    # In a forked child no thread exists that would finish a turn that began before the fork.
    os.register_at_fork(after_in_child=_queues.clear)


def group_commit(key: Hashable, pending: PendingCommit, commit_all: Callable[[list[PendingCommit]], None]) -> Snapshot:
    """Return the outcome of a commit.

    Either this thread becomes the leader and calls ``commit_all`` with all commits that wait by then, or the leader before it
    has committed ``pending`` already.
    """
    queue = _queues.join(key, pending)
    try:
        with queue.turn:
            if not pending.outcome.done():
                group = _queues.take(queue, pending)
                try:
                    commit_all(group)
                finally:
                    # A leader that is interrupted leaves the others to the next one, which first looks for what has landed.
                    left = [p for p in group if not p.outcome.done() and p is not pending]
                    _queues.give_back(queue, left)
    finally:
        _queues.leave(key, queue, pending)
    return pending.outcome.result()
