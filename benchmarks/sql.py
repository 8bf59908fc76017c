"""Lazy scans and SQL, against the same engine on the same files."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from typing import Any

import polars as pl
import pyarrow as pa
from data import BROAD, LONG, WIDE, Place, broad, tables
from duckdb import DuckDBPyConnection
from pairs import Row, Taken, beside, faster, turns, within
from peers import Question, connection, joined, statement
from pipe import Engine
from script import Bench, run

from kartothek_cube import build_cube, connect, query_cube_arrow, scan_cube, scan_dataset

ALL = ("seed", "stock", "forecast")
CHECKED = ("SALES", "STOCK", "FORECAST", "DAY", "V1")


@dataclass(frozen=True)
class Query:
    """A question to a cube, or to its seed alone, and what stands around it in SQL."""

    question: Question
    columns: Sequence[str] = ()
    where: str = ""
    limit: int | None = None

    @property
    def condition(self) -> str:
        """All of the conditions: peers get those of the question at their scans."""
        equalities = (f"{column} = {value!r}" for column, value in self.question.conditions.items())
        return " AND ".join([*equalities, *([self.where] if self.where else [])])

    @property
    def name(self) -> str:
        """The cube's prefix, or the uuid of its seed."""
        cube = self.question.place.cube
        return cube.uuid_prefix if len(self.question.datasets) > 1 else cube.ktk_dataset_uuid(cube.seed_dataset)

    def of(self, frame: pl.LazyFrame) -> pl.DataFrame:
        """The query of a frame."""
        if self.condition:
            frame = frame.filter(pl.sql_expr(self.condition))
        if self.columns:
            frame = frame.select(pl.len() if self.columns == ("count(*)",) else list(self.columns))
        return (frame if self.limit is None else frame.limit(self.limit)).collect()

    def sql(self, source: str) -> str:
        """The query as a statement."""
        where = f" WHERE {self.condition}" if self.condition else ""
        limit = "" if self.limit is None else f" LIMIT {self.limit}"
        return f"SELECT {', '.join(self.columns) or '*'} FROM {source}{where}{limit}"


# --- who works ------------------------------------------------------------------------------------


def polars(query: Query) -> pl.DataFrame:
    return query.of(joined(query.question))


def duckdb(query: Query) -> pa.Table:
    return connection().sql(query.sql(f"({statement(query.question)})")).to_arrow_table()


def scan(query: Query) -> pl.DataFrame:
    place, is_cube = query.question.place, len(query.question.datasets) > 1
    return query.of((scan_cube if is_cube else scan_dataset)(query.name, place.store))


def sql(query: Query) -> pa.Table:
    return _connected(query.question.place).sql(query.sql(f'"{query.name}"')).to_arrow_table()


@cache
def _connected(place: Place) -> DuckDBPyConnection:
    return connect(place.store)


def eager(query: Query) -> pa.Table:
    """What the library gives without an engine."""
    place = query.question.place
    return query_cube_arrow(place.cube, place.store, payload_columns=query.columns)


Work = Callable[[Query], Any]
PEERS: dict[str, tuple[Work, Work]] = {"Polars": (polars, scan), "DuckDB": (duckdb, sql)}


class Processes:
    """A process for each of the works, which take turns."""

    def __init__(self, stack: ExitStack, rounds: int) -> None:
        works = [work for pair in PEERS.values() for work in pair]
        self._engines = {work: stack.enter_context(Engine()) for work in (*works, eager)}
        self._rounds = rounds

    def compared(self, query: Query, theirs: Work, ours: Work) -> Taken:
        """Both have as many rows with the same sums; then their turns."""
        pair = {"theirs": theirs, "ours": ours}
        found = [self._engines[work](facts, work, query) for work in pair.values()]
        assert query.limit is not None or all(map(math.isclose, *found)), (query, found)
        return turns(
            {name: lambda work=work: self._engines[work](size, work, query) for name, work in pair.items()},
            self._rounds,
        )


