"""Staging rows in Spark tasks: every task checks, sorts and splits what it gets, and yields receipts instead of rows."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa

from kartothek_cube.core.options import current_options, options
from kartothek_cube.core.receipt import Receipt
from kartothek_cube.core.stage import bounded_groups, stage_stream
from kartothek_cube.core.store import Store
from kartothek_cube.core.stores import open_store
from kartothek_cube.core.telemetry import record
from kartothek_cube.errors import InvalidInput, InvalidType, Unsupported
from kartothek_cube.spark.errors import task_errors
from kartothek_cube.spark.jobs import Job, collect
from kartothek_cube.spark.layout import Layout, arranged, cut_columns
from kartothek_cube.spark.receipts import RECEIPT_SCHEMA, accepted, error_row, receipt_rows
from kartothek_cube.spark.stage_rows import Rows, full_schema, stored_schema
from kartothek_cube.spark.stage_runs import blocks, filled, runs, together
from kartothek_cube.spark.stage_sort import sorted_pieces
from kartothek_cube.spark.tasks import THREADS_PER_TASK
from kartothek_cube.spark.types import conform, spark_schema
from kartothek_cube.spark.worker import spilling_beside_spark, tuned_worker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["StageTask", "Target", "make_stage_task", "stage_batches", "staged", "staged_receipts", "staging_frame"]

# Shares of the bytes in flight. A block is held as it came, in one piece, and sorted. A partition that is written as a stream waits as rows of a row group,
# as their copy, as what is encoded, and as the file, as far as that is in memory.
_BLOCK_SHARES, _STREAM_SHARES = 3, 4
# While it is sorted, a piece of it is there as it came, in one piece and sorted, and another one waits for the disk.
_SORT_SHARES = 4


@dataclass(frozen=True, slots=True)
class Target:
    """Where files go: the store as executors open it, the id of the write, and how many tasks run at once."""

    store: Store | Callable[[], Store]
    commit: str
    width: int


@dataclass(frozen=True, slots=True)
class StageTask:
    """All that a task needs to know; it travels in the closure.

    ``columns`` are the names of the columns that come, by position. ``cut_by``: all rows with the same values of these come to one task, for one file; None:
    they come to any task. ``bytes_in_flight`` and ``threads`` are the options as they were on the driver.
    """

    rows: Rows
    store: Store | Callable[[], Store]
    commit: str
    columns: tuple[str, ...]
    cut_by: tuple[str, ...] | None
    bytes_in_flight: int
    threads: int = THREADS_PER_TASK


def staged_receipts(frames: Mapping[str, DataFrame], rows: Mapping[str, Rows], target: Target, layout: Layout, job: Job) -> dict[str, list[Receipt]]:
    """Stage all rows of some datasets in one Spark job, and return their receipts."""
    if not frames:
        return {}
    staged = [staging_frame(frame, rows[i], target, layout) for i, frame in frames.items()]
    frame = reduce(lambda left, right: left.union(right), staged)
    receipts = accepted(collect(frame, job), target.commit, frames)
    every = [receipt for own in receipts.values() for receipt in own]
    record(rows_written=sum(r.rows for r in every), files_written=len(every), bytes_written=sum(r.size for r in every))
    return receipts


def staging_frame(frame: DataFrame, rows: Rows, target: Target, layout: Layout) -> DataFrame:
    """A data frame of receipts. Every action on it stages all rows once more, so there must be exactly one."""
    where = arranged(frame, rows, layout, target.width)
    cut_by = cut_columns(layout, rows) if layout.shuffle else None
    columns = (*frame.columns, *where.columns[len(frame.columns) :])
    task = make_stage_task(rows, target, columns, cut_by)
    return where.mapInArrow(partial(stage_batches, task), spark_schema(RECEIPT_SCHEMA))


def make_stage_task(rows: Rows, target: Target, columns: tuple[str, ...], cut_by: tuple[str, ...] | None) -> StageTask:
    """What tasks need to know, with the options that hold here."""
    settings = current_options()
    return StageTask(rows, target.store, target.commit, columns, cut_by, settings.bytes_in_flight, settings.threads or THREADS_PER_TASK)


def stage_batches(task: StageTask, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The task: rows in, receipts out. Data that cannot be stored come back as an error row, since no second attempt would mend it."""
    tables = (pa.Table.from_batches([batch]).rename_columns(list(task.columns)) for batch in batches)
    with task_errors(), tuned_worker(), spilling_beside_spark():
        try:
            for receipts in staged(task, tables):
                yield receipt_rows(task.rows.id, task.commit, receipts)
        except (InvalidInput, InvalidType, Unsupported) as error:
            yield error_row(task.rows.id, task.commit, error)


