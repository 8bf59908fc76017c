"""The target of a data source read, a cube or one dataset: its columns, and its items of work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from kartothek_cube.core.dataset.reference import DatasetRef, dataset_ref
from kartothek_cube.core.expressions.conditions import Conjunction, condition_class, conditions_in
from kartothek_cube.core.expressions.predicates import Clause, Predicates, parse_predicates
from kartothek_cube.core.io.reader import FileRequest
from kartothek_cube.core.kartothek.dataset_metadata import DatasetMetadata
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.scan.execute import stream_tables
from kartothek_cube.core.scan.plan import ScanTask, check_table, checked_columns, make_file_plan
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.stores.open import open_store, store_factory
from kartothek_cube.cube.consistent_read import infos_of
from kartothek_cube.cube.cube import Cube
from kartothek_cube.cube.execute.load import PartitionLoader
from kartothek_cube.cube.query.intention import QueryArguments, make_intention
from kartothek_cube.cube.query.plan import Group
from kartothek_cube.cube.verbs.describe import discover_cube
from kartothek_cube.cube.verbs.read import plan_cube_query
from kartothek_cube.errors import UnknownColumn
from kartothek_cube.spark.datasource.options import SourceOptions, dataset_uuid
from kartothek_cube.spark.tasks import known_sizes
from kartothek_cube.typing import StoreLike

__all__ = [
    "CubeView",
    "DatasetView",
    "FileItem",
    "Item",
    "ReadTarget",
    "load_items",
    "parse_conditions",
    "predicates_of",
    "view_of",
]


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
        conditions = Conjunction([condition_class(c.op)(c.column, c.value) for c in clauses])
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
