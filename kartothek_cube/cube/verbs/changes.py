"""What changed in a cube between two states, cell by cell."""

from __future__ import annotations

import pyarrow as pa

from kartothek_cube.core.arrow.difference import changes_schema
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.scan.plan import check_change_type
from kartothek_cube.cube.cube import Cube
from kartothek_cube.cube.execute.changes import iter_changes
from kartothek_cube.cube.members.discovery import cube_and_store
from kartothek_cube.cube.query.intention import QueryArguments
from kartothek_cube.cube.query.planning import plan_states
from kartothek_cube.typing import Columns, CubeState, IntoConditions, StoreLike

__all__ = ["query_cube_changes"]


def query_cube_changes(
    cube: Cube | str,
    store: StoreLike,
    since: CubeState,
    until: CubeState | None = None,
    conditions: IntoConditions = None,
    datasets: Columns = None,
    dimension_columns: Columns = None,
    payload_columns: Columns = None,
    *,
    options: Overrides | None = None,
) -> pa.RecordBatchReader:
    """Query the cells of a cube that came, went or changed between two states.

    The result is the net difference of ``query_cube_arrow(…, as_of=since)`` and
    ``query_cube_arrow(…, as_of=until)`` by cell, whatever the commits between them were. Only
    partitions of the cube are read for which one of the states has a file that the other has not.
    Null equals null, and NaN equals NaN. See the page *What changed*.

    Parameters
    ----------
    cube, store, conditions, dimension_columns, payload_columns
        As in `query_cube`.
    since, until : str, datetime or dict
        The older and the later state, as ``as_of`` of `query_cube`: a commit, a tag, a moment, or
        the ``commits`` of a plan of the same datasets. Those that a dict lacks did not exist then.
        Without ``until``, the newest state.
    datasets : str or iterable of str, optional
        The datasets that take part, the seed among them. By default all.
    options : optional
        The result of `options`: settings for this call and for the loading of its batches. Rows
        beyond ``bytes_in_flight`` wait in a temporary file.

    Returns
    -------
    pyarrow.RecordBatchReader
        The column ``_change_type``: ``insert``, ``delete``, or ``update_preimage`` followed by its
        ``update_postimage``; then the columns of the query, with the types of ``until``, or wider
        where an overwrite has narrowed them. A cell that moved to another partition is an update.
        Columns and datasets that ``since`` lacks are null there. No other order is promised.

    Raises
    ------
    HistoryUnavailable
        If history does not reach back to ``since`` or ``until``.
    InvalidInput, InvalidType
        If ``until`` comes before ``since``, a column had another type then, or as in `query_cube`.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import Cube, append_to_cube, build_cube, open_store, plan_cube_query
    >>> from kartothek_cube import query_cube_changes
    >>> store, cube = open_store("hmemory://"), Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> sales = pd.DataFrame({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = build_cube(sales, cube, store)
    >>> seen = plan_cube_query(cube, store).commits
    >>> _ = append_to_cube(sales[1:].assign(UNITS=5), cube, store)
    >>> query_cube_changes(cube, store, seen).read_pandas()
           _change_type COUNTRY_CODE  PRODUCT_ID  UNITS
    0   update_preimage           FR           2      4
    1  update_postimage           FR           2      5
    """
    with operation("query_cube_changes", options, cube=cube) as op:
        cube, opened = cube_and_store(cube, store, until)
        arguments = QueryArguments(cube, conditions, datasets, dimension_columns, None, payload_columns, until)
        before, after = plan_states(arguments, since, opened)
        check_change_type(after.plan.schema.names, f"Cube {cube.uuid_prefix!r}")
        tables = iter_changes(before, after, opened)
        batches = (batch for table in tables for batch in table.to_batches() if batch.num_rows)
        return pa.RecordBatchReader.from_batches(changes_schema(after.plan.schema), op.lasting(batches))
