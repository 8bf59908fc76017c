"""`DatasetFactory`, a dataset that is loaded on first access, and kartothek's store functions."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

from kartothek_cube.core.kartothek.dataset_metadata import DatasetMetadata, DatasetMetadataBase
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.snapshots.time_travel import AsOf, check_as_of, load_snapshot_as_of
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.stores.key_value import is_key_value_store
from kartothek_cube.core.stores.open import StoreFactory, open_instrumented, open_store
from kartothek_cube.errors import InvalidType
from kartothek_cube.typing import StoreLike

__all__ = ["DatasetFactory", "ensure_store", "lazy_store"]


def ensure_store(store: StoreLike) -> Store:
    """Open a store, given in any form that `open_store` takes. No call of the store is made.

    The result has ``keys``, ``iter_keys``, ``in`` and ``open`` of simplekv.

    Raises
    ------
    InvalidType
        If ``store`` is none of these forms.
    InvalidInput
        If a URL is unknown or malformed.

    Examples
    --------
    >>> ensure_store("hmemory://sales")
    <MemoryStore hmemory://sales>
    """
    return open_store(store)


def lazy_store(store: StoreLike) -> Callable[[], Store]:
    """A function without arguments that opens the store at each call.

    The function is picklable if ``store`` is.

    Raises
    ------
    InvalidType
        If ``store`` is no URL, path, store or function. A wrong URL fails when the function is
        called.

    Examples
    --------
    >>> open_sales = lazy_store("hmemory://sales")
    >>> open_sales() == ensure_store("hmemory://sales")
    True
    """
    if isinstance(store, StoreFactory):
        return store
    if isinstance(store, (str, os.PathLike, Store)) or (is_key_value_store(store) and not isinstance(store, type)):
        return partial(open_store, store)
    if callable(store):
        return StoreFactory(store)
    raise InvalidType(
        f"Provided incompatible store type {type(store).__name__}. "
        "A store is a URL, a path, a store object, or a function that returns one of these."
    )


class DatasetFactory(DatasetMetadataBase):
    """A dataset that is loaded on first access and then kept until `invalidate`.

    It has all attributes of `DatasetMetadata`. Functions with ``factory=`` use the loaded state,
    and keep in the factory the indices that they load. Pickling drops the loaded state; a copy
    keeps it.

    Parameters
    ----------
    dataset_uuid : str
        Name of the dataset.
    store_factory : str, path, store or callable
        The store, in any form that `open_store` takes.
    load_schema : bool, default True
        Whether to load the schemas.
    load_all_indices : bool, default False
        Whether to load all indices with the dataset.
    load_dataset_metadata : bool, default True
        Whether to keep the user metadata.
    as_of : str or datetime, optional
        Id of a commit, a tag, or a moment (without a zone: UTC): load this past state.

    Raises
    ------
    InvalidType
        If ``store_factory`` cannot be opened.
    DatasetNotFound
        On first access, if the dataset does not exist.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.api.cube import Cube, build_cube
    >>> from kartothek_cube.core.stores.open import open_store
    >>> store = open_store("hmemory://")
    >>> sales = pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]})
    >>> _ = build_cube(sales, Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales"), store)
    >>> factory = DatasetFactory("sales++seed", store)
    >>> factory
    <DatasetFactory: uuid=sales++seed is_loaded=False>
    >>> factory.partition_keys, factory.is_loaded
    (['COUNTRY_CODE'], True)
    """

    def __init__(
        self,
        dataset_uuid: str,
        store_factory: StoreLike,
        load_schema: bool = True,
        load_all_indices: bool = False,
        load_dataset_metadata: bool = True,
        *,
        as_of: AsOf | None = None,
    ) -> None:
        self.dataset_uuid = dataset_uuid
        self.as_of: AsOf | None = check_as_of(as_of)
        self.store_factory: Callable[[], Store] = lazy_store(store_factory)
        self.load_schema = load_schema
        self.load_dataset_metadata = load_dataset_metadata
        self._load_all_indices = load_all_indices
        self.invalidate()  # sets the loaded state to None

    def invalidate(self) -> None:
        """Drop the loaded state and the opened store."""
        self._store: Store | None = None
        self._dataset: DatasetMetadata | None = None
        self._snapshot: Snapshot | None = None

    @property
    def is_loaded(self) -> bool:
        """Whether the dataset is loaded."""
        return self._dataset is not None

    @property
    def store(self) -> Store:
        """The opened store."""
        if self._store is None:
            self._store = self.store_factory()
        return self._store

    @property
    def dataset_metadata(self) -> DatasetMetadata:
        """The dataset; loads it if needed."""
        if self._dataset is None:
            read = DatasetMetadata.load_from_store(
                self.dataset_uuid, self.store, self.load_schema, self._load_all_indices, as_of=self.as_of
            )
            self._dataset = read if self.load_dataset_metadata else read.without_metadata()
        return self._dataset

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot for functions that take this factory."""
        if self.load_schema:
            return self.dataset_metadata.snapshot
        if self._snapshot is None:
            # Schemas are read here, because planning needs types; the factory still shows none.
            self._snapshot = load_snapshot_as_of(open_instrumented(self.store), self.dataset_uuid, self.as_of)
        return self._snapshot

    def remember(self, snapshot: Snapshot) -> None:
        """Keep the loaded indices of a snapshot, which must have the state of this factory."""
        if self.load_schema:
            self._dataset = self.dataset_metadata.with_snapshot(snapshot)
        else:
            self._snapshot = snapshot

    def load_index(self, column: str, store: StoreLike | None = None) -> DatasetFactory:
        """Load an index and return this factory; errors as of `DatasetMetadata.load_index`."""
        self._dataset = self.dataset_metadata.load_index(column, self.store if store is None else store)
        return self

    def load_all_indices(self, store: StoreLike | None = None, load_partition_indices: bool = True) -> DatasetFactory:
        """Load all indices and return this factory; errors as of `DatasetMetadata.load_index`."""
        opened = self.store if store is None else store
        self._dataset = self.dataset_metadata.load_all_indices(opened, load_partition_indices)
        return self

    def load_partition_indices(self) -> DatasetFactory:
        """Load the indices of the partition keys and return this factory."""
        self._dataset = self.dataset_metadata.load_partition_indices()
        return self

    def __getattr__(self, name: str) -> Any:
        # Unpickling and copying ask for private names before they exist: without this line the
        # access to `_dataset` would recurse.
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.dataset_metadata, name)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_store": None, "_dataset": None, "_snapshot": None}

    def __copy__(self) -> DatasetFactory:
        made = DatasetFactory.__new__(DatasetFactory)
        made.__dict__.update(self.__dict__)
        return made

    def __deepcopy__(self, memo: object) -> DatasetFactory:
        # All members are immutable, so a shallow copy is enough.
        return self.__copy__()

    def __repr__(self) -> str:
        return f"<DatasetFactory: uuid={self.dataset_uuid} is_loaded={self.is_loaded}>"
