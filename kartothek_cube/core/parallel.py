"""Run a function on many items in threads, or wherever a driver takes them: ordered results, bounded work in flight, progress."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence, Sized
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, TypeAlias, TypeVar

from kartothek_cube.core.collecting import is_collecting, notice_collections
from kartothek_cube.core.options import current_options
from kartothek_cube.core.progress import Phase
from kartothek_cube.core.store import Store
from kartothek_cube.core.watch import told
from kartothek_cube.errors import InvalidInput

__all__ = ["DELETE_FILES", "READ_FILES", "Driver", "Weight", "Work", "run", "run_bundles", "spread", "thread_count", "use_driver"]

T = TypeVar("T")
R = TypeVar("R")

# How many items may start before the first one has shown how large they are.
_FIRST_ITEMS = 8
# Requests that are on their way at a time: they wait for a server and not for a core, so that their number is about latency.
_REMOTE_THREADS = 32

# Threads that a task may use for tasks of its own; unset outside of any task.
_SHARE: ContextVar[int | None] = ContextVar("kartothek_cube_thread_share", default=None)


READ_FILES, DELETE_FILES = Phase("read", "files"), Phase("delete", "files")


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be done with each of some items, in this process or in another one.

    Attributes
    ----------
    func : Callable
        Called with one item. It can be pickled, as the items and its results can.
    heavy : bool
        Whether it takes seconds an item, so that few of them are worth the way to another process; else it is about one call of the store.
    weight : Callable | None
        As of `run`; it can be pickled, too.
    phase : Phase
        What is told of it to whoever watches.
    """

    func: Callable[[Any], Any]
    heavy: bool = False
    weight: Callable[[Any], int] | None = None
    phase: Phase = READ_FILES


Driver: TypeAlias = Callable[[Work, Sequence[Any]], Generator[Any, None, None] | None]
"""Does work elsewhere, with results and errors as `run` gives them; None if these items are not worth it."""

_DRIVER: ContextVar[Driver | None] = ContextVar("kartothek_cube_driver", default=None)


