"""Query a cube: as frames, as one Arrow table, group by group, or only its plan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from kartothek_cube.core.arrow.pandas import to_frame
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.stores.open import open_instrumented
from kartothek_cube.cube.cube import Cube
from kartothek_cube.cube.execute.partition_loader import PartitionLoader
from kartothek_cube.cube.execute.run import grouped_tables, iter_groups, whole_table
from kartothek_cube.cube.members.discovery import cube_and_store
from kartothek_cube.cube.query.groups import Group
from kartothek_cube.cube.query.intention import QueryArguments
from kartothek_cube.cube.query.plan import QueryPlan
from kartothek_cube.cube.query.planning import make_plan
from kartothek_cube.typing import Columns, CubeState, GroupKey, IntoConditions, IntoDatasets, StoreLike

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["iter_cube", "load_group", "plan_cube_query", "query_cube", "query_cube_arrow"]


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
