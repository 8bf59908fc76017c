"""The steps of a plan, and how they are shown as text. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Step", "StepRow", "render_text"]


@dataclass(frozen=True, slots=True)
class StepRow:
    """What one step did to one dataset: a count before and after (None where it makes no sense), and a remark."""

    dataset: str
    before: int | None
    after: int | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of planning; ``unit`` says what is counted."""

    number: int
    title: str
    unit: str
    rows: tuple[StepRow, ...]


def render_text(title: str, steps: Sequence[Step]) -> str:
    """All steps as aligned text."""
    width = max([len("dataset"), *(len(row.dataset) for step in steps for row in step.rows)])
    return "\n".join([title, *(line for step in steps for line in ("", *_step_lines(step, width)))])


def _step_lines(step: Step, width: int) -> list[str]:
    head = f"   {'dataset':<{width}}  {'before':>9}  {'after':>9}  ({step.unit})"
    return [f"{step.number}. {step.title}", head, *(_row_line(row, width) for row in step.rows)]


def _row_line(row: StepRow, width: int) -> str:
    return f"   {row.dataset:<{width}}  {_count(row.before):>9}  {_count(row.after):>9}  {row.note}".rstrip()


def _count(n: int | None) -> str:
    return "" if n is None else f"{n:,}"
