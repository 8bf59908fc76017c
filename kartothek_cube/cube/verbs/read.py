"""Query a cube: frames, one Arrow table, group by group, a stream of batches, a count, a plan.

In order:

- queries and plans
- streams and counts
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from kartothek_cube.core.arrow.pandas import to_frame
from kartothek_cube.core.dataset.read import checked_limit, limited_batches
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import AnyOperation, operation
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.stores.open import open_instrumented
from kartothek_cube.cube.cube import Cube
from kartothek_cube.cube.execute.load import PartitionLoader
from kartothek_cube.cube.execute.run import count_planned, grouped_tables, iter_groups, whole_table
from kartothek_cube.cube.members import cube_and_store
from kartothek_cube.cube.query.intention import QueryArguments
from kartothek_cube.cube.query.plan import Group, QueryPlan
from kartothek_cube.cube.query.planning import load_members_of, make_plan, plan_members
from kartothek_cube.typing import Columns, CubeState, GroupKey, IntoConditions, IntoDatasets, StoreLike

if TYPE_CHECKING:
    import pandas as pd


def query_cube(
    cube: Cube | str,
    store: StoreLike,
    conditions: IntoConditions = None,
    datasets: IntoDatasets = None,
    dimension_columns: Columns = None,
    partition_by: Columns = None,
    payload_columns: Columns = None,
    *,
    as_of: CubeState | None = None,
    changed_since: CubeState | None = None,
    options: Overrides | None = None,
) -> list[pd.DataFrame]:
    """Query a cube and get pandas frames.

    The cells of the seed dataset decide which rows exist; every other dataset is joined to them by
    its dimension columns. A condition on the payload of a dataset keeps only cells that the dataset
    has. The rules are on the page *The query system* of the documentation.

    Parameters
    ----------
    cube : Cube or str
        The cube, or its prefix.
    store : str, path, store or callable
        The store of the cube, in any form that `open_store` takes.
    conditions : Condition, Conjunction, iterable of Condition or str, optional
        Conditions on the rows, e.g. ``(C("UNITS") > 0) & (C("COUNTRY_CODE") == "DE")``, or the same
        as text, ``"UNITS > 0 & COUNTRY_CODE == 'DE'"``. A stored null satisfies ``!=`` and no other
        condition.
    datasets : str, iterable of str, or dict, optional
        The datasets that take part, the seed among them. By default all.
    dimension_columns : str or iterable of str, optional
        Dimension columns of the result, in the order in which its rows are sorted. With fewer than
        the cube has, each projected cell comes once.
    partition_by : str or iterable of str, optional
        Indexed columns; one frame for each combination of their values.
    payload_columns : str or iterable of str, optional
        Payload to return. By default all.
    as_of : str, datetime or dict, optional
        A moment (without a zone: UTC), the id of a commit, or a tag: the cube as it was then, see
        `history` and `tag_cube`. The id of a write to the cube selects the datasets as the write
        left them. With the id of a commit to one dataset, the others are read as of its time. A
        dict has the commit of each dataset, as the ``commits`` of a plan. A dataset that did not
        exist then is left out.
    changed_since : str, datetime or dict, optional
        Only groups, without ``partition_by`` partitions of the cube, that read a file which was
        added or removed since this state, given as ``as_of``. See the page *What changed*.
    options : optional
        The result of `options`: settings for this call.

    Returns
    -------
    list of pandas.DataFrame
        Without ``partition_by`` one frame; with it one frame a value, ascending. Columns in
        alphabetical order, rows ordered by dimension columns, then partition columns. No rows: no
        frame.

    Raises
    ------
    InvalidInput
        For a cube that does not exist or is not valid, for unknown or unsuitable columns, and if
        history does not reach back to ``as_of`` or ``changed_since``.
    InvalidType
        For a constant that does not fit the type of its column.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.api.cube import C, Cube, build_cube, query_cube
    >>> from kartothek_cube import open_store
    >>> store = open_store("hmemory://")
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> sales = pd.DataFrame({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = build_cube(sales, cube, store)
    >>> query_cube(cube, store, C("UNITS") > 3)[0]
      COUNTRY_CODE  PRODUCT_ID  UNITS
    0           FR           2      4
    """
    with operation("query_cube", options, cube=cube) as op:
        cube, opened = cube_and_store(cube, store, as_of)
        arguments = QueryArguments(
            cube, conditions, datasets, dimension_columns, partition_by, payload_columns, as_of, changed_since
        )
        plan = make_plan(arguments, opened)
        tables = grouped_tables(plan, opened) if plan.context.partition_by else [whole_table(plan, opened)]
        return [op.returned(to_frame(table)) for table in tables if table.num_rows]


def query_cube_arrow(
    cube: Cube | str,
    store: StoreLike,
    conditions: IntoConditions = None,
    datasets: IntoDatasets = None,
    dimension_columns: Columns = None,
    payload_columns: Columns = None,
    *,
    as_of: CubeState | None = None,
    options: Overrides | None = None,
) -> pa.Table:
    """Query a cube and get one Arrow table; arguments, order and errors as in `query_cube`.

    Without rows the table has all columns and types. Arrow has nulls, so a column of integers with
    missing values stays one of integers.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.api.cube import Cube, build_cube, extend_cube, query_cube_arrow
    >>> from kartothek_cube import open_store
    >>> store = open_store("hmemory://")
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> sales = pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = build_cube(sales, cube, store)
    >>> stock = pa.table({"PRODUCT_ID": [2], "STOCK": [7]})
    >>> _ = extend_cube({"stock": stock}, cube, store, partition_on={"stock": []})
    >>> query_cube_arrow(cube, store).column("STOCK").to_pylist()
    [None, 7]
    """
    with operation("query_cube_arrow", options, cube=cube) as op:
        cube, opened = cube_and_store(cube, store, as_of)
        arguments = QueryArguments(cube, conditions, datasets, dimension_columns, None, payload_columns, as_of)
        return op.returned(whole_table(make_plan(arguments, opened), opened))


def iter_cube(
    cube: Cube | str,
    store: StoreLike,
    conditions: IntoConditions = None,
    datasets: IntoDatasets = None,
    dimension_columns: Columns = None,
    partition_by: Columns = None,
    payload_columns: Columns = None,
    *,
    as_of: CubeState | None = None,
    changed_since: CubeState | None = None,
    options: Overrides | None = None,
) -> Iterator[tuple[GroupKey, pa.Table]]:
    """Query a cube group by group, with bounded memory.

    Arguments and errors are those of `query_cube`. The call checks them, not the first iteration.

    Yields
    ------
    key : dict
        Values of the ``partition_by`` columns; without ``partition_by`` those of the partition
        columns.
    table : pyarrow.Table
        The rows of the group, ordered by dimension columns, then partition columns. Empty groups
        are left out; with ``changed_since`` they are there.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.api.cube import Cube, build_cube, iter_cube
    >>> from kartothek_cube import open_store
    >>> store = open_store("hmemory://")
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales", index_columns=["BRAND"])
    >>> sales = pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"], "BRAND": ["A", "A"]})
    >>> _ = build_cube(sales, cube, store)
    >>> [(key, table.num_rows) for key, table in iter_cube(cube, store, partition_by="BRAND")]
    [({'BRAND': 'A'}, 2)]
    """
    with operation("iter_cube", options, cube=cube) as op:
        cube, opened = cube_and_store(cube, store, as_of)
        arguments = QueryArguments(
            cube, conditions, datasets, dimension_columns, partition_by, payload_columns, as_of, changed_since
        )
        return op.lasting(iter_groups(make_plan(arguments, opened), opened), lambda group: len(group[1]))


def plan_cube_query(
    cube: Cube | str,
    store: StoreLike,
    conditions: IntoConditions = None,
    datasets: IntoDatasets = None,
    dimension_columns: Columns = None,
    partition_by: Columns = None,
    payload_columns: Columns = None,
    *,
    as_of: CubeState | None = None,
    changed_since: CubeState | None = None,
    options: Overrides | None = None,
) -> QueryPlan:
    """Plan a query: the files that each group reads, and how they are joined.

    Arguments and errors as in `query_cube`. No data file is read. The plan is a picklable value
    without a store; `load_group` loads one of its ``groups`` anywhere. With ``changed_since`` it
    has the changed groups, and ``removed_group_keys()`` those that are gone.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.api.cube import C, Cube, build_cube, plan_cube_query
    >>> from kartothek_cube import open_store
    >>> store = open_store("hmemory://")
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> sales = pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]})
    >>> _ = build_cube(sales, cube, store)
    >>> plan_cube_query(cube, store, C("PRODUCT_ID") == 2)
    QueryPlan(cube='sales', groups=1, files=1)
    """
    with operation("plan_cube_query", options, cube=cube):
        cube, opened = cube_and_store(cube, store, as_of)
        arguments = QueryArguments(
            cube, conditions, datasets, dimension_columns, partition_by, payload_columns, as_of, changed_since
        )
        return make_plan(arguments, opened)


def load_group(group: Group, store: StoreLike, *, options: Overrides | None = None) -> pa.Table:
    """Load one group of a plan: in a thread, a Spark task, a notebook.

    Parameters
    ----------
    group : Group
        One of ``plan.groups``.
    store : str, path, store or callable
        The store for which the plan was made.
    options : optional
        The result of `options`: settings for this call.

    Returns
    -------
    pyarrow.Table
        The rows of the group, ordered by dimension columns, then partition columns; maybe none.

    Raises
    ------
    KeyNotFound
        If a file of the plan has been removed since the plan was made.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.api.cube import Cube, build_cube, load_group, plan_cube_query
    >>> from kartothek_cube import open_store
    >>> store = open_store("hmemory://")
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> _ = build_cube(pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]}), cube, store)
    >>> plan = plan_cube_query(cube, store)
    >>> load_group(plan.groups[1], store).to_pylist()
    [{'COUNTRY_CODE': 'FR', 'PRODUCT_ID': 2}]
    """
    with operation("load_group", options, cube=group) as op:
        return op.returned(PartitionLoader(open_instrumented(store)).load(group))


# --- streams and counts ---------------------------------------------------------------------------


def stream_cube(
    cube: Cube | str,
    store: StoreLike,
    conditions: IntoConditions = None,
    datasets: IntoDatasets = None,
    dimension_columns: Columns = None,
    payload_columns: Columns = None,
    *,
    limit: int | None = None,
    as_of: CubeState | None = None,
    options: Overrides | None = None,
) -> pa.RecordBatchReader:
    """Query a cube and get its rows batch by batch, with bounded memory.

    The rows are those of `query_cube_arrow`, one physical partition after the other and ordered by
    dimension columns inside each; they are not sorted as a whole. While a batch is used, the next
    partitions are loaded, at least one and as many as fit into the option ``bytes_in_flight``. The
    call checks the arguments and fixes the state of the cube; data files are read from the first
    batch on.

    Parameters
    ----------
    cube, store, conditions, datasets, dimension_columns, payload_columns, as_of
        As in `query_cube`.
    limit : int, optional
        Stop after this number of rows; later partitions are not read, except those already being
        loaded.
    options : optional
        The result of `options`: settings for this call and for the loading of its batches.

    Returns
    -------
    pyarrow.RecordBatchReader
        Columns in alphabetical order, types as in `query_cube_arrow`. Any Arrow library takes the
        reader: Polars, DuckDB, ``pyarrow.dataset.write_dataset``.

    Raises
    ------
    InvalidInput, InvalidType
        As in `query_cube`; also for a limit that is no number of rows.
    KeyNotFound
        If a file has been removed since the call; raised when the file is read.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube, open_store, stream_cube
    >>> store = open_store("hmemory://")
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> sales = pa.table({"PRODUCT_ID": [1, 2, 0], "COUNTRY_CODE": ["DE", "DE", "FR"]})
    >>> _ = build_cube(sales, cube, store)
    >>> [batch.column("PRODUCT_ID").to_pylist() for batch in stream_cube(cube, store)]
    [[1, 2], [0]]
    """
    with operation("stream_cube", options, cube=cube) as op:
        rows, (cube, opened) = checked_limit(limit), cube_and_store(cube, store, as_of)
        arguments = QueryArguments(cube, conditions, datasets, dimension_columns, None, payload_columns, as_of)
        return _reader(make_plan(arguments, opened), opened, rows, op)


def run_plan(plan: QueryPlan, store: StoreLike, *, options: Overrides | None = None) -> pa.RecordBatchReader:
    """Load all groups of a plan batch by batch, with bounded memory.

    Parameters
    ----------
    plan : QueryPlan
        A plan from `plan_cube_query`, made in this or another process.
    store : str, path, store or callable
        The store for which the plan was made.
    options : optional
        The result of `options`: settings for this call and for the loading of its batches.

    Returns
    -------
    pyarrow.RecordBatchReader
        The rows of the groups in group order, inside each ordered by dimension columns, then
        partition columns. No batch has rows of two groups.

    Raises
    ------
    KeyNotFound
        If a file of the plan has been removed since the plan was made; raised when the file is
        read.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import C, Cube, build_cube, open_store, plan_cube_query, run_plan
    >>> store = open_store("hmemory://")
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales", index_columns=["BRAND"])
    >>> sales = {"PRODUCT_ID": [1, 2, 3], "COUNTRY_CODE": ["DE", "FR", "FR"], "BRAND": list("BAB")}
    >>> _ = build_cube(pa.table(sales), cube, store)
    >>> plan = plan_cube_query(cube, store, partition_by="BRAND")
    >>> run_plan(plan, store).read_all().column("BRAND").to_pylist()
    ['A', 'B', 'B']
    """
    with operation("run_plan", options, cube=plan) as op:
        return _reader(plan, open_instrumented(store), None, op)


def _reader(plan: QueryPlan, store: Store, limit: int | None, op: AnyOperation) -> pa.RecordBatchReader:
    tables = (table for _, table in iter_groups(plan, store))
    return pa.RecordBatchReader.from_batches(plan.schema, op.lasting(limited_batches(tables, limit)))


# --- the number of rows ---------------------------------------------------------------------------


def count_cube(
    cube: Cube | str,
    store: StoreLike,
    conditions: IntoConditions = None,
    datasets: IntoDatasets = None,
    dimension_columns: Columns = None,
    *,
    as_of: CubeState | None = None,
    options: Overrides | None = None,
) -> int:
    """Count the rows of a query without reading payload.

    A physical partition of the seed whose files hold no cell twice, as far as statistics tell, is
    counted without reading it, unless conditions filter its rows; conditions on partition columns
    do not. Of all others the columns of the cells and of the conditions are read.

    Parameters
    ----------
    cube, store, conditions, datasets, dimension_columns, as_of
        As in `query_cube`. With fewer dimension columns than the cube has, projected cells are
        counted.
    options : optional
        The result of `options`: settings for this call.

    Returns
    -------
    int
        The number of rows that `query_cube_arrow` would return for these arguments.

    Raises
    ------
    InvalidInput, InvalidType
        As in `query_cube`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import C, Cube, build_cube, count_cube, open_store
    >>> store = open_store("hmemory://")
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> sales = pa.table({"PRODUCT_ID": [1, 2, 3], "COUNTRY_CODE": ["DE", "FR", "FR"]})
    >>> _ = build_cube(sales, cube, store)
    >>> count_cube(cube, store), count_cube(cube, store, C("COUNTRY_CODE") == "FR")
    (3, 2)
    """
    with operation("count_cube", options, cube=cube):
        cube, opened = cube_and_store(cube, store, as_of)
        # Without payload only the seed and the restricting datasets take part.
        arguments = QueryArguments(cube, conditions, datasets, dimension_columns, None, (), as_of)
        members = load_members_of(arguments, opened)
        return count_planned(plan_members(arguments, members, opened), members, opened)
