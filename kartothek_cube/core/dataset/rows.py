"""The verbs `delete_rows`, `update_rows` and `merge_dataset`: one commit each."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.types as pt
from msgspec.structs import replace

from kartothek_cube.core.arguments import check_flag, did_you_mean
from kartothek_cube.core.arrow.types import normal_type, unify
from kartothek_cube.core.commit.change import OnConflict, check_on_conflict
from kartothek_cube.core.commit.commit import commit_change
from kartothek_cube.core.commit.dataset_write import repeat_on_conflict
from kartothek_cube.core.dataset.reference import DatasetRef, target_of
from kartothek_cube.core.expressions.predicates import Predicates, columns_of, is_null, parse_predicates
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.rows.edits import (
    DeleteRows,
    MergeRows,
    RewriteSpec,
    RowEdit,
    RowsReport,
    StoredFile,
    UpdateRows,
    Values,
    WhenMatched,
    rewrite_spec,
)
from kartothek_cube.core.rows.merge import (
    WhenNotMatched,
    check_same_source,
    merge_rules,
    merge_source,
    plan_merge,
    with_source_types,
)
from kartothek_cube.core.rows.run import (
    RowsPlan,
    RowsSearch,
    StagedRows,
    check_seed_stays,
    dry_report,
    plan_rows,
    stage_rows,
)
from kartothek_cube.core.runtime.executor import THREADS
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.scan.plan import labels_of, make_file_plan
from kartothek_cube.core.snapshots.loader import KeptFiles, load_snapshot
from kartothek_cube.core.stores.contract import Store, check_store_can_commit
from kartothek_cube.core.stores.uploads import uploading
from kartothek_cube.core.write.input_rows import as_items, is_lazy
from kartothek_cube.errors import InvalidInput, InvalidType, UnknownColumn
from kartothek_cube.typing import Columns, Executor, IntoItems, IntoPredicates, StoreLike


def delete_rows(
    dataset_uuid: str,
    store: StoreLike,
    predicates: IntoPredicates,
    *,
    on_conflict: OnConflict = "raise",
    dry_run: bool = False,
    options: Overrides | None = None,
    executor: Executor = THREADS,
) -> RowsReport:
    """Delete the rows that satisfy predicates, in one commit.

    Partition values, secondary indices and statistics of row groups say which files may have such
    rows; only files that have some are written anew, and files without other rows are removed. A
    null satisfies ``!=`` and ``not in``, but no comparison by order. In a dataset of a cube stored
    rows count, also those that newer ones override: call `delete_cells` there. See the page *Rows*.

    Parameters
    ----------
    dataset_uuid : str
        The dataset.
    store : str, path, store or callable
        The store, in any form that `open_store` takes.
    predicates : list of list of tuple
        ``[[(column, op, value), ...], ...]`` as in `read_table`: rows that satisfy all clauses of
        one of the lists. None is refused.
    on_conflict : {"raise", "reapply"}
        What to do if another writer replaced or removed one of the files meanwhile. ``"raise"``:
        `CommitConflict`. ``"reapply"``: the rows are searched again in the newest state. Files that
        others add are no conflict.
    dry_run : bool, default False
        Only report what would be done. Files are read as far as the search needs it.
    options : optional
        Settings for this call, from `options`.
    executor : Executor, optional
        What runs the work on files, by default threads of this process.

    Returns
    -------
    RowsReport
        Numbers of rows and files, bytes, and the id of the commit, None with nothing to do.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist.
    InvalidInput, InvalidType, UnknownColumn
        If the predicates are None or do not fit the dataset. `InvalidRequest` if its document lists
        no partitions, `Unsupported` if it has several tables.
    CommitConflict
        If another writer replaced or removed one of the files. Nothing has changed.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import delete_rows, read_table, store_dataframes_as_dataset
    >>> store = open_store("hmemory://")
    >>> orders = pd.DataFrame({"CUSTOMER_ID": [7, 8, 7], "AMOUNT": [10.0, 20.0, 30.0]})
    >>> _ = store_dataframes_as_dataset(store, "orders", [orders], secondary_indices="CUSTOMER_ID")
    >>> delete_rows("orders", store, [[("CUSTOMER_ID", "==", 7)]]).deleted
    2
    >>> read_table("orders", store)
       AMOUNT  CUSTOMER_ID
    0    20.0            8
    """
    with operation("delete_rows", options):
        target, parsed = target_of(store, dataset_uuid), _required(predicates, dataset_uuid)

        def plan(store: Store, base: Snapshot, spec: RewriteSpec) -> RowsPlan:
            return _plan_where(store, base, spec, DeleteRows(parsed), executor)

        return run_rows(target, plan, on_conflict, dry_run, executor)


def update_rows(
    dataset_uuid: str,
    store: StoreLike,
    predicates: IntoPredicates,
    values: Mapping[str, object] | Callable[[pa.Table], pa.Table],
    *,
    on_conflict: OnConflict = "raise",
    dry_run: bool = False,
    options: Overrides | None = None,
) -> RowsReport:
    """Give other values to the rows that satisfy predicates, in one commit.

    Files are found and written as by `delete_rows`; rows keep their places. Where a partition
    column changes, rows move to files of the other partition. See the page *Rows*.

    Parameters
    ----------
    dataset_uuid, store, predicates, on_conflict, options
        As in `delete_rows`.
    values : dict or callable
        Column → value, None for null. Or a function: it gets the matching rows of one file, a
        `pyarrow.Table` with all columns of the dataset, and returns a table of equal length and
        schema. It is called once for each file, in threads.
    dry_run : bool, default False
        Only report what would be done. A function is not called.

    Returns
    -------
    RowsReport
        As of `delete_rows`.

    Raises
    ------
    DatasetNotFound, CommitConflict
        As in `delete_rows`.
    InvalidInput, InvalidType, UnknownColumn
        As in `delete_rows`; if a value does not fit its column, a partition column would be null,
        a cell of a cube would get another address, or the function returns something else. Nothing
        has changed then.

    Examples
    --------
    >>> import pandas as pd
    >>> import pyarrow.compute as pc
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import read_table, store_dataframes_as_dataset, update_rows
    >>> store = open_store("hmemory://")
    >>> prices = pd.DataFrame({"PRODUCT_ID": [1, 2], "CURRENCY": ["DM", "EUR"], "PRICE": [2.0, 3]})
    >>> _ = store_dataframes_as_dataset(store, "prices", [prices])
    >>> def in_euro(rows):
    ...     rows = rows.set_column(1, "PRICE", pc.divide(rows["PRICE"], 2.0))
    ...     return rows.set_column(0, "CURRENCY", [["EUR"] * len(rows)])
    >>> update_rows("prices", store, [[("CURRENCY", "==", "DM")]], in_euro).updated
    1
    >>> read_table("prices", store)
      CURRENCY  PRICE  PRODUCT_ID
    0      EUR    1.0           1
    1      EUR    3.0           2
    """
    with operation("update_rows", options):
        target, parsed = target_of(store, dataset_uuid), _required(predicates, dataset_uuid)

        def plan(store: Store, base: Snapshot, spec: RewriteSpec) -> RowsPlan:
            typed, new = _checked_values(values, spec)
            fixed = () if spec.cube is None else spec.cube.cell_columns(spec.schema.names)
            edit = UpdateRows(parsed, new, spec.partition_keys, fixed, spec.uuid)
            return _plan_where(store, base, typed, edit, THREADS)

        return run_rows(target, plan, on_conflict, dry_run, THREADS)


def merge_dataset(
    data: IntoItems,
    store: StoreLike,
    dataset_uuid: str,
    on: Columns,
    *,
    when_matched: WhenMatched = "update",
    when_not_matched: WhenNotMatched = "insert",
    when_not_matched_by_source: str | None = None,
    on_conflict: OnConflict = "raise",
    dry_run: bool = False,
    options: Overrides | None = None,
) -> RowsReport:
    """Merge rows into a dataset by key columns (upsert), in one commit.

    The keys are looked up in partition values and index files first, as one set; then the key
    columns of the files that are left say which of them have matches. Only those are written anew.
    See the page *Rows*.

    Parameters
    ----------
    data : rows or iterable of rows
        The source, in any form that `store_dataframes_as_dataset` takes, also a stream. Each key
        occurs once, without nulls. Many rows wait in a temporary file.
    store : str, path, store or callable
        The store, in any form that `open_store` takes.
    dataset_uuid : str
        The dataset, which exists.
    on : str or list of str
        The key columns.
    when_matched : {"update", "ignore", "delete", "error"}
        What happens to all rows of the dataset that have a key of the source. ``"update"`` sets the
        columns that the source has; rows whose partition columns change move.
    when_not_matched : {"insert", "ignore"}
        What happens to source rows whose key the dataset lacks. Columns that the source lacks are
        null in new rows.
    when_not_matched_by_source : {None, "delete"}
        ``"delete"``: rows of the dataset whose key the source lacks are deleted, also those with a
        null in a key column.
    on_conflict, dry_run, options
        As in `delete_rows`. A key that another writer appends meanwhile is no conflict: it occurs
        twice then.

    Returns
    -------
    RowsReport
        As of `delete_rows`.

    Raises
    ------
    DatasetNotFound, CommitConflict
        As in `delete_rows`.
    InvalidInput, InvalidType, UnknownColumn
        If a column is missing, unknown or of another type, a key is null or occurs twice in the
        source, or ``when_matched`` is ``"error"`` and a key is there. Nothing has changed then.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import merge_dataset, read_table
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> store = open_store("hmemory://")
    >>> stock = pd.DataFrame({"PRODUCT_ID": [1, 2], "STOCK": [10, 20]})
    >>> _ = store_dataframes_as_dataset(store, "stock", [stock])
    >>> counted = pd.DataFrame({"PRODUCT_ID": [2, 3], "STOCK": [19, 5]})
    >>> report = merge_dataset(counted, store, "stock", on="PRODUCT_ID")
    >>> report.updated, report.inserted
    (1, 1)
    >>> read_table("stock", store)
       PRODUCT_ID  STOCK
    0           1     10
    1           2     19
    2           3      5
    """
    with operation("merge_dataset", options):
        target = target_of(store, dataset_uuid)
        # A stream can be read only once, so bad arguments are refused before.
        check_on_conflict(on_conflict)
        if not check_flag(dry_run, "dry_run"):
            check_store_can_commit(target.store)
        first = load_snapshot(target.store, target.uuid)
        spec = rewrite_spec(first)
        rules = merge_rules(spec, on, when_matched, when_not_matched, when_not_matched_by_source)
        items = as_items(data)
        with merge_source(items, spec, rules) as source:

            def plan(store: Store, base: Snapshot, spec: RewriteSpec) -> RowsPlan:
                check_same_source(source.rows.schema, spec, rules)
                typed = with_source_types(spec, source.rows.schema)
                edit = MergeRows(source, rules.when_matched, rules.deletes_others, spec.partition_keys)
                planned = plan_merge(store, base, typed, edit, source, rules, THREADS)
                return replace(planned, source=source.rows) if rules.inserts else planned

            # A stream may take long: the dataset is looked at again when it has ended.
            known = None if is_lazy(items) else first
            return run_rows(target, plan, on_conflict, dry_run, THREADS, first=known)


def _required(predicates: IntoPredicates, uuid: str) -> Predicates:
    is_empty = isinstance(predicates, (list, tuple)) and not predicates
    parsed = None if is_empty else parse_predicates(predicates)
    if parsed is None:
        raise InvalidInput(
            f"Which rows of dataset {uuid!r}? Predicates are needed: without them all rows would be meant. "
            "To remove whole partitions, call update_dataset_from_dataframes with delete_scope."
        )
    return parsed


def _plan_where(store: Store, base: Snapshot, spec: RewriteSpec, edit: RowEdit, executor: Executor) -> RowsPlan:
    """Search the files that partition values and indices leave."""
    plan = make_file_plan(store, base, spec.table, sorted(columns_of(edit.predicates)), edit.predicates)
    files = [
        StoredFile(label, task.key, task.constants)
        for label, task in zip(labels_of(plan, base, spec.table), plan.tasks(), strict=True)
    ]
    (planned,) = plan_rows(store, [RowsSearch(base, spec, edit, files)], executor)
    return planned


def run_rows(
    target: DatasetRef,
    plan: Callable[[Store, Snapshot, RewriteSpec], RowsPlan],
    on_conflict: object,
    dry_run: object,
    executor: Executor,
    stage: Callable[[Store, RowsPlan, Executor], StagedRows] = stage_rows,
    first: Snapshot | None = None,
) -> RowsReport:
    """Plan on the newest state, write, commit; with "reapply" again if others came first.

    ``first`` is the newest state if the caller has just read it.
    """
    mode, dry = check_on_conflict(on_conflict), check_flag(dry_run, "dry_run")
    if not dry:
        check_store_can_commit(target.store)

    known = [first] if first is not None else []

    def attempt() -> RowsReport:
        base = known.pop() if known else load_snapshot(target.store, target.uuid)
        with uploading(target.store) as opened:
            store = KeptFiles(opened)
            planned = plan(store, base, rewrite_spec(base))
            check_seed_stays(planned)
            if dry or not planned:
                return dry_report(planned, dry_run=dry)
            staged = stage(store, planned, executor)
            commit_change(store, staged.change, base)
            return staged.report

    return repeat_on_conflict(attempt) if mode == "reapply" and not dry else attempt()


def _checked_values(values: object, spec: RewriteSpec) -> tuple[RewriteSpec, Values]:
    """The argument ``values`` in the types of the dataset; and the types of columns without one.

    Raises
    ------
    InvalidInput, InvalidType, UnknownColumn
        If a column is unknown, or a value does not fit it.
    """
    if callable(values):
        return spec, values
    if not isinstance(values, Mapping) or not values:
        raise InvalidType(
            f"values for dataset {spec.uuid!r} are a dict column → value or a function of a pyarrow.Table, "
            f"not {values!r:.200}."
        )
    unknown = sorted(map(str, set(values) - set(spec.schema.names)))
    if unknown:
        raise UnknownColumn(
            f"values name columns that dataset {spec.uuid!r} does not have: {', '.join(unknown)}. "
            f"It has {spec.schema.names}.{did_you_mean(unknown, spec.schema.names)}"
        )
    scalars = {name: _scalar(value, spec.schema.field(name), spec) for name, value in values.items()}
    return with_source_types(spec, pa.schema([(name, scalar.type) for name, scalar in scalars.items()])), scalars


def _scalar(value: object, field: pa.Field, spec: RewriteSpec) -> pa.Scalar:
    if spec.cube is not None and field.name in spec.cube.cell_columns([field.name]):
        raise InvalidInput(
            f"Column {field.name!r} addresses the cells of the cube that dataset {spec.uuid!r} belongs to, and cannot "
            "change. Append the cell with its new address, and call delete_cells for the old one."
        )
    try:
        scalar = _exact(value, field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InvalidType(
            f"The value {value!r:.200} does not fit column {field.name!r} of dataset {spec.uuid!r}, "
            f"which is {field.type}: {error}"
        ) from None
    if field.name in spec.partition_keys and not scalar.is_valid:
        raise InvalidInput(f"Column {field.name!r} is a partition column of dataset {spec.uuid!r}; it cannot be null.")
    return scalar


def _exact(value: object, data_type: pa.DataType) -> pa.Scalar:
    """The value in the type of its column; a null column takes any type.

    Raises
    ------
    pyarrow.ArrowException, TypeError, ValueError, OverflowError
        If the type cannot hold the whole value.
    """
    if is_null(value) and not isinstance(value, (float, pa.Scalar)):
        value = None  # all the nulls that pandas has
    elif isinstance(value, np.datetime64):
        # pyarrow converts it to another unit only by a cast.
        value = pa.scalar(value).cast(data_type) if pt.is_timestamp(data_type) else pa.scalar(value)
    given = value if isinstance(value, pa.Scalar) else pa.scalar(value, None if pt.is_null(data_type) else data_type)
    if pt.is_null(data_type):
        return given.cast(normal_type(given.type))
    unify([pa.schema([("value", data_type)]), pa.schema([("value", given.type)])], "the value")
    scalar = given.cast(data_type)
    plain, kept = value.as_py() if isinstance(value, pa.Scalar) else value, scalar.as_py()
    # pyarrow cuts fractions, times of day and nanoseconds off, and takes numbers for days.
    is_cut = pt.is_integer(data_type) and kept != plain
    is_cut |= pt.is_date(data_type) and kept != plain and dt.datetime.combine(kept, dt.time()) != plain
    is_cut |= pt.is_timestamp(data_type) and (isinstance(plain, int) or (getattr(plain, "nanosecond", 0) % 1000 > 0))
    is_cut |= pt.is_floating(data_type) and kept in (float("inf"), float("-inf")) and kept != plain
    if isinstance(plain, (bool, np.bool_)) and not pt.is_boolean(data_type):
        raise TypeError("it is a truth value.")
    zone = plain.tzinfo if isinstance(plain, dt.datetime) else None
    if isinstance(plain, dt.datetime) and pt.is_timestamp(data_type) and (zone is None) != (data_type.tz is None):
        raise TypeError("one of them has a time zone and the other has none.")
    if is_cut:
        raise ValueError(f"it would become {kept!r}.")
    return scalar
