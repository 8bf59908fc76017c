"""Taking back one commit by another one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import overload

import numpy as np
import pyarrow as pa

from kartothek_cube.core.change import Change
from kartothek_cube.core.commit import check_store_can_commit
from kartothek_cube.core.commit import commit as commit_change
from kartothek_cube.core.compat.dataset_metadata import DatasetMetadata
from kartothek_cube.core.compat.factory import DatasetFactory
from kartothek_cube.core.dataset.arguments import source_of
from kartothek_cube.core.dataset.plan_undo import UndoPlan, check_undoable, old_places, restored_metadata
from kartothek_cube.core.history import PastState, is_wanted, known_since, older_snapshot, states
from kartothek_cube.core.index import SecondaryIndex
from kartothek_cube.core.metadata.history import HistoryEntry, document_before
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.options import Overrides, current_options
from kartothek_cube.core.parallel import map_in_threads
from kartothek_cube.core.progress import Phase
from kartothek_cube.core.receipt import Receipt
from kartothek_cube.core.rowkeys import IntArray
from kartothek_cube.core.snapshots import built_indices, file_entries, load_snapshot, with_indices
from kartothek_cube.core.store import Store
from kartothek_cube.core.telemetry import operation
from kartothek_cube.errors import CommitConflict, InvalidInput, InvalidRequest, InvalidType, KeyNotFound
from kartothek_cube.typing import StoreLike

__all__ = ["plan_undo", "undo"]


@overload
def undo(dataset_uuid: str, store: StoreLike, commit: str | None = None, *, options: Overrides | None = None) -> DatasetMetadata: ...


@overload
def undo(*, commit: str | None = None, factory: DatasetFactory, options: Overrides | None = None) -> DatasetMetadata: ...


def undo(
    dataset_uuid: str | None = None,
    store: StoreLike | None = None,
    commit: str | None = None,
    *,
    factory: DatasetFactory | None = None,
    options: Overrides | None = None,
) -> DatasetMetadata:
    """Take back one commit by a new one: what it added goes, what it removed comes back in its old place.

    What came after it stays. Metadata that it changed go back where nobody has changed them since. No data file is deleted, and none is written unless history
    is about to expire. An undo can be undone itself. A commit that changed the schema, the partition keys or, together with partitions, the indices can be
    taken back while it is the newest, or once all later ones are undone; then all of that becomes as it was.

    Parameters
    ----------
    dataset_uuid : str
        The dataset.
    store : str, path, store or callable
        Where it lies; everything that `open_store` takes.
    commit : str, optional
        Id of the commit, or of the write to several datasets of a cube that it is a part of; by default the newest. `history` lists them.
    factory : DatasetFactory, optional
        Instead of ``dataset_uuid`` and ``store``.
    options : optional
        What `options` returns: settings for this call.

    Returns
    -------
    DatasetMetadata
        The dataset as the new commit left it.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist.
    InvalidInput
        If history has no such commit, or not any more.
    InvalidRequest
        If the commit made the dataset (`delete_dataset` deletes it), or its header, which others have built on since.
    CommitConflict
        If a later commit replaced or removed what it added, or used a label again that it removed; and if somebody does so meanwhile.
    KeyNotFound
        If files that it removed are gone from the store.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import read_table, store_dataframes_as_dataset, undo, update_dataset_from_dataframes
    >>> store = open_store("hmemory://")
    >>> sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = store_dataframes_as_dataset(store, "sales", [sales], partition_on=["COUNTRY_CODE"])
    >>> _ = update_dataset_from_dataframes([], store, "sales", delete_scope=[{"COUNTRY_CODE": "DE"}])
    >>> _ = undo("sales", store)
    >>> read_table("sales", store)
      COUNTRY_CODE  UNITS
    0           DE      3
    1           FR      4
    """
    with operation("undo", options):
        if commit is not None and not isinstance(commit, str):
            raise InvalidType(f"commit is the id of a commit, not {type(commit).__name__}: {commit!r}.")
        source = source_of(dataset_uuid, store, factory)
        check_store_can_commit(source.store)
        newest = load_snapshot(source.store, source.uuid)
        undoing = plan_undo(source.store, newest, commit)
        change = _whole_change(source.store, undoing) if undoing.changes_header else _partial_change(source.store, undoing)
        return source.committed(commit_change(source.store, change, newest))


# --- which commit -----------------------------------------------------------------------------------------------------


def plan_undo(store: Store, newest: Snapshot, commit: str | None) -> UndoPlan:
    """What is to be taken back; nothing is changed. Errors as of `undo`."""
    undoing = _find(store, newest, commit)
    check_undoable(undoing)
    return undoing


def _find(store: Store, newest: Snapshot, commit: str | None) -> UndoPlan:
    found = states(store, newest)
    later: list[HistoryEntry] = []
    for state in found:
        if state.commit is not None and (commit is None or is_wanted(state.commit, None, state.cube, commit)):
            return _undoing(store, newest, state, found, tuple(reversed(later)))
        last = state
        if state.entry is not None:
            later.insert(0, state.entry)
    what = "has no commit that could be undone" if commit is None else f"has no commit {commit!r} in its history"
    raise InvalidInput(f"Dataset {newest.uuid!r} {what}: {known_since(newest, last)}. `history` lists the commits that are kept.")


def _undoing(store: Store, newest: Snapshot, state: PastState, older: Iterator[PastState], later: tuple[HistoryEntry, ...]) -> UndoPlan:
    entry = state.entry
    if entry is None:
        raise InvalidInput(f"Commit {state.commit} of dataset {newest.uuid!r} cannot be undone: history does not say any more what it changed.")
    if entry.before is None:
        raise InvalidRequest(f"Commit {state.commit} made dataset {newest.uuid!r}; delete_dataset deletes it.")
    parent = next(older, None)  # also checks that the entry leads there
    before = document_before(entry, state.document) if parent is None else parent.document
    assert before is not None
    after = older_snapshot(store, newest, state.document) if later else newest
    return UndoPlan(entry, older_snapshot(store, newest, before), after, newest, later)


# --- changes ----------------------------------------------------------------------------------------------------------


def _partial_change(store: Store, undoing: UndoPlan) -> Change:
    """What the commit did the other way round, on the newest state."""
    newest = undoing.newest
    dropped, built = _other_indices(store, undoing)
    columns = tuple(sorted((newest.secondary_columns - dropped) | built.keys()))
    merge = partial(_metadata, undoing)
    metadata, forgotten = merge(newest)
    return Change(
        undoing.uuid,
        tuple(_receipts(store, undoing, undoing.restored, columns)),
        newest.schemas,
        newest.partition_keys,
        columns,
        metadata=metadata,
        forgotten=forgotten,
        removed=undoing.entry.added,
        merge=merge,
        places=old_places(undoing),
        built=built,
        dropped=dropped,
    )


def _metadata(undoing: UndoPlan, state: Snapshot | None) -> tuple[dict[str, object], frozenset[str]]:
    now = {} if state is None else state.document.user_metadata
    return restored_metadata(undoing.before.document.user_metadata, undoing.after.document.user_metadata, now)


def _other_indices(store: Store, undoing: UndoPlan) -> tuple[frozenset[str], Mapping[str, SecondaryIndex]]:
    """Indices that the commit made, and those that it dropped, made anew; of one that changed nothing but these."""
    if undoing.changes_partitions:
        return frozenset(), {}
    before, after, newest = undoing.before.secondary_columns, undoing.after.secondary_columns, undoing.newest
    known = {name for schema in newest.schemas.values() for name in schema.names}
    lacking = sorted(((before - after) - newest.secondary_columns) & known)
    return (after - before) & newest.secondary_columns, built_indices(store, newest, lacking) if lacking else {}


def _whole_change(store: Store, undoing: UndoPlan) -> Change:
    """The dataset as it was before the commit."""
    before = undoing.before
    columns = tuple(sorted(before.secondary_columns))
    metadata, forgotten = _metadata(undoing, undoing.newest)
    return Change(
        undoing.uuid,
        tuple(_receipts(store, undoing, np.arange(len(before.partitions)), columns)),
        before.schemas,
        before.partition_keys,
        columns,
        metadata={**{k: v for k, v in undoing.newest.document.user_metadata.items() if k not in forgotten}, **metadata},
        merge=partial(_superseded, undoing),
        replace=True,
    )


def _superseded(undoing: UndoPlan, state: Snapshot | None) -> tuple[dict[str, object], frozenset[str]]:
    commits = "" if state is None or not state.chain else f" Commit {state.chain[-1].id} came meanwhile."
    raise CommitConflict(
        f"Dataset {undoing.uuid!r}: commit {undoing.entry.commit} is not the newest any more and cannot be undone.{commits} Nothing was changed."
    )


# --- files that come back ---------------------------------------------------------------------------------------------


def _receipts(store: Store, undoing: UndoPlan, positions: IntArray, columns: Sequence[str]) -> list[Receipt]:
    """Receipts of files that an older state has, partition by partition."""
    before = undoing.before
    bare = list(_bare_receipts(undoing, positions))
    _check_there(store, undoing, [receipt.key for receipt in bare])
    # Where the index of that state is still there, it has the values of all partitions.
    listed = sorted(set(columns) & before.pruning_columns) if bare else []
    values = {c: _values_by_label(store, before, c, positions) for c in listed}
    return list(map_in_threads(lambda receipt: _with_entries(store, before, receipt, columns, values), bare, phase=Phase("index", "files")))


def _bare_receipts(undoing: UndoPlan, positions: IntArray) -> Iterator[Receipt]:
    before, settings = undoing.before, current_options()
    # History protects the files for as long as the commit is kept. As if they had been staged a grace period before the end of that: publishing
    # copies those whose time is nearly over.
    when = undoing.entry.time + max(settings.retain, settings.grace) - settings.grace
    partitions = before.partitions.take(positions)
    rows = before.values.take(pa.array(positions)).to_pylist() if before.values.num_columns else [{}] * len(positions)
    tables = {table: keys.to_pylist() for table, keys in partitions.files.items()}
    for i, (label, row) in enumerate(zip(partitions.labels.to_pylist(), rows, strict=True)):
        for table, keys in tables.items():
            if keys[i] is not None:
                yield Receipt(undoing.uuid, label, keys[i], row, 0, 0, before.schemas[table], {}, table=table, staged=when)


def _check_there(store: Store, undoing: UndoPlan, keys: Sequence[str]) -> None:
    gone = [key for key, there in zip(keys, map_in_threads(store.contains, keys, store=store), strict=True) if not there]
    if gone:
        raise KeyNotFound(
            f"Dataset {undoing.uuid!r}: commit {undoing.entry.commit} cannot be undone. {len(gone)} of {len(keys)} files that would come back are not in the "
            f"store {store.name} any more, e.g. {gone[0]!r}: garbage collection removed them. Nothing was changed."
        )


def _values_by_label(store: Store, before: Snapshot, column: str, positions: IntArray) -> dict[str, pa.Array]:
    """What an index says of each of some partitions."""
    labels = before.partitions.labels.take(pa.array(positions))
    index = with_indices(store, before, [column]).indices[column]
    codes = index.positions(labels)
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(len(labels) + 1))
    values = index.values.take(pa.array(order))
    return {label: values[start:end] for label, start, end in zip(labels.to_pylist(), bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)}


def _with_entries(store: Store, before: Snapshot, receipt: Receipt, columns: Sequence[str], values: Mapping[str, Mapping[str, pa.Array]]) -> Receipt:
    listed = {c: by_label[receipt.label] for c, by_label in values.items() if c in receipt.schema.names}
    rest = [c for c in columns if c not in values and c in receipt.schema.names]
    read = file_entries(store, before.uuid, receipt.schema, receipt.key, rest) if rest else {}
    return replace(receipt, entries={**listed, **read})
