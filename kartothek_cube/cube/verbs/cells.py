"""Delete cells, datasets, or the cube.

In order:

- `delete_cube`
- `delete_cells`
- `forget_cells`: also from every older state
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from kartothek_cube.core.arguments import check_flag, converter_str_set_optional
from kartothek_cube.core.commit.change import OnConflict, check_on_conflict
from kartothek_cube.core.dataset.history import drop_dataset_tag
from kartothek_cube.core.delta.publication import renew_logs
from kartothek_cube.core.expressions.conditions import Conjunction
from kartothek_cube.core.maintenance.copy import (
    Deletion,
    abort_pending_in,
    find_deletion,
    find_listed_deletion,
    run_deletions,
)
from kartothek_cube.core.maintenance.garbage import GarbageReport
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.metadata.tag import Tag, tag_key
from kartothek_cube.core.rows.edits import RowsReport
from kartothek_cube.core.rows.run import dry_report, stage_plans
from kartothek_cube.core.runtime.executor import THREADS, map_in_threads
from kartothek_cube.core.runtime.options import Overrides, current_options
from kartothek_cube.core.runtime.options import options as overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.snapshots.loader import KeptFiles
from kartothek_cube.core.snapshots.time_travel import list_tags, stored_tags, tag_names
from kartothek_cube.core.stores.contract import Store, check_store_can_commit
from kartothek_cube.cube.consistent_read import check_whole_writes
from kartothek_cube.cube.cube import Cube, check_belong_to_cube, chosen_members, given_datasets, require_cube
from kartothek_cube.cube.members import cube_and_store, dataset_ids, load_cube
from kartothek_cube.cube.verbs.history import drop_cube_tag
from kartothek_cube.cube.verbs.maintain import cleanup_cube
from kartothek_cube.cube.write.commit import publish
from kartothek_cube.cube.write.plan import cell_changes, cells_where, plan_cell_deletion
from kartothek_cube.errors import (
    CommitConflict,
    CorruptDocument,
    DatasetNotFound,
    InvalidInput,
    InvalidRequest,
    ReadOnlyStore,
)
from kartothek_cube.typing import Columns, Executor, IntoConditions, IntoDatasets, StoreLike

_LOGGER = logging.getLogger(__name__)


def delete_cube(
    cube: Cube | str,
    store: StoreLike,
    datasets: IntoDatasets = None,
    *,
    options: Overrides | None = None,
    executor: Executor = THREADS,
) -> None:
    """Delete a cube, or some of its datasets, with their history, indices, data and documents.

    The cube need not be valid, and a dataset need not have its schema file. Files that no document
    names stay, also those of older snapshots; to remove them, too, call `cleanup_cube` with
    ``options(grace=timedelta(0), retain=timedelta(0))`` before. If a document is damaged, all of
    ``<uuid>/`` is deleted; files that the document named elsewhere are unknown and stay, and a
    warning is logged. There is no grace period: concurrent queries of the cube fail. If the call is
    interrupted, call it again.

    Parameters
    ----------
    cube, store
        As in `query_cube`.
    datasets : str, iterable of str, or dict, optional
        The datasets, by id or as a dict dataset id → `DatasetMetadata`; by default all. Missing
        ones are ignored. The current state of a dataset is deleted, whatever the dict has.
    options : optional
        What `options` returns: settings for this call.
    executor : Executor, optional
        What runs the work on files, by default threads of this process.

    Raises
    ------
    Unsupported
        If a document has a format that this version does not support. Nothing is removed then.
    InvalidInput, InvalidType
        If ``cube`` is no `Cube`, or ``datasets`` has something that is no dataset of it.
    ReadOnlyStore
        If the store cannot be written to.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube, delete_cube, open_store
    >>> store = open_store("hmemory://")
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> _ = build_cube(pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]}), cube, store)
    >>> delete_cube(cube, store)
    >>> store.list(recursive=True).keys
    []
    """
    with operation("delete_cube", options, cube=cube):
        cube, opened = cube_and_store(cube, store)
        plans = plan_cube_deletion(cube, opened, datasets)
        abort_pending_in(opened, plans)  # as long as the seed can tell
        run_deletions(opened, plans, executor)


def plan_cube_deletion(cube: Cube, store: Store, datasets: IntoDatasets = None) -> dict[str, Deletion]:
    """Plan the deletion of each dataset, by uuid and in their order; errors as of `delete_cube`."""
    require_cube(cube)
    if isinstance(datasets, Mapping):
        given = given_datasets(datasets)
        check_belong_to_cube(given, cube)
        names: frozenset[str] | None = frozenset(given)
    else:
        names = converter_str_set_optional(datasets)
    present = dataset_ids(cube.uuid_prefix, store)
    chosen = present if names is None else present & names
    if not store.capabilities.writable:
        raise ReadOnlyStore(
            f"The store {store.name} cannot be written to, so cube {cube.uuid_prefix!r} cannot be deleted."
        )

    def plan(uuid: str) -> Deletion | None:
        try:
            return replace(find_deletion(store, uuid), garbage=())
        except DatasetNotFound:
            return None  # another process has deleted it since the listing
        except CorruptDocument as error:
            text = (
                "Dataset %r cannot be read, so everything below %r is deleted, "
                "and files that it named elsewhere stay: %s"
            )
            _LOGGER.warning(text, uuid, f"{uuid}/", error)
            return find_listed_deletion(store, uuid)

    # The seed goes first: from its first file on queries fail, and without its document there is no
    # cube. In any other order an interrupted deletion would leave a cube that answers with fewer
    # columns.
    uuids = [cube.ktk_dataset_uuid(name) for name in sorted(chosen, key=lambda i: (i != cube.seed_dataset, i))]
    found = zip(uuids, map_in_threads(plan, uuids, store=store), strict=True)
    plans = {uuid: each for uuid, each in found if each is not None}
    return {uuid: replace(plan, ledger=tuple(u for u in plan.ledger if u not in plans)) for uuid, plan in plans.items()}


# --- delete_cells ---------------------------------------------------------------------------------


def delete_cells(
    cube: Cube | str,
    store: StoreLike,
    conditions: IntoConditions,
    *,
    datasets: Columns = None,
    on_conflict: OnConflict = "raise",
    dry_run: bool = False,
    options: Overrides | None = None,
) -> dict[str, RowsReport]:
    """Delete the cells that a query with these conditions has, in one write to the cube.

    The seed loses all rows of the cells, also those that newer rows hide. Enrichments lose the rows
    that such a cell showed and no other cell shows. Only files with such rows are written anew. Any
    query has the result of before, without these cells. See the pages *Rows* and *Right to
    erasure*.

    Parameters
    ----------
    cube, store
        As in `query_cube`.
    conditions : Condition, Conjunction or iterable of Condition
        Which cells; on any columns of the cube. None is refused.
    datasets : str or iterable of str, optional
        The enrichments that lose rows, by default all. The seed always does.
    on_conflict : {"raise", "reapply"}
        What to do if another writer replaced or removed one of the files meanwhile. ``"raise"``:
        `CommitConflict`. ``"reapply"``: the cells are searched again in the newest state. Files
        that others add are no conflict, unless a new cell shows a row that an enrichment of
        fewer dimensions would lose.
    dry_run : bool, default False
        Only report what would be done.
    options : optional
        What `options` returns: settings for this call.

    Returns
    -------
    dict
        Dataset id → `RowsReport`, the seed first.

    Raises
    ------
    InvalidInput, InvalidType
        If conditions are missing or do not fit the cube, a dataset does not exist, or no cell would
        be left. Nothing has changed then.
    CommitConflict
        If another writer replaced or removed one of the files. Nothing has changed.
    CommitOutcomeUnknown
        If the store does not say whether the deletion has landed, which is in all datasets or in
        none.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import C, Cube, build_cube, delete_cells, open_store, query_cube
    >>> store, cube = open_store("hmemory://"), Cube(["ORDER_ID"], ["COUNTRY_CODE"], "orders")
    >>> orders = pd.DataFrame({"ORDER_ID": [1, 2, 3], "CUSTOMER_ID": [7, 8, 7]})
    >>> _ = build_cube(orders.assign(COUNTRY_CODE="DE"), cube, store)
    >>> delete_cells(cube, store, C("CUSTOMER_ID") == 7)["seed"].deleted
    2
    >>> query_cube(cube, store)[0]["CUSTOMER_ID"].tolist()
    [8]
    """
    with operation("delete_cells", options, cube=cube):
        found, opened = cube_and_store(cube, store)
        # Not the iterator that may have been given: each attempt reads the conditions.
        conditions = conditions if isinstance(conditions, str) else Conjunction(conditions)
        if not (conditions.strip() if isinstance(conditions, str) else conditions.columns):
            raise InvalidInput(
                f"Which cells of cube {found.uuid_prefix!r}? Conditions are needed: without them all cells would be "
                "meant. To delete everything, call delete_cube."
            )
        mode, dry = check_on_conflict(on_conflict), check_flag(dry_run, "dry_run")
        names = converter_str_set_optional(datasets)
        if not dry:
            check_store_can_commit(opened)
        retries = current_options().commit_retries if mode == "reapply" and not dry else 0

        def attempt() -> dict[str, RowsReport]:
            members, files = load_cube(found, opened), KeptFiles(opened)
            chosen = chosen_members(found, members, names)
            with cells_where(found, files, members, conditions) as cells:
                plans = plan_cell_deletion(found, files, members, cells, chosen, THREADS)
                reports = {i: dry_report(plan, dry_run=dry) for i, plan in plans.items()}
                if dry:
                    return reports
                changing = {i: plan for i, plan in plans.items() if plan}
                staged = dict(zip(changing, stage_plans(files, [*changing.values()], THREADS), strict=True))
            changes = cell_changes(found, files, members, plans, staged)
            publish(files, found, changes, {i: members[i] for i in changes})
            return {**reports, **{i: rows.report for i, rows in staged.items()}}

        # A conflict has left all datasets as they were, so the second search finds the same cells.
        for _ in range(retries):
            try:
                return attempt()
            except CommitConflict:
                continue
        return attempt()


# --- forget_cells ---------------------------------------------------------------------------------


class ForgetReport(Struct, frozen=True):
    """What `forget_cells` has done or would do.

    Attributes
    ----------
    rows : dict
        Dataset id → `RowsReport`, as of `delete_cells`.
    cleanup : CleanupReport
        The files of older states. With ``dry_run`` those that the deletion replaces are not yet
        among them.
    dropped_tags : tuple of str
        The tags, those of single datasets with their uuid.
    dry_run : bool
        Whether nothing was changed.

    Examples
    --------
    >>> from kartothek_cube.api.cube import CleanupReport, ForgetReport
    >>> ForgetReport({}, CleanupReport((), (), True), ("audit",), True).dropped_tags
    ('audit',)
    """

    rows: dict[str, RowsReport]
    cleanup: GarbageReport
    dropped_tags: tuple[str, ...]
    dry_run: bool


class TagName(NamedTuple):
    """A tag of the cube, or of the dataset ``uuid`` alone."""

    name: str
    uuid: str | None

    def __str__(self) -> str:
        return self.name if self.uuid is None else f"{self.name} of {self.uuid}"


def forget_cells(
    cube: Cube | str,
    store: StoreLike,
    conditions: IntoConditions,
    *,
    drop_tags: bool = False,
    dry_run: bool = False,
    options: Overrides | None = None,
) -> ForgetReport:
    """Delete cells, and every file and state that still has them.

    First `delete_cells`, then `cleanup_cube` with ``grace`` and ``retain`` of zero: no byte of the
    cells stays in the store. The whole history of the cube goes, too, so that no older state can be
    read and nothing can be undone. Readers and writers that are running fail. Call it again if it
    was interrupted. The page *Right to erasure* says what is beyond reach.

    Parameters
    ----------
    cube, store, conditions
        As in `delete_cells`.
    drop_tags : bool, default False
        Drop all tags of the cube and its datasets. Tags keep older states, so without it they are
        an error.
    dry_run : bool, default False
        Only report what would be done.
    options : optional
        What `options` returns: settings for this call.

    Returns
    -------
    ForgetReport
        The deleted rows, the removed files, the dropped tags.

    Raises
    ------
    InvalidRequest
        If there are tags, without ``drop_tags``, or if some datasets lack, or may lack, a write.
        Nothing was deleted.
    InvalidInput, InvalidType, CommitConflict, CommitOutcomeUnknown
        As of `delete_cells`.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import C, Cube, build_cube, cube_history, forget_cells, open_store
    >>> store, cube = open_store("hmemory://"), Cube(["ORDER_ID"], ["COUNTRY_CODE"], "orders")
    >>> orders = pd.DataFrame({"ORDER_ID": [1, 2, 3], "CUSTOMER_ID": [7, 8, 7]})
    >>> _ = build_cube(orders.assign(COUNTRY_CODE="DE"), cube, store)
    >>> report = forget_cells(cube, store, C("CUSTOMER_ID") == 7)
    >>> report.rows["seed"].deleted, len(report.cleanup.removed) > 0
    (2, True)
    """
    with operation("forget_cells", options, cube=cube):
        found, opened = cube_and_store(cube, store)
        conditions = conditions if isinstance(conditions, str) else Conjunction(conditions)
        drops, dry = check_flag(drop_tags, "drop_tags"), check_flag(dry_run, "dry_run")
        members = load_cube(found, opened)
        # A second deletion would not find what the seed has lost.
        check_whole_writes(found.uuid_prefix, opened, members)
        tags = tags_of_members(opened, members)
        if tags and not drops:
            raise InvalidRequest(
                f"Tags of cube {found.uuid_prefix!r} keep older states, which may have the cells: "
                f"{', '.join(map(str, tags))}. Give drop_tags=True, or drop them by drop_cube_tag or "
                "drop_dataset_tag. Nothing was deleted."
            )
        # If the deletion fails, no history is lost.
        rows = delete_cells(found, opened, conditions, dry_run=dry)
        if not dry:
            for tag in tags:
                if tag.uuid is None:
                    drop_cube_tag(found, opened, tag.name)
                else:
                    drop_dataset_tag(tag.uuid, opened, tag.name)
            for snapshot in load_cube(found, opened).values():
                renew_logs(opened, snapshot)
        # Also where no row matches: an interrupted call may have left the files.
        at_once = overrides(grace=timedelta(0), retain=timedelta(0))
        return ForgetReport(
            rows, cleanup_cube(found, opened, dry_run=dry, options=at_once), tuple(map(str, tags)), dry_run=dry
        )


def tags_of_members(store: Store, members: Mapping[str, Snapshot]) -> list[TagName]:
    """All tags: of the cube, and of single datasets."""
    names: set[TagName] = set()
    for uuid in (snapshot.uuid for snapshot in members.values()):
        counting = {tag.name: tag for tag in list_tags(store, uuid)}
        names |= {
            TagName(name, None if tag.seed else uuid) for name, tag in counting.items() if tag.seed in (None, uuid)
        }
        rest = {tag_key(uuid, name): name for name in tag_names(store, uuid) if name not in counting}
        # An unreadable tag keeps every tagged state. A share that does not count is garbage.
        stored = stored_tags(store, rest)
        names |= {
            TagName(rest[key], uuid) for key, tag in stored.items() if tag is not None and not isinstance(tag, Tag)
        }
    return sorted(names, key=str)
