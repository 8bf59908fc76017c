"""Copy, conversion, deletion and renaming of a dataset.

In order:

- tags of a copy: which states come along
- conversion to the other encoding, safe against concurrent commits
- deletion: the plan, from documents and a listing; safe to repeat
- copies: files first, the document last
- renaming: a copy, then the deletion; safe to repeat
"""

from __future__ import annotations

import io
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from kartothek_cube.core.commit.cube_writes import abort_pending, decided_state, settle_committed
from kartothek_cube.core.delta.publication import publish_as
from kartothek_cube.core.io.formats import check_named_key, file_suffix
from kartothek_cube.core.maintenance.garbage import (
    is_bookkeeping,
    is_schema_key,
    own_folders,
    remove_temporary_files,
    temporary_files,
)
from kartothek_cube.core.maintenance.inspection import ObjectReader
from kartothek_cube.core.metadata.commit_log import (
    COMMITS_KEY,
    LEDGER_KEY,
    MOVING_KEY,
    SCHEMA_KEY,
    TXN_KEY,
    Commit,
    CubeCommit,
    CubePart,
    Ledger,
    chain_of,
    extend_chain,
    fingerprint,
    ledger_of,
    pending_mark,
    records_after,
    stored_chain,
)
from kartothek_cube.core.metadata.document import (
    DELTA_KEY,
    OWN_PREFIX,
    STATE_KEYS,
    Document,
    PartitionColumns,
    empty_partitions,
    parse_document,
    render_document,
)
from kartothek_cube.core.metadata.history_entry import encode_entry, entry_of, history_key
from kartothek_cube.core.metadata.naming import (
    check_uuid,
    document_format,
    document_key,
    index_key,
    is_data_key,
    new_id,
    schema_key,
)
from kartothek_cube.core.metadata.snapshot import Snapshot, common_metadata_bytes, embedded_schemas
from kartothek_cube.core.metadata.statistics import STATISTICS_KEY, StatisticsReference, statistics_key
from kartothek_cube.core.metadata.tag import (
    Tag,
    TaggedState,
    encode_state,
    encode_tag,
    moved_state_key,
    new_state_key,
    tag_key,
)
from kartothek_cube.core.runtime.executor import THREADS, at_once, delete_files, map_files, map_in_threads
from kartothek_cube.core.runtime.options import Phase
from kartothek_cube.core.runtime.telemetry import record
from kartothek_cube.core.snapshots.documents import (
    StoredDocument,
    dataset_exists,
    document_keys,
    find_document,
    find_documents,
    put_document,
)
from kartothek_cube.core.snapshots.loader import HiddenDocument, load_snapshot, needs_ledger, snapshot_of
from kartothek_cube.core.snapshots.statistics import existing_statistics
from kartothek_cube.core.snapshots.time_travel import counting_tags, find_tag, read_state, readable_tags
from kartothek_cube.core.stores.contract import Store, Version, VersionMismatch, check_store_can_commit
from kartothek_cube.errors import (
    AlreadyExists,
    CommitConflict,
    CorruptDocument,
    HistoryUnavailable,
    InvalidInput,
    KeyNotFound,
    ReadOnlyStore,
    Unsupported,
)
from kartothek_cube.typing import Executor


class CopiedTag(Struct, frozen=True):
    """A tag of a copy, its state, and the tag of the source."""

    tag: Tag
    document: Document
    origin: Tag


def tagged_states(source: Store, snapshot: Snapshot) -> list[tuple[Tag, Document]]:
    """The tags of a dataset with their states, which name only index files that exist.

    Raises
    ------
    HistoryUnavailable, CorruptDocument
        If a state is lost, or cannot be read.
    """
    tags = readable_tags(source, snapshot.uuid)

    def read(tag: Tag) -> Document | HistoryUnavailable | CorruptDocument:
        try:
            return read_state(source, tag.state)
        except (HistoryUnavailable, CorruptDocument) as error:
            return error  # of no account if the tag does not count

    counting, read_states = at_once(
        source,
        lambda: counting_tags(source, tags),
        lambda: list(map_in_threads(read, tags, store=source)),
    )
    documents = {tag.id: document for tag, document in zip(tags, read_states, strict=True) if tag in counting}
    found = list[tuple[Tag, Document]]()
    for tag in counting:
        document = documents[tag.id]
        if not isinstance(document, Document):
            raise document
        found.append((tag, document))
    # Older states lose their index files first, and can be read without.
    keys = sorted({str(key) for _, document in found for key in document.index_files})
    present = dict(zip(keys, map_in_threads(source.contains, keys, store=source), strict=True))

    def with_present_indices(document: Document) -> Document:
        indices = {c: None if present.get(str(key)) is False else key for c, key in document.indices.items()}
        return replace(document, indices=indices)

    return [(tag, with_present_indices(document)) for tag, document in found]


