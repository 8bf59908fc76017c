"""The fate of a column of each type: tests check these rows, the page on types shows them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

US, BERLIN = pa.timestamp("us"), pa.timestamp("us", "Europe/Berlin")
TEXT = "str" if int(pd.__version__.split(".")[0]) >= 3 else "object"


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of columns: how to make a column, its stored type, and its possible roles.

    ``stored`` and ``key`` are the types of a payload column and of a partition column; None where
    it is refused. ``advice`` are words of that message, ``instead`` what the page says.
    """

    name: str
    make: Callable[[Sequence[Any]], Any]
    values: Sequence[Any]
    more: Sequence[Any]
    stored: pa.DataType | None = None
    key: pa.DataType | None = None
    index: bool = False
    advice: str = ""
    instead: str = ""
    nullable: bool = True
    contents: tuple[str, ...] = field(default=())


# --- values ---------------------------------------------------------------------------------------

T, D = dt.datetime, dt.date
TRUTHS = ([True, False], [False])
INTEGERS = ([3, 1, 2], [2, 5])
FLOATS = ([1.5, -0.25, 1e10], [1.5, 2.0])
HALVES = ([1.5, -0.25], [1.5, 2.0])
TEXTS = (["b", "a/ä%", ""], ["b", "DE"])
BYTES = ([b"b", b"a/%", b""], [b"b", b"DE"])
PAIRS = ([b"DE", b"FR"], [b"FR", b"IT"])
DATES = ([D(2024, 2, 29), D(1969, 12, 31), D(9999, 12, 31)], [D(2024, 2, 29), D(2020, 1, 1)])
MOMENTS = ([T(2024, 2, 29, 1, 2, 3), T(1969, 12, 31, 23, 59, 59)], [T(2024, 2, 29, 1, 2, 3), T(2020, 1, 1)])
ZONED = tuple([moment.replace(tzinfo=dt.UTC) for moment in moments] for moments in MOMENTS)
TIMES = ([dt.time(1, 2, 3), dt.time(0)], [dt.time(23, 59, 59)])
SPANS = ([dt.timedelta(days=1, seconds=2), dt.timedelta(seconds=-1)], [dt.timedelta(0)])
DECIMALS = ([Decimal("1.10"), Decimal("-22.55")], [Decimal("0.01")])
LISTS = ([[1, 2], [3, None]], [[4, 5]])
STRUCTS = ([{"a": 1, "b": "x"}, {"a": None, "b": "y"}], [{"a": 2, "b": None}])
MAPS = ([[("a", 1)], [("b", None), ("c", 3)]], [[]])


# --- Arrow ----------------------------------------------------------------------------------------


def arrow(
    kind: pa.DataType,
    samples: tuple[Sequence[Any], Sequence[Any]],
    stored: pa.DataType | None = None,
    name: str | None = None,
) -> Kind:
    """Payload only."""
    return Kind(name or f"`{spelled(kind)}`", lambda values: pa.array(values, kind), *samples, stored=stored or kind)


def usable(kind: Kind, key: pa.DataType | None = None) -> Kind:
    """The same type in every role."""
    return replace(kind, key=key or kind.stored, index=True)


def refused(
    name: str,
    make: Callable[[Sequence[Any]], Any],
    values: Sequence[Any],
    advice: str,
    instead: str,
    contents: Sequence[str] = ("values",),
) -> Kind:
    return Kind(name, make, values, values, advice=advice, instead=instead, contents=tuple(contents))


def dictionary(
    values: pa.DataType, samples: tuple[Sequence[Any], Sequence[Any]], stored: pa.DataType | None = None
) -> Kind:
    plain = arrow(values, samples, stored, f"`dictionary<{spelled(values)}>`")
    return replace(plain, make=lambda given: pa.array(given, values).dictionary_encode())


def spelled(kind: pa.DataType) -> str:
    """The name of a type as pyarrow spells it."""
    text = str(kind)
    for theirs, ours in (
        ("halffloat", "float16"),
        ("double", "float64"),
        ("[day]", ""),
        ("date64[ms]", "date64"),
        ("item: ", ""),
        (", tz=", ", "),
    ):
        text = text.replace(theirs, ours)
    return "float32" if text == "float" else text


