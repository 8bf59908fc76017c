"""Bounds of columns: the least and the greatest value of each, and the number of nulls. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from kartothek_cube.core.arrow.keys import IntArray

# Characters of a text that a bound keeps; columns of longer texts have no bounds.
_CUT, _LONGEST_MEAN = 32, 256
# Columns with bounds, unless they are chosen: each takes room in every commit.
_MOST_COLUMNS = 64

# Families of types, and the type in which bounds of a family are stored: it holds the values of
# all of its types, so a column whose type changes loses nothing.
_FAMILIES: tuple[tuple[str, Callable[[pa.DataType], bool], pa.DataType], ...] = (
    ("int", pt.is_signed_integer, pa.int64()),
    ("uint", pt.is_unsigned_integer, pa.uint64()),
    ("float", pt.is_floating, pa.float64()),
    ("bool", pt.is_boolean, pa.bool_()),
    ("date", pt.is_date, pa.date32()),
    ("time", pt.is_time, pa.time64("us")),
    ("text", pt.is_string, pa.string()),
    ("timestamp", lambda t: pt.is_timestamp(t) and t.tz is None, pa.timestamp("us")),
    ("instant", lambda t: pt.is_timestamp(t) and t.tz is not None, pa.timestamp("us", tz="UTC")),
)


def has_bounds(data_type: pa.DataType) -> bool:
    """Whether statistics have bounds for columns of this type."""
    return family_of(data_type) is not None


def family_of(data_type: pa.DataType) -> tuple[str, pa.DataType] | None:
    """The family of a type, and the type of its bounds; None without bounds."""
    if pt.is_decimal(data_type):
        return f"decimal{data_type.scale}", pa.decimal128(38, data_type.scale)
    return next(((name, stored) for name, is_type, stored in _FAMILIES if is_type(data_type)), None)


def columns_with_bounds(
    schema: pa.Schema, columns: Collection[str] | bool = True, preferred: Collection[str] = ()
) -> list[str]:
    """The columns of which statistics have bounds, as the option ``statistics`` says.

    By default these are the first 64 whose type has bounds, those ``preferred`` before others.
    """
    chosen = [f for f in schema if columns is True or (columns is not False and f.name in columns)]
    names = [f.name for f in chosen if has_bounds(f.type.value_type if pt.is_dictionary(f.type) else f.type)]
    if columns is not True or len(names) <= _MOST_COLUMNS:
        return names
    return sorted(names, key=lambda name: name not in preferred)[:_MOST_COLUMNS]


def measure_bounds(
    parts: Sequence[pa.Table], columns: Collection[str] | bool, preferred: Collection[str] = ()
) -> pa.Table:
    """The rows, and of `columns_with_bounds` bounds and numbers of nulls, of tables, a row each."""
    first = parts[0]
    names = columns_with_bounds(first.schema, columns, preferred)
    if not all(part.schema.equals(first.schema) for part in parts[1:]):
        return pa.concat_tables(
            [measure_bounds([part], columns, preferred) for part in parts], promote_options="default"
        )
    # All at once: each call has fixed costs.
    whole = pa.concat_tables([part.select(names) for part in parts])
    counts = np.array([part.num_rows for part in parts], dtype=np.int64)
    is_filled = counts > 0
    starts, zeros = (np.cumsum(counts) - counts)[is_filled], pa.array(np.zeros(len(counts), dtype=np.int64))
    places = None if is_filled.all() else pa.array(np.cumsum(is_filled) - 1, mask=~is_filled)
    arrays: dict[str, Any] = {"rows": pa.array(counts)}
    for name, values in zip(names, whole.columns, strict=True):
        nulls, ends = zeros, _ends_of_numbers(values, starts)
        if not ends:
            found, *ends = _bounds_of_runs(values, counts[is_filled])
            nulls = found if places is None else pc.fill_null(found.take(places), 0)
        arrays[f"nulls/{name}"] = nulls
        for side, end in zip(("lower", "upper"), ends, strict=False):
            arrays[f"{side}/{name}"] = end if places is None else end.take(places)
    return pa.table(arrays)


def _bounds_of_runs(values: pa.ChunkedArray, counts: IntArray) -> list[Any]:
    """The nulls in runs of so many rows and, unless texts are long, least and greatest values."""
    plain = values.cast(values.type.value_type) if pt.is_dictionary(values.type) else values
    if pt.is_floating(plain.type):
        plain = pc.if_else(pc.is_nan(plain), pa.scalar(None, plain.type), plain)
    is_long = pt.is_string(plain.type) and plain.nbytes > _LONGEST_MEAN * max(1, len(plain))
    sides = () if is_long else ("min", "max")
    if len(counts) == 1:  # three times as fast as a group
        found = pc.min_max(plain)
        return [pa.array([plain.null_count]), *(pa.repeat(found[side], 1) for side in sides)]
    table = pa.table({"value": plain, "run": np.repeat(np.arange(len(counts)), counts)})
    groups = table.group_by("run", use_threads=False).aggregate([("value", kind) for kind in ("count", *sides)])
    return [
        pc.subtract(pa.array(counts), groups.column("value_count")),
        *(groups.column(f"value_{side}") for side in sides),
    ]


def _ends_of_numbers(values: pa.ChunkedArray, starts: IntArray) -> list[Any]:
    """The least and the greatest values from each start to the next; none if NumPy cannot tell."""
    known = (pt.is_integer, pt.is_float32, pt.is_float64, pt.is_date32, pt.is_timestamp)
    if values.null_count or not len(values) or not any(is_type(values.type) for is_type in known):
        return []
    # Ten times as fast as Arrow. NaN, and a moment that NumPy takes for none, are least values.
    numbers = values.to_numpy()
    low, high = np.minimum.reduceat(numbers, starts), np.maximum.reduceat(numbers, starts)
    return [] if np.isnan(low).any() else [pa.array(low, type=values.type), pa.array(high, type=values.type)]


def joined_bounds(pieces: Sequence[pa.Table]) -> pa.Table:
    """The result of `measure_bounds` for a table, from those for its pieces."""
    table = pieces[0] if len(pieces) == 1 else pa.concat_tables(pieces, promote_options="default")
    arrays: dict[str, Any] = {}
    for name in table.column_names:
        part, _, column = name.partition("/")
        if part in ("lower", "upper"):
            end = pc.min_max(table.column(name))["min" if part == "lower" else "max"]
            # Without bounds of some piece that has values there are none of the whole.
            has_values = pc.not_equal(table.column(f"nulls/{column}"), table.column("rows"))
            unknown = pc.and_(table.column(name).is_null(), pc.fill_null(has_values, True))
            arrays[name] = pa.nulls(1, end.type) if pc.any(unknown).as_py() else pa.repeat(end, 1)
        else:
            arrays[name] = pa.repeat(pc.sum(table.column(name), skip_nulls=False), 1).cast(pa.int64())
    return pa.table(arrays)


def cut_bounds(lower: pa.ChunkedArray, upper: pa.ChunkedArray) -> tuple[Any, Any, pa.ChunkedArray]:
    """Bounds of texts cut to less and to greater ones, and whether they were short enough."""
    short = pc.and_(*(pc.less_equal(pc.utf8_length(side), _CUT) for side in (lower, upper)))
    if pc.all(short).as_py():
        return lower, upper, short
    above = pa.array(map(_above, upper.to_pylist()), type=pa.string())
    return pc.utf8_slice_codeunits(lower, 0, _CUT), above, short


def _above(text: str | None) -> str | None:
    """A short text that is no less than this one; None if there is none."""
    if text is None or len(text) <= _CUT:
        return text
    for end in range(_CUT, 0, -1):
        code = ord(text[end - 1]) + 1
        if code <= 0x10FFFF:  # surrogates are no characters
            return text[: end - 1] + chr(0xE000 if 0xD800 <= code < 0xE000 else code)
    return None
