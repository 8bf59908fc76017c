"""Small local Parquet files of one dataset, joined in memory and read as one file.

Arrow takes as long to open a small file as to decode it.

In order:

- one footer, as if the files were row groups of one
- which files are joined
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import accumulate, groupby
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from kartothek_cube.core.arrow.keys import BoolArray, IntArray
from kartothek_cube.core.io.footers import (
    MAGIC,
    Bytes,
    ChunkBytes,
    Path,
    Pattern,
    RowGroupTemplate,
    Token,
    found_values,
    joined_footer,
    pattern_of,
    read_struct,
    read_varint,
)
from kartothek_cube.core.runtime.telemetry import record
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.errors import InvalidInput

# --- one footer -----------------------------------------------------------------------------------


# Fields of FileMetaData, RowGroup, ColumnChunk, ColumnMetaData and PageHeader in parquet.thrift.
_ROWS, _GROUPS, _COLUMNS, _GROUP_BYTES, _GROUP_ROWS = (3,), 4, (4, 0, 1), (4, 0, 2), (4, 0, 3)
_META, _OTHER_FILE = 3, 1
_TYPE, _CODEC, _VALUES, _UNPACKED, _PACKED, _DATA_AT, _DICTIONARY_AT = 1, 4, 5, 6, 7, 9, 11
_PAGE_TYPE, _PAGE_BYTES, _PAGE_VALUES = (1,), (3,), (5, 1)
_PAGE_LITERALS = {_PAGE_TYPE, (5, 2), (5, 3), (5, 4), (7, 2)}  # and encodings
_DATA_PAGE, _DICTIONARY_PAGE, _BYTE_ARRAY = 0, 2, 6


class SchemaBytes(Struct, frozen=True):
    """How footers begin that have one schema, none of whose columns is nested.

    Attributes
    ----------
    head : bytes
        The bytes before the number of rows.
    schema : pyarrow.Schema
        What Arrow makes of it.
    writer : str
        The program that wrote the files.
    """

    head: bytes
    schema: pa.Schema
    writer: str


class FileLayout(Struct, frozen=True):
    """The structure of files of one row group.

    Attributes
    ----------
    schema : SchemaBytes
        Files of one schema may have several layouts, e.g. columns with and without dictionaries.
    pattern : Pattern
        From the number of rows to the last number of the row group.
    group : RowGroupTemplate
        A row group without numbers.
    slots : list[Path]
        The paths of these.
    pages : list[list[Pattern]]
        For each column the headers of its pages: a dictionary, if it has one, and the only page of
        data. Columns of equal headers have the same object.
    """

    schema: SchemaBytes
    pattern: Pattern
    group: RowGroupTemplate
    slots: list[Path]
    pages: list[list[Pattern]]


class Matches(NamedTuple):
    """Which files have a layout; the rows and the row group of each, and where its tail begins."""

    good: BoolArray
    rows: IntArray
    groups: list[bytes]
    tails: IntArray


class FileSpans(Struct, frozen=True):
    """Files one behind the other: where each begins, and where its footer begins and ends."""

    data: Bytes
    starts: IntArray
    begins: IntArray
    ends: IntArray

    def match(self, files: Sequence[int], layout: FileLayout, positions: Sequence[int]) -> Matches | None:
        """Which of these files have a layout, and one page of all rows in columns at ``positions``.

        None if there are none.
        """
        starts, begins, ends = (places[files] for places in (self.starts, self.begins, self.ends))
        head = layout.schema.head
        numbers, tails, good = found_values(self.data, begins + len(head), layout.pattern)
        if not good.any():
            return None
        content = self.data.data
        good &= [content[begin : begin + len(head)] == head for begin in begins.tolist()]
        rows = numbers[_ROWS]
        good &= (tails < ends) & (rows >= 0) & (rows == numbers[_GROUP_ROWS])
        for pages in {id(layout.pages[i]): layout.pages[i] for i in positions}.values():
            columns = [(*_COLUMNS, i, _META) for i in positions if layout.pages[i] is pages]
            good &= self._have_pages(pages, columns, numbers, starts, begins)
        return Matches(good, rows, _row_groups(layout, numbers, starts), tails)

    def _have_pages(
        self,
        pages: Sequence[Pattern],
        columns: Sequence[Path],
        numbers: Mapping[Path, IntArray],
        starts: IntArray,
        limits: IntArray,
    ) -> BoolArray:
        """Whether chunks of columns are these pages and nothing else, with a value for each row."""

        # Otherwise rows of one file might be taken for rows of the next one.
        def numbers_of(n: int) -> IntArray:
            return np.stack([numbers[*column, n] for column in columns])

        data_at, values = starts + numbers_of(_DATA_AT), numbers_of(_VALUES)
        at = starts + numbers_of(_DICTIONARY_AT) if len(pages) > 1 else data_at
        end = at + numbers_of(_PACKED)
        good = (at >= starts) & (at < end) & (end <= limits) & (values == numbers[_ROWS])
        for pattern in pages:
            begin = at
            header, after, matches = found_values(self.data, np.maximum(begin, 0).ravel(), pattern)
            good &= matches.reshape(good.shape)
            if not good.any():
                break
            if _PAGE_VALUES in header:
                good &= (begin == data_at) & (header[_PAGE_VALUES].reshape(good.shape) == values)
            at = (after + header[_PAGE_BYTES]).reshape(good.shape)
        found: BoolArray = (good & (at == end)).all(axis=0)
        return found


def _row_groups(layout: FileLayout, numbers: dict[Path, IntArray], starts: IntArray) -> list[bytes]:
    """A row group for each file. Its places count from the begin of the first file."""
    places = (_DATA_AT, _DICTIONARY_AT)
    values = np.stack(
        [numbers[p] + starts if p[:3] == _COLUMNS and p[-1] in places else numbers[p] for p in layout.slots], axis=1
    )
    return layout.group.filled(values)


# --- the layout of one file -----------------------------------------------------------------------


def schema_head(footer: bytes) -> bytes | None:
    """The bytes of a footer before its number of rows; None if they cannot be told."""
    try:
        return next(footer[: token.begin] for token in read_struct(footer, 0)[0] if token.path == _ROWS)
    except (IndexError, ValueError, StopIteration):
        return None


def layout_of(content: bytes, begin: int, schema: SchemaBytes, *, is_first: bool) -> FileLayout | None:
    """The layout of a file whose footer begins there; None if it has none that is known here.

    Such files have several row groups, several pages of a column, or pages of version 2.
    """
    try:
        found = [token for token in read_struct(content, begin)[0] if token.path[0] in (*_ROWS, _GROUPS)]
        columns = [(*_COLUMNS, i, _META) for i in range(len(schema.schema))]
        places = {token.path: token for token in found}
        if any(t.path[1:2] > (0,) or t.path[4:5] == (_OTHER_FILE,) for t in found) or len(found[-1].path) != 3:
            return None
        literals = {(*column, n) for column in columns for n in range(_TYPE, _CODEC + 1)}
        values = [token for token in found if token.path[:6] not in literals]
        fixed = {token.path for token in values if _is_fixed(content, token, places, is_first=is_first)}
        group, slots = _empty_row_group(content, columns, places)
        # The same object for equal pages: their headers are found at once.
        known, pages = dict[Hashable, list[Pattern]](), list[list[Pattern]]()
        for column in columns:
            found_pages = _pages(content, column, places)
            looks = tuple((*p.sizes, *p.paths, p.literal.tobytes(), p.mask.tobytes()) for p in found_pages)
            pages.append(known.setdefault(looks, found_pages))
        return FileLayout(
            schema,
            pattern_of(
                content,
                begin + len(schema.head),
                found[-1].end,
                [token for token in values if token.path not in fixed],
                [token for token in values if token.path in fixed],
            ),
            group,
            slots,
            pages,
        )
    except (IndexError, ValueError, KeyError):
        return None


def _empty_row_group(
    content: bytes, columns: Sequence[Path], places: Mapping[Path, Token]
) -> tuple[RowGroupTemplate, list[Path]]:
    """A row group without numbers, and the paths of these."""
    chunks, slots = list[ChunkBytes | None](), list[Path]()
    for column in columns:
        has_dictionary = (*column, _DICTIONARY_AT) in places
        literal = content[places[*column, _TYPE].begin - 1 : places[*column, _CODEC].end]
        chunks.append(ChunkBytes(literal, has_dictionary))
        numbers = (_VALUES, _UNPACKED, _PACKED, _DATA_AT, _DICTIONARY_AT)
        slots += [(*column, n) for n in (numbers if has_dictionary else numbers[:-1])]
    return RowGroupTemplate.of(chunks), [*slots, _GROUP_BYTES, _GROUP_ROWS]


def _pages(content: bytes, column: Path, places: Mapping[Path, Token]) -> list[Pattern]:
    """The headers of a column's pages."""
    has_dictionary, pages = (*column, _DICTIONARY_AT) in places, list[Pattern]()
    begin = _number(content, places[*column, _DICTIONARY_AT if has_dictionary else _DATA_AT])
    chunk_end = begin + _number(content, places[*column, _PACKED])
    for kind in (_DICTIONARY_PAGE, _DATA_PAGE) if has_dictionary else (_DATA_PAGE,):
        found, end = read_struct(content, begin)
        numbers = {token.path: _number(content, token) for token in found}
        if numbers[_PAGE_TYPE] != kind or (_PAGE_VALUES in numbers) != (kind == _DATA_PAGE):
            raise ValueError("Pages of another kind")
        pages.append(pattern_of(content, begin, end, (token for token in found if token.path not in _PAGE_LITERALS)))
        begin = end + numbers[_PAGE_BYTES]
    if begin != chunk_end:
        raise ValueError("More pages than these")
    return pages


