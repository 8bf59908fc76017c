"""A prompt with history, completion of words and a check of what was typed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

__all__ = ["Prompt"]

T = TypeVar("T")

_UNASKED = "\nThere are no more answers. A script says what it wants with --where, --columns, --limit or --output; --output - prints all rows."


class Prompt:
    """One question that is asked again and again.

    On a terminal prompt_toolkit asks, which comes with IPython; else lines are read as they are.
    """

    def __init__(self, message: str, words: Sequence[str]) -> None:
        self._message, self._words = message, words
        self._session = _terminal_session() if sys.stdin.isatty() else None

    def ask(self, default: str, parse: Callable[[str], T]) -> T:
        """Ask until the answer parses; ``parse`` raises ``ValueError`` for one that does not."""
        if self._session is None:
            return _ask_plainly(self._message, default, parse)
        return parse(_ask_terminal(self._session, self._message, default, self._words, parse))


def _terminal_session() -> Any:
    try:
        from prompt_toolkit import PromptSession
    except ImportError:
        return None
    return PromptSession()


def _ask_terminal(session: Any, message: str, default: str, words: Sequence[str], parse: Callable[[str], Any]) -> str:
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.validation import ValidationError, Validator

    class Parses(Validator):  # type: ignore[misc, unused-ignore]
        """What `parse` takes."""

        def validate(self, document: Any) -> None:
            try:
                parse(document.text)
            except ValueError as error:
                raise ValidationError(message=str(error), cursor_position=len(document.text)) from error

    answer: str = session.prompt(message, default=default, completer=WordCompleter(list(words)), validator=Parses(), validate_while_typing=False)
    return answer


def _ask_plainly(message: str, default: str, parse: Callable[[str], T]) -> T:
    def checked(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise click.UsageError(str(error)) from error

    shown = f"{message.removesuffix(': ')} [{default}]" if default else message.removesuffix(": ")
    try:
        answer: T = click.prompt(shown, default=default, show_default=False, value_proc=checked)
    except click.Abort:
        click.echo("" if sys.stdin.isatty() else _UNASKED, err=True)  # the cursor is behind the question
        raise
    return answer
