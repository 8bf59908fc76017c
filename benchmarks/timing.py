"""Interleaved timing of named pieces of work, and a table of ratios."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any


def best_of(works: Mapping[str, Callable[[], Any]], runs: int = 5) -> dict[str, float]:
    """The least wall time of each piece of work; they take turns, so that the machine's moods hit all of them."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(runs):
        for name, work in works.items():
            begin = time.perf_counter()
            work()
            times[name].append(time.perf_counter() - begin)
    return {name: min(t) for name, t in times.items()}


def show(rows: list[tuple[str, float, str, float]]) -> None:
    """Print work, our time, the peer, its time and the ratio."""
    print(f"{'work':<44} {'ours s':>9}  {'peer':<28} {'peer s':>9}  ratio")
    for work, ours, peer, theirs in rows:
        print(f"{work:<44} {ours:>9.4f}  {peer:<28} {theirs:>9.4f}  {ours / theirs:>5.2f}")
