"""Changing the encoding of a dataset's document."""

from __future__ import annotations

from kartothek_cube.core.compat.dataset_metadata import DatasetMetadata
from kartothek_cube.core.dataset.arguments import source_of
from kartothek_cube.core.maintenance.convert import convert_document
from kartothek_cube.core.options import Overrides
from kartothek_cube.core.snapshots import load_snapshot
from kartothek_cube.core.telemetry import operation
from kartothek_cube.typing import StoreLike

__all__ = ["convert_metadata_format"]


def convert_metadata_format(dataset_uuid: str, store: StoreLike, metadata_storage_format: str, *, options: Overrides | None = None) -> DatasetMetadata:
    """Store a dataset's document as JSON or as compressed msgpack. Its content stays the same.

    This is the only way to change the encoding. Whoever commits with this library at the same time gets `CommitConflict`, so that
    no commit is lost; other libraries must not write meanwhile. After an interruption the dataset can be read, and calling this
    again, with either format, ends it.

    Parameters
    ----------
    dataset_uuid : str
        The dataset.
    store : str, path, store or callable
        Where it lies; everything that `open_store` takes.
    metadata_storage_format : {"json", "msgpack"}
        The encoding, in any case. If it is the present one, only what an interrupted conversion left is cleared away, and a
        second document in the other encoding, which kartothek leaves behind when it updates a dataset with a msgpack document.
    options : optional
        What `options` returns: settings for this call.

    Returns
    -------
    DatasetMetadata
        The dataset as it is now.

    Raises
    ------
    InvalidInput
        If the format is unknown, or cannot hold the dataset's metadata.
    DatasetNotFound
        If the dataset does not exist.
    CommitConflict
        If somebody changed the dataset at the same time; call it again.
    AtomicityRequired, ReadOnlyStore
        If the store cannot compare and swap, or cannot be written to.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import convert_metadata_format, store_dataframes_as_dataset
    >>> store = open_store("hmemory://")
    >>> _ = store_dataframes_as_dataset(store, "sales", [pd.DataFrame({"PRODUCT_ID": [1, 2]})])
    >>> _ = convert_metadata_format("sales", store, "msgpack")
    >>> store.list().keys
    ['sales.by-dataset-metadata.msgpack.zstd']
    """
    with operation("convert_metadata_format", options):
        source = source_of(dataset_uuid, store, None)
        convert_document(source.store, source.uuid, metadata_storage_format)
        return DatasetMetadata.of(load_snapshot(source.store, source.uuid))
