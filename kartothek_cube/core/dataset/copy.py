"""Copy and rename a dataset."""

from __future__ import annotations

from kartothek_cube.core.arguments import check_flag
from kartothek_cube.core.dataset.reference import dataset_ref
from kartothek_cube.core.kartothek.dataset_metadata import DatasetMetadata
from kartothek_cube.core.maintenance.copy import copy_dataset as run_copy
from kartothek_cube.core.maintenance.copy import rename_dataset as run_rename
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

    The copy has the state at the begin of the call, without garbage, and becomes visible when all
    files are stored; then it gets the tags, each with its state. It keeps the encoding of the
    document and the metadata with ``creation_time``; its history starts anew. Inside one store the
    store itself copies the files; between two stores they are streamed. See the page *Maintenance*.

    Parameters
    ----------
    source_dataset_uuid : str
        The dataset.
    store : str, path, store or callable
        The store, in any form that `open_store` takes.
    target_dataset_uuid : str, optional
        Name of the copy; by default the same.
    target_store : str, path, store or callable, optional
        Store of the copy; by default the same.
    overwrite : bool, default False
        Replace an existing target. The target keeps its encoding; its files become garbage.
    options : optional
        Settings for this call, from `options`.

    Returns
    -------
    dict of str to DatasetMetadata
        Key of the document of the copy → the copy.

    Raises
    ------
    InvalidInput
        If source and target are the same, or a name is not valid.
    DatasetNotFound
        If the dataset does not exist.
    AlreadyExists
        If the target exists and ``overwrite`` is False.
    KeyNotFound
        If a file vanished during the call. The copy does not exist then.
    CommitConflict
        If another writer changed the target during the call.

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
    """`copy_dataset` inside an operation; the executor copies the files."""
    replaces = check_flag(overwrite, "overwrite")
    source = dataset_ref(source_dataset_uuid, store, None)
    target = source.store if target_store is None else open_instrumented(target_store)
    new_uuid = source.uuid if target_dataset_uuid is None else target_dataset_uuid
    copied = run_copy(source.store, source.uuid, target, new_uuid, overwrite=replaces, executor=executor)
    return {copied.key: DatasetMetadata.of(copied)}


def rename_dataset(
    dataset_uuid: str, store: StoreLike, new_uuid: str, *, options: Overrides | None = None
) -> DatasetMetadata:
    """Rename a dataset: copy it inside its store, then delete the original.

    The original is locked against commits before it is deleted. If the call is interrupted during
    the deletion, call it again. If it is interrupted earlier, both datasets are complete; delete
    the copy before the next attempt. See the page *Maintenance*.

    Parameters
    ----------
    dataset_uuid : str
        The dataset.
    store : str, path, store or callable
        The store, in any form that `open_store` takes.
    new_uuid : str
        The new name.
    options : optional
        Settings for this call, from `options`.

    Returns
    -------
    DatasetMetadata
        The dataset under its new name.

    Raises
    ------
    InvalidInput
        If the new name is not valid, or equals the old name.
    DatasetNotFound
        If the dataset does not exist.
    AlreadyExists
        If a dataset has the new name. Nothing was changed.
    CommitConflict
        If the dataset changed while it was copied. Both exist then: the dataset, and a copy of the
        older state.

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
