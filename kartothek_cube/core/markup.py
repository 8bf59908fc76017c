"""HTML and SVG as text: escaping, numbers for people, tables, and the style that everything shown in a notebook shares. Pure."""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Iterable, Sequence

__all__ = ["Markup", "counted", "details", "escape", "in_notebook", "shortened", "show_bytes", "show_count", "spelled", "table"]

# XML knows none of these, however they are spelled; half a surrogate pair has no UTF-8; marks of direction make a text look like another one.
_UNSPEAKABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB", "EB", "ZB")

# Colours are those of the notebook, in shades of grey; marks are of middling lightness, so that they can be read on white and on black.
_STYLE = (
    ".kartothek-cube.kartothek-cube{overflow-x:auto;line-height:1.45}"
    ".kartothek-cube.kartothek-cube table{border-collapse:collapse;table-layout:auto;margin:.5em 0;font-size:inherit}"
    ".kartothek-cube.kartothek-cube :is(th,td){text-align:left;vertical-align:top;padding:.2em .8em .2em 0;border:0;"
    "border-bottom:1px solid rgba(128,128,128,.3);white-space:normal;overflow-wrap:break-word;max-width:36em}"
    # Keys, calls and values may break anywhere, words may not.
    ".kartothek-cube.kartothek-cube :is(.w,code){overflow-wrap:anywhere}"
    ".kartothek-cube.kartothek-cube .n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}"
    ".kartothek-cube.kartothek-cube .q{opacity:.7}"
    ".kartothek-cube.kartothek-cube td[rowspan]{max-width:18em}"
    ".kartothek-cube.kartothek-cube pre{white-space:pre-wrap;margin:.3em 0 .6em 1em}"
    ".kartothek-cube.kartothek-cube tfoot td{font-weight:bold}"
    ".kartothek-cube.kartothek-cube :is(.error,.warning){font-weight:bold;white-space:nowrap}"
    ".kartothek-cube .error{color:#d13c3c}.kartothek-cube .warning{color:#a06a00}"
)


class Markup(str):
    """Text that is HTML already; `escape` leaves it as it is."""

    __slots__ = ()


def escape(text: str) -> Markup:
    r"""Text for HTML and SVG, between tags and in attributes. Characters that neither can hold are shown as in Python.

    Examples
    --------
    >>> print(escape("<b> & 'c'"), escape(chr(0)), escape(escape("<")))
    &lt;b&gt; &amp; &#x27;c&#x27; \x00 &lt;
    """
    if isinstance(text, Markup):
        return text
    return Markup(html.escape(spelled(text), quote=True))


def spelled(text: str) -> str:
    """Text with the characters that a page cannot hold, or that change how it reads, as in Python."""
    return _UNSPEAKABLE.sub(_spelled, text)


def _spelled(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def shortened(text: str, length: int) -> str:
    """Text of at most so many characters; what is left out shows as an ellipsis in the middle, as both ends of a key say something.

    Examples
    --------
    >>> shortened("STORE_GROUP=MAIN", 11)
    'STORE…=MAIN'
    """
    if len(text) <= length:
        return text
    tail = (length - 1) // 2
    return f"{text[: length - 1 - tail]}…{text[len(text) - tail :]}"


def show_count(n: float | None) -> str:
    """A whole number with separators; nothing for None.

    Examples
    --------
    >>> show_count(1234567)
    '1,234,567'
    """
    return "" if n is None else f"{n:,.0f}"


def counted(n: int, noun: str) -> str:
    """So many things, whose plural is regular.

    Examples
    --------
    >>> counted(1, "file"), counted(1200, "file")
    ('1 file', '1,200 files')
    """
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def show_bytes(n: float | None) -> str:
    """A size in decimal units, with three digits; nothing for None.

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


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Collection[int] = (), foot: Sequence[str] = ()) -> Markup:
    """A table; the columns at the positions ``numbers`` are aligned to the right."""
    titles = "".join(f"<th{_align(i, numbers)}>{escape(text)}</th>" for i, text in enumerate(head))
    body = "".join(_row(row, numbers) for row in rows)
    last = f"<tfoot>{_row(foot, numbers)}</tfoot>" if foot else ""
    return Markup(f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody>{last}</table>")


def _row(cells: Sequence[str], numbers: Collection[int]) -> str:
    return f"<tr>{''.join(f'<td{_align(i, numbers)}>{escape(cell)}</td>' for i, cell in enumerate(cells))}</tr>"


def _align(position: int, numbers: Collection[int]) -> str:
    return ' class="n"' if position in numbers else ""


def details(summary: str, body: Markup) -> Markup:
    """Something that opens on a click."""
    return Markup(f"<details><summary>{escape(summary)}</summary>{body}</details>")


def in_notebook(*parts: Markup) -> Markup:
    """What an output cell of a notebook shows: parts one below the other, in the colours of the notebook."""
    return Markup(f'<div class="kartothek-cube"><style>{_STYLE}</style>{"".join(parts)}</div>')
