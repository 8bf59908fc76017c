"""The data source, SQL and streams on Sail."""

from __future__ import annotations

import datetime as dt
from contextlib import nullcontext
from decimal import Decimal

import pandas as pd
import pyarrow as pa
import pytest

from kartothek_cube import (
    Cube,
    append_to_cube,
    build_cube,
    cube_history,
    extend_cube,
    query_cube_arrow,
    query_cube_changes,
)
from kartothek_cube.api.dataset import history, read_table_arrow, store_dataframes_as_dataset
from kartothek_cube.errors import AlreadyExists, InvalidInput, Unsupported
from kartothek_cube.spark import driver_errors, map_cube_groups, query_cube_spark, read_dataset_as_spark, register

CUBE = Cube(["x"], ["p"], "cube", index_columns=["i1"])
SEED = pa.table({"x": [0, 1, 2, 3], "p": [0, 0, 1, 1], "i1": [0, 1, 0, 1], "v1": [1.0, 2.0, None, 4.0]})
TYPES = pa.table(
    {
        "b": [True, False],
        "i8": pa.array([1, None], pa.int8()),
        "u32": pa.array([2**32 - 1, None], pa.uint32()),
        "f": pa.array([1.5, None], pa.float32()),
        "s": ["ä", None],
        "bytes": [b"\x00", None],
        "d": [dt.date(2024, 3, 10), None],
        # In New York there is no such time.
        "t": [dt.datetime(2024, 3, 10, 2, 30), None],
        "m": pa.array([Decimal("1.20"), None], pa.decimal128(9, 2)),
        "l": [[1, 2], None],
        "n": pa.array([{"a": 1, "b": ["x"]}, None]),
        "k": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
    }
)


@pytest.fixture
def source(spark, store_url):
    """A store with the cube, the session knowing the format."""
    build_cube(SEED, CUBE, store_url)
    extend_cube({"e": pa.table({"x": [1, 3], "v2": ["a", "b"]})}, CUBE, store_url, partition_on={"e": []})
    register(spark)
    return store_url


def reader(spark, store, **options):
    return spark.read.format("kartothek_cube").options(cube="cube", store=store, **options)


def ids(frame):
    with driver_errors():
        return sorted(row.x for row in frame.collect())


def test_a_cube_is_read_with_all_its_datasets(spark, source):
    table = reader(spark, source).load().toArrow().sort_by("x")
    assert table.to_pydict() == query_cube_arrow(CUBE, source).sort_by("x").to_pydict()


@pytest.mark.parametrize("push_down", ["true", "false"])
@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("x > 1", [2, 3]),
        ("x IN (0, 3)", [0, 3]),
        ("i1 = 1 AND p <> 1", [1]),
        ("v1 IS NULL", [2]),
        ("v1 >= 2", [1, 3]),
        ("v2 = 'b'", [3]),
        ("NOT v2 = 'b'", [1]),
        ("x = 1 OR v2 = 'b'", [1, 3]),
        ("x > 9", []),
    ],
)
def test_filters_select_rows(spark, source, push_down, condition, expected):
    assert ids(reader(spark, source, push_down=push_down).load().where(condition)) == expected


@pytest.mark.parametrize("push_down", ["true", "false"])
def test_casts_in_filters_lose_no_row(spark, store_url, push_down):
    store_dataframes_as_dataset(store_url, "one", [pa.table({"x": [1, 2], "v": [0.1, 0.5]})])
    register(spark)
    frame = spark.read.format("kartothek_cube").options(store=store_url, dataset="one", push_down=push_down).load()
    assert ids(frame.where("CAST(v AS float) = CAST(0.1 AS float)")) == [1]


def test_conditions_and_columns_are_options(spark, source):
    frame = reader(spark, source, conditions="x > 1", columns="v2,x").load()
    assert frame.columns == ["v2", "x"]
    assert ids(frame) == [2, 3]


