from __future__ import annotations

import datetime as dt
import decimal
import pickle

import numpy as np
import pandas as pd
import pandas.testing as pdt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kartothek_cube.api import serialization
from kartothek_cube.api.cube import KTK_CUBE_DF_SERIALIZER, C, Cube, build_cube, query_cube
from kartothek_cube.api.serialization import (
    CsvSerializer,
    DataFrameSerializer,
    ParquetReadError,
    ParquetSerializer,
    check_predicates,
    columns_in_predicates,
    default_serializer,
    filter_array_like,
    filter_df,
    filter_df_from_predicates,
    filter_predicates_by_column,
)
from kartothek_cube.core.io.csv import CsvFormat
from kartothek_cube.core.io.formats import ParquetFormat
from kartothek_cube.core.io.parquet import ParquetSource
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.core.stores.open import open_store
from kartothek_cube.core.write.layout import StageRequest
from kartothek_cube.errors import (
    CorruptData,
    InvalidInput,
    InvalidType,
    KartothekCubeError,
    KeyNotFound,
    UnknownColumn,
    Unsupported,
)
from kartothek_cube.testing.stores import CountingStore, FaultyStore, InjectedFault

SERIALIZERS = [
    ParquetSerializer(),
    ParquetSerializer("ZSTD", chunk_size=1),
    CsvSerializer(),
    CsvSerializer(compress=False),
]
serializers = pytest.mark.parametrize("serializer", SERIALIZERS, ids=str)
pushdown = pytest.mark.parametrize("pushdown", [True, False], ids=["pushdown", "rows"])
DAY = dt.date(2020, 2, 29)
NOON = dt.datetime(2020, 2, 29, 12)


def frame(**more):
    return pd.DataFrame({"y": ["a", "b", None], "x": [3, 1, 2], "v1": [0.5, np.nan, 1.5], **more})


def restore(store, key, **arguments):
    return DataFrameSerializer.restore_dataframe(store, key, **arguments)


def assert_same(found, expected):
    """Equal values in equal order; pandas 2 has None or NaN for a text that is null."""
    pdt.assert_frame_equal(*(f.astype(object).where(f.notna(), None) for f in (found, expected)))


# --- the classes ----------------------------------------------------------------------------------


def test_suffixes_types_and_defaults():
    assert [s.file_suffix for s in SERIALIZERS] == [".parquet", ".parquet", ".csv.gz", ".csv"]
    assert [s.type_stable for s in SERIALIZERS] == [True, True, False, False]
    assert DataFrameSerializer.type_stable is False
    assert default_serializer() == ParquetSerializer("SNAPPY", None)
    assert ParquetSerializer("ZSTD") == KTK_CUBE_DF_SERIALIZER


def test_serializers_are_values():
    assert repr(ParquetSerializer(chunk_size=2)) == "ParquetSerializer(compression='SNAPPY', chunk_size=2)"
    assert repr(CsvSerializer()) == "CsvSerializer(compress=True)"
    assert len({*SERIALIZERS, *map(pickle.loads, map(pickle.dumps, SERIALIZERS))}) == 4
    assert ParquetSerializer(chunk_size=2) != ParquetSerializer(chunk_size=3)
    assert CsvSerializer() != CsvSerializer(compress=False)
    assert isinstance(ParquetSerializer(), ParquetFormat)
    assert isinstance(CsvSerializer(), CsvFormat)


@pytest.mark.parametrize(
    ("size", "error", "words"),
    [
        (0, ValueError, "chunk size < 1"),
        (-1, ValueError, "chunk size < 1"),
        (1.0, TypeError, "chunk size is not integer type"),
        ("1", TypeError, "not integer"),
    ],
)
def test_wrong_chunk_size_is_refused(size, error, words):  # J01
    with pytest.raises(error, match=words):
        ParquetSerializer(chunk_size=size)


def test_the_base_stores_nothing():
    with pytest.raises(TypeError):
        DataFrameSerializer()


def test_the_names_of_kartothek_are_there():
    assert sorted(set(serialization.__all__) - set(dir(serialization))) == []
    assert {"PredicatesType", "ConjunctionType", "LiteralType", "LiteralValue"} <= set(serialization.__all__)


# --- storing --------------------------------------------------------------------------------------