def all_of(storage: pa.DataType, kind: pa.DataType) -> Callable[[Sequence[Any]], pa.Array]:
    return lambda values: pa.ExtensionArray.from_storage(kind, pa.array(values, storage))


def _run_ends(values: Sequence[Any]) -> pa.Array:
    return pa.RunEndEncodedArray.from_arrays(
        pa.array(np.arange(1, len(values) + 1, dtype=np.int32)), pa.array(values, pa.int64())
    )


def _union(values: Sequence[Any]) -> pa.Array:
    offsets, kinds = pa.array(np.arange(len(values), dtype=np.int32)), pa.array(np.zeros(len(values), dtype=np.int8))
    return pa.UnionArray.from_dense(kinds, offsets, [pa.array(values, pa.int64())])


def _halves(values: Sequence[Any]) -> pa.Array:
    return pa.array([None if v is None else np.float16(v) for v in values], pa.float16())


def _interval(values: Sequence[Any]) -> pa.Array:
    return pa.array(values, pa.month_day_nano_interval())


SIGNED = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
UNSIGNED = [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
STRUCT = pa.struct([("a", pa.int8()), ("b", pa.large_string())])
# Newer than the oldest supported pyarrow.
SMALL_DECIMALS = [getattr(pa, name)(6, 2) for name in ("decimal32", "decimal64") if hasattr(pa, name)]

ARROW = [
    usable(arrow(pa.bool_(), TRUTHS)),
    *(usable(arrow(kind, INTEGERS), pa.int64()) for kind in SIGNED),
    *(usable(arrow(kind, INTEGERS), pa.uint64()) for kind in UNSIGNED),
    usable(replace(arrow(pa.float16(), HALVES, pa.float32()), make=_halves), pa.float64()),
    usable(arrow(pa.float32(), HALVES), pa.float64()),
    usable(arrow(pa.float64(), FLOATS)),
    *(usable(arrow(kind, TEXTS, pa.string())) for kind in (pa.string(), pa.large_string(), pa.string_view())),
    *(usable(arrow(kind, BYTES, pa.binary())) for kind in (pa.binary(), pa.large_binary(), pa.binary_view())),
    usable(arrow(pa.binary(2), PAIRS, pa.binary())),
    *(usable(arrow(kind, DATES, pa.date32())) for kind in (pa.date32(), pa.date64())),
    *(usable(arrow(pa.timestamp(unit), MOMENTS, US)) for unit in ("s", "ms", "us", "ns")),
    *(
        replace(arrow(pa.timestamp(unit, "Europe/Berlin"), ZONED, BERLIN), index=True)
        for unit in ("s", "ms", "us", "ns")
    ),
    *(
        arrow(kind, TIMES, pa.time64("us"))
        for kind in (pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"))
    ),
    *(arrow(pa.duration(unit), SPANS, pa.duration("ns")) for unit in ("s", "ms", "us", "ns")),
    *(arrow(kind, DECIMALS, pa.decimal128(6, 2)) for kind in SMALL_DECIMALS),
    arrow(
        pa.decimal128(6, 2),
        DECIMALS,
        name=f"{'' if SMALL_DECIMALS else '`decimal32(6, 2)`, `decimal64(6, 2)`, '}`decimal128(6, 2)`",
    ),
    arrow(pa.decimal256(6, 2), DECIMALS, pa.decimal128(6, 2)),
    *(
        arrow(kind, LISTS, pa.list_(pa.int16()))
        for kind in (pa.list_(pa.int16()), pa.large_list(pa.int16()), pa.list_(pa.int16(), 2))
    ),
    arrow(pa.list_(pa.large_list(pa.large_string())), ([[["a"], []], [None]], [[]]), pa.list_(pa.list_(pa.string()))),
    arrow(pa.list_(pa.timestamp("ns")), ([[T(2020, 1, 1)], []], [[None]]), pa.list_(US)),
    arrow(STRUCT, STRUCTS, pa.struct([("a", pa.int8()), ("b", pa.string())])),
    arrow(
        pa.list_(STRUCT),
        tuple([[row] for row in rows] for rows in STRUCTS),
        pa.list_(pa.struct([("a", pa.int8()), ("b", pa.string())])),
    ),
    arrow(pa.map_(pa.large_string(), pa.int8()), MAPS, pa.map_(pa.string(), pa.int8())),
    usable(dictionary(pa.string(), TEXTS)),
    usable(dictionary(pa.large_string(), TEXTS, pa.string())),
    usable(dictionary(pa.int32(), INTEGERS), pa.int64()),
    usable(dictionary(pa.timestamp("ns"), MOMENTS, US)),
    dictionary(pa.decimal128(6, 2), DECIMALS),
    arrow(pa.null(), ([None, None], [None])),
    refused(
        "`decimal256` of more than 38 digits",
        lambda values: pa.array(values, pa.decimal256(39, 2)),
        DECIMALS[0],
        "decimal128",
        "`decimal128` of 38 digits, `float64`",
    ),
    *(
        refused(
            f"`{name}`",
            lambda values, kind=kind: pa.array(values, kind),
            LISTS[0],
            "to_pylist",
            "`pa.array(column.to_pylist())`",
        )
        for name, kind in {
            "list_view": pa.list_view(pa.int16()),
            "large_list_view": pa.large_list_view(pa.int16()),
        }.items()
    ),
    refused("`run_end_encoded`", _run_ends, INTEGERS[0], "run_end_decode", "`pyarrow.compute.run_end_decode`"),
    refused(
        "`struct` without fields", lambda values: pa.array(values, pa.struct([])), [{}], "needs fields", "leave it out"
    ),
    refused(
        "`month_day_nano_interval`",
        _interval,
        [(1, 2, 3)],
        "columns of their own",
        "columns for months, days, nanoseconds",
        ("values", "no rows"),
    ),
    refused("`dense_union`, `sparse_union`", _union, [1, 2], "a column for each", "a column for each type"),
    refused(
        "extension types, e.g. `uuid`",
        all_of(pa.binary(16), pa.uuid()),
        [b"a" * 16],
        "Cast the column to fixed_size_binary",
        "cast to the storage type",
    ),
]


# --- pandas ---------------------------------------------------------------------------------------


def pandas(
    dtype: Any,
    samples: tuple[Sequence[Any], Sequence[Any]],
    stored: pa.DataType,
    name: str | None = None,
    *,
    nullable: bool = True,
) -> Kind:
    return Kind(
        f"`{name or dtype}`",
        lambda values: pd.Series(list(values), dtype=dtype),
        *samples,
        stored=stored,
        nullable=nullable,
    )


def objects(of: str, samples: tuple[Sequence[Any], Sequence[Any]], stored: pa.DataType) -> Kind:
    return replace(pandas(object, samples, stored), name=f"`object` of {of}")


def category(of: str, samples: tuple[Sequence[Any], Sequence[Any]], stored: pa.DataType) -> Kind:
    categories = list(dict.fromkeys([*samples[0], *samples[1]]))
    plain = Kind(
        f"`category` of {of}",
        lambda values: pd.Series(pd.Categorical(list(values), categories)),
        *samples,
        stored=stored,
    )
    return usable(plain, pa.int64() if pa.types.is_integer(stored) else None)


def _object(values: Sequence[Any]) -> pd.Series:
    return pd.Series(values, dtype=object)


def _cut(values: Sequence[Any]) -> pd.Series:
    return pd.cut(pd.Series(values), 2)


def zoned(unit: str) -> Kind:
    dtype = f"datetime64[{unit}, Europe/Berlin]"
    kind = pandas(dtype, ZONED, BERLIN)
    return replace(kind, make=lambda values: pd.Series(list(values), dtype=dtype), index=True)


NUMPY_INTEGERS = [
    *(usable(pandas(str(kind), INTEGERS, kind, nullable=False), pa.int64()) for kind in SIGNED),
    *(usable(pandas(str(kind), INTEGERS, kind, nullable=False), pa.uint64()) for kind in UNSIGNED),
]
NULLABLE_INTEGERS = [
    *(usable(pandas(str(kind).capitalize(), INTEGERS, kind), pa.int64()) for kind in SIGNED),
    *(usable(pandas(str(kind).replace("uint", "UInt"), INTEGERS, kind), pa.uint64()) for kind in UNSIGNED),
]
PANDAS = [
    usable(pandas("bool", TRUTHS, pa.bool_(), nullable=False)),
    usable(pandas("boolean", TRUTHS, pa.bool_())),
    *(kind for pair in zip(NUMPY_INTEGERS, NULLABLE_INTEGERS, strict=True) for kind in pair),
    usable(pandas("float16", HALVES, pa.float32()), pa.float64()),
    usable(pandas("float32", HALVES, pa.float32()), pa.float64()),
    usable(pandas("Float32", HALVES, pa.float32()), pa.float64()),
    usable(pandas("float64", FLOATS, pa.float64())),
    usable(pandas("Float64", FLOATS, pa.float64())),
    usable(pandas(TEXT, TEXTS, pa.string(), "str")),
    usable(pandas("string[python]", TEXTS, pa.string())),
    usable(pandas("string[pyarrow]", TEXTS, pa.string())),
    *(usable(pandas(f"datetime64[{unit}]", MOMENTS, US)) for unit in ("s", "ms", "us", "ns")),
    *(zoned(unit) for unit in ("s", "ms", "us", "ns")),
    *(pandas(f"timedelta64[{unit}]", SPANS, pa.duration("ns")) for unit in ("s", "ms", "us", "ns")),
    category("text", TEXTS, pa.string()),
    category("integers", INTEGERS, pa.int64()),
    category("timestamps", MOMENTS, US),
    usable(objects("text", TEXTS, pa.string())),
    usable(objects("bytes", BYTES, pa.binary())),
    usable(objects("`bool`", TRUTHS, pa.bool_())),
    usable(objects("`int`", INTEGERS, pa.int64())),
    usable(objects("`float`", FLOATS, pa.float64())),
    usable(objects("`date`", DATES, pa.date32())),
    usable(objects("`datetime`", MOMENTS, US)),
    objects("`time`", TIMES, pa.time64("us")),
    objects("`timedelta`", SPANS, pa.duration("ns")),
    objects("`Decimal`", (DECIMALS[0], [Decimal("33.01")]), pa.decimal128(4, 2)),
    objects("lists, tuples, arrays", ([[1, 2], (3,), np.array([4])], [[5]]), pa.list_(pa.int64())),
    objects("`dict`", (STRUCTS[0], STRUCTS[0]), pa.struct([("a", pa.int64()), ("b", pa.string())])),
    objects("nothing but null", ([None, None], [None]), pa.null()),
    refused("`object` of mixed types", _object, [1, "a"], "no single Arrow type", "one type a column"),
    refused(
        "`object` of dates and datetimes",
        _object,
        [D(2024, 2, 29), T(2024, 2, 29, 1)],
        "no single Arrow type.*datetime",
        "all `datetime`, or all `date`",
    ),
    refused("`object` of text and bytes", _object, ["a", b"a"], "no single Arrow type.*str", "all text, or all bytes"),
    refused("`object` of `int` beyond 64 bits", _object, [2**70], "no single Arrow type", "`Decimal`, `float`, text"),
    refused("`object` of anything else", _object, [object()], "no single Arrow type", "text, `bytes`, `dict`"),
    refused(
        "`complex128`",
        lambda values: pd.Series(values, dtype="complex128"),
        [1j],
        "no single Arrow type",
        "two columns",
        ("values", "no rows"),
    ),
    refused(
        "`period`",
        lambda values: pd.Series(values, dtype="period[M]"),
        ["2024-02"],
        "to_timestamp",
        "`.dt.to_timestamp()`",
        ("values", "all null", "no rows"),
    ),
    refused(
        "`interval`",
        lambda values: pd.Series(pd.IntervalIndex.from_breaks(values)),
        [0, 1],
        r"\.array\.left",
        "two columns",
    ),
    refused("`category` of intervals", _cut, [0, 1], r"\.array\.left", "`.cat.codes`, or as above"),
    refused(
        "`Sparse`", lambda values: pd.Series(pd.arrays.SparseArray(values)), [0, 1], "to_dense", "`.sparse.to_dense()`"
    ),
]
# The Arrow-backed types that pandas can make.
BACKED = [
    replace(
        kind,
        name=kind.name[:-1] + "[pyarrow]`",
        make=lambda values, make=kind.make: pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([make(values)]))),
    )
    for kind in ARROW
    if kind.stored is not None
]


