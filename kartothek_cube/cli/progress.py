"""A line on the terminal that says how far a verb is; nothing of it stays."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from kartothek_cube.cli.session import Session

__all__ = ["Bar", "bar_text", "working"]

_WIDTH = 30
_PAUSE = 0.05
_CLEAR = "\r\x1b[K"


def bar_text(what: str, done: int, total: int | None) -> str:
    """The line for so many finished tasks.

    Examples
    --------
    >>> bar_text("stats", 1, 2)
    'stats [###############               ]  50% 1/2'
    >>> bar_text("query", 7, None)
    'query 7'
    """
    if not total:
        return f"{what} {done:,}"
    filled = _WIDTH * min(done, total) // total
    return f"{what} [{'#' * filled:<{_WIDTH}}] {100 * min(done, total) // total:>3}% {done:,}/{total:,}"


class Bar:
    """What `options(progress=...)` calls; draws on a terminal."""

    def __init__(self, what: str, stream: TextIO) -> None:
        self._what, self._stream = what, stream
        self._drawn = -_PAUSE

    def __call__(self, done: int, total: int | None) -> None:
        """Draw, unless it has just been drawn; the end of the work is always seen."""
        now = time.monotonic()
        if done == total or now - self._drawn >= _PAUSE:
            self._drawn = now
            self._stream.write(_CLEAR + bar_text(self._what, done, total))
            self._stream.flush()

    def clear(self) -> None:
        """Leave an empty line."""
        self._stream.write(_CLEAR)
        self._stream.flush()


@contextmanager
def working(session: Session, what: str) -> Iterator[None]:
    """The options of a verb: the threads that were asked for, and progress on stderr if that is a terminal."""
    from kartothek_cube.core.options import options

    threads = session.threads or os.cpu_count() or 1
    if not sys.stderr.isatty():
        with options(threads=threads):
            yield
        return
    bar = Bar(what, sys.stderr)
    try:
        with options(threads=threads, progress=bar):
            yield
    finally:
        bar.clear()
