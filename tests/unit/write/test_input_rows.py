"""The forms of rows that the writing verbs take; streams; and that no input is changed."""

from __future__ import annotations

import copy
import weakref

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from kartothek_cube import options
from kartothek_cube.core.dataset.write import (
    commit_dataset,
    create_empty_dataset_header,
    store_dataframes_as_dataset,
    store_dataframes_as_dataset__iter,
    update_dataset_from_dataframes,
    update_dataset_from_dataframes__iter,
    write_single_partition,
)
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import InvalidInput, InvalidRequest, InvalidType
from tests.support.datasets import (
    UUID,
    Stream,
    exists,
    file_of,
    folders,
    index,
    keys,
    labels,
    read,
    refused,
    rows,
    schema,
    snapshot,
)

FRAME = pd.DataFrame({"x": [1, 2], "v1": ["a", "b"]})
TABLE = pa.table({"x": [1, 2], "v1": ["a", "b"]})


@pytest.fixture
def store():
    return MemoryStore()


def put(store, data, **arguments):
    return store_dataframes_as_dataset(store, UUID, data, **arguments)


def labelled(label, **columns):
    return {"label": label, "data": {"table": pd.DataFrame(columns)}}


# --- forms ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "item",
    [
        FRAME,
        TABLE,
        TABLE.to_batches()[0],
        TABLE.to_reader(),
        Stream(TABLE),
        {"table": FRAME},
        {"table": Stream(TABLE)},
        {"data": {"table": FRAME}},
        {"data": [("table", FRAME)]},
        [("table", FRAME)],
        [FRAME],
        [[None, FRAME, []]],
        {"label": "one", "data": {"table": FRAME}, "indices": {}, "metadata": {"ignored": 1}},
        {"label": None, "data": {"table": FRAME}},
    ],
)
@pytest.mark.parametrize("verb", ["store", "store iter", "update", "update iter", "single"])
def test_every_form_of_rows_is_one_partition(store, item, verb):
    item = TABLE.to_reader() if isinstance(item, pa.RecordBatchReader) else item
    if verb == "store":
        put(store, [item])
    elif verb == "store iter":
        store_dataframes_as_dataset__iter(iter([item]), store, UUID)
    elif verb == "update":
        update_dataset_from_dataframes([item], store, UUID)
    elif verb == "update iter":
        update_dataset_from_dataframes__iter(iter([item]), store, UUID)
    else:
        create_empty_dataset_header(store, UUID, {"table": TABLE.schema})
        write_single_partition(store, UUID, item)
    assert (len(labels(store)), rows(store, "x", "v1")) == (1, [(1, "a"), (2, "b")])


@pytest.mark.parametrize(
    "data", [FRAME, TABLE, {"table": FRAME}, Stream(TABLE), TABLE.to_batches()[0], {"data": {"table": FRAME}}]
)  # C06
def test_one_block_need_not_be_in_a_list(store, data):
    put(store, data)
    update_dataset_from_dataframes(data, store, UUID)
    assert (len(labels(store)), len(rows(store))) == (2, 4)


@pytest.mark.parametrize(
    "data",
    [
        lambda: (FRAME for _ in range(3)),
        lambda: (FRAME,) * 3,
        {1: FRAME, 2: FRAME, 3: FRAME}.values,
        lambda: iter([[FRAME] * 3]),
    ],
)
def test_items_come_from_every_iterable(store, data):  # C07
    assert len(put(store, data()).partitions) == 3


@pytest.mark.parametrize(
    "data",
    [
        *(
            5,
            "rows",
            b"rows",
            object(),
            [5],
            ["rows"],
            [object()],
            [np.array([1])],
            [("table", FRAME)[0]],
            [pa.array([1])],
        ),
        *(
            [pa.chunked_array([[1]])],
            [Stream(pa.chunked_array([[1]]))],
            [(FRAME, FRAME)],
            [iter([FRAME])],
            np.zeros((2, 2)),
        ),
        *(
            [{"data": FRAME}],
            [{"data": 5}],
            [{"label": "x", "table": FRAME}],
            [{"data": {"table": FRAME}, "lable": "x"}],
            [{"table": 5}],
        ),
        *(
            [{1: FRAME}],
            [{"": FRAME}],
            [{"a/b": FRAME}],
            [{"_x": FRAME}],
            [{"..": FRAME, "x": FRAME}][:1],
            [{"ä": FRAME}],
            [{None: FRAME}],
        ),
        *(
            [{"table": None}],
            [{"data": {"table": None}}],
            [[("table", FRAME), FRAME]],
            [[("a", FRAME), ("a", FRAME)]],
            [[("a", FRAME, 1)]],
        ),
    ],
)
def test_what_is_no_form_of_rows_is_refused(store, data):
    with refused(store, ValueError, InvalidInput, UUID if isinstance(data, list) else "during parsing|valid"):
        put(store, data)


