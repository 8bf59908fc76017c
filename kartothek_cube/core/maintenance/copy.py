"""Copying and renaming a dataset: the plan, which computes keys from ids, and the run, files first and document last."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from kartothek_cube.core.commit.commit import check_store_can_commit
from kartothek_cube.core.io.file_format import check_named_key, file_suffix
from kartothek_cube.core.maintenance.convert import lock_for_move
from kartothek_cube.core.maintenance.delete import delete_dataset, is_own_key
from kartothek_cube.core.metadata.commit_log import (
    COMMITS_KEY,
    MOVING_KEY,
    SCHEMA_KEY,
    Commit,
    chain_of,
    extend_chain,
    fingerprint,
    stored_chain,
)
from kartothek_cube.core.metadata.document import Document, render_document
from kartothek_cube.core.metadata.history_entry import encode_entry, entry_of, history_key
from kartothek_cube.core.metadata.naming import check_uuid, document_key, index_key, is_data_key, new_id, schema_key
from kartothek_cube.core.metadata.partitions import PartitionColumns, empty_partitions
from kartothek_cube.core.metadata.schema_file import common_metadata_bytes, embedded_schemas
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.runtime.executor import THREADS, Executor, map_files
from kartothek_cube.core.runtime.progress import Phase
from kartothek_cube.core.runtime.telemetry import record
from kartothek_cube.core.snapshots.document_store import (
    StoredDocument,
    document_keys,
    find_document,
    find_documents,
    put_document,
)
from kartothek_cube.core.snapshots.loader import load_snapshot, snapshot_of
from kartothek_cube.core.stores.contract import Store, Version, VersionMismatch
from kartothek_cube.errors import AlreadyExists, CommitConflict, CorruptDocument, InvalidInput, KeyNotFound

__all__ = [
    "CopyPlan",
    "PreparedCopy",
    "copy_dataset",
    "copy_files",
    "is_nearly_renamed",
    "plan_copy",
    "prepare_copy",
    "publish_copy",
    "rename_dataset",
    "withdraw_copy",
]

_BLOCK = 8 * 2**20


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """Which file becomes which (source key → key of the copy), and the document that names the copies.

    ``commit`` is the id of the only commit of the copy; None for a dataset of a library that keeps
    no chain of commits.
    """

    files: Mapping[str, str]
    document: Document
    commit: str | None


def plan_copy(snapshot: Snapshot, uuid: str, taken: frozenset[str], now: datetime, *, embed: bool) -> CopyPlan:
    """The copy of a snapshot under another uuid.

    Parameters
    ----------
    snapshot : Snapshot
        What is copied.
    uuid : str
        The uuid of the copy.
    taken : frozenset of str
        Keys that must not be used.
    now : datetime
        For new keys of index files that lie outside of their dataset (UTC, without zone).
    embed : bool
        Whether the document carries the schema, with a chain of commits that begins here.
    """
    used = {*taken}
    files = {key: _claim(_data_key(key, snapshot.uuid, uuid, table), used) for table, key in _files_of(snapshot)}
    for column, key in snapshot.document.indices.items():
        if isinstance(key, str):
            files[key] = _claim(_moved(key, snapshot.uuid, uuid) or index_key(uuid, column, now), used)
    partitions = _renamed(snapshot.document.partitions, files)
    indices = {column: files[key] if isinstance(key, str) else key for column, key in snapshot.document.indices.items()}
    commit = new_id() if embed else None
    metadata = _metadata(snapshot, partitions, commit)
    return CopyPlan(files, Document(uuid, metadata, snapshot.document.partition_keys, indices, partitions), commit)


def _files_of(snapshot: Snapshot) -> list[tuple[str, str]]:
    pairs = [
        (table, key)
        for table, column in snapshot.partitions.files.items()
        for key in column.to_pylist()
        if key is not None
    ]
    return list({key: (table, key) for table, key in pairs}.values())


def _moved(key: str, old: str, new: str) -> str | None:
    return new + key[len(old) :] if is_own_key(key, old) else None


def _data_key(key: str, old: str, new: str, table: str) -> str:
    """Also a file that lies outside of its dataset comes into the copy; its path keeps what stands for partition values."""
    parts = key.split("/")
    return _moved(key, old, new) or "/".join([new, table, *(parts[2:] or parts[-1:])])


def _claim(key: str, used: set[str]) -> str:
    """The key, or where it is taken one like it."""
    if key in used:
        suffix = file_suffix(key)
        key = f"{key.removesuffix(suffix)}-{new_id()}{suffix}"
    used.add(key)
    return key


def _renamed(partitions: PartitionColumns | None, files: Mapping[str, str]) -> PartitionColumns | None:
    if partitions is None:
        return None
    columns = {
        t: pa.array([files.get(key) for key in column.to_pylist()], type=pa.string())
        for t, column in partitions.files.items()
    }
    return PartitionColumns(partitions.labels, columns)


def _metadata(snapshot: Snapshot, partitions: PartitionColumns | None, commit: str | None) -> dict[str, Any]:
    metadata = {k: v for k, v in snapshot.document.metadata.items() if k not in (COMMITS_KEY, SCHEMA_KEY, MOVING_KEY)}
    if commit is not None:
        metadata[COMMITS_KEY] = extend_chain(
            (), Commit(commit, None, fingerprint(partitions), datetime.now(UTC)), foreign=False
        )
        metadata[SCHEMA_KEY] = embedded_schemas(snapshot.schemas)
    return metadata


# --- the run --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Target:
    """Where the copy goes, and the documents that are there already."""

    store: Store
    uuid: str
    found: StoredDocument | None
    twin: StoredDocument | None


@dataclass(frozen=True, slots=True)
class PreparedCopy:
    """A copy that is planned and not there yet: of what, where to, which files, and the schema files by key."""

    source: Store
    snapshot: Snapshot
    target: _Target
    plan: CopyPlan
    schemas: Mapping[str, bytes]

    @property
    def replaces(self) -> bool:
        """Whether a dataset is there that the copy takes the place of."""
        return self.target.found is not None

    @property
    def key(self) -> str:
        """Key of the document.

        A dataset that is replaced keeps its encoding, so that one swap does it.
        """
        return (
            document_key(self.target.uuid, msgpack=self.snapshot.key.endswith(".zstd"))
            if self.target.found is None
            else self.target.found.key
        )

    @property
    def data(self) -> bytes:
        """The document."""
        return render_document(self.plan.document, msgpack=self.key.endswith(".zstd"))

    def is_included_in(self, stored: bytes) -> bool:
        """Whether the bytes of a document are this copy, or what later commits have made of it."""
        if stored == self.data or self.plan.commit is None:
            return stored == self.data
        return self.plan.commit in [c.id for c in stored_chain(stored, self.key)]


def copy_dataset(
    source: Store, uuid: str, target: Store, new_uuid: str, *, overwrite: bool = False, executor: Executor = THREADS
) -> Snapshot:
    """Copy the newest snapshot of a dataset and return the snapshot of the copy.

    Raises
    ------
    InvalidInput
        If source and target are the same place.
    DatasetNotFound
        If there is no source.
    AlreadyExists
        If there is a target and ``overwrite`` is False. Nothing was written.
    KeyNotFound
        If a file of the source has vanished; the copy does not exist then.
    CommitConflict
        If somebody changed the target in between.
    """
    if source == target and uuid == check_uuid(new_uuid):
        raise InvalidInput(
            f"Cannot copy to a dataset with the same UUID within the same store! Dataset {uuid!r}, store {source.name}."
        )
    check_store_can_commit(target)
    return _copy(source, load_snapshot(source, uuid), _look(target, new_uuid, overwrite=overwrite), executor)


def _look(store: Store, uuid: str, *, overwrite: bool) -> _Target:
    found = [stored for key in document_keys(uuid) if (stored := find_document(store, key)) is not None]
    if found and not overwrite:
        raise AlreadyExists(
            f"Dataset {uuid!r} exists in the store {store.name}. Give overwrite=True to replace it, or delete it first. "
            "If it is the result of a copy or rename that was interrupted, it is complete."
        )
    return _Target(store, uuid, found[0] if found else None, found[1] if len(found) > 1 else None)


def _copy(source: Store, snapshot: Snapshot, target: _Target, executor: Executor = THREADS) -> Snapshot:
    copy = _prepare(source, snapshot, target)
    copy_files([copy], executor)
    publish_copy(copy)
    return load_snapshot(target.store, target.uuid)


def prepare_copy(
    source: Store, snapshot: Snapshot, target: Store, uuid: str, *, overwrite: bool = False
) -> PreparedCopy:
    """Look at the target and plan the copy of a snapshot; errors as of `copy_dataset`.

    Nothing is written.
    """
    return _prepare(source, snapshot, _look(target, uuid, overwrite=overwrite))


def _prepare(source: Store, snapshot: Snapshot, target: _Target) -> PreparedCopy:
    indices = [key for key in snapshot.document.indices.values() if isinstance(key, str)]
    for key in (*(key for _, key in _files_of(snapshot)), *indices):
        check_named_key(key, snapshot.uuid)
    _refuse_strangers(snapshot, target)
    taken = _taken_keys(source, snapshot, target)
    # Two documents cannot be swapped together with their schema files: the one that is replaced
    # brings its schema itself.
    plan = plan_copy(
        snapshot,
        target.uuid,
        taken,
        datetime.now(UTC).replace(tzinfo=None),
        embed=target.found is not None or not snapshot.has_foreign_commit,
    )
    # Each schema file as it is where it rules, else what the document says.
    schemas = {
        schema_key(target.uuid, t): source.get(schema_key(snapshot.uuid, t))
        if snapshot.has_foreign_commit
        else common_metadata_bytes(snapshot.schemas[t])
        for t in snapshot.tables
    }
    return PreparedCopy(source, snapshot, target, plan, schemas)


def copy_files(copies: Sequence[PreparedCopy], executor: Executor = THREADS) -> None:
    """Bring the files of some copies to their places; without its document none of the copies is visible."""
    files = [(c.source, old, c.target.store, new, c.snapshot.uuid) for c in copies for old, new in c.plan.files.items()]
    target = copies[0].target.store if copies else None
    list(map_files(_copy_file, files, executor=executor, store=target, phase=Phase("copy", "files")))
    for copy in copies:
        if not copy.replaces:
            _put_schemas(copy.target.store, copy.schemas)


def publish_copy(copy: PreparedCopy) -> None:
    """Make a copy visible whose files are there."""
    _keep_replaced(copy)
    _publish(copy)
    with suppress(Exception):  # the copy has landed; whoever commits next looks at these copies of the schema again
        _put_schemas(copy.target.store, copy.schemas)


def withdraw_copy(copy: PreparedCopy) -> bool:
    """Make a copy invisible again unless somebody has committed onto it; whether nothing of it is visible. Its files stay."""
    found, _ = _get(copy.target.store, copy.key)
    if found == copy.data:
        copy.target.store.delete(copy.key)
        return True
    return found is None or not copy.is_included_in(found)


def _taken_keys(source: Store, snapshot: Snapshot, target: _Target) -> frozenset[str]:
    """Keys that somebody needs: the dataset that is replaced, or, inside one store, the source.

    Of a target without document nobody needs any.
    """
    named = frozenset(key for _, key in _files_of(snapshot)) if source == target.store else frozenset()
    if target.found is None:
        return named
    indices = (key for key in target.found.document.indices.values() if isinstance(key, str))
    return named.union(indices, target.store.list(f"{target.uuid}/", recursive=True).keys)


def _refuse_strangers(snapshot: Snapshot, target: _Target) -> None:
    """A dataset that lists no partitions has those that lie there: a copy of it needs a place of its own."""
    if snapshot.document.partitions is not None:
        return
    expected = {_data_key(key, snapshot.uuid, target.uuid, table) for table, key in _files_of(snapshot)}
    keys = target.store.list(f"{target.uuid}/", recursive=True).keys
    surplus = [k for k in keys if is_data_key(k) and k not in expected]
    if surplus or target.found is not None:
        found = repr(surplus[0]) if surplus else f"dataset {target.uuid!r}"
        raise AlreadyExists(
            f"Dataset {snapshot.uuid!r} lists no partitions, so every file below {target.uuid + '/'!r} would become one of its copy. "
            f"There is {found} in the store {target.store.name}; delete it first."
        )


def _put_schemas(store: Store, schemas: Mapping[str, bytes]) -> None:
    for key, data in schemas.items():
        found, token = _get(store, key)
        if found != data:
            with suppress(VersionMismatch):  # somebody has committed onto the copy, or creates the same dataset
                store.put_if(key, data, token)


def _get(store: Store, key: str) -> tuple[bytes | None, Version | None]:
    try:
        return store.get_versioned(key)
    except KeyNotFound:
        return None, None


def _publish(copy: PreparedCopy) -> None:
    target, key = copy.target, copy.key
    (other,) = {*document_keys(target.uuid)} - {key}
    if target.found is None and target.store.contains(other):
        raise _created_meanwhile(target)
    try:
        version = None if target.found is None else target.found.token
        put_document(target.store, key, copy.data, version, copy.is_included_in)
    except VersionMismatch as error:
        kind = AlreadyExists if target.found is None else CommitConflict
        raise kind(
            f"Dataset {target.uuid!r} was written by somebody else while it was being copied to: {error} Nothing of the copy is visible."
        ) from error
    if target.twin is not None:
        target.store.delete(target.twin.key)
    elif target.found is None and target.store.contains(other):
        # Whoever creates it in the other encoding looks, too: of two creators at most one stays.
        target.store.delete(key)
        raise _created_meanwhile(target)


def _keep_replaced(copy: PreparedCopy) -> None:
    """Let history name the files of a dataset that is replaced, so that they are as old as their replacement. It leads no further back."""
    target, commit = copy.target, copy.plan.commit
    if target.found is None or commit is None:
        return
    with suppress(CorruptDocument, KeyNotFound):  # what cannot be read needs no protection
        old = snapshot_of(target.store, target.found.document, target.found.key)
        new = copy.plan.document.partitions or empty_partitions()
        entry = entry_of(commit, datetime.now(UTC), old, new.labels, old.partitions.labels)
        target.store.put(history_key(target.uuid, commit), encode_entry(replace(entry, parent=None)))


def _created_meanwhile(target: _Target) -> AlreadyExists:
    return AlreadyExists(
        f"Dataset {target.uuid!r} was created by somebody else while it was being copied to. Nothing of the copy is visible."
    )


def _copy_file(file: tuple[Store, str, Store, str, str]) -> None:
    source, key, target, new_key, dataset = file
    try:
        record(files_written=1, bytes_written=_copied(source, key, target, new_key))
    except (KeyNotFound, FileNotFoundError):
        raise KeyNotFound(
            f"The file {key!r}, which dataset {dataset!r} names, is not in the store {source.name}; "
            "if it was removed since the copy began, copy again. The copy does not exist."
        ) from None


def _copied(source: Store, key: str, target: Store, new_key: str) -> int:
    """Copy a file; its bytes, where they pass here."""
    if source == target:
        target.copy(key, new_key)
        return 0
    path = source.local_path(key)
    if path is not None:
        target.put_file(new_key, path)
        return Path(path).stat().st_size
    reader = _ObjectReader(source, key)
    target.put_file(new_key, io.BufferedReader(reader, _BLOCK))
    return reader.size


class _ObjectReader(io.RawIOBase):
    """An object of a store as a file that is read block by block."""

    def __init__(self, store: Store, key: str) -> None:
        super().__init__()
        self._store, self._key, self._position = store, key, 0
        self.size = store.tail(key, 0)[1]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        stop = min(self._position + len(buffer), self.size)
        if stop == self._position:
            return 0
        (data,) = self._store.ranges(self._key, [(self._position, stop)])
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)


# --- renaming -------------------------------------------------------------------------------------


def rename_dataset(store: Store, uuid: str, new_uuid: str) -> Snapshot:
    """Copy a dataset inside its store, then delete the original; return the snapshot under the new uuid.

    Before the original goes, it is marked so that nobody can commit onto it any more; if it was
    changed since it was copied, it stays and `CommitConflict` is raised.
    """
    if uuid == check_uuid(new_uuid):
        raise InvalidInput(f"Cannot rename dataset {uuid!r} to itself.")
    if not is_nearly_renamed(store, uuid, new_uuid):
        check_store_can_commit(store)
        snapshot = load_snapshot(store, uuid)
        copied = _copy(store, snapshot, _look(store, new_uuid, overwrite=False))
        _retire(
            store,
            snapshot,
            new_uuid,
            _mark(new_uuid, copied.chain[-1].id if copied.chain else fingerprint(copied.document.partitions)),
        )
    delete_dataset(store, uuid)
    return load_snapshot(store, new_uuid)


def _mark(new_uuid: str, state: str) -> str:
    """Says of a dataset that it goes, and of which copy: by a commit, or by its partitions where it has no commits."""
    return f"renamed to {new_uuid}: {state}"


def is_nearly_renamed(store: Store, uuid: str, new_uuid: str) -> bool:
    """Whether an earlier rename got as far as deleting the original, and its copy, or what has become of it since, is there."""
    found, _ = find_documents(store, uuid)
    copies = [stored.document for key in document_keys(new_uuid) if (stored := find_document(store, key)) is not None]
    states = [state for d in copies[:1] for state in (*(c.id for c in chain_of(d.metadata)), fingerprint(d.partitions))]
    return found.document.metadata.get(MOVING_KEY) in [_mark(new_uuid, state) for state in states]


def _retire(store: Store, snapshot: Snapshot, new_uuid: str, mark: str) -> None:
    try:
        lock_for_move(store, StoredDocument(snapshot.key, snapshot.token, snapshot.document), mark)
    except VersionMismatch as error:
        raise CommitConflict(
            f"Dataset {snapshot.uuid!r} was changed while it was being renamed, so it stays; {new_uuid!r} is a copy of its older state. "
            f"Delete {new_uuid!r} and rename again."
        ) from error
