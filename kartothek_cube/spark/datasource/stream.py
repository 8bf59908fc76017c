"""The stream reader of the data source: the rows of a dataset, then those of its new commits.

In order:

- how far a stream has read, and the files of each micro-batch
- the reader
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from msgspec.structs import replace
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from kartothek_cube.core.io.reader import FileRequest
from kartothek_cube.core.metadata.document import Document, PartitionColumns, empty_partitions
from kartothek_cube.core.metadata.snapshot import Snapshot, make_snapshot
from kartothek_cube.core.scan.plan import check_table, checked_columns, plan_scan
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.snapshots.time_travel import PastState, is_wanted, known_since, states
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.stores.open import open_store, store_factory
from kartothek_cube.errors import HistoryUnavailable, InvalidInput, InvalidRequest
from kartothek_cube.spark.datasource.options import SourceOptions, dataset_uuid
from kartothek_cube.spark.datasource.read import (
    FileItem,
    check_schema,
    parse_conditions,
    plan_input_partitions,
    predicates_of,
    rows_of,
)
from kartothek_cube.spark.tasks import task_errors


@dataclass(frozen=True, slots=True)
class Offset:
    """A position in the history of a dataset, for Spark's checkpoint.

    Attributes
    ----------
    commit : str
        The last commit of which the stream has read something; empty before the first micro-batch.
    files : int | None
        The number of its files that are read; None: all.
    snapshot : bool
        Whether ``files`` counts the whole state after the commit, with which a stream begins, not
        the files that the commit added.
    """

    commit: str
    files: int | None = None
    snapshot: bool = False

    def json(self) -> dict[str, str | int]:
        """The members that differ from their defaults: Spark compares offsets by their text."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) != f.default}


# Spark asks for the initial offset again if the first micro-batch has to be repeated. So neither
# names a commit; the end of the first micro-batch does.
BEGINNING = Offset("", 0, snapshot=True)
FROM_NOW_ON = Offset("")


@dataclass(frozen=True, slots=True)
class Step:
    """What one commit brings to a stream.

    Attributes
    ----------
    commit, time : str, datetime | None
        The commit.
    keys : tuple of str
        The partition columns then.
    files : PartitionColumns
        The added partitions that have a file of the table. If ``snapshot``, all partitions.
    removes : bool
        Whether rows are removed or replaced.
    snapshot : bool
        Whether the step stands for the whole state after the commit.
    """

    commit: str
    time: datetime | None
    keys: tuple[str, ...]
    files: PartitionColumns
    removes: bool = False
    snapshot: bool = False

    def read_from(self, offset: Offset) -> int:
        """The number of the first file that is not read yet."""
        return offset.files or 0 if offset.commit == self.commit else 0


def step_of(state: PastState, table: str) -> Step:
    """The step of a commit whose history entry is kept."""
    entry, partitions = state.entry, state.document.partitions or empty_partitions()
    assert entry is not None
    # Files of a compaction hold rows that the stream has read, or reads, from the replaced files.
    positions = partitions.positions(entry.added) if entry.data_change else np.array([], dtype=np.int64)
    removed = entry.removed.file_column(table)
    removes = entry.data_change and removed.null_count < len(removed)
    files = _with_files(partitions.take(positions[positions >= 0]), table)
    return Step(entry.commit, state.time, state.document.partition_keys or (), files, removes)


def whole(commit: str, document: Document, table: str) -> Step:
    """The step that reads all files of the state after a commit."""
    files = _with_files(document.partitions or empty_partitions(), table)
    return Step(commit, None, document.partition_keys or (), files, snapshot=True)


def _with_files(partitions: PartitionColumns, table: str) -> PartitionColumns:
    """The partitions that have a file of the table, with these files alone."""
    keys = partitions.file_column(table)
    present = keys.is_valid()
    return PartitionColumns(partitions.labels.filter(present), {table: keys.filter(present)})


def steps_from(steps: Sequence[Step], start: Offset) -> list[Step]:
    """The steps that are not read at an offset; none if they do not reach back so far."""
    for number, step in enumerate(steps):
        if step.commit == start.commit and (start.files is None or step.snapshot == start.snapshot):
            return list(steps[number + (start.files is None) :])
    return []


def advance(steps: Sequence[Step], start: Offset, most: int | None, uuid: str, *, skip: bool) -> Offset:
    """The end of the next micro-batch, with at most so many files.

    It is ``start`` if there is nothing to read, and lies before a commit that removes rows.

    Raises
    ------
    InvalidRequest
        If the next commit removes rows; with ``skip`` it is passed over.
    """
    position, left = start, most
    for step in steps:
        if step.removes and not skip:
            if position == start:
                raise _removal(step, uuid)
            return position
        first = step.read_from(start)
        count = 0 if step.removes else len(step.files) - first
        if left is not None and count > left:
            return Offset(step.commit, first + left, step.snapshot) if left else position
        left = None if left is None else left - count
        position = Offset(step.commit)
    return position


