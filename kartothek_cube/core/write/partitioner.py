"""Cuts rows into physical partitions; and partition columns that follow from a date. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from kartothek_cube.core.arguments import drop_or_fill
from kartothek_cube.core.arrow.keys import IntArray, group_starts, pack_one
from kartothek_cube.core.arrow.pandas import null_count
from kartothek_cube.core.metadata.document import partition_text
from kartothek_cube.core.metadata.naming import label_of
from kartothek_cube.core.write.receipt import PartitionRows
from kartothek_cube.errors import InvalidInput, UnknownColumn, Unsupported

__all__ = [
    "UNITS",
    "DerivedColumn",
    "day",
    "derived_in",
    "month",
    "refuse_derived",
    "split_rows",
    "with_derived",
    "year",
]

# NumPy sorts 16-bit keys by radix, five times as fast as wider ones.
_RADIX_KEYS = 2**16


def split_rows(table: pa.Table, partition_on: Sequence[str], base_label: str, uuid: str) -> list[PartitionRows]:
    """Cut rows by partition values: partitions in order of their values, rows in input order.

    At most one sort, then slices by offsets.
    """
    if not partition_on:
        return [PartitionRows({}, base_label, table)]
    nulls = {name: n for name in partition_on if (n := null_count(table.column(name)))}
    if nulls:
        counts = ", ".join(f"{name}: {n:,}" for name, n in nulls.items())
        raise InvalidInput(
            f"There are nulls in the partition columns {[*nulls]} of dataset {uuid!r} ({counts} of "
            f"{table.num_rows:,} rows); a path cannot name them. {drop_or_fill(nulls)}"
        )
    table, starts = _grouped(table, partition_on)
    firsts = _distinct_rows(table.select(list(partition_on)).take(pa.array(starts)), uuid)
    # The path has these values, and readers take them from there, whatever the file says.
    payload = table.drop_columns(list(partition_on))
    if payload.num_columns == 0:
        raise InvalidInput(f"No data left to save outside partition columns {list(partition_on)} in dataset {uuid!r}.")
    lengths = np.diff(np.append(starts, table.num_rows))
    types = {name: table.schema.field(name).type for name in partition_on}
    parts = []
    for values, start, length in zip(firsts, starts, lengths, strict=True):
        pairs: list[tuple[str, str | bytes]] = []
        for name, value in values.items():
            try:
                pairs.append((name, partition_text(value, types[name])))
            except Unsupported as error:
                raise Unsupported(f"Partition column {name!r} of dataset {uuid!r}: {error}") from None
        label = label_of(pairs, base_label)  # type: ignore[arg-type]
        parts.append(PartitionRows(values, label, payload.slice(start, length)))
    return parts


def _grouped(table: pa.Table, by: Sequence[str]) -> tuple[pa.Table, IntArray]:
    """The rows sorted by some columns, equal ones in their order, and the start of each group."""
    if not table.num_rows:
        return table, np.zeros(0, dtype=np.int64)
    changed = np.zeros(table.num_rows - 1, dtype=bool)
    for column in map(table.column, by):
        changed |= pc.not_equal(column.slice(1), column.slice(0, len(column) - 1)).to_numpy()
    starts = np.concatenate(([0], np.flatnonzero(changed) + 1)).astype(np.int64)
    # Keys are packed once per run of equal rows. Rows that are grouped already are not sorted.
    keys = pack_one(table.select(list(by)).take(pa.array(starts)), by)
    if bool((keys[1:] > keys[:-1]).all()):
        return table, starts
    keys = np.repeat(keys, np.diff(np.append(starts, table.num_rows)))
    keys = keys.astype(np.uint16) if int(keys.min()) >= 0 and int(keys.max()) < _RADIX_KEYS else keys
    order = np.argsort(keys, kind="stable")
    return table.take(pa.array(order)), group_starts(keys[order])


def _distinct_rows(rows: pa.Table, uuid: str) -> list[dict[str, Any]]:
    columns = []
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        try:
            columns.append(column.to_pylist())
        except UnicodeDecodeError:
            raise InvalidInput(
                f"Partition column {name!r} of dataset {uuid!r} has text that is not UTF-8, which a path cannot name."
            ) from None
        except (OverflowError, ValueError):
            raise InvalidInput(
                f"Partition column {name!r} of dataset {uuid!r} has moments outside the years 1 to 9999, "
                "which a path cannot name."
            ) from None
    return [dict(zip(rows.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


# --- derived columns ------------------------------------------------------------------------------

Unit: TypeAlias = Literal["year", "month", "day"]
UNITS: tuple[Unit, ...] = ("year", "month", "day")


class DerivedColumn(str):
    """The name of a column whose values follow from another one, e.g. ``SALES_DATE_month``.

    A write that is partitioned on it adds the column to its rows. From then on it is a column like
    any other.

    Examples
    --------
    >>> column = month("SALES_DATE")
    >>> column, column.source, column.unit
    ('SALES_DATE_month', 'SALES_DATE', 'month')
    """

    __slots__ = ("source", "unit")

    source: str
    unit: Unit

    def __new__(cls, source: str, unit: Unit) -> Self:
        if not isinstance(source, str) or not source:  # type: ignore[redundant-expr]
            raise InvalidInput(f"{unit}(...) takes the name of a column, not {source!r}.")
        made = super().__new__(cls, f"{source}_{unit}")
        made.source, made.unit = source, unit
        return made

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        return self.source, self.unit

    def values(self, rows: pa.Table, dataset: str) -> pa.ChunkedArray:
        """The values for some rows.

        Raises
        ------
        UnknownColumn
            If the rows do not have the source.
        Unsupported
            If it is no date and no timestamp without a zone.
        """
        if self.source not in rows.column_names:
            raise UnknownColumn(
                f"{self.unit}({self.source!r}): the rows for dataset {dataset!r} have no such column, "
                f"only {rows.column_names}."
            )
        column = rows.column(self.source)
        is_plain = pt.is_date(column.type) or (pt.is_timestamp(column.type) and column.type.tz is None)
        if not is_plain and not pt.is_null(column.type):
            raise Unsupported(
                f"{self.unit}({self.source!r}): the column of dataset {dataset!r} is {column.type}. "
                "Cast it to a date, or to a timestamp without a zone."
            )
        column = column.cast(pa.date32()) if pt.is_null(column.type) else column
        if self.unit == "year":
            return pc.year(column)
        return pc.floor_temporal(column, unit=self.unit).cast(pa.date32())


def year(column: str) -> DerivedColumn:
    """The year of a date or time as a partition column, an integer.

    Examples
    --------
    >>> year("SALES_DATE")
    'SALES_DATE_year'
    """
    return DerivedColumn(column, "year")


def month(column: str) -> DerivedColumn:
    """The month of a date or time as a partition column: the date of its first day.

    Conditions on the date itself open only the files of its months, by their statistics.

    Examples
    --------
    >>> import datetime as dt
    >>> import pyarrow as pa
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import month, store_dataframes_as_dataset
    >>> days = [dt.date(2024, 5, 1), dt.date(2024, 5, 31), dt.date(2024, 6, 1)]
    >>> sales = pa.table({"SALES_DATE": days, "UNITS": [3, 4, 5]})
    >>> store, by_month = open_store("hmemory://"), month("SALES_DATE")
    >>> dataset = store_dataframes_as_dataset(store, "sales", [sales], partition_on=by_month)
    >>> sorted(label.split("/")[0] for label in dataset.partitions)
    ['SALES_DATE_month=2024-05-01', 'SALES_DATE_month=2024-06-01']
    """
    return DerivedColumn(column, "month")


def day(column: str) -> DerivedColumn:
    """The day of a date or time as a partition column, a date.

    Examples
    --------
    >>> day("SOLD_AT")
    'SOLD_AT_day'
    """
    return DerivedColumn(column, "day")


def derived_in(names: Iterable[str]) -> tuple[DerivedColumn, ...]:
    """The derived columns among some names."""
    return tuple(name for name in names if isinstance(name, DerivedColumn))


def refuse_derived(names: Iterable[object], where: str) -> None:
    """Raise for a derived column in a cube, whose datasets share their partition columns."""
    for name in names:
        if isinstance(name, DerivedColumn):
            raise InvalidInput(
                f"{where}: {name.unit}({name.source!r}) is for single datasets. Add the column {str(name)!r} to the "
                "rows yourself, and name it here."
            )


def with_derived(rows: pa.Table, columns: Iterable[DerivedColumn], dataset: str) -> pa.Table:
    """The rows with derived columns.

    Raises
    ------
    InvalidInput
        If the rows have a column of the name with other values.
    """
    for column in columns:
        values, name = column.values(rows, dataset), str(column)
        if name not in rows.column_names:
            rows = rows.append_column(name, values)
            continue
        try:
            is_same = rows.column(name).cast(values.type).equals(values)
        except pa.ArrowException:
            is_same = False
        if not is_same:
            raise InvalidInput(
                f"Column {name!r} of the rows for dataset {dataset!r} is not the {column.unit} of {column.source!r}. "
                "Leave it out, or correct it."
            )
    return rows
