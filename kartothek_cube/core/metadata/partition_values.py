"""Partition values: typed columns decoded from file keys, and the text of a value in a key."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from kartothek_cube.core.metadata._fast.fast_parser import cut_keys
from kartothek_cube.core.metadata.naming import quote, unquote
from kartothek_cube.core.runtime.options import uses_fast_paths
from kartothek_cube.errors import CorruptDocument, Unsupported

__all__ = ["partition_table", "partition_text", "partition_type"]


def partition_type(data_type: pa.DataType) -> pa.DataType:
    """The type of a partition column: numbers have 64 bits, as their text has no width."""
    if pt.is_integer(data_type):
        return pa.uint64() if pt.is_unsigned_integer(data_type) else pa.int64()
    return pa.float64() if pt.is_floating(data_type) else data_type


def partition_text(value: Any, data_type: pa.DataType) -> str | bytes:
    """The text of one value, unquoted."""
    if pt.is_floating(data_type):
        return repr(float(value))
    if pt.is_timestamp(data_type) and data_type.tz is not None:
        raise Unsupported("A timestamp with a zone cannot be a partition column; store it without zone.")
    if any(is_type(data_type) for is_type in (pt.is_timestamp, pt.is_date, pt.is_integer, pt.is_boolean)):
        return str(value)
    if not (pt.is_string(data_type) or pt.is_binary(data_type)):
        raise Unsupported(f"A column of type {data_type} cannot be a partition column.")
    if isinstance(value, bytes):
        try:
            value.decode("utf-8")
        except UnicodeDecodeError:
            raise Unsupported(f"Bytes that are not UTF-8 cannot be partition values, got {value!r}.") from None
    text: str | bytes = value
    return text


def partition_table(keys: pa.Array, columns: Sequence[str], schema: pa.Schema, dataset: str) -> pa.Table:
    """One column per partition key, row *i* decoded from the file key of partition *i*."""
    if not columns:
        return pa.table({"": np.zeros(len(keys), dtype=np.int8)}).select([])
    unknown = [c for c in columns if c not in schema.names]
    if unknown:
        raise CorruptDocument(
            f"Dataset {dataset} is partitioned by columns that its schema lacks: {', '.join(unknown)}. "
            f"The schema has {schema.names}."
        )
    try:
        quoted = cut_keys(keys, [quote(column) for column in columns]) if uses_fast_paths() else None
        texts = _cut(keys, columns, schema, dataset) if quoted is None else list(map(_unquoted, quoted))
    except UnicodeDecodeError as error:
        raise CorruptDocument(
            f"A partition value of the columns {list(columns)} of dataset {dataset} is no UTF-8 text: {error}"
        ) from None
    arrays = [_typed(text, schema.field(c).type, c, dataset) for c, text in zip(columns, texts, strict=True)]
    return pa.table(dict(zip(columns, arrays, strict=True)))


def _unquoted(texts: pa.Array) -> pa.Array:
    if not pc.any(pc.match_substring(texts, "%")).as_py():
        return texts
    encoded = texts.dictionary_encode()
    return pa.array([unquote(t) for t in encoded.dictionary.to_pylist()], type=pa.string()).take(encoded.indices)


def _cut(keys: pa.Array, columns: Sequence[str], schema: pa.Schema, dataset: str) -> list[pa.Array]:
    """The text of each column's values in any key; null for a partition without a file."""
    # Folders that name no column are skipped.
    regex = "[^/]+/[^/]+/(?:[^/]*/)*?"
    for column in columns:
        # An old writer left slashes in texts: a text ends at the next column, any other value at
        # the next slash.
        textual = pt.is_string(schema.field(column).type) or pt.is_binary(schema.field(column).type)
        last = column == columns[-1]
        value = ("(.*)/" if last else "(.*?)/") if textual else "([^/]*)/(?:[^/]*/)*?"
        regex += f"{re.escape(quote(column))}={value}"
    pattern = re.compile(f"{regex}[^/]*$")
    rows: list[list[str | None]] = []
    for key in keys.to_pylist():
        match = pattern.match(key) if key is not None else None
        if match is None and key is not None:
            raise CorruptDocument(
                f"The file key {key!r} of dataset {dataset} does not name the partition columns {list(columns)}."
            )
        rows.append([unquote(text) for text in match.groups()] if match else [None] * len(columns))
    return [pa.array([row[i] for row in rows], type=pa.string()) for i in range(len(columns))]


def _typed(texts: pa.Array, data_type: pa.DataType, column: str, dataset: str) -> pa.Array:
    data_type = partition_type(data_type)
    if pt.is_null(data_type) and texts.null_count < len(texts):
        raise CorruptDocument(
            f"The partition column {column!r} of dataset {dataset} has values, "
            f"but its schema says that it is {data_type}."
        )
    if pt.is_string(data_type) or pt.is_null(data_type):
        return texts
    try:
        return _cast(texts, data_type)
    except (pa.ArrowException, ValueError) as error:
        raise CorruptDocument(
            f"A partition value of column {column!r} of dataset {dataset} cannot be read as {data_type}: {error}"
        ) from None


def _cast(texts: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Texts as Arrow reads them, or, where it cannot, each distinct text as Python reads it."""
    # Arrow reads numbers as truth values, and accepts a year 0.
    has_year_0 = pt.is_temporal(data_type) and pc.any(pc.starts_with(texts, "0000")).as_py()
    if not (pt.is_boolean(data_type) or has_year_0):
        try:
            return (pc.utf8_slice_codeunits(texts, 0, 10) if pt.is_date(data_type) else texts).cast(data_type)
        except pa.ArrowException:
            if pt.is_integer(data_type):
                raise
    encoded = texts.dictionary_encode()
    distinct, read = encoded.dictionary, _READ.get(data_type.id)
    values = distinct.cast(data_type) if read is None else pa.array(map(read, distinct.to_pylist()), type=data_type)
    return values.take(encoded.indices)


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{text!r} is neither True nor False")
    return text.lower() == "true"


def _moment(text: str) -> dt.datetime:
    """A datetime without zone; where the column has one, Arrow reads it as UTC."""
    moment = dt.datetime.fromisoformat(text)
    return moment if moment.tzinfo is None else moment.astimezone(dt.UTC).replace(tzinfo=None)


def _day(text: str) -> dt.date:
    return dt.date.fromisoformat(text[:10])


_READ: dict[int, Callable[[str], Any]] = {
    pa.bool_().id: _truth,
    pa.timestamp("us").id: _moment,
    pa.date32().id: _day,
    pa.date64().id: _day,
    pa.float64().id: float,
}
