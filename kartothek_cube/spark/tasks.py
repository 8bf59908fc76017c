"""Cuts work into Spark tasks: many items in few tasks, and each task unpacks only its own."""

from __future__ import annotations

import itertools
import operator
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import zstandard

from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.metadata.statistics import reference_of
from kartothek_cube.core.runtime.options import current_options, use_options
from kartothek_cube.core.snapshots.statistics import statistics_of_files
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.stores.open import open_store
from kartothek_cube.errors import InvalidInput, InvalidType
from kartothek_cube.spark.actions import task_errors
from kartothek_cube.spark.python_worker import tuned_worker
from kartothek_cube.spark.session import to_tasks
from kartothek_cube.spark.types import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kartothek_cube.cube.query.plan import Group
    from kartothek_cube.spark.actions import Job

__all__ = [
    "CLOSURE_BYTES",
    "TASKS_PER_CORE",
    "THREADS_PER_TASK",
    "aperiodic",
    "as_task",
    "in_task",
    "known_sizes",
    "pack",
    "run_packed",
    "sampled_bytes",
    "sizes_of_groups",
    "task_count",
    "unpack",
]

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
