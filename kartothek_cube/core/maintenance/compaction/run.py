"""A compaction: reads footers for the plan, writes the merged files, publishes by one commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise

import numpy as np
import pyarrow as pa

from kartothek_cube.core.arrow.sort_keys import pack
from kartothek_cube.core.commit.change import Change
from kartothek_cube.core.commit.commit import commit_change
from kartothek_cube.core.expressions.evaluate import Mask
from kartothek_cube.core.expressions.predicates import Predicates, columns_of
from kartothek_cube.core.io.file_figures import FileFigures, file_figures, format_like
from kartothek_cube.core.io.file_format import FileFormat
from kartothek_cube.core.io.reader import FileRequest, read_rows
from kartothek_cube.core.maintenance.compaction.plan import (
    CellOrder,
    Overlay,
    files_to_compare,
    neighbours,
    newest_cells,
    overlays,
    plan_compaction,
    whole_partitions,
)
from kartothek_cube.core.maintenance.compaction.report import CompactionPlan, CompactionReport, Merge
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

# Shares of the bytes in flight: rows that are read, rows that wait for their row group, rows that
# are encoded, and encoded bytes.
_SHARES = 4
# A value of a key column, decoded and packed.
_CELL_BYTES = 32


def selected_partitions(store: Store, base: Snapshot, predicates: Predicates | None) -> Mask:
    """The stored partitions of all physical partitions in which the predicates may hold."""
    everything: Mask = np.ones(len(base.partitions), dtype=bool)
    if predicates is None:
        return everything
    names = dict.fromkeys(name for schema in base.schemas.values() for name in schema.names)
    types = [(name, type_of_column(base.schemas, name, base.uuid)) for name in names]
    check_predicate_columns(predicates, pa.schema(types), base.uuid)
    unindexed = sorted(columns_of(predicates) - base.indexed_columns)
    if unindexed:
        raise InvalidRequest(
            f"The predicates on {unindexed} select no whole partitions of dataset {base.uuid!r}: name columns "
            f"that are partition keys or have a secondary index; these are {sorted(base.indexed_columns)}."
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

    Reads the footers of files that have a neighbour, and no others. With an ``order``, also the key
    columns of files whose bounds overlap.

    Raises
    ------
    InvalidRequest
        If the document lists no partitions. Every file is one then, so none can be replaced.
    """
    if base.document.partitions is None:
        raise InvalidRequest(
            f"The document of dataset {base.uuid!r} lists no partitions: every data file in its folder is a partition, "
            "so files cannot be replaced. "
            "Write the dataset anew, e.g. with store_dataframes_as_dataset(..., overwrite=True)."
        )
    runs = neighbours(base, selected, order)
    columns = [files for run in runs for files in base.partitions.take(run).files.values()]
    keys = [key for files in columns for key in files.drop_null().to_pylist()]
    dimensions = () if order is None else order.dimensions
    found = map_files(
        partial(file_figures, store, base.uuid, dimensions=dimensions), keys, executor=executor, store=store
    )
    figures = dict(zip(keys, found, strict=True))
    overlaid: list[Overlay] = []
    # A dataset of a cube has one table; of several, a partition might override only in one.
    if order is not None and len(base.partitions.files) == 1:
        compared = files_to_compare(base, runs, figures, target_rows)
        overlaid = _overlays(store, base, compared, figures, order, executor)
    return plan_compaction(base, runs, figures, target_rows, selected, overlaid)


def _overlays(
    store: Store,
    base: Snapshot,
    compared: Sequence[Sequence[int]],
    figures: Mapping[str, FileFigures],
    order: CellOrder,
    executor: Executor,
) -> list[Overlay]:
    """The overlays among some files, from their key columns."""
    if not compared:
        return []
    (files,) = base.partitions.files.values()
    keys = [tuple(files.take(pa.array(positions)).to_pylist()) for positions in compared]
    request = FileRequest(base.uuid, base.schema, order.dimensions)

    def weight(names: tuple[str, ...]) -> int:
        return sum(_CELL_BYTES * (1 + len(order.dimensions)) * figures[name].rows for name in names)

    found = map_files(partial(_overlays_of, store, request), keys, executor=executor, store=store, weight=weight)
    return [
        Overlay(tuple(positions[i] for i in overlay.files), overlay.rows)
        for positions, of_files in zip(compared, found, strict=True)
        for overlay in of_files
    ]


def _overlays_of(store: Store, request: FileRequest, keys: Sequence[str]) -> list[Overlay]:
    return overlays(pack(list(map_in_threads(lambda key: read_rows(store, key, request), keys)), request.columns))


# --- execution ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Compaction:
    """A plan with everything that its execution needs.

    Attributes
    ----------
    base : Snapshot
        The snapshot that was planned.
    plan : CompactionPlan
        The files to merge.
    order : CellOrder | None
        For a dataset of a cube: the order of its rows, and which files override each other.
    serializer : FileFormat | None
        The format of the merged files; None for that of the newest input.
    """

    base: Snapshot
    plan: CompactionPlan
    order: CellOrder | None
    serializer: FileFormat | None

    @property
    def spec(self) -> MergeSpec:
        """The settings that all merges share."""
        base, index_columns = self.base, tuple(sorted(self.base.secondary_columns))
        return MergeSpec(base.uuid, base.schemas, base.partition_keys, index_columns, self.order, self.serializer)


