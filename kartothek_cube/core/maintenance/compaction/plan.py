"""Planning of a compaction: which files are merged, and the order of their rows in a cube. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from kartothek_cube.core.arrow.sort_keys import IntArray, group_starts, pack_one, stable_order, take_rows
from kartothek_cube.core.expressions.evaluate import Mask
from kartothek_cube.core.io.file_figures import FileFigures
from kartothek_cube.core.maintenance.compaction.report import CompactionPlan, Merge
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

# One row group.
TARGET_ROWS = 1_000_000


@dataclass(frozen=True, slots=True)
class CellOrder:
    """The order of rows and files that a cube requires of its datasets.

    Attributes
    ----------
    dimensions : tuple of str
        Dimension columns inside the files. The rows of a file are sorted by them, and no two rows
        are equal in all of them.
    address : tuple of str
        Partition keys that are part of a cell's address. Files that differ in one of them share no
        cell; of any others, the later file overrides the earlier one.
    """

    dimensions: tuple[str, ...]
    address: tuple[str, ...]


# --- planning -------------------------------------------------------------------------------------


def check_target_rows(value: object) -> int:
    """Validate the argument ``target_rows``: a number of rows, at least 1."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise InvalidType(f"target_rows is a number of rows, not {type(value).__name__}: {value!r}.")
    if value < 1:
        raise InvalidInput(f"target_rows is a number of rows, at least 1; it is {value}.")
    return int(value)


def cell_order(base: Snapshot, dimensions: Sequence[str], partitions: Sequence[str]) -> CellOrder:
    """The order that a cube with these dimension and partition columns requires of a dataset."""
    inside = tuple(c for c in dimensions if c in base.schema.names and c not in base.partition_keys)
    return CellOrder(inside, tuple(c for c in base.partition_keys if c in (*partitions, *dimensions)))


def whole_partitions(snapshot: Snapshot, mask: Mask) -> Mask:
    """Extend a mask of stored partitions to whole physical partitions."""
    numbers = snapshot.physical_partitions()
    extended: Mask = np.isin(numbers, numbers[mask])
    return extended


def neighbours(snapshot: Snapshot, selected: Mask, order: CellOrder | None = None) -> list[IntArray]:
    """Runs of two or more stored partitions that may be merged: overrides stay as they are.

    A run belongs to one physical partition. With an ``order``, no other file that may have the same
    cells comes between two files of a run.
    """
    parts = snapshot.physical_partitions()
    units = parts if order is None else snapshot.physical_partitions(order.address)
    by_unit = np.argsort(units, kind="stable")  # positions ascend within a unit
    # A physical partition belongs to one unit: it changes wherever the unit changes.
    bounds = np.append(group_starts(parts[by_unit]), len(parts)).tolist()
    runs = [by_unit[begin:end] for begin, end in pairwise(bounds) if end - begin > 1]
    return sorted((run for run in runs if selected[run[0]]), key=lambda run: int(run[0]))


def plan_compaction(
    snapshot: Snapshot,
    runs: Sequence[IntArray],
    figures: Mapping[str, FileFigures],
    target_rows: int,
    selected: Mask | None = None,
) -> CompactionPlan:
    """Plan which files of these runs are merged.

    ``figures`` has the figures of each file by key. ``selected`` is for the counts only.
    """
    merges: list[Merge] = []
    for run in runs:
        taken = snapshot.partitions.take(run)
        tables = {table: keys.to_pylist() for table, keys in taken.files.items()}
        stored = [
            _StoredPartition(position, label, {t: keys[i] for t, keys in tables.items() if keys[i] is not None})
            for i, (position, label) in enumerate(zip(run.tolist(), taken.labels.to_pylist(), strict=True))
        ]
        merges += [_merge(snapshot, group, figures) for group in _group(stored, figures, target_rows)]
    count = len(snapshot.partitions) if selected is None else int(selected.sum())
    neighbouring = sum(map(len, runs))
    return CompactionPlan(snapshot.uuid, target_rows, tuple(merges), len(snapshot.partitions), count, neighbouring)


@dataclass(frozen=True, slots=True)
class _StoredPartition:
    """One stored partition: position, label, table → key."""

    position: int
    label: str
    files: Mapping[str, str]


def _group(
    run: Sequence[_StoredPartition], figures: Mapping[str, FileFigures], target_rows: int
) -> list[list[_StoredPartition]]:
    """The largest groups of two or more neighbours with at most ``target_rows`` rows together.

    A file with half of the rows or more stays as it is, and ends a group.
    """
    # Small files have less than half of the rows, so a full group has more than half: the next
    # compaction leaves the merged file alone.
    groups, total = list[list[_StoredPartition]](), target_rows
    for partition in run:
        rows = max((figures[key].rows for key in partition.files.values()), default=0)
        if 2 * rows >= target_rows:
            total = target_rows + 1  # no group extends over a large file
        elif groups and total + rows <= target_rows:
            groups[-1].append(partition)
            total += rows
        else:
            groups.append([partition])
            total = rows
    return [group for group in groups if len(group) > 1]


def _merge(snapshot: Snapshot, group: Sequence[_StoredPartition], figures: Mapping[str, FileFigures]) -> Merge:
    tables = list(dict.fromkeys(t for partition in group for t in partition.files))
    files = {t: tuple(partition.files[t] for partition in group if t in partition.files) for t in tables}
    figures_of = {t: tuple(figures[key] for key in keys) for t, keys in files.items()}
    # The values as the path of a file has them: a label of another library may say anything.
    newest = group[-1]
    texts = dict(decode_key(next(iter(newest.files.values()), "")).pairs)
    label = label_of([(column, texts[column]) for column in snapshot.partition_keys], new_id())
    values = snapshot.values.slice(newest.position, 1).to_pylist()[0] if snapshot.partition_keys else {}
    return Merge(label, values, tuple(partition.label for partition in group), files, figures_of)


# --- rows of a cube -------------------------------------------------------------------------------


def newest_cells(tables: Sequence[pa.Table], keys: Sequence[str], dimensions: Sequence[str], dataset: str) -> pa.Table:
    """The rows of several files, sorted by cell; of equal cells the row of the last file.

    Parameters
    ----------
    tables : sequence of pyarrow.Table
        The rows of each file, older ones first.
    keys : sequence of str
        Keys of the files, for error messages.
    dimensions : sequence of str
        The columns that identify a cell.
    dataset : str
        The dataset, for error messages.

    Raises
    ------
    CorruptData
        If one file has a cell twice, because neither row is the newer one.
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
            f"The file {keys[int(files[first])]!r} of dataset {dataset!r} has the cell {cell[0]} twice; "
            "a cell may occur once in a file."
        )
    return take_rows(rows, order[np.append(~same, True)[: len(order)]])
