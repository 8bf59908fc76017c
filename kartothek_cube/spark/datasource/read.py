"""The batch reader of the data source: Spark plans it in a process of its own, tasks load items.

The stream reader shares the tasks.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import DoubleType, StructType

from kartothek_cube.core.expressions.predicates import Clause
from kartothek_cube.core.stores.open import store_factory
from kartothek_cube.errors import InvalidInput
from kartothek_cube.spark.actions import task_errors
from kartothek_cube.spark.datasource.filters import push
from kartothek_cube.spark.datasource.options import SourceOptions
from kartothek_cube.spark.datasource.plan import FileItem, Item, ReadTarget, load_items, view_of
from kartothek_cube.spark.python_worker import tuned_worker
from kartothek_cube.spark.tasks import pack, sampled_bytes, task_count, unpack
from kartothek_cube.spark.types import arrow_schema, as_struct, spark_schema, to_spark, wire_schema

__all__ = ["CubeReader", "PushingReader", "check_schema", "make_reader", "packed", "rows_of", "source_schema"]


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


def packed(options: SourceOptions, items: Sequence[Item], cores: int | None) -> list[InputPartition]:
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
    """In a task: the rows of a partition from `packed`."""
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
            return packed(self._options, view.items(self._schema.names, clauses), self._cores)

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
