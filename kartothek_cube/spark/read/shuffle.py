"""Groups that share files: each file is read once, and rows are shuffled to their groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kartothek_cube.core.arguments import pluralize
from kartothek_cube.core.arrow.keys import IntArray, group_numbers, group_starts, one_value, pack_one
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.stores.open import open_store
from kartothek_cube.cube.execute.load import PartitionLoader
from kartothek_cube.cube.query.plan import QueryPlan
from kartothek_cube.spark.actions import Job
from kartothek_cube.spark.session import to_tasks
from kartothek_cube.spark.tasks import as_task, pack, run_packed, task_count, unpack
from kartothek_cube.spark.types import spark_schema, to_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Call", "ShufflePlan", "job_of", "run_grouped", "run_regrouped"]

Call = Callable[[dict[str, Any], pa.Table], Iterator[pa.Table]]

_NUMBER = "__kartothek_cube_group"
# Rows pass through the shuffle as Arrow messages. Spark would convert every value to a row and
# back, which costs more than everything else.
_MESSAGES = pa.schema([("task", pa.int32()), ("rows", pa.binary())])
_MESSAGE_BYTES = 4 * 2**20


def run_grouped(
    session: SparkSession,
    plan: QueryPlan,
    store: Store | Callable[[], Store],
    width: int,
    blocksize: int | None,
    call: Call,
    wire: pa.Schema,
    verb: str,
) -> DataFrame:
    """A lazy data frame of the results of ``call`` on each group of a query that has rows."""
    order = (*plan.context.dimension_columns, *plan.context.partition_columns)
    shuffle = ShufflePlan(plan.group_keys(), plan.schema, task_count(len(plan.groups), width, blocksize), order)
    chunks = pack(plan.slices, task_count(len(plan.slices), width))
    return run_regrouped(
        session,
        chunks,
        lambda slices: map(PartitionLoader(open_store(store)).load, slices),
        shuffle,
        call,
        wire,
        job_of(verb, plan, len(plan.groups)),
    )


def job_of(verb: str, plan: QueryPlan, units: int) -> Job:
    """The name of a step of a query in Spark's plans."""
    detail = pluralize(units, "group" if plan.context.partition_by else "partition")
    return Job(verb, f"cube {plan.context.uuid_prefix!r}", detail)


@dataclass(frozen=True, slots=True, eq=False)
class ShufflePlan:
    """How rows are shuffled to their groups.

    Attributes
    ----------
    keys : pyarrow.Table
        One row a group, ascending.
    schema : pyarrow.Schema
        Columns and types of the shuffled rows, the key columns among them.
    n_tasks : int
        The number of tasks that share the groups. Neighbouring groups share a task, so the result
        has the order of the groups.
    order : tuple of str
        Columns by which the rows of a group are sorted.
    """

    keys: pa.Table
    schema: pa.Schema
    n_tasks: int
    order: tuple[str, ...] = ()


def run_regrouped(
    session: SparkSession,
    chunks: Sequence[bytes],
    load: Callable[[list[Any]], Iterable[pa.Table]],
    shuffle: ShufflePlan,
    call: Call,
    wire: pa.Schema,
    job: Job | None = None,
) -> DataFrame:
    """A lazy data frame of the results of ``call`` on each group that has rows.

    ``load`` returns the rows of the items of one chunk, in any order.
    """
    # The tasks' closures hold these, and not the plan, which has the keys unpacked.
    packed, order, n_tasks = pack([shuffle.keys], 1)[0], shuffle.order, shuffle.n_tasks
    schema = shuffle.schema.append(pa.field(_NUMBER, pa.int64()))

    def sent(items: list[Any]) -> Iterator[pa.RecordBatch]:
        return _messages(load(items), unpack(packed)[0], n_tasks)

    def called(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keys = unpack(packed)[0]
        for number, table in _collected(batches, schema, order):
            key = keys.slice(number, 1).to_pylist()[0]
            for result in call(key, table):
                yield from to_spark(result, wire, f"the result of group {key}")

    messages = run_packed(session, chunks, sent, _MESSAGES, job, len(packed))
    return to_tasks(messages, n_tasks).mapInArrow(as_task(called, job), spark_schema(wire))


def _messages(tables: Iterable[pa.Table], keys: pa.Table, n_tasks: int) -> Iterator[pa.RecordBatch]:
    """Rows as messages, cut by their target tasks."""
    for table in tables:
        numbers = group_numbers(keys, table)
        # Rows of no group have the number -1, and so the task -1.
        tasks = numbers * n_tasks // max(keys.num_rows, 1)
        rows = np.argsort(tasks, kind="stable")
        numbered = table.append_column(_NUMBER, pa.array(numbers))
        for task, positions in _cut(rows, tasks[rows]):
            if task < 0:
                continue
            piece = numbered.take(pa.array(positions)).combine_chunks()
            rows_per_message = max(1, _MESSAGE_BYTES * piece.num_rows // max(1, piece.nbytes))
            for batch in piece.to_batches(max_chunksize=rows_per_message):
                value = one_value(batch.serialize())
                yield pa.record_batch([pa.array([task], pa.int32()), value], schema=_MESSAGES)


def _cut(positions: IntArray, numbers: IntArray) -> Iterator[tuple[int, IntArray]]:
    """Positions cut where their numbers change."""
    starts = group_starts(numbers)
    ends = [*starts[1:].tolist(), len(numbers)]
    for start, end in zip(starts.tolist(), ends[: len(starts)], strict=True):
        yield int(numbers[start]), positions[start:end]


def _collected(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, order: Sequence[str]
) -> Iterator[tuple[int, pa.Table]]:
    """The rows of one task by the numbers of their groups, ascending."""
    messages = (message.as_buffer() for batch in batches for message in batch.column("rows"))
    decoded = (pa.ipc.read_record_batch(message, schema) for message in messages)
    table = pa.Table.from_batches(decoded, schema=schema).combine_chunks()
    if not table.num_rows:
        return
    numbers = table.column(_NUMBER).to_numpy()
    rows = np.argsort(pack_one(table, (_NUMBER, *order)), kind="stable")
    table = table.drop_columns([_NUMBER])
    for number, positions in _cut(rows, numbers[rows]):
        yield number, table.take(pa.array(positions))
