"""The verbs `compact_cube` and `compact_dataset`: fewer, larger files with the same rows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kartothek_cube.core.arguments import check_flag, converter_str_set_optional
from kartothek_cube.core.commit.commit import check_store_can_commit
from kartothek_cube.core.dataset.reference import dataset_ref
from kartothek_cube.core.expressions.predicates import Mask, parse_predicates
from kartothek_cube.core.io.formats import FileFormat, ParquetFormat
from kartothek_cube.core.io.reader import Clustering
from kartothek_cube.core.kartothek.dataset_metadata import DatasetFactory
from kartothek_cube.core.maintenance.compaction import Compaction, plan_files, run_compaction, selected_partitions
from kartothek_cube.core.maintenance.compaction_plan import (
    TARGET_ROWS,
    CompactionReport,
    cell_order,
    check_clustering,
    check_columns,
    check_target_rows,
    has_columns,
)
from kartothek_cube.core.metadata.snapshot import Snapshot, cube_columns
from kartothek_cube.core.runtime.executor import THREADS, Executor
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.scan.plan import partition_mask
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.write.layout import DatasetLayout, layout_of
from kartothek_cube.core.write.plan import check_serializer, layout_of_call
from kartothek_cube.cube.arguments import chosen_members, partition_clauses, partition_conditions
from kartothek_cube.cube.cube import Cube
from kartothek_cube.cube.members.discovery import cube_and_store, load_cube
from kartothek_cube.errors import CommitConflict, CubeCommitIncomplete, InvalidRequest, UnknownColumn
from kartothek_cube.typing import Columns, IntoConditions, IntoPredicates, StoreLike

__all__ = ["compact_cube", "compact_cube_on", "compact_dataset", "compact_dataset_on"]


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
        return compact_cube_on(
            THREADS,
            cube,
            store,
            target_rows,
            conditions,
            ktk_cube_dataset_ids,
            dry_run,
            sort_by,
            zorder_by,
            df_serializer,
            rewrite,
        )


def compact_cube_on(
    executor: Executor,
    cube: Cube | str,
    store: StoreLike,
    target_rows: int,
    conditions: IntoConditions,
    ktk_cube_dataset_ids: Columns,
    dry_run: bool,
    sort_by: Columns,
    zorder_by: Columns,
    df_serializer: FileFormat | None,
    rewrite: bool,
) -> dict[str, CompactionReport]:
    """Compact a cube as `compact_cube` does; the executor reads footers and merges files."""
    (cube, opened), names = cube_and_store(cube, store), converter_str_set_optional(ktk_cube_dataset_ids)
    limit, dry, anew = check_target_rows(target_rows), check_flag(dry_run, "dry_run"), check_flag(rewrite, "rewrite")
    wanted = check_clustering(sort_by, zorder_by)
    serializer = _serializer(df_serializer, wanted)
    if not dry:
        check_store_can_commit(opened)
    compactions: dict[str, Compaction] = {}
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
    for name, base in members.items():
        order = cell_order(base, cube.dimension_columns, cube.partition_columns)
        layout, clustering, size = _as_on_record(base, clusterings[name], limit, serializer)
        plan = plan_files(
            opened, base, masks[name], limit, order, executor, clustering, rewrite=anew, target_bytes=size
        )
        compactions[name] = Compaction(base, plan, order, serializer, layout, anew)
    return _run_all(opened, cube, compactions, dry_run=dry, executor=executor)


def _serializer(given: FileFormat | None, wanted: Clustering | None) -> FileFormat | None:
    if given is None:
        return None
    serializer = check_serializer(given)
    if wanted is not None and not isinstance(serializer, ParquetFormat):
        raise InvalidRequest(
            f"Files in the format of df_serializer cannot say how their rows are ordered, so {wanted.argument} would "
            "write them anew each time. Leave df_serializer out, or give one for Parquet."
        )
    return serializer


def _as_on_record(
    base: Snapshot, wanted: Clustering | None, limit: int, serializer: FileFormat | None
) -> tuple[DatasetLayout, Clustering | None, int | None]:
    """Layout, order and bytes of a file: as the call says, else as is on record."""
    layout = layout_of_call(on_record=layout_of(base.document.metadata, base.uuid))
    is_open = wanted is None and len(base.schemas) == 1 and isinstance(serializer, ParquetFormat | None)
    if is_open and layout.sort_by and has_columns(Clustering(layout.sort_by), base):
        wanted = Clustering(layout.sort_by)
    return layout, wanted, layout.target_file_bytes if limit == TARGET_ROWS else None


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


def _run_all(
    store: Store, cube: Cube, compactions: Mapping[str, Compaction], *, dry_run: bool, executor: Executor
) -> dict[str, CompactionReport]:
    reports: dict[str, CompactionReport] = {}
    conflicts: dict[str, CommitConflict] = {}
    for name, compaction in compactions.items():
        try:
            reports[name] = run_compaction(store, compaction, dry_run=dry_run, executor=executor)
        except CommitConflict as conflict:
            conflicts[name] = conflict  # no reason to leave the other datasets as they are
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


# --- a single dataset -----------------------------------------------------------------------------


def compact_dataset(
    dataset_uuid: str | None = None,
    store: StoreLike | None = None,
    target_rows: int = TARGET_ROWS,
    predicates: IntoPredicates | None = None,
    dry_run: bool = False,
    *,
    sort_by: Columns = None,
    zorder_by: Columns = None,
    factory: DatasetFactory | None = None,
    df_serializer: FileFormat | None = None,
    rewrite: bool = False,
    options: Overrides | None = None,
) -> CompactionReport:
    """Merge small files of a dataset into larger ones.

    All rows stay, and one commit makes the new files visible.

    Neighbouring files with the same partition values are merged, in their order. Files of half of
    ``target_rows`` or more stay as they are, and so do schema, indices and metadata. Files are
    never changed in place: running readers can go on with the old ones, which become garbage.

    Parameters
    ----------
    dataset_uuid : str
        The dataset.
    store : str, path, store or callable
        The store of the dataset; everything that `open_store` takes.
    target_rows : int, default 1,000,000
        Maximum of rows in a merged file.
    predicates : list of list of tuple, optional
        Only the physical partitions in which they may hold by partition values and indices. Their
        columns must be partition keys or have a secondary index.
    dry_run : bool, default False
        Only report what would be done. Footers of files are read.
    sort_by : str or list of str, optional
        Sort the rows of each physical partition by these columns across its files, nulls last, so
        that a range of the first column lies in few files and row groups. Files of any size are
        rewritten, but those that are sorted already and overlap no other one.
    zorder_by : list of str, optional
        Two to eight columns: put the rows in Z-order, so that a range of any of these columns lies
        in few row groups. All files of a partition are rewritten if one of them is new.
    factory : DatasetFactory, optional
        Instead of ``dataset_uuid`` and ``store``. The newest state of the dataset is compacted,
        whatever the factory has read.
    df_serializer : FileFormat, optional
        The format of the merged files, e.g. ``ParquetSerializer("ZSTD")``. By default the format of
        the newest input, in Parquet also its codec.
    rewrite : bool, default False
        Write every file anew, whatever its size: with the layout on record, and without the old
        values of dropped columns.
    options : optional
        What `options` returns: settings for this call.

    Returns
    -------
    CompactionReport
        Files, rows and bytes before and after, the physical partitions that changed, and the id of
        the commit, None with nothing to do. A notebook shows it as a table.

    Raises
    ------
    DatasetNotFound, KeyNotFound
        If the dataset, or one of its files, does not exist.
    InvalidRequest
        If predicates name a column that is neither partition key nor indexed, ``sort_by`` or
        ``zorder_by`` a partition key, or the document lists no partitions.
    InvalidInput, InvalidType
        If ``target_rows`` is no positive number, predicates do not fit the dataset, or ``sort_by``
        and ``zorder_by`` are both given.
    UnknownColumn, Unsupported
        If the dataset does not have a column of ``sort_by`` or ``zorder_by``, or its values have no
        order.
    CommitConflict
        If another process removed a merged file meanwhile. Nothing has changed. Added rows are no
        conflict.
    CorruptData
        If a file cannot be read.

    Notes
    -----
    Rows are read and written piece by piece, in about ``options(bytes_in_flight=...)`` of memory. A
    dataset of a cube is compacted as by `compact_cube`: each file is sorted by its dimension
    columns and has the newest row of each cell, and files that share cells are merged whatever
    their size.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import compact_dataset, read_table
    >>> from kartothek_cube.api.dataset import update_dataset_from_dataframes as update
    >>> store = open_store("hmemory://")
    >>> for day in range(30):
    ...     sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "FR"], "DAY": day, "UNITS": [day, 1]})
    ...     _ = update([sales], store, "sales", partition_on=["COUNTRY_CODE"])
    >>> report = compact_dataset("sales", store)
    >>> report.files_before, report.files_after, report.partitions
    (60, 2, ['COUNTRY_CODE=DE', 'COUNTRY_CODE=FR'])
    >>> len(read_table("sales", store))
    60
    >>> compact_dataset("sales", store)
    CompactionReport('sales': nothing to do for 2 partitions)
    """
    with operation("compact_dataset", options):
        return compact_dataset_on(
            THREADS,
            dataset_uuid,
            store,
            target_rows,
            predicates,
            dry_run,
            sort_by,
            zorder_by,
            factory,
            df_serializer,
            rewrite,
        )


def compact_dataset_on(
    executor: Executor,
    dataset_uuid: str | None,
    store: StoreLike | None,
    target_rows: int,
    predicates: IntoPredicates | None,
    dry_run: bool,
    sort_by: Columns,
    zorder_by: Columns,
    factory: DatasetFactory | None,
    df_serializer: FileFormat | None,
    rewrite: bool,
) -> CompactionReport:
    """Compact a dataset as `compact_dataset` does; the executor reads footers and merges files."""
    source = dataset_ref(dataset_uuid, store, factory)
    limit, dry, anew = check_target_rows(target_rows), check_flag(dry_run, "dry_run"), check_flag(rewrite, "rewrite")
    wanted = check_clustering(sort_by, zorder_by)
    serializer = _serializer(df_serializer, wanted)
    if not dry:
        check_store_can_commit(source.store)
    base = load_snapshot(source.store, source.uuid)
    if wanted is not None:
        check_columns(wanted, base)
    selected = selected_partitions(source.store, base, parse_predicates(predicates))
    # The metadata of a dataset of a cube describe its order.
    columns = cube_columns(base.document.metadata)
    order = None if columns is None else cell_order(base, *columns)
    layout, wanted, size = _as_on_record(base, wanted, limit, serializer)
    plan = plan_files(source.store, base, selected, limit, order, executor, wanted, rewrite=anew, target_bytes=size)
    compaction = Compaction(base, plan, order, serializer, layout, anew)
    report = run_compaction(source.store, compaction, dry_run=dry, executor=executor)
    if source.factory is not None and report.commit is not None:
        source.factory.invalidate()
    return report
