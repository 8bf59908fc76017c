"""Writing through Spark's own ``df.write.format("kartothek_cube")``: what lands, what is refused,
what a failed task leaves.
"""

from __future__ import annotations

import datetime
import json
import pickle
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import types as st

from kartothek_cube.api.cube import query_cube_arrow
from kartothek_cube.api.dataset import read_table_arrow, set_layout, store_dataframes_as_dataset
from kartothek_cube.core.runtime.options import options as use
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.stores.open import open_store
from kartothek_cube.core.write.layout import layout_of
from kartothek_cube.cube.members import cube_of, load_members
from kartothek_cube.errors import AlreadyExists, CommitConflict, CorruptData, InvalidInput, InvalidType, Unsupported
from kartothek_cube.spark import driver_errors, register
from kartothek_cube.spark.datasource.options import parse_options
from kartothek_cube.spark.datasource.write import make_stream_writer, make_writer, plan_write
from kartothek_cube.spark.types import arrow_schema

ROWS = st.StructType([st.StructField(n, st.LongType()) for n in ("x", "y", "p", "i1", "v1")])
NEW_CUBE = {"cube": "cube", "dimension_columns": "x,y", "partition_columns": "p", "index_columns": "i1"}


def batch(*rows, names=("x", "y", "p", "i1", "v1")):
    return pa.record_batch([pa.array(c, type=pa.int64()) for c in zip(*rows, strict=True)], names=list(names))


def seed_rows(p, n=3):
    return batch(*[(x, 0, p, x % 2, 10 * x) for x in range(n)])


def options(url, **more):
    return parse_options({"store": url, **more}, "write")


def written(writer, *tasks):
    """What Spark does with a writer, whose copies live in other processes."""
    copies = [pickle.loads(pickle.dumps(writer)) for _ in tasks]
    messages = [
        pickle.loads(pickle.dumps(copy.write(iter(batches)))) for copy, batches in zip(copies, tasks, strict=True)
    ]
    pickle.loads(pickle.dumps(writer)).commit(messages)
    return messages


def write(url, *tasks, overwrite=False, schema=ROWS, **more):
    return written(make_writer(options(url, **more), schema, overwrite), *tasks)


def cube(url, prefix="cube"):
    store = open_store(url)
    return cube_of(prefix, load_members(prefix, store))


def cells(url):
    return sorted(query_cube_arrow(cube(url), url).select(["p", "x"]).to_pylist(), key=str)


# --- without a session ----------------------------------------------------------------------------


def test_the_first_write_makes_a_cube_and_the_next_ones_add_to_it(store_url):
    write(store_url, [seed_rows(0)], [seed_rows(1)], [], **NEW_CUBE)
    found = cube(store_url)
    assert (found.dimension_columns, found.partition_columns, found.index_columns) == (("x", "y"), ("p",), {"i1"})
    write(store_url, [seed_rows(2)], cube="cube")
    write(store_url, [seed_rows(3)], **NEW_CUBE)
    assert len(query_cube_arrow(found, store_url)) == 12
    assert len(load_snapshot(open_store(store_url), "cube++seed").chain) == 3


def test_a_dataset_is_added_to_a_cube_and_replaced(store_url):
    write(store_url, [seed_rows(0)], **NEW_CUBE)
    schema = st.StructType([st.StructField("x", st.LongType()), st.StructField("v2", st.LongType())])
    for overwrite, v2 in [(False, 5), (True, 6)]:
        write(
            store_url,
            [batch((0, v2), names=("x", "v2"))],
            overwrite=overwrite,
            schema=schema,
            cube="cube",
            dataset="e",
            partition_on="",
        )
        found = query_cube_arrow(cube(store_url), store_url, payload_columns=["v2"])
        assert found.column("v2").to_pylist() == [v2, None, None]
    assert load_snapshot(open_store(store_url), "cube++e").partition_keys == ()


