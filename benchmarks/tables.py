"""Table formats: columns, small commits, partitions, writers side by side, and a long life."""

from __future__ import annotations

import math
import shutil
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
from chart import curves
from keyed import (
    BATCH,
    FEATURE,
    KEY,
    PART,
    PEERS,
    Cells,
    DuckLake,
    Keyed,
    Lance,
    Ours,
    Positions,
    SharedDuckLake,
    digest,
    digest_of,
    is_installed,
)
from pairs import Cost, Row, Taken, absent, beside, keep, limited, turns, within
from pipe import Engine
from rows import MIB, Outcomes, Sides, customers, files, in_mib, saved
from script import Bench, run

BY_POSITION = "Lance, values in row order"
COLUMN_PEERS = {**PEERS, BY_POSITION: Positions}
SHARED_PEERS = {name: SharedDuckLake if kind is DuckLake else kind for name, kind in PEERS.items()}
REWRITING = ("deltalake", "PyIceberg")
PICTURE = "longevity.svg"


def sides(folder: Path, ours: Keyed, rows: pa.Table, peers: Mapping[str, type[Keyed]] = PEERS) -> Sides:
    """Tables of the same rows, of us and of the peers that are there."""
    there = {name: kind(folder / kind.__name__) for name, kind in peers.items() if is_installed(kind)}
    return Sides({"ours": ours, **there}, saved(folder / "rows.arrow", rows))


def compared(work: str, taken: Taken, must: Collection[str], peers: Collection[str] = tuple(PEERS)) -> Iterator[Row]:
    """Seconds beside each peer; ours may not take longer than some of them."""
    for name in peers:
        if name not in taken:
            yield absent(work, name, "<= 1x" if name in must else "")
        else:
            yield within(work, taken, name, "ours", 1) if name in must else beside(work, taken, name, "ours")


def with_bytes(
    work: str, found: Outcomes, must: Collection[str], peers: Collection[str] = tuple(PEERS)
) -> Iterator[Row]:
    """And what is written."""
    yield from compared(work, {name: [each.cost for each in of_it] for name, of_it in found.items()}, must, peers)
    written = {name: median(each.written for each in of_it) for name, of_it in found.items()}
    for name in [*written][1:]:
        yield in_mib(f"{work}: written", name, written[name], written["ours"])


def read_in_turns(bench: Bench, tables: Mapping[str, Keyed], verb: str, *arguments: object) -> Taken:
    """Each side in a process of its own. All have to find as many rows."""
    with ExitStack() as stack:
        engines = {name: stack.enter_context(Engine()) for name in tables}
        works = {name: partial(engines[name], count, table, verb, *arguments) for name, table in tables.items()}
        counts = {name: work() for name, work in works.items()}
        assert len(set(counts.values())) == 1, counts
        return turns(works, 2 * bench.rounds)


def count(table: Keyed, verb: str, *arguments: object) -> int:
    """The rows of a query, which come as one table."""
    return int(getattr(table, verb)(*arguments).num_rows)


# --- a wide table ---------------------------------------------------------------------------------


