"""Garbage collection, conversion, verification and deletion of a dataset."""

from __future__ import annotations

from typing import overload

from kartothek_cube.core.arguments import check_flag
from kartothek_cube.core.dataset.reference import dataset_ref
from kartothek_cube.core.kartothek.dataset_metadata import DatasetMetadata
from kartothek_cube.core.kartothek.factory import DatasetFactory
from kartothek_cube.core.maintenance.convert import convert_document
from kartothek_cube.core.maintenance.delete import delete_dataset as run_deletion
from kartothek_cube.core.maintenance.garbage.report import GarbageReport
from kartothek_cube.core.maintenance.garbage.run import collect_garbage
from kartothek_cube.core.maintenance.verify.report import VerifyReport, report_of
from kartothek_cube.core.maintenance.verify.run import verify, verify_rows
from kartothek_cube.core.runtime.executor import THREADS, Executor
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.typing import StoreLike

__all__ = [
    "convert_metadata_format",
    "delete_dataset",
    "delete_dataset_on",
    "garbage_collect_dataset",
    "garbage_collect_dataset_on",
    "verify_dataset",
]


@overload
def garbage_collect_dataset(
    dataset_uuid: str, store: StoreLike, *, dry_run: bool = False, options: Overrides | None = None
) -> GarbageReport: ...


@overload
def garbage_collect_dataset(
    *, factory: DatasetFactory, dry_run: bool = False, options: Overrides | None = None
) -> GarbageReport: ...


def garbage_collect_dataset(
    dataset_uuid: str | None = None,
    store: StoreLike | None = None,
    factory: DatasetFactory | None = None,
    *,
    dry_run: bool = False,
    options: Overrides | None = None,
) -> GarbageReport:
    """Remove the files of a dataset that neither its document nor its kept history names and that are older than ``options(grace=...)``.

    Such files are left by updates, overwrites and writes that failed. What is younger than the
    grace period (one day) waits, because a write that is under way may still need it. What a commit
    replaced stays for ``options(retain=...)`` (seven days), counted from the commit, so that older
    snapshots can be read; index files of older snapshots stay for the grace period only.
    ``options(grace=timedelta(0), retain=timedelta(0))`` removes all at once, as kartothek does: say
    so only if nobody writes or reads.

    Where the store does not know when a file was written, a call notes in ``<uuid>/_gc/`` what it
    sees for the first time, and a later one removes what was noted longer than the grace period
    ago.

    Parameters
    ----------
    dataset_uuid : str
        The dataset.
    store : str, path, store or callable
        Where it lies; everything that `open_store` takes.
    factory : DatasetFactory, optional
        Instead of ``dataset_uuid`` and ``store``. The newest state of the dataset counts, whatever
        the factory has read.
    dry_run : bool, default False
        Only say what would be removed.
    options : optional
        What `options` returns: settings for this call.

    Returns
    -------
    GarbageReport
        What was or would be removed, and what waits: of each file its key, size in bytes, age, and
        why it is garbage.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist.
    CorruptDocument
        If its document or a schema file cannot be read: nobody knows then which files it names, so
        nothing is removed.

    Notes
    -----
    Calls of the store: one listing; the document; one call for each history entry; once more the
    document and a listing of the history if anything is to be removed; one call for each removed
    file. Ages are by this machine's clock; what lies in the future is young.

    Garbage is what lies below ``<uuid>/indices/``, the folders of the dataset's tables, and folders
    with a schema file of a table that the dataset has no more, as far as the document does not name
    it; and history. Of a dataset whose document lists no partitions only index files and history
    are garbage. Other keys are left alone.

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


def garbage_collect_dataset_on(
    executor: Executor,
    dataset_uuid: str | None,
    store: StoreLike | None,
    factory: DatasetFactory | None,
    *,
    dry_run: bool,
) -> GarbageReport:
    """Collect garbage as `garbage_collect_dataset` does, inside an operation; the executor removes the files."""
    source = dataset_ref(dataset_uuid, store, factory)
    return collect_garbage(source.store, source.uuid, dry_run=check_flag(dry_run, "dry_run"), executor=executor)


def convert_metadata_format(
    dataset_uuid: str, store: StoreLike, metadata_storage_format: str, *, options: Overrides | None = None
) -> DatasetMetadata:
    """Store a dataset's document as JSON or as compressed msgpack. Its content stays the same.

    This is the only way to change the encoding. Whoever commits with this library at the same time
    gets `CommitConflict`, so that no commit is lost; other libraries must not write meanwhile.
    After an interruption the dataset can be read, and calling this again, with either format, ends
    it.

    Parameters
    ----------
    dataset_uuid : str
        The dataset.
    store : str, path, store or callable
        Where it lies; everything that `open_store` takes.
    metadata_storage_format : {"json", "msgpack"}
        The encoding, in any case. If it is the present one, only what an interrupted conversion
        left is cleared away, and a second document in the other encoding, which kartothek leaves
        behind when it updates a dataset with a msgpack document.
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
        source = dataset_ref(dataset_uuid, store, None)
        convert_document(source.store, source.uuid, metadata_storage_format)
        return DatasetMetadata.of(load_snapshot(source.store, source.uuid))


