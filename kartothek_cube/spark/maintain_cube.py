"""Maintenance of a cube whose work per file is done in Spark tasks: the eager verbs, told to spread it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kartothek_cube.core.formats import FileFormat
from kartothek_cube.core.journal import verb
from kartothek_cube.core.maintenance.compact import TARGET_ROWS
from kartothek_cube.core.maintenance.compact_report import CompactionReport
from kartothek_cube.core.maintenance.garbage import GarbageReport
from kartothek_cube.core.options import Overrides
from kartothek_cube.core.store import Store
from kartothek_cube.core.stores import open_store
from kartothek_cube.cube.cube import Cube, require_cube
from kartothek_cube.cube.verbs.cleanup import cleanup_cube
from kartothek_cube.cube.verbs.compact import compact_cube
from kartothek_cube.cube.verbs.copy import copy_cube
from kartothek_cube.cube.verbs.delete import delete_cube
from kartothek_cube.cube.verbs.stats import collect_stats
from kartothek_cube.spark.spread import spreading
from kartothek_cube.typing import AsOf, Columns, IntoConditions, IntoDatasets, StoreLike

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["cleanup_cube_spark", "collect_stats_spark", "compact_cube_spark", "copy_cube_spark", "delete_cube_spark"]


@contextmanager
def _spreading(verb: str, cube: Cube, given: Sequence[StoreLike], spark: SparkSession | None, parallelism: int | None) -> Iterator[list[Store]]:
    """The opened stores; the work of what is called in the block goes into tasks."""
    stores = [open_store(store) for store in given]
    with spreading(verb, f"cube {require_cube(cube).uuid_prefix!r}", list(zip(stores, given, strict=True)), spark, parallelism):
        yield stores


def delete_cube_spark(
    cube: Cube,
    store: StoreLike,
    datasets: IntoDatasets = None,
    *,
    options: Overrides | None = None,
    spark: SparkSession | None = None,
    parallelism: int | None = None,
) -> None:
    """Delete a cube, or some of its datasets, with the files removed in Spark tasks.

    Of each dataset first history, then indices, data files, schema files, and its document last: each begins when the one before is done. A task that fails
    and is tried again finds nothing left to delete, which is no error.

    Parameters
    ----------
    cube, store, datasets, options
        As in `kartothek_cube.api.cube.delete_cube`. The executors open the same store, so it has to be one that other processes see.
    spark : SparkSession, optional
        By default the active session; classic or Connect.
    parallelism : int, optional
        How many tasks run at once; by default what the session says.

    Raises
    ------
    InvalidType
        If other processes cannot open the store; all other errors are those of `delete_cube`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube
    >>> from kartothek_cube.spark import delete_cube_spark
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> _ = build_cube(pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]}), cube, "hfs://deleted")
    >>> delete_cube_spark(cube, "hfs://deleted")
    """
    with verb("delete_cube_spark", options, cube=cube), _spreading("delete", cube, [store], spark, parallelism) as (opened,):
        delete_cube(cube, opened, datasets, options=options)


def copy_cube_spark(
    cube: Cube,
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
    """Copy a cube, or some of its datasets, to another store, with the files copied in Spark tasks.

    A file goes from store to store through the task in blocks. Documents are written by the driver when all files are there, the seed's last.

    Parameters
    ----------
    cube, src_store, tgt_store, overwrite, datasets, renamed_cube_prefix, renamed_datasets, options
        As in `kartothek_cube.api.cube.copy_cube`. The executors open the same store, so it has to be one that other processes see.
    spark : SparkSession, optional
        By default the active session; classic or Connect.
    parallelism : int, optional
        How many tasks run at once; by default what the session says.

    Raises
    ------
    InvalidType
        If other processes cannot open the store; all other errors are those of `copy_cube`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube
    >>> from kartothek_cube.spark import copy_cube_spark
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> _ = build_cube(pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]}), cube, "hfs://copied")
    >>> copy_cube_spark(cube, "hfs://copied", "hfs://backup", renamed_cube_prefix="sales_2024")
    >>> from kartothek_cube import list_cubes
    >>> list_cubes("hfs://backup")
    ['sales_2024']
    """
    with verb("copy_cube_spark", options, cube=cube), _spreading("copy", cube, [src_store, tgt_store], spark, parallelism) as (source, target):
        copy_cube(cube, source, target, overwrite, datasets, renamed_cube_prefix, renamed_datasets, options=options)


def collect_stats_spark(
    cube: Cube,
    store: StoreLike,
    datasets: IntoDatasets = None,
    *,
    as_of: AsOf | None = None,
    options: Overrides | None = None,
    spark: SparkSession | None = None,
    parallelism: int | None = None,
) -> dict[str, dict[str, int]]:
    """Partitions, files, bytes and rows of each dataset of a cube, with the footers of files read in Spark tasks.

    All files of the cube are one job.

    Parameters
    ----------
    cube, store, datasets, as_of, options
        As in `kartothek_cube.api.cube.collect_stats`. The executors open the same store, so it has to be one that other processes see.
    spark : SparkSession, optional
        By default the active session; classic or Connect.
    parallelism : int, optional
        How many tasks run at once; by default what the session says.

    Returns
    -------
    dict
        As of `collect_stats`.

    Raises
    ------
    InvalidType
        If other processes cannot open the store; all other errors are those of `collect_stats`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube
    >>> from kartothek_cube.spark import collect_stats_spark
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> _ = build_cube(pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]}), cube, "hfs://counted")
    >>> collect_stats_spark(cube, "hfs://counted")["seed"]["rows"]
    2
    """
    with verb("collect_stats_spark", options, cube=cube), _spreading("stats", cube, [store], spark, parallelism) as (opened,):
        return collect_stats(cube, opened, datasets, as_of=as_of, options=options)


def cleanup_cube_spark(
    cube: Cube,
    store: StoreLike,
    *,
    dry_run: bool = False,
    options: Overrides | None = None,
    spark: SparkSession | None = None,
    parallelism: int | None = None,
) -> GarbageReport:
    """Remove files under the cube's prefix that no dataset of it names and that are old enough, in Spark tasks.

    What is garbage is found on the driver, which looks at documents and history once more right before the first file goes.

    Parameters
    ----------
    cube, store, dry_run, options
        As in `kartothek_cube.api.cube.cleanup_cube`. The executors open the same store, so it has to be one that other processes see.
    spark : SparkSession, optional
        By default the active session; classic or Connect.
    parallelism : int, optional
        How many tasks run at once; by default what the session says.

    Returns
    -------
    GarbageReport
        As of `cleanup_cube`.

    Raises
    ------
    InvalidType
        If other processes cannot open the store; all other errors are those of `cleanup_cube`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube
    >>> from kartothek_cube.spark import cleanup_cube_spark
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> _ = build_cube(pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]}), cube, "hfs://cleaned")
    >>> cleanup_cube_spark(cube, "hfs://cleaned")
    GarbageReport(removed 0 files of 0 bytes; 0 files of 0 bytes wait)
    """
    with verb("cleanup_cube_spark", options, cube=cube), _spreading("cleanup", cube, [store], spark, parallelism) as (opened,):
        return cleanup_cube(cube, opened, dry_run=dry_run, options=options)


def compact_cube_spark(
    cube: Cube,
    store: StoreLike,
    target_rows: int = TARGET_ROWS,
    conditions: IntoConditions = None,
    ktk_cube_dataset_ids: Columns = None,
    dry_run: bool = False,
    *,
    df_serializer: FileFormat | None = None,
    options: Overrides | None = None,
    spark: SparkSession | None = None,
    parallelism: int | None = None,
) -> dict[str, CompactionReport]:
    """Merge small files of the datasets of a cube into larger ones, in Spark tasks. Every query answers as before.

    One job a dataset, in which each merge is read, sorted and written by one task, within ``options(bytes_in_flight=...)`` for each task; only receipts come
    back, and the driver publishes them. Where there are hundreds of files, their footers are read by a job before it.

    Parameters
    ----------
    cube, store, target_rows, conditions, ktk_cube_dataset_ids, dry_run, df_serializer, options
        As in `kartothek_cube.api.cube.compact_cube`. The executors open the same store, so it has to be one that other processes see.
    spark : SparkSession, optional
        By default the active session; classic or Connect.
    parallelism : int, optional
        How many tasks run at once; by default what the session says.

    Returns
    -------
    dict
        Dataset id → `CompactionReport`, as of `compact_cube`.

    Raises
    ------
    InvalidType
        If other processes cannot open the store; all other errors are those of `compact_cube`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube
    >>> from kartothek_cube.spark import compact_cube_spark
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> _ = build_cube(pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]}), cube, "hfs://compacted")
    >>> from kartothek_cube import append_to_cube
    >>> for product in (3, 4):
    ...     _ = append_to_cube(pa.table({"PRODUCT_ID": [product] * 2, "COUNTRY_CODE": ["DE", "FR"]}), cube, "hfs://compacted")
    >>> report = compact_cube_spark(cube, "hfs://compacted")["seed"]
    >>> report.files_before, report.files_after
    (6, 2)
    """
    with verb("compact_cube_spark", options, cube=cube), _spreading("compact", cube, [store], spark, parallelism) as (opened,):
        return compact_cube(cube, opened, target_rows, conditions, ktk_cube_dataset_ids, dry_run, df_serializer=df_serializer, options=options)