def test_the_only_dataset_of_a_cube_is_replaced_with_its_keys_and_indices(store_url):
    write(store_url, [seed_rows(0)], **NEW_CUBE)
    write(store_url, [seed_rows(1, 2)], overwrite=True, cube="cube")
    assert cells(store_url) == [{"p": 1, "x": 0}, {"p": 1, "x": 1}]
    state = load_snapshot(open_store(store_url), "cube++seed")
    assert (state.partition_keys, state.secondary_columns) == (("p",), {"x", "y", "i1"})


def test_a_dataset_without_a_cube(store_url):
    write(store_url, [seed_rows(0)], [seed_rows(1)], dataset="sales", partition_on="p", secondary_indices="i1")
    write(store_url, [seed_rows(2)], dataset="sales")
    state = load_snapshot(open_store(store_url), "sales")
    assert (state.partition_keys, state.secondary_columns, len(state.partitions)) == (("p",), {"i1"}, 3)
    write(store_url, [seed_rows(4, 1)], overwrite=True, dataset="sales")
    state = load_snapshot(open_store(store_url), "sales")
    assert (state.partition_keys, state.secondary_columns) == (("p",), {"i1"})
    assert read_table_arrow("sales", store_url).to_pylist() == [{"p": 4, "i1": 0, "v1": 0, "x": 0, "y": 0}]


def test_an_overwrite_without_the_column_of_the_order_on_record(store_url):
    store_dataframes_as_dataset(store_url, "sales", [pa.table(seed_rows(0).to_pydict())])
    set_layout("sales", store_url, sort_by="v1")
    write(store_url, [seed_rows(1)], overwrite=True, dataset="sales")
    assert layout_of(load_snapshot(open_store(store_url), "sales").document.metadata, "sales").sort_by == ("v1",)
    fewer = st.StructType(ROWS.fields[:4])
    write(store_url, [seed_rows(2).select(fewer.names)], overwrite=True, dataset="sales", schema=fewer)
    state = load_snapshot(open_store(store_url), "sales")
    assert sorted(state.schema.names) == sorted(fewer.names)
    assert layout_of(state.document.metadata, "sales").sort_by == ()


def test_no_rows_make_an_empty_dataset(store_url):
    write(store_url, [], dataset="sales", partition_on="p")
    assert read_table_arrow("sales", store_url).num_rows == 0
    assert load_snapshot(open_store(store_url), "sales").schema.names == ["p", "i1", "v1", "x", "y"]


def test_a_numbered_write_is_done_once_and_stages_nothing_when_it_is_repeated(store_url):
    store = open_store(store_url)
    for _ in range(2):
        messages = write(store_url, [seed_rows(0)], **NEW_CUBE, txn="weekly,3")
    assert pickle.loads(messages[0].receipts) == []
    # Two that were planned side by side: the second one finds out when it commits.
    writers = [make_writer(options(store_url, cube="cube", txn="weekly,4"), ROWS, False) for _ in range(2)]
    for writer in writers:
        written(writer, [seed_rows(1)])
    assert len(load_snapshot(store, "cube++seed").chain) == 2
    assert len(query_cube_arrow(cube(store_url), store_url)) == 6


def write_dataset(url, *tasks, overwrite=False, **more):
    return write(url, *tasks, overwrite=overwrite, dataset="sales", **more)


def stored(url, uuid="sales"):
    """The pairs (p, x) of a dataset, in order, and its number of commits."""
    state = load_snapshot(open_store(url), uuid)
    table = read_table_arrow(uuid, url)
    return sorted(zip(table["p"].to_pylist(), table["x"].to_pylist(), strict=True)), len(state.chain)


PARTITIONED = {"partition_on": "p", "secondary_indices": "i1"}


