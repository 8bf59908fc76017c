"""Map a function over items, in threads or by an executor: ordered results, bounded memory.

In order:

- mapping
- a cache of what was used last
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence, Sized
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from contextvars import ContextVar, copy_context
from itertools import islice
from threading import Lock
from typing import Any, Generic, Protocol, TypeVar, overload
from weakref import WeakSet

from msgspec import Struct

from kartothek_cube.core.runtime.options import Phase, current_options, with_progress
from kartothek_cube.core.runtime.telemetry import is_collecting, progress_reporter, watch_collections
from kartothek_cube.typing import Executor

T = TypeVar("T")
R = TypeVar("R")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")

# Items that may start before the size of the first one is known.
_FIRST_ITEMS = 8
# Requests in flight to a remote store. They wait for a server, not for a core.
_REMOTE_THREADS = 32
# Keys that S3 deletes by one request.
_DELETED_AT_ONCE = 1000

# The threads that a task may use for nested tasks; unset outside of any task. A context variable,
# since the functions between two nested runs know nothing of threads. The option ``threads`` cannot
# carry it: tasks divide ``bytes_in_flight`` by the number of all threads.
_SHARE: ContextVar[int | None] = ContextVar("kartothek_cube_thread_share", default=None)

READ_FILES, DELETE_FILES = Phase("read", "files"), Phase("delete", "files")


class MaybeRemote(Protocol):
    """The one property of a store that matters here."""

    @property
    def is_remote(self) -> bool:
        """Whether an operation waits for a server."""


class Deleting(MaybeRemote, Protocol):
    """A store from which files are deleted."""

    def delete(self, key: str) -> None:
        """Delete one."""

    def delete_many(self, keys: Sequence[str]) -> None:
        """Delete several."""


class Task(Struct, frozen=True):
    """A function that an executor calls with each item.

    Attributes
    ----------
    func : Callable
        Called with one item. The function, the items and the results can be pickled.
    heavy : bool
        Whether one item takes seconds, so that a few items justify another process. Otherwise an
        item is about one store call.
    weight : Callable | None
        As in `map_in_threads`; can be pickled, too.
    phase : Phase
        How progress is reported.
    """

    func: Callable[[Any], Any]
    heavy: bool = False
    weight: Callable[[Any], int] | None = None
    phase: Phase = READ_FILES


class ThreadExecutor:
    """Runs tasks in threads of this process."""

    def map(self, task: Task, items: Sequence[Any], store: MaybeRemote | None = None) -> Generator[Any, None, None]:
        """As in `Executor`."""
        return map_in_threads(task.func, items, store=store, weight=task.weight, phase=task.phase)


THREADS = ThreadExecutor()


def map_files(
    func: Callable[[T], R],
    items: Sequence[T],
    *,
    executor: Executor = THREADS,
    heavy: bool = False,
    store: MaybeRemote | None = None,
    weight: Callable[[T], int] | None = None,
    phase: Phase = READ_FILES,
) -> Generator[R, None, None]:
    """Call a function on every item by an executor; results and errors as in `map_in_threads`.

    Parameters
    ----------
    func : Callable
        A function at module level, a method of a store, or a `functools.partial` of these over
        small values that can be pickled; so can its results. It may be called twice for one item,
        even if the first call succeeded.
    items : Sequence
        Small values that can be pickled.
    executor : Executor
        By default threads.
    heavy, weight, phase
        As in `Task`.
    store
        As in `map_in_threads`.

    Examples
    --------
    >>> list(map_files(str.lower, ["COUNTRY_CODE", "SALES_DATE"]))
    ['country_code', 'sales_date']
    """
    return executor.map(Task(func, heavy, weight, phase), items, store)


def delete_files(store: Deleting, keys: Sequence[str], executor: Executor = THREADS) -> None:
    """Delete files: in threads many by one call of the store, by another executor one by one."""
    if executor is not THREADS:
        list(map_files(store.delete, keys, executor=executor, store=store, phase=DELETE_FILES))
        return
    batches = [keys[start : start + _DELETED_AT_ONCE] for start in range(0, len(keys), _DELETED_AT_ONCE)]

    def delete(batch: Sequence[str]) -> Sequence[str]:
        store.delete_many(batch)
        return batch

    results = _flatten(_results(delete, batches, len(batches), store, None))
    for _ in _reported(results, DELETE_FILES, len(keys)):
        pass


@overload
def at_once(store: MaybeRemote, first: Callable[[], A], second: Callable[[], B], /) -> tuple[A, B]: ...


@overload
def at_once(
    store: MaybeRemote, first: Callable[[], A], second: Callable[[], B], third: Callable[[], C], /
) -> tuple[A, B, C]: ...


@overload
def at_once(store: MaybeRemote, /, *calls: Callable[[], R]) -> tuple[R, ...]: ...


def at_once(store: MaybeRemote, /, *calls: Callable[[], Any]) -> tuple[Any, ...]:
    """The results of a few calls that do not depend on each other.

    They wait for a remote store side by side; for a local one, threads would cost more. Each may
    use as many threads as the caller. The first call is made in the calling thread, and of a remote
    store it alone reports progress. If it fails, its error is raised, else the first of the others.

    Examples
    --------
    >>> from kartothek_cube import open_store
    >>> at_once(open_store("hmemory://"), lambda: "seed", lambda: 2)
    ('seed', 2)
    """
    available = _available_threads(store)
    if not store.is_remote or len(calls) < 2 or available == 1:
        return tuple([call() for call in calls])
    first, *others = calls
    context = copy_context()
    context.run(_SHARE.set, available)  # which also keeps progress to this thread
    pool = ThreadPoolExecutor(min(len(others), available - 1), thread_name_prefix="kartothek_cube")
    try:
        waiting = [pool.submit(context.copy().run, call) for call in others]
        return (first(), *(future.result() for future in waiting))
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


class SizeEstimate:
    """A ``weight`` for items of unknown size: the size of the largest item so far."""

    def __init__(self) -> None:
        self._guess = max(1, current_options().bytes_in_flight // _FIRST_ITEMS)
        self._largest = 0

    def __call__(self, item: object) -> int:
        return self._largest or self._guess

    def measured(self, nbytes: int) -> None:
        """Record the size of an item."""
        self._largest = max(self._largest, nbytes)


def map_in_threads(
    func: Callable[[T], R],
    items: Iterable[T],
    *,
    store: MaybeRemote | None = None,
    weight: Callable[[T], int] | None = None,
    phase: Phase | None = None,
) -> Generator[R, None, None]:
    """Call a function on every item in threads; iterate over the results in the order of the items.

    Work starts when the first result is requested, and items are taken only as far ahead as the
    bounds allow. The first error of any item cancels the rest and is raised; closing the iterator
    or Ctrl-C cancels, too. All threads have ended when the iterator has. The number of threads is
    the option ``threads``; nested calls share them.

    Parameters
    ----------
    func : Callable
        Called with one item; sees the caller's context variables, hence its options.
    items : Iterable
        May be lazy; it is advanced in the calling thread only.
    store : MaybeRemote | None
        The store that the work waits for. For a remote one the default is 32 threads.
    weight : Callable | None
        Bytes that an item needs from its start until its result is released. The sum stays within
        the option ``bytes_in_flight``, but one item always runs.
    phase : Phase | None
        How progress is reported, in the calling thread. A nested run reports nothing.

    Examples
    --------
    >>> list(map_in_threads(str.lower, ["COUNTRY_CODE", "SALES_DATE"]))
    ['country_code', 'sales_date']
    """
    total = len(items) if isinstance(items, Sized) else None
    return _reported(_results(func, items, total, store, weight), phase, total)


def map_batches(
    func: Callable[[list[T]], Iterable[R]],
    items: Sequence[T],
    limit: Callable[[], int],
    *,
    store: MaybeRemote | None = None,
    weight: Callable[[T], int] | None = None,
    phase: Phase | None = None,
    at_once: bool = False,
    is_alone: bool = False,
) -> Generator[R, None, None]:
    """As `map_in_threads`, for items that are cheaper in batches; one result for each item.

    ``limit`` is called before each batch for its largest size. Batches grow from a single item,
    unless the first one may be as large (``at_once``). With ``is_alone`` the calling thread does
    all of it, while its nested calls have all threads.

    Examples
    --------
    >>> names = ["COUNTRY_CODE", "SALES_DATE"]
    >>> list(map_batches(lambda batch: [name.lower() for name in batch], names, lambda: 2))
    ['country_code', 'sales_date']
    """
    batch_weight = None if weight is None else lambda batch: sum(map(weight, batch))
    batches = _batches(items, limit, at_once=at_once)
    results = _results(func, batches, 1 if is_alone else len(items), store, batch_weight)
    return _reported(_flatten(results), phase, len(items))


def _reported(results: Generator[R, None, None], phase: Phase | None, total: int | None) -> Generator[R, None, None]:
    report = None if phase is None or _SHARE.get() is not None else progress_reporter(phase)
    return results if report is None else with_progress(results, report, total)


def _batches(items: Sequence[T], limit: Callable[[], int], *, at_once: bool) -> Iterator[list[T]]:
    begin, rest = 0, iter(items)
    # Never larger than what came before it: the reader of the first results waits for few items.
    while batch := list(islice(rest, max(1, limit() if at_once and not begin else min(limit(), begin)))):
        yield batch
        begin += len(batch)


def _flatten(results: Generator[Iterable[R], None, None]) -> Generator[R, None, None]:
    with closing(results):
        for batch in results:
            yield from batch


def pause(longest: float) -> None:
    """Wait for a random time of at most so many seconds, so that two who met do not meet again."""
    import random  # loads much, and who meets nobody needs none

    time.sleep(random.uniform(0, longest))  # noqa: S311 - no secret


def thread_count(store: MaybeRemote | None = None) -> int:
    """The option ``threads``, or its default for work that waits for this store."""
    settings = current_options()
    is_remote = settings.threads is None and store is not None and store.is_remote
    return _REMOTE_THREADS if is_remote else settings.thread_count


def _available_threads(store: MaybeRemote | None) -> int:
    threads, share = thread_count(store), _SHARE.get()
    return threads if share is None else min(threads, share)


def _results(
    func: Callable[[T], R],
    items: Iterable[T],
    total: int | None,
    store: MaybeRemote | None,
    weight: Callable[[T], int] | None,
) -> Generator[R, None, None]:
    available = _available_threads(store)
    workers = max(1, min(available, total if total is not None else available))
    context = copy_context()
    context.run(_SHARE.set, max(1, available // workers))

    # A context can be entered by one thread at a time, hence one copy for each task.
    def call(item: T) -> R:
        return context.copy().run(func, item)

    if workers == 1:
        return (call(item) for item in items)
    return _pooled(call, items, workers, weight, current_options().bytes_in_flight)


class _Flight(Generic[T, R]):
    """The started tasks whose results are not released yet, in order."""

    def __init__(
        self,
        start: Callable[[T], Future[R]],
        items: Iterable[T],
        limit: int,
        weight: Callable[[T], int] | None,
        budget: int,
    ) -> None:
        self._start, self._items, self._limit, self._budget = start, iter(items), limit, budget
        self._weight = weight or (lambda _: 0)
        self._next: deque[tuple[T, int]] = deque()
        self._tasks: deque[tuple[Future[R], int]] = deque()
        self._used = 0

    def fill(self) -> None:
        """Start tasks as far as the bounds allow."""
        while len(self._tasks) < self._limit:
            if not self._next:
                self._next.extend((item, self._weight(item)) for item in islice(self._items, 1))
            if not self._next:
                return
            item, size = self._next[0]
            # One item always runs, however large it is.
            if self._tasks and self._used + size > self._budget:
                return
            self._next.popleft()
            self._used += size
            self._tasks.append((self._start(item), size))

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def head(self) -> R:
        """Wait for the first task; raise the error of any task that fails before."""
        while True:
            futures = [future for future, _ in self._tasks]
            for future in futures:
                if future.done() and future.exception() is not None:
                    future.result()
            if futures[0].done():
                return futures[0].result()
            wait([future for future in futures if not future.done()], return_when=FIRST_COMPLETED)

    def drop_head(self) -> None:
        """Release the first result."""
        self._used -= self._tasks.popleft()[1]


def _pooled(
    call: Callable[[T], R], items: Iterable[T], workers: int, weight: Callable[[T], int] | None, budget: int
) -> Generator[R, None, None]:
    watch_collections()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="kartothek_cube")
    # Twice the workers: a free thread finds the next task while the reader works on a result.
    flight: _Flight[T, R] = _Flight(lambda item: pool.submit(call, item), items, 2 * workers, weight, budget)
    try:
        flight.fill()
        while flight:
            yield flight.head()
            flight.drop_head()
            flight.fill()
    finally:
        # The garbage collector may close an abandoned iterator. The interrupted code may hold a
        # lock that a thread needs to end, so waiting for the threads could deadlock.
        pool.shutdown(wait=not is_collecting(), cancel_futures=True)


# --- a cache of what was used last ----------------------------------------------------------------


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """The values that were put or asked for last. Safe for threads, and in a forked process.

    Parameters
    ----------
    bound : int
        The largest sum of the sizes of all values, e.g. in bytes. Without sizes, their number.

    Examples
    --------
    >>> cache = LruCache[str, str](bound=2)
    >>> for name in ("DE", "FR", "IT"):
    ...     cache.put(name, name.lower())
    >>> cache.get("DE"), cache.get("IT")
    (None, 'it')
    """

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._size = 0
        self._lock = Lock()
        _CACHES.add(self)

    def get(self, key: K) -> V | None:
        """The value of a key, if it is still there."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def __iter__(self) -> Iterator[K]:
        """The keys of all values, those used last at the end."""
        with self._lock:
            return iter(list(self._entries))

    def put(self, key: K, value: V, size: int = 1) -> None:
        """Keep a value in the place of the former one, unless it alone exceeds the bound."""
        with self._lock:
            self._remove(key)
            if size > self._bound:
                return
            self._entries[key] = value, size
            self._size += size
            while self._size > self._bound:
                self._remove(next(iter(self._entries)))

    def _remove(self, key: K) -> None:
        _, size = self._entries.pop(key, (None, 0))
        self._size -= size

    def discard(self, key: K) -> None:
        """Drop the value of a key, if it is still there."""
        with self._lock:
            self._remove(key)

    def clear(self) -> None:
        """Drop all values."""
        with self._lock:
            self._entries.clear()
            self._size = 0

    def renew_lock(self) -> None:
        """Make the cache usable in a forked child, which lacks the thread that held the lock."""
        was_held, self._lock = self._lock.locked(), Lock()
        # That thread may have made one half of a change.
        if was_held:
            self.clear()


_CACHES: WeakSet[LruCache[Any, Any]] = WeakSet()


def _renew_locks() -> None:
    for cache in _CACHES:
        cache.renew_lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)
