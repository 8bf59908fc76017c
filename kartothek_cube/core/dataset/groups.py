"""Planning a read of several tables in groups: what is read of each, and which partitions make up each group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from kartothek_cube.core.dataset.plan import KeepIndices, indices_for
from kartothek_cube.core.dataset.requests import GroupArguments, LabelFilter, checked_categoricals, checked_columns, names_by_table
from kartothek_cube.core.evaluate import Mask, matching_all
from kartothek_cube.core.files import FileRequest
from kartothek_cube.core.index import SecondaryIndex
from kartothek_cube.core.metadata.partitions import PartitionColumns
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.predicates import Clause, Predicates, by_column
from kartothek_cube.core.rowkeys import IntArray, empty_rows, expand_ranges, group_starts, pack_one, take_rows
from kartothek_cube.core.scan import ScanTask, check_predicate_columns, conjunction_masks
from kartothek_cube.core.store import Store
from kartothek_cube.errors import InvalidRequest, UnknownColumn

__all__ = ["GroupPlan", "Groups", "TableRead", "check_dispatch", "group_partitions", "make_group_plan", "partition_by_partition"]


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Partitions that are loaded together.

    Attributes
    ----------
    keys : pyarrow.Table
        One row a group: its values of the dispatch columns; groups ascend by them. Without columns where nothing is dispatched.
    positions, offsets : numpy.ndarray
        Group *i* has the partitions ``positions[offsets[i]:offsets[i + 1]]`` of the document, in its order.
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
        """Values of the dispatch columns of a group."""
        return dict(self.keys.slice(i, 1).to_pylist()[0]) if self.keys.num_columns else {}

    def amplification(self) -> float:
        """In how many groups a partition is, on average."""
        return len(self.positions) / max(1, len(np.unique(self.positions)))


@dataclass(frozen=True, slots=True)
class TableRead:
    """What is read of one table."""

    table: str
    request: FileRequest
    categoricals: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class GroupPlan:
    """What is read of each table, and which partitions make up each entry."""

    reads: tuple[TableRead, ...]
    groups: Groups
    files: Mapping[str, pa.Array]
    values: pa.Table

    @property
    def dispatch_columns(self) -> list[str]:
        """Columns by whose values the partitions are grouped."""
        return list(self.groups.keys.column_names)

    def tasks(self, read: TableRead, positions: IntArray) -> list[ScanTask]:
        """The files of a table in these partitions, in order; a partition may have none."""
        files = self.files.get(read.table)
        if files is None:
            return []
        rows = take_rows(self.values, positions).to_pylist() if self.values.num_columns else [{}] * len(positions)
        keys = files.take(pa.array(positions)).to_pylist()
        # Values win over columns of the same name, but only those that the table has are asked for.
        own = [{c: v for c, v in row.items() if c in read.request.schema.names} for row in rows]
        return [ScanTask(key, constants) for key, constants in zip(keys, own, strict=True) if key is not None]

    def request(self, read: TableRead, i: int) -> FileRequest:
        """What the files of entry ``i`` are asked for: only rows of its group."""
        key = {c: v for c, v in self.groups.key(i).items() if c not in self.values.column_names}
        group = tuple(Clause(c, "==", v) for c, v in key.items())
        asked: Predicates = ((),) if read.request.predicates is None else read.request.predicates
        return replace(read.request, predicates=tuple((*conjunction, *group) for conjunction in asked)) if group else read.request


def make_group_plan(store: Store, snapshot: Snapshot, arguments: GroupArguments, *, keep: KeepIndices | None = None) -> GroupPlan:
    """Check the arguments against the snapshot, load the indices that are needed, and plan. No data file is read."""
    by = snapshot.partition_keys if arguments.by_partition_keys else arguments.dispatch_by
    dispatch = None if by is None else check_dispatch(by, snapshot)
    columns = names_by_table(arguments.columns, snapshot, "columns")
    categories = names_by_table(arguments.categoricals, snapshot, "categoricals")
    chosen = [table for table in snapshot.tables if arguments.tables is None or table in arguments.tables]
    reads = tuple(_table_read(snapshot, t, columns.get(t), categories.get(t), arguments.predicates) for t in chosen)
    for read in reads:
        missing = [c for c in dispatch or () if c not in read.request.schema.names and c not in snapshot.partition_keys]
        if missing:
            raise UnknownColumn(f"Table {read.table!r} of dataset {snapshot.uuid!r} lacks {missing}: its rows are in no group. Leave it out by `tables`.")
    indices = indices_for(store, snapshot, arguments.predicates, snapshot.secondary_columns & set(dispatch or ()), keep=keep)
    groups = _groups(snapshot, arguments.predicates, dispatch, arguments.label_filter, indices)
    return GroupPlan(reads, groups, snapshot.partitions.files, snapshot.values)


def _table_read(snapshot: Snapshot, table: str, names: list[str] | None, categories: list[str] | None, predicates: Predicates | None) -> TableRead:
    schema = snapshot.schemas[table]
    columns = checked_columns(names, schema, snapshot.uuid)
    check_predicate_columns(predicates, schema, f"{snapshot.uuid}, table {table}" if len(snapshot.tables) > 1 else snapshot.uuid)
    return TableRead(table, FileRequest(snapshot.uuid, schema, columns, predicates), checked_categoricals(categories, columns, schema, snapshot.uuid))


def _groups(
    snapshot: Snapshot,
    predicates: Predicates | None,
    dispatch: Sequence[str] | None,
    label_filter: LabelFilter | None,
    indices: Mapping[str, SecondaryIndex],
) -> Groups:
    masks, _ = conjunction_masks(snapshot, predicates, indices, np.ones(len(snapshot.partitions), dtype=bool))
    if label_filter is not None:
        wanted = np.zeros(len(snapshot.partitions), dtype=bool)
        positions = np.flatnonzero(np.logical_or.reduce(masks))
        labels = snapshot.partitions.labels.take(pa.array(positions)).to_pylist()
        wanted[positions] = [bool(label_filter(label)) for label in labels]
        masks = [mask & wanted for mask in masks]
    if dispatch is None:
        return partition_by_partition(np.logical_or.reduce(masks))
    return group_partitions(snapshot, dispatch, masks, predicates, indices)


def check_dispatch(columns: Iterable[str], snapshot: Snapshot) -> tuple[str, ...]:
    """The dispatch columns, each once.

    Raises
    ------
    InvalidRequest
        If one of them has no index.
    """
    chosen = tuple(dict.fromkeys(str(c) for c in columns))
    missing = [c for c in chosen if c not in snapshot.indexed_columns]
    if missing:
        indexed = sorted(snapshot.indexed_columns)
        raise InvalidRequest(f"Dispatch columns must be indexed. Dataset {snapshot.uuid!r} has no index on {missing}, only on {indexed}.")
    return chosen


def partition_by_partition(wanted: Mask) -> Groups:
    """Every partition that is wanted alone, in the order of the document."""
    positions = np.flatnonzero(wanted)
    return Groups(empty_rows(len(positions)), positions, np.arange(len(positions) + 1))


def group_partitions(
    snapshot: Snapshot, by: Sequence[str], masks: Sequence[Mask], predicates: Predicates | None, indices: Mapping[str, SecondaryIndex]
) -> Groups:
    """One group for each combination of values that some wanted partition holds and that the predicates leave possible.

    ``masks`` say for each conjunction which partitions it leaves; ``indices`` has those on ``by``. A partition that has no
    value in some column, as it is null throughout there, is in no group. Without any column there is one group, even
    without partitions: grouped by nothing, everything is one.
    """
    wanted = np.flatnonzero(np.logical_or.reduce(masks))
    if not by:
        return Groups(empty_rows(1), wanted, np.array([0, len(wanted)]))
    rows, values = wanted, empty_rows(len(wanted))
    for column in by:
        rows, values = _with_values(snapshot, column, rows, values, indices)
    possible = _possible(rows, values, masks, predicates)
    return _grouped(rows[possible], values.filter(pa.array(possible)))


def _with_values(snapshot: Snapshot, column: str, rows: IntArray, values: pa.Table, indices: Mapping[str, SecondaryIndex]) -> tuple[IntArray, pa.Table]:
    """Every row once for each value that its partition holds of one more column."""
    if column in snapshot.partition_keys:
        held: pa.Array | pa.ChunkedArray = snapshot.values.column(column).take(pa.array(rows))
    else:
        rows, values, held = _indexed_values(indices[column], snapshot.partitions, rows, values)
    known = ~pc.is_null(held, nan_is_null=pt.is_floating(held.type)).to_numpy(zero_copy_only=False)
    return rows[known], values.append_column(column, held).filter(pa.array(known))


def _indexed_values(index: SecondaryIndex, partitions: PartitionColumns, rows: IntArray, values: pa.Table) -> tuple[IntArray, pa.Table, pa.Array]:
    positions = partitions.places(index.labels)
    order = np.argsort(positions, kind="stable")
    first, last = (np.searchsorted(positions[order], rows, side=side) for side in ("left", "right"))
    repeated, found = expand_ranges(first, last - first)
    return rows[repeated], take_rows(values, repeated), index.values.take(pa.array(order[found]))


def _possible(rows: IntArray, values: pa.Table, masks: Sequence[Mask], predicates: Predicates | None) -> Mask:
    """Whether some conjunction leaves both the partition and the values."""
    result = np.zeros(len(rows), dtype=bool)
    conjunctions: Predicates = ((),) if predicates is None else predicates
    for mask, conjunction in zip(masks, conjunctions, strict=True):
        possible = mask[rows]
        for column, clauses in by_column(c for c in conjunction if c.column in values.column_names).items():
            possible &= matching_all(values.column(column), clauses)
        result |= possible
    return result


def _grouped(rows: IntArray, values: pa.Table) -> Groups:
    keys = pack_one(values, values.column_names)
    order = np.lexsort((rows, keys))
    keys, rows = keys[order], rows[order]
    # A foreign index may name a label twice for one value.
    fresh = np.ones(len(rows), dtype=bool)
    fresh[1:] = (keys[1:] != keys[:-1]) | (rows[1:] != rows[:-1])
    keys, rows, order = keys[fresh], rows[fresh], order[fresh]
    starts = group_starts(keys)
    return Groups(values.take(pa.array(order[starts])), rows, np.append(starts, len(rows)))
