"""Narwhals over lazy frames: its operations, still lazy."""

from __future__ import annotations

import narwhals as nw
import pytest

from kartothek_cube import connect, scan_cube, scan_dataset
from kartothek_cube.core.stores.local import MemoryStore
from tests.support.cubes import CUBE, build_two
from tests.support.reads import MeasuredStore


@pytest.fixture
def store(only_fast):
    store = MemoryStore()
    build_two(store)
    return MeasuredStore(store)


@pytest.fixture
def frame(store):
    return nw.from_native(scan_cube(CUBE, store))


def rows(frame):
    assert isinstance(frame, nw.LazyFrame)
    return frame.collect().rows()


def test_columns_and_types(frame, store):
    assert frame.collect_schema() == {
        "i1": nw.Int64(),
        "i2": nw.String(),
        "p": nw.Int64(),
        "v1": nw.Float64(),
        "v2": nw.Int64(),
        "x": nw.Int64(),
        "y": nw.String(),
    }
    assert store.files() == []


def test_a_filter_is_pushed_down(frame, store):
    filtered = frame.filter(nw.col("p") == 0, nw.col("i1").is_in([10])).select("x", "y")
    assert store.files() == []
    assert rows(filtered) == [(0, "a")]
    assert [key.partition("/table/")[2][:3] for key in store.files()] == ["p=0"]


@pytest.mark.parametrize(
    ("ask", "expected"),
    [
        (lambda f: f.filter(nw.col("x").is_between(1, 2) & ~nw.col("v1").is_null()).select("y"), [("b",)]),
        (lambda f: f.filter((nw.col("y") == "a") | (nw.col("v2") > 9)).select("x", "y").sort("x", "y"), None),
        (lambda f: f.with_columns(twice=nw.col("v1") * 2).select("twice").drop_nulls().sort("twice"), None),
        (lambda f: f.group_by("x").agg(nw.col("v1").sum(), n=nw.len()).sort("x"), [(0, 2.0, 2), (1, 3.5, 2)]),
        (lambda f: f.select("x").unique().sort("x"), [(0,), (1,)]),
        (lambda f: f.sort("x", "y", descending=True).select("x", "y").head(1), [(1, "b")]),
        (lambda f: f.rename({"v2": "w"}).drop("v1").select(nw.col("w").max()), [(10,)]),
        (lambda f: f.select(nw.len()), [(4,)]),
        (lambda f: f.select("x", "y", "v1").unpivot(on=["v1"], index=["x", "y"]).select(nw.col("value").max()), None),
        (lambda f: f.join(f.select("x", "y", w="v1"), on=["x", "y"]).select(nw.col("w").sum()), [(5.5,)]),
    ],
)
def test_lazy_operations(frame, ask, expected):
    found = rows(ask(frame))
    # What Narwhals gives for the same rows in memory.
    again = ask(nw.from_native(frame.collect().to_native().lazy()))
    assert found == (rows(again) if expected is None else expected)
    assert found == rows(again)


def test_a_dataset_and_a_cube_are_joined(frame, store):
    dataset = nw.from_native(scan_dataset("cube++e", store))
    joined = frame.select("x", "y").join(dataset, on="x", how="inner").sort("y")
    assert [row[1] for row in rows(joined)] == ["a", "b"]


def test_relations_of_duckdb(store):
    with connect(store) as connection:
        relation = nw.from_native(connection.table("cube"))
        filtered = relation.filter(nw.col("x") == 1).select(nw.col("v2").max())
        assert filtered.collect().rows() == [(10,)]
