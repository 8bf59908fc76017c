"""Reading one table of a dataset as a stream of Arrow batches."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing

import pyarrow as pa

from kartothek_cube.core.dataset.arguments import source_of
from kartothek_cube.core.dataset.load import stream_tables
from kartothek_cube.core.dataset.plan import make_file_plan
from kartothek_cube.core.dataset.requests import names_of
from kartothek_cube.core.naming import SINGLE_TABLE
from kartothek_cube.core.options import Overrides
from kartothek_cube.core.predicates import parse_predicates
from kartothek_cube.core.telemetry import operation
from kartothek_cube.errors import InvalidInput, InvalidType
from kartothek_cube.typing import AsOf, ColumnsByTable, IntoPredicates, StoreLike

__all__ = ["checked_limit", "limited_batches", "stream_table"]


def stream_table(
    dataset_uuid: str,
    store: StoreLike,
    columns: ColumnsByTable = None,
    predicates: IntoPredicates | None = None,
    table: str = SINGLE_TABLE,
    *,
    limit: int | None = None,
    as_of: AsOf | None = None,
    options: Overrides | None = None,
) -> pa.RecordBatchReader:
    """Read one table of a dataset batch by batch, with bounded memory.

    The files are read in threads, a few ahead of the batch that is asked for: as many as fit into the option
    ``bytes_in_flight``, and at least one. A Parquet file that is large against that comes in pieces, so that memory grows
    neither with the number of files nor with their sizes; only the packed bytes of one row group are always held whole.
    Arguments are checked by the call; data are read when the first batch is asked for, and as they were when the call was made.

    Parameters
    ----------
    dataset_uuid, store, columns, predicates, table
        As in `read_table`.
    limit : int, optional
        Stop after so many rows; files behind that are not read but for those that are on their way.
    as_of : str or datetime, optional
        As in `read_table`.
    options : optional
        What `options` returns: settings for this call and for the reading of its batches.

    Returns
    -------
    pyarrow.RecordBatchReader
        The matching rows, files in the order of the document, rows in the order of their file, in the types of the
        dataset's schema. Everything that speaks Arrow takes it: Polars, DuckDB, ``pyarrow.dataset.write_dataset``.

    Raises
    ------
    DatasetNotFound, KeyNotFound, InvalidInput, InvalidType
        As in `read_table`; also for a limit that is no number of rows. A missing file is found when it is its turn.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.api.cube import Cube, build_cube
    >>> from kartothek_cube import open_store
    >>> store = open_store("hmemory://")
    >>> sales = pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = build_cube(sales, Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales"), store)
    >>> sum(batch.num_rows for batch in stream_table("sales++seed", store, columns=["UNITS"]))
    2
    """
    with operation("stream_table", options) as op:
        names, asked, rows = names_of(columns, table, "columns"), parse_predicates(predicates), checked_limit(limit)
        source = source_of(dataset_uuid, store, None, as_of)
        plan = make_file_plan(source.store, source.snapshot(), table, names, asked)
        schema = pa.schema([plan.request.schema.field(c) for c in plan.request.columns])
        return pa.RecordBatchReader.from_batches(schema, op.lasting(limited_batches(stream_tables(source.store, plan.request, plan.tasks()), rows)))


def checked_limit(limit: object) -> int | None:
    """The argument ``limit``: a number of rows, or None for all."""
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int)):
        raise InvalidType(f"limit is a number of rows, not {type(limit).__name__}: {limit!r}.")
    if limit is not None and limit < 0:
        raise InvalidInput(f"limit is a number of rows, it cannot be {limit}.")
    return limit


def limited_batches(tables: Generator[pa.Table, None, None], limit: int | None) -> Iterator[pa.RecordBatch]:
    """The batches of some tables up to a number of rows; then the tables are closed."""
    with closing(tables):
        left = limit
        while left != 0 and (table := next(tables, None)) is not None:
            table = table if left is None else table.slice(0, left)
            left = left if left is None else left - table.num_rows
            yield from table.to_batches()
