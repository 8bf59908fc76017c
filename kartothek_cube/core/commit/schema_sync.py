"""Schema files in a store: created for a new dataset, updated after a commit."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache

import pyarrow as pa

from kartothek_cube.core.arrow.types import normal_schema, unify
from kartothek_cube.core.metadata.snapshot import common_metadata_bytes, is_plain, parse_common_metadata
from kartothek_cube.core.stores.contract import Store, VersionMismatch
from kartothek_cube.errors import CorruptDocument, InvalidInput, KeyNotFound, Unsupported

__all__ = ["create_schema_file", "update_schema_file"]


def create_schema_file(store: Store, key: str, schema: pa.Schema) -> None:
    """Write the schema file of a new dataset, unless there is one."""
    # Another creator or a crash may have left one. The commit that wins replaces it if necessary.
    data = common_metadata_bytes(schema)
    if not store.capabilities.conditional_put:
        store.put(key, data)
        return
    with suppress(VersionMismatch):
        store.put_if(key, data, None)


def update_schema_file(store: Store, key: str, schema: pa.Schema) -> None:
    """Update kartothek's copy of the schema, which only ever changes after the document."""
    token = None
    try:
        data, token = store.get_versioned(key)
        (stored, plain), normal = _stored(data, key), normal_schema(schema)
        # A commit that landed after this one may have added columns already.
        with suppress(InvalidInput):
            covers = stored.names == normal.names and unify([stored, normal], "").equals(stored)
            if covers and plain:
                return
    except (KeyNotFound, CorruptDocument, Unsupported):
        pass  # it is written, or replaced
    # On a mismatch another commit has just written it. The next commit checks again.
    with suppress(VersionMismatch):
        store.put_if(key, common_metadata_bytes(schema), token)


@lru_cache(maxsize=64)
def _stored(data: bytes, key: str) -> tuple[pa.Schema, bool]:
    """The schema of a file, and whether kartothek reads its types. Each commit asks again."""
    return normal_schema(parse_common_metadata(data, key)), is_plain(data)
