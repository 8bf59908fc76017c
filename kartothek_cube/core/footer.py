"""The footer of a Parquet file: column chunks and statistics, looked at only after Arrow has found them sound."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["check_rows", "chunk_spans", "column_chunks", "statistics", "unpacked_bytes"]

# Rows that a file may claim however small it is, and for each of its bytes: columns that a file lacks are made up of nulls, so many rows take memory at once.
_ROWS, _ROWS_PER_BYTE = 2**27, 2**16
# Bytes that a value takes in memory: less than that it hardly is, whatever the file says.
_NUMBER, _TEXT = 8, 16


def check_rows(metadata: pq.FileMetaData, size: int) -> None:
    """Refuse numbers of rows that contradict each other, or that no file of this size can hold.

    Raises
    ------
    pyarrow.ArrowInvalid
        If they do.
    """
    rows = [metadata.row_group(g).num_rows for g in range(metadata.num_row_groups)]
    if sum(rows) != metadata.num_rows or min(rows, default=0) < 0 or metadata.num_rows > _ROWS + size * _ROWS_PER_BYTE:
        raise pa.ArrowInvalid(f"Its footer says that {size:,} bytes hold {metadata.num_rows:,} rows, and its row groups {rows[:5]}")


def column_chunks(metadata: pq.FileMetaData, size: int, groups: Sequence[int], columns: set[str]) -> list[list[Any]]:
    """For each of these row groups the chunks of some columns of a file of ``size`` bytes; a nested column has several.

    Raises
    ------
    pyarrow.ArrowInvalid
        If one of them is damaged.
    """
    positions = [j for j in range(metadata.num_columns) if any(name in columns for name in _beginnings(metadata.schema.column(j).path))] if groups else []
    if not positions:
        return [[] for _ in groups]
    _check_chunks(metadata, size, groups, positions)
    return [list(map(metadata.row_group(g).column, positions)) for g in groups]


def _beginnings(path: str) -> Iterator[str]:
    return accumulate(path.split("."), "{}.{}".format)


def _check_chunks(metadata: pq.FileMetaData, size: int, groups: Sequence[int], positions: Sequence[int]) -> None:
    """Let Arrow look at the chunks on its way to their first byte, where there is none.

    The accessors in Python do not catch what Arrow throws for a damaged chunk, which ends the process; reading does.
    """
    found = _failure(metadata, _zeros(size), groups, positions)
    if found is None or found == _failure_of_sound_file():
        return
    try:
        _read(metadata, pa.PythonFile(_Unreadable(size), mode="r"), groups, positions)
    except _ReachedError:
        return


def _failure(metadata: pq.FileMetaData, source: Any, groups: Sequence[int], positions: Sequence[int]) -> str | None:
    try:
        _read(metadata, source, groups, positions)
    except (pa.ArrowException, OSError) as error:
        return str(error)
    return None


def _read(metadata: pq.FileMetaData, source: Any, groups: Sequence[int], positions: Sequence[int]) -> None:
    # With `pre_buffer` the places of all chunks are computed before anything is read.
    pq.ParquetFile(source, metadata=metadata, pre_buffer=True).reader.read_row_groups(list(groups), column_indices=list(positions), use_threads=False)


def _zeros(size: int) -> pa.BufferReader:
    # Address space, which becomes memory only where it is read.
    return pa.BufferReader(pa.py_buffer(mmap.mmap(-1, size)))


@cache
def _failure_of_sound_file() -> str | None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"x": [1]}), sink)
    data = sink.getvalue()
    return _failure(pq.read_metadata(pa.BufferReader(data)), _zeros(len(data)), [0], [0])


class _ReachedError(Exception):
    """A byte was asked for."""


class _Unreadable:
    """A file of some size that says when it is read."""

    closed = False

    def __init__(self, size: int) -> None:
        self._size, self._position = size, 0

    def seek(self, offset: int, whence: int = 0) -> int:
        self._position = offset + (self._size if whence == 2 else 0)
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, _nbytes: int) -> bytes:
        raise _ReachedError

    def close(self) -> None:
        self.closed = True


def chunk_spans(chunks: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """Where the chunks begin and end in the file."""
    for chunk in chunks:
        start = chunk.dictionary_page_offset or chunk.data_page_offset
        yield start, start + chunk.total_compressed_size


def unpacked_bytes(chunks: Sequence[Any]) -> int:
    """About what the chunks take in memory. Texts may lie in the file as numbers of a dictionary: it does not say how long they are."""
    return sum(max(chunk.total_uncompressed_size, chunk.num_values * (_TEXT if chunk.physical_type == "BYTE_ARRAY" else _NUMBER)) for chunk in chunks)


def statistics(chunk: Any, column: Any) -> tuple[Any, Any, bool]:
    """Minimum, maximum (None: unknown), and whether there may be nulls; ``column`` is what the schema of the file says of the column of the chunk."""
    if chunk is None or chunk.physical_type != column.physical_type:  # Arrow would throw
        raise pa.ArrowInvalid(f"Its footer contradicts itself about column {column.path!r}, which is {column.physical_type}")
    stats = chunk.statistics
    if stats is None:
        return None, None, True
    nullable = not stats.has_null_count or stats.null_count > 0
    try:
        return (stats.min, stats.max, nullable) if stats.has_min_max else (None, None, nullable)
    except (OverflowError, ValueError, NotImplementedError):  # a moment beyond Python's datetime; decimals as integers in older pyarrow
        return None, None, nullable
