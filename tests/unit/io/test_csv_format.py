from __future__ import annotations

import datetime as dt
import decimal
import gzip
import io

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kartothek_cube.core.expressions.predicates import Clause
from kartothek_cube.core.io.csv import CsvFormat
from kartothek_cube.core.io.formats import ParquetFormat
from kartothek_cube.core.io.reader import FileRequest, file_rows, read_rows
from kartothek_cube.core.stores.local import LocalStore, MemoryStore
from kartothek_cube.errors import CorruptData, InvalidType, KeyNotFound, Unsupported
from kartothek_cube.testing.stores import FaultyStore, InjectedFault

FORMATS = [CsvFormat(), CsvFormat(compress=False)]
KEY = "uuid/table/f.csv"
DAY = dt.datetime(2020, 2, 29, 23, 59, 59, 999999)

# All types that text carries back, with their extreme values.
CARRIED = {
    pa.int8(): [-128, 0, 127],
    pa.int64(): [-(2**63), 2**63 - 1],
    pa.uint8(): [0, 255],
    pa.uint64(): [0, 2**64 - 1],
    pa.float32(): [0.0, -1.5, 16777216.0, float(np.float32(0.1)), float("inf"), float("nan")],
    pa.float64(): [0.0, -0.0, 1.0, -5.0, 0.1, 1e22, 1e300, 5e-324, float("inf"), -float("inf"), float("nan")],
    pa.bool_(): [True, False],
    pa.string(): [
        "",
        "a",
        ";",
        '"',
        '""',
        "\n",
        "\r",
        "\r\n",
        " a ",
        "ä😀",
        "NA",
        "nan",
        "null",
        "True",
        "1",
        "1.0",
        "2020-01-01",
        "'",
        "#",
        ",",
        "\t",
        "\ufeff",
    ],
    pa.date32(): [dt.date(1, 1, 1), dt.date(2020, 2, 29), dt.date(9999, 12, 31)],
    pa.timestamp("us"): [
        dt.datetime(1, 1, 1),
        dt.datetime(2020, 1, 1),
        DAY,
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
    ],
    pa.timestamp("us", "UTC"): [dt.datetime(2020, 1, 1, tzinfo=dt.UTC), DAY.replace(tzinfo=dt.UTC)],
    pa.timestamp("us", "Europe/Berlin"): [dt.datetime(2020, 10, 25, h, 30, tzinfo=dt.UTC) for h in (0, 1)]
    + [dt.datetime(1850, 1, 1, 12, tzinfo=dt.UTC)],
    pa.decimal128(9, 7): [decimal.Decimal("0.0000001"), decimal.Decimal("-12.5000000"), decimal.Decimal("0E-7")],
    pa.decimal128(38, 0): [decimal.Decimal("9" * 38), decimal.Decimal(0)],
    pa.time64("us"): [dt.time(), dt.time(23, 59, 59, 999999)],
    pa.null(): [],
}


def restored(table, file_format, **constants):
    store = MemoryStore()
    key = f"uuid/table/f{file_format.file_suffix}"
    store.put(key, memoryview(file_format.encode(table)))
    assert file_rows(store, key, "uuid") == table.num_rows
    return read_rows(store, key, FileRequest("uuid", table.schema, tuple(table.column_names)), constants)


def read(text, columns, *clauses, key=KEY, **constants):
    """Columns of a file with this text; ``columns`` says their types."""
    store = MemoryStore()
    store.put(key, text.encode() if isinstance(text, str) else text)
    request = FileRequest("uuid", pa.schema(columns), tuple(columns), (clauses,) if clauses else None)
    return read_rows(store, key, request, constants)


def same(left, right):
    """Equal as Arrow tables, where NaN equals NaN and minus zero is not zero."""
    return left.schema == right.schema and repr(left.to_pydict()) == repr(right.to_pydict())


# --- there and back -------------------------------------------------------------------------------


