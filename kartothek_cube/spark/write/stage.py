"""Staging in tasks: receipts return as rows, and the driver accepts each file once."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kartothek_cube.core.runtime.options import current_options, options
from kartothek_cube.core.runtime.telemetry import record
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.stores.open import open_store
from kartothek_cube.core.write.stage import Receipt, bounded_groups, stage_stream
from kartothek_cube.errors import CorruptData, InvalidInput, InvalidType, KartothekCubeError, Unsupported
from kartothek_cube.spark.actions import Job, collect, decode_error, encode_error, task_errors
from kartothek_cube.spark.python_worker import spilling_beside_spark, tuned_worker
from kartothek_cube.spark.tasks import THREADS_PER_TASK
from kartothek_cube.spark.types import conform, spark_schema
from kartothek_cube.spark.write.blocks import blocks, concat_grouped, runs, sorted_pieces, take_until
from kartothek_cube.spark.write.distribution import Layout, arranged, cut_columns
from kartothek_cube.spark.write.rows import Rows, full_schema, stored_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "RECEIPT_SCHEMA",
    "StageTask",
    "Target",
    "accepted",
    "error_row",
    "in_order",
    "make_stage_task",
    "receipt_rows",
    "stage_batches",
    "staged",
    "staged_receipts",
    "staging_frame",
]

RECEIPT_SCHEMA = pa.schema(
    [
        ("dataset", pa.string()),
        ("task", pa.int32()),
        ("attempt", pa.int32()),
        ("commit", pa.string()),
        ("key", pa.string()),
        ("label", pa.string()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("receipt", pa.binary()),
        ("error", pa.string()),
    ]
)


def receipt_rows(dataset: str, commit: str, receipts: Iterable[Receipt]) -> pa.RecordBatch:
    """One row a file, with the numbers of the current task and attempt."""
    task, attempt = _task()
    rows = [(dataset, task, attempt, commit, r.key, r.label, r.rows, r.size, pickle.dumps(r), None) for r in receipts]
    return _batch(rows)


def error_row(dataset: str, commit: str, error: KartothekCubeError) -> pa.RecordBatch:
    """An error as a row, so that Spark does not retry the task: no second attempt would help."""
    task, attempt = _task()
    return _batch([(dataset, task, attempt, commit, None, None, None, None, None, encode_error(error))])


def _task() -> tuple[int, int]:
    from pyspark import TaskContext

    context = TaskContext.get()
    return (context.partitionId(), context.attemptNumber()) if context else (0, 0)


def _batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [dict(zip(RECEIPT_SCHEMA.names, row, strict=True)) for row in rows], schema=RECEIPT_SCHEMA
    )


def accepted(rows: Iterable[Any], commit: str, datasets: Iterable[str]) -> dict[str, list[Receipt]]:
    """The receipts by dataset, in an order that is independent of the order of tasks.

    Raises
    ------
    KartothekCubeError
        The first error that a task reports.
    CorruptData
        If the receipts are not from exactly one attempt of each task of this commit.
    """
    rows = sorted(rows, key=lambda row: (row["dataset"], row["task"], row["key"] or ""))
    for row in rows:
        if row["error"]:
            raise decode_error(row["error"])
    foreign = sorted({row["commit"] for row in rows} - {commit})
    if foreign:
        raise CorruptData(
            f"Spark returned files of other writes ({', '.join(foreign)}) for the write {commit}. "
            "Nothing was published."
        )
    twice = [key for key, n in Counter(row["key"] for row in rows).items() if n > 1]
    attempts = Counter(task for task, _ in {(row["task"], row["attempt"]) for row in rows})
    several = [task for task, n in attempts.items() if n > 1]
    if twice or several:
        raise CorruptData(
            f"Spark returned files {twice} twice, or two attempts of tasks {several}, for the write {commit}. "
            "Nothing was published."
        )
    by_dataset: dict[str, list[Receipt]] = {name: [] for name in datasets}
    for row in rows:
        by_dataset[row["dataset"]].append(pickle.loads(bytes(row["receipt"])))
    return {name: in_order(receipts) for name, receipts in by_dataset.items()}


def in_order(receipts: Iterable[Receipt]) -> list[Receipt]:
    """The receipts in the order of their partition values."""
    return sorted(receipts, key=lambda r: r.label.rpartition("/")[0])


# Copies that share the bytes in flight. Of a block: the pieces as they came, one table, and the
# sorted table. Of a streamed partition: the rows of a row group, their copy, the encoded row group,
# and the part of the file in memory.
_BLOCK_SHARES, _STREAM_SHARES = 3, 4

# Of a piece in the external sort: as it came, one table, the sorted table, and a piece that waits
# for the disk.
_SORT_SHARES = 4


@dataclass(frozen=True, slots=True)
class Target:
    """The opener of the store, the id of the write, and how many tasks run at once."""

    store: Store | Callable[[], Store]
    commit: str
    width: int


@dataclass(frozen=True, slots=True)
class StageTask:
    """What a task needs to stage rows; a part of the closure.

    ``columns`` are the names of the incoming columns, by position. Rows with equal values in
    ``cut_by`` come to one task and go into one file; None: they come to any task.
    ``bytes_in_flight`` and ``threads`` are options of the driver.
    """

    rows: Rows
    store: Store | Callable[[], Store]
    commit: str
    columns: tuple[str, ...]
    cut_by: tuple[str, ...] | None
    bytes_in_flight: int
    threads: int = THREADS_PER_TASK


def staged_receipts(
    frames: Mapping[str, DataFrame], rows: Mapping[str, Rows], target: Target, layout: Layout, job: Job
) -> dict[str, list[Receipt]]:
    """Stage all rows of some datasets in one Spark job, and return their receipts."""
    if not frames:
        return {}
    staged = [staging_frame(frame, rows[i], target, layout) for i, frame in frames.items()]
    frame = reduce(lambda left, right: left.union(right), staged)
    receipts = accepted(collect(frame, job), target.commit, frames)
    files = list(chain.from_iterable(receipts.values()))
    record(rows_written=sum(r.rows for r in files), files_written=len(files), bytes_written=sum(r.size for r in files))
    return receipts


def staging_frame(frame: DataFrame, rows: Rows, target: Target, layout: Layout) -> DataFrame:
    """A data frame of receipts. Each action on it stages all rows again, so run exactly one."""
    distributed = arranged(frame, rows, layout, target.width)
    cut_by = cut_columns(layout, rows) if layout.shuffle else None
    columns = (*frame.columns, *distributed.columns[len(frame.columns) :])
    task = make_stage_task(rows, target, columns, cut_by)
    return distributed.mapInArrow(partial(stage_batches, task), spark_schema(RECEIPT_SCHEMA))


def make_stage_task(rows: Rows, target: Target, columns: tuple[str, ...], cut_by: tuple[str, ...] | None) -> StageTask:
    """The value for tasks, with the current options."""
    settings = current_options()
    threads = settings.threads or THREADS_PER_TASK
    return StageTask(rows, target.store, target.commit, columns, cut_by, settings.bytes_in_flight, threads)


def stage_batches(task: StageTask, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The task: rows in, receipts out. Unusable data return as an error row, see `error_row`."""
    tables = (pa.Table.from_batches([batch]).rename_columns(list(task.columns)) for batch in batches)
    with task_errors(), tuned_worker(), spilling_beside_spark():
        try:
            for receipts in staged(task, tables):
                yield receipt_rows(task.rows.id, task.commit, receipts)
        except (InvalidInput, InvalidType, Unsupported) as error:
            yield error_row(task.rows.id, task.commit, error)


