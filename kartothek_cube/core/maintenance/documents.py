"""Both documents of a dataset as they lie in the store, and putting one on condition."""

from __future__ import annotations

from dataclasses import dataclass

from kartothek_cube.core.metadata.chain import chain_of
from kartothek_cube.core.metadata.document import Document, parse_document
from kartothek_cube.core.naming import document_key
from kartothek_cube.core.store import Store, Version, VersionMismatch
from kartothek_cube.errors import CommitOutcomeUnknown, CorruptDocument, DatasetNotFound, KeyNotFound, Unsupported

__all__ = ["StoredDocument", "dataset_exists", "document_keys", "find_document", "find_documents", "holds", "put_document"]

_READS_BEFORE_CORRUPT = 3
_SAME_PUT_TRIES = 3


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document and where it was read: its key and the store's version of it."""

    key: str
    token: Version
    document: Document


def document_keys(uuid: str) -> tuple[str, str]:
    """The keys of both encodings; of two documents the first, in JSON, counts."""
    return document_key(uuid), document_key(uuid, msgpack=True)


def dataset_exists(store: Store, uuid: str) -> bool:
    """Whether a dataset has a document, in either encoding."""
    return any(store.contains(key) for key in document_keys(uuid))


def find_document(store: Store, key: str) -> StoredDocument | None:
    """One document, or None. A torn write of an old local writer heals within a few reads."""
    for attempt in range(_READS_BEFORE_CORRUPT):
        try:
            data, token = store.get_versioned(key)
            return StoredDocument(key, token, parse_document(data, key))
        except KeyNotFound:
            return None
        except CorruptDocument:
            if attempt == _READS_BEFORE_CORRUPT - 1:
                raise
    return None


def find_documents(store: Store, uuid: str) -> tuple[StoredDocument, StoredDocument | None]:
    """The document that counts and, where there is a readable one in the other encoding, its twin.

    Raises
    ------
    DatasetNotFound
        If there is none.
    CorruptDocument
        If the one that counts cannot be read.
    """
    json_key, msgpack_key = document_keys(uuid)
    first = find_document(store, json_key)
    if first is not None:
        return first, _twin(store, msgpack_key)
    only = find_document(store, msgpack_key)
    if only is None:
        raise DatasetNotFound(f"Dataset does not exist. Tried {json_key} and {msgpack_key} in the store {store.name}.")
    return only, None


def _twin(store: Store, key: str) -> StoredDocument | None:
    try:
        return find_document(store, key)
    except (CorruptDocument, Unsupported):
        return None


def put_document(store: Store, key: str, data: bytes, version: Version | None, commit: str | None = None) -> Version:
    """Put a document if the key has this version (None: nothing), and the version that it has then.

    An error says little about what became of a put: what lies there says whether it landed. ``commit`` is the id of a commit that
    only this document has; it is found again although somebody has committed onto it in between.

    Raises
    ------
    VersionMismatch
        If somebody else was there before.
    CommitOutcomeUnknown
        If the store does not say whether the document was written and cannot be asked. Nothing is deleted.
    """
    failure: Exception = CommitOutcomeUnknown(key)
    for _ in range(_SAME_PUT_TRIES):
        try:
            return store.put_if(key, data, version)
        except Exception as error:
            failure = error
        found, token = _look(store, key, failure)
        if found is not None and holds(found, data, key, commit):
            return token
        if token != version:
            raise store.mismatch(key, version) from failure
        if not isinstance(failure, (OSError, VersionMismatch)):
            break
    raise failure


def _look(store: Store, key: str, failure: Exception) -> tuple[bytes | None, Version | None]:
    try:
        return store.get_versioned(key)
    except KeyNotFound:
        return None, None
    except Exception as error:
        raise CommitOutcomeUnknown(
            f"The store {store.name} answered {failure!r} to a write of {key!r} and cannot be read now ({error!r}). Look at it before writing again."
        ) from failure


def holds(found: bytes, data: bytes, key: str, commit: str | None) -> bool:
    """Whether the bytes of a document are these, or those of a document that was made from it."""
    if found == data or commit is None:
        return found == data
    try:
        return commit in [c.id for c in chain_of(parse_document(found, key).metadata)]
    except (CorruptDocument, Unsupported):
        return False
