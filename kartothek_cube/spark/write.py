"""Writes from data frames: staged in tasks, published by the driver.

In order:

- cubes
- datasets
- merges: the source is staged in tasks, and so are its effects
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec.structs import replace

from kartothek_cube.core.arguments import as_list, check_flag, converter_str
from kartothek_cube.core.arrow.keys import sorted_table
from kartothek_cube.core.commit.change import OnConflict, check_on_conflict
from kartothek_cube.core.commit.dataset_write import DatasetWrite
from kartothek_cube.core.dataset.reference import DatasetRef, target_of
from kartothek_cube.core.dataset.rows import run_rows
from kartothek_cube.core.io.formats import FileFormat
from kartothek_cube.core.kartothek.dataset_metadata import DatasetFactory, DatasetMetadata
from kartothek_cube.core.metadata.naming import SINGLE_TABLE, new_id
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.rows.edits import (
    MergeSource,
    RewriteSpec,
    RowsReport,
    WhenMatched,
    check_keys,
    check_no_nulls,
    rewrite_spec,
)
from kartothek_cube.core.rows.merge import (
    MergeFiles,
    MergeRules,
    SourceFiles,
    StagedSource,
    WhenNotMatched,
    WrittenFile,
    check_partition_values,
    merge_rules,
    plan_merge,
    source_schema,
    stage_new_rows,
    typed_rows,
    with_source_types,
    write_source,
)
from kartothek_cube.core.rows.run import RowsPlan, StagedRows, new_rows_request, stage_rows
from kartothek_cube.core.runtime.options import Overrides, current_options
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.stores.contract import Store, check_store_can_commit
from kartothek_cube.core.stores.open import open_instrumented, open_store, store_factory
from kartothek_cube.core.write.input_rows import InputPartition
from kartothek_cube.core.write.layout import NO_LAYOUT
from kartothek_cube.core.write.plan import plan_dataset_update, plan_new
from kartothek_cube.core.write.prepare import WriteRequest, derived_in, prepare
from kartothek_cube.core.write.stage import StagedWrite, stage_prepared
from kartothek_cube.cube.cube import Cube, require_cube
from kartothek_cube.cube.members import cube_and_store
from kartothek_cube.cube.write.commit import commit_cube_write
from kartothek_cube.cube.write.plan import (
    CubeWrite,
    check_duplicates,
)
from kartothek_cube.cube.write.stage import begin_append, begin_datasets, begin_update
from kartothek_cube.errors import InvalidInput, InvalidType, Unsupported
from kartothek_cube.spark.session import cores, session_by_keyword, session_of, shown
from kartothek_cube.spark.stage import (
    CubeRows,
    DatasetRows,
    Target,
    bucket_column,
    buckets_on_record,
    checked_schemas,
    make_layout,
    sorted_pieces,
    staged_receipts,
    take_until,
    with_derived_columns,
    with_plain_names,
)
from kartothek_cube.spark.tasks import (
    TASKS_PER_CORE,
    Job,
    as_task,
    collect,
    decode_error,
    encode_error,
    spark_executor,
    spilling_beside_spark,
)
from kartothek_cube.spark.types import Timestamps, conform, frame_schema, spark_schema
from kartothek_cube.typing import (
    Columns,
    DeleteScope,
    Executor,
    IntoConditions,
    IntoMetadata,
    IntoTxn,
    MetadataMerger,
    StoreLike,
    UserMetadata,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class _Job:
    """The checked input of one call: frames, stored schemas, the open store, and the target."""

    frames: Mapping[str, DataFrame]
    schemas: Mapping[str, pa.Schema]
    store: Store
    target: Target


@session_by_keyword
def build_cube_from_spark(
    data: DataFrame | Mapping[str, DataFrame],
    cube: Cube,
    store: StoreLike,
    metadata: Mapping[str, UserMetadata] | None = None,
    overwrite: bool = False,
    partition_on: Mapping[str, Columns] | None = None,
    shuffle: bool = False,
    num_buckets: int = 1,
    bucket_by: Columns = None,
    df_serializer: FileFormat | None = None,
    *,
    on_conflict: OnConflict = "raise",
    timestamps: Timestamps = "refuse",
    txn: IntoTxn | None = None,
    spark: SparkSession | None = None,
    parallelism: int | None = None,
    options: Overrides | None = None,
) -> dict[str, DatasetMetadata]:
    """Create a cube from Spark data frames, one of them for the seed dataset.

    Columns and types are checked before the first task starts. One Spark job stages the rows of all
    data frames: each task checks, sorts and splits its rows and writes Parquet files that no
    dataset refers to yet. When all tasks have succeeded, the driver publishes the files of all
    datasets at once. A retried task leaves unreferenced files behind, but no duplicates. A failed
    write leaves the cube as it was.

    Parameters
    ----------
    data : DataFrame or dict
        A Spark data frame for the seed, or a dict dataset id → Spark data frame.
    cube, store, metadata, overwrite, partition_on, df_serializer, on_conflict
        As in `kartothek_cube.api.cube.build_cube`. The executors open the same store, so other
        processes must see it.
    shuffle : bool, default False
        Shuffle rows by partition values first: exactly one file for each combination of partition
        values and bucket. Without ``shuffle`` every task writes a file for each combination in its
        rows.
    num_buckets : int, default 1
        With ``shuffle``: the number of files for the rows of a partition, chosen by a hash. The
        bucket is not stored.
    bucket_by : str or list of str, optional
        With ``shuffle``: the hashed columns, by default the dimension columns. Rows of a partition
        with equal values share a file.
    timestamps : {"refuse", "utc"}
        Either refuse columns of type ``timestamp``, whose text depends on the session's time zone
        (the error advises a cast to ``timestamp_ntz``), or store UTC times without a zone.
    spark : SparkSession, optional
        By default the session of the data frames.
    parallelism : int, optional
        How many tasks run at once; by default the parallelism of the session. A shuffle makes four
        times as many tasks.
    options : optional
        From `kartothek_cube.options`, for this call and its tasks.
    txn : tuple of str and int, optional
        ``(application id, number)`` of this write, stored with the commits. A dataset whose last
        number of the application is not below is skipped; if all are, no Spark job runs.

    Returns
    -------
    dict
        Dataset id → `DatasetMetadata`.

    Raises
    ------
    InvalidInput, InvalidType, Unsupported
        For data that does not fit the cube, as in `build_cube`, on the driver and in tasks.
        Duplicate cells are found across tasks, too: with ``shuffle`` they meet in one task, without
        it the driver reads the key columns of files that may share cells.
    AlreadyExists, MultiTableCommitAborted, CommitConflict
        As in `build_cube`.

    Notes
    -----
    A task holds at most about ``options(bytes_in_flight=...)`` of its rows. With ``shuffle`` a
    larger partition is written as a stream of row groups. Without, the task writes its rows in
    blocks, each with files of its own.

    Examples
    --------
    >>> from kartothek_cube.api.cube import Cube
    >>> from kartothek_cube.spark import build_cube_from_spark
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> sales = spark.sql("SELECT 1L AS PRODUCT_ID, 'DE' AS COUNTRY_CODE, 3L AS UNITS")
    >>> build_cube_from_spark(sales, cube, "hfs://sales", shuffle=True)
    {'seed': DatasetMetadata(uuid='sales++seed', partitions=1, partition_keys=['COUNTRY_CODE'])}
    """
    with operation("build_cube_from_spark", options, cube=cube):
        job = _job(data, require_cube(cube), store, timestamps, spark, parallelism)
        arguments = metadata, overwrite, partition_on, df_serializer, on_conflict, txn
        plan = begin_datasets(cube, job.store, job.schemas, *arguments, extends=False)
        return _run("build", job, plan(job.schemas), shuffle, num_buckets, bucket_by)


@session_by_keyword
def extend_cube_from_spark(
    data: DataFrame | Mapping[str, DataFrame],
    cube: Cube | str,
    store: StoreLike,
    metadata: Mapping[str, UserMetadata] | None = None,
    overwrite: bool = False,
    partition_on: Mapping[str, Columns] | None = None,
    df_serializer: FileFormat | None = None,
    *,
    shuffle: bool = False,
    num_buckets: int = 1,
    bucket_by: Columns = None,
    on_conflict: OnConflict = "raise",
    timestamps: Timestamps = "refuse",
    txn: IntoTxn | None = None,
    spark: SparkSession | None = None,
    parallelism: int | None = None,
    options: Overrides | None = None,
) -> dict[str, DatasetMetadata]:
    """Add datasets to a cube from Spark data frames; ``overwrite`` replaces any but the seed.

    Arguments, results and errors are those of `build_cube_from_spark`. The cube must exist and be
    valid, and a payload column may exist in one dataset only. The result of `map_cube_groups` is
    valid input.

    Examples
    --------
    >>> from kartothek_cube.api.cube import Cube
    >>> from kartothek_cube.spark import build_cube_from_spark, extend_cube_from_spark
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> sales = spark.sql("SELECT 1L AS PRODUCT_ID, 'DE' AS COUNTRY_CODE")
    >>> _ = build_cube_from_spark(sales, cube, "hfs://stock")
    >>> stock = spark.sql("SELECT 1L AS PRODUCT_ID, 7L AS STOCK")
    >>> extend_cube_from_spark({"stock": stock}, cube, "hfs://stock", partition_on={"stock": []})
    {'stock': DatasetMetadata(uuid='sales++stock', partitions=1, partition_keys=[])}
    """
    with operation("extend_cube_from_spark", options, cube=cube):
        cube, _ = cube_and_store(cube, store)
        job = _job(data, cube, store, timestamps, spark, parallelism)
        arguments = metadata, overwrite, partition_on, df_serializer, on_conflict, txn
        plan = begin_datasets(cube, job.store, job.schemas, *arguments, extends=True)
        return _run("extend", job, plan(job.schemas), shuffle, num_buckets, bucket_by)


@session_by_keyword
def append_to_cube_from_spark(
    data: DataFrame | Mapping[str, DataFrame],
    cube: Cube | str,
    store: StoreLike,
    metadata: Mapping[str, UserMetadata] | None = None,
    df_serializer: FileFormat | None = None,
    *,
    shuffle: bool = False,
    num_buckets: int = 1,
    bucket_by: Columns = None,
    timestamps: Timestamps = "refuse",
    txn: IntoTxn | None = None,
    spark: SparkSession | None = None,
    parallelism: int | None = None,
    options: Overrides | None = None,
) -> dict[str, DatasetMetadata]:
    """Add rows to datasets of a cube from Spark data frames.

    Nothing is removed; queries see the newest row of a cell. Arguments are as in
    `build_cube_from_spark`, results and errors as in `kartothek_cube.api.cube.append_to_cube`.

    Examples
    --------
    >>> from kartothek_cube.api.cube import Cube
    >>> from kartothek_cube.spark import append_to_cube_from_spark, build_cube_from_spark
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> sales = spark.sql("SELECT 1L AS PRODUCT_ID, 'DE' AS COUNTRY_CODE")
    >>> _ = build_cube_from_spark(sales, cube, "hfs://more")
    >>> more = spark.sql("SELECT 2L AS PRODUCT_ID, 'DE' AS COUNTRY_CODE")
    >>> append_to_cube_from_spark(more, cube, "hfs://more")
    {'seed': DatasetMetadata(uuid='sales++seed', partitions=2, partition_keys=['COUNTRY_CODE'])}
    """
    with operation("append_to_cube_from_spark", options, cube=cube):
        cube, _ = cube_and_store(cube, store)
        job = _job(data, cube, store, timestamps, spark, parallelism)
        plan = begin_append(cube, job.store, metadata, df_serializer, txn)
        return _run("append to", job, plan(job.schemas), shuffle, num_buckets, bucket_by)


@session_by_keyword
def update_cube_from_spark(
    data: DataFrame | Mapping[str, DataFrame],
    cube: Cube | str,
    store: StoreLike,
    remove_conditions: IntoConditions,
    ktk_cube_dataset_ids: Columns = None,
    metadata: Mapping[str, UserMetadata] | None = None,
    df_serializer: FileFormat | None = None,
    *,
    shuffle: bool = False,
    num_buckets: int = 1,
    bucket_by: Columns = None,
    on_conflict: OnConflict = "raise",
    timestamps: Timestamps = "refuse",
    txn: IntoTxn | None = None,
    spark: SparkSession | None = None,
    parallelism: int | None = None,
    options: Overrides | None = None,
) -> dict[str, DatasetMetadata]:
    """Remove physical partitions and add rows from Spark data frames, in one write to all datasets.

    ``remove_conditions``, ``ktk_cube_dataset_ids``, ``on_conflict``, results and errors are as in
    `kartothek_cube.api.cube.update_cube`. ``data`` may be ``{}``. The other arguments are as in
    `build_cube_from_spark`.

    Examples
    --------
    >>> from kartothek_cube.api.cube import C, Cube
    >>> from kartothek_cube.spark import build_cube_from_spark, update_cube_from_spark
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> sales = spark.sql("SELECT 1L AS PRODUCT_ID, 'DE' AS COUNTRY_CODE")
    >>> _ = build_cube_from_spark(sales, cube, "hfs://newer")
    >>> newer = spark.sql("SELECT 2L AS PRODUCT_ID, 'DE' AS COUNTRY_CODE")
    >>> update_cube_from_spark(newer, cube, "hfs://newer", C("COUNTRY_CODE") == "DE")
    {'seed': DatasetMetadata(uuid='sales++seed', partitions=1, partition_keys=['COUNTRY_CODE'])}
    """
    with operation("update_cube_from_spark", options, cube=cube):
        cube, _ = cube_and_store(cube, store)
        job = _job(data, cube, store, timestamps, spark, parallelism)
        selection = remove_conditions, ktk_cube_dataset_ids
        plan = begin_update(cube, job.store, *selection, metadata, df_serializer, on_conflict, txn)
        return _run("update", job, plan(job.schemas), shuffle, num_buckets, bucket_by)


def _job(
    data: DataFrame | Mapping[str, DataFrame],
    cube: Cube,
    store: StoreLike,
    timestamps: Timestamps,
    spark: SparkSession | None,
    parallelism: int | None,
) -> _Job:
    identity = new_id()
    frames = data if isinstance(data, Mapping) else {cube.seed_dataset: data}
    for name, frame in frames.items():
        cube.ktk_dataset_uuid(name)
        if not hasattr(frame, "mapInArrow"):
            raise InvalidType(
                f"Expected a Spark data frame for dataset {name!r} of the cube {cube.uuid_prefix!r}, "
                f"or a dict dataset id → data frame; got {shown(frame)}"
            )
    frames = {converter_str(name): frame for name, frame in frames.items()}
    factory = store_factory(store)
    schemas = {name: frame_schema(frame.schema, name, timestamps) for name, frame in frames.items()}
    width = cores(spark or session_of(next(iter(frames.values()))), parallelism) if frames else 1
    return _Job(frames, schemas, open_instrumented(factory), Target(factory, identity, width))


def _run(
    verb: str, job: _Job, write: CubeWrite, shuffle: bool, num_buckets: object, bucket_by: object
) -> dict[str, DatasetMetadata]:
    """Stage all rows in one Spark job, check duplicates across tasks, and publish."""
    rows = {i: CubeRows(write.datasets[i]) for i in job.frames}
    # One layout for all: where they differ, the first with buckets by columns that all have.
    on_record = next(
        (
            w.layout
            for w in write.datasets.values()
            if all(w.layout.within(each.schema.names).num_buckets for each in rows.values())
        ),
        NO_LAYOUT,
    )
    layout = make_layout(shuffle, *buckets_on_record(num_buckets, bucket_by, on_record), rows.values())
    write = replace(
        write, datasets={i: replace(w, layout=layout.recorded(w.layout)) for i, w in write.datasets.items()}
    )
    check_store_can_commit(job.store)
    # Without datasets that have the rows of this numbered write already.
    pending = {i: frame for i, frame in job.frames.items() if i not in write.done}
    spark_job = Job(verb, f"cube {write.cube.uuid_prefix!r}", ", ".join(pending), "write")
    receipts = staged_receipts(pending, rows, job.target, layout, spark_job)
    for name, files in receipts.items():
        if not layout.keeps_cells_together(rows[name]):
            check_duplicates(job.store, write.datasets[name], files, "the rows of two tasks")
    return DatasetMetadata.of_each(commit_cube_write(job.store, write, receipts))


# --- datasets -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Input:
    """The arguments of a call that concern its rows."""

    frame: DataFrame
    table: str
    timestamps: Timestamps
    shuffle: bool
    num_buckets: object
    bucket_by: object
    ratio: object
    spark: SparkSession | None
    parallelism: int | None


@session_by_keyword
def store_dataset_from_spark(
    df: DataFrame,
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
    partition_on: Columns = None,
    bucket_by: Columns = None,
    overwrite: bool = False,
    *,
    on_conflict: OnConflict = "raise",
    timestamps: Timestamps = "refuse",
    txn: IntoTxn | None = None,
    spark: SparkSession | None = None,
    parallelism: int | None = None,
    options: Overrides | None = None,
) -> DatasetMetadata:
    """Store the rows of a Spark data frame as a new dataset.

    Columns and types are checked before the first task starts. One Spark job stages the rows: each
    task checks, sorts and splits its rows and writes files that no dataset refers to yet. When all
    tasks have succeeded, the driver publishes the files in one commit. A retried task leaves
    unreferenced files behind, but no duplicates.

    Parameters
    ----------
    df : DataFrame
        The rows.
    store : str, path, store or callable
        The store of the dataset. The executors open the same store, so other processes must see it.
    dataset_uuid : str, optional
        Name of the dataset: ASCII letters, digits, ``+``, ``-``, ``_``. None makes a random name.
    table : str, default "table"
        Name of the table. None is refused.
    secondary_indices : str or list of str, optional
        Columns that get an inverted index, value → partitions.
    shuffle : bool, default False
        Shuffle rows by partition values first: exactly one file for each combination of partition
        values and bucket. Without ``shuffle`` every task writes a file for each combination in its
        rows.
    repartition_ratio : float, optional
        Divides the number of tasks: ``ceil(4 * parallelism / repartition_ratio)``. With ``shuffle``
        the shuffle has so many tasks. Without ``shuffle`` neighbouring partitions of the data frame
        are merged to at most so many, which moves no rows and makes fewer files. The ratio does not
        refer to the partitions of the data frame: Spark shows their number on classic sessions
        only, and in general only after a run.
    num_buckets : int, default 1
        With ``shuffle``: the number of files for the rows of a partition, chosen by a hash. The
        bucket is not stored.
    sort_partitions_by : str or list of str, optional
        Sort the rows of each file by these columns, nulls last.
    metadata : dict or callable, optional
        User metadata that JSON can represent. A callable is called once, after all rows are staged.
    df_serializer : ParquetSerializer or CsvSerializer, optional
        The format of data files.
    metadata_merger : callable, optional
        A function from a list of dicts to the user metadata.
    partition_on : str or list of str, optional
        Columns whose values become part of the files' paths, in this order.
    bucket_by : str or list of str, optional
        With ``shuffle``: the hashed columns, by default all. Rows of a partition with equal values
        share a file, so an index on a hashed column finds one file a value and partition.
    overwrite : bool, default False
        Replace a dataset of this name: its partitions, schema, indices and metadata.
    on_conflict : {"raise", "reapply"}
        As in `kartothek_cube.api.dataset.store_dataframes_as_dataset`.
    timestamps : {"refuse", "utc"}
        Either refuse columns of type ``timestamp``, whose text depends on the session's time zone
        (the error advises a cast to ``timestamp_ntz``), or store UTC times without a zone.
    txn : tuple of str and int, optional
        ``(application id, number)`` of this write, stored with the commit. A number that is not
        above the application's last number is skipped; no Spark job runs then.
    spark : SparkSession, optional
        By default the session of the data frame.
    parallelism : int, optional
        How many tasks run at once; by default the parallelism of the session. A shuffle makes four
        times as many tasks.
    options : optional
        From `kartothek_cube.options`, for this call and its tasks.

    Returns
    -------
    DatasetMetadata
        The committed dataset.

    Raises
    ------
    AlreadyExists
        If the dataset exists and ``overwrite`` is False.
    InvalidInput, InvalidType, Unsupported
        For an unusable argument or column, which the message names; also for unusable rows that a
        task finds, e.g. a null in a partition column. Without rows, a partitioned dataset is
        refused, any other becomes one empty file.
    CommitConflict
        If another writer created the dataset meanwhile, or added or removed partitions of the
        dataset to overwrite.

    Notes
    -----
    A task holds at most about ``options(bytes_in_flight=...)`` of its rows. With ``shuffle`` a
    larger partition is written as a stream of row groups. Without, the task writes its rows in
    blocks, each with files of its own.

    Examples
    --------
    >>> from kartothek_cube.spark import store_dataset_from_spark
    >>> sales = spark.sql("SELECT 'DE' AS COUNTRY_CODE, 1L AS PRODUCT_ID, 3L AS UNITS")
    >>> store_dataset_from_spark(sales, "hfs://datasets", "sales", partition_on="COUNTRY_CODE")
    DatasetMetadata(uuid='sales', partitions=1, partition_keys=['COUNTRY_CODE'])
    """
    with operation("store_dataset_from_spark", options):
        partition_on = as_list(partition_on, "partition_on")
        df = with_derived_columns(df, derived_in(partition_on))
        rows = _input(
            df, table, dataset_uuid, timestamps, shuffle, num_buckets, bucket_by, repartition_ratio, spark, parallelism
        )
        source = target_of(store, dataset_uuid, generate=True)
        write = DatasetWrite.begin(
            source.store, source.uuid, metadata, metadata_merger, on_conflict, creates=True, txn=txn
        )
        if write.skipped is not None:
            return DatasetMetadata.of(write.skipped)
        # A replaced dataset keeps its encoding.
        base = write.base
        encoding = "json" if base is None or not base.key.endswith(".zstd") else "msgpack"
        request = plan_new(
            source.uuid,
            base,
            partition_on,
            secondary_indices,
            df_serializer,
            overwrite,
            encoding,
            sort_partitions_by=sort_partitions_by,
        )
        return source.committed(write.commit(_staged("store", source, request, rows)))


@session_by_keyword
def update_dataset_from_spark(
    df: DataFrame | None,
    store: StoreLike | None = None,
    dataset_uuid: str | None = None,
    table: str = SINGLE_TABLE,
    secondary_indices: Columns = None,
    shuffle: bool = False,
    repartition_ratio: float | None = None,
    num_buckets: int = 1,
    sort_partitions_by: Columns = None,
    delete_scope: DeleteScope | None = None,
    metadata: IntoMetadata = None,
    df_serializer: FileFormat | None = None,
    metadata_merger: MetadataMerger | None = None,
    partition_on: Columns = None,
    factory: DatasetFactory | None = None,
    bucket_by: Columns = None,
    *,
    add_columns: bool = False,
    on_conflict: OnConflict = "raise",
    timestamps: Timestamps = "refuse",
    txn: IntoTxn | None = None,
    spark: SparkSession | None = None,
    parallelism: int | None = None,
    options: Overrides | None = None,
) -> DatasetMetadata:
    """Add the rows of a Spark data frame to a dataset and remove partitions, in one commit.

    A missing dataset is created.

    Parameters
    ----------
    df : DataFrame or None
        The rows. None, or a data frame without rows, to only change metadata or remove partitions.
    store, dataset_uuid, factory
        The dataset: ``store`` and ``dataset_uuid``, or a `DatasetFactory`.
    delete_scope, add_columns, on_conflict, metadata_merger
        As in `kartothek_cube.api.dataset.update_dataset_from_dataframes`. The scope applies to the
        dataset at the time of the commit.
    table
        Name of the table; an existing dataset must have it.
    secondary_indices
        For a dataset that is new or has no partitions. Existing indices are always maintained.
    partition_on
        For a new dataset. For an existing dataset it must equal the present columns.
    shuffle, repartition_ratio, num_buckets, bucket_by, sort_partitions_by
        As in `store_dataset_from_spark`.
    metadata, df_serializer, timestamps, txn, spark, parallelism, options
        As in `store_dataset_from_spark`.

    Returns
    -------
    DatasetMetadata
        The committed dataset.

    Raises
    ------
    InvalidInput, InvalidType, Unsupported
        If an argument, a column, a scope or a row does not fit the dataset. Nothing is visible
        then. `InvalidType` for a table that the dataset does not have.
    CommitConflict
        If another writer has changed the partitions that this call removes. Concurrent appends are
        no conflict.

    Examples
    --------
    >>> from kartothek_cube.spark import store_dataset_from_spark, update_dataset_from_spark
    >>> sales = spark.sql("SELECT 'DE' AS COUNTRY_CODE, 1L AS PRODUCT_ID, 3L AS UNITS")
    >>> _ = store_dataset_from_spark(sales, "hfs://updated", "sales", partition_on=["COUNTRY_CODE"])
    >>> corrected = spark.sql("SELECT 'DE' AS COUNTRY_CODE, 1L AS PRODUCT_ID, 4L AS UNITS")
    >>> scope = [{"COUNTRY_CODE": "DE"}]
    >>> update_dataset_from_spark(corrected, "hfs://updated", "sales", delete_scope=scope)
    DatasetMetadata(uuid='sales', partitions=1, partition_keys=['COUNTRY_CODE'])
    """
    with operation("update_dataset_from_spark", options):
        rows, partition_on = None, as_list(partition_on, "partition_on")
        if df is not None:
            shape = shuffle, num_buckets, bucket_by, repartition_ratio
            df = with_derived_columns(df, derived_in(partition_on))
            rows = _input(df, table, dataset_uuid, timestamps, *shape, spark, parallelism)
        source = target_of(store, dataset_uuid, factory)
        write = DatasetWrite.begin(
            source.store, source.uuid, metadata, metadata_merger, on_conflict, delete_scope=delete_scope, txn=txn
        )
        if write.skipped is not None:
            return DatasetMetadata.of(write.skipped)
        base = write.base
        tables = sorted(base.schemas) if base is not None else []
        if table is None:
            raise InvalidType("The parameter `table` is not optional.")
        if len(tables) > 1:
            raise InvalidType(f"Expected single table dataset: {source.uuid!r} has the tables {tables}.")
        if tables and tables != [table]:
            raise InvalidType(
                f"Unexpected table in dataset {source.uuid!r}: it has the table {tables[0]!r}, not {table!r}."
            )
        request = plan_dataset_update(
            source.uuid, base, partition_on, secondary_indices, df_serializer, sort_partitions_by, add_columns
        )
        if rows is None and base is None:
            raise InvalidInput(
                f"Cannot store empty datasets: {source.uuid!r} does not exist, and there are no rows to make it from."
            )
        staged = StagedWrite(request, (), {}, 0) if rows is None else _staged("update", source, request, rows)
        return source.committed(write.commit(staged))


def _input(
    df: DataFrame,
    table: str | None,
    dataset_uuid: object,
    timestamps: Timestamps,
    shuffle: bool,
    num_buckets: object,
    bucket_by: object,
    ratio: object,
    spark: SparkSession | None,
    parallelism: int | None,
) -> _Input:
    if not hasattr(df, "mapInArrow"):
        raise InvalidType(f"Expected a Spark data frame for dataset {dataset_uuid!r}; got {shown(df)}")
    if table is None:
        raise InvalidType("The parameter `table` is not optional.")
    return _Input(df, table, timestamps, shuffle, num_buckets, bucket_by, ratio, spark, parallelism)


# --- merges ---------------------------------------------------------------------------------------


def _staged(verb: str, source: DatasetRef, request: WriteRequest, given: _Input) -> StagedWrite:
    """Check the columns, and stage all rows in one Spark job."""
    columns = frame_schema(given.frame.schema, request.uuid, given.timestamps)
    if request.sorts_as_recorded and not set(request.sort_columns) <= set(columns.names):
        request = replace(request, sort_columns=())
    schemas = checked_schemas(request, given.table, columns).tables
    stored = schemas[given.table]
    # Columns of nulls take their type from the dataset.
    typed = [stored.field(f.name).with_nullable(True) if pa.types.is_null(f.type) else f for f in columns]
    rows = DatasetRows(replace(request, base=None), given.table, pa.schema(typed))
    on_record = request.layout.within(columns.names)
    num_buckets, bucket_by = buckets_on_record(given.num_buckets, given.bucket_by, on_record)
    layout = make_layout(given.shuffle, num_buckets, bucket_by, [rows], given.ratio)
    request = replace(request, layout=layout.recorded(request.layout))
    width = cores(given.spark or session_of(given.frame), given.parallelism)
    target = Target(store_factory(source.store), new_id(), width)
    job = Job(verb, f"dataset {request.uuid!r}", phase="write")
    receipts = staged_receipts({rows.id: given.frame}, {rows.id: rows}, target, layout, job)[rows.id]
    if not receipts and request.start is None:
        if request.partition_on:
            raise InvalidInput(
                f"Cannot store empty datasets: the data frame for {request.uuid!r} has no rows, "
                f"so that there is no partition by {list(request.partition_on)}."
            )
        # A new dataset without rows has one empty file.
        empty = InputPartition(new_id(), {rows.table: rows.schema.empty_table()})
        receipts = stage_prepared(source.store, rows.write, prepare(rows.write, empty))
    return StagedWrite(request, tuple(receipts), schemas, 1)


_WRITTEN = pa.schema([("file", pa.binary()), ("error", pa.string())])
# Keys are spread over so many hashes; Spark makes as many tasks of these as the rows are worth.
_HASHES = 2**31 - 1
# Of a piece: as it came, sorted, with row numbers, its encoded file.
_SHARES = 4


@session_by_keyword
def merge_dataset_from_spark(
    df: DataFrame,
    store: StoreLike,
    dataset_uuid: str,
    on: Columns,
    *,
    when_matched: WhenMatched = "update",
    when_not_matched: WhenNotMatched = "insert",
    when_not_matched_by_source: str | None = None,
    on_conflict: OnConflict = "raise",
    dry_run: bool = False,
    timestamps: Timestamps = "refuse",
    spark: SparkSession | None = None,
    parallelism: int | None = None,
    options: Overrides | None = None,
) -> RowsReport:
    """Merge the rows of a Spark data frame into a dataset by key columns, in one commit.

    Columns and types are checked before the first task starts. The data frame is evaluated exactly
    once: a job shuffles its rows by key, checks them, and writes them as sorted files below the
    dataset's folder, which no commit names. Then tasks search the files of the dataset, write new
    ones in place of those that change, and write the new rows. A task reads only those row groups
    of the source that may have keys of its file. At the end the files of the source are deleted.
    After a crash garbage collection removes them.

    Parameters
    ----------
    df : DataFrame
        The source. Each key occurs once, without nulls.
    store : str, path, store or callable
        The store. The executors open the same store, so other processes must see it.
    dataset_uuid, on, when_matched, when_not_matched, when_not_matched_by_source, on_conflict
        As in `kartothek_cube.api.dataset.merge_dataset`.
    dry_run : bool, default False
        Only report what would be done. The files of the source are written and deleted all the
        same.
    timestamps, spark, parallelism, options
        As in `store_dataset_from_spark`.

    Returns
    -------
    RowsReport
        As of `kartothek_cube.api.dataset.merge_dataset`.

    Raises
    ------
    DatasetNotFound, CommitConflict, InvalidInput, InvalidType, UnknownColumn
        As in `kartothek_cube.api.dataset.merge_dataset`. `InvalidType` if other processes cannot
        open the store.

    Notes
    -----
    The driver holds about ten bytes for each row of the source, and the values of key columns that
    have an index, unless these take more than ``options(bytes_in_flight=...)``. Only a few rows
    that an update moves to other partitions pass through the driver: less than 64 KiB of each file.

    Updates and inserts by key give the same rows when they are repeated, so that the verb may stand
    in ``foreachBatch`` of a stream.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.api.dataset import read_table, store_dataframes_as_dataset
    >>> from kartothek_cube.spark import merge_dataset_from_spark
    >>> stock = pa.table({"PRODUCT_ID": [1, 2], "STOCK": [10, 20]})
    >>> _ = store_dataframes_as_dataset("hfs://shelves", "stock", [stock])
    >>> counted = spark.createDataFrame([(2, 19), (3, 5)], "PRODUCT_ID long, STOCK long")
    >>> report = merge_dataset_from_spark(counted, "hfs://shelves", "stock", on="PRODUCT_ID")
    >>> report.updated, report.inserted
    (1, 1)
    >>> read_table("stock", "hfs://shelves")
       PRODUCT_ID  STOCK
    0           1     10
    1           2     19
    2           3      5
    """
    with operation("merge_dataset_from_spark", options):
        if not hasattr(df, "mapInArrow"):
            raise InvalidType(f"Expected a Spark data frame for dataset {dataset_uuid!r}; got {shown(df)}")
        check_on_conflict(on_conflict)
        target = target_of(store, dataset_uuid)
        if not check_flag(dry_run, "dry_run"):
            check_store_can_commit(target.store)
        session, subject = spark or session_of(df), f"dataset {target.uuid!r}"
        executor = spark_executor("merge into", subject, [(target.store, store)], session, parallelism)
        base = load_snapshot(target.store, target.uuid)
        first = rewrite_spec(base)
        rules = merge_rules(first, on, when_matched, when_not_matched, when_not_matched_by_source)
        given = frame_schema(df.schema, target.uuid, timestamps)
        task = _source_task(store_factory(target.store), base, first, rules, given)
        width = None if parallelism is None else TASKS_PER_CORE * executor.width
        with _source_in_files(target.store, df, task, width) as source:

            def plan(store: Store, base: Snapshot, spec: RewriteSpec) -> RowsPlan:
                typed = with_source_types(spec, task.schema)
                whens = rules.when_matched, rules.deletes_others
                edit = MergeFiles(store, source.files, *whens, spec.partition_keys)
                found = plan_merge(store, base, typed, edit, source, rules, executor)
                # The numbers of source rows have done their work, and would travel to all tasks.
                matches = [replace(m, found=m.found._replace(sources=None)) for m in found.matches]
                return replace(found, matches=tuple(matches))

            return run_rows(target, plan, on_conflict, dry_run, executor, partial(_staged_source, source))


def _staged_source(source: StagedSource, store: Store, plan: RowsPlan, executor: Executor) -> StagedRows:
    """Write the new rows first, in tasks; their files join those of the plan."""
    # Without its base, which has all partitions of the dataset: the request travels to every task.
    write = replace(new_rows_request(plan), base=None)
    inserted = stage_new_rows(store, plan, source.files, write, executor)
    return stage_rows(store, replace(plan, is_new=plan.is_new[:0]), executor, inserted, write)


# --- the source -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _SourceTask:
    """What a task needs to write rows of the source; a part of the closure.

    ``given`` are the columns by position, with types as stored; ``schema`` has those of the
    dataset. ``together`` are the partition columns among the keys, ``indexed`` those with an index.
    """

    store: Store | Callable[[], Store]
    uuid: str
    folder: str
    given: pa.Schema
    schema: pa.Schema
    on: tuple[str, ...]
    partition_keys: tuple[str, ...]
    together: tuple[str, ...]
    indexed: tuple[str, ...]
    limit: int

    @property
    def order(self) -> tuple[str, ...]:
        """The sort order of files: a file of the dataset has one value of a partition column."""
        return tuple(dict.fromkeys((*self.together, *self.on)))


def _source_task(
    store: Store | Callable[[], Store], base: Snapshot, spec: RewriteSpec, rules: MergeRules, given: pa.Schema
) -> _SourceTask:
    """The checked columns of a source."""
    together = tuple(c for c in rules.on if c in base.partition_keys)
    indexed = tuple(c for c in rules.on if c in base.pruning_columns)
    folder, limit = f"{spec.table}/merge-{new_id()}", max(1, current_options().bytes_in_flight // _SHARES)
    schema = source_schema(given, spec, rules)
    keys = spec.partition_keys
    return _SourceTask(store, spec.uuid, folder, given, schema, rules.on, keys, together, indexed, limit)


@contextmanager
def _source_in_files(store: Store, frame: DataFrame, task: _SourceTask, width: int | None) -> Iterator[StagedSource]:
    """Write the rows of a data frame in one Spark job; the files are gone at the end."""
    job = Job("merge into", f"dataset {task.uuid!r}", "source", "write")
    plain, names = with_plain_names(frame)
    types = {f.name: f.dataType for f in frame.schema.fields}
    hashed = bucket_column({names[c]: types[c] for c in task.on}, _HASHES)
    # Without a number of tasks adaptive execution chooses it by the bytes of the shuffle.
    spread = plain.repartition(hashed) if width is None else plain.repartition(width, hashed)
    try:
        rows = collect(spread.mapInArrow(as_task(partial(_write, task), job), spark_schema(_WRITTEN)), job)
        for row in rows:
            if row["error"]:
                raise decode_error(row["error"])
        pickles = (bytes(row["file"]) for row in rows)
        written: list[WrittenFile] = sorted(map(pickle.loads, pickles), key=lambda w: w.file.key)
        files = SourceFiles(task.uuid, task.schema, task.on, tuple(w.file for w in written))
        yield StagedSource(store, files, tuple(written), current_options().bytes_in_flight)
    finally:
        # Also files of attempts that failed. What cannot be deleted now is garbage.
        with suppress(Exception):
            store.delete_many(store.keys(f"{task.uuid}/{task.folder}/"))


def _write(task: _SourceTask, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a Spark task: rows in, written files out. Unusable rows return as an error."""
    store = open_store(task.store)
    with spilling_beside_spark():
        try:
            # Closed at the end, whatever happens: the sort has temporary files.
            with closing(_checked(task, batches)) as pieces:
                for piece in pieces:
                    source = MergeSource(piece, task.on)
                    file = write_source(store, task.uuid, task.folder, source, task.together, task.indexed)
                    yield pa.record_batch([[pickle.dumps(file)], [None]], schema=_WRITTEN)
        except (InvalidInput, InvalidType, Unsupported) as error:
            # A row instead of a failed task: Spark would retry, and no retry helps.
            yield pa.record_batch([[None], [encode_error(error)]], schema=_WRITTEN)


