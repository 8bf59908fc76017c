"""The data source read: a cube or a dataset as any table of Spark, its options, its plans, its
errors.
"""

from __future__ import annotations

import datetime as dt
import pickle

import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan, InputPartition, LessThan, Not, StringContains
from pyspark.sql.types import ArrayType, IntegerType, LongType, MapType, StringType, StructField, StructType

from kartothek_cube import Cube, append_to_cube, build_cube, cube_history, query_cube_arrow, query_cube_changes
from kartothek_cube.api.dataset import history, store_dataframes_as_dataset
from kartothek_cube.core.stores.open import open_store
from kartothek_cube.errors import DatasetNotFound, InvalidInput, KeyNotFound, UnknownColumn
from kartothek_cube.spark import driver_errors, register
from kartothek_cube.spark.datasource import KartothekCubeSource
from kartothek_cube.spark.datasource.options import parse_options
from kartothek_cube.spark.datasource.read import make_reader, source_schema
from kartothek_cube.spark.datasource.stream import make_stream_reader
from kartothek_cube.spark.tasks import unpack

BRIEF = dt.timedelta(microseconds=5)
DURATIONS = pa.struct([("l", pa.list_(pa.duration("ns"))), ("m", pa.map_(pa.string(), pa.duration("us")))])
STORE = {"store": "hfs:///data/store"}
CUBE = {**STORE, "cube": "sales"}


def load(spark, store, **options):
    return spark.read.format("kartothek_cube").options(**{"store": store, "parallelism": 1, **options}).load()


def ordered(table):
    return sorted(table.to_pylist(), key=lambda row: [str(row.get(c)) for c in ("p", "x", "y")])


@pytest.fixture
def source(spark):
    register(spark)
    register(spark)
    return spark


def test_a_cube_a_dataset_and_sql_are_tables_like_others(source, cube, built):
    whole = query_cube_arrow(cube, built)
    frame = load(source, built, cube="cube")
    found = frame.toArrow()
    assert found.schema.equals(whole.schema)
    assert ordered(found) == ordered(whole)
    some = load(source, built, cube="cube", columns="v2,x", blocksize=1).where("x > 7")
    assert some.columns == ["v2", "x"]
    assert some.count() == 40
    part = load(source, built, cube="cube", dataset="e", columns="x")
    assert sorted(r.x for r in part.collect()) == [0, 1, 2, 3]
    assert load(source, built, dataset="cube++e").where("v2 is null").toArrow().to_pylist() == [{"x": 1, "v2": None}]
    source.sql(f"CREATE OR REPLACE TEMPORARY VIEW sales USING kartothek_cube OPTIONS (store '{built}', cube 'cube')")
    assert source.sql(
        "SELECT p, count(*), max(v2) FROM sales WHERE p >= 2 AND x = 3 GROUP BY p ORDER BY p"
    ).collect() == [(2, 5, "d"), (3, 5, "d")]
    with pytest.raises(InvalidInput, match="Use CREATE TEMPORARY VIEW"), driver_errors():
        source.sql(f"CREATE TABLE stored_sales USING kartothek_cube OPTIONS (store '{built}', cube 'cube')")


def test_conditions_leave_files_out_and_tasks_are_few(source, built):
    def tasks(**options):
        return load(source, built, cube="cube", columns="v2", **options).rdd.getNumPartitions()

    assert tasks(parallelism=2) == 2
    assert tasks(blocksize=3) == 2
    assert tasks(conditions="p == 2") == 1
    assert tasks(conditions="p != 2 & i1 == 1 & y < 2", blocksize=1) == 3
    frame = load(source, built, cube="cube", columns="v2,y", conditions="p in (1, 3) & i1 == 1 & x < 2", blocksize=1)
    assert sorted(map(tuple, frame.where("v2 is not null").collect())) == [("a", y) for y in range(5)]
    assert load(source, built, cube="cube", conditions="p == 77").count() == 0


def test_one_frame_serves_many_filters(source, built):
    """Spark shares the plan of a frame between all scans of it, so that a source which left out
    files for one filter would rob the others.
    """
    frame = load(source, built, cube="cube", columns="p,x,y", blocksize=4)
    one, other = frame.where("p = 1 and x = 3"), frame.where("p = 2")
    assert (one.count(), frame.count()) == (5, 200)
    assert sorted(map(tuple, one.unionAll(other).groupBy("p").count().collect())) == [(1, 5), (2, 50)]


