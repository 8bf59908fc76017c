"""How much a test tries: `make test` some of the cases of a loop, `make test-exhaustive` all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")

# The variable of the environment that processes of a run inherit.
EXHAUSTIVE = "KARTOTHEK_CUBE_EXHAUSTIVE"


def is_exhaustive() -> bool:
    """Whether the run is one of `make test-exhaustive`."""
    return bool(os.environ.get(EXHAUSTIVE))


def some(cases: Iterable[T], step: int) -> Sequence[T]:
    """All cases in an exhaustive run, else the first, each of ``step``, and the last."""
    every = list(cases)
    return every if is_exhaustive() else every[:-1:step] + every[-1:]


def crash_points(calls: int) -> Sequence[tuple[int, str]]:
    """Numbers of store calls, and whether a process ends before or after the call."""
    return some([(n, kind) for n in range(calls) for kind in ("crash", "crash_after")], 5)
