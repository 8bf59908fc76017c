"""Garbage collection of a dataset: find unreferenced files, remove those that are old enough.

In order:

- marks: when a file was first seen, for stores without modification times
- statistics, which repeat values of removed files
- the result, each file with its reason
- what may be removed: references of history, ages, order
- the run
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field
from msgspec.structs import replace

from kartothek_cube.core.arguments import pluralize
from kartothek_cube.core.commit.cube_writes import finish_stopped_writes
from kartothek_cube.core.delta.publication import forget_files, living_logs, published_files
from kartothek_cube.core.io.formats import INDEX_SUFFIX
from kartothek_cube.core.metadata.commit_log import pending_mark
from kartothek_cube.core.metadata.document import Document, render_document
from kartothek_cube.core.metadata.history_entry import HISTORY_FOLDER, decode_entry, history_key
from kartothek_cube.core.metadata.naming import (
    SCHEMA_FILE,
    STATISTICS_FOLDER,
    document_key,
    folders_of_logs,
    is_log_key,
    new_id,
    schema_key,
)
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.metadata.statistics import STATISTICS_KEY, StatisticsReference, file_names, statistics_files
from kartothek_cube.core.metadata.tag import TAGS_FOLDER, Tag, decode_state, is_state_key, is_tag_key, is_tag_object
from kartothek_cube.core.runtime.executor import THREADS, at_once, delete_files, map_in_threads
from kartothek_cube.core.runtime.options import current_options
from kartothek_cube.core.snapshots.documents import put_document
from kartothek_cube.core.snapshots.loader import HiddenDocument, find_state, load_snapshot, remember
from kartothek_cube.core.snapshots.statistics import has_lost_statistics, load_statistics, reference_without
from kartothek_cube.core.snapshots.time_travel import is_orphaned, stored_tags
from kartothek_cube.core.stores.contract import Entry, Store, VersionMismatch, check_store_can_commit
from kartothek_cube.errors import CommitConflict, CorruptDocument, DatasetNotFound, KeyNotFound, Unsupported
from kartothek_cube.typing import Executor

MARKS_FOLDER = "_gc"
_MARK = re.compile(rf"[^/]+/{MARKS_FOLDER}/[^/]+\.json")


class FirstSeen(Struct, frozen=True):
    """A mark: at ``time`` (UTC, clock of the collecting process) no document named these keys.

    ``key`` is the key of the mark itself.
    """

    key: str
    time: datetime
    keys: frozenset[str]


class FirstSeenPlan(Struct, frozen=True):
    """Marks to write, new or rewritten, and keys of marks to delete."""

    written: tuple[FirstSeen, ...]
    dropped: tuple[str, ...]


def is_mark_key(key: str) -> bool:
    """Whether a key is that of a mark of some dataset."""
    return _MARK.fullmatch(key) is not None


def _by_age(marks: Iterable[FirstSeen], now: datetime) -> list[FirstSeen]:
    # A mark from the future comes from a wrong clock: it proves no age.
    return sorted((m for m in marks if m.time <= now), key=lambda m: (m.time, m.key))


def marked_since(marks: Iterable[FirstSeen], now: datetime) -> dict[str, datetime]:
    """The time of the oldest mark of each key."""
    return {key: mark.time for mark in reversed(_by_age(marks, now)) for key in mark.keys}


def plan_marks(
    marks: Sequence[FirstSeen], pending: AbstractSet[str], now: datetime, is_ours: Callable[[str], bool], home: str
) -> FirstSeenPlan:
    """Plan which marks to write and to delete.

    A key has one mark, the oldest, and only while it is pending: garbage of unknown age that stays.
    A key that is about to be removed, or is named again, loses its mark, so that a later file of
    the same key does not inherit the age.

    Parameters
    ----------
    marks : sequence of FirstSeen
        The marks in the store.
    pending : set of str
        Keys that need a mark.
    now : datetime
        Time of new marks.
    is_ours : Callable
        Whether this collection examined a key; marks of other keys stay.
    home : str
        Uuid of the dataset that keeps the marks of keys outside of any folder.
    """
    seen: set[str] = set()
    live: dict[str, frozenset[str]] = {}
    for mark in _by_age(marks, now):
        live[mark.key] = frozenset(k for k in mark.keys if not is_ours(k) or (k in pending and k not in seen))
        seen |= live[mark.key]
    # One new mark for each dataset, so that it is deleted together with the dataset.
    owners: dict[str, list[str]] = {}
    for key in pending - seen:
        owner, slash, _ = key.partition("/")
        owners.setdefault(owner if slash else home, []).append(key)
    created = [
        FirstSeen(f"{owner}/{MARKS_FOLDER}/{new_id()}.json", now, frozenset(keys))
        for owner, keys in sorted(owners.items())
    ]
    rewritten = [replace(m, keys=live[m.key]) for m in marks if live.get(m.key) and live[m.key] != m.keys]
    return FirstSeenPlan((*rewritten, *created), tuple(m.key for m in marks if not live.get(m.key)))


# --- in the store ---------------------------------------------------------------------------------


class _Mark(Struct):
    time: datetime
    keys: list[str]


def read_marks(store: Store, keys: Iterable[str]) -> list[FirstSeen]:
    """Read the marks among these keys in parallel; an unreadable mark marks nothing."""

    def read(key: str) -> FirstSeen | None:
        try:
            mark = msgspec.json.decode(store.get(key), type=_Mark)
            return FirstSeen(key, mark.time.astimezone(UTC), frozenset(mark.keys))
        except KeyNotFound:
            return None  # deleted since the listing
        except (msgspec.DecodeError, ValueError, OverflowError, RecursionError):
            # Without keys the plan deletes it.
            return FirstSeen(key, datetime.max.replace(tzinfo=UTC), frozenset())

    marks = map_in_threads(read, [key for key in keys if is_mark_key(key)], store=store)
    return [mark for mark in marks if mark is not None]


def write_marks(store: Store, plan: FirstSeenPlan) -> None:
    """Carry out the plan: one call for each mark."""

    def put(mark: FirstSeen) -> None:
        store.put(mark.key, msgspec.json.encode(_Mark(mark.time, sorted(mark.keys))))

    list(map_in_threads(put, plan.written, store=store))
    store.delete_many(plan.dropped)


# --- statistics -----------------------------------------------------------------------------------


def forget_removed_files(store: Store, state: Snapshot, kept: Collection[str]) -> bool:
    """Drop the statistics of files that neither the dataset names nor ``kept`` has, and lost ones.

    The document changes, and the state does not: this is no commit. Returns whether there were any.

    Raises
    ------
    CommitConflict
        If other writers came first more often than ``options(commit_retries=...)``.
    """
    tries = 0
    while True:
        # A document that belongs to a write which is not seen yet is for its writer.
        if state.undecided is not None:
            return False
        gone = _gone_files(store, state, kept)
        if not len(gone) and not has_lost_statistics(store, state.document):
            return False
        check_store_can_commit(store)
        document = _with_reference(state.document, reference_without(store, state.document, gone))
        try:
            data = render_document(document, msgpack=state.key.endswith(".zstd"))
            token = put_document(store, state.key, data, state.token)
        except VersionMismatch as error:
            tries += 1
            if tries > current_options().commit_retries:
                raise CommitConflict(
                    f"Dataset {state.uuid!r} was changed {tries} times while statistics of removed files were being "
                    "dropped. Collect garbage again."
                ) from error
            state = load_snapshot(store, state.uuid)
        else:
            remember(store, replace(state, document=document, token=token))
            return True


def _gone_files(store: Store, state: Snapshot, kept: Collection[str]) -> pa.Array:
    known = load_statistics(store, state).files
    waiting = pa.array([key for key in kept if key.startswith(f"{state.uuid}/")], type=pa.string())
    named = [file_names(files, state.uuid) for files in (*state.partitions.files.values(), waiting)]
    return known.filter(pc.invert(pc.is_in(known, value_set=pa.concat_arrays(named))))


def _with_reference(document: Document, reference: StatisticsReference) -> Document:
    metadata = {**document.metadata, STATISTICS_KEY: reference.render()}
    if reference == StatisticsReference():
        del metadata[STATISTICS_KEY]
    return replace(document, metadata=metadata)


# --- the result -----------------------------------------------------------------------------------


UNNAMED = "no document names it"
INDEX = "index file that no document names"
SCHEMA = "schema file of a table that the dataset has no more"
HISTORY = "history entry older than options(retain=...)"
DAMAGED_HISTORY = "history entry that cannot be read"
LEFTOVER = "temporary file of a writer that crashed"
STATE = "state that no tag names"
VAIN_TAG = "share in a tag of a cube that was never made, or is dropped"
KEPT = "older snapshots need it"
TAGGED = "a tag needs it"
LOG = "log of a Delta table that is not published"
PUBLISHED = "the newest version of the Delta table needs it"

_TABLE = pa.schema(
    [
        ("key", pa.string()),
        ("size", pa.int64()),
        ("modified", pa.timestamp("us", "UTC")),
        ("age", pa.duration("us")),
        ("why", pa.string()),
        ("waits", pa.bool_()),
    ]
)


class GarbageFile(Entry, frozen=True):
    """A file that is garbage, or will be.

    ``why`` is the reason. ``age`` is the time since the file was written or, in a store without
    modification times, since a garbage collection first saw it; None if this is the first one.
    """

    why: str = UNNAMED
    age: timedelta | None = None


class GarbageReport(Struct, frozen=True):
    """The files that a garbage collection removed, or would remove, and those that wait.

    ``waiting`` are files that no document names either, but that stay: too young, so that a
    running write keeps its files, or needed by older snapshots. Each file is a `GarbageFile`.

    Examples
    --------
    >>> file = GarbageFile("sales/table/COUNTRY_CODE=DE/1.parquet", 1_200)
    >>> GarbageReport((file,), (), dry_run=True)
    GarbageReport(would remove 1 file of 1,200 bytes; 0 files of 0 bytes wait)
    """

    removed: tuple[Entry, ...]
    waiting: tuple[Entry, ...]
    dry_run: bool

    @property
    def keys(self) -> list[str]:
        """The removed keys."""
        return [e.key for e in self.removed]

    @property
    def bytes(self) -> int:
        """Size of the removed files; a file of unknown size counts as 0."""
        return sum(e.size or 0 for e in self.removed)

    @property
    def bytes_waiting(self) -> int:
        """Size of the waiting files."""
        return sum(e.size or 0 for e in self.waiting)

    @property
    def kept(self) -> tuple[Entry, ...]:
        """The waiting files that older snapshots need, tagged ones included."""
        return tuple(e for e in self.waiting if isinstance(e, GarbageFile) and e.why in (KEPT, TAGGED))

    def to_arrow(self) -> pa.Table:
        """One row a file: ``key``, ``size`` (bytes), ``modified``, ``age``, ``why``, ``waits``."""
        rows = [_row(e, waits=False) for e in self.removed] + [_row(e, waits=True) for e in self.waiting]
        columns = zip(*rows, strict=True) if rows else [()] * len(_TABLE)
        arrays = [pa.array(column, type=field.type) for column, field in zip(columns, _TABLE, strict=True)]
        return pa.table(arrays, schema=_TABLE)

    def __repr__(self) -> str:
        verb, kept = "would remove" if self.dry_run else "removed", len(self.kept)
        removed = f"{verb} {pluralize(len(self.removed), 'file')} of {self.bytes:,} bytes"
        waiting = f"{pluralize(len(self.waiting), 'file')} of {self.bytes_waiting:,} bytes wait"
        snapshots = f", {kept:,} of them for older snapshots" if kept else ""
        return f"{type(self).__name__}({removed}; {waiting}{snapshots})"


def _row(entry: Entry, *, waits: bool) -> tuple[object, ...]:
    why, age = (entry.why, entry.age) if isinstance(entry, GarbageFile) else (UNNAMED, None)
    return entry.key, entry.size, entry.modified, age, why, waits


# --- what may be removed --------------------------------------------------------------------------


# Why files wait, however old they are.
_NEEDED = (KEPT, TAGGED, PUBLISHED)
_ENTRY = re.compile(rf"[^/]+/{HISTORY_FOLDER}/[^/]+\.json\.zst")


def is_entry_key(key: str) -> bool:
    """Whether a key is that of a history entry of some dataset."""
    return _ENTRY.fullmatch(key) is not None


def is_schema_key(key: str) -> bool:
    """Whether a key is that of the schema file of a table of some dataset."""
    return key.endswith(f"/{SCHEMA_FILE}") and key.count("/") == 2


# --- history --------------------------------------------------------------------------------------


class HistoryInfo(Struct, frozen=True):
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


class RetentionPolicy(Struct, frozen=True):
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


class Pins(Struct, frozen=True):
    """What tags and Delta tables keep.

    Attributes
    ----------
    states : Mapping[str, frozenset of str]
        Each state that a tag names, with the keys of the files that it names.
    vain : frozenset of str
        Keys of old shares in a tag that their cube does not have.
    published : frozenset of str
        Keys of the files that the newest versions of Delta tables name.
    logs : frozenset of str
        Folders of the logs of tables that are published.
    """

    states: Mapping[str, frozenset[str]] = field(default_factory=dict)
    vain: frozenset[str] = frozenset()
    published: frozenset[str] = frozenset()
    logs: frozenset[str] = frozenset()

    @property
    def files(self) -> frozenset[str]:
        """Keys of the data and index files that tagged states name."""
        return frozenset().union(*self.states.values())


def read_pins(store: Store, keys: Iterable[str], policy: RetentionPolicy, known: Pins) -> Pins:
    """Read the tags among these keys in parallel, and the states that they name.

    States that ``known`` has are not read again: a key of a state is used once. One without files
    may not have been there yet.
    """
    listed = [key for key in keys if is_tag_object(key)]
    tags = stored_tags(store, listed)
    old = {
        key: t for key, t in tags.items() if isinstance(t, Tag) and t.is_share and policy.is_old(t.made, policy.grace)
    }
    # The tag of a seed that is among these has been read already.
    are_vain = map_in_threads(lambda tag: is_orphaned(store, tag, tags), old.values(), store=store)
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

    unread = sorted(key for key in named if not known.states.get(key))
    states = dict(zip(unread, map_in_threads(read, unread, store=store), strict=True))
    found = {key: states[key] if key in states else known.states[key] for key in named}
    return replace(known, states=found, vain=frozenset(vain))


# --- the plan -------------------------------------------------------------------------------------


class GarbagePlan(Struct, frozen=True):
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

    def only(self, candidates: AbstractSet[str]) -> GarbagePlan:
        """The plan, less the removal of other files."""
        return replace(self, old=[file for file in self.old if file.key in candidates])

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
        tagged = TAGGED if entry.key in pinned else PUBLISHED if entry.key in pins.published else None
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
    if is_log_key(key):
        return None if key.startswith(tuple(pins.logs)) else LOG
    if is_tag_object(key):
        return VAIN_TAG if key in pins.vain else STATE if is_state_key(key) and key not in pins.states else None
    if not is_entry_key(key):
        return INDEX if key.endswith(INDEX_SUFFIX) else SCHEMA if is_schema_key(key) else UNNAMED
    if key not in history or policy.keeps(history[key]):
        return None
    return HISTORY if history[key].readable else DAMAGED_HISTORY


# --- what no document names: pure -----------------------------------------------------------------


def tracked_keys(snapshot: Snapshot) -> set[str]:
    """All keys of the current dataset: both documents, files of schema, index, statistics, data.

    Of a commit that readers do not see yet these are the files, too, and its history entry, which
    leads to the state that they see.
    """
    keys = {document_key(snapshot.uuid), document_key(snapshot.uuid, msgpack=True)}
    keys |= {schema_key(snapshot.uuid, table) for table in _table_names(snapshot)}
    # A document that lists no partitions has those that were found.
    shown = replace(snapshot.document, partitions=snapshot.partitions)
    keys |= shown.files | shown.index_files | statistics_files(shown)
    if (undecided := snapshot.undecided) is not None:
        keys.add(history_key(snapshot.uuid, undecided.mark.commit))
        if not undecided.is_aborted:
            keys |= undecided.document.files | undecided.document.index_files | statistics_files(undecided.document)
    return keys


def _table_names(snapshot: Snapshot) -> set[str]:
    # A table may occur in some of the partitions only.
    return {*snapshot.tables, *snapshot.partitions.files}


def own_folders(uuid: str, tables: Iterable[str], keys: Iterable[str]) -> tuple[str, ...]:
    """The folders of a dataset: indices, statistics, its tables, former ones with a schema file."""
    former = {key.removesuffix(SCHEMA_FILE) for key in keys if is_schema_key(key)}
    own = (f"{uuid}/indices/", f"{uuid}/{STATISTICS_FOLDER}/")
    return tuple(sorted({*own, *(f"{uuid}/{table}/" for table in tables), *former}))


def is_bookkeeping(key: str) -> bool:
    """Whether a key is that of a history entry, a tag, a garbage collection's mark, a Delta log."""
    return is_entry_key(key) or is_tag_object(key) or is_mark_key(key) or is_log_key(key)


