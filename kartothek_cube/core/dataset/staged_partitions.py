"""`StagedPartitions`, and the partitions that a commit of them adds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.commit.commit import is_copy
from kartothek_cube.core.commit.dataset_write import CommitOptions, StagedWrite, removed_labels
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.write.input_rows import as_items, elements_in
from kartothek_cube.core.write.plan import receipts_of_files, with_index_values
from kartothek_cube.core.write.prepare import Schemas, WriteRequest, check_final
from kartothek_cube.core.write.stage import Receipt
from kartothek_cube.errors import InvalidInput

__all__ = ["StagedPartitions", "columns_of_new_dataset", "flatten", "merge_staged", "uncommitted"]


@dataclass(frozen=True, slots=True)
class StagedPartitions:
    """Partitions whose files are written but not committed: a small, picklable value.

    Iterating gives one `StagedPartitions` per partition. A dataset that does not exist yet is
    created with ``partition_on`` and ``index_columns``, for which the rows were prepared.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.core.dataset.distributed import write_single_partition
    >>> from kartothek_cube.core.dataset.write import store_dataframes_as_dataset
    >>> from kartothek_cube.core.stores.open import open_store
    >>> store = open_store("hmemory://")
    >>> sales = [pa.table({"WEEK": [week], "UNITS": [3 * week]}) for week in (1, 2, 3)]
    >>> _ = store_dataframes_as_dataset(store, "sales", sales[:1], partition_on="WEEK")
    >>> staged = write_single_partition(store, "sales", pa.concat_tables(sales[1:]))
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
        by_label: dict[str, list[Receipt]] = {}
        for receipt in self.receipts:
            by_label.setdefault(receipt.label, []).append(receipt)
        return (replace(self, receipts=tuple(receipts)) for receipts in by_label.values())

    def __repr__(self) -> str:
        rows = sum(r.rows for r in self.receipts)
        return f"StagedPartitions(uuid={self.uuid!r}, partitions={len(self)}, rows={rows:,})"


def columns_of_new_dataset(items: Sequence[StagedPartitions]) -> tuple[list[str], list[str]]:
    """Partition keys, and index columns."""
    keys = {item.partition_on for item in items}
    if len(keys) > 1:
        raise InvalidInput(
            f"Receipts of dataset {items[0].uuid!r} have different partition columns: {sorted(map(list, keys))}. "
            "Nothing was committed."
        )
    return list(next(iter(keys), ())), sorted({column for item in items for column in item.index_columns})


def uncommitted(
    store: Store, items: Sequence[StagedPartitions], base: Snapshot | None, rules: CommitOptions
) -> list[StagedPartitions]:
    """Drop receipts of files that the dataset has and keeps."""
    if base is None or base.document.partitions is None:
        return list(items)
    present = base.partitions.labels
    staged_labels = pa.array([label for item in items for label in item.labels], type=pa.string())
    # A commit may remove a partition by its scope and add it again. Its repetition must do the
    # same: partitions in the scope count as new.
    stays = pc.invert(pc.is_in(present, value_set=removed_labels(store, base, rules.scope)))
    mask = pc.and_(stays, pc.is_in(present, value_set=staged_labels))
    labels = present.filter(mask).to_pylist()
    files = {
        (table, label): key
        for table, keys in base.partitions.files.items()
        for label, key in zip(labels, keys.filter(mask).to_pylist(), strict=True)
    }

    def is_new(receipt: Receipt) -> bool:
        key = files.get((receipt.table, receipt.label))
        # The commit copies files that garbage collection is about to take: same rows, another key.
        return key is None or not (key == receipt.key or is_copy(key, receipt.key))

    left = [replace(item, receipts=tuple(filter(is_new, item.receipts))) for item in items]
    return [item for item in left if item.receipts]


def flatten(items: object) -> Iterator[object]:
    """Staged partitions and other items out of nested lists."""
    for item in [items] if isinstance(items, StagedPartitions) else as_items(items):
        # A list of tuples is one item: [(table, rows), ...].
        if isinstance(item, list) and not (item and isinstance(item[0], tuple)):
            yield from flatten(item)
        elif item is not None:
            yield item


def merge_staged(store: Store, request: WriteRequest, items: Sequence[object]) -> StagedWrite:
    """One write out of staged partitions and of files that are stored under the keys of labels."""

    def receipts_of(item: object) -> Sequence[Receipt]:
        if isinstance(item, StagedPartitions):
            return item.receipts
        elements = elements_in(item, request.uuid)
        return [receipt for element in elements for receipt in receipts_of_files(store, request, element)]

    distinct: dict[tuple[str, str], Receipt] = {}
    for receipt in chain.from_iterable(map_in_threads(receipts_of, items)):
        # The same file twice is one partition; two files of one label contradict each other.
        if distinct.setdefault((receipt.label, receipt.table), receipt).key != receipt.key:
            raise InvalidInput(
                f"The labels {[receipt.label]} are duplicated. Nothing was committed to dataset {request.uuid!r}."
            )
    receipts = tuple(
        map_in_threads(lambda receipt: with_index_values(store, request, receipt), list(distinct.values()))
    )
    if request.base is None and not receipts:
        raise InvalidInput(
            f"Cannot store empty datasets: {request.uuid!r} does not exist, "
            "and there are no partitions to make it from."
        )
    by_label: dict[str, dict[str, pa.Schema]] = {}
    for receipt in receipts:
        by_label.setdefault(receipt.label, {})[receipt.table] = receipt.schema
    # Partition by partition: the tables of one partition must agree on shared columns.
    schemas = Schemas(request)
    for tables in by_label.values():
        schemas.add(tables)
    check_final(request, schemas.tables)
    return StagedWrite(request, receipts, schemas.tables, len(items))
