"""Writes to a cube in a far store: what goes at once, and who is overtaken by whom."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from kartothek_cube.api.cube import append_to_cube, build_cube, query_cube_arrow, remove_partitions
from kartothek_cube.api.dataset import update_dataset_from_dataframes
from kartothek_cube.core.commit.commit import CommitQueue, _queues
from kartothek_cube.core.commit.cube_writes import roll_back_all
from kartothek_cube.core.metadata.commit_log import pending_mark
from kartothek_cube.core.metadata.naming import document_key
from kartothek_cube.core.snapshots.documents import read_document
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.cube.cube import Cube
from kartothek_cube.errors import CommitConflict
from kartothek_cube.testing.stores import CountingStore, FaultyStore, InjectedFault, RoundsStore
from tests.caches import forget
from tests.support.far import FarStore

CUBE = Cube(["x"], ["p"], "cube")
DATASETS = ("e", "f", "seed")


def data(*xs):
    cells = {"x": pa.array(xs, pa.int64()), "p": ["a"] * len(xs)}
    return {i: pa.table({**cells, f"v_{i}": pa.array(xs, pa.int64())}) for i in DATASETS}


@pytest.fixture
def memory():
    memory = MemoryStore()
    build_cube(data(0), CUBE, memory)
    return memory


def cells(memory):
    """The cells, each of which all datasets have; nothing is pending."""
    forget(memory)
    rows = query_cube_arrow(CUBE, memory).to_pylist()
    assert all(row[f"v_{i}"] == row["x"] for row in rows for i in DATASETS)
    assert not [i for i in DATASETS if pending_mark(read_document(memory, f"cube++{i}").document) is not None]
    return [row["x"] for row in rows]


class Meanwhile(CountingStore):
    """Somebody else does something once, right before a document is put."""

    def __init__(self, inner, dataset, action):
        super().__init__(inner)
        self.key, self.action = document_key(f"cube++{dataset}"), action

    def around(self, operation, key, action):
        with self._lock:
            act, self.action = (self.action, None) if (operation, key) == ("put_if", self.key) else (None, self.action)
        if act is not None:
            act()
        return super().around(operation, key, action)


def test_marks_go_at_once_after_all_files_and_before_the_coordinator(memory):
    store = RoundsStore(memory)
    with store.rounds_counted():
        append_to_cube(data(1), CUBE, store)
    swaps = [(n, call.key) for n, call in store.chain if call.operation == "put_if" and "/" not in call.key]
    first = min(n for n, _ in swaps)
    assert sorted(swaps) == [
        (first, document_key("cube++e")),
        (first, document_key("cube++f")),
        (first + 1, document_key("cube++seed")),
        (first + 2, document_key("cube++e")),
        (first + 2, document_key("cube++f")),
    ]
    assert max(n for n, call in store.chain if "/" in call.key) < first
    assert cells(memory) == [0, 1]


@pytest.mark.parametrize("dataset", DATASETS)
def test_another_write_to_the_cube_comes_first(memory, dataset):
    store = Meanwhile(FarStore(memory), dataset, lambda: append_to_cube(data(2), CUBE, memory))
    append_to_cube(data(1), CUBE, store)
    assert cells(memory) == [0, 1, 2]


@pytest.mark.parametrize("dataset", DATASETS)
def test_a_write_to_one_dataset_comes_first(memory, dataset):
    def write():
        update_dataset_from_dataframes([data(2)[dataset]], memory, f"cube++{dataset}")

    append_to_cube(data(1), CUBE, Meanwhile(FarStore(memory), dataset, write))
    assert [row["x"] for row in query_cube_arrow(CUBE, memory).to_pylist()] == [0, 1, *[2] * (dataset == "seed")]


@pytest.mark.parametrize("dataset", DATASETS)
def test_who_removes_what_was_changed_meanwhile_is_told(memory, dataset):
    store = Meanwhile(FarStore(memory), dataset, lambda: append_to_cube(data(2), CUBE, memory))
    with pytest.raises(CommitConflict):
        remove_partitions(CUBE, store, None, list(DATASETS))
    assert cells(memory) == [0, 2]


@pytest.mark.parametrize("operation", ["put", "put_if"])
@pytest.mark.parametrize("nth", range(1, 9))
def test_a_call_that_fails_leaves_all_or_nothing(memory, operation, nth):
    store = FaultyStore(
        FarStore(memory), lambda call: "before" if (call.operation, call.nth) == (operation, nth) else None
    )
    try:
        append_to_cube(data(1), CUBE, store)
        expected = [0, 1]
    except InjectedFault:
        expected = [0]
    assert cells(memory) == expected
    append_to_cube(data(3), CUBE, memory)
    assert cells(memory) == [*expected, 3]


def test_no_document_names_a_file_that_is_not_there(memory):
    class Checked(CountingStore):
        """Puts of data wait until the last of them has begun."""

        waiting = threading.Barrier(3)

        def around(self, operation, key, action):
            if operation == "put" and key.endswith(".parquet"):
                self.waiting.wait(60)
            if operation == "put_if":
                missing = [k for k in self.touched("put") if not memory.contains(k)]
                assert not missing
            return super().around(operation, key, action)

    append_to_cube(data(1), CUBE, Checked(FarStore(memory)))
    assert cells(memory) == [0, 1]


def test_writers_in_threads_all_land_and_readers_see_whole_writes(memory):
    def write(x):
        append_to_cube(data(x), CUBE, FarStore(memory))

    def read(_):
        rows = query_cube_arrow(CUBE, FarStore(memory)).to_pylist()
        assert all(row[f"v_{i}"] == row["x"] for row in rows for i in DATASETS)

    with ThreadPoolExecutor(8) as pool:
        writes = [pool.submit(write, x) for x in range(1, 9)]
        list(pool.map(read, range(40)))
        for each in writes:
            each.result()
    assert cells(memory) == list(range(9))


def test_marks_that_go_at_once_wait_for_no_other_thread(memory, monkeypatch):
    """That thread may wait for the write: it holds its turn until the marks are taken back."""
    queue = _queues._queues.setdefault((memory.identity, "cube++e"), CommitQueue(members=1))
    given_up = threading.Event()

    def roll_back(*arguments):
        roll_back_all(*arguments)
        given_up.set()

    monkeypatch.setattr("kartothek_cube.cube.write.commit.roll_back_all", roll_back)
    with ThreadPoolExecutor(1) as pool:
        with queue.turn:
            write = pool.submit(append_to_cube, data(1), CUBE, FarStore(memory))
            assert given_up.wait(60)
        write.result()
    _queues.clear()
    assert cells(memory) == [0, 1]