def files_between(
    steps: Sequence[Step], start: Offset, end: Offset, uuid: str, *, skip: bool
) -> Iterator[tuple[tuple[str, ...], PartitionColumns]]:
    """The files from one offset to another, in order, by step, with the partition columns.

    Raises
    ------
    InvalidRequest
        As by `advance`.
    """
    for step in steps:
        if step.removes and not skip:
            raise _removal(step, uuid)
        is_last = step.commit == end.commit
        first, last = step.read_from(start), end.files if is_last else None
        if not step.removes:
            stop = len(step.files) if last is None else last
            yield step.keys, step.files.take(pa.array(range(first, stop), pa.int64()))
        if is_last:
            return


def _removal(step: Step, uuid: str) -> InvalidRequest:
    when = "" if step.time is None else f" of {step.time.isoformat(timespec='seconds')}"
    return InvalidRequest(
        f"Dataset {uuid!r}: commit {step.commit}{when} removed or replaced rows, and a stream has only new ones. "
        'With .option("skipChangeCommits", "true") the stream passes over such commits and the rows that they add. '
        "Or begin with a new checkpoint, to read the dataset as it is now."
    )


if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ImportError:  # PySpark 4.1: each micro-batch has everything that is there

        class SupportsTriggerAvailableNow:
            """Nothing: it is missing there."""


# --- the reader -----------------------------------------------------------------------------------


def make_stream_reader(options: SourceOptions, schema: StructType, cores: int | None = None) -> CubeStreamReader:
    """The reader of a stream of these columns.

    Raises
    ------
    InvalidInput
        As in `check_schema`.
    """
    check_schema(options, schema)
    store_factory(options.store)
    return CubeStreamReader(options, schema, cores)


