"""The one action of a verb on the driver, named in Spark's UI, with progress; and errors of tasks on their way to it."""

from __future__ import annotations

import contextlib
import json
import re
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
from kartothek_cube.core.runtime.progress import Phase, ProgressReporter
from kartothek_cube.core.runtime.telemetry import progress_reporter
from kartothek_cube.errors import KartothekCubeError
from kartothek_cube.spark.session import Watch, cancel, inheriting_thread, named, session_of, watching

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Job", "collect", "decode_error", "driver_errors", "encode_error", "error_in", "perform", "task_errors"]

_MARK = "kartothek_cube error: "

_LONGEST = 4_000

_LINE = re.compile(re.escape(_MARK) + r"(\{.*\})")


class TaskFailed(RuntimeError):
    """An error of this library in a task; its text carries kind and message."""


def encode_error(error: KartothekCubeError, longest: int | None = None) -> str:
    """Kind and message in one line; of a message that takes more than about ``longest`` characters the middle is left out."""
    text, line = str(error), json.dumps({"kind": error.kind, "message": str(error)})
    if longest is None or len(line) <= longest:
        return line
    kept = longest * len(text) // len(line) // 2
    return json.dumps(
        {"kind": error.kind, "message": f"{text[:kept]} … ({len(text) - 2 * kept:,} characters) … {text[-kept:]}"}
    )


def decode_error(text: str) -> KartothekCubeError:
    """The error that `encode_error` made a line of."""
    values = json.loads(text)
    return _kinds(KartothekCubeError).get(values["kind"], KartothekCubeError)(values["message"])


def _kinds(base: type[KartothekCubeError]) -> dict[str, type[KartothekCubeError]]:
    """The class that stands for each kind; one that inherits its kind comes back as the class it has it from."""
    kinds = {base.kind: base} if "kind" in vars(base) else {}
    for child in base.__subclasses__():
        kinds |= _kinds(child)
    return kinds


def error_in(text: str) -> KartothekCubeError | None:
    """The error of this library that a message of Spark quotes, unless it has cut it off."""
    found = _LINE.search(text)
    try:
        return decode_error(found[1]) if found else None
    except ValueError:
        return None


@contextmanager
def task_errors() -> Iterator[None]:
    """In a task: errors of this library leave as text that the driver understands."""
    try:
        yield
    except KartothekCubeError as error:
        # The message once, the frames of where it came from: what is much longer than this does not
        # arrive through Spark Connect.
        raise TaskFailed(_MARK + encode_error(error, _LONGEST)).with_traceback(error.__traceback__) from None


@contextmanager
def driver_errors() -> Iterator[None]:
    """Around an action on the driver: errors of this library that happened in a task are raised as their own type.

    The verbs that act when they are called do so themselves. Around your own action on a data frame
    of `query_cube_spark` or `map_cube_groups` it is your choice. What Spark said is not printed,
    since it would bury the message; it is the ``__context__`` of the error.

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
        own = error_in(str(error))
        if own is None:
            raise
        raise own from None


R = TypeVar("R")

_SECONDS_BETWEEN_LOOKS = 0.25

_SECONDS_BETWEEN_CANCELS = 0.5


@dataclass(frozen=True, slots=True)
class Job:
    """What Spark's UI says: the verb, its cube or dataset, and how much there is to do; and the phase of the verb that those who watch are told."""

    verb: str
    subject: str
    detail: str = ""
    phase: str = "read"

    def __str__(self) -> str:
        return f"kartothek_cube: {self.verb} {self.subject}" + (f", {self.detail}" if self.detail else "")

    def tag(self) -> str:
        """A tag for one run, which no other run has. Spark refuses commas in tags."""
        return f"kartothek_cube:{self.verb}:{self.subject}:{new_id()}".replace(",", " ")


