"""The interactive query: prompts, the query and a shell with its result, repeated."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kartothek_cube.cli.context import LoadedCube, Session, load_cube, working
from kartothek_cube.cli.errors import Failure
from kartothek_cube.cli.output import echo, red
from kartothek_cube.cli.query.questions import ALL, payload_names

if TYPE_CHECKING:
    from kartothek_cube.api.cube import Conjunction

__all__ = ["Prompt", "parse_payload", "query_rounds", "shown_payload"]

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
