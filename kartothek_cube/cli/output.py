"""Output of the commands: styles, figures, tables, sizes, JSON; and questions before deletions."""

from __future__ import annotations

import base64
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any

import click

from kartothek_cube.cli.context import Session, escaped
from kartothek_cube.errors import ReadOnlyStore

if TYPE_CHECKING:
    from kartothek_cube.core.stores.contract import Store


_STEP = 1024
# Control characters that `json.dumps` does not escape.
_BEYOND_JSON = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069]")

# Noncharacters of Unicode mark the styles, so that control sequences in names can be escaped.
_SECTION, _BOLD, _RED, _END = "\ufdd0", "\ufdd1", "\ufdd2", "\ufdd3"
_STYLES = {
    ord(mark): click.style("", reset=mark == _END, **style)
    for mark, style in (
        (_SECTION, {"fg": "yellow", "bold": True, "underline": True}),
        (_BOLD, {"bold": True}),
        (_RED, {"fg": "red", "bold": True}),
        (_END, {}),
    )
}


def echo(line: str) -> None:
    """Print one line with its styles; control characters of names and labels are escaped."""
    click.echo(escaped(line).replace("\n", "\\n").translate(_STYLES))


def section(text: str) -> str:
    """The heading of a section: bold, underlined, yellow."""
    return f"{_SECTION}{text}{_END}"


def bold(text: str) -> str:
    """The name of a figure or a list."""
    return f"{_BOLD}{text}{_END}"


def red(text: str) -> str:
    """An error, or a missing thing."""
    return f"{_RED}{text}{_END}"


def figure(name: str, number: int) -> str:
    """One line of statistics."""
    return f"{bold(f'{name}:')}  {number:,}"


def size(count: int) -> str:
    """A number of bytes in binary units.

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
    """Lines of a table; columns in ``right`` are aligned to the right."""
    # All rows at once: the widths of the columns depend on the last one, too.
    cells = [list(row) for row in rows]
    widths = [max(len(row[i]) for row in [list(head), *cells]) for i in range(len(head))]
    numbers = [name in right for name in head]
    yield bold(_line(head, widths, numbers))
    yield from (_line(row, widths, numbers) for row in cells)


def _line(cells: Sequence[str], widths: Sequence[int], numbers: Sequence[bool]) -> str:
    padded = (
        cell.rjust(width) if number else cell.ljust(width)
        for cell, width, number in zip(cells, widths, numbers, strict=True)
    )
    return "  ".join(padded).rstrip()


def plain(value: object) -> Any:
    """A value as JSON: ISO times, seconds, base64, sorted sets; null for NaN and infinity."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(plain(item) for item in value)
    if isinstance(value, float):
        # Python would write `NaN` and `Infinity`, which other parsers of JSON refuse.
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
    text = json.dumps(plain(value), indent=indent, ensure_ascii=False)
    return _BEYOND_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def show(session: Session, value: object, lines: Callable[[], Iterable[str]]) -> None:
    """Print a value in the format of the session: as a JSON document, or as lines of text."""
    if session.json:
        click.echo(document(value))
        return
    for line in lines():
        echo(line)


def confirm(question: str, store: Store, *, yes: bool) -> None:
    """Ask a question on a terminal, unless ``--yes`` answered it.

    Raises
    ------
    ReadOnlyStore
        If the store cannot be written to.
    click.Abort
        If the answer is no.
    """
    if not store.capabilities.writable:
        raise ReadOnlyStore(f"The store {store.name} cannot be written to.")
    # Without a terminal there is no question, so that scripts keep working.
    if not yes and sys.stdin.isatty() and not _answer(escaped(question)):
        raise click.Abort


def _answer(question: str) -> bool:
    try:
        return click.confirm(question, err=True)
    except click.Abort:
        click.echo(err=True)  # Ctrl-C leaves the cursor behind the question
        raise
