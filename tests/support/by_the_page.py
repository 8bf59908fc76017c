"""A reader of the format, written from docs/format.md alone.

The reader uses nothing of kartothek_cube, and nothing that other libraries may ignore (◆).
"""

from __future__ import annotations

import datetime as dt
import io
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, unquote_to_bytes

import msgpack
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import zstandard
from pyarrow import csv

if TYPE_CHECKING:
    from pathlib import Path


def unzstd(packed: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompressobj().decompress(packed)


DOCUMENTS = {
    ".by-dataset-metadata.json": json.loads,
    ".by-dataset-metadata.msgpack.zstd": lambda packed: msgpack.unpackb(unzstd(packed)),
}


def keys_below(store: Path, prefix: str) -> list[str]:
    return sorted(
        key
        for path in store.rglob("*")
        if path.is_file() and (key := path.relative_to(store).as_posix()).startswith(prefix)
    )


def pairs_of(key: str) -> dict[str, str]:
    """The partition columns of a data key, and their values as the key spells them."""
    pairs = [part.split("=") for part in key.split("/")[2:-1] if part.count("=") == 1]
    return {unquote(name): text for name, text in pairs}


def value_of(text: str, type_: pa.DataType) -> Any:
    """A value from its quoted text."""
    if pa.types.is_binary(type_):
        return unquote_to_bytes(text)
    text = unquote(text)
    if pa.types.is_boolean(type_):
        return text == "True"
    if pa.types.is_timestamp(type_):
        return dt.datetime.fromisoformat(text)
    return next((read(text) for is_of, read in READ_AS if is_of(type_)), text)


READ_AS = [(pa.types.is_integer, int), (pa.types.is_floating, float), (pa.types.is_date, dt.date.fromisoformat)]


def list_datasets(store: Path) -> list[str]:
    return sorted({path.name.removesuffix(suffix) for suffix in DOCUMENTS for path in store.glob("*" + suffix)})


def read_document(store: Path, uuid: str) -> dict[str, Any]:
    for suffix, decode in DOCUMENTS.items():
        if (path := store / (uuid + suffix)).exists():
            document: dict[str, Any] = decode(path.read_bytes())
            assert document["dataset_metadata_version"] == 4
            return document
    raise KeyError(uuid)


def implicit_partitions(store: Path, uuid: str) -> dict[str, dict[str, str]]:
    partitions: dict[str, dict[str, str]] = {}
    for key in keys_below(store, uuid + "/"):
        if key.endswith(".parquet") and key.count("/") >= 2 and not key.startswith(f"{uuid}/indices/"):
            table, label = key.split("/")[1], key.removesuffix(".parquet").split("/", 2)[2]
            partitions.setdefault(label, {})[table] = key
    return partitions


def partitions_of(store: Path, uuid: str) -> dict[str, dict[str, str]]:
    """Label → table → key."""
    document = read_document(store, uuid)
    if "partitions" not in document:
        return implicit_partitions(store, uuid)
    return {label: partition["files"] for label, partition in document["partitions"].items()}


def read_schema(store: Path, uuid: str, table: str) -> pa.Schema:
    schema = pq.read_schema(store / uuid / table / "_common_metadata")
    return pa.schema([field for field in schema if not field.name.startswith("__index_level_")])


def read_csv(content: bytes, schema: pa.Schema, key: str) -> pa.Table:
    source = pa.input_stream(io.BytesIO(content), compression="gzip" if key.endswith(".gz") else None)
    types = csv.ConvertOptions(
        column_types=schema, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    return csv.read_csv(
        source, parse_options=csv.ParseOptions(delimiter=";", newlines_in_values=True), convert_options=types
    )


def partition_keys_of(store: Path, uuid: str) -> list[str]:
    """The partition keys of the document; old documents and headers have them in the first key."""
    known = read_document(store, uuid).get("partition_keys")
    first = next((key for files in partitions_of(store, uuid).values() for key in files.values()), "")
    return list(pairs_of(first)) if known is None else known


def read_file(store: Path, key: str, schema: pa.Schema, partition_keys: list[str]) -> pa.Table:
    content = (store / key).read_bytes()
    rows = pq.ParquetFile(io.BytesIO(content)).read() if key.endswith(".parquet") else read_csv(content, schema, key)
    values = {name: text for name, text in pairs_of(key).items() if name in partition_keys}
    columns = []
    for name, type_ in zip(schema.names, schema.types, strict=True):
        if name in values:
            columns.append(pa.array([value_of(values[name], type_)] * len(rows), type_))
        else:
            columns.append(rows[name].cast(type_) if name in rows.column_names else pa.nulls(len(rows), type_))
    return pa.table(columns, schema=schema)


def read_table(store: Path, uuid: str, table: str = "table", labels: set[str] | None = None) -> pa.Table:
    schema = read_schema(store, uuid, table)
    keys = [
        files[table]
        for label, files in partitions_of(store, uuid).items()
        if table in files and (labels is None or label in labels)
    ]
    partition_keys = partition_keys_of(store, uuid)
    return pa.concat_tables([schema.empty_table(), *(read_file(store, key, schema, partition_keys) for key in keys)])


def read_index(store: Path, uuid: str, column: str, type_: pa.DataType) -> dict[Any, set[str]]:
    """Value → labels; old documents contain their indices."""
    index = read_document(store, uuid)["indices"][column]
    if isinstance(index, dict):
        return {value_of(quote(text, safe=""), type_): set(labels) for text, labels in index.items()}
    rows = pq.ParquetFile(store / index).read().to_pydict()
    found: dict[Any, set[str]] = {}
    for value, labels in zip(rows[column], rows["partition"], strict=True):
        found.setdefault(value, set()).update(labels)
    return found


def rows_where(store: Path, uuid: str, column: str, value: Any, table: str = "table") -> pa.Table:
    """The rows with a value of an indexed column, found through the index."""
    type_ = read_schema(store, uuid, table).field(column).type
    rows = read_table(store, uuid, table, read_index(store, uuid, column, type_).get(value, set()))
    return rows.filter(pc.equal(rows[column], pa.scalar(value, type_)))


def read_cube(store: Path, prefix: str) -> tuple[str, dict[str, Any]]:
    """The uuid of a cube's seed, and name → metadata of each dataset of the cube."""
    uuids = [uuid for uuid in list_datasets(store) if uuid.startswith(prefix + "++")]
    members = {uuid: read_document(store, uuid).get("metadata", {}) for uuid in uuids}
    (seed,) = (uuid for uuid, metadata in members.items() if metadata.get("ktk_cube_is_seed"))
    return seed, {uuid.removeprefix(prefix + "++"): metadata for uuid, metadata in members.items()}


def read_cells(store: Path, prefix: str) -> list[dict[str, Any]]:
    """The cells of the seed, each with the columns of the other datasets."""
    seed, members = read_cube(store, prefix)
    metadata = read_document(store, seed)["metadata"]
    keys = metadata["ktk_cube_dimension_columns"] + metadata["ktk_cube_partition_columns"]
    cells = newest_rows(read_table(store, seed), keys)
    for uuid in sorted({f"{prefix}++{name}" for name in members} - {seed}):
        table = read_table(store, uuid)
        on, empty = [key for key in keys if key in table.column_names], dict.fromkeys(table.column_names)
        known = {tuple(row[key] for key in on): row for row in newest_rows(table, on)}
        cells = [{**empty, **known.get(tuple(cell[key] for key in on), {}), **cell} for cell in cells]
    return [
        {name: value for name, value in cell.items() if not name.startswith("__") and name != "KLEE_TS"}
        for cell in cells
    ]


def newest_rows(table: pa.Table, keys: list[str]) -> list[dict[str, Any]]:
    return list({tuple(row[key] for key in keys): row for row in table.to_pylist()}.values())


def document_before(after: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
    """The document before a commit, from the one after it and the commit's history entry."""
    partitions = [item for item in after["partitions"].items() if item[0] not in entry["added"]]
    for place, position in enumerate(entry["positions"]):
        files = {table: keys[place] for table, keys in entry["files"].items() if keys[place] is not None}
        partitions.insert(position, (entry["labels"][place], {"files": files}))
    kept = {name: entry["before"][name] for name in ("partition_keys", "indices", "metadata")}
    return {**after, **kept} | ({"partitions": dict(partitions)} if entry["before"]["explicit"] else {})
