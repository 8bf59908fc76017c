"""Applying a change to a state of its dataset: the next document, schemas and indices. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.arrow.types import check_shared_columns, ordered, unify
from kartothek_cube.core.commit.change import Change
from kartothek_cube.core.commit.rebase import check_indices, conflict, is_reapplied, is_same, minus_own_files, rebase
from kartothek_cube.core.metadata.commit_log import (
    COMMITS_KEY,
    MOVING_KEY,
    SCHEMA_KEY,
    Commit,
    extend_chain,
    fingerprint,
    records_after,
    with_txn,
)
from kartothek_cube.core.metadata.document import (
    DROPPED_KEY,
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
from kartothek_cube.core.metadata.naming import SINGLE_TABLE
from kartothek_cube.core.metadata.snapshot import (
    Snapshot,
    embedded_schemas,
    make_snapshot,
    type_of_column,
    with_key_types,
)
from kartothek_cube.core.metadata.statistics import STATISTICS_KEY, FileStatistics, StatisticsOfFile, gather
from kartothek_cube.core.write.dataset_layout import check_types_of_dropped, dropped_after, dropped_columns
from kartothek_cube.errors import CommitConflict, InvalidInput

__all__ = ["UNWRITTEN", "AppliedChange", "NextState", "apply_change", "rebase_and_apply"]

# Instead of the key of an index file that is not written yet.
UNWRITTEN = None


@dataclass(frozen=True, slots=True)
class NextState:
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


@dataclass(frozen=True, slots=True)
class AppliedChange:
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
        return staged if self.change.statistics is None else gather([self.change.statistics, staged])

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
    return replace(joined, files={t: f for t, f in joined.files.items() if f.null_count < len(f)})


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
    # Files never change, so what is known of them stays true: `replace` may be undone.
    if base is not None and STATISTICS_KEY in base.document.metadata:
        metadata[STATISTICS_KEY] = base.document.metadata[STATISTICS_KEY]
    # Numbers survive `replace`, too: no write may ever be applied twice.
    metadata.update(with_txn(change.txn, {} if base is None else base.document.metadata))
    return metadata
