"""The steps of planning as a value, which `core.display.render` shows. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from kartothek_cube.core.expressions.predicates import Clause, Predicates

__all__ = ["Explanation", "Step", "StepRow", "clause_text", "predicates_text"]

_SHOWN_VALUES = 5


@dataclass(frozen=True, slots=True)
class StepRow:
    """One line of a step: a name, the count before and after (None if there is none), a remark."""

    name: str
    before: int | None
    after: int | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of planning; ``unit`` names the counted things."""

    title: str
    unit: str
    rows: tuple[StepRow, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """An explained plan: the facts of the query, the steps, the files that are read."""

    title: str
    facts: tuple[tuple[str, str], ...]
    steps: tuple[Step, ...]
    files: tuple[str, ...]


def predicates_text(predicates: Predicates | None) -> str:
    """Predicates in one line.

    Examples
    --------
    >>> weeks = (Clause("COUNTRY_CODE", "==", "DE"), Clause("WEEK", "in", (1, 2)))
    >>> predicates_text((weeks, (Clause("UNITS", ">", 9),)))
    "COUNTRY_CODE == 'DE' and WEEK in [1, 2] or UNITS > 9"
    """
    if predicates is None:
        return "none"
    return " or ".join(" and ".join(map(clause_text, conjunction)) for conjunction in predicates)


def clause_text(clause: Clause) -> str:
    """One comparison; a long list of constants is cut."""
    if not isinstance(clause.value, tuple):
        return f"{clause.column} {clause.op} {clause.value!r}"
    more = f", … {len(clause.value):,} values" if len(clause.value) > _SHOWN_VALUES else ""
    return f"{clause.column} {clause.op} [{', '.join(map(repr, clause.value[:_SHOWN_VALUES]))}{more}]"
