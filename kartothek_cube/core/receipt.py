"""Rows of a partition before they are staged, and the receipt of a staged file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from kartothek_cube.core.naming import SINGLE_TABLE

__all__ = ["PartitionRows", "Receipt", "distinct_values", "index_entries"]

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class PartitionRows:
    """Rows of one physical partition without its partition columns; ``values`` has the partition value of each column."""

    values: Mapping[str, Any]
    label: str
    table: pa.Table


@dataclass(frozen=True, slots=True)
class Receipt:
    """A staged file, with what a commit must know of it (Delta: ``AddFile``; Iceberg: ``DataFile``).

    ``schema`` includes the partition columns. ``entries`` has the distinct values of each indexed column. ``low`` and ``high``
    are the least and the greatest cell, as tuples of the sort columns. ``staged`` is when the file was written (UTC).
    Receipts of one label with different tables make one partition.
    """

    dataset: str
    label: str
    key: str
    values: Mapping[str, Any]
    rows: int
    size: int
    schema: pa.Schema
    entries: Mapping[str, pa.Array]
    low: tuple[Any, ...] = ()
    high: tuple[Any, ...] = ()
    table: str = SINGLE_TABLE
    staged: datetime = field(default_factory=lambda: datetime.now(UTC))

    def __setstate__(self, state: Sequence[Any]) -> None:
        # A receipt that was pickled before receipts had a time may be of any age.
        for name, value in zip(self.__slots__, (*state, *[_LONG_AGO] * (len(self.__slots__) - len(state))), strict=True):
            object.__setattr__(self, name, value)


def index_entries(rows: PartitionRows, columns: Sequence[str]) -> dict[str, pa.Array]:
    """The distinct values that the rows have in each indexed column."""
    return {c: distinct_values(rows.table.column(c)) for c in columns if c in rows.table.column_names}


def distinct_values(column: pa.ChunkedArray) -> pa.Array:
    """The values of a column, each once, without nulls and NaN."""
    distinct = column.unique()
    distinct = distinct.drop_null() if distinct.null_count else distinct
    return distinct.filter(pc.invert(pc.is_nan(distinct))) if pt.is_floating(distinct.type) else distinct