def test_an_overwrite_of_partitions_replaces_those_that_get_rows(store_url):
    """In one commit, and with the first write, which makes the dataset."""
    for overwrite, tasks in [(True, [[seed_rows(0), seed_rows(1)], [seed_rows(2)]]), (True, [[seed_rows(1, 1)], []])]:
        write_dataset(store_url, *tasks, overwrite=overwrite, overwrite_partitions="true", **PARTITIONED)
    assert stored(store_url) == ([(0, 0), (0, 1), (0, 2), (1, 0), (2, 0), (2, 1), (2, 2)], 2)
    write_dataset(store_url, [], overwrite=True, overwrite_partitions="true")
    assert len(stored(store_url)[0]) == 7


def test_an_overwrite_of_partitions_compares_all_of_their_columns(store_url):
    rows = batch((1, 1, 0, 0, 0), (2, 2, 0, 0, 0), (3, 1, 1, 0, 0), (4, 2, 1, 0, 0))
    write_dataset(store_url, [rows], partition_on="p,y")
    rows = batch((5, 1, 0, 0, 0), (6, 2, 1, 0, 0))
    write_dataset(store_url, [rows], overwrite=True, overwrite_partitions="true")
    assert stored(store_url)[0] == [(0, 2), (0, 5), (1, 3), (1, 6)]


def test_an_overwrite_of_partitions_of_a_cube(store_url):
    write(store_url, [seed_rows(0)], [seed_rows(1)], overwrite=True, overwrite_partitions="true", **NEW_CUBE)
    schema = st.StructType([st.StructField(n, st.LongType()) for n in ("x", "p", "v2")])
    for v2, p in [(5, 0), (5, 1), (6, 1)]:
        write(
            store_url,
            [batch((0, p, v2), names=("x", "p", "v2"))],
            overwrite=v2 == 6,
            schema=schema,
            cube="cube",
            dataset="e",
            **({"overwrite_partitions": "true"} if v2 == 6 else {}),
        )
    write(store_url, [seed_rows(1, 1)], overwrite=True, cube="cube", overwrite_partitions="true")
    found = query_cube_arrow(cube(store_url), store_url).select(["p", "x", "v2"]).to_pylist()
    assert sorted((row["p"], row["x"], row["v2"] or 0) for row in found) == [(0, 0, 5), (0, 1, 0), (0, 2, 0), (1, 0, 6)]
    assert stored(store_url, "cube++e") == ([(0, 0), (1, 0)], 3)


@pytest.mark.parametrize(
    ("scope", "left"),
    [
        ('[{"p": 0}]', [(1, 0), (1, 1), (2, 0), (2, 1)]),
        ('[{"p": "0"}, {"p": 2.0}]', [(1, 0), (1, 1)]),
        ('[{"p": 1, "i1": 0}]', [(0, 0), (0, 1), (2, 0), (2, 1)]),
        ('[{"i1": 1}]', []),
        ('[{"p": 7}]', [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]),
        ("[]", [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]),
    ],
)
def test_an_append_removes_its_delete_scope_in_the_same_commit(store_url, scope, left):
    write_dataset(store_url, [seed_rows(0, 2)], [seed_rows(1, 2)], [seed_rows(2, 2)], **PARTITIONED)
    write_dataset(store_url, [batch((9, 0, 5, 0, 0))], delete_scope=scope)
    assert stored(store_url) == ([*left, (5, 9)], 2)


def test_a_delete_scope_without_rows_and_one_of_a_new_dataset(store_url):
    write_dataset(store_url, [seed_rows(0, 1)], [seed_rows(1, 1)], delete_scope='[{"p": 0}]', **PARTITIONED)
    write_dataset(store_url, [], delete_scope='[{"p": 0}]')
    assert stored(store_url) == ([(1, 0)], 2)


