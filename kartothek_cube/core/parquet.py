"""Parquet: tables to bytes, and files to tables with row-group pruning, column projection and a cast to the dataset's types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kartothek_cube.core.evaluate import Bounds, Mask, filter_table, matching_rows, possible_chunks
from kartothek_cube.core.footer import statistics, unpacked_bytes
from kartothek_cube.core.formats import FileFormat, as_table
from kartothek_cube.core.parquet_file import ParquetSource, open_file
from kartothek_cube.core.predicates import Predicates, columns_of
from kartothek_cube.core.schema import compatible, stored_type
from kartothek_cube.core.store import Store
from kartothek_cube.errors import CorruptData, InvalidInput, InvalidType

__all__ = [
    "FittedFormat",
    "ParquetFormat",
    "ParquetSource",
    "are_small_chunks",
    "count_parquet_rows",
    "open_file",
    "open_parquet_inside",
    "read_columns",
    "read_parquet_inside",
    "read_source",
    "stream_columns",
]

# More rows than that are read piece by piece where the caller can do with pieces.
_MANY_ROWS, _STREAMED_ROWS, _STREAMED_BYTES = 1_000_000, 262_144, 64 * 2**20

T = TypeVar("T")

CODECS = ("SNAPPY", "ZSTD", "GZIP", "BROTLI", "LZ4", "NONE")
_WRITER: dict[str, Any] = {"version": "2.6", "coerce_timestamps": "us", "use_compliant_nested_type": False, "write_page_checksum": True}
_GROUP_ROWS = 1_048_576
_PIECE_ROWS = 65_536
# Arrow makes a context of zstd for each page, which takes about 30 us. Below that many bytes a column chunk this counts for more than what zstd saves:
# 500 rows of four numbers are read in 226 us instead of 93 and take 6.7 kB instead of 7.4.
_SMALL_CHUNK = 64 * 2**10
# Decoding so many values takes as long as looking at statistics.
_FEW_ROWS = 100_000
_LONGEST_TEXTS = 2**31 - 1


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
        pq.write_table(table.replace_schema_metadata(None), sink, compression=self._codec(table), row_group_size=self.chunk_size, **_WRITER)
        return sink.getvalue()

    def write_stream(self, batches: Iterable[pa.RecordBatch | pa.Table], schema: pa.Schema, sink: object) -> int:
        plain = schema.remove_metadata()
        groups = _row_groups(batches, plain, self.chunk_size or _GROUP_ROWS)
        first = next(groups, plain.empty_table())
        with pq.ParquetWriter(sink, plain, compression=self._codec(first), **_WRITER) as writer:
            writer.write_table(first, row_group_size=max(1, first.num_rows))
            rows: int = first.num_rows
            del first  # one row group is in memory at a time
            for group in groups:
                writer.write_table(group, row_group_size=group.num_rows)
                rows += group.num_rows
        return rows

    def _codec(self, _table: pa.Table) -> str:
        """That of a file whose rows, or whose first row group, these are."""
        return self.compression


@dataclass(frozen=True, slots=True)
class FittedFormat(ParquetFormat):
    """Parquet files as `ParquetFormat` writes them, but SNAPPY where column chunks are small: another codec does not pay there.

    Examples
    --------
    >>> table = pa.table({"PRODUCT_ID": range(500)})
    >>> pq.read_metadata(pa.BufferReader(FittedFormat().encode(table))).row_group(0).column(0).compression
    'SNAPPY'
    """

    compression: str = "ZSTD"

    def _codec(self, table: pa.Table) -> str:
        rows = max(1, table.num_rows)
        nbytes = table.nbytes * min(self.chunk_size or rows, rows) // rows
        return "SNAPPY" if are_small_chunks(nbytes, table.num_columns) else self.compression


def are_small_chunks(nbytes: int, columns: int) -> bool:
    """Whether so many columns of a row group of so many unpacked bytes are so small that unpacking them is not what takes time."""
    return nbytes < columns * _SMALL_CHUNK


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


def count_parquet_rows(store: Store, key: str, dataset: str) -> int:
    """Number of rows of a file, from its footer."""
    with open_file(store, key, dataset) as source:
        return int(source.metadata.num_rows)


def read_parquet_inside(
    store: Store, key: str, dataset: str | None, columns: Sequence[str], schema: pa.Schema, predicates: Predicates | None
) -> tuple[pa.Table, int]:
    """The rows that satisfy the predicates, in the types of the schema; and their number. Columns that the file lacks are null."""
    with open_file(store, key, dataset) as source:
        return _selected(source, _matching_groups(source, schema, predicates), columns, schema, predicates, key)


def read_source(source: ParquetSource, key: str, columns: Sequence[str], schema: pa.Schema, predicates: Predicates | None) -> tuple[pa.Table, int]:
    """All rows of the row groups in which predicates may match, and their number; for a file that is open."""
    return _selected(source, _matching_groups(source, schema, predicates), columns, schema, None, key)


def _selected(
    source: ParquetSource, groups: Sequence[int], columns: Sequence[str], schema: pa.Schema, predicates: Predicates | None, key: str
) -> tuple[pa.Table, int]:
    """The rows of some row groups that satisfy the predicates.

    What these ask for is read first, the rest only of row groups in which a row stays. Texts that repeat are unpacked only where they stay.
    """
    asked = sorted(columns_of(predicates))
    if not asked:
        return _typed(_read(source, groups, columns), source.rows(groups), columns, schema, key), source.rows(groups)
    rest = [c for c in columns if c not in asked]
    source.expect(groups, {*asked, *rest})
    first = _typed(_read(source, groups, asked), source.rows(groups), asked, schema, key, encoded=True)
    mask = matching_rows(first, predicates)
    with_hits, inside = _with_hits(source, groups, mask)
    others = _read(source, with_hits, rest)
    table = first if len(with_hits) == len(groups) else first.filter(pa.array(inside))
    if others is not None:
        table = pa.table([*table.columns, *others.columns], names=[*table.column_names, *others.column_names])
    stays = mask[inside]
    rows = int(np.count_nonzero(stays))
    return _typed(filter_table(table, stays), rows, columns, schema, key), rows


def _read(source: ParquetSource, groups: Sequence[int], columns: Sequence[str]) -> pa.Table | None:
    present = [c for c in columns if c in source.positions]
    return source.read_encoded(groups, present) if present and groups else None


def _with_hits(source: ParquetSource, groups: Sequence[int], mask: Mask) -> tuple[list[int], Mask]:
    """Those of the row groups in which the mask is true somewhere, and whether a row lies in one of them."""
    counts = [source.rows([g]) for g in groups]
    hits = [bool(mask[end - count : end].any()) for end, count in zip(accumulate(counts), counts, strict=True)]
    return [g for g, hit in zip(groups, hits, strict=True) if hit], np.repeat(np.array(hits, dtype=bool), counts)


def _typed(table: pa.Table | None, rows: int, columns: Sequence[str], schema: pa.Schema, key: str, *, encoded: bool = False) -> pa.Table:
    found = {} if table is None else dict(zip(table.column_names, table.columns, strict=True))
    arrays = [_column(found.get(c), c, rows, schema.field(c).type, key, encoded=encoded) for c in columns]
    return pa.table(arrays, names=list(columns)) if arrays else pa.table({})


def open_parquet_inside(
    store: Store, key: str, dataset: str | None, columns: Sequence[str], schema: pa.Schema, predicates: Predicates | None, nbytes: int
) -> tuple[bool, Iterator[tuple[pa.Table, int]]]:
    """Whether `read_parquet_inside` takes no more than about ``nbytes`` bytes, from the footer; and the same in pieces of that size. The file is opened once.

    A row group that is larger is unpacked piece by piece, and not more than so many packed bytes of it are held.
    """
    with ExitStack() as stack:
        source = stack.enter_context(open_file(store, key, dataset))
        present = {c for c in (*columns, *columns_of(predicates)) if c in source.positions}
        bundles = list(_bundles(source, _matching_groups(source, schema, predicates), present, nbytes))
        pieces = (piece for groups, size in bundles for piece in _pieces(source, groups, columns, schema, predicates, key, size, nbytes))
        return sum(size for _, size in bundles) <= nbytes, _while_open(stack.pop_all(), pieces)


def _while_open(opened: ExitStack, pieces: Iterator[T]) -> Iterator[T]:
    with opened:
        yield from pieces


def _pieces(
    source: ParquetSource, groups: Sequence[int], columns: Sequence[str], schema: pa.Schema, predicates: Predicates | None, key: str, size: int, nbytes: int
) -> Iterator[tuple[pa.Table, int]]:
    wanted = list(dict.fromkeys((*columns, *sorted(columns_of(predicates)))))
    present = [c for c in wanted if c in source.positions]
    if size <= nbytes or not present:
        yield _selected(source, groups, columns, schema, predicates, key)
        return
    for batch in source.batches(groups, present, max(1, min(_PIECE_ROWS, source.rows(groups) * nbytes // size)), nbytes):
        table = _typed(pa.Table.from_batches([batch]), batch.num_rows, wanted, schema, key)
        mask = matching_rows(table, predicates)
        yield filter_table(table, mask).select(list(columns)), int(np.count_nonzero(mask))


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
    asked = columns_of(predicates) & source.positions.keys()
    if n == 0 or not asked or (n == 1 and source.is_near and source.metadata.num_rows < _FEW_ROWS):
        return list(range(n))
    bounds = {c: b for c in asked if (b := _group_bounds(source, c, schema.field(c).type)) is not None}
    return [int(g) for g in np.flatnonzero(possible_chunks(bounds, n, predicates))]


def _group_bounds(source: ParquetSource, column: str, kind: pa.DataType) -> Bounds | None:
    descriptor = source.metadata.schema.column(source.positions[column][0])
    if descriptor.path != column or pa.types.is_null(kind):  # nested, or nothing to compare
        return None
    stats = [statistics(chunk, descriptor) for (chunk,) in source.chunks(range(source.metadata.num_row_groups), {column})]
    try:
        low, high = (pa.array([s[i] for s in stats], type=kind) for i in (0, 1))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
    # NaN counts as null in comparisons, but statistics know nothing of it.
    nullable = [s[2] or pa.types.is_floating(kind) for s in stats]
    return Bounds(low, high, np.array(nullable, dtype=bool))


def _column(column: pa.ChunkedArray | None, name: str, rows: int, kind: pa.DataType, key: str, *, encoded: bool) -> pa.ChunkedArray:
    if column is None:
        return pa.chunked_array([pa.nulls(rows, kind)])
    is_encoded = pa.types.is_dictionary(column.type) and column.type.value_type.equals(kind)
    return column if encoded and is_encoded else conform(column, kind, name, key)


def conform(column: pa.ChunkedArray, kind: pa.DataType, name: str, key: str) -> pa.ChunkedArray:
    """A column of a file in the dataset's type; `CorruptData` if it is of another family."""
    if column.type.equals(kind):
        return column
    if not compatible(stored_type(column.type), kind):
        raise CorruptData(f"Column {name!r} of the file {key!r} is {column.type}, but its dataset says {kind}.")
    try:
        return _unpacked(column, kind) if pa.types.is_dictionary(column.type) else column.cast(kind)
    except pa.ArrowInvalid as error:
        raise CorruptData(f"Column {name!r} of the file {key!r} cannot be read as {kind}: {error}") from None


