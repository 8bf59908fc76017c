"""Reading files that lie beside each other: columns that both hold in the same bytes have the same values, and are decoded once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kartothek_cube.core.files import FileRequest, with_constants
from kartothek_cube.core.footer import chunk_spans, column_chunks
from kartothek_cube.core.parquet import read_source
from kartothek_cube.core.parquet_file import ParquetSource, open_file
from kartothek_cube.core.store import Span, Store
from kartothek_cube.core.telemetry import record

__all__ = ["EncodedColumns", "read_rest", "read_with"]

# Decoding fewer rows takes less time than looking at how they are encoded.
_FEW_ROWS = 16_384
# Early files of another writer have column chunks that are longer than they say.
_WRITER = "parquet-cpp"


@dataclass(frozen=True, slots=True)
class EncodedColumns:
    """Columns as they lie in a file: the rows of each row group, what else says how bytes are decoded, and the bytes of the column chunks."""

    columns: tuple[str, ...]
    rows: list[int]
    layout: tuple[Any, ...]
    chunks: list[bytes]


def read_with(store: Store, key: str, request: FileRequest, constants: Mapping[str, Any], columns: Sequence[str]) -> tuple[pa.Table, EncodedColumns | None]:
    """All rows of a Parquet file, and how some of the columns lie in it; None where these are no help to `read_rest`."""
    with open_file(store, key, request.dataset) as source:
        table = _read(source, key, request, request.columns, constants)
        return table, _encoded(source, tuple(columns)) if constants.keys().isdisjoint(columns) else None


def read_rest(store: Store, key: str, request: FileRequest, constants: Mapping[str, Any], known: EncodedColumns) -> tuple[pa.Table, bool]:
    """All rows of a Parquet file, without the known columns where these have the same values in it row by row; and whether they have."""
    with open_file(store, key, request.dataset) as source:
        alike = constants.keys().isdisjoint(known.columns) and _holds(source, known)
        columns = [c for c in request.columns if c not in known.columns] if alike else request.columns
        return _read(source, key, request, columns, constants), alike


def _read(source: ParquetSource, key: str, request: FileRequest, columns: Sequence[str], constants: Mapping[str, Any]) -> pa.Table:
    table, rows = read_source(source, key, [c for c in columns if c not in constants], request.schema, None)
    record(rows_read=rows)
    return with_constants(table, rows, columns, constants, request.schema)


def _encoded(source: ParquetSource, columns: tuple[str, ...]) -> EncodedColumns | None:
    """How columns lie in a file. They have been read of it, so that their chunks are sound."""
    rows, places = _rows(source), _places(source, columns)
    if places is None or sum(rows) < _FEW_ROWS:
        return None
    groups = [[source.metadata.row_group(g).column(place) for place in places] for g in range(len(rows))]
    layout, spans = _layout(source, columns, places, groups)
    if min(layout[-1])[0] < 0:  # a dictionary behind its data: Arrow takes another start
        return None
    return EncodedColumns(columns, rows, layout, [source.packed(span) for span in spans])


def _holds(source: ParquetSource, known: EncodedColumns) -> bool:
    """Whether the known columns lie in a file in the same way. Where one of them is damaged they do not: reading it says what is wrong."""
    rows, places = _rows(source), _places(source, known.columns)
    if rows != known.rows or places is None:
        return False
    try:
        return _is_alike(source, known, places, range(len(rows)))
    except (pa.ArrowException, OSError):
        return False


def _is_alike(source: ParquetSource, known: EncodedColumns, places: Sequence[int], groups: Sequence[int]) -> bool:
    layout, spans = _layout(source, known.columns, places, column_chunks(source.metadata, source.size, groups, places))
    return layout == known.layout and all(source.packed(span) == chunk for span, chunk in zip(spans, known.chunks, strict=True))


def _rows(source: ParquetSource) -> list[int]:
    return [source.rows([g]) for g in range(source.metadata.num_row_groups)]


def _places(source: ParquetSource, columns: Sequence[str]) -> list[int] | None:
    """Where the columns are in a row group; None for columns whose bytes are not at hand or do not say it all."""
    places = [source.positions.get(c, range(0)) for c in columns]
    is_plain = source.is_near and _writer(source).startswith(_WRITER) and all(len(own) == 1 for own in places)
    return [place for (place,) in places] if is_plain else None


def _writer(source: ParquetSource) -> str:
    """What has written the file, without the version: Arrow reads compressed pages of old writers otherwise."""
    try:
        return str(source.metadata.created_by).partition(" ")[0]
    except UnicodeDecodeError:
        return ""


def _layout(source: ParquetSource, columns: Sequence[str], places: Sequence[int], groups: Sequence[Sequence[Any]]) -> tuple[tuple[Any, ...], list[Span]]:
    """How columns are encoded, and where their chunks are, row group by row group."""
    chunks = [chunk for group in groups for chunk in group]
    spans = list(chunk_spans(chunks))
    types, kinds = [source.schema.field(c).type for c in columns], [_kind(source.metadata.schema.column(place)) for place in places]
    return (_writer(source), types, kinds, [_shape(chunk, start) for chunk, (start, _) in zip(chunks, spans, strict=True)]), spans


def _kind(column: Any) -> tuple[Any, ...]:
    """What the schema of a file says of a column."""
    levels = column.max_definition_level, column.max_repetition_level
    return column.path, column.physical_type, column.length, str(column.logical_type), column.converted_type, *levels


def _shape(chunk: pq.ColumnChunkMetaData, start: int) -> tuple[Any, ...]:
    """What the footer says of a column chunk, with places counted from its start.

    It is not asked for the codec: Arrow ends the process for one that it does not know, and what another codec makes of values of this size are other bytes.
    """
    sizes = chunk.num_values, chunk.total_compressed_size, chunk.total_uncompressed_size
    return chunk.data_page_offset - start, *sizes, chunk.has_dictionary_page, chunk.physical_type, chunk.encodings
