"""Reading one table of a dataset into a lazy Spark data frame."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kartothek_cube.core.arguments import as_list, check_flag, pluralize
from kartothek_cube.core.arrow.keys import AMPLIFICATION_LIMIT
from kartothek_cube.core.dataset.reference import dataset_ref
from kartothek_cube.core.expressions.predicates import Predicates, parse_predicates
from kartothek_cube.core.io.reader import FileRequest
from kartothek_cube.core.metadata.naming import SINGLE_TABLE
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.scan.execute import GroupPlan, TableRead, make_group_plan, stream_tables
from kartothek_cube.core.scan.plan import (
    GroupArguments,
    ScanTask,
    check_table,
    checked_categoricals,
    make_file_plan,
    names_of,
)
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.stores.open import open_store, store_factory
from kartothek_cube.errors import InvalidInput
from kartothek_cube.spark.actions import Job
from kartothek_cube.spark.read.shuffle import ShufflePlan, run_regrouped
from kartothek_cube.spark.session import cores, find_session, session_by_keyword
from kartothek_cube.spark.tasks import known_sizes, pack, run_packed, sampled_bytes, task_count
from kartothek_cube.spark.types import to_spark, wire_schema
from kartothek_cube.typing import AsOf, Columns, ColumnsByTable, IntoPredicates, StoreLike

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kartothek_cube.core.kartothek.dataset_metadata import DatasetFactory

__all__ = ["read_dataset_as_spark"]


@session_by_keyword
def read_dataset_as_spark(
    dataset_uuid: str | None = None,
    store: StoreLike | None = None,
    table: str = SINGLE_TABLE,
    columns: ColumnsByTable = None,
    categoricals: ColumnsByTable = None,
    dates_as_object: bool = False,
    predicates: IntoPredicates | None = None,
    dispatch_by: Columns = None,
    factory: DatasetFactory | None = None,
    *,
    blocksize: int | None = None,
    spark: SparkSession | None = None,
    parallelism: int | None = None,
    as_of: AsOf | None = None,
    native: bool = False,
    options: Overrides | None = None,
) -> DataFrame:
    """Read one table of a dataset and get a lazy Spark data frame.

    The call checks and plans the read on the driver, where partition values and secondary indices
    exclude files; tasks exclude row groups by statistics, then rows. The plan names exact files, so
    every action on the data frame sees the dataset as it was then.

    Parameters
    ----------
    dataset_uuid, store, table, columns, predicates, factory, as_of
        As in `kartothek_cube.api.dataset.read_table`. The executors open the same store, so other
        processes must see it.
    categoricals, dates_as_object
        Accepted for kartothek and checked. They change how pandas shows a column and have no effect
        in Spark.
    dispatch_by : list of str, optional
        Indexed columns: all rows of one combination of their values come from one task, one after
        the other, in ascending order of the values. Rows with a null in one of the columns are left
        out. Where many groups share files, each file is read once and its rows are shuffled.
    blocksize : int, optional
        Files in one task, with ``dispatch_by`` groups in one task. By default about four tasks a
        core share them.
    spark : SparkSession, optional
        By default the active session; classic or Connect.
    parallelism : int, optional
        How many tasks run at once; by default the parallelism of the session.
    native : bool
        Let Spark's own Parquet reader read the files of the plan: faster for whole scans, and Spark
        prunes columns. It reads local directories and S3, with Spark's own credentials.
    options : Overrides, optional
        From `kartothek_cube.options`, for planning and for the tasks.

    Returns
    -------
    pyspark.sql.DataFrame
        Columns in the given order, by default in that of the dataset's schema. Naive timestamps are
        ``timestamp_ntz``; unsigned integers get the next wider type. Spark does not prune columns
        here: name those that you need in ``columns``. Without ``dispatch_by`` files come in the
        order of the dataset.

    Raises
    ------
    DatasetNotFound, KeyNotFound, UnknownColumn, InvalidInput, InvalidType
        As in `read_table`, for a store that other processes cannot open, and for an empty list of
        columns.
    InvalidRequest
        If a column of ``dispatch_by`` has no index.
    Unsupported
        For a column whose type Spark lacks; with ``native`` also for stores, files and types that
        Spark's reader does not read as this library does (`docs/spark-source.md` lists them).

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> from kartothek_cube.spark import read_dataset_as_spark
    >>> sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = store_dataframes_as_dataset("hfs://store", "sales", [sales])
    >>> fr = [[("COUNTRY_CODE", "==", "FR")]]
    >>> read_dataset_as_spark("sales", "hfs://store", columns=["UNITS"], predicates=fr).collect()
    [Row(UNITS=4)]
    """
    with operation("read_dataset_as_spark", options):
        names, categories = names_of(columns, table, "columns"), names_of(categoricals, table, "categoricals")
        parsed = parse_predicates(predicates)
        check_flag(dates_as_object, "dates_as_object")
        from kartothek_cube.spark.read.native import is_native, native_frame  # for the driver alone

        native = is_native(native, {"dispatch_by": dispatch_by, "blocksize": blocksize, "parallelism": parallelism})
        source = dataset_ref(dataset_uuid, store, factory, as_of)
        session, opener = find_session(spark), store_factory(source.store if factory is not None else store)
        executors = _Executors(session, opener, parallelism, blocksize)
        if dispatch_by is None:
            plan = make_file_plan(source.store, source.snapshot(), table, names, parsed, keep=source.keep)
            request, wire = plan.request, _wire(plan.request)
            checked_categoricals(categories, request.columns, request.schema, source.uuid)
            if native:
                return native_frame(session, source.store, plan, wire)
            tasks = plan.tasks()
            sizes = known_sizes(source.store, source.snapshot(), plan.files) if blocksize is None else None
            nbytes = sampled_bytes(opener, tasks, lambda task: (task.key,)) if sizes is None else sum(sizes)
            chunks = pack(tasks, executors.count(len(tasks), nbytes), sizes)
            job = _job(request, pluralize(len(plan), "file"))
            return run_packed(session, chunks, lambda tasks: _rows(opener, request, tasks, wire), wire, job)
        check_table(source.snapshot(), table)
        arguments = GroupArguments(
            [table],
            None if names is None else {table: names},
            None if categories is None else {table: categories},
            parsed,
            dispatch_by=as_list(dispatch_by, "dispatch_by"),
        )
        return _by_group(executors, make_group_plan(source.store, source.snapshot(), arguments, keep=source.keep))


@dataclass(frozen=True, slots=True)
class _Executors:
    """The session that runs the work, the opener of its store, and how work is cut into tasks."""

    session: SparkSession
    store: Store | Callable[[], Store]
    parallelism: int | None
    blocksize: int | None

    def count(self, items: int, nbytes: int | None = None, *, natural: bool = False) -> int:
        """The number of tasks for some items; ``natural`` ignores the user's ``blocksize``."""
        return task_count(items, cores(self.session, self.parallelism), None if natural else self.blocksize, nbytes)


