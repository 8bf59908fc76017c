"""Writing partitions in one place and committing them in another, as kartothek did it."""

from __future__ import annotations

from kartothek_cube.core.change import OnConflict
from kartothek_cube.core.commit import check_store_can_commit
from kartothek_cube.core.compat.dataset_metadata import DatasetMetadata
from kartothek_cube.core.compat.factory import DatasetFactory
from kartothek_cube.core.dataset.arguments import check_version, target_of
from kartothek_cube.core.dataset.plan_write import plan_update
from kartothek_cube.core.dataset.run import commit_staged, metadata_arguments, update_options
from kartothek_cube.core.dataset.stage_receipts import StagedPartitions, collected, flat, staged_partitions
from kartothek_cube.core.formats import FileFormat
from kartothek_cube.core.options import Overrides
from kartothek_cube.core.snapshots import find_snapshot, load_snapshot
from kartothek_cube.core.telemetry import operation
from kartothek_cube.errors import InvalidInput, InvalidType
from kartothek_cube.typing import Columns, DeleteScope, IntoItems, IntoMetadata, MetadataMerger, StoreLike

__all__ = ["commit_dataset", "write_single_partition"]


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
    """Write the files of one item of rows to an existing dataset, and nothing else: no document, no schema, no index.

    Any number of processes can do so at the same time; `commit_dataset` makes the partitions visible. In a dataset whose document lists no partitions
    (`create_empty_dataset_header`) they are visible at once.

    Parameters
    ----------
    store, dataset_uuid, factory
        Where the dataset lies.
    data
        One item, as in `store_dataframes_as_dataset`; rows are checked against the dataset's schema before anything is written.
    partition_on, secondary_indices
        As in `update_dataset_from_dataframes`; the values for all indices of the dataset are kept in the result.
    df_serializer
        As in `store_dataframes_as_dataset`.
    metadata, overwrite, metadata_merger
        Accepted from kartothek and without effect.
    metadata_version : int
        Only 4.
    options : optional
        What `options` returns: settings for this call.

    Returns
    -------
    StagedPartitions
        For `commit_dataset`.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist.
    InvalidType
        If there is no data.
    InvalidInput
        If the rows do not fit the dataset.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.core.dataset.header import create_empty_dataset_header
    >>> from kartothek_cube.core.stores import open_store
    >>> store = open_store("hmemory://")
    >>> schema = pa.schema([("SALES_DATE", pa.string()), ("UNITS", pa.int64())])
    >>> _ = create_empty_dataset_header(store, "sales", {"table": schema}, partition_on="SALES_DATE")
    >>> staged = write_single_partition(store, "sales", pa.table({"SALES_DATE": ["2024-05-01"], "UNITS": [3]}))
    >>> staged
    StagedPartitions(uuid='sales', partitions=1, rows=1)
    >>> len(commit_dataset(store, "sales", new_partitions=[staged]).partitions)
    1
    """
    del metadata, overwrite, metadata_merger
    with operation("write_single_partition", options):
        check_version(metadata_version)
        if data is None:
            raise InvalidType("The parameter `data` is not optional: give the rows of the partition.")
        target = target_of(store, dataset_uuid, factory)
        base = load_snapshot(target.store, target.uuid)
        request = plan_update(target.uuid, base, partition_on, secondary_indices, df_serializer)
        return staged_partitions(target.store, request, [data])


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
    """Make partitions visible that were written before, remove others, set metadata: one commit that writes no data file.

    Parameters
    ----------
    store, dataset_uuid, factory
        Where the dataset lies; one that does not exist is made.
    new_partitions : list, optional
        What `write_single_partition` returned, or ``{"label": ..., "data": {table: rows or None}}`` for files that lie under the keys which their labels
        say. Values for indices that a partition lacks are read from its file.
    delete_scope, metadata, metadata_merger, partition_on, secondary_indices, on_conflict
        As in `update_dataset_from_dataframes`.
    output_dataset_uuid, df_serializer
        Accepted from kartothek and without effect.
    default_metadata_version : int
        Only 4.
    options : optional
        What `options` returns: settings for this call.

    Returns
    -------
    DatasetMetadata
        The dataset as it was committed.

    Raises
    ------
    InvalidInput
        If there is nothing to commit, or a partition is of another dataset or does not fit the schema.
    KeyNotFound
        If the file of a partition does not exist.
    CommitConflict
        As in `update_dataset_from_dataframes`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.core.dataset.store import store_dataframes_as_dataset
    >>> from kartothek_cube.core.stores import open_store
    >>> store = open_store("hmemory://")
    >>> _ = store_dataframes_as_dataset(store, "sales", [pa.table({"WEEK": [1], "UNITS": [3]})], partition_on="WEEK")
    >>> weeks = [write_single_partition(store, "sales", pa.table({"WEEK": [week], "UNITS": [week]})) for week in (2, 3)]
    >>> len(commit_dataset(store, "sales", weeks, delete_scope=[{"WEEK": 1}], metadata={"source": "till"}).partitions)
    2
    """
    del output_dataset_uuid, df_serializer
    with operation("commit_dataset", options):
        check_version(default_metadata_version)
        target = target_of(store, dataset_uuid, factory)
        items = [] if new_partitions is None else list(flat(new_partitions))
        if not items and not delete_scope and not metadata and metadata_merger is None:
            raise InvalidInput("Need to provide either new data, new metadata or a delete scope. None of it was provided.")
        check_store_can_commit(target.store)
        base = find_snapshot(target.store, target.uuid)
        request = plan_update(target.uuid, base, partition_on, secondary_indices)
        rules = update_options(delete_scope, base, on_conflict)
        arguments = metadata_arguments(metadata, metadata_merger, target.uuid)
        return target.committed(commit_staged(target.store, collected(target.store, request, items), arguments, rules))
