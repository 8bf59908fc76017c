"""Reading cubes: many rows in each partition, and many partitions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from data import LONG, WIDE, Place, Tables, tables, with_products
from pairs import Row, Taken, absent, beside, faster, turns, within
from peers import Question, duckdb, polars, read_raw, read_tables
from pipe import Engine, Kartothek, start_kartothek, where
from planning import forgotten
from script import Bench, run

from kartothek_cube import C, build_cube, query_cube_arrow, stream_cube

ALL = ("seed", "stock", "forecast", "products")
SUMS = ("SALES", "UNITS", "FORECAST", "DAY")
RAW, TABLES, DUCKDB, POLARS, KARTOTHEK, OURS = (
    "pyarrow, reading only",
    "pyarrow, into memory",
    "DuckDB",
    "Polars",
    "kartothek 5.3",
    "ours",
)
LIMITS = {RAW: read_raw, TABLES: read_tables}
PEERS = {DUCKDB: duckdb, POLARS: polars}
Works = Mapping[str, Callable[[], Any]]


# --- ours -----------------------------------------------------------------------------------------


def table(question: Question) -> pa.Table:
    conditions = [one for column, value in question.conditions.items() for one in _conditions(C(column), value)]
    return query_cube_arrow(question.place.cube, question.place.store, conditions or None, question.datasets)


def _conditions(column: Any, value: Any) -> list[Any]:
    return [column >= value.start, column < value.stop] if isinstance(value, range) else [column == value]


def stream(question: Question) -> int:
    return sum(
        batch.num_rows for batch in stream_cube(question.place.cube, question.place.store, datasets=question.datasets)
    )


def cold(question: Question) -> pa.Table:
    forgotten(question.place)
    return table(question)


# --- who works ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Side:
    """A cube, its name in the table, and the processes that read it."""

    place: Place
    name: str
    bench: Bench
    engines: Mapping[str, Engine]
    kartothek: Kartothek | None

    def ask(self, datasets: Sequence[str], order: bool = False, **conditions: Any) -> Question:
        return Question(self.place, datasets, conditions, order)

    def limits(self, question: Question) -> Works:
        return {limit: partial(self.engines[RAW], work, question) for limit, work in LIMITS.items()}

    def peers(self, question: Question) -> Works:
        return {peer: partial(self.engines[peer], rows, work, question) for peer, work in PEERS.items()}

    def ours(self, question: Question, work: Callable[[Question], Any] = table) -> Callable[[], Any]:
        return partial(self.engines[OURS], rows, work, question)

    def ask_kartothek(self, question: Question, sums: Sequence[str] = ()) -> list[float]:
        """The number of rows and the sums of columns."""
        assert self.kartothek
        found: list[float] = self.kartothek(
            "query", **where(self.place), conditions=dict(question.conditions), sums=list(sums)
        )
        return found


def rows(work: Callable[[Question], Any], question: Question) -> int:
    """Of an answer, which stays in the process."""
    found = work(question)
    return found if isinstance(found, int) else found.num_rows


# --- the same result ------------------------------------------------------------------------------


def check_same(side: Side, question: Question) -> None:
    """All have as many rows with the same sums."""
    expected = side.engines[OURS](facts, table, question)
    found = {peer: side.engines[peer](facts, work, question) for peer, work in PEERS.items()}
    if side.kartothek and question.conditions:
        found[KARTOTHEK] = side.ask_kartothek(question, list(expected)[1:])
    for peer, figures in found.items():
        theirs = figures if isinstance(figures, list) else list(figures.values())
        assert all(map(math.isclose, theirs, expected.values())), (peer, theirs, expected)


def facts(work: Callable[[Question], pa.Table], question: Question) -> dict[str, float]:
    """The number of rows, and the sums of some columns."""
    found = work(question)
    return {"": found.num_rows} | {
        name: pc.sum(found.column(name)).as_py() or 0 for name in SUMS if name in found.column_names
    }


# --- lines of the table ---------------------------------------------------------------------------


def whole(side: Side, datasets: Sequence[str], work: str, most: float) -> Iterator[Row]:
    """Rows batch by batch, in partition order."""
    question = side.ask(datasets)
    check_same(side, question)
    work, taken = f"{side.name}: {work}", beside_all(side, question, stream)
    yield within(work, taken, RAW, OURS, most)
    yield from against_peers(work, taken)


def in_order(side: Side, datasets: Sequence[str]) -> Iterator[Row]:
    """One table, in the order of the dimensions. The table and the limit's rows fit in memory."""
    question, work = side.ask(datasets, order=True), f"{side.name}: whole cube, dimension order"
    taken = beside_all(side, question, table)
    yield within(work, taken, TABLES, OURS, 2.5)
    yield replace(within(work, taken, RAW, OURS, 2.5), target="", met=None)
    yield from against_peers(work, taken)
    yield from beside_kartothek(side, question, work, 5)


