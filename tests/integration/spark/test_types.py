"""Types on the way between Arrow and Spark, with a session that is neither in UTC nor in the zone
of the machine.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import types as st

from kartothek_cube import Cube
from kartothek_cube.errors import InvalidInput, Unsupported
from kartothek_cube.spark import build_cube_from_spark, query_cube_spark
from kartothek_cube.spark.types import conform, frame_schema, spark_schema, to_spark, wire_schema

MOMENT = dt.datetime(2024, 3, 10, 2, 30, 0, 1)

# Arrow column, the Spark type that it becomes, and the values that come back
TABLE = {
    "bool": (pa.array([True, None]), "boolean", None),
    "i8": (pa.array([-128, None], pa.int8()), "tinyint", None),
    "i16": (pa.array([1, None], pa.int16()), "smallint", None),
    "i32": (pa.array([1, None], pa.int32()), "int", None),
    "i64": (pa.array([2**63 - 1, None]), "bigint", None),
    "u8": (pa.array([255, None], pa.uint8()), "smallint", None),
    "u16": (pa.array([2**16 - 1, None], pa.uint16()), "int", None),
    "u32": (pa.array([2**32 - 1, None], pa.uint32()), "bigint", None),
    "u64": (pa.array([2**64 - 1, None], pa.uint64()), "decimal(20,0)", [Decimal(2**64 - 1), None]),
    "f32": (pa.array([1.5, None], pa.float32()), "float", None),
    "f64": (pa.array([1.5, None]), "double", None),
    "string": (pa.array(["ä", None]), "string", None),
    "large": (pa.array(["ä", None], pa.large_string()), "string", None),
    "dictionary": (pa.array(["ä", None]).dictionary_encode(), "string", None),
    "numbers": (pa.array([7, None]).dictionary_encode(), "bigint", None),
    "binary": (pa.array([b"\0", None]), "binary", None),
    "large binary": (pa.array([b"\0", None], pa.large_binary()), "binary", None),
    "fixed": (pa.array([b"ab", None], pa.binary(2)), "binary", None),
    "date": (pa.array([dt.date(2024, 3, 10), None]), "date", None),
    "date64": (pa.array([dt.date(2024, 3, 10), None], pa.date64()), "date", None),
    "us": (pa.array([MOMENT, None], pa.timestamp("us")), "timestamp_ntz", None),
    "ms": (pa.array([MOMENT.replace(microsecond=0), None], pa.timestamp("ms")), "timestamp_ntz", None),
    "ns": (pa.array([1_710_037_800_000_001_999, None], pa.timestamp("ns")), "timestamp_ntz", [MOMENT, None]),
    "s": (pa.array([MOMENT.replace(microsecond=0), None], pa.timestamp("s")), "timestamp_ntz", None),
    "tz": (pa.array([MOMENT, None], pa.timestamp("us", tz="Europe/Berlin")), "timestamp", None),
    "decimal": (pa.array([Decimal("1.10"), None]), "decimal(3,2)", None),
    "time": (pa.array([dt.time(1, 2, 3), None], pa.time32("s")), "time(6)", None),
    "time us": (pa.array([dt.time(1, 2, 3, 4), None], pa.time64("us")), "time(6)", None),
    "duration": (pa.array([1_000_001, None], pa.duration("us")), "interval day to second", None),
    "duration ns": (
        pa.array([1_000_001_000, None], pa.duration("ns")),
        "interval day to second",
        [dt.timedelta(microseconds=1_000_001), None],
    ),
    "half": (pa.array(np.array([1.5, 2], dtype=np.float16)), "float", None),
    "string view": (pa.array(["ä", None], pa.string_view()), "string", None),
    "binary view": (pa.array([b"\0", None], pa.binary_view()), "binary", None),
    "null": (pa.array([None, None]), "string", None),
    "list": (pa.array([[1, None], None], pa.list_(pa.int16())), "array<smallint>", None),
    "large list": (pa.array([["a"], None], pa.large_list(pa.string())), "array<string>", None),
    "fixed list": (pa.array([[1, 2], None], pa.list_(pa.uint8(), 2)), "array<smallint>", None),
    "list of texts": (
        pa.array([["a"], None]).cast(pa.list_(pa.dictionary(pa.int32(), pa.string()))),
        "array<string>",
        None,
    ),
    "list ns": (
        pa.array([[1_710_037_800_000_001_999], None], pa.list_(pa.timestamp("ns"))),
        "array<timestamp_ntz>",
        [[MOMENT], None],
    ),
    "struct": (pa.array([{"a": 1}, None]), "struct<a:bigint>", None),
    "map": (pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())), "map<string,bigint>", None),
}


@pytest.fixture(scope="module")
def emitted(spark):
    """All columns, sent through one task and collected again."""
    table = pa.table({name: array for name, (array, _, _) in TABLE.items()})
    wire = wire_schema(table.schema, "the test")

    def task(batches):
        for _ in batches:
            yield from to_spark(table.select(sorted(table.column_names)), wire)

    frame = spark.range(0, 1, 1, 1).mapInArrow(task, spark_schema(wire))
    return frame, frame.toArrow()


@pytest.mark.parametrize("name", TABLE)
def test_columns_reach_spark(emitted, name):
    array, kind, values = TABLE[name]
    frame, table = emitted
    assert dict(frame.dtypes)[name] == kind
    assert table.column(name).to_pylist() == (array.to_pylist() if values is None else values)


@pytest.mark.parametrize("kind", [pa.decimal256(40), pa.month_day_nano_interval()], ids=str)
def test_types_that_spark_lacks_are_refused_by_name(kind):
    with pytest.raises(Unsupported, match=r"Column 'v' of cube 'c': Spark has no type"):
        wire_schema(pa.schema([("v", kind)]), "cube 'c'")


def test_nan_and_null_stay_apart(spark):
    wire = pa.schema([("v", pa.float64())])

    def task(batches):
        for _ in batches:
            yield from to_spark(pa.table({"v": [float("nan"), None]}), wire)

    assert [
        r.s for r in spark.range(0, 1, 1, 1).mapInArrow(task, "v double").selectExpr("string(v) AS s").collect()
    ] == ["NaN", None]


@pytest.mark.parametrize(
    ("ddl", "kind"),
    [
        ("tinyint", pa.int8()),
        ("bigint", pa.int64()),
        ("decimal(10,2)", pa.decimal128(10, 2)),
        ("timestamp_ntz", pa.timestamp("us")),
        ("time(6)", pa.time64("us")),
        ("void", pa.null()),
        ("array<struct<a:int,b:timestamp_ntz>>", pa.list_(pa.struct([("a", pa.int32()), ("b", pa.timestamp("us"))]))),
        ("map<string,date>", pa.map_(pa.string(), pa.date32())),
    ],
)
def test_types_in_which_columns_of_spark_are_stored(spark, ddl, kind):
    assert frame_schema(st.StructType.fromDDL(f"v {ddl}"), "d").field("v").type.equals(kind)


@pytest.mark.parametrize("kind", [st.VarcharType(3), st.CharType(3)])
def test_text_of_bounded_length_is_text(kind):
    assert frame_schema(st.StructType([st.StructField("v", kind)]), "d").field("v").type == pa.string()


def test_zoned_times_deep_inside_are_refused():
    schema = st.StructType([st.StructField("v", st.MapType(st.StringType(), st.ArrayType(st.TimestampType())))])
    with pytest.raises(InvalidInput, match="Column 'v' of dataset 'd' is a Spark timestamp"):
        frame_schema(schema, "d")
    assert frame_schema(schema, "d", "utc").field("v").type.item_type.value_type == pa.timestamp("us")


def test_names_that_occur_twice_are_refused():
    schema = st.StructType([st.StructField("v", st.LongType()), st.StructField("v", st.LongType())])
    with pytest.raises(InvalidInput, match="Duplicate columns"):
        frame_schema(schema, "d")


def test_columns_are_taken_by_name():
    table = conform(pa.table({"b": [1], "a": [2], "c": [3]}), pa.schema([("a", pa.int64()), ("b", pa.int32())]), "it")
    assert table.to_pylist() == [{"a": 2, "b": 1}]
    with pytest.raises(InvalidInput, match="The rows of it have no column 'a'"):
        conform(pa.table({"b": [1]}), pa.schema([("a", pa.int64())]), "it")


def test_small_chunks_are_put_together():
    table = pa.concat_tables([pa.table({"a": [i]}) for i in range(100)])
    assert [b.num_rows for b in to_spark(table, table.schema)] == [100]
    assert list(to_spark(table.slice(0, 0), table.schema)) == []


# A column of each type of Spark, and as what it comes back where that is another type
STORED = {
    "boolean": ("true", None),
    "tinyint": ("CAST(1 AS tinyint)", None),
    "smallint": ("CAST(1 AS smallint)", None),
    "int": ("1", None),
    "bigint": ("9223372036854775807", None),
    "float": ("CAST(1.5 AS float)", None),
    "double": ("CAST('NaN' AS double)", None),
    "decimal(38,2)": ("CAST('123456789012345678901234567890123456.78' AS decimal(38,2))", None),
    "string": ("'ä'", None),
    "varchar(3)": ("CAST('abc' AS varchar(3))", "string"),
    "binary": ("X'00FF'", None),
    "date": ("DATE'2024-03-10'", None),
    "timestamp_ntz": ("TIMESTAMP_NTZ'2024-03-10 02:30:00.000001'", None),
    "timestamp": ("TIMESTAMP'2024-03-10 01:30:00-05:00'", "timestamp_ntz"),
    "time(6)": ("TIME'01:02:03.000004'", None),
    "array<int>": ("array(1, null)", None),
    "array<timestamp_ntz>": ("array(TIMESTAMP_NTZ'2024-03-10 02:30:00')", None),
    "struct<a:int,b:string>": ("named_struct('a', 1, 'b', 'x')", None),
    "map<string,bigint>": ("map('k', 1L)", None),
}


@pytest.fixture
def times_of_day(spark):
    """Spark's own expressions of type ``time`` have to be switched on."""
    spark.conf.set("spark.sql.timeType.enabled", "true")
    yield
    spark.conf.unset("spark.sql.timeType.enabled")


