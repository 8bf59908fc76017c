"""Constants of predicates obey one table of rules, whether their column is a partition key, has an
index, or is in the files only.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kartothek_cube.core.dataset.read import read_dataset_as_dataframes, read_table
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import InvalidType
from tests.support.commits import UUID, write

DAYS = [dt.date(2024, 2, 28), dt.date(2024, 2, 29)]
NOON = dt.datetime(2024, 2, 29, 12)
AWARE = NOON.replace(tzinfo=dt.UTC)

# The first of two rows is found, the second is not.
COLUMNS = {
    "int": pa.array([1, 2], pa.int8()),
    "uint": pa.array([1, 2], pa.uint16()),
    "float": pa.array([1.0, 2.0]),
    "bool": pa.array([True, False]),
    "text": pa.array(["a", "b"]),
    "binary": pa.array([b"a", b"b"]),
    "date": pa.array(DAYS),
    "moment": pa.array([NOON, NOON + dt.timedelta(microseconds=1)]),
    "zone": pa.array([NOON, NOON + dt.timedelta(microseconds=1)], pa.timestamp("us", tz="Europe/Berlin")),
}
PLACES = {"file": {}, "index": {"index": ["v1"]}, "key": {"on": ["v1"]}}

places = pytest.mark.parametrize("place", PLACES)
pushdown = pytest.mark.parametrize("pushdown", [True, False], ids=["pushdown", "rows"])


def stored(column, **where):
    store = MemoryStore()
    write(store, {"x": range(len(column)), "v1": column}, serializer={"chunk_size": 1}, **where)
    return store


def found(store, op, value, pushdown=True):
    return read_table(UUID, store, columns=["x"], predicates=[[("v1", op, value)]], predicate_pushdown_to_io=pushdown)[
        "x"
    ].tolist()


@places
@pushdown
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("int", np.uint8(1)),  # H12
        ("uint", np.int64(1)),  # H12
        ("float", np.float32(1)),  # H12
        ("bool", np.bool_(True)),  # H12
        ("text", b"a"),  # H13
        ("binary", "a"),  # H13
        ("date", "2024-02-28"),  # H14
        ("date", b"2024-02-28"),  # H14
        ("int", 1.0),  # H09
        ("int", Decimal(1)),
        ("int", pa.scalar(1, pa.uint32())),
        ("float", 1),  # H10
        ("float", Decimal("1.0")),
        ("date", dt.datetime(2024, 2, 28)),  # H15
        ("date", np.datetime64("2024-02-28")),
        ("moment", "2024-02-29 12:00"),  # H16
        ("zone", "2024-02-29T13:00+01:00"),
        ("zone", NOON),  # H17, I18
        ("zone", AWARE),  # H17, I18
        ("zone", AWARE.astimezone(dt.timezone(dt.timedelta(hours=9)))),  # H17
    ],
    ids=str,
)
def test_spellings_of_a_value_find_it_wherever_it_lies(name, value, place, pushdown):
    if (name, place) in (("binary", "key"), ("zone", "key")):  # no types of partition columns
        place = "file"
    store = stored(COLUMNS[name], **PLACES[place])
    assert found(store, "==", value, pushdown) == found(store, "in", {value}, pushdown) == [0]  # H25
    assert found(store, "!=", value, pushdown) == found(store, "not in", [value], pushdown) == [1]  # H05


@places
@pushdown
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("int", "1"),
        ("float", "1.0"),
        ("float", Decimal("0.1")),
        ("bool", 1),  # H11
        ("bool", 0),  # H11
        ("int", True),  # H11
        ("date", AWARE),  # H15
        ("moment", AWARE),
        ("moment", "28.2.2024"),  # H16
        ("zone", DAYS[0]),
        ("zone", "2024-02-28"),
    ],
    ids=str,
)
def test_constants_of_another_family_are_refused_wherever_the_column_lies(name, value, place, pushdown):
    store = stored(COLUMNS[name], **PLACES["file" if (name, place) == ("zone", "key") else place])
    for op, constant in (("==", value), ("in", [value])):
        with pytest.raises(InvalidType, match="Unexpected type for predicate"):
            found(store, op, constant, pushdown)


@places
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (DAYS[0], "2024-02-28"),
        (np.datetime64("2024-02-28"), "2024-02-28"),
        (pa.scalar(DAYS[0]), "2024-02-28"),
        (NOON, "2024-02-29 12:00:00"),
    ],
    ids=str,
)
def test_a_date_for_a_column_of_texts_is_refused_with_what_is_right(value, text, place):
    store = stored(pa.array(["2024-02-28", "2024-02-29"]), **PLACES[place])
    with pytest.raises(InvalidType, match=rf"'v1'.* is string.*Write the text '{text}', or store the column as dates"):
        found(store, ">=", value)
    assert found(store, "<", "2024-02-29") == [0]


@pushdown
@pytest.mark.parametrize("index", [[], ["v1"]])
@pytest.mark.parametrize("name", COLUMNS)
def test_nulls_are_found_in_every_type_and_satisfy_no_order(name, index, pushdown):
    first = COLUMNS[name][0].as_py()
    store = stored(pa.array([*COLUMNS[name].to_pylist(), None], COLUMNS[name].type), index=index)
    assert found(store, "==", None, pushdown) == found(store, "in", [None], pushdown) == [2]  # H18, H19, H24
    assert found(store, "!=", first, pushdown) == [1, 2]  # H21
    assert found(store, ">=", min(COLUMNS[name].to_pylist()), pushdown) == [0, 1]  # H22, H37
    assert found(store, "in", [], pushdown) == []  # H23


@pushdown
def test_nan_finds_nan(pushdown):
    store = stored(pa.array([0.5, float("nan"), None]))
    assert found(store, "==", float("nan"), pushdown) == found(store, "==", None, pushdown) == [1, 2]  # H20
    assert found(store, "!=", float("nan"), pushdown) == [0]


@pushdown
def test_a_file_that_is_null_throughout_obeys_the_same_rules(pushdown):  # H30
    store = MemoryStore()
    for label, column in (("a", pa.nulls(1)), ("b", pa.array(["u"]))):
        write(store, {"x": [len(label)], "v1": column}, label=label)
    assert pq.read_schema(pa.BufferReader(store.get(f"{UUID}/table/a.parquet"))).field("v1").type == pa.null()
    assert len(found(store, "==", None, pushdown)) == len(found(store, "!=", "u", pushdown)) == 1
    assert len(found(store, "!=", "w", pushdown)) == 2
    assert len(found(store, "<", "w", pushdown)) == 1


@pushdown
def test_lists_are_null_or_not(pushdown):  # H36
    store = stored(pa.array([[1], None], pa.list_(pa.int64())))
    with pytest.raises(InvalidType, match="It takes nothing but null"):
        found(store, "==", 1, pushdown)
    assert (
        found(store, "==", None, pushdown),
        found(store, "!=", None, pushdown),
        found(store, "in", [], pushdown),
    ) == ([1], [0], [])


def test_integers_with_nulls_are_compared_without_rounding():  # H37
    store = stored(pa.array([2**53, 2**53 + 1, None]))
    frame = read_table(UUID, store, predicates=[[("v1", ">", 2**53)]])
    assert frame["v1"].tolist() == [2**53 + 1]


@pushdown
def test_rows_of_a_result_are_counted_anew(pushdown):  # H38
    store = stored(pa.array(range(6)))
    arguments = {"predicates": [[("v1", "in", [1, 3, 4])]], "predicate_pushdown_to_io": pushdown}
    (entry,) = read_dataset_as_dataframes(UUID, store, **arguments)
    for frame in (read_table(UUID, store, **arguments), entry["table"]):
        assert (frame.index.tolist(), frame["x"].tolist()) == ([0, 1, 2], [1, 3, 4])


def test_alternatives_on_keys_and_columns_give_a_row_once_and_all_rows_of_a_key():
    store = MemoryStore()
    write(store, {"p": [1, 1, 2, 2], "i1": ["a", "b", "a", None], "x": [0, 1, 2, 3]}, on=["p"], index=["i1"])

    def read(*conjunctions):
        return read_table(UUID, store, predicates=list(conjunctions))["x"].tolist()

    assert read([("p", "==", 1)], [("x", ">", 0)], [("i1", "==", "a")]) == [0, 1, 2, 3]  # H06
    assert read([("p", "==", 1)], [("x", ">", 100)]) == [0, 1]  # H08
    assert read([("p", "==", 1), ("x", ">", 0)], [("p", "==", 2), ("x", "<", 3)]) == [1, 2]  # H07
