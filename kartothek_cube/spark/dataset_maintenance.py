"""Maintenance of datasets in Spark: the eager verbs, whose work on files runs in tasks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kartothek_cube.core.commit.change import OnConflict
from kartothek_cube.core.dataset.maintain import (
    build_dataset_indices_on,
    collect_dataset_metadata_on,
    copy_dataset_on,
    delete_dataset_on,
    garbage_collect_dataset_on,
    hash_dataset_on,
)
from kartothek_cube.core.dataset.reference import dataset_ref
from kartothek_cube.core.dataset.rows import delete_rows_on
from kartothek_cube.core.io.formats import FileFormat
from kartothek_cube.core.kartothek.dataset_metadata import DatasetFactory, DatasetMetadata
from kartothek_cube.core.maintenance.compaction_plan import TARGET_ROWS, CompactionReport
from kartothek_cube.core.maintenance.garbage import GarbageReport
from kartothek_cube.core.metadata.naming import SINGLE_TABLE
from kartothek_cube.core.rows.edits import RowsReport
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.stores.open import open_instrumented
from kartothek_cube.cube.verbs.maintain import compact_dataset_on
from kartothek_cube.spark.executor import SparkExecutor, spark_executor
from kartothek_cube.spark.session import session_by_keyword
from kartothek_cube.typing import AsOf, Columns, IntoPredicates, StoreLike

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from pyspark.sql import SparkSession

__all__ = [
    "build_dataset_indices_spark",
    "collect_dataset_metadata_spark",
    "compact_dataset_spark",
    "copy_dataset_spark",
    "delete_dataset_spark",
    "delete_rows_spark",
    "garbage_collect_dataset_spark",
    "hash_dataset_spark",
]


def _open(
    verb: str,
    uuid: str | None,
    store: StoreLike | None,
    factory: DatasetFactory | None,
    spark: SparkSession | None,
    parallelism: int | None,
) -> tuple[SparkExecutor, Store | None]:
    """The executor of one call, and the opened store; None where a factory brings the store."""
    source = dataset_ref(uuid, store, factory)
    given = store if factory is None else factory.store_factory
    executor = spark_executor(verb, f"dataset {source.uuid!r}", [(source.store, given)], spark, parallelism)
    return executor, source.store if factory is None else None


@session_by_keyword
def delete_dataset_spark(
    dataset_uuid: str | None = None,
    store: StoreLike | None = None,
    factory: DatasetFactory | None = None,
    *,
    options: Overrides | None = None,
    spark: SparkSession | None = None,
    parallelism: int | None = None,
) -> None:
    """Delete a dataset. Spark tasks remove the files, the driver the document last.

    A retried task finds nothing left to delete, which is no error.

    Otherwise as `kartothek_cube.api.dataset.delete_dataset`, with ``spark`` and ``parallelism`` of
    `store_dataset_from_spark`. A store that other processes cannot open is refused with
    `InvalidType`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> from kartothek_cube.spark import delete_dataset_spark
    >>> sales = pa.table({"COUNTRY_CODE": ["DE", "FR"], "BRAND": ["Acme", "Acme"]})
    >>> _ = store_dataframes_as_dataset("hfs://gone", "sales", [sales])
    >>> delete_dataset_spark("sales", "hfs://gone")
    """
    with operation("delete_dataset_spark", options):
        executor, opened = _open("delete", dataset_uuid, store, factory, spark, parallelism)
        delete_dataset_on(executor, dataset_uuid, opened, factory)


@session_by_keyword
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
    """Copy a dataset, under another name or to another store. Spark tasks copy the files.

    Between two stores a file passes through the task in blocks. The driver writes the document
    after the last file.

    Otherwise as `kartothek_cube.api.dataset.copy_dataset`, with ``spark`` and ``parallelism`` of
    `store_dataset_from_spark`. Stores that other processes cannot open are refused with
    `InvalidType`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> from kartothek_cube.spark import copy_dataset_spark
    >>> sales = pa.table({"COUNTRY_CODE": ["DE", "FR"], "BRAND": ["Acme", "Acme"]})
    >>> _ = store_dataframes_as_dataset("hfs://twice", "sales", [sales])
    >>> list(copy_dataset_spark("sales", "hfs://twice", "sales_2024"))
    ['sales_2024.by-dataset-metadata.json']
    """
    with operation("copy_dataset_spark", options):
        source = dataset_ref(source_dataset_uuid, store, None).store
        target = source if target_store is None else open_instrumented(target_store)
        stores = [(source, store), (target, store if target_store is None else target_store)]
        subject = f"dataset {source_dataset_uuid!r}"
        executor = spark_executor("copy", subject, stores, spark, parallelism)
        return copy_dataset_on(executor, source_dataset_uuid, source, target_dataset_uuid, target, overwrite=overwrite)


@session_by_keyword
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
    """Remove unreferenced files of a dataset that are old enough, in Spark tasks.

    The driver lists the garbage, and reads document and history again right before the first
    deletion.

    Otherwise as `kartothek_cube.api.dataset.garbage_collect_dataset`, with ``spark`` and
    ``parallelism`` of `store_dataset_from_spark`. A store that other processes cannot open is
    refused with `InvalidType`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> from kartothek_cube.spark import garbage_collect_dataset_spark
    >>> sales = pa.table({"COUNTRY_CODE": ["DE", "FR"], "BRAND": ["Acme", "Acme"]})
    >>> _ = store_dataframes_as_dataset("hfs://swept", "sales", [sales])
    >>> garbage_collect_dataset_spark("sales", "hfs://swept")
    GarbageReport(removed 0 files of 0 bytes; 0 files of 0 bytes wait)
    """
    with operation("garbage_collect_dataset_spark", options):
        executor, opened = _open("collect garbage of", dataset_uuid, store, factory, spark, parallelism)
        return garbage_collect_dataset_on(executor, dataset_uuid, opened, factory, dry_run=dry_run)


@session_by_keyword
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
    """Build secondary indices on columns of a dataset. Spark tasks read the columns.

    The tasks return the distinct values of each file. The driver builds the indices and publishes
    them in one commit.

    Otherwise as `kartothek_cube.api.dataset.build_dataset_indices`, with ``spark`` and
    ``parallelism`` of `store_dataset_from_spark`. A store that other processes cannot open is
    refused with `InvalidType`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> from kartothek_cube.spark import build_dataset_indices_spark
    >>> sales = pa.table({"COUNTRY_CODE": ["DE", "FR"], "BRAND": ["Acme", "Acme"]})
    >>> _ = store_dataframes_as_dataset("hfs://indexed", "sales", [sales])
    >>> factory = build_dataset_indices_spark("hfs://indexed", "sales", "BRAND")
    >>> len(factory.load_index("BRAND").indices["BRAND"].query("Acme"))
    1
    """
    with operation("build_dataset_indices_spark", options):
        executor, opened = _open("build indices of", dataset_uuid, store, factory, spark, parallelism)
        return build_dataset_indices_on(executor, opened, dataset_uuid, columns, factory)


@session_by_keyword
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
    """Rows and bytes of each row group, from the footers of data files that Spark tasks read.

    The result is a pandas frame, not a Spark data frame.

    Otherwise as `kartothek_cube.api.dataset.collect_dataset_metadata`, with ``spark`` and
    ``parallelism`` of `store_dataset_from_spark`. A store that other processes cannot open is
    refused with `InvalidType`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> from kartothek_cube.spark import collect_dataset_metadata_spark
    >>> sales = pa.table({"COUNTRY_CODE": ["DE", "FR"], "BRAND": ["Acme", "Acme"]})
    >>> _ = store_dataframes_as_dataset("hfs://footers", "sales", [sales])
    >>> collect_dataset_metadata_spark("hfs://footers", "sales")["number_rows_total"].tolist()
    [2]
    """
    with operation("collect_dataset_metadata_spark", options):
        executor, opened = _open("read footers of", dataset_uuid, store, factory, spark, parallelism)
        return collect_dataset_metadata_on(
            executor, opened, dataset_uuid, table_name, predicates, frac, factory, random_state, as_of
        )


@session_by_keyword
def hash_dataset_spark(
    store: StoreLike | None = None,
    dataset_uuid: str | None = None,
    subset: Iterable[str] | str | None = None,
    group_key: Iterable[str] | str | None = None,
    table: str = SINGLE_TABLE,
    predicates: IntoPredicates | None = None,
    factory: DatasetFactory | None = None,
    *,
    as_of: AsOf | None = None,
    options: Overrides | None = None,
    spark: SparkSession | None = None,
    parallelism: int | None = None,
) -> pd.Series[int]:
    """A 64-bit hash of each partition, or of each group of rows. Spark tasks read the files.

    The hashes equal those of `hash_dataset`. With ``group_key`` the tasks return one hash for each
    group and file, and the driver sums them by group.

    Otherwise as `kartothek_cube.api.dataset.hash_dataset`, with ``spark`` and ``parallelism`` of
    `store_dataset_from_spark`. A store that other processes cannot open is refused with
    `InvalidType`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.api.dataset import hash_dataset, store_dataframes_as_dataset
    >>> from kartothek_cube.spark import hash_dataset_spark
    >>> sales = pa.table({"COUNTRY_CODE": ["DE", "FR"], "BRAND": ["Acme", "Acme"]})
    >>> _ = store_dataframes_as_dataset("hfs://hashed", "sales", [sales])
    >>> hash_dataset_spark("hfs://hashed", "sales").equals(hash_dataset("hfs://hashed", "sales"))
    True
    """
    with operation("hash_dataset_spark", options):
        executor, opened = _open("hash", dataset_uuid, store, factory, spark, parallelism)
        return hash_dataset_on(executor, opened, dataset_uuid, subset, group_key, table, predicates, factory, as_of)


@session_by_keyword
def compact_dataset_spark(
    dataset_uuid: str | None = None,
    store: StoreLike | None = None,
    target_rows: int = TARGET_ROWS,
    predicates: IntoPredicates | None = None,
    dry_run: bool = False,
    *,
    sort_by: Columns = None,
    zorder_by: Columns = None,
    factory: DatasetFactory | None = None,
    df_serializer: FileFormat | None = None,
    rewrite: bool = False,
    options: Overrides | None = None,
    spark: SparkSession | None = None,
    parallelism: int | None = None,
) -> CompactionReport:
    """Merge small files of a dataset in Spark tasks, and publish the result in one commit.

    A task streams each merge within ``options(bytes_in_flight=...)`` and returns receipts, which
    the driver publishes.

    Otherwise as `kartothek_cube.api.dataset.compact_dataset`, with ``spark`` and ``parallelism`` of
    `store_dataset_from_spark`. A store that other processes cannot open is refused with
    `InvalidType`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> from kartothek_cube.spark import compact_dataset_spark
    >>> sales = pa.table({"COUNTRY_CODE": ["DE", "FR"], "BRAND": ["Acme", "Acme"]})
    >>> _ = store_dataframes_as_dataset("hfs://merged", "sales", [sales, sales])
    >>> report = compact_dataset_spark("sales", "hfs://merged")
    >>> report.files_before, report.files_after
    (2, 1)
    """
    with operation("compact_dataset_spark", options):
        executor, opened = _open("compact", dataset_uuid, store, factory, spark, parallelism)
        return compact_dataset_on(
            executor,
            dataset_uuid,
            opened,
            target_rows,
            predicates,
            dry_run,
            sort_by,
            zorder_by,
            factory,
            df_serializer,
            rewrite,
        )


@session_by_keyword
def delete_rows_spark(
    dataset_uuid: str,
    store: StoreLike,
    predicates: IntoPredicates,
    *,
    on_conflict: OnConflict = "raise",
    dry_run: bool = False,
    options: Overrides | None = None,
    spark: SparkSession | None = None,
    parallelism: int | None = None,
) -> RowsReport:
    """Delete the rows that satisfy predicates. Spark tasks search and write the files.

    The driver finds the files by partition values and indices. One job searches them, another one
    writes those that have such rows. Rows never leave the tasks; the driver gets counts and
    receipts, and publishes the new files in one commit.

    Otherwise as `kartothek_cube.api.dataset.delete_rows`, with ``spark`` and ``parallelism`` of
    `store_dataset_from_spark`. A store that other processes cannot open is refused with
    `InvalidType`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> from kartothek_cube.spark import delete_rows_spark
    >>> orders = pa.table({"CUSTOMER_ID": [7, 8, 7], "AMOUNT": [10.0, 20.0, 30.0]})
    >>> _ = store_dataframes_as_dataset("hfs://forgotten", "orders", [orders])
    >>> delete_rows_spark("orders", "hfs://forgotten", [[("CUSTOMER_ID", "==", 7)]]).deleted
    2
    """
    with operation("delete_rows_spark", options):
        executor, opened = _open("delete rows of", dataset_uuid, store, None, spark, parallelism)
        return delete_rows_on(
            executor, dataset_uuid, store if opened is None else opened, predicates, on_conflict, dry_run
        )