def unnamed_entries(snapshot: Snapshot, entries: Sequence[Entry]) -> list[Entry]:
    """The objects below ``<uuid>/`` that the document does not name, bookkeeping included.

    The partitions of an implicit dataset are whatever data files exist: only its index files can
    be unnamed. A folder that belongs to no table and has no schema file is foreign.
    """
    tracked = tracked_keys(snapshot)
    if snapshot.document.partitions is None:
        indices = f"{snapshot.uuid}/indices/"
        ours = [
            e for e in entries if (e.key.startswith(indices) and e.key.endswith(INDEX_SUFFIX)) or is_bookkeeping(e.key)
        ]
    else:
        folders = own_folders(snapshot.uuid, _table_names(snapshot), (e.key for e in entries))
        ours = [e for e in entries if e.key.startswith(folders) or is_bookkeeping(e.key)]
    return [e for e in ours if e.key not in tracked]


# --- the run --------------------------------------------------------------------------------------


class GarbageScope(Struct, frozen=True):
    """Where garbage is collected.

    Attributes
    ----------
    list_unnamed : Callable
        Reads the current documents, and returns the listed objects that no document names, and the
        states of the datasets.
    prefixes : tuple of str
        Prefixes of the keys of the scope, and of the temporary files of crashed writers.
    is_ours : Callable
        Whether a key with such a prefix belongs to the scope.
    home : str
        Uuid of the dataset that keeps the marks of keys outside of any folder.
    """

    list_unnamed: Callable[[], tuple[list[Entry], list[Snapshot]]]
    prefixes: tuple[str, ...]
    is_ours: Callable[[str], bool]
    home: str


