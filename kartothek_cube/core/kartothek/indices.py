"""`PartitionIndex`, `ExplicitSecondaryIndex`, and kartothek's functions on several indices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from kartothek_cube.core.arrow.keys import IntArray, expand_ranges, pack_one, take_rows
from kartothek_cube.core.arrow.pandas import to_frame
from kartothek_cube.core.arrow.types import plain_type
from kartothek_cube.core.commit.commit import put_index
from kartothek_cube.core.expressions.predicates import check_constants, columns_of, matching_rows, parse_predicates
from kartothek_cube.core.io.parquet import read_columns
from kartothek_cube.core.kartothek.index_base import IndexBase, IndexDict, union
from kartothek_cube.core.kartothek.index_values import label_array
from kartothek_cube.core.metadata import index as kernel
from kartothek_cube.core.metadata.index import SecondaryIndex
from kartothek_cube.core.metadata.naming import check_uuid
from kartothek_cube.core.snapshots.loader import index_bytes
from kartothek_cube.core.stores.open import open_instrumented
from kartothek_cube.errors import InvalidInput, InvalidType, UnknownColumn
from kartothek_cube.typing import IntoPredicates, StoreLike

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "ExplicitSecondaryIndex",
    "IndexBase",
    "PartitionIndex",
    "filter_indices",
    "indices_as_frame",
    "merge_indices",
    "query_labels",
    "remove_partitions_from_indices",
]


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
    >>> from kartothek_cube.core.stores.open import open_store
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
    >>> from kartothek_cube.core.kartothek.indices import ExplicitSecondaryIndex
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
    >>> from kartothek_cube.core.kartothek.indices import ExplicitSecondaryIndex
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


@dataclass(frozen=True, slots=True)
class _Joined:
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
