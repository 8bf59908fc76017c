"""Undoing a commit: which partitions go or come back, where, and what contradicts it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.arrow.keys import IntArray
from kartothek_cube.core.arrow.types import unify
from kartothek_cube.core.commit.rebase import changed_labels, commits
from kartothek_cube.core.metadata.commit_log import fingerprint
from kartothek_cube.core.metadata.document import DROPPED_KEY, LAYOUT_KEY, STATE_KEYS
from kartothek_cube.core.metadata.history_entry import HistoryEntry
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.write.dataset_layout import dropped_after, dropped_columns, layout_of
from kartothek_cube.errors import CommitConflict, InvalidInput, InvalidRequest

__all__ = ["UndoPlan", "check_undoable", "old_places", "restored_metadata"]


@dataclass(frozen=True, slots=True)
class UndoPlan:
    """A commit that is to be undone.

    Attributes
    ----------
    entry : HistoryEntry
        The history entry of the commit.
    before, after : Snapshot
        The dataset before and after the commit.
    newest : Snapshot
        The dataset now.
    later : tuple of HistoryEntry
        The commits since, newest first.
    """

    entry: HistoryEntry
    before: Snapshot
    after: Snapshot
    newest: Snapshot
    later: tuple[HistoryEntry, ...]

    @property
    def uuid(self) -> str:
        """The dataset."""
        return self.newest.uuid

    @property
    def changes_partitions(self) -> bool:
        """Whether the commit added or removed partitions."""
        return len(self.entry.added) > 0 or len(self.entry.removed) > 0

    @property
    def changes_header(self) -> bool:
        """Whether the commit changed what all partitions share: then all of it is restored."""
        before, after = self.before, self.after
        other_columns = before.partition_keys != after.partition_keys or dict(before.schemas) != dict(after.schemas)
        return other_columns or (self.changes_partitions and before.secondary_columns != after.secondary_columns)

    @property
    def changes_nothing(self) -> bool:
        """Whether the commit left everything as it was."""
        before, after = self.before, self.after
        if any(before.document.metadata.get(k) != after.document.metadata.get(k) for k in STATE_KEYS):
            return False
        if self.changes_partitions or self.changes_header or before.secondary_columns != after.secondary_columns:
            return False
        return before.document.user_metadata == after.document.user_metadata

    def records(self) -> dict[str, str | None]:
        """Layout and dropped columns of before, where the commit changed them and nobody since."""
        before, after, now = (s.document.metadata for s in (self.before, self.after, self.newest))
        records = {k: before.get(k) for k in STATE_KEYS if before.get(k) != after.get(k) == now.get(k)}
        if LAYOUT_KEY in records:
            # An order by columns that have been dropped since would refuse every write.
            columns = {name for schema in self.newest.schemas.values() for name in schema.names}
            records |= layout_of(before, self.uuid).within(columns).record()
        if len(self.restored):
            # Files that come back may have columns that a compaction has removed from all others.
            records |= self._dropped_in_restored()
        return records

    def _dropped_in_restored(self) -> dict[str, str | None]:
        before, now = (s.document.metadata for s in (self.before, self.newest))
        known, older = dropped_columns(now, self.uuid), dropped_columns(before, self.uuid)
        # Of two types of a column, the newest file may have the newer one.
        fields = {t: {f.name: f for f in [*older.get(t, ()), *known.get(t, ())]} for t in self.newest.schemas}
        both = {table: pa.schema([*named.values()]) for table, named in fields.items()}
        record = dropped_after(both, {}, self.newest.schemas, ())
        return {} if record == now.get(DROPPED_KEY) else {DROPPED_KEY: record}

    @property
    def restored(self) -> IntArray:
        """Positions before the commit of the partitions that come back."""
        positions: IntArray = np.sort(self.entry.positions.to_numpy(zero_copy_only=False))
        return positions

    @property
    def is_on_top(self) -> bool:
        """Whether the dataset is as the commit left it, apart from user metadata."""
        if not self.later:
            return True
        # Commits since may have been undone, too.
        headers = [(s.partition_keys, s.secondary_columns, dict(s.schemas)) for s in (self.after, self.newest)]
        same_partitions = fingerprint(self.after.partitions) == fingerprint(self.newest.partitions)
        return headers[0] == headers[1] and same_partitions

    def labels(self) -> pa.Array:
        """Labels of the partitions that come back."""
        return self.before.partitions.labels.take(pa.array(self.restored))


def check_undoable(undoing: UndoPlan) -> None:
    """Raise if later commits made it impossible to undo this one.

    Raises
    ------
    InvalidRequest
        If the commit changed the schema, the partition keys or the indices, and is not the newest
        that counts.
    CommitConflict
        If a later commit changed what this one added, or added what this one removed.
    """
    entry, newest = undoing.entry, undoing.newest
    if undoing.changes_header:
        if not undoing.is_on_top:
            raise InvalidRequest(
                f"Commit {entry.commit} changed the schema, the partition keys or the indices of dataset "
                f"{undoing.uuid!r}. Such a commit can be undone only while it is the newest, but "
                f"{_commits(undoing.later)} came since. Undo them first, the newest first."
            )
        return
    changed = changed_labels(entry.added, undoing.after.partitions, newest.partitions)
    _raise_if(undoing, changed, "which the commit added, has been replaced or removed since")
    labels = undoing.labels()
    exists = pc.is_in(labels, value_set=newest.partitions.labels)
    again = pc.and_(exists, pc.invert(pc.is_in(labels, value_set=entry.added)))
    _raise_if(undoing, labels.filter(again), "which the commit removed, has been made again since")
    if not len(labels):
        return
    before = undoing.before
    fits = before.partition_keys == newest.partition_keys and before.schemas.keys() == newest.schemas.keys()
    was_dropped = dropped_columns(before.document.metadata, before.uuid)
    for table, shown in before.schemas.items() if fits else ():
        # The newest schema reads older files if columns were only added since. These may also have
        # columns that had been dropped before, and are back in another type.
        newer = newest.schemas[table]
        older = pa.schema([*shown, *(f for f in was_dropped.get(table, ()) if f.name in newer.names)])
        shared = pa.schema([newer.field(name) for name in older.names if name in newer.names])
        try:
            fits = fits and len(shared) == len(older) and bool(unify([shared, older], "").equals(shared))
        except InvalidInput:
            fits = False
    if not fits:
        raise CommitConflict(
            f"Dataset {undoing.uuid!r}: commit {entry.commit} cannot be undone. What it removed does not fit the "
            f"schema or the partition keys that the dataset has since {_commits(undoing.later)}."
        )


def _raise_if(undoing: UndoPlan, labels: pa.Array, reason: str) -> None:
    if not len(labels):
        return
    by = []
    for entry in undoing.later:
        touched = pa.concat_arrays([entry.added, entry.removed.labels])
        if pc.any(pc.is_in(labels[:1], value_set=touched)).as_py():
            by.append(entry)
    raise CommitConflict(
        f"Dataset {undoing.uuid!r}: commit {undoing.entry.commit} cannot be undone. The partition "
        f"{labels[0].as_py()!r}, {reason}: {_commits(by)}. Nothing was changed."
    )


def _commits(entries: Sequence[HistoryEntry]) -> str:
    return commits([entry.commit for entry in reversed(entries)])  # the oldest first


def old_places(undoing: UndoPlan) -> dict[str, str]:
    """Label that comes back → the label of the dataset after which it comes; ``""``: before all."""
    order, there = undoing.before.partitions.labels, undoing.newest.partitions.labels
    stays = pc.is_in(order, value_set=there).to_numpy(zero_copy_only=False).copy()
    stays[undoing.restored] = False
    last = np.maximum.accumulate(np.where(stays, np.arange(len(order)), -1))[undoing.restored]
    places = order.take(pa.array(last, mask=last < 0)).fill_null("")
    return dict(zip(undoing.labels().to_pylist(), places.to_pylist(), strict=True))


def restored_metadata(
    before: Mapping[str, Any], after: Mapping[str, Any], now: Mapping[str, Any]
) -> tuple[dict[str, Any], frozenset[str]]:
    """User metadata to be set and names to be removed to undo the changes of a commit.

    What was changed again since stays as it is.

    Examples
    --------
    >>> before, after = {"source": "till"}, {"source": "web", "week": 18}
    >>> restored_metadata(before, after, {"source": "web", "week": 19})
    ({'source': 'till'}, frozenset())
    """
    changed = [k for k in {**before, **after} if _at(before, k) != _at(after, k) and _at(after, k) == _at(now, k)]
    return {k: before[k] for k in changed if k in before}, frozenset(k for k in changed if k not in before)


def _at(metadata: Mapping[str, Any], name: str) -> tuple[Any, ...]:
    return (metadata[name],) if name in metadata else ()
