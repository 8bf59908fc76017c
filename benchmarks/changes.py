"""What changed, against the whole job and against tables that keep a log of changes."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from data import EMPTY, LONG, Place, empty_cube, tables
from formats import Delta, Format, Iceberg, Ours, is_installed
from pairs import Cost, Row, absent, beside, faster, limited, turns, within
from pipe import Engine
from planning import forgotten, plan
from script import Bench, run

from kartothek_cube import (
    C,
    Cube,
    append_to_cube,
    build_cube,
    iter_cube,
    plan_cube_query,
    query_cube_arrow,
    query_cube_changes,
    update_cube,
)
from kartothek_cube.core.stores.contract import Store, StoreView

EXAMPLES = Path(__file__).parent.parent / "examples"
GROCERY = Cube(["PRODUCT_ID", "STORE_ID"], ["WEEK", "STORE_GROUP"], "grocery", "sales")
Commits = Mapping[str, str | None]


class Opened(StoreView):
    """Counts the data files that are read."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.files: set[str] = set()

    def around(self, operation: str, key: str, action: Callable[[], Any]) -> Any:
        if "/table/" in key:
            self.files.add(key)
        return action()


def commits(place: Place) -> Commits:
    """The state that a job has seen."""
    return plan_cube_query(place.cube, place.store).commits


# --- a job for each group -------------------------------------------------------------------------


def job(place: Place, since: Commits | None) -> int:
    """How products respond to their price, week by week; the number of files that it read."""
    store = Opened(forgotten(place).store)
    for _, cells in iter_cube(place.cube, store, partition_by="WEEK", changed_since=since):
        response(cells.to_pandas())
    return len(store.files)


def response(cells: pd.DataFrame) -> pd.DataFrame:
    """The price elasticity, as in the demonstration, and the units in and out of the mailer."""
    cells = cells[(cells["UNITS"] > 0) & (cells["SALES_VALUE"] > 0)]
    product, x, y = cells["PRODUCT_ID"], np.log(cells["PRICE"]), np.log(cells["UNITS"])
    x, y = (each - each.groupby(product).transform("mean") for each in (x, y))
    slope = (x * y).groupby(product).sum() / (x * x).groupby(product).sum()
    in_mailer = cells["MAILER"].fillna("0").ne("0")
    units = [cells["UNITS"].where(which).groupby(product).mean() for which in (in_mailer, ~in_mailer)]
    return pd.DataFrame({"ELASTICITY": slope, "IN_MAILER": units[0], "OTHERS": units[1]})