def test_a_delete_scope_of_a_cube(store_url):
    write(store_url, [seed_rows(0)], [seed_rows(1, 2)], **NEW_CUBE)
    write(store_url, [seed_rows(2, 1)], cube="cube", delete_scope='[{"p": 0}]')
    assert stored(store_url, "cube++seed") == ([(1, 0), (1, 1), (2, 0)], 2)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (st.DateType(), "2024-01-31", datetime.date(2024, 1, 31)),
        (st.TimestampNTZType(), "2024-01-31T12:30:00", datetime.datetime(2024, 1, 31, 12, 30)),
        (st.StringType(), "ü/ =", "ü/ ="),
        (st.BooleanType(), True, True),
        (st.DoubleType(), 0.1, 0.1),
        (st.LongType(), 2**62, 2**62),
    ],
)
def test_values_of_a_delete_scope_have_the_type_of_their_column(store_url, kind, text, value):
    schema = st.StructType([st.StructField("p", kind), st.StructField("x", st.LongType())])
    arrow = arrow_schema(schema, "the rows")
    rows = pa.record_batch([pa.array([value], arrow.field("p").type), pa.array([1])], schema=arrow)
    for x, more in [(1, {}), (2, {"delete_scope": json.dumps([{"p": text}])})]:
        rows = rows.set_column(1, "x", pa.array([x]))
        write_dataset(store_url, [rows], schema=schema, partition_on="p", **more)
    assert stored(store_url) == ([(value, 2)], 2)


@pytest.mark.parametrize(
    ("overwrite", "more", "words"),
    [
        (False, {"delete_scope": "p=0"}, "no JSON"),
        (False, {"delete_scope": '{"p": 0}'}, r'e\.g\. \[\{"COUNTRY_CODE"'),
        (False, {"delete_scope": "[{}]"}, "not a JSON list"),
        (False, {"delete_scope": "[[]]"}, "not a JSON list"),
        (False, {"delete_scope": '[{"p": 0, "p": 1}]'}, "twice"),
        (False, {"delete_scope": '[{"p": null}]'}, "one value of column 'p'"),
        (False, {"delete_scope": '[{"p": [0, 1]}]'}, "one value of column 'p'"),
        (False, {"delete_scope": '[{"p": NaN}]'}, "'p'"),
        (False, {"delete_scope": '[{"p": "zero"}]'}, "no value of column 'p'"),
        (False, {"delete_scope": '[{"p": 0.5}]'}, "no value of column 'p'"),
        (False, {"delete_scope": '[{"v1": 0}]'}, "'v1' is neither a partition key"),
        (False, {"delete_scope": '[{"q": 0}]'}, "'q'"),
        (True, {"delete_scope": '[{"p": 0}]'}, r'delete_scope is for mode\("append"\)'),
        (False, {"overwrite_partitions": "true"}, r'overwrite_partitions is for mode\("overwrite"\)'),
        (True, {"overwrite_partitions": "yes"}, "neither"),
        (True, {"overwrite_partitions": "true", "dataset": "plain"}, "'plain' has no partition columns"),
        (True, {"if_exists": "ignore"}, r'if_exists is for mode\("append"\)'),
        (False, {"if_exists": "fail"}, "append, error, ignore"),
    ],
)
def test_a_bad_replacement_of_parts_is_refused_when_the_writer_is_made(store_url, overwrite, more, words):
    write_dataset(store_url, [seed_rows(0)], **PARTITIONED)
    write(store_url, [seed_rows(0)], dataset="plain")
    before = sorted(open_store(store_url).list(recursive=True).keys)
    with pytest.raises((InvalidInput, InvalidType), match=words):
        make_writer(options(store_url, **{"dataset": "sales", **more}), ROWS, overwrite)
    assert sorted(open_store(store_url).list(recursive=True).keys) == before


REPLACEMENTS = [(True, {"overwrite_partitions": "true"}), (False, {"delete_scope": '[{"p": 0}]'})]


