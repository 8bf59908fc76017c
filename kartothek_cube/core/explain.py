"""What planning did, as a value; `core.render` shows it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from kartothek_cube.core.predicates import Clause, Predicates

__all__ = ["Explanation", "Step", "StepRow", "clause_text", "predicates_text"]

_SHOWN_VALUES = 5


@dataclass(frozen=True, slots=True)
class StepRow:
    """One line of a step: what it is about, a count before and after (None where it makes no sense), and a remark."""

    name: str
    before: int | None
    after: int | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of planning; ``unit`` says what is counted."""

    title: str
    unit: str
    rows: tuple[StepRow, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything there is to say of a plan: what was asked for, the steps, the files that are read."""

    title: str
    facts: tuple[tuple[str, str], ...]
    steps: tuple[Step, ...]
    files: tuple[str, ...]


def predicates_text(predicates: Predicates | None) -> str:
    """Predicates in one line.

    Examples
    --------
    >>> predicates_text(((Clause("COUNTRY_CODE", "==", "DE"), Clause("WEEK", "in", (1, 2))), (Clause("UNITS", ">", 9),)))
    "COUNTRY_CODE == 'DE' and WEEK in [1, 2] or UNITS > 9"
    """
    return "none" if predicates is None else " or ".join(" and ".join(map(clause_text, conjunction)) for conjunction in predicates)


def clause_text(clause: Clause) -> str:
    """One comparison; of a long list of constants only the first."""
    return f"{clause.column} {clause.op} {_value_text(clause.value)}"


def _value_text(value: object) -> str:
    if not isinstance(value, tuple):
        return repr(value)
    shown = [repr(v) for v in value[:_SHOWN_VALUES]]
    return f"[{', '.join(shown)}{f', … {len(value):,} values' if len(value) > _SHOWN_VALUES else ''}]"