def _is_fixed(content: bytes, token: Token, places: Mapping[Path, Token], *, is_first: bool) -> bool:
    """Whether nobody needs a value, and it has the same length in other files."""
    is_chunk = token.path[:3] == _COLUMNS and token.path[4:5] == (_META,)
    if not is_chunk or len(token.path) == 6:
        return False
    if token.is_number:  # a count, e.g. of nulls, and probably none
        return is_first and token.end == token.begin + 1
    return _number(content, places[*token.path[:5], _TYPE]) != _BYTE_ARRAY


def _number(content: bytes, token: Token) -> int:
    value, _ = read_varint(content, token.begin)
    return value >> 1


# --- which files are joined -----------------------------------------------------------------------


# Of larger files not all bytes may be needed. In a file of more rows, repeated texts may be read as
# dictionaries.
_MAX_BYTES, _MAX_ROWS = 256 * 2**10, 32_768
# Layouts and tails that are kept, and files of a batch from which a new layout is learned.
# Where layouts never end, e.g. as other columns have no values, they are not worth learning.
_LAYOUTS, _TAILS, _LEARNED, _ALL_LEARNED = 8, 256, 2, 64

T = TypeVar("T")
R = TypeVar("R")


def is_small(size: int, metadata: pq.FileMetaData) -> bool:
    """Whether a file may be joined with others."""
    return size < _MAX_BYTES and metadata.num_rows < _MAX_ROWS and metadata.num_row_groups == 1


