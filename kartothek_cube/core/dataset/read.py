"""Reading one table of a dataset at once, as a pandas frame or as an Arrow table."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from kartothek_cube.core.compat.factory import DatasetFactory
from kartothek_cube.core.dataset.arguments import check_flag, source_of
from kartothek_cube.core.dataset.load import load_scan
from kartothek_cube.core.dataset.plan import make_file_plan
from kartothek_cube.core.dataset.requests import checked_categoricals, checked_label_filter, names_of
from kartothek_cube.core.frames import to_frame
from kartothek_cube.core.naming import SINGLE_TABLE
from kartothek_cube.core.options import Overrides
from kartothek_cube.core.parquet import open_file
from kartothek_cube.core.predicates import parse_predicates
from kartothek_cube.core.rowkeys import pack_one
from kartothek_cube.core.scan import FilePlan
from kartothek_cube.core.store import Store
from kartothek_cube.core.telemetry import operation
from kartothek_cube.typing import AsOf, ColumnsByTable, IntoPredicates, StoreLike

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["read_table", "read_table_arrow"]


def read_table(
    dataset_uuid: str | None = None,
    store: StoreLike | None = None,
    table: str = SINGLE_TABLE,
    columns: ColumnsByTable = None,
    concat_partitions_on_primary_index: bool = False,
    predicate_pushdown_to_io: bool = True,
    categoricals: ColumnsByTable = None,
    label_filter: Callable[[str], bool] | None = None,
    dates_as_object: bool = False,
    predicates: IntoPredicates | None = None,
    factory: DatasetFactory | None = None,
    *,
    as_of: AsOf | None = None,
    options: Overrides | None = None,
) -> pd.DataFrame:
    """Read one table of a dataset as one pandas frame.

    Parameters
    ----------
    dataset_uuid : str, optional
        The dataset.
    store : str, path, store or callable, optional
        Where it lies; everything that `open_store` takes.
    table : str, default "table"
        Which table of the dataset.
    columns : list of str, or dict of table to list of str, optional
        Columns to return, in this order. By default all: partition keys first, then the others by name.
    concat_partitions_on_primary_index : bool, default False
        Order the partitions by the values of the partition columns instead of as the document lists them.
    predicate_pushdown_to_io : bool
        Accepted from kartothek; the result does not depend on it.
    categoricals : list of str, or dict of table to list of str, optional
        Columns to return as pandas categoricals, with the categories that occur in the result.
    label_filter : callable, optional
        Called with each label that is left; a partition is read if it returns True.
    dates_as_object : bool, default False
        Return dates as ``datetime.date`` objects and not as ``datetime64``.
    predicates : list of list of tuple, optional
        ``[[(column, operator, value), ...], ...]``: an OR of ANDs. Their columns need not be among ``columns``.
    factory : DatasetFactory, optional
        Instead of ``dataset_uuid`` and ``store``: the dataset as the factory has loaded it.
    as_of : str or datetime, optional
        A commit's id or a moment (without a zone: UTC): the dataset as it was then, instead of as it is. `history` lists the commits.
    options : optional
        What `options` returns: settings for this call.

    Returns
    -------
    pandas.DataFrame
        All matching rows with a fresh row index, in the types of the dataset's schema whatever files match. Integers and
        booleans with nulls come in pandas' nullable types (``Int64``, ``boolean``), so that no value is rounded.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist in the store.
    KeyNotFound
        If the table, or a file that the dataset names, does not exist.
    UnknownColumn
        If the table lacks a column of ``columns`` or ``predicates``, or ``columns`` one of ``categoricals``.
    InvalidInput, InvalidType
        If arguments contradict each other or do not fit the dataset, or its history does not reach back to ``as_of``.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.api.cube import Cube, build_cube
    >>> from kartothek_cube.core.stores import open_store
    >>> store = open_store("hmemory://")
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> _ = build_cube(pd.DataFrame({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]}), cube, store)
    >>> read_table("sales++seed", store, predicates=[[("COUNTRY_CODE", "==", "FR")]])
      COUNTRY_CODE  PRODUCT_ID  UNITS
    0           FR           2      4
    """
    with operation("read_table", options) as op:
        names, categories = names_of(columns, table, "columns"), names_of(categoricals, table, "categoricals")
        asked, wanted = parse_predicates(predicates), checked_label_filter(label_filter)
        in_order = check_flag(concat_partitions_on_primary_index, "concat_partitions_on_primary_index")
        as_objects = check_flag(dates_as_object, "dates_as_object")
        source = source_of(dataset_uuid, store, factory, as_of)
        plan = make_file_plan(source.store, source.snapshot(), table, names, asked, wanted, keep=source.keep)
        chosen = checked_categoricals(categories, plan.request.columns, plan.request.schema, source.uuid)
        if in_order:
            plan = plan.take(np.argsort(pack_one(plan.values, plan.values.column_names), kind="stable"))
        rows = load_scan(source.store, plan, chosen)
        if not rows.num_rows:
            return op.returned(_frame_without_rows(source.store, plan, rows, as_objects))
        return op.returned(to_frame(rows, dates_as_object=as_objects, nullable=True))


def read_table_arrow(
    dataset_uuid: str,
    store: StoreLike,
    columns: ColumnsByTable = None,
    predicates: IntoPredicates | None = None,
    table: str = SINGLE_TABLE,
    *,
    as_of: AsOf | None = None,
    options: Overrides | None = None,
) -> pa.Table:
    """Read one table of a dataset as one Arrow table; arguments and errors as in `read_table`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.api.cube import Cube, build_cube
    >>> from kartothek_cube.core.stores import open_store
    >>> store = open_store("hmemory://")
    >>> sales = pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]})
    >>> _ = build_cube(sales, Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales"), store)
    >>> read_table_arrow("sales++seed", store, columns=["PRODUCT_ID"]).to_pydict()
    {'PRODUCT_ID': [1, 2]}
    """
    with operation("read_table_arrow", options) as op:
        names, asked = names_of(columns, table, "columns"), parse_predicates(predicates)
        source = source_of(dataset_uuid, store, None, as_of)
        plan = make_file_plan(source.store, source.snapshot(), table, names, asked)
        return op.returned(load_scan(source.store, plan))


def _frame_without_rows(store: Store, plan: FilePlan, table: pa.Table, dates_as_object: bool) -> pd.DataFrame:
    """An empty result, with two habits of kartothek that its users' code may rely on.

    - A dataset without partitions answers with what it keeps of the schema, in which dates are timestamps whatever was asked for.
    - Integers that pandas wrote as nullable come without a type, ``object``. Only the footers of the files know which ones these are: one is read.
    """
    frame = to_frame(table, dates_as_object=dates_as_object and plan.total > 0, nullable=True)
    integers = [f.name for f in table.schema if pt.is_integer(f.type)]
    key = plan.files[0].as_py() if integers and len(plan) else ""
    if not key.endswith(".parquet"):
        return frame
    with open_file(store, key, plan.request.dataset) as source:
        described = json.loads((source.metadata.metadata or {}).get(b"pandas", "{}")).get("columns", [])
    nullable = {c.get("name") for c in described if str(c.get("numpy_type")).startswith(("Int", "UInt"))}
    return frame.astype({c: object for c in integers if c in nullable})
