"""kartothek's classes and functions of indices.

In order:

- values: normalised to the type of the index, from dicts to Arrow and back
- `IndexBase`: one column, over Arrow pairs of value and label
- `PartitionIndex`, `ExplicitSecondaryIndex`, functions on several
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from msgspec import Struct

from kartothek_cube.core.arrow.keys import IntArray, expand_ranges, group_starts, pack_one, take_rows
from kartothek_cube.core.arrow.pandas import to_frame
from kartothek_cube.core.arrow.types import plain_type
from kartothek_cube.core.commit.commit import put_index
from kartothek_cube.core.expressions.literals import literal_array
from kartothek_cube.core.expressions.predicates import (
    Clause,
    check_constants,
    columns_of,
    is_null,
    matching_all,
    matching_rows,
    parse_predicates,
)
from kartothek_cube.core.io.parquet_rows import read_columns
from kartothek_cube.core.metadata import index as kernel
from kartothek_cube.core.metadata.index import SecondaryIndex, index_of_pairs, index_type, run_starts
from kartothek_cube.core.metadata.naming import check_uuid
from kartothek_cube.core.snapshots.loader import index_bytes
from kartothek_cube.core.stores.open import open_instrumented
from kartothek_cube.errors import InvalidInput, InvalidType, UnknownColumn, Unsupported
from kartothek_cube.typing import IntoPredicates, StoreLike

if TYPE_CHECKING:
    import pandas as pd


_log = logging.getLogger(__name__)

# The range of nanoseconds in int64, in whole days.
_FIRST, _LAST = np.datetime64("1677-09-22"), np.datetime64("2262-04-11")


def index_data_type(dtype: pa.DataType | None, column: str, normalize: bool = True) -> pa.DataType | None:
    """The type of an index on this column; None if the type is not known yet."""
    if dtype is None:
        index_type(pa.string(), column)  # checks the name of the column
        return None
    data_type = index_type(plain_type(dtype), column)
    return data_type if normalize else dtype


def infer_type(values: Sequence[Any], column: str) -> pa.DataType:
    """The common type of Python values."""
    # Arrow takes every Python integer for int64.
    is_unsigned = {type(v) for v in values} == {int} and max(values) >= 2**63 and min(values) >= 0
    try:
        return pa.uint64() if is_unsigned else pa.array(values).type
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise InvalidInput(
            f"The values of the index on column {column!r} have no common type, give `dtype`: {error}"
        ) from error


# --- one value ------------------------------------------------------------------------------------


def normalize_value(dtype: pa.DataType | None, value: object) -> Any:
    """Convert a value to the type of an index, see `IndexBase.normalize_value`."""
    return next(_normalised((value,), dtype))


def _normalised(values: Iterable[Any], dtype: pa.DataType | None) -> Iterator[Any]:
    if dtype is None:
        raise InvalidInput(
            "Cannot normalize index values as long as dtype is not set. Load the index first, or give its dtype."
        )
    data_type = plain_type(dtype)
    normalise = next((f for applies, f in _NORMALISERS if applies(data_type)), None)
    if normalise is None:
        raise Unsupported(f"Cannot normalize index value for type {dtype}")
    for value in values:
        if is_null(value):
            raise InvalidType(f"An index knows no nulls, so that {value!r} cannot be looked up in it or put into it.")
        try:
            yield normalise(value, data_type)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidInput(
                f"The index value {value!r} ({type(value).__name__}) cannot be taken for {data_type}: {error}"
            ) from error


def _text(value: object, _data_type: pa.DataType) -> str:
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)


def _boolean(value: object, data_type: pa.DataType) -> bool:
    if not isinstance(value, (str, bytes)):
        return bool(value)
    text = _text(value, data_type).lower()
    if text not in ("true", "false"):
        raise ValueError("text is a boolean if it is 'true' or 'false'")
    return text == "true"


def _date(value: object, _data_type: pa.DataType) -> dt.date:
    if isinstance(value, dt.date):
        return value.date() if isinstance(value, dt.datetime) else value
    date: dt.date = _stamp(value).date()
    return date


def _stamp(value: Any) -> pd.Timestamp:
    import pandas as pd

    stamp = pd.Timestamp(value)
    if is_null(stamp):  # what pandas makes of empty text
        raise ValueError("it is no moment")
    return stamp


def _moment(value: object, data_type: pa.DataType) -> Any:
    stamp = _stamp(value)
    if data_type.tz is not None:
        aware = stamp if stamp.tzinfo is not None else stamp.tz_localize("UTC")
        return aware.tz_convert(pa.lib.string_to_tzinfo(data_type.tz))
    naive = stamp if stamp.tzinfo is None else stamp.tz_convert("UTC").tz_localize(None)
    return _in_nanoseconds(naive.to_datetime64())


def _in_nanoseconds(moments: Any) -> Any:
    """In nanoseconds, kartothek's unit, if all moments are in range."""
    return moments.astype("datetime64[ns]") if np.all((moments >= _FIRST) & (moments <= _LAST)) else moments


_NORMALISERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any, pa.DataType], Any]], ...] = (
    (pt.is_string, _text),
    (pt.is_binary, lambda v, _: bytes(v) if isinstance(v, (bytes, bytearray, memoryview)) else str(v).encode("utf-8")),
    (pt.is_boolean, _boolean),
    (pt.is_integer, lambda value, data_type: int(value)),
    (pt.is_floating, lambda value, data_type: float(value)),
    (pt.is_date, _date),
    (pt.is_timestamp, _moment),
)


# --- dicts and Arrow ------------------------------------------------------------------------------

# Python types that Arrow converts to the type of the index exactly as `normalize_value` does: such
# values need no loop in Python.
_EXACT: tuple[tuple[Callable[[pa.DataType], bool], Callable[[type], bool]], ...] = (
    (pt.is_string, lambda t: issubclass(t, str)),
    (pt.is_binary, lambda t: issubclass(t, bytes)),
    (pt.is_boolean, lambda t: t is bool),
    (pt.is_integer, lambda t: t is int),
    (pt.is_floating, lambda t: t is float),
    (pt.is_date, lambda t: t is dt.date),
)


def values_array(values: Sequence[Any], data_type: pa.DataType, column: str) -> pa.Array:
    """Normalise values, as the column of an index."""
    is_exact = next((exact for applies, exact in _EXACT if applies(data_type)), None)
    if is_exact is None or not all(map(is_exact, set(map(type, values)))):
        values = list(_normalised(values, data_type))
    try:
        if pt.is_timestamp(data_type):
            array = literal_array(values, data_type).cast(data_type)
        else:
            array = pa.array(values, type=data_type)
    except (pa.ArrowException, OverflowError) as error:
        raise InvalidInput(
            f"The values of the index on column {column!r} cannot be stored as {data_type}: {error}"
        ) from error
    if len(array) < len(values):  # `literal_array` drops moments that the unit cannot express
        raise InvalidInput(
            f"A value of the index on column {column!r} is finer than a microsecond, which {data_type} cannot store."
        )
    if pt.is_floating(data_type) and pc.any(pc.is_nan(array)).as_py():
        raise InvalidType(f"An index knows no nulls, but the one on column {column!r} is given NaN.")
    return array


def pairs_of(column: str, index_dct: Mapping[Any, Iterable[str]], data_type: pa.DataType) -> SecondaryIndex:
    """An index from a dict value → labels; values that are equal after normalisation are merged."""
    if not isinstance(index_dct, Mapping):
        raise InvalidType(
            f"The index on column {column!r} should be a dict value → list of labels, "
            f"but is {type(index_dct).__name__}."
        )
    values = values_array(list(index_dct), data_type, column)
    collisions = len(values) - len(pc.unique(values))
    if collisions:
        _log.warning(
            "Value normalization for index column %s resulted in %d collision(s); the lists of labels are merged.",
            column,
            collisions,
        )
    for labels in index_dct.values():
        if isinstance(labels, (str, bytes)) or not isinstance(labels, Iterable):
            raise InvalidType(f"The index on column {column!r} needs a list of labels for each value, got {labels!r}.")
    lists = [list(labels) for labels in index_dct.values()]
    repeated = values.take(pa.array(np.repeat(np.arange(len(values)), list(map(len, lists)))))
    return index_of_pairs(column, repeated, label_array(chain.from_iterable(lists), column).dictionary_encode())


def label_array(labels: Iterable[str], column: str) -> pa.Array:
    """Labels as a column."""
    if isinstance(labels, (str, bytes)):
        raise InvalidType(f"The index on column {column!r} needs a list of labels, got {labels!r}.")
    try:
        return pa.array(list(labels), type=pa.string())
    except (pa.ArrowException, TypeError) as error:
        raise InvalidType(f"The labels in an index on column {column!r} are text: {error}") from error


def dict_of(pairs: SecondaryIndex) -> dict[Any, list[str]]:
    """Value → labels, from sorted pairs."""
    starts = run_starts(pairs.values)
    labels = pairs.labels.cast(pa.string()).to_pylist()
    lists = [labels[a:b] for a, b in pairwise([*starts.tolist(), len(labels)])]
    distinct = pairs.values.take(pa.array(starts))
    keys = numpy_values(distinct) if pt.is_timestamp(distinct.type) else distinct.to_pylist()
    return dict(zip(keys, lists, strict=True))


# --- numpy and pandas -----------------------------------------------------------------------------