# --- what comes back in pandas --------------------------------------------------------------------

INT = {pa.int8(): "Int8", pa.int16(): "Int16", pa.int32(): "Int32", pa.int64(): "Int64"}
UINT = {pa.uint8(): "UInt8", pa.uint16(): "UInt16", pa.uint32(): "UInt32", pa.uint64(): "UInt64"}
# Stored type → values, dtype without null, dtype with nulls (also where all are), dtype of a frame
# without rows.
FRAMES: dict[pa.DataType, tuple[Sequence[Any], str, str, str]] = {
    pa.bool_(): (TRUTHS[0], "bool", "boolean", "bool"),
    **{kind: (INTEGERS[0], str(kind), nullable, str(kind)) for kind, nullable in {**INT, **UINT}.items()},
    pa.float32(): (HALVES[0], *["float32"] * 3),
    pa.float64(): (FLOATS[0], *["float64"] * 3),
    pa.string(): (TEXTS[0], *[TEXT] * 3),
    pa.binary(): (BYTES[0], *["object"] * 3),
    pa.date32(): (DATES[0], *["datetime64[ms]"] * 3),
    US: (MOMENTS[0], *["datetime64[us]"] * 3),
    BERLIN: (ZONED[0], *["datetime64[us, Europe/Berlin]"] * 3),
    pa.time64("us"): (TIMES[0], *["object"] * 3),
    pa.duration("ns"): (SPANS[0], *["timedelta64[ns]"] * 3),
    pa.decimal128(6, 2): (DECIMALS[0], *["object"] * 3),
    pa.list_(pa.int16()): (LISTS[0], *["object"] * 3),
    pa.struct([("a", pa.int8()), ("b", pa.string())]): (STRUCTS[0], *["object"] * 3),
    pa.map_(pa.string(), pa.int8()): (MAPS[0], *["object"] * 3),
    pa.null(): ([None], *["object"] * 3),
}
OBJECTS = {
    "binary": "`bytes`",
    "time64[us]": "`time`",
    "decimal128(6, 2)": "`Decimal`",
    "list<int16>": "`ndarray`",
    "struct<a: int8, b: string>": "`dict`",
    "map<string, int8>": "lists of pairs",
    "null": "`None`",
}


