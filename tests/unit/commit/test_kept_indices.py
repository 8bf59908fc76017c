"""The index after a commit is kept: a stream of small writes reads an index once."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kartothek_cube import Cube, append_to_cube, build_cube
from kartothek_cube.api.dataset import store_dataframes_as_dataset, update_dataset_from_dataframes
from kartothek_cube.core.snapshots.loader import load_index, load_snapshot
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.testing.stores import CountingStore

CUBE = Cube("x", "p", "cube", index_columns=["i1"])
READS = ("get", "get_versioned", "tail", "ranges", "local_path")


def seed(p):
    return {"seed": pa.table({"x": [0, p], "p": [p, p], "v1": [p, p]})}


def both(p):
    return {**seed(p), "more": pa.table({"x": [p], "p": [p], "i1": ["same"]})}


def of_other_process(inner):
    """The same content, of which nothing is known yet, in a store that counts."""
    store = MemoryStore()
    for key in inner.list(recursive=True).keys:
        store.put(key, inner.get(key))
    return CountingStore(store)


def index_reads(store):
    return [key for key in store.touched(*READS) if "/indices/" in key]


@pytest.mark.parametrize(("write", "indices"), [(seed, 1), (both, 2)])
def test_a_stream_of_appends_to_a_cube_reads_its_indices_once(write, indices):
    first = MemoryStore()
    build_cube(both(1), CUBE, first)
    store = of_other_process(first)
    append_to_cube(write(2), CUBE, store)
    assert len({*index_reads(store)}) == indices
    store.reset()
    for p in range(3, 8):
        append_to_cube(write(p), CUBE, store)
    assert index_reads(store) == []
    again = load_index(of_other_process(store), load_snapshot(store, "cube++seed"), "x")[0]
    cold = of_other_process(store)
    assert load_index(cold, load_snapshot(cold, "cube++seed"), "x")[0].lists.to_pylist() == again.lists.to_pylist()
    assert (again.keys.to_pylist(), len(again)) == (list(range(8)), 14)


@pytest.mark.parametrize("scope", [None, [{"p": 1}]], ids=["append", "replace"])
def test_a_stream_of_updates_of_a_dataset_reads_its_index_once(scope):
    def update(store, p):
        rows = pa.table({"p": [p, 1], "x": [p, p], "v1": [p, p]})
        update_dataset_from_dataframes([rows], store, "uuid", delete_scope=scope, partition_on=["p"])

    first = MemoryStore()
    rows = pa.table({"p": [1], "x": [1], "v1": [1]})
    store_dataframes_as_dataset(first, "uuid", [rows], partition_on=["p"], secondary_indices=["x"])
    store = of_other_process(first)
    update(store, 2)
    assert index_reads(store)
    store.reset()
    for p in range(3, 8):
        update(store, p)
    assert index_reads(store) == []
    index = load_index(store, load_snapshot(store, "uuid"), "x")[0]
    lists = dict(zip(index.keys.to_pylist(), index.lists.to_pylist(), strict=True))
    assert [len(lists[p]) for p in range(2, 8)] == ([2] * 6 if scope is None else [1, 1, 1, 1, 1, 2])
