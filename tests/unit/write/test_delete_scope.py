"""`delete_scope`: which partitions an update takes away."""

from __future__ import annotations

import datetime as dt
import decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from kartothek_cube.core.dataset.write import (
    commit_dataset,
    store_dataframes_as_dataset,
    update_dataset_from_dataframes,
)
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import InvalidInput, InvalidRequest, InvalidType, UnknownColumn
from tests.support.datasets import (
    UUID,
    contents,
    document,
    index,
    index_of_files,
    labels,
    refused,
    rows,
    schema,
    snapshot,
    user_metadata,
)

# label → p, q, i1
PARTITIONS = {
    "p=1/q=a/A": (1, "a", [10, 20]),
    "p=1/q=b/A": (1, "b", [20]),
    "p=2/q=a/B": (2, "a", [10]),
    "p=2/q=b/B": (2, "b", [30, None]),
}


def frame(*labels):
    parts = [
        pd.DataFrame({"p": p, "q": q, "i1": pd.array(i1, "Int64")})
        for label, (p, q, i1) in PARTITIONS.items()
        if label in labels
    ]
    return pd.concat(parts, ignore_index=True)


@pytest.fixture
def store():
    store = MemoryStore()
    elements = [
        {"label": base, "data": {"table": frame(*(label for label in PARTITIONS if label.endswith(base)))}}
        for base in "AB"
    ]
    store_dataframes_as_dataset(
        store, UUID, elements, partition_on=["p", "q"], secondary_indices="i1", metadata={"owner": "me"}
    )
    return store


def delete(store, *scope, data=(), **arguments):
    return update_dataset_from_dataframes(list(data), store, UUID, delete_scope=list(scope), **arguments)


@pytest.mark.parametrize(
    ("scope", "left"),
    [
        ([{"p": 1}], ["p=2/q=a/B", "p=2/q=b/B"]),  # D13
        ([{"p": 1, "q": "a"}], ["p=1/q=b/A", "p=2/q=a/B", "p=2/q=b/B"]),
        ([{"i1": 20}], ["p=2/q=a/B", "p=2/q=b/B"]),  # D14
        ([{"i1": 30}], ["p=1/q=a/A", "p=1/q=b/A", "p=2/q=a/B"]),  # D14
        ([{"i1": 10, "q": "a"}], ["p=1/q=b/A", "p=2/q=b/B"]),  # D15
        ([{"i1": 10, "p": 2}], ["p=1/q=a/A", "p=1/q=b/A", "p=2/q=b/B"]),  # D15
        ([{"p": 1}, {"q": "a"}], ["p=2/q=b/B"]),  # D20
        ([{"p": 1}, {"p": 1}, {"p": "1"}], ["p=2/q=a/B", "p=2/q=b/B"]),  # D20
        ([{"p": 1}, {"p": 2}], []),
        ([{"p": 3}], list(PARTITIONS)),  # D19
        ([{"q": "A"}, {"i1": 99}, {"p": 1, "i1": 30}], list(PARTITIONS)),  # D19
        ([], list(PARTITIONS)),
    ],
)
def test_partitions_with_all_values_of_one_dict_go(store, scope, left):
    files = [key for key in contents(store) if key.endswith(".parquet")]
    delete(store, *scope)
    assert labels(store) == left
    assert index(store, "i1") == index_of_files(store, "i1")
    assert set(files) <= set(contents(store))


@pytest.mark.parametrize("form", [list, tuple, iter])
def test_a_scope_is_any_list(store, form):
    update_dataset_from_dataframes([], store, UUID, delete_scope=form([{"p": 1}]))
    assert len(labels(store)) == 2


# --- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [1, "1", 1.0, True, np.int8(1), np.uint64(1), np.float32(1), b"1", decimal.Decimal(1), pa.scalar(1), np.str_("1")],
)
@pytest.mark.parametrize("column", ["p", "i1"])
def test_a_value_is_converted_if_it_is_the_same(store, column, value):  # D16
    delete(store, {column: value})
    assert len(labels(store)) == (2 if column == "p" else 4)


