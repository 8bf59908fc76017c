"""Merging a Spark data frame into a dataset: the source is staged in tasks, so are its effects."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from kartothek_cube.core.arguments import check_flag
from kartothek_cube.core.arrow.keys import pack_one, stable_order
from kartothek_cube.core.commit.change import OnConflict, check_on_conflict
from kartothek_cube.core.commit.commit import check_store_can_commit
from kartothek_cube.core.dataset.reference import target_of
from kartothek_cube.core.dataset.rows import run_rows
from kartothek_cube.core.metadata.naming import new_id
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.rows.edits import (
    MergeSource,
    RewriteSpec,
    RowsReport,
    WhenMatched,
    check_keys,
    check_no_nulls,
    rewrite_spec,
)
from kartothek_cube.core.rows.merge import (
    MergeFiles,
    MergeRules,
    SourceFiles,
    StagedSource,
    WhenNotMatched,
    WrittenFile,
    check_partition_values,
    merge_rules,
    plan_merge,
    source_schema,
    stage_new_rows,
    typed_rows,
    with_source_types,
    write_source,
)
from kartothek_cube.core.rows.run import RowsPlan, StagedRows, new_rows_request, stage_rows
from kartothek_cube.core.runtime.executor import Executor, map_in_threads
from kartothek_cube.core.runtime.options import Overrides, current_options
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.stores.open import open_store, store_factory
from kartothek_cube.errors import InvalidInput, InvalidType, Unsupported
from kartothek_cube.spark.actions import Job, collect, decode_error, encode_error
from kartothek_cube.spark.executor import spark_executor
from kartothek_cube.spark.python_worker import spilling_beside_spark
from kartothek_cube.spark.session import session_by_keyword, session_of, shown
from kartothek_cube.spark.tasks import TASKS_PER_CORE, as_task
from kartothek_cube.spark.types import Timestamps, conform, frame_schema, spark_schema
from kartothek_cube.spark.write.blocks import sorted_pieces, take_until
from kartothek_cube.spark.write.distribution import bucket_column, with_plain_names
from kartothek_cube.typing import Columns, StoreLike

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["merge_dataset_from_spark"]

_WRITTEN = pa.schema([("file", pa.binary()), ("error", pa.string())])
# Keys are spread over so many hashes; Spark makes as many tasks of these as the rows are worth.
_HASHES = 2**31 - 1
# Of a piece: as it came, sorted, with row numbers, its encoded file.
_SHARES = 4


@session_by_keyword
def merge_dataset_from_spark(
    df: DataFrame,
    store: StoreLike,
    dataset_uuid: str,
    on: Columns,
    *,
    when_matched: WhenMatched = "update",
    when_not_matched: WhenNotMatched = "insert",
    when_not_matched_by_source: str | None = None,
    on_conflict: OnConflict = "raise",
    dry_run: bool = False,
    timestamps: Timestamps = "refuse",
    spark: SparkSession | None = None,
    parallelism: int | None = None,
    options: Overrides | None = None,
) -> RowsReport:
    """Merge the rows of a Spark data frame into a dataset by key columns, in one commit.

    Columns and types are checked before the first task starts. The data frame is evaluated exactly
    once: a job shuffles its rows by key, checks them, and writes them as sorted files below the
    dataset's folder, which no commit names. Then tasks search the files of the dataset, write new
    ones in place of those that change, and write the new rows. A task reads only those row groups
    of the source that may have keys of its file. At the end the files of the source are deleted.
    After a crash garbage collection removes them.

    Parameters
    ----------
    df : DataFrame
        The source. Each key occurs once, without nulls.
    store : str, path, store or callable
        The store. The executors open the same store, so other processes must see it.
    dataset_uuid, on, when_matched, when_not_matched, when_not_matched_by_source, on_conflict
        As in `kartothek_cube.api.dataset.merge_dataset`.
    dry_run : bool, default False
        Only report what would be done. The files of the source are written and deleted all the
        same.
    timestamps, spark, parallelism, options
        As in `store_dataset_from_spark`.

    Returns
    -------
    RowsReport
        As of `kartothek_cube.api.dataset.merge_dataset`.

    Raises
    ------
    DatasetNotFound, CommitConflict, InvalidInput, InvalidType, UnknownColumn
        As in `kartothek_cube.api.dataset.merge_dataset`. `InvalidType` if other processes cannot
        open the store.

    Notes
    -----
    The driver holds about ten bytes for each row of the source, and the values of key columns that
    have an index, unless these take more than ``options(bytes_in_flight=...)``. Only a few rows
    that an update moves to other partitions pass through the driver: less than 64 KiB of each file.

    Updates and inserts by key give the same rows when they are repeated, so that the verb may stand
    in ``foreachBatch`` of a stream.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.api.dataset import read_table, store_dataframes_as_dataset
    >>> from kartothek_cube.spark import merge_dataset_from_spark
    >>> stock = pa.table({"PRODUCT_ID": [1, 2], "STOCK": [10, 20]})
    >>> _ = store_dataframes_as_dataset("hfs://shelves", "stock", [stock])
    >>> counted = spark.createDataFrame([(2, 19), (3, 5)], "PRODUCT_ID long, STOCK long")
    >>> report = merge_dataset_from_spark(counted, "hfs://shelves", "stock", on="PRODUCT_ID")
    >>> report.updated, report.inserted
    (1, 1)
    >>> read_table("stock", "hfs://shelves")
       PRODUCT_ID  STOCK
    0           1     10
    1           2     19
    2           3      5
    """
    with operation("merge_dataset_from_spark", options):
        if not hasattr(df, "mapInArrow"):
            raise InvalidType(f"Expected a Spark data frame for dataset {dataset_uuid!r}; got {shown(df)}")
        check_on_conflict(on_conflict)
        target = target_of(store, dataset_uuid)
        if not check_flag(dry_run, "dry_run"):
            check_store_can_commit(target.store)
        session, subject = spark or session_of(df), f"dataset {target.uuid!r}"
        executor = spark_executor("merge into", subject, [(target.store, store)], session, parallelism)
        base = load_snapshot(target.store, target.uuid)
        first = rewrite_spec(base)
        rules = merge_rules(first, on, when_matched, when_not_matched, when_not_matched_by_source)
        given = frame_schema(df.schema, target.uuid, timestamps)
        task = _source_task(store_factory(target.store), base, first, rules, given)
        width = None if parallelism is None else TASKS_PER_CORE * executor.width
        with _source_in_files(target.store, df, task, width) as source:

            def plan(base: Snapshot, spec: RewriteSpec) -> RowsPlan:
                typed = with_source_types(spec, task.schema)
                whens = rules.when_matched, rules.deletes_others
                edit = MergeFiles(target.store, source.files, *whens, spec.partition_keys)
                found = plan_merge(target.store, base, typed, edit, source, rules, executor)
                # The numbers of source rows have done their work, and would travel to all tasks.
                matches = [replace(m, found=m.found._replace(sources=None)) for m in found.matches]
                return replace(found, matches=tuple(matches))

            return run_rows(target, plan, on_conflict, dry_run, executor, partial(_staged, source))


def _staged(source: StagedSource, store: Store, plan: RowsPlan, executor: Executor) -> StagedRows:
    """Write the new rows first, in tasks; their files join those of the plan."""
    # Without its base, which has all partitions of the dataset: the request travels to every task.
    write = replace(new_rows_request(plan), base=None)
    inserted = stage_new_rows(store, plan, source.files, write, executor)
    return stage_rows(store, replace(plan, is_new=plan.is_new[:0]), executor, inserted, write)


# --- the source -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _SourceTask:
    """What a task needs to write rows of the source; a part of the closure.

    ``given`` are the columns by position, with types as stored; ``schema`` has those of the
    dataset. ``together`` are the partition columns among the keys, ``indexed`` those with an index.
    """

    store: Store | Callable[[], Store]
    uuid: str
    folder: str
    given: pa.Schema
    schema: pa.Schema
    on: tuple[str, ...]
    partition_keys: tuple[str, ...]
    together: tuple[str, ...]
    indexed: tuple[str, ...]
    limit: int

    @property
    def order(self) -> tuple[str, ...]:
        """The sort order of files: a file of the dataset has one value of a partition column."""
        return tuple(dict.fromkeys((*self.together, *self.on)))


def _source_task(
    store: Store | Callable[[], Store], base: Snapshot, spec: RewriteSpec, rules: MergeRules, given: pa.Schema
) -> _SourceTask:
    """The checked columns of a source."""
    together = tuple(c for c in rules.on if c in base.partition_keys)
    indexed = tuple(c for c in rules.on if c in base.pruning_columns)
    folder, limit = f"{spec.table}/merge-{new_id()}", max(1, current_options().bytes_in_flight // _SHARES)
    schema = source_schema(given, spec, rules)
    keys = spec.partition_keys
    return _SourceTask(store, spec.uuid, folder, given, schema, rules.on, keys, together, indexed, limit)


@contextmanager
def _source_in_files(store: Store, frame: DataFrame, task: _SourceTask, width: int | None) -> Iterator[StagedSource]:
    """Write the rows of a data frame in one Spark job; the files are gone at the end."""
    job = Job("merge into", f"dataset {task.uuid!r}", "source", "write")
    plain, names = with_plain_names(frame)
    types = {f.name: f.dataType for f in frame.schema.fields}
    hashed = bucket_column({names[c]: types[c] for c in task.on}, _HASHES)
    # Without a number of tasks adaptive execution chooses it by the bytes of the shuffle.
    spread = plain.repartition(hashed) if width is None else plain.repartition(width, hashed)
    try:
        rows = collect(spread.mapInArrow(as_task(partial(_write, task), job), spark_schema(_WRITTEN)), job)
        for row in rows:
            if row["error"]:
                raise decode_error(row["error"])
        written = sorted((_loaded(row["file"]) for row in rows), key=lambda w: w.file.key)
        files = SourceFiles(task.uuid, task.schema, task.on, tuple(w.file for w in written))
        yield StagedSource(store, files, tuple(written), current_options().bytes_in_flight)
    finally:
        # Also files of attempts that failed. What cannot be deleted now is garbage.
        with suppress(Exception):
            list(map_in_threads(store.delete, store.keys(f"{task.uuid}/{task.folder}/"), store=store))


def _loaded(data: bytes | bytearray) -> WrittenFile:
    written: WrittenFile = pickle.loads(bytes(data))
    return written


def _write(task: _SourceTask, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a Spark task: rows in, written files out. Unusable rows return as an error."""
    store = open_store(task.store)
    with spilling_beside_spark():
        try:
            # Closed at the end, whatever happens: the sort has temporary files.
            with closing(_checked(task, batches)) as pieces:
                for piece in pieces:
                    source = MergeSource(piece, task.on)
                    file = write_source(store, task.uuid, task.folder, source, task.together, task.indexed)
                    yield pa.record_batch([[pickle.dumps(file)], [None]], schema=_WRITTEN)
        except (InvalidInput, InvalidType, Unsupported) as error:
            # A row instead of a failed task: Spark would retry, and no retry helps.
            yield pa.record_batch([[None], [encode_error(error)]], schema=_WRITTEN)