def collect(frame: DataFrame, job: Job) -> list[Any]:
    """Run a data frame, exactly once, and return its rows.

    The jobs of Spark carry the description of ``job`` and a tag; a job group, a pool or tags that
    the user has set stay. The option ``progress`` gets the tasks that are done and all tasks, in
    the calling thread. Ctrl-C cancels the jobs, and so does an error of the progress function.
    """
    return list(perform(session_of(frame), frame.collect, job))


def perform(session: SparkSession, action: Callable[[], R], job: Job) -> R:
    """Run an action of Spark as `collect` does."""
    tag, report = job.tag(), progress_reporter(Phase(job.phase, "tasks"))
    outcome, over = Future[R](), _Over()

    def described() -> None:
        with named(session, tag, str(job)):
            outcome.set_result(action())

    def failed(error: BaseException) -> None:
        if not outcome.done():
            outcome.set_exception(error)

    context = copy_context()
    thread = inheriting_thread(session, lambda: context.run(described), failed, over.tell)
    with (
        driver_errors(),
        report or contextlib.nullcontext(),
        watching(session, tag, thread) as watch,
        _aside() as calls,
    ):
        try:
            thread.start()
            _follow(over, partial(_answer, calls, partial(_look, watch)), report, outcome)
        except BaseException:
            if thread.ident is not None:
                calls.put(partial(_cancel, session, tag, over))
                while not over.wait(_SECONDS_BETWEEN_CANCELS):
                    pass
            raise
        return outcome.result()


class _Over:
    """Whether an action has ended.

    Of a simple queue, unlike of events, futures and threads, no lock stays behind where an
    interrupt hits a wait. One that comes just before a wait is noticed after it, so that no wait is
    without an end.
    """

    def __init__(self) -> None:
        self._told: SimpleQueue[None] = SimpleQueue()

    def tell(self) -> None:
        """It has."""
        self._told.put(None)

    def wait(self, seconds: float) -> bool:
        """Wait for it, at most so long; whether it has ended."""
        try:
            self._told.get(timeout=seconds)
        except Empty:
            return False
        self.tell()
        return True


@contextlib.contextmanager
def _aside() -> Iterator[SimpleQueue[Callable[[], object] | None]]:
    """A queue of calls that a thread of its own makes.

    An interrupt that hits a conversation with the JVM would leave the connection of its thread
    unusable. So the thread that can be interrupted has none.
    """
    calls: SimpleQueue[Callable[[], object] | None] = SimpleQueue()

    def make() -> None:
        for call in iter(calls.get, None):
            call()

    Thread(target=make, name="kartothek_cube watch", daemon=True).start()
    try:
        yield calls
    finally:
        calls.put(None)


def _answer(calls: SimpleQueue[Callable[[], object] | None], ask: Callable[[], R]) -> R:
    answers: SimpleQueue[R] = SimpleQueue()
    calls.put(lambda: answers.put(ask()))
    return answers.get()


def _look(watch: Watch) -> tuple[int, int]:
    """What a watch says; nothing where a session does not let it look, since the action goes on without it."""
    try:
        return watch()
    except Exception:
        return 0, 0


def _follow(over: _Over, watch: Watch, report: ProgressReporter | None, outcome: Future[Any]) -> None:
    """Wait for the end of an action, and report meanwhile how much of it is done."""
    seen = (0, 0)
    while not over.wait(_SECONDS_BETWEEN_LOOKS):
        done, total = watch() if report else seen
        # Between two jobs of one action all is done that is known of: what "all" is, is only said
        # at the end.
        if report and (done, total) != seen and done < total:
            report(done, total)
            seen = (done, total)
    if report and outcome.exception() is None and (total := watch()[1] or seen[1]):
        report(total, total)


def _cancel(session: SparkSession, tag: str, over: _Over) -> None:
    """Cancel an action until it has ended: a job that had not begun when it was cancelled would begin after it."""
    while not over.wait(0):
        with contextlib.suppress(Exception):
            cancel(session, tag)
        over.wait(_SECONDS_BETWEEN_CANCELS)
