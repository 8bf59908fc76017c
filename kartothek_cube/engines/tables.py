"""Cubes and datasets in one state, as tables that an engine scans.

Planning a scan reads indices, running it data files.

In order:

- tables
- finding cubes and datasets by name
- what came between two states, as rows and as counts
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from msgspec import Struct
from msgspec.structs import replace

from kartothek_cube.core.arguments import converter_str_tupleset, did_you_mean, join_names
from kartothek_cube.core.arrow.difference import CHANGE_TYPE, changes_schema
from kartothek_cube.core.dataset.history import read_dataset_changes
from kartothek_cube.core.dataset.maintain import list_datasets
from kartothek_cube.core.dataset.read import ScanPlan
from kartothek_cube.core.display import KINDS, predicates_text
from kartothek_cube.core.expressions.conditions import conditions_of
from kartothek_cube.core.expressions.filters import is_alike
from kartothek_cube.core.expressions.predicates import Clause, columns_of
from kartothek_cube.core.io.reader import FileRequest, file_rows
from kartothek_cube.core.metadata.naming import SINGLE_TABLE, check_uuid
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.runtime.executor import READ_FILES, map_in_threads
from kartothek_cube.core.runtime.options import Options
from kartothek_cube.core.runtime.telemetry import AnyOperation, name_dataset, operation
from kartothek_cube.core.scan.execute import filtered_at_once, stream_tables, stream_together
from kartothek_cube.core.scan.plan import (
    ScanTask,
    check_change_type,
    check_since,
    check_table,
    make_file_plan,
    without_files,
)
from kartothek_cube.core.snapshots.loader import find_snapshot
from kartothek_cube.core.snapshots.statistics import extents_of_files
from kartothek_cube.core.snapshots.time_travel import check_as_of, load_snapshot_as_of, snapshot_at, snapshots_between
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.cube.consistent_read import infos_of
from kartothek_cube.cube.cube import Cube, get_payload_subset, prefix_of, require_cube, visible_columns
from kartothek_cube.cube.execute.run import count_planned, iter_changes, iter_dataset_changes, iter_groups
from kartothek_cube.cube.members import load_states, prefixes_of, read_members, require_members, seeds_of, valid_cube
from kartothek_cube.cube.query.intention import QueryArguments, make_intention
from kartothek_cube.cube.query.plan import QueryPlan, with_types_of
from kartothek_cube.cube.query.planning import load_members_of, plan_members, plan_states
from kartothek_cube.cube.verbs.describe import describe_cube_changes
from kartothek_cube.errors import DatasetNotFound, InvalidInput
from kartothek_cube.typing import AsOf, Columns, CubeState, IntoDatasets

# Rows of about so many bytes go to an engine at once.
_MERGED_BYTES, _LARGE_BYTES = 4 * 2**20, 2**20
# A column for the positions of files: no column of a dataset has an empty name.
_POSITION = ""


def _merged(tables: Generator[pa.Table, None, None]) -> Generator[pa.Table, None, None]:
    """The same rows in fewer tables: each costs an engine as much as some thousand rows."""
    waiting, nbytes, seen = list[pa.Table](), 0, 0
    with closing(tables):
        for table in tables:
            size = table.nbytes
            is_large = size >= _LARGE_BYTES * max((c.num_chunks for c in table.columns[:1]), default=1)
            if is_large and waiting:  # so many bytes are not worth a copy
                yield pa.concat_tables(waiting).combine_chunks()
                seen, waiting, nbytes = seen + nbytes, [], 0
            waiting.append(table)
            nbytes += size
            # Never more than came before: the first rows do not wait for many files.
            if is_large or nbytes >= min(_MERGED_BYTES, seen):
                yield pa.concat_tables(waiting).combine_chunks() if waiting[1:] else table
                seen, waiting, nbytes = seen + nbytes, [], 0
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()


class Scan(ABC):
    """A planned scan: columns and conditions are chosen, no data file is read.

    Attributes
    ----------
    table : Table
        What is scanned.
    columns : tuple of str
        The columns of the rows, in order.
    clauses : tuple of Clause
        What all rows satisfy.
    plan : QueryPlan or ScanPlan
        The files to read, and why.
    """

    plan: QueryPlan | ScanPlan

    def __init__(self, table: Table, columns: Sequence[str], clauses: Sequence[Clause]) -> None:
        self.table, self.columns, self.clauses = table, tuple(columns), tuple(clauses)

    @property
    def schema(self) -> pa.Schema:
        """Columns and types of the rows."""
        return pa.schema([self.table.schema.field(c) for c in self.columns])

    @property
    def detail(self) -> str:
        """Files and conditions in one line."""
        conditions = predicates_text((self.clauses,)) if self.clauses else "none"
        return f"{self._files()}; conditions: {conditions}"

    def tables(self, limit: int | None = None) -> Iterator[pa.Table]:
        """The rows, at most ``limit`` of them, with bounded memory.

        Raises
        ------
        KeyNotFound
            At a file that has been removed since the table was opened.
        """
        with self.table.operation() as op:
            return op.lasting(_merged(self._limited(self._rows(), limit)))

    def _limited(self, rows: Generator[pa.Table, None, None], limit: int | None) -> Generator[pa.Table, None, None]:
        with closing(rows):  # stops the threads that read ahead
            left = limit
            while left != 0 and (table := next(rows, None)) is not None:
                table = table if left is None else table.slice(0, left)
                left = left if left is None else left - table.num_rows
                yield table.select(list(self.columns))

    def count(self) -> int:
        """The number of rows; errors as of `tables`."""
        with self.table.operation():
            return self._count()

    @abstractmethod
    def by_partition(self) -> tuple[pa.Table, Sequence[Scan]]:
        """Scans that share the work: one for each combination of values of the partition columns.

        The table has the values, one row for each scan. A dataset without partition columns has one
        scan for each file.
        """

    @abstractmethod
    def _files(self) -> str:
        """The files to read and the files there are, in words."""

    @abstractmethod
    def _rows(self) -> Generator[pa.Table, None, None]:
        """The rows, with these and maybe more columns."""

    @abstractmethod
    def _count(self) -> int:
        """The number of rows."""


class Table(ABC):
    """A cube or a dataset in one state. Safe for threads.

    Attributes
    ----------
    name, kind : str
        The prefix of a ``"cube"``, or the uuid of a ``"dataset"``.
    store : Store
        Where the files are.
    schema : pyarrow.Schema
        All columns.
    partition_columns : tuple of str
        Columns with one value in each file.
    options : Options
        Those of the call that has opened it.
    """

    kind: str
    partition_columns: tuple[str, ...]

    def __init__(self, name: str, store: Store, schema: pa.Schema, verb: str, options: Options) -> None:
        self.name, self.store, self.schema = name, store, schema
        self._verb, self.options = verb, options

    @contextmanager
    def operation(self) -> Iterator[AnyOperation]:
        """The context of work for the table: the options of its call, a record in the log."""
        with operation(self._verb, self.options, cube=self.name if self.kind == "cube" else None) as op:
            name_dataset(self.name)
            yield op

    def is_same_state(self, other: Table) -> bool:
        """Whether another table of this name certainly has the same files."""
        mine, others = self.snapshots, other.snapshots
        return mine.keys() == others.keys() and all(mine[i].is_same_state(others[i]) for i in mine)

    @property
    @abstractmethod
    def snapshots(self) -> Mapping[str, Snapshot]:
        """The snapshots of its datasets."""

    @abstractmethod
    def accepts(self, clause: Clause) -> bool:
        """Whether a scan takes the clause: its constants fit its column."""

    @abstractmethod
    def partition_values(self, column: str) -> pa.Array | None:
        """The distinct values of a partition column; None for any other column."""

    @abstractmethod
    def scan(self, columns: Sequence[str], clauses: Sequence[Clause] = ()) -> Scan:
        """Plan a scan of these columns, for the rows that satisfy all clauses."""


# --- cubes ----------------------------------------------------------------------------------------


class CubeTable(Table):
    """A cube in one state: one row a cell."""

    kind = "cube"

    def __init__(
        self,
        cube: Cube,
        members: Mapping[str, Snapshot],
        store: Store,
        verb: str,
        options: Options,
        dimension_columns: tuple[str, ...] | None = None,
    ) -> None:
        self._cube, self._members, self._infos = cube, members, infos_of(members)
        self._dimensions = dimension_columns
        schema = make_intention(self._query(self._payload(), ()), self._infos).schema
        super().__init__(cube.uuid_prefix, store, schema, verb, options)
        self.partition_columns = tuple(cube.partition_columns)

    @property
    def snapshots(self) -> Mapping[str, Snapshot]:
        """The snapshots of the cube's datasets."""
        return self._members

    def _payload(self) -> set[str]:
        """The payload that cells with these dimensions have once."""
        kept = set(self._cube.dimension_columns if self._dimensions is None else self._dimensions)
        dropped = set(self._cube.dimension_columns) - kept
        whole = (info.columns for info in self._infos.values() if dropped.isdisjoint(info.columns))
        return get_payload_subset({column for columns in whole for column in columns}, self._cube)

    def _query(self, payload: Collection[str], clauses: Sequence[Clause]) -> QueryArguments:
        return QueryArguments(self._cube, conditions_of(clauses), None, self._dimensions, None, sorted(payload))

    def accepts(self, clause: Clause) -> bool:
        """Whether a query of the cube takes the clause as a condition."""
        column = clause.column
        types = [i.schema.field(column).type for i in self._infos.values() if column in i.schema.names]
        return clause.value is not None and all(is_alike(clause, data_type) for data_type in types)

    def partition_values(self, column: str) -> pa.Array | None:
        """The distinct values of a partition column of the cube."""
        if column not in self._cube.partition_columns:
            return None
        return self._members[self._cube.seed_dataset].values.column(column).unique()

    def scan(self, columns: Sequence[str], clauses: Sequence[Clause] = ()) -> CubeScan:
        """Plan a query of the cube."""
        payload = get_payload_subset(set(columns), self._cube)
        with self.operation():
            plan = plan_members(self._query(payload, clauses), self._members, self.store)
        return CubeScan(self, columns, clauses, plan, {i: len(s.partitions) for i, s in self._members.items()})


