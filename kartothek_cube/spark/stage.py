"""Staging rows in Spark tasks: every task checks, sorts and splits what it gets, and yields receipts instead of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kartothek_cube.core.change import Receipt
from kartothek_cube.core.options import options
from kartothek_cube.core.rowkeys import group_starts, pack_one
from kartothek_cube.core.store import Store
from kartothek_cube.core.stores import open_store
from kartothek_cube.cube.prepare import DatasetWrite
from kartothek_cube.cube.publish import stage_table
from kartothek_cube.errors import InvalidInput, InvalidType, Unsupported
from kartothek_cube.spark.errors import task_errors
from kartothek_cube.spark.receipts import RECEIPT_SCHEMA, error_row, receipt_rows
from kartothek_cube.spark.tasks import TASKS_PER_CORE
from kartothek_cube.spark.types import conform, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Layout", "cut_runs", "make_layout", "staging_frame"]

_BUCKET = "__kartothek_cube_bucket"
# One file is encoded while another one is put; the other cores belong to the other tasks.
_THREADS = 2


@dataclass(frozen=True, slots=True)
class Layout:
    """How rows are distributed over files: as they come, or shuffled into one file for each partition value and bucket."""

    shuffle: bool = False
    num_buckets: int = 1
    bucket_by: tuple[str, ...] | None = None

    def buckets_of(self, write: DatasetWrite) -> tuple[str, ...]:
        """The columns whose hash gives the bucket; none if there is one bucket."""
        if not self.shuffle or self.num_buckets == 1:
            return ()
        return self.bucket_by or write.dimensions

    def keeps_cells_together(self, write: DatasetWrite) -> bool:
        """Whether rows of equal cells always meet in one file, where duplicates are found when it is made."""
        return self.shuffle and set(write.request.partition_on) | set(self.buckets_of(write)) <= set(write.sort_columns)


def make_layout(shuffle: bool, num_buckets: Any, bucket_by: Any, writes: Iterable[DatasetWrite]) -> Layout:
    """The checked layout; without ``shuffle`` the buckets do not matter.

    Raises
    ------
    InvalidInput
        For a number of buckets below one, and for columns that a dataset does not have.
    """
    if not shuffle:
        return Layout()
    if isinstance(num_buckets, bool) or not isinstance(num_buckets, int) or num_buckets < 1:
        raise InvalidInput(f"num_buckets={num_buckets!r} is no positive number.")
    if bucket_by is not None and not isinstance(bucket_by, (str, Sequence)):
        raise InvalidType(f"bucket_by should be a list of columns, but is {bucket_by!r}.")
    columns = None if bucket_by is None else (bucket_by,) if isinstance(bucket_by, str) else tuple(bucket_by)
    for write in writes:
        missing = sorted(set(columns or ()) - set(write.schema.names))
        if missing:
            raise InvalidInput(f"bucket_by names columns that dataset {write.id!r} does not have: {', '.join(missing)}. It has {write.schema.names}.")
    return Layout(True, num_buckets, columns or None)


def staging_frame(frame: DataFrame, write: DatasetWrite, store: Store | Callable[[], Store], layout: Layout, commit: str, width: int) -> DataFrame:
    """A data frame of receipts. Every action on it stages all rows once more, so there must be exactly one."""
    # Spark asks for columns by name even where it has them by position: dots, backticks and names that differ in case only would fail.
    plain = {name: f"c{i}" for i, name in enumerate(frame.columns)}
    rows = frame.toDF(*plain.values())
    buckets = [plain[n] for n in layout.buckets_of(write)]
    keys = [*(plain[n] for n in write.request.partition_on), *([_BUCKET] if buckets else [])]
    if layout.shuffle:
        rows = _shuffled(_with_bucket(rows, buckets, layout.num_buckets), keys, width)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tables = cut_runs(batches, keys) if layout.shuffle else _whole(batches)
        named = (table.select(list(plain.values())).rename_columns(list(plain)) for table in tables)
        with task_errors():
            yield from _receipts(named, write, store, commit)

    return rows.mapInArrow(task, spark_schema(RECEIPT_SCHEMA))


def _with_bucket(rows: DataFrame, columns: Sequence[str], num_buckets: int) -> DataFrame:
    from pyspark.sql import functions as F

    return rows.withColumn(_BUCKET, F.pmod(F.xxhash64(*columns), F.lit(num_buckets))) if columns else rows


def _shuffled(rows: DataFrame, keys: Sequence[str], width: int) -> DataFrame:
    """Rows of equal keys in one task, one after the other; without keys all rows in one task."""
    return rows.repartition(TASKS_PER_CORE * width, *keys).sortWithinPartitions(*keys) if keys else rows.repartition(1)


def _receipts(tables: Iterable[pa.Table], write: DatasetWrite, store: Any, commit: str) -> Iterator[pa.RecordBatch]:
    try:
        opened = open_store(store)
        for table in tables:
            yield receipt_rows(write.id, commit, _staged(opened, write, table))
    except (InvalidInput, InvalidType, Unsupported) as error:
        yield error_row(write.id, commit, error)


def _staged(store: Store, write: DatasetWrite, table: pa.Table) -> list[Receipt]:
    with options(threads=_THREADS):
        return stage_table(store, write, conform(table.combine_chunks(), write.schema, f"dataset {write.id!r}"))


def _whole(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """All rows of the task, unless there are none."""
    held = [b for b in batches if b.num_rows]
    if held:
        yield pa.Table.from_batches(held)


def cut_runs(batches: Iterable[pa.RecordBatch], columns: Sequence[str]) -> Iterator[pa.Table]:
    """One table for each run of equal values in some columns; only one run is held at a time."""
    held: list[pa.Table] = []
    last: tuple[Any, ...] | None = None
    for batch in batches:
        table = pa.Table.from_batches([batch])
        for key, run in _runs(table, columns):
            if held and key != last:
                yield pa.concat_tables(held)
                held = []
            held.append(run)
            last = key
    if held:
        yield pa.concat_tables(held)


def _runs(table: pa.Table, columns: Sequence[str]) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
    if not table.num_rows:
        return
    starts = group_starts(pack_one(table, columns)).tolist() if columns else [0]
    for start, end in zip(starts, [*starts[1:], table.num_rows], strict=True):
        key = tuple(table.column(c)[start].as_py() for c in columns)
        yield key, table.slice(start, end - start)
