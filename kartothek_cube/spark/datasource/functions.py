"""Table functions of SQL: history, changes, files and plans of cubes and datasets.

A function runs in one task, which opens the store. Where its columns depend on the arguments,
Spark also asks for them while it plans.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

import pandas as pd
import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql.udtf import AnalyzeResult

from kartothek_cube.core.arguments import join_names
from kartothek_cube.core.dataset.history import history
from kartothek_cube.core.dataset.read import plan_table_scan
from kartothek_cube.core.expressions.conditions import conditions_in
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.runtime.options import current_options
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.snapshots.statistics import statistics_of_files
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.stores.open import open_store
from kartothek_cube.cube.members import cube_of, list_cube_prefixes, read_members, require_members, valid_cube
from kartothek_cube.cube.query.intention import QueryArguments
from kartothek_cube.cube.verbs.history import cube_history
from kartothek_cube.cube.verbs.read import plan_cube_query
from kartothek_cube.engines.duckdb import (
    FUNCTIONS,
    Difference,
    check_no_key,
    cube_difference,
    dataset_difference,
    member_difference,
)
from kartothek_cube.errors import InvalidInput, Unsupported
from kartothek_cube.spark.actions import task_errors
from kartothek_cube.spark.datasource.options import SourceOptions, absolute_store, dataset_uuid, parse_options
from kartothek_cube.spark.datasource.plan import CubeView, view_of
from kartothek_cube.spark.session import is_connect, is_sail
from kartothek_cube.spark.types import is_zoned, spark_schema, to_spark, wire_schema
from kartothek_cube.typing import Columns, CubeState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.udtf import AnalyzeArgument

__all__ = ["ChangeCounts", "Changes", "Cubes", "Explain", "Files", "History", "register_functions"]

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
