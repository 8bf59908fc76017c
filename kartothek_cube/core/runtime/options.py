"""Options of a call or a block, and progress of an operation.

In order:

- progress: a function of the user, or a bar
- options: threads, memory, retries, safety, garbage collection
- the switch for code that relies on internals of Arrow
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import Any, Protocol, TypedDict, TypeVar, Unpack

from msgspec import Struct

from kartothek_cube.errors import InvalidInput, InvalidType, MissingExtra

R = TypeVar("R")

# Phases that report the rows and bytes written; all others report those read.
_WRITING = frozenset({"copy", "write"})


class Progress(Struct, frozen=True):
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


class Phase(Struct, frozen=True):
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


# --- options --------------------------------------------------------------------------------------


_THREADS = min(os.cpu_count() or 1, 8)


def _check_type(name: str, value: object, expected: type) -> None:
    if not isinstance(value, expected):
        raise InvalidType(f"Option {name} is a {expected.__name__}, not {type(value).__name__}: {value!r}.")


def _check_int(name: str, value: int, least: int) -> None:
    if isinstance(value, bool):
        raise InvalidType(f"Option {name} is an int, not bool: {value!r}.")
    _check_type(name, value, int)
    if value < least:
        raise InvalidInput(f"Option {name} is at least {least}, not {value}.")


def _check_duration(name: str, value: timedelta) -> None:
    _check_type(name, value, timedelta)
    if value < timedelta(0):
        raise InvalidInput(f"Option {name} is not negative; it is {value}.")


@dataclass(frozen=True, slots=True)
class Options:
    """All options, with their defaults.

    Attributes
    ----------
    threads : int | None
        Threads of one call. Default: the number of processors, at most 8; for requests to an object
        store 32.
    bytes_in_flight : int
        Bytes of rows that a call buffers: rows to be written, read from a stream, or collected for
        their group. One file may exceed it.
    commit_retries : int
        How often a commit that lost against another writer is rebased onto the newer state, with
        growing pauses, before `CommitConflict` is raised.
    patience : timedelta
        How long a write waits for another process that writes several datasets of the cube at once,
        before it aborts that write.
    require_atomic : bool
        Refuse commits to stores that cannot compare and swap. ``False`` declares that there is only
        one writer.
    grace : timedelta
        Age below which garbage collection keeps unreferenced files: they may belong to a running
        write or reader.
    retain : timedelta
        How long garbage collection keeps replaced data files and the history that names them (in
        Delta: ``VACUUM … RETAIN``).
    progress : bool | Callable[[Progress], object] | None
        ``True`` shows a bar, on a terminal and in notebooks (needs the extra ``progress``); a
        function is called repeatedly with a `Progress`.
    statistics : bool | Sequence[str]
        The columns of which writes keep the least and the greatest value of each file, so that
        reads open fewer files: ``True``, the first 64 of numbers, dates, times and short texts,
        dimensions before others; or their names; ``False``, none. A name that a dataset does not
        have is passed over.
    target_file_bytes : int | None
        The size at which writes of rows cut files, each a partition of its own; a new dataset keeps
        it on record. Default: what is on record, else files are not cut. Files with labels that you
        chose are never cut. See the page *Layout*.
    """

    threads: int | None = None
    bytes_in_flight: int = 256 * 2**20
    commit_retries: int = 100
    patience: timedelta = timedelta(seconds=5)
    require_atomic: bool = True
    grace: timedelta = timedelta(days=1)
    retain: timedelta = timedelta(days=7)
    progress: bool | Callable[[Progress], object] | None = False
    statistics: bool | Sequence[str] = True
    target_file_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.threads is not None:
            _check_int("threads", self.threads, 1)
        _check_int("bytes_in_flight", self.bytes_in_flight, 1)
        if self.target_file_bytes is not None:
            _check_int("target_file_bytes", self.target_file_bytes, 1)
        _check_int("commit_retries", self.commit_retries, 0)
        _check_type("require_atomic", self.require_atomic, bool)
        _check_duration("patience", self.patience)
        _check_duration("grace", self.grace)
        _check_duration("retain", self.retain)
        chosen: Any = self.statistics
        if not isinstance(chosen, bool):
            is_list = isinstance(chosen, Sequence) and not isinstance(chosen, str)
            if not is_list or not all(isinstance(name, str) for name in chosen):
                raise InvalidType(f"Option statistics is True, False or a list of names of columns, not {chosen!r}.")
            object.__setattr__(self, "statistics", tuple(chosen))
        if not isinstance(self.progress, bool | None) and not callable(self.progress):
            raise InvalidType(f"Option progress is True, False or a function, not {self.progress!r}.")

    @property
    def is_watched(self) -> bool:
        """Whether progress is reported."""
        # No truth test: a callable object may be false, as an empty list is.
        return self.progress is not None and self.progress is not False

    @property
    def thread_count(self) -> int:
        """The number of threads, with the default filled in."""
        return self.threads or _THREADS


class OptionValues(TypedDict, total=False):
    """The options by name."""

    threads: int | None
    bytes_in_flight: int
    commit_retries: int
    patience: timedelta
    require_atomic: bool
    grace: timedelta
    retain: timedelta
    progress: bool | Callable[[Progress], object] | None
    statistics: bool | Sequence[str]
    target_file_bytes: int | None


@dataclass(frozen=True, slots=True, init=False)
class Overrides:
    """Some options: a value for the ``options=`` of a call, or a context manager for a block.

    It can be reused and shared.
    """

    values: OptionValues

    def __init__(self, **values: Unpack[OptionValues]) -> None:
        unknown = sorted(values.keys() - {field.name for field in fields(Options)})
        if unknown:
            raise InvalidInput(f"Unknown options {unknown}; there are {[field.name for field in fields(Options)]}.")
        Options(**values)  # raises for invalid values now, not in the middle of a call
        object.__setattr__(self, "values", values)

    def applied_to(self, base: Options) -> Options:
        """Return ``base`` with these options replaced."""
        return replace(base, **self.values)

    def __enter__(self) -> Options:
        stack = _STACK.get()
        _STACK.set((*stack, self.applied_to(stack[-1])))
        return current_options()

    def __exit__(self, *exception: object) -> None:
        _STACK.set(_STACK.get()[:-1])


_STACK: ContextVar[tuple[Options, ...]] = ContextVar("kartothek_cube_options", default=(Options(),))


def options(**values: Unpack[OptionValues]) -> Overrides:
    """Set options for one call or for a block.

    The result is a value for the ``options=`` of a call, and a context manager for a block. Blocks
    nest; an inner one changes only what it names. See `Options` for their meaning.

    Raises
    ------
    InvalidInput, InvalidType
        If an option is unknown or has a value that cannot be used.

    Examples
    --------
    >>> with options(threads=2):
    ...     current_options().threads
    2
    >>> current_options(options(commit_retries=3)).commit_retries
    3
    """
    return Overrides(**values)


def current_options(overrides: Overrides | Options | None = None) -> Options:
    """Return the current options, changed by the ``options=`` argument of a call."""
    current = _STACK.get()[-1]
    if overrides is None:
        return current
    if isinstance(overrides, Options):
        return overrides
    if isinstance(overrides, Overrides):
        return overrides.applied_to(current)
    raise InvalidType(f"options= takes what kartothek_cube.options(...) returns, not {type(overrides).__name__}.")


@contextlib.contextmanager
def use_options(overrides: Overrides | Options | None) -> Iterator[Options]:
    """Apply the ``options=`` argument of a call to its body."""
    chosen = current_options(overrides)
    _STACK.set((*_STACK.get(), chosen))
    try:
        yield chosen
    finally:
        _STACK.set(_STACK.get()[:-1])


# --- the switch for code that relies on internals of Arrow ----------------------------------------


# Read once, at import: a call must not read one file the fast way and the next one the plain way.
_IS_ON = os.environ.get("KARTOTHEK_CUBE_FAST") != "0"


def uses_fast_paths() -> bool:
    """Whether this process takes the fast paths.

    ``KARTOTHEK_CUBE_FAST=0`` in its environment turns all of them off. Results are the same.
    """
    return _IS_ON
