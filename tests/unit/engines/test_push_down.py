"""What is read for a query: files and bytes, as the store counts them; what `explain` says."""

from __future__ import annotations

import re
from importlib.util import find_spec

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from kartothek_cube import Cube, connect, options, scan_cube, scan_dataset
from kartothek_cube.api.cube import build_cube, extend_cube
from kartothek_cube.core.stores.local import MemoryStore
from tests.support.reads import MeasuredStore

HAS_RESOLVERS = find_spec("polars.lazyframe.resolver") is not None
PARTITIONS, ROWS = 6, 3_000
WIDE = [f"v{n:02}" for n in range(40)]
CUBE = Cube(["x"], ["p"], "cube", index_columns=["i1"])


@pytest.fixture(scope="module")
def written():
    """43 columns in six files that are larger than what is read of a file at first; `e` beside."""
    inner = MemoryStore()
    x = np.arange(PARTITIONS * ROWS)
    rng = np.random.default_rng(1)
    payload = {name: rng.random(len(x)) for name in WIDE}
    build_cube(pa.table({"x": x, "p": x // ROWS, "i1": x // (ROWS // 2), **payload}), CUBE, inner)
    extend_cube({"e": pa.table({"x": x, "p": x // ROWS, "w": x % 7})}, CUBE, inner)
    return inner


@pytest.fixture
def store(written, only_fast):
    return MeasuredStore(written)


def cube_frame(store):
    return scan_cube(CUBE, store)


def dataset_frame(store):
    return scan_dataset("cube++seed", store)


def by_polars(build):
    """Queries of a frame that Polars runs."""
    return lambda store, ask, text: ask(build(store)).collect()


def by_connect(name):
    """Queries of a table of `connect`."""

    def run(store, ask, text):
        with connect(store) as connection:
            return connection.sql(text.format(name)).to_arrow_table()

    return run


def by_duckdb(build):
    """DuckDB over a lazy frame."""

    def run(store, ask, text):
        frame = build(store)
        assert isinstance(frame, pl.LazyFrame)
        with duckdb.connect() as connection:
            return connection.sql(text.format("frame")).to_arrow_table()

    return run


ENGINES = {
    "scan_cube": by_polars(cube_frame),
    "scan_dataset": by_polars(dataset_frame),
    "connect-cube": by_connect("cube"),
    "connect-dataset": by_connect('"cube++seed"'),
}
if not duckdb.__version__.startswith("1."):  # DuckDB 1 collects a lazy frame whole
    ENGINES |= {"duckdb-cube": by_duckdb(cube_frame), "duckdb-dataset": by_duckdb(dataset_frame)}


@pytest.fixture(params=ENGINES)
def run(request, store):
    """Runs a query; its result, and the partitions of the files of the seed that were read."""

    def run_and_measure(ask, text):
        store.reset()
        result = ENGINES[request.param](store, ask, text)
        return result, partitions(store)

    run_and_measure.engine = request.param
    return run_and_measure


def skip_if_not_passed(run):
    if run.engine.startswith("connect") and duckdb.__version__.startswith("1."):
        pytest.skip("DuckDB 1 keeps IN and OR for itself")


def partitions(store, dataset="seed"):
    found = [re.match(rf"cube\+\+{dataset}/table/p=(\d+)/", key) for key in store.files()]
    return [int(match[1]) for match in found if match]


def sizes(store):
    """The bytes of the data files of the seed by partition."""
    keys = list(store.inner.keys("cube++seed/table/p="))
    return {int(re.search(r"p=(\d+)", key)[1]): len(store.inner.get(key)) for key in keys}


# --- files and bytes ------------------------------------------------------------------------------


def test_one_partition(run, store):
    result, read = run(
        lambda frame: frame.filter(pl.col("p") == 2).select("x", *WIDE),
        f"SELECT x, {', '.join(WIDE)} FROM {{}} WHERE p = 2",
    )
    assert result.shape[0] == ROWS
    assert read == [2]
    # The footer is in the piece that is read first, and rows of the end of the file are, too.
    assert store.data_bytes() <= sizes(store)[2] + 2 * 64 * 1024
    assert partitions(store, "e") == []


def test_an_indexed_equality(run, store):
    result, read = run(lambda frame: frame.filter(pl.col("i1") == 7).select("x"), "SELECT x FROM {} WHERE i1 = 7")
    assert result.shape[0] == ROWS // 2
    assert read == [3]
    assert store.data_bytes() < sizes(store)[3] / 3


def test_an_indexed_list(run):
    skip_if_not_passed(run)
    result, read = run(
        lambda frame: frame.filter(pl.col("i1").is_in([1, 7, 99])).select("x"),
        "SELECT x FROM {} WHERE i1 IN (1, 7, 99)",
    )
    assert result.shape[0] == ROWS
    assert read == [0, 3]


def test_a_value_that_no_file_has(run, store):
    result, read = run(lambda frame: frame.filter(pl.col("i1") == 99).select("x"), "SELECT x FROM {} WHERE i1 = 99")
    assert result.shape[0] == 0
    assert read == []
    assert store.data_bytes() == 0


@pytest.mark.parametrize(
    ("condition", "where"),
    [
        ((pl.col("p") >= 2) & (pl.col("p") < 4), "p >= 2 AND p < 4"),
        (pl.col("p").is_between(2, 3), "p BETWEEN 2 AND 3"),
        ((pl.col("p") == 2) | (pl.col("p") == 3), "p = 2 OR p = 3"),
    ],
    ids=["range", "between", "or"],
)
def test_a_range_on_a_partition_column(run, condition, where):
    if "OR" in where:
        skip_if_not_passed(run)
    result, read = run(lambda frame: frame.filter(condition).select("x"), f"SELECT x FROM {{}} WHERE {where}")
    assert result.shape[0] == 2 * ROWS
    assert read == [2, 3]


def test_two_of_43_columns(run, store):
    result, read = run(lambda frame: frame.select("x", "v07"), "SELECT x, v07 FROM {}")
    assert result.shape == (PARTITIONS * ROWS, 2)
    assert read == list(range(PARTITIONS))
    # Two columns, and 128 KiB from the end of each file, which has the footer.
    assert store.data_bytes() < 0.1 * sum(sizes(store).values()) + PARTITIONS * 128 * 1024
    assert partitions(store, "e") == []


def test_a_filter_on_a_column_that_is_not_wanted(run, store):
    result, read = run(
        lambda frame: frame.filter(pl.col("v03") < 2, pl.col("p") == 1).select("v07"),
        "SELECT v07 FROM {} WHERE v03 < 2 AND p = 1",
    )
    assert result.shape == (ROWS, 1)
    assert read == [1]
    assert store.data_bytes() < 0.15 * sizes(store)[1] + 64 * 1024


def only_value(result):
    return result.item() if isinstance(result, pl.DataFrame) else result.column(0)[0].as_py()


def test_a_count_reads_footers(run, store):
    result, _ = run(lambda frame: frame.select(pl.len()), "SELECT count(*) FROM {}")
    assert only_value(result) == PARTITIONS * ROWS
    # Polars, and DuckDB over its frames, ask for the first column of a frame to count rows.
    column = 0 if run.engine.startswith("connect") else sum(sizes(store).values()) / 40
    assert store.data_bytes() <= PARTITIONS * 128 * 1024 + column
    assert partitions(store, "e") == []


def test_a_count_of_one_partition(run, store):
    result, read = run(
        lambda frame: frame.filter(pl.col("p") == 4).select(pl.len()), "SELECT count(*) FROM {} WHERE p = 4"
    )
    assert only_value(result) == ROWS
    assert read == [4]


# --- limits ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def long():
    """Many files, and more of them than are read ahead."""
    inner = MemoryStore()
    x = np.arange(800)
    build_cube(pa.table({"x": x, "p": x, "i1": x}), CUBE, inner)
    return inner


# DuckDB does not tell a lazy frame how many rows it wants.
@pytest.mark.parametrize("engine", [engine for engine in ENGINES if not engine.startswith("duckdb")])
def test_a_limit_ends_the_read(long, engine):
    store = MeasuredStore(long)
    with options(threads=1):  # else files are read ahead meanwhile
        result = ENGINES[engine](store, lambda frame: frame.limit(10), "SELECT * FROM {} LIMIT 10")
    assert result.shape[0] == 10
    assert 10 <= len(store.files()) <= 50


@pytest.mark.parametrize("engine", ["scan_cube", "scan_dataset"])
def test_a_limit_after_a_filter(long, engine):
    store = MeasuredStore(long)
    with options(threads=1):
        result = ENGINES[engine](store, lambda frame: frame.filter(pl.col("p") >= 100).select("x").limit(3), "")
    assert all(x >= 100 for x in result["x"])
    assert result.height == 3
    # The limit stays with Polars, which takes batches until it has enough; these grow. Older
    # releases take all.
    assert len(store.files()) <= (400 if HAS_RESOLVERS else 700)
    assert min(partitions(store)) >= 100


# --- explain --------------------------------------------------------------------------------------

needs_resolvers = pytest.mark.skipif(not HAS_RESOLVERS, reason="this release of Polars plans a scan when it runs")


@needs_resolvers
def test_polars_explains_a_cube(store):
    frame = cube_frame(store).filter(pl.col("p") > 3, pl.col("i1") == 9).select("x", "w")
    text = frame.explain()
    assert "cube 'cube'" in text
    assert "seed 1 of 6 files, e 1 of 6 files" in text
    assert "p > 3" in text
    assert "i1 == 9" in text
    assert "FILTER" not in text


@needs_resolvers
def test_polars_explains_a_dataset(store):
    text = dataset_frame(store).filter(pl.col("p").is_in([0, 1])).select("x").explain()
    assert "dataset 'cube++seed'" in text
    assert "2 of 6 files; conditions: p in [0, 1]" in text


@needs_resolvers
def test_polars_explains_what_it_does_itself(store):
    text = cube_frame(store).filter(pl.col("p") == 1, pl.col("v01").sin() > 0.5).select("x").explain()
    assert "seed 1 of 6 files; conditions: p == 1" in text
    assert "sin" in text


@needs_resolvers
def test_polars_explains_a_scan_of_everything(store):
    assert "seed 6 of 6 files, e 6 of 6 files; conditions: none" in cube_frame(store).explain()


@needs_resolvers
def test_each_branch_of_a_frame_is_explained(store):
    frame = cube_frame(store)
    left = frame.filter(pl.col("p") == 0).select("x", "v00")
    text = left.join(frame.filter(pl.col("p") > 3).select("x", "w"), on="x").explain()
    assert "seed 1 of 6 files; conditions: p == 0" in text
    assert "seed 2 of 6 files, e 2 of 6 files; conditions: p > 3" in text


def explained(store, text):
    with connect(store) as connection:
        return connection.sql(text).fetchall()


def plans(rows):
    return [text for key, text in rows if key == "kartothek_cube"]


@pytest.mark.parametrize("explain", ["EXPLAIN", "explain analyze", "EXPLAIN\nANALYZE"])
@pytest.mark.parametrize("way", ["sql", "execute"])
def test_duckdb_explains(store, explain, way):
    with connect(store) as connection:
        rows = getattr(connection, way)(f"{explain} SELECT x FROM cube WHERE p = 2 AND i1 = 5").fetchall()
    assert "SCAN" in rows[0][1]
    (text,) = plans(rows)
    assert text.startswith("seed 1 of 6 files; conditions: ")
    assert "Query of cube 'cube'" in text
    assert re.search(r"cube\+\+seed/table/p=2/\w+\.parquet", text)
    # The rows of a plan that is not analyzed are not read.
    assert bool(store.files()) == ("analyze" in explain.lower())


def test_duckdb_explains_a_join(store):
    text = 'EXPLAIN SELECT a.x FROM cube a JOIN "cube++e" b USING (x) WHERE a.p = 1 AND b.p IN (1, 2)'
    found = plans(explained(store, text))
    assert len(found) == 2
    assert {text.partition(";")[0] for text in found} == {"seed 1 of 6 files", "2 of 6 files"}


@pytest.mark.parametrize("explain", ["EXPLAIN", "EXPLAIN ANALYZE"])
def test_duckdb_explains_with_parameters(store, explain):
    text = f"{explain} SELECT x FROM cube WHERE p = $1"
    connection = connect(store)
    for rows in (
        connection.execute(text, [2]).fetchall(),
        connection.execute(text, parameters=[2]).fetchall(),
        connection.sql(text, params=[2]).fetchall(),
    ):
        assert [text.partition("\n")[0] for text in plans(rows)] == ["seed 1 of 6 files; conditions: p == 2"]


def test_duckdb_explains_a_view(store):
    connection = connect(store)
    connection.execute("CREATE VIEW own AS SELECT x, v00 FROM cube WHERE p < 2")
    (text,) = plans(connection.sql("EXPLAIN SELECT x FROM own").fetchall())
    assert text.startswith("seed 2 of 6 files; conditions: p < 2")
    # The tables have their rows again.
    assert connection.sql("SELECT count(*) AS n, max(x) FROM own").fetchall() == [(2 * ROWS, 2 * ROWS - 1)]


def test_duckdb_explains_without_a_cube(store):
    rows = explained(store, "EXPLAIN SELECT 1")
    assert plans(rows) == []
    assert rows[0][0] == "physical_plan"


def test_explaining_changes_nothing(store):
    connection = connect(store)
    connection.execute("CREATE TABLE own (x BIGINT)")
    connection.execute("EXPLAIN WITH a AS (SELECT 1 AS x) INSERT INTO own FROM a").fetchall()
    connection.execute("EXPLAIN INSERT INTO own SELECT x FROM cube").fetchall()
    assert connection.sql("FROM own").fetchall() == []


def test_an_error_of_a_statement_that_is_explained(store):
    connection = connect(store)
    with pytest.raises(duckdb.BinderException, match="nothing"):
        connection.sql("EXPLAIN SELECT nothing FROM cube")
    assert connection.sql("SELECT count(*) AS n FROM cube").fetchall() == [(PARTITIONS * ROWS,)]
