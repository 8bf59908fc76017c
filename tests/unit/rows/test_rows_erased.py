"""After `delete_rows` and a collection of garbage at once, no byte of a value is in the store."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kartothek_cube import options
from kartothek_cube.api.dataset import (
    delete_rows,
    garbage_collect_dataset,
    merge_dataset,
    store_dataframes_as_dataset,
    update_dataset_from_dataframes,
    update_rows,
)
from kartothek_cube.api.serialization import CsvSerializer, ParquetSerializer
from kartothek_cube.core.stores.memory import MemoryStore
from tests.support.datasets import UUID, contents

SECRET = "Erika Mustermann"
NOW = options(grace=timedelta(0), retain=timedelta(0))


def people(*names, start=0):
    return pa.table(
        {
            "x": range(start, start + len(names)),
            "p": ["a"] * len(names),
            "i1": names,
            "v1": [f"letter to {name}" for name in names],
        }
    )


def unpacked(key, data):
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
    elif data[:2] == b"\x1f\x8b":
        found.append(pa.input_stream(pa.BufferReader(data), compression="gzip").read())
    return b"\n".join(found)


def holders(store):
    return [key for key, data in contents(store).items() if SECRET.encode() in unpacked(key, data)]


def delete(store):
    assert delete_rows(UUID, store, [[("i1", "==", SECRET)]]).deleted == 2


def merge(store):
    assert merge_dataset(people(SECRET), store, UUID, "i1", when_matched="delete").deleted == 2


def overwrite(store):
    assert update_rows(UUID, store, [[("i1", "==", SECRET)]], {"i1": "nobody", "v1": None}).updated == 2


@pytest.mark.parametrize("verb", [delete, merge, overwrite])
@pytest.mark.parametrize("on", [[], ["p"], ["i1"]], ids=str)
@pytest.mark.parametrize("index", [[], ["i1", "v1"]], ids=str)
@pytest.mark.parametrize(
    ("serializer", "encoding"),
    [
        (ParquetSerializer(), "json"),
        (ParquetSerializer("ZSTD", 2), "msgpack"),
        (ParquetSerializer("GZIP"), "json"),
        (CsvSerializer(), "json"),
    ],
    ids=["snappy", "zstd", "gzip", "csv"],
)
def test_no_byte_is_left(verb, on, index, serializer, encoding):
    store = MemoryStore()
    store_dataframes_as_dataset(
        store,
        UUID,
        [people("Anna", SECRET, "Zoe")],
        partition_on=on,
        secondary_indices=[c for c in index if c not in on],
        df_serializer=serializer,
        metadata_storage_format=encoding,
    )
    update_dataset_from_dataframes([people("Bob", SECRET, start=10)], store, UUID, df_serializer=serializer)
    assert len(holders(store)) >= 2
    verb(store)
    assert holders(store), "older states are kept until then"
    garbage_collect_dataset(UUID, store, options=NOW)
    assert holders(store) == []