def numpy_values(values: pa.Array, date_as_object: bool = True) -> np.ndarray[Any, Any]:
    """Values as NumPy array.

    Dates are objects or ``datetime64``, moments with a zone `pandas.Timestamp`, text is objects.
    """
    data_type = values.type
    if (pt.is_date(data_type) and date_as_object) or (pt.is_timestamp(data_type) and data_type.tz is not None):
        out = np.empty(len(values), dtype=object)
        out[:] = values.to_pylist() if pt.is_date(data_type) else list(values.to_pandas())
        return out
    array: np.ndarray[Any, Any] = values.to_numpy(zero_copy_only=False)
    # Arrow's array cannot be written to: return a copy.
    return _in_nanoseconds(array) if pt.is_temporal(data_type) else np.array(array)


def flat_series(
    pairs: SecondaryIndex, compact: bool, partitions_as_index: bool, date_as_object: bool
) -> pd.Series[Any]:
    """Sorted pairs as a series value → label, or label → value.

    With ``compact`` each entry of the series' index is unique and has an array.
    """
    import pandas as pd

    table = pa.table({pairs.column: pairs.values, "partition": pairs.labels.cast(pa.string())})
    frame = to_frame(table, dates_as_object=date_as_object)
    by, other = ("partition", pairs.column) if partitions_as_index else (pairs.column, "partition")
    if not compact:
        return frame.set_index(by)[other]
    if partitions_as_index:
        order = np.argsort(pairs.labels.indices.to_numpy(), kind="stable")
        starts = group_starts(pairs.labels.indices.to_numpy()[order])
    else:
        order, starts = np.arange(len(pairs)), run_starts(pairs.values)
    values = frame[other].to_numpy()[order]
    arrays = np.empty(len(starts), dtype=object)
    # Entry by entry: NumPy would make one matrix of arrays of equal length.
    for i, (start, end) in enumerate(pairwise([*starts.tolist(), len(values)])):
        arrays[i] = values[start:end]
    return pd.Series(arrays, index=pd.Index(frame[by].iloc[order[starts]], name=by), name=other)


# --- predicates -----------------------------------------------------------------------------------


# --- IndexBase ------------------------------------------------------------------------------------


IndexDict = Mapping[Any, Iterable[str]]


