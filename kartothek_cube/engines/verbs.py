"""The public verbs: lazy frames of Polars and Daft, and connections of DuckDB."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from kartothek_cube.core.metadata.naming import SINGLE_TABLE
from kartothek_cube.core.runtime.options import Overrides, current_options
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.snapshots.time_travel import check_as_of
from kartothek_cube.core.stores.open import open_instrumented
from kartothek_cube.cube.cube import Cube
from kartothek_cube.engines.tables import open_cube_table, open_dataset_table
from kartothek_cube.errors import MissingExtra
from kartothek_cube.typing import AsOf, Columns, IntoDatasets, StoreLike

if TYPE_CHECKING:
    from daft import DataFrame
    from polars import LazyFrame

    from kartothek_cube.engines.duckdb import Connection


# Extra → its package and the oldest release that works; `pyproject.toml` has the same.
OLDEST = {"polars": ("polars", "1.30.0"), "sql": ("duckdb", "1.2.0"), "daft": ("daft", "0.7.26")}


def require(extra: str) -> None:
    """Raise `MissingExtra` unless the package of an extra is installed and new enough."""
    package, oldest = OLDEST[extra]
    try:
        installed = _release(package, version)
    except PackageNotFoundError:
        installed = "none"
    if installed == "none" or _numbers(installed) < _numbers(oldest):
        raise MissingExtra(
            f"This needs the package {package}, at least {oldest} (installed: {installed}): "
            f"pip install 'kartothek-cube[{extra}]'"
        )


@cache
def _release(package: str, find: Callable[[str], str]) -> str:
    """What is installed: finding it out takes as long as planning a scan."""
    return find(package)


def _numbers(release: str) -> tuple[int, ...]:
    """The first three numbers of a release: 1.30 is 1.30.0."""
    numbers = [int(number) for number in re.findall(r"\d+", release)]
    return tuple([*numbers, 0, 0][:3])


def scan_cube(
    cube: Cube | str,
    store: StoreLike,
    *,
    datasets: IntoDatasets = None,
    dimension_columns: Columns = None,
    as_of: AsOf | None = None,
    options: Overrides | None = None,
) -> LazyFrame:
    """A cube as a lazy frame of Polars. See the page *SQL and lazy frames*.

    No data file is read before ``collect``. Then Polars pushes down columns, filters and limits:
    files that cannot have a wanted row are not opened, see ``explain``. The state of the cube is
    fixed by this call: a later commit does not change the frame.

    Parameters
    ----------
    cube : Cube or str
        The cube, or its prefix.
    store : str, path, store or callable
        The store, in any form that `open_store` takes.
    datasets : str, iterable of str, or dict, optional
        The datasets that take part, the seed among them. By default all.
    dimension_columns : str or iterable of str, optional
        Dimension columns of the frame. With fewer than the cube has, each projected cell comes
        once, and payload that depends on other dimensions is left out.
    as_of : str or datetime, optional
        A moment, a tag, or the id of a commit, as in `query_cube`.
    options : optional
        Settings for this call and for reading the frame, from `options`.

    Returns
    -------
    polars.LazyFrame
        Columns and types of `query_cube_arrow`, in no particular order of rows. Moments in a zone
        that Polars lacks, such as ``+05:30``, are in UTC.

    Raises
    ------
    MissingExtra
        If Polars is not installed or too old: ``pip install 'kartothek-cube[polars]'``.
    InvalidInput, InvalidType
        As in `query_cube`; for a cube that does not exist with the names that may be meant.
    KeyNotFound
        When the frame is collected, if a file has been removed since the call.

    Examples
    --------
    >>> import polars as pl
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube, open_store, scan_cube
    >>> store = open_store("hmemory://")
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> sales = pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = build_cube(sales, cube, store)
    >>> french = scan_cube("sales", store).filter(pl.col("COUNTRY_CODE") == "FR")
    >>> french.select("UNITS").collect().to_dicts()
    [{'UNITS': 4}]
    """
    require("polars")
    from kartothek_cube.engines.polars import lazy_frame

    with operation("scan_cube", options, cube=cube):
        table = open_cube_table(
            cube,
            open_instrumented(store),
            "scan_cube",
            current_options(options),
            datasets=datasets,
            dimension_columns=dimension_columns,
            as_of=as_of,
        )
        return lazy_frame(table)


def scan_dataset(
    dataset_uuid: str,
    store: StoreLike,
    *,
    table: str = SINGLE_TABLE,
    as_of: AsOf | None = None,
    options: Overrides | None = None,
) -> LazyFrame:
    """One table of a dataset as a lazy frame of Polars, as `scan_cube` does for a cube.

    Parameters
    ----------
    dataset_uuid : str
        The dataset.
    store : str, path, store or callable
        The store, in any form that `open_store` takes.
    table : str, default "table"
        The table.
    as_of : str or datetime, optional
        A moment, a tag, or the id of a commit, as in `read_table`.
    options : optional
        Settings for this call and for reading the frame, from `options`.

    Returns
    -------
    polars.LazyFrame
        Columns and types of `read_table_arrow`; zones as of `scan_cube`.

    Raises
    ------
    MissingExtra
        If Polars is not installed or too old: ``pip install 'kartothek-cube[polars]'``.
    DatasetNotFound, KeyNotFound, InvalidInput
        As in `read_table`; for a dataset that does not exist with the names that may be meant.

    Examples
    --------
    >>> import polars as pl
    >>> import pyarrow as pa
    >>> from kartothek_cube import open_store, scan_dataset
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> store = open_store("hmemory://")
    >>> sales = pa.table({"PRODUCT_ID": [1, 2], "UNITS": [3, None]})
    >>> _ = store_dataframes_as_dataset(store, "sales", [sales])
    >>> scan_dataset("sales", store).filter(pl.col("UNITS").is_null()).collect().to_dicts()
    [{'PRODUCT_ID': 2, 'UNITS': None}]
    """
    require("polars")
    from kartothek_cube.engines.polars import lazy_frame

    with operation("scan_dataset", options):
        opened = open_instrumented(store)
        pinned = open_dataset_table(
            dataset_uuid, opened, "scan_dataset", current_options(options), table=table, as_of=as_of
        )
        return lazy_frame(pinned)


def connect(store: StoreLike, *, as_of: AsOf | None = None, options: Overrides | None = None) -> Connection:
    """A connection of DuckDB in which the cubes and datasets of a store are tables.

    A cube is a table under its prefix, a dataset under its uuid: ``FROM sales``, ``FROM
    "sales++products"``. Where a prefix is also a uuid, the cube is meant; of a dataset with
    several tables, the one called ``table``, else the first. Tables are found when a statement
    names them, and ``information_schema.tables`` lists all of them. Columns and filters are pushed
    down, results are streamed. The table functions ``kartothek_changes('sales', since => …)`` and
    ``kartothek_change_counts``, and the method ``changes``, compare two states. See the page *SQL
    and lazy frames*.

    Parameters
    ----------
    store : str, path, store or callable
        The store, in any form that `open_store` takes.
    as_of : str or datetime, optional
        A moment, a tag, or the id of a commit: all statements see this state. By default each
        statement sees the newest state.
    options : optional
        Settings for all statements of the connection, from `options`.

    Returns
    -------
    duckdb.DuckDBPyConnection
        An in-memory database. It has all that DuckDB has: joins, window functions, tables and
        views of its own, variables of Python as tables. A table or view of its own wins over a cube
        of the same name, a cube over a variable. It cannot write to cubes.

    Raises
    ------
    MissingExtra
        If DuckDB is not installed or too old: ``pip install 'kartothek-cube[sql]'``.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube, connect, open_store
    >>> store = open_store("hmemory://")
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> sales = pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = build_cube(sales, cube, store)
    >>> connection = connect(store)
    >>> connection.sql("SELECT UNITS FROM sales WHERE COUNTRY_CODE = 'FR'").fetchall()
    [(4,)]
    """
    require("sql")
    from kartothek_cube.engines.duckdb import StoreConnection

    with operation("connect", options):
        return StoreConnection(open_instrumented(store), check_as_of(as_of), current_options(options))


def scan_cube_daft(
    cube: Cube | str,
    store: StoreLike,
    *,
    datasets: IntoDatasets = None,
    dimension_columns: Columns = None,
    as_of: AsOf | None = None,
    options: Overrides | None = None,
) -> DataFrame:
    """A cube as a lazy data frame of Daft; parameters, state and errors as of `scan_cube`.

    Columns, filters and limits are pushed down. The rows of a partition of the cube come from one
    task, so that groups by the partition columns need no shuffle.

    Returns
    -------
    daft.DataFrame
        Columns of `query_cube_arrow`, in no particular order of rows.

    Raises
    ------
    MissingExtra
        If Daft is not installed or too old: ``pip install 'kartothek-cube[daft]'``.
    """
    require("daft")
    from kartothek_cube.engines.daft import TableSource

    with operation("scan_cube_daft", options, cube=cube):
        table = open_cube_table(
            cube,
            open_instrumented(store),
            "scan_cube_daft",
            current_options(options),
            datasets=datasets,
            dimension_columns=dimension_columns,
            as_of=as_of,
        )
        return TableSource(table).read()
