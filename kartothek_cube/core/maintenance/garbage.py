"""Collecting garbage: the files that neither a dataset nor its kept history names, and removing those that are old enough."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from kartothek_cube.core.maintenance.garbage_history import Past, is_entry_key, read_past
from kartothek_cube.core.maintenance.garbage_marks import is_mark_key, marked_since, plan_marks, read_marks, write_marks
from kartothek_cube.core.maintenance.garbage_plan import Rule, Verdict, judge
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
    "Site",
    "collect_garbage",
    "dataset_garbage",
    "is_bookkeeping",
    "leftovers_of",
    "own_folders",
    "remove_leftovers",
    "sweep",
    "tracked_keys",
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


def dataset_garbage(snapshot: Snapshot, entries: Sequence[Entry]) -> list[Entry]:
    """Those of the objects below ``<uuid>/`` that the document does not name; history, which may still need them, is not asked here, nor a part of it.

    Of an implicit dataset, whose partitions are whatever lies there, these are only index files that it does not name.
    Folders that are no table's and hold no schema file are somebody else's.
    """
    return [e for e in _unnamed(snapshot, entries) if not is_bookkeeping(e.key)]


def _unnamed(snapshot: Snapshot, entries: Sequence[Entry]) -> list[Entry]:
    """The same, and history entries and marks."""
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
class Site:
    """Where garbage is collected.

    Attributes
    ----------
    look : Callable
        Reads the current documents and gives those of the listed objects that none of them names.
    prefixes : tuple of str
        What the keys of the site start with; temporary files of crashed writers are looked for there.
    is_ours : Callable
        Whether a key that starts so belongs to the site.
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
    site = Site(lambda: _unnamed(_readable(store, uuid), entries), prefixes, lambda key: key.startswith(prefixes), uuid)
    return sweep(store, site, dry_run=dry_run, executor=executor)


def _readable(store: Store, uuid: str) -> Snapshot:
    try:
        return load_snapshot(store, uuid)
    except DatasetNotFound:
        raise
    except (KeyNotFound, CorruptDocument, Unsupported) as error:
        raise CorruptDocument(f"Dataset {uuid!r} cannot be read, so its files cannot be told from garbage: {error}") from error


def sweep(store: Store, site: Site, *, dry_run: bool, executor: Executor = THREADS) -> GarbageReport:
    """Remove what no document and no kept history names and what crashed writers left, as far as it is older than the option ``grace``.

    Documents and history are read again right before anything is deleted: somebody may have named a file since the first look. History entries go before
    the files that they named, so that a crash leaves files that nobody names and no history of files that are gone.
    """
    rule = Rule(_now(), current_options().grace, current_options().retain)
    found = site.look()
    past = read_past(store, found, {})
    marks = read_marks(store, (e.key for e in found))
    marked = marked_since(marks, rule.now)
    verdict = judge(found, past, marked, rule)
    left = [e for e in leftovers_of(store, site.prefixes, rule.before(rule.grace)) if site.is_ours(e.key)]
    if not dry_run:
        write_marks(store, plan_marks(marks, verdict.pending, rule.now, site.is_ours, site.home))
        if verdict.old:
            verdict = _confirmed(store, site, verdict, past, marked, rule)
        for phase in verdict.phases():
            list(map_files(store.delete, phase, executor=executor, store=store, phase=DELETE_FILES))
        remove_leftovers(store, left, rule.before(rule.grace))
    return GarbageReport((*verdict.old, *(_as_garbage(e, rule.now) for e in left)), tuple(verdict.waiting), dry_run)


def _now() -> datetime:
    return datetime.now(UTC)


def _confirmed(store: Store, site: Site, first: Verdict, past: Mapping[str, Past], marked: Mapping[str, datetime], rule: Rule) -> Verdict:
    """The verdict on what was to be removed, after another look at documents and history."""
    found = site.look()
    owners = sorted({f.key.partition("/")[0] for f in first.old if "/" in f.key})
    listed = map_in_threads(lambda owner: store.list(f"{owner}/{HISTORY_FOLDER}/", recursive=True).entries, owners, store=store)
    second = judge(found, read_past(store, [e for entries in listed for e in entries], past), marked, rule)
    doomed = {f.key for f in first.old}
    return Verdict([f for f in second.old if f.key in doomed], second.waiting, second.pending)


def _as_garbage(entry: Entry, now: datetime) -> GarbageFile:
    return GarbageFile(entry.key, entry.size, entry.modified, LEFTOVER, None if entry.modified is None else now - entry.modified)


def leftovers_of(store: Store, prefixes: Iterable[str], before: datetime) -> list[Entry]:
    """Temporary files of local writers that died before this time."""
    return [entry for prefix in prefixes for entry in store.leftovers(prefix, before)]


def remove_leftovers(store: Store, left: Iterable[Entry], before: datetime) -> None:
    """Remove these temporary files."""
    for entry in left:
        store.leftovers(entry.key, before, remove=True)
