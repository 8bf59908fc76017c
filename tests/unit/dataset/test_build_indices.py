"""`build_dataset_indices`: secondary indices on the partitions that a dataset has."""

from __future__ import annotations

import datetime as dt
import pickle

import numpy as np
import pandas as pd
import pytest

from kartothek_cube.core.dataset.maintain import build_dataset_indices
from kartothek_cube.core.dataset.read import read_table
from kartothek_cube.core.dataset.write import (
    create_empty_dataset_header,
    store_dataframes_as_dataset,
    update_dataset_from_dataframes,
)
from kartothek_cube.core.kartothek.dataset_metadata import DatasetFactory
from kartothek_cube.core.metadata.naming import document_key
from kartothek_cube.core.stores.contract import ReadOnlyView
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import DatasetNotFound, InvalidInput, InvalidRequest, InvalidType, ReadOnlyStore, Unsupported
from kartothek_cube.testing.stores import CountingStore
from tests.support.datasets import (
    UUID,
    contents,
    document,
    index,
    index_of_files,
    keys,
    labels,
    refused,
    rows,
    schema,
    snapshot,
)

ONE = pd.DataFrame({"p": ["a", "b"], "i1": [1, 2], "i2": ["u", None], "l": [[1], [2]]})
TWO = pd.DataFrame({"p": ["b", "b"], "i1": [2, 3], "i2": pd.Series([None, None], dtype=object), "l": [[1], [2]]})


@pytest.fixture
def store():
    store = MemoryStore()
    store_dataframes_as_dataset(
        store, UUID, [ONE, TWO], partition_on="p", metadata={"owner": "me", "creation_time": "then"}
    )
    return store


def build(store, columns, **arguments):
    return build_dataset_indices(store, UUID, columns, **arguments)


def unindexed(store):
    """Everything that an index build leaves alone."""
    found = snapshot(store)
    return found.document.partitions, found.schemas, found.document.user_metadata, found.partition_keys


@pytest.mark.parametrize("columns", ["i1", ["i1"], ("i2", "i1"), iter(["i1", "i2"])])
def test_indices_are_built_and_nothing_else_changes(store, columns):  # E18
    before = unindexed(store)
    build(store, columns)
    assert unindexed(store) == before
    assert snapshot(store).document.user_metadata == {"owner": "me", "creation_time": "then"}
    for column in snapshot(store).document.indices:
        assert index(store, column) == index_of_files(store, column) != {}


def test_the_built_index_answers(store):
    build(store, ["i1", "i2"])
    assert len(rows(store, predicates=[[("i1", "==", 3)]])) == 1
    assert len(rows(store, predicates=[[("i2", "==", None)]])) == 3
    assert len(rows(store, predicates=[[("i2", "==", "u")]])) == 1


def test_other_indices_are_kept(store):
    build(store, "i2")
    first = document(store)["indices"]["i2"]
    build(store, "i1")
    assert sorted(document(store)["indices"]) == ["i1", "i2"]
    assert document(store)["indices"]["i2"] == first


def test_later_writes_maintain_a_built_index(store):
    build(store, "i1")
    update_dataset_from_dataframes([TWO], store, UUID, delete_scope=[{"p": "a"}])
    assert index(store, "i1") == index_of_files(store, "i1")


def test_an_index_is_built_anew(store):  # E22
    build(store, "i1")
    first = document(store)["indices"]["i1"]
    build(store, "i1")
    second = document(store)["indices"]["i1"]
    assert first != second
    assert {first, second} <= set(keys(store))
    assert store.get(first) == store.get(second)


def test_only_the_columns_of_the_index_are_read(store):
    counting = CountingStore(store)
    build(counting, "i1")
    data = [call for call in counting.calls if "/table/p=" in call.key]
    assert {call.operation for call in data} <= {"tail", "ranges", "local_path"}


@pytest.mark.parametrize("columns", ["p", ["i1", "p"]])
def test_a_partition_column_is_refused(store, columns):  # E19
    with refused(store, RuntimeError, InvalidRequest, "Cannot create secondary index on partition columns"):
        build(store, columns)


@pytest.mark.parametrize("columns", ["z", ["i1", "z"], ""])
def test_an_unknown_column_is_refused(store, columns):  # E20
    with refused(store, RuntimeError, InvalidRequest, "could not be found"):
        build(store, columns)


@pytest.mark.parametrize(
    ("columns", "builtin", "error"),
    [
        ({"i1"}, ValueError, InvalidInput),
        ({"i1": 1}, ValueError, InvalidInput),
        (5, TypeError, InvalidType),
        ([["i1"]], TypeError, InvalidType),
        (["i1", "i1"], ValueError, InvalidInput),
    ],
)
def test_columns_are_named_by_text_and_once(store, columns, builtin, error):
    with refused(store, builtin, error):
        build(store, columns)


@pytest.mark.parametrize("columns", ["l", ["i1", "l"]])
def test_types_that_cannot_be_indexed_are_refused(store, columns):
    with refused(store, NotImplementedError, Unsupported, "'l'"):
        build(store, columns)


def test_a_column_that_is_null_throughout_is_refused():
    store = MemoryStore()
    store_dataframes_as_dataset(store, UUID, [TWO])
    with refused(store, NotImplementedError, Unsupported, "i2"):
        build(store, "i2")


