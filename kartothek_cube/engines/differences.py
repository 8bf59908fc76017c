"""Differences as tables that DuckDB scans: two states are pinned, each scan streams the rows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypedDict, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from kartothek_cube.core.arrow.difference import changes_schema
from kartothek_cube.core.dataset.changes import read_dataset_changes
from kartothek_cube.core.metadata.naming import SINGLE_TABLE
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.runtime.options import Options
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.scan.changes import check_change_type, check_since
from kartothek_cube.core.snapshots.loader import find_snapshot
from kartothek_cube.core.snapshots.time_travel import check_as_of, snapshots_between
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.text import did_you_mean, join_names
from kartothek_cube.cube.execute.changes import iter_changes
from kartothek_cube.cube.members.discovery import check_state, read_members, seeds_of, valid_cube
from kartothek_cube.cube.query.intention import QueryArguments
from kartothek_cube.cube.query.planning import plan_states
from kartothek_cube.engines.arrow_dataset import TableScanner
from kartothek_cube.engines.catalog import list_tables
from kartothek_cube.errors import DatasetNotFound, InvalidInput, InvalidType
from kartothek_cube.typing import AsOf, Columns, CubeState, IntoConditions

__all__ = ["FUNCTION", "DifferenceDataset", "given_states", "open_difference"]

FUNCTION = "kartothek_changes"
"""The table function of SQL."""

_VERB = "connect"
_SIGNATURE = f"{FUNCTION}(name, since => …, until => …, on_columns => […])"


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
    """What a call of the table function says."""

    since: CubeState
    until: AsOf | None
    on: Columns


def given_states(call: str, arguments: Sequence[tuple[str, object]]) -> tuple[str, States]:
    """The name and the states of a call of the table function.

    Raises
    ------
    InvalidInput
        If the call has other arguments.

    Examples
    --------
    >>> given_states("…", [("", "sales"), ("since", dt.date(2024, 5, 1)), ("on_columns", ["SHOP"])])
    ('sales', {'since': '2024-05-01', 'on': ['SHOP']})
    """
    named = {"on" if name == "on_columns" else name: value for name, value in arguments}
    if [name for name, _ in arguments].count("") != 1 or len(named) < len(arguments):
        raise InvalidInput(
            f"{call}: the cube or dataset is the argument without a name, each other comes once: {_SIGNATURE}."
        )
    unknown = named.keys() - {"", "since", "until", "on"}
    if unknown:
        names = ("since", "until", "on_columns")
        raise InvalidInput(
            f"{call}: there is no argument {join_names(unknown)}.{did_you_mean(unknown, names)} It is {_SIGNATURE}."
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
) -> DifferenceDataset:
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
            if on is not None:
                raise InvalidInput(f"{name!r} is a cube, whose cells are the keys: on is for datasets.")
            cube = valid_cube(name, members if until is None else read_members(name, store, as_of=until))
            return _of_cube(QueryArguments(cube, conditions, as_of=until), since, store, options)
        snapshot = find_snapshot(store, name)
        if snapshot is None:
            names = list_tables(store)
            raise DatasetNotFound(
                f"There is no cube or dataset {name!r} in the store {store.name}. "
                f"It has: {join_names(names)}.{did_you_mean([name], names)}"
            )
        if conditions is not None:
            raise InvalidInput(f"{name!r} is a dataset, and conditions are for cubes: filter the result.")
        return _of_dataset(snapshot, since, until, on, store, options)


def _of_cube(arguments: QueryArguments, since: CubeState, store: Store, options: Options) -> DifferenceDataset:
    prefix = arguments.cube.uuid_prefix
    before, after = plan_states(arguments, since, store)
    check_change_type(after.plan.schema.names, f"Cube {prefix!r}")

    def tables() -> Iterator[pa.Table]:
        with operation(_VERB, options, cube=prefix) as op:
            return op.lasting(iter_changes(before, after, store))

    return DifferenceDataset(changes_schema(after.plan.schema), tables)


def _of_dataset(
    snapshot: Snapshot, since: CubeState, until: AsOf | None, on: Columns, store: Store, options: Options
) -> DifferenceDataset:
    pinned = snapshots_between(store, snapshot, check_since(since), check_as_of(until, "until"))
    table = SINGLE_TABLE if SINGLE_TABLE in pinned.after.tables else pinned.after.tables[0]
    first, last = pinned.before.commit or check_since(since), pinned.after.commit or until

    def reader() -> pa.RecordBatchReader:
        return read_dataset_changes(snapshot.uuid, store, first, last, on=on, table=table)

    def tables() -> Iterator[pa.Table]:
        with operation(_VERB, options) as op:
            return op.lasting(pa.Table.from_batches([batch]) for batch in reader())

    with reader() as planned:
        return DifferenceDataset(planned.schema, tables)
