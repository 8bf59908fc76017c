"""The verbs that write a cube from Spark data frames: staged in tasks, collected once, published on the driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from kartothek_cube.core.change import OnConflict, check_on_conflict
from kartothek_cube.core.commit import check_store_can_commit
from kartothek_cube.core.compat.dataset_metadata import DatasetMetadata
from kartothek_cube.core.formats import FileFormat
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.metadata.txn import parse_txn
from kartothek_cube.core.naming import fresh_id
from kartothek_cube.core.options import Overrides
from kartothek_cube.core.store import Store
from kartothek_cube.core.stores import open_instrumented, store_factory
from kartothek_cube.core.telemetry import operation
from kartothek_cube.cube.commit import commit_cube_write
from kartothek_cube.cube.converters import converter_str, converter_str_set_optional
from kartothek_cube.cube.cube import Cube
from kartothek_cube.cube.discovery import load_cube
from kartothek_cube.cube.duplicates import check_duplicates
from kartothek_cube.cube.verbs.build import existing_for_build
from kartothek_cube.cube.write_plan import CubeWrite, plan_append, plan_build, plan_extend, plan_update
from kartothek_cube.errors import InvalidType
from kartothek_cube.spark.jobs import Job
from kartothek_cube.spark.layout import make_layout
from kartothek_cube.spark.session import cores, session_of, shown
from kartothek_cube.spark.stage import Target, staged_receipts
from kartothek_cube.spark.stage_rows import CubeRows
from kartothek_cube.spark.types import Timestamps, frame_schema
from kartothek_cube.typing import Columns, IntoConditions, IntoTxn, StoreLike, UserMetadata

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["append_to_cube_from_spark", "build_cube_from_spark", "extend_cube_from_spark", "update_cube_from_spark"]


@dataclass(frozen=True, slots=True)
class _Job:
    """What one call is about: the frames, their types, the store here, and where executors write."""

    frames: Mapping[str, DataFrame]
    schemas: Mapping[str, pa.Schema]
    store: Store
    target: Target


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
    """Write the first datasets of a cube from Spark data frames, the seed among them.

    Columns and types are checked before the first task starts. The rows of all data frames are then staged in one Spark job: each task checks, sorts and
    splits its rows and writes Parquet files that nothing names yet. When all have succeeded, the driver publishes them, one commit a dataset, the seed
    last. A task that fails and is tried again leaves files behind, but no duplicates; a write that fails leaves the cube as it was.

    Parameters
    ----------
    data : DataFrame or dict
        A Spark data frame (the seed), or a dict dataset id → Spark data frame.
    cube, store, metadata, overwrite, partition_on, df_serializer, on_conflict
        As in `kartothek_cube.api.cube.build_cube`. The executors open the same store, so it has to be one that other processes see.
    shuffle : bool, default False
        Bring rows of the same partition values together first: exactly one file for each combination of partition values and bucket. Without it every task
        writes a file for each combination that it sees.
    num_buckets : int, default 1
        With ``shuffle``: into how many files the rows of a partition are spread, by a hash. The bucket is stored nowhere.
    bucket_by : str or list of str, optional
        With ``shuffle``: the columns that are hashed, by default the dimension columns. All rows of a partition with the same values are in one file.
    timestamps : {"refuse", "utc"}
        What becomes of Spark's ``timestamp``, whose text depends on the session's time zone: refuse it and ask for a cast to ``timestamp_ntz``, or store
        UTC times without a zone.
    spark : SparkSession, optional
        By default the session of the data frames.
    parallelism : int, optional
        How many tasks run at once; by default what the session says. A shuffle makes four times as many tasks.
    options : optional
        What `options` returns: settings for this call, in its tasks, too.
    txn : tuple of str and int, optional
        ``(application id, number)``: the number of this write, which is stored with it. A number that is not above the last one of that application is
        skipped, for each dataset; if all datasets have it, nothing runs in Spark.

    Returns
    -------
    dict
        Dataset id → `DatasetMetadata`.

    Raises
    ------
    InvalidInput, InvalidType, Unsupported
        For data that does not fit the cube, as in `build_cube`; also where a task finds it. Cells that occur in the rows of two tasks are found, too: with
        ``shuffle`` they meet in one task, without it the key columns of files that may share cells are read again.
    AlreadyExists, MultiTableCommitAborted, CommitConflict
        As in `build_cube`.

    Notes
    -----
    A task holds no more of its rows than about ``options(bytes_in_flight=...)`` as it is set around this call. After a shuffle a partition that is
    larger is written as a stream, row group by row group; without one the task writes its rows in several blocks, each with files of its own.

    Examples
    --------
    >>> from kartothek_cube.api.cube import Cube
    >>> from kartothek_cube.spark import build_cube_from_spark
    >>> cube = Cube(["PRODUCT_ID", "SALES_DATE"], ["COUNTRY_CODE"], "sales")
    >>> sales = spark.sql("SELECT 1L AS PRODUCT_ID, DATE'2024-01-01' AS SALES_DATE, 'DE' AS COUNTRY_CODE, 3L AS UNITS")
    >>> build_cube_from_spark(sales, cube, "hfs://sales", shuffle=True)
    {'seed': DatasetMetadata(uuid='sales++seed', partitions=1, partition_keys=['COUNTRY_CODE'])}
    """
    with operation("build_cube_from_spark", options, cube=cube):
        job = _job(data, cube, store, timestamps, spark, parallelism)
        existing = existing_for_build(cube, job.store)
        rule, number = check_on_conflict(on_conflict), parse_txn(txn)
        write = plan_build(cube, job.schemas, existing, metadata, overwrite, partition_on, df_serializer, on_conflict=rule, txn=number)
        return _run("build", job, write, shuffle, num_buckets, bucket_by)


def extend_cube_from_spark(
    data: DataFrame | Mapping[str, DataFrame],
    cube: Cube,
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
    """Add datasets to an existing cube from Spark data frames, or with ``overwrite`` replace some that are not the seed.

    Arguments, results and errors are those of `build_cube_from_spark`; the cube has to exist and to be valid, and a payload column may exist in one
    dataset only. The result of `map_cube_groups` can go straight in here.

    Examples
    --------
    >>> from kartothek_cube.api.cube import Cube
    >>> from kartothek_cube.spark import build_cube_from_spark, extend_cube_from_spark
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> _ = build_cube_from_spark(spark.sql("SELECT 1L AS PRODUCT_ID, 'DE' AS COUNTRY_CODE"), cube, "hfs://stock")
    >>> stock = spark.sql("SELECT 1L AS PRODUCT_ID, 7L AS STOCK")
    >>> extend_cube_from_spark({"stock": stock}, cube, "hfs://stock", partition_on={"stock": []})
    {'stock': DatasetMetadata(uuid='sales++stock', partitions=1, partition_keys=[])}
    """
    with operation("extend_cube_from_spark", options, cube=cube):
        job = _job(data, cube, store, timestamps, spark, parallelism)
        existing, rule, number = load_cube(cube, job.store), check_on_conflict(on_conflict), parse_txn(txn)
        write = plan_extend(cube, job.schemas, existing, metadata, overwrite, partition_on, df_serializer, on_conflict=rule, txn=number)
        return _run("extend", job, write, shuffle, num_buckets, bucket_by)


def append_to_cube_from_spark(
    data: DataFrame | Mapping[str, DataFrame],
    cube: Cube,
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
    """Add rows to datasets of a cube from Spark data frames; nothing is removed.

    A cell that is there already gets a newer row: queries see the newest one. Arguments are as in `build_cube_from_spark`, results and errors as in
    `kartothek_cube.api.cube.append_to_cube`.

    Examples
    --------
    >>> from kartothek_cube.api.cube import Cube
    >>> from kartothek_cube.spark import append_to_cube_from_spark, build_cube_from_spark
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> _ = build_cube_from_spark(spark.sql("SELECT 1L AS PRODUCT_ID, 'DE' AS COUNTRY_CODE"), cube, "hfs://more")
    >>> append_to_cube_from_spark(spark.sql("SELECT 2L AS PRODUCT_ID, 'DE' AS COUNTRY_CODE"), cube, "hfs://more")
    {'seed': DatasetMetadata(uuid='sales++seed', partitions=2, partition_keys=['COUNTRY_CODE'])}
    """
    with operation("append_to_cube_from_spark", options, cube=cube):
        job = _job(data, cube, store, timestamps, spark, parallelism)
        write = plan_append(cube, job.schemas, load_cube(cube, job.store), metadata, df_serializer, txn=parse_txn(txn))
        return _run("append to", job, write, shuffle, num_buckets, bucket_by)


def update_cube_from_spark(
    data: DataFrame | Mapping[str, DataFrame],
    cube: Cube,
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
    """Remove physical partitions and add rows from Spark data frames, in one commit for each dataset.

    ``remove_conditions``, ``ktk_cube_dataset_ids`` and ``on_conflict`` are as in `kartothek_cube.api.cube.update_cube`, with its results and errors;
    ``data`` may be ``{}``.
    The other arguments are as in `build_cube_from_spark`.

    Examples
    --------
    >>> from kartothek_cube.api.cube import C, Cube
    >>> from kartothek_cube.spark import build_cube_from_spark, query_cube_spark, update_cube_from_spark
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> _ = build_cube_from_spark(spark.sql("SELECT 1L AS PRODUCT_ID, 'DE' AS COUNTRY_CODE"), cube, "hfs://newer")
    >>> newer = spark.sql("SELECT 2L AS PRODUCT_ID, 'DE' AS COUNTRY_CODE")
    >>> _ = update_cube_from_spark(newer, cube, "hfs://newer", C("COUNTRY_CODE") == "DE")
    >>> query_cube_spark(cube, "hfs://newer").collect()
    [Row(COUNTRY_CODE='DE', PRODUCT_ID=2)]
    """
    with operation("update_cube_from_spark", options, cube=cube):
        job = _job(data, cube, store, timestamps, spark, parallelism)
        names = converter_str_set_optional(ktk_cube_dataset_ids)
        existing: Mapping[str, Snapshot] = load_cube(cube, job.store)
        concerned, rule, number = None if names is None else sorted(names), check_on_conflict(on_conflict), parse_txn(txn)
        write = plan_update(cube, job.schemas, existing, remove_conditions, concerned, metadata, df_serializer, on_conflict=rule, txn=number)
        return _run("update", job, write, shuffle, num_buckets, bucket_by)


def _job(
    data: DataFrame | Mapping[str, DataFrame], cube: Cube, store: StoreLike, timestamps: Timestamps, spark: SparkSession | None, parallelism: int | None
) -> _Job:
    identity = fresh_id()
    frames = _frames(data, cube)
    factory = store_factory(store)
    schemas = {name: frame_schema(frame.schema, name, timestamps) for name, frame in frames.items()}
    width = cores(spark or session_of(next(iter(frames.values()))), parallelism) if frames else 1
    return _Job(frames, schemas, open_instrumented(factory), Target(factory, identity, width))


def _frames(data: DataFrame | Mapping[str, DataFrame], cube: Cube) -> dict[str, DataFrame]:
    frames = data if isinstance(data, Mapping) else {cube.seed_dataset: data}
    for name, frame in frames.items():
        cube.ktk_dataset_uuid(name)
        if not hasattr(frame, "mapInArrow"):
            raise InvalidType(
                f"Expected a Spark data frame for dataset {name!r} of the cube {cube.uuid_prefix!r}, or a dict dataset id → data frame; got {shown(frame)}"
            )
    return {converter_str(name): frame for name, frame in frames.items()}


def _run(verb: str, job: _Job, write: CubeWrite, shuffle: bool, num_buckets: object, bucket_by: object) -> dict[str, DatasetMetadata]:
    """Stage all rows in one Spark job, check what only the whole shows, and publish."""
    rows = {i: CubeRows(write.datasets[i]) for i in job.frames}
    layout = make_layout(shuffle, num_buckets, bucket_by, rows.values())
    check_store_can_commit(job.store)
    # Without datasets that got the rows of this numbered write before.
    pending = {i: frame for i, frame in job.frames.items() if i not in write.done}
    receipts = staged_receipts(pending, rows, job.target, layout, Job(verb, f"cube {write.cube.uuid_prefix!r}", ", ".join(pending), "write"))
    for name, own in receipts.items():
        if not layout.keeps_cells_together(rows[name]):
            check_duplicates(job.store, write.datasets[name], own, "the rows of two tasks")
    landed = commit_cube_write(job.store, write, receipts)
    return {i: DatasetMetadata.of(state) for i, state in landed.items()}
