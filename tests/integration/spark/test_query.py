"""query_cube_spark: the rows of the eager query, lazily, in few tasks."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kartothek_cube import (
    C,
    Cube,
    append_to_cube,
    build_cube,
    extend_cube,
    load_group,
    plan_cube_query,
    query_cube_arrow,
    tag_cube,
    update_cube,
)
from kartothek_cube.api.dataset import history
from kartothek_cube.core.stores.contract import StoreView
from kartothek_cube.core.stores.open import open_store
from kartothek_cube.errors import CorruptData, InvalidInput, InvalidType, KeyNotFound
from kartothek_cube.spark import driver_errors, map_cube_groups, query_cube_spark
from kartothek_cube.spark.tasks import as_task, encode_error, error_in

QUERIES = {
    "everything": {},
    "partition": {"conditions": C("p") == 2},
    "index": {"conditions": C("i1") == 1},
    "payload": {"conditions": (C("v1") > 20.0) & (C("y") < 3)},
    "inner": {"conditions": C("v2") == "c"},
    "times": {"conditions": C("t") > dt.datetime(2024, 3, 10, 9)},
    "projection": {"dimension_columns": ["x"], "datasets": ["seed", "e"], "payload_columns": ["v2"]},
    "columns": {"payload_columns": ["v1"]},
    "nothing": {"conditions": C("p") == 77},
    "no rows": {"conditions": C("v1") > 1e9},
}


def ordered(table):
    return sorted(table.to_pylist(), key=lambda row: [str(row.get(c)) for c in ("p", "x", "y")])


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_rows_and_types_are_those_of_the_eager_query(spark, cube, built, query):  # cube 243
    found = query_cube_spark(cube, built, **query).toArrow()
    expected = query_cube_arrow(cube, built, **query)
    assert found.schema.equals(expected.schema)
    assert ordered(found) == ordered(expected)


@pytest.mark.parametrize(
    ("by", "blocksize"),
    [("p", None), ("p", 3), ("i1", None), ("i1", 1), ("i1", 2), ("x", None), (["i1", "y"], 4), (["y", "p"], None)],
)
def test_a_group_is_in_one_task_in_order(spark, cube, built, by, blocksize):  # cube 243
    from pyspark.sql import functions as F

    names = [by] if isinstance(by, str) else by
    frame = query_cube_spark(cube, built, partition_by=by, blocksize=blocksize)
    assert ordered(frame.toArrow()) == ordered(query_cube_arrow(cube, built))
    tasks = frame.select(*names, F.spark_partition_id().alias("task")).distinct().groupBy(*names).count()
    assert tasks.where("count > 1").count() == 0
    rows = [tuple(r) for r in frame.select(*names).collect()]
    runs = [r for i, r in enumerate(rows) if i == 0 or rows[i - 1] != r]
    assert runs == sorted(set(rows))


def test_groups_are_packed_into_few_tasks(spark, cube, built):
    def tasks(**given):
        return query_cube_spark(cube, built, **given).selectExpr("spark_partition_id() AS n").distinct().count()

    assert tasks() == 2
    assert tasks(blocksize=1) == 4
    assert tasks(partition_by="p", blocksize=3) == 2


def test_the_plan_pins_the_state(spark, cube, built, frame, seed):
    query = query_cube_spark(cube, built)
    update_cube({}, cube, built, C("p") == 0, ["seed"])
    assert query.count() == seed.num_rows
    assert query_cube_spark(cube, built).count() == seed.num_rows - 50


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"conditions": C("nope") == 1}, InvalidInput),
        ({"conditions": C("x") == "1"}, InvalidType),
        ({"blocksize": 0}, InvalidInput),
        ({"parallelism": 0}, InvalidInput),
    ],
)
def test_wrong_queries_are_refused_when_they_are_made(spark, cube, built, arguments, error):
    with pytest.raises(error):
        query_cube_spark(cube, built, **arguments)


def test_a_store_in_memory_is_refused(spark, cube):  # cube 238
    with pytest.raises(InvalidType, match="memory of this process"):
        query_cube_spark(cube, "hmemory://")


def test_errors_of_tasks_arrive_as_their_own_type_and_say_what_to_do(spark, cube, built, store):
    query = query_cube_spark(cube, built, payload_columns=["v2"], blocksize=4)
    (key,) = (key for key in store.list("cube++e/table/", recursive=True).keys if key.endswith(".parquet"))
    store.delete(key)
    with pytest.raises(KeyNotFound) as found, driver_errors():
        query.collect()
    assert re.match(
        rf"The file '{re.escape(key)}', which dataset 'cube\+\+e' names, is not in the store .*plan it again",
        str(found.value),
    )
    # What a notebook prints is our message, and no trace of the JVM before it.
    assert (found.value.__cause__, found.value.__suppress_context__) == (None, True)
    assert "PythonException" in repr(found.value.__context__)


def damage(store, key):
    store.put(key, store.get(key)[:100])


def retype(store, key):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"x": [1], "y": [1], "i1": [1], "v1": ["text"]}), sink)
    store.put(key, sink.getvalue().to_pybytes())


@pytest.mark.parametrize(
    ("harm", "text"),
    [
        (damage, "The file '{}' of dataset 'cube++seed' cannot be read"),
        (retype, "Column 'v1' of the file '{}' is string, but its dataset says double"),
    ],
)
def test_damage_is_named_with_file_and_dataset_on_its_way_from_a_task(cube, built, store, harm, text):
    (group,) = plan_cube_query(cube, built, C("p") == 1, payload_columns=["v1"]).groups
    (key,) = group.file_keys()
    harm(store, key)

    def task(batches):
        yield load_group(group, built)

    with pytest.raises(RuntimeError) as found:
        next(as_task(task)(iter(())))
    assert str(error_in(f"of Spark around it\n{found.value}\nand after it")).startswith(text.format(key))
    assert isinstance(error_in(str(found.value)), CorruptData)


@pytest.mark.parametrize("missing", [1, 5, 20, 60])
def test_an_error_that_spark_has_cut_off_is_left_as_it_is(missing):
    quoted = "kartothek_cube error: " + encode_error(InvalidInput("in group {'p': 1} there is {} of it"))
    assert error_in(quoted[:-missing]) is None


def test_enrichments_by_other_partition_columns_join(spark, cube, built):
    extend_cube({"f": pa.table({"x": [1, 2], "q": ["a", "b"], "v3": [1, 2]})}, cube, built, partition_on={"f": ["q"]})
    assert ordered(query_cube_spark(cube, built, C("v3") == 2).toArrow()) == ordered(
        query_cube_arrow(cube, built, C("v3") == 2)
    )


def test_a_cube_without_rows_for_the_query_gives_an_empty_frame_of_the_right_types(spark, cube, built):
    frame = query_cube_spark(cube, built, C("p") == 77, partition_by="i1")
    assert frame.collect() == []
    assert frame.toArrow().schema.equals(query_cube_arrow(cube, built).schema)


def test_unsigned_integers_come_in_the_next_wider_type(spark, cube, tmp_path):
    types = {"u8": pa.uint8(), "u16": pa.uint16(), "u32": pa.uint32(), "u64": pa.uint64()}
    columns = {name: pa.array([2**kind.bit_width - 1], kind) for name, kind in types.items()}
    build_cube(pa.table({"x": [1], "y": [1], "p": [1], "i1": [1], **columns}), cube, tmp_path)
    frame = query_cube_spark(cube, tmp_path)
    assert [kind for name, kind in frame.dtypes if name in types] == ["int", "bigint", "decimal(20,0)", "smallint"]
    assert {frame.collect()[0][name] for name in types} == {Decimal(2**n - 1) for n in (8, 16, 32, 64)}


class UnpicklableStore(StoreView):
    def __reduce__(self):
        raise TypeError("cannot be pickled")


def open_unpicklable(url):
    return UnpicklableStore(open_store(url))


@pytest.mark.usefixtures("pickled_by_value")
def test_a_function_that_opens_the_store_travels_where_the_store_cannot(spark, cube, built):  # cube 238
    factory = partial(open_unpicklable, built)
    assert query_cube_spark(cube, factory).count() == 200
    assert query_cube_spark(cube, factory, partition_by="x").count() == 200
    with pytest.raises(InvalidType, match="cannot be pickled"):
        query_cube_spark(cube, factory())


@pytest.mark.parametrize("name", ["moment", "tag"])
def test_older_states_are_read_by_tasks_too(spark, store_url, name):
    cube = Cube(["x"], ["p"], f"older-{name}")
    build_cube(pa.table({"x": [1, 2], "p": [0, 1]}), cube, store_url)
    tag_cube(cube, store_url, "before")
    when = "before" if name == "tag" else history(f"older-{name}++seed", store_url)["time"][0]
    append_to_cube(pa.table({"x": [3], "p": [0]}), cube, store_url)
    assert sorted(row.x for row in query_cube_spark(cube, store_url, as_of=when, spark=spark).collect()) == [1, 2]
    counted = map_cube_groups(
        lambda key, table: table.select(["x"]), "x bigint", cube, store_url, as_of=when, spark=spark
    )
    assert sorted(row.x for row in counted.collect()) == [1, 2]
