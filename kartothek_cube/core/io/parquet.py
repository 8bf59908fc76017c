"""Open Parquet files: footers, column chunks, and the bytes of both.

In order:

- footers: checked once, and kept for who opens the file next
- column chunks that a damaged footer describes; Arrow's accessors would end the process, so Arrow
  is made to read them from files without content, which relies on the order of its checks
- an open file
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq

from kartothek_cube.core.arrow.keys import IntArray
from kartothek_cube.core.expressions.predicates import (
    Bounds,
)
from kartothek_cube.core.io.formats import readable
from kartothek_cube.core.runtime.executor import LruCache
from kartothek_cube.core.runtime.options import uses_fast_paths
from kartothek_cube.core.runtime.telemetry import record
from kartothek_cube.core.stores.contract import Buffer, Span, Store

if TYPE_CHECKING:
    from kartothek_cube.core.io.page_index import PageIndex
    from kartothek_cube.core.io.pages import PagedFile

# Rows that any file may claim, and further ones for each of its bytes. Columns that a file lacks
# are filled with nulls, so a false number of rows would take memory at once.
_ROWS, _ROWS_PER_BYTE = 2**27, 2**16
_KEPT_BYTES = 64 * 2**20
# A footer in memory takes about so many times the bytes that it takes in the file.
_RATIO = 8
# The clock of a file system may stand still for some milliseconds, and that of a server differ.
_SETTLED_NS = 2 * 10**9


def check_rows(metadata: pq.FileMetaData, size: int) -> list[int]:
    """The number of rows of each row group; ``size`` is that of the file.

    Raises
    ------
    pyarrow.ArrowInvalid
        If the numbers contradict each other, or no file of this size can hold so many rows.
    """
    rows = [metadata.row_group(g).num_rows for g in range(metadata.num_row_groups)]
    if sum(rows) != metadata.num_rows or min(rows, default=0) < 0 or metadata.num_rows > _ROWS + size * _ROWS_PER_BYTE:
        raise pa.ArrowInvalid(
            f"Its footer says that {size:,} bytes hold {metadata.num_rows:,} rows, and its row groups {rows[:5]}"
        )
    return rows


def column_positions(metadata: pq.FileMetaData, schema: pa.Schema) -> dict[str, range]:
    """Positions of the chunks of each column in a row group; a nested column has several.

    Names are ambiguous: "a.b" may be a column or a part of one.

    Raises
    ------
    pyarrow.ArrowInvalid
        If the schema has other columns than the row groups.
    """
    # Every column has at least one chunk, so equal numbers mean that none is nested.
    counts = (
        [1] * len(schema) if metadata.num_columns == len(schema) else [_count_leaf_columns(t) for t in schema.types]
    )
    if sum(counts) != metadata.num_columns:
        raise pa.ArrowInvalid(f"Its schema has {sum(counts):,} columns where it has {metadata.num_columns:,}")
    return {
        name: range(end - count, end) for name, count, end in zip(schema.names, counts, accumulate(counts), strict=True)
    }


def _count_leaf_columns(data_type: pa.DataType) -> int:
    """The number of primitive columns that a column of this type is stored as."""
    if isinstance(data_type, pa.BaseExtensionType):
        return _count_leaf_columns(data_type.storage_type)
    if pa.types.is_map(data_type):
        return _count_leaf_columns(data_type.key_type) + _count_leaf_columns(data_type.item_type)
    if pa.types.is_struct(data_type):
        return sum(_count_leaf_columns(field.type) for field in data_type)
    return _count_leaf_columns(data_type.value_type) if hasattr(data_type, "value_type") else 1


class FileState(NamedTuple):
    """What differs once a file has been replaced."""

    inode: int
    size: int
    modified_ns: int
    # Tools that copy a directory set the modification time back.
    changed_ns: int


class ParquetFooter:
    """The footer of a file of ``size`` bytes, and what was found out about it. Safe for threads.

    Attributes
    ----------
    metadata, schema
        Those of the file.
    rows : list[int]
        The rows of each row group.
    positions : dict[str, range]
        As `column_positions`.
    bounds : dict
        The bounds of row groups that were asked for, by column and type; None: unknown.
    page_index : PageIndex | None
        Where the pages are, if somebody has asked and they can be read one by one.
    place : tuple of str and FileState, optional
        Where the file is, if this process keeps the footer.

    Raises
    ------
    pyarrow.ArrowInvalid
        If the footer contradicts itself.
    """

    def __init__(self, file: pq.ParquetFile, size: int) -> None:
        self.metadata, self.schema = file.metadata, file.schema_arrow
        if len({*self.schema.names}) != len(self.schema.names):
            raise pa.ArrowInvalid(f"Its columns do not have different names: {self.schema.names}")
        self.rows = check_rows(self.metadata, size)
        self.positions = column_positions(self.metadata, self.schema)
        self.bounds: dict[tuple[str, pa.DataType], Bounds | None] = {}
        self.page_index: PageIndex | None = None
        self.has_page_index: bool | None = None  # unknown before somebody has looked
        self.place: tuple[str, FileState] | None = None
        self._checked: dict[int, frozenset[int]] = {}

    def is_checked(self, groups: Collection[int], positions: Sequence[int]) -> bool:
        """Whether none of these column chunks is damaged, as far as somebody has looked."""
        return all(self._checked.get(position, frozenset()).issuperset(groups) for position in positions)

    def set_checked(self, groups: Collection[int], positions: Sequence[int]) -> None:
        """Note that these column chunks are not damaged."""
        for position in positions:
            self._checked[position] = self._checked.get(position, frozenset()).union(groups)


def file_state(path: str) -> FileState:
    """The state of a file now."""
    found = os.stat(path)  # noqa: PTH116 - a `Path` takes as long as ten of these
    return FileState(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


# The footers of the files that this process has opened last, by path.
_kept = LruCache[str, tuple[FileState, ParquetFooter]](_KEPT_BYTES)


def kept_footer(path: str, state: FileState) -> ParquetFooter | None:
    """The footer of a local file, if this process has read it in this state."""
    kept, footer = _kept.get(path) or (None, None)
    return footer if kept == state else None


def keep_footer(path: str, state: FileState, footer: ParquetFooter) -> None:
    """Keep a footer for the next who opens the file, unless the file may still be written."""
    if time.time_ns() - max(state.modified_ns, state.changed_ns) > _SETTLED_NS:
        footer.place = path, state
        index = 0 if footer.page_index is None else footer.page_index.nbytes
        _kept.put(path, (state, footer), footer.metadata.serialized_size * _RATIO + index)


# --- column chunks that a damaged footer describes ------------------------------------------------


def check_chunks(metadata: pq.FileMetaData, size: int, groups: Sequence[int], positions: Sequence[int]) -> None:
    """Check the column chunks of some row groups at some positions; ``size`` is that of the file.

    Raises
    ------
    pyarrow.ArrowException
        If one of the chunks is damaged.
    """
    source = _Unreadable(size)
    try:
        # With `pre_buffer` Arrow computes the spans of all chunks before it reads anything.
        file = pq.ParquetFile(pa.PythonFile(source, mode="r"), metadata=metadata, pre_buffer=True)
        file.reader.read_row_groups(list(groups), column_indices=list(positions), use_threads=False)
    except (pa.ArrowException, OSError):
        if not source.is_reached:
            raise


def check_codecs(metadata: pq.FileMetaData, size: int, positions: Sequence[int]) -> None:
    """Check codecs of the first row group, whose chunks `check_chunks` has to have passed.

    Raises
    ------
    pyarrow.ArrowException
        If Arrow does not know one of them.
    """
    # Arrow looks up the codec after it has read the first byte and before it parses a page.
    file = pq.ParquetFile(pa.PythonFile(_Empty(size), mode="r"), metadata=metadata)
    for position in positions:
        try:
            file.reader.read_row_groups([0], column_indices=[position], use_threads=False)
        except (pa.ArrowException, OSError) as error:
            if "codec" in str(error):
                raise


class _Unreadable:
    """A file of some size that ends wherever it is read, and remembers that it was read."""

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
        return b""  # raising takes longer

    def close(self) -> None:
        self.closed = True


class _Empty(_Unreadable):
    """A file of some size that is all zeros."""

    def read(self, nbytes: int) -> bytes:
        return bytes(max(0, min(nbytes, self._size - self._position)))


# --- an open file ---------------------------------------------------------------------------------


# The least that a value takes in memory, whatever the footer says.
_NUMBER, _TEXT = 8, 16
# Not buffered by Arrow: `_DistantFile` fetches the needed bytes of a remote file in one request.
# Without checksums, damaged bytes may be decoded to other values.
_READER: dict[str, Any] = {"pre_buffer": False, "page_checksum_verification": True}
_LOCAL = pa_fs.LocalFileSystem()
# A longer footer costs a second request.
_TAIL = 128 * 1024
# Spans that are closer than this are fetched as one, from a disk, and from afar; and how many
# requests for pages a remote file is worth.
_NEAR_GAP, _GAP, _MOST_RANGES = 16 * 1024, 64 * 1024, 16
_FEW_SPANS = 16
# Smaller files are read faster as a whole.
_PAGED_ROWS = 32_768
# A second request takes longer than fetching so many bytes.
_AT_ONCE = 4 * 2**20
_BUFFER = 256 * 1024
_LARGEST_BUFFER = 8 * 2**20
# Below that many rows, finding repeated texts costs more than it saves.
_MANY_ROWS_OF_A_SOURCE = 32_768
_CHECKED_ROWS = 65_536


# Columns of which the codec is looked at.
_LOOKED_AT = 16


def file_codecs(source: ParquetSource) -> frozenset[str]:
    """The codecs of the first row group, in files of many columns of some of these.

    Raises
    ------
    pyarrow.ArrowException
        If a chunk is damaged, or its codec unknown to Arrow.
    """
    if not source.metadata.num_row_groups:
        return frozenset()
    (chunks,) = source.chunks([0], set(source.schema.names))
    # Each check takes as long as there are columns.
    positions = range(0, len(chunks), -(-len(chunks) // _LOOKED_AT) or 1)
    if uses_fast_paths():
        check_codecs(source.metadata, source.size, positions)
    return frozenset(str(chunks[position].compression) for position in positions)


def chunk_spans(chunks: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """Begin and end of each chunk in the file."""
    for chunk in chunks:
        start = chunk.dictionary_page_offset or chunk.data_page_offset
        yield start, start + chunk.total_compressed_size


def repeats_texts(chunks: Sequence[Any]) -> bool:
    """Whether the chunks of a text column are dictionary-encoded and repeat most texts."""
    # A text that is stored plainly takes four bytes for its length alone.
    return bool(chunks) and all(
        chunk.has_dictionary_page and chunk.total_uncompressed_size < 4 * chunk.num_values for chunk in chunks
    )


def unpacked_bytes(chunks: Sequence[Any]) -> int:
    """Estimate the memory that the chunks take once they are decoded."""
    # The size in the footer is no upper bound: texts may be stored as codes of a dictionary.
    return sum(
        max(c.total_uncompressed_size, c.num_values * (_TEXT if c.physical_type == "BYTE_ARRAY" else _NUMBER))
        for c in chunks
    )


def column_statistics(chunk: pq.ColumnChunkMetaData, column: pq.ColumnSchema) -> tuple[Any, Any, bool]:
    """Minimum and maximum, None if unknown, and whether there may be nulls.

    ``column`` is the chunk's column in the schema of the file.
    """
    if chunk.physical_type != column.physical_type:  # reading the statistics would end the process
        raise pa.ArrowInvalid(
            f"Its footer contradicts itself about column {column.path!r}, which is {column.physical_type}"
        )
    stats = chunk.statistics
    if stats is None:
        return None, None, True
    nullable = not stats.has_null_count or stats.null_count > 0
    try:
        return (stats.min, stats.max, nullable) if stats.has_min_max else (None, None, nullable)
    # Timestamps outside of Python's datetime; in older pyarrow, decimals stored as integers.
    except (OverflowError, ValueError, NotImplementedError):
        return None, None, nullable


def column_bounds(source: ParquetSource, column: str) -> tuple[Any, Any] | None:
    """Minimum and maximum of a column in the whole file; None if they are unknown.

    They are unknown where there may be nulls or NaN, which statistics leave out.
    """
    if column not in source.positions:
        return None
    descriptor = source.metadata.schema.column(source.positions[column][0])
    groups = [g for g in range(source.metadata.num_row_groups) if source.rows([g])]
    found = [column_statistics(chunk, descriptor) for (chunk, *_) in source.chunks(groups, {column})]
    # A nested column has the statistics of its parts.
    is_plain = descriptor.path == column and not pa.types.is_float16(source.schema.field(column).type)
    is_known = found and not any(low is None or isinstance(low, float) or nullable for low, _, nullable in found)
    if not (is_plain and is_known):
        return None
    return min(low for low, _, _ in found), max(high for _, high, _ in found)


class ParquetSource:
    """A Parquet file whose bytes are local: open, or opened for each read at a known place."""

    is_near = True

    def __init__(
        self,
        handle: pa.NativeFile | None,
        size: int,
        footer: ParquetFooter | None = None,
        place: tuple[str, FileState] | None = None,
    ) -> None:
        self._handle, self.size, self._place = handle, size, place
        if footer is None:
            self._file = pq.ParquetFile(handle, **_READER)
            footer = ParquetFooter(self._file, size)
        self.footer = footer
        self.metadata, self.schema, self.positions = self.footer.metadata, self.footer.schema, self.footer.positions

    @cached_property
    def _file(self) -> pq.ParquetFile:
        return pq.ParquetFile(self._handle, metadata=self.metadata, **_READER)

    def paged(self) -> PagedFile | None:
        """The file for reads by pages; None if these do not pay, or it has no index for them."""
        footer = self.footer
        if footer.has_page_index is None:
            is_tried = uses_fast_paths() and self.metadata.num_rows >= _PAGED_ROWS
            footer.page_index = self._read_page_index() if is_tried else None
            footer.has_page_index = footer.page_index is not None
            if footer.has_page_index and footer.place is not None:
                keep_footer(*footer.place, footer)  # which has grown
        if footer.page_index is None:
            return None
        from kartothek_cube.core.io.pages import PagedFile  # few files need it

        return PagedFile(footer.page_index, str(self.metadata.created_by), self.packed)

    def _read_page_index(self) -> PageIndex | None:
        from kartothek_cube.core.io.page_index import PageIndex, Unfit

        end = self.size - 8  # the length of the footer, and a magic number
        begin = end - self.metadata.serialized_size
        (footer,) = self.packed(np.array([[begin, end]]))
        try:
            index = PageIndex(bytes(footer), begin, self.schema, self.positions)
            (data,) = self.packed(np.array([[index.begin, begin]]))
            index.provide(bytes(data))
        except Unfit:
            return None
        return index

    def packed(self, spans: IntArray) -> list[Buffer]:
        """The bytes of some spans, which are lines of begin and end."""
        if self.is_near and len(spans) <= _FEW_SPANS:
            return self._whole_pieces(spans.tolist())
        order = np.argsort(spans[:, 0], kind="stable")
        begins, ends = spans[order].T
        reach = np.maximum.accumulate(ends)
        first = np.append(0, np.flatnonzero(begins[1:] - reach[:-1] > self._gap(begins, reach)) + 1)
        merged = [*zip(begins[first].tolist(), reach[np.append(first[1:], len(order)) - 1].tolist(), strict=True)]
        pieces = [memoryview(piece) for piece in self._whole_pieces(merged)]
        owners = np.empty(len(order), dtype=np.int64)
        owners[order] = np.searchsorted(first, np.arange(len(order)), "right") - 1
        starts = np.array([begin for begin, _ in merged])[owners]
        inside = zip(owners.tolist(), (spans - starts[:, None]).tolist(), strict=True)
        return [pieces[owner][begin:end] for owner, (begin, end) in inside]

    def _whole_pieces(self, spans: Sequence[Span]) -> list[Buffer]:
        pieces = self._pieces(spans)
        if any(len(piece) != end - begin for piece, (begin, end) in zip(pieces, spans, strict=True)):
            raise pa.ArrowInvalid("It was replaced by a shorter one while it was read")
        return pieces

    def _gap(self, begins: IntArray, ends: IntArray) -> int:
        """Spans that are closer than this are read as one."""
        return _NEAR_GAP

    def _pieces(self, spans: Sequence[Span]) -> list[Buffer]:
        if self._handle is not None and not self._handle.closed:
            return [self._handle.read_at(end - begin, begin) for begin, end in spans]
        # Many files wait for their turn: that many cannot be open.
        if self._place is None:
            raise pa.ArrowInvalid("It was replaced while it was opened")
        path, state = self._place
        with _LOCAL.open_input_file(path) as handle:
            if file_state(path) != state:
                raise pa.ArrowInvalid("It was replaced while it was read")
            return [handle.read_at(end - begin, begin) for begin, end in spans]

    def expect(self, groups: Sequence[int], columns: Iterable[str]) -> None:
        """Announce what may be read in several steps; if it is little, a remote file fetches it."""

    def read(self, groups: Sequence[int], columns: Sequence[str]) -> pa.Table:
        """The columns of these row groups."""
        return self._read(self._file, groups, columns)

    def read_encoded(self, groups: Sequence[int], columns: Sequence[str]) -> pa.Table:
        """The columns of these row groups, those of repeated texts as dictionaries.

        Reading dictionaries is several times as fast as reading texts.
        """
        return self._read(self._encoded_file(groups, columns), groups, columns)

    def read_heads(self, groups: Sequence[int], columns: Sequence[str], counts: Sequence[int]) -> pa.Table:
        """The first rows of these row groups, so many of each, encoded as by `read_encoded`."""
        self._provide(groups, columns)
        file, batches = self._encoded_file(groups, columns), list[pa.RecordBatch]()
        for g, count in zip(groups, counts, strict=True):
            left = count
            # Only values that take 2 GiB come in several batches.
            for batch in self._decoded_batches(file, [g], columns, count):
                batches.append(batch)
                left -= batch.num_rows
                if left <= 0:
                    break
            if left:
                raise pa.ArrowInvalid(f"Its row group {g} has {count - left:,} rows where {count:,} were expected")
        return pa.Table.from_batches(batches)

    def _encoded_file(self, groups: Sequence[int], columns: Sequence[str]) -> pq.ParquetFile:
        """The file, which reads repeated texts in these row groups as dictionaries."""
        if self.rows(groups) < _MANY_ROWS_OF_A_SOURCE:
            return self._file
        # `read_dictionary` takes paths, and "a.b" may be a part of another column, too.
        texts = [
            c for c in self.positions if c in columns and "." not in c and pa.types.is_string(self.schema.field(c).type)
        ]
        chunks = self.chunks(groups, set(texts))
        texts = [c for i, c in enumerate(texts) if repeats_texts([group[i] for group in chunks])]
        if not texts:
            return self._file
        return pq.ParquetFile(self._handle, metadata=self.metadata, read_dictionary=texts, **_READER)

    def batches(
        self, groups: Sequence[int], columns: Sequence[str], rows: int, nbytes: int, encoded: Sequence[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        """The columns of these row groups in batches of at most ``rows`` rows.

        Holds about ``nbytes`` encoded bytes at a time. The texts in columns of ``encoded`` lists
        are dictionaries.
        """
        # Without a buffer Arrow reads the encoded bytes of all columns at once.
        buffer_size = self._buffer_size(groups, columns, nbytes)
        paths = [self.metadata.schema.column(j).path for j in self._indices(encoded)]
        file = pq.ParquetFile(
            self._handle, metadata=self.metadata, read_dictionary=paths, buffer_size=buffer_size, **_READER
        )
        count = 0
        # Each row group has a dictionary of its own, and lists of one batch can have only one.
        for bundle in [[g] for g in groups] if encoded else [groups]:
            for batch in self._decoded_batches(file, bundle, columns, rows):
                count += batch.num_rows
                yield batch
        self._check_rows(groups, columns, count)

    def rows(self, groups: Iterable[int]) -> int:
        """The number of rows of these row groups."""
        return sum(self.footer.rows[g] for g in groups)

    def chunks(self, groups: Sequence[int], columns: set[str]) -> list[list[Any]]:
        """For each of these row groups the chunks of some columns, in the order of the file.

        Raises
        ------
        pyarrow.ArrowException
            If one of the chunks is damaged.
        """
        names = [c for c in self.positions if c in columns]
        positions = self._indices(names)
        if not positions or not groups:
            return [[] for _ in groups]
        self.check_chunks(groups, names)
        return [list(map(self.metadata.row_group(g).column, positions)) for g in groups]

    def check_chunks(self, groups: Sequence[int], columns: Sequence[str]) -> None:
        """Check chunks before anything asks for them.

        Arrow's accessors end the process at a damaged chunk, while reading raises an error.
        """
        positions = self._indices(columns)
        if self.footer.is_checked(groups, positions):
            return
        if uses_fast_paths():
            check_chunks(self.metadata, self.size, groups, positions)
        else:
            file = pq.ParquetFile(self._handle, metadata=self.metadata, buffer_size=_BUFFER, **_READER)
            for _ in self._decoded_batches(file, groups, columns, _CHECKED_ROWS):
                pass
        self.footer.set_checked(groups, positions)

    def _read(self, file: pq.ParquetFile, groups: Sequence[int], columns: Sequence[str]) -> pa.Table:
        if not groups:  # pyarrow 18 cannot read zero row groups
            return self.schema.empty_table().select(list(columns))
        self._provide(groups, columns)
        table = self._decoded(file, groups, columns)
        self._check_rows(groups, columns, table.num_rows)
        return table

    def _decoded(self, file: pq.ParquetFile, groups: Sequence[int], columns: Sequence[str]) -> pa.Table:
        # The inner reader takes positions. By name, "a" also selects all columns like "a.b".
        if uses_fast_paths():
            return file.reader.read_row_groups(list(groups), column_indices=self._indices(columns), use_threads=False)
        return file.read_row_groups(list(groups), columns=list(columns), use_threads=False).select(list(columns))

    def _decoded_batches(
        self, file: pq.ParquetFile, groups: Sequence[int], columns: Sequence[str], rows: int
    ) -> Iterator[pa.RecordBatch]:
        if uses_fast_paths():
            return file.reader.iter_batches(
                rows, row_groups=list(groups), column_indices=self._indices(columns), use_threads=False
            )
        batches = file.iter_batches(rows, row_groups=list(groups), columns=list(columns), use_threads=False)
        return (batch.select(list(columns)) for batch in batches)

    def _indices(self, columns: Iterable[str]) -> list[int]:
        return [j for c in columns for j in self.positions[c]]

    def _check_rows(self, groups: Sequence[int], columns: Sequence[str], count: int) -> None:
        if columns and count != self.rows(groups):
            raise pa.ArrowInvalid(f"Its footer says {self.rows(groups):,} rows where there are {count:,}")

    def _provide(self, groups: Sequence[int], columns: Sequence[str]) -> None:
        """Fetch the bytes that are read next, where they are remote."""

    def _buffer_size(self, groups: Sequence[int], columns: Sequence[str], nbytes: int) -> int:
        """How many encoded bytes of a column to read at a time."""
        return _BUFFER


class _DistantSource(ParquetSource):
    """An open Parquet file of a store without local paths.

    The footer comes with one request, all needed column chunks with a second one.
    """

    is_near = False

    def __init__(self, store: Store, key: str, footer: bytes | memoryview, size: int) -> None:
        self._bytes = _DistantFile(store, key, footer, size)
        super().__init__(pa.PythonFile(self._bytes, mode="r"), size)

    def expect(self, groups: Sequence[int], columns: Iterable[str]) -> None:
        spans = self._spans(groups, columns)
        if _total(spans) <= _AT_ONCE:
            self._bytes.fetch(spans)

    def _provide(self, groups: Sequence[int], columns: Sequence[str]) -> None:
        self._bytes.fetch(self._spans(groups, columns))

    def _buffer_size(self, groups: Sequence[int], columns: Sequence[str], nbytes: int) -> int:
        spans = self._spans(groups, columns)
        if _total(spans) <= nbytes:
            self._bytes.fetch(spans)
        return min(max(_BUFFER, nbytes // max(1, len(columns))), _LARGEST_BUFFER)

    def _gap(self, begins: IntArray, ends: IntArray) -> int:
        gaps = np.sort(begins[1:] - ends[:-1])
        # A request for each column of a page, but not for each page.
        return max(_GAP, int(gaps[-_MOST_RANGES]) if len(gaps) >= _MOST_RANGES else 0)

    def _pieces(self, spans: Sequence[Span]) -> list[Buffer]:
        self._bytes.fetch(spans)
        pieces: list[Buffer] = [self._bytes.piece(*span) for span in spans]
        self._bytes.forget()
        return pieces

    def _spans(self, groups: Sequence[int], columns: Iterable[str]) -> list[Span]:
        spans = list(chunk_spans(list(chain.from_iterable(self.chunks(groups, set(columns))))))
        if any(start < 0 or end > self.size for start, end in spans):
            raise pa.ArrowInvalid("Its footer names bytes that it does not have")
        return spans


def _total(spans: Iterable[Span]) -> int:
    return sum(end - start for start, end in spans)


class _DistantFile:
    """A remote file for Arrow: some pieces are in memory, others are fetched when they are read."""

    closed = False

    def __init__(self, store: Store, key: str, footer: bytes | memoryview, size: int) -> None:
        self._store, self._key, self._size = store, key, size
        self._pieces = [(size - len(footer), memoryview(footer))]
        self._position = 0

    def fetch(self, spans: Iterable[Span]) -> None:
        """Keep the bytes of these spans, and drop all others but the footer."""
        filled = [span for span in spans if span[0] < span[1]]
        missing = _coalesced(span for span in filled if self._find(*span) is None)
        if missing:
            footer, *pieces = self._pieces
            used = [piece for piece in pieces if any(_covers(piece, *span) for span in filled)]
            self._pieces = [footer, *used, *self._load(missing)]

    def _load(self, spans: list[Span]) -> list[tuple[int, memoryview]]:
        parts = [memoryview(part) for part in self._store.ranges(self._key, spans)]
        if any(len(part) != end - start for (start, end), part in zip(spans, parts, strict=True)):
            raise pa.ArrowInvalid("It was replaced by a shorter one while it was read")
        return [(start, part) for (start, _), part in zip(spans, parts, strict=True)]

    def forget(self) -> None:
        """Drop all bytes but the footer."""
        del self._pieces[1:]

    def piece(self, start: int, end: int) -> memoryview:
        """Bytes that were fetched."""
        part = self._find(start, end)
        if part is None:
            raise pa.ArrowInvalid("It names bytes that it does not have")
        return part

    def _find(self, start: int, end: int) -> memoryview | None:
        pieces = (part[start - at : end - at] for at, part in self._pieces if _covers((at, part), start, end))
        return next(pieces, None)

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
        part = self._find(start, end)
        return self._load([(start, end)])[0][1] if part is None else part

    def close(self) -> None:
        self.closed = True


def _covers(piece: tuple[int, memoryview], start: int, end: int) -> bool:
    at, part = piece
    return at <= start and end <= at + len(part)


def _coalesced(spans: Iterable[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start - merged[-1][1] <= _GAP:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


@contextmanager
def open_file(
    store: Store, key: str, dataset: str | None, *, tail: int = _TAIL, counted: bool = True
) -> Iterator[ParquetSource]:
    """Open a Parquet file; errors name the key and, if it belongs to one, the dataset.

    The first request to a remote store asks for so many bytes: a file of that size needs no other.
    Only ``counted`` files are in the figures of the operation.
    """
    with readable(store, key, dataset), ExitStack() as stack:
        path = store.local_path(key)
        if path is None:
            footer, size = store.tail(key, tail)
            # A file ends with the length of its footer in four bytes, and a magic number.
            needed = int.from_bytes(bytes(footer[-8:-4]), "little") + 8
            if len(footer) < min(needed, size):
                footer, size = store.tail(key, needed)
            is_whole = len(footer) == size
            source = (
                ParquetSource(pa.BufferReader(footer), size) if is_whole else _DistantSource(store, key, footer, size)
            )
        else:
            source = _open_local(path, stack)
        if counted:
            record(files_read=1, bytes_read=source.size)
        yield source


def find_paged(store: Store, key: str, dataset: str | None) -> PagedFile | None:
    """A local file for reads by pages, which open it; None unless its index is in memory."""
    with readable(store, key, dataset):
        path = store.local_path(key)
        footer = None if path is None else kept_footer(path, file_state(path))
        if footer is None or footer.place is None or footer.page_index is None:
            return None
        record(files_read=1, bytes_read=footer.place[1].size)
        return ParquetSource(None, footer.place[1].size, footer, footer.place).paged()


def _open_local(path: str, stack: ExitStack) -> ParquetSource:
    # A file may be replaced at any time: only if it was not, it is known to be the one that opened.
    before = file_state(path)
    handle = stack.enter_context(_LOCAL.open_input_file(path))
    state = file_state(path)
    if state != before:
        return ParquetSource(handle, handle.size())
    footer = kept_footer(path, state)
    source = ParquetSource(handle, state.size, footer, (path, state))
    if footer is None:
        keep_footer(path, state, source.footer)
    return source
