"""Differences of two pinned states, for the SQL of DuckDB and of Spark: their rows, or counts."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypedDict, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from kartothek_cube.core.arguments import did_you_mean, join_names
from kartothek_cube.core.arrow.difference import CHANGE_TYPE, changes_schema
from kartothek_cube.core.dataset.history import read_dataset_changes
from kartothek_cube.core.display import KINDS
from kartothek_cube.core.metadata.naming import SINGLE_TABLE
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.runtime.options import Options
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.scan.plan import check_change_type, check_since, without_files
from kartothek_cube.core.snapshots.loader import find_snapshot
from kartothek_cube.core.snapshots.time_travel import check_as_of, snapshots_between
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.cube.cube import Cube, visible_columns
from kartothek_cube.cube.execute.run import iter_changes, iter_dataset_changes
from kartothek_cube.cube.members import check_state, load_states, read_members, seeds_of, valid_cube
from kartothek_cube.cube.query.intention import QueryArguments
from kartothek_cube.cube.query.plan import with_types_of
from kartothek_cube.cube.query.planning import plan_states
from kartothek_cube.cube.verbs.describe import describe_cube_changes
from kartothek_cube.engines.arrow_dataset import TableScanner
from kartothek_cube.engines.catalog import list_tables
from kartothek_cube.errors import DatasetNotFound, InvalidInput, InvalidType
from kartothek_cube.typing import AsOf, Columns, CubeState, IntoConditions

__all__ = [
    "COUNTS",
    "FUNCTIONS",
    "Difference",
    "DifferenceDataset",
    "States",
    "check_no_key",
    "cube_difference",
    "dataset_difference",
    "function_of",
    "given_states",
    "member_difference",
    "open_difference",
]

COUNTS = pa.schema([("dataset", pa.string()), *((kind, pa.int64()) for kind in KINDS)])
"""The columns of counts."""

FUNCTIONS = ("kartothek_changes", "kartothek_change_counts")
"""The table functions of SQL, for the rows and for counts of them."""

_VERB = "connect"
_ARGUMENTS = "(name, since => …, until => …, on_columns => […])"


@dataclass(frozen=True, slots=True)
class Difference:
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


class DifferenceDataset(pads.Dataset):
    """A difference as DuckDB takes it: a dataset of Arrow, of which each scan is a new stream.

    All columns are compared whatever a scan wants: without a column, there are fewer changes.
    """

    def __init__(self, schema: pa.Schema, tables: Callable[[], Iterable[pa.Table]]) -> None:
        # Without the initializer of the base class, which allows none but Arrow's own datasets.
        self._schema, self._tables = schema, tables

    @property
    def schema(self) -> pa.Schema:
        """The column ``_change_type``, and those of the rows."""
        return self._schema

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - Arrow's name, which DuckDB uses
        **_: Any,
    ) -> TableScanner:
        """Some columns of the rows that satisfy an expression."""
        return TableScanner(
            self._schema, list(self._schema.names if columns is None else columns), self._tables, filter
        )


class States(TypedDict, total=False):
    """What a call of a table function says."""

    since: CubeState
    until: AsOf | None
    on: Columns


def function_of(call: str) -> str:
    """The table function that a call names.

    Examples
    --------
    >>> function_of("Kartothek_Changes ('sales', since => '2024-05-01')")
    'kartothek_changes'
    """
    return next(function for function in FUNCTIONS if call.lstrip('"').lower().startswith(function))


def given_states(call: str, arguments: Sequence[tuple[str, object]]) -> tuple[str, States]:
    """The name and the states of a call of a table function.

    Raises
    ------
    InvalidInput
        If the call has other arguments.

    Examples
    --------
    >>> given = [("", "sales"), ("since", dt.date(2024, 5, 1)), ("on_columns", ["SHOP"])]
    >>> given_states("kartothek_changes(…)", given)
    ('sales', {'since': '2024-05-01', 'on': ['SHOP']})
    """
    signature = function_of(call) + _ARGUMENTS
    named = {"on" if name == "on_columns" else name: value for name, value in arguments}
    if [name for name, _ in arguments].count("") != 1 or len(named) < len(arguments):
        raise InvalidInput(
            f"{call}: the cube or dataset is the argument without a name, each other comes once: {signature}."
        )
    unknown = named.keys() - {"", "since", "until", "on"}
    if unknown:
        names = ("since", "until", "on_columns")
        raise InvalidInput(
            f"{call}: there is no argument {join_names(unknown)}.{did_you_mean(unknown, names)} It is {signature}."
        )
    if named.get("since") is None:
        raise InvalidInput(f"{call} lacks since => the commit or the moment of the older state.")
    days = {name: value.isoformat() for name, value in named.items() if type(value) is dt.date}
    states = {**named, **days}
    return cast("str", states.pop("")), cast("States", states)


def open_difference(
    name: str,
    store: Store,
    options: Options,
    *,
    since: CubeState,
    until: AsOf | None = None,
    conditions: IntoConditions = None,
    on: Columns = None,
) -> Difference:
    """Pin two states of a cube, else of a dataset; errors as of `query_cube_changes`.

    Raises
    ------
    DatasetNotFound
        If the store has neither; the message has the names that may be meant.
    """
    if not isinstance(name, str):
        raise InvalidType(f"The prefix of a cube or the uuid of a dataset is a text, not {name!r}.")
    with operation(_VERB, options):
        check_state(until, "until")
        members = read_members(name, store)
        if seeds_of(members):
            check_no_key(name, on)
            cube = valid_cube(name, members if until is None else read_members(name, store, as_of=until))
            return cube_difference(QueryArguments(cube, conditions, as_of=until), since, store, options)
        snapshot = find_snapshot(store, name)
        if snapshot is None:
            names = list_tables(store)
            raise DatasetNotFound(
                f"There is no cube or dataset {name!r} in the store {store.name}. "
                f"It has: {join_names(names)}.{did_you_mean([name], names)}"
            )
        if conditions is not None:
            raise InvalidInput(f"{name!r} is a dataset, and conditions are for cubes: filter the result.")
        return dataset_difference(snapshot, since, until, on, store, options)


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
        with operation(_VERB, options, cube=prefix) as op:
            return op.lasting(iter_changes(before, after, store))

    def counts() -> pa.Table:
        with operation(_VERB, options, cube=prefix):
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
        with operation(_VERB, options, cube=cube.uuid_prefix) as op:
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
        with operation(_VERB, options) as op:
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
