"""Work cut into tasks: many items packed into few Spark tasks, each of which unpacks only its own."""

from __future__ import annotations

import itertools
import operator
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import zstandard

from kartothek_cube.core.options import current_options, use_options
from kartothek_cube.core.store import Store
from kartothek_cube.core.stores import open_store
from kartothek_cube.errors import InvalidInput, InvalidType
from kartothek_cube.spark.errors import task_errors
from kartothek_cube.spark.types import spark_schema
from kartothek_cube.spark.worker import tuned_worker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kartothek_cube.spark.jobs import Job

__all__ = [
    "CLOSURE_BYTES",
    "TASKS_PER_CORE",
    "THREADS_PER_TASK",
    "aperiodic",
    "as_task",
    "in_task",
    "pack",
    "run_packed",
    "sampled_bytes",
    "task_count",
    "unpack",
]

T = TypeVar("T")
R = TypeVar("R")

TASKS_PER_CORE = 4
# In a task that writes, one file is encoded while another one is put; the other cores belong to the other tasks.
THREADS_PER_TASK = 2
CLOSURE_BYTES = 16 * 2**20
# Packed bytes that a core reads and joins in some tenths of a second.
_TASK_BYTES = 32 * 2**20
_SAMPLED = 16
_GOLDEN = 0.6180339887498949


def task_count(items: int, cores: int, per_task: int | None = None, nbytes: int | None = None) -> int:
    """Into how many tasks a number of items goes: a few for each core, since a task costs 100 ms; or as many as ``per_task`` asks for.

    ``nbytes`` says how much the items read, if that is known: what is read in less time than tasks take goes into one task for each core. Rows leave a task
    group by group, so that a task with many of them needs no more memory than one.
    """
    if per_task is None:
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
    """A place between 0 and 1: those of successive numbers lie evenly and in no period."""
    return number * _GOLDEN % 1


def sampled_bytes(store: Store | Callable[[], Store], items: Sequence[T], keys_of: Callable[[T], Iterable[str]]) -> int | None:
    """About how many bytes the files of some items have, from a few of them; None where that cannot be seen without a call of the store.

    No document says how large files are, and a store that is asked takes longer than a task.
    """
    opened = open_store(store)
    # Not every n-th one: partitions often come in periods.
    some = items if len(items) <= _SAMPLED else [items[int(aperiodic(i) * len(items))] for i in range(_SAMPLED)]
    paths = [opened.local_path(key) for item in some for key in keys_of(item)]
    try:
        return None if None in paths or not paths else sum(Path(str(path)).stat().st_size for path in paths) * len(items) // len(some)
    except OSError:
        return None


def pack(items: Sequence[Any], n_tasks: int) -> list[bytes]:
    """Items in order, in ``n_tasks`` even chunks, each pickled as one, so that what the items share is in it once."""
    bounds = [i * len(items) // max(n_tasks, 1) for i in range(n_tasks + 1)]
    compressor = zstandard.ZstdCompressor(level=1)
    return [compressor.compress(pickle.dumps(items[a:b])) for a, b in itertools.pairwise(bounds)]


def unpack(chunk: bytes) -> list[Any]:
    """The items of one chunk."""
    items: list[Any] = pickle.loads(zstandard.ZstdDecompressor().decompress(chunk))
    return items


def in_task(work: Callable[[T], Iterator[R]]) -> Callable[[T], Iterator[R]]:
    """The same work for a task: the options that hold here hold there, but for ``progress``, which belongs to the driver."""
    held = replace(current_options(), progress=False)

    def run(given: T) -> Iterator[R]:
        with use_options(held):
            yield from work(given)

    return run


def as_task(work: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], job: Job | None = None) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    """Work for ``mapInArrow``: with the options of here, with errors that the driver understands, and in Spark's plans under the name of the job."""
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
    held: int = 0,
) -> DataFrame:
    """A lazy data frame: one task a chunk, which calls ``work`` with its items. ``job`` is how the step is called in Spark's plans.

    ``held`` says how many bytes travel in the function anyway.
    """
    schema = spark_schema(wire)
    if not chunks:
        return session.createDataFrame([], schema)
    sent, chunk_of = _sent(session, chunks, held)

    def worked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for cell in batch.column(0).to_pylist():
                yield from work(unpack(chunk_of(cell)))

    return sent.mapInArrow(as_task(worked, job), schema)


def _sent(session: SparkSession, chunks: Sequence[bytes], held: int) -> tuple[DataFrame, Callable[[Any], bytes]]:
    """A data frame with one row a task, and how a task finds its chunk by the row's first value.

    Small chunks travel in the function, which Spark sends once to an executor, but every task unpickles. Large ones are the rows: each goes to its task alone.
    """
    n = len(chunks)
    if held + sum(map(len, chunks)) <= CLOSURE_BYTES:
        return session.range(0, n, 1, n), list(chunks).__getitem__
    rows = pa.table({"chunk": pa.array(chunks, pa.binary()), "task": pa.array(range(n), pa.int32())})
    return session.createDataFrame(rows, "chunk binary, task int").repartitionById(n, "task"), bytes
