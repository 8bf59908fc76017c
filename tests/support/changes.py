"""Differences of two lists of rows as plain Python says, and what changes say about them."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from kartothek_cube.core.arrow.difference import CHANGE_TYPE

INSERT, PREIMAGE, POSTIMAGE, DELETE = "insert", "update_preimage", "update_postimage", "delete"

Row = tuple[Any, ...]


def plain(value: Any) -> Any:
    """A value that can be compared and hashed: NaN equals NaN, 0.0 equals -0.0, null is not NaN."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return tuple((key, plain(item)) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, *map(plain, value))
    return value


def rows_of(table: pa.Table, columns: Sequence[str] | None = None) -> list[Row]:
    """The rows of a table as tuples that can be compared."""
    names = table.column_names if columns is None else list(columns)
    if not names:
        return [()] * table.num_rows
    return list(zip(*([plain(v) for v in table.column(name).to_pylist()] for name in names), strict=True))


def conformed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The same rows with the columns of a schema; those that it lacks are null."""
    if not len(schema):
        return table.select([])
    columns = [
        table.column(field.name).cast(field.type)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def split(changes: pa.Table) -> tuple[Counter[Row], Counter[Row], list[tuple[Row, Row]]]:
    """The inserted and the deleted rows, and the pairs of images."""
    kinds, rows = changes.column(CHANGE_TYPE).to_pylist(), rows_of(changes.drop_columns([CHANGE_TYPE]))
    inserted, deleted = (Counter(r for k, r in zip(kinds, rows, strict=True) if k == kind) for kind in (INSERT, DELETE))
    images = [(kind, row) for kind, row in zip(kinds, rows, strict=True) if kind in (PREIMAGE, POSTIMAGE)]
    assert [kind for kind, _ in images] == [PREIMAGE, POSTIMAGE] * (len(images) // 2), "images are not side by side"
    assert all(k in (INSERT, DELETE, PREIMAGE, POSTIMAGE) for k in kinds)
    pairs = [(old, new) for (_, old), (_, new) in zip(images[::2], images[1::2], strict=True)]
    return inserted, deleted, pairs


def check_changes(
    changes: pa.Table,
    before: pa.Table,
    after: pa.Table,
    on: Sequence[str] | None = None,
    within: Sequence[str] = (),
) -> None:
    """Changes are exactly the difference of the rows of two states.

    ``before`` and ``after`` have the columns of the changes, and those of the key if it is not
    shown. Rows of different keys are not equal.
    """
    shown = changes.column_names[1:]
    columns = [*shown, *(c for c in on or () if c not in shown)]
    gone, new = Counter(rows_of(before, columns)), Counter(rows_of(after, columns))
    gone, new = gone - new, new - gone
    inserted, deleted, pairs = split(changes)
    if on is None:
        assert not pairs
    assert deleted + Counter(old for old, _ in pairs) == _visible(gone, len(shown))
    assert inserted + Counter(new for _, new in pairs) == _visible(new, len(shown))
    if on is None:
        return

    def at(names: Iterable[str]) -> list[int]:
        return [columns.index(name) for name in names]

    def by(rows: Counter[Row], names: Iterable[str]) -> dict[Row, int]:
        counts: defaultdict[Row, int] = defaultdict(int)
        for row, count in rows.items():
            counts[tuple(row[i] for i in at(names))] += count
        return counts

    def fewest(names: Iterable[str]) -> dict[Row, int]:
        left, right = by(gone, names), by(new, names)
        return {key: min(left[key], right[key]) for key in left if key in right}

    assert len(pairs) == sum(fewest(on).values()), "not as many pairs as there can be"
    if len(shown) < len(columns):
        return
    found = Counter(tuple(old[i] for i in at(on)) for old, _ in pairs)
    assert found == Counter(tuple(new[i] for i in at(on)) for _, new in pairs)
    assert all(tuple(old[i] for i in at(on)) == tuple(new[i] for i in at(on)) for old, new in pairs)
    assert found == Counter(fewest(on)), "not as many pairs of a key as there can be"
    if set(within) <= set(columns):
        places = [*on, *(c for c in within if c not in on)]
        inside = Counter(
            tuple(old[i] for i in at(places))
            for old, new in pairs
            if tuple(old[i] for i in at(places)) == tuple(new[i] for i in at(places))
        )
        assert inside == Counter(fewest(places)), "rows of a partition do not belong together first"


def _visible(rows: Counter[Row], columns: int) -> Counter[Row]:
    found: Counter[Row] = Counter()
    for row, count in rows.items():
        found[row[:columns]] += count
    return found


def applied(state: Counter[Row], changes: pa.Table) -> Counter[Row]:
    """The next state: rows without those that went and with those that came."""
    inserted, deleted, pairs = split(changes)
    gone = deleted + Counter(old for old, _ in pairs)
    assert gone <= state, "a change removes a row that is not there"
    return state - gone + inserted + Counter(new for _, new in pairs)
