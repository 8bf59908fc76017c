"""The peak memory of a process, imports included. Each piece of work runs in its own process."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from data import EMPTY, INDEXED, KEYS, LONG, PAYLOAD, WIDE, Place, empty_cube, few_rows, tables, write_index
from pairs import PROC, Cost, Row, Taken, faster, limited, peak, within
from planning import ONE, plan
from script import Bench, run

from kartothek_cube import (
    C,
    append_to_cube,
    build_cube,
    connect,
    iter_cube,
    options,
    plan_cube_query,
    query_cube_changes,
    read_dataset_changes,
    scan_cube,
    stream_cube,
)
from kartothek_cube.api.dataset import history
from kartothek_cube.core.metadata.naming import document_key
from kartothek_cube.core.runtime.options import Options
from kartothek_cube.core.stores.contract import Store, StoreView

IN_FLIGHT, MIB = 64 * 2**20, 2**20
EACH, PARTITIONS, BATCH = 10, 10_000, 65_536


# --- works, in their process ----------------------------------------------------------------------


def write(root: Path, weeks: int, per_week: int) -> int:
    """Blocks of one week each, written as they come."""
    build_cube((tables(per_week, 1, week) for week in range(weeks)), WIDE, Place(WIDE, root).store, overwrite=True)
    return weeks


def stream_in(root: Path, weeks: int, per_week: int) -> int:
    """Batches of one stream, with the usual bytes in flight."""
    with options(bytes_in_flight=Options().bytes_in_flight):
        build_cube(_batches(weeks, per_week), LONG, Place(LONG, root).store)
    return weeks


def stream_by_pyarrow(root: Path, weeks: int, per_week: int) -> int:
    """The same stream by pyarrow's writer: a file for each week."""
    root.mkdir(parents=True)
    stream = _batches(weeks, per_week)
    for week, batches in groupby(stream, lambda batch: batch.column("WEEK")[0].as_py()):
        with pq.ParquetWriter(root / f"{week}.parquet", stream.schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
    return weeks


def _batches(weeks: int, per_week: int) -> pa.RecordBatchReader:
    # The same rows week after week: making them anew would take as long as writing them.
    first = tables(per_week, 1)["seed"]
    shifted = (
        first.set_column(1, "DAY", pc.add(first["DAY"], 7 * week)).set_column(2, "WEEK", pc.add(first["WEEK"], week))
        for week in range(weeks)
    )
    batches = (batch for seed in shifted for batch in seed.to_batches(max_chunksize=BATCH))
    return pa.RecordBatchReader.from_batches(first.schema, batches)


def stream(root: Path) -> int:
    """Rows batch by batch."""
    return sum(batch.num_rows for batch in stream_cube(WIDE, Place(WIDE, root).store))


def groups(root: Path) -> int:
    """Rows partition by partition."""
    return sum(table.num_rows for _, table in iter_cube(WIDE, Place(WIDE, root).store))


def scan(root: Path) -> int:
    """Rows that Polars' streaming engine adds up."""
    import polars as pl  # in no other process

    frame = scan_cube(WIDE, Place(WIDE, root).store)
    return int(frame.group_by("WEEK").agg(pl.len(), pl.col("SALES").sum()).collect(engine="streaming")["len"].sum())


def sql(root: Path) -> int:
    """Rows that DuckDB adds up."""
    connection = connect(Place(WIDE, root).store)
    return sum(n for _, n, _ in connection.sql("SELECT WEEK, count(*), sum(SALES) FROM wide GROUP BY WEEK").fetchall())


def rewrite(root: Path, weeks: int, per_week: int) -> int:
    """The same cells with other values, in every file."""
    build_cube((_rewritten(per_week, week) for week in range(weeks)), WIDE, Place(WIDE, root).store, overwrite=True)
    return weeks


def _rewritten(per_week: int, week: int) -> pa.Table:
    seed = tables(per_week, 1, week)["seed"]
    return seed.set_column(seed.column_names.index("UNITS"), "UNITS", pc.add(seed["UNITS"], 1))


def seeds(root: Path, weeks: int, per_week: int) -> int:
    """The seed alone."""
    blocks = (tables(per_week, 1, week)["seed"] for week in range(weeks))
    build_cube(blocks, WIDE, Place(WIDE, root).store)
    return weeks


def rows_changed(root: Path, on: Sequence[str]) -> int:
    """Rows of one of the last two states of the seed, and with a key pairs of them."""
    store, uuid = Place(WIDE, root).store, WIDE.ktk_dataset_uuid(WIDE.seed_dataset)
    since = history(uuid, store)["commit"].iloc[1]
    return sum(batch.num_rows for batch in read_dataset_changes(uuid, store, since, on=on or None))


def cells_changed(root: Path) -> int:
    """The same of the cube, partition by partition."""
    store, uuid = Place(WIDE, root).store, WIDE.ktk_dataset_uuid(WIDE.seed_dataset)
    since = history(uuid, store)["commit"].iloc[1]
    return sum(batch.num_rows for batch in query_cube_changes(WIDE, store, since))


def plan_one(root: Path) -> int:
    """One partition of all."""
    return plan(Place(EMPTY, root), ONE)


def parse(root: Path) -> int:
    """Both documents as Python objects."""
    return len([json.loads((root / document_key(EMPTY.ktk_dataset_uuid(name))).read_bytes()) for name in PAYLOAD])


def plan_values(root: Path, first: int, last: int) -> int:
    """The partitions of some values of the index."""
    return _plan_values(Place(INDEXED, root).store, first, last)


def _plan_values(store: Store, first: int, last: int) -> int:
    condition = C("PRODUCT_ID") == first if first == last else (C("PRODUCT_ID") >= first) & (C("PRODUCT_ID") <= last)
    return len(plan_cube_query(INDEXED, store, condition).groups)


def append_few(root: Path, values: int) -> int:
    """Rows added to a seed with an index on its products: once after reading it, once as it is."""
    for day in (PARTITIONS, PARTITIONS + 1):
        append_to_cube({"seed": few_rows(day, values)}, INDEXED, Place(INDEXED, root).store)
    return values


def read_index(root: Path) -> int:
    """All of the index with pyarrow."""
    return sum(pq.read_table(path).num_rows for path in root.rglob("*.by-dataset-index.parquet"))


def bytes_of_values(root: Path, first: int, last: int) -> int:
    """The bytes of the index that planning asks a store for."""
    store = BytesOfIndex(Place(INDEXED, root).store)
    _plan_values(store, first, last)
    return store.bytes


WORKS: Mapping[str, Callable[..., int]] = {
    work.__name__: work
    for work in (
        *(write, stream_in, stream_by_pyarrow, stream, groups, scan, sql, seeds, rewrite),
        *(rows_changed, cells_changed),
        *(plan_one, parse, plan_values, read_index, bytes_of_values, append_few),
    )
}


class BytesOfIndex(StoreView):
    """Counts the bytes of indices that are asked for, as from a store without files."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.bytes = 0

    def local_path(self, key: str) -> str | None:
        return None

    def around(self, operation: str, key: str, action: Callable[[], Any]) -> Any:
        answer = action()
        if "/indices/" in key and operation in ("get", "get_versioned", "tail", "ranges"):
            self.bytes += (
                sum(map(len, answer)) if operation == "ranges" else len(answer if operation == "get" else answer[0])
            )
        return answer


@dataclass(frozen=True)
class Outcome:
    """The result of work in its own process, its peak memory in MiB, and its seconds.

    The seconds leave out the start of the process.
    """

    answer: int
    memory: float
    seconds: float


def child(work: str, *arguments: Any) -> Outcome:
    command = [sys.executable, __file__, "--work", json.dumps([work, *arguments], default=str)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Outcome(**json.loads(done.stdout))


def answer(text: str) -> None:
    """Be the process of a work."""
    name, root, *rest = json.loads(text)
    begin = time.perf_counter()
    with options(bytes_in_flight=IN_FLIGHT):
        found = WORKS[name](Path(root), *rest)
    print(json.dumps({"answer": found, "memory": peak(os.getpid()) / MIB, "seconds": time.perf_counter() - begin}))


# --- rows -----------------------------------------------------------------------------------------


def bounded(work: str, small: Outcome, large: Outcome) -> Row:
    """So many times as much work may not take more memory."""
    return within(work, _once("a part of it", small.memory, large.memory), "a part of it", "ours", 1.15, "MiB")


def _once(peer: str, theirs: float, ours: float) -> Taken:
    """What was not measured in turns, in any unit."""
    return {peer: [Cost(theirs, math.nan)], "ours": [Cost(ours, math.nan)]}


def streaming(bench: Bench) -> Iterator[Row]:
    """One size of a cube, and four times as much in partitions of the same size."""
    per_week, weeks = bench.size(100_000, 500), bench.size(30, 3)
    sizes = {weeks: bench.folder / "small", 4 * weeks: bench.folder / "large"}
    title = f"{per_week * weeks:,} rows x 3 and 4 x as many:"
    yield bounded(
        f"{title} build_cube, week by week", *(child("write", root, n, per_week) for n, root in sizes.items())
    )
    for work, verb in {
        "stream": "stream_cube",
        "groups": "iter_cube",
        "scan": "scan_cube, streaming in Polars",
        "sql": "connect, a sum",
    }.items():
        few, many = (_middle([child(work, root) for _ in range(bench.rounds)]) for root in sizes.values())
        assert (few.answer, many.answer) == (per_week * weeks, 4 * per_week * weeks)
        yield bounded(f"{title} {verb}", few, many)


def _middle(outcomes: Sequence[Outcome]) -> Outcome:
    """What is on its way when memory is at its most differs from run to run."""
    return sorted(outcomes, key=attrgetter("memory"))[len(outcomes) // 2]


def streams_in(bench: Bench) -> Iterator[Row]:
    """A build of one stream; its index grows with the rows."""
    weeks, per_week = bench.size(100, 3, 500), bench.size(200_000, 500)
    found: dict[str, list[Outcome]] = {"stream_by_pyarrow": [], "stream_in": []}
    for _ in range(bench.rounds):
        for work, outcomes in found.items():
            root = bench.folder / work
            outcomes.append(child(work, root, weeks, per_week))
            shutil.rmtree(root)
    peer, title = "pyarrow's writer", f"build_cube of a stream of {weeks * per_week:,} rows"
    taken = {name: [Cost(o.seconds, math.nan) for o in outcomes] for name, outcomes in found.items()}
    yield limited(f"{title}: peak memory", _middle(found["stream_in"]).memory, 450, "MiB")
    yield within(title, {peer: taken["stream_by_pyarrow"], "ours": taken["stream_in"]}, peer, "ours", 1.3)


def differences(bench: Bench) -> Iterator[Row]:
    """Two states without a common file, and a quarter of them."""
    per_week, weeks = bench.size(100_000, 500), bench.size(60, 3)
    sizes = {weeks: bench.folder / "few changes", 4 * weeks: bench.folder / "many changes"}
    for n, root in sizes.items():
        child("seeds", root, n, per_week)
        child("rewrite", root, n, per_week)
    title = f"{per_week * weeks:,} rows x 2 states and 4 x as many:"
    for work, verb, arguments in (
        ("rows_changed", "read_dataset_changes", ([],)),
        ("rows_changed", "read_dataset_changes, by key", (KEYS,)),
        ("cells_changed", "query_cube_changes", ()),
    ):
        few, many = (child(work, root, *arguments) for root in sizes.values())
        assert (few.answer, many.answer) == (2 * per_week * weeks, 8 * per_week * weeks)
        yield bounded(f"{title} {verb}", few, many)
        yield limited(f"{title} {verb}", many.memory, 768, "MiB")
    for root in sizes.values():
        shutil.rmtree(root)


def planning(bench: Bench) -> Iterator[Row]:
    """A million partitions."""
    n, root = bench.size(1_000_000, 1000), bench.folder / "empty"
    empty_cube(Place(EMPTY, root), n)
    ours, theirs, work = child("plan_one", root), child("parse", root), f"plan one of {n:,} partitions x 2"
    yield limited(work, ours.memory, 2048, "MiB")
    yield within(work, _once("json.loads", theirs.memory, ours.memory), "json.loads", "ours", 1, "MiB")
    yield within(work, _once("json.loads", theirs.seconds, ours.seconds), "json.loads", "ours", 1)


def indices(bench: Bench) -> Iterator[Row]:
    """An index of many pairs, and one of a tenth of them."""
    values = bench.size(1_000_000, 100_000, 10_000_000)
    roots = {n: bench.folder / f"index of {n}" for n in (values // 10, values)}
    keys = {n: _indexed(Place(INDEXED, root), n) for n, root in roots.items()}
    size = (roots[values] / keys[values]).stat().st_size
    everything = child("read_index", roots[values])
    first = values // 20
    for name, last, most in (("an equality", first, 0.05), ("a range of 1 %", first + values // 100, 0.1)):
        work = f"index of {values * EACH:,} pairs, {name}"
        part, whole = (child("plan_values", root, first, last) for root in roots.values())
        asked = child("bytes_of_values", roots[values], first, last).answer
        yield within(f"{work}: bytes", _once("the whole file", size, asked), "the whole file", "ours", most, "B")
        yield bounded(f"{work}: and a tenth", part, whole)
        yield faster(
            work, _once("pyarrow, reading all", everything.seconds, whole.seconds), "pyarrow, reading all", "ours", 1
        )


def appending(bench: Bench) -> Iterator[Row]:
    """A few rows where the index has many pairs, in a small file, as all lists are equal."""
    values, partitions, root = bench.size(140_000, 2000), 100, bench.folder / "index of equal lists"
    empty_cube(Place(INDEXED, root), partitions, write_index(Place(INDEXED, root), values, partitions, partitions))
    work = f"append to an index of {values * partitions:,} pairs"
    yield limited(work, child("append_few", root, values).memory, 600, "MiB")


def _indexed(place: Place, values: int) -> str:
    key = write_index(place, values, EACH, PARTITIONS)
    empty_cube(place, PARTITIONS, key)
    return key


def results(bench: Bench) -> Iterator[Row]:
    if not PROC.is_dir():
        print("memory is read from /proc, which this system does not have")
        return
    yield from streaming(bench)
    yield from streams_in(bench)
    yield from differences(bench)
    yield from planning(bench)
    yield from indices(bench)
    yield from appending(bench)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        answer(sys.argv[2])
    else:
        run(__doc__, results)
