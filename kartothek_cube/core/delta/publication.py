"""Publishing a dataset as a Delta table: versions of the log are put on condition.

In order:

- the log in the store
- what a version needs to know of files: bytes, statistics, cells that are there twice
- publishing a snapshot
- the record in the document
- after a commit
"""

from __future__ import annotations

import random
import time
import uuid as uuid_module
import warnings
from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.arrow.keys import IntArray, pack
from kartothek_cube.core.delta.log import (
    CHECKPOINT_EVERY,
    LogListing,
    LogReplay,
    LogState,
    NewFile,
    PublishedDelta,
    change_since,
    checkpoint_key,
    encode_checkpoint,
    encode_last_checkpoint,
    encode_version,
    header_of,
    is_always_published,
    is_version_of,
    last_checkpoint_key,
    log_folder,
    partition_values,
    state_id,
    stats_of,
    version_key,
    with_record,
)
from kartothek_cube.core.io.reader import FileRequest, read_rows
from kartothek_cube.core.metadata.document import render_document
from kartothek_cube.core.metadata.snapshot import Snapshot, cube_columns
from kartothek_cube.core.metadata.statistics import FileStatistics, concat_statistics, file_names, reference_of
from kartothek_cube.core.runtime.executor import LruCache, map_in_threads
from kartothek_cube.core.runtime.options import current_options
from kartothek_cube.core.snapshots.documents import put_document
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.snapshots.statistics import load_statistics
from kartothek_cube.core.stores.contract import Store, VersionMismatch, check_store_can_commit
from kartothek_cube.errors import (
    CommitConflict,
    CorruptData,
    InvalidRequest,
    KeyNotFound,
    PublicationWarning,
)

# Bytes of a version that tell whether it is the one that this process knows.
_HEAD = 512
_LONGEST_PAUSE = 0.2  # seconds
_CACHE_SIZE = 64


# --- the log in the store -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoredLog:
    """A log: its newest version (-1: none), what it says (None: nothing, or nothing readable)."""

    last: int = -1
    state: LogState | None = None


# The newest versions that this process has put or read, and the first bytes of each.
_cache = LruCache[tuple[Hashable, str], tuple[LogState, bytes]](_CACHE_SIZE)


def list_log(store: Store, folder: str) -> tuple[list[str], LogListing]:
    """The keys of a log, and its versions."""
    keys = store.list(folder, recursive=True).keys
    return keys, LogListing.of(keys)


def read_log(store: Store, folder: str, listing: LogListing | None = None) -> StoredLog:
    """The newest version of a log."""
    listing = list_log(store, folder)[1] if listing is None else listing
    last = listing.last
    if last < 0:
        return StoredLog()
    with suppress(CorruptData, KeyNotFound):
        return StoredLog(last, state_at(store, folder, listing, last))
    return StoredLog(last)


def state_at(store: Store, folder: str, listing: LogListing, version: int) -> LogState:
    """What a version says.

    Raises
    ------
    CorruptData
        If versions before it are missing or damaged.
    """
    start, replay = listing.start_of(version), LogReplay(folder)
    if start is None:
        raise CorruptData(f"Versions of the log {folder!r} before {version} are missing.")
    if start >= 0:
        key = checkpoint_key(folder, start)
        replay.apply_checkpoint(store.get(key), key)
    keys = [version_key(folder, n) for n in range(start + 1, version + 1)]
    for key, data in zip(keys, map_in_threads(store.get, keys, store=store), strict=True):
        replay.apply(data, key)
    return replay.at(version)


def _known_log(store: Store, folder: str) -> StoredLog:
    """The log as this process knows it, if its newest version is still that; else as it is stored."""
    known = _cache.get((store.identity, folder))
    if known is not None:
        state, head = known
        with suppress(KeyNotFound):
            (found,) = store.ranges(version_key(folder, state.version), [(0, _HEAD)])
            if bytes(found) == head:
                return StoredLog(state.version, state)
    return read_log(store, folder)


# --- what a version needs to know of files --------------------------------------------------------


