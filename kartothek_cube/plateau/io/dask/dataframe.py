"""Datasets as frames of dask: ``plateau.io.dask.dataframe``.

Three functions are those of `kartothek_cube.dask.dataframe`, which has all arguments of plateau's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import dask.dataframe as dd

from kartothek_cube.core.io.formats import FileFormat
from kartothek_cube.core.kartothek.dataset_metadata import DatasetFactory
from kartothek_cube.core.metadata.naming import SINGLE_TABLE
from kartothek_cube.dask import dataframe
from kartothek_cube.plateau.io.shapes import only_table
from kartothek_cube.typing import Columns, IntoMetadata, IntoPredicates, MetadataMerger, StoreLike

if TYPE_CHECKING:
    from dask.delayed import Delayed

__all__ = [
    "collect_dataset_metadata",
    "hash_dataset",
    "read_dataset_as_ddf",
    "store_dataset_from_ddf",
    "update_dataset_from_ddf",
]

hash_dataset = dataframe.hash_dataset
update_dataset_from_ddf = dataframe.update_dataset_from_ddf


def read_dataset_as_ddf(
    dataset_uuid: str | None = None,
    store: StoreLike | None = None,
    table: str = SINGLE_TABLE,
    columns: list[str] | None = None,
    predicate_pushdown_to_io: bool = True,
    categoricals: Sequence[str] | None = None,
    dates_as_object: bool = True,
    predicates: IntoPredicates | None = None,
    factory: DatasetFactory | None = None,
    dask_index_on: str | None = None,
    dispatch_by: Columns = None,
) -> dd.DataFrame:
    """Read a dataset as a frame of dask, with dates as dates.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.plateau.io.dask.dataframe import read_dataset_as_ddf
    >>> from kartothek_cube.plateau.io.eager import store_dataframes_as_dataset
    >>> sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = store_dataframes_as_dataset("hfs://p_ddf", "sales", [sales, sales])
    >>> read_dataset_as_ddf("sales", "hfs://p_ddf", "table").npartitions
    2
    """
    return dataframe.read_dataset_as_ddf(
        dataset_uuid,
        store,
        table,
        columns,
        predicate_pushdown_to_io=predicate_pushdown_to_io,
        categoricals=None if categoricals is None else list(categoricals),
        dates_as_object=dates_as_object,
        predicates=predicates,
        factory=factory,
        dask_index_on=dask_index_on,
        dispatch_by=dispatch_by,
    )


def store_dataset_from_ddf(
    ddf: dd.DataFrame,
    store: StoreLike,
    dataset_uuid: str | None,
    table: str = SINGLE_TABLE,
    secondary_indices: Columns = None,
    shuffle: bool = False,
    repartition_ratio: float | None = None,
    num_buckets: int = 1,
    sort_partitions_by: Columns = None,
    metadata: IntoMetadata = None,
    df_serializer: FileFormat | None = None,
    metadata_merger: MetadataMerger | None = None,
    metadata_version: int = 4,
    partition_on: Columns = None,
    bucket_by: Columns = None,
    overwrite: bool = False,
) -> Delayed:
    """Store the rows of a frame of dask as a new dataset, lazily.

    Examples
    --------
    >>> import dask.dataframe as dd
    >>> import pandas as pd
    >>> from kartothek_cube.plateau.io.dask.dataframe import store_dataset_from_ddf
    >>> frame = dd.from_pandas(pd.DataFrame({"UNITS": [3, 4]}), npartitions=2)
    >>> len(store_dataset_from_ddf(frame, "hfs://p_ddf_store", "sales").compute().partitions)
    2
    """
    return dataframe.store_dataset_from_ddf(
        ddf,
        store,
        dataset_uuid,
        table,
        secondary_indices,
        shuffle,
        repartition_ratio,
        num_buckets,
        sort_partitions_by,
        metadata=metadata,
        df_serializer=df_serializer,
        metadata_merger=metadata_merger,
        metadata_version=metadata_version,
        partition_on=partition_on,
        bucket_by=bucket_by,
        overwrite=overwrite,
    )


def collect_dataset_metadata(
    store: StoreLike | None = None,
    dataset_uuid: str | None = None,
    predicates: IntoPredicates | None = None,
    frac: float = 1.0,
    factory: DatasetFactory | None = None,
) -> dd.DataFrame:
    """Rows and bytes of each row group of a dataset, as a frame of dask.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.plateau.io.dask.dataframe import collect_dataset_metadata
    >>> from kartothek_cube.plateau.io.eager import store_dataframes_as_dataset
    >>> sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = store_dataframes_as_dataset("hfs://p_sizes", "sales", [sales])
    >>> collect_dataset_metadata("hfs://p_sizes", "sales").compute()["number_rows_total"].tolist()
    [2]
    """
    table = only_table(dataset_uuid, store, factory)
    return dataframe.collect_dataset_metadata(store, dataset_uuid, table, predicates, frac, factory)
