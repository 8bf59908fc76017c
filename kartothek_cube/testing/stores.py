"""Stores that count calls or fail on purpose, and the conformance suite `StoreTests`.

In order:

- the contract as a suite
- the stores
"""

from __future__ import annotations

import pickle
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeAlias, TypeVar
from unittest.mock import patch

import pytest

from kartothek_cube.core.runtime.options import Overrides, options
from kartothek_cube.core.stores.contract import ReadOnlyView, Store, StoreView, VersionMismatch
from kartothek_cube.errors import AtomicityRequired, InvalidInput, InvalidType, KeyNotFound, ReadOnlyStore

__all__ = [
    "Call",
    "CountingStore",
    "Fault",
    "FaultyStore",
    "InjectedFault",
    "RoundsStore",
    "SimulatedCrash",
    "StoreTests",
    "increment",
    "invalid_keys",
    "valid_keys",
]


DOCUMENT = "uuid.by-dataset-metadata.json"
FILE = "uuid/table/COUNTRY_CODE=DE/PRODUCT_ID=a%3Ab/x y.parquet"

valid_keys = (
    "a",
    "a/b c",
    "uuid++seed/table/p=%C3%A4/q=~-_./1.parquet",
    "`!\"#$%&'()+,-.<=>?@[]^_{}~0",
    "...",
    "a/" + "x" * 255,
    "~/a",
    " ",
)
invalid_keys = (
    "",
    "/a",
    "a/",
    "a//b",
    ".",
    "a/./b",
    "../a",
    "a/..",
    "a\n",
    "a\0",
    "ä",
    "a:b",
    "a\\b",
    "a*",
    "a;b",
    "a|b",
    "x" * 256,
    "a~",
)


def increment(store: Store, key: str, times: int) -> None:
    """Increment a stored number by compare-and-swap.

    Examples
    --------
    >>> from kartothek_cube import open_store
    >>> store = open_store("hmemory://")
    >>> store.put("counter", b"0")
    >>> increment(store, "counter", 1)
    >>> bytes(store.get("counter"))
    b'1'
    """
    for _ in range(times):
        while True:
            data, version = store.get_versioned(key)
            try:
                store.put_if(key, str(int(data) + 1).encode(), version)
                break
            except VersionMismatch:
                continue


