"""History entries as garbage collection sees them: when they were made, and which files they protect."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from kartothek_cube.core.metadata.history import HISTORY_FOLDER, decode_entry
from kartothek_cube.core.parallel import map_in_threads
from kartothek_cube.core.store import Entry, Store
from kartothek_cube.errors import KeyNotFound

__all__ = ["HistoryInfo", "is_entry_key", "read_past"]

_ENTRY = re.compile(rf"[^/]+/{HISTORY_FOLDER}/[^/]+\.json\.zst")


@dataclass(frozen=True, slots=True)
class HistoryInfo:
    """A history entry: the later of its own time and the object's (None if neither is known), and the keys that it names.

    One that cannot be read protects nothing.
    """

    moment: datetime | None
    files: tuple[str, ...] = ()
    index_files: tuple[str, ...] = ()
    readable: bool = True


def is_entry_key(key: str) -> bool:
    """Whether a key is that of a history entry of some dataset."""
    return _ENTRY.fullmatch(key) is not None


def read_past(store: Store, entries: Iterable[Entry], known: Mapping[str, HistoryInfo]) -> dict[str, HistoryInfo]:
    """The history entries among these objects by key, read in parallel; one call each, none for those that were read before."""
    wanted = [e for e in entries if is_entry_key(e.key) and not (e.key in known and known[e.key].readable)]
    found = map_in_threads(lambda entry: _read(store, entry), wanted, store=store)
    return {**known, **{entry.key: past for entry, past in zip(wanted, found, strict=True) if past is not None}}


def _read(store: Store, entry: Entry) -> HistoryInfo | None:
    """None if it has gone since it was listed."""
    try:
        found = decode_entry(store.get(entry.key), entry.key)
    except KeyNotFound:
        return None
    except (ValueError, OverflowError, pa.ArrowException):  # also `CorruptDocument`; not an error of the store
        return HistoryInfo(entry.modified, readable=False)
    moment = found.time if entry.modified is None else max(found.time, entry.modified)
    return HistoryInfo(moment, tuple(found.files), tuple(found.index_files))
