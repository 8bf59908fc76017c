"""How rows are distributed over files: as they come, or shuffled into one file for each partition value and bucket."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING

import pyarrow.types as pt
from pyspark.sql import functions as F
from pyspark.sql import types as st

from kartothek_cube.core.dataset.arguments import check_flag
from kartothek_cube.errors import InvalidInput, InvalidType, UnknownColumn
from kartothek_cube.spark.stage_rows import Rows
from kartothek_cube.spark.tasks import TASKS_PER_CORE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["BUCKET", "Layout", "arranged", "cut_columns", "make_layout"]

BUCKET = "__kartothek_cube_bucket"


@dataclass(frozen=True, slots=True)
class Layout:
    """How rows are distributed over files.

    ``ratio`` divides the number of tasks that a shuffle makes; without a shuffle the partitions of the data frame are merged to so many.
    """

    shuffle: bool = False
    num_buckets: int = 1
    bucket_by: tuple[str, ...] | None = None
    ratio: float | None = None

    def buckets_of(self, rows: Rows) -> tuple[str, ...]:
        """The columns whose hash gives the bucket; none if there is one bucket."""
        if not self.shuffle or self.num_buckets == 1:
            return ()
        return self.bucket_by or rows.hashed

    def keeps_cells_together(self, rows: Rows) -> bool:
        """Whether rows of equal sort columns always meet in one file, where duplicates are found when it is made."""
        return self.shuffle and set(rows.request.partition_on) | set(self.buckets_of(rows)) <= set(rows.sort_columns)

    def tasks(self, width: int) -> int:
        """Into how many tasks rows go, where so many run at once."""
        return max(1, math.ceil(TASKS_PER_CORE * width / (self.ratio or 1)))


def make_layout(shuffle: bool, num_buckets: object, bucket_by: object, rows: Iterable[Rows], ratio: object = None) -> Layout:
    """The checked layout; without ``shuffle`` the buckets do not matter.

    Raises
    ------
    InvalidInput
        For a number of buckets below one, or a ratio that is not above zero.
    UnknownColumn
        For columns that a dataset does not have.
    InvalidType
        For columns that cannot be hashed: lists, maps and structs.
    """
    if not check_flag(shuffle, "shuffle"):
        return Layout(ratio=_checked_ratio(ratio))
    if isinstance(num_buckets, bool) or not isinstance(num_buckets, Integral) or num_buckets < 1:
        raise InvalidInput(f"num_buckets={num_buckets!r} is no positive number; ``num_buckets`` must not be None when shuffling data.")
    layout = Layout(True, int(num_buckets), _columns(bucket_by), _checked_ratio(ratio))
    for each in rows:
        _check_hashed(layout, each)
    return layout


def _columns(bucket_by: object) -> tuple[str, ...] | None:
    if bucket_by is None or isinstance(bucket_by, str):
        return None if bucket_by is None else (bucket_by,)
    if not isinstance(bucket_by, Sequence) or not all(isinstance(c, str) for c in bucket_by):
        raise InvalidType(f"bucket_by should be a list of columns, but is {bucket_by!r}.")
    return tuple(bucket_by) or None


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
        raise UnknownColumn(f"bucket_by names columns that dataset {rows.id!r} does not have: {', '.join(missing)}. It has {rows.schema.names}.")
    if layout.buckets_of(rows) and BUCKET in rows.schema.names:
        raise InvalidInput(f"Column {BUCKET!r} of dataset {rows.id!r} has the name under which rows carry the number of their bucket. Rename it.")
    nested = [c for c in layout.buckets_of(rows) if pt.is_nested(rows.schema.field(c).type)]
    if nested:
        raise InvalidType(
            f"Column {nested[0]!r} of dataset {rows.id!r} is {rows.schema.field(nested[0]).type}, which cannot be hashed. "
            f"Name other columns in bucket_by; {', '.join(nested)} cannot be among them."
        )


def cut_columns(layout: Layout, rows: Rows) -> tuple[str, ...]:
    """Rows that `arranged` has shuffled are in one file if they have the same values of these."""
    return (*rows.request.partition_on, *([BUCKET] if layout.buckets_of(rows) else []))


def arranged(frame: DataFrame, rows: Rows, layout: Layout, width: int) -> DataFrame:
    """The rows where and as they are staged, their columns by position: c0, c1, ..., perhaps a bucket.

    After a shuffle, rows of equal partition values and bucket lie in one task, in any order: sorting takes Arrow a fraction of the time.
    """
    # Spark asks for columns by name even where it has them by position: dots, backticks and names that differ in case only would fail.
    plain = {name: f"c{i}" for i, name in enumerate(frame.columns)}
    types = {plain[f.name]: f.dataType for f in frame.schema.fields}
    arranged = _binary_text(frame.toDF(*plain.values()), types)
    if not layout.shuffle:
        return arranged if layout.ratio is None else arranged.coalesce(layout.tasks(width))
    hashed = [plain[n] for n in layout.buckets_of(rows)]
    if hashed:
        # Stored nowhere; equal values of whatever width have the same bucket, in each write anew.
        numbers = F.xxhash64(*(_normalised(F.col(c), types[c]) for c in hashed))
        arranged = arranged.withColumn(BUCKET, F.pmod(numbers, F.lit(layout.num_buckets).cast("bigint")))
    keys = [BUCKET if c == BUCKET else plain[c] for c in cut_columns(layout, rows)]
    return arranged.repartition(layout.tasks(width), *keys) if keys else arranged.repartition(1)


def _binary_text(frame: DataFrame, types: dict[str, st.DataType]) -> DataFrame:
    """Text without collations: by these "a" and "A" may be one value, which in a file they are not."""
    collated = {c: F.col(c).cast("string") for c, kind in types.items() if isinstance(kind, st.StringType) and kind.collation != "UTF8_BINARY"}
    return frame.withColumns(collated) if collated else frame


def _normalised(column: Column, kind: st.DataType) -> Column:
    if isinstance(kind, st.IntegralType):
        return column.cast("bigint")
    if isinstance(kind, (st.FractionalType, st.DecimalType)):
        wide = column.cast("double")
        return F.when(wide == 0, F.lit(0.0)).otherwise(wide)  # -0.0 is 0.0
    if isinstance(kind, st.DateType):
        return column.cast("timestamp_ntz")
    if isinstance(kind, (st.CharType, st.VarcharType, st.TimeType)):
        return column.cast("string")
    return column
