"""The verb `cleanup_cube`: garbage collection of a cube."""

from __future__ import annotations

from kartothek_cube.core.commit.cube_writes import finish_stopped_writes
from kartothek_cube.core.maintenance.garbage import GarbageReport, GarbageScope, sweep, tracked_keys
from kartothek_cube.core.metadata.naming import JSON_SUFFIX, MSGPACK_SUFFIX
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.runtime.executor import THREADS, Executor
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.snapshots.loader import find_state
from kartothek_cube.core.stores.contract import Entry
from kartothek_cube.cube.cube import KTK_CUBE_UUID_SEPERATOR, Cube
from kartothek_cube.cube.members.discovery import cube_and_store, load_members
from kartothek_cube.errors import CorruptDocument, KeyNotFound, Unsupported
from kartothek_cube.typing import StoreLike

__all__ = ["CleanupReport", "cleanup_cube", "cleanup_cube_on", "tracked_keys"]

CleanupReport = GarbageReport


def cleanup_cube(
    cube: Cube | str, store: StoreLike, *, dry_run: bool = False, options: Overrides | None = None
) -> GarbageReport:
    """Remove files under the cube's prefix that neither its datasets nor their history name.

    Overwrites, removals and failed writes leave such files. A file younger than
    ``options(grace=...)`` (one day) waits, because a running write may still need it. A file that a
    commit replaced stays for ``options(retain=...)`` (seven days) after that commit, so that
    readers of older snapshots can go on. A write to several datasets that stopped longer ago than
    ``grace`` is aborted. ``options(grace=timedelta(0), retain=timedelta(0))``
    removes everything at once, as kartothek does: only if nobody writes or reads. Ages, histories
    and datasets are handled as by `garbage_collect_dataset`.

    Parameters
    ----------
    cube, store
        As in `query_cube`.
    dry_run : bool, default False
        Only report what would be removed.
    options : optional
        What `options` returns: settings for this call.

    Returns
    -------
    GarbageReport
        The keys that were or would be removed, and those that wait; as of
        `garbage_collect_dataset`.

    Notes
    -----
    Calls of the store: one listing of the whole prefix, one of its documents, and the document of
    each dataset; the rest is as for one dataset.

    Raises
    ------
    CorruptDocument
        If a dataset of the cube cannot be read. The files that it names are unknown then; nothing
        is removed.
    CommitConflict
        If other writers came first more often than ``options(commit_retries=...)`` while statistics
        of removed files were being dropped. Nothing is removed; call it again.

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


def cleanup_cube_on(executor: Executor, cube: Cube | str, store: StoreLike, *, dry_run: bool) -> GarbageReport:
    """Collect garbage as `cleanup_cube` does; the executor removes the files."""
    found, opened = cube_and_store(cube, store)
    prefix = found.uuid_prefix + KTK_CUBE_UUID_SEPERATOR
    entries = opened.list(prefix, recursive=True).entries

    def is_ours(key: str) -> bool:
        # "a+++s" belongs to the cube "a+", not to the cube "a".
        return key.startswith(prefix) and not key.removeprefix(prefix).startswith("+")

    documents = [e.key.removesuffix(s) for e in entries for s in (JSON_SUFFIX, MSGPACK_SUFFIX) if e.key.endswith(s)]
    uuids = sorted({uuid for uuid in documents if is_ours(uuid)})
    unfinished = [] if dry_run else list(uuids)

    def list_unnamed() -> tuple[list[Entry], list[Snapshot]]:
        try:
            finish_stopped_writes(opened, unfinished)
            unfinished.clear()
            members = load_members(found.uuid_prefix, opened)
        except (KeyNotFound, CorruptDocument, Unsupported) as error:
            raise CorruptDocument(
                f"A dataset of cube {found.uuid_prefix!r} cannot be read, "
                f"so its files cannot be distinguished from garbage: {error}"
            ) from error
        tracked = {key for snapshot in members.values() for key in tracked_keys(snapshot)}
        # A dataset that a write is making is not there yet, but its files are needed.
        unseen = [uuid for uuid in uuids if uuid.removeprefix(prefix) not in members and find_state(opened, uuid)]
        folders = tuple(start for uuid in unseen for start in (f"{uuid}/", f"{uuid}."))
        unnamed = [e for e in entries if e.key not in tracked and is_ours(e.key) and not e.key.startswith(folders)]
        return unnamed, list(members.values())

    scope = GarbageScope(list_unnamed, (prefix,), is_ours, found.ktk_dataset_uuid(found.seed_dataset))
    return sweep(opened, scope, dry_run=dry_run, executor=executor)
