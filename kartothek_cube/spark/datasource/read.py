"""The batch reader of the data source, and table functions.

In order:

- the target: a cube or one dataset, its columns, its items of work
- the reader; Spark plans it in a process of its own, and the stream reader shares its tasks
- table functions: history, changes, files and plans; each runs in one task, which opens the store
"""

from __future__ import annotations

import datetime as dt
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import pandas as pd
import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import DoubleType, StructType
from pyspark.sql.udtf import AnalyzeResult

from kartothek_cube.core.arguments import join_names
from kartothek_cube.core.dataset.history import history
from kartothek_cube.core.dataset.read import plan_table_scan
from kartothek_cube.core.dataset.reference import DatasetRef, dataset_ref
from kartothek_cube.core.expressions.conditions import conditions_in, conditions_of
from kartothek_cube.core.expressions.predicates import Clause, Predicates, parse_predicates
from kartothek_cube.core.io.reader import FileRequest
from kartothek_cube.core.kartothek.dataset_metadata import DatasetMetadata
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.runtime.options import current_options
from kartothek_cube.core.scan.execute import stream_tables
from kartothek_cube.core.scan.plan import ScanTask, check_table, checked_columns, make_file_plan
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.snapshots.statistics import statistics_of_files
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.stores.open import open_store, store_factory
from kartothek_cube.cube.consistent_read import infos_of
from kartothek_cube.cube.cube import Cube
from kartothek_cube.cube.execute.load import PartitionLoader
from kartothek_cube.cube.members import cube_of, list_cube_prefixes, read_members, require_members, valid_cube
from kartothek_cube.cube.query.intention import QueryArguments, make_intention
from kartothek_cube.cube.query.plan import Group
from kartothek_cube.cube.verbs.describe import discover_cube
from kartothek_cube.cube.verbs.history import cube_history
from kartothek_cube.cube.verbs.read import plan_cube_query
from kartothek_cube.engines.tables import (
    FUNCTIONS,
    Difference,
    check_no_key,
    cube_difference,
    dataset_difference,
    member_difference,
)
from kartothek_cube.errors import InvalidInput, UnknownColumn, Unsupported
from kartothek_cube.spark.datasource.options import SourceOptions, absolute_store, dataset_uuid, parse_options, push
from kartothek_cube.spark.session import is_connect, is_sail
from kartothek_cube.spark.tasks import known_sizes, pack, sampled_bytes, task_count, task_errors, tuned_worker, unpack
from kartothek_cube.spark.types import arrow_schema, as_struct, is_zoned, spark_schema, to_spark, wire_schema
from kartothek_cube.typing import Columns, CubeState, StoreLike

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.udtf import AnalyzeArgument


@dataclass(frozen=True, slots=True)
class FileItem:
    """One file of a dataset, the columns and rows to read, and its bytes, if they are known."""

    request: FileRequest
    task: ScanTask
    nbytes: int | None = None

    def file_keys(self) -> list[str]:
        """The key of the file; a `Group` has several."""
        return [self.task.key]


Item: TypeAlias = Group | FileItem


class ReadTarget(Protocol):
    """One state of a cube or dataset, which plans reads."""

    @property
    def is_cube(self) -> bool:
        """Whether clauses become conditions of a cube."""

    def schema(self, columns: Sequence[str] | None) -> pa.Schema:
        """The stored types of some columns, in the given order, or of all columns."""

    def clauses(self, conditions: str | None) -> Sequence[Clause]:
        """The clauses of a text."""

    def items(self, columns: Sequence[str], clauses: Sequence[Clause]) -> Sequence[Item]:
        """The items of work of a read."""


def parse_conditions(conditions: str | None, schema: pa.Schema) -> Sequence[Clause]:
    """The clauses of a text on columns of these types."""
    if conditions is None:
        return ()
    return conditions_in(conditions, {f.name: f.type for f in schema}).clauses


def predicates_of(clauses: Sequence[Clause]) -> Predicates | None:
    """The clauses as predicates on the rows of one dataset."""
    return parse_predicates([[(c.column, c.op, c.value) for c in clauses]]) if clauses else None


