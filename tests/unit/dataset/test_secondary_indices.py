"""Secondary indices as writes make and maintain them: exactly what the rows say."""

from __future__ import annotations

import datetime as dt
import decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from kartothek_cube.core.dataset.write import store_dataframes_as_dataset, update_dataset_from_dataframes
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import InvalidInput, InvalidRequest, UnknownColumn, Unsupported
from kartothek_cube.testing.stores import CountingStore
from tests.support.datasets import UUID, document, index, index_of_files, keys, labels, refused, rows, snapshot


@pytest.fixture
def store():
    return MemoryStore()


def element(label, **columns):
    return {"label": label, "data": {"table": pd.DataFrame(columns)}}


ONE, TWO = element("one", i1=[1, 2, 2], x=[1, 2, 3]), element("two", i1=[2, 3], x=[4, 5])


def put(store, *elements, **arguments):
    return store_dataframes_as_dataset(store, UUID, list(elements), **{"secondary_indices": ["i1"], **arguments})


def put_items(store, items):
    return store_dataframes_as_dataset(store, UUID, items)


def update(store, *elements, **arguments):
    return update_dataset_from_dataframes(list(elements), store, UUID, **arguments)


def test_an_index_has_every_value_of_every_partition(store):
    put(store, ONE, TWO)
    assert index(store, "i1") == index_of_files(store, "i1") == {1: {"one"}, 2: {"one", "two"}, 3: {"two"}}
    assert rows(store, "x", predicates=[[("i1", "==", 3)]]) == [(5,)]


def test_the_returned_dataset_has_its_indices_unloaded(store):  # C42
    made = put(store, ONE, partition_on="x")
    assert list(made.indices) == ["i1"]
    assert not made.indices["i1"].loaded
    assert made.indices["i1"].load(store).index_dct[1] == ["x=1/one"]


def test_indices_of_a_dataset_without_partitions_are_remembered(store):  # C05
    put(store, pd.DataFrame({"p": ["a"], "i1": [1]}).iloc[:0], partition_on="p")
    assert (index(store, "i1"), labels(store)) == ({}, [])
    update(store, {"label": "new", "data": {"table": pd.DataFrame({"p": ["a"], "i1": [7]})}}, secondary_indices=["i1"])
    assert index(store, "i1") == {7: {"p=a/new"}}


def test_an_index_on_a_partition_column_is_refused(store):  # C27
    with refused(store, RuntimeError, InvalidRequest, "Cannot create secondary index on partition columns"):
        put(store, ONE, partition_on=["x"], secondary_indices=["x"])
    with refused(store, RuntimeError, InvalidRequest, "Cannot create secondary index on partition columns"):
        update(store, ONE, partition_on=["x"], secondary_indices=["x"])


def test_rows_without_an_index_column_are_refused(store):  # C28
    with refused(store, RuntimeError, InvalidRequest, "could not be found in the partition"):
        put(store, ONE, element("two", x=[1]))
    with refused(store, RuntimeError, InvalidRequest, "could not be found in the partition"):
        put(store, element("one", x=[1]))


def test_a_generator_that_brings_rows_without_an_index_column_makes_no_dataset(store):
    with pytest.raises(InvalidRequest):
        store_dataframes_as_dataset(store, UUID, iter([ONE, element("two", x=[1])]), secondary_indices=["i1"])
    assert keys(store, "metadata") == []


def test_an_index_on_a_column_that_is_null_throughout_is_refused(store):  # C29
    with refused(store, NotImplementedError, Unsupported, "i1"):
        put(store, element("one", i1=pd.Series([None, None], dtype=object), x=[1, 2]))


@pytest.mark.parametrize("first", [0, 1])
def test_a_partition_whose_index_column_is_all_null_can_be_written(store, first):
    elements = [element("full", i1=["a"], x=[1]), element("null", i1=pd.Series([None], dtype=object), x=[2])]
    put(store, *(elements if first else reversed(elements)))
    update(store, element("more", i1=pd.Series([None], dtype=object), x=[3]))
    assert index(store, "i1") == {"a": {"full"}}
    assert rows(store, "x", predicates=[[("i1", "==", None)]]) == [(2,), (3,)]