class StoreTests:
    """The contract of a store.

    Subclass it and provide the fixture ``store``: an empty, writable store, new for every test.
    Override ``reopen`` to open the same objects a second time. Tests of promises that the store's
    capabilities do not make pass without effect.

    Examples
    --------
    >>> import pytest
    >>> from kartothek_cube import open_store
    >>> class TestMyStore(StoreTests):
    ...     @pytest.fixture
    ...     def store(self):
    ...         return open_store("hmemory://")
    """

    threads = 8
    increments = 25

    @pytest.fixture
    def store(self) -> Store:
        """Return an empty store."""
        raise NotImplementedError("a subclass of StoreTests provides the fixture `store`")

    def reopen(self, store: Store) -> Store:
        """Open the same objects again; by default return the same store."""
        return store

    def test_object_is_read_as_it_was_written(self, store: Store) -> None:
        for data in (b"", b"PAR1", bytearray(b"PAR1"), memoryview(b"xPAR1")[1:]):
            store.put(FILE, data)
            assert store.get(FILE) == bytes(data)
            assert isinstance(store.get(FILE), bytes)

    def test_put_replaces(self, store: Store) -> None:
        store.put(FILE, b"a longer old object")
        store.put(FILE, b"new")
        assert self.reopen(store).get(FILE) == b"new"

    def test_put_many(self, store: Store) -> None:
        store.put(FILE, b"old")
        objects = [(FILE, b"0"), *((f"uuid/table/p={i}/1", str(i).encode()) for i in range(1, 50)), ("top", b"50")]
        store.put_many(objects)
        store.put_many([])
        store.put_many([("top", b"x"), ("top", memoryview(b"51"))])
        expected = {**dict(objects), "top": b"51"}
        found = self.reopen(store)
        assert {key: found.get(key) for key in found.keys()} == expected  # noqa: SIM118 - a method of simplekv

    @pytest.mark.parametrize("operation", ["get", "get_versioned", "tail", "ranges", "copy"])
    def test_missing_key_is_named(self, store: Store, operation: str) -> None:
        arguments: dict[str, tuple[object, ...]] = {"tail": (4,), "ranges": ([(0, 1)],), "copy": ("target",)}
        with pytest.raises(KeyNotFound) as error:
            getattr(store, operation)("uuid/missing", *arguments.get(operation, ()))
        assert "uuid/missing" in str(error.value)
        assert store.name in str(error.value)

    def test_folder_is_no_object(self, store: Store) -> None:
        store.put("a/b/c", b"1")
        with pytest.raises(KeyNotFound):
            store.get("a/b")
        with pytest.raises(KeyNotFound):
            store.get("a/b/c/d")
        assert not store.contains("a/b")
        store.delete("a/b")
        assert store.get("a/b/c") == b"1"

    def test_contains(self, store: Store) -> None:
        assert not store.contains(FILE)
        store.put(FILE, b"")
        assert store.contains(FILE)

    def test_methods_of_simplekv(self, store: Store) -> None:
        """Code for kartothek calls stores by the method names of simplekv."""
        for key in ("b/f", "a/t/g", "a.json"):
            store.put(key, b"PAR1" + key.encode())
        assert (store.keys(), store.keys("a"), store.keys("c")) == (["a.json", "a/t/g", "b/f"], ["a.json", "a/t/g"], [])
        assert list(store.iter_keys("a/")) == ["a/t/g"]
        assert "b/f" in store
        assert "b" not in store
        with store.open("b/f") as file:
            file.seek(4)
            assert (file.read(), file.seekable()) == (b"b/f", True)
        with pytest.raises(KeyNotFound, match="uuid/missing"):
            store.open("uuid/missing")

    def test_delete_can_be_repeated(self, store: Store) -> None:
        store.put(FILE, b"1")
        store.delete(FILE)
        store.delete(FILE)
        assert not self.reopen(store).contains(FILE)
        assert store.list(recursive=True).keys == []

    def test_delete_many(self, store: Store) -> None:
        keys = [f"uuid/table/p={i}/1.parquet" for i in range(50)]
        store.put_many([(key, b"1") for key in (*keys, FILE, "top")])
        store.delete_many([*keys, "top", "uuid/missing", "top"])
        store.delete_many(keys[:1])
        store.delete_many(["uuid/table", "uuid/missing"])
        store.delete_many([])
        assert self.reopen(store).list(recursive=True).keys == [FILE]

    def test_key_can_be_used_again(self, store: Store) -> None:
        store.put(FILE, b"1")
        store.delete(FILE)
        store.put(FILE, b"2")
        assert store.get(FILE) == b"2"

    def test_tail(self, store: Store) -> None:
        store.put(FILE, b"0123456789")
        assert [(bytes(data), size) for data, size in (store.tail(FILE, n) for n in (0, 4, 10, 99))] == [
            (b"", 10),
            (b"6789", 10),
            (b"0123456789", 10),
            (b"0123456789", 10),
        ]

    def test_ranges_come_in_the_order_asked_for(self, store: Store) -> None:
        store.put(FILE, b"0123456789")
        assert [bytes(data) for data in store.ranges(FILE, [(8, 10), (0, 3), (4, 4), (2, 5)])] == [
            b"89",
            b"012",
            b"",
            b"234",
        ]
        assert store.ranges(FILE, []) == []

    def test_put_file_takes_a_path_or_a_stream(self, store: Store, tmp_path: Path) -> None:
        path = tmp_path / "source"
        path.write_bytes(b"PAR1" * 1000)
        for source in (path, str(path), BytesIO(b"PAR1" * 1000)):
            store.put_file(FILE, source)
            assert store.get(FILE) == b"PAR1" * 1000
            store.delete(FILE)
        assert path.exists()

    def test_copy(self, store: Store) -> None:
        store.put(FILE, b"1")
        store.copy(FILE, "other/table/1")
        assert (store.get(FILE), store.get("other/table/1")) == (b"1", b"1")

    def test_list_cuts_at_the_next_slash(self, store: Store) -> None:
        for key in ("a.json", "ab.json", "a/t/p=1/f", "a/t/g", "b/f"):
            store.put(key, b"12")
        assert (store.list().keys, store.list().prefixes) == (["a.json", "ab.json"], ["a/", "b/"])
        assert (store.list("a").keys, store.list("a").prefixes) == (["a.json", "ab.json"], ["a/"])
        assert (store.list("a/t").keys, store.list("a/t").prefixes) == ([], ["a/t/"])
        assert (store.list("a/t/").keys, store.list("a/t/").prefixes) == (["a/t/g"], ["a/t/p=1/"])
        assert (store.list("c").keys, store.list("c/d/").prefixes) == ([], [])

    def test_recursive_list(self, store: Store) -> None:
        for key in ("a.json", "a/t/p=1/f", "a/t/g", "b/f"):
            store.put(key, b"12")
        assert (store.list("a", recursive=True).keys, store.list("a", recursive=True).prefixes) == (
            ["a.json", "a/t/g", "a/t/p=1/f"],
            [],
        )
        assert store.list("a/t/p", recursive=True).keys == ["a/t/p=1/f"]
        assert store.list("f", recursive=True).keys == []

    def test_list_says_size_and_time_where_it_knows_them(self, store: Store) -> None:
        store.put("a/f", b"123")
        (entry,) = store.list("a/").entries
        assert entry.size in (3, None)
        if store.capabilities.modification_times:
            assert entry.modified is not None
            assert abs(entry.modified - datetime.now(UTC)) < timedelta(minutes=5)

    @pytest.mark.parametrize("prefix", ["/", "../", "a/../b", "a//b", "./a"])
    def test_prefix_cannot_lead_out_of_the_store(self, store: Store, prefix: str) -> None:
        with pytest.raises(InvalidInput):
            store.list(prefix)

    @pytest.mark.parametrize("key", valid_keys)
    def test_every_valid_key_is_taken_verbatim(self, store: Store, key: str) -> None:
        store.put(key, b"1")
        assert store.get(key) == b"1"
        assert self.reopen(store).list(recursive=True).keys == [key]

    @pytest.mark.parametrize("key", invalid_keys)
    @pytest.mark.parametrize("operation", ["get", "get_versioned", "contains", "delete", "local_path"])
    def test_invalid_key_is_refused(self, store: Store, operation: str, key: str) -> None:
        with pytest.raises(InvalidInput) as error:
            getattr(store, operation)(key)
        assert repr(key) in str(error.value)

    @pytest.mark.parametrize("key", invalid_keys)
    def test_invalid_key_is_not_written(self, store: Store, key: str) -> None:
        writes: list[Callable[[], object]] = [
            lambda: store.put(key, b"1"),
            lambda: store.put_if(key, b"1", None),
            lambda: store.put_file(key, BytesIO(b"1")),
            lambda: store.put_many([(key, b"1")]),
            lambda: store.delete_many(["a", key]),
        ]
        for write in writes:
            with pytest.raises(InvalidInput):
                write()
        assert store.list(recursive=True).keys == []

    def test_put_if_creates_once(self, store: Store) -> None:
        with self.committing(store):
            store.put_if(DOCUMENT, b"1", None)
            with pytest.raises(VersionMismatch, match="exists"):
                store.put_if(DOCUMENT, b"2", None)
        assert store.get(DOCUMENT) == b"1"

    def test_put_if_replaces_the_version_that_was_read(self, store: Store) -> None:
        with self.committing(store):
            store.put(DOCUMENT, b"1")
            data, version = store.get_versioned(DOCUMENT)
            assert data == b"1"
            store.put_if(DOCUMENT, b"2", version)
            with pytest.raises(VersionMismatch, match="changed"):
                self.reopen(store).put_if(DOCUMENT, b"3", version)
        assert store.get(DOCUMENT) == b"2"

    def test_put_if_returns_the_next_version(self, store: Store) -> None:
        with self.committing(store):
            first = store.put_if(DOCUMENT, b"1", None)
            second = store.put_if(DOCUMENT, b"2", first)
            assert first != second == store.get_versioned(DOCUMENT)[1]
            store.put_if(DOCUMENT, b"3", second)

    def test_put_if_does_not_bring_back_what_was_deleted(self, store: Store) -> None:
        with self.committing(store):
            version = store.put_if(DOCUMENT, b"1", None)
            store.delete(DOCUMENT)
            with pytest.raises(VersionMismatch):
                store.put_if(DOCUMENT, b"2", version)
        assert not store.contains(DOCUMENT)

    def test_version_travels(self, store: Store) -> None:
        with self.committing(store):
            version = pickle.loads(pickle.dumps(store.put_if(DOCUMENT, b"1", None)))
            assert hash(version) == hash(store.get_versioned(DOCUMENT)[1])
            store.put_if(DOCUMENT, b"2", version)

    def test_changed(self, store: Store) -> None:
        store.put(DOCUMENT, b"1")
        _, version = store.get_versioned(DOCUMENT)
        assert not store.changed(DOCUMENT, version)
        assert not self.reopen(store).changed(DOCUMENT, version)
        store.put(DOCUMENT, b"2")
        assert store.changed(DOCUMENT, version)
        store.delete(DOCUMENT)
        assert store.changed(DOCUMENT, version)

    def test_concurrent_increments_lose_nothing(self, store: Store) -> None:
        if not store.capabilities.conditional_put:
            return
        store.put(DOCUMENT, b"0")
        with ThreadPoolExecutor(self.threads) as pool:
            for done in [
                pool.submit(increment, self.reopen(store), DOCUMENT, self.increments) for _ in range(self.threads)
            ]:
                done.result()
        assert store.get(DOCUMENT) == str(self.threads * self.increments).encode()

    def test_one_of_many_creators_wins(self, store: Store) -> None:
        if not store.capabilities.conditional_put:
            return

        def create(number: int) -> int:
            try:
                self.reopen(store).put_if(DOCUMENT, str(number).encode(), None)
            except VersionMismatch:
                return -1
            return number

        with ThreadPoolExecutor(self.threads) as pool:
            winners = [number for number in pool.map(create, range(self.threads)) if number >= 0]
        assert [str(number).encode() for number in winners] == [store.get(DOCUMENT)]

    def test_reader_sees_the_old_or_the_new_object(self, store: Store) -> None:
        if not store.capabilities.atomic_put:
            return
        contents = {bytes([65 + i]) * (100_000 * (1 + i % 3)) for i in range(6)}
        store.put(FILE, min(contents))
        done = threading.Event()

        def write() -> None:
            for data in sorted(contents) * 5:
                store.put(FILE, data)
            done.set()

        with ThreadPoolExecutor(1) as pool:
            writer = pool.submit(write)
            while not done.is_set() and not writer.done():
                assert self.reopen(store).get(FILE) in contents
            writer.result()

    def test_store_without_conditional_put_refuses_commits(self, store: Store) -> None:
        if not store.capabilities.conditional_put:
            with pytest.raises(AtomicityRequired, match="require_atomic"):
                store.put_if(DOCUMENT, b"1", None)

    def test_read_only_view_refuses_every_write(self, store: Store) -> None:
        store.put(FILE, b"1")
        view = ReadOnlyView(store)
        writes: list[Callable[[], object]] = [
            lambda: view.put(FILE, b"2"),
            lambda: view.put_if(FILE, b"2", view.get_versioned(FILE)[1]),
            lambda: view.put_file(FILE, BytesIO(b"2")),
            lambda: view.copy(FILE, "a"),
            lambda: view.delete(FILE),
            lambda: view.delete_many([FILE, DOCUMENT]),
        ]
        for write in writes:
            with pytest.raises(ReadOnlyStore):
                write()
        assert view.get(FILE) == b"1"
        assert not view.capabilities.writable

    def test_store_equals_its_other_access(self, store: Store) -> None:
        assert store == self.reopen(store)
        assert hash(store) == hash(self.reopen(store))
        assert store != object()

    def test_pickle_shows_the_same_objects_or_is_refused(self, store: Store) -> None:
        store.put(FILE, b"1")
        if store.capabilities.shared:
            travelled = pickle.loads(pickle.dumps(store))
            assert travelled.get(FILE) == b"1"
        else:
            with pytest.raises(InvalidType, match="hmemory://name"):
                pickle.dumps(store)

    def test_no_leftovers(self, store: Store) -> None:
        store.put(FILE, b"1")
        assert store.leftovers("", datetime.now(UTC) + timedelta(days=1)) == []

    @staticmethod
    def committing(store: Store) -> Overrides:
        """Return the options under which `put_if` works as the capabilities promise."""
        return options(require_atomic=store.capabilities.conditional_put)


