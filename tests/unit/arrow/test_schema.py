from __future__ import annotations

import base64
import datetime as dt
import json
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kartothek_cube.core.arrow.schema import (
    Literal,
    check_literal,
    literal,
    literal_array,
    ordered,
    plain_type,
    stored_schema,
    unify,
)
from kartothek_cube.core.arrow.types import normal_type, stored_type
from kartothek_cube.core.metadata.schema_file import (
    common_metadata_bytes,
    embedded_schemas,
    parse_common_metadata,
    parse_embedded_schemas,
)
from kartothek_cube.errors import CorruptDocument, InvalidInput, InvalidType, Unsupported

US = pa.timestamp("us")
BERLIN = pa.timestamp("us", tz="Europe/Berlin")
STRUCT = pa.struct([("a", pa.int8()), pa.field("b", pa.large_list(pa.timestamp("ns")), nullable=False)])
STORED_STRUCT = pa.struct([("a", pa.int8()), ("b", pa.list_(US))])


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
        (pa.time32("s"), pa.time64("us"), pa.time64("us")),
        (pa.time64("ns"), pa.time64("us"), pa.time64("us")),
        (pa.duration("s"), pa.duration("ns"), pa.duration("ns")),
        (pa.float16(), pa.float32(), pa.float64()),
        (pa.binary(4), pa.binary(), pa.binary()),
        (pa.list_(pa.float16(), 2), pa.list_(pa.float32()), pa.list_(pa.float64())),
        (pa.decimal256(38, 2), pa.decimal128(38, 2), pa.decimal128(38, 2)),
        (STRUCT, STORED_STRUCT, STORED_STRUCT),
        (pa.map_(pa.large_string(), pa.date64()), pa.map_(pa.string(), pa.date32()), pa.map_(pa.string(), pa.date32())),
        # younger than the oldest pyarrow
        *(
            (getattr(pa, name)(4, 2), pa.decimal128(4, 2), pa.decimal128(4, 2))
            for name in ("decimal32", "decimal64")
            if hasattr(pa, name)
        ),
    ],
)
def test_stored_and_normal_types(kind, stored, normal):
    assert stored_type(kind) == stored
    assert normal_type(stored_type(kind)) == normal
    assert plain_type(kind) == normal


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        (pa.decimal256(39, 2), r"decimal128\(38, \.\.\.\)"),
        (pa.list_view(pa.int64()), "Make lists"),
        (pa.month_day_nano_interval(), "columns of their own"),
        (pa.dense_union([pa.field("a", pa.int8())]), "a column for each"),
        (pa.run_end_encoded(pa.int32(), pa.int64()), "run_end_decode"),
        (pa.uuid(), r"Cast the column to fixed_size_binary\[16\]"),
        (pa.list_(pa.uuid()), "Cast the column to fixed_size_binary"),
        (pa.dictionary(pa.int8(), pa.decimal256(40)), "decimal128"),
        (pa.struct([]), "needs fields"),
        (pa.struct([("a", pa.int8()), ("a", pa.int8())]), "name of its own"),
        (pa.map_(pa.string(), pa.struct([])), "needs fields"),
    ],
    ids=str,
)
def test_types_that_the_format_cannot_carry_are_refused_by_name(kind, advice):
    with pytest.raises(Unsupported, match=rf"Column 'v1' of dataset 'uuid': The type .* cannot be stored\. .*{advice}"):
        stored_schema(pa.schema([("x", pa.int64()), ("v1", kind)]), " of dataset 'uuid'")


def test_partition_keys_come_first_then_names_in_code_point_order():
    schema = pa.schema([(name, pa.int64()) for name in ("b", "q", "B", "a", "p")])
    assert ordered(schema, ["q", "p"]).names == ["q", "p", "B", "a", "b"]
    assert ordered(schema, ["z"]).names == ["B", "a", "b", "p", "q"]


# --- unification: dataset.md 7.1, but widths widen ------------------------------------------------


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
        (pa.list_(pa.null()), pa.list_(pa.list_(pa.int8())), pa.list_(pa.list_(pa.int8()))),
        (pa.decimal128(3, 2), pa.decimal128(4, 2), pa.decimal128(4, 2)),
        (pa.decimal128(38, 2), pa.decimal128(38, 2), pa.decimal128(38, 2)),
        (pa.decimal128(4, 1), pa.decimal128(4, 3), pa.decimal128(6, 3)),
        (
            pa.struct([("a", pa.int8()), ("b", pa.null())]),
            pa.struct([("a", pa.int16()), ("b", pa.string())]),
            pa.struct([("a", pa.int16()), ("b", pa.string())]),
        ),
        (pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.int8()), pa.map_(pa.string(), pa.int64())),
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
        (pa.decimal128(38, 0), pa.decimal128(38, 2)),
        (pa.decimal128(4, 2), pa.float64()),
        (pa.list_(pa.int64()), pa.list_(pa.string())),
        (pa.struct([("a", pa.int8())]), pa.struct([("b", pa.int8())])),
        (pa.struct([("a", pa.int8())]), pa.map_(pa.string(), pa.int8())),
        (pa.duration("ns"), pa.time64("us")),
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


