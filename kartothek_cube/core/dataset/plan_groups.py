"""Planning a read of several tables: what is read of each, and which partitions make up each entry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from kartothek_cube.core.dataset.arguments import DatasetRef, as_list, check_flag
from kartothek_cube.core.dataset.dispatch import Groups, check_dispatch, group_key, group_partitions, partition_by_partition
from kartothek_cube.core.dataset.plan import indices_for
from kartothek_cube.core.dataset.requests import LabelFilter, checked_categoricals, checked_columns, checked_label_filter, names_by_table
from kartothek_cube.core.evaluate import Mask
from kartothek_cube.core.files import FileRequest
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.predicates import Clause, Predicates, parse_predicates
from kartothek_cube.core.rowkeys import IntArray, take_rows
from kartothek_cube.core.scan import ScanTask, check_predicate_columns, conjunction_masks
from kartothek_cube.core.store import Store
from kartothek_cube.errors import InvalidInput, UnknownColumn

__all__ = ["GroupPlan", "TableRead", "make_group_plan"]


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
    dates_as_object: bool
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
        key = {c: v for c, v in group_key(self.groups, i).items() if c not in self.values.column_names}
        group = tuple(Clause(c, "==", v) for c, v in key.items())
        asked: Predicates = ((),) if read.request.predicates is None else read.request.predicates
        return replace(read.request, predicates=tuple((*conjunction, *group) for conjunction in asked)) if group else read.request


def make_group_plan(
    source: DatasetRef,
    tables: Any,
    columns: Any,
    categoricals: Any,
    label_filter: Any,
    dates_as_object: bool,
    predicates: Any,
    dispatch_by: Any,
    by_partition_keys: bool,
) -> tuple[Store, GroupPlan]:
    """Check all arguments against the dataset's snapshot, load the indices that are needed, and plan. No data file is read."""
    as_objects = check_flag(dates_as_object, "dates_as_object")
    if check_flag(by_partition_keys, "concat_partitions_on_primary_index") and dispatch_by is not None:
        raise InvalidInput("Both `dispatch_by` and `concat_partitions_on_primary_index` are provided; the latter means dispatch by the partition keys.")
    asked, wanted = parse_predicates(predicates), checked_label_filter(label_filter)
    by = None if dispatch_by is None else as_list(dispatch_by, "dispatch_by")
    snapshot = source.snapshot()
    by = list(snapshot.partition_keys) if by_partition_keys else by
    dispatch = None if by is None else check_dispatch(by, snapshot)
    reads = _reads(snapshot, tables, columns, categoricals, asked)
    _check_tables(reads, dispatch or (), snapshot)
    groups = _groups(source, snapshot, asked, dispatch, wanted)
    return source.store, GroupPlan(reads, groups, as_objects, snapshot.partitions.files, snapshot.values)


def _reads(snapshot: Snapshot, tables: Any, columns: Any, categoricals: Any, predicates: Predicates | None) -> tuple[TableRead, ...]:
    names = None if tables is None else {str(table) for table in as_list(tables, "tables")}
    by_table, categories = names_by_table(columns, snapshot, "columns"), names_by_table(categoricals, snapshot, "categoricals")
    chosen = [table for table in snapshot.tables if names is None or table in names]
    return tuple(_table_read(snapshot, table, by_table.get(table), categories.get(table), predicates) for table in chosen)


def _table_read(snapshot: Snapshot, table: str, names: list[str] | None, categories: list[str] | None, predicates: Predicates | None) -> TableRead:
    schema = snapshot.schemas[table]
    columns = checked_columns(names, schema, snapshot.uuid)
    check_predicate_columns(predicates, schema, f"{snapshot.uuid}, table {table}" if len(snapshot.tables) > 1 else snapshot.uuid)
    return TableRead(table, FileRequest(snapshot.uuid, schema, columns, predicates), checked_categoricals(categories, columns, schema, snapshot.uuid))


def _check_tables(reads: Sequence[TableRead], dispatch: Sequence[str], snapshot: Snapshot) -> None:
    for read in reads:
        missing = [c for c in dispatch if c not in read.request.schema.names and c not in snapshot.partition_keys]
        if missing:
            raise UnknownColumn(f"Table {read.table!r} of dataset {snapshot.uuid!r} lacks {missing}: its rows are in no group. Leave it out by `tables`.")


def _groups(source: DatasetRef, snapshot: Snapshot, predicates: Predicates | None, dispatch: Sequence[str] | None, label_filter: LabelFilter | None) -> Groups:
    indices = indices_for(source, snapshot, predicates, snapshot.secondary_columns & set(dispatch or ()))
    masks, _ = conjunction_masks(snapshot, predicates, indices, np.ones(len(snapshot.partitions), dtype=bool))
    if label_filter is not None:
        chosen = _chosen(snapshot, np.logical_or.reduce(masks), label_filter)
        masks = [mask & chosen for mask in masks]
    if dispatch is None:
        return partition_by_partition(np.logical_or.reduce(masks))
    return group_partitions(snapshot, dispatch, masks, predicates, indices)


def _chosen(snapshot: Snapshot, mask: Mask, label_filter: LabelFilter) -> Mask:
    chosen = np.zeros(len(mask), dtype=bool)
    positions = np.flatnonzero(mask)
    labels = snapshot.partitions.labels.take(pa.array(positions)).to_pylist()
    chosen[positions] = [bool(label_filter(label)) for label in labels]
    return chosen
