"""Datasets as bags of dask, under the names of ``kartothek.io.dask.bag``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import dask.bag as db

from kartothek_cube.core.arguments import as_list
from kartothek_cube.core.commit.change import OnConflict
from kartothek_cube.core.dataset.maintain import build_dataset_indices
from kartothek_cube.core.dataset.reference import dataset_ref
from kartothek_cube.core.io.formats import FileFormat
from kartothek_cube.core.kartothek.dataset_metadata import DatasetFactory
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.scan.plan import checked_columns
from kartothek_cube.core.stores.open import store_factory
from kartothek_cube.dask.delayed import begin_new, commit_items
from kartothek_cube.dask.read import DtypeBackend, plan_read
from kartothek_cube.dask.stage import stage_items
from kartothek_cube.dask.tasks import check_blocksize, constant, run_verb, task
from kartothek_cube.errors import InvalidType
from kartothek_cube.typing import (
    AsOf,
    Columns,
    ColumnsByTable,
    IntoMetadata,
    IntoPredicates,
    IntoTxn,
    MetadataMerger,
    StoreLike,
)

if TYPE_CHECKING:
    from dask.delayed import Delayed

__all__ = ["build_dataset_indices__bag", "read_dataset_as_dataframe_bag", "store_bag_as_dataset"]


def read_dataset_as_dataframe_bag(
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
    partition_size: int | None = None,
    *,
    dtype_backend: DtypeBackend | None = None,
    as_of: AsOf | None = None,
    options: Overrides | None = None,
) -> db.Bag:
    """Read a dataset as a bag of dicts of frames: one per partition, or per value of columns.

    ``partition_size`` is the number of entries in one partition of the bag. Otherwise as
    `kartothek_cube.dask.delayed.read_dataset_as_delayed`.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> from kartothek_cube.dask.bag import read_dataset_as_dataframe_bag
    >>> sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = store_dataframes_as_dataset("hfs://bagged", "sales", [sales, sales[:1]])
    >>> bag = read_dataset_as_dataframe_bag("sales", "hfs://bagged")
    >>> bag.map(lambda part: len(part["table"])).compute(scheduler="sync")
    [2, 1]
    """
    with operation("read_dataset_as_dataframe_bag", options):
        arguments = tables, columns, categoricals, label_filter, dates_as_object, predicates, dispatch_by
        plan = plan_read(
            dataset_uuid, store, factory, *arguments, concat_partitions_on_primary_index, as_of, dtype_backend
        )
        return bag_of(plan.groups, 1 if partition_size is None else partition_size, plan.loader())


def bag_of(items: Sequence[Any], size: int, load: Callable[[Any], Any]) -> db.Bag:
    """A bag with one entry an item, several of them in one partition; ``load`` runs in tasks."""
    if not items:
        return db.from_delayed([task("empty", list)])
    return db.from_sequence(items, partition_size=check_blocksize(size)).map(load)


def check_bag(bag: object, subject: str) -> db.Bag:
    """The bag of dask.

    Raises
    ------
    InvalidType
        If it is anything else.
    """
    if not isinstance(bag, db.Bag):
        raise InvalidType(f"Expected a bag of dask for {subject}; got {type(bag).__name__}.")
    return bag


def store_bag_as_dataset(
    bag: db.Bag,
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
) -> db.Item:
    """Store the entries of a bag as a new dataset, lazily.

    Entries are items as in `kartothek_cube.dask.delayed.store_delayed_as_dataset`, with its
    arguments and errors. Each partition of the bag is one task.

    Examples
    --------
    >>> import dask.bag as db
    >>> import pandas as pd
    >>> from kartothek_cube.dask.bag import store_bag_as_dataset
    >>> weeks = db.from_sequence([1, 2]).map(lambda week: pd.DataFrame({"WEEK": [week]}))
    >>> store_bag_as_dataset(weeks, "hfs://from_bag", "sales").compute(scheduler="sync")
    DatasetMetadata(uuid='sales', partitions=2, partition_keys=[])
    """
    with operation("store_bag_as_dataset", options):
        checked = check_bag(bag, f"dataset {dataset_uuid!r}")
        target = begin_new(
            "store_bag_as_dataset",
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
        shared = constant(target)
        staged = [task("stage", stage_items, shared, part) for part in checked.to_delayed()]
        return db.Item.from_delayed(task("commit", commit_items, shared, None, staged))


def build_dataset_indices__bag(
    store: StoreLike | None,
    dataset_uuid: str | None,
    columns: Columns,
    partition_size: int | None = None,
    factory: DatasetFactory | None = None,
    *,
    options: Overrides | None = None,
) -> Delayed:
    """Build secondary indices on columns of a dataset, lazily, in one commit.

    Tasks read the columns. ``partition_size``, the files of a task in kartothek, is checked; the
    size of tasks follows from their number. Otherwise as
    `kartothek_cube.api.dataset.build_dataset_indices`.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.api.dataset import DatasetFactory, store_dataframes_as_dataset
    >>> from kartothek_cube.dask.bag import build_dataset_indices__bag
    >>> sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = store_dataframes_as_dataset("hfs://lazy_index", "sales", [sales])
    >>> _ = build_dataset_indices__bag("hfs://lazy_index", "sales", ["UNITS"]).compute()
    >>> sorted(DatasetFactory("sales", "hfs://lazy_index").indices)
    ['UNITS']
    """
    with operation("build_dataset_indices__bag", options):
        if partition_size is not None:
            check_blocksize(partition_size)
        source, names = dataset_ref(dataset_uuid, store, factory), [str(c) for c in as_list(columns, "columns")]
        for schema in source.snapshot().schemas.values():
            checked_columns(names, schema, source.uuid)
        stores = {"store": store_factory(store if factory is None else factory.store_factory)}
        return task("build", run_verb, build_dataset_indices, stores, {"dataset_uuid": source.uuid, "columns": names})