@pytest.mark.parametrize(("overwrite", "more"), REPLACEMENTS)
@pytest.mark.parametrize("target", ["dataset", "cube"])
def test_a_replaced_part_that_changed_meanwhile_is_a_conflict(store_url, overwrite, more, target):
    name = {"dataset": "sales"} if target == "dataset" else {"cube": "cube"}
    uuid = "sales" if target == "dataset" else "cube++seed"
    write(store_url, [seed_rows(0), seed_rows(1)], **(PARTITIONED | name if target == "dataset" else NEW_CUBE))
    for p, is_conflict in [(1, False), (0, True)]:
        writer = make_writer(options(store_url, **name, **more), ROWS, overwrite)
        write(store_url, [batch((7 + p, 0, p, 0, 0))], **name)
        before = stored(store_url, uuid)
        rows = [batch((9, 0, 0, 0, 0))]
        if is_conflict:
            with driver_errors_of(CommitConflict, "a part of it"):
                written(writer, rows)
            assert stored(store_url, uuid) == before
        else:
            written(writer, rows)
            assert stored(store_url, uuid)[0] == [(0, 9), (1, 0), (1, 1), (1, 2), (1, 8)]


@pytest.mark.parametrize(("overwrite", "more"), REPLACEMENTS)
def test_a_dataset_that_somebody_else_made_meanwhile_is_a_conflict(store_url, overwrite, more):
    writer = make_writer(options(store_url, dataset="sales", **PARTITIONED, **more), ROWS, overwrite)
    write_dataset(store_url, [seed_rows(0)], **PARTITIONED)
    with driver_errors_of(CommitConflict, "'sales'"):
        written(writer, [seed_rows(0)])
    assert len(stored(store_url)[0]) == 3


@pytest.mark.parametrize(
    ("make", "add"), [({"dataset": "sales", **PARTITIONED}, {"dataset": "sales"}), (NEW_CUBE, {"cube": "cube"})]
)
def test_what_exists_is_an_error_or_ignored_by_choice(store_url, make, add):
    uuid = "sales" if "dataset" in make else "cube++seed"
    for _ in range(2):  # a numbered write may be repeated
        write(store_url, [seed_rows(0)], if_exists="error", txn="job,1", **make)
    before = stored(store_url, uuid)
    with pytest.raises(AlreadyExists, match="if_exists"):
        make_writer(options(store_url, if_exists="error", **add), ROWS, False)
    # Its columns need not fit.
    write(store_url, [[]], schema=st.StructType([ROWS["x"]]), if_exists="ignore", **make)
    assert stored(store_url, uuid) == before
    write(store_url, [seed_rows(1)], if_exists="append", **add)
    assert len(stored(store_url, uuid)[0]) == 6


@pytest.mark.parametrize("choice", ["error", "ignore"])
def test_what_somebody_else_made_meanwhile_exists(store_url, choice):
    writer = make_writer(options(store_url, dataset="sales", if_exists=choice, **PARTITIONED), ROWS, False)
    write_dataset(store_url, [seed_rows(0, 1)], **PARTITIONED)
    with driver_errors_of(AlreadyExists, "'sales' exists") if choice == "error" else nullcontext():
        written(writer, [seed_rows(1)])
    assert stored(store_url) == ([(0, 0)], 1)


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("choice", ["error", "ignore"])
@pytest.mark.parametrize("make", [{"dataset": "sales", **PARTITIONED}, NEW_CUBE, NEW_CUBE | {"dataset": "s"}])
def test_what_somebody_else_makes_while_the_commit_is_planned_exists(store_url, monkeypatch, make, choice, moment):
    def planned(given):
        monkeypatch.setattr("kartothek_cube.spark.datasource.write.plan_write", plan_write)
        early = plan_write(given)
        write(store_url, [seed_rows(0, 1)], **make)
        return early if moment == "after" else plan_write(given)

    writer = make_writer(options(store_url, if_exists=choice, **make), ROWS, False)
    monkeypatch.setattr("kartothek_cube.spark.datasource.write.plan_write", planned)
    with driver_errors_of(AlreadyExists, "exists") if choice == "error" else nullcontext():
        written(writer, [seed_rows(1)])
    uuid = "++".join(filter(None, [make.get("cube"), make.get("dataset", "seed")]))
    assert stored(store_url, uuid) == ([(0, 0)], 1)


