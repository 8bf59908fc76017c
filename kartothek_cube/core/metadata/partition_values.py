"""Partition values: typed columns decoded from file keys, and the text that a value has in a key."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from kartothek_cube.core.metadata._fast.fast_parser import ByteSlices, constant, positions_of_byte
from kartothek_cube.core.metadata.naming import quote, unquote
from kartothek_cube.errors import CorruptDocument, Unsupported

__all__ = ["partition_table", "partition_text", "partition_type"]

_SLASH = 0x2F


def partition_type(kind: pa.DataType) -> pa.DataType:
    """The type in which values of a partition column come back: 64-bit numbers, as their text says no width."""
    if pt.is_integer(kind):
        return pa.uint64() if pt.is_unsigned_integer(kind) else pa.int64()
    return pa.float64() if pt.is_floating(kind) else kind


def partition_text(value: Any, kind: pa.DataType) -> str | bytes:
    """The text of one value, unquoted."""
    if pt.is_floating(kind):
        return repr(float(value))
    if pt.is_timestamp(kind) and kind.tz is not None:
        raise Unsupported("A timestamp with a zone cannot be a partition column; store it without zone.")
    if pt.is_timestamp(kind) or pt.is_date(kind) or pt.is_integer(kind) or pt.is_boolean(kind):
        return str(value)
    if pt.is_string(kind) or pt.is_binary(kind):
        return _utf8(value)
    raise Unsupported(f"A column of type {kind} cannot be a partition column.")


def _utf8(value: str | bytes) -> str | bytes:
    if isinstance(value, bytes):
        try:
            value.decode("utf-8")
        except UnicodeDecodeError:
            raise Unsupported(f"Bytes that are not UTF-8 cannot be partition values, got {value!r}.") from None
    return value


def partition_table(keys: pa.Array, columns: Sequence[str], schema: pa.Schema, where: str) -> pa.Table:
    """One column per partition key, row *i* decoded from the file key of partition *i*."""
    if not columns:
        return pa.table({"": np.zeros(len(keys), dtype=np.int8)}).select([])
    unknown = [c for c in columns if c not in schema.names]
    if unknown:
        raise CorruptDocument(
            f"Dataset {where} is partitioned by columns that its schema lacks: {', '.join(unknown)}. The schema has {schema.names}."
        )
    texts = _cut(keys, columns, schema, where)
    arrays = [_typed(texts[i], schema.field(c).type, c, where) for i, c in enumerate(columns)]
    return pa.table(dict(zip(columns, arrays, strict=True)))


def _cut(keys: pa.Array, columns: Sequence[str], schema: pa.Schema, where: str) -> list[pa.Array]:
    """The text of each column's values."""
    try:
        texts = _cut_regular(keys, columns)
        return _cut_generic(keys, columns, schema, where) if texts is None else texts
    except UnicodeDecodeError as error:
        raise CorruptDocument(
            f"A partition value of the columns {list(columns)} of dataset {where} is no UTF-8 text: {error}"
        ) from None


def _cut_regular(keys: pa.Array, columns: Sequence[str]) -> list[pa.Array] | None:
    """Cut ``<uuid>/<table>/<k1>=<v1>/…/<file>`` by the positions of the slashes; None if a key looks different."""
    if not len(keys) or keys.null_count:
        return None
    _, offsets, data = keys.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[keys.offset : keys.offset + len(keys) + 1]
    slashes = ends[0] + positions_of_byte(data[int(ends[0]) : int(ends[-1])], _SLASH)
    if len(slashes) != len(keys) * (len(columns) + 2):
        return None
    slashes = slashes.reshape(len(keys), -1)
    prefixes = [f"{quote(column)}=".encode() for column in columns]
    begins, values = slashes[:, 1:-1] + 1, slashes[:, 1:-1] + 1 + np.array([len(p) for p in prefixes])
    if (slashes[:, 0] < ends[:-1]).any() or (slashes[:, -1] >= ends[1:]).any() or (values > slashes[:, 2:]).any():
        return None
    # By turns a name, its value, and a slash.
    pieces = ByteSlices(
        data, np.append(np.stack([begins, values, slashes[:, 2:]], axis=2).ravel(), ends[-1]), 3 * len(columns)
    )
    if any(constant(pieces.column(3 * i)) != prefix for i, prefix in enumerate(prefixes)):
        return None
    return [_unquoted(pieces.texts(3 * i + 1)) for i in range(len(columns))]


