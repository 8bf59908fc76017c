"""Compacting a dataset: fewer, larger files for the same rows, by one commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain

import numpy as np
import pyarrow as pa

from kartothek_cube.core.change import Change, Part, Receipt
from kartothek_cube.core.compat.factory import DatasetFactory
from kartothek_cube.core.csv_format import CsvFormat
from kartothek_cube.core.dataset.arguments import Source, check_flag, source_of
from kartothek_cube.core.dataset.load import stream_tables
from kartothek_cube.core.dataset.plan import indices_for
from kartothek_cube.core.dataset.plan_write import check_serializer
from kartothek_cube.core.dataset.run import commit_change
from kartothek_cube.core.evaluate import Mask
from kartothek_cube.core.files import FileRequest, file_rows, read_rows
from kartothek_cube.core.footer import first_codec
from kartothek_cube.core.formats import FileFormat
from kartothek_cube.core.journal import verb
from kartothek_cube.core.maintenance.compact import (
    TARGET_ROWS,
    CellOrder,
    cell_order,
    check_target_rows,
    neighbours,
    newest_cells,
    plan_compaction,
    whole_partitions,
)
from kartothek_cube.core.maintenance.compact_report import CompactionPlan, CompactionReport, FileFigures, Merge
from kartothek_cube.core.metadata.snapshot import Snapshot, type_of_column
from kartothek_cube.core.naming import DATA_SUFFIX
from kartothek_cube.core.options import Overrides, current_options
from kartothek_cube.core.options import options as overrides
from kartothek_cube.core.parallel import run, spread
from kartothek_cube.core.parquet import CODECS, FittedFormat, ParquetFormat, ParquetSource, are_small_chunks, open_file
from kartothek_cube.core.predicates import Predicates, columns_of, parse_predicates
from kartothek_cube.core.progress import Phase
from kartothek_cube.core.publish import check_store_can_commit
from kartothek_cube.core.scan import ScanTask, check_predicate_columns, conjunction_masks
from kartothek_cube.core.snapshots import load_snapshot
from kartothek_cube.core.stage import StageRequest, bounded_groups, stage_part, stage_stream
from kartothek_cube.core.store import Store
from kartothek_cube.errors import InvalidRequest
from kartothek_cube.typing import IntoPredicates, StoreLike

__all__ = ["Compaction", "compact_dataset", "plan_files", "run_compaction"]

# A value of Parquet takes at least so much in memory, whatever the file says: it may lie there as a number of a dictionary.
_NUMBER, _TEXT = 8, 16
# Packed text takes a multiple of its file in memory.
_TEXT_FACTOR = 8
# Shares of the bytes in flight: rows that are read, that wait for their row group, that are encoded, and what is encoded.
_SHARES = 4

# What a cube notes in the metadata of its datasets, and what the predecessor of kartothek noted.
_DIMENSIONS = ("ktk_cube_dimension_columns", "klee_dimension_columns")
_PARTITIONS = ("ktk_cube_partition_columns", "klee_partition_columns")


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
        return run_compaction(source, Compaction(base, plan, order, serializer), dry_run=dry)


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
    masks, _ = conjunction_masks(base, predicates, indices_for(Source(store, base.uuid), base, predicates), everything)
    return whole_partitions(base, np.logical_or.reduce(masks))


def _noted_order(base: Snapshot) -> CellOrder | None:
    """What a dataset of a cube owes to it, as its metadata say; None for any other dataset."""
    metadata = base.document.metadata
    noted = [next((metadata[key] for key in keys if isinstance(metadata.get(key), list)), None) for keys in (_DIMENSIONS, _PARTITIONS)]
    return None if noted[0] is None else cell_order(base, noted[0], noted[1] or ())


# --- what is to be done -----------------------------------------------------------------------------------------------


def plan_files(store: Store, base: Snapshot, selected: Mask, target_rows: int, order: CellOrder | None = None) -> CompactionPlan:
    """Plan the compaction of some physical partitions. Only footers of files are read that have a neighbour.

    Raises
    ------
    InvalidRequest
        If the document lists no partitions: then every file is a partition, and none can be taken back.
    """
    if base.document.partitions is None:
        raise InvalidRequest(
            f"The document of dataset {base.uuid!r} lists no partitions: whatever lies there is a partition, so files cannot be replaced. "
            "Write the dataset anew, e.g. with store_dataframes_as_dataset(..., overwrite=True)."
        )
    runs = neighbours(base, selected, order)
    keys = [key for run_ in runs for files in base.partitions.take(run_).files.values() for key in files.drop_null().to_pylist()]
    figures = spread(partial(_figures, store, base.uuid), keys, at=store)
    return plan_compaction(base, runs, dict(zip(keys, figures, strict=True)), target_rows, selected)


def _figures(store: Store, uuid: str, key: str) -> FileFigures:
    if not key.endswith(DATA_SUFFIX):
        size = store.tail(key, 0)[1]
        return FileFigures(file_rows(store, key, uuid), size, _TEXT_FACTOR * size)
    with open_file(store, key, uuid) as source:
        return _footer_figures(source)


def _footer_figures(source: ParquetSource) -> FileFigures:
    metadata = source.metadata
    chunks = list(chain.from_iterable(source.chunks(range(metadata.num_row_groups), set(source.schema.names))))
    # What lies before, between and behind the chunks are the marks of the format and the footer.
    size = sum(c.total_compressed_size for c in chunks) + metadata.serialized_size + 12
    unpacked = sum(max(c.total_uncompressed_size, c.num_values * (_TEXT if c.physical_type == "BYTE_ARRAY" else _NUMBER)) for c in chunks)
    return FileFigures(metadata.num_rows, size, unpacked, first_codec(metadata, source.size))


# --- doing it ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Compaction:
    """A plan with all that is needed to carry it out.

    Attributes
    ----------
    base : Snapshot
        The dataset as it was when the plan was made.
    plan : CompactionPlan
        What is to be done.
    order : CellOrder | None
        Of a dataset of a cube: how its rows are sorted, and where a newer row wins.
    serializer : FileFormat | None
        How files are written; None: as the newest of the merged ones.
    """

    base: Snapshot
    plan: CompactionPlan
    order: CellOrder | None
    serializer: FileFormat | None

    @property
    def rules(self) -> Rules:
        """What each of the merges needs to know."""
        base = self.base
        return Rules(base.uuid, base.schemas, base.partition_keys, tuple(sorted(base.secondary_columns)), self.order, self.serializer)


@dataclass(frozen=True, slots=True)
class Rules:
    """How the merged files of a dataset are made; small and picklable, so that merges can be made elsewhere. The attributes are as of `Compaction`."""

    dataset: str
    schemas: Mapping[str, pa.Schema]
    partition_keys: tuple[str, ...]
    index_columns: tuple[str, ...]
    order: CellOrder | None
    serializer: FileFormat | None

    def format(self, merge: Merge, table: str) -> FileFormat:
        """How the merged file of a table is written. Only Parquet carries everything, so one such file is enough for it."""
        if self.serializer is not None:
            return self.serializer
        keys, figures = merge.files[table], merge.figures[table]
        if not any(key.endswith(DATA_SUFFIX) for key in keys):
            return CsvFormat(compress=keys[-1].endswith(".gz"))
        newest = next((f for f in reversed(figures) if f.codec is not None), figures[-1])
        codec = (newest.codec or "SNAPPY").replace("UNCOMPRESSED", "NONE")
        if codec == "SNAPPY" and self.order is not None and are_small_chunks(newest.unpacked, len(self.stored(table))):
            return FittedFormat()  # as cubes write: what they choose for a small file is none for a large one
        return ParquetFormat(codec if codec in CODECS else "SNAPPY")

    def stored(self, table: str) -> pa.Schema:
        """The columns inside the files of a table."""
        return pa.schema([f for f in self.schemas[table] if f.name not in self.partition_keys])


def run_compaction(target: Source, work: Compaction, *, dry_run: bool) -> CompactionReport:
    """Write the merged files and publish them in place of their inputs; nothing with ``dry_run`` or where nothing is to be done."""
    if dry_run or not work.plan.merges:
        return CompactionReport(work.plan, dry_run)
    rules = work.rules
    for table, serializer in {(t, rules.format(m, t)) for m in work.plan.merges for t in m.files}:
        serializer.check(rules.stored(table))
    weight = partial(_weight, work.order is not None)
    phase = Phase("write", "merges")
    receipts = [r for staged in spread(partial(_stage, target.store, rules), work.plan.merges, heavy=True, weight=weight, phase=phase) for r in staged]
    change = _change(work, receipts)
    commit_change(target, change, work.base)
    return CompactionReport(work.plan, False, change.commit, sum(r.rows for r in receipts), sum(r.size for r in receipts))


def _change(work: Compaction, receipts: Sequence[Receipt]) -> Change:
    base, merges = work.base, work.plan.merges
    removed = pa.array([label for m in merges for label in m.inputs], type=pa.string())
    columns = tuple(sorted(base.secondary_columns))
    places = {m.label: m.inputs[-1] for m in merges}
    return Change(base.uuid, tuple(receipts), base.schemas, base.partition_keys, columns, removed=removed, places=places)


def _share() -> int:
    return max(1, current_options().bytes_in_flight // _SHARES)


def _weight(sorts: bool, merge: Merge) -> int:
    """Bytes that a merge takes. Rows of a cube are sorted, and so are in memory all at once."""
    return _SHARES * (merge.unpacked if sorts else min(merge.unpacked, _share()))


def _stage(store: Store, rules: Rules, merge: Merge) -> list[Receipt]:
    write = _stage_stream if rules.order is None else _stage_cells
    return [write(store, rules, merge, table) for table in merge.files]


def _request(rules: Rules, table: str) -> FileRequest:
    return FileRequest(rules.dataset, rules.schemas[table], tuple(rules.stored(table).names))


def _stage_cells(store: Store, rules: Rules, merge: Merge, table: str) -> Receipt:
    assert rules.order is not None
    request, keys = _request(rules, table), merge.files[table]
    tables = list(run(lambda key: read_rows(store, key, request), keys))
    rows = newest_cells(tables, keys, rules.order.dimensions, rules.dataset)
    staging = StageRequest(rules.dataset, rules.partition_keys, rules.index_columns, rules.order.dimensions, rules.format(merge, table), table)
    return stage_part(store, staging, Part(merge.values, merge.label, rows), rules.schemas[table])


def _stage_stream(store: Store, rules: Rules, merge: Merge, table: str) -> Receipt:
    serializer = _bounded(rules.format(merge, table), merge.figures[table])
    with overrides(bytes_in_flight=_share()):
        pieces = stream_tables(store, _request(rules, table), [ScanTask(key, {}) for key in merge.files[table]])
    staging = StageRequest(rules.dataset, rules.partition_keys, rules.index_columns, (), serializer, table)
    with closing(pieces):
        return stage_stream(store, staging, merge.label, merge.values, pieces, rules.stored(table), rules.schemas[table], _share())


def _bounded(serializer: FileFormat, figures: Sequence[FileFigures]) -> FileFormat:
    """The format with row groups that are no larger than what may wait in memory."""
    return bounded_groups(serializer, sum(f.rows for f in figures), sum(f.unpacked for f in figures), _share())
