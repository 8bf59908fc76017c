"""Staging in tasks: receipts return as rows, and the driver accepts each file once.

In order:

- how a task checks and stages rows, in memory or as a stream
- blocks that fit into a task's memory, and an external sort
- rows to files: as they come, or shuffled by partition values and bucket
- staging
"""

from __future__ import annotations

import math
import pickle
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import chain, groupby, pairwise
from numbers import Integral, Real
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql import functions as F
from pyspark.sql import types as st

from kartothek_cube.core.arguments import check_flag
from kartothek_cube.core.arrow.keys import Spill, group_starts, pack, pack_one, sorted_table, stable_order
from kartothek_cube.core.arrow.types import ordered
from kartothek_cube.core.metadata.document import dataset_schema
from kartothek_cube.core.metadata.naming import new_id
from kartothek_cube.core.runtime.options import current_options, options
from kartothek_cube.core.runtime.telemetry import record
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.stores.open import open_store
from kartothek_cube.core.write.input_rows import InputPartition
from kartothek_cube.core.write.layout import DatasetLayout, StageRequest
from kartothek_cube.core.write.prepare import DerivedColumn, PartitionRows, Schemas, WriteRequest, check_final, prepare
from kartothek_cube.core.write.stage import Receipt, bounded_groups, stage_prepared, stage_stream
from kartothek_cube.cube.write.plan import MemberWrite, check_no_null_cells, check_repeated, prepare_parts
from kartothek_cube.cube.write.stage import stage_table
from kartothek_cube.errors import CorruptData, InvalidInput, InvalidType, KartothekCubeError, UnknownColumn, Unsupported
from kartothek_cube.spark.tasks import (
    TASKS_PER_CORE,
    THREADS_PER_TASK,
    Job,
    aperiodic,
    collect,
    decode_error,
    encode_error,
    spilling_beside_spark,
    task_errors,
    tuned_worker,
)
from kartothek_cube.spark.types import conform, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class Rows(Protocol):
    """How the rows of one dataset are checked and staged; a small picklable value."""

    @property
    def id(self) -> str:
        """The dataset of the receipts."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows, with their stored types."""

    @property
    def request(self) -> StageRequest:
        """How files are staged."""

    @property
    def sort_columns(self) -> tuple[str, ...]:
        """The sort order of the rows of a file."""

    @property
    def hashed(self) -> tuple[str, ...]:
        """The columns that are hashed to the bucket of a row, by default."""

    def staged(self, store: Store, table: pa.Table) -> list[Receipt]:
        """Check, sort, split and stage rows in memory."""

    def part(self, first: pa.Table) -> PartitionRows:
        """The physical partition of rows that share one, without the rows."""

    def checked(self, pieces: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Rows of one physical partition, in the order of the file, checked as a stream."""


def checked_schemas(request: WriteRequest, table: str, columns: pa.Schema) -> Schemas:
    """The schemas of a dataset with rows of these columns.

    Raises
    ------
    InvalidInput, InvalidType, Unsupported
        What the eager verb raises for rows of these types.
    """
    schemas = Schemas(request)
    # By preparing no rows as the eager verb would.
    schemas.add(prepare(request, InputPartition(new_id(), {table: columns.empty_table()})).schemas)
    check_final(request, schemas.tables)
    return schemas


def full_schema(rows: Rows) -> pa.Schema:
    """The schema of the dataset."""
    return ordered(dataset_schema(rows.schema, rows.request.partition_on), rows.request.partition_on)


def stored_schema(rows: Rows) -> pa.Schema:
    """The columns in the dataset's files."""
    return pa.schema([f for f in rows.schema if f.name not in rows.request.partition_on])


@dataclass(frozen=True, slots=True)
class CubeRows:
    """Rows of a dataset of a cube, without nulls in keys and without duplicate cells."""

    write: MemberWrite

    @property
    def id(self) -> str:
        return self.write.id

    @property
    def schema(self) -> pa.Schema:
        return self.write.schema

    @property
    def request(self) -> StageRequest:
        return self.write.request

    @property
    def sort_columns(self) -> tuple[str, ...]:
        return self.write.sort_columns

    @property
    def hashed(self) -> tuple[str, ...]:
        return self.write.dimensions

    def staged(self, store: Store, table: pa.Table) -> list[Receipt]:
        return stage_table(store, self.write, table)

    def part(self, first: pa.Table) -> PartitionRows:
        return prepare_parts(self.write, first, new_id())[0]

    def checked(self, pieces: Iterable[pa.Table]) -> Iterator[pa.Table]:
        last: pa.Table | None = None
        for piece in pieces:
            check_no_null_cells(self.write, piece)
            # Duplicates may span two pieces.
            rows = piece if last is None else pa.concat_tables([last, piece])
            keys = pack_one(rows, self.sort_columns)
            check_repeated(self.write, rows, keys)
            last = piece.slice(piece.num_rows - 1)
            yield piece


@dataclass(frozen=True, slots=True)
class DatasetRows:
    """Rows of one table of a dataset.

    ``write`` has no base: a base grows with the partitions of the dataset, and this value travels
    to every task.
    """

    write: WriteRequest
    table: str
    schema: pa.Schema

    @property
    def id(self) -> str:
        return self.write.uuid

    @property
    def request(self) -> StageRequest:
        return self.write.stage_request(self.table, fresh=True)

    @property
    def sort_columns(self) -> tuple[str, ...]:
        return self.write.sort_columns

    @property
    def hashed(self) -> tuple[str, ...]:
        return tuple(self.schema.names)

    def staged(self, store: Store, table: pa.Table) -> list[Receipt]:
        return stage_prepared(store, self.write, prepare(self.write, InputPartition(new_id(), {self.table: table})))

    def part(self, first: pa.Table) -> PartitionRows:
        return prepare(self.write, InputPartition(new_id(), {self.table: first})).parts[self.table][0]

    def checked(self, pieces: Iterable[pa.Table]) -> Iterator[pa.Table]:
        return iter(pieces)


# --- blocks that fit into a task's memory ---------------------------------------------------------


_COUNTED = 2**16


def blocks(tables: Iterable[pa.Table], limit: int) -> Iterator[pa.Table]:
    """The rows in blocks of about ``limit`` bytes, the last block smaller; none without rows."""
    buffer: list[pa.Table] = []
    size = 0
    for table in tables:
        if table.num_rows:
            buffer.append(table)
            size += table.nbytes
        if size >= limit:
            size = 0
            yield _drain(buffer)
    if buffer:
        yield _drain(buffer)


def _drain(buffer: list[pa.Table]) -> pa.Table:
    block = pa.concat_tables(buffer).combine_chunks()
    # The caller may keep the block for long, so the pieces are released now.
    buffer.clear()
    return block


def take_until(pieces: Iterator[pa.Table], limit: int) -> tuple[Iterator[pa.Table], int, int, bool]:
    """Take pieces until they have more than ``limit`` bytes.

    Returns an iterator over all pieces, the rows and bytes that were taken, and whether all pieces
    were taken.
    """
    taken: list[pa.Table] = []
    size = 0
    for piece in pieces:
        taken.append(piece)
        size += piece.nbytes
        if size > limit:
            return chain(_popped(taken), pieces), sum(t.num_rows for t in taken), size, False
    return _popped(taken), sum(t.num_rows for t in taken), size, True


def _popped(taken: list[pa.Table]) -> Iterator[pa.Table]:
    """The pieces in their order; each is released as it is returned."""
    taken.reverse()
    while taken:
        yield taken.pop()


def concat_grouped(tables: Iterable[pa.Table], columns: Sequence[str]) -> pa.Table:
    """All rows as one table, grouped by some columns; rows of a group stay in order."""
    table = pa.concat_tables(tables)
    keys = pack_one(table, columns)
    # NumPy sorts 16-bit integers by radix, which is many times as fast.
    order = stable_order(keys.astype(np.uint16) if int(keys.max()) < _COUNTED else keys)
    return table if order is None else table.take(pa.array(order))


def runs(tables: Iterable[pa.Table], columns: Sequence[str]) -> Iterator[Iterator[pa.Table]]:
    """The rows of each run of equal values in some columns, in pieces.

    As with `itertools.groupby`, consume a run before the next one.
    """
    for _, keyed in groupby(_cut(tables, columns), itemgetter(0)):
        yield map(itemgetter(1), keyed)


def _cut(tables: Iterable[pa.Table], columns: Sequence[str]) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
    """Pieces of equal values in some columns, with these values."""
    for table in tables:
        if not table.num_rows:
            continue
        starts = group_starts(pack_one(table, columns)).tolist() if columns else [0]
        for start, end in zip(starts, [*starts[1:], table.num_rows], strict=True):
            key = tuple(_comparable(table.column(c)[start]) for c in columns)
            yield key, table.slice(start, end - start)


def _comparable(value: pa.Scalar) -> Any:
    # Python compares aware times by their instant, and has neither far years nor text with invalid
    # bytes. The stored numbers and bytes are exact.
    if isinstance(value, (pa.TimestampScalar, pa.Date32Scalar)):
        return value.value
    if isinstance(value, pa.StringScalar | pa.LargeStringScalar):
        return value.cast(pa.large_binary()).as_py()
    return value.as_py()


_ARRIVAL = "__kartothek_cube_arrival"

# Sampled rows of a block, from which the bounds of the ranges are taken.
_SAMPLES = 64

# Ranges of one pass. With more, a range's part of a block gets so short that it costs more than its
# rows.
_RANGES = 256

# A range with so many times the bytes of the limit, or of a block, is sorted in another pass.
_TOO_LARGE = 1.5


def sorted_pieces(pieces: Iterable[pa.Table], columns: Sequence[str], limit: int) -> Iterator[pa.Table]:
    """The rows sorted by some columns, in pieces of about ``limit`` bytes; the sort is stable.

    An external sample sort: blocks are sorted as they come and spilled to a temporary file. Samples
    of all blocks give the bounds of ranges of about one block. Each range is then merged from its
    parts of all blocks.
    """
    rest = iter(pieces)
    first = next(rest, None)
    if first is None:
        return
    # The number of arrival makes the sort stable. The name is longer than that of any column.
    arrival = max((_ARRIVAL, *first.column_names), key=len) + "_"

    def numbered() -> Iterator[pa.Table]:
        seen = 0
        for piece in chain((first,), rest):
            yield piece.append_column(arrival, pa.array(np.arange(seen, seen + piece.num_rows)))
            seen += piece.num_rows

    for piece in _sorted(numbered(), (*columns, arrival), limit):
        # Arrow's allocator keeps what earlier ranges have freed, and a container's limit counts it.
        pa.default_memory_pool().release_unused()
        yield piece.drop_columns([arrival])


def _sorted(rows: Iterator[pa.Table], keys: Sequence[str], limit: int) -> Iterator[pa.Table]:
    first = next(rows, None)
    if first is None:
        return
    with Spill(first.schema, limit) as ranges:
        sizes, largest = _fill(ranges, chain((first,), rows), first.schema, keys, limit)
        for number, size in sorted(sizes.items()):
            if size > _TOO_LARGE * max(limit, largest):
                yield from _sorted(ranges.pieces(number), keys, limit)
            else:
                yield sorted_table(pa.concat_tables(ranges.take(number)), keys)


def _fill(
    ranges: Spill, rows: Iterable[pa.Table], schema: pa.Schema, keys: Sequence[str], limit: int
) -> tuple[Counter[int], int]:
    """Put rows into ranges; returns the bytes of each range with rows, and of the largest block."""
    sizes, largest = Counter[int](), 0
    with Spill(schema, limit) as waiting:
        samples = []
        for number, block in enumerate(blocks(rows, limit)):
            ordered = sorted_table(block, keys)
            waiting.add(number, ordered)
            # Shifted by an aperiodic amount, so that equal blocks give different samples.
            sampled = _evenly(ordered.num_rows, _SAMPLES, aperiodic(number))
            samples.append(ordered.select(list(keys)).take(pa.array(sampled)))
            del block, ordered  # the next block is as large
        if not samples:
            return sizes, largest
        merged = sorted_table(pa.concat_tables(samples), keys)
        cuts = merged.take(pa.array(_evenly(merged.num_rows, min(len(samples), _RANGES))[1:]))
        for number in waiting.numbers():
            block = pa.concat_tables(waiting.take(number))
            largest = max(largest, block.nbytes)
            block_keys, bounds = pack([block, cuts], keys)
            ends = [*np.searchsorted(block_keys, bounds).tolist(), len(block_keys)]
            for i, (begin, end) in enumerate(pairwise([0, *ends])):
                if end > begin:
                    part = block.slice(begin, end - begin)
                    ranges.add(i, part)
                    sizes[i] += part.nbytes
    return sizes, largest


def _evenly(rows: int, n: int, shift: float = 0.0) -> np.ndarray[Any, np.dtype[np.int64]]:
    """At most ``n`` row positions at even distances, shifted by a share of the distance."""
    return np.unique(np.minimum((np.arange(n) + shift) * rows / n, rows - 1).astype(np.int64))


# --- rows to files --------------------------------------------------------------------------------


BUCKET = "__kartothek_cube_bucket"


@dataclass(frozen=True, slots=True)
class Layout:
    """How rows are distributed over files.

    ``ratio`` divides the number of tasks of a shuffle. Without a shuffle the partitions of the data
    frame are merged to that number.
    """

    shuffle: bool = False
    num_buckets: int = 1
    bucket_by: tuple[str, ...] | None = None
    ratio: float | None = None

    def buckets_of(self, rows: Rows) -> tuple[str, ...]:
        """The hashed columns; none if there is one bucket."""
        if not self.shuffle or self.num_buckets == 1:
            return ()
        return self.bucket_by or rows.hashed

    def keeps_cells_together(self, rows: Rows) -> bool:
        """Whether rows with equal sort columns share a file, so that its task finds duplicates."""
        return self.shuffle and set(rows.request.partition_on) | set(self.buckets_of(rows)) <= set(rows.sort_columns)

    def recorded(self, layout: DatasetLayout) -> DatasetLayout:
        """A layout with these buckets, if there are several."""
        if self.num_buckets == 1:
            return layout
        return replace(layout, num_buckets=self.num_buckets, bucket_by=self.bucket_by or ())

    def tasks(self, width: int) -> int:
        """The number of tasks of a shuffle, where ``width`` tasks run at once."""
        return max(1, math.ceil(TASKS_PER_CORE * width / (self.ratio or 1)))


def buckets_on_record(num_buckets: object, bucket_by: object, layout: DatasetLayout) -> tuple[object, object]:
    """The arguments ``num_buckets`` and ``bucket_by``; if they say nothing, what is on record."""
    if num_buckets != 1 or bucket_by is not None or layout.num_buckets is None:
        return num_buckets, bucket_by
    return layout.num_buckets, list(layout.bucket_by) or None


def make_layout(
    shuffle: bool, num_buckets: object, bucket_by: object, rows: Iterable[Rows], ratio: object = None
) -> Layout:
    """The checked layout; without ``shuffle`` the buckets have no effect.

    Raises
    ------
    InvalidInput
        For fewer than one bucket, or a ratio that is not above zero.
    UnknownColumn
        For a column that a dataset does not have.
    InvalidType
        For a column that cannot be hashed: a list, map or struct.
    """
    if not check_flag(shuffle, "shuffle"):
        return Layout(ratio=_checked_ratio(ratio))
    if isinstance(num_buckets, bool) or not isinstance(num_buckets, Integral) or num_buckets < 1:
        raise InvalidInput(
            f"num_buckets={num_buckets!r} is no positive number; ``num_buckets`` must not be None when shuffling data."
        )
    by = [bucket_by] if isinstance(bucket_by, str) else bucket_by
    if by is not None and not (isinstance(by, Sequence) and all(isinstance(c, str) for c in by)):
        raise InvalidType(f"bucket_by should be a list of columns, but is {bucket_by!r}.")
    layout = Layout(True, int(num_buckets), tuple(by or ()) or None, _checked_ratio(ratio))
    for each in rows:
        _check_hashed(layout, each)
    return layout


def _checked_ratio(ratio: object) -> float | None:
    if ratio is None:
        return None
    if isinstance(ratio, bool) or not isinstance(ratio, Real):
        raise InvalidType(f"repartition_ratio is a number, by which the number of tasks is divided, not {ratio!r}.")
    if not 0 < float(ratio) < math.inf:
        raise InvalidInput(f"repartition_ratio={ratio!r} is not above zero; the number of tasks is divided by it.")
    return float(ratio)


def _check_hashed(layout: Layout, rows: Rows) -> None:
    missing = sorted(set(layout.bucket_by or ()) - set(rows.schema.names))
    if missing:
        raise UnknownColumn(
            f"bucket_by names columns that dataset {rows.id!r} does not have: {', '.join(missing)}. "
            f"It has {rows.schema.names}."
        )
    if layout.buckets_of(rows) and BUCKET in rows.schema.names:
        raise InvalidInput(
            f"Column {BUCKET!r} of dataset {rows.id!r} has the name under which rows carry the number of their bucket. "
            "Rename it."
        )
    nested = [c for c in layout.buckets_of(rows) if pt.is_nested(rows.schema.field(c).type)]
    if nested:
        raise InvalidType(
            f"Column {nested[0]!r} of dataset {rows.id!r} is {rows.schema.field(nested[0]).type}, "
            f"which cannot be hashed. Name other columns in bucket_by; {', '.join(nested)} cannot be among them."
        )


def cut_columns(layout: Layout, rows: Rows) -> tuple[str, ...]:
    """The columns whose values decide the file of a row after the shuffle of `arranged`."""
    return (*rows.request.partition_on, *([BUCKET] if layout.buckets_of(rows) else []))


def arranged(frame: DataFrame, rows: Rows, layout: Layout, width: int) -> DataFrame:
    """The rows in their tasks, with columns c0, c1, ... by position, and perhaps a bucket.

    After a shuffle, rows of equal partition values and bucket are in one task, in any order.
    """
    # Not sorted by Spark: Arrow sorts in a fraction of the time.
    arranged, plain = with_plain_names(frame)
    types = {plain[f.name]: f.dataType for f in frame.schema.fields}
    if not layout.shuffle:
        return arranged if layout.ratio is None else arranged.coalesce(layout.tasks(width))
    hashed = [plain[n] for n in layout.buckets_of(rows)]
    if hashed:
        arranged = arranged.withColumn(BUCKET, bucket_column({c: types[c] for c in hashed}, layout.num_buckets))
    keys = [BUCKET if c == BUCKET else plain[c] for c in cut_columns(layout, rows)]
    return arranged.repartition(layout.tasks(width), *keys) if keys else arranged.repartition(1)


def with_derived_columns(frame: DataFrame, columns: Iterable[DerivedColumn]) -> DataFrame:
    """The data frame with partition columns that follow from others, where it lacks them.

    Raises
    ------
    Unsupported
        If a source is neither a date nor a timestamp without a zone.
    """
    for column in columns:
        name, source = str(column), column.source
        if not hasattr(frame, "mapInArrow") or name in frame.columns or source not in frame.columns:
            continue  # a later check says what is wrong
        if not isinstance(frame.schema[source].dataType, (st.DateType, st.TimestampNTZType)):
            raise Unsupported(
                f"{column.unit}({source!r}): the column is {frame.schema[source].dataType.simpleString()}. Cast it to "
                "date, or to timestamp_ntz."
            )
        quoted = F.col("`" + source.replace("`", "``") + "`")
        value = F.year(quoted).cast("bigint") if column.unit == "year" else F.trunc(quoted, column.unit)
        frame = frame.withColumn(name, F.to_date(quoted) if column.unit == "day" else value)
    return frame


def with_plain_names(frame: DataFrame) -> tuple[DataFrame, dict[str, str]]:
    """The columns under names that Spark resolves, texts without a collation; and these names."""
    # Spark resolves columns by name even by position: dots, backticks and names that differ in case
    # only would fail.
    plain = {name: f"c{i}" for i, name in enumerate(frame.columns)}
    # Under a collation "a" and "A" may be one value, but they are two values in a file.
    binary = {
        plain[f.name]: F.col(plain[f.name]).cast("string")
        for f in frame.schema.fields
        if isinstance(f.dataType, st.StringType) and f.dataType.collation != "UTF8_BINARY"
    }
    renamed = frame.toDF(*plain.values())
    return renamed.withColumns(binary) if binary else renamed, plain


def bucket_column(types: Mapping[str, st.DataType], num_buckets: int) -> Column:
    """The bucket of each row by the hash of some columns; equal values of any width share a bucket.

    The bucket is not stored, so another write may distribute the same rows differently.
    """
    numbers = F.xxhash64(*(_normalised(F.col(column), data_type) for column, data_type in types.items()))
    return F.pmod(numbers, F.lit(num_buckets).cast("bigint"))


def _normalised(column: Column, data_type: st.DataType) -> Column:
    if isinstance(data_type, st.IntegralType):
        return column.cast("bigint")
    if isinstance(data_type, (st.FractionalType, st.DecimalType)):
        wide = column.cast("double")
        return F.when(wide == 0, F.lit(0.0)).otherwise(wide)  # -0.0 is 0.0
    if isinstance(data_type, st.DateType):
        return column.cast("timestamp_ntz")
    if isinstance(data_type, (st.CharType, st.VarcharType, st.TimeType)):
        return column.cast("string")
    return column


# --- staging --------------------------------------------------------------------------------------


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
