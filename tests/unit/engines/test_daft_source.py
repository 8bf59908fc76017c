"""Cubes and datasets as data frames of Daft."""

from __future__ import annotations

import datetime as dt
import io
import re

import pyarrow as pa
import pytest

from kartothek_cube import Cube, query_cube_arrow
from kartothek_cube.api.cube import append_to_cube, build_cube
from kartothek_cube.api.dataset import store_dataframes_as_dataset
from kartothek_cube.core.runtime.options import current_options
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.engines.tables import open_dataset_table
from kartothek_cube.engines.verbs import scan_cube_daft
from kartothek_cube.errors import InvalidInput
from tests.support.cubes import CUBE, SEED, build_two, with_column
from tests.support.reads import MeasuredStore

daft = pytest.importorskip("daft", reason="not installed: daft (the extra of this name)")
col = daft.col

NAN = float("nan")
DATA = pa.table(
    {
        "x": range(8),
        "p": [0, 0, 0, 1, 1, 2, 2, 2],
        "q": ["a", "a", "b", "a", "b", "b", "b", "a"],
        "i1": [1, 2, 3, 1, 2, 3, 1, 2],
        "v1": [0.5, None, NAN, 1.5, 2.5, NAN, -1.0, None],
        "v2": ["one", None, "two", "", "one", "two", None, "three"],
        "v3": [dt.date(2024, 5, day) for day in range(1, 9)],
        "v4": [True, False, None, True, None, False, True, None],
    }
)
PARTITIONED = Cube(["x"], ["p", "q"], "parts", index_columns=["i1"])


@pytest.fixture(scope="module")
def written():
    store = MemoryStore()
    build_cube(DATA, PARTITIONED, store)
    store_dataframes_as_dataset(store, "flat", [DATA.slice(0, 4), DATA.slice(4)])
    store_dataframes_as_dataset(store, "keyed", [DATA], partition_on=["p", "q"])
    return store


@pytest.fixture
def store(written):
    return MeasuredStore(written)


def source_of(name, store):
    if name == "parts":
        return scan_cube_daft("parts", store)
    from kartothek_cube.engines.daft import TableSource

    return TableSource(open_dataset_table(name, store, "scan_dataset_daft", current_options(None))).read()


def rows(frame):
    table = frame.to_arrow()
    return table.column_names, sorted(map(repr, table.to_pylist()))


QUERIES = {
    "everything": lambda f: f,
    "columns": lambda f: f.select("v1", "x"),
    "partition": lambda f: f.where(col("p") == 2).select("x", "q"),
    "partitions": lambda f: f.where(col("p").is_in([0, 1]) & (col("q") == "a")),
    "partitions or": lambda f: f.where((col("p") == 0) | (col("q") == "b")).select("x"),
    "partition not": lambda f: f.where(~(col("p") == 0)).select("x"),
    "partition function": lambda f: f.where((col("p") % 2) == 0).select("v2"),
    "nothing": lambda f: f.where(col("p") == 9),
    "index": lambda f: f.where(col("i1") == 2).select("x"),
    "index or partition": lambda f: f.where((col("i1") == 2) | (col("p") == 0)).select("x"),
    "range": lambda f: f.where((col("v1") > 0) & (col("v1") <= 1.5)).select("x"),
    "greater": lambda f: f.where(col("v1") > 1).select("x", "v1"),
    "not greater": lambda f: f.where(~(col("v1") > 1)).select("x", "v1"),
    "less": lambda f: f.where(col("v1") < 1).select("x", "v1"),
    "not less": lambda f: f.where(~(col("v1") < 1)).select("x", "v1"),
    "not equal": lambda f: f.where(col("v1") != 1.5).select("x"),
    "null": lambda f: f.where(col("v1").is_null()).select("x"),
    "not null": lambda f: f.where(col("v1").not_null()).select("x"),
    "text": lambda f: f.where(col("v2") == "one").select("p"),
    "texts": lambda f: f.where(col("v2").is_in(["one", "three"])).select("p"),
    "not in": lambda f: f.where(~col("v2").is_in(["one", "three"])).select("p"),
    "date": lambda f: f.where(col("v3") >= dt.date(2024, 5, 5)).select("x"),
    "between": lambda f: f.where(col("x").between(2, 4)),
    "bool": lambda f: f.where(col("v4")).select("x"),
    "columns of one row": lambda f: f.where(col("x") > col("i1")).select("x"),
    "group by partitions": lambda f: f.groupby("p", "q").agg(col("x").sum(), col("v2").count()),
    "group by one": lambda f: f.groupby("q").agg(col("x").max()),
    "group by others": lambda f: f.where(col("p") > 0).groupby("i1").agg(col("x").count()),
    "distinct": lambda f: f.select("q", "p").distinct(),
    "count": lambda f: f.agg(col("x").count()),
    "join": lambda f: f.select("x", "v2").join(f.where(col("p") == 1).select("x", "q"), on="x"),
}


