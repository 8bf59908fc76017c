"""Datasets as bags of dask: ``plateau.io.dask.bag``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kartothek_cube.core.io.formats import FileFormat
from kartothek_cube.core.kartothek.dataset_metadata import DatasetFactory
from kartothek_cube.core.metadata.naming import SINGLE_TABLE
from kartothek_cube.dask import bag as bags
from kartothek_cube.plateau.io.shapes import only_table, with_table
from kartothek_cube.typing import Columns, IntoMetadata, IntoPredicates, MetadataMerger, StoreLike

if TYPE_CHECKING:
    import dask.bag as db

__all__ = ["build_dataset_indices__bag", "read_dataset_as_dataframe_bag", "store_bag_as_dataset"]

build_dataset_indices__bag = bags.build_dataset_indices__bag


def read_dataset_as_dataframe_bag(
    dataset_uuid: str | None = None,
    store: StoreLike | None = None,
    columns: list[str] | None = None,
    predicate_pushdown_to_io: bool = True,
    categoricals: list[str] | None = None,
    dates_as_object: bool = True,
    predicates: IntoPredicates | None = None,
    factory: DatasetFactory | None = None,
    dispatch_by: Columns = None,
    partition_size: int | None = None,
) -> db.Bag:
    """Read a dataset as a bag of frames.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.plateau.io.dask.bag import read_dataset_as_dataframe_bag
    >>> from kartothek_cube.plateau.io.eager import store_dataframes_as_dataset
    >>> sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = store_dataframes_as_dataset("hfs://p_bag", "sales", [sales, sales])
    >>> read_dataset_as_dataframe_bag("sales", "hfs://p_bag").map(len).compute(scheduler="sync")
    [2, 2]
    """
    table = only_table(dataset_uuid, store, factory)
    return bags.read_dataset_as_dataframe_bag(
        dataset_uuid,
        store,
        columns=columns,
        predicate_pushdown_to_io=predicate_pushdown_to_io,
        categoricals=categoricals,
        dates_as_object=dates_as_object,
        predicates=predicates,
        factory=factory,
        dispatch_by=dispatch_by,
        partition_size=partition_size,
    ).pluck(table)


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
    table_name: str = SINGLE_TABLE,
) -> db.Item:
    """Store the frames of a bag as a new dataset, lazily.

    Examples
    --------
    >>> import dask.bag as db
    >>> import pandas as pd
    >>> from kartothek_cube.plateau.io.dask.bag import store_bag_as_dataset
    >>> weeks = db.from_sequence([1, 2]).map(lambda week: pd.DataFrame({"WEEK": [week]}))
    >>> stored = store_bag_as_dataset(weeks, "hfs://p_bag_store", "sales")
    >>> len(stored.compute(scheduler="sync").partitions)
    2
    """
    named = bags.check_bag(bag, f"dataset {dataset_uuid!r}").map(
        partial(with_table, table=table_name, dataset=dataset_uuid)
    )
    form = df_serializer, overwrite, metadata_merger, metadata_version
    return bags.store_bag_as_dataset(
        named, store, dataset_uuid, metadata, *form, partition_on, metadata_storage_format, secondary_indices
    )