@pytest.mark.parametrize("file_format", FORMATS, ids=["gz", "plain"])
@pytest.mark.parametrize("kind", CARRIED, ids=str)
def test_every_value_comes_back(kind, file_format):
    values = [None, *CARRIED[kind], None]
    table = pa.table({"n": range(len(values)), "v1": pa.array(values, kind)})
    back = restored(table, file_format)
    assert same(back, table)
    assert back.column("v1").null_count == 2


@pytest.mark.parametrize("kind", CARRIED, ids=str)
def test_a_single_column_comes_back(kind):
    values = [v for v in CARRIED[kind] if v != ""]
    table = pa.table({"v1": pa.array([None, *values, None, None], kind)})
    assert same(restored(table, CsvFormat()), table)


@pytest.mark.parametrize("kind", CARRIED, ids=str)
def test_types_of_a_file_without_rows_come_from_the_dataset(kind):  # J05
    table = pa.schema([("v1", kind), ("x", pa.int64())]).empty_table()
    assert restored(table, CsvFormat(compress=False)).schema == table.schema
    assert restored(table.select(["v1"]), CsvFormat()).schema == table.select(["v1"]).schema


def test_empty_text_alone_would_be_null_and_is_refused():
    with pytest.raises(Unsupported, match="'v1' is the only one of a CSV file and has empty text"):
        CsvFormat().encode(pa.table({"v1": ["a", ""]}))
    assert CsvFormat(compress=False).encode(pa.table({"v1": ["a", None]})).to_pybytes() == b'v1\na\n""\n'


@pytest.mark.parametrize(
    "kind",
    [
        pa.binary(),
        pa.list_(pa.int64()),
        pa.struct([("a", pa.int64())]),
        pa.duration("us"),
        pa.map_(pa.string(), pa.int8()),
    ],
    ids=str,
)
def test_types_that_text_does_not_carry_are_refused_by_name(kind):
    table = pa.schema([("x", pa.int64()), ("v1", kind)]).empty_table()
    with pytest.raises(Unsupported, match=r"Column 'v1' is .*CSV cannot carry"):
        CsvFormat().encode(table)
    sink = io.BytesIO()
    with pytest.raises(NotImplementedError):
        CsvFormat(compress=False).write_stream([], table.schema, sink)
    assert sink.getvalue() == b""
    with pytest.raises(Unsupported, match="'v1'"):
        read("x;v1\n1;2\n", {"v1": kind})
    assert read("x;v1\n1;2\n", {"x": pa.int64()}).to_pydict() == {"x": [1]}


@pytest.mark.parametrize(
    "column",
    [
        pa.array([2**60], pa.timestamp("us")),
        pa.array([-(2**60)], pa.timestamp("us", "UTC")),
        pa.array([10**7], pa.date32()),
    ],
)
def test_moments_that_have_no_iso_text_are_refused(column):
    with pytest.raises(Unsupported, match="'v1' has moments outside the years 1 to 9999"):
        CsvFormat().encode(pa.table({"v1": column}))


def test_a_table_without_columns_is_refused():
    with pytest.raises(Unsupported, match="without columns"):
        CsvFormat().encode(pa.table({}))


@pytest.mark.parametrize(
    "column",
    [pa.array(["a", None]).dictionary_encode(), pa.array(["a", None], pa.large_string())],
    ids=["dictionary", "large"],
)
def test_other_forms_of_text(column):
    assert CsvFormat(compress=False).encode(pa.table({"x": [1, 2], "v1": column})).to_pybytes() == b"x;v1\n1;a\n2;\n"


@pytest.mark.parametrize("name", ["a;b", 'a"b', "a\nb", "ä", " a", "#"])
def test_names_of_columns_come_back(name):
    table = pa.table({name: [1], "x": [2]})
    assert restored(table, CsvFormat()) == table


def test_settings():
    assert [f.file_suffix for f in FORMATS] == [".csv.gz", ".csv"]
    assert CsvFormat() == CsvFormat(compress=True) != CsvFormat(compress=False)
    with pytest.raises(InvalidType, match="compress"):
        CsvFormat(compress="gzip")


