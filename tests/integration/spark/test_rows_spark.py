"""Rows are deleted and merged by tasks: with the results of the eager verbs, whatever fails."""

from __future__ import annotations

import datetime as dt
import os
import re
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from kartothek_cube import C, build_cube, open_store, options, query_cube_arrow, verify_cube
from kartothek_cube.api.dataset import (
    delete_rows,
    garbage_collect_dataset,
    history,
    merge_dataset,
    read_table_arrow,
    store_dataframes_as_dataset,
    verify_dataset,
)
from kartothek_cube.core.stores.contract import StoreView
from kartothek_cube.errors import DatasetNotFound, InvalidInput, InvalidType, UnknownColumn
from kartothek_cube.spark import delete_rows_spark, merge_dataset_from_spark
from kartothek_cube.spark.types import spark_schema, wire_schema
from kartothek_cube.testing.driver import CUBE, PARTITION_ON, InBetween, data_files, enrichment, ordered, seed
from tests.support.job_behaviour import waiting

NOW = options(grace=dt.timedelta(0), retain=dt.timedelta(0))
PARTS = [
    pd.DataFrame({"x": range(i, i + 10), "p": i // 20, "v1": [j / 2 for j in range(i, i + 10)]})
    for i in range(0, 60, 10)
]

pytestmark = pytest.mark.usefixtures("pickled_by_value")


class Witness(StoreView):
    """A store that notes the keys that are put, and by which process."""

    def __init__(self, folder: Path) -> None:
        super().__init__(open_store(folder / "store"))
        self.folder, self.home = folder, os.getpid()

    def around(self, operation, key, action):
        if operation in ("put", "put_file") and key.endswith(".parquet"):
            with (self.folder / "log").open("a") as log:
                log.write(f"{os.getpid()}\t{key}\n")
        return action()

    def put_by(self, *, tasks):
        lines = [line.split("\t") for line in (self.folder / "log").read_text().splitlines()]
        return [key for pid, key in lines if (int(pid) != self.home) == tasks and "/table/" in key]


class Undeletable(StoreView):
    """A store in which nothing can be deleted."""

    def __init__(self, folder: Path) -> None:
        super().__init__(open_store(folder / "store"))

    def around(self, operation, key, action):
        if operation == "delete":
            raise ConnectionError("the network")
        return action()


@pytest.fixture
def store(tmp_path):
    store = open_store(tmp_path / "store")
    store_dataframes_as_dataset(store, "uuid", PARTS, partition_on=["p"], secondary_indices=["x"])
    return store


def rows(store, uuid="uuid"):
    return ordered(read_table_arrow(uuid, store))


def counts(report):
    return (
        *(report.matched, report.deleted, report.updated, report.inserted),
        *(report.files_rewritten, report.files_removed, report.files_untouched),
    )


def framed(spark, table):
    return spark.createDataFrame(table, spark_schema(wire_schema(table.schema, "the rows")))


def corrections(spark, numbers=(5, 25, 26, 58, 100, 101)):
    """Rows by ``x``; the last ones of them are new."""
    return spark.createDataFrame([(x, x // 20, -1.0) for x in numbers], "x long, p long, v1 double")


# --- what tasks do --------------------------------------------------------------------------------


def test_files_without_deleted_rows_are_written_by_tasks(spark, store, tmp_path):
    where = [[("x", "<", 15)], [("x", "in", [30, 31])]]
    expected, witness = delete_rows("uuid", store, where, dry_run=True), Witness(tmp_path)
    report = delete_rows_spark("uuid", witness, where)
    assert counts(report) == counts(expected) == (17, 17, 0, 0, 2, 1, 3)
    assert [row["x"] for row in rows(store)] == [*range(15, 30), *range(32, 60)]
    assert (len(witness.put_by(tasks=True)), witness.put_by(tasks=False)) == (2, [])


def test_the_source_and_all_files_of_a_merge_are_written_by_tasks(spark, store, tmp_path):
    expected = merge_dataset(corrections(spark).toPandas(), store, "uuid", "x", dry_run=True)
    witness = Witness(tmp_path)
    # Two tasks of the source, since few bytes are in flight there.
    report = merge_dataset_from_spark(corrections(spark), witness, "uuid", "x", parallelism=2)
    assert counts(report) == counts(expected) == (4, 0, 4, 2, 3, 0, 3)
    changed = [{"x": x, "p": x // 20, "v1": -1.0} for x in (5, 25, 26, 58, 100, 101)]
    kept = [row for part in PARTS for row in part.to_dict("records") if row["x"] not in (5, 25, 26, 58)]
    assert rows(store) == ordered([*kept, *changed])
    put = witness.put_by(tasks=True)
    assert len([key for key in put if "/table/merge-" in key]) > 1
    # One new row is in the threads of the driver, where a job is not worth its while.
    assert len([key for key in put if "/table/p=" in key]) >= report.files_rewritten
    assert verify_dataset("uuid", store, deep=True).clean


def test_a_source_larger_than_a_task_s_memory_is_sorted_on_disk(spark, store):
    source = spark.range(0, 30_000, 1, 4).selectExpr("id AS x", "id % 7 AS p", "id / 2 AS v1").orderBy("v1")
    few = options(bytes_in_flight=100_000)
    report = merge_dataset_from_spark(source, store, "uuid", ["x"], parallelism=1, options=few)
    assert (report.updated, report.inserted) == (60, 29_940)
    assert rows(store) == ordered({"x": x, "p": x % 7, "v1": x / 2} for x in range(30_000))
    twice = source.union(spark.createDataFrame([(17, 0, 1.0)], "x long, p long, v1 double"))
    with pytest.raises(InvalidInput, match=re.escape("the key {'x': 17} twice")):
        merge_dataset_from_spark(twice, store, "uuid", ["x"], parallelism=1, options=few)


def test_a_source_is_evaluated_once_also_if_the_merge_is_applied_again(spark, store, tmp_path):
    log = tmp_path / "log"

    def noted(batches):
        for batch in batches:
            with log.open("a") as file:
                file.write(f"{batch.num_rows}\n")
            yield batch

    source = corrections(spark).coalesce(1).mapInArrow(noted, "x long, p long, v1 double")
    url = f"hfs://{tmp_path / 'store'}"
    between = InBetween(url, partial(delete_rows, "uuid", url, [[("x", "==", 5)]]))
    report = merge_dataset_from_spark(source, between, "uuid", ["x"], on_conflict="reapply")
    assert (report.updated, report.inserted) == (3, 3)
    assert log.read_text() == "6\n"


@pytest.mark.parametrize("seed", range(2))
def test_random_merges_and_deletions_do_what_they_do_without_spark(spark, tmp_path, seed):
    random = np.random.default_rng(seed)
    one, other = open_store(tmp_path / "one"), open_store(tmp_path / "other")

    def made(n, *, nulls):
        x, y = random.permutation(40)[:n], pa.array(["ab"[i] for i in random.integers(0, 2, n)])
        column = pa.array([None if nulls and i % 9 == 0 else int(i) for i in x], pa.int64())
        columns = {"x": column, "y": y, "p": random.integers(0, 3, n), "i1": random.integers(0, 5, n)}
        return pa.table({**columns, "v1": random.random(n)})

    for store in (one, other):
        state = random.bit_generator.state
        parts = [made(15, nulls=True) for _ in range(4)]
        random.bit_generator.state = state
        store_dataframes_as_dataset(store, "uuid", parts, partition_on=["p"], secondary_indices=["i1"])
    for step in range(4):
        # An update may move rows to other partitions; with the partition among the keys it cannot.
        on = [["x"], ["x", "y"], ["p", "x"], ["i1", "x", "y"]][(seed + step) % 4]
        when = {
            "when_matched": ["update", "delete", "ignore"][random.integers(0, 3)],
            "when_not_matched": ["insert", "ignore"][random.integers(0, 2)],
            "when_not_matched_by_source": [None, None, "delete"][random.integers(0, 3)],
        }
        source = made(int(random.integers(1, 30)), nulls=False)
        report = merge_dataset_from_spark(framed(spark, source).repartition(2), one, "uuid", on, **when)
        assert counts(report) == counts(merge_dataset([source], other, "uuid", on, **when)), (on, when)
        assert rows(one) == rows(other)
        where = [[("i1", "==", int(random.integers(0, 5))), ("v1", "<", 0.4)], [("x", "==", 7)]]
        assert counts(delete_rows_spark("uuid", one, where)) == counts(delete_rows("uuid", other, where))
        assert rows(one) == rows(other)
    assert verify_dataset("uuid", one, deep=True).clean


def test_cells_of_a_cube_are_merged_as_without_spark(spark, tmp_path):
    one, other = open_store(tmp_path / "one"), open_store(tmp_path / "other")
    for store in (one, other):
        build_cube({"seed": seed(), "e": enrichment()}, CUBE, store, partition_on=PARTITION_ON)
    source, on = pa.concat_tables([seed((1,), add=5.0).slice(2), seed((2,))]), ["y", "x", "p"]
    expected = merge_dataset([source], other, "cube++seed", on)
    report = merge_dataset_from_spark(framed(spark, source).repartition(3), one, "cube++seed", on)
    assert counts(report) == counts(expected) == (6, 0, 6, 8, 1, 0, 1)
    assert query_cube_arrow(CUBE, one).equals(query_cube_arrow(CUBE, other))
    assert query_cube_arrow(CUBE, one, conditions=C("i1") == 21).num_rows == 4
    assert verify_cube(CUBE, one, deep=True).clean
    with pytest.raises(InvalidInput, match="cube"):
        merge_dataset_from_spark(framed(spark, source), one, "cube++seed", ["x"])


def test_rows_that_move_to_other_partitions_are_written_by_tasks(spark, tmp_path):
    witness = Witness(tmp_path)
    old = [pa.table({"x": range(i, i + 10_000), "p": [0] * 10_000, "v1": [0] * 10_000}) for i in (0, 10_000)]
    store_dataframes_as_dataset(witness, "uuid", old, partition_on=["p"], secondary_indices=["v1"])
    (tmp_path / "log").write_text("")
    # Many rows of the first file, a few of the second.
    source = spark.range(0, 10_010, 1, 2).selectExpr("id AS x", "id % 3 AS p", "1L AS v1")
    report = merge_dataset_from_spark(source, witness, "uuid", "x")
    assert (report.updated, report.files_rewritten, report.files_added) == (10_010, 2, 4)
    assert [sum(f"/p={p}/" in key for key in witness.put_by(tasks=True)) for p in range(3)] == [2, 1, 1]
    assert [sum(f"/p={p}/" in key for key in witness.put_by(tasks=False)) for p in range(3)] == [0, 1, 1]
    found = rows(witness)
    assert len(found) == 20_000
    assert all(row["p"] == (row["x"] % 3 if row["x"] < 10_010 else 0) for row in found)
    assert read_table_arrow("uuid", witness, predicates=[[("v1", "==", 1), ("p", "==", 2)]]).num_rows == 3_336


def test_batches_of_a_stream_are_merged(spark, store, tmp_path):
    for i, lines in enumerate(['{"x": 5, "v1": 1.0}', '{"x": 5, "v1": 2.0}\n{"x": 58, "v1": 3.0}']):
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / f"{i}.json").write_text(lines)
        os.utime(tmp_path / "in" / f"{i}.json", (i, i))
    stream = spark.readStream.schema("x long, v1 double").option("maxFilesPerTrigger", 1).json(str(tmp_path / "in"))

    def merge(batch, number):
        for _ in range(1 + number % 2):  # a batch may come again
            merge_dataset_from_spark(batch, store, "uuid", "x", when_not_matched="ignore")

    query = stream.writeStream.foreachBatch(merge).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination(300)
    found = {row["x"]: row["v1"] for row in rows(store)}
    assert (len(found), found[5], found[58], found[6]) == (60, 2.0, 3.0, 3.0)


# --- keys -----------------------------------------------------------------------------------------

KEYS = {
    "text": pa.array(["ä", "A", "a", ""]),
    "bytes": pa.array([b"\0", b"", b"\xff", b"a"]),
    "flag": pa.array([True, False]),
    "date": pa.array([dt.date(1969, 12, 31), dt.date(2024, 2, 29)]),
    "time": pa.array([dt.datetime(2024, 3, 10, 2, 30), dt.datetime(1969, 12, 31)], pa.timestamp("us")),
    "price": pa.array([Decimal("1.20"), Decimal("-7.00"), Decimal("7.00")], pa.decimal128(10, 2)),
    "float": pa.array([0.5, -0.0, 1e300]),
    "small": pa.array([-128, 127, 0], pa.int8()),
}


@pytest.mark.parametrize("key", KEYS)
def test_rows_are_found_by_keys_of_any_type(spark, tmp_path, key):
    store, keys = open_store(tmp_path / "store"), KEYS[key]
    table = pa.table({"a.key": keys, "v`1": pa.array(range(len(keys)))})
    store_dataframes_as_dataset(store, "uuid", [table.slice(1), table.slice(1, 1)])
    report = merge_dataset_from_spark(
        framed(spark, table.set_column(1, "v`1", pa.array([-1] * len(keys)))), store, "uuid", "a.key"
    )
    assert (report.updated, report.inserted) == (len(keys), 1)
    found = read_table_arrow("uuid", store)
    assert found.schema.field("a.key").type == keys.type
    assert sorted(found["a.key"].to_pylist()) == sorted([*keys.to_pylist(), keys[1].as_py()])
    assert set(found["v`1"].to_pylist()) == {-1}


def test_a_collation_makes_no_equal_keys(spark, tmp_path):
    store = open_store(tmp_path / "store")
    store_dataframes_as_dataset(store, "uuid", [pa.table({"x": ["a", "b"], "v1": [1, 1]})])
    source = spark.createDataFrame([("a", 2), ("A", 2)], "x string, v1 long").selectExpr(
        "x COLLATE UTF8_LCASE AS x", "v1"
    )
    report = merge_dataset_from_spark(source, store, "uuid", "x")
    assert (report.updated, report.inserted) == (1, 1)


def test_narrower_types_become_those_of_the_dataset_and_zones_are_utc_on_demand(spark, tmp_path):
    store, noon = open_store(tmp_path / "store"), dt.datetime(2024, 3, 10, 12)
    table = pa.table({"x": [1, 2], "t": pa.array([noon, noon], pa.timestamp("us")), "v1": pa.nulls(2)})
    store_dataframes_as_dataset(store, "uuid", [table])
    source = spark.sql("SELECT 2 AS x, TIMESTAMP '2024-03-10 13:00:00+00:00' AS t, 'new' AS v1")
    with pytest.raises(InvalidInput, match="timestamp_ntz"):
        merge_dataset_from_spark(source, store, "uuid", "x")
    assert merge_dataset_from_spark(source, store, "uuid", "x", timestamps="utc").updated == 1
    assert rows(store) == [
        {"x": 1, "t": noon, "v1": None},
        {"x": 2, "t": noon + dt.timedelta(hours=1), "v1": "new"},
    ]


def test_a_source_without_rows_deletes_all_or_nothing(spark, store):
    assert merge_dataset_from_spark(corrections(spark, ()), store, "uuid", "x").commit is None
    report = merge_dataset_from_spark(corrections(spark, ()), store, "uuid", "x", when_not_matched_by_source="delete")
    assert (report.deleted, report.files_removed, rows(store)) == (60, 6, [])


# --- what is refused ------------------------------------------------------------------------------


def test_columns_are_checked_before_the_first_task(spark, store, tmp_path):
    log = tmp_path / "log"

    def noted(batches):
        log.write_text("run")
        yield from batches

    source = corrections(spark).mapInArrow(noted, "x long, p long, v1 double")
    merge = partial(merge_dataset_from_spark, store=store, dataset_uuid="uuid", on="x")
    for error, text, call in (
        (UnknownColumn, "y", partial(merge, source, on="y")),
        (UnknownColumn, "v2", partial(merge, source.withColumn("v2", source.v1))),
        (InvalidInput, "lack", partial(merge, source.drop("p"))),
        (InvalidInput, "v1", partial(merge, source.selectExpr("x", "p", "'a' AS v1"))),
        (InvalidInput, "when_matched", partial(merge, source, when_matched="replace")),
        (InvalidInput, "on_conflict", partial(merge, source, on_conflict="retry")),
        (InvalidType, "dry_run", partial(merge, source, dry_run="no")),
        (InvalidInput, "parallelism", partial(merge, source, parallelism=0)),
        (InvalidType, "memory", partial(merge, source, store=open_store("hmemory://"))),
        (InvalidType, "data frame", partial(merge, PARTS[0])),
        (DatasetNotFound, "nowhere", partial(merge, source, dataset_uuid="nowhere")),
    ):
        with pytest.raises(error, match=text):
            call()
    assert not log.exists()


def test_a_new_row_that_has_no_partition_is_refused_by_its_task(spark, store):
    before = data_files(store)
    source = spark.createDataFrame([(70, None, 1.0), (71, None, 1.0)], "x long, p long, v1 double")
    with pytest.raises(InvalidInput, match=r"nulls in the partition columns \['p'\]"):
        merge_dataset_from_spark(source, store, "uuid", "x")
    assert data_files(store) == before


# --- failures -------------------------------------------------------------------------------------


def test_files_of_a_source_that_could_not_be_deleted_are_garbage(spark, store, tmp_path):
    merge_dataset_from_spark(corrections(spark), Undeletable(tmp_path), "uuid", "x")
    merged = rows(store)
    [left] = [key for key in data_files(store) if "/table/merge-" in key]
    assert verify_dataset("uuid", store).clean
    assert garbage_collect_dataset("uuid", store).keys == []  # it may be in use
    assert left in garbage_collect_dataset("uuid", store, options=NOW).keys
    assert left not in data_files(store)
    assert rows(store) == merged


def test_an_interrupt_leaves_the_old_state_and_no_file(spark, store):
    before, commits = data_files(store), history("uuid", store)
    main, previous = threading.main_thread().ident, signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
            server.settimeout(300)
            stuck = corrections(spark).coalesce(1).mapInArrow(waiting(server), "x long, p long, v1 double")
            connection = pool.submit(lambda: (server.accept(), signal.pthread_kill(main, signal.SIGINT)))
            with pytest.raises(KeyboardInterrupt):
                merge_dataset_from_spark(stuck, store, "uuid", "x")
            connection.result()[0][0].close()
    finally:
        signal.signal(signal.SIGINT, previous)
    assert data_files(store) == before
    assert history("uuid", store).equals(commits)
