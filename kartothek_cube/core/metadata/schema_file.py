"""Arrow schemas as bytes and back: ``_common_metadata``, and the schema inside a document."""

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

from kartothek_cube.core.arrow.types import normal_schema, stored_schema
from kartothek_cube.core.metadata.document import decompress
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
    # kartothek compares the children of lists by name, and writes the name that is not compliant.
    pq.write_metadata(described, sink, version="2.6", coerce_timestamps="us", use_compliant_nested_type=False)
    return sink.getvalue()


def _pandas_entry(schema: pa.Schema) -> dict[str, Any]:
    columns = []
    for field in schema:
        pandas_type, numpy_type, metadata = pandas_types(field.type)
        entry = {"field_name": field.name, "metadata": metadata, "name": field.name}
        columns.append({**entry, "numpy_type": numpy_type, "pandas_type": pandas_type})
    header = {
        "field_name": None,
        "metadata": {"encoding": "UTF-8"},
        "name": None,
        "numpy_type": "object",
        "pandas_type": "unicode",
    }
    return {
        "column_indexes": [header],
        "columns": columns,
        "creator": {"library": "pyarrow", "version": pa.__version__},
        "index_columns": [{"kind": "range", "name": None, "start": 0, "step": 1, "stop": 0}],
        "pandas_version": "1.5.3",
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


def pandas_types(data_type: pa.DataType) -> tuple[str, str, dict[str, Any] | None]:
    """The pandas type, NumPy type and metadata of a column in the ``pandas`` entry of a schema.

    The type has to be in normal form.
    """
    if data_type in _FIXED:
        return (*_FIXED[data_type], None)
    if pt.is_timestamp(data_type):
        if data_type.tz is None:
            return "datetime", "datetime64[ns]", None
        return "datetimetz", "datetime64[ns]", {"timezone": data_type.tz}
    if pt.is_decimal(data_type):
        return "decimal", "object", {"precision": data_type.precision, "scale": data_type.scale}
    if pt.is_list(data_type):
        return f"list[{pandas_types(data_type.value_type)[0]}]", "object", None
    return "object", "object", None


def parse_common_metadata(data: bytes, context: str) -> pa.Schema:
    """The schema of a table from its schema file, in stored types (plain strings, microseconds)."""
    try:
        # Some writers keep the row labels of pandas, which are no columns of the table.
        fields = [f for f in pq.read_schema(pa.BufferReader(data)) if not f.name.startswith("__index_level_")]
        schema = _distinct(pa.schema(fields))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptDocument(f"The schema file {context} cannot be read: {error}") from error
    return stored_schema(schema, f" in {context}")


def _distinct(schema: pa.Schema) -> pa.Schema:
    if len({*schema.names}) != len(schema.names):
        raise ValueError(f"its columns do not have different names: {schema.names}")
    return schema


def is_plain(data: bytes) -> bool:
    """Whether a schema file has the types that kartothek reads."""
    # plateau leaves large strings, and lists of ``element``.
    raw = pq.read_schema(pa.BufferReader(data))
    plain = normal_schema(stored_schema(raw))
    return all(_spelled(f.type) == _spelled(plain.field(f.name).type) for f in raw)


def _spelled(data_type: pa.DataType) -> str:
    """A type as text, without the names that Parquet gives to the entries of a map."""
    return re.sub(r" \('[^']*'\)", "", str(data_type))


def embedded_schemas(schemas: Mapping[str, pa.Schema]) -> str:
    """The schemas of all tables as text: JSON of base64 of compressed Arrow IPC."""
    packed = {
        table: base64.b64encode(zstandard.compress(bytes(schema.serialize()))).decode()
        for table, schema in schemas.items()
    }
    return json.dumps(packed)


def parse_embedded_schemas(text: str, context: str) -> dict[str, pa.Schema]:
    """The reverse of `embedded_schemas`."""
    try:
        return {
            table: _distinct(pa.ipc.read_schema(pa.BufferReader(decompress(base64.b64decode(packed)))))
            for table, packed in json.loads(text).items()
        }
    except Exception as error:
        raise CorruptDocument(f"The schema inside the document {context} cannot be read: {error}") from error
