"""Queries of cubes and reads of datasets as lazy data frames.

In order:

- groups that share files: each file is read once
- one table of a dataset
- user functions on every group of a query
- a cube
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from kartothek_cube.core.arguments import as_list, check_flag, pluralize
from kartothek_cube.core.arrow.keys import (
    AMPLIFICATION_LIMIT,
    IntArray,
    group_numbers,
    group_starts,
    pack_one,
)
from kartothek_cube.core.dataset.reference import dataset_ref
from kartothek_cube.core.expressions.predicates import Predicates, parse_predicates
from kartothek_cube.core.io.reader import FileRequest
from kartothek_cube.core.metadata.naming import SINGLE_TABLE
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.scan.execute import GroupPlan, TableRead, make_group_plan, stream_tables
from kartothek_cube.core.scan.plan import (
    GroupArguments,
    ScanTask,
    check_table,
    checked_categoricals,
    make_file_plan,
    names_of,
)
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.stores.open import open_store, store_factory
from kartothek_cube.cube.cube import Cube
from kartothek_cube.cube.execute.load import PartitionLoader
from kartothek_cube.cube.execute.run import shares_seed_files
from kartothek_cube.cube.query.intention import QueryArguments
from kartothek_cube.cube.query.plan import Group, QueryPlan
from kartothek_cube.errors import InvalidInput, InvalidType, KartothekCubeError
from kartothek_cube.spark.session import cores, find_session, session_by_keyword, to_tasks
from kartothek_cube.spark.tasks import (
    Job,
    as_task,
    known_sizes,
    pack,
    run_packed,
    sampled_bytes,
    sizes_of_groups,
    task_count,
    unpack,
)
from kartothek_cube.spark.types import arrow_schema, spark_schema, to_spark, wire_schema
from kartothek_cube.typing import (
    AsOf,
    Columns,
    ColumnsByTable,
    CubeState,
    GroupFunction,
    GroupKey,
    IntoConditions,
    IntoDatasets,
    IntoPredicates,
    StoreLike,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from kartothek_cube.core.kartothek.dataset_metadata import DatasetFactory


Call = Callable[[dict[str, Any], pa.Table], Iterator[pa.Table]]

_NUMBER = "__kartothek_cube_group"
# Rows pass through the shuffle as Arrow messages. Spark would convert every value to a row and
# back, which costs more than everything else.
_MESSAGES = pa.schema([("task", pa.int32()), ("rows", pa.binary())])
_MESSAGE_BYTES = 4 * 2**20


def run_grouped(
    session: SparkSession,
    plan: QueryPlan,
    store: Store | Callable[[], Store],
    width: int,
    blocksize: int | None,
    call: Call,
    wire: pa.Schema,
    verb: str,
) -> DataFrame:
    """A lazy data frame of the results of ``call`` on each group of a query that has rows."""
    order = (*plan.context.dimension_columns, *plan.context.partition_columns)
    shuffle = ShufflePlan(plan.group_keys(), plan.schema, task_count(len(plan.groups), width, blocksize), order)
    chunks = pack(plan.slices, task_count(len(plan.slices), width))
    return run_regrouped(
        session,
        chunks,
        lambda slices: map(PartitionLoader(open_store(store)).load, slices),
        shuffle,
        call,
        wire,
        job_of(verb, plan, len(plan.groups)),
    )


def job_of(verb: str, plan: QueryPlan, units: int) -> Job:
    """The name of a step of a query in Spark's plans."""
    detail = pluralize(units, "group" if plan.context.partition_by else "partition")
    return Job(verb, f"cube {plan.context.uuid_prefix!r}", detail)


@dataclass(frozen=True, slots=True, eq=False)
class ShufflePlan:
    """How rows are shuffled to their groups.

    Attributes
    ----------
    keys : pyarrow.Table
        One row a group, ascending.
    schema : pyarrow.Schema
        Columns and types of the shuffled rows, the key columns among them.
    n_tasks : int
        The number of tasks that share the groups. Neighbouring groups share a task, so the result
        has the order of the groups.
    order : tuple of str
        Columns by which the rows of a group are sorted.
    """

    keys: pa.Table
    schema: pa.Schema
    n_tasks: int
    order: tuple[str, ...] = ()


