"""``python -m tests.robustness.soak.readers``: processes read a cube of four datasets beside
processes that write to all four and are killed again and again; no read is a mixture.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from kartothek_cube.api.cube import (
    C,
    Cube,
    build_cube,
    cleanup_cube,
    plan_cube_query,
    query_cube_arrow,
    remove_partitions,
    run_plan,
    stream_cube,
    update_cube,
    verify_cube,
)
from kartothek_cube.api.dataset import read_table_arrow
from kartothek_cube.core.runtime.options import options
from kartothek_cube.core.stores.open import open_store
from kartothek_cube.errors import (
    CommitConflict,
    CommitOutcomeUnknown,
    HistoryUnavailable,
    IncompleteCubeWarning,
    MultiTableCommitAborted,
)
from tests.support.server_urls import url_of_azure, url_of_s3
from tests.support.servers import REPOSITORY, azure_server, s3_server

CUBE = Cube(["x"], ["p"], "cube")
TAGS = {"seed": "v1", "e": "v2", "f": "v3", "g": "v4"}
# Longer than a read or a write takes, so that garbage collection takes nothing that is needed.
PERIOD = timedelta(minutes=5)
PATIENCES = (0.3, 1.0, 5.0)  # seconds; a write takes less than one
STORES = ("local", "s3", "azure")
_LINE = 16


@dataclass(frozen=True)
class Stage:
    """What all processes know. Each writer has one cell of the cube to itself."""

    url: str
    folder: Path
    writers: int

    def log(self, writer: int) -> Path:
        """The file of a writer's acknowledged numbers, in lines of one length."""
        return self.folder / f"acknowledged{writer}"

    def acknowledged(self) -> dict[int, int]:
        """The last number that each writer was told had landed."""
        found = {}
        for writer in range(self.writers):
            lines = self.log(writer).read_bytes() if self.log(writer).exists() else b""
            whole = lines[: len(lines) // _LINE * _LINE]
            found[writer] = int(whole[-_LINE:] or b"0")
        return found


def rows_of(dataset: str, numbers: Mapping[int, int]) -> pa.Table:
    """A row for each writer: the cell, its partition, and the number of the write."""
    writers = list(numbers)
    return pa.table({"x": writers, "p": writers, TAGS[dataset]: list(numbers.values())})


# --- the processes that write ---------------------------------------------------------------------


def write(stage: Stage, writer: int, life: int, begun: Any, stop: Any) -> None:
    """Write to all four datasets until killed, each time a higher number."""
    store, random = open_store(stage.url), Random(f"{writer} {life}")
    fd = os.open(stage.log(writer), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    begun.send(life)
    number = life * 100_000
    patience = timedelta(seconds=random.choice(PATIENCES))
    # As many threads as wait for a server, or few, which begin in another order.
    with options(patience=patience, grace=PERIOD, retain=PERIOD, commit_retries=20, threads=random.choice([None, 2])):
        while not stop.is_set():
            number += 1
            with contextlib.suppress(CommitConflict, MultiTableCommitAborted, CommitOutcomeUnknown):
                if random.random() < 0.03:
                    cleanup_cube(CUBE, store)
                if number % 10 == 0 and random.random() < 0.5:
                    # Nothing is there for a moment; the next write brings the cell back.
                    remove_partitions(CUBE, store, C("p") == writer, list(TAGS))
                    continue
                rows = {d: rows_of(d, {writer: number}) for d in TAGS}
                update_cube(rows, CUBE, store, C("p") == writer, list(TAGS), on_conflict="reapply")
                os.write(fd, f"{number:{_LINE - 1}}\n".encode())


# --- the processes that read ----------------------------------------------------------------------


@dataclass
class Reader:
    """Reads in several ways, and checks each answer."""

    stage: Stage
    number: int
    store: Any = None
    last: dict[int, int] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def run(self, reads: int) -> None:
        self.store, random = open_store(self.stage.url), Random(f"reader {self.number}")
        ways = [self.query, self.stream, self.plan, self.tables, self.past]
        with options(threads=2):
            for _ in range(reads):
                way = random.choices(ways, [60, 10, 10, 15, 5])[0]
                way(random)
                self.counts[way.__name__] += 1

    def _newest(self, rows: pa.Table, acknowledged: Mapping[int, int]) -> None:
        """All datasets have the same writes, and none is older than what was known before."""
        for cell, values in cells(rows).items():
            assert len(set(values.values())) == 1, f"the cell {cell} is a mixture: {values}"
            self._not_older(cell, next(iter(values.values())), acknowledged)

    def _not_older(self, cell: int, number: int | None, acknowledged: Mapping[int, int]) -> None:
        assert number is not None
        wanted = max(acknowledged.get(cell, 0), self.last.get(cell, 0))
        assert number >= wanted, f"the cell {cell} has {number}, but {wanted} was there"
        self.last[cell] = number

    def query(self, random: Random) -> None:
        acknowledged = self.stage.acknowledged()
        self._newest(query_cube_arrow(CUBE, self.store), acknowledged)

    def stream(self, random: Random) -> None:
        acknowledged = self.stage.acknowledged()
        self._newest(stream_cube(CUBE, self.store).read_all(), acknowledged)

    def plan(self, random: Random) -> None:
        acknowledged = self.stage.acknowledged()
        plan, seen = plan_cube_query(CUBE, self.store), dict(self.last)
        self.query(random)
        later, self.last = self.last, seen
        self._newest(run_plan(plan, self.store).read_all(), acknowledged)
        self.last = later

    def tables(self, random: Random) -> None:
        """One dataset after the other: what one shows of a write the next one shows, too."""
        for dataset in random.sample(list(TAGS), len(TAGS)):
            acknowledged = self.stage.acknowledged()
            table = read_table_arrow(CUBE.ktk_dataset_uuid(dataset), self.store, columns=["x", TAGS[dataset]])
            for cell, number in zip(*(column.to_pylist() for column in table.columns), strict=True):
                self._not_older(cell, number, acknowledged)

    def past(self, random: Random) -> None:
        moment = datetime.now(UTC) - timedelta(seconds=random.uniform(0, 2))
        with contextlib.suppress(HistoryUnavailable):
            for cell, values in cells(query_cube_arrow(CUBE, self.store, as_of=moment)).items():
                assert len(set(values.values())) == 1, f"at {moment} the cell {cell} is a mixture: {values}"


def cells(rows: pa.Table) -> dict[int, dict[str, int | None]]:
    return {row["x"]: {d: row[tag] for d, tag in TAGS.items()} for row in rows.to_pylist()}


def read(stage: Stage, number: int, reads: int, answers: Any) -> None:
    import warnings

    warnings.simplefilter("error", IncompleteCubeWarning)
    reader, error = Reader(stage, number), None
    try:
        reader.run(reads)
    except BaseException as failure:
        error = f"{type(failure).__name__}: {failure}"
    answers.put((dict(reader.counts), error))


# --- the process that kills -----------------------------------------------------------------------


@dataclass
class Writer:
    """A process that writes, in its present life."""

    number: int
    life: int = 0
    process: Any = None
    begun: Any = None


class Run:
    """Starts readers and writers, and kills writers as long as somebody reads."""

    pause = 15.0  # seconds at most between a kill and the next one, if nobody has come to its end

    def __init__(self, stage: Stage, readers: int, reads: int, seed: int) -> None:
        self.stage, self.random = stage, Random(seed)
        self._context = multiprocessing.get_context("spawn")
        self._stop, self._answers = self._context.Event(), self._context.Queue()
        self._readers = [
            self._context.Process(target=read, args=(stage, i, -(-reads // readers), self._answers))
            for i in range(readers)
        ]
        self._writers = [Writer(i) for i in range(stage.writers)]
        self.counts: Counter[str] = Counter()

    def run(self) -> Counter[str]:
        store = open_store(self.stage.url)
        first = dict.fromkeys(range(self.stage.writers), 0) | {-1: 0}
        build_cube({d: rows_of(d, first) for d in TAGS}, CUBE, store)
        try:
            for writer in self._writers:
                self._start(writer)
            for reader in self._readers:
                reader.start()
            heard = self._wait()
            self._stop.set()
            for writer in self._writers:
                writer.process.join()
                assert writer.process.exitcode == 0, f"a writer ended with {writer.process.exitcode}"
        finally:
            for process in [w.process for w in self._writers] + self._readers:
                with contextlib.suppress(Exception):
                    process.kill()
        errors = [error for _, error in heard if error]
        assert not errors, f"{len(errors)} of {len(heard)} readers failed: {errors[0]}"
        for counts, _ in heard:
            self.counts.update(counts)
        self._check_end(store)
        return self.counts

    def _start(self, writer: Writer) -> None:
        writer.life += 1
        writer.begun, begun = self._context.Pipe(duplex=False)
        arguments = (self.stage, writer.number, writer.life, begun, self._stop)
        writer.process = self._context.Process(target=write, args=arguments)
        writer.process.start()
        begun.close()

    def _wait(self) -> list[tuple[dict[str, int], str | None]]:
        """Kill writers until all readers have come to their ends."""
        heard = []
        while len(heard) < len(self._readers):
            self._kill(min(self._writers, key=lambda w: w.life))
            # No event to wait for: the kill is to come at any moment of a write.
            with contextlib.suppress(Exception):
                heard.append(self._answers.get(timeout=self.random.uniform(0, self.pause)))
        return heard

    def _kill(self, writer: Writer) -> None:
        assert writer.begun.poll(120), "a writer does not begin"
        with contextlib.suppress(EOFError):  # it ended; the assertion below says so
            writer.begun.recv()
        time.sleep(self.random.choice([1, 4, 10]) * self.random.random())
        assert writer.process.is_alive(), f"a writer ended with {writer.process.exitcode}"
        os.kill(writer.process.pid, signal.SIGKILL)
        writer.process.join()
        self.counts["kills"] += 1
        self._start(writer)

    def _check_end(self, store: Any) -> None:
        """What was acknowledged is there, and cleaning up leaves nothing that stopped."""
        last = Reader(self.stage, -1, store)
        with options(grace=timedelta(0), retain=timedelta(0)):
            last.query(self.random)
            cleanup_cube(CUBE, store)
            last.query(self.random)
        findings = [f for f in verify_cube(CUBE, store, deep=True).findings if f.severity != "info"]
        assert not [f for f in findings if f.check != "schema-drift"], str(findings)
        logs = [self.stage.log(writer) for writer in range(self.stage.writers)]
        self.counts["acknowledged"] = sum(log.stat().st_size // _LINE for log in logs if log.exists())


def run_readers(url: str, folder: Path, reads: int, writers: int = 2, readers: int = 2, seed: int = 0) -> Counter[str]:
    """Read beside writers; the numbers of reads, acknowledged writes and kills."""
    return Run(Stage(url, folder, writers), readers, reads, seed).run()


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.robustness.soak.readers")
    parser.add_argument("--reads", type=int, default=10_000)
    parser.add_argument("--readers", type=int, default=2)
    parser.add_argument("--writers", type=int, default=3)
    parser.add_argument("--stores", nargs="*", choices=STORES, default=STORES)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    asked = parser.parse_args()
    for name in asked.stores:
        with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
            folder, begun = Path(temporary), time.monotonic()
            urls: dict[str, Callable[[], str]] = {
                "local": lambda: f"hfs://{folder / 'store'}",  # noqa: B023
                "s3": lambda: url_of_s3(stack.enter_context(s3_server(folder))),  # noqa: B023
                "azure": lambda: url_of_azure(stack.enter_context(azure_server(folder, REPOSITORY / ".node"))),  # noqa: B023
            }
            counts = run_readers(urls[name](), folder, asked.reads, asked.writers, asked.readers, asked.seed)
            say(f"{name}: {dict(counts)} in {time.monotonic() - begun:.0f} s, seed {asked.seed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
