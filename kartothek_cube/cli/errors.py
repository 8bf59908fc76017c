"""Errors that end a command: one line, and an exit status for scripts."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

import click

from kartothek_cube.errors import KartothekCubeError

# C0 without the line feed, C1, line separators, and marks that change the direction of writing.
_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")

__all__ = ["Failure", "SqlFailure", "StoreFailure", "escaped", "explained", "one_line"]


class _Ending(click.ClickException):
    def format_message(self) -> str:
        """The message in one line, without control characters of names in it."""
        return " ".join(line.strip() for line in escaped(self.message).split("\n"))


class Failure(_Ending):
    """The command cannot be carried out: ``Error: <message>``, exit status 2."""

    exit_code = 2


class SqlFailure(Failure):
    """DuckDB refuses a statement, in several lines: one of them points to the place."""

    def format_message(self) -> str:
        """The message as DuckDB wrote it, without control characters of names in it."""
        return escaped(self.message)


class StoreFailure(_Ending):
    """A store or a file failed: ``Error: <message>``, exit status 1."""

    exit_code = 1


def one_line(error: BaseException) -> str:
    """The text of an error; its type if the text is empty."""
    return str(error).strip() or type(error).__name__


def escaped(text: str) -> str:
    r"""Escape control characters, so that a label cannot control the terminal; line feeds stay.

    Examples
    --------
    >>> print(escaped("a\x1b[31m"))
    a\x1b[31m
    """
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


@contextmanager
def explained() -> Iterator[None]:
    """Turn errors of the library and of the system into one line without a traceback."""
    try:
        yield
    except KartothekCubeError as error:
        raise Failure(one_line(error)) from error
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise  # the reader of the output has gone: click ends quietly
        raise StoreFailure(one_line(error)) from error
