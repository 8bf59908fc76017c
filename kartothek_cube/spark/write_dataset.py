"""The verbs that write a dataset from a Spark data frame: staged in tasks, collected once, published on the driver."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from kartothek_cube.core.change import OnConflict, check_on_conflict
from kartothek_cube.core.commit import check_store_can_commit
from kartothek_cube.core.compat.dataset_metadata import DatasetMetadata
from kartothek_cube.core.compat.factory import DatasetFactory
from kartothek_cube.core.dataset.arguments import DatasetRef, target_of
from kartothek_cube.core.dataset.plan_write import column_names, plan_new, plan_update
from kartothek_cube.core.dataset.prepare import WriteRequest, prepare
from kartothek_cube.core.dataset.run import CommitOptions, StagedWrite, commit_staged, metadata_arguments, skipped, stage_prepared, update_options
from kartothek_cube.core.formats import FileFormat
from kartothek_cube.core.input_rows import InputPartition
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.metadata.txn import parse_txn
from kartothek_cube.core.naming import SINGLE_TABLE, fresh_id
from kartothek_cube.core.options import Overrides
from kartothek_cube.core.receipt import Receipt
from kartothek_cube.core.snapshots import find_snapshot
from kartothek_cube.core.stores import store_factory
from kartothek_cube.core.telemetry import operation
from kartothek_cube.errors import InvalidInput, InvalidType
from kartothek_cube.spark.jobs import Job
from kartothek_cube.spark.layout import make_layout
from kartothek_cube.spark.session import cores, session_of, shown
from kartothek_cube.spark.stage import Target, staged_receipts
from kartothek_cube.spark.stage_rows import DatasetRows, checked_schemas
from kartothek_cube.spark.types import Timestamps, frame_schema
from kartothek_cube.typing import Columns, DeleteScope, IntoMetadata, IntoTxn, MetadataMerger, StoreLike

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["store_dataset_from_spark", "update_dataset_from_spark"]


@dataclass(frozen=True, slots=True)
class _Input:
    """The rows of a call: the data frame, how it is distributed over files, and how its session works."""

    frame: DataFrame
    table: str
    timestamps: Timestamps
    shuffle: bool
    num_buckets: object
    bucket_by: object
    ratio: object
    spark: SparkSession | None
    parallelism: int | None


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

    Columns and types are checked before the first task starts. The rows are then staged in one Spark job: each task checks, sorts and splits its rows and
    writes files that nothing names yet. When all have succeeded, the driver publishes them in one commit. A task that fails and is tried again leaves files
    behind, but no duplicates.

    Parameters
    ----------
    df : DataFrame
        The rows.
    store : str, path, store or callable
        Where the dataset lies. The executors open the same store, so it has to be one that other processes see.
    dataset_uuid : str, optional
        Name of the dataset: ASCII letters, digits, ``+``, ``-``, ``_``. None makes a random one.
    table : str, default "table"
        Name of the table. None is refused.
    secondary_indices : str or list of str, optional
        Columns that get an inverted index: value → partitions.
    shuffle : bool, default False
        Bring rows of the same partition values together first: exactly one file for each combination of partition values and bucket. Without it every task
        writes a file for each combination that it sees.
    repartition_ratio : float, optional
        Fewer tasks, and so fewer files without ``shuffle``: ``ceil(4 * parallelism / repartition_ratio)``. With ``shuffle`` it makes so many tasks; without,
        neighbouring partitions of the data frame are merged to at most so many, which moves no rows. How many partitions a data frame has, Spark says on
        classic sessions only and in general only after it has run, so the ratio is not one of their number.
    num_buckets : int, default 1
        With ``shuffle``: into how many files the rows of a partition are spread, by a hash. The bucket is stored nowhere.
    sort_partitions_by : str or list of str, optional
        Sort the rows of each file by these columns, nulls last.
    metadata : dict or callable, optional
        User metadata, which JSON can hold; a callable is called once, when all rows are staged.
    df_serializer : ParquetSerializer or CsvSerializer, optional
        How data files are written.
    metadata_merger : callable, optional
        Gets a list of dicts and returns the user metadata.
    partition_on : str or list of str, optional
        Columns whose values become part of the files' paths, in this order.
    bucket_by : str or list of str, optional
        With ``shuffle``: the columns that are hashed, by default all. All rows of a partition with the same values are in one file, so that a value of
        an indexed column that is hashed is in one file for each partition.
    overwrite : bool, default False
        Replace a dataset of this name: its partitions, schema, indices and metadata.
    on_conflict : {"raise", "reapply"}
        As in `kartothek_cube.api.dataset.store_dataframes_as_dataset`.
    timestamps : {"refuse", "utc"}
        What becomes of Spark's ``timestamp``, whose text depends on the session's time zone: refuse it and ask for a cast to ``timestamp_ntz``, or store
        UTC times without a zone.
    txn : tuple of str and int, optional
        ``(application id, number)``: the number of this write, which is stored with it. A number that is not above the last one of that application is
        skipped; if the dataset has it already, nothing runs in Spark.
    spark : SparkSession, optional
        By default the session of the data frame.
    parallelism : int, optional
        How many tasks run at once; by default what the session says. A shuffle makes four times as many tasks.
    options : optional
        What `options` returns: settings for this call, in its tasks, too.

    Returns
    -------
    DatasetMetadata
        The dataset as it was committed.

    Raises
    ------
    AlreadyExists
        If the dataset exists and ``overwrite`` is False.
    InvalidInput, InvalidType, Unsupported
        If an argument or a column cannot be stored so; the message names it. Also where a task finds it, e.g. a null in a partition column. A partitioned
        dataset without any row is refused; one that is not partitioned becomes one file without rows.
    CommitConflict
        If somebody else created the dataset meanwhile, or has added or removed partitions of the one that is overwritten.

    Notes
    -----
    A task holds no more of its rows than about ``options(bytes_in_flight=...)`` as it is set around this call. After a shuffle a partition that is
    larger is written as a stream, row group by row group; without one the task writes its rows in several blocks, each with files of its own.

    Examples
    --------
    >>> from kartothek_cube.spark import store_dataset_from_spark
    >>> sales = spark.sql("SELECT 'DE' AS COUNTRY_CODE, 1L AS PRODUCT_ID, 3L AS UNITS")
    >>> store_dataset_from_spark(sales, "hfs://datasets", "sales", secondary_indices="PRODUCT_ID", shuffle=True, partition_on=["COUNTRY_CODE"])
    DatasetMetadata(uuid='sales', partitions=1, partition_keys=['COUNTRY_CODE'])
    """
    with operation("store_dataset_from_spark", options):
        rows = _input(df, table, dataset_uuid, timestamps, shuffle, num_buckets, bucket_by, repartition_ratio, spark, parallelism)
        rules = CommitOptions(on_conflict=check_on_conflict(on_conflict), txn=parse_txn(txn))
        source = target_of(store, dataset_uuid, generate=True)
        base = find_snapshot(source.store, source.uuid)
        done = skipped(base, rules.txn)
        if done is not None:
            return DatasetMetadata.of(done)
        encoding = "json" if base is None or not base.key.endswith(".zstd") else "msgpack"  # one that is replaced keeps its own
        request = plan_new(source.uuid, base, partition_on, secondary_indices, df_serializer, overwrite, encoding)
        request = replace(request, sort_columns=column_names(sort_partitions_by, "sort_partitions_by"))
        arguments = metadata_arguments(metadata, metadata_merger, source.uuid)
        return source.committed(commit_staged(source.store, _staged("store", source, request, rows), arguments, rules))


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
    """Add the rows of a Spark data frame to a dataset and remove partitions, in one commit; a dataset that does not exist is made.

    Parameters
    ----------
    df : DataFrame or None
        The rows. None, and a data frame without rows, change metadata or remove partitions only.
    store, dataset_uuid, factory
        Where the dataset lies: ``store`` and ``dataset_uuid``, or a `DatasetFactory`.
    delete_scope, add_columns, on_conflict, metadata_merger
        As in `kartothek_cube.api.dataset.update_dataset_from_dataframes`. The scope is applied to the dataset as it is when the rows are published.
    table
        Name of the table, which must be that of the dataset.
    secondary_indices
        For a new dataset, or one without partitions. All indices that a dataset has are maintained in any case.
    partition_on
        Only for a new dataset; for one that exists it must be what it has.
    shuffle, repartition_ratio, num_buckets, sort_partitions_by, metadata, df_serializer, bucket_by, timestamps, txn, spark, parallelism
        As in `store_dataset_from_spark`.

    Returns
    -------
    DatasetMetadata
        The dataset as it was committed.

    Raises
    ------
    InvalidInput, InvalidType, Unsupported
        If an argument, a column or a scope does not fit the dataset, also where a task finds it; nothing is visible then. `InvalidType` for another table
        than the dataset has.
    CommitConflict
        If somebody else has, since this call began, changed what it removes or replaces. What others append meanwhile is no conflict.

    Examples
    --------
    >>> from kartothek_cube.spark import store_dataset_from_spark, update_dataset_from_spark
    >>> sales = spark.sql("SELECT 'DE' AS COUNTRY_CODE, 1L AS PRODUCT_ID, 3L AS UNITS")
    >>> _ = store_dataset_from_spark(sales, "hfs://updated", "sales", partition_on=["COUNTRY_CODE"])
    >>> corrected = spark.sql("SELECT 'DE' AS COUNTRY_CODE, 1L AS PRODUCT_ID, 4L AS UNITS")
    >>> update_dataset_from_spark(corrected, "hfs://updated", "sales", delete_scope=[{"COUNTRY_CODE": "DE"}])
    DatasetMetadata(uuid='sales', partitions=1, partition_keys=['COUNTRY_CODE'])
    """
    with operation("update_dataset_from_spark", options):
        rows = None if df is None else _input(df, table, dataset_uuid, timestamps, shuffle, num_buckets, bucket_by, repartition_ratio, spark, parallelism)
        source = target_of(store, dataset_uuid, factory)
        check_store_can_commit(source.store)
        base = find_snapshot(source.store, source.uuid)
        rules = update_options(delete_scope, base, on_conflict, txn)
        done = skipped(base, rules.txn)
        if done is not None:
            return DatasetMetadata.of(done)
        _check_table(table, base)
        request = plan_update(source.uuid, base, partition_on, secondary_indices, df_serializer, sort_partitions_by, add_columns)
        arguments = metadata_arguments(metadata, metadata_merger, source.uuid)
        if rows is None and base is None:
            raise InvalidInput(f"Cannot store empty datasets: {source.uuid!r} does not exist, and there are no rows to make it from.")
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


