"""Publishing a dataset as a Delta table: versions of the log are put on condition.

In order:

- the log in the store
- what a version needs to know of files: bytes, statistics, cells that are there twice
- publishing a snapshot
- the record in the document
- after a commit
"""

from __future__ import annotations

import time
import uuid as uuid_module
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from msgspec import Struct
from msgspec.structs import replace

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
    key_of,
    last_checkpoint_key,
    log_folder,
    names_some,
    partition_values,
    path_of,
    state_id,
    stats_of,
    version_key,
    with_record,
    with_smaller_scale,
)
from kartothek_cube.core.io.reader import FileRequest, read_rows
from kartothek_cube.core.metadata.document import DELTA_KEY, Document, render_document
from kartothek_cube.core.metadata.naming import OWN_FOLDERS
from kartothek_cube.core.metadata.snapshot import Snapshot, cube_columns
from kartothek_cube.core.metadata.statistics import (
    FileStatistics,
    StatisticsReference,
    concat_statistics,
    file_names,
    reference_of,
)
from kartothek_cube.core.runtime.executor import LruCache, map_in_threads, pause
from kartothek_cube.core.runtime.options import current_options
from kartothek_cube.core.runtime.telemetry import warn_at_end
from kartothek_cube.core.snapshots.documents import put_document
from kartothek_cube.core.snapshots.loader import load_snapshot, remember
from kartothek_cube.core.snapshots.statistics import load_statistics
from kartothek_cube.core.stores.contract import Store, VersionMismatch, check_store_can_commit
from kartothek_cube.core.stores.uploads import without_uploads
from kartothek_cube.errors import (
    CommitConflict,
    CorruptData,
    InvalidRequest,
    KeyNotFound,
    PublicationWarning,
    Unsupported,
)

T = TypeVar("T")

# Bytes of a version that tell whether it is the one that this process knows.
_HEAD = 512
_LONGEST_PAUSE = 0.2  # seconds
_CACHE_SIZE = 64


# --- the log in the store -------------------------------------------------------------------------


class StoredLog(Struct, frozen=True):
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
        return StoredLog(last, replay_to(store, folder, listing, last).at(last))
    return StoredLog(last)


