"""Schema files in a store: made for a new dataset, brought up to date after a commit."""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa

from kartothek_cube.core.arrow.schema import normal_schema, unify
from kartothek_cube.core.metadata.schema_file import common_metadata_bytes, is_plain, parse_common_metadata
from kartothek_cube.core.stores.contract import Store, VersionMismatch
from kartothek_cube.errors import CorruptDocument, InvalidInput, KeyNotFound, Unsupported

__all__ = ["create_schema_file", "update_schema_file"]


def create_schema_file(store: Store, key: str, schema: pa.Schema) -> None:
    """The schema file of a new dataset; one that is there, of a crash or of another creator, waits for who wins."""
    data = common_metadata_bytes(schema)
    if not store.capabilities.conditional_put:
        store.put(key, data)
        return
    with suppress(VersionMismatch):
        store.put_if(key, data, None)


def update_schema_file(store: Store, key: str, schema: pa.Schema) -> None:
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
    """Whether nothing is to be added.

    A commit that landed after this one may have made the file wider already.
    """
    try:
        return bool(stored.names == schema.names and unify([stored, schema], "").equals(stored))
    except InvalidInput:
        return False
