"""The batch reader of the data source: plans once for each physical plan, in a process of Spark's; its tasks load what was packed for them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import DayTimeIntervalType, StructType

from kartothek_cube.core.predicates import Clause
from kartothek_cube.core.stores import store_factory
from kartothek_cube.errors import InvalidInput
from kartothek_cube.spark.datasource.filters import push
from kartothek_cube.spark.datasource.options import SourceOptions
from kartothek_cube.spark.datasource.plan import View, load_items, view_of
from kartothek_cube.spark.errors import task_errors
from kartothek_cube.spark.tasks import pack, sampled_bytes, task_count, unpack
from kartothek_cube.spark.types import arrow_schema, spark_schema, to_spark, wire_schema
from kartothek_cube.spark.worker import tuned_worker

__all__ = ["CubeReader", "PushingReader", "make_reader", "source_schema"]


def source_schema(options: SourceOptions, view: View | None = None) -> StructType:
    """The columns of a read, as Spark knows them."""
    view = view or view_of(options)
    view.clauses(options.conditions)
    return spark_schema(wire_schema(view.schema(options.columns), _where(options)))


def _where(options: SourceOptions) -> str:
    return f"cube {options.cube!r}" if options.dataset is None else f"dataset {options.dataset!r}"


def make_reader(options: SourceOptions, schema: StructType, cores: int | None = None, view: View | None = None) -> CubeReader:
    """The reader that the options ask for; of a state that is known already, else of the newest.

    Raises
    ------
    InvalidInput
        If the user gave a schema with other columns than the option names.
    """
    if options.columns is not None and list(options.columns) != schema.names:
        raise InvalidInput(f"The option columns={','.join(options.columns)!r} contradicts the schema that was given for {_where(options)}: {schema.names}.")
    return (PushingReader if options.push_down else CubeReader)(options, schema, cores, view)


class CubeReader(DataSourceReader):
    """Reads a cube or a dataset. What was loaded to plan stays behind when it travels to the tasks.

    It takes no filters. Spark keeps one plan for each ``load()``, the one of the filters that it pushed last, and gives it to every other scan of that
    frame, in the same query and in later ones, whatever their filters: rows would be missing without a word.
    """

    def __init__(self, options: SourceOptions, schema: StructType, cores: int | None = None, view: View | None = None) -> None:
        self._options, self._schema, self._cores = options, schema, cores
        self._pushed: tuple[Clause, ...] = ()
        self._view = view

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._options, self._schema, self._cores)

    def partitions(self) -> list[InputPartition]:
        """One partition a task, with all that the task has to read."""
        with task_errors():
            view, options = self._loaded(), self._options
            items = view.items(self._schema.names, (*view.clauses(options.conditions), *self._pushed))
            width = options.parallelism or self._cores or os.cpu_count() or 1
            nbytes = sampled_bytes(store_factory(options.store), items, lambda item: item.file_keys())
            return [InputPartition(chunk) for chunk in pack(items, task_count(len(items), width, options.blocksize, nbytes))]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of one partition. Spark asks once if there is none: with None as its value, or (4.1) instead of it."""
        if partition is None or partition.value is None:
            return
        with task_errors(), tuned_worker():
            wire = _wire_of(self._schema, _where(self._options))
            for table in load_items(self._options.store, unpack(partition.value)):
                yield from to_spark(table, wire)

    def _loaded(self) -> View:
        if self._view is None:
            self._view = view_of(self._options)
        return self._view


class PushingReader(CubeReader):
    """The same for a frame that is used in one query with one filter."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take what we compare as Spark would; give the rest back."""
        with task_errors():
            view = self._loaded()
            pushed = push(filters, self._comparable(view), cube=view.is_cube)
        self._pushed = pushed.clauses
        return iter(pushed.rest)

    def _comparable(self, view: View) -> dict[str, pa.DataType]:
        """Stored types of the columns that come in the type which the user sees."""
        stored = view.schema(self._schema.names)
        seen = spark_schema(wire_schema(stored, _where(self._options)))
        return {f.name: f.type for f in stored if seen[f.name].dataType == self._schema[f.name].dataType}


def _wire_of(schema: StructType, where: str) -> pa.Schema:
    """The Arrow types in which Spark expects columns of these types."""
    # Durations are read, but Spark's intervals are not stored.
    intervals = {f.name for f in schema.fields if isinstance(f.dataType, DayTimeIntervalType)}
    others = arrow_schema(StructType([f for f in schema.fields if f.name not in intervals]), where)
    return pa.schema([pa.field(n, pa.duration("us")) if n in intervals else others.field(n) for n in schema.names])
