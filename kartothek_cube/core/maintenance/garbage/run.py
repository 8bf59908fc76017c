"""Garbage collection of a dataset: find unreferenced files, remove those that are old enough."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain

from kartothek_cube.core.commit.cube_writes import finish_stopped_writes
from kartothek_cube.core.io.formats import INDEX_SUFFIX
from kartothek_cube.core.maintenance.garbage.first_seen import (
    is_mark_key,
    marked_since,
    plan_marks,
    read_marks,
    write_marks,
)
from kartothek_cube.core.maintenance.garbage.old_statistics import forget_removed_files
from kartothek_cube.core.maintenance.garbage.plan import (
    GarbagePlan,
    HistoryInfo,
    Pins,
    RetentionPolicy,
    is_entry_key,
    is_schema_key,
    plan_garbage,
    read_history,
    read_pins,
)
from kartothek_cube.core.maintenance.garbage.report import LEFTOVER, GarbageFile, GarbageReport
from kartothek_cube.core.metadata.history_entry import HISTORY_FOLDER, history_key
from kartothek_cube.core.metadata.naming import SCHEMA_FILE, STATISTICS_FOLDER, document_key, schema_key
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.metadata.statistics import statistics_files
from kartothek_cube.core.metadata.tag import TAGS_FOLDER, is_tag_object
from kartothek_cube.core.runtime.executor import DELETE_FILES, THREADS, Executor, map_files, map_in_threads
from kartothek_cube.core.runtime.options import current_options
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.stores.contract import Entry, Store
from kartothek_cube.errors import CorruptDocument, DatasetNotFound, KeyNotFound, Unsupported

__all__ = [
    "GarbageFile",
    "GarbageReport",
    "GarbageScope",
    "collect_garbage",
    "is_bookkeeping",
    "own_folders",
    "remove_temporary_files",
    "sweep",
    "temporary_files",
    "tracked_keys",
    "unnamed_entries",
]


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
    """Whether a key is that of a history entry, of a tag, or of a garbage collection's mark."""
    return is_entry_key(key) or is_tag_object(key) or is_mark_key(key)


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


@dataclass(frozen=True, slots=True)
class GarbageScope:
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
    where statistics of removed files are dropped, two for the document and one to write each
    statistics file anew.

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
            finish_stopped_writes(store, unfinished)
            unfinished.clear()
            snapshot = load_snapshot(store, uuid)
        except DatasetNotFound:
            raise
        except (KeyNotFound, CorruptDocument, Unsupported) as error:
            text = f"Dataset {uuid!r} cannot be read, so its files cannot be distinguished from garbage: {error}"
            raise CorruptDocument(text) from error
        return unnamed_entries(snapshot, entries), [snapshot]

    scope = GarbageScope(list_unnamed, prefixes, lambda key: key.startswith(prefixes), uuid)
    return sweep(store, scope, dry_run=dry_run, executor=executor)


def sweep(store: Store, scope: GarbageScope, *, dry_run: bool, executor: Executor = THREADS) -> GarbageReport:
    """Remove unnamed files and temporary files of crashed writers that are older than ``grace``."""
    policy = RetentionPolicy(_now(), current_options().grace, current_options().retain)
    unnamed, states = scope.list_unnamed()
    history = read_history(store, unnamed, {})
    marks = read_marks(store, (e.key for e in unnamed))
    marked = marked_since(marks, policy.now)
    pins = read_pins(store, (e.key for e in unnamed), policy, Pins())
    plan = plan_garbage(unnamed, history, marked, policy, pins)
    if not dry_run:
        removed_keys = {file.key for file in plan.old}
        kept = [entry.key for entry in unnamed if entry.key not in removed_keys]
        forgotten = [forget_removed_files(store, state, kept) for state in states]
        if any(forgotten):  # then statistics files of before are garbage, too
            unnamed, _ = scope.list_unnamed()
            plan = plan_garbage(unnamed, history, marked, policy, pins)
    grace_start = policy.before(policy.grace)
    temporary = [e for e in temporary_files(store, scope.prefixes, grace_start) if scope.is_ours(e.key)]
    if not dry_run:
        write_marks(store, plan_marks(marks, plan.pending, policy.now, scope.is_ours, scope.home))
        if plan.old:
            plan = _plan_again(store, scope, plan, history, marked, policy, pins)
        history_keys, *rest = plan.phases()
        list(map_files(store.delete, history_keys, executor=executor, store=store, phase=DELETE_FILES))
        if any(rest):
            # Whoever tags an older state looks afterwards whether its history entries are still
            # there. So they go first, and the tags are listed once they are gone: either that look
            # misses an entry and the tag is withdrawn, or the tag is in this listing.
            plan = plan.without(
                read_pins(store, (e.key for e in _listed(store, chain(*rest), TAGS_FOLDER)), policy, pins)
            )
        for phase in plan.phases()[1:]:
            list(map_files(store.delete, phase, executor=executor, store=store, phase=DELETE_FILES))
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
    history: Mapping[str, HistoryInfo],
    marked: Mapping[str, datetime],
    policy: RetentionPolicy,
    pins: Pins,
) -> GarbagePlan:
    """The first plan, less the files that a document or a history entry names by now."""
    # Right before the deletion: a commit may have named a file since the first pass. Documents are
    # read before history, as a commit that supersedes a file writes its history entry first.
    unnamed, _ = scope.list_unnamed()
    history = read_history(store, _listed(store, (f.key for f in first.old), HISTORY_FOLDER), history)
    second = plan_garbage(unnamed, history, marked, policy, pins)
    candidates = {f.key for f in first.old}
    return GarbagePlan([f for f in second.old if f.key in candidates], second.waiting, second.pending)


def _listed(store: Store, keys: Iterable[str], folder: str) -> list[Entry]:
    """What one folder has in each of the datasets of some keys."""
    owners = sorted({key.partition("/")[0] for key in keys if "/" in key})
    listings = map_in_threads(lambda o: store.list(f"{o}/{folder}/", recursive=True).entries, owners, store=store)
    return [entry for entries in listings for entry in entries]


def temporary_files(store: Store, prefixes: Iterable[str], before: datetime) -> list[Entry]:
    """Temporary files that local writers left before this time by crashing."""
    return [entry for prefix in prefixes for entry in store.leftovers(prefix, before)]


def remove_temporary_files(store: Store, files: Iterable[Entry], before: datetime) -> None:
    """Remove these temporary files."""
    for entry in files:
        store.leftovers(entry.key, before, remove=True)