def _checked(task: _SourceTask, batches: Iterable[pa.RecordBatch]) -> Generator[pa.Table, None, None]:
    """The rows sorted by key, in pieces that fit into memory, without a key that occurs twice."""
    last: pa.Table | None = None
    for piece in _in_order(task, (_typed(task, batch) for batch in batches if batch.num_rows)):
        # Equal keys may be on both sides of a cut.
        check_keys(MergeSource(piece if last is None else pa.concat_tables([last, piece]), task.on), task.uuid)
        last = piece.slice(piece.num_rows - 1)
        yield piece


def _typed(task: _SourceTask, batch: pa.RecordBatch) -> pa.Table:
    named = pa.Table.from_batches([batch]).rename_columns(task.given.names)
    rows = typed_rows(conform(named, task.given, f"dataset {task.uuid!r}"), task.schema, task.uuid)
    check_no_nulls(rows, task.on, task.uuid)
    check_partition_values(rows, task.partition_keys, task.uuid)
    return rows


def _in_order(task: _SourceTask, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    tables, rows, _, complete = take_until(tables, task.limit)
    if not complete:
        # The sort holds several copies of a piece.
        yield from sorted_pieces(tables, task.order, max(1, task.limit // _SHARES))
    elif rows:
        table = pa.concat_tables(tables).combine_chunks()
        yield sorted_table(table, task.order)