def collect_garbage(store: Store, uuid: str, *, dry_run: bool, executor: Executor = THREADS) -> GarbageReport:
    """Remove files that nothing names, neither document, history nor tag, older than ``grace``.

    Calls of the store: one listing of ``<uuid>/``; the document; one for each history entry and
    each mark, two for each tag; two for temporary files. If anything is to be removed, once more
    the document, a listing of ``<uuid>/_history/`` and one of ``<uuid>/_tags/``, and one call for
    each new entry and each tag; then one for each key. In a store without modification times, one
    to write marks and one for each mark that is rewritten or deleted. One for each statistics file;
    where statistics of removed files are dropped, once more what comes before a removal, one for
    the document and one to write each statistics file anew.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist.
    CorruptDocument
        If the document or a schema cannot be read. Garbage is unknown then; nothing is removed.
    CommitConflict
        If other writers came first too often while statistics of removed files were being dropped.
    """
    unfinished = [] if dry_run else [uuid]
    entries = store.list(f"{uuid}/", recursive=True).entries
    prefixes = (f"{uuid}/", f"{uuid}.")

    def list_unnamed() -> tuple[list[Entry], list[Snapshot]]:
        try:
            states = settled_states(store, unfinished) if unfinished else None
            unfinished.clear()
            snapshot = states[uuid] if states else load_snapshot(store, uuid)
        except DatasetNotFound:
            raise
        except (KeyNotFound, CorruptDocument, Unsupported) as error:
            text = f"Dataset {uuid!r} cannot be read, so its files cannot be distinguished from garbage: {error}"
            raise CorruptDocument(text) from error
        return unnamed_entries(snapshot, entries), [snapshot]

    scope = GarbageScope(list_unnamed, prefixes, lambda key: key.startswith(prefixes), uuid)
    return sweep(store, scope, dry_run=dry_run, executor=executor)


