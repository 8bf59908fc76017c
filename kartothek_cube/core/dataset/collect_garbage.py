"""Removing the files of a dataset that it no longer names."""

from __future__ import annotations

from typing import Any

from kartothek_cube.core.dataset.arguments import check_flag, source_of
from kartothek_cube.core.maintenance.garbage import GarbageReport, collect_garbage
from kartothek_cube.core.options import Overrides, use_options

__all__ = ["garbage_collect_dataset"]


def garbage_collect_dataset(
    dataset_uuid: str | None = None, store: Any = None, factory: Any = None, *, dry_run: bool = False, options: Overrides | None = None
) -> GarbageReport:
    """Remove the files of a dataset that its document does not name and that are older than ``options(grace=...)``.

    Such files are left by updates, overwrites and writes that failed. What is younger than the grace period (one day) waits,
    because a write that is under way may still need it; ``options(grace=timedelta(0))`` removes at once, as kartothek does.
    Where the store does not know when a file was written, only that removes anything.

    The age of a file is the time since it was written, not since it was replaced: a reader that began before an update
    may still need files that are older than the grace period.

    Parameters
    ----------
    dataset_uuid : str
        The dataset.
    store : str, path, store or callable
        Where it lies; everything that `open_store` takes.
    factory : DatasetFactory, optional
        Instead of ``dataset_uuid`` and ``store``. The newest state of the dataset counts, whatever the factory has read.
    dry_run : bool, default False
        Only say what would be removed.
    options : optional
        What `options` returns: settings for this call.

    Returns
    -------
    GarbageReport
        The keys that were or would be removed with their sizes in bytes, and those that wait for their grace period.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist.
    CorruptDocument
        If its document or a schema file cannot be read: nobody knows then which files it names, so nothing is removed.

    Notes
    -----
    Garbage is what lies below ``<uuid>/indices/``, the folders of the dataset's tables, and folders with a schema file of a table
    that the dataset has no more, as far as the document does not name it. Of a dataset whose document lists no partitions only
    index files are garbage. Other keys are left alone.

    Examples
    --------
    >>> import datetime as dt
    >>> import pandas as pd
    >>> from kartothek_cube import open_store, options
    >>> from kartothek_cube.api.dataset import garbage_collect_dataset, store_dataframes_as_dataset
    >>> store = open_store("hmemory://")
    >>> sales = pd.DataFrame({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]})
    >>> for _ in range(2):
    ...     _ = store_dataframes_as_dataset(store, "sales", [sales], partition_on=["COUNTRY_CODE"], overwrite=True)
    >>> len(garbage_collect_dataset("sales", store).waiting)
    2
    >>> report = garbage_collect_dataset("sales", store, options=options(grace=dt.timedelta(0)))
    >>> len(report.removed), report.bytes > 0
    (2, True)
    """
    with use_options(options):
        source = source_of(dataset_uuid, store, factory)
        return collect_garbage(source.store, source.uuid, dry_run=check_flag(dry_run, "dry_run"))