def wide(bench: Bench) -> Iterator[Row]:
    """A feature for all rows, as an own source delivers it; some rows again."""
    n, days, folder = bench.size(500_000, 10_000), 20, bench.folder / "wide"
    keys = np.arange(n)
    rows, part = customers(keys, keys // (n // days), 40), keys // (n // days)
    first, second = (features(keys, part, seed) for seed in (5, 6))
    base = sides(folder, Cells(folder / "ours"), rows, COLUMN_PEERS)
    added = base.outcomes("add", saved(folder / "first.arrow", first), bench.rounds)
    check(base, first)
    yield from with_bytes(f"add a column to {n:,} rows x 42", added, PEERS, COLUMN_PEERS)
    picked = np.random.default_rng(1).choice(n, n // 100, replace=False)
    some = saved(folder / "some.arrow", customers(keys[picked], part[picked], 40, seed=2))
    yield from read_and_merged(bench, sides(folder, base.tables["ours"], rows), some, f"{n:,} rows x 42")
    shutil.rmtree(folder)
    grown = sides(folder, Cells(folder / "ours"), rows.append_column(FEATURE, first[FEATURE]), COLUMN_PEERS)
    again = grown.outcomes("refresh", saved(folder / "second.arrow", second), bench.rounds)
    check(grown, second)
    yield from with_bytes(f"refresh a column of {n:,} rows x 43", again, PEERS, COLUMN_PEERS)


def features(keys: np.ndarray, part: np.ndarray, seed: int) -> pa.Table:
    return pa.table({KEY: keys, PART: part, FEATURE: np.random.default_rng(seed).random(len(keys))})


def check(base: Sides, rows: pa.Table) -> None:
    """The column has these values everywhere."""
    with Engine() as engine:
        states = {name: engine(digest_of_feature, table) for name, table in base.tables.items()}
    assert set(states.values()) == {digest_of(rows, FEATURE)}, states


def digest_of_feature(table: Keyed) -> str:
    return digest_of(table.read(FEATURE), FEATURE)


def read_and_merged(bench: Bench, base: Sides, some: Path, size: str) -> Iterator[Row]:
    """Everything is read, before and after an upsert."""
    taken = read_in_turns(bench, {name: base.fresh(name) for name in base.tables}, "read_all")
    yield from compared(f"read all of {size}", taken, ())
    found = base.outcomes("merge", some, bench.rounds)
    yield from with_bytes(f"upsert 1 % of {size}, in all partitions", found, REWRITING)
    ours = base.tables["ours"]
    before = type(ours)(ours.root.with_name(f"{ours.root.name} as built"))
    taken = read_in_turns(bench, {**base.tables, "before": before}, "read_all")
    yield from compared(f"read all of {size}, after the upsert", taken, ())
    yield within(f"read all of {size}, after the upsert", taken, "before", "ours", 1.3)


# --- many partitions ------------------------------------------------------------------------------


def many(bench: Bench) -> Iterator[Row]:
    """Partitions of a hundred rows."""
    days, each, folder, rng = bench.size(2000, 50), 100, bench.folder / "many", np.random.default_rng(1)
    part = np.repeat(np.arange(days), each)
    keys = rng.integers(0, days * 5, days * each)
    rows, work = customers(keys, part, 4), f"{days:,} partitions"
    base = sides(folder, Ours(folder / "ours", index=False), rows)
    tables = {name: base.fresh(name) for name in base.tables}
    yield from compared(f"{work}: read one", read_in_turns(bench, tables, "where", PART, 7), REWRITING)
    by_index = Sides({"ours": Ours(folder / "by index")}, base.file)
    tables |= {"ours": by_index.fresh("ours")}
    history = read_in_turns(bench, tables, "where", KEY, int(keys[0]))
    yield from compared(f"{work}: history of one key", history, REWRITING)
    other = customers(rng.choice(days * 5, each, replace=False), np.full(each, 11), 4)
    replaced = base.outcomes("replace", saved(folder / "other.arrow", other), bench.rounds)
    yield from with_bytes(f"{work}: replace one", replaced, REWRITING)
    n = bench.size(50, 3)
    more = customers(rng.integers(0, days * 5, n * BATCH), np.repeat(rng.integers(0, days, n), BATCH), 4)
    appended = base.outcomes("append", saved(folder / "more.arrow", more), bench.rounds)
    yield from with_bytes(f"{work}: {n} appends of {BATCH:,} rows", appended, (*REWRITING, "Lance"))
    shared = sides(folder, base.tables["ours"], rows, SHARED_PEERS)
    yield from concurrent(bench, shared, days, work)


@dataclass(frozen=True)
class Landed:
    """What several processes have appended."""

    seconds: float
    conflicts: int
    wrong: int


def concurrent(bench: Bench, base: Sides, days: int, work: str) -> Iterator[Row]:
    """Processes that append at the same time, each as long as all of its rows are there."""
    processes, each = bench.size(8, 2), bench.size(25, 2)
    keys = np.arange(BATCH)
    batches = [
        [customers(keys, np.full(BATCH, (i * each + j) % days), 4) for j in range(each)] for i in range(processes)
    ]
    found = {name: landed(base.fresh(name), batches) for name in base.tables}
    work = f"{work}: {processes} processes x {each} appends"
    yield from compared(work, {name: [Cost(one.seconds, math.nan)] for name, one in found.items()}, REWRITING)
    for title, part in (("conflicts shown", "conflicts"), ("rows lost or doubled", "wrong")):
        ours = getattr(found["ours"], part)
        yield limited(f"{work}: {title}", ours, 0, "")
        for name in [*found][1:]:
            theirs = getattr(found[name], part)
            yield Row(f"{work}: {title}", name, theirs, ours, math.nan, math.nan, "", None, "")


def landed(table: Keyed, batches: Sequence[Sequence[pa.Table]]) -> Landed:
    """All processes have the table open before the clock starts."""
    with ExitStack() as stack:
        engines = [stack.enter_context(Engine()) for _ in batches]
        [before] = {engine(count, table, "read") for engine in engines}
        begin = time.perf_counter()
        done = [engine.processes.submit(append_all, table, own) for engine, own in zip(engines, batches, strict=True)]
        conflicts = sum(each.result() for each in done)
        seconds = time.perf_counter() - begin
        expected = before + sum(rows.num_rows for own in batches for rows in own)
        return Landed(seconds, conflicts, abs(expected - engines[0](count, table, "read")))


def append_all(table: Ours | Lance, batches: Sequence[pa.Table]) -> int:
    """What failed is appended again; the number of failures."""
    rest, conflicts = list(batches), 0
    while rest:
        try:
            for _ in table.appends(tuple(rest)):
                rest.pop(0)
        except Exception:  # whatever a peer raises, its user sees
            conflicts += 1
    return conflicts


# --- a long life ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Round:
    """Rows that come, rows that are corrected, and whether files are compacted."""

    new: pa.Table
    corrected: pa.Table
    compact: bool


def life(bench: Bench) -> Iterator[Row]:
    """Days whose rows come in small commits, with late corrections."""
    days, each, folder = 20, bench.size(5000, 200), bench.folder / "life"
    n, number, every = days * each, bench.size(100, 4), bench.size(10, 2)
    rows = customers(np.arange(n), np.arange(n) // each, 4)
    base = sides(folder, Ours(folder / "ours", index=False), rows)
    tables = {name: base.fresh(name) for name in base.tables}
    written, asked = lived(tables, [round_of(i, n, each, every) for i in range(number)])
    work = f"{number} rounds of append, correct, compact"
    yield from compared(f"{work}: all of them", {name: [cost] for name, cost in written.items()}, REWRITING)
    last = {name: costs[-10:] for name, costs in asked.items()}
    yield from compared(f"{work}: the query after the last ten", last, ())
    yield within(
        f"{work}: the query after the last ten",
        {**last, "the first ten": asked["ours"][:10]},
        "the first ten",
        "ours",
        1.5,
    )
    sizes = {name: sum(files(table.root).values()) / MIB for name, table in tables.items()}
    for name in [*sizes][1:]:
        yield in_mib(f"{work}: size of the folder", name, sizes[name], sizes["ours"])
    keep(PICTURE, longevity({name: [cost.wall for cost in costs] for name, costs in asked.items()}))


def round_of(i: int, n: int, each: int, every: int) -> Round:
    """A thousand new rows of one day; a hundred of another one are corrected."""
    days = n // each
    new = customers(np.arange(BATCH) + n + i * BATCH, np.full(BATCH, i % days), 4, seed=i)
    late = (i * 7 + 3) % days
    corrected = np.random.default_rng(i).choice(each, 100, replace=False) + late * each
    return Round(new, customers(corrected, np.full(100, late), 4, seed=i + 1), i % every == every - 1)


def lived(tables: Mapping[str, Keyed], rounds: Sequence[Round]) -> tuple[Mapping[str, Cost], Taken]:
    """What the rounds cost together, and the query after each. All end with the same rows."""
    written, asked = defaultdict(float), defaultdict(list)
    with ExitStack() as stack:
        engines = {name: stack.enter_context(Engine()) for name in tables}
        for i, each in enumerate(rounds):
            for name in list(tables)[:: 1 if i % 2 else -1]:
                seconds, query = engines[name](one_round, tables[name], each)
                written[name] += seconds
                asked[name].append(Cost(query, math.nan))
        states = {name: engine(digest, tables[name]) for name, engine in engines.items()}
    assert len(set(states.values())) == 1, states
    costs = {name: Cost(written[name], math.nan) for name in tables}
    return costs, {name: asked[name] for name in tables}


def one_round(table: Ours | Lance, each: Round) -> tuple[float, float]:
    """Seconds that it takes, and the least of three queries for all rows."""
    begin = time.perf_counter()
    table.append(each.new)
    table.merge(each.corrected)
    if each.compact:
        table.compact()
    took = time.perf_counter() - begin
    return took, min(seconds_of_query(table) for _ in range(3))


def seconds_of_query(table: Keyed) -> float:
    begin = time.perf_counter()
    table.read()
    return time.perf_counter() - begin


def longevity(seconds: Mapping[str, Sequence[float]]) -> str:
    """The curve as a picture."""
    shown = ", ".join(f"{name} {each[-1] * 1000:.0f} ms" for name, each in seconds.items())
    return curves(
        "A query after each round of append, correct, compact",
        f"After the last round: {shown}.",
        {name: [1000 * each for each in of_it] for name, of_it in seconds.items()},
        "rounds; every tenth one compacts",
        "ms",
    )


def results(bench: Bench) -> Iterator[Row]:
    for work in (wide, many, life):
        yield from work(bench)
        shutil.rmtree(bench.folder / work.__name__)


if __name__ == "__main__":
    run(__doc__, results)
