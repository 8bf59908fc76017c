"""Writing cubes from Spark data frames: staged in tasks, published by the driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from kartothek_cube.core.arguments import converter_str, converter_str_set_optional
from kartothek_cube.core.commit.change import OnConflict, check_on_conflict
from kartothek_cube.core.commit.commit import check_store_can_commit
from kartothek_cube.core.io.formats import FileFormat
from kartothek_cube.core.kartothek.dataset_metadata import DatasetMetadata
from kartothek_cube.core.metadata.commit_log import parse_txn
from kartothek_cube.core.metadata.naming import new_id
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.stores.open import open_instrumented, store_factory
from kartothek_cube.core.write.layout import NO_LAYOUT
from kartothek_cube.cube.cube import Cube, require_cube
from kartothek_cube.cube.members import cube_and_store, load_cube
from kartothek_cube.cube.verbs.write import existing_for_build
from kartothek_cube.cube.write.commit import commit_cube_write
from kartothek_cube.cube.write.plan import (
    CubeWrite,
    check_duplicates,
    plan_append,
    plan_build,
    plan_extend,
    plan_update,
)
from kartothek_cube.errors import InvalidType
from kartothek_cube.spark.actions import Job
from kartothek_cube.spark.session import cores, session_by_keyword, session_of, shown
from kartothek_cube.spark.types import Timestamps, frame_schema
from kartothek_cube.spark.write.distribution import buckets_on_record, make_layout
from kartothek_cube.spark.write.rows import CubeRows
from kartothek_cube.spark.write.stage import Target, staged_receipts
from kartothek_cube.typing import Columns, IntoConditions, IntoTxn, StoreLike, UserMetadata

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["append_to_cube_from_spark", "build_cube_from_spark", "extend_cube_from_spark", "update_cube_from_spark"]


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
        existing = existing_for_build(cube, job.store)
        rule, number = check_on_conflict(on_conflict), parse_txn(txn)
        write = plan_build(
            cube, job.schemas, existing, metadata, overwrite, partition_on, df_serializer, on_conflict=rule, txn=number
        )
        return _run("build", job, write, shuffle, num_buckets, bucket_by)


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
        existing, rule, number = load_cube(cube, job.store), check_on_conflict(on_conflict), parse_txn(txn)
        write = plan_extend(
            cube, job.schemas, existing, metadata, overwrite, partition_on, df_serializer, on_conflict=rule, txn=number
        )
        return _run("extend", job, write, shuffle, num_buckets, bucket_by)


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
        write = plan_append(cube, job.schemas, load_cube(cube, job.store), metadata, df_serializer, txn=parse_txn(txn))
        return _run("append to", job, write, shuffle, num_buckets, bucket_by)


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
        names = converter_str_set_optional(ktk_cube_dataset_ids)
        existing, rule, number = load_cube(cube, job.store), check_on_conflict(on_conflict), parse_txn(txn)
        write = plan_update(
            cube,
            job.schemas,
            existing,
            remove_conditions,
            None if names is None else sorted(names),
            metadata,
            df_serializer,
            on_conflict=rule,
            txn=number,
        )
        return _run("update", job, write, shuffle, num_buckets, bucket_by)


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
    committed = commit_cube_write(job.store, write, receipts)
    return {i: DatasetMetadata.of(snapshot) for i, snapshot in committed.items()}
