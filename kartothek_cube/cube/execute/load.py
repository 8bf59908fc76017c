"""Loads groups of a plan: reads files, keeps the newest rows, filters, joins, projects.

In order:

- positions of matching rows: payload is not moved here
- key columns that two files store in the same bytes are decoded once
- loading
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from kartothek_cube.core.arrow.keys import (
    BoolArray,
    IntArray,
    KeyIndex,
    Positions,
    ascends,
    pack,
    pack_one,
    sorted_table,
    take_rows,
)
from kartothek_cube.core.expressions.predicates import Clause, Constants, filter_table, matching_rows
from kartothek_cube.core.io.reader import (
    FileRequest,
    constant_array,
    files_at_once,
    is_small_file,
    read_rows,
    read_together,
)
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.cube.cube import KTK_CUBE_UUID_SEPERATOR
from kartothek_cube.cube.query.intention import DatasetRole
from kartothek_cube.cube.query.plan import DatasetFiles, Group, GroupContext, GroupPartition

# The keys of more rows, or of a column with more values, are not looked for in other files.
_MOST_ROWS, _MOST_VALUES = 2**16, 2**12

# If a filter leaves so few rows of the seed in a partition, others are read for these only.
_FEW_CELLS = 1_024

# Copy the selected rows when they are under 1/4 of the table, so that the rest can be freed.
_FEW = 4


class BuildSide:
    """Rows of one dataset to look up by ``on``. Of several rows of a cell the last one counts."""

    def __init__(self, table: pa.Table, on: Sequence[str]) -> None:
        self.table, self.on = table, tuple(on)

    @cached_property
    def payload(self) -> pa.Table:
        """The columns that the dataset adds to a result."""
        return self.table.drop_columns([c for c in self.on if c in self.table.column_names])

    @cached_property
    def key_index(self) -> KeyIndex:
        """The index of the rows by ``on``, built on first use."""
        return KeyIndex(self.table, self.on)

    @cached_property
    def runtime_filter(self) -> tuple[Clause, ...]:
        """What all keys of these rows satisfy, if a condition can say it: that they are one of few.

        Only of the column with the most values: it excludes more rows of another dataset.
        """
        if self.table.num_rows > _MOST_ROWS:
            return ()
        # Not floats: joins and conditions may differ about NaN and zeros of two signs.
        exact = (pa.types.is_integer, pa.types.is_date32, pa.types.is_string)
        columns = [c for c in self.on if any(is_type(self.table.schema.field(c).type) for is_type in exact)]
        distinct = {c: pc.unique(self.table.column(c)) for c in columns}
        few = {c: values for c, values in distinct.items() if len(values) <= _MOST_VALUES and not values.null_count}
        if not few:
            return ()
        column = max(few, key=lambda c: len(few[c]))
        return (Clause(column, "in", Constants(few[column].to_pylist())),)

    @property
    def nbytes(self) -> int:
        """Memory of the rows and of their index."""
        return int(self.table.nbytes) + self.key_index.nbytes


class RowSelection(Struct, frozen=True):
    """One row of a table for each row of a result: all in order, or by position, -1 for none."""

    table: pa.Table
    positions: Positions | None = None

    def indices(self) -> TakeIndices | None:
        """The argument of `rows_at` for these rows."""
        return None if self.positions is None else take_indices(self.positions)

    def compacted(self) -> RowSelection:
        """The same selection from a table without other rows, if the selected rows are few."""
        if self.positions is None or _FEW * len(self.positions) > len(self.table):
            return self
        present = self.positions >= 0
        table = take_rows(self.table, self.positions[present])
        positions = None if len(table) == len(present) else np.where(present, np.cumsum(present) - 1, -1)
        return RowSelection(table, positions)

    def where(self, rows: BoolArray) -> RowSelection:
        """The selection for some rows of the result."""
        return RowSelection(self.table, np.flatnonzero(rows) if self.positions is None else self.positions[rows])


@dataclass(frozen=True, slots=True)
class JoinedRows:
    """Rows of one aligned partition before their payload is copied.

    ``parts`` has the seed, then the other datasets side by side; ``owners`` the number of the part
    of each column; ``constants`` the columns of one value. Any other column is null.
    """

    rows: int = 0
    parts: tuple[RowSelection, ...] = ()
    owners: Mapping[str, int] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)

    def table(self, schema: pa.Schema) -> pa.Table:
        """The rows with the columns and types of a schema."""
        columns: list[pa.ChunkedArray | pa.Array] = []
        indices: dict[int, TakeIndices | None] = {}
        for column in schema:
            if column.name in self.constants:
                columns.append(constant_array(self.constants[column.name], column.type, self.rows))
            elif column.name not in self.owners:
                columns.append(pa.nulls(self.rows, column.type))
            else:
                owner = self.owners[column.name]
                if owner not in indices:
                    indices[owner] = self.parts[owner].indices()
                columns.append(rows_at(self.parts[owner].table.column(column.name), indices[owner]))
        return pa.table(columns, schema=schema)

    def with_constants(self, schema: pa.Schema) -> JoinedRows:
        """The same rows with constants as columns of the seed."""
        seed, *others = self.parts
        table = seed.table
        for column in (schema.field(c) for c in schema.names if c in self.constants):
            rest = table.drop_columns(column.name) if column.name in table.column_names else table
            table = rest.append_column(column, constant_array(self.constants[column.name], column.type, len(table)))
        owners = {**self.owners, **dict.fromkeys(self.constants, 0)}
        return JoinedRows(self.rows, (RowSelection(table, seed.positions), *others), owners)

    def compacted(self, numbers: Collection[int]) -> JoinedRows:
        """The same rows with `RowSelection.compacted` for the parts with these numbers."""
        return replace(
            self, parts=tuple(part.compacted() if i in numbers else part for i, part in enumerate(self.parts))
        )


class TakeIndices(NamedTuple):
    """Indices for `pyarrow.compute.take`: any row where there is none, and a mask of valid ones."""

    places: pa.Array
    valid: pa.Array | None


def take_indices(positions: Positions) -> TakeIndices:
    """The indices for positions, of which -1 stands for no row."""
    if not len(positions) or int(positions.min()) >= 0:
        return TakeIndices(pa.array(positions), None)
    return TakeIndices(pa.array(np.maximum(positions, 0)), pa.array(positions >= 0))


def rows_at(column: pa.ChunkedArray, indices: TakeIndices | None) -> pa.ChunkedArray:
    """The values at indices, null where there is no row; the column itself without indices."""
    if indices is None:
        return column
    places, valid = indices
    if valid is None:
        return pc.take(column, places, boundscheck=False)
    if len(column) and pa.types.is_primitive(column.type):  # several times faster than null indices
        return pc.if_else(valid, pc.take(column, places, boundscheck=False), pa.scalar(None, column.type))
    return pc.take(column, pc.if_else(valid, places, pa.scalar(None, places.type)), boundscheck=False)


def with_overlays(tables: Sequence[pa.Table], cells: Sequence[str]) -> pa.Table:
    """The rows of several files, older ones first.

    If the first one is sorted by cell and has all cells of the others, their rows replace its rows.
    """
    base, rest = tables[0], pa.concat_tables(tables[1:] or [tables[0].slice(0, 0)])
    if not base.num_rows or not rest.num_rows:
        return pa.concat_tables(tables)
    keys, newer = pack([base, rest], cells)
    places = np.minimum(np.searchsorted(keys, newer), len(keys) - 1)
    if not (keys[1:] > keys[:-1]).all() or not (keys[places] == newer).all():
        return pa.concat_tables(tables)
    order = np.arange(len(keys))
    order[places] = np.arange(len(keys), len(keys) + len(newer))
    indices = TakeIndices(pa.array(order), None)

    def replaced(name: str) -> pa.ChunkedArray:
        column, values = base.column(name), rest.column(name)
        # Equal keys are the same values, but for zeros of different sign.
        if name in cells and not pa.types.is_floating(column.type):
            return column
        return rows_at(pa.chunked_array([*column.chunks, *values.chunks], column.type), indices)

    return pa.table([replaced(field.name) for field in base.schema], schema=base.schema)


def newest_rows(table: pa.Table, cells: Sequence[str]) -> pa.Table:
    """The last row of each cell, sorted by cell.

    A table that is sorted and has no cell twice is returned as it is.
    """
    if table.num_rows < 2 or ascends(table, cells):
        return table
    keys = pack_one(table, cells)
    order = np.argsort(keys, kind="stable")
    is_last = np.append(np.diff(keys[order]) != 0, True)
    return take_rows(table, order[is_last])


def few_cells(seed: pa.Table, dimensions: Sequence[str], parts: int = 1) -> tuple[Clause, ...]:
    """What the rows of other datasets satisfy that join some rows of the seed, if these are few."""
    return BuildSide(seed, dimensions).runtime_filter if seed.num_rows <= _FEW_CELLS * parts else ()


def has_same_keys(left: pa.Table, right: BuildSide, cells: Sequence[str]) -> bool:
    """Whether the keys are equal row by row, and distinct as ``cells`` are on the left."""
    if left.num_rows != right.table.num_rows or not set(cells) <= set(right.on):
        return False
    return all(left.column(c).equals(right.table.column(c)) for c in right.on)


def positions_of(left: pa.Table, right: BuildSide, cells: Sequence[str]) -> Positions | None:
    """The position of the last right row with the same key for each left row, -1 for none.

    None if the keys are equal row by row.
    """
    return None if has_same_keys(left, right, cells) else right.key_index.positions(left)


def join_cells(
    seed: pa.Table,
    cells: Sequence[str],
    restricting: Iterable[BuildSide],
    others: Iterable[BuildSide],
    constants: Mapping[str, Any],
) -> JoinedRows:
    """The rows of the seed that all restricting datasets have, with the rows of all datasets.

    No two rows of the seed have the same ``cells``. Constants win over columns of that name, and
    columns of the seed over those of other datasets.
    """
    parts = [RowSelection(seed)]
    keep = np.ones(seed.num_rows, dtype=bool)
    remaining = iter(restricting)
    # The datasets load when they are taken: once no row is left, the others are never read.
    while keep.any() and (other := next(remaining, None)) is not None:
        parts.append(RowSelection(other.payload, positions_of(seed, other, cells)))
        if parts[-1].positions is not None:
            keep &= parts[-1].positions >= 0
    if not keep.any():
        return JoinedRows()
    all_stay = bool(keep.all())
    parts = parts if all_stay else [part.where(keep) for part in parts]
    for other in others:
        if has_same_keys(seed, other, cells):
            parts.append(RowSelection(other.payload) if all_stay else RowSelection(other.payload).where(keep))
        else:
            left = seed.select(other.on)
            positions = other.key_index.positions(left if all_stay else left.filter(pa.array(keep)))
            parts.append(RowSelection(other.payload, positions))
    owners = {c: i for i, part in enumerate(parts) for c in part.table.column_names}
    owners |= dict.fromkeys(seed.column_names, 0)
    return JoinedRows(int(np.count_nonzero(keep)), tuple(parts), owners, constants)


# --- loading --------------------------------------------------------------------------------------


_CACHE_BYTES = 128 * 2**20


class LoadingCache:
    """An LRU cache of rows by key; rows that several threads ask for are loaded once."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._rows: dict[Hashable, Future[BuildSide]] = {}
        self._sizes: OrderedDict[Hashable, int] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, load: Callable[[], BuildSide]) -> BuildSide:
        """The rows, loaded now if they are not in the cache."""
        with self._lock:
            future = self._rows.get(key)
            if key in self._sizes:
                self._sizes.move_to_end(key)
            if is_new := future is None:
                future = self._rows[key] = Future()
        # The lock is free while rows load: other threads load other files meanwhile.
        if not is_new:
            return future.result()
        try:
            rows = load()
            size = rows.nbytes
        except BaseException as error:
            # A later call tries again; threads that wait already get the error.
            with self._lock:
                del self._rows[key]
            future.set_exception(error)
            raise
        future.set_result(rows)
        with self._lock:
            self._sizes[key] = size
            self._room -= size
            while self._room < 0:
                oldest, size = self._sizes.popitem(last=False)
                del self._rows[oldest]
                self._room += size
        return rows


