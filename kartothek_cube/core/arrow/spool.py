"""Rows of any number as one table: in memory, beyond a limit in a memory-mapped file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

__all__ = ["Spool"]


class Spool:
    """Collects tables of one schema; the temporary file exists until the end of the block.

    Examples
    --------
    >>> with Spool(pa.schema([("UNITS", pa.int64())]), limit=0) as spool:
    ...     spool.add(pa.table({"UNITS": [1, 2]}))
    ...     spool.add(pa.table({"UNITS": [3]}))
    ...     spool.table().column("UNITS").to_pylist()
    [1, 2, 3]
    """

    def __init__(self, schema: pa.Schema, limit: int) -> None:
        self._schema, self._limit = schema, limit
        self._waiting: list[pa.Table] = []
        self._bytes = 0
        self._open, self._writing = ExitStack(), ExitStack()
        self._path: Path | None = None
        self._writer: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._waiting.clear()
        # The folder goes even if the file cannot be closed, e.g. on a full disk.
        with self._open, self._writing:
            pass

    def add(self, rows: pa.Table) -> None:
        """Keep rows."""
        if not rows.num_rows:
            return
        self._waiting.append(rows)
        self._bytes += rows.nbytes
        if self._bytes <= self._limit:
            return
        if self._path is None:
            folder = self._open.enter_context(tempfile.TemporaryDirectory(prefix="kartothek_cube-"))
            self._path = Path(folder) / "rows.arrow"
            sink = self._writing.enter_context(pa.OSFile(str(self._path), "wb"))
            self._writer = self._writing.enter_context(pa.ipc.new_file(sink, self._schema))
        self._writer.write_table(pa.concat_tables(self._waiting).combine_chunks())
        self._waiting, self._bytes = [], 0

    def add_all(self, tables: Iterable[pa.Table]) -> None:
        """Keep the rows of several tables."""
        for table in tables:
            self.add(table)

    def table(self) -> pa.Table:
        """All rows, in the order of `add`; nothing can be added afterwards."""
        if self._path is None:
            rows = pa.concat_tables([self._schema.empty_table(), *self._waiting])
            return rows.combine_chunks()
        self._writing.close()
        source = self._open.enter_context(pa.memory_map(str(self._path), "rb"))
        stored = pa.ipc.open_file(source).read_all()
        return pa.concat_tables([stored, *self._waiting])
