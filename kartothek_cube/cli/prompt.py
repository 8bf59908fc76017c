"""The prompt of the command `sql`: history, completion, and commands that begin with a dot."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import click
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import completion_is_selected
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings

from kartothek_cube.cli.context import (
    Failure,
    explained,
)
from kartothek_cube.core.arguments import did_you_mean
from kartothek_cube.core.runtime.options import current_options
from kartothek_cube.core.snapshots.time_travel import check_as_of
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.engines.tables import find_table, list_tables
from kartothek_cube.errors import KartothekCubeError

_WELCOME = "Statements end with a semicolon. .tables lists the tables, .schema NAME columns; .exit or Ctrl-D ends."
_COMMANDS = (".exit", ".help", ".schema", ".tables")
_EXITS = {".exit", ".quit", "exit", "quit"}
# What a statement may contain without meaning it: texts, names in quotes, comments.
_OPAQUE = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/|\$(\w*)\$.*?\$\1\$", re.DOTALL)
_OPEN = re.compile(r"['\"]|/\*|\$\w*\$")
_NAME = re.compile(r'"(?:[^"]|"")+"|\w+')
# The columns of so many tables are offered before a statement names any.
_TABLES_AHEAD = 10
_KEYWORDS = re.findall(
    r"\w+",
    """
    ALL AND ANTI AS ASC ASOF BETWEEN BY CASE CAST COUNT CREATE CROSS DESC DESCRIBE DISTINCT ELSE END
    EXCEPT EXCLUDE EXISTS EXPLAIN FILTER FIRST FROM FULL GROUP HAVING ILIKE IN INNER INTERSECT INTERVAL
    IS JOIN LAST LEFT LIKE LIMIT NOT NULL NULLS OFFSET ON OR ORDER OUTER OVER PARTITION PIVOT QUALIFY
    REPLACE RIGHT SAMPLE SELECT SEMI SUMMARIZE TABLE THEN UNION UNPIVOT USING VALUES VIEW WHEN WHERE
    WINDOW WITH
    """,
)


def prompt_rounds(store: Store, as_of: str | None, answer: Callable[[str], None]) -> None:
    """Ask for statements and answer them, until the user ends it; an error does not."""
    completer = StatementCompleter(Names(store, as_of))
    session: PromptSession[str] = PromptSession(
        multiline=True,
        prompt_continuation="  -> ",
        history=_history(),
        completer=completer,
        complete_in_thread=True,  # the names are read from the store
        key_bindings=_keys(),
    )
    click.echo(_WELCOME)
    while True:
        completer.names = Names(store, as_of)  # the statement before may have taken an hour
        try:
            text = session.prompt("sql> ").strip()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        if text.rstrip("; ").lower() in _EXITS:
            return
        try:
            with explained():
                if statement := statement_of(text):
                    answer(statement)
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
        except click.ClickException as error:
            error.show()


def statement_of(text: str) -> str:
    """The statement that a line asks for; it may be empty.

    Raises
    ------
    Failure
        If the line is a command with a dot that does not exist.

    Examples
    --------
    >>> statement_of(".schema sales++seed")
    'SELECT column_name, column_type FROM (DESCRIBE "sales++seed")'
    """
    if not text.startswith("."):
        return text
    command, _, name = text.rstrip("; ").partition(" ")
    if command == ".tables":
        return "SHOW TABLES"
    if command == ".schema" and name:
        return f"SELECT column_name, column_type FROM (DESCRIBE {_quoted(_bare(name.strip()))})"  # noqa: S608 - it is quoted
    if command == ".help":
        click.echo(_WELCOME)
        return ""
    if command == ".schema":
        raise Failure(".schema needs the name of a table, as in .schema sales")
    raise Failure(f"There is no command {command}.{did_you_mean([command], _COMMANDS)}")


def is_whole(text: str) -> bool:
    """Whether Enter ends the input: at a semicolon, behind a command, and where nothing stands.

    Examples
    --------
    >>> is_whole("FROM sales"), is_whole("FROM sales; -- all"), is_whole("SELECT ';")
    (False, True, False)
    """
    stripped = text.strip()
    if not stripped or stripped.startswith(".") or stripped.lower() in _EXITS:
        return True
    code = _OPAQUE.sub(lambda match: " " if match[0].startswith(("--", "/*")) else "x", stripped)
    return code.rstrip().endswith(";") and not _OPEN.search(code)


def _keys() -> KeyBindings:
    """Enter ends a whole statement, else the line; on a chosen completion it takes that."""
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: Any) -> None:
        buffer = event.current_buffer
        if is_whole(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.newline(copy_margin=False)

    @keys.add("enter", filter=completion_is_selected)
    def _(event: Any) -> None:
        event.current_buffer.complete_state = None

    return keys


def _history() -> History:
    path = Path(click.get_app_dir("kartothek_cube")) / "sql_history"
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("a", encoding="utf-8").close()
        path.chmod(0o600)  # a statement may contain what others should not read
        return FileHistory(path)
    return InMemoryHistory()


class Names:
    """The names that a statement may contain, read from the store once, when they are needed."""

    def __init__(self, store: Store, as_of: str | None) -> None:
        self._store, self._as_of, self._options = store, check_as_of(as_of), current_options()
        self._columns: dict[str, list[str]] = {}

    @cached_property
    def tables(self) -> list[str]:
        """Cubes and datasets."""
        return list_tables(self._store)

    def columns(self, text: str) -> set[str]:
        """The columns of the tables that a text names; if it names none, of the first tables."""
        words = {_bare(word).lower() for word in _NAME.findall(text)}
        named = [table for table in self.tables if table.lower() in words]
        # A dataset of a cube has no columns that the cube does not have.
        ahead = [table for table in self.tables if "++" not in table][:_TABLES_AHEAD]
        return {column for table in named or ahead for column in self._columns_of(table)}

    def _columns_of(self, table: str) -> list[str]:
        if table not in self._columns:
            found = None
            with suppress(KartothekCubeError):  # a damaged table has no columns to offer
                found = find_table(table, self._store, "connect", self._options, self._as_of)
            self._columns[table] = [] if found is None else found.schema.names
        return self._columns[table]


class StatementCompleter(Completer):  # type: ignore[misc, unused-ignore]
    """Offers commands with a dot, tables, columns and keywords."""

    def __init__(self, names: Names) -> None:
        self.names = names

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """What the word in front of the cursor may become."""
        before = document.text_before_cursor.lstrip()
        typed = _typed(before)
        if not typed and not complete_event.completion_requested:
            return
        with suppress(KartothekCubeError, OSError):  # a message would garble the line
            for name in self._candidates(before, document.text, typed):
                yield Completion(name, -len(typed))

    def _candidates(self, before: str, text: str, typed: str) -> Iterator[str]:
        start = typed.lstrip('"').lower()
        if before.startswith("."):
            dotted = self.names.tables if " " in before else list(_COMMANDS)
            yield from (word for word in dotted if word.lower().startswith(start))
            return
        for names in (self.names.tables, sorted(self.names.columns(text))):
            yield from (_written(name, typed) for name in names if name.lower().startswith(start))
        if not typed.startswith('"'):
            words = (word for word in _KEYWORDS if word.lower().startswith(start))
            yield from (word.lower() if typed.islower() else word for word in words)


def _typed(before: str) -> str:
    """The beginning of a name in front of the cursor; an open quote belongs to it."""
    if before.startswith("."):
        return before.rpartition(" ")[2]
    # Names in quotes that are whole, or else their last quote would open one.
    open_ones = re.sub(r'"(?:[^"]|"")*"', " ", before)
    found = re.search(r'"[^"]*$|\w*$', open_ones)
    return found[0] if found else ""


def _bare(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _written(name: str, typed: str) -> str:
    """A name as a statement has it: in quotes where it needs them, or where they were typed."""
    is_plain = re.fullmatch(r"[A-Za-z_]\w*", name) and name.upper() not in _KEYWORDS
    return name if is_plain and not typed.startswith('"') else _quoted(name)
