"""A connection of DuckDB in which the cubes and datasets of a store are tables.

They are renewed before each statement.

In order:

- what DuckDB's own parser says about a text
- differences of two pinned states, for DuckDB and Spark
- the connection
"""

from __future__ import annotations

import datetime as dt
import json
import re
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from functools import partial, wraps
from itertools import count, pairwise
from typing import TYPE_CHECKING, Any, Self, TypedDict, TypeVar, cast

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
from msgspec import Struct

from kartothek_cube.core.arguments import did_you_mean, join_names
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.runtime.options import Options
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.snapshots.loader import find_snapshot
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.cube.members import check_state, read_members, seeds_of, valid_cube
from kartothek_cube.cube.query.intention import QueryArguments
from kartothek_cube.engines.arrow_dataset import TableDataset, TableScanner
from kartothek_cube.engines.tables import (
    COUNTS,
    FUNCTIONS,
    Difference,
    Scan,
    Table,
    check_no_key,
    cube_difference,
    dataset_difference,
    find_table,
    list_tables,
)
from kartothek_cube.errors import DatasetNotFound, InvalidInput, InvalidType, KartothekCubeError
from kartothek_cube.typing import AsOf, Columns, CubeState, IntoConditions

_WORD = re.compile(r'"(?:[^"]|"")+"|\w+')
_NAME = r'(?:"(?:[^"]|"")+"|[A-Za-z_]\w*)'
_BLANK = r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*"

# Statements that list what a database has.
_LISTING = re.compile(
    r"\b(information_schema|duckdb_(?:tables|views|columns)|sqlite_(?:master|schema)|pg_catalog|show_tables\w*)\b"
    r"|\bshow\s+(all\s+)?tables\b|^\s*(show|desc|describe)\s*;?\s*$",
    re.IGNORECASE,
)
_COUNT = re.compile(
    rf"{_BLANK}select\s+count\s*\(\s*\*?\s*\)(?:\s+as\s+(?P<alias>{_NAME}))?\s+from\s+(?P<name>{_NAME})\s*;?\s*",
    re.IGNORECASE | re.DOTALL,
)
_EXPLAIN = re.compile(
    rf"{_BLANK}explain\s+(?P<analyze>analyze\b)?\s*(?:\((?P<options>[^)]*)\))?(?P<body>.*)", re.IGNORECASE | re.DOTALL
)
_CREATE = re.compile(
    rf"{_BLANK}create\s+(?:or\s+replace\s+)?(?:temp\s+|temporary\s+|recursive\s+)*(?:table|view)\s+"
    rf"(?:if\s+not\s+exists\s+)?(?P<name>{_NAME})(?!\s*\.)",
    re.IGNORECASE | re.DOTALL,
)


# Statements that DuckDB keeps, and runs later.
_KEPT = re.compile(
    rf"{_BLANK}(?:prepare|create\b{_BLANK}(?:or\b{_BLANK}replace\b{_BLANK})?"
    rf"(?:(?:temp|temporary|recursive)\b{_BLANK})*(?:view|macro|function))\b",
    re.IGNORECASE | re.DOTALL,
)


def unquoted(identifier: str) -> str:
    """The name that an identifier of SQL stands for.

    Examples
    --------
    >>> unquoted('"sales++seed"'), unquoted("sales")
    ('sales++seed', 'sales')
    """
    return identifier[1:-1].replace('""', '"') if identifier.startswith('"') else identifier


def lists_tables(text: str) -> bool:
    """Whether a statement asks which tables there are."""
    return _LISTING.search(text) is not None


def bare_count(text: str) -> tuple[str, str] | None:
    """The table that a statement does nothing but count, and the name of the result.

    Examples
    --------
    >>> bare_count("SELECT count(*) AS n FROM sales")
    ('sales', 'n')
    >>> bare_count("SELECT count(*) FROM sales, stock") is None
    True
    """
    found = _COUNT.fullmatch(text)
    return None if found is None else (unquoted(found["name"]), found["alias"] or '"count_star()"')


