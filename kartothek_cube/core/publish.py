"""Publishing: make a change visible by one compare-and-swap of the metadata document, and find out what became of it."""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from kartothek_cube.core.change import Change, NewState, apply_change
from kartothek_cube.core.index import INDEX_ROWS, SecondaryIndex, index_table
from kartothek_cube.core.metadata.chain import MOVING_KEY, Commit, chain_of
from kartothek_cube.core.metadata.document import Document, parse_document, render_document
from kartothek_cube.core.metadata.snapshot import Snapshot, make_snapshot
from kartothek_cube.core.naming import document_key, index_key, schema_key
from kartothek_cube.core.options import current_options
from kartothek_cube.core.parallel import run
from kartothek_cube.core.parquet import ParquetFormat
from kartothek_cube.core.schema import normal_schema, unify
from kartothek_cube.core.schema_file import common_metadata_bytes, is_plain, parse_common_metadata
from kartothek_cube.core.snapshots import is_current, load_snapshot, remember, with_indices
from kartothek_cube.core.store import Store, VersionMismatch
from kartothek_cube.errors import (
    AtomicityRequired,
    CommitConflict,
    CommitOutcomeUnknown,
    CorruptDocument,
    InvalidInput,
    KeyNotFound,
    ReadOnlyStore,
    Unsupported,
)

__all__ = ["check_base", "check_store_can_commit", "index_bytes", "publish", "put_index"]

_SAME_PUT_TRIES = 3


def check_store_can_commit(store: Store) -> None:
    """Refuse a store that cannot be written to or cannot compare and swap, before anything is prepared for it."""
    if not store.capabilities.writable:
        raise ReadOnlyStore(f"The store {store.name} cannot be written to.")
    if not store.capabilities.conditional_put and current_options().require_atomic:
        raise AtomicityRequired(
            f"The store {store.name} cannot put a document on condition, so two writers could overwrite each other. "
            "If there is certainly one writer, say options(require_atomic=False)."
        )


def check_base(store: Store, change: Change, base: Snapshot | None) -> None:
    """Raise `CommitConflict` if the dataset is not as it was when the change was made."""
    if base is not None and MOVING_KEY in base.document.metadata:
        raise CommitConflict(
            f"Dataset {change.uuid!r} is being renamed, or the encoding of {base.key!r} is being changed. If nobody does so now, it was interrupted: "
            "repeat it, or call convert_metadata_format with the present encoding to free the dataset. Nothing of this write is visible."
        )
    if base is not None and not is_current(store, base):
        _raise_conflict(store, change, base.key)


def publish(store: Store, change: Change, base: Snapshot | None) -> Snapshot:
    """Publish a change onto the snapshot it was made for.

    Order of writes: for a new dataset the schema file; index files under fresh keys; the document, by compare-and-swap;
    the schema file where it differs.

    Raises
    ------
    CommitConflict
        If the dataset has changed since ``base`` was read. The change is certainly not visible.
    CommitOutcomeUnknown
        If the store does not say whether the document was written and cannot be asked. Nothing is deleted.
    AtomicityRequired
        If the store cannot compare and swap.
    """
    check_store_can_commit(store)
    check_base(store, change, base)
    base = _with_needed_indices(store, change, base)
    state = apply_change(change, base)
    if base is None:
        for table, schema in state.schemas.items():
            _create_schema_file(store, schema_key(change.uuid, table), schema)
    document = replace(state.document, indices={**state.document.indices, **_put_indices(store, change.uuid, state)})
    twin = _stale_twin(store, change, base)
    key, token = _swap(store, change, base, document)
    if base is None:
        _withdraw_before(store, change, key)
    _drop_msgpack(store, change.uuid, twin)
    if token is None:
        return load_snapshot(store, change.uuid)
    for table, schema in state.schemas.items():
        with suppress(Exception):  # the commit has landed; whoever commits next looks at this copy of the schema again
            _update_schema_file(store, schema_key(change.uuid, table), schema)
    snapshot = make_snapshot(document, key, token, state.schemas)
    return remember(store, snapshot.with_indices(_known_indices(base, change, state)))