@pytest.mark.parametrize("data", [FRAME["x"], [FRAME["x"]], {"table": FRAME["x"]}])
def test_a_series_is_refused_with_advice(store, data):
    with refused(store, TypeError, InvalidType, "to_frame"):
        put(store, data)


def test_a_table_called_indices_is_refused(store):
    with refused(store, ValueError, InvalidInput, "indices"):
        put(store, [{"indices": FRAME}])


@pytest.mark.parametrize("name", ["sales", "A-b_c.9", "a b", "table=x"])
def test_tables_have_names(store, name):
    put(store, [{name: FRAME}], partition_on="v1")
    assert (schema(store, name), rows(store, "x", table=name)) == ({"v1": "string", "x": "int64"}, [(1,), (2,)])


# --- labels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "label",
    ["a", ".", "..", "a/b", "a=b/c", "_common_metadata", "a b", "x/", "~", "indices/x", "%2F", "x" * 247, "x" * 215],
)
def test_a_label_names_the_partition(store, label):
    put(store, [labelled(label, x=[1])])
    update_dataset_from_dataframes([labelled(label, x=[2]), labelled("other", x=[3])], store, UUID)
    assert (sorted(labels(store)), rows(store)) == (sorted([label, "other"]), [(2,), (3,)])
    assert len(keys(store, ".parquet")) == 3


@pytest.mark.parametrize("label", ["", 5, b"a", ["a"], "/a", "ä", "a\n", "x" * 248, "../a", "a//b", "a:b"])
def test_a_label_that_makes_no_key_is_refused(store, label):
    with refused(store, ValueError, InvalidInput, UUID):
        put(store, [labelled("fine", x=[1]), labelled(label, x=[1])])


def test_a_label_with_partition_values_is_refused_where_rows_are_partitioned(store):
    for label in ("p=1/a", "a=b", "a/b"):
        with refused(store, ValueError, InvalidInput, "Incompatible partitioning"):
            put(store, [labelled(label, p=[1], x=[1])], partition_on="p")


def test_equal_labels_are_refused(store):  # C13
    twice = [labelled("one", x=[1]), labelled("one", x=[2])]
    with refused(store, ValueError, InvalidInput, "duplicated"):
        put(store, twice)
    with pytest.raises(InvalidInput):
        put(store, iter(twice))
    assert not exists(store)


def test_equal_labels_in_one_item_are_refused(store):  # C14
    with refused(store, RuntimeError, InvalidRequest, "Duplicate labels"):
        put(store, [[labelled("one", x=[1]), labelled("one", x=[2])]])
    with refused(store, RuntimeError, InvalidRequest, "Duplicate labels"):
        put(store, iter([[labelled("one", x=[1]), labelled("one", x=[2])]]))


def test_equal_labels_of_different_partitions_are_two_labels(store):
    put(store, [labelled("one", p=[1], x=[1]), labelled("one", p=[2], x=[2])], partition_on="p")
    assert labels(store) == ["p=1/one", "p=2/one"]
    with refused(store, ValueError, InvalidInput, "p=1/new"):
        update_dataset_from_dataframes(
            [labelled("new", p=[1], x=[1]), labelled("new", p=[1, 2], x=[1, 2])], store, UUID
        )


# --- several tables -------------------------------------------------------------------------------


def two_tables(p, q):
    return {"a": pd.DataFrame({"p": p, "x": range(len(p))}), "b": pd.DataFrame({"p": q, "y": range(len(q))})}


def test_tables_of_an_item_make_one_partition(store):  # C44
    for item in (
        two_tables([1], [1]),
        list(two_tables([2], [2]).items()),
        {"data": list(two_tables([3], [3]).items())},
    ):
        update_dataset_from_dataframes([item], store, UUID, partition_on="p")
    assert folders(store) == ["p=1", "p=2", "p=3"]
    assert (rows(store, table="a"), rows(store, table="b")) == ([(1, 0), (2, 0), (3, 0)],) * 2


def test_a_value_that_one_table_lacks_has_no_rows_there(store):
    put(store, [two_tables([1, 2], [2, 3])], partition_on="p")
    assert folders(store) == ["p=1", "p=2", "p=3"]
    assert all(len(files.drop_null()) == 3 for files in snapshot(store).partitions.files.values())
    assert (rows(store, table="a"), rows(store, table="b")) == ([(1, 0), (2, 1)], [(2, 0), (3, 1)])


