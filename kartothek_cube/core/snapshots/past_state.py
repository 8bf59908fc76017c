"""States of the past, as a history entry and an older document describe them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from kartothek_cube.core.metadata.commit_log import SCHEMA_KEY
from kartothek_cube.core.metadata.document import Document
from kartothek_cube.core.metadata.history_entry import HistoryEntry, decode_entry, history_key
from kartothek_cube.core.metadata.naming import index_key
from kartothek_cube.core.metadata.snapshot import Snapshot, make_snapshot, parse_embedded_schemas
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.errors import CorruptDocument, KeyNotFound

__all__ = ["past_snapshot", "read_entry"]

# In the key of an index file that was never written.
_NEVER = datetime(1970, 1, 1)  # noqa: DTZ001 - as in the keys of indices


def read_entry(store: Store, uuid: str, commit: str) -> HistoryEntry | None:
    """The entry of one commit; None if it is not kept.

    Raises
    ------
    CorruptDocument
        If it cannot be read.
    """
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