@pytest.mark.parametrize("place", ["option", "load", "both"])
def test_path_is_another_word_for_store(spark, source, place):
    given = {"option": {"path": source}, "load": {}, "both": {"path": source, "store": source}}[place]
    frame = spark.read.format("kartothek_cube").options(cube="cube", **given)
    assert ids(frame.load(source) if place == "load" else frame.load()) == [0, 1, 2, 3]


def test_two_stores_are_refused(spark, source):
    with pytest.raises(InvalidInput, match="two words for one thing"), driver_errors():
        reader(spark, source).load(source + "2").collect()


def test_sql_asks_a_view(spark, source):
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW cells USING kartothek_cube OPTIONS (path '{source}', cube 'cube')")
    answer = spark.sql("SELECT p, sum(v1) AS v FROM cells WHERE i1 = 1 GROUP BY p ORDER BY p").collect()
    assert [tuple(row) for row in answer] == [(0, 2.0), (1, 4.0)]


def test_types_arrive_as_they_are(spark, store_url):
    store_dataframes_as_dataset(store_url, "types", [TYPES])
    register(spark)
    source = spark.read.format("kartothek_cube").options(store=store_url, dataset="types").load()
    for frame in (source, read_dataset_as_spark("types", store_url, spark=spark)):
        assert frame.toArrow().to_pydict() == TYPES.select(frame.columns).to_pydict()


def test_changes_are_rows_and_their_counts_have_another_name(spark, source):
    since = cube_history(CUBE, source)["commit"].iloc[0]
    append_to_cube({"e": pa.table({"x": [1], "v2": ["c"]})}, CUBE, source)
    arguments = f"store => '{source}', cube => 'cube', since => '{since}'"
    counts = spark.sql(f"SELECT * FROM kartothek_change_counts({arguments})").collect()
    assert [tuple(row) for row in counts] == [("seed", 0, 0, 0), ("e", 0, 1, 0)]
    changes = spark.sql(f"SELECT * FROM kartothek_changes({arguments})")
    assert changes.columns == query_cube_changes(CUBE, source, since).schema.names
    images = changes.select("_change_type", "x", "v2").collect()
    assert [tuple(row) for row in images] == [("update_preimage", 1, "a"), ("update_postimage", 1, "c")]
    with pytest.raises(InvalidInput, match="Did you mean 'cube'"), driver_errors():
        spark.sql(f"SELECT * FROM kartothek_changes('{source}', cube => 'cub', since => '{since}')").collect()


def test_changes_with_a_zone_are_refused_in_one_line(spark, source):
    store_dataframes_as_dataset(source, "zoned", [pa.table({"z": [dt.datetime(2024, 3, 10, tzinfo=dt.UTC)]})])
    call = f"kartothek_changes('{source}', dataset => 'zoned', since => '2999-01-01')"
    with pytest.raises(Unsupported, match=r"with a zone \(z\)"), driver_errors():
        spark.sql(f"SELECT * FROM {call}").collect()


def test_written_rows_are_appended_or_replace_others(spark, source):
    more = spark.createDataFrame(pa.table({"x": [4, 5], "p": [1, 2], "i1": [0, 0], "v1": [5.0, None]})).repartition(2)
    writer = more.write.format("kartothek_cube").options(store=source, cube="cube", dataset="seed", if_exists="append")
    writer.mode("append").save()
    assert query_cube_arrow(CUBE, source)["x"].to_pylist() == [0, 1, 2, 3, 4, 5]
    e = spark.createDataFrame(pa.table({"x": [2], "v2": ["c"]})).write.format("kartothek_cube")
    e.options(store=source, cube="cube", dataset="e").mode("overwrite").save()
    assert query_cube_arrow(CUBE, source)["v2"].to_pylist() == [None, None, "c", None, None, None]


