from __future__ import annotations

import base64
import datetime as dt
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kartothek_cube.core.schema import check_literal, literal_array, literal_scalar, normal_type, ordered, plain_type, stored_schema, stored_type, unify
from kartothek_cube.core.schema_file import common_metadata_bytes, embedded_schemas, parse_common_metadata, parse_embedded_schemas
from kartothek_cube.errors import CorruptDocument, InvalidInput, InvalidType, Unsupported

US = pa.timestamp("us")
BERLIN = pa.timestamp("us", tz="Europe/Berlin")


@pytest.mark.parametrize(
    ("kind", "stored", "normal"),
    [
        *((t, t, pa.int64()) for t in (pa.int8(), pa.int16(), pa.int32(), pa.int64())),
        *((t, t, pa.uint64()) for t in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())),
        (pa.float32(), pa.float32(), pa.float64()),
        (pa.bool_(), pa.bool_(), pa.bool_()),
        (pa.large_string(), pa.string(), pa.string()),
        (pa.string_view(), pa.string(), pa.string()),
        (pa.large_binary(), pa.binary(), pa.binary()),
        (pa.binary_view(), pa.binary(), pa.binary()),
        (pa.date64(), pa.date32(), pa.date32()),
        (pa.timestamp("ns"), US, US),
        (pa.timestamp("s", tz="Europe/Berlin"), BERLIN, BERLIN),
        (pa.decimal128(4, 2), pa.decimal128(4, 2), pa.decimal128(4, 2)),
        (pa.list_(pa.list_(pa.uint8())), pa.list_(pa.list_(pa.uint8())), pa.list_(pa.list_(pa.uint64()))),
        (pa.large_list(pa.large_string()), pa.list_(pa.string()), pa.list_(pa.string())),
        (pa.dictionary(pa.int8(), pa.float32()), pa.float32(), pa.float64()),
        (pa.dictionary(pa.int8(), pa.large_string()), pa.string(), pa.string()),
        (pa.null(), pa.null(), pa.null()),
        (pa.time32("s"), pa.time32("ms"), pa.time32("ms")),
    ],
)
def test_stored_and_normal_types(kind, stored, normal):
    assert stored_type(kind) == stored
    assert normal_type(stored_type(kind)) == normal
    assert plain_type(kind) == normal


@pytest.mark.parametrize(
    "kind",
    [
        pa.float16(),
        pa.decimal256(4, 2),
        pa.month_day_nano_interval(),
        pa.dense_union([pa.field("a", pa.int8())]),
        pa.run_end_encoded(pa.int32(), pa.int64()),
        pa.uuid(),
        pa.list_(pa.float16()),
        pa.dictionary(pa.int8(), pa.float16()),
        pa.list_view(pa.int64()),
        pa.struct([("a", pa.float16())]),
        # younger than the oldest pyarrow
        *([pa.decimal32(4, 2), pa.decimal64(4, 2)] if hasattr(pa, "decimal32") else []),
    ],
    ids=str,
)
def test_types_that_the_format_cannot_carry_are_refused_by_name(kind):
    with pytest.raises(Unsupported, match=r"Column 'v1' of dataset 'uuid'.*cast the column"):
        stored_schema(pa.schema([("x", pa.int64()), ("v1", kind)]), " of dataset 'uuid'")


def test_partition_keys_come_first_then_names_in_code_point_order():
    schema = pa.schema([(name, pa.int64()) for name in ("b", "q", "B", "a", "p")])
    assert ordered(schema, ["q", "p"]).names == ["q", "p", "B", "a", "b"]
    assert ordered(schema, ["z"]).names == ["B", "a", "b", "p", "q"]


# --- unification: dataset.md 7.1, but widths widen ---------------------------------------------------------------------


def two(left, right):
    return unify([pa.schema([("x", left)]), pa.schema([("x", right)])], "dataset 'uuid'").field("x").type


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        (pa.int64(), pa.int8(), pa.int64()),
        (pa.int8(), pa.int64(), pa.int64()),
        (pa.uint8(), pa.uint32(), pa.uint32()),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.string(), pa.null(), pa.string()),
        (pa.null(), pa.string(), pa.string()),
        (pa.null(), pa.null(), pa.null()),
        (pa.list_(pa.int8()), pa.list_(pa.int16()), pa.list_(pa.int16())),
        (pa.list_(pa.int16()), pa.list_(pa.int8()), pa.list_(pa.int16())),
    ],
)
def test_widths_widen(left, right, result):
    assert two(left, right) == result


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pa.int64(), pa.float64()),
        (pa.float64(), pa.int64()),
        (pa.uint64(), pa.int64()),
        (pa.string(), pa.float64()),
        (US, BERLIN),
        (pa.date32(), US),
        (pa.bool_(), pa.int64()),
        (pa.string(), pa.binary()),
        (pa.decimal128(4, 2), pa.decimal128(5, 2)),
        (pa.list_(pa.int64()), pa.list_(pa.null())),
        (pa.list_(pa.int64()), pa.int64()),
    ],
)
def test_families_never_widen(left, right):
    with pytest.raises(InvalidInput, match=r"Schema violation in dataset 'uuid': column 'x'"):
        two(left, right)


