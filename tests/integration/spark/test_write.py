"""The verbs that write: every row once, one staging, one commit, the files as asked for."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from kartothek_cube import C, Cube, build_cube, options, query_cube_arrow, remove_partitions
from kartothek_cube.api.dataset import set_layout
from kartothek_cube.errors import AlreadyExists, InvalidInput, InvalidType, MultiTableCommitAborted, Unsupported
from kartothek_cube.spark import (
    append_to_cube_from_spark,
    build_cube_from_spark,
    extend_cube_from_spark,
    map_cube_groups,
    remove_partitions_spark,
    stage,
    update_cube_from_spark,
)

LAYOUTS = [
    {},
    {"shuffle": True},
    {"shuffle": True, "num_buckets": 3},
    {"shuffle": True, "num_buckets": 2, "bucket_by": "i1"},
]


def rows(cube, store):
    return query_cube_arrow(cube, store).to_pylist()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_build_stores_what_the_eager_verb_stores(cube, frame, seed, store_url, tmp_path, layout):
    build_cube(seed, cube, tmp_path / "eager")
    build_cube_from_spark(frame, cube, store_url, **layout)
    found = query_cube_arrow(cube, store_url)
    assert found.schema.equals(query_cube_arrow(cube, tmp_path / "eager").schema)
    assert found.to_pylist() == rows(cube, tmp_path / "eager")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_file_was_staged_once_and_is_named(cube, frame, store_url, files, layout):  # cube 241
    result = build_cube_from_spark(frame, cube, store_url, **layout)
    assert files() == sorted(f for p in result["seed"].partitions.values() for f in p["files"].values())


@pytest.mark.parametrize("shuffle", [False, True])
def test_the_other_verbs_stage_once_too(cube, built, frame, files, shuffle):
    """The input has a shuffle and a Python stage of its own, which an action on the receipts would
    run again.
    """
    counted = frame.mapInArrow(lambda batches: batches, frame.schema).where("p < 2")
    before = set(files())
    extended = extend_cube_from_spark(
        {"more": counted.selectExpr("x", "y", "p", "v1 AS v3")}, cube, built, shuffle=shuffle
    )
    appended = append_to_cube_from_spark(counted.where("p = 0"), cube, built, shuffle=shuffle)
    updated = update_cube_from_spark(counted.where("p = 1"), cube, built, C("p") == 1, shuffle=shuffle)
    named = lambda dataset: {f for p in dataset.partitions.values() for f in p["files"].values()}  # noqa: E731
    assert set(files("more")) == named(extended["more"])
    assert set(files()) == before | named(appended["seed"]) | named(updated["seed"])
    assert len(set(files()) - before) == (2 if shuffle else 6)


def test_a_partition_that_is_larger_than_the_memory_is_one_file_and_its_cells_are_checked(
    spark, cube, frame, store_url, files
):
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "16")
    try:
        with options(bytes_in_flight=1024):
            build_cube_from_spark(frame, cube, store_url, shuffle=True)
            twice = frame.unionAll(frame.where("x = 3 AND y = 2 AND p = 1"))
            with pytest.raises(
                InvalidInput, match=r"duplicate cells by \[p, x, y\] in dataset \"seed\": 1 row with.*'p': 1"
            ):
                append_to_cube_from_spark(twice, cube, store_url, shuffle=True)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert len({name.split("/")[2] for name in files()}) == 4
    found = query_cube_arrow(cube, store_url)
    assert found.num_rows == 200
    assert query_cube_arrow(cube, store_url, C("i1") == 1).num_rows == sum(
        i == 1 for i in found.column("i1").to_pylist()
    )


def test_a_numbered_write_that_is_there_runs_nothing(cube, built, frame, seed):
    def failing(batches):
        raise AssertionError("a task ran")
        yield from batches

    append_to_cube_from_spark(frame.where("p = 1"), cube, built, txn=("job", 7))
    untouched = frame.mapInArrow(failing, frame.schema)
    for again in (append_to_cube_from_spark, lambda *a, **k: update_cube_from_spark(*a, C("p") == 1, **k)):
        assert again(untouched, cube, built, txn=("job", 7))["seed"].commit.skipped
    extend_cube_from_spark({"more": frame.selectExpr("x", "y", "p", "v1 AS v3")}, cube, built, txn=("job", 1))
    more = untouched.selectExpr("x", "y", "p", "v1 AS v3")
    assert extend_cube_from_spark({"more": more}, cube, built, txn=("job", 1))["more"].commit.skipped


def test_partitions_are_removed_as_by_the_eager_verb(cube, seed, tmp_path):
    for name, remove in (("spark", remove_partitions_spark), ("eager", remove_partitions)):
        build_cube(seed, cube, tmp_path / name)
        assert (
            len(
                remove(cube, tmp_path / name, C("p") == 1, ["seed"], {"seed": {"a": 1}}, on_conflict="reapply")[
                    "seed"
                ].partitions
            )
            == 3
        )
    assert rows(cube, tmp_path / "spark") == rows(cube, tmp_path / "eager")


def test_a_numbered_removal_is_done_once(cube, seed, tmp_path):
    build_cube(seed, cube, tmp_path)
    assert not remove_partitions_spark(cube, tmp_path, C("p") == 1, txn=("job", 1))["seed"].commit.skipped
    assert remove_partitions_spark(cube, tmp_path, C("p") == 2, txn=("job", 1))["seed"].commit.skipped
    assert len({row["p"] for row in rows(cube, tmp_path)}) == 3


@pytest.mark.parametrize(
    "verb", [build_cube_from_spark, extend_cube_from_spark, append_to_cube_from_spark, remove_partitions_spark]
)
def test_options_are_a_value_of_their_own(cube, tmp_path, verb):
    with pytest.raises(InvalidType, match="options= takes"):
        verb(None, cube, tmp_path, options={"threads": 1})


def test_a_shuffle_makes_one_file_for_each_partition_value(cube, frame, store_url, files):
    build_cube_from_spark(frame, cube, store_url, shuffle=True)
    assert [name.split("/")[2] for name in files()] == ["p=0", "p=1", "p=2", "p=3"]


@pytest.mark.parametrize("layout", LAYOUTS[1:])
def test_a_shuffle_leaves_sorting_to_its_tasks(cube, frame, store_url, monkeypatch, layout):
    staged = []
    monkeypatch.setattr(stage, "collect", lambda frame, job: staged.append(frame) or frame.collect())
    build_cube_from_spark(frame, cube, store_url, **layout)
    plan = staged[0]._jdf.queryExecution().executedPlan().toString()
    assert ("Exchange hashpartitioning" in plan, "Sort" in plan) == (True, False)


def test_buckets_bound_the_files_and_keep_equal_values_together(cube, frame, seed, store_url, store, files):
    import pyarrow.parquet as pq

    build_cube_from_spark(frame, cube, store_url, shuffle=True, num_buckets=2, bucket_by=["i1"])
    found = [
        (key.split("/")[2], set(pq.read_table(pa.BufferReader(store.get(key))).column("i1").to_pylist()))
        for key in files()
    ]
    for p in ("p=0", "p=1", "p=2", "p=3"):
        sets = [values for name, values in found if name == p]
        assert len(sets) <= 2
        assert sorted(v for values in sets for v in values) == [0, 1, 2]


def test_buckets_on_record_are_of_columns_that_all_datasets_have(cube, frame, built, files):
    more = frame.selectExpr("x", "y", "p", "v1 AS v3")
    extend_cube_from_spark({"more": more}, cube, built, shuffle=True)
    set_layout("cube++seed", built, bucket_by="i1", num_buckets=4)
    before = len(files()), len(files("more"))
    later = frame.selectExpr("x + 100 AS x", "y", "p", "i1", "v1", "t"), more.selectExpr("x + 100 AS x", "y", "p", "v3")
    append_to_cube_from_spark(dict(zip(["seed", "more"], later, strict=True)), cube, built, shuffle=True)
    assert (len(files()), len(files("more"))) == (before[0] + 4, before[1] + 4)
    set_layout("cube++more", built, bucket_by="x", num_buckets=2)
    again = [f.selectExpr("x + 100 AS x", *f.columns[1:]) for f in later]
    append_to_cube_from_spark(dict(zip(["seed", "more"], again, strict=True)), cube, built, shuffle=True)
    assert (len(files()), len(files("more"))) == (before[0] + 12, before[1] + 12)


def test_without_a_shuffle_there_is_a_file_for_each_task_and_value(cube, frame, store_url, files):
    build_cube_from_spark(frame.coalesce(1), cube, store_url)
    assert len(files()) == 4


def test_a_shuffled_dataset_without_partition_columns_is_one_file(cube, built, spark, files):  # cube 244
    more = spark.range(0, 10, 1, 4).selectExpr("id AS x", "id * 2 AS v3")
    extend_cube_from_spark({"more": more}, cube, built, partition_on={"more": []}, shuffle=True)
    assert len(files("more")) == 1
    extend_cube_from_spark({"more4": more.withColumnRenamed("v3", "v4")}, cube, built, partition_on={"more4": []})
    assert len(files("more4")) == 4


def test_all_datasets_of_a_call_are_staged_in_one_job(cube, frame, spark, store_url, files):  # cube 242
    e = spark.range(0, 10, 1, 1).selectExpr("id AS x", "id * 2 AS v3")
    result = build_cube_from_spark({"seed": frame, "e": e}, cube, store_url, partition_on={"e": []}, shuffle=True)
    assert sorted(result) == ["e", "seed"]
    assert (len(files()), len(files("e"))) == (4, 1)


def test_metadata_and_serializer_travel(cube, frame, store_url):
    result = build_cube_from_spark(frame, cube, store_url, metadata={"seed": {"owner": "us"}})
    assert result["seed"].metadata["owner"] == "us"


def test_append_adds_newer_rows(cube, built, spark, seed):
    newer = (
        spark.createDataFrame(seed.slice(0, 2), "x bigint, y bigint, p bigint, i1 bigint, v1 double, t timestamp_ntz")
        .selectExpr("*", "-v1 AS w")
        .drop("v1")
    )
    append_to_cube_from_spark(newer.withColumnRenamed("w", "v1"), cube, built)
    assert {(r["x"], r["y"], r["v1"]) for r in rows(cube, built) if r["p"] == 0 and r["v1"] <= -1} == {(0, 1, -10.0)}
    assert len(rows(cube, built)) == seed.num_rows


def test_update_replaces_partitions(cube, built, frame, seed):
    update_cube_from_spark(frame.where("p = 1 AND x = 0"), cube, built, C("p") == 1)
    assert len(rows(cube, built)) == seed.num_rows - 45


def test_on_conflict_is_one_of_two_words_and_the_result_says_what_was_done(cube, built, frame, seed):
    with pytest.raises(InvalidInput, match="on_conflict"):
        update_cube_from_spark({}, cube, built, C("p") == 0, ["seed"], on_conflict="ignore")
    result = update_cube_from_spark({}, cube, built, C("p") == 0, ["seed"], on_conflict="reapply")
    assert (result["seed"].commit.tries, result["seed"].commit.reapplied) == (1, False)


def test_update_takes_no_rows_too(cube, built, seed):
    update_cube_from_spark({}, cube, built, C("p") == 1, ["seed"])
    assert {r["p"] for r in rows(cube, built)} == {0, 2, 3}


@pytest.mark.usefixtures("spark")
def test_the_result_of_a_per_group_job_extends_the_cube(cube, built):
    def ranked(key, table):
        return table.select(["x", "y", "p"]).append_column("rank", pa.array(range(table.num_rows), pa.int64()))

    result = map_cube_groups(ranked, "x bigint, y bigint, p bigint, rank bigint", cube, built, partition_by="i1")
    extend_cube_from_spark({"ranks": result}, cube, built, shuffle=True)
    found = rows(cube, built)
    by = {i: sorted(r["rank"] for r in found if r["i1"] == i) for i in range(3)}
    assert all(ranks == list(range(len(ranks))) for ranks in by.values())
    assert sum(map(len, by.values())) == len(found)


def test_columns_may_come_in_any_order(cube, built, frame, seed):
    append_to_cube_from_spark(frame.select(*sorted(frame.columns)), cube, built)
    assert rows(cube, built)[0].keys() >= set(seed.column_names)
    assert len(rows(cube, built)) == seed.num_rows


def test_naive_times_do_not_slip(cube, frame, seed, store_url):
    build_cube_from_spark(frame, cube, store_url)
    found = query_cube_arrow(cube, store_url)
    assert found.schema.field("t").type == pa.timestamp("us")
    assert sorted(set(found.column("t").to_pylist())) == sorted(set(seed.column("t").to_pylist()))


def test_zoned_times_are_refused_before_anything_is_staged(cube, spark, store_url, files):
    zoned = spark.sql(
        "SELECT 1L AS x, 1L AS y, 1L AS p, 1L AS i1, array(named_struct('at', timestamp'2024-03-10 12:00:00')) AS t"
    )
    with pytest.raises(InvalidInput, match=r"Column 't' of dataset 'seed' is a Spark timestamp.*timestamp_ntz"):
        build_cube_from_spark(zoned, cube, store_url)
    assert files() == []


def test_zoned_times_are_stored_in_utc_on_request(cube, spark, store_url):
    zoned = spark.sql("SELECT 1L AS x, 1L AS y, 1L AS p, 1L AS i1, timestamp'2024-03-11 12:00:00' AS t")
    build_cube_from_spark(zoned, cube, store_url, timestamps="utc")
    found = query_cube_arrow(cube, store_url)
    # The session is in New York, four hours behind on that day.
    assert found.column("t").to_pylist() == [dt.datetime(2024, 3, 11, 16)]
    assert found.schema.field("t").type == pa.timestamp("us")


@pytest.mark.parametrize("kind", ["interval '1' day", "interval '1' year", "make_interval(1)", "parse_json('{}')"])
def test_types_without_a_place_in_parquet_are_refused_by_name(cube, spark, store_url, files, kind):
    odd = spark.sql(f"SELECT 1L AS x, 1L AS y, 1L AS p, 1L AS i1, {kind} AS v")
    with pytest.raises(Unsupported, match=r"Column 'v' of dataset 'seed': the Spark type .* cannot be stored"):
        build_cube_from_spark(odd, cube, store_url)
    assert files() == []


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"partition_on": {"seed": ["i1"]}}, InvalidInput, "fixed partition-on"),
        ({"timestamps": "local"}, InvalidInput, "neither"),
        ({"shuffle": True, "num_buckets": 0}, InvalidInput, "num_buckets=0"),
        ({"shuffle": True, "num_buckets": None}, InvalidInput, "num_buckets=None"),
        ({"shuffle": True, "num_buckets": 2, "bucket_by": ["nope"]}, InvalidInput, "nope"),
        ({"parallelism": 0}, InvalidInput, "parallelism=0"),
        ({"parallelism": "4"}, InvalidType, "parallelism=.4. is no whole number"),
        ({"metadata": {"other": {}}}, InvalidInput, "other"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_staged(cube, frame, store_url, files, arguments, error, text):
    with pytest.raises(error, match=text):
        build_cube_from_spark(frame, cube, store_url, **arguments)
    assert files() == []


def test_buckets_do_not_matter_without_a_shuffle(cube, frame, store_url):
    build_cube_from_spark(frame, cube, store_url, num_buckets=None, bucket_by=["nope"])
    assert len(rows(cube, store_url)) == 200


@pytest.mark.parametrize("data", [None, 1, "seed", {"seed": None}, [1], pa.table({"v1": [1]})])
def test_what_is_no_spark_frame_is_refused(cube, store_url, data):
    match = (
        "Expected a Spark data frame.* a Table of pyarrow.*createDataFrame"
        if isinstance(data, pa.Table)
        else "Expected a Spark data frame"
    )
    with pytest.raises(InvalidType, match=match):
        build_cube_from_spark(data, cube, store_url)


def test_a_store_in_memory_is_refused_on_the_driver(cube, frame):  # cube 238
    with pytest.raises(InvalidType, match="memory of this process"):
        build_cube_from_spark(frame, cube, "hmemory://")


def test_missing_dimension_columns_are_refused_from_the_schema(cube, frame, store_url, files):
    with pytest.raises(InvalidInput, match='Missing dimension columns in seed data "seed": y'):
        build_cube_from_spark(frame.drop("y"), cube, store_url)
    assert files() == []


def test_what_exists_is_not_overwritten_unasked(cube, built, frame):
    with pytest.raises(AlreadyExists):
        build_cube_from_spark({"seed": frame, "e": frame.select("x").distinct()}, cube, built, partition_on={"e": []})


@pytest.mark.parametrize("layout", [{}, {"shuffle": True}])
def test_an_empty_frame_aborts_the_write(cube, frame, store_url, layout):
    with pytest.raises(MultiTableCommitAborted, match="Cannot write empty datasets: seed"):
        build_cube_from_spark(frame.where("x < 0"), cube, store_url, **layout)


@pytest.mark.parametrize("layout", [{}, {"shuffle": True}])
@pytest.mark.parametrize("column", ["x", "p", "i1"])
def test_nulls_are_refused_where_none_may_stand(cube, built, frame, column, layout):
    before = rows(cube, built)
    holed = frame.selectExpr(*(f"nullif({c}, 0) AS {c}" if c == column else c for c in frame.columns))
    with pytest.raises(InvalidInput, match=f'Found NULL-values in .* column "{column}" of dataset "seed"'):
        append_to_cube_from_spark(holed, cube, built, **layout)
    assert rows(cube, built) == before


@pytest.mark.parametrize(
    "layout",
    [
        {},
        {"shuffle": True},
        {"shuffle": True, "num_buckets": 3},
        {"shuffle": True, "num_buckets": 7, "bucket_by": ["v1"]},
    ],
)
def test_a_cell_that_two_tasks_have_is_refused(cube, built, frame, layout):  # cube 245
    before = rows(cube, built)
    twice = frame.unionAll(frame.where("x = 3 AND y = 2 AND p = 1").withColumn("v1", frame["v1"] + 1))
    with pytest.raises(
        InvalidInput, match=r"duplicate cells by \[p, x, y\] in dataset \"seed\": 1 row with.*'x': 3"
    ) as caught:
        append_to_cube_from_spark(twice, cube, built, **layout)
    assert "'p': 1" in str(caught.value)
    assert rows(cube, built) == before


def test_a_cell_in_two_physical_partitions_is_refused(cube, built, spark):
    twice = spark.createDataFrame([(1, 1, 1.0), (1, 2, 2.0)], "x bigint, q bigint, v3 double").repartition(2, "q")
    for layout in ({}, {"shuffle": True}):
        with pytest.raises(InvalidInput, match=r"duplicate cells by \[x\] in dataset \"more\""):
            extend_cube_from_spark({"more": twice}, cube, built, partition_on={"more": ["q"]}, **layout)


def test_null_columns_take_the_type_of_the_dataset(cube, built, frame):
    from pyspark.sql import functions as F

    append_to_cube_from_spark(frame.withColumn("v1", F.lit(None)), cube, built)
    assert set(query_cube_arrow(cube, built).column("v1").to_pylist()) == {None}


def test_partition_columns_are_as_wide_as_in_the_eager_verb(spark, tmp_path):
    cube = Cube(["x"], ["p"], "narrow")
    frame = spark.sql("SELECT CAST(1 AS tinyint) AS x, CAST(2 AS int) AS p, CAST(1.5 AS float) AS v")
    build_cube_from_spark(frame, cube, tmp_path / "spark")
    build_cube(frame.toArrow(), cube, tmp_path / "eager")
    assert query_cube_arrow(cube, tmp_path / "spark").schema.equals(query_cube_arrow(cube, tmp_path / "eager").schema)


def test_column_names_may_be_odd(spark, store_url):
    cube = Cube(["größe", "x y"], ["p.q"], "odd")
    frame = spark.createDataFrame([(1, 2, 3, "`")], "`größe` bigint, `x y` bigint, `p.q` bigint, `v``1` string")
    build_cube_from_spark(frame, cube, store_url, shuffle=True, num_buckets=2)
    assert rows(cube, store_url) == [{"größe": 1, "p.q": 3, "v`1": "`", "x y": 2}]


def test_names_that_differ_in_case_only_are_two_columns(spark, store_url):
    cube = Cube(["x"], ["p"], "cases")
    build_cube_from_spark(spark.createDataFrame([(1, 2, 3)], "x bigint, X bigint, p bigint"), cube, store_url)
    assert rows(cube, store_url) == [{"X": 2, "p": 3, "x": 1}]