def _files(store: Store, snapshot: Snapshot, table: str, positions: IntArray) -> list[NewFile]:
    """The files of some partitions, as a version adds them."""
    picked = pa.array(positions)
    files = snapshot.partitions.file_column(table).take(picked)
    values = partition_values(snapshot, picked)
    statistics = _statistics(store, snapshot, files)
    keys, sizes = files.to_pylist(), statistics.sizes.to_pylist()
    if None in sizes:  # files of other libraries
        listed = {e.key: e.size for e in store.list(f"{snapshot.uuid}/{table}/", recursive=True).entries}
        sizes = [listed.get(key) if size is None else size for key, size in zip(keys, sizes, strict=True)]
        unknown = [key for key, size in zip(keys, sizes, strict=True) if size is None]
        sizes_of = dict(zip(unknown, map_in_threads(lambda k: store.tail(k, 0)[1], unknown, store=store), strict=True))
        sizes = [sizes_of.get(key, size) for key, size in zip(keys, sizes, strict=True)]
    stats = stats_of(statistics, snapshot.schemas[table], snapshot.partition_keys)
    return [NewFile(*each) for each in zip(keys, values, sizes, stats, strict=True)]


def _statistics(store: Store, snapshot: Snapshot, files: pa.Array) -> FileStatistics:
    """Statistics of files, a row each; those of the last commits are inside the document."""
    names = file_names(files, snapshot.uuid)
    recent = concat_statistics(reference_of(snapshot.document.metadata).recent_statistics())
    if pc.all(pc.is_in(names, value_set=recent.files), min_count=0).as_py():
        return recent.of_files(names)
    return load_statistics(store, snapshot, None).of_files(names)


def check_cells(store: Store, snapshot: Snapshot, added: IntArray) -> None:
    """Refuse a dataset of a cube in which a newer file overrides cells of an older one.

    Only partitions with files at ``added`` are looked at: all others were looked at before.

    Raises
    ------
    InvalidRequest
        If there are such cells; the message says what helps.
    """
    cube = cube_columns(snapshot.document.metadata)
    if cube is None or len(snapshot.partitions) < 2 or not len(added):
        return
    numbers, is_new = snapshot.physical_partitions(cube.partitions), np.zeros(len(snapshot.partitions), dtype=bool)
    is_new[added] = True
    order = np.argsort(numbers, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)
    groups = [group for group in groups if len(group) > 1 and is_new[group].any()]
    if not groups:
        return
    columns = cube.cell_columns(snapshot.schema.names)
    inside = [c for c in columns if c not in snapshot.values.column_names]
    known = load_statistics(store, snapshot, inside).of_files(file_names(snapshot.files, snapshot.uuid))
    for column in inside:
        groups = [run for group in groups for run in _overlapping(known, snapshot.schema.field(column), group)]
    for group in (group for group in groups if is_new[group].any()):
        keys = np.concatenate(pack(_cells(store, snapshot, columns, group), columns))
        if overridden := len(keys) - len(np.unique(keys)):
            label = snapshot.partitions.labels[int(group[0])].as_py().rpartition("/")[0]
            raise InvalidRequest(
                f"Dataset {snapshot.uuid!r} cannot be published as a Delta table: newer files override {overridden:,} "
                f"cells of older ones{f', e.g. of the partition {label!r}' if label else ''}, and readers of Delta would "
                "see both rows. Call compact_cube first, or compact_dataset for this dataset alone."
            )


def _overlapping(known: FileStatistics, field: pa.Field, group: IntArray) -> list[IntArray]:
    """The files of a group in runs whose ranges of a column overlap; unknown ones overlap all."""
    picked = pa.array(group)
    bounds = known.bounds(field.name, field.type)
    ends = pa.concat_arrays([bounds.minimum.take(picked), bounds.maximum.take(picked)])
    ranks = pc.rank(ends, tiebreaker="dense").to_numpy().astype(np.int64)
    is_null = ends.is_null().to_numpy(zero_copy_only=False)
    low, high = ranks[: len(group)], ranks[len(group) :]
    low = np.where(is_null[: len(group)], 0, low)
    high = np.where(is_null[len(group) :], len(ranks) + 1, high)
    order = np.argsort(low, kind="stable")
    reach = np.maximum.accumulate(high[order])
    runs = np.split(group[order], np.flatnonzero(low[order][1:] > reach[:-1]) + 1)
    return [np.sort(run) for run in runs if len(run) > 1]


