"""``python -m tests.robustness.soak.kills``: processes that write to one dataset in a directory are
killed again and again; what they acknowledged is there.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from kartothek_cube.api.dataset import (
    compact_dataset,
    garbage_collect_dataset,
    read_table_arrow,
    store_dataframes_as_dataset,
    update_dataset_from_dataframes,
    verify_dataset,
)
from kartothek_cube.core.metadata.naming import document_key, schema_key
from kartothek_cube.core.runtime.options import options
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.stores.open import open_store
from tests.caches import forget

UUID = "uuid"
SHARED = "shared"
# Longer than any write takes, so that garbage collection finds something to do and nothing that it
# must not touch.
PERIOD = timedelta(seconds=20)
KINDS = ("append", "append", "append", "shared", "shared", "replace", "compact", "collect")


@dataclass(frozen=True)
class Step:
    """One write of a process: ``rows`` go to its own partition, or to the one that all share."""

    number: int
    kind: str
    rows: tuple[int, ...] = ()


def rows_of(where: str, rows: tuple[int, ...]) -> pa.Table:
    return pa.table(
        {
            "x": list(rows),
            "p": [where] * len(rows),
            "i1": [x % 5 for x in rows],
            "i2": [str(x) for x in rows],
            "v1": [2 * x for x in rows],
        }
    )


def steps(process: int, life: int) -> Any:
    """What a process does, life by life; the numbers of its rows are nobody else's."""
    random = Random(f"{process} {life}")
    number = 0
    while True:
        first = ((process * 10_000 + life) * 10_000 + number) * 10
        kind = random.choice(KINDS)
        yield Step(
            number,
            kind,
            tuple(range(first, first + random.randint(1, 4))) if kind in ("append", "replace", "shared") else (),
        )
        number += 1


def do(store: Any, process: int, step: Step) -> None:
    own = f"p{process}"
    if step.kind == "compact":
        compact_dataset(UUID, store)
    elif step.kind == "collect":
        garbage_collect_dataset(UUID, store)
    else:
        scope = [{"p": own}] if step.kind == "replace" else None
        where = SHARED if step.kind == "shared" else own
        update_dataset_from_dataframes(
            [rows_of(where, step.rows)], store, UUID, delete_scope=scope, on_conflict="reapply"
        )


def work(url: str, process: int, life: int, log: str, stop: Any, heard: Any) -> None:
    """Write until killed.

    Before and after each step a line goes to the disk. The pipe ``heard`` hears of the start and of
    each step that is done.
    """
    from kartothek_cube.errors import CommitConflict

    store = open_store(url)
    fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(*words: Any) -> None:
        os.write(fd, (json.dumps(words) + "\n").encode())
        os.fsync(fd)

    note("begun", life)
    heard.send(life)
    with options(grace=PERIOD, retain=PERIOD, commit_retries=1000):
        for step in steps(process, life):
            if stop.is_set():
                return
            note("try", step.number, step.kind, step.rows)
            try:
                do(store, process, step)
            except CommitConflict:  # of a compaction, whose inputs somebody has replaced
                note("conflict", step.number)
            except Exception as error:
                note("error", step.number, repr(error))
                raise
            else:
                note("done", step.number)
                heard.send(life)


@dataclass
class Expected:
    """What the log of a process promises: rows that must be there, and a last step that may have
    landed.
    """

    own: set[int] = field(default_factory=set)
    shared: set[int] = field(default_factory=set)
    open: Step | None = None
    acknowledged: int = 0

    def read(self, lines: list[str]) -> None:
        for line in lines:
            what, *more = json.loads(line)
            assert what != "error", f"a process failed: {line}"
            if what == "try":
                self.open = Step(more[0], more[1], tuple(more[2]))
            elif what == "done":
                assert self.open is not None
                self.apply(self.open)
                self.acknowledged += 1
                self.open = None
            elif what == "conflict":
                assert self.open is not None
                assert self.open.kind == "compact", line
                self.open = None

    def apply(self, step: Step) -> None:
        if step.kind == "shared":
            self.shared |= set(step.rows)
        elif step.rows:
            self.own = {*(self.own if step.kind == "append" else ()), *step.rows}

    def settle(self, own: set[int], shared: set[int], mine: Any) -> None:
        """After a kill: the open step landed whole or not at all."""
        step, self.open = self.open, None
        found = {x for x in shared if mine(x)}
        if (own, found) != (self.own, self.shared) and step is not None:
            self.apply(step)
        assert own == self.own, f"own rows {sorted(own)} are not {sorted(self.own)}; the open step is {step}"
        assert found == self.shared, f"shared rows {sorted(found ^ self.shared)} differ; the open step is {step}"


@dataclass
class Child:
    process: int
    log: Path
    life: int = 0
    handle: Any = None
    heard: Any = None
    offset: int = 0
    expected: Expected = field(default_factory=Expected)

    def lines(self) -> list[str]:
        """Whole new lines of the log."""
        data = self.log.read_bytes()[self.offset :] if self.log.exists() else b""
        whole = data[: data.rfind(b"\n") + 1]
        self.offset += len(whole)
        return whole.decode().splitlines()

    def owns(self, x: int) -> bool:
        return x // 1_000_000_000 == self.process


