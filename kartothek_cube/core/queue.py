"""Taking turns: who publishes to one dataset in one process stands in line, and whoever is first takes along what waits."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from kartothek_cube.core.change import Change
from kartothek_cube.core.metadata.chain import LENGTH
from kartothek_cube.core.metadata.snapshot import Snapshot

__all__ = ["Ticket", "take_turn"]

# Commits of one swap: so few that the chain still names all of them when somebody else has swapped after it.
_MOST = LENGTH // 2


@dataclass(slots=True)
class Ticket:
    """A change that waits to be published, and what became of it."""

    change: Change
    base: Snapshot | None
    retries: int
    tries: int = 0
    # What is known of it from a look before.
    checked: Any = None
    landed: Snapshot | None = None
    error: BaseException | None = None

    @property
    def done(self) -> bool:
        """Whether it is known what became of it."""
        return self.landed is not None or self.error is not None

    def result(self) -> Snapshot:
        """The snapshot that it left; raises its error."""
        if self.error is not None:
            raise self.error
        assert self.landed is not None
        return self.landed


@dataclass(slots=True)
class _Line:
    # Reentrant, for a callback that publishes to the dataset whose change is being published.
    turn: Any = field(default_factory=threading.RLock)
    waiting: list[Ticket] = field(default_factory=list)
    people: int = 0


class _Lines:
    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Nobody stands anywhere. The lock is a new one: who held the old one may be gone."""
        self._lines: dict[Hashable, _Line] = {}
        self._guard = threading.Lock()

    def join(self, key: Hashable, ticket: Ticket) -> _Line:
        with self._guard:
            line = self._lines.setdefault(key, _Line())
            line.waiting.append(ticket)
            line.people += 1
            return line

    def waiting(self, key: Hashable) -> list[Ticket]:
        with self._guard:
            return list(self._lines[key].waiting) if key in self._lines else []

    def take(self, line: _Line, own: Ticket) -> list[Ticket]:
        """The own ticket, so that an error is never that of others alone, and those that have waited longest."""
        with self._guard:
            others = [ticket for ticket in line.waiting if ticket is not own]
            line.waiting = others[_MOST - 1 :]
            return [own, *others[: _MOST - 1]]

    def give_back(self, line: _Line, tickets: list[Ticket]) -> None:
        with self._guard:
            line.waiting[:0] = tickets

    def leave(self, key: Hashable, line: _Line, ticket: Ticket) -> None:
        with self._guard:
            line.waiting = [t for t in line.waiting if t is not ticket]
            line.people -= 1
            if not line.people:
                self._lines.pop(key, None)


_lines = _Lines()


def _forget() -> None:
    # In a forked child nobody is there to finish a turn that began before.
    _lines.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def take_turn(key: Hashable, ticket: Ticket, work: Callable[[list[Ticket]], None]) -> Snapshot:
    """Let ``work`` finish the ticket: here, together with those that wait by then, or in the thread whose turn is before."""
    line = _lines.join(key, ticket)
    try:
        with line.turn:
            if not ticket.done:
                _work(line, ticket, work)
    finally:
        _lines.leave(key, line, ticket)
    return ticket.result()


def _work(line: _Line, own: Ticket, work: Callable[[list[Ticket]], None]) -> None:
    batch = _lines.take(line, own)
    try:
        work(batch)
    finally:
        # Who was interrupted leaves the others' changes to themselves; what has landed of them, they will see.
        _lines.give_back(line, [ticket for ticket in batch if not ticket.done and ticket is not own])