@serializers
def test_a_frame_comes_back_from_every_kind_of_store(serializer, tmp_path):  # J02
    for store in (MemoryStore(), f"hfs://{tmp_path}", tmp_path, lambda: open_store(tmp_path)):
        key = serializer.store(store, "prefix/f", frame())
        assert key == f"prefix/f{serializer.file_suffix}"
        assert_same(restore(store, key), frame())


@serializers
def test_arrow_tables_are_stored(serializer):
    store = MemoryStore()
    key = serializer.store(store, "f", pa.Table.from_pandas(frame(), preserve_index=False))
    assert_same(restore(store, key), frame())


@serializers
def test_row_labels_are_not_stored(serializer):
    store = MemoryStore()
    key = serializer.store(store, "f", frame().set_index(pd.Index([7, 8, 9], name="label")))
    assert restore(store, key).columns.tolist() == ["y", "x", "v1"]
    assert restore(store, key).index.tolist() == [0, 1, 2]


def test_chunk_size_makes_row_groups():
    store = MemoryStore()
    metadata = pq.read_metadata(pa.BufferReader(store.get(ParquetSerializer("GZIP", 2).store(store, "f", frame()))))
    assert [metadata.row_group(g).num_rows for g in range(2)] == [2, 1]
    assert metadata.row_group(0).column(0).compression == "GZIP"


@pytest.mark.parametrize(
    ("serializer", "data", "error"),
    [
        (CsvSerializer(), pd.DataFrame({"x": [1], "v1": [b"a"]}), Unsupported),
        (CsvSerializer(), pd.DataFrame({"x": [1], "v1": [[1]]}), Unsupported),
        (ParquetSerializer(), pd.DataFrame({"x": [1, "a"]}), InvalidType),
        (ParquetSerializer(), pd.DataFrame([[1, 2]], columns=["x", "x"]), InvalidInput),
        (ParquetSerializer(), pd.DataFrame({"v1": pd.to_datetime(["2020-01-01 00:00:00.000000001"])}), InvalidInput),
        (ParquetSerializer(), [1, 2], InvalidType),
    ],
)
def test_what_cannot_be_stored_is_refused_before_it_is_written(serializer, data, error):
    store = CountingStore(MemoryStore())
    with pytest.raises(error):
        serializer.store(store, "f", data)
    assert store.calls == []


# --- restoring ------------------------------------------------------------------------------------


ALL_TYPES = {
    "i": pa.array([1, -2], pa.int8()),
    "u": pa.array([1, 2], pa.uint16()),
    "f": pa.array([0.5, None], pa.float32()),
    "b": pa.array([True, False]),
    "s": pa.array(["a", None]),
    "z": pa.array([b"a", None]),
    "d": pa.array([DAY, None]),
    "t": pa.array([NOON, None]),
    "tz": pa.array([NOON, None], pa.timestamp("us", "UTC")),
    "dec": pa.array([decimal.Decimal("1.50"), None]),
    "l": pa.array([[1], None]),
    "n": pa.nulls(2),
    "g": pa.array([1, None]),
}


def test_parquet_keeps_the_types_of_the_file():
    store = MemoryStore()
    found = restore(store, ParquetSerializer().store(store, "f", pa.table(ALL_TYPES)))
    assert [found[c].dtype.name for c in ("i", "u", "f", "b", "g")] == ["int8", "uint16", "float32", "bool", "Int64"]
    assert [found[c].dtype.kind for c in ("d", "t", "tz")] == ["M", "M", "M"]
    assert found["s"].tolist()[0] == "a"
    assert found["z"].tolist() == [b"a", None]
    assert found["dec"].tolist() == [decimal.Decimal("1.50"), None]
    assert found["l"][0].tolist() == [1]
    assert found["n"].tolist() == [None, None]
    assert found["d"].tolist() == [pd.Timestamp(DAY), pd.NaT]


def test_dates_may_be_objects():
    store = MemoryStore()
    key = ParquetSerializer().store(store, "f", pa.table(ALL_TYPES))
    assert restore(store, key, date_as_object=True)["d"].tolist() == [DAY, None]


