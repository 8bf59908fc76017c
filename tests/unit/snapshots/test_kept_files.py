"""`KeptFiles`: a verb asks for the end of a file once."""

from __future__ import annotations

import pickle

import pytest

from kartothek_cube.core.snapshots import loader
from kartothek_cube.core.snapshots.loader import KeptFiles
from kartothek_cube.core.stores.local import LocalStore, MemoryStore
from kartothek_cube.errors import KeyNotFound
from kartothek_cube.testing.stores import CountingStore


@pytest.fixture
def counting():
    store = MemoryStore()
    store.put("a", b"0123456789")
    return CountingStore(store)


def ends(store, *sizes):
    return [(bytes(data), size) for data, size in (store.tail("a", n) for n in sizes)]


def test_an_end_is_asked_for_once(counting):
    assert ends(KeptFiles(counting), 4, 2, 4, 0) == [(b"6789", 10), (b"89", 10), (b"6789", 10), (b"", 10)]
    assert counting.counts == {"tail": 1}


def test_a_longer_end_is_asked_for_unless_the_file_is_whole(counting):
    assert ends(KeptFiles(counting), 4, 8, 99, 100) == [
        (b"6789", 10),
        (b"23456789", 10),
        (b"0123456789", 10),
        (b"0123456789", 10),
    ]
    assert counting.counts == {"tail": 3}


def test_memory_is_bounded(counting, monkeypatch):
    monkeypatch.setattr(loader, "_KEPT_BYTES", 4)
    files = KeptFiles(counting)
    ends(files, 4, 4)
    assert counting.counts == {"tail": 1}
    ends(files, 8, 8)
    assert counting.counts == {"tail": 3}


def test_what_is_missing_is_asked_for_again(counting):
    files = KeptFiles(counting)
    for _ in range(2):
        assert not files.contains("b")
        with pytest.raises(KeyNotFound):
            files.tail("b", 1)
    counting.put("b", b"1")
    assert files.contains("b")
    assert files.tail("b", 1) == (b"1", 1)


def test_looking_ahead_spares_later_calls(counting):
    counting.put("b", b"1")
    counting.reset()
    files = KeptFiles(counting)
    files.look_ahead(["a", "missing"], ["b", "c"])
    asked = counting.counts.copy()
    assert files.contains("a")
    assert files.contains("b")
    assert ends(files, 99) == [(b"0123456789", 10)]
    assert counting.counts == asked == {"tail": 2, "contains": 2}
    assert not files.contains("missing")


def test_another_process_begins_anew(tmp_path):
    store = LocalStore(tmp_path)
    store.put("a", b"1")
    files = KeptFiles(store)
    files.tail("a", 1)
    other = pickle.loads(pickle.dumps(files))
    assert other == files
    assert other.tail("a", 1) == (b"1", 1)


def test_the_rest_of_a_file_is_not_kept():
    store = MemoryStore()  # has no `tail` of its own
    store.put("a", b"0123456789")
    end, size = KeptFiles(store).tail("a", 4)
    assert (len(memoryview(end).obj), size) == (4, 10)