def size(work: Work, query: Query) -> int:
    """The number of rows, which stay in the process."""
    return len(work(query))


def facts(work: Work, query: Query) -> list[float]:
    """The number of rows and the sums of some columns, or the only number."""
    frame = pl.DataFrame(work(query))
    return [len(frame)] + [frame[name].sum() for name in ("count_star()", "len", *CHECKED) if name in frame.columns]


# --- rows -----------------------------------------------------------------------------------------


def pairs(processes: Processes, query: Query) -> Iterator[tuple[str, Taken]]:
    """Each peer, and its time beside that of ours on the same engine."""
    for peer, (theirs, ours) in PEERS.items():
        yield peer, _named(processes.compared(query, theirs, ours), peer)


def _named(taken: Taken, peer: str) -> Taken:
    return {peer: taken["theirs"], "ours": taken["ours"]}


def whole(processes: Processes, place: Place) -> Iterator[Row]:
    """All rows, of the seed and of the cube."""
    yield from scanned(processes, place, "whole dataset", ALL[:1])
    yield from scanned(processes, place, "whole cube, 3 datasets", ALL)


def scanned(processes: Processes, place: Place, work: str, datasets: Sequence[str]) -> Iterator[Row]:
    """All rows, batch by batch."""
    for peer, taken in pairs(processes, Query(Question(place, datasets))):
        yield within(f"{len(place.files('seed'))} partitions: {work}", taken, peer, "ours", 1.1)


def parts(processes: Processes, place: Place) -> Iterator[Row]:
    """What a filter without an index, a limit and a count leave."""
    question = Question(place, ALL)
    for work, query in {
        "SALES < 0.001, no index": Query(question, where="SALES < 0.001"),
        "LIMIT 10": Query(question, limit=10),
        "count(*)": Query(question, ("count(*)",)),
    }.items():
        for peer, taken in pairs(processes, query):
            yield beside(f"{len(place.files('seed'))} partitions: {work}", taken, peer, "ours")


def indexed(processes: Processes, place: Place) -> Iterator[Row]:
    """An equality on an indexed column."""
    weeks = len(place.files("seed"))
    for work, datasets in (("dataset", ALL[:1]), ("cube", ALL)):
        query = Query(Question(place, datasets, {"DAY": 7 * (weeks // 2) + 3}))
        for peer, taken in pairs(processes, query):
            yield faster(f"{weeks:,} partitions: indexed equality, {work}", taken, peer, "ours", 20)


def columns(processes: Processes, place: Place, total: int) -> Iterator[Row]:
    """Few columns of many."""
    query = Query(Question(place, ("seed", "seed")), ("PRODUCT_ID", "DAY", "WEEK", "V1", "V2"))
    for engine, (_, ours) in PEERS.items():
        taken = _named(processes.compared(query, eager, ours), "query_cube_arrow")
        yield within(f"2 of {total} columns, {engine}", taken, "query_cube_arrow", "ours", 1.2)


def results(bench: Bench) -> Iterator[Row]:
    with ExitStack() as stack:
        processes = Processes(stack, bench.rounds)
        for weeks in (bench.size(20, 3), bench.size(500, 10)):
            place = Place(WIDE, bench.folder / f"wide {weeks}")
            build_cube(tables(bench.size(1_000_000, 3000), weeks), WIDE, place.store)
            yield from whole(processes, place)
            yield from parts(processes, place)
        weeks = bench.size(5000, 50)
        place = Place(LONG, bench.folder / "long")
        build_cube(tables(bench.size(1_000_000, 5000), weeks), LONG, place.store)
        yield from indexed(processes, place)
        place = Place(BROAD, bench.folder / "broad")
        build_cube(broad(bench.size(500_000, 2000), 20, 40), BROAD, place.store)
        yield from scanned(processes, place, "whole dataset, 43 columns", ALL[:1])
        yield from columns(processes, place, 43)


if __name__ == "__main__":
    run(__doc__, results)
