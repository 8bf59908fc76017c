"""Many files of one dataset, one after the other: what a small local Parquet file shares with the one before is not looked at again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq

from kartothek_cube.core.files import FileRequest, read_rows
from kartothek_cube.core.store import Store
from kartothek_cube.core.telemetry import record
from kartothek_cube.errors import InvalidInput

__all__ = ["TooLarge", "read_together"]

_LOCAL = pa_fs.LocalFileSystem()
# Of larger files not all bytes may be needed. In a file of more rows, texts that repeat may come as dictionaries.
_MANY_BYTES, _MANY_ROWS = 256 * 2**10, 32_768
# All bytes of so many files are held at a time.
_AT_ONCE = 64

T = TypeVar("T")
R = TypeVar("R")


class TooLarge(Exception):
    """Files are larger than was thought; no one but the caller of `read_together` sees this."""


def read_together(store: Store, files: Sequence[tuple[str, Mapping[str, Any]]], request: FileRequest, room: int) -> tuple[pa.Table, list[int]]:
    """What `read_rows` gives for each of these files and its constants, in one table; and how many rows each of them has.

    Raises
    ------
    TooLarge
        As soon as the rows take more than ``room`` bytes.
    KartothekCubeError
        As `read_rows`.
    """
    schema = pa.schema([(name, request.schema.field(name).type) for name in request.columns])
    tables = []
    for table in _tables(store, files, request, schema):
        tables.append(table)
        room -= table.get_total_buffer_size()  # many times faster than `nbytes`
        if room < 0:
            raise TooLarge
    table = pa.concat_tables(tables) if tables else schema.empty_table()
    is_exact = table.schema.equals(schema, check_metadata=True)
    return table if is_exact else pa.table(table.columns, schema=schema), [len(found) for found in tables]


def _tables(store: Store, files: Sequence[tuple[str, Mapping[str, Any]]], request: FileRequest, schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows of one file after the other; of so many small ones at a time that their bytes are not many."""
    opener = _Opener(schema)
    for begin in range(0, len(files), _AT_ONCE):
        some = files[begin : begin + _AT_ONCE]
        for (key, constants), found in zip(some, _read_quickly(store, some, request, opener), strict=True):
            yield read_rows(store, key, request, constants) if found is None else found


def _read_quickly(store: Store, files: Sequence[tuple[str, Mapping[str, Any]]], request: FileRequest, opener: _Opener) -> list[pa.Table | None]:
    """The rows of small local files whose columns have the types of the request; the metadata of the columns may differ. None for all others.

    It is done step by step: by turns the steps take half as long again, as each finds the processor's caches full of the others.
    """
    columns = set(request.columns)
    is_plain = [request.predicates is None and key.endswith(".parquet") and columns.isdisjoint(constants) for key, constants in files]
    paths = _each(store.local_path, [key if plain else None for plain, (key, _) in zip(is_plain, files, strict=True)])
    contents = _each(_content, paths)
    tables = _each(_rows, _each(opener.open, contents))
    sizes = [content.size() for content, table in zip(contents, tables, strict=True) if content is not None and table is not None]
    record(files_read=len(sizes), bytes_read=sum(sizes), rows_read=sum(len(table) for table in tables if table is not None))
    return tables


def _each(func: Callable[[T], R | None], items: Sequence[T | None]) -> list[R | None]:
    """What a function gives for one item after the other; nothing for nothing, and where something is wrong: `read_rows` says what."""
    return [None if item is None else _tried(func, item) for item in items]


def _tried(func: Callable[[T], R], item: T) -> R | None:
    try:
        return func(item)
    except (pa.ArrowException, OSError, UnicodeDecodeError, InvalidInput):
        return None


def _content(path: str) -> pa.BufferReader | None:
    with _LOCAL.open_input_file(path) as handle:
        size = handle.size()
        return pa.BufferReader(handle.read_buffer(size)) if size < _MANY_BYTES else None


class _Opener:
    """Opens one file after the other and says where the wanted columns stand in it; a schema that is that of the file before is not looked at again."""

    def __init__(self, wanted: pa.Schema) -> None:
        self._wanted = wanted
        self._known, self._leaves, self._places = pa.schema([]), 0, list[int]()

    def open(self, content: pa.BufferReader) -> tuple[pq.ParquetReader, list[int]] | None:
        """None for files that are to be read otherwise."""
        reader = pq.ParquetReader()  # a `ParquetFile` takes as long to make as two columns to read
        reader.open(content, pre_buffer=False, page_checksum_verification=True)
        metadata = reader.metadata
        if metadata.num_row_groups != 1 or not 0 <= metadata.num_rows < _MANY_ROWS:
            return None
        schema, leaves = reader.schema_arrow, metadata.num_columns
        if leaves != self._leaves or not schema.equals(self._known):
            self._known, self._leaves, self._places = schema, leaves, _places(schema, leaves, self._wanted)
        return (reader, self._places) if self._places else None


def _places(found: pa.Schema, leaves: int, wanted: pa.Schema) -> list[int]:
    """Where the wanted columns stand in a file; nowhere if it lacks one or has it in another type or as one that is never null, or has nested columns."""
    if len(set(found.names)) != len(found) or leaves != len(found):
        return []
    places = [found.get_field_index(name) for name in wanted.names]
    is_there = all(place >= 0 for place in places)
    return places if is_there and pa.schema([found.field(place) for place in places]).equals(wanted) else []


def _rows(opened: tuple[pq.ParquetReader, list[int]]) -> pa.Table | None:
    reader, places = opened
    table, metadata = reader.read_row_groups([0], column_indices=places, use_threads=False), reader.metadata
    return table if table.num_rows == metadata.num_rows == metadata.row_group(0).num_rows else None