class CubeScan(Scan):
    """The planned query of a cube."""

    plan: QueryPlan

    def __init__(
        self,
        table: Table,
        columns: Sequence[str],
        clauses: Sequence[Clause],
        plan: QueryPlan,
        totals: Mapping[str, int],
    ) -> None:
        super().__init__(table, columns, clauses)
        self.plan, self._totals = plan, totals

    def by_partition(self) -> tuple[pa.Table, Sequence[CubeScan]]:
        """One scan for each partition of the cube."""
        plans = [replace(self.plan, group_offsets=np.array(ends)) for ends in pairwise(self.plan.group_offsets)]
        scans = [CubeScan(self.table, self.columns, self.clauses, plan, self._totals) for plan in plans]
        return self.plan.group_keys(), scans

    def _files(self) -> str:
        return ", ".join(f"{i} {n} of {self._totals[i]} files" for i, n in self.plan.file_counts().items())

    def _rows(self) -> Generator[pa.Table, None, None]:
        return (table for _, table in iter_groups(self.plan, self.table.store))

    def _count(self) -> int:
        return count_planned(self.plan, self.table.snapshots, self.table.store)


# --- datasets -------------------------------------------------------------------------------------


class DatasetTable(Table):
    """One table of a dataset in one state."""

    kind = "dataset"

    def __init__(self, snapshot: Snapshot, table: str, store: Store, verb: str, options: Options) -> None:
        super().__init__(snapshot.uuid, store, snapshot.schemas[table], verb, options)
        self._snapshot, self._table = snapshot, table
        self.partition_columns = tuple(snapshot.partition_keys)

    @property
    def snapshots(self) -> Mapping[str, Snapshot]:
        """The snapshot of the dataset."""
        return {self.name: self._snapshot}

    def accepts(self, clause: Clause) -> bool:
        """Whether a predicate on the dataset may be this clause."""
        return is_alike(clause, self.schema.field(clause.column).type)

    def partition_values(self, column: str) -> pa.Array | None:
        """The distinct values of a partition key."""
        return self._snapshot.values.column(column).unique() if column in self._snapshot.partition_keys else None

    def scan(self, columns: Sequence[str], clauses: Sequence[Clause] = ()) -> DatasetScan:
        """Plan a read of the table."""
        snapshot, predicates = self._snapshot, (tuple(clauses),) if clauses else None
        with self.operation():
            files = make_file_plan(self.store, snapshot, self._table, list(columns), predicates)
        indexed = tuple(sorted(snapshot.pruning_columns))
        return DatasetScan(
            self, columns, clauses, ScanPlan(snapshot.uuid, self._table, snapshot.partition_keys, indexed, files)
        )