def moved_tag(tag: Tag, uuid: str, renamed: Mapping[str, str]) -> Tag:
    """The tag of a copy with this uuid.

    It is one of the dataset alone, unless its whole cube is ``renamed``, uuid by uuid.
    """
    if tag.seed is None or any(old not in renamed for old in (tag.seed, *(state.uuid for state in tag.members))):
        state = replace(tag.state, uuid=uuid, key=new_state_key(uuid, tag.state.commit))
        return Tag(new_id(), state, datetime.now(UTC))

    def moved(state: TaggedState) -> TaggedState:
        new = renamed[state.uuid]
        return replace(state, uuid=new, key=moved_state_key(state.key, new))

    return Tag(tag.id, moved(tag.state), datetime.now(UTC), renamed[tag.seed], tuple(map(moved, tag.members)))


def joined_tags(copies: Mapping[str, tuple[CopiedTag, ...]]) -> dict[str, tuple[CopiedTag, ...]]:
    """The tags of the datasets of a copied cube, with those of the cube as tags of the copy.

    A tag whose seed is not copied stays one of each dataset alone.
    """
    every = [copied for tags in copies.values() for copied in tags if copied.origin.seed is not None]
    wholes = {copied.origin.id: copied.tag for copied in every if not copied.origin.is_share}

    def joined(copied: CopiedTag) -> CopiedTag:
        whole, is_share = wholes.get(copied.origin.id), copied.origin.is_share
        if whole is None:
            return copied
        states = tuple(other.tag.state for other in every if other.origin.id == copied.origin.id)
        tag = replace(copied.tag, id=whole.id, seed=whole.state.uuid, members=() if is_share else states)
        return replace(copied, tag=tag)

    return {name: tuple(map(joined, tags)) for name, tags in copies.items()}


def check_tags(store: Store, tags: Iterable[CopiedTag]) -> None:
    """Refuse to replace the share of a dataset in a tag of another cube."""
    for copied in tags:
        name, uuid = copied.tag.name, copied.tag.state.uuid
        present = find_tag(store, uuid, name)
        if present is not None and present.seed is not None and copied.tag.seed != present.seed:
            raise AlreadyExists(
                f"Tag {name!r} of dataset {uuid!r} in the store {store.name} belongs to its cube, and the copy has one "
                "of the same name. Drop it first. Nothing was changed."
            )


def put_states(store: Store, tags: Iterable[CopiedTag]) -> None:
    """Write the states of the tags of a copy."""
    list(map_in_threads(lambda t: store.put(t.tag.state.key, encode_state(t.document)), list(tags), store=store))


def put_tags(store: Store, tags: Iterable[CopiedTag]) -> None:
    """Write the tags of copies that are visible; those of a cube appear as a whole."""

    def put(tag: Tag) -> None:
        store.put(tag_key(tag.state.uuid, tag.name), encode_tag(tag))

    every = [copied.tag for copied in tags]
    # Not before, since the name might belong to a dataset that another process has made meanwhile.
    for is_share in (True, False):
        list(map_in_threads(put, [tag for tag in every if tag.is_share == is_share], store=store))


# --- conversion to the other encoding -------------------------------------------------------------


def convert_document(store: Store, uuid: str, storage_format: str) -> None:
    """Convert a dataset's document to this encoding, ``"json"`` or ``"msgpack"``.

    1. The old document gets the entry ``kartothek_cube.moving`` by compare-and-swap: a writer that
       read it before fails to commit, a writer that reads it now refuses to.
    2. The new document is written, without the entry.
    3. The old document is deleted.

    After a crash at any point the dataset can be read, and another call completes the conversion.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist.
    InvalidInput
        If the format is unknown, or cannot encode the metadata.
    CommitConflict
        If another process commits or converts at the same time.
    """
    msgpack = document_format(storage_format) == "msgpack"
    check_store_can_commit(store)
    try:
        _convert(store, uuid, document_keys(uuid)[msgpack])
    except VersionMismatch as error:
        raise CommitConflict(
            f"Dataset {uuid!r} was changed while its document was being converted to {storage_format}: "
            f"{error} Call it again."
        ) from error


