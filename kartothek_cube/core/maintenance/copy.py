"""Copy of a dataset: the plan of keys and document, and the run, files first, document last."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from kartothek_cube.core.commit.commit import check_store_can_commit
from kartothek_cube.core.commit.cube_writes import decided_state
from kartothek_cube.core.io.formats import check_named_key, file_suffix
from kartothek_cube.core.maintenance.copied_tags import (
    CopiedTag,
    check_tags,
    moved_tag,
    put_states,
    put_tags,
    tagged_states,
)
from kartothek_cube.core.maintenance.delete import is_own_key
from kartothek_cube.core.maintenance.object_reader import ObjectReader
from kartothek_cube.core.metadata.commit_log import (
    COMMITS_KEY,
    LEDGER_KEY,
    SCHEMA_KEY,
    TXN_KEY,
    Commit,
    CubeCommit,
    CubePart,
    extend_chain,
    fingerprint,
    records_after,
    stored_chain,
)
from kartothek_cube.core.metadata.document import (
    OWN_PREFIX,
    STATE_KEYS,
    Document,
    PartitionColumns,
    empty_partitions,
    render_document,
)
from kartothek_cube.core.metadata.history_entry import encode_entry, entry_of, history_key
from kartothek_cube.core.metadata.naming import (
    check_uuid,
    document_key,
    index_key,
    is_data_key,
    new_id,
    schema_key,
)
from kartothek_cube.core.metadata.snapshot import Snapshot, common_metadata_bytes, embedded_schemas
from kartothek_cube.core.metadata.statistics import STATISTICS_KEY, StatisticsReference, statistics_key
from kartothek_cube.core.metadata.tag import Tag
from kartothek_cube.core.runtime.executor import THREADS, Executor, map_files
from kartothek_cube.core.runtime.options import Phase
from kartothek_cube.core.runtime.telemetry import record
from kartothek_cube.core.snapshots.documents import StoredDocument, document_keys, find_document, put_document
from kartothek_cube.core.snapshots.loader import Unseen, load_snapshot, needs_ledger, snapshot_of
from kartothek_cube.core.snapshots.statistics import existing_statistics
from kartothek_cube.core.stores.contract import Store, Version, VersionMismatch
from kartothek_cube.errors import AlreadyExists, CommitConflict, CorruptDocument, InvalidInput, KeyNotFound

__all__ = [
    "CopyPlan",
    "PreparedCopy",
    "as_part",
    "copy_dataset",
    "copy_files",
    "copy_snapshot",
    "plan_copy",
    "prepare_copy",
    "publish_copy",
    "withdraw_copy",
]

_BLOCK = 8 * 2**20


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """The key of each copied file by its source key, the document of the copy, and its tags.

    ``commit`` is the id of the only commit of the copy; None if the copy has no commit list.
    """

    files: Mapping[str, str]
    document: Document
    commit: str | None
    tags: tuple[CopiedTag, ...] = ()


def plan_copy(
    snapshot: Snapshot,
    uuid: str,
    taken: frozenset[str],
    now: datetime,
    statistics: StatisticsReference,
    *,
    embed: bool,
    tagged: Sequence[tuple[Tag, Document]] = (),
    renamed: Mapping[str, str] | None = None,
) -> CopyPlan:
    """Plan the copy of a snapshot under another uuid.

    Parameters
    ----------
    snapshot : Snapshot
        The source.
    uuid : str
        The uuid of the copy.
    taken : frozenset of str
        Keys that must not be used.
    now : datetime
        For new keys of index files outside of the source's folder (UTC, naive).
    statistics : StatisticsReference
        Those of the source, as far as their files exist.
    embed : bool
        Whether the document embeds the schema and a commit list that begins here.
    tagged : sequence of (Tag, Document)
        The tags of the source with their states, which name only index files that exist.
    renamed : Mapping of str to str, optional
        If a whole cube is renamed, the new uuid of each dataset by the old one.
    """
    used, files, document = {*taken}, dict[str, str](), snapshot.document
    # A file that several states name is copied once.
    for each in (replace(document, partitions=snapshot.partitions), *(state for _, state in tagged)):
        for key, table in _data_files(each.partitions):
            if key not in files:
                files[key] = _claim(_data_key(key, snapshot.uuid, uuid, table), used)
        for column, key in each.indices.items():
            if isinstance(key, str) and key not in files:
                files[key] = _claim(_moved(key, snapshot.uuid, uuid) or index_key(uuid, column, now), used)
    copied = _moved_document(document, uuid, files)
    # Of the library's own entries only these, and statistics, say something of the copy.
    metadata = {
        k: v for k, v in document.metadata.items() if not k.startswith(OWN_PREFIX) or k in (TXN_KEY, *STATE_KEYS)
    }
    files |= {statistics_key(snapshot.uuid, s.name): statistics_key(uuid, s.name) for s in statistics.stored}
    if statistics != StatisticsReference():
        metadata[STATISTICS_KEY] = statistics.render()
    commit = new_id() if embed else None
    if commit is not None:
        first = Commit(commit, None, fingerprint(copied.partitions), datetime.now(UTC))
        metadata[COMMITS_KEY] = extend_chain((), first, foreign=False)
        metadata[SCHEMA_KEY] = embedded_schemas(snapshot.schemas)
    tags = tuple(
        CopiedTag(moved_tag(tag, uuid, renamed or {}), _moved_document(state, uuid, files), tag)
        for tag, state in tagged
    )
    return CopyPlan(files, replace(copied, metadata=metadata), commit, tags)


def _moved_document(document: Document, uuid: str, files: Mapping[str, str]) -> Document:
    """The document with the keys and the uuid of the copy."""
    indices = {column: files[key] if isinstance(key, str) else key for column, key in document.indices.items()}
    partitions = document.partitions
    if partitions is not None:
        columns = {
            table: pa.array([files.get(key) for key in column.to_pylist()], type=pa.string())
            for table, column in partitions.files.items()
        }
        partitions = PartitionColumns(partitions.labels, columns)
    return replace(document, uuid=uuid, indices=indices, partitions=partitions)


def _data_files(partitions: PartitionColumns | None) -> list[tuple[str, str]]:
    """Key and table of each data file, each key once."""
    files = (partitions or empty_partitions()).files
    tables = {key: table for table, keys in files.items() for key in keys.to_pylist() if key is not None}
    return list(tables.items())


def _moved(key: str, old: str, new: str) -> str | None:
    return new + key[len(old) :] if is_own_key(key, old) else None


def _data_key(key: str, old: str, new: str, table: str) -> str:
    # A foreign file comes into the copy's folder, too; its path keeps the partition values.
    parts = key.split("/")
    return _moved(key, old, new) or "/".join([new, table, *(parts[2:] or parts[-1:])])


def _claim(key: str, used: set[str]) -> str:
    """The key, with a fresh id if it is taken."""
    if key in used:
        suffix = file_suffix(key)
        key = f"{key.removesuffix(suffix)}-{new_id()}{suffix}"
    used.add(key)
    return key


# --- the run --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Target:
    """The place of the copy, and the documents of the dataset that it replaces.

    ``unseen`` is a document in its place that no reader sees.
    """

    store: Store
    uuid: str
    replaced: StoredDocument | None
    twin: StoredDocument | None
    unseen: StoredDocument | None = None


@dataclass(frozen=True, slots=True)
class PreparedCopy:
    """A planned copy: source, target, files, and the content of the schema files by key."""

    source: Store
    snapshot: Snapshot
    target: _Target
    plan: CopyPlan
    schemas: Mapping[str, bytes]

    @property
    def replaces(self) -> bool:
        """Whether the copy replaces a dataset."""
        return self.target.replaced is not None

    @property
    def key(self) -> str:
        """Key of the document."""
        # A replaced dataset keeps its encoding, so that one swap replaces it.
        if (old := self.target.replaced or self.target.unseen) is not None:
            return old.key
        return document_key(self.target.uuid, msgpack=self.snapshot.key.endswith(".zstd"))

    @property
    def data(self) -> bytes:
        """The encoded document."""
        return render_document(self.plan.document, msgpack=self.key.endswith(".zstd"))

    def is_included_in(self, stored: bytes) -> bool:
        """Whether an encoded document is this copy, or a later commit onto it."""
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
        If source and target are the same dataset.
    DatasetNotFound
        If the source does not exist.
    AlreadyExists
        If the target exists and ``overwrite`` is False. Nothing was written.
    KeyNotFound
        If a file of the source has vanished. The copy does not exist then.
    CommitConflict
        If another process changed the target meanwhile.
    """
    if source == target and uuid == check_uuid(new_uuid):
        raise InvalidInput(
            f"Cannot copy to a dataset with the same UUID within the same store! Dataset {uuid!r}, store {source.name}."
        )
    check_store_can_commit(target)
    return copy_snapshot(source, load_snapshot(source, uuid), target, new_uuid, overwrite=overwrite, executor=executor)


