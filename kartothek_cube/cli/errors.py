"""How errors end a command: one line, and an exit status that scripts can go by."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

import click

from kartothek_cube.errors import KartothekCubeError

# C0 but for the end of a line, C1, and what turns the direction of writing.
_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")

__all__ = ["Failure", "StoreFailure", "escaped", "explained", "one_line"]


class _Ending(click.ClickException):
    def format_message(self) -> str:
        """The message in one line; names in it do nothing to a terminal."""
        return " ".join(line.strip() for line in escaped(self.message).split("\n"))


class Failure(_Ending):
    """What was asked for cannot be done: ``Error: <message>``, exit status 2."""

    exit_code = 2


class StoreFailure(_Ending):
    """The store, or the terminal, did not answer: ``Error: <message>``, exit status 1."""

    exit_code = 1


def one_line(error: BaseException) -> str:
    """What an error says; its type where it says nothing."""
    return str(error).strip() or type(error).__name__


def escaped(text: str) -> str:
    r"""Control characters as they are written in a program, so that a terminal does nothing of what a label says; ends of lines stay.

    Examples
    --------
    >>> print(escaped("a\x1b[31m"))
    a\x1b[31m
    """
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


@contextmanager
def explained() -> Iterator[None]:
    """Errors that are no fault of the program end without a traceback."""
    try:
        yield
    except KartothekCubeError as error:
        raise Failure(one_line(error)) from error
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise  # the reader of our output has gone: click ends quietly
        raise StoreFailure(one_line(error)) from error
