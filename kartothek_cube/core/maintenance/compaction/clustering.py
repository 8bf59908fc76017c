"""Clustering: which files of a physical partition are sorted anew, and where they are cut. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from kartothek_cube.core.arrow.keys import IntArray, group_starts, pack_one, ranks, z_order_keys
from kartothek_cube.core.io.reader import UNKNOWN, Clustering, FileFigures, SortRange
from kartothek_cube.core.metadata.snapshot import Snapshot, type_of_column
from kartothek_cube.core.write.plan import column_names
from kartothek_cube.errors import InvalidInput, InvalidRequest, UnknownColumn, Unsupported

__all__ = [
    "Layout",
    "check_clustering",
    "check_columns",
    "cluster_groups",
    "cut_rows",
    "has_columns",
    "overlapping",
    "piece_count",
]

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


@dataclass(frozen=True, slots=True)
class Layout:
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
    def of(cls, rows: int, files: Sequence[FileFigures], clustering: Clustering) -> Layout:
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