def _convert(store: Store, uuid: str, key: str) -> None:
    stored, twin = find_documents(store, uuid)
    unlocked = without_mark(stored.document)
    if stored.key == key:
        # Converted already: clean up after an interrupted conversion or another library.
        if MOVING_KEY in stored.document.metadata:
            put_document(store, key, _render(unlocked, key), stored.token)
        json_key, msgpack_key = document_keys(unlocked.uuid)
        if key == json_key and store.contains(msgpack_key):
            store.delete(msgpack_key)
        return
    data = _render(unlocked, key)
    locked = lock_for_move(store, stored, f"{key} {new_id()}")
    # The version of a stale document that the new one replaces.
    stale = twin.token if twin is not None else store.get_versioned(key)[1] if store.contains(key) else None
    token = put_document(store, key, data, stale)
    # Another process may have completed this conversion, and begun another.
    if store.changed(stored.key, locked) or store.changed(key, token):
        raise store.mismatch(stored.key, locked)
    store.delete(stored.key)
    # A store cannot delete conditionally: a process that wrote the old key at the last moment has
    # deleted the new one as a stale twin.
    if not store.contains(key) and not store.contains(stored.key):
        put_document(store, key, data, None)


def lock_for_move(store: Store, stored: StoredDocument, mark: str) -> Version:
    """Put a mark into the document that keeps all writers from committing.

    Raises
    ------
    VersionMismatch
        If the document was changed.
    """
    marked = replace(stored.document, metadata={**stored.document.metadata, MOVING_KEY: mark})
    return put_document(store, stored.key, _render(marked, stored.key), stored.token)


def without_mark(document: Document) -> Document:
    """The document without the mark of a conversion or rename."""
    return replace(document, metadata={k: v for k, v in document.metadata.items() if k != MOVING_KEY})


def _render(document: Document, key: str) -> bytes:
    try:
        data = render_document(document, msgpack=key.endswith(".zstd"))
        parse_document(data, key)
    except (TypeError, ValueError, OverflowError, CorruptDocument) as error:
        raise InvalidInput(
            f"The document of dataset {document.uuid!r} cannot be written as {key!r}: {error}"
        ) from error
    return data


# --- deletion -------------------------------------------------------------------------------------


_LOGGER = logging.getLogger(__name__)


class Deletion(Struct, frozen=True):
    """The keys of a dataset in the order of their removal.

    ``history`` has history entries and marks of garbage collections. ``kept`` has the files that
    the dataset names, but that belong to another dataset; they stay. ``pending`` has the entries
    without which a reader would take a write that has not committed for one that has.
    ``ledger`` has the uuids of the datasets whose writes the ledger of this one decides. Without
    ``has_twin`` the dataset has a document in one encoding only.
    """

    history: tuple[str, ...]
    garbage: tuple[str, ...]
    indices: tuple[str, ...]
    files: tuple[str, ...]
    schemas: tuple[str, ...]
    documents: tuple[str, ...]
    kept: tuple[str, ...]
    pending: tuple[str, ...] = ()
    ledger: tuple[str, ...] = ()
    has_twin: bool = True

    def phases(self) -> tuple[tuple[str, ...], ...]:
        """Keys that are removed together; a phase begins when the one before is complete."""
        # The twin in msgpack goes before the JSON document, or it would come into force.
        in_order = self.documents[::-1]
        documents = [(key,) for key in in_order] if self.has_twin else [in_order]
        # Entries and tags go before what they name. Schema files go last: they show which folders
        # are former tables.
        return (self.history, self.garbage + self.indices + self.files, self.schemas, *documents, self.pending)


def phases_of_all(plans: Sequence[Deletion]) -> list[list[str]]:
    """The phases of several deletions: the first dataset goes first, the others go together.

    The files of these go when the first one has no document any more.
    """
    first, *others = [plan.phases() for plan in plans]
    # Nothing of their newest states is missing before: history goes with that document.
    shift = len(first) - 2
    shifted = [((),) * shift + phases for phases in others]
    return [[*chain.from_iterable(together)] for together in zip_longest(first, *shifted, fillvalue=())]