def _unpacked(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Dictionaries as their values, in pieces where those of one might be longer than an array of texts can be."""
    return pa.chunked_array([piece.cast(kind) for chunk in column.chunks for piece in _short(chunk)], kind)


def _short(chunk: pa.Array) -> list[pa.Array]:
    values = chunk.dictionary
    is_text = pa.types.is_string(values.type) or pa.types.is_binary(values.type)
    longest = (pc.max(pc.binary_length(values)).as_py() or 0) if is_text else 0
    rows = _LONGEST_TEXTS // max(1, longest)
    return [chunk] if len(chunk) <= rows else [chunk.slice(start, rows) for start in range(0, len(chunk), rows)]


def read_columns(store: Store, key: str, dataset: str, predicates: Predicates | None = None, schema: pa.Schema | None = None) -> tuple[pa.Table, bool]:
    """A whole file as it is, or only the row groups in which predicates may match; and whether that is all of it."""
    with open_file(store, key, dataset) as source:
        groups = _matching_groups(source, schema, predicates) if schema is not None else list(range(source.metadata.num_row_groups))
        return source.read(groups, source.schema.names), len(groups) == source.metadata.num_row_groups


def stream_columns(store: Store, key: str, dataset: str, predicates: Predicates | None, schema: pa.Schema) -> Iterator[tuple[pa.Table, bool]]:
    """What `read_columns` reads, at once where it is little, else in pieces of bounded size."""
    with open_file(store, key, dataset) as source:
        groups = _matching_groups(source, schema, predicates)
        whole = len(groups) == source.metadata.num_row_groups
        if source.rows(groups) <= _MANY_ROWS:
            yield source.read(groups, source.schema.names), whole
            return
        for batch in source.batches(groups, source.schema.names, _STREAMED_ROWS, _STREAMED_BYTES):
            yield pa.Table.from_batches([batch]), whole
