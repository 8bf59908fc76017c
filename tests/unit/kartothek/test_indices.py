from __future__ import annotations

import datetime as dt
import logging
import operator
import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kartothek_cube.core.kartothek.indices import (
    ExplicitSecondaryIndex,
    IndexBase,
    PartitionIndex,
    filter_indices,
    merge_indices,
    remove_partitions_from_indices,
)
from kartothek_cube.core.metadata.index import build_index, column_index
from kartothek_cube.core.snapshots.loader import load_index
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import CorruptData, InvalidInput, InvalidType, KeyNotFound, Unsupported
from tests.support.commits import UUID, write

BERLIN = pa.timestamp("us", tz="Europe/Berlin")
NOON = dt.datetime(2024, 7, 1, 12)
UNLOADED = ExplicitSecondaryIndex("x", index_storage_key="uuid/indices/x/1.by-dataset-index.parquet", dtype=pa.int64())


def explicit(dct, dtype=None, **more):
    return ExplicitSecondaryIndex("x", dct, dtype=dtype, **more)


# --- making an index ------------------------------------------------------------------------------


def test_values_are_normalised_and_collisions_merged_with_a_warning(caplog):  # I11
    with caplog.at_level(logging.WARNING):
        index = explicit({1: ["a", "b"], "1": ["b", "c"], 2.0: ["a"]}, pa.int8())
    assert index.index_dct == {1: ["a", "b", "c"], 2: ["a"]}
    assert index.dtype == pa.int64()
    assert "1 collision(s)" in "\n".join(caplog.messages)


def test_no_warning_without_a_collision(caplog):
    explicit({1: ["a"], 2: ["a"]})
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1, 2], pa.int64()),
        ([np.uint8(1)], pa.uint64()),
        ([1.5], pa.float64()),
        (["a"], pa.string()),
        ([b"a"], pa.binary()),
        ([True], pa.bool_()),
        ([dt.date(2024, 1, 1)], pa.date32()),
        ([NOON], pa.timestamp("us")),
        ([np.datetime64("2024-01-01", "ns")], pa.timestamp("us")),
        ([pd.Timestamp("2024-01-01", tz="UTC")], pa.timestamp("us", tz="UTC")),
    ],
    ids=str,
)
def test_the_type_is_that_of_the_values(values, dtype):
    assert explicit({v: ["a"] for v in values}).dtype == dtype


@pytest.mark.parametrize(
    ("dtype", "kept"),
    [(pa.int8(), pa.int64()), (pa.large_string(), pa.string()), (pa.timestamp("ns"), pa.timestamp("us"))],
    ids=str,
)
def test_types_are_normalised_if_asked_for(dtype, kept):
    assert explicit({}, dtype).dtype == explicit({}, dtype).data.values.type == kept
    assert (
        explicit({}, dtype, normalize_dtype=False).dtype
        == explicit({}, dtype, normalize_dtype=False).data.values.type
        == dtype
    )