def test_columns_are_the_same_in_any_order():
    left, right = pa.schema([("x", pa.int64()), ("y", pa.null())]), pa.schema([("y", pa.string()), ("x", pa.null())])
    assert unify([left, right], "there") == pa.schema([("x", pa.int64()), ("y", pa.string())])
    with pytest.raises(InvalidInput, match=r"missing columns \['x'\], surplus columns \['z'\]"):
        unify([left, pa.schema([("y", pa.string()), ("z", pa.null())])], "there")
    with pytest.raises(InvalidInput, match="there"):
        unify([], "there")


# --- the schema file --------------------------------------------------------------------------------------------------

ALL = pa.schema(
    [
        ("b", pa.bool_()),
        ("by", pa.binary()),
        ("cat", pa.string()),
        ("d", pa.date32()),
        ("dec", pa.decimal128(4, 2)),
        ("f32", pa.float32()),
        ("i8", pa.int8()),
        ("l", pa.list_(pa.int16())),
        ("n", pa.null()),
        ("ts", US),
        ("tz", BERLIN),
        ("u8", pa.uint8()),
    ]
)


def test_schema_file_is_a_footer_that_kartothek_can_read():
    data = common_metadata_bytes(ALL)
    assert data[:4] == data[-4:] == b"PAR1"
    metadata = pq.read_metadata(pa.BufferReader(data))
    assert (metadata.num_rows, metadata.num_row_groups) == (0, 0)
    assert sorted(metadata.metadata) == [b"ARROW:schema", b"pandas"]
    paths = [metadata.schema.column(j).path for j in range(metadata.num_columns)]
    assert "l.list.item" in paths


def test_pandas_entry_of_the_schema_file():
    text = pq.read_metadata(pa.BufferReader(common_metadata_bytes(ALL))).metadata[b"pandas"].decode()
    entry = json.loads(text)
    assert text == json.dumps(entry, sort_keys=True)
    assert sorted(entry) == ["column_indexes", "columns", "creator", "index_columns", "pandas_version"]
    assert entry["column_indexes"] == [{"field_name": None, "metadata": {"encoding": "UTF-8"}, "name": None, "numpy_type": "object", "pandas_type": "unicode"}]
    described = {c["name"]: (c["pandas_type"], c["numpy_type"], c["metadata"]) for c in entry["columns"]}
    assert described == {
        "b": ("bool", "bool", None),
        "by": ("bytes", "object", None),
        "cat": ("unicode", "object", None),
        "d": ("date", "object", None),
        "dec": ("decimal", "object", {"precision": 4, "scale": 2}),
        "f32": ("float64", "float64", None),
        "i8": ("int64", "int64", None),
        "l": ("list[int64]", "object", None),
        "n": ("empty", "object", None),
        "ts": ("datetime", "datetime64[ns]", None),
        "tz": ("datetimetz", "datetime64[ns]", {"timezone": "Europe/Berlin"}),
        "u8": ("uint64", "uint64", None),
    }


def test_schema_file_comes_back_in_normal_form():
    schema = parse_common_metadata(common_metadata_bytes(ALL), "uuid/table/_common_metadata")
    assert schema == pa.schema([(f.name, normal_type(f.type)) for f in ALL])


def test_schema_file_of_plateau_is_read_in_plain_types():
    theirs = pa.schema(
        [("s", pa.large_string()), ("l", pa.list_(pa.field("element", pa.int64()))), ("t", pa.timestamp("ns")), ("__index_level_0__", pa.int64())]
    )
    sink = pa.BufferOutputStream()
    pq.write_metadata(theirs, sink)
    schema = parse_common_metadata(sink.getvalue().to_pybytes(), "there")
    assert schema == pa.schema([("s", pa.string()), ("l", pa.list_(pa.int64())), ("t", US)])


@pytest.mark.parametrize("data", [b"", b"PAR1", b"no parquet at all", b"PAR1\x00\x00\x00\x00PAR1"])
def test_damaged_schema_file_is_named(data):
    with pytest.raises(CorruptDocument, match="uuid/table/_common_metadata"):
        parse_common_metadata(data, "uuid/table/_common_metadata")


def test_embedded_schemas_come_back_exactly():
    assert parse_embedded_schemas(embedded_schemas({"table": ALL, "other": pa.schema([])}), "uuid") == {"table": ALL, "other": pa.schema([])}


@pytest.mark.parametrize("text", ["", "[]", '{"table": "x"}', '{"table": 1}', json.dumps({"table": base64.b64encode(b"abc").decode()})])
def test_damaged_embedded_schema_names_the_document(text):
    with pytest.raises(CorruptDocument, match="uuid"):
        parse_embedded_schemas(text, "uuid")


