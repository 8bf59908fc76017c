"""What new rows may change of the schema of a dataset."""

from __future__ import annotations

import datetime as dt
import decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from kartothek_cube.core.dataset.read import read_table
from kartothek_cube.core.dataset.write import (
    commit_dataset,
    create_empty_dataset_header,
    store_dataframes_as_dataset,
    update_dataset_from_dataframes,
    update_dataset_from_dataframes__iter,
    write_single_partition,
)
from kartothek_cube.core.metadata.naming import schema_key
from kartothek_cube.core.metadata.snapshot import parse_common_metadata
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import InvalidInput, InvalidRequest
from tests.support.datasets import UUID, file_of, index, index_of_files, labels, read, refused, rows, schema

OLD = {
    "int": [1],
    "uint": np.array([1], "uint64"),
    "float": [0.5],
    "text": pd.Series(["a"], dtype=object),
    "null": pd.Series([None], dtype=object),
    "bool": [True],
    "bytes": [b"a"],
    "date": [dt.date(2020, 1, 1)],
    "time": [pd.Timestamp("2020-01-01")],
    "zone": [pd.Timestamp("2020-01-01", tz="UTC")],
    "decimal": [decimal.Decimal("1.5")],
    "list": pd.Series([[1]]),
}


def frame(values):
    return pd.DataFrame({"c": values, "x": range(len(values))})


@pytest.fixture
def store():
    return MemoryStore()


def stored(store, values):
    store_dataframes_as_dataset(store, UUID, [frame(values)])
    return schema(store)["c"]


def update(store, *frames, **arguments):
    return update_dataset_from_dataframes(list(frames), store, UUID, **arguments)


def category(values):
    return pd.Series(values, dtype="category")


def typed(values, kind):
    return pd.Series(values, dtype=pd.ArrowDtype(kind))


ACCEPTED = [
    ("int", np.array([1], "int8"), "int64"),  # C18
    ("int", pd.array([1, None], "Int64"), "int64"),
    ("int", category([1, 2]), "int64"),
    ("uint", np.array([1], "uint8"), "uint64"),
    ("float", np.array([1], "float32"), "double"),
    ("float", [np.nan], "double"),
    ("text", pd.Series([None], dtype=object), "string"),  # C16 D11
    ("text", category(["b", None]), "string"),
    ("text", pd.Series(["b"], dtype="string"), "string"),
    ("text", pd.Series([], dtype=object), "string"),
    ("null", [1], "int64"),  # D10
    ("null", ["a"], "string"),  # D10
    ("null", [0.5], "double"),
    ("null", pd.Series([[1]]), "list<item: int64>"),
    ("null", pd.Series([None], dtype=object), "null"),
    ("bool", pd.array([None], "boolean"), "bool"),
    ("date", [dt.date(2021, 1, 1), None], "date32[day]"),
    ("time", pd.Series([pd.Timestamp(1, unit="s")], dtype="datetime64[s]"), "timestamp[us]"),
    ("time", pd.Series([pd.NaT]), "timestamp[us]"),
    ("decimal", [decimal.Decimal("2.5")], "decimal128(2, 1)"),
    ("decimal", [decimal.Decimal("10.50"), decimal.Decimal("1.5")], "decimal128(4, 2)"),
    ("list", pd.Series([[1, 2], None, []]), "list<item: int64>"),
    ("list", pd.Series([[]]), "list<item: int64>"),
    ("list", typed([[1]], pa.list_(pa.int8())), "list<item: int64>"),
]


@pytest.mark.parametrize(("old", "new", "kind"), ACCEPTED)
@pytest.mark.parametrize("way", ["update", "iter", "commit", "one store"])
def test_rows_that_fit_are_accepted(store, old, new, kind, way):  # C16 C18 D10 D11
    if way == "one store":
        store_dataframes_as_dataset(store, UUID, [frame(OLD[old]), frame(new)])
    else:
        stored(store, OLD[old])
        if way == "update":
            update(store, frame(new))
        elif way == "iter":
            update_dataset_from_dataframes__iter(iter([frame(new)]), store, UUID)
        else:
            commit_dataset(store, UUID, [write_single_partition(store, UUID, frame(new))])
    assert schema(store)["c"] == kind
    assert str(read(store).schema.field("c").type) == kind
    assert read(store).num_rows == len(OLD[old]) + len(new)
    assert len(read_table(UUID, store)) == len(OLD[old]) + len(new)