@pytest.mark.parametrize(
    ("value", "builtin", "error"),
    [
        (1.9, ValueError, InvalidInput),  # D16
        ("x", ValueError, InvalidInput),
        ("1.0", ValueError, InvalidInput),
        (float("inf"), ValueError, InvalidInput),
        (2**64, ValueError, InvalidInput),
        (object(), ValueError, InvalidInput),
        (dt.date(2020, 1, 1), ValueError, InvalidInput),
        (None, TypeError, InvalidType),
        (float("nan"), TypeError, InvalidType),
        (pd.NA, TypeError, InvalidType),
        (pd.NaT, TypeError, InvalidType),
        ([1], TypeError, InvalidType),  # D22
        ((1, 2), TypeError, InvalidType),
        ({1}, TypeError, InvalidType),
        ({"a": 1}, TypeError, InvalidType),
        (np.array([1]), TypeError, InvalidType),
    ],
)
@pytest.mark.parametrize("column", ["p", "i1"])
def test_a_value_that_is_none_of_the_column_is_refused(store, column, value, builtin, error):
    with refused(store, builtin, error, column):
        delete(store, {column: value}, data=[frame("p=1/q=a/A")])


def test_a_list_is_no_text(store):  # D22
    for value in (["a"], ("a",), np.array(["a"])):
        with refused(store, TypeError, InvalidType, "one value"):
            delete(store, {"q": value})


@pytest.mark.parametrize("value", ["a", b"a", np.str_("a")])
def test_text_is_text(store, value):
    delete(store, {"q": value})
    assert labels(store) == ["p=1/q=b/A", "p=2/q=b/B"]


DAYS = [dt.date(2020, 1, 1), dt.date(2020, 1, 2)]
MOMENTS = [dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 1, 0, 0, 0, 1)]


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize(
    ("values", "value"),
    [
        (DAYS, DAYS[0]),
        (DAYS, "2020-01-01"),
        (DAYS, dt.datetime(2020, 1, 1)),
        (DAYS, pd.Timestamp("2020-01-01")),
        (DAYS, np.datetime64("2020-01-01")),
        (DAYS, np.datetime64("2020-01-01", "ns")),
        (MOMENTS, MOMENTS[0]),
        (MOMENTS, "2020-01-01"),
        (MOMENTS, "2020-01-01 00:00:00"),
        (MOMENTS, DAYS[0]),
        (MOMENTS, pd.Timestamp("2020-01-01")),
        (MOMENTS, np.datetime64("2020-01-01", "D")),
        ([True, False], True),
        ([True, False], "True"),
        ([True, False], 1),
        ([True, False], np.bool_(True)),
        ([0.5, 1.0], 0.5),
        ([0.5, 1.0], "0.5"),
        ([0.5, 1.0], np.float32(0.5)),
        ([b"a", b"b"], b"a"),
        ([b"a", b"b"], "a"),
        ([2**63, 2**64 - 1], 2**63),
        (["1", "1.0"], 1),
        (["True", "true"], True),
    ],
)
def test_values_are_converted_to_the_type_of_the_column(values, value, indexed):
    store = MemoryStore()
    frames = [pd.DataFrame({"c": [v], "x": [i]}) for i, v in enumerate(values)]
    store_dataframes_as_dataset(
        store, UUID, frames, **({"secondary_indices": "c"} if indexed else {"partition_on": "c"})
    )
    delete(store, {"c": value})
    assert rows(store, "x") == [(1,)]


@pytest.mark.parametrize(
    ("values", "value"),
    [
        (DAYS, 18262),
        (DAYS, "x"),
        (DAYS, True),
        (DAYS, dt.datetime(2020, 1, 1, 13, 45)),
        (DAYS, "2020-01-01 23:59"),
        (DAYS, dt.datetime(2020, 1, 2, 0, 30, tzinfo=dt.timezone(dt.timedelta(hours=2)))),
        (DAYS, dt.datetime(2020, 1, 1, tzinfo=dt.UTC)),
        (DAYS, np.datetime64("2020-01-01T00:00:00.000000500")),
        (MOMENTS, np.datetime64("2020-01-01T00:00:00.000000500")),
        (MOMENTS, 0),
        (MOMENTS, 1.5),
        (MOMENTS, "then"),
        ([True, False], 2),
        ([True, False], "yes?"),
        ([0.5], "half"),
    ],
)
def test_a_value_of_another_kind_is_refused(values, value):
    store = MemoryStore()
    store_dataframes_as_dataset(store, UUID, [pd.DataFrame({"c": values, "x": 1})], partition_on="c")
    with refused(store, ValueError, InvalidInput, "no value of column 'c'"):
        delete(store, {"c": value})