def test_equal_tables_make_equal_files():
    table = pa.table({"x": [1]})
    packed = CsvFormat().encode(table).to_pybytes()
    assert packed == CsvFormat().encode(table).to_pybytes()
    assert gzip.decompress(packed) == CsvFormat(compress=False).encode(table).to_pybytes() == b"x\n1\n"


@pytest.mark.parametrize("file_format", FORMATS, ids=["gz", "plain"])
def test_a_file_may_be_written_piece_by_piece(file_format):
    table = pa.table({"x": range(10), "y": [f"{i}" for i in range(10)]})
    pieces = [table.slice(0, 4), *table.slice(4).to_batches(max_chunksize=3), table.slice(0, 0)]
    sink = io.BytesIO()
    assert file_format.write_stream(iter(pieces), pa.schema([("y", pa.string()), ("x", pa.int8())]), sink) == 10
    whole = file_format.encode(table.select(["y", "x"])).to_pybytes()
    assert (
        (gzip.decompress(sink.getvalue()) == gzip.decompress(whole))
        if file_format.compress
        else sink.getvalue() == whole
    )


def test_a_row_may_be_longer_than_what_the_parser_takes_at_once_by_default():
    table = pa.table({"x": [1, 2, 3], "y": ["a\n" * 2**20, None, "b;" * 2**20]})
    assert restored(table, CsvFormat()) == table


def scalars(kind):
    if kind == pa.string():
        return st.text(st.characters(codec="utf-8"), max_size=8) | st.text('";\r\n\0 a', max_size=6)
    if kind == pa.float64():
        return st.floats()
    if kind == pa.int64():
        return st.integers(-(2**63), 2**63 - 1)
    if kind == pa.date32():
        return st.dates()
    if kind == pa.timestamp("us"):
        return st.datetimes()
    return st.sampled_from(CARRIED[kind] or [None])


@st.composite
def tables(draw):
    kinds = draw(st.lists(st.sampled_from(list(CARRIED)), min_size=2, max_size=4))
    rows = draw(st.integers(0, 6))
    columns = [
        pa.array(draw(st.lists(st.none() | scalars(kind), min_size=rows, max_size=rows)), kind) for kind in kinds
    ]
    return pa.table(columns, names=[f"c{i}" for i in range(len(kinds))])


@given(tables(), st.sampled_from([ParquetFormat(), ParquetFormat("ZSTD", 2), *FORMATS]))
@example(pa.table({"a": ["\r", "\0"], "b": ["\n", '"']}), CsvFormat())
def test_tables_come_back_in_every_format(table, file_format):
    assert same(restored(table, file_format), table)


