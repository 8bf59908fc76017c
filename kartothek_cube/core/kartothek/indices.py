"""`PartitionIndex`, `ExplicitSecondaryIndex`, and kartothek's functions on several indices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import pyarrow as pa

from kartothek_cube.core.arrow.schema import plain_type
from kartothek_cube.core.commit.commit import index_bytes, put_index
from kartothek_cube.core.io.parquet import read_columns
from kartothek_cube.core.kartothek.index_base import IndexBase, IndexDict, union
from kartothek_cube.core.kartothek.index_values import label_array
from kartothek_cube.core.metadata import index as kernel
from kartothek_cube.core.metadata.index import SecondaryIndex
from kartothek_cube.core.metadata.naming import check_uuid
from kartothek_cube.core.stores.open import open_instrumented
from kartothek_cube.errors import InvalidInput, InvalidType
from kartothek_cube.typing import StoreLike

__all__ = [
    "ExplicitSecondaryIndex",
    "IndexBase",
    "PartitionIndex",
    "filter_indices",
    "merge_indices",
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
        return cls._new(column=index.column, data=index, dtype=index.values.type)


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
        return cls._new(column=index.column, data=index, dtype=index.values.type, index_storage_key=key)

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
        data = kernel.index_from_table(table, self.column, data_type, key)
        # Without normalisation, the type of the index may be narrower than that of the file.
        data = SecondaryIndex(self.column, data.values.cast(data_type), data.labels)
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
