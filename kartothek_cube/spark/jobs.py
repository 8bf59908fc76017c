"""The one action of a verb on the driver: named in Spark's UI, with progress, cancelled by Ctrl-C, its errors as types of this library."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

from kartothek_cube.core.naming import fresh_id
from kartothek_cube.core.progress import Phase, ProgressReporter
from kartothek_cube.core.telemetry import progress_reporter
from kartothek_cube.spark.errors import driver_errors
from kartothek_cube.spark.session import Watch, cancel, inheriting_thread, named, session_of, watching

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Job", "collect", "perform"]

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
        return f"kartothek_cube:{self.verb}:{self.subject}:{fresh_id()}".replace(",", " ")


def collect(frame: DataFrame, job: Job) -> list[Any]:
    """Run a data frame, exactly once, and return its rows.

    The jobs of Spark carry the description of ``job`` and a tag; a job group, a pool or tags that the user has set stay. The option ``progress`` gets the
    tasks that are done and all tasks, in the calling thread. Ctrl-C cancels the jobs, and so does an error of the progress function.
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
    with driver_errors(), report or contextlib.nullcontext(), watching(session, tag, thread) as watch, _aside() as calls:
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

    Of a simple queue, unlike of events, futures and threads, no lock stays behind where an interrupt hits a wait. One that comes just before a wait is noticed
    after it, so that no wait is without an end.
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

    An interrupt that hits a conversation with the JVM would leave the connection of its thread unusable. So the thread that can be interrupted has none.
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
        # Between two jobs of one action all is done that is known of: what "all" is, is only said at the end.
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
