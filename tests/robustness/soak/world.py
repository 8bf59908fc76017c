"""What a run replaces in the library so that it can be repeated: clock, ids, pauses, and the lock
of those who stand in line.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch
from uuid import UUID

from kartothek_cube.core.commit import change as apply
from kartothek_cube.core.commit import commit, cube_writes
from kartothek_cube.core.commit import commit as group_commit
from kartothek_cube.core.commit import commit as staged_files
from kartothek_cube.core.maintenance import garbage
from kartothek_cube.core.metadata import naming
from kartothek_cube.core.runtime import executor
from kartothek_cube.core.snapshots import time_travel
from kartothek_cube.core.stores import local as memory
from kartothek_cube.core.write import stage
from kartothek_cube.core.write import stage as receipt
from kartothek_cube.cube.write import commit as cube_commit
from tests.robustness.soak.scheduler import Scheduler, Turn

TICK = timedelta(milliseconds=20)


class Clock:
    """Goes on by a tick a step, and by leaps when told to."""

    def __init__(self) -> None:
        self.now = datetime(2024, 5, 1, tzinfo=UTC)

    def tick(self) -> None:
        self.now += TICK

    def leap(self, time: timedelta) -> None:
        self.now += time


def _datetime_of(clock: Clock) -> type[datetime]:
    class _Meta(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, datetime)

    class Moment(datetime, metaclass=_Meta):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
            return clock.now.astimezone(tz) if tz is not None else clock.now.replace(tzinfo=None)

    return Moment


@contextmanager
def patched(scheduler: Scheduler, clock: Clock, seed: int) -> Iterator[None]:
    moment, ids = _datetime_of(clock), Random(f"ids {seed}")
    with ExitStack() as stack:
        for module in (
            apply,
            receipt,
            stage,
            commit,
            cube_writes,
            cube_commit,
            staged_files,
            time_travel,
            garbage,
            memory,
        ):
            stack.enter_context(patch.object(module, "datetime", moment))
        stack.enter_context(
            patch.object(
                naming,
                "uuid_module",
                SimpleNamespace(uuid4=lambda: UUID(int=ids.getrandbits(128), version=4), UUID=UUID),
            )
        )
        # A second takes as long as a step, so that patience runs out after as many steps.
        steps = SimpleNamespace(sleep=lambda seconds: scheduler.pause(), monotonic=lambda: float(scheduler.steps))
        for module in (executor, cube_writes):
            stack.enter_context(patch.object(module, "time", steps))
        stack.enter_context(patch.object(group_commit, "CommitQueue", lambda: _QUEUE(turn=Turn(scheduler))))
        yield


_QUEUE = group_commit.CommitQueue
