"""A search for a text in every byte of a store, also where bytes are packed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgpack
import pyarrow as pa
import pyarrow.parquet as pq

from kartothek_cube.core.metadata.statistics import reference_of
from tests.support.datasets import contents

if TYPE_CHECKING:
    from kartothek_cube.core.stores.contract import Store


def unpacked(key: str, data: bytes) -> bytes:
    """The bytes of an object, and those of its columns or of its document if these are packed."""
    found = [key.encode(), data]
    if data[:4] == b"PAR1":
        table = pq.read_table(pa.BufferReader(data))
        found += [str(table.to_pylist()).encode(), str(table.schema).encode()]
        # The dictionary of a column may have values that no row has.
        columns = (c for c in table.column_names if pa.types.is_string(table.schema.field(c).type))
        for column in pq.read_table(pa.BufferReader(data), read_dictionary=list(columns)).columns:
            if pa.types.is_dictionary(column.type):
                found += [str(chunk.dictionary.to_pylist()).encode() for chunk in column.chunks]
    elif data[:4] == b"(\xb5/\xfd":
        found.append(pa.input_stream(pa.BufferReader(data), compression="zstd").read())
        if key.endswith(".msgpack.zstd"):
            found += _statistics(msgpack.unpackb(found[-1]))
    elif key.endswith(".json") and "/_delta_log/" not in key:
        found += _statistics(json.loads(data))
    elif data[:2] == b"\x1f\x8b":
        found.append(pa.input_stream(pa.BufferReader(data), compression="gzip").read())
    return b"\n".join(found)


def _statistics(document: dict[str, Any]) -> list[bytes]:
    recent = reference_of(document.get("metadata", {})).recent_statistics()
    return [str(each.table.to_pylist()).encode() for each in recent]


def holders(store: Store, text: str) -> list[str]:
    """The keys of the objects that have a text, also as it stands in keys of partitions."""
    forms = {text.encode(), quote(text).encode()}
    found = {key: unpacked(key, data) for key, data in contents(store).items()}
    return [key for key, data in found.items() if any(form in data for form in forms)]
