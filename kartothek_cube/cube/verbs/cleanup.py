"""Removing files under a cube's prefix that no dataset of it names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.naming import document_key, schema_key
from kartothek_cube.core.options import Overrides, current_options, use_options
from kartothek_cube.core.parallel import run
from kartothek_cube.core.store import Entry, Store
from kartothek_cube.core.stores import open_store
from kartothek_cube.cube.constants import KTK_CUBE_UUID_SEPERATOR
from kartothek_cube.cube.cube import Cube, require_cube
from kartothek_cube.cube.discovery import dataset_ids, load_members
from kartothek_cube.errors import CorruptDocument, KeyNotFound, Unsupported

__all__ = ["CleanupReport", "cleanup_cube", "tracked_keys"]


@dataclass(frozen=True, slots=True)
class CleanupReport:
    """What a cleanup removed, or would remove.

    ``removed`` are the keys with their sizes, ``waiting`` those that no dataset names but that are younger than the
    grace period, so that a write that is under way keeps its files.
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
        """Size of what was removed."""
        return sum(e.size or 0 for e in self.removed)

    def __repr__(self) -> str:
        verb = "would remove" if self.dry_run else "removed"
        return f"CleanupReport({verb} {len(self.removed):,} files of {self.bytes:,} bytes; {len(self.waiting):,} files wait for their grace period)"


def cleanup_cube(cube: Cube, store: Any, *, dry_run: bool = False, options: Overrides | None = None) -> CleanupReport:
    """Remove files under the cube's prefix that no dataset of it names and that are older than ``options(grace=...)``.

    Such files are left by overwrites, removals and writes that failed. What is younger than the grace period (one day)
    waits, because a write that is under way may still need it; ``options(grace=timedelta(0))`` removes at once.

    The age of a file is the time since it was written, not since it was replaced: a reader that began before an update
    may still need files that are older than the grace period. Clean up when such readers have ended.

    Parameters
    ----------
    cube, store
        As in `query_cube`.
    dry_run : bool, default False
        Only say what would be removed.
    options : optional
        What `options` returns: settings for this call.

    Returns
    -------
    CleanupReport
        The keys that were or would be removed, and those that wait.

    Raises
    ------
    CorruptDocument
        If a dataset of the cube cannot be read: nobody knows then which files it names, so nothing is removed.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube, cleanup_cube, open_store
    >>> store = open_store("hmemory://")
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> _ = build_cube(pa.table({"PRODUCT_ID": [1], "COUNTRY_CODE": ["DE"]}), cube, store)
    >>> cleanup_cube(cube, store, dry_run=True)
    CleanupReport(would remove 0 files of 0 bytes; 0 files wait for their grace period)
    """
    with use_options(options):
        opened = open_store(store)
        limit = datetime.now(UTC) - current_options().grace
        entries = opened.list(require_cube(cube).uuid_prefix + KTK_CUBE_UUID_SEPERATOR, recursive=True).entries
        old, young = _by_age(_garbage(cube, opened, entries), limit)
        if not dry_run and old:
            # Somebody may have named a file since the listing: look again right before deleting.
            still = {e.key for e in _garbage(cube, opened, old)}
            old = [e for e in old if e.key in still]
            list(run(lambda entry: opened.delete(entry.key), old))
        return CleanupReport((*old, *_leftovers(cube, opened, limit, dry_run)), tuple(young), dry_run)


def _leftovers(cube: Cube, store: Store, limit: datetime, dry_run: bool) -> list[Entry]:
    """Temporary files of local writers that were killed."""
    uuids = [cube.ktk_dataset_uuid(i) for i in dataset_ids(cube.uuid_prefix, store)]
    found = {e.key: e for uuid in uuids for e in store.leftovers(uuid, limit, remove=not dry_run)}
    return list(found.values())


def _garbage(cube: Cube, store: Store, entries: Iterable[Entry]) -> list[Entry]:
    try:
        members = load_members(cube.uuid_prefix, store)
    except (KeyNotFound, CorruptDocument, Unsupported) as error:
        raise CorruptDocument(f"A dataset of cube {cube.uuid_prefix!r} cannot be read, so its files cannot be told from garbage: {error}") from error
    tracked = {key for snapshot in members.values() for key in tracked_keys(snapshot)}
    return [e for e in entries if e.key not in tracked and not _of_other_cube(cube, e.key)]


def _of_other_cube(cube: Cube, key: str) -> bool:
    # "a+++s" belongs to the cube "a+".
    return key.removeprefix(cube.uuid_prefix + KTK_CUBE_UUID_SEPERATOR).startswith("+")


def tracked_keys(snapshot: Snapshot) -> set[str]:
    """All keys that belong to a dataset as it is: both documents, schema files, indices, data."""
    keys = {document_key(snapshot.uuid), document_key(snapshot.uuid, msgpack=True)}
    keys |= {schema_key(snapshot.uuid, table) for table in snapshot.tables}
    keys |= {str(k) for k in snapshot.document.indices.values() if isinstance(k, str)}
    return keys | {k for files in snapshot.partitions.files.values() for k in files.to_pylist() if k is not None}


def _by_age(entries: Iterable[Entry], limit: datetime) -> tuple[list[Entry], list[Entry]]:
    """Old enough to go, and too young; without a time of writing only a grace period of zero says that it is old."""
    no_grace = datetime.now(UTC) - limit <= timedelta(seconds=1)
    old = [e for e in entries if no_grace or (e.modified is not None and e.modified <= limit)]
    keys = {e.key for e in old}
    return old, [e for e in entries if e.key not in keys]