def run_regrouped(
    session: SparkSession,
    chunks: Sequence[bytes],
    load: Callable[[list[Any]], Iterable[pa.Table]],
    shuffle: ShufflePlan,
    call: Call,
    wire: pa.Schema,
    job: Job | None = None,
) -> DataFrame:
    """A lazy data frame of the results of ``call`` on each group that has rows.

    ``load`` returns the rows of the items of one chunk, in any order.
    """
    # The tasks' closures hold these, and not the plan, which has the keys unpacked.
    packed, order, n_tasks = pack([shuffle.keys], 1)[0], shuffle.order, shuffle.n_tasks
    schema = shuffle.schema.append(pa.field(_NUMBER, pa.int64()))

    def sent(items: list[Any]) -> Iterator[pa.RecordBatch]:
        return _messages(load(items), unpack(packed)[0], n_tasks)

    def called(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keys = unpack(packed)[0]
        for number, table in _collected(batches, schema, order):
            key = keys.slice(number, 1).to_pylist()[0]
            for result in call(key, table):
                yield from to_spark(result, wire, f"the result of group {key}")

    messages = run_packed(session, chunks, sent, _MESSAGES, job, len(packed))
    return to_tasks(messages, n_tasks).mapInArrow(as_task(called, job), spark_schema(wire))


def _messages(tables: Iterable[pa.Table], keys: pa.Table, n_tasks: int) -> Iterator[pa.RecordBatch]:
    """Rows as messages, cut by their target tasks."""
    for table in tables:
        numbers = group_numbers(keys, table)
        # Rows of no group have the number -1, and so the task -1.
        tasks = numbers * n_tasks // max(keys.num_rows, 1)
        rows = np.argsort(tasks, kind="stable")
        numbered = table.append_column(_NUMBER, pa.array(numbers))
        for task, positions in _cut(rows, tasks[rows]):
            if task < 0:
                continue
            piece = numbered.take(pa.array(positions)).combine_chunks()
            rows_per_message = max(1, _MESSAGE_BYTES * piece.num_rows // max(1, piece.nbytes))
            for batch in piece.to_batches(max_chunksize=rows_per_message):
                message = pa.array([memoryview(batch.serialize())], pa.binary())
                yield pa.record_batch([pa.array([task], pa.int32()), message], schema=_MESSAGES)


def _cut(positions: IntArray, numbers: IntArray) -> Iterator[tuple[int, IntArray]]:
    """Positions cut where their numbers change."""
    starts = group_starts(numbers)
    ends = [*starts[1:].tolist(), len(numbers)]
    for start, end in zip(starts.tolist(), ends[: len(starts)], strict=True):
        yield int(numbers[start]), positions[start:end]


def _collected(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, order: Sequence[str]
) -> Iterator[tuple[int, pa.Table]]:
    """The rows of one task by the numbers of their groups, ascending."""
    messages = (message.as_buffer() for batch in batches for message in batch.column("rows"))
    decoded = (pa.ipc.read_record_batch(message, schema) for message in messages)
    table = pa.Table.from_batches(decoded, schema=schema).combine_chunks()
    if not table.num_rows:
        return
    numbers = table.column(_NUMBER).to_numpy()
    rows = np.argsort(pack_one(table, (_NUMBER, *order)), kind="stable")
    table = table.drop_columns([_NUMBER])
    for number, positions in _cut(rows, numbers[rows]):
        yield number, table.take(pa.array(positions))


# --- one table of a dataset -----------------------------------------------------------------------


@session_by_keyword
def read_dataset_as_spark(
    dataset_uuid: str | None = None,
    store: StoreLike | None = None,
    table: str = SINGLE_TABLE,
    columns: ColumnsByTable = None,
    categoricals: ColumnsByTable = None,
    dates_as_object: bool = False,
    predicates: IntoPredicates | None = None,
    dispatch_by: Columns = None,
    factory: DatasetFactory | None = None,
    *,
    blocksize: int | None = None,
    spark: SparkSession | None = None,
    parallelism: int | None = None,
    as_of: AsOf | None = None,
    native: bool = False,
    options: Overrides | None = None,
) -> DataFrame:
    """Read one table of a dataset and get a lazy Spark data frame.

    The call checks and plans the read on the driver, where partition values and secondary indices
    exclude files; tasks exclude row groups by statistics, then rows. The plan names exact files, so
    every action on the data frame sees the dataset as it was then.

    Parameters
    ----------
    dataset_uuid, store, table, columns, predicates, factory, as_of
        As in `kartothek_cube.api.dataset.read_table`. The executors open the same store, so other
        processes must see it.
    categoricals, dates_as_object
        Accepted for kartothek and checked. They change how pandas shows a column and have no effect
        in Spark.
    dispatch_by : list of str, optional
        Indexed columns: all rows of one combination of their values come from one task, one after
        the other, in ascending order of the values. Rows with a null in one of the columns are left
        out. Where many groups share files, each file is read once and its rows are shuffled.
    blocksize : int, optional
        Files in one task, with ``dispatch_by`` groups in one task. By default about four tasks a
        core share them.
    spark : SparkSession, optional
        By default the active session; classic or Connect.
    parallelism : int, optional
        How many tasks run at once; by default the parallelism of the session.
    native : bool
        Let Spark's own Parquet reader read the files of the plan: faster for whole scans, and Spark
        prunes columns. It reads local directories and S3, with Spark's own credentials.
    options : Overrides, optional
        From `kartothek_cube.options`, for planning and for the tasks.

    Returns
    -------
    pyspark.sql.DataFrame
        Columns in the given order, by default in that of the dataset's schema. Naive timestamps are
        ``timestamp_ntz``; unsigned integers get the next wider type. Spark does not prune columns
        here: name those that you need in ``columns``. Without ``dispatch_by`` files come in the
        order of the dataset.

    Raises
    ------
    DatasetNotFound, KeyNotFound, UnknownColumn, InvalidInput, InvalidType
        As in `read_table`, for a store that other processes cannot open, and for an empty list of
        columns.
    InvalidRequest
        If a column of ``dispatch_by`` has no index.
    Unsupported
        For a column whose type Spark lacks; with ``native`` also for stores, files and types that
        Spark's reader does not read as this library does (`docs/spark-source.md` lists them).

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> from kartothek_cube.spark import read_dataset_as_spark
    >>> sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = store_dataframes_as_dataset("hfs://read", "sales", [sales])
    >>> fr = [[("COUNTRY_CODE", "==", "FR")]]
    >>> read_dataset_as_spark("sales", "hfs://read", columns=["UNITS"], predicates=fr).collect()
    [Row(UNITS=4)]
    """
    with operation("read_dataset_as_spark", options):
        names, categories = names_of(columns, table, "columns"), names_of(categoricals, table, "categoricals")
        parsed = parse_predicates(predicates)
        check_flag(dates_as_object, "dates_as_object")
        from kartothek_cube.spark.native import is_native, native_frame  # for the driver alone

        native = is_native(native, {"dispatch_by": dispatch_by, "blocksize": blocksize, "parallelism": parallelism})
        source = dataset_ref(dataset_uuid, store, factory, as_of)
        session, opener = find_session(spark), store_factory(source.store if factory is not None else store)
        executors = _Executors(session, opener, parallelism, blocksize)
        if dispatch_by is None:
            plan = make_file_plan(source.store, source.snapshot(), table, names, parsed, keep=source.keep)
            request, wire = plan.request, _wire(plan.request)
            checked_categoricals(categories, request.columns, request.schema, source.uuid)
            if native:
                return native_frame(session, source.store, plan, wire)
            tasks = plan.tasks()
            sizes = known_sizes(source.store, source.snapshot(), plan.files) if blocksize is None else None
            nbytes = sampled_bytes(opener, tasks, lambda task: (task.key,)) if sizes is None else sum(sizes)
            chunks = pack(tasks, executors.count(len(tasks), nbytes), sizes)
            job = _job(request, pluralize(len(plan), "file"))
            return run_packed(session, chunks, lambda tasks: _rows(opener, request, tasks, wire), wire, job)
        check_table(source.snapshot(), table)
        arguments = GroupArguments(
            [table],
            None if names is None else {table: names},
            None if categories is None else {table: categories},
            parsed,
            dispatch_by=as_list(dispatch_by, "dispatch_by"),
        )
        return _by_group(executors, make_group_plan(source.store, source.snapshot(), arguments, keep=source.keep))


@dataclass(frozen=True, slots=True)
class _Executors:
    """The session that runs the work, the opener of its store, and how work is cut into tasks."""

    session: SparkSession
    store: Store | Callable[[], Store]
    parallelism: int | None
    blocksize: int | None

    def count(self, items: int, nbytes: int | None = None, *, natural: bool = False) -> int:
        """The number of tasks for some items; ``natural`` ignores the user's ``blocksize``."""
        return task_count(items, cores(self.session, self.parallelism), None if natural else self.blocksize, nbytes)


def _wire(request: FileRequest) -> pa.Schema:
    if not request.columns:
        raise InvalidInput(
            f"Name at least one column of dataset {request.dataset!r}: a row without columns is nothing in Spark. "
            f"It has {request.schema.names}."
        )
    return wire_schema(_fields(request), f"dataset {request.dataset!r}")


def _fields(request: FileRequest) -> pa.Schema:
    return pa.schema([request.schema.field(c) for c in request.columns])


def _job(request: FileRequest, detail: str) -> Job:
    return Job("read", f"dataset {request.dataset!r}", detail)


def _rows(
    store: StoreLike, request: FileRequest, tasks: Sequence[ScanTask], wire: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """In a task: the rows of some files, piece by piece."""
    for piece in stream_tables(open_store(store), request, tasks):
        yield from to_spark(piece, wire, f"dataset {request.dataset!r}")


@dataclass(frozen=True, slots=True)
class _FileGroup:
    """The files of one group, and the predicates that select its rows."""

    predicates: Predicates | None
    files: tuple[ScanTask, ...]


def _by_group(executors: _Executors, plan: GroupPlan) -> DataFrame:
    read = plan.reads[0]
    wire = _wire(read.request)
    if plan.groups.amplification() > AMPLIFICATION_LIMIT:
        return _regrouped(executors, plan, read, wire)
    request, store = read.request, executors.store
    groups = [
        _FileGroup(plan.request(read, i).predicates, tuple(plan.tasks(read, plan.groups.partitions(i))))
        for i in range(len(plan.groups))
    ]
    chunks = pack(groups, executors.count(len(groups)))

    def load(groups: list[_FileGroup]) -> Iterator[pa.RecordBatch]:
        opened = open_store(store)
        for group in groups:
            yield from _rows(opened, replace(request, predicates=group.predicates), group.files, wire)

    return run_packed(executors.session, chunks, load, wire, _job(request, pluralize(len(groups), "group")))


def _regrouped(executors: _Executors, plan: GroupPlan, read: TableRead, wire: pa.Schema) -> DataFrame:
    """Groups that share files: each file is read once."""
    columns, store = list(read.request.columns), executors.store
    request = replace(read.request, columns=tuple(dict.fromkeys((*columns, *plan.group_columns))))
    tasks = plan.tasks(read, np.unique(plan.groups.positions))
    n = len(plan.groups)
    shuffle = ShufflePlan(plan.groups.keys, _fields(request), executors.count(n))
    chunks = pack(tasks, executors.count(len(tasks), natural=True))

    def load(tasks: list[ScanTask]) -> Iterator[pa.Table]:
        yield from stream_tables(open_store(store), request, tasks)

    def select(_key: object, table: pa.Table) -> Iterator[pa.Table]:
        yield table.select(columns)

    job = _job(request, pluralize(n, "group"))
    return run_regrouped(executors.session, chunks, load, shuffle, select, wire, job)


# --- user functions on every group of a query -----------------------------------------------------


@session_by_keyword
def map_cube_groups(
    func: GroupFunction,
    schema: str | StructType | pa.Schema,
    cube: Cube | str,
    store: StoreLike,
    conditions: IntoConditions = None,
    datasets: IntoDatasets = None,
    dimension_columns: Columns = None,
    partition_by: Columns = None,
    payload_columns: Columns = None,
    blocksize: int | None = None,
    *,
    as_pandas: bool | None = None,
    spark: SparkSession | None = None,
    parallelism: int | None = None,
    as_of: CubeState | None = None,
    changed_since: CubeState | None = None,
    options: Overrides | None = None,
) -> DataFrame:
    """Call a function on every group of a query, inside Spark tasks.

    The call plans the query. The function runs with every action on the result. Where groups share
    files, each file is read once and its rows are shuffled to their groups.

    Parameters
    ----------
    func : Callable
        Called as ``func(key, table)`` for each group that has rows; with ``changed_since`` also
        for changed groups without rows. ``key`` is a dict of the values
        of the ``partition_by`` columns, by default of the partition columns. ``table`` is a
        `pyarrow.Table`, sorted by dimension columns, then partition columns. The function returns a
        table, a pandas frame, None, or an iterable of these. Spark must be able to pickle it.
    schema : str, StructType or pyarrow.Schema
        Columns of the results, e.g. ``"PRODUCT_ID bigint, FORECAST double"``. Results are matched
        by column name and cast; surplus columns are refused.
    cube, store, conditions, datasets, dimension_columns, partition_by, payload_columns
        As in `query_cube_spark`.
    blocksize, spark, parallelism, as_of, changed_since, options
        As in `query_cube_spark`.
    as_pandas : bool, optional
        Pass a pandas frame instead of a table. By default the annotation of the second parameter
        decides.

    Returns
    -------
    pyspark.sql.DataFrame
        Lazy; `extend_cube_from_spark` takes it as it is.

    Raises
    ------
    InvalidInput, InvalidType
        As in `query_cube`, and for an unusable function or schema.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.api.cube import Cube, build_cube
    >>> from kartothek_cube.spark import map_cube_groups
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales", index_columns=["BRAND"])
    >>> sales = pd.DataFrame({"PRODUCT_ID": [1, 2, 3], "COUNTRY_CODE": ["DE", "FR", "FR"]})
    >>> _ = build_cube(sales.assign(BRAND=["A", "A", "B"], UNITS=[3, 4, 5]), cube, "hfs://mapped")
    >>> def total(key: dict, frame: pd.DataFrame) -> pd.DataFrame:
    ...     return pd.DataFrame({"BRAND": [key["BRAND"]], "UNITS": [frame["UNITS"].sum()]})
    >>> schema = "BRAND string, UNITS bigint"
    >>> map_cube_groups(total, schema, cube, "hfs://mapped", partition_by="BRAND").collect()
    [Row(BRAND='A', UNITS=7), Row(BRAND='B', UNITS=5)]
    """
    with operation("map_cube_groups", options, cube=cube):
        # Only the driver plans: tasks import this module, too.
        from kartothek_cube.cube.members import cube_and_store
        from kartothek_cube.cube.query.planning import make_plan

        cube, opened = cube_and_store(cube, store, as_of)
        factory = store_factory(store)
        arguments = QueryArguments(
            cube, conditions, datasets, dimension_columns, partition_by, payload_columns, as_of, changed_since
        )

        plan = make_plan(arguments, opened)
        session = find_session(spark)
        wire, annotated = _result_schema(schema), wants_pandas(func)
        call = group_call(func, annotated if as_pandas is None else as_pandas, frozenset(wire.names))
        width = cores(session, parallelism)
        # A shuffle does not bring groups without rows.
        if shares_seed_files(plan) and plan.removed is None:
            return run_grouped(session, plan, factory, width, blocksize, call, wire, "map groups of")
        chunks = pack(plan.groups, task_count(len(plan.groups), width, blocksize))
        job = job_of("map groups of", plan, len(plan.groups))
        empty = plan.removed is not None
        return run_packed(session, chunks, lambda groups: call_groups(groups, factory, call, wire, empty), wire, job)


def call_groups(
    groups: Sequence[Group], store: StoreLike, call: Call, wire: pa.Schema, empty: bool = False
) -> Iterator[pa.RecordBatch]:
    """In a task: the results of a call on each group, in Spark's types.

    Groups without rows are passed over, unless ``empty``.
    """
    loader = PartitionLoader(open_store(store))
    for group in groups:
        table = loader.load(group)
        if table.num_rows or empty:
            for result in call(dict(group.key), table):
                yield from to_spark(result, wire, f"the result of group {dict(group.key)}")


def _result_schema(schema: object) -> pa.Schema:
    from pyspark.sql.types import StructType

    if isinstance(schema, pa.Schema):
        return wire_schema(schema, "the result")
    columns = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    if not isinstance(columns, StructType):
        raise InvalidType(
            'schema is a text as "PRODUCT_ID bigint, FORECAST double", a StructType or a pyarrow.Schema, '
            f"not {schema!r}."
        )
    return wire_schema(arrow_schema(columns, "the result"), "the result")


def wants_pandas(func: GroupFunction) -> bool:
    """Whether the second parameter is annotated as a pandas frame, as a type or as text.

    Raises
    ------
    InvalidType
        If ``func`` cannot be called with two arguments.
    """
    if not callable(func):
        raise InvalidType(f"func should be a function (key, table), but is {func!r}.")
    try:
        signature = inspect.signature(func)
    except (ValueError, TypeError):  # some functions in C have no signature
        return False
    try:
        signature.bind({}, None)
    except TypeError as error:
        raise InvalidType(
            f"func is called as func(key, table), with the key of a group and its rows: {error}."
        ) from None
    parameters = list(signature.parameters.values())
    name = parameters[1].annotation if len(parameters) > 1 else None
    if not isinstance(name, str):
        name = f"{getattr(name, '__module__', '')}.{getattr(name, '__qualname__', '')}"
    # The class names the module that defines it, e.g. pandas.core.frame.
    is_class_name = name.startswith("pandas.") and name.endswith(".DataFrame")
    return is_class_name or name in ("pd.DataFrame", "DataFrame")


def group_call(func: GroupFunction, pandas: bool, columns: frozenset[str]) -> Call:
    """The user's function as a call that yields tables; errors name the group."""
    called = cast("Callable[[GroupKey, object], object]", func)

    def check_columns(key: GroupKey, result: pa.Table) -> None:
        if surplus := sorted(set(result.column_names) - columns):
            raise InvalidInput(
                f"The function returned columns for group {key} that the schema does not name: "
                f"{', '.join(surplus)}. It names {', '.join(sorted(columns))}."
            )

    def call(key: GroupKey, table: pa.Table) -> Iterator[pa.Table]:
        from kartothek_cube.core.arrow.pandas import to_frame

        try:
            for result in _tables(called(key, to_frame(table) if pandas else table)):
                check_columns(key, result)
                yield result
        except KartothekCubeError:
            raise
        except Exception as error:
            error.add_note(f"This happened in group {key}.")
            raise

    return call


def _tables(result: object) -> Iterator[pa.Table]:
    """The tables in a result of the user's function."""
    import pandas as pd

    if result is None:
        return
    if isinstance(result, pa.Table):
        yield result
    elif isinstance(result, pa.RecordBatch):
        yield pa.Table.from_batches([result])
    elif isinstance(result, pd.DataFrame):
        yield pa.Table.from_pandas(result, preserve_index=False).replace_schema_metadata(None)
    elif isinstance(result, Iterator | list | tuple):
        for element in result:
            yield from _tables(element)
    else:
        raise InvalidType(
            f"The function returned a {type(result).__name__}; "
            "it may return a pyarrow.Table, a pandas.DataFrame, None, or several of them."
        )


# --- a cube ---------------------------------------------------------------------------------------


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
    >>> _ = build_cube(sales, cube, "hfs://queried")
    >>> query_cube_spark(cube, "hfs://queried", C("UNITS") > 3).collect()
    [Row(COUNTRY_CODE='FR', PRODUCT_ID=2, UNITS=4)]
    """
    with operation("query_cube_spark", options, cube=cube):
        # Only the driver plans: tasks import this module, too.
        from kartothek_cube.cube.members import cube_and_store
        from kartothek_cube.cube.query.planning import load_members_of, make_plan, plan_members
        from kartothek_cube.spark.native import is_native, native_files, native_frame

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
