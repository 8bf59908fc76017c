from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from kartothek_cube.core.arrow.pandas import (
    arrow_array,
    concat_blocks,
    concat_encoded,
    encoded,
    is_block,
    null_count,
    to_frame,
    to_table,
)
from kartothek_cube.errors import InvalidInput, InvalidType, Unsupported

US = pa.timestamp("us")


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pd.Series([1, 2], dtype="int8"), pa.int8()),
        (pd.Series([1, None], dtype="Int64"), pa.int64()),
        (pd.Series([1.5, None]), pa.float64()),
        (pd.Series([True, False]), pa.bool_()),
        (pd.Series([True, None], dtype="boolean"), pa.bool_()),
        (pd.Series([True, None], dtype=object), pa.bool_()),
        (pd.Series(["a", None]), pa.string()),
        (pd.Series(["a", None], dtype=object), pa.string()),
        (pd.Series(["a", None], dtype="string"), pa.string()),
        (pd.Series(["a", None], dtype="category"), pa.string()),
        (pd.Series([2, 1], dtype="category"), pa.int64()),
        (pd.Series([b"a", None], dtype=object), pa.binary()),
        (pd.Series([dt.date(2020, 1, 1), None]), pa.date32()),
        (pd.Series(pd.to_datetime(["2020-01-01", None])), US),
        (
            pd.Series(pd.to_datetime(["2020-01-01"]).tz_localize("Europe/Berlin")),
            pa.timestamp("us", tz="Europe/Berlin"),
        ),
        (
            pd.Series(pd.to_datetime(["2020-01-01", None]).tz_localize("UTC")).astype("category"),
            pa.timestamp("us", tz="UTC"),
        ),
        (pd.Series([Decimal("1.10"), Decimal("22.55")]), pa.decimal128(4, 2)),
        (pd.Series([[1], None]), pa.list_(pa.int64())),
        (pd.Series([None, None], dtype=object), pa.null()),
        (pd.Series([1, 2], dtype="int64[pyarrow]"), pa.int64()),
        (pd.Series(["a"], dtype=pd.ArrowDtype(pa.large_string())), pa.string()),
        (pd.Series([], dtype="float32"), pa.float32()),
    ],
    ids=lambda v: str(v) if isinstance(v, pa.DataType) else str(v.dtype),
)
def test_columns_become_stored_types(values, kind):
    table = to_table(pd.DataFrame({"x": values}), "uuid")
    assert table.schema.metadata is None
    assert table.column("x").type == kind
    assert table.column("x").null_count == int(values.isna().sum())


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "+02:00"])
def test_moments_with_a_zone_keep_their_moment_unit_and_zone(unit, zone):
    moments = pd.Series(pd.to_datetime(["2020-07-01 12:00", None])).dt.tz_localize(zone).dt.as_unit(unit)
    noon = dt.datetime(2020, 7, 1, 10 if zone != "UTC" else 12, tzinfo=dt.UTC)
    for given in (moments, moments.array, pd.Index(moments), moments.astype("category")):
        array = arrow_array(given)
        assert array.type == pa.timestamp(unit, zone)
        assert array.to_pylist() == [noon, None]


def test_nan_of_pandas_is_null_and_nan_of_arrow_stays():
    frame = pd.DataFrame({"x": [1.0, float("nan")]})
    assert to_table(frame, "uuid").column("x").to_pylist() == [1.0, None]
    assert null_count(to_table(pa.table({"x": [1.0, float("nan")]}), "uuid").column("x")) == 1
    assert null_count(pa.chunked_array([["a", None]])) == 1
    assert null_count(pa.chunked_array([], pa.float64())) == 0


class Stream:
    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


def test_every_block_of_rows_is_taken():
    table = pa.table({"x": [1, 2]})
    for data in (table, table.to_batches()[0], table.to_pandas(), Stream(table)):
        assert is_block(data)
        assert to_table(data, "uuid") == table
    assert not is_block([table])
    assert not is_block({"x": table})


def dictionaries(values):
    """Two chunks, each with a dictionary of its own, in which null is an index or a value."""
    one = pa.DictionaryArray.from_arrays(pa.array([1, 0, None], pa.uint32()), values)
    return pa.chunked_array([one, pa.DictionaryArray.from_arrays(pa.array([2, 1], pa.uint32()), values)])


