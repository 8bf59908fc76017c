"""Rows that came, went or changed, as texts and as an HTML table. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import pyarrow as pa

from kartothek_cube.core.display.html import Markup, escape, show_count, table, table_cell
from kartothek_cube.core.text import pluralize, shortened

__all__ = ["KINDS", "ChangeCounts", "ChangedRow", "changed_rows", "changes_table", "counts_table"]

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
