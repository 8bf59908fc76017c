"""The batch writer of the data source: planned and checked when Spark makes it, staged in tasks, published once."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from kartothek_cube.core.metadata.txn import Txn, is_applied, parse_txn
from kartothek_cube.core.naming import fresh_id
from kartothek_cube.core.options import current_options
from kartothek_cube.core.receipt import Receipt
from kartothek_cube.core.stores import open_store, store_factory
from kartothek_cube.errors import CorruptData, InvalidInput, InvalidType, Unsupported
from kartothek_cube.spark.datasource.options import SourceOptions, dataset_uuid
from kartothek_cube.spark.datasource.target import Layout, Wanted, layout_of, plan_write, publish_files, version_of
from kartothek_cube.spark.errors import decode_error, encode_error, task_errors
from kartothek_cube.spark.receipts import in_order
from kartothek_cube.spark.stage import StageTask, staged
from kartothek_cube.spark.stage_rows import Rows
from kartothek_cube.spark.types import frame_schema

__all__ = ["StagedFiles", "accepted_receipts", "make_writer", "staged_files", "wanted_of"]


@dataclass
class StagedFiles(WriterCommitMessage):
    """What a task says of the files that it wrote, or the error that no second attempt would mend.

    ``write`` is the id of the writer that the task had, ``layout`` what the files were staged for, ``query`` the id of a streaming query.
    """

    write: str
    layout: Layout
    receipts: bytes
    error: str | None = None
    query: str | None = None


def wanted_of(options: SourceOptions, schema: StructType, overwrite: bool) -> Wanted:
    """What is to be written; the columns are checked from their types alone."""
    store_factory(options.store)
    name = str(options.cube) if options.dataset is None else dataset_uuid(options)
    return Wanted(options, frame_schema(schema, name, options.timestamps), overwrite)


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
    return CubeWriter(wanted, plan.rows, txn, version_of(base), base is not None and is_applied(txn, base.document.metadata))


class CubeWriter(DataSourceArrowWriter):
    """Writes rows to a dataset; Spark hands copies of it to the tasks and to the process that commits."""

    def __init__(self, wanted: Wanted, rows: Rows, txn: Txn | None, seen: Hashable, done: bool) -> None:
        self._wanted, self._rows, self._txn, self._seen, self._done = wanted, rows, txn, seen, done
        self._id = fresh_id()

    # An Arrow writer gets batches, whatever its base says.
    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedFiles:  # type: ignore[override]
        """Stage the rows of one task."""
        return staged_files(self._wanted, self._rows, self._id, () if self._done else iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish what the tasks have staged, in one commit."""
        with task_errors():
            if not self._done:
                publish_files(self._wanted, layout_of(self._rows), accepted_receipts(messages, self._id), self._txn, self._seen)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing: Spark also calls it when the commit has landed and its answer was lost. Files of no commit are garbage."""


def staged_files(wanted: Wanted, rows: Rows, write: str, batches: Iterable[pa.RecordBatch], query: str | None = None) -> StagedFiles:
    """Stage the rows of a task, as many at a time as fit into memory."""
    try:
        task = StageTask(rows, open_store(wanted.options.store), write, tuple(rows.schema.names), None, current_options().bytes_in_flight)
        receipts = list(chain.from_iterable(staged(task, (pa.Table.from_batches([batch]) for batch in batches))))
    except (InvalidInput, InvalidType, Unsupported) as error:
        return StagedFiles(write, layout_of(rows), b"", encode_error(error), query)
    return StagedFiles(write, layout_of(rows), pickle.dumps(receipts), None, query)


def accepted_receipts(messages: Sequence[WriterCommitMessage | None], write: str | None = None) -> list[Receipt]:
    """The receipts of all tasks, in the order of their partition values. ``write``: the id that they have; None: any, but all the same.

    Raises
    ------
    KartothekCubeError
        The first error that a task reports.
    CorruptData
        If they are not those of one winning attempt of each task of this write.
    """
    staged = [message for message in messages if isinstance(message, StagedFiles)]
    if len(staged) < len(messages):
        raise CorruptData(f"Of {len(messages)} tasks, Spark returned what {len(staged)} have written. Nothing was published.")
    for message in staged:
        if message.error is not None:
            raise decode_error(message.error)
    receipts = [receipt for message in staged for receipt in pickle.loads(message.receipts)]
    twice = [key for key, n in Counter(r.key for r in receipts).items() if n > 1]
    writes = {message.write for message in staged}
    if twice or len(writes) > 1 or (write is not None and writes - {write}):
        raise CorruptData(f"Spark returned files {twice} twice, or files of other writes, for one write ({', '.join(sorted(writes))}). Nothing was published.")
    return in_order(receipts)
