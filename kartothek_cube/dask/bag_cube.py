"""Cubes as bags of dask, under the names of ``kartothek.io.dask.bag_cube``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import dask.bag as db

from kartothek_cube.core.arrow.pandas import to_frame
from kartothek_cube.core.commit.change import OnConflict, check_on_conflict
from kartothek_cube.core.io.formats import FileFormat
from kartothek_cube.core.metadata.commit_log import parse_txn
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.stores.open import open_instrumented, store_factory
from kartothek_cube.core.stores.shipping import Opener
from kartothek_cube.cube.cube import Cube, require_cube
from kartothek_cube.cube.execute.load import PartitionLoader, sorted_by_cell
from kartothek_cube.cube.members import cube_and_store, dataset_ids, load_cube
from kartothek_cube.cube.query.intention import QueryArguments
from kartothek_cube.cube.query.plan import Group, QueryPlan
from kartothek_cube.cube.query.planning import make_plan
from kartothek_cube.cube.verbs.cells import delete_cube, plan_cube_deletion
from kartothek_cube.cube.verbs.copy import check_other_store, copy_cube
from kartothek_cube.cube.verbs.maintain import cleanup_cube, collect_stats
from kartothek_cube.cube.write.plan import (
    check_arguments,
    check_extension,
    materialize,
    plan_build,
    plan_extend,
    plan_update,
)
from kartothek_cube.dask.bag import check_bag
from kartothek_cube.dask.read import DtypeBackend, arrow_frame, check_backend
from kartothek_cube.dask.stage import CubeTarget, commit_blocks, stage_element
from kartothek_cube.dask.tasks import check_blocksize, constant, run_verb, task
from kartothek_cube.errors import AlreadyExists, InvalidInput, InvalidType
from kartothek_cube.typing import (
    AsOf,
    Columns,
    CubeState,
    IntoConditions,
    IntoDatasets,
    IntoTxn,
    StoreLike,
    UserMetadata,
)

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from dask.delayed import Delayed

__all__ = [
    "append_to_cube_from_bag",
    "build_cube_from_bag",
    "cleanup_cube_bag",
    "collect_stats_bag",
    "copy_cube_bag",
    "delete_cube_bag",
    "extend_cube_from_bag",
    "query_cube_bag",
    "update_cube_from_bag",
]


# --- the begin of a write, shared with frames of dask ---------------------------------------------


def begin_build(
    verb: str,
    cube: Cube,
    store: StoreLike,
    names: Iterable[str] | None,
    metadata: object,
    overwrite: bool,
    partition_on: object,
    serializer: FileFormat | None,
    on_conflict: object,
    txn: object,
) -> CubeTarget:
    """Begin to make a cube."""
    ids, keys = _ids([require_cube(cube).seed_dataset] if names is None else names), materialize(partition_on)
    check_arguments(cube, ids, metadata, keys)
    if cube.seed_dataset not in ids:
        raise InvalidInput(f'Seed data ("{cube.seed_dataset}") is missing. There are {", ".join(ids)}.')
    named = _named(metadata, overwrite, keys, serializer, on_conflict, txn)
    target = CubeTarget.begin(verb, cube, store, ids, partial(plan_build, cube, **named), builds=True)
    left = sorted(target.existing.keys() - set(ids))
    if left:
        raise InvalidInput(
            "The cube has datasets that would not be overwritten (partial overwrite), this is not allowed: "
            f"{', '.join(left)}. Give data for them, too, or delete them first (delete_cube)."
        )
    _check_absent(target, overwrite)
    return target


def begin_extend(
    verb: str,
    cube: Cube | str,
    store: StoreLike,
    names: Iterable[str] | None,
    metadata: object,
    overwrite: bool,
    partition_on: object,
    serializer: FileFormat | None,
    on_conflict: object,
    txn: object,
) -> CubeTarget:
    """Begin to add datasets to a cube."""
    ids, keys = _ids(names), materialize(partition_on)
    cube, _ = cube_and_store(cube, store)
    check_extension(cube, ids, metadata, keys)
    named = _named(metadata, overwrite, keys, serializer, on_conflict, txn)
    target = CubeTarget.begin(verb, cube, store, ids, partial(plan_extend, cube, **named))
    _check_absent(target, overwrite)
    return target


def begin_update(
    verb: str,
    cube: Cube | str,
    store: StoreLike,
    conditions: object,
    names: Iterable[str] | None,
    metadata: object,
    serializer: FileFormat | None,
    on_conflict: object,
    txn: object,
) -> CubeTarget:
    """Begin to remove partitions and add rows."""
    ids = _ids(() if names is None else names)
    cube, _ = cube_and_store(cube, store)
    rule, number = check_on_conflict(on_conflict), parse_txn(txn)
    named = {
        "remove_conditions": materialize(conditions),
        "names": ids,
        "metadata": metadata,
        "serializer": serializer,
        "on_conflict": rule,
        "txn": number,
    }
    target = CubeTarget.begin(verb, cube, store, ids, partial(plan_update, cube, **named), adds=True)
    target.plan({}, target.existing, more=True)  # what is wrong with the arguments shows now
    return target


def _ids(names: Iterable[str] | None) -> list[str]:
    if names is None:
        raise InvalidType("ktk_cube_dataset_ids is not optional: name the datasets that the rows may be of.")
    if isinstance(names, (str, bytes)):
        raise InvalidType(f"ktk_cube_dataset_ids is a list of the ids of datasets, not the text {names!r}.")
    return list(dict.fromkeys(str(name) for name in names))


def _named(
    metadata: object, overwrite: bool, keys: object, serializer: object, on_conflict: object, txn: object
) -> dict[str, Any]:
    return {
        "metadata": metadata,
        "overwrite": overwrite,
        "partition_on": keys,
        "serializer": serializer,
        "on_conflict": check_on_conflict(on_conflict),
        "txn": parse_txn(txn),
    }


def _check_absent(target: CubeTarget, overwrite: bool) -> None:
    present = sorted(target.cube.ktk_dataset_uuid(i) for i in target.names & target.existing.keys())
    if present and not overwrite:
        raise AlreadyExists(
            f"Dataset `{', '.join(present)}` already exists and overwrite is not permitted! "
            "Say overwrite=True to replace it, or call append_to_cube_from_bag to add rows."
        )


def _written(target: CubeTarget, bag: db.Bag) -> db.Bag:
    """A bag with one entry: the result of the commit."""
    shared = constant(target)
    staged = [task("stage", stage_part, shared, part) for part in bag.to_delayed()]
    return db.from_delayed([task("commit", commit_parts, shared, staged)])


def stage_part(target: CubeTarget, elements: Iterable[Any]) -> list[Any]:
    """In a task: one element after the other, each released before the next."""
    return [stage_element(target, element) for element in elements]


def commit_parts(target: CubeTarget, parts: Sequence[Sequence[Any]]) -> list[Any]:
    return [commit_blocks(target, list(chain.from_iterable(parts)))]


# --- writes ---------------------------------------------------------------------------------------


def build_cube_from_bag(
    data: db.Bag,
    cube: Cube,
    store: StoreLike,
    ktk_cube_dataset_ids: Iterable[str] | None = None,
    metadata: Mapping[str, UserMetadata] | None = None,
    overwrite: bool = False,
    partition_on: Mapping[str, Columns] | None = None,
    df_serializer: FileFormat | None = None,
    *,
    on_conflict: OnConflict = "raise",
    txn: IntoTxn | None = None,
    options: Overrides | None = None,
) -> db.Bag:
    """Create a cube from a bag, lazily.

    The call checks the arguments. Tasks check rows and stage files, and a last task publishes all
    datasets at once. Tasks that dask runs again leave files for garbage collection and no
    duplicates. The same lazy value writes once, however often it is computed.

    Parameters
    ----------
    data : dask.bag.Bag
        Entries are frames of pandas or other blocks of rows (the seed), dicts dataset id → frame,
        or None.
    cube, store, metadata, overwrite, partition_on, df_serializer, on_conflict
        As in `kartothek_cube.api.cube.build_cube`. Workers open the same store, so other processes
        must see it.
    ktk_cube_dataset_ids : list of str, optional
        The datasets that may come, by default the seed.
    txn : tuple of str and int, optional
        As in `kartothek_cube.dask.dataframe.update_dataset_from_ddf`.
    options : optional
        From `kartothek_cube.options`, for the call and its tasks.

    Returns
    -------
    dask.bag.Bag
        With one entry: dataset id → `DatasetMetadata`.

    Raises
    ------
    InvalidInput, InvalidType, AlreadyExists
        As in `build_cube`: for arguments by the call, for rows by the computation. Cells that occur
        twice are found across entries, too.
    MultiTableCommitAborted, CommitConflict
        As in `build_cube`, by the computation. Nothing is visible then.

    Examples
    --------
    >>> import dask.bag as db
    >>> import pandas as pd
    >>> from kartothek_cube import Cube
    >>> from kartothek_cube.dask.bag_cube import build_cube_from_bag
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> sales = [pd.DataFrame({"PRODUCT_ID": [i], "COUNTRY_CODE": ["DE"]}) for i in (1, 2)]
    >>> built = build_cube_from_bag(db.from_sequence(sales), cube, "hfs://cube_from_bag")
    >>> built.compute(scheduler="sync")
    [{'seed': DatasetMetadata(uuid='sales++seed', partitions=2, partition_keys=['COUNTRY_CODE'])}]
    """
    with operation("build_cube_from_bag", options, cube=cube):
        arguments = metadata, overwrite, partition_on, df_serializer, on_conflict, txn
        target = begin_build("build_cube_from_bag", cube, store, ktk_cube_dataset_ids, *arguments)
        return _written(target, check_bag(data, f"the cube {cube.uuid_prefix!r}"))


def extend_cube_from_bag(
    data: db.Bag,
    cube: Cube | str,
    store: StoreLike,
    ktk_cube_dataset_ids: Iterable[str],
    metadata: Mapping[str, UserMetadata] | None = None,
    overwrite: bool = False,
    partition_on: Mapping[str, Columns] | None = None,
    df_serializer: FileFormat | None = None,
    *,
    on_conflict: OnConflict = "raise",
    txn: IntoTxn | None = None,
    options: Overrides | None = None,
) -> db.Bag:
    """Add datasets to a cube from a bag, lazily; otherwise as `build_cube_from_bag`.

    Rules and errors are those of `kartothek_cube.api.cube.extend_cube`.

    Examples
    --------
    >>> import dask.bag as db
    >>> import pandas as pd
    >>> from kartothek_cube import Cube, build_cube
    >>> from kartothek_cube.dask.bag_cube import extend_cube_from_bag
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> sales = pd.DataFrame({"PRODUCT_ID": [1], "COUNTRY_CODE": ["DE"]})
    >>> _ = build_cube(sales, cube, "hfs://stock_from_bag")
    >>> stock = db.from_sequence([{"stock": sales.assign(STOCK=[7])}])
    >>> extended = extend_cube_from_bag(stock, cube, "hfs://stock_from_bag", ["stock"])
    >>> list(extended.compute(scheduler="sync")[0])
    ['stock']
    """
    with operation("extend_cube_from_bag", options, cube=cube):
        arguments = metadata, overwrite, partition_on, df_serializer, on_conflict, txn
        target = begin_extend("extend_cube_from_bag", cube, store, ktk_cube_dataset_ids, *arguments)
        return _written(target, check_bag(data, f"the cube {target.cube.uuid_prefix!r}"))


def append_to_cube_from_bag(
    data: db.Bag,
    cube: Cube | str,
    store: StoreLike,
    ktk_cube_dataset_ids: Iterable[str] | None,
    metadata: Mapping[str, UserMetadata] | None = None,
    df_serializer: FileFormat | None = None,
    *,
    txn: IntoTxn | None = None,
    options: Overrides | None = None,
) -> db.Bag:
    """Add rows to datasets of a cube from a bag, lazily; otherwise as `build_cube_from_bag`.

    A dataset that is named and gets no rows has its metadata merged. Rules and errors are those of
    `kartothek_cube.api.cube.append_to_cube`.

    Examples
    --------
    >>> import dask.bag as db
    >>> import pandas as pd
    >>> from kartothek_cube import Cube, build_cube, query_cube
    >>> from kartothek_cube.dask.bag_cube import append_to_cube_from_bag
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> sales = pd.DataFrame({"PRODUCT_ID": [1], "COUNTRY_CODE": ["DE"]})
    >>> _ = build_cube(sales, cube, "hfs://more_from_bag")
    >>> more = db.from_sequence([sales.assign(PRODUCT_ID=[2])])
    >>> appended = append_to_cube_from_bag(more, cube, "hfs://more_from_bag", ["seed"])
    >>> _ = appended.compute(scheduler="sync")
    >>> query_cube(cube, "hfs://more_from_bag")[0]["PRODUCT_ID"].tolist()
    [1, 2]
    """
    with operation("append_to_cube_from_bag", options, cube=cube):
        arguments = ktk_cube_dataset_ids, metadata, df_serializer, "raise", txn
        target = begin_update("append_to_cube_from_bag", cube, store, None, *arguments)
        return _written(target, check_bag(data, f"the cube {target.cube.uuid_prefix!r}"))


def update_cube_from_bag(
    data: db.Bag,
    cube: Cube | str,
    store: StoreLike,
    remove_conditions: IntoConditions,
    ktk_cube_dataset_ids: Iterable[str] | None,
    metadata: Mapping[str, UserMetadata] | None = None,
    df_serializer: FileFormat | None = None,
    *,
    on_conflict: OnConflict = "raise",
    txn: IntoTxn | None = None,
    options: Overrides | None = None,
) -> db.Bag:
    """Remove physical partitions and add rows from a bag, lazily, in one write to all datasets.

    Rules and errors are those of `kartothek_cube.api.cube.update_cube`; conditions are checked by
    the call. Otherwise as `build_cube_from_bag`.

    Examples
    --------
    >>> import dask.bag as db
    >>> import pandas as pd
    >>> from kartothek_cube import C, Cube, build_cube, query_cube
    >>> from kartothek_cube.dask.bag_cube import update_cube_from_bag
    >>> cube, store = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales"), "hfs://newer_from_bag"
    >>> sales = pd.DataFrame({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]})
    >>> _ = build_cube(sales, cube, store)
    >>> newer = db.from_sequence([sales[:1].assign(PRODUCT_ID=[3])])
    >>> updated = update_cube_from_bag(newer, cube, store, C("COUNTRY_CODE") == "DE", ["seed"])
    >>> _ = updated.compute(scheduler="sync")
    >>> query_cube(cube, store)[0]["PRODUCT_ID"].tolist()
    [2, 3]
    """
    with operation("update_cube_from_bag", options, cube=cube):
        arguments = ktk_cube_dataset_ids, metadata, df_serializer, on_conflict, txn
        target = begin_update("update_cube_from_bag", cube, store, remove_conditions, *arguments)
        return _written(target, check_bag(data, f"the cube {target.cube.uuid_prefix!r}"))


# --- queries --------------------------------------------------------------------------------------


def query_cube_bag(
    cube: Cube | str,
    store: StoreLike,
    conditions: IntoConditions = None,
    datasets: IntoDatasets = None,
    dimension_columns: Columns = None,
    partition_by: Columns = None,
    payload_columns: Columns = None,
    blocksize: int = 1,
    *,
    dtype_backend: DtypeBackend | None = None,
    as_of: CubeState | None = None,
    options: Overrides | None = None,
) -> db.Bag:
    """Query a cube and get a lazy bag of frames.

    The call plans the query and names exact files, so each computation sees the cube as it was
    then. A task loads ``blocksize`` groups; without ``partition_by`` partitions of the cube, which
    a last task puts together.

    Parameters
    ----------
    cube, store, conditions, datasets, dimension_columns, partition_by, payload_columns, as_of
        As in `kartothek_cube.api.cube.query_cube`. Workers open the same store, so other processes
        must see it.
    blocksize : int, default 1
        Groups in one task.
    dtype_backend : {"pyarrow"}, optional
        As in ``pandas.read_parquet``: the exact types of Arrow. By default those of `query_cube`.
    options : optional
        From `kartothek_cube.options`, for the call and its tasks.

    Returns
    -------
    dask.bag.Bag
        The frames of `query_cube`: with ``partition_by`` one a group that has rows, in order;
        without it one, or none if there are no rows.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import C, Cube, build_cube
    >>> from kartothek_cube.dask.bag_cube import query_cube_bag
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> sales = pd.DataFrame({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = build_cube(sales, cube, "hfs://bag_query")
    >>> bag = query_cube_bag(cube, "hfs://bag_query", C("UNITS") > 3)
    >>> bag.compute(scheduler="sync")[0]["PRODUCT_ID"].tolist()
    [2]
    """
    with operation("query_cube_bag", options, cube=cube):
        size, to_frame = check_blocksize(blocksize), frame_maker(dtype_backend)
        plan, opener = plan_query(
            cube, store, conditions, datasets, dimension_columns, partition_by, payload_columns, as_of
        )
        if plan.context.partition_by:
            groups = [plan.groups[i : i + size] for i in range(0, len(plan.groups), size)]
            parts = [task("query", frames, to_frame, opener, constant(group)) for group in groups]
            return db.from_delayed(parts or [task("empty", list)])
        return db.from_delayed(
            [task("concat", frames_of_all, to_frame, plan_schema(plan), load_slices(plan, opener, size))]
        )


def plan_query(
    cube: Cube | str,
    store: StoreLike,
    conditions: IntoConditions,
    datasets: IntoDatasets,
    dimension_columns: Columns,
    partition_by: Columns,
    payload_columns: Columns,
    as_of: CubeState | None,
) -> tuple[QueryPlan, Opener]:
    """The plan of a query, and the opener of its store."""
    opener = store_factory(store)
    cube, opened = cube_and_store(cube, opener, as_of)
    query = conditions, datasets, dimension_columns, partition_by, payload_columns
    return make_plan(QueryArguments(cube, *query, as_of), opened), opener


def load_slices(plan: QueryPlan, opener: Opener, size: int) -> list[Delayed]:
    """Lazy tables of the partitions of a query."""
    slices = [plan.slices[i : i + size] for i in range(0, len(plan.slices), size)]
    return [task("query", load_tables, opener, constant(part)) for part in slices]


def plan_schema(plan: QueryPlan) -> Delayed:
    """Columns of a query, and those by which its rows are sorted."""
    return constant((plan.schema, plan.context))


def load_tables(opener: Opener, groups: Sequence[Group]) -> list[pa.Table]:
    """In a task: the rows of some groups."""
    return list(map(PartitionLoader(open_instrumented(opener)).load, groups))


Frames: TypeAlias = "Callable[[pa.Table], pd.DataFrame]"


def frame_maker(backend: object) -> Frames:
    """How tables become frames."""
    check_backend(backend)
    return to_frame if backend is None else arrow_frame


def frames(to_frame: Frames, opener: Opener, groups: Sequence[Group]) -> list[pd.DataFrame]:
    return [to_frame(table) for table in load_tables(opener, groups) if table.num_rows]


def all_rows(described: tuple[pa.Schema, Any], parts: Sequence[Sequence[pa.Table]]) -> pa.Table:
    """In a task: the rows of all partitions, in the order of `query_cube`."""
    schema, context = described
    tables = [table for part in parts for table in part]
    return sorted_by_cell(context, tables) if tables else schema.empty_table()


def frames_of_all(
    to_frame: Frames, described: tuple[pa.Schema, Any], parts: Sequence[Sequence[pa.Table]]
) -> list[pd.DataFrame]:
    table = all_rows(described, parts)
    return [to_frame(table)] if table.num_rows else []


# --- maintenance ----------------------------------------------------------------------------------


def _lazy(verb: Callable[..., Any], stores: Mapping[str, Opener], named: Mapping[str, Any]) -> db.Bag:
    """A bag with one entry: the result of a verb, which runs in a task and shares its work."""
    return db.from_delayed([task(verb.__name__, listed, task(verb.__name__, run_verb, verb, stores, named))])


def listed(entry: object) -> list[object]:
    """In a task: the entries of a bag of one."""
    return [entry]


def delete_cube_bag(
    cube: Cube | str,
    store: StoreLike,
    blocksize: int = 100,
    datasets: IntoDatasets = None,
    *,
    options: Overrides | None = None,
) -> db.Bag:
    """Delete a cube, or some of its datasets, lazily.

    ``blocksize``, the files of a task in kartothek, is checked; the size of tasks follows from
    their number. Otherwise as `kartothek_cube.api.cube.delete_cube`.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import Cube, build_cube, list_cubes
    >>> from kartothek_cube.dask.bag_cube import delete_cube_bag
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> _ = build_cube(pd.DataFrame({"PRODUCT_ID": [1], "COUNTRY_CODE": ["DE"]}), cube, "hfs://bag_gone")
    >>> delete_cube_bag(cube, "hfs://bag_gone").compute(scheduler="sync")
    [None]
    >>> list_cubes("hfs://bag_gone")
    []
    """
    with operation("delete_cube_bag", options, cube=cube):
        check_blocksize(blocksize)
        opener = store_factory(store)
        cube, opened = cube_and_store(cube, opener)
        plan_cube_deletion(cube, opened, datasets)
        return _lazy(delete_cube, {"store": opener}, {"cube": cube, "datasets": datasets})


def copy_cube_bag(
    cube: Cube | str,
    src_store: StoreLike,
    tgt_store: StoreLike,
    blocksize: int = 100,
    overwrite: bool = False,
    datasets: IntoDatasets = None,
    *,
    options: Overrides | None = None,
) -> db.Bag:
    """Copy a cube, or some of its datasets, to another store, lazily.

    The document of the seed goes last. The call checks that the target may be written.
    ``blocksize`` is as in `delete_cube_bag`. Otherwise as `kartothek_cube.api.cube.copy_cube`.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import Cube, build_cube, list_cubes
    >>> from kartothek_cube.dask.bag_cube import copy_cube_bag
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> _ = build_cube(pd.DataFrame({"PRODUCT_ID": [1], "COUNTRY_CODE": ["DE"]}), cube, "hfs://bag_from")
    >>> _ = copy_cube_bag(cube, "hfs://bag_from", "hfs://bag_to").compute(scheduler="sync")
    >>> list_cubes("hfs://bag_to")
    ['sales']
    """
    with operation("copy_cube_bag", options, cube=cube):
        check_blocksize(blocksize)
        source, target = store_factory(src_store), store_factory(tgt_store)
        cube, opened = cube_and_store(cube, source)
        check_other_store(cube, opened, open_instrumented(target))
        names = load_cube(cube, opened, None if datasets is None else list(datasets)).keys()
        present = sorted(dataset_ids(cube.uuid_prefix, open_instrumented(target)) & names)
        if present and not overwrite:
            raise AlreadyExists(
                f'Dataset "{cube.ktk_dataset_uuid(present[0])}" exists in target store but overwrite was set to False'
            )
        stores = {"src_store": source, "tgt_store": target}
        return _lazy(copy_cube, stores, {"cube": cube, "overwrite": overwrite, "datasets": datasets})


def collect_stats_bag(
    cube: Cube | str,
    store: StoreLike,
    datasets: IntoDatasets = None,
    blocksize: int = 100,
    *,
    as_of: AsOf | None = None,
    options: Overrides | None = None,
) -> db.Bag:
    """Partitions, files, bytes and rows of each dataset of a cube, as the one entry of a lazy bag.

    ``blocksize`` is as in `delete_cube_bag`. Otherwise as
    `kartothek_cube.api.cube.collect_stats`.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import Cube, build_cube
    >>> from kartothek_cube.dask.bag_cube import collect_stats_bag
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> _ = build_cube(pd.DataFrame({"PRODUCT_ID": [1], "COUNTRY_CODE": ["DE"]}), cube, "hfs://bag_stats")
    >>> collect_stats_bag(cube, "hfs://bag_stats").compute(scheduler="sync")[0]["seed"]["rows"]
    1
    """
    with operation("collect_stats_bag", options, cube=cube):
        check_blocksize(blocksize)
        opener = store_factory(store)
        cube, opened = cube_and_store(cube, opener, as_of)
        load_cube(cube, opened, None if datasets is None else list(datasets), as_of=as_of)
        named = {"cube": cube, "datasets": datasets, "as_of": as_of}
        return _lazy(collect_stats, {"store": opener}, named)


def cleanup_cube_bag(
    cube: Cube | str, store: StoreLike, blocksize: int = 100, *, options: Overrides | None = None
) -> db.Bag:
    """Remove unreferenced files of a cube that are old enough, lazily; the entry is a report.

    ``blocksize`` is as in `delete_cube_bag`. Otherwise as `kartothek_cube.api.cube.cleanup_cube`.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import Cube, build_cube
    >>> from kartothek_cube.dask.bag_cube import cleanup_cube_bag
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> _ = build_cube(pd.DataFrame({"PRODUCT_ID": [1], "COUNTRY_CODE": ["DE"]}), cube, "hfs://bag_swept")
    >>> cleanup_cube_bag(cube, "hfs://bag_swept").compute(scheduler="sync")
    [GarbageReport(removed 0 files of 0 bytes; 0 files of 0 bytes wait)]
    """
    with operation("cleanup_cube_bag", options, cube=cube):
        check_blocksize(blocksize)
        opener = store_factory(store)
        cube, _ = cube_and_store(cube, opener)
        return _lazy(cleanup_cube, {"store": opener}, {"cube": cube})