@pytest.mark.parametrize(
    ("arguments", "error", "builtin", "message"),
    [
        ({"column": "partition", "index_dct": {1: ["a"]}}, InvalidInput, ValueError, "'partition'"),
        ({"column": "partition", "index_storage_key": "k"}, InvalidInput, ValueError, "'partition'"),
        ({"index_dct": {}, "dtype": pa.list_(pa.int64())}, Unsupported, NotImplementedError, "list"),
        ({"index_dct": {}, "dtype": pa.null()}, Unsupported, NotImplementedError, "null"),
        ({"index_dct": {}, "dtype": pa.decimal128(4, 2)}, Unsupported, NotImplementedError, "decimal"),
        ({}, InvalidInput, ValueError, "No valid index source specified"),
        ({"index_dct": {}}, InvalidInput, ValueError, "Trying to create non-typesafe index"),
        ({"index_dct": {1: ["a"], "b": ["a"]}}, InvalidInput, ValueError, "no common type"),
        ({"index_dct": {-1: ["a"]}, "dtype": pa.uint64()}, InvalidInput, ValueError, "'x' cannot be stored as uint64"),
        (
            {"index_dct": {2**64: ["a"]}, "dtype": pa.uint64()},
            InvalidInput,
            ValueError,
            "'x' cannot be stored as uint64",
        ),
        ({"index_dct": {"b": ["a"]}, "dtype": pa.int64()}, InvalidInput, ValueError, "'b'"),
        ({"index_dct": {np.datetime64(1, "ns"): ["a"]}}, InvalidInput, ValueError, "finer than a microsecond"),
        ({"index_dct": {None: ["a"]}, "dtype": pa.string()}, InvalidType, TypeError, "no nulls"),
        ({"index_dct": {float("nan"): ["a"]}}, InvalidType, TypeError, "no nulls"),
        ({"index_dct": {1: "ab"}}, InvalidType, TypeError, "list of labels"),
        ({"index_dct": {1: [2]}}, InvalidType, TypeError, "are text"),
        ({"index_dct": {1: 5}}, InvalidType, TypeError, "list of labels"),
        ({"index_dct": [1]}, InvalidType, TypeError, "should be a dict"),
        ({"index_dct": {1}, "dtype": pa.int64()}, InvalidType, TypeError, "should be a dict"),
        ({"index_dct": {"": ["a"]}, "dtype": pa.timestamp("us")}, InvalidInput, ValueError, "it is no moment"),
    ],
)
def test_what_makes_no_index_is_refused(arguments, error, builtin, message):
    with pytest.raises(error, match=message.replace("(", r"\(")) as raised:
        ExplicitSecondaryIndex(**({"column": "x"} | arguments))
    assert isinstance(raised.value, builtin)


def test_a_partition_index_needs_a_type():
    with pytest.raises(InvalidInput, match="dtype of column 'p' cannot be None"):
        PartitionIndex("p", {1: ["a"]})
    empty = PartitionIndex("p", {}, dtype=pa.int64())
    assert (empty.loaded, empty.index_dct, empty.query(1)) == (True, {}, [])


def test_an_empty_dict_with_a_key_but_no_type_is_not_loaded():
    assert not explicit({}, index_storage_key="k").loaded


def test_facades_of_indices_that_are_there():
    data = build_index("x", pa.int64(), [(pa.array([2, 1]), "b"), (pa.array([1]), "a"), (pa.array([1]), "a")])
    secondary, partition = ExplicitSecondaryIndex.of(data, "key"), PartitionIndex.of(data)
    assert secondary.data is data
    assert (secondary.index_storage_key, secondary.loaded, secondary.dtype) == ("key", True, pa.int64())
    assert secondary.index_dct == partition.index_dct == {1: ["a", "b"], 2: ["b"]}


def test_an_index_of_partition_values_leaves_nulls_out():
    labels = pa.array(["a", "b", "c"])
    index = PartitionIndex.of(column_index("p", pa.chunked_array([[1.0], [None, float("nan")]]), labels))
    assert index.index_dct == {1.0: ["a"]}
    assert len(column_index("p", pa.chunked_array([], type=pa.int64()), labels[:0])) == 0
    assert PartitionIndex.of(column_index("p", pa.array([1, 1, 2]), labels)).index_dct == {1: ["a", "b"], 2: ["c"]}


@pytest.mark.parametrize(("entry", "loaded"), [("key", False), ({"1": ["a"]}, True)])
def test_entries_of_a_document(entry, loaded):
    index = ExplicitSecondaryIndex.from_v2("x", entry)
    assert index.loaded == loaded
    assert index.index_storage_key == (None if loaded else "key")


def test_an_entry_that_makes_no_sense_is_refused():
    with pytest.raises(InvalidType, match="'x' should be a key or a mapping"):
        ExplicitSecondaryIndex.from_v2("x", 3)


