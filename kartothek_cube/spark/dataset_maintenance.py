"""Maintenance of datasets whose work on files is done in Spark tasks: the eager verbs, under a Spark driver."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kartothek_cube.core.dataset.copy import copy_dataset_on
from kartothek_cube.core.dataset.inspect import collect_dataset_metadata_on, hash_dataset_on
from kartothek_cube.core.dataset.maintain import build_dataset_indices_on, delete_dataset_on, garbage_collect_dataset_on
from kartothek_cube.core.dataset.reference import dataset_ref
from kartothek_cube.core.io.file_format import FileFormat
from kartothek_cube.core.kartothek.dataset_metadata import DatasetMetadata
from kartothek_cube.core.kartothek.factory import DatasetFactory
from kartothek_cube.core.maintenance.compaction.plan import TARGET_ROWS
from kartothek_cube.core.maintenance.compaction.report import CompactionReport
from kartothek_cube.core.maintenance.garbage.report import GarbageReport
from kartothek_cube.core.metadata.naming import SINGLE_TABLE
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.stores.open import open_instrumented
from kartothek_cube.cube.verbs.compact import compact_dataset_on
from kartothek_cube.spark.executor import SparkExecutor, spark_executor
from kartothek_cube.spark.maintenance import JOBS
from kartothek_cube.typing import AsOf, IntoPredicates, StoreLike

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
def _in_tasks(
    name: str,
    uuid: str | None,
    store: Any,
    factory: Any,
    options: Overrides | None,
    spark: SparkSession | None,
    parallelism: int | None,
) -> Iterator[tuple[SparkExecutor, Store | None]]:
    """The operation of a verb, with its executor, and with the opened store or None where a factory has it."""
    with operation(name, options):
        source = dataset_ref(uuid, store, factory)
        given = store if factory is None else factory.store_factory
        executor = spark_executor(JOBS[name], f"dataset {source.uuid!r}", [(source.store, given)], spark, parallelism)
        yield executor, source.store if factory is None else None


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

    The document is last, as in `delete_dataset`. A task that is tried again finds nothing left to
    delete, which is no error.

    Parameters, results and errors are those of `kartothek_cube.api.dataset.delete_dataset`, with
    ``spark`` and ``parallelism`` of `store_dataset_from_spark`. The store has to be one that other
    processes can open, else `InvalidType`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> from kartothek_cube.spark import delete_dataset_spark
    >>> sales = pa.table({"COUNTRY_CODE": ["DE", "FR"], "BRAND": ["Acme", "Acme"], "UNITS": [1, 2]})
    >>> _ = store_dataframes_as_dataset("hfs://gone", "sales", [sales], partition_on="COUNTRY_CODE")
    >>> delete_dataset_spark("sales", "hfs://gone")
    """
    with _in_tasks("delete_dataset_spark", dataset_uuid, store, factory, options, spark, parallelism) as (
        executor,
        opened,
    ):
        delete_dataset_on(executor, dataset_uuid, opened, factory)


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

    Between two stores a file goes through the task in blocks. The driver writes the document when
    all files are there.

    Parameters, results and errors are those of `kartothek_cube.api.dataset.copy_dataset`, with
    ``spark`` and ``parallelism`` of `store_dataset_from_spark`. The stores have to be ones that
    other processes can open, else `InvalidType`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> from kartothek_cube.spark import copy_dataset_spark
    >>> sales = pa.table({"COUNTRY_CODE": ["DE", "FR"], "BRAND": ["Acme", "Acme"], "UNITS": [1, 2]})
    >>> _ = store_dataframes_as_dataset("hfs://twice", "sales", [sales], partition_on="COUNTRY_CODE")
    >>> list(copy_dataset_spark("sales", "hfs://twice", "sales_2024"))
    ['sales_2024.by-dataset-metadata.json']
    """
    with operation("copy_dataset_spark", options):
        source = dataset_ref(source_dataset_uuid, store, None).store
        target = source if target_store is None else open_instrumented(target_store)
        stores = [(source, store), (target, store if target_store is None else target_store)]
        subject = f"dataset {source_dataset_uuid!r}"
        executor = spark_executor(JOBS["copy_dataset_spark"], subject, stores, spark, parallelism)
        return copy_dataset_on(executor, source_dataset_uuid, source, target_dataset_uuid, target, overwrite=overwrite)


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

    The driver finds what is garbage, and looks at document and history once more right before the
    first file goes.

    Parameters, results and errors are those of
    `kartothek_cube.api.dataset.garbage_collect_dataset`, with ``spark`` and ``parallelism`` of
    `store_dataset_from_spark`. The store has to be one that other processes can open, else
    `InvalidType`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> from kartothek_cube.spark import garbage_collect_dataset_spark
    >>> sales = pa.table({"COUNTRY_CODE": ["DE", "FR"], "BRAND": ["Acme", "Acme"], "UNITS": [1, 2]})
    >>> _ = store_dataframes_as_dataset("hfs://swept", "sales", [sales], partition_on="COUNTRY_CODE")
    >>> garbage_collect_dataset_spark("sales", "hfs://swept")
    GarbageReport(removed 0 files of 0 bytes; 0 files of 0 bytes wait)
    """
    with _in_tasks("garbage_collect_dataset_spark", dataset_uuid, store, factory, options, spark, parallelism) as (
        executor,
        opened,
    ):
        return garbage_collect_dataset_on(executor, dataset_uuid, opened, factory, dry_run=dry_run)


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
    """Build secondary indices on columns of a dataset, with the columns read in Spark tasks.

    The distinct values of each file come back; the driver makes the indices and publishes them in
    one commit.

    Parameters, results and errors are those of `kartothek_cube.api.dataset.build_dataset_indices`,
    with ``spark`` and ``parallelism`` of `store_dataset_from_spark`. The store has to be one that
    other processes can open, else `InvalidType`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> from kartothek_cube.spark import build_dataset_indices_spark
    >>> sales = pa.table({"COUNTRY_CODE": ["DE", "FR"], "BRAND": ["Acme", "Acme"], "UNITS": [1, 2]})
    >>> _ = store_dataframes_as_dataset("hfs://indexed", "sales", [sales], partition_on="COUNTRY_CODE")
    >>> factory = build_dataset_indices_spark("hfs://indexed", "sales", "BRAND")
    >>> len(factory.load_index("BRAND").indices["BRAND"].query("Acme"))
    2
    """
    with _in_tasks("build_dataset_indices_spark", dataset_uuid, store, factory, options, spark, parallelism) as (
        executor,
        opened,
    ):
        return build_dataset_indices_on(executor, opened, dataset_uuid, columns, factory)