def test_push_down_serves_one_query(source, built):
    frame = load(source, built, cube="cube", columns="p,v2", push_down=True, parallelism=9).where("p in (1, 3, null)")
    assert frame.rdd.getNumPartitions() == 2
    assert frame.count() == 100


def test_types_come_as_spark_knows_them(source, store_url):
    table = pa.table(
        {
            "x": [1],
            "p": [1],
            "u": pa.array([2**63], pa.uint64()),
            "l": pa.array([[1, None]]),
            "n": pa.array([{"a": [{"b": "c"}]}]),
            "w": pa.array([BRIEF], pa.duration("us")),
            "w in": pa.array([{"l": [BRIEF, None], "m": [("a", BRIEF)]}], DURATIONS),
            "m": pa.array([7], pa.time64("us")),
            "y": [b"\0"],
            "nothing": pa.nulls(1),
        }
    )
    build_cube(table, Cube(["x"], ["p"], "cube"), store_url)
    frame = load(source, store_url, cube="cube")
    types = {f.name: f.dataType.simpleString() for f in frame.schema}
    assert types["u"] == "decimal(20,0)"
    assert types["w"].startswith("interval")
    assert types["w in"].count("interval") == 2
    row = frame.where(f"u = {2**63}").collect()[0].asDict(recursive=True)
    assert (row["l"], row["n"], row["y"], row["nothing"]) == ([1, None], {"a": [{"b": "c"}]}, b"\0", None)
    assert (row["w"], row["w in"]) == (BRIEF, {"l": [BRIEF, None], "m": {"a": BRIEF}})
    narrower = (
        source.read.format("kartothek_cube").schema("x int, u string").options(store=store_url, cube="cube").load()
    )
    assert narrower.where("x = 1 and u > '0'").collect() == [(1, str(2**63))]


def test_a_frame_is_one_state_of_the_cube(source, cube, built, seed):
    old, moment = history("cube++seed", built)[["commit", "time"]].iloc[0]
    options = {"cube": "cube", "columns": "p,x,y", "blocksize": 4}
    frame = load(source, built, **options)
    before = frame.count()
    append_to_cube(seed.set_column(0, "x", pa.array([x + 100 for x in seed["x"].to_pylist()])), cube, built)
    now, then = load(source, built, **options), load(source, built, as_of=old, **options)
    assert load(source, built, as_of=str(moment), **options).count() == 200
    # A filter makes Spark plan again.
    assert (before, frame.where("x >= 0").count(), frame.count(), now.count(), then.count()) == (
        200,
        200,
        200,
        400,
        200,
    )
    assert now.alias("a").join(now.alias("b"), ["p", "x", "y"]).count() == 400


def test_changes_are_rows_and_their_counts_have_another_name(source, built, cube, seed):
    since = cube_history(cube, built)["commit"].iloc[0]
    append_to_cube(seed.slice(0, 1).set_column(4, "v1", [[99.5]]), cube, built)
    call = f"kartothek_changes(store => '{built}', cube => 'cube', since => '{since}')"
    changes = source.sql(f"SELECT _change_type, v1, t FROM {call}")
    counts = f"SELECT * FROM kartothek_change_counts('{built}', cube => 'cube', since => '{since}')"
    assert source.sql(f"{counts} WHERE dataset = 'seed'").collect() == [("seed", 0, 1, 0)]
    assert source.sql(f"SELECT * FROM {call}").schema.names == query_cube_changes(cube, built, since).schema.names
    append_to_cube(seed.slice(0, 1).set_column(4, "v1", [[98.5]]), cube, built)
    then = dt.datetime(2024, 3, 10, 2, 30)
    assert changes.collect() == [("update_preimage", 0.0, then), ("update_postimage", 99.5, then)]
    by_key = "dataset => 'cube++e', since => date'2999-01-01', on_columns => array('x')"
    assert source.sql(f"SELECT * FROM kartothek_changes('{built}', {by_key})").collect() == []
    with pytest.raises(InvalidInput, match="Did you mean 'cube'"), driver_errors():
        source.sql(f"SELECT * FROM kartothek_changes('{built}', cube => 'cub', since => '{since}')")