def test_sail_does_not_say_what_to_do_where_a_target_exists(store_url):
    schema = pa.schema([(n, pa.int64()) for n in ROWS.names])
    for _ in range(2):  # a numbered write may be repeated
        write(store_url, [seed_rows(0)], schema=schema, txn="job,1", **NEW_CUBE)
    with pytest.raises(InvalidInput, match=r"^Cube 'cube' exists, and Sail .*if_exists"):
        make_writer(options(store_url, cube="cube"), schema, False)
    write(store_url, [seed_rows(1)], schema=schema, cube="cube", if_exists="append")
    assert len(stored(store_url, "cube++seed")[0]) == 6
    write(store_url, [seed_rows(2)], schema=schema, cube="cube", overwrite=True)
    assert len(stored(store_url, "cube++seed")[0]) == 3


@pytest.mark.parametrize("option", [{"overwrite_partitions": "true"}, {"delete_scope": "[]"}, {"if_exists": "error"}])
def test_a_stream_takes_no_option_for_a_single_write(store_url, option):
    with pytest.raises(InvalidInput, match="means nothing to stream"):
        parse_options({"store": store_url, "dataset": "sales", **option}, "stream")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"cube": "other"}, "dimension_columns"),
        ({"cube": "cub"}, "To make it, .*Cubes of this store: cube[.] Did you mean 'cube'"),
        ({"cube": "cube", "dimension_columns": "x"}, "dimension_columns"),
        ({"cube": "cube", "partition_columns": "i1"}, "partition_columns"),
        ({"cube": "cube", "index_columns": "v1"}, "build_cube_index"),
        ({"cube": "cube", "partition_on": "i1"}, "partitioned on"),
        ({"cube": "cube", "dataset": "e"}, "v1"),
        ({"dataset": "sales", "partition_on": "q"}, "q"),
        ({"dataset": "sales", "secondary_indices": "q"}, "q"),
    ],
)
def test_what_does_not_fit_is_refused_when_the_writer_is_made(store_url, more, words):
    write(store_url, [seed_rows(0)], **NEW_CUBE)
    before = sorted(open_store(store_url).list(recursive=True).keys)
    with pytest.raises((InvalidInput, RuntimeError), match=words):
        make_writer(options(store_url, **more), ROWS, False)
    assert sorted(open_store(store_url).list(recursive=True).keys) == before


def test_a_store_in_memory_is_refused():
    with pytest.raises(InvalidType, match="memory"):
        make_writer(options("hmemory://", **NEW_CUBE), ROWS, False)


def test_zoned_times_are_refused_by_name(store_url):
    schema = st.StructType([*ROWS.fields, st.StructField("t", st.TimestampType())])
    with pytest.raises(InvalidInput, match="timestamp_ntz"):
        make_writer(options(store_url, **NEW_CUBE), schema, False)


def test_an_error_of_the_rows_is_reported_and_nothing_is_visible(store_url):
    writer = make_writer(options(store_url, **NEW_CUBE), ROWS, False)
    bad = writer.write(iter([batch((None, 0, 0, 0, 0))]))
    good = writer.write(iter([seed_rows(0)]))
    with driver_errors_of(InvalidInput, "x"):
        writer.commit([good, bad])
    assert load_members("cube", open_store(store_url)) == {}


@contextmanager
def driver_errors_of(kind, words):
    """The error as `driver_errors` shows it on the driver."""
    with pytest.raises(kind, match=words), driver_errors():
        yield


def test_cells_that_two_tasks_have_are_found(store_url):
    with driver_errors_of(InvalidInput, "two tasks"):
        write(store_url, [seed_rows(0)], [seed_rows(0)], **NEW_CUBE)


