"""Explanations as text, HTML and JSON. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from kartothek_cube.core.explain import Explanation, Step, StepRow
from kartothek_cube.core.markup import Markup, cell, details, escape, in_notebook
from kartothek_cube.errors import InvalidInput, Unsupported

__all__ = ["render", "render_html", "render_json", "render_text"]

_FORMATS = ("text", "html", "json")
_SHOWN_FILES = 5


def render(explanation: Explanation, format: str = "text") -> str:  # noqa: A002 - the name users know from data frames
    """The explanation as ``"text"``, ``"html"`` or ``"json"``.

    Raises
    ------
    InvalidInput
        For another format; it is an `Unsupported`, too.
    """
    if format not in _FORMATS:
        raise UnknownFormat(f"explain(format={format!r}) is not supported, only {', '.join(map(repr, _FORMATS))}.")
    return {"text": render_text, "html": render_html, "json": render_json}[format](explanation)


class UnknownFormat(Unsupported, InvalidInput):
    """A format in which nothing is shown."""


# --- text -------------------------------------------------------------------------------------------------------------


def render_text(explanation: Explanation) -> str:
    """Aligned text."""
    facts = [f"{name}: {value}" for name, value in explanation.facts]
    rows = [row for step in explanation.steps for row in step.rows]
    width = max((len(row.name) for row in rows), default=0)
    steps = [line for number, step in enumerate(explanation.steps, 1) for line in ("", *_step_lines(number, step, width))]
    return "\n".join([explanation.title, *facts, *steps, "", *_file_lines(explanation.files)])


def _step_lines(number: int, step: Step, width: int) -> list[str]:
    head = f"   {'':<{width}}  {'before':>9}  {'after':>9}"
    return [f"{number}. {step.title} ({step.unit})", head, *(_row_line(row, width) for row in step.rows)]


def _row_line(row: StepRow, width: int) -> str:
    return f"   {row.name:<{width}}  {_count(row.before):>9}  {_count(row.after):>9}  {row.note}".rstrip()


def _count(n: int | None) -> str:
    return "" if n is None else f"{n:,}"


def _file_lines(files: Sequence[str]) -> list[str]:
    return [f"Files that are read: {len(files):,}", *(f"   {key}" for key in _shown(files))]


def _shown(files: Sequence[str]) -> list[str]:
    more = len(files) - _SHOWN_FILES
    return [*files[:_SHOWN_FILES], *([f"… and {more:,} more"] if more > 0 else [])]


# --- HTML -------------------------------------------------------------------------------------------------------------


def render_html(explanation: Explanation) -> str:
    """A small table, for notebooks; everything in it is escaped."""
    facts = "".join(f'<br><span class="q">{escape(name)}:</span> <code>{escape(value)}</code>' for name, value in explanation.facts)
    head = '<tr><th>step</th><td></td><th class="n">before</th><th class="n">after</th><td></td></tr>'
    steps = "".join(f"<tbody>{_html_step(step)}</tbody>" for step in explanation.steps)
    files = "<br>".join(f"<code>{escape(key)}</code>" for key in _shown(explanation.files))
    shown = details(f"{len(explanation.files):,} files are read", Markup(files))
    return in_notebook(Markup(f"<strong>{escape(explanation.title)}</strong>{facts}<table><thead>{head}</thead>{steps}</table>"), shown)


def _html_step(step: Step) -> str:
    """The rows of a step, with its title at the first one."""
    title = f'<td rowspan="{len(step.rows)}">{escape(step.title)}<br><span class="q">{escape(step.unit)}</span></td>'
    return "".join(f"<tr>{'' if i else title}{_html_row(row)}</tr>" for i, row in enumerate(step.rows))


def _html_row(row: StepRow) -> str:
    return cell(row.name) + cell(_count(row.before), "n") + cell(_count(row.after), "n") + cell(row.note, "q")


# --- JSON -------------------------------------------------------------------------------------------------------------


def render_json(explanation: Explanation) -> str:
    """One JSON object with ``title``, ``steps``, ``files`` (all of them) and a member for each fact."""
    steps = [{"title": s.title, "unit": s.unit, "rows": [_json_row(r) for r in s.rows]} for s in explanation.steps]
    return json.dumps({"title": explanation.title, **dict(explanation.facts), "steps": steps, "files": list(explanation.files)}, ensure_ascii=False)


def _json_row(row: StepRow) -> dict[str, Any]:
    return {"name": row.name, "before": row.before, "after": row.after, "note": row.note}
