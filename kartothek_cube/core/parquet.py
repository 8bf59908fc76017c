"""Parquet: tables to bytes, and files to tables with row-group pruning, column projection and a cast to the dataset's types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq

from kartothek_cube.core.evaluate import Bounds, Mask, clause_on_scalar, matching_rows, possible_chunks
from kartothek_cube.core.predicates import Predicates, columns_of, resolve_constants
from kartothek_cube.core.schema import compatible, stored_type
from kartothek_cube.core.store import Store
from kartothek_cube.errors import CorruptData, InvalidInput, InvalidType, KeyNotFound

__all__ = ["FileRequest", "ParquetSerializer", "file_rows", "open_file", "read_columns", "read_rows"]

CODECS = ("SNAPPY", "ZSTD", "GZIP", "BROTLI", "LZ4", "NONE")
_TAIL = 64 * 1024
_GAP = 64 * 1024


@dataclass(frozen=True, slots=True)
class ParquetSerializer:
    """How data files are written.

    Parameters
    ----------
    compression : str, default "SNAPPY"
        Codec of the column chunks: ``SNAPPY``, ``ZSTD``, ``GZIP``, ``BROTLI``, ``LZ4`` or ``NONE``.
    chunk_size : int, optional
        Rows of a row group; by default a file has one, up to 1,048,576 rows.

    Examples
    --------
    >>> ParquetSerializer(compression="ZSTD", chunk_size=100_000).file_suffix
    '.parquet'
    """

    compression: str = "SNAPPY"
    chunk_size: int | None = None

    def __post_init__(self) -> None:
        if self.chunk_size is not None and (isinstance(self.chunk_size, bool) or not isinstance(self.chunk_size, int)):
            raise InvalidType(f"chunk_size must be an integer but is {type(self.chunk_size).__name__}.")
        if str(self.compression).upper() not in CODECS:
            raise InvalidInput(f"Unknown compression {self.compression!r}; use one of {', '.join(CODECS)}.")
        if self.chunk_size is not None and self.chunk_size <= 0:
            raise InvalidInput(f"chunk_size must be > 0 but is {self.chunk_size}.")

    @property
    def file_suffix(self) -> str:
        """Suffix of the keys of data files."""
        return ".parquet"

    def encode(self, table: pa.Table) -> pa.Buffer:
        """The bytes of one file."""
        sink = pa.BufferOutputStream()
        options: dict[str, Any] = {"version": "2.6", "coerce_timestamps": "us", "use_compliant_nested_type": False}
        pq.write_table(table.replace_schema_metadata(None), sink, compression=self.compression, row_group_size=self.chunk_size, **options)
        return sink.getvalue()


@dataclass(frozen=True, slots=True)
class FileRequest:
    """What to read of the files of one dataset; shared by all of them.

    ``schema`` has the types of all columns that occur here, ``columns`` those to return, in order.
    """

    dataset: str
    schema: pa.Schema
    columns: tuple[str, ...]
    predicates: Predicates | None = None


class ParquetSource:
    """An open Parquet file: its footer, and a way to read some columns of some row groups."""

    def __init__(self, file: pq.ParquetFile) -> None:
        self._file = file
        self.metadata = file.metadata
        self.names = file.schema_arrow.names

    def read(self, groups: Sequence[int], columns: Sequence[str]) -> pa.Table:
        """The columns of these row groups."""
        return self._read(self._file, groups, columns)

    @staticmethod
    def _read(file: pq.ParquetFile, groups: Sequence[int], columns: Sequence[str]) -> pa.Table:
        if not groups:  # pyarrow 18 cannot read no row group
            return file.schema_arrow.empty_table().select(list(columns))
        return file.read_row_groups(list(groups), columns=list(columns), use_threads=False)


class _PlannedSource(ParquetSource):
    """For stores without a local path: the footer came with one request, all column chunks come with a second."""

    def __init__(self, store: Store, key: str, footer: Any, size: int) -> None:
        super().__init__(pq.ParquetFile(_sparse(size, [(size - len(footer), footer)]), pre_buffer=False))
        self._store, self._key, self._footer, self._size = store, key, footer, size

    def read(self, groups: Sequence[int], columns: Sequence[str]) -> pa.Table:
        start = self._size - len(self._footer)
        spans = _coalesced(span for span in _chunk_spans(self.metadata, groups, set(columns)) if span[0] < start)
        parts = self._store.ranges(self._key, spans) if spans else []
        pieces = [(start, self._footer), *((a, part) for (a, _), part in zip(spans, parts, strict=True))]
        return self._read(pq.ParquetFile(_sparse(self._size, pieces), metadata=self.metadata, pre_buffer=False), groups, columns)


def _sparse(size: int, pieces: Sequence[tuple[int, Any]]) -> pa.BufferReader:
    # np.empty of this size is address space; only the pages that are written become memory.
    buffer = np.empty(size, dtype=np.uint8)
    for offset, piece in pieces:
        view = memoryview(piece)
        buffer[offset : offset + len(view)] = np.frombuffer(view, dtype=np.uint8)
    return pa.BufferReader(pa.py_buffer(buffer))


def _chunk_spans(metadata: pq.FileMetaData, groups: Sequence[int], columns: set[str]) -> Iterator[tuple[int, int]]:
    for g in groups:
        group = metadata.row_group(g)
        for j in range(metadata.num_columns):
            chunk = group.column(j)
            if not columns.isdisjoint(accumulate(chunk.path_in_schema.split("."), "{}.{}".format)):
                start = chunk.dictionary_page_offset or chunk.data_page_offset
                yield start, start + chunk.total_compressed_size


def _coalesced(spans: Iterator[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start - merged[-1][1] <= _GAP:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


@contextmanager
def open_file(store: Store, key: str, dataset: str) -> Iterator[ParquetSource]:
    """Open a Parquet file of a dataset; errors name the dataset and the key."""
    try:
        path = store.local_path(key)
        if path is None:
            yield _open_planned(store, key)
        else:
            with pa_fs.LocalFileSystem().open_input_file(path) as handle:
                yield ParquetSource(pq.ParquetFile(handle, pre_buffer=False))
    except (FileNotFoundError, KeyNotFound):
        raise KeyNotFound(f"The file {key!r}, which dataset {dataset!r} names, is not in the store {store.name}.") from None
    except (pa.ArrowInvalid, OSError) as error:
        if isinstance(error, OSError) and (type(error) is not OSError or error.errno is not None):
            raise  # the store or the network, not the file
        raise CorruptData(f"The file {key!r} of dataset {dataset!r} cannot be read: {error}") from error


def _open_planned(store: Store, key: str) -> ParquetSource:
    footer, size = store.tail(key, _TAIL)
    needed = int.from_bytes(bytes(footer[-8:-4]), "little") + 8
    if len(footer) < min(needed, size):
        footer, size = store.tail(key, needed)
    return _PlannedSource(store, key, footer, size)


def file_rows(store: Store, key: str, dataset: str) -> int:
    """Number of rows of a file, from its footer."""
    with open_file(store, key, dataset) as source:
        return int(source.metadata.num_rows)


def read_rows(store: Store, key: str, request: FileRequest, constants: Mapping[str, Any] | None = None) -> pa.Table:
    """The rows of one file that satisfy the predicates, in the types of the request.

    ``constants`` are the partition values of the file: they win over a column of the same name inside.
    """
    constants = constants or {}
    remaining = _resolve(request, constants)
    if remaining == ():
        return _output_schema(request).empty_table()
    wanted = [*request.columns, *sorted(columns_of(remaining) - set(request.columns))]
    inside = [c for c in wanted if c not in constants]
    with open_file(store, key, request.dataset) as source:
        groups = _matching_groups(source, request.schema, remaining)
        table, rows = _read_inside(source, groups, inside, request.schema, key)
    table = _with_constants(table, rows, wanted, constants, request.schema)
    if remaining is not None:
        table = filter_table(table, matching_rows(table, remaining))
    return table.select(list(request.columns))


def filter_table(table: pa.Table, mask: Mask) -> pa.Table:
    """The rows where the mask is true; the table itself where all are."""
    return table if mask.all() else table.filter(pa.array(mask))


def _resolve(request: FileRequest, constants: Mapping[str, Any]) -> Predicates | None:
    if request.predicates is None or not constants:
        return request.predicates
    scalars = {c: pa.scalar(v, request.schema.field(c).type) for c, v in constants.items()}
    clauses = {clause for conjunction in request.predicates for clause in conjunction if clause.column in scalars}
    return resolve_constants(request.predicates, {c: clause_on_scalar(scalars[c.column], c) for c in clauses})


def _output_schema(request: FileRequest) -> pa.Schema:
    return pa.schema([request.schema.field(c) for c in request.columns])


def _matching_groups(source: ParquetSource, schema: pa.Schema, predicates: Predicates | None) -> list[int]:
    n = source.metadata.num_row_groups
    asked = columns_of(predicates) & set(source.names)
    if n == 0 or not asked:
        return list(range(n))
    bounds = {c: b for c in asked if (b := _group_bounds(source.metadata, c, schema.field(c).type)) is not None}
    return [int(g) for g in np.flatnonzero(possible_chunks(bounds, n, predicates))]


def _group_bounds(metadata: pq.FileMetaData, column: str, kind: pa.DataType) -> Bounds | None:
    position = next((j for j in range(metadata.num_columns) if metadata.schema.column(j).path == column), None)
    if position is None or pa.types.is_null(kind):
        return None
    stats = [_statistics(metadata.row_group(g).column(position)) for g in range(metadata.num_row_groups)]
    try:
        low, high = (pa.array([s[i] for s in stats], type=kind) for i in (0, 1))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
    # NaN counts as null in comparisons, but statistics know nothing of it.
    nullable = [s[2] or pa.types.is_floating(kind) for s in stats]
    return Bounds(low, high, np.array(nullable, dtype=bool))


def _statistics(chunk: Any) -> tuple[Any, Any, bool]:
    stats = chunk.statistics
    if stats is None:
        return None, None, True
    nullable = not stats.has_null_count or stats.null_count > 0
    try:
        return (stats.min, stats.max, nullable) if stats.has_min_max else (None, None, nullable)
    except (OverflowError, ValueError):  # a moment that Python's datetime cannot hold
        return None, None, nullable


def _read_inside(source: ParquetSource, groups: Sequence[int], columns: Sequence[str], schema: pa.Schema, key: str) -> tuple[pa.Table, int]:
    """The columns that the file has, cast; those that it lacks, null; and the number of rows."""
    rows = sum(source.metadata.row_group(g).num_rows for g in groups)
    present = [c for c in columns if c in source.names]
    table = source.read(groups, present) if present and groups else None
    arrays = [_column(table, c, rows, schema.field(c).type, key) for c in columns]
    return pa.table(arrays, names=list(columns)) if arrays else pa.table({}), rows


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


def _with_constants(table: pa.Table, rows: int, wanted: Sequence[str], constants: Mapping[str, Any], schema: pa.Schema) -> pa.Table:
    columns = [pa.repeat(pa.scalar(constants[c], schema.field(c).type), rows) if c in constants else table.column(c) for c in wanted]
    if not columns:
        return pa.table({"": np.zeros(rows, dtype=np.int8)}).select([])
    return pa.table(columns, names=list(wanted))


def read_columns(store: Store, key: str, dataset: str, predicates: Predicates | None = None, schema: pa.Schema | None = None) -> tuple[pa.Table, bool]:
    """A whole file as it is, or only the row groups in which predicates may match; and whether that is all of it."""
    with open_file(store, key, dataset) as source:
        groups = _matching_groups(source, schema, predicates) if schema is not None else list(range(source.metadata.num_row_groups))
        return source.read(groups, source.names), len(groups) == source.metadata.num_row_groups
