"""Rebase: put a change that was made for one state of a dataset onto a newer state. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.commit.change import Change
from kartothek_cube.core.metadata.commit_log import is_applied
from kartothek_cube.core.metadata.document import DROPPED_KEY, STATE_KEYS, PartitionColumns
from kartothek_cube.core.metadata.snapshot import Snapshot, make_snapshot
from kartothek_cube.errors import CommitConflict, InvalidInput, InvalidType

__all__ = [
    "changed_labels",
    "check_indices",
    "commits",
    "conflict",
    "is_reapplied",
    "is_same",
    "minus_own_files",
    "needs_indices",
    "rebase",
]


def is_same(base: Snapshot | None, newest: Snapshot | None) -> bool:
    """Whether two snapshots are the same state, even if it was read twice or with other indices."""
    if base is None or newest is None:
        return newest is base
    if newest.document is base.document and newest.partitions is base.partitions:
        return True
    listed = base.document.partitions is not None and newest.document.partitions is not None
    return (
        listed
        and None is not base.token == newest.token
        and base.key == newest.key
        and base.document.metadata == newest.document.metadata
    )


def needs_indices(change: Change) -> bool:
    """Whether a change adds or removes partitions, so that it needs all indices of its base."""
    return not change.replace and (bool(change.receipts) or len(change.removed) > 0 or change.scope is not None)


def rebase(change: Change, base: Snapshot | None, newest: Snapshot | None) -> Change:
    """The change as it has to be to follow ``newest``.

    Parameters
    ----------
    change : Change
        A change that was made for ``base``.
    base, newest : Snapshot | None
        The state for which the change was made, and the state that it follows now; None: no
        dataset. If `needs_indices`, ``newest`` has all secondary indices loaded.

    Raises
    ------
    CommitConflict
        If a commit between the two removed or replaced what this one builds on, or (unless
        ``on_conflict`` is ``"reapply"``) changed partitions in its scope. The page *Many writers*
        has the rules.
    """
    if is_same(base, newest):
        return change
    if newest is None:
        raise conflict(change, base, newest, "the dataset was deleted")
    if base is None:
        return _added(change, newest)
    if is_applied(change.txn, base.document.metadata):  # then its rows may not have been staged at all
        raise conflict(change, base, newest, "the number of this write is gone, and with it perhaps the rows")
    if change.replace:
        if change.on_conflict == "raise" and not _equal(base.partitions, newest.partitions):
            reason = "partitions were added or removed, which this commit would remove unseen"
            raise conflict(change, base, newest, reason)
        return _with_metadata(change, newest)
    changes_header = bool(change.records or change.dropped_columns)
    if changes_header and _header(base) != _header(newest):
        raise conflict(change, base, newest, "its columns, indices or layout were changed")
    if change.records.get(DROPPED_KEY, "") is None and not _equal(base.partitions, newest.partitions):
        # The compaction has not seen these files: they may have the columns that were dropped.
        change = replace(change, records={k: v for k, v in change.records.items() if k != DROPPED_KEY})
    if not (change.explicit or change.receipts or changes_header) and change.statistics is None:
        raise conflict(change, base, newest, "the dataset was changed")
    if newest.partition_keys != change.partition_keys:
        raise conflict(change, base, newest, f"its partition keys are {list(newest.partition_keys)} now")
    if change.on_conflict == "raise":
        # A label that both sides add, or that this one replaces and others changed.
        labels = pa.array(change.labels, type=pa.string())
        changed = _others_of(change, changed_labels(labels, base.partitions, newest.partitions), base, newest)
        if len(changed):
            raise conflict(change, base, newest, f"the partition {changed[0].as_py()!r} was added, replaced or removed")
    removed = _removed(change, base, newest)
    schemas = change.schemas
    if not change.receipts:  # without rows, only what the change itself changes
        schemas = {t: s for t, s in change.schemas.items() if base.schemas.get(t) != s}
    index_columns, dropped = _indices(change, base, newest)
    rebased = replace(change, removed=removed, schemas=schemas, index_columns=index_columns, dropped=dropped)
    return _with_metadata(rebased, newest)


def _header(state: Snapshot) -> tuple[object, ...]:
    records = [state.document.metadata.get(key) for key in STATE_KEYS]
    return dict(state.schemas), state.secondary_columns, records


def is_reapplied(change: Change, base: Snapshot | None, newest: Snapshot | None) -> bool:
    """Whether only ``on_conflict="reapply"`` lets a change follow ``newest``."""
    if change.on_conflict == "raise" or is_same(base, newest):
        return False
    try:
        rebase(replace(change, on_conflict="raise", merge=None), base, newest)
    except CommitConflict:
        return True
    return False


def check_indices(change: Change, base: Snapshot | None) -> None:
    """Refuse a change of partitions that does not update all indices."""
    if base is None or not needs_indices(change):
        return
    outdated = sorted(base.secondary_columns - set(change.index_columns) - change.dropped)
    if outdated:
        raise InvalidInput(
            f"Dataset {change.uuid!r} has secondary indices on {outdated}, which this change would leave outdated."
        )


def minus_own_files(change: Change, base: Snapshot | None, newest: Snapshot | None) -> Snapshot | None:
    """The newest state without the files that were staged for this change.

    Only a dataset whose document lists no partitions has them: all files in the store count.
    """
    if newest is None or newest.document.partitions is not None or not change.receipts:
        return newest
    before = pa.array([], type=pa.string()) if base is None else base.partitions.labels
    labels = newest.partitions.labels
    is_staged = pc.is_in(labels, value_set=pa.array(change.labels, type=pa.string()))
    is_ours = pc.and_(is_staged, pc.invert(pc.is_in(labels, value_set=before)))
    if not pc.any(is_ours).as_py():
        return newest
    partitions = newest.partitions.take(np.flatnonzero(~is_ours.to_numpy(zero_copy_only=False)))
    state = make_snapshot(newest.document, newest.key, newest.token, newest.schemas, partitions)
    return state.with_indices(newest.indices)


def _added(change: Change, newest: Snapshot) -> Change:
    """A change that was to create the dataset, which another writer created since."""
    # Only an update accepts a dataset that somebody else has created meanwhile.
    if change.creates or not change.receipts:
        raise conflict(change, None, newest, "the dataset was created")
    if newest.partition_keys != change.partition_keys:
        keys = f"{list(newest.partition_keys)}, not {list(change.partition_keys)}"
        raise conflict(change, None, newest, f"the dataset was created with the partition keys {keys}")
    if newest.secondary_columns != set(change.index_columns):
        columns = f"{sorted(newest.secondary_columns)}, not on {sorted(change.index_columns)}"
        raise conflict(change, None, newest, f"the dataset was created with secondary indices on {columns}")
    taken = pa.array(change.labels, type=pa.string())
    taken = taken.filter(pc.is_in(taken, value_set=newest.partitions.labels))
    if len(taken) and change.on_conflict == "raise":
        raise conflict(change, None, newest, f"the partition {taken[0].as_py()!r} was added")
    # Whoever came first has said how the dataset is laid out.
    return _with_metadata(replace(change, msgpack=newest.is_msgpack, records={}), newest)


def _removed(change: Change, base: Snapshot, newest: Snapshot) -> pa.Array:
    if change.scope is None:
        # Compaction chose these labels by their rows, an undo by their commit: no `on_conflict`
        # makes it right to remove what others have put there since.
        changed = changed_labels(change.removed, base.partitions, newest.partitions)
        if len(changed):
            raise conflict(change, base, newest, f"the partition {changed[0].as_py()!r} was replaced or removed")
        return change.removed
    try:
        removed = change.scope(newest)
    except (InvalidInput, InvalidType) as error:
        # The scope fitted the base, so this is a conflict and not bad input.
        raise conflict(change, base, newest, f"the scope does not fit any more ({error})") from error
    if change.on_conflict == "raise":
        now, before = (_others_of(change, labels, base, newest) for labels in (removed, change.removed))
        changed = changed_labels(pc.unique(pa.concat_arrays([now, before])), base.partitions, newest.partitions)
        if len(changed):
            reason = f"the partition {changed[0].as_py()!r} inside the scope was added, replaced or removed"
            raise conflict(change, base, newest, reason)
        if len(now) != len(before):
            raise conflict(change, base, newest, "other partitions are inside the scope now")
    return removed


def _indices(change: Change, base: Snapshot, newest: Snapshot) -> tuple[tuple[str, ...], frozenset[str]]:
    """The columns with an index after the change, and those whose index is dropped."""
    # A new index has the values of exactly the partitions from which it was built.
    if change.built and not _equal(base.partitions, newest.partitions):
        raise conflict(change, base, newest, "partitions were added or removed, which the new index does not know")
    old = {c for c in change.index_columns if c in base.document.indices}
    new = set(change.index_columns) - old
    unknown = sorted(new - newest.secondary_columns - change.built.keys())
    if unknown and len(newest.partitions):
        raise conflict(change, base, newest, f"partitions were added, which the new indices on {unknown} do not know")
    foreign = newest.secondary_columns - base.secondary_columns - new
    if foreign and change.receipts:
        reason = f"there are new secondary indices on {sorted(foreign)}, for which this commit has no values"
        raise conflict(change, base, newest, reason)
    kept = (old & newest.secondary_columns) | new | foreign
    return tuple(sorted(kept - change.dropped)), change.dropped & newest.secondary_columns


def _with_metadata(change: Change, newest: Snapshot) -> Change:
    if change.merge is None:
        return change
    metadata, forgotten = change.merge(newest)
    return replace(change, metadata=metadata, forgotten=forgotten)


def _others_of(change: Change, labels: pa.Array, base: Snapshot, newest: Snapshot) -> pa.Array:
    """The labels without partitions that consist of files of this change."""
    # The newest document may list them: a commit to a dataset without listed partitions finds all
    # files in the store.
    if base.document.partitions is not None or not change.receipts or not len(labels):
        return labels
    positions = pc.index_in(labels, value_set=newest.partitions.labels).drop_null()
    staged = pa.array([r.key for r in change.receipts], type=pa.string())
    partitions = newest.partitions.take(positions.to_numpy())
    is_ours = pa.array(np.ones(len(partitions), dtype=bool))
    for keys in partitions.files.values():
        is_ours = pc.and_(is_ours, pc.or_(pc.is_null(keys), pc.is_in(keys, value_set=staged)))
    return labels.filter(pc.invert(pc.is_in(labels, value_set=partitions.labels.filter(is_ours))))


def changed_labels(labels: pa.Array, old: PartitionColumns, new: PartitionColumns) -> pa.Array:
    """The labels whose files differ between two states, or that only one of them has."""
    if not len(labels):
        return labels
    before, after = (pc.index_in(labels, value_set=partitions.labels) for partitions in (old, new))
    same = pc.equal(pc.is_null(before), pc.is_null(after))
    for table in {**old.files, **new.files}:
        one, other = (p.file_column(table).take(i).fill_null("") for p, i in ((old, before), (new, after)))
        same = pc.and_(same, pc.equal(one, other))
    return labels.filter(pc.invert(same))


def _equal(one: PartitionColumns, other: PartitionColumns) -> bool:
    """Whether both have the same partitions, in any order."""
    return len(one) == len(other) and not len(changed_labels(one.labels, one, other))


def conflict(change: Change, base: Snapshot | None, newest: Snapshot | None, reason: str) -> CommitConflict:
    """The error that says why a change cannot follow ``newest``."""
    if newest is None:
        first = "another writer" if base is None else "a deletion"
    elif newest.has_foreign_commit:
        first = "a writer without commit ids"
    else:
        before = {c.id for c in base.chain} if base is not None else set()
        first = commits([c.id for c in newest.chain if c.id not in before] or [newest.chain[-1].id])
    return CommitConflict(
        f"Dataset {change.uuid!r}: {change.describe()} was made for an older state, and {first} came first: "
        f"{reason}. Nothing of it is visible. Read the dataset again and repeat the write."
    )


def commits(ids: Sequence[str]) -> str:
    """A few commits by their ids, for errors."""
    if len(ids) == 1:
        return f"commit {ids[0]}"
    return f"commits {', '.join(ids[:3])}{' and others' if len(ids) > 3 else ''}"
