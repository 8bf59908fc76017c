"""Which commits go together: a change that was made for one state of a dataset, put onto a newer one. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.change import Change
from kartothek_cube.core.metadata.partitions import PartitionColumns
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.errors import CommitConflict

__all__ = ["needs_indices", "rebase", "refuse"]


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
    if newest is base:
        return change
    if newest is None:
        refuse(change, base, newest, "the dataset was deleted")
    if base is None:
        refuse(change, base, newest, "the dataset was created")
    if change.replace:
        _check_replacement(change, base, newest)
        return _with_metadata(change, newest)
    if not change.explicit and not change.receipts:
        refuse(change, base, newest, "the dataset was changed")
    if newest.partition_keys != change.partition_keys:
        refuse(change, base, newest, f"its partition keys are {list(newest.partition_keys)} now")
    _check_labels(change, base, newest)
    return _with_metadata(replace(change, removed=_removed(change, base, newest), **_indices(change, base, newest)), newest)  # type: ignore[arg-type]


def _check_replacement(change: Change, base: Snapshot, newest: Snapshot) -> None:
    if change.on_conflict == "raise" and not _equal(base.partitions, newest.partitions):
        refuse(change, base, newest, "partitions were added or removed, which this commit would remove unseen")


def _check_labels(change: Change, base: Snapshot, newest: Snapshot) -> None:
    """A label that both add, or that this one replaces and the other has changed."""
    if change.on_conflict == "reapply" or not change.receipts:
        return
    labels = pa.array(change.labels, type=pa.string())
    changed = _changed(labels, base.partitions, newest.partitions)
    if len(changed):
        refuse(change, base, newest, f"the partition {changed[0].as_py()!r} was added, replaced or removed")


def _removed(change: Change, base: Snapshot, newest: Snapshot) -> pa.Array:
    if change.scope is None:
        changed = _changed(change.removed, base.partitions, newest.partitions)
        if len(changed):
            refuse(change, base, newest, f"the partition {changed[0].as_py()!r} was replaced or removed")
        return change.removed
    removed = change.scope(newest)
    if change.on_conflict == "raise":
        both = pc.unique(pa.concat_arrays([removed, change.removed]))
        changed = _changed(both, base.partitions, newest.partitions)
        if len(changed):
            refuse(change, base, newest, f"the partition {changed[0].as_py()!r} inside the scope was added, replaced or removed")
        if len(removed) != len(change.removed):
            refuse(change, base, newest, "other partitions are inside the scope now")
    return removed


def _indices(change: Change, base: Snapshot, newest: Snapshot) -> dict[str, object]:
    """The indices after the change; those that it builds or drops, and those that others have built or dropped since."""
    if change.built and not _equal(base.partitions, newest.partitions):
        refuse(change, base, newest, "partitions were added or removed, which the new index does not know")
    known = {c for c in change.index_columns if c in base.document.indices}
    new = set(change.index_columns) - known
    foreign = newest.secondary_columns - base.secondary_columns - new
    if foreign and change.receipts:
        refuse(change, base, newest, f"there are new secondary indices on {sorted(foreign)}, for which this commit has no values")
    kept = (known & newest.secondary_columns) | new | foreign
    return {"index_columns": tuple(sorted(kept - change.dropped)), "dropped": change.dropped & newest.secondary_columns}


def _with_metadata(change: Change, newest: Snapshot) -> Change:
    if change.merge is None:
        return change
    metadata, forgotten = change.merge(newest)
    return replace(change, metadata=metadata, forgotten=forgotten)


def _changed(labels: pa.Array, old: PartitionColumns, new: PartitionColumns) -> pa.Array:
    """Those labels whose files are others, or that are in only one of the two."""
    if not len(labels):
        return labels
    before, after = (pc.index_in(labels, value_set=partitions.labels) for partitions in (old, new))
    same = pc.equal(pc.is_null(before), pc.is_null(after))
    for table in {**old.files, **new.files}:
        same = pc.and_(same, pc.equal(_files(old, table, before), _files(new, table, after)))
    return labels.filter(pc.invert(same))


def _files(partitions: PartitionColumns, table: str, positions: pa.Array) -> pa.Array:
    keys = partitions.files[table].take(positions) if table in partitions.files else pa.nulls(len(positions), pa.string())
    return keys.fill_null("")


def _equal(one: PartitionColumns, other: PartitionColumns) -> bool:
    """Whether the two have the same partitions, in whatever order."""
    return len(one) == len(other) and not len(_changed(one.labels, one, other))


def refuse(change: Change, base: Snapshot | None, newest: Snapshot | None, reason: str) -> NoReturn:
    """Raise the conflict between a change and what came before it."""
    raise CommitConflict(
        f"Dataset {change.uuid!r}: {change.describe()} was made for an older state, and {_others(base, newest)} came first: {reason}. "
        "Nothing of it is visible. Read the dataset again and repeat the write."
    )


def _others(base: Snapshot | None, newest: Snapshot | None) -> str:
    if newest is None:
        return "another writer" if base is None else "a deletion"
    if newest.has_foreign_commit:
        return "a writer without commit ids"
    known = {c.id for c in base.chain} if base is not None else set()
    ids = [c.id for c in newest.chain if c.id not in known] or [newest.chain[-1].id]
    return f"commit {ids[0]}" if len(ids) == 1 else f"commits {', '.join(ids[:3])}{' and others' if len(ids) > 3 else ''}"
