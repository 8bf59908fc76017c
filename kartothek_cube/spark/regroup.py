"""Groups that share files: every file is read once, its rows are shuffled to the tasks of their groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kartothek_cube.core.rowkeys import group_starts, pack_one
from kartothek_cube.core.store import Store
from kartothek_cube.core.stores import open_store
from kartothek_cube.cube.load import Loader
from kartothek_cube.cube.plan import Group, QueryPlan
from kartothek_cube.cube.run import AMPLIFICATION_LIMIT, row_groups
from kartothek_cube.spark.errors import task_errors
from kartothek_cube.spark.tasks import pack, run_packed, task_count
from kartothek_cube.spark.types import conform, spark_schema, to_spark, wire_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Call", "needs_regrouping", "run_grouped"]

Call = Callable[[dict[str, Any], pa.Table], Iterator[pa.Table]]

_NUMBER = "__kartothek_cube_group"


def needs_regrouping(plan: QueryPlan) -> bool:
    """Whether groups share seed files so much that each file is better read once and its rows sent to their groups."""
    seed = plan.context.roles[0].id
    parts, files = plan.aligned.parts[seed], plan.file_counts()[seed]
    reads = int(np.diff(plan.partitions[seed].offsets)[parts[parts >= 0]].sum())
    return bool(plan.context.partition_by) and reads > AMPLIFICATION_LIMIT * files


def run_grouped(
    session: SparkSession, plan: QueryPlan, store: Store | Callable[[], Store], width: int, blocksize: int | None, call: Call, wire: pa.Schema
) -> DataFrame:
    """A lazy data frame of what ``call`` makes of each group that has rows."""
    from pyspark.sql import functions as F

    keys, total = plan.group_keys(), len(plan.groups)
    n_tasks = task_count(total, width, blocksize)
    inner = wire_schema(plan.schema, f"cube {plan.context.uuid_prefix!r}").append(pa.field(_NUMBER, pa.int64()))
    chunks = pack(plan.slices, task_count(len(plan.slices), width))
    rows = run_packed(session, chunks, lambda slices: _numbered(slices, store, keys, inner), inner)
    # Neighbouring groups in one task, so that the result comes in their order.
    task_of = (F.floor(F.col(_NUMBER) * n_tasks / total)).cast("int")
    order = (*plan.context.dimension_columns, *plan.context.partition_columns)
    schema = plan.schema

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with task_errors():
            for number, table in _collected(batches, schema, order):
                for result in call(keys.slice(number, 1).to_pylist()[0], table):
                    yield from to_spark(result, wire)

    return rows.repartitionById(n_tasks, task_of).mapInArrow(task, spark_schema(wire))


def _numbered(slices: Sequence[Group], store: Any, keys: pa.Table, inner: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of some slices with the number of their group; without those that are in no group."""
    loader = Loader(open_store(store))
    for part in slices:
        table = loader.load(part)
        numbers = row_groups(keys, table)
        table = table.append_column(_NUMBER, pa.array(numbers))
        yield from to_spark(table if (numbers >= 0).all() else table.filter(pa.array(numbers >= 0)), inner)


def _collected(batches: Iterator[pa.RecordBatch], schema: pa.Schema, order: Sequence[str]) -> Iterator[tuple[int, pa.Table]]:
    """The rows of one task, group by group, in order, and in the types that the cube has."""
    held = list(batches)
    if not sum(b.num_rows for b in held):
        return
    table = pa.Table.from_batches(held).combine_chunks()
    held.clear()
    rows = np.argsort(pack_one(table, (_NUMBER, *order)), kind="stable")
    numbers = table.column(_NUMBER).to_numpy()[rows]
    starts = group_starts(numbers)
    for start, positions in zip(starts.tolist(), np.split(rows, starts[1:]), strict=True):
        yield int(numbers[start]), conform(table.take(pa.array(positions)), schema, "a group")