def test_an_index_has_the_values_of_all_tables(store):
    put(
        store,
        [{"label": "one", "data": {"a": pd.DataFrame({"i1": [1]}), "b": pd.DataFrame({"i1": [2, 1]})}}],
        secondary_indices="i1",
    )
    assert index(store, "i1") == {1: {"one"}, 2: {"one"}}


def test_tables_of_all_items_have_to_be_the_same(store):  # D08
    with refused(store, ValueError, InvalidInput, "different tables"):
        put(store, [{"a": FRAME}, {"b": FRAME}])
    put(store, [{"a": FRAME}])
    for wrong in (FRAME, {"b": FRAME}, {"a": FRAME, "b": FRAME}):
        with refused(store, ValueError, InvalidInput, "different tables"):
            update_dataset_from_dataframes([{"a": FRAME}, wrong], store, UUID)


def test_a_column_has_one_type_in_all_tables(store):
    with refused(store, ValueError, InvalidInput, "incompatible entries for column 'x'"):
        put(store, [{"a": FRAME, "b": pd.DataFrame({"x": ["text"]})}])


# --- streams and generators -----------------------------------------------------------------------


class Frame(pd.DataFrame):
    """A frame that can be watched."""

    @property
    def _constructor(self):
        return pd.DataFrame

    def __hash__(self):
        return id(self)


def watched(n, seen):
    alive = weakref.WeakSet()
    for i in range(n):
        frame = Frame({"x": np.full(10_000, i), "p": i})
        alive.add(frame)
        seen.append(len(alive))
        yield frame
        del frame


@pytest.mark.parametrize("verb", [store_dataframes_as_dataset__iter, update_dataset_from_dataframes__iter])
@pytest.mark.parametrize("threads", [1, 2])
def test_items_of_a_generator_are_not_held(store, verb, threads):
    seen = []
    verb(watched(30, seen), store, UUID, options=options(threads=threads, bytes_in_flight=1000))
    assert (len(seen), len(labels(store))) == (30, 30)
    assert max(seen) <= 4


def test_files_are_written_while_the_generator_runs(store):
    found = []

    def items():
        for i in range(20):
            found.append(len(keys(store, ".parquet")))
            yield pd.DataFrame({"x": [i] * 1000})

    put(store, items(), options=options(threads=1))
    assert found[0] == 0
    assert found[-1] >= 17


def test_a_generator_that_fails_makes_no_dataset(store):  # C08
    def items():
        yield FRAME
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        put(store, items())
    assert not exists(store)
    assert all(key.endswith(".parquet") for key in keys(store))
    put(store, [FRAME])
    assert rows(store, "x") == [(1,), (2,)]


def batches(n, size=1000):
    schema = pa.schema({"x": pa.int64(), "v1": pa.string()})
    made = (
        pa.record_batch([pa.array(range(i * size, (i + 1) * size)), pa.array(["a"] * size)], schema=schema)
        for i in range(n)
    )
    return pa.RecordBatchReader.from_batches(schema, made)


@pytest.mark.parametrize(
    "item", [batches, lambda n: Stream(batches(n)), lambda n: Stream(batches(n).read_all().combine_chunks())]
)
def test_a_stream_is_cut_into_blocks_that_fit_into_memory(store, item):
    budget = 64_000
    put(store, [item(40)], options=options(bytes_in_flight=budget, threads=1))
    sizes = [file_of(store, label).nbytes for label in labels(store)]
    assert max(sizes) < budget * 0.6
    assert len(sizes) > 10
    assert read(store).column("x").to_pylist() == list(range(40_000))


class Sized(Stream):
    """A frame of Polars, say: it exports its rows as a stream, and knows how large they are."""

    def estimated_size(self) -> int:
        return 1


def test_rows_that_know_their_size_are_one_block_as_in_cubes(store):
    put(store, [Sized(batches(40).read_all())], options=options(bytes_in_flight=64_000, threads=1))
    assert len(labels(store)) == 1


def test_rows_that_know_their_size_are_checked_before_the_first_file_is_written(store):
    with refused(store, ValueError, InvalidInput, UUID):
        put(store, [Sized(TABLE), Sized(pa.table({"other": [1]}))])


def test_small_batches_of_a_stream_are_one_block(store):
    put(store, batches(40, size=10))
    assert (len(labels(store)), len(rows(store))) == (1, 400)


