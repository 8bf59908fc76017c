"""The commands `query` (interactively, or once, into a file) and `sql` (DuckDB)."""

from __future__ import annotations

import io
import re
import shutil
import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, redirect_stdout, suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kartothek_cube.cli.context import (
    Failure,
    LoadedCube,
    Session,
    SqlFailure,
    commits_in,
    complete_files,
    escaped,
    load_cube,
    missing_directory,
    open_source,
    resolved,
    whole_commit,
    working,
)
from kartothek_cube.cli.options import (
    ALL,
    cube_command,
    payload_names,
    question,
)
from kartothek_cube.cli.output import echo, kind_of, place_of, red, show_written, sink_of, write_output
from kartothek_cube.core.arguments import did_you_mean
from kartothek_cube.errors import DatasetNotFound, one_line

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

    from kartothek_cube.api.cube import Conjunction
    from kartothek_cube.core.stores.contract import Store


@cube_command(
    "query",
    "--where 'BRAND in (Acme, Bolt)' --limit 10",
    "--where 'WEEK >= 10' --output weeks.parquet",
    "--by BRAND --columns 'P*' --output '{BRAND}.csv'",
    "--as-of 2024-01-31 --format json",
)
@question
@click.option("--limit", metavar="N", type=click.IntRange(min=0), help="Stop after so many rows.")
@click.option(
    "--output",
    metavar="<file>",
    shell_complete=complete_files,
    help="A file that ends in .parquet or .csv, or - for CSV on stdout; with {COLUMN} for each column of --by "
    "in its name, one file a group. An existing file is replaced at the end.  [default: -]",
)
@click.pass_obj
def query_command(
    session: Session,
    where: tuple[str, ...],
    columns: str | None,
    by: str | None,
    as_of: str | None,
    limit: int | None,
    output: str | None,
) -> None:
    """Query the cube: interactively, or into a file.

    Without options it asks for conditions and payload columns, and opens an IPython shell with the
    result as `df`, round after round. With one of the options it runs once. Rows are written as
    they are read, physical partition after physical partition, not sorted as a whole.
    """
    if not (where or limit is not None or session.json) and (columns, by, as_of, output) == (None, None, None, None):
        query_rounds(session)
        return
    from kartothek_cube.cli.output import Question, query_once

    query_once(session, Question(where, columns, by, as_of, limit), "-" if output is None else output)


T = TypeVar("T")

_PLAN = ["explain_key", "explain_value"]
# As in the command line of DuckDB: the first rows and the last ones. Lists of tables and columns
# are shown whole.
_ROWS_SHOWN, _ROWS_LISTED = 40, 10_000
_LISTING = re.compile(r"\s*(show|summarize)\b|.*\bdescribe\b", re.IGNORECASE | re.DOTALL)
# One row group of a Parquet file.
_ROWS_OF_A_BATCH = 131_072
# The results of statements that have none.
_NO_ROWS, _QUERIES = (["Count"], ["Success"]), {"SELECT", "MULTI"}
# DuckDB knows the tables of the store only when a statement names them, so its guess is poor.
_UNKNOWN = re.compile(r"Catalog Error: Table with name (?P<name>.*) does not exist!")
# What in `--where` is a text, `BRAND == Acme` or `"Acme"`, is the name of a column in SQL.
_NO_COLUMN = re.compile(r'Binder Error: Referenced column "(?P<name>.*)" (?:was )?not found')
# DuckDB puts words before the error of a scan, and repeats the error behind it with its traceback.
_OF_A_SCAN = re.compile(
    r"Invalid Input Error: (?:reading the stream|arrow_scan).*?(?:\): |failed: )[\w ]+: "
    r"(?P<text>.*?)\.?\. Detail: Python .*",
    re.DOTALL,
)


class _Context(click.Context):
    """Knows that no cube stands in front of the command."""

    @property
    def command_path(self) -> str:
        """The words in front of the options, for the line of usage."""
        return super().command_path.replace(" CUBE ", " ")


