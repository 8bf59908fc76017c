"""Key columns that two files store in the same bytes: equal values, which are decoded once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from kartothek_cube.core.io.parquet import (
    FoundRows,
    ParquetSource,
    chunk_spans,
    open_file,
    read_found,
    read_matching,
    with_runtime_filter,
)
from kartothek_cube.core.io.reader import FileRequest, with_constants
from kartothek_cube.core.runtime.options import uses_fast_paths
from kartothek_cube.core.runtime.telemetry import record
from kartothek_cube.core.stores.contract import Span, Store

__all__ = ["EncodedColumns", "read_rest", "read_with"]

# Decoding fewer rows takes less time than comparing their bytes.
_FEW_ROWS = 16_384
# Early files of another writer have column chunks that are longer than their footer says.
_WRITER = "parquet-cpp"


@dataclass(frozen=True, slots=True)
class EncodedColumns:
    """Columns as a file stores them.

    Attributes
    ----------
    columns : tuple[str, ...]
        Their names.
    rows : list[int]
        The rows of each row group.
    layout : tuple[Any, ...]
        All else that says how the bytes are decoded.
    chunks : list[bytes]
        The bytes of the column chunks, row group by row group.
    found : FoundRows
        The rows that were read.
    """

    columns: tuple[str, ...]
    rows: list[int]
    layout: tuple[Any, ...]
    chunks: list[bytes]
    found: FoundRows


def read_with(
    store: Store, key: str, request: FileRequest, constants: Mapping[str, Any], columns: Sequence[str]
) -> tuple[pa.Table, EncodedColumns | None]:
    """All rows of a Parquet file, and some of its columns as they are stored.

    None instead of the columns where these are of no use to `read_rest`. Rows that fail the runtime
    filter may be left out.
    """
    with open_file(store, key, request.dataset) as source:
        table, found = _read(source, key, request, constants)
        # The bytes of row groups in which no row was found are not read only to be compared.
        is_useful = 2 * len(found.groups) > source.metadata.num_row_groups and constants.keys().isdisjoint(columns)
        return table, _encoded(source, tuple(columns), found) if is_useful and uses_fast_paths() else None


def read_rest(
    store: Store, key: str, request: FileRequest, constants: Mapping[str, Any], encoded: EncodedColumns
) -> tuple[pa.Table, bool]:
    """The rows of a Parquet file, and whether it stores the encoded columns in the same bytes.

    If so, these are the rows that were read of the other file, without the encoded columns, of
    which they have the same values; else those of `read_with`.
    """
    with open_file(store, key, request.dataset) as source:
        if not (constants.keys().isdisjoint(encoded.columns) and _has_same_bytes(source, encoded)):
            return _read(source, key, request, constants)[0], False
        columns, found = [c for c in request.columns if c not in encoded.columns], encoded.found
        table = read_found(source, key, [c for c in columns if c not in constants], request.schema, found)
        record(rows_read=found.rows)
        return with_constants(table, found.rows, columns, constants, request.schema), True


def _read(
    source: ParquetSource, key: str, request: FileRequest, constants: Mapping[str, Any]
) -> tuple[pa.Table, FoundRows]:
    inside = [c for c in request.columns if c not in constants]
    useful = tuple(c for c in request.runtime_filter if c.column not in constants)
    table, found = read_matching(source, key, inside, request.schema, with_runtime_filter(source, None, useful))
    record(rows_read=found.rows)
    return with_constants(table, found.rows, request.columns, constants, request.schema), found


def _encoded(source: ParquetSource, columns: tuple[str, ...], found: FoundRows) -> EncodedColumns | None:
    rows, positions = _rows(source), _positions(source, columns)
    if positions is None or sum(rows) < _FEW_ROWS:
        return None
    try:
        source.check_chunks(range(len(rows)), columns)
    except (pa.ArrowException, OSError):
        return None
    layout, spans = _layout(source, columns, positions)
    if min(layout[-1])[0] < 0:  # a dictionary behind its data: Arrow assumes another start
        return None
    return EncodedColumns(columns, rows, layout, [source.packed(span) for span in spans], found)


def _has_same_bytes(source: ParquetSource, encoded: EncodedColumns) -> bool:
    rows, positions = _rows(source), _positions(source, encoded.columns)
    if rows != encoded.rows or positions is None:
        return False
    try:
        source.check_chunks(range(len(rows)), encoded.columns)
        layout, spans = _layout(source, encoded.columns, positions)
        return layout == encoded.layout and all(
            source.packed(span) == chunk for span, chunk in zip(spans, encoded.chunks, strict=True)
        )
    except (pa.ArrowException, OSError):  # a damaged column: reading it raises the error that users see
        return False


def _rows(source: ParquetSource) -> list[int]:
    return [source.rows([g]) for g in range(source.metadata.num_row_groups)]


def _positions(source: ParquetSource, columns: Sequence[str]) -> list[int] | None:
    """Positions of the columns in a row group; None if their bytes cannot be compared."""
    positions = [source.positions.get(c, range(0)) for c in columns]
    is_plain = source.is_near and _writer(source).startswith(_WRITER) and all(len(p) == 1 for p in positions)
    return [position for (position,) in positions] if is_plain else None


def _writer(source: ParquetSource) -> str:
    """The program that wrote the file, without its version."""
    # It matters: Arrow reads compressed pages of old writers in another way.
    try:
        return str(source.metadata.created_by).partition(" ")[0]
    except UnicodeDecodeError:
        return ""


def _layout(
    source: ParquetSource, columns: Sequence[str], positions: Sequence[int]
) -> tuple[tuple[Any, ...], list[Span]]:
    """How columns are encoded, and the spans of their chunks, row group by row group."""
    groups = map(source.metadata.row_group, range(source.metadata.num_row_groups))
    chunks = [group.column(position) for group in groups for position in positions]
    spans = list(chunk_spans(chunks))
    types = [source.schema.field(c).type for c in columns]
    descriptions = [
        (
            *(column.path, column.physical_type, column.length, str(column.logical_type), column.converted_type),
            *(column.max_definition_level, column.max_repetition_level),
        )
        for column in map(source.metadata.schema.column, positions)
    ]
    # Not the codec: Arrow ends the process at one that it does not know. Another codec makes other
    # bytes of values of these sizes anyway. Offsets are relative, since the files differ elsewhere.
    shapes = [
        (
            *(chunk.data_page_offset - start, chunk.num_values),
            *(chunk.total_compressed_size, chunk.total_uncompressed_size),
            *(chunk.has_dictionary_page, chunk.physical_type, chunk.encodings),
        )
        for chunk, (start, _) in zip(chunks, spans, strict=True)
    ]
    return (_writer(source), types, descriptions, shapes), spans