def test_an_empty_dataset_gets_empty_indices():  # E21
    store = MemoryStore()
    store_dataframes_as_dataset(store, UUID, [ONE.iloc[:0].astype({"i2": "string"})], partition_on="i2")
    build(store, "i1")
    assert (index(store, "i1"), labels(store)) == ({}, [])
    update_dataset_from_dataframes([ONE.dropna()], store, UUID)
    assert index(store, "i1") == index_of_files(store, "i1") != {}


def test_an_implicit_dataset_becomes_explicit():
    store = MemoryStore()
    create_empty_dataset_header(store, UUID, {"table": ONE}, partition_on="p")
    build(store, "i1")
    assert document(store)["partitions"] == {}


def test_a_missing_dataset_is_named_by_both_keys():  # B05
    store = MemoryStore()
    for key in (document_key(UUID), document_key(UUID, msgpack=True)):
        with refused(store, KeyError, DatasetNotFound, key):
            build(store, "i1")


def test_a_factory_shows_the_new_index(store):
    factory = DatasetFactory(UUID, store)
    assert dict(factory.indices) == {}
    made = build_dataset_indices(None, None, "i1", factory=factory)
    assert made is factory
    assert list(factory.indices) == ["i1"]
    assert not factory.indices["i1"].loaded
    assert len(read_table(factory=factory, predicates=[[("i1", "==", 3)]])) == 1


def test_loaded_indices_of_a_factory_are_not_embedded(store):
    build(store, "i1")
    factory = DatasetFactory(UUID, store).load_all_indices()
    build_dataset_indices(None, None, "i2", factory=factory)
    assert all(isinstance(key, str) and key in keys(store) for key in document(store)["indices"].values())
    assert factory.metadata["owner"] == "me"


def test_a_factory_that_is_out_of_date_loses_nothing(store):
    factory = DatasetFactory(UUID, store)
    assert len(factory.partitions) == 3
    update_dataset_from_dataframes([ONE], store, UUID, metadata={"owner": "you"})
    build_dataset_indices(None, None, "i1", factory=factory)
    assert (len(factory.partitions), factory.metadata["owner"]) == (5, "you")
    assert index(store, "i1") == index_of_files(store, "i1")


def test_a_pickled_factory_has_forgotten_what_it_read(tmp_path):  # A09
    store_dataframes_as_dataset(f"hfs://{tmp_path}", UUID, [ONE], partition_on="p")
    factory = DatasetFactory(UUID, f"hfs://{tmp_path}")
    assert len(factory.partitions) == 2
    copy = pickle.loads(pickle.dumps(factory))
    build_dataset_indices(None, None, "i1", factory=copy)
    assert (list(copy.indices), list(factory.indices)) == (["i1"], [])


def test_where_the_dataset_lies_is_said_once(store):  # A05
    factory = DatasetFactory(UUID, store)
    for place in (
        (store, UUID, factory),
        (store, None, factory),
        (None, UUID, factory),
        (store, None, None),
        (None, None, None),
        (None, UUID, None),
    ):
        with refused(store, ValueError, InvalidInput, "factory"):
            build_dataset_indices(place[0], place[1], "i1", factory=place[2])


def test_a_store_that_cannot_be_written_is_refused(store):
    with refused(store, OSError, ReadOnlyStore):
        build(ReadOnlyView(store), "i1")


def test_no_columns_change_nothing(store):
    before = unindexed(store)
    build(store, [])
    assert (unindexed(store), snapshot(store).document.indices) == (before, {})


def test_a_column_that_older_partitions_lack_is_indexed(store):
    update_dataset_from_dataframes([ONE.assign(i3=[7, None])], store, UUID, add_columns=True)
    build(store, "i3")
    assert index(store, "i3") == index_of_files(store, "i3")
    assert list(index(store, "i3")) == [7]
    assert len(rows(store, predicates=[[("i3", "==", None)]])) == 5


@pytest.mark.parametrize(
    "values",
    [[True], [1.5, np.nan], [dt.date(2020, 1, 1)], [pd.Timestamp("2020-01-01")], [b"\xff"], np.array([1], "uint8")],
)
def test_every_plain_type_is_indexed(values):
    store = MemoryStore()
    store_dataframes_as_dataset(store, UUID, [pd.DataFrame({"i1": values})])
    build(store, "i1")
    assert len(index(store, "i1")) == 1
    assert len(rows(store, predicates=[[("i1", "==", next(iter(index(store, "i1"))))]])) == 1


def test_the_tables_of_a_partition_are_indexed_together():
    store = MemoryStore()
    both = {"a": pd.DataFrame({"i1": [1]}), "b": pd.DataFrame({"i1": [2, 1], "i2": [1, 2]})}
    store_dataframes_as_dataset(store, UUID, [{"label": "one", "data": both}])
    build(store, ["i1", "i2"])
    assert (index(store, "i1"), index(store, "i2")) == ({1: {"one"}, 2: {"one"}}, {1: {"one"}, 2: {"one"}})


def test_the_schema_and_the_files_are_left_alone(store):
    before = contents(store)
    build(store, "i1")
    after = contents(store)
    assert {key: data for key, data in after.items() if key in before and "by-dataset" not in key} == {
        k: d for k, d in before.items() if "by-dataset" not in k
    }
    assert schema(store)["i1"] == "int64"
