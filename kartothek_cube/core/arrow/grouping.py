"""Rows by group: tables are split, and rows wait for the rest of their group, on disk if needed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

from kartothek_cube.core.arrow.sort_keys import IntArray, group_starts, pack, take_rows

__all__ = ["AMPLIFICATION_LIMIT", "Spill", "group_numbers", "split_groups"]

# With more reads per file than this, files are read once and their rows split by group.
AMPLIFICATION_LIMIT = 2.0


def group_numbers(keys: pa.Table, table: pa.Table) -> IntArray:
    """For each row the number of its group among the ascending keys; -1 if it is in no group."""
    by = keys.column_names
    groups, rows = pack([keys, table.select(by)], by)
    if not len(groups):
        return np.full(table.num_rows, -1, dtype=np.int64)
    numbers = np.minimum(np.searchsorted(groups, rows), len(groups) - 1)
    return np.where(groups[numbers] == rows, numbers, -1)


def split_groups(keys: pa.Table, table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each group that has some, in group order; within a group in their own order."""
    numbers = group_numbers(keys, table)
    # NumPy sorts narrow integers by radix, an order of magnitude faster.
    order = np.argsort(numbers.astype(np.int16) if keys.num_rows < 2**15 else numbers, kind="stable")
    # Rows without a group (-1) are sorted first.
    order = order[np.searchsorted(numbers[order], 0) :]
    sorted_rows, starts = take_rows(table, order), group_starts(numbers[order])
    lengths = np.diff(np.append(starts, len(order)))
    for number, start, length in zip(numbers[order[starts]].tolist(), starts.tolist(), lengths.tolist(), strict=True):
        yield number, sorted_rows.slice(start, length)


class Spill:
    """Rows of one schema that wait for their group: in memory, and beyond a limit in an Arrow file.

    All rows are added before any are taken. The temporary file is created when it is needed and
    removed at the end of the block.
    """

    def __init__(self, schema: pa.Schema, limit: float) -> None:
        self._schema, self._limit = schema, limit
        self._waiting: defaultdict[int, list[pa.Table]] = defaultdict(list)
        self._bytes = 0
        self._stored: defaultdict[int, list[range]] = defaultdict(list)
        self._written = 0
        self._open, self._writing = ExitStack(), ExitStack()
        self._path: Path | None = None
        self._writer: Any = None
        self._reader: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._open.close()

    def add(self, number: int, rows: pa.Table) -> None:
        """Keep rows for a group."""
        self._waiting[number].append(rows)
        self._bytes += rows.nbytes
        if self._bytes <= self._limit:
            return
        if self._path is None:
            import tempfile

            folder = self._open.enter_context(tempfile.TemporaryDirectory(prefix="kartothek_cube-"))
            self._path = Path(folder) / "rows.arrow"
            self._open.enter_context(self._writing)
            sink = self._writing.enter_context(pa.OSFile(str(self._path), "wb"))
            self._writer = self._writing.enter_context(pa.ipc.new_file(sink, self._schema))
        for waiting, tables in self._waiting.items():
            for batches in (table.to_batches() for table in tables):
                for batch in batches:
                    self._writer.write_batch(batch)
                # The file gives batches back by position.
                self._stored[waiting].append(range(self._written, self._written + len(batches)))
                self._written += len(batches)
        self._waiting.clear()
        self._bytes = 0

    def numbers(self) -> list[int]:
        """The groups that have rows, in order."""
        return sorted({*self._waiting, *self._stored})

    def take(self, number: int) -> list[pa.Table]:
        """The tables of one group, in the order of `add`; they are removed from the spill."""
        return list(self.pieces(number))

    def pieces(self, number: int) -> Iterator[pa.Table]:
        """The same as an iterator that reads one table at a time."""
        for positions in self._stored.pop(number, []):
            if self._reader is None:
                # The footer of an Arrow file is written when the writer is closed.
                self._writing.close()
                self._reader = pa.ipc.open_file(self._open.enter_context(pa.OSFile(str(self._path), "rb")))
            yield pa.Table.from_batches([self._reader.get_batch(i) for i in positions], self._schema)
        yield from self._waiting.pop(number, [])
