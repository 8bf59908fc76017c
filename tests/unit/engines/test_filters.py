"""Filters of Polars and DuckDB that have surprised the translation into conditions."""

from __future__ import annotations

import datetime as dt

import polars as pl
import pyarrow as pa
import pytest

from kartothek_cube import scan_dataset
from kartothek_cube.core.stores.memory import MemoryStore
from kartothek_cube.engines.filters import Membership
from kartothek_cube.engines.polars_filters import split_predicate
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
