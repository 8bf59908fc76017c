"""Table functions of SQL: history, changes, files and plans of cubes and datasets.

A function runs in one task, which opens the store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

import pandas as pd
import pyarrow as pa

from kartothek_cube.core.arrow.difference import CHANGE_TYPE
from kartothek_cube.core.dataset.changes import read_dataset_changes
from kartothek_cube.core.dataset.history import history
from kartothek_cube.core.dataset.scan_plan import plan_table_scan
from kartothek_cube.core.expressions.conjunction import conditions_in
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.snapshots.statistics import statistics_of_files
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.stores.open import open_store
from kartothek_cube.cube.members.discovery import cube_of, list_cube_prefixes, read_members, require_members
from kartothek_cube.cube.verbs.describe_changes import describe_cube_changes
from kartothek_cube.cube.verbs.discover import open_cube
from kartothek_cube.cube.verbs.history import cube_history
from kartothek_cube.cube.verbs.query import plan_cube_query
from kartothek_cube.errors import DatasetNotFound, InvalidInput, Unsupported
from kartothek_cube.spark.actions import task_errors
from kartothek_cube.spark.datasource.options import SourceOptions, absolute_store, dataset_uuid, parse_options
from kartothek_cube.spark.datasource.plan import CubeView, view_of
from kartothek_cube.spark.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Changes", "Cubes", "Explain", "Files", "History", "register_functions"]

Row: TypeAlias = tuple[object, ...]


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


class Changes:
    """The function ``kartothek_changes``: how many rows came, changed and went, by dataset."""

    schema = "dataset string, inserted bigint, updated bigint, deleted bigint"

    def eval(
        self,
        store: str,
        dataset: str | None = None,
        cube: str | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> Iterator[Row]:
        """A row for each dataset."""
        with task_errors():
            options = _target(store=store, dataset=dataset, cube=cube)
            if since is None:
                raise InvalidInput(
                    "The argument since is missing: a commit (kartothek_history lists them), a tag or a moment, "
                    "e.g. since => '2024-05-01'."
                )
            if options.cube is not None:
                described = open_cube(options.cube, options.store)
                counts = describe_cube_changes(described, options.store, since, until, rows=0).totals()
                if options.dataset not in (None, *(row[0] for row in counts)):
                    raise DatasetNotFound(f"Cube {options.cube!r} has no dataset {options.dataset!r}.")
                yield from (row for row in counts if options.dataset in (None, row[0]))
                return
            kinds: Counter[str] = Counter()
            with read_dataset_changes(str(options.dataset), options.store, since, until) as batches:
                for batch in batches:
                    kinds.update(batch.column(CHANGE_TYPE).to_pylist())
            # Without a key nothing says which rows are updates of which.
            yield options.dataset, kinds["insert"], None, kinds["delete"]


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


_FUNCTIONS = (History, Changes, Files, Explain, Cubes)


def register_functions(session: SparkSession) -> None:
    """Register the table functions ``kartothek_...`` with a session."""
    # The class of functions differs between the two kinds of sessions.
    udtf: Any = import_module("pyspark.sql.connect.udtf" if is_connect(session) else "pyspark.sql.udtf")
    for function in _FUNCTIONS:
        name = f"kartothek_{function.__name__.lower()}"
        session.udtf.register(name, udtf.UserDefinedTableFunction(function, function.schema, name))
