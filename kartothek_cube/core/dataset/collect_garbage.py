"""Removing the files of a dataset that it no longer names."""

from __future__ import annotations

from typing import overload

from kartothek_cube.core.compat.factory import DatasetFactory
from kartothek_cube.core.dataset.arguments import check_flag, source_of
from kartothek_cube.core.maintenance.garbage import GarbageReport, collect_garbage
from kartothek_cube.core.options import Overrides
from kartothek_cube.core.parallel import THREADS, Executor
from kartothek_cube.core.telemetry import operation
from kartothek_cube.typing import StoreLike

__all__ = ["garbage_collect_dataset", "garbage_collect_dataset_on"]


@overload
def garbage_collect_dataset(dataset_uuid: str, store: StoreLike, *, dry_run: bool = False, options: Overrides | None = None) -> GarbageReport: ...


@overload
def garbage_collect_dataset(*, factory: DatasetFactory, dry_run: bool = False, options: Overrides | None = None) -> GarbageReport: ...


def garbage_collect_dataset(
    dataset_uuid: str | None = None,
    store: StoreLike | None = None,
    factory: DatasetFactory | None = None,
    *,
    dry_run: bool = False,
    options: Overrides | None = None,
) -> GarbageReport:
    """Remove the files of a dataset that neither its document nor its kept history names and that are older than ``options(grace=...)``.

    Such files are left by updates, overwrites and writes that failed. What is younger than the grace period (one day) waits, because a write that is
    under way may still need it. What a commit replaced stays for ``options(retain=...)`` (seven days), counted from the commit, so that older snapshots
    can be read; index files of older snapshots stay for the grace period only. ``options(grace=timedelta(0), retain=timedelta(0))`` removes all at once, as
    kartothek does: say so only if nobody writes or reads.

    Where the store does not know when a file was written, a call notes in ``<uuid>/_gc/`` what it sees for the first time, and a later one removes what
    was noted longer than the grace period ago.

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
        What was or would be removed, and what waits: of each file its key, size in bytes, age, and why it is garbage.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist.
    CorruptDocument
        If its document or a schema file cannot be read: nobody knows then which files it names, so nothing is removed.

    Notes
    -----
    Calls of the store: one listing; the document; one call for each history entry; once more the document and a listing of the history if anything is to
    be removed; one call for each removed file. Ages are by this machine's clock; what lies in the future is young.

    Garbage is what lies below ``<uuid>/indices/``, the folders of the dataset's tables, and folders with a schema file of a table
    that the dataset has no more, as far as the document does not name it; and history. Of a dataset whose document lists no partitions only
    index files and history are garbage. Other keys are left alone.

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
    >>> report = garbage_collect_dataset("sales", store)
    >>> len(report.removed), len(report.waiting), report.waiting[0].why
    (0, 2, 'older snapshots need it')
    >>> now = options(grace=dt.timedelta(0), retain=dt.timedelta(0))
    >>> report = garbage_collect_dataset("sales", store, options=now)
    >>> sum(file.key.endswith(".parquet") for file in report.removed), report.bytes > 0
    (2, True)
    """
    with operation("garbage_collect_dataset", options):
        return garbage_collect_dataset_on(THREADS, dataset_uuid, store, factory, dry_run=dry_run)


def garbage_collect_dataset_on(executor: Executor, dataset_uuid: str | None, store: StoreLike | None, factory: DatasetFactory | None, *, dry_run: bool) -> GarbageReport:
    """Collect garbage as `garbage_collect_dataset` does, inside an operation; the executor removes the files."""
    source = source_of(dataset_uuid, store, factory)
    return collect_garbage(source.store, source.uuid, dry_run=check_flag(dry_run, "dry_run"), executor=executor)
