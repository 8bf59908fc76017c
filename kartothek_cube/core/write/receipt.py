"""The rows of a partition before staging, and the receipt of a staged file. Pure values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from kartothek_cube.core.metadata.index import distinct_values
from kartothek_cube.core.metadata.naming import SINGLE_TABLE
from kartothek_cube.core.metadata.statistics import StatisticsOfFile

__all__ = ["PartitionRows", "Receipt", "index_entries"]

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class PartitionRows:
    """Rows of one physical partition; ``values`` has partition columns, ``table`` the others."""

    values: Mapping[str, Any]
    label: str
    table: pa.Table


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a commit needs to know of a staged file (Delta: ``AddFile``; Iceberg: ``DataFile``).

    ``schema`` includes the partition columns. ``entries`` has the distinct values of each indexed
    column. ``low`` and ``high`` are the sort columns of the first and the last row. ``staged`` is
    a time (UTC) right before the file was written: the file is not older. ``statistics`` are those
    of the rows, if they were asked for. Receipts of one label with different tables make one
    partition.
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
    statistics: StatisticsOfFile | None = None

    def __setstate__(self, state: Sequence[Any]) -> None:
        # A receipt that an older version pickled has no statistics. If it has no time, either, the
        # file may be of any age.
        newer = (_LONG_AGO, None)[len(state) - len(self.__slots__) :] if len(state) < len(self.__slots__) else ()
        for name, value in zip(self.__slots__, (*state, *newer), strict=True):
            object.__setattr__(self, name, value)


def index_entries(rows: PartitionRows, columns: Sequence[str]) -> dict[str, pa.Array]:
    """The distinct values that the rows have in each indexed column."""
    return {c: distinct_values(rows.table.column(c)) for c in columns if c in rows.table.column_names}
