"""Rows: upserts and deletions by key, against four table formats."""

from __future__ import annotations

import math
import os
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from data import BRANDS
from keyed import KEY, PART, PEERS, UUID, VALUE, Delta, Iceberg, Keyed, Ours, digest, is_installed
from pairs import Cost, Row, absent, at_most, beside, limited, peak, turns, within
from pipe import Engine
from script import Bench, run

from kartothek_cube.core.stores.contract import Store, StoreView

MIB = 2**20
MUST_WIN = (Delta, Iceberg)
BEFORE = "before it"


@dataclass(frozen=True)
class Outcome:
    """What a verb cost, and how many MiB it wrote and had in memory."""

    cost: Cost
    written: float
    memory: float


Outcomes = Mapping[str, Sequence[Outcome]]


# --- in the process of a side ---------------------------------------------------------------------


def load(file: Path) -> pa.Table:
    return pa.ipc.open_file(pa.memory_map(str(file))).read_all()


def build(table: Keyed, file: Path) -> None:
    table.build(load(file))


def timed(table: Keyed, verb: str, argument: Path | int) -> Outcome:
    """One verb. Its rows are opened before the clock starts."""
    given = load(argument) if isinstance(argument, Path) else argument
    before, cpu, begin = files(table.root), time.process_time(), time.perf_counter()
    getattr(table, verb)(given)
    cost = Cost(time.perf_counter() - begin, time.process_time() - cpu)
    return Outcome(cost, written(before, files(table.root)) / MIB, peak(os.getpid()) / MIB)


def read_all(table: Keyed) -> int:
    """The number of rows, read with all columns."""
    return table.read_all().num_rows


def files(root: Path) -> dict[tuple[str, int], int]:
    """The sizes of all files. One that was replaced is another file."""
    found = ((path, path.stat()) for path in root.rglob("*") if path.is_file())
    return {(str(path), stat.st_ino): stat.st_size for path, stat in found}


def written(before: Mapping[Any, int], after: Mapping[Any, int]) -> int:
    """Bytes of new files, and those by which old ones have grown."""
    return sum(max(0, size - before.get(file, 0)) for file, size in after.items())