def _with_needed_indices(store: Store, change: Change, base: Snapshot | None) -> Snapshot | None:
    if base is None or change.replace or not (change.receipts or len(change.removed)):
        return base
    outdated = sorted(base.secondary_columns - set(change.index_columns) - change.dropped)
    if outdated:
        raise InvalidInput(f"Dataset {change.uuid!r} has secondary indices on {outdated}, which this change would leave outdated.")
    return with_indices(store, base, base.secondary_columns & set(change.index_columns))


def _known_indices(base: Snapshot | None, change: Change, state: NewState) -> dict[str, SecondaryIndex]:
    old = {} if base is None or change.replace else {c: index for c, index in base.indices.items() if c not in change.dropped}
    return {**old, **state.indices}


def _put_indices(store: Store, uuid: str, state: NewState) -> dict[str, str]:
    now = datetime.now(UTC).replace(tzinfo=None)
    columns = list(state.indices)
    keys = run(lambda c: put_index(store, uuid, state.indices[c], now), columns)
    return dict(zip(columns, keys, strict=True))


def index_bytes(index: SecondaryIndex) -> memoryview:
    """The index file."""
    return memoryview(ParquetFormat(compression="ZSTD", chunk_size=INDEX_ROWS).encode(index_table(index)))


def put_index(store: Store, uuid: str, index: SecondaryIndex, when: datetime) -> str:
    """Write an index file under a key that nobody else has: where it exists, the time moves by a microsecond."""
    data = index_bytes(index)
    while True:
        key = index_key(uuid, index.column, when)
        if not store.capabilities.conditional_put:
            store.put(key, data)
            return key
        try:
            store.put_if(key, data, None)
        except VersionMismatch:
            when += timedelta(microseconds=1)
        else:
            return key


def _swap(store: Store, change: Change, base: Snapshot | None, document: Document) -> tuple[str, Hashable]:
    key = _own_key(change, base)
    data = render_document(document, msgpack=key.endswith(".zstd"))
    return key, _put_until_known(store, change, key, data, None if base is None else base.token)


def _own_key(change: Change, base: Snapshot | None) -> str:
    """Key of the document: a new one has the encoding that was asked for, one that exists keeps its own."""
    return document_key(change.uuid, msgpack=change.msgpack) if base is None else base.key


def _stale_twin(store: Store, change: Change, base: Snapshot | None) -> Hashable:
    """Version of the msgpack document that an old library left beside the JSON one that is about to be written; None if there is none.

    Beside a new document it is no stale one: somebody has created the same dataset since.
    """
    key, json_key, msgpack_key = _own_key(change, base), document_key(change.uuid), document_key(change.uuid, msgpack=True)
    if key != json_key:
        return None
    if base is None:
        return _raise_conflict(store, change, msgpack_key) if store.contains(msgpack_key) else None
    try:
        return store.get_versioned(msgpack_key)[1]
    except KeyNotFound:
        return None


def _drop_msgpack(store: Store, uuid: str, twin: Hashable) -> None:
    """Unless it is another one than before the commit: somebody may have changed the dataset's encoding since."""
    key = document_key(uuid, msgpack=True)
    with suppress(Exception):  # the commit has landed; the next one looks again
        if twin is None or store.changed(key, twin):
            return
        store.delete(key)
        warnings.warn(f"Dataset {uuid!r} had two documents. {document_key(uuid)!r} counts; {key!r} was removed.", stacklevel=2)