class PartitionLoader:
    """Loads groups and aligned partitions of a plan from a store. Safe for threads.

    Rows that several partitions need, e.g. of an unpartitioned dataset, are read once while they
    fit into ``cache_bytes``.
    """

    def __init__(self, store: Store, cache_bytes: int = _CACHE_BYTES) -> None:
        self._store = store
        self._cache = LoadingCache(cache_bytes)

    def load(self, group: Group) -> pa.Table:
        """The rows of one group, ordered by dimension columns, then partition columns."""
        return sorted_by_cell(group.context, [joined.table(group.context.schema) for joined in self.join(group)])

    def join(self, group: Group) -> list[JoinedRows]:
        """The rows of one group before payload is copied, unordered: one item per partition."""
        # A group by partition columns alone takes whole partitions: there is nothing to filter by.
        whole = group.is_slice or set(group.context.partition_by) <= set(group.context.partition_columns)
        return [self.join_partition(group.context, part, None if whole else group.key) for part in group.partitions]

    def join_partition(
        self, context: GroupContext, part: GroupPartition, key: Mapping[str, Any] | None = None
    ) -> JoinedRows:
        """Join the datasets of one aligned partition.

        With a ``key``, only the rows with these values of the ``partition_by`` columns.
        """
        seed_role, *roles = context.roles
        if seed_role.id not in part.files or any(r.restricts and r.id not in part.files for r in roles):
            return JoinedRows()

        clauses = {role.id: clauses_of(role, part, key or {}) for role in context.roles}
        shared = {role.id for role in roles if key is not None or is_shared(context, role)}

        def read(role: DatasetRole) -> BuildSide:
            is_alone = role.id not in shared
            return self.read_build_side(
                *(context, role, part.files.get(role.id), clauses[role.id]),
                shared=not is_alone,
                runtime_filter=_of(role, runtime_filter) if is_alone else (),
            )

        # What these find tells which rows of the others are of use, so they are read first. A
        # remote store answers in parallel: only what is there already need not be waited for.
        first = [r for r in roles if r.restricts and clauses[r.id] and (r.id in shared or not self._store.is_remote)]
        found, runtime_filter = dict[str, BuildSide](), tuple[Clause, ...]()
        for role in first:
            found[role.id] = read(role)
            if not found[role.id].table.num_rows:
                return JoinedRows()
            runtime_filter += found[role.id].runtime_filter

        def read_other(role: DatasetRole) -> BuildSide:
            return found[role.id] if role.id in found else read(role)

        read_seed = partial(
            self.read_seed, context, part.files[seed_role.id], clauses[seed_role.id], _of(seed_role, runtime_filter)
        )
        results = self._each([read_seed, *(partial(read_other, role) for role in roles)])
        seed = next(results)
        # A remote store reads the others already.
        if roles and clauses[seed_role.id] and not self._store.is_remote:
            runtime_filter += few_cells(seed, seed_role.dimensions)
        restricting = sum(role.restricts for role in roles)  # these come first
        return join_cells(seed, context.cell_columns, islice(results, restricting), results, part.values)

    def read_seed(
        self,
        context: GroupContext,
        files: DatasetFiles,
        clauses: tuple[Clause, ...],
        runtime_filter: tuple[Clause, ...] = (),
    ) -> pa.Table:
        """The newest rows of the seed in one partition that satisfy the clauses, sorted by cell.

        Cells that fail the runtime filter may be left out.
        """
        role, *_ = context.roles
        newest = newest_rows(self.read_newest(context, role, files, clauses, runtime_filter), role.dimensions)
        return newest_rows(newest, context.cell_columns) if set(role.dimensions) - set(context.cell_columns) else newest

    def read_build_side(
        self,
        context: GroupContext,
        role: DatasetRole,
        files: DatasetFiles | None,
        clauses: tuple[Clause, ...],
        *,
        shared: bool,
        runtime_filter: tuple[Clause, ...] = (),
    ) -> BuildSide:
        """The rows of another dataset in one aligned partition that satisfy the clauses.

        Rows that are ``shared`` with other partitions are cached. Cells that fail the runtime
        filter may be left out.
        """
        if files is None:
            schema = pa.schema([role.schema.field(c) for c in _columns(context, role)])
            return BuildSide(schema.empty_table(), role.dimensions)

        def read() -> BuildSide:
            return BuildSide(self.read_newest(context, role, files, clauses, runtime_filter), role.dimensions)

        return self._cache.get((role.id, files.keys, clauses), read) if shared else read()

    def read_newest(
        self,
        context: GroupContext,
        role: DatasetRole,
        files: DatasetFiles,
        clauses: tuple[Clause, ...],
        runtime_filter: tuple[Clause, ...] = (),
    ) -> pa.Table:
        """The rows of a dataset in one partition, of cells whose newest row satisfies the clauses.

        Older rows of these cells may be among them. Cells that fail the runtime filter may be left
        out: it is about dimensions, so no older row can appear instead.
        """
        # With several files the newest row of a cell has to be found before a condition on payload
        # may drop it.
        alone = len(files.keys) == 1
        safe = clauses if alone else tuple(c for c in clauses if c.column in role.dimensions)
        late = () if alone else tuple(c for c in clauses if c not in safe)
        request = _request(context, role, safe, (c.column for c in late), runtime_filter)
        pairs = zip(files.keys, files.values, strict=True)
        reads = [partial(read_rows, self._store, key, request, _file_values(values, request)) for key, values in pairs]
        table = with_overlays(list(self._each(reads)), role.dimensions)
        if late:
            table = newest_rows(table, role.dimensions)
            table = filter_table(table, matching_rows(table, (late,)))
        return table.select(list(_columns(context, role)))

    def parts_at_once(self, context: GroupContext, part: GroupPartition) -> int:
        """How many aligned partitions like this one are best joined together; 0 if that is unknown.

        What filters all partitions alike is read for that, and kept.
        """
        seed_role, *roles = context.roles
        files = part.files.get(seed_role.id)
        if files is None:
            return 0
        runtime_filter = tuple[Clause, ...]()
        for role in roles:
            clauses = clauses_of(role, part, {})
            if role.restricts and clauses and is_shared(context, role):
                side = self.read_build_side(context, role, part.files.get(role.id), clauses, shared=True)
                runtime_filter += side.runtime_filter
        request = _request(context, seed_role, clauses_of(seed_role, part, {}), (), _of(seed_role, runtime_filter))
        return files_at_once(self._store, files.keys[0], request)

    def has_large_file(self, context: GroupContext, role: DatasetRole, part: GroupPartition) -> bool:
        """Whether reading only some rows of files like the first one of a dataset may pay."""
        keys, request = part.files[role.id].keys if role.id in part.files else (), _request(context, role, ())
        return bool(keys) and not is_small_file(self._store, keys[0], request)

    def read_batch(
        self,
        context: GroupContext,
        role: DatasetRole,
        parts: Sequence[DatasetFiles],
        room: int,
        clauses: tuple[Clause, ...] = (),
        runtime_filter: tuple[Clause, ...] = (),
    ) -> tuple[pa.Table, IntArray]:
        """The rows of a dataset in several aligned partitions, and the number of rows of each.

        Of several files of a partition, the clauses have to be about dimensions: see `read_newest`.

        Raises
        ------
        TooLarge
            If the rows take more than ``room`` bytes.
        """
        request = _request(context, role, clauses, (), _of(role, runtime_filter))
        pairs = (pair for part in parts for pair in zip(part.keys, part.values, strict=True))
        files = [(key, _file_values(values, request)) for key, values in pairs]
        table, counts = read_together(self._store, files, request, room)
        ends = np.cumsum([len(part.keys) for part in parts])
        return table, np.diff(np.append(0, np.cumsum(counts, dtype=np.int64))[ends], prepend=0)

    def _each(self, reads: Sequence[Callable[[], Any]]) -> Iterator[Any]:
        """Results of some reads in order, lazily; of a remote store in parallel."""
        if len(reads) > 1 and self._store.is_remote:
            return map_in_threads(lambda read: read(), reads, store=self._store)
        return (read() for read in reads)