class Opened(StoreView):
    """Counts the data files that are read."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.files: set[str] = set()

    def around(self, operation: str, key: str, action: Callable[[], Any]) -> Any:
        if key.endswith(".parquet") and "/table/" in key and operation != "put":
            self.files.add(key)
        return action()


def opened(table: Ours, key: int) -> int:
    store = Opened(table.store)
    table.delete(key, store)
    return len(store.files)


# --- turns ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sides:
    """The same rows as tables of each side. Each turn begins with tables as they were built."""

    tables: Mapping[str, Keyed]
    file: Path

    def outcomes(self, verb: str, argument: Path | int, rounds: int, *, warm_up: bool = True) -> Outcomes:
        """Of each side and round. Afterwards all have to have the same rows."""
        found: dict[str, list[Outcome]] = defaultdict(list)
        with ExitStack() as stack:
            engines = {name: stack.enter_context(Engine()) for name in self.tables}
            for i in range(0 if warm_up else 1, rounds + 1):
                for name in list(self.tables)[:: 1 if i % 2 else -1]:
                    outcome = engines[name](timed, self.fresh(name), verb, argument)
                    if i:
                        found[name].append(outcome)
        with Engine() as engine:
            states = {name: engine(digest, table) for name, table in self.tables.items()}
        assert len(set(states.values())) == 1, states
        return found

    def built(self, name: str) -> Path:
        """The folder of a table as it was built."""
        root = self.tables[name].root
        return root.with_name(f"{root.name} as built")

    def fresh(self, name: str) -> Keyed:
        """A table as it was built. Its folder has the same name, since some formats keep it."""
        table, kept = self.tables[name], self.built(name)
        if not kept.exists():
            with Engine() as engine:
                engine(build, table, self.file)
            table.root.rename(kept)
        shutil.rmtree(table.root, ignore_errors=True)
        shutil.copytree(kept, table.root)
        return table


def sides(folder: Path, rows: pa.Table, *, index: bool = True, without: Sequence[str] = ()) -> Sides:
    """Tables of us and of the peers that are there."""
    kinds = {name: kind for name, kind in PEERS.items() if is_installed(kind) and name not in without}
    peers = {name: kind(folder / name) for name, kind in kinds.items()}
    return Sides({"ours": Ours(folder / "ours", index), **peers}, saved(folder / "rows.arrow", rows))


def saved(file: Path, rows: pa.Table) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    return file


def compared(work: str, found: Outcomes) -> Iterator[Row]:
    """Seconds, bytes written and memory beside each peer."""
    taken = {name: [outcome.cost for outcome in outcomes] for name, outcomes in found.items()}
    for name, kind in PEERS.items():
        if name in found:
            yield within(work, taken, name, "ours", 1) if kind in MUST_WIN else beside(work, taken, name, "ours")
        else:
            yield absent(work, name, "<= 1x" if kind in MUST_WIN else "")
    for title, part in (("written", "written"), ("peak memory", "memory")):
        figures = {name: float(np.median([getattr(each, part) for each in each_of])) for name, each_of in found.items()}
        for name in list(figures)[1:]:
            yield in_mib(f"{work}: {title}", name, figures[name], figures["ours"])


def in_mib(work: str, peer: str, theirs: float, ours: float) -> Row:
    """How many times as much the peer needs."""
    return Row(work, peer, theirs, ours, theirs / ours, math.nan, "", None, "MiB")


def read_afterwards(work: str, base: Sides, rounds: int) -> Iterator[Row]:
    """All columns of tables as the verb left them, beside ours as it was built."""
    before = replace(base.tables["ours"], root=base.built("ours"))
    with ExitStack() as stack:
        tables = {**base.tables, BEFORE: before}
        works = {name: partial(stack.enter_context(Engine()), read_all, table) for name, table in tables.items()}
        taken = turns(works, rounds)
    yield within(work, taken, BEFORE, "ours", 1.3)
    for name in PEERS:
        yield beside(work, taken, name, "ours") if name in taken else absent(work, name, "")


# --- data -----------------------------------------------------------------------------------------


def customers(keys: np.ndarray, days: np.ndarray, payload: int, seed: int = 0) -> pa.Table:
    """A row for each key and its day, every tenth column one of texts."""
    rng, n = np.random.default_rng(seed), len(keys)
    texts = pa.array([f"segment {i}" for i in range(BRANDS)])
    columns = [
        pa.array(rng.random(n)) if i % 10 else texts.take(pa.array(rng.integers(0, BRANDS, n)))
        for i in range(payload - 1)
    ]
    named = {f"V{i}": column for i, column in enumerate(columns)}
    return pa.table({KEY: keys, PART: days, VALUE: rng.integers(0, 99, n), **named})


def size_of(table: Keyed, rows: pa.Table) -> float:
    """MiB of the files of ours that have keys of these rows."""
    folder = table.root.with_name(f"{table.root.name} as built") / UUID / "table"
    days = [folder / f"{PART}={day}" for day in rows[PART].unique().to_pylist()]
    return sum(file.stat().st_size for day in days for file in day.iterdir()) / MIB


def bytes_of(work: str, base: Sides, found: Outcomes, rows: pa.Table) -> Row:
    """What is written, beside the files that have the keys."""
    theirs, ours = size_of(base.tables["ours"], rows), found["ours"][0].written
    return Row(
        f"{work}: written",
        "files with keys",
        theirs,
        ours,
        ours / theirs,
        math.nan,
        "<= 1.2x",
        ours / theirs <= 1.2,
        "MiB",
    )


# --- works ----------------------------------------------------------------------------------------


def wide(bench: Bench) -> Iterator[Row]:
    """One percent of many columns."""
    n, days = bench.size(500_000, 10_000), 20
    keys = np.arange(n)
    part = keys // (n // days)
    base = sides(bench.folder / "wide", customers(keys, part, 40))
    rng = np.random.default_rng(1)
    some = {
        "in one file": rng.choice(np.flatnonzero(part == 7), n // 100, replace=False),
        "in all files": rng.choice(n, n // 100, replace=False),
    }
    for where, picked in some.items():
        rows, work = customers(keys[picked], part[picked], 40, seed=2), f"upsert 1 % of {n:,} rows x 42, {where}"
        found = base.outcomes("merge", saved(bench.folder / "wide" / f"{where}.arrow", rows), bench.rounds)
        yield from compared(work, found)
        yield bytes_of(work, base, found, rows)
        yield from read_afterwards(f"{work}: read everything after it", base, bench.rounds)
        if where == "in one file":
            yield at_most(work, [outcome.cost for outcome in found["ours"]], 0.3)


def long(bench: Bench) -> Iterator[Row]:
    """A tenth of the rows, half of them new."""
    n, days, rng = bench.size(10_000_000, 100_000), 20, np.random.default_rng(1)
    keys, part, half = rng.permutation(n) * 2, np.repeat(np.arange(days), n // days), n // 20
    without = () if bench.large or bench.small else ("PyIceberg",)  # it takes many minutes
    base = sides(bench.folder / "long", customers(keys, part, 4), index=False, without=without)
    picked = rng.choice(n, half, replace=False)
    ids = np.concatenate([keys[picked], rng.choice(n, half, replace=False) * 2 + 1])
    rows = customers(ids, np.concatenate([part[picked], rng.integers(0, days, half)]), 4, seed=2)
    rows = rows.take(pa.array(rng.permutation(2 * half)))
    work = f"upsert {2 * half:,} rows, half of them new, into {n:,}"
    found = base.outcomes("merge", saved(bench.folder / "long" / "some.arrow", rows), 1, warm_up=False)
    yield from compared(work, found)
    yield bytes_of(work, base, found, rows)
    yield at_most(work, [outcome.cost for outcome in found["ours"]], 15)
    yield limited(f"{work}: peak memory", found["ours"][0].memory, 1024, "MiB")


def one_key(bench: Bench) -> Iterator[Row]:
    """A customer who came on few days."""
    days, each = bench.size(5000, 100), 100
    part = np.repeat(np.arange(days), each)
    keys = np.random.default_rng(1).integers(0, days * 5, days * each)
    base, key = sides(bench.folder / "one", customers(keys, part, 4)), int(keys[0])
    work = f"delete one key from {days:,} files"
    yield from compared(work, base.outcomes("delete", key, bench.rounds))
    with Engine() as engine:
        read = engine(opened, base.fresh("ours"), key)
    yield limited(f"{work}: files opened", read, len(np.unique(part[keys == key])), "")


def results(bench: Bench) -> Iterator[Row]:
    for work in (wide, long, one_key):
        yield from work(bench)
        shutil.rmtree(bench.folder / work.__name__.removesuffix("_key"))


if __name__ == "__main__":
    run(__doc__, results)
