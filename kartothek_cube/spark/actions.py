"""Spark actions: named in Spark's UI, with progress, and with errors of tasks as their own types.

The driver is Spark's driver process here, and in all of `kartothek_cube.spark`.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

from kartothek_cube.core.metadata.naming import new_id
from kartothek_cube.core.runtime.options import Phase, ProgressReporter
from kartothek_cube.core.runtime.telemetry import progress_reporter
from kartothek_cube.errors import InvalidInput, KartothekCubeError, Unsupported
from kartothek_cube.spark.session import Watch, cancel, inheriting_thread, named, session_of, watching

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "NO_STREAMS",
    "Job",
    "collect",
    "decode_error",
    "driver_errors",
    "encode_error",
    "error_in",
    "perform",
    "task_errors",
]

_MARK = "kartothek_cube error: "

# Spark Connect drops messages that are much longer. Sail, whose tasks run in its own process, cuts
# the middle out of message and traceback, and keeps the last 1,600 characters.
_MAX_MESSAGE, _MAX_MESSAGE_ON_SAIL = 4_000, 1_400

_LINE = re.compile(re.escape(_MARK) + r"(\{.*\})")


NO_STREAMS = (
    "Sail runs no streams of this data source, neither as source nor as sink, and no foreachBatch. Ask for what "
    "changed in a batch: read_dataset_changes(..., since=...) or query_cube_spark(..., changed_since=...); "
    "write each batch with txn=(application, number). Or run the stream on Spark with Java."
)

# Sail answers a stream into a Python data source with a plan of many lines, and foreachBatch with
# a word on UDFs.
_STREAM_ON_SAIL = ("unsupported extension node for streaming", "missing argument: Python UDF output type")


class TaskFailed(RuntimeError):
    """An error of this library in a task. The text carries kind and message."""


def encode_error(error: KartothekCubeError, limit: int | None = None) -> str:
    """Kind and message in one line of JSON; ``limit`` characters at most, without the middle."""
    text, line = str(error), json.dumps({"kind": error.kind, "message": str(error)})
    if limit is None or len(line) <= limit:
        return line
    # JSON escapes make the line longer than the text, so the text is cut in proportion.
    kept = limit * len(text) // len(line) // 2
    shortened = f"{text[:kept]} … ({len(text) - 2 * kept:,} characters) … {text[-kept:]}"
    return json.dumps({"kind": error.kind, "message": shortened})


def decode_error(text: str) -> KartothekCubeError:
    """The error of a line from `encode_error`."""
    values = json.loads(text)
    return _kinds(KartothekCubeError).get(values["kind"], KartothekCubeError)(values["message"])


def _kinds(base: type[KartothekCubeError]) -> dict[str, type[KartothekCubeError]]:
    # A class without a kind of its own is decoded as the class that it inherits the kind from.
    kinds = {base.kind: base} if "kind" in vars(base) else {}
    for child in base.__subclasses__():
        kinds |= _kinds(child)
    return kinds


# Spark refuses the modes that are neither append nor overwrite before it asks a data source of
# Python; of the two, errorifexists is its default.
_MODE = re.compile(r'UNSUPPORTED_DATA_SOURCE_SAVE_MODE.*?"kartothek_cube".*?"(\w+)" mode')


def error_in(text: str) -> KartothekCubeError | None:
    """The error of this library that a message of Spark quotes, or should, or None."""
    if any(refused in text for refused in _STREAM_ON_SAIL):
        return Unsupported(NO_STREAMS)
    if refused := _MODE.search(text):
        choice = "ignore" if refused[1] == "Ignore" else "error"
        return Unsupported(
            f"Spark has no mode {refused[1]} for data sources of Python. Write "
            f'.mode("append").option("if_exists", "{choice}"), or without the option to add rows to what exists.'
        )
    if "DATA_SOURCE_PUSHDOWN_DISABLED" in text and "PushingReader" in text:
        return InvalidInput("The option push_down needs kartothek_cube.spark.register(spark), once in a session.")
    for quoted in _LINE.finditer(text):
        with contextlib.suppress(ValueError):  # Spark cut the message off
            return decode_error(quoted[1])
    return None


@contextmanager
def task_errors() -> Iterator[None]:
    """In a task: raise errors of this library as text that `error_in` finds on the driver."""
    try:
        yield
    except KartothekCubeError as error:
        # Without the cause, which would repeat the message: Spark quotes the whole traceback.
        limit = _MAX_MESSAGE_ON_SAIL if "pysail" in sys.modules else _MAX_MESSAGE
        raise TaskFailed(_MARK + encode_error(error, limit)).with_traceback(error.__traceback__) from None


@contextmanager
def driver_errors() -> Iterator[None]:
    """Around an action on the driver: raise errors of this library in tasks as their own types.

    Verbs that run an action do so themselves. Put it around your own actions on a data frame of
    `query_cube_spark` or `map_cube_groups`. Spark's error is not printed, since it would bury the
    message; it is the ``__context__`` of the error.

    Examples
    --------
    >>> from kartothek_cube.spark import driver_errors
    >>> with driver_errors():
    ...     spark.range(3).count()
    3
    """
    try:
        yield
    except KartothekCubeError:
        raise
    except Exception as error:
        task_error = error_in(str(error))
        if task_error is None:
            raise
        raise task_error from None


R = TypeVar("R")

_SECONDS_BETWEEN_LOOKS = 0.25

_SECONDS_BETWEEN_CANCELS = 0.5


@dataclass(frozen=True, slots=True)
class Job:
    """What Spark's UI shows of an action, and the phase that progress reports.

    ``subject`` is the cube or dataset, ``detail`` the amount of work.
    """

    verb: str
    subject: str
    detail: str = ""
    phase: str = "read"

    def __str__(self) -> str:
        return f"kartothek_cube: {self.verb} {self.subject}" + (f", {self.detail}" if self.detail else "")

    def tag(self) -> str:
        """A new, unique tag for one run."""
        # Spark refuses commas in tags.
        return f"kartothek_cube:{self.verb}:{self.subject}:{new_id()}".replace(",", " ")


def collect(frame: DataFrame, job: Job) -> list[Any]:
    """Run a data frame, exactly once, and return its rows.

    The Spark jobs carry the description of ``job`` and a tag; the user's job group, scheduler pool
    and tags stay. The option ``progress`` gets finished and total tasks, in the calling thread.
    Ctrl-C cancels the jobs, and so does an error of the progress function.
    """
    return list(perform(session_of(frame), frame.collect, job))


def perform(session: SparkSession, action: Callable[[], R], job: Job) -> R:
    """Run an action of Spark as `collect` does."""
    tag, report = job.tag(), progress_reporter(Phase(job.phase, "tasks"))
    outcome, completion = Future[R](), _Completion()

    def described() -> None:
        with named(session, tag, str(job)):
            outcome.set_result(action())

    def failed(error: BaseException) -> None:
        if not outcome.done():
            outcome.set_exception(error)

    context = copy_context()
    thread = inheriting_thread(session, lambda: context.run(described), failed, completion.tell)
    with (
        driver_errors(),
        report or contextlib.nullcontext(),
        watching(session, tag, thread) as watch,
        _side_thread() as calls,
    ):
        try:
            thread.start()
            _follow(completion, calls, watch, report, outcome)
        except BaseException:
            if thread.ident is not None:
                calls.put(partial(_cancel, session, tag, completion))
                while not completion.wait(_SECONDS_BETWEEN_CANCELS):
                    pass
            raise
        return outcome.result()


class _Completion:
    """Whether an action has ended; a wait can be interrupted at any point.

    Events, futures and threads leave a lock behind where an interrupt hits a wait. A simple queue
    does not. An interrupt right before a wait takes effect after it, so every wait has a timeout.
    """

    def __init__(self) -> None:
        self._ended: SimpleQueue[None] = SimpleQueue()

    def tell(self) -> None:
        """Note the end of the action."""
        self._ended.put(None)

    def wait(self, seconds: float) -> bool:
        """Wait for the end, at most so long; return whether the action has ended."""
        try:
            self._ended.get(timeout=seconds)
        except Empty:
            return False
        self.tell()  # for the next wait
        return True


@contextlib.contextmanager
def _side_thread() -> Iterator[SimpleQueue[Callable[[], object] | None]]:
    """A queue of functions that another thread calls."""
    # An interrupt during a call to the JVM would leave the thread's connection unusable, so the
    # interruptible thread makes no such call.
    calls: SimpleQueue[Callable[[], object] | None] = SimpleQueue()

    def make() -> None:
        for call in iter(calls.get, None):
            call()

    Thread(target=make, name="kartothek_cube watch", daemon=True).start()
    try:
        yield calls
    finally:
        calls.put(None)


def _follow(
    completion: _Completion,
    calls: SimpleQueue[Callable[[], object] | None],
    watch: Watch,
    report: ProgressReporter | None,
    outcome: Future[Any],
) -> None:
    """Wait for the end of an action, and report its progress meanwhile."""

    def look() -> tuple[int, int]:
        answers: SimpleQueue[tuple[int, int]] = SimpleQueue()

        def ask() -> None:
            try:
                answers.put(watch())
            except Exception:  # the action goes on where a session refuses to show its progress
                answers.put((0, 0))

        calls.put(ask)
        return answers.get()

    seen = (0, 0)
    while not completion.wait(_SECONDS_BETWEEN_LOOKS):
        done, total = look() if report else seen
        # Between two jobs of one action, all known tasks are done. Completion is reported only at
        # the end.
        if report and (done, total) != seen and done < total:
            report(done, total)
            seen = (done, total)
    if report and outcome.exception() is None and (total := look()[1] or seen[1]):
        report(total, total)


def _cancel(session: SparkSession, tag: str, completion: _Completion) -> None:
    """Cancel the jobs of an action until it has ended."""
    # Again and again: Spark cancels running jobs only, and the action may be about to start one.
    while not completion.wait(0):
        with contextlib.suppress(Exception):
            cancel(session, tag)
        completion.wait(_SECONDS_BETWEEN_CANCELS)