def test_errors_arrive_as_our_types(source, built, store_url, files):
    def fails(error, match, action):
        with pytest.raises(error, match=match), driver_errors():
            action()

    fails(UnknownColumn, "no column 'z'", lambda: load(source, built, cube="cube", columns="x,z"))
    frame = load(source, built, cube="cube", columns="v2", blocksize=9)
    planned = source.read.format("kartothek_cube").schema("z int").options(store=built, cube="cube").load()
    fails(UnknownColumn, "no column 'z'", planned.collect)
    store = open_store(store_url)
    for key in files("e"):
        store.delete(key)
    fails(KeyNotFound, "cube[+][+]e", frame.collect)
    store.delete("cube++seed.by-dataset-metadata.json")
    fails(InvalidInput, "seed dataset", lambda: load(source, built, cube="cube"))


# --- without Spark --------------------------------------------------------------------------------


def reader(store, **options):
    parsed = parse_options({"store": store, "push_down": "true", **options})
    return make_reader(parsed, source_schema(parsed), 2)


def files_of(made):
    return [
        key
        for p in made.partitions()
        for item in unpack(p.value)
        for key in (item.file_keys() if hasattr(item, "file_keys") else [item.task.key])
    ]


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"cube": "other"}, InvalidInput, "seed dataset"),
        ({"cube": "cub"}, InvalidInput, "Cubes of this store: cube. Did you mean 'cube'"),
        ({"dataset": "other"}, DatasetNotFound, "other"),
        ({"cube": "cube", "dataset": "other"}, DatasetNotFound, "cube[+][+]other"),
        ({"dataset": "cube++e", "table": "other"}, KeyNotFound, "no table 'other'"),
        ({"dataset": "cube++e", "columns": "z"}, UnknownColumn, "z"),
        ({"cube": "cube", "conditions": "z == 1"}, InvalidInput, "Unknown column"),
        ({"cube": "cube", "conditions": "x == a"}, InvalidInput, "column x is int64 and takes a number"),
        ({"dataset": "cube++e", "conditions": "x"}, InvalidInput, "Cannot parse"),
        ({"cube": "cube", "as_of": "2001-01-01"}, InvalidInput, "2001"),
    ],
)
def test_wrong_options_are_refused_when_the_frame_is_made(built, options, error, match):
    with pytest.raises(error, match=match):
        source_schema(parse_options({"store": built, **options}))


def test_a_frame_is_pinned_when_its_schema_is_asked_for(built, cube, seed):
    made = KartothekCubeSource({"store": built, "cube": "cube"})
    schema = made.schema()
    append_to_cube(seed.set_column(0, "x", pa.array([x + 100 for x in seed["x"].to_pylist()])), cube, built)
    kept = pickle.loads(pickle.dumps(made))
    assert len(files_of(kept.reader(schema))) < len(files_of(reader(built, cube="cube")))
    # Spark sends the source along to every task.
    assert len(pickle.dumps(kept)) < 300 < len(pickle.dumps(made))


def test_a_schema_of_the_user_must_not_contradict_the_columns(built):
    parsed = parse_options({"store": built, "cube": "cube", "columns": "x,p"})
    x, p = StructField("x", IntegerType()), StructField("p", StringType())
    with pytest.raises(InvalidInput, match=r"columns='x,p'.*schema.*'p', 'x'"):
        make_reader(parsed, StructType([p, x]))
    assert make_reader(parsed, StructType([x, p])) is not None


@pytest.mark.parametrize(
    "field",
    [
        StructField("v2", StringType(), nullable=False),
        StructField("v2", ArrayType(LongType(), containsNull=False)),
        StructField("v2", MapType(StringType(), LongType(), valueContainsNull=False)),
        StructField("v2", StructType([StructField("a", ArrayType(LongType(), containsNull=False))])),
    ],
    ids=lambda field: field.dataType.simpleString(),
)
@pytest.mark.parametrize("make", [make_reader, make_stream_reader])
def test_a_schema_of_the_user_must_not_exclude_nulls(built, make, field):
    parsed = parse_options({"store": built, "cube": "cube", "dataset": "e"})
    with pytest.raises(InvalidInput, match=r"'e' excludes nulls in \['v2'\].*NOT NULL.*toNullable"):
        make(parsed, StructType([StructField("x", LongType(), metadata={"a": 1}), field]))
    assert make(parsed, StructType([StructField("x", LongType(), metadata={"a": 1}), field]).toNullable()) is not None


def test_the_schema_of_another_frame_that_excludes_nulls_is_refused(source, built):
    frame = source.read.format("kartothek_cube").schema(source.range(1).toDF("x").schema)
    with pytest.raises(InvalidInput, match=r"excludes nulls in \['x'\]"), driver_errors():
        frame.options(store=built, cube="cube").load().collect()