# --- files of pandas ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("series", "kind", "values"),
    [
        (pd.Series([1, -2], dtype="int8"), pa.int64(), [1, -2]),
        (pd.Series([1, None], dtype="Int64"), pa.int64(), [1, None]),
        (pd.Series([2**64 - 1, 0], dtype="uint64"), pa.uint64(), [2**64 - 1, 0]),
        (pd.Series([1.0, np.nan]), pa.float64(), [1.0, None]),
        (pd.Series([1e300, np.inf]), pa.float64(), [1e300, float("inf")]),
        (pd.Series([0.1, -0.5], dtype="float32"), pa.float32(), [float(np.float32(0.1)), -0.5]),
        (pd.Series([True, False]), pa.bool_(), [True, False]),
        (pd.Series([True, None], dtype=object), pa.bool_(), [True, None]),
        (pd.Series(['a;"b"\n', None], dtype=object), pa.string(), ['a;"b"\n', None]),
        (pd.Series(["NA", "nan"], dtype=object), pa.string(), ["NA", "nan"]),
        (pd.Series(["", "ä"], dtype=object), pa.string(), [None, "ä"]),
        (pd.Series(["b", "a"], dtype="category"), pa.string(), ["b", "a"]),
        (pd.Series([None, None], dtype=object), pa.null(), [None, None]),
        (pd.Series([None, None], dtype=object), pa.string(), [None, None]),
        (pd.Series([dt.date(2020, 1, 2), None]), pa.date32(), [dt.date(2020, 1, 2), None]),
        (
            pd.Series(pd.to_datetime(["2020-01-02", "2020-01-03"])),
            pa.date32(),
            [dt.date(2020, 1, 2), dt.date(2020, 1, 3)],
        ),
        (pd.Series(pd.to_datetime(["2020-01-02", None])), pa.timestamp("us"), [dt.datetime(2020, 1, 2), None]),
        (pd.Series([DAY, None], dtype="datetime64[ns]"), pa.timestamp("us"), [DAY, None]),
        (
            pd.Series([DAY, DAY], dtype="datetime64[ns]").dt.tz_localize("Asia/Tokyo"),
            pa.timestamp("us", "Asia/Tokyo"),
            [DAY, DAY],
        ),
        (pd.Series([decimal.Decimal("1.50"), None]), pa.decimal128(5, 2), [decimal.Decimal("1.50"), None]),
        (pd.Series([dt.time(1, 2, 3), None]), pa.time64("us"), [dt.time(1, 2, 3), None]),
    ],
    ids=str,
)
@pytest.mark.parametrize("alone", [False, True], ids=["with others", "alone"])
def test_files_of_pandas_are_read_in_the_types_of_the_dataset(series, kind, values, alone):
    frame = series.to_frame("v1") if alone else series.to_frame("v1").assign(x=[7, 8])
    column = read(frame.to_csv(sep=";", index=False), {"v1": kind}).column("v1")
    assert column.type == kind
    assert [v.replace(tzinfo=None) if isinstance(v, dt.datetime) else v for v in column.to_pylist()] == values


def test_files_of_pandas_may_be_compressed():
    sink = io.BytesIO()
    pd.DataFrame({"x": [1, 2]}).to_csv(sink, sep=";", index=False, compression="gzip")
    assert read(sink.getvalue(), {"x": pa.int64()}, key="uuid/table/f.csv.gz").to_pydict() == {"x": [1, 2]}


def test_pandas_reads_our_files():
    table = pa.table(
        {
            "i": [1, 2],
            "f": [1.0, None],
            "b": [True, False],
            "y": ['a;"\n', "ä"],
            "d": [dt.date(2020, 1, 1), None],
            "t": [DAY, None],
        }
    )
    frame = pd.read_csv(
        io.BytesIO(CsvFormat(compress=False).encode(table).to_pybytes()), sep=";", parse_dates=["d", "t"]
    )
    assert [dtype.kind for dtype in frame.dtypes[["i", "f", "b", "d", "t"]]] == list("ifbMM")
    assert frame["y"].tolist() == ['a;"\n', "ä"]
    assert frame["t"][0] == pd.Timestamp(DAY)
    assert frame.isna().sum().sum() == 3


# --- reading --------------------------------------------------------------------------------------


TEXT = "y;x;z\na;1;0.5\nb;2;\n;3;1.5\n"


def test_rows_are_filtered_and_columns_projected():
    kinds = {"x": pa.int64(), "y": pa.string()}
    assert read(TEXT, kinds).to_pydict() == {"x": [1, 2, 3], "y": ["a", "b", None]}
    assert read(TEXT, kinds, Clause("x", ">", 1)).to_pydict() == {"x": [2, 3], "y": ["b", None]}
    assert read(TEXT, kinds, Clause("y", "==", None)).to_pydict() == {"x": [3], "y": [None]}
    assert read(TEXT, {}).num_rows == 3


def test_predicate_columns_are_not_returned():
    store = MemoryStore()
    store.put(KEY, TEXT.encode())
    request = FileRequest(
        "uuid", pa.schema([("x", pa.int64()), ("y", pa.string())]), ("x",), ((Clause("y", "==", "b"),),)
    )
    assert read_rows(store, KEY, request).to_pydict() == {"x": [2]}