class IndexBase:
    """An inverted index of one column: value → labels of the partitions that contain it.

    Values and labels are Arrow arrays; `index_dct` builds a dict on first access. Lists of labels
    and values are ascending. An index has no nulls.

    Parameters
    ----------
    column : str
        The indexed column.
    index_dct : mapping, optional
        Value → list of labels. Without it the index is not loaded, and methods that need the values
        raise.
    dtype : pyarrow.DataType, optional
        Type of the column; by default that of the values.
    normalize_dtype : bool, default True
        Widen the type as in the schema of a dataset, e.g. int8 to int64.

    Attributes
    ----------
    column : str
        The indexed column.
    dtype : pyarrow.DataType or None
        Type of the values; None while neither type nor values are known.
    creation_time : datetime.datetime
        When this object got its values (UTC, without zone). A new index file has this time in its
        key.

    Raises
    ------
    InvalidInput
        If the values do not fit the type or have no common type, or the column is called
        ``partition``.
    InvalidType
        If a value is null, or labels are no list of text.
    Unsupported
        If columns of this type cannot be indexed.

    Examples
    --------
    >>> import pyarrow as pa
    >>> index = IndexBase("BRAND", {"Umbra": ["FR/0"], "Acme": ["DE/0", "DE/1"]}, pa.string())
    >>> index.query("Acme")
    ['DE/0', 'DE/1']
    >>> sorted(index.eval_operator(">", "Acme"))
    ['FR/0']
    """

    __slots__ = ("_data", "_dict", "_is_sorted", "column", "creation_time", "dtype")
    # Indices are mutable, by `inplace=True`.
    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    column: str
    dtype: pa.DataType | None
    creation_time: datetime
    _data: SecondaryIndex | None
    _dict: dict[Any, list[str]] | None
    _is_sorted: bool

    def __init__(
        self,
        column: str,
        index_dct: IndexDict | None = None,
        dtype: pa.DataType | None = None,
        normalize_dtype: bool = True,
    ) -> None:
        given = infer_type(list(index_dct), column) if dtype is None and index_dct else dtype
        # Inferred types are always normalised.
        data_type = index_data_type(given, column, normalize_dtype or dtype is None)
        # An empty index that has a file gets its type from the file.
        if data_type is None and index_dct is not None and not getattr(self, "index_storage_key", None):
            raise InvalidInput(
                f"Trying to create non-typesafe index: the one on column {column!r} has no values, "
                "so that it needs `dtype`."
            )
        data = None
        if index_dct is not None and data_type is not None:
            data = pairs_of(column, index_dct, data_type)
        self.__setstate__({"column": str(column), "data": data, "dtype": data_type})

    @classmethod
    def _new(cls, **state: object) -> Self:
        made = cls.__new__(cls)
        made.__setstate__(state)
        return made

    # --- content ----------------------------------------------------------------------------------

    @property
    def data(self) -> SecondaryIndex | None:
        """The pairs of value and label; None while the index is not loaded."""
        return self._data

    @property
    def loaded(self) -> bool:
        """Whether the values are known."""
        return self._data is not None

    def pairs(self) -> SecondaryIndex:
        """The distinct pairs of value and label, sorted by value and then label.

        Raises
        ------
        InvalidInput
            If the index is not loaded.
        """
        # Sorted on first use: most queries need no order.
        if not self._is_sorted:
            self._data = kernel.distinct_pairs(self.known())
            self._is_sorted = True
        return self.known()

    def known(self) -> SecondaryIndex:
        """The pairs of value and label, unsorted, with duplicates; errors as of `pairs`."""
        if self._data is None:
            raise InvalidInput(
                f"The index on column {self.column!r} is not loaded, so that its values are not known. "
                f"Load it first: `dataset.load_index({self.column!r}, store)`, or `load(store)` of the index."
            )
        return self._data

    @property
    def index_dct(self) -> dict[Any, list[str]]:
        """Value → labels; empty while the index is not loaded.

        The dict is built once. Changes of the dict do not change the index.
        """
        if self._dict is None and self.loaded:
            self._dict = dict_of(self.pairs())
        return self._dict or {}

    def to_dict(self) -> dict[Any, list[str]]:
        """A new dict value → labels; empty while the index is not loaded."""
        return dict_of(self.pairs()) if self.loaded else {}

    def observed_values(
        self, date_as_object: bool = True, coerce_temporal_nanoseconds: bool = True
    ) -> np.ndarray[Any, Any]:
        """The distinct values, ascending.

        Dates are `datetime.date` or ``datetime64``, moments with a zone `pandas.Timestamp`. The
        last argument is accepted from plateau: moments have nanoseconds.
        """
        values = self.pairs().values
        return numpy_values(values.take(pa.array(kernel.run_starts(values))), date_as_object)

    # --- questions --------------------------------------------------------------------------------

    @staticmethod
    def normalize_value(dtype: pa.DataType | None, value: object) -> Any:
        """Convert a value to the type of an index, as kartothek does.

        To text or bytes: from any value. To integers: numbers are truncated. To booleans: also from
        the words true and false. To dates and moments: also from text. A moment without zone means
        UTC.

        Raises
        ------
        InvalidInput
            If the value cannot be converted, or the type is None.
        InvalidType
            If the value is null.
        Unsupported
            If columns of this type cannot be indexed.

        Examples
        --------
        >>> import pyarrow as pa
        >>> normalize = IndexBase.normalize_value
        >>> normalize(pa.int64(), "7"), normalize(pa.bool_(), "TRUE"), normalize(pa.string(), 7)
        (7, True, '7')
        """
        return normalize_value(dtype, value)

    def find(self, value: object) -> SecondaryIndex:
        """The pairs with this value, which may have any type that `normalize_value` takes."""
        data = self.known()
        return data.select([Clause(self.column, "==", normalize_value(self.dtype, value))])

    def query(self, value: object) -> list[str]:
        """Labels of the partitions that contain a value, ascending.

        The value may have any type that `normalize_value` takes.

        Raises
        ------
        InvalidInput
            If the index is not loaded, or the value cannot be converted to its type.
        InvalidType
            If the value is null: an index has no nulls.
        """
        labels: list[str] = kernel.index_labels(self.find(value)).to_pylist()
        return labels

    def eval_operator(self, op: str, value: object) -> set[str]:
        """Labels of the partitions that contain a value for which the comparison is true.

        Operators and types of constants are those of predicates. The index has no nulls, so
        partitions in which only nulls satisfy the comparison are missing.

        Raises
        ------
        InvalidInput
            If the index is not loaded.
        InvalidType
            If the constant cannot be compared with the column.
        Unsupported
            If there is no such operator.
        """
        data = self.known()
        clauses = (parse_predicates([[(self.column, op, value)]]) or ((),))[0]
        check_constants(clauses, pa.schema([(self.column, data.type)]))
        return set(kernel.index_labels(data.select(clauses)).to_pylist())

    def as_flat_series(
        self,
        compact: bool = False,
        partitions_as_index: bool = False,
        date_as_object: bool = False,
        predicates: IntoPredicates | None = None,
    ) -> pd.Series[Any]:
        """The index as a series.

        Parameters
        ----------
        compact : bool, default False
            One entry per value, with the array of its labels, instead of one entry per pair.
        partitions_as_index : bool, default False
            From labels to values, instead of from values to labels.
        date_as_object : bool, default False
            Dates as `datetime.date` objects and not as ``datetime64``.
        predicates : list of list of tuple, optional
            Keep matching values. Clauses on other columns count as true.

        Examples
        --------
        >>> IndexBase("PRODUCT_ID", {1: ["a", "b"], 2: ["a"]}).as_flat_series()
        PRODUCT_ID
        1    a
        1    b
        2    a
        Name: partition, dtype: ...
        """
        pairs = self.pairs()
        conjunctions = [
            [c for c in conjunction if c.column == self.column] for conjunction in parse_predicates(predicates) or ()
        ]
        # A conjunction without a clause on this column is true for every value.
        if conjunctions and all(conjunctions):
            check_constants(chain.from_iterable(conjunctions), pa.schema([(self.column, pairs.type)]))
            matching = (matching_all(pairs.values, clauses) for clauses in conjunctions)
            pairs = kernel.distinct_pairs(pairs.filter(np.logical_or.reduce(list(matching))))
        return flat_series(pairs, compact, partitions_as_index, date_as_object)

    # --- changes ----------------------------------------------------------------------------------

    def update(self, index: IndexBase, inplace: bool = False) -> Self:
        """The union with another index; this object if the other is empty.

        Raises
        ------
        InvalidInput
            If the other index is on another column.
        InvalidType
            If the other index has another type, or is no index.
        """
        added = _pairs_to_merge(self, index)
        if not len(added):
            return self
        return self.replaced(kernel.distinct_pairs(kernel.merge_indices([self.known(), added])), inplace)

    def remove_partitions(self, list_of_partitions: Iterable[str], inplace: bool = False) -> Self:
        """The index without these labels; this object if the index has none of them."""
        data = self.known()
        left = kernel.drop_labels(data, label_array(list_of_partitions, self.column))
        return self._unless_equal(left, data, inplace)

    def remove_values(self, list_of_values: Iterable[Any], inplace: bool = False) -> Self:
        """The index without these values; this object if the index has none of them.

        Values may have any type that `normalize_value` takes.
        """
        data = self.known()
        removed = values_array(list(list_of_values), data.type, self.column).to_pylist()
        return self._unless_equal(data.select([Clause(self.column, "not in", tuple(removed))]), data, inplace)

    def _unless_equal(self, data: SecondaryIndex, old: SecondaryIndex, inplace: bool) -> Self:
        return self if len(data) == len(old) else self.replaced(data, inplace)

    def replaced(self, data: SecondaryIndex, inplace: bool = False) -> Self:
        """The index with other pairs, as a new object or in place."""
        if not inplace:
            return self._new(column=self.column, data=data, dtype=self.dtype)
        # A new state without key and creation time: the index file has the old content.
        self.__setstate__({"column": self.column, "data": data, "dtype": self.dtype})
        return self

    def copy(self, **kwargs: object) -> Self:
        """A new object; keyword arguments of the constructor replace its content."""
        if not kwargs:
            return self._new(column=self.column, data=self._data, dtype=self.dtype)
        arguments: dict[str, Any] = {
            "column": self.column,
            "index_dct": self.to_dict() if self.loaded else None,
            "dtype": self.dtype,
        }
        return type(self)(**(arguments | kwargs))

    # --- object protocol --------------------------------------------------------------------------

    def _identity(self) -> tuple[Any, ...]:
        return type(self), self.column, self.dtype, self.loaded

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, IndexBase):
            return NotImplemented
        return self._identity() == other._identity() and (
            not self.loaded or _table(self.pairs()).equals(_table(other.pairs()))
        )

    def __repr__(self) -> str:
        pairs = f"{len(self._data)} pairs" if self._data is not None else "not loaded"
        return f"<{type(self).__name__} on {self.column!r}: {self.dtype}, {pairs}>"

    def __getstate__(self) -> dict[str, Any]:
        # Sorted, so that equal indices have equal pickles.
        data = self.pairs() if self.loaded else None
        return {"column": self.column, "data": data, "dtype": self.dtype, "creation_time": self.creation_time}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.column, self.dtype, self._data = state["column"], state["dtype"], state["data"]
        self.creation_time = state.get("creation_time") or datetime.now(UTC).replace(tzinfo=None)
        self._dict, self._is_sorted = None, False


