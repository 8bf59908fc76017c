"""Explanations as text, HTML and JSON. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence

from kartothek_cube.core.display.explain import Explanation, Step
from kartothek_cube.core.display.html import Markup, details, escape, in_notebook, table_cell
from kartothek_cube.errors import InvalidInput, Unsupported

__all__ = ["first_files", "render", "render_html", "render_json", "render_text"]

_FORMATS = ("text", "html", "json")
_SHOWN_FILES = 5


def render(explanation: Explanation, format: str = "text") -> str:  # noqa: A002 - the name of the public argument
    """The explanation as ``"text"``, ``"html"`` or ``"json"``.

    Raises
    ------
    InvalidInput
        For another format; the error is an `Unsupported`, too.
    """
    if format not in _FORMATS:
        raise UnknownFormat(f"explain(format={format!r}) is not supported, only {', '.join(map(repr, _FORMATS))}.")
    return {"text": render_text, "html": render_html, "json": render_json}[format](explanation)


class UnknownFormat(Unsupported, InvalidInput):
    """The argument ``format`` is unknown."""


def render_text(explanation: Explanation) -> str:
    """Aligned text."""
    rows = [row for step in explanation.steps for row in step.rows]
    width = max((len(row.name) for row in rows), default=0)
    lines = [explanation.title, *(f"{name}: {value}" for name, value in explanation.facts)]
    for number, step in enumerate(explanation.steps, 1):
        lines += ["", f"{number}. {step.title} ({step.unit})", f"   {'':<{width}}  {'before':>9}  {'after':>9}"]
        for row in step.rows:
            counts = f"{_count(row.before):>9}  {_count(row.after):>9}"
            lines.append(f"   {row.name:<{width}}  {counts}  {row.note}".rstrip())
    lines += ["", f"Files that are read: {len(explanation.files):,}"]
    lines += [f"   {key}" for key in first_files(explanation.files)]
    return "\n".join(lines)


def render_html(explanation: Explanation) -> str:
    """A small table for notebooks; all texts in it are escaped."""
    facts = "".join(
        f'<br><span class="q">{escape(name)}:</span> <code>{escape(value)}</code>' for name, value in explanation.facts
    )
    head = '<tr><th>step</th><td></td><th class="n">before</th><th class="n">after</th><td></td></tr>'
    steps = "".join(f"<tbody>{_html_rows(step)}</tbody>" for step in explanation.steps)
    table = Markup(f"<strong>{escape(explanation.title)}</strong>{facts}<table><thead>{head}</thead>{steps}</table>")
    files = "<br>".join(f"<code>{escape(key)}</code>" for key in first_files(explanation.files))
    return in_notebook(table, details(f"{len(explanation.files):,} files are read", Markup(files)))


def _html_rows(step: Step) -> str:
    """The rows of a step, with its title in front of the first one."""
    title = f'<td rowspan="{len(step.rows)}">{escape(step.title)}<br><span class="q">{escape(step.unit)}</span></td>'
    rows = []
    for row in step.rows:
        counts = table_cell(_count(row.before), "n") + table_cell(_count(row.after), "n")
        rows.append(f"{table_cell(row.name)}{counts}{table_cell(row.note, 'q')}")
    return "".join(f"<tr>{'' if i else title}{row}</tr>" for i, row in enumerate(rows))


def render_json(explanation: Explanation) -> str:
    """One JSON object: ``title``, ``steps``, all ``files``, and a member for each fact."""
    steps = [
        {
            "title": step.title,
            "unit": step.unit,
            "rows": [{"name": r.name, "before": r.before, "after": r.after, "note": r.note} for r in step.rows],
        }
        for step in explanation.steps
    ]
    values = {"title": explanation.title, **dict(explanation.facts), "steps": steps, "files": list(explanation.files)}
    return json.dumps(values, ensure_ascii=False)


def _count(n: int | None) -> str:
    return "" if n is None else f"{n:,}"


def first_files(files: Sequence[str]) -> list[str]:
    """The first keys, and how many more there are."""
    more = len(files) - _SHOWN_FILES
    return [*files[:_SHOWN_FILES], *([f"… and {more:,} more"] if more > 0 else [])]
