"""Small aligned partitions are joined together: the work for each of them would take longer than that for their rows. Files are read as ever."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain, groupby, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.options import current_options
from kartothek_cube.core.rowkeys import IntArray
from kartothek_cube.core.small_files import TooLarge
from kartothek_cube.cube.intention import DatasetRole
from kartothek_cube.cube.join import Joinable, Joined, Part, join_cells, newest_rows
from kartothek_cube.cube.load import Loader, clauses_of, in_cell_order, is_ordered, is_shared
from kartothek_cube.cube.plan import DatasetFiles, Group, GroupContext, GroupPartition

__all__ = ["Bundles"]

# Memory of partitions that are joined together, and how many there may be.
_BYTES, _MOST = 4 * 2**20, 64
# The rows of one dataset may take so many times that memory before all are given up to be loaded alone.
_SPARE = 4
_NONE = DatasetFiles((), ())


class Bundles:
    """Loads groups of one aligned partition each, several at a time where they are small. Safe for threads."""

    def __init__(self, loader: Loader, context: GroupContext, *, alone: bool) -> None:
        self._loader, self._alone = loader, alone or not _suits(context)
        self._largest, self._room = 0, min(_BYTES, current_options().bytes_in_flight // _MOST)

    def most(self) -> int:
        """How many groups are to be taken at a time, going by the largest so far."""
        return 1 if self._alone or not self._largest else min(_MOST, max(1, self._room // self._largest))

    def load(self, groups: Sequence[Group]) -> Iterator[pa.Table]:
        """What `Loader.load` gives for each of them; where they turn out to be large, one is loaded after the other when it is asked for."""
        loaded, runs = list[Iterator[pa.Table]](), deque(_runs(groups))
        while runs and (not loaded or self.most() >= len(groups)):
            loaded.append(self._load_run(runs.popleft()))
        return chain(chain.from_iterable(loaded), chain.from_iterable(map(self._load_run, runs)))

    def join(self, groups: Sequence[Group]) -> list[list[Joined]]:
        """What `Loader.join` gives for each of them, or for several of them as the first; only with rows that are needed, where these are few."""
        return list(chain.from_iterable(map(self._join_run, _runs(groups))))

    def _load_run(self, groups: Sequence[Group]) -> Iterator[pa.Table]:
        together = self._together(groups)
        if together is not None:
            return iter(_apart(*together, groups[0].context.schema))
        first = self._load_alone(groups[0])
        return chain([first], map(self._load_alone, groups[1:]))

    def _join_run(self, groups: Sequence[Group]) -> list[list[Joined]]:
        together = self._together(groups)
        if together is not None:
            return [[together[0]], *([] for _ in groups[1:])]
        own = [i for i, role in enumerate(groups[0].context.roles) if not is_shared(groups[0].context, role)]
        return [[joined.slim(own) for joined in self._alone_joined(group)] for group in groups]

    def _load_alone(self, group: Group) -> pa.Table:
        return in_cell_order(group.context, [joined.table(group.context.schema) for joined in self._alone_joined(group)])

    def _alone_joined(self, group: Group) -> list[Joined]:
        found = self._loader.join(group)
        sizes = (
            part.table.nbytes for joined in found for role, part in zip(group.context.roles, joined.parts, strict=False) if not is_shared(group.context, role)
        )
        self._largest = max(self._largest, sum(sizes))
        return found

    def _together(self, groups: Sequence[Group]) -> tuple[Joined, IntArray] | None:
        if self._alone or len(groups) == 1 or any(len(group.partitions) != 1 for group in groups):
            return None
        try:
            return _joined(self._loader, groups[0].context, [group.partitions[0] for group in groups], _SPARE * self._room)
        except TooLarge:  # than those before
            return None


def _suits(context: GroupContext) -> bool:
    """Whether all rows of each partition are needed, so that their number says how much is read."""
    filtered = any(role.restricts or any(c.column not in context.partition_columns for c in role.clauses) for role in context.roles)
    return is_ordered(context) and not filtered and bool(context.partition_columns)


def _runs(groups: Sequence[Group]) -> list[list[Group]]:
    """Neighbours that do not differ in the files that they share with others: only these can be joined together."""
    context = groups[0].context
    shared = [role.id for role in context.roles if is_shared(context, role)]

    def files(group: Group) -> list[tuple[str, ...]]:
        return [part.files.get(i, _NONE).keys for part in group.partitions for i in shared]

    return [list(run) for _, run in groupby(groups, files)] if shared and len(groups) > 1 else [list(groups)]


def _joined(loader: Loader, context: GroupContext, parts: Sequence[GroupPartition], room: int) -> tuple[Joined, IntArray]:
    """The rows of several partitions, and how many each of them has."""
    seed_role, *roles = context.roles
    # Partition columns are not read, so that the number of the partition can have the name of one.
    number, cells = context.partition_columns[0], context.cell_columns
    seed = newest_rows(_numbered(loader, context, seed_role, parts, room), (number, *seed_role.dimensions))
    seed = newest_rows(seed, (number, *cells)) if set(seed_role.dimensions) - set(cells) else seed
    others = (_other(loader, context, role, parts, room) for role in roles)
    joined = join_cells(seed, (number, *cells), (), others, {})
    numbers = seed.column(number)
    return _with_values(joined, context, parts, numbers), np.bincount(numbers.to_numpy(), minlength=len(parts))


def _other(loader: Loader, context: GroupContext, role: DatasetRole, parts: Sequence[GroupPartition], room: int) -> Joinable:
    if is_shared(context, role):
        return loader.other(context, role, parts[0].files.get(role.id), clauses_of(role, parts[0], {}), shared=True)
    return Joinable(_numbered(loader, context, role, parts, room), (context.partition_columns[0], *role.dimensions))


def _numbered(loader: Loader, context: GroupContext, role: DatasetRole, parts: Sequence[GroupPartition], room: int) -> pa.Table:
    """The rows of a dataset in all of these partitions, with the number of the partition in a column that has the name of a partition column."""
    table, counts = loader.read_all(context, role, [part.files.get(role.id, _NONE) for part in parts], room)
    return table.append_column(context.partition_columns[0], pa.array(np.repeat(np.arange(len(parts)), counts)))


def _with_values(joined: Joined, context: GroupContext, parts: Sequence[GroupPartition], numbers: pa.ChunkedArray) -> Joined:
    """The same with the values of the partition columns instead of the number."""
    if not joined.rows:
        return joined
    tables = [_without(part.table, context.partition_columns[0]) for part in joined.parts]
    # In the order of the schema, as in the parts that are joined alone: all of them become one table.
    columns = [c for c in context.schema.names if c in context.partition_columns]
    for column in columns:
        field = context.schema.field(column)
        values = pc.take(pa.array([part.values[column] for part in parts], field.type), numbers, boundscheck=False)
        tables[0] = tables[0].append_column(field, values)
    found = tuple(Part(table, part.positions) for table, part in zip(tables, joined.parts, strict=True))
    return Joined(joined.rows, found, {**joined.owners, **dict.fromkeys(columns, 0)})


def _without(table: pa.Table, column: str) -> pa.Table:
    return table.drop_columns(column) if column in table.column_names else table


def _apart(joined: Joined, counts: IntArray, schema: pa.Schema) -> list[pa.Table]:
    table, ends = joined.table(schema), np.cumsum(counts).tolist()
    return [table.slice(begin, end - begin) for begin, end in pairwise([0, *ends])]