@pytest.mark.parametrize(
    "values",
    [[[1]], [{"a": 1}], [decimal.Decimal(1)], [dt.time(1)], [pd.Timedelta(1, "s")]],
)  # C30
@pytest.mark.parametrize("form", [list, iter, lambda elements: elements[0]])
def test_types_that_cannot_be_indexed_are_refused(store, values, form):
    with refused(store, NotImplementedError, Unsupported, "i1"):
        store_dataframes_as_dataset(store, UUID, form([element("one", i1=values)]), secondary_indices=["i1"])


def test_a_column_called_partition_is_not_indexed(store):  # C22
    with refused(store, ValueError, InvalidInput, "partition"):
        put(store, element("one", partition=[1]), secondary_indices=["partition"])


def test_nulls_and_nan_are_not_in_an_index(store):  # C31
    put(store, element("one", i1=[1.5, np.nan, None]), element("two", i1=[np.nan]))
    assert index(store, "i1") == {1.5: {"one"}}
    assert len(rows(store, predicates=[[("i1", "==", None)]])) == 3


@pytest.mark.parametrize(
    "values",
    [
        [True, False],
        ["", "ä/👍"],
        [b"\xff"],
        [dt.date(2020, 1, 1)],
        [dt.datetime(2020, 1, 1, 1)],
        [2**63],
        [-(2**63)],
        [0.1, -0.0],
    ],
)
def test_every_plain_type_is_indexed(store, values):
    put(store, element("one", i1=values))
    assert index(store, "i1") == {value: {"one"} for value in values}
    assert len(rows(store, predicates=[[("i1", "==", values[0])]])) == 1


@pytest.mark.parametrize("name", ["a/b", "ä", " ", "=", "x\n", "kartothek"])
def test_indices_have_odd_names(store, name):
    put(store, element("one", **{name: [1]}), secondary_indices=name)
    assert index(store, name) == {1: {"one"}}


@pytest.mark.parametrize("name", ["", ".", "..", "a//b", "x" * 300])
def test_a_name_that_makes_no_key_is_not_indexed(store, name):
    with refused(store, ValueError, InvalidInput):
        put(store, element("one", **{name: [1]}), secondary_indices=name)


# --- updates --------------------------------------------------------------------------------------


@pytest.mark.parametrize("named", [None, [], ["i1"], ["i2"], ["i2", "i1"]])
def test_updates_maintain_all_indices(store, named):  # D06
    put(store, element("one", i1=[1], i2=["a"]), secondary_indices=["i1", "i2"])
    update(store, element("two", i1=[1, 2], i2=["a", None]), secondary_indices=named)
    assert (index(store, "i1"), index(store, "i2")) == ({1: {"one", "two"}, 2: {"two"}}, {"a": {"one", "two"}})


def test_an_update_cannot_add_an_index(store):  # D07
    put(store, ONE)
    with refused(store, ValueError, InvalidInput, "build_dataset_indices"):
        update(store, TWO, secondary_indices=["i1", "x"])


def test_an_update_of_a_missing_dataset_builds_its_indices(store):
    update(store, ONE, secondary_indices="i1")
    assert index(store, "i1") == {1: {"one"}, 2: {"one"}}


def test_rows_of_an_update_without_an_index_column_are_refused(store):
    put(store, ONE)
    with refused(store, RuntimeError, InvalidRequest):
        update(store, element("two", x=[1]))


def test_an_index_that_did_not_change_keeps_its_file(store):  # D29
    put(store, ONE)
    before = document(store)["indices"]
    update(store, metadata={"x": 1})
    assert document(store)["indices"] == before
    update(store, TWO)
    assert document(store)["indices"] != before
    assert before["i1"] in keys(store)


def test_a_value_goes_with_its_last_partition(store):  # D30
    put(store, ONE, TWO)
    update(store, delete_scope=[{"i1": 1}])
    assert index(store, "i1") == index_of_files(store, "i1") == {2: {"two"}, 3: {"two"}}


def test_a_label_that_exists_is_replaced_in_the_indices_too(store):  # D26
    put(store, ONE, TWO)
    update(store, element("two", i1=[9], x=[9]))
    assert index(store, "i1") == index_of_files(store, "i1") == {1: {"one"}, 2: {"one"}, 9: {"two"}}
    assert rows(store, "x") == [(1,), (2,), (3,), (9,)]