def test_csv_has_the_types_of_its_text():
    store = MemoryStore()
    table = pa.table({c: ALL_TYPES[c] for c in ("i", "f", "b", "s", "d", "t")})
    found = restore(store, CsvSerializer().store(store, "f", table))
    assert [found[c].dtype.name for c in ("i", "f", "b")] == ["int64", "float64", "bool"]
    assert [found[c][0] for c in ("s", "d", "t")] == ["a", "2020-02-29", "2020-02-29 12:00:00.000000"]
    key = CsvSerializer().store(store, "names", pa.table({"x": ["NA", "null", ""], "y": [None, "nan", "a"]}))
    assert restore(store, key)["x"].tolist()[:2] == ["NA", "null"]
    assert restore(store, key)["y"].tolist()[1:] == ["nan", "a"]


def test_files_without_rows_keep_their_types_in_parquet_and_lose_them_in_csv():  # J05
    store = MemoryStore()
    empty = frame().iloc[:0]
    kept = restore(store, ParquetSerializer().store(store, "f", empty))
    assert (kept["x"].dtype, kept["v1"].dtype) == (np.dtype("int64"), np.dtype("float64"))
    lost = restore(store, CsvSerializer().store(store, "f", empty))
    assert (lost.shape, lost["x"].dtype) == ((0, 3), np.dtype(object))
    found = restore(store, "f.parquet", predicates=[[("x", "==", 1)]])
    assert (found.shape, found["x"].dtype) == ((0, 3), np.dtype("int64"))


@serializers
def test_no_columns_keep_the_number_of_rows(serializer):  # J06
    store = MemoryStore()
    key = serializer.store(store, "f", frame())
    assert restore(store, key, columns=[]).shape == (3, 0)
    assert restore(store, key, columns=[], predicates=[[("x", ">", 1)]]).shape == (2, 0)


@serializers
@pytest.mark.parametrize("columns", [["v1", "x"], ("x", "y"), ["y"]])
def test_columns_come_in_the_order_asked_for(serializer, columns):
    store = MemoryStore()
    key = serializer.store(store, "f", frame())
    assert_same(restore(store, key, columns=columns), frame()[list(columns)])


PREDICATES = [
    ([[("x", "==", 1)]], [1]),
    ([[("x", ">", 1)]], [3, 2]),
    ([[("x", ">", 1), ("y", "==", "a")]], [3]),
    ([[("x", "==", 1)], [("y", "==", "a")]], [3, 1]),
    ([[("x", "in", [1, 2])]], [1, 2]),
    ([[("x", "in", [])]], []),
    ([[("y", "==", None)]], [2]),
    ([[("y", "!=", "a")]], [1, 2]),
    ([[("y", "in", ["b", None])]], [1, 2]),
    ([[("y", "<", "b")]], [3]),
    ([[("v1", "!=", float("nan"))]], [3, 2]),
    ([[("v1", "<", 1.0)]], [3]),
    ([[("x", "==", 7)]], []),
]


@serializers
@pushdown
@pytest.mark.parametrize("columns", [None, ["x"], ["v1", "x"]], ids=str)
@pytest.mark.parametrize(("predicates", "rows"), PREDICATES, ids=str)
def test_rows_that_match_come_in_the_order_of_the_file(
    serializer, pushdown, columns, predicates, rows
):  # H22, H24, H35, H38
    store = MemoryStore()
    key = serializer.store(store, "f", frame())
    found = restore(store, key, columns=columns, predicates=predicates, predicate_pushdown_to_io=pushdown)
    assert found["x"].tolist() == rows
    assert found.columns.tolist() == (columns or ["y", "x", "v1"])
    assert found.index.tolist() == list(range(len(rows)))


@serializers
def test_a_query_of_pandas(serializer):  # J03
    store = MemoryStore()
    key = serializer.store(store, "f", frame())
    assert restore(store, key, filter_query="x > 1 and v1 > 1")["x"].tolist() == [2]
    assert restore(store, key, filter_query="", predicates=[[("x", "==", 1)]])["x"].tolist() == [1]
    assert restore(store, key, filter_query="")["x"].tolist() == [3, 1, 2]
    with pytest.raises(ValueError, match="Can only specify one of filter_query and predicates"):
        restore(store, key, filter_query="x == 1", predicates=[[("x", "==", 1)]])
    with pytest.raises(ValueError, match="Can only specify one"):
        type(serializer).restore_dataframe(store, key, filter_query="x == 1", predicates=[[("x", "==", 1)]])


