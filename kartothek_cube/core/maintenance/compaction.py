"""A compaction: reads footers for the plan, writes the merged files, publishes by one commit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import chain, islice, pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from kartothek_cube.core.arrow.keys import IntArray, Spill, group_starts, pack, take_chunked, take_rows
from kartothek_cube.core.commit.change import Change
from kartothek_cube.core.commit.commit import commit_change
from kartothek_cube.core.expressions.predicates import Mask, Predicates, columns_of
from kartothek_cube.core.io.formats import FileFormat, ParquetFormat
from kartothek_cube.core.io.reader import (
    ClusteredFormat,
    Clustering,
    FileRequest,
    FileStats,
    file_stats,
    format_like,
    read_rows,
)
from kartothek_cube.core.maintenance.compaction_plan import (
    TARGET_ROWS,
    CellOrder,
    CompactionPlan,
    CompactionReport,
    Merge,
    Overlay,
    cut_rows,
    files_to_compare,
    has_columns,
    neighbours,
    newest_cells,
    newest_positions,
    overlays,
    plan_compaction,
    whole_partitions,
)
from kartothek_cube.core.metadata.document import DROPPED_KEY
from kartothek_cube.core.metadata.snapshot import Snapshot, type_of_column
from kartothek_cube.core.runtime.executor import THREADS, map_files, map_in_threads
from kartothek_cube.core.runtime.options import Phase, current_options
from kartothek_cube.core.runtime.options import options as overrides
from kartothek_cube.core.scan.execute import stream_tables
from kartothek_cube.core.scan.plan import ScanTask, check_predicate_columns, conjunction_masks, indices_for
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.write.layout import NO_LAYOUT, DatasetLayout, StageRequest, layout_of
from kartothek_cube.core.write.plan import check_serializer, layout_of_call
from kartothek_cube.core.write.prepare import PartitionRows
from kartothek_cube.core.write.stage import Receipt, bounded_groups, stage_part, stage_stream
from kartothek_cube.errors import CommitConflict, InvalidRequest
from kartothek_cube.typing import Executor

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


class Selection(Struct, frozen=True):
    """Physical partitions of a dataset that are to be compacted, and how.

    Attributes
    ----------
    base : Snapshot
        The dataset.
    partitions : numpy.ndarray
        One boolean for each stored partition.
    target_rows : int
        The most rows of a file.
    order : CellOrder | None
        For a dataset of a cube: the order of its rows, and which files override each other.
    clustering : Clustering | None
        The order of rows that was asked for, or is on record.
    serializer : FileFormat | None
        The format of the merged files; None for that of the newest input.
    rewrite : bool
        Whether all files are written anew.
    layout : DatasetLayout
        The layout on record, which says more about the format.
    target_bytes : int | None
        The size of a file, instead of ``target_rows``.
    """

    base: Snapshot
    partitions: Mask
    target_rows: int = TARGET_ROWS
    order: CellOrder | None = None
    clustering: Clustering | None = None
    serializer: FileFormat | None = None
    rewrite: bool = False
    layout: DatasetLayout = NO_LAYOUT
    target_bytes: int | None = None

    def with_layout(self) -> Selection:
        """With the stored layout, which arguments override."""
        base, clustering = self.base, self.clustering
        layout = layout_of_call(on_record=layout_of(base.document.metadata, base.uuid))
        is_open = clustering is None and len(base.schemas) == 1 and isinstance(self.serializer, ParquetFormat | None)
        if is_open and layout.sort_by and has_columns(Clustering(layout.sort_by), base):
            clustering = Clustering(layout.sort_by)
        size = layout.target_file_bytes if self.target_rows == TARGET_ROWS else None
        return replace(self, clustering=clustering, layout=layout, target_bytes=size)

    def runs(self) -> list[IntArray]:
        """The stored partitions whose footers tell what is to be merged, as by `neighbours`.

        Raises
        ------
        InvalidRequest
            If the document lists no partitions. Every file is one then, so none can be replaced.
        """
        if self.base.document.partitions is None:
            raise InvalidRequest(
                f"The document of dataset {self.base.uuid!r} lists no partitions: every data file in its folder is a "
                "partition, so files cannot be replaced. "
                "Write the dataset anew, e.g. with store_dataframes_as_dataset(..., overwrite=True)."
            )
        at_least = 2 if self.clustering is None and not self.rewrite else 1
        return neighbours(self.base, self.partitions, self.order, at_least)

    def footers(self, runs: Sequence[IntArray]) -> Iterator[_Footer]:
        """The footers of the files in some runs."""
        dimensions = () if self.order is None else self.order.dimensions
        column = None if self.clustering is None else self.clustering.columns[0]
        for files in chain.from_iterable(self.base.partitions.take(run).files.values() for run in runs):
            yield from (_Footer(self.base.uuid, key, dimensions, column) for key in files.drop_null().to_pylist())

    def sized(self, runs: Sequence[IntArray], figures: Mapping[str, FileStats]) -> Selection:
        """With the number of rows that takes ``target_bytes``."""
        if self.target_bytes is None:
            return self
        found = [figures[footer.key] for footer in self.footers(runs)]
        size, rows = sum(f.size for f in found), sum(f.rows for f in found)
        return replace(self, target_rows=max(1, rows * self.target_bytes // max(1, size))) if rows else self

    def compared(self, runs: Sequence[IntArray], figures: Mapping[str, FileStats]) -> list[list[int]]:
        """The files whose key columns tell overlays, as by `files_to_compare`."""
        # A dataset of a cube has one table; of several, a partition might override only in one.
        if self.order is None or len(self.base.partitions.files) != 1:
            return []
        # Files that become one need no comparison. Sorted ones do: which are merged is decided by
        # their ranges, whatever comes between them.
        return files_to_compare(self.base, runs, figures, self.target_rows if self.clustering is None else 1)


class _Footer(NamedTuple):
    """A footer to read, with the arguments of `file_stats`."""

    uuid: str
    key: str
    dimensions: tuple[str, ...]
    sorted_by: str | None


def plan_files(store: Store, selections: Sequence[Selection], executor: Executor = THREADS) -> list[Compaction]:
    """Plan the compaction of some datasets.

    Reads the footers of files that have a neighbour, and no others; with a ``clustering`` or
    ``rewrite`` those of all files. With an ``order``, also the key columns of files whose bounds
    overlap. Errors as of `Selection.runs`.
    """
    runs = [selection.runs() for selection in selections]
    footers = [f for selection, of_one in zip(selections, runs, strict=True) for f in selection.footers(of_one)]
    found = map_files(partial(_read_footer, store), footers, executor=executor, store=store)
    figures = {footer.key: stats for footer, stats in zip(footers, found, strict=True)}
    sized = [selection.sized(of_one, figures) for selection, of_one in zip(selections, runs, strict=True)]
    compared = [selection.compared(of_one, figures) for selection, of_one in zip(sized, runs, strict=True)]
    overlaid = _overlays(store, sized, compared, figures, executor)
    return [
        Compaction(
            s, plan_compaction(s.base, of_one, figures, s.target_rows, s.partitions, o, s.clustering, rewrite=s.rewrite)
        )
        for s, of_one, o in zip(sized, runs, overlaid, strict=True)
    ]


def _read_footer(store: Store, footer: _Footer) -> FileStats:
    return file_stats(store, *footer)


def _overlays(
    store: Store,
    selections: Sequence[Selection],
    compared: Sequence[Sequence[Sequence[int]]],
    figures: Mapping[str, FileStats],
    executor: Executor,
) -> list[list[Overlay]]:
    """The overlays among some files of each dataset, from their key columns."""
    requests, items = dict[int, FileRequest](), list[tuple[int, tuple[str, ...]]]()
    for number, (selection, of_one) in enumerate(zip(selections, compared, strict=True)):
        if of_one and selection.order is not None:
            base = selection.base
            requests[number] = FileRequest(base.uuid, base.schema, selection.order.dimensions)
            (files,) = base.partitions.files.values()
            items += [(number, tuple(files.take(pa.array(positions)).to_pylist())) for positions in of_one]

    def weight(item: tuple[int, tuple[str, ...]]) -> int:
        number, keys = item
        return sum(_CELL_BYTES * (1 + len(requests[number].columns)) * figures[key].rows for key in keys)

    found = map_files(partial(_overlays_of, store, requests), items, executor=executor, store=store, weight=weight)
    with closing(found):
        return [
            [
                Overlay(tuple(positions[i] for i in overlay.files), overlay.rows)
                for positions, of_files in zip(of_one, islice(found, len(of_one)), strict=True)
                for overlay in of_files
            ]
            for of_one in compared
        ]


def _overlays_of(store: Store, requests: Mapping[int, FileRequest], item: tuple[int, tuple[str, ...]]) -> list[Overlay]:
    request, keys = requests[item[0]], item[1]
    tables = list(map_in_threads(lambda key: read_rows(store, key, request), keys, store=store))
    return overlays(pack(tables, request.columns))


# --- execution ----------------------------------------------------------------------------------


class Compaction(Struct, frozen=True):
    """A plan with everything that its execution needs."""

    selection: Selection
    plan: CompactionPlan

    @property
    def spec(self) -> MergeSpec:
        """The settings that all merges share."""
        chosen, base = self.selection, self.selection.base
        return MergeSpec(
            base.uuid,
            base.schemas,
            base.partition_keys,
            tuple(sorted(base.secondary_columns)),
            chosen.order,
            chosen.serializer,
            self.plan.clustering,
            self.plan.target_rows,
            chosen.layout,
        )

    def check_formats(self) -> None:
        """Raise if the columns of a table do not fit the format of its files."""
        spec, merges = self.spec, self.plan.merges
        for table, serializer in {(t, spec.format(m, t)) for m in merges for t in m.files}:
            serializer.check(spec.stored(table))


class MergeSpec(Struct, frozen=True):
    """Settings of the merges of a dataset; small and picklable, for executors elsewhere."""

    dataset: str
    schemas: Mapping[str, pa.Schema]
    partition_keys: tuple[str, ...]
    index_columns: tuple[str, ...]
    order: CellOrder | None
    serializer: FileFormat | None
    clustering: Clustering | None = None
    target_rows: int = TARGET_ROWS
    layout: DatasetLayout = NO_LAYOUT

    def format(self, merge: Merge, table: str) -> FileFormat:
        """The format of the merged file of a table."""
        like, keys, figures = self.serializer, merge.files[table], merge.figures[table]
        if like is None:
            like = format_like(keys, figures, len(self.stored(table)), adaptive=self.order is not None)
            like = self.layout.format(like)
        # Tasks that are repeated write the same files, so that the id is that of the label.
        return (
            like if self.clustering is None else ClusteredFormat(like, self.clustering, merge.label.rpartition("/")[2])
        )

    def weight(self, merge: Merge) -> int:
        """The memory that a merge takes."""
        share = _share()
        if self.clustering is not None:  # the keys of all rows, and the rows of one new file
            keys = _CELL_BYTES * (1 + len(self.key_columns)) * merge.rows
            return keys + _SHARES * max(min(merge.unpacked, share), merge.unpacked // merge.pieces)
        # Sorting takes all rows of a merge at once; without it they stream.
        return _SHARES * (merge.unpacked if self.order is not None else min(merge.unpacked, share))

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns that decide the place of a row, where rows are clustered."""
        columns = () if self.clustering is None else self.clustering.columns
        return tuple(dict.fromkeys((*columns, *(() if self.order is None else self.order.dimensions))))

    def stored(self, table: str) -> pa.Schema:
        """The columns inside the files of a table."""
        return pa.schema([f for f in self.schemas[table] if f.name not in self.partition_keys])

    def places(
        self, merge: Merge, clustering: Clustering, keys: Sequence[str], tables: Sequence[pa.Table]
    ) -> list[IntArray]:
        """For each new file the places of its rows among those of all inputs, in their new order.

        ``tables`` has the key columns of the files ``keys``.
        """
        rows, kept = pa.concat_tables(tables).select(list(clustering.columns)), None
        if self.order is not None:
            kept = newest_positions(tables, keys, self.order.dimensions, self.dataset)
            rows = take_rows(rows, kept)
        order, ends = cut_rows(rows, clustering, merge.pieces, self.target_rows)
        order = order if kept is None else kept[order]
        return [order[begin:end] for begin, end in pairwise(ends)]