# --- rendering ------------------------------------------------------------------------------------


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in [head, ["---"] * len(head), *rows])


INTEGER_NAMES = {f"`{kind}`" for kind in (*SIGNED, *UNSIGNED)}


def kinds_table(title: str, kinds: Sequence[Kind]) -> str:
    """One row for all kinds of equal treatment."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for kind in kinds:
        stored, *roles = fate_of(kind)
        fate = "the same width" if stored == kind.name.lower() and stored in INTEGER_NAMES else stored, *roles
        rows.setdefault(fate, []).append(kind.name)
    named = [[", ".join(names), *fate] for fate, names in rows.items()]
    return table([title, "stored as", "partition key", "secondary index"], named)


def fate_of(kind: Kind) -> list[str]:
    if kind.stored is None:
        return [f"refused; {kind.instead}", "", ""]
    key = "" if kind.key is None else "yes" if kind.key == kind.stored else f"`{spelled(kind.key)}`"
    return [f"`{spelled(kind.stored)}`", key, "yes" if kind.index else ""]


def frames_table() -> str:
    """Numbers of one kind share a row; a frame without rows has the dtypes of one without nulls."""
    rows: list[list[str]] = []
    for kind, (_, plain, nullable, empty) in FRAMES.items():
        assert plain == empty
        row = [f"`{spelled(kind)}`", shown(kind, plain), shown(kind, nullable) if nullable != plain else ""]
        if rows and pa.types.is_integer(kind) and row[0] == row[1]:
            row[1] = "the same"
            if "int" in rows[-1][0]:
                rows[-1][0] += f", {row[0]}"
                rows[-1][2] += f", {row[2]}"
                continue
        rows.append(row)
    return table(["stored as", "without nulls, or without rows", "with nulls, if other"], rows)


def shown(kind: pa.DataType, dtype: str) -> str:
    if spelled(kind) in OBJECTS:
        return f"`object`: {OBJECTS[spelled(kind)]}"
    return "`str`" if kind == pa.string() else f"`{dtype}`"


def tables() -> Iterator[tuple[str, str]]:
    """The name and text of every generated part of the page."""
    yield "arrow types", kinds_table("Arrow type", ARROW)
    yield "pandas types", kinds_table("pandas dtype", PANDAS)
    yield "pandas results", frames_table()