class _File(NamedTuple):
    """A file as a row group of a joined one."""

    schema: SchemaBytes
    rows: int
    group: bytes
    tail: bytes


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
        for found, contents in self._joined(keys):
            if found is not None:
                yield _recorded(*found, sum(map(len, contents)))
                continue
            for content in contents:
                table = _tried(partial(_rows_alone, schema=self._schema), content) if content else None
                yield None if table is None else _recorded(table, [table.num_rows], len(content))

    def read_known(self, keys: Sequence[str]) -> Iterator[tuple[pa.Table, list[int]] | None]:
        """The same of Parquet files of known layouts alone; the caller counts the rows."""
        for found, contents in self._joined(keys):
            if found is None:
                yield from (None for _ in contents)
            else:
                record(files_read=len(contents), bytes_read=sum(map(len, contents)))
                yield found

    def files_of(self, rows: int) -> int:
        """How many files have about so many rows together."""
        return max(1, rows // max(1, self._layouts.most_rows))

    def _joined(self, keys: Sequence[str | None]) -> Iterator[tuple[tuple[pa.Table, list[int]] | None, list[bytes]]]:
        """The rows of neighbouring files of one schema, None if unknown; and their bytes."""
        # Step by step: taking all steps for one file after the other is slower (CPU cache misses).
        contents = [content or b"" for content in _each(_content, _each(self._store.local_path, keys))]
        joined = b"".join(contents)
        recognized = zip(self._layouts.recognized(joined, contents), contents, strict=True)
        for schema, run in groupby(recognized, lambda pair: pair[0] and pair[0].schema):
            members = list(run)
            chosen = [file for file, _ in members if file]
            table = _tried(lambda some: _rows(joined, some, self._schema), chosen) if schema else None
            found = None if table is None else (table, [file.rows for file in chosen])
            yield found, [content for _, content in members]


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
    footer = joined_footer(kind.head, rows, [file.group for file in files], files[0].tail[1:])
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
    """The layouts of files from which the columns of a schema can be read. Safe for threads.

    ``most_rows`` are those of one of the files that were recognized last.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self.most_rows = _MAX_ROWS
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
                self._learned_count += 1
                known.extend(self._learned(contents[pending[0]]))
            if not known:
                del pending[0]
                continue
            of_layout = dict(self._files(contents, spans, known.popleft(), pending))
            for i, file in of_layout.items():
                found[i] = file
            pending = [i for i in pending if i not in of_layout]
        self.most_rows = max((file.rows for file in found if file), default=self.most_rows)
        return found

    def _files(
        self, contents: Sequence[bytes], spans: FileSpans, layout: FileLayout, pending: Sequence[int]
    ) -> Iterator[tuple[int, _File | None]]:
        """The files of a layout; None for one of too many rows."""
        matches = spans.match(pending, layout, _positions(layout.schema.schema, self._schema))
        if matches is None:
            return
        tails, rows = (matches.tails - spans.starts[pending]).tolist(), matches.rows.tolist()
        for k in np.flatnonzero(matches.good).tolist():
            content = contents[pending[k]]
            tail = content[tails[k] : -8]
            if rows[k] >= _MAX_ROWS:
                yield pending[k], None
            elif tail[0] == 0 and self._has_schema(content, layout.schema, tail):
                yield pending[k], _File(layout.schema, rows[k], matches.groups[k], tail)

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
