"""Partition values: typed columns decoded from file keys, and the text that a value has in a key."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from kartothek_cube.core.naming import quote, unquote
from kartothek_cube.errors import CorruptDocument, Unsupported

__all__ = ["partition_table", "partition_text", "partition_type"]


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
    texts = _cut_regular(keys, columns)
    if texts is None:
        texts = _cut_generic(keys, columns, where)
    arrays = [_typed(texts[i], schema.field(c).type, c, where) for i, c in enumerate(columns)]
    return pa.table(dict(zip(columns, arrays, strict=True)))


def _cut_regular(keys: pa.Array, columns: Sequence[str]) -> list[pa.Array] | None:
    """Cut ``<uuid>/<table>/<k1>=<v1>/…/<file>`` with string kernels; None if a key looks different."""
    depth = len(columns) + 3
    if not len(keys) or not pc.all(pc.equal(pc.count_substring(keys, "/"), depth - 1)).as_py():
        return None
    parts = pc.split_pattern(keys, "/").flatten()
    cut = []
    for i, column in enumerate(columns):
        component = parts.take(pa.array(np.arange(2 + i, len(parts), depth)))
        prefix = f"{quote(column)}="
        if not pc.all(pc.starts_with(component, prefix)).as_py():
            return None
        cut.append(_unquoted(pc.utf8_slice_codeunits(component, len(prefix))))
    return cut


def _unquoted(texts: pa.Array) -> pa.Array:
    if not pc.any(pc.match_substring(texts, "%")).as_py():
        return texts
    encoded = texts.dictionary_encode()
    return pa.array([unquote(t) for t in encoded.dictionary.to_pylist()], type=pa.string()).take(encoded.indices)


def _cut_generic(keys: pa.Array, columns: Sequence[str], where: str) -> list[pa.Array]:
    """One regular expression per key: also for values in which an old writer left a slash."""
    between = "/(?:[^/]*/)*?"
    pattern = re.compile("^[^/]+/[^/]+" + "".join(f"{between}{re.escape(quote(c))}=(.*?)" for c in columns) + "(?:/[^/=]*)*/[^/]*$")
    rows = []
    for key in keys.to_pylist():
        match = pattern.match(key)
        if match is None:
            raise CorruptDocument(f"The file key {key!r} of dataset {where} does not name the partition columns {list(columns)}.")
        rows.append([unquote(text) for text in match.groups()])
    return [pa.array([row[i] for row in rows], type=pa.string()) for i in range(len(columns))]


def _typed(texts: pa.Array, kind: pa.DataType, column: str, where: str) -> pa.Array:
    kind = partition_type(kind)
    if pt.is_string(kind) or pt.is_null(kind):
        return texts
    encoded = texts.dictionary_encode()
    try:
        return _cast(encoded.dictionary, kind).take(encoded.indices)
    except (pa.ArrowInvalid, ValueError) as error:
        raise CorruptDocument(f"A partition value of column {column!r} of dataset {where} cannot be read as {kind}: {error}") from None


def _cast(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    if pt.is_boolean(kind):
        return pa.array([{"true": True, "false": False}[t.lower()] for t in texts.to_pylist()])
    if pt.is_timestamp(kind):
        return pa.array([dt.datetime.fromisoformat(t).replace(tzinfo=None) for t in texts.to_pylist()], type=pa.timestamp("us"))
    if pt.is_date(kind):
        return pa.array([dt.date.fromisoformat(t[:10]) for t in texts.to_pylist()], type=kind)
    if pt.is_floating(kind):
        return pa.array([float(t) for t in texts.to_pylist()], type=kind)
    return texts.cast(kind)