def test_files_of_another_write_are_not_published(store_url):
    writers = [make_writer(options(store_url, dataset="sales"), ROWS, False) for _ in range(2)]
    message = writers[0].write(iter([seed_rows(0)]))
    with driver_errors_of(CorruptData, "other writes"):
        writers[1].commit([message])
    with driver_errors_of(CorruptData, "twice"):
        writers[0].commit([message, message])
    with driver_errors_of(CorruptData, "Of 2 tasks"):
        writers[0].commit([message, None])


def test_abort_deletes_nothing_and_loses_nothing_that_has_landed(store_url):
    writer = make_writer(options(store_url, dataset="sales"), ROWS, False)
    message = writer.write(iter([seed_rows(0)]))
    writer.commit([message])
    writer.abort([message, None])
    assert read_table_arrow("sales", store_url).num_rows == 3


@pytest.mark.parametrize(
    ("overwrite", "meanwhile"),
    [
        (True, lambda url: write(url, [seed_rows(7)], dataset="sales")),
        (
            False,
            lambda url: store_dataframes_as_dataset(
                url, "sales", [pa.table({n: [0] for n in ROWS.names})], partition_on=["i1"], overwrite=True
            ),
        ),
    ],
)
def test_a_change_in_between_that_contradicts_is_a_conflict(store_url, overwrite, meanwhile):
    write(store_url, [seed_rows(0)], dataset="sales", partition_on="p")
    writer = make_writer(options(store_url, dataset="sales"), ROWS, overwrite)
    meanwhile(store_url)
    rows = read_table_arrow("sales", store_url).num_rows
    with driver_errors_of(CommitConflict, "sales"):
        written(writer, [seed_rows(1)])
    assert read_table_arrow("sales", store_url).num_rows == rows


def test_a_large_task_becomes_several_files_one_after_the_other(store_url):
    with use(bytes_in_flight=400):
        write(
            store_url, [seed_rows(0), batch((8, 0, 0, 0, 0)), batch((9, 0, 0, 0, 0))], dataset="sales", partition_on="p"
        )
    assert len(load_snapshot(open_store(store_url), "sales").partitions) > 1
    assert sorted(read_table_arrow("sales", store_url).column("x").to_pylist()) == [0, 1, 2, 8, 9]


# --- a stream without a session -------------------------------------------------------------------


def stream(url, batch_id, *tasks, overwrite=False, query="q1", **more):
    """A micro-batch as Spark does it: with a writer for the tasks and one that commits."""
    writer, committer = (
        make_stream_writer(parse_options({"store": url, **more}, "stream"), ROWS, overwrite) for _ in range(2)
    )
    messages = [replace(m, query=query) for m in (writer.write(iter(batches)) for batches in tasks)]
    committer.commit(messages, batch_id)
    committer.abort(messages, batch_id)


def test_a_batch_that_is_repeated_is_skipped(store_url):
    for batch_id in (0, 1, 1, 0, 2):
        stream(store_url, batch_id, [seed_rows(batch_id)], [], **NEW_CUBE)
    assert len(query_cube_arrow(cube(store_url), store_url)) == 9
    stream(store_url, 0, [seed_rows(5)], query="q2", cube="cube")
    assert len(query_cube_arrow(cube(store_url), store_url)) == 12


def test_batches_without_rows_commit_nothing(store_url):
    stream(store_url, 0, [], [], **NEW_CUBE)
    stream(store_url, 1, **NEW_CUBE)
    assert load_members("cube", open_store(store_url)) == {}
    stream(store_url, 2, [seed_rows(0)], **NEW_CUBE)
    stream(store_url, 3, [], cube="cube")
    assert len(load_snapshot(open_store(store_url), "cube++seed").chain) == 1