def copy_snapshot(
    source: Store,
    snapshot: Snapshot,
    target: Store,
    uuid: str,
    *,
    overwrite: bool = False,
    executor: Executor = THREADS,
    renamed: Mapping[str, str] | None = None,
) -> Snapshot:
    """Copy a snapshot and return the snapshot of the copy; errors as of `copy_dataset`.

    ``renamed`` as in `plan_copy`.
    """
    copy = prepare_copy(source, snapshot, target, uuid, overwrite=overwrite, renamed=renamed)
    check_tags(target, copy.plan.tags if copy.replaces else ())
    copy_files([copy], executor)
    publish_copy(copy)
    put_tags(target, copy.plan.tags)
    return load_snapshot(target, uuid)


def prepare_copy(
    source: Store,
    snapshot: Snapshot,
    target: Store,
    uuid: str,
    *,
    overwrite: bool = False,
    renamed: Mapping[str, str] | None = None,
) -> PreparedCopy:
    """Plan the copy of a snapshot; errors as of `copy_dataset`. Nothing is written."""
    documents = [stored for key in document_keys(uuid) if (stored := find_document(target, key)) is not None]
    unseen = None
    if documents and needs_ledger(documents[0].document):
        # A write that is pending there is waited for or aborted, as by a commit.
        state = decided_state(target, uuid)
        documents, unseen = documents[1:], state.stored if isinstance(state, Unseen) else None
        if isinstance(state, Snapshot):
            documents.insert(0, StoredDocument(state.key, state.token, state.document))
    if documents and not overwrite:
        raise AlreadyExists(
            f"Dataset {uuid!r} exists in the store {target.name}. "
            "Give overwrite=True to replace it, or delete it first. "
            "If it is the result of a copy or rename that was interrupted, it is complete, but it may lack tags."
        )
    replaced = documents[0] if documents else None
    place = _Target(target, uuid, replaced, documents[1] if len(documents) > 1 else None, unseen)
    data_keys = [key for key, _ in _data_files(snapshot.partitions)]
    tagged = tagged_states(source, snapshot)
    data_keys += [key for _, state in tagged for key in state.files]
    for key in (*data_keys, *(key for key in snapshot.document.indices.values() if isinstance(key, str))):
        check_named_key(key, snapshot.uuid)
    if snapshot.document.partitions is None:
        _check_target_is_empty(snapshot, place)
    # Keys in use: those of the replaced dataset and, inside one store, of the source. A target
    # without document may have garbage, which is overwritten.
    taken = frozenset(data_keys) if source == target else frozenset()
    if replaced is not None:
        indices = (key for key in replaced.document.indices.values() if isinstance(key, str))
        taken = taken.union(indices, target.list(f"{uuid}/", recursive=True).keys)
    # No swap covers a document and its schema files. So a document that replaces another one
    # embeds its schema.
    is_embedded = replaced is not None or not snapshot.has_foreign_commit
    now = datetime.now(UTC).replace(tzinfo=None)
    known = existing_statistics(source, snapshot)
    plan = plan_copy(snapshot, uuid, taken, now, known, embed=is_embedded, tagged=tagged, renamed=renamed)
    if (old := replaced or unseen) is not None:
        kept = {k: v for k, v in old.document.metadata.items() if replaced is not None or k == LEDGER_KEY}
        records = records_after(None, uuid, None, "", kept)
        plan = replace(plan, document=replace(plan.document, metadata={**plan.document.metadata, **records}))
    # After a foreign commit the schema file counts and is copied as it is, else the document.
    schemas = {
        schema_key(uuid, table): source.get(schema_key(snapshot.uuid, table))
        if snapshot.has_foreign_commit
        else common_metadata_bytes(snapshot.schemas[table])
        for table in snapshot.tables
    }
    return PreparedCopy(source, snapshot, place, plan, schemas)


