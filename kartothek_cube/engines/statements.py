"""What DuckDB's own parser says about a text of SQL. No statement is run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import duckdb

__all__ = [
    "Explained",
    "QueryTree",
    "bare_count",
    "created_name",
    "explained",
    "lists_tables",
    "parsed",
    "split",
    "unquoted",
]

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


@dataclass(frozen=True, slots=True)
class Explained:
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


@dataclass(frozen=True, slots=True)
class QueryTree:
    """What a query reads: tables, functions, and whether some of these give rows."""

    tables: frozenset[str]
    functions: frozenset[str]
    has_sources: bool


def parsed(inside: duckdb.DuckDBPyConnection, text: str) -> QueryTree | None:
    """What a query reads, without looking anything up; None for statements that are no query."""
    with inside.cursor() as cursor:
        (answer,) = cursor.execute("SELECT json_serialize_sql($text)", {"text": text}).fetchall()[0]
    tree = json.loads(answer)
    if tree["error"]:
        return None
    nodes = list(_nodes(tree))
    return QueryTree(
        frozenset(unquoted(node["table_name"]) for node in nodes if node.get("table_name") and _is_table(node)),
        frozenset(node["function_name"].lower() for node in nodes if node.get("function_name")),
        any(node.get("type") == "TABLE_FUNCTION" for node in nodes),
    )


def _is_table(node: dict[str, Any]) -> bool:
    return node.get("type") in ("BASE_TABLE", "SHOW_REF")


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    children = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    if isinstance(tree, dict):
        yield tree
    for child in children:
        yield from _nodes(child)
