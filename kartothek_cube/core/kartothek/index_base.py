"""`IndexBase`: which partitions hold which values of one column, with kartothek's methods; a façade over pairs of value and label in Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

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
    """Which partitions hold a value of one column.

    Values and labels are Arrow arrays; a dict is made of them only when it is asked for. The order
    of labels, and of values wherever they come as a list, is ascending. Nulls are never in an
    index.

    Parameters
    ----------
    column : str
        The indexed column.
    index_dct : mapping, optional
        Value → list of the labels of partitions that hold it. Without it the index is not loaded,
        and whatever needs its values raises.
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
        When this object got its values (UTC, without zone); part of the key of an index that is
        stored for the first time.

    Raises
    ------
    InvalidInput
        If the values do not fit the type or have none, or the column is called ``partition``.
    InvalidType
        If a value is null, or the labels are no list of text.
    Unsupported
        If columns of this type cannot be indexed.

    Examples
    --------
    >>> import pyarrow as pa
    >>> index = IndexBase("COUNTRY_CODE", {"FR": ["COUNTRY_CODE=FR/0"], "DE": ["COUNTRY_CODE=DE/0", "COUNTRY_CODE=DE/1"]}, dtype=pa.string())
    >>> index.query("DE")
    ['COUNTRY_CODE=DE/0', 'COUNTRY_CODE=DE/1']
    >>> sorted(index.eval_operator(">", "DE"))
    ['COUNTRY_CODE=FR/0']
    """

    __slots__ = ("_data", "_dict", "_is_sorted", "column", "creation_time", "dtype")
    __hash__ = None  # type: ignore[assignment]

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
        kind = values_of.index_kind(given, column, normalize_dtype or dtype is None)
        if kind is None and index_dct is not None and not self._is_named():
            raise InvalidInput(
                f"Trying to create non-typesafe index: the one on column {column!r} has no values, so that it needs `dtype`."
            )
        data = values_of.pairs_of(column, index_dct, kind) if index_dct is not None and kind is not None else None
        self.__setstate__({"column": str(column), "data": data, "dtype": kind})

    def _is_named(self) -> bool:
        return False

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
        """The pairs of value and label, each once, sorted by value and then label.

        Raises
        ------
        InvalidInput
            If the index is not loaded.
        """
        if not self._is_sorted:
            self._data = kernel.distinct_pairs(self.known())
            self._is_sorted = True
        return self.known()

    def known(self) -> SecondaryIndex:
        """The pairs of value and label in any order, where some may occur twice; errors as of `pairs`."""
        if self._data is None:
            raise InvalidInput(
                f"The index on column {self.column!r} is not loaded, so that its values are not known. "
                f"Load it first: `dataset.load_index({self.column!r}, store)`, or `load(store)` of the index."
            )
        return self._data

    @property
    def index_dct(self) -> dict[Any, list[str]]:
        """Value → labels; empty while the index is not loaded.

        It is made once: changing the dict does not change the index.
        """
        if self._dict is None and self.loaded:
            self._dict = values_of.dict_of(self.pairs())
        return self._dict or {}

    def to_dict(self) -> dict[Any, list[str]]:
        """Value → labels, as a dict of its own; empty while the index is not loaded."""
        return values_of.dict_of(self.pairs()) if self.loaded else {}

    def observed_values(self, date_as_object: bool = True) -> np.ndarray[Any, Any]:
        """The distinct values, ascending; dates as `datetime.date` or as ``datetime64``, moments with a zone as `pandas.Timestamp`."""
        values = self.pairs().values
        return values_of.numpy_values(values.take(pa.array(kernel.run_starts(values))), date_as_object)

    # --- questions --------------------------------------------------------------------------------

    @staticmethod
    def normalize_value(dtype: pa.DataType | None, value: object) -> Any:
        """A value of a lenient type as the value that an index of this type would have.

        Text and bytes become each other; anything is taken for text; numbers are cut to integers;
        the words true and false are booleans; text and moments become dates and moments. A moment
        without zone means UTC.

        Raises
        ------
        InvalidInput
            If the value cannot be taken for this type, or the type is None.
        InvalidType
            If the value is null.
        Unsupported
            If columns of this type cannot be indexed.

        Examples
        --------
        >>> import pyarrow as pa
        >>> IndexBase.normalize_value(pa.int64(), "7"), IndexBase.normalize_value(pa.bool_(), "TRUE"), IndexBase.normalize_value(pa.string(), 7)
        (7, True, '7')
        """
        return values_of.normalize_value(dtype, value)

    def find(self, value: object) -> SecondaryIndex:
        """The pairs with this value, which may have any type that `normalize_value` takes."""
        data = self.known()
        return data.select([Clause(self.column, "==", values_of.normalize_value(self.dtype, value))])

    def query(self, value: object) -> list[str]:
        """The labels of partitions that hold this value, ascending; the value may have any type that `normalize_value` takes.

        Raises
        ------
        InvalidInput
            If the index is not loaded, or the value cannot be taken for its type.
        InvalidType
            If the value is null: an index knows no nulls.
        """
        return _sorted_texts(kernel.index_labels(self.find(value)))

    def eval_operator(self, op: str, value: object) -> set[str]:
        """The labels of partitions that hold a value for which the comparison is true.

        Operators, and types of the constant, are those of predicates. As the index does not know
        nulls, partitions whose rows satisfy the comparison by a null only are not among them.

        Raises
        ------
        InvalidInput
            If the index is not loaded.
        InvalidType
            If the constant may not be compared with the column.
        Unsupported
            If there is no such operator.
        """
        data = self.known()
        clauses = (parse_predicates([[(self.column, op, value)]]) or ((),))[0]
        check_constants(clauses, pa.schema([(self.column, data.values.type)]))
        return set(_sorted_texts(kernel.index_labels(data.select(clauses))))

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
            One entry a value with the array of its labels, and not one entry a pair.
        partitions_as_index : bool, default False
            From labels to values, and not from values to labels.
        date_as_object : bool, default False
            Dates as `datetime.date` objects and not as ``datetime64``.
        predicates : list of list of tuple, optional
            Keep the values that satisfy them. Clauses on other columns count as true.

        Examples
        --------
        >>> IndexBase("PRODUCT_ID", {1: ["a", "b"], 2: ["a"]}).as_flat_series()
        PRODUCT_ID
        1    a
        1    b
        2    a
        Name: partition, dtype: ...
        """
        return values_of.flat_series(self._restricted(predicates), compact, partitions_as_index, date_as_object)

    def _restricted(self, predicates: IntoPredicates | None) -> SecondaryIndex:
        pairs = self.pairs()
        conjunctions = [
            [c for c in conjunction if c.column == self.column] for conjunction in parse_predicates(predicates) or ()
        ]
        if not conjunctions or not all(conjunctions):
            return pairs
        check_constants(chain.from_iterable(conjunctions), pa.schema([(self.column, pairs.values.type)]))
        return kernel.distinct_pairs(pairs.filter(values_of.satisfying(pairs.values, conjunctions)))

    # --- changes ----------------------------------------------------------------------------------

    def update(self, index: IndexBase, inplace: bool = False) -> Self:
        """The pairs of both indices; this object if the other has none.

        Raises
        ------
        InvalidInput
            If the other index is on another column.
        InvalidType
            If it has another type, or is no index.
        """
        added = _joinable(self, index)
        return (
            self.replaced(kernel.distinct_pairs(kernel.merge_indices([self.known(), added])), inplace)
            if len(added)
            else self
        )

    def remove_partitions(self, list_of_partitions: Iterable[str], inplace: bool = False) -> Self:
        """The index without these labels, and without values that no label is left for; this object if it has none of them."""
        data = self.known()
        left = kernel.drop_labels(data, values_of.label_array(list_of_partitions, self.column))
        return self._unless_equal(left, data, inplace)

    def remove_values(self, list_of_values: Iterable[Any], inplace: bool = False) -> Self:
        """The index without these values, which may have any type that `normalize_value` takes; this object if it has none of them."""
        data = self.known()
        removed = values_of.values_array(list(list_of_values), data.values.type, self.column).to_pylist()
        return self._unless_equal(data.select([Clause(self.column, "not in", tuple(removed))]), data, inplace)

    def _unless_equal(self, data: SecondaryIndex, old: SecondaryIndex, inplace: bool) -> Self:
        return self if len(data) == len(old) else self.replaced(data, inplace)

    def replaced(self, data: SecondaryIndex, inplace: bool = False) -> Self:
        """An index with other pairs, as an object of its own or in place."""
        if not inplace:
            return self._new(column=self.column, data=data, dtype=self.dtype)
        self.__setstate__({"column": self.column, "data": data, "dtype": self.dtype})
        return self

    def copy(self, **kwargs: object) -> Self:
        """Another object with the same content, but for the arguments of the constructor that are given."""
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
        data = self.pairs() if self.loaded else None
        return {"column": self.column, "data": data, "dtype": self.dtype, "creation_time": self.creation_time}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.column, self.dtype, self._data = state["column"], state["dtype"], state["data"]
        self.creation_time = state.get("creation_time") or datetime.now(UTC).replace(tzinfo=None)
        self._dict, self._is_sorted = None, False


def _sorted_texts(labels: pa.Array) -> list[str]:
    found: list[str] = labels.to_pylist()
    return found


def _table(pairs: SecondaryIndex) -> pa.Table:
    return pa.table({"values": pairs.values, "labels": pairs.labels})


def union(first: IndexBase, others: Sequence[IndexBase]) -> IndexBase:
    """The pairs of several indices on one column; the first one itself if the others have none."""
    added = [data for other in others if len(data := _joinable(first, other))]
    return first.replaced(kernel.distinct_pairs(kernel.merge_indices([first.known(), *added]))) if added else first


def _joinable(first: IndexBase, other: object) -> SecondaryIndex:
    """The pairs of the other index, if it can be joined to the first."""
    if not isinstance(other, IndexBase):
        raise InvalidType(
            f"Need an index object to update the index on column {first.column!r}, got {type(other).__name__}."
        )
    if other.column != first.column:
        raise InvalidInput(f"Trying to update an index on column {first.column!r} with one on {other.column!r}.")
    if other.known().values.type != first.known().values.type:
        raise InvalidType(
            f"Trying to update an index with different types: the one on column {first.column!r} is {first.dtype}, the other {other.dtype}."
        )
    return other.known()