# --- columns --------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", [{"z": 1}, {"p": 1, "z": 1}, {"P": 1}, {5: 1}, {None: 1}])  # D17 D18
def test_an_unknown_column_is_refused(store, scope):
    for builtin in (ValueError, KeyError):
        with refused(store, builtin, UnknownColumn):
            delete(store, scope)


def test_a_column_without_index_is_refused(store):  # D17 D18
    update_dataset_from_dataframes([], store, UUID)
    other = MemoryStore()
    store_dataframes_as_dataset(other, UUID, [frame(*PARTITIONS)], partition_on="p")
    for scope in ({"q": "a"}, {"p": 1, "q": "a"}):
        with refused(other, ValueError, InvalidRequest, "neither a partition key nor"):
            delete(other, scope)


def test_an_empty_dict_is_refused(store):  # D18
    with refused(store, ValueError, InvalidInput, "empty dict"):
        delete(store, {"p": 1}, {})


def test_a_bare_dict_is_refused(store):  # D21
    with refused(store, ValueError, InvalidInput, "incompatible for normalisation"):
        update_dataset_from_dataframes([], store, UUID, delete_scope={"p": 1})


@pytest.mark.parametrize("scope", [["p"], "p", 5, [[("p", "==", 1)]], [None], [("p", 1)]])
def test_what_is_no_list_of_dicts_is_refused(store, scope):
    with refused(store, TypeError, InvalidType, "list of dicts"):
        update_dataset_from_dataframes([], store, UUID, delete_scope=scope)


# --- with other changes ---------------------------------------------------------------------------


def test_deleting_everything_keeps_schema_metadata_and_empty_indices(store):  # D23
    before = schema(store)
    delete(store, {"p": 1}, {"p": 2})
    assert (labels(store), schema(store), user_metadata(store)) == ([], before, {"owner": "me"})
    assert (document(store)["partitions"], index(store, "i1"), snapshot(store).partition_keys) == ({}, {}, ("p", "q"))
    update_dataset_from_dataframes([frame("p=2/q=b/B")], store, UUID)
    assert list(index(store, "i1")) == [30]


def test_rows_are_replaced_in_one_commit(store):  # D24
    commits = len(snapshot(store).chain)
    delete(store, {"p": 1}, data=[frame("p=1/q=a/A").assign(i1=99)], metadata={"owner": "you"})
    assert len(snapshot(store).chain) == commits + 1
    assert rows(store) == [(1, "a", 99), (1, "a", 99), (2, "a", 10), (2, "b", 30), (2, "b", None)]
    assert (user_metadata(store), index(store, "i1")) == ({"owner": "you"}, index_of_files(store, "i1"))


def test_a_new_partition_whose_label_is_in_the_scope_stays(store):  # D25
    new = {"label": "A", "data": {"table": frame("p=1/q=a/A").assign(i1=[77, 78])}}
    delete(store, {"p": 1}, data=[new])
    assert labels(store) == ["p=2/q=a/B", "p=2/q=b/B", "p=1/q=a/A"]
    assert (
        index(store, "i1")
        == index_of_files(store, "i1")
        == {10: {"p=2/q=a/B"}, 30: {"p=2/q=b/B"}, 77: {"p=1/q=a/A"}, 78: {"p=1/q=a/A"}}
    )
    assert rows(store, predicates=[[("i1", "==", 20)]]) == []


def test_new_rows_are_not_in_the_scope(store):
    delete(store, {"p": 1}, data=[frame("p=1/q=b/A")])
    assert rows(store, predicates=[[("p", "==", 1)]]) == [(1, "b", 20)]


def test_partitions_without_values_are_not_deleted_by_an_index(store):
    update_dataset_from_dataframes([frame("p=2/q=b/B").iloc[1:]], store, UUID)
    delete(store, {"i1": 10}, {"i1": 20}, {"i1": 30})
    assert rows(store) == [(2, "b", None)]


def test_a_commit_deletes_too(store):
    commit_dataset(store, UUID, delete_scope=[{"i1": 20}])
    assert labels(store) == ["p=2/q=a/B", "p=2/q=b/B"]
    with refused(store, ValueError, UnknownColumn):
        commit_dataset(store, UUID, delete_scope=[{"z": 1}])
