"""The longest chain of calls that wait for each other, however threads happen to run."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.stores.local import MemoryStore
from kartothek_cube.errors import KeyNotFound
from kartothek_cube.testing.stores import RoundsStore


@pytest.fixture
def store():
    return RoundsStore(MemoryStore())


def test_calls_of_a_thread_follow_each_other(store):
    with store.rounds_counted():
        store.put("a", b"1")
        store.get("a")
        store.local_path("a")
    assert (store.rounds, [(n, call.operation) for n, call in store.chain]) == (2, [(1, "put"), (2, "get")])


def test_tasks_follow_what_came_before_them_and_not_each_other(store):
    with store.rounds_counted():
        store.list()
        assert list(map_in_threads(store.contains, "abcdefgh", store=store)) == [False] * 8
        store.list()
    assert [n for n, _ in store.chain] == [1, *[2] * 8, 3]


def test_a_task_of_several_calls_is_as_long_as_they_are(store):
    def twice(key):
        return store.contains(key) or store.contains(key)

    with store.rounds_counted():
        list(map_in_threads(twice, "ab", store=store))
        store.list()
    assert store.rounds == 3


def test_an_error_is_followed_like_a_result(store):
    with store.rounds_counted():
        with ThreadPoolExecutor() as pool:
            task = pool.submit(store.get, "a")
            with pytest.raises(KeyNotFound):
                task.result()
        store.list()
    assert store.rounds == 2


def test_whoever_takes_an_outcome_follows_the_thread_that_set_it(store):
    outcome = Future()

    def leader():
        store.list()
        store.list()
        outcome.set_result(None)

    with store.rounds_counted(), ThreadPoolExecutor() as pool:
        pool.submit(leader)
        outcome.result()
        store.list()
    assert store.rounds == 3


def test_each_block_counts_from_one(store):
    for _ in range(2):
        with store.rounds_counted():
            store.list()
        assert (store.rounds, len(store.chain), store.counts) == (1, 1, {"list": 1})