# --- values of lenient types ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        (pa.string(), 1, "1"),
        (pa.string(), b"\xc3\xa4", "ä"),
        (pa.large_string(), "a", "a"),
        (pa.binary(), "ä", b"\xc3\xa4"),
        (pa.binary(), 1, b"1"),
        (pa.date32(), "2020-01-02", dt.date(2020, 1, 2)),
        (pa.date32(), dt.datetime(2020, 1, 2, 3), dt.date(2020, 1, 2)),
        (pa.date32(), np.datetime64("2020-01-02"), dt.date(2020, 1, 2)),
        (pa.date32(), dt.date(1, 1, 1), dt.date(1, 1, 1)),
        (pa.timestamp("us"), "2020-01-02", np.datetime64("2020-01-02", "ns")),
        (pa.timestamp("us"), dt.date(2020, 1, 2), np.datetime64("2020-01-02", "ns")),
        (pa.timestamp("us"), pd.Timestamp("2020-01-02T01", tz="Europe/Berlin"), np.datetime64("2020-01-02", "ns")),
        (pa.timestamp("us"), dt.datetime(9999, 1, 1), np.datetime64("9999-01-01", "us")),
        (BERLIN, pd.Timestamp("2020-01-02"), pd.Timestamp("2020-01-02T01", tz="Europe/Berlin")),
        (BERLIN, pd.Timestamp("2020-01-02", tz="UTC"), pd.Timestamp("2020-01-02T01", tz="Europe/Berlin")),
        (pa.timestamp("us", tz="+02:00"), pd.Timestamp("2020-01-02"), pd.Timestamp("2020-01-02", tz="UTC")),
        (pa.int64(), 1.9, 1),
        (pa.int64(), True, 1),
        (pa.int64(), "1", 1),
        (pa.uint64(), np.uint64(2**64 - 1), 2**64 - 1),
        (pa.float64(), "1.5", 1.5),
        (pa.bool_(), "TRUE", True),
        (pa.bool_(), b"false", False),
        (pa.bool_(), 0, False),
    ],
    ids=str,
)
def test_a_value_is_normalised(dtype, value, expected):
    found = IndexBase.normalize_value(dtype, value)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("dtype", "value", "error"),
    [
        (None, 1, InvalidInput),
        (pa.decimal128(4, 2), 1, Unsupported),
        (pa.list_(pa.int64()), [1], Unsupported),
        (pa.bool_(), "x", InvalidInput),  # I17
        (pa.int64(), "x", InvalidInput),
        (pa.int64(), float("inf"), InvalidInput),
        (pa.float64(), "x", InvalidInput),
        (pa.date32(), "x", InvalidInput),
        *[
            (kind, text, InvalidInput)
            for kind in (pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"))
            for text in ("", "NaT")
        ],
        (pa.string(), b"\xff", InvalidInput),
        *[
            (kind, None, InvalidType)
            for kind in (
                pa.string(),
                pa.binary(),
                pa.bool_(),
                pa.int64(),
                pa.float64(),
                pa.date32(),
                pa.timestamp("us"),
            )
        ],
        (pa.float64(), float("nan"), InvalidType),
        (pa.timestamp("us"), pd.NaT, InvalidType),
        (pa.string(), pd.NA, InvalidType),
    ],
    ids=str,
)
def test_a_value_that_cannot_be_taken_for_the_type_is_refused(dtype, value, error):
    with pytest.raises(error):
        IndexBase.normalize_value(dtype, value)


# --- questions ------------------------------------------------------------------------------------


def test_query_is_lenient_and_eval_operator_is_strict():  # I12
    index = explicit({1: ["b", "a"], 2: ["a"]})
    assert index.query(1) == index.query("1") == index.query(1.9) == ["a", "b"]
    assert index.query(3) == []
    assert index.eval_operator("==", 1) == {"a", "b"}
    assert index.eval_operator("==", 1.9) == set()
    for value in ("1", True):
        with pytest.raises(InvalidType):
            index.eval_operator("==", value)


@pytest.mark.parametrize("value", [None, float("nan"), pd.NaT])
def test_a_null_cannot_be_looked_up(value):  # I13
    with pytest.raises(InvalidType, match="An index knows no nulls"):
        explicit({"None": ["a"], "nan": ["b"]}).query(value)


@pytest.mark.parametrize(
    ("op", "value", "labels"),
    [
        ("==", None, set()),
        ("!=", None, {"a", "b"}),
        ("in", ["u", None], {"a"}),
        ("in", [], set()),
        ("!=", "u", {"b"}),
        ("not in", ["u"], {"b"}),
        ("is distinct from", "v", {"a"}),
        (">", "u", {"b"}),
    ],
)
def test_operators_know_no_nulls(op, value, labels):
    assert explicit({"u": ["a"], "v": ["b"]}).eval_operator(op, value) == labels


