"""Querying a cube into a lazy Spark data frame."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.stores.open import open_store, store_factory
from kartothek_cube.cube.cube import Cube
from kartothek_cube.cube.execute.load import PartitionLoader
from kartothek_cube.cube.execute.run import shares_seed_files
from kartothek_cube.cube.query.intention import QueryArguments
from kartothek_cube.cube.query.plan import Group
from kartothek_cube.spark.read.shuffle import job_of, run_grouped
from kartothek_cube.spark.session import cores, find_session, session_by_keyword
from kartothek_cube.spark.tasks import pack, run_packed, sampled_bytes, sizes_of_groups, task_count
from kartothek_cube.spark.types import to_spark, wire_schema
from kartothek_cube.typing import Columns, CubeState, IntoConditions, IntoDatasets, StoreLike

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["query_cube_spark"]


@session_by_keyword
def query_cube_spark(
    cube: Cube | str,
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
    as_of: CubeState | None = None,
    changed_since: CubeState | None = None,
    native: bool = False,
    options: Overrides | None = None,
) -> DataFrame:
    """Query a cube and get a lazy Spark data frame.

    The call checks and plans the query on the driver. The plan names exact files, so every action
    on the data frame sees the cube as it was then. Tasks read and join the files, without a shuffle
    unless ``partition_by`` asks for more groups than there are files.

    Parameters
    ----------
    cube, store, conditions, datasets, dimension_columns, payload_columns
        As in `kartothek_cube.api.cube.query_cube`. The executors open the same store, so other
        processes must see it.
    partition_by : str or iterable of str, optional
        Indexed columns: all rows of one combination of their values come from one task, one after
        the other. By default this holds for the rows of one partition of the cube, and the result
        has no other order.
    blocksize : int, optional
        Groups in one task. By default about four tasks a core share them, or fewer if the files are
        known to be small.
    spark : SparkSession, optional
        By default the active session; classic or Connect.
    parallelism : int, optional
        How many tasks run at once; by default the parallelism of the session.
    as_of, changed_since : optional
        As in `query_cube`.
    native : bool
        Let Spark's own Parquet reader read the files, as in `read_dataset_as_spark`. For queries
        that one dataset answers without join, and whose files do not override each other.
    options : Overrides, optional
        From `kartothek_cube.options`, for planning and for the tasks.

    Returns
    -------
    pyspark.sql.DataFrame
        Naive timestamps are ``timestamp_ntz``; unsigned integers get the next wider type. Spark
        does not prune columns here: name those that you need in ``payload_columns``.

    Raises
    ------
    InvalidInput, InvalidType
        As in `query_cube`, and for a store that other processes cannot open.
    Unsupported
        For a column whose type Spark lacks; with ``native`` also for what Spark's reader cannot
        answer: the message says why, and what to do.

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
        # Only the driver plans: tasks import this module, too.
        from kartothek_cube.cube.members import cube_and_store
        from kartothek_cube.cube.query.planning import load_members_of, make_plan, plan_members
        from kartothek_cube.spark.read.native import is_native, native_files, native_frame

        cube, opened = cube_and_store(cube, store, as_of)
        factory = store_factory(store)
        arguments = QueryArguments(
            cube, conditions, datasets, dimension_columns, partition_by, payload_columns, as_of, changed_since
        )
        cutting = {"partition_by": partition_by, "changed_since": changed_since}
        if is_native(native, {**cutting, "blocksize": blocksize, "parallelism": parallelism}):
            members = load_members_of(arguments, opened)
            answer = plan_members(arguments, members, opened)
            wire = wire_schema(answer.schema, f"cube {cube.uuid_prefix!r}")
            files = native_files(opened, answer, members[cube.seed_dataset])
            return native_frame(find_session(spark), opened, files, wire)
        members = load_members_of(arguments, opened) if changed_since is None else {}
        plan = plan_members(arguments, members, opened) if members else make_plan(arguments, opened)
        session = find_session(spark)
        wire = wire_schema(plan.schema, f"cube {cube.uuid_prefix!r}")
        width = cores(session, parallelism)
        if shares_seed_files(plan):

            def rows(_key: object, table: pa.Table) -> Iterator[pa.Table]:
                yield table

            return run_grouped(session, plan, factory, width, blocksize, rows, wire, "query")
        units = plan.groups if plan.context.partition_by else plan.slices
        read = [members[role.id] for role in plan.context.roles if role.id in members]
        sizes = sizes_of_groups(opened, read, units) if blocksize is None else None
        nbytes = sampled_bytes(factory, units, Group.file_keys) if sizes is None else sum(sizes)
        chunks = pack(units, task_count(len(units), width, blocksize, nbytes), sizes)
        job = job_of("query", plan, len(units))
        return run_packed(session, chunks, lambda groups: load_groups(groups, factory, wire), wire, job)


def load_groups(groups: Sequence[Group], store: StoreLike, wire: pa.Schema) -> Iterator[pa.RecordBatch]:
    """In a task: the rows of some groups, in Spark's types."""
    loader = PartitionLoader(open_store(store))
    for group in groups:
        yield from to_spark(loader.load(group), wire)