@cube_command(
    "sql",
    "'SELECT BRAND, sum(UNITS) FROM sales GROUP BY ALL'",
    "'FROM sales WHERE WEEK >= 10' --output weeks.parquet",
    "'FROM sales LIMIT 5' --as-of 2024-01-31 --format json",
    "'EXPLAIN FROM sales WHERE WEEK = 10'",
    "- < report.sql",
    front="",
)
@click.argument("statement", metavar="[STATEMENT]", nargs=-1)
@click.option(
    "--as-of",
    metavar="<commit or time>",
    help="All tables as they were then: a time such as 2024-01-31T12:00, or a commit, or how its id begins.",
)
@click.option(
    "--output",
    metavar="<file>",
    shell_complete=complete_files,
    help="A file that ends in .parquet or .csv, or - for CSV on stdout. An existing file is replaced at the end.  "
    "[default: a table on a terminal, else -]",
)
@click.pass_context
def sql_command(ctx: click.Context, statement: tuple[str, ...], as_of: str | None, output: str | None) -> None:
    """Run SQL over the cubes of the store, once or at a prompt.

    STATEMENT is SQL of DuckDB, or - to read it from stdin. A cube is a table under its prefix, with
    one row for each cell; a dataset is one under its uuid, in double quotes, with the stored rows.
    Of several statements the last one's rows are shown. Without a statement a prompt opens. Nothing
    in the store is changed.
    """
    session: Session = ctx.obj
    name = ctx.find_root().info_name
    if session.cube:
        raise click.UsageError(f"A cube stands in the statement: {name} sql 'FROM {session.cube} LIMIT 5'", ctx)
    if len(statement) > 1:
        raise click.UsageError(f"The statement is one argument, in quotes: {name} sql 'FROM sales LIMIT 5'", ctx)
    is_terminal = sys.stdout.isatty()
    if not statement and (output is not None or not (is_terminal and sys.stdin.isatty())):
        raise click.UsageError(
            f"Missing argument 'STATEMENT', or - for stdin: {name} sql 'FROM sales LIMIT 5'. "
            "The prompt is for terminals, and without --output.",
            ctx,
        )
    if output is not None and kind_of(output) != "stdout":
        place_of(output)  # an error before the statement has run
    with working(session, quiet=output in (None, "-") and is_terminal):
        store = open_source(session)
        as_of = whole_commit(as_of, lambda text: resolved(_commits(store), text))
        statements = _Statements(session, store, _connected(session, store, as_of))
        if statement:
            text = sys.stdin.read() if statement == ("-",) else statement[0]
            statements.answer(text, output)
        else:
            _prompt(statements, as_of)


sql_command.context_class = _Context


def _commits(store: Store) -> Iterator[dict[str, Any]]:
    from kartothek_cube.core.dataset.maintain import list_datasets

    for uuid in list_datasets(store):
        # The listing also names datasets that no reader sees.
        with suppress(DatasetNotFound):
            yield from commits_in(uuid, store)


def _connected(session: Session, store: Store, as_of: str | None) -> DuckDBPyConnection:
    from kartothek_cube.engines.verbs import connect

    connection = connect(store, as_of=as_of)
    # Else a name that is no table would be looked up among the variables of this program.
    connection.execute("SET python_enable_replacements = false")
    if session.threads:
        connection.execute(f"SET threads = {session.threads}")
    return connection


def _prompt(statements: _Statements, as_of: str | None) -> None:
    try:
        from kartothek_cube.cli.prompt import prompt_rounds
    except ImportError as error:
        raise Failure(
            f"Could not load prompt_toolkit: {error}. It comes with pip install 'kartothek-cube[interactive]'."
        ) from error
    prompt_rounds(statements.store, as_of, partial(statements.answer, each=True))