def staged(task: StageTask, tables: Iterable[pa.Table]) -> Iterator[list[Receipt]]:
    """Stage the rows of a task as they come, as many at a time as fit into memory."""
    store = open_store(task.store)
    if task.cut_by is None:
        yield from map(partial(_stage_block, task, store), blocks(tables, max(1, task.bytes_in_flight // _BLOCK_SHARES)))
        return
    with closing(_by_file(task, task.cut_by, tables)) as gathered:
        yield from map(partial(_stage_run, task, store), runs(gathered, task.cut_by))


def _by_file(task: StageTask, cut_by: tuple[str, ...], tables: Iterable[pa.Table]) -> Generator[pa.Table, None, None]:
    """The rows with those together that belong into one file; where they do not fit into memory, they also have the order that they have there."""
    most = max(1, task.bytes_in_flight // _STREAM_SHARES)
    typed = (_typed(task.rows, table, cut_by) for table in tables if table.num_rows)
    pieces, rows, _, complete = filled(typed, most)
    if complete:
        if rows:
            yield together(pieces, cut_by)
        return
    first = next(pieces)
    task.rows.part(_conformed(task.rows, first.slice(0, 1)))  # before all are sorted: what cannot be stored is named here
    keys = tuple(dict.fromkeys((*cut_by, *task.rows.sort_columns)))
    every = chain((first,), pieces)
    yield from sorted_pieces(every, keys, max(1, most // _SORT_SHARES)) if keys else every


def _typed(rows: Rows, table: pa.Table, cut_by: tuple[str, ...]) -> pa.Table:
    """The rows in the types in which they are stored, and only so in order there, with the number of their bucket."""
    typed = _conformed(rows, table)
    for column in cut_by:
        typed = typed if column in rows.schema.names else typed.append_column(column, table.column(column))
    return typed


def _stage_block(task: StageTask, store: Store, table: pa.Table) -> list[Receipt]:
    with options(threads=task.threads, bytes_in_flight=task.bytes_in_flight):
        return task.rows.staged(store, _conformed(task.rows, table))


def _stage_run(task: StageTask, store: Store, pieces: Iterator[pa.Table]) -> list[Receipt]:
    most = max(1, task.bytes_in_flight // _STREAM_SHARES)
    pieces, rows, size, complete = filled(pieces, most)
    if complete:
        return _stage_block(task, store, next(blocks(pieces, size + 1)))
    return [_stage_stream(task.rows, store, map(partial(_conformed, task.rows), pieces), rows, size, most)]


def _stage_stream(rows: Rows, store: Store, pieces: Iterator[pa.Table], taken: int, size: int, most: int) -> Receipt:
    """Write a partition of any size whose rows come in order; ``taken`` of them take ``size`` bytes."""
    first = next(pieces)
    part = rows.part(first.slice(0, 1))
    request = replace(rows.request, serializer=bounded_groups(rows.request.serializer, taken, size, most))
    return stage_stream(store, request, part.label, part.values, rows.checked(chain((first,), pieces)), stored_schema(rows), full_schema(rows), most)


def _conformed(rows: Rows, table: pa.Table) -> pa.Table:
    return conform(table, rows.schema, f"dataset {rows.id!r}")
