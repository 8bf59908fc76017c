"""Conversion of frames and other blocks of rows to Arrow tables, and of tables to frames."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from kartothek_cube.core.arguments import column_name
from kartothek_cube.core.arrow.types import stored_schema
from kartothek_cube.errors import InvalidInput, InvalidType, Unsupported

if TYPE_CHECKING:
    import pandas as pd


def is_frame(data: object) -> bool:
    """Whether this is a pandas frame."""
    return _is_of_pandas(data, "DataFrame")


def is_series(data: object) -> bool:
    """Whether this is a pandas series."""
    return _is_of_pandas(data, "Series")


def _is_of_pandas(data: object, class_name: str) -> bool:
    # Never imports pandas: a caller with a frame has imported it.
    return isinstance(data, getattr(sys.modules.get("pandas"), class_name, ()))


def to_table(data: Any, dataset: str) -> pa.Table:
    """A frame, an Arrow table or anything with ``__arrow_c_stream__`` as a table in stored types.

    Raises
    ------
    InvalidType
        If it is none of these, or has sparse columns, names that are no text, or columns of mixed
        types.
    InvalidInput
        If a column name occurs twice.
    Unsupported
        If the format cannot carry the type of a column.
    """
    if is_frame(data):
        table = _from_frame(data, dataset)
    elif isinstance(data, pa.RecordBatch):
        table = pa.Table.from_batches([data])
    elif isinstance(data, pa.Table):
        table = data
    elif hasattr(data, "__arrow_c_stream__"):
        try:
            table = pa.table(data)
        except pa.ArrowInvalid as error:  # a stream of single values, or a type of another library
            raise no_frame(data, dataset, error) from None
    else:
        raise no_frame(data, dataset)
    check_names(table.column_names, dataset)
    schema = stored_schema(table.schema, f" of dataset {dataset!r}")
    if table.schema.equals(schema):
        return table.replace_schema_metadata(None)
    columns = [_cast(table.column(field.name), field, dataset) for field in schema]
    return pa.table(columns, schema=schema)


def no_frame(data: object, dataset: str, reason: object = None) -> InvalidType:
    """The error for data that are no block of rows."""
    end = "." if reason is None else f": {reason}"
    return InvalidType(
        "Provided DataFrame is not a pandas.DataFrame or None, "
        f'but is a "{type(data).__name__}" (dataset {dataset!r}){end}'
    )


def is_block(data: object) -> bool:
    """Whether this is one block of rows, and not a collection of blocks."""
    if is_series(data):
        raise InvalidType(
            'Provided DataFrame is not a pandas.DataFrame or None, but is a "Series". Call .to_frame() first.'
        )
    return is_frame(data) or isinstance(data, (pa.Table, pa.RecordBatch)) or hasattr(data, "__arrow_c_stream__")


def concat_blocks(tables: Sequence[pa.Table], dataset: str) -> pa.Table:
    """Several blocks of one dataset as one table, with the column order of the first.

    Types widen to a common type, if Arrow has one.
    """
    first = tables[0]
    if any(set(t.column_names) != set(first.column_names) for t in tables):
        raise InvalidInput(f"Not all DataFrames have the same set of columns! (dataset {dataset!r})")
    try:
        return pa.concat_tables([t.select(first.column_names) for t in tables], promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InvalidInput(f"The blocks of dataset {dataset!r} have incompatible types: {error}") from None


def check_names(names: Sequence[Any], dataset: str) -> None:
    """Raise for names that occur twice."""
    if len(set(names)) != len(names):
        raise InvalidInput(f'Duplicate columns found in dataset "{dataset}": {", ".join(map(str, names))}')


def _from_frame(frame: pd.DataFrame, dataset: str) -> pa.Table:
    import pandas as pd

    for name, dtype in zip(frame.columns, frame.dtypes, strict=True):
        if isinstance(dtype, pd.SparseDtype):
            raise InvalidType(
                f"Sparse data is not supported: column {name!r} of dataset {dataset!r}. Call .sparse.to_dense() first."
            )
    labels: list[Any] = list(frame.columns)
    names: list[str] = []
    for label in labels:
        if not isinstance(label, (str, bytes)):
            raise InvalidType(
                f"Object of type {type(label).__name__} is not a string: {label}. "
                f"Column names of dataset {dataset!r} must be text."
            )
        names.append(label.decode("utf-8") if isinstance(label, bytes) else str(label))
    check_names(names, dataset)
    arrays = [_series(series, name, dataset) for name, (_, series) in zip(names, frame.items(), strict=True)]
    return pa.table(arrays, names=names) if arrays else pa.table({})


def plain_frame(frame: pd.DataFrame, dataset: str) -> pd.DataFrame:
    """The frame with text as column names, as kartothek's datasets stored it.

    Raises
    ------
    Unsupported
        If its rows have several labels.
    """
    if frame.index.nlevels > 1:
        raise Unsupported(
            f"Treatment of MultiIndex not implemented: call reset_index() on the frame for dataset {dataset!r}; "
            "row labels are not stored."
        )
    given: list[Any] = list(frame.columns)
    names = [column_name(name) for name in given]
    return frame if names == given else frame.set_axis(names, axis=1)


def arrow_array(values: Any) -> pa.Array | pa.ChunkedArray:
    """What Arrow makes of a series or another array of pandas, or of anything like an array.

    Categories that are moments with a zone become plain values.
    """
    # Arrow would take `.values` of moments with a zone, which pandas 3.1 deprecates.
    dtype = getattr(values, "dtype", None)
    if getattr(getattr(dtype, "categories", None), "tz", None) is not None:
        dtype = values.dtype.categories.dtype
        values = values.astype(dtype)
    if getattr(dtype, "tz", None) is not None:
        unit, zone = values.dtype.unit, values.dtype.tz
        return pa.array(np.asarray(values, f"datetime64[{unit}]"), pa.timestamp(unit, zone))
    return pa.Array.from_pandas(values)


def _series(series: pd.Series, name: str, dataset: str) -> pa.Array | pa.ChunkedArray:
    import pandas as pd

    if isinstance(series.dtype, pd.CategoricalDtype) and not len(series.dtype.categories):
        return pa.nulls(len(series))  # pandas gives an empty list of categories the type float64
    try:
        array = arrow_array(series)
    except (pa.ArrowException, TypeError, OverflowError, UnicodeError) as error:
        raise InvalidType(f"Column {name!r} of dataset {dataset!r} has no single Arrow type: {error}") from None
    # Arrow converts mixed values instead of refusing them: datetimes to dates, text to bytes.
    converted = _CONVERTED.get(array.type) if series.dtype == object else None
    classes = set(map(type, series.array)) - {type(pd.NaT)} if converted else ()
    if converted is not None and any(issubclass(cls, converted) for cls in classes):
        raise InvalidType(
            f"Column {name!r} of dataset {dataset!r} has no single Arrow type: "
            f"some values are {converted.__name__}, others not."
        )
    return array


_CONVERTED: dict[pa.DataType, type] = {pa.date32(): dt.datetime, pa.binary(): str}


def _cast(column: pa.ChunkedArray, field: pa.Field, dataset: str) -> pa.ChunkedArray:
    """The column in its stored type; dictionaries become their values."""
    if column.type.equals(field.type):
        return column
    try:
        if not pt.is_dictionary(column.type):
            return column.cast(field.type)
        values = column.type.value_type
        if not (pt.is_string_view(values) or pt.is_binary_view(values)):
            return column.cast(values).cast(field.type)
        # Polars has views as dictionary values, which Arrow can take only as plain text.
        chunks = [chunk.dictionary.cast(field.type).take(chunk.indices) for chunk in column.chunks]
        return pa.chunked_array(chunks, field.type)
    except pa.ArrowNotImplementedError as error:
        raise Unsupported(
            f"Column {field.name!r} of dataset {dataset!r} is {column.type}, "
            f"which Arrow cannot turn into {field.type}: {error}"
        ) from None
    except pa.ArrowInvalid as error:
        raise InvalidInput(
            f"Column {field.name!r} of dataset {dataset!r} cannot be stored as {field.type}: {error}"
        ) from None


_NULLABLE = {
    pa.int8(): "Int8",
    pa.int16(): "Int16",
    pa.int32(): "Int32",
    pa.int64(): "Int64",
    pa.uint8(): "UInt8",
    pa.uint16(): "UInt16",
    pa.uint32(): "UInt32",
    pa.uint64(): "UInt64",
    pa.bool_(): "boolean",
}


def to_frame(table: pa.Table, *, dates_as_object: bool = False, nullable: bool = False) -> pd.DataFrame:
    """A pandas frame with a default row index; dictionaries become categoricals.

    Integers with nulls become floats, and booleans with nulls objects, as in kartothek's cubes.
    With ``nullable`` such columns have pandas' nullable types (``Int64``, ``boolean``, ...).
    """
    exact = [f.name for f in table.schema if nullable and f.type in _NULLABLE and table.column(f.name).null_count]
    if not exact:
        return _plain_frame(table, dates_as_object)
    import pandas as pd

    plain = _plain_frame(table.drop_columns(exact), dates_as_object)
    typed = table.select(exact).to_pandas(
        types_mapper=lambda data_type: pd.api.types.pandas_dtype(_NULLABLE[data_type])
    )
    columns = {name: typed[name] if name in typed else plain[name] for name in table.column_names}
    return pd.DataFrame(columns, copy=False)


def _plain_frame(table: pa.Table, dates_as_object: bool) -> pd.DataFrame:
    # One block per column saves a second copy of the result.
    frame: pd.DataFrame = table.to_pandas(date_as_object=dates_as_object, split_blocks=True)
    for name, column in zip(table.column_names, table.columns, strict=True):
        # Such a column shares Arrow's buffer, which is read-only: values could not be assigned.
        if column.num_chunks == 1 and not column.null_count and pt.is_primitive(column.type):
            frame[name] = frame[name].copy()
    return frame if table.num_columns else frame.reindex(range(table.num_rows))


def encoded(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """The table with these columns as dictionaries: one for all chunks, without null or NaN."""
    for name in columns:
        column = table.column(name)
        if pt.is_null(column.type):
            column = column.cast(pa.string())
        elif pt.is_floating(column.type):
            # For pandas NaN is no category, and -0.0 and 0.0 are the same one.
            null, zero = pa.scalar(None, column.type), pa.scalar(0.0, column.type)
            column = pc.if_else(pc.is_nan(column), null, pc.add(column, zero))
        codes = _one_array(column.dictionary_encode())
        table = table.set_column(table.column_names.index(name), name, codes)
    return table


def _one_array(column: pa.ChunkedArray) -> pa.DictionaryArray:
    if not column.num_chunks:  # Arrow cannot make an empty array of every dictionary type
        indices, values = pa.array([], type=column.type.index_type), pa.array([], type=column.type.value_type)
        return pa.DictionaryArray.from_arrays(indices, values)
    combined = cast("pa.DictionaryArray | pa.ChunkedArray", column.combine_chunks())
    return cast("pa.DictionaryArray", combined.chunk(0)) if isinstance(combined, pa.ChunkedArray) else combined


def concat_encoded(tables: Sequence[pa.Table], columns: Sequence[str]) -> pa.Table:
    """Several results of `encoded` as one table.

    As in kartothek, the categories of the largest table come first, then all others in order.
    """
    united = list(tables)
    for name in columns:
        arrays = [_one_array(table.column(name)) for table in tables]
        largest = max(arrays, key=len).dictionary
        others = pc.unique(pa.chunked_array([array.dictionary for array in arrays])).drop_null()
        rest = others.filter(pc.invert(pc.is_in(others, value_set=largest)))
        values = pa.concat_arrays([largest, rest.take(pc.array_sort_indices(rest))])
        for i, array in enumerate(arrays):
            codes = pc.index_in(array.dictionary, value_set=values).take(array.indices)
            position = united[i].column_names.index(name)
            united[i] = united[i].set_column(position, name, pa.DictionaryArray.from_arrays(codes, values))
    return pa.concat_tables(united)


def null_count(column: pa.ChunkedArray) -> int:
    """The number of nulls of a column; NaN is null, as in pandas."""
    if pt.is_floating(column.type):
        return int(pc.sum(pc.is_null(column, nan_is_null=True).cast(pa.int64())).as_py() or 0)
    return int(column.null_count)