@pytest.mark.parametrize(
    ("op", "value", "error"),
    [("=", 1, NotImplementedError), ("<", None, ValueError), ("in", 1, TypeError), ("==", [1], TypeError)],
)
def test_comparisons_that_do_not_exist_are_refused(op, value, error):
    with pytest.raises(error):
        explicit({1: ["a"]}).eval_operator(op, value)


def test_the_type_of_integers_of_more_than_63_bits_is_found():
    index = explicit({2**64 - 1: ["a"], 1: ["b"]})
    assert (index.dtype, index.query(2**64 - 1), index.query(1)) == (pa.uint64(), ["a"], ["b"])


def test_zero_has_no_sign():
    index = explicit({0.0: ["a"], 1.0: ["b"]})
    assert index.remove_values([-0.0]).index_dct == {1.0: ["b"]}


def test_large_integers_are_exact():
    index = explicit({2**64 - 1: ["a"], 2**64 - 2: ["b"], 1: ["c"]}, pa.uint64())
    assert index.query(2**64 - 1) == ["a"]
    assert index.eval_operator("<", 2**64 - 1) == {"b", "c"}
    assert index.observed_values().tolist() == [1, 2**64 - 2, 2**64 - 1]
    assert index.query(-1) == index.query(2**70) == []


def test_moments_with_a_zone_are_found_by_aware_values_and_by_naive_ones_in_utc():  # I18
    aware = pd.Timestamp("2024-07-01T14", tz="Europe/Berlin")
    index = explicit({aware: ["a"], aware + pd.Timedelta("1h"): ["b"]}, BERLIN)
    assert index.query(NOON) == index.query(aware) == index.query(aware.tz_convert("Asia/Tokyo")) == ["a"]
    assert (
        index.eval_operator("==", NOON)
        == index.eval_operator("==", aware)
        == index.eval_operator("<=", aware.tz_convert("Asia/Tokyo"))
        == {"a"}
    )
    assert list(index.index_dct) == [aware, aware + pd.Timedelta("1h")]
    assert [value.utcoffset() for value in index.observed_values()] == [dt.timedelta(hours=2)] * 2


def test_an_aware_value_is_utc_for_an_index_without_zone():
    index = explicit({NOON: ["a"]})
    assert index.query(pd.Timestamp("2024-07-01T14", tz="Europe/Berlin")) == ["a"]
    assert index.index_dct == {np.datetime64(NOON, "ns"): ["a"]}


def test_moments_beyond_nanoseconds_are_kept():
    far = dt.datetime(9999, 1, 1)
    index = explicit({far: ["a"], NOON: ["b"]})
    assert (index.query(far), index.eval_operator("<", far)) == (["a"], {"b"})
    assert index.observed_values().astype("datetime64[us]").tolist() == [NOON, far]


OBSERVED = {
    "int": (explicit({2: ["a"], 1: ["a", "b"]}), [1, 2], np.dtype("int64")),
    "bool": (explicit({True: ["a"], False: ["b"]}), [False, True], np.dtype("bool")),
    "text": (explicit({"b": ["a"], "a": ["b"]}), ["a", "b"], np.dtype("O")),
    "moment": (explicit({NOON: ["a"]}), [pd.Timestamp(NOON).value], np.dtype("datetime64[ns]")),
    "empty": (explicit({}, pa.float64()), [], np.dtype("float64")),
}


@pytest.mark.parametrize("name", OBSERVED)
def test_observed_values_are_sorted(name):
    index, values, dtype = OBSERVED[name]
    assert index.observed_values().tolist() == values
    assert index.observed_values().dtype == dtype


def test_observed_dates_are_objects_or_moments():
    index = explicit({dt.date(2024, 1, 2): ["a"], dt.date(2024, 1, 1): ["a"]})
    assert index.observed_values().tolist() == [dt.date(2024, 1, 1), dt.date(2024, 1, 2)]
    assert index.observed_values(date_as_object=False).tolist() == [
        pd.Timestamp("2024-01-01").value,
        pd.Timestamp("2024-01-02").value,
    ]
    assert index.observed_values(date_as_object=False).dtype == np.dtype("datetime64[ns]")