@pytest.mark.parametrize("name", ["parts", "flat", "keyed"])
@pytest.mark.parametrize("query", QUERIES)
def test_the_rows_are_those_of_daft(store, name, query):
    ask = QUERIES[query]
    frame = source_of(name, store)
    in_memory = daft.from_arrow(DATA.select(frame.column_names))
    assert rows(ask(frame)) == rows(ask(in_memory))


@pytest.mark.parametrize("name", ["parts", "flat", "keyed"])
@pytest.mark.parametrize("engine_filter", [False, True])
def test_a_limit(store, name, engine_filter):
    frame = source_of(name, store)
    limited = frame.where(col("v1") > -5).limit(3) if engine_filter else frame.limit(3)
    assert limited.count_rows() == 3


def test_types_are_those_of_daft(store):
    schema = scan_cube_daft("parts", store).schema()
    expected = query_cube_arrow(PARTITIONED, store).schema
    assert schema == daft.Schema.from_pyarrow_schema(expected)


def folders(store):
    return sorted({re.search(r"p=\d/q=\w", key)[0] for key in store.files()})


def test_nothing_is_read_before_collect(store):
    frame = scan_cube_daft("parts", store).where(col("p") == 1)
    assert "cube 'parts'" in explained(frame)
    assert store.files() == []
    assert frame.count_rows() == 2
    assert folders(store) == ["p=1/q=a", "p=1/q=b"]


@pytest.mark.parametrize(
    ("condition", "read"),
    [
        (lambda: (col("p") == 2) & (col("q") == "b"), ["p=2/q=b"]),
        (lambda: (col("p") % 2 == 1) & (col("i1") < 9), ["p=1/q=a", "p=1/q=b"]),
        (lambda: (col("i1") == 2) & (col("q") == "b"), ["p=1/q=b"]),
        (lambda: col("i1") == 99, []),
    ],
)
def test_only_files_that_are_left_are_read(store, condition, read):
    scan_cube_daft("parts", store).where(condition()).collect()
    assert folders(store) == read


def explained(frame):
    text = io.StringIO()
    frame.explain(show_all=True, file=text)
    return text.getvalue()


def test_partition_and_clustering_keys(store):
    text = explained(scan_cube_daft("parts", store))
    assert re.search(r"Partitioning keys = \[PartitionField\(p#\w+\),? PartitionField\(q#\w+\)\]", text)
    assert "Clustering keys = [col(p), col(q)]" in text
    assert "Num Scan Tasks = 6" in text
    assert "Clustering keys" not in explained(source_of("flat", store))


def test_the_state_is_that_of_the_call():
    store = MemoryStore()
    build_two(store)
    frame = scan_cube_daft(CUBE, store, dimension_columns=["x"])
    append_to_cube(with_column(SEED.slice(0, 1), "x", [5]), CUBE, store)
    assert sorted(frame.select("x").to_pydict()["x"]) == [0, 1]
    assert frame.column_names == ["i2", "p", "v2", "x"]


def test_an_unknown_cube(store):
    with pytest.raises(InvalidInput, match="Did you mean 'parts'"):
        scan_cube_daft("part", store)


def test_a_file_that_is_gone():
    store = MemoryStore()
    build_two(store)
    frame = scan_cube_daft("cube", store)
    key = next(key for key in store.keys("cube++seed/table") if key.endswith(".parquet"))
    store.delete(key)
    with pytest.raises(Exception, match=re.escape(key)):
        frame.collect()
