"""kartothek's serializers and functions on predicates.

In order:

- predicates: check, select by column, filter frames and arrays
- one frame to one file, and back
"""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from msgspec.structs import replace

from kartothek_cube.core.arguments import column_name
from kartothek_cube.core.arrow.pandas import arrow_array, encoded, is_series, to_frame, to_table
from kartothek_cube.core.arrow.types import stored_schema, stored_type
from kartothek_cube.core.expressions.literals import WrongOperand, check_literals, is_own_kind
from kartothek_cube.core.expressions.predicates import (
    Clause,
    Mask,
    Predicates,
    check_constants,
    columns_of,
    constants_of,
    disjunction,
    filter_table,
    is_null,
    matching_values,
    parse_predicates,
)
from kartothek_cube.core.io.csv import SEPARATOR, CsvFormat, csv_content
from kartothek_cube.core.io.formats import FileFormat, ParquetFormat
from kartothek_cube.core.io.parquet import ParquetSource, open_file
from kartothek_cube.core.io.parquet_rows import read_source
from kartothek_cube.core.io.reader import with_constants
from kartothek_cube.core.stores.open import open_instrumented
from kartothek_cube.errors import CorruptData, InvalidInput, InvalidType, UnknownColumn
from kartothek_cube.typing import IntoPredicates, StoreLike

if TYPE_CHECKING:
    import pandas as pd


LiteralValue: TypeAlias = Any
"""The constant of a comparison."""

LiteralType: TypeAlias = tuple[str, str, LiteralValue]
"""One comparison: column, operator, value."""

ConjunctionType: TypeAlias = list[LiteralType]
"""Comparisons that must all be true."""

PredicatesType: TypeAlias = list[ConjunctionType]
"""Conjunctions; at least one must be true."""


def check_predicates(predicates: PredicatesType | None) -> None:
    """Check that predicates have the form ``[[(column, operator, value), ...], ...]``.

    Raises
    ------
    InvalidInput
        For an empty list, a conjunction that is no list, a clause that is no triple, or a null that
        cannot be compared.
    InvalidType
        If the value for ``in`` is no collection.
    Unsupported
        For an unknown operator, or bytes that contain NUL.

    Examples
    --------
    >>> check_predicates([[("COUNTRY_CODE", "in", ["DE", "FR"]), ("UNITS", ">", 3)]])
    """
    parse_predicates(predicates)


def columns_in_predicates(predicates: PredicatesType | None) -> set[str]:
    """All columns in the predicates.

    Examples
    --------
    >>> sorted(columns_in_predicates([[("COUNTRY_CODE", "==", "DE")], [("UNITS", ">", 3)]]))
    ['COUNTRY_CODE', 'UNITS']
    """
    return {column_name(clause[0]) for conjunction in predicates or () for clause in conjunction}


def filter_predicates_by_column(predicates: PredicatesType | None, columns: Collection[str]) -> PredicatesType | None:
    """The comparisons of some columns; None if there are none.

    Examples
    --------
    >>> predicates = [[("COUNTRY_CODE", "==", "DE"), ("UNITS", ">", 3)], [("PRICE", "<", 2.5)]]
    >>> filter_predicates_by_column(predicates, ["UNITS"])
    [[('UNITS', '>', 3)]]
    """
    kept = [[clause for clause in conjunction if column_name(clause[0]) in columns] for conjunction in predicates or ()]
    return [conjunction for conjunction in kept if conjunction] or None


def filter_df(df: pd.DataFrame, filter_query: str | None = None) -> pd.DataFrame:
    """The rows that match a query of pandas; without a query, the frame itself.

    Examples
    --------
    >>> import pandas as pd
    >>> filter_df(pd.DataFrame({"UNITS": [1, 2, 3]}), "UNITS > 1")["UNITS"].tolist()
    [2, 3]
    """
    return df.query(filter_query) if filter_query else df