@serializers
def test_categories(serializer):
    store = MemoryStore()
    key = serializer.store(store, "f", frame(c=pd.Categorical(["u", "w", "u"])))
    found = restore(store, key, categories=["y"])
    assert [isinstance(found[c].dtype, pd.CategoricalDtype) for c in ("y", "c")] == [True, False]
    assert found["y"].cat.categories.tolist() == ["a", "b"]
    assert found["c"].tolist() == ["u", "w", "u"]
    assert restore(store, key, categories=["y"], columns=["x"]).columns.tolist() == ["x"]
    with pytest.raises(UnknownColumn, match="z"):
        restore(store, key, categories=["z"])


@serializers
@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"columns": ["x", "z"]}, ValueError, "Columns cannot be found in stored dataframe.*z"),
        ({"columns": ["x", "x"]}, ValueError, "asked for twice"),
        ({"columns": "x"}, TypeError, "columns is a list of column names"),
        ({"columns": 5}, TypeError, "columns is a list of column names"),
        ({"columns": [5]}, TypeError, "columns is a list of column names"),
        ({"categories": "x"}, TypeError, "categories is a list of column names"),
        ({"predicates": []}, ValueError, "Empty predicates"),
        ({"predicates": [[]]}, ValueError, "Conjunction 0 is empty"),
        ({"predicates": [("x", "==", 1)]}, ValueError, "Conjunction 0 should be a list of 3-tuples"),
        ({"predicates": [[["x", "==", 1]]]}, ValueError, "Clause 0 in conjunction 0 should be a 3-tuple"),  # H03
        ({"predicates": [[("z", "==", 1)]]}, KeyError, "z"),  # H04
        ({"predicates": [[("x", "==", "1")]]}, TypeError, "Unexpected type for predicate.*'x'"),  # H09
        ({"predicates": [[("x", "==", True)]]}, TypeError, "Unexpected type for predicate.*'x'"),  # H11
        ({"predicates": [[("v1", "==", "1")]]}, TypeError, "Unexpected type for predicate.*'v1'"),  # H10
        ({"predicates": [[("x", "in", [1, "2.0"])]]}, TypeError, "Unexpected type for predicate.*'x'"),
        ({"predicates": [[("y", "<", None)]]}, ValueError, "Only operators supporting null values"),  # H29
        ({"predicates": [[("y", "==", b"a\0")]]}, NotImplementedError, "Null-terminated"),  # H28
        ({"predicates": [[("y", "like", "a")]]}, NotImplementedError, "'like'"),
    ],
    ids=str,
)
def test_arguments_that_do_not_fit(serializer, arguments, error, words):
    store = MemoryStore()
    key = serializer.store(store, "f", frame())
    with pytest.raises(error, match=words) as caught:
        restore(store, key, **arguments)
    assert isinstance(caught.value, KartothekCubeError)


@serializers
def test_constants_that_can_be_read_only_once_are_refused(serializer):
    store = MemoryStore()
    key = serializer.store(store, "f", frame())
    with pytest.raises(ValueError, match="can be read only once"):
        restore(store, key, predicates=[[("x", "in", iter([1]))]])


@pytest.mark.parametrize("pushdown", [True, False])
@pytest.mark.parametrize(
    ("column", "value"),
    [("d", NOON), ("t", DAY), ("t", "2020-02-29 12:00"), ("d", "2020-02-29"), ("d", DAY), ("t", NOON)],
)
def test_dates_are_midnights_with_and_without_pushdown(column, value, pushdown):  # H15, H16
    store = MemoryStore()
    key = ParquetSerializer().store(store, "f", pa.table(ALL_TYPES))
    found = restore(store, key, predicates=[[(column, ">=", value)]], predicate_pushdown_to_io=pushdown)
    assert len(found) == (value is not NOON or column == "t")