def _owner_of(key: str) -> str:
    """The uuid of the dataset to which a key would belong."""
    return key.partition("/")[0].partition(".")[0]


def is_own_key(key: str, uuid: str) -> bool:
    """Whether a key has a prefix of this dataset."""
    return key.startswith((f"{uuid}/", f"{uuid}."))


def plan_deletion(
    uuid: str, documents: Sequence[Document], keys: Sequence[str], others: Iterable[str] = ()
) -> Deletion:
    """Plan the deletion of a dataset.

    ``keys`` are those below ``<uuid>/``, ``others`` the uuids of other datasets, whose files stay.
    """
    own_documents = document_keys(uuid)
    indices = set().union(*(d.index_files for d in documents)) - {*own_documents}
    # Every data file in the folder of an implicit dataset is a partition.
    implicit = () if all(d.partitions is not None for d in documents) else (key for key in keys if is_data_key(key))
    files = set().union(implicit, *(d.files for d in documents)) - indices - {*own_documents}
    tables = {table for d in documents if d.partitions is not None for table in d.partitions.files}
    folders = own_folders(uuid, tables, keys)
    inside = {key for key in keys if key.startswith(folders)}
    schema_keys = {schema_key(uuid, table) for table in tables}
    schemas = {key for key in inside if key in schema_keys or is_schema_key(key)} - indices - files
    owners = {*others}
    kept = {key for key in indices | files if not is_own_key(key, uuid) and _owner_of(key) in owners}
    marks = [mark for d in documents if (mark := pending_mark(d)) is not None]
    pending = {history_key(uuid, mark.commit) for mark in marks}
    history = {key for key in keys if is_bookkeeping(key)} - indices - files - pending
    return Deletion(
        history=tuple(sorted(history)),
        garbage=tuple(sorted(inside - indices - files - schemas - history - pending)),
        indices=tuple(sorted(indices - kept)),
        files=tuple(sorted(files - kept)),
        schemas=tuple(sorted(schemas)),
        documents=own_documents,
        kept=tuple(sorted(kept)),
        pending=tuple(sorted(pending)),
        ledger=tuple(sorted({u for d in documents for u in (ledger_of(d.metadata) or Ledger()).last})),
    )


def delete_whole_dataset(store: Store, uuid: str, executor: Executor = THREADS) -> Deletion:
    """Delete a dataset: history, garbage, index files, data files, schema files, documents.

    After an interruption, run it again.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist.
    CorruptDocument
        If the document cannot be read. Nothing is removed then.
    """
    plan = find_deletion(store, uuid)
    abort_pending_in(store, {uuid: plan})
    run_deletions(store, {uuid: plan}, executor)
    return plan


def find_deletion(store: Store, uuid: str) -> Deletion:
    """Plan the deletion of an existing dataset; errors as of `delete_dataset`."""
    if not store.capabilities.writable:
        raise ReadOnlyStore(f"The store {store.name} cannot be written to, so dataset {uuid!r} cannot be deleted.")
    # All keys of the dataset: files that come later are named by a later document, or stay.
    (first, second), keys = at_once(
        store,
        lambda: at_once(store, *(partial(_found, store, key) for key in document_keys(uuid))),
        lambda: store.list(f"{uuid}/", recursive=True).keys,
    )
    valid, twin = (second, None) if first is None else (first, second)
    if isinstance(valid, Exception):
        raise valid
    if valid is None:
        valid, twin = find_documents(store, uuid)  # for its error, or what a conversion has made
    documents = [stored.document for stored in (valid, twin) if isinstance(stored, StoredDocument)]
    named = set().union(*(d.index_files | d.files for d in documents))
    for key in named:
        check_named_key(key, uuid)
    owners = sorted({_owner_of(key) for key in named if not is_own_key(key, uuid)})
    others = [owner for owner in owners if owner and dataset_exists(store, owner)]
    plan = plan_deletion(uuid, documents, keys, others)
    return replace(plan, has_twin=first is not None and second is not None)


def _found(store: Store, key: str) -> StoredDocument | CorruptDocument | Unsupported | None:
    """The document of a key, None if there is none, or the error if it cannot be read."""
    try:
        return find_document(store, key)
    except (CorruptDocument, Unsupported) as error:
        return error


