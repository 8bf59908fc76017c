"""The footer of a Parquet file: column chunks and statistics, looked at only after Arrow has found them sound."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["check_rows", "chunk_spans", "column_chunks", "column_positions", "first_codec", "repeats_texts", "statistics", "unpacked_bytes"]

# Rows that a file may claim however small it is, and for each of its bytes: columns that a file lacks are made up of nulls, so many rows take memory at once.
_ROWS, _ROWS_PER_BYTE = 2**27, 2**16
# Bytes that a value takes in memory: less than that it hardly is, whatever the file says.
_NUMBER, _TEXT = 8, 16


def check_rows(metadata: pq.FileMetaData, size: int) -> list[int]:
    """The number of rows of each row group. Refused are such that contradict each other, or that no file of this size can hold.

    Raises
    ------
    pyarrow.ArrowInvalid
        If they do.
    """
    rows = [metadata.row_group(g).num_rows for g in range(metadata.num_row_groups)]
    if sum(rows) != metadata.num_rows or min(rows, default=0) < 0 or metadata.num_rows > _ROWS + size * _ROWS_PER_BYTE:
        raise pa.ArrowInvalid(f"Its footer says that {size:,} bytes hold {metadata.num_rows:,} rows, and its row groups {rows[:5]}")
    return rows


def column_positions(metadata: pq.FileMetaData, schema: pa.Schema) -> dict[str, range]:
    """Where the chunks of each column stand in a row group; a nested column has several. Names do not say it: "a.b" may be a column or a part of one.

    Raises
    ------
    pyarrow.ArrowInvalid
        If the schema has other columns than the row groups.
    """
    # Every column has a chunk at least.
    counts = [1] * len(schema) if metadata.num_columns == len(schema) else [_leaves(kind) for kind in schema.types]
    if sum(counts) != metadata.num_columns:
        raise pa.ArrowInvalid(f"Its schema has {sum(counts):,} columns where it has {metadata.num_columns:,}")
    return {name: range(end - count, end) for name, count, end in zip(schema.names, counts, accumulate(counts), strict=True)}


def _leaves(kind: pa.DataType) -> int:
    """How many columns without parts a column of this type consists of."""
    if isinstance(kind, pa.BaseExtensionType):
        return _leaves(kind.storage_type)
    if pa.types.is_map(kind):
        return _leaves(kind.key_type) + _leaves(kind.item_type)
    if pa.types.is_struct(kind):
        return sum(_leaves(field.type) for field in kind)
    return _leaves(kind.value_type) if hasattr(kind, "value_type") else 1


def column_chunks(metadata: pq.FileMetaData, size: int, groups: Sequence[int], positions: Sequence[int]) -> list[list[Any]]:
    """For each of these row groups the chunks at some positions; ``size`` is that of the file.

    Raises
    ------
    pyarrow.ArrowInvalid
        If one of them is damaged.
    """
    if not positions or not groups:
        return [[] for _ in groups]
    _check_chunks(metadata, size, groups, positions)
    return [list(map(metadata.row_group(g).column, positions)) for g in groups]


def _check_chunks(metadata: pq.FileMetaData, size: int, groups: Sequence[int], positions: Sequence[int]) -> None:
    """Let Arrow look at the chunks on its way to their first byte, which it does not get.

    The accessors in Python do not catch what Arrow throws for a damaged chunk, which ends the process; reading does.
    """
    source = _Unreadable(size)
    try:
        # With `pre_buffer` the places of all chunks are computed before anything is read.
        file = pq.ParquetFile(pa.PythonFile(source, mode="r"), metadata=metadata, pre_buffer=True)
        file.reader.read_row_groups(list(groups), column_indices=list(positions), use_threads=False)
    except (pa.ArrowException, OSError):
        if not source.is_reached:
            raise


def first_codec(metadata: pq.FileMetaData, size: int) -> str | None:
    """The codec of the first column chunk, if there is one.

    Raises
    ------
    pyarrow.ArrowException
        If the chunk is damaged, or its codec none that Arrow knows.
    """
    if not metadata.num_row_groups or not metadata.num_columns:
        return None
    ((chunk,),) = column_chunks(metadata, size, [0], [0])
    try:  # the codec is looked at behind the first byte and before what the bytes say
        file = pq.ParquetFile(pa.PythonFile(_Empty(size), mode="r"), metadata=metadata)
        file.reader.read_row_groups([0], column_indices=[0], use_threads=False)
    except (pa.ArrowException, OSError) as error:
        if "codec" in str(error):
            raise
    return str(chunk.compression)


class _Unreadable:
    """A file of some size that ends where it is read, and knows that it was."""

    closed = False

    def __init__(self, size: int) -> None:
        self._size, self._position, self.is_reached = size, 0, False

    def seek(self, offset: int, whence: int = 0) -> int:
        self._position = offset + (self._size if whence == 2 else 0)
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, _nbytes: int) -> bytes:
        self.is_reached = True
        return b""  # an exception takes longer

    def close(self) -> None:
        self.closed = True


class _Empty(_Unreadable):
    """A file of some size that is all zeros."""

    def read(self, nbytes: int) -> bytes:
        return bytes(max(0, min(nbytes, self._size - self._position)))


def chunk_spans(chunks: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """Where the chunks begin and end in the file."""
    for chunk in chunks:
        start = chunk.dictionary_page_offset or chunk.data_page_offset
        yield start, start + chunk.total_compressed_size


def repeats_texts(chunks: Sequence[Any]) -> bool:
    """Whether the chunks of a column of texts hold numbers of a dictionary and hardly a text twice: one takes four bytes and more."""
    return bool(chunks) and all(chunk.has_dictionary_page and chunk.total_uncompressed_size < 4 * chunk.num_values for chunk in chunks)


def unpacked_bytes(chunks: Sequence[Any]) -> int:
    """About what the chunks take in memory. Texts may lie in the file as numbers of a dictionary: it does not say how long they are."""
    return sum(max(chunk.total_uncompressed_size, chunk.num_values * (_TEXT if chunk.physical_type == "BYTE_ARRAY" else _NUMBER)) for chunk in chunks)


def statistics(chunk: pq.ColumnChunkMetaData, column: pq.ColumnSchema) -> tuple[Any, Any, bool]:
    """Minimum, maximum (None: unknown), and whether there may be nulls; ``column`` is what the schema of the file says of the column of the chunk."""
    if chunk.physical_type != column.physical_type:  # Arrow would throw
        raise pa.ArrowInvalid(f"Its footer contradicts itself about column {column.path!r}, which is {column.physical_type}")
    stats = chunk.statistics
    if stats is None:
        return None, None, True
    nullable = not stats.has_null_count or stats.null_count > 0
    try:
        return (stats.min, stats.max, nullable) if stats.has_min_max else (None, None, nullable)
    except (OverflowError, ValueError, NotImplementedError):  # a moment beyond Python's datetime; decimals as integers in older pyarrow
        return None, None, nullable
