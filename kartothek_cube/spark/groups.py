"""The per-group job in one call: a function of the user on every group of a query, inside Spark tasks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, cast

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
from kartothek_cube.errors import InvalidInput, InvalidType, KartothekCubeError
from kartothek_cube.spark.regroup import Call, job_of, run_grouped
from kartothek_cube.spark.session import cores, find_session
from kartothek_cube.spark.tasks import pack, run_packed, task_count
from kartothek_cube.spark.types import arrow_schema, to_spark, wire_schema
from kartothek_cube.typing import AsOf, Columns, GroupFunction, GroupKey, IntoConditions, IntoDatasets, StoreLike

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["map_cube_groups"]


def map_cube_groups(
    func: GroupFunction,
    schema: str | StructType | pa.Schema,
    cube: Cube,
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
    as_of: AsOf | None = None,
    options: Overrides | None = None,
) -> DataFrame:
    """Call a function on every group of a query, inside Spark tasks: the per-group job in one call.

    The query is planned when this is called. The function runs when the result is used, and again with every further action on it. Where groups share
    files, each file is read once and its rows are shuffled to their groups.

    Parameters
    ----------
    func : Callable
        Called as ``func(key, table)`` for each group that has rows: ``key`` has the values of the ``partition_by`` columns (without ``partition_by`` those
        of the partition columns), ``table`` is a `pyarrow.Table`, ordered by dimension columns, then partition columns. Returns a table, a pandas frame,
        None, or an iterable of these. It must be picklable by Spark, as any function for executors.
    schema : str, StructType or pyarrow.Schema
        Columns of the results, e.g. ``"PRODUCT_ID bigint, FORECAST double"``. They are taken by name and cast; surplus columns are refused.
    cube, store, conditions, datasets, dimension_columns, partition_by, payload_columns, blocksize, spark, parallelism, as_of, options
        As in `query_cube_spark`.
    as_pandas : bool, optional
        Whether the function wants a pandas frame instead of a table. By default it does if its second parameter is annotated so.

    Returns
    -------
    pyspark.sql.DataFrame
        Lazy; it may go straight into `extend_cube_from_spark`.

    Raises
    ------
    InvalidInput, InvalidType
        As in `query_cube`, and for a function or schema that cannot be used.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.api.cube import Cube, build_cube
    >>> from kartothek_cube.spark import map_cube_groups
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales", index_columns=["BRAND"])
    >>> sales = pd.DataFrame({"PRODUCT_ID": [1, 2, 3], "COUNTRY_CODE": ["DE", "FR", "FR"], "BRAND": ["A", "A", "B"], "UNITS": [3, 4, 5]})
    >>> _ = build_cube(sales, cube, "hfs://store")
    >>> def total(key: dict, frame: pd.DataFrame) -> pd.DataFrame:
    ...     return pd.DataFrame({"BRAND": [key["BRAND"]], "UNITS": [frame["UNITS"].sum()]})
    >>> map_cube_groups(total, "BRAND string, UNITS bigint", cube, "hfs://store", partition_by="BRAND").collect()
    [Row(BRAND='A', UNITS=7), Row(BRAND='B', UNITS=5)]
    """
    with operation("map_cube_groups", options, cube=cube):
        factory = store_factory(store)
        arguments = QueryArguments(cube, conditions, datasets, dimension_columns, partition_by, payload_columns, as_of)
        plan = make_plan(arguments, open_store(factory))
        session = find_session(spark)
        wire, annotated = _result_schema(schema), _wants_pandas(func)
        call = _calling(func, annotated if as_pandas is None else as_pandas, frozenset(wire.names))
        width = cores(session, parallelism)
        if shares_seed_files(plan):
            return run_grouped(session, plan, factory, width, blocksize, call, wire, "map groups of")
        chunks = pack(plan.groups, task_count(len(plan.groups), width, blocksize))
        return run_packed(session, chunks, lambda groups: _called(groups, factory, call, wire), wire, job_of("map groups of", plan, len(plan.groups)))


def _called(groups: Sequence[Group], store: StoreLike, call: Call, wire: pa.Schema) -> Iterator[pa.RecordBatch]:
    loader = PartitionLoader(open_store(store))
    for group in groups:
        table = loader.load(group)
        if table.num_rows:
            for result in call(dict(group.key), table):
                yield from to_spark(result, wire, f"the result of group {dict(group.key)}")


def _result_schema(schema: object) -> pa.Schema:
    from pyspark.sql.types import StructType

    if isinstance(schema, pa.Schema):
        return wire_schema(schema, "the result")
    kind = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    if not isinstance(kind, StructType):
        raise InvalidType(f'schema is a text as "PRODUCT_ID bigint, FORECAST double", a StructType or a pyarrow.Schema, not {schema!r}.')
    return wire_schema(arrow_schema(kind, "the result"), "the result")


def _wants_pandas(func: GroupFunction) -> bool:
    """Whether the second parameter is annotated as a pandas frame, as a type or as its text; refused if there is none."""
    if not callable(func):
        raise InvalidType(f"func should be a function (key, table), but is {func!r}.")
    try:
        signature = inspect.signature(func)
    except (ValueError, TypeError):  # some functions of C do not tell
        return False
    try:
        signature.bind({}, None)
    except TypeError as error:
        raise InvalidType(f"func is called as func(key, table), with the key of a group and its rows: {error}.") from None
    parameters = list(signature.parameters.values())
    annotation = parameters[1].annotation if len(parameters) > 1 else None
    name = annotation if isinstance(annotation, str) else f"{getattr(annotation, '__module__', '')}.{getattr(annotation, '__qualname__', '')}"
    return name in ("pd.DataFrame", "pandas.DataFrame", "DataFrame") or (name.startswith("pandas.") and name.endswith(".DataFrame"))


def _calling(func: GroupFunction, pandas: bool, columns: frozenset[str]) -> Call:
    called = cast("Callable[[GroupKey, object], object]", func)

    def call(key: GroupKey, table: pa.Table) -> Iterator[pa.Table]:
        from kartothek_cube.core.frames import to_frame

        try:
            for result in _results(called(key, to_frame(table) if pandas else table)):
                yield _checked(result, columns, key)
        except KartothekCubeError:
            raise
        except Exception as error:
            error.add_note(f"This happened in group {key}.")
            raise

    return call


def _results(result: object) -> Iterator[pa.Table]:
    """Tables from whatever the function returned."""
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
            yield from _results(element)
    else:
        raise InvalidType(f"The function returned a {type(result).__name__}; it may return a pyarrow.Table, a pandas.DataFrame, None, or several of them.")


def _checked(table: pa.Table, columns: frozenset[str], key: GroupKey) -> pa.Table:
    surplus = sorted(set(table.column_names) - columns)
    if surplus:
        raise InvalidInput(
            f"The function returned columns for group {key} that the schema does not name: {', '.join(surplus)}. It names {', '.join(sorted(columns))}."
        )
    return table
