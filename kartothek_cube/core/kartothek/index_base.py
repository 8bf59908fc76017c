"""`IndexBase`: kartothek's index of one column, over Arrow pairs of value and label."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from kartothek_cube.core.expressions.predicates import Clause, check_constants, parse_predicates
from kartothek_cube.core.kartothek import index_values as values_of
from kartothek_cube.core.metadata import index as kernel
from kartothek_cube.core.metadata.index import SecondaryIndex
from kartothek_cube.errors import InvalidInput, InvalidType
from kartothek_cube.typing import IntoPredicates

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["IndexBase", "IndexDict", "union"]

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
        given = values_of.infer_type(list(index_dct), column) if dtype is None and index_dct else dtype
        # Inferred types are always normalised.
        data_type = values_of.index_data_type(given, column, normalize_dtype or dtype is None)
        # An empty index that has a file gets its type from the file.
        if data_type is None and index_dct is not None and not getattr(self, "index_storage_key", None):
            raise InvalidInput(
                f"Trying to create non-typesafe index: the one on column {column!r} has no values, "
                "so that it needs `dtype`."
            )
        data = None
        if index_dct is not None and data_type is not None:
            data = values_of.pairs_of(column, index_dct, data_type)
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
            self._dict = values_of.dict_of(self.pairs())
        return self._dict or {}

    def to_dict(self) -> dict[Any, list[str]]:
        """A new dict value → labels; empty while the index is not loaded."""
        return values_of.dict_of(self.pairs()) if self.loaded else {}

    def observed_values(self, date_as_object: bool = True) -> np.ndarray[Any, Any]:
        """The distinct values, ascending.

        Dates are `datetime.date` or ``datetime64``, moments with a zone `pandas.Timestamp`.
        """
        values = self.pairs().values
        return values_of.numpy_values(values.take(pa.array(kernel.run_starts(values))), date_as_object)

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
        return values_of.normalize_value(dtype, value)

    def find(self, value: object) -> SecondaryIndex:
        """The pairs with this value, which may have any type that `normalize_value` takes."""
        data = self.known()
        return data.select([Clause(self.column, "==", values_of.normalize_value(self.dtype, value))])

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
            pairs = kernel.distinct_pairs(pairs.filter(values_of.satisfying(pairs.values, conjunctions)))
        return values_of.flat_series(pairs, compact, partitions_as_index, date_as_object)

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
        left = kernel.drop_labels(data, values_of.label_array(list_of_partitions, self.column))
        return self._unless_equal(left, data, inplace)

    def remove_values(self, list_of_values: Iterable[Any], inplace: bool = False) -> Self:
        """The index without these values; this object if the index has none of them.

        Values may have any type that `normalize_value` takes.
        """
        data = self.known()
        removed = values_of.values_array(list(list_of_values), data.type, self.column).to_pylist()
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
