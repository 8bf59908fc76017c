"""After `delete_rows` and a collection of garbage at once, no byte of a value is in the store."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
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
from kartothek_cube.core.snapshots import statistics
from kartothek_cube.core.stores.local import MemoryStore
from tests.support.datasets import UUID
from tests.support.erasure import holders

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
    assert len(holders(store, SECRET)) >= 2
    verb(store)
    assert holders(store, SECRET), "older states are kept until then"
    garbage_collect_dataset(UUID, store, options=NOW)
    assert holders(store, SECRET) == []


def test_no_byte_is_left_in_statistics_files(monkeypatch):
    monkeypatch.setattr(statistics, "_MOST_INSIDE", 0)
    store = MemoryStore()
    for n, names in enumerate((["Anna", "Zoe"], ["Bob"], [SECRET, SECRET], ["Carl"])):
        update_dataset_from_dataframes([people(*names, start=10 * n)], store, UUID)
    assert any("/_statistics/" in key for key in holders(store, SECRET))
    delete(store)
    garbage_collect_dataset(UUID, store, options=NOW)
    assert holders(store, SECRET) == []
    assert holders(store, "Anna")
