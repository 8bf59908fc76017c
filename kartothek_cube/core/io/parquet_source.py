"""An open Parquet file: its footer, and some columns of some of its row groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq

from kartothek_cube.core.io.file_format import readable
from kartothek_cube.core.runtime.telemetry import record
from kartothek_cube.core.stores.contract import Span, Store

__all__ = [
    "ParquetSource",
    "check_rows",
    "chunk_spans",
    "column_chunks",
    "column_positions",
    "column_statistics",
    "first_codec",
    "open_file",
    "repeats_texts",
    "unpacked_bytes",
]

# Rows that a file may claim however small it is, and for each of its bytes: columns that a file
# lacks are made up of nulls, so many rows take memory at once.
_ROWS, _ROWS_PER_BYTE = 2**27, 2**16

# Bytes that a value takes in memory: less than that it hardly is, whatever the file says.
_NUMBER, _TEXT = 8, 16


def check_rows(metadata: pq.FileMetaData, size: int) -> list[int]:
    """The number of rows of each row group.

    Refused are such that contradict each other, or that no file of this size can hold.

    Raises
    ------
    pyarrow.ArrowInvalid
        If they do.
    """
    rows = [metadata.row_group(g).num_rows for g in range(metadata.num_row_groups)]
    if sum(rows) != metadata.num_rows or min(rows, default=0) < 0 or metadata.num_rows > _ROWS + size * _ROWS_PER_BYTE:
        raise pa.ArrowInvalid(
            f"Its footer says that {size:,} bytes hold {metadata.num_rows:,} rows, and its row groups {rows[:5]}"
        )
    return rows


def column_positions(metadata: pq.FileMetaData, schema: pa.Schema) -> dict[str, range]:
    """Where the chunks of each column stand in a row group; a nested column has several.

    Names do not say it: "a.b" may be a column or a part of one.

    Raises
    ------
    pyarrow.ArrowInvalid
        If the schema has other columns than the row groups.
    """
    # Every column has a chunk at least.
    counts = [1] * len(schema) if metadata.num_columns == len(schema) else [_leaves(kind) for kind in schema.types]
    if sum(counts) != metadata.num_columns:
        raise pa.ArrowInvalid(f"Its schema has {sum(counts):,} columns where it has {metadata.num_columns:,}")
    return {
        name: range(end - count, end) for name, count, end in zip(schema.names, counts, accumulate(counts), strict=True)
    }


def _leaves(kind: pa.DataType) -> int:
    """How many columns without parts a column of this type consists of."""
    if isinstance(kind, pa.BaseExtensionType):
        return _leaves(kind.storage_type)
    if pa.types.is_map(kind):
        return _leaves(kind.key_type) + _leaves(kind.item_type)
    if pa.types.is_struct(kind):
        return sum(_leaves(field.type) for field in kind)
    return _leaves(kind.value_type) if hasattr(kind, "value_type") else 1


def column_chunks(
    metadata: pq.FileMetaData, size: int, groups: Sequence[int], positions: Sequence[int]
) -> list[list[Any]]:
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

    The accessors in Python do not catch what Arrow throws for a damaged chunk, which ends the
    process; reading does.
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
    return bool(chunks) and all(
        chunk.has_dictionary_page and chunk.total_uncompressed_size < 4 * chunk.num_values for chunk in chunks
    )


def unpacked_bytes(chunks: Sequence[Any]) -> int:
    """About what the chunks take in memory.

    Texts may lie in the file as numbers of a dictionary: it does not say how long they are.
    """
    return sum(
        max(
            chunk.total_uncompressed_size,
            chunk.num_values * (_TEXT if chunk.physical_type == "BYTE_ARRAY" else _NUMBER),
        )
        for chunk in chunks
    )


def column_statistics(chunk: pq.ColumnChunkMetaData, column: pq.ColumnSchema) -> tuple[Any, Any, bool]:
    """Minimum, maximum (None: unknown), and whether there may be nulls; ``column`` is what the schema of the file says of the column of the chunk."""
    if chunk.physical_type != column.physical_type:  # Arrow would throw
        raise pa.ArrowInvalid(
            f"Its footer contradicts itself about column {column.path!r}, which is {column.physical_type}"
        )
    stats = chunk.statistics
    if stats is None:
        return None, None, True
    nullable = not stats.has_null_count or stats.null_count > 0
    try:
        return (stats.min, stats.max, nullable) if stats.has_min_max else (None, None, nullable)
    except (
        OverflowError,
        ValueError,
        NotImplementedError,
    ):  # a moment beyond Python's datetime; decimals as integers in older pyarrow
        return None, None, nullable


_READER: dict[str, Any] = {"pre_buffer": False, "page_checksum_verification": True}

_LOCAL = pa_fs.LocalFileSystem()

_TAIL = 64 * 1024

_GAP = 64 * 1024

# Bytes for which a second request would take longer than they do themselves.
_AT_ONCE = 4 * 2**20

_BUFFER = 256 * 1024

_LARGEST_BUFFER = 8 * 2**20

# Below that many rows the look for repeated texts costs more than it saves.
_MANY_ROWS = 32_768


class ParquetSource:
    """An open Parquet file whose bytes are at hand."""

    is_near = True

    def __init__(self, handle: pa.NativeFile, size: int) -> None:
        self._handle = handle
        self._file = pq.ParquetFile(handle, **_READER)
        self.size = size
        self.metadata = self._file.metadata
        self.schema = self._file.schema_arrow
        if len({*self.schema.names}) != len(self.schema.names):
            raise pa.ArrowInvalid(f"Its columns do not have different names: {self.schema.names}")
        self._rows = check_rows(self.metadata, size)
        self.positions = column_positions(self.metadata, self.schema)

    def expect(self, groups: Sequence[int], columns: Iterable[str]) -> None:
        """Say what may be read in several steps: where it is little, it comes at once."""

    def read(self, groups: Sequence[int], columns: Sequence[str]) -> pa.Table:
        """The columns of these row groups."""
        return self._read(self._file, groups, columns)

    def read_encoded(self, groups: Sequence[int], columns: Sequence[str]) -> pa.Table:
        """The columns of these row groups; those of texts that repeat much come as dictionaries, which is several times as fast."""
        texts = self._repeated(groups, columns)
        if not texts:
            return self.read(groups, columns)
        return self._read(
            pq.ParquetFile(self._handle, metadata=self.metadata, read_dictionary=texts, **_READER), groups, columns
        )

    def batches(
        self, groups: Sequence[int], columns: Sequence[str], rows: int, nbytes: int
    ) -> Iterator[pa.RecordBatch]:
        """The columns of these row groups, so many rows at a time; their packed bytes are held as far as they are less than ``nbytes``."""
        # Without a buffer Arrow takes the packed bytes of all columns at once.
        file = pq.ParquetFile(
            self._handle, metadata=self.metadata, buffer_size=self._buffer(groups, columns, nbytes), **_READER
        )
        found = 0
        for batch in file.reader.iter_batches(
            rows, row_groups=list(groups), column_indices=self._indices(columns), use_threads=False
        ):
            found += batch.num_rows
            yield batch
        self._check_rows(groups, columns, found)

    def rows(self, groups: Iterable[int]) -> int:
        """How many rows these row groups have."""
        return sum(self._rows[g] for g in groups)

    def chunks(self, groups: Sequence[int], columns: set[str]) -> list[list[Any]]:
        """For each of these row groups the chunks of some columns."""
        return column_chunks(self.metadata, self.size, groups, self._indices(c for c in self.positions if c in columns))

    def packed(self, span: Span) -> bytes:
        """Bytes of the file as they are."""
        start, end = span
        return bytes(self._handle.read_at(end - start, start)) if 0 <= start <= end else b""

    def _read(self, file: pq.ParquetFile, groups: Sequence[int], columns: Sequence[str]) -> pa.Table:
        if not groups:  # pyarrow 18 cannot read no row group
            return self.schema.empty_table().select(list(columns))
        self._provide(groups, columns)
        table = self._decoded(file, groups, columns)
        self._check_rows(groups, columns, table.num_rows)
        return table

    def _decoded(self, file: pq.ParquetFile, groups: Sequence[int], columns: Sequence[str]) -> pa.Table:
        return file.reader.read_row_groups(list(groups), column_indices=self._indices(columns), use_threads=False)

    def _indices(self, columns: Iterable[str]) -> list[int]:
        return [j for c in columns for j in self.positions[c]]

    def _repeated(self, groups: Sequence[int], columns: Sequence[str]) -> list[str]:
        if self.rows(groups) < _MANY_ROWS:
            return []
        # Arrow is told them by path, and "a.b" may be a part of another column, too.
        texts = [
            c for c in self.positions if c in columns and "." not in c and pa.types.is_string(self.schema.field(c).type)
        ]
        chunks = self.chunks(groups, set(texts))
        return [c for i, c in enumerate(texts) if repeats_texts([found[i] for found in chunks])]

    def _check_rows(self, groups: Sequence[int], columns: Sequence[str], found: int) -> None:
        if columns and found != self.rows(groups):
            raise pa.ArrowInvalid(f"Its footer says {self.rows(groups):,} rows where there are {found:,}")

    def _provide(self, groups: Sequence[int], columns: Sequence[str]) -> None:
        """Have the bytes that are read now."""

    def _buffer(self, groups: Sequence[int], columns: Sequence[str], nbytes: int) -> int:
        """How many packed bytes of a column are read at a time."""
        return _BUFFER


class _DistantSource(ParquetSource):
    """Of a store without a local path: the footer came with one request, all column chunks that are needed come with a second."""

    is_near = False

    def __init__(self, store: Store, key: str, footer: object, size: int) -> None:
        self._bytes = _DistantFile(store, key, footer, size)
        super().__init__(pa.PythonFile(self._bytes, mode="r"), size)

    def expect(self, groups: Sequence[int], columns: Iterable[str]) -> None:
        spans = self._spans(groups, columns)
        if _total(spans) <= _AT_ONCE:
            self._bytes.fetch(spans)

    def _provide(self, groups: Sequence[int], columns: Sequence[str]) -> None:
        self._bytes.fetch(self._spans(groups, columns))

    def _buffer(self, groups: Sequence[int], columns: Sequence[str], nbytes: int) -> int:
        spans = self._spans(groups, columns)
        if _total(spans) <= nbytes:
            self._bytes.fetch(spans)
        return min(max(_BUFFER, nbytes // max(1, len(columns))), _LARGEST_BUFFER)

    def _spans(self, groups: Sequence[int], columns: Iterable[str]) -> list[Span]:
        spans = [span for chunks in self.chunks(groups, set(columns)) for span in chunk_spans(chunks)]
        if any(start < 0 or end > self.size for start, end in spans):
            raise pa.ArrowInvalid("Its footer names bytes that it does not have")
        return spans


def _total(spans: Iterable[Span]) -> int:
    return sum(end - start for start, end in spans)


class _DistantFile:
    """A file for Arrow, some pieces of which are held; others are asked for when they are read."""

    closed = False

    def __init__(self, store: Store, key: str, footer: Any, size: int) -> None:
        self._store, self._key, self._size = store, key, size
        self._held = [(size - len(footer), memoryview(footer))]
        self._position = 0

    def fetch(self, spans: Iterable[Span]) -> None:
        """Hold the bytes of these spans, and besides them only the footer."""
        filled = [span for span in spans if span[0] < span[1]]
        missing = _coalesced(span for span in filled if self._find(*span) is None)
        if missing:
            kept = [
                (at, part)
                for at, part in self._held[1:]
                if any(at <= start and end <= at + len(part) for start, end in filled)
            ]
            self._held = [self._held[0], *kept, *self._load(missing)]

    def _load(self, spans: list[Span]) -> list[tuple[int, memoryview]]:
        parts = [memoryview(part) for part in self._store.ranges(self._key, spans)]
        if any(len(part) != end - start for (start, end), part in zip(spans, parts, strict=True)):
            raise pa.ArrowInvalid("It was replaced by a shorter one while it was read")
        return [(start, part) for (start, _), part in zip(spans, parts, strict=True)]

    def _find(self, start: int, end: int) -> memoryview | None:
        return next(
            (part[start - at : end - at] for at, part in self._held if at <= start and end <= at + len(part)), None
        )

    def seek(self, offset: int, whence: int = 0) -> int:
        self._position = offset + (0, self._position, self._size)[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, nbytes: int) -> memoryview:
        start, end = self._position, min(self._position + nbytes, self._size)
        self._position = max(start, end)
        if start >= end:
            return memoryview(b"")
        held = self._find(start, end)
        return self._load([(start, end)])[0][1] if held is None else held

    def close(self) -> None:
        self.closed = True


def _coalesced(spans: Iterable[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start - merged[-1][1] <= _GAP:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


@contextmanager
def open_file(store: Store, key: str, dataset: str | None) -> Iterator[ParquetSource]:
    """Open a Parquet file; errors name the key and the dataset, if it belongs to one."""
    with readable(store, key, dataset):
        path = store.local_path(key)
        if path is None:
            yield _noted(_open_distant(store, key))
        else:
            with _LOCAL.open_input_file(path) as handle:
                yield _noted(ParquetSource(handle, handle.size()))


def _noted(source: ParquetSource) -> ParquetSource:
    record(files_read=1, bytes_read=source.size)
    return source


def _open_distant(store: Store, key: str) -> ParquetSource:
    footer, size = store.tail(key, _TAIL)
    needed = int.from_bytes(bytes(footer[-8:-4]), "little") + 8
    if len(footer) < min(needed, size):
        footer, size = store.tail(key, needed)
    return (
        ParquetSource(pa.BufferReader(footer), size)
        if len(footer) == size
        else _DistantSource(store, key, footer, size)
    )