def test_widths_of_an_index_are_those_of_kartothek(store):
    put(store, element("one", i1=np.array([1], "int8")))
    update(store, element("two", i1=[2**40]))
    assert index(store, "i1") == {1: {"one"}, 2**40: {"two"}}


# --- kartothek's member `indices` -----------------------------------------------------------------


def with_indices(label, indices, **columns):
    return {**element(label, **columns), "indices": indices}


def test_indices_of_elements_name_columns_whose_values_come_from_the_rows(store):
    put(store, with_indices("one", {"i1": {99: ["nowhere"]}, "x": {}}, i1=[1], x=[1]), TWO, secondary_indices=None)
    assert list(snapshot(store).document.indices) == ["i1"]
    assert index(store, "i1") == index_of_files(store, "i1")


@pytest.mark.parametrize(
    "first", [{}, {"indices": {}}, {"indices": {"i1": {}}}], ids=["no member", "no indices", "an empty index"]
)
@pytest.mark.parametrize("form", [list, iter, lambda data: [data]], ids=["list", "generator", "nested"])
def test_indices_of_all_elements_count(store, first, form):
    indexed = with_indices("two", {"i1": {2: ["two"]}}, i1=[2], x=[2])
    more = with_indices("three", {"x": {3: ["three"]}}, i1=[3], x=[3])
    put_items(store, form([{**element("one", i1=[1, 1], x=[1, 1]), **first}, indexed, more]))
    assert sorted(snapshot(store).document.indices) == ["i1", "x"]
    for column in ("i1", "x"):
        assert index(store, column) == index_of_files(store, column) == {1: {"one"}, 2: {"two"}, 3: {"three"}}


@pytest.mark.parametrize("form", [list, iter], ids=["list", "generator"])
def test_an_empty_first_element_does_not_hide_the_indices_of_the_next(store, form):
    empty = {"label": "one", "data": {"table": pa.table({"i1": pa.array([], pa.int64())})}, "indices": {"i1": {}}}
    put_items(store, form([empty, with_indices("two", {"i1": {2: ["two"]}}, i1=[2])]))
    assert index(store, "i1") == {2: {"two"}}


def test_what_is_in_memory_is_indexed_without_reading_files_again(store):
    counting = CountingStore(store)
    put_items(counting, [element("one", i1=[1]), with_indices("two", {"i1": {2: ["two"]}}, i1=[2])])
    assert not {operation for operation in counting.counts if operation in ("get", "ranges", "tail", "local_path")}


def test_an_index_that_comes_late_needs_its_column_in_all_elements(store):
    with refused(store, ValueError):
        put(
            store,
            element("one", x=[1]),
            with_indices("two", {"i1": {2: ["two"]}}, i1=[2], x=[2]),
            secondary_indices=None,
        )


def test_indices_of_an_element_need_their_column(store):
    with refused(store, ValueError, InvalidInput, "no column corresponding to index"):
        put(store, with_indices("one", {"z": {1: ["one"]}}, i1=[1]))


def test_indices_of_an_element_have_to_be_those_of_the_dataset(store):
    put(store, ONE)
    with refused(store, ValueError, InvalidInput, "Incorrect indices"):
        update(store, with_indices("two", {"x": {1: ["two"]}}, i1=[1], x=[1]))


def test_indices_of_an_element_cannot_be_partition_columns(store):
    with refused(store, ValueError, InvalidInput):
        put(store, with_indices("one", {"x": {1: ["one"]}}, i1=[1], x=[1]), partition_on="x")


def test_an_index_on_an_unknown_column_of_nothing_is_refused(store):
    with refused(store, KeyError, UnknownColumn):
        put(store, None)


def test_a_dataset_without_partitions_gets_an_index_without_rows(store):
    put(store, ONE, secondary_indices=[], partition_on=["x"])
    update(store, delete_scope=[{"x": x} for x in (1, 2, 3)])
    assert list(update(store, secondary_indices="i1").indices) == ["i1"]
    update(store, TWO)
    assert index(store, "i1") == index_of_files(store, "i1") != {}