def created_name(text: str) -> str | None:
    """The table or view that a statement creates, if it names no schema.

    Examples
    --------
    >>> created_name("CREATE TEMP TABLE sales AS SELECT 1 AS x")
    'sales'
    """
    found = _CREATE.match(text)
    return None if found is None else unquoted(found["name"])


def is_kept(text: str) -> bool:
    """Whether a statement makes something that runs later: a view, a macro, a prepared statement.

    Examples
    --------
    >>> is_kept("CREATE VIEW busy AS FROM sales"), is_kept("CREATE TABLE busy AS FROM sales")
    (True, False)
    """
    return _KEPT.match(text) is not None


class Explained(Struct, frozen=True):
    """An EXPLAIN: the statement that it is about, and whether it runs it."""

    body: str
    runs: bool


def explained(text: str) -> Explained | None:
    """What a statement explains; None for another statement."""
    found = _EXPLAIN.fullmatch(text)
    if found is None:
        return None
    return Explained(found["body"], found["analyze"] is not None or "analyze" in (found["options"] or "").lower())


def split(inside: duckdb.DuckDBPyConnection, text: str) -> list[str]:
    """The statements of a text, if DuckDB can tell their texts; else the text."""
    try:
        texts = [str(statement.query) for statement in inside.extract_statements(text)]
    except duckdb.Error:  # the error is raised where the text is run
        return [text]
    # Older releases make several statements without a text of a PIVOT.
    return texts if all(each.strip() for each in texts) and texts else [text]


def split_calls(text: str, functions: Collection[str]) -> list[str]:
    """A text before, at and after each call of some functions: the calls are the odd pieces.

    Examples
    --------
    >>> split_calls("FROM sales, range(f(2)) AS r -- range(1)", ["range"])
    ['FROM sales, ', 'range(f(2))', ' AS r -- range(1)']
    """
    if not any(function in text.lower() for function in functions):
        return [text]
    encoded = text.encode()  # DuckDB counts bytes
    # Older releases leave comments out: they go with the word before.
    starts = [start for start, kind in duckdb.tokenize(text) if kind != duckdb.token_type.comment]
    first, *words = [encoded[start:end].decode() for start, end in pairwise([0, *starts, len(encoded)])]
    pieces, depth = [first], 0
    for word, following in pairwise([*words, ""]):
        if len(pieces) % 2:
            named = _WORD.match(word) if following.startswith("(") else None
            if named is not None and unquoted(named[0]).lower() in functions:
                pieces.append("")
            pieces[-1] += word
        else:
            depth += (word[0] == "(") - (word[0] == ")")
            pieces[-1] += word if depth else ")"
            if not depth:
                pieces.append(word[1:])
    return pieces if len(pieces) % 2 else [text]


def parameters_of(inside: duckdb.DuckDBPyConnection, text: str) -> set[str]:
    """The names of a statement's parameters; numbers for those without a name."""
    return {name for statement in inside.extract_statements(text) for name in statement.named_parameters}


def arguments_of(
    inside: duckdb.DuckDBPyConnection, call: str, values: Mapping[str, object]
) -> list[tuple[str, object]]:
    """The names and values of the arguments of a table function; what has no name comes first.

    Raises
    ------
    InvalidInput
        For an argument that is no constant, and parameters that are not among the values.
    """
    tree = _serialized(inside, f"FROM {call}")
    if tree["error"]:
        raise InvalidInput(f"{call}: {tree['error_message']}")
    node = tree["statements"][0]["node"]
    function = node["from_table"]["function"]
    # Releases before 2 have the expressions alone.
    expressions = [e.get("expression", e) for e in function.get("children", function.get("arguments"))]
    if not expressions:
        return []
    for number, given in enumerate(expressions):
        if given["type"] == "COMPARE_EQUAL" and given["left"]["type"] == "COLUMN_REF":  # the older `name = value`
            expressions[number] = {**given["right"], "alias": given["left"]["column_names"][-1]}
    names = [given["alias"].lower() for given in expressions]
    node["select_list"] = expressions
    node["from_table"] = {"type": "EMPTY", "alias": "", "sample": None, "query_location": 0}
    with inside.cursor() as cursor:
        text = cursor.execute("SELECT json_deserialize_sql($tree)", {"tree": json.dumps(tree)}).fetchall()[0][0]
    try:
        (row,) = inside.sql(text, params=dict(values) or None).fetchall()
    except duckdb.TransactionException:
        raise
    except duckdb.Error as error:
        raise InvalidInput(
            f"The arguments of {call} are constants or parameters with a name, as $since: {error}"
        ) from error
    return list(zip(names, row, strict=True))


