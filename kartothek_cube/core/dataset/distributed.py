"""Stage partitions in many processes, commit them in one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kartothek_cube.core.commit.change import OnConflict
from kartothek_cube.core.commit.commit import check_store_can_commit
from kartothek_cube.core.commit.dataset_write import (
    commit_staged,
    metadata_arguments,
    skipped,
    stage_data,
    update_options,
)
from kartothek_cube.core.dataset.reference import target_of
from kartothek_cube.core.dataset.staged_partitions import (
    StagedPartitions,
    columns_of_new_dataset,
    flatten,
    merge_staged,
    uncommitted,
)
from kartothek_cube.core.io.formats import FileFormat
from kartothek_cube.core.kartothek.dataset_metadata import DatasetMetadata
from kartothek_cube.core.kartothek.factory import DatasetFactory
from kartothek_cube.core.metadata.commit_log import parse_txn
from kartothek_cube.core.metadata.document import check_version
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.snapshots.loader import find_snapshot, load_snapshot
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.write.plan import plan_dataset_update
from kartothek_cube.core.write.prepare import WriteRequest
from kartothek_cube.errors import InvalidInput, InvalidType
from kartothek_cube.typing import Columns, DeleteScope, IntoItems, IntoMetadata, IntoTxn, MetadataMerger, StoreLike

__all__ = ["commit_dataset", "commit_receipts", "stage_partitions", "write_single_partition"]


def stage_partitions(
    data: IntoItems,
    store: StoreLike | None = None,
    dataset_uuid: str | None = None,
    partition_on: Columns = None,
    secondary_indices: Columns = None,
    df_serializer: FileFormat | None = None,
    sort_partitions_by: Columns = None,
    factory: DatasetFactory | None = None,
    *,
    add_columns: bool = False,
    options: Overrides | None = None,
) -> StagedPartitions:
    """Write only the data files of some rows: no document, no schema, no index.

    Many processes can stage at the same time; `commit_receipts` in one process makes the files
    visible. Garbage collection spares staged files for its grace period. See the page
    *Many writers*.

    Parameters
    ----------
    data : rows or list of rows
        As ``dfs`` in `store_dataframes_as_dataset`.
    store, dataset_uuid, factory
        The dataset. If it does not exist yet, all writers must pass the same ``partition_on`` and
        ``secondary_indices``.
    partition_on, secondary_indices, df_serializer, sort_partitions_by, add_columns
        As in `update_dataset_from_dataframes`.
    options : optional
        Settings for this call, from `options`.

    Returns
    -------
    StagedPartitions
        The receipts: picklable, with the keys of the files and their index values, without the
        store.

    Raises
    ------
    InvalidInput, InvalidType, Unsupported
        If the rows do not fit the present dataset.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.core.stores.open import open_store
    >>> sales = pa.table({"WEEK": [1, 2], "UNITS": [3, 4]})
    >>> stage_partitions(sales, open_store("hmemory://"), "sales", partition_on="WEEK")
    StagedPartitions(uuid='sales', partitions=2, rows=2)
    """
    with operation("stage_partitions", options):
        target = target_of(store, dataset_uuid, factory)
        base = find_snapshot(target.store, target.uuid)
        request = plan_dataset_update(
            target.uuid, base, partition_on, secondary_indices, df_serializer, sort_partitions_by, add_columns
        )
        return _stage(target.store, request, data)


def _stage(store: Store, request: WriteRequest, data: object) -> StagedPartitions:
    staged = stage_data(store, request, data)
    return StagedPartitions(request.uuid, staged.receipts, request.partition_on, staged.request.index_columns)


def commit_receipts(
    receipts: StagedPartitions | Iterable[StagedPartitions],
    store: StoreLike | None = None,
    dataset_uuid: str | None = None,
    delete_scope: DeleteScope | None = None,
    metadata: IntoMetadata = None,
    metadata_merger: MetadataMerger | None = None,
    factory: DatasetFactory | None = None,
    *,
    add_columns: bool = False,
    on_conflict: OnConflict = "raise",
    txn: IntoTxn | None = None,
    options: Overrides | None = None,
) -> DatasetMetadata:
    """Commit what `stage_partitions` wrote, in one commit that reads and writes no data file.

    The dataset is created if needed. Receipts that were committed before are skipped, so the call
    can be repeated if its answer was lost: no row is added twice, and without other changes there
    is no commit.

    Parameters
    ----------
    receipts : StagedPartitions or list of StagedPartitions
        The results of the writers. If a task ran twice, pass the receipts of one run; the files of
        the other run are garbage.
    store, dataset_uuid, factory
        The dataset.
    delete_scope, metadata, metadata_merger, add_columns, on_conflict
        As in `update_dataset_from_dataframes`.
    txn : tuple of str and int, optional
        ``(application id, number)``: the commit is skipped if the dataset has a commit of this
        application with this number or a later one. A repeated call may then stage its rows again;
        they are committed once. See the page *Exactly once*.
    options : optional
        Settings for this call, from `options`.

    Returns
    -------
    DatasetMetadata
        The dataset as it was committed. ``commit`` is None if there was nothing to commit;
        ``commit.skipped`` is True if ``txn`` had been committed.

    Raises
    ------
    InvalidInput, InvalidType
        If there are no rows to create a dataset from, or receipts belong to another dataset,
        contradict each other or do not fit the dataset.
    CommitConflict
        As in `update_dataset_from_dataframes`.
    StagedFilesLost
        If garbage collection has removed the staged files.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.core.stores.open import open_store
    >>> store = open_store("hmemory://")
    >>> weeks = [pa.table({"WEEK": [week], "UNITS": [10 * week]}) for week in (1, 2)]
    >>> receipts = [stage_partitions(rows, store, "sales", partition_on="WEEK") for rows in weeks]
    >>> len(commit_receipts(receipts, store, "sales").partitions)
    2
    >>> commit_receipts(receipts, store, "sales").commit is None
    True
    >>> for _ in range(2):
    ...     staged = stage_partitions(weeks[0], store, "sales")
    ...     print(commit_receipts(staged, store, "sales", txn=("weekly", 3)).commit.skipped)
    False
    True
    """
    with operation("commit_receipts", options):
        target = target_of(store, dataset_uuid, factory)
        items = list(flatten(receipts))
        staged = [item for item in items if isinstance(item, StagedPartitions)]
        if len(staged) < len(items):
            wrong = next(item for item in items if not isinstance(item, StagedPartitions))
            raise InvalidType(f"Receipts are what stage_partitions returns, not {type(wrong).__name__}.")
        staged = [item for item in staged if item.receipts]
        check_store_can_commit(target.store)
        base = find_snapshot(target.store, target.uuid)
        # Before any check of the rows: a repeated call must succeed even if the schema has changed.
        if (done := skipped(base, parse_txn(txn))) is not None:
            return DatasetMetadata.of(done)
        # An existing dataset has its own partition keys and index columns.
        columns = columns_of_new_dataset(staged) if base is None else ([], [])
        request = plan_dataset_update(target.uuid, base, *columns, add_columns=add_columns)
        rules = update_options(delete_scope, base, on_conflict, txn)
        arguments = metadata_arguments(metadata, metadata_merger, target.uuid)
        new = uncommitted(target.store, staged, base, rules)
        if base is not None and not (new or rules.scope or metadata or metadata_merger or rules.txn):
            # Nothing to commit: the result of an earlier commit is not that of this call.
            return DatasetMetadata.of(replace(base, result=None))
        staged_write = merge_staged(target.store, request, new)
        return target.committed(commit_staged(target.store, staged_write, arguments, rules))


def write_single_partition(
    store: StoreLike | None = None,
    dataset_uuid: str | None = None,
    data: IntoItems = None,
    metadata: IntoMetadata = None,
    df_serializer: FileFormat | None = None,
    overwrite: bool = False,
    metadata_merger: MetadataMerger | None = None,
    metadata_version: int = 4,
    partition_on: Columns = None,
    factory: DatasetFactory | None = None,
    secondary_indices: Columns = None,
    *,
    options: Overrides | None = None,
) -> StagedPartitions:
    """Write only the data files of one item of rows, to an existing dataset.

    Many processes can write at the same time; `commit_dataset` makes the partitions visible. In a
    dataset whose document lists no partitions (`create_empty_dataset_header`) they are visible at
    once. See the page *Many writers*.

    Parameters
    ----------
    store, dataset_uuid, factory
        The dataset.
    data
        One item, as in `store_dataframes_as_dataset`. Rows are checked against the dataset's schema
        before anything is written.
    partition_on, secondary_indices
        As in `update_dataset_from_dataframes`. The result has the values for all indices of the
        dataset.
    df_serializer
        As in `store_dataframes_as_dataset`.
    metadata, overwrite, metadata_merger
        Accepted from kartothek and without effect.
    metadata_version : int
        Only 4.
    options : optional
        Settings for this call, from `options`.

    Returns
    -------
    StagedPartitions
        For `commit_dataset`.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist.
    InvalidType
        If ``data`` is None.
    InvalidInput
        If the rows do not fit the dataset.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.core.dataset.write import create_empty_dataset_header
    >>> from kartothek_cube.core.stores.open import open_store
    >>> store = open_store("hmemory://")
    >>> schema = pa.schema([("SALES_DATE", pa.string()), ("UNITS", pa.int64())])
    >>> _ = create_empty_dataset_header(store, "sales", {"table": schema}, "SALES_DATE")
    >>> sales = pa.table({"SALES_DATE": ["2024-05-01"], "UNITS": [3]})
    >>> staged = write_single_partition(store, "sales", sales)
    >>> staged
    StagedPartitions(uuid='sales', partitions=1, rows=1)
    >>> len(commit_dataset(store, "sales", new_partitions=[staged]).partitions)
    1
    """
    del metadata, overwrite, metadata_merger  # kartothek's signature
    with operation("write_single_partition", options):
        check_version(metadata_version)
        if data is None:
            raise InvalidType("The parameter `data` is not optional: give the rows of the partition.")
        target = target_of(store, dataset_uuid, factory)
        base = load_snapshot(target.store, target.uuid)
        request = plan_dataset_update(target.uuid, base, partition_on, secondary_indices, df_serializer)
        return _stage(target.store, request, [data])


def commit_dataset(
    store: StoreLike | None = None,
    dataset_uuid: str | None = None,
    new_partitions: IntoItems = None,
    output_dataset_uuid: str | None = None,
    delete_scope: DeleteScope | None = None,
    metadata: IntoMetadata = None,
    df_serializer: FileFormat | None = None,
    metadata_merger: MetadataMerger | None = None,
    default_metadata_version: int = 4,
    partition_on: Columns = None,
    factory: DatasetFactory | None = None,
    secondary_indices: Columns = None,
    *,
    on_conflict: OnConflict = "raise",
    options: Overrides | None = None,
) -> DatasetMetadata:
    """Commit stored partitions, remove others, set metadata: one commit without data files.

    See the page *Many writers*.

    Parameters
    ----------
    store, dataset_uuid, factory
        The dataset; it is created if needed.
    new_partitions : list, optional
        Results of `write_single_partition`, or ``{"label": ..., "data": {table: rows or None}}``
        for files that are stored under the key of their label. Missing index values are read from
        the file.
    delete_scope, metadata, metadata_merger, partition_on, secondary_indices, on_conflict
        As in `update_dataset_from_dataframes`.
    output_dataset_uuid, df_serializer
        Accepted from kartothek and without effect.
    default_metadata_version : int
        Only 4.
    options : optional
        Settings for this call, from `options`.

    Returns
    -------
    DatasetMetadata
        The dataset as it was committed.

    Raises
    ------
    InvalidInput
        If there is nothing to commit, or a partition belongs to another dataset or does not fit
        the schema.
    KeyNotFound
        If the file of a partition does not exist.
    CommitConflict
        As in `update_dataset_from_dataframes`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.core.dataset.write import store_dataframes_as_dataset
    >>> from kartothek_cube.core.stores.open import open_store
    >>> store = open_store("hmemory://")
    >>> sales = [pa.table({"WEEK": [week], "UNITS": [week]}) for week in (1, 2, 3)]
    >>> _ = store_dataframes_as_dataset(store, "sales", sales[:1], partition_on="WEEK")
    >>> staged = [write_single_partition(store, "sales", rows) for rows in sales[1:]]
    >>> len(commit_dataset(store, "sales", staged, delete_scope=[{"WEEK": 1}]).partitions)
    2
    """
    del output_dataset_uuid, df_serializer  # kartothek's signature
    with operation("commit_dataset", options):
        check_version(default_metadata_version)
        target = target_of(store, dataset_uuid, factory)
        items = [] if new_partitions is None else list(flatten(new_partitions))
        if not items and not delete_scope and not metadata and metadata_merger is None:
            raise InvalidInput(
                "Need to provide either new data, new metadata or a delete scope. None of it was provided."
            )
        check_store_can_commit(target.store)
        base = find_snapshot(target.store, target.uuid)
        request = plan_dataset_update(target.uuid, base, partition_on, secondary_indices)
        rules = update_options(delete_scope, base, on_conflict)
        arguments = metadata_arguments(metadata, metadata_merger, target.uuid)
        return target.committed(
            commit_staged(target.store, merge_staged(target.store, request, items), arguments, rules)
        )
