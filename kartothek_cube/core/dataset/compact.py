"""Compacting a dataset: fewer, larger files for the same rows, by one commit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from kartothek_cube.core.dataset.arguments import DatasetRef, check_flag, source_of
from kartothek_cube.core.dataset.plan import indices_for
from kartothek_cube.core.dataset.plan_write import check_serializer
from kartothek_cube.core.evaluate import Mask
from kartothek_cube.core.formats import FileFormat
from kartothek_cube.core.journal import verb
from kartothek_cube.core.maintenance.compaction_plan import (
    TARGET_ROWS,
    CellOrder,
    cell_order,
    check_target_rows,
    whole_partitions,
)
from kartothek_cube.core.maintenance.compaction_report import CompactionReport
from kartothek_cube.core.maintenance.compaction_run import Compaction, plan_files, run_compaction
from kartothek_cube.core.metadata.snapshot import Snapshot, type_of_column
from kartothek_cube.core.options import Overrides
from kartothek_cube.core.predicates import Predicates, columns_of, parse_predicates
from kartothek_cube.core.publish import check_store_can_commit
from kartothek_cube.core.scan import check_predicate_columns, conjunction_masks
from kartothek_cube.core.snapshots import load_snapshot
from kartothek_cube.core.store import Store
from kartothek_cube.errors import InvalidRequest

__all__ = ["compact_dataset"]

# What a cube notes in the metadata of its datasets, and what the predecessor of kartothek noted.
_DIMENSIONS = ("ktk_cube_dimension_columns", "klee_dimension_columns")
_PARTITIONS = ("ktk_cube_partition_columns", "klee_partition_columns")


def compact_dataset(
    dataset_uuid: str | None = None,
    store: Any = None,
    target_rows: int = TARGET_ROWS,
    predicates: Any = None,
    dry_run: bool = False,
    *,
    factory: Any = None,
    df_serializer: FileFormat | None = None,
    options: Overrides | None = None,
) -> CompactionReport:
    """Merge small files of a dataset into larger ones. All rows stay, and one commit makes it visible.

    Files with the same partition values are merged with the files beside them, in their order. Files of half of ``target_rows``
    or more stay as they are. Schema, indices and metadata stay; files are never changed in place, so the old ones are garbage
    afterwards and who reads them meanwhile can go on.

    Parameters
    ----------
    dataset_uuid : str
        The dataset.
    store : str, path, store or callable
        Where it lies; everything that `open_store` takes.
    target_rows : int, default 1,000,000
        Most rows of a merged file.
    predicates : list of list of tuple, optional
        Only the physical partitions in which they may hold, as partition values and indices say. They take whole partitions,
        so their columns are partition keys or have a secondary index.
    dry_run : bool, default False
        Only say what would be done. Footers of files are read.
    factory : DatasetFactory, optional
        Instead of ``dataset_uuid`` and ``store``. The newest state of the dataset counts, whatever the factory has read.
    df_serializer : FileFormat, optional
        How the merged files are written, e.g. ``ParquetSerializer("ZSTD")``. By default as the newest of the merged files: its
        format, and in Parquet its codec.
    options : optional
        What `options` returns: settings for this call.

    Returns
    -------
    CompactionReport
        Files, rows and bytes before and after, the physical partitions that changed, and the id of the commit; None where nothing
        was to be done. A notebook shows it as a table.

    Raises
    ------
    DatasetNotFound, KeyNotFound
        If the dataset, or one of its files, does not exist.
    InvalidRequest
        If predicates name a column that is neither partition key nor indexed, or the document lists no partitions.
    InvalidInput, InvalidType
        If ``target_rows`` is no positive number, or predicates do not fit the dataset.
    CommitConflict
        If somebody removed one of the merged files meanwhile. Nothing is visible. Rows that were added meanwhile are no conflict.
    CorruptData
        If a file cannot be read.

    Notes
    -----
    Rows are read and written piece by piece; they take about ``options(bytes_in_flight=...)``. A dataset of a cube is compacted as
    by `compact_cube`: each file sorted by its dimension columns, of a cell that several of the merged files have the newest row.

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
    with verb("compact_dataset", options):
        source = source_of(dataset_uuid, store, factory)
        most, dry = check_target_rows(target_rows), check_flag(dry_run, "dry_run")
        serializer = None if df_serializer is None else check_serializer(df_serializer)
        if not dry:
            check_store_can_commit(source.store)
        base = load_snapshot(source.store, source.uuid)
        selected = _selected(source.store, base, parse_predicates(predicates))
        order = _noted_order(base)
        plan = plan_files(source.store, base, selected, most, order)
        report = run_compaction(source.store, Compaction(base, plan, order, serializer), dry_run=dry)
        if source.factory is not None and report.commit is not None:
            source.factory.invalidate()
        return report


def _selected(store: Store, base: Snapshot, predicates: Predicates | None) -> Mask:
    """The stored partitions of the physical partitions in which the predicates may hold."""
    everything: Mask = np.ones(len(base.partitions), dtype=bool)
    if predicates is None:
        return everything
    names = dict.fromkeys(name for schema in base.schemas.values() for name in schema.names)
    check_predicate_columns(predicates, pa.schema([(name, type_of_column(base.schemas, name, base.uuid)) for name in names]), base.uuid)
    foreign = sorted(columns_of(predicates) - base.indexed_columns)
    if foreign:
        raise InvalidRequest(
            f"The predicates on {foreign} select no whole partitions of dataset {base.uuid!r}: name columns that are partition keys or have "
            f"a secondary index; these are {sorted(base.indexed_columns)}."
        )
    masks, _ = conjunction_masks(base, predicates, indices_for(DatasetRef(store, base.uuid), base, predicates), everything)
    return whole_partitions(base, np.logical_or.reduce(masks))


def _noted_order(base: Snapshot) -> CellOrder | None:
    """What a dataset of a cube owes to it, as its metadata say; None for any other dataset."""
    metadata = base.document.metadata
    noted = [next((metadata[key] for key in keys if isinstance(metadata.get(key), list)), None) for keys in (_DIMENSIONS, _PARTITIONS)]
    return None if noted[0] is None else cell_order(base, noted[0], noted[1] or ())
