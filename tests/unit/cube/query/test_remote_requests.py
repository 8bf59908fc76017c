"""What a query asks of a remote store: few requests, and those of one step side by side.

Each waits here until as many are there as should come together.
"""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from kartothek_cube import C, Cube, build_cube, options, query_cube_arrow
from kartothek_cube.api.dataset import read_table_arrow, store_dataframes_as_dataset, update_dataset_from_dataframes
from kartothek_cube.core.dataset.history import history
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.testing.stores import CountingStore
from tests.caches import forget

CUBE = Cube(["x", "y"], ["p"], "cube", index_columns=["i1"])
PARTITIONS, ROWS = 40, 5
SECONDS = 60


class MeetingStore(CountingStore):
    """Lets calls go on in groups of the size that ``together`` says for each kind; a group that
    does not come together is an error.
    """

    is_remote = True

    def __init__(self, inner, together=None):
        super().__init__(inner)
        self._barriers = {kind: threading.Barrier(size, timeout=SECONDS) for kind, size in (together or {}).items()}
        self.most, self._now = 0, 0
        self._counting = threading.Lock()

    def around(self, operation, key, action):
        kind = (
            "index"
            if "/indices/" in key
            else "file"
            if "/table/" in key
            else "history"
            if "/_history/" in key
            else operation
        )
        with self._counting:
            self._now += 1
            self.most = max(self.most, self._now)
        if kind in self._barriers and operation != "local_path":
            self._barriers[kind].wait()
        try:
            return super().around(operation, key, action)
        finally:
            with self._counting:
                self._now -= 1

    @property
    def requests(self):
        return {operation: count for operation, count in self.counts.items() if operation != "local_path"}


@pytest.fixture(scope="module")
def cubes():
    store, rows = MemoryStore(), PARTITIONS * ROWS
    keys = {"x": range(rows), "y": range(rows), "p": [i // ROWS for i in range(rows)]}
    build_cube(
        {
            "seed": pa.table({**keys, "i1": range(rows)}),
            "b": pa.table({**keys, "v1": range(rows)}),
            "c": pa.table({**keys, "v2": range(rows)}),
        },
        CUBE,
        store,
    )
    return store


def test_one_cell_needs_one_request_for_each_document_index_and_file(cubes):
    forget(cubes)
    store = MeetingStore(cubes, {"get_versioned": 3, "index": 2, "file": 3})
    found = query_cube_arrow(CUBE, store, conditions=(C("x") == 7) & (C("y") == 7))
    assert found.select(["x", "v1", "v2"]).to_pylist() == [{"x": 7, "v1": 7, "v2": 7}]
    assert store.requests == {"list": 1, "get_versioned": 3, "tail": 2 + 3}


def test_the_second_query_asks_only_whether_the_documents_are_the_newest(cubes):
    query_cube_arrow(CUBE, cubes, conditions=(C("x") == 7) & (C("y") == 7))
    store = MeetingStore(cubes, {"changed": 3, "file": 3})
    query_cube_arrow(CUBE, store, conditions=(C("x") == 7) & (C("y") == 7))
    assert store.requests == {"list": 1, "changed": 3, "tail": 3}


def test_files_of_several_partitions_are_asked_for_side_by_side(cubes):
    store = MeetingStore(cubes, {"file": 8 * 3})
    assert query_cube_arrow(CUBE, store, conditions=C("i1").isin([ROWS * n for n in range(8)])).num_rows == 8


def test_at_most_32_requests_are_on_their_way(cubes):
    store = MeetingStore(cubes)
    assert query_cube_arrow(CUBE, store).num_rows == PARTITIONS * ROWS
    assert store.most <= 32


@pytest.mark.parametrize("threads", [1, 4])
def test_the_option_says_how_many_requests_there_are(threads):
    inner = MemoryStore()
    store_dataframes_as_dataset(inner, "uuid", [pa.table({"p": range(8), "x": range(8)})], partition_on="p")
    store = MeetingStore(inner, {"file": threads})
    assert read_table_arrow("uuid", store, options=options(threads=threads)).num_rows == 8
    assert store.most == threads


def test_history_is_read_sixteen_entries_at_a_time():
    inner = MemoryStore()
    store_dataframes_as_dataset(inner, "uuid", [pa.table({"x": [1]})])
    for n in range(15):
        update_dataset_from_dataframes([], inner, "uuid", metadata={"n": n})
    first = str(history("uuid", inner)["commit"].iloc[-1])
    store = MeetingStore(inner, {"history": 16})
    assert read_table_arrow("uuid", store, as_of=first).num_rows == 1
    assert store.counts["get"] == 16
