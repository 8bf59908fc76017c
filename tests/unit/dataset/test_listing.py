"""Which datasets a store holds."""

from __future__ import annotations

import pyarrow as pa

from kartothek_cube import Cube, build_cube, list_datasets
from kartothek_cube.api.dataset import convert_metadata_format, store_dataframes_as_dataset
from kartothek_cube.core.stores.local import MemoryStore


def test_datasets_are_listed_once_each_with_those_of_cubes():
    store, rows = MemoryStore(), pa.table({"x": [1], "p": [1]})
    store_dataframes_as_dataset(store, "b", [rows])
    store_dataframes_as_dataset(store, "a-b", [rows], metadata_storage_format="msgpack")
    build_cube(rows, Cube(["x"], ["p"], "cube"), store)
    store.put("notes.txt", b"no document")
    store.put("b/deeper.by-dataset-metadata.json", b"no dataset")
    assert list_datasets(store) == ["a-b", "b", "cube++seed"]


def test_a_dataset_with_documents_in_both_encodings_is_one():
    store = MemoryStore()
    store_dataframes_as_dataset(store, "a", [pa.table({"x": [1]})])
    document = store.get("a.by-dataset-metadata.json")
    convert_metadata_format("a", store, "msgpack")
    store.put("a.by-dataset-metadata.json", document)
    assert list_datasets(store) == ["a"]