def run_compactions(
    store: Store, compactions: Mapping[str, Compaction], *, dry_run: bool, executor: Executor = THREADS
) -> dict[str, CompactionReport | CommitConflict]:
    """Write the merged files of some datasets and replace their inputs, by one commit for each.

    With ``dry_run``, or with nothing to merge, nothing is written. A conflict concerns its dataset
    alone.
    """
    results: dict[str, CompactionReport | CommitConflict] = {
        name: CompactionReport(c.plan, dry_run) for name, c in compactions.items()
    }
    merging = {name: c for name, c in compactions.items() if c.plan.merges and not dry_run}
    for compaction in merging.values():
        compaction.check_formats()
    for names in _together(merging):
        some = [merging[name] for name in names]
        staged = _staged(store, some, executor)
        done = map_in_threads(partial(_commit, store), list(zip(some, staged, strict=True)), store=store)
        results.update(zip(names, done, strict=True))
    return results


def _together(compactions: Mapping[str, Compaction]) -> Iterator[list[str]]:
    """Datasets that are compacted side by side: all their merges may be in memory at once."""
    names, size = list[str](), 0
    for name, compaction in compactions.items():
        spec = compaction.spec
        needed = sum(map(spec.weight, compaction.plan.merges))
        if names and size + needed > current_options().bytes_in_flight:
            yield names
            names, size = [], 0
        names.append(name)
        size += needed
    if names:
        yield names


