"""Cubes as frames of dask, under the names of ``kartothek.io.dask.dataframe_cube``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dask
import dask.dataframe as dd
from msgspec.structs import replace

from kartothek_cube.core.arrow.pandas import to_table
from kartothek_cube.core.commit.change import OnConflict
from kartothek_cube.core.io.formats import FileFormat
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.stores.shipping import Opener
from kartothek_cube.cube.cube import Cube, require_cube
from kartothek_cube.cube.query.plan import Group, GroupContext
from kartothek_cube.cube.write.plan import CubeWrite
from kartothek_cube.dask.bag_cube import (
    Frames,
    all_rows,
    begin_build,
    begin_extend,
    begin_update,
    frame_maker,
    load_slices,
    load_tables,
    plan_query,
    plan_schema,
)
from kartothek_cube.dask.read import DtypeBackend
from kartothek_cube.dask.stage import (
    Buckets,
    CubeTarget,
    StagedBlock,
    buckets_on_record,
    check_buckets,
    check_ddf,
    commit_blocks,
    recorded,
    schema_of,
    shuffled,
    stage_blocks,
    stage_shuffled_block,
)
from kartothek_cube.dask.tasks import constant, task
from kartothek_cube.errors import InvalidType
from kartothek_cube.typing import Columns, CubeState, IntoConditions, IntoDatasets, IntoTxn, StoreLike, UserMetadata

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from dask.delayed import Delayed

__all__ = [
    "append_to_cube_from_dataframe",
    "build_cube_from_dataframe",
    "extend_cube_from_dataframe",
    "query_cube_dataframe",
]


# --- writes ---------------------------------------------------------------------------------------


def build_cube_from_dataframe(
    data: dd.DataFrame | Mapping[str, dd.DataFrame],
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
    txn: IntoTxn | None = None,
    options: Overrides | None = None,
) -> Delayed:
    """Create a cube from frames of dask, lazily.

    The call checks arguments and columns. Otherwise tasks and the one commit are as in
    `kartothek_cube.dask.bag_cube.build_cube_from_bag`.

    Parameters
    ----------
    data : dask.dataframe.DataFrame or dict
        A frame of dask for the seed, or a dict dataset id → frame of dask.
    cube, store, metadata, overwrite, partition_on, df_serializer, on_conflict, txn, options
        As in `kartothek_cube.dask.bag_cube.build_cube_from_bag`.
    shuffle : bool, default False
        Bring the rows of each combination of partition values and bucket into one task: exactly one
        file for each. Without ``shuffle`` each partition of a frame writes a file for each
        combination of partition values that it has.
    num_buckets : int, default 1
        With ``shuffle``: files for the rows of a combination of partition values, by a hash.
    bucket_by : str or list of str, optional
        With ``shuffle``: the hashed columns, by default the dimension columns.

    Returns
    -------
    dask.delayed.Delayed
        Computes to a dict dataset id → `DatasetMetadata`.

    Raises
    ------
    InvalidInput, InvalidType, AlreadyExists, MultiTableCommitAborted, CommitConflict
        As in `kartothek_cube.dask.bag_cube.build_cube_from_bag`.

    Examples
    --------
    >>> import dask.dataframe as dd
    >>> import pandas as pd
    >>> from kartothek_cube import Cube
    >>> from kartothek_cube.dask.dataframe_cube import build_cube_from_dataframe
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> sales = pd.DataFrame({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "DE"]})
    >>> frame = dd.from_pandas(sales, npartitions=2)
    >>> build_cube_from_dataframe(frame, cube, "hfs://cube_from_ddf", shuffle=True).compute()
    {'seed': DatasetMetadata(uuid='sales++seed', partitions=1, partition_keys=['COUNTRY_CODE'])}
    """
    with operation("build_cube_from_dataframe", options, cube=cube):
        frames = _frames(data, require_cube(cube))
        arguments = metadata, overwrite, partition_on, df_serializer, on_conflict, txn
        target = begin_build("build_cube_from_dataframe", cube, store, frames, *arguments)
        write = _check(target, frames)
        if not shuffle:
            return _written(target, frames)
        plans = {i: _buckets(write, i, frame, num_buckets, bucket_by) for i, frame in frames.items()}
        return _shuffled(target, frames, write, plans)


def extend_cube_from_dataframe(
    data: dd.DataFrame | Mapping[str, dd.DataFrame],
    cube: Cube | str,
    store: StoreLike,
    metadata: Mapping[str, UserMetadata] | None = None,
    overwrite: bool = False,
    partition_on: Mapping[str, Columns] | None = None,
    df_serializer: FileFormat | None = None,
    *,
    on_conflict: OnConflict = "raise",
    txn: IntoTxn | None = None,
    options: Overrides | None = None,
) -> Delayed:
    """Add datasets to a cube from frames of dask, lazily; as `build_cube_from_dataframe`.

    Rules and errors are those of `kartothek_cube.api.cube.extend_cube`.

    Examples
    --------
    >>> import dask.dataframe as dd
    >>> import pandas as pd
    >>> from kartothek_cube import Cube, build_cube
    >>> from kartothek_cube.dask.dataframe_cube import extend_cube_from_dataframe
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> sales = pd.DataFrame({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "DE"]})
    >>> _ = build_cube(sales, cube, "hfs://stock_from_ddf")
    >>> stock = {"stock": dd.from_pandas(sales.assign(STOCK=[7, 8]), npartitions=1)}
    >>> list(extend_cube_from_dataframe(stock, cube, "hfs://stock_from_ddf").compute())
    ['stock']
    """
    with operation("extend_cube_from_dataframe", options, cube=cube):
        frames = _frames(data, cube)
        arguments = metadata, overwrite, partition_on, df_serializer, on_conflict, txn
        target = begin_extend("extend_cube_from_dataframe", cube, store, frames, *arguments)
        _check(target, frames)
        return _written(target, frames)


def append_to_cube_from_dataframe(
    data: dd.DataFrame | Mapping[str, dd.DataFrame],
    cube: Cube | str,
    store: StoreLike,
    metadata: Mapping[str, UserMetadata] | None = None,
    df_serializer: FileFormat | None = None,
    *,
    txn: IntoTxn | None = None,
    options: Overrides | None = None,
) -> Delayed:
    """Add rows to datasets of a cube from frames of dask, lazily; as `build_cube_from_dataframe`.

    Rules and errors are those of `kartothek_cube.api.cube.append_to_cube`.

    Examples
    --------
    >>> import dask.dataframe as dd
    >>> import pandas as pd
    >>> from kartothek_cube import Cube, build_cube, query_cube
    >>> from kartothek_cube.dask.dataframe_cube import append_to_cube_from_dataframe
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> sales = pd.DataFrame({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "DE"]})
    >>> _ = build_cube(sales, cube, "hfs://more_from_ddf")
    >>> more = dd.from_pandas(sales.assign(PRODUCT_ID=[3, 4]), npartitions=1)
    >>> _ = append_to_cube_from_dataframe(more, cube, "hfs://more_from_ddf").compute()
    >>> query_cube(cube, "hfs://more_from_ddf")[0]["PRODUCT_ID"].tolist()
    [1, 2, 3, 4]
    """
    with operation("append_to_cube_from_dataframe", options, cube=cube):
        frames = _frames(data, cube)
        verb = "append_to_cube_from_dataframe"
        target = begin_update(verb, cube, store, None, frames, metadata, df_serializer, "raise", txn)
        _check(target, frames)
        return _written(target, frames)


def _frames(data: object, cube: Cube | str) -> dict[str, dd.DataFrame]:
    if isinstance(data, (list, tuple)):
        raise InvalidType("Give a frame of dask, or a dict dataset id → frame of dask; lists are not supported.")
    seed = cube.seed_dataset if isinstance(cube, Cube) else "seed"
    given = data if isinstance(data, Mapping) else {seed: data}
    return {str(name): check_ddf(frame, name) for name, frame in given.items()}


def _check(target: CubeTarget, frames: Mapping[str, dd.DataFrame]) -> CubeWrite:
    """The plan of the write, from the columns of the frames."""
    known = {i: {f.name: f.type for f in snapshot.schema} for i, snapshot in target.existing.items()}
    schemas = {i: schema_of(frame, known.get(i), i) for i, frame in frames.items()}
    return target.plan(schemas, target.existing)


def _written(target: CubeTarget, frames: Mapping[str, dd.DataFrame]) -> Delayed:
    shared = constant(target)
    staged = [
        task("stage", stage_frame_of, shared, i, part) for i, frame in frames.items() for part in frame.to_delayed()
    ]
    return task("commit", commit_blocks, shared, staged)


def stage_frame_of(target: CubeTarget, name: str, frame: pd.DataFrame) -> StagedBlock:
    return stage_blocks(target, [(name, to_table(frame, name))])


def _buckets(write: CubeWrite, name: str, frame: dd.DataFrame, num_buckets: object, bucket_by: object) -> Buckets:
    member = write.datasets[name]
    columns = member.schema.names
    number, by = check_buckets(*buckets_on_record(num_buckets, bucket_by, member.layout.within(columns)), columns, name)
    return Buckets(number, tuple(by) or member.dimensions, frame.npartitions)


def _shuffled(
    target: CubeTarget, frames: Mapping[str, dd.DataFrame], write: CubeWrite, plans: Mapping[str, Buckets]
) -> Delayed:
    shared = constant(target)
    staged = []
    for name, frame in frames.items():
        keys = write.datasets[name].request.partition_on
        messages = shuffled(frame, name, keys, (), plans[name])
        staged += [task("stage", stage_shuffled_block, shared, name, part) for part in messages]
    numbers = {i: (b.number, b.by) for i, b in plans.items()}
    return task("commit", commit_with_buckets, shared, numbers, staged)


def commit_with_buckets(target: CubeTarget, buckets: Mapping[str, Any], staged: Sequence[StagedBlock]) -> Any:
    """In the last task: the commit, with the buckets on record."""
    plan = target.plan

    def planned(schemas: object, existing: object, *, more: bool = False) -> CubeWrite:
        write = plan(schemas, existing, more=more)
        members = {i: replace(w, layout=recorded(w.layout, *buckets[i])) for i, w in write.datasets.items()}
        return replace(write, datasets=members)

    return commit_blocks(dataclasses.replace(target, plan=planned), staged)


# --- queries --------------------------------------------------------------------------------------


def query_cube_dataframe(
    cube: Cube | str,
    store: StoreLike,
    conditions: IntoConditions = None,
    datasets: IntoDatasets = None,
    dimension_columns: Columns = None,
    partition_by: Columns = None,
    payload_columns: Columns = None,
    *,
    dtype_backend: DtypeBackend | None = None,
    as_of: CubeState | None = None,
    options: Overrides | None = None,
) -> dd.DataFrame:
    """Query a cube and get a frame of dask.

    With ``partition_by`` one partition a group, in order, perhaps without rows; without it one
    partition. Arguments, rows and order are those of
    `kartothek_cube.dask.bag_cube.query_cube_bag`.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import Cube, build_cube
    >>> from kartothek_cube.dask.dataframe_cube import query_cube_dataframe
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales", index_columns=["BRAND"])
    >>> sales = pd.DataFrame({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]})
    >>> _ = build_cube(sales.assign(BRAND=["A", "B"]), cube, "hfs://ddf_query")
    >>> frame = query_cube_dataframe(cube, "hfs://ddf_query", partition_by="BRAND")
    >>> frame.npartitions, len(frame)
    (2, 2)
    """
    with operation("query_cube_dataframe", options, cube=cube):
        query = conditions, datasets, dimension_columns, partition_by, payload_columns, as_of
        (plan, opener), to_frame = plan_query(cube, store, *query), frame_maker(dtype_backend)
        meta = to_frame(plan.schema.empty_table())
        if plan.context.partition_by and plan.groups:
            parts = [task("query", group_frame, to_frame, opener, constant(group)) for group in plan.groups]
        else:
            parts = [task("concat", whole_frame, to_frame, plan_schema(plan), load_slices(plan, opener, 1))]
        # dask would turn columns of objects, e.g. of dates, into text.
        with dask.config.set({"dataframe.convert-string": False}):
            return dd.from_delayed(parts, meta=meta, verify_meta=False)


def group_frame(to_frame: Frames, opener: Opener, group: Group) -> pd.DataFrame:
    return to_frame(load_tables(opener, [group])[0])


def whole_frame(to_frame: Frames, described: tuple[pa.Schema, GroupContext], parts: Sequence[Any]) -> pd.DataFrame:
    return to_frame(all_rows(described, parts))