def collect_dataset_metadata_spark(
    store: StoreLike | None = None,
    dataset_uuid: str | None = None,
    table_name: str = SINGLE_TABLE,
    predicates: IntoPredicates | None = None,
    frac: float = 1.0,
    factory: DatasetFactory | None = None,
    *,
    random_state: Any = None,
    as_of: AsOf | None = None,
    options: Overrides | None = None,
    spark: SparkSession | None = None,
    parallelism: int | None = None,
) -> pd.DataFrame:
    """What the footers of data files say, one row for each row group, read in Spark tasks.

    The result is a pandas frame, not one of Spark.

    Parameters, results and errors are those of
    `kartothek_cube.api.dataset.collect_dataset_metadata`, with ``spark`` and ``parallelism`` of
    `store_dataset_from_spark`. The store has to be one that other processes can open, else
    `InvalidType`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> from kartothek_cube.spark import collect_dataset_metadata_spark
    >>> sales = pa.table({"COUNTRY_CODE": ["DE", "FR"], "BRAND": ["Acme", "Acme"], "UNITS": [1, 2]})
    >>> _ = store_dataframes_as_dataset("hfs://footers", "sales", [sales], partition_on="COUNTRY_CODE")
    >>> collect_dataset_metadata_spark("hfs://footers", "sales")["number_rows_total"].tolist()
    [1, 1]
    """
    with _in_tasks("collect_dataset_metadata_spark", dataset_uuid, store, factory, options, spark, parallelism) as (
        executor,
        opened,
    ):
        return collect_dataset_metadata_on(
            executor, opened, dataset_uuid, table_name, predicates, frac, factory, random_state, as_of
        )


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
) -> pd.Series:
    """A 64-bit hash of each partition, or of each group of rows, with files read in Spark tasks.

    The hashes are those of `hash_dataset`. With ``group_key`` the tasks return a hash for each
    group of each file; the driver adds them up.

    Parameters, results and errors are those of `kartothek_cube.api.dataset.hash_dataset`, with
    ``spark`` and ``parallelism`` of `store_dataset_from_spark`. The store has to be one that other
    processes can open, else `InvalidType`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.api.dataset import hash_dataset, store_dataframes_as_dataset
    >>> from kartothek_cube.spark import hash_dataset_spark
    >>> sales = pa.table({"COUNTRY_CODE": ["DE", "FR"], "BRAND": ["Acme", "Acme"], "UNITS": [1, 2]})
    >>> _ = store_dataframes_as_dataset("hfs://hashed", "sales", [sales], partition_on="COUNTRY_CODE")
    >>> hash_dataset_spark("hfs://hashed", "sales").equals(hash_dataset("hfs://hashed", "sales"))
    True
    """
    with _in_tasks("hash_dataset_spark", dataset_uuid, store, factory, options, spark, parallelism) as (
        executor,
        opened,
    ):
        return hash_dataset_on(executor, opened, dataset_uuid, subset, group_key, table, predicates, factory, as_of)


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
    """Merge small files of a dataset in Spark tasks. All rows stay; one commit makes it visible.

    A task reads and writes each merge piece by piece, within ``options(bytes_in_flight=...)``; only
    receipts come back, and the driver publishes them.

    Parameters, results and errors are those of `kartothek_cube.api.dataset.compact_dataset`, with
    ``spark`` and ``parallelism`` of `store_dataset_from_spark`. The store has to be one that other
    processes can open, else `InvalidType`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> from kartothek_cube.spark import compact_dataset_spark
    >>> sales = pa.table({"COUNTRY_CODE": ["DE", "FR"], "BRAND": ["Acme", "Acme"], "UNITS": [1, 2]})
    >>> _ = store_dataframes_as_dataset("hfs://merged", "sales", [sales, sales], partition_on="COUNTRY_CODE")
    >>> report = compact_dataset_spark("sales", "hfs://merged")
    >>> report.files_before, report.files_after
    (4, 2)
    """
    with _in_tasks("compact_dataset_spark", dataset_uuid, store, factory, options, spark, parallelism) as (
        executor,
        opened,
    ):
        return compact_dataset_on(
            executor, dataset_uuid, opened, target_rows, predicates, dry_run, factory, df_serializer
        )