def _table(pairs: SecondaryIndex) -> pa.Table:
    return pa.table({"values": pairs.values, "labels": pairs.labels})


def union(first: IndexBase, others: Sequence[IndexBase]) -> IndexBase:
    """The union of several indices on one column; ``first`` itself if the others are empty."""
    added = [data for other in others if len(data := _pairs_to_merge(first, other))]
    return first.replaced(kernel.distinct_pairs(kernel.merge_indices([first.known(), *added]))) if added else first


def _pairs_to_merge(first: IndexBase, other: object) -> SecondaryIndex:
    if not isinstance(other, IndexBase):
        raise InvalidType(
            f"Need an index object to update the index on column {first.column!r}, got {type(other).__name__}."
        )
    if other.column != first.column:
        raise InvalidInput(f"Trying to update an index on column {first.column!r} with one on {other.column!r}.")
    if other.known().type != first.known().type:
        raise InvalidType(
            "Trying to update an index with different types: "
            f"the one on column {first.column!r} is {first.dtype}, the other {other.dtype}."
        )
    return other.known()


# --- PartitionIndex -------------------------------------------------------------------------------


class PartitionIndex(IndexBase):
    """An index on a partition key, from the paths of the files.

    Parameters are those of `IndexBase`; ``dtype`` is required.

    Examples
    --------
    >>> import pyarrow as pa
    >>> PartitionIndex("COUNTRY_CODE", {"DE": ["COUNTRY_CODE=DE/0"]}, dtype=pa.string())
    <PartitionIndex on 'COUNTRY_CODE': string, 1 pairs>
    """

    __slots__ = ()

    def __init__(
        self,
        column: str,
        index_dct: IndexDict | None = None,
        dtype: pa.DataType | None = None,
        normalize_dtype: bool = True,
    ) -> None:
        if dtype is None:  # paths are text: values cannot tell the type
            raise InvalidInput(
                f"PartitionIndex dtype of column {column!r} cannot be None: give the type of the column."
            )
        super().__init__(column, index_dct, dtype, normalize_dtype)

    @classmethod
    def of(cls, index: SecondaryIndex) -> Self:
        """Wrap a loaded index."""
        return cls._new(column=index.column, data=index, dtype=index.type)


