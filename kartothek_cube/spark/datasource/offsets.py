"""How far a stream has read a dataset, and the files of each micro-batch. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import datetime

import numpy as np
import pyarrow as pa

from kartothek_cube.core.metadata.document import Document, PartitionColumns, empty_partitions
from kartothek_cube.core.snapshots.time_travel import PastState
from kartothek_cube.errors import InvalidRequest

__all__ = ["BEGINNING", "FROM_NOW_ON", "Offset", "Step", "advance", "files_between", "step_of", "steps_from", "whole"]


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