def test_dates_in_csv_are_compared_loosely():
    store = MemoryStore()
    key = CsvSerializer().store(store, "f", pa.table({"d": [DAY, None, dt.date(2020, 3, 1)], "x": [1, 2, 3]}))
    for value in ("2020-02-29", DAY, dt.datetime(2020, 2, 29)):
        assert restore(store, key, predicates=[[("d", "==", value)]])["x"].tolist() == [1]
    assert restore(store, key, predicates=[[("d", ">", DAY)]])["x"].tolist() == [3]


def test_row_groups_that_cannot_match_are_not_read(monkeypatch):
    store = MemoryStore()
    key = ParquetSerializer(chunk_size=1).store(store, "f", frame())
    read, original = [], ParquetSource._decoded
    monkeypatch.setattr(
        ParquetSource,
        "_decoded",
        lambda source, file, groups, columns: read.append(list(groups)) or original(source, file, groups, columns),
    )
    restore(store, key, predicates=[[("x", "==", 1)]])
    restore(store, key, predicates=[[("x", "==", 1)]], predicate_pushdown_to_io=False)
    assert read == [[1], [0, 1, 2]]


def test_row_labels_in_the_files_of_pandas_are_passed_over():
    store = MemoryStore()
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pandas(frame().iloc[[2, 0, 1]]), sink)
    store.put("f.parquet", memoryview(sink.getvalue()))
    assert b"__index_level_0__" in sink.getvalue().to_pybytes()
    assert_same(restore(store, "f.parquet"), frame().iloc[[2, 0, 1]].reset_index(drop=True))


# --- keys that cannot be read ---------------------------------------------------------------------


@pytest.mark.parametrize("key", ["f", "f.feather", "f.parquet.tmp"])
def test_an_unknown_suffix_is_refused(key):  # J02
    with pytest.raises(ValueError, match=f"The specified file format for '{key}' is not supported"):
        restore(MemoryStore(), key)


@pytest.mark.parametrize("key", ["f.parquet", "f.csv", "f.csv.gz"])
def test_a_missing_file_is_a_key_error(key):
    with pytest.raises(KeyNotFound, match=f"The file '{key}' is not in the store"):
        restore(MemoryStore(), key)


def test_a_damaged_parquet_file_is_an_os_error_and_corrupt_data():  # J04
    store = MemoryStore()
    data = bytes(store.get(ParquetSerializer().store(store, "f", frame())))
    for damaged in (b"no parquet", b"", data[:-9] + b"X" * 9):
        store.put("f.parquet", damaged)
        with pytest.raises(ParquetReadError, match=r"The file 'f\.parquet' cannot be read") as error:
            restore(store, "f.parquet")
        assert isinstance(error.value, OSError)
        assert isinstance(error.value, CorruptData)
        assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)


@pytest.mark.parametrize("data", [b"", b"x;y\n1;2;3;4\n5;6;7\n", b"x\n\xff\n"])
def test_a_damaged_csv_file_is_corrupt_data(data):
    store = MemoryStore()
    store.put("f.csv", data)
    with pytest.raises(CorruptData, match=r"'f\.csv' cannot be read"):
        restore(store, "f.csv")


def test_an_error_of_the_store_is_raised_at_once_and_as_it_is():  # J04
    store = FaultyStore(MemoryStore(), lambda call: "before" if call.operation != "put" else None)
    key = ParquetSerializer().store(store, "f", frame())
    with pytest.raises(InjectedFault):
        restore(store, key)
    assert len([call for call in store.calls if call.operation != "put"]) == 1


def test_other_formats_may_be_registered(monkeypatch):
    monkeypatch.setattr(DataFrameSerializer, "_serializers", dict(DataFrameSerializer._serializers))

    class JsonSerializer(DataFrameSerializer):
        def store(self, store, key_prefix, df):
            store.put(f"{key_prefix}.json", df.to_json().encode())
            return f"{key_prefix}.json"

        @classmethod
        def restore_dataframe(cls, store, key, _filter_query=None, columns=None, *_args):
            import json

            return pd.DataFrame(json.loads(store.get(key)))[columns]

    DataFrameSerializer.register_serializer(".json", JsonSerializer)
    store = MemoryStore()
    key = JsonSerializer().store(store, "f", frame())
    assert restore(store, key, columns=["x"])["x"].tolist() == [3, 1, 2]
    assert restore(store, ParquetSerializer().store(store, "f", frame()))["x"].tolist() == [3, 1, 2]