class CubeStreamReader(SupportsTriggerAvailableNow, DataSourceStreamReader):
    """Reads a dataset as a stream. Spark keeps one in a process of its own; others run in tasks.

    Offsets say everything that a micro-batch depends on. What the reader keeps saves store calls.
    """

    def __init__(self, options: SourceOptions, schema: StructType, cores: int | None = None) -> None:
        self._options, self._schema, self._cores = options, schema, cores
        self._uuid = dataset_uuid(options)
        self._pinned: Snapshot | None = None
        self._steps: list[Step] = []
        self._latest: Offset | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._options, self._schema, self._cores)

    # --- offsets: Spark's names -------------------------------------------------------------------

    def initialOffset(self) -> dict[str, str | int]:  # noqa: N802
        """Where a query without a checkpoint begins."""
        with task_errors():
            options = self._options
            if options.starting_commit == "latest":
                return FROM_NOW_ON.json()
            if options.starting_commit is None and options.starting_timestamp is None:
                return BEGINNING.json()
            return Offset(_starting_commit(self._store(), self._newest(), options), 0).json()

    def latestOffset(  # noqa: N802
        self, start: Mapping[str, str | int] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, str | int]:
        """The end of the next micro-batch. PySpark 4.1 passes no arguments, so it has all rows."""
        with task_errors():
            if start is None:
                return Offset(_commit_of(self._newest())).json()
            position = self._resolved(start)
            steps = self._steps_after(position)
            if not _offset(start).commit:
                # The end of the first micro-batch says where it began. A newer commit comes next.
                steps = [step for step in steps if step.snapshot]
            self._latest = Offset(steps[-1].commit) if steps else position
            most = getattr(limit, "max_files", None)
            return advance(steps, position, most, self._uuid, skip=self._options.skip_change_commits).json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The option ``maxFilesPerTrigger``."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

        most = self._options.max_files_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxFiles(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of a query that reads what is there now."""
        with task_errors():
            self._pinned, self._steps = load_snapshot(self._store(), self._uuid), []

    def reportLatestOffset(self) -> dict[str, str | int] | None:  # noqa: N802
        """The newest position that the last look found, for the progress of the query."""
        return None if self._latest is None else self._latest.json()

    # --- rows -------------------------------------------------------------------------------------

    def partitions(self, start: Mapping[str, str | int], end: Mapping[str, str | int]) -> Sequence[InputPartition]:
        """One partition a task, with the packed files of the task."""
        with task_errors():
            last = _offset(end)
            position = self._resolved(start, last.commit)
            if position == last:
                return []
            steps = self._steps_after(position, last.commit)
            if all(step.commit != last.commit for step in steps):
                raise HistoryUnavailable(
                    f"Dataset {self._uuid!r} has no commit {last.commit}, up to which a stream was about to read it. "
                    "Is the checkpoint of another dataset, or the store an older copy? Begin with a new checkpoint."
                )
            skip = self._options.skip_change_commits
            files = list(files_between(steps, position, last, self._uuid, skip=skip))
            return plan_input_partitions(self._options, self._items(files), self._cores)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition."""
        return rows_of(self._options, self._schema, partition)

    def _items(self, files: Sequence[tuple[tuple[str, ...], PartitionColumns]]) -> list[FileItem]:
        """The files that may hold rows, with the columns and rows to read."""
        newest, table = self._newest(), self._options.table
        # Columns are never dropped, so the newest schema has those of all files.
        schema = check_table(newest, table)
        columns = checked_columns(self._schema.names, schema, self._uuid)
        predicates = predicates_of(parse_conditions(self._options.conditions, schema))
        request = FileRequest(self._uuid, schema, columns, predicates)
        items = []
        for keys, group in groupby(files, key=itemgetter(0)):
            parts = [partitions for _, partitions in group]
            labels = pa.concat_arrays([part.labels for part in parts])
            joined = PartitionColumns(labels, {table: pa.concat_arrays([part.files[table] for part in parts])})
            document = Document(self._uuid, partition_keys=keys, partitions=joined)
            part = make_snapshot(document, newest.key, None, newest.schemas)
            plan = plan_scan(part, table, columns, predicates, {})
            items += [FileItem(request, task) for task in plan.tasks()]
        return items

    # --- history ----------------------------------------------------------------------------------

    def _store(self) -> Store:
        return open_store(self._options.store)

    def _newest(self) -> Snapshot:
        return self._pinned or load_snapshot(self._store(), self._uuid)

    def _resolved(self, offset: Mapping[str, str | int], first: str | None = None) -> Offset:
        """A start offset that names a commit: before the first micro-batch that of its end."""
        start = _offset(offset)
        return start if start.commit else dataclasses.replace(start, commit=first or _commit_of(self._newest()))

    def _steps_after(self, start: Offset, end: str | None = None) -> list[Step]:
        """The steps after an offset, up to a commit at least; looks for new ones if none are known.

        Raises
        ------
        HistoryUnavailable
            If the history does not reach back to the offset.
        """
        known = steps_from(self._steps, start)
        if not known or (end is not None and all(step.commit != end for step in known)):
            newest = self._newest()
            if start == Offset(newest.commit or ""):
                return []
            known = self._steps = _walk(self._store(), newest, start, self._options.table)
        return known


def _offset(members: Mapping[str, str | int]) -> Offset:
    return Offset(**members)  # type: ignore[arg-type]


def _commit_of(newest: Snapshot) -> str:
    if newest.commit is None:
        raise HistoryUnavailable(
            f"Dataset {newest.uuid!r} cannot be read as a stream now: a writer that keeps no history "
            "(kartothek, plateau) came last. After the next commit of this library it can."
        )
    return newest.commit


def _walk(store: Store, newest: Snapshot, start: Offset, table: str) -> list[Step]:
    """The steps after an offset up to the newest one, oldest first."""
    if start.snapshot and start.commit == newest.commit:
        # The first micro-batches, as a rule. They need no history.
        return [whole(start.commit, replace(newest.document, partitions=newest.partitions), table)]
    steps: list[Step] = []
    for state in states(store, newest):
        oldest, is_start = state, state.commit == start.commit
        if is_start and start.files is None:
            return steps[::-1]
        if is_start and start.snapshot:
            return [whole(start.commit, state.document, table), *steps[::-1]]
        if state.entry is None:
            break
        steps.append(step_of(state, table))
        if is_start:
            return steps[::-1]
    raise HistoryUnavailable(
        f"Dataset {newest.uuid!r}: a stream has read it up to commit {start.commit}, and what came next is not known: "
        f"{known_since(newest, oldest)}. Begin with a new checkpoint."
    )


def _starting_commit(store: Store, newest: Snapshot, options: SourceOptions) -> str:
    """The commit of ``startingCommit``, or the first one at ``startingTimestamp`` or later."""
    _commit_of(newest)
    wanted, moment = options.starting_commit or "", options.starting_timestamp
    found: PastState | None = None
    is_known = False
    for state in states(store, newest):
        oldest = state
        if moment is None:
            is_known = is_wanted(state.last, wanted)
            found = state
        elif state.time is None or state.time < moment:
            is_known = True
        else:
            # The first commit of all, at the latest.
            is_known = state.entry is not None and state.entry.before is None
            found = state
        if is_known:
            break
    if is_known and found is None:
        raise InvalidInput(
            f"Dataset {newest.uuid!r} has no commit at startingTimestamp={moment} or later: the last one is of "
            f"{oldest.time}. To read only what comes from now on, give startingCommit=latest."
        )
    if not is_known or found is None or found.entry is None:
        name = f"commit {wanted!r}" if moment is None else f"startingTimestamp={moment}"
        raise HistoryUnavailable(
            f"A stream of dataset {newest.uuid!r} cannot begin with {name}: {known_since(newest, oldest)}. "
            "`history` lists the commits that are kept."
        )
    return found.entry.commit
