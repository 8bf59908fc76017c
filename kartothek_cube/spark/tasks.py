"""Work cut into tasks: many items packed into few Spark tasks, each of which unpacks only its own."""

from __future__ import annotations

import itertools
import operator
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import zstandard

from kartothek_cube.errors import InvalidInput, InvalidType
from kartothek_cube.spark.errors import task_errors
from kartothek_cube.spark.types import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["TASKS_PER_CORE", "pack", "run_packed", "task_count", "unpack"]

TASKS_PER_CORE = 4


def task_count(items: int, cores: int, per_task: int | None = None) -> int:
    """Into how many tasks a number of items goes: a few for each core, since a task costs 40 ms; or as many as ``per_task`` asks for."""
    if per_task is None:
        return min(items, TASKS_PER_CORE * cores)
    try:
        size = operator.index(per_task)
    except TypeError as error:
        raise InvalidType(f"blocksize={per_task!r} is no whole number.") from error
    if size < 1:
        raise InvalidInput(f"blocksize={per_task!r} is no positive number of groups.")
    return -(-items // size)


def pack(items: Sequence[Any], n_tasks: int) -> list[bytes]:
    """Items in order, in ``n_tasks`` even chunks, each pickled as one, so that what the items share is in it once."""
    bounds = [i * len(items) // max(n_tasks, 1) for i in range(n_tasks + 1)]
    compressor = zstandard.ZstdCompressor(level=1)
    return [compressor.compress(pickle.dumps(items[a:b])) for a, b in itertools.pairwise(bounds)]


def unpack(chunk: bytes) -> list[Any]:
    """The items of one chunk."""
    items: list[Any] = pickle.loads(zstandard.ZstdDecompressor().decompress(chunk))
    return items


def run_packed(session: SparkSession, chunks: Sequence[bytes], work: Callable[[list[Any]], Iterator[pa.RecordBatch]], wire: pa.Schema) -> DataFrame:
    """A lazy data frame: one task a chunk, which calls ``work`` with its items."""
    schema = spark_schema(wire)
    if not chunks:
        return session.createDataFrame([], schema)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with task_errors():
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from work(unpack(chunks[number]))

    return session.range(0, len(chunks), 1, len(chunks)).mapInArrow(task, schema)
