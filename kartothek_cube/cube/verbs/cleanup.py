"""Removing files under a cube's prefix that no dataset of it names."""

from __future__ import annotations

from collections.abc import Iterable

from kartothek_cube.core.maintenance.garbage import GarbageReport, GarbageScope, sweep, tracked_keys
from kartothek_cube.core.options import Overrides
from kartothek_cube.core.parallel import THREADS, Executor
from kartothek_cube.core.store import Entry, Store
from kartothek_cube.core.stores import open_instrumented
from kartothek_cube.core.telemetry import operation
from kartothek_cube.cube.constants import KTK_CUBE_UUID_SEPERATOR
from kartothek_cube.cube.cube import Cube, require_cube
from kartothek_cube.cube.discovery import load_members
from kartothek_cube.errors import CorruptDocument, KeyNotFound, Unsupported
from kartothek_cube.typing import StoreLike

__all__ = ["CleanupReport", "cleanup_cube", "cleanup_cube_on", "tracked_keys"]

CleanupReport = GarbageReport


def cleanup_cube(cube: Cube, store: StoreLike, *, dry_run: bool = False, options: Overrides | None = None) -> GarbageReport:
    """Remove files under the cube's prefix that no dataset of it names, nor the history that is kept, and that are older than ``options(grace=...)``.

    Such files are left by overwrites, removals and writes that failed. What is younger than the grace period (one day) waits, because a write that is
    under way may still need it. What a commit replaced stays for ``options(retain=...)`` (seven days), counted from the commit, so that readers of older
    snapshots can go on. ``options(grace=timedelta(0), retain=timedelta(0))`` removes all at once, as kartothek does: say so only if nobody writes or
    reads. Ages are found, and histories and datasets looked after, as by `garbage_collect_dataset`.

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
    GarbageReport
        The keys that were or would be removed, and those that wait; as of `garbage_collect_dataset`.

    Notes
    -----
    Calls of the store: one listing of the whole prefix, one of its documents, and the document of each dataset; the rest is as for one dataset.

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
    GarbageReport(would remove 0 files of 0 bytes; 0 files of 0 bytes wait)
    """
    with operation("cleanup_cube", options, cube=cube):
        return cleanup_cube_on(THREADS, cube, store, dry_run=dry_run)


def cleanup_cube_on(executor: Executor, cube: Cube, store: StoreLike, *, dry_run: bool) -> GarbageReport:
    """Collect garbage as `cleanup_cube` does, inside an operation; the executor removes the files."""
    opened, prefix = open_instrumented(store), require_cube(cube).uuid_prefix + KTK_CUBE_UUID_SEPERATOR
    entries = opened.list(prefix, recursive=True).entries
    scope = GarbageScope(
        look=lambda: _unnamed(cube, opened, entries),
        prefixes=(prefix,),
        is_ours=lambda key: key.startswith(prefix) and not _of_other_cube(cube, key),
        home=cube.ktk_dataset_uuid(cube.seed_dataset),
    )
    return sweep(opened, scope, dry_run=dry_run, executor=executor)


def _unnamed(cube: Cube, store: Store, entries: Iterable[Entry]) -> list[Entry]:
    try:
        members = load_members(cube.uuid_prefix, store)
    except (KeyNotFound, CorruptDocument, Unsupported) as error:
        raise CorruptDocument(f"A dataset of cube {cube.uuid_prefix!r} cannot be read, so its files cannot be told from garbage: {error}") from error
    tracked = {key for snapshot in members.values() for key in tracked_keys(snapshot)}
    return [e for e in entries if e.key not in tracked and not _of_other_cube(cube, e.key)]


def _of_other_cube(cube: Cube, key: str) -> bool:
    # "a+++s" belongs to the cube "a+".
    return key.removeprefix(cube.uuid_prefix + KTK_CUBE_UUID_SEPERATOR).startswith("+")
