"""Deleting a dataset."""

from __future__ import annotations

from typing import overload

from kartothek_cube.core.compat.factory import DatasetFactory
from kartothek_cube.core.dataset.arguments import source_of
from kartothek_cube.core.maintenance.delete import delete_dataset as run_deletion
from kartothek_cube.core.options import Overrides
from kartothek_cube.core.parallel import THREADS, Executor
from kartothek_cube.core.telemetry import operation
from kartothek_cube.typing import StoreLike

__all__ = ["delete_dataset", "delete_dataset_on"]


@overload
def delete_dataset(dataset_uuid: str, store: StoreLike, *, options: Overrides | None = None) -> None: ...


@overload
def delete_dataset(*, factory: DatasetFactory, options: Overrides | None = None) -> None: ...


def delete_dataset(
    dataset_uuid: str | None = None, store: StoreLike | None = None, factory: DatasetFactory | None = None, *, options: Overrides | None = None
) -> None:
    """Delete a dataset: its history, garbage, index files, data files and schema files, and last its document.

    Whoever reads the dataset meanwhile may miss files. If it is interrupted, the dataset is still there in name: call it again.
    There is no grace period. Files that lie elsewhere are deleted if the document names them, but not those of another dataset: these
    stay, and a warning is logged. Keys below ``<uuid>/`` that are not the library's stay, too.

    Parameters
    ----------
    dataset_uuid : str
        The dataset.
    store : str, path, store or callable
        Where it lies; everything that `open_store` takes.
    factory : DatasetFactory, optional
        Instead of ``dataset_uuid`` and ``store``. It forgets what it has read.
    options : optional
        What `options` returns: settings for this call.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist.
    CorruptDocument
        If its document cannot be read; nothing is removed then. Schema files may be damaged or missing.
    ReadOnlyStore
        If the store cannot be written to.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import delete_dataset, store_dataframes_as_dataset
    >>> store = open_store("hmemory://")
    >>> _ = store_dataframes_as_dataset(store, "sales", [pd.DataFrame({"PRODUCT_ID": [1, 2]})])
    >>> delete_dataset("sales", store)
    >>> store.list(recursive=True).keys
    []
    """
    with operation("delete_dataset", options):
        delete_dataset_on(THREADS, dataset_uuid, store, factory)


def delete_dataset_on(executor: Executor, dataset_uuid: str | None, store: StoreLike | None, factory: DatasetFactory | None) -> None:
    """Delete a dataset as `delete_dataset` does, inside an operation; the executor removes the files."""
    source = source_of(dataset_uuid, store, factory)
    try:
        run_deletion(source.store, source.uuid, executor)
    finally:
        if source.factory is not None:
            source.factory.invalidate()