def filter_df_from_predicates(
    df: pd.DataFrame, predicates: PredicatesType | None, strict_date_types: bool = False
) -> pd.DataFrame:
    """The rows that match the predicates, with their row labels.

    Parameters
    ----------
    df : pandas.DataFrame
        The rows.
    predicates : list of list of tuple, optional
        ``[[(column, operator, value), ...], ...]``; None returns the frame itself.
    strict_date_types : bool, default False
        Compare dates only with dates, moments only with moments. By default a date is compared as
        its midnight.

    Raises
    ------
    UnknownColumn
        If the frame lacks a column of the predicates.
    InvalidInput
        If the frame has a column of the predicates twice.
    InvalidType
        If a value does not fit its column, e.g. a float for integers.

    Examples
    --------
    >>> import pandas as pd
    >>> sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "FR", None], "UNITS": [1, 2, 3]})
    >>> filter_df_from_predicates(sales, [[("COUNTRY_CODE", "!=", "DE")]])["UNITS"].tolist()
    [2, 3]
    """
    filters = parse_predicates(predicates)
    if filters is None:
        return df
    columns = columns_of(filters)
    check_known(columns, list(df.columns), "The predicates name columns that the frame does not have")
    # pandas returns a frame for a name that occurs twice.
    twice = sorted(c for c in columns if not is_series(df[c]))
    if twice:
        raise InvalidInput(
            f"The predicates name columns that the frame has more than once: {', '.join(twice)}. "
            "Rename all but one of each."
        )
    arrays = {c: _as_arrow(df[c], c) for c in sorted(columns)}
    return df[predicate_mask(pa.table(arrays), filters, strict_date_types)]


def check_known(columns: Iterable[str], present: Collection[str], context: str) -> None:
    """Check that all columns are present."""
    unknown = sorted(set(columns) - set(present))
    if unknown:
        raise UnknownColumn(f"{context}: {', '.join(unknown)}. There are {list(present)}.")


def predicate_mask(table: pa.Table, predicates: Predicates, strict: bool) -> Mask:
    """Whether each row matches the predicates."""
    return disjunction(
        table.num_rows, ((_matches(table.column(c.column), c, strict) for c in clauses) for clauses in predicates)
    )


def filter_array_like(
    array_like: object,
    op: str,
    value: LiteralValue,
    mask: Mask | None = None,
    out: Mask | None = None,
    strict_date_types: bool = False,
    column_name: str | None = None,
) -> Mask:
    """Whether each value satisfies a comparison.

    Parameters
    ----------
    array_like : array, Series, Index, Categorical or pyarrow.Array
        The values, one-dimensional.
    op : str
        An operator of predicates: ``== != < <= > >= in`` ….
    value : object
        The constant; for ``in`` a collection.
    mask : array of bool, optional
        Combined with the result by AND.
    out : array of bool, optional
        Overwritten with the result and returned.
    strict_date_types : bool, default False
        As in `filter_df_from_predicates`.
    column_name : str, optional
        For error messages.

    Returns
    -------
    numpy.ndarray
        One ``bool`` per value.

    Raises
    ------
    InvalidInput
        If ``mask`` or ``out`` has another length than the array.
    InvalidType
        If the value does not fit the values of the array.

    Examples
    --------
    >>> import numpy as np
    >>> filter_array_like(np.array([3, 4, 5]), ">", 3, mask=np.array([True, True, False])).tolist()
    [False, True, False]
    """
    ((clause,),) = parse_predicates([[(column_name or "<unknown>", op, value)]]) or ()
    result = _matches(_as_arrow(array_like, clause.column), clause, strict_date_types)
    for name, given in (("mask", mask), ("out", out)):
        if given is not None and np.shape(given) != result.shape:
            raise InvalidInput(
                f"{name} should have one boolean for each of {len(result)} values of {clause.column!r}, "
                f"but has shape {np.shape(given)}."
            )
    if mask is not None:
        result = result & np.asarray(mask, dtype=bool)
    if out is None:
        return result
    out[...] = result  # in place: kartothek's callers pass a buffer
    return out


def _as_arrow(values: object, name: str) -> pa.Array | pa.ChunkedArray:
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    try:
        return arrow_array(values)
    except (pa.ArrowException, TypeError, OverflowError, UnicodeError) as error:
        raise InvalidType(f"Column {name!r} has no single type that could be compared: {error}") from None


def _matches(values: pa.Array | pa.ChunkedArray, clause: Clause, strict: bool) -> Mask:
    if not strict:
        values, clause = _with_moments(values, clause)
    constants = [v for v in constants_of(clause) if not is_null(v)]
    if strict and pt.is_temporal(values.type) and not all(is_own_kind(v, values.type) for v in constants):
        raise InvalidType(
            f"Unexpected type for predicate: column {clause.column!r} is {values.type}, and strict_date_types "
            f"compares dates with dates only, moments with moments, but the value is {clause.value!r}."
        )
    if pt.is_floating(values.type) and not all(isinstance(v, (float, np.floating)) for v in constants):
        # A pandas column of nulls is a column of NaN, whatever its type was.
        only_nulls = pc.all(pc.is_null(values, nan_is_null=True)).as_py() is not False
        values = pa.nulls(len(values)) if only_nulls else values
    check_literals(constants, values.type, clause.column)
    # Moments keep their unit: microseconds would round them.
    return matching_values(values if pt.is_timestamp(values.type) else values.cast(stored_type(values.type)), clause)