def _wire(request: FileRequest) -> pa.Schema:
    if not request.columns:
        raise InvalidInput(
            f"Name at least one column of dataset {request.dataset!r}: a row without columns is nothing in Spark. "
            f"It has {request.schema.names}."
        )
    return wire_schema(_fields(request), f"dataset {request.dataset!r}")


def _fields(request: FileRequest) -> pa.Schema:
    return pa.schema([request.schema.field(c) for c in request.columns])


def _job(request: FileRequest, detail: str) -> Job:
    return Job("read", f"dataset {request.dataset!r}", detail)


def _rows(
    store: StoreLike, request: FileRequest, tasks: Sequence[ScanTask], wire: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """In a task: the rows of some files, piece by piece."""
    for piece in stream_tables(open_store(store), request, tasks):
        yield from to_spark(piece, wire, f"dataset {request.dataset!r}")


@dataclass(frozen=True, slots=True)
class _FileGroup:
    """The files of one group, and the predicates that select its rows."""

    predicates: Predicates | None
    files: tuple[ScanTask, ...]


def _by_group(executors: _Executors, plan: GroupPlan) -> DataFrame:
    read = plan.reads[0]
    wire = _wire(read.request)
    if plan.groups.amplification() > AMPLIFICATION_LIMIT:
        return _regrouped(executors, plan, read, wire)
    request, store = read.request, executors.store
    groups = [
        _FileGroup(plan.request(read, i).predicates, tuple(plan.tasks(read, plan.groups.partitions(i))))
        for i in range(len(plan.groups))
    ]
    chunks = pack(groups, executors.count(len(groups)))

    def load(groups: list[_FileGroup]) -> Iterator[pa.RecordBatch]:
        opened = open_store(store)
        for group in groups:
            yield from _rows(opened, replace(request, predicates=group.predicates), group.files, wire)

    return run_packed(executors.session, chunks, load, wire, _job(request, pluralize(len(groups), "group")))


def _regrouped(executors: _Executors, plan: GroupPlan, read: TableRead, wire: pa.Schema) -> DataFrame:
    """Groups that share files: each file is read once."""
    columns, store = list(read.request.columns), executors.store
    request = replace(read.request, columns=tuple(dict.fromkeys((*columns, *plan.group_columns))))
    tasks = plan.tasks(read, np.unique(plan.groups.positions))
    n = len(plan.groups)
    shuffle = ShufflePlan(plan.groups.keys, _fields(request), executors.count(n))
    chunks = pack(tasks, executors.count(len(tasks), natural=True))

    def load(tasks: list[ScanTask]) -> Iterator[pa.Table]:
        yield from stream_tables(open_store(store), request, tasks)

    def select(_key: object, table: pa.Table) -> Iterator[pa.Table]:
        yield table.select(columns)

    job = _job(request, pluralize(n, "group"))
    return run_regrouped(executors.session, chunks, load, shuffle, select, wire, job)