def test_every_type_goes_into_a_cube_and_comes_back(spark, times_of_day, store_url):
    columns = {f"v{i}": (kind, *rest) for i, (kind, rest) in enumerate(STORED.items())}
    picked = ", ".join(
        f"IF(id = 0, CAST({value} AS {kind}), null) AS {name}" for name, (kind, value, _) in columns.items()
    )
    frame = spark.sql(f"SELECT id AS x, 0L AS p, {picked} FROM range(0, 2, 1, 1)")
    cube = Cube(["x"], ["p"], "types")
    build_cube_from_spark(frame, cube, store_url, timestamps="utc")
    found = query_cube_spark(cube, store_url)
    kinds = dict(found.dtypes)
    assert {name: kinds[name] for name in columns} == {name: back or kind for name, (kind, _, back) in columns.items()}
    texts = [f"CAST({name} AS string) AS {name}" for name, (kind, *_) in columns.items() if kind != "timestamp"]
    assert found.orderBy("x").selectExpr("x", *texts).collect() == frame.orderBy("x").selectExpr("x", *texts).collect()
    (instant,) = (name for name, (kind, *_) in columns.items() if kind == "timestamp")
    assert found.where("x = 0").first()[instant] == dt.datetime(2024, 3, 10, 6, 30)


@pytest.mark.parametrize(
    "kind",
    [
        st.DayTimeIntervalType(),
        st.YearMonthIntervalType(),
        st.CalendarIntervalType(),
        st.VariantType(),
        st.ArrayType(st.YearMonthIntervalType()),
    ],
    ids=lambda kind: kind.simpleString(),
)
def test_types_that_parquet_lacks_are_refused_by_name(kind):
    with pytest.raises(Unsupported, match=r"Column 'v' of dataset 'd': the Spark type .* cannot be stored"):
        frame_schema(st.StructType([st.StructField("v", kind)]), "d")