class DatasetScan(Scan):
    """The planned read of a dataset."""

    plan: ScanPlan

    def __init__(self, table: Table, columns: Sequence[str], clauses: Sequence[Clause], plan: ScanPlan) -> None:
        super().__init__(table, columns, clauses)
        self.plan = plan

    def by_partition(self) -> tuple[pa.Table, Sequence[DatasetScan]]:
        """One scan for each combination of partition values; without partition keys, each file."""
        files = self.plan.scan
        keys, names = files.values, files.values.column_names
        positions = [[i] for i in range(len(files))]
        if names:
            numbered = files.values.append_column(_POSITION, pa.array(range(len(files)), pa.int64()))
            grouped = numbered.group_by(names, use_threads=False).aggregate([(_POSITION, "list")])
            keys, positions = grouped.select(names), grouped.column(f"{_POSITION}_list").to_pylist()
        plans = [replace(self.plan, scan=files.take(np.array(found))) for found in positions]
        return keys, [DatasetScan(self.table, self.columns, self.clauses, plan) for plan in plans]

    def _files(self) -> str:
        return f"{len(self.plan)} of {self.plan.scan.total} files"

    def local_files(self) -> list[str]:
        """Paths of Parquet files that have exactly the rows, or none.

        An engine may read them itself: the partition values are in their paths, and `tables_after`
        reads what an engine cannot.
        """
        keys, store = self.plan.files(), self.table.store
        partition_keys = self.plan.partition_keys
        places = "".join(f"{re.escape(c)}=[A-Za-z0-9_-]+/" for c in partition_keys)
        is_plain = re.compile(rf"[^=]+/{re.escape(self.plan.table)}/{places}[^=/]+\.parquet").fullmatch
        types = (self.table.schema.field(c).type for c in partition_keys)
        if (
            self._request().predicates is not None
            or store.is_remote
            or not all(pt.is_integer(t) or pt.is_string(t) or pt.is_date32(t) for t in types)
            or not all(map(is_plain, keys))
        ):
            return []
        paths = [path for path in map(store.local_path, keys) if path is not None]
        # Polars takes all folders with `=` as partitions, also those above the store.
        is_root_plain = bool(paths) and "=" not in paths[0].removesuffix(keys[0])
        return paths if is_root_plain and len(paths) == len(keys) else []

    def tables_after(self, files: int) -> Iterator[pa.Table]:
        """The rows of all `local_files` but the first ones; errors as of `tables`."""
        with self.table.operation() as op:
            return op.lasting(_merged(self._read(self.plan.scan.tasks()[files:])))

    def _request(self) -> FileRequest:
        """What to read of each file: planning has applied conditions on partition keys."""
        request = self.plan.scan.request
        is_applied = columns_of(request.predicates) <= set(self.plan.partition_keys)
        return replace(request, predicates=None) if is_applied else request

    def _rows(self) -> Generator[pa.Table, None, None]:
        return self._read(self.plan.scan.tasks())

    def _read(self, tasks: Sequence[ScanTask]) -> Generator[pa.Table, None, None]:
        store, request = self.table.store, self._request()
        at_once = 0 if request.predicates is None else filtered_at_once(store, request, tasks)
        # Requests to a remote store run in parallel: no file has to wait for another.
        if store.is_remote or (request.predicates is not None and at_once < 2):
            return stream_tables(store, request, tasks)
        return stream_together(store, request, tasks, at_once, grows=True)

    def _count(self) -> int:
        request = self._request()
        if request.predicates is not None:
            return sum(table.num_rows for table in self._rows())

        def count(key: str) -> int:
            return file_rows(self.table.store, key, request.dataset)

        (snapshot,), files = self.table.snapshots.values(), self.plan.scan.files
        known = extents_of_files(self.table.store, snapshot, files).rows
        unknown = files.filter(known.is_null()).to_pylist()
        counted: int = pc.sum(known, min_count=0).as_py()
        return counted + sum(map_in_threads(count, unknown, store=self.table.store, phase=READ_FILES))