@pytest.mark.parametrize(
    ("kind", "stored"),
    [(pa.string_view(), pa.string()), (pa.string(), pa.string()), (pa.binary_view(), pa.binary())],
    ids=str,
)
def test_dictionaries_become_their_values(kind, stored):
    texts = ["ä", "b", None] if stored == pa.string() else [b"\xff", b"b", None]
    table = to_table(pa.table({"x": dictionaries(pa.array(texts, kind))}), "uuid")
    assert table.schema.field("x").type == stored
    assert table.column("x").to_pylist() == [texts[1], texts[0], None, None, texts[1]]


def test_what_arrow_cannot_turn_into_a_stored_type_is_refused_by_name():
    values = dictionaries(pa.array(["a", "b", None], pa.string_view())).chunk(0)
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 3], pa.int32()), values)
    with pytest.raises(
        Unsupported,
        match=r"Column 'v1' of dataset 'uuid' is list<.*string_view.*, which Arrow cannot turn into list<item: string>",
    ):
        to_table(pa.table({"v1": lists}), "uuid")


def test_a_stream_that_is_no_table_is_refused_with_its_reason():
    with pytest.raises(InvalidType, match=r'is a "ChunkedArray" \(dataset \'uuid\'\): .*struct'):
        to_table(pa.chunked_array([[1]]), "uuid")


def test_row_labels_and_attributes_are_left_out():
    frame = pd.DataFrame({"x": [1, 2]}, index=pd.Index([5, 7], name="row"))
    frame.attrs["note"] = "x"
    assert to_table(frame, "uuid").to_pydict() == {"x": [1, 2]}
    assert to_table(pd.DataFrame(index=[1, 2]), "uuid").num_columns == 0


def test_names_in_bytes_are_decoded():
    assert to_table(pd.DataFrame({b"x": [1]}), "uuid").column_names == ["x"]


@pytest.mark.parametrize(
    ("frame", "error", "text"),
    [
        (pd.DataFrame({1: [1]}), InvalidType, "int is not a string: 1"),
        (pd.DataFrame([[1, 2]], columns=["x", "x"]), InvalidInput, 'Duplicate columns found in dataset "uuid"'),
        (pd.DataFrame([[1, 2]], columns=["x", b"x"]), InvalidInput, "Duplicate columns"),
        (pa.table([[1], [2]], names=["x", "x"]), InvalidInput, "Duplicate columns"),
        (pd.DataFrame({"x": pd.arrays.SparseArray([0, 1])}), InvalidType, "Sparse data"),
        (pd.DataFrame({"x": [1, "a"]}), InvalidType, "'x'.*no single Arrow type"),
        (
            pd.DataFrame({"x": pd.Series([np.datetime64("2020-01-02"), None], dtype=object)}),
            InvalidType,
            "'x'.*no single Arrow type",
        ),
        (pd.DataFrame({"x": [1j]}), InvalidType, "'x'"),
        (pd.DataFrame({"x": [2**70]}, dtype=object), InvalidType, "'x'"),
        (pd.DataFrame({"x": [object()]}), InvalidType, "'x'"),
        (pd.DataFrame({"x": ["\ud800"]}, dtype=object), InvalidType, "'x'"),
        (pd.DataFrame({"x": pd.period_range("2020-01", periods=1, freq="M")}), Unsupported, "'x'.*to_timestamp"),
        (pa.table({"x": pa.array([1], pa.timestamp("ns"))}), InvalidInput, "'x'.*cannot be stored as timestamp"),
        ([1], InvalidType, 'is a "list"'),
        (None, InvalidType, "NoneType"),
    ],
    ids=range(15),
)
def test_what_cannot_be_stored_names_dataset_and_column(frame, error, text):
    with pytest.raises(error, match=text) as raised:
        to_table(frame, "uuid")
    assert "uuid" in str(raised.value)


def test_a_series_is_no_block():
    with pytest.raises(InvalidType, match="Series"):
        is_block(pd.Series([1]))


def test_blocks_are_put_together_by_name():
    joined = concat_blocks(
        [pa.table({"x": pa.array([1], pa.int8()), "y": pa.nulls(1)}), pa.table({"y": ["a"], "x": [300]})], "uuid"
    )
    assert joined.to_pydict() == {"x": [1, 300], "y": [None, "a"]}
    assert joined.schema == pa.schema([("x", pa.int64()), ("y", pa.string())])


@pytest.mark.parametrize(
    ("right", "text"),
    [
        ({"x": [1], "z": [1]}, "same set of columns"),
        ({"x": ["a"], "y": ["a"]}, "incompatible types"),
        ({"x": [True], "y": ["a"]}, "types"),
    ],
)
def test_blocks_that_differ_are_refused(right, text):
    with pytest.raises(InvalidInput, match=text):
        concat_blocks([pa.table({"x": [1], "y": ["a"]}), pa.table(right)], "uuid")


