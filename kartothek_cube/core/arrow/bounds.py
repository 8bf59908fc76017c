"""Bounds of columns: the least and the greatest value of each, and the number of nulls. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

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
    if len(parts) == 1:
        return _bounds_of_one(first, names)
    if not names or not all(part.schema.equals(first.schema) for part in parts):
        return pa.concat_tables(
            [measure_bounds([part], columns, preferred) for part in parts], promote_options="default"
        )
    return _bounds_of_many(parts, names)


def _bounds_of_one(table: pa.Table, names: Sequence[str]) -> pa.Table:
    arrays: dict[str, Any] = {"rows": pa.array([table.num_rows], type=pa.int64())}
    for name in names:
        values = table.column(name)
        nulls, ends = values.null_count, None
        if pt.is_dictionary(values.type):  # a slice may have more dictionary values than rows
            distinct = [chunk.dictionary.take(chunk.indices.unique()) for chunk in values.chunks]
            values = pa.chunked_array(distinct, values.type.value_type)
        elif pt.is_floating(values.type):
            ends = _ends_of_floats(values)
            if ends is None:
                values = _without_nan(values)
                nulls = values.null_count
        arrays[f"nulls/{name}"] = pa.array([nulls], type=pa.int64())
        if ends is not None:
            arrays[f"lower/{name}"], arrays[f"upper/{name}"] = (pa.array([end], type=values.type) for end in ends)
        elif not _are_long(values):
            found = pc.min_max(values)
            arrays[f"lower/{name}"], arrays[f"upper/{name}"] = pa.repeat(found["min"], 1), pa.repeat(found["max"], 1)
    return pa.table(arrays)


def _ends_of_floats(values: pa.ChunkedArray) -> tuple[Any, Any] | None:
    """The least and the greatest of some numbers, None if there are none, nulls or NaN."""
    if values.null_count or not len(values):
        return None
    # NumPy is ten times as fast as Arrow, and its least value is NaN if any is.
    chunks = [chunk.to_numpy() for chunk in values.chunks if len(chunk)]
    lows = [chunk.min() for chunk in chunks]
    return None if np.isnan(lows).any() else (min(lows), max(chunk.max() for chunk in chunks))


def _bounds_of_many(parts: Sequence[pa.Table], names: Sequence[str]) -> pa.Table:
    """The same for many small tables at once: calls of Arrow have fixed costs."""
    whole = pa.concat_tables([part.select(names) for part in parts])
    plain = [c.cast(c.type.value_type) if pt.is_dictionary(c.type) else _without_nan(c) for c in whole.columns]
    counts = [part.num_rows for part in parts]
    number = np.repeat(np.arange(len(parts)), counts)
    table = pa.table([*plain, number], names=[*map(str, range(len(names))), "part"])
    short = [i for i, column in enumerate(plain) if not _are_long(column)]
    aggregations = [(str(i), end) for i in short for end in ("min", "max")]
    aggregations += [(str(i), "count") for i in range(len(names))]
    found = table.group_by("part", use_threads=False).aggregate(aggregations)
    # A table without rows is no group.
    places = pc.index_in(pa.array(np.arange(len(parts))), value_set=found.column("part").combine_chunks())
    found = found.take(places)
    arrays: dict[str, Any] = {"rows": pa.array(counts, type=pa.int64())}
    for i, name in enumerate(names):
        arrays[f"nulls/{name}"] = pc.subtract(arrays["rows"], pc.fill_null(found.column(f"{i}_count"), 0))
        if i in short:
            arrays[f"lower/{name}"], arrays[f"upper/{name}"] = found.column(f"{i}_min"), found.column(f"{i}_max")
    return pa.table(arrays)


def _without_nan(values: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pt.is_floating(values.type):
        return values
    is_nan = pc.is_nan(values)
    return pc.if_else(is_nan, pa.scalar(None, values.type), values) if pc.any(is_nan).as_py() else values


def _are_long(values: pa.ChunkedArray) -> bool:
    return bool(pt.is_string(values.type) and values.nbytes > _LONGEST_MEAN * max(1, len(values)))


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
