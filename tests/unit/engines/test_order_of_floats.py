"""In the SQL of `connect` NaN equals itself and is above all numbers."""

from __future__ import annotations

import math
import operator

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from kartothek_cube import connect
from kartothek_cube.api.dataset import store_dataframes_as_dataset
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.engines.arrow_dataset import nan_above_all

NAN = float("nan")
VALUES = [0.5, NAN, None, 1.5, float("inf"), -1.0, NAN]
ROWS = pa.table({"v1": pa.array(VALUES), "v2": pa.array([{"w": v} for v in VALUES]), "x": range(len(VALUES))})
COMPARISONS = {
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
}


def place(value):
    """Where a float stands in the order of DuckDB."""
    return math.isnan(value), 0 if math.isnan(value) else value


def expected(symbol, bound):
    return [x for x, v in enumerate(VALUES) if v is not None and COMPARISONS[symbol](place(v), place(bound))]


@pytest.fixture(scope="module")
def connection():
    store = MemoryStore()
    store_dataframes_as_dataset(store=store, dataset_uuid="d", dfs=[ROWS])
    with connect(store) as connection:
        yield connection


@pytest.mark.parametrize("column", ["v1", "v2.w"])
@pytest.mark.parametrize("bound", ["0.5", "'inf'", "'nan'"])
@pytest.mark.parametrize("symbol", COMPARISONS)
def test_nan_is_above_all_numbers(connection, symbol, bound, column):
    found = connection.sql(f"SELECT x FROM d WHERE {column} {symbol} {bound}::DOUBLE").fetchall()
    assert sorted(x for (x,) in found) == expected(symbol, float(bound.strip("'")))


@pytest.mark.parametrize("bound", [0.5, float("inf"), NAN])
@pytest.mark.parametrize("symbol", COMPARISONS)
def test_an_expression_of_arrow_gets_the_order_of_duckdb(symbol, bound):
    expression = COMPARISONS[symbol](pc.field("v1"), bound)
    both = (pc.field("x") < 5) & expression
    assert ROWS.filter(nan_above_all(expression))["x"].to_pylist() == expected(symbol, bound)
    assert ROWS.filter(nan_above_all(both))["x"].to_pylist() == [x for x in expected(symbol, bound) if x < 5]


def test_expressions_without_floats_stay_as_they_are():
    expression = (pc.field("x") > 1) | pc.field("v1").is_null()
    assert nan_above_all(expression) is expression
    with_nothing_to_change = (pc.field("x") > 1) & (pc.field("v1") < 1.5)
    assert nan_above_all(with_nothing_to_change).equals(with_nothing_to_change)