def _check_target_is_empty(snapshot: Snapshot, target: _Target) -> None:
    """Check the target of an implicit dataset: each data file there becomes one of the copy."""
    expected = {_data_key(key, snapshot.uuid, target.uuid, table) for key, table in _data_files(snapshot.partitions)}
    keys = target.store.list(f"{target.uuid}/", recursive=True).keys
    surplus = [k for k in keys if is_data_key(k) and k not in expected]
    if surplus or target.replaced is not None:
        obstacle = repr(surplus[0]) if surplus else f"dataset {target.uuid!r}"
        raise AlreadyExists(
            f"Dataset {snapshot.uuid!r} lists no partitions, so every file below {target.uuid + '/'!r} "
            f"would become one of its copy. There is {obstacle} in the store {target.store.name}; delete it first."
        )


# --- files --------------------------------------------------------------------------------------


def copy_files(copies: Sequence[PreparedCopy], executor: Executor = THREADS) -> None:
    """Copy the files of some copies; a copy is invisible until its document is written."""
    files = [(c.source, old, c.target.store, new, c.snapshot.uuid) for c in copies for old, new in c.plan.files.items()]
    target = copies[0].target.store if copies else None
    list(map_files(_copy_file, files, executor=executor, store=target, phase=Phase("copy", "files")))
    for copy in copies:
        put_states(copy.target.store, copy.plan.tags)
        if not copy.replaces:
            _put_schemas(copy.target.store, copy.schemas)


