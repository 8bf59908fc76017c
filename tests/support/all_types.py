"""Rows with every type that docs/types.md names, nulls among them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from functools import cache
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq

ZONE = "Europe/Berlin"
NIGHT = dt.datetime(2024, 3, 31, 1, 30, 0, 250_000)
BEFORE = dt.datetime(1969, 12, 31)

# Column → values and stored type.
STORED = {
    "b": ([True, False, None], pa.bool_()),
    "i8": ([-128, None, 127], pa.int8()),
    "i64": ([-(2**63), 2**53 + 1, None], pa.int64()),
    "u16": ([0, None, 65535], pa.uint16()),
    "u64": ([2**64 - 1, None, 0], pa.uint64()),
    "f32": ([0.5, float("inf"), None], pa.float32()),
    "f64": ([0.1, None, -1e300], pa.float64()),
    "s": (["a", None, "Köln / 50% ; =\"'\n"], pa.string()),
    "bin": ([b"\xff\x00", b"", None], pa.binary()),
    "d": ([dt.date(1, 1, 1), None, dt.date(9999, 12, 31)], pa.date32()),
    "ts": ([NIGHT, None, BEFORE], pa.timestamp("us")),
    "tz": (
        [NIGHT.replace(tzinfo=ZoneInfo(ZONE)), None, BEFORE.replace(tzinfo=ZoneInfo(ZONE))],
        pa.timestamp("us", ZONE),
    ),
    "t": ([dt.time(23, 59, 59, 1), None, dt.time(0)], pa.time64("us")),
    "dur": ([dt.timedelta(microseconds=-1), None, dt.timedelta(days=400)], pa.duration("ns")),
    "dec": ([Decimal("1.10"), None, Decimal("-9999.99")], pa.decimal128(6, 2)),
    "li": ([[1, None], [], None], pa.list_(pa.field("item", pa.int16()))),
    "ll": ([[["a"], None], None, [[]]], pa.list_(pa.field("item", pa.list_(pa.field("item", pa.string()))))),
    "st": ([{"a": 1, "b": None}, None, {"a": None, "b": "x"}], pa.struct([("a", pa.int8()), ("b", pa.string())])),
    "m": ([[("k", 1)], None, []], pa.map_(pa.string(), pa.int8())),
    "n": ([None, None, None], pa.null()),
}
ALL_TYPES = pa.table({name: pa.array(values, kind) for name, (values, kind) in STORED.items()})
INDEXED = ["b", "i8", "i64", "u16", "u64", "f32", "f64", "s", "bin", "d", "ts", "tz"]
IN_CSV = [*(name for name in INDEXED if name != "bin"), "t", "dec", "n"]

# Other widths and spellings of the same types.
SPELLINGS = {
    "f16": pa.array([1.5, None, -2.0], pa.float32()).cast(pa.float16()),
    "s_large": pa.array([None, "日本", ""], pa.large_string()),
    "s_cat": pa.array(["a", None, "a"]).dictionary_encode(),
    "bin_2": pa.array([b"ab", None, b"cd"], pa.binary(2)),
    "d64": pa.array([dt.date(2024, 5, 1), None, None], pa.date64()),
    "ts_ns": pa.array([NIGHT, None, BEFORE], pa.timestamp("ns")),
    "dur_us": pa.array([dt.timedelta(1), None, None], pa.duration("us")),
    "list_large": pa.array([["a"], None, []], pa.large_list(pa.large_string())),
}

# Zones that Arrow stores and an engine may lack.
ODD_ZONES = ["+05:30", "+0530", "UTC+01:00", "Z", "europe/berlin", "Nowhere/City", "*"]


def nested_moments(zone: str) -> dict[str, pa.Array]:
    """Columns of three rows with the same moments in a zone, plain and inside of other types."""
    moment = pa.timestamp("us", zone)
    items = pa.struct([("a", pa.list_(moment))])
    # Microseconds since 1970: Python does not know all of the zones.
    columns = {
        "plain": pa.array([86_400_000_001, None, -1], moment),
        "listed": pa.array([[0, None], None, []], pa.list_(moment)),
        "struct": pa.array([{"a": 0}, None, {"a": None}], pa.struct([("a", moment)])),
        "deep": pa.array([[{"a": [0]}], None, [None]], pa.list_(items)),
        "mapped": pa.array([[(0, -1)], None, []], pa.map_(moment, moment)),
    }
    if not keeps_zones_of_maps():
        del columns["mapped"]
    return columns


@cache
def keeps_zones_of_maps() -> bool:
    """Whether this release of Arrow reads maps in the zone that it wrote: 18 reads UTC."""
    moment, file = pa.timestamp("us", ZONE), pa.BufferOutputStream()
    table = pa.table({"m": pa.nulls(1, pa.map_(moment, moment))})
    pq.write_table(table, file)
    return bool(pq.read_table(pa.BufferReader(file.getvalue())).schema.equals(table.schema))


PARTITION_VALUES = {
    "text": pa.array(["", "a b=c&ä%~.-_"]),
    "slash": pa.array(["日本/x", "/"]),
    "integers": pa.array([-2, 2**62]),
    "unsigned": pa.array([2**64 - 1, 0], pa.uint64()),
    "floats": pa.array([1e300, 1.1]),
    "large": pa.array([2.0, 1e22]),
    "infinite": pa.array([float("inf"), 1e-7]),
    "narrow": pa.array([0.1, 3.0], pa.float32()),
    "booleans": pa.array([True, False]),
    "binary": pa.array([b"\xc3\xa4/=", b""]),
    "dates": pa.array([dt.date(2024, 5, 1), dt.date(1, 1, 1)]),
    "timestamps": pa.array([NIGHT, dt.datetime(1066, 10, 14)], pa.timestamp("us")),
}
