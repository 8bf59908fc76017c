"""The prompt of the command `sql`: history, completion, and commands that begin with a dot.

A query as text, and its options: conditions, columns, groups, a commit or time.

The interactive query: prompts, the query and a shell with its result, repeated.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import completion_is_selected
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings

from kartothek_cube.cli.context import (
    Failure,
    LoadedCube,
    Session,
    complete_columns,
    complete_partition_columns,
    explained,
    load_cube,
    one_line,
    working,
)
from kartothek_cube.cli.options import matches, parts_of
from kartothek_cube.cli.output import echo, red
from kartothek_cube.core.arguments import did_you_mean
from kartothek_cube.core.runtime.options import current_options
from kartothek_cube.core.snapshots.time_travel import check_as_of
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.engines.tables import find_table, list_tables
from kartothek_cube.errors import KartothekCubeError

if TYPE_CHECKING:
    from kartothek_cube.api.cube import Conjunction, QueryPlan


F = TypeVar("F", bound=Callable[..., Any])

# Stands for all payload columns.
ALL = "__all__"


def where(function: F) -> F:
    """``--where``."""
    text = "Conditions, e.g. 'COUNTRY_CODE == DE & UNITS > 3'; what is given several times has to hold together."
    option = click.option("--where", multiple=True, metavar="<conditions>", shell_complete=complete_columns, help=text)
    return option(function)


def columns(function: F) -> F:
    """``--columns``."""
    text = "Payload columns: comma separated globs; an empty text for none.  [default: all]"
    return click.option("--columns", metavar="<patterns>", shell_complete=complete_columns, help=text)(function)


def question(function: F) -> F:
    """``--where``, ``--columns``, ``--by`` and ``--as-of``."""
    from kartothek_cube.cli.options import as_of

    by = "Indexed columns: the result comes group by group."
    by_option = click.option("--by", metavar="<columns>", shell_complete=complete_partition_columns, help=by)
    return where(columns(by_option(as_of(function))))


def conditions_of(texts: tuple[str, ...], loaded: LoadedCube) -> Conjunction:
    """The conditions of all texts together.

    Raises
    ------
    Failure
        If a text is no condition on a column of the cube.
    """
    from kartothek_cube.core.expressions.conditions import Conjunction, conditions_in

    try:
        parsed = [conditions_in(text, loaded.types) for text in texts]
    except ValueError as error:
        raise Failure(f"Could not parse conditions: {one_line(error)}") from error
    return Conjunction([condition for conjunction in parsed for condition in conjunction.conditions])


def payload_names(loaded: LoadedCube) -> list[str]:
    """All payload columns of a cube, sorted."""
    from kartothek_cube.cube.verbs.describe import get_cube_payload

    return sorted(get_cube_payload(loaded.datasets, loaded.cube))


def payload_of(pattern: str | None, loaded: LoadedCube) -> list[str] | None:
    """The payload columns that a pattern names; None for all."""
    if pattern is None or pattern.strip() == ALL:
        return None
    payload = payload_names(loaded)
    # Dimension and partition columns are in every result, so a pattern may name them.
    always = {*loaded.cube.dimension_columns, *loaded.cube.partition_columns}
    return sorted(matches(pattern, {*payload, *always}, "column") - always) if pattern.strip() else []


def groups_of(text: str | None) -> list[str]:
    """The columns to group by."""
    return [part for part in parts_of(text or "") if part]


def plan_of(
    loaded: LoadedCube, where: tuple[str, ...], columns: str | None, by: str | None, as_of: str | None
) -> QueryPlan:
    """The plan of a query."""
    from kartothek_cube.cli.context import known_commit, whole_commit
    from kartothek_cube.cube.verbs.read import plan_cube_query

    conditions, payload = conditions_of(where, loaded), payload_of(columns, loaded)
    as_of = whole_commit(as_of, partial(known_commit, loaded))
    return plan_cube_query(
        loaded.cube, loaded.store, conditions, None, None, groups_of(by) or None, payload, as_of=as_of
    )


T = TypeVar("T")

_UNASKED = (
    "\nThere are no more answers. A script says what it wants with --where, --columns, --limit or --output; "
    "--output - prints all rows."
)


class Prompt:
    """One question, asked repeatedly.

    A terminal uses prompt_toolkit, which comes with IPython; other inputs are read line by line.
    """

    def __init__(self, message: str, words: Sequence[str]) -> None:
        self._message, self._words = message, words
        self._session: Any = None
        if sys.stdin.isatty():
            with suppress(ImportError):
                from prompt_toolkit import PromptSession

                self._session = PromptSession()

    def ask(self, default: str, parse: Callable[[str], T]) -> T:
        """Ask until the answer parses; ``parse`` raises ``ValueError`` for one that does not."""
        if self._session is not None:
            return parse(_ask_terminal(self._session, self._message, default, self._words, parse))

        def checked(text: str) -> T:
            # Click asks again after this error, not after a ValueError.
            try:
                return parse(text)
            except ValueError as error:
                raise click.UsageError(str(error)) from error

        message = self._message.removesuffix(": ")
        shown = f"{message} [{default}]" if default else message
        try:
            answer: T = click.prompt(shown, default=default, show_default=False, value_proc=checked)
        except click.Abort:
            click.echo("" if sys.stdin.isatty() else _UNASKED, err=True)  # the cursor is behind the question
            raise
        return answer


def _ask_terminal(session: Any, message: str, default: str, words: Sequence[str], parse: Callable[[str], Any]) -> str:
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.validation import ValidationError, Validator

    class Parses(Validator):  # type: ignore[misc, unused-ignore]
        """Accepts texts that `parse` accepts."""

        def validate(self, document: Any) -> None:
            try:
                parse(document.text)
            except ValueError as error:
                raise ValidationError(message=str(error), cursor_position=len(document.text)) from error

    answer: str = session.prompt(
        message, default=default, completer=WordCompleter(list(words)), validator=Parses(), validate_while_typing=False
    )
    return answer


def query_rounds(session: Session) -> None:
    """Ask and answer queries until the user interrupts.

    Raises
    ------
    Failure
        If IPython is not installed.
    click.Abort
        If the shell is killed or a prompt interrupted.
    """
    with working(session):
        loaded = load_cube(session)
    try:
        import IPython
    except ImportError as error:
        raise Failure(
            f"Could not load IPython: {error}. It comes with pip install 'kartothek-cube[interactive]'."
        ) from error
    import pandas as pd

    from kartothek_cube.core.expressions.conditions import conditions_in

    payload = payload_names(loaded)
    conditions_prompt = Prompt("Conditions: ", sorted(loaded.types))
    payload_prompt = Prompt("Payload Columns: ", [ALL, *sorted(loaded.types)])
    always = {*loaded.cube.dimension_columns, *loaded.cube.partition_columns}
    conditions, columns = "", ""
    with pd.option_context("display.width", None, "display.max_rows", 0):
        while True:
            conjunction = conditions_prompt.ask(conditions, lambda text: conditions_in(text, loaded.types))
            selection = payload_prompt.ask(columns, lambda text: parse_payload(text, payload, always))
            conditions, columns = str(conjunction), shown_payload(selection, payload)
            _show_result(session, loaded, conjunction, selection, IPython.embed)


def parse_payload(text: str, known: Sequence[str], always: Collection[str] = ()) -> list[str]:
    """The payload columns that a text names; columns of every result may be named, too.

    Raises
    ------
    ValueError
        If one is unknown.

    Examples
    --------
    >>> parse_payload("UNITS, PRICE", ["BRAND", "PRICE", "UNITS"])
    ['PRICE', 'UNITS']
    >>> parse_payload("", ["BRAND"])
    []
    """
    from kartothek_cube.core.arguments import did_you_mean

    if text.strip() == ALL:
        return list(known)
    names = {name for part in text.split(",") if (name := part.replace(" ", ""))}
    unknown = sorted(names.difference(known, always))
    if unknown:
        hint = did_you_mean(unknown, {*known, *always})
        raise ValueError(f"Unknown: {', '.join(unknown)}{hint and '.'}{hint}")
    return sorted(names.intersection(known))


def shown_payload(selection: Sequence[str], known: Sequence[str]) -> str:
    """The text that selects these columns."""
    return ALL if sorted(selection) == sorted(known) else ",".join(selection)


def _show_result(
    session: Session, loaded: LoadedCube, conjunction: Conjunction, payload: Sequence[str], embed: Callable[..., Any]
) -> None:
    # The rows end with this call: else they would fill memory while the next query runs.
    from kartothek_cube.cube.verbs.read import query_cube

    with working(session):
        frames = query_cube(loaded.cube, loaded.store, conjunction, payload_columns=payload)
    if not frames:
        echo(red("No data found."))
        return
    _shell(frames[0], embed)


def _shell(df: object, embed: Callable[..., Any]) -> None:  # noqa: ARG001 - the user of the shell reads it
    """Open a shell, which sees the variables of this function: ``df``."""
    try:
        embed(banner1="Shell:")
    except Exception as error:
        # Raised by `%kill_embedded`. Compared by name, since IPython is optional.
        if type(error).__name__ == "KillEmbedded":
            raise click.Abort from error
        raise


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