# --- datasets -------------------------------------------------------------------------------------


@pytest.mark.parametrize("serializer", [*SERIALIZERS, ParquetFormat(), CsvFormat()], ids=str)
def test_cubes_are_written_in_every_format(serializer):
    store = open_store("hmemory://")
    rows = pd.DataFrame(
        {
            "x": [1, 2, 3],
            "p": ["a", "a", "b"],
            "v1": [True, None, False],
            "t": pd.to_datetime(["2020-01-01", None, "2020-01-03"]),
            "y": ["", "n", None],
        }
    )
    cube = Cube(["x"], ["p"], "cube")
    build_cube(rows, cube, store, df_serializer=serializer)
    assert {
        key.partition("/table/")[2][-len(serializer.file_suffix) :]
        for key in store.list("cube++seed/table/p=", recursive=True).keys
    } == {serializer.file_suffix}
    (found,) = query_cube(cube, store)
    assert found["x"].tolist() == [1, 2, 3]
    assert found["v1"].tolist() == [True, None, False]
    assert found["t"].dtype.kind == "M"
    assert found["y"].tolist()[:2] == ["", "n"]
    (found,) = query_cube(
        cube, store, conditions=(C("t") > pd.Timestamp("2020-01-01")) & (C("p") == "b"), payload_columns=["v1"]
    )
    assert found["v1"].tolist() == [False]


@pytest.mark.parametrize("serializer", [ParquetSerializer, "ParquetSerializer", object(), 1])
def test_what_is_no_serializer_is_refused(serializer):
    store = CountingStore(MemoryStore())
    with pytest.raises(InvalidType, match="df_serializer should be a ParquetSerializer or a CsvSerializer"):
        build_cube(
            pd.DataFrame({"x": [1], "p": [1], "v1": [2]}), Cube(["x"], ["p"], "cube"), store, df_serializer=serializer
        )
    assert store.touched("put") == []


def test_a_request_with_a_serializer_travels():
    request = StageRequest("uuid", (), (), (), CsvSerializer(compress=False))
    assert pickle.loads(pickle.dumps(request)) == request
    assert request.serializer.encode(pa.table({"x": [1]})).to_pybytes() == b"x\n1\n"


# --- functions on predicates ----------------------------------------------------------------------


def test_columns_in_predicates():
    assert columns_in_predicates(None) == set()
    assert columns_in_predicates([[("x", "==", 1), ("y", "==", 2)], [("x", "==", 3)]]) == {"x", "y"}


@pytest.mark.parametrize(
    ("predicates", "columns", "expected"),
    [
        (None, ["x"], None),
        ([[("x", "==", 1)]], ["y"], None),
        ([[("x", "==", 1)]], [], None),
        ([[("x", "==", 1), ("y", "==", 2)]], ["y"], [[("y", "==", 2)]]),
        ([[("x", "==", 1)], [("y", "==", 2)]], ["y"], [[("y", "==", 2)]]),
        (
            [[("x", "==", 1), ("x", "<", 2)], [("y", "==", 2)]],
            {"x", "y"},
            [[("x", "==", 1), ("x", "<", 2)], [("y", "==", 2)]],
        ),
    ],
)
def test_filter_predicates_by_column(predicates, columns, expected):
    assert filter_predicates_by_column(predicates, columns) == expected


@pytest.mark.parametrize(
    ("predicates", "error"),
    [
        ([], ValueError),
        ([[]], ValueError),
        ([("x", "==", 1)], ValueError),
        ([[["x", "==", 1]]], ValueError),
        ([[("x", "==")]], ValueError),
        ([[("x", ">", None)]], ValueError),
        ([[("x", "in", None)]], ValueError),
        ([[("x", "==", b"\0")]], NotImplementedError),
        ([[("x", "in", [b"a\0"])]], NotImplementedError),
    ],
)
def test_check_predicates(predicates, error):
    with pytest.raises(error):
        check_predicates(predicates)
    assert check_predicates([[("x", "==", None)]]) is None
    assert check_predicates(None) is None


def test_filter_df():
    df = frame()
    assert filter_df(df) is df
    assert filter_df(df, "") is df
    assert filter_df(df, "x > 1").index.tolist() == [0, 2]


