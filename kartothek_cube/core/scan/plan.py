"""Scan planning for one table: the secondary indices to load, and the files that may match.

In order:

- arguments of the readers: tables, columns, categoricals
- planning; its last section loads indices
- two states: the older as the later sees it, and the files that differ
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from msgspec import Struct
from msgspec.structs import replace

from kartothek_cube.core.arguments import did_you_mean
from kartothek_cube.core.arrow.keys import BoolArray, IntArray, take_rows
from kartothek_cube.core.arrow.types import common_type, compatible
from kartothek_cube.core.expressions.predicates import (
    Clause,
    Mask,
    Predicates,
    accepts_null,
    by_column,
    check_constants,
    columns_of,
    matching_all,
)
from kartothek_cube.core.io.reader import FileRequest
from kartothek_cube.core.metadata.document import PartitionColumns
from kartothek_cube.core.metadata.index import SecondaryIndex, keep_labels, merge_indices
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.metadata.statistics import FileStatistics
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.snapshots.loader import built_indices, load_index, remember, with_indices
from kartothek_cube.core.snapshots.statistics import statistics_of_files
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.errors import InvalidInput, InvalidType, KeyNotFound, UnknownColumn

if TYPE_CHECKING:
    from kartothek_cube.core.snapshots.time_travel import AsOf

LabelFilter: TypeAlias = Callable[[str], bool]
"""Called with the label of a partition: whether to read it."""


class GroupArguments(Struct, frozen=True):
    """The arguments of a read in groups, before they are checked against a snapshot.

    Attributes
    ----------
    tables : collection of str, optional
        Tables to read; None for all.
    columns, categoricals : object
        Column names by table, or those of the only table, as the user gave them.
    predicates : Predicates, optional
        Only rows that satisfy them.
    label_filter : callable, optional
        Called with a label: whether its partition is read.
    dispatch_by : sequence, optional
        Columns whose values make groups; None for one group per partition.
    by_partition_keys : bool
        Whether to group by the partition keys instead of ``dispatch_by``.
    """

    tables: Collection[str] | None = None
    columns: Any = None
    categoricals: Any = None
    predicates: Predicates | None = None
    label_filter: LabelFilter | None = None
    dispatch_by: Sequence[Any] | None = None
    by_partition_keys: bool = False


def check_table(snapshot: Snapshot, table: object) -> pa.Schema:
    """The schema of a table.

    Raises
    ------
    KeyNotFound
        If the dataset has no such table.
    """
    if not isinstance(table, str) or table not in snapshot.schemas:
        raise KeyNotFound(f"Dataset {snapshot.uuid!r} has no table {table!r}, only {list(snapshot.tables)}.")
    return snapshot.schemas[table]


def names_of(value: object, table: object, argument: str) -> list[str] | None:
    """The column names in an argument of `read_table`: a list, or a dict with a list for the table.

    None stays None.

    Raises
    ------
    InvalidType
        If the table is no text, or the columns are neither list nor dict.
    InvalidInput
        If the dict is for other tables.
    """
    if not isinstance(table, str):
        raise InvalidType(f"Argument `table` needs to be a string, got {type(table).__name__}.")
    if isinstance(value, Mapping):
        if table not in value:
            raise InvalidInput(
                f"Provided table {table!r} is not compatible with input from argument {argument}, "
                f"which is for the tables {sorted(value)}."
            )
        value = value[table]
    return _names(value, argument)


def _names(value: object, argument: str) -> list[str] | None:
    if value is None:
        return None
    if not isinstance(value, list):
        raise InvalidType(
            f"Unknown type encountered for argument {argument}: "
            f"give a list of column names, not {type(value).__name__}."
        )
    return [str(name) for name in value]


def names_by_table(value: object, snapshot: Snapshot, argument: str) -> dict[str, list[str]]:
    """The argument of a reader of several tables: a dict of tables and lists of column names.

    A list is for the only table of the dataset.

    Raises
    ------
    InvalidInput
        If it is neither, a list for several tables, or has tables that the dataset lacks.
    """
    if value is None:
        return {}
    only = snapshot.tables[0] if len(snapshot.tables) == 1 else None
    given = {only: value} if only is not None and isinstance(value, list) else value
    by_table = given if isinstance(given, Mapping) else None
    unknown = value if by_table is None else sorted(map(str, set(by_table) - set(snapshot.schemas)))
    if by_table is None or unknown:
        right = (
            "a dict of tables and lists of columns" if only is None else f"a list of columns, or {{{only!r}: a list}}"
        )
        raise InvalidInput(
            f"You are trying to read columns from invalid table(s): {argument}={unknown!r}. "
            f"Give {right}; dataset {snapshot.uuid!r} has the tables {list(snapshot.tables)}."
        )
    return {table: names for table, named in by_table.items() if (names := _names(named, argument)) is not None}


def checked_columns(names: Sequence[str] | None, schema: pa.Schema, uuid: str) -> tuple[str, ...]:
    """The columns to return: ``names``, or all columns if it is None.

    Raises
    ------
    UnknownColumn
        If the dataset lacks one.
    InvalidInput
        If a column is named twice.
    """
    columns = tuple(schema.names) if names is None else tuple(names)
    unknown = sorted(set(columns) - set(schema.names))
    if unknown:
        raise UnknownColumn(
            f"Columns cannot be found in stored dataframe: {', '.join(unknown)} in dataset {uuid!r}, "
            f"which has {schema.names}.{did_you_mean(unknown, schema.names)}"
        )
    if len(set(columns)) != len(columns):
        raise InvalidInput(f"A column is asked for twice in dataset {uuid!r}: {list(columns)}.")
    return columns


def checked_categoricals(
    names: Sequence[str] | None, columns: Sequence[str], schema: pa.Schema, uuid: str
) -> tuple[str, ...]:
    """The columns to return as categoricals.

    Raises
    ------
    UnknownColumn
        If one is not among the columns to return.
    InvalidInput
        If a column holds lists or structs.
    """
    categoricals = tuple(dict.fromkeys(names or ()))
    unknown = sorted(set(categoricals) - set(columns))
    if unknown:
        raise UnknownColumn(
            f"Columns to return as categoricals that are not among those to return of dataset {uuid!r}: {unknown}. "
            f"There are {list(columns)}."
        )
    nested = [c for c in categoricals if pt.is_nested(schema.field(c).type)]
    if nested:
        raise InvalidInput(f"Columns of lists cannot be categoricals: {nested} of dataset {uuid!r}.")
    return categoricals


def checked_label_filter(label_filter: object) -> LabelFilter | None:
    """The argument ``label_filter``, which is called with labels.

    Raises
    ------
    InvalidType
        If it cannot be called.
    """
    if label_filter is not None and not callable(label_filter):
        raise InvalidType(
            "label_filter is called with each label and says whether to read it; "
            f"{type(label_filter).__name__} cannot be called."
        )
    return label_filter


# --- planning -------------------------------------------------------------------------------------


KeepIndices: TypeAlias = Callable[[Snapshot], object]
"""Takes a snapshot with more indices loaded, to keep them as long as the caller likes."""

# A larger index (in value-label pairs) is not kept in memory between reads.
_KEPT_PAIRS = 1_000_000


class ScanTask(Struct, frozen=True):
    """One file to read, with its partition values."""

    key: str
    constants: Mapping[str, Any]


class ScanStep(Struct, frozen=True):
    """One step of pruning: the number of files before and after it.

    ``column`` is the secondary index that was used; None stands for the partition values.
    ``statistics`` are the columns whose statistics were used instead.
    """

    column: str | None
    before: int
    after: int
    statistics: tuple[str, ...] = ()


class FilePlan(Struct, frozen=True):
    """The files of one table that a read touches, in the order of the document."""

    request: FileRequest
    files: pa.Array
    values: pa.Table
    total: int
    steps: tuple[ScanStep, ...] = ()

    def __len__(self) -> int:
        return len(self.files)

    def tasks(self) -> list[ScanTask]:
        """One task for each file."""
        rows = self.values.to_pylist() if self.values.num_columns else [{}] * len(self.files)
        return [ScanTask(key, constants) for key, constants in zip(self.files.to_pylist(), rows, strict=True)]

    def take(self, positions: IntArray) -> FilePlan:
        """The plan with only the files at these positions, in this order."""
        return replace(self, files=self.files.take(pa.array(positions)), values=take_rows(self.values, positions))


# --- pruning: pure --------------------------------------------------------------------------------


def check_predicate_columns(predicates: Predicates | None, schema: pa.Schema, dataset: str) -> None:
    """Raise for unknown columns, and for constants that do not fit the column's type.

    Raises
    ------
    UnknownColumn
        If a column is not in the schema; the message lists the columns and close names.
    InvalidType
        If a constant does not fit the type of its column.
    """
    unknown = sorted(columns_of(predicates) - set(schema.names))
    if unknown:
        raise UnknownColumn(
            f"The predicates name columns that dataset {dataset!r} does not have: {', '.join(unknown)}. "
            f"It has {schema.names}.{did_you_mean(unknown, schema.names)}"
        )
    check_constants(chain.from_iterable(predicates or ()), schema, f" of dataset {dataset!r}")


def rejects_null(clause: Clause) -> bool:
    """Whether a null never satisfies the comparison."""
    return not accepts_null(clause)


def indexed_clauses(conjunction: Sequence[Clause], columns: frozenset[str]) -> dict[str, list[Clause]]:
    """The clauses that an index on one of these columns can answer, by column."""
    candidates = by_column(clause for clause in conjunction if clause.column in columns)
    # Indices do not list nulls: one can exclude a file only if the clauses reject null.
    return {column: clauses for column, clauses in candidates.items() if any(map(rejects_null, clauses))}


def needed_indices(
    snapshot: Snapshot, predicates: Predicates | None, also: Collection[str] = (), *, pruning: bool = True
) -> dict[str, Sequence[Clause]]:
    """The secondary indices to read: ``also``, and with ``pruning`` those that can exclude files.

    The clauses of each index limit which of its rows are read. Several conjunctions set no limit.
    """
    conjunctions = predicates or ()
    excluding = (c for conjunction in conjunctions for c in indexed_clauses(conjunction, snapshot.pruning_columns))
    clauses = by_column(conjunctions[0]) if len(conjunctions) == 1 else {}
    return {c: clauses.get(c, ()) for c in sorted({*(excluding if pruning else ()), *also})}


def partition_mask(snapshot: Snapshot, conjunction: Sequence[Clause]) -> Mask:
    """One boolean per label: whether its partition values satisfy the clauses on partition keys."""
    mask = np.ones(len(snapshot.partitions), dtype=bool)
    for column, clauses in by_column(conjunction).items():
        if column in snapshot.partition_keys:
            mask &= matching_all(snapshot.values.column(column), clauses)
    return mask


def index_mask(index: SecondaryIndex, clauses: Sequence[Clause], partitions: PartitionColumns) -> Mask:
    """One boolean per label: whether the index lists a value of it that satisfies the clauses."""
    mask = np.zeros(len(partitions) + 1, dtype=bool)  # the last place takes labels unknown to the document (-1)
    mask[partitions.places(index.select(clauses).labels)] = True
    return mask[:-1]


def labels_by_key(snapshot: Snapshot, conjunction: Sequence[Clause]) -> dict[str, IntArray]:
    """For each partition key with clauses: the ascending positions of the labels that match."""
    clauses = by_column(conjunction)
    return {c: snapshot.labels_with(c, clauses[c]) for c in clauses if c in snapshot.partition_keys}


def conjunction_masks(
    snapshot: Snapshot, predicates: Predicates | None, indices: Mapping[str, SecondaryIndex], candidates: Mask
) -> tuple[list[Mask], tuple[ScanStep, ...]]:
    """For each conjunction: which of the candidate labels may hold matching rows; and the steps.

    Without predicates there is one conjunction, which everything satisfies.
    """
    conjunctions: Predicates = ((),) if predicates is None else predicates
    counts = [int(candidates.sum())]
    masks = [candidates & partition_mask(snapshot, conjunction) for conjunction in conjunctions]
    counts.append(_count(masks))
    # By name, so that the steps in an explained plan do not vary.
    for column in sorted(indices):
        for i, conjunction in enumerate(conjunctions):
            clauses = indexed_clauses(conjunction, frozenset([column])).get(column)
            if clauses:
                masks[i] = masks[i] & index_mask(indices[column], clauses, snapshot.partitions)
        counts.append(_count(masks))
    return masks, tuple(ScanStep(*step) for step in zip([None, *sorted(indices)], counts, counts[1:], strict=False))


def _count(masks: Sequence[Mask]) -> int:
    return int(np.logical_or.reduce(masks).sum())


def plan_scan(
    snapshot: Snapshot,
    table: str,
    columns: Sequence[str],
    predicates: Predicates | None,
    indices: Mapping[str, SecondaryIndex],
) -> FilePlan:
    """The files that may hold matching rows; ``indices`` are those of `needed_indices`."""
    schema = snapshot.schemas[table]
    check_predicate_columns(predicates, schema, snapshot.uuid)
    files = snapshot.partitions.files.get(table, pa.nulls(len(snapshot.partitions), pa.string()))
    masks, steps = conjunction_masks(snapshot, predicates, indices, files.is_valid().to_numpy(zero_copy_only=False))
    positions = np.flatnonzero(np.logical_or.reduce(masks))
    request = FileRequest(snapshot.uuid, schema, tuple(columns), predicates)
    values = take_rows(snapshot.values, positions)
    return FilePlan(request, files.take(pa.array(positions)), values, len(snapshot.partitions), steps)


def prune_by_statistics(plan: FilePlan, statistics: FileStatistics) -> FilePlan:
    """The plan without files that cannot hold matching rows; ``statistics`` has a row for each."""
    if plan.request.predicates is None or not statistics.columns:
        return plan
    positions = np.flatnonzero(statistics.matching(plan.request.predicates, plan.request.schema))
    step = ScanStep(None, len(plan), len(positions), tuple(sorted(statistics.columns)))
    return replace(plan.take(positions), steps=(*plan.steps, step))


def labels_of(plan: FilePlan, snapshot: Snapshot, table: str) -> list[str]:
    """The labels of the planned files."""
    files = snapshot.partitions.files.get(table, pa.array([], type=pa.string()))
    labels: list[str] = snapshot.partitions.labels.take(pc.index_in(plan.files, value_set=files)).to_pylist()
    return labels


# --- indices are loaded ---------------------------------------------------------------------------


def make_file_plan(
    store: Store,
    snapshot: Snapshot,
    table: str,
    names: Sequence[str] | None,
    predicates: Predicates | None,
    label_filter: LabelFilter | None = None,
    *,
    keep: KeepIndices | None = None,
) -> FilePlan:
    """Check columns and predicates against the snapshot, load the indices that help, and plan."""
    schema = check_table(snapshot, table)
    columns = checked_columns(names, schema, snapshot.uuid)
    # Before any index is read, so that a wrong predicate costs no store call.
    check_predicate_columns(predicates, schema, snapshot.uuid)
    plan = plan_scan(snapshot, table, columns, predicates, indices_for(store, snapshot, predicates, keep=keep))
    # Reading statistics costs as much as reading the single file they might prune.
    if len(plan) > 1 and (asked := snapshot.columns_with_statistics(columns_of(predicates))):
        plan = prune_by_statistics(plan, statistics_of_files(store, snapshot, plan.files, asked))
    if label_filter is None:
        return plan
    selected = np.array([bool(label_filter(label)) for label in labels_of(plan, snapshot, table)], dtype=bool)
    return plan.take(np.flatnonzero(selected))


def indices_for(
    store: Store,
    snapshot: Snapshot,
    predicates: Predicates | None,
    also: Collection[str] = (),
    *,
    keep: KeepIndices | None = None,
) -> dict[str, SecondaryIndex]:
    """The indices of `needed_indices` for one dataset, loaded.

    With ``keep`` they are read whole, and ``keep`` gets the snapshot with all of them instead of
    the cache.
    """
    needed = needed_indices(snapshot, predicates, also)
    if keep is None:
        return load_indices(store, [(snapshot, needed)])[0]
    loaded = map_in_threads(lambda column: load_index(store, snapshot, column)[0], list(needed), store=store)
    indices = dict(zip(needed, loaded, strict=True))
    if indices.keys() - snapshot.indices.keys():
        keep(snapshot.with_indices(indices))
    return indices


def load_indices(
    store: Store, needed: Sequence[tuple[Snapshot, Mapping[str, Sequence[Clause]]]]
) -> list[dict[str, SecondaryIndex]]:
    """Secondary indices of several datasets, read in parallel; one dictionary per dataset.

    Only the row groups of an index file are read in which values may satisfy the clauses. Small
    indices that were read whole stay with the cached snapshot for the next call.
    """
    reads = [(snapshot, column, clauses) for snapshot, columns in needed for column, clauses in columns.items()]
    loaded = iter(list(map_in_threads(lambda read: load_index(store, *read), reads, store=store)))
    indices = []
    for snapshot, columns in needed:
        of_dataset = {column: next(loaded) for column in columns}
        small = {c: index for c, (index, is_whole) in of_dataset.items() if is_whole and len(index) <= _KEPT_PAIRS}
        if small.keys() - snapshot.indices.keys():
            remember(store, snapshot.with_indices(small))
        indices.append({column: index for column, (index, _) in of_dataset.items()})
    return indices


# --- two states -----------------------------------------------------------------------------------


def check_since(since: object) -> AsOf:
    """The argument ``since``: the id of a commit, or a moment with its zone.

    Raises
    ------
    InvalidType
        If it is neither.
    """
    from kartothek_cube.core.snapshots.time_travel import check_as_of

    checked = check_as_of(since, "since")
    if checked is None:
        raise InvalidType("since is the id of a commit or a tag (text), or a moment (datetime), not None.")
    return checked


def check_change_type(columns: Collection[str], context: str) -> None:
    """Raise if rows have a column of the name that tells the kind of a change."""
    from kartothek_cube.core.arrow.difference import CHANGE_TYPE

    if CHANGE_TYPE in columns:
        raise InvalidInput(f"{context} has a column {CHANGE_TYPE!r}, which is the name of the kind of a change.")


def shared_partition_keys(before: Snapshot, after: Snapshot, table: str, key: Collection[str]) -> list[str]:
    """The partition keys, without those of ``key``, whose values can be compared in both states."""
    was, now = before.schemas.get(table, pa.schema([])), after.schemas[table]
    types = {f.name: f.type for f in was}
    keys = [c for c in after.partition_keys if c not in key]
    return [c for c in keys if compatible(types.get(c, pa.null()), now.field(c).type)]


def check_same_types(was: pa.Schema, now: pa.Schema, columns: Iterable[str], uuid: str) -> None:
    """Raise `InvalidInput` for a column that had a type of another family before."""
    for column in columns:
        if {column} <= {*was.names} & {*now.names} and not compatible(was.field(column).type, now.field(column).type):
            raise InvalidInput(
                f"Column {column!r} of dataset {uuid!r} was {was.field(column).type} then and is "
                f"{now.field(column).type} now, so their values cannot be compared. Leave the column out."
            )


def widened(now: pa.Schema, was: Mapping[str, pa.DataType]) -> pa.Schema:
    """The columns with types that also hold the values that they had before, as far as any does.

    An overwrite may have narrowed a type.
    """
    types = {f.name: common_type(f.type, was.get(f.name, pa.null())) or f.type for f in now}
    return pa.schema(types)


# --- the older state as the later one sees it -----------------------------------------------------


def with_columns_of(before: Snapshot, schemas: Mapping[str, pa.Schema], indexed: Collection[str]) -> Snapshot:
    """An older state with other columns: those that it lacks are null.

    Of the columns ``indexed``, indices that it lacks are built where they are required.
    """
    new = dict.fromkeys({*indexed} - before.indexed_columns, "")
    document = replace(before.document, indices={**before.document.indices, **new})
    # Without a version, so that it is never cached.
    return replace(before, document=document, schemas=schemas, lost=before.lost | new.keys(), token=None)


def without_files(snapshot: Snapshot) -> Snapshot:
    """The same dataset before it had any rows."""
    nothing = snapshot.partitions.take([])
    return replace(
        snapshot,
        partitions=nothing,
        values=snapshot.values.slice(0, 0),
        document=replace(snapshot.document, partitions=nothing),
        indices={},
        lost=snapshot.secondary_columns,
        token=None,
    )


def with_past_indices(store: Store, before: Snapshot, after: Snapshot, columns: Collection[str]) -> Snapshot:
    """The older state with some indices loaded, of which it has no file any more.

    Only its files that the later state lacks are read.
    """
    lost = sorted({*columns} & before.lost & after.secondary_columns - before.indices.keys())
    if not lost:
        return before
    later = with_indices(store, after, lost)
    gone = is_new(before, after)
    partitions = before.partitions.take(np.flatnonzero(gone))
    built = built_indices(store, replace(before, partitions=partitions), lost)
    kept = before.partitions.labels.filter(pa.array(~gone))
    return before.with_indices({c: merge_indices([built[c], keep_labels(later.indices[c], kept)]) for c in lost})


def is_new(snapshot: Snapshot, other: Snapshot) -> BoolArray:
    """For each partition whether another state lacks it, or has other files under its label."""
    places = other.partitions.positions(snapshot.partitions.labels)
    new: BoolArray = places < 0
    positions = pa.array(places, mask=new)
    for table in {*snapshot.partitions.files, *other.partitions.files}:
        mine, theirs = snapshot.partitions.file_column(table), other.partitions.file_column(table).take(positions)
        same = pc.or_(pc.fill_null(pc.equal(mine, theirs), False), pc.and_(mine.is_null(), theirs.is_null()))
        new = new | ~same.to_numpy(zero_copy_only=False)
    return new


# --- the files of one table -----------------------------------------------------------------------


def changed_files(
    store: Store, snapshot: Snapshot, other: Snapshot, table: str, names: Sequence[str], predicates: Predicates | None
) -> FilePlan:
    """The files to read of a state that another state does not have."""
    new, _ = unshared(snapshot.partitions.file_column(table), other.partitions.file_column(table))
    positions = np.flatnonzero(new)
    some = replace(
        snapshot, partitions=snapshot.partitions.take(positions), values=take_rows(snapshot.values, positions)
    )
    # The indices are those of all files, so that the cache may keep them.
    indices = indices_for(store, snapshot, predicates) if len(positions) else {}
    return plan_scan(some, table, names, predicates, indices)


def unshared(texts: pa.Array, others: pa.Array) -> tuple[BoolArray, BoolArray]:
    """For each text of two columns whether the other column lacks it.

    Examples
    --------
    >>> unshared(pa.array(["a", "b"]), pa.array(["a", "c", "d"]))
    (array([False,  True]), array([False,  True,  True]))
    """
    both = min(len(texts), len(others))
    same = pc.fill_null(pc.equal(texts.slice(0, both), others.slice(0, both)), False)
    # Most commits add at the end: equal beginnings need no hash table, which takes much longer.
    begin = pc.index(same, False).as_py()
    begin = both if begin < 0 else begin
    places = pc.index_in(texts.slice(begin), value_set=others.slice(begin))
    mine, theirs = np.zeros(len(texts), dtype=bool), np.arange(len(others)) >= begin
    mine[begin:] = places.is_null().to_numpy(zero_copy_only=False)
    theirs[begin + places.drop_null().to_numpy()] = False
    return mine, theirs