def _cells(store: Store, snapshot: Snapshot, columns: tuple[str, ...], group: IntArray) -> list[pa.Table]:
    request = FileRequest(snapshot.uuid, snapshot.schema, columns)

    def read(position: int) -> pa.Table:
        constants = {c: snapshot.values.column(c)[position].as_py() for c in snapshot.values.column_names}
        return read_rows(store, snapshot.files[position].as_py(), request, constants)

    return list(map_in_threads(read, group.tolist(), store=store))


# --- publishing a snapshot ------------------------------------------------------------------------


def publish_snapshot(store: Store, snapshot: Snapshot, *, trusts_cache: bool = False) -> PublishedDelta:
    """Make the newest state the newest version of each table's log; errors as of `publish_delta`.

    ``snapshot`` is a state of the dataset, perhaps not the newest any more. With ``trusts_cache``
    the store is not asked whether a version that this process knows is still there.
    """
    check_store_can_commit(store)
    headers = {table: header_of(snapshot, table) for table in snapshot.tables}  # nothing is written if one is refused
    done = [_publish_table(store, snapshot, table, trusts_cache) for table in headers]
    versions = {table: each.version for table, each in zip(headers, done, strict=True)}
    sums = (sum(getattr(each, name) for each in done) for name in ("added", "removed", "bytes"))
    commits = {each.commit for each in done}
    return PublishedDelta(max(versions.values()), commits.pop() if len(commits) == 1 else None, *sums, versions)


def _publish_table(store: Store, snapshot: Snapshot, table: str, trusts_cache: bool) -> PublishedDelta:
    folder = log_folder(snapshot.uuid, table)
    known = _cache.get((store.identity, folder)) if trusts_cache else None
    if known is not None and _is_at(known[0], snapshot, table):
        return PublishedDelta(known[0].version, snapshot.commit, 0, 0, 0)
    for attempt in count(1):
        log = _known_log(store, folder)
        is_published = log.state is not None and _is_at(log.state, snapshot, table)
        # A state that came before that of the log would be a step back. One that is read after the
        # log cannot be.
        if log.last >= 0 and not is_published and not _follows(snapshot, log):
            snapshot = load_snapshot(store, snapshot.uuid)
            is_published = log.state is not None and _is_at(log.state, snapshot, table)
        if is_published:
            return PublishedDelta(log.last, snapshot.commit, 0, 0, 0)
        try:
            return put_version(store, snapshot, table, log)
        except VersionMismatch as error:
            _cache.discard((store.identity, folder))
            if attempt > current_options().commit_retries:
                raise CommitConflict(
                    f"Dataset {snapshot.uuid!r} was published by others {attempt} times while its commit "
                    f"{snapshot.commit} was to be published. The next publication catches up."
                ) from error
            time.sleep(random.uniform(0, min(_LONGEST_PAUSE, 0.01 * 2**attempt)))  # noqa: S311 - no secret
    raise AssertionError


def _follows(snapshot: Snapshot, log: StoredLog) -> bool:
    return log.state is not None and log.state.state in [commit.id for commit in snapshot.chain]


def _is_at(state: LogState, snapshot: Snapshot, table: str) -> bool:
    return state.state == state_id(snapshot) and state.header == header_of(snapshot, table)


def put_version(store: Store, snapshot: Snapshot, table: str, log: StoredLog, *, anew: bool = False) -> PublishedDelta:
    """Put the next version of a log, which shows this state.

    If the log cannot be read, or ``anew``, the version says everything, and those before are
    removed.

    Raises
    ------
    VersionMismatch
        If another publisher was faster.
    """
    folder, now, version = log_folder(snapshot.uuid, table), time.time_ns() // 1_000_000, log.last + 1
    files, last = snapshot.partitions.file_column(table), None if anew else log.state
    reused = _reused(snapshot, files)
    change = change_since(last, files, reused)
    check_cells(store, snapshot, change_since(log.state, files, reused).added)
    added = _files(store, snapshot, table, change.added)
    known = log.state
    state = LogState(
        version,
        state_id(snapshot),
        str(uuid_module.uuid4()) if known is None else known.table_id,
        now if known is None else known.created,
        header_of(snapshot, table),
        files.drop_null(),
    )
    name = snapshot.uuid if len(snapshot.tables) == 1 else f"{snapshot.uuid}/{table}"
    data = encode_version(state, name, last, added, change.removed, folder, now)
    _put_on_condition(store, version_key(folder, version), data, state)
    _cache.put((store.identity, folder), (state, data[:_HEAD]))
    written, begins_anew = len(data), last is None and version > 0
    if begins_anew or (version and version % CHECKPOINT_EVERY == 0):
        whole = added if last is None else _files(store, snapshot, table, change_since(None, files, files[:0]).added)
        written += _put_checkpoint(store, state, name, whole, folder, now)
    if begins_anew:
        remove_versions(store, folder, version)
    return PublishedDelta(version, snapshot.commit, len(added), len(change.removed), written)


