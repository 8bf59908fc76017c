"""Maintenance of a cube: garbage, indices, statistics, compaction.

In order:

- `cleanup_cube`
- secondary indices: built and dropped
- partitions, files, bytes and rows
- `compact_cube`: fewer, larger files
- Delta tables of its datasets
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing
from functools import partial
from itertools import islice
from typing import NoReturn

import numpy as np
import pyarrow.compute as pc
from msgspec.structs import replace

from kartothek_cube.core.arguments import check_flag, converter_str_set, converter_str_set_optional, join_names
from kartothek_cube.core.commit.change import Change
from kartothek_cube.core.commit.cube_writes import finish_pending
from kartothek_cube.core.commit.dataset_write import repeat_on_conflict
from kartothek_cube.core.delta.log import PublishedDelta
from kartothek_cube.core.delta.publication import check_publishable, publish_newest
from kartothek_cube.core.display import in_notebook, show_bytes, show_count, table
from kartothek_cube.core.expressions.predicates import Mask
from kartothek_cube.core.io.formats import FileFormat
from kartothek_cube.core.io.reader import Clustering, file_rows
from kartothek_cube.core.kartothek.dataset_metadata import DatasetMetadata
from kartothek_cube.core.maintenance.compaction import (
    Selection,
    check_format,
    plan_files,
    run_compactions,
)
from kartothek_cube.core.maintenance.compaction_plan import (
    TARGET_ROWS,
    CompactionReport,
    cell_order,
    check_clustering,
    check_columns,
    check_target_rows,
    has_columns,
)
from kartothek_cube.core.maintenance.garbage import GarbageReport, GarbageScope, settled_states, sweep, tracked_keys
from kartothek_cube.core.metadata.naming import JSON_SUFFIX, MSGPACK_SUFFIX, SINGLE_TABLE
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.runtime.executor import THREADS, map_files, map_in_threads
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.scan.plan import partition_mask
from kartothek_cube.core.snapshots.loader import Entries, KeptFiles, built_indices, find_state
from kartothek_cube.core.snapshots.statistics import extents_of_files
from kartothek_cube.core.stores.contract import Entry, Store, check_key, check_store_can_commit
from kartothek_cube.core.write.prepare import check_index_columns
from kartothek_cube.cube.consistent_read import check_infos, infos_of
from kartothek_cube.cube.cube import (
    KTK_CUBE_METADATA_SUPPRESS_INDEX_ON,
    KTK_CUBE_UUID_SEPERATOR,
    Cube,
    check_not_loaded,
    chosen_members,
    partition_clauses,
    partition_conditions,
    visible_columns,
)
from kartothek_cube.cube.members import cube_and_store, load_cube, load_members, read_members
from kartothek_cube.cube.write.commit import publish
from kartothek_cube.errors import (
    CommitConflict,
    CorruptDocument,
    CubeCommitIncomplete,
    InvalidInput,
    InvalidRequest,
    KeyNotFound,
    UnknownColumn,
    Unsupported,
)
from kartothek_cube.typing import AsOf, Columns, Executor, IntoConditions, IntoDatasets, StoreLike

CleanupReport = GarbageReport


def cleanup_cube(
    cube: Cube | str,
    store: StoreLike,
    *,
    dry_run: bool = False,
    options: Overrides | None = None,
    executor: Executor = THREADS,
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
    executor : Executor, optional
        What runs the work on files, by default threads of this process.

    Returns
    -------
    GarbageReport
        The keys that were or would be removed, and those that wait; as of
        `garbage_collect_dataset`.

    Notes
    -----
    Calls of the store: one listing of the whole prefix, and the document of each dataset; the rest
    is as for one dataset. Before something is removed, the documents are listed once more.

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
                states = settled_states(opened, unfinished) if unfinished else None
                unfinished.clear()
                if states is None:
                    members = load_members(found.uuid_prefix, opened)
                else:
                    members = {uuid.removeprefix(prefix): snapshot for uuid, snapshot in states.items()}
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


# --- secondary indices ----------------------------------------------------------------------------


def build_cube_index(
    cube: Cube | str,
    store: StoreLike,
    columns: Iterable[str] | str,
    ktk_cube_dataset_ids: Columns = None,
    *,
    options: Overrides | None = None,
) -> dict[str, DatasetMetadata]:
    """Build secondary indices on columns of an existing cube, reading only these columns.

    Each dataset that has a column gets an index on it; an existing index is rebuilt. A dataset with
    the column as partition key needs none: the paths of its files are an index. Metadata, other
    indices and data do not change. Afterwards queries can group by the column, and later writes
    maintain the index. `open_cube` returns a `Cube` with the column among its ``index_columns``, or
    for a dimension column of the seed, one that does not suppress the index.

    Parameters
    ----------
    cube, store
        As in `query_cube`. The cube may name the new indices already.
    columns : str or iterable of str
        The columns.
    ktk_cube_dataset_ids : str or iterable of str, optional
        The datasets to index; by default all that have the column.
    options : optional
        The result of `options`: settings for this call.

    Returns
    -------
    dict
        Dataset id → `DatasetMetadata` of the datasets with new indices.

    Raises
    ------
    InvalidInput
        For a cube that does not exist or is not valid, and for unknown datasets. `UnknownColumn`
        for a column that none of the datasets has, `InvalidRequest` for a column that is a
        partition key in every dataset that has it.
    Unsupported
        If no index can be built on the type of a column.
    CommitConflict
        If other writers added or removed partitions in between more often than
        ``options(commit_retries=...)``; nothing is visible in any dataset. Each retry reads only
        new files.
    CommitOutcomeUnknown
        If the store does not say whether the indices are visible: all or none.

    Notes
    -----
    Rows without a value in the column are in no index. A write with a `Cube` that names the column
    refuses such rows.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube, iter_cube, open_cube, open_store
    >>> from kartothek_cube import build_cube_index
    >>> store = open_store("hmemory://")
    >>> sales = {"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"], "BRAND": ["Acme", "Bolt"]}
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> _ = build_cube(pa.table(sales), cube, store)
    >>> list(build_cube_index(cube, store, "BRAND"))
    ['seed']
    >>> open_cube("sales", store).index_columns
    frozenset({'BRAND'})
    >>> [key for key, _ in iter_cube(cube, store, partition_by="BRAND")]
    [{'BRAND': 'Acme'}, {'BRAND': 'Bolt'}]
    """
    with operation("build_cube_index", options, cube=cube):
        found, opened = cube_and_store(cube, store)
        check_store_can_commit(opened)
        names, ids = _columns(columns), converter_str_set_optional(ktk_cube_dataset_ids)
        # Index entries of files that an attempt has read; the next attempt reads only new files.
        entries = Entries()

        def attempt() -> dict[str, DatasetMetadata]:
            # Each attempt loads the datasets anew: the commit in between changed their files.
            members = _members(found, opened, ids)
            columns_by_dataset = _assign(members, names, _can_build, _raise_not_buildable)
            for i, new in columns_by_dataset.items():
                for key in check_index_columns(members[i].schemas, new, members[i].partition_keys, members[i].uuid):
                    check_key(key)
            changes = {
                i: replace(
                    _change_of_indices(members[i], members[i].secondary_columns | set(new)),
                    metadata=_metadata(found, i, members[i], built=new),
                    built=built_indices(opened, members[i], new, entries),
                )
                for i, new in columns_by_dataset.items()
            }
            landed = publish(opened, found, changes, members)
            return DatasetMetadata.of_each(landed)

        return repeat_on_conflict(attempt)


def drop_cube_index(
    cube: Cube | str,
    store: StoreLike,
    columns: Iterable[str] | str,
    ktk_cube_dataset_ids: Columns = None,
    *,
    options: Overrides | None = None,
) -> dict[str, DatasetMetadata]:
    """Drop secondary indices of a cube.

    Data and metadata do not change; the index files become garbage.

    A `Cube` that demands a dropped index is no longer valid for the store. `open_cube` returns a
    valid one: without the column in ``index_columns``, or for a dimension column of the seed, with
    the column in ``suppress_index_on``.

    Parameters
    ----------
    cube, store, options
        As in `build_cube_index`.
    columns : str or iterable of str
        The columns.
    ktk_cube_dataset_ids : str or iterable of str, optional
        The datasets to change; by default all that have such an index.

    Returns
    -------
    dict
        Dataset id → `DatasetMetadata` of the datasets that lost indices.

    Raises
    ------
    InvalidInput
        For a cube that does not exist or is not valid, and for unknown datasets. `UnknownColumn`
        for a column that none of the datasets has, `InvalidRequest` for a column without secondary
        index, such as a partition key, which is indexed by its path.
    CommitConflict, CommitOutcomeUnknown
        As in `build_cube_index`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube, drop_cube_index, open_cube, open_store
    >>> store = open_store("hmemory://")
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales", index_columns=["BRAND"])
    >>> sales = pa.table({"PRODUCT_ID": [1], "COUNTRY_CODE": ["DE"], "BRAND": ["Acme"]})
    >>> _ = build_cube(sales, cube, store)
    >>> sorted(drop_cube_index(cube, store, ["BRAND", "PRODUCT_ID"])["seed"].indices)
    []
    >>> cube = open_cube("sales", store)
    >>> cube.index_columns, cube.suppress_index_on
    (frozenset(), frozenset({'PRODUCT_ID'}))
    """
    with operation("drop_cube_index", options, cube=cube):
        found, opened = cube_and_store(cube, store)
        check_store_can_commit(opened)
        members = _members(found, opened, ktk_cube_dataset_ids)
        columns_by_dataset = _assign(
            members, _columns(columns), lambda s, column: column in s.secondary_columns, _raise_not_droppable
        )
        changes = {
            name: replace(
                _change_of_indices(members[name], members[name].secondary_columns - set(old)),
                metadata=_metadata(found, name, members[name], dropped=old),
                dropped=frozenset(old),
            )
            for name, old in columns_by_dataset.items()
        }
        landed = publish(opened, found, changes, members)
        return {name: DatasetMetadata.of(snapshot) for name, snapshot in landed.items()}


# --- which columns of which datasets --------------------------------------------------------------


def _columns(given: object) -> list[str]:
    columns = sorted(converter_str_set(given))
    if not columns:
        raise InvalidInput("Name at least one column.")
    return columns


def _members(cube: Cube, store: Store, given: object) -> dict[str, Snapshot]:
    """The selected datasets of a cube that is valid apart from its indices."""
    members = load_members(cube.uuid_prefix, store)
    # The indices are about to change: the cube may name them before or after that.
    check_infos(infos_of(members), cube.copy(index_columns=(), suppress_index_on=cube.dimension_columns))
    return chosen_members(cube, members, converter_str_set_optional(given))


def _can_build(snapshot: Snapshot, column: str) -> bool:
    return column in visible_columns(snapshot.schema.names) and column not in snapshot.partition_keys


def _assign(
    members: Mapping[str, Snapshot],
    columns: list[str],
    fits: Callable[[Snapshot, str], bool],
    raise_unfit: Callable[[Mapping[str, Snapshot], str], NoReturn],
) -> dict[str, list[str]]:
    """Dataset → the columns that fit it; an error for a column that fits no dataset."""
    columns_by_dataset = {i: [c for c in columns if fits(s, c)] for i, s in members.items()}
    for column in columns:
        if not any(column in names for names in columns_by_dataset.values()):
            raise_unfit(members, column)
    return {i: names for i, names in columns_by_dataset.items() if names}


def _raise_not_buildable(members: Mapping[str, Snapshot], column: str) -> NoReturn:
    if any(column in s.partition_keys for s in members.values()):
        raise InvalidRequest(f"Column {column!r} is a partition key: it is indexed by the paths of the files.")
    names = sorted({name for s in members.values() for name in visible_columns(s.schema.names)})
    raise UnknownColumn(
        f"None of the datasets {', '.join(sorted(members))} has a column {column!r}. They have: {', '.join(names)}."
    )


def _raise_not_droppable(members: Mapping[str, Snapshot], column: str) -> NoReturn:
    if not any(_can_build(s, column) for s in members.values()):
        _raise_not_buildable(members, column)
    indexed = ", ".join(sorted({c for s in members.values() for c in s.secondary_columns}))
    raise InvalidRequest(
        f"None of the datasets {', '.join(sorted(members))} has a secondary index on {column!r}. "
        f"There are indices on: {indexed or 'nothing'}."
    )


# --- changes --------------------------------------------------------------------------------------


def _change_of_indices(base: Snapshot, indexed: Collection[str]) -> Change:
    return Change(base.uuid, (), base.schemas, base.partition_keys, tuple(sorted(indexed)))


def _metadata(
    cube: Cube, name: str, base: Snapshot, built: Iterable[str] = (), dropped: Iterable[str] = ()
) -> dict[str, object]:
    """The metadata to merge: the dimension columns of the seed without an index, if they change."""
    # `open_cube` takes all other indices from the datasets themselves.
    if name != cube.seed_dataset:
        return {}
    before = set(base.document.metadata.get(KTK_CUBE_METADATA_SUPPRESS_INDEX_ON) or ())
    suppressed = (before - set(built)) | (set(dropped) & set(cube.dimension_columns))
    return {} if suppressed == before else {KTK_CUBE_METADATA_SUPPRESS_INDEX_ON: sorted(suppressed)}


# --- partitions -----------------------------------------------------------------------------------


class CubeStats(dict[str, dict[str, int]]):
    """Dataset id → figures: a dict that notebooks show as a table.

    Examples
    --------
    >>> CubeStats(seed={"blobsize": 1_234, "files": 2, "partitions": 2, "rows": 12})["seed"]["rows"]
    12
    """

    __slots__ = ()

    def _repr_html_(self) -> str:
        rows = [_table_row(name, stats) for name, stats in self.items()]
        figures = ("blobsize", "files", "partitions", "rows")
        total = {figure: sum(stats[figure] for stats in self.values()) for figure in figures}
        foot = _table_row("total", total) if len(self) > 1 else ()
        head = ("dataset", "partitions", "files", "rows", "size", "mean file")
        return in_notebook(table(head, rows, numbers=range(1, 6), foot=foot))


def _table_row(name: str, stats: Mapping[str, int]) -> tuple[str, ...]:
    mean = show_bytes(stats["blobsize"] / stats["files"]) if stats["files"] else ""
    counts = map(show_count, (stats["partitions"], stats["files"], stats["rows"]))
    return (name, *counts, show_bytes(stats["blobsize"]), mean)


def collect_stats(
    cube: Cube | str,
    store: StoreLike,
    datasets: IntoDatasets = None,
    *,
    as_of: AsOf | None = None,
    options: Overrides | None = None,
    executor: Executor = THREADS,
) -> CubeStats:
    """Count the partitions, files, bytes and rows of each dataset.

    Parameters
    ----------
    cube, store
        As in `query_cube`.
    datasets : str, iterable of str, or dict, optional
        The datasets to count; unknown ids are skipped. By default all.
    as_of : str or datetime, optional
        As in `query_cube`.
    options : optional
        The result of `options`: settings for this call.
    executor : Executor, optional
        What runs the work on files, by default threads of this process.

    Returns
    -------
    CubeStats
        A dict, shown as a table in notebooks: dataset id → ``{"blobsize": bytes of the data files,
        "files": ..., "partitions": ..., "rows": ...}``. Rows are stored rows, including those that
        a later append overrides. A partitioned dataset without partitions is left out.

    Raises
    ------
    KeyNotFound
        If a data file without statistics is missing, or the schema file of a dataset that needs
        one. To count without a broken dataset, name the others in ``datasets``.
    CorruptDocument
        If the document of a dataset cannot be read.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube, collect_stats, open_store
    >>> store = open_store("hmemory://")
    >>> cube = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales")
    >>> _ = build_cube(pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]}), cube, store)
    >>> stats = collect_stats(cube, store)["seed"]
    >>> stats["partitions"], stats["files"], stats["rows"]
    (2, 2, 2)
    """
    with operation("collect_stats", options, cube=cube):
        cube, opened = cube_and_store(cube, store, as_of)
        if isinstance(datasets, Mapping):
            check_not_loaded(as_of)
            members = {str(i): d.snapshot for i, d in datasets.items()}
        else:
            members = read_members(cube.uuid_prefix, opened, datasets, as_of=as_of)
        counted = {i: s for i, s in members.items() if len(s.partitions) or not s.partition_keys}
        extents = map_in_threads(lambda s: extents_of_files(opened, s, s.files), counted.values(), store=opened)
        known = dict(zip(counted, extents, strict=True))
        unknown = {i: s.files.filter(known[i].rows.is_null()).to_pylist() for i, s in counted.items()}
        files = [(counted[i].uuid, key) for i, keys in unknown.items() for key in keys]
        stats = {}
        # One pass over the files of all datasets: footers of the next load while one is summed up.
        with closing(map_files(partial(_rows, opened), files, executor=executor, store=opened)) as counts:
            for name, snapshot in counted.items():
                rows = pc.sum(known[name].rows, min_count=0).as_py() + sum(islice(counts, len(unknown[name])))
                blobs = pc.sum(known[name].sizes, min_count=0).as_py()
                unsized = snapshot.files.filter(known[name].sizes.is_null()).to_pylist()
                # One listing has the sizes of nearly all files; the others take a request each.
                listing = opened.list(f"{snapshot.uuid}/{SINGLE_TABLE}/", recursive=True).entries if unsized else ()
                sizes = {e.key: e.size for e in listing}
                blobs += sum(
                    size if (size := sizes.get(key)) is not None else opened.tail(key, 1)[1] for key in unsized
                )
                partitions = len(np.unique(snapshot.physical_partitions())) if snapshot.partition_keys else 1
                stats[name] = {"blobsize": blobs, "files": len(snapshot.files), "partitions": partitions, "rows": rows}
        return CubeStats(stats)


def _rows(store: Store, file: tuple[str, str]) -> int:
    dataset, key = file
    return file_rows(store, key, dataset)


# --- compact_cube ---------------------------------------------------------------------------------


def compact_cube(
    cube: Cube | str,
    store: StoreLike,
    target_rows: int = TARGET_ROWS,
    conditions: IntoConditions = None,
    ktk_cube_dataset_ids: Columns = None,
    dry_run: bool = False,
    *,
    sort_by: Columns = None,
    zorder_by: Columns = None,
    df_serializer: FileFormat | None = None,
    rewrite: bool = False,
    options: Overrides | None = None,
    executor: Executor = THREADS,
) -> dict[str, CompactionReport]:
    """Merge small files of the datasets of a cube into larger ones. Every query answers as before.

    Neighbouring files with the same partition values are merged and sorted by the dimension
    columns. If several have a row for a cell, the newest one stays; no query could see the others.
    Files of half of ``target_rows`` or more stay as they are, unless a newer file overrides some of
    their cells, or they override some of an older one: such files are merged whatever their size.
    Schemas, indices and metadata stay. The old files become garbage, which `cleanup_cube` removes.

    Parameters
    ----------
    cube, store
        As in `query_cube`.
    target_rows : int, default 1,000,000
        Maximum of rows in a merged file, or the rows of its largest input if these are more. The
        rows of all files that become one, or that share cells, are in memory at a time.
    conditions : Condition, Conjunction or iterable of Condition, optional
        Conditions on the cube's partition columns, which select physical partitions. A dataset that
        is partitioned by none of these columns is left alone, unless ``ktk_cube_dataset_ids`` names
        it: then it is compacted as a whole.
    ktk_cube_dataset_ids : str or iterable of str, optional
        Only these datasets; by default all.
    dry_run : bool, default False
        Only report what would be done. Footers and key columns are read, as described below.
    sort_by, zorder_by : str or list of str, optional
        As in `compact_dataset`. Datasets without these columns are compacted as ever, unless
        ``ktk_cube_dataset_ids`` names them. Answers stay, but a join has to sort the rows again if
        they are not in the order of the dimensions.
    df_serializer : FileFormat, optional
        The format of the merged files, e.g. ``ParquetSerializer("ZSTD")``. By default the format of
        the newest input, in Parquet also its codec, but ZSTD instead of SNAPPY if small files
        become a large one.
    rewrite : bool, default False
        Write every file anew, whatever its size: with the layout on record, and without the old
        values of dropped columns.
    options : optional
        What `options` returns: settings for this call.
    executor : Executor, optional
        What runs the work on files, by default threads of this process.

    Returns
    -------
    dict
        Dataset id → `CompactionReport`, as of `compact_dataset`, also of datasets with nothing to
        do.

    Raises
    ------
    InvalidInput
        For a cube that does not exist or is not valid, for unknown datasets, for conditions on
        other columns, and for ``sort_by`` together with ``zorder_by``.
    UnknownColumn, Unsupported
        If no dataset has the columns of ``sort_by`` or ``zorder_by``, or their values no order.
    CommitConflict
        If another process removed a merged file meanwhile. Added rows are no conflict.
    CubeCommitIncomplete
        If some of the datasets had such a conflict. The message lists the others, which are
        compacted. The cube is consistent; repeat the call.
    CorruptData
        If a file cannot be read or has a cell twice.

    Notes
    -----
    Each dataset gets a commit of its own. Their order does not matter, as no answer changes.

    Planning reads the footer of each file that has a neighbour. Where a physical partition does not
    become one file anyway, the footers tell which files have overlapping ranges in all dimension
    columns. Of these the dimension columns are read and compared. CSV files have no known ranges,
    nor have columns of floats or with nulls: they overlap all others.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import Cube, append_to_cube, build_cube, compact_cube, open_store
    >>> store = open_store("hmemory://")
    >>> cube = Cube(["PRODUCT_ID", "DAY"], ["COUNTRY_CODE"], "sales")
    >>> day = pd.DataFrame({"PRODUCT_ID": [1, 2], "DAY": 0, "COUNTRY_CODE": ["DE", "FR"]})
    >>> _ = build_cube(day, cube, store)
    >>> for number in range(1, 30):
    ...     _ = append_to_cube(day.assign(DAY=number), cube, store)
    >>> compact_cube(cube, store, dry_run=True)["seed"]
    CompactionReport('sales++seed': would be 60 files → 2 in 2 physical partitions, 60 rows)
    >>> report = compact_cube(cube, store)["seed"]
    >>> report.files_after, report.rows_after
    (2, 60)
    """
    with operation("compact_cube", options, cube=cube):
        (cube, opened), names = cube_and_store(cube, store), converter_str_set_optional(ktk_cube_dataset_ids)
        limit = check_target_rows(target_rows)
        dry, anew = check_flag(dry_run, "dry_run"), check_flag(rewrite, "rewrite")
        wanted = check_clustering(sort_by, zorder_by)
        serializer = check_format(df_serializer, wanted)
        if not dry:
            check_store_can_commit(opened)
        members = load_cube(cube, opened)
        conjunction = partition_conditions(cube, conditions, members, "compact")
        members = chosen_members(cube, members, names)
        clusterings = _clusterings(wanted, members, everywhere=names is not None)
        # All masks first: a condition on the wrong column fails before any footer is read.
        masks: dict[str, Mask] = {}
        for name, base in members.items():
            clauses = partition_clauses(conjunction, base)
            is_left_alone = bool(conjunction.columns) and not clauses and names is None
            masks[name] = np.zeros(len(base.partitions), dtype=bool) if is_left_alone else partition_mask(base, clauses)
        selections = {
            name: Selection(
                base,
                masks[name],
                limit,
                cell_order(base, cube.dimension_columns, cube.partition_columns),
                clusterings[name],
                serializer,
                anew,
            ).with_layout()
            for name, base in members.items()
        }
        files = KeptFiles(opened)
        compactions = dict(zip(selections, plan_files(files, [*selections.values()], executor), strict=True))
        return _reports(cube, run_compactions(files, compactions, dry_run=dry, executor=executor))


def _clusterings(
    wanted: Clustering | None, members: Mapping[str, Snapshot], *, everywhere: bool
) -> dict[str, Clustering | None]:
    """The clustering of each dataset; None for those without its columns, unless all need it."""
    if wanted is None:
        return dict.fromkeys(members)
    chosen = {name: wanted if everywhere or has_columns(wanted, base) else None for name, base in members.items()}
    if not any(chosen.values()):
        raise UnknownColumn(
            f"{wanted.argument}={list(wanted.columns)}: no dataset of the cube has these columns in its files. "
            f"There are { ({name: base.schema.names for name, base in members.items()}) }."
        )
    for name, clustering in chosen.items():
        if clustering is not None:
            check_columns(clustering, members[name])
    return chosen


def _reports(cube: Cube, results: Mapping[str, CompactionReport | CommitConflict]) -> dict[str, CompactionReport]:
    reports = {name: result for name, result in results.items() if isinstance(result, CompactionReport)}
    conflicts = {name: result for name, result in results.items() if isinstance(result, CommitConflict)}
    if not conflicts:
        return reports
    first = next(iter(conflicts.values()))
    landed = [name for name, report in reports.items() if report.commit is not None]
    if not landed:
        raise first
    raise CubeCommitIncomplete(
        f"Cube {cube.uuid_prefix!r}: datasets {', '.join(conflicts)} were changed while they were compacted. "
        f"Compacted: {', '.join(landed)}. Every query answers as before; repeat the call for the others. "
        f"Reason: {first}"
    ) from first


# --- Delta tables ---------------------------------------------------------------------------------


def publish_cube_delta(
    cube: Cube | str,
    store: StoreLike,
    *,
    datasets: Columns = None,
    always: bool = False,
    options: Overrides | None = None,
) -> dict[str, PublishedDelta]:
    """Make each dataset of a cube a Delta table, or add its newest state as a version.

    As `publish_delta` for each of them. Each is a table of its own: a join by the dimension and
    partition columns, with the seed on the left, is what a query of the cube gives. See the page
    *Read it from Trino, Snowflake, Databricks, Fabric*.

    Parameters
    ----------
    cube : Cube or str
        The cube, or its uuid prefix.
    store : str, path, store or callable
        The store, in any form that `open_store` takes.
    datasets : str or iterable of str, optional
        Ids of the datasets; by default all.
    always : bool, default False
        Publish after each later commit of this library, too.
    options : optional
        What `options` returns: settings for this call.

    Returns
    -------
    dict
        Dataset id → what was published.

    Raises
    ------
    InvalidInput
        If the cube has no such dataset.
    Unsupported, InvalidRequest
        As of `publish_delta`, for any of the datasets. Nothing was written.
    CommitConflict
        If others published more often than ``options(commit_retries=...)`` meanwhile.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube, open_store, publish_cube_delta
    >>> cube, store = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales"), open_store("hmemory://")
    >>> sales = pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = build_cube(sales, cube, store)
    >>> publish_cube_delta(cube, store)["seed"].version
    0
    """
    with operation("publish_cube_delta", options, cube=cube):
        found, opened = cube_and_store(cube, store)
        names, keeps = converter_str_set_optional(datasets), check_flag(always, "always")
        check_store_can_commit(opened)
        members = load_cube(found, opened)
        if names is not None and (unknown := sorted(names - members.keys())):
            raise InvalidInput(
                f"Cube {found.uuid_prefix!r} has no dataset {join_names(unknown)}; it has {join_names(members)}."
            )
        chosen = sorted(members if names is None else names)
        list(map_in_threads(lambda name: finish_pending(opened, members[name].uuid), chosen, store=opened))
        checks = map_in_threads(lambda name: check_publishable(opened, members[name], always=keeps), chosen)
        list(checks)
        return {name: publish_newest(opened, members[name].uuid, always=keeps) for name in chosen}