# --- back to pandas -------------------------------------------------------------------------------


def test_nulls_become_what_pandas_makes_of_them():
    frame = to_frame(
        pa.table({"i": [1, None], "b": [True, None], "f": [1.5, None], "d": pa.array([dt.date(2020, 1, 1), None])})
    )
    assert [frame[c].dtype.kind for c in "ibf"] == ["f", "O", "f"]
    assert frame["d"].dtype.kind == "M"
    assert list(frame.index) == [0, 1]


def test_dates_may_be_objects():
    frame = to_frame(
        pa.table({"d": pa.array([dt.date(2020, 1, 1), None]), "t": pa.array([dt.datetime(2020, 1, 1), None], US)}),
        dates_as_object=True,
    )
    assert frame["d"].tolist() == [dt.date(2020, 1, 1), None]
    assert frame["t"].dtype.kind == "M"


def test_dates_beyond_the_nanosecond_range():
    frame = to_frame(pa.table({"d": pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31)])}))
    assert frame["d"].dt.year.tolist() == [1, 9999]


def test_integers_and_booleans_with_nulls_may_stay_what_they_are():
    table = pa.table(
        {
            "f": [1.5, None],
            "i": [2**53 + 1, None],
            "u": pa.array([None, 2**64 - 1], pa.uint64()),
            "b": [None, True],
            "n": [1, 2],
            "s": pa.array([1, None], pa.int8()),
        }
    )
    frame = to_frame(table, nullable=True)
    assert [str(t) for t in frame.dtypes] == ["float64", "Int64", "UInt64", "boolean", "int64", "Int8"]
    assert list(frame.columns) == table.column_names
    assert frame["i"].tolist()[0] == 2**53 + 1
    assert frame["u"].tolist()[1] == 2**64 - 1
    assert list(frame.index) == [0, 1]
    assert to_frame(table.select(["i"]), nullable=True)["i"].isna().tolist() == [False, True]


def test_wide_frames_are_made_without_a_warning():
    frame = to_frame(pa.table({f"v{i}": [1, None if i % 2 else 2] for i in range(300)}), nullable=True)
    assert [str(frame[f"v{i}"].dtype) for i in (0, 299)] == ["int64", "Int64"]


def categories(*columns, **options):
    frame = to_frame(concat_encoded([encoded(pa.table({"x": column}), ["x"]) for column in columns], ["x"]), **options)
    assert isinstance(frame["x"].dtype, pd.CategoricalDtype)
    values = [None if code < 0 else frame["x"].cat.categories[code] for code in frame["x"].cat.codes]
    return values, list(frame["x"].cat.categories)


# F22
def test_categories_are_those_of_the_largest_part_then_the_others_in_order():
    assert categories(["b", "b"], ["d", "c", None], ["a"]) == (["b", "b", "d", "c", None, "a"], ["d", "c", "a", "b"])


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ([pa.chunked_array([["a"], ["b", "a"]])], ["a", "b"]),
        ([pa.chunked_array([], pa.date32())], []),
        ([pa.nulls(2)], []),
        ([[1.5, float("nan"), -0.0], [0.0, None]], [1.5, 0.0]),
        ([[True, None], [False]], [True, False]),
        ([[3, None], [2**62 + 1]], [3, 2**62 + 1]),
        ([[b"a"], pa.nulls(1, pa.binary())], [b"a"]),
        ([[Decimal("1.1")], [Decimal("2.2")]], [Decimal("1.1"), Decimal("2.2")]),
        (
            [pa.array([1, None], pa.date32()), pa.array([0], pa.date32())],
            [pd.Timestamp(1970, 1, 2), pd.Timestamp(1970, 1, 1)],
        ),
    ],
    ids=range(9),
)
def test_categoricals_of_every_type(columns, expected):
    values, found = categories(*columns)
    assert found == expected
    assert {v for v in values if v is not None} == set(expected)


def test_categories_that_are_dates_may_be_objects():
    assert categories(pa.array([1], pa.date32()), dates_as_object=True) == (
        [dt.date(1970, 1, 2)],
        [dt.date(1970, 1, 2)],
    )


def test_the_result_may_be_changed():
    frame = to_frame(pa.table({"x": [1, 2], "y": ["a", "b"]}))
    frame.loc[0, "x"] = 5
    assert frame["x"].tolist() == [5, 2]


def test_a_categorical_without_categories_may_become_anything():
    frame = pd.DataFrame({"x": pd.Categorical([None, None]), "v1": [1, 2]})
    assert to_table(frame, "uuid").schema.field("x").type == pa.null()
