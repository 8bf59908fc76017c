"""A connection of DuckDB in which the cubes and datasets of a store are tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Self

import duckdb

from kartothek_cube.core.runtime.options import Options
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.engines.store_catalog import StoreCatalog, unquoted
from kartothek_cube.typing import AsOf

__all__ = ["StoreConnection"]

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