class QueryTree(Struct, frozen=True):
    """What a query reads: tables, functions, and whether some of these give rows."""

    tables: frozenset[str]
    functions: frozenset[str]
    has_sources: bool


def parsed(inside: duckdb.DuckDBPyConnection, text: str) -> QueryTree | None:
    """What a query reads, without looking anything up; None for statements that are no query."""
    tree = _serialized(inside, text)
    if tree["error"]:
        return None
    nodes = list(_nodes(tree))
    tables = [node for node in nodes if node.get("type") in ("BASE_TABLE", "SHOW_REF")]
    return QueryTree(
        frozenset(unquoted(node["table_name"]) for node in tables if node.get("table_name")),
        frozenset(node["function_name"].lower() for node in nodes if node.get("function_name")),
        any(node.get("type") == "TABLE_FUNCTION" for node in nodes),
    )


def _serialized(inside: duckdb.DuckDBPyConnection, text: str) -> dict[str, Any]:
    with inside.cursor() as cursor:
        (answer,) = cursor.execute("SELECT json_serialize_sql($text)", {"text": text}).fetchall()[0]
    tree: dict[str, Any] = json.loads(answer)
    return tree


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    children = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    if isinstance(tree, dict):
        yield tree
    for child in children:
        yield from _nodes(child)


# --- differences of two pinned states -------------------------------------------------------------


_ARGUMENTS = "(name, since => …, until => …, on_columns => […])"


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


if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
else:  # it allows no subclasses
    DuckDBPyConnection = object

# --- the connection -------------------------------------------------------------------------------


T = TypeVar("T")

_VERB = "connect"
_NUMBERS = count()

_IDENTIFIER = re.compile(r'"(?:[^"]|"")+"|[A-Za-z_]\w*')

# What a name without a schema may mean: whether it is a view, and whether it may be a table of the
# store: these are temporary views.
_NAMES = """
    SELECT lower(table_name), false, false FROM duckdb_tables() WHERE temporary
        OR (database_name = current_database() AND list_contains(current_schemas(true), schema_name))
    UNION ALL SELECT lower(view_name), true, temporary FROM duckdb_views() WHERE NOT internal AND (temporary
        OR (database_name = current_database() AND list_contains(current_schemas(true), schema_name)))
"""
_NO_PLAN = (
    "The scans are planned when the statement runs: it reads more than cubes and datasets. EXPLAIN ANALYZE shows them."
)
# Whether variables of Python are tables.
_SETTINGS = "SELECT current_setting('python_enable_replacements'), current_setting('enable_external_access')"
# Differences that stay as views where variables are no tables.
_MOST_VIEWS = 64
# Functions that do more than give a value.
_ACTIVE = frozenset({"nextval", "currval", "error", "setseed", "sleep_ms", "write_log"})


class Resolved(Struct, frozen=True):
    """A statement, the variables that it reads, and parameters that it has no more."""

    text: str
    variables: Mapping[str, DifferenceDataset]
    done: AbstractSet[str]

    def without_done(self, given: T) -> T | dict[str, object]:
        """Parameters without those that the statement has no more; other arguments as given."""
        if not self.done or not isinstance(given, Mapping):
            return given
        return {str(name): value for name, value in given.items() if name not in self.done}


