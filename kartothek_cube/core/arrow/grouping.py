"""Rows by group: splitting a table, and rows that wait for the others of their group, on disk where memory does not suffice."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

from kartothek_cube.core.arrow.sort_keys import IntArray, group_starts, pack, take_rows

__all__ = ["AMPLIFICATION_LIMIT", "Spill", "group_numbers", "split_groups"]

# From this many reads per file on, files are read once and their rows split by group.
AMPLIFICATION_LIMIT = 2.0


def group_numbers(keys: pa.Table, table: pa.Table) -> IntArray:
    """For each row the number of its group among the ascending keys; -1 for a row that is in none, as it has no value."""
    by = keys.column_names
    wanted, rows = pack([keys, table.select(by)], by)
    if not len(wanted):
        return np.full(table.num_rows, -1, dtype=np.int64)
    found = np.minimum(np.searchsorted(wanted, rows), len(wanted) - 1)
    return np.where(wanted[found] == rows, found, -1)


def split_groups(keys: pa.Table, table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each group that has some, in group order; their order within the group is kept."""
    numbers = group_numbers(keys, table)
    # numpy sorts narrow integers by radix, an order of magnitude faster.
    order = np.argsort(numbers.astype(np.int16) if keys.num_rows < 2**15 else numbers, kind="stable")
    order = order[np.searchsorted(numbers[order], 0) :]
    ordered, starts = take_rows(table, order), group_starts(numbers[order])
    ends = np.append(starts, len(order))[1:]
    for number, begin, end in zip(numbers[order[starts]].tolist(), starts.tolist(), ends.tolist(), strict=True):
        yield number, ordered.slice(begin, end - begin)


class Spill:
    """Rows of one schema that wait for their group: in memory up to a limit, then in a temporary Arrow file.

    First everything is added, then taken. Leaving the block removes the file; it is made when it is
    needed.
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
        if self._bytes > self._limit:
            self._flush()

    def _flush(self) -> None:
        if self._path is None:
            self._create()
        for number, tables in self._waiting.items():
            self._stored[number] += [self._written_batches(rows.to_batches()) for rows in tables]
        self._waiting.clear()
        self._bytes = 0

    def _written_batches(self, batches: Sequence[pa.RecordBatch]) -> range:
        """Write batches; their positions in the file."""
        for batch in batches:
            self._writer.write_batch(batch)
        self._written += len(batches)
        return range(self._written - len(batches), self._written)

    def _create(self) -> None:
        self._path = (
            Path(self._open.enter_context(tempfile.TemporaryDirectory(prefix="kartothek_cube-"))) / "rows.arrow"
        )
        self._open.enter_context(self._writing)
        sink = self._writing.enter_context(pa.OSFile(str(self._path), "wb"))
        self._writer = self._writing.enter_context(pa.ipc.new_file(sink, self._schema))

    def numbers(self) -> list[int]:
        """Groups that have rows, in order."""
        return sorted({*self._waiting, *self._stored})

    def take(self, number: int) -> list[pa.Table]:
        """The tables that were added for one group, in their order; they are forgotten here."""
        return list(self.pieces(number))

    def pieces(self, number: int) -> Iterator[pa.Table]:
        """The same, each read when it is asked for."""
        for positions in self._stored.pop(number, []):
            yield self._read(positions)
        yield from self._waiting.pop(number, [])

    def _read(self, positions: range) -> pa.Table:
        if self._reader is None:
            self._writing.close()
            self._reader = pa.ipc.open_file(self._open.enter_context(pa.OSFile(str(self._path), "rb")))
        return pa.Table.from_batches([self._reader.get_batch(position) for position in positions], self._schema)
