"""Maintenance of a dataset whose work per file is done in Spark tasks: the eager verbs, told to spread it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from kartothek_cube.core.compat.dataset_metadata import DatasetMetadata
from kartothek_cube.core.compat.factory import DatasetFactory
from kartothek_cube.core.dataset.arguments import source_of
from kartothek_cube.core.dataset.build_indices import build_dataset_indices
from kartothek_cube.core.dataset.collect_garbage import garbage_collect_dataset
from kartothek_cube.core.dataset.compact import compact_dataset
from kartothek_cube.core.dataset.copy import copy_dataset
from kartothek_cube.core.dataset.delete import delete_dataset
from kartothek_cube.core.dataset.statistics import collect_dataset_metadata, hash_dataset
from kartothek_cube.core.formats import FileFormat
from kartothek_cube.core.journal import verb
from kartothek_cube.core.maintenance.compact import TARGET_ROWS
from kartothek_cube.core.maintenance.compact_report import CompactionReport
from kartothek_cube.core.maintenance.garbage import GarbageReport
from kartothek_cube.core.naming import SINGLE_TABLE
from kartothek_cube.core.options import Overrides
from kartothek_cube.core.store import Store
from kartothek_cube.core.stores import open_store
from kartothek_cube.spark.spread import spreading
from kartothek_cube.typing import AsOf, Columns, IntoPredicates, StoreLike

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import SparkSession

__all__ = [
    "build_dataset_indices_spark",
    "collect_dataset_metadata_spark",
    "compact_dataset_spark",
    "copy_dataset_spark",
    "delete_dataset_spark",
    "garbage_collect_dataset_spark",
    "hash_dataset_spark",
]


@contextmanager
def _spreading(
    verb: str, uuid: str | None, store: StoreLike | None, factory: DatasetFactory | None, spark: SparkSession | None, parallelism: int | None
) -> Iterator[Store | None]:
    """The store to give to a verb that is called in the block, unless a factory says where the dataset lies; its work goes into tasks."""
    source = source_of(uuid, store, factory)
    given = store if factory is None else factory.store_factory
    with spreading(verb, f"dataset {source.uuid!r}", [(source.store, given)], spark, parallelism):
        yield source.store if factory is None else None


def delete_dataset_spark(
    dataset_uuid: str | None = None,
    store: StoreLike | None = None,
    factory: DatasetFactory | None = None,
    *,
    options: Overrides | None = None,
    spark: SparkSession | None = None,
    parallelism: int | None = None,
) -> None:
    """Delete a dataset, with the files removed in Spark tasks.

    The order is as of `delete_dataset`, the document last. A task that fails and is tried again finds nothing left to delete, which is no error.

    Parameters
    ----------
    dataset_uuid, store, factory, options
        As in `kartothek_cube.api.dataset.delete_dataset`. The executors open the same store, so it has to be one that other processes see.
    spark : SparkSession, optional
        By default the active session; classic or Connect.
    parallelism : int, optional
        How many tasks run at once; by default what the session says.

    Raises
    ------
    InvalidType
        If other processes cannot open the store; all other errors are those of `delete_dataset`.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> from kartothek_cube.spark import delete_dataset_spark
    >>> sales = [pd.DataFrame({"COUNTRY_CODE": [country], "BRAND": "Acme", "UNITS": [1]}) for country in ("DE", "FR", "DE")]
    >>> _ = store_dataframes_as_dataset("hfs://gone", "sales", sales, partition_on=["COUNTRY_CODE"])
    >>> delete_dataset_spark("sales", "hfs://gone")
    """
    with verb("delete_dataset_spark", options), _spreading("delete", dataset_uuid, store, factory, spark, parallelism) as opened:
        delete_dataset(dataset_uuid, opened, factory, options=options)  # type: ignore[call-overload]  # one of the two forms


def copy_dataset_spark(
    source_dataset_uuid: str,
    store: StoreLike,
    target_dataset_uuid: str | None = None,
    target_store: StoreLike | None = None,
    *,
    overwrite: bool = False,
    options: Overrides | None = None,
    spark: SparkSession | None = None,
    parallelism: int | None = None,
) -> dict[str, DatasetMetadata]:
    """Copy a dataset, under another name or to another store, with the files copied in Spark tasks.

    Between two stores a file goes through the task in blocks. The driver writes the document when all files are there.

    Parameters
    ----------
    source_dataset_uuid, store, target_dataset_uuid, target_store, overwrite, options
        As in `kartothek_cube.api.dataset.copy_dataset`. The executors open the same store, so it has to be one that other processes see.
    spark : SparkSession, optional
        By default the active session; classic or Connect.
    parallelism : int, optional
        How many tasks run at once; by default what the session says.

    Returns
    -------
    dict of str to DatasetMetadata
        As of `copy_dataset`.

    Raises
    ------
    InvalidType
        If other processes cannot open the store; all other errors are those of `copy_dataset`.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> from kartothek_cube.spark import copy_dataset_spark
    >>> sales = [pd.DataFrame({"COUNTRY_CODE": [country], "BRAND": "Acme", "UNITS": [1]}) for country in ("DE", "FR", "DE")]
    >>> _ = store_dataframes_as_dataset("hfs://twice", "sales", sales, partition_on=["COUNTRY_CODE"])
    >>> list(copy_dataset_spark("sales", "hfs://twice", "sales_2024"))
    ['sales_2024.by-dataset-metadata.json']
    """
    source = source_of(source_dataset_uuid, store, None).store
    target = source if target_store is None else open_store(target_store)
    stores = [(source, store), (target, store if target_store is None else target_store)]
    with verb("copy_dataset_spark", options), spreading("copy", f"dataset {source_dataset_uuid!r}", stores, spark, parallelism):
        return copy_dataset(source_dataset_uuid, source, target_dataset_uuid, target, overwrite=overwrite, options=options)


def garbage_collect_dataset_spark(
    dataset_uuid: str | None = None,
    store: StoreLike | None = None,
    factory: DatasetFactory | None = None,
    *,
    dry_run: bool = False,
    options: Overrides | None = None,
    spark: SparkSession | None = None,
    parallelism: int | None = None,
) -> GarbageReport:
    """Remove the files of a dataset that it no longer names and that are old enough, in Spark tasks.

    What is garbage is found on the driver, which looks at document and history once more right before the first file goes.

    Parameters
    ----------
    dataset_uuid, store, factory, dry_run, options
        As in `kartothek_cube.api.dataset.garbage_collect_dataset`. The executors open the same store, so it has to be one that other processes see.
    spark : SparkSession, optional
        By default the active session; classic or Connect.
    parallelism : int, optional
        How many tasks run at once; by default what the session says.

    Returns
    -------
    GarbageReport
        As of `garbage_collect_dataset`.

    Raises
    ------
    InvalidType
        If other processes cannot open the store; all other errors are those of `garbage_collect_dataset`.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> from kartothek_cube.spark import garbage_collect_dataset_spark
    >>> sales = [pd.DataFrame({"COUNTRY_CODE": [country], "BRAND": "Acme", "UNITS": [1]}) for country in ("DE", "FR", "DE")]
    >>> _ = store_dataframes_as_dataset("hfs://swept", "sales", sales, partition_on=["COUNTRY_CODE"])
    >>> garbage_collect_dataset_spark("sales", "hfs://swept")
    GarbageReport(removed 0 files of 0 bytes; 0 files of 0 bytes wait)
    """
    with verb("garbage_collect_dataset_spark", options), _spreading("collect garbage of", dataset_uuid, store, factory, spark, parallelism) as opened:
        return garbage_collect_dataset(dataset_uuid, opened, factory, dry_run=dry_run, options=options)  # type: ignore[call-overload, no-any-return]  # one of the two forms


def build_dataset_indices_spark(
    store: StoreLike | None,
    dataset_uuid: str | None,
    columns: Iterable[str] | str,
    factory: DatasetFactory | None = None,
    *,
    options: Overrides | None = None,
    spark: SparkSession | None = None,
    parallelism: int | None = None,
) -> DatasetFactory:
    """Build secondary indices on columns of a dataset that exists, with these columns of each file read in Spark tasks.

    The distinct values of each file come back; the driver makes the indices of them and publishes these in one commit.

    Parameters
    ----------
    store, dataset_uuid, columns, factory, options
        As in `kartothek_cube.api.dataset.build_dataset_indices`. The executors open the same store, so it has to be one that other processes see.
    spark : SparkSession, optional
        By default the active session; classic or Connect.
    parallelism : int, optional
        How many tasks run at once; by default what the session says.

    Returns
    -------
    DatasetFactory
        As of `build_dataset_indices`.

    Raises
    ------
    InvalidType
        If other processes cannot open the store; all other errors are those of `build_dataset_indices`.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> from kartothek_cube.spark import build_dataset_indices_spark
    >>> sales = [pd.DataFrame({"COUNTRY_CODE": [country], "BRAND": "Acme", "UNITS": [1]}) for country in ("DE", "FR", "DE")]
    >>> _ = store_dataframes_as_dataset("hfs://indexed", "sales", sales, partition_on=["COUNTRY_CODE"])
    >>> factory = build_dataset_indices_spark("hfs://indexed", "sales", "BRAND")
    >>> len(factory.load_index("BRAND").indices["BRAND"].query("Acme"))
    3
    """
    with verb("build_dataset_indices_spark", options), _spreading("build indices of", dataset_uuid, store, factory, spark, parallelism) as opened:
        return build_dataset_indices(opened, dataset_uuid, columns, factory, options=options)


def collect_dataset_metadata_spark(
    store: StoreLike | None = None,
    dataset_uuid: str | None = None,
    table_name: str = SINGLE_TABLE,
    predicates: IntoPredicates | None = None,
    frac: float = 1.0,
    factory: DatasetFactory | None = None,
    *,
    random_state: int | np.random.Generator | np.random.BitGenerator | np.random.SeedSequence | None = None,
    as_of: AsOf | None = None,
    options: Overrides | None = None,
    spark: SparkSession | None = None,
    parallelism: int | None = None,
) -> pd.DataFrame:
    """What the footers of the data files say, one row for each row group, read in Spark tasks.

    Parameters
    ----------
    store, dataset_uuid, table_name, predicates, frac, factory, random_state, as_of, options
        As in `kartothek_cube.api.dataset.collect_dataset_metadata`. The executors open the same store, so it has to be one that other processes see.
    spark : SparkSession, optional
        By default the active session; classic or Connect.
    parallelism : int, optional
        How many tasks run at once; by default what the session says.

    Returns
    -------
    pandas.DataFrame
        As of `collect_dataset_metadata`; a pandas frame, not one of Spark.

    Raises
    ------
    InvalidType
        If other processes cannot open the store; all other errors are those of `collect_dataset_metadata`.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> from kartothek_cube.spark import collect_dataset_metadata_spark
    >>> sales = [pd.DataFrame({"COUNTRY_CODE": [country], "BRAND": "Acme", "UNITS": [1]}) for country in ("DE", "FR", "DE")]
    >>> _ = store_dataframes_as_dataset("hfs://footers", "sales", sales, partition_on=["COUNTRY_CODE"])
    >>> collect_dataset_metadata_spark("hfs://footers", "sales")["number_rows_total"].tolist()
    [1, 1, 1]
    """
    with verb("collect_dataset_metadata_spark", options), _spreading("read footers of", dataset_uuid, store, factory, spark, parallelism) as opened:
        return collect_dataset_metadata(opened, dataset_uuid, table_name, predicates, frac, factory, random_state=random_state, as_of=as_of, options=options)


def hash_dataset_spark(
    store: StoreLike | None = None,
    dataset_uuid: str | None = None,
    subset: Columns = None,
    group_key: Columns = None,
    table: str = SINGLE_TABLE,
    predicates: IntoPredicates | None = None,
    factory: DatasetFactory | None = None,
    *,
    as_of: AsOf | None = None,
    options: Overrides | None = None,
    spark: SparkSession | None = None,
    parallelism: int | None = None,
) -> pd.Series[int]:
    """A 64-bit hash of the rows of each partition, or of each group of rows, with files read in Spark tasks.

    With ``group_key`` the tasks return a hash for each group of each file; the driver adds them up.

    Parameters
    ----------
    store, dataset_uuid, subset, group_key, table, predicates, factory, as_of, options
        As in `kartothek_cube.api.dataset.hash_dataset`. The executors open the same store, so it has to be one that other processes see.
    spark : SparkSession, optional
        By default the active session; classic or Connect.
    parallelism : int, optional
        How many tasks run at once; by default what the session says.

    Returns
    -------
    pandas.Series
        As of `hash_dataset`: the same hashes.

    Raises
    ------
    InvalidType
        If other processes cannot open the store; all other errors are those of `hash_dataset`.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.api.dataset import hash_dataset, store_dataframes_as_dataset
    >>> from kartothek_cube.spark import hash_dataset_spark
    >>> sales = [pd.DataFrame({"COUNTRY_CODE": [country], "BRAND": "Acme", "UNITS": [1]}) for country in ("DE", "FR", "DE")]
    >>> _ = store_dataframes_as_dataset("hfs://hashed", "sales", sales, partition_on=["COUNTRY_CODE"])
    >>> hash_dataset_spark("hfs://hashed", "sales").equals(hash_dataset("hfs://hashed", "sales"))
    True
    """
    with verb("hash_dataset_spark", options), _spreading("hash", dataset_uuid, store, factory, spark, parallelism) as opened:
        return hash_dataset(opened, dataset_uuid, subset, group_key, table, predicates, factory, as_of=as_of, options=options)


def compact_dataset_spark(
    dataset_uuid: str | None = None,
    store: StoreLike | None = None,
    target_rows: int = TARGET_ROWS,
    predicates: IntoPredicates | None = None,
    dry_run: bool = False,
    *,
    factory: DatasetFactory | None = None,
    df_serializer: FileFormat | None = None,
    options: Overrides | None = None,
    spark: SparkSession | None = None,
    parallelism: int | None = None,
) -> CompactionReport:
    """Merge small files of a dataset into larger ones, in Spark tasks. All rows stay, and one commit makes it visible.

    Each merge is read and written by one task, piece by piece, within ``options(bytes_in_flight=...)`` for each task; only receipts come back, and the driver
    publishes them.

    Parameters
    ----------
    dataset_uuid, store, target_rows, predicates, dry_run, factory, df_serializer, options
        As in `kartothek_cube.api.dataset.compact_dataset`. The executors open the same store, so it has to be one that other processes see.
    spark : SparkSession, optional
        By default the active session; classic or Connect.
    parallelism : int, optional
        How many tasks run at once; by default what the session says.

    Returns
    -------
    CompactionReport
        As of `compact_dataset`.

    Raises
    ------
    InvalidType
        If other processes cannot open the store; all other errors are those of `compact_dataset`.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> from kartothek_cube.spark import compact_dataset_spark
    >>> sales = [pd.DataFrame({"COUNTRY_CODE": [country], "BRAND": "Acme", "UNITS": [1]}) for country in ("DE", "FR", "DE")]
    >>> _ = store_dataframes_as_dataset("hfs://merged", "sales", sales, partition_on=["COUNTRY_CODE"])
    >>> report = compact_dataset_spark("sales", "hfs://merged")
    >>> report.files_before, report.files_after
    (2, 1)
    """
    with verb("compact_dataset_spark", options), _spreading("compact", dataset_uuid, store, factory, spark, parallelism) as opened:
        return compact_dataset(dataset_uuid, opened, target_rows, predicates, dry_run, factory=factory, df_serializer=df_serializer, options=options)