# --- finding cubes and datasets by name -----------------------------------------------------------


def open_cube_table(
    cube: Cube | str,
    store: Store,
    verb: str,
    options: Options,
    *,
    datasets: IntoDatasets = None,
    dimension_columns: Columns = None,
    as_of: AsOf | None = None,
) -> CubeTable:
    """Pin a cube, given as a `Cube` or by its prefix; errors as of `query_cube`.

    Raises
    ------
    InvalidInput
        If the store has no such cube; the message has the names that may be meant.
    """
    if not isinstance(cube, str):
        members = load_members_of(QueryArguments(require_cube(cube), datasets=datasets, as_of=as_of), store)
    else:
        members = require_members(prefix_of(cube), store, as_of)
        cube = valid_cube(cube, members)
        if datasets is not None:
            members = load_members_of(QueryArguments(cube, datasets=datasets, as_of=as_of), store)
    dimensions = None if dimension_columns is None else converter_str_tupleset(dimension_columns)
    return CubeTable(cube, members, store, verb, options, dimensions)


def open_dataset_table(
    dataset_uuid: str,
    store: Store,
    verb: str,
    options: Options,
    *,
    table: str = SINGLE_TABLE,
    as_of: AsOf | None = None,
) -> DatasetTable:
    """Pin one table of a dataset.

    Raises
    ------
    DatasetNotFound
        If the store has no such dataset; the message has the names that may be meant.
    KeyNotFound, InvalidInput
        If the dataset has no such table, or its history does not reach back to ``as_of``.
    """
    try:
        snapshot = load_snapshot_as_of(store, check_uuid(dataset_uuid), as_of)
    except DatasetNotFound as error:
        uuids = list_datasets(store)
        raise DatasetNotFound(f"{error} There are: {join_names(uuids)}.{did_you_mean([dataset_uuid], uuids)}") from None
    check_table(snapshot, table)
    return DatasetTable(snapshot, table, store, verb, options)