def test_one_writer_may_serve_many_batches(store_url):
    writer = make_stream_writer(
        parse_options({"store": store_url, "dataset": "sales", "partition_on": "p"}, "stream"), ROWS, False
    )
    for batch_id in range(3):
        message = writer.write(iter([seed_rows(batch_id)]))
        writer.commit([replace(message, query="q1")], batch_id)
    assert read_table_arrow("sales", store_url).num_rows == 9


def test_complete_mode_replaces_what_was_there(store_url):
    for batch_id in range(2):
        stream(store_url, batch_id, [seed_rows(batch_id)], overwrite=True, dataset="sales", partition_on="p")
    assert set(read_table_arrow("sales", store_url).column("p").to_pylist()) == {1}
    stream(store_url, 2, [], overwrite=True, dataset="sales")
    assert read_table_arrow("sales", store_url).num_rows == 0


def test_a_batch_of_no_known_query_is_refused(store_url):
    with driver_errors_of(NotImplementedError, "foreachBatch"):
        stream(store_url, 0, [seed_rows(0)], query=None, dataset="sales")


# --- with a session -------------------------------------------------------------------------------


def test_data_frames_write_through_the_format(spark, store_url, tmp_path):
    """A task that fails once, what cannot be planned, rows that are wrong, and replacement."""
    register(spark)
    frame = spark.range(0, 40, 1, 4).selectExpr("id AS x", "0L AS y", "id DIV 20 AS p", "id % 3 AS i1", "id * 10 AS v1")
    flag = str(tmp_path / "failed")

    def fail_once(batches):
        yield from batches
        import pyspark

        if pyspark.TaskContext.get().partitionId() == 1 and not Path(flag).exists():
            Path(flag).touch()
            raise RuntimeError("the first attempt of a task")

    failing = frame.mapInArrow(fail_once, frame.schema)
    failing.write.format("kartothek_cube").options(store=store_url, **NEW_CUBE, txn="job,1").mode("append").save()
    assert Path(flag).exists()
    with pytest.raises(InvalidInput, match="dimension_columns"), driver_errors():
        frame.write.format("kartothek_cube").options(store=store_url, cube="other").mode("append").save()
    nulls = frame.selectExpr("IF(x = 7, NULL, x) AS x", "y", "p", "i1", "v1")
    with pytest.raises(InvalidInput, match="x"), driver_errors():
        nulls.write.format("kartothek_cube").options(store=store_url, cube="cube").mode("append").save()
    nulls.where("x < 3").write.format("kartothek_cube").options(
        store=store_url, dataset="sales", partition_on="p"
    ).mode("overwrite").save()
    assert read_table_arrow("sales", store_url).num_rows == 3
    assert load_snapshot(open_store(store_url), "cube++seed").document.metadata["kartothek_cube.txn"] == '{"job": 1}'
    assert len(query_cube_arrow(cube(store_url), store_url)) == 40


def test_data_frames_replace_parts_and_mind_what_exists(spark, store_url):
    """With the source that Spark finds itself as with the registered one."""

    def saved(rows, mode, **more):
        made = spark.createDataFrame(rows, "x bigint, p bigint").coalesce(1)
        writer = made.write.format("kartothek_cube").options(store=store_url, dataset="sales", **more)
        with driver_errors():
            (writer if mode is None else writer.mode(mode)).save()

    for mode, choice in [(None, "error"), ("ignore", "ignore")]:
        with pytest.raises(Unsupported, match=rf'mode\("append"\)\.option\("if_exists", "{choice}"\)'):
            saved([(1, 0)], mode)
    saved([(1, 0), (1, 1), (1, 2)], "append", if_exists="error", partition_on="p")
    with pytest.raises(AlreadyExists, match="'sales' exists"):
        saved([(5, 0)], "append", if_exists="error")
    saved([(5, 0)], "append", if_exists="ignore")
    saved([(2, 0)], "overwrite", overwrite_partitions=True)
    saved([(3, 3)], "append", delete_scope='[{"p": 1}]')
    assert stored(store_url) == ([(0, 2), (2, 1), (3, 3)], 3)