@pytest.mark.parametrize("mode", [None, "append", "error", "ignore"])
@pytest.mark.parametrize("target", [{"cube": "cube"}, {"dataset": "cube++e"}])
def test_rows_are_not_added_where_sail_does_not_say_that_they_should_be(spark, source, mode, target):
    """Sail hands on the modes errorifexists, its default, and ignore as append."""
    before = history("cube++seed", source), history("cube++e", source)
    more = spark.createDataFrame(pa.table({"x": [9], "p": [1], "i1": [0], "v1": [5.0]}))
    for choice, error in [(None, InvalidInput), ("error", AlreadyExists), ("ignore", None)]:
        writer = more.write.format("kartothek_cube").options(store=source, **target)
        writer = writer.option("if_exists", choice) if choice else writer
        with pytest.raises(error, match="if_exists") if error else nullcontext(), driver_errors():
            (writer.mode(mode) if mode else writer).save()
    assert [len(h) for h in before] == [len(history(f"cube++{n}", source)) for n in ("seed", "e")]


def test_a_new_dataset_is_partitioned_and_has_the_types_of_spark(spark, store_url):
    register(spark)
    frame = spark.createDataFrame(
        TYPES.drop_columns(["u32", "n", "k"]),
        "b boolean, i8 byte, f float, s string, bytes binary, d date, t timestamp_ntz, m decimal(9,2), l array<bigint>",
    )
    frame.write.format("kartothek_cube").mode("append").options(dataset="types", partition_on="b").save(store_url)
    stored = read_table_arrow("types", store_url).sort_by("i8")
    assert stored.to_pydict() == {name: TYPES[name].to_pylist() for name in stored.column_names}


def test_a_write_that_fails_leaves_nothing(spark, source):
    before = history("cube++seed", source)
    twice = spark.createDataFrame(pa.table({"x": [7, 7], "p": [0, 0], "i1": [0, 0], "v1": [1.0, 1.0]}))
    writer = twice.write.format("kartothek_cube").options(store=source, cube="cube", if_exists="append")
    with pytest.raises(InvalidInput, match="duplicate"), driver_errors():
        writer.mode("append").save()
    assert history("cube++seed", source).equals(before)


def test_an_error_in_a_task_arrives_as_its_own_type(spark, source):
    with pytest.raises(InvalidInput, match="no option 'colums'"), driver_errors():
        reader(spark, source, colums="x").load().collect()


def test_sparks_own_reader_is_for_spark(spark, source):
    for read in (
        lambda: read_dataset_as_spark("cube++seed", source, native=True, spark=spark),
        lambda: query_cube_spark(CUBE, source, None, ["seed"], native=True, spark=spark),
    ):
        with pytest.raises(Unsupported, match=r"^native=True is for Spark.*native=False.$"):
            read()


def test_a_function_on_groups_gets_pandas(spark, source):
    def total(key, cells: pd.DataFrame):
        return cells.groupby("i1", as_index=False).agg(n=("x", "size"))

    frame = map_cube_groups(total, "i1 bigint, n bigint", CUBE, source, partition_by="i1", spark=spark)
    assert sorted(tuple(row) for row in frame.collect()) == [(0, 2), (1, 2)]


def test_a_stream_from_the_source_is_refused_in_one_line(spark, source):
    stream = spark.readStream.format("kartothek_cube").options(store=source, cube="cube", dataset="seed")
    with pytest.raises(Unsupported, match=r"^Sail runs no streams .*changed_since.*$"), driver_errors():
        stream.option("maxFilesPerTrigger", "1").load().schema  # noqa: B018


@pytest.mark.parametrize("sink", ["source", "function"])
def test_a_stream_into_the_source_is_refused_in_one_line(spark, store_url, tmp_path, sink):
    register(spark)
    stream = spark.readStream.format("rate").load().selectExpr("value AS x", "value % 2 AS p").writeStream
    stream = (
        stream.format("kartothek_cube").options(
            store=store_url, cube="cube", dimension_columns="x", partition_columns="p", checkpointLocation=str(tmp_path)
        )
        if sink == "source"
        else stream.foreachBatch(lambda batch, number: None)
    )
    with pytest.raises(Unsupported, match=r"^Sail runs no streams .*txn=.*$"), driver_errors():
        stream.start()