class StoreCatalog:
    """Registers the cubes and datasets of a store that statements name.

    Attributes
    ----------
    scans : list of Scan
        The scans of the last statement, as far as it has run.
    """

    def __init__(self, inside: duckdb.DuckDBPyConnection, store: Store, as_of: AsOf | None, options: Options) -> None:
        self._inside, self._store, self._as_of, self._options = inside, store, as_of, options
        self._tables: dict[str, Table] = {}
        self._views = deque[str]()
        self.scans: list[Scan] = []

    def prepare(self, text: str) -> None:
        """Look up the tables that a statement may name, in their newest state."""
        self.scans.clear()
        is_listing = lists_tables(text)
        with operation(_VERB, self._options):
            names, is_certain = (set(list_tables(self._store)), False) if is_listing else self._names_in(text)
            created = created_name(text)
            if created is not None:
                # Room for a table or view that the user creates.
                table = self._tables.pop(created.lower(), None)
                if table is not None:
                    self._inside.unregister(table.name)
                names.discard(created)
            if not names:
                return
            try:
                views = self._owned()
            except duckdb.TransactionException:  # it was aborted: DuckDB takes no statement but its end
                return
            stored = {name for name in names if name.lower() not in views}
            known = {name for name in stored if self._is_registered(name)}
            found = stored if is_listing else known | self._resolve_table_names(stored - known)
            # Of other tables, and of words that are no tables, none has to be whole.
            self._update(found, skip_broken=not is_certain)
            if is_listing or not is_certain or any(views.get(name.lower()) for name in names - found):
                self._update({table.name for table in self._tables.values()} - found, skip_broken=True)

    def table(self, name: str) -> Table | None:
        """The table that a statement means by a name, if it is one of the store."""
        return self._tables.get(name.lower())

    def forget(self, name: str) -> None:
        """Take a name as one of the user from now on."""
        self._tables.pop(name.lower(), None)

    def difference(
        self, name: str, states: States, conditions: IntoConditions = None, *, counted: bool = False
    ) -> DifferenceDataset:
        """What changed between two states; the later one is by default that of the connection."""
        given: States = {**states, "until": states.get("until") or self._as_of}
        found = open_difference(name, self._store, self._options, conditions=conditions, **given)
        if counted:
            return DifferenceDataset(COUNTS, lambda: [found.counts()])
        return DifferenceDataset(found.schema, found.tables)

    def resolved(self, text: str, parameters: Mapping[str, object]) -> Resolved:
        """A statement that reads variables of Python where it called a table function."""
        _before, *pieces = split_calls(text, FUNCTIONS)
        if pieces and is_kept(text):
            raise InvalidInput(
                f"{function_of(pieces[0])} is evaluated when a statement is run, so that no view, macro or prepared "
                "statement can have it: create a table."
            )
        variables, used = dict[str, DifferenceDataset](), set[str]()
        parts = [_before]
        for call, after in zip(pieces[::2], pieces[1::2], strict=True):
            wanted = parameters_of(self._inside, f"FROM {call}")
            used |= wanted
            given = {name: parameters[name] for name in wanted & parameters.keys()}
            name, states = given_states(call, arguments_of(self._inside, call, given))
            # A relation keeps the variable, and may itself be read beside another call.
            variable = f"{function_of(call)} #{next(_NUMBERS)}"
            variables[variable] = self.difference(name, states, counted=function_of(call) == FUNCTIONS[1])
            parts += [f'"{variable}"', after]
        resolved = "".join(parts)
        done = used - parameters_of(self._inside, resolved) if used else used
        return Resolved(resolved, variables, done)

    def run(self, _resolved: Resolved, _call: Callable[[], T]) -> T:
        """Call a function where DuckDB finds the variables of a statement."""
        if not _resolved.variables:
            return _call()
        if all(self._inside.sql(_SETTINGS).fetchall()[0]):
            # It looks in the frames of its callers, and keeps what a relation needs.
            return cast("T", eval("_call()", {**_resolved.variables, "_call": _call}))  # noqa: S307 - a frame
        for name, difference in _resolved.variables.items():
            self._inside.register(name, difference)
            self._views.append(name)
        # A relation may run later.
        while len(self._views) > _MOST_VIEWS + len(_resolved.variables):
            self._inside.unregister(self._views.popleft())
        return _call()

    def names_stored(self, text: str) -> bool:
        """Whether a statement reads a table of the store, maybe through a view."""
        return any(name.lower() in self._tables for name in self._names_in(text)[0])

    def can_run_dry(self, text: str) -> bool:
        """Whether a query reads nothing but tables of the store, and does nothing else."""
        tree = parsed(self._inside, text)
        if tree is None or tree.has_sources or not tree.functions.isdisjoint(_ACTIVE):
            return False
        views = self._owned()
        return all(name.lower() in self._tables or views.get(name.lower(), False) for name in tree.tables)

    def _names_in(self, text: str) -> tuple[set[str], bool]:
        """The names of tables in a statement; False if there may be others among them."""
        # DuckDB resolves views, registered tables among them. A cursor does not have these, but has
        # the views of the user, so that the names are those of the tables below.
        with self._inside.cursor() as empty:
            try:
                return set(empty.get_table_names(text)), True
            except duckdb.Error:  # it binds columns, too: those of USING, and no parameters
                pass
        tree = parsed(self._inside, text)
        if tree is not None:
            return set(tree.tables), True
        return {unquoted(word) for word in _IDENTIFIER.findall(text)}, False

    def _is_registered(self, name: str) -> bool:
        table = self._tables.get(name.lower())
        return table is not None and table.name == name

    def _owned(self) -> dict[str, bool]:
        """The user's own tables and views, in small letters: whether each is a view."""
        rows = self._inside.sql(_NAMES).fetchall()
        ours = {name for name, _, may_be_ours in rows if may_be_ours and name in self._tables}
        owned = {name: is_view for name, is_view, may_be_ours in rows if not (may_be_ours and name in ours)}
        for name in ours & owned.keys():
            self._inside.unregister(self._tables[name].name)
        # What is in neither was registered in a transaction that was undone.
        self._tables = {name: table for name, table in self._tables.items() if name in ours - owned.keys()}
        return owned

    def _resolve_table_names(self, names: Iterable[str]) -> set[str]:
        """The tables of the store with these names; the case counts where two differ by it."""
        wanted = set(names)
        if not wanted:
            return set()
        listed = list_tables(self._store)
        folded = {name.lower(): name for name in reversed(listed)}
        exact = wanted.intersection(listed)
        return exact | {folded[name.lower()] for name in wanted - exact if name.lower() in folded}

    def _update(self, names: Iterable[str], *, skip_broken: bool) -> None:
        """Register tables in their newest state; those that are gone are no tables any more.

        With ``skip_broken``, what cannot be opened stays as it is.
        """
        wanted = sorted(name for name in names if self._as_of is None or not self._is_registered(name))

        def find(name: str) -> Table | KartothekCubeError | None:
            try:
                return find_table(name, self._store, _VERB, self._options, self._as_of)
            except KartothekCubeError as error:
                if skip_broken:
                    return error
                raise

        for name, now in zip(wanted, map_in_threads(find, wanted, store=self._store), strict=True):
            before = self._tables.get(name.lower())
            if now is None and before is not None:
                del self._tables[name.lower()]
                self._inside.unregister(name)
            elif isinstance(now, Table) and (before is None or before.name != name or not now.is_same_state(before)):
                self._put(now)

    def _put(self, table: Table) -> None:
        self._tables[table.name.lower()] = table
        self._inside.register(table.name, TableDataset(table, self.scans.append))

    @contextmanager
    def dry(self) -> Iterator[list[Scan]]:
        """Within this block scans are planned and recorded, but give no rows."""
        tables, scans = list(self._tables.values()), list[Scan]()
        try:
            for table in tables:
                self._inside.register(table.name, TableDataset(table, scans.append, is_dry=True))
            yield scans
        finally:
            # An error has ended the transaction of the user, and with it these tables.
            with suppress(duckdb.TransactionException):
                for table in tables:
                    self._put(table)


