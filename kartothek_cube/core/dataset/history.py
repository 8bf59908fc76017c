"""The history of a dataset: commits, tags, undo, and what changed between two states."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias, overload

import numpy as np
import pyarrow as pa

from kartothek_cube.core.arguments import as_list
from kartothek_cube.core.arrow.difference import Difference, DifferenceBuffer, changes_schema
from kartothek_cube.core.arrow.keys import IntArray
from kartothek_cube.core.arrow.pandas import to_frame
from kartothek_cube.core.commit.change import Change, UndoPlan, check_undoable, old_places, restored_metadata
from kartothek_cube.core.commit.commit import commit_change
from kartothek_cube.core.dataset.reference import dataset_ref
from kartothek_cube.core.expressions.predicates import columns_of, parse_predicates
from kartothek_cube.core.kartothek.dataset_metadata import DatasetFactory, DatasetMetadata
from kartothek_cube.core.metadata.document import STATE_KEYS
from kartothek_cube.core.metadata.history_entry import HistoryEntry, document_before
from kartothek_cube.core.metadata.index import SecondaryIndex
from kartothek_cube.core.metadata.naming import SINGLE_TABLE
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.metadata.tag import TaggedState, check_tag_name, tag_key
from kartothek_cube.core.runtime.executor import at_once, map_in_threads
from kartothek_cube.core.runtime.options import Overrides, Phase, current_options
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.scan.execute import stream_tables, stream_together
from kartothek_cube.core.scan.plan import (
    changed_files,
    check_change_type,
    check_predicate_columns,
    check_same_types,
    check_since,
    check_table,
    checked_columns,
    names_of,
    shared_partition_keys,
    widened,
    with_columns_of,
)
from kartothek_cube.core.snapshots.loader import KeptFiles, built_indices, file_entries, load_snapshot, with_indices
from kartothek_cube.core.snapshots.time_travel import (
    PastState,
    changes_nothing,
    check_as_of,
    is_wanted,
    known_since,
    known_tag,
    list_tags,
    load_with_entries,
    older_snapshot,
    past_commits,
    remove_tag,
    snapshots_between,
    states,
    tag_state,
)
from kartothek_cube.core.stores.contract import Store, check_store_can_commit
from kartothek_cube.core.write.stage import Receipt
from kartothek_cube.errors import (
    CommitConflict,
    CorruptDocument,
    InvalidInput,
    InvalidRequest,
    InvalidType,
    KeyNotFound,
)
from kartothek_cube.typing import AsOf, Columns, ColumnsByTable, IntoPredicates, StoreLike

if TYPE_CHECKING:
    import pandas as pd


_SCHEMA = pa.schema(
    [
        ("commit", pa.string()),
        ("parent", pa.string()),
        ("time", pa.timestamp("us", "UTC")),
        ("added", pa.int64()),
        ("removed", pa.int64()),
        ("cube", pa.string()),
        ("kept", pa.bool_()),
        ("tags", pa.list_(pa.string())),
    ]
)


class LacksCommit(InvalidInput):
    """The history of the dataset is whole, and has no such commit."""


class CreatedDataset(InvalidRequest):
    """The commit to be undone created the dataset."""


@overload
def history(dataset_uuid: str, store: StoreLike, *, options: Overrides | None = None) -> pd.DataFrame: ...


@overload
def history(*, factory: DatasetFactory, options: Overrides | None = None) -> pd.DataFrame: ...


def history(
    dataset_uuid: str | None = None,
    store: StoreLike | None = None,
    *,
    factory: DatasetFactory | None = None,
    options: Overrides | None = None,
) -> pd.DataFrame:
    """The known commits of a dataset, newest first. See the page *History*.

    Parameters
    ----------
    dataset_uuid : str
        The dataset.
    store : str, path, store or callable
        The store, in any form that `open_store` takes.
    factory : DatasetFactory, optional
        Instead of ``dataset_uuid`` and ``store``. The newest state counts, whatever the factory has
        read.
    options : optional
        Settings for this call, from `options`.

    Returns
    -------
    pandas.DataFrame
        - ``commit``, ``parent``: ids. The parent is null for the first commit, and for the first
          commit after a library without commit ids.
        - ``time``: time of the commit by the writer's clock (UTC), or null.
        - ``added``, ``removed``: numbers of partitions, ``Int64``; null once history has expired. A
          replaced partition counts in both.
        - ``cube``: id of the cube write that contains the commit, or null.
        - ``kept``: whether ``as_of=`` can read the state after the commit.
        - ``tags``: list of the tags of the state. A commit that history has lost is kept and listed
          as long as it has one.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import history, store_dataframes_as_dataset
    >>> from kartothek_cube.api.dataset import update_dataset_from_dataframes
    >>> store = open_store("hmemory://")
    >>> sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = store_dataframes_as_dataset(store, "sales", [sales], partition_on=["COUNTRY_CODE"])
    >>> scope = [{"COUNTRY_CODE": "DE"}]
    >>> _ = update_dataset_from_dataframes([sales[:1]], store, "sales", delete_scope=scope)
    >>> history("sales", store)[["added", "removed", "kept"]]
       added  removed  kept
    0      1        1  True
    1      2        0  True
    """
    with operation("history", options):
        source = dataset_ref(dataset_uuid, store, factory)
        stored, commits = at_once(
            source.store,
            lambda: list_tags(source.store, source.uuid),
            lambda: past_commits(source.store, load_snapshot(source.store, source.uuid)),
        )
        tags: dict[str | None, list[TaggedState]] = {}
        for tag in stored:
            tags.setdefault(tag.state.commit, []).append(tag.state)
        rows: list[tuple[object, ...]] = [
            (c.id, c.parent, c.time, c.added, c.removed, c.cube and c.cube.id, c.kept or c.id in tags) for c in commits
        ]
        known = {commit.id for commit in commits}
        rows.extend(
            (commit, None, tagged[0].time, None, None, None, True)
            for commit, tagged in sorted(tags.items(), key=lambda item: str(item[1][0].time), reverse=True)
            if commit is not None and commit not in known
        )
        named = [(*row, [tag.name for tag in tags.get(str(row[0]), ())]) for row in rows]
        frame = to_frame(pa.Table.from_pylist([dict(zip(_SCHEMA.names, row, strict=True)) for row in named], _SCHEMA))
        frame["tags"] = frame["tags"].map(list).astype(object)  # not NumPy arrays
        # Nullable integers: with nulls, pandas would return floats.
        return frame.astype({"added": "Int64", "removed": "Int64"})


@overload
def undo(
    dataset_uuid: str, store: StoreLike, commit: str | None = None, *, options: Overrides | None = None
) -> DatasetMetadata: ...


@overload
def undo(
    *, commit: str | None = None, factory: DatasetFactory, options: Overrides | None = None
) -> DatasetMetadata: ...


def undo(
    dataset_uuid: str | None = None,
    store: StoreLike | None = None,
    commit: str | None = None,
    *,
    factory: DatasetFactory | None = None,
    options: Overrides | None = None,
) -> DatasetMetadata:
    """Undo one commit by a new commit: remove what it added, restore what it removed, in place.

    Of a write to several datasets of a cube only the part of this dataset is undone: the write is
    split, and queries of the cube see the rest of it. `undo_cube` undoes all of it.

    Later commits stay. Changed metadata are restored unless a later commit changed them again. No
    data file is deleted, and none is written unless history is about to expire. An undo can be
    undone. A commit that changed the schema, the partition keys, or partitions and indices
    together, can be undone while it is the newest, or after all later commits are undone; schema,
    keys and indices are restored, too. See the page *History*.

    Parameters
    ----------
    dataset_uuid : str
        The dataset.
    store : str, path, store or callable
        The store, in any form that `open_store` takes.
    commit : str, optional
        Id of the commit, or of the cube write that contains it; by default the newest commit that
        changed something. `history` lists the ids.
    factory : DatasetFactory, optional
        Instead of ``dataset_uuid`` and ``store``.
    options : optional
        Settings for this call, from `options`.

    Returns
    -------
    DatasetMetadata
        The dataset after the new commit.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist.
    InvalidInput
        If history has no such commit, or the commit has expired.
    InvalidRequest
        If the commit created the dataset (`delete_dataset` deletes it), or created its header and
        later commits exist.
    CommitConflict
        If a later or concurrent commit replaced or removed what the commit added, or used a label
        again that the commit removed.
    KeyNotFound
        If files that the commit removed are gone from the store.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import read_table, store_dataframes_as_dataset
    >>> from kartothek_cube.api.dataset import undo, update_dataset_from_dataframes
    >>> store = open_store("hmemory://")
    >>> sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = store_dataframes_as_dataset(store, "sales", [sales], partition_on=["COUNTRY_CODE"])
    >>> scope = [{"COUNTRY_CODE": "DE"}]
    >>> _ = update_dataset_from_dataframes([], store, "sales", delete_scope=scope)
    >>> _ = undo("sales", store)
    >>> read_table("sales", store)
      COUNTRY_CODE  UNITS
    0           DE      3
    1           FR      4
    """
    with operation("undo", options):
        if commit is not None and not isinstance(commit, str):
            raise InvalidType(f"commit is the id of a commit, not {type(commit).__name__}: {commit!r}.")
        source = dataset_ref(dataset_uuid, store, factory)
        check_store_can_commit(source.store)
        # Not the snapshot of the factory, onto which others may have committed.
        newest, entries = load_with_entries(source.store, source.uuid)
        files = KeptFiles(source.store)
        plan = plan_undo(files, newest, commit, entries)
        return source.committed(commit_change(source.store, undo_change(files, plan), newest))


# --- which commit ---------------------------------------------------------------------------------


def plan_undo(
    store: Store, newest: Snapshot, commit: str | None, known: Mapping[str, HistoryEntry] = MappingProxyType({})
) -> UndoPlan:
    """The commit to be undone, found in history and checked; errors as of `undo`.

    ``known`` are history entries that need not be read.

    Raises
    ------
    LacksCommit
        If the history of the dataset is whole, and has no such commit.
    CreatedDataset
        If the commit created the dataset.
    """
    older = states(store, newest, known)
    later: list[HistoryEntry] = []
    for state in older:
        if commit is None:
            # A commit may have touched the dataset only so that a write to its cube became visible.
            is_meant = state.entry is None or not changes_nothing(state, state.entry)
        else:
            is_meant = is_wanted(state.last, commit)
        if state.commit is not None and is_meant:
            plan = _plan_of(store, newest, state, older, tuple(later))
            check_undoable(plan)
            return plan
        last = state
        if state.entry is not None:
            later.append(state.entry)
    what = "has no commit that could be undone" if commit is None else f"has no commit {commit!r} in its history"
    is_whole = last.entry is not None and last.entry.before is None
    raise (LacksCommit if is_whole else InvalidInput)(
        f"Dataset {newest.uuid!r} {what}: {known_since(newest, last)}. `history` lists the commits that are kept."
    )


def _plan_of(
    store: Store, newest: Snapshot, state: PastState, older: Iterator[PastState], later: tuple[HistoryEntry, ...]
) -> UndoPlan:
    entry = state.entry
    if entry is None:
        raise InvalidInput(
            f"Commit {state.commit} of dataset {newest.uuid!r} cannot be undone: "
            "history does not say any more what it changed."
        )
    if entry.before is None:
        raise CreatedDataset(f"Commit {state.commit} made dataset {newest.uuid!r}; delete_dataset deletes it.")
    parent = next(older, None)  # `states` also checks that the entry leads to this state
    before = document_before(entry, state.document) if parent is None else parent.document
    assert before is not None
    if len(entry.positions) and isinstance(store, KeptFiles):  # else the change would ask again
        known = newest.document.indices.values()
        indices = [key for key in before.indices.values() if isinstance(key, str) and key not in known]
        keys = [key for files in entry.removed.files.values() for key in files.drop_null().to_pylist()]
        store.look_ahead(indices, keys)
    after = older_snapshot(store, newest, state.document, state.commit) if later else newest
    return UndoPlan(entry, older_snapshot(store, newest, before, entry.parent), after, newest, later)


# --- changes --------------------------------------------------------------------------------------


def undo_change(store: Store, plan: UndoPlan) -> Change:
    """The change that undoes a commit.

    Raises
    ------
    KeyNotFound
        If files that would come back are gone from the store.
    """
    return (_header_change if plan.changes_header else _partial_change)(store, plan)


def _partial_change(store: Store, plan: UndoPlan) -> Change:
    """The inverse of the commit, on the newest state."""
    newest = plan.newest
    dropped: frozenset[str] = frozenset()
    built: Mapping[str, SecondaryIndex] = {}
    if not plan.changes_partitions:  # then the commit may have built and dropped indices
        before, after = plan.before.secondary_columns, plan.after.secondary_columns
        present = {name for schema in newest.schemas.values() for name in schema.names}
        lacking = sorted(((before - after) - newest.secondary_columns) & present)
        dropped = (after - before) & newest.secondary_columns
        built = built_indices(store, newest, lacking) if lacking else {}
    columns = tuple(sorted((newest.secondary_columns - dropped) | built.keys()))
    merge = partial(_metadata, plan)
    metadata, forgotten = merge(newest)
    return Change(
        plan.uuid,
        tuple(_receipts(store, plan, plan.restored, columns)),
        newest.schemas,
        newest.partition_keys,
        columns,
        metadata=metadata,
        forgotten=forgotten,
        removed=plan.entry.added,
        data_change=plan.entry.data_change,
        merge=merge,
        places=old_places(plan),
        built=built,
        dropped=dropped,
        records=plan.records(),
    )


def _metadata(plan: UndoPlan, state: Snapshot | None) -> tuple[dict[str, object], frozenset[str]]:
    now = {} if state is None else state.document.user_metadata
    return restored_metadata(plan.before.document.user_metadata, plan.after.document.user_metadata, now)


def _header_change(store: Store, plan: UndoPlan) -> Change:
    """The whole dataset as it was before the commit."""
    before = plan.before
    columns = tuple(sorted(before.secondary_columns))
    metadata, forgotten = _metadata(plan, plan.newest)

    # The change replaces everything, so it cannot be applied to any other state.
    def refuse(state: Snapshot | None) -> tuple[dict[str, object], frozenset[str]]:
        commits = "" if state is None or not state.chain else f" Commit {state.chain[-1].id} came meanwhile."
        raise CommitConflict(
            f"Dataset {plan.uuid!r}: commit {plan.entry.commit} is not the newest any more and cannot be undone."
            f"{commits} Nothing was changed."
        )

    return Change(
        plan.uuid,
        tuple(_receipts(store, plan, np.arange(len(before.partitions)), columns)),
        before.schemas,
        before.partition_keys,
        columns,
        metadata={**{k: v for k, v in plan.newest.document.user_metadata.items() if k not in forgotten}, **metadata},
        merge=refuse,
        replace=True,
        records={k: before.document.metadata[k] for k in STATE_KEYS if k in before.document.metadata},
    )


# --- files that come back -------------------------------------------------------------------------


def _receipts(store: Store, plan: UndoPlan, positions: IntArray, columns: Sequence[str]) -> list[Receipt]:
    """Receipts of files of the older state, partition by partition."""
    before = plan.before
    bare = list(_receipts_without_entries(plan, positions))
    keys = [receipt.key for receipt in bare]
    gone = [
        key for key, exists in zip(keys, map_in_threads(store.contains, keys, store=store), strict=True) if not exists
    ]
    if gone:
        raise KeyNotFound(
            f"Dataset {plan.uuid!r}: commit {plan.entry.commit} cannot be undone. "
            f"{len(gone)} of {len(keys)} files that would come back are not in the "
            f"store {store.name} any more, e.g. {gone[0]!r}: garbage collection removed them. Nothing was changed."
        )
    # If the store still has an index of that state, it has the values of all partitions.
    listed = sorted(set(columns) & before.pruning_columns) if bare else []
    values = {c: _values_by_label(store, before, c, positions) for c in listed}

    def with_entries(receipt: Receipt) -> Receipt:
        indexed = {c: by_label[receipt.label] for c, by_label in values.items() if c in receipt.schema.names}
        rest = [c for c in columns if c not in values and c in receipt.schema.names]
        read = file_entries(store, before.uuid, receipt.schema, receipt.key, rest) if rest else {}
        return replace(receipt, entries={**indexed, **read})

    return list(map_in_threads(with_entries, bare, phase=Phase("index", "files")))


def _receipts_without_entries(plan: UndoPlan, positions: IntArray) -> Iterator[Receipt]:
    before, settings = plan.before, current_options()
    # History protects the files as long as it keeps the commit. The receipts look as if they were
    # staged one grace period before that ends, so the commit copies files that are about to expire.
    when = plan.entry.time + max(settings.retain, settings.grace) - settings.grace
    partitions = before.partitions.take(positions)
    rows = before.values.take(pa.array(positions)).to_pylist() if before.values.num_columns else [{}] * len(positions)
    tables = {table: keys.to_pylist() for table, keys in partitions.files.items()}
    for i, (label, row) in enumerate(zip(partitions.labels.to_pylist(), rows, strict=True)):
        for table, keys in tables.items():
            if keys[i] is not None:
                schema = before.schemas[table]
                yield Receipt(plan.uuid, label, keys[i], row, 0, 0, schema, {}, table=table, staged=when)


def _values_by_label(store: Store, before: Snapshot, column: str, positions: IntArray) -> dict[str, pa.Array]:
    """Label → index values, for some partitions."""
    labels = before.partitions.labels.take(pa.array(positions))
    index = with_indices(store, before, [column]).indices[column]
    codes = index.positions(labels)
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(len(labels) + 1))
    values = index.values.take(pa.array(order))
    return {
        label: values[start:end]
        for label, start, end in zip(labels.to_pylist(), bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
    }


_TAG_SCHEMA = pa.schema([("name", pa.string()), ("commit", pa.string()), ("time", pa.timestamp("us", "UTC"))])


@overload
def tag_dataset(
    dataset_uuid: str, store: StoreLike, name: str, *, as_of: AsOf | None = None, options: Overrides | None = None
) -> None: ...


@overload
def tag_dataset(
    *, name: str, as_of: AsOf | None = None, factory: DatasetFactory, options: Overrides | None = None
) -> None: ...


def tag_dataset(
    dataset_uuid: str | None = None,
    store: StoreLike | None = None,
    name: str | None = None,
    *,
    as_of: AsOf | None = None,
    factory: DatasetFactory | None = None,
    options: Overrides | None = None,
) -> None:
    """Give a state of a dataset a name, which keeps it: ``as_of=name`` reads it from then on.

    Garbage collection leaves the files of the state alone until the tag is dropped, whatever
    ``options(retain=...)`` says. The document is not touched: nothing conflicts with a tag. See the
    page *Tags*.

    Parameters
    ----------
    dataset_uuid : str
        The dataset.
    store : str, path, store or callable
        The store, in any form that `open_store` takes.
    name : str
        The name: 1 to 200 printable characters without ``/``, which read neither as a moment nor
        as the id of a commit.
    as_of : str or datetime, optional
        The state: a commit, a moment, or another tag; by default the newest state.
    factory : DatasetFactory, optional
        Instead of ``dataset_uuid`` and ``store``. The newest state counts, whatever the factory has
        read.
    options : optional
        Settings for this call, from `options`.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist.
    InvalidInput
        If the name is not allowed.
    AlreadyExists
        If the dataset has a tag of this name. Nothing was changed.
    HistoryUnavailable
        If history does not reach back to ``as_of``, or its files were removed meanwhile. There is
        no new tag.
    CommitOutcomeUnknown
        If the store does not answer. The tag may exist.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import read_table, store_dataframes_as_dataset, tag_dataset
    >>> from kartothek_cube.api.dataset import update_dataset_from_dataframes
    >>> store = open_store("hmemory://")
    >>> sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = store_dataframes_as_dataset(store, "sales", [sales])
    >>> tag_dataset("sales", store, "audit-2024")
    >>> _ = update_dataset_from_dataframes([sales], store, "sales")
    >>> len(read_table("sales", store)), len(read_table("sales", store, as_of="audit-2024"))
    (4, 2)
    """
    with operation("tag_dataset", options):
        checked, state = check_tag_name(name), check_as_of(as_of)
        source = dataset_ref(dataset_uuid, store, factory)
        check_store_can_commit(source.store)
        tag_state(source.store, source.uuid, checked, state)


@overload
def list_dataset_tags(dataset_uuid: str, store: StoreLike, *, options: Overrides | None = None) -> pd.DataFrame: ...


@overload
def list_dataset_tags(*, factory: DatasetFactory, options: Overrides | None = None) -> pd.DataFrame: ...


def list_dataset_tags(
    dataset_uuid: str | None = None,
    store: StoreLike | None = None,
    *,
    factory: DatasetFactory | None = None,
    options: Overrides | None = None,
) -> pd.DataFrame:
    """The tags of a dataset by name, those of its cube included.

    Parameters
    ----------
    dataset_uuid, store, factory, options
        As in `tag_dataset`.

    Returns
    -------
    pandas.DataFrame
        ``name``; ``commit``, the last commit of the state, and ``time``, that of the commit (UTC).
        Both are null where a library without commit ids (kartothek, plateau) came last.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import list_dataset_tags, store_dataframes_as_dataset
    >>> from kartothek_cube.api.dataset import tag_dataset
    >>> store = open_store("hmemory://")
    >>> _ = store_dataframes_as_dataset(store, "sales", [pd.DataFrame({"UNITS": [3, 4]})])
    >>> tag_dataset("sales", store, "audit-2024")
    >>> list_dataset_tags("sales", store)["name"].to_list()
    ['audit-2024']
    """
    with operation("list_dataset_tags", options):
        source = dataset_ref(dataset_uuid, store, factory)
        load_snapshot(source.store, source.uuid)
        return tags_frame(tag.state for tag in list_tags(source.store, source.uuid))


def tags_frame(states: Iterable[TaggedState]) -> pd.DataFrame:
    """A list of tags as a table."""
    rows = [{"name": state.name, "commit": state.commit, "time": state.time} for state in states]
    return to_frame(pa.Table.from_pylist(rows, schema=_TAG_SCHEMA))


@overload
def drop_dataset_tag(dataset_uuid: str, store: StoreLike, name: str, *, options: Overrides | None = None) -> None: ...


@overload
def drop_dataset_tag(*, name: str, factory: DatasetFactory, options: Overrides | None = None) -> None: ...


def drop_dataset_tag(
    dataset_uuid: str | None = None,
    store: StoreLike | None = None,
    name: str | None = None,
    *,
    factory: DatasetFactory | None = None,
    options: Overrides | None = None,
) -> None:
    """Drop a tag. What only this tag kept, the next garbage collection removes.

    Parameters
    ----------
    dataset_uuid, store, factory, options
        As in `tag_dataset`.
    name : str
        The tag.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist.
    HistoryUnavailable
        If the dataset has no such tag.
    InvalidRequest
        If it is a tag of the cube, which `drop_cube_tag` drops.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import drop_dataset_tag, list_dataset_tags
    >>> from kartothek_cube.api.dataset import store_dataframes_as_dataset, tag_dataset
    >>> store = open_store("hmemory://")
    >>> _ = store_dataframes_as_dataset(store, "sales", [pd.DataFrame({"UNITS": [3, 4]})])
    >>> tag_dataset("sales", store, "audit-2024")
    >>> drop_dataset_tag("sales", store, "audit-2024")
    >>> len(list_dataset_tags("sales", store))
    0
    """
    with operation("drop_dataset_tag", options):
        source = dataset_ref(dataset_uuid, store, factory)
        load_snapshot(source.store, source.uuid)
        check_store_can_commit(source.store)
        try:
            found = known_tag(source.store, source.uuid, str(name))
        except CorruptDocument:
            # What such a tag names is unknown, so it keeps every tagged state until it is dropped.
            source.store.delete(tag_key(source.uuid, str(name)))
            return
        if found.seed is not None:
            raise InvalidRequest(
                f"Tag {found.name!r} of dataset {source.uuid!r} belongs to its cube: drop_cube_tag drops it. "
                "Nothing was changed."
            )
        remove_tag(source.store, found)


def read_dataset_changes(
    dataset_uuid: str,
    store: StoreLike,
    since: AsOf,
    until: AsOf | None = None,
    columns: ColumnsByTable = None,
    predicates: IntoPredicates | None = None,
    *,
    on: Columns = None,
    table: str = SINGLE_TABLE,
    options: Overrides | None = None,
) -> pa.RecordBatchReader:
    """Read the rows of a dataset that came or went between two states.

    The result is the net difference of ``read_table(…, as_of=since)`` and
    ``read_table(…, as_of=until)``, whatever the commits between them were. Only files that one of
    the states has and the other has not are read. Null equals null, and NaN equals NaN. See the
    page *What changed*.

    Parameters
    ----------
    dataset_uuid : str
        The dataset.
    store : str, path, store or callable
        The store, in any form that `open_store` takes.
    since, until : str or datetime
        The older and the later state: the id of a commit, a tag, or a moment, as ``as_of`` of
        `read_table`. Without ``until``, the newest state.
    columns, predicates, table
        As in `read_table`.
    on : str or list of str, optional
        Columns of a key. Rows that went and rows that came with the same key are updates. Of
        several rows of a key, those in the same partition belong together first.
    options : optional
        Settings for this call and for reading its batches, from `options`. Rows beyond
        ``bytes_in_flight`` wait in a temporary file.

    Returns
    -------
    pyarrow.RecordBatchReader
        The column ``_change_type``, then those of the rows: ``insert`` and ``delete``; with ``on``
        also ``update_preimage``, each followed by its ``update_postimage``. Columns and types are
        those of ``until``, or wider where an overwrite has narrowed them; columns that ``since``
        lacks are null there. No other order is promised.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist.
    HistoryUnavailable
        If history does not reach back to ``since`` or ``until``.
    InvalidInput, InvalidType
        If ``until`` comes before ``since``, a column had another type then, or as in `read_table`.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import open_store, read_dataset_changes
    >>> from kartothek_cube.api.dataset import history, store_dataframes_as_dataset
    >>> from kartothek_cube.api.dataset import update_dataset_from_dataframes
    >>> store = open_store("hmemory://")
    >>> sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = store_dataframes_as_dataset(store, "sales", [sales], partition_on=["COUNTRY_CODE"])
    >>> scope = [{"COUNTRY_CODE": "DE"}]
    >>> new = sales[:1].assign(UNITS=5)
    >>> _ = update_dataset_from_dataframes([new], store, "sales", delete_scope=scope)
    >>> first = history("sales", store)["commit"].iloc[-1]
    >>> read_dataset_changes("sales", store, first, on="COUNTRY_CODE").read_pandas()
           _change_type COUNTRY_CODE  UNITS
    0   update_preimage           DE      3
    1  update_postimage           DE      5
    """
    with operation("read_dataset_changes", options) as op:
        names, filters = names_of(columns, table, "columns"), parse_predicates(predicates)
        key = None if on is None else [str(column) for column in as_list(on, "on")]
        if key == []:
            raise InvalidInput("on names no column. Give the columns of a key, or leave it out.")
        first, last = check_since(since), check_as_of(until, "until")
        source = dataset_ref(dataset_uuid, store, None)
        before, after = _states(source.store, source.snapshot(), first, last)
        was = before.schemas.get(table, pa.schema([]))
        schema = widened(check_table(after, table), dict(zip(was.names, was.types, strict=True)))
        shown = checked_columns(names, schema, source.uuid)
        check_change_type(shown, f"Dataset {source.uuid!r}")
        checked_columns(key, schema, source.uuid)
        check_predicate_columns(filters, schema, source.uuid)
        within = [] if key is None else shared_partition_keys(before, after, table, key)
        read = [*shown, *dict.fromkeys(c for c in (*(key or ()), *within) if c not in shown)]
        check_same_types(was, schema, {*shown, *(key or ()), *columns_of(filters)}, source.uuid)
        schemas = {**after.schemas, table: schema}
        past = with_columns_of(before, schemas, ())
        present = after if schema.equals(after.schemas[table]) else with_columns_of(after, schemas, ())
        plans = [
            changed_files(source.store, snapshot, other, table, read, filters)
            for snapshot, other in ((past, present), (present, past))
        ]
        # Predicates on partition columns differ from file to file.
        stream = stream_together if filters is None else stream_tables
        gone, new = (stream(source.store, plan.request, plan.tasks()) for plan in plans)
        stored = pa.schema([schema.field(c) for c in read])
        hidden = [c for c in within if c not in shown]
        buffer = DifferenceBuffer(stored, key, within, current_options().bytes_in_flight // 2, hidden)
        result = changes_schema(pa.schema([schema.field(c) for c in shown]))
        differences = _compared(gone, new, buffer) if all(map(len, plans)) else _taken(gone, new, stored)
        batches = (
            batch
            for difference in differences
            for changes in (difference.updates(result), difference.others(result))
            for batch in changes.to_batches()
            if batch.num_rows
        )
        return pa.RecordBatchReader.from_batches(result, op.lasting(batches))


def _states(store: Store, newest: Snapshot, since: AsOf, until: AsOf | None) -> tuple[Snapshot, Snapshot]:
    pair = snapshots_between(store, newest, since, until)
    if pair.order > 0:
        raise InvalidInput(
            f"Dataset {newest.uuid!r}: until={until!r} comes before since={since!r}. Exchange them to see the changes."
        )
    return pair.before, pair.after


Rows: TypeAlias = Generator[pa.Table, None, None]


def _taken(before: Rows, after: Rows, schema: pa.Schema) -> Iterator[Difference]:
    """The rows of only one state: nothing can be equal, so that they need not wait for others."""
    nothing = schema.empty_table()
    with closing(before), closing(after):
        for rows in before:
            yield Difference(nothing, nothing, rows, nothing)
        for rows in after:
            yield Difference(nothing, nothing, nothing, rows)


def _compared(before: Rows, after: Rows, buffer: DifferenceBuffer) -> Iterator[Difference]:
    with buffer, closing(before), closing(after):
        for rows in before:
            buffer.add(rows, None)
        for rows in after:
            buffer.add(None, rows)
        yield from buffer.differences()