def _checked(task: _SourceTask, batches: Iterable[pa.RecordBatch]) -> Generator[pa.Table, None, None]:
    """The rows sorted by key, in pieces that fit into memory, without a key that occurs twice."""
    last: pa.Table | None = None
    for piece in _in_order(task, (_typed(task, batch) for batch in batches if batch.num_rows)):
        # Equal keys may be on both sides of a cut.
        check_keys(MergeSource(piece if last is None else pa.concat_tables([last, piece]), task.on), task.uuid)
        last = piece.slice(piece.num_rows - 1)
        yield piece


def _typed(task: _SourceTask, batch: pa.RecordBatch) -> pa.Table:
    named = pa.Table.from_batches([batch]).rename_columns(task.given.names)
    rows = typed_rows(conform(named, task.given, f"dataset {task.uuid!r}"), task.schema, task.uuid)
    check_no_nulls(rows, task.on, task.uuid)
    check_partition_values(rows, task.partition_keys, task.uuid)
    return rows


def _in_order(task: _SourceTask, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    tables, rows, _, complete = take_until(tables, task.limit)
    if not complete:
        # The sort holds several copies of a piece.
        yield from sorted_pieces(tables, task.order, max(1, task.limit // _SHARES))
    elif rows:
        table = pa.concat_tables(tables).combine_chunks()
        order = stable_order(pack_one(table, task.order))
        yield table if order is None else table.take(pa.array(order))
