"""Planning the compaction of one dataset: which files become which, and the rows of a merged file in a cube. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from kartothek_cube.core.arrow.sort_keys import IntArray, group_starts, pack_one, stable_order, take_rows
from kartothek_cube.core.expressions.evaluate import Mask
from kartothek_cube.core.maintenance.compaction.report import CompactionPlan, FileFigures, Merge
from kartothek_cube.core.metadata.naming import decode_key, label_of, new_id
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.errors import CorruptData, InvalidInput, InvalidType

__all__ = [
    "TARGET_ROWS",
    "CellOrder",
    "cell_order",
    "check_target_rows",
    "neighbours",
    "newest_cells",
    "plan_compaction",
    "whole_partitions",
]

# What fits into one row group.
TARGET_ROWS = 1_000_000


@dataclass(frozen=True, slots=True)
class CellOrder:
    """What a dataset owes to its cube.

    Attributes
    ----------
    dimensions : tuple of str
        Dimension columns inside the files: the rows of a file are sorted by them, and no two rows
        are equal in all of them.
    address : tuple of str
        Partition keys that are part of a cell's address: files that differ in one of them share no
        cell. Between any others a later file wins.
    """

    dimensions: tuple[str, ...]
    address: tuple[str, ...]


# --- planning -------------------------------------------------------------------------------------


def check_target_rows(value: object) -> int:
    """The argument ``target_rows``: a number of rows, at least 1."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise InvalidType(f"target_rows is a number of rows, not {type(value).__name__}: {value!r}.")
    if value < 1:
        raise InvalidInput(f"target_rows is a number of rows, at least 1; it is {value}.")
    return int(value)


def cell_order(base: Snapshot, dimensions: Sequence[str], partitions: Sequence[str]) -> CellOrder:
    """What a dataset owes to a cube with these dimension and partition columns."""
    inside = tuple(c for c in dimensions if c in base.schema.names and c not in base.partition_keys)
    return CellOrder(inside, tuple(c for c in base.partition_keys if c in (*partitions, *dimensions)))


def whole_partitions(snapshot: Snapshot, mask: Mask) -> Mask:
    """The stored partitions of the physical partitions that have one in the mask."""
    numbers = snapshot.physical_partitions()
    chosen: Mask = np.isin(numbers, numbers[mask])
    return chosen


def neighbours(snapshot: Snapshot, selected: Mask, order: CellOrder | None = None) -> list[IntArray]:
    """Runs of stored partitions, at least two, that may become one without changing the order in which cells are overridden.

    A run lies in one physical partition. With an ``order`` no other file that may hold the same
    cells lies between two of them.
    """
    parts = snapshot.physical_partitions()
    units = parts if order is None else snapshot.physical_partitions(order.address)
    by_unit = np.argsort(units, kind="stable")  # positions ascend within a unit
    # A physical partition lies in one unit, so that where the unit changes it does, too.
    ends = np.append(group_starts(parts[by_unit]), len(parts))
    runs = [
        by_unit[begin:end] for begin, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True) if end - begin > 1
    ]
    return sorted((run for run in runs if selected[run[0]]), key=lambda run: int(run[0]))


def plan_compaction(
    snapshot: Snapshot,
    runs: Sequence[IntArray],
    figures: Mapping[str, FileFigures],
    target_rows: int,
    selected: Mask | None = None,
) -> CompactionPlan:
    """Which files of these runs become which.

    ``figures``: what is known of each file, by key; ``selected`` is for the counts only.
    """
    groups = [group for run in runs for group in _packed(_members(snapshot, run), figures, target_rows)]
    merges = tuple(_merge(snapshot, group, figures) for group in groups)
    count = len(snapshot.partitions) if selected is None else int(selected.sum())
    return CompactionPlan(snapshot.uuid, target_rows, merges, len(snapshot.partitions), count, sum(map(len, runs)))


@dataclass(frozen=True, slots=True)
class _Member:
    """One stored partition: position, label, table → key."""

    position: int
    label: str
    files: Mapping[str, str]


def _members(snapshot: Snapshot, run: IntArray) -> list[_Member]:
    taken = snapshot.partitions.take(run)
    tables = {t: keys.to_pylist() for t, keys in taken.files.items()}
    files = [{t: keys[i] for t, keys in tables.items() if keys[i] is not None} for i in range(len(run))]
    return [_Member(*member) for member in zip(run.tolist(), taken.labels.to_pylist(), files, strict=True)]


def _packed(run: Sequence[_Member], figures: Mapping[str, FileFigures], target_rows: int) -> list[list[_Member]]:
    """Neighbours that together have no more rows than wanted, as many as there can be; a large file ends a group and stays alone.

    As small files have less than half of the rows wanted, a group that is full has more than half:
    the next compaction leaves it alone.
    """
    groups, total = list[list[_Member]](), target_rows
    for member in run:
        rows = max((figures[key].rows for key in member.files.values()), default=0)
        if 2 * rows >= target_rows:
            total = target_rows + 1  # nothing joins over it
        elif groups and total + rows <= target_rows:
            groups[-1].append(member)
            total += rows
        else:
            groups.append([member])
            total = rows
    return [group for group in groups if len(group) > 1]


def _merge(snapshot: Snapshot, group: Sequence[_Member], figures: Mapping[str, FileFigures]) -> Merge:
    tables = list(dict.fromkeys(t for member in group for t in member.files))
    files = {t: tuple(member.files[t] for member in group if t in member.files) for t in tables}
    known = {t: tuple(figures[key] for key in keys) for t, keys in files.items()}
    last = group[-1]
    texts = dict(decode_key(next(iter(last.files.values()), "")).pairs)
    label = label_of([(column, texts[column]) for column in snapshot.partition_keys], new_id())
    values = snapshot.values.slice(last.position, 1).to_pylist()[0] if snapshot.partition_keys else {}
    return Merge(label, values, tuple(member.label for member in group), files, known)


# --- rows of a cube -------------------------------------------------------------------------------


def newest_cells(tables: Sequence[pa.Table], keys: Sequence[str], dimensions: Sequence[str], dataset: str) -> pa.Table:
    """The rows of several files, sorted by cell; of a cell that several of them have the last one.

    Parameters
    ----------
    tables : sequence of pyarrow.Table
        The rows of each file, older ones first.
    keys : sequence of str
        Keys of the files, for errors.
    dimensions : sequence of str
        The columns that tell cells apart.
    dataset : str
        The dataset, for errors.

    Raises
    ------
    CorruptData
        If one file has a cell twice: nobody knows which row is the newer one.
    """
    rows = pa.concat_tables(tables)
    cells = pack_one(rows, dimensions)
    order = stable_order(cells)
    order = np.arange(len(cells)) if order is None else order
    cells, files = cells[order], np.repeat(np.arange(len(tables)), [t.num_rows for t in tables])[order]
    same = cells[1:] == cells[:-1]
    twice = np.flatnonzero(same & (files[1:] == files[:-1]))
    if len(twice):
        first = int(twice[0])
        cell = rows.select(list(dimensions)).slice(int(order[first]), 1).to_pylist() if dimensions else [{}]
        raise CorruptData(
            f"The file {keys[int(files[first])]!r} of dataset {dataset!r} has the cell {cell[0]} twice; a cell may occur once in a file."
        )
    return take_rows(rows, order[np.append(~same, True)[: len(order)]])