def replay_to(store: Store, folder: str, listing: LogListing, version: int) -> LogReplay:
    """The actions up to a version.

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
    return replay


def _known_log(store: Store, folder: str) -> StoredLog:
    """The log as this process knows it, if its newest version is unchanged; else as stored."""
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
    if not len(positions):
        return []
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
    for text in reversed(reference_of(snapshot.document.metadata).recent):
        # Mostly those of the last commit are enough.
        recent = concat_statistics(StatisticsReference((), (text,)).recent_statistics())
        if pc.all(pc.is_in(names, value_set=recent.files), min_count=0).as_py():
            return recent.of_files(names)
    return load_statistics(store, snapshot, None).of_files(names)


class OverriddenCells(InvalidRequest):
    """Newer files of a dataset of a cube override cells of older ones."""


def suspects(store: Store, snapshot: Snapshot, added: IntArray) -> list[IntArray]:
    """Groups of files of a dataset of a cube that may have the same cells, by their statistics.

    Each has one of the partitions at ``added``: all others were looked at before.
    """
    cube = cube_columns(snapshot.document.metadata)
    if cube is None or len(snapshot.partitions) < 2 or not len(added):
        return []
    numbers, is_new = snapshot.physical_partitions(cube.partitions), np.zeros(len(snapshot.partitions), dtype=bool)
    is_new[added] = True
    order = np.argsort(numbers, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)
    groups = [group for group in groups if len(group) > 1 and is_new[group].any()]
    if not groups:
        return []
    inside = [c for c in cube.cell_columns(snapshot.schema.names) if c not in snapshot.values.column_names]
    known = load_statistics(store, snapshot, inside).of_files(file_names(snapshot.files, snapshot.uuid))
    for column in inside:
        groups = [run for group in groups for run in _overlapping(known, snapshot.schema.field(column), group)]
    return [group for group in groups if is_new[group].any()]


def check_cells(store: Store, snapshot: Snapshot, added: IntArray) -> None:
    """Refuse a dataset of a cube in which a newer file overrides cells of an older one.

    Raises
    ------
    OverriddenCells
        If there are such cells in the `suspects`; the message says what helps.
    """
    cube = cube_columns(snapshot.document.metadata)
    columns = () if cube is None else cube.cell_columns(snapshot.schema.names)
    for group in suspects(store, snapshot, added):
        keys = np.concatenate(pack(_cells(store, snapshot, columns, group), columns))
        if overridden := len(keys) - len(np.unique(keys)):
            label = snapshot.partitions.labels[int(group[0])].as_py().rpartition("/")[0]
            example = f", e.g. of the partition {label!r}" if label else ""
            raise OverriddenCells(
                f"Dataset {snapshot.uuid!r} cannot be published as a Delta table: newer files override {overridden:,} "
                f"cells of older ones{example}, and readers of Delta would "
                "see both rows. Call compact_cube first, or compact_dataset for this dataset alone."
            )


def check_scales(store: Store, snapshot: Snapshot, table: str, last: LogState | None, added: IntArray) -> None:
    """Refuse files with decimals of a smaller scale, which some readers do not convert.

    Raises
    ------
    Unsupported
        If statistics tell of such a file among those at ``added``; after a change of types, among
        all.
    """
    schema, files = snapshot.schemas[table], snapshot.partitions.file_column(table)
    decimals = [f for f in schema if pt.is_decimal(f.type) and f.name not in snapshot.partition_keys]
    if last is not None and last.header == header_of(snapshot, table):
        files = files.take(pa.array(added))
    files = files.drop_null()
    if not decimals or not len(files):
        return
    known = _statistics(store, snapshot, files)
    for column in decimals:
        old = files.filter(with_smaller_scale(known, column))
        if len(old):
            raise Unsupported(
                f"Dataset {snapshot.uuid!r} cannot be published as a Delta table: column {column.name!r} is "
                f"{column.type}, and older files have fewer digits after the point, e.g. {old[0].as_py()!r}, which "
                f"some readers of Delta refuse. Write them anew: compact_dataset({snapshot.uuid!r}, store, "
                "rewrite=True)."
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
    added, removed, written = (sum(getattr(each, name) for each in done) for name in ("added", "removed", "bytes"))
    commits = {each.commit for each in done}
    commit = commits.pop() if len(commits) == 1 else None
    return PublishedDelta(max(versions.values()), commit, added, removed, written, versions)


def _publish_table(store: Store, snapshot: Snapshot, table: str, trusts_cache: bool) -> PublishedDelta:
    folder = log_folder(snapshot.uuid, table)
    known = _cache.get((store.identity, folder)) if trusts_cache else None
    if known is not None and _is_at(known[0], snapshot, table):
        return PublishedDelta(known[0].version, snapshot.commit, 0, 0, 0)

    def attempt() -> PublishedDelta:
        nonlocal snapshot
        log = _known_log(store, folder)
        is_published = log.state is not None and _is_at(log.state, snapshot, table)
        # A state that came before that of the log would be a step back. One that is read after the
        # log cannot be.
        if log.last >= 0 and not is_published and not _follows(snapshot, log):
            snapshot = load_snapshot(store, snapshot.uuid)
            is_published = log.state is not None and _is_at(log.state, snapshot, table)
        replaced = files_of_other_sizes(store, snapshot, table, log) if log.state and not trusts_cache else ()
        if is_published and not replaced:
            return PublishedDelta(log.last, snapshot.commit, 0, 0, 0)
        try:
            return put_version(store, snapshot, table, log, replaced)
        except VersionMismatch:
            _cache.discard((store.identity, folder))
            raise

    return _repeated(snapshot.uuid, attempt)


def _repeated(uuid: str, attempt: Callable[[], T]) -> T:
    """Repeat what another writer has overtaken."""
    for number in count(1):
        try:
            return attempt()
        except VersionMismatch as error:
            if number > current_options().commit_retries:
                raise CommitConflict(
                    f"Dataset {uuid!r} was changed or published by others {number} times meanwhile. Nothing of it is "
                    "lost: call it again."
                ) from error
            pause(min(_LONGEST_PAUSE, 0.01 * 2**number))
    raise AssertionError


def _follows(snapshot: Snapshot, log: StoredLog) -> bool:
    return log.state is not None and log.state.state in [commit.id for commit in snapshot.chain]


def _is_at(state: LogState, snapshot: Snapshot, table: str) -> bool:
    return state.state == state_id(snapshot) and state.header == header_of(snapshot, table)


def put_version(
    store: Store, snapshot: Snapshot, table: str, log: StoredLog, replaced: Sequence[str] = ()
) -> PublishedDelta:
    """Put the next version of a log, which shows this state, and adds files ``replaced`` again.

    If the log cannot be read, the version says everything, and those before are removed.

    Raises
    ------
    VersionMismatch
        If another publisher was faster.
    """
    folder, now, version = log_folder(snapshot.uuid, table), time.time_ns() // 1_000_000, log.last + 1
    files, last = snapshot.partitions.file_column(table), log.state
    again = pa.concat_arrays([_reused(snapshot, files, log), pa.array(replaced, type=pa.string())])
    change = change_since(last, files, again)
    check_cells(store, snapshot, change.added)
    check_scales(store, snapshot, table, last, change.added)
    added = _files(store, snapshot, table, change.added)
    state = LogState(
        version,
        state_id(snapshot),
        str(uuid_module.uuid4()) if last is None else last.table_id,
        snapshot.uuid if len(snapshot.tables) == 1 else f"{snapshot.uuid}/{table}",
        now if last is None else last.created,
        header_of(snapshot, table),
        files.drop_null(),
    )
    actions = [file.action(folder, now) for file in added]
    written = _put_actions(store, folder, state, encode_version(state, last, actions, change.removed, folder, now))
    begins_anew = last is None and version > 0
    if begins_anew or (version and version % CHECKPOINT_EVERY == 0):
        if last is not None:
            whole = _files(store, snapshot, table, change_since(None, files, files[:0]).added)
            actions = [file.action(folder, now) for file in whole]
        written += _put_checkpoint(store, folder, state, actions, now)
    if begins_anew:
        remove_versions(store, folder, version)
    return PublishedDelta(version, snapshot.commit, len(added), len(change.removed), written)


def _reused(snapshot: Snapshot, files: pa.Array, log: StoredLog) -> pa.Array:
    """Keys under which another library may have put another file, if one has committed since."""
    # After a commit of another library a new chain begins, which the log's commit is not in.
    if not snapshot.has_foreign_commit and _follows(snapshot, log):
        return files[:0]
    return files.filter(file_names(files, snapshot.uuid).is_null())


def files_of_other_sizes(store: Store, snapshot: Snapshot, table: str, log: StoredLog) -> list[str]:
    """Keys of a log that have another size now, as other libraries may use a name again."""
    assert log.state is not None
    if not file_names(log.state.files, snapshot.uuid).null_count:
        return []
    folder = log_folder(snapshot.uuid, table)
    listing, entries = list_log(store, folder)[1], store.list(f"{snapshot.uuid}/{table}/", recursive=True).entries
    sizes = {entry.key: entry.size for entry in entries}
    adds = list[dict[str, Any]]()
    with suppress(CorruptData, KeyNotFound):
        adds = replay_to(store, folder, listing, log.last).actions()
    known = {key_of(add["path"], folder): add["size"] for add in adds}
    return [key for key, size in known.items() if sizes.get(key) not in (None, size)]


def _put_actions(store: Store, folder: str, state: LogState, data: bytes) -> int:
    """Put the actions of a version unless there is one; return their bytes."""
    key = version_key(folder, state.version)
    try:
        if store.capabilities.conditional_put:
            store.put_if(key, data, None)
        else:
            store.put(key, data)
    except Exception:
        # It may have been put although its answer was lost.
        found = b""
        with suppress(Exception):
            found = store.get(key)
        if found != data:
            raise
    _cache.put((store.identity, folder), (state, data[:_HEAD]))
    return len(data)


def _put_checkpoint(store: Store, folder: str, state: LogState, adds: Sequence[Mapping[str, Any]], now: int) -> int:
    data = encode_checkpoint(state, adds, now)
    store.put(checkpoint_key(folder, state.version), data)
    last = encode_last_checkpoint(state.version, len(adds))
    store.put(last_checkpoint_key(folder), last)
    return len(data) + len(last)


def remove_versions(store: Store, folder: str, before: int) -> list[str]:
    """Remove all objects of versions before one that has a checkpoint; return their keys."""
    keys, _ = list_log(store, folder)
    kept = {last_checkpoint_key(folder), version_key(folder, before), checkpoint_key(folder, before)}
    old = [key for key in keys if key not in kept and key < version_key(folder, before)]
    store.delete_many(old)
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

    def attempt() -> Snapshot:
        snapshot = load_snapshot(store, uuid)
        document = with_record(snapshot.document, always)
        if document.metadata == snapshot.document.metadata:
            return snapshot
        # A document that belongs to a write which is not seen yet is for its writer.
        if snapshot.undecided is not None:
            raise store.mismatch(snapshot.key, snapshot.token)
        data = render_document(document, msgpack=snapshot.is_msgpack)
        token = put_document(store, snapshot.key, data, snapshot.token)
        return remember(store, replace(snapshot, document=document, token=token))

    return _repeated(uuid, attempt)


def remove_log(store: Store, snapshot: Snapshot) -> None:
    """Remove the logs of all tables, former ones included."""
    remove_former_logs(store, snapshot)
    for table in snapshot.tables:
        folder = log_folder(snapshot.uuid, table)
        _remove_keys(store, folder, list_log(store, folder)[0])


def remove_former_logs(store: Store, snapshot: Snapshot) -> None:
    """Remove the logs of tables that the dataset has no more."""
    folders = [prefix.split("/")[1] for prefix in store.list(f"{snapshot.uuid}/").prefixes]
    former = sorted({*folders}.difference(snapshot.tables, OWN_FOLDERS))
    for folder in (log_folder(snapshot.uuid, table) for table in former):
        if keys := list_log(store, folder)[0]:
            _remove_keys(store, folder, keys)


def living_logs(snapshots: Iterable[Snapshot]) -> frozenset[str]:
    """The folders of the logs of datasets that are published; all others are garbage."""
    published = [s for s in snapshots if DELTA_KEY in s.document.metadata]
    return frozenset(log_folder(s.uuid, table) for s in published for table in s.tables)


def check_publishable(store: Store, snapshot: Snapshot, *, always: bool) -> None:
    """Raise what publishing a snapshot would raise; with ``always`` not what only delays it."""
    for table in snapshot.tables:
        header_of(snapshot, table)
        log = read_log(store, log_folder(snapshot.uuid, table))
        files = snapshot.partitions.file_column(table)
        added = change_since(log.state, files, _reused(snapshot, files, log)).added
        partition_values(snapshot, pa.array(added))
        check_scales(store, snapshot, table, log.state, added)
        if log.state is None or not always:
            check_cells(store, snapshot, added)


def publish_newest(store: Store, uuid: str, *, always: bool) -> PublishedDelta:
    """Publish the newest state, and record that; errors as of `publish_delta`."""
    check_store_can_commit(store)
    snapshot = load_snapshot(store, uuid)
    keeps = always or is_always_published(snapshot.document)
    try:
        published = publish_snapshot(store, snapshot)
    except OverriddenCells as error:
        stays = {table: read_log(store, log_folder(uuid, table)).last for table in snapshot.tables}
        if not always or -1 in stays.values():
            raise
        warn_at_end(PublicationWarning(f"{error} Until then the Delta table stays at its version."))
        published = PublishedDelta(max(stays.values()), None, 0, 0, 0, stays)
    after = put_record(store, uuid, keeps)
    remove_former_logs(store, after)
    if keeps and state_id(after) != state_id(snapshot):  # a commit in between did not know
        publish_after_commit(store, after)
    return published


def unpublish(store: Store, uuid: str) -> None:
    """Remove the logs of a dataset, and the record; errors as of `unpublish_delta`."""
    check_store_can_commit(store)
    remove_log(store, put_record(store, uuid, None))


def publish_as(store: Store, document: Document, uuid: str) -> None:
    """Publish a dataset as another one was, whose document is given; what fails is a warning."""
    _publish_or_warn(store, put_record(store, uuid, is_always_published(document)))


def describe_publication(store: Store, snapshot: Snapshot) -> str | None:
    """A line about the Delta table of a dataset, None if it is not published."""
    if DELTA_KEY not in snapshot.document.metadata:
        return None
    lines = []
    for table in snapshot.tables:
        log = read_log(store, log_folder(snapshot.uuid, table))
        which = f" of table {table!r}" if len(snapshot.tables) > 1 else ""
        if log.state is None:
            lines.append(f"no version{which} that can be read; publish_delta mends it")
            continue
        is_newest = log.state.state == state_id(snapshot)
        lines.append(
            f"version {log.last}{which}, {'the newest state' if is_newest else f'of commit {log.state.state}'}"
        )
        files = snapshot.partitions.file_column(table)
        if not is_newest and len(suspects(store, snapshot, change_since(log.state, files, files[:0]).added)):
            lines.append("later ones may override cells, and wait for compact_cube")
    return "; ".join([*lines, *(["after each commit"] if is_always_published(snapshot.document) else [])])


# --- upkeep ---------------------------------------------------------------------------------------


def published_files(store: Store, folders: Iterable[str]) -> frozenset[str]:
    """The files that the newest readable versions of some logs name: readers of Delta need them."""

    def newest(folder: str) -> LogState | None:
        return _listed_again(store, folder, lambda keys, listing: _newest_readable(store, folder, listing))

    found = map_in_threads(newest, list(folders), store=store)
    return frozenset(key for state in found if state is not None for key in state.files.to_pylist())


def _listed_again(store: Store, folder: str, attempt: Callable[[list[str], LogListing], T]) -> T:
    """Attempt something with the keys of a log; again if others remove some of them meanwhile."""

    def once() -> T:
        try:
            return attempt(*list_log(store, folder))
        except KeyNotFound as error:
            raise store.mismatch(folder, None) from error

    return _repeated(folder.partition("/")[0], once)


def _newest_readable(store: Store, folder: str, listing: LogListing) -> LogState | None:
    for version in reversed(listing.readable):
        with suppress(CorruptData):
            return replay_to(store, folder, listing, version).at(version)
    return None


def forget_files(store: Store, folder: str, gone: Collection[str]) -> None:
    """Remove the versions that name files which are to be removed.

    The first version after them gets a checkpoint. If there is none, another one repeats the
    newest, so that no version has the path of a removed file. Versions after damaged ones go, too;
    if none is left, the next publication begins anew.
    """
    paths = {path_of(key, folder) for key in gone}

    def forget(keys: list[str], listing: LogListing) -> None:
        newest = _newest_readable(store, folder, listing)
        if listing.last < 0 or newest is None or newest.version < listing.last:
            _remove_damaged(store, folder, keys, newest)
            listing = list_log(store, folder)[1]
        numbers = listing.readable
        data = map_in_threads(lambda n: store.get(version_key(folder, n)), numbers, store=store)
        last = max((n for n, each in zip(numbers, data, strict=True) if names_some(each, paths)), default=None)
        if last is not None:
            repeats = last == listing.last
            _begin_with(store, folder, listing, last if repeats else last + 1, repeats=repeats)

    _listed_again(store, folder, forget)


def _remove_damaged(store: Store, folder: str, keys: list[str], newest: LogState | None) -> None:
    """Remove what comes after the newest version that can be read."""
    if list_log(store, folder)[0] != keys:  # not damaged, but being changed
        raise store.mismatch(folder, None)
    kept = LogListing.of(keys).until(-1 if newest is None else newest.version)
    numbered = {version_key(folder, n) for n in kept.versions} | {checkpoint_key(folder, n) for n in kept.checkpoints}
    _remove_keys(store, folder, [key for key in keys if key not in numbered])


def _remove_keys(store: Store, folder: str, keys: Sequence[str]) -> None:
    """Remove objects of a log, the newest first."""
    _cache.discard((store.identity, folder))
    # First what leads readers into the middle of the log.
    first = [key for key in keys if key == last_checkpoint_key(folder)]
    store.delete_many(first)
    # Not by one request, which has no order.
    list(map_in_threads(store.delete, sorted((k for k in keys if k not in first), reverse=True), store=store))


def _begin_with(store: Store, folder: str, listing: LogListing, version: int, *, repeats: bool) -> None:
    """Remove the versions before one; if it ``repeats``, itself after another one like it."""
    replay, now = replay_to(store, folder, listing, version), time.time_ns() // 1_000_000
    state, adds = replay.at(version), replay.actions()
    if repeats:
        state = replace(state, version=version + 1)
        _put_actions(store, folder, state, encode_version(state, None, adds, pa.array([], pa.string()), folder, now))
    _put_checkpoint(store, folder, state, adds, now)
    remove_versions(store, folder, state.version)


def _keep_newest(store: Store, folder: str) -> None:
    _, listing = list_log(store, folder)
    if len(listing.versions) > 1:
        _begin_with(store, folder, listing, listing.last, repeats=True)


def renew_logs(store: Store, snapshot: Snapshot) -> None:
    """Replace the logs by one version that shows this state, so that nothing of before is in them.

    If that is refused, or the record is gone, the logs are removed.
    """
    remove_former_logs(store, snapshot)
    folders = [log_folder(snapshot.uuid, table) for table in snapshot.tables]
    if not any(list_log(store, folder)[0] for folder in folders):
        return
    try:
        if DELTA_KEY not in snapshot.document.metadata:
            remove_log(store, snapshot)
            return
        publish_snapshot(store, snapshot)
        for folder in folders:
            _repeated(snapshot.uuid, partial(_keep_newest, store, folder))
    except (OverriddenCells, Unsupported):
        remove_log(store, snapshot)


# --- after a commit -------------------------------------------------------------------------------


def publish_after_commit(store: Store, landed: Snapshot) -> None:
    """Publish a commit that has landed, if that is wanted. Whatever fails is a warning."""
    if is_always_published(landed.document):
        _publish_or_warn(store, landed)


def _publish_or_warn(store: Store, landed: Snapshot) -> None:
    try:
        # Objects of a log come in their order, and no error later than the warning.
        publish_snapshot(without_uploads(store), landed, trusts_cache=True)
    except Exception as error:
        warn_at_end(
            PublicationWarning(
                f"Dataset {landed.uuid!r}: the commit {landed.commit} has landed, but its Delta table stays at an "
                f"older version, until a later commit or publish_delta succeeds. Reason: {error}"
            )
        )
