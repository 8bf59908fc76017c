"""Writing Parquet files: codecs, encodings and row groups."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kartothek_cube.core.io.file_format import FileFormat, as_table
from kartothek_cube.core.io.parquet_layout import (
    DECISIVE_ROWS,
    is_noise,
    leaf_paths,
    paths_with_statistics,
    row_group_rows,
    unique_columns,
)
from kartothek_cube.errors import InvalidInput, InvalidType

__all__ = ["CODECS", "AdaptiveParquetFormat", "ParquetFormat", "are_small_chunks", "encode_bare", "encode_groups"]

# Reading what these have compressed takes several times as long as with SNAPPY.
_SLOW = ("ZSTD", "GZIP", "BROTLI")
CODECS = ("SNAPPY", "ZSTD", "GZIP", "BROTLI", "LZ4", "NONE")
# kartothek compares the children of lists by name, and writes the name that is not compliant.
# The checksums let a reader refuse damaged pages.
_WRITER: dict[str, Any] = {
    "version": "2.6",
    "coerce_timestamps": "us",
    "use_compliant_nested_type": False,
    "write_page_checksum": True,
}
# Arrow makes a zstd context for each page, which takes about 30 us. In smaller column chunks this
# costs more than zstd saves: 500 rows of four numbers are read in 226 us instead of 93, and take
# 6.7 kB instead of 7.4.
_SMALL_CHUNK = 64 * 2**10


@dataclass(frozen=True, slots=True)
class ParquetFormat(FileFormat):
    """Parquet files as kartothek writes them.

    Parameters
    ----------
    compression : str, default "SNAPPY"
        Codec of the column chunks: ``SNAPPY``, ``ZSTD``, ``GZIP``, ``BROTLI``, ``LZ4`` or ``NONE``.
    chunk_size : int, optional
        Rows of a row group. By default 1,048,576; in files of at least 131,072 rows that are sorted
        by some column 32,768, with more than 8 columns 65,536, with more than 32 columns 131,072.

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
        return self.encode_noted(table)

    def encode_noted(
        self, table: pa.Table, metadata: Mapping[bytes, bytes] | None = None, sorted_by: Sequence[str] = ()
    ) -> pa.Buffer:
        """`encode`, with key-value metadata in the footer, and with the columns that sort the rows.

        With ``sorted_by``, no column may be nested.
        """
        plain, sink = table.replace_schema_metadata(metadata), pa.BufferOutputStream()
        rows = self.chunk_size or row_group_rows(plain)
        with self._writer(plain, rows, sink, paths_with_statistics(plain.schema, plain), sorted_by) as writer:
            writer.write_table(plain, row_group_size=rows)
        return sink.getvalue()

    def write_stream(self, batches: Iterable[pa.RecordBatch | pa.Table], schema: pa.Schema, sink: object) -> int:
        plain = schema.remove_metadata()
        groups = _row_groups(batches, plain, self.chunk_size)
        first = next(groups, plain.empty_table())
        # What later groups have is not known yet.
        with self._writer(first, max(1, first.num_rows), sink, paths_with_statistics(plain)) as writer:
            writer.write_table(first, row_group_size=max(1, first.num_rows))
            rows: int = first.num_rows
            del first  # so that one row group is in memory at a time
            for group in groups:
                writer.write_table(group, row_group_size=group.num_rows)
                rows += group.num_rows
        return rows

    def _writer(
        self, table: pa.Table, rows: int, sink: object, statistics: bool | Sequence[str], sorted_by: Sequence[str] = ()
    ) -> pq.ParquetWriter:
        """A writer of row groups of so many rows; the table has all of them, or the first group."""
        unique = unique_columns(table, rows)
        repeated = [path for path in leaf_paths(table.schema) if path not in unique] if unique else True
        codec = self._codec(table, rows, unique)
        order = [pq.SortingColumn(table.column_names.index(c)) for c in sorted_by] or None
        return pq.ParquetWriter(
            sink,
            table.schema,
            compression=codec,
            use_dictionary=repeated,
            write_statistics=statistics,
            sorting_columns=order,
            **_WRITER,
        )

    def _codec(self, _table: pa.Table, _rows: int, _unique: Sequence[str]) -> str | dict[str, str]:
        return self.compression