def _staged(store: Store, compactions: Sequence[Compaction], executor: Executor) -> list[list[list[Receipt]]]:
    """The merged files of each merge of each compaction."""
    specs = [compaction.spec for compaction in compactions]
    merges = [(number, merge) for number, c in enumerate(compactions) for merge in c.plan.merges]

    def weight(numbered: tuple[int, Merge]) -> int:
        return specs[numbered[0]].weight(numbered[1])

    staged = map_files(
        partial(_stage, store, specs),
        merges,
        executor=executor,
        heavy=True,
        store=store,
        weight=weight,
        phase=Phase("write", "merges"),
    )
    with closing(staged):
        return [list(islice(staged, len(c.plan.merges))) for c in compactions]


def _commit(store: Store, staged: tuple[Compaction, Sequence[Sequence[Receipt]]]) -> CompactionReport | CommitConflict:
    """Put the merged files into the places of their inputs."""
    compaction, of_merges = staged
    base, merges = compaction.selection.base, compaction.plan.merges
    receipts = tuple(chain.from_iterable(of_merges))
    is_whole = compaction.selection.rewrite and sum(len(m.inputs) for m in merges) == len(base.partitions)
    change = Change(
        base.uuid,
        receipts,
        base.schemas,
        base.partition_keys,
        compaction.spec.index_columns,
        removed=pa.array([label for m in merges for label in m.inputs], type=pa.string()),
        # The position of the newest input, so that rows override each other as before.
        places={r.label: m.inputs[-1] for m, of_merge in zip(merges, of_merges, strict=True) for r in of_merge},
        data_change=False,
        # Old values of dropped columns are in no file any more.
        records={DROPPED_KEY: None} if is_whole and DROPPED_KEY in base.document.metadata else {},
    )
    try:
        commit_change(store, change, base)
    except CommitConflict as conflict:
        return conflict
    rows, size = sum(r.rows for r in receipts), sum(r.size for r in receipts)
    return CompactionReport(compaction.plan, False, change.commit, rows, size)


