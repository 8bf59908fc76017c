"""Loads groups of a plan: reads files, keeps the newest rows, filters, joins, projects."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from kartothek_cube.core.arrow.keys import IntArray, pack_one, stable_order
from kartothek_cube.core.expressions.predicates import Clause, filter_table, matching_rows
from kartothek_cube.core.io._fast.shared_key_columns import EncodedColumns, read_rest, read_with
from kartothek_cube.core.io.formats import ParquetFormat
from kartothek_cube.core.io.reader import FileRequest, read_rows, read_together
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.cube.cube import KTK_CUBE_UUID_SEPERATOR
from kartothek_cube.cube.execute.join import BuildSide, JoinedRows, join_cells, newest_rows, with_overlays
from kartothek_cube.cube.query.groups import DatasetFiles, Group, GroupContext, GroupPartition
from kartothek_cube.cube.query.intention import DatasetRole

__all__ = ["PartitionLoader", "clauses_of", "is_ordered", "is_shared", "ordered_rows", "sorted_by_cell"]

_CACHE_BYTES = 128 * 2**20
_PARQUET = ParquetFormat()


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


@dataclass(frozen=True, slots=True)
class SeedRows:
    """The rows of the seed in one aligned partition.

    ``keys`` are the encoded key columns of the file, where another file may have the same bytes.
    """

    table: pa.Table
    keys: EncodedColumns | None = None


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

        def read(role: DatasetRole, keys: EncodedColumns | None = None) -> BuildSide:
            is_alone = role.id not in shared
            return self.read_build_side(
                *(context, role, part.files.get(role.id), clauses[role.id]),
                shared=not is_alone,
                keys=keys if is_alone else None,
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

        def read_other(role: DatasetRole, keys: EncodedColumns | None) -> BuildSide:
            return found[role.id] if role.id in found else read(role, keys)

        read_seed = partial(
            self.read_seed, context, part.files[seed_role.id], clauses[seed_role.id], _of(seed_role, runtime_filter)
        )
        seed, others = self.read_all(read_seed, [partial(read_other, role) for role in roles])
        restricting = sum(role.restricts for role in roles)  # these come first
        return join_cells(seed, context.cell_columns, islice(others, restricting), others, part.values)

    def read_all(
        self, seed: Callable[[], SeedRows], others: Sequence[Callable[[EncodedColumns | None], BuildSide]]
    ) -> tuple[pa.Table, Iterator[BuildSide]]:
        """The seed, and the other datasets lazily.

        A local store is read in turn, so that the keys of the seed need not be decoded again. A
        remote store is read in parallel.
        """
        if self._store.is_remote:
            results = self._each([seed, *(partial(other, None) for other in others)])
            return next(results).table, results
        first = seed()
        return first.table, (other(first.keys) for other in others)

    def read_seed(
        self,
        context: GroupContext,
        files: DatasetFiles,
        clauses: tuple[Clause, ...],
        runtime_filter: tuple[Clause, ...] = (),
    ) -> SeedRows:
        """The newest rows of the seed in one partition that satisfy the clauses, sorted by cell.

        Cells that fail the runtime filter may be left out.
        """
        role, *others = context.roles
        if not clauses and _is_parquet(files) and any(_may_share_keys(context, role, other) for other in others):
            table, keys = read_with(self._store, *_whole_file(context, role, files, runtime_filter), role.dimensions)
        else:
            table, keys = self.read_newest(context, role, files, clauses, runtime_filter), None
        newest = newest_rows(table, role.dimensions)
        if set(role.dimensions) - set(context.cell_columns):
            newest = newest_rows(newest, context.cell_columns)
        return SeedRows(newest, keys if newest is table else None)

    def read_build_side(
        self,
        context: GroupContext,
        role: DatasetRole,
        files: DatasetFiles | None,
        clauses: tuple[Clause, ...],
        *,
        shared: bool,
        keys: EncodedColumns | None = None,
        runtime_filter: tuple[Clause, ...] = (),
    ) -> BuildSide:
        """The rows of another dataset in one aligned partition that satisfy the clauses.

        Rows that are ``shared`` with other partitions are cached. Key columns with the same bytes
        as the ``keys`` of the seed are not decoded. Cells that fail the runtime filter may be left
        out.
        """
        if files is None:
            schema = pa.schema([role.schema.field(c) for c in _columns(context, role)])
            return BuildSide(schema.empty_table(), role.dimensions)
        if keys is not None and not clauses and _is_parquet(files) and _may_share_keys(context, context.roles[0], role):
            table, aligned = read_rest(self._store, *_whole_file(context, role, files, runtime_filter), keys)
            return BuildSide(table, role.dimensions, aligned=aligned)

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


def _is_parquet(files: DatasetFiles) -> bool:
    """Whether there is one file, and in Parquet."""
    return len(files.keys) == 1 and files.keys[0].endswith(_PARQUET.file_suffix)


def _whole_file(
    context: GroupContext, role: DatasetRole, files: DatasetFiles, runtime_filter: tuple[Clause, ...]
) -> tuple[str, FileRequest, dict[str, Any]]:
    """The key of the only file, the request for all its rows of use, and its partition values."""
    request = _request(context, role, (), (), runtime_filter)
    return files.keys[0], request, _file_values(files.values[0], request)


def _may_share_keys(context: GroupContext, seed: DatasetRole, other: DatasetRole) -> bool:
    """Whether another dataset has the dimensions of the seed in the same types."""
    if (
        is_shared(context, other)
        or set(other.dimensions) != set(seed.dimensions)
        or not set(context.cell_columns) <= set(seed.dimensions)
    ):
        return False
    read = set(_columns(context, seed)) & set(_columns(context, other))
    return set(seed.dimensions) <= read and all(
        seed.schema.field(c).type.equals(other.schema.field(c).type) for c in seed.dimensions
    )


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
    return ordered_rows(table, (*context.dimension_columns, *context.partition_columns))


def clauses_of(role: DatasetRole, part: GroupPartition, key: Mapping[str, Any]) -> tuple[Clause, ...]:
    """The conditions on rows of a dataset: those of the query, and those of the group's ``key``."""
    # Planning has applied the conditions on partition columns.
    rest = tuple(c for c in role.clauses if c.column not in part.values)
    return (*rest, *(Clause(c, "==", v) for c, v in key.items() if c in role.schema.names and c not in part.values))


def ordered_rows(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """The rows sorted by some columns; the table itself if it is sorted already."""
    if table.num_rows < 2:
        return table
    order = stable_order(pack_one(table, columns))
    return table if order is None else table.take(pa.array(order))