def test_a_reader_that_travels_is_small(built):
    made = reader(built, cube="cube")
    before = len(pickle.dumps(made))
    assert list(made.pushFilters([EqualTo(("p",), 1)])) == []
    assert len(files_of(made)) == 2
    assert len(pickle.dumps(made)) == before < 2000


def test_every_group_is_in_one_partition_and_pruned_ones_in_none(built):
    made = reader(built, cube="cube")
    given = [Not(EqualTo(("p",), 1)), EqualTo(("i1",), 1), StringContains(("v2",), "a")]
    assert [str(f) for f in made.pushFilters(given)] == [str(given[0]), str(given[2])]
    seeds = [key for key in files_of(made) if "seed" in key]
    assert sorted(key.split("p=")[1][0] for key in seeds) == ["0", "2", "3"]


def test_an_index_of_a_dataset_leaves_files_out(tmp_path):
    store = f"hfs://{tmp_path}"
    frames = [pa.table({"k": [2 * i, 2 * i + 1], "v": [1, 2]}).to_pandas() for i in range(5)]
    store_dataframes_as_dataset(store, "one", frames, secondary_indices=["k"])
    made = reader(store, dataset="one", blocksize="2")
    assert [len(unpack(p.value)) for p in made.partitions()] == [1, 2, 2]
    assert list(made.pushFilters([GreaterThan(("k",), 7)])) == []
    (chunk,) = made.partitions()
    assert pa.Table.from_batches(made.read(chunk)).to_pylist() == [{"k": 8, "v": 1}, {"k": 9, "v": 2}]


def test_no_partition_is_no_row(built):
    made = reader(built, cube="cube")
    list(made.pushFilters([EqualTo(("p",), 77)]))
    assert made.partitions() == []
    assert list(made.read(InputPartition(None))) == []


@pytest.mark.parametrize("target", [{"cube": "cube"}, {"dataset": "cube++seed"}], ids=["cube", "dataset"])
def test_columns_that_a_query_does_not_need_are_not_read(built, target):
    made = reader(built, **target)
    list(made.pushFilters([EqualTo(("p",), 1), LessThan(("v1",), 20.0)]))
    needed = StructType([made._schema["y"], made._schema["x"]])
    assert made.pruneColumns(needed) == needed
    sent = pickle.loads(pickle.dumps(made))
    tables = [pa.Table.from_batches(sent.read(part)) for part in made.partitions()]
    assert {tuple(table.column_names) for table in tables} == {("y", "x")}
    assert sorted(pa.concat_tables(tables)["x"].to_pylist()) == sorted([*range(10), *range(10)])


def test_columns_are_pruned_by_an_arrow_schema_as_well(built):
    made = reader(built, cube="cube")
    assert made.pruneColumns(pa.schema({"v2": pa.string(), "p": pa.int64()})).names == ["v2", "p"]


def test_a_count_reads_one_column(built):
    made = reader(built, cube="cube", columns="p,v1")
    assert made.pruneColumns(StructType([])).names == ["p"]
    assert sum(batch.num_rows for part in made.partitions() for batch in made.read(part)) == 200


def test_a_task_stops_at_the_limit(built):
    made = reader(built, dataset="cube++seed", blocksize="4")
    assert made.pushLimit(60) is True
    (part,) = made.partitions()
    sent = pickle.loads(pickle.dumps(made))
    assert sum(batch.num_rows for batch in made.read(part)) == 60
    assert sum(batch.num_rows for batch in sent.read(part)) == 60


def test_a_limit_is_refused_where_spark_filters_rows_afterwards(built):
    made = reader(built, cube="cube", blocksize="4")
    assert len(list(made.pushFilters([Not(EqualTo(("i1",), 1))]))) == 1
    assert made.pushLimit(1) is False
    assert sum(batch.num_rows for part in made.partitions() for batch in made.read(part)) > 1
    list(made.pushFilters([EqualTo(("p",), 1)]))
    assert made.pushLimit(7) is True
    assert sum(batch.num_rows for part in made.partitions() for batch in made.read(part)) == 7


def test_columns_of_another_type_than_stored_are_not_compared(built):
    parsed = parse_options({"store": built, "cube": "cube", "push_down": "TRUE", "blocksize": "1"})
    made = make_reader(parsed, StructType([StructField("x", IntegerType()), StructField("p", StringType())]))
    assert len(list(made.pushFilters([EqualTo(("x",), 1), EqualTo(("p",), "1")]))) == 2
    assert len(made.partitions()) == 4