def _check_table(table: object, base: Snapshot | None) -> None:
    if table is None:
        raise InvalidType("The parameter `table` is not optional.")
    tables = sorted(base.schemas) if base is not None else []
    if len(tables) > 1:
        raise InvalidType(f"Expected single table dataset: {base.uuid!r} has the tables {tables}.")  # type: ignore[union-attr]
    if tables and tables != [table]:
        raise InvalidType(f"Unexpected table in dataset {base.uuid!r}: it has the table {tables[0]!r}, not {table!r}.")  # type: ignore[union-attr]


def _staged(verb: str, source: DatasetRef, request: WriteRequest, given: _Input) -> StagedWrite:
    """Check everything that the columns show, stage all rows in one Spark job, and check what only the whole shows."""
    check_store_can_commit(source.store)
    rows = DatasetRows(replace(request, base=None), given.table, frame_schema(given.frame.schema, request.uuid, given.timestamps))
    schemas = checked_schemas(request, rows.table, rows.schema).tables
    known = schemas[rows.table]
    # Columns without a type take the one that the dataset has.
    typed = pa.schema([known.field(f.name).with_nullable(True) if pa.types.is_null(f.type) else f for f in rows.schema])
    rows = replace(rows, schema=typed)
    layout = make_layout(given.shuffle, given.num_buckets, given.bucket_by, [rows], given.ratio)
    target = Target(store_factory(source.store), fresh_id(), cores(given.spark or session_of(given.frame), given.parallelism))
    job = Job(verb, f"dataset {request.uuid!r}", phase="write")
    receipts = staged_receipts({rows.id: given.frame}, {rows.id: rows}, target, layout, job)[rows.id]
    return StagedWrite(request, tuple(receipts or _without_rows(source, request, rows)), schemas, 1)


def _without_rows(source: DatasetRef, request: WriteRequest, rows: DatasetRows) -> list[Receipt]:
    """What stands for rows of which there are none: nothing in a dataset that exists, else one file without rows."""
    if request.start is not None:
        return []
    if request.partition_on:
        raise InvalidInput(
            f"Cannot store empty datasets: the data frame for {request.uuid!r} has no rows, so that there is no partition by {list(request.partition_on)}."
        )
    return stage_prepared(source.store, rows.write, prepare(rows.write, InputPartition(fresh_id(), {rows.table: rows.schema.empty_table()})))