@dataclass(frozen=True)
class CubeView:
    """A whole cube: its datasets joined."""

    cube: Cube
    store: Any
    datasets: Mapping[str, DatasetMetadata]
    is_cube: bool = True

    @cached_property
    def _columns(self) -> pa.Schema:
        infos = infos_of({i: d.snapshot for i, d in self.datasets.items()})
        return make_intention(QueryArguments(self.cube), infos).schema

    def schema(self, columns: Sequence[str] | None) -> pa.Schema:
        """The stored types of some columns, in the given order, or of all, sorted by name."""
        stored = self._columns
        unknown = [c for c in columns or () if c not in stored.names]
        if unknown:
            raise UnknownColumn(
                f"Cube {self.cube.uuid_prefix!r} has no column {', '.join(map(repr, unknown))}; "
                f"it has {', '.join(stored.names)}."
            )
        return stored if columns is None else pa.schema([stored.field(c) for c in columns])

    def clauses(self, conditions: str | None) -> Sequence[Clause]:
        """The clauses of a text."""
        return parse_conditions(conditions, self._columns)

    def items(self, columns: Sequence[str], clauses: Sequence[Clause]) -> Sequence[Item]:
        """The aligned partitions of the cube that may hold rows."""
        keys = {*self.cube.dimension_columns, *self.cube.partition_columns}
        conditions = conditions_of(clauses)
        payload = [c for c in self.schema(columns).names if c not in keys]
        return plan_cube_query(self.cube, self.store, conditions, dict(self.datasets), payload_columns=payload).slices


@dataclass(frozen=True)
class DatasetView:
    """One dataset."""

    source: DatasetRef
    snapshot: Snapshot
    table: str
    is_cube: bool = False

    def schema(self, columns: Sequence[str] | None) -> pa.Schema:
        """The stored types of some columns, in the given order, or of all columns."""
        stored = check_table(self.snapshot, self.table)
        return pa.schema([stored.field(c) for c in checked_columns(columns, stored, self.snapshot.uuid)])

    def clauses(self, conditions: str | None) -> Sequence[Clause]:
        """The clauses of a text."""
        return parse_conditions(conditions, check_table(self.snapshot, self.table))

    def items(self, columns: Sequence[str], clauses: Sequence[Clause]) -> Sequence[Item]:
        """The files of the dataset that may hold rows."""
        plan = make_file_plan(self.source.store, self.snapshot, self.table, list(columns), predicates_of(clauses))
        known = known_sizes(self.source.store, self.snapshot, plan.files)
        sizes: Sequence[int | None] = known or [None] * len(plan)
        return [FileItem(plan.request, task, size) for task, size in zip(plan.tasks(), sizes, strict=True)]


def view_of(options: SourceOptions) -> ReadTarget:
    """The target of a reader's options."""
    store = store_factory(options.store)
    if options.cube is not None and options.dataset is None:
        cube, datasets = discover_cube(options.cube, store, as_of=options.as_of)
        return CubeView(cube, store, datasets)
    source = dataset_ref(dataset_uuid(options), store, None, options.as_of)
    return DatasetView(source, source.snapshot(), options.table)


def load_items(store: StoreLike, items: Sequence[Any]) -> Iterator[pa.Table]:
    """In a task: the rows of some items, as a stream."""
    opened: Store = open_store(store)
    if items and isinstance(items[0], FileItem):
        yield from stream_tables(opened, items[0].request, [item.task for item in items])
        return
    loader = PartitionLoader(opened)
    for group in items:
        yield loader.load(group)


# --- the reader -----------------------------------------------------------------------------------


def source_schema(options: SourceOptions, view: ReadTarget | None = None) -> StructType:
    """The columns of a read in Spark's types."""
    view = view or view_of(options)
    # An invalid text fails now, not in the first action.
    view.clauses(options.conditions)
    return spark_schema(wire_schema(view.schema(options.columns), _context(options)))


def _context(options: SourceOptions) -> str:
    return f"cube {options.cube!r}" if options.dataset is None else f"dataset {options.dataset!r}"


def check_schema(options: SourceOptions, schema: StructType | pa.Schema) -> None:
    """Check the columns of a read, which may be the user's schema.

    Raises
    ------
    InvalidInput
        If it has others than the option ``columns``, or excludes nulls, which Spark does not check.
    """
    if options.columns is not None and list(options.columns) != schema.names:
        raise InvalidInput(
            f"The option columns={','.join(options.columns)!r} contradicts the schema that was given for "
            f"{_context(options)}: {schema.names}."
        )
    if isinstance(schema, StructType):
        required = [f.name for f, free in zip(schema, schema.toNullable(), strict=True) if f != free]
        if required:
            raise InvalidInput(
                f"The schema that was given for {_context(options)} excludes nulls in {required}, but stored columns "
                "may have them. Leave NOT NULL out, or give schema.toNullable()."
            )


