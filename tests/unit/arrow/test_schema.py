from __future__ import annotations

import base64
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kartothek_cube.core.arrow.types import (
    normal_type,
    ordered,
    plain_type,
    stored_schema,
    stored_type,
    unify,
)
from kartothek_cube.core.metadata.snapshot import (
    common_metadata_bytes,
    embedded_schemas,
    parse_common_metadata,
    parse_embedded_schemas,
)
from kartothek_cube.errors import CorruptDocument, InvalidInput, Unsupported

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