@pytest.mark.parametrize(
    "empty",
    [
        batches(0),
        batches(3, size=0),
        Stream(batches(0)),
        TABLE.slice(0, 0),
        Stream(TABLE.slice(0, 0)),
        FRAME.astype({"v1": "string"}).iloc[:0],
    ],
)
@pytest.mark.parametrize("partition_on", [None, "x"])
def test_an_empty_stream_keeps_its_schema(store, empty, partition_on):
    empty = batches(0) if isinstance(empty, pa.RecordBatchReader) else empty
    made = put(store, [empty], partition_on=partition_on, secondary_indices="v1")
    assert (len(made.partitions), schema(store), read(store).num_rows) == (
        0 if partition_on else 1,
        {"v1": "string", "x": "int64"},
        0,
    )


def test_a_stream_that_fails_makes_no_dataset(store):
    def broken():
        yield from batches(1)
        raise ZeroDivisionError

    with pytest.raises(pa.ArrowException, match="ZeroDivisionError"):
        put(store, pa.RecordBatchReader.from_batches(batches(0).schema, broken()))
    assert not exists(store)


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a", None]).dictionary_encode(),
        pa.array(["a", None], pa.large_string()),
        pa.array(["a", None], pa.string_view()),
        pa.chunked_array([["a"], [], [None]]),
    ],
)
@pytest.mark.parametrize("wrap", [lambda table: table, Stream, lambda table: table.to_pandas()])
def test_all_spellings_of_text_are_text(store, column, wrap):
    table = pa.table({"x": column})
    put(store, wrap(table))
    assert (schema(store), rows(store)) == ({"x": "string"}, [("a",), (None,)])


# --- what is given is not changed -----------------------------------------------------------------


def deep(value):
    """A copy to compare with, categories and all."""
    if isinstance(value, pd.DataFrame):
        return value.copy(deep=True)
    return copy.deepcopy(value)


def same(left, right):
    if isinstance(left, pd.DataFrame):
        pd.testing.assert_frame_equal(left, right, check_freq=True)
    elif isinstance(left, dict):
        assert list(left) == list(right)
        for name in left:
            same(left[name], right[name])
    elif isinstance(left, (list, tuple)):
        assert len(left) == len(right)
        for one, other in zip(left, right, strict=True):
            same(one, other)
    else:
        assert left == right


MUTABLE = pd.DataFrame(
    {"p": ["b", "a"], 5: pd.Categorical(["z", "y"], categories=["z", "q", "y"]), "x": [2, 1], "i1": [[1], [2]]},
    index=pd.Index([7, 3], name="row"),
)


def test_no_verb_changes_what_it_is_given(store):
    data = [
        {"label": "one", "data": {"table": MUTABLE.drop(columns="i1")}, "indices": {"x": {1: ["one"]}}, "metadata": {}},
        [MUTABLE.drop(columns="i1")],
    ]
    given = {
        "data": data,
        "partition_on": ["p"],
        "secondary_indices": ["x"],
        "sort_partitions_by": ["5"],
        "metadata": {"a": {"b": [1]}},
        "delete_scope": [{"p": "a"}, {"p": "b", "x": 2}],
        "header": {"table": MUTABLE.drop(columns="i1")},
        "schema": {"table": pa.schema({"p": pa.string(), "x": pa.int8()})},
    }
    before = deep(given)
    put(
        store,
        given["data"],
        partition_on=given["partition_on"],
        secondary_indices=given["secondary_indices"],
        metadata=given["metadata"],
    )
    arguments = {
        name: given[name]
        for name in ("partition_on", "secondary_indices", "sort_partitions_by", "metadata", "delete_scope")
    }
    update_dataset_from_dataframes(given["data"], store, UUID, **arguments)
    staged = [write_single_partition(store, UUID, given["data"][1])]
    commit_dataset(store, UUID, staged, delete_scope=given["delete_scope"], metadata=given["metadata"])
    create_empty_dataset_header(
        store,
        "header",
        given["header"],
        given["partition_on"],
        given["metadata"],
        secondary_indices=given["secondary_indices"],
    )
    create_empty_dataset_header(store, "schema", given["schema"], given["partition_on"])
    same(given, before)
    assert len(staged) == 1


def test_a_merger_cannot_change_the_dataset_by_changing_its_argument(store):
    put(store, [FRAME], metadata={"list": [1]})

    def merger(found):
        found[0]["list"].append(2)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        update_dataset_from_dataframes([], store, UUID, metadata_merger=merger)
    update_dataset_from_dataframes([FRAME], store, UUID)
    assert snapshot(store).document.user_metadata["list"] == [1]
