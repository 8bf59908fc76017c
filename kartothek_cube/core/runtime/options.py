"""Options of a call or a block: threads, memory, retries, safety, garbage collection, progress."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import Any, TypedDict, Unpack

from kartothek_cube.core.runtime.progress import Progress
from kartothek_cube.errors import InvalidInput, InvalidType

__all__ = ["Options", "Overrides", "current_options", "options", "use_options"]

_MAX_THREADS = 8


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
        return self.threads or min(os.cpu_count() or 1, _MAX_THREADS)


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
