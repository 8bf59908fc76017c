"""A writer of the format, written from docs/format.md alone, as is the reader beside it."""

from __future__ import annotations

import datetime as dt
import io
import json
import secrets
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_from_bytes

import msgpack
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from tests.support.by_the_page import DOCUMENTS, read_document, read_index

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def quoted(value: Any) -> str:
    return quote_from_bytes(value if isinstance(value, bytes) else str(value).encode(), safe="")


def normal_type(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_integer(type_):
        return pa.int64() if pa.types.is_signed_integer(type_) else pa.uint64()
    if pa.types.is_list(type_):
        return pa.list_(pa.field("item", normal_type(type_.value_type)))
    return pa.float64() if pa.types.is_floating(type_) else type_


NAMES = {
    "bool": ("bool", "bool"),
    "string": ("unicode", "object"),
    "binary": ("bytes", "object"),
    "date32[day]": ("date", "object"),
    "timestamp[us]": ("datetime", "datetime64[ns]"),
    "time64[us]": ("time", "object"),
    "duration[ns]": ("object", "timedelta64[ns]"),
    "null": ("empty", "object"),
}


def pandas_types(type_: pa.DataType) -> tuple[str, str, dict[str, Any] | None]:
    if pa.types.is_timestamp(type_) and type_.tz:
        return "datetimetz", "datetime64[ns]", {"timezone": type_.tz}
    if pa.types.is_decimal(type_):
        return "decimal", "object", {"precision": type_.precision, "scale": type_.scale}
    if pa.types.is_list(type_):
        return f"list[{pandas_types(type_.value_type)[0]}]", "object", None
    name = {"double": "float64"}.get(str(type_), str(type_))
    nested = pa.types.is_struct(type_) or pa.types.is_map(type_)
    return (*NAMES.get(name, ("object", "object") if nested else (name, name)), None)


def write_schema(store: Path, uuid: str, schema: pa.Schema, partition_keys: list[str]) -> None:
    names = partition_keys + sorted(set(schema.names) - set(partition_keys))
    fields = [pa.field(name, normal_type(schema.field(name).type)) for name in names]
    columns = []
    for field in fields:
        pandas_type, numpy_type, metadata = pandas_types(field.type)
        columns.append(
            {
                "field_name": field.name,
                "name": field.name,
                "pandas_type": pandas_type,
                "numpy_type": numpy_type,
                "metadata": metadata,
            }
        )
    pandas: dict[str, Any] = {
        "columns": columns,
        "column_indexes": [],
        "creator": {"library": "page", "version": "1"},
        "index_columns": [],
        "pandas_version": "1.5.3",
    }
    normal = pa.schema(fields, metadata={"pandas": json.dumps(pandas)})
    pq.write_metadata(normal, file := io.BytesIO(), coerce_timestamps="us", use_compliant_nested_type=False)
    put(store, f"{uuid}/table/_common_metadata", file.getvalue())


def parquet(rows: pa.Table) -> bytes:
    pq.write_table(rows, file := io.BytesIO(), version="2.6", coerce_timestamps="us", use_compliant_nested_type=False)
    return file.getvalue()


def put(store: Path, key: str, content: bytes) -> str:
    (store / key).parent.mkdir(parents=True, exist_ok=True)
    (store / key).write_bytes(content)
    return key


def split(rows: pa.Table, partition_keys: list[str]) -> Iterator[tuple[str, pa.Table]]:
    groups: dict[str, list[int]] = {}
    for position, row in enumerate(rows.select(partition_keys).to_pylist() if partition_keys else [{}] * len(rows)):
        groups.setdefault("".join(f"{quoted(name)}={quoted(value)}/" for name, value in row.items()), []).append(
            position
        )
    for path, positions in groups.items():
        yield path + secrets.token_hex(16), rows.take(positions)


def write_partitions(
    store: Path, uuid: str, parts: dict[str, pa.Table], partition_keys: list[str]
) -> dict[str, dict[str, dict[str, str]]]:
    keys = {
        label: put(store, f"{uuid}/table/{label}.parquet", parquet(rows.drop_columns(partition_keys)))
        for label, rows in parts.items()
    }
    return {label: {"files": {"table": key}} for label, key in keys.items()}


def write_index(
    store: Path, uuid: str, column: str, type_: pa.DataType, parts: dict[str, pa.Table], found: dict[Any, set[str]]
) -> str:
    """A new index file: the values of the old one and of these partitions."""
    for label, rows in parts.items():
        for value in rows[column].drop_null().unique().to_pylist():
            if value == value:  # noqa: PLR0124 - NaN is in no index
                found.setdefault(value, set()).add(label)
    columns = [
        pa.array(found, normal_type(type_)),
        pa.array(map(list, found.values()), pa.list_(pa.field("item", pa.string()))),
    ]
    time = dt.datetime.now(dt.UTC).replace(tzinfo=None).isoformat(timespec="microseconds")
    return put(
        store,
        f"{uuid}/indices/{quoted(column)}/{quoted(time)}.by-dataset-index.parquet",
        parquet(pa.table(columns, [column, "partition"])),
    )


def write_document(store: Path, uuid: str, document: dict[str, Any], *, packed: bool | None = None) -> None:
    """The document in the encoding that the dataset has."""
    as_json, as_msgpack = (f"{uuid}{suffix}" for suffix in DOCUMENTS)
    if (store / as_msgpack).exists() if packed is None else packed:
        put(store, as_msgpack, zstandard.compress(msgpack.packb(document)))
    else:
        put(store, as_json, json.dumps(document).encode())


def write_dataset(
    store: Path,
    uuid: str,
    rows: pa.Table,
    partition_keys: list[str],
    indices: list[str],
    *,
    packed: bool = False,
    **more: Any,
) -> None:
    """A new dataset from rows in stored types; ``more`` is user metadata."""
    parts = dict(split(rows, partition_keys))
    partitions = write_partitions(store, uuid, parts, partition_keys)
    write_schema(store, uuid, rows.schema, partition_keys)
    keys = {column: write_index(store, uuid, column, rows.schema.field(column).type, parts, {}) for column in indices}
    metadata = {**more, "creation_time": dt.datetime.now(dt.UTC).replace(tzinfo=None).isoformat()}
    document = {"dataset_metadata_version": 4, "dataset_uuid": uuid} | ({"indices": keys} if keys else {})
    write_document(
        store,
        uuid,
        document | {"metadata": metadata, "partitions": partitions, "partition_keys": partition_keys},
        packed=packed,
    )


def append_rows(store: Path, uuid: str, rows: pa.Table) -> None:
    """One more commit, onto a dataset of any writer: only partitions and indices change."""
    document = read_document(store, uuid)
    parts = dict(split(rows, document["partition_keys"]))
    document["partitions"] |= write_partitions(store, uuid, parts, document["partition_keys"])
    for column in document.get("indices", {}):
        type_ = rows.schema.field(column).type
        document["indices"][column] = write_index(
            store, uuid, column, type_, parts, read_index(store, uuid, column, type_)
        )
    write_document(store, uuid, document)


def write_cube(
    store: Path, prefix: str, datasets: dict[str, pa.Table], seed: str, dimensions: list[str], partition_keys: list[str]
) -> None:
    """The datasets of a cube, all with the same partitioning."""
    for name, rows in datasets.items():
        more = {
            "ktk_cube_is_seed": name == seed,
            "ktk_cube_dimension_columns": dimensions,
            "ktk_cube_partition_columns": partition_keys,
        }
        indices = dimensions if name == seed else []
        write_dataset(store, f"{prefix}++{name}", rows, partition_keys, indices, **more, ktk_cube_suppress_index_on=[])