def test_a_type_that_cannot_be_stored_is_refused_before_anything_is(spark, store_url, store):
    frame = spark.sql("SELECT 1L AS x, 1L AS p, INTERVAL '1' DAY AS v")
    with pytest.raises(Unsupported, match="Column 'v' of dataset 'seed': the Spark type interval day"):
        build_cube_from_spark(frame, Cube(["x"], ["p"], "types"), store_url)
    assert list(store.list("", recursive=True).keys) == []


def test_only_times_are_cut():
    kind = pa.list_(pa.struct([("t", pa.timestamp("ns")), ("v", pa.int64())]))
    table = pa.table({"v": pa.array([[{"t": 1_001, "v": 2**40}]], kind)})
    wire = wire_schema(table.schema, "it")
    assert conform(table, wire, "it").column("v")[0].as_py() == [
        {"t": dt.datetime(1970, 1, 1, microsecond=1), "v": 2**40}
    ]
    small = pa.schema([("v", pa.list_(pa.struct([("t", pa.timestamp("us")), ("v", pa.int32())])))])
    with pytest.raises(InvalidInput, match="Column 'v' of it"):
        conform(table, small, "it")


NAIVE, ZONED = pa.timestamp("ns"), pa.timestamp("us", tz="UTC")


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (NAIVE, ZONED),
        (pa.dictionary(pa.int8(), NAIVE), ZONED),
        (pa.large_list(NAIVE), pa.list_(ZONED)),
        (pa.struct([("a", ZONED), ("b", NAIVE)]), pa.struct([("b", ZONED), ("a", ZONED)])),
        (pa.map_(pa.string(), pa.list_(NAIVE)), pa.map_(pa.string(), pa.list_(ZONED))),
    ],
    ids=str,
)
def test_times_without_a_zone_do_not_silently_become_instants(given, wanted):
    with pytest.raises(InvalidInput, match=r"Column 't' of it has times without a zone.*timestamp_ntz"):
        conform(pa.table({"t": pa.nulls(1, given)}), pa.schema([("t", wanted)]), "it")


def test_other_zones_are_the_same_instants():
    table = conform(
        pa.table({"t": pa.array([0], pa.timestamp("ns", tz="Europe/Berlin"))}), pa.schema([("t", ZONED)]), "it"
    )
    assert table.column("t")[0].as_py() == dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
