"""The writers of the data source: a batch or a micro-batch is planned, staged in tasks, and committed once."""

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

from kartothek_cube.core.metadata.naming import new_id
from kartothek_cube.core.metadata.txn import Txn, is_applied, parse_txn
from kartothek_cube.core.runtime.options import current_options
from kartothek_cube.core.stores.open import open_store, store_factory
from kartothek_cube.core.write.receipt import Receipt
from kartothek_cube.errors import CorruptData, InvalidInput, InvalidType, Unsupported
from kartothek_cube.spark.actions import decode_error, encode_error, task_errors
from kartothek_cube.spark.datasource.options import SourceOptions, dataset_uuid
from kartothek_cube.spark.datasource.target import Layout, SourceWrite, layout_of, plan_write, publish_files, version_of
from kartothek_cube.spark.types import frame_schema
from kartothek_cube.spark.write.rows import Rows
from kartothek_cube.spark.write.stage import StageTask, in_order, staged

__all__ = ["StagedFiles", "accepted_receipts", "make_stream_writer", "make_writer", "staged_files", "wanted_of"]


@dataclass
class StagedFiles(WriterCommitMessage):
    """What a task says of the files that it wrote, or the error that no second attempt would mend.

    ``write`` is the id of the writer that the task had, ``layout`` what the files were staged for,
    ``query`` the id of a streaming query.
    """

    write: str
    layout: Layout
    receipts: bytes
    error: str | None = None
    query: str | None = None


def wanted_of(options: SourceOptions, schema: StructType, overwrite: bool) -> SourceWrite:
    """What is to be written; the columns are checked from their types alone."""
    store_factory(options.store)
    name = str(options.cube) if options.dataset is None else dataset_uuid(options)
    return SourceWrite(options, frame_schema(schema, name, options.timestamps), overwrite)


def make_writer(options: SourceOptions, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    """The writer of rows with these columns.

    Raises
    ------
    InvalidInput, InvalidType, Unsupported
        If columns or options do not fit what is there. Nothing has been written.
    """
    wanted, txn = wanted_of(options, schema, overwrite), parse_txn(options.txn)
    plan = plan_write(wanted)
    base = plan.base
    return CubeWriter(
        wanted, plan.rows, txn, version_of(base), base is not None and is_applied(txn, base.document.metadata)
    )


class CubeWriter(DataSourceArrowWriter):
    """Writes rows to a dataset; Spark hands copies of it to the tasks and to the process that commits."""

    def __init__(self, wanted: SourceWrite, rows: Rows, txn: Txn | None, seen: Hashable, done: bool) -> None:
        self._wanted, self._rows, self._txn, self._seen, self._done = wanted, rows, txn, seen, done
        self._id = new_id()

    # An Arrow writer gets batches, whatever its base says.
    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedFiles:  # type: ignore[override]
        """Stage the rows of one task."""
        return staged_files(self._wanted, self._rows, self._id, () if self._done else iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish what the tasks have staged, in one commit."""
        with task_errors():
            if not self._done:
                publish_files(
                    self._wanted, layout_of(self._rows), accepted_receipts(messages, self._id), self._txn, self._seen
                )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing: Spark also calls it when the commit has landed and its answer was lost.

        Files of no commit are garbage.
        """


def staged_files(
    wanted: SourceWrite, rows: Rows, write: str, batches: Iterable[pa.RecordBatch], query: str | None = None
) -> StagedFiles:
    """Stage the rows of a task, as many at a time as fit into memory."""
    try:
        task = StageTask(
            rows,
            open_store(wanted.options.store),
            write,
            tuple(rows.schema.names),
            None,
            current_options().bytes_in_flight,
        )
        receipts = list(chain.from_iterable(staged(task, (pa.Table.from_batches([batch]) for batch in batches))))
    except (InvalidInput, InvalidType, Unsupported) as error:
        return StagedFiles(write, layout_of(rows), b"", encode_error(error), query)
    return StagedFiles(write, layout_of(rows), pickle.dumps(receipts), None, query)


def accepted_receipts(messages: Sequence[WriterCommitMessage | None], write: str | None = None) -> list[Receipt]:
    """The receipts of all tasks, in the order of their partition values.

    ``write``: the id that they have; None: any, but all the same.

    Raises
    ------
    KartothekCubeError
        The first error that a task reports.
    CorruptData
        If they are not those of one winning attempt of each task of this write.
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
            f"Spark returned files {twice} twice, or files of other writes, for one write ({', '.join(sorted(writes))}). Nothing was published."
        )
    return in_order(receipts)


# Spark sets it for the tasks of a streaming query; it is kept in the checkpoint, so that it is the
# same after a restart.
_QUERY = "sql.streaming.queryId"


def make_stream_writer(options: SourceOptions, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
    """The writer of a stream of rows with these columns; ``overwrite``: each micro-batch replaces what is there (output mode *complete*).

    Raises
    ------
    InvalidInput, InvalidType, Unsupported
        If columns or options do not fit what is there. Nothing has been written.
    """
    wanted = wanted_of(options, schema, overwrite)
    return CubeStreamWriter(wanted, plan_write(wanted).rows)


class CubeStreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches to a dataset, each once.

    Spark makes one for the tasks and another one for the process that commits.
    """

    def __init__(self, wanted: SourceWrite, rows: Rows) -> None:
        self._wanted, self._rows, self._id = wanted, rows, new_id()

    # An Arrow writer gets batches, whatever its base says.
    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedFiles:  # type: ignore[override]
        """Stage the rows of one task."""
        context = TaskContext.get()
        return staged_files(
            self._wanted, self._rows, self._id, iterator, None if context is None else context.getLocalProperty(_QUERY)
        )

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Publish a micro-batch in one commit, unless it has been published.

        One without rows that adds to what is there needs none.
        """
        with task_errors():
            receipts = accepted_receipts(messages)
            if receipts or (self._wanted.overwrite and messages):
                layout = next(message.layout for message in messages if isinstance(message, StagedFiles))
                publish_files(self._wanted, layout, receipts, Txn(_query(messages), batchId))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Nothing: Spark also calls it when the commit has landed and its answer was lost.

        Files of no commit are garbage.
        """


def _query(messages: Sequence[WriterCommitMessage | None]) -> str:
    queries = {message.query for message in messages if isinstance(message, StagedFiles)}
    query = queries.pop() if len(queries) == 1 else None
    if not query:
        raise Unsupported(
            "The tasks of this stream do not say to which streaming query they belong, so a repeated micro-batch could not be told. Use foreachBatch "
            "with txn=(id, batch id)."
        )
    return query