REFUSED = [
    ("int", [0.5]),
    ("float", [1]),
    ("int", np.array([1], "uint64")),
    ("uint", [1]),
    ("int", [1, None]),  # D12
    ("text", [np.nan]),  # C17
    ("text", np.array([], "int64")),
    ("zone", [pd.Timestamp("2020-01-01", tz="Europe/Berlin")]),
    ("zone", [pd.Timestamp("2020-01-01")]),
    ("time", [pd.Timestamp("2020-01-01", tz="UTC")]),
    ("date", [pd.Timestamp("2020-01-01")]),
    ("time", [dt.date(2020, 1, 1)]),
    ("bool", [1]),
    ("int", [True]),
    ("text", [b"a"]),
    ("bytes", ["a"]),
    ("decimal", [decimal.Decimal("1" + "0" * 37)]),
    ("list", pd.Series([["a"]])),
    ("list", pd.Series([[0.5]])),
]


@pytest.mark.parametrize(("old", "new"), REFUSED)
def test_rows_that_do_not_fit_are_refused(store, old, new):  # C17 D12
    with refused(store, ValueError, InvalidInput, "Schema violation"):
        store_dataframes_as_dataset(store, UUID, [frame(OLD[old]), frame(new)])
    kind = stored(store, OLD[old])
    fits = frame(OLD[old])
    with refused(store, ValueError, InvalidInput, "Schema violation.*'c'"):
        update(store, fits, frame(new))
    with refused(store, ValueError, InvalidInput, "Schema violation.*'c'"):
        write_single_partition(store, UUID, frame(new))
    with pytest.raises(InvalidInput):
        update_dataset_from_dataframes__iter(iter([fits, frame(new)]), store, UUID)
    assert (schema(store)["c"], len(labels(store))) == (kind, 1)


@pytest.mark.parametrize(
    "new",
    [
        pd.DataFrame({"c": [1]}),
        pd.DataFrame({"c": [1], "x": [1], "z": [1]}),
        pd.DataFrame({"c": [1], "X": [1]}),
        pd.DataFrame({"x": [1], "z": [1]}),
        pd.DataFrame(),
    ],
)
def test_new_missing_and_renamed_columns_are_refused(store, new):
    stored(store, OLD["int"])
    with refused(store, ValueError, InvalidInput, "missing columns .* surplus columns"):
        update(store, new)


@pytest.mark.parametrize(
    "new",
    [
        pd.DataFrame({"x": [5], "c": [7]}),
        pd.DataFrame({"c": [7], "x": [5]}, index=pd.Index(["row"], name="c")),
        pa.table({"x": [5], "c": [7]}),
    ],
)
def test_order_of_columns_row_labels_and_library_do_not_matter(store, new):
    stored(store, OLD["int"])
    update(store, new)
    assert rows(store) == [(1, 0), (7, 5)]


def test_a_partition_of_nulls_gets_the_type_of_its_dataset(store):  # D10
    stored(store, OLD["null"])
    update(store, frame(["a"]))
    assert [str(file_of(store, label).schema.field("c").type) for label in labels(store)] == ["null", "string"]
    assert rows(store, "c") == [("a",), (None,)]
    assert rows(store, "c", predicates=[[("c", "==", None)]]) == [(None,)]
    assert parse_common_metadata(store.get(schema_key(UUID)), "").field("c").type == pa.string()


def test_a_partition_column_of_nothing_gets_its_type_from_the_first_rows(store):
    store_dataframes_as_dataset(store, UUID, [pd.DataFrame({"p": [], "x": []}, dtype=object)], partition_on="p")
    update(store, pd.DataFrame({"p": [1], "x": ["a"]}))
    assert (rows(store), schema(store)) == ([(1, "a")], {"p": "int64", "x": "string"})


# --- add_columns ----------------------------------------------------------------------------------


def indexed(store):
    first = pd.DataFrame({"p": ["a", "b"], "i1": [1, 2]})
    store_dataframes_as_dataset(store, UUID, [first], partition_on="p", secondary_indices="i1")
    return first


def test_new_columns_widen_the_schema_and_are_null_before(store):
    first = indexed(store)
    update(store, first.assign(z=["u", "v"]), add_columns=True)
    assert schema(store) == {"p": "string", "i1": "int64", "z": "string"}
    assert rows(store) == [("a", 1, "u"), ("a", 1, None), ("b", 2, "v"), ("b", 2, None)]
    assert rows(store, "z", predicates=[[("z", "==", "v")]]) == [("v",)]
    assert len(rows(store, predicates=[[("z", "==", None), ("i1", "==", 1)]])) == 1
    assert parse_common_metadata(store.get(schema_key(UUID)), "").names == ["p", "i1", "z"]
    assert index(store, "i1") == index_of_files(store, "i1")


