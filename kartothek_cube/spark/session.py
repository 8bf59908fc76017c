"""The Spark session: how to find it, and the differences between classic and Connect sessions."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from numbers import Integral
from threading import Thread, current_thread
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from kartothek_cube.errors import InvalidInput, InvalidType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


P = ParamSpec("P")
T = TypeVar("T")

Watch: TypeAlias = Callable[[], tuple[int, int]]
"""Returns the numbers of finished and of all tasks; (0, 0) as long as none is known."""

# Spark's default. Some vendors set "auto" instead of a number.
_SHUFFLE_PARTITIONS = 200
_DESCRIPTION, _INTERRUPT = "spark.job.description", "spark.job.interruptOnCancel"


_FRAMES = ("data", "df")  # what verbs that write call their data frame, which comes first


def session_by_keyword(verb: Callable[P, T]) -> Callable[P, T]:
    """A verb that refuses a session, or its data frame, in the place of another argument.

    Raises
    ------
    InvalidType
        With the call as it would be right.
    """

    @wraps(verb)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        _check_places(verb, args, kwargs)
        return verb(*args, **kwargs)

    return checked


def _check_places(verb: Callable[..., object], args: Sequence[object], named: Mapping[str, object]) -> None:
    others = {name: value for name, value in named.items() if name != "spark" and not _is_session(value)}
    rest = [value for value in args if not _is_session(value)]
    has_session = len(rest) + len(others) < len(args) + len(named.keys() - {"spark"})
    places = [p.name for p in inspect.signature(verb).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    takes_frame = places[0] in _FRAMES and places[0] not in named
    astray = [value for value in rest[1:] if _has_frame(value)] if takes_frame and not _has_frame(rest[:1]) else []
    if not has_session and not astray:
        return
    found = ["the session is the keyword spark="] if has_session else []
    if astray:
        rest = [astray[0], *(value for value in rest if value is not astray[0])]
        found.append(f"{places[0]}, the data frame, comes first")
    call = [_argument(name, value) for name, value in zip(places, rest, strict=False)]
    call += [f"{name}={_argument(name, value)}" for name, value in others.items()]
    call += ["spark=spark"] if has_session or "spark" in named else []
    name = verb.__name__
    raise InvalidType(f"{name}: {' and '.join(found)}. The call is {name}({', '.join(call)}).")


def _is_session(value: object) -> bool:
    # By name: classic and Connect have a class each, and importing that of Connect needs gRPC.
    return any(c.__name__ == "SparkSession" and c.__module__.startswith("pyspark.") for c in type(value).__mro__)


def _has_frame(value: object) -> bool:
    """Whether this is a data frame of Spark, or holds one."""
    values = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else [value]
    return any(hasattr(each, "mapInArrow") for each in values)


def _argument(place: str, value: object) -> str:
    """An argument as it stands in a call: a short plain value, else the name of its place."""
    text = repr(value)
    # The text of a store may have credentials.
    is_plain = value is None or (isinstance(value, (str, int, float, list)) and not _has_frame(value))
    return text if is_plain and len(text) <= 60 and "://" not in text and "store" not in place else place


def find_session(given: SparkSession | None) -> SparkSession:
    """The given session, else the active one, else the default one.

    Raises
    ------
    InvalidInput
        If there is no session.
    """
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        return given or SparkSession.active()
    except PySparkRuntimeError as error:
        raise InvalidInput(
            "There is no active Spark session; make one with SparkSession.builder.getOrCreate(), or give it as spark=."
        ) from error


def session_of(frame: DataFrame) -> SparkSession:
    """The session of a data frame."""
    return frame.sparkSession


def shown(value: object) -> str:
    """The end of an error message about a value that is no Spark data frame.

    Rows in memory are not shown; the message names the verbs that take them.

    Examples
    --------
    >>> shown(5)
    '5.'
    >>> import pyarrow as pa
    >>> shown(pa.table({"UNITS": [1]}))
    'a Table of pyarrow. Rows in memory are for verbs such as build_cube, or ...'
    """
    if not hasattr(value, "columns"):
        return f"{value!r:.200}."
    cls = type(value)
    hint = "Rows in memory are for verbs such as build_cube, or become a Spark data frame by spark.createDataFrame."
    return f"a {cls.__name__} of {cls.__module__.partition('.')[0]}. {hint}"


def is_connect(session: SparkSession) -> bool:
    """Whether this is a Spark Connect session, which has no ``sparkContext``."""
    return any(cls.__module__.startswith("pyspark.sql.connect") for cls in type(session).__mro__)


_SAIL: WeakKeyDictionary[SparkSession, bool] = WeakKeyDictionary()


def is_sail(session: SparkSession) -> bool:
    """Whether the server of a Connect session is Sail, which is asked once a session."""
    if session not in _SAIL:
        # Both servers name Spark's version to the client. In SQL, Sail says its own.
        said = session.sql("SELECT version()").collect()[0][0] if is_connect(session) else session.version
        _SAIL[session] = not session.version.startswith(said.split()[0])
    return _SAIL[session]


def to_tasks(frame: DataFrame, n_tasks: int) -> DataFrame:
    """Send each row to the task whose number is in the column ``task``.

    Sail has no such shuffle. There the rows of several numbers may meet in one task.
    """
    if is_sail(session_of(frame)):
        return frame.repartition(n_tasks, "task")
    return frame.repartitionById(n_tasks, "task")


def _context(session: SparkSession) -> Any:
    """The context of a classic session; a Connect session has none."""
    return session.sparkContext


def cores(session: SparkSession, given: int | None) -> int:
    """How many tasks run at once: ``given``, else the default parallelism of the session.

    Connect does not show that, so the number of shuffle partitions stands for it; on Sail, which
    runs in a process of this machine as a rule, that of the cores here.

    Raises
    ------
    InvalidType, InvalidInput
        If ``given`` is no positive whole number.
    """
    if given is not None:
        width: object = given
        if isinstance(width, bool) or not isinstance(width, Integral):
            raise InvalidType(f"parallelism={width!r} is no whole number of tasks.")
        if width < 1:
            raise InvalidInput(f"parallelism={width!r} is no positive number of tasks.")
        return int(width)
    if is_sail(session):
        return os.cpu_count() or 1
    if is_connect(session):
        partitions = str(session.conf.get("spark.sql.shuffle.partitions"))
        return int(partitions) if partitions.isdecimal() else _SHUFFLE_PARTITIONS
    return int(_context(session).defaultParallelism)


def inheriting_thread(
    session: SparkSession,
    target: Callable[[], None],
    failed: Callable[[BaseException], None],
    ended: Callable[[], None],
) -> Thread:
    """A thread that inherits tags, job group and scheduler pool of the current thread.

    ``failed`` gets the error of the thread, also that of a failed inheritance; ``ended`` is called
    at the end.
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
    """Tag the jobs of this thread, on a classic session also describe them. The job group stays."""
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
    """Cancel the jobs with a tag."""
    if is_connect(session):
        session.interruptTag(tag)
    else:
        _context(session).cancelJobsWithTag(tag)