def _release(_connection: Connection) -> None:
    """Let a connection go whose relation is gone."""


class Connection(DuckDBPyConnection):
    """What types say of a connection: it is one of DuckDB, with a method more."""

    _inside: duckdb.DuckDBPyConnection
    _catalog: StoreCatalog

    def changes(
        self,
        name: str,
        since: CubeState,
        until: AsOf | None = None,
        *,
        conditions: IntoConditions = None,
        on: Columns = None,
    ) -> duckdb.DuckDBPyRelation:
        """What changed between two states, as a relation.

        The states are those of this call; each run of the relation is a new stream. All columns of
        the changed files are read, whatever the relation wants.

        Parameters
        ----------
        name : str
            The prefix of a cube, else the uuid of a dataset.
        since, until, conditions
            As in `query_cube_changes`. ``until`` is by default the ``as_of`` of the connection.
            ``conditions`` are for cubes.
        on : str or list of str, optional
            The key columns of a dataset, as in `read_dataset_changes`.

        Raises
        ------
        DatasetNotFound
            If there is no such cube or dataset; the message has the names that may be meant.
        HistoryUnavailable, InvalidInput, InvalidType
            As in `query_cube_changes`.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from kartothek_cube import connect, open_store
        >>> from kartothek_cube.api.dataset import history, store_dataframes_as_dataset
        >>> from kartothek_cube.api.dataset import update_dataset_from_dataframes
        >>> store = open_store("hmemory://")
        >>> _ = store_dataframes_as_dataset(store, "sales", [pa.table({"UNITS": [3, 4]})])
        >>> seen = history("sales", store)["commit"].iloc[0]
        >>> _ = update_dataset_from_dataframes([pa.table({"UNITS": [5]})], store, "sales")
        >>> connect(store).changes("sales", seen).fetchall()
        [('insert', 5)]
        """
        states: States = {"since": since, "until": until, "on": on}
        return self._kept_for(self._inside.from_arrow(self._catalog.difference(name, states, conditions)))

    def _kept_for(self, relation: T) -> T:
        """The relation, which keeps this connection as long as it lives."""
        # A relation of DuckDB 1 ends with its connection, of which the caller may have no variable.
        if isinstance(relation, duckdb.DuckDBPyRelation):
            weakref.finalize(relation, _release, self).atexit = False
        return relation