def test_later_updates_need_all_columns(store):
    first = indexed(store)
    update(store, first.assign(z=1), add_columns=True)
    with refused(store, ValueError, InvalidInput, "missing columns"):
        update(store, first)
    update(store, first.assign(z=pd.Series([None, None], dtype=object)))
    assert len(rows(store)) == 6


@pytest.mark.parametrize("order", [1, -1])
def test_a_new_column_need_not_be_in_every_element(store, order):
    first = indexed(store)
    update(store, *[first.assign(z=1), first, first.assign(w="a")][::order], add_columns=True)
    assert schema(store) == {"p": "string", "i1": "int64", "w": "string", "z": "int64"}
    assert sorted(rows(store, "z", "w"), key=str) == sorted(
        [(None, None)] * 4 + [(1, None)] * 2 + [(None, "a")] * 2, key=str
    )
    assert index(store, "i1") == index_of_files(store, "i1")


@pytest.mark.parametrize("order", [1, -1])
def test_a_new_column_has_one_type(store, order):
    first = indexed(store)
    with refused(store, ValueError, InvalidInput, "Schema violation.*'z'"):
        update(store, *[first.assign(z=1), first.assign(z="a")][::order], add_columns=True)


def test_the_error_about_a_new_column_says_how_to_add_it(store):
    indexed(store)
    before = rows(store)
    with pytest.raises(InvalidInput, match=r"surplus columns \['z'\].*add_columns=True"):
        update(store, rows_with_z := read_table(UUID, store).assign(z=1))
    update(store, rows_with_z, add_columns=True)
    assert len(rows(store)) == 2 * len(before)


def test_with_add_columns_no_column_may_be_missing(store):
    first = indexed(store)
    with refused(store, RuntimeError, InvalidRequest, "i1"):
        update(store, first.drop(columns="i1").assign(z=1), add_columns=True)
    other = MemoryStore()
    store_dataframes_as_dataset(other, UUID, [frame([1])])
    with refused(other, ValueError, InvalidInput, r"missing columns \['c'\]"):
        update(other, pd.DataFrame({"x": [1], "z": [1]}), add_columns=True)


def test_columns_are_added_to_a_header_and_to_a_new_dataset(store):
    create_empty_dataset_header(store, UUID, {"table": pa.schema({"x": pa.int64()})})
    update(store, pd.DataFrame({"x": [1], "z": ["a"]}), add_columns=True)
    assert rows(store) == [(1, "a")]
    other = MemoryStore()
    update(other, pd.DataFrame({"x": [1]}), add_columns=True)
    assert rows(other) == [(1,)]


def test_a_column_is_added_to_one_table(store):
    tables = {"a": frame([1]), "b": frame([1])}
    store_dataframes_as_dataset(store, UUID, [tables])
    update(store, {**tables, "b": frame([1]).assign(z=1)}, add_columns=True)
    assert (list(schema(store, "a")), list(schema(store, "b"))) == (["c", "x"], ["c", "x", "z"])
    with refused(store, ValueError, InvalidInput, "incompatible entries for column 'z'"):
        update(store, {"a": frame([1]).assign(z="text"), "b": frame([1]).assign(z=1)}, add_columns=True)


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_a_table_whose_first_rows_were_none_learns_the_types_of_the_partition_columns(store, order):
    none = pd.DataFrame({"p": pd.Series([], dtype=object), "x": pd.Series([], dtype="int64")})
    some = pd.DataFrame({"p": [1, 2], "x": [3, 4]})
    tables = {"a": none, "b": some}
    store_dataframes_as_dataset(store, UUID, [{name: tables[name] for name in order}], partition_on="p")
    assert (schema(store, "a"), schema(store, "b")) == ({"p": "int64", "x": "int64"}, {"p": "int64", "x": "int64"})
    for name in order:
        assert (
            rows(store, table=name)
            == rows(store, table=name, predicates=[[("p", "<", 9)]])
            == ([] if name == "a" else [(1, 3), (2, 4)])
        )
    update(store, {"a": some, "b": none})
    assert rows(store, table="a") == [(1, 3), (2, 4)]
