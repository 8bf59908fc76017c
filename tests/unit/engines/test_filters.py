"""Filters of Polars and DuckDB that have surprised the translation into conditions."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from functools import reduce
from operator import or_

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from kartothek_cube import connect, scan_dataset
from kartothek_cube.core.expressions.filters import And, Implied, Or, Unknown, implied_clauses
from kartothek_cube.core.expressions.predicates import Clause
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.engines.arrow_dataset import filter_of, parse_expression
from kartothek_cube.engines.polars import Conjunct, split_predicate
from tests.support.commits import UUID, write

NAN, INFINITY = float("nan"), float("inf")


@pytest.fixture
def frame():
    """A lazy frame of a dataset with one file for each value of `p`."""
    store = MemoryStore()
    rows = pa.table(
        {
            "p": ["a", "b", "c"],
            "q": [1.0, 2.0, 3.0],
            "v1": [NAN, 1.0, None],
            "v2": [b"a", b"a\0", None],
            "v3": [dt.date(2024, 2, 29), None, dt.date(1969, 12, 31)],
            "v4": pa.array([None, 0, None], pa.timestamp("us")),
        }
    )
    write(store, rows, on=["p", "q"])
    return scan_dataset(UUID, store)


def values_of_p(frame):
    return sorted(frame.select("p").collect().to_series().to_list())


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (pl.col("v1") == NAN, ["a"]),
        (pl.col("v1") >= NAN, ["a"]),
        (pl.col("v1") < INFINITY, ["b"]),
        (pl.col("q") < INFINITY, ["a", "b", "c"]),
        ((pl.col("v1") != NAN) & (pl.col("p") > "a"), ["b"]),
    ],
)
def test_nan_and_infinity_which_json_lacks_are_left_to_polars(frame, condition, expected):
    assert values_of_p(frame.filter(condition)) == expected


def test_the_parts_of_a_predicate_keep_their_nan():
    predicate = (pl.col("v1") != NAN) & (pl.col("p") > "a") & (pl.col("q") == 1.0)
    parts = [pl.col("v1") != NAN, pl.col("p") > "a", pl.col("q") == 1.0]
    assert [str(conjunct.expression) for conjunct in split_predicate(predicate)] == [str(part) for part in parts]


def test_a_list_of_bytes_is_a_membership(frame):
    (conjunct,) = split_predicate(pl.col("v2").is_in([b"a", None]))
    assert conjunct.filter == Clause("v2", "in", (b"a",))
    assert values_of_p(frame.filter(pl.col("v2").is_in([b"a", None]))) == ["a"]


def test_decimals_keep_all_of_their_digits():
    store, most = MemoryStore(), Decimal("9" * 38)
    write(store, pa.table({"x": [1, 2], "v1": pa.array([most, Decimal(0)], pa.decimal128(38, 0))}))
    for condition in (pl.col("v1") == most, pl.col("v1") >= most, pl.col("v1").is_in([most])):
        assert scan_dataset(UUID, store).filter(condition).collect()["x"].to_list() == [1]


@pytest.mark.parametrize(("item", "value"), [(pa.int64(), []), (pa.list_(pa.int64()), [[]])], ids=["list", "lists"])
def test_a_list_without_items_is_a_value(item, value):  # and not a list without values
    store = MemoryStore()
    write(store, pa.table({"x": [1, 2], "v1": pa.array([value, None], pa.list_(item))}))
    frame = scan_dataset(UUID, store)
    values = frame.collect()["v1"].drop_nulls().implode()
    assert frame.filter(pl.col("v1").is_in(values)).collect()["x"].to_list() == [1]
    assert frame.filter(pl.col("v1").is_null()).collect()["x"].to_list() == [2]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (pl.col("v3") < pl.lit(2**23).cast(pl.Date), ["a", "c"]),
        (pl.col("v3").is_in(pl.Series([2**23, 19_782]).cast(pl.Date).implode()), ["a"]),
        (pl.col("v4") < pl.lit(2**60).cast(pl.Datetime("us")), ["b"]),
        (pl.col("v4").is_in(pl.Series([2**60, 0]).cast(pl.Datetime("us")).implode()), ["b"]),
    ],
)
def test_dates_and_times_that_python_has_not_are_left_to_polars(frame, condition, expected):
    assert values_of_p(frame.filter(condition)) == expected


@pytest.mark.parametrize(
    "constant",
    [
        pa.scalar(2**31 - 1, pa.int32()).cast(pa.date32()),
        pa.scalar(2**63 - 1).cast(pa.timestamp("us")),
        pa.scalar(2**63 - 1).cast(pa.timestamp("us", tz="UTC")),
        pa.array([b"a\x80"]).view(pa.string())[0],
    ],
    ids=["date", "timestamp", "utc", "text"],
)
def test_constants_that_python_has_not_are_left_to_duckdb(constant):  # DuckDB 1.x: DATE 'infinity'
    assert filter_of(pc.field("v1") < constant) == Unknown()
    assert filter_of(pc.field("v1").isin(pa.array([constant]))) == Unknown()


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_columns_are_found_in_any_order(frame, engine):  # Polars 1.30 took another column
    found = frame.filter((pl.col("q") > 1.0) & (pl.col("p") > "a")).select("v4", "p").collect(engine=engine)
    assert sorted(found["p"].to_list()) == ["b", "c"]


def test_a_null_among_conjuncts_says_nothing():  # DuckDB 1.2: WHERE v1 >= 1 ORDER BY v1 LIMIT 2
    condition = (pc.field("v1") >= 1) & pc.scalar(None)
    assert filter_of(condition) == And((Clause("v1", ">=", 1),))


def test_a_filter_on_a_field_of_a_struct_needs_the_struct():
    store = MemoryStore()
    write(store, pa.table({"st": [{"x": 1, "b": 2}, {"x": 2, "b": None}, None], "x": [7, 8, 9]}))
    connection = connect(store)
    assert connection.sql(f"SELECT x FROM {UUID} WHERE st.b = 2").fetchall() == [(7,)]
    assert connection.sql(f"SELECT st FROM {UUID} WHERE st.x = 2 AND x = 8").fetchall() == [({"x": 2, "b": None},)]
    assert parse_expression((pc.field("st", "b") == 2) & (pc.field("x") > 1)) == (
        And((Unknown(), Clause("x", ">", 1))),
        {"st", "x"},
    )


def test_joints_are_read_as_one_where_they_are_nested():
    condition = (pc.field("x") > 1) & (pc.field("x") < 9) & (pc.field("y") == 1)
    assert filter_of(condition) == And((Clause("x", ">", 1), Clause("x", "<", 9), Clause("y", "==", 1)))


def test_filters_of_any_length_run_as_in_the_engine():
    rows = pa.table({"p": [n % 3 for n in range(9)], "x": range(9), "y": range(9)})
    store = MemoryStore()
    write(store, rows, on=["p"])
    text = " AND ".join(f"x <> {n}" for n in range(1, 2_000)) + " AND p <> 1"
    assert connect(store).sql(f"SELECT x FROM {UUID} WHERE {text}").fetchall() == [(0,)]
    # Polars itself takes long for the 2,000 of which the next test speaks.
    condition = reduce(or_, [(pl.col("x") == n) & (pl.col("y") == n) for n in range(8, 600)])
    assert scan_dataset(UUID, store).filter(condition).collect().equals(pl.from_arrow(rows).filter(condition))


def test_what_is_too_deep_is_left_to_the_engine():
    pairs = reduce(or_, [(pl.col("x") == n) & (pl.col("y") == n) for n in range(2_000)])
    assert Conjunct(pairs).filter == Unknown()
    assert [conjunct.filter for conjunct in split_predicate(pairs)] == [Unknown()]
    condition = filter_of(reduce(or_, [(pc.field("x") == n) & (pc.field("y") == n) for n in range(2_000)]))
    assert isinstance(condition, Or)
    assert len(condition.operands) == 2_000
    for _ in range(2_000):
        condition = And((Clause("y", ">", 1), Or((condition, Clause("x", "==", 1)))))
    schema = pa.schema([("x", pa.int64()), ("y", pa.int64())])
    assert implied_clauses([condition], schema, lambda _: True) == [Implied()]
