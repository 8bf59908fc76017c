"""Compacting the datasets of a cube: fewer, larger files with the same cells."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kartothek_cube.core.arguments import check_flag, converter_str_set_optional
from kartothek_cube.core.commit.commit import check_store_can_commit
from kartothek_cube.core.dataset.reference import dataset_ref
from kartothek_cube.core.expressions.conjunction import Conjunction
from kartothek_cube.core.expressions.evaluate import Mask
from kartothek_cube.core.expressions.predicates import parse_predicates
from kartothek_cube.core.io.file_format import FileFormat
from kartothek_cube.core.kartothek.factory import DatasetFactory
from kartothek_cube.core.maintenance.compaction.plan import TARGET_ROWS, CellOrder, cell_order, check_target_rows
from kartothek_cube.core.maintenance.compaction.report import CompactionReport
from kartothek_cube.core.maintenance.compaction.run import Compaction, plan_files, run_compaction, selected_partitions
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.runtime.executor import THREADS, Executor
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.scan.plan import partition_mask
from kartothek_cube.core.snapshots.loader import load_snapshot
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.stores.open import open_instrumented
from kartothek_cube.core.write.arguments import check_serializer
from kartothek_cube.cube.arguments import chosen_members, partition_clauses, partition_conditions
from kartothek_cube.cube.cube import (
    KTK_CUBE_METADATA_DIMENSION_COLUMNS,
    KTK_CUBE_METADATA_PARTITION_COLUMNS,
    LEGACY_DIMENSION_COLUMNS,
    LEGACY_PARTITION_COLUMNS,
    Cube,
    require_cube,
)
from kartothek_cube.cube.members.discovery import load_cube
from kartothek_cube.errors import CommitConflict, CubeCommitIncomplete
from kartothek_cube.typing import Columns, IntoConditions, IntoPredicates, StoreLike

__all__ = ["compact_cube", "compact_cube_on", "compact_dataset", "compact_dataset_on"]


def compact_cube(
    cube: Cube,
    store: StoreLike,
    target_rows: int = TARGET_ROWS,
    conditions: IntoConditions = None,
    ktk_cube_dataset_ids: Columns = None,
    dry_run: bool = False,
    *,
    df_serializer: FileFormat | None = None,
    options: Overrides | None = None,
) -> dict[str, CompactionReport]:
    """Merge small files of the datasets of a cube into larger ones. Every query answers as before.

    Files with the same partition values are merged with the files beside them and sorted by the
    dimension columns. Of a cell that several of them have, the newest row stays: no query could see
    the others. Files of half of ``target_rows`` or more stay as they are. Schemas, indices and
    metadata stay. The old files are garbage, which `cleanup_cube` removes.

    Parameters
    ----------
    cube, store
        As in `query_cube`.
    target_rows : int, default 1,000,000
        Most rows of a merged file. The rows of one such file are in memory at a time.
    conditions : Condition, Conjunction or iterable of Condition, optional
        Conditions on the cube's partition columns: only physical partitions in which they hold. A
        dataset that is partitioned by none of these columns is left alone, unless it is named: then
        all of it is meant.
    ktk_cube_dataset_ids : str or iterable of str, optional
        Only these datasets; by default all.
    dry_run : bool, default False
        Only say what would be done. Footers of files are read.
    df_serializer : FileFormat, optional
        How the merged files are written, e.g. ``ParquetSerializer("ZSTD")``. By default as the
        newest of the merged files: its format, and in Parquet its codec, but ZSTD instead of SNAPPY
        where small files become a large one.
    options : optional
        What `options` returns: settings for this call.

    Returns
    -------
    dict
        Dataset id → `CompactionReport`, as of `compact_dataset`, also of datasets in which nothing
        was to be done.

    Raises
    ------
    InvalidInput
        For a cube that does not exist or is not valid, for unknown datasets, and for conditions on
        other columns.
    CommitConflict
        If somebody removed one of the merged files meanwhile; rows that were added are no conflict.
    CubeCommitIncomplete
        If that happened to some of the datasets. The message lists what landed; the cube is whole
        and the call can be repeated.
    CorruptData
        If a file cannot be read or has a cell twice.

    Notes
    -----
    Each dataset gets a commit of its own; as no answer changes, their order does not matter.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import Cube, append_to_cube, build_cube, compact_cube, open_store, query_cube
    >>> store = open_store("hmemory://")
    >>> cube = Cube(["PRODUCT_ID", "DAY"], ["COUNTRY_CODE"], "sales")
    >>> day = pd.DataFrame({"PRODUCT_ID": [1, 2], "DAY": 0, "COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = build_cube(day, cube, store)
    >>> for number in range(1, 30):
    ...     _ = append_to_cube(day.assign(DAY=number), cube, store)
    >>> compact_cube(cube, store, dry_run=True)
    {'seed': CompactionReport('sales++seed': would be 60 files → 2 in 2 physical partitions, 60 rows)}
    >>> report = compact_cube(cube, store)["seed"]
    >>> report.files_after, len(query_cube(cube, store)[0])
    (2, 60)
    """
    with operation("compact_cube", options, cube=cube):
        return compact_cube_on(
            THREADS, cube, store, target_rows, conditions, ktk_cube_dataset_ids, dry_run, df_serializer
        )


def compact_cube_on(
    executor: Executor,
    cube: Cube,
    store: StoreLike,
    target_rows: int,
    conditions: IntoConditions,
    ktk_cube_dataset_ids: Columns,
    dry_run: bool,
    df_serializer: FileFormat | None,
) -> dict[str, CompactionReport]:
    """Compact a cube as `compact_cube` does, inside an operation; the executor reads footers and merges files."""
    opened, names = open_instrumented(store), converter_str_set_optional(ktk_cube_dataset_ids)
    most, dry = check_target_rows(target_rows), check_flag(dry_run, "dry_run")
    serializer = None if df_serializer is None else check_serializer(df_serializer)
    conjunction = partition_conditions(require_cube(cube), conditions, "compact")
    if not dry:
        check_store_can_commit(opened)
    members = chosen_members(cube, load_cube(cube, opened), names)
    masks = {i: _selected(base, conjunction, named=names is not None) for i, base in members.items()}
    orders = {i: cell_order(base, cube.dimension_columns, cube.partition_columns) for i, base in members.items()}
    plans = {i: plan_files(opened, base, masks[i], most, orders[i], executor) for i, base in members.items()}
    work = {i: Compaction(base, plans[i], orders[i], serializer) for i, base in members.items()}
    return _run(opened, cube, work, dry_run=dry, executor=executor)


def _selected(base: Snapshot, conjunction: Conjunction, *, named: bool) -> Mask:
    """The stored partitions in which the conditions hold."""
    clauses = partition_clauses(conjunction, base)
    if conjunction.columns and not clauses and not named:
        return np.zeros(len(base.partitions), dtype=bool)
    return partition_mask(base, clauses)


def _run(
    store: Store, cube: Cube, work: Mapping[str, Compaction], *, dry_run: bool, executor: Executor
) -> dict[str, CompactionReport]:
    """One dataset after the other.

    A conflict in one of them does not keep the others from being compacted.
    """
    reports: dict[str, CompactionReport] = {}
    conflicts: dict[str, CommitConflict] = {}
    for name, compaction in work.items():
        try:
            reports[name] = run_compaction(store, compaction, dry_run=dry_run, executor=executor)
        except CommitConflict as conflict:
            conflicts[name] = conflict
    if not conflicts:
        return reports
    first = next(iter(conflicts.values()))
    landed = [name for name, report in reports.items() if report.commit is not None]
    if not landed:
        raise first
    raise CubeCommitIncomplete(
        f"Cube {cube.uuid_prefix!r}: datasets {', '.join(conflicts)} were changed while they were compacted. "
        f"Compacted: {', '.join(landed)}. Every query answers as before; repeat the call for the others. Reason: {first}"
    ) from first


# --- a single dataset -----------------------------------------------------------------------------


def compact_dataset(
    dataset_uuid: str | None = None,
    store: StoreLike | None = None,
    target_rows: int = TARGET_ROWS,
    predicates: IntoPredicates | None = None,
    dry_run: bool = False,
    *,
    factory: DatasetFactory | None = None,
    df_serializer: FileFormat | None = None,
    options: Overrides | None = None,
) -> CompactionReport:
    """Merge small files of a dataset into larger ones.

    All rows stay, and one commit makes it visible.

    Files with the same partition values are merged with the files beside them, in their order.
    Files of half of ``target_rows`` or more stay as they are. Schema, indices and metadata stay;
    files are never changed in place, so the old ones are garbage afterwards and who reads them
    meanwhile can go on.

    Parameters
    ----------
    dataset_uuid : str
        The dataset.
    store : str, path, store or callable
        Where it lies; everything that `open_store` takes.
    target_rows : int, default 1,000,000
        Most rows of a merged file.
    predicates : list of list of tuple, optional
        Only the physical partitions in which they may hold, as partition values and indices say.
        They take whole partitions, so their columns are partition keys or have a secondary index.
    dry_run : bool, default False
        Only say what would be done. Footers of files are read.
    factory : DatasetFactory, optional
        Instead of ``dataset_uuid`` and ``store``. The newest state of the dataset counts, whatever
        the factory has read.
    df_serializer : FileFormat, optional
        How the merged files are written, e.g. ``ParquetSerializer("ZSTD")``. By default as the
        newest of the merged files: its format, and in Parquet its codec.
    options : optional
        What `options` returns: settings for this call.

    Returns
    -------
    CompactionReport
        Files, rows and bytes before and after, the physical partitions that changed, and the id of
        the commit; None where nothing was to be done. A notebook shows it as a table.

    Raises
    ------
    DatasetNotFound, KeyNotFound
        If the dataset, or one of its files, does not exist.
    InvalidRequest
        If predicates name a column that is neither partition key nor indexed, or the document lists
        no partitions.
    InvalidInput, InvalidType
        If ``target_rows`` is no positive number, or predicates do not fit the dataset.
    CommitConflict
        If somebody removed one of the merged files meanwhile. Nothing is visible. Rows that were
        added meanwhile are no conflict.
    CorruptData
        If a file cannot be read.

    Notes
    -----
    Rows are read and written piece by piece; they take about ``options(bytes_in_flight=...)``. A
    dataset of a cube is compacted as by `compact_cube`: each file sorted by its dimension columns,
    of a cell that several of the merged files have the newest row.

    Examples
    --------
    >>> import pandas as pd
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import compact_dataset, read_table, update_dataset_from_dataframes
    >>> store = open_store("hmemory://")
    >>> for day in range(30):
    ...     sales = pd.DataFrame({"COUNTRY_CODE": ["DE", "FR"], "DAY": day, "UNITS": [day, 1]})
    ...     _ = update_dataset_from_dataframes([sales], store, "sales", partition_on=["COUNTRY_CODE"])
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
            THREADS, dataset_uuid, store, target_rows, predicates, dry_run, factory, df_serializer
        )


def compact_dataset_on(
    executor: Executor,
    dataset_uuid: str | None,
    store: StoreLike | None,
    target_rows: int,
    predicates: IntoPredicates | None,
    dry_run: bool,
    factory: DatasetFactory | None,
    df_serializer: FileFormat | None,
) -> CompactionReport:
    """Compact a dataset as `compact_dataset` does, inside an operation; the executor reads footers and merges files."""
    source = dataset_ref(dataset_uuid, store, factory)
    limit, dry = check_target_rows(target_rows), check_flag(dry_run, "dry_run")
    serializer = None if df_serializer is None else check_serializer(df_serializer)
    if not dry:
        check_store_can_commit(source.store)
    base = load_snapshot(source.store, source.uuid)
    selected = selected_partitions(source.store, base, parse_predicates(predicates))
    order = _noted_order(base)
    plan = plan_files(source.store, base, selected, limit, order, executor)
    report = run_compaction(source.store, Compaction(base, plan, order, serializer), dry_run=dry, executor=executor)
    if source.factory is not None and report.commit is not None:
        source.factory.invalidate()
    return report


def _noted_order(base: Snapshot) -> CellOrder | None:
    """The order of cells in a dataset of a cube, as the metadata of the dataset say; None for any other dataset."""
    metadata = base.document.metadata
    keys = (
        (KTK_CUBE_METADATA_DIMENSION_COLUMNS, LEGACY_DIMENSION_COLUMNS),
        (KTK_CUBE_METADATA_PARTITION_COLUMNS, LEGACY_PARTITION_COLUMNS),
    )
    dimensions, partitions = (
        next((metadata[k] for k in names if isinstance(metadata.get(k), list)), None) for names in keys
    )
    return None if dimensions is None else cell_order(base, dimensions, partitions or ())