def _share() -> int:
    return max(1, current_options().bytes_in_flight // _SHARES)


def _labels(merge: Merge) -> list[str]:
    # The same labels in every attempt: a task that is repeated writes the same files.
    return [merge.label, *(f"{merge.label}-{number}" for number in range(1, merge.pieces))]


def _stage(store: Store, specs: Sequence[MergeSpec], numbered: tuple[int, Merge]) -> list[Receipt]:
    spec, merge = specs[numbered[0]], numbered[1]
    if spec.clustering is not None:
        return list(chain.from_iterable(_stage_clustered(store, spec, merge, t, spec.clustering) for t in merge.files))
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
    tables = list(map_in_threads(lambda key: read_rows(store, key, request), keys, store=store))
    rows = newest_cells(tables, keys, dimensions, spec.dataset)
    serializer = spec.format(merge, table)
    staging = StageRequest(spec.dataset, spec.partition_keys, spec.index_columns, dimensions, serializer, table)
    ends = [number * len(rows) // merge.pieces for number in range(merge.pieces + 1)]
    return [
        stage_part(
            store, staging, PartitionRows(merge.values, name, rows.slice(begin, end - begin)), spec.schemas[table]
        )
        for name, (begin, end) in zip(_labels(merge), pairwise(ends), strict=True)
    ]


def _stage_clustered(store: Store, spec: MergeSpec, merge: Merge, table: str, clustering: Clustering) -> list[Receipt]:
    """The merged files in the order of a clustering; of a dataset of a cube with the newest rows.

    Small inputs are read once. Of others first the key columns, which decide the file and the place
    of every row, and then the rows, which wait on disk until their file is written.
    """
    keys, schema, stored = merge.files[table], spec.schemas[table], spec.stored(table)
    is_small = merge.unpacked <= _share()
    read = FileRequest(spec.dataset, schema, tuple(stored.names) if is_small else spec.key_columns)
    tables = list(map_in_threads(lambda key: read_rows(store, key, read), keys, store=store))
    files = spec.places(merge, clustering, keys, tables)
    if is_small:
        rows = (table for table in tables)
    else:
        tables.clear()
        with overrides(bytes_in_flight=_share()):
            everything = FileRequest(spec.dataset, schema, tuple(stored.names))
            rows = stream_tables(store, everything, [ScanTask(key, {}) for key in keys])
    staging = StageRequest(spec.dataset, spec.partition_keys, spec.index_columns, (), spec.format(merge, table), table)
    plain = pa.schema([(field.name, field.type) for field in stored])
    with closing(rows), Spill(plain, _share()) as spill:
        _distribute(rows, merge.rows, files, spill)
        receipts = []
        for number, (label, places) in enumerate(zip(_labels(merge), files, strict=True)):
            waiting = pa.concat_tables([plain.empty_table(), *spill.take(number)])
            in_order = np.empty(len(places), dtype=np.int64)
            in_order[np.argsort(places)] = np.arange(len(places))
            part = PartitionRows(merge.values, label, take_chunked(waiting, in_order))
            receipts.append(stage_part(store, staging, part, schema))
        return receipts


def _distribute(rows: Iterable[pa.Table], count: int, files: Sequence[IntArray], spill: Spill) -> None:
    """Keep each row for its new file, in the order of the inputs."""
    owners, begin = np.full(count, -1, dtype=np.int64), 0
    for number, places in enumerate(files):
        owners[places] = number
    for table in rows:
        numbers = owners[begin : begin + table.num_rows]
        begin += table.num_rows
        order = np.argsort(numbers, kind="stable")
        bounds = [*group_starts(numbers[order]).tolist(), len(order)]
        for first, end in pairwise(bounds):
            number = int(numbers[order[first]])
            if number >= 0:
                spill.add(number, take_rows(table, order[first:end]))


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
        (receipt,) = stage_stream(
            store, staging, merge.label, merge.values, pieces, stored, spec.schemas[table], _share()
        )
        return receipt


def check_format(given: FileFormat | None, wanted: Clustering | None) -> FileFormat | None:
    """The format that a caller gave, `InvalidRequest` if its files cannot say their order."""
    if given is None:
        return None
    serializer = check_serializer(given)
    if wanted is not None and not isinstance(serializer, ParquetFormat):
        raise InvalidRequest(
            f"Files in the format of df_serializer cannot say how their rows are ordered, so {wanted.argument} would "
            "write them anew each time. Leave df_serializer out, or give one for Parquet."
        )
    return serializer
