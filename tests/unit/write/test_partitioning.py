"""`partition_on`: the partitions of rows, the values and columns that paths can hold, sorting."""

from __future__ import annotations

import datetime as dt
import decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from kartothek_cube.core.dataset.write import store_dataframes_as_dataset, update_dataset_from_dataframes
from kartothek_cube.core.stores.local import LocalStore, MemoryStore
from kartothek_cube.errors import InvalidInput, UnknownColumn, Unsupported
from tests.support.datasets import UUID, file_of, folders, keys, labels, read, refused, rows, schema


@pytest.fixture
def store():
    return MemoryStore()


def put(store, *frames, **arguments):
    return store_dataframes_as_dataset(store, UUID, list(frames), **{"partition_on": ["p"], **arguments})


def frame(values, **more):
    return pd.DataFrame({"p": values, "x": range(len(values)), **more})


def test_one_partition_for_each_value_and_element(store):
    put(store, frame(["b", "a", "b"]), frame(["a"]))
    assert folders(store) == ["p=a", "p=a", "p=b"]
    assert rows(store) == [("a", 0), ("a", 1), ("b", 0), ("b", 2)]


def test_labels_name_the_columns_in_the_order_of_partition_on(store):
    put(store, frame([1, 1, 2], q=["a", "b", "a"]), partition_on=["q", "p"])
    assert folders(store) == ["q=a/p=1", "q=a/p=2", "q=b/p=1"]
    assert read(store).column_names == ["q", "p", "x"]


def test_files_lack_the_partition_columns_and_keep_the_order_of_rows(store):
    put(store, frame(["a", "b", "a", "a"]).iloc[::-1])
    found = {label[:3]: file_of(store, label).to_pydict() for label in labels(store)}
    assert found == {"p=a": {"x": [3, 2, 0]}, "p=b": {"x": [1]}}


def test_a_missing_partition_column_is_refused(store):  # C23
    with refused(store, ValueError, InvalidInput, "Partition column.*missing: q"):
        put(store, frame([1], q=[1]), frame([1]), partition_on=["p", "q"])


def test_only_partition_columns_are_refused(store):  # C24
    with refused(store, ValueError, InvalidInput, "No data left to save outside partition columns"):
        put(store, pd.DataFrame({"p": [1]}))


@pytest.mark.parametrize(
    "values",
    [
        ["a", None],
        [1.0, np.nan],
        [None, None],
        pd.array([1, None], "Int64"),
        pd.array([True, None], "boolean"),
        [dt.date(2020, 1, 1), None],
        [pd.NaT, pd.NaT],
    ],
)
def test_a_null_in_a_partition_column_is_refused(store, values):  # C25
    with refused(store, ValueError, InvalidInput, "nulls in the partition columns"):
        put(store, frame([1, 2]).astype({"p": object}).assign(p=values))


def test_nulls_are_counted_in_all_partition_columns_with_what_helps(store):
    message = r"columns \['p', 'q'\] of dataset .* \(p: 1, q: 2 of 3 rows\).*df\.dropna\(subset=\['p', 'q'\]\)"
    with refused(store, ValueError, InvalidInput, message):
        put(store, frame(["a", None, "b"], q=[None, None, 1.0]), partition_on=["p", "q"])


def test_unused_categories_write_no_files(store):  # C26
    categorical = pd.Categorical(["b", "b"], categories=["a", "b", "c"])
    put(store, frame(categorical))
    assert (folders(store), len(keys(store, ".parquet")), schema(store)["p"]) == (["p=b"], 1, "string")


@pytest.mark.parametrize(
    "value",
    [
        "a/b",
        "/",
        "a/",
        "=",
        "a=b",
        "%",
        "%2F",
        "ä",
        "👍",
        " ",
        ".",
        "..",
        "~",
        "a\nb",
        "\0",
        "'\"",
        "p=1/x",
        "null",
        "None",
        "nan",
        "",
        "x" * 250,
    ],
)  # C39 C41
@pytest.mark.parametrize("local", [False, True])
def test_every_text_is_a_partition_value(tmp_path, value, local):
    store = LocalStore(tmp_path) if local else MemoryStore()
    put(store, frame([value]))
    assert rows(store) == [(value, 0)]
    assert rows(store, predicates=[[("p", "==", value)]]) == [(value, 0)]


@pytest.mark.parametrize(
    "values",
    [
        [True, False],  # C40
        [1, -(2**63)],
        np.array([2**64 - 1], "uint64"),
        np.array([1], "int8"),
        [0.1, float("inf"), -1e300],
        np.array([0.1], "float32"),
        [dt.date(1, 1, 1), dt.date(9999, 12, 31)],
        [dt.datetime(2020, 1, 1, 1, 2, 3, 4), dt.datetime(1969, 12, 31, 23)],
        [b"a", b"a/b", b""],
        pd.Categorical([2, 1]),
    ],
)
def test_partition_values_come_back_with_their_type(store, values):
    given = pa.Array.from_pandas(pd.Series(values))
    given = given.dictionary_decode() if pa.types.is_dictionary(given.type) else given
    given = given.cast(pa.timestamp("us")) if pa.types.is_timestamp(given.type) else given
    put(store, pa.table({"p": given, "x": range(len(given))}))
    assert [value for value, _ in sorted(rows(store), key=lambda row: row[1])] == given.to_pylist()
    for value in given.to_pylist():
        assert len(rows(store, predicates=[[("p", "==", value)]])) == 1


