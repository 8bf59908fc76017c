"""Plans of reads in groups: what is read of each table, and the partitions of each group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from kartothek_cube.core.arrow.keys import IntArray, empty_rows, expand_ranges, group_starts, pack_one, take_rows
from kartothek_cube.core.expressions.predicates import Clause, Mask, Predicates, by_column, matching_all
from kartothek_cube.core.io.reader import FileRequest
from kartothek_cube.core.metadata.index import SecondaryIndex
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.scan.arguments import GroupArguments, checked_categoricals, checked_columns, names_by_table
from kartothek_cube.core.scan.plan import KeepIndices, ScanTask, check_predicate_columns, conjunction_masks, indices_for
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.errors import InvalidRequest, UnknownColumn

__all__ = [
    "GroupPlan",
    "Groups",
    "TableRead",
    "check_group_columns",
    "group_partitions",
    "make_group_plan",
    "partition_by_partition",
]


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Partitions that are loaded together.

    Attributes
    ----------
    keys : pyarrow.Table
        One row per group, ascending: its values of the group columns. No columns if each partition
        is a group.
    positions, offsets : numpy.ndarray
        Group *i* has the partitions ``positions[offsets[i]:offsets[i + 1]]`` of the document, in
        its order.
    """

    keys: pa.Table
    positions: IntArray
    offsets: IntArray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def partitions(self, i: int) -> IntArray:
        """Positions of the partitions of a group."""
        return self.positions[self.offsets[i] : self.offsets[i + 1]]

    def key(self, i: int) -> dict[str, Any]:
        """Values of the group columns of a group."""
        return dict(self.keys.slice(i, 1).to_pylist()[0]) if self.keys.num_columns else {}

    def amplification(self) -> float:
        """Reads per partition: the number of groups that need it, on average."""
        return len(self.positions) / max(1, len(np.unique(self.positions)))


@dataclass(frozen=True, slots=True)
class TableRead:
    """What is read of one table."""

    table: str
    request: FileRequest
    categoricals: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class GroupPlan:
    """What is read of each table, and the partitions of each group."""

    reads: tuple[TableRead, ...]
    groups: Groups
    files: Mapping[str, pa.Array]
    values: pa.Table

    @property
    def group_columns(self) -> list[str]:
        """Columns by whose values the partitions are grouped."""
        return list(self.groups.keys.column_names)

    def tasks(self, read: TableRead, positions: IntArray) -> list[ScanTask]:
        """The files of a table in these partitions, in order; a partition may have none."""
        files = self.files.get(read.table)
        if files is None:
            return []
        rows = take_rows(self.values, positions).to_pylist() if self.values.num_columns else [{}] * len(positions)
        keys = files.take(pa.array(positions)).to_pylist()
        # A table may lack a partition column. The reader must not add the column then.
        names = read.request.schema.names
        constants = [{c: v for c, v in row.items() if c in names} for row in rows]
        return [ScanTask(key, values) for key, values in zip(keys, constants, strict=True) if key is not None]

    def request(self, read: TableRead, i: int) -> FileRequest:
        """The request for the files of group ``i``: only the rows of the group."""
        # A file has one value of each partition key, so only other columns need a clause.
        group = tuple(Clause(c, "==", v) for c, v in self.groups.key(i).items() if c not in self.values.column_names)
        if not group:
            return read.request
        conjunctions: Predicates = ((),) if read.request.predicates is None else read.request.predicates
        return replace(read.request, predicates=tuple((*conjunction, *group) for conjunction in conjunctions))


def make_group_plan(
    store: Store, snapshot: Snapshot, arguments: GroupArguments, *, keep: KeepIndices | None = None
) -> GroupPlan:
    """Check the arguments against the snapshot, load the indices that are needed, and plan.

    No data file is read.
    """
    by = snapshot.partition_keys if arguments.by_partition_keys else arguments.dispatch_by
    group_columns = None if by is None else check_group_columns(by, snapshot)
    columns = names_by_table(arguments.columns, snapshot, "columns")
    categoricals = names_by_table(arguments.categoricals, snapshot, "categoricals")
    tables = [table for table in snapshot.tables if arguments.tables is None or table in arguments.tables]
    reads = []
    for table in tables:
        schema = snapshot.schemas[table]
        names = checked_columns(columns.get(table), schema, snapshot.uuid)
        context = f"{snapshot.uuid}, table {table}" if len(snapshot.tables) > 1 else snapshot.uuid
        check_predicate_columns(arguments.predicates, schema, context)
        request = FileRequest(snapshot.uuid, schema, names, arguments.predicates)
        encoded = checked_categoricals(categoricals.get(table), names, schema, snapshot.uuid)
        reads.append(TableRead(table, request, encoded))
    for read in reads:
        missing = [c for c in group_columns or () if c not in (*read.request.schema.names, *snapshot.partition_keys)]
        if missing:
            raise UnknownColumn(
                f"Table {read.table!r} of dataset {snapshot.uuid!r} lacks {missing}: its rows are in no group. "
                "Leave it out by `tables`."
            )
    also = snapshot.secondary_columns & set(group_columns or ())
    indices = indices_for(store, snapshot, arguments.predicates, also, keep=keep)
    everything = np.ones(len(snapshot.partitions), dtype=bool)
    masks, _ = conjunction_masks(snapshot, arguments.predicates, indices, everything)
    if arguments.label_filter is not None:
        # The filter is the user's function: it is called only for labels that the predicates leave.
        positions = np.flatnonzero(np.logical_or.reduce(masks))
        labels = snapshot.partitions.labels.take(pa.array(positions)).to_pylist()
        selected = np.zeros(len(snapshot.partitions), dtype=bool)
        selected[positions] = [bool(arguments.label_filter(label)) for label in labels]
        masks = [mask & selected for mask in masks]
    if group_columns is None:
        groups = partition_by_partition(np.logical_or.reduce(masks))
    else:
        groups = group_partitions(snapshot, group_columns, masks, arguments.predicates, indices)
    return GroupPlan(tuple(reads), groups, snapshot.partitions.files, snapshot.values)


