"""Many small writes: tiny partitions, appends of few rows, beside deltalake and Lance; as Delta."""

from __future__ import annotations

import importlib.util
import os
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from pairs import Cost, Row, absent, at_most, beside, shown, turns, within
from peers import write_plain
from pipe import Engine
from script import Bench, run

from kartothek_cube import open_store
from kartothek_cube.api.dataset import (
    publish_delta,
    store_dataframes_as_dataset,
    unpublish_delta,
    update_dataset_from_dataframes,
)

UUID, PART = "sales", "WEEK"
WAITING, OURS = "ours, waiting for the disk", "ours"


@dataclass(frozen=True)
class Ours:
    """A dataset in a folder. With ``wait``, a verb returns when the disk has everything."""

    wait: bool = False
    package: ClassVar[str] = "kartothek_cube"

    def build(self, root: Path, rows: pa.Table) -> None:
        store_dataframes_as_dataset(open_store(root, fsync=self.wait), UUID, [rows], partition_on=PART)

    def append(self, root: Path, rows: Sequence[pa.Table]) -> None:
        store = open_store(root, fsync=self.wait)
        store_dataframes_as_dataset(store, UUID, [rows[0]])
        for more in rows[1:]:
            update_dataset_from_dataframes([more], store, UUID)


@dataclass(frozen=True)
class Delta:
    """It does not wait for the disk."""

    package: ClassVar[str] = "deltalake"

    def build(self, root: Path, rows: pa.Table) -> None:
        from deltalake import write_deltalake  # nobody has to have it

        write_deltalake(root, rows, partition_by=[PART])

    def append(self, root: Path, rows: Sequence[pa.Table]) -> None:
        from deltalake import write_deltalake

        for more in rows:
            write_deltalake(root, more, mode="append")


@dataclass(frozen=True)
class Lance:
    """It does not wait for the disk, and has no partitions: a build is one file."""

    package: ClassVar[str] = "lance"

    def build(self, root: Path, rows: pa.Table) -> None:
        import lance  # nobody has to have it

        lance.write_dataset(rows, root)

    def append(self, root: Path, rows: Sequence[pa.Table]) -> None:
        import lance

        for i, more in enumerate(rows):
            lance.write_dataset(more, root, mode="append" if i else "create")


@dataclass(frozen=True)
class Flushed:
    """The same partitions by pyarrow, a file in each thread, then each file and folder flushed."""

    package: ClassVar[str] = "pyarrow"

    def build(self, root: Path, rows: pa.Table) -> None:
        write_plain({UUID: rows}, root, by=PART)
        for path in (*root.rglob("*.parquet"), *(path for path in root.rglob("*") if path.is_dir()), root):
            opened = os.open(path, os.O_RDONLY)
            os.fsync(opened)
            os.close(opened)


Side = Ours | Delta | Lance | Flushed
FLUSHED = "pyarrow, one flush at a time"
SIDES: Mapping[str, Side] = {
    OURS: Ours(),
    WAITING: Ours(wait=True),
    "deltalake": Delta(),
    "Lance": Lance(),
    FLUSHED: Flushed(),
}


# --- in the process of a side ---------------------------------------------------------------------


def build(side: Side, root: Path, partitions: int, each: int) -> Cost:
    """Tiny partitions from one table."""
    return timed(side.build, root, table(0, partitions, each))


def append(side: Side, root: Path, times: int, each: int) -> Cost:
    """One commit after the other."""
    assert not isinstance(side, Flushed)
    return timed(side.append, root, [table(i, 1, each) for i in range(times)])


def table(first: int, parts: int, each: int) -> pa.Table:
    rng, n = np.random.default_rng(first), parts * each
    return pa.table(
        {
            PART: np.repeat(np.arange(first, first + parts), each),
            "PRODUCT_ID": np.arange(n),
            "SALES": rng.random(n),
            "UNITS": rng.integers(0, 99, n),
        }
    )


