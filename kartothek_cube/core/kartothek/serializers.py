"""kartothek's serializers: one frame to one file, and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, cast

import pyarrow as pa

from kartothek_cube.core.arrow.pandas import encoded, to_frame, to_table
from kartothek_cube.core.arrow.types import stored_schema
from kartothek_cube.core.expressions.predicates import (
    Predicates,
    check_constants,
    columns_of,
    filter_table,
    parse_predicates,
)
from kartothek_cube.core.io.csv import SEPARATOR, CsvFormat, csv_content
from kartothek_cube.core.io.formats import FileFormat, ParquetFormat
from kartothek_cube.core.io.parquet import ParquetSource, open_file, read_source
from kartothek_cube.core.io.reader import with_constants
from kartothek_cube.core.kartothek.filters import (
    PredicatesType,
    check_known,
    filter_df,
    filter_df_from_predicates,
    predicate_mask,
)
from kartothek_cube.core.stores.open import open_instrumented
from kartothek_cube.errors import CorruptData, InvalidInput, InvalidType
from kartothek_cube.typing import IntoPredicates, StoreLike

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CsvSerializer", "DataFrameSerializer", "ParquetReadError", "ParquetSerializer", "default_serializer"]


class ParquetReadError(CorruptData, OSError):
    """A Parquet file is damaged.

    Unlike kartothek, the library does not retry: a damaged file stays damaged. Errors of the store
    keep their own types, which are ``OSError``, too.

    Examples
    --------
    >>> issubclass(ParquetReadError, OSError)
    True
    """


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
        >>> from kartothek_cube.core.stores.open import open_store
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
