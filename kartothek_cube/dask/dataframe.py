"""Datasets as frames of dask, under the names of ``kartothek.io.dask.dataframe``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import dask
import dask.dataframe as dd
import pandas as pd
import pyarrow as pa
from dask.dataframe.utils import UNKNOWN_CATEGORIES
from msgspec.structs import replace

from kartothek_cube.core.arguments import as_list
from kartothek_cube.core.commit.change import OnConflict
from kartothek_cube.core.dataset.maintain import collect_dataset_metadata as collect_dataset_metadata_eager
from kartothek_cube.core.dataset.maintain import hash_dataset as hash_dataset_eager
from kartothek_cube.core.dataset.reference import DatasetRef, dataset_ref, target_of
from kartothek_cube.core.expressions.predicates import parse_predicates
from kartothek_cube.core.io.formats import FileFormat
from kartothek_cube.core.kartothek.dataset_metadata import DatasetFactory
from kartothek_cube.core.metadata.document import check_version
from kartothek_cube.core.metadata.naming import SINGLE_TABLE
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.scan.plan import check_table, indices_for, make_file_plan, names_of
from kartothek_cube.core.snapshots.statistics import ROW_GROUP_SCHEMA
from kartothek_cube.core.stores.open import store_factory
from kartothek_cube.core.stores.shipping import Opener
from kartothek_cube.core.write.plan import plan_dataset_update, plan_new
from kartothek_cube.core.write.prepare import WriteRequest, derived_in
from kartothek_cube.dask.read import DatasetRead, DtypeBackend, GroupFiles, plan_read
from kartothek_cube.dask.stage import (
    Buckets,
    DatasetTarget,
    Planner,
    buckets_on_record,
    check_buckets,
    check_ddf,
    check_ratio,
    commit_staged,
    schema_of,
    shuffled,
    stage_frame,
    stage_shuffled,
)
from kartothek_cube.dask.tasks import constant, in_task, run_verb, task
from kartothek_cube.errors import InvalidInput, InvalidType
from kartothek_cube.typing import (
    AsOf,
    Columns,
    ColumnsByTable,
    DeleteScope,
    IntoMetadata,
    IntoPredicates,
    IntoTxn,
    MetadataMerger,
    StoreLike,
)

if TYPE_CHECKING:
    from dask.delayed import Delayed

__all__ = [
    "collect_dataset_metadata",
    "hash_dataset",
    "read_dataset_as_ddf",
    "store_dataset_from_ddf",
    "update_dataset_from_ddf",
]


# --- reads ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Partition:
    """Reads one partition of a frame of dask, of the columns that dask asks for."""

    read: DatasetRead
    index: str | None
    categories: Mapping[str, pd.CategoricalDtype]

    def __call__(self, group: GroupFiles | None, columns: Sequence[str] | None = None) -> pd.DataFrame:
        return in_task(self._load)(group, columns)

    def _load(self, group: GroupFiles | None, columns: Sequence[str] | None) -> pd.DataFrame:
        names = None if columns is None else [*columns, *([self.index] if self.index is not None else [])]
        if group is None:
            frame = self.read.empty() if names is None else self.read.empty()[names]
        else:
            (table,) = self.read.tables(group, names).values()
            frame = self.read.frame(table)
        known = {c: dtype for c, dtype in self.categories.items() if c in frame.columns}
        frame = frame.astype(known) if known else frame
        return frame if self.index is None else frame.set_index(self.index)


def read_dataset_as_ddf(
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
    dask_index_on: str | None = None,
    dispatch_by: Columns = None,
    *,
    dtype_backend: DtypeBackend | None = None,
    as_of: AsOf | None = None,
    options: Overrides | None = None,
) -> dd.DataFrame:
    """Read one table of a dataset as a frame of dask.

    The call plans the read: partition values, secondary indices and statistics exclude files. Each
    partition of the frame is one task, which reads one file, or with ``dispatch_by`` or
    ``dask_index_on`` one group. The plan names exact files, so each computation sees the dataset as
    it was then. dask's optimizer tells the tasks which columns they need.

    Parameters
    ----------
    dataset_uuid, store, table, columns, concat_partitions_on_primary_index, label_filter
        As in `kartothek_cube.api.dataset.read_table`. Workers open the same store, so other
        processes must see it.
    predicate_pushdown_to_io : bool
        Accepted from kartothek; the result does not depend on it.
    categoricals : list of str, optional
        Columns to return as categoricals. Of a column with a secondary index the categories are
        known to dask: all values of the index.
    dates_as_object, predicates, factory, as_of, options
        As in `kartothek_cube.api.dataset.read_table`.
    dask_index_on : str, optional
        An indexed column, which becomes the index of the frame: one partition for each value, in
        order, with known divisions.
    dispatch_by : str or list of str, optional
        Indexed columns: one partition for each combination of their values, in order.
    dtype_backend : {"pyarrow"}, optional
        As in ``pandas.read_parquet``: the exact types of Arrow, the same in each partition. By
        default the types of `read_table`, where integers with nulls are ``Int64``.

    Returns
    -------
    dask.dataframe.DataFrame
        Lazy. Without matching files it has one empty partition.

    Raises
    ------
    DatasetNotFound, KeyNotFound, UnknownColumn, InvalidInput, InvalidType
        As in `read_table`; the call raises them. `InvalidType` for a store that other processes
        cannot open, and for a ``dask_index_on`` that is no text.
    InvalidRequest
        If a column of ``dask_index_on`` or ``dispatch_by`` has no index.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> from kartothek_cube.dask.dataframe import read_dataset_as_ddf
    >>> sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = store_dataframes_as_dataset("hfs://ddf", "sales", [sales], partition_on="COUNTRY_CODE")
    >>> frame = read_dataset_as_ddf("sales", "hfs://ddf", dask_index_on="COUNTRY_CODE")
    >>> frame.divisions
    ('DE', 'FR', 'FR')
    >>> int(frame["UNITS"].sum().compute())
    7
    """
    with operation("read_dataset_as_ddf", options):
        _check_index(dask_index_on, dispatch_by)
        names, categories = names_of(columns, table, "columns"), names_of(categoricals, table, "categoricals")
        source = dataset_ref(dataset_uuid, store, factory, as_of)
        check_table(source.snapshot(), table)
        if dask_index_on is not None and names is not None and dask_index_on not in names:
            names = [*names, dask_index_on]
        plan = plan_read(
            dataset_uuid,
            store,
            factory,
            [table],
            None if names is None else {table: names},
            None if categories is None else {table: categories},
            label_filter,
            dates_as_object,
            predicates,
            dispatch_by if dask_index_on is None else [dask_index_on],
            concat_partitions_on_primary_index,
            as_of,
            dtype_backend,
        )
        encodes = plan.read.reads[0].categoricals
        known = _known_categories(source, encodes, plan.read)
        part = _Partition(plan.read, dask_index_on, known)
        divisions = None
        if dask_index_on is not None and plan.groups:
            values = plan.read.frame(plan.plan.groups.keys)[dask_index_on].tolist()
            divisions = (*values, values[-1])
        # dask would turn columns of objects, e.g. of dates, into text.
        with dask.config.set({"dataframe.convert-string": False}):
            return dd.from_map(
                part, plan.groups or [None], meta=_meta(part, encodes), divisions=divisions, enforce_metadata=False
            )


def _check_index(index: object, dispatch_by: object) -> None:
    if index is not None and not isinstance(index, str):
        raise InvalidType(
            f"The paramter `dask_index_on` must be a string but got {type(index).__name__}: "
            "give the name of one column."
        )
    if index is not None and dispatch_by is not None:
        raise InvalidInput(
            "`read_dataset_as_ddf` got parameters `dask_index_on` and `dispatch_by`. Note that `dispatch_by` can only "
            "be used if `dask_index_on` is None."
        )


def _known_categories(source: DatasetRef, encodes: Sequence[str], read: DatasetRead) -> dict[str, pd.CategoricalDtype]:
    """The categories of columns with a secondary index: all values of the index, in order."""
    snapshot = source.snapshot()
    indexed = [c for c in encodes if c in snapshot.secondary_columns]
    if not indexed:
        return {}
    indices = indices_for(source.store, snapshot, None, indexed, keep=source.keep)
    found = {}
    for column in indexed:
        distinct = indices[column].values.unique()
        values = read.frame(pa.table({column: distinct.take(pa.compute.array_sort_indices(distinct))}))
        found[column] = pd.CategoricalDtype(values[column])
    return found


def _meta(part: _Partition, encodes: Sequence[str]) -> pd.DataFrame:
    meta = part._load(None, None)  # noqa: SLF001
    for column in encodes:
        if column in meta.columns and column not in part.categories:
            meta[column] = meta[column].cat.set_categories([UNKNOWN_CATEGORIES])
    return meta


# --- writes ---------------------------------------------------------------------------------------


def store_dataset_from_ddf(
    ddf: dd.DataFrame,
    store: StoreLike,
    dataset_uuid: str | None,
    table: str = SINGLE_TABLE,
    secondary_indices: Columns = None,
    shuffle: bool = False,
    repartition_ratio: float | None = None,
    num_buckets: int = 1,
    sort_partitions_by: Columns = None,
    delete_scope: DeleteScope | None = None,
    metadata: IntoMetadata = None,
    df_serializer: FileFormat | None = None,
    metadata_merger: MetadataMerger | None = None,
    metadata_version: int = 4,
    partition_on: Columns = None,
    bucket_by: Columns = None,
    overwrite: bool = False,
    *,
    on_conflict: OnConflict = "raise",
    txn: IntoTxn | None = None,
    options: Overrides | None = None,
) -> Delayed:
    """Store the rows of a frame of dask as a new dataset, lazily.

    The call checks arguments and columns. Tasks stage the rows in files that no dataset refers to
    yet, and a last task publishes all of them in one commit. Tasks that dask runs again leave files
    for garbage collection and no duplicates. The same lazy value writes once, however often it is
    computed.

    Parameters
    ----------
    ddf : dask.dataframe.DataFrame
        The rows. Row labels are not stored.
    store, dataset_uuid, secondary_indices, metadata, df_serializer, partition_on, overwrite
        As in `kartothek_cube.api.dataset.store_dataframes_as_dataset`. Workers open the same store,
        so other processes must see it.
    table : str, default "table"
        Name of the table. None is refused.
    shuffle : bool, default False
        Bring the rows of each combination of partition values and bucket into one task: exactly one
        file for each. Without ``shuffle`` each partition of ``ddf`` writes a file for each
        combination of partition values that it has.
    repartition_ratio : float, optional
        Divides the number of partitions of ``ddf`` before anything else.
    num_buckets : int, default 1
        With ``shuffle``: files for the rows of a combination of partition values, by a hash.
    sort_partitions_by : str or list of str, optional
        Sort the rows of each file by these columns, nulls last.
    delete_scope
        Accepted from kartothek and without effect.
    metadata_merger : callable, optional
        A function from a list of dicts to the user metadata.
    metadata_version : int
        Only 4.
    bucket_by : str or list of str, optional
        With ``shuffle``: the hashed columns, by default all.
    on_conflict, txn, options
        As in `update_dataset_from_ddf`.

    Returns
    -------
    dask.delayed.Delayed
        Computes to `DatasetMetadata`.

    Raises
    ------
    AlreadyExists
        If the dataset exists and ``overwrite`` is False; the call raises it.
    InvalidInput, InvalidType, Unsupported
        For unusable arguments and columns, by the call; for unusable rows, by the computation.
    CommitConflict
        By the computation, if another writer created the dataset since the call, or changed the one
        to overwrite.

    Examples
    --------
    >>> import dask.dataframe as dd
    >>> import pandas as pd
    >>> from kartothek_cube.dask.dataframe import store_dataset_from_ddf
    >>> sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> frame = dd.from_pandas(sales, npartitions=2)
    >>> store_dataset_from_ddf(frame, "hfs://ddf_new", "sales").compute()
    DatasetMetadata(uuid='sales', partitions=2, partition_keys=[])
    """
    del delete_scope  # kartothek's signature
    with operation("store_dataset_from_ddf", options):
        check_version(metadata_version)
        frame, partition_on = check_ddf(ddf, dataset_uuid), as_list(partition_on, "partition_on")
        source = target_of(store, dataset_uuid, generate=True)
        arguments = partition_on, secondary_indices, df_serializer, overwrite, sort_partitions_by
        plan = Planner(_plan_new, source.uuid, arguments)
        target = DatasetTarget.begin(
            "store_dataset_from_ddf",
            store,
            source,
            plan,
            metadata=metadata,
            merger=metadata_merger,
            on_conflict=on_conflict,
            txn=txn,
            creates=True,
        )
        return _written(frame, table, target, None, shuffle, repartition_ratio, num_buckets, bucket_by)


def _plan_new(
    uuid: str,
    base: Snapshot | None,
    keys: object,
    indices: object,
    serializer: object,
    overwrite: bool,
    sort_by: object,
) -> WriteRequest:
    # A replaced dataset keeps its encoding.
    encoding = "json" if base is None or not base.key.endswith(".zstd") else "msgpack"
    return plan_new(uuid, base, keys, indices, serializer, overwrite, encoding, sort_partitions_by=sort_by)


def update_dataset_from_ddf(
    ddf: dd.DataFrame | None,
    store: StoreLike | None = None,
    dataset_uuid: str | None = None,
    table: str = SINGLE_TABLE,
    secondary_indices: Columns = None,
    shuffle: bool = False,
    repartition_ratio: float | None = None,
    num_buckets: int = 1,
    sort_partitions_by: Columns = None,
    delete_scope: DeleteScope | None = None,
    metadata: IntoMetadata = None,
    df_serializer: FileFormat | None = None,
    metadata_merger: MetadataMerger | None = None,
    default_metadata_version: int = 4,
    partition_on: Columns = None,
    factory: DatasetFactory | None = None,
    bucket_by: Columns = None,
    *,
    add_columns: bool = False,
    on_conflict: OnConflict = "raise",
    txn: IntoTxn | None = None,
    options: Overrides | None = None,
) -> Delayed:
    """Add the rows of a frame of dask to a dataset and remove partitions, lazily, in one commit.

    A missing dataset is created. Laziness, tasks and files are those of `store_dataset_from_ddf`.

    Parameters
    ----------
    ddf : dask.dataframe.DataFrame or None
        The rows. None to only change metadata or remove partitions.
    store, dataset_uuid, factory
        The dataset: ``store`` and ``dataset_uuid``, or a `DatasetFactory`.
    table : str, default "table"
        Name of the table; an existing dataset must have it.
    delete_scope : list of dict, or a lazy value of one, optional
        The partitions to remove, as in
        `kartothek_cube.api.dataset.update_dataset_from_dataframes`.
    secondary_indices, metadata, df_serializer, metadata_merger, partition_on, add_columns
        As in `kartothek_cube.api.dataset.update_dataset_from_dataframes`.
    default_metadata_version : int
        Only 4.
    shuffle, repartition_ratio, num_buckets, bucket_by, sort_partitions_by
        As in `store_dataset_from_ddf`.
    on_conflict : {"raise", "reapply"}
        What to do if another writer, since this call, has changed partitions that it removes.
    txn : tuple of str and int, optional
        ``(application id, number)``: a number that is not above the application's last one is
        skipped.
    options : optional
        From `kartothek_cube.options`, for the call and its tasks.

    Returns
    -------
    dask.delayed.Delayed
        Computes to `DatasetMetadata`.

    Raises
    ------
    InvalidInput, InvalidType, Unsupported
        As in `store_dataset_from_ddf`. `InvalidType` for a table that the dataset does not have.
    CommitConflict
        By the computation, as in `update_dataset_from_dataframes`. Appends of others are no
        conflict.

    Examples
    --------
    >>> import dask.dataframe as dd
    >>> import pandas as pd
    >>> from kartothek_cube.dask.dataframe import store_dataset_from_ddf, update_dataset_from_ddf
    >>> sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> frame, store = dd.from_pandas(sales, npartitions=2), "hfs://ddf_more"
    >>> _ = store_dataset_from_ddf(frame, store, "sales", partition_on="COUNTRY_CODE").compute()
    >>> germany = [{"COUNTRY_CODE": "DE"}]
    >>> newer = update_dataset_from_ddf(frame, store, "sales", shuffle=True, delete_scope=germany)
    >>> len(newer.compute().partitions)
    3
    """
    with operation("update_dataset_from_ddf", options):
        check_version(default_metadata_version)
        frame = None if ddf is None else check_ddf(ddf, dataset_uuid)
        source = target_of(store, dataset_uuid, factory)
        keys = as_list(partition_on, "partition_on")
        arguments = keys, secondary_indices, df_serializer, sort_partitions_by, add_columns
        plan = Planner(plan_dataset_update, source.uuid, arguments)
        known_scope = None if hasattr(delete_scope, "dask") else delete_scope
        target = DatasetTarget.begin(
            "update_dataset_from_ddf",
            store if factory is None else factory.store_factory,
            source,
            plan,
            metadata=metadata,
            merger=metadata_merger,
            on_conflict=on_conflict,
            txn=txn,
            delete_scope=known_scope,
        )
        base = target.request.base
        check_single_table(source.uuid, [] if base is None else sorted(base.schemas), table)
        if frame is None:
            if base is None:
                raise InvalidInput(
                    f"Cannot store empty datasets: {source.uuid!r} does not exist, and there are no rows to make it "
                    "from."
                )
            return task("commit", commit_staged, constant(target), delete_scope, [])
        return _written(frame, table, target, delete_scope, shuffle, repartition_ratio, num_buckets, bucket_by)


def check_single_table(uuid: str, tables: Sequence[str], table: object) -> None:
    """Raise `InvalidType` for no table, and for one that the dataset does not have."""
    if not isinstance(table, str):
        raise InvalidType("The parameter `table` is not optional.")
    if len(tables) > 1:
        raise InvalidType(f"Expected single table dataset: {uuid!r} has the tables {list(tables)}.")
    if tables and list(tables) != [table]:
        raise InvalidType(f"Unexpected table in dataset {uuid!r}: it has the table {tables[0]!r}, not {table!r}.")


def _written(
    frame: dd.DataFrame,
    table: str,
    target: DatasetTarget,
    scope: object,
    shuffle: bool,
    ratio: object,
    num_buckets: object,
    bucket_by: object,
) -> Delayed:
    """The lazy commit of the rows of a frame."""
    check_single_table(target.uuid, [], table)
    base, keys = target.request.start, target.request.partition_on
    known = None if base is None else {f.name: f.type for f in base.schema}
    columns = schema_of(frame, known, target.uuid)
    request = target.request
    if request.sorts_as_recorded and not set(request.sort_columns) <= set(columns.names):
        target = dataclasses.replace(target, request=replace(request, sort_columns=()))
    target.check(table, columns)
    npartitions = check_ratio(ratio, frame.npartitions)
    if npartitions != frame.npartitions:
        frame = frame.repartition(npartitions=npartitions)
    if not shuffle:
        shared = constant(target)
        staged = [task("stage", stage_frame, shared, table, part) for part in frame.to_delayed()]
        return task("commit", commit_staged, shared, scope, staged)
    number, by = check_buckets(
        *buckets_on_record(num_buckets, bucket_by, request.layout.within(columns.names)), columns.names, target.uuid
    )
    shared = constant(target.buckets(number, by))
    buckets = Buckets(number, tuple(by) or tuple(columns.names), npartitions)
    messages = shuffled(frame, target.uuid, keys, derived_in(request.derived), buckets)
    staged = [task("stage", stage_shuffled, shared, table, part) for part in messages]
    if base is None and not keys:
        staged.append(task("stage", _stage_nothing, shared, table, columns, staged))
    return task("commit", commit_staged, shared, scope, staged)


def _stage_nothing(target: DatasetTarget, table: str, columns: pa.Schema, staged: Sequence[Any]) -> Any:
    """In a task: a file without rows, if there are no rows for a new dataset."""
    from kartothek_cube.dask.stage import stage_items

    return stage_items(target, [] if any(s.receipts for s in staged) else [{table: columns.empty_table()}])


# --- statistics -----------------------------------------------------------------------------------


def collect_dataset_metadata(
    store: StoreLike | None = None,
    dataset_uuid: str | None = None,
    table_name: str = SINGLE_TABLE,
    predicates: IntoPredicates | None = None,
    frac: float = 1.0,
    factory: DatasetFactory | None = None,
    *,
    as_of: AsOf | None = None,
    options: Overrides | None = None,
) -> dd.DataFrame:
    """Rows and bytes of each row group of a dataset, as a frame of dask.

    Arguments, columns and errors are those of
    `kartothek_cube.api.dataset.collect_dataset_metadata`; errors of arguments are raised by the
    call. Tasks read the footers of the files.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> from kartothek_cube.dask.dataframe import collect_dataset_metadata
    >>> sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = store_dataframes_as_dataset("hfs://ddf_sizes", "sales", [sales])
    >>> collect_dataset_metadata("hfs://ddf_sizes", "sales").compute()["number_rows_total"].tolist()
    [2]
    """
    with operation("collect_dataset_metadata", options):
        source = dataset_ref(dataset_uuid, store, factory, as_of)
        if isinstance(frac, bool) or not isinstance(frac, (int, float)) or not 0 < frac <= 1:  # type: ignore[redundant-expr]
            raise InvalidInput(f"Invalid value for parameter `frac`: {frac!r}. It is a number above 0 and at most 1.")
        make_file_plan(source.store, source.snapshot(), table_name, [], parse_predicates(predicates), keep=source.keep)
        opener = store_factory(store if factory is None else factory.store_factory)
        named = {"dataset_uuid": source.uuid, "table_name": table_name, "predicates": predicates, "frac": frac}
        call = in_task(partial(_frame_of_verb, collect_dataset_metadata_eager, opener, {**named, "as_of": as_of}))
        meta = ROW_GROUP_SCHEMA.empty_table().to_pandas().astype({"partition_label": object})
        with dask.config.set({"dataframe.convert-string": False}):
            return dd.from_map(call, [0], meta=meta, enforce_metadata=False)


def _frame_of_verb(verb: Callable[..., Any], opener: Opener, named: Mapping[str, Any], _: int) -> Any:
    return run_verb(verb, {"store": opener}, named)


def hash_dataset(
    store: StoreLike | None = None,
    dataset_uuid: str | None = None,
    subset: Columns = None,
    group_key: Columns = None,
    table: str = SINGLE_TABLE,
    predicates: IntoPredicates | None = None,
    factory: DatasetFactory | None = None,
    *,
    as_of: AsOf | None = None,
    options: Overrides | None = None,
) -> dd.Series:
    """A 64-bit hash of each partition, or of each group of rows, as a series of dask.

    The hashes are those of `kartothek_cube.api.dataset.hash_dataset`, with its arguments and
    errors. Tasks read the files.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.api import dataset as eager
    >>> from kartothek_cube.dask.dataframe import hash_dataset
    >>> sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = eager.store_dataframes_as_dataset("hfs://ddf_hash", "sales", [sales])
    >>> hashes = hash_dataset("hfs://ddf_hash", "sales").compute()
    >>> hashes.equals(eager.hash_dataset("hfs://ddf_hash", "sales"))
    True
    """
    with operation("hash_dataset", options):
        source = dataset_ref(dataset_uuid, store, factory, as_of)
        keys = [str(c) for c in as_list(group_key, "group_key")]
        columns = None if subset is None else sorted({*map(str, as_list(subset, "subset")), *keys})
        make_file_plan(
            source.store, source.snapshot(), table, columns or keys, parse_predicates(predicates), keep=source.keep
        )
        opener = store_factory(store if factory is None else factory.store_factory)
        named: dict[str, Any] = {"dataset_uuid": source.uuid, "subset": subset, "group_key": group_key, "table": table}
        named |= {"predicates": predicates, "as_of": as_of}
        call = in_task(partial(_frame_of_verb, hash_dataset_eager, opener, named))
        return dd.from_map(call, [0], meta=pd.Series([], dtype="uint64"), enforce_metadata=False)
