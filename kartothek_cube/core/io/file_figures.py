"""Figures of a data file from its footer, and the format of a file that takes its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, TypeAlias

from kartothek_cube.core.io.clustered_files import UNKNOWN, ClusterMark, SortRange, mark_of, sort_range
from kartothek_cube.core.io.csv import CsvFormat
from kartothek_cube.core.io.file_format import DATA_SUFFIX, FileFormat
from kartothek_cube.core.io.parquet_format import CODECS, AdaptiveParquetFormat, ParquetFormat, are_small_chunks
from kartothek_cube.core.io.parquet_source import column_bounds, first_codec, open_file, unpacked_bytes
from kartothek_cube.core.io.reader import file_rows
from kartothek_cube.core.stores.contract import Store

__all__ = ["FileBounds", "FileFigures", "file_figures", "format_like", "grouped_like"]

FileBounds: TypeAlias = tuple[tuple[Any, Any] | None, ...]
"""Minimum and maximum of some columns of a file; None where they are unknown."""

# Compressed CSV takes a multiple of its size in memory.
_TEXT_FACTOR = 8


@dataclass(frozen=True, slots=True)
class FileFigures:
    """Figures of a file from its footer.

    Attributes
    ----------
    rows, size : int
        Its rows and bytes.
    unpacked : int
        Estimated bytes of its rows in memory.
    codec : str | None
        The codec of its first column chunk.
    group_rows : int | None
        Rows of its first row group, if it has several.
    bounds : FileBounds
        Those of the columns that were asked for.
    mark : ClusterMark | None
        What its footer says about the order of its rows, if ``sorted_by`` asked for it.
    range : SortRange
        The bounds of ``sorted_by``.
    """

    rows: int
    size: int
    unpacked: int
    codec: str | None = None
    group_rows: int | None = None
    bounds: FileBounds = ()
    mark: ClusterMark | None = None
    range: SortRange = UNKNOWN


def file_figures(
    store: Store, uuid: str, key: str, dimensions: Sequence[str] = (), sorted_by: str | None = None
) -> FileFigures:
    """Read the footer of a file of a dataset, with bounds of some columns; of CSV all rows.

    ``sorted_by`` asks for the mark of a clustered file, and for the range of a column.
    """
    if not key.endswith(DATA_SUFFIX):
        size = store.tail(key, 0)[1]
        return FileFigures(file_rows(store, key, uuid), size, _TEXT_FACTOR * size, bounds=(None,) * len(dimensions))
    with open_file(store, key, uuid) as source:
        metadata = source.metadata
        groups = range(metadata.num_row_groups)
        chunks = list(chain.from_iterable(source.chunks(groups, set(source.schema.names))))
        # 12 bytes: the magic numbers at both ends and the length of the footer.
        size = sum(c.total_compressed_size for c in chunks) + metadata.serialized_size + 12
        group_rows = source.rows([0]) if len(groups) > 1 else None
        bounds = tuple(column_bounds(source, name) for name in dimensions)
        mark, ends = (None, UNKNOWN) if sorted_by is None else (mark_of(source), sort_range(source, sorted_by))
        codec = first_codec(source)
        return FileFigures(metadata.num_rows, size, unpacked_bytes(chunks), codec, group_rows, bounds, mark, ends)


def format_like(keys: Sequence[str], figures: Sequence[FileFigures], columns: int, *, adaptive: bool) -> FileFormat:
    """The format of a file of ``columns`` columns that takes the place of some files.

    In Parquet the codec of the newest of them. ``adaptive``: they belong to a cube, whose format
    chooses the codec by size.
    """
    # CSV cannot hold all types, so one Parquet file among the inputs decides for Parquet.
    if not any(key.endswith(DATA_SUFFIX) for key in keys):
        return CsvFormat(compress=keys[-1].endswith(".gz"))
    newest = next((f for f in reversed(figures) if f.codec is not None), figures[-1])
    codec = (newest.codec or "SNAPPY").replace("UNCOMPRESSED", "NONE")
    if codec == "SNAPPY" and adaptive and are_small_chunks(newest.unpacked, columns):
        # The codec of a small file says nothing.
        return AdaptiveParquetFormat()
    return ParquetFormat(codec if codec in CODECS else "SNAPPY")


def grouped_like(file_format: FileFormat, figures: FileFigures) -> FileFormat:
    """The format with row groups of as many rows as the file has."""
    if figures.group_rows is None or not isinstance(file_format, ParquetFormat):
        return file_format
    return replace(file_format, chunk_size=figures.group_rows)