def _copy_file(file: tuple[Store, str, Store, str, str]) -> None:
    source, key, target, new_key, dataset = file
    try:
        record(files_written=1, bytes_written=_transfer(source, key, target, new_key))
    except (KeyNotFound, FileNotFoundError):
        raise KeyNotFound(
            f"The file {key!r}, which dataset {dataset!r} or one of its tags names, is not in the store {source.name}; "
            "if it was removed since the copy began, copy again. The copy does not exist."
        ) from None


def _transfer(source: Store, key: str, target: Store, new_key: str) -> int:
    """Copy a file and return the bytes that passed through this process."""
    if source == target:
        target.copy(key, new_key)
        return 0
    path = source.local_path(key)
    if path is not None:
        target.put_file(new_key, path)
        return Path(path).stat().st_size
    reader = ObjectReader(source, key)
    target.put_file(new_key, io.BufferedReader(reader, _BLOCK))
    return reader.size


def _put_schemas(store: Store, schemas: Mapping[str, bytes]) -> None:
    for key, data in schemas.items():
        stored, token = _get(store, key)
        if stored != data:
            with suppress(VersionMismatch):  # a commit onto the copy, or another creator, was faster
                store.put_if(key, data, token)


def _get(store: Store, key: str) -> tuple[bytes | None, Version | None]:
    try:
        return store.get_versioned(key)
    except KeyNotFound:
        return None, None


