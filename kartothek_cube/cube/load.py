"""Running groups of a plan: read the files, keep the newest rows, join, filter, project; Arrow tables come out."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import pyarrow as pa

from kartothek_cube.core.evaluate import matching_rows
from kartothek_cube.core.files import FileRequest, filter_table, read_rows
from kartothek_cube.core.predicates import Clause
from kartothek_cube.core.rowkeys import pack_one, stable_order
from kartothek_cube.core.store import Store
from kartothek_cube.cube.constants import KTK_CUBE_UUID_SEPERATOR
from kartothek_cube.cube.intention import DatasetRole
from kartothek_cube.cube.join import Joinable, join_cells, newest_rows
from kartothek_cube.cube.plan import DatasetFiles, Group, GroupContext, GroupPartition

__all__ = ["Loader", "load_partition", "ordered_rows"]

_CACHE_BYTES = 128 * 2**20


class _Tables:
    """Tables by key, each made once even if several threads ask for it; those that were not asked for longest go when there is no room."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._tables: dict[Any, Future[pa.Table]] = {}
        self._sizes: OrderedDict[Any, int] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Any, make: Callable[[], pa.Table]) -> pa.Table:
        """The table, made now if it is not there."""
        with self._lock:
            known = self._tables.get(key)
            if key in self._sizes:
                self._sizes.move_to_end(key)
            future: Future[pa.Table] = known if known is not None else self._tables.setdefault(key, Future())
        if known is None:
            self._fill(key, future, make)
        return future.result()

    def _fill(self, key: Any, future: Future[pa.Table], make: Callable[[], pa.Table]) -> None:
        try:
            table = make()
        except BaseException as error:
            with self._lock:
                del self._tables[key]
            future.set_exception(error)
            raise
        future.set_result(table)
        with self._lock:
            self._sizes[key] = table.nbytes
            self._room -= table.nbytes
            while self._room < 0:
                oldest, size = self._sizes.popitem(last=False)
                del self._tables[oldest]
                self._room += size


class Loader:
    """Loads groups from a store. What several partitions need, e.g. an unpartitioned dataset, is read once while it fits.

    Safe for threads.
    """

    def __init__(self, store: Store, cache_bytes: int = _CACHE_BYTES) -> None:
        self._store = store
        self._tables = _Tables(cache_bytes)

    def load(self, group: Group) -> pa.Table:
        """The rows of one group, ordered by dimension columns, then partition columns."""
        key = {} if group.is_slice or not group.context.partition_by else group.key
        tables = [load_partition(self, group.context, part, key) for part in group.partitions]
        table = pa.concat_tables(tables) if tables else group.context.schema.empty_table()
        return ordered_rows(table, (*group.context.dimension_columns, *group.context.partition_columns))

    def rows(self, context: GroupContext, role: DatasetRole, files: DatasetFiles | None, clauses: tuple[Clause, ...]) -> pa.Table:
        """The newest rows of a dataset in one aligned partition that satisfy the clauses."""
        if files is None:
            return _request(context, role, ()).schema.empty_table().select(list(role.columns))
        if role.is_seed:
            return self._read(context, role, files, clauses)
        return self._tables.get((role.id, files.keys, clauses), lambda: self._read(context, role, files, clauses))

    def _read(self, context: GroupContext, role: DatasetRole, files: DatasetFiles, clauses: tuple[Clause, ...]) -> pa.Table:
        # With several files the newest row of a cell has to be found before a condition on payload may drop it.
        alone = len(files.keys) == 1
        safe = clauses if alone else tuple(c for c in clauses if c.column in role.dimensions)
        late = () if alone else tuple(c for c in clauses if c not in safe)
        request = _request(context, role, safe, (c.column for c in late))
        tables = [read_rows(self._store, key, request, _own(values, request)) for key, values in zip(files.keys, files.values, strict=True)]
        table = newest_rows(pa.concat_tables(tables), role.dimensions)
        if late:
            table = filter_table(table, matching_rows(table, (late,)))
        return table.select(list(role.columns))


def _request(context: GroupContext, role: DatasetRole, clauses: tuple[Clause, ...], more: Any = ()) -> FileRequest:
    uuid = f"{context.uuid_prefix}{KTK_CUBE_UUID_SEPERATOR}{role.id}"
    columns = tuple(dict.fromkeys((*role.columns, *more)))
    return FileRequest(uuid, role.schema, columns, (clauses,) if clauses else None)


def _own(values: Mapping[str, Any], request: FileRequest) -> dict[str, Any]:
    """The partition values of a file that are columns of its dataset."""
    return {c: v for c, v in values.items() if c in request.schema.names}


def load_partition(loader: Loader, context: GroupContext, part: GroupPartition, key: Mapping[str, Any]) -> pa.Table:
    """Join the datasets of one aligned partition, limited to one value of each ``partition_by`` column in ``key``."""
    seed_role, *roles = context.roles
    if any(r.restricts and r.id not in part.files for r in roles):
        return context.schema.empty_table()
    seed = loader.rows(context, seed_role, part.files.get(seed_role.id), _clauses(seed_role, part, key))
    if set(seed_role.dimensions) - set(context.cell_columns):
        seed = newest_rows(seed, context.cell_columns)
    others = {r.id: Joinable(loader.rows(context, r, part.files.get(r.id), _clauses(r, part, key)), r.dimensions, r.restricts) for r in roles}
    return _finish(seed, others, context, part)


def _clauses(role: DatasetRole, part: GroupPartition, key: Mapping[str, Any]) -> tuple[Clause, ...]:
    """The dataset's conditions without those that the partition's values have answered, and those of the group."""
    rest = tuple(c for c in role.clauses if c.column not in part.values)
    return (*rest, *(Clause(c, "==", v) for c, v in key.items() if c in role.schema.names and c not in part.values))


def _finish(seed: pa.Table, others: Mapping[str, Joinable], context: GroupContext, part: GroupPartition) -> pa.Table:
    types = {f.name: f.type for f in context.schema}
    for name, value in part.values.items():
        column = pa.repeat(pa.scalar(value, types[name]), seed.num_rows)
        seed = seed.drop_columns([name]) if name in seed.column_names else seed
        seed = seed.append_column(name, column)
    return join_cells(seed, others, context.schema)


def ordered_rows(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """The rows sorted by some columns; the table itself where they are already."""
    if table.num_rows < 2:
        return table
    order = stable_order(pack_one(table, columns))
    return table if order is None else table.take(pa.array(order))