# --- the stores -----------------------------------------------------------------------------------


R = TypeVar("R")


class InjectedFault(ConnectionError):
    """The failure that a `FaultyStore` raises.

    Examples
    --------
    >>> issubclass(InjectedFault, ConnectionError)
    True
    """


class SimulatedCrash(BaseException):
    """The simulated death of the process: no ``except Exception`` catches it.

    Every later call of the store raises it again.

    Examples
    --------
    >>> issubclass(SimulatedCrash, Exception)
    False
    """


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a store: the method, the key or prefix, and its number among calls of the method.

    Examples
    --------
    >>> from kartothek_cube import open_store
    >>> store = CountingStore(open_store("hmemory://"))
    >>> _ = store.contains("sales/1.parquet")
    >>> store.calls
    [Call(operation='contains', key='sales/1.parquet', nth=1)]
    """

    operation: str
    key: str
    nth: int


class CountingStore(StoreView):
    """Forwards every call to another store and records it.

    Examples
    --------
    >>> from kartothek_cube import open_store
    >>> store = CountingStore(open_store("hmemory://"))
    >>> store.contains("uuid/table/COUNTRY_CODE=DE/1.parquet")
    False
    >>> dict(store.counts)
    {'contains': 1}
    """

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.calls: list[Call] = []
        self._lock = threading.Lock()

    def around(self, operation: str, key: str, action: Callable[[], R]) -> R:
        """Record the call and forward it."""
        self._record(operation, key)
        return action()

    def _record(self, operation: str, key: str) -> Call:
        # The library calls stores from several threads, and no two calls may have one number.
        with self._lock:
            call = Call(operation, key, self.counts[operation] + 1)
            self.calls.append(call)
            return call

    @property
    def counts(self) -> Counter[str]:
        """The number of calls by method."""
        return Counter(call.operation for call in self.calls)

    def touched(self, *operations: str) -> list[str]:
        """Return the keys of these methods, by default of all calls, in order."""
        return [call.key for call in self.calls if not operations or call.operation in operations]

    def reset(self) -> None:
        """Forget the calls."""
        with self._lock:
            self.calls.clear()


class RoundsStore(CountingStore):
    """Counts rounds, too: the longest chain of calls of which each waited for the one before.

    A far store makes a verb wait for its rounds, whatever number of calls a round has. The store
    says that it is remote. Calls follow each other in a thread; a task of a pool follows what was
    done before it was submitted, and whoever takes its result follows the task. Limits of threads
    are not seen.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> from kartothek_cube import open_store
    >>> store = RoundsStore(open_store("hmemory://"))
    >>> with store.rounds_counted(), ThreadPoolExecutor() as pool:
    ...     _ = store.list("")
    ...     _ = list(pool.map(store.contains, ["sales/1.parquet", "sales/2.parquet"]))
    >>> store.rounds
    2
    """

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.chain: list[tuple[int, Call]] = []
        self.rounds = 0

    @property
    def is_remote(self) -> bool:
        return True

    def around(self, operation: str, key: str, action: Callable[[], R]) -> R:
        """Record the call and its round, and forward it."""
        call = self._record(operation, key)
        if operation == "local_path":  # answered without the server
            return action()
        _followed.rounds += 1
        with self._lock:
            self.chain.append((_followed.rounds, call))
            self.rounds = max(self.rounds, _followed.rounds)
        return action()

    def delete_many(self, keys: Sequence[str]) -> None:
        """Delete several objects in one round, as an object store does by one request."""
        before = _followed.rounds
        for key in keys:
            _followed.rounds = before
            self.delete(key)

    @contextmanager
    def rounds_counted(self) -> Iterator[None]:
        """Count the rounds of what the block calls, from 1."""
        self.reset()
        self.chain.clear()
        self.rounds, _followed.rounds = 0, 0
        submit, take = ThreadPoolExecutor.submit, Future.result
        answers = {name: getattr(Future, name) for name in ("set_result", "set_exception")}

        def submit_after(pool: ThreadPoolExecutor, func: Callable[..., R], /, *args: Any, **more: Any) -> Future[R]:
            before = _followed.rounds

            def run() -> R:
                _followed.rounds = before
                return func(*args, **more)

            return submit(pool, run)

        def take_after(future: Future[R], timeout: float | None = None) -> R:
            try:
                return take(future, timeout)
            finally:
                _followed.rounds = max(_followed.rounds, vars(future).get("rounds", 0))

        def answer(name: str) -> Callable[..., None]:
            def set_after(future: Future[Any], value: object) -> None:
                vars(future)["rounds"] = _followed.rounds
                answers[name](future, value)

            return set_after

        with ExitStack() as patches:
            for owner, name, made in [
                (ThreadPoolExecutor, "submit", submit_after),
                (Future, "result", take_after),
                *((Future, name, answer(name)) for name in answers),
            ]:
                patches.enter_context(patch.object(owner, name, made))
            yield


class _Followed(threading.local):
    """The round of the last call that the present one follows."""

    rounds = 0


_followed = _Followed()

Fault: TypeAlias = Literal["before", "after", "crash", "crash_after"] | None


class FaultyStore(CountingStore):
    """Forwards calls to another store, and fails on demand.

    Parameters
    ----------
    inner : Store
        The other store.
    fail : Callable[[Call], Fault]
        Returns the fault of each call. ``"before"``: the call fails without effect. ``"after"``:
        the call takes effect, but its answer is lost. ``"crash"``, ``"crash_after"``: the process
        dies before or after the effect; from then on every call raises `SimulatedCrash`. None: the
        call works.

    Examples
    --------
    >>> from kartothek_cube import open_store
    >>> memory = open_store("hmemory://")
    >>> store = FaultyStore(memory, lambda call: "after" if call.operation == "put" else None)
    >>> store.put("sales/1.parquet", b"PAR1")
    Traceback (most recent call last):
    kartothek_cube.testing.stores.InjectedFault: put of 'sales/1.parquet' (call 1) failed after ...
    >>> memory.contains("sales/1.parquet")
    True
    """

    def __init__(self, inner: Store, fail: Callable[[Call], Fault]) -> None:
        super().__init__(inner)
        self.crashed = False
        self._fail = fail

    def around(self, operation: str, key: str, action: Callable[[], R]) -> R:
        """Forward the call, fail, or both."""
        call = self._record(operation, key)
        fault = "crash" if self.crashed else self._fail(call)
        if fault in ("before", "crash"):
            self._raise(fault, call, "before it was done")
        if fault is None:
            return action()
        with suppress(Exception):  # the answer is lost, also an error
            action()
        return self._raise(fault, call, "after it was done")

    def _raise(self, fault: Fault, call: Call, when: str) -> NoReturn:
        text = f"{call.operation} of {call.key!r} (call {call.nth}) failed {when}"
        if fault in ("before", "after"):
            raise InjectedFault(text)
        self.crashed = True
        raise SimulatedCrash(text)
