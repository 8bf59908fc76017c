"""What the verbs of rows refuse: by an error that names dataset, column and key, before anything is
put to the store.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from kartothek_cube.api.cube import Cube, build_cube
from kartothek_cube.api.dataset import (
    create_empty_dataset_header,
    delete_rows,
    merge_dataset,
    read_table_arrow,
    store_dataframes_as_dataset,
    update_rows,
    write_single_partition,
)
from kartothek_cube.core.stores.contract import WRITES, ReadOnlyView
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import (
    DatasetNotFound,
    InvalidInput,
    InvalidRequest,
    InvalidType,
    ReadOnlyStore,
    UnknownColumn,
    Unsupported,
)
from kartothek_cube.testing.stores import CountingStore
from tests.support.datasets import UUID, contents
from tests.support.rows import ROWS, SOURCE, VERBS, WHERE, store_rows


@pytest.fixture
def store():
    store = CountingStore(MemoryStore())
    store_rows(store)
    store.reset()
    return store


def refuses(store, call, error, *words):
    """The call raises, the message has the words, and nothing was written meanwhile."""
    before = contents(store)
    store.reset()
    with pytest.raises(error) as caught:
        call()
    assert store.touched(*WRITES) == []
    assert contents(store) == before
    assert type(caught.value) is error
    for word in words:
        assert word in str(caught.value), word


def with_column(name, values):
    return SOURCE.set_column(SOURCE.column_names.index(name), name, values)


# --- conditions -----------------------------------------------------------------------------------

CONDITIONS = {
    "none": (None, InvalidInput, ["'uuid'", "delete_scope"]),
    "empty": ([], InvalidInput, ["'uuid'", "delete_scope"]),
    "an empty conjunction": ([[]], InvalidInput, ["empty"]),
    "no list": ([("x", "==", 1)], InvalidInput, ["3-tuples"]),
    "an unknown column": ([[("X", "==", 1)]], UnknownColumn, ["'uuid'", "X", "'x'"]),
    "another type": ([[("x", "==", "1")]], InvalidType, ["'uuid'", "'x'", "int64", "'1'"]),
    "an unknown operator": ([[("x", "=", 1)]], Unsupported, ["'='", "'x'"]),
}


@pytest.mark.parametrize("name", CONDITIONS)
@pytest.mark.parametrize("dry_run", [False, True])
def test_conditions_that_do_not_fit(store, name, dry_run):
    predicates, error, words = CONDITIONS[name]
    refuses(store, lambda: delete_rows(UUID, store, predicates, dry_run=dry_run), error, *words)
    refuses(store, lambda: update_rows(UUID, store, predicates, {"v1": 1.0}, dry_run=dry_run), error, *words)


# --- values of an update --------------------------------------------------------------------------

VALUES = {
    "an empty dict": ({}, InvalidType, ["'uuid'", "{}"]),
    "none": (None, InvalidType, ["'uuid'", "None"]),
    "pairs": ([("v1", 1.0)], InvalidType, ["'uuid'"]),
    "an unknown column": ({"V1": 1.0}, UnknownColumn, ["'uuid'", "V1", "Did you mean 'v1'?"]),
    "no name": ({1: 1.0}, UnknownColumn, ["'uuid'", "1"]),
    "a null partition": ({"p": None}, InvalidInput, ["'uuid'", "'p'", "partition column"]),
    "text": ({"x": "1"}, InvalidType, ["'uuid'", "'x'", "int64", "'1'"]),
    "a fraction": ({"x": 1.5}, InvalidType, ["'uuid'", "'x'", "int64", "1.5"]),
    "a fraction of numpy": ({"x": np.float64(1.5)}, InvalidType, ["'uuid'", "'x'", "int64"]),
    "a decimal fraction": ({"x": Decimal("1.5")}, InvalidType, ["'uuid'", "'x'", "int64"]),
    "a boolean": ({"x": True}, InvalidType, ["'uuid'", "'x'", "int64"]),
    "too large": ({"x": 2**63}, InvalidType, ["'uuid'", "'x'", "int64", str(2**63)]),
    "nan": ({"x": float("nan")}, InvalidType, ["'uuid'", "'x'", "int64", "nan"]),
    "several": ({"x": [1, 2]}, InvalidType, ["'uuid'", "'x'", "[1, 2]"]),
    "an Arrow scalar": ({"x": pa.scalar("1")}, InvalidType, ["'uuid'", "'x'", "string"]),
    "a number for text": ({"i1": 7}, InvalidType, ["'uuid'", "'i1'", "string", "7"]),
}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("dry_run", [False, True])
def test_values_that_do_not_fit(store, name, dry_run):
    values, error, words = VALUES[name]
    refuses(store, lambda: update_rows(UUID, store, WHERE, values, dry_run=dry_run), error, *words)


NOON, DAY = dt.datetime(2024, 2, 29, 12), dt.date(2024, 2, 29)
LOSSES = [
    (pa.date32(), NOON),
    (pa.date32(), pd.Timestamp(NOON)),
    (pa.date32(), 1),
    (pa.timestamp("us"), pd.Timestamp("2024-02-29 00:00:00.000000001")),
    (pa.timestamp("us"), 1),
    (pa.timestamp("us"), "2024-02-29"),
    (pa.uint8(), -1),
    (pa.uint8(), 256),
    (pa.int64(), pa.scalar(1.5)),
    (pa.float32(), 1e300),
    (pa.decimal128(6, 2), Decimal("1.005")),
    (pa.decimal128(6, 2), 1.5),
    (pa.bool_(), 1),
    (pa.float64(), 2**53 + 1),
]
KEPT = [
    (pa.date32(), DAY, DAY),
    (pa.date32(), dt.datetime(2024, 2, 29), DAY),
    (pa.date32(), pd.Timestamp(DAY), DAY),
    (pa.timestamp("us"), NOON, NOON),
    (pa.timestamp("us"), pd.Timestamp(NOON), NOON),
    (pa.uint8(), np.int64(255), 255),
    (pa.int64(), 2.0, 2),
    (pa.int64(), pa.scalar(2, pa.int8()), 2),
    (pa.float32(), float("inf"), float("inf")),
    (pa.float64(), 3, 3.0),
    (pa.decimal128(6, 2), Decimal("1.5"), Decimal("1.50")),
    (pa.bool_(), np.bool_(True), True),
    (pa.string(), np.str_("a"), "a"),
    (pa.timestamp("us"), None, None),
    (pa.float64(), None, None),
]


def one_row(kind):
    store = CountingStore(MemoryStore())
    store_dataframes_as_dataset(store, UUID, [pa.table({"n": [1], "v1": pa.array([None], kind)})])
    return store


@pytest.mark.parametrize(("kind", "value"), LOSSES)
def test_a_value_that_its_column_cannot_hold_whole(kind, value):
    store = one_row(kind)
    refuses(store, lambda: update_rows(UUID, store, [[("n", "==", 1)]], {"v1": value}), InvalidType, "'v1'", str(kind))


@pytest.mark.parametrize(("kind", "value", "kept"), KEPT)
def test_a_value_that_means_the_same_in_the_type_of_its_column(kind, value, kept):
    store = one_row(kind)
    assert update_rows(UUID, store, [[("n", "==", 1)]], {"v1": value}).updated == 1
    assert read_table_arrow(UUID, store)["v1"].to_pylist() == [kept]


FUNCTIONS = {
    "nothing": (lambda rows: None, InvalidType, ["NoneType"]),
    "a frame": (lambda rows: rows.to_pandas(), InvalidType, ["DataFrame"]),
    "fewer rows": (lambda rows: rows.slice(1), InvalidInput, ["rows for"]),
    "more rows": (lambda rows: pa.concat_tables([rows, rows]), InvalidInput, ["rows for"]),
    "fewer columns": (lambda rows: rows.drop_columns(["v1"]), InvalidInput, ["v1"]),
    "more columns": (lambda rows: rows.append_column("z", rows["x"]), InvalidInput, ["z"]),
    "a column twice": (lambda rows: rows.append_column("x", rows["x"]), InvalidInput, ["x"]),
    "another name": (lambda rows: rows.rename_columns(["z", *rows.column_names[1:]]), InvalidInput, ["z"]),
    "another type": (
        lambda rows: rows.set_column(rows.column_names.index("x"), "x", rows["x"].cast("double")),
        InvalidType,
        ["'x'", "double", "int64"],
    ),
    "null partitions": (
        lambda rows: rows.set_column(rows.column_names.index("p"), "p", pa.nulls(len(rows), pa.string())),
        InvalidInput,
        ["'p'", "partition column"],
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_that_returns_something_else(store, name):
    function, error, words = FUNCTIONS[name]
    refuses(store, lambda: update_rows(UUID, store, WHERE, function), error, "'uuid'", *words)


def test_an_error_of_a_function_is_the_users_own(store):
    def divide(rows):
        raise ZeroDivisionError("by nothing")

    refuses(store, lambda: update_rows(UUID, store, WHERE, divide), ZeroDivisionError, "by nothing")


# --- merges ---------------------------------------------------------------------------------------

SOURCES = {
    "nothing": (None, InvalidInput, ["'uuid'"]),
    "no frames": ([], InvalidInput, ["'uuid'"]),
    "a key twice": (pa.concat_tables([SOURCE, SOURCE[1:]]), InvalidInput, ["'uuid'", "{'x': 9}", "twice"]),
    "a key in two pieces": ([SOURCE, SOURCE[1:]], InvalidInput, ["'uuid'", "{'x': 9}", "twice"]),
    "a null key": (with_column("x", pa.array([3, None])), InvalidInput, ["'uuid'", "'x'", "1 rows"]),
    "a null key in a later piece": (
        [SOURCE, with_column("x", pa.array([4, None]))],
        InvalidInput,
        ["'uuid'", "'x'"],
    ),
    "an untyped null key": (with_column("x", pa.nulls(2)), InvalidInput, ["'uuid'", "'x'", "2 rows"]),
    "no key column": (SOURCE.drop_columns(["x"]), InvalidInput, ["'uuid'", "['x']"]),
    "no partition column": (SOURCE.drop_columns(["p"]), InvalidInput, ["'uuid'", "['p']"]),
    "a null partition": (with_column("p", pa.array(["b", None])), InvalidInput, ["'uuid'", "['p']"]),
    "an unknown column": (SOURCE.append_column("V1", SOURCE["v1"]), UnknownColumn, ["'uuid'", "V1", "'v1'"]),
    "another type": (with_column("v1", pa.array(["a", "b"])), InvalidInput, ["'uuid'", "'v1'", "double", "string"]),
    "another type of the key": (with_column("x", pa.array(["a", "b"])), InvalidInput, ["'uuid'", "'x'", "string"]),
    "a wider type": (with_column("x", pa.array([3.0, 9.0])), InvalidInput, ["'uuid'", "'x'", "double"]),
    "another type in a later piece": (
        [SOURCE, pa.table({"x": [5], "p": ["a"], "v1": ["b"]})],
        InvalidInput,
        ["'uuid'", "'v1'", "string"],
    ),
    "other columns in a later piece": ([SOURCE, SOURCE.drop_columns(["v1"])], InvalidInput, ["'uuid'", "'v1'"]),
    "two tables": ({"data": {"table": SOURCE, "more": SOURCE}}, InvalidInput, ["'uuid'", "2"]),
}


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("dry_run", [False, True])
def test_a_source_that_does_not_fit(store, name, dry_run):
    source, error, words = SOURCES[name]
    refuses(store, lambda: merge_dataset(source, store, UUID, "x", dry_run=dry_run), error, *words)


def test_nan_is_no_key():
    store = one_row(pa.float64())
    source = pa.table({"v1": [1.0, float("nan")], "n": [1, 2]})
    refuses(store, lambda: merge_dataset(source, store, UUID, "v1"), InvalidInput, "'uuid'", "'v1'", "1 rows")


def test_zero_and_minus_zero_are_one_key():
    store = one_row(pa.float64())
    source = pa.table({"v1": [0.0, -0.0], "n": [1, 2]})
    refuses(store, lambda: merge_dataset(source, store, UUID, "v1"), InvalidInput, "'v1'", "twice")


ARGUMENTS = {
    "no key": ({"on": []}, InvalidInput, ["on", "'uuid'"]),
    "None as the key": ({"on": None}, InvalidInput, ["on", "'uuid'"]),
    "a number as the key": ({"on": 5}, InvalidType, ["on", "5"]),
    "a key column twice": ({"on": ["x", "x"]}, InvalidInput, ["on", "['x', 'x']"]),
    "an unknown key": ({"on": "X"}, UnknownColumn, ["'uuid'", "X", "'x'"]),
    **{
        f"{name}={value!r}": ({name: value}, InvalidInput, [name, repr(value)])
        for name in ("when_matched", "when_not_matched", "when_not_matched_by_source")
        for value in ("upsert", ["update"], True)
    },
    "on_conflict": ({"on_conflict": "ignore"}, InvalidInput, ["on_conflict", "'ignore'"]),
    "dry_run": ({"dry_run": "yes"}, InvalidType, ["dry_run", "'yes'"]),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_of_a_merge_are_checked_before_the_source_is_read(store, name):
    given, error, words = ARGUMENTS[name]
    source = iter([SOURCE])
    refuses(store, lambda: merge_dataset(source, store, UUID, **{"on": "x", **given}), error, *words)
    assert next(source) is SOURCE


def test_a_list_is_no_key():
    store = CountingStore(MemoryStore())
    rows = pa.table({"x": [[1]], "v1": [1]})
    store_dataframes_as_dataset(store, UUID, [rows])
    refuses(store, lambda: merge_dataset(rows, store, UUID, "x"), Unsupported, "'uuid'", "['x']")


def test_a_key_that_is_there_is_an_error_on_demand(store):
    refuses(
        store,
        lambda: merge_dataset(SOURCE, store, UUID, "x", when_matched="error"),
        InvalidInput,
        "'uuid'",
        "{'x': 3}",
        'when_matched is "error"',
    )


# --- datasets -------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("given", "error"), [({"on_conflict": "ignore"}, InvalidInput), ({"dry_run": 1}, InvalidType)], ids=str
)
def test_the_arguments_of_all_verbs(store, verb, given, error):
    refuses(store, lambda: VERBS[verb](store, **given), error, *given)


@pytest.mark.parametrize("verb", VERBS)
def test_a_dataset_that_does_not_exist(verb):
    store = CountingStore(MemoryStore())
    refuses(store, lambda: VERBS[verb](store), DatasetNotFound, "uuid")


@pytest.mark.parametrize("verb", VERBS)
def test_a_dataset_whose_partitions_are_not_listed(verb):
    store = CountingStore(MemoryStore())
    create_empty_dataset_header(store, UUID, {"table": ROWS[0].schema}, partition_on="p")
    write_single_partition(store, UUID, ROWS[0])
    refuses(store, lambda: VERBS[verb](store), InvalidRequest, "'uuid'", "lists no partitions")


@pytest.mark.parametrize("verb", VERBS)
def test_a_dataset_of_several_tables(verb):
    store = CountingStore(MemoryStore())
    store_dataframes_as_dataset(store, UUID, [{"table": ROWS[0], "more": ROWS[0]}], partition_on="p")
    refuses(store, lambda: VERBS[verb](store), Unsupported, "'uuid'", "['more', 'table']")


@pytest.mark.parametrize("verb", VERBS)
def test_a_store_that_cannot_be_written(store, verb):
    refuses(store, lambda: VERBS[verb](ReadOnlyView(store)), ReadOnlyStore)
    assert VERBS[verb](ReadOnlyView(store), dry_run=True).matched


# --- datasets of a cube ---------------------------------------------------------------------------

CUBE = Cube(["x", "y"], ["p"], "cube", index_columns=["i1"])
CELLS = pa.table({"x": [1, 0], "y": ["a", "b"], "p": [0, 0], "i1": [5, 6], "v1": [1.0, 2.0]})
SEED = "cube++seed"


@pytest.fixture
def cube():
    store = CountingStore(MemoryStore())
    build_cube(CELLS, CUBE, store)
    return store


@pytest.mark.parametrize(("column", "value"), [("x", 5), ("y", "z"), ("p", 1)])
def test_an_update_keeps_the_address_of_a_cell(cube, column, value):
    where = [[("i1", "==", 5)]]
    refuses(cube, lambda: update_rows(SEED, cube, where, {column: value}), InvalidInput, f"'{column}'", f"'{SEED}'")

    def move(rows):
        return rows.set_column(rows.column_names.index(column), column, [[value] * len(rows)])

    refuses(cube, lambda: update_rows(SEED, cube, where, move), InvalidInput, f"'{column}'", f"'{SEED}'")


@pytest.mark.parametrize("on", [["x", "y"], ["x"], ["i1"], ["x", "y", "p", "i1"]], ids=str)
def test_a_merge_into_a_dataset_of_a_cube_is_by_its_cells(cube, on):
    refuses(cube, lambda: merge_dataset(CELLS, cube, SEED, on), InvalidInput, f"'{SEED}'", "['x', 'y', 'p']")
