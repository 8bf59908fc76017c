"""The tables of a store in a connection of DuckDB: found, registered and renewed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

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

__all__ = ["StoreCatalog", "unquoted"]

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
