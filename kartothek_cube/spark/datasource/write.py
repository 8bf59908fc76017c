"""The data source's writers: a batch or micro-batch is planned, staged in tasks, committed once."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from kartothek_cube.core.metadata.commit_log import Txn, is_applied, parse_txn
from kartothek_cube.core.metadata.naming import new_id
from kartothek_cube.core.runtime.options import current_options
from kartothek_cube.core.stores.open import open_store, store_factory
from kartothek_cube.core.write.stage import Receipt
from kartothek_cube.errors import CorruptData, InvalidInput, InvalidType, Unsupported
from kartothek_cube.spark.actions import decode_error, encode_error, task_errors
from kartothek_cube.spark.datasource.options import SourceOptions, dataset_uuid
from kartothek_cube.spark.datasource.target import (
    Layout,
    SourceWrite,
    is_left_alone,
    layout_of,
    plan_write,
    publish_files,
    version_of,
)
from kartothek_cube.spark.types import as_struct, frame_schema
from kartothek_cube.spark.write.rows import Rows
from kartothek_cube.spark.write.stage import StageTask, in_order, staged

__all__ = ["StagedFiles", "accepted_receipts", "make_stream_writer", "make_writer", "source_write", "staged_files"]


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