class Killer:
    """Starts writers, kills them, and looks at what they leave."""

    def __init__(self, folder: Path, writers: int, seed: int) -> None:
        self.url = f"hfs://{folder / 'store'}"
        self.store = open_store(self.url)
        self.random = Random(seed)
        self._context = multiprocessing.get_context("spawn")
        self._stop = self._context.Event()
        self.kills = 0
        self.children = [Child(i, folder / f"log{i}") for i in range(1, writers + 1)]
        store_dataframes_as_dataset(
            self.store, UUID, [rows_of(SHARED, (0,))], partition_on=["p"], secondary_indices=["i1", "i2"]
        )

    def start(self, child: Child) -> None:
        child.life += 1
        child.heard, heard = self._context.Pipe(duplex=False)
        child.handle = self._context.Process(
            target=work, args=(self.url, child.process, child.life, str(child.log), self._stop, heard)
        )
        child.handle.start()
        heard.close()

    def kill_one(self) -> None:
        """Wait until a writer works, maybe until it has done some steps, and a little more; kill it
        and look.
        """
        child = min(self.children, key=lambda c: c.life)
        for _ in range(1 + self.random.choice([0, 1, 3])):
            assert child.heard.poll(120), f"writer {child.process} does not come on"
            with contextlib.suppress(EOFError):  # it ended; the assertion below says so
                child.heard.recv()
        # No event to wait for: the kill is to come at any moment of a write.
        time.sleep(self.random.choice([0.05, 0.2, 0.8]) * self.random.random())
        assert child.handle.is_alive(), self.last_words(child)
        os.kill(child.handle.pid, signal.SIGKILL)
        self.kills += 1
        child.handle.join()
        assert child.handle.exitcode == -signal.SIGKILL, self.last_words(child)
        self.look(child)
        self.start(child)

    def last_words(self, child: Child) -> str:
        said = child.log.read_text().splitlines()[-2:] if child.log.exists() else ""
        return f"writer {child.process} ended by itself: {said}"

    def look(self, *dead: Child) -> None:
        for child in dead:
            child.expected.read(child.lines())
        own, found = self.rows()
        for child in dead:
            child.expected.settle(own.get(f"p{child.process}", set()), found, child.owns)

    def rows(self) -> tuple[dict[str, set[int]], set[int]]:
        forget(self.store)
        table = read_table_arrow(UUID, self.store, columns=["x", "p", "v1"])
        xs = table["x"].to_pylist()
        assert len(xs) == len(set(xs)), "rows are there twice"
        assert table["v1"].to_pylist() == [2 * x for x in xs]
        by: dict[str, set[int]] = {}
        for x, p in zip(xs, table["p"].to_pylist(), strict=True):
            by.setdefault(p, set()).add(x)
        return by, by.pop(SHARED)

    def settle_round(self) -> None:
        """Let all writers finish their step; then everything is whole."""
        self._stop.set()
        for child in self.children:
            child.handle.join()
            assert child.handle.exitcode == 0, self.last_words(child)
        self._stop.clear()
        self.look(*self.children)
        report = verify_dataset(UUID, self.store, deep=True)
        assert report.clean, str(report)

    def run(self, kills: int, rounds: int, say: Any) -> dict[str, int]:
        try:
            for i in range(rounds):
                for child in self.children:
                    self.start(child)
                for _ in range(kills // rounds + (i < kills % rounds)):
                    self.kill_one()
                self.settle_round()
                say(f"round {i + 1} of {rounds}: {self.figures()}")
            self.clean_up()
        finally:
            for child in self.children:
                with contextlib.suppress(Exception):
                    child.handle.kill()
        return self.figures()

    def figures(self) -> dict[str, int]:
        names = [path.name for path in Path(self.store.root).rglob("*") if path.is_file()]  # type: ignore[attr-defined]
        return {
            "kills": self.kills,
            "acknowledged": sum(c.expected.acknowledged for c in self.children),
            "rows": sum(len(c.expected.own) + len(c.expected.shared) for c in self.children),
            "files": len(names),
            "temporary files": sum(name.endswith("~") for name in names),
        }

    def clean_up(self) -> None:
        """Nothing is left but what the document names."""
        with options(grace=timedelta(0), retain=timedelta(0)):
            garbage_collect_dataset(UUID, self.store)
        snapshot = load_snapshot(self.store, UUID)
        named = {
            *snapshot.files.to_pylist(),
            *map(str, snapshot.document.indices.values()),
            document_key(UUID),
            schema_key(UUID, "table"),
        }
        root = Path(self.store.root)  # type: ignore[attr-defined]
        assert {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()} == named
        assert verify_dataset(UUID, self.store, deep=True).findings == ()


def run_kills(
    folder: Path, kills: int, rounds: int, writers: int = 3, seed: int = 0, say: Any = lambda text: None
) -> dict[str, int]:
    return Killer(folder, writers, seed).run(kills, rounds, say)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.robustness.soak.kills")
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--writers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    asked = parser.parse_args()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        figures = run_kills(Path(folder), asked.kills, asked.rounds, asked.writers, asked.seed, say)
    say(f"{figures} in {time.monotonic() - begun:.0f} s, seed {asked.seed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