@dataclass(frozen=True, slots=True)
class AdaptiveParquetFormat(ParquetFormat):
    """As `ParquetFormat`, but SNAPPY where another codec does not pay.

    That is in files of small column chunks, and in columns of numbers that it hardly shrinks.

    Examples
    --------
    >>> file = AdaptiveParquetFormat().encode(pa.table({"PRODUCT_ID": range(500)}))
    >>> pq.read_metadata(pa.BufferReader(file)).row_group(0).column(0).compression
    'SNAPPY'
    """

    compression: str = "ZSTD"

    def _codec(self, table: pa.Table, rows: int, unique: Sequence[str]) -> str | dict[str, str]:
        nbytes = table.nbytes * min(rows, table.num_rows) // max(1, table.num_rows)
        if are_small_chunks(nbytes, table.num_columns) or self.compression not in _SLOW:
            return "SNAPPY" if are_small_chunks(nbytes, table.num_columns) else self.compression
        # Not the first column: its codec stands for the file in `format_like`.
        noise = {c for c in unique if c != table.column_names[0] and is_noise(table.column(c), self.compression)}
        paths = leaf_paths(table.schema) if noise else []
        return {path: "SNAPPY" if path in noise else self.compression for path in paths} or self.compression


def are_small_chunks(nbytes: int, columns: int) -> bool:
    """Whether ZSTD does not pay for the columns of a row group of ``nbytes`` decoded bytes."""
    return nbytes < columns * _SMALL_CHUNK


def _row_groups(
    batches: Iterable[pa.RecordBatch | pa.Table], schema: pa.Schema, size: int | None
) -> Iterator[pa.Table]:
    """The same rows in tables of ``size`` rows, the last one smaller; the first rows may choose."""
    # Concatenated only once there are enough: every time costs as much as there are chunks.
    waiting: list[pa.Table] = []
    rows, enough = 0, size or DECISIVE_ROWS
    for batch in batches:
        waiting.append(as_table(batch, schema))
        rows += waiting[-1].num_rows
        while rows >= enough:
            table = pa.concat_tables(waiting)
            if size is None:
                waiting, enough = [table], row_group_rows(table)
                size = enough
                continue
            yield table.slice(0, size)
            waiting, rows = [table.slice(size)], rows - size
    if rows:
        yield pa.concat_tables(waiting)


def encode_bare(table: pa.Table) -> pa.Buffer:
    """A ZSTD file of many columns and few rows, without anything that is not needed to read it."""
    sink = pa.BufferOutputStream()
    bare = {"use_dictionary": False, "write_statistics": False, "store_schema": False}
    pq.write_table(table, sink, compression="ZSTD", **bare, **_WRITER)
    return sink.getvalue()


def encode_groups(tables: Iterable[pa.Table], schema: pa.Schema, statistics: Sequence[str]) -> pa.Buffer:
    """A ZSTD file with a row group for each table, one at least.

    The tables have dictionaries where ``schema``, which readers see, has their values. Only some
    columns have ``statistics``.
    """
    remaining = iter(tables)
    first, sink = next(remaining), pa.BufferOutputStream()
    options = {**_WRITER, "compression": "ZSTD", "store_schema": False, "write_statistics": list(statistics)}
    with pq.ParquetWriter(sink, first.schema, **options) as writer:
        for table in chain([first], remaining):
            writer.write_table(table, row_group_size=max(1, table.num_rows))
        # As Arrow stores the schema of what it writes.
        writer.add_key_value_metadata({"ARROW:schema": b64encode(schema.serialize()).decode()})
    return sink.getvalue()