# --- dates and moments ----------------------------------------------------------------------------

_MOMENT = (dt.datetime, np.datetime64)


def _with_moments(values: pa.Array | pa.ChunkedArray, clause: Clause) -> tuple[pa.Array | pa.ChunkedArray, Clause]:
    """Convert dates and texts to moments if the other side of the comparison has moments."""
    if pt.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    constants = constants_of(clause)
    is_text = pt.is_string(values.type) or pt.is_large_string(values.type)
    if is_text and any(isinstance(v, (dt.date, np.datetime64)) for v in constants):
        try:
            values = values.cast(pa.timestamp("us"))
        except pa.ArrowInvalid as error:
            message = f"Column {clause.column!r} is text that cannot be compared with dates: {error}"
            raise InvalidType(message) from None
    # In microseconds, which reach every date.
    elif pt.is_date(values.type) and any(isinstance(v, _MOMENT) for v in constants):
        values = values.cast(pa.timestamp("us"))
    if not pt.is_timestamp(values.type):
        return values, clause
    moments = tuple(_moment(v, clause.column) for v in constants)
    return values, replace(clause, value=moments if isinstance(clause.value, tuple) else moments[0])


def _moment(value: object, name: str) -> Any:
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return dt.datetime.combine(value, dt.time())
    if not isinstance(value, (str, bytes)):
        return value
    import pandas as pd

    try:
        moment: Any = pd.Timestamp(value.decode() if isinstance(value, bytes) else value)
    except ValueError:
        moment = None
    if is_null(moment):  # pandas makes NaT of empty text
        raise WrongOperand(
            f"Unexpected type for predicate: column {name!r} has moments, but {value!r} is no text of one."
        )
    return moment


# --- one frame to one file ------------------------------------------------------------------------


class ParquetReadError(CorruptData, OSError):
    """A Parquet file is damaged.

    Unlike kartothek, the library does not retry: a damaged file stays damaged. Errors of the store
    keep their own types, which are ``OSError``, too.

    Examples
    --------
    >>> issubclass(ParquetReadError, OSError)
    True
    """

    def __reduce__(self) -> tuple[Any, ...]:
        # dask makes errors by `__new__` of the first base otherwise, which no `OSError` allows.
        return type(self), self.args


class DataFrameSerializer(ABC):
    """Base class of serializers: one frame to one file, and back.

    Attributes
    ----------
    type_stable : bool
        Whether files store the types of their columns.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import open_store
    >>> serializer: DataFrameSerializer = ParquetSerializer(compression="ZSTD")
    >>> serializer.store(open_store("hmemory://"), "sales/1", pa.table({"UNITS": [3, 4]}))
    'sales/1.parquet'
    """

    __slots__ = ()

    type_stable: ClassVar[bool] = False
    _serializers: ClassVar[dict[str, Any]] = {}

    @abstractmethod
    def store(self, store: StoreLike, key_prefix: str, df: pd.DataFrame | pa.Table) -> str:
        """Write a frame under the key prefix plus the suffix of the format; return the key.

        Parameters
        ----------
        store : str, path, store or callable
            The store, in any form that `open_store` takes.
        key_prefix : str
            The key without its suffix.
        df : pandas.DataFrame or pyarrow.Table
            The rows. Row labels are not stored.
        """

    @classmethod
    def register_serializer(cls, suffix: str, serializer: object) -> None:
        """Make `restore_dataframe` read keys that end in ``suffix`` with this serializer."""
        DataFrameSerializer._serializers[suffix] = serializer

    @classmethod
    def restore_dataframe(
        cls,
        store: StoreLike,
        key: str,
        filter_query: str | None = None,
        columns: Sequence[str] | None = None,
        predicate_pushdown_to_io: bool = True,
        categories: Sequence[str] | None = None,
        predicates: PredicatesType | None = None,
        date_as_object: bool = False,
    ) -> pd.DataFrame:
        """Read one file; the suffix of the key selects the format.

        Parameters
        ----------
        store : str, path, store or callable
            The store, in any form that `open_store` takes.
        key : str
            Key of the file.
        filter_query : str, optional
            A query for ``pandas.DataFrame.query`` on the returned columns; rows keep their labels.
        columns : list of str, optional
            Columns to return, in this order; by default all of the file.
        predicate_pushdown_to_io : bool, default True
            Skip row groups that cannot match. Dates are then compared only with dates, moments only
            with moments.
        categories : list of str, optional
            Columns to return as pandas categoricals, if they are among the returned columns.
        predicates : list of list of tuple, optional
            ``[[(column, operator, value), ...], ...]``, on any columns of the file.
        date_as_object : bool, default False
            Return dates as ``datetime.date`` objects and not as ``datetime64``.

        Returns
        -------
        pandas.DataFrame
            Matching rows in the order of the file, with a fresh row index, in the types of the
            file; integers with nulls have a nullable type.

        Raises
        ------
        InvalidInput
            If the suffix is unknown, or predicates are empty or combined with ``filter_query``.
        UnknownColumn
            If the file lacks a column.
        KeyNotFound
            If the file does not exist.
        CorruptData
            If the file is damaged.

        Examples
        --------
        >>> import pandas as pd
        >>> from kartothek_cube import open_store
        >>> store = open_store("hmemory://")
        >>> sales = pd.DataFrame({"PRODUCT_ID": [1, 2], "UNITS": [3, 4]})
        >>> key = ParquetSerializer().store(store, "sales", sales)
        >>> product = [[("PRODUCT_ID", "==", 2)]]
        >>> DataFrameSerializer.restore_dataframe(store, key, columns=["UNITS"], predicates=product)
           UNITS
        0      4
        """
        _check_query(filter_query, predicates)
        for suffix, serializer in cls._serializers.items():
            if key.endswith(suffix):
                frame: pd.DataFrame = serializer.restore_dataframe(
                    store, key, filter_query, columns, predicate_pushdown_to_io, categories, predicates, date_as_object
                )
                return frame
        raise InvalidInput(
            f"The specified file format for '{key}' is not supported; files end in {', '.join(cls._serializers)}."
        )


