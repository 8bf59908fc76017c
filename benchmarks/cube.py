"""Reading cubes: many rows in each partition, and many partitions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from data import LONG, WIDE, Place, tables, with_products
from pairs import Row, Taken, absent, beside, faster, turns, within
from peers import DuckDB, Question, polars, read_raw
from pipe import Kartothek, start_kartothek, where
from planning import forgotten
from script import Bench, run

from kartothek_cube import C, build_cube, query_cube_arrow, stream_cube

ALL = ("seed", "stock", "forecast", "products")
SUMS = ("SALES", "UNITS", "FORECAST", "DAY")


@dataclass(frozen=True)
class Side:
    """A cube, its name in the table, and who reads it."""

    place: Place
    name: str
    bench: Bench
    duckdb: DuckDB
    kartothek: Kartothek | None

    def ask(self, datasets: Sequence[str], order: bool = False, **conditions: Any) -> Question:
        return Question(self.place, datasets, conditions, order)


# --- ours -------------------------------------------------------------------------------------------------------------


def table(question: Question) -> pa.Table:
    conditions = [C(column) == value for column, value in question.conditions.items()]
    return query_cube_arrow(question.place.cube, question.place.store, conditions or None, question.datasets)


def stream(question: Question) -> int:
    return sum(batch.num_rows for batch in stream_cube(question.place.cube, question.place.store, datasets=question.datasets))


def cold(question: Question) -> pa.Table:
    forgotten(question.place)
    return table(question)


def ask_kartothek(kartothek: Kartothek, question: Question, sums: Sequence[str] = ()) -> list[float]:
    """The number of rows and the sums of columns."""
    found: list[float] = kartothek("query", **where(question.place), conditions=dict(question.conditions), sums=list(sums))
    return found


# --- the same result --------------------------------------------------------------------------------------------------


def check_same(side: Side, question: Question) -> None:
    """All have as many rows with the same sums."""
    ours = table(question)
    sums = [name for name in SUMS if name in ours.column_names]
    expected = _facts(ours, sums)
    found = {"DuckDB": _facts(side.duckdb(question), sums), "Polars": _facts(polars(question), sums)}
    if side.kartothek and question.conditions:
        found["kartothek"] = ask_kartothek(side.kartothek, question, sums)
    for peer, facts in found.items():
        assert all(map(math.isclose, facts, expected)), (peer, facts, expected)


def _facts(found: pa.Table, sums: Sequence[str]) -> list[float]:
    return [found.num_rows, *(pc.sum(found.column(name)).as_py() or 0 for name in sums)]


# --- rows -------------------------------------------------------------------------------------------------------------


def whole(side: Side, datasets: Sequence[str], work: str, most: float) -> Iterator[Row]:
    """Rows batch by batch, in partition order."""
    question = side.ask(datasets)
    check_same(side, question)
    works = {
        "pyarrow, reading only": lambda: read_raw(side.place, datasets),
        "DuckDB": lambda: side.duckdb(question),
        "Polars": lambda: polars(question),
        "ours": lambda: stream(question),
    }
    taken = turns(works, side.bench.rounds)
    yield within(f"{side.name}: {work}", taken, "pyarrow, reading only", "ours", most)
    for peer in ("DuckDB", "Polars"):
        yield faster(f"{side.name}: {work}", taken, peer, "ours", 1)


def in_order(side: Side, datasets: Sequence[str]) -> Iterator[Row]:
    """One table, in the order of the dimensions."""
    question, work = side.ask(datasets, order=True), f"{side.name}: whole cube, dimension order"
    works: dict[str, Callable[[], Any]] = {
        "pyarrow, reading only": lambda: read_raw(side.place, datasets),
        "DuckDB": lambda: side.duckdb(question),
        "Polars": lambda: polars(question),
        "ours": lambda: table(question),
    }
    taken = turns(works, side.bench.rounds)
    yield within(work, taken, "pyarrow, reading only", "ours", 2.5)
    for peer in ("DuckDB", "Polars"):
        yield faster(work, taken, peer, "ours", 1)
    yield from beside_kartothek(side, question, work, 5)


def beside_kartothek(side: Side, question: Question, work: str, least: float) -> Iterator[Row]:
    """It takes long, so it does so once."""
    kartothek, peer = side.kartothek, "kartothek 5.3"
    if kartothek is None:
        yield absent(work, peer, f">= {least:g}x")
        return
    works = {peer: lambda: ask_kartothek(kartothek, question), "ours": lambda: table(question)}
    yield faster(work, turns(works, 1, warm_up=False), peer, "ours", least)


def selective(side: Side, work: str, question: Question) -> Iterator[Row]:
    """A small part of many partitions: with the plan's metadata in memory, and as the first query of a process."""
    check_same(side, question)
    works: dict[str, Callable[[], Any]] = {
        "DuckDB": lambda: side.duckdb(question),
        "Polars": lambda: polars(question),
        "again": lambda: table(question),
        "first": lambda: cold(question),
    }
    if side.kartothek:
        works["kartothek 5.3"] = lambda: side.kartothek and ask_kartothek(side.kartothek, question)
    taken = turns(works, side.bench.rounds)
    for ours in ("again", "first"):
        for peer in ("DuckDB", "Polars", "kartothek 5.3"):
            yield _against(f"{side.name}: {work}, {ours}", taken, peer, ours)


def _against(work: str, taken: Taken, peer: str, ours: str) -> Row:
    return faster(work, taken, peer, ours, 20) if peer in taken else absent(work, peer, ">= 20x")


def brand(side: Side) -> Iterator[Row]:
    """An indexed column of an enrichment."""
    question = side.ask(ALL, BRAND="brand 5")
    check_same(side, question)
    taken = turns({"DuckDB": lambda: side.duckdb(question), "Polars": lambda: polars(question), "ours": lambda: table(question)}, side.bench.rounds)
    for peer in ("DuckDB", "Polars"):
        yield beside(f"{side.name}: one brand of 97", taken, peer, "ours")


def results(bench: Bench) -> Iterator[Row]:
    duckdb = DuckDB()
    with start_kartothek() as kartothek:
        weeks = 50
        wide = Side(Place(WIDE, bench.folder / "wide"), "50 partitions", bench, duckdb, kartothek)
        build_cube(with_products(tables(bench.size(5_000_000, 20_000), weeks)), WIDE, wide.place.store, partition_on={"products": []})
        yield from whole(wide, ALL, "whole cube", 1.5)
        yield from whole(wide, ALL[:2], "join of equal keys", 1.1)
        yield from in_order(wide, ALL)
        yield from brand(wide)
        weeks = bench.size(5000, 50)
        long = Side(Place(LONG, bench.folder / "long"), f"{weeks:,} partitions", bench, duckdb, kartothek)
        build_cube(tables(bench.size(2_500_000, 5000), weeks), LONG, long.place.store)
        yield from whole(long, ALL[:3], "whole cube", 1.5)
        yield from whole(long, ALL[:2], "join of equal keys", 1.1)
        yield from in_order(long, ALL[:3])
        week = weeks // 2
        yield from selective(long, "one cell", long.ask(ALL[:3], PRODUCT_ID=5, DAY=7 * week + 3))
        yield from selective(long, "one cell of a week", long.ask(ALL[:3], PRODUCT_ID=5, DAY=7 * week + 3, WEEK=week))
        yield from selective(long, "one partition", long.ask(ALL[:3], WEEK=week))


if __name__ == "__main__":
    run(__doc__, results)
