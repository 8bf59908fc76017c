"""Partitions that are staged in one place and committed in another: many writers, one committer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.change import OnConflict
from kartothek_cube.core.commit import check_store_can_commit
from kartothek_cube.core.compat.dataset_metadata import DatasetMetadata
from kartothek_cube.core.compat.factory import DatasetFactory
from kartothek_cube.core.dataset.adopt import receipts_of_files, with_index_values
from kartothek_cube.core.dataset.arguments import target_of
from kartothek_cube.core.dataset.plan_write import plan_update
from kartothek_cube.core.dataset.prepare import Schemas, WriteRequest, check_final
from kartothek_cube.core.dataset.run import CommitOptions, StagedWrite, commit_staged, metadata_arguments, removed_labels, skipped, stage_data, update_options
from kartothek_cube.core.formats import FileFormat
from kartothek_cube.core.input_rows import as_items, elements_in
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.metadata.txn import parse_txn
from kartothek_cube.core.options import Overrides
from kartothek_cube.core.parallel import map_in_threads
from kartothek_cube.core.receipt import Receipt
from kartothek_cube.core.renew import is_copy
from kartothek_cube.core.snapshots import find_snapshot
from kartothek_cube.core.store import Store
from kartothek_cube.core.telemetry import operation
from kartothek_cube.errors import InvalidInput, InvalidType
from kartothek_cube.typing import Columns, DeleteScope, IntoItems, IntoMetadata, IntoTxn, MetadataMerger, StoreLike

__all__ = ["StagedPartitions", "collected", "commit_receipts", "flat", "stage_partitions", "staged_partitions"]


@dataclass(frozen=True, slots=True)
class StagedPartitions:
    """Partitions whose files are written and that no document names yet; a small value that can be pickled.

    Iterating gives one `StagedPartitions` for each partition. ``partition_on`` and ``index_columns`` are what the rows were prepared for: a dataset that
    does not exist yet is made with them.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.core.dataset.commit import write_single_partition
    >>> from kartothek_cube.core.dataset.store import store_dataframes_as_dataset
    >>> from kartothek_cube.core.stores import open_store
    >>> store = open_store("hmemory://")
    >>> _ = store_dataframes_as_dataset(store, "sales", [pa.table({"WEEK": [1], "UNITS": [3]})], partition_on="WEEK")
    >>> staged = write_single_partition(store, "sales", pa.table({"WEEK": [2, 3], "UNITS": [4, 5]}))
    >>> [part.label.split("/")[0] for part in staged]
    ['WEEK=2', 'WEEK=3']
    """

    uuid: str
    receipts: tuple[Receipt, ...]
    partition_on: tuple[str, ...] = ()
    index_columns: tuple[str, ...] = ()

    @property
    def labels(self) -> list[str]:
        """Labels of the partitions, in order."""
        return list(dict.fromkeys(r.label for r in self.receipts))

    @property
    def label(self) -> str:
        """Label of the only partition; `AttributeError` if there are several."""
        (label, *others) = self.labels or [""]
        if others or not label:
            raise AttributeError(f"These are {len(self.labels)} partitions of dataset {self.uuid!r}; look at `labels`.")
        return label

    @property
    def files(self) -> dict[str, str]:
        """Table → key of the file of the only partition."""
        return {r.table: r.key for r in self.receipts if r.label == self.label}

    def __len__(self) -> int:
        return len(self.labels)

    def __iter__(self) -> Iterator[StagedPartitions]:
        found: dict[str, list[Receipt]] = {}
        for receipt in self.receipts:
            found.setdefault(receipt.label, []).append(receipt)
        return (replace(self, receipts=tuple(receipts)) for receipts in found.values())

    def __repr__(self) -> str:
        rows = sum(r.rows for r in self.receipts)
        return f"StagedPartitions(uuid={self.uuid!r}, partitions={len(self)}, rows={rows:,})"


def stage_partitions(
    data: IntoItems,
    store: StoreLike | None = None,
    dataset_uuid: str | None = None,
    partition_on: Columns = None,
    secondary_indices: Columns = None,
    df_serializer: FileFormat | None = None,
    sort_partitions_by: Columns = None,
    factory: DatasetFactory | None = None,
    *,
    add_columns: bool = False,
    options: Overrides | None = None,
) -> StagedPartitions:
    """Write the files of rows, and nothing else: no document, no schema, no index. Any number of processes can do so at the same time.

    `commit_receipts` makes them visible: many writers, one committer. Until then they are safe from garbage collection for its grace period. See the page
    *Many writers*.

    Parameters
    ----------
    data : rows or list of rows
        As ``dfs`` in `store_dataframes_as_dataset`.
    store, dataset_uuid, factory
        Where the dataset lies. It need not exist yet; then all writers have to say the same ``partition_on`` and ``secondary_indices``.
    partition_on, secondary_indices, df_serializer, sort_partitions_by, add_columns
        As in `update_dataset_from_dataframes`.
    options : optional
        What `options` returns: settings for this call.

    Returns
    -------
    StagedPartitions
        The receipts. They can be pickled, are as small as the list of the files and their index values, and know nothing of the store.

    Raises
    ------
    InvalidInput, InvalidType, Unsupported
        If the rows do not fit the dataset as it is now.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.core.stores import open_store
    >>> stage_partitions(pa.table({"WEEK": [1, 2], "UNITS": [3, 4]}), open_store("hmemory://"), "sales", partition_on="WEEK")
    StagedPartitions(uuid='sales', partitions=2, rows=2)
    """
    with operation("stage_partitions", options):
        target = target_of(store, dataset_uuid, factory)
        base = find_snapshot(target.store, target.uuid)
        request = plan_update(target.uuid, base, partition_on, secondary_indices, df_serializer, sort_partitions_by, add_columns)
        return staged_partitions(target.store, request, data)


def staged_partitions(store: Store, request: WriteRequest, data: object) -> StagedPartitions:
    """Write the files of rows for a request."""
    staged = stage_data(store, request, data)
    return StagedPartitions(request.uuid, staged.receipts, request.partition_on, staged.request.index_columns)


def commit_receipts(
    receipts: StagedPartitions | Iterable[StagedPartitions],
    store: StoreLike | None = None,
    dataset_uuid: str | None = None,
    delete_scope: DeleteScope | None = None,
    metadata: IntoMetadata = None,
    metadata_merger: MetadataMerger | None = None,
    factory: DatasetFactory | None = None,
    *,
    add_columns: bool = False,
    on_conflict: OnConflict = "raise",
    txn: IntoTxn | None = None,
    options: Overrides | None = None,
) -> DatasetMetadata:
    """Make visible what `stage_partitions` wrote, in one commit that reads and writes no data file.

    A dataset that does not exist is made. Receipts that have been committed before are left out, so that a call whose answer was lost can be repeated: it
    adds no row twice, and if nothing else is left to do there is no commit.

    Parameters
    ----------
    receipts : StagedPartitions or list of StagedPartitions
        What the writers returned. Of a task that ran twice give the receipts of one run; the files of the other one are garbage.
    store, dataset_uuid, factory
        Where the dataset lies.
    delete_scope, metadata, metadata_merger, add_columns, on_conflict
        As in `update_dataset_from_dataframes`.
    txn : tuple of str and int, optional
        ``(application id, number)``: the commit is skipped if the dataset has a commit of this application with this number or a later one. So the rows
        may be staged anew for a repeated call, and are committed once. See the page *Exactly once*.
    options : optional
        What `options` returns: settings for this call.

    Returns
    -------
    DatasetMetadata
        The dataset as it was committed; ``commit`` is None if there was nothing to commit, and ``commit.skipped`` says that ``txn`` had been committed.

    Raises
    ------
    InvalidInput, InvalidType
        If there is nothing to make a dataset from, or receipts are of another dataset, contradict each other or do not fit the dataset.
    CommitConflict
        As in `update_dataset_from_dataframes`.
    StagedFilesLost
        If garbage collection has taken the files meanwhile.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.core.stores import open_store
    >>> store = open_store("hmemory://")
    >>> weeks = [pa.table({"WEEK": [week], "UNITS": [10 * week]}) for week in (1, 2)]
    >>> receipts = [stage_partitions(rows, store, "sales", partition_on="WEEK") for rows in weeks]
    >>> len(commit_receipts(receipts, store, "sales").partitions)
    2
    >>> commit_receipts(receipts, store, "sales").commit is None
    True
    >>> [commit_receipts(stage_partitions(rows, store, "sales"), store, "sales", txn=("weekly", 3)).commit.skipped for rows in [weeks[0]] * 2]
    [False, True]
    """
    with operation("commit_receipts", options):
        target = target_of(store, dataset_uuid, factory)
        items = _only_staged(receipts)
        check_store_can_commit(target.store)
        base = find_snapshot(target.store, target.uuid)
        if (done := skipped(base, parse_txn(txn))) is not None:
            return DatasetMetadata.of(done)
        request = plan_update(target.uuid, base, *_columns_of(items, base), add_columns=add_columns)
        rules = update_options(delete_scope, base, on_conflict, txn)
        arguments = metadata_arguments(metadata, metadata_merger, target.uuid)
        new = _uncommitted(target.store, items, base, rules)
        if base is not None and not (new or rules.scope or metadata or metadata_merger or rules.txn):
            return DatasetMetadata.of(replace(base, result=None))
        return target.committed(commit_staged(target.store, collected(target.store, request, new), arguments, rules))


def _only_staged(receipts: object) -> list[StagedPartitions]:
    items = list(flat(receipts))
    wrong = [item for item in items if not isinstance(item, StagedPartitions)]
    if wrong:
        raise InvalidType(f"Receipts are what stage_partitions returns, not {type(wrong[0]).__name__}.")
    return [item for item in items if isinstance(item, StagedPartitions) and item.receipts]


def _columns_of(items: Sequence[StagedPartitions], base: Snapshot | None) -> tuple[list[str], list[str]]:
    """Partition keys and index columns that a dataset is made with; one that exists has its own."""
    if base is not None:
        return [], []
    keys = {item.partition_on for item in items}
    if len(keys) > 1:
        raise InvalidInput(f"Receipts of dataset {items[0].uuid!r} have different partition columns: {sorted(map(list, keys))}. Nothing was committed.")
    return list(next(iter(keys), ())), sorted({column for item in items for column in item.index_columns})


def _uncommitted(store: Store, items: Sequence[StagedPartitions], base: Snapshot | None, rules: CommitOptions) -> list[StagedPartitions]:
    """Without partitions that the dataset has already, unless they are in the scope: what was removed and added in one commit stays when it is repeated."""
    if base is None or base.document.partitions is None:
        return list(items)
    stays = pc.invert(pc.is_in(base.partitions.labels, value_set=removed_labels(store, base, rules.scope)))
    wanted = pc.and_(stays, pc.is_in(base.partitions.labels, value_set=pa.array([label for item in items for label in item.labels], type=pa.string())))
    labels = base.partitions.labels.filter(wanted).to_pylist()
    files = {(table, label): key for table, keys in base.partitions.files.items() for label, key in zip(labels, keys.filter(wanted).to_pylist(), strict=True)}

    def is_new(receipt: Receipt) -> bool:
        key = files.get((receipt.table, receipt.label))
        return key is None or not (key == receipt.key or is_copy(key, receipt.key))

    left = [replace(item, receipts=tuple(filter(is_new, item.receipts))) for item in items]
    return [item for item in left if item.receipts]


def flat(items: object) -> Iterator[object]:
    """Staged partitions and other items out of nested lists."""
    for item in [items] if isinstance(items, StagedPartitions) else as_items(items):
        if isinstance(item, list) and not (item and isinstance(item[0], tuple)):
            yield from flat(item)
        elif item is not None:
            yield item


def collected(store: Store, request: WriteRequest, items: Sequence[object]) -> StagedWrite:
    """What is to be committed, of staged partitions and of files that lie where their labels say."""
    found = chain.from_iterable(map_in_threads(lambda item: _receipts(store, request, item), items))
    distinct = _distinct(request, found)
    receipts = tuple(map_in_threads(lambda receipt: with_index_values(store, request, receipt), distinct))
    if request.base is None and not receipts:
        raise InvalidInput(f"Cannot store empty datasets: {request.uuid!r} does not exist, and there are no partitions to make it from.")
    by_label: dict[str, dict[str, pa.Schema]] = {}
    for receipt in receipts:
        by_label.setdefault(receipt.label, {})[receipt.table] = receipt.schema
    schemas = Schemas(request)
    for tables in by_label.values():
        schemas.add(tables)
    check_final(request, schemas.tables)
    return StagedWrite(request, receipts, schemas.tables, len(items))


def _receipts(store: Store, request: WriteRequest, item: object) -> Sequence[Receipt]:
    if isinstance(item, StagedPartitions):
        return item.receipts
    return list(chain.from_iterable(receipts_of_files(store, request, partition) for partition in elements_in(item, request.uuid)))


def _distinct(request: WriteRequest, receipts: Iterable[Receipt]) -> list[Receipt]:
    """The same partition twice is one; two different files of one label are not."""
    found: dict[tuple[str, str], Receipt] = {}
    for receipt in receipts:
        if found.setdefault((receipt.label, receipt.table), receipt).key != receipt.key:
            raise InvalidInput(f"The labels {[receipt.label]} are duplicated. Nothing was committed to dataset {request.uuid!r}.")
    return list(found.values())