def grocery(bench: Bench) -> Iterator[Row]:
    """Of one year, one week is delivered again."""
    sys.path.insert(0, str(EXAMPLES))
    import grocery_arrow  # needs PySpark

    weeks, place = bench.size(52, 4), Place(GROCERY, bench.folder / "grocery")
    sales, promotions = (
        t.drop_columns("PERIOD") for t in (grocery_arrow.sales(weeks), grocery_arrow.promotions(weeks))
    )
    datasets = {"sales": sales, "promotions": promotions, "products": grocery_arrow.products()}
    build_cube(datasets, GROCERY, place.store, partition_on={"products": []})
    seen, week = commits(place), C("WEEK") == weeks // 2
    update_cube({"sales": sales.filter(pa.compute.equal(sales["WEEK"], weeks // 2))}, GROCERY, place.store, week)
    works = {"the whole job": None, "ours": seen}
    with ExitStack() as stack:
        engines = {name: stack.enter_context(Engine()) for name in works}
        taken = turns({name: partial(engines[name], job, place, since) for name, since in works.items()}, bench.rounds)
        every, changed = (engines[name](job, place, since) for name, since in works.items())
    work = f"grocery cube, a job for each week, 1 of {weeks} changed"
    yield row_of(f"{work}: files", "the whole job", every, changed, 1 / 20, "")
    yield within(work, taken, "the whole job", "ours", 1 / 20, "CPU s")
    yield within(work, taken, "the whole job", "ours", 1 / 20)


def row_of(work: str, peer: str, theirs: float, ours: float, most: float, unit: str) -> Row:
    """What was not measured in turns, in any unit."""
    taken = {peer: [Cost(theirs, math.nan)], "ours": [Cost(ours, math.nan)]}
    return within(work, taken, peer, "ours", most, unit)


# --- rows of a dataset ----------------------------------------------------------------------------


def rows(days: np.ndarray, each: int, first: int = 0) -> pa.Table:
    """Cells of some days, numbered from the first."""
    rng, n = np.random.default_rng(first), each * len(days)
    keys = {"DAY": np.repeat(days, each), "CELL": np.tile(np.arange(first, first + each), len(days))}
    return pa.table({**keys, "UNITS": rng.integers(0, 99, n), "SALES": rng.random(n)})


def size_of_dataset(bench: Bench) -> Iterator[Row]:
    """One append of 1,000 rows, after which few and many files are there."""
    works, many = {}, bench.size(10_000, 200)
    with ExitStack() as stack:
        for n in (100, many):
            table = Ours(bench.folder / f"{n} files")
            table.build(rows(np.arange(n), 10))
            since = table.version()
            table.append(rows(np.array([n // 2]), 1000, first=10))
            store = Opened(table.place.store)
            assert table.changes(since, store) == 1000
            yield limited(f"changes after an append to {n:,} files: files opened", len(store.files), 1, "")
            engine = stack.enter_context(Engine())
            works[f"{n} files"] = partial(engine, table.changes, since)
            works[f"{n} files, again"] = partial(engine, table.changes_again, since)
        taken = turns(works, 3 * bench.rounds)
    for again, most in (("", 3), (", again", 2)):
        work = f"changes after an append to {many:,} files{again}"
        yield within(work, taken, f"100 files{again}", f"{many} files{again}", most)


@dataclass(frozen=True)
class Commit:
    """Rows that a commit writes, and what it is called; what its changes are asked of a table."""

    work: str
    write: str
    arguments: tuple[Any, ...]
    read: str = "changes"


def logs(bench: Bench) -> Iterator[Row]:
    """The same commits, each read as soon as it is there, as by somebody who never read before."""
    days = bench.size(2000, 50)
    some = np.arange(days // 4, days // 4 + max(1, days // 50))
    done = (
        Commit("1,000 rows appended", "append", (rows(np.array([7]), 1000, first=100),)),
        Commit("one partition replaced", "replace", (rows(np.array([11]), 100, first=1), 11)),
        Commit("1 % of the cells updated", "update", (rows(some, 50),), "updates"),
    )
    with ExitStack() as stack:
        peers: dict[str, tuple[Format, Engine]] = {
            name: (kind(bench.folder / name), stack.enter_context(Engine()))
            for name, kind in {"ours": Ours, "deltalake": Delta, "PyIceberg": Iceberg}.items()
            if is_installed(kind)
        }
        for table, engine in peers.values():
            engine(table.build, rows(np.arange(days), 100))
        for commit in done:
            yield from compared(bench, f"{days:,} partitions: changes, {commit.work}", commit, peers)


def compared(bench: Bench, work: str, commit: Commit, peers: Mapping[str, tuple[Format, Engine]]) -> Iterator[Row]:
    """The rows of those peers that know such a commit."""
    works, found = {}, set()
    for name, (table, engine) in peers.items():
        if hasattr(table, commit.write):
            since = engine(table.version)
            engine(getattr(table, commit.write), *commit.arguments)
            works[name] = partial(engine, getattr(table, commit.read), since)
            found.add(works[name]())
    assert len(found) == 1, (work, found)
    taken = turns(works, 3 * bench.rounds)
    for peer, kind in {"deltalake": Delta, "PyIceberg": Iceberg}.items():
        if peer in works:
            yield within(work, taken, peer, "ours", 1)
        elif hasattr(kind, commit.write):
            yield absent(work, peer, "<= 1x")


# --- cells of a cube ------------------------------------------------------------------------------


def cells(place: Place, since: Commits) -> int:
    return query_cube_changes(place.cube, forgotten(place).store, since).read_all().num_rows


def states(place: Place, since: Commits) -> tuple[pa.Table, pa.Table]:
    """Both, as who has no differences reads them. Commits are those of the only dataset."""
    commit = since[place.cube.seed_dataset]
    return query_cube_arrow(place.cube, forgotten(place).store, as_of=commit), query_cube_arrow(place.cube, place.store)


def polars(place: Place, since: Commits) -> int:
    before, after = map(pl.DataFrame, states(place, since))
    return sum(
        len(left.join(right, on=left.columns, how="anti", nulls_equal=True))
        for left, right in ((before, after), (after, before))
    )


def by_duckdb(place: Place, since: Commits) -> int:
    connection, (before, after) = duckdb.connect(), states(place, since)
    connection.sql("set enable_progress_bar = false")
    connection.register("before", before)
    connection.register("after", after)
    pairs = (("before", "after"), ("after", "before"))
    return sum(len(connection.sql(f"FROM {one} EXCEPT ALL FROM {other}").to_arrow_table()) for one, other in pairs)


def differences(bench: Bench) -> Iterator[Row]:
    """Few partitions of many."""
    weeks, place = bench.size(500, 20), Place(LONG, bench.folder / "weeks")
    found, changed = tables(bench.size(1_000_000, 5000), weeks)["seed"], max(1, weeks // 100)
    build_cube(found, LONG, place.store)
    seen = commits(place)
    for week in range(changed):
        one = found.filter(pa.compute.equal(found["WEEK"], week * 7))
        units = pa.array(np.arange(one.num_rows) % 2).cast(pa.int64())
        append_to_cube(one.set_column(3, "UNITS", pa.compute.add(one["UNITS"], units)), LONG, place.store)
    works = {"query_cube_arrow twice, Polars": polars, "query_cube_arrow twice, DuckDB": by_duckdb, "ours": cells}
    with ExitStack() as stack:
        each = {name: partial(stack.enter_context(Engine()), work, place, seen) for name, work in works.items()}
        assert len({work() for work in each.values()}) == 1
        taken = turns(each, bench.rounds)
    for peer in list(works)[:2]:
        yield faster(f"changes of a cube, {changed} of {weeks} partitions", taken, peer, "ours", 20)


def planning(bench: Bench) -> Iterator[Row]:
    """One append, of many partitions."""
    n, place = bench.size(100_000, 1000), Place(EMPTY, bench.folder / "empty")
    empty_cube(place, n)
    # History begins with the first commit.
    for day in (n, n + 1):
        for name, payload in (("seed", "SALES"), ("forecast", "FORECAST")):
            row = pa.table({"DAY": [day], "PRODUCT_ID": [1], payload: [1.0]})
            append_to_cube({name: row}, EMPTY, place.store)
        if day == n:
            seen = commits(place)
    assert (plan(place), changed_groups(place, seen)) == (n + 2, 1)
    works = {
        "plan": lambda: plan(forgotten(place)),
        "changed": lambda: changed_groups(forgotten(place), seen),
        "plan, again": lambda: plan(place),
        "changed, again": lambda: changed_groups(place, seen),
    }
    taken = turns(works, 3 * bench.rounds)
    for again in ("", ", again"):
        work = f"plan {n:,} partitions x 2 with changed_since{again or ', cold'}"
        yield beside(work, taken, f"plan{again}", f"changed{again}")


def changed_groups(place: Place, since: Commits) -> int:
    return len(plan_cube_query(place.cube, place.store, changed_since=since).groups)


def results(bench: Bench) -> Iterator[Row]:
    yield from grocery(bench)
    yield from size_of_dataset(bench)
    yield from logs(bench)
    yield from differences(bench)
    yield from planning(bench)


if __name__ == "__main__":
    run(__doc__, results)
