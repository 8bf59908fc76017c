"""Clustered Parquet files: the footer says by which columns the rows are sorted or in Z-order."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from kartothek_cube.core.io.file_format import FileFormat
from kartothek_cube.core.io.parquet_format import ParquetFormat
from kartothek_cube.core.io.parquet_source import ParquetSource, column_statistics

__all__ = ["UNKNOWN", "ClusterMark", "ClusteredFormat", "Clustering", "SortRange", "mark_of", "sort_range"]

SortRange: TypeAlias = tuple[tuple[Any, ...], tuple[Any, ...]]
"""Bounds of a column in sort order: ``(0, value)``, or an end that is beyond all values."""

_FIRST: tuple[Any, ...] = (-1,)
_NAN: tuple[Any, ...] = (1,)
_LAST: tuple[Any, ...] = (2,)
UNKNOWN: SortRange = (_FIRST, _LAST)
"""The range of a file about which nothing is known."""

_KEY = b"kartothek_cube.clustering"
# A condition on the column reads whole row groups: in these, 100 rows cost little more than one.
_GROUP_ROWS = 131_072


@dataclass(frozen=True, slots=True)
class Clustering:
    """The order of rows that a compaction is asked for.

    Attributes
    ----------
    columns : tuple of str
        Columns inside the files.
    is_zorder : bool
        Whether the rows are in the Z-order of the columns, and not sorted by them.

    Examples
    --------
    >>> print(Clustering(("SALES_DATE", "PRODUCT_ID")))
    sorted by SALES_DATE, PRODUCT_ID
    """

    columns: tuple[str, ...]
    is_zorder: bool = False

    @property
    def argument(self) -> str:
        """The argument that asks for it."""
        return "zorder_by" if self.is_zorder else "sort_by"

    def __str__(self) -> str:
        return f"{'in Z-order of' if self.is_zorder else 'sorted by'} {', '.join(self.columns)}"


@dataclass(frozen=True, slots=True)
class ClusterMark:
    """What the footer of a clustered file says.

    Attributes
    ----------
    clustering : Clustering
        The order of its rows.
    id : str
        That of the merge: files of one merge do not overlap each other.
    rows : int
        The number of rows. A program that copies key-value metadata to other rows copies the mark,
        too, which then says nothing.
    has_nan : bool
        Whether the first column may have NaN, which the footer does not tell.
    """

    clustering: Clustering
    id: str
    rows: int
    has_nan: bool = True

    def serves(self, wanted: Clustering) -> bool:
        """Whether the rows of the file are in the wanted order."""
        mine, asked = self.clustering.columns, wanted.columns
        if self.clustering.is_zorder or wanted.is_zorder:
            return self.clustering == wanted
        return mine[: len(asked)] == asked

    def metadata(self) -> dict[bytes, bytes]:
        """The key-value metadata of a file."""
        content = {
            self.clustering.argument: self.clustering.columns,
            "id": self.id,
            "rows": self.rows,
            "nan": self.has_nan,
        }
        return {_KEY: json.dumps(content, ensure_ascii=False).encode()}


@dataclass(frozen=True, slots=True)
class ClusteredFormat(FileFormat):
    """Parquet files with a mark about the order of their rows, which the caller has made.

    ``like`` decides codec and row groups; without a size these have 131,072 rows. It may be another
    format, which cannot say how rows are ordered: then files are Parquet.
    """

    like: FileFormat
    clustering: Clustering
    id: str

    @property
    def parquet(self) -> ParquetFormat:
        """The format of the bytes."""
        like = self.like if isinstance(self.like, ParquetFormat) else ParquetFormat()
        return replace(like, chunk_size=like.chunk_size or _GROUP_ROWS)

    @property
    def file_suffix(self) -> str:
        return self.parquet.file_suffix

    def encode(self, table: pa.Table) -> pa.Buffer:
        # Parquet counts the parts of nested columns, whose names are ambiguous.
        is_plain = not (self.clustering.is_zorder or any(map(pt.is_nested, table.schema.types)))
        first = table.column(self.clustering.columns[0])
        has_nan = pt.is_floating(first.type) and bool(pc.any(pc.is_nan(first)).as_py())
        mark = ClusterMark(self.clustering, self.id, table.num_rows, has_nan)
        return self.parquet.encode_noted(table, mark.metadata(), self.clustering.columns if is_plain else ())

    def write_stream(self, batches: Iterable[pa.RecordBatch | pa.Table], schema: pa.Schema, sink: object) -> int:
        # Without a mark, which has the number of rows and comes first.
        return self.parquet.write_stream(batches, schema, sink)


def mark_of(source: ParquetSource) -> ClusterMark | None:
    """The mark of a file; None if it has none, or one of other rows."""
    found = (source.metadata.metadata or {}).get(_KEY)
    try:
        content = None if found is None else json.loads(found)
    except ValueError:
        return None
    if not isinstance(content, dict) or content.get("rows") != source.metadata.num_rows:
        return None
    is_zorder = "zorder_by" in content
    columns = content.get("zorder_by" if is_zorder else "sort_by")
    if not isinstance(columns, list):
        return None
    clustering = Clustering(tuple(map(str, columns)), is_zorder)
    return ClusterMark(clustering, str(content.get("id")), content["rows"], content.get("nan") is not False)


def _range_of(floats: pa.ChunkedArray) -> SortRange:
    """The bounds of numbers whose statistics are not in the footer, since there is NaN."""
    ends = pc.min_max(floats.filter(pc.invert(pc.is_nan(floats))))
    low, high = ends["min"].as_py(), ends["max"].as_py()
    has_nan = pc.any(pc.is_nan(floats)).as_py()
    last = _LAST if floats.null_count or len(floats) == 0 else _NAN if has_nan else (0, high)
    return ((0, low) if low is not None else _NAN if has_nan else _LAST), last


def sort_range(source: ParquetSource, column: str) -> SortRange:
    """The bounds of a column in a file, in the order of a clustering: null last, before it NaN."""
    if column not in source.positions:
        return _LAST, _LAST
    data_type = source.schema.field(column).type
    descriptor = source.metadata.schema.column(source.positions[column][0])
    if descriptor.path != column:  # nested: these are the statistics of its parts
        return UNKNOWN
    groups = range(source.metadata.num_row_groups)
    chunks = list(chain.from_iterable(source.chunks(groups, {column})))
    mark, ranges = mark_of(source), list[SortRange]()
    is_told = mark is not None and not mark.has_nan and mark.clustering.columns[0] == column
    has_nan = pt.is_floating(data_type) and not is_told
    for group, chunk in zip(groups, chunks, strict=True):
        low, high, nullable = column_statistics(chunk, descriptor)
        stats = chunk.statistics
        if low is not None and high is not None:
            # Statistics leave out NaN.
            ranges.append(((0, low), _LAST if nullable else _NAN if has_nan else (0, high)))
        elif stats is not None and stats.has_null_count and stats.null_count == chunk.num_values:
            ranges.append((_LAST, _LAST))
        elif pt.is_floating(data_type):
            ranges.append(_range_of(source.read([group], [column]).column(column)))
        else:
            return UNKNOWN
    try:
        return min((low for low, _ in ranges), default=_LAST), max((high for _, high in ranges), default=_LAST)
    except TypeError:
        return UNKNOWN
