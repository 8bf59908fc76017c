"""Loads snapshots and secondary indices; snapshots are cached by version.

In order:

- index files, read whole or in part
- indices built from data files
- states of the past, from a history entry and an older document
- files that a verb reads several times
- loading
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from kartothek_cube.core.arrow.types import normal_schema, ordered, stored_schema
from kartothek_cube.core.expressions.predicates import Clause
from kartothek_cube.core.io.formats import DATA_SUFFIX, check_named_key, encode_groups
from kartothek_cube.core.io.parquet_rows import stream_columns
from kartothek_cube.core.io.reader import FileRequest, read_rows
from kartothek_cube.core.metadata.commit_log import (
    LEDGER_KEY,
    SCHEMA_KEY,
    CubeMark,
    Fate,
    chain_of,
    fate_of,
    is_foreign,
    ledger_of,
    pending_mark,
    without_last_commit,
)
from kartothek_cube.core.metadata.document import Document, PartitionColumns, from_mapping
from kartothek_cube.core.metadata.index import (
    INDEX_ROWS,
    LABELS,
    SecondaryIndex,
    build_index,
    distinct_values,
    grouped,
    index_from_table,
    index_type,
    merge_indices,
)
from kartothek_cube.core.metadata.naming import (
    SCHEMA_FILE,
    DecodedKey,
    decode_key,
    document_key,
    index_key,
    is_data_key,
    label_of,
    schema_key,
)
from kartothek_cube.core.metadata.snapshot import (
    PendingWrite,
    Snapshot,
    make_snapshot,
    parse_common_metadata,
    parse_embedded_schemas,
    type_of_column,
)
from kartothek_cube.core.runtime.executor import THREADS, LruCache, map_files, map_in_threads
from kartothek_cube.core.runtime.options import Phase
from kartothek_cube.core.snapshots.documents import StoredDocument, read_document
from kartothek_cube.core.stores.contract import Buffer, Store, StoreView
from kartothek_cube.errors import (
    CorruptDocument,
    DatasetNotFound,
    IncompleteCubeWarning,
    InvalidInput,
    KeyNotFound,
    Unsupported,
)
from kartothek_cube.typing import Executor

if TYPE_CHECKING:
    from kartothek_cube.core.metadata.history_entry import HistoryEntry

# An index of more values is too large to be kept for other comparisons.
_MANY_VALUES = 1_000_000


def index_bytes(index: SecondaryIndex, group_rows: int = INDEX_ROWS) -> memoryview:
    """The bytes of an index file: distinct values, sorted, each with the list of its labels."""
    whole = grouped(index)
    schema = pa.schema([(index.column, index.type), (LABELS, pa.list_(pa.string()))])

    def groups() -> Iterator[pa.Table]:
        for start in range(0, max(1, len(whole.keys)), group_rows):
            # The dictionary of a row group has its own labels only.
            group = whole.slice(start, group_rows).packed()
            yield pa.table([group.keys, group.lists.dictionary.take(group.lists.indices)], names=schema.names)

    return memoryview(encode_groups(groups(), schema, index.column))


def read_index(
    store: Store, key: str, uuid: str, column: str, data_type: pa.DataType, clauses: Sequence[Clause] = ()
) -> tuple[SecondaryIndex, bool]:
    """The index of a file, and whether it is whole.

    With ``clauses`` only those row groups are read that may have a matching value, and of an index
    that is not whole only such values are kept.
    """
    predicates = (tuple(clauses),) if clauses else None
    pieces, values, is_whole, is_kept = list[SecondaryIndex](), 0, True, True
    for table, is_whole in stream_columns(store, key, uuid, predicates, pa.schema([(column, data_type)])):
        pieces.append(index_from_table(table, column, data_type, key, () if is_whole else clauses))
        values += len(pieces[-1].keys)
        if clauses and values > _MANY_VALUES:
            pieces, is_kept = [merge_indices(pieces).select(clauses).packed()], False
    index = pieces[0] if len(pieces) == 1 else merge_indices(pieces).compacted()
    return index, is_whole and is_kept


# --- indices built from data files ----------------------------------------------------------------


Entries: TypeAlias = dict[tuple[str, tuple[str, ...]], dict[str, pa.Array]]
"""Distinct values by column, for each file (its key) and the columns that were read of it."""


def built_indices(
    store: Store, base: Snapshot, columns: Sequence[str], cached: Entries | None = None, executor: Executor = THREADS
) -> dict[str, SecondaryIndex]:
    """Whole indices on columns of a snapshot, built from its files.

    Files in ``cached`` are not read again; those that are read are added to it.
    """
    cached = {} if cached is None else cached
    tables = {table: tuple(c for c in columns if c in schema.names) for table, schema in base.schemas.items()}
    labels = base.partitions.labels.to_pylist()
    files = [
        (label, table, key)
        for table in tables
        if tables[table]
        for label, key in zip(labels, base.partitions.file_column(table).to_pylist(), strict=True)
        if key is not None
    ]
    new = [(table, key) for _, table, key in files if (key, tables[table]) not in cached]
    # A partial of a function of the module can be pickled: the executor may be Spark.
    read = partial(_entries, store, base.uuid, base.schemas, tables)
    values = map_files(read, new, executor=executor, heavy=True, phase=Phase("index", "files"))
    cached.update(zip([(key, tables[table]) for table, key in new], values, strict=True))
    by_column: dict[str, dict[str, list[pa.Array]]] = {c: {} for c in columns}
    for label, table, key in files:
        for column, array in cached[key, tables[table]].items():
            by_column[column].setdefault(label, []).append(array)
    indices = {}
    for column, by_label in by_column.items():
        data_type = index_type(type_of_column(base.schemas, column, base.uuid), column, base.uuid)
        chunked = {
            label: pa.chunked_array([array.cast(data_type) for array in arrays], type=data_type)
            for label, arrays in by_label.items()
        }
        indices[column] = build_index(column, data_type, [(pc.unique(c), label) for label, c in chunked.items()])
    return indices


def _entries(
    store: Store,
    uuid: str,
    schemas: Mapping[str, pa.Schema],
    columns: Mapping[str, Sequence[str]],
    file: tuple[str, str],
) -> dict[str, pa.Array]:
    table, key = file
    return file_entries(store, uuid, schemas[table], key, columns[table])


def file_entries(store: Store, uuid: str, schema: pa.Schema, key: str, columns: Sequence[str]) -> dict[str, pa.Array]:
    """The distinct values of each column in a file."""
    rows = read_rows(store, key, FileRequest(uuid, schema, tuple(columns)))
    return {c: distinct_values(rows.column(c)) for c in columns}


# --- states of the past ---------------------------------------------------------------------------


# In the key of an index file that was never written.
_NEVER = datetime(1970, 1, 1)  # noqa: DTZ001 - as in the keys of indices


def read_entry(store: Store, uuid: str, commit: str) -> HistoryEntry | None:
    """The entry of one commit; None if it is not kept.

    Raises
    ------
    CorruptDocument
        If it cannot be read.
    """
    from kartothek_cube.core.metadata.history_entry import decode_entry, history_key

    key = history_key(uuid, commit)
    try:
        entry = decode_entry(store.get(key), key)
    except KeyNotFound:
        return None
    if entry.commit != commit:
        raise CorruptDocument(f"The history entry {key} says that it is of commit {entry.commit!r}.")
    return entry


def past_snapshot(store: Store, document: Document, key: str, known: Mapping[str, Any]) -> Snapshot:
    """An older document as a snapshot without a version.

    ``known`` are indices whose files exist.
    """

    def has_index(column: str) -> bool:
        index = document.indices[column]
        if not isinstance(index, str):
            return index is not None
        return known.get(column) == index or store.contains(index)

    schemas = parse_embedded_schemas(str(document.metadata.get(SCHEMA_KEY)), document.uuid)
    columns = list(document.indices)
    present = map_in_threads(has_index, columns, store=store)
    lost = frozenset(column for column, is_present in zip(columns, present, strict=True) if not is_present)
    # An index that was replaced before its file was written has no key.
    indices = {c: index_key(document.uuid, c, _NEVER) if key is None else key for c, key in document.indices.items()}
    return replace(make_snapshot(replace(document, indices=indices), key, None, schemas), lost=lost)


# --- files that a verb reads several times --------------------------------------------------------


_KEPT_BYTES, _READ_AHEAD = 64 * 2**20, 128 * 2**10


class KeptFiles(StoreView):
    """A view of a store for one verb, which asks for the end of each data or index file once.

    A remote file is opened for the search, for its figures and for its rows, and most files come
    whole with their end. Files that a snapshot names never change. In each other process the view
    begins anew.
    """

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._ends = LruCache[str, tuple[Buffer, int]](_KEPT_BYTES)
        self._present = set[str]()

    def __reduce__(self) -> tuple[object, ...]:
        return KeptFiles, (self.inner,)

    def tail(self, key: str, n: int) -> tuple[Buffer, int]:
        """As in `Store`."""
        kept = self._ends.get(key)
        if kept is None or len(kept[0]) < min(n, kept[1]):
            kept = self.inner.tail(key, n)
            self._ends.put(key, kept, len(kept[0]))
        end, size = kept
        return end[max(0, len(end) - n) :], size

    def contains(self, key: str) -> bool:
        """As in `Store`."""
        if key not in self._present and self._ends.get(key) is None:
            if not self.inner.contains(key):
                return False
            self._present.add(key)
        return True

    def look_ahead(self, read: Iterable[str], present: Iterable[str]) -> None:
        """Ask at once for files that will be read, and whether others are there."""

        def begin_to_read(key: str) -> None:
            with suppress(KeyNotFound):
                self.tail(key, _READ_AHEAD)

        tasks: list[Callable[[], object]] = [partial(begin_to_read, key) for key in read]
        tasks += [partial(self.contains, key) for key in present]
        deque(map_in_threads(lambda task: task(), tasks, store=self.inner), maxlen=0)


# --- loading --------------------------------------------------------------------------------------


_CACHE_SIZE = 64

# The latest snapshots that this process has used, by identity of the store and uuid.
_cache = LruCache[tuple[Hashable, str], Snapshot](_CACHE_SIZE)
# Writes to cubes of which there was a warning, by store.
_warned: set[tuple[Hashable, str]] = set()


class HiddenDocument(Struct, frozen=True):
    """A document that no reader sees.

    ``undecided`` is the commit that makes the dataset, of a write to a cube that has not committed.
    None: a vacancy.
    """

    stored: StoredDocument
    undecided: PendingWrite | None

    @property
    def records(self) -> dict[str, Any]:
        """The records that a document in its place keeps."""
        return {k: v for k, v in self.stored.document.metadata.items() if self.undecided is None and k == LEDGER_KEY}

    @property
    def reason(self) -> str:
        """The reason why readers do not see it, for errors."""
        if self.undecided is None:
            return "its document only records that writes to its cube were aborted"
        return f"the write {self.undecided.mark.write} to its cube, which makes it, has not committed"


def remember(store: Store, snapshot: Snapshot) -> Snapshot:
    """Put a snapshot into the cache, e.g. the new one of a commit."""
    # A snapshot of the past has no version: cached, it would be taken for the newest one.
    if snapshot.token is not None and snapshot.undecided is None:
        # The result belongs to the commit that made the snapshot, not to later readers.
        _cache.put((store.identity, snapshot.uuid), replace(snapshot, result=None))
    return snapshot


def last_seen(store: Store, uuid: str) -> Snapshot | None:
    """The snapshot of a dataset in the cache, which may not be the newest any more."""
    return _cache.get((store.identity, uuid))


def remembered(store: Store) -> list[str]:
    """The uuids of the datasets of a store that are in the cache."""
    return [uuid for identity, uuid in _cache if identity == store.identity]


def find_snapshot(store: Store, uuid: str) -> Snapshot | None:
    """The snapshot of a dataset, or None if it does not exist."""
    try:
        return load_snapshot(store, uuid)
    except DatasetNotFound:
        return None


def find_state(store: Store, uuid: str) -> Snapshot | HiddenDocument | None:
    """The state of a dataset as of `load_state`, or None if there is no document."""
    try:
        return load_state(store, uuid)
    except DatasetNotFound:
        return None


def load_snapshot(store: Store, uuid: str) -> Snapshot:
    """The newest snapshot of a dataset, from the cache if its document is unchanged.

    A commit whose write to a cube has not committed is not seen.

    Raises
    ------
    DatasetNotFound
        If neither document exists, or no reader sees it.
    CorruptDocument
        If the document cannot be parsed, or contradicts its key.
    """
    state = load_state(store, uuid)
    if isinstance(state, HiddenDocument):
        raise DatasetNotFound(f"Dataset {uuid!r} does not exist: {state.reason}. Store: {store.name}.")
    return state


def load_state(store: Store, uuid: str) -> Snapshot | HiddenDocument:
    """The newest snapshot of a dataset, or the document that no reader sees.

    Errors as of `load_snapshot` if there is no document.
    """
    cached = _cache.get((store.identity, uuid))
    # A dataset whose document lists no partitions changes with any new file, without its document.
    if cached is not None and cached.document.partitions is not None and is_current(store, cached):
        return cached
    while True:
        try:
            stored = read_document(store, uuid)
        except DatasetNotFound:
            _cache.discard((store.identity, uuid))  # nobody needs to ask again
            raise
        mark, ledger = pending_mark(stored.document), ledger_of(stored.document.metadata)
        if ledger is not None and ledger.is_vacant:
            return HiddenDocument(stored, None)
        if mark is None:
            return remember(store, snapshot_of(store, stored.document, stored.key, stored.token))
        # The coordinator is read after the dataset: what it does not know then had not committed.
        fate = fate_of(mark, uuid, coordinator_document(store, mark.coordinator))
        if fate is Fate.COMMITTED:
            return remember(store, snapshot_of(store, stored.document, stored.key, stored.token))
        state = state_before(store, stored, mark, fate)
        if state is not None:
            return state
        if not store.changed(stored.key, stored.token):
            if (store.identity, mark.write) not in _warned:
                _warned.add((store.identity, mark.write))
                warnings.warn(
                    f"Dataset {uuid!r}: a library without commit ids (kartothek, plateau), or an older version, came "
                    f"between the steps of the write {mark.write} to several datasets, or removed what tells whether "
                    "it has committed. The dataset is read as its document says; other datasets of the cube may lack "
                    "the write. `cube_history` tells; write what they lack.",
                    IncompleteCubeWarning,
                    stacklevel=2,
                )
            return snapshot_of(store, stored.document, stored.key, stored.token)


def is_visible(store: Store, uuid: str) -> bool:
    """Whether a dataset exists for readers; a document that cannot be parsed counts."""
    try:
        stored = read_document(store, uuid)
    except DatasetNotFound:
        return False
    except (CorruptDocument, Unsupported):
        return True
    return not needs_ledger(stored.document) or find_snapshot(store, uuid) is not None


def needs_ledger(document: Document) -> bool:
    """Whether readers may not see a document as it is: a pending write, or a vacancy."""
    ledger = ledger_of(document.metadata)
    return pending_mark(document) is not None or (ledger is not None and ledger.is_vacant)


def coordinator_document(store: Store, uuid: str) -> Document | None:
    """The document of a coordinator, also that of a vacancy; None if there is none."""
    cached = _cache.get((store.identity, uuid))
    if cached is not None and is_current(store, cached):
        return cached.document
    # Twice: while its encoding is being changed, both of its keys may be missed.
    for _ in range(2):
        with suppress(DatasetNotFound):
            return read_document(store, uuid).document
    return None


def state_before(store: Store, stored: StoredDocument, mark: CubeMark, fate: Fate) -> Snapshot | HiddenDocument | None:
    """The state before the write of a pending mark; None if the records do not tell any more."""
    from kartothek_cube.core.metadata.history_entry import document_before

    document, chain = stored.document, chain_of(stored.document.metadata)
    is_overtaken = is_foreign(document.metadata, document.partitions) or chain[-1].id != mark.commit
    if is_overtaken or fate is Fate.UNKNOWN:
        return None
    undecided = PendingWrite(mark, document, fate is Fate.ABORTED)
    if mark.is_new:
        return HiddenDocument(stored, undecided)
    entry = read_entry(store, document.uuid, mark.commit)
    if entry is None:
        return None
    before = document_before(entry, document)
    if before is None:
        return HiddenDocument(stored, undecided)
    before = without_last_commit(before, document)
    state = past_snapshot(store, before, stored.key, document.indices)
    return replace(state, token=stored.token, undecided=undecided)


def is_current(store: Store, snapshot: Snapshot) -> bool:
    """Whether the document of a snapshot is unchanged and still valid."""
    # The fate of an undecided write changes without the document.
    # A state of the past has no version.
    if snapshot.undecided is not None or snapshot.token is None or store.changed(snapshot.key, snapshot.token):
        return False
    # kartothek updates a msgpack document by a JSON document beside it, which is valid then.
    json_key = document_key(snapshot.uuid)
    return snapshot.key == json_key or not store.contains(json_key)


def snapshot_of(store: Store, document: Document, key: str, token: Hashable = None) -> Snapshot:
    """The snapshot of a document; the store has its schemas, and partitions that are not listed."""
    document, partitions = resolve_document(store, document)
    keys = document.partition_keys or ()
    # A foreign writer copies the embedded schemas without updating them.
    embedded = document.metadata.get(SCHEMA_KEY)
    if embedded is not None and not is_foreign(document.metadata, document.partitions):
        found = {t: stored_schema(s) for t, s in parse_embedded_schemas(str(embedded), document.uuid).items()}
    else:
        tables = list(partitions.files)
        if not tables:
            # A dataset without partitions has the tables that have a schema file.
            entries = store.list(f"{document.uuid}/", recursive=True).entries
            tables = sorted({e.key.split("/")[1] for e in entries if e.key.endswith(f"/{SCHEMA_FILE}")})
        found = {}
        for table in tables:
            file = schema_key(document.uuid, table)
            check_named_key(file, document.uuid)
            try:
                found[table] = normal_schema(parse_common_metadata(store.get(file), file))
            except KeyNotFound:
                raise KeyNotFound(
                    f"The schema file {file!r} of dataset {document.uuid!r} is missing in the store {store.name}."
                ) from None
    schemas = {table: ordered(schema, keys) for table, schema in found.items()}
    return make_snapshot(document, key, token, schemas, partitions)


def resolve_document(store: Store, document: Document) -> tuple[Document, PartitionColumns]:
    """The document with its partition keys, and its partitions; what it lacks is in file paths."""
    uuid, partitions = document.uuid, document.partitions
    if partitions is None:
        # The document lists none: every data file below it counts.
        files: dict[str, dict[str, str]] = {}
        depths = set()
        for entry in store.list(f"{uuid}/", recursive=True).entries:
            if not is_data_key(entry.key):
                continue
            key = _decoded(entry.key, uuid)
            depths.add(len(key.pairs))
            label = label_of(key.pairs, str(key.file).removesuffix(DATA_SUFFIX))
            files.setdefault(label, {})[str(key.table)] = entry.key
        if len(depths) > 1:
            raise CorruptDocument(
                f"Dataset {uuid!r} lists no partitions, and its files are at different depths: "
                f"{sorted(depths)} partition columns."
            )
        partitions = from_mapping({label: {"files": by_table} for label, by_table in files.items()}, uuid)
    if document.partition_keys is None:
        # The format lets a document leave them out: they follow from the first data key.
        first = next((f[0].as_py() for f in partitions.files.values() if len(f) and f[0].is_valid), None)
        pairs = _decoded(first, uuid).pairs if first else ()
        document = replace(document, partition_keys=tuple(column for column, _ in pairs))
    return document, partitions


def _decoded(key: str, uuid: str) -> DecodedKey:
    try:
        return decode_key(key)
    except UnicodeDecodeError as error:
        raise CorruptDocument(
            f"The key {key!r} of dataset {uuid!r} is no UTF-8 text once it is decoded: {error}"
        ) from None


# --- indices --------------------------------------------------------------------------------------


def with_indices(store: Store, snapshot: Snapshot, columns: Iterable[str]) -> Snapshot:
    """The snapshot with these secondary indices loaded whole."""
    missing = [c for c in columns if c not in snapshot.indices]
    if not missing:
        return snapshot
    loaded = map_in_threads(lambda column: load_index(store, snapshot, column)[0], missing, store=store)
    return remember(store, snapshot.with_indices(dict(zip(missing, loaded, strict=True))))


def load_index(
    store: Store, snapshot: Snapshot, column: str, clauses: Sequence[Clause] = ()
) -> tuple[SecondaryIndex, bool]:
    """A secondary index, and whether it is whole.

    With ``clauses`` only those row groups of the file are read that may have a matching value.
    """
    if column in snapshot.indices:
        return snapshot.indices[column], True
    if column in snapshot.lost:
        return built_indices(store, snapshot, [column])[column], True
    reference = snapshot.document.indices.get(column)
    if column not in snapshot.document.indices:
        raise InvalidInput(
            f"Dataset {snapshot.uuid!r} has no secondary index on {column!r}, "
            f"only on {sorted(snapshot.document.indices)}."
        )
    data_type = index_type(type_of_column(snapshot.schemas, column, snapshot.uuid), column, snapshot.uuid)
    # Old documents hold the whole index in place of the key of its file.
    if not isinstance(reference, str):
        return _embedded_index(column, data_type, reference, snapshot.uuid), True
    return read_index(store, reference, snapshot.uuid, column, data_type, clauses)


def _embedded_index(column: str, data_type: pa.DataType, mapping: object, uuid: str) -> SecondaryIndex:
    """An index inside the document, which has its values as text."""
    if not isinstance(mapping, Mapping) or not all(isinstance(labels, list) for labels in mapping.values()):
        raise CorruptDocument(
            f"The index on {column!r} of dataset {uuid!r} should be a key or a map from values to lists of labels."
        )
    try:
        values = pa.array(list(mapping), type=pa.string()).cast(data_type)
        labels = pa.array(list(mapping.values()), type=pa.list_(pa.string()))
        return index_from_table(pa.table([values, labels], names=[column, "partition"]), column, data_type, uuid)
    except (pa.ArrowException, TypeError) as error:
        raise CorruptDocument(
            f"The index on {column!r} inside the document of dataset {uuid!r} cannot be read as {data_type}: {error}"
        ) from error
