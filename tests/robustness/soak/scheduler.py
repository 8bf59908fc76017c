"""Interleaving on purpose: every store call of every actor happens when the scheduler says so, by a
seed; faults as well.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from kartothek_cube.core.stores.contract import WRITES, Store, StoreView
from kartothek_cube.testing.stores import InjectedFault, SimulatedCrash

R = TypeVar("R")

_LOST_SECONDS = 120  # an actor that takes so long for one step is in a deadlock that the scheduler does not see


class Stuck(AssertionError):
    """Nobody can go on."""


@dataclass(frozen=True)
class Rates:
    """How likely a fault is at each call.

    ``late``: a write whose caller gets an error takes place some steps later.
    """

    before: float = 0.0
    after: float = 0.0
    crash: float = 0.0
    late: float = 0.0
    delayed: float = 0.0

    @property
    def none(self) -> bool:
        return not (self.before or self.after or self.crash or self.late)


@dataclass(eq=False)
class Actor:
    """A thread that runs only when it is its turn."""

    name: str
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    done: bool = False
    waits_for: Turn | None = None
    failure: BaseException | None = None

    @property
    def ready(self) -> bool:
        return not self.done and (self.waits_for is None or self.waits_for.owner in (None, self))


class Scheduler:
    """Lets one actor run at a time, up to its next store call."""

    def __init__(self, seed: int, stickiness: float, clock: Any) -> None:
        self.random = Random(seed)
        self.clock = clock
        self.trace: list[str] = []
        self.steps = 0
        self.switches = 0  # another actor goes on at its next store call than the one before
        self.failure: BaseException | None = None  # of a check below the library, which takes it for the store's
        self._stickiness = stickiness
        self._actors: list[Actor] = []
        self._threads: list[threading.Thread] = []
        self._idle = threading.Semaphore(0)
        self._current = threading.local()
        self._late: list[Callable[[], object]] = []

    def note(self, text: str) -> None:
        actor = self.actor
        self.trace.append(f"{self.steps:5} {'-' if actor is None else actor.name}: {text}")

    @property
    def actor(self) -> Actor | None:
        return getattr(self._current, "actor", None)

    def spawn(self, name: str, work: Callable[[], object]) -> None:
        actor = Actor(name)

        def body() -> None:
            self._current.actor = actor
            actor.go.acquire()
            try:
                work()
            except BaseException as error:
                actor.failure = error
            finally:
                actor.done = True
                self._idle.release()

        self._actors.append(actor)
        self._threads.append(threading.Thread(target=body, name=name, daemon=True))
        self._threads[-1].start()

    def pause(self, waits_for: Turn | None = None) -> None:
        """Let others run. Outside of an actor nothing happens."""
        actor = self.actor
        if actor is None:
            return
        actor.waits_for = waits_for
        self._idle.release()
        actor.go.acquire()
        actor.waits_for = None

    def later(self, action: Callable[[], object]) -> None:
        self._late.append(action)

    def run(self) -> None:
        """Run all actors to their ends; raises the first thing that an actor did not expect."""
        last = None
        while any(not actor.done for actor in self._actors):
            before, last = last, self._choose(last)
            self.steps += 1
            self.switches += before is not None and last is not before and not before.done
            self.clock.tick()
            if self._late and self.random.random() < 0.3:
                self._late.pop(self.random.randrange(len(self._late)))()
            last.go.release()
            if not self._idle.acquire(timeout=_LOST_SECONDS):
                raise Stuck(f"{last.name} does not come back")
            if failure := self.failure or last.failure:
                raise failure
        for action in self._late:
            action()
        if self.failure is not None:
            raise self.failure

    def _choose(self, last: Actor | None) -> Actor:
        ready = [actor for actor in self._actors if actor.ready]
        if not ready:
            raise Stuck(f"everybody waits: {[a.name for a in self._actors if not a.done]}")
        if last in ready and self.random.random() < self._stickiness:
            return last
        return self.random.choice(ready)


class Turn:
    """A reentrant lock whose waiting is seen by the scheduler."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.owner: Actor | None = None
        self._depth = 0

    def acquire(self, *, blocking: bool) -> bool:
        me = self._scheduler.actor
        while self.owner not in (None, me):
            if not blocking:
                return False
            self._scheduler.pause(self)
        self.owner = me
        self._depth += 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if not self._depth:
            self.owner = None


class ScheduledStore(StoreView):
    """The access of one actor.

    ``identity`` tells processes apart: what is equal shares snapshots and the line of those who
    commit.
    """

    def __init__(self, inner: Store, scheduler: Scheduler, rates: Rates, identity: Hashable) -> None:
        super().__init__(inner)
        self._scheduler, self._rates, self._identity = scheduler, rates, identity
        self.dead = False
        self.faults = 0

    @property
    def identity(self) -> Hashable:
        return self._identity

    def local_path(self, key: str) -> str | None:
        return self.inner.local_path(key)

    def around(self, operation: str, key: str, action: Callable[[], R]) -> R:
        if self.dead:
            raise SimulatedCrash("it is dead")
        self._scheduler.pause()
        fault = self._fault(operation)
        self._scheduler.note(f"{operation} {key}{f' !{fault}' if fault else ''}")
        if fault is None:
            return action()
        if fault == "delayed":
            return self._delayed(action)
        self.faults += 1
        if fault == "late":
            self._scheduler.later(lambda: _carried_out(action))
        elif fault in ("after", "crash_after"):
            _carried_out(action)
        if fault.startswith("crash"):
            self.dead = True
            raise SimulatedCrash(f"{operation} {key}")
        raise InjectedFault(f"{fault}: {operation} {key}")

    def _delayed(self, action: Callable[[], R]) -> R:
        """The answer takes its time."""
        try:
            return action()
        finally:
            self._scheduler.pause()

    def _fault(self, operation: str) -> str | None:
        rates, drawn = self._rates, self._scheduler.random.random()
        kinds = [
            ("before", rates.before),
            ("after", rates.after),
            ("crash", rates.crash / 2),
            ("crash_after", rates.crash / 2),
            ("delayed", rates.delayed),
        ]
        if operation in WRITES:
            kinds.append(("late", rates.late))
        for kind, rate in kinds:
            if drawn < rate:
                return kind
            drawn -= rate
        return None


def _carried_out(action: Callable[[], object]) -> None:
    with suppress(Exception):
        action()


INCARNATIONS = itertools.count()
