"""One log record and one span for each call of a verb: counts, duration, and how the call ended.

A verb opens an `operation`; the code below it, also in threads, adds counts with `record`. Unless a
logger, a tracer or a progress function listens, there is no current operation, and nothing is
counted.
"""

from __future__ import annotations

import atexit
import gc
import json
import logging
import os
import sys
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass, fields
from functools import partial
from importlib import import_module
from threading import RLock, get_ident
from typing import Any, TypeAlias, TypeVar, cast

from kartothek_cube.core.runtime.options import (
    Bar,
    Options,
    Overrides,
    Phase,
    ProgressReporter,
    current_options,
    require_tqdm,
    use_options,
)

_THREADS: set[int] = set()


def watch_collections() -> None:
    """Let `is_collecting` see all collections from here on."""
    if _on_collection not in gc.callbacks:
        gc.callbacks.append(_on_collection)


def is_collecting() -> bool:
    """Whether the code here runs inside a collection; the interrupted code may hold any lock."""
    return get_ident() in _THREADS


def _on_collection(phase: str, _info: dict[str, int]) -> None:
    (_THREADS.add if phase == "start" else _THREADS.discard)(get_ident())


T = TypeVar("T")

_LOGGER, _STORE_LOGGER = logging.getLogger("kartothek_cube.verbs"), logging.getLogger("kartothek_cube.store")

_SHOWN = ("files_read", "bytes_read", "files_written", "bytes_written", "keys_deleted")


@dataclass(frozen=True, slots=True)
class Counts:
    """Rows, files and bytes that were read, written and deleted.

    Bytes are those of whole files; ``store_calls`` includes opened local files.
    """

    rows_read: int = 0
    files_read: int = 0
    bytes_read: int = 0
    rows_written: int = 0
    files_written: int = 0
    bytes_written: int = 0
    keys_deleted: int = 0
    store_calls: int = 0


@dataclass(frozen=True, slots=True)
class OperationRecord:
    """One call of a verb: the attribute ``kartothek_cube`` of a record of ``kartothek_cube.verbs``.

    Attributes
    ----------
    verb : str
        The name of the function.
    kind : str
        ``"cube"`` or ``"dataset"``.
    subject : str
        The prefix of the cube, or the uuid of the dataset; empty if the call failed before that.
    rows : int
        Rows that the verb returned; for a verb that returns none, rows that it wrote.
    counts : Counts
        What was read, written and deleted, and the number of store calls.
    seconds : float
        From the call to its end; for an iterator, to the end of the iteration.
    error : str | None
        The class of the error that ended the call.

    Examples
    --------
    >>> counts = Counts(files_read=2, store_calls=7)
    >>> str(OperationRecord("query_cube", "cube", "sales", 4, counts, 0.0123))
    'verb=query_cube cube=sales rows=4 files_read=2 store_calls=7 seconds=0.012'
    """

    verb: str
    kind: str
    subject: str
    rows: int
    counts: Counts
    seconds: float
    error: str | None = None

    def __str__(self) -> str:
        subject, counts = self.subject, self.counts
        # Valid names are one word each; only those that were refused need quotes.
        if not subject.isprintable() or set(subject) & set(' "=\\'):
            subject = json.dumps(subject)
        shown = {name: value for name in _SHOWN if (value := getattr(counts, name))}
        values = {
            "verb": self.verb,
            self.kind: subject,
            "rows": self.rows,
            **shown,
            "store_calls": counts.store_calls,
            "seconds": f"{self.seconds:.3f}",
        }
        text = " ".join(f"{name}={value}" for name, value in values.items())
        return text if self.error is None else f"{text} error={self.error}"


def _start_span(verb: str) -> Any:
    """A span of OpenTelemetry, if the application records spans; else None."""
    # Whoever records spans has imported the API. To import it here would cost everybody else.
    trace = sys.modules.get("opentelemetry.trace")
    span = None if trace is None else trace.get_tracer("kartothek_cube").start_span(verb)
    return span if span is not None and span.is_recording() else None


def _end_span(span: Any, ended: OperationRecord, commit: str | None, error: BaseException | None, now: int) -> None:
    trace, counts, is_written = sys.modules["opentelemetry.trace"], ended.counts, ended.counts.files_written > 0
    values = {
        ended.kind: ended.subject or None,
        "rows": ended.rows,
        "files": counts.files_written if is_written else counts.files_read,
        "bytes": counts.bytes_written if is_written else counts.bytes_read,
        "commit": commit,
    }
    span.set_attributes({f"kartothek_cube.{name}": value for name, value in values.items() if value is not None})
    if error is not None:
        span.record_exception(error)
        span.set_status(trace.StatusCode.ERROR, f"{type(error).__name__}: {error}")
    span.end(now)


