"""How far a verb is: what a function that watches it is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["Phase", "Progress"]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a verb is: what ``options(progress=function)`` calls the function with.

    Attributes
    ----------
    verb : str
        The verb that was called, e.g. ``"build_cube"``.
    subject : str
        The prefix of its cube, or the uuid of its dataset.
    phase : str
        What it does now: ``"read"``, ``"write"``, ``"copy"``, ``"delete"``, ``"index"`` or ``"verify"``. Some verbs have several phases, one after the other.
    unit : str
        What is counted: ``"files"``, ``"partitions"``, ``"groups"``, ``"merges"``, ``"datasets"``, ``"indices"``, ``"commits"``, and in Spark ``"tasks"``.
    done : int
        How many of them are done in this phase.
    total : int | None
        How many there are, where that is known.
    rows, bytes : int
        Rows and bytes of the files that the verb has read so far, or, in the phases ``"write"`` and ``"copy"``, has written. Bytes are those of whole files.

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
    """What is told of some work: what is done, and with what.

    Where a result stands for several of these, ``size`` says of how many, and ``total`` how many there are.
    """

    name: str
    unit: str
    total: int | None = None
    size: Callable[[Any], int] | None = None
