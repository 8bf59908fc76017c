"""Planning of a compaction: which files are merged, and the order of their rows in a cube. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from kartothek_cube.core.arrow.keys import IntArray, group_starts, pack_one, stable_order, take_rows
from kartothek_cube.core.expressions.predicates import Mask
from kartothek_cube.core.io.reader import Clustering, FileBounds, FileFigures
from kartothek_cube.core.maintenance.compaction.clustering import Layout, cluster_groups, piece_count
from kartothek_cube.core.maintenance.compaction.report import CompactionPlan, Merge
from kartothek_cube.core.metadata.naming import decode_key, label_of, new_id
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.errors import CorruptData, InvalidInput, InvalidType

__all__ = [
    "TARGET_ROWS",
    "CellOrder",
    "Overlay",
    "cell_order",
    "check_target_rows",
    "files_to_compare",
    "neighbours",
    "newest_cells",
    "newest_positions",
    "overlays",
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


def neighbours(snapshot: Snapshot, selected: Mask, order: CellOrder | None = None, at_least: int = 2) -> list[IntArray]:
    """Runs of two or more stored partitions that may be merged: overrides stay as they are.

    A run belongs to one physical partition. With an ``order``, no other file that may have the same
    cells comes between two files of a run. ``at_least`` is the length of the shortest run.
    """
    parts = snapshot.physical_partitions()
    units = parts if order is None else snapshot.physical_partitions(order.address)
    by_unit = np.argsort(units, kind="stable")  # positions ascend within a unit
    # A physical partition belongs to one unit: it changes wherever the unit changes.
    bounds = np.append(group_starts(parts[by_unit]), len(parts)).tolist()
    runs = [by_unit[begin:end] for begin, end in pairwise(bounds) if end - begin >= at_least]
    return sorted((run for run in runs if selected[run[0]]), key=lambda run: int(run[0]))


def plan_compaction(
    snapshot: Snapshot,
    runs: Sequence[IntArray],
    figures: Mapping[str, FileFigures],
    target_rows: int,
    selected: Mask | None = None,
    overlaid: Sequence[Overlay] = (),
    clustering: Clustering | None = None,
    *,
    rewrite: bool = False,
) -> CompactionPlan:
    """Plan which files of these runs are merged.

    ``figures`` has the figures of each file by key. ``selected`` is for the counts only. Without
    ``overlaid`` and ``clustering``, files are merged only because they are small. With ``rewrite``
    each file is one of a merge, perhaps the only one.
    """
    overlay_of = {position: overlay for overlay in overlaid for position in overlay.files}
    merges: list[Merge] = []
    for run in runs:
        units = _units(_stored_partitions(snapshot, run, figures), overlay_of)
        if clustering is None:
            groups = _group(units, target_rows, at_least=1 if rewrite else 2)
        else:
            keys = ([key for partition in unit.members for key in partition.files.values()] for unit in units)
            layouts = [
                Layout.of(unit.rows, [figures[key] for key in of_unit], clustering)
                for unit, of_unit in zip(units, keys, strict=True)
            ]
            groups = [[units[i] for i in group] for group in cluster_groups(layouts, target_rows, rewrite=rewrite)]
        merges += [_merge(snapshot, group, figures, target_rows, clustering) for group in groups]
    count, total = len(snapshot.partitions) if selected is None else int(selected.sum()), len(snapshot.partitions)
    return CompactionPlan(
        snapshot.uuid, target_rows, tuple(merges), total, count, sum(map(len, runs)), clustering=clustering
    )


@dataclass(frozen=True, slots=True)
class _StoredPartition:
    """One stored partition: position, label, table → key, and rows of the largest table."""

    position: int
    label: str
    files: Mapping[str, str]
    rows: int


@dataclass(frozen=True, slots=True)
class _Unit:
    """Stored partitions that are merged together or not at all: one, or those of an overlay.

    No two units share a cell, unless they are parts of one run of small files. ``rows`` are those
    of the merged file.
    """

    members: tuple[_StoredPartition, ...]
    rows: int


def _stored_partitions(snapshot: Snapshot, run: IntArray, figures: Mapping[str, FileFigures]) -> list[_StoredPartition]:
    taken = snapshot.partitions.take(run)
    tables = {table: keys.to_pylist() for table, keys in taken.files.items()}
    stored = []
    for i, (position, label) in enumerate(zip(run.tolist(), taken.labels.to_pylist(), strict=True)):
        files = {t: keys[i] for t, keys in tables.items() if keys[i] is not None}
        rows = max((figures[key].rows for key in files.values()), default=0)
        stored.append(_StoredPartition(position, label, files, rows))
    return stored


def _units(run: Sequence[_StoredPartition], overlay_of: Mapping[int, Overlay]) -> list[_Unit]:
    """The units of a run, in the order of their newest members."""
    waiting: dict[Overlay, list[_StoredPartition]] = {}
    units = []
    for partition in run:
        overlay = overlay_of.get(partition.position)
        members = [] if overlay is None else waiting.setdefault(overlay, [])
        members.append(partition)
        if overlay is None or partition.position == overlay.files[-1]:
            units.append(_Unit(tuple(members), partition.rows if overlay is None else overlay.rows))
    return units


def _group(units: Sequence[_Unit], target_rows: int, at_least: int = 2) -> list[list[_Unit]]:
    """The largest groups of neighbours with at most ``target_rows`` rows together.

    A unit with half of the rows or more is a group of its own. Groups of fewer files than
    ``at_least`` are left out.
    """
    # Small units have less than half of the rows, so a full group has more than half: the next
    # compaction leaves the merged file alone.
    groups, total = list[list[_Unit]](), target_rows
    for unit in units:
        if 2 * unit.rows >= target_rows:
            groups.append([unit])
            total = target_rows + 1  # no group extends over a large file
        elif groups and total + unit.rows <= target_rows:
            groups[-1].append(unit)
            total += unit.rows
        else:
            groups.append([unit])
            total = unit.rows
    return [group for group in groups if sum(len(unit.members) for unit in group) >= at_least]


def _merge(
    snapshot: Snapshot,
    group: Sequence[_Unit],
    figures: Mapping[str, FileFigures],
    target_rows: int,
    clustering: Clustering | None,
) -> Merge:
    # No file between two units has their cells, so only the order inside a unit matters.
    members = sorted((p for unit in group for p in unit.members), key=lambda p: p.position)
    tables = list(dict.fromkeys(t for partition in members for t in partition.files))
    files = {t: tuple(partition.files[t] for partition in members if t in partition.files) for t in tables}
    figures_of = {t: tuple(figures[key] for key in keys) for t, keys in files.items()}
    # The values as the path of a file has them: a label of another library may say anything.
    newest = members[-1]
    texts = dict(decode_key(next(iter(newest.files.values()), "")).pairs)
    label = label_of([(column, texts[column]) for column in snapshot.partition_keys], new_id())
    values = snapshot.values.slice(newest.position, 1).to_pylist()[0] if snapshot.partition_keys else {}
    # A file that somebody made larger than the target is not cut because it was corrected.
    limit = target_rows if clustering else max(target_rows, *(partition.rows for partition in members))
    pieces = piece_count(sum(unit.rows for unit in group), limit)
    overlaid = sum(len(unit.members) for unit in group if len(unit.members) > 1)
    return Merge(label, values, tuple(p.label for p in members), files, figures_of, pieces, overlaid)


# --- overlays: files that override cells of each other --------------------------------------------


@dataclass(frozen=True, slots=True)
class Overlay:
    """Files that override cells of each other, directly or through others.

    Attributes
    ----------
    files : tuple of int
        Two or more ascending positions.
    rows : int
        The number of their distinct cells.
    """

    files: tuple[int, ...]
    rows: int


def files_to_compare(
    snapshot: Snapshot, runs: Sequence[IntArray], figures: Mapping[str, FileFigures], target_rows: int
) -> list[list[int]]:
    """Positions of files whose key columns tell the overlays. Two of these lists share no cell.

    A run whose files are small enough to become one is left out: whatever they override, they are
    merged. So is a file whose bounds in any dimension lie outside of those of all others.
    """
    found = []
    for run in runs:
        stored = _stored_partitions(snapshot, run, figures)
        groups = _group(_units(stored, {}), target_rows)
        if [len(group) for group in groups] != [len(stored)]:
            bounds = {p.position: figures[key].bounds for p in stored if p.rows for key in p.files.values()}
            found += _overlapping_bounds(bounds)
    return found


def _overlapping_bounds(bounds: Mapping[int, FileBounds]) -> list[list[int]]:
    """Lists of two or more files that no dimension tells apart."""
    waiting, found = [sorted(bounds)], []
    while waiting:
        files = waiting.pop()
        cuts = (_apart(files, column) for column in zip(*(bounds[f] for f in files), strict=True))
        pieces = next((pieces for pieces in cuts if len(pieces) > 1), None)
        if pieces is not None:
            waiting += pieces
        elif len(files) > 1:
            found.append(files)
    return sorted(found)


def _apart(files: Sequence[int], bounds: Sequence[tuple[Any, Any] | None]) -> list[list[int]]:
    """The files in lists whose bounds in one dimension do not overlap; unknown ones overlap all."""
    known = [(low, high, file) for file, found in zip(files, bounds, strict=True) if found for low, high in [found]]
    pieces, end = list[list[int]](), None
    try:
        known.sort(key=lambda item: item[0])
        for low, high, file in known:
            if pieces and low <= end:
                pieces[-1].append(file)
                end = max(end, high)
            else:
                pieces.append([file])
                end = high
    except TypeError:  # a day and a moment, say: only the values themselves can be compared
        return [list(files)]
    return [sorted(piece) for piece in pieces] if len(known) == len(files) else [list(files)]


def overlays(keys: Sequence[IntArray]) -> list[Overlay]:
    """The overlays among files with these packed cells, older ones first.

    Examples
    --------
    >>> import numpy as np
    >>> overlays([np.array([1, 2, 3]), np.array([7]), np.array([3, 4])])
    [Overlay(files=(0, 2), rows=4)]
    """
    cells, files = np.concatenate(keys), np.repeat(np.arange(len(keys)), [len(k) for k in keys])
    order = np.argsort(cells, kind="stable")
    cells, files = cells[order], files[order]
    again = np.append(False, cells[1:] == cells[:-1])[: len(cells)]
    shared = np.flatnonzero(again)
    first = list(range(len(keys)))  # by file, the least known file that shares cells with it

    def root(file: int) -> int:
        while first[file] != file:
            file = first[file]
        return file

    for pair in np.unique(files[shared - 1] * len(keys) + files[shared]).tolist():
        low, high = sorted(map(root, divmod(pair, len(keys))))
        first[high] = low
    roots = np.array([root(file) for file in range(len(keys))], dtype=np.int64)
    rows = np.bincount(roots[files[~again]], minlength=len(keys)).tolist()
    members = ((r, np.flatnonzero(roots == r).tolist()) for r in np.unique(roots).tolist())
    return [Overlay(tuple(found), rows[r]) for r, found in members if len(found) > 1]


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
    return take_rows(rows, newest_positions(tables, keys, dimensions, dataset))


def newest_positions(
    tables: Sequence[pa.Table], keys: Sequence[str], dimensions: Sequence[str], dataset: str
) -> IntArray:
    """The positions of the rows of `newest_cells` among those of all files."""
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
    newest: IntArray = order[np.append(~same, True)[: len(order)]]
    return newest
