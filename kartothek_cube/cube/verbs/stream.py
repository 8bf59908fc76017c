"""Stream the rows of a cube or of a plan batch by batch, and count rows."""

from __future__ import annotations

import pyarrow as pa

from kartothek_cube.core.dataset.read import checked_limit, limited_batches
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import AnyOperation, operation
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.stores.open import open_instrumented
from kartothek_cube.cube.cube import Cube
from kartothek_cube.cube.execute.count import count_planned
from kartothek_cube.cube.execute.run import iter_groups
from kartothek_cube.cube.members.discovery import cube_and_store
from kartothek_cube.cube.query.intention import QueryArguments
from kartothek_cube.cube.query.plan import QueryPlan
from kartothek_cube.cube.query.planning import load_members_of, make_plan, plan_members
from kartothek_cube.typing import Columns, CubeState, IntoConditions, IntoDatasets, StoreLike

__all__ = ["count_cube", "run_plan", "stream_cube"]


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
