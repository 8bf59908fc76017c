"""Parquet: tables to bytes, and files to tables.

Reading prunes row groups, selects columns, and casts to the types of the dataset.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kartothek_cube.core.arrow.schema import compatible
from kartothek_cube.core.arrow.types import stored_type
from kartothek_cube.core.expressions.evaluate import Bounds, filter_table, matching_rows, possible_chunks
from kartothek_cube.core.expressions.predicates import Predicates, columns_of
from kartothek_cube.core.io.file_format import FileFormat, as_table
from kartothek_cube.core.io.parquet_source import ParquetSource, column_statistics, open_file, unpacked_bytes
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.errors import CorruptData, InvalidInput, InvalidType

__all__ = [
    "AdaptiveParquetFormat",
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

# More rows are read in pieces where the caller accepts pieces.
_MANY_ROWS, _STREAMED_ROWS, _STREAMED_BYTES = 1_000_000, 262_144, 64 * 2**20

CODECS = ("SNAPPY", "ZSTD", "GZIP", "BROTLI", "LZ4", "NONE")
# kartothek compares the children of lists by name, and writes the name that is not compliant.
# The checksums let a reader refuse damaged pages.
_WRITER: dict[str, Any] = {
    "version": "2.6",
    "coerce_timestamps": "us",
    "use_compliant_nested_type": False,
    "write_page_checksum": True,
}
_GROUP_ROWS = 1_048_576
_PIECE_ROWS = 65_536
# Arrow makes a zstd context for each page, which takes about 30 us. In smaller column chunks this
# costs more than zstd saves: 500 rows of four numbers are read in 226 us instead of 93, and take
# 6.7 kB instead of 7.4.
_SMALL_CHUNK = 64 * 2**10
# Decoding so many values takes as long as reading their statistics.
_FEW_ROWS = 100_000
# The offsets of Arrow's texts are signed numbers of 32 bits.
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
            raise InvalidType(
                "chunk size is not integer type: chunk_size must be an integer "
                f"but is {type(self.chunk_size).__name__}."
            )
        if str(self.compression).upper() not in CODECS:
            raise InvalidInput(f"Unknown compression {self.compression!r}; use one of {', '.join(CODECS)}.")
        if self.chunk_size is not None and self.chunk_size <= 0:
            raise InvalidInput(f"chunk size < 1: chunk_size must be > 0 but is {self.chunk_size}.")

    @property
    def file_suffix(self) -> str:
        return ".parquet"

    def encode(self, table: pa.Table) -> pa.Buffer:
        sink = pa.BufferOutputStream()
        pq.write_table(
            table.replace_schema_metadata(None),
            sink,
            compression=self._codec(table),
            row_group_size=self.chunk_size,
            **_WRITER,
        )
        return sink.getvalue()

    def write_stream(self, batches: Iterable[pa.RecordBatch | pa.Table], schema: pa.Schema, sink: object) -> int:
        plain = schema.remove_metadata()
        groups = _row_groups(batches, plain, self.chunk_size or _GROUP_ROWS)
        first = next(groups, plain.empty_table())
        with pq.ParquetWriter(sink, plain, compression=self._codec(first), **_WRITER) as writer:
            writer.write_table(first, row_group_size=max(1, first.num_rows))
            rows: int = first.num_rows
            del first  # so that one row group is in memory at a time
            for group in groups:
                writer.write_table(group, row_group_size=group.num_rows)
                rows += group.num_rows
        return rows

    def _codec(self, _table: pa.Table) -> str:
        """The codec of a file with these rows, or with this first row group."""
        return self.compression


@dataclass(frozen=True, slots=True)
class AdaptiveParquetFormat(ParquetFormat):
    """As `ParquetFormat`, but SNAPPY where column chunks are too small for another codec to pay.

    Examples
    --------
    >>> file = AdaptiveParquetFormat().encode(pa.table({"PRODUCT_ID": range(500)}))
    >>> pq.read_metadata(pa.BufferReader(file)).row_group(0).column(0).compression
    'SNAPPY'
    """

    compression: str = "ZSTD"

    def _codec(self, table: pa.Table) -> str:
        rows = max(1, table.num_rows)
        nbytes = table.nbytes * min(self.chunk_size or rows, rows) // rows
        return "SNAPPY" if are_small_chunks(nbytes, table.num_columns) else self.compression


def are_small_chunks(nbytes: int, columns: int) -> bool:
    """Whether ZSTD does not pay for the columns of a row group of ``nbytes`` decoded bytes."""
    return nbytes < columns * _SMALL_CHUNK


def _row_groups(batches: Iterable[pa.RecordBatch | pa.Table], schema: pa.Schema, size: int) -> Iterator[pa.Table]:
    """The same rows in tables of ``size`` rows, the last one smaller."""
    # Concatenated only once there are enough: every time costs as much as there are chunks.
    waiting: list[pa.Table] = []
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
    store: Store,
    key: str,
    dataset: str | None,
    columns: Sequence[str],
    schema: pa.Schema,
    predicates: Predicates | None,
) -> tuple[pa.Table, int]:
    """The rows that satisfy the predicates, in the types of the schema, and their number.

    Columns that the file lacks are null.
    """
    with open_file(store, key, dataset) as source:
        return _selected(source, _matching_groups(source, schema, predicates), columns, schema, predicates, key)


def read_source(
    source: ParquetSource, key: str, columns: Sequence[str], schema: pa.Schema, predicates: Predicates | None
) -> tuple[pa.Table, int]:
    """All rows of the row groups in which predicates may match, and their number."""
    return _selected(source, _matching_groups(source, schema, predicates), columns, schema, None, key)


def _selected(
    source: ParquetSource,
    groups: Sequence[int],
    columns: Sequence[str],
    schema: pa.Schema,
    predicates: Predicates | None,
    key: str,
) -> tuple[pa.Table, int]:
    """The rows of some row groups that satisfy the predicates."""
    filtered = sorted(columns_of(predicates))
    if not filtered:
        rows = source.rows(groups)
        return _typed(_read(source, groups, columns), rows, columns, schema, key), rows
    # First the columns of the predicates, then the others, only of row groups in which a row is
    # left. Repeated texts stay dictionaries until the rows are filtered.
    rest = [c for c in columns if c not in filtered]
    source.expect(groups, {*filtered, *rest})
    table = _typed(_read(source, groups, filtered), source.rows(groups), filtered, schema, key, encoded=True)
    mask = matching_rows(table, predicates)
    counts = [source.rows([g]) for g in groups]
    hits = [bool(mask[end - count : end].any()) for end, count in zip(accumulate(counts), counts, strict=True)]
    groups_hit = [g for g, hit in zip(groups, hits, strict=True) if hit]
    others = _read(source, groups_hit, rest)
    if len(groups_hit) < len(groups):
        inside = np.repeat(np.array(hits, dtype=bool), counts)
        table, mask = table.filter(pa.array(inside)), mask[inside]
    if others is not None:
        table = pa.table([*table.columns, *others.columns], names=[*table.column_names, *others.column_names])
    rows = int(np.count_nonzero(mask))
    return _typed(filter_table(table, mask), rows, columns, schema, key), rows


def _read(source: ParquetSource, groups: Sequence[int], columns: Sequence[str]) -> pa.Table | None:
    present = [c for c in columns if c in source.positions]
    return source.read_encoded(groups, present) if present and groups else None


def _typed(
    table: pa.Table | None, rows: int, columns: Sequence[str], schema: pa.Schema, key: str, *, encoded: bool = False
) -> pa.Table:
    """The columns in the types of the schema; with ``encoded``, dictionaries stay as they are."""
    stored = {} if table is None else dict(zip(table.column_names, table.columns, strict=True))
    arrays = []
    for name in columns:
        column, data_type = stored.get(name), schema.field(name).type
        if column is None:
            column = pa.chunked_array([pa.nulls(rows, data_type)])
        elif not (encoded and pa.types.is_dictionary(column.type) and column.type.value_type.equals(data_type)):
            column = conform(column, data_type, name, key)
        arrays.append(column)
    return pa.table(arrays, names=list(columns)) if arrays else pa.table({})


def open_parquet_inside(
    store: Store,
    key: str,
    dataset: str | None,
    columns: Sequence[str],
    schema: pa.Schema,
    predicates: Predicates | None,
    nbytes: int,
) -> tuple[bool, Iterator[tuple[pa.Table, int]]]:
    """What `read_parquet_inside` reads, in pieces of about ``nbytes`` bytes.

    The first value says whether all of it takes no more, estimated from the footer. A larger row
    group is decoded in pieces, with at most so many encoded bytes in memory. The file is opened
    once.
    """
    with ExitStack() as stack:
        source = stack.enter_context(open_file(store, key, dataset))
        present = {c for c in (*columns, *columns_of(predicates)) if c in source.positions}
        bundles = list(_bundles(source, _matching_groups(source, schema, predicates), present, nbytes))
        opened = stack.pop_all()

    # The file stays open until the last piece, and no longer than the iterator.
    def pieces() -> Iterator[tuple[pa.Table, int]]:
        with opened:
            for groups, size in bundles:
                yield from _pieces(source, groups, columns, schema, predicates, key, size, nbytes)

    return sum(size for _, size in bundles) <= nbytes, pieces()


def _pieces(
    source: ParquetSource,
    groups: Sequence[int],
    columns: Sequence[str],
    schema: pa.Schema,
    predicates: Predicates | None,
    key: str,
    size: int,
    nbytes: int,
) -> Iterator[tuple[pa.Table, int]]:
    needed = list(dict.fromkeys((*columns, *sorted(columns_of(predicates)))))
    present = [c for c in needed if c in source.positions]
    if size <= nbytes or not present:
        yield _selected(source, groups, columns, schema, predicates, key)
        return
    rows = max(1, min(_PIECE_ROWS, source.rows(groups) * nbytes // size))
    for batch in source.batches(groups, present, rows, nbytes):
        table = _typed(pa.Table.from_batches([batch]), batch.num_rows, needed, schema, key)
        mask = matching_rows(table, predicates)
        yield filter_table(table, mask).select(list(columns)), int(np.count_nonzero(mask))


def _bundles(
    source: ParquetSource, groups: Sequence[int], columns: set[str], nbytes: int
) -> Iterator[tuple[list[int], int]]:
    """Neighbouring row groups with their size: up to ``nbytes``, or a single one that is larger."""
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
    filtered = columns_of(predicates) & source.positions.keys()
    if n == 0 or not filtered or (n == 1 and source.is_near and source.metadata.num_rows < _FEW_ROWS):
        return list(range(n))
    bounds = {c: b for c in filtered if (b := _group_bounds(source, c, schema.field(c).type)) is not None}
    return [int(g) for g in np.flatnonzero(possible_chunks(bounds, n, predicates))]


def _group_bounds(source: ParquetSource, column: str, data_type: pa.DataType) -> Bounds | None:
    descriptor = source.metadata.schema.column(source.positions[column][0])
    if descriptor.path != column or pa.types.is_null(data_type):  # nested, or nothing to compare
        return None
    groups = source.chunks(range(source.metadata.num_row_groups), {column})
    stats = [column_statistics(chunk, descriptor) for (chunk,) in groups]
    try:
        low, high = (pa.array([s[i] for s in stats], type=data_type) for i in (0, 1))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
    # NaN counts as null in comparisons, but statistics do not count it.
    nullable = [s[2] or pa.types.is_floating(data_type) for s in stats]
    return Bounds(low, high, np.array(nullable, dtype=bool))


def conform(column: pa.ChunkedArray, data_type: pa.DataType, name: str, key: str) -> pa.ChunkedArray:
    """A column in the type of its dataset; `CorruptData` if the types are not compatible."""
    if column.type.equals(data_type):
        return column
    if not compatible(stored_type(column.type), data_type):
        raise CorruptData(f"Column {name!r} of the file {key!r} is {column.type}, but its dataset says {data_type}.")
    try:
        if not pa.types.is_dictionary(column.type):
            return column.cast(data_type)
        return pa.chunked_array([p.cast(data_type) for chunk in column.chunks for p in _short(chunk)], data_type)
    except pa.ArrowInvalid as error:
        raise CorruptData(f"Column {name!r} of the file {key!r} cannot be read as {data_type}: {error}") from None


def _short(chunk: pa.Array) -> list[pa.Array]:
    """A dictionary array in slices whose texts fit into one array of 2 GiB."""
    values = chunk.dictionary
    is_text = pa.types.is_string(values.type) or pa.types.is_binary(values.type)
    longest = (pc.max(pc.binary_length(values)).as_py() or 0) if is_text else 0
    rows = _LONGEST_TEXTS // max(1, longest)
    return [chunk] if len(chunk) <= rows else [chunk.slice(start, rows) for start in range(0, len(chunk), rows)]


def read_columns(
    store: Store, key: str, dataset: str, predicates: Predicates | None = None, schema: pa.Schema | None = None
) -> tuple[pa.Table, bool]:
    """The columns of a file as they are stored, and whether these are all rows.

    With a schema, row groups in which the predicates cannot match are left out.
    """
    with open_file(store, key, dataset) as source:
        count = source.metadata.num_row_groups
        groups = list(range(count)) if schema is None else _matching_groups(source, schema, predicates)
        return source.read(groups, source.schema.names), len(groups) == count


def stream_columns(
    store: Store, key: str, dataset: str, predicates: Predicates | None, schema: pa.Schema
) -> Iterator[tuple[pa.Table, bool]]:
    """What `read_columns` reads, in pieces of bounded size if there are many rows."""
    with open_file(store, key, dataset) as source:
        groups = _matching_groups(source, schema, predicates)
        whole = len(groups) == source.metadata.num_row_groups
        if source.rows(groups) <= _MANY_ROWS:
            yield source.read(groups, source.schema.names), whole
            return
        for batch in source.batches(groups, source.schema.names, _STREAMED_ROWS, _STREAMED_BYTES):
            yield pa.Table.from_batches([batch]), whole
