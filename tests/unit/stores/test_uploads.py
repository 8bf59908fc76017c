"""Puts go on in threads; whatever names the files, or reads them, comes after them."""

from __future__ import annotations

import pickle
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pytest

from kartothek_cube import options
from kartothek_cube.core.stores.contract import InstrumentedStore
from kartothek_cube.core.stores.local import LocalStore, MemoryStore
from kartothek_cube.core.stores.uploads import uploading
from kartothek_cube.errors import InvalidInput
from kartothek_cube.testing.stores import CountingStore, FaultyStore, InjectedFault
from tests.support.far import FarStore


class Waiting(CountingStore):
    """Puts wait until they may go on."""

    def __init__(self, inner):
        super().__init__(inner)
        self.may_go_on, self.begun = threading.Event(), threading.Semaphore(0)

    def around(self, operation, key, action):
        if operation == "put":
            self.begun.release()
            assert self.may_go_on.wait(60)
        return super().around(operation, key, action)


@pytest.fixture
def memory():
    return MemoryStore()


def test_a_store_that_waits_for_nobody_stays_as_it_is(memory):
    with uploading(memory) as opened:
        assert opened is memory


def test_many_files_are_sent_at_once_and_flush_waits_for_them(memory):
    store = Waiting(FarStore(memory))
    with uploading(store) as opened:
        opened.put_many([(f"a/{i}", b"1") for i in range(20)])
        for _ in range(20):
            assert store.begun.acquire(timeout=60)
        assert memory.keys() == []
        store.may_go_on.set()
        opened.flush()
        assert len(memory.keys()) == 20


def test_the_end_of_the_block_waits_too_and_an_inner_block_is_the_outer_one(memory):
    with uploading(FarStore(memory)) as outer:
        with uploading(outer) as inner:
            assert inner is outer
            inner.put("a", b"1")
        outer.put("b", b"2")
    assert memory.keys() == ["a", "b"]


@pytest.mark.parametrize(
    "read",
    [
        lambda store: store.get("a"),
        lambda store: store.tail("a", 4)[0],
        lambda store: store.ranges("a", [(0, 4)])[0],
        lambda store: store.contains("a") and b"PAR1",
        lambda store: store.list().keys == ["a"] and b"PAR1",
        lambda store: store.copy("a", "b") or b"PAR1",
        lambda store: store.delete("a") or b"PAR1",
    ],
)
def test_whoever_uses_a_key_waits_for_it(memory, read):
    store = Waiting(FarStore(memory))
    with uploading(store) as opened:
        opened.put("a", b"PAR1")
        threading.Timer(0, store.may_go_on.set).start()
        assert bytes(read(opened)) == b"PAR1"
    assert next(call.operation for call in store.calls) == "put"


def test_the_last_put_of_a_key_counts(memory):
    with uploading(FarStore(memory)) as opened:
        for i in range(50):
            opened.put("a", str(i).encode())
    assert memory.get("a") == b"49"


def test_flush_and_the_end_of_the_block_raise_the_error_of_a_put(memory):
    store = FaultyStore(FarStore(memory), lambda call: "before" if call.key == "a" else None)
    with uploading(store) as opened:
        opened.put_many([("b", b"1"), ("a", b"1")])
        with pytest.raises(InjectedFault):
            opened.flush()
        opened.put("a/b", b"1")
        opened.delete("b")
        with pytest.raises(InjectedFault):
            opened.get("a")
        opened.put("c", b"1")
        store._fail = lambda call: None
        opened.put("a", b"2")
    with pytest.raises(InjectedFault), uploading(FaultyStore(FarStore(memory), lambda call: "before")) as opened:
        opened.put("d", b"1")
    assert memory.keys() == ["a", "a/b", "c"]


def test_a_put_that_failed_can_be_repeated(memory):
    store = FaultyStore(FarStore(memory), lambda call: "before" if call.nth == 1 and call.operation == "put" else None)
    with uploading(store) as opened:
        opened.put("a", b"1")
        with pytest.raises(InjectedFault):
            opened.flush()
        opened.put("a", b"2")
    assert memory.get("a") == b"2"


def test_files_on_their_way_take_bounded_memory(memory):
    class Bounded(CountingStore):
        most = now = 0

        def around(self, operation, key, action):
            with self._lock:
                self.now += 1
                self.most = max(self.most, self.now)
            try:
                return super().around(operation, key, action)
            finally:
                with self._lock:
                    self.now -= 1

    store = Bounded(FarStore(memory))
    with options(bytes_in_flight=4_000), uploading(store) as opened:
        opened.put_many([(f"a/{i}", bytes(400)) for i in range(30)])
        opened.put("large", bytes(10_000))
    assert store.most <= 2
    assert len(memory.keys()) == 31


def test_a_key_that_no_store_can_hold_is_refused_at_once(memory):
    with uploading(FarStore(memory)) as opened, pytest.raises(InvalidInput, match="//"):
        opened.put("a//b", b"1")


def test_a_pickle_is_one_of_the_store_itself(tmp_path):
    with uploading(FarStore(LocalStore(tmp_path))) as opened:
        copy = pickle.loads(pickle.dumps(opened))
    assert type(copy) is InstrumentedStore
    assert copy == LocalStore(tmp_path)


@contextmanager
def interrupted(store):
    """A view whose block ends by Ctrl-C while the put of `a` goes on and that of `b` waits."""

    with suppress(KeyboardInterrupt), options(threads=1, bytes_in_flight=4_000), uploading(store) as opened:
        opened.put_many([("a", bytes(600)), ("b", bytes(400))])
        assert store.begun.acquire(timeout=60)
        opened._puts["b"].add_done_callback(lambda _: store.may_go_on.set())
        yield opened
        raise KeyboardInterrupt


def test_after_an_interrupt_flush_tells_what_was_not_put(memory):
    """Another thread, which commits for this one, may not take the files for stored."""
    with interrupted(Waiting(FarStore(memory))) as opened:
        pass
    assert memory.keys() == ["a"]
    with pytest.raises(CancelledError):
        opened.flush()


def test_whoever_waits_for_room_does_not_wait_for_puts_that_never_begin(memory):
    with ThreadPoolExecutor(2) as pool:
        with interrupted(Waiting(FarStore(memory))) as opened:
            late = [pool.submit(opened.put, f"c/{i}", bytes(1_000)) for i in range(2)]
        for each in late:
            with pytest.raises(RuntimeError):
                each.result(60)
    assert memory.keys() == ["a"]


def test_little_may_be_left_on_its_way(memory):
    class First(CountingStore):
        """Only the small file waits."""

        may_go_on = threading.Event()

        def around(self, operation, key, action):
            assert key != "small" or self.may_go_on.wait(60)
            return super().around(operation, key, action)

    store = First(FarStore(memory))
    with uploading(store) as opened:
        opened.put_many([("small", bytes(10)), ("large", bytes(1_000))])
        opened.flush(leaving=100)
        assert memory.keys() == ["large"]
        store.may_go_on.set()
        opened.flush()
        assert memory.keys() == ["large", "small"]