@overload
def verify_dataset(
    dataset_uuid: str, store: StoreLike, deep: bool = False, *, options: Overrides | None = None
) -> VerifyReport: ...


@overload
def verify_dataset(
    *, deep: bool = False, factory: DatasetFactory, options: Overrides | None = None
) -> VerifyReport: ...


def verify_dataset(
    dataset_uuid: str | None = None,
    store: StoreLike | None = None,
    deep: bool = False,
    *,
    factory: DatasetFactory | None = None,
    options: Overrides | None = None,
) -> VerifyReport:
    """Say what is wrong with a dataset, and what of it reads differently here than in kartothek.

    Nothing is changed.

    Documents, schema files and index files are read and the dataset's folder is listed; with
    ``deep=True`` all data, too, in threads and with bounded memory. Damage of the dataset is a
    finding and no error.

    Parameters
    ----------
    dataset_uuid : str
        The dataset.
    store : str, path, store or callable
        Where it lies; everything that `open_store` takes.
    deep : bool, default False
        Read the data: whether every file can be read, has the columns and types of the dataset,
        agrees with its path, and has the values that the secondary indices say.
    factory : DatasetFactory, optional
        Instead of ``dataset_uuid`` and ``store``. The newest state of the dataset counts, whatever
        the factory has read.
    options : optional
        What `options` returns: settings for this call.

    Returns
    -------
    VerifyReport
        The findings, errors first; ``ok`` says that there is no error, ``clean`` that there is no
        warning either.

    Raises
    ------
    DatasetNotFound
        If the dataset has no document.
    OSError
        If the store cannot be read.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset, verify_dataset
    >>> store = open_store("hmemory://")
    >>> sales = pd.DataFrame({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]})
    >>> _ = store_dataframes_as_dataset(store, "sales", [sales], partition_on=["COUNTRY_CODE"], secondary_indices=["PRODUCT_ID"])
    >>> verify_dataset("sales", store, deep=True).clean
    True
    >>> for key in store.list("sales/table/COUNTRY_CODE=FR/", recursive=True).keys:
    ...     store.delete(key)
    >>> [(finding.severity, finding.check) for finding in verify_dataset("sales", store).findings]
    [('error', 'missing-file')]
    """
    with operation("verify_dataset", options):
        source = dataset_ref(dataset_uuid, store, factory)
        is_deep = check_flag(deep, "deep")
        look = verify(source.store, source.uuid, deep=is_deep)
        look = verify_rows(source.store, look) if is_deep else look
        return report_of(f"dataset {source.uuid!r}", look.findings, look.counts, deep=is_deep)


@overload
def delete_dataset(dataset_uuid: str, store: StoreLike, *, options: Overrides | None = None) -> None: ...


@overload
def delete_dataset(*, factory: DatasetFactory, options: Overrides | None = None) -> None: ...


def delete_dataset(
    dataset_uuid: str | None = None,
    store: StoreLike | None = None,
    factory: DatasetFactory | None = None,
    *,
    options: Overrides | None = None,
) -> None:
    """Delete a dataset: its history, garbage, index files, data files and schema files, and last its document.

    Whoever reads the dataset meanwhile may miss files. If it is interrupted, the dataset is still
    there in name: call it again. There is no grace period. Files that lie elsewhere are deleted if
    the document names them, but not those of another dataset: these stay, and a warning is logged.
    Keys below ``<uuid>/`` that are not the library's stay, too.

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
        If its document cannot be read; nothing is removed then. Schema files may be damaged or
        missing.
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


def delete_dataset_on(
    executor: Executor, dataset_uuid: str | None, store: StoreLike | None, factory: DatasetFactory | None
) -> None:
    """Delete a dataset as `delete_dataset` does, inside an operation; the executor removes the files."""
    source = dataset_ref(dataset_uuid, store, factory)
    try:
        run_deletion(source.store, source.uuid, executor)
    finally:
        if source.factory is not None:
            source.factory.invalidate()
