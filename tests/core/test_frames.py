from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from kartothek_cube.core.frames import concat_blocks, is_block, null_count, to_frame, to_table
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
        (pd.Series(pd.to_datetime(["2020-01-01"]).tz_localize("Europe/Berlin")), pa.timestamp("us", tz="Europe/Berlin")),
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
        (pd.DataFrame({"x": [1j]}), InvalidType, "'x'"),
        (pd.DataFrame({"x": [2**70]}, dtype=object), InvalidType, "'x'"),
        (pd.DataFrame({"x": [object()]}), InvalidType, "'x'"),
        (pd.DataFrame({"x": ["\ud800"]}, dtype=object), InvalidType, "'x'"),
        (pd.DataFrame({"x": np.array([1], dtype="float16")}), Unsupported, "'x'.*halffloat"),
        (pa.table({"x": pa.array([1], pa.timestamp("ns"))}), InvalidInput, "'x'.*cannot be stored as timestamp"),
        ([1], InvalidType, 'is a "list"'),
        (None, InvalidType, "NoneType"),
    ],
    ids=range(14),
)
def test_what_cannot_be_stored_names_dataset_and_column(frame, error, text):
    with pytest.raises(error, match=text) as raised:
        to_table(frame, "uuid")
    assert "uuid" in str(raised.value)


def test_a_series_is_no_block():
    with pytest.raises(InvalidType, match="Series"):
        is_block(pd.Series([1]))


def test_blocks_are_put_together_by_name():
    joined = concat_blocks([pa.table({"x": pa.array([1], pa.int8()), "y": pa.nulls(1)}), pa.table({"y": ["a"], "x": [300]})], "uuid")
    assert joined.to_pydict() == {"x": [1, 300], "y": [None, "a"]}
    assert joined.schema == pa.schema([("x", pa.int64()), ("y", pa.string())])


@pytest.mark.parametrize(
    ("right", "text"), [({"x": [1], "z": [1]}, "same set of columns"), ({"x": ["a"], "y": ["a"]}, "incompatible types"), ({"x": [True], "y": ["a"]}, "types")]
)
def test_blocks_that_differ_are_refused(right, text):
    with pytest.raises(InvalidInput, match=text):
        concat_blocks([pa.table({"x": [1], "y": ["a"]}), pa.table(right)], "uuid")


# --- back to pandas ---------------------------------------------------------------------------------------------------


def test_nulls_become_what_pandas_makes_of_them():
    frame = to_frame(pa.table({"i": [1, None], "b": [True, None], "f": [1.5, None], "d": pa.array([dt.date(2020, 1, 1), None])}))
    assert [frame[c].dtype.kind for c in "ibf"] == ["f", "O", "f"]
    assert frame["d"].dtype.kind == "M"
    assert list(frame.index) == [0, 1]


def test_dates_may_be_objects():
    frame = to_frame(pa.table({"d": pa.array([dt.date(2020, 1, 1), None]), "t": pa.array([dt.datetime(2020, 1, 1), None], US)}), dates_as_object=True)
    assert frame["d"].tolist() == [dt.date(2020, 1, 1), None]
    assert frame["t"].dtype.kind == "M"


def test_dates_beyond_the_nanosecond_range():
    frame = to_frame(pa.table({"d": pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31)])}))
    assert frame["d"].dt.year.tolist() == [1, 9999]


def test_categoricals():
    table = pa.table({"x": ["b", "a", "b", None], "y": [2, 1, 2, 2]})
    frame = to_frame(table, categoricals=["x", "y"])
    assert frame["x"].tolist()[:3] == ["b", "a", "b"]
    assert sorted(frame["x"].cat.categories) == ["a", "b"]
    assert isinstance(frame["y"].dtype, pd.CategoricalDtype)
    assert frame["y"].tolist() == [2, 1, 2, 2]


def test_unknown_categorical_is_named():
    with pytest.raises(InvalidInput, match="'z'"):
        to_frame(pa.table({"x": [1]}), categoricals=["x", "z"])


def test_the_result_may_be_changed():
    frame = to_frame(pa.table({"x": [1, 2], "y": ["a", "b"]}))
    frame.loc[0, "x"] = 5
    assert frame["x"].tolist() == [5, 2]
