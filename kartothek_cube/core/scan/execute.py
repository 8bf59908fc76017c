"""Execution of scans: files are read in threads, results come in plan order, as one or by group.

In order:

- reads in groups
- reads
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from itertools import chain, groupby
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from msgspec import Struct
from msgspec.structs import replace

from kartothek_cube.core.arguments import pluralize
from kartothek_cube.core.arrow.keys import (
    AMPLIFICATION_LIMIT,
    IntArray,
    Spill,
    empty_rows,
    expand_ranges,
    group_starts,
    pack_one,
    split_groups,
    take_rows,
)
from kartothek_cube.core.arrow.pandas import concat_encoded, encoded
from kartothek_cube.core.display import Step, StepRow
from kartothek_cube.core.expressions.predicates import Clause, Mask, Predicates, by_column, matching_all
from kartothek_cube.core.io.reader import (
    FileRequest,
    TooLarge,
    files_at_once,
    is_small_file,
    open_rows,
    pages_to_decode,
    read_rows,
    read_together,
    repeated,
    resolved_predicates,
)
from kartothek_cube.core.metadata.index import SecondaryIndex
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.runtime.executor import READ_FILES, SizeEstimate, map_batches, map_in_threads, thread_count
from kartothek_cube.core.runtime.options import Phase, current_options
from kartothek_cube.core.scan.plan import (
    FilePlan,
    GroupArguments,
    KeepIndices,
    ScanTask,
    check_predicate_columns,
    checked_categoricals,
    checked_columns,
    conjunction_masks,
    indices_for,
    names_by_table,
)
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.errors import InvalidRequest, UnknownColumn


class Groups(Struct, frozen=True, eq=False):
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


class TableRead(Struct, frozen=True):
    """What is read of one table."""

    table: str
    request: FileRequest
    categoricals: tuple[str, ...]


class GroupPlan(Struct, frozen=True, eq=False):
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


# --- reads ----------------------------------------------------------------------------------------


T = TypeVar("T")

Convert: TypeAlias = Callable[[dict[str, pa.Table]], T]
"""Makes the result of a group from its tables, in the thread that has loaded them."""

NumberedRows: TypeAlias = Generator[list[tuple[int, pa.Table]], None, None]
"""One item per piece of a file: its rows, by the number of their group."""

GroupRows: TypeAlias = tuple[int, dict[str, list[pa.Table]]]
"""The number of a group, and its rows of each table that has some."""

# Smaller pieces of a file would cost more time than they save memory.
_LEAST_PIECE = 2**20

# Small files are read together: at most so many, of about so many bytes in memory.
_MOST_FILES, _BATCH_BYTES = 64, 4 * 2**20
# So few files are read before it pays to look at one of them.
_FEW = 4


# --- what a read will decode ----------------------------------------------------------------------


def pages_step(store: Store, reads: Iterable[tuple[str, Sequence[str], FileRequest]]) -> tuple[Step, ...]:
    """The pages of files that are decoded, of all; each read has a name, keys, and a request.

    Nothing if no file is read by pages. All footers are read.
    """
    rows = []
    for name, keys, request in reads:
        counts = map_in_threads(partial(pages_to_decode, store, request=request), keys, store=store)
        found = [count for count in counts if count is not None]
        if found:
            whole = len(keys) - len(found)
            note = f"{pluralize(sum(count.rows for count in found), 'row')} to decode"
            note += f"; {pluralize(whole, 'file')} by row groups" if whole else ""
            before, after = (sum(getattr(count, side) for count in found) for side in ("pages", "decoded"))
            rows.append(StepRow(name, before, after, note))
    return (Step("Pages", "pages", tuple(rows)),) if rows else ()


# --- one table ------------------------------------------------------------------------------------


def load_scan(store: Store, plan: FilePlan, categoricals: Sequence[str] = ()) -> pa.Table:
    """All files of a plan as one table."""
    request, tasks = plan.request, plan.tasks()
    if request.predicates is not None and not categoricals and (at_once := filtered_at_once(store, request, tasks)) > 1:
        return joined(list(stream_together(store, request, tasks, at_once)), request)
    return joined(load_tables(store, request, tasks, categoricals), request, categoricals)


def filtered_at_once(store: Store, request: FileRequest, tasks: Sequence[ScanTask]) -> int:
    """How many files are best filtered together: few rows of each, or small ones; 0 if unknown."""
    if not request.columns or len(tasks) <= _FEW:
        return 0
    first, same = tasks[0].key, replace(request, predicates=resolved_predicates(request, tasks[0].constants))
    # The work has to suffice for all threads.
    most = min(_MOST_FILES // 2, len(tasks) // (2 * thread_count(store)))
    return files_at_once(store, first, same) or (most if most > 1 and is_small_file(store, first, same) else 0)


def load_tables(
    store: Store, request: FileRequest, tasks: Sequence[ScanTask], categoricals: Sequence[str] = ()
) -> list[pa.Table]:
    """One table per file, in order; categoricals are encoded as soon as a file is read."""

    def load(task: ScanTask) -> pa.Table:
        return encoded(read_rows(store, task.key, request, task.constants), categoricals)

    return list(map_in_threads(load, tasks, store=store, phase=READ_FILES))


def joined(tables: Sequence[pa.Table], request: FileRequest, categoricals: Sequence[str] = ()) -> pa.Table:
    """The tables of one request as one table; no tables make an empty one of the same type."""
    if not request.columns:
        return empty_rows(sum(table.num_rows for table in tables))
    if not tables:
        tables = [encoded(pa.schema([request.schema.field(c) for c in request.columns]).empty_table(), categoricals)]
    return concat_encoded(tables, categoricals)


def stream_tables(store: Store, request: FileRequest, tasks: Sequence[ScanTask]) -> Generator[pa.Table, None, None]:
    """The rows of all files, as by `stream_pieces` without a conversion."""
    return stream_pieces(store, request, tasks, lambda table: table)


def stream_pieces(
    store: Store, request: FileRequest, tasks: Sequence[ScanTask], convert: Callable[[pa.Table], T]
) -> Generator[T, None, None]:
    """The rows of all files in order, in pieces that ``convert`` has turned into results.

    All pieces in flight take about ``bytes_in_flight``. The next files are opened in threads
    meanwhile. A file that fits into one piece, as most do, is read there, too; a larger one is read
    piece by piece when its turn comes.
    """
    size_estimate = SizeEstimate()
    # `map_in_threads` has up to two tasks per thread in flight.
    nbytes = max(_LEAST_PIECE, current_options().bytes_in_flight // (2 * thread_count(store)))

    def load(task: ScanTask) -> Iterator[T]:
        is_small, pieces = open_rows(store, task.key, request, nbytes, task.constants)
        if not is_small:
            return map(convert, pieces)
        tables = list(pieces)
        size_estimate.measured(sum(table.nbytes for table in tables))
        return iter([convert(table) for table in tables])

    # Called here, where the options of the call hold, and not at the first step of a generator.
    results = map_in_threads(load, tasks, store=store, weight=size_estimate, phase=READ_FILES)

    def flattened() -> Generator[T, None, None]:
        with closing(results):
            for pieces in results:
                yield from pieces

    return flattened()


def stream_together(
    store: Store, request: FileRequest, tasks: Sequence[ScanTask], at_once: int = 0, *, grows: bool = False
) -> Generator[pa.Table, None, None]:
    """All rows as by `stream_tables`; where files are small, of many in one table.

    ``at_once``: how many are read together; by default their size tells. With ``grows``, the first
    rows do not wait for that many.
    """
    nbytes = max(1, current_options().bytes_in_flight // (2 * thread_count(store)))
    room, weight, largest = min(_BATCH_BYTES, nbytes), SizeEstimate(), 0

    def load_one(task: ScanTask) -> Iterator[pa.Table]:
        nonlocal largest
        is_small, pieces = open_rows(store, task.key, request, nbytes, task.constants)
        tables = list(pieces) if is_small else []
        size = sum(table.nbytes for table in tables)
        weight.measured(size)  # of the files that are read when their turn comes, few are opened ahead
        largest = max(largest, size if is_small else nbytes)
        return iter(tables) if is_small else pieces

    def load(batch: Sequence[ScanTask]) -> Iterable[Iterator[pa.Table]]:
        if len(batch) > 1:
            with suppress(TooLarge):
                return [iter([read_batch(store, request, batch, room)[0]]), *(iter(()) for _ in batch[1:])]
        # The others later, one after the other: all of them take too much room.
        return chain([load_one(batch[0])], map(load_one, batch[1:]))

    def limit() -> int:
        return min(_MOST_FILES, at_once or (room // largest if largest else 1))

    # Where so little of each file is decoded, Python takes longer: threads would wait for it.
    alone = not grows and at_once >= _MOST_FILES
    loaded = map_batches(
        load, tasks, limit, store=store, weight=weight, phase=READ_FILES, at_once=not grows, is_alone=alone
    )

    def flattened() -> Generator[pa.Table, None, None]:
        with closing(loaded):
            for tables in loaded:
                yield from tables

    return flattened()


def read_batch(
    store: Store, request: FileRequest, batch: Sequence[ScanTask], room: int
) -> tuple[pa.Table, Sequence[int]]:
    """The rows of several files with the same partition keys, and the number of rows of each.

    Raises
    ------
    TooLarge
        If the rows take more than ``room`` bytes.
    """
    values = batch[0].constants.keys()
    # Without the partition values, which would make each file a case of its own.
    inside = replace(request, columns=tuple(c for c in request.columns if c not in values))
    tables, counts = list[pa.Table](), list[int]()
    for predicates, run in groupby(batch, lambda task: resolved_predicates(request, task.constants)):
        alike = replace(inside, predicates=predicates)
        found, rows = read_together(store, [(task.key, {}) for task in run], alike, room)
        tables.append(found)
        counts += rows
    table = pa.concat_tables(tables)
    columns = {
        c: repeated(pa.array([task.constants[c] for task in batch], request.schema.field(c).type), counts)
        if c in values
        else table.column(c)
        for c in request.columns
    }
    return pa.table(columns), counts


# --- several tables, by group ---------------------------------------------------------------------


def iter_groups(store: Store, plan: GroupPlan, convert: Convert[T]) -> Generator[T, None, None]:
    """One group after the other; the next ones are loaded meanwhile, as far as memory allows.

    If groups share many files, all files are read once before the first group; their rows wait, on
    disk if they are many.
    """
    if plan.groups.amplification() > AMPLIFICATION_LIMIT:
        return _load_shared(store, plan, convert, current_options().bytes_in_flight)
    size_estimate = SizeEstimate()

    def load(i: int) -> T:
        positions = plan.groups.partitions(i)
        tables = {}
        for read in plan.reads:
            tasks = plan.tasks(read, positions)
            # Only the one group of everything can have no partition. It still has all tables.
            if tasks or not len(positions):
                files = load_tables(store, plan.request(read, i), tasks, read.categoricals)
                tables[read.table] = joined(files, read.request, read.categoricals)
        size_estimate.measured(sum(table.nbytes for table in tables.values()))
        return convert(tables)

    phase = Phase("read", "groups" if plan.group_columns else "partitions")
    return map_in_threads(load, range(len(plan.groups)), store=store, weight=size_estimate, phase=phase)


def load_groups(store: Store, plan: GroupPlan, convert: Convert[T]) -> list[T]:
    """All groups; a file that several of them need is read once."""
    if plan.groups.amplification() > 1:
        # Without a limit, since all groups will be in memory.
        return list(_load_shared(store, plan, convert, math.inf))
    return list(iter_groups(store, plan, convert))


def _load_shared(store: Store, plan: GroupPlan, convert: Convert[T], limit: float) -> Generator[T, None, None]:
    """All groups, each file read once; rows beyond ``limit`` bytes wait on disk."""

    def weight(group: GroupRows) -> int:
        return sum(rows.nbytes for tables in group[1].values() for rows in tables)

    def load(group: GroupRows) -> T:
        i, rows = group
        positions = plan.groups.partitions(i)
        reads = [read for read in plan.reads if read.table in rows or plan.tasks(read, positions)]
        # `pop` frees the plain rows of a table as soon as they are encoded.
        tables = {r.table: [encoded(table, r.categoricals) for table in rows.pop(r.table, [])] for r in reads}
        return convert({read.table: joined(tables[read.table], read.request, read.categoricals) for read in reads})

    # Both are called here, where the options of the call hold; nothing is read before a step.
    groups = _regrouped(plan, [_split_pieces(store, plan, read) for read in plan.reads], limit)
    results = map_in_threads(load, groups, weight=weight)

    def closing_both() -> Generator[T, None, None]:
        with closing(groups), closing(results):
            yield from results

    return closing_both()


def _split_pieces(store: Store, plan: GroupPlan, read: TableRead) -> NumberedRows:
    """The rows of one table, each file read once, with the number of their group."""
    # The group columns are read to split the rows, and dropped unless they were requested.
    columns, keys = list(read.request.columns), plan.groups.keys
    request = replace(read.request, columns=tuple(dict.fromkeys((*columns, *plan.group_columns))))

    def split(piece: pa.Table) -> list[tuple[int, pa.Table]]:
        return [(number, rows.select(columns)) for number, rows in split_groups(keys, piece)]

    return stream_pieces(store, request, plan.tasks(read, np.unique(plan.groups.positions)), split)


def _regrouped(plan: GroupPlan, tables: list[NumberedRows], limit: float) -> Generator[GroupRows, None, None]:
    """All groups with their rows, after all pieces of all tables were read."""
    with ExitStack() as stack:
        spills: dict[str, Spill] = {}
        for read, pieces in zip(plan.reads, tables, strict=True):
            schema = pa.schema([read.request.schema.field(c) for c in read.request.columns])
            spills[read.table] = stack.enter_context(Spill(schema, limit / len(tables)))
            with closing(pieces):
                for number, rows in chain.from_iterable(pieces):
                    spills[read.table].add(number, rows)
        for i in range(len(plan.groups)):
            yield i, {table: waiting for table, spill in spills.items() if (waiting := spill.take(i))}
