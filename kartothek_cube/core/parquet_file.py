"""An open Parquet file: its footer, and some columns of some of its row groups. Local files are Arrow's, of others the store gives planned ranges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq

from kartothek_cube.core.footer import check_rows, chunk_spans, column_chunks, column_positions, repeats_texts
from kartothek_cube.core.formats import readable
from kartothek_cube.core.store import Span, Store
from kartothek_cube.core.telemetry import record

__all__ = ["ParquetSource", "open_file"]

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
        return self._read(pq.ParquetFile(self._handle, metadata=self.metadata, read_dictionary=texts, **_READER), groups, columns)

    def batches(self, groups: Sequence[int], columns: Sequence[str], rows: int, nbytes: int) -> Iterator[pa.RecordBatch]:
        """The columns of these row groups, so many rows at a time; their packed bytes are held as far as they are less than ``nbytes``."""
        # Without a buffer Arrow takes the packed bytes of all columns at once.
        file = pq.ParquetFile(self._handle, metadata=self.metadata, buffer_size=self._buffer(groups, columns, nbytes), **_READER)
        found = 0
        for batch in file.reader.iter_batches(rows, row_groups=list(groups), column_indices=self._indices(columns), use_threads=False):
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
        texts = [c for c in self.positions if c in columns and "." not in c and pa.types.is_string(self.schema.field(c).type)]
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
            kept = [(at, part) for at, part in self._held[1:] if any(at <= start and end <= at + len(part) for start, end in filled)]
            self._held = [self._held[0], *kept, *self._load(missing)]

    def _load(self, spans: list[Span]) -> list[tuple[int, memoryview]]:
        parts = [memoryview(part) for part in self._store.ranges(self._key, spans)]
        if any(len(part) != end - start for (start, end), part in zip(spans, parts, strict=True)):
            raise pa.ArrowInvalid("It was replaced by a shorter one while it was read")
        return [(start, part) for (start, _), part in zip(spans, parts, strict=True)]

    def _find(self, start: int, end: int) -> memoryview | None:
        return next((part[start - at : end - at] for at, part in self._held if at <= start and end <= at + len(part)), None)

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
    return ParquetSource(pa.BufferReader(footer), size) if len(footer) == size else _DistantSource(store, key, footer, size)
