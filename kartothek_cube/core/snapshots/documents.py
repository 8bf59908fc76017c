"""Metadata documents in a store, and the schema files beside them.

In order:

- documents: reads that survive torn writes, compare-and-swap
- schema files: created with a dataset, updated after a commit
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache

import pyarrow as pa
from msgspec import Struct

from kartothek_cube.core.arrow.types import normal_schema, unify
from kartothek_cube.core.metadata.document import Document, parse_document
from kartothek_cube.core.metadata.naming import document_key
from kartothek_cube.core.metadata.snapshot import common_metadata_bytes, is_plain, parse_common_metadata
from kartothek_cube.core.stores.contract import Store, Version, VersionMismatch
from kartothek_cube.errors import (
    CommitOutcomeUnknown,
    CorruptDocument,
    DatasetNotFound,
    InvalidInput,
    KeyNotFound,
    Unsupported,
)

# Reads of a document that cannot be parsed, before it is called corrupt.
_READS_BEFORE_CORRUPT = 3
_SAME_PUT_TRIES = 3


class StoredDocument(Struct, frozen=True):
    """A document with its key and the version that the store gave it."""

    key: str
    token: Version
    document: Document


class SwapResult(Struct, frozen=True):
    """The outcome of a compare-and-swap, and the object that the key holds after it.

    Attributes
    ----------
    applied : bool
        Whether the object is the one that was put, or a later writer's successor of it.
    data : bytes | None
        The object; None if there is none.
    version : Version | None
        The version of the object; None if there is none.
    error : Exception | None
        The error of the put; None if the store confirmed the put.
    """

    applied: bool
    data: bytes | None
    version: Version | None
    error: Exception | None = None


# --- reading --------------------------------------------------------------------------------------


def document_keys(uuid: str) -> tuple[str, str]:
    """The keys of both encodings. If both documents exist, the first one, in JSON, is valid."""
    return document_key(uuid), document_key(uuid, msgpack=True)


def dataset_exists(store: Store, uuid: str) -> bool:
    """Whether a dataset has a document, in either encoding, also one that no reader sees."""
    return any(store.contains(key) for key in document_keys(uuid))


def find_document(store: Store, key: str) -> StoredDocument | None:
    """The document under one key, or None.

    Raises
    ------
    CorruptDocument
        If the document cannot be parsed, even after several reads.
    """
    for attempt in range(1, _READS_BEFORE_CORRUPT + 1):
        try:
            data, token = store.get_versioned(key)
            return StoredDocument(key, token, parse_document(data, key))
        except KeyNotFound:
            return None
        except CorruptDocument:
            # Older libraries write local files in place, so a reader may see half of a document.
            if attempt == _READS_BEFORE_CORRUPT:
                raise
    return None


def read_document(store: Store, uuid: str) -> StoredDocument:
    """The valid document of a dataset.

    Raises
    ------
    DatasetNotFound
        If there is no document.
    CorruptDocument
        If the document cannot be parsed, or contradicts its key.
    """
    stored = _valid_document(store, uuid)
    if stored.document.uuid != uuid:
        raise CorruptDocument(
            f"The document {stored.key} says that its dataset is {stored.document.uuid!r}, but its key says {uuid!r}."
        )
    return stored


def find_documents(store: Store, uuid: str) -> tuple[StoredDocument, StoredDocument | None]:
    """The valid document, and the stale one in the other encoding if it can be read.

    Raises
    ------
    DatasetNotFound
        If there is no document.
    CorruptDocument
        If the valid document cannot be parsed.
    """
    stored = _valid_document(store, uuid)
    json_key, msgpack_key = document_keys(uuid)
    if stored.key != json_key:
        return stored, None
    try:
        return stored, find_document(store, msgpack_key)
    except (CorruptDocument, Unsupported):
        return stored, None


def _valid_document(store: Store, uuid: str) -> StoredDocument:
    json_key, msgpack_key = document_keys(uuid)
    for key in (json_key, msgpack_key):
        stored = find_document(store, key)
        if stored is not None:
            return stored
    raise DatasetNotFound(f"Dataset does not exist. Tried {json_key} and {msgpack_key} in the store {store.name}.")


# --- writing --------------------------------------------------------------------------------------


def compare_and_swap(
    store: Store,
    key: str,
    data: bytes,
    version: Version | None,
    *,
    is_applied: Callable[[bytes], bool],
    context: str,
) -> SwapResult:
    """Put an object if its key still has ``version``, and find out whether the put was applied.

    Parameters
    ----------
    store : Store
        Where to put it.
    key, data : str, bytes
        The object.
    version : Version | None
        The version that the key must have; None if there must be no object.
    is_applied : Callable[[bytes], bool]
        Whether the present object is ``data``, or a later writer's successor of it.
    context : str
        What is being written, for error messages.

    Raises
    ------
    CommitOutcomeUnknown
        If the store fails and the key cannot be read afterwards. Nothing is deleted.
    Exception
        The error of the store if it failed and the object is still the old one.
    """
    error: Exception = CommitOutcomeUnknown(key)
    result = SwapResult(False, None, None)
    for _ in range(_SAME_PUT_TRIES):
        try:
            return SwapResult(True, data, store.put_if(key, data, version))
        except Exception as answer:
            # The put may have been applied although its answer was lost. Only the object tells.
            error = answer
        stored: bytes | None = None
        now: Version | None = None
        try:
            stored, now = store.get_versioned(key)
        except KeyNotFound:
            pass  # there is no object
        except Exception as failure:
            raise CommitOutcomeUnknown(
                f"{context}: the store {store.name} answered {error!r} and cannot be read now ({failure!r}). "
                f"Check {key!r} before writing again."
            ) from error
        result = SwapResult(stored is not None and is_applied(stored), stored, now, error)
        if result.applied or now != version:
            return result
        # The object is still the old one: the put can be sent again, as at most one is applied.
        if not isinstance(error, (OSError, VersionMismatch)):
            break
    if isinstance(error, VersionMismatch):
        return result
    raise error


def put_document(
    store: Store,
    key: str,
    data: bytes,
    version: Version | None,
    is_applied: Callable[[bytes], bool] | None = None,
) -> Version:
    """Put a document if its key still has ``version`` (None: no document); return its new version.

    Without ``is_applied`` the put counts as applied if the key holds the same bytes.

    Raises
    ------
    VersionMismatch
        If another writer was faster.
    CommitOutcomeUnknown
        If the store fails and the key cannot be read afterwards. Nothing is deleted.
    """
    same = is_applied or (lambda stored: stored == data)
    result = compare_and_swap(store, key, data, version, is_applied=same, context=f"Writing {key!r}")
    if not result.applied:
        raise store.mismatch(key, version) from result.error
    return result.version


# --- schema files ---------------------------------------------------------------------------------


def create_schema_file(store: Store, key: str, schema: pa.Schema) -> None:
    """Write the schema file of a new dataset, unless there is one."""
    # Another creator or a crash may have left one. The commit that wins replaces it if necessary.
    data = common_metadata_bytes(schema)
    if not store.capabilities.conditional_put:
        store.put(key, data)
        return
    with suppress(VersionMismatch):
        store.put_if(key, data, None)


class SchemaFile(Struct, frozen=True):
    """What a schema file says now: whether all of a schema, and the version that replaces it."""

    covers: bool
    token: Version | None


def look_at_schema_file(store: Store, key: str, schema: pa.Schema) -> SchemaFile | None:
    """Whether kartothek's copy of a schema has all columns of another one; None: nobody can say."""
    token = None
    try:
        data, token = store.get_versioned(key)
        (stored, plain), normal = _stored(data, key), normal_schema(schema)
        # A commit that landed later may have added columns already.
        with suppress(InvalidInput):
            covers = stored.names == normal.names and unify([stored, normal], "").equals(stored)
            return SchemaFile(covers and plain, token)
    except (KeyNotFound, CorruptDocument, Unsupported):
        pass  # it is written, or replaced
    except Exception:  # it is looked at again when it is updated
        return None
    return SchemaFile(False, token)


def update_schema_file(
    store: Store,
    key: str,
    schema: pa.Schema,
    seen: SchemaFile | None = None,
    is_newest: Callable[[], bool] = lambda: True,
) -> None:
    """Update kartothek's copy of the schema, which only ever changes after the document.

    ``seen`` is the file as it was before; who changed it since is asked again. Then the schema of
    the newest state rules, and whoever has written that state sees to it.
    """
    found = look_at_schema_file(store, key, schema) if seen is None else seen
    if found is None or found.covers:
        return
    try:
        store.put_if(key, common_metadata_bytes(schema), found.token)
    except VersionMismatch:
        # Another commit has just written it. The next commit checks again.
        if seen is not None and is_newest():
            update_schema_file(store, key, schema)


@lru_cache(maxsize=64)
def _stored(data: bytes, key: str) -> tuple[pa.Schema, bool]:
    """The schema of a file, and whether kartothek reads its types. Each commit asks again."""
    return normal_schema(parse_common_metadata(data, key)), is_plain(data)