def test_missing_columns_are_null():
    found = read(TEXT, {"v1": pa.float64(), "x": pa.int64()})
    assert found.to_pydict() == {"v1": [None] * 3, "x": [1, 2, 3]}
    assert read(TEXT, {"v1": pa.list_(pa.int8())}).to_pydict() == {"v1": [None] * 3}


def test_partition_values_win_over_columns_inside():
    assert read(TEXT, {"x": pa.int64(), "y": pa.string()}, y="c").to_pydict() == {"x": [1, 2, 3], "y": ["c"] * 3}
    assert read(
        TEXT, {"x": pa.int64(), "p": pa.int64()}, Clause("p", "==", 1), Clause("x", "<", 2), p=1
    ).to_pydict() == {"x": [1], "p": [1]}
    assert read("damaged", {"p": pa.int64()}, Clause("p", "==", 2), p=1).num_rows == 0


def test_a_byte_order_mark_and_crlf():
    assert read("\ufeffx;y\r\n1;a\r\n", {"x": pa.int64(), "y": pa.string()}).to_pydict() == {"x": [1], "y": ["a"]}


def test_null_columns_of_the_dataset():
    assert read("x;y\n1;\n", {"y": pa.null()}).to_pydict() == {"y": [None]}
    with pytest.raises(CorruptData, match="'y'"):
        read("x;y\n1;a\n", {"y": pa.null()})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x;y\na;b\n", "column 'x'.*'a'"),
        ("x;y\n1.5;b\n", "column 'x'.*'1.5'"),
        ("x;y\n1\n", "Expected 2 columns, got 1"),
        ("x;y\n1;2;3\n", "Expected 2 columns, got 3"),
        ("", "needs a header"),
        ("x;x\n1;2\n", "needs a header"),
        (b"x;y\n1;\xff\n", "utf-8"),
        (b"x;y\n" + b"1;a\n" * 10_000 + b"1;\xff\n", "UTF8"),
        (b"\xff;y\n1;a\n", "utf-8"),
    ],
)
def test_damage_is_named(text, words):
    with pytest.raises(CorruptData, match=words) as error:
        read(text, {"x": pa.int64(), "y": pa.string()})
    assert KEY in str(error.value)


@pytest.mark.parametrize("data", [b"x\n1\n", gzip.compress(b"x\n1\n" * 1000)[:-20], b""], ids=["plain", "cut", "empty"])
def test_damaged_compression_is_named(data):
    with pytest.raises(CorruptData, match=r"f\.csv\.gz'"):
        read(data, {"x": pa.int64()}, key="uuid/table/f.csv.gz")


def test_a_missing_file_is_named():
    for store in (MemoryStore(), LocalStore("/nonexistent")):
        with pytest.raises(KeyNotFound, match=f"'{KEY}', which dataset 'uuid' names"):
            read_rows(store, KEY, FileRequest("uuid", pa.schema([("x", pa.int64())]), ("x",)))


def test_faults_of_the_store_are_not_taken_for_damage():
    store = FaultyStore(MemoryStore(), lambda call: "before")
    with pytest.raises(InjectedFault):
        read_rows(store, KEY, FileRequest("uuid", pa.schema([("x", pa.int64())]), ("x",)))


def test_a_dataset_may_have_files_of_both_formats():
    store = MemoryStore()
    table = pa.table({"x": [1, 2], "y": ["a", None]})
    for file_format in (ParquetFormat(), *FORMATS):
        store.put(f"uuid/table/f{file_format.file_suffix}", memoryview(file_format.encode(table)))
    request = FileRequest("uuid", table.schema, ("y", "x"), ((Clause("x", ">", 1),),))
    for key in store.list("uuid/", recursive=True).keys:
        assert read_rows(store, key, request) == pa.table({"y": pa.array([None], pa.string()), "x": [2]})
    assert pq.read_table(pa.BufferReader(store.get("uuid/table/f.parquet"))) == table