def find_table(name: str, store: Store, verb: str, options: Options, as_of: AsOf | None = None) -> Table | None:
    """The cube with this prefix, else the dataset with this uuid; None if there is neither."""
    members = read_members(name, store)
    if seeds_of(members):
        members = members if as_of is None else read_members(name, store, as_of=as_of)
        return CubeTable(valid_cube(name, members), members, store, verb, options)
    snapshot = find_snapshot(store, name)
    if snapshot is None:
        return None
    target = check_as_of(as_of)
    if target is not None:
        snapshot = snapshot_at(store, snapshot, target)
    table = SINGLE_TABLE if SINGLE_TABLE in snapshot.tables else snapshot.tables[0]
    return DatasetTable(snapshot, table, store, verb, options)


def list_tables(store: Store) -> list[str]:
    """Prefixes of the cubes and uuids of the datasets in a store; one listing."""
    uuids = list_datasets(store)
    return sorted({*prefixes_of(uuids), *uuids})


# --- what came between two states -----------------------------------------------------------------


COUNTS = pa.schema([("dataset", pa.string()), *((kind, pa.int64()) for kind in KINDS)])
"""The columns of counts."""


FUNCTIONS = ("kartothek_changes", "kartothek_change_counts")
"""The table functions of SQL, for the rows and for counts of them."""

_DIFFERENCE_VERB = "connect"


class Difference(Struct, frozen=True):
    """What changed between two states, which are pinned.

    Attributes
    ----------
    schema : pyarrow.Schema
        The column ``_change_type``, and those of the rows.
    tables : Callable
        Starts a new stream of the rows.
    counts : Callable
        Counts the rows by dataset, in the columns `COUNTS`. ``updated`` is null without keys.
    until : str, datetime or mapping, optional
        The later state.
    """

    schema: pa.Schema
    tables: Callable[[], Iterator[pa.Table]]
    counts: Callable[[], pa.Table]
    until: CubeState | None


