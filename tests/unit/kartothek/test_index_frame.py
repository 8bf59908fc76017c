from __future__ import annotations

import datetime as dt
from itertools import product

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kartothek_cube.core.kartothek.indices import ExplicitSecondaryIndex, PartitionIndex, indices_as_frame, query_labels
from kartothek_cube.errors import InvalidInput, InvalidType, UnknownColumn

LABELS = ["p=2/b", "p=1/a", "p=1/c"]
INDICES = {
    "p": PartitionIndex("p", {1: ["p=1/a", "p=1/c"], 2: ["p=2/b"]}, dtype=pa.int64()),
    "x": ExplicitSecondaryIndex("x", {"v": ["p=2/b", "p=1/a"], "u": ["p=1/a", "p=1/gone"]}),
    "day": ExplicitSecondaryIndex("day", {dt.date(2024, 1, 1): LABELS}),
}
UNLOADED = {"x": ExplicitSecondaryIndex("x", index_storage_key="key", dtype=pa.string())}


def rows(frame):
    """The frame as tuples, nulls as None."""
    table = frame.astype(object).where(frame.notna(), None)
    return [(label, *values) for label, values in zip(frame.index, table.to_numpy().tolist(), strict=True)]


# --- query_labels ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, LABELS),
        ({"p": 1}, ["p=1/a", "p=1/c"]),
        ({"p": "1"}, ["p=1/a", "p=1/c"]),
        ({"x": "v"}, ["p=2/b", "p=1/a"]),
        ({"x": "v", "p": 1}, ["p=1/a"]),
        ({"x": "u", "p": 2}, []),
        ({"x": "w"}, []),
        ({"day": "2024-01-01"}, LABELS),
    ],
)
def test_labels_that_hold_all_values_come_in_document_order(values, expected):
    assert query_labels(LABELS, INDICES, **values) == expected


def test_labels_that_the_dataset_does_not_have_are_ignored():
    assert query_labels(["other"], INDICES, x="u") == []
    assert query_labels([], INDICES, x="u") == []


def test_a_column_may_have_any_name():
    indices = {name: ExplicitSecondaryIndex(name, {1: ["a"]}) for name in ("labels", "indices", "self")}
    assert query_labels(["a", "b"], indices, labels=1, indices=1, self=1) == ["a"]


@pytest.mark.parametrize(
    ("indices", "values", "error", "message"),
    [
        (INDICES, {"z": 1}, UnknownColumn, r"z\. There are indices on \['day', 'p', 'x'\]"),
        (UNLOADED, {"x": "u"}, InvalidInput, "not loaded"),
        (INDICES, {"x": None}, InvalidType, "knows no nulls"),
        (INDICES, {"p": "u"}, InvalidInput, "'u'"),
    ],
)
def test_what_cannot_be_looked_up_is_refused(indices, values, error, message):
    with pytest.raises(error, match=message):
        query_labels(LABELS, indices, **values)


# --- indices_as_frame -----------------------------------------------------------------------------


def test_one_row_for_each_combination_and_a_null_where_an_index_knows_no_value():  # I06
    frame = indices_as_frame(LABELS, INDICES)
    day = dt.date(2024, 1, 1)
    assert list(frame.columns) == ["day", "p", "x"]
    assert frame.index.name == "partition"
    assert rows(frame) == [
        ("p=2/b", day, 2, "v"),
        ("p=1/a", day, 1, "u"),
        ("p=1/a", day, 1, "v"),
        ("p=1/c", day, 1, None),
    ]


def test_columns_come_as_they_are_asked_for():
    assert list(indices_as_frame(LABELS, INDICES, columns=["x", "p"]).columns) == ["x", "p"]
    assert list(indices_as_frame(LABELS, INDICES, columns=iter(["p", "x"])).columns) == ["p", "x"]


@pytest.mark.parametrize("columns", [[], None])
def test_without_columns_there_is_a_row_for_each_label(columns):  # I05
    frame = indices_as_frame(LABELS, INDICES if columns is not None else {}, columns)
    assert frame.shape == (3, 0)
    assert list(frame.index) == LABELS
    assert frame.index.name is None


def test_dates_are_objects_or_moments():
    assert indices_as_frame(LABELS, INDICES, ["day"])["day"].tolist() == [dt.date(2024, 1, 1)] * 3
    frame = indices_as_frame(LABELS, INDICES, ["day"], date_as_object=False)
    assert pd.api.types.is_datetime64_dtype(frame["day"])
    assert frame["day"].tolist() == [pd.Timestamp("2024-01-01")] * 3


