"""The data source's writers: a batch or micro-batch is planned, staged in tasks, committed once.

In order:

- the target, from options and columns
- the writers
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol, TypeAlias

import pyarrow as pa
from msgspec.structs import replace
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from kartothek_cube.core.commit.dataset_write import DatasetWrite, removed_labels
from kartothek_cube.core.metadata.commit_log import Txn, is_applied, parse_txn
from kartothek_cube.core.metadata.naming import new_id
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.runtime.options import current_options
from kartothek_cube.core.snapshots.loader import find_snapshot
from kartothek_cube.core.snapshots.time_travel import check_as_of, load_snapshot_as_of
from kartothek_cube.core.stores.contract import Store, check_store_can_commit
from kartothek_cube.core.stores.open import open_store, store_factory
from kartothek_cube.core.write.layout import parse_scope
from kartothek_cube.core.write.plan import plan_dataset_update, plan_new
from kartothek_cube.core.write.prepare import Schemas, WriteRequest
from kartothek_cube.core.write.stage import Receipt, StagedWrite
from kartothek_cube.cube.cube import Cube
from kartothek_cube.cube.members import cube_of, existing_for_build, other_cubes, read_members, valid_cube
from kartothek_cube.cube.write.commit import commit_cube_write
from kartothek_cube.cube.write.plan import CubeWrite, check_duplicates, plan_append, plan_build, plan_extend
from kartothek_cube.errors import (
    AlreadyExists,
    CommitConflict,
    CorruptData,
    InvalidInput,
    InvalidType,
    KeyNotFound,
    Unsupported,
)
from kartothek_cube.spark.datasource.options import SourceOptions, dataset_uuid
from kartothek_cube.spark.stage import CubeRows, DatasetRows, Rows, StageTask, checked_schemas, in_order, staged
from kartothek_cube.spark.tasks import decode_error, encode_error, task_errors
from kartothek_cube.spark.types import as_struct, frame_schema

ANY = "any version"

Layout: TypeAlias = tuple[tuple[str, ...], frozenset[str]]
"""Partition columns and indexed columns of a dataset."""

Scope: TypeAlias = Sequence[Mapping[str, object]]
"""A delete scope as users write it."""


@dataclass(frozen=True, slots=True)
class SourceWrite:
    """A write: its options, the stored columns of its rows, and whether Spark's mode is overwrite.

    On Sail ``append`` may also be ``errorifexists``, its default, or ``ignore``.
    Small, since it travels to every task.
    """

    options: SourceOptions
    schema: pa.Schema
    overwrite: bool = False
    on_sail: bool = False

    @property
    def may_add(self) -> bool:
        """Whether a target that exists may change."""
        if self.options.if_exists is None:
            return self.overwrite or not self.on_sail
        return self.options.if_exists == "append"

    @property
    def replaces(self) -> bool:
        """Whether the write replaces the whole dataset."""
        return self.overwrite and not self.options.overwrite_partitions

    def scope(self, receipts: Iterable[Receipt]) -> list[Mapping[str, object]]:
        """The partitions that the write of these files removes, as a delete scope."""
        if not self.options.overwrite_partitions:
            return list(self.options.delete_scope)
        # A dict each, as values of two columns do not combine freely.
        return [dict(values) for values in dict.fromkeys(tuple(r.values.items()) for r in receipts)]


class WritePlan(Protocol):
    """A plan for one state of the store; `rows` is the part that tasks need."""

    @property
    def base(self) -> Snapshot | None:
        """The present state of the dataset."""

    @property
    def rows(self) -> Rows:
        """How rows become files."""

    def commit(self, store: Store, receipts: Sequence[Receipt], txn: Txn | None, scope: Scope) -> None:
        """Publish files that were staged for `rows`, and remove the partitions in the scope."""


def is_left_alone(write: SourceWrite, txn: Txn | None) -> bool:
    """Whether there is the dataset, or without `dataset` the cube, and it is to stay as it is.

    Raises
    ------
    AlreadyExists
        If it exists, the option ``if_exists`` is ``error``, and the numbered write is not done.
    InvalidInput
        If it exists, and Sail does not say what to do then.
    """
    options = write.options
    if write.may_add:
        return False
    store = open_store(options.store)
    if options.dataset is None:
        members = read_members(str(options.cube), store)
        base = members[cube_of(str(options.cube), members).seed_dataset] if members else None
    else:
        base = find_snapshot(store, dataset_uuid(options))
    return _stays(write, base, txn)


def _stays(write: SourceWrite, base: Snapshot | None, txn: Txn | None) -> bool:
    """Whether a target, or None, is to stay as it is; errors as of `is_left_alone`."""
    if base is None or write.may_add:
        return False
    if write.options.if_exists == "ignore" or is_applied(txn, base.document.metadata):
        return True
    if write.options.if_exists == "error":
        raise AlreadyExists(
            f"{_target(write)} exists. To add the rows, write with if_exists=append; to replace the former ones, "
            'with mode("overwrite").'
        )
    raise InvalidInput(
        f"{_target(write)} exists, and Sail does not say which mode is meant: errorifexists, its default, and ignore "
        'arrive as append. Add .option("if_exists", "append") to add the rows, or "error" or "ignore".'
    )


def plan_write(write: SourceWrite) -> WritePlan:
    """Check a write against the store as it is now.

    Raises
    ------
    InvalidInput, InvalidType, Unsupported
        If columns or options do not fit the present target, or are not enough to create it.
    """
    store = open_store(write.options.store)
    check_store_can_commit(store)
    plan = _plan_dataset(write, store) if write.options.cube is None else _plan_cube(write, store)
    if write.options.overwrite_partitions and not plan.rows.request.partition_on:
        raise InvalidInput(
            f"{_target(write)} has no partition columns, so that overwrite_partitions would replace all of it. "
            "Leave the option out to do so."
        )
    parse_scope(write.scope(()), plan.base)
    return plan


@dataclass(frozen=True, slots=True)
class DatasetWritePlan:
    """A write to a dataset outside of any cube.

    With ``creates`` it fails if another writer creates the dataset meanwhile.
    """

    request: WriteRequest
    table: str
    schema: pa.Schema
    schemas: Schemas
    creates: bool

    @property
    def base(self) -> Snapshot | None:
        """The present state of the dataset."""
        return self.request.base

    @property
    def rows(self) -> DatasetRows:
        """How rows become files."""
        return DatasetRows(replace(self.request, base=None, replace=False), self.table, self.schema)

    def commit(self, store: Store, receipts: Sequence[Receipt], txn: Txn | None, scope: Scope) -> None:
        """Publish files that were staged for `rows`, and remove the partitions in the scope."""
        staged = StagedWrite(self.request, tuple(receipts), self.schemas.tables, 1)
        write = DatasetWrite(store, self.request.uuid, self.base, creates=self.creates, txn=txn)
        write.removing(scope).commit(staged)


def _plan_dataset(write: SourceWrite, store: Store) -> DatasetWritePlan:
    options, uuid = write.options, dataset_uuid(write.options)
    base = find_snapshot(store, uuid)
    if base is not None and write.replaces:
        keys = base.partition_keys if options.partition_on is None else options.partition_on
        indices = sorted(base.secondary_columns) if options.secondary_indices is None else options.secondary_indices
        encoding = "msgpack" if base.is_msgpack else "json"
        request = plan_new(uuid, base, list(keys), list(indices), overwrite=True, storage_format=encoding)
    else:
        request = plan_dataset_update(
            uuid, base, list(options.partition_on or ()), list(options.secondary_indices or ())
        )
    schemas = checked_schemas(request, options.table, write.schema)
    stored = schemas.tables[options.table]
    typed = pa.schema([stored.field(f.name) if f.name not in request.partition_on else f for f in write.schema])
    return DatasetWritePlan(request, options.table, typed, schemas, request.replace or not write.may_add)


@dataclass(frozen=True, slots=True)
class CubeWritePlan:
    """A write to one dataset of a cube."""

    name: str
    write: CubeWrite

    @property
    def base(self) -> Snapshot | None:
        """The present state of the dataset."""
        return self.write.bases.get(self.name)

    @property
    def rows(self) -> CubeRows:
        """How rows become files."""
        return CubeRows(self.write.datasets[self.name])

    def commit(self, store: Store, receipts: Sequence[Receipt], txn: Txn | None, scope: Scope) -> None:
        """Publish files that were staged for `rows`, and remove the partitions in the scope."""
        check_duplicates(store, self.write.datasets[self.name], receipts, "the rows of two tasks")
        write = replace(self.write, txn=txn)
        if scope and self.base is not None:
            removal = DatasetWrite(store, self.base.uuid, self.base).removing(scope)
            removed = {self.name: removed_labels(store, self.base, removal.scope)}
            write = replace(write, removed=removed, scopes={self.name: removal.labels}, allow_empty=True)
        commit_cube_write(store, write, {self.name: list(receipts)})


def _plan_cube(write: SourceWrite, store: Store) -> CubeWritePlan:
    options = write.options
    assert options.cube is not None
    existing = read_members(options.cube, store)
    if not existing:
        if options.dimension_columns is None or options.partition_columns is None:
            raise InvalidInput(
                f"There is no cube {options.cube!r} in the store. To make it, give the options dimension_columns and "
                'partition_columns, e.g. .option("dimension_columns", "PRODUCT_ID,SALES_DATE")'
                f'.option("partition_columns", "COUNTRY_CODE").{other_cubes(options.cube, store)}'
            )
        seed = {} if options.dataset is None else {"seed_dataset": options.dataset}
        dimensions, indices = options.dimension_columns, options.index_columns or ()
        cube = Cube(dimensions, options.partition_columns, options.cube, index_columns=indices, **seed)
        keys = _partition_columns(options, cube.seed_dataset, None)
        return CubeWritePlan(
            cube.seed_dataset, plan_build(cube, {cube.seed_dataset: write.schema}, {}, partition_on=keys)
        )
    cube = valid_cube(options.cube, existing)
    name = options.dataset or cube.seed_dataset
    base, rows = existing.get(name), {name: write.schema}
    _check_cube(options, cube, base)
    if base is not None and not write.replaces:
        if options.partition_on is not None and tuple(options.partition_on) != base.partition_keys:
            raise InvalidInput(
                f"Dataset {base.uuid!r} is partitioned on {list(base.partition_keys)}, "
                f"not on {list(options.partition_on)}."
            )
        return CubeWritePlan(name, plan_append(cube, rows, existing))
    indexed = cube.copy(index_columns=cube.index_columns | set(options.index_columns or ()))
    keys = _partition_columns(options, name, base)
    if write.replaces and name == cube.seed_dataset:
        replaced = existing_for_build(cube, store)
        return CubeWritePlan(name, plan_build(indexed, rows, replaced, overwrite=True, partition_on=keys))
    return CubeWritePlan(name, plan_extend(indexed, rows, existing, overwrite=write.replaces, partition_on=keys))


def _partition_columns(options: SourceOptions, name: str, base: Snapshot | None) -> dict[str, Sequence[str]] | None:
    # A replaced dataset keeps its partition columns, unless the options name others.
    keys = options.partition_on if options.partition_on is not None or base is None else base.partition_keys
    return None if keys is None else {name: list(keys)}


def _check_cube(options: SourceOptions, cube: Cube, base: Snapshot | None) -> None:
    """Check that the options agree with the cube in the store."""
    for argument, given, stored in [
        ("dimension_columns", options.dimension_columns, cube.dimension_columns),
        ("partition_columns", options.partition_columns, cube.partition_columns),
    ]:
        if given is not None and tuple(given) != tuple(stored):
            raise InvalidInput(
                f"Cube {options.cube!r} exists with the {argument} {list(stored)}, not {list(given)}. "
                f"Leave the option {argument} out."
            )
    surplus = sorted(set(options.index_columns or ()) - base.indexed_columns) if base is not None else []
    if surplus:
        raise InvalidInput(
            f"The dataset of cube {options.cube!r} has no index on {surplus}. "
            "Leave them out of index_columns; build_cube_index makes an index."
        )


def publish_files(
    write: SourceWrite, layout: Layout, receipts: Sequence[Receipt], txn: Txn | None, seen: Hashable = ANY
) -> None:
    """Commit staged files, after planning the write again for the present store.

    ``layout`` is the one that the files were staged for. ``seen`` is the version of the dataset
    that may be replaced, in whole or in parts, or `ANY`.

    Raises
    ------
    CommitConflict
        If another writer created, replaced or indexed the dataset differently in between, or
        changed what this write removes. Nothing is visible then.
    AlreadyExists
        If another writer created a dataset that was not to exist.
    """
    if is_left_alone(write, txn):
        return
    plan = plan_write(write)
    base = plan.base
    if _stays(write, base, txn) or (base is not None and is_applied(txn, base.document.metadata)):
        return
    if layout_of(plan.rows) != layout:
        keys, indices = layout_of(plan.rows)
        raise CommitConflict(
            f"{_target(write)} has the partition columns {list(keys)} and indices on {sorted(indices)} now, "
            "for which these rows were not written. Nothing of them is visible. Write them again."
        )
    store, scope = open_store(write.options.store), write.scope(receipts)
    is_newer = seen is not ANY and version_of(base) != seen
    if is_newer and (write.replaces or (scope and not _is_unchanged(store, base, scope, seen))):
        raise CommitConflict(
            f"{_target(write)} was changed while the rows that replace {'it' if write.replaces else 'a part of it'} "
            "were written. Nothing of them is visible. Write them again."
        )
    try:
        plan.commit(store, receipts, txn, scope)
    except CommitConflict:
        if not is_left_alone(write, txn):
            raise


def _is_unchanged(store: Store, base: Snapshot | None, scope: Scope, seen: Hashable) -> bool:
    """Whether the scope selects the same partitions now as in the state that was seen."""
    commit = seen[1] if isinstance(seen, tuple) else None
    if base is None or commit is None:
        return False
    try:
        older = load_snapshot_as_of(store, base.uuid, check_as_of(commit))
        then, now = (removed_labels(store, state, parse_scope(scope, state)) for state in (older, base))
    except (InvalidInput, InvalidType, KeyNotFound):  # history does not reach back, or keys and indices are others
        return False
    return set(then.to_pylist()) == set(now.to_pylist())


def layout_of(rows: Rows) -> Layout:
    """Partition columns and indexed columns, which must not change until the commit."""
    return rows.request.partition_on, frozenset(rows.request.index_columns)


def version_of(base: Snapshot | None) -> Hashable:
    """A picklable token of the state of a dataset, and its commit; None without a dataset."""
    return None if base is None else (base.token, base.chain[-1].id if base.chain else None)


def _target(write: SourceWrite) -> str:
    options = write.options
    return f"Dataset {dataset_uuid(options)!r}" if options.dataset is not None else f"Cube {options.cube!r}"


# --- the writers ----------------------------------------------------------------------------------


@dataclass
class StagedFiles(WriterCommitMessage):
    """The receipts of a task, or its error if no second attempt would help.

    ``write`` is the id of the task's writer, ``layout`` the one that the files were staged for,
    ``query`` the id of a streaming query.
    """

    write: str
    layout: Layout
    receipts: bytes
    error: str | None = None
    query: str | None = None


def source_write(options: SourceOptions, schema: StructType | pa.Schema, overwrite: bool) -> SourceWrite:
    """The write of rows with these columns, checked by their types alone; on Sail of Arrow."""
    store_factory(options.store)
    for option, needs_overwrite in (("overwrite_partitions", True), ("delete_scope", False), ("if_exists", False)):
        if getattr(options, option) not in (False, (), None, "append") and overwrite is not needs_overwrite:
            mode = 'mode("overwrite")' if needs_overwrite else 'mode("append")'
            raise InvalidInput(f"The option {option} is for {mode}, and this write has another mode.")
    name = str(options.cube) if options.dataset is None else dataset_uuid(options)
    columns = frame_schema(as_struct(schema), name, options.timestamps)
    return SourceWrite(options, columns, overwrite, isinstance(schema, pa.Schema))


def make_writer(options: SourceOptions, schema: StructType | pa.Schema, overwrite: bool) -> DataSourceArrowWriter:
    """The writer of rows with these columns.

    Raises
    ------
    InvalidInput, InvalidType, Unsupported
        If columns or options do not fit the target, or Sail does not say whether it may exist.
        Nothing is written then.
    AlreadyExists
        If the target exists, and the option ``if_exists`` is ``error``.
    """
    target, txn = source_write(options, schema, overwrite), parse_txn(options.txn)
    if is_left_alone(target, txn):
        return SkippedWriter()
    plan = plan_write(target)
    done = plan.base is not None and is_applied(txn, plan.base.document.metadata)
    return CubeWriter(target, plan.rows, txn, version_of(plan.base), done)


class CubeWriter(DataSourceArrowWriter):
    """Writes rows to a dataset. Spark copies it to tasks and to the process that commits."""

    def __init__(self, target: SourceWrite, rows: Rows, txn: Txn | None, seen: Hashable, done: bool) -> None:
        self._target, self._rows, self._txn, self._seen, self._done = target, rows, txn, seen, done
        self._id = new_id()

    # Spark passes batches to an Arrow writer, although the base class declares rows.
    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedFiles:  # type: ignore[override]
        """Stage the rows of one task."""
        return staged_files(self._target, self._rows, self._id, () if self._done else iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish the staged files in one commit."""
        with task_errors():
            if not self._done:
                receipts = accepted_receipts(messages, self._id)
                publish_files(self._target, layout_of(self._rows), receipts, self._txn, self._seen)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: Spark also calls this when a commit has succeeded and its answer was lost.

        Files without a commit are garbage, which a cleanup removes.
        """


class SkippedWriter(DataSourceArrowWriter):
    """Writes nothing, since the target exists."""

    # As in `CubeWriter`.
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]
        """Leave the rows where they are."""
        return WriterCommitMessage()


def staged_files(
    target: SourceWrite, rows: Rows, write: str, batches: Iterable[pa.RecordBatch], query: str | None = None
) -> StagedFiles:
    """Stage the rows of a task, in blocks that fit into memory."""
    try:
        store, columns = open_store(target.options.store), tuple(rows.schema.names)
        task = StageTask(rows, store, write, columns, None, current_options().bytes_in_flight)
        receipts = list(chain.from_iterable(staged(task, (pa.Table.from_batches([batch]) for batch in batches))))
    except (InvalidInput, InvalidType, Unsupported) as error:
        return StagedFiles(write, layout_of(rows), b"", encode_error(error), query)
    return StagedFiles(write, layout_of(rows), pickle.dumps(receipts), None, query)


def accepted_receipts(messages: Sequence[WriterCommitMessage | None], write: str | None = None) -> list[Receipt]:
    """The receipts of all tasks, in the order of their partition values.

    ``write`` is their expected id; None accepts any id that all share.

    Raises
    ------
    KartothekCubeError
        The first error that a task reports.
    CorruptData
        If the receipts are not from exactly one attempt of each task of this write.
    """
    staged = [message for message in messages if isinstance(message, StagedFiles)]
    if len(staged) < len(messages):
        raise CorruptData(
            f"Of {len(messages)} tasks, Spark returned what {len(staged)} have written. Nothing was published."
        )
    for message in staged:
        if message.error is not None:
            raise decode_error(message.error)
    receipts = [receipt for message in staged for receipt in pickle.loads(message.receipts)]
    twice = [key for key, n in Counter(r.key for r in receipts).items() if n > 1]
    writes = {message.write for message in staged}
    if twice or len(writes) > 1 or (write is not None and writes - {write}):
        raise CorruptData(
            f"Spark returned files {twice} twice, or files of other writes, "
            f"for one write ({', '.join(sorted(writes))}). Nothing was published."
        )
    return in_order(receipts)


# Spark sets this property for tasks of a streaming query. The checkpoint has the id, so it is the
# same after a restart.
_QUERY = "sql.streaming.queryId"


def make_stream_writer(options: SourceOptions, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
    """The writer of a stream of rows with these columns.

    With ``overwrite`` each micro-batch replaces the dataset (output mode *complete*).

    Raises
    ------
    InvalidInput, InvalidType, Unsupported
        If columns or options do not fit the target. Nothing is written then.
    """
    target = source_write(options, schema, overwrite)
    return CubeStreamWriter(target, plan_write(target).rows)


class CubeStreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches to a dataset, each exactly once.

    Spark creates one writer for the tasks and another for the process that commits.
    """

    def __init__(self, target: SourceWrite, rows: Rows) -> None:
        self._target, self._rows, self._id = target, rows, new_id()

    # Spark passes batches to an Arrow writer, although the base class declares rows.
    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedFiles:  # type: ignore[override]
        """Stage the rows of one task."""
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty(_QUERY)
        return staged_files(self._target, self._rows, self._id, iterator, query)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Publish a micro-batch in one commit, unless it is published already."""
        with task_errors():
            receipts = accepted_receipts(messages)
            # An append without rows needs no commit.
            if receipts or (self._target.overwrite and messages):
                layout = next(message.layout for message in messages if isinstance(message, StagedFiles))
                queries = {message.query for message in messages if isinstance(message, StagedFiles)}
                query = queries.pop() if len(queries) == 1 else None
                if not query:
                    raise Unsupported(
                        "The tasks of this stream do not say to which streaming query they belong, "
                        "so a repeated micro-batch could not be told. Use foreachBatch with txn=(id, batch id)."
                    )
                publish_files(self._target, layout, receipts, Txn(query, batchId))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Do nothing: Spark also calls this when a commit has succeeded and its answer was lost.

        Files without a commit are garbage, which a cleanup removes.
        """
