"""The sound store that everything starts from: one dataset in four spellings, beside a dataset that
nobody may touch.
"""

from __future__ import annotations

import json
from functools import cache

import msgspec
import pyarrow as pa
import zstandard

from kartothek_cube.core.io.csv import CsvFormat
from kartothek_cube.core.io.formats import ParquetFormat
from kartothek_cube.core.metadata.commit_log import COMMITS_KEY, SCHEMA_KEY, fingerprint
from kartothek_cube.core.metadata.document import from_mapping
from kartothek_cube.core.metadata.index import build_index
from kartothek_cube.core.metadata.snapshot import common_metadata_bytes, embedded_schemas
from kartothek_cube.core.snapshots.loader import index_bytes

UUID, OTHER = "uuid", "other"
JSON_KEY, MSGPACK_KEY = f"{UUID}.by-dataset-metadata.json", f"{UUID}.by-dataset-metadata.msgpack.zstd"
SCHEMA_FILE = f"{UUID}/table/_common_metadata"
INDEX_KEY = f"{UUID}/indices/i1/2000-01-01T00%3A00%3A00.000000.by-dataset-index.parquet"
TEXT_INDEX_KEY = f"{UUID}/indices/t/2000-01-01T00%3A00%3A00.000000.by-dataset-index.parquet"
SCHEMA = pa.schema(
    [
        ("p", pa.int64()),
        ("b", pa.bool_()),
        ("d", pa.date32()),
        ("i1", pa.int64()),
        ("l", pa.list_(pa.int64())),
        ("t", pa.string()),
        ("ts", pa.timestamp("us")),
        ("v1", pa.float64()),
        ("x", pa.int64()),
    ]
)
LABELS = [f"p={p}/{p:032x}" for p in range(3)]


def _rows(p: int) -> pa.Table:
    numbers = list(range(p * 4, p * 4 + 4))
    columns = {
        "b": [n % 2 == 0 for n in numbers],
        "d": pa.array([None, *numbers[1:]], type=pa.int32()).cast(pa.date32()),
        "i1": [n // 3 for n in numbers],
        "l": [[n] * (n % 3) for n in numbers],
        "t": [f"text {n}" for n in numbers],
        "ts": pa.array(numbers, type=pa.int64()).cast(pa.timestamp("us")),
        "v1": [None if n % 5 == 4 else n / 2 for n in numbers],
        "x": numbers,
    }
    return pa.table(columns).cast(pa.schema([f for f in SCHEMA if f.name != "p"]))


@cache
def rows() -> pa.Table:
    """The true answer, in the order of the labels."""
    return pa.concat_tables([_rows(p).add_column(0, "p", pa.array([p] * 4, type=pa.int64())) for p in range(3)])


def data_key(label: str, suffix: str = ".parquet") -> str:
    return f"{UUID}/table/{label}{suffix}"


def document(*, ours: bool = False, suffix: str = ".parquet") -> dict[str, object]:
    """The members of the document; with ``ours`` it carries its schema."""
    partitions = {label: {"files": {"table": data_key(label, suffix)}} for label in LABELS}
    metadata: dict[str, object] = {"creation_time": "2000-01-01T00:00:00", "owner": "me"}
    if ours:
        metadata[COMMITS_KEY] = json.dumps([["a" * 32, None, fingerprint(from_mapping(partitions, UUID))]])
        metadata[SCHEMA_KEY] = embedded_schemas({"table": SCHEMA})
    return {
        "dataset_metadata_version": 4,
        "dataset_uuid": UUID,
        "indices": {"i1": INDEX_KEY, "t": TEXT_INDEX_KEY},
        "metadata": metadata,
        "partitions": partitions,
        "partition_keys": ["p"],
    }


def packed(members: object) -> bytes:
    return zstandard.compress(msgspec.msgpack.encode(members))


@cache
def _files() -> dict[str, bytes]:
    found = {SCHEMA_FILE: common_metadata_bytes(SCHEMA)}
    for p, label in enumerate(LABELS):
        found[data_key(label)] = ParquetFormat(chunk_size=2).encode(_rows(p)).to_pybytes()
    for key, column in ((INDEX_KEY, "i1"), (TEXT_INDEX_KEY, "t")):
        index = build_index(
            column,
            SCHEMA.field(column).type,
            [(_rows(p).column(column).unique(), label) for p, label in enumerate(LABELS)],
        )
        found[key] = bytes(index_bytes(index, group_rows=3))
    found[f"{OTHER}.by-dataset-metadata.json"] = json.dumps(
        {"dataset_metadata_version": 4, "dataset_uuid": OTHER, "partitions": {}}
    ).encode()
    found[f"{OTHER}/table/x.parquet"] = found[data_key(LABELS[0])]
    return found


@cache
def _csv_files() -> dict[str, bytes]:
    plain = {
        data_key(label, ".csv"): CsvFormat(compress=False).encode(_rows(p).drop_columns(["l"])).to_pybytes()
        for p, label in enumerate(LABELS)
    }
    return {**plain, SCHEMA_FILE: common_metadata_bytes(pa.schema([f for f in SCHEMA if f.name != "l"]))}


SPELLINGS = ("json", "ours", "msgpack", "csv")


def store_of(spelling: str) -> dict[str, bytes]:
    """The objects of the store."""
    found = dict(_files())
    if spelling == "csv":
        found = {key: data for key, data in found.items() if not key.startswith(f"{UUID}/table/p=")} | _csv_files()
    members = document(ours=spelling == "ours", suffix=".csv" if spelling == "csv" else ".parquet")
    key, data = (MSGPACK_KEY, packed(members)) if spelling == "msgpack" else (JSON_KEY, json.dumps(members).encode())
    return {**found, key: data}
