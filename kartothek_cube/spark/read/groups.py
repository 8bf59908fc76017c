"""User functions on every group of a query, inside Spark tasks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.stores.open import open_store, store_factory
from kartothek_cube.cube.cube import Cube
from kartothek_cube.cube.execute.load import PartitionLoader
from kartothek_cube.cube.execute.run import shares_seed_files
from kartothek_cube.cube.query.intention import QueryArguments
from kartothek_cube.cube.query.plan import Group
from kartothek_cube.errors import InvalidInput, InvalidType, KartothekCubeError
from kartothek_cube.spark.read.shuffle import Call, job_of, run_grouped
from kartothek_cube.spark.session import cores, find_session, session_by_keyword
from kartothek_cube.spark.tasks import pack, run_packed, task_count
from kartothek_cube.spark.types import arrow_schema, to_spark, wire_schema
from kartothek_cube.typing import Columns, CubeState, GroupFunction, GroupKey, IntoConditions, IntoDatasets, StoreLike

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["map_cube_groups"]


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
    >>> _ = build_cube(sales.assign(BRAND=["A", "A", "B"], UNITS=[3, 4, 5]), cube, "hfs://store")
    >>> def total(key: dict, frame: pd.DataFrame) -> pd.DataFrame:
    ...     return pd.DataFrame({"BRAND": [key["BRAND"]], "UNITS": [frame["UNITS"].sum()]})
    >>> schema = "BRAND string, UNITS bigint"
    >>> map_cube_groups(total, schema, cube, "hfs://store", partition_by="BRAND").collect()
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