def find_listed_deletion(store: Store, uuid: str) -> Deletion:
    """Plan the deletion of a dataset with an unreadable document: all of ``<uuid>/`` and documents.

    The files that the document named elsewhere are unknown; they stay.
    """
    keys = store.list(f"{uuid}/", recursive=True).keys
    history = [key for key in keys if is_bookkeeping(key)]
    schemas = [key for key in keys if is_schema_key(key)]
    files = sorted({*keys} - {*history} - {*schemas})
    return Deletion(tuple(history), (), (), tuple(files), tuple(schemas), document_keys(uuid), ())


def abort_pending_in(store: Store, plans: Mapping[str, Deletion]) -> None:
    """Abort the writes that are pending in what is to be deleted: none may commit elsewhere."""
    for uuid, plan in plans.items():
        if plan.pending:
            abort_pending(store, uuid)


def run_deletions(store: Store, plans: Mapping[str, Deletion], executor: Executor = THREADS) -> None:
    """Remove the files of datasets, the first one first, and what crashed writers left of them."""
    if not plans:
        return
    # Without the ledger, nobody can tell any more that they have committed.
    settle_committed(store, [uuid for plan in plans.values() for uuid in plan.ledger])
    now, prefixes = datetime.now(UTC), [start for uuid in plans for start in (f"{uuid}/", f"{uuid}.")]
    first, *phases = phases_of_all(list(plans.values()))
    _, temporary = at_once(
        store, lambda: delete_files(store, first, executor), lambda: temporary_files(store, prefixes, now)
    )
    remove_temporary_files(store, temporary, now)
    for phase in phases:
        delete_files(store, phase, executor)
    for uuid, plan in plans.items():
        if plan.kept:
            text = "Dataset %r named %d files of other datasets, which stay: %s"
            _LOGGER.warning(text, uuid, len(plan.kept), ", ".join(plan.kept[:5]))


# --- copies ---------------------------------------------------------------------------------------


_BLOCK = 8 * 2**20
# Of this many bytes, files are read by one request.
_TAIL = 2**18


class CopyPlan(Struct, frozen=True):
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
                files[key] = unique_key(_data_key(key, snapshot.uuid, uuid, table), used)
        for column, key in each.indices.items():
            if isinstance(key, str) and key not in files:
                files[key] = unique_key(_moved(key, snapshot.uuid, uuid) or index_key(uuid, column, now), used)
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


def unique_key(key: str, used: set[str]) -> str:
    """The key, with a fresh id if it is taken."""
    if key in used:
        suffix = file_suffix(key)
        key = f"{key.removesuffix(suffix)}-{new_id()}{suffix}"
    used.add(key)
    return key


# --- the run --------------------------------------------------------------------------------------


class _Target(Struct, frozen=True):
    """The place of the copy, and the documents of the dataset that it replaces.

    ``unseen`` is a document in its place that no reader sees.
    """

    store: Store
    uuid: str
    replaced: StoredDocument | None
    twin: StoredDocument | None
    unseen: StoredDocument | None = None


class PreparedCopy(Struct, frozen=True):
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