def _withdraw_before(store: Store, change: Change, key: str) -> None:
    """Of two creators who write documents of different encodings, whoever sees the other's gives up; so at most one has created the dataset."""
    other = document_key(change.uuid, msgpack=key == document_key(change.uuid))
    try:
        found = store.contains(other)
        if found:
            store.delete(key)
    except Exception as error:
        raise CommitOutcomeUnknown(
            f"Dataset {change.uuid!r}: {key!r} was written by {change.describe()}, but whether {other!r} was created at the same time cannot be asked now "
            f"({error!r}). Look which of them are there before writing again."
        ) from error
    if found:
        _raise_conflict(store, change, other)


def _put_until_known(store: Store, change: Change, key: str, data: bytes, version: Hashable) -> Hashable:
    """Put on condition, and the version that our document has; None if others have committed onto it since.

    An answer that is an error says little: the document itself says whether our commit is in it.
    """
    failure: Exception = CommitOutcomeUnknown(key)
    for _ in range(_SAME_PUT_TRIES):
        try:
            return store.put_if(key, data, version)
        except Exception as error:
            failure = error
        found, token = _look(store, change, key, failure)
        if change.commit in [c.id for c in found]:
            return token if found[-1].id == change.commit else None
        if token != version:
            _raise_conflict(store, change, key, failure)
        # The document is still the one that we started from: the same put again, of which at most one can win.
        if not isinstance(failure, (OSError, VersionMismatch)):
            break
    if isinstance(failure, VersionMismatch):
        _raise_conflict(store, change, key, failure)
    raise failure


def _look(store: Store, change: Change, key: str, failure: Exception) -> tuple[tuple[Commit, ...], Hashable]:
    try:
        data, token = store.get_versioned(key)
    except KeyNotFound:
        return (), None
    except Exception as error:
        raise CommitOutcomeUnknown(
            f"Dataset {change.uuid!r}: the store {store.name} answered {failure!r} to {change.describe()} and cannot be read now ({error!r}). "
            f"Look at {key!r} for the commit id before writing again."
        ) from failure
    return _chain_in(data, key), token


def _chain_in(data: bytes, key: str) -> tuple[Commit, ...]:
    try:
        return chain_of(parse_document(data, key).metadata)
    except (CorruptDocument, Unsupported):
        return ()


def _raise_conflict(store: Store, change: Change, key: str, cause: Exception | None = None) -> Any:
    try:
        chain = _chain_in(store.get(key), key)
        other = f"commit {chain[-1].id}" if chain else "a writer without commit ids"
    except KeyNotFound:
        other = "a deletion"
    except Exception:
        other = "an unknown change"  # that there is one is certain
    raise CommitConflict(
        f"Dataset {change.uuid!r}: {change.describe()} was made for an older state of {key!r}; {other} came first. "
        "Nothing of it is visible. Read the dataset again and repeat the write."
    ) from cause


def _create_schema_file(store: Store, key: str, schema: pa.Schema) -> None:
    """The schema file of a new dataset; one that is there, of a crash or of another creator, waits for who wins."""
    data = common_metadata_bytes(schema)
    if not store.capabilities.conditional_put:
        store.put(key, data)
        return
    with suppress(VersionMismatch):
        store.put_if(key, data, None)


def _update_schema_file(store: Store, key: str, schema: pa.Schema) -> None:
    """Bring kartothek's copy of the schema up to date; it only ever changes after the document."""
    token = None
    try:
        data, token = store.get_versioned(key)
        if _covers(normal_schema(parse_common_metadata(data, key)), normal_schema(schema)) and is_plain(data):
            return
    except (KeyNotFound, CorruptDocument, Unsupported):
        pass  # to be written, or to be replaced
    # A mismatch is another commit of ours that has just written it; the next one looks again.
    with suppress(VersionMismatch):
        store.put_if(key, common_metadata_bytes(schema), token)


def _covers(stored: pa.Schema, schema: pa.Schema) -> bool:
    """Whether nothing is to be added. A commit that landed after this one may have made the file wider already."""
    try:
        return bool(stored.names == schema.names and unify([stored, schema], "").equals(stored))
    except InvalidInput:
        return False