def test_filter_df_from_predicates():
    df = frame().set_index(pd.Index([10, 20, 30]))
    assert filter_df_from_predicates(df, None) is df
    for predicates, rows in PREDICATES:
        found = filter_df_from_predicates(df, predicates)
        assert found["x"].tolist() == rows
        pdt.assert_frame_equal(found, df[df["x"].isin(rows)])
    with pytest.raises(KeyError, match="z"):
        filter_df_from_predicates(df, [[("z", "==", 1)]])
    with pytest.raises(ValueError, match="Empty predicates"):
        filter_df_from_predicates(df, [])
    assert filter_df_from_predicates(df.iloc[:0], [[("x", "==", 1)]]).empty


@pytest.mark.parametrize(
    "make", [np.array, pd.Series, pd.Index, pd.Categorical, pa.array, list], ids=lambda m: m.__name__
)
def test_arrays_of_every_kind(make):
    for values, op, value, expected in [
        ([1, 2, 3], ">", 1, [False, True, True]),
        (["b", "a", "c"], "<", "b", [False, True, False]),
        (["b", "a", "c"], "in", ["a", "z"], [False, True, False]),
        ([0.5, 1.5], "!=", 0.5, [False, True]),
    ]:
        found = filter_array_like(make(values), op, value)
        assert isinstance(found, np.ndarray)
        assert found.tolist() == expected


def test_mask_and_out():
    out = np.ones(3, dtype=bool)
    mask = np.array([True, True, False])
    assert filter_array_like(np.array([1, 2, 3]), ">", 1, mask=mask, out=out) is out
    assert out.tolist() == [False, True, False]
    assert mask.tolist() == [True, True, False]
    assert filter_array_like(np.array([1, 2, 3]), ">", 1, mask=mask, out=mask) is mask
    assert mask.tolist() == [False, True, False]


@pytest.mark.parametrize("name", ["mask", "out"])
@pytest.mark.parametrize("given", [True, [True], np.ones(4, dtype=bool), np.ones((3, 1), dtype=bool)], ids=repr)
def test_mask_and_out_have_one_boolean_a_value(name, given):
    with pytest.raises(InvalidInput, match=f"{name} should have one boolean for each of 3 values of 'PRICE'"):
        filter_array_like(np.array([1, 2, 3]), ">", 1, column_name="PRICE", **{name: given})


def test_a_column_that_a_frame_has_twice_is_not_compared():
    with pytest.raises(InvalidInput, match="more than once: x"):
        filter_df_from_predicates(pd.DataFrame([[1, 2]], columns=["x", "x"]), [[("x", "==", 1)]])


@pytest.mark.parametrize("op", ["==", "<", "in"])
@pytest.mark.parametrize("text", ["", "NaT", "nan", "noon"])
def test_text_that_is_no_moment_is_no_null(op, text):
    """pandas makes nulls of the empty text and of others."""
    with pytest.raises(InvalidType, match=f"{text!r} is no text of one"):
        filter_array_like(pa.array([NOON, None]), op, [text] if op == "in" else text)


def test_the_name_of_the_column_is_in_the_message():
    with pytest.raises(TypeError, match="'PRICE'"):
        filter_array_like(np.array([1]), "==", "0.5", column_name="PRICE")
    with pytest.raises(TypeError, match="<unknown>"):
        filter_array_like(np.array([1]), "==", "0.5")


@pytest.mark.parametrize("op", ["==", "!=", "<", ">=", "in"])
@pytest.mark.parametrize("value", ["a", 1, True, DAY, NOON, b"a"], ids=str)
def test_a_column_without_values_takes_every_constant(op, value):
    for values in (np.array([np.nan, np.nan]), np.array([None, None], dtype=object)):
        found = filter_array_like(values, op, [value] if op == "in" else value)
        assert found.tolist() == [op == "!="] * 2
    assert filter_array_like(np.array([]), op, [value] if op == "in" else value).tolist() == []


def test_categories_are_ordered_as_their_values():  # H31
    values = pd.Categorical(["b", "a", "c"], categories=["c", "b", "a"], ordered=True)
    assert filter_array_like(values, "<", "b").tolist() == [False, True, False]
    assert filter_array_like(pd.Series(values), ">=", "b").tolist() == [True, False, True]


