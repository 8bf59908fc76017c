"""Querying a cube into a lazy Spark data frame."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from kartothek_cube.core.options import Overrides
from kartothek_cube.core.stores import open_store, store_factory
from kartothek_cube.core.telemetry import operation
from kartothek_cube.cube.cube import Cube
from kartothek_cube.cube.groups import Group
from kartothek_cube.cube.intention import QueryArguments
from kartothek_cube.cube.load import PartitionLoader
from kartothek_cube.cube.planning import make_plan
from kartothek_cube.cube.run import shares_seed_files
from kartothek_cube.spark.regroup import job_of, run_grouped
from kartothek_cube.spark.session import cores, find_session
from kartothek_cube.spark.tasks import pack, run_packed, sampled_bytes, task_count
from kartothek_cube.spark.types import to_spark, wire_schema
from kartothek_cube.typing import AsOf, Columns, IntoConditions, IntoDatasets, StoreLike

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["query_cube_spark"]


def query_cube_spark(
    cube: Cube,
    store: StoreLike,
    conditions: IntoConditions = None,
    datasets: IntoDatasets = None,
    dimension_columns: Columns = None,
    partition_by: Columns = None,
    payload_columns: Columns = None,
    blocksize: int | None = None,
    *,
    spark: SparkSession | None = None,
    parallelism: int | None = None,
    as_of: AsOf | None = None,
    options: Overrides | None = None,
) -> DataFrame:
    """Query a cube and get a lazy Spark data frame.

    The query is checked and planned on the driver when this is called. The plan names exact files, so that every action on the data frame sees the cube
    as it was then. Files are read and joined in tasks, without a shuffle unless ``partition_by`` asks for more groups than there are files.

    Parameters
    ----------
    cube, store, conditions, datasets, dimension_columns, payload_columns
        As in `kartothek_cube.api.cube.query_cube`. The executors open the same store, so it has to be one that other processes see.
    partition_by : str or iterable of str, optional
        Indexed columns: all rows of one combination of their values come from one task, one after the other. Without it the rows of one partition of the
        cube do, and the result has no order beyond that.
    blocksize : int, optional
        Groups in one task. By default they are packed into about four tasks for each core, or fewer where the files are seen to be small.
    spark : SparkSession, optional
        By default the active session; classic or Connect.
    parallelism : int, optional
        How many tasks run at once; by default what the session says.
    as_of : str or datetime, optional
        As in `query_cube`.
    options : Overrides, optional
        Of `kartothek_cube.options`: for planning, and for the tasks.

    Returns
    -------
    pyspark.sql.DataFrame
        Naive timestamps are ``timestamp_ntz``; unsigned integers come in the next wider type. Spark prunes no columns here: name those that you need in
        ``payload_columns``.

    Raises
    ------
    InvalidInput, InvalidType
        As in `query_cube`; also for a store that other processes cannot open.
    Unsupported
        For a column whose type Spark does not have.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.api.cube import C, Cube, build_cube
    >>> from kartothek_cube.spark import query_cube_spark
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> sales = pd.DataFrame({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = build_cube(sales, cube, "hfs://store")
    >>> query_cube_spark(cube, "hfs://store", C("UNITS") > 3).collect()
    [Row(COUNTRY_CODE='FR', PRODUCT_ID=2, UNITS=4)]
    """
    with operation("query_cube_spark", options, cube=cube):
        factory = store_factory(store)
        arguments = QueryArguments(cube, conditions, datasets, dimension_columns, partition_by, payload_columns, as_of)
        plan = make_plan(arguments, open_store(factory))
        session = find_session(spark)
        wire = wire_schema(plan.schema, f"cube {cube.uuid_prefix!r}")
        width = cores(session, parallelism)
        if shares_seed_files(plan):
            return run_grouped(session, plan, factory, width, blocksize, lambda key, table: iter((table,)), wire, "query")
        units = plan.groups if plan.context.partition_by else plan.slices
        chunks = pack(units, task_count(len(units), width, blocksize, sampled_bytes(factory, units, Group.file_keys)))
        return run_packed(session, chunks, lambda groups: _loaded(groups, factory, wire), wire, job_of("query", plan, len(units)))


def _loaded(groups: Sequence[Group], store: StoreLike, wire: pa.Schema) -> Iterator[pa.RecordBatch]:
    loader = PartitionLoader(open_store(store))
    for group in groups:
        yield from to_spark(loader.load(group), wire)
