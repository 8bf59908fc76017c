"""Structured streaming out of a dataset: restarts, triggers, errors, and from stream to stream."""

from __future__ import annotations

import importlib.util

import pyarrow as pa
import pytest

from kartothek_cube import Cube, build_cube
from kartothek_cube.api.dataset import compact_dataset, history, read_table_arrow, update_dataset_from_dataframes
from kartothek_cube.errors import HistoryUnavailable, InvalidInput, InvalidRequest
from kartothek_cube.spark import driver_errors, register

LIMITS = pytest.mark.skipif(
    importlib.util.find_spec("pyspark.sql.streaming.datasource") is None,
    reason="PySpark 4.1 has no limits: a micro-batch has everything that is there",
)


def put(url, *numbers, **more):
    """One file with two rows for each number, in one commit."""
    rows = [pa.table({"x": [10 * n, 10 * n + 1], "p": [n, n]}) for n in numbers]
    update_dataset_from_dataframes([pa.concat_tables(rows)], url, "sales", partition_on=["p"], **more)


def rows_of(*numbers):
    return sorted(x for n in numbers for x in (10 * n, 10 * n + 1))


@pytest.fixture
def source(spark):
    register(spark)
    return spark


@pytest.fixture
def sales(store_url):
    for number in (1, 2):
        put(store_url, number)
    return store_url


@pytest.fixture
def copied(source, sales, tmp_path):
    """A function: copy what is available now into the dataset *feed*."""

    def run(checkpoint="checkpoint", **given):
        options = {k: v for k, v in {"store": sales, "dataset": "sales", **given}.items() if v is not None}
        with driver_errors():
            stream = source.readStream.format("kartothek_cube").options(**options).load()
            to = stream.writeStream.format("kartothek_cube").options(store=sales, dataset="feed", partition_on="p")
            query = to.option("checkpointLocation", str(tmp_path / checkpoint)).trigger(availableNow=True).start()
            query.awaitTermination()
        return query

    return run


def feed(url):
    return sorted(read_table_arrow("feed", url)["x"].to_pylist())


@LIMITS
def test_a_dataset_streams_into_another_row_by_row_once(copied, sales):
    query = copied(maxFilesPerTrigger=1)
    assert feed(sales) == rows_of(1, 2)
    assert [batch.numInputRows for batch in query.recentProgress if batch.numInputRows] == [2, 2]
    put(sales, 3, 4)
    put(sales, 5)
    compact_dataset("sales", sales)
    # The options of the beginning mean nothing to a query that goes on.
    copied(maxFilesPerTrigger=2, startingCommit="latest")
    assert feed(sales) == rows_of(1, 2, 3, 4, 5)
    before = len(history("feed", sales))
    copied()
    assert len(history("feed", sales)) == before


@LIMITS
def test_a_batch_that_failed_is_repeated_with_the_same_rows(source, sales, tmp_path):
    """`foreachBatch` fails after it has seen a batch; meanwhile the dataset goes on."""
    seen = []

    def see(frame, batch_id):
        seen.append((batch_id, sorted(row.x for row in frame.collect())))
        if len(seen) in (1, 3):
            raise RuntimeError("after the batch")

    def run():
        stream = source.readStream.format("kartothek_cube").options(store=sales, dataset="sales", maxFilesPerTrigger=1)
        to = stream.load().writeStream.foreachBatch(see).option("checkpointLocation", str(tmp_path / "checkpoint"))
        to.trigger(availableNow=True).start().awaitTermination()

    for later in (3, 4):
        with pytest.raises(Exception, match="after the batch"):
            run()
        put(sales, later)
    run()
    assert [batch for batch, _ in seen] == [0, 0, 1, 1, 2, 3]
    assert seen[0] == seen[1]
    assert seen[2] == seen[3]
    assert sorted(x for _, xs in seen[1:3] + seen[4:] for x in xs) == rows_of(1, 2, 3, 4)


@LIMITS
def test_errors_arrive_as_our_types_and_the_stream_can_go_on(copied, sales):
    build_cube(pa.table({"x": [1], "p": [1]}), Cube(["x"], ["p"], "cube"), sales)
    copied()
    put(sales, 3)
    put(sales, 9, delete_scope=[{"p": 1}])
    removal = history("sales", sales)["commit"][0]
    with pytest.raises(InvalidRequest, match=f"'sales': commit {removal} .*skipChangeCommits"):
        copied()
    assert feed(sales) == rows_of(1, 2, 3)
    put(sales, 4)
    copied(skipChangeCommits=True)
    assert feed(sales) == rows_of(1, 2, 3, 4)
    with pytest.raises(HistoryUnavailable, match="'sales' cannot begin with commit 'nothing'"):
        copied("another", startingCommit="nothing")
    # With an option of streams when the columns are asked for, else when the query starts.
    for more in ({"startingCommit": "latest"}, {}):
        with pytest.raises(InvalidInput, match="names a whole cube"):
            copied("cube", dataset=None, cube="cube", **more)


def test_a_running_query_waits_for_commits(source, sales):
    stream = source.readStream.format("kartothek_cube").options(store=sales, dataset="sales", columns="x").load()
    query = stream.writeStream.format("memory").queryName("waiting").start()
    try:
        query.processAllAvailable()
        put(sales, 3)
        query.processAllAvailable()
        assert sorted(row.x for row in source.sql("select x from waiting").collect()) == rows_of(1, 2, 3)
    finally:
        query.stop()