class StoreConnection(Connection):
    """Stands for a connection of DuckDB: its methods are those of the connection inside.

    Before a statement is run, the tables that it names are looked up in the store.

    DuckDB also looks for tables among the variables of its callers, these methods among them: hence
    the names with underscores.
    """

    def __init__(
        self, store: Store, as_of: AsOf | None, options: Options, inside: duckdb.DuckDBPyConnection | None = None
    ) -> None:
        inside = duckdb.connect() if inside is None else inside
        # Else DuckDB looks in the frames of this module alone, and not in those of its caller.
        inside.execute("SET python_scan_all_frames = true")
        self._inside, self._state = inside, (store, as_of, options)
        self._catalog = StoreCatalog(inside, store, as_of, options)

    # Libraries ask for the class of a connection; DuckDB's own cannot be inherited from.
    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return duckdb.DuckDBPyConnection

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._inside, name)
        if not callable(member):
            return member

        @wraps(member)
        def call(*_arguments: Any, **_named: Any) -> Any:
            _result = member(*_arguments, **_named)
            return self if _result is self._inside else _result

        return call

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._inside.close()

    def cursor(self) -> StoreConnection:
        """Another connection to the same database and the same store."""
        return StoreConnection(*self._state, self._inside.cursor())

    duplicate = cursor

    def sql(self, *_arguments: Any, **_named: Any) -> duckdb.DuckDBPyRelation:
        """Run a statement; a query becomes a relation."""
        relation: duckdb.DuckDBPyRelation = self._run(self._inside.sql, _arguments, _named)
        return self._kept_for(relation)

    def query(self, *_arguments: Any, **_named: Any) -> duckdb.DuckDBPyRelation:
        """Run a statement as `sql` does."""
        relation: duckdb.DuckDBPyRelation = self._run(self._inside.query, _arguments, _named)
        return self._kept_for(relation)

    def from_query(self, *_arguments: Any, **_named: Any) -> duckdb.DuckDBPyRelation:
        """Run a statement as `sql` does."""
        relation: duckdb.DuckDBPyRelation = self._run(self._inside.from_query, _arguments, _named)
        return self._kept_for(relation)

    def execute(self, *_arguments: Any, **_named: Any) -> StoreConnection:
        """Run a statement, whose rows the connection then fetches."""
        self._inside.execute("")  # ends the statement before, whose rows nobody fetches any more
        self._run(self._inside.execute, _arguments, _named)
        return self

    def executemany(self, *_arguments: Any, **_named: Any) -> StoreConnection:
        """Run a statement for many parameters."""
        self._inside.execute("")
        self._run(self._inside.executemany, _arguments, _named)
        return self

    def table(self, name: str) -> duckdb.DuckDBPyRelation:
        """A table, cube or dataset as a relation."""
        return self._named(self._inside.table, name)

    def view(self, name: str) -> duckdb.DuckDBPyRelation:
        """A view, cube or dataset as a relation."""
        return self._named(self._inside.view, name)

    def register(self, view_name: str, python_object: object) -> StoreConnection:
        """Make an object of Python a table, instead of a cube or dataset of this name."""
        self._catalog.forget(view_name)
        self._inside.register(view_name, python_object)
        return self

    def _named(self, _method: Callable[[str], duckdb.DuckDBPyRelation], _name: str) -> duckdb.DuckDBPyRelation:
        quoted = '"' + _name.replace('"', '""') + '"'
        self._catalog.prepare(f"FROM {quoted}")
        # Tables of the store are views for DuckDB.
        is_stored = self._catalog.table(_name) is not None
        return self._kept_for(self._inside.view(_name) if is_stored else _method(_name))

    def _run(self, _method: Callable[..., Any], _arguments: Sequence[Any], _named: dict[str, Any]) -> Any:
        if not _arguments and "query" not in _named:
            return _method(**_named)  # DuckDB says what is missing
        _query, *_values = _arguments or (_named.pop("query"),)
        _text = _query if isinstance(_query, str) else str(getattr(_query, "query", ""))
        _parameters = next((each for each in (*_values, *_named.values()) if isinstance(each, Mapping)), {})
        # Each statement of several sees what the ones before have created.
        *_first, _last = split(self._inside, _text)
        for _each in _first:
            self._catalog.prepare(_each)
            _resolved = self._catalog.resolved(_each, {})
            self._catalog.run(_resolved, partial(self._inside.execute, _resolved.text))
            self._inside.execute("")
        self._catalog.prepare(_last)
        _resolved = self._catalog.resolved(_last, _parameters)
        _values = [_resolved.without_done(value) for value in _values]
        _named = {name: _resolved.without_done(value) for name, value in _named.items()}
        _run_last = partial(_method, _resolved.text if _first or _resolved.variables else _query, *_values, **_named)
        _counted = bare_count(_last)
        _table = None if _counted is None or _values or _named.keys() - {"alias"} else self._catalog.table(_counted[0])
        if _counted is not None and _table is not None:
            return _method(f"SELECT {_table.scan(()).count()}::BIGINT AS {_counted[1]}", **_named)
        _explained = explained(_last)
        if _explained is None or not self._catalog.names_stored(_explained.body):
            return self._catalog.run(_resolved, _run_last)
        _given = _values or [_named[name] for name in ("params", "parameters") if name in _named]
        return self._catalog.run(_resolved, partial(self._explain, _method, _resolved.text, _explained, _given))

    def _explain(self, _method: Callable[..., Any], _text: str, _explained: Explained, _values: Sequence[Any]) -> Any:
        """The plan of DuckDB, and after it those of the scans."""
        _rows = self._inside.execute(_text, *_values).fetchall()
        _scans = list(self._catalog.scans)
        if not _explained.runs and self._catalog.can_run_dry(_explained.body):
            # DuckDB passes filters to a source only when it runs: it does, on tables without rows.
            with self._catalog.dry() as _scans:
                self._inside.execute(_explained.body, *_values).fetchall()
        elif not _explained.runs:
            _rows.append(("kartothek_cube", _NO_PLAN))
        _rows += [("kartothek_cube", f"{scan.detail}\n\n{scan.plan.explain()}") for scan in _scans]
        _lines = ", ".join(f"({_text_literal(key)}, {_text_literal(value)})" for key, value in _rows)
        return _method(f"SELECT * FROM (VALUES {_lines}) AS plan(explain_key, explain_value)")  # noqa: S608 - literals


def _text_literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