class ExplicitSecondaryIndex(IndexBase):
    """A secondary index: on a column that is no partition key, in a file of its own.

    Parameters
    ----------
    column, index_dct, dtype, normalize_dtype
        See `IndexBase`.
    index_storage_key : str, optional
        Key of the index file. A change of the content removes it.

    Examples
    --------
    >>> from kartothek_cube import open_store
    >>> store = open_store("hmemory://")
    >>> index = ExplicitSecondaryIndex("BRAND", {"Acme": ["DE/0", "FR/0"], "Umbra": ["FR/0"]})
    >>> stored = ExplicitSecondaryIndex("BRAND", index_storage_key=index.store(store, "sales"))
    >>> stored.loaded, stored.load(store).query("Umbra")
    (False, ['FR/0'])
    """

    __slots__ = ("index_storage_key",)

    index_storage_key: str | None

    def __init__(
        self,
        column: str,
        index_dct: IndexDict | None = None,
        index_storage_key: str | None = None,
        dtype: pa.DataType | None = None,
        normalize_dtype: bool = True,
    ) -> None:
        if index_dct is None and not index_storage_key:
            raise InvalidInput(
                f"No valid index source specified for column {column!r}: give `index_dct` or `index_storage_key`."
            )
        self.index_storage_key = index_storage_key  # `IndexBase` asks whether the index has a file
        super().__init__(column, index_dct, dtype, normalize_dtype)
        self.index_storage_key = index_storage_key

    @classmethod
    def of(cls, index: SecondaryIndex, key: str | None = None) -> Self:
        """Wrap a loaded index that has this file."""
        return cls._new(column=index.column, data=index, dtype=index.type, index_storage_key=key)

    @staticmethod
    def from_v2(column: str, dct_or_str: str | IndexDict) -> ExplicitSecondaryIndex:
        """The index of an entry of a document: the key of an index file, or value → labels."""
        if isinstance(dct_or_str, str):
            return ExplicitSecondaryIndex(column, index_storage_key=dct_or_str)
        if isinstance(dct_or_str, Mapping):
            return ExplicitSecondaryIndex(column, dct_or_str)
        raise InvalidType(
            f"The index on column {column!r} should be a key or a mapping from values to labels, "
            f"got {type(dct_or_str).__name__}."
        )

    def load(self, store: StoreLike) -> Self:
        """The index with the values of its file; this object if it is loaded already.

        Raises
        ------
        KeyNotFound
            If the file is not in the store.
        CorruptData
            If the file has no index on this column.
        """
        if self.loaded:
            return self
        key = str(self.index_storage_key)
        table, _ = read_columns(open_instrumented(store), key, key.split("/", maxsplit=1)[0])
        stored = table.schema.field(self.column).type if self.column in table.column_names else pa.null()
        data_type = self.dtype or plain_type(stored)
        # Without normalisation, the type of the index may be narrower than that of the file.
        data = kernel.index_from_table(table, self.column, data_type, key).cast(data_type)
        return self._new(column=self.column, data=data, dtype=data_type, index_storage_key=key)

    def store(self, store: StoreLike, dataset_uuid: str) -> str:
        """Write the index file and return its key, which the index keeps.

        An index without a file in this dataset gets a new one.

        Raises
        ------
        InvalidInput
            If the index is not loaded.
        """
        data, opened = self.pairs(), open_instrumented(store)
        uuid, key = check_uuid(dataset_uuid), self.index_storage_key
        # The file may belong to another dataset, which must not change.
        if key is None or not key.startswith((f"{uuid}/", f"{uuid}.")):
            self.index_storage_key = put_index(opened, uuid, data, self.creation_time)
            return self.index_storage_key
        opened.put(key, index_bytes(data))
        return key

    def unload(self) -> Self:
        """The index without its values; `load` reads them again.

        Raises
        ------
        InvalidInput
            If the index has no file.
        """
        if self.index_storage_key is None:
            raise InvalidInput(
                f"The index on column {self.column!r} has no storage key, so that its values would be lost. "
                "Store it first."
            )
        return self._new(column=self.column, data=None, dtype=self.dtype, index_storage_key=self.index_storage_key)

    def copy(self, **kwargs: object) -> Self:
        """A new object; keyword arguments of the constructor replace its content.

        With any argument, the copy has the given storage key or none.
        """
        if kwargs:
            return super().copy(**kwargs)
        return self._new(column=self.column, data=self.data, dtype=self.dtype, index_storage_key=self.index_storage_key)

    def _identity(self) -> tuple[Any, ...]:
        return (*super()._identity(), self.index_storage_key)

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"index_storage_key": self.index_storage_key}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.index_storage_key = state.get("index_storage_key")


