"""Small local Parquet files of one dataset, read by pyarrow's undocumented ``ParquetReader``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq

from kartothek_cube.core.runtime.telemetry import record
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.errors import InvalidInput

__all__ = ["SmallFileReader"]

_LOCAL = pa_fs.LocalFileSystem()
# Of larger files not all bytes may be needed. In a file of more rows, repeated texts may be read as
# dictionaries.
_MAX_BYTES, _MAX_ROWS = 256 * 2**10, 32_768

T = TypeVar("T")
R = TypeVar("R")


class SmallFileReader:
    """Reads whole files of one row group whose columns have exactly the types of a schema.

    A file whose schema equals that of the file before is not checked again.
    """

    def __init__(self, store: Store, schema: pa.Schema, *, has_predicates: bool) -> None:
        self._store, self._schema, self._has_predicates = store, schema, has_predicates
        self._file_schema, self._leaves, self._positions = pa.schema([]), 0, list[int]()

    def read(self, files: Sequence[tuple[str, Mapping[str, Any]]]) -> list[pa.Table | None]:
        """The rows of each file; None for a file that `read_rows` has to read."""
        # Constants replace columns of a file, which only `read_rows` does.
        names = self._schema.names
        suits = [key.endswith(".parquet") and constants.keys().isdisjoint(names) for key, constants in files]
        keys = [key if ok and not self._has_predicates else None for (key, _), ok in zip(files, suits, strict=True)]
        # Step by step: taking all steps for one file after the other is 50 % slower (CPU cache
        # misses).
        paths = _each(self._store.local_path, keys)
        contents = _each(_content, paths)
        tables = _each(_rows, _each(self._open, contents))
        pairs = [(c, t) for c, t in zip(contents, tables, strict=True) if c is not None and t is not None]
        record(
            files_read=len(pairs),
            bytes_read=sum(content.size() for content, _ in pairs),
            rows_read=sum(len(table) for _, table in pairs),
        )
        return tables

    def _open(self, content: pa.BufferReader) -> tuple[pq.ParquetReader, list[int]] | None:
        """A reader and the positions of the columns; None for a file that needs `read_rows`."""
        reader = pq.ParquetReader()  # making a `ParquetFile` takes as long as reading two columns
        reader.open(content, pre_buffer=False, page_checksum_verification=True)
        metadata = reader.metadata
        if metadata.num_row_groups != 1 or not 0 <= metadata.num_rows < _MAX_ROWS:
            return None
        schema, leaves = reader.schema_arrow, metadata.num_columns
        if leaves != self._leaves or not schema.equals(self._file_schema):
            self._file_schema, self._leaves = schema, leaves
            self._positions = _positions(schema, leaves, self._schema)
        return (reader, self._positions) if self._positions else None


def _each(func: Callable[[T], R | None], items: Sequence[T | None]) -> list[R | None]:
    """Apply a function to each item; None for None, and for an error, which `read_rows` repeats."""

    def tried(item: T) -> R | None:
        try:
            return func(item)
        except (pa.ArrowException, OSError, UnicodeDecodeError, InvalidInput):
            return None

    return [None if item is None else tried(item) for item in items]


def _content(path: str) -> pa.BufferReader | None:
    with _LOCAL.open_input_file(path) as handle:
        size = handle.size()
        return pa.BufferReader(handle.read_buffer(size)) if size < _MAX_BYTES else None


def _positions(file_schema: pa.Schema, leaves: int, schema: pa.Schema) -> list[int]:
    """Positions of the columns in a file.

    Empty if a column is missing, not nullable or of another type, or if the file has nested
    columns.
    """
    if len(set(file_schema.names)) != len(file_schema) or leaves != len(file_schema):
        return []
    positions = [file_schema.get_field_index(name) for name in schema.names]
    is_complete = all(position >= 0 for position in positions)
    return positions if is_complete and pa.schema([file_schema.field(i) for i in positions]).equals(schema) else []


def _rows(opened: tuple[pq.ParquetReader, list[int]]) -> pa.Table | None:
    reader, positions = opened
    table, metadata = reader.read_row_groups([0], column_indices=positions, use_threads=False), reader.metadata
    # A footer that contradicts itself is for `read_rows` to refuse.
    return table if table.num_rows == metadata.num_rows == metadata.row_group(0).num_rows else None
