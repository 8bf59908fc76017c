"""Comparing a frame with an expected one: names, classes of types, values, nulls, order; not
widths, not the flavour of null.
"""

from __future__ import annotations

import datetime
import decimal
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

KIND_OF_DTYPE = {"b": "bool", "i": "int", "u": "uint", "f": "float", "M": "datetime", "m": "timedelta"}
# What pandas 1 keeps in a column of dtype object: without a row, nothing tells them apart.
OBJECT_KINDS = {"str", "bytes", "date", "time", "decimal", "list", "null", "object", "bool"}


class ListValue(tuple):
    """A cell that holds a list."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Column:
    """A column with canonical values; NULL of any flavour is None."""

    name: str
    kind: str
    values: list[Any]


def canonical(cell: Any) -> Any:
    """One cell as a plain, hashable, comparable value; values of types that could be mixed up carry
    a tag.
    """
    if isinstance(cell, (list, tuple, np.ndarray)):
        return ListValue(map(canonical, cell))
    if isinstance(cell, dict):
        return ListValue(sorted((key, canonical(value)) for key, value in cell.items()))
    if cell is None or pd.isna(cell):
        return None
    return canonical_scalar(cell)


def canonical_scalar(cell: Any) -> Any:
    """As `canonical`, for what is neither a list nor null."""
    if isinstance(cell, (bool, np.bool_)):
        return ("bool", bool(cell))
    if isinstance(cell, (np.timedelta64, pd.Timedelta)):
        return ("timedelta", int(pd.Timedelta(cell).to_timedelta64().astype("timedelta64[ns]").astype("int64")))
    if isinstance(cell, (np.datetime64, datetime.datetime)):
        return canonical_timestamp(pd.Timestamp(cell))
    if isinstance(cell, (int, np.integer)):
        return int(cell)
    if isinstance(cell, (float, np.floating)):
        return float(cell)
    if isinstance(cell, datetime.date):
        return ("date", cell.toordinal())
    if isinstance(cell, datetime.time):
        return ("time", cell.isoformat())
    if isinstance(cell, decimal.Decimal):
        return ("decimal", cell)
    if isinstance(cell, str):
        return str(cell)
    if isinstance(cell, (bytes, bytearray, memoryview)):
        return bytes(cell)
    message = f"cannot compare a value of type {type(cell).__name__}"
    raise AssertionError(message)


def canonical_timestamp(cell: pd.Timestamp) -> tuple[str, int]:
    """Microseconds since 1970: the format stores no finer ones."""
    tag = "datetime" if cell.tzinfo is None else "datetimetz"
    naive = cell if cell.tzinfo is None else cell.tz_convert("UTC").tz_localize(None)
    return (tag, int(naive.to_datetime64().astype("datetime64[us]").astype("int64")))


def kind_of_value(value: Any) -> str:
    """The class of the type of a canonical value."""
    if isinstance(value, tuple) and not isinstance(value, ListValue):
        return str(value[0])
    return "list" if isinstance(value, ListValue) else type(value).__name__


def kind_of_series(series: pd.Series, values: Sequence[Any]) -> str:
    """The class of a column's type: int, float, str, date, datetime, category, ...; for objects,
    that of their values.
    """
    name = str(series.dtype)
    if name == "category":
        return "category"
    if name in ("str", "string") or name.startswith("string["):
        return "str"
    if name.startswith("datetime64") and "," in name:
        return "datetimetz"
    if series.dtype.kind in KIND_OF_DTYPE:
        return KIND_OF_DTYPE[series.dtype.kind]
    kinds = sorted({kind_of_value(value) for value in values if value is not None})
    if not kinds:
        return "null" if values else "object"
    return kinds[0] if len(kinds) == 1 else f"mixed({','.join(kinds)})"


def actual_columns(frame: Any) -> list[Column]:
    """The columns of a frame that the library gave."""
    assert isinstance(frame, pd.DataFrame), f"expected a pandas.DataFrame, got {type(frame).__name__}"
    assert frame.columns.is_unique, f"duplicate column names: {list(frame.columns)}"
    return [actual_column(name, frame[name]) for name in frame.columns]


def actual_column(name: str, series: pd.Series) -> Column:
    """One column of a frame that the library gave."""
    if str(series.dtype) == "category":
        categories = [canonical(cell) for cell in series.cat.categories]
        values = [None if code < 0 else categories[code] for code in series.cat.codes]
    else:
        values = [canonical(cell) for cell in series]
    return Column(name, kind_of_series(series, values), values)


def expected_columns(case: Path, frame: dict[str, Any]) -> list[Column]:
    """The columns of an expected frame: values from its Parquet file, kinds from ``case.json``."""
    table = pq.ParquetFile(case / frame["file"]).read()
    return [
        Column(column["name"], column["kind"], expected_values(table.column(column["name"])))
        for column in frame["columns"]
    ]


def expected_values(array: pa.ChunkedArray) -> list[Any]:
    """Canonical values of an Arrow column."""
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if not pa.types.is_timestamp(array.type):
        return [canonical(cell) for cell in array.to_pylist()]
    # Python's datetime does not hold nanoseconds, so go through integers.
    tag = "datetimetz" if array.type.tz else "datetime"
    nanoseconds = array.cast(pa.timestamp("ns", tz=array.type.tz)).cast(pa.int64()).to_pylist()
    return [None if cell is None else (tag, cell // 1000) for cell in nanoseconds]


def kinds_agree(expected: Column, actual: Column) -> bool:
    """Whether the class of the type is the same, as far as the values give one to hold on to."""
    has_null = any(value is None for value in expected.values)
    only_null = all(value is None for value in expected.values)
    return (
        expected.kind in (actual.kind, "null")
        or (actual.kind == "null" and only_null)
        or (not expected.values and {expected.kind, actual.kind} <= OBJECT_KINDS)
        # integers with nulls are floats in kartothek; nullable integers are as good
        or (expected.kind == "float" and actual.kind in ("int", "uint") and has_null)
        # a joined column without a single match
        or (expected.kind == "float" and only_null)
    )


def cells_equal(expected: Any, actual: Any) -> bool:
    """Equality in which 1 is 1.0, but no tag is another and null equals null only."""
    if expected is None or actual is None:
        return expected is actual
    if isinstance(expected, tuple) and isinstance(actual, tuple):
        return len(expected) == len(actual) and all(map(cells_equal, expected, actual))
    if isinstance(expected, (int, float)) and isinstance(actual, (int, float)):
        return expected == actual or (math.isnan(expected) and math.isnan(actual))
    return type(expected) is type(actual) and expected == actual


def sort_key(cell: Any) -> tuple[Any, ...]:
    """Makes canonical values of different types sortable."""
    if cell is None:
        return ("0",)
    if isinstance(cell, (int, float)):
        return ("1", cell)
    if isinstance(cell, tuple):
        return ("2", *map(sort_key, cell))
    if isinstance(cell, bytes):
        return ("3", cell.hex())
    return ("4" if isinstance(cell, decimal.Decimal) else "5", cell)


def rows_of(columns: list[Column], *, ordered: bool) -> list[tuple[Any, ...]]:
    """The rows, sorted where their order does not count."""
    rows = list(zip(*(column.values for column in columns), strict=True))
    return rows if ordered else sorted(rows, key=sort_key)


def difference(
    expected: list[Column], actual: list[Column], *, ordered: bool, ignore: Sequence[str] = ()
) -> str | None:
    """The first difference in words, None if the frames agree; the values of ignored columns are
    not compared.
    """
    names, got = [column.name for column in expected], [column.name for column in actual]
    if names != got:
        return f"expected the columns {names}, got {got}"
    if expected and len(expected[0].values) != len(actual[0].values):
        return f"expected {len(expected[0].values)} rows, got {len(actual[0].values)}"
    pairs = [pair for pair in zip(expected, actual, strict=True) if pair[0].name not in ignore]
    for wanted, column in pairs:
        if not kinds_agree(wanted, column):
            return f"column {wanted.name!r}: expected type {wanted.kind}, got {column.kind}"
    return different_cell([wanted for wanted, _ in pairs], [column for _, column in pairs], ordered=ordered)


def different_cell(expected: list[Column], actual: list[Column], *, ordered: bool) -> str | None:
    """The first cell that differs, in words."""
    rows = zip(rows_of(expected, ordered=ordered), rows_of(actual, ordered=ordered), strict=True)
    for number, (wanted, got) in enumerate(rows):
        for column, cell, other in zip(expected, wanted, got, strict=True):
            if not cells_equal(cell, other):
                same = ordered and rows_of(expected, ordered=False) == rows_of(actual, ordered=False)
                order = " (the same rows in another order)" if same else ""
                return f"row {number}, column {column.name!r}: expected {cell!r:.60}, got {other!r:.60}{order}"
    return None
