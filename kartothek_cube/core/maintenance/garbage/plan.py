"""Which files are garbage and old enough to go: what history protects, ages, and the order of removal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from kartothek_cube.core.io.file_format import INDEX_SUFFIX
from kartothek_cube.core.maintenance.garbage.first_seen import is_mark_key
from kartothek_cube.core.maintenance.garbage.report import (
    DAMAGED_HISTORY,
    HISTORY,
    INDEX,
    KEPT,
    SCHEMA,
    UNNAMED,
    GarbageFile,
)
from kartothek_cube.core.metadata.history_entry import HISTORY_FOLDER, decode_entry
from kartothek_cube.core.metadata.naming import SCHEMA_FILE
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.stores.contract import Entry, Store
from kartothek_cube.errors import KeyNotFound

__all__ = ["GarbagePlan", "HistoryInfo", "RetentionPolicy", "is_entry_key", "plan_garbage", "read_past"]

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


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """How old is old: ``now`` is UTC, by the clock of this machine; ``grace`` and ``retain`` as in the options."""

    now: datetime
    grace: timedelta
    retain: timedelta

    def before(self, age: timedelta) -> datetime:
        """The moment since when a file has this age."""
        try:
            return self.now - age
        except OverflowError:
            return datetime.min.replace(tzinfo=UTC)

    @property
    def longest(self) -> timedelta:
        """How long history entries are kept."""
        return max(self.retain, self.grace)

    def is_old(self, moment: datetime | None, age: timedelta) -> bool:
        """Whether a file of this moment has this age; an unknown moment is not old, and one in the future neither."""
        return not age or (moment is not None and moment <= self.before(age))

    def keeps(self, past: HistoryInfo) -> bool:
        """Whether a history entry is kept: it can be read, and is younger than the longer of the two periods."""
        return past.readable and not self.is_old(past.moment, self.longest)

    def protected(self, past: Iterable[HistoryInfo]) -> set[str]:
        """Keys that kept history entries name; superseded index files only for the time of grace."""
        kept = [p for p in past if self.keeps(p)]
        recent = [p for p in kept if not self.is_old(p.moment, self.grace)]
        return {key for p in kept for key in p.files} | {key for p in recent for key in p.index_files}


@dataclass(frozen=True, slots=True)
class GarbagePlan:
    """What may go and what waits.

    ``pending`` are those of the waiting keys whose age only a mark can tell.
    """

    old: Sequence[GarbageFile]
    waiting: Sequence[GarbageFile]
    pending: frozenset[str]

    def phases(self) -> list[list[str]]:
        """Keys that go together: history entries, then the files that they named, then schema files, by which the folders of old tables are known."""
        phases: list[list[str]] = [[], [], []]
        for file in self.old:
            phases[0 if is_entry_key(file.key) else 2 if _is_schema(file.key) else 1].append(file.key)
        return phases


def plan_garbage(
    found: Iterable[Entry], past: Mapping[str, HistoryInfo], marked: Mapping[str, datetime], policy: RetentionPolicy
) -> GarbagePlan:
    """What becomes of each object that no document names.

    Parameters
    ----------
    found : iterable of Entry
        Objects that no current document names; also history entries, and marks, of which nothing is
        said.
    past : Mapping[str, HistoryInfo]
        History entries by key, also of keys that are not among ``found``.
    marked : Mapping[str, datetime]
        Since when keys are marked.
    policy : RetentionPolicy
        How old is old.
    """
    protected = policy.protected(past.values())
    old: list[GarbageFile] = []
    waiting: list[GarbageFile] = []
    for entry in found:
        moment = marked.get(entry.key) if entry.modified is None else entry.modified
        why = KEPT if entry.key in protected else _why(entry.key, past, policy)
        if why is not None:
            goes = why == HISTORY or (
                why != KEPT and policy.is_old(moment, policy.longest if why == DAMAGED_HISTORY else policy.grace)
            )
            file = GarbageFile(
                entry.key, entry.size, entry.modified, why, None if moment is None else policy.now - moment
            )
            (old if goes else waiting).append(file)
    old, held = _without_busy_schemas(old, waiting)
    waiting += held
    return GarbagePlan(old, waiting, frozenset(f.key for f in waiting if f.modified is None and f.why != KEPT))


def _why(key: str, past: Mapping[str, HistoryInfo], policy: RetentionPolicy) -> str | None:
    """Why a key is garbage; None if it is not, or has gone already."""
    if is_mark_key(key):
        return None
    if not is_entry_key(key):
        return INDEX if key.endswith(INDEX_SUFFIX) else SCHEMA if _is_schema(key) else UNNAMED
    if key not in past or policy.keeps(past[key]):
        return None
    return HISTORY if past[key].readable else DAMAGED_HISTORY


def _is_schema(key: str) -> bool:
    return key.endswith(f"/{SCHEMA_FILE}") and key.count("/") == 2


def _without_busy_schemas(
    old: list[GarbageFile], waiting: Sequence[GarbageFile]
) -> tuple[list[GarbageFile], list[GarbageFile]]:
    """A table that a dataset has no more is known by its schema file, which stays as long as any file of the table."""
    schemas = {f.key.removesuffix(SCHEMA_FILE): f for f in old if _is_schema(f.key)}
    if not schemas:
        return old, []
    busy = {folder for f in waiting if (folder := "/".join([*f.key.split("/")[:2], ""])) in schemas}
    held = {schemas[folder].key for folder in busy}
    return [f for f in old if f.key not in held], [replace(f) for f in old if f.key in held]