def _reused(snapshot: Snapshot, files: pa.Array) -> pa.Array:
    """Keys under which another library may have put another file, if one has committed."""
    if not snapshot.has_foreign_commit:
        return files[:0]
    return files.filter(file_names(files, snapshot.uuid).is_null())


def _put_on_condition(store: Store, key: str, data: bytes, state: LogState) -> None:
    if not store.capabilities.conditional_put:
        store.put(key, data)
        return
    try:
        store.put_if(key, data, None)
    except Exception:
        # It may have been put although its answer was lost.
        with suppress(Exception):
            found = store.get(key)
            if found == data or is_version_of(found, state):
                return
        raise


def _put_checkpoint(store: Store, state: LogState, name: str, files: Sequence[NewFile], folder: str, now: int) -> int:
    data = encode_checkpoint(state, name, files, folder, now)
    store.put(checkpoint_key(folder, state.version), data)
    last = encode_last_checkpoint(state.version, len(files))
    store.put(last_checkpoint_key(folder), last)
    return len(data) + len(last)


def remove_versions(store: Store, folder: str, before: int) -> list[str]:
    """Remove all objects of versions before one that has a checkpoint; return their keys."""
    keys, _ = list_log(store, folder)
    kept = {last_checkpoint_key(folder), version_key(folder, before), checkpoint_key(folder, before)}
    old = [key for key in keys if key not in kept and key < version_key(folder, before)]
    list(map_in_threads(store.delete, old, store=store))
    return old


# --- the record in the document -------------------------------------------------------------------


def put_record(store: Store, uuid: str, always: bool | None) -> Snapshot:
    """Record in the document that the dataset is published, and whether always; None: forget it.

    The document changes, and the state does not: this is no commit.

    Raises
    ------
    CommitConflict
        If other writers came first more often than ``options(commit_retries=...)``.
    """
    for attempt in count(1):
        snapshot = load_snapshot(store, uuid)
        document = with_record(snapshot.document, always)
        if document.metadata == snapshot.document.metadata:
            return snapshot
        # A document that belongs to a write which is not seen yet is for its writer.
        with suppress(VersionMismatch):
            if snapshot.undecided is None:
                put_document(store, snapshot.key, render_document(document, msgpack=snapshot.is_msgpack), snapshot.token)
                return load_snapshot(store, uuid)
        if attempt > current_options().commit_retries:
            raise CommitConflict(f"Dataset {uuid!r} was changed {attempt} times meanwhile. Call it again.")
        time.sleep(random.uniform(0, min(_LONGEST_PAUSE, 0.01 * 2**attempt)))  # noqa: S311 - no secret
    raise AssertionError


def remove_log(store: Store, snapshot: Snapshot) -> None:
    """Remove the logs of all tables."""
    for table in snapshot.tables:
        folder = log_folder(snapshot.uuid, table)
        _cache.discard((store.identity, folder))
        keys, _ = list_log(store, folder)
        # First what leads readers into the middle of the log.
        first = [key for key in keys if key == last_checkpoint_key(folder)]
        list(map_in_threads(store.delete, first, store=store))
        list(map_in_threads(store.delete, [key for key in keys if key not in first], store=store))


# --- after a commit -------------------------------------------------------------------------------


def publish_after_commit(store: Store, landed: Snapshot) -> None:
    """Publish a commit that has landed, if that is wanted. Whatever fails is a warning."""
    if not is_always_published(landed.document):
        return
    try:
        publish_snapshot(store, replace(landed, result=None), trusts_cache=True)
    except Exception as error:  # noqa: BLE001 - the commit has landed
        warnings.warn(
            f"Dataset {landed.uuid!r}: the commit {landed.commit} has landed, but its Delta table stays at an older "
            f"version, until a later commit or publish_delta succeeds. Reason: {error}",
            PublicationWarning,
            stacklevel=3,
        )