def _check_query(filter_query: str | None, predicates: IntoPredicates | None) -> None:
    if filter_query and predicates is not None:
        raise InvalidInput("Can only specify one of filter_query and predicates.")


class _FormatSerializer(DataFrameSerializer, FileFormat):
    """A serializer that writes files of a `FileFormat`."""

    __slots__ = ()

    def store(self, store: StoreLike, key_prefix: str, df: pd.DataFrame | pa.Table) -> str:
        data = self.encode(to_table(df, key_prefix))
        key = key_prefix + self.file_suffix
        open_instrumented(store).put(key, memoryview(data))  # no copy of the encoded file
        return key


class ParquetSerializer(ParquetFormat, _FormatSerializer):
    """Parquet files as kartothek writes them.

    Parameters
    ----------
    compression : str, default "SNAPPY"
        Codec of the column chunks: ``SNAPPY``, ``ZSTD``, ``GZIP``, ``BROTLI``, ``LZ4`` or ``NONE``.
    chunk_size : int, optional
        Rows per row group; by default a file has one row group of up to 1,048,576 rows.

    Examples
    --------
    >>> ParquetSerializer("ZSTD", chunk_size=100_000)
    ParquetSerializer(compression='ZSTD', chunk_size=100000)
    """

    __slots__ = ()

    type_stable = True

    @classmethod
    def restore_dataframe(
        cls,
        store: StoreLike,
        key: str,
        filter_query: str | None = None,
        columns: Sequence[str] | None = None,
        predicate_pushdown_to_io: bool = True,
        categories: Sequence[str] | None = None,
        predicates: PredicatesType | None = None,
        date_as_object: bool = False,
    ) -> pd.DataFrame:
        """Read one Parquet file; see `DataFrameSerializer.restore_dataframe`."""
        _check_query(filter_query, predicates)
        filters = parse_predicates(predicates)
        names, categories = _names(columns, "columns", key), _names(categories, "categories", key)
        try:
            with open_file(open_instrumented(store), key, None) as source:
                # Row labels that pandas wrote are no columns.
                present = [name for name in source.schema.names if not name.startswith("__index_level_")]
                names = present if names is None else names
                _check_columns(names, categories, columns_of(filters), present, key)
                # Without pushdown kartothek compares dates with moments, unless dates are objects.
                strict = predicate_pushdown_to_io or date_as_object
                table = _read_rows(source, key, names, filters, pushdown=predicate_pushdown_to_io, strict=strict)
        except CorruptData as error:
            raise ParquetReadError(str(error)) from error
        table = encoded(table, [c for c in names if c in (categories or ())])
        return filter_df(to_frame(table, dates_as_object=date_as_object, nullable=True), filter_query)


