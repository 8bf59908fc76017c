"""Garbage: the files that no dataset names, and removing those that are old enough."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.naming import INDEX_SUFFIX, SCHEMA_FILE, document_key, schema_key
from kartothek_cube.core.options import current_options
from kartothek_cube.core.parallel import run
from kartothek_cube.core.snapshots import load_snapshot
from kartothek_cube.core.store import Entry, Store
from kartothek_cube.errors import CorruptDocument, DatasetNotFound, KeyNotFound, Unsupported

__all__ = ["GarbageReport", "collect_garbage", "dataset_garbage", "leftovers_of", "own_folders", "remove_leftovers", "sweep", "tracked_keys"]


@dataclass(frozen=True, slots=True)
class GarbageReport:
    """What a collection of garbage removed, or would remove.

    ``removed`` are the keys with their sizes in bytes, ``waiting`` those that no dataset names but that are younger than
    the grace period, so that a write that is under way keeps its files.

    Examples
    --------
    >>> GarbageReport((Entry("sales/table/COUNTRY_CODE=DE/1.parquet", 1_200),), (), dry_run=True)
    GarbageReport(would remove 1 files of 1,200 bytes; 0 files wait for their grace period)
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
        """Size of what was removed; what the store gives no size of counts as nothing."""
        return sum(e.size or 0 for e in self.removed)

    def __repr__(self) -> str:
        verb = "would remove" if self.dry_run else "removed"
        counts = f"{verb} {len(self.removed):,} files of {self.bytes:,} bytes; {len(self.waiting):,} files wait for their grace period"
        return f"{type(self).__name__}({counts})"


# --- what is garbage: pure --------------------------------------------------------------------------------------------


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


def dataset_garbage(snapshot: Snapshot, entries: Sequence[Entry]) -> list[Entry]:
    """Those of the objects below ``<uuid>/`` that the dataset does not need.

    Of an implicit dataset, whose partitions are whatever lies there, these are only index files that it does not name.
    Folders that are no table's and hold no schema file are somebody else's.
    """
    tracked = tracked_keys(snapshot)
    if snapshot.document.partitions is None:
        return [e for e in entries if e.key.startswith(f"{snapshot.uuid}/indices/") and e.key.endswith(INDEX_SUFFIX) and e.key not in tracked]
    folders = own_folders(snapshot.uuid, _known_tables(snapshot), (e.key for e in entries))
    return [e for e in entries if e.key.startswith(folders) and e.key not in tracked]


def _by_age(entries: Iterable[Entry], now: datetime, grace: timedelta) -> tuple[list[Entry], list[Entry]]:
    """Old enough to go, and too young; without a time of writing only a grace period of zero says that it is old."""
    old: list[Entry] = []
    young: list[Entry] = []
    for entry in entries:
        is_old = not grace or (entry.modified is not None and entry.modified <= now - grace)
        (old if is_old else young).append(entry)
    return old, young


# --- the run ----------------------------------------------------------------------------------------------------------


def collect_garbage(store: Store, uuid: str, *, dry_run: bool) -> GarbageReport:
    """Remove the garbage of one dataset that is older than the option ``grace``.

    Raises
    ------
    DatasetNotFound
        If the dataset does not exist.
    CorruptDocument
        If its document or a schema cannot be read: nobody knows then what is garbage, so nothing is removed.
    """
    _readable(store, uuid)
    entries = store.list(f"{uuid}/", recursive=True).entries
    return sweep(store, lambda: dataset_garbage(_readable(store, uuid), entries), [uuid], dry_run=dry_run)


def _readable(store: Store, uuid: str) -> Snapshot:
    try:
        return load_snapshot(store, uuid)
    except DatasetNotFound:
        raise
    except (KeyNotFound, CorruptDocument, Unsupported) as error:
        raise CorruptDocument(f"Dataset {uuid!r} cannot be read, so its files cannot be told from garbage: {error}") from error


def sweep(store: Store, find: Callable[[], Iterable[Entry]], uuids: Iterable[str], *, dry_run: bool) -> GarbageReport:
    """Remove what ``find`` finds and what crashed writers of these datasets left, as far as it is older than the option ``grace``.

    ``find`` is asked again right before anything is deleted: somebody may have named a file since the first look.
    """
    grace, now = current_options().grace, datetime.now(UTC)
    old, young = _by_age(find(), now, grace)
    left = leftovers_of(store, uuids, now - grace)
    if not dry_run:
        if old:
            still = {e.key for e in find()}
            old = [e for e in old if e.key in still]
        list(run(lambda entry: store.delete(entry.key), old))
        remove_leftovers(store, left, now - grace)
    return GarbageReport((*old, *left), tuple(young), dry_run)


def leftovers_of(store: Store, uuids: Iterable[str], before: datetime) -> list[Entry]:
    """Temporary files of local writers that died before this time."""
    prefixes = [f"{uuid}{mark}" for uuid in uuids for mark in ("/", ".")]
    return [entry for prefix in prefixes for entry in store.leftovers(prefix, before)]


def remove_leftovers(store: Store, left: Iterable[Entry], before: datetime) -> None:
    """Remove these temporary files."""
    for entry in left:
        store.leftovers(entry.key, before, remove=True)
