"""Build indices of a dataset, collect its garbage, convert, verify and delete it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import overload

from kartothek_cube.core.arguments import check_flag
from kartothek_cube.core.commit.change import Change
from kartothek_cube.core.commit.commit import check_store_can_commit, commit_change
from kartothek_cube.core.commit.dataset_write import repeat_on_conflict
from kartothek_cube.core.dataset.reference import dataset_ref
from kartothek_cube.core.kartothek.dataset_metadata import DatasetMetadata
from kartothek_cube.core.kartothek.factory import DatasetFactory
from kartothek_cube.core.maintenance.copy import convert_document
from kartothek_cube.core.maintenance.copy import delete_dataset as run_deletion
from kartothek_cube.core.maintenance.garbage import GarbageReport, collect_garbage
from kartothek_cube.core.maintenance.inspection import VerifyReport, report_of
from kartothek_cube.core.maintenance.verify import verify, verify_rows
from kartothek_cube.core.runtime.executor import THREADS, Executor
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.snapshots.loader import Entries, built_indices, load_snapshot
from kartothek_cube.core.stores.contract import check_key
from kartothek_cube.core.write.plan import column_names
from kartothek_cube.core.write.prepare import check_index_columns
from kartothek_cube.errors import InvalidRequest
from kartothek_cube.typing import StoreLike

__all__ = [
    "build_dataset_indices",
    "build_dataset_indices_on",
    "convert_metadata_format",
    "delete_dataset",
    "delete_dataset_on",
    "garbage_collect_dataset",
    "garbage_collect_dataset_on",
    "verify_dataset",
]


def build_dataset_indices(
    store: StoreLike | None,
    dataset_uuid: str | None,
    columns: Iterable[str] | str,
    factory: DatasetFactory | None = None,
    *,
    options: Overrides | None = None,
) -> DatasetFactory:
    """Build secondary indices of an existing dataset, reading only the columns to be indexed.

    An existing index on a column is rebuilt; other indices and the metadata stay. See the page
    *Indices*.

    Parameters
    ----------
    store, dataset_uuid, factory
        The dataset: ``store`` and ``dataset_uuid``, or a `DatasetFactory`.
    columns : str or list of str
        The columns.
    options : optional
        Settings for this call, from `options`.

    Returns
    -------
    DatasetFactory
        The dataset with its new indices.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist.
    InvalidRequest
        If no table has a column, or the column is a partition key, whose index is the path.
    Unsupported
        If the type of a column cannot be indexed.
    CommitConflict
        If other writers added or removed partitions more often than
        ``options(commit_retries=...)``; each retry reads only new files. Nothing was changed.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.core.dataset.write import store_dataframes_as_dataset
    >>> from kartothek_cube.core.stores.open import open_store
    >>> store = open_store("hmemory://")
    >>> sales = pd.DataFrame({"BRAND": ["Acme", "Bolt"], "UNITS": [1, 2]})
    >>> _ = store_dataframes_as_dataset(store, "sales", [sales, sales[1:]])
    >>> factory = build_dataset_indices(store, "sales", "BRAND")
    >>> len(factory.load_index("BRAND").indices["BRAND"].query("Bolt"))
    2
    """
    with operation("build_dataset_indices", options):
        return build_dataset_indices_on(THREADS, store, dataset_uuid, columns, factory)


def build_dataset_indices_on(
    executor: Executor,
    store: StoreLike | None,
    dataset_uuid: str | None,
    columns: Iterable[str] | str,
    factory: DatasetFactory | None,
) -> DatasetFactory:
    """`build_dataset_indices` inside an operation; the executor reads the files."""
    source = dataset_ref(dataset_uuid, store, factory)
    check_store_can_commit(source.store)
    names = column_names(columns, "columns")
    # A retry after a conflict reads only the files that are not in here yet.
    entries: Entries = {}

    def build() -> None:
        base = load_snapshot(source.store, source.uuid)
        present = {name for schema in base.schemas.values() for name in schema.names}
        missing = [c for c in names if c not in present]
        if missing:
            raise InvalidRequest(
                f"Column {missing[0]!r} could not be found in the partitions of dataset {base.uuid!r}, "
                f"which has {sorted(present)}."
            )
        for key in check_index_columns(base.schemas, names, base.partition_keys, base.uuid):
            check_key(key)
        built = built_indices(source.store, base, names, entries, executor)
        index_columns = tuple(sorted(base.secondary_columns | set(names)))
        change = Change(source.uuid, (), base.schemas, base.partition_keys, index_columns, built=built)
        source.committed(commit_change(source.store, change, base))

    repeat_on_conflict(build)
    return source.factory or DatasetFactory(source.uuid, source.store)


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
    """Remove the old files of a dataset that neither the document nor kept history names.

    Updates, overwrites and failed writes leave such files. Files younger than
    ``options(grace=...)`` (one day) stay, because a running write may need them. Replaced files
    stay for ``options(retain=...)`` (seven days after the commit; Delta: ``VACUUM … RETAIN``), so
    that older snapshots can be read; index files of older snapshots stay for the grace period only.
    ``options(grace=timedelta(0), retain=timedelta(0))`` removes everything at once, as kartothek
    does: only for a dataset without concurrent readers and writers. See the page *Maintenance*.

    If the store does not know when a file was written, the call records in ``<uuid>/_gc/`` which
    garbage it sees first; a later call removes files recorded longer than the grace period ago.

    Parameters
    ----------
    dataset_uuid : str
        The dataset.
    store : str, path, store or callable
        The store, in any form that `open_store` takes.
    factory : DatasetFactory, optional
        Instead of ``dataset_uuid`` and ``store``. The call works on the newest state, whatever
        the factory has read.
    dry_run : bool, default False
        Only report what would be removed.
    options : optional
        Settings for this call, from `options`.

    Returns
    -------
    GarbageReport
        Files that were (or would be) removed, and files that wait: key, size in bytes, age, reason.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist.
    CorruptDocument
        If the document or a schema file cannot be read, so that the files in use are unknown.
        Nothing is removed.
    CommitConflict
        If other writers came first more often than ``options(commit_retries=...)`` while statistics
        of removed files were being dropped. Nothing is removed; call it again.

    Notes
    -----
    Store calls: one listing; the document; one call per history entry; before a removal, again the
    document and a listing of the history; one call per removed file. Ages are by this machine's
    clock; a time in the future counts as young.

    Garbage can be: keys below ``<uuid>/indices/``, below the folders of the dataset's tables, and
    below folders with the schema file of a former table, unless the document names them; and
    history. In a dataset whose document lists no partitions, only index files and history can be
    garbage. Other keys are never removed.

    Examples
    --------
    >>> import datetime as dt
    >>> import pandas as pd
    >>> from kartothek_cube import open_store, options
    >>> from kartothek_cube.api.dataset import garbage_collect_dataset, store_dataframes_as_dataset
    >>> store = open_store("hmemory://")
    >>> sales = pd.DataFrame({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]})
    >>> for overwrite in (False, True):
    ...     args = {"partition_on": "COUNTRY_CODE", "overwrite": overwrite}
    ...     _ = store_dataframes_as_dataset(store, "sales", [sales], **args)
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
    """`garbage_collect_dataset` inside an operation; the executor removes the files."""
    source = dataset_ref(dataset_uuid, store, factory)
    return collect_garbage(source.store, source.uuid, dry_run=check_flag(dry_run, "dry_run"), executor=executor)