def check_no_key(name: str, on: Columns) -> None:
    """Raise if the cells of a cube should have another key."""
    if on is not None:
        raise InvalidInput(f"{name!r} is a cube, whose cells are the keys: on is for datasets.")


def cube_difference(arguments: QueryArguments, since: CubeState, store: Store, options: Options) -> Difference:
    """Pin two states of a query."""
    prefix = arguments.cube.uuid_prefix
    before, after = plan_states(arguments, since, store)
    check_change_type(after.plan.schema.names, f"Cube {prefix!r}")
    until = after.plan.commits

    def tables() -> Iterator[pa.Table]:
        with operation(_DIFFERENCE_VERB, options, cube=prefix) as op:
            return op.lasting(iter_changes(before, after, store))

    def counts() -> pa.Table:
        with operation(_DIFFERENCE_VERB, options, cube=prefix):
            return describe_cube_changes(arguments.cube, store, since, until, rows=0).counts

    return Difference(changes_schema(after.plan.schema), tables, counts, until)


def member_difference(
    cube: Cube, dataset: str, since: CubeState, until: CubeState | None, store: Store, options: Options
) -> Difference:
    """Pin two states of the cells of one dataset of a cube.

    Raises
    ------
    DatasetNotFound
        If the cube has no such dataset.
    """
    context = f"Dataset {dataset!r} of cube {cube.uuid_prefix!r}"
    then, now = load_states(cube, store, None, since, until)
    if dataset not in now:
        raise DatasetNotFound(
            f"Cube {cube.uuid_prefix!r} has no dataset {dataset!r}. It has: {join_names(now)}."
            f"{did_you_mean([dataset], now)}"
        )
    after = with_types_of(now, then)[dataset]
    before = then.get(dataset) or without_files(after)
    names = visible_columns(after.schema.names)
    check_change_type(names, context)
    schema = changes_schema(pa.schema([(name, after.schema.field(name).type) for name in names]))

    def tables() -> Iterator[pa.Table]:
        with operation(_DIFFERENCE_VERB, options, cube=cube.uuid_prefix) as op:
            found = iter_dataset_changes(cube, before, after, store)
            return op.lasting(part for each in found for part in (each.updates(schema), each.others(schema)))

    pinned = {i: snapshot.commit for i, snapshot in now.items()}
    return Difference(schema, tables, partial(_counted, dataset, tables, True), pinned)


def dataset_difference(
    snapshot: Snapshot, since: CubeState, until: CubeState | None, on: Columns, store: Store, options: Options
) -> Difference:
    """Pin two states of a dataset."""
    end = check_as_of(until, "until")
    pinned = snapshots_between(store, snapshot, check_since(since), end)
    table = SINGLE_TABLE if SINGLE_TABLE in pinned.after.tables else pinned.after.tables[0]
    first, last = pinned.before.commit or check_since(since), pinned.after.commit or end

    def reader() -> pa.RecordBatchReader:
        return read_dataset_changes(snapshot.uuid, store, first, last, on=on, table=table)

    def tables() -> Iterator[pa.Table]:
        with operation(_DIFFERENCE_VERB, options) as op:
            return op.lasting(pa.Table.from_batches([batch]) for batch in reader())

    with reader() as planned:
        return Difference(planned.schema, tables, partial(_counted, snapshot.uuid, tables, on is not None), last)


def _counted(name: str, tables: Callable[[], Iterable[pa.Table]], has_keys: bool) -> pa.Table:
    kinds: Counter[str] = Counter()
    for table in tables():
        for row in pc.value_counts(table.column(CHANGE_TYPE)).to_pylist():
            kinds[row["values"]] += row["counts"]
    # Without a key nothing says which rows are updates of which.
    updated = kinds["update_postimage"] if has_keys else None
    return pa.table([[name], [kinds["insert"]], [updated], [kinds["delete"]]], schema=COUNTS)
