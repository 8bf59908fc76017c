"""Pieces of work in turns, in wall or CPU seconds, and a table of ratios with their targets."""

from __future__ import annotations

import json
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

PROC = Path("/proc")
# Names a file to which rows are appended as lines of JSON, beside being shown.
FIGURES = "KARTOTHEK_CUBE_FIGURES"


@dataclass(frozen=True)
class Cost:
    """Seconds that a piece of work took, on the wall and of all cores."""

    wall: float
    cpu: float


Taken = Mapping[str, Sequence[Cost]]


def turns(works: Mapping[str, Callable[[], Any]], rounds: int, *, warm_up: bool = True) -> Taken:
    """The costs per piece of work and round, after one warm-up; every other round is reversed."""
    taken: dict[str, list[Cost]] = {name: [] for name in works}
    meter = CpuMeter()
    for i in range(0 if warm_up else 1, rounds + 1):
        for name in list(works)[:: 1 if i % 2 else -1]:
            cpu, begin = meter(), time.perf_counter()
            works[name]()
            wall = time.perf_counter() - begin
            if i:
                taken[name].append(Cost(wall, meter() - cpu))
    return taken


@dataclass(frozen=True)
class Row:
    """A line of the table: both sides in one unit, the target's ratio, the CPU ratio, a verdict.

    ``met`` is None where there is no target, or no figure because the peer is not installed.
    """

    work: str
    peer: str
    theirs: float
    ours: float
    ratio: float
    cpu: float
    target: str
    met: bool | None
    unit: str = "s"

    @property
    def verdict(self) -> str:
        """Met, missed, not run, or nothing to say."""
        if self.met is None:
            return "not run" if math.isnan(self.ours) else ""
        return "met" if self.met else "missed"


def faster(work: str, taken: Taken, peer: str, ours: str, least: float) -> Row:
    """Ours has to be so many times as fast; a ratio is the median of those of the rounds."""
    ratio, cpu = _ratio(taken, peer, ours, WALL), _ratio(taken, peer, ours, CPU)
    return Row(
        work, peer, _median(taken[peer], WALL), _median(taken[ours], WALL), ratio, cpu, f">= {least:g}x", ratio >= least
    )


def within(work: str, taken: Taken, peer: str, ours: str, most: float, unit: str = "s") -> Row:
    """Ours may take so many times as much, of CPU seconds or on the wall."""
    cpu = _ratio(taken, ours, peer, CPU)
    part, ratio = (CPU, cpu) if unit == "CPU s" else (WALL, _ratio(taken, ours, peer, WALL))
    return Row(
        work,
        peer,
        _median(taken[peer], part),
        _median(taken[ours], part),
        ratio,
        cpu,
        f"<= {most:g}x",
        ratio <= most,
        unit,
    )


def beside(work: str, taken: Taken, peer: str, ours: str) -> Row:
    """How many times as fast ours is, where there is no target."""
    ratio, cpu = _ratio(taken, peer, ours, WALL), _ratio(taken, peer, ours, CPU)
    return Row(work, peer, _median(taken[peer], WALL), _median(taken[ours], WALL), ratio, cpu, "", None)


def shown(work: str, taken: Sequence[Cost]) -> Row:
    """What ours takes, where there is neither a peer nor a target."""
    return Row(work, "", math.nan, _median(taken, WALL), math.nan, math.nan, "", None)


def at_most(work: str, taken: Sequence[Cost], most: float) -> Row:
    """Ours may take so many seconds."""
    return limited(work, _median(taken, WALL), most, "s")


def limited(work: str, ours: float, most: float, unit: str) -> Row:
    """Ours may be so much, in some other unit."""
    return Row(work, "", math.nan, ours, math.nan, math.nan, f"<= {most:g} {unit}".rstrip(), ours <= most, unit)


def absent(work: str, peer: str, target: str) -> Row:
    """A peer that is not installed."""
    return Row(work, peer, math.nan, math.nan, math.nan, math.nan, target, None)


