"""Pieces of work that take turns, in wall or CPU seconds, and a table of ratios beside their targets."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

PROC = Path("/proc")


@dataclass(frozen=True)
class Cost:
    """Seconds that a piece of work took, on the wall and of all cores."""

    wall: float
    cpu: float


Taken = Mapping[str, Sequence[Cost]]


def turns(works: Mapping[str, Callable[[], Any]], rounds: int) -> Taken:
    """What each piece of work took in each round, after one round that warms up; every other round goes backwards."""
    taken: dict[str, list[Cost]] = {name: [] for name in works}
    meter = CpuMeter()
    for i in range(rounds + 1):
        for name in list(works)[:: 1 if i % 2 else -1]:
            cpu, begin = meter(), time.perf_counter()
            works[name]()
            wall = time.perf_counter() - begin
            if i:
                taken[name].append(Cost(wall, meter() - cpu))
    return taken


@dataclass(frozen=True)
class Row:
    """A line of the table: both sides in one unit, the ratio that the target speaks of, that of CPU seconds, the target and whether it is met."""

    work: str
    peer: str
    theirs: float
    ours: float
    ratio: float
    cpu: float
    target: str
    met: bool
    unit: str = "s"


def faster(work: str, taken: Taken, peer: str, ours: str, least: float) -> Row:
    """Ours has to be so many times as fast; a ratio is the median of those of the rounds."""
    ratio, cpu = _ratio(taken, peer, ours, WALL), _ratio(taken, peer, ours, CPU)
    return Row(work, peer, _median(taken[peer], WALL), _median(taken[ours], WALL), ratio, cpu, f">= {least:g}x", ratio >= least)


def within(work: str, taken: Taken, peer: str, ours: str, most: float, unit: str = "s") -> Row:
    """Ours may take so many times as much, of CPU seconds or on the wall."""
    cpu = _ratio(taken, ours, peer, CPU)
    part, ratio = (CPU, cpu) if unit == "CPU s" else (WALL, _ratio(taken, ours, peer, WALL))
    return Row(work, peer, _median(taken[peer], part), _median(taken[ours], part), ratio, cpu, f"<= {most:g}x", ratio <= most, unit)


def at_most(work: str, taken: Sequence[Cost], most: float) -> Row:
    """Ours may take so many seconds."""
    ours = _median(taken, WALL)
    return Row(work, "", math.nan, ours, math.nan, math.nan, f"<= {most:g} s", ours <= most)


WALL, CPU = attrgetter("wall"), attrgetter("cpu")


def _ratio(taken: Taken, above: str, below: str, part: Callable[[Cost], float]) -> float:
    """Of CPU seconds, which come in hundredths, the ones of short works may be none."""
    return statistics.median(part(a) / part(b) if part(b) else math.nan for a, b in zip(taken[above], taken[below], strict=True))


def _median(costs: Sequence[Cost], part: Callable[[Cost], float]) -> float:
    return statistics.median(map(part, costs))


def header() -> None:
    print(f"{'work':<46} {'peer':<22} {'theirs':>8} {'ours':>8} {'unit':<5} {'ratio':>8} {'of CPU':>8}  {'target':<8} verdict", flush=True)


def show(row: Row) -> None:
    theirs, ratio, cpu = ("" if math.isnan(x) else f"{x:.2f}{sign}" for x, sign in ((row.theirs, ""), (row.ratio, "x"), (row.cpu, "x")))
    verdict = "met" if row.met else "missed"
    print(f"{row.work:<46} {row.peer:<22} {theirs:>8} {row.ours:>8.2f} {row.unit:<5} {ratio:>8} {cpu:>8}  {row.target:<8} {verdict}", flush=True)


# --- processes --------------------------------------------------------------------------------------------------------


class CpuMeter:
    """CPU seconds of this process and of all that it has been seen with below it. Linux only.

    What an ended process had used when it was last seen still counts: Spark ends idle workers, and their time is in no other process.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[int, str], int] = {}

    def __call__(self) -> float:
        self._seen |= {(pid, fields[19]): int(fields[11]) + int(fields[12]) for pid, fields in _family()}
        return sum(self._seen.values()) / os.sysconf("SC_CLK_TCK")


def peaks() -> dict[int, int]:
    """The most memory, in bytes, that each process below this one has had. Linux only."""
    found = {}
    for pid, _ in _family():
        try:
            status = (PROC / str(pid) / "status").read_text()
        except OSError:  # it has ended
            continue
        line = next((line for line in status.splitlines() if line.startswith("VmHWM")), None)
        if line:
            found[pid] = int(line.split()[1]) * 1024
    return found


def _family() -> Iterator[tuple[int, list[str]]]:
    """The processes from this one down, with the fields of their stat from the third on."""
    stats = {pid: fields for pid, fields in map(_stat, PROC.glob("[0-9]*")) if fields}
    family = {os.getpid()}
    while more := {pid for pid, fields in stats.items() if int(fields[1]) in family} - family:
        family |= more
    return ((pid, stats[pid]) for pid in family)


def _stat(folder: Path) -> tuple[int, list[str]]:
    try:
        return int(folder.name), (folder / "stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has ended
        return int(folder.name), []