def check_group_columns(columns: Iterable[str], snapshot: Snapshot) -> tuple[str, ...]:
    """The columns of ``dispatch_by``, each once.

    Raises
    ------
    InvalidRequest
        If one of them has no index.
    """
    names = tuple(dict.fromkeys(str(c) for c in columns))
    missing = [c for c in names if c not in snapshot.indexed_columns]
    if missing:
        indexed = sorted(snapshot.indexed_columns)
        raise InvalidRequest(
            f"Dispatch columns must be indexed. Dataset {snapshot.uuid!r} has no index on {missing}, only on {indexed}."
        )
    return names


def partition_by_partition(selected: Mask) -> Groups:
    """One group for each selected partition, in the order of the document."""
    positions = np.flatnonzero(selected)
    return Groups(empty_rows(len(positions)), positions, np.arange(len(positions) + 1))


def group_partitions(
    snapshot: Snapshot,
    by: Sequence[str],
    masks: Sequence[Mask],
    predicates: Predicates | None,
    indices: Mapping[str, SecondaryIndex],
) -> Groups:
    """One group for each combination of values that some partition has and the predicates allow.

    ``masks`` has the possible partitions of each conjunction, ``indices`` the indices on ``by``.
    A partition that is null throughout in some column is in no group. Without columns there is
    exactly one group, even if there are no partitions.
    """
    rows = np.flatnonzero(np.logical_or.reduce(masks))
    values = empty_rows(len(rows))
    if not by:
        return Groups(empty_rows(1), rows, np.array([0, len(rows)]))
    for column in by:
        rows, values = _with_values(snapshot, column, rows, values, indices)
    # Again by conjunction: one may leave the partition possible, and only another one the values.
    possible = np.zeros(len(rows), dtype=bool)
    conjunctions: Predicates = ((),) if predicates is None else predicates
    for mask, conjunction in zip(masks, conjunctions, strict=True):
        both = mask[rows]
        for column, clauses in by_column(c for c in conjunction if c.column in values.column_names).items():
            both &= matching_all(values.column(column), clauses)
        possible |= both
    rows, values = rows[possible], values.filter(pa.array(possible))
    keys = pack_one(values, values.column_names)
    order = np.lexsort((rows, keys))
    keys, rows = keys[order], rows[order]
    # A foreign index may list a label twice for one value.
    first = np.ones(len(rows), dtype=bool)
    first[1:] = (keys[1:] != keys[:-1]) | (rows[1:] != rows[:-1])
    keys, rows, order = keys[first], rows[first], order[first]
    starts = group_starts(keys)
    return Groups(values.take(pa.array(order[starts])), rows, np.append(starts, len(rows)))


def _with_values(
    snapshot: Snapshot, column: str, rows: IntArray, values: pa.Table, indices: Mapping[str, SecondaryIndex]
) -> tuple[IntArray, pa.Table]:
    """Each row repeated for each value that its partition has in one more column."""
    new: pa.Array | pa.ChunkedArray
    if column in snapshot.partition_keys:
        new = snapshot.values.column(column).take(pa.array(rows))
    else:
        # Join of the rows with the index, by the position of the partition.
        positions = snapshot.partitions.places(indices[column].labels)
        order = np.argsort(positions, kind="stable")
        first, last = (np.searchsorted(positions[order], rows, side=side) for side in ("left", "right"))
        repeats, matches = expand_ranges(first, last - first)
        rows, values = rows[repeats], take_rows(values, repeats)
        new = indices[column].values.take(pa.array(order[matches]))
    valid = ~pc.is_null(new, nan_is_null=pt.is_floating(new.type)).to_numpy(zero_copy_only=False)
    return rows[valid], values.append_column(column, new).filter(pa.array(valid))
