"""What it takes to undo a commit: which partitions go, which come back and where, and what contradicts it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.metadata.chain import fingerprint
from kartothek_cube.core.metadata.history import HistoryEntry
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.rebase import changed_labels
from kartothek_cube.core.rowkeys import IntArray
from kartothek_cube.core.schema import unify
from kartothek_cube.errors import CommitConflict, InvalidInput, InvalidRequest

__all__ = ["UndoPlan", "check_undoable", "old_places", "restored_metadata"]


@dataclass(frozen=True, slots=True)
class UndoPlan:
    """A commit that is to be taken back.

    Attributes
    ----------
    entry : HistoryEntry
        What it changed.
    before, after : Snapshot
        The dataset without it and with it.
    newest : Snapshot
        The dataset as it is.
    later : tuple of HistoryEntry
        What others changed since, the newest first.
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
        """Whether partitions come or go."""
        return len(self.entry.added) > 0 or len(self.entry.removed) > 0

    @property
    def changes_header(self) -> bool:
        """Whether the commit changed what all partitions share, so that the dataset has to become as it was as a whole."""
        before, after = self.before, self.after
        other_columns = before.partition_keys != after.partition_keys or dict(before.schemas) != dict(after.schemas)
        return other_columns or (self.changes_partitions and before.secondary_columns != after.secondary_columns)

    @property
    def restored(self) -> IntArray:
        """Positions of the partitions that come back, among those before."""
        positions: IntArray = np.sort(self.entry.positions.to_numpy(zero_copy_only=False))
        return positions

    @property
    def is_on_top(self) -> bool:
        """Whether the dataset is but for its metadata as the commit left it: nothing came since, or it was undone."""
        after, newest = self.after, self.newest
        same_header = (after.partition_keys, after.secondary_columns, dict(after.schemas)) == (
            newest.partition_keys,
            newest.secondary_columns,
            dict(newest.schemas),
        )
        return not self.later or (same_header and fingerprint(after.partitions) == fingerprint(newest.partitions))

    def labels(self) -> pa.Array:
        """Labels of the partitions that come back."""
        return self.before.partitions.labels.take(pa.array(self.restored))


def check_undoable(undoing: UndoPlan) -> None:
    """Refuse what later commits made impossible.

    Raises
    ------
    InvalidRequest
        If the commit changed the schema or the partition keys, and later ones that are not undone came since.
    CommitConflict
        If a later one changed what it added, or uses what it removed.
    """
    entry, newest = undoing.entry, undoing.newest
    if undoing.changes_header:
        if not undoing.is_on_top:
            raise InvalidRequest(
                f"Commit {entry.commit} changed the schema, the partition keys or the indices of dataset {undoing.uuid!r}. Such a commit can be undone "
                f"only while it is the newest, but {_commits(undoing.later)} came since. Undo them first, the newest first."
            )
        return
    changed = changed_labels(entry.added, undoing.after.partitions, newest.partitions)
    _raise_if(undoing, changed, "which the commit added, has been replaced or removed since")
    labels = undoing.labels()
    there = pc.and_(pc.is_in(labels, value_set=newest.partitions.labels), pc.invert(pc.is_in(labels, value_set=entry.added)))
    _raise_if(undoing, labels.filter(there), "which the commit removed, has been made again since")
    if len(labels) and not _has_room(undoing.before, newest):
        raise CommitConflict(
            f"Dataset {undoing.uuid!r}: commit {entry.commit} cannot be undone. What it removed does not fit the schema or the partition keys that the "
            f"dataset has since {_commits(undoing.later)}."
        )


def _raise_if(undoing: UndoPlan, labels: pa.Array, reason: str) -> None:
    if not len(labels):
        return
    by = [e for e in undoing.later if pc.any(pc.is_in(labels[:1], value_set=pa.concat_arrays([e.added, e.removed.labels]))).as_py()]
    raise CommitConflict(
        f"Dataset {undoing.uuid!r}: commit {undoing.entry.commit} cannot be undone. The partition {labels[0].as_py()!r}, {reason}: {_commits(by)}. "
        "Nothing was changed."
    )


def _commits(entries: Sequence[HistoryEntry]) -> str:
    """Ids, the oldest first."""
    ids = [entry.commit for entry in reversed(entries)]
    return f"commit {ids[0]}" if len(ids) == 1 else f"commits {', '.join(ids[:3])}{' and others' if len(ids) > 3 else ''}"


def _has_room(before: Snapshot, newest: Snapshot) -> bool:
    """Whether the files of an older state can be read with the present schema."""
    if before.partition_keys != newest.partition_keys or before.schemas.keys() != newest.schemas.keys():
        return False
    return all(_covers(newest.schemas[table], schema) for table, schema in before.schemas.items())


def _covers(schema: pa.Schema, older: pa.Schema) -> bool:
    """Whether columns were only added."""
    if not set(older.names) <= set(schema.names):
        return False
    shared = pa.schema([schema.field(name) for name in older.names])
    try:
        return bool(unify([shared, older], "").equals(shared))
    except InvalidInput:
        return False


def old_places(undoing: UndoPlan) -> dict[str, str]:
    """Label that comes back → the label of the dataset after which it comes; ``""``: before all."""
    order, there = undoing.before.partitions.labels, undoing.newest.partitions.labels
    stays = pc.is_in(order, value_set=there).to_numpy(zero_copy_only=False).copy()
    stays[undoing.restored] = False
    last = np.maximum.accumulate(np.where(stays, np.arange(len(order)), -1))[undoing.restored]
    places = order.take(pa.array(last, mask=last < 0)).fill_null("")
    return dict(zip(undoing.labels().to_pylist(), places.to_pylist(), strict=True))


def restored_metadata(before: Mapping[str, Any], after: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[dict[str, Any], frozenset[str]]:
    """User metadata to be set and names to be removed: what the commit changed, where nobody has changed it since.

    Examples
    --------
    >>> restored_metadata({"source": "till"}, {"source": "web", "week": 18}, {"source": "web", "week": 19})
    ({'source': 'till'}, frozenset())
    """
    changed = [k for k in {**before, **after} if _at(before, k) != _at(after, k) and _at(after, k) == _at(now, k)]
    return {k: before[k] for k in changed if k in before}, frozenset(k for k in changed if k not in before)


def _at(metadata: Mapping[str, Any], name: str) -> tuple[Any, ...]:
    return (metadata[name],) if name in metadata else ()
