"""Maintenance of cubes and datasets in Spark: eager verbs whose work on files runs in tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from kartothek_cube.core.commit.change import OnConflict
from kartothek_cube.core.dataset.maintain import (
    build_dataset_indices,
    collect_dataset_metadata,
    compact_dataset,
    copy_dataset,
    delete_dataset,
    garbage_collect_dataset,
    hash_dataset,
)
from kartothek_cube.core.dataset.reference import dataset_ref
from kartothek_cube.core.dataset.rows import delete_rows
from kartothek_cube.core.io.formats import FileFormat
from kartothek_cube.core.kartothek.dataset_metadata import DatasetFactory, DatasetMetadata
from kartothek_cube.core.maintenance.compaction_plan import TARGET_ROWS, CompactionReport
from kartothek_cube.core.maintenance.garbage import GarbageReport
from kartothek_cube.core.metadata.commit_log import parse_txn
from kartothek_cube.core.metadata.naming import SINGLE_TABLE
from kartothek_cube.core.rows.edits import RowsReport
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.stores.open import open_instrumented
from kartothek_cube.cube.cube import Cube, prefix_of
from kartothek_cube.cube.members import cube_and_store
from kartothek_cube.cube.verbs.cells import delete_cube
from kartothek_cube.cube.verbs.copy import copy_cube
from kartothek_cube.cube.verbs.maintain import cleanup_cube, collect_stats, compact_cube
from kartothek_cube.cube.write.commit import remove_from_members
from kartothek_cube.spark.session import session_by_keyword
from kartothek_cube.spark.tasks import SparkExecutor, spark_executor
from kartothek_cube.typing import (
    AsOf,
    Columns,
    IntoConditions,
    IntoDatasets,
    IntoPredicates,
    IntoTxn,
    StoreLike,
    UserMetadata,
)

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from pyspark.sql import SparkSession


def _open(
    verb: str, cube: Cube | str, given: Sequence[StoreLike], spark: SparkSession | None, parallelism: int | None
) -> tuple[SparkExecutor, list[Store]]:
    """The executor of one call, with ``verb`` in the names of its jobs, and the opened stores."""
    stores = [open_instrumented(store) for store in given]
    subject = f"cube {prefix_of(cube)!r}"
    return spark_executor(verb, subject, list(zip(stores, given, strict=True)), spark, parallelism), stores


@session_by_keyword
def delete_cube_spark(
    cube: Cube | str,
    store: StoreLike,
    datasets: IntoDatasets = None,
    *,
    options: Overrides | None = None,
    spark: SparkSession | None = None,
    parallelism: int | None = None,
) -> None:
    """Delete a cube, or some of its datasets. Spark tasks remove the files.

    The order is that of `delete_cube`: one job for each kind of file, documents last. A retried
    task finds nothing left to delete, which is no error.

    Otherwise as `kartothek_cube.api.cube.delete_cube`, with ``spark`` and ``parallelism`` of
    `build_cube_from_spark`. A store that other processes cannot open is refused with `InvalidType`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube
    >>> from kartothek_cube.spark import delete_cube_spark
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> sales = pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]})
    >>> _ = build_cube(sales, cube, "hfs://deleted")
    >>> delete_cube_spark(cube, "hfs://deleted")
    """
    with operation("delete_cube_spark", options, cube=cube):
        executor, (opened,) = _open("delete", cube, [store], spark, parallelism)
        delete_cube(cube, opened, datasets, executor=executor)


@session_by_keyword
def copy_cube_spark(
    cube: Cube | str,
    src_store: StoreLike,
    tgt_store: StoreLike,
    overwrite: bool = False,
    datasets: IntoDatasets = None,
    renamed_cube_prefix: str | None = None,
    renamed_datasets: Mapping[str, str] | None = None,
    *,
    options: Overrides | None = None,
    spark: SparkSession | None = None,
    parallelism: int | None = None,
) -> None:
    """Copy a cube, or some of its datasets, to another store. Spark tasks copy the files.

    A file passes through the task in blocks. The driver writes the documents after the last file,
    the seed's document last.

    Otherwise as `kartothek_cube.api.cube.copy_cube`, with ``spark`` and ``parallelism`` of
    `build_cube_from_spark`. Stores that other processes cannot open are refused with `InvalidType`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube, list_cubes
    >>> from kartothek_cube.spark import copy_cube_spark
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> sales = pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]})
    >>> _ = build_cube(sales, cube, "hfs://copied")
    >>> copy_cube_spark(cube, "hfs://copied", "hfs://backup", renamed_cube_prefix="sales_2024")
    >>> list_cubes("hfs://backup")
    ['sales_2024']
    """
    with operation("copy_cube_spark", options, cube=cube):
        executor, (source, target) = _open("copy", cube, [src_store, tgt_store], spark, parallelism)
        copy_cube(cube, source, target, overwrite, datasets, renamed_cube_prefix, renamed_datasets, executor=executor)


@session_by_keyword
def collect_stats_spark(
    cube: Cube | str,
    store: StoreLike,
    datasets: IntoDatasets = None,
    *,
    as_of: AsOf | None = None,
    options: Overrides | None = None,
    spark: SparkSession | None = None,
    parallelism: int | None = None,
) -> dict[str, dict[str, int]]:
    """Partitions, files, bytes and rows of each dataset of a cube. Spark tasks read the footers.

    One job reads all files of the cube.

    Otherwise as `kartothek_cube.api.cube.collect_stats`, with ``spark`` and ``parallelism`` of
    `build_cube_from_spark`. A store that other processes cannot open is refused with `InvalidType`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube
    >>> from kartothek_cube.spark import collect_stats_spark
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> sales = pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]})
    >>> _ = build_cube(sales, cube, "hfs://counted")
    >>> collect_stats_spark(cube, "hfs://counted")["seed"]["rows"]
    2
    """
    with operation("collect_stats_spark", options, cube=cube):
        executor, (opened,) = _open("stats", cube, [store], spark, parallelism)
        return collect_stats(cube, opened, datasets, as_of=as_of, executor=executor)


@session_by_keyword
def cleanup_cube_spark(
    cube: Cube | str,
    store: StoreLike,
    *,
    dry_run: bool = False,
    options: Overrides | None = None,
    spark: SparkSession | None = None,
    parallelism: int | None = None,
) -> GarbageReport:
    """Remove unreferenced files of a cube that are old enough, in Spark tasks.

    The driver lists the garbage, and reads documents and history again right before the first
    deletion.

    Otherwise as `kartothek_cube.api.cube.cleanup_cube`, with ``spark`` and ``parallelism`` of
    `build_cube_from_spark`. A store that other processes cannot open is refused with `InvalidType`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube
    >>> from kartothek_cube.spark import cleanup_cube_spark
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> sales = pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]})
    >>> _ = build_cube(sales, cube, "hfs://cleaned")
    >>> cleanup_cube_spark(cube, "hfs://cleaned")
    GarbageReport(removed 0 files of 0 bytes; 0 files of 0 bytes wait)
    """
    with operation("cleanup_cube_spark", options, cube=cube):
        executor, (opened,) = _open("cleanup", cube, [store], spark, parallelism)
        return cleanup_cube(cube, opened, dry_run=dry_run, executor=executor)


@session_by_keyword
def compact_cube_spark(
    cube: Cube | str,
    store: StoreLike,
    target_rows: int = TARGET_ROWS,
    conditions: IntoConditions = None,
    ktk_cube_dataset_ids: Iterable[str] | str | None = None,
    dry_run: bool = False,
    *,
    sort_by: Columns = None,
    zorder_by: Columns = None,
    df_serializer: FileFormat | None = None,
    rewrite: bool = False,
    options: Overrides | None = None,
    spark: SparkSession | None = None,
    parallelism: int | None = None,
) -> dict[str, CompactionReport]:
    """Merge small files of the datasets of a cube in Spark tasks. Every query answers as before.

    One job a dataset; for hundreds of files another job reads the footers before. A task reads,
    sorts and writes each merge within ``options(bytes_in_flight=...)`` and returns receipts, which
    the driver publishes.

    Otherwise as `kartothek_cube.api.cube.compact_cube`, with ``spark`` and ``parallelism`` of
    `build_cube_from_spark`. A store that other processes cannot open is refused with `InvalidType`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, append_to_cube, build_cube
    >>> from kartothek_cube.spark import compact_cube_spark
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> sales = pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]})
    >>> _ = build_cube(sales, cube, "hfs://compacted")
    >>> for product in (3, 4):
    ...     rows = pa.table({"PRODUCT_ID": [product] * 2, "COUNTRY_CODE": ["DE", "FR"]})
    ...     _ = append_to_cube(rows, cube, "hfs://compacted")
    >>> report = compact_cube_spark(cube, "hfs://compacted")["seed"]
    >>> report.files_before, report.files_after
    (6, 2)
    """
    with operation("compact_cube_spark", options, cube=cube):
        executor, (opened,) = _open("compact", cube, [store], spark, parallelism)
        return compact_cube(
            cube,
            opened,
            target_rows,
            conditions,
            ktk_cube_dataset_ids,
            dry_run,
            sort_by=sort_by,
            zorder_by=zorder_by,
            df_serializer=df_serializer,
            rewrite=rewrite,
            executor=executor,
        )


@session_by_keyword
def remove_partitions_spark(
    cube: Cube | str,
    store: StoreLike,
    conditions: IntoConditions = None,
    ktk_cube_dataset_ids: Iterable[str] | None = None,
    metadata: Mapping[str, UserMetadata] | None = None,
    *,
    on_conflict: OnConflict = "raise",
    txn: IntoTxn | None = None,
    spark: SparkSession | None = None,
    parallelism: int | None = None,
    options: Overrides | None = None,
) -> dict[str, DatasetMetadata]:
    """Remove the physical partitions in which conditions on the cube's partition columns hold.

    Otherwise as `kartothek_cube.api.cube.remove_partitions`, with ``txn`` of
    `build_cube_from_spark`. Only documents and indices change, so no Spark job runs: ``spark`` and
    ``parallelism`` have no effect.

    Examples
    --------
    >>> from kartothek_cube.api.cube import C, Cube
    >>> from kartothek_cube.spark import build_cube_from_spark, remove_partitions_spark
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> rows = spark.sql("SELECT 1L AS PRODUCT_ID, 'DE' AS COUNTRY_CODE UNION SELECT 2L, 'FR'")
    >>> _ = build_cube_from_spark(rows, cube, "hfs://fewer", shuffle=True)
    >>> remove_partitions_spark(cube, "hfs://fewer", C("COUNTRY_CODE") == "DE")
    {'seed': DatasetMetadata(uuid='sales++seed', partitions=1, partition_keys=['COUNTRY_CODE'])}
    """
    del spark, parallelism
    with operation("remove_partitions_spark", options, cube=cube):
        cube, opened = cube_and_store(cube, store)
        selection = conditions, ktk_cube_dataset_ids
        landed = remove_from_members(cube, opened, *selection, metadata, on_conflict, parse_txn(txn))
        return DatasetMetadata.of_each(landed)


def _open_dataset(
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
        executor, opened = _open_dataset("delete", dataset_uuid, store, factory, spark, parallelism)
        delete_dataset(dataset_uuid, opened, factory, executor=executor)


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
        return copy_dataset(
            source_dataset_uuid, source, target_dataset_uuid, target, overwrite=overwrite, executor=executor
        )


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
        executor, opened = _open_dataset("collect garbage of", dataset_uuid, store, factory, spark, parallelism)
        return garbage_collect_dataset(dataset_uuid, opened, factory, dry_run=dry_run, executor=executor)


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
        executor, opened = _open_dataset("build indices of", dataset_uuid, store, factory, spark, parallelism)
        return build_dataset_indices(opened, dataset_uuid, columns, factory, executor=executor)


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
        executor, opened = _open_dataset("read footers of", dataset_uuid, store, factory, spark, parallelism)
        return collect_dataset_metadata(
            opened,
            dataset_uuid,
            table_name,
            predicates,
            frac,
            factory,
            random_state=random_state,
            as_of=as_of,
            executor=executor,
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
        executor, opened = _open_dataset("hash", dataset_uuid, store, factory, spark, parallelism)
        return hash_dataset(
            opened, dataset_uuid, subset, group_key, table, predicates, factory, as_of=as_of, executor=executor
        )


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
        executor, opened = _open_dataset("compact", dataset_uuid, store, factory, spark, parallelism)
        return compact_dataset(
            dataset_uuid,
            opened,
            target_rows,
            predicates,
            dry_run,
            sort_by=sort_by,
            zorder_by=zorder_by,
            factory=factory,
            df_serializer=df_serializer,
            rewrite=rewrite,
            executor=executor,
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
        executor, opened = _open_dataset("delete rows of", dataset_uuid, store, None, spark, parallelism)
        given = store if opened is None else opened
        return delete_rows(dataset_uuid, given, predicates, on_conflict=on_conflict, dry_run=dry_run, executor=executor)