def settled_states(store: Store, uuids: Sequence[str]) -> dict[str, Snapshot] | None:
    """The newest states of those datasets that exist, if none has part of an unsettled write.

    Otherwise such writes are finished as by `finish_stopped_writes`, and the states are unknown.
    """
    states = dict(zip(uuids, map_in_threads(lambda u: find_state(store, u), uuids, store=store), strict=True))
    seen = {uuid: state for uuid, state in states.items() if isinstance(state, Snapshot)}
    hidden = [uuid for uuid, state in states.items() if isinstance(state, HiddenDocument)]
    pending = [uuid for uuid, s in seen.items() if s.undecided is not None or pending_mark(s.document) is not None]
    if hidden or pending:
        finish_stopped_writes(store, [*hidden, *pending])
        return None
    return seen


def sweep(store: Store, scope: GarbageScope, *, dry_run: bool, executor: Executor = THREADS) -> GarbageReport:
    """Remove unnamed files and temporary files of crashed writers that are older than ``grace``."""
    policy = RetentionPolicy(_now(), current_options().grace, current_options().retain)
    grace_start = policy.before(policy.grace)
    unnamed, states = scope.list_unnamed()
    found = folders_of_logs(e.key for e in unnamed)
    logs = living_logs(states).intersection(found) if found else frozenset[str]()

    def read_log_and_pins() -> Pins:
        published = Pins(published=published_files(store, logs) if logs else frozenset(), logs=logs)
        return read_pins(store, (e.key for e in unnamed), policy, published)

    (history, marks), pins, leftovers = at_once(
        store,
        lambda: at_once(
            store,
            lambda: read_history(store, unnamed, {}),
            lambda: read_marks(store, (e.key for e in unnamed)),
        ),
        read_log_and_pins,
        lambda: temporary_files(store, scope.prefixes, grace_start),
    )
    marked = marked_since(marks, policy.now)
    temporary = [e for e in leftovers if scope.is_ours(e.key)]
    plan = plan_garbage(unnamed, history, marked, policy, pins)
    superseded = frozenset[str]()
    if not dry_run:
        removed_keys = {file.key for file in plan.old}
        kept = [entry.key for entry in unnamed if entry.key not in removed_keys]
        forgotten = map_in_threads(lambda state: forget_removed_files(store, state, kept), states, store=store)
        # Then statistics files of before are garbage, too.
        superseded = frozenset(
            key
            for state, is_changed in zip(states, forgotten, strict=True)
            for key in (statistics_files(state.document) if is_changed else ())
        )
        if plan.old or superseded:
            plan = _plan_again(store, scope, plan, superseded, history, marked, policy, pins)
        write_marks(store, plan_marks(marks, plan.pending, policy.now, scope.is_ours, scope.home))
        history_keys, *rest = plan.phases()
        gone = {file.key for file in plan.old}
        for folder in sorted(logs) if gone else ():  # first, so that no version names a file that is missing
            forget_files(store, folder, gone)
        delete_files(store, history_keys, executor)
        if any(rest):
            # Whoever tags an older state looks afterwards whether its history entries are still
            # there. So they go first, and the tags are listed once they are gone: either that look
            # misses an entry and the tag is withdrawn, or the tag is in this listing.
            plan = plan.without(
                read_pins(store, (e.key for e in _listed(store, chain(*rest), TAGS_FOLDER)), policy, pins)
            )
        for phase in plan.phases()[1:]:
            delete_files(store, phase, executor)
        remove_temporary_files(store, temporary, grace_start)
    removed = [
        GarbageFile(e.key, e.size, e.modified, LEFTOVER, None if e.modified is None else policy.now - e.modified)
        for e in temporary
    ]
    return GarbageReport((*plan.old, *removed), tuple(plan.waiting), dry_run)


