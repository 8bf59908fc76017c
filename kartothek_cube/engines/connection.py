"""A connection of DuckDB in which the cubes and datasets of a store are tables.

Tables are found, registered and renewed before a statement is run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import duckdb

from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.runtime.options import Options
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.engines.arrow_dataset import TableDataset
from kartothek_cube.engines.catalog import find_table, list_tables
from kartothek_cube.engines.tables import Scan, Table
from kartothek_cube.errors import KartothekCubeError
from kartothek_cube.typing import AsOf

__all__ = ["StoreCatalog", "StoreConnection", "unquoted"]

_VERB = "connect"

_IDENTIFIER = re.compile(r'"(?:[^"]|"")+"|[A-Za-z_]\w*')

# Statements that list what a database has.
_LISTINGS = re.compile(
    r"\b(information_schema|duckdb_(?:tables|views|columns)|sqlite_(?:master|schema)|pg_catalog|show_tables\w*)\b"
    r"|\bshow\s+(all\s+)?tables\b|^\s*(show|desc|describe)\s*;?\s*$",
    re.IGNORECASE,
)

# What a name without a schema may mean, and whether it may be a table of the store: these are
# temporary views.
_NAMES = """
    SELECT lower(table_name), false FROM duckdb_tables() WHERE temporary
        OR (database_name = current_database() AND list_contains(current_schemas(true), schema_name))
    UNION ALL SELECT lower(view_name), temporary FROM duckdb_views() WHERE NOT internal AND (temporary
        OR (database_name = current_database() AND list_contains(current_schemas(true), schema_name)))
"""


def unquoted(identifier: str) -> str:
    """The name that an identifier of SQL stands for."""
    return identifier[1:-1].replace('""', '"') if identifier.startswith('"') else identifier


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
        self.scans: list[Scan] = []

    def prepare(self, text: str) -> None:
        """Look up the tables that a statement may name, in their newest state."""
        self.scans.clear()
        is_listing = _LISTINGS.search(text) is not None
        with operation(_VERB, self._options):
            names = set(list_tables(self._store)) if is_listing else self._names_in(text)
            if not names and not self._tables:
                return
            try:
                owned = self._owned()
            except duckdb.TransactionException:  # it was aborted: DuckDB takes no statement but its end
                return
            stored = {name for name in names if name.lower() not in owned}
            known = {name for name in stored if self._is_registered(name)}
            found = stored if is_listing else known | self._match(stored - known)
            self._update(found, skip_broken=is_listing)
            # A name that is neither may be a view of the user over some of the tables.
            if is_listing or {name.lower() for name in names} != {name.lower() for name in found}:
                self._update({table.name for table in self._tables.values()} - found, skip_broken=True)

    def table(self, name: str) -> Table | None:
        """The table that a statement means by a name, if it is one of the store."""
        return self._tables.get(name.lower())

    def forget(self, name: str) -> None:
        """Take a name as one of the user from now on."""
        self._tables.pop(name.lower(), None)

    def _names_in(self, text: str) -> set[str]:
        # DuckDB resolves views, registered tables among them. A cursor does not have these, but has
        # the views of the user, so that the names are those of the tables below.
        with self._inside.cursor() as empty:
            try:
                names: set[str] = empty.get_table_names(text)
            except duckdb.Error:  # DuckDB names no tables of joins and of several statements
                return {unquoted(word) for word in _IDENTIFIER.findall(text)}
        return names

    def _is_registered(self, name: str) -> bool:
        table = self._tables.get(name.lower())
        return table is not None and table.name == name

    def _owned(self) -> set[str]:
        """The tables and views that are the user's own, in small letters."""
        rows = self._inside.sql(_NAMES).fetchall()
        ours = {name for name, may_be_ours in rows if may_be_ours and name in self._tables}
        owned = {name for name, may_be_ours in rows if not (may_be_ours and name in ours)}
        for name in ours & owned:
            self._inside.unregister(self._tables[name].name)
        # What is in neither was registered in a transaction that was undone.
        self._tables = {name: table for name, table in self._tables.items() if name in ours - owned}
        return owned

    def _match(self, names: Iterable[str]) -> set[str]:
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
            for table in tables:
                self._put(table)


_NAME = r'(?:"(?:[^"]|"")+"|[A-Za-z_]\w*)'

_COUNT = re.compile(
    rf"\s*select\s+count\s*\(\s*\*?\s*\)(?:\s+(?:as\s+)?(?P<alias>{_NAME}))?\s+from\s+(?P<name>{_NAME})\s*;?\s*",
    re.IGNORECASE,
)