def timed(verb: Callable[[Path, Any], None], root: Path, rows: Any) -> Cost:
    root.parent.mkdir(parents=True, exist_ok=True)
    cpu, begin = time.process_time(), time.perf_counter()
    verb(root, rows)
    return Cost(time.perf_counter() - begin, time.process_time() - cpu)


# --- turns ----------------------------------------------------------------------------------------


def taken(bench: Bench, work: Callable[..., Cost], names: Sequence[str], *sizes: int) -> dict[str, list[Cost]]:
    """What each side took, in turns after a warm-up; each side has a process of its own."""
    found, numbers = defaultdict[str, list[Cost]](list), count()
    with ExitStack() as stack:
        installed = [name for name in names if importlib.util.find_spec(SIDES[name].package)]
        engines = {name: stack.enter_context(Engine()) for name in installed}
        for i in range(bench.rounds + 1):
            for name in installed[:: 1 if i % 2 else -1]:
                root = bench.folder / str(next(numbers))
                cost = engines[name](work, SIDES[name], root, *sizes)
                shutil.rmtree(root)
                if i:
                    found[name].append(cost)
    return found


def compared(work: str, found: Mapping[str, Sequence[Cost]], peer: str, ours: str, most: float | None) -> Row:
    """A row beside a peer; there is no target where the peer does less."""
    if peer not in found:
        return absent(work, peer, "" if most is None else f"<= {most:g}x")
    return beside(work, found, peer, ours) if most is None else within(work, found, peer, ours, most)


def results(bench: Bench) -> Iterator[Row]:
    partitions, each = bench.size(2000, 20), 100
    found = taken(bench, build, list(SIDES), partitions, each)
    work = f"build {partitions:,} partitions of {each} rows"
    yield compared(work, found, "deltalake", OURS, 1)
    yield compared(work, found, "Lance", OURS, None)
    yield compared(f"{work}, waiting for the disk", found, FLUSHED, WAITING, 1)
    yield compared(f"{work}, waiting for the disk", found, "deltalake", WAITING, None)
    times, each = bench.size(50, 3), 1000
    found = taken(bench, append, [name for name in SIDES if name != FLUSHED], times, each)
    work = f"{times} appends of {each:,} rows"
    yield compared(work, found, "Lance", OURS, 1)
    yield compared(work, found, "deltalake", OURS, 1)
    yield shown(f"{work}, waiting for the disk", found[WAITING])
    yield in_a_row(bench, bench.size(2000, 40), each)
    yield from published(bench, bench.size(10_000, 20))


def in_a_row(bench: Bench, times: int, each: int) -> Row:
    """The last appends of many, beside the first ones: the document has grown."""
    store, rows, some = open_store(bench.folder / "row", fsync=False), table(0, 1, each), times // 20
    store_dataframes_as_dataset(store, UUID, [rows])

    def append() -> None:
        update_dataset_from_dataframes([rows], store, UUID)

    taken = turns({"append": append}, times)["append"]
    work, first = f"the last of {times:,} appends in a row", "the first"
    return within(work, {first: taken[:some], "ours": taken[-some:]}, first, "ours", 1.2)


def published(bench: Bench, files: int) -> Iterator[Row]:
    """A log of Delta beside many files, and an append to them, with a version and without."""
    store, more = open_store(bench.folder / "published", fsync=False), table(0, 1, 100)
    store_dataframes_as_dataset(store, UUID, [table(0, files, 5)], partition_on=PART)

    def append() -> None:
        update_dataset_from_dataframes([more], store, UUID)

    plain = turns({"append": append}, bench.rounds)["append"]
    taken = []
    for i in range(bench.rounds + 1):
        unpublish_delta(UUID, store)
        taken.append(timed(lambda _, __: publish_delta(UUID, store, always=True), bench.folder / "none", i))
    yield at_most(f"publish {files:,} files as Delta", taken[1:], 2)
    found = turns({"append": append}, bench.rounds)["append"]
    yield at_most(f"append to {files:,} files, published", found, 0.1)
    yield shown("the same, not published", plain)


if __name__ == "__main__":
    run(__doc__, results)
