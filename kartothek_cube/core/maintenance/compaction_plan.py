"""Planning of a compaction: which files are merged, and the order of their rows. Pure.

In order:

- clustering: which files are sorted anew, where they are cut
- plan and result as values
- planning
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct

from kartothek_cube.core.arguments import pluralize
from kartothek_cube.core.arrow.keys import (
    IntArray,
    group_starts,
    pack_one,
    ranks,
    take_rows,
    z_order_keys,
)
from kartothek_cube.core.display import Explanation, Step, StepRow, render
from kartothek_cube.core.expressions.predicates import Mask
from kartothek_cube.core.io.reader import UNKNOWN, Clustering, FileBounds, FileStats, SortRange
from kartothek_cube.core.metadata.naming import decode_key, label_of, new_id
from kartothek_cube.core.metadata.snapshot import Snapshot, type_of_column
from kartothek_cube.core.write.plan import column_names
from kartothek_cube.errors import CorruptData, InvalidInput, InvalidRequest, InvalidType, UnknownColumn, Unsupported

# Of more columns each has too few bits: a range of any one finds nearly all row groups.
_MOST_Z_COLUMNS = 8


def check_clustering(sort_by: object, zorder_by: object) -> Clustering | None:
    """Validate the arguments ``sort_by`` and ``zorder_by``, of which one may be given."""
    sort, curve = column_names(sort_by, "sort_by"), column_names(zorder_by, "zorder_by")
    if sort and curve:
        raise InvalidInput("Rows have one order: give sort_by or zorder_by, not both.")
    if len(curve) == 1:
        raise InvalidInput(f"The Z-order of one column is a sort: give sort_by={list(curve)}.")
    if len(curve) > _MOST_Z_COLUMNS:
        raise InvalidInput(
            f"zorder_by takes at most {_MOST_Z_COLUMNS} columns, not {len(curve)}: "
            "the more there are, the less each of them finds."
        )
    return Clustering(sort or curve, bool(curve)) if sort or curve else None


def has_columns(clustering: Clustering, base: Snapshot) -> bool:
    """Whether the files of a dataset have all columns of a clustering."""
    inside = {name for schema in base.schemas.values() for name in schema.names} - {*base.partition_keys}
    return inside.issuperset(clustering.columns)


def check_columns(clustering: Clustering, base: Snapshot) -> None:
    """Raise if a dataset cannot be clustered.

    Raises
    ------
    UnknownColumn
        If the dataset does not have a column.
    InvalidRequest
        If a column is a partition key.
    Unsupported
        If the values of a column have no order, or the dataset has several tables.
    """
    words = f"{clustering.argument}={list(clustering.columns)}: dataset {base.uuid!r}"
    if len(base.schemas) > 1:
        raise Unsupported(f"{words} has the tables {sorted(base.schemas)}; datasets of one table can be clustered.")
    keys = [c for c in clustering.columns if c in base.partition_keys]
    if keys:
        raise InvalidRequest(f"{words} is partitioned by {keys}: all rows of a file have the same value. Leave it out.")
    names = [name for schema in base.schemas.values() for name in schema.names]
    missing = [c for c in clustering.columns if c not in names]
    if missing:
        raise UnknownColumn(f"{words} has no column {missing[0]!r}, only {sorted(names)}.")
    for column in clustering.columns:
        data_type = type_of_column(base.schemas, column, base.uuid)
        try:
            ranks(pa.chunked_array([pa.array([], data_type)]))
        except pa.ArrowNotImplementedError:
            raise Unsupported(f"{words} has {data_type} in column {column!r}, whose values have no order.") from None


# --- which files ----------------------------------------------------------------------------------


class Layout(Struct, frozen=True):
    """What is known of files that are rewritten together or not at all.

    Attributes
    ----------
    rows, files : int
        Their numbers of rows and files.
    range : SortRange
        The bounds of the first column of the clustering.
    cluster : str | None
        The id of the merge that gave them the wanted order; None if they do not have it.
    """

    rows: int
    files: int
    range: SortRange
    cluster: str | None

    @classmethod
    def of(cls, rows: int, files: Sequence[FileStats], clustering: Clustering) -> Layout:
        """The layout of files with these figures, of which ``rows`` rows are left."""
        # Files that override each other have to be merged in any case.
        mark = files[0].mark if len(files) == 1 else None
        cluster = mark.id if mark is not None and mark.serves(clustering) else None
        try:
            ends = min(f.range[0] for f in files), max(f.range[1] for f in files)
        except (TypeError, ValueError):  # unknown bounds, no file
            ends = UNKNOWN
        # Of the columns of a Z-order none is sorted: all files of a partition belong together.
        return cls(rows, len(files), UNKNOWN if clustering.is_zorder else ends, cluster)


def piece_count(rows: int, target_rows: int) -> int:
    """The number of files for so many rows."""
    return max(1, -(-rows // target_rows))


def cluster_groups(layouts: Sequence[Layout], target_rows: int, *, rewrite: bool = False) -> list[list[int]]:
    """Positions of the files of one physical partition that are sorted together.

    Files whose ranges overlap are. Those that do not overlap any other stay if they are in order
    already, and have half of ``target_rows`` or no small neighbour in the order of ranges; with
    ``rewrite`` none stays.
    """
    # A file in order that has half of the rows is left alone, and each new one has as many or no
    # neighbour that fits: so the next compaction finds nothing to do.
    groups, total = list[list[int]](), target_rows + 1
    rewritten = list[bool]()
    for files in overlapping([layout.range for layout in layouts]):
        rows = sum(layouts[i].rows for i in files)
        clusters = {layouts[i].cluster for i in files}
        is_done = (
            None not in clusters
            and len(clusters) == 1
            and sum(layouts[i].files for i in files) <= piece_count(rows, target_rows)
        )
        if is_done and 2 * rows >= target_rows:
            total = target_rows + 1
        elif total + rows <= target_rows:
            groups[-1] += files
            rewritten[-1] = True
            total += rows
        else:
            groups.append(files)
            rewritten.append(not is_done)
            total = rows
    return [sorted(group) for group, is_new in zip(groups, rewritten, strict=True) if is_new or rewrite]


def overlapping(ranges: Sequence[SortRange]) -> list[list[int]]:
    """Lists of ranges that have more than an end in common, in their order.

    Examples
    --------
    >>> january, february, spring = ((0, 1), (0, 31)), ((0, 31), (0, 59)), ((0, 40), (0, 150))
    >>> overlapping([spring, january, february])
    [[1], [2, 0]]
    """
    try:
        order = sorted(range(len(ranges)), key=lambda i: ranges[i])
    except TypeError:  # a day and a moment, say
        return [list(range(len(ranges)))]
    found, end = list[list[int]](), None
    for i in order:
        low, high = ranges[i]
        if end is not None and low < end:
            found[-1].append(i)
            end = max(end, high)
        else:
            found.append([i])
            end = high
    return found


# --- rows -----------------------------------------------------------------------------------------


def cut_rows(table: pa.Table, clustering: Clustering, pieces: int, target_rows: int) -> tuple[IntArray, list[int]]:
    """The positions of the rows in their new order, and the ends of the files in it, from 0 on.

    Equal rows keep their order. Files are cut between unequal values of the first column, if then
    none has more than ``target_rows`` rows, and none less than half of them.
    """
    if clustering.is_zorder:
        order = np.argsort(z_order_keys(table, clustering.columns), kind="stable")
        return order, [number * len(order) // pieces for number in range(pieces + 1)]
    order = np.argsort(pack_one(table, clustering.columns), kind="stable")
    starts = group_starts(pack_one(table, clustering.columns[:1])[order])
    rows, least, ends = len(order), -(-target_rows // 2), [0]
    for following in range(pieces - 1, 0, -1):
        begin = ends[-1]
        low, high = (
            max(begin + least, rows - following * target_rows),
            min(begin + target_rows, rows - following * least),
        )
        even = begin + (rows - begin) // (following + 1)
        cuts = starts[np.searchsorted(starts, low) : np.searchsorted(starts, high, side="right")]
        ends.append(int(cuts[np.abs(cuts - even).argmin()]) if len(cuts) else even)
    return order, [*ends, rows]


# --- plan and result as values --------------------------------------------------------------------


_SHOWN_PARTITIONS = 20


class Merge(Struct, frozen=True):
    """Files of one physical partition that become one, or a few where the rows are too many.

    Attributes
    ----------
    label : str
        Label of the new partition.
    values : Mapping[str, Any]
        Its partition values.
    inputs : tuple of str
        Labels of the partitions that it replaces, in their order.
    files : Mapping[str, tuple of str]
        Table → keys of the input files, in the same order. A partition may lack a table.
    figures : Mapping[str, tuple of FileFigures]
        Table → figures of these files.
    pieces : int
        Files that the rows are written to.
    overlaid : int
        Number of inputs that are known to override cells of others, or to be overridden.
    """

    label: str
    values: Mapping[str, Any]
    inputs: tuple[str, ...]
    files: Mapping[str, tuple[str, ...]]
    figures: Mapping[str, tuple[FileStats, ...]]
    pieces: int = 1
    overlaid: int = 0

    @property
    def folder(self) -> str:
        """Folder of the physical partition; empty for a dataset without partition keys."""
        return self.label.rpartition("/")[0]

    @property
    def rows(self) -> int:
        """Rows of all inputs and tables."""
        return sum(f.rows for f in self._all())

    @property
    def bytes(self) -> int:
        """Size of the input files."""
        return sum(f.size for f in self._all())

    @property
    def unpacked(self) -> int:
        """Estimated bytes of the rows in memory, of the largest table."""
        return max((sum(f.unpacked for f in figures) for figures in self.figures.values()), default=0)

    def _all(self) -> Iterator[FileStats]:
        return chain.from_iterable(self.figures.values())


class CompactionPlan(Struct, frozen=True, eq=False):
    """The files of a dataset that a compaction is to merge. Nothing has been written yet.

    Attributes
    ----------
    uuid : str
        The dataset.
    target_rows : int
        Maximum of rows in a merged file. Files of half as many rows or more stay as they are,
        unless they share cells.
    merges : tuple of Merge
        The merges, one for each new partition.
    total, selected, neighbouring : int
        Number of stored partitions: of the dataset, of the selected physical partitions, and of
        those with a neighbour in the same physical partition.
    clustering : Clustering or None
        The order of the rows in the new files, from ``sort_by`` or ``zorder_by``; None if rows keep
        their order.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset
    >>> store = open_store("hmemory://")
    >>> sales = pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]})
    >>> _ = store_dataframes_as_dataset(store, "sales", [sales.slice(0, 1), sales.slice(1)])
    >>> from kartothek_cube.api.dataset import compact_dataset
    >>> plan = compact_dataset("sales", store, dry_run=True)
    >>> plan.files_before, plan.files_after
    (2, 1)
    """

    uuid: str
    target_rows: int
    merges: tuple[Merge, ...]
    total: int
    selected: int
    neighbouring: int
    clustering: Clustering | None = None

    @property
    def partitions(self) -> list[str]:
        """Folders of the physical partitions that change; one, ``""``, without partition keys."""
        return list(dict.fromkeys(m.folder for m in self.merges))

    @property
    def files_before(self) -> int:
        """Files that are merged."""
        return sum(len(files) for m in self.merges for files in m.files.values())

    @property
    def files_after(self) -> int:
        """Files after the merge."""
        return sum(m.pieces * len(m.files) for m in self.merges)

    @property
    def overlaid(self) -> int:
        """Files that are merged because they override cells of others, or are overridden."""
        return sum(m.overlaid for m in self.merges)

    @property
    def rows_before(self) -> int:
        """Rows in the files that are merged."""
        return sum(m.rows for m in self.merges)

    @property
    def bytes_before(self) -> int:
        """Size of the files that are merged."""
        return sum(m.bytes for m in self.merges)

    def files(self) -> list[str]:
        """Keys of the files that are merged."""
        return [key for m in self.merges for keys in m.files.values() for key in keys]

    def explain(self, format: str = "text") -> str:  # noqa: A002 - the name users know from data frames
        """Explain the selection and the merges, as ``"text"``, ``"html"`` or ``"json"``.

        JSON has all partitions and files, the other formats the first few.

        Raises
        ------
        InvalidInput
            For another format.
        """
        return render(_explanation(self, (), None if format == "json" else _SHOWN_PARTITIONS), format)

    def __len__(self) -> int:
        return len(self.merges)

    def __repr__(self) -> str:
        return f"CompactionPlan({self.uuid!r}: {_summary(self)})"

    def _repr_html_(self) -> str:
        return self.explain("html")


class CompactionReport(Struct, frozen=True, eq=False):
    """The result of a compaction, or of its ``dry_run``.

    Attributes
    ----------
    plan : CompactionPlan
        The files that were merged.
    dry_run : bool
        Nothing was written.
    commit : str or None
        Id of the commit; None if nothing was written, or there was nothing to do.
    rows_after, bytes_after : int or None
        Rows and size of the new files; None if none was written.

    Examples
    --------
    >>> CompactionReport(CompactionPlan("sales", 1_000_000, (), 12, 12, 0), dry_run=False)
    CompactionReport('sales': nothing to do for 12 partitions)
    """

    plan: CompactionPlan
    dry_run: bool
    commit: str | None = None
    rows_after: int | None = None
    bytes_after: int | None = None

    @property
    def partitions(self) -> list[str]:
        """Folders of the physical partitions that changed; one, ``""``, without partition keys."""
        return self.plan.partitions

    @property
    def files_before(self) -> int:
        """Files that were merged."""
        return self.plan.files_before

    @property
    def files_after(self) -> int:
        """Files after the merge."""
        return self.plan.files_after

    @property
    def rows_before(self) -> int:
        """Rows in the files that were merged."""
        return self.plan.rows_before

    @property
    def bytes_before(self) -> int:
        """Size of the files that were merged."""
        return self.plan.bytes_before

    def explain(self, format: str = "text") -> str:  # noqa: A002 - the name users know from data frames
        """Explain the plan, as `CompactionPlan.explain` does, and its result."""
        if self.commit is None:
            outcome = [("commit", "none, a dry run" if self.dry_run else "none, nothing to do")]
        else:
            outcome = [("commit", self.commit), ("rows after", f"{self.rows_after:,}")]
            outcome.append(("bytes after", f"{self.bytes_after:,}"))
        return render(_explanation(self.plan, outcome, None if format == "json" else _SHOWN_PARTITIONS), format)

    def __repr__(self) -> str:
        text = f"{'would be ' if self.dry_run and self.plan.merges else ''}{_summary(self.plan)}"
        if self.bytes_after is not None:
            text = f"{text}, {self.bytes_before:,} → {self.bytes_after:,} bytes; commit {self.commit}"
        return f"CompactionReport({self.plan.uuid!r}: {text})"

    def _repr_html_(self) -> str:
        return self.explain("html")


# --- what to say about it -------------------------------------------------------------------------


def _summary(plan: CompactionPlan) -> str:
    if not plan.merges:
        return f"nothing to do for {pluralize(plan.total, 'partition')}"
    partitions = pluralize(len(plan.partitions), "physical partition")
    return f"{plan.files_before:,} files → {plan.files_after:,} in {partitions}, {pluralize(plan.rows_before, 'row')}"


def _explanation(plan: CompactionPlan, outcome: Sequence[tuple[str, str]], shown: int | None) -> Explanation:
    facts = (
        ("rows per file", f"at most {plan.target_rows:,}"),
        *([("order of rows", str(plan.clustering))] if plan.clustering else []),
        ("rows", f"{plan.rows_before:,}"),
        ("bytes", f"{plan.bytes_before:,}"),
        *outcome,
    )
    merged, overlaid = sum(len(m.inputs) for m in plan.merges), plan.overlaid
    half = f"with less than {-(-plan.target_rows // 2):,} rows, beside another such one"
    small = StepRow("small", plan.neighbouring - overlaid, merged - overlaid, half)
    if plan.clustering:
        note = "without a note in the footer, overlapping, or small"
        small = StepRow("not clustered", plan.neighbouring - overlaid, merged - overlaid, note)
    search = (
        StepRow("asked for", plan.total, plan.selected, "whole physical partitions"),
        *(
            [StepRow("neighbours", plan.selected, plan.neighbouring, "beside one of the same physical partition")]
            * (plan.clustering is None)
        ),
        *(
            [StepRow("overlaid", plan.neighbouring, overlaid, "share cells, of which the newest row stays")]
            * bool(overlaid)
        ),
        small,
    )
    steps = (Step("Search", "stored partitions", search), Step("Merging", "files", _merge_rows(plan, shown)))
    return Explanation(f"Compaction of dataset {plan.uuid!r}", facts, steps, tuple(plan.files()))


def _merge_rows(plan: CompactionPlan, shown: int | None) -> tuple[StepRow, ...]:
    folders: dict[str, list[Merge]] = {}
    for merge in plan.merges:
        folders.setdefault(merge.folder, []).append(merge)
    rows = []
    for folder, merges in list(folders.items())[:shown]:
        before, after = (
            sum(sum(map(len, m.files.values())) for m in merges),
            sum(m.pieces * len(m.files) for m in merges),
        )
        note = f"{pluralize(sum(m.rows for m in merges), 'row')}, {sum(m.bytes for m in merges):,} bytes"
        rows.append(StepRow(folder or "all rows", before, after, note))
    more = len(folders) - len(rows)
    rest = [StepRow(f"… and {more:,} more", None, None)] if more else []
    return (*rows, *rest)


# One row group.
TARGET_ROWS = 1_000_000


class CellOrder(Struct, frozen=True):
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
    figures: Mapping[str, FileStats],
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


class _StoredPartition(Struct, frozen=True):
    """One stored partition: position, label, table → key, and rows of the largest table."""

    position: int
    label: str
    files: Mapping[str, str]
    rows: int


class _Unit(Struct, frozen=True):
    """Stored partitions that are merged together or not at all: one, or those of an overlay.

    No two units share a cell, unless they are parts of one run of small files. ``rows`` are those
    of the merged file.
    """

    members: tuple[_StoredPartition, ...]
    rows: int


def _stored_partitions(snapshot: Snapshot, run: IntArray, figures: Mapping[str, FileStats]) -> list[_StoredPartition]:
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
    figures: Mapping[str, FileStats],
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


class Overlay(Struct, frozen=True):
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
    snapshot: Snapshot, runs: Sequence[IntArray], figures: Mapping[str, FileStats], target_rows: int
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
    order = np.argsort(cells, kind="stable")
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