@pytest.mark.parametrize(
    ("columns", "predicates", "expected"),
    [
        (["x"], [[("x", "==", "v")]], [("p=2/b", "v"), ("p=1/a", "v")]),
        (["x"], [[("p", "==", 1)]], [("p=1/a", "u"), ("p=1/a", "v"), ("p=1/c", None)]),
        (["x"], [[("p", "==", 1), ("x", ">", "u")]], [("p=1/a", "v")]),
        (["x"], [[("x", "!=", "v")]], [("p=1/a", "u"), ("p=1/c", None)]),
        (["x"], [[("x", "==", None)]], [("p=1/c", None)]),
        (["x"], [[("x", "!=", None)]], [("p=2/b", "v"), ("p=1/a", "u"), ("p=1/a", "v")]),
        (["x"], [[("x", "in", ["u", None])]], [("p=1/a", "u"), ("p=1/c", None)]),
        (["p"], [[("x", "in", ["u", "v"])]], [("p=2/b", 2), ("p=1/a", 1)]),
        (["p"], [[("x", "==", "u")], [("p", "==", 2)]], [("p=2/b", 2), ("p=1/a", 1)]),
        (["p"], [[("x", "==", "u"), ("v1", ">", 1)]], [("p=1/a", 1)]),
        (["p"], [[("x", "==", "u")], [("v1", ">", 1)]], [("p=2/b", 2), ("p=1/a", 1), ("p=1/c", 1)]),
        ([], [[("x", "in", ["u", "v"])]], [("p=2/b",), ("p=1/a",)]),
        (["p"], [[("p", ">", 7)]], []),
    ],
)
def test_predicates_keep_rows_and_their_other_columns_are_dropped(columns, predicates, expected):
    frame = indices_as_frame(LABELS, INDICES, columns, predicates=predicates)
    assert rows(frame) == expected
    assert list(frame.columns) == columns


def test_integers_and_booleans_beside_a_null_keep_their_values():
    indices = {
        "x": ExplicitSecondaryIndex("x", {2**64 - 1: ["a"], 2**64 - 2: ["b"]}, dtype=pa.uint64()),
        "y": ExplicitSecondaryIndex("y", {True: ["a"]}),
    }
    frame = indices_as_frame(["a", "b", "c"], indices)
    assert rows(frame) == [("a", 2**64 - 1, True), ("b", 2**64 - 2, None), ("c", None, None)]
    assert indices_as_frame(["a", "b"], indices, ["x"])["x"].dtype == "uint64"


def test_an_index_without_values_and_a_dataset_without_partitions():
    empty = {"x": ExplicitSecondaryIndex("x", {}, dtype=pa.int64())}
    assert rows(indices_as_frame(["a"], empty)) == [("a", None)]
    assert indices_as_frame([], INDICES).shape == (0, 3)
    assert indices_as_frame([], empty, predicates=[[("x", ">", 1)]]).shape == (0, 1)


@pytest.mark.parametrize(
    ("indices", "arguments", "error", "message"),
    [
        (INDICES, {"columns": ["z", "p"]}, UnknownColumn, "Unknown index columns: z"),
        (INDICES, {"columns": ["p", "p"]}, InvalidInput, "twice"),
        (UNLOADED, {}, InvalidInput, "'x' is not loaded"),
        (UNLOADED, {"columns": [], "predicates": [[("x", "==", "u")]]}, InvalidInput, "'x' is not loaded"),
        (INDICES, {"predicates": [[("p", "==", "u")]]}, InvalidType, "Unexpected type for predicate"),
        (INDICES, {"predicates": []}, InvalidInput, "Empty predicates"),
    ],
)
def test_what_cannot_be_shown_is_refused(indices, arguments, error, message):
    with pytest.raises(error, match=message):
        indices_as_frame(LABELS, indices, **arguments)


# --- against a loop -------------------------------------------------------------------------------

NAMES = ["d", "a", "c", "b"]
DCTS = st.dictionaries(st.integers(0, 3), st.lists(st.sampled_from([*NAMES, "gone"]), max_size=3), max_size=4)


def naive(dcts, chosen, accepts):
    """Label by label, every combination of its values; null comes last."""
    for label in NAMES:
        values = [sorted(v for v, labels in dct.items() if label in labels) or [None] for dct in dcts.values()]
        combinations = [dict(zip(dcts, combination, strict=True)) for combination in product(*values)]
        kept = {tuple(row[c] for c in chosen) for row in combinations if accepts(row)}
        yield from ((label, *row) for row in sorted(kept, key=lambda row: [(v is None, v) for v in row]))


@given(
    DCTS,
    DCTS,
    st.permutations(["x", "y"]).flatmap(lambda order: st.integers(0, 2).map(lambda n: order[:n])),
    st.integers(0, 3),
    st.integers(0, 3),
)
def test_the_frame_is_that_of_a_loop(first, second, chosen, low, other):
    dcts = {"x": first, "y": second}
    indices = {c: ExplicitSecondaryIndex(c, dct, dtype=pa.int64()) for c, dct in dcts.items()}
    assert rows(indices_as_frame(NAMES, indices, chosen)) == list(
        naive({c: dcts[c] for c in chosen}, chosen, lambda row: True)
    )
    predicates = [[("x", ">=", low), ("y", "!=", other)], [("y", "==", None)]]
    kept = naive(
        dcts, chosen, lambda row: (row["x"] is not None and row["x"] >= low and row["y"] != other) or row["y"] is None
    )
    assert rows(indices_as_frame(NAMES, indices, chosen, predicates=predicates)) == list(kept)
