"""How the writer lays out a Parquet file: rows of a row group, encoding, codec. Pure."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

__all__ = [
    "DECISIVE_ROWS",
    "GROUP_ROWS",
    "is_noise",
    "leaf_paths",
    "may_have_nan",
    "paths_with_statistics",
    "row_group_rows",
    "unique_columns",
]

# Files of fewer rows than the second number are one row group even if they are sorted.
GROUP_ROWS, DECISIVE_ROWS = 1_048_576, 131_072
# The statistics of sorted row groups leave out most of them: of a file of a million rows, one key
# is found 30 times as fast, while reading all of it takes 2 % longer. The footer grows with row
# groups and columns, and should come in one request, so wide files have larger row groups.
_SORTED_ROWS, _FACTORS, _LARGEST = 32_768, {8: 1, 32: 2}, 4
# Rows that are compared to find out whether a column is sorted, and how many of them must differ:
# a column of fewer values tells row groups apart less well.
_PROBES, _DIFFERENT = 256, 16
# Pieces of neighbouring rows in which repeated values are counted. In a smaller row group a
# dictionary costs little.
_PIECES, _PIECE, _MANY_ROWS = 8, 1_024, 16_384
# Numbers of fewer bits repeat in any row group of so many rows.
_LEAST_BITS = 32
# Arrow gives up a dictionary of more values of eight bytes.
_LARGEST_DICTIONARY = 131_072
# Values whose compression is tried, and the share of their bytes that it may leave at most.
_SAMPLE, _LEAST_SAVED = 8_192, 0.9


def row_group_rows(table: pa.Table) -> int:
    """The rows of a row group in a file with these rows, or with these first ``DECISIVE_ROWS``.

    Examples
    --------
    >>> numbers = np.arange(200_000)
    >>> sales = pa.table({"PRODUCT_ID": numbers // 7, "UNITS": numbers % 10})
    >>> row_group_rows(sales), row_group_rows(sales.slice(0, 100_000))
    (32768, 1048576)
    """
    if table.num_rows < DECISIVE_ROWS or not any(map(_seems_sorted, table.columns)):
        return GROUP_ROWS
    return _SORTED_ROWS * next((factor for most, factor in _FACTORS.items() if table.num_columns <= most), _LARGEST)


def _seems_sorted(column: pa.ChunkedArray) -> bool:
    """Whether a sample of the rows ascends. Nothing but speed depends on it."""
    is_text = pa.types.is_string(column.type) or pa.types.is_binary(column.type)
    if not is_text and (not pa.types.is_primitive(column.type) or pa.types.is_boolean(column.type)):
        return False
    places = np.linspace(0, len(column) - 1, _PROBES).astype(np.int64)
    sample = column.take(pa.array(places))
    here, there = sample.slice(0, _PROBES - 1), sample.slice(1)
    rises = pc.sum(pc.less(here, there)).as_py() or 0
    # Comparisons with null are null, and not counted.
    return rises >= _DIFFERENT and not pc.any(pc.greater(here, there)).as_py()


def unique_columns(table: pa.Table, rows: int) -> list[str]:
    """Columns of numbers that hardly repeat in row groups of so many rows.

    Arrow would write dictionaries of these, too: they take more bytes than the numbers, and twice
    the time to write and to read.

    Examples
    --------
    >>> numbers = np.arange(50_000)
    >>> unique_columns(pa.table({"PRODUCT_ID": numbers // 7, "SALES": np.sqrt(numbers)}), 50_000)
    ['SALES']
    """
    rows = min(rows, table.num_rows)
    if rows < _MANY_ROWS:
        return []
    # Of d different numbers, n drawn at random repeat about n * n / 2d times.
    most = min(rows // 4, _LARGEST_DICTIONARY)
    starts = np.linspace(0, rows - _PIECE, _PIECES).astype(np.int64).tolist()
    unique = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_primitive(column.type) and column.type.bit_width >= _LEAST_BITS:
            pieces = [chunk for start in starts for chunk in column.slice(start, _PIECE).chunks]
            distinct = pc.count_distinct(pa.chunked_array(pieces, column.type), mode="all").as_py()
            if _PIECES * _PIECE - distinct < (_PIECES * _PIECE) ** 2 / (2 * most):
                unique.append(name)
    return unique


def is_noise(column: pa.ChunkedArray, codec: str) -> bool:
    """Whether a sample of numbers, as `unique_columns` has them, hardly shrinks by compression."""
    sample = column.slice(0, _SAMPLE).to_numpy().tobytes()
    return len(pa.Codec(codec.lower()).compress(sample, asbytes=True)) > _LEAST_SAVED * len(sample)


def paths_with_statistics(schema: pa.Schema, rows: pa.Table | None = None) -> bool | list[str]:
    """The paths of columns that have statistics in Parquet, as Arrow's writer takes them.

    Statistics leave NaN out, and other readers pass over row groups whose bounds seem to exclude a
    value: where NaN is the greatest number, they lose rows. So columns of floats have statistics
    only if these ``rows``, which are all of the file, have no NaN.

    Examples
    --------
    >>> sales = pa.table({"SALES": [0.5, float("nan")], "UNITS": [1, 2]})
    >>> paths_with_statistics(sales.schema, sales), paths_with_statistics(sales.schema, sales[:1])
    (['UNITS'], True)
    """
    hidden = {
        field.name
        for field in schema
        if may_have_nan(field.type) and (rows is None or _has_nan(rows.column(field.name)))
    }
    if not hidden:
        return True
    owners = np.repeat(np.array(schema.names, dtype=object), [_number_of_leaves(t) for t in schema.types])
    return [path for path, owner in zip(leaf_paths(schema), owners, strict=True) if owner not in hidden]


def may_have_nan(data_type: pa.DataType) -> bool:
    """Whether values of a type, or parts of them, are floats."""
    if pa.types.is_dictionary(data_type):
        return may_have_nan(data_type.value_type)
    if pa.types.is_nested(data_type):
        return any(may_have_nan(data_type.field(i).type) for i in range(data_type.num_fields))
    return bool(pa.types.is_floating(data_type))


def _has_nan(column: pa.ChunkedArray) -> bool:
    """Whether there is NaN; of columns that are no plain floats, whether there may be."""
    if not pa.types.is_floating(column.type) or pa.types.is_float16(column.type):
        return len(column) > column.null_count
    return bool(pc.any(pc.is_nan(column)).as_py())


def _number_of_leaves(data_type: pa.DataType) -> int:
    if not pa.types.is_nested(data_type):
        return 1
    return sum(_number_of_leaves(data_type.field(i).type) for i in range(data_type.num_fields))


def leaf_paths(schema: pa.Schema) -> list[str]:
    """The paths of all columns in a file; a nested column has several.

    Examples
    --------
    >>> leaf_paths(pa.schema([("PRODUCT_ID", pa.int64()), ("LABELS", pa.list_(pa.string()))]))
    ['PRODUCT_ID', 'LABELS.list.item']
    """
    if not any(map(pa.types.is_nested, schema.types)):
        return list(schema.names)
    sink = pa.BufferOutputStream()  # only a file tells
    with pq.ParquetWriter(sink, schema.remove_metadata(), use_compliant_nested_type=False):
        pass
    leaves = pq.read_metadata(pa.BufferReader(sink.getvalue())).schema
    return [leaves.column(j).path for j in range(len(leaves))]
