"""Reading one table of a dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import pandas as pd
import pyarrow as pa

from kartothek_cube.core.frames import to_frame
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.naming import SINGLE_TABLE
from kartothek_cube.core.options import Overrides, use_options
from kartothek_cube.core.parallel import run
from kartothek_cube.core.parquet import read_rows
from kartothek_cube.core.predicates import Predicates, parse_predicates
from kartothek_cube.core.rowkeys import empty_rows
from kartothek_cube.core.scan import ScanPlan, ScanTask, indexed_clauses, needed_indices, plan_scan
from kartothek_cube.core.snapshots import load_index, load_snapshot
from kartothek_cube.core.store import Store
from kartothek_cube.core.stores import open_store
from kartothek_cube.errors import InvalidInput, InvalidType, KeyNotFound

__all__ = ["read_table", "read_table_arrow"]


def read_table(
    dataset_uuid: str | None = None,
    store: Any = None,
    table: str = SINGLE_TABLE,
    columns: Iterable[str] | Mapping[str, Iterable[str]] | None = None,
    concat_partitions_on_primary_index: bool = False,
    predicate_pushdown_to_io: bool = True,
    categoricals: Iterable[str] | Mapping[str, Iterable[str]] | None = None,
    label_filter: Callable[[str], bool] | None = None,
    dates_as_object: bool = False,
    predicates: Any = None,
    factory: Any = None,
    *,
    options: Overrides | None = None,
) -> pd.DataFrame:
    """Read one table of a dataset as one pandas frame.

    Parameters
    ----------
    dataset_uuid : str
        The dataset.
    store : str, path, store or callable
        Where it lies; everything that `open_store` takes.
    table : str, default "table"
        Which table of the dataset.
    columns : list of str, optional
        Columns to return, in this order. By default all: partition keys first, then the others by name.
    concat_partitions_on_primary_index, predicate_pushdown_to_io : bool
        Accepted from kartothek; the result does not depend on them.
    categoricals : list of str, optional
        Columns to return as pandas categoricals.
    label_filter : callable, optional
        Called with each label that is left; a partition is read if it returns True.
    dates_as_object : bool, default False
        Return dates as ``datetime.date`` objects and not as ``datetime64``.
    predicates : list of list of tuple, optional
        ``[[(column, operator, value), ...], ...]``: an OR of ANDs. Operators: ``== != < <= > >= in``.
    factory : DatasetFactory, optional
        Not yet supported; give ``dataset_uuid`` and ``store``.
    options : optional
        What `options` returns: settings for this call.

    Returns
    -------
    pandas.DataFrame
        All matching rows with a fresh row index, in the types of the dataset's schema whatever files match.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist in the store.
    KeyNotFound
        If the table, or a file that the dataset names, does not exist.
    InvalidInput, InvalidType
        If columns or predicates do not fit the dataset.

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
    with use_options(options):
        if factory is not None or dataset_uuid is None or store is None:
            raise InvalidInput("Need to supply `dataset_uuid` and `store`.")
        wanted = _names(columns, table, "columns")
        result = _read(dataset_uuid, store, table, wanted, predicates, label_filter)
        return to_frame(result, dates_as_object=dates_as_object, categoricals=_names(categoricals, table, "categoricals") or [])


def read_table_arrow(
    dataset_uuid: str,
    store: Any,
    columns: Iterable[str] | None = None,
    predicates: Any = None,
    table: str = SINGLE_TABLE,
    *,
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
    with use_options(options):
        return _read(dataset_uuid, store, table, _names(columns, table, "columns"), predicates, None)


def _names(columns: Any, table: str, argument: str) -> list[str] | None:
    if isinstance(columns, Mapping):
        if table not in columns:
            raise InvalidInput(f"Provided table {table!r} is not compatible with the argument {argument}, which is for the tables {sorted(columns)}.")
        columns = columns[table]
    if columns is None:
        return None
    if not isinstance(columns, list):
        raise InvalidType(f"Unknown type encountered for argument {argument}: give a list of column names, not {type(columns).__name__}.")
    return [str(c) for c in columns]


def _read(uuid: str, store: Any, table: str, columns: list[str] | None, predicates: Any, label_filter: Callable[[str], bool] | None) -> pa.Table:
    if not isinstance(table, str):
        raise InvalidType(f"Argument `table` needs to be a string, got {type(table).__name__}.")
    asked = parse_predicates(predicates)
    opened = open_store(store)
    snapshot = load_snapshot(opened, uuid)
    plan = make_scan_plan(opened, snapshot, table, columns, asked)
    if label_filter is not None:
        plan = _filtered(plan, snapshot, table, label_filter)
    return load_scan(opened, plan)


def make_scan_plan(store: Store, snapshot: Snapshot, table: str, columns: list[str] | None, predicates: Predicates | None) -> ScanPlan:
    """Check columns and predicates against the snapshot, load the indices that help, and plan."""
    if table not in snapshot.schemas:
        raise KeyNotFound(f"Dataset {snapshot.uuid!r} has no table {table!r}, only {list(snapshot.tables)}.")
    schema = snapshot.schemas[table]
    chosen = list(schema.names) if columns is None else columns
    unknown = sorted(set(chosen) - set(schema.names))
    if unknown or len(set(chosen)) != len(chosen):
        what = f"Columns cannot be found: {', '.join(unknown)}" if unknown else "A column is asked for twice"
        raise InvalidInput(f"{what} in dataset {snapshot.uuid!r}, which has {schema.names}.")
    names = needed_indices(snapshot, predicates) & set(schema.names)
    # Of an index for a single conjunction only the matching row groups are read.
    clauses = indexed_clauses(predicates[0], names) if predicates is not None and len(predicates) == 1 else {}
    indices = run(lambda c: load_index(store, snapshot, c, clauses.get(c, ()))[0], sorted(names))
    return plan_scan(snapshot, table, chosen, predicates, dict(zip(sorted(names), indices, strict=True)))


def _filtered(plan: ScanPlan, snapshot: Snapshot, table: str, label_filter: Callable[[str], bool]) -> ScanPlan:
    files = snapshot.partitions.files.get(table, pa.nulls(len(snapshot.partitions), pa.string()))
    labels = dict(zip(files.to_pylist(), snapshot.partitions.labels.to_pylist(), strict=True))
    keep = pa.array([bool(label_filter(labels[key])) for key in plan.files.to_pylist()], type=pa.bool_())
    return replace(plan, files=plan.files.filter(keep), values=plan.values.filter(keep) if plan.values.num_columns else plan.values)


def load_scan(store: Store, plan: ScanPlan) -> pa.Table:
    """Read all files of a plan, in threads, in the order of the plan."""
    request = plan.request

    def load(task: ScanTask) -> pa.Table:
        return read_rows(store, task.key, request, task.constants)

    tables = list(run(load, plan.tasks()))
    if not request.columns:
        return empty_rows(sum(table.num_rows for table in tables))
    empty = pa.schema([request.schema.field(c) for c in request.columns]).empty_table()
    return pa.concat_tables(tables) if tables else empty