@contextmanager
def watching(session: Any, tag: str, thread: Thread) -> Iterator[Watch]:
    """Watch the jobs with a tag; on Connect, whose progress has no tags, those of a thread."""
    if not is_connect(session):
        yield lambda: _task_counts(session, tag)
        return
    seen = [(0, 0)]

    def progressed(stages: Any, **_: Any) -> None:
        if current_thread() is thread and stages:
            seen[0] = summed(
                [{s.stage_id: (s.num_completed_tasks, s.num_tasks, s.num_completed_tasks > 0) for s in stages}]
            )

    session.registerProgressHandler(progressed)
    try:
        yield lambda: seen[0]
    finally:
        session.removeProgressHandler(progressed)


def _task_counts(session: SparkSession, tag: str) -> tuple[int, int]:
    context = _context(session)
    tracker = context.statusTracker()
    # Python's tracker finds jobs by group only, and the group is the user's. The JVM's finds tags.
    jobs = [tracker.getJobInfo(job) for job in context._jsc.sc().statusTracker().getJobIdsForTag(tag)]  # noqa: SLF001
    counted = []
    for job in filter(None, jobs):
        stages = {i: stage for i in job.stageIds if (stage := tracker.getStageInfo(i))}
        counted.append(
            {
                i: (s.numCompletedTasks, s.numTasks, s.numActiveTasks + s.numCompletedTasks + s.numFailedTasks > 0)
                for i, s in stages.items()
            }
        )
    return summed(counted)


def summed(jobs: Iterable[Mapping[int, tuple[int, int, bool]]]) -> tuple[int, int]:
    """Finished and all tasks of some jobs, each a dict stage id → (finished, all, has begun).

    A job counts its stages that have begun, and the last stage.
    """
    # Spark also lists the stages that a job skips, since an earlier job left their shuffle files.
    counted = {i: stage for job in jobs for i, stage in job.items() if stage[2] or i == max(job)}
    return sum(done for done, _, _ in counted.values()), sum(total for _, total, _ in counted.values())
