"""Copying and renaming datasets."""

from __future__ import annotations

from kartothek_cube.core.arguments import check_flag
from kartothek_cube.core.dataset.reference import dataset_ref
from kartothek_cube.core.kartothek.dataset_metadata import DatasetMetadata
from kartothek_cube.core.maintenance.copy import copy_dataset as run_copy
from kartothek_cube.core.maintenance.rename import rename_dataset as run_rename
from kartothek_cube.core.runtime.executor import THREADS, Executor
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.stores.open import open_instrumented
from kartothek_cube.typing import StoreLike

__all__ = ["copy_dataset", "copy_dataset_on", "rename_dataset"]


def copy_dataset(
    source_dataset_uuid: str,
    store: StoreLike,
    target_dataset_uuid: str | None = None,
    target_store: StoreLike | None = None,
    *,
    overwrite: bool = False,
    options: Overrides | None = None,
) -> dict[str, DatasetMetadata]:
    """Copy a dataset, under another name or to another store.

    What is copied is the dataset as it is when the call begins, without garbage; the copy becomes
    visible when all files are there. It keeps the encoding of the document and the metadata with
    ``creation_time``; its history begins anew. Inside one store the store copies the files itself,
    between two stores they are streamed.

    Parameters
    ----------
    source_dataset_uuid : str
        The dataset.
    store : str, path, store or callable
        Where it lies; everything that `open_store` takes.
    target_dataset_uuid : str, optional
        Name of the copy; by default the same.
    target_store : str, path, store or callable, optional
        Where the copy goes; by default the same store.
    overwrite : bool, default False
        Replace a dataset of this name. It keeps its encoding, and its files become garbage.
    options : optional
        What `options` returns: settings for this call.

    Returns
    -------
    dict of str to DatasetMetadata
        Key of the document of the copy → the copy.

    Raises
    ------
    InvalidInput
        If source and target are the same place, or a name is none.
    DatasetNotFound
        If the dataset does not exist.
    AlreadyExists
        If the target does, and ``overwrite`` is False.
    KeyNotFound
        If a file has vanished since the call began; the copy does not exist then.
    CommitConflict
        If somebody else wrote to the target while it was to be overwritten.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import copy_dataset, store_dataframes_as_dataset
    >>> store = open_store("hmemory://")
    >>> _ = store_dataframes_as_dataset(store, "sales", [pd.DataFrame({"PRODUCT_ID": [1, 2]})])
    >>> list(copy_dataset("sales", store, "sales_2024"))
    ['sales_2024.by-dataset-metadata.json']
    """
    with operation("copy_dataset", options):
        return copy_dataset_on(
            THREADS, source_dataset_uuid, store, target_dataset_uuid, target_store, overwrite=overwrite
        )


def copy_dataset_on(
    executor: Executor,
    source_dataset_uuid: str,
    store: StoreLike,
    target_dataset_uuid: str | None,
    target_store: StoreLike | None,
    *,
    overwrite: bool,
) -> dict[str, DatasetMetadata]:
    """Copy a dataset as `copy_dataset` does, inside an operation; the executor copies the files."""
    replaces = check_flag(overwrite, "overwrite")
    source = dataset_ref(source_dataset_uuid, store, None)
    target = source.store if target_store is None else open_instrumented(target_store)
    new_uuid = source.uuid if target_dataset_uuid is None else target_dataset_uuid
    copied = run_copy(source.store, source.uuid, target, new_uuid, overwrite=replaces, executor=executor)
    return {copied.key: DatasetMetadata.of(copied)}


def rename_dataset(
    dataset_uuid: str, store: StoreLike, new_uuid: str, *, options: Overrides | None = None
) -> DatasetMetadata:
    """Give a dataset another name: copy it inside its store, then delete the original.

    Nobody can commit onto the original any more when it goes. If the call is interrupted while the
    original is being deleted, calling it again ends it; if it is interrupted before, both datasets
    are whole, and the copy is in the way of another try.

    Parameters
    ----------
    dataset_uuid : str
        The dataset.
    store : str, path, store or callable
        Where it lies; everything that `open_store` takes.
    new_uuid : str
        Its new name.
    options : optional
        What `options` returns: settings for this call.

    Returns
    -------
    DatasetMetadata
        The dataset under its new name.

    Raises
    ------
    InvalidInput
        If the new name is none, or is the old one.
    DatasetNotFound
        If the dataset does not exist.
    AlreadyExists
        If there is a dataset of the new name. Nothing was changed.
    CommitConflict
        If the dataset was changed while it was being copied. It is still there; so is the copy of
        its older state.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import rename_dataset, store_dataframes_as_dataset
    >>> store = open_store("hmemory://")
    >>> _ = store_dataframes_as_dataset(store, "sales", [pd.DataFrame({"PRODUCT_ID": [1, 2]})])
    >>> rename_dataset("sales", store, "sales_2024").uuid
    'sales_2024'
    """
    with operation("rename_dataset", options):
        source = dataset_ref(dataset_uuid, store, None)
        return DatasetMetadata.of(run_rename(source.store, source.uuid, new_uuid))
