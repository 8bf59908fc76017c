"""The edge to pandas: frames and other blocks of rows to Arrow tables, and tables to frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from kartothek_cube.core.schema import stored_schema
from kartothek_cube.errors import InvalidInput, InvalidType

__all__ = ["concat_blocks", "is_block", "null_count", "to_frame", "to_table"]


def to_table(data: Any, dataset: str) -> pa.Table:
    """A frame, an Arrow table or anything with ``__arrow_c_stream__`` as a table in stored types.

    Raises
    ------
    InvalidType
        If it is none of these, has sparse columns, columns whose names are no text, or columns of mixed types.
    InvalidInput
        If a column name occurs twice.
    Unsupported
        If the format cannot carry the type of a column.
    """
    if isinstance(data, pd.DataFrame):
        table = _from_frame(data, dataset)
    elif isinstance(data, pa.RecordBatch):
        table = pa.Table.from_batches([data])
    elif isinstance(data, pa.Table):
        table = data
    elif hasattr(data, "__arrow_c_stream__"):
        table = pa.table(data)
    else:
        raise InvalidType(f'Provided DataFrame is not a pandas.DataFrame or None, but is a "{type(data).__name__}" (dataset {dataset!r}).')
    check_names(table.column_names, dataset)
    return _stored(table, dataset)


def is_block(data: Any) -> bool:
    """Whether this is one block of rows, and not a collection of blocks."""
    if isinstance(data, pd.Series):
        raise InvalidType('Provided DataFrame is not a pandas.DataFrame or None, but is a "Series". Call .to_frame() first.')
    return isinstance(data, (pd.DataFrame, pa.Table, pa.RecordBatch)) or hasattr(data, "__arrow_c_stream__")


def concat_blocks(tables: Sequence[pa.Table], dataset: str) -> pa.Table:
    """Several blocks of one dataset as one; column order is that of the first, types widen as far as Arrow finds a common one."""
    first = tables[0]
    if any(set(t.column_names) != set(first.column_names) for t in tables):
        raise InvalidInput(f"Not all DataFrames have the same set of columns! (dataset {dataset!r})")
    try:
        return pa.concat_tables([t.select(first.column_names) for t in tables], promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InvalidInput(f"The blocks of dataset {dataset!r} have incompatible types: {error}") from None


def check_names(names: Sequence[Any], dataset: str) -> None:
    """Refuse names that occur twice."""
    if len(set(names)) != len(names):
        raise InvalidInput(f'Duplicate columns found in dataset "{dataset}": {", ".join(map(str, names))}')


def _from_frame(frame: pd.DataFrame, dataset: str) -> pa.Table:
    if any(isinstance(dtype, pd.SparseDtype) for dtype in frame.dtypes):
        raise InvalidType(f"Sparse data is not supported (dataset {dataset!r}). Call .sparse.to_dense() first.")
    names = [_text_name(c, dataset) for c in frame.columns]
    check_names(names, dataset)
    arrays = [_series(frame.iloc[:, i], name, dataset) for i, name in enumerate(names)]
    return pa.table(arrays, names=names) if arrays else pa.table({})


def _text_name(name: Any, dataset: str) -> str:
    if isinstance(name, bytes):
        return name.decode("utf-8")
    if not isinstance(name, str):
        raise InvalidType(f"Object of type {type(name).__name__} is not a string: {name}. Column names of dataset {dataset!r} must be text.")
    return str(name)


def _series(series: pd.Series, name: str, dataset: str) -> pa.Array | pa.ChunkedArray:
    try:
        return pa.Array.from_pandas(series)
    except (pa.ArrowException, OverflowError, UnicodeError) as error:
        raise InvalidType(f"Column {name!r} of dataset {dataset!r} has no single Arrow type: {error}") from None


def _stored(table: pa.Table, dataset: str) -> pa.Table:
    schema = stored_schema(table.schema, f" of dataset {dataset!r}")
    if table.schema.equals(schema):
        return table.replace_schema_metadata(None)
    columns = [_cast(table.column(f.name), f, dataset) for f in schema]
    return pa.table(columns, schema=schema)


def _cast(column: pa.ChunkedArray, field: pa.Field, dataset: str) -> pa.ChunkedArray:
    if column.type.equals(field.type):
        return column
    try:
        if pt.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        return column.cast(field.type)
    except pa.ArrowInvalid as error:
        raise InvalidInput(f"Column {field.name!r} of dataset {dataset!r} cannot be stored as {field.type}: {error}") from None


def to_frame(table: pa.Table, *, dates_as_object: bool = False, categoricals: Sequence[str] = ()) -> pd.DataFrame:
    """A pandas frame with a fresh row index. Integers with nulls become floats, booleans with nulls objects, as in kartothek."""
    unknown = sorted(set(categoricals) - set(table.column_names))
    if unknown:
        raise InvalidInput(f"Columns to return as categoricals that are not among those to return: {unknown}. There are {table.column_names}.")
    for name in categoricals:
        position = table.column_names.index(name)
        table = table.set_column(position, name, table.column(name).dictionary_encode())
    # Arrow nulls in a float column become NaN; one block a column avoids a second copy of the result.
    frame: pd.DataFrame = table.to_pandas(date_as_object=dates_as_object, split_blocks=True)
    for name, column in zip(table.column_names, table.columns, strict=True):
        if _is_shared(column):
            frame[name] = frame[name].copy()
    return frame if table.num_columns else frame.reindex(range(table.num_rows))


def _is_shared(column: pa.ChunkedArray) -> bool:
    """Whether the frame has Arrow's own buffer, to which nobody can assign."""
    return bool(column.num_chunks == 1 and not column.null_count and pt.is_primitive(column.type))


def null_count(column: pa.ChunkedArray) -> int:
    """Nulls of a column; NaN counts as one, as in pandas."""
    if pt.is_floating(column.type):
        return int(pc.sum(pc.is_null(column, nan_is_null=True).cast(pa.int64())).as_py() or 0)
    return int(column.null_count)
