"""Writing datasets from Spark data frames: staged in tasks, published by the driver."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from kartothek_cube.core.arguments import as_list
from kartothek_cube.core.commit.change import OnConflict, check_on_conflict
from kartothek_cube.core.commit.commit import check_store_can_commit
from kartothek_cube.core.commit.dataset_write import (
    CommitOptions,
    StagedWrite,
    commit_staged,
    metadata_arguments,
    skipped,
    stage_prepared,
    update_options,
)
from kartothek_cube.core.dataset.reference import DatasetRef, target_of
from kartothek_cube.core.io.formats import FileFormat
from kartothek_cube.core.kartothek.dataset_metadata import DatasetFactory, DatasetMetadata
from kartothek_cube.core.metadata.commit_log import parse_txn
from kartothek_cube.core.metadata.naming import SINGLE_TABLE, new_id
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.snapshots.loader import find_snapshot
from kartothek_cube.core.stores.open import store_factory
from kartothek_cube.core.write.input_rows import InputPartition
from kartothek_cube.core.write.plan import plan_dataset_update, plan_new
from kartothek_cube.core.write.prepare import WriteRequest, derived_in, prepare
from kartothek_cube.errors import InvalidInput, InvalidType
from kartothek_cube.spark.actions import Job
from kartothek_cube.spark.session import cores, session_by_keyword, session_of, shown
from kartothek_cube.spark.types import Timestamps, frame_schema
from kartothek_cube.spark.write.distribution import buckets_on_record, make_layout, with_derived_columns
from kartothek_cube.spark.write.rows import DatasetRows, checked_schemas
from kartothek_cube.spark.write.stage import Target, staged_receipts
from kartothek_cube.typing import Columns, DeleteScope, IntoMetadata, IntoTxn, MetadataMerger, StoreLike

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["store_dataset_from_spark", "update_dataset_from_spark"]


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
        rules = CommitOptions(on_conflict=check_on_conflict(on_conflict), txn=parse_txn(txn))
        source = target_of(store, dataset_uuid, generate=True)
        base = find_snapshot(source.store, source.uuid)
        done = skipped(base, rules.txn)
        if done is not None:
            return DatasetMetadata.of(done)
        # A replaced dataset keeps its encoding.
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
        arguments = metadata_arguments(metadata, metadata_merger, source.uuid)
        return source.committed(commit_staged(source.store, _staged("store", source, request, rows), arguments, rules))


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
        check_store_can_commit(source.store)
        base = find_snapshot(source.store, source.uuid)
        rules = update_options(delete_scope, base, on_conflict, txn)
        done = skipped(base, rules.txn)
        if done is not None:
            return DatasetMetadata.of(done)
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
        arguments = metadata_arguments(metadata, metadata_merger, source.uuid)
        if rows is None and base is None:
            raise InvalidInput(
                f"Cannot store empty datasets: {source.uuid!r} does not exist, and there are no rows to make it from."
            )
        staged = StagedWrite(request, (), {}, 0) if rows is None else _staged("update", source, request, rows)
        return source.committed(commit_staged(source.store, staged, arguments, rules))


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


def _staged(verb: str, source: DatasetRef, request: WriteRequest, given: _Input) -> StagedWrite:
    """Check the columns, and stage all rows in one Spark job."""
    check_store_can_commit(source.store)
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
