"""Tables as datasets of Arrow, which DuckDB scans with push-down, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from kartothek_cube.engines.arrow_filters import fields_of, filter_of
from kartothek_cube.engines.filters import implied_clauses
from kartothek_cube.engines.tables import Scan, Table

__all__ = ["TableDataset"]


class TableDataset(pads.Dataset):
    """A table as DuckDB takes it: a dataset of Arrow with a schema and a scanner.

    Nothing else of a dataset works: there is no dataset of Arrow's below.

    Parameters
    ----------
    table : Table
        What is scanned.
    record : callable
        Called with each scan, when it has been planned.
    is_dry : bool
        Plan and record scans, and give no rows.
    """

    def __init__(self, table: Table, record: Callable[[Scan], object], *, is_dry: bool = False) -> None:
        # Without the initializer of the base class, which allows none but Arrow's own datasets.
        self.table, self._record, self._is_dry = table, record, is_dry

    @property
    def schema(self) -> pa.Schema:
        """All columns of the table."""
        return self.table.schema

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - Arrow's name, which DuckDB uses
        **_: Any,
    ) -> TableScanner:
        """Plan a scan of some columns, for the rows that satisfy an expression."""
        table, wanted = self.table, list(self.table.schema.names if columns is None else columns)
        if filter is None:
            scanner = TableScanner(table.scan(wanted), wanted)
        else:
            (implied,) = implied_clauses([filter_of(filter)], table.schema, table.accepts)
            needed = wanted if implied.exact else [*wanted, *sorted(fields_of(filter) - set(wanted))]
            scan = table.scan(needed, implied.clauses)
            scanner = TableScanner(scan, wanted, None if implied.exact else filter)
        self._record(scanner.scan)
        return scanner.without_rows() if self._is_dry else scanner


class TableScanner:
    """A planned scan, which DuckDB asks for its reader."""

    def __init__(
        self, scan: Scan, columns: list[str], rest: pc.Expression | None = None, *, limit: int | None = None
    ) -> None:
        self.scan, self._columns, self._rest, self._limit = scan, columns, rest, limit

    def without_rows(self) -> TableScanner:
        """The same scanner, which reads nothing."""
        return TableScanner(self.scan, self._columns, self._rest, limit=0)

    @property
    def projected_schema(self) -> pa.Schema:
        """The columns of the rows."""
        return pa.schema([self.scan.table.schema.field(c) for c in self._columns])

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows, batch by batch."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for rows in self.scan.tables(self._limit):
            kept = rows if self._rest is None else rows.filter(self._rest)
            yield from kept.select(self._columns).to_batches()
