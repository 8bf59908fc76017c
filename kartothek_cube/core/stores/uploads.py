"""Puts to a far store that go on while other files are encoded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import copy_context
from threading import Condition
from typing import TypeVar

from kartothek_cube.core.runtime.executor import thread_count
from kartothek_cube.core.runtime.options import current_options
from kartothek_cube.core.stores.contract import (
    Data,
    InstrumentedStore,
    Listing,
    Objects,
    Store,
    StoreView,
    check_key,
)

R = TypeVar("R")

# The part of ``bytes_in_flight`` that encoded files may take beside the rows that become files.
_SHARE = 4


@contextmanager
def uploading(store: Store) -> Iterator[Store]:
    """A view of the store whose `put` returns at once where a put waits for a server.

    `Store.flush` waits for the puts, and raises their first error; so does the end of the block.
    Inside of such a block, and for a store that does not wait, this is the store itself.

    Examples
    --------
    >>> from kartothek_cube.core.stores.local import MemoryStore
    >>> with uploading(MemoryStore("sales")) as store:
    ...     store.put("sales/table/1.parquet", b"PAR1")
    ...     store.flush()  # whatever names the file comes after this
    """
    if isinstance(_uploads_of(store), UploadingStore) or not store.is_remote:
        yield store
        return
    view = UploadingStore(store)
    try:
        yield view
        view.flush()
    except Exception as error:
        if view.is_outdated():
            raise Outdated from error
        raise
    finally:
        view.close()


class Outdated(Exception):
    """What a block of `uploading` assumed is not so: everything in it has to be done again."""


def without_uploads(store: Store) -> Store:
    """The store whose `put` returns when the object is there, for what follows a commit."""
    view = _uploads_of(store)
    return InstrumentedStore(view.inner) if isinstance(view, UploadingStore) else store


def _uploads_of(store: Store) -> Store:
    """The `UploadingStore` of which this one is a view, or the innermost store."""
    while isinstance(store, StoreView) and not isinstance(store, UploadingStore):
        store = store.inner
    return store


class UploadingStore(InstrumentedStore):
    """Puts in threads, as many as wait for the store in reads; `flush` waits for them.

    What reads a key, or writes it again, waits for its put. Encoded files take at most a part of
    the option ``bytes_in_flight``; one is always on its way.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store.inner if isinstance(store, InstrumentedStore) else store)
        self._pool = ThreadPoolExecutor(thread_count(store), thread_name_prefix="kartothek_cube upload")
        self._budget = current_options().bytes_in_flight // _SHARE
        self._has_room, self._bytes, self._is_closed = Condition(), 0, False
        self._puts: dict[str, Future[None]] = {}
        self._assumed: list[Future[bool]] = []

    def put(self, key: str, data: Data) -> None:
        self._started(check_key(key), data)

    def put_many(self, objects: Objects) -> None:
        for key, data in objects:
            self.put(key, data)

    def around(self, operation: str, key: str, action: Callable[[], R]) -> R:
        if operation != "put":
            self._wait_for(key)
        return super().around(operation, key, action)

    def list(self, prefix: str = "", recursive: bool = False) -> Listing:
        self.flush()
        return super().list(prefix, recursive=recursive)

    def assume(self, holds: Callable[[], bool]) -> None:
        """Ask while files are sent; `flush` raises `Outdated` if it is not so."""
        self._assumed.append(self._pool.submit(copy_context().run, holds))

    def is_outdated(self) -> bool:
        """Whether the answer to an assumption is that it is not so; its error, if there is none."""
        return not all(each.result() for each in self._assumed)

    def flush(self, leaving: int = 0) -> None:
        if leaving:  # errors are raised by whoever needs all of it
            with self._has_room:
                self._has_room.wait_for(lambda: self._is_closed or self._bytes <= leaving)
            return
        for key in list(self._puts):
            self._wait_for(key)
        if self.is_outdated():
            raise Outdated

    def __reduce__(self) -> tuple[type[InstrumentedStore], tuple[Store]]:
        return InstrumentedStore, (self.inner,)

    def close(self) -> None:
        """Let no put begin any more, and wait for those that have begun.

        After an interrupt another thread may be about to commit for this one. So `flush` still
        raises what became of a put that did not succeed.
        """
        with self._has_room:
            self._is_closed = True
            self._has_room.notify_all()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _started(self, key: str, data: Data) -> None:
        if key in self._puts:  # its error does not count any more
            wait([self._puts[key]])
        size = memoryview(data).nbytes
        with self._has_room:
            self._has_room.wait_for(lambda: self._is_closed or not self._bytes or self._bytes + size <= self._budget)
            self._bytes += size
        if not self._puts:
            self._pool.submit(copy_context().run, self.inner.probe)
        self._puts[key] = self._pool.submit(copy_context().run, self._put, key, data, size)

    def _put(self, key: str, data: Data, size: int) -> None:
        try:
            super().put(key, data)
        finally:
            with self._has_room:
                self._bytes -= size
                self._has_room.notify_all()

    def _wait_for(self, key: str) -> None:
        put = self._puts.get(key)
        if put is not None:
            put.result()
            self._puts.pop(key, None)
