"""Parquet: tables to bytes, and files to tables with row-group pruning, column projection and a cast to the dataset's types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq

from kartothek_cube.core.evaluate import Bounds, possible_chunks
from kartothek_cube.core.footer import check_rows, chunk_spans, column_chunks, statistics, unpacked_bytes
from kartothek_cube.core.formats import FileFormat, as_table, readable
from kartothek_cube.core.predicates import Predicates, columns_of
from kartothek_cube.core.schema import compatible, stored_type
from kartothek_cube.core.store import Store
from kartothek_cube.errors import CorruptData, InvalidInput, InvalidType

__all__ = ["ParquetFormat", "count_parquet_rows", "open_file", "open_parquet_inside", "read_columns", "read_parquet_inside", "read_source"]

CODECS = ("SNAPPY", "ZSTD", "GZIP", "BROTLI", "LZ4", "NONE")
_WRITER: dict[str, Any] = {"version": "2.6", "coerce_timestamps": "us", "use_compliant_nested_type": False, "write_page_checksum": True}
_READER: dict[str, Any] = {"pre_buffer": False, "page_checksum_verification": True}
_GROUP_ROWS = 1_048_576
_TAIL = 64 * 1024
_GAP = 64 * 1024
_PIECE_ROWS = 65_536
_BUFFER = 256 * 1024


@dataclass(frozen=True, slots=True)
class ParquetFormat(FileFormat):
    """Parquet files as kartothek writes them.

    Parameters
    ----------
    compression : str, default "SNAPPY"
        Codec of the column chunks: ``SNAPPY``, ``ZSTD``, ``GZIP``, ``BROTLI``, ``LZ4`` or ``NONE``.
    chunk_size : int, optional
        Rows of a row group; by default a file has one, up to 1,048,576 rows.

    Raises
    ------
    InvalidType
        If ``chunk_size`` is no integer.
    InvalidInput
        If ``chunk_size`` is less than 1, or the codec unknown.

    Examples
    --------
    >>> ParquetFormat(compression="ZSTD", chunk_size=100_000).file_suffix
    '.parquet'
    """

    compression: str = "SNAPPY"
    chunk_size: int | None = None

    def __post_init__(self) -> None:
        if self.chunk_size is not None and (isinstance(self.chunk_size, bool) or not isinstance(self.chunk_size, int)):
            raise InvalidType(f"chunk size is not integer type: chunk_size must be an integer but is {type(self.chunk_size).__name__}.")
        if str(self.compression).upper() not in CODECS:
            raise InvalidInput(f"Unknown compression {self.compression!r}; use one of {', '.join(CODECS)}.")
        if self.chunk_size is not None and self.chunk_size <= 0:
            raise InvalidInput(f"chunk size < 1: chunk_size must be > 0 but is {self.chunk_size}.")

    @property
    def file_suffix(self) -> str:
        return ".parquet"

    def encode(self, table: pa.Table) -> pa.Buffer:
        sink = pa.BufferOutputStream()
        pq.write_table(table.replace_schema_metadata(None), sink, compression=self.compression, row_group_size=self.chunk_size, **_WRITER)
        return sink.getvalue()

    def write_stream(self, batches: Iterable[pa.RecordBatch | pa.Table], schema: pa.Schema, sink: Any) -> int:
        plain = schema.remove_metadata()
        rows = 0
        with pq.ParquetWriter(sink, plain, compression=self.compression, **_WRITER) as writer:
            for group in _row_groups(batches, plain, self.chunk_size or _GROUP_ROWS):
                writer.write_table(group, row_group_size=group.num_rows)
                rows += group.num_rows
            if not rows:
                writer.write_table(plain.empty_table())
        return rows


def _row_groups(batches: Iterable[pa.RecordBatch | pa.Table], schema: pa.Schema, size: int) -> Iterator[pa.Table]:
    """The rows again, in tables of ``size`` rows, the last one smaller."""
    waiting: list[pa.Table] = []  # put together only when they are enough: each time costs as much as they have chunks
    rows = 0
    for batch in batches:
        waiting.append(as_table(batch, schema))
        rows += waiting[-1].num_rows
        while rows >= size:
            table = pa.concat_tables(waiting)
            yield table.slice(0, size)
            waiting, rows = [table.slice(size)], rows - size
    if rows:
        yield pa.concat_tables(waiting)


class ParquetSource:
    """An open Parquet file: its footer, and a way to read some columns of some row groups."""

    def __init__(self, file: pq.ParquetFile, size: int, handle: Any = None) -> None:
        self._file, self._handle = file, handle
        self.size = size
        self.metadata = file.metadata
        self.schema = file.schema_arrow
        if len({*self.schema.names}) != len(self.schema.names):
            raise pa.ArrowInvalid(f"Its columns do not have different names: {self.schema.names}")
        check_rows(self.metadata, size)

    def read(self, groups: Sequence[int], columns: Sequence[str]) -> pa.Table:
        """The columns of these row groups."""
        if not groups:  # pyarrow 18 cannot read no row group
            return self.schema.empty_table().select(list(columns))
        table = self._holding(groups, columns).read_row_groups(list(groups), columns=list(columns), use_threads=False)
        self._check_rows(groups, columns, table.num_rows)
        return table

    def batches(self, groups: Sequence[int], columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """The columns of these row groups, so many rows at a time."""
        # Without a buffer Arrow takes the packed bytes of all columns at once.
        whole = self._handle is None
        file = self._holding(groups, columns) if whole else pq.ParquetFile(self._handle, metadata=self.metadata, buffer_size=_BUFFER, **_READER)
        found = 0
        for batch in file.iter_batches(rows, row_groups=list(groups), columns=list(columns), use_threads=False):
            found += batch.num_rows
            yield batch
        self._check_rows(groups, columns, found)

    def rows(self, groups: Sequence[int]) -> int:
        """How many rows these row groups have."""
        return sum(self.metadata.row_group(g).num_rows for g in groups)

    def chunks(self, groups: Sequence[int], columns: set[str]) -> list[list[Any]]:
        """For each of these row groups the chunks of some columns."""
        return column_chunks(self.metadata, self.size, groups, columns)

    def _check_rows(self, groups: Sequence[int], columns: Sequence[str], found: int) -> None:
        if columns and found != self.rows(groups):
            raise pa.ArrowInvalid(f"Its footer says {self.rows(groups):,} rows where there are {found:,}")

    def _holding(self, groups: Sequence[int], columns: Sequence[str]) -> pq.ParquetFile:
        """A file that has the bytes of these columns and row groups."""
        return self._file


class _PlannedSource(ParquetSource):
    """For stores without a local path: the footer came with one request, all column chunks come with a second."""

    def __init__(self, store: Store, key: str, footer: Any, size: int) -> None:
        super().__init__(pq.ParquetFile(_sparse(size, [(size - len(footer), footer)]), **_READER), size)
        self._store, self._key, self._footer = store, key, footer

    def _holding(self, groups: Sequence[int], columns: Sequence[str]) -> pq.ParquetFile:
        start = self.size - len(self._footer)
        spans = _coalesced(span for chunks in self.chunks(groups, set(columns)) for span in chunk_spans(chunks) if span[0] < start)
        if any(begin < 0 or end > self.size for begin, end in spans):
            raise pa.ArrowInvalid("Its footer names bytes that it does not have")
        parts = self._store.ranges(self._key, spans) if spans else []
        if any(len(part) != end - begin for (begin, end), part in zip(spans, parts, strict=True)):
            raise pa.ArrowInvalid("It was replaced by a shorter one while it was read")
        pieces = [(start, self._footer), *((a, part) for (a, _), part in zip(spans, parts, strict=True))]
        return pq.ParquetFile(_sparse(self.size, pieces), metadata=self.metadata, **_READER)


def _sparse(size: int, pieces: Sequence[tuple[int, Any]]) -> pa.BufferReader:
    # np.empty of this size is address space; only the pages that are written become memory.
    buffer = np.empty(size, dtype=np.uint8)
    for offset, piece in pieces:
        view = memoryview(piece)
        buffer[offset : offset + len(view)] = np.frombuffer(view, dtype=np.uint8)
    return pa.BufferReader(pa.py_buffer(buffer))


def _coalesced(spans: Iterator[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
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
            yield _open_planned(store, key)
        else:
            with pa_fs.LocalFileSystem().open_input_file(path) as handle:
                yield ParquetSource(pq.ParquetFile(handle, **_READER), handle.size(), handle)


def _open_planned(store: Store, key: str) -> ParquetSource:
    footer, size = store.tail(key, _TAIL)
    needed = int.from_bytes(bytes(footer[-8:-4]), "little") + 8
    if len(footer) < min(needed, size):
        footer, size = store.tail(key, needed)
    return _PlannedSource(store, key, footer, size)


def count_parquet_rows(store: Store, key: str, dataset: str) -> int:
    """Number of rows of a file, from its footer."""
    with open_file(store, key, dataset) as source:
        return int(source.metadata.num_rows)


def read_parquet_inside(
    store: Store, key: str, dataset: str | None, columns: Sequence[str], schema: pa.Schema, predicates: Predicates | None
) -> tuple[pa.Table, int]:
    """Columns of the row groups in which predicates may match, in the types of the schema; and the number of rows.

    Columns that the file lacks are null. The rows are not filtered.
    """
    with open_file(store, key, dataset) as source:
        return read_source(source, key, columns, schema, predicates)


def read_source(source: ParquetSource, key: str, columns: Sequence[str], schema: pa.Schema, predicates: Predicates | None) -> tuple[pa.Table, int]:
    """`read_parquet_inside` for a file that is open."""
    groups = _matching_groups(source, schema, predicates)
    rows = source.rows(groups)
    present = [c for c in columns if c in source.schema.names]
    table = source.read(groups, present) if present and groups else None
    return _typed(table, rows, columns, schema, key), rows


def _typed(table: pa.Table | None, rows: int, columns: Sequence[str], schema: pa.Schema, key: str) -> pa.Table:
    arrays = [_column(table, c, rows, schema.field(c).type, key) for c in columns]
    return pa.table(arrays, names=list(columns)) if arrays else pa.table({})


def open_parquet_inside(
    store: Store, key: str, dataset: str | None, columns: Sequence[str], schema: pa.Schema, predicates: Predicates | None, nbytes: int
) -> tuple[bool, Iterator[tuple[pa.Table, int]]]:
    """Whether `read_parquet_inside` takes no more than about ``nbytes`` bytes, from the footer; and the same in pieces of that size. The file is opened once.

    A row group that is larger is unpacked piece by piece; only from a store without a local path its packed bytes come whole.
    """
    with ExitStack() as stack:
        source = stack.enter_context(open_file(store, key, dataset))
        present = [c for c in columns if c in source.schema.names]
        bundles = list(_bundles(source, _matching_groups(source, schema, predicates), set(present), nbytes))
        is_small = sum(size for _, size in bundles) <= nbytes
        pieces = (piece for groups, size in bundles for piece in _pieces(source, groups, present, size, nbytes))
        return is_small, _typed_pieces(stack.pop_all(), pieces, columns, schema, key)


def _typed_pieces(
    opened: ExitStack, pieces: Iterator[tuple[pa.Table | None, int]], columns: Sequence[str], schema: pa.Schema, key: str
) -> Iterator[tuple[pa.Table, int]]:
    with opened:
        for table, rows in pieces:
            yield _typed(table, rows, columns, schema, key), rows


def _pieces(source: ParquetSource, groups: Sequence[int], columns: Sequence[str], size: int, nbytes: int) -> Iterator[tuple[pa.Table | None, int]]:
    rows = source.rows(groups)
    if not columns:
        yield None, rows
    elif size <= nbytes:
        yield source.read(groups, columns), rows
    else:
        for batch in source.batches(groups, columns, max(1, min(_PIECE_ROWS, rows * nbytes // size))):
            yield pa.Table.from_batches([batch]), batch.num_rows


def _bundles(source: ParquetSource, groups: Sequence[int], columns: set[str], nbytes: int) -> Iterator[tuple[list[int], int]]:
    """Neighbouring row groups that together take no more than ``nbytes``, or one that takes more; and what they take."""
    bundle, total = list[int](), 0
    for g, chunks in zip(groups, source.chunks(groups, columns), strict=True):
        size = unpacked_bytes(chunks)
        if bundle and total + size > nbytes:
            yield bundle, total
            bundle, total = [], 0
        bundle.append(g)
        total += size
    if bundle:
        yield bundle, total


def _matching_groups(source: ParquetSource, schema: pa.Schema, predicates: Predicates | None) -> list[int]:
    n = source.metadata.num_row_groups
    asked = columns_of(predicates) & set(source.schema.names)
    if n == 0 or not asked:
        return list(range(n))
    bounds = {c: b for c in asked if (b := _group_bounds(source, c, schema.field(c).type)) is not None}
    return [int(g) for g in np.flatnonzero(possible_chunks(bounds, n, predicates))]


def _group_bounds(source: ParquetSource, column: str, kind: pa.DataType) -> Bounds | None:
    descriptor = next((d for d in map(source.metadata.schema.column, range(source.metadata.num_columns)) if d.path == column), None)
    if descriptor is None or pa.types.is_null(kind):
        return None
    groups = source.chunks(range(source.metadata.num_row_groups), {column})
    # A column "a.b" begins like one that is called "a".
    stats = [statistics(next((c for c in chunks if c.path_in_schema == column), None), descriptor) for chunks in groups]
    try:
        low, high = (pa.array([s[i] for s in stats], type=kind) for i in (0, 1))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
    # NaN counts as null in comparisons, but statistics know nothing of it.
    nullable = [s[2] or pa.types.is_floating(kind) for s in stats]
    return Bounds(low, high, np.array(nullable, dtype=bool))


def _column(table: pa.Table | None, name: str, rows: int, kind: pa.DataType, key: str) -> pa.ChunkedArray:
    if table is None or name not in table.column_names:
        return pa.chunked_array([pa.nulls(rows, kind)])
    return conform(table.column(name), kind, name, key)


def conform(column: pa.ChunkedArray, kind: pa.DataType, name: str, key: str) -> pa.ChunkedArray:
    """A column of a file in the dataset's type; `CorruptData` if it is of another family."""
    if column.type.equals(kind):
        return column
    if not compatible(stored_type(column.type), kind):
        raise CorruptData(f"Column {name!r} of the file {key!r} is {column.type}, but its dataset says {kind}.")
    try:
        return column.cast(kind)
    except pa.ArrowInvalid as error:
        raise CorruptData(f"Column {name!r} of the file {key!r} cannot be read as {kind}: {error}") from None


def read_columns(store: Store, key: str, dataset: str, predicates: Predicates | None = None, schema: pa.Schema | None = None) -> tuple[pa.Table, bool]:
    """A whole file as it is, or only the row groups in which predicates may match; and whether that is all of it."""
    with open_file(store, key, dataset) as source:
        groups = _matching_groups(source, schema, predicates) if schema is not None else list(range(source.metadata.num_row_groups))
        return source.read(groups, source.schema.names), len(groups) == source.metadata.num_row_groups
