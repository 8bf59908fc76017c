"""Collecting garbage: the files that neither a dataset nor its kept history names, and removing those that are old enough."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from kartothek_cube.core.maintenance.garbage_history import HistoryInfo, is_entry_key, read_past
from kartothek_cube.core.maintenance.garbage_marks import is_mark_key, marked_since, plan_marks, read_marks, write_marks
from kartothek_cube.core.maintenance.garbage_plan import GarbagePlan, RetentionPolicy, judge
from kartothek_cube.core.maintenance.garbage_report import LEFTOVER, GarbageFile, GarbageReport
from kartothek_cube.core.metadata.history import HISTORY_FOLDER
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.naming import INDEX_SUFFIX, SCHEMA_FILE, document_key, schema_key
from kartothek_cube.core.options import current_options
from kartothek_cube.core.parallel import DELETE_FILES, THREADS, Executor, map_files, map_in_threads
from kartothek_cube.core.snapshots import load_snapshot
from kartothek_cube.core.store import Entry, Store
from kartothek_cube.errors import CorruptDocument, DatasetNotFound, KeyNotFound, Unsupported

__all__ = [
    "GarbageFile",
    "GarbageReport",
    "GarbageScope",
    "collect_garbage",
    "is_bookkeeping",
    "leftovers_of",
    "own_folders",
    "remove_leftovers",
    "sweep",
    "tracked_keys",
    "unnamed_entries",
]


# --- what no document names: pure -------------------------------------------------------------------------------------


def tracked_keys(snapshot: Snapshot) -> set[str]:
    """All keys that belong to a dataset as it is: both documents, schema files, indices, data."""
    keys = {document_key(snapshot.uuid), document_key(snapshot.uuid, msgpack=True)}
    keys |= {schema_key(snapshot.uuid, table) for table in _known_tables(snapshot)}
    keys |= {str(k) for k in snapshot.document.indices.values() if isinstance(k, str)}
    return keys | {k for files in snapshot.partitions.files.values() for k in files.to_pylist() if k is not None}


def _known_tables(snapshot: Snapshot) -> set[str]:
    # A table may occur in some of the partitions only.
    return {*snapshot.tables, *snapshot.partitions.files}


def own_folders(uuid: str, tables: Iterable[str], keys: Iterable[str]) -> tuple[str, ...]:
    """The folders whose content is a dataset's: indices, known tables, and tables of an earlier life, which left their schema files."""
    left = {key.removesuffix(SCHEMA_FILE) for key in keys if key.endswith(f"/{SCHEMA_FILE}") and key.count("/") == 2}
    return tuple(sorted({f"{uuid}/indices/", *(f"{uuid}/{table}/" for table in tables), *left}))


def is_bookkeeping(key: str) -> bool:
    """Whether a key is that of a history entry, or of a mark that a collection of garbage left."""
    return is_entry_key(key) or is_mark_key(key)


def unnamed_entries(snapshot: Snapshot, entries: Sequence[Entry]) -> list[Entry]:
    """Those of the objects below ``<uuid>/`` that the document does not name, history entries and marks included.

    Of an implicit dataset, whose partitions are whatever files exist, these are only index files that it does not name.
    Folders that are no table's and hold no schema file are somebody else's.
    """
    tracked = tracked_keys(snapshot)
    if snapshot.document.partitions is None:
        indices = f"{snapshot.uuid}/indices/"
        ours = [e for e in entries if (e.key.startswith(indices) and e.key.endswith(INDEX_SUFFIX)) or is_bookkeeping(e.key)]
    else:
        folders = own_folders(snapshot.uuid, _known_tables(snapshot), (e.key for e in entries))
        ours = [e for e in entries if e.key.startswith(folders) or is_bookkeeping(e.key)]
    return [e for e in ours if e.key not in tracked]


# --- the run ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GarbageScope:
    """Where garbage is collected.

    Attributes
    ----------
    look : Callable
        Reads the current documents and gives those of the listed objects that none of them names.
    prefixes : tuple of str
        What the keys of the scope start with; temporary files of crashed writers are looked for there.
    is_ours : Callable
        Whether a key that starts so belongs to the scope.
    home : str
        Uuid of the dataset that keeps the marks of keys outside of any folder.
    """

    look: Callable[[], list[Entry]]
    prefixes: tuple[str, ...]
    is_ours: Callable[[str], bool]
    home: str


