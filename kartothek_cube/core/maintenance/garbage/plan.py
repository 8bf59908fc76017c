"""Which garbage may be removed: references of the history, age of each file, order of removal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from kartothek_cube.core.io.formats import INDEX_SUFFIX
from kartothek_cube.core.maintenance.garbage.first_seen import is_mark_key
from kartothek_cube.core.maintenance.garbage.report import (
    DAMAGED_HISTORY,
    HISTORY,
    INDEX,
    KEPT,
    SCHEMA,
    STATE,
    TAGGED,
    UNNAMED,
    VAIN_TAG,
    GarbageFile,
)
from kartothek_cube.core.metadata.history_entry import HISTORY_FOLDER, decode_entry
from kartothek_cube.core.metadata.naming import SCHEMA_FILE
from kartothek_cube.core.metadata.tag import Tag, decode_state, is_state_key, is_tag_key, is_tag_object
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.snapshots.time_travel import is_vain, stored_tags
from kartothek_cube.core.stores.contract import Entry, Store
from kartothek_cube.errors import CorruptDocument, KeyNotFound

__all__ = [
    "GarbagePlan",
    "HistoryInfo",
    "Pins",
    "RetentionPolicy",
    "is_entry_key",
    "is_schema_key",
    "plan_garbage",
    "read_history",
    "read_pins",
]

# Why files wait, however old they are.
_NEEDED = (KEPT, TAGGED)
_ENTRY = re.compile(rf"[^/]+/{HISTORY_FOLDER}/[^/]+\.json\.zst")


def is_entry_key(key: str) -> bool:
    """Whether a key is that of a history entry of some dataset."""
    return _ENTRY.fullmatch(key) is not None


def is_schema_key(key: str) -> bool:
    """Whether a key is that of the schema file of a table of some dataset."""
    return key.endswith(f"/{SCHEMA_FILE}") and key.count("/") == 2


# --- history --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HistoryInfo:
    """The keys that a history entry names, and its time; an unreadable entry protects nothing.

    ``moment`` is the later of the entry's own time and the object's; None if neither is known.
    """

    moment: datetime | None
    files: tuple[str, ...] = ()
    index_files: tuple[str, ...] = ()
    readable: bool = True


def read_history(store: Store, entries: Iterable[Entry], cached: Mapping[str, HistoryInfo]) -> dict[str, HistoryInfo]:
    """Read the history entries among these objects in parallel, one call each; return all by key.

    Entries that ``cached`` has, readable, are not read again.
    """

    def read(entry: Entry) -> HistoryInfo | None:
        try:
            decoded = decode_entry(store.get(entry.key), entry.key)
        except KeyNotFound:
            return None  # deleted since the listing
        except (ValueError, OverflowError, pa.ArrowException):  # also `CorruptDocument`; not an error of the store
            return HistoryInfo(entry.modified, readable=False)
        moment = decoded.time if entry.modified is None else max(decoded.time, entry.modified)
        return HistoryInfo(moment, tuple(decoded.files), tuple(decoded.index_files))

    unread = [e for e in entries if is_entry_key(e.key) and not (e.key in cached and cached[e.key].readable)]
    infos = map_in_threads(read, unread, store=store)
    return {**cached, **{entry.key: info for entry, info in zip(unread, infos, strict=True) if info is not None}}


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """When a file is old enough: options ``grace`` and ``retain``, ``now`` (UTC, this machine)."""

    now: datetime
    grace: timedelta
    retain: timedelta

    def before(self, age: timedelta) -> datetime:
        """The latest modification time of a file of this age."""
        try:
            return self.now - age
        except OverflowError:
            return datetime.min.replace(tzinfo=UTC)

    @property
    def longest(self) -> timedelta:
        """How long history entries are kept."""
        return max(self.retain, self.grace)

    def is_old(self, moment: datetime | None, age: timedelta) -> bool:
        """Whether a file of this moment has this age; no moment and a future one are never old."""
        return not age or (moment is not None and moment <= self.before(age))

    def keeps(self, info: HistoryInfo) -> bool:
        """Whether a history entry is kept: readable, and younger than the longer period."""
        return info.readable and not self.is_old(info.moment, self.longest)

    def protected(self, history: Iterable[HistoryInfo]) -> set[str]:
        """Keys that kept history entries name; superseded index files for ``grace`` only."""
        kept = [info for info in history if self.keeps(info)]
        recent = [info for info in kept if not self.is_old(info.moment, self.grace)]
        return {key for info in kept for key in info.files} | {key for info in recent for key in info.index_files}


# --- tags -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pins:
    """What tags keep.

    Attributes
    ----------
    states : Mapping[str, frozenset of str]
        Each state that a tag names, with the keys of the files that it names.
    vain : frozenset of str
        Keys of old shares in a tag that their cube does not have.
    """

    states: Mapping[str, frozenset[str]] = field(default_factory=dict)
    vain: frozenset[str] = frozenset()

    @property
    def files(self) -> frozenset[str]:
        """Keys of the data and index files that tagged states name."""
        return frozenset().union(*self.states.values())


def read_pins(store: Store, keys: Iterable[str], policy: RetentionPolicy, known: Pins) -> Pins:
    """Read the tags among these keys in parallel, and the states that they name.

    States that ``known`` has are not read again: a key of a state is used once.
    """
    listed = [key for key in keys if is_tag_object(key)]
    tags = stored_tags(store, listed)
    old = {
        key: t for key, t in tags.items() if isinstance(t, Tag) and t.is_share and policy.is_old(t.made, policy.grace)
    }
    are_vain = map_in_threads(lambda tag: is_vain(store, tag), old.values(), store=store)
    vain = {key for key, is_one in zip(old, are_vain, strict=True) if is_one}
    named = {tag.state.key for key, tag in tags.items() if isinstance(tag, Tag) and key not in vain}
    # What an unreadable tag names is unknown, so every state beside it counts as tagged.
    doubtful = tuple(key.rpartition("/")[0] for key, tag in tags.items() if isinstance(tag, CorruptDocument))
    named |= {key for key in listed if is_state_key(key) and key.startswith(doubtful)}

    def read(key: str) -> frozenset[str]:
        try:
            document = decode_state(store.get(key), key)
        except (KeyNotFound, CorruptDocument):
            return frozenset()  # nobody can read this state; `verify_dataset` says so
        return frozenset(document.files | document.index_files)

    unread = sorted(named - known.states.keys())
    states = dict(zip(unread, map_in_threads(read, unread, store=store), strict=True))
    return Pins({key: known.states[key] if key in known.states else states[key] for key in named}, frozenset(vain))


# --- the plan -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GarbagePlan:
    """Files to remove (``old``) and files that wait.

    ``pending`` are the keys of waiting files whose age only a mark can prove.
    """

    old: Sequence[GarbageFile]
    waiting: Sequence[GarbageFile]
    pending: frozenset[str]

    def phases(self) -> list[list[str]]:
        """Keys that are removed together: history entries, files, schema files, in this order."""
        # A history entry goes before its files, so that a crash leaves no history of missing files.
        # So does a tag. A schema file goes last, because it proves that a folder belongs to a
        # former table.
        phases: list[list[str]] = [[], [], []]
        for file in self.old:
            names_files = is_entry_key(file.key) or is_tag_key(file.key)
            phases[0 if names_files else 2 if is_schema_key(file.key) else 1].append(file.key)
        return phases

    def without(self, pins: Pins) -> GarbagePlan:
        """The plan, less what tags keep by now."""
        kept, files = [f for f in self.old if f.key in pins.files or f.key in pins.states], pins.files
        gone = {file.key for file in kept}
        waiting = [*self.waiting, *(replace(file, why=TAGGED) for file in kept if file.key in files)]
        return GarbagePlan([file for file in self.old if file.key not in gone], waiting, self.pending)


def plan_garbage(
    unnamed: Iterable[Entry],
    history: Mapping[str, HistoryInfo],
    marked: Mapping[str, datetime],
    policy: RetentionPolicy,
    pins: Pins,
) -> GarbagePlan:
    """Decide on each object that no document names.

    Parameters
    ----------
    unnamed : iterable of Entry
        Objects that no current document names, history entries included; marks are ignored.
    history : Mapping[str, HistoryInfo]
        History entries by key, also of keys that are not among ``unnamed``.
    marked : Mapping[str, datetime]
        Since when keys are marked.
    policy : RetentionPolicy
        The periods.
    pins : Pins
        What tags keep.
    """
    pinned = pins.files
    protected = policy.protected(history.values())
    old: list[GarbageFile] = []
    waiting: list[GarbageFile] = []
    for entry in unnamed:
        moment = marked.get(entry.key) if entry.modified is None else entry.modified
        tagged = TAGGED if entry.key in pinned else None
        why = tagged or (KEPT if entry.key in protected else _reason(entry.key, history, policy, pins))
        if why is None:
            continue
        age = None if moment is None else policy.now - moment
        needed_age = policy.longest if why == DAMAGED_HISTORY else policy.grace
        # The age of a history entry or a tag was decided by its own time.
        removable = why in (HISTORY, VAIN_TAG) or (why not in _NEEDED and policy.is_old(moment, needed_age))
        (old if removable else waiting).append(GarbageFile(entry.key, entry.size, entry.modified, why, age))
    # The schema file of a dropped table stays as long as any file of the table waits: without it
    # the next collection would not recognize the folder.
    busy = {"/".join([*file.key.split("/")[:2], SCHEMA_FILE]) for file in waiting}
    waiting += [file for file in old if file.key in busy and is_schema_key(file.key)]
    old = [file for file in old if not (file.key in busy and is_schema_key(file.key))]
    return GarbagePlan(old, waiting, frozenset(f.key for f in waiting if f.modified is None and f.why not in _NEEDED))


def _reason(key: str, history: Mapping[str, HistoryInfo], policy: RetentionPolicy, pins: Pins) -> str | None:
    """Why a key is garbage; None if it is none, or has been removed meanwhile."""
    if is_mark_key(key):
        return None
    if is_tag_object(key):
        return VAIN_TAG if key in pins.vain else STATE if is_state_key(key) and key not in pins.states else None
    if not is_entry_key(key):
        return INDEX if key.endswith(INDEX_SUFFIX) else SCHEMA if is_schema_key(key) else UNNAMED
    if key not in history or policy.keeps(history[key]):
        return None
    return HISTORY if history[key].readable else DAMAGED_HISTORY
