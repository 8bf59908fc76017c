"""How a verb runs for the command: with so many threads, and with a bar if stderr is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from kartothek_cube.cli.session import Session

__all__ = ["working"]


@contextmanager
def working(session: Session) -> Iterator[None]:
    """The options of a verb: the threads that were asked for, and progress on stderr if that is a terminal."""
    from kartothek_cube.core.options import options

    with options(threads=session.threads or None, progress=sys.stderr.isatty()):
        yield
