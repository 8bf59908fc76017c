"""Explanations, changes and tables as text, HTML and JSON. Pure.

In order:

- HTML and SVG as text
- the steps of planning as values
- an explanation as text, HTML and JSON
- rows that came, went or changed
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import pyarrow as pa
from msgspec import Struct

from kartothek_cube.core.arguments import pluralize, shortened
from kartothek_cube.core.expressions.predicates import Clause, Predicates
from kartothek_cube.errors import InvalidInput, Unsupported

# XML forbids control characters, even as references; half a surrogate pair has no UTF-8; marks of
# direction make a text look like another one.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")

_CALL = re.compile(r"[\w.]+\(.*\)", re.DOTALL)
_TAG = re.compile(r"<[^>]*>")
_LONG_WORD = re.compile(r"\S{29}")
_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB", "EB", "ZB")

# JupyterLab and Visual Studio Code have a theme of their own, whatever the system prefers.
LIGHT_PAGE = ":is([data-jp-theme-light=true],[data-vscode-theme-kind$=light])"
DARK_PAGE = ":is([data-jp-theme-light=false],[data-vscode-theme-kind$=dark],[data-vscode-theme-kind$=contrast])"

# Colours are those of the notebook, in shades of grey. Marks are mixed with its text colour: they
# are readable on white and on black.
_STYLE = (
    ".kartothek-cube.kartothek-cube{overflow-x:auto;line-height:1.45}"
    ".kartothek-cube.kartothek-cube table{border-collapse:collapse;table-layout:auto;margin:.5em 0;font-size:inherit}"
    ".kartothek-cube.kartothek-cube :is(th,td){text-align:left;vertical-align:top;padding:.2em .9em .2em 0;border:0;"
    "border-bottom:1px solid rgba(128,128,128,.3);white-space:normal;overflow-wrap:break-word;max-width:36em}"
    # Keys, calls and very long names may break anywhere; words may not.
    ".kartothek-cube.kartothek-cube :is(.w,code){overflow-wrap:anywhere}"
    ".kartothek-cube.kartothek-cube td.w{min-width:14em}"
    ".kartothek-cube.kartothek-cube .n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums;"
    "padding-right:1.4em}"
    ".kartothek-cube.kartothek-cube .q{opacity:.7}"
    ".kartothek-cube.kartothek-cube td[rowspan]{max-width:18em}"
    ".kartothek-cube.kartothek-cube pre{white-space:pre-wrap;margin:.3em 0 .6em 1em}"
    ".kartothek-cube.kartothek-cube tfoot td{font-weight:bold}"
    ".kartothek-cube.kartothek-cube :is(.error,.warning){font-weight:bold;white-space:nowrap}"
    ".kartothek-cube :is(.error,.delete,del){color:#d13c3c;color:color-mix(in srgb,currentColor 40%,#d13c3c)}"
    ".kartothek-cube :is(.warning,.update){color:#a06a00;color:color-mix(in srgb,currentColor 40%,#a06a00)}"
    ".kartothek-cube :is(.insert,ins){color:#2a8a45;color:color-mix(in srgb,currentColor 40%,#2a8a45)}"
    # The two images of an update are one row; not by colour alone is it said which is the new one.
    ".kartothek-cube.kartothek-cube td.before{border-bottom:0;padding-bottom:0}"
    ".kartothek-cube ins{text-decoration:none;font-weight:bold}"
    # A chart keeps its letters readable and scrolls sideways if there is no room.
    ".kartothek-cube .kartothek-plan{max-width:max(100%,90em)}"
    "@media print{.kartothek-cube.kartothek-cube{overflow:visible}.kartothek-cube tr{break-inside:avoid}}"
)


class Markup(str):
    """Text that is HTML already; `escape` does not change it."""

    __slots__ = ()


def escape(text: str) -> Markup:
    r"""Text for HTML and SVG, between tags and in attributes; unprintable characters as in Python.

    Examples
    --------
    >>> print(escape("<b> & 'c'"), escape(chr(0)), escape(escape("<")))
    &lt;b&gt; &amp; &#x27;c&#x27; \x00 &lt;
    """
    import html  # reports need it

    if isinstance(text, Markup):
        return text
    return Markup(html.escape(spelled(text), quote=True))


def spelled(text: str) -> str:
    """Text with the unprintable characters escaped as in Python."""
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def show_count(n: float | None) -> str:
    """A whole number with separators; empty for None.

    Examples
    --------
    >>> show_count(1234567)
    '1,234,567'
    """
    return "" if n is None else f"{n:,.0f}"


def show_bytes(n: float | None) -> str:
    """A size in decimal units, with three digits; empty for None.

    Examples
    --------
    >>> [show_bytes(n) for n in (0, 999, 1_234, 56_789_000, 10**15)]
    ['0 bytes', '999 bytes', '1.23 kB', '56.8 MB', '1.00 PB']
    """
    if n is None:
        return ""
    for unit in _UNITS[:-1]:
        if n < 999.5:
            return f"{n:.0f} {unit}" if unit == "bytes" or n >= 99.95 else f"{n:.{1 if n >= 9.995 else 2}f} {unit}"
        n /= 1000
    return f"{n:,.2f} {_UNITS[-1]}"


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Collection[int] = (), foot: Sequence[str] = ()
) -> Markup:
    """A table; the columns at the positions ``numbers`` are aligned to the right."""
    titles = "".join(
        f'<th class="n">{escape(text)}</th>' if i in numbers else f"<th>{escape(text)}</th>"
        for i, text in enumerate(head)
    )
    body = "".join(_row(row, numbers) for row in rows)
    last = f"<tfoot>{_row(foot, numbers)}</tfoot>" if foot else ""
    return Markup(f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody>{last}</table>")


def _row(cells: Sequence[str], numbers: Collection[int]) -> str:
    return f"<tr>{''.join(table_cell(text, 'n' if i in numbers else '') for i, text in enumerate(cells))}</tr>"


def table_cell(text: str, style: str = "", *, span: int = 1) -> Markup:
    """A table cell of a class of the style sheet; a very long word may break anywhere.

    ``span`` is the number of rows that it takes.

    Examples
    --------
    >>> print(table_cell("12", "n"), table_cell("UNITS_" * 9))
    <td class="n">12</td> <td class="w">UNITS_UNITS_UNITS_UNITS_UNITS_UNITS_UNITS_UNITS_UNITS_</td>
    """
    is_long = _LONG_WORD.search(_TAG.sub(" ", text) if isinstance(text, Markup) else text) is not None
    classes = " ".join(filter(None, (style, "w" * is_long)))
    attributes = f' class="{classes}"' * bool(classes) + f' rowspan="{span}"' * (span > 1)
    return Markup(f"<td{attributes}>{escape(text)}</td>")


def code(text: str) -> Markup:
    """A call as code, any other text as words.

    Examples
    --------
    >>> print(code("build_index('sales')"), code("restore the file"))
    <code>build_index(&#x27;sales&#x27;)</code> restore the file
    """
    return Markup(f"<code>{escape(text)}</code>") if _CALL.fullmatch(text) else escape(text)


def or_dash(text: str) -> str:
    """The text, or a dash: an empty cell looks like an omission."""
    return text or "–"


def details(summary: str, body: Markup) -> Markup:
    """A section that opens on a click."""
    return Markup(f"<details><summary>{escape(summary)}</summary>{body}</details>")


def in_notebook(*parts: Markup) -> Markup:
    """The output cell of a notebook: parts below each other, in the colours of the notebook."""
    return Markup(f'<div class="kartothek-cube"><style>{_STYLE}</style>{"".join(parts)}</div>')


# --- the steps of planning as values --------------------------------------------------------------


_SHOWN_VALUES = 5


class StepRow(Struct, frozen=True):
    """One line of a step: a name, the count before and after (None if there is none), a remark."""

    name: str
    before: int | None
    after: int | None
    note: str = ""


class Step(Struct, frozen=True):
    """One step of planning; ``unit`` names the counted things."""

    title: str
    unit: str
    rows: tuple[StepRow, ...]


class Explanation(Struct, frozen=True):
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


# --- an explanation as text -----------------------------------------------------------------------


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


# --- rows that came -------------------------------------------------------------------------------


KINDS = ("inserted", "updated", "deleted")

ChangeCounts: TypeAlias = tuple[str, int, int, int]
"""A dataset, and how many of its cells are of each kind."""

ChangedRow: TypeAlias = tuple[str | None, ...]
"""The kind of a change, then the value of each column as text; None stands for null."""

# Payload columns beyond these are left out: those stay that an update has changed.
_SHOWN_COLUMNS = 12
_LONGEST = 60
_NUMBERS = ("int", "uint", "float", "double", "halffloat", "decimal")
_PREIMAGE, _POSTIMAGE = "update_preimage", "update_postimage"


def counts_table(counts: Iterable[ChangeCounts]) -> Markup:
    """A table of the changes of each dataset."""
    nothing = Markup('<span class="q">0</span>')
    rows = [(name, *(show_count(n) if n else nothing for n in numbers)) for name, *numbers in counts]
    return table(("dataset", *KINDS), rows, numbers=(1, 2, 3))


def changed_rows(changes: pa.Table) -> tuple[ChangedRow, ...]:
    """The rows of a difference as texts.

    Examples
    --------
    >>> changed_rows(pa.table({"_change_type": ["insert"], "UNITS": [3], "PRICE": [None]}))
    (('insert', '3', None),)
    """
    return tuple(zip(*map(_texts, changes.columns), strict=True))


def _texts(column: pa.ChunkedArray) -> list[str | None]:
    try:
        values = column.to_pylist()
    except (OverflowError, ValueError):
        # Python has no dates after the year 9999.
        values = column.cast(pa.string()).to_pylist()
    return [None if value is None else str(value) for value in values]


def changes_table(columns: Mapping[str, str], rows: Sequence[ChangedRow], keys: Sequence[str]) -> Markup:
    """A table of changed rows: the two images of an update stand one under the other.

    A value that an update leaves as it is stands there once, the others are marked. ``columns`` are
    names with their Arrow types, without the kind of the change; those in ``keys`` come first.
    """
    if not rows:
        return Markup("")
    names = list(columns)
    changes = list(_changes(rows))
    payload = [i for i, name in enumerate(names, 1) if name not in keys]
    updated = {i for old, new in changes for i in payload if new is not None and old[i] != new[i]}
    kept = {*sorted(payload, key=lambda i: i not in updated)[:_SHOWN_COLUMNS]}
    shown = [names.index(key) + 1 for key in keys if key in columns] + [i for i in payload if i in kept]
    style = {i: "n" if columns[names[i - 1]].startswith(_NUMBERS) else "" for i in shown}
    titles = "".join(f'<th class="{style[i]}">{escape(names[i - 1])}</th>' for i in shown)
    body = "".join(_one_row(*change, shown, style) for change in changes)
    hidden = len(payload) - len(kept)
    note = f'<span class="q">{pluralize(hidden, "more column")} not shown</span>' if hidden else ""
    return Markup(f"<table><thead><tr><th>change</th>{titles}</tr></thead><tbody>{body}</tbody></table>{note}")


def _changes(rows: Sequence[ChangedRow]) -> Iterator[tuple[ChangedRow, ChangedRow | None]]:
    """Each change: its row, and of an update the row afterwards, too."""
    rest = iter(rows)
    for row in rest:
        yield row, next(rest, None) if row[0] == _PREIMAGE else None


def _one_row(old: ChangedRow, new: ChangedRow | None, shown: Sequence[int], style: Mapping[int, str]) -> str:
    if new is None:
        kind = table_cell(str(old[0]), str(old[0]))
        return f"<tr>{kind}{''.join(table_cell(_value(old[i]), style[i]) for i in shown)}</tr>"
    above = [table_cell("update", "update", span=2)]
    below = []
    for i in shown:
        if old[i] == new[i]:
            above.append(table_cell(_value(old[i]), style[i], span=2))
            continue
        # Neither is pale, as a null is elsewhere: it is what changed.
        was, now = (_value(row[i], null="<i>null</i>") for row in (old, new))
        above.append(table_cell(Markup(f"<del>{was}</del>"), f"{style[i]} before".strip()))
        below.append(table_cell(Markup(f"<ins>{now}</ins>"), style[i]))
    return f"<tr>{''.join(above)}</tr><tr>{''.join(below)}</tr>"


def _value(text: str | None, null: str = '<i class="q">null</i>') -> Markup:
    if text is None:
        return Markup(null)
    if len(text) <= _LONGEST:
        return escape(text or "''")
    return Markup(f'<span title="{escape(text)}">{escape(shortened(text, _LONGEST))}</span>')
