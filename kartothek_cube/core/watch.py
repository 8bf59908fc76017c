"""Telling whoever watches a verb how far it is: a function of the user, or a bar."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from typing import Any, TypeVar

from kartothek_cube.core.bar import Bar
from kartothek_cube.core.journal import current_entry
from kartothek_cube.core.options import current_options
from kartothek_cube.core.progress import Phase, Progress

__all__ = ["Teller", "teller", "told"]

R = TypeVar("R")

# Phases in which rows and bytes are those that are written.
_WRITING = frozenset({"copy", "write"})


class Teller:
    """Tells of one phase of the verb in whose body it is made. A phase that lies inside another one, as of a query in a generator of rows, is not told."""

    def __init__(self, watch: Callable[[Progress], object] | Bar, phase: Phase) -> None:
        self._watch, self._phase, self._entry = watch, phase, current_entry()

    def __enter__(self) -> None:
        if self._entry is not None and self._entry.told_by is None:
            self._entry.told_by = self

    def __exit__(self, *exception: object) -> None:
        if self._entry is not None and self._entry.told_by is self:
            self._entry.told_by = None
        if isinstance(self._watch, Bar):
            self._watch.close()

    def __call__(self, done: int, total: int | None) -> None:
        """Say how much is done."""
        entry, name, unit = self._entry, self._phase.name, self._phase.unit
        if entry is None:
            self._watch(Progress("", "", name, unit, done, total))
            return
        if entry.told_by is not self:
            return
        counts = entry.counts
        rows, nbytes = (counts.rows_written, counts.bytes_written) if name in _WRITING else (counts.rows_read, counts.bytes_read)
        self._watch(Progress(entry.verb, entry.subject, name, unit, done, total, rows, nbytes))


def teller(phase: Phase) -> Teller | None:
    """What tells those who watch, if there are any."""
    settings = current_options()
    watch: Any = settings.progress
    return Teller(Bar() if watch is True else watch, phase) if settings.is_watched else None


def told(results: Generator[R, None, None], phase: Phase, total: int | None) -> Generator[R, None, None]:
    """The results, while those who watch are told how many there are."""
    tell = teller(phase)
    return results if tell is None else _told(results, tell, phase.size, total if phase.total is None else phase.total)


def _told(results: Generator[R, None, None], tell: Teller, size: Callable[[R], int] | None, total: int | None) -> Generator[R, None, None]:
    done = 0
    with closing(results), tell:
        if total != 0:
            tell(0, total)
        for result in results:
            done += 1 if size is None else size(result)
            tell(done, total)
            yield result
