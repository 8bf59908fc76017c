"""Compacting the datasets of a cube: fewer, larger files with the same cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from kartothek_cube.core.dataset.arguments import Source, check_flag
from kartothek_cube.core.dataset.compact import Compaction, plan_files, run_compaction
from kartothek_cube.core.dataset.plan_write import check_serializer
from kartothek_cube.core.evaluate import Mask
from kartothek_cube.core.formats import FileFormat
from kartothek_cube.core.journal import verb
from kartothek_cube.core.maintenance.compact import TARGET_ROWS, cell_order, check_target_rows
from kartothek_cube.core.maintenance.compact_report import CompactionReport
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.options import Overrides
from kartothek_cube.core.publish import check_store_can_commit
from kartothek_cube.core.scan import check_predicate_columns, partition_mask
from kartothek_cube.core.store import Store
from kartothek_cube.core.stores import open_store
from kartothek_cube.cube.conditions import Conjunction
from kartothek_cube.cube.converters import converter_str_set_optional
from kartothek_cube.cube.cube import Cube, require_cube
from kartothek_cube.cube.discovery import load_cube
from kartothek_cube.errors import CommitConflict, CubeCommitIncomplete, InvalidInput
from kartothek_cube.typing import Columns, IntoConditions, StoreLike

__all__ = ["compact_cube"]


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

    Files with the same partition values are merged with the files beside them and sorted by the dimension columns. Of a cell that
    several of them have, the newest row stays: no query could see the others. Files of half of ``target_rows`` or more stay as they
    are. Schemas, indices and metadata stay. The old files are garbage, which `cleanup_cube` removes.

    Parameters
    ----------
    cube, store
        As in `query_cube`.
    target_rows : int, default 1,000,000
        Most rows of a merged file. The rows of one such file are in memory at a time.
    conditions : Condition, Conjunction or iterable of Condition, optional
        Conditions on the cube's partition columns: only physical partitions in which they hold. A dataset that is partitioned by
        none of these columns is left alone, unless it is named: then all of it is meant.
    ktk_cube_dataset_ids : str or iterable of str, optional
        Only these datasets; by default all.
    dry_run : bool, default False
        Only say what would be done. Footers of files are read.
    df_serializer : FileFormat, optional
        How the merged files are written, e.g. ``ParquetSerializer("ZSTD")``. By default as the newest of the merged files: its
        format, and in Parquet its codec, but ZSTD instead of SNAPPY where small files become a large one.
    options : optional
        What `options` returns: settings for this call.

    Returns
    -------
    dict
        Dataset id → `CompactionReport`, as of `compact_dataset`, also of datasets in which nothing was to be done.

    Raises
    ------
    InvalidInput
        For a cube that does not exist or is not valid, for unknown datasets, and for conditions on other columns.
    CommitConflict
        If somebody removed one of the merged files meanwhile; rows that were added are no conflict.
    CubeCommitIncomplete
        If that happened to some of the datasets. The message lists what landed; the cube is whole and the call can be repeated.
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
    with verb("compact_cube", options, cube=cube):
        opened, names = open_store(store), converter_str_set_optional(ktk_cube_dataset_ids)
        most, dry = check_target_rows(target_rows), check_flag(dry_run, "dry_run")
        serializer = None if df_serializer is None else check_serializer(df_serializer)
        chosen = _conditions(require_cube(cube), conditions)
        if not dry:
            check_store_can_commit(opened)
        members = _members(cube, opened, names)
        masks = {i: _selected(base, chosen, named=names is not None) for i, base in members.items()}
        orders = {i: cell_order(base, cube.dimension_columns, cube.partition_columns) for i, base in members.items()}
        plans = {i: plan_files(opened, base, masks[i], most, orders[i]) for i, base in members.items()}
        return _run(opened, cube, {i: Compaction(base, plans[i], orders[i], serializer) for i, base in members.items()}, dry_run=dry)


def _conditions(cube: Cube, conditions: IntoConditions) -> Conjunction:
    conjunction = Conjunction(conditions)
    foreign = sorted(set(conjunction.columns) - set(cube.partition_columns))
    if foreign:
        raise InvalidInput(
            f"Whole physical partitions are compacted, so conditions are on the cube's partition columns {list(cube.partition_columns)}, not on {foreign}."
        )
    return conjunction


def _members(cube: Cube, store: Store, names: Iterable[str] | None) -> dict[str, Snapshot]:
    members = load_cube(cube, store)
    unknown = sorted(set(names or ()) - set(members))
    if unknown:
        raise InvalidInput(f"Unknown ktk_cube_dataset_ids: {', '.join(unknown)}. Datasets of the cube {cube.uuid_prefix!r}: {', '.join(sorted(members))}.")
    return {i: base for i, base in members.items() if names is None or i in names}


def _selected(base: Snapshot, conjunction: Conjunction, *, named: bool) -> Mask:
    """The stored partitions in which the conditions hold."""
    clauses = tuple(c for c in conjunction.clauses if c.column in base.partition_keys)
    check_predicate_columns((clauses,) if clauses else None, base.schema, base.uuid)
    if conjunction.columns and not clauses and not named:
        return np.zeros(len(base.partitions), dtype=bool)
    return partition_mask(base, clauses)


def _run(store: Store, cube: Cube, work: Mapping[str, Compaction], *, dry_run: bool) -> dict[str, CompactionReport]:
    """One dataset after the other. A conflict in one of them does not keep the others from being compacted."""
    reports: dict[str, CompactionReport] = {}
    conflicts: dict[str, CommitConflict] = {}
    for name, compaction in work.items():
        try:
            reports[name] = run_compaction(Source(store, compaction.base.uuid), compaction, dry_run=dry_run)
        except CommitConflict as conflict:
            conflicts[name] = conflict
    if conflicts:
        _raise_conflicts(cube, [i for i, report in reports.items() if report.commit is not None], conflicts)
    return reports


def _raise_conflicts(cube: Cube, landed: list[str], conflicts: Mapping[str, CommitConflict]) -> None:
    first = next(iter(conflicts.values()))
    if not landed:
        raise first
    raise CubeCommitIncomplete(
        f"Cube {cube.uuid_prefix!r}: datasets {', '.join(conflicts)} were changed while they were compacted. Compacted: {', '.join(landed)}. "
        f"Every query answers as before; repeat the call for the others. Reason: {first}"
    ) from first