# --- several indices ------------------------------------------------------------------------------


def merge_indices(list_of_indices: Sequence[Mapping[str, IndexBase]]) -> dict[str, IndexBase]:
    """Column → union of all indices on the column; their types must agree.

    Examples
    --------
    >>> one = {"BRAND": ExplicitSecondaryIndex("BRAND", {"Acme": ["DE/0"]})}
    >>> other = {"BRAND": ExplicitSecondaryIndex("BRAND", {"Acme": ["FR/0"]})}
    >>> merge_indices([one, other])["BRAND"].index_dct
    {'Acme': ['DE/0', 'FR/0']}
    """
    by_column: dict[str, list[IndexBase]] = {}
    for indices in list_of_indices:
        for column, index in indices.items():
            by_column.setdefault(column, []).append(index)
    return {column: union(indices[0], indices[1:]) for column, indices in by_column.items()}


def remove_partitions_from_indices(
    index_dict: Mapping[str, IndexBase], partitions: Iterable[str]
) -> dict[str, IndexBase]:
    """The indices without these labels."""
    removed = list(partitions)
    return {column: index.remove_partitions(removed) for column, index in index_dict.items()}


def filter_indices(index_dict: Mapping[str, IndexBase], partitions: Iterable[str]) -> dict[str, IndexBase]:
    """The indices with these labels only."""
    labels = list(partitions)
    result = {}
    for column, index in index_dict.items():
        left = kernel.keep_labels(index.known(), label_array(labels, column))
        result[column] = index if len(left) == len(index.known()) else index.replaced(left)
    return result


def query_labels(labels: Sequence[str], indices: Mapping[str, IndexBase], /, **values: object) -> list[str]:
    """Labels of the partitions that have all these values, in the order of ``labels``.

    Parameters
    ----------
    labels : list of str
        All partitions of the dataset.
    indices : mapping of str to IndexBase
        Loaded indices by column.
    **values
        Column → value of any type that `IndexBase.normalize_value` takes.

    Raises
    ------
    UnknownColumn
        If there is no index on a column.
    InvalidInput
        If an index is not loaded, or a value cannot be converted to its type.

    Examples
    --------
    >>> from kartothek_cube.api.dataset import ExplicitSecondaryIndex
    >>> brands = ExplicitSecondaryIndex("BRAND", {"Acme": ["DE/0", "FR/0"], "Umbra": ["FR/0"]})
    >>> query_labels(["FR/0", "DE/0", "NL/0"], {"BRAND": brands}, BRAND="Acme")
    ['FR/0', 'DE/0']
    """
    _check_indexed(values, indices)
    names = pa.array(labels, type=pa.string())
    mask = np.ones(len(names), dtype=bool)
    for column, value in values.items():
        # The last position, -1, is for labels that the dataset does not have.
        has_value = np.zeros(len(names) + 1, dtype=bool)
        has_value[indices[column].find(value).positions(names)] = True
        mask &= has_value[:-1]
    matching: list[str] = names.filter(pa.array(mask)).to_pylist()
    return matching


def _check_indexed(columns: Iterable[str], indices: Mapping[str, IndexBase]) -> None:
    unknown = sorted(set(columns) - set(indices))
    if unknown:
        raise UnknownColumn(f"Unknown index columns: {', '.join(unknown)}. There are indices on {sorted(indices)}.")