def collect_garbage(store: Store, uuid: str, *, dry_run: bool, executor: Executor = THREADS) -> GarbageReport:
    """Remove the garbage of one dataset: what neither its document nor its kept history names and is older than the option ``grace``.

    Calls of the store: one listing of ``<uuid>/``; the document; one for each history entry and each mark; two for temporary files. If anything is to be
    removed, once more the document, one listing of ``<uuid>/_history/`` and one call for each entry that is new; then one for each key.
    Where the store does not know times, one to write marks; one for each mark that is rewritten or removed.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist.
    CorruptDocument
        If its document or a schema cannot be read: nobody knows then what is garbage, so nothing is removed.
    """
    entries = store.list(f"{uuid}/", recursive=True).entries
    prefixes = (f"{uuid}/", f"{uuid}.")
    scope = GarbageScope(lambda: unnamed_entries(_readable(store, uuid), entries), prefixes, lambda key: key.startswith(prefixes), uuid)
    return sweep(store, scope, dry_run=dry_run, executor=executor)


def _readable(store: Store, uuid: str) -> Snapshot:
    try:
        return load_snapshot(store, uuid)
    except DatasetNotFound:
        raise
    except (KeyNotFound, CorruptDocument, Unsupported) as error:
        raise CorruptDocument(f"Dataset {uuid!r} cannot be read, so its files cannot be told from garbage: {error}") from error


def sweep(store: Store, scope: GarbageScope, *, dry_run: bool, executor: Executor = THREADS) -> GarbageReport:
    """Remove what no document and no kept history names and what crashed writers left, as far as it is older than the option ``grace``.

    Documents and history are read again right before anything is deleted: somebody may have named a file since the first look. History entries go before
    the files that they named, so that a crash leaves files that nobody names and no history of files that are gone.
    """
    policy = RetentionPolicy(_now(), current_options().grace, current_options().retain)
    found = scope.look()
    past = read_past(store, found, {})
    marks = read_marks(store, (e.key for e in found))
    marked = marked_since(marks, policy.now)
    plan = judge(found, past, marked, policy)
    left = [e for e in leftovers_of(store, scope.prefixes, policy.before(policy.grace)) if scope.is_ours(e.key)]
    if not dry_run:
        write_marks(store, plan_marks(marks, plan.pending, policy.now, scope.is_ours, scope.home))
        if plan.old:
            plan = _confirmed(store, scope, plan, past, marked, policy)
        for phase in plan.phases():
            list(map_files(store.delete, phase, executor=executor, store=store, phase=DELETE_FILES))
        remove_leftovers(store, left, policy.before(policy.grace))
    dead = [GarbageFile(e.key, e.size, e.modified, LEFTOVER, None if e.modified is None else policy.now - e.modified) for e in left]
    return GarbageReport((*plan.old, *dead), tuple(plan.waiting), dry_run)


def _now() -> datetime:
    return datetime.now(UTC)


def _confirmed(
    store: Store,
    scope: GarbageScope,
    first: GarbagePlan,
    past: Mapping[str, HistoryInfo],
    marked: Mapping[str, datetime],
    policy: RetentionPolicy,
) -> GarbagePlan:
    """The plan for what was to be removed, after documents and history were read again."""
    found = scope.look()
    owners = sorted({f.key.partition("/")[0] for f in first.old if "/" in f.key})
    listed = map_in_threads(lambda owner: store.list(f"{owner}/{HISTORY_FOLDER}/", recursive=True).entries, owners, store=store)
    second = judge(found, read_past(store, [e for entries in listed for e in entries], past), marked, policy)
    doomed = {f.key for f in first.old}
    return GarbagePlan([f for f in second.old if f.key in doomed], second.waiting, second.pending)


def leftovers_of(store: Store, prefixes: Iterable[str], before: datetime) -> list[Entry]:
    """Temporary files of local writers that died before this time."""
    return [entry for prefix in prefixes for entry in store.leftovers(prefix, before)]


def remove_leftovers(store: Store, left: Iterable[Entry], before: datetime) -> None:
    """Remove these temporary files."""
    for entry in left:
        store.leftovers(entry.key, before, remove=True)
