"""Read a dataset: one table, frames by partition or group, a stream of batches, or the plan.

In order:

- rows
- `plan_table_scan`: which files a read of one table touches, and why
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.types as pt
from msgspec import Struct

from kartothek_cube.core.arguments import as_list, check_flag
from kartothek_cube.core.arrow.keys import pack_one
from kartothek_cube.core.arrow.pandas import to_frame
from kartothek_cube.core.dataset.reference import dataset_ref
from kartothek_cube.core.display import Explanation, Step, StepRow, clause_text, predicates_text
from kartothek_cube.core.expressions.predicates import Predicates, columns_of, parse_predicates
from kartothek_cube.core.io.parquet import open_file
from kartothek_cube.core.metadata.naming import SINGLE_TABLE
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.scan.execute import iter_groups, load_groups, load_scan, pages_step, stream_tables
from kartothek_cube.core.scan.plan import (
    FilePlan,
    GroupArguments,
    checked_categoricals,
    checked_label_filter,
    make_file_plan,
    names_of,
    rejects_null,
)
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.stores.open import open_instrumented
from kartothek_cube.errors import InvalidInput, InvalidType
from kartothek_cube.typing import AsOf, ColumnsByTable, IntoPredicates, StoreLike

if TYPE_CHECKING:
    import pandas as pd

    from kartothek_cube.core.kartothek.dataset_metadata import DatasetFactory


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
    """Read one table of a dataset as one pandas frame. See the page *Reading datasets*.

    Parameters
    ----------
    dataset_uuid : str, optional
        The dataset.
    store : str, path, store or callable, optional
        The store, in any form that `open_store` takes.
    table : str, default "table"
        The table.
    columns : list of str, or dict of table to list of str, optional
        Columns to return, in this order. By default all: partition keys first, then the others by
        name.
    concat_partitions_on_primary_index : bool, default False
        Order partitions by their partition values, instead of in the order of the document.
    predicate_pushdown_to_io : bool
        Accepted from kartothek; the result does not depend on it.
    categoricals : list of str, or dict of table to list of str, optional
        Columns to return as pandas categoricals, with the categories that occur in the result.
    label_filter : callable, optional
        Called with the label of each partition that pruning leaves; True means read.
    dates_as_object : bool, default False
        Return dates as ``datetime.date`` objects and not as ``datetime64``.
    predicates : list of list of tuple, optional
        ``[[(column, operator, value), ...], ...]``: an OR of ANDs, also on columns that are not
        returned.
    factory : DatasetFactory, optional
        Instead of ``dataset_uuid`` and ``store``: the dataset as the factory has loaded it.
    as_of : str or datetime, optional
        Id of a commit, a tag, or a moment (without a zone: UTC): read this past state. `history`
        lists commits and tags.
    options : optional
        Settings for this call, from `options`.

    Returns
    -------
    pandas.DataFrame
        All matching rows with a fresh row index, in the types of the dataset's schema. Integers and
        booleans with nulls have pandas' nullable types (``Int64``, ``boolean``): no value is
        rounded.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist.
    KeyNotFound
        If the table, or a file of the dataset, does not exist.
    UnknownColumn
        If the table lacks a column of ``columns`` or ``predicates``, or ``columns`` one of
        ``categoricals``.
    InvalidInput, InvalidType
        If arguments contradict each other or do not fit the dataset, or history does not reach
        back to ``as_of``.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.api.cube import Cube, build_cube
    >>> from kartothek_cube import open_store
    >>> store = open_store("hmemory://")
    >>> sales = pd.DataFrame({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = build_cube(sales, Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales"), store)
    >>> read_table("sales++seed", store, predicates=[[("COUNTRY_CODE", "==", "FR")]])
      COUNTRY_CODE  PRODUCT_ID  UNITS
    0           FR           2      4
    """
    with operation("read_table", options) as op:
        names, categories = names_of(columns, table, "columns"), names_of(categoricals, table, "categoricals")
        filters, by_label = parse_predicates(predicates), checked_label_filter(label_filter)
        in_order = check_flag(concat_partitions_on_primary_index, "concat_partitions_on_primary_index")
        as_objects = check_flag(dates_as_object, "dates_as_object")
        source = dataset_ref(dataset_uuid, store, factory, as_of)
        plan = make_file_plan(source.store, source.snapshot(), table, names, filters, by_label, keep=source.keep)
        encoded = checked_categoricals(categories, plan.request.columns, plan.request.schema, source.uuid)
        if in_order:  # stable: partitions of equal values stay in the order of the document
            plan = plan.take(np.argsort(pack_one(plan.values, plan.values.column_names), kind="stable"))
        rows = load_scan(source.store, plan, encoded)
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
    >>> from kartothek_cube import open_store
    >>> store = open_store("hmemory://")
    >>> sales = pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]})
    >>> _ = build_cube(sales, Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales"), store)
    >>> read_table_arrow("sales++seed", store, columns=["PRODUCT_ID"]).to_pydict()
    {'PRODUCT_ID': [1, 2]}
    """
    with operation("read_table_arrow", options) as op:
        names, filters = names_of(columns, table, "columns"), parse_predicates(predicates)
        source = dataset_ref(dataset_uuid, store, None, as_of)
        plan = make_file_plan(source.store, source.snapshot(), table, names, filters)
        return op.returned(load_scan(source.store, plan))


def _frame_without_rows(store: Store, plan: FilePlan, table: pa.Table, dates_as_object: bool) -> pd.DataFrame:
    """An empty result with the types that kartothek returns, on which code of users may rely."""
    # Dates of a dataset without partitions are timestamps, with or without `dates_as_object`.
    frame = to_frame(table, dates_as_object=dates_as_object and plan.total > 0, nullable=True)
    # Integers that pandas wrote as nullable have the type object. Only footers of files say which
    # columns these are: read one.
    integers = [f.name for f in table.schema if pt.is_integer(f.type)]
    key = plan.files[0].as_py() if integers and len(plan) else ""
    if not key.endswith(".parquet"):
        return frame
    with open_file(store, key, plan.request.dataset) as source:
        described = json.loads((source.metadata.metadata or {}).get(b"pandas", "{}")).get("columns", [])
    nullable = {c.get("name") for c in described if str(c.get("numpy_type")).startswith(("Int", "UInt"))}
    return frame.astype({c: object for c in integers if c in nullable})


def read_dataset_as_dataframes(
    dataset_uuid: str | None = None,
    store: StoreLike | None = None,
    tables: Iterable[str] | None = None,
    columns: ColumnsByTable = None,
    concat_partitions_on_primary_index: bool = False,
    predicate_pushdown_to_io: bool = True,
    categoricals: ColumnsByTable = None,
    label_filter: Callable[[str], bool] | None = None,
    dates_as_object: bool = False,
    predicates: IntoPredicates | None = None,
    factory: DatasetFactory | None = None,
    dispatch_by: Iterable[str] | None = None,
    *,
    as_of: AsOf | None = None,
    options: Overrides | None = None,
) -> list[dict[str, pd.DataFrame]]:
    """Read a dataset as one dict of frames per partition, or per value of indexed columns.

    See the page *Reading datasets*.

    Parameters
    ----------
    dataset_uuid : str, optional
        The dataset.
    store : str, path, store or callable, optional
        The store, in any form that `open_store` takes.
    tables : list of str, optional
        Tables to load; by default all. Unknown names are ignored.
    columns : list of str, or dict of table to list of str, optional
        Columns to return, in this order; a list where the dataset has one table. Of a table that is
        not a key, all: partition keys first, then the others by name.
    concat_partitions_on_primary_index : bool, default False
        The same as ``dispatch_by`` with the partition keys.
    predicate_pushdown_to_io : bool
        Accepted from kartothek; the result does not depend on it.
    categoricals : list of str, or dict of table to list of str, optional
        Columns to return as pandas categoricals; a list where the dataset has one table.
    label_filter : callable, optional
        Called with the label of each partition that pruning leaves; True means read.
    dates_as_object : bool, default False
        Return dates as ``datetime.date`` objects and not as ``datetime64``.
    predicates : list of list of tuple, optional
        ``[[(column, operator, value), ...], ...]``: an OR of ANDs. Every table that is read must
        have the columns.
    factory : DatasetFactory, optional
        Instead of ``dataset_uuid`` and ``store``: the dataset as the factory has loaded it.
    dispatch_by : str or list of str, optional
        Indexed columns, partition keys included. One entry per combination of their values,
        ascending; rows with a null in one of them are in no entry. ``[]``: always exactly one
        entry.
    as_of : str or datetime, optional
        As in `read_table`.
    options : optional
        Settings for this call, from `options`.

    Returns
    -------
    list of dict of str to pandas.DataFrame
        For each partition or group, one frame per table, with a fresh row index, in the types of
        the dataset's schema. Partitions are in the order of the document; a partition that pruning
        leaves has an entry even if none of its rows matches.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist.
    KeyNotFound
        If a file of the dataset does not exist.
    UnknownColumn
        If a table lacks a column of ``columns``, ``predicates`` or ``dispatch_by``.
    InvalidRequest
        If a column of ``dispatch_by`` has no index.
    InvalidInput, InvalidType
        If arguments contradict each other or do not fit the dataset, or history does not reach
        back to ``as_of``. No data file was read.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.api.cube import Cube, build_cube
    >>> from kartothek_cube import open_store
    >>> store = open_store("hmemory://")
    >>> sales = pa.table({"PRODUCT_ID": [1, 2, 3], "COUNTRY_CODE": ["FR", "DE", "DE"]})
    >>> _ = build_cube(sales, Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales"), store)
    >>> groups = read_dataset_as_dataframes("sales++seed", store, dispatch_by="COUNTRY_CODE")
    >>> groups[0]["table"]
      COUNTRY_CODE  PRODUCT_ID
    0           DE           2
    1           DE           3
    """
    from kartothek_cube.core.scan.execute import make_group_plan

    with operation("read_dataset_as_dataframes", options) as op:
        source, convert = dataset_ref(dataset_uuid, store, factory, as_of), _frames_of(dates_as_object)
        arguments = _arguments(
            tables, columns, categoricals, label_filter, predicates, dispatch_by, concat_partitions_on_primary_index
        )
        plan = make_group_plan(source.store, source.snapshot(), arguments, keep=source.keep)
        return [op.returned(frames, _rows) for frames in load_groups(source.store, plan, convert)]


def read_dataset_as_dataframes__iterator(
    dataset_uuid: str | None = None,
    store: StoreLike | None = None,
    tables: Iterable[str] | None = None,
    columns: ColumnsByTable = None,
    concat_partitions_on_primary_index: bool = False,
    predicate_pushdown_to_io: bool = True,
    categoricals: ColumnsByTable = None,
    label_filter: Callable[[str], bool] | None = None,
    dates_as_object: bool = False,
    predicates: IntoPredicates | None = None,
    factory: DatasetFactory | None = None,
    dispatch_by: Iterable[str] | None = None,
    *,
    as_of: AsOf | None = None,
    options: Overrides | None = None,
) -> Iterator[dict[str, pd.DataFrame]]:
    """Read a dataset entry by entry, with bounded memory, as `read_dataset_as_dataframes` does.

    Arguments are checked by the call, not by the first step. Threads load the next entries while
    the caller works on one: as many as fit into the option ``bytes_in_flight``. The options of the
    call hold for all entries.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.api.cube import Cube, build_cube
    >>> from kartothek_cube import open_store
    >>> store = open_store("hmemory://")
    >>> sales = pa.table({"PRODUCT_ID": [1, 2, 3], "COUNTRY_CODE": ["FR", "DE", "DE"]})
    >>> _ = build_cube(sales, Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales"), store)
    >>> groups = read_dataset_as_dataframes__iterator("sales++seed", store)
    >>> [len(frames["table"]) for frames in groups]
    [2, 1]
    """
    from kartothek_cube.core.scan.execute import make_group_plan

    with operation("read_dataset_as_dataframes__iterator", options) as op:
        source, convert = dataset_ref(dataset_uuid, store, factory, as_of), _frames_of(dates_as_object)
        arguments = _arguments(
            tables, columns, categoricals, label_filter, predicates, dispatch_by, concat_partitions_on_primary_index
        )
        plan = make_group_plan(source.store, source.snapshot(), arguments, keep=source.keep)
        return op.lasting(iter_groups(source.store, plan, convert), _rows)


def _arguments(
    tables: Iterable[str] | None,
    columns: ColumnsByTable,
    categoricals: ColumnsByTable,
    label_filter: Callable[[str], bool] | None,
    predicates: IntoPredicates | None,
    dispatch_by: Iterable[str] | None,
    by_partition_keys: bool,
) -> GroupArguments:
    by_keys = check_flag(by_partition_keys, "concat_partitions_on_primary_index")
    if by_keys and dispatch_by is not None:
        raise InvalidInput(
            "Both `dispatch_by` and `concat_partitions_on_primary_index` are provided; "
            "the latter means dispatch by the partition keys."
        )
    return GroupArguments(
        None if tables is None else {str(table) for table in as_list(tables, "tables")},
        columns,
        categoricals,
        parse_predicates(predicates),
        checked_label_filter(label_filter),
        None if dispatch_by is None else as_list(dispatch_by, "dispatch_by"),
        by_keys,
    )


def _frames_of(dates_as_object: bool) -> Callable[[dict[str, pa.Table]], dict[str, pd.DataFrame]]:
    as_objects = check_flag(dates_as_object, "dates_as_object")
    return lambda tables: {name: to_frame(t, dates_as_object=as_objects, nullable=True) for name, t in tables.items()}


def _rows(frames: Mapping[str, pd.DataFrame]) -> int:
    return sum(map(len, frames.values()))


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

    Threads read files ahead: as many as fit into the option ``bytes_in_flight``, at least one. A
    larger Parquet file is read in pieces, so memory depends neither on the number nor on the size
    of the files; only the compressed bytes of one row group are always in memory as a whole.
    Arguments are checked by the call. Data are read from the first batch on, in the state at the
    time of the call.

    Parameters
    ----------
    dataset_uuid, store, columns, predicates, table
        As in `read_table`.
    limit : int, optional
        Stop after this number of rows. No further file is read, except files already in flight.
    as_of : str or datetime, optional
        As in `read_table`.
    options : optional
        Settings for this call and for reading its batches, from `options`.

    Returns
    -------
    pyarrow.RecordBatchReader
        The matching rows in the types of the dataset's schema: files in the order of the document,
        rows in the order of their file. Polars, DuckDB and ``pyarrow.dataset.write_dataset`` read
        it.

    Raises
    ------
    DatasetNotFound, KeyNotFound, InvalidInput, InvalidType
        As in `read_table`; also if ``limit`` is not a number of rows. A missing file is an error at
        the step that reads the file.

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
        names, filters, rows = names_of(columns, table, "columns"), parse_predicates(predicates), checked_limit(limit)
        source = dataset_ref(dataset_uuid, store, None, as_of)
        plan = make_file_plan(source.store, source.snapshot(), table, names, filters)
        # Explicit, so that a stream without batches has a schema, too.
        schema = pa.schema([plan.request.schema.field(c) for c in plan.request.columns])
        batches = limited_batches(stream_tables(source.store, plan.request, plan.tasks()), rows)
        # The operation ends with the last batch, not with this call.
        return pa.RecordBatchReader.from_batches(schema, op.lasting(batches))


def checked_limit(limit: object, argument: str = "limit") -> int | None:
    """The argument ``limit``: a number of rows, or None for all."""
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int)):
        raise InvalidType(f"{argument} is a number of rows, not {type(limit).__name__}: {limit!r}.")
    if limit is not None and limit < 0:
        raise InvalidInput(f"{argument} is a number of rows, it cannot be {limit}.")
    return limit


def limited_batches(tables: Generator[pa.Table, None, None], limit: int | None) -> Iterator[pa.RecordBatch]:
    """The batches of the first ``limit`` rows."""
    with closing(tables):  # stops the threads that read ahead
        left = limit
        while left != 0 and (table := next(tables, None)) is not None:
            table = table if left is None else table.slice(0, left)
            left = left if left is None else left - table.num_rows
            yield from table.to_batches()


# --- plan_table_scan ------------------------------------------------------------------------------


# Without equality: Arrow columns inside have none that is a bool.
class ScanPlan(Struct, frozen=True, eq=False):
    """Which files a read of one table touches, and why. Made by `plan_table_scan`; picklable.

    Attributes
    ----------
    dataset, table : str
        What is read.
    partition_keys, secondary_indices : tuple of str
        Partition columns, and columns with a secondary index. In a past state, indices whose files
        are gone are left out.
    scan : object
        The files with their partition values, and what is read of each file.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> store = open_store("hmemory://")
    >>> sales = pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]})
    >>> _ = store_dataframes_as_dataset(store, "sales", [sales], partition_on="COUNTRY_CODE")
    >>> plan = plan_table_scan("sales", store, predicates=[[("COUNTRY_CODE", "==", "DE")]])
    >>> len(plan.files()), plan.partition_keys
    (1, ('COUNTRY_CODE',))
    """

    dataset: str
    table: str
    partition_keys: tuple[str, ...]
    secondary_indices: tuple[str, ...]
    scan: FilePlan

    def files(self) -> list[str]:
        """Keys of the files to read, in reading order."""
        return [str(key) for key in self.scan.files.to_pylist()]

    def explain(
        self,
        format: str = "text",  # noqa: A002 - the name users know from data frames
        store: StoreLike | None = None,
    ) -> str:
        """The files before and after each step of pruning, and the predicates left to the rows.

        Parameters
        ----------
        format : {"text", "html", "json"}
            JSON has all files, text and HTML the first few.
        store : store, URL or factory, optional
            Where the files are. With a store their footers are read, and a step *Pages* says how
            many pages there are, and how many of these are decoded.

        Raises
        ------
        InvalidInput
            If the format is none of these.
        """
        # Imported here: plans travel to Spark executors, which draw nothing.
        from kartothek_cube.core.display import render

        request = self.scan.request
        facts = (
            ("columns", ", ".join(request.columns) or "none"),
            ("predicates", predicates_text(request.predicates)),
            ("remaining", predicates_text(residual(request.predicates, self.partition_keys))),
        )
        title, files = f"Scan of table {self.table!r} of dataset {self.dataset!r}", self.files()
        pages = () if store is None else pages_step(open_instrumented(store), [(self.table, files, request)])
        return render(Explanation(title, facts, (_pruning_step(self), *pages), tuple(files)), format)

    def __len__(self) -> int:
        return len(self.scan)

    def __repr__(self) -> str:
        return f"ScanPlan(dataset={self.dataset!r}, table={self.table!r}, files={len(self.scan)} of {self.scan.total})"

    def _repr_html_(self) -> str:
        return self.explain("html")


def plan_table_scan(
    dataset_uuid: str,
    store: StoreLike,
    columns: Iterable[str] | Mapping[str, Iterable[str]] | None = None,
    predicates: IntoPredicates | None = None,
    table: str = SINGLE_TABLE,
    *,
    as_of: AsOf | None = None,
    options: Overrides | None = None,
) -> ScanPlan:
    """Plan the scan that `read_table` would do. See the page *Reading datasets*.

    Only the document and the needed indices are read, no data file.

    Parameters
    ----------
    dataset_uuid, store, columns, predicates, table, as_of
        As in `read_table`.
    options : optional
        Settings for this call, from `options`.

    Returns
    -------
    ScanPlan
        A value with ``files()`` and ``explain(format="text" | "html" | "json")``, shown as a table
        in notebooks.

    Raises
    ------
    DatasetNotFound, KeyNotFound, InvalidInput, InvalidType
        As in `read_table`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.api.cube import Cube, build_cube
    >>> from kartothek_cube import open_store
    >>> store = open_store("hmemory://")
    >>> sales = pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]})
    >>> _ = build_cube(sales, Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales"), store)
    >>> plan_table_scan("sales++seed", store, predicates=[[("COUNTRY_CODE", "==", "FR")]])
    ScanPlan(dataset='sales++seed', table='table', files=1 of 2)
    """
    with operation("plan_table_scan", options):
        names = names_of(columns, table, "columns")
        filters = parse_predicates(predicates)
        source = dataset_ref(dataset_uuid, store, None, as_of)
        snapshot = source.snapshot()
        plan = make_file_plan(source.store, snapshot, table, names, filters)
        return ScanPlan(snapshot.uuid, table, snapshot.partition_keys, tuple(sorted(snapshot.pruning_columns)), plan)


def _pruning_step(plan: ScanPlan) -> Step:
    first, *others = plan.scan.steps
    predicates = plan.scan.request.predicates
    keys, columns = set(plan.partition_keys), columns_of(predicates)
    by_value = ", ".join(sorted(columns & keys)) or "no predicate on a partition column"
    rows = [
        StepRow("partitions", plan.scan.total, first.before, "those that have a file of this table"),
        StepRow("partition values", first.before, first.after, by_value),
    ]
    steps = {step.column: step for step in others if not step.statistics}
    indexed = [c for c in plan.secondary_indices if c in columns - keys]
    for column in indexed:
        step = steps.get(column)  # None: the scan did not use the index
        before, after = (None, None) if step is None else (step.before, step.after)
        by_conjunction = [[c for c in conjunction if c.column == column] for conjunction in predicates or ()]
        unanswered = [clause for clauses in by_conjunction if not any(map(rejects_null, clauses)) for clause in clauses]
        texts = ", ".join(dict.fromkeys(map(clause_text, unanswered)))
        note = f"not asked for {texts}: null satisfies it, and the index has no nulls" if texts else ""
        rows.append(StepRow(f"secondary index on {column}", before, after, note))
    rows += [
        StepRow(f"statistics on {', '.join(s.statistics)}", s.before, s.after, "least and greatest values of each file")
        for s in others
        if s.statistics
    ]
    rest = ", ".join(sorted(columns - keys - set(indexed)))
    if rest:
        rows.append(StepRow("row groups and rows", None, None, f"{rest}: no index, answered inside the files"))
    return Step("Pruning", "files", tuple(rows))


def residual(predicates: Predicates | None, partition_keys: Iterable[str]) -> Predicates | None:
    """The predicates without clauses on partition keys; None if a conjunction has no others."""
    keys = set(partition_keys)
    rest = tuple(tuple(c for c in conjunction if c.column not in keys) for conjunction in predicates or ())
    return tuple(dict.fromkeys(rest)) if rest and all(rest) else None