def staged(task: StageTask, tables: Iterable[pa.Table]) -> Iterator[list[Receipt]]:
    """Stage the rows of a task as they come, in blocks that fit into memory."""
    store = open_store(task.store)
    if task.cut_by is None:
        limit = max(1, task.bytes_in_flight // _BLOCK_SHARES)
        yield from map(partial(_stage_block, task, store), blocks(tables, limit))
        return
    # Closed at the end, whatever happens: the sort has temporary files.
    with closing(_by_file(task, task.cut_by, tables)) as grouped:
        yield from map(partial(_stage_run, task, store), runs(grouped, task.cut_by))


def _by_file(task: StageTask, cut_by: tuple[str, ...], tables: Iterable[pa.Table]) -> Generator[pa.Table, None, None]:
    """The rows grouped by file; rows that do not fit into memory are also sorted within files."""

    def typed(table: pa.Table) -> pa.Table:
        # Stored types come first: the order of a file is that of the stored values. The bucket is
        # no stored column.
        conformed = _conformed(task.rows, table)
        for column in (c for c in cut_by if c not in task.rows.schema.names):
            conformed = conformed.append_column(column, table.column(column))
        return conformed

    limit = max(1, task.bytes_in_flight // _STREAM_SHARES)
    pieces, rows, _, complete = take_until((typed(table) for table in tables if table.num_rows), limit)
    if complete:
        if rows:
            yield concat_grouped(pieces, cut_by)
        return
    first = next(pieces)
    # Refuses unusable rows before the long sort.
    task.rows.part(_conformed(task.rows, first.slice(0, 1)))
    keys = tuple(dict.fromkeys((*cut_by, *task.rows.sort_columns)))
    every = chain((first,), pieces)
    yield from sorted_pieces(every, keys, max(1, limit // _SORT_SHARES)) if keys else every


def _stage_block(task: StageTask, store: Store, table: pa.Table) -> list[Receipt]:
    with options(threads=task.threads, bytes_in_flight=task.bytes_in_flight):
        return task.rows.staged(store, _conformed(task.rows, table))


def _stage_run(task: StageTask, store: Store, pieces: Iterator[pa.Table]) -> list[Receipt]:
    """Write the rows of one file, as a stream if they do not fit into memory."""
    limit = max(1, task.bytes_in_flight // _STREAM_SHARES)
    pieces, taken, size, complete = take_until(pieces, limit)
    if complete:
        return _stage_block(task, store, next(blocks(pieces, size + 1)))
    rows = task.rows
    conformed = map(partial(_conformed, rows), pieces)
    first = next(conformed)
    part = rows.part(first.slice(0, 1))
    # The rows taken so far give the bytes of a row, and so the size of row groups.
    group = min(limit, rows.request.target_file_bytes or limit)
    request = replace(rows.request, serializer=bounded_groups(rows.request.serializer, taken, size, group))
    checked = rows.checked(chain((first,), conformed))
    schemas = stored_schema(rows), full_schema(rows)
    return stage_stream(store, request, part.label, part.values, checked, *schemas, limit)


def _conformed(rows: Rows, table: pa.Table) -> pa.Table:
    return conform(table, rows.schema, f"dataset {rows.id!r}")
