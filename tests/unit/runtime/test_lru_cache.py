"""The cache of what was used last, within a bound."""

from __future__ import annotations

import gc
import os
import threading
import weakref

import pytest

from kartothek_cube.core.runtime.executor import LruCache
from tests.support.forks import exit_code_in_fork


def filled(bound, **sizes):
    cache = LruCache(bound)
    for key, size in sizes.items():
        cache.put(key, key.upper(), size)
    return cache


def kept(cache, keys="abcdef"):
    """The keys that are in the cache; asking makes the last one the newest."""
    return "".join(key for key in keys if cache.get(key) is not None)


def test_a_value_is_found_by_its_key_until_all_are_dropped():
    cache = filled(3, a=1, b=2)
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == ("A", "B", None)
    cache.clear()
    assert kept(cache) == ""
    cache.put("c", "C", 3)
    assert kept(cache) == "c"


def test_a_value_without_a_size_counts_as_one():
    cache = LruCache(2)
    for key in "abc":
        cache.put(key, key)
    assert kept(cache) == "bc"


def test_what_was_put_or_asked_for_longest_ago_goes_first():
    cache = filled(3, a=1, b=1, c=1)
    assert cache.get("a") == "A"
    cache.put("b", "B", 1)
    cache.put("d", "D", 1)
    assert kept(cache) == "abd"
    cache.put("e", "E", 2)
    assert kept(cache) == "de"


@pytest.mark.parametrize(("size", "left"), [(5, "abcd"), (6, "bcd"), (7, "cd"), (8, "cd"), (9, "d"), (10, "d")])
def test_no_more_go_than_the_bound_asks_for(size, left):
    cache = filled(10, a=1, b=2, c=2)
    cache.put("d", "D", size)
    assert kept(cache) == left


def test_a_replaced_value_counts_once():
    cache = filled(4, a=2, b=1)
    for value in range(9):
        cache.put("a", value, 3)
    assert (cache.get("a"), cache.get("b")) == (8, "B")
    cache.put("a", "A", 1)
    cache.put("c", "C", 2)
    assert kept(cache) == "abc"


def test_a_value_larger_than_the_bound_is_not_kept_and_drops_no_other():
    cache = filled(3, a=1, b=1)
    cache.put("c", "C", 4)
    assert kept(cache) == "ab"
    cache.put("a", "new", 4)
    assert kept(cache) == "b"
    cache.put("d", "D", 2)
    assert kept(cache) == "bd"
    cache.put("e", "E", 3)
    assert kept(cache) == "e"


def test_threads_keep_the_bound():
    cache, errors = LruCache(50), []

    def work(seed):
        try:
            for i in range(3000):
                key = (i * seed) % 40
                value = cache.get(key)
                assert value in {None, key}
                cache.put(key, key, key % 9 + 1)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 3, 7, 11)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert 40 < sum(key % 9 + 1 for key in range(40) if cache.get(key) is not None) <= 50
    for key in range(100, 150):
        cache.put(key, key)
    assert all(cache.get(key) == key for key in range(100, 150))


def test_a_cache_that_nobody_holds_is_freed():
    cache = filled(3, a=1)
    gone = weakref.ref(cache)
    del cache
    gc.collect()
    assert gone() is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_child_has_what_its_parent_had():
    cache = filled(3, a=1, b=1)
    assert exit_code_in_fork(lambda: kept(cache) == "ab") == 0


class Slow:
    """A key whose comparison waits, so that a thread stands inside of the cache."""

    def __init__(self):
        self.inside, self.go_on = threading.Event(), threading.Event()

    def __hash__(self):
        return hash("a")

    def __eq__(self, other):
        self.inside.set()
        return self.go_on.wait(10) and False


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_child_does_not_wait_for_a_thread_that_it_lacks():
    cache, slow = filled(3, a=1), Slow()
    thread = threading.Thread(target=cache.get, args=(slow,))
    thread.start()
    assert slow.inside.wait(10)

    def check():
        # That thread may have changed half of the cache, which begins anew.
        is_empty = cache.get("a") is None
        cache.put("b", "B", 3)
        return is_empty and cache.get("b") == "B"

    code = exit_code_in_fork(check)
    slow.go_on.set()
    thread.join(10)
    assert code == 0
    assert cache.get("a") == "A"