QUESTIONS = {
    "query": lambda i: i.query(1),
    "eval_operator": lambda i: i.eval_operator("==", 1),
    "observed_values": lambda i: i.observed_values(),
    "as_flat_series": lambda i: i.as_flat_series(),
    "update": lambda i: i.update(explicit({1: ["a"]})),
    "update with it": lambda i: explicit({1: ["a"]}).update(i),
    "remove_partitions": lambda i: i.remove_partitions(["a"]),
    "remove_values": lambda i: i.remove_values([1]),
    "store": lambda i: i.store(MemoryStore(), UUID),
    "merge_indices": lambda i: merge_indices([{"x": i}, {"x": i}]),
    "filter_indices": lambda i: filter_indices({"x": i}, ["a"]),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_an_index_that_is_not_loaded_says_so(name):
    with pytest.raises(InvalidInput, match=r"'x' is not loaded.*Load it first"):
        QUESTIONS[name](UNLOADED)


def test_an_index_that_is_not_loaded_has_an_empty_dict():
    assert (UNLOADED.loaded, UNLOADED.data, UNLOADED.index_dct, UNLOADED.to_dict()) == (False, None, {}, {})


# --- as_flat_series -------------------------------------------------------------------------------


def items(series):
    return [(key, list(value) if isinstance(value, np.ndarray) else value) for key, value in series.items()]


@pytest.mark.parametrize(
    ("arguments", "expected", "names"),
    [
        ({}, [(1, "a"), (1, "b"), (2, "a")], ("c", "partition")),
        ({"compact": True}, [(1, ["a", "b"]), (2, ["a"])], ("c", "partition")),
        ({"partitions_as_index": True}, [("a", 1), ("b", 1), ("a", 2)], ("partition", "c")),
        ({"partitions_as_index": True, "compact": True}, [("a", [1, 2]), ("b", [1])], ("partition", "c")),
        ({"predicates": [[("c", ">", 1)]]}, [(2, "a")], ("c", "partition")),
        (
            {"predicates": [[("c", ">", 1)]], "partitions_as_index": True, "compact": True},
            [("a", [2])],
            ("partition", "c"),
        ),
        ({"predicates": [[("c", ">", 1), ("other", "==", 3)]]}, [(2, "a")], ("c", "partition")),
        ({"predicates": [[("c", ">", 1)], [("other", "==", 3)]]}, [(1, "a"), (1, "b"), (2, "a")], ("c", "partition")),
        ({"predicates": [[("c", ">", 1)], [("c", "<", 0)]]}, [(2, "a")], ("c", "partition")),
        ({"predicates": [[("c", ">", 5)]], "compact": True}, [], ("c", "partition")),
        ({"predicates": [[("c", ">", 5)]], "compact": True, "partitions_as_index": True}, [], ("partition", "c")),
    ],
)
def test_the_flat_series(arguments, expected, names):
    series = ExplicitSecondaryIndex("c", {2: ["a"], 1: ["b", "a"]}).as_flat_series(**arguments)
    assert items(series) == expected
    assert (series.index.name, series.name) == names


@pytest.mark.parametrize("compact", [False, True])
def test_dates_of_the_flat_series(compact):
    day = dt.date(2024, 1, 2)
    index = explicit({day: ["a"]})
    assert index.as_flat_series(compact=compact, date_as_object=True).index.tolist() == [day]
    assert index.as_flat_series(compact=compact).index.tolist() == [pd.Timestamp(day)]


def test_predicates_of_the_flat_series_are_checked():
    with pytest.raises(InvalidType, match="Unexpected type for predicate"):
        explicit({1: ["a"]}).as_flat_series(predicates=[[("x", ">", "u")]])


# --- changes --------------------------------------------------------------------------------------

CHANGES = {
    "update": (lambda i, **k: i.update(explicit({2: ["b"], 3: ["c"]}), **k), {1: ["a", "b"], 2: ["a", "b"], 3: ["c"]}),
    "remove_partitions": (lambda i, **k: i.remove_partitions(["a", "zz"], **k), {1: ["b"]}),
    "remove_values": (lambda i, **k: i.remove_values(["1", 7], **k), {2: ["a"]}),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_makes_a_new_object_without_key(name):  # I15, I16
    change, expected = CHANGES[name]
    index = explicit({1: ["a", "b"], 2: ["a"]}, index_storage_key="key")
    changed = change(index)
    assert changed.index_dct == expected
    assert (changed.index_storage_key, type(changed)) == (None, ExplicitSecondaryIndex)
    assert (index.index_dct, index.index_storage_key) == ({1: ["a", "b"], 2: ["a"]}, "key")


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_in_place_returns_the_same_object(name):  # I16
    change, expected = CHANGES[name]
    index = explicit({1: ["a", "b"], 2: ["a"]}, index_storage_key="key")
    before = (index.index_dct, index.creation_time)
    assert change(index, inplace=True) is index
    assert (index.index_dct, index.index_storage_key) == (expected, None)
    assert before[0] == {1: ["a", "b"], 2: ["a"]}
    assert index.creation_time > before[1]


@pytest.mark.parametrize("inplace", [False, True])
def test_what_changes_nothing_returns_the_same_object(inplace):  # I14
    index = explicit({1: ["a"]}, index_storage_key="key")
    assert index.update(explicit({}, pa.int64()), inplace) is index
    for nothing in ([], ["zz"]):
        assert index.remove_partitions(nothing, inplace) is index
    for nothing in ([], [7]):
        assert index.remove_values(nothing, inplace) is index
    assert index.index_storage_key == "key"


def test_an_update_with_known_pairs_is_a_change():
    index = explicit({1: ["a"]}, index_storage_key="key")
    updated = index.update(index)
    assert (updated.index_dct, updated.index_storage_key) == ({1: ["a"]}, None)


@pytest.mark.parametrize(
    ("other", "error"),
    [
        (ExplicitSecondaryIndex("y", {1: ["a"]}), InvalidInput),
        (explicit({"u": ["a"]}), InvalidType),
        (explicit({}, pa.uint64()), InvalidType),
        ({}, InvalidType),
    ],
)
def test_only_an_index_of_the_same_kind_is_an_update(other, error):  # I14
    with pytest.raises(error):
        explicit({1: ["a"]}).update(other)


@pytest.mark.parametrize("labels", ["a", [1]])
def test_labels_to_remove_are_a_list_of_text(labels):
    with pytest.raises(InvalidType, match="labels"):
        explicit({1: ["a"]}).remove_partitions(labels)


def test_a_copy_is_another_object_and_keeps_the_key_unless_something_else_is_given():
    index = explicit({1: ["a"]}, index_storage_key="key")
    assert index.copy() == index
    assert index.copy() is not index
    assert index.copy().update(explicit({2: ["b"]}), inplace=True) != index
    renamed = index.copy(column="y")
    assert (renamed.column, renamed.index_dct, renamed.dtype, renamed.index_storage_key) == (
        "y",
        {1: ["a"]},
        pa.int64(),
        None,
    )
    assert index.copy(index_dct={"3": ["b"]}).index_dct == {3: ["b"]}
    assert UNLOADED.copy(index_storage_key="other").index_storage_key == "other"


DIFFERENT = [
    explicit({1: ["a"]}),
    explicit({1: ["b"]}),
    explicit({2: ["a"]}),
    explicit({1: ["a"]}, pa.uint64()),
    explicit({1: ["a"]}, index_storage_key="key"),
    ExplicitSecondaryIndex("y", {1: ["a"]}),
    PartitionIndex("x", {1: ["a"]}, dtype=pa.int64()),
    UNLOADED,
    {1: ["a"]},
]


def test_indices_are_equal_by_column_type_content_and_key():
    for i, left in enumerate(DIFFERENT):
        assert [left == right for right in DIFFERENT] == [i == j for j in range(len(DIFFERENT))]
    assert explicit({2: ["a"], 1: ["b", "a"]}) == explicit({1: ["a", "b", "a"], 2: ["a"]})
    assert UNLOADED.copy() == UNLOADED


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "index",
    [
        explicit({2: ["b"], 1: ["a", "b"]}),
        explicit({2**64 - 1: ["b"]}, pa.uint64()),
        explicit({"ä": ["b"]}),
        explicit({b"\xff": ["b"]}),
        explicit({True: ["b"], False: ["a"]}),
        explicit({1.5: ["b"]}),
        explicit({dt.date(2024, 1, 1): ["b"]}),
        explicit({NOON: ["b"]}),
        explicit({pd.Timestamp(NOON, tz="UTC"): ["b"]}, BERLIN),
        explicit({}, pa.int64()),
    ],
    ids=lambda index: str(index.dtype),
)
def test_a_stored_index_comes_back(index):
    store, index = MemoryStore(), index.copy()
    key = index.store(store, UUID)
    assert key.startswith(f"{UUID}/indices/x/{index.creation_time.date()}")
    assert index.index_storage_key == key
    for loaded in (ExplicitSecondaryIndex("x", index_storage_key=key).load(store), index.unload().load(store)):
        assert loaded == index
        assert loaded.load(store) is loaded


def test_the_file_has_a_row_a_value_with_the_list_of_its_labels():
    store = MemoryStore()
    key = explicit({2: ["b"], 1: ["b", "a"]}).store(store, UUID)
    assert pq.read_table(pa.BufferReader(store.get(key))).to_pydict() == {"x": [1, 2], "partition": [["a", "b"], ["b"]]}


def test_an_index_of_another_dataset_gets_a_file_of_its_own():
    store = MemoryStore()
    index = explicit({1: ["a"]})
    first = index.store(store, "uuid")
    assert index.store(store, "uuid") == first
    other = index.store(store, "uuid2")
    assert other.startswith("uuid2/indices/x/")
    assert store.get(first) == store.get(other)


def test_a_key_that_is_taken_is_left_alone():
    store = MemoryStore()
    index, rival = explicit({1: ["a"]}), explicit({2: ["a"]})
    rival.creation_time = index.creation_time
    keys = [index.store(store, UUID), rival.store(store, UUID)]
    assert [explicit(None, index_storage_key=key).load(store).index_dct for key in keys] == [{1: ["a"]}, {2: ["a"]}]


def test_unload_does_not_lose_values():
    with pytest.raises(InvalidInput, match="Store it first"):
        explicit({1: ["a"]}).unload()


def test_loading_names_what_is_wrong():
    store = MemoryStore()
    key = explicit({"u": ["a"]}).store(store, UUID)
    with pytest.raises(KeyNotFound, match=r"uuid/indices/x/1"):
        UNLOADED.load(store)
    with pytest.raises(CorruptData, match="'y'"):
        ExplicitSecondaryIndex("y", index_storage_key=key).load(store)
    with pytest.raises(CorruptData, match="int64"):
        ExplicitSecondaryIndex("x", index_storage_key=key, dtype=pa.int64()).load(store)


def test_the_index_of_a_dataset_is_the_one_that_planning_uses():
    store = MemoryStore()
    snapshot = write(store, {"x": [1, 2, None], "v1": [1, 2, 3]}, index=["x"], label="a")
    key = snapshot.document.indices["x"]
    found = ExplicitSecondaryIndex("x", index_storage_key=key).load(store)
    assert found.index_dct == {1: ["a"], 2: ["a"]}
    assert found == ExplicitSecondaryIndex.of(load_index(store, snapshot, "x")[0], key)


@pytest.mark.parametrize(
    "index",
    [
        explicit({1: ["a", "b"], 2: ["b"]}, index_storage_key="key"),
        PartitionIndex("p", {}, dtype=pa.string()),
        UNLOADED,
    ],
    ids=str,
)
def test_an_index_survives_pickling(index):
    again = pickle.loads(pickle.dumps(index))
    assert again == index
    assert (again.creation_time, again.loaded) == (index.creation_time, index.loaded)


def test_a_pickle_is_small():
    index = explicit({f"value{i:06d}": [f"p={i % 100}/0"] for i in range(10_000)})
    rest = index.remove_values([f"value{i:06d}" for i in range(9_990)])
    assert len(pickle.dumps(index)) < 60_000
    assert len(pickle.dumps(rest)) < 3_000


def test_a_text_for_people():
    assert repr(explicit({1: ["a", "b"]})) == "<ExplicitSecondaryIndex on 'x': int64, 2 pairs>"
    assert repr(UNLOADED) == "<ExplicitSecondaryIndex on 'x': int64, not loaded>"


# --- several indices ------------------------------------------------------------------------------


def test_indices_of_several_partitions_are_merged():
    only = ExplicitSecondaryIndex("y", {"u": ["b"]}, index_storage_key="key")
    merged = merge_indices(
        [
            {"x": explicit({1: ["a"]})},
            {"x": explicit({1: ["b"], 2: ["b"]}), "y": only},
            {"x": explicit({1: ["a"], 3: ["c"]})},
        ]
    )
    assert merged["x"].index_dct == {1: ["a", "b"], 2: ["b"], 3: ["c"]}
    assert merged["y"] is only
    assert merge_indices([]) == {}
    with pytest.raises(InvalidType, match="different types"):
        merge_indices([{"x": explicit({1: ["a"]})}, {"x": explicit({"1": ["a"]})}])


def test_labels_are_removed_from_all_indices_or_kept_in_all():
    indices = {
        "x": explicit({1: ["a", "b"], 2: ["c"]}),
        "y": ExplicitSecondaryIndex("y", {"u": ["c"]}, index_storage_key="key"),
    }
    removed = remove_partitions_from_indices(indices, iter(["a", "b"]))
    assert {c: i.index_dct for c, i in removed.items()} == {"x": {2: ["c"]}, "y": {"u": ["c"]}}
    kept = filter_indices(indices, iter(["c", "zz"]))
    assert {c: i.index_dct for c, i in kept.items()} == {"x": {2: ["c"]}, "y": {"u": ["c"]}}
    assert kept["y"] is removed["y"] is indices["y"]


# --- against a dict -------------------------------------------------------------------------------

VALUES = {
    pa.int64(): st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1),
    pa.uint64(): st.integers(0, 3) | st.integers(2**64 - 3, 2**64 - 1),
    pa.float64(): st.sampled_from([-1.5, 0.0, -0.0, 1.5, float("inf")]),
    pa.bool_(): st.booleans(),
    pa.string(): st.text("abä", max_size=2),
    pa.binary(): st.binary(max_size=1).filter(lambda b: b != b"\0"),
    pa.date32(): st.dates(dt.date(2023, 12, 30), dt.date(2024, 1, 2)),
    pa.timestamp("us"): st.datetimes(dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, 0, 0, 0, 4)),
    pa.timestamp("us", tz="UTC"): st.datetimes(NOON, dt.datetime(2024, 7, 1, 12, 0, 0, 4), timezones=st.just(dt.UTC)),
}
NAMES = ["a", "b", "c", "d"]
OPERATORS = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda value, constants: value in constants,
    "not in": lambda value, constants: value not in constants,
}