NANO = pd.Timestamp("2020-02-29 12:00:00.000000001")
DATES = pd.Series([DAY, None, dt.date(2020, 3, 1)])
MOMENTS = pd.Series(pd.to_datetime([NOON, None, dt.datetime(2020, 2, 29)]))


@pytest.mark.parametrize(
    ("values", "op", "value", "loose", "strict"),
    [
        (DATES, "==", DAY, [True, False, False], [True, False, False]),
        (DATES, "==", "2020-02-29", [True, False, False], [True, False, False]),
        (DATES, "in", [DAY, None], [True, True, False], [True, True, False]),
        (DATES, "==", dt.datetime(2020, 2, 29), [True, False, False], TypeError),
        (DATES, ">", NOON, [False, False, True], TypeError),
        (DATES, "==", np.datetime64("2020-02-29"), [True, False, False], TypeError),
        (DATES, "in", ["2020-02-29", NOON], [True, False, False], TypeError),
        (DATES, "==", "noon", TypeError, TypeError),
        (DATES, "==", 1, TypeError, TypeError),
        (MOMENTS, "==", NOON, [True, False, False], [True, False, False]),
        (MOMENTS, "==", pd.Timestamp(NOON), [True, False, False], [True, False, False]),
        (MOMENTS, "==", pd.NaT, [False, True, False], [False, True, False]),
        (MOMENTS, "!=", NOON, [False, True, True], [False, True, True]),
        (MOMENTS, "==", DAY, [False, False, True], TypeError),
        (MOMENTS, ">=", DAY, [True, False, True], TypeError),
        (MOMENTS, "==", "2020-02-29 12:00", [True, False, False], TypeError),
        (MOMENTS, "in", [DAY, "2020-02-29 12:00", None], [True, True, True], TypeError),
        (MOMENTS, "==", b"2020-02-29", [False, False, True], TypeError),
        (MOMENTS, "==", "noon", TypeError, TypeError),
        (MOMENTS, "==", 1, TypeError, TypeError),
        (pd.Series(["2020-02-29", None, "2020-03-01"]), "==", DAY, [True, False, False], TypeError),
        (pd.Series(["2020-02-29", None, "2020-03-01"]), ">", NOON, [False, False, True], TypeError),
        (pd.Series(["2020-02-29", None, "x"]), "==", DAY, TypeError, TypeError),
        (pd.Series(["2020-02-29", None, "x"]), "==", "x", [False, False, True], [False, False, True]),
        (MOMENTS.dt.tz_localize("UTC"), "==", NOON, [True, False, False], [True, False, False]),
        (MOMENTS.dt.tz_localize("UTC"), "==", NOON.replace(tzinfo=dt.UTC), [True, False, False], [True, False, False]),
        (pd.Series([NANO, NANO.floor("s")]), "==", NANO, [True, False], [True, False]),
        (pd.Series([NANO, NANO.floor("s")]), "<", NANO, [False, True], [False, True]),
    ],
    ids=range(28),
)
def test_dates_and_moments(values, op, value, loose, strict):
    for expected, rule in ((loose, False), (strict, True)):
        if expected is TypeError:
            with pytest.raises(InvalidType):
                filter_array_like(values, op, value, strict_date_types=rule)
        else:
            assert filter_array_like(values, op, value, strict_date_types=rule).tolist() == expected
            assert (
                filter_df_from_predicates(values.to_frame("x"), [[("x", op, value)]], rule).index.tolist()
                == np.flatnonzero(expected).tolist()
            )


@pytest.mark.parametrize("values", [[1, "a"], [np.datetime64("2020-01-02"), None]])
def test_columns_of_mixed_types_are_not_compared(values):
    with pytest.raises(InvalidType, match="'x' has no single type"):
        filter_df_from_predicates(pd.DataFrame({"x": pd.Series(values, dtype=object)}), [[("x", "==", 1)]])


def test_a_damaged_file_is_the_same_error_in_dask():
    """Its processes make errors without `__init__`, unless these say how they are made."""
    func, args, *rest = ParquetReadError("The file 'f.parquet' cannot be read: no footer").__reduce__()
    assert (func, args, rest) == (ParquetReadError, ("The file 'f.parquet' cannot be read: no footer",), [])
