"""Adding partitions to a dataset, replacing and removing them, merging metadata: one commit."""

from __future__ import annotations

from collections.abc import Iterable

from kartothek_cube.core.change import OnConflict
from kartothek_cube.core.commit import check_store_can_commit
from kartothek_cube.core.compat.dataset_metadata import DatasetMetadata
from kartothek_cube.core.compat.factory import DatasetFactory
from kartothek_cube.core.dataset.arguments import check_version, target_of
from kartothek_cube.core.dataset.plan_write import plan_update
from kartothek_cube.core.dataset.run import commit_staged, metadata_arguments, stage_data, update_options
from kartothek_cube.core.formats import FileFormat
from kartothek_cube.core.options import Overrides
from kartothek_cube.core.snapshots import find_snapshot
from kartothek_cube.core.telemetry import operation
from kartothek_cube.errors import InvalidInput
from kartothek_cube.typing import Columns, DeleteScope, IntoItem, IntoItems, IntoMetadata, MetadataMerger, StoreLike

__all__ = ["update_dataset_from_dataframes", "update_dataset_from_dataframes__iter"]


def update_dataset_from_dataframes(
    df_list: IntoItems,
    store: StoreLike | None = None,
    dataset_uuid: str | None = None,
    delete_scope: DeleteScope | None = None,
    metadata: IntoMetadata = None,
    df_serializer: FileFormat | None = None,
    metadata_merger: MetadataMerger | None = None,
    central_partition_metadata: bool = True,
    default_metadata_version: int = 4,
    partition_on: Columns = None,
    load_dynamic_metadata: bool = True,
    sort_partitions_by: Columns = None,
    secondary_indices: Columns = None,
    factory: DatasetFactory | None = None,
    *,
    add_columns: bool = False,
    on_conflict: OnConflict = "raise",
    options: Overrides | None = None,
) -> DatasetMetadata:
    """Add partitions to a dataset and remove others, in one commit; a dataset that does not exist is made.

    Rows are never changed in place: to replace partitions, name them in ``delete_scope`` and give their new rows. See the page
    *Updating datasets*.

    Parameters
    ----------
    df_list : rows, list of rows, or None
        As ``dfs`` in `store_dataframes_as_dataset`; an empty list or None changes metadata or removes partitions only. An item whose label
        the dataset has already replaces that partition.
    store, dataset_uuid, factory
        Where the dataset lies: ``store`` and ``dataset_uuid``, or a `DatasetFactory`.
    delete_scope : list of dict, optional
        ``[{column: value, ...}, ...]``: each dict takes the partitions that contain all of its values, whole partitions and not rows. Columns
        are partition keys or have a secondary index; anything else is refused, as is an empty dict.
    metadata : dict or callable, optional
        User metadata to be set, key by key.
    metadata_merger : callable, optional
        Gets a list of dicts, the present metadata first, and returns the new one; keys that it leaves out are removed.
    partition_on : str or list of str, optional
        Only for a new dataset; for one that exists it must be what it has.
    sort_partitions_by : str or list of str, optional
        Sort the rows of each item by these columns, nulls last; rows that are equal keep their order.
    secondary_indices : str or list of str, optional
        For a new dataset, or one without partitions. All indices that a dataset has are maintained in any case.
    df_serializer
        As in `store_dataframes_as_dataset`.
    central_partition_metadata, default_metadata_version, load_dynamic_metadata
        Accepted from kartothek and without effect; the version must be 4.
    add_columns : bool, default False
        Columns that the dataset lacks are added to its schema; older partitions have nulls there. Otherwise they are refused.
    on_conflict : {"raise", "reapply"}
        What happens where somebody else has, since this call began, changed what this removes or replaces. ``"raise"``: `CommitConflict`.
        ``"reapply"``: what is in the scope by then goes all the same (the last writer wins), and ``commit.reapplied`` of the result says so. See the page
        *Many writers*.
    options : optional
        What `options` returns: settings for this call.

    Returns
    -------
    DatasetMetadata
        The dataset as it was committed.

    Raises
    ------
    InvalidInput, InvalidType, Unsupported
        If an argument, a column or a scope does not fit the dataset; nothing is visible then, and for rows in memory nothing was written.
    CommitConflict
        If somebody else has, since this call began, changed what it removes or replaces. What others append meanwhile is no conflict.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.core.dataset.read import read_table
    >>> from kartothek_cube.core.dataset.store import store_dataframes_as_dataset
    >>> from kartothek_cube.core.stores import open_store
    >>> store = open_store("hmemory://")
    >>> sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 5]})
    >>> _ = store_dataframes_as_dataset(store, "sales", [sales], partition_on="COUNTRY_CODE")
    >>> corrected = pd.DataFrame({"COUNTRY_CODE": ["DE"], "UNITS": [4]})
    >>> _ = update_dataset_from_dataframes([corrected], store, "sales", delete_scope=[{"COUNTRY_CODE": "DE"}])
    >>> read_table("sales", store)
      COUNTRY_CODE  UNITS
    0           FR      5
    1           DE      4
    """
    del central_partition_metadata, load_dynamic_metadata
    with operation("update_dataset_from_dataframes", options):
        check_version(default_metadata_version)
        target = target_of(store, dataset_uuid, factory)
        check_store_can_commit(target.store)
        base = find_snapshot(target.store, target.uuid)
        request = plan_update(target.uuid, base, partition_on, secondary_indices, df_serializer, sort_partitions_by, add_columns)
        rules = update_options(delete_scope, base, on_conflict)
        arguments = metadata_arguments(metadata, metadata_merger, target.uuid)
        staged = stage_data(target.store, request, df_list)
        if base is None and not staged.schemas:
            raise InvalidInput(f"Cannot store empty datasets: {target.uuid!r} does not exist, and there are no rows to make it from.")
        return target.committed(commit_staged(target.store, staged, arguments, rules))


def update_dataset_from_dataframes__iter(
    df_generator: Iterable[IntoItem],
    store: StoreLike | None = None,
    dataset_uuid: str | None = None,
    delete_scope: DeleteScope | None = None,
    metadata: IntoMetadata = None,
    df_serializer: FileFormat | None = None,
    metadata_merger: MetadataMerger | None = None,
    central_partition_metadata: bool = True,
    default_metadata_version: int = 4,
    partition_on: Columns = None,
    load_dynamic_metadata: bool = True,
    sort_partitions_by: Columns = None,
    secondary_indices: Columns = None,
    factory: DatasetFactory | None = None,
    *,
    add_columns: bool = False,
    on_conflict: OnConflict = "raise",
    options: Overrides | None = None,
) -> DatasetMetadata:
    """Update a dataset with rows as they come: `update_dataset_from_dataframes` for a generator.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.core.stores import open_store
    >>> days = (pa.table({"SALES_DATE": [f"2024-05-0{day}"], "UNITS": [day]}) for day in (1, 2))
    >>> len(update_dataset_from_dataframes__iter(days, open_store("hmemory://"), "daily", partition_on="SALES_DATE").partitions)
    2
    """
    head = (store, dataset_uuid, delete_scope, metadata, df_serializer, metadata_merger, central_partition_metadata, default_metadata_version)
    tail = (partition_on, load_dynamic_metadata, sort_partitions_by, secondary_indices, factory)
    with operation("update_dataset_from_dataframes__iter", options):
        return update_dataset_from_dataframes(df_generator, *head, *tail, add_columns=add_columns, on_conflict=on_conflict)