def indices_as_frame(
    labels: Sequence[str],
    indices: Mapping[str, IndexBase],
    columns: Iterable[str] | None = None,
    date_as_object: bool = True,
    predicates: IntoPredicates | None = None,
) -> pd.DataFrame:
    """One row per combination of the indexed values of a partition.

    Parameters
    ----------
    labels : list of str
        All partitions of the dataset, in the order of the rows; then rows are by value. Other
        labels in an index are ignored.
    indices : mapping of str to IndexBase
        Loaded indices by column.
    columns : list of str, optional
        Columns of the frame, in this order; by default all indices, by name. With no columns the
        frame has one row per label.
    date_as_object : bool, default True
        Dates as `datetime.date` objects and not as ``datetime64``.
    predicates : list of list of tuple, optional
        Keep matching rows. Clauses on columns without an index count as true.

    Returns
    -------
    pandas.DataFrame
        The frame's index ``partition`` has the labels. A partition that is missing in an index (all
        its rows are null there) has a null in that column; integers and booleans then have pandas'
        nullable types.

    Raises
    ------
    UnknownColumn
        If there is no index on a column.
    InvalidInput
        If an index is not loaded.

    Examples
    --------
    >>> from kartothek_cube.api.dataset import ExplicitSecondaryIndex
    >>> brands = ExplicitSecondaryIndex("BRAND", {"Acme": ["DE/0", "FR/0"], "Umbra": ["FR/0"]})
    >>> indices_as_frame(["DE/0", "FR/0", "NL/0"], {"BRAND": brands}).fillna("-")
               BRAND
    partition
    DE/0        Acme
    FR/0        Acme
    FR/0       Umbra
    NL/0           -
    """
    chosen = sorted(indices) if columns is None else list(columns)
    _check_indexed(chosen, indices)
    if len(set(chosen)) != len(chosen):
        raise InvalidInput(f"A column is asked for twice: {chosen}.")
    indexed = tuple(
        tuple(clause for clause in c if clause.column in indices) for c in parse_predicates(predicates) or ()
    )
    check_constants(
        chain.from_iterable(indexed), pa.schema([(c, indices[c].known().type) for c in columns_of(indexed)])
    )
    # A conjunction without a clause on an index is true for all rows.
    filters = indexed if indexed and all(indexed) else None
    extra = sorted(columns_of(filters) - set(chosen))
    names = pa.array(labels, type=pa.string())
    joined = _join(names, [indices[c].pairs() for c in [*chosen, *extra]])
    if filters is not None:
        joined = joined.take(np.flatnonzero(matching_rows(joined.values, filters)))
    if extra:
        # Columns that only the predicates need have multiplied the rows.
        by = ["", *chosen]
        keys = pa.table([pa.array(joined.label), *joined.values.select(chosen).columns], names=by)
        _, first = np.unique(pack_one(keys, by), return_index=True)
        joined = joined.take(np.sort(first))
    return _frame(names, joined, chosen, date_as_object)


class _Joined(Struct, frozen=True):
    """Rows of the frame: the position of the label, and the values."""

    label: IntArray
    values: pa.Table

    def take(self, rows: IntArray) -> _Joined:
        return _Joined(self.label[rows], take_rows(self.values, rows))


def _join(names: pa.Array, indices: Sequence[SecondaryIndex]) -> _Joined:
    """Every combination of the values of each label; null where a label has no value."""
    label = np.arange(len(names))
    picked: list[IntArray] = []  # per index: the pair of each row, or -1
    for index in indices:
        rows, pair = _matches(index.positions(names), label, len(names))
        label, picked = label[rows], [*(earlier[rows] for earlier in picked), pair]
    arrays = [
        i.values.take(pa.array(np.maximum(pair, 0), mask=pair < 0)) for i, pair in zip(indices, picked, strict=True)
    ]
    return _Joined(label, pa.table(arrays, names=[i.column for i in indices]))


def _matches(positions: IntArray, label: IntArray, n: int) -> tuple[IntArray, IntArray]:
    """All pairs of the label of each row, or -1: the number of the row, and the pair."""
    order = np.argsort(positions, kind="stable")
    order = order[np.searchsorted(positions[order], 0) :]
    counts = np.bincount(positions[order], minlength=n)
    slots = np.append(order, -1)  # rows without a pair point to the last slot
    # Rows of one label are neighbours in `order`: a range per label, of length 1 if it has no pair.
    first = np.where(counts > 0, np.cumsum(counts) - counts, len(order))
    rows, slot = expand_ranges(first[label], np.maximum(counts, 1)[label])
    return rows, slots[slot]


def _frame(names: pa.Array, joined: _Joined, columns: Sequence[str], date_as_object: bool) -> pd.DataFrame:
    import pandas as pd

    table = joined.values.select(list(columns))
    frame = (
        to_frame(table, dates_as_object=date_as_object, nullable=True)
        if columns
        else pd.DataFrame(index=range(len(joined.label)))
    )
    # kartothek gives the index no name if there are no columns.
    frame.index = pd.Index(names.take(pa.array(joined.label)).to_pandas(), name="partition" if columns else None)
    return frame
