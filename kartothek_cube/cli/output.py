"""How things look: headings, figures, tables, bytes, JSON. Pure but for `show`."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from typing import Any

import click

from kartothek_cube.cli.failures import escaped
from kartothek_cube.cli.session import Session

__all__ = ["bold", "document", "echo", "figure", "json_text", "plain", "red", "section", "show", "size", "table"]

_STEP = 1024
_BEYOND_JSON = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
# Styles are marked by characters that are none, so that what a label or a name holds of control sequences can be told from them.
_SECTION, _BOLD, _RED, _END = "\ufdd0", "\ufdd1", "\ufdd2", "\ufdd3"
_STYLES = {
    ord(mark): click.style("", reset=mark == _END, **style)
    for mark, style in ((_SECTION, {"fg": "yellow", "bold": True, "underline": True}), (_BOLD, {"bold": True}), (_RED, {"fg": "red", "bold": True}), (_END, {}))
}


def echo(line: str) -> None:
    """Print one line with its styles; control characters that names and labels hold are written out."""
    click.echo(escaped(line).replace("\n", "\\n").translate(_STYLES))


def section(text: str) -> str:
    """The heading of a section: bold, underlined, yellow."""
    return f"{_SECTION}{text}{_END}"


def bold(text: str) -> str:
    """The name of a figure or a list."""
    return f"{_BOLD}{text}{_END}"


def red(text: str) -> str:
    """What went wrong, or is missing."""
    return f"{_RED}{text}{_END}"


def figure(name: str, number: int) -> str:
    """One line of statistics."""
    return f"{bold(f'{name}:')}  {number:,}"


def size(count: int) -> str:
    """Bytes for people.

    Examples
    --------
    >>> size(999), size(123_456)
    ('999 B', '120.6 KiB')
    """
    if count < _STEP:
        return f"{count} B"
    power = min(int(math.log(count, _STEP)), 5)
    return f"{count / _STEP**power:.1f} {'KMGTP'[power - 1]}iB"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = ()) -> Iterator[str]:
    """Lines of a table whose columns are as wide as need be; columns in ``right`` hold numbers."""
    cells = [list(row) for row in rows]
    widths = [max(len(row[i]) for row in [list(head), *cells]) for i in range(len(head))]
    numbers = [name in right for name in head]
    yield bold(_line(head, widths, numbers))
    yield from (_line(row, widths, numbers) for row in cells)


def _line(cells: Sequence[str], widths: Sequence[int], numbers: Sequence[bool]) -> str:
    padded = (cell.rjust(width) if number else cell.ljust(width) for cell, width, number in zip(cells, widths, numbers, strict=True))
    return "  ".join(padded).rstrip()


def plain(value: object) -> Any:
    """A value as JSON has it: times in ISO form, durations in seconds, bytes in base64, sets sorted; floats that JSON lacks are null."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(plain(item) for item in value)
    return _scalar(value)


def _scalar(value: object) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def document(value: object) -> str:
    """One JSON document."""
    return json_text(value, indent=2)


def json_text(value: object, indent: int | None = None) -> str:
    """A value in JSON, without control characters."""
    return _BEYOND_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(plain(value), indent=indent, ensure_ascii=False))


def show(session: Session, value: object, lines: Callable[[], Iterable[str]]) -> None:
    """Print a value as the session wants it: the JSON document, or the lines of text."""
    if session.json:
        click.echo(document(value))
        return
    for line in lines():
        echo(line)