def plan_input_partitions(options: SourceOptions, items: Sequence[Item], cores: int | None) -> list[InputPartition]:
    """One partition a task, with the packed items of the task."""
    width = options.parallelism or cores or os.cpu_count() or 1
    known = [item.nbytes for item in items if isinstance(item, FileItem) and item.nbytes is not None]
    sizes = known if known and len(known) == len(items) and options.blocksize is None else None
    nbytes = sum(sizes) if sizes else sampled_bytes(store_factory(options.store), items, lambda item: item.file_keys())
    n_tasks = task_count(len(items), width, options.blocksize, nbytes)
    return [InputPartition(chunk) for chunk in pack(items, n_tasks, sizes)]


def rows_of(
    options: SourceOptions, schema: StructType | pa.Schema, partition: InputPartition | None
) -> Iterator[pa.RecordBatch]:
    """In a task: the rows of a partition from `plan_input_partitions`."""
    # Without partitions Spark calls once: with the value None, or (4.1) with no partition.
    if partition is None or partition.value is None:
        return
    with task_errors(), tuned_worker():
        # Sail compares types with those that it has handed over, down to the names of elements.
        wire = schema if isinstance(schema, pa.Schema) else arrow_schema(schema, _context(options))
        for table in load_items(options.store, unpack(partition.value)):
            yield from to_spark(table, wire)


def make_reader(
    options: SourceOptions, schema: StructType | pa.Schema, cores: int | None = None, view: ReadTarget | None = None
) -> CubeReader:
    """The reader for some options, of ``view`` or else of the newest state.

    Raises
    ------
    InvalidInput
        As in `check_schema`.
    """
    check_schema(options, schema)
    return (PushingReader if options.push_down else CubeReader)(options, schema, cores, view)