# --- the schema file ------------------------------------------------------------------------------

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
    assert entry["column_indexes"] == [
        {
            "field_name": None,
            "metadata": {"encoding": "UTF-8"},
            "name": None,
            "numpy_type": "object",
            "pandas_type": "unicode",
        }
    ]
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
        [
            ("s", pa.large_string()),
            ("l", pa.list_(pa.field("element", pa.int64()))),
            ("t", pa.timestamp("ns")),
            ("__index_level_0__", pa.int64()),
        ]
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
    assert parse_embedded_schemas(embedded_schemas({"table": ALL, "other": pa.schema([])}), "uuid") == {
        "table": ALL,
        "other": pa.schema([]),
    }


@pytest.mark.parametrize(
    "text", ["", "[]", '{"table": "x"}', '{"table": 1}', json.dumps({"table": base64.b64encode(b"abc").decode()})]
)
def test_damaged_embedded_schema_names_the_document(text):
    with pytest.raises(CorruptDocument, match="uuid"):
        parse_embedded_schemas(text, "uuid")


# --- literals -------------------------------------------------------------------------------------

MOMENT = dt.datetime(2020, 1, 1, 12, 30, 0, 5)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int8(), [1, -1, 2**70, np.int8(1), np.int64(1), np.uint8(1)]),  # H12
        (pa.uint8(), [1, np.uint64(1), np.int8(-1)]),  # H12
        (pa.float32(), [1.0, float("inf"), np.float32(1)]),
        (pa.bool_(), [True, np.bool_(False)]),
        (pa.string(), ["a", b"a", "ä".encode()]),
        (pa.binary(), ["a", b"\xff"]),
        (pa.date32(), [dt.date(2020, 1, 1), "2020-01-01", b"2020-01-01"]),
        (US, [MOMENT, pd.Timestamp(MOMENT), np.datetime64(MOMENT)]),
        (BERLIN, [MOMENT, MOMENT.replace(tzinfo=dt.UTC)]),
        (pa.decimal128(4, 2), [Decimal("1.5"), Decimal("-1e99")]),
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
        (pa.int64(), [1.0, True, "1", np.float64(1), np.bool_(True), dt.date(2020, 1, 1)]),
        (pa.uint64(), [True, 1.0]),
        (pa.float64(), [1, True, "1.0"]),
        (pa.bool_(), [0, 1, "True"]),
        (pa.string(), [1, dt.date(2020, 1, 1), b"\xff"]),
        (pa.binary(), [1]),
        (pa.date32(), [MOMENT, "1.1.2020", b"\xff", 1]),  # H15
        (US, [dt.date(2020, 1, 1), "2020-01-01", 1, MOMENT.replace(tzinfo=dt.UTC)]),  # H16
        (pa.decimal128(4, 2), [1, 1.0, "1.0"]),
        (pa.list_(pa.int64()), [1, [1]]),
        (pa.struct([("a", pa.int64())]), [{"a": 1}]),
    ],
    ids=str,
)
def test_constants_that_do_not_fit_are_refused_with_column_and_value(kind, values):
    for value in values:
        with pytest.raises(InvalidType, match=r"Column 'x' of dataset 'uuid' is .* the value is"):
            check_literal(value, kind, "x", " of dataset 'uuid'")


@pytest.mark.parametrize(
    ("value", "kind", "floor", "exact"),
    [
        (-128, pa.int8(), -128, True),
        (128, pa.int8(), 127, False),
        (-(2**70), pa.int64(), None, False),
        (-1, pa.uint64(), None, False),
        (2**64 - 1, pa.uint64(), 2**64 - 1, True),
        (np.int64(-1), pa.uint8(), None, False),
        (Decimal("1.5"), pa.decimal128(4, 2), Decimal("1.50"), True),
        (Decimal("99.99"), pa.decimal128(4, 2), Decimal("99.99"), True),
        (Decimal("99.991"), pa.decimal128(4, 2), Decimal("99.99"), False),
        (Decimal(100), pa.decimal128(4, 2), Decimal("99.99"), False),
        (Decimal("-99.991"), pa.decimal128(4, 2), None, False),
        (Decimal("-0.001"), pa.decimal128(4, 2), Decimal("-0.01"), False),
        (Decimal("1e-999999"), pa.decimal128(38, 38), Decimal(0), False),
        (Decimal("-0e999"), pa.decimal128(4, 2), Decimal(0), True),
        (Decimal("-Infinity"), pa.decimal128(4, 2), None, False),
        (Decimal("Infinity"), pa.decimal128(38, 0), Decimal(10**38 - 1), False),
        (Decimal(1234), pa.decimal128(4, -2), Decimal(1200), False),
    ],
)
def test_the_greatest_value_that_is_not_above_a_constant(value, kind, floor, exact):
    found = literal(value, kind)
    assert (None if found.floor is None else found.floor.as_py(), found.exact) == (floor, exact)
    assert found.floor is None or found.floor.type.equals(kind)


