"""Conversion of a dataset's document to the other encoding, safe against concurrent commits."""

from __future__ import annotations

from dataclasses import replace

from kartothek_cube.core.commit.commit import check_store_can_commit
from kartothek_cube.core.metadata.commit_log import MOVING_KEY
from kartothek_cube.core.metadata.document import Document, parse_document, render_document
from kartothek_cube.core.metadata.naming import document_format, new_id
from kartothek_cube.core.snapshots.documents import StoredDocument, document_keys, find_documents, put_document
from kartothek_cube.core.stores.contract import Store, Version, VersionMismatch
from kartothek_cube.errors import CommitConflict, CorruptDocument, InvalidInput

__all__ = ["convert_document", "lock_for_move", "without_mark"]


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
