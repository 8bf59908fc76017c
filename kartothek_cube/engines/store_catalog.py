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
    r"\b(information_schema|duckdb_(?:tables|views|columns)|sqlite_master|pg_catalog)\b|^\s*show\b", re.IGNORECASE
)
_OWNED = """
    SELECT 1 FROM duckdb_tables() WHERE lower(table_name) = lower($name)
    UNION ALL SELECT 1 FROM duckdb_views() WHERE NOT internal AND lower(view_name) = lower($name)
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

    def copy_for(self, inside: duckdb.DuckDBPyConnection) -> StoreCatalog:
        """The same for another connection, which finds its tables itself."""
        return StoreCatalog(inside, self._store, self._as_of, self._options)

    def prepare(self, text: str) -> None:
        """Look up the tables that a statement may name, in their newest state."""
        self.scans.clear()
        with operation(_VERB, self._options):
            if _LISTINGS.search(text):
                self._register(set(list_tables(self._store)), skip_broken=True)
                return
            names = self._names_in(text)
            known = {name for name in names if name.lower() in self._tables}
            found = self._match(names - known) if names - known else set()
            # A name that is neither may be a view of the user over some of the tables.
            is_whole = names == known | found
            self._renew(known if is_whole else {table.name for table in self._tables.values()})
            self._register(found)

    def table(self, name: str) -> Table | None:
        """The table that a statement means by a name, if it is one of the store."""
        return self._tables.get(name.lower())

    def _names_in(self, text: str) -> set[str]:
        try:
            names: set[str] = self._inside.get_table_names(text)
        except duckdb.Error:  # DuckDB names no tables of joins and of several statements
            return {unquoted(word) for word in _IDENTIFIER.findall(text)}
        return names

    def _match(self, names: Iterable[str]) -> set[str]:
        """The tables of the store with these names, the case of which counts only if it decides."""
        listed = list_tables(self._store)
        folded = {name.lower(): name for name in reversed(listed)}
        exact = set(listed).intersection(names)
        return exact | {folded[name.lower()] for name in set(names) - exact if name.lower() in folded}

    def _register(self, names: set[str], *, skip_broken: bool = False) -> None:
        fresh = sorted(name for name in names if name.lower() not in self._tables and not self._is_owned(name))

        def find(name: str) -> Table | None:
            try:
                return find_table(name, self._store, _VERB, self._options, self._as_of)
            except KartothekCubeError:
                if skip_broken:
                    return None
                raise

        for table in map_in_threads(find, fresh, store=self._store):
            if table is not None:
                self._put(table)

    def _renew(self, names: Iterable[str]) -> None:
        """Replace tables that have changed; those that are gone are no tables any more."""
        if self._as_of is not None:
            return
        old = [self._tables[name.lower()] for name in sorted(names)]

        def find(table: Table) -> Table | None:
            return find_table(table.name, self._store, _VERB, self._options)

        for before, now in zip(old, map_in_threads(find, old, store=self._store), strict=True):
            if now is None:
                del self._tables[before.name.lower()]
                self._inside.unregister(before.name)
            elif not now.is_same_state(before):
                self._put(now)

    def _put(self, table: Table) -> None:
        self._tables[table.name.lower()] = table
        self._inside.register(table.name, TableDataset(table, self.scans.append))

    def _is_owned(self, name: str) -> bool:
        """Whether the connection itself has a table or view of this name."""
        return bool(self._inside.execute(_OWNED, {"name": name}).fetchall())

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
