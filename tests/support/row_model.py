"""A dataset as lists of rows, file by file: what the verbs of rows should make of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kartothek_cube.core.dataset.read import read_table_arrow
from kartothek_cube.core.metadata.naming import SINGLE_TABLE
from kartothek_cube.core.stores.contract import Store
from tests.support.changes import plain
from tests.support.datasets import file_of, snapshot

Row = dict[str, Any]


class File(NamedTuple):
    """A file of a dataset and all columns of its rows, in order."""

    key: str
    rows: list[Row]


class Edited(NamedTuple):
    """A dataset after an edit.

    Attributes
    ----------
    files
        Files that were there: the same, or with the rows that stay and without a key.
    added
        Inserted and moved rows.
    counts
        What the report says.
    """

    files: list[File]
    added: list[Row]
    counts: dict[str, int]


@dataclass(frozen=True)
class Change:
    """What becomes of a row that matches: None keeps it, an empty list deletes it."""

    matched: Callable[[Row], bool]
    after: Callable[[Row], Row | None]
    deletes_unmatched: bool = False
    updates: bool = True


def stored_files(store: Store, uuid: str) -> list[File]:
    """All files as a fresh reader finds them, with their rows in the order of a read."""
    rows = read_table_arrow(uuid, store).to_pylist()
    found, start = [], 0
    partitions = snapshot(store, uuid).partitions
    keys = partitions.files[SINGLE_TABLE].to_pylist() if len(partitions) else []
    for label, key in zip(partitions.labels.to_pylist(), keys, strict=True):
        end = start + file_of(store, label).num_rows
        found.append(File(key, rows[start:end]))
        start = end
    assert start == len(rows)
    return found


def comparable(rows: Iterable[Row], columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """Rows as tuples: NaN equals NaN, -0.0 is not 0.0, a column that is missing is null."""

    def exact(value: Any) -> Any:
        return repr(value) if isinstance(value, float) else value

    return [tuple(exact(row.get(c)) for c in columns) for row in rows]


def as_bag(rows: Iterable[Row], columns: Sequence[str]) -> Counter[tuple[Any, ...]]:
    """Rows with their numbers."""
    return Counter(comparable(rows, columns))


def edited(files: Sequence[File], change: Change, keys: Sequence[str]) -> Edited:
    """The files after a change of rows."""
    left, moved, counts = [], [], Counter[str]()
    for file in files:
        kept: list[Row] = []
        touched = False
        for row in file.rows:
            is_matched = change.matched(row)
            after: Row | None = row
            counts["matched"] += is_matched
            if is_matched:
                after = change.after(row)
                counts["updated"] += after is not None and change.updates
                touched |= after is None or change.updates
            elif change.deletes_unmatched:
                after, touched = None, True
            counts["deleted"] += after is None
            if after is not None:
                stays = all(plain(after[c]) == plain(row[c]) for c in keys)
                (kept if stays else moved).append(after)
        counts["files_rewritten"] += touched and bool(kept)
        counts["files_removed"] += touched and not kept
        counts["files_untouched"] += not touched
        if kept or not touched:
            left.append(File("" if touched else file.key, kept))
    return Edited(left, moved, {name: counts[name] for name in COUNTS})


COUNTS = ("matched", "deleted", "updated", "inserted", "files_rewritten", "files_removed", "files_untouched")


def merged(
    files: Sequence[File],
    source: Sequence[Row],
    on: Sequence[str],
    when: tuple[str, str, str | None],
    keys: Sequence[str],
    values: Sequence[str],
) -> Edited:
    """The files after a merge; ``values`` are the columns of the source that are no keys of it."""

    def key(row: Row) -> tuple[Any, ...]:
        return tuple(plain(row[c]) for c in on)

    matched, not_matched, by_source = when
    by_key = {key(row): row for row in source}
    assert len(by_key) == len(source)
    found = {key(row) for file in files for row in file.rows} & set(by_key)

    def after(row: Row) -> Row | None:
        if matched == "delete":
            return None
        return row | {c: by_key[key(row)][c] for c in values} if matched == "update" else row

    change = Change(
        lambda row: key(row) in by_key, after, by_source == "delete", updates=matched == "update" and bool(values)
    )
    result = edited(files, change, keys)
    new = [row for k, row in by_key.items() if k not in found] if not_matched == "insert" else []
    return Edited(result.files, [*result.added, *new], result.counts | {"inserted": len(new)})


def check(found: Sequence[File], expected: Edited, columns: Sequence[str]) -> None:
    """The files are the expected ones: old places, rows in the same order, then added rows."""
    old, new = found[: len(expected.files)], found[len(expected.files) :]
    assert len(old) == len(expected.files)
    for file, wanted in zip(old, expected.files, strict=True):
        assert comparable(file.rows, columns) == comparable(wanted.rows, columns)
        assert not wanted.key or file.key == wanted.key, "a file was written anew though no row of it changed"
    added = [row for file in new for row in file.rows]
    assert as_bag(added, columns) == as_bag(expected.added, columns)


def counts_of(report: Any) -> Mapping[str, int]:
    """The numbers of a report that the model knows."""
    return {name: getattr(report, name) for name in COUNTS}