@dataclass(frozen=True, slots=True)
class MergeSpec:
    """Settings of the merges of a dataset; small and picklable, for executors elsewhere."""

    dataset: str
    schemas: Mapping[str, pa.Schema]
    partition_keys: tuple[str, ...]
    index_columns: tuple[str, ...]
    order: CellOrder | None
    serializer: FileFormat | None

    def format(self, merge: Merge, table: str) -> FileFormat:
        """The format of the merged file of a table."""
        if self.serializer is not None:
            return self.serializer
        keys, figures = merge.files[table], merge.figures[table]
        return format_like(keys, figures, len(self.stored(table)), adaptive=self.order is not None)

    def stored(self, table: str) -> pa.Schema:
        """The columns inside the files of a table."""
        return pa.schema([f for f in self.schemas[table] if f.name not in self.partition_keys])


def run_compaction(
    store: Store, compaction: Compaction, *, dry_run: bool, executor: Executor = THREADS
) -> CompactionReport:
    """Write the merged files and replace their inputs by one commit.

    With ``dry_run``, or with nothing to merge, nothing is written.
    """
    base, merges, spec = compaction.base, compaction.plan.merges, compaction.spec
    if dry_run or not merges:
        return CompactionReport(compaction.plan, dry_run)
    for table, serializer in {(t, spec.format(m, t)) for m in merges for t in m.files}:
        serializer.check(spec.stored(table))
    sorts, share = compaction.order is not None, _share()

    def weight(merge: Merge) -> int:
        # Sorting takes all rows of a merge at once; without it they stream.
        return _SHARES * (merge.unpacked if sorts else min(merge.unpacked, share))

    phase = Phase("write", "merges")
    staged = map_files(partial(_stage, store, spec), merges, executor=executor, heavy=True, weight=weight, phase=phase)
    staged_merges = list(staged)
    receipts = tuple(chain.from_iterable(staged_merges))
    change = Change(
        base.uuid,
        receipts,
        base.schemas,
        base.partition_keys,
        spec.index_columns,
        removed=pa.array([label for m in merges for label in m.inputs], type=pa.string()),
        # The position of the newest input, so that rows override each other as before.
        places={r.label: m.inputs[-1] for m, of_merge in zip(merges, staged_merges, strict=True) for r in of_merge},
        data_change=False,
    )
    commit_change(store, change, base)
    rows, size = sum(r.rows for r in receipts), sum(r.size for r in receipts)
    return CompactionReport(compaction.plan, False, change.commit, rows, size)


def _share() -> int:
    return max(1, current_options().bytes_in_flight // _SHARES)


def _stage(store: Store, spec: MergeSpec, merge: Merge) -> list[Receipt]:
    if spec.order is None:
        return [_stage_stream(store, spec, merge, table) for table in merge.files]
    dimensions = spec.order.dimensions
    return [receipt for table in merge.files for receipt in _stage_sorted(store, spec, merge, table, dimensions)]


def _stage_sorted(
    store: Store, spec: MergeSpec, merge: Merge, table: str, dimensions: tuple[str, ...]
) -> list[Receipt]:
    """The merged files of a dataset of a cube: sorted by cell, with the newest row of each."""
    keys = merge.files[table]
    request = FileRequest(spec.dataset, spec.schemas[table], tuple(spec.stored(table).names))
    tables = list(map_in_threads(lambda key: read_rows(store, key, request), keys))
    rows = newest_cells(tables, keys, dimensions, spec.dataset)
    serializer = spec.format(merge, table)
    staging = StageRequest(spec.dataset, spec.partition_keys, spec.index_columns, dimensions, serializer, table)
    ends = [number * len(rows) // merge.pieces for number in range(merge.pieces + 1)]
    # The same labels in every attempt: a task that is repeated writes the same files.
    names = [merge.label, *(f"{merge.label}-{number}" for number in range(1, merge.pieces))]
    return [
        stage_part(
            store, staging, PartitionRows(merge.values, name, rows.slice(begin, end - begin)), spec.schemas[table]
        )
        for name, (begin, end) in zip(names, pairwise(ends), strict=True)
    ]


def _stage_stream(store: Store, spec: MergeSpec, merge: Merge, table: str) -> Receipt:
    """The merged file of any other dataset: rows keep their order; memory holds one row group."""
    stored, figures = spec.stored(table), merge.figures[table]
    rows, nbytes = sum(f.rows for f in figures), sum(f.unpacked for f in figures)
    serializer = bounded_groups(spec.format(merge, table), rows, nbytes, _share())
    staging = StageRequest(spec.dataset, spec.partition_keys, spec.index_columns, (), serializer, table)
    request = FileRequest(spec.dataset, spec.schemas[table], tuple(stored.names))
    with overrides(bytes_in_flight=_share()):
        pieces = stream_tables(store, request, [ScanTask(key, {}) for key in merge.files[table]])
    with closing(pieces):
        return stage_stream(store, staging, merge.label, merge.values, pieces, stored, spec.schemas[table], _share())