def _now() -> datetime:
    # Tests of ages replace this clock.
    return datetime.now(UTC)


def _plan_again(
    store: Store,
    scope: GarbageScope,
    first: GarbagePlan,
    superseded: frozenset[str],
    history: Mapping[str, HistoryInfo],
    marked: Mapping[str, datetime],
    policy: RetentionPolicy,
    pins: Pins,
) -> GarbagePlan:
    """The first plan with ``superseded`` files, less what a document or a history names by now."""
    # Right before the deletion: a commit may have named a file since the first pass. Documents are
    # read before history, as a commit that supersedes a file writes its history entry first.
    unnamed, states = scope.list_unnamed()
    if any(is_log_key(file.key) for file in first.old):
        pins = replace(pins, logs=pins.logs | living_logs(states))
    candidates = superseded.union(file.key for file in first.old)
    plan = plan_garbage(unnamed, history, marked, policy, pins).only(candidates)
    if not plan.old:
        return plan
    history = read_history(store, _listed(store, (f.key for f in plan.old), HISTORY_FOLDER), history)
    return plan_garbage(unnamed, history, marked, policy, pins).only(candidates)


def _listed(store: Store, keys: Iterable[str], folder: str) -> list[Entry]:
    """What one folder has in each of the datasets of some keys."""
    owners = sorted({key.partition("/")[0] for key in keys if "/" in key})
    listings = map_in_threads(lambda o: store.list(f"{o}/{folder}/", recursive=True).entries, owners, store=store)
    return [entry for entries in listings for entry in entries]


def temporary_files(store: Store, prefixes: Iterable[str], before: datetime) -> list[Entry]:
    """Temporary files that local writers left before this time by crashing."""
    found = at_once(store, *(partial(store.leftovers, prefix, before) for prefix in prefixes))
    return [entry for entries in found for entry in entries]


def remove_temporary_files(store: Store, files: Iterable[Entry], before: datetime) -> None:
    """Remove these temporary files."""
    for entry in files:
        store.leftovers(entry.key, before, remove=True)
