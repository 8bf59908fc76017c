"""Tables as sources of Daft: one task for each partition."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import daft
import pyarrow as pa
from daft.expressions import Expression, ExpressionsProjection
from daft.io.clustering import ClusteringKeys
from daft.io.partitioning import PartitionField
from daft.io.pushdowns import Pushdowns
from daft.io.source import DataSource, DataSourceTask
from daft.recordbatch import RecordBatch

from kartothek_cube.core.expressions.filters import implied_clauses
from kartothek_cube.core.expressions.predicates import Clause
from kartothek_cube.engines.arrow_dataset import filter_of
from kartothek_cube.engines.tables import Scan, Table


class TableSource(DataSource):
    """What Daft calls to read a table.

    The rows of a partition come from one task: groups by the partition columns need no shuffle.
    """

    def __init__(self, table: Table) -> None:
        self._table = table

    @property
    def name(self) -> str:
        """Kind and name of the table."""
        return f"{self._table.kind} {self._table.name!r}"

    @property
    def schema(self) -> daft.Schema:
        """All columns of the table."""
        return daft.Schema.from_pyarrow_schema(self._table.schema)

    def get_partition_fields(self) -> list[PartitionField]:
        """The partition columns."""
        return [PartitionField.create(self.schema[column]) for column in self._partition_columns]

    def get_clustering_keys(self) -> ClusteringKeys | None:
        """The partition columns: rows with equal values come from one task."""
        return ClusteringKeys.hash(*self._partition_columns) if self._partition_columns else None

    @property
    def _partition_columns(self) -> tuple[str, ...]:
        return self._table.partition_columns

    async def get_tasks(self, pushdowns: Pushdowns) -> AsyncIterator[DataSourceTask]:
        """One task for each partition that may have wanted rows."""
        names = self._table.schema.names
        # Daft filters the rows again, and takes columns by their place in the schema.
        wanted = {*(names if pushdowns.columns is None else pushdowns.columns)}
        wanted |= pushdowns.filter_required_column_names()
        clauses = (*self._implied(pushdowns.filters), *self._implied(pushdowns.partition_filters))
        scan = self._table.scan([name for name in names if name in wanted], clauses)
        partitions, scans = scan.by_partition()
        kept = list(range(len(scans)))
        # Filters on partition columns are ours alone.
        if pushdowns.partition_filters is not None and self._partition_columns:
            numbered = RecordBatch.from_arrow_table(partitions.append_column("", pa.array(kept, pa.int64())))
            kept = numbered.filter(ExpressionsProjection([pushdowns.partition_filters])).to_pydict()[""]
        limit = pushdowns.limit if pushdowns.filters is None else None
        for number in kept:
            yield _ScanTask(scans[number], limit)

    def _implied(self, expression: Expression | None) -> tuple[Clause, ...]:
        """Conditions that all rows with this filter satisfy."""
        if expression is not None:
            with suppress(NotImplementedError, TypeError, ValueError):  # no expression of Arrow says it
                condition = filter_of(expression.to_arrow_expr())
                (implied,) = implied_clauses([condition], self._table.schema, self._table.accepts)
                return implied.clauses
        return ()


class _ScanTask(DataSourceTask):
    def __init__(self, scan: Scan, limit: int | None) -> None:
        self._scan, self._limit = scan, limit

    @property
    def schema(self) -> daft.Schema:
        return daft.Schema.from_pyarrow_schema(self._scan.schema)

    async def read(self) -> AsyncIterator[RecordBatch]:
        tables = self._scan.tables(self._limit)
        # In a thread, so that other tasks read meanwhile.
        while (rows := await asyncio.to_thread(next, tables, None)) is not None:
            yield RecordBatch.from_arrow_table(rows)