def test_sail_leaves_casts_of_doubles_out_of_filters(store_url):
    store_dataframes_as_dataset(store_url, "one", [pa.table({"f": [0.1], "x": [1]}).to_pandas()])
    parsed = parse_options({"store": store_url, "dataset": "one", "push_down": "true"})
    given = [EqualTo(("f",), 0.10000000149011612), EqualTo(("x",), 1)]
    made = make_reader(parsed, pa.schema([("f", pa.float64()), ("x", pa.int64())]))
    assert list(made.pushFilters(given)) == given[:1]
    assert list(reader(store_url, dataset="one").pushFilters(given)) == []


@pytest.mark.parametrize(
    ("options", "use", "expected"),
    [
        (CUBE, "read", {"cube": "sales", "columns": None, "table": "table"}),
        ({**CUBE, "COLUMNS": " a, b "}, "read", {"columns": ("a", "b")}),
        ({**CUBE, "columns": '["a,b", "c"]'}, "read", {"columns": ("a,b", "c")}),
        (
            {**CUBE, "blocksize": "3", "parallelism": "2", "as_of": "2024-01-01"},
            "read",
            {"blocksize": 3, "parallelism": 2, "as_of": "2024-01-01"},
        ),
        ({**CUBE, "store": "s3://bucket/data"}, "read", {"store": "s3://bucket/data"}),
        ({**CUBE, "store": "/data"}, "read", {"store": "/data"}),
        ({**CUBE, "owner": "me"}, "read", {"cube": "sales"}),
        (
            {**CUBE, "partition_columns": "p", "dimension_columns": "x,y", "index_columns": ""},
            "write",
            {"dimension_columns": ("x", "y"), "index_columns": ()},
        ),
        (
            {**STORE, "dataset": "d", "secondary_indices": "i", "txn": "nightly, 3"},
            "write",
            {"secondary_indices": ("i",), "txn": ("nightly", 3)},
        ),
        ({**STORE, "dataset": "d", "checkpointLocation": "/c", "timestamps": "utc"}, "stream", {"timestamps": "utc"}),
    ],
)
def test_options_become_a_value(options, use, expected):
    parsed = parse_options(options, use)
    assert {name: getattr(parsed, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("options", "use", "match"),
    [
        ({"cube": "sales"}, "read", "option store is missing"),
        ({**STORE}, "read", "Give the option cube"),
        ({**CUBE, "store": "hfs://store"}, "read", "relative path"),
        ({**CUBE, "store": "data/store"}, "write", "relative path"),
        ({**CUBE, "colums": "a"}, "read", "no option 'colums'. Did you mean 'columns'"),
        ({**CUBE, "path": "x"}, "read", "two words for one thing"),
        ({**CUBE, "columns": ""}, "read", "name at least one"),
        ({**CUBE, "columns": "a,,b"}, "read", "empty name"),
        ({**CUBE, "columns": "a,a"}, "read", "twice"),
        ({**CUBE, "columns": '["a"'}, "read", "no JSON list"),
        ({**CUBE, "columns": "[1]"}, "read", "no list of names"),
        ({**CUBE, "push_down": "yes"}, "read", "neither"),
        ({**CUBE, "conditions": ""}, "read", "conditions is empty"),
        ({**CUBE, "blocksize": "0"}, "read", "no positive whole number"),
        ({**CUBE, "parallelism": "many"}, "read", "no positive whole number"),
        ({**CUBE, "as_of": ""}, "read", "as_of is empty"),
        ({**CUBE, "partition_on": "p"}, "read", "partition_on means nothing to read"),
        ({**CUBE, "as_of": "2024"}, "write", "as_of means nothing to write"),
        ({**CUBE, "txn": "a,1"}, "stream", "number of the batch"),
        ({**CUBE, "txn": "a"}, "write", "no transaction"),
        ({**CUBE, "txn": "a,-1"}, "write", "no transaction"),
        ({**CUBE, "timestamps": "keep"}, "write", "none of refuse, utc"),
        ({**CUBE, "secondary_indices": "i"}, "write", "index_columns, not secondary_indices"),
        ({**CUBE, "table": "t"}, "read", "have one table"),
        ({**STORE, "dataset": "d", "index_columns": "i"}, "write", "describes a new cube"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(options, use, match):
    with pytest.raises(InvalidInput, match=match):
        parse_options(options, use)