def _columns(context: GroupContext, role: DatasetRole) -> tuple[str, ...]:
    """The columns to read of a dataset: not those with one value in an aligned partition."""
    return tuple(c for c in role.columns if c not in context.partition_columns)


def _request(
    context: GroupContext,
    role: DatasetRole,
    clauses: tuple[Clause, ...],
    more: Iterable[str] = (),
    runtime_filter: tuple[Clause, ...] = (),
) -> FileRequest:
    uuid = f"{context.uuid_prefix}{KTK_CUBE_UUID_SEPERATOR}{role.id}"
    columns = tuple(dict.fromkeys((*_columns(context, role), *more)))
    return FileRequest(uuid, role.schema, columns, (clauses,) if clauses else None, runtime_filter)


def _of(role: DatasetRole, runtime_filter: tuple[Clause, ...]) -> tuple[Clause, ...]:
    """The conditions on dimensions of a dataset."""
    return tuple(c for c in runtime_filter if c.column in role.dimensions)


def _file_values(values: Mapping[str, Any], request: FileRequest) -> dict[str, Any]:
    """The partition values of a file that are columns of its dataset."""
    return {c: v for c, v in values.items() if c in request.schema.names}


def is_shared(context: GroupContext, role: DatasetRole) -> bool:
    """Whether several aligned partitions may need the same file of a dataset."""
    return not set(context.partition_columns) <= set(role.partition_keys)


def is_ordered(context: GroupContext) -> bool:
    """Whether joining an aligned partition gives its rows in the order of the result."""
    # The seed is sorted by cell, and a join keeps its order.
    seed = context.roles[0]
    cells = context.cell_columns if set(seed.dimensions) - set(context.cell_columns) else seed.dimensions
    return cells[: len(context.dimension_columns)] == context.dimension_columns


def sorted_by_cell(context: GroupContext, tables: Sequence[pa.Table]) -> pa.Table:
    """The rows of a group's partitions, ordered by dimension columns, then partition columns."""
    table = pa.concat_tables(tables) if tables else context.schema.empty_table()
    if len(tables) < 2 and is_ordered(context):
        return table
    return sorted_table(table, (*context.dimension_columns, *context.partition_columns))


def clauses_of(role: DatasetRole, part: GroupPartition, key: Mapping[str, Any]) -> tuple[Clause, ...]:
    """The conditions on rows of a dataset: those of the query, and those of the group's ``key``."""
    # Planning has applied the conditions on partition columns.
    rest = tuple(c for c in role.clauses if c.column not in part.values)
    return (*rest, *(Clause(c, "==", v) for c, v in key.items() if c in role.schema.names and c not in part.values))
