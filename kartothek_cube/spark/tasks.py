"""Work in Spark: actions, tasks, and the executor of maintenance verbs.

*Driver* is Spark's driver process, here and in all of `kartothek_cube.spark`.

In order:

- actions: named in Spark's UI, with progress, and errors as their own types
- Spark's Python worker: its connection, garbage collection, temporary files
- many items in few tasks, each unpacks only its own
- the executor
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import operator
import os
import pickle
import re
import socket
import sys
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import zstandard

from kartothek_cube.core.metadata.naming import new_id
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.metadata.statistics import reference_of
from kartothek_cube.core.runtime.executor import THREADS, MaybeRemote, Task, map_in_threads
from kartothek_cube.core.runtime.options import Phase, ProgressReporter, current_options, use_options
from kartothek_cube.core.runtime.telemetry import counting, progress_reporter, record_counts
from kartothek_cube.core.snapshots.statistics import statistics_of_files
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.stores.open import open_store, store_factory
from kartothek_cube.core.stores.shipping import Opener, Stores, Unpickler, open_all
from kartothek_cube.errors import CorruptData, InvalidInput, InvalidType, KartothekCubeError, Unsupported
from kartothek_cube.spark.session import (
    Watch,
    cancel,
    cores,
    find_session,
    inheriting_thread,
    named,
    session_of,
    to_tasks,
    watching,
)
from kartothek_cube.spark.types import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kartothek_cube.cube.query.plan import Group


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


Result = TypeVar("Result")

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


def perform(session: SparkSession, action: Callable[[], Result], job: Job) -> Result:
    """Run an action of Spark as `collect` does."""
    tag, report = job.tag(), progress_reporter(Phase(job.phase, "tasks"))
    outcome, completion = Future[Result](), _Completion()

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


# --- Spark's Python worker ------------------------------------------------------------------------


# 0 leaves socket and garbage collector alone. An environment variable, not an option of a call: a
# worker serves all tasks of a session, also those that the data source plans outside of any call.
_SWITCH = "KARTOTHEK_CUBE_TUNE_WORKERS"


@contextmanager
def tuned_worker() -> Iterator[None]:
    """Around a task: send messages to the JVM at once, and shorten later garbage collections."""
    if not _is_worker() or os.environ.get(_SWITCH) == "0":
        yield
        return
    send_at_once()
    yield
    # Spark's workers collect garbage between tasks, which takes 40 ms with the modules of Arrow,
    # pandas and this library. What survives the first of these collections is frozen: only modules,
    # since the task's function and the user's data are gone by then.
    if gc.get_freeze_count() == 0 and _freeze not in gc.callbacks:
        gc.callbacks.append(_freeze)


def _freeze(phase: str, info: dict[str, int]) -> None:
    """A callback of `gc`: freezes once, after the next full collection."""
    if phase == "stop" and info["generation"] == 2:
        gc.callbacks.remove(_freeze)
        gc.freeze()


def _is_worker() -> bool:
    from pyspark import TaskContext

    return TaskContext.get() is not None


def send_at_once() -> None:
    """Switch off Nagle's algorithm and delayed acknowledgement on the connection to the JVM.

    Spark sends a worker first the task's function and then its rows. A few rows stay in the JVM's
    send buffer until the worker has acknowledged the function, and a delayed acknowledgement waits
    40 ms for data to travel with. With these two options the worker acknowledges at once.
    """
    number = _connection_to_spark()
    if number is None:
        return
    # Unix sockets have no such options.
    with suppress(OSError), socket.socket(fileno=os.dup(number)) as connection:
        if connection.family in (socket.AF_INET, socket.AF_INET6) and connection.type == socket.SOCK_STREAM:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if hasattr(socket, "TCP_QUICKACK"):  # Linux
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


def _connection_to_spark() -> int | None:
    """The descriptor of the connection on which PySpark answers this task, or None."""
    # PySpark passes the connection to no task, but `main` of its worker, which runs all tasks, has
    # the argument `outfile`. Any other way to find a socket could hit one of the user's.
    frame: FrameType | None = sys._getframe()  # noqa: SLF001
    while frame is not None:
        file = frame.f_code.co_filename.replace(os.sep, "/")
        if frame.f_code.co_name == "main" and file.endswith("pyspark/worker.py"):
            break
        frame = frame.f_back
    with suppress(AttributeError, OSError, ValueError):
        return int(frame.f_locals["outfile"].fileno()) if frame is not None and "outfile" in frame.f_locals else None
    return None


@contextmanager
def spilling_beside_spark() -> Iterator[None]:
    """Put temporary files into Spark's local directories, unless the environment names another.

    Spark's disks are meant for large files, and Spark removes the files of killed tasks with the
    application.
    """
    before = tempfile.tempdir
    if not any(map(os.environ.get, ("TMPDIR", "TEMP", "TMP"))):
        disks = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
        writable = [disk for disk in disks if os.access(disk, os.W_OK | os.X_OK)]
        # Workers spread over the disks.
        tempfile.tempdir = writable[os.getpid() % len(writable)] if writable else before
    try:
        yield
    finally:
        tempfile.tempdir = before


# --- many items in few tasks ----------------------------------------------------------------------


T = TypeVar("T")
R = TypeVar("R")

TASKS_PER_CORE = 4
# A writing task encodes one file while it uploads another. The other cores belong to other tasks.
THREADS_PER_TASK = 2
CLOSURE_BYTES = 16 * 2**20
# Bytes of files that a core reads and joins in some tenths of a second.
_TASK_BYTES = 32 * 2**20
_SAMPLED = 16
_FEW_FILES = 64
_GOLDEN = 0.6180339887498949


def task_count(items: int, cores: int, per_task: int | None = None, nbytes: int | None = None) -> int:
    """The number of tasks for some items: a few for each core, or one for ``per_task`` items.

    ``nbytes`` is the size of the files of all items, if known. Small files get one task a core.
    """
    if per_task is None:
        # A task costs 100 ms, so few bytes are read in fewer rounds. Large tasks need no more
        # memory than small ones: rows leave a task group by group.
        rounds = TASKS_PER_CORE if nbytes is None else nbytes // (_TASK_BYTES * cores)
        return min(items, cores * min(max(rounds, 1), TASKS_PER_CORE))
    try:
        size = operator.index(per_task)
    except TypeError as error:
        raise InvalidType(f"blocksize={per_task!r} is no whole number.") from error
    if size < 1:
        raise InvalidInput(f"blocksize={per_task!r} is no positive number of groups.")
    return -(-items // size)


def aperiodic(number: int) -> float:
    """A point in [0, 1): points of successive numbers are evenly spread, without a period."""
    return number * _GOLDEN % 1


def sampled_bytes(
    store: Store | Callable[[], Store], items: Sequence[T], keys_of: Callable[[T], Iterable[str]]
) -> int | None:
    """Bytes of the files of all items, estimated from a few; None unless files are local."""
    # No document has the sizes, and remote stores take longer to answer than a task to run.
    opened = open_store(store)
    # Not every n-th item: partitions often repeat with a period.
    some = items if len(items) <= _SAMPLED else [items[int(aperiodic(i) * len(items))] for i in range(_SAMPLED)]
    paths = [opened.local_path(key) for item in some for key in keys_of(item)]
    if None in paths or not paths:
        return None
    try:
        return sum(Path(str(path)).stat().st_size for path in paths) * len(items) // len(some)
    except OSError:
        return None


def known_sizes(store: Store, snapshot: Snapshot, files: pa.Array) -> list[int] | None:
    """The bytes of each of these data files by statistics; None if some are unknown."""
    # A request for them pays where there are many files.
    if len(files) <= _FEW_FILES and reference_of(snapshot.document.metadata).stored:
        return None
    sizes = statistics_of_files(store, snapshot, files).sizes
    return None if sizes.null_count else sizes.to_pylist()


def sizes_of_groups(store: Store, snapshots: Iterable[Snapshot], groups: Sequence[Group]) -> list[int] | None:
    """The bytes of the files of each group by statistics; None if some are unknown."""
    sizes: dict[str, int] = {}
    for snapshot in snapshots:
        known = known_sizes(store, snapshot, snapshot.files)
        if known is None:
            return None
        sizes.update(zip(snapshot.files.to_pylist(), known, strict=True))
    return [sum(map(sizes.__getitem__, group.file_keys())) for group in groups] if sizes else None


def pack(items: Sequence[Any], n_tasks: int, sizes: Sequence[int] | None = None) -> list[bytes]:
    """Items in order, in ``n_tasks`` even chunks, each one compressed pickle.

    With ``sizes``, bytes of each item, chunks have about equal bytes, and none is empty.
    """
    # One pickle a chunk stores objects that its items share once.
    bounds = [i * len(items) // max(n_tasks, 1) for i in range(n_tasks + 1)]
    if sizes is not None and items:
        ends = np.cumsum(np.maximum(sizes, 1))
        # An item belongs to the task in which its middle is.
        tasks = (2 * ends - np.maximum(sizes, 1)) * n_tasks // (2 * ends[-1])
        bounds = [*np.unique(np.searchsorted(tasks, np.arange(n_tasks + 1))).tolist()]
    compressor = zstandard.ZstdCompressor(level=1)
    return [compressor.compress(pickle.dumps(items[a:b])) for a, b in itertools.pairwise(bounds)]


def unpack(chunk: bytes) -> list[Any]:
    """The items of one chunk."""
    items: list[Any] = pickle.loads(zstandard.ZstdDecompressor().decompress(chunk))
    return items


def in_task(work: Callable[[T], Iterator[R]]) -> Callable[[T], Iterator[R]]:
    """The same work for a task, under the current options without ``progress``."""
    settings = replace(current_options(), progress=False)

    def run(given: T) -> Iterator[R]:
        with use_options(settings):
            yield from work(given)

    return run


def as_task(
    work: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], job: Job | None = None
) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    """Work as a function for ``mapInArrow``: with the current options and with `task_errors`.

    Spark's plans show the function under the name of the job.
    """
    working = in_task(work)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with task_errors(), tuned_worker():
            yield from working(batches)

    if job is not None:
        task.__name__ = str(job)
    return task


def run_packed(
    session: SparkSession,
    chunks: Sequence[bytes],
    work: Callable[[list[Any]], Iterator[pa.RecordBatch]],
    wire: pa.Schema,
    job: Job | None = None,
    closure_bytes: int = 0,
) -> DataFrame:
    """A lazy data frame: one task a chunk, which calls ``work`` with its items.

    ``job`` names the step in Spark's plans, ``closure_bytes`` is the size of the data that
    ``work`` itself holds.
    """
    schema = spark_schema(wire)
    n = len(chunks)
    if not chunks:
        return session.createDataFrame([], schema)
    chunk_of: Callable[[Any], bytes]
    if closure_bytes + sum(map(len, chunks)) <= CLOSURE_BYTES:
        # Small chunks travel in the function: Spark sends it once to each executor, but every task
        # unpickles it.
        sent, chunk_of = session.range(0, n, 1, n), list(chunks).__getitem__
    else:
        # Large chunks are rows, each of which goes to its task alone.
        rows = pa.table({"chunk": pa.array(chunks, pa.binary()), "task": pa.array(range(n), pa.int32())})
        sent, chunk_of = to_tasks(session.createDataFrame(rows, "chunk binary, task int"), n), bytes

    def worked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for cell in batch.column(0).to_pylist():
                yield from work(unpack(chunk_of(cell)))

    return sent.mapInArrow(as_task(worked, job), schema)


# --- the executor ---------------------------------------------------------------------------------


# Fewer items run in threads of the driver process: a job costs some tenths of a second, in which
# threads make a few hundred calls of a store.
FEWEST_LIGHT, FEWEST_HEAVY = 200, 2
# So many light items take about as long as the start of a task. Connect does not show the number of
# cores; without this bound it would start hundreds of tasks.
_LIGHT_PER_TASK = 25

_RESULTS = pa.schema([("task", pa.int32()), ("results", pa.binary()), ("error", pa.string())])


def tasks_for(task: Task, items: int, width: int) -> int:
    """The number of tasks for some items, where ``width`` tasks run at once."""
    n = task_count(items, width)
    return n if task.heavy else min(n, -(-items // _LIGHT_PER_TASK))


@dataclass(frozen=True, slots=True)
class SparkExecutor:
    """Maps functions of maintenance verbs over items: one Spark job each, or threads for few items.

    Attributes
    ----------
    session : SparkSession
        The session that runs the jobs.
    width : int
        The number of tasks that run at once.
    stores : Stores
        The stores of the verb.
    verb, subject : str
        What the jobs are called in Spark's UI.
    """

    session: SparkSession
    width: int
    stores: Stores
    verb: str
    subject: str

    def map(self, task: Task, items: Sequence[Any], store: MaybeRemote | None = None) -> Generator[Any, None, None]:
        """Results in the order of the items, as `Executor` promises."""
        if len(items) < (FEWEST_HEAVY if task.heavy else FEWEST_LIGHT):
            yield from THREADS.map(task, items, store)
            return
        n = tasks_for(task, len(items), self.width)
        bounds = [i * len(items) // n for i in range(n + 1)]
        # Pickled twice: the inner pickle numbers the stores, and `pack` compresses the outer one.
        payloads = [(i, self.stores.dumps(items[a:b])) for i, (a, b) in enumerate(pairwise(bounds))]
        job = Job(self.verb, self.subject, f"{len(items)} {task.phase.unit}", task.phase.name)
        run_payloads = partial(_run_payloads, self.stores.dumps(task), self.stores.openers)
        rows = collect(run_packed(self.session, pack(payloads, n), run_payloads, _RESULTS, job), job)
        yield from _in_order(rows, n)


def _run_payloads(
    pickled: bytes, openers: Sequence[Opener], payloads: list[tuple[int, bytes]]
) -> Iterator[pa.RecordBatch]:
    """In a Spark task: one row of results for each payload."""
    stores = open_all(openers)
    task: Task = Unpickler(pickled, stores).load()
    settings = current_options()
    threads = settings.threads or (THREADS_PER_TASK if task.heavy else None)
    for number, data in payloads:
        results, message = None, None
        try:
            with counting() as counted, use_options(replace(settings, threads=threads)):
                items = Unpickler(data, stores).load()
                values = list(map_in_threads(task.func, items, weight=task.weight))
            results = pickle.dumps((values, counted.counts))
        except KartothekCubeError as error:
            # A row instead of a failed task: Spark would retry, and no retry helps.
            message = encode_error(error)
        yield pa.record_batch([[number], [results], [message]], schema=_RESULTS)


def _in_order(rows: Sequence[Any], n_tasks: int) -> Iterator[Any]:
    rows = sorted(rows, key=lambda row: row["task"])
    for row in rows:
        if row["error"]:
            raise decode_error(row["error"])
    if [row["task"] for row in rows] != list(range(n_tasks)):
        raise CorruptData(
            f"Spark returned results of the tasks {[row['task'] for row in rows]}, not one of each of {n_tasks}."
        )
    for row in rows:
        results, counts = pickle.loads(bytes(row["results"]))
        record_counts(counts)
        yield from results


def spark_executor(
    verb: str, subject: str, opened: Sequence[tuple[Store, Any]], spark: SparkSession | None, parallelism: int | None
) -> SparkExecutor:
    """Make the executor of one call of a verb.

    Parameters
    ----------
    verb, subject : str
        What the jobs are called in Spark's UI.
    opened : sequence of tuple
        The open stores of the verb, each with the user's argument, which Spark's executors open.
    spark, parallelism
        The user's arguments.

    Raises
    ------
    InvalidType
        If other processes cannot open a store.
    InvalidInput
        If there is no session, or ``parallelism`` is not positive.
    """
    from pyspark import cloudpickle

    stores = Stores([(store, store_factory(given)) for store, given in opened], cloudpickle.Pickler)
    session = find_session(spark)
    return SparkExecutor(session, cores(session, parallelism), stores, verb, subject)