def _unquoted(texts: pa.Array) -> pa.Array:
    if not pc.any(pc.match_substring(texts, "%")).as_py():
        return texts
    encoded = texts.dictionary_encode()
    return pa.array([unquote(t) for t in encoded.dictionary.to_pylist()], type=pa.string()).take(encoded.indices)


def _cut_generic(keys: pa.Array, columns: Sequence[str], schema: pa.Schema, where: str) -> list[pa.Array]:
    """One regular expression per key: also for texts in which an old writer left a slash.

    A partition without a file has no values.
    """
    pattern = _pattern(columns, schema)
    rows: list[list[str | None]] = []
    for key in keys.to_pylist():
        match = pattern.match(key) if key is not None else None
        if match is None and key is not None:
            raise CorruptDocument(
                f"The file key {key!r} of dataset {where} does not name the partition columns {list(columns)}."
            )
        rows.append([unquote(text) for text in match.groups()] if match else [None] * len(columns))
    return [pa.array([row[i] for row in rows], type=pa.string()) for i in range(len(columns))]


def _pattern(columns: Sequence[str], schema: pa.Schema) -> re.Pattern[str]:
    """A text reaches to the next column, another value to the next slash; folders that name no column are passed over."""
    found = "[^/]+/[^/]+/(?:[^/]*/)*?"
    for column in columns:
        textual = pt.is_string(schema.field(column).type) or pt.is_binary(schema.field(column).type)
        last = column == columns[-1]
        value = ("(.*)/" if last else "(.*?)/") if textual else "([^/]*)/(?:[^/]*/)*?"
        found += f"{re.escape(quote(column))}={value}"
    return re.compile(f"{found}[^/]*$")


def _typed(texts: pa.Array, kind: pa.DataType, column: str, where: str) -> pa.Array:
    kind = partition_type(kind)
    if pt.is_null(kind) and texts.null_count < len(texts):
        raise CorruptDocument(
            f"The partition column {column!r} of dataset {where} has values, but its schema says that it is {kind}."
        )
    if pt.is_string(kind) or pt.is_null(kind):
        return texts
    try:
        return _cast(texts, kind)
    except (pa.ArrowException, ValueError) as error:
        raise CorruptDocument(
            f"A partition value of column {column!r} of dataset {where} cannot be read as {kind}: {error}"
        ) from None


def _cast(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Texts as Arrow reads them; those that only Python can read one by one, each once."""
    try:
        return _cast_by_arrow(texts, kind)
    except pa.ArrowException:
        if pt.is_integer(kind):
            raise
    encoded = texts.dictionary_encode()
    return _cast_by_python(encoded.dictionary, kind).take(encoded.indices)


def _cast_by_arrow(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    if pt.is_boolean(kind) or (pt.is_temporal(kind) and pc.any(pc.starts_with(texts, "0000")).as_py()):
        raise pa.ArrowInvalid("Arrow takes numbers for truth values, and knows a year 0.")
    return (pc.utf8_slice_codeunits(texts, 0, 10) if pt.is_date(kind) else texts).cast(kind)


def _cast_by_python(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    read = _READ.get(kind.id)
    return texts.cast(kind) if read is None else pa.array([read(t) for t in texts.to_pylist()], type=kind)


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{text!r} is neither True nor False")
    return text.lower() == "true"


def _moment(text: str) -> dt.datetime:
    """A moment without zone, which Arrow takes for UTC where the column has one."""
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