def beside_all(side: Side, question: Question, ours: Callable[[Question], Any]) -> Taken:
    return turns({**side.limits(question), **side.peers(question), OURS: side.ours(question, ours)}, side.bench.rounds)


def against_peers(work: str, taken: Taken) -> Iterator[Row]:
    return (faster(work, taken, peer, OURS, 1) for peer in PEERS)


def beside_kartothek(side: Side, question: Question, work: str, least: float) -> Iterator[Row]:
    """It takes long, so it does so once."""
    if side.kartothek is None:
        yield absent(work, KARTOTHEK, f">= {least:g}x")
        return
    works = {KARTOTHEK: lambda: side.ask_kartothek(question), OURS: side.ours(question)}
    yield faster(work, turns(works, 1, warm_up=False), KARTOTHEK, OURS, least)


def selective(side: Side, work: str, question: Question) -> Iterator[Row]:
    """A small part of many partitions: with metadata in memory, and as a process's first query."""
    check_same(side, question)
    works = {**side.peers(question), "again": side.ours(question), "first": side.ours(question, cold)}
    if side.kartothek:
        works[KARTOTHEK] = lambda: side.ask_kartothek(question)
    taken = turns(works, side.bench.rounds)
    for ours in ("again", "first"):
        for peer in (*PEERS, KARTOTHEK):
            yield _against(f"{side.name}: {work}, {ours}", taken, peer, ours)


def _against(work: str, taken: Taken, peer: str, ours: str) -> Row:
    return faster(work, taken, peer, ours, 20) if peer in taken else absent(work, peer, ">= 20x")


def of_kartothek(long: Side, data: Tables) -> Iterator[Row]:
    """The rows of many partitions, in files that kartothek has written, which takes a minute."""
    name = f"{long.name}, files of kartothek"
    if long.kartothek is None:
        yield from (absent(f"{name}: whole cube", peer, ">= 1x") for peer in PEERS)
        return
    folder = long.bench.folder
    side = replace(long, name=name, place=Place(LONG, folder / "kartothek"))
    side.place.root.mkdir()
    long.kartothek("load", frames={kind: saved(rows, folder / f"{kind}.arrow") for kind, rows in data.items()})
    long.kartothek("build", **where(side.place), partition_on={})
    for datasets, work in ((ALL[:3], "whole cube"), (ALL[:2], "join of equal keys")):
        question = side.ask(datasets)
        check_same(side, question)
        taken = beside_all(side, question, stream)
        yield beside(f"{name}: {work}", taken, RAW, OURS)
        yield from against_peers(f"{name}: {work}", taken)


def saved(rows: pa.Table, path: Path) -> str:
    """A file of Arrow."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    return str(path)


def brand(side: Side) -> Iterator[Row]:
    """An indexed column of an enrichment."""
    question = side.ask(ALL, BRAND="brand 5")
    check_same(side, question)
    taken = turns({**side.peers(question), OURS: side.ours(question)}, side.bench.rounds)
    for peer in PEERS:
        yield beside(f"{side.name}: one brand of 97", taken, peer, OURS)


def results(bench: Bench) -> Iterator[Row]:
    with start_kartothek() as kartothek, ExitStack() as stack:
        engines = {name: stack.enter_context(Engine()) for name in (RAW, *PEERS, OURS)}
        wide = Side(Place(WIDE, bench.folder / "wide"), "50 partitions", bench, engines, kartothek)
        build_cube(
            with_products(tables(bench.size(5_000_000, 20_000), 50)),
            WIDE,
            wide.place.store,
            partition_on={"products": []},
        )
        yield from whole(wide, ALL, "whole cube", 1.5)
        yield from whole(wide, ALL[:2], "join of equal keys", 1.1)
        yield from in_order(wide, ALL)
        yield from brand(wide)
        weeks = bench.size(5000, 50)
        long = Side(Place(LONG, bench.folder / "long"), f"{weeks:,} partitions", bench, engines, kartothek)
        many = tables(bench.size(2_500_000, 5000), weeks)
        build_cube(many, LONG, long.place.store)
        yield from whole(long, ALL[:3], "whole cube", 1.5)
        yield from whole(long, ALL[:2], "join of equal keys", 1.1)
        yield from in_order(long, ALL[:3])
        yield from of_kartothek(long, many)
        week = weeks // 2
        yield from selective(long, "one cell", long.ask(ALL[:3], PRODUCT_ID=5, DAY=7 * week + 3))
        yield from selective(long, "one cell of a week", long.ask(ALL[:3], PRODUCT_ID=5, DAY=7 * week + 3, WEEK=week))
        yield from selective(long, "one partition", long.ask(ALL[:3], WEEK=week))


if __name__ == "__main__":
    run(__doc__, results)
