"""The Spark session: finding it, and what differs between a classic and a Connect session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from numbers import Integral
from threading import Thread, current_thread
from typing import TYPE_CHECKING, Any, TypeAlias

from kartothek_cube.errors import InvalidInput, InvalidType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Watch", "cancel", "cores", "find_session", "inheriting_thread", "is_connect", "named", "session_of", "shown", "summed", "watching"]

Watch: TypeAlias = Callable[[], tuple[int, int]]
"""How many tasks are done, and how many there are; (0, 0) as long as nothing is known."""

# What Spark takes where nothing is set; some vendors have "auto" instead of a number.
_SHUFFLE_PARTITIONS = 200
_DESCRIPTION, _INTERRUPT = "spark.job.description", "spark.job.interruptOnCancel"


def find_session(given: SparkSession | None) -> SparkSession:
    """The given session, else the active one, else the default one: a new thread has no active one.

    Raises
    ------
    InvalidInput
        If there is none.
    """
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        return given or SparkSession.active()
    except PySparkRuntimeError as error:
        raise InvalidInput("There is no active Spark session; make one with SparkSession.builder.getOrCreate(), or give it as spark=.") from error


def session_of(frame: DataFrame) -> SparkSession:
    """The session to which a data frame belongs."""
    return frame.sparkSession


def shown(value: object) -> str:
    """The end of an error that something is no Spark data frame: rows in memory are not written out, but it is said where they can go.

    Examples
    --------
    >>> shown(5)
    '5.'
    >>> import pyarrow as pa
    >>> shown(pa.table({"UNITS": [1]}))
    'a Table of pyarrow. Rows in memory are for verbs such as build_cube, or become a Spark data frame by spark.createDataFrame.'
    """
    if not hasattr(value, "columns"):
        return f"{value!r:.200}."
    kind = type(value)
    where = "Rows in memory are for verbs such as build_cube, or become a Spark data frame by spark.createDataFrame."
    return f"a {kind.__name__} of {kind.__module__.partition('.')[0]}. {where}"


def is_connect(session: SparkSession) -> bool:
    """Whether this is a Spark Connect session, which has no ``sparkContext``."""
    return any(kind.__module__.startswith("pyspark.sql.connect") for kind in type(session).__mro__)


def _context(session: SparkSession) -> Any:
    """What only a classic session has; ask `is_connect` before."""
    return session.sparkContext


def cores(session: SparkSession, given: int | None) -> int:
    """How many tasks run at once: as given, else what the cluster says; Connect does not show it, so there it is the number of shuffle partitions."""
    if given is not None:
        return _checked_width(given)
    if is_connect(session):
        partitions = str(session.conf.get("spark.sql.shuffle.partitions"))
        return int(partitions) if partitions.isdecimal() else _SHUFFLE_PARTITIONS
    return int(_context(session).defaultParallelism)


def _checked_width(given: object) -> int:
    if isinstance(given, bool) or not isinstance(given, Integral):
        raise InvalidType(f"parallelism={given!r} is no whole number of tasks.")
    if given < 1:
        raise InvalidInput(f"parallelism={given!r} is no positive number of tasks.")
    return int(given)


def inheriting_thread(session: SparkSession, target: Callable[[], None], failed: Callable[[BaseException], None], ended: Callable[[], None]) -> Thread:
    """A thread in which the tags, group and scheduler pool hold that were set in this one.

    ``failed`` gets its error, also if Spark cannot hand these over; ``ended`` is called at its end.
    """
    from pyspark import InheritableThread

    class Inheriting(InheritableThread):
        def run(self) -> None:
            try:
                super().run()
            except BaseException as error:
                failed(error)
            finally:
                ended()

    return Inheriting(target=target, session=session, name="kartothek_cube action", daemon=True)


@contextmanager
def named(session: SparkSession, tag: str, text: str) -> Iterator[None]:
    """Tag what this thread starts, and on a classic session describe it; a job group of the user stays as it is."""
    if is_connect(session):
        session.addTag(tag)
        try:
            yield
        finally:
            session.removeTag(tag)
        return
    context = _context(session)
    before = {name: context.getLocalProperty(name) for name in (_DESCRIPTION, _INTERRUPT)}
    context.addJobTag(tag)
    context.setLocalProperty(_DESCRIPTION, text)
    context.setLocalProperty(_INTERRUPT, "true")
    try:
        yield
    finally:
        context.removeJobTag(tag)
        for name, value in before.items():
            context.setLocalProperty(name, value)


def cancel(session: SparkSession, tag: str) -> None:
    """Stop the jobs that carry a tag."""
    if is_connect(session):
        session.interruptTag(tag)
    else:
        _context(session).cancelJobsWithTag(tag)


@contextmanager
def watching(session: Any, tag: str, thread: Thread) -> Iterator[Watch]:
    """Watch the jobs that carry a tag, or on Connect, where progress has no tags, what the given thread runs."""
    if not is_connect(session):
        yield lambda: _task_counts(session, tag)
        return
    seen = [(0, 0)]

    def progressed(stages: Any, **_: Any) -> None:
        if current_thread() is thread and stages:
            seen[0] = summed([{s.stage_id: (s.num_completed_tasks, s.num_tasks, s.num_completed_tasks > 0) for s in stages}])

    session.registerProgressHandler(progressed)
    try:
        yield lambda: seen[0]
    finally:
        session.removeProgressHandler(progressed)


def _task_counts(session: SparkSession, tag: str) -> tuple[int, int]:
    context = _context(session)
    tracker = context.statusTracker()
    # The tracker of Python knows job groups only, and the group is the user's.
    jobs = [tracker.getJobInfo(job) for job in context._jsc.sc().statusTracker().getJobIdsForTag(tag)]  # noqa: SLF001
    stages = [{i: s for i in job.stageIds if (s := tracker.getStageInfo(i))} for job in jobs if job]
    return summed(
        [{i: (s.numCompletedTasks, s.numTasks, s.numActiveTasks + s.numCompletedTasks + s.numFailedTasks > 0) for i, s in own.items()} for own in stages]
    )


def summed(jobs: Iterable[Mapping[int, tuple[int, int, bool]]]) -> tuple[int, int]:
    """Tasks that are done, and all of them, from what each stage of each job says: done, all, and whether it has begun.

    Of each job those stages count that have begun, and the last one. Spark lists with a job also all stages whose rows lie there already from an earlier job,
    and skips them.
    """
    counted = {i: stage for job in jobs for i, stage in job.items() if stage[2] or i == max(job)}
    return sum(done for done, _, _ in counted.values()), sum(total for _, total, _ in counted.values())