@dataclass(frozen=True, slots=True)
class _Statements:
    """Runs statements and shows their rows."""

    session: Session
    store: Store
    connection: DuckDBPyConnection

    def answer(self, text: str, output: str | None = None, *, each: bool = False) -> None:
        """Run statements, and show or write the rows of the last one, or of each."""
        with self._explained(text):
            statements = self.connection.extract_statements(text)
            if not statements:
                raise Failure("There is no statement in this text.")
            for number, statement in enumerate(statements, start=1):
                relation = self._interruptible(partial(self.connection.sql, statement.query))
                if each or number == len(statements):
                    # DuckDB gives an empty table for a statement without rows, or nothing.
                    is_table = statement.type.name in _QUERIES or getattr(relation, "columns", None) not in _NO_ROWS
                    rows = _ROWS_LISTED if _LISTING.match(statement.query) else _ROWS_SHOWN
                    self._show(relation if is_table else None, output, rows)

    @contextmanager
    def _explained(self, statements: str) -> Iterator[None]:
        """Turn errors of DuckDB into a message; one about a table names those of the store."""
        import duckdb
        import pyarrow as pa

        try:
            yield
        except (duckdb.Error, pa.ArrowException) as error:
            text = one_line(error)
            if of_a_scan := _OF_A_SCAN.match(text):
                text = f"{of_a_scan['text']}."
            if unknown := _UNKNOWN.match(text):
                from kartothek_cube.core.arguments import did_you_mean, join_names
                from kartothek_cube.engines.tables import list_tables

                names = list_tables(self.store)
                text = f"{unknown[0]} Tables: {join_names(names)}.{did_you_mean([unknown['name']], names)}"
                text += missing_directory(self.store)
            elif (no_column := _NO_COLUMN.match(text)) and _stands_for_text(name := no_column["name"], statements):
                quoted = name.replace("'", "''")
                text += f"\nIf this is a text, it stands in single quotes: '{quoted}'"
            raise SqlFailure(text) from error

    def _interruptible(self, work: Callable[[], T]) -> T:
        """Do work of DuckDB in another thread: in the first one it does not heed Ctrl-C.

        A second Ctrl-C leaves a thread behind that waits for the store.
        """
        done: Future[T] = Future()

        def run() -> None:
            try:
                done.set_result(work())
            except BaseException as error:
                done.set_exception(error)

        threading.Thread(target=copy_context().run, args=(run,), daemon=True).start()
        try:
            return done.result()
        except KeyboardInterrupt:
            while not done.done():
                self.connection.interrupt()  # again, since a query that begins later forgets it
                wait([done], timeout=0.1)
            raise

    def _show(self, relation: DuckDBPyRelation | None, output: str | None, most: int) -> None:
        """The rows in a file, or on stdout as JSON, CSV, or on a terminal as a table of some."""
        if relation is None:
            if output is not None:
                raise Failure(f"The statement has no rows for {output}.")
        elif output is not None or self.session.json:
            self._write(relation, output or "-")
        elif relation.columns == _PLAN:
            plans = self._interruptible(relation.fetchall)
            for line in "\n\n".join(str(plan).strip("\n") for _, plan in plans).split("\n"):
                echo(line)
        elif sys.stdout.isatty():
            click.echo(escaped(self._interruptible(partial(_boxed, relation, most))).rstrip())
        else:
            self._write(relation, "-")

    def _write(self, relation: DuckDBPyRelation, output: str) -> None:
        """Write the rows as DuckDB computes them."""
        twice = [name for name, count in Counter(relation.columns).items() if count > 1]
        # Neither an object of JSON nor a Parquet file can be read by name then.
        if twice and (self.session.json if output == "-" else kind_of(output) == "parquet"):
            raise Failure(f"Several columns of the result are called {', '.join(twice)}; name them apart with AS.")

        def write() -> int:
            # The second name is that of DuckDB 1.
            to_reader = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
            reader = to_reader(_ROWS_OF_A_BATCH)
            with sink_of(self.session, output, reader.schema) as sink:
                return write_output(reader, sink)

        rows = self._interruptible(write)
        if output != "-":
            show_written(self.session, {output: rows})


def _stands_for_text(name: str, statements: str) -> bool:
    """Whether a name is in double quotes, or compared with something, as a text would be."""
    escaped_name = re.escape(name)
    return bool(re.search(rf'"{escaped_name}"|(?:[=<>]|\bin\s*\()\s*{escaped_name}\b', statements, re.IGNORECASE))


def _boxed(relation: DuckDBPyRelation, most: int) -> str:
    """The table that DuckDB draws, as wide as the terminal."""
    text = io.StringIO()
    with redirect_stdout(text):
        relation.show(max_width=shutil.get_terminal_size().columns, max_rows=most)
    return text.getvalue()


# --- the interactive query ------------------------------------------------------------------------


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
