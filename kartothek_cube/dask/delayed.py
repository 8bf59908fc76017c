"""Datasets as delayed values of dask, under the names of ``kartothek.io.dask.delayed``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from kartothek_cube.core.arguments import as_list
from kartothek_cube.core.commit.change import OnConflict
from kartothek_cube.core.dataset.maintain import delete_dataset, garbage_collect_dataset
from kartothek_cube.core.dataset.reference import dataset_ref, target_of
from kartothek_cube.core.io.formats import FileFormat
from kartothek_cube.core.kartothek.dataset_metadata import DatasetFactory
from kartothek_cube.core.metadata.document import check_version
from kartothek_cube.core.metadata.naming import SINGLE_TABLE
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.stores.open import store_factory
from kartothek_cube.core.write.plan import plan_dataset_update, plan_new
from kartothek_cube.dask.read import DatasetRead, DtypeBackend, GroupFiles, plan_read
from kartothek_cube.dask.stage import DatasetTarget, Planner, commit_staged, stage_items
from kartothek_cube.dask.tasks import check_blocksize, constant, run_verb, task
from kartothek_cube.errors import InvalidInput
from kartothek_cube.typing import (
    AsOf,
    Columns,
    ColumnsByTable,
    DeleteScope,
    IntoItem,
    IntoMetadata,
    IntoPredicates,
    IntoTxn,
    MetadataMerger,
    StoreLike,
)

if TYPE_CHECKING:
    import pandas as pd
    from dask.delayed import Delayed

__all__ = [
    "delete_dataset__delayed",
    "garbage_collect_dataset__delayed",
    "read_dataset_as_delayed",
    "read_table_as_delayed",
    "store_delayed_as_dataset",
    "update_dataset_from_delayed",
]


def read_dataset_as_delayed(
    dataset_uuid: str | None = None,
    store: StoreLike | None = None,
    tables: Iterable[str] | None = None,
    columns: ColumnsByTable = None,
    concat_partitions_on_primary_index: bool = False,
    predicate_pushdown_to_io: bool = True,
    categoricals: ColumnsByTable = None,
    label_filter: Callable[[str], bool] | None = None,
    dates_as_object: bool = False,
    predicates: IntoPredicates | None = None,
    factory: DatasetFactory | None = None,
    dispatch_by: Columns = None,
    *,
    dtype_backend: DtypeBackend | None = None,
    as_of: AsOf | None = None,
    options: Overrides | None = None,
) -> list[Delayed]:
    """Read a dataset as delayed dicts of frames: one per partition, or per value of columns.

    The call plans the read and names exact files. Arguments, entries and errors are those of
    `kartothek_cube.api.dataset.read_dataset_as_dataframes`; workers open the same store, so other
    processes must see it. ``dtype_backend`` is as in
    `kartothek_cube.dask.dataframe.read_dataset_as_ddf`.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> from kartothek_cube.dask.delayed import read_dataset_as_delayed
    >>> sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = store_dataframes_as_dataset("hfs://lazily", "sales", [sales, sales])
    >>> parts = read_dataset_as_delayed("sales", "hfs://lazily")
    >>> [int(part.compute()["table"]["UNITS"].sum()) for part in parts]
    [7, 7]
    """
    with operation("read_dataset_as_delayed", options):
        arguments = tables, columns, categoricals, label_filter, dates_as_object, predicates, dispatch_by
        plan = plan_read(
            dataset_uuid, store, factory, *arguments, concat_partitions_on_primary_index, as_of, dtype_backend
        )
        read = constant(plan.read)
        return [task("read", load_group, read, constant(group)) for group in plan.groups]


def load_group(read: DatasetRead, group: GroupFiles) -> dict[str, pd.DataFrame]:
    return read.frames(group)


def read_table_as_delayed(
    dataset_uuid: str | None = None,
    store: StoreLike | None = None,
    table: str = SINGLE_TABLE,
    columns: ColumnsByTable = None,
    concat_partitions_on_primary_index: bool = False,
    predicate_pushdown_to_io: bool = True,
    categoricals: ColumnsByTable = None,
    label_filter: Callable[[str], bool] | None = None,
    dates_as_object: bool = False,
    predicates: IntoPredicates | None = None,
    factory: DatasetFactory | None = None,
    dispatch_by: Columns = None,
    *,
    dtype_backend: DtypeBackend | None = None,
    as_of: AsOf | None = None,
    options: Overrides | None = None,
) -> list[Delayed]:
    """Read one table as delayed frames; otherwise as `read_dataset_as_delayed`.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> from kartothek_cube.dask.delayed import read_table_as_delayed
    >>> sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = store_dataframes_as_dataset("hfs://lazy_table", "sales", [sales])
    >>> [len(part.compute()) for part in read_table_as_delayed("sales", "hfs://lazy_table")]
    [2]
    """
    with operation("read_table_as_delayed", options):
        arguments = [table], columns, categoricals, label_filter, dates_as_object, predicates, dispatch_by
        plan = plan_read(
            dataset_uuid, store, factory, *arguments, concat_partitions_on_primary_index, as_of, dtype_backend
        )
        read = constant(plan.read)
        return [task("read", load_table, read, constant(group), table) for group in plan.groups]


def load_table(read: DatasetRead, group: GroupFiles, table: str) -> pd.DataFrame:
    return read.frames(group)[table]


# --- writes ---------------------------------------------------------------------------------------


def store_delayed_as_dataset(
    delayed_tasks: Sequence[Delayed | IntoItem],
    store: StoreLike,
    dataset_uuid: str | None = None,
    metadata: IntoMetadata = None,
    df_serializer: FileFormat | None = None,
    overwrite: bool = False,
    metadata_merger: MetadataMerger | None = None,
    metadata_version: int = 4,
    partition_on: Columns = None,
    metadata_storage_format: str = "json",
    secondary_indices: Columns = None,
    *,
    on_conflict: OnConflict = "raise",
    txn: IntoTxn | None = None,
    options: Overrides | None = None,
) -> Delayed:
    """Store delayed items of rows as a new dataset, lazily.

    Items are as in `kartothek_cube.api.dataset.store_dataframes_as_dataset`, delayed or not; other
    arguments and errors are those of that function. Laziness, tasks and the one commit are as in
    `kartothek_cube.dask.dataframe.store_dataset_from_ddf`.

    Examples
    --------
    >>> import pandas as pd
    >>> from dask import delayed
    >>> from kartothek_cube.dask.delayed import store_delayed_as_dataset
    >>> weeks = [delayed(pd.DataFrame)({"WEEK": [week], "UNITS": [3 * week]}) for week in (1, 2)]
    >>> len(store_delayed_as_dataset(weeks, "hfs://by_week", "sales").compute().partitions)
    2
    """
    with operation("store_delayed_as_dataset", options):
        target = begin_new(
            "store_delayed_as_dataset",
            store,
            dataset_uuid,
            metadata,
            df_serializer,
            overwrite,
            metadata_merger,
            metadata_version,
            partition_on,
            metadata_storage_format,
            secondary_indices,
            on_conflict,
            txn,
        )
        return _written(target, delayed_tasks, None)


def begin_new(
    verb: str,
    store: StoreLike,
    dataset_uuid: str | None,
    metadata: object,
    serializer: object,
    overwrite: bool,
    merger: object,
    version: int,
    partition_on: object,
    storage_format: str,
    indices: object,
    on_conflict: object,
    txn: object,
) -> DatasetTarget:
    """Begin to make a dataset, or to replace one."""
    check_version(version)
    source = target_of(store, dataset_uuid, generate=True)
    arguments = as_list(partition_on, "partition_on"), indices, serializer, overwrite, storage_format
    named: dict[str, Any] = {
        "metadata": metadata,
        "merger": merger,
        "on_conflict": on_conflict,
        "txn": txn,
        "creates": True,
    }
    return DatasetTarget.begin(verb, store, source, Planner(plan_new, source.uuid, arguments), **named)


def update_dataset_from_delayed(
    delayed_tasks: Sequence[Delayed | IntoItem],
    store: StoreLike | None = None,
    dataset_uuid: str | None = None,
    delete_scope: DeleteScope | None = None,
    metadata: IntoMetadata = None,
    df_serializer: FileFormat | None = None,
    metadata_merger: MetadataMerger | None = None,
    default_metadata_version: int = 4,
    partition_on: Columns = None,
    sort_partitions_by: Columns = None,
    secondary_indices: Columns = None,
    factory: DatasetFactory | None = None,
    *,
    add_columns: bool = False,
    on_conflict: OnConflict = "raise",
    txn: IntoTxn | None = None,
    options: Overrides | None = None,
) -> Delayed:
    """Add delayed items of rows to a dataset and remove partitions, lazily, in one commit.

    ``delete_scope`` may be delayed, too. Items are as in `store_delayed_as_dataset`, arguments and
    errors as in `kartothek_cube.api.dataset.update_dataset_from_dataframes`.

    Examples
    --------
    >>> import pandas as pd
    >>> from dask import delayed
    >>> from kartothek_cube.dask.delayed import update_dataset_from_delayed
    >>> week = delayed(pd.DataFrame)({"WEEK": [1], "UNITS": [3]})
    >>> lazy = update_dataset_from_delayed([week], "hfs://weekly", "sales", partition_on="WEEK")
    >>> lazy.compute()
    DatasetMetadata(uuid='sales', partitions=1, partition_keys=['WEEK'])
    """
    with operation("update_dataset_from_delayed", options):
        check_version(default_metadata_version)
        source = target_of(store, dataset_uuid, factory)
        keys = as_list(partition_on, "partition_on")
        arguments = keys, secondary_indices, df_serializer, sort_partitions_by, add_columns
        target = DatasetTarget.begin(
            "update_dataset_from_delayed",
            store if factory is None else factory.store_factory,
            source,
            Planner(plan_dataset_update, source.uuid, arguments),
            metadata=metadata,
            merger=metadata_merger,
            on_conflict=on_conflict,
            txn=txn,
            delete_scope=None if hasattr(delete_scope, "dask") else delete_scope,
        )
        return _written(target, delayed_tasks, delete_scope)


def _written(target: DatasetTarget, items: Iterable[Any], scope: object) -> Delayed:
    shared = constant(target)
    staged = [task("stage", stage_items, shared, [item]) for item in items]
    return task("commit", commit_items, shared, scope, staged)


def commit_items(target: DatasetTarget, scope: object, staged: Sequence[Any]) -> Any:
    """In the last task: the commit of all items."""
    if target.creates and not any(part.receipts for part in staged):
        raise InvalidInput(
            "Cannot store empty datasets, partition_list must not be empty if in store mode: "
            f"there are no rows for {target.uuid!r}."
        )
    return commit_staged(target, scope, staged)


# --- maintenance ----------------------------------------------------------------------------------


def delete_dataset__delayed(
    dataset_uuid: str | None = None,
    store: StoreLike | None = None,
    factory: DatasetFactory | None = None,
    *,
    options: Overrides | None = None,
) -> Delayed:
    """Delete a dataset, lazily; the document goes last.

    Otherwise as `kartothek_cube.api.dataset.delete_dataset`.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.api.dataset import list_datasets, store_dataframes_as_dataset
    >>> from kartothek_cube.dask.delayed import delete_dataset__delayed
    >>> sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = store_dataframes_as_dataset("hfs://lazily_gone", "sales", [sales])
    >>> delete_dataset__delayed("sales", "hfs://lazily_gone").compute()
    >>> list_datasets("hfs://lazily_gone")
    []
    """
    with operation("delete_dataset__delayed", options):
        source = dataset_ref(dataset_uuid, store, factory)
        source.snapshot()
        stores = {"store": store_factory(store if factory is None else factory.store_factory)}
        return task("delete", run_verb, delete_dataset, stores, {"dataset_uuid": source.uuid})


def garbage_collect_dataset__delayed(
    dataset_uuid: str | None = None,
    store: StoreLike | None = None,
    chunk_size: int = 100,
    factory: DatasetFactory | None = None,
    *,
    options: Overrides | None = None,
) -> list[Delayed]:
    """Remove unreferenced files of a dataset that are old enough, lazily.

    The list has one delayed `GarbageReport`: files are listed when it is computed, and document and
    history are read again right before the first deletion. ``chunk_size``, the files of a task in
    kartothek, is checked; the size of tasks follows from their number.

    Otherwise as `kartothek_cube.api.dataset.garbage_collect_dataset`.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> from kartothek_cube.dask.delayed import garbage_collect_dataset__delayed
    >>> sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = store_dataframes_as_dataset("hfs://lazily_swept", "sales", [sales])
    >>> [part.compute() for part in garbage_collect_dataset__delayed("sales", "hfs://lazily_swept")]
    [GarbageReport(removed 0 files of 0 bytes; 0 files of 0 bytes wait)]
    """
    with operation("garbage_collect_dataset__delayed", options):
        check_blocksize(chunk_size)
        source = dataset_ref(dataset_uuid, store, factory)
        source.snapshot()
        stores = {"store": store_factory(store if factory is None else factory.store_factory)}
        return [task("collect", run_verb, garbage_collect_dataset, stores, {"dataset_uuid": source.uuid})]