_EXPLAIN = re.compile(
    r"\s*explain\s+(?P<analyze>analyze\s+)?(?P<body>(?:select|from|with)\b.*)", re.IGNORECASE | re.DOTALL
)


class StoreConnection:
    """Stands for a connection of DuckDB: its methods are those of the connection inside.

    Before a statement is run, the tables that it names are looked up in the store.

    DuckDB also looks for tables among the variables of its callers, these methods among them: hence
    the names with underscores.
    """

    def __init__(
        self, store: Store, as_of: AsOf | None, options: Options, inside: duckdb.DuckDBPyConnection | None = None
    ) -> None:
        if inside is None:
            inside = duckdb.connect()
            # Else DuckDB looks in the frames of this module alone, and not in those of its caller.
            inside.execute("SET python_scan_all_frames = true")
        self._inside, self._state = inside, (store, as_of, options)
        self._catalog = StoreCatalog(inside, store, as_of, options)

    # Libraries ask for the class of a connection; DuckDB's own cannot be inherited from.
    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return duckdb.DuckDBPyConnection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inside, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._inside.close()

    def cursor(self) -> StoreConnection:
        """Another connection to the same database and the same store."""
        return StoreConnection(*self._state, self._inside.cursor())

    duplicate = cursor

    def sql(self, _query: Any, **_arguments: Any) -> duckdb.DuckDBPyRelation:
        """Run a statement; a query becomes a relation."""
        relation: duckdb.DuckDBPyRelation = self._run(self._inside.sql, _query, (), _arguments)
        return relation

    def query(self, _query: Any, **_arguments: Any) -> duckdb.DuckDBPyRelation:
        """Run a statement as `sql` does."""
        relation: duckdb.DuckDBPyRelation = self._run(self._inside.query, _query, (), _arguments)
        return relation

    def from_query(self, _query: Any, **_arguments: Any) -> duckdb.DuckDBPyRelation:
        """Run a statement as `sql` does."""
        relation: duckdb.DuckDBPyRelation = self._run(self._inside.from_query, _query, (), _arguments)
        return relation

    def execute(self, _query: Any, *_arguments: Any, **_named: Any) -> StoreConnection:
        """Run a statement, whose rows the connection then fetches."""
        self._inside.execute("")  # ends the statement before, whose rows nobody fetches any more
        self._run(self._inside.execute, _query, _arguments, _named)
        return self

    def executemany(self, _query: Any, *_arguments: Any, **_named: Any) -> StoreConnection:
        """Run a statement for many parameters."""
        self._inside.execute("")
        self._run(self._inside.executemany, _query, _arguments, _named)
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
        return self._inside.view(_name) if self._catalog.table(_name) is not None else _method(_name)

    def _run(self, _method: Callable[..., Any], _query: Any, _arguments: Sequence[Any], _named: dict[str, Any]) -> Any:
        _text = _query if isinstance(_query, str) else str(getattr(_query, "query", ""))
        self._catalog.prepare(_text)
        if _counted := _COUNT.fullmatch(_text):
            _table = self._catalog.table(unquoted(_counted["name"]))
            if _table is not None:
                _name = _counted["alias"] or '"count_star()"'
                return _method(f"SELECT {_table.scan(()).count()}::BIGINT AS {_name}")
        if (_explained := _EXPLAIN.fullmatch(_text)) and self._is_query(_explained["body"]):
            return self._explain(_method, _text, _explained, _arguments, _named)
        return _method(_query, *_arguments, **_named)

    def _is_query(self, _text: str) -> bool:
        """Whether a text is one statement that changes nothing, as ``WITH ... INSERT`` does."""
        return [s.type for s in self._inside.extract_statements(_text)] == [duckdb.StatementType.SELECT]

    def _explain(
        self,
        _method: Callable[..., Any],
        _text: str,
        _explained: re.Match[str],
        _arguments: Sequence[Any],
        _named: dict[str, Any],
    ) -> Any:
        """The plan of DuckDB, and after it those of the scans."""
        _values = _arguments or tuple(_named.values())
        _rows = self._inside.execute(_text, *_values).fetchall()
        _scans = list(self._catalog.scans)
        if not _explained["analyze"]:
            # DuckDB passes filters to a source only when it runs: it does, on tables without rows.
            with self._catalog.dry() as _scans:
                self._inside.execute(_explained["body"], *_values).fetchall()
        _rows += [("kartothek_cube", f"{scan.detail}\n\n{scan.plan.explain()}") for scan in _scans]
        _lines = ", ".join(f"({_text_literal(key)}, {_text_literal(value)})" for key, value in _rows)
        return _method(f"SELECT * FROM (VALUES {_lines}) AS plan(explain_key, explain_value)")  # noqa: S608 - literals


def _text_literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
