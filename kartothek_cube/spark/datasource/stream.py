"""The streaming writer of the data source: each micro-batch is one commit, numbered by query and batch, so that a repeated one is skipped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from kartothek_cube.core.metadata.txn import Txn
from kartothek_cube.core.naming import fresh_id
from kartothek_cube.errors import Unsupported
from kartothek_cube.spark.datasource.options import SourceOptions
from kartothek_cube.spark.datasource.target import Wanted, plan_write, publish_files
from kartothek_cube.spark.datasource.write import StagedFiles, accepted_receipts, staged_files, wanted_of
from kartothek_cube.spark.errors import task_errors
from kartothek_cube.spark.stage_rows import Rows

__all__ = ["make_stream_writer"]

# Spark sets it for the tasks of a streaming query; it is kept in the checkpoint, so that it is the same after a restart.
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
    """Writes micro-batches to a dataset, each once. Spark makes one for the tasks and another one for the process that commits."""

    def __init__(self, wanted: Wanted, rows: Rows) -> None:
        self._wanted, self._rows, self._id = wanted, rows, fresh_id()

    # An Arrow writer gets batches, whatever its base says.
    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedFiles:  # type: ignore[override]
        """Stage the rows of one task."""
        context = TaskContext.get()
        return staged_files(self._wanted, self._rows, self._id, iterator, None if context is None else context.getLocalProperty(_QUERY))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Publish a micro-batch in one commit, unless it has been published. One without rows that adds to what is there needs none."""
        with task_errors():
            receipts = accepted_receipts(messages)
            if receipts or (self._wanted.overwrite and messages):
                layout = next(message.layout for message in messages if isinstance(message, StagedFiles))
                publish_files(self._wanted, layout, receipts, Txn(_query(messages), batchId))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Nothing: Spark also calls it when the commit has landed and its answer was lost. Files of no commit are garbage."""


def _query(messages: Sequence[WriterCommitMessage | None]) -> str:
    queries = {message.query for message in messages if isinstance(message, StagedFiles)}
    query = queries.pop() if len(queries) == 1 else None
    if not query:
        raise Unsupported(
            "The tasks of this stream do not say to which streaming query they belong, so a repeated micro-batch could not be told. Use foreachBatch "
            "with txn=(id, batch id)."
        )
    return query
