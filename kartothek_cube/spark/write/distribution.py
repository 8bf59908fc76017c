"""Distribution of rows over files: as they come, or shuffled by partition values and bucket."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import TYPE_CHECKING

import pyarrow.types as pt
from pyspark.sql import functions as F
from pyspark.sql import types as st

from kartothek_cube.core.arguments import check_flag
from kartothek_cube.core.write.layout import DatasetLayout
from kartothek_cube.core.write.prepare import DerivedColumn
from kartothek_cube.errors import InvalidInput, InvalidType, UnknownColumn, Unsupported
from kartothek_cube.spark.tasks import TASKS_PER_CORE
from kartothek_cube.spark.write.rows import Rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = [
    "BUCKET",
    "Layout",
    "arranged",
    "bucket_column",
    "buckets_on_record",
    "cut_columns",
    "make_layout",
    "with_derived_columns",
    "with_plain_names",
]

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
