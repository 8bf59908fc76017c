"""The journal: what each call of a verb did, as one line of the log.

A verb opens an entry with `verb`; what works for it, in threads too, adds to the entry by `note`. While no logger listens and nobody watches the
progress there is no entry, and nothing is counted.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, fields
from threading import RLock, get_ident
from typing import Any, TypeAlias, TypeVar, cast

from kartothek_cube.core.bar import require_tqdm
from kartothek_cube.core.collecting import is_collecting, notice_collections
from kartothek_cube.core.options import Options, Overrides, use_options

__all__ = ["Counts", "Entry", "Returning", "VerbRecord", "counting", "current_entry", "name_dataset", "note", "note_counts", "verb"]

T = TypeVar("T")

_LOGGER, _STORE_LOGGER = logging.getLogger("kartothek_cube.verbs"), logging.getLogger("kartothek_cube.store")
_SHOWN = ("files_read", "bytes_read", "files_written", "bytes_written", "keys_deleted")


@dataclass(frozen=True, slots=True)
class Counts:
    """What was done, in numbers. Bytes are those of whole files; ``store_calls`` has the opening of local files, too."""

    rows_read: int = 0
    files_read: int = 0
    bytes_read: int = 0
    rows_written: int = 0
    files_written: int = 0
    bytes_written: int = 0
    keys_deleted: int = 0
    store_calls: int = 0


@dataclass(frozen=True, slots=True)
class VerbRecord:
    """One call of a verb: what the records of the logger ``kartothek_cube.verbs`` have as their attribute ``kartothek_cube``.

    Attributes
    ----------
    verb : str
        The name of the function.
    kind : str
        ``"cube"`` or ``"dataset"``.
    subject : str
        The prefix of the cube, or the uuid of the dataset; empty if the call failed before it was known.
    rows : int
        Rows that the verb returned; for a verb that returns none, those that it wrote.
    counts : Counts
        What was read, written and deleted, and how often the store was called.
    seconds : float
        From the call to its end; where rows come one after the other, to the end of these.
    error : str | None
        The class of the error that ended it.

    Examples
    --------
    >>> str(VerbRecord("query_cube", "cube", "sales", 4, Counts(files_read=2, bytes_read=3121, store_calls=7), 0.0123))
    'verb=query_cube cube=sales rows=4 files_read=2 bytes_read=3121 store_calls=7 seconds=0.012'
    """

    verb: str
    kind: str
    subject: str
    rows: int
    counts: Counts
    seconds: float
    error: str | None = None

    def __str__(self) -> str:
        counted = {name: value for name in _SHOWN if (value := getattr(self.counts, name))}
        values = {"verb": self.verb, self.kind: _quoted(self.subject), "rows": self.rows, **counted, "store_calls": self.counts.store_calls}
        text = " ".join(f"{name}={value}" for name, value in {**values, "seconds": f"{self.seconds:.3f}"}.items())
        return text if self.error is None else f"{text} error={self.error}"


def _quoted(text: str) -> str:
    """The text; in quotes if it would not be one word of the line, as only a name can be that is refused."""
    return text if text.isprintable() and not set(text) & set(' "=\\') else json.dumps(text)


class Entry:
    """A call of a verb while it lasts. Safe for threads."""

    def __init__(self, name: str, kind: str, subject: str) -> None:
        self.verb, self.kind, self.subject = name, kind, subject
        self._noted: Counter[str] = Counter()
        self._rows: int | None = None
        self._lasts, self._has_ended = False, False
        self.told_by: object = None
        # The collector may end results in the middle of a note, hence the lock that lets the same thread in.
        self._begin, self._lock = time.perf_counter(), RLock()
        self._calls, self._traces = set[tuple[int, Hashable]](), _STORE_LOGGER.isEnabledFor(logging.DEBUG)

    @property
    def counts(self) -> Counts:
        """What was done so far."""
        with self._lock:
            return Counts(**self._noted)

    def note(self, noted: Mapping[str, int]) -> None:
        """Count."""
        with self._lock:
            self._noted.update(noted)

    def returned(self, result: T, rows: Callable[[Any], int] = len) -> T:
        """The result, or a part of it, whose rows are counted."""
        self._rows = (self._rows or 0) + rows(result)
        return result

    def lasting(self, results: Iterator[T], rows: Callable[[Any], int] = len) -> Iterator[T]:
        """Results that come one after the other: the call ends with them, however they end."""
        self._lasts = True
        notice_collections()
        lasting = self._until_end(results, rows)
        next(lasting)  # one that has begun gets to know of its end, even if nothing is ever asked for
        return lasting

    def _until_end(self, results: Iterator[T], rows: Callable[[Any], int]) -> Generator[Any, None, None]:
        try:
            with ExitStack() as stack:
                stack.callback(getattr(results, "close", int))
                yield None
                for result in self._worked(results):
                    yield self.returned(result, rows)
        except GeneratorExit:
            self.end()
            raise
        except BaseException as error:
            self.end(error)
            raise
        self.end()

    def _worked(self, results: Iterator[T]) -> Generator[T, None, None]:
        """The results. What is done for them in the thread that asks is counted here, and nothing of what it does between them."""
        while True:
            token = _CURRENT.set(self)
            try:
                result = next(results)
            except StopIteration:
                return
            finally:
                _CURRENT.reset(token)
            yield result

    def left(self) -> None:
        """The call is over, if nothing lasts."""
        if not self._lasts:
            self.end()

    def end(self, error: BaseException | None = None) -> None:
        """Write the line, once."""
        if self._has_ended:
            return
        self._has_ended = True
        counts, seconds = self.counts, time.perf_counter() - self._begin
        rows = counts.rows_written if self._rows is None else self._rows
        record = VerbRecord(self.verb, self.kind, self.subject, rows, counts, seconds, None if error is None else type(error).__name__)
        _LATE.append(record) if is_collecting() else _write(record)

    def call(self, operation: str, store: Hashable, key: object, action: Callable[[], T]) -> T:
        """Carry out and count an operation of a store, unless it is a part of another one."""
        caller = (get_ident(), store)
        if caller in self._calls:
            return action()
        self._calls.add(caller)
        begin, result = time.perf_counter(), cast("T", None)
        try:
            result = action()
            self.note({"keys_deleted": int(operation == "delete")})
        finally:
            self._calls.discard(caller)
            if operation != "local_path" or result is not None:  # a store without local files was not called for one
                self._called(operation, key, time.perf_counter() - begin)
        return result

    def _called(self, operation: str, key: object, seconds: float) -> None:
        self.note({"store_calls": 1})
        if self._traces:
            _STORE_LOGGER.debug("%s %s seconds=%.4f", operation, key, seconds)


# Lines of results that the collector has ended. They wait for the next one, as a logger takes locks, which the interrupted code may hold.
_LATE: deque[VerbRecord] = deque()


def _write(*records: VerbRecord) -> None:
    late = list[VerbRecord]()
    with suppress(IndexError):
        while True:
            late.append(_LATE.popleft())
    for record in (*late, *records):
        _LOGGER.info("%s", record, extra={"kartothek_cube": record})


atexit.register(_write)


class _NoEntry:
    """Stands for an entry where none is kept."""

    def returned(self, result: T, rows: Callable[[Any], int] = len) -> T:
        """The result as it is."""
        return result

    def lasting(self, results: Iterator[T], rows: Callable[[Any], int] = len) -> Iterator[T]:
        """The results as they are."""
        return results


_CURRENT: ContextVar[Entry | None] = ContextVar("kartothek_cube_entry", default=None)
_NO_ENTRY = _NoEntry()


def _forget() -> None:
    """Begin anew in a forked process: it writes lines of its own. A thread that is not there may have left the lock of the entry closed."""
    _CURRENT.set(None)
    _LATE.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)

Returning: TypeAlias = Entry | _NoEntry
"""What the body of a verb tells of its result."""


def current_entry() -> Entry | None:
    """The entry of the verb that this is done for."""
    return _CURRENT.get()


def note(**noted: int) -> None:
    """Count what was done for the verb that this is done for; the names are those of `Counts`."""
    entry = _CURRENT.get()
    if entry is not None:
        entry.note(noted)


def name_dataset(uuid: str) -> None:
    """Say which dataset the verb that this is done for is about, unless that is known."""
    entry = _CURRENT.get()
    if entry is not None and not entry.subject:
        entry.subject = uuid


@contextmanager
def counting() -> Iterator[Entry]:
    """Count what is done in a block for a verb of another process, which gets it by `note_counts`."""
    entry = Entry("", "", "")
    token = _CURRENT.set(entry)
    try:
        yield entry
    finally:
        _CURRENT.reset(token)


def note_counts(counts: Counts) -> None:
    """Add what was counted elsewhere."""
    note(**{f.name: getattr(counts, f.name) for f in fields(counts)})


@contextmanager
def verb(name: str, options: Overrides | Options | None, cube: object = None) -> Iterator[Returning]:
    """Around the body of a verb: the options of the call hold there, and the journal has an entry of it.

    A verb that works for another one has no entry of its own: what it does is counted for the outer one.

    Parameters
    ----------
    name : str
        The name of the function.
    options
        What was given as ``options=``.
    cube
        The cube, its prefix, or the plan or group of a query of it. A dataset is named when it is known, by `name_dataset`.
    """
    with use_options(options) as settings:
        if settings.progress is True:
            require_tqdm()
        if not _is_kept(settings) or _CURRENT.get() is not None:
            yield _NO_ENTRY
            return
        entry = Entry(name, "dataset" if cube is None else "cube", _prefix(cube))
        token = _CURRENT.set(entry)
        try:
            yield entry
        except BaseException as error:
            entry.end(error)
            raise
        finally:
            _CURRENT.reset(token)
        entry.left()


def _is_kept(settings: Options) -> bool:
    return settings.is_watched or _LOGGER.isEnabledFor(logging.INFO) or _STORE_LOGGER.isEnabledFor(logging.DEBUG)


def _prefix(cube: object) -> str:
    found = getattr(getattr(cube, "context", cube), "uuid_prefix", cube)
    return found if isinstance(found, str) else ""