@pytest.mark.parametrize(
    ("unit", "ticks", "exact"), [("s", -1, False), ("ms", -1, False), ("us", -1000, False), ("ns", -999999, True)]
)
@pytest.mark.parametrize(
    "value",
    [
        pd.Timestamp(-999999),
        np.datetime64(-999999, "ns"),
        np.datetime64(-999999000, "ps"),
        pd.Timestamp(-999999, tz="UTC"),
    ],
)
def test_moments_are_exact_in_every_unit(unit, ticks, exact, value):
    assert literal(value, pa.timestamp(unit)) == Literal(pa.scalar(ticks, pa.int64()).cast(pa.timestamp(unit)), exact)


@pytest.mark.parametrize(("year", "floor"), [(-300_000, None), (300_000, 2**63 - 1)])
def test_moments_beyond_the_range_lie_below_or_above_all(year, floor):
    found = literal(np.datetime64(year - 1970, "Y"), US)
    assert (None if found.floor is None else found.floor.value, found.exact) == (floor, False)


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
    assert literal(value, US) == Literal(pa.scalar(MOMENT, US))
    assert literal_array([value], US).to_pylist() == [MOMENT]


@pytest.mark.parametrize("year", [1, 1600, 2400, 9999])
def test_moments_beyond_the_nanosecond_range(year):
    moment = dt.datetime(year, 12, 31)
    assert literal(np.datetime64(moment, "us"), US) == Literal(pa.scalar(moment, US))
    assert literal(np.datetime64(moment, "D"), US) == Literal(pa.scalar(moment, US))
    assert literal(pd.Timestamp(moment), US) == Literal(pa.scalar(moment, US))


def test_naive_moment_counts_as_utc_where_the_column_has_a_zone():
    expected = Literal(pa.scalar(dt.datetime(2020, 1, 1, 11, tzinfo=dt.UTC), BERLIN))
    assert literal(dt.datetime(2020, 1, 1, 11), BERLIN) == expected
    assert literal(pd.Timestamp("2020-01-01 12:00", tz="Europe/Berlin"), BERLIN) == expected
    assert literal(pd.Timestamp("2020-01-01 11:00").to_datetime64(), BERLIN) == expected


def test_second_of_two_equal_clock_times_is_kept_apart():
    from zoneinfo import ZoneInfo

    late = dt.datetime(2020, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1)
    assert literal(late, BERLIN) == Literal(pa.scalar(dt.datetime(2020, 10, 25, 1, 30, tzinfo=dt.UTC), BERLIN))


def test_constants_that_no_value_can_equal_are_left_out_of_lists():
    assert literal_array([1, 2**70], pa.int8()) == pa.array([1], pa.int8())
    assert literal_array([Decimal("0.5"), Decimal("0.555"), Decimal(100)], pa.decimal128(4, 2)) == pa.array(
        [Decimal("0.50")], pa.decimal128(4, 2)
    )
    assert literal_array([pd.Timestamp("2020-01-01 00:00:00.000000001"), pd.Timestamp(MOMENT)], US) == pa.array(
        [MOMENT], US
    )
    assert len(literal_array([1, "a"], pa.null())) == 0


FORMS = [
    *(
        [dt.datetime(9999, 1, 1), MOMENT],
        [pd.Timestamp(MOMENT)],
        [pd.Timestamp(MOMENT), pd.Timestamp(1)],
        [np.datetime64(MOMENT, "ns"), np.datetime64(1, "ns")],
    ),
    *(
        [np.datetime64(MOMENT, "us")],
        [np.datetime64(2**40, "s")],
        [np.datetime64(1, "D"), np.datetime64(7, "10us")],
        [MOMENT, np.datetime64(1, "s")],
    ),
    *(
        [MOMENT.replace(tzinfo=dt.timezone(dt.timedelta(hours=5)))],
        [pd.Timestamp(MOMENT, tz="Asia/Tokyo"), MOMENT],
        [np.datetime64(2**62, "s")],
        [],
    ),
]


@pytest.mark.parametrize("kind", [US, BERLIN, pa.timestamp("s"), pa.timestamp("ns", tz="UTC")], ids=str)
@pytest.mark.parametrize("values", FORMS, ids=str)
def test_moments_of_a_list_are_those_of_each(values, kind):
    places = [literal(value, kind) for value in values]
    assert literal_array(values, kind).cast(pa.int64()).to_pylist() == [
        place.floor.value for place in places if place.exact
    ]


@pytest.mark.parametrize(
    ("value", "kind"), [(np.uint8(1), pa.int64()), (np.int8(1), pa.uint8()), (Decimal(1), pa.decimal128(4, 2))], ids=str
)
def test_cubes_are_stricter(value, kind):
    check_literal(value, kind, "x")
    with pytest.raises(InvalidType, match="Column 'x' is"):
        check_literal(value, kind, "x", strict=True)
    check_literal(1, pa.int64(), "x", strict=True)
    check_literal(np.uint8(1), pa.uint64(), "x", strict=True)


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.dictionary(pa.int8(), pa.string())])
@pytest.mark.parametrize("value", ["\ud800", "a\udfffb"])
def test_text_that_is_no_text_is_compared_with_nothing(kind, value):
    with pytest.raises(InvalidType, match="Column 'x'"):
        check_literal(value, kind, "x")