class Weight:
    """A ``weight`` for `run` where no one knows sizes beforehand: what the largest item so far took."""

    def __init__(self) -> None:
        self._guess = max(1, current_options().bytes_in_flight // _FIRST_ITEMS)
        self._largest = 0

    def __call__(self, item: object) -> int:
        return self._largest or self._guess

    def measured(self, nbytes: int) -> None:
        """Learn what an item took."""
        self._largest = max(self._largest, nbytes)


def run(
    func: Callable[[T], R],
    items: Iterable[T],
    *,
    threads: int | None = None,
    at: Store | None = None,
    weight: Callable[[T], int] | None = None,
    phase: Phase | None = None,
) -> Generator[R, None, None]:
    """Call a function on every item in threads and iterate over the results in the order of the items.

    Nothing happens before the first result is asked for, and items are taken only as far ahead as the bounds allow. The first error, of whatever item,
    cancels the rest and is raised; closing the iterator or Ctrl-C does the same. All threads have ended when the iterator has.
    A task that calls ``run`` itself gets its share of the threads.

    Parameters
    ----------
    func : Callable
        Called with one item; sees the caller's context variables, so also the options.
    items : Iterable
        May be lazy; it is advanced in the calling thread only.
    threads : int | None
        Default: the option ``threads``.
    at : Store | None
        The store that the work waits for. Where it is remote and the option ``threads`` is not set, there are 32 threads.
    weight : Callable | None
        Bytes that an item needs from its start until its result is given up; their sum stays within the option ``bytes_in_flight``, but one item always runs.
    phase : Phase | None
        What is told to those who watch by the option ``progress``, in the calling thread; a run that belongs to a task of another one tells nothing.

    Examples
    --------
    >>> list(run(str.lower, ["COUNTRY_CODE", "SALES_DATE"]))
    ['country_code', 'sales_date']
    """
    if threads is not None and threads < 1:
        raise InvalidInput(f"threads={threads} is not positive.")
    total = len(items) if isinstance(items, Sized) else None
    return _told(_results(func, items, total, threads or thread_count(at), weight), phase, total)


def run_bundles(
    func: Callable[[list[T]], Iterable[R]],
    items: Sequence[T],
    most: Callable[[], int],
    *,
    at: Store | None = None,
    weight: Callable[[T], int] | None = None,
    phase: Phase | None = None,
) -> Generator[R, None, None]:
    """What `run` does, for items of which several at a time take less than one after the other; one result for each item.

    ``most`` says again and again how many are taken at a time from here on. That number grows with the number of those before, so that
    who wants only the first results does not wait for many.

    Examples
    --------
    >>> list(run_bundles(lambda words: [word.lower() for word in words], ["COUNTRY_CODE", "SALES_DATE"], lambda: 2))
    ['country_code', 'sales_date']
    """
    heavy = None if weight is None else lambda bundle: sum(map(weight, bundle))
    results = _results(func, _bundles(items, most), len(items), thread_count(at), heavy)
    return _told(_flat(results), phase, len(items))


def _bundles(items: Sequence[T], most: Callable[[], int]) -> Iterator[list[T]]:
    begin, rest = 0, iter(items)
    while bundle := list(islice(rest, max(1, min(most(), begin)))):
        yield bundle
        begin += len(bundle)


def _flat(results: Generator[Iterable[R], None, None]) -> Generator[R, None, None]:
    with closing(results):
        for found in results:
            yield from found


def _results(func: Callable[[T], R], items: Iterable[T], total: int | None, threads: int, weight: Callable[[T], int] | None) -> Generator[R, None, None]:
    share = _SHARE.get()
    available = threads if share is None else min(threads, share)
    workers = max(1, min(available, total if total is not None else available))
    call = _in_context(func, max(1, available // workers))
    return _inline(call, items) if workers == 1 else _pooled(call, items, workers, weight, current_options().bytes_in_flight)


def spread(
    func: Callable[[T], R],
    items: Sequence[T],
    *,
    heavy: bool = False,
    at: Store | None = None,
    weight: Callable[[T], int] | None = None,
    phase: Phase = READ_FILES,
) -> Generator[R, None, None]:
    """What `run` does, for work that may be done in another process; where is up to the driver of `use_driver`. Without one it is done in threads here.

    So is work that belongs to a task of ``run`` or ``spread``.

    Parameters
    ----------
    func : Callable
        A function at module level, a method of a store, or a `functools.partial` of these over small values that can be pickled; so can its results.
        It may be called again for an item that it was called for before, even where that has succeeded.
    items : Sequence
        Small values that can be pickled.
    heavy, weight, phase
        As of `Work`.
    at
        As of `run`.

    Examples
    --------
    >>> list(spread(str.lower, ["COUNTRY_CODE", "SALES_DATE"]))
    ['country_code', 'sales_date']
    """
    driver = _DRIVER.get() if _SHARE.get() is None else None
    elsewhere = None if driver is None else driver(Work(func, heavy, weight, phase), items)
    return run(func, items, at=at, weight=weight, phase=phase) if elsewhere is None else elsewhere


def thread_count(at: Store | None = None) -> int:
    """The number of threads for work that waits for a store, where the option does not say it."""
    settings = current_options()
    return _REMOTE_THREADS if settings.threads is None and at is not None and at.is_remote else settings.thread_count


@contextmanager
def use_driver(driver: Driver) -> Iterator[None]:
    """Let a driver have the work of `spread` in a block."""
    token = _DRIVER.set(driver)
    try:
        yield
    finally:
        _DRIVER.reset(token)


def _in_context(func: Callable[[T], R], share: int) -> Callable[[T], R]:
    context = copy_context()
    context.run(_SHARE.set, share)
    # A context cannot be entered twice at a time, hence one copy for each task.
    return lambda item: context.copy().run(func, item)


class _Flight(Generic[T, R]):
    """The tasks that were started and whose results were not given up yet, in order."""

    def __init__(self, start: Callable[[T], Future[R]], items: Iterable[T], limit: int, weight: Callable[[T], int] | None, budget: int) -> None:
        self._start, self._items, self._limit, self._budget = start, iter(items), limit, budget
        self._weight = weight or (lambda _: 0)
        self._next: deque[tuple[T, int]] = deque()
        self._tasks: deque[tuple[Future[R], int]] = deque()
        self._used = 0

    def fill(self) -> None:
        """Start tasks as far as the bounds allow."""
        while len(self._tasks) < self._limit and self._peek():
            item, size = self._next[0]
            if self._tasks and self._used + size > self._budget:
                return
            self._next.popleft()
            self._used += size
            self._tasks.append((self._start(item), size))

    def _peek(self) -> bool:
        if not self._next:
            self._next.extend((item, self._weight(item)) for item in islice(self._items, 1))
        return bool(self._next)

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def head(self) -> R:
        """Wait for the first task; raise the error of whichever fails before."""
        while True:
            futures = [future for future, _ in self._tasks]
            for future in futures:
                if future.done() and future.exception() is not None:
                    future.result()
            if futures[0].done():
                return futures[0].result()
            wait([future for future in futures if not future.done()], return_when=FIRST_COMPLETED)

    def drop_head(self) -> None:
        """Give up the first result."""
        self._used -= self._tasks.popleft()[1]


def _inline(call: Callable[[T], R], items: Iterable[T]) -> Generator[R, None, None]:
    for item in items:
        yield call(item)


def _pooled(call: Callable[[T], R], items: Iterable[T], workers: int, weight: Callable[[T], int] | None, budget: int) -> Generator[R, None, None]:
    notice_collections()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="kartothek_cube")
    flight: _Flight[T, R] = _Flight(lambda item: pool.submit(call, item), items, 2 * workers, weight, budget)
    try:
        flight.fill()
        while flight:
            yield flight.head()
            flight.drop_head()
            flight.fill()
    finally:
        # Results that nobody wants may end up in the garbage collector. The code that it interrupts may hold any lock, also one that a thread needs to end.
        pool.shutdown(wait=not is_collecting(), cancel_futures=True)


def _told(results: Generator[R, None, None], phase: Phase | None, total: int | None) -> Generator[R, None, None]:
    return results if phase is None or _SHARE.get() is not None else told(results, phase, total)
