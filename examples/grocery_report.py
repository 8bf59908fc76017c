"""What the demonstration prints: its steps with their time, and small tables."""

from __future__ import annotations

import os
import textwrap
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WIDTH = 92


@dataclass(frozen=True)
class Took:
    """The time of a finished step. CPU seconds include all children; None where unknown."""

    title: str
    seconds: float
    cpu: float | None


@dataclass
class Report:
    """Prints the steps as they happen and remembers what they took."""

    finished: list[Took] = field(default_factory=list)

    @contextmanager
    def step(self, title: str, what: str) -> Iterator[None]:
        """Announce a step, and say at its end what it took. What ``what`` says happens inside."""
        print(
            f"\n{len(self.finished) + 1:>2}  {title}\n{textwrap.indent(textwrap.fill(what, WIDTH), '    ')}\n",
            flush=True,
        )
        started, cpu = time.perf_counter(), cpu_seconds()
        yield
        now = cpu_seconds()
        took = Took(title, time.perf_counter() - started, None if cpu is None or now is None else now - cpu)
        self.finished.append(took)
        say(_took(took))

    def summary(self) -> None:
        """All steps once more, with their sum."""
        seconds, cpu = sum(t.seconds for t in self.finished), [t.cpu for t in self.finished if t.cpu is not None]
        print(f"\n    {'Step':<64} {'seconds':>10} {'CPU seconds':>14}")
        for number, took in enumerate(self.finished, 1):
            print(f"{number:>4}  {took.title:<62} {took.seconds:>10.1f} {_number(took.cpu):>14}")
        print(f"      {'together':<62} {seconds:>10.1f} {_number(sum(cpu) if cpu else None):>14}", flush=True)


def say(text: str = "") -> None:
    """Print a text below the title of a step."""
    print("\n".join(f"    {line}".rstrip() for line in text.splitlines()) if text else "", flush=True)


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table: texts to the left, numbers to the right, as wide as they need."""
    rows = list(rows)
    numeric = [all(not isinstance(row[i], str) for row in rows) for i in range(len(head))]
    lines = [list(head), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    for line in lines:
        say(
            "  "
            + "   ".join(
                f"{cell:>{w}}" if right else f"{cell:<{w}}"
                for cell, w, right in zip(line, widths, numeric, strict=True)
            )
        )
    say()


def cpu_seconds() -> float | None:
    """CPU seconds of this process, its living descendants and their ended children."""
    proc = Path("/proc")
    if not (proc / "self" / "stat").exists():
        return None
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for folder in proc.iterdir():
        if folder.name.isdigit() and (stat := _stat(folder)) is not None:
            pid = int(folder.name)
            children.setdefault(int(stat[1]), []).append(pid)
            ticks[pid] = sum(map(int, stat[11:15]))
    return sum(ticks.get(pid, 0) for pid in _family(os.getpid(), children)) / os.sysconf("SC_CLK_TCK")


def _stat(folder: Path) -> list[str] | None:
    try:
        text = (folder / "stat").read_text(encoding="ascii", errors="replace")
    except OSError:  # the process has ended
        return None
    return text[text.rindex(")") + 2 :].split()


def _family(pid: int, children: dict[int, list[int]]) -> Iterator[int]:
    yield pid
    for child in children.get(pid, []):
        yield from _family(child, children)


def _took(took: Took) -> str:
    return f"took {took.seconds:.1f} s" + ("" if took.cpu is None else f", {took.cpu:.1f} CPU s")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