def run_copy(
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
    finish_copies(target, [copy])
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
    found, tagged, known = at_once(
        source if source.is_remote else target,
        lambda: at_once(target, *(partial(find_document, target, key) for key in document_keys(uuid))),
        lambda: tagged_states(source, snapshot),
        lambda: existing_statistics(source, snapshot),
    )
    documents = [stored for stored in found if stored is not None]
    unseen = None
    if documents and needs_ledger(documents[0].document):
        # A write that is pending there is waited for or aborted, as by a commit.
        state = decided_state(target, uuid)
        documents, unseen = documents[1:], state.stored if isinstance(state, HiddenDocument) else None
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
    phase = Phase("copy", "files")
    if target is not None:
        at_once(
            target,
            lambda: list(map_files(_copy_file, files, executor=executor, store=target, phase=phase)),
            lambda: list(map_in_threads(_put_beside, copies, store=target)),
        )


def _put_beside(copy: PreparedCopy) -> None:
    """Write what comes before a document: states of tags, and the schema files of a new dataset."""
    store, schemas = copy.target.store, {} if copy.replaces else copy.schemas
    at_once(store, lambda: put_states(store, copy.plan.tags), lambda: _put_schemas(store, schemas))


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
    # The source may be a read-only view of the target's objects.
    copy = target.copy if source == target else source.copier(target)
    if copy is not None:
        # Servers refuse to copy what is very large, or may not be read by the writer.
        with suppress(OSError) if source != target else nullcontext():
            copy(key, new_key)
            return 0
    path = source.local_path(key)
    if path is not None:
        target.put_file(new_key, path)
        return Path(path).stat().st_size
    end, size = source.tail(key, _TAIL)
    if len(end) == size:
        target.put(new_key, end)
    else:
        target.put_file(new_key, io.BufferedReader(ObjectReader(source, key, size), _BLOCK))
    return size


def _put_schemas(store: Store, schemas: Mapping[str, bytes]) -> None:
    def put(key: str) -> None:
        stored, token = _get(store, key)
        if stored != schemas[key]:
            with suppress(VersionMismatch):  # a commit onto the copy, or another creator, was faster
                store.put_if(key, schemas[key], token)

    list(map_in_threads(put, list(schemas), store=store))


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


def finish_copies(store: Store, copies: Sequence[PreparedCopy]) -> None:
    """Write the tags of copies that are visible, and schema files that others have changed."""

    def put_schemas(copy: PreparedCopy) -> None:
        # The copy has landed, so a failure is none of the copy: the next commit repairs the files.
        with suppress(Exception):
            _put_schemas(store, copy.schemas)

    at_once(
        store,
        lambda: list(map_in_threads(put_schemas, copies, store=store)),
        lambda: put_tags(store, [tag for copy in copies for tag in copy.plan.tags]),
    )


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


def run_rename(store: Store, uuid: str, new_uuid: str, renamed: Mapping[str, str] | None = None) -> Snapshot:
    """Copy a dataset inside its store, then delete the original; return the renamed snapshot.

    If it is one of the datasets of a cube that are ``renamed``, the tags of the cube go with it.

    Raises
    ------
    InvalidInput
        If both names are the same.
    DatasetNotFound
        If the dataset does not exist.
    AlreadyExists
        If the new name is taken.
    CommitConflict
        If the original was changed since it was copied. It stays.
    """
    if uuid == check_uuid(new_uuid):
        raise InvalidInput(f"Cannot rename dataset {uuid!r} to itself.")
    if is_nearly_renamed(store, uuid, new_uuid):
        document = find_documents(store, uuid)[0].document
    else:
        check_store_can_commit(store)
        snapshot = load_snapshot(store, uuid)
        if snapshot.undecided is not None:  # its writer must not commit to a dataset that is gone
            abort_pending(store, uuid)
            snapshot = load_snapshot(store, uuid)
        copied = copy_snapshot(store, snapshot, store, new_uuid, renamed=renamed)
        state = copied.chain[-1].id if copied.chain else fingerprint(copied.document.partitions)
        try:
            # From here on nobody can commit to the original: no commit is lost with it.
            document = snapshot.document
            original = StoredDocument(snapshot.key, snapshot.token, document)
            lock_for_move(store, original, _mark(new_uuid, state))
        except VersionMismatch as error:
            raise CommitConflict(
                f"Dataset {uuid!r} was changed while it was being renamed, so it stays; "
                f"{new_uuid!r} is a copy of its older state. Delete {new_uuid!r} and rename again."
            ) from error
    if DELTA_KEY in document.metadata:
        publish_as(store, document, new_uuid)
    delete_whole_dataset(store, uuid)
    return load_snapshot(store, new_uuid)


# --- renaming -------------------------------------------------------------------------------------


def is_nearly_renamed(store: Store, uuid: str, new_uuid: str) -> bool:
    """Whether an earlier rename was interrupted after its copy was complete.

    The copy may have later commits.
    """
    (original, _), found = at_once(
        store,
        lambda: find_documents(store, uuid),
        lambda: at_once(store, *(partial(find_document, store, key) for key in document_keys(new_uuid))),
    )
    copies = [stored.document for stored in found if stored is not None]
    states = [state for d in copies[:1] for state in (*(c.id for c in chain_of(d.metadata)), fingerprint(d.partitions))]
    return original.document.metadata.get(MOVING_KEY) in [_mark(new_uuid, state) for state in states]


def _mark(new_uuid: str, state: str) -> str:
    """The mark of a renamed original: ``state`` is a commit of the copy, else its fingerprint."""
    return f"renamed to {new_uuid}: {state}"