# --- document -----------------------------------------------------------------------------------


def publish_copy(copy: PreparedCopy) -> None:
    """Make a copy visible whose files are complete."""
    target, key, replaced = copy.target, copy.key, copy.target.replaced
    if replaced is not None:
        _record_replaced(copy, replaced)
    (other,) = {*document_keys(target.uuid)} - {key}
    if replaced is None and target.store.contains(other):
        raise _created_meanwhile(target)
    try:
        old = replaced or target.unseen
        version = None if old is None else old.token
        put_document(target.store, key, copy.data, version, copy.is_included_in)
    except VersionMismatch as error:
        raise (AlreadyExists if replaced is None else CommitConflict)(
            f"Dataset {target.uuid!r} was written by another process while it was being copied to: {error} "
            "Nothing of the copy is visible."
        ) from error
    if target.twin is not None:
        target.store.delete(target.twin.key)
    elif replaced is None and target.store.contains(other):
        # A creator in the other encoding makes the same check: of two at most one stays.
        target.store.delete(key)
        raise _created_meanwhile(target)
    # The copy has landed, so a failure here is none of the copy: the next commit repairs the files.
    with suppress(Exception):
        _put_schemas(target.store, copy.schemas)


def as_part(copy: PreparedCopy, part: CubePart, write: CubeCommit) -> PreparedCopy:
    """A copy that becomes visible together with others: its document has the records of that.

    Its history entry has the whole document that it replaces, as a state that readers go on to see.
    """
    plan, target, commit = copy.plan, copy.target, copy.plan.commit or new_id()
    before = {} if target.replaced is None else target.replaced.document.metadata
    first = Commit(commit, None, fingerprint(plan.document.partitions), datetime.now(UTC), write)
    metadata = {
        **plan.document.metadata,
        COMMITS_KEY: extend_chain((), first, foreign=False),
        SCHEMA_KEY: embedded_schemas(copy.snapshot.schemas),
        **records_after(part, target.uuid, write.id, commit, before, is_new=target.replaced is None),
    }
    return replace(copy, plan=replace(plan, document=replace(plan.document, metadata=metadata), commit=commit))


def _record_replaced(copy: PreparedCopy, replaced: StoredDocument) -> None:
    """Write a history entry for the files of the replaced dataset."""
    # It lets garbage collection count their age from the replacement. It has no parent, because
    # the copy has no snapshot to go back to.
    target, commit = copy.target, copy.plan.commit
    if commit is None:
        return
    with suppress(CorruptDocument, KeyNotFound):  # an unreadable dataset needs no protection
        old = snapshot_of(target.store, replaced.document, replaced.key)
        new = copy.plan.document.partitions or empty_partitions()
        entry = entry_of(commit, datetime.now(UTC), old, new.labels, old.partitions.labels)
        if entry.before is not None and COMMITS_KEY in old.document.metadata:
            metadata = {**entry.before.metadata, COMMITS_KEY: old.document.metadata[COMMITS_KEY]}
            entry = replace(entry, before=replace(entry.before, metadata=metadata))
        target.store.put(history_key(target.uuid, commit), encode_entry(replace(entry, parent=None)))


def _created_meanwhile(target: _Target) -> AlreadyExists:
    return AlreadyExists(
        f"Dataset {target.uuid!r} was created by another process while it was being copied to. "
        "Nothing of the copy is visible."
    )


def withdraw_copy(copy: PreparedCopy) -> bool:
    """Delete the document of a copy unless it has later commits; True if the copy is invisible.

    The files of the copy stay.
    """
    stored, _ = _get(copy.target.store, copy.key)
    if stored == copy.data:
        copy.target.store.delete(copy.key)
        return True
    return stored is None or not copy.is_included_in(stored)
