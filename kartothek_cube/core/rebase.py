"""Which commits go together: a change that was made for one state of a dataset, put onto a newer one. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.change import Change
from kartothek_cube.core.metadata.partitions import PartitionColumns
from kartothek_cube.core.metadata.snapshot import Snapshot, make_snapshot
from kartothek_cube.core.metadata.txn import is_applied
from kartothek_cube.errors import CommitConflict, InvalidInput, InvalidType

__all__ = [
    "changed_labels",
    "check_indices",
    "conflict",
    "is_reapplied",
    "is_same",
    "minus_own_files",
    "needs_indices",
    "rebase",
]


def is_same(base: Snapshot | None, newest: Snapshot | None) -> bool:
    """Whether nothing has come between two looks at a dataset; also where it was read twice, or other indices were loaded."""
    if base is None or newest is None:
        return newest is base
    if newest.document is base.document and newest.partitions is base.partitions:
        return True
    listed = base.document.partitions is not None and newest.document.partitions is not None
    return listed and None is not base.token == newest.token and base.key == newest.key and base.document.metadata == newest.document.metadata


def needs_indices(change: Change) -> bool:
    """Whether a change touches partitions, so that the indices of its base have to be loaded."""
    return not change.replace and (bool(change.receipts) or len(change.removed) > 0 or change.scope is not None)


def rebase(change: Change, base: Snapshot | None, newest: Snapshot | None) -> Change:
    """The change as it has to be to come after ``newest``, whose secondary indices are loaded if `needs_indices` says so.

    Parameters
    ----------
    change : Change
        What was made for ``base``.
    base, newest : Snapshot | None
        The state that it was made for, and the one that it comes to; None: no dataset.

    Raises
    ------
    CommitConflict
        If another commit between the two took away or replaced what this one builds on, or added or removed partitions in its scope (unless
        ``on_conflict`` is ``"reapply"``). The page *Many writers* has the rules.
    """
    if is_same(base, newest):
        return change
    if newest is None:
        raise conflict(change, base, newest, "the dataset was deleted")
    if base is None:
        return _added(change, newest)
    if is_applied(change.txn, base.document.metadata):  # so its rows may not have been staged at all
        raise conflict(change, base, newest, "the number of this write is gone, and with it perhaps the rows")
    if change.replace:
        _check_replacement(change, base, newest)
        return _with_metadata(change, newest)
    if not change.explicit and not change.receipts:
        raise conflict(change, base, newest, "the dataset was changed")
    if newest.partition_keys != change.partition_keys:
        raise conflict(change, base, newest, f"its partition keys are {list(newest.partition_keys)} now")
    _check_labels(change, base, newest)
    changed: dict[str, Any] = {"removed": _removed(change, base, newest), "schemas": _schemas(change, base), **_indices(change, base, newest)}
    return _with_metadata(replace(change, **changed), newest)


def _schemas(change: Change, base: Snapshot) -> Mapping[str, pa.Schema]:
    """Without rows, only what the change itself makes of the schema counts."""
    return change.schemas if change.receipts else {t: s for t, s in change.schemas.items() if base.schemas.get(t) != s}


def is_reapplied(change: Change, base: Snapshot | None, newest: Snapshot | None) -> bool:
    """Whether it is only ``on_conflict="reapply"`` that lets a change come after ``newest``."""
    if change.on_conflict == "raise" or is_same(base, newest):
        return False
    try:
        rebase(replace(change, on_conflict="raise", merge=None), base, newest)
    except CommitConflict:
        return True
    return False


def check_indices(change: Change, base: Snapshot | None) -> None:
    """Refuse a change of partitions that would leave an index of the state as it was."""
    if base is None or not needs_indices(change):
        return
    outdated = sorted(base.secondary_columns - set(change.index_columns) - change.dropped)
    if outdated:
        raise InvalidInput(f"Dataset {change.uuid!r} has secondary indices on {outdated}, which this change would leave outdated.")


def minus_own_files(change: Change, base: Snapshot | None, newest: Snapshot | None) -> Snapshot | None:
    """A state whose partitions were found by listing the store, without the files that were staged for this change since its base."""
    if newest is None or newest.document.partitions is not None or not change.receipts:
        return newest
    known = pa.array([], type=pa.string()) if base is None else base.partitions.labels
    labels = newest.partitions.labels
    own = pc.and_(pc.is_in(labels, value_set=pa.array(change.labels, type=pa.string())), pc.invert(pc.is_in(labels, value_set=known)))
    if not pc.any(own).as_py():
        return newest
    partitions = newest.partitions.take(np.flatnonzero(~own.to_numpy(zero_copy_only=False)))
    return make_snapshot(newest.document, newest.key, newest.token, newest.schemas, partitions).with_indices(newest.indices)


def _added(change: Change, newest: Snapshot) -> Change:
    """The rows of a dataset that somebody else has made in the meantime, added to it."""
    if change.creates or not change.receipts:
        raise conflict(change, None, newest, "the dataset was created")
    if newest.partition_keys != change.partition_keys:
        keys = f"{list(newest.partition_keys)}, not {list(change.partition_keys)}"
        raise conflict(change, None, newest, f"the dataset was created with the partition keys {keys}")
    if newest.secondary_columns != set(change.index_columns):
        indices = sorted(newest.secondary_columns)
        raise conflict(change, None, newest, f"the dataset was created with secondary indices on {indices}, not on {sorted(change.index_columns)}")
    taken = pa.array(change.labels, type=pa.string())
    taken = taken.filter(pc.is_in(taken, value_set=newest.partitions.labels))
    if len(taken) and change.on_conflict == "raise":
        raise conflict(change, None, newest, f"the partition {taken[0].as_py()!r} was added")
    return _with_metadata(replace(change, msgpack=newest.is_msgpack), newest)


def _check_replacement(change: Change, base: Snapshot, newest: Snapshot) -> None:
    if change.on_conflict == "raise" and not _equal(base.partitions, newest.partitions):
        raise conflict(change, base, newest, "partitions were added or removed, which this commit would remove unseen")


def _check_labels(change: Change, base: Snapshot, newest: Snapshot) -> None:
    """A label that both add, or that this one replaces and the other has changed."""
    if change.on_conflict == "reapply" or not change.receipts:
        return
    labels = pa.array(change.labels, type=pa.string())
    changed = _others_of(change, changed_labels(labels, base.partitions, newest.partitions), base, newest)
    if len(changed):
        raise conflict(change, base, newest, f"the partition {changed[0].as_py()!r} was added, replaced or removed")


def _removed(change: Change, base: Snapshot, newest: Snapshot) -> pa.Array:
    if change.scope is None:
        changed = changed_labels(change.removed, base.partitions, newest.partitions)
        if len(changed):
            raise conflict(change, base, newest, f"the partition {changed[0].as_py()!r} was replaced or removed")
        return change.removed
    removed = _in_scope(change, base, newest)
    if change.on_conflict == "raise":
        theirs, known = (_others_of(change, found, base, newest) for found in (removed, change.removed))
        changed = changed_labels(pc.unique(pa.concat_arrays([theirs, known])), base.partitions, newest.partitions)
        if len(changed):
            raise conflict(change, base, newest, f"the partition {changed[0].as_py()!r} inside the scope was added, replaced or removed")
        if len(theirs) != len(known):
            raise conflict(change, base, newest, "other partitions are inside the scope now")
    return removed


def _in_scope(change: Change, base: Snapshot, newest: Snapshot) -> pa.Array:
    assert change.scope is not None
    try:
        return change.scope(newest)
    except (InvalidInput, InvalidType) as error:
        raise conflict(change, base, newest, f"the scope does not fit any more ({error})") from error


def _indices(change: Change, base: Snapshot, newest: Snapshot) -> dict[str, object]:
    """The indices after the change; those that it builds or drops, and those that others have built or dropped since."""
    if change.built and not _equal(base.partitions, newest.partitions):
        raise conflict(change, base, newest, "partitions were added or removed, which the new index does not know")
    known = {c for c in change.index_columns if c in base.document.indices}
    new = set(change.index_columns) - known
    unknown = sorted(new - newest.secondary_columns - change.built.keys())
    if unknown and len(newest.partitions):
        raise conflict(change, base, newest, f"partitions were added, which the new indices on {unknown} do not know")
    foreign = newest.secondary_columns - base.secondary_columns - new
    if foreign and change.receipts:
        raise conflict(change, base, newest, f"there are new secondary indices on {sorted(foreign)}, for which this commit has no values")
    kept = (known & newest.secondary_columns) | new | foreign
    return {"index_columns": tuple(sorted(kept - change.dropped)), "dropped": change.dropped & newest.secondary_columns}


def _with_metadata(change: Change, newest: Snapshot) -> Change:
    if change.merge is None:
        return change
    metadata, forgotten = change.merge(newest)
    return replace(change, metadata=metadata, forgotten=forgotten)


def _others_of(change: Change, labels: pa.Array, base: Snapshot, newest: Snapshot) -> pa.Array:
    """Without partitions that are the change's own files: a commit to a dataset whose document listed none has found them in the store."""
    if base.document.partitions is not None or not change.receipts or not len(labels):
        return labels
    positions = pc.index_in(labels, value_set=newest.partitions.labels).drop_null()
    own, found = pa.array([r.key for r in change.receipts], type=pa.string()), newest.partitions.take(positions.to_numpy())
    ours = pa.array(np.ones(len(found), dtype=bool))
    for keys in found.files.values():
        ours = pc.and_(ours, pc.or_(pc.is_null(keys), pc.is_in(keys, value_set=own)))
    return labels.filter(pc.invert(pc.is_in(labels, value_set=found.labels.filter(ours))))