class Operation:
    """A running call of a verb. Thread-safe."""

    def __init__(self, verb: str, kind: str, subject: str, span: Any = None) -> None:
        self.verb, self.kind, self.subject = verb, kind, subject
        self.commit: str | None = None
        self._span = span
        self._recorded: Counter[str] = Counter()
        self._rows: int | None = None
        self._lasts, self._has_ended = False, False
        self.reporter: ProgressReporter | None = None  # of the outermost phase
        # The garbage collector may close results inside of `record`, hence a reentrant lock.
        self._begin, self._lock = time.perf_counter(), RLock()
        self._traces = _STORE_LOGGER.isEnabledFor(logging.DEBUG)

    @property
    def counts(self) -> Counts:
        """The counts so far."""
        with self._lock:
            return Counts(**self._recorded)

    def rows_and_bytes(self, *, written: bool) -> tuple[int, int]:
        """Rows and bytes of the files written, or read, so far."""
        counts = self.counts
        return (counts.rows_written, counts.bytes_written) if written else (counts.rows_read, counts.bytes_read)

    def record(self, counts: Mapping[str, int]) -> None:
        """Add counts; the names are those of `Counts`."""
        with self._lock:
            self._recorded.update(counts)

    def returned(self, result: T, rows: Callable[[Any], int] = len) -> T:
        """Count the rows of a result, or of a part of it, and return it."""
        self._rows = (self._rows or 0) + rows(result)
        return result

    def lasting(self, results: Iterator[T], rows: Callable[[Any], int] = len) -> Iterator[T]:
        """An iterator over the results; the operation ends with the iterator, however that ends."""
        self._lasts = True
        watch_collections()
        lasting = self._until_end(results, rows)
        next(lasting)  # a started generator receives GeneratorExit even if it is never iterated
        return lasting

    def _until_end(self, results: Iterator[T], rows: Callable[[Any], int]) -> Generator[Any, None, None]:
        try:
            with ExitStack() as stack:
                stack.callback(getattr(results, "close", int))
                yield None
                for result in self._in_operation(results):
                    yield self.returned(result, rows)
        except GeneratorExit:
            self.end()
            raise
        except BaseException as error:
            self.end(error)
            raise
        self.end()

    def traced(self) -> AbstractContextManager[object]:
        """A block whose spans, and those of its threads, are children of the span of this one."""
        if self._span is None:
            return nullcontext()
        use_span = sys.modules["opentelemetry.trace"].use_span
        return cast(
            "AbstractContextManager[object]",
            use_span(self._span, record_exception=False, set_status_on_exception=False),
        )

    def _in_operation(self, results: Iterator[T]) -> Generator[T, None, None]:
        """Compute each result inside the operation; the caller's work in between is not counted."""
        while True:
            token = _CURRENT.set(self)
            try:
                with self.traced():
                    result = next(results)
            except StopIteration:
                return
            finally:
                _CURRENT.reset(token)
            yield result

    def leave(self) -> None:
        """End the operation when the body of the verb returns, unless an iterator was returned."""
        if not self._lasts:
            self.end()

    def end(self, error: BaseException | None = None) -> None:
        """Write the log record and end the span, once."""
        if self._has_ended:
            return
        self._has_ended = True
        counts, seconds = self.counts, time.perf_counter() - self._begin
        rows = counts.rows_written if self._rows is None else self._rows
        name = None if error is None else type(error).__name__
        ended = OperationRecord(self.verb, self.kind, self.subject, rows, counts, seconds, name)
        finish = partial(_end_span, self._span, ended, self.commit, error, time.time_ns()) if self._span else int
        _LATE.append((ended, finish)) if is_collecting() else _write((ended, finish))

    def store_call(self, method: str, key: object, action: Callable[[], T]) -> T:
        """Make and count a store call."""
        begin, result = time.perf_counter(), cast("T", None)
        try:
            result = action()
            if method == "delete":
                self.record({"keys_deleted": 1})
        finally:
            # A remote store has no local paths: asking for one is not a call.
            if method != "local_path" or result is not None:
                self.record({"store_calls": 1})
                if self._traces:
                    _STORE_LOGGER.debug("%s %s seconds=%.4f", method, key, time.perf_counter() - begin)
        return result


# A record, and what ends the span.
End: TypeAlias = tuple[OperationRecord, Callable[[], object]]

# Records of iterators that the garbage collector closed. They wait for the next record: loggers
# and tracers take locks, which the interrupted code may hold.
_LATE: deque[End] = deque()


def _write(*ends: End) -> None:
    late = list[End]()
    with suppress(IndexError):
        while True:
            late.append(_LATE.popleft())
    for written, finish in (*late, *ends):
        _LOGGER.info("%s", written, extra={"kartothek_cube": written})
        finish()


