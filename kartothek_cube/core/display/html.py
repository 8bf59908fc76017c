"""HTML and SVG as text: escaping, numbers, tables, the style of notebook output. Pure."""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Iterable, Sequence

__all__ = [
    "DARK_PAGE",
    "LIGHT_PAGE",
    "Markup",
    "code",
    "details",
    "escape",
    "in_notebook",
    "or_dash",
    "show_bytes",
    "show_count",
    "spelled",
    "table",
    "table_cell",
]

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
