"""What DuckDB's own parser says about a text of SQL. No statement is run."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import duckdb

from kartothek_cube.errors import InvalidInput

__all__ = [
    "Explained",
    "QueryTree",
    "arguments_of",
    "bare_count",
    "created_name",
    "explained",
    "is_kept",
    "lists_tables",
    "parameters_of",
    "parsed",
    "split",
    "split_calls",
    "unquoted",
]

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


@dataclass(frozen=True, slots=True)
class QueryTree:
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
    return QueryTree(
        frozenset(unquoted(node["table_name"]) for node in nodes if node.get("table_name") and _is_table(node)),
        frozenset(node["function_name"].lower() for node in nodes if node.get("function_name")),
        any(node.get("type") == "TABLE_FUNCTION" for node in nodes),
    )


def _serialized(inside: duckdb.DuckDBPyConnection, text: str) -> dict[str, Any]:
    with inside.cursor() as cursor:
        (answer,) = cursor.execute("SELECT json_serialize_sql($text)", {"text": text}).fetchall()[0]
    tree: dict[str, Any] = json.loads(answer)
    return tree


def _is_table(node: dict[str, Any]) -> bool:
    return node.get("type") in ("BASE_TABLE", "SHOW_REF")


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    children = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    if isinstance(tree, dict):
        yield tree
    for child in children:
        yield from _nodes(child)