atexit.register(_write)


class NullOperation:
    """The operation when no logger, tracer or progress function listens."""

    def returned(self, result: T, rows: Callable[[Any], int] = len) -> T:
        """The result unchanged."""
        return result

    def lasting(self, results: Iterator[T], rows: Callable[[Any], int] = len) -> Iterator[T]:
        """The results unchanged."""
        return results


_CURRENT: ContextVar[Operation | None] = ContextVar("kartothek_cube_operation", default=None)

_NULL = NullOperation()


def _forget() -> None:
    # A forked process lacks the threads of its parent, one of which may have held the lock.
    _CURRENT.set(None)
    _LATE.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)

AnyOperation: TypeAlias = Operation | NullOperation

"""What the body of a verb reports its result to."""


def current_operation() -> Operation | None:
    """The operation that the calling code belongs to."""
    return _CURRENT.get()


def record(**counts: int) -> None:
    """Add counts to the current operation; the names are those of `Counts`."""
    current = _CURRENT.get()
    if current is not None:
        current.record(counts)


def progress_reporter(phase: Phase) -> ProgressReporter | None:
    """A reporter for a phase of the current operation, if the option ``progress`` is set."""
    settings = current_options()
    sink: Any = settings.progress
    if not settings.is_watched:
        return None
    return ProgressReporter(Bar() if sink is True else sink, phase, current_operation())


def name_dataset(uuid: str) -> None:
    """Set the dataset of the current operation, unless it has a subject."""
    current = _CURRENT.get()
    if current is not None and not current.subject:
        current.subject = uuid


def name_commit(commit: str) -> None:
    """Set the commit that the current operation has made; of several, the last."""
    current = _CURRENT.get()
    if current is not None:
        current.commit = commit


@contextmanager
def counting() -> Iterator[Operation]:
    """Count the work of a block for another process, which adds it with `record_counts`."""
    block = Operation("", "", "")
    token = _CURRENT.set(block)
    try:
        yield block
    finally:
        _CURRENT.reset(token)


def record_counts(counts: Counts) -> None:
    """Add counts of another process to the current operation."""
    record(**{f.name: getattr(counts, f.name) for f in fields(counts)})


# Warnings for the end of the outermost verb.
_WARNINGS = ContextVar[list[Warning] | None]("kartothek_cube_warnings", default=None)


def warn_at_end(warning: Warning) -> None:
    """Warn as the last act of the verb, so that nothing stays undone where warnings are errors."""
    later = _WARNINGS.get()
    if later is None:
        warnings.warn(warning, stacklevel=3)
    else:
        later.append(warning)


@contextmanager
def _warning_at_end() -> Iterator[None]:
    if _WARNINGS.get() is not None:
        yield
        return
    later = list[Warning]()
    token = _WARNINGS.set(later)
    try:
        yield
    except BaseException:
        with suppress(Warning):  # the error says more
            for warning in later:
                warnings.warn(warning, stacklevel=6)
        raise
    finally:
        _WARNINGS.reset(token)
    for warning in later:
        warnings.warn(warning, stacklevel=6)


@contextmanager
def operation(verb: str, options: Overrides | Options | None, cube: object = None) -> Iterator[AnyOperation]:
    """Run the body of a verb with the options of the call, and log a record at its end.

    Where the application records spans of OpenTelemetry, the verb has one. A verb inside another
    verb has neither; its counts belong to the outer one.

    Parameters
    ----------
    verb : str
        The name of the function.
    options
        The argument ``options=`` of the call.
    cube
        The cube, its prefix, or a plan or group of one of its queries. A dataset is named later, by
        `name_dataset`.
    """
    if "pandas" not in sys.modules:
        with suppress(ImportError):
            import_module("pandas")  # as Arrow does when it makes its first array, only faster
    with _warning_at_end(), use_options(options) as settings:
        if settings.progress is True:
            require_tqdm()
        is_heard = _LOGGER.isEnabledFor(logging.INFO) or _STORE_LOGGER.isEnabledFor(logging.DEBUG)
        span = _start_span(verb) if _CURRENT.get() is None else None
        if not (settings.is_watched or is_heard or span) or _CURRENT.get() is not None:
            yield _NULL
            return
        prefix = getattr(getattr(cube, "context", cube), "uuid_prefix", cube)
        subject = prefix if isinstance(prefix, str) else ""
        current = Operation(verb, "dataset" if cube is None else "cube", subject, span)
        token = _CURRENT.set(current)
        try:
            with current.traced():
                yield current
        except BaseException as error:
            current.end(error)
            raise
        finally:
            _CURRENT.reset(token)
        current.leave()
