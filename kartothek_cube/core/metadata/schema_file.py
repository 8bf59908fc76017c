"""``_common_metadata`` and the schema inside the document: Arrow schemas as bytes and back."""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt
import zstandard

from kartothek_cube.core.arrow.schema import normal_schema, stored_schema
from kartothek_cube.core.metadata.zstd import decompress
from kartothek_cube.errors import CorruptDocument

__all__ = [
    "common_metadata_bytes",
    "embedded_schemas",
    "is_plain",
    "pandas_types",
    "parse_common_metadata",
    "parse_embedded_schemas",
]


def common_metadata_bytes(schema: pa.Schema) -> bytes:
    """The schema file of a table, as kartothek 5.3 and plateau 4.6 can read and update it."""
    normal = normal_schema(schema)
    described = normal.with_metadata({b"pandas": json.dumps(_pandas_entry(normal), sort_keys=True).encode()})
    sink = io.BytesIO()
    # kartothek compares list children by name: only the non-compliant name is the one that it
    # writes itself.
    pq.write_metadata(described, sink, version="2.6", coerce_timestamps="us", use_compliant_nested_type=False)
    return sink.getvalue()


def _pandas_entry(schema: pa.Schema) -> dict[str, Any]:
    header = {
        "field_name": None,
        "metadata": {"encoding": "UTF-8"},
        "name": None,
        "numpy_type": "object",
        "pandas_type": "unicode",
    }
    return {
        "column_indexes": [header],
        "columns": [_column_entry(field) for field in schema],
        "creator": {"library": "pyarrow", "version": pa.__version__},
        "index_columns": [{"kind": "range", "name": None, "start": 0, "step": 1, "stop": 0}],
        "pandas_version": "1.5.3",
    }


def _column_entry(field: pa.Field) -> dict[str, Any]:
    pandas_type, numpy_type, metadata = pandas_types(field.type)
    return {
        "field_name": field.name,
        "metadata": metadata,
        "name": field.name,
        "numpy_type": numpy_type,
        "pandas_type": pandas_type,
    }


_FIXED = {
    pa.int64(): ("int64", "int64"),
    pa.uint64(): ("uint64", "uint64"),
    pa.float64(): ("float64", "float64"),
    pa.bool_(): ("bool", "bool"),
    pa.string(): ("unicode", "object"),
    pa.binary(): ("bytes", "object"),
    pa.date32(): ("date", "object"),
    pa.null(): ("empty", "object"),
    pa.time64("us"): ("time", "object"),
    pa.duration("ns"): ("object", "timedelta64[ns]"),
}


def pandas_types(kind: pa.DataType) -> tuple[str, str, dict[str, Any] | None]:
    """What the ``pandas`` entry says of a column in normal form."""
    if kind in _FIXED:
        return (*_FIXED[kind], None)
    if pt.is_timestamp(kind):
        return (
            ("datetime", "datetime64[ns]", None)
            if kind.tz is None
            else ("datetimetz", "datetime64[ns]", {"timezone": kind.tz})
        )
    if pt.is_decimal(kind):
        return "decimal", "object", {"precision": kind.precision, "scale": kind.scale}
    if pt.is_list(kind):
        return f"list[{pandas_types(kind.value_type)[0]}]", "object", None
    return "object", "object", None


def parse_common_metadata(data: bytes, where: str) -> pa.Schema:
    """The schema of a table, in stored types (plain strings, microseconds), from its schema file."""
    try:
        schema = _distinct(_without_index_columns(pq.read_schema(pa.BufferReader(data))))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptDocument(f"The schema file {where} cannot be read: {error}") from error
    return stored_schema(schema, f" in {where}")


def _distinct(schema: pa.Schema) -> pa.Schema:
    if len({*schema.names}) != len(schema.names):
        raise ValueError(f"its columns do not have different names: {schema.names}")
    return schema


def _without_index_columns(schema: pa.Schema) -> pa.Schema:
    # Kept by some writers although the column is a row label: it is no column of the table.
    return pa.schema([f for f in schema if not f.name.startswith("__index_level_")])


def is_plain(data: bytes) -> bool:
    """Whether a schema file has the types that kartothek reads: plateau leaves large strings and lists of ``element``."""
    raw = pq.read_schema(pa.BufferReader(data))
    plain = normal_schema(stored_schema(raw))
    return all(_spelled(f.type) == _spelled(plain.field(f.name).type) for f in raw)


def _spelled(kind: pa.DataType) -> str:
    """A type as text, without the name of its column, which Parquet gives the entries of a map."""
    return re.sub(r" \('[^']*'\)", "", str(kind))


def embedded_schemas(schemas: Mapping[str, pa.Schema]) -> str:
    """The schemas of all tables as one text for the document: JSON of base64 of compressed Arrow IPC."""
    packed = {
        table: base64.b64encode(zstandard.compress(bytes(schema.serialize()))).decode()
        for table, schema in schemas.items()
    }
    return json.dumps(packed)


def parse_embedded_schemas(text: str, where: str) -> dict[str, pa.Schema]:
    """The reverse of `embedded_schemas`."""
    try:
        return {
            table: _distinct(pa.ipc.read_schema(pa.BufferReader(decompress(base64.b64decode(packed)))))
            for table, packed in json.loads(text).items()
        }
    except Exception as error:
        raise CorruptDocument(f"The schema inside the document {where} cannot be read: {error}") from error