def _read_rows(
    source: ParquetSource,
    key: str,
    columns: Sequence[str],
    predicates: Predicates | None,
    *,
    pushdown: bool,
    strict: bool,
) -> pa.Table:
    # Predicates may name columns that are not returned.
    to_read = [*columns, *sorted(columns_of(predicates) - set(columns))]
    schema = stored_schema(pa.schema([source.schema.field(c) for c in to_read]), f" of the file {key!r}")
    if strict:
        check_constants(chain.from_iterable(predicates or ()), schema, f" of the file {key!r}")
    table, rows = read_source(source, key, to_read, schema, predicates if pushdown else None)
    if predicates is not None:
        mask = predicate_mask(table, predicates, False)
        table, rows = filter_table(table, mask), int(mask.sum())
    return with_constants(table, rows, columns, {}, schema)


class CsvSerializer(CsvFormat, _FormatSerializer):
    """CSV files as kartothek writes them: ``;``, UTF-8, a header.

    Files have no types. For a single file pandas infers types from the text, and dates stay text;
    as part of a dataset, a file has the dataset's types.

    Parameters
    ----------
    compress : bool, default True
        Compress the file with gzip.

    Examples
    --------
    >>> CsvSerializer(compress=False).file_suffix
    '.csv'
    """

    __slots__ = ()

    @classmethod
    def restore_dataframe(
        cls,
        store: StoreLike,
        key: str,
        filter_query: str | None = None,
        columns: Sequence[str] | None = None,
        predicate_pushdown_to_io: bool = True,  # noqa: ARG003
        categories: Sequence[str] | None = None,
        predicates: PredicatesType | None = None,
        date_as_object: bool = False,  # noqa: ARG003
    ) -> pd.DataFrame:
        """Read one CSV file; see `DataFrameSerializer.restore_dataframe`.

        Dates are text whatever ``date_as_object``.
        """
        _check_query(filter_query, predicates)
        filters = parse_predicates(predicates)
        names, categories = _names(columns, "columns", key), _names(categories, "categories", key)
        frame = _read_csv(store, key)
        present = list(frame.columns)
        names = present if names is None else names
        _check_columns(names, categories, columns_of(filters), present, key)
        frame = filter_df_from_predicates(frame, predicates)[names].reset_index(drop=True)
        encoded_columns = [c for c in names if c in (categories or ())]
        return filter_df(frame.astype(dict.fromkeys(encoded_columns, "category")), filter_query)


def _read_csv(store: StoreLike, key: str) -> pd.DataFrame:
    import pandas as pd

    content = csv_content(open_instrumented(store), key, None)
    try:
        # Only empty fields are null: the country code NA is Namibia.
        frame = pd.read_csv(
            cast("BinaryIO", pa.BufferReader(content)),
            sep=SEPARATOR,
            encoding="utf-8",
            keep_default_na=False,
            na_values=[""],
        )
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise CorruptData(f"The file {key!r} cannot be read: {error}") from error
    if not isinstance(frame.index, pd.RangeIndex):  # pandas takes surplus fields for row labels
        raise CorruptData(
            f"The file {key!r} cannot be read: its rows have more fields than its header, "
            f"which has {list(frame.columns)}."
        )
    return frame


def _names(columns: object, what: str, key: str) -> list[str] | None:
    if columns is None:
        return None
    names = None if isinstance(columns, (str, bytes)) or not isinstance(columns, Iterable) else list(columns)
    if names is None or not all(isinstance(name, str) for name in names):
        raise InvalidType(f"{what} is a list of column names, not {columns!r} (file {key!r}).")
    return names


def _check_columns(
    columns: Sequence[str],
    categories: Sequence[str] | None,
    predicate_columns: frozenset[str],
    names: Sequence[str],
    key: str,
) -> None:
    if len(set(columns)) != len(columns):
        raise InvalidInput(f"A column of the file {key!r} is asked for twice: {list(columns)}.")
    check_known(columns, names, f"Columns cannot be found in stored dataframe {key!r}")
    check_known(categories or (), names, f"Categories cannot be found in stored dataframe {key!r}")
    check_known(predicate_columns, names, f"The predicates name columns that the file {key!r} does not have")


def default_serializer() -> ParquetSerializer:
    """The default format of data files.

    Examples
    --------
    >>> default_serializer()
    ParquetSerializer(compression='SNAPPY', chunk_size=None)
    """
    return ParquetSerializer()


DataFrameSerializer.register_serializer(".csv.gz", CsvSerializer)
DataFrameSerializer.register_serializer(".csv", CsvSerializer)
DataFrameSerializer.register_serializer(".parquet", ParquetSerializer)