def changed_labels(labels: pa.Array, old: PartitionColumns, new: PartitionColumns) -> pa.Array:
    """Those labels whose files are others, or that are in only one of the two."""
    if not len(labels):
        return labels
    before, after = (pc.index_in(labels, value_set=partitions.labels) for partitions in (old, new))
    same = pc.equal(pc.is_null(before), pc.is_null(after))
    for table in {**old.files, **new.files}:
        one, other = (p.file_column(table).take(i).fill_null("") for p, i in ((old, before), (new, after)))
        same = pc.and_(same, pc.equal(one, other))
    return labels.filter(pc.invert(same))


def _equal(one: PartitionColumns, other: PartitionColumns) -> bool:
    """Whether the two have the same partitions, in whatever order."""
    return len(one) == len(other) and not len(changed_labels(one.labels, one, other))


def conflict(change: Change, base: Snapshot | None, newest: Snapshot | None, reason: str) -> CommitConflict:
    """The error that says why a change cannot come after ``newest``."""
    return CommitConflict(
        f"Dataset {change.uuid!r}: {change.describe()} was made for an older state, and {_others(base, newest)} came first: "
        f"{reason}. Nothing of it is visible. Read the dataset again and repeat the write."
    )


def _others(base: Snapshot | None, newest: Snapshot | None) -> str:
    if newest is None:
        return "another writer" if base is None else "a deletion"
    if newest.has_foreign_commit:
        return "a writer without commit ids"
    known = {c.id for c in base.chain} if base is not None else set()
    ids = [c.id for c in newest.chain if c.id not in known] or [newest.chain[-1].id]
    return f"commit {ids[0]}" if len(ids) == 1 else f"commits {', '.join(ids[:3])}{' and others' if len(ids) > 3 else ''}"