WALL, CPU = attrgetter("wall"), attrgetter("cpu")


def _ratio(taken: Taken, above: str, below: str, part: Callable[[Cost], float]) -> float:
    """CPU seconds of other processes come in hundredths: those of short works may be none."""
    return statistics.median(
        part(a) / part(b) if part(b) else math.nan for a, b in zip(taken[above], taken[below], strict=True)
    )


def _median(costs: Sequence[Cost], part: Callable[[Cost], float]) -> float:
    return statistics.median(map(part, costs))


def header() -> None:
    print(
        f"{'work':<58} {'peer':<28} {'theirs':>8} {'ours':>8} {'unit':<5} "
        f"{'ratio':>8} {'of CPU':>8}  {'target':<9} verdict",
        flush=True,
    )


def show(row: Row) -> None:
    """Print it, and add it to the figures that are collected."""
    theirs, ours, ratio, cpu = figures(row)
    print(
        f"{row.work:<58} {row.peer:<28} {theirs:>8} {ours:>8} {row.unit:<5} "
        f"{ratio:>8} {cpu:>8}  {row.target:<9} {row.verdict}",
        flush=True,
    )
    if FIGURES in os.environ:
        with Path(os.environ[FIGURES]).open("a", encoding="utf-8") as file:
            print(json.dumps(asdict(row)), file=file)


def keep(name: str, picture: str) -> None:
    """Write a picture beside the figures, where they are collected."""
    if FIGURES in os.environ:
        Path(os.environ[FIGURES]).with_name(name).write_text(picture, encoding="utf-8")


def figures(row: Row) -> tuple[str, str, str, str]:
    """Theirs, ours, the ratio and that of CPU seconds as texts, empty where there is none."""
    return readable(row.theirs), readable(row.ours), readable(row.ratio, "x"), readable(row.cpu, "x")


def readable(figure: float, sign: str = "") -> str:
    """Two digits behind the point, or more where nothing else would be left."""
    if math.isnan(figure):
        return ""
    digits = 2 if abs(figure) >= 1 or not figure else min(6, 1 - math.floor(math.log10(abs(figure))))
    return f"{figure:,.{0 if abs(figure) >= 1000 else digits}f}{sign}"


# --- processes ------------------------------------------------------------------------------------


class CpuMeter:
    """CPU seconds of this process and its descendants; without /proc, of this process alone.

    What an ended process had used when it was last seen still counts: Spark ends idle workers, and
    their time is in no other process.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[int, str], int] = {}

    def __call__(self) -> float:
        self._seen |= {
            (pid, fields[19]): int(fields[11]) + int(fields[12]) for pid, fields in _family() if pid != os.getpid()
        }
        return time.process_time() + sum(self._seen.values()) / os.sysconf("SC_CLK_TCK")


def peaks() -> dict[int, int]:
    """The most memory, in bytes, that each process from this one down has had. Linux only."""
    found = {pid: peak(pid) for pid, _ in _family()}
    return {pid: most for pid, most in found.items() if most}


def peak(pid: int) -> int:
    """The most memory, in bytes, that a process has had, 0 if it has ended. Linux only."""
    try:
        status = (PROC / str(pid) / "status").read_text()
    except OSError:
        return 0
    line = next((line for line in status.splitlines() if line.startswith("VmHWM")), "VmHWM: 0 kB")
    return int(line.split()[1]) * 1024


def _family() -> Iterator[tuple[int, list[str]]]:
    """The processes from this one down, with the fields of their stat from the third on."""
    stats = {pid: fields for pid, fields in map(_stat, PROC.glob("[0-9]*")) if fields}
    family = {os.getpid()} & stats.keys()
    while more := {pid for pid, fields in stats.items() if int(fields[1]) in family} - family:
        family |= more
    return ((pid, stats[pid]) for pid in family)


def _stat(folder: Path) -> tuple[int, list[str]]:
    try:
        return int(folder.name), (folder / "stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has ended
        return int(folder.name), []
