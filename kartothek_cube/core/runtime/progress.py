"""Progress of an operation, reported to a function of the user or shown as a bar."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from kartothek_cube.errors import MissingExtra

__all__ = ["Bar", "Phase", "Progress", "ProgressReporter", "require_tqdm", "with_progress"]

R = TypeVar("R")

# Phases that report the rows and bytes written; all others report those read.
_WRITING = frozenset({"copy", "write"})


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a verb is: the argument of the function in ``options(progress=function)``.

    Attributes
    ----------
    verb : str
        The called verb, e.g. ``"build_cube"``.
    subject : str
        The prefix of its cube, or the uuid of its dataset.
    phase : str
        The current work: ``"read"``, ``"write"``, ``"copy"``, ``"delete"``, ``"index"`` or
        ``"verify"``. Some verbs have several phases.
    unit : str
        The counted things: ``"files"``, ``"partitions"``, ``"groups"``, ``"merges"``,
        ``"datasets"``, ``"indices"``, ``"commits"``, and in Spark ``"tasks"``.
    done : int
        How many of them are done in this phase.
    total : int | None
        How many there are, if known.
    rows, bytes : int
        Rows and bytes of the files read so far; written, in the phases ``"write"`` and ``"copy"``.
        Bytes are those of whole files.

    Examples
    --------
    >>> from kartothek_cube import Progress
    >>> str(Progress("build_cube", "sales", "write", "files", 3, 12))
    'build_cube sales: write 3 of 12 files'
    """

    verb: str
    subject: str
    phase: str
    unit: str
    done: int
    total: int | None = None
    rows: int = 0
    bytes: int = 0

    def __str__(self) -> str:
        count = f"{self.done}" if self.total is None else f"{self.done} of {self.total}"
        return f"{self.heading} {count} {self.unit}"

    @property
    def heading(self) -> str:
        """Verb, subject and phase, e.g. ``build_cube sales: write``."""
        call = f"{self.verb} {self.subject}".strip()
        return f"{call}: {self.phase}" if call else self.phase


@dataclass(frozen=True, slots=True)
class Phase:
    """How work is reported: its name, and the unit that is counted.

    If one result stands for several units, ``size`` gives their number, and ``total`` the number of
    all units.
    """

    name: str
    unit: str
    total: int | None = None
    size: Callable[[Any], int] | None = None


def require_tqdm() -> Any:
    """The tqdm class that suits the terminal or notebook.

    Raises
    ------
    MissingExtra
        If tqdm is not installed.
    """
    try:
        return importlib.import_module("tqdm.auto").tqdm
    except ImportError as error:
        raise MissingExtra(
            "options(progress=True) needs the package tqdm, which is not installed: "
            "pip install 'kartothek-cube[progress]'"
        ) from error


class Bar:
    """Draws one phase with tqdm: on stderr if that is a terminal, and in notebooks.

    The bar is removed at its end.
    """

    def __init__(self) -> None:
        self._make = require_tqdm()
        self._bar: Any = None

    def __call__(self, event: Progress) -> None:
        """Draw the progress."""
        if self._bar is None:  # no truth test: a bar without a total raises
            # For tqdm a notebook is not a terminal, so `disable=None` would hide the bar there.
            in_notebook = any(base.__module__ == "tqdm.notebook" for base in self._make.__mro__)
            self._bar = self._make(
                desc=event.heading,
                unit=f" {event.unit}",
                total=event.total,
                leave=False,
                dynamic_ncols=True,
                disable=False if in_notebook else None,
            )
        self._bar.total = event.total
        self._bar.update(event.done - self._bar.n)

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()


class ReportedOperation(Protocol):
    """The part of an operation that a reporter uses."""

    verb: str
    subject: str
    reporter: ProgressReporter | None

    def rows_and_bytes(self, *, written: bool) -> tuple[int, int]:
        """Rows and bytes of the files written, or read, so far."""


class ProgressReporter:
    """Reports one phase of an operation.

    A nested phase is not reported, e.g. a query in the generator of the rows that are written.
    """

    def __init__(
        self, sink: Callable[[Progress], object] | Bar, phase: Phase, operation: ReportedOperation | None
    ) -> None:
        self._sink, self.phase, self._operation = sink, phase, operation

    def __enter__(self) -> None:
        if self._operation is not None and self._operation.reporter is None:
            self._operation.reporter = self

    def __exit__(self, *exception: object) -> None:
        if self._operation is not None and self._operation.reporter is self:
            self._operation.reporter = None
        if isinstance(self._sink, Bar):
            self._sink.close()

    def __call__(self, done: int, total: int | None) -> None:
        """Report how much is done."""
        operation, name, unit = self._operation, self.phase.name, self.phase.unit
        if operation is None:
            self._sink(Progress("", "", name, unit, done, total))
        elif operation.reporter is self:
            rows, nbytes = operation.rows_and_bytes(written=name in _WRITING)
            self._sink(Progress(operation.verb, operation.subject, name, unit, done, total, rows, nbytes))


def with_progress(
    results: Generator[R, None, None], report: ProgressReporter, total: int | None
) -> Generator[R, None, None]:
    """The results; each one is reported when the reader takes it."""
    size, total, done = report.phase.size, total if report.phase.total is None else report.phase.total, 0
    with closing(results), report:
        if total != 0:
            report(0, total)
        for result in results:
            done += 1 if size is None else size(result)
            report(done, total)
            yield result
