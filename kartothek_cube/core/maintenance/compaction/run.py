"""Carrying out a compaction: footers are read for the plan, merged files are staged and published by one commit."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain

import numpy as np
import pyarrow as pa

from kartothek_cube.core.commit.change import Change
from kartothek_cube.core.commit.commit import commit_change
from kartothek_cube.core.expressions.evaluate import Mask
from kartothek_cube.core.expressions.predicates import Predicates, columns_of
from kartothek_cube.core.io.csv import CsvFormat
from kartothek_cube.core.io.file_format import DATA_SUFFIX, FileFormat
from kartothek_cube.core.io.parquet import CODECS, AdaptiveParquetFormat, ParquetFormat, are_small_chunks
from kartothek_cube.core.io.parquet_source import ParquetSource, first_codec, open_file, unpacked_bytes
from kartothek_cube.core.io.reader import FileRequest, file_rows, read_rows
from kartothek_cube.core.maintenance.compaction.plan import (
    CellOrder,
    neighbours,
    newest_cells,
    plan_compaction,
    whole_partitions,
)
from kartothek_cube.core.maintenance.compaction.report import CompactionPlan, CompactionReport, FileFigures, Merge
from kartothek_cube.core.metadata.snapshot import Snapshot, type_of_column
from kartothek_cube.core.runtime.executor import THREADS, Executor, map_files, map_in_threads
from kartothek_cube.core.runtime.options import current_options
from kartothek_cube.core.runtime.options import options as overrides
from kartothek_cube.core.runtime.progress import Phase
from kartothek_cube.core.scan.execute import stream_tables
from kartothek_cube.core.scan.plan import ScanTask, check_predicate_columns, conjunction_masks, indices_for
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.write.receipt import PartitionRows, Receipt
from kartothek_cube.core.write.stage import StageRequest, bounded_groups, stage_part, stage_stream
from kartothek_cube.errors import InvalidRequest

__all__ = ["Compaction", "MergeSpec", "plan_files", "run_compaction", "selected_partitions"]

# Packed text takes a multiple of its file in memory.
_TEXT_FACTOR = 8
# Shares of the bytes in flight: rows that are read, that wait for their row group, that are
# encoded, and what is encoded.
_SHARES = 4


def selected_partitions(store: Store, base: Snapshot, predicates: Predicates | None) -> Mask:
    """The stored partitions of the physical partitions in which the predicates may hold."""
    everything: Mask = np.ones(len(base.partitions), dtype=bool)
    if predicates is None:
        return everything
    names = dict.fromkeys(name for schema in base.schemas.values() for name in schema.names)
    check_predicate_columns(
        predicates, pa.schema([(name, type_of_column(base.schemas, name, base.uuid)) for name in names]), base.uuid
    )
    foreign = sorted(columns_of(predicates) - base.indexed_columns)
    if foreign:
        raise InvalidRequest(
            f"The predicates on {foreign} select no whole partitions of dataset {base.uuid!r}: name columns that are partition keys or have "
            f"a secondary index; these are {sorted(base.indexed_columns)}."
        )
    masks, _ = conjunction_masks(base, predicates, indices_for(store, base, predicates), everything)
    return whole_partitions(base, np.logical_or.reduce(masks))


def plan_files(
    store: Store,
    base: Snapshot,
    selected: Mask,
    target_rows: int,
    order: CellOrder | None = None,
    executor: Executor = THREADS,
) -> CompactionPlan:
    """Plan the compaction of some physical partitions.

    Only footers of files are read that have a neighbour.

    Raises
    ------
    InvalidRequest
        If the document lists no partitions: then every file is a partition, and none can be taken
        back.
    """
    if base.document.partitions is None:
        raise InvalidRequest(
            f"The document of dataset {base.uuid!r} lists no partitions: whatever lies there is a partition, so files cannot be replaced. "
            "Write the dataset anew, e.g. with store_dataframes_as_dataset(..., overwrite=True)."
        )
    runs = neighbours(base, selected, order)
    keys = [
        key
        for run_ in runs
        for files in base.partitions.take(run_).files.values()
        for key in files.drop_null().to_pylist()
    ]
    figures = map_files(partial(_figures, store, base.uuid), keys, executor=executor, store=store)
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
    return FileFigures(metadata.num_rows, size, unpacked_bytes(chunks), first_codec(metadata, source.size))


# --- doing it -------------------------------------------------------------------------------------


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
    def spec(self) -> MergeSpec:
        """What each of the merges needs to know."""
        base, columns = self.base, tuple(sorted(self.base.secondary_columns))
        return MergeSpec(base.uuid, base.schemas, base.partition_keys, columns, self.order, self.serializer)


@dataclass(frozen=True, slots=True)
class MergeSpec:
    """How the merged files of a dataset are made; small and picklable, so that merges can be made elsewhere.

    Attributes are those of the dataset and of its `Compaction`.
    """

    dataset: str
    schemas: Mapping[str, pa.Schema]
    partition_keys: tuple[str, ...]
    index_columns: tuple[str, ...]
    order: CellOrder | None
    serializer: FileFormat | None

    def format(self, merge: Merge, table: str) -> FileFormat:
        """How the merged file of a table is written.

        Only Parquet carries everything, so one such file is enough for it.
        """
        if self.serializer is not None:
            return self.serializer
        keys, figures = merge.files[table], merge.figures[table]
        if not any(key.endswith(DATA_SUFFIX) for key in keys):
            return CsvFormat(compress=keys[-1].endswith(".gz"))
        newest = next((f for f in reversed(figures) if f.codec is not None), figures[-1])
        codec = (newest.codec or "SNAPPY").replace("UNCOMPRESSED", "NONE")
        if codec == "SNAPPY" and self.order is not None and are_small_chunks(newest.unpacked, len(self.stored(table))):
            return AdaptiveParquetFormat()  # as cubes write: what they choose for a small file is none for a large one
        return ParquetFormat(codec if codec in CODECS else "SNAPPY")

    def stored(self, table: str) -> pa.Schema:
        """The columns inside the files of a table."""
        return pa.schema([f for f in self.schemas[table] if f.name not in self.partition_keys])


def run_compaction(store: Store, work: Compaction, *, dry_run: bool, executor: Executor = THREADS) -> CompactionReport:
    """Write the merged files and publish them in place of their inputs.

    With ``dry_run``, or where there is nothing to merge, nothing is written.
    """
    base, merges, spec = work.base, work.plan.merges, work.spec
    if dry_run or not merges:
        return CompactionReport(work.plan, dry_run)
    for table, serializer in {(t, spec.format(m, t)) for m in merges for t in m.files}:
        serializer.check(spec.stored(table))
    weight = partial(_weight, work.order is not None)
    staged = map_files(
        partial(_stage, store, spec),
        merges,
        executor=executor,
        heavy=True,
        weight=weight,
        phase=Phase("write", "merges"),
    )
    receipts = tuple(chain.from_iterable(staged))
    change = Change(
        base.uuid,
        receipts,
        base.schemas,
        base.partition_keys,
        spec.index_columns,
        removed=pa.array([label for m in merges for label in m.inputs], type=pa.string()),
        # Where the newest of the merged files was, so that rows are overridden in the same order as
        # before.
        places={m.label: m.inputs[-1] for m in merges},
    )
    commit_change(store, change, base)
    return CompactionReport(
        work.plan, False, change.commit, sum(r.rows for r in receipts), sum(r.size for r in receipts)
    )


def _share() -> int:
    return max(1, current_options().bytes_in_flight // _SHARES)


def _weight(sorts: bool, merge: Merge) -> int:
    """Bytes that a merge takes. Rows of a cube are sorted, and so are in memory all at once."""
    return _SHARES * (merge.unpacked if sorts else min(merge.unpacked, _share()))


def _stage(store: Store, spec: MergeSpec, merge: Merge) -> list[Receipt]:
    write = _stage_stream if spec.order is None else _stage_cells
    return [write(store, spec, merge, table) for table in merge.files]


def _stage_cells(store: Store, spec: MergeSpec, merge: Merge, table: str) -> Receipt:
    """The merged file of a dataset of a cube: its rows are sorted, and of a cell the newest row stays."""
    assert spec.order is not None
    keys, dimensions = merge.files[table], spec.order.dimensions
    request = FileRequest(spec.dataset, spec.schemas[table], tuple(spec.stored(table).names))
    tables = list(map_in_threads(lambda key: read_rows(store, key, request), keys))
    rows = newest_cells(tables, keys, dimensions, spec.dataset)
    serializer = spec.format(merge, table)
    staging = StageRequest(spec.dataset, spec.partition_keys, spec.index_columns, dimensions, serializer, table)
    return stage_part(store, staging, PartitionRows(merge.values, merge.label, rows), spec.schemas[table])


def _stage_stream(store: Store, spec: MergeSpec, merge: Merge, table: str) -> Receipt:
    """The merged file of any other dataset: rows keep their order, and memory holds a row group."""
    stored, figures = spec.stored(table), merge.figures[table]
    rows, nbytes = sum(f.rows for f in figures), sum(f.unpacked for f in figures)
    serializer = bounded_groups(spec.format(merge, table), rows, nbytes, _share())
    staging = StageRequest(spec.dataset, spec.partition_keys, spec.index_columns, (), serializer, table)
    request = FileRequest(spec.dataset, spec.schemas[table], tuple(stored.names))
    with overrides(bytes_in_flight=_share()):
        pieces = stream_tables(store, request, [ScanTask(key, {}) for key in merge.files[table]])
    with closing(pieces):
        return stage_stream(store, staging, merge.label, merge.values, pieces, stored, spec.schemas[table], _share())
