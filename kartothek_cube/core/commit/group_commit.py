"""Group commit: threads that commit to one dataset queue, and the first commits for the others."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kartothek_cube.core.commit.apply import AppliedChange
from kartothek_cube.core.commit.change import Change
from kartothek_cube.core.metadata.commit_log import LENGTH
from kartothek_cube.core.metadata.snapshot import Snapshot

__all__ = ["PendingCommit", "PreparedCommit", "group_commit"]

# Commits of one swap: few enough that the chain still names all of them after the swap of another
# group.
_LARGEST_GROUP = LENGTH // 2


@dataclass(frozen=True, slots=True)
class PreparedCommit:
    """A change that was already applied to a state of its dataset.

    It spares the work at the commit, if the dataset has not changed since.

    Attributes
    ----------
    change : Change
        The original change.
    newest : Snapshot | None
        The newest state at that time.
    loaded : Snapshot | None
        The same state with the indices that the change touches.
    applied : AppliedChange
        The state after the change.
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
        The state for which it was made.
    retries : int
        How often to try again when other writers were faster.
    prepared : PreparedCommit | None
        The result of `prepare_commit`.
    outcome : Future
        The snapshot after the commit, or its error. The leader of the group sets it, exactly once.
    """

    change: Change
    base: Snapshot | None
    retries: int
    prepared: PreparedCommit | None = None
    outcome: Future[Snapshot] = field(default_factory=Future)

    @property
    def is_retried(self) -> bool:
        """Whether an earlier leader was interrupted, who may have committed the change."""
        return self.outcome.running()

    @contextmanager
    def own_errors(self) -> Iterator[None]:
        """Make an error inside the block the outcome of this commit, so that others go on."""
        try:
            yield
        except Exception as error:
            self.outcome.set_exception(error)


@dataclass(slots=True)
class CommitQueue:
    """The commits of one dataset that wait.

    The thread that holds ``turn`` is the leader; ``members`` counts the threads in the queue.
    """

    # Reentrant: a callback of a change may commit to the same dataset.
    turn: Any = field(default_factory=threading.RLock)
    waiting: list[PendingCommit] = field(default_factory=list)
    members: int = 0


class _CommitQueues:
    """The queues of this process, by store and dataset. Safe for threads."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Drop all queues."""
        # With a new lock: after a fork, the thread that held the old one may not exist.
        self._queues: dict[Hashable, CommitQueue] = {}
        self._guard = threading.Lock()

    def join(self, key: Hashable, pending: PendingCommit) -> CommitQueue:
        with self._guard:
            queue = self._queues.setdefault(key, CommitQueue())
            queue.waiting.append(pending)
            queue.members += 1
            return queue

    def waiting(self, key: Hashable) -> list[PendingCommit]:
        with self._guard:
            return list(self._queues[key].waiting) if key in self._queues else []

    def take(self, queue: CommitQueue, first: PendingCommit) -> list[PendingCommit]:
        """The next group: the leader's own commit first, then those that have waited longest.

        A prepared commit is alone: it may be taken back without any other.
        """
        with self._guard:
            others = [pending for pending in queue.waiting if pending is not first]
            shares = [p for p in others if not (p.change.is_prepared or first.change.is_prepared)]
            group = [first, *shares[: _LARGEST_GROUP - 1]]
            queue.waiting = [pending for pending in others if pending not in group]
            return group

    def give_back(self, queue: CommitQueue, group: list[PendingCommit]) -> None:
        with self._guard:
            queue.waiting[:0] = group
        for pending in group:  # the state of its future tells the next leader
            if not pending.is_retried:
                pending.outcome.set_running_or_notify_cancel()

    def leave(self, key: Hashable, queue: CommitQueue, pending: PendingCommit) -> None:
        with self._guard:
            queue.waiting = [other for other in queue.waiting if other is not pending]
            queue.members -= 1
            if not queue.members:
                self._queues.pop(key, None)


_queues = _CommitQueues()

if hasattr(os, "register_at_fork"):
    # A forked child has no thread that would finish a turn from before the fork.
    os.register_at_fork(after_in_child=_queues.clear)


def group_commit(key: Hashable, pending: PendingCommit, commit_all: Callable[[list[PendingCommit]], None]) -> Snapshot:
    """Return the outcome of a commit.

    Either this thread becomes the leader and calls ``commit_all`` with the commits that wait, or an
    earlier leader has committed ``pending`` already.
    """
    queue = _queues.join(key, pending)
    try:
        with queue.turn:
            if not pending.outcome.done():
                group = _queues.take(queue, pending)
                try:
                    commit_all(group)
                finally:
                    # An interrupted leader leaves the others to the next one, which first checks
                    # whether they have landed.
                    left = [p for p in group if not p.outcome.done() and p is not pending]
                    _queues.give_back(queue, left)
    finally:
        _queues.leave(key, queue, pending)
    return pending.outcome.result()