def convert_metadata_format(
    dataset_uuid: str, store: StoreLike, metadata_storage_format: str, *, options: Overrides | None = None
) -> DatasetMetadata:
    """Store the document of a dataset as JSON or as compressed msgpack, with the same content.

    No other call changes the encoding. Concurrent commits of this library fail with
    `CommitConflict`, so none is lost; other libraries must not write at the same time. After an
    interruption the dataset can be read; call again, with either format, to complete. See the page
    *The format*.

    Parameters
    ----------
    dataset_uuid : str
        The dataset.
    store : str, path, store or callable
        The store, in any form that `open_store` takes.
    metadata_storage_format : {"json", "msgpack"}
        The encoding. With the present encoding, the call only removes the rest of an interrupted
        conversion, or a second document in the other encoding, which kartothek leaves when it
        updates a dataset with a msgpack document.
    options : optional
        Settings for this call, from `options`.

    Returns
    -------
    DatasetMetadata
        The converted dataset.

    Raises
    ------
    InvalidInput
        If the format is unknown, or cannot hold the dataset's metadata.
    DatasetNotFound
        If the dataset does not exist.
    CommitConflict
        If another writer changed the dataset at the same time; call again.
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
    """Report damage of a dataset, and data that kartothek would read differently.

    Nothing is changed. The call reads documents, schema files and index files and lists the
    dataset's folder; with ``deep=True`` it also reads all data, in threads and with bounded memory.
    Damage is a finding, not an error. See the page *Verify*.

    Parameters
    ----------
    dataset_uuid : str
        The dataset.
    store : str, path, store or callable
        The store, in any form that `open_store` takes.
    deep : bool, default False
        Read the data, too: check that every file can be read, has the columns and types of the
        dataset, and agrees with its path and with the secondary indices.
    factory : DatasetFactory, optional
        Instead of ``dataset_uuid`` and ``store``. The call works on the newest state, whatever
        the factory has read.
    options : optional
        Settings for this call, from `options`.

    Returns
    -------
    VerifyReport
        The findings, errors first. ``ok``: no error; ``clean``: no error and no warning.

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
    >>> _ = store_dataframes_as_dataset(store, "sales", [sales], partition_on="COUNTRY_CODE")
    >>> verify_dataset("sales", store, deep=True).clean
    True
    >>> for key in store.list("sales/table/COUNTRY_CODE=FR/", recursive=True).keys:
    ...     store.delete(key)
    >>> [(finding.severity, finding.check) for finding in verify_dataset("sales", store).findings]
    [('error', 'missing-file')]
    """
    with operation("verify_dataset", options):
        # Not the snapshot of the factory: stored bytes are verified.
        source = dataset_ref(dataset_uuid, store, factory)
        is_deep = check_flag(deep, "deep")
        verified = verify(source.store, source.uuid, deep=is_deep)
        verified = verify_rows(source.store, verified) if is_deep else verified
        return report_of(f"dataset {source.uuid!r}", verified.findings, verified.counts, deep=is_deep)


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
    """Delete a dataset: history, garbage, index, data and schema files, and last the document.

    There is no grace period: concurrent readers may miss files. After an interruption the document
    still exists; call again. Files elsewhere are deleted if the document names them, except files
    of another dataset: these stay, and a warning is logged. Foreign keys below ``<uuid>/`` stay,
    too. See the page *Maintenance*.

    Parameters
    ----------
    dataset_uuid : str
        The dataset.
    store : str, path, store or callable
        The store, in any form that `open_store` takes.
    factory : DatasetFactory, optional
        Instead of ``dataset_uuid`` and ``store``. It is invalidated.
    options : optional
        Settings for this call, from `options`.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist.
    CorruptDocument
        If the document cannot be read; nothing is removed then. Damaged or missing schema files
        are no error.
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
    """`delete_dataset` inside an operation; the executor removes the files."""
    source = dataset_ref(dataset_uuid, store, factory)
    try:
        run_deletion(source.store, source.uuid, executor)
    finally:  # an interrupted deletion has changed the dataset, too
        if source.factory is not None:
            source.factory.invalidate()