class CubeReader(DataSourceReader):
    """Reads a cube or a dataset, without filter push-down.

    Spark keeps one plan for each ``load()``: that of the filters it pushed last. It reuses the plan
    for every other scan of the frame, in the same query and in later ones, whatever their filters.
    Rows would be missing silently: docs/design/010-spark-push-down.md.
    """

    def __init__(
        self,
        options: SourceOptions,
        schema: StructType | pa.Schema,
        cores: int | None = None,
        view: ReadTarget | None = None,
    ) -> None:
        self._options, self._schema, self._cores = options, schema, cores
        self._pushed: tuple[Clause, ...] = ()
        self._view = view

    def __reduce__(self) -> tuple[object, ...]:
        # Without the loaded state: tasks do not plan.
        return type(self), (self._options, self._schema, self._cores)

    def partitions(self) -> list[InputPartition]:
        """One partition a task, with the packed items of the task."""
        with task_errors():
            view = self._loaded()
            clauses = (*view.clauses(self._options.conditions), *self._pushed)
            return plan_input_partitions(self._options, view.items(self._schema.names, clauses), self._cores)

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of one partition."""
        return rows_of(self._options, self._schema, partition)

    def _loaded(self) -> ReadTarget:
        if self._view is None:
            self._view = view_of(self._options)
        return self._view


class PushingReader(CubeReader):
    """A reader with push-down, for a frame that is used in one query with one filter.

    PySpark 4.1 to 4.3 call `pushFilters` alone. Later releases, and Sail, offer the columns and the
    limit of a query as well, after the filters and in either order.
    """

    # True if Spark checks rows again: then it needs more of them than its limit says.
    _is_filtered_later = False
    _limit = sys.maxsize

    def __reduce__(self) -> tuple[object, ...]:
        return *super().__reduce__(), {"_limit": self._limit}

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take the filters that mean the same here as in Spark; return the others."""
        with task_errors():
            view = self._loaded()
            stored = view.schema(self._schema.names)
            # The user's own schema may cast columns. Filters on these would compare other values.
            default = spark_schema(wire_schema(stored, _context(self._options)))
            given = as_struct(self._schema)
            types = {f.name: f.type for f in stored if default[f.name].dataType == given[f.name].dataType}
            if isinstance(self._schema, pa.Schema):
                # Sail leaves out casts: CAST(x AS float) = 0.1 becomes x = 0.1, the nearest float.
                types = {n: kind for n, kind in types.items() if not isinstance(given[n].dataType, DoubleType)}
            pushed = push(filters, types, cube=view.is_cube)
        self._pushed, self._is_filtered_later = pushed.clauses, bool(pushed.rest)
        return iter(pushed.rest)

    def pruneColumns(self, requiredSchema: StructType | pa.Schema) -> StructType:  # noqa: N802, N803 - Spark's names
        """Read the required columns alone, in their order, and return what `read` then gives.

        Nested columns stay whole. A query that needs no column, such as a count, gets the first
        one: batches without columns have no number of rows.
        """
        schema, names = self._schema, list(requiredSchema.names) or self._schema.names[:1]
        if isinstance(schema, pa.Schema):
            self._schema = pa.schema([schema.field(n) for n in names])
        else:
            self._schema = StructType([schema[n] for n in names])
        return as_struct(self._schema)

    def pushLimit(self, limit: int) -> bool:  # noqa: N802 - Spark's name
        """Let each task stop after ``limit`` rows; Spark cuts what several tasks give together.

        Returns False, and takes no limit, where Spark filters the rows afterwards.
        """
        if self._is_filtered_later:
            return False
        self._limit = limit
        return True

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of one partition, up to the limit."""
        left = self._limit
        for batch in super().read(partition):
            yield batch.slice(0, left)
            left -= batch.num_rows
            if left <= 0:
                return


# --- table functions ------------------------------------------------------------------------------


Row: TypeAlias = tuple[object, ...]
State: TypeAlias = str | dt.date | Mapping[str, str | None]
"""A state of a cube or dataset, as an argument of SQL."""


def _target(**arguments: object) -> SourceOptions:
    """The arguments that every function has, checked as those of the data source."""
    return parse_options({name: _text(name, value) for name, value in arguments.items() if value is not None})


def _text(name: str, value: object) -> str:
    """An argument, which has to be text."""
    if not isinstance(value, str):
        shown = "NULL" if value is None else repr(value)
        raise InvalidInput(f"The argument {name} => {shown} is no text. Give one in quotation marks.")
    return value


class History:
    """The function ``kartothek_history``: the writes to a cube, or the commits of a dataset."""

    schema = (
        "commit string, parent string, time timestamp, added bigint, removed bigint, cube string, "
        "datasets array<string>, kept boolean, tags array<string>"
    )

    def eval(self, store: str, dataset: str | None = None, cube: str | None = None) -> Iterator[Row]:
        """A row for each, the newest first."""
        with task_errors():
            options = _target(store=store, dataset=dataset, cube=cube)
            if options.dataset is None:
                found: pd.DataFrame = cube_history(str(options.cube), options.store)
            else:
                found = history(dataset_uuid(options), options.store)
            # By way of Arrow, since pandas has several values for null.
            for row in pa.Table.from_pandas(found, preserve_index=False).to_pylist():
                yield tuple(row.get(column.split()[0]) for column in self.schema.split(", "))


_CHANGES, _COUNTS = FUNCTIONS


@dataclass
class Pinned(AnalyzeResult):
    """The columns of `Changes`, for Spark and for the task, and the one later state of a call."""

    wire: pa.Schema = field(default_factory=lambda: pa.schema([]))
    until: CubeState | None = None


class Changes:
    """The function ``kartothek_changes``: the rows that came, changed and went."""

    _pinned: Pinned | None = None

    @staticmethod
    def analyze(
        store: AnalyzeArgument,
        dataset: AnalyzeArgument | None = None,
        cube: AnalyzeArgument | None = None,
        since: AnalyzeArgument | None = None,
        until: AnalyzeArgument | None = None,
        on_columns: AnalyzeArgument | None = None,
    ) -> Pinned:
        """The columns: ``_change_type``, and those of the rows."""
        with task_errors():
            arguments = [store, dataset, cube, since, until, on_columns]
            if not all(each is None or each.isConstantExpression for each in arguments):
                raise InvalidInput(f"The arguments of {_CHANGES} are constants: the columns depend on them.")
            values: list[Any] = [None if each is None else each.value for each in arguments]
            found = _difference(*values)
            wire = wire_schema(found.schema, _CHANGES)
            columns = spark_schema(wire)
            zoned = [column.name for column in columns.fields if is_zoned(column.dataType)]
            if zoned and "pysail" in sys.modules:  # which fails by an assertion without a word
                raise Unsupported(
                    f"Sail has no table function with times with a zone ({join_names(zoned)}). Ask for the changes "
                    "by read_dataset_changes or query_cube_changes, or on Spark with Java."
                )
            return Pinned(columns, wire=wire, until=found.until)

    def eval(
        self,
        store: str,
        dataset: str | None = None,
        cube: str | None = None,
        since: State | None = None,
        until: State | None = None,
        on_columns: Columns = None,
    ) -> Iterator[Row]:
        """The rows, the two images of an update side by side."""
        with task_errors():
            pinned = None if self._pinned is None else self._pinned.until
            found = _difference(store, dataset, cube, since, until, on_columns, pinned)
            wire = wire_schema(found.schema, _CHANGES) if self._pinned is None else self._pinned.wire
            for table in found.tables():
                for batch in to_spark(table, wire, _CHANGES):
                    yield from zip(*map(_values, batch.columns), strict=True)


class PinnedChanges(Changes):
    """`Changes` where a task learns what was found while the statement was planned."""

    def __init__(self, pinned: Pinned) -> None:
        self._pinned = pinned


def _values(column: pa.Array) -> list[object]:
    """The values as Spark takes them from a function."""
    values: list[object] = column.to_pylist()
    return [_with_dicts(value, column.type) for value in values] if pt.is_nested(column.type) else values


def _with_dicts(value: Any, data_type: pa.DataType) -> Any:
    """A value whose maps are dicts: Arrow has them as lists of pairs."""
    if value is None or not pt.is_nested(data_type):
        return value
    if pt.is_map(data_type):
        return {key: _with_dicts(item, data_type.item_type) for key, item in value}
    if pt.is_struct(data_type):
        return {field.name: _with_dicts(value[field.name], field.type) for field in data_type}
    return [_with_dicts(item, data_type.value_type) for item in value]


class ChangeCounts:
    """The function ``kartothek_change_counts``: how many rows came, changed, went, by dataset."""

    schema = "dataset string, inserted bigint, updated bigint, deleted bigint"

    def eval(
        self,
        store: str,
        dataset: str | None = None,
        cube: str | None = None,
        since: State | None = None,
        until: State | None = None,
        on_columns: Columns = None,
    ) -> Iterator[Row]:
        """A row for each dataset."""
        with task_errors():
            counts = _difference(store, dataset, cube, since, until, on_columns).counts()
            yield from zip(*counts.to_pydict().values(), strict=True)


def _difference(
    store: str,
    dataset: str | None = None,
    cube: str | None = None,
    since: State | None = None,
    until: State | None = None,
    on_columns: Columns = None,
    pinned: CubeState | None = None,
) -> Difference:
    """The difference that the arguments of a function mean; ``pinned`` stands for ``until``."""
    options = _target(store=store, dataset=dataset, cube=cube)
    first, last = _state("since", since), _state("until", until) if pinned is None else pinned
    if first is None:
        raise InvalidInput(
            "The argument since is missing: a commit (kartothek_history lists them), a tag or a moment, "
            "e.g. since => '2024-05-01'."
        )
    opened = open_store(options.store)
    settings = current_options()
    if options.cube is None:
        snapshot = load_snapshot(opened, dataset_uuid(options))
        return dataset_difference(snapshot, first, last, on_columns, opened, settings)
    check_no_key(options.cube, on_columns)
    described = valid_cube(options.cube, read_members(options.cube, opened, as_of=last), opened)
    if options.dataset is not None:
        return member_difference(described, options.dataset, first, last, opened, settings)
    return cube_difference(QueryArguments(described, as_of=last), first, opened, settings)


def _state(name: str, value: object) -> CubeState | None:
    """A commit, a tag or a moment as text, a date, or the commit of each dataset of a cube."""
    if value is None or isinstance(value, Mapping):
        return value
    if isinstance(value, list) and value and all(isinstance(pair, tuple) for pair in value):
        return dict(value)  # a map on Sail
    # Times of Spark come without the zone of the session.
    return value.isoformat() if type(value) is dt.date else _text(name, value)


class Files:
    """The function ``kartothek_files``: the data files with rows and bytes."""

    schema = "dataset string, table string, partition map<string,string>, file string, rows bigint, bytes bigint"

    def eval(self, store: str, dataset: str | None = None, cube: str | None = None) -> Iterator[Row]:
        """A row for each file of the newest state."""
        with task_errors():
            options = _target(store=store, dataset=dataset, cube=cube)
            opened = open_store(options.store)
            if options.dataset is None:
                members: Iterable[Snapshot] = require_members(str(options.cube), opened).values()
            else:
                members = [load_snapshot(opened, dataset_uuid(options))]
            for snapshot in members:
                for table in sorted(snapshot.schemas):
                    yield from _files(opened, snapshot, table)


def _files(store: Store, snapshot: Snapshot, table: str) -> Iterator[Row]:
    keys = snapshot.partitions.file_column(table)
    known = statistics_of_files(store, snapshot, keys)
    sizes = known.sizes.to_pylist()
    if known.sizes.null_count:
        listed = {e.key: e.size for e in store.list(f"{snapshot.uuid}/", recursive=True).entries}
        sizes = [listed.get(key) if size is None else size for key, size in zip(keys.to_pylist(), sizes, strict=True)]
    values = snapshot.values.to_pylist() if snapshot.partition_keys else [{}] * len(keys)
    for key, value, rows, size in zip(keys.to_pylist(), values, known.rows.to_pylist(), sizes, strict=True):
        if key is not None:  # a partition may lack a file of one table
            yield snapshot.uuid, table, {c: str(v) for c, v in value.items()}, key, rows, size


class Explain:
    """The function ``kartothek_explain``: which files a read with conditions touches, and why."""

    schema = "plan string"

    def eval(
        self, store: str, dataset: str | None = None, cube: str | None = None, conditions: str | None = None
    ) -> Iterator[Row]:
        """The lines of the plan."""
        with task_errors():
            options = _target(store=store, dataset=dataset, cube=cube, conditions=conditions)
            view = view_of(options)
            if isinstance(view, CubeView):
                types = {f.name: f.type for f in view.schema(None)}
                wanted = conditions_in(options.conditions, types) if options.conditions else None
                text = plan_cube_query(view.cube, view.store, wanted, dict(view.datasets)).explain()
            else:
                clauses = [(c.column, c.op, c.value) for c in view.clauses(options.conditions)]
                predicates = [clauses] if clauses else None
                text = plan_table_scan(dataset_uuid(options), options.store, predicates=predicates).explain()
            yield from ((line,) for line in text.splitlines())


class Cubes:
    """The function ``kartothek_cubes``: the cubes of a store."""

    schema = (
        "cube string, seed_dataset string, dimension_columns array<string>, partition_columns array<string>, "
        "index_columns array<string>, datasets array<string>"
    )

    def eval(self, store: str) -> Iterator[Row]:
        """A row for each cube."""
        with task_errors():
            opened = open_store(absolute_store("store", _text("store", store)))
            prefixes = list_cube_prefixes(opened)
            every = map_in_threads(lambda prefix: read_members(prefix, opened), prefixes, store=opened)
            for prefix, members in zip(prefixes, every, strict=True):
                # Nothing is committed, or a dataset has ++ in its name by chance.
                with suppress(InvalidInput, Unsupported):
                    cube = cube_of(prefix, members)
                    keys = [*cube.dimension_columns], [*cube.partition_columns], sorted(cube.index_columns)
                    yield prefix, cube.seed_dataset, *keys, sorted(members)


_FUNCTIONS: dict[str, type] = {
    "kartothek_history": History,
    _CHANGES: PinnedChanges,
    _COUNTS: ChangeCounts,
    "kartothek_files": Files,
    "kartothek_explain": Explain,
    "kartothek_cubes": Cubes,
}


def register_functions(session: SparkSession) -> None:
    """Register the table functions ``kartothek_...`` with a session."""
    # The class of functions differs between the two kinds of sessions.
    udtf: Any = import_module("pyspark.sql.connect.udtf" if is_connect(session) else "pyspark.sql.udtf")
    # Sail asks for the columns, too, but does not pass on to the task what it was told.
    functions = {**_FUNCTIONS, _CHANGES: Changes} if is_sail(session) else _FUNCTIONS
    for name, function in functions.items():
        schema = getattr(function, "schema", None)
        session.udtf.register(name, udtf.UserDefinedTableFunction(function, schema, name))
