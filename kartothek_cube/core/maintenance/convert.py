"""Changing the encoding of a dataset's document, safe against whoever commits at the same time."""

from __future__ import annotations

from dataclasses import replace

from kartothek_cube.core.commit import check_store_can_commit
from kartothek_cube.core.document_store import StoredDocument, document_keys, find_documents, put_document
from kartothek_cube.core.metadata.chain import MOVING_KEY
from kartothek_cube.core.metadata.document import Document, parse_document, render_document
from kartothek_cube.core.naming import document_format, fresh_id
from kartothek_cube.core.store import Store, Version, VersionMismatch
from kartothek_cube.errors import CommitConflict, CorruptDocument, InvalidInput

__all__ = ["convert_document", "lock_for_move", "without_mark"]


def convert_document(store: Store, uuid: str, storage_format: str) -> None:
    """Give a dataset's document this encoding, ``"json"`` or ``"msgpack"``.

    1. The old document gets the entry ``kartothek_cube.moving`` by compare-and-swap: whoever has read it before cannot commit
       any more, whoever reads it now does not.
    2. The new document is written, without the entry.
    3. The old one is removed.

    After a crash at any point the dataset can be read, and calling this again ends what was begun.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist.
    InvalidInput
        If the format is unknown, or cannot hold the metadata.
    CommitConflict
        If somebody commits, or converts, at the same time.
    """
    msgpack = document_format(storage_format) == "msgpack"
    check_store_can_commit(store)
    try:
        _convert(store, uuid, document_keys(uuid)[msgpack])
    except VersionMismatch as error:
        raise CommitConflict(f"Dataset {uuid!r} was changed while its document was being converted to {storage_format}: {error} Call it again.") from error


def _convert(store: Store, uuid: str, key: str) -> None:
    found, twin = find_documents(store, uuid)
    if found.key == key:
        _settle(store, found)
        return
    data = _rendered(without_mark(found.document), key)
    marked = lock_for_move(store, found, f"{key} {fresh_id()}")
    # The version of a stale document that the new one replaces.
    stale = twin.token if twin is not None else store.get_versioned(key)[1] if store.contains(key) else None
    token = put_document(store, key, data, stale)
    # Somebody else may have ended this conversion, and begun another.
    if store.changed(found.key, marked) or store.changed(key, token):
        raise store.mismatch(found.key, marked)
    store.delete(found.key)
    # A store cannot delete on condition: who wrote the old key in the last moment has removed the new one as a stale twin.
    if not store.contains(key) and not store.contains(found.key):
        put_document(store, key, data, None)


def _settle(store: Store, found: StoredDocument) -> None:
    """The document has the encoding already: what an interrupted conversion, or another library, left is cleared away."""
    if MOVING_KEY in found.document.metadata:
        put_document(store, found.key, _rendered(without_mark(found.document), found.key), found.token)
    json_key, msgpack_key = document_keys(found.document.uuid)
    if found.key == json_key and store.contains(msgpack_key):
        store.delete(msgpack_key)


def lock_for_move(store: Store, found: StoredDocument, mark: str) -> Version:
    """Put the document with a mark that keeps everybody from committing onto it; `VersionMismatch` if it was changed."""
    marked = replace(found.document, metadata={**found.document.metadata, MOVING_KEY: mark})
    return put_document(store, found.key, _rendered(marked, found.key), found.token)


def without_mark(document: Document) -> Document:
    """The document as it was before it was marked."""
    return replace(document, metadata={k: v for k, v in document.metadata.items() if k != MOVING_KEY})


def _rendered(document: Document, key: str) -> bytes:
    try:
        data = render_document(document, msgpack=key.endswith(".zstd"))
        parse_document(data, key)
    except (TypeError, ValueError, OverflowError, CorruptDocument) as error:
        raise InvalidInput(f"The document of dataset {document.uuid!r} cannot be written as {key!r}: {error}") from error
    return data
