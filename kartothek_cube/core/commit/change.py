"""A change of one dataset as a value, and how it becomes the next state. Pure.

In order:

- the change: what it adds, removes and sets, how it may be rebased
- rebase onto a newer state
- applying: the next document, schemas and indices
- undoing a commit: which partitions go or come back, and what contradicts it
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field
from msgspec.structs import replace

from kartothek_cube.core.arguments import pluralize
from kartothek_cube.core.arrow.keys import IntArray
from kartothek_cube.core.arrow.types import check_shared_columns, ordered, unify
from kartothek_cube.core.metadata.commit_log import (
    COMMITS_KEY,
    MOVING_KEY,
    SCHEMA_KEY,
    Commit,
    CubeCommit,
    CubePart,
    Txn,
    extend_chain,
    fingerprint,
    is_applied,
    records_after,
    with_txn,
)
from kartothek_cube.core.metadata.document import (
    DELTA_KEY,
    DROPPED_KEY,
    LAYOUT_KEY,
    OWN_PREFIX,
    STATE_KEYS,
    Document,
    PartitionColumns,
    empty_partitions,
)
from kartothek_cube.core.metadata.history_entry import HistoryEntry, entry_of
from kartothek_cube.core.metadata.index import (
    SecondaryIndex,
    build_index,
    drop_labels,
    grouped,
    index_type,
    merge_indices,
)
from kartothek_cube.core.metadata.naming import SINGLE_TABLE, document_key, new_id
from kartothek_cube.core.metadata.snapshot import (
    Snapshot,
    embedded_schemas,
    make_snapshot,
    type_of_column,
    with_key_types,
)
from kartothek_cube.core.metadata.statistics import STATISTICS_KEY, FileStatistics, StatisticsOfFile, concat_statistics
from kartothek_cube.core.write.layout import check_types_of_dropped, dropped_after, dropped_columns, layout_of
from kartothek_cube.core.write.stage import Receipt
from kartothek_cube.errors import CommitConflict, InvalidInput, InvalidRequest, InvalidType

OnConflict: TypeAlias = Literal["raise", "reapply"]


def check_on_conflict(value: object) -> OnConflict:
    """The argument ``on_conflict``.

    Raises
    ------
    InvalidInput
        If it is neither ``"raise"`` nor ``"reapply"``.
    """
    if not isinstance(value, str) or value not in ("raise", "reapply"):
        raise InvalidInput(f'on_conflict is "raise" or "reapply", not {value!r}.')
    return "raise" if value == "raise" else "reapply"


class Change(Struct, frozen=True):
    """Staged partitions, removed labels and metadata, to be committed onto a snapshot.

    Attributes
    ----------
    uuid : str
        The dataset.
    receipts : tuple of Receipt
        Staged files. If the dataset already has a label, the new files replace that partition.
    schemas : Mapping[str, pyarrow.Schema]
        Table → columns of the new rows, in stored types. Other tables stay as they are.
    partition_keys, index_columns : tuple of str
        Those of the dataset after the change.
    metadata : Mapping[str, Any]
        User metadata to be set.
    forgotten : frozenset of str
        User metadata to be removed.
    removed : pyarrow.Array
        Labels of the partitions to be removed.
    scope : Callable, optional
        Returns the labels to be removed from any state of the dataset whose indices are loaded.
        None: ``removed``, whatever the state.
    merge : Callable, optional
        Returns ``metadata`` and ``forgotten`` for any state (None: no dataset). Without it both are
        the same for every state.
    places : Mapping[str, str]
        New label → the label of the base, kept or removed, after which it comes; ``""``: before
        all. Others come last.
    on_conflict : {"raise", "reapply"}
        Whether to fail if another commit changed what this one removes or replaces.
    built : Mapping[str, SecondaryIndex]
        Whole new indices, built for exactly the partitions of the base.
    dropped : frozenset[str]
        Columns whose indices are dropped; none of them is among ``index_columns``.
    replace : bool
        Drop the old partitions, indices, schema and user metadata first.
    creates : bool
        For a new dataset: fail if another writer created it since. False: add the rows to it.
    explicit : bool
        False: a header, whose document lists no partitions.
    add_columns : bool
        Add columns that the dataset lacks to its schema.
    msgpack : bool
        The encoding of a new document; an existing document keeps its own.
    commit : str
        Id of the commit.
    cube : CubeCommit | None
        The write to a cube that this change is a part of.
    part : CubePart | None
        The part of the dataset in that write.
    time : datetime | None
        The time of the commit in UTC; None: when it is applied.
    data_change : bool
        False if the new files hold the rows of the removed partitions.
    txn : Txn | None
        The number of the write. It is skipped if the dataset has this number or a later one.
    statistics : FileStatistics | None
        Statistics of files that the dataset has already.
    records : Mapping[str, str | None]
        Entries of the document about its state to be set, of `STATE_KEYS`; None: to be removed.
    dropped_columns : frozenset of str
        Columns to be removed from the schemas. Files keep them.
    """

    uuid: str
    receipts: tuple[Receipt, ...]
    schemas: Mapping[str, pa.Schema]
    partition_keys: tuple[str, ...]
    index_columns: tuple[str, ...]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    forgotten: frozenset[str] = frozenset()
    removed: pa.Array = field(default_factory=lambda: pa.array([], type=pa.string()))
    scope: Callable[[Snapshot], pa.Array] | None = None
    merge: Callable[[Snapshot | None], tuple[Mapping[str, Any], frozenset[str]]] | None = None
    places: Mapping[str, str] = field(default_factory=dict)
    on_conflict: OnConflict = "raise"
    built: Mapping[str, SecondaryIndex] = field(default_factory=dict)
    dropped: frozenset[str] = frozenset()
    replace: bool = False
    creates: bool = True
    explicit: bool = True
    add_columns: bool = False
    msgpack: bool = False
    commit: str = field(default_factory=new_id)
    cube: CubeCommit | None = None
    part: CubePart | None = None
    time: datetime | None = None
    data_change: bool = True
    txn: Txn | None = None
    statistics: FileStatistics | None = None
    records: Mapping[str, str | None] = field(default_factory=dict)
    dropped_columns: frozenset[str] = frozenset()

    @property
    def labels(self) -> list[str]:
        """Labels of the new partitions, in order."""
        return list(dict.fromkeys(r.label for r in self.receipts))

    @property
    def is_prepared(self) -> bool:
        """Whether the commit is seen only once the coordinator of its write has committed."""
        return self.part is not None and self.part.coordinator != self.uuid

    @property
    def is_coordinator(self) -> bool:
        """Whether the commit is the moment of a write to several datasets."""
        return self.part is not None and self.part.coordinator == self.uuid

    def key_onto(self, base: Snapshot | None) -> str:
        """Key of the document after the change: an existing document keeps its encoding."""
        return document_key(self.uuid, msgpack=self.msgpack) if base is None else base.key

    def describe(self) -> str:
        """One line for error messages."""
        return f"commit {self.commit} ({pluralize(len(self.labels), 'partition')} added, {len(self.removed)} removed)"


# --- rebase onto a newer state --------------------------------------------------------------------


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


# --- applying -------------------------------------------------------------------------------------


# Instead of the key of an index file that is not written yet.
UNWRITTEN = None


class NextState(Struct, frozen=True):
    """The state of a dataset after a change.

    Attributes
    ----------
    document : Document
        The next document, without the keys of new index files.
    schemas : Mapping[str, pyarrow.Schema]
        The schema of each table.
    indices : Mapping[str, SecondaryIndex]
        The indices to be written.
    gone : pyarrow.Array
        The labels that are removed or replaced.
    appends : bool
        Whether all partitions of the base are kept, before the new ones.
    """

    document: Document
    schemas: Mapping[str, pa.Schema]
    indices: Mapping[str, SecondaryIndex]
    gone: pa.Array
    appends: bool = False


class AppliedChange(Struct, frozen=True):
    """A change that was rebased onto a state and applied to it. Nothing is written yet.

    Attributes
    ----------
    change : Change
        The change as it was rebased.
    base : Snapshot | None
        The state that it was applied to.
    next : NextState
        The state after it.
    entry : HistoryEntry
        The history entry of the commit.
    reapplied : bool
        Whether only ``on_conflict="reapply"`` let it come after this state.
    """

    change: Change
    base: Snapshot | None
    next: NextState
    entry: HistoryEntry
    reapplied: bool

    @property
    def statistics(self) -> FileStatistics:
        """The statistics that the change brings."""
        staged = StatisticsOfFile.together(receipt.statistics for receipt in self.change.receipts)
        return staged if self.change.statistics is None else concat_statistics([self.change.statistics, staged])

    @property
    def indices(self) -> dict[str, SecondaryIndex]:
        """The indices of the next state that are in memory."""
        if self.base is None or self.change.replace:
            return dict(self.next.indices)
        kept = {c: index for c, index in self.base.indices.items() if c not in self.change.dropped}
        return {**kept, **self.next.indices}

    def snapshot(self, document: Document, token: Hashable) -> Snapshot:
        """The next state, with the document as it was written."""
        # Partition values of the base need not be decoded again.
        decoded = self.base.values if self.base is not None and self.next.appends else None
        key = self.change.key_onto(self.base)
        return make_snapshot(document, key, token, self.next.schemas, decoded=decoded).with_indices(self.indices)

    def unwritten_snapshot(self) -> Snapshot:
        """The next state for a change that shares the swap with this one."""
        indices = {**self.next.document.indices, **dict.fromkeys(self.next.indices, UNWRITTEN)}
        # Without a version token, so that no cache mistakes it for a stored state.
        return self.snapshot(replace(self.next.document, indices=indices), None)


def rebase_and_apply(
    change: Change, base: Snapshot | None, newest: Snapshot | None, vacant: Mapping[str, Any] | None = None
) -> AppliedChange:
    """Apply a change that was made for ``base`` to the newest state.

    ``vacant`` are the records of a vacancy that the new document takes over.

    Raises
    ------
    CommitConflict
        If the change contradicts a commit since ``base``, or the dataset is being renamed or
        converted.
    InvalidInput
        If the change does not fit ``base`` either.
    """
    if newest is not None and MOVING_KEY in newest.document.metadata:
        raise CommitConflict(
            f"Dataset {change.uuid!r} is being renamed, or the encoding of {newest.key!r} is being changed. If nobody "
            "does so now, it was interrupted: repeat it, or call convert_metadata_format with the present encoding to "
            "free the dataset. Nothing of this write is visible."
        )
    newest, now = minus_own_files(change, base, newest), change.time or datetime.now(UTC)
    rebased = rebase(change, base, newest)
    try:
        check_indices(rebased, newest)
        state = apply_change(rebased, newest, now, vacant)
    except InvalidInput as error:
        if is_same(base, newest):
            raise
        # The change fitted its base, so this is a conflict and not bad input.
        raise conflict(change, base, newest, str(error)) from error
    added = pa.array(rebased.labels, type=pa.string())
    entry = entry_of(rebased.commit, now, newest, added, state.gone, rebased.cube)
    entry = replace(entry, data_change=rebased.data_change)
    return AppliedChange(rebased, newest, state, entry, is_reapplied(change, base, newest))


def apply_change(
    change: Change, base: Snapshot | None, now: datetime | None = None, vacant: Mapping[str, Any] | None = None
) -> NextState:
    """The state after a change; ``now`` is UTC, ``vacant`` as in `rebase_and_apply`.

    If the change adds or removes partitions, ``base`` must have all secondary indices loaded.
    """
    start = None if change.replace else base
    schemas = _new_schemas(change, start)
    gone = change.removed
    if start is not None and change.receipts:
        added, old = pa.array(change.labels, type=pa.string()), start.partitions.labels
        # Searching the many in the few first is ten times as fast as the other way round.
        replaced = added.filter(pc.is_in(added, value_set=old.filter(pc.is_in(old, value_set=added))))
        gone = pa.concat_arrays([gone, replaced]) if len(replaced) else gone
    partitions = _new_partitions(change, start, gone)
    built, columns = dict[str, SecondaryIndex](), change.index_columns
    if start is not None and not change.receipts and not len(gone):
        # The stored indices still fit the partitions: only those that are missing are made.
        built = dict(change.built)
        columns = tuple(c for c in columns if c not in start.document.indices and c not in built)
    indices = {**built, **{c: _new_index(change, start, schemas, gone, c) for c in columns}}
    new = indices.keys() | change.dropped
    kept = {} if start is None else {c: key for c, key in start.document.indices.items() if c not in new}
    metadata = _new_metadata(change, base, start, schemas, partitions, now or datetime.now(UTC))
    # They survive `replace`, too: readers of other datasets need them.
    before = (vacant or {}) if base is None else base.document.metadata
    write = None if change.cube is None else change.cube.id
    metadata.update(records_after(change.part, change.uuid, write, change.commit, before, is_new=base is None))
    appends = not change.replace and partitions is not None and not len(gone) and not change.places
    document = Document(change.uuid, metadata, change.partition_keys, kept, partitions)
    all_gone = base.partitions.labels if change.replace and base is not None else gone
    return NextState(document, schemas, indices, all_gone, appends)


def _new_schemas(change: Change, base: Snapshot | None) -> dict[str, pa.Schema]:
    old, was_dropped = dict[str, pa.Schema](), dict[str, pa.Schema]()
    if base is not None:
        old = {t: pa.schema([f for f in s if f.name not in change.dropped_columns]) for t, s in base.schemas.items()}
        was_dropped = dropped_columns(base.document.metadata, base.uuid)
    if old and change.receipts and set(old) != set(change.schemas):
        raise InvalidInput(
            f"Input partitions for update have different tables than dataset {change.uuid!r}: "
            f"{sorted(change.schemas)}, not {sorted(old)}."
        )
    new = {}
    for table, given in change.schemas.items():
        schema = given
        if table in old:
            owner = f"dataset {change.uuid!r}"
            owner = owner if table == SINGLE_TABLE else f"table {table!r} of {owner}"
            written = check_types_of_dropped(was_dropped.get(table, pa.schema([])), given, change.uuid)
            added = [f for f in written if change.add_columns and f.name not in old[table].names]
            schema = unify([pa.schema([*old[table], *added]), written], owner)
        new[table] = ordered(schema, change.partition_keys)
    schemas = with_key_types({**old, **new}, change.partition_keys, change.uuid)
    check_shared_columns(schemas, change.uuid)
    return schemas


def _new_partitions(change: Change, base: Snapshot | None, gone: pa.Array) -> PartitionColumns | None:
    if not change.explicit and not change.receipts:
        return None
    labels = change.labels
    position = {label: i for i, label in enumerate(labels)}
    # One list per table, not per receipt: a list has an item for every label.
    staged: dict[str, list[str | None]] = {
        table: [None] * len(labels) for table in dict.fromkeys(r.table for r in change.receipts)
    }
    for receipt in change.receipts:
        keys, i = staged[receipt.table], position[receipt.label]
        if keys[i] is not None:
            raise InvalidInput(f"Two new partitions of dataset {change.uuid!r} have the same label {receipt.label!r}.")
        keys[i] = receipt.key
    columns = {t: pa.array(keys, type=pa.string()) for t, keys in staged.items()}
    new = PartitionColumns(pa.array(labels, type=pa.string()), columns)
    old = base.partitions if base is not None else empty_partitions()
    stays = np.ones(len(old), dtype=bool)
    if len(gone):
        stays = ~pc.is_in(old.labels, value_set=gone).to_numpy(zero_copy_only=False)
    joined = old
    if len(new):
        tables = dict.fromkeys([*old.files, *new.files])
        files = {t: pa.concat_arrays([old.file_column(t), new.file_column(t)]) for t in tables}
        joined = PartitionColumns(pa.concat_arrays([old.labels, new.labels]), files)
    if not stays.all() or change.places:
        # What an undo brings back goes to its old place: after its predecessor, or before all.
        before = pa.array([change.places.get(label) for label in new.labels.to_pylist()], type=pa.string())
        predecessors = pc.fill_null(pc.index_in(before, value_set=old.labels), len(old)).to_numpy(zero_copy_only=False)
        places = np.where(pc.fill_null(pc.equal(before, ""), False).to_numpy(zero_copy_only=False), -1, predecessors)
        kept = np.flatnonzero(stays)
        rows = np.concatenate([kept, np.arange(len(old), len(old) + len(new))])
        joined = joined.take(rows[np.argsort(np.concatenate([kept, places]), kind="stable")])
    if stays.all() and not len(new):
        return joined
    # A document does not name a table without files, so the fingerprint must not include it.
    return dataclasses.replace(joined, files={t: f for t, f in joined.files.items() if f.null_count < len(f)})


def _new_index(
    change: Change, base: Snapshot | None, schemas: Mapping[str, pa.Schema], gone: pa.Array, column: str
) -> SecondaryIndex:
    data_type = index_type(type_of_column(schemas, column, change.uuid), column, change.uuid)
    values_of: dict[str, list[pa.Array]] = {}
    for receipt in change.receipts:
        if column in receipt.entries:
            values = receipt.entries[column]
            values = values if values.type.equals(data_type) else values.cast(data_type)
            values_of.setdefault(receipt.label, []).append(values)
    # The values of several tables of a partition are one set.
    entries = (
        (arrays[0] if len(arrays) == 1 else pc.unique(pa.chunked_array(arrays)), label)
        for label, arrays in values_of.items()
    )
    fresh = build_index(column, data_type, entries)
    if base is None or column not in base.indices:
        return grouped(fresh)
    return grouped(merge_indices([drop_labels(base.indices[column], gone), fresh]))


def _new_metadata(
    change: Change,
    base: Snapshot | None,
    start: Snapshot | None,
    schemas: Mapping[str, pa.Schema],
    partitions: PartitionColumns | None,
    now: datetime,
) -> dict[str, Any]:
    old = dict(start.document.metadata) if start is not None else {}
    metadata = {k: v for k, v in old.items() if not k.startswith(OWN_PREFIX) and k not in change.forgotten}
    metadata.update(change.metadata)
    # UTC without a zone, as kartothek writes it.
    metadata.setdefault("creation_time", now.replace(tzinfo=None).isoformat(timespec="microseconds"))
    # The commit of a foreign writer is in no chain, so a new chain begins after it.
    chain = base.chain if base is not None else ()
    foreign = base is not None and base.has_foreign_commit
    commit = Commit(change.commit, None, fingerprint(partitions), now, change.cube)
    metadata[COMMITS_KEY] = extend_chain(chain, commit, foreign=foreign)
    metadata[SCHEMA_KEY] = embedded_schemas(schemas)
    records = {**{k: old[k] for k in STATE_KEYS if k in old}, **change.records}
    if records.get(DROPPED_KEY) or change.dropped_columns:
        before = dropped_columns(records, change.uuid)
        present = {} if start is None else start.schemas
        records[DROPPED_KEY] = dropped_after(before, present, schemas, change.dropped_columns)
    metadata.update({k: v for k, v in records.items() if v is not None})
    # Files never change, so what is known of them stays true: `replace` may be undone. Readers of a
    # Delta table do not know of it.
    kept = {} if base is None else base.document.metadata
    metadata.update({k: kept[k] for k in (STATISTICS_KEY, DELTA_KEY) if k in kept})
    # Numbers survive `replace`, too: no write may ever be applied twice.
    metadata.update(with_txn(change.txn, {} if base is None else base.document.metadata))
    return metadata


# --- undoing a commit -----------------------------------------------------------------------------


class UndoPlan(Struct, frozen=True):
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