# --- literals ---------------------------------------------------------------------------------------------------------

MOMENT = dt.datetime(2020, 1, 1, 12, 30, 0, 5)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int8(), [1, -1, 2**70, np.int8(1), np.int64(1)]),
        (pa.uint8(), [1, np.uint64(1)]),
        (pa.float32(), [1.0, float("inf"), np.float32(1)]),
        (pa.bool_(), [True, np.bool_(False)]),
        (pa.string(), ["a", b"a", "ä".encode()]),
        (pa.binary(), ["a", b"\xff"]),
        (pa.date32(), [dt.date(2020, 1, 1), "2020-01-01", b"2020-01-01"]),
        (US, [MOMENT, pd.Timestamp(MOMENT), np.datetime64(MOMENT)]),
        (BERLIN, [MOMENT, MOMENT.replace(tzinfo=dt.UTC)]),
        (pa.null(), [1, "a", None]),
        (pa.dictionary(pa.int8(), pa.string()), ["a"]),
    ],
    ids=str,
)
def test_constants_that_fit(kind, values):
    for value in values:
        check_literal(value, kind, "x")


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int64(), [1.0, True, "1", np.float64(1), np.uint8(1), np.bool_(True), dt.date(2020, 1, 1)]),
        (pa.uint64(), [np.int64(1), True, 1.0]),
        (pa.float64(), [1, True, "1.0"]),
        (pa.bool_(), [0, 1, "True"]),
        (pa.string(), [1, dt.date(2020, 1, 1), b"\xff"]),
        (pa.binary(), [1]),
        (pa.date32(), [MOMENT, "1.1.2020", b"\xff", 1]),
        (US, [dt.date(2020, 1, 1), "2020-01-01", 1, MOMENT.replace(tzinfo=dt.UTC)]),
        (pa.decimal128(4, 2), [1, 1.0]),
        (pa.list_(pa.int64()), [1, [1]]),
        (pa.struct([("a", pa.int64())]), [{"a": 1}]),
    ],
    ids=str,
)
def test_constants_that_do_not_fit_are_refused_with_column_and_value(kind, values):
    for value in values:
        with pytest.raises(InvalidType, match=r"column 'x' of dataset 'uuid'.*value is"):
            check_literal(value, kind, "x", " of dataset 'uuid'")


def test_integer_out_of_range_has_no_scalar():
    assert literal_scalar(2**63, pa.int8()) is None
    assert literal_scalar(-1, pa.uint8()) is None
    assert literal_scalar(2**64 - 1, pa.uint8()) == pa.scalar(2**64 - 1, pa.uint64())
    assert literal_scalar(300, pa.int8()) == pa.scalar(300, pa.int64())


@pytest.mark.parametrize(
    "value",
    [
        MOMENT,
        pd.Timestamp(MOMENT),
        pd.Timestamp(MOMENT).as_unit("us"),
        np.datetime64(MOMENT, "us"),
        np.datetime64(MOMENT, "ns"),
    ],
)
def test_every_spelling_of_a_moment_is_the_same(value):
    assert literal_scalar(value, US) == pa.scalar(MOMENT, US)
    assert literal_array([value], US).to_pylist() == [MOMENT]


@pytest.mark.parametrize("year", [1, 1600, 2400, 9999])
def test_moments_beyond_the_nanosecond_range(year):
    moment = dt.datetime(year, 12, 31)
    assert literal_scalar(np.datetime64(moment, "us"), US) == pa.scalar(moment, US)
    assert literal_scalar(np.datetime64(moment, "D"), US) == pa.scalar(moment, US)
    assert literal_scalar(pd.Timestamp(moment), US) == pa.scalar(moment, US)


def test_naive_moment_counts_as_utc_where_the_column_has_a_zone():
    expected = pa.scalar(dt.datetime(2020, 1, 1, 11, tzinfo=dt.UTC), BERLIN)
    assert literal_scalar(dt.datetime(2020, 1, 1, 11), BERLIN) == expected
    assert literal_scalar(pd.Timestamp("2020-01-01 12:00", tz="Europe/Berlin"), BERLIN) == expected
    assert literal_scalar(pd.Timestamp("2020-01-01 11:00").to_datetime64(), BERLIN) == expected


def test_second_of_two_equal_clock_times_is_kept_apart():
    from zoneinfo import ZoneInfo

    late = dt.datetime(2020, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1)
    assert literal_scalar(late, BERLIN) == pa.scalar(dt.datetime(2020, 10, 25, 1, 30, tzinfo=dt.UTC), BERLIN)


def test_constants_that_no_value_can_equal_are_left_out_of_lists():
    assert literal_array([1, 2**70], pa.int8()) == pa.array([1], pa.int64())
    assert literal_array([pd.Timestamp("2020-01-01 00:00:00.000000001"), pd.Timestamp(MOMENT)], US) == pa.array([MOMENT], US)
    assert len(literal_array([1, "a"], pa.null())) == 0