@pytest.mark.parametrize(
    "values",
    [
        [decimal.Decimal(1)],
        [pd.Timestamp(0, tz="UTC")],
        [pd.Timedelta(0)],
        [dt.time(1)],
        [b"\xff"],
        pd.Series([[1]]),
        pd.Series([{"a": 1}]),
    ],
)
def test_types_that_no_path_can_carry_are_refused(store, values):
    with refused(store, NotImplementedError, Unsupported):
        put(store, frame(list(values)))


def test_a_column_called_partition_is_no_partition_column(store):
    with refused(store, ValueError, InvalidInput, "partition"):
        put(store, pd.DataFrame({"partition": [1], "x": [1]}), partition_on="partition")


@pytest.mark.parametrize("name", ["a/b", "a=b", "ä", "%", " ", ".", "..", "", "table", "x\n"])
def test_every_other_text_is_the_name_of_a_partition_column(store, name):
    put(store, pd.DataFrame({name: ["v"], "v1": [1]}), partition_on=name)
    assert rows(store, predicates=[[(name, "==", "v")]]) == [("v", 1)]


def test_a_value_that_makes_no_valid_key_is_refused(store):
    with refused(store, ValueError, InvalidInput, "valid key"):
        put(store, frame(["fine", "x" * 300]))


def test_an_empty_element_beside_others_adds_nothing(store):
    put(store, frame([1]), frame([1]).iloc[:0])
    assert len(labels(store)) == 1


# --- sorting --------------------------------------------------------------------------------------


def sort(store, *frames, by, **arguments):
    return update_dataset_from_dataframes(list(frames), store, UUID, sort_partitions_by=by, **arguments)


def sorted_files(store):
    return {label.rpartition("/")[0]: file_of(store, label).to_pydict() for label in labels(store)}


def test_each_element_is_sorted_before_it_is_split(store):  # D31
    sort(store, frame(["a", "b", "a", "b"], v1=[4, 3, 2, 1]), by="v1", partition_on="p")
    assert sorted_files(store) == {"p=a": {"x": [2, 0], "v1": [2, 4]}, "p=b": {"x": [3, 1], "v1": [1, 3]}}


def test_equal_rows_keep_their_order_and_nulls_come_last(store):
    sort(store, pd.DataFrame({"v1": [2.0, None, 1.0, 2.0, np.nan, 1.0], "x": range(6)}), by=["v1"])
    assert sorted_files(store)[""]["x"] == [2, 5, 0, 3, 1, 4]


def test_rows_are_sorted_by_several_columns(store):
    sort(store, pd.DataFrame({"v1": ["b", "a", "b"], "v2": [2, 3, 1]}), by=["v1", "v2"])
    assert sorted_files(store)[""] == {"v1": ["a", "b", "b"], "v2": [3, 1, 2]}


def test_sorting_by_a_categorical_leaves_the_callers_frame_alone(store):  # D32
    given = pd.DataFrame({"v1": pd.Categorical(["b", "a"], categories=["b", "c", "a"]), "x": [1, 2]})
    before = given.copy(deep=True)
    sort(store, given, by="v1")
    pd.testing.assert_frame_equal(given, before)
    assert sorted_files(store)[""] == {"v1": ["a", "b"], "x": [2, 1]}


@pytest.mark.parametrize(
    "values",
    [[decimal.Decimal(2), decimal.Decimal(1)], [b"b", b"a"], [True, False], [dt.time(2), dt.time(1)], [None, None]],
)
def test_rows_are_sorted_by_columns_of_every_plain_type(store, values):
    sort(store, pd.DataFrame({"v1": values}), by="v1")
    assert sorted_files(store)[""]["v1"] == (sorted(values) if values[0] is not None else values)


def test_a_missing_sort_column_is_refused(store):
    with refused(store, KeyError, UnknownColumn, "sort_partitions_by"):
        sort(store, frame([1]), by=["x", "y"])


@pytest.mark.parametrize("value", [[[2], [1]], [{"a": 2}, {"a": 1}]])
def test_lists_and_structs_have_no_order(store, value):
    with refused(store, NotImplementedError, Unsupported, "no order"):
        sort(store, pd.DataFrame({"v1": value}), by="v1")


def test_moments_that_python_cannot_hold_are_sorted(store):
    ends = [253402300799 * 10**6, 0]
    moments = pa.table({"p": [1, 1], "t": pa.array(ends, pa.timestamp("us", tz="Europe/Berlin"))})
    update_dataset_from_dataframes([moments], store, UUID, sort_partitions_by="t")
    (label,) = labels(store)
    assert file_of(store, label).column("t").cast(pa.int64()).to_pylist() == ends[::-1]