def model_of(index):
    """The pairs, in Python's values."""
    pairs = index.data
    return set(zip(pairs.values.to_pylist(), pairs.labels.to_pylist(), strict=True))


@st.composite
def cases(draw):
    kind = draw(st.sampled_from(list(VALUES)))
    values = VALUES[kind]
    dcts = st.dictionaries(values, st.lists(st.sampled_from(NAMES), max_size=3), max_size=5)
    return (
        kind,
        draw(dcts),
        draw(dcts),
        draw(st.lists(values, max_size=3)),
        draw(st.lists(st.sampled_from(NAMES), max_size=2)),
        draw(values),
    )


@given(cases())
def test_an_index_behaves_like_a_dict(case):
    kind, first, second, removed_values, removed_labels, value = case
    index = explicit(first, kind).update(explicit(second, kind))
    model = {(v, label) for dct in (first, second) for v, labels in dct.items() for label in labels}
    steps = [
        (index, model),
        (index.remove_partitions(removed_labels), {(v, label) for v, label in model if label not in removed_labels}),
        (index.remove_values(removed_values), {(v, label) for v, label in model if v not in removed_values}),
        (
            filter_indices({"x": index}, removed_labels)["x"],
            {(v, label) for v, label in model if label in removed_labels},
        ),
        (pickle.loads(pickle.dumps(index)), model),
    ]
    for found, expected in steps:
        assert model_of(found) == expected
        assert found.query(value) == sorted({label for v, label in expected if v == value})
        for op, compare in OPERATORS.items():
            constant = [*removed_values, value] if "in" in op else value
            assert found.eval_operator(op, constant) == {label for v, label in expected if compare(v, constant)}
        assert {(v, label) for v, labels in found.index_dct.items() for label in labels} == {
            (IndexBase.normalize_value(kind, v), n) for v, n in expected
        }
        assert len(found.observed_values()) == len({v for v, _ in expected})
        assert len(found.as_flat_series()) == len(expected)
