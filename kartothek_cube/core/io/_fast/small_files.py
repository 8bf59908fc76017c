"""Small local Parquet files of one dataset, joined in memory and read as one file."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import accumulate, groupby
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kartothek_cube.core.io._fast.joined_footers import (
    MAGIC,
    FileLayout,
    FileSpans,
    SchemaBytes,
    joined_footer,
    layout_of,
    schema_head,
)
from kartothek_cube.core.runtime.telemetry import record
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.errors import InvalidInput

__all__ = ["SmallFileReader"]

# Of larger files not all bytes may be needed. In a file of more rows, repeated texts may be read as
# dictionaries.
_MAX_BYTES, _MAX_ROWS = 256 * 2**10, 32_768
# Layouts and tails that are kept, and files of a batch from which a new layout is learned.
# Where layouts never end, e.g. as other columns have no values, they are not worth learning.
_LAYOUTS, _TAILS, _LEARNED, _ALL_LEARNED = 8, 256, 2, 64

T = TypeVar("T")
R = TypeVar("R")


class _File(NamedTuple):
    """A file as a row group of a joined one."""

    schema: SchemaBytes
    rows: int
    group: bytes
    tail: bytes
    size: int


class SmallFileReader:
    """Reads whole files of one row group whose columns have exactly the types of a schema.

    Neighbouring files of known layouts are read together.
    """

    def __init__(self, store: Store, schema: pa.Schema) -> None:
        self._store, self._schema = store, schema
        self._layouts = _layouts(schema)

    def read(self, files: Sequence[tuple[str, Mapping[str, Any]]]) -> Iterator[tuple[pa.Table, list[int]] | None]:
        """Rows of neighbouring files, and how many of each; None for a file for `read_rows`."""
        # Constants replace columns of a file, which only `read_rows` does.
        names = self._schema.names
        suits = [key.endswith(".parquet") and constants.keys().isdisjoint(names) for key, constants in files]
        keys = [key if ok else None for (key, _), ok in zip(files, suits, strict=True)]
        # Step by step: taking all steps for one file after the other is slower (CPU cache misses).
        contents = [content or b"" for content in _each(_content, _each(self._store.local_path, keys))]
        joined = b"".join(contents)
        recognized = zip(self._layouts.recognized(joined, contents), contents, strict=True)
        for schema, run in groupby(recognized, lambda pair: pair[0] and pair[0].schema):
            members = list(run)
            chosen = [file for file, _ in members if file]
            table = _tried(lambda some: _rows(joined, some, self._schema), chosen) if schema else None
            if table is None:
                for _, content in members:
                    table = _tried(partial(_rows_alone, schema=self._schema), content) if content else None
                    yield None if table is None else _recorded(table, [table.num_rows], len(content))
            else:
                yield _recorded(table, [file.rows for file in chosen], sum(file.size for file in chosen))


def _recorded(table: pa.Table, counts: list[int], nbytes: int) -> tuple[pa.Table, list[int]]:
    record(files_read=len(counts), bytes_read=nbytes, rows_read=len(table))
    return table, counts


def _tried(func: Callable[[T], R | None], item: T) -> R | None:
    """What the function returns; None for an error, which `read_rows` repeats."""
    try:
        return func(item)
    except (pa.ArrowException, OSError, UnicodeDecodeError, InvalidInput):
        return None


def _each(func: Callable[[T], R | None], items: Sequence[T | None]) -> list[R | None]:
    """Apply a function to each item; None for None and for an error."""
    return [None if item is None else _tried(func, item) for item in items]


def _content(path: str) -> bytes | None:
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    try:
        size = os.fstat(handle).st_size
        return os.read(handle, size) if size < _MAX_BYTES else None
    finally:
        os.close(handle)


def _rows(joined: bytes, files: Sequence[_File], schema: pa.Schema) -> pa.Table | None:
    """The rows of some of the joined files, which have one schema."""
    kind, rows = files[0].schema, sum(file.rows for file in files)
    footer = joined_footer(kind, rows, [file.group for file in files], files[0].tail)
    reader = pq.ParquetReader()  # making a `ParquetFile` takes as long as reading two columns
    reader.open(pa.BufferReader(b"".join([joined, footer])), pre_buffer=False, page_checksum_verification=True)
    positions = _positions(kind.schema, schema)
    table = reader.read_row_groups(range(len(files)), column_indices=positions, use_threads=False)
    return table if table.num_rows == rows else None


def _rows_alone(content: bytes, schema: pa.Schema) -> pa.Table | None:
    """The rows of a file without a layout; None if it needs `read_rows`."""
    reader = pq.ParquetReader()
    reader.open(pa.BufferReader(content), pre_buffer=False, page_checksum_verification=True)
    metadata, positions = reader.metadata, _positions(_plain_schema(reader), schema)
    if not positions or metadata.num_row_groups != 1 or not 0 <= metadata.num_rows < _MAX_ROWS:
        return None
    table = reader.read_row_groups([0], column_indices=positions, use_threads=False)
    # A footer that contradicts itself is for `read_rows` to refuse.
    return table if table.num_rows == metadata.num_rows == metadata.row_group(0).num_rows else None


def _plain_schema(reader: pq.ParquetReader) -> pa.Schema:
    """The schema of a file; without columns if some are nested, or two of one name."""
    schema = reader.schema_arrow
    return schema if reader.metadata.num_columns == len(schema) == len(set(schema.names)) else pa.schema([])


def _positions(file_schema: pa.Schema, schema: pa.Schema) -> list[int]:
    """Positions of the columns in a file.

    Empty if a column is missing, not nullable or of another type.
    """
    positions = [file_schema.get_field_index(name) for name in schema.names]
    is_complete = all(position >= 0 for position in positions)
    return positions if is_complete and pa.schema([file_schema.field(i) for i in positions]).equals(schema) else []


# --- layouts of files -----------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _layouts(schema: pa.Schema) -> _Layouts:
    """What this process knows of files with these columns."""
    return _Layouts(schema)


class _Layouts:
    """The layouts of files from which the columns of a schema can be read. Safe for threads."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._known: tuple[FileLayout, ...] = ()
        self._learned_count = 0
        # What Arrow makes of a footer that begins and ends so. kartothek writes the number of rows
        # into the end.
        self._schemas: dict[tuple[bytes, bytes], SchemaBytes | None] = {}

    def recognized(self, joined: bytes, contents: Sequence[bytes]) -> list[_File | None]:
        """What is known of each file; None for a file of no layout."""
        found: list[_File | None] = [None] * len(contents)
        spans, known = _spans(joined, contents), deque(self._known)
        left = min(_LEARNED, _ALL_LEARNED - self._learned_count)
        pending: list[int] = np.flatnonzero(spans.begins < spans.ends).tolist()
        while pending and (known or left > 0):
            if not known:
                left -= 1
                known.extend(self._learned(contents[pending[0]]))
            if not known:
                del pending[0]
                continue
            for i, file in self._files(contents, spans, known.popleft(), pending):
                found[i] = file
            pending = [i for i in pending if found[i] is None]
        return found

    def _files(
        self, contents: Sequence[bytes], spans: FileSpans, layout: FileLayout, pending: Sequence[int]
    ) -> Iterator[tuple[int, _File]]:
        """The files of a layout."""
        matches = spans.match(pending, layout, _positions(layout.schema.schema, self._schema))
        if matches is None:
            return
        tails, rows = (matches.tails - spans.starts[pending]).tolist(), matches.rows.tolist()
        for k in np.flatnonzero(matches.good & (matches.rows < _MAX_ROWS)).tolist():
            content = contents[pending[k]]
            tail = content[tails[k] : -8]
            if tail[0] == 0 and self._has_schema(content, layout.schema, tail):
                yield pending[k], _File(layout.schema, rows[k], matches.groups[k], tail, len(content))

    def _learned(self, content: bytes) -> Iterator[FileLayout]:
        """The layout of a file whose structure is new; nothing if it is none for `FileSpans`."""
        begin = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
        head = schema_head(content[begin:-8])
        schema = None if head is None else _tried(partial(_opened, head=head), content)
        if schema is None or not _positions(schema.schema, self._schema):
            return
        same = next((layout.schema for layout in self._known if layout.schema == schema), schema)
        layout = layout_of(content, begin, same, is_first=same is schema)
        if layout is not None:
            self._known = (layout, *self._known)[:_LAYOUTS]
            self._learned_count += 1
            yield layout

    def _has_schema(self, content: bytes, schema: SchemaBytes, tail: bytes) -> bool:
        """Whether Arrow finds a schema in a file whose footer begins like others of that schema."""
        known = (schema.head, tail)
        if known not in self._schemas:
            if len(self._schemas) >= _TAILS:
                self._schemas = {}
            opened = _tried(partial(_opened, head=schema.head), content)
            self._schemas[known] = schema if opened == schema else opened
        found = self._schemas.get(known)
        return found is schema or found == schema


def _opened(content: bytes, head: bytes) -> SchemaBytes:
    """What Arrow makes of a file."""
    reader = pq.ParquetReader()
    reader.open(pa.BufferReader(content), pre_buffer=False, page_checksum_verification=True)
    return SchemaBytes(head, _plain_schema(reader), str(reader.metadata.created_by))


def _spans(joined: bytes, contents: Sequence[bytes]) -> FileSpans:
    """Where files and footers are. What cannot be a file has an empty footer."""
    starts = np.array([0, *accumulate(map(len, contents))][:-1], dtype=np.int64)
    ends = starts + np.array([max(0, len(content) - 8) for content in contents], dtype=np.int64)
    sizes = np.array([int.from_bytes(content[-8:-4], "little") for content in contents], dtype=np.int64)
    are_files = [content[:4] == content[-4:] == MAGIC for content in contents]
    begins = ends - np.where(np.array(are_files, dtype=bool) & (sizes < ends - starts), sizes, 0)
    return FileSpans(np.frombuffer(joined, np.uint8), starts, begins, ends)
