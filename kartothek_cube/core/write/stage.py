"""Staging: rows are encoded and put under new keys, invisible until a commit names them.

In order:

- the receipt of a staged file
- staging
- files that are in the store already (Iceberg: ``add_files``), from key and footer
- all rows of a write
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain, count, islice, pairwise
from typing import Any, Generic, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from kartothek_cube.core.arrow.bounds import joined_bounds, measure_bounds
from kartothek_cube.core.arrow.types import ordered, stored_schema
from kartothek_cube.core.io.formats import FileFormat, ParquetFormat
from kartothek_cube.core.io.parquet import open_file
from kartothek_cube.core.metadata.document import dataset_schema, partition_table
from kartothek_cube.core.metadata.index import distinct_values
from kartothek_cube.core.metadata.naming import SINGLE_TABLE, data_key, new_id
from kartothek_cube.core.metadata.statistics import StatisticsOfFile, make_statistics
from kartothek_cube.core.runtime.executor import map_in_threads, thread_count
from kartothek_cube.core.runtime.options import Phase
from kartothek_cube.core.runtime.telemetry import record
from kartothek_cube.core.snapshots.loader import file_entries
from kartothek_cube.core.stores.contract import Data, Store, VersionMismatch, check_store_can_commit
from kartothek_cube.core.stores.uploads import uploading
from kartothek_cube.core.write.input_rows import InputPartition, as_items, elements_in, is_lazy, repeated
from kartothek_cube.core.write.layout import StageRequest
from kartothek_cube.core.write.prepare import (
    PartitionRows,
    PreparedRows,
    Schemas,
    WriteRequest,
    check_final,
    check_table_name,
)
from kartothek_cube.errors import InvalidInput, KeyNotFound

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a commit needs to know of a staged file (Delta: ``AddFile``; Iceberg: ``DataFile``).

    ``schema`` includes the partition columns. ``entries`` has the distinct values of each indexed
    column. ``low`` and ``high`` are the sort columns of the first and the last row. ``staged`` is
    a time (UTC) right before the file was written: the file is not older. ``statistics`` are those
    of the rows, if they were asked for. Receipts of one label with different tables make one
    partition.
    """

    dataset: str
    label: str
    key: str
    values: Mapping[str, Any]
    rows: int
    size: int
    schema: pa.Schema
    entries: Mapping[str, pa.Array]
    low: tuple[Any, ...] = ()
    high: tuple[Any, ...] = ()
    table: str = SINGLE_TABLE
    staged: datetime = field(default_factory=lambda: datetime.now(UTC))
    statistics: StatisticsOfFile | None = None

    def __setstate__(self, state: Sequence[Any]) -> None:
        # A receipt that an older version pickled has no statistics. If it has no time, either, the
        # file may be of any age.
        newer = (_LONG_AGO, None)[len(state) - len(self.__slots__) :] if len(state) < len(self.__slots__) else ()
        for name, value in zip(self.__slots__, (*state, *newer), strict=True):
            object.__setattr__(self, name, value)


def index_entries(rows: PartitionRows, columns: Sequence[str]) -> dict[str, pa.Array]:
    """The distinct values that the rows have in each indexed column."""
    return {c: distinct_values(rows.table.column(c)) for c in columns if c in rows.table.column_names}


# --- staging --------------------------------------------------------------------------------------


# Characters of a user's label that a new key repeats: file systems allow 255 per path segment.
_READABLE = 200
# The statistics of a row group with fewer rows cost more than they save.
_LEAST_GROUP = 1_024
# Files that do not fit in memory are mostly sorted. Of these, small row groups are found faster.
_MOST_GROUP = 131_072
# Pieces of a stream whose distinct values are merged at once.
_PIECES = 32
# Handing a task to a thread takes as long as writing a small file. So a task gets several small
# files, up to these bounds, as long as each thread gets enough tasks.
_BUNDLE_FILES, _BUNDLE_BYTES, _LEAST_TASKS = 64, 4 * 2**20, 2

# So many rows, from the middle, tell how many bytes a row takes in a file.
_SAMPLE = 131_072

T = TypeVar("T")


def stage_parts(
    store: Store, request: StageRequest, parts: Sequence[PartitionRows], schema: pa.Schema
) -> list[Receipt]:
    """Write one file per partition, in threads, and return their receipts in the same order."""
    return stage_together(store, [Staging(request, parts, schema)])[0]


class Staging(NamedTuple):
    """Partitions of one dataset to write; ``schema`` includes the partition columns."""

    request: StageRequest
    parts: Sequence[PartitionRows]
    schema: pa.Schema


def stage_together(store: Store, stagings: Sequence[Staging]) -> list[list[Receipt]]:
    """`stage_parts` for several datasets in one run: no thread idles between two of them.

    Inside of `uploading`, new files may still be on their way: `Store.flush` waits for them.
    """
    stagings = [
        s._replace(parts=list(chain.from_iterable(_cut(s.request, part) for part in s.parts))) for s in stagings
    ]
    total = sum(len(staging.parts) for staging in stagings)
    # Whether a user's label is taken is asked before the next file, so each file is a task.
    asks = store.is_remote and not all(staging.request.fresh for staging in stagings)
    limit = 1 if asks else min(_BUNDLE_FILES, total // (_LEAST_TASKS * thread_count()))
    bundles = [_bundles(staging, limit) for staging in stagings]

    tasks, phase = list(chain.from_iterable(bundles)), Phase("write", "files", total, len)
    with uploading(store) as opened:

        def stage(bundle: _Bundle) -> list[Receipt]:
            return _stage(opened, bundle.request, bundle.parts, bundle.schema)

        waits_for = store if asks else None
        staged = iter(list(map_in_threads(stage, tasks, store=waits_for, weight=lambda b: b.nbytes, phase=phase)))
    return [list(chain.from_iterable(islice(staged, len(of_dataset)))) for of_dataset in bundles]


def _cut(request: StageRequest, part: PartitionRows) -> Iterator[PartitionRows]:
    """The rows in parts whose files have about the target size, each with a label of its own."""
    rows, target = part.table.num_rows, request.target_file_bytes
    if target is None or part.table.nbytes <= target:
        yield part
        return
    some = min(rows, _SAMPLE, max(_LEAST_GROUP, rows * target // part.table.nbytes))
    sample = part.table.slice((rows - some) // 2, some)
    count = min(rows, -(-memoryview(request.serializer.encode(sample)).nbytes * rows // (some * target)))
    for number in range(count):
        begin, end = (n * rows // count for n in (number, number + 1))
        label = f"{part.label}-{number}" if number else part.label
        yield PartitionRows(part.values, label, part.table.slice(begin, end - begin))


class _Bundle(NamedTuple):
    """The partitions that one task stages; ``schema`` is that of the dataset."""

    request: StageRequest
    parts: Sequence[PartitionRows]
    schema: pa.Schema
    nbytes: int


def _bundles(staging: Staging, limit: int) -> list[_Bundle]:
    """Runs of at most ``limit`` partitions that are small together."""
    request, parts, schema = staging
    full = ordered(dataset_schema(schema, request.partition_on), request.partition_on)
    sizes = [part.table.nbytes for part in parts]
    starts, size = [0], 0
    for i, nbytes in enumerate(sizes):
        if i > starts[-1] and (i - starts[-1] >= limit or size + nbytes > _BUNDLE_BYTES):
            starts.append(i)
            size = 0
        size += nbytes
    return [_Bundle(request, parts[a:b], full, sum(sizes[a:b])) for a, b in pairwise([*starts, len(parts)]) if a < b]


def stage_part(store: Store, request: StageRequest, part: PartitionRows, schema: pa.Schema) -> Receipt:
    """Write one file."""
    return _stage(store, request, [part], schema)[0]


def _stage(store: Store, request: StageRequest, parts: Sequence[PartitionRows], schema: pa.Schema) -> list[Receipt]:
    """Encode all files, then upload all: interleaved they take 50 % longer (CPU cache misses)."""
    ends = [_ends(part.table, request.sort_columns) for part in parts]
    entries = [index_entries(part, request.index_columns) for part in parts]
    measured = measure_bounds([part.table for part in parts], request.statistics, request.sort_columns)
    files = [memoryview(request.serializer.encode(part.table)) for part in parts]
    # Before the first put: a store may answer long after it has written.
    begun = datetime.now(UTC)
    keys = _put(store, request, [part.label for part in parts], files)
    record(
        rows_written=sum(part.table.num_rows for part in parts),
        files_written=len(files),
        bytes_written=sum(data.nbytes for data in files),
    )
    uuid, table, sizes = request.uuid, request.table, [data.nbytes for data in files]
    statistics = _statistics(request, measured, keys, sizes)
    columns = zip(parts, keys, sizes, entries, ends, statistics, strict=True)
    return [
        Receipt(uuid, p.label, key, p.values, p.table.num_rows, size, schema, values, low, high, table, begun, facts)
        for p, key, size, values, (low, high), facts in columns
    ]


def _statistics(
    request: StageRequest, measured: pa.Table, keys: Sequence[str], sizes: Sequence[int]
) -> list[StatisticsOfFile | None]:
    """The statistics of each file, from the bounds of its rows."""
    # kartothek overwrites a file whose label the user gives again.
    if request.statistics is False or not request.fresh:
        return [None] * len(keys)
    source = make_statistics(measured, request.uuid, keys, sizes)
    return [StatisticsOfFile(source, row) for row in range(len(keys))]


def _put(store: Store, request: StageRequest, labels: Sequence[str], files: Sequence[Data]) -> list[str]:
    """Put files under the keys of their labels, or under new keys if a user's label is taken."""
    if not request.fresh:
        return [_put_under_label(store, request, label, data) for label, data in zip(labels, files, strict=True)]
    keys = [data_key(request.uuid, request.table, label, request.serializer.file_suffix) for label in labels]
    store.put_many(list(zip(keys, files, strict=True)))
    return keys


def _put_under_label(store: Store, request: StageRequest, label: str, data: Data) -> str:
    suffix = request.serializer.file_suffix
    key = data_key(request.uuid, request.table, label, suffix)
    if store.capabilities.conditional_put:
        try:
            store.put_if(key, data, None)
        except VersionMismatch:
            pass
        else:
            return key
    elif not store.contains(key):
        store.put(key, data)
        return key
    # Files are never overwritten: states of the past name the one that is there.
    folder, slash, name = label.rpartition("/")
    key = data_key(request.uuid, request.table, f"{folder}{slash}{name[:_READABLE]}-{new_id()}", suffix)
    store.put(key, data)
    return key


def _ends(table: pa.Table, columns: Sequence[str]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The first and the last row of the columns that the table has."""
    keys = [table.column(name) for name in columns if name in table.column_names]
    if not keys or not table.num_rows:
        return (), ()
    return tuple(_ordered(key[0]) for key in keys), tuple(_ordered(key[-1]) for key in keys)


def _ordered(scalar: pa.Scalar) -> Any:
    """A value in Python that is ordered as the scalar: datetime ends with the year 9999."""
    return scalar.value if pa.types.is_temporal(scalar.type) else scalar.as_py()


class Drained(Generic[T]):
    """The items in order; each is removed from the list, so that its rows can be freed."""

    def __init__(self, items: list[T]) -> None:
        self._items = items

    def __len__(self) -> int:
        # Tells `map_in_threads` that one item needs no threads.
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        self._items.reverse()
        while self._items:
            yield self._items.pop()


# --- a file of any size ---------------------------------------------------------------------------


def stage_stream(
    store: Store,
    request: StageRequest,
    label: str,
    values: Mapping[str, Any],
    pieces: Iterable[pa.Table],
    stored: pa.Schema,
    schema: pa.Schema,
    limit: int,
) -> list[Receipt]:
    """Write rows that arrive in pieces, in the order of arrival, to one file or to several.

    Memory holds one row group, and up to ``limit`` bytes of the file. ``stored`` has the columns of
    the file, ``schema`` those of the dataset. The label must be new. A file ends with the row group
    with which it reaches the target size of the request.
    """
    if request.target_file_bytes is None:
        return [_stage_file(store, request, label, values, pieces, stored, schema, limit)]
    size = request.serializer.chunk_size if isinstance(request.serializer, ParquetFormat) else None
    rows, receipts = _Rest(pieces, size or _MOST_GROUP), list[Receipt]()
    while rows.is_left() or not receipts:
        name = f"{label}-{len(receipts)}" if receipts else label
        receipts.append(_stage_file(store, request, name, values, rows, stored, schema, limit))
    return receipts


class _Rest:
    """Rows in pieces of ``size`` rows at most, to be taken file by file."""

    def __init__(self, pieces: Iterable[pa.Table], size: int) -> None:
        cut = (piece.slice(i, size) for piece in pieces for i in range(0, piece.num_rows, size))
        self._pieces, self._next = cut, next(cut, None)

    def is_left(self) -> bool:
        return self._next is not None

    def until(self, is_full: Callable[[], bool]) -> Iterator[pa.Table]:
        while self._next is not None and not is_full():
            piece, self._next = self._next, next(self._pieces, None)
            yield piece


def _stage_file(
    store: Store,
    request: StageRequest,
    label: str,
    values: Mapping[str, Any],
    pieces: Iterable[pa.Table] | _Rest,
    stored: pa.Schema,
    schema: pa.Schema,
    limit: int,
) -> Receipt:
    key = data_key(request.uuid, request.table, label, request.serializer.file_suffix)
    indexed = [c for c in request.index_columns if c in stored.names]
    summary = _StreamSummary(indexed, request.sort_columns, request.statistics)
    # A store takes a file at once, so a large one waits on disk until it is complete.
    with tempfile.SpooledTemporaryFile(max_size=limit) as file:
        # Without partition columns, as in `stage_part`: low and high name columns of the file only.
        target = request.target_file_bytes or 0
        taken = pieces.until(lambda: file.tell() >= target) if isinstance(pieces, _Rest) else pieces
        observed = summary.observe(piece.select(stored.names) for piece in taken)
        rows = request.serializer.write_stream(observed, stored, file)
        size = file.tell()
        file.seek(0)
        begun = datetime.now(UTC)
        store.put_file(key, file)  # type: ignore[arg-type]
    record(rows_written=rows, files_written=1, bytes_written=size)
    low, high = summary.low, summary.high
    entries, table = summary.values(), request.table
    (facts,) = _statistics(request, summary.bounds(stored), [key], [size])
    return Receipt(request.uuid, label, key, values, rows, size, schema, entries, low, high, table, begun, facts)


def bounded_groups(serializer: FileFormat, rows: int, nbytes: int, limit: int) -> FileFormat:
    """The format with row groups of at most ``limit`` bytes, for ``rows`` that take ``nbytes``.

    A row group size that the user chose stays.
    """
    if not isinstance(serializer, ParquetFormat) or serializer.chunk_size is not None or nbytes <= limit:
        return serializer
    return replace(serializer, chunk_size=max(_LEAST_GROUP, min(_MOST_GROUP, rows * limit // nbytes)))


class _StreamSummary:
    """Facts for the receipt of a stream: distinct values, first and last row, bounds of columns."""

    def __init__(self, indexed: Iterable[str], sort_columns: Sequence[str], statistics: bool | Sequence[str]) -> None:
        self._statistics = statistics
        self._bounds: list[pa.Table] = []
        self._arrays: dict[str, list[pa.Array]] = {column: [] for column in indexed}
        self._sort_columns = sort_columns
        self.low: tuple[Any, ...] = ()
        self.high: tuple[Any, ...] = ()

    def observe(self, pieces: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """The same pieces; each is observed as it passes."""
        for piece in pieces:
            for column, arrays in self._arrays.items():
                arrays.append(distinct_values(piece.column(column)))
                # Merged now and then: memory holds the distinct values, not one array per piece.
                if len(arrays) >= _PIECES:
                    arrays[:] = [_merged(arrays)]
            self._bounds.append(measure_bounds([piece], self._statistics, self._sort_columns))
            if len(self._bounds) >= _PIECES:
                self._bounds[:] = [joined_bounds(self._bounds)]
            low, self.high = _ends(piece, self._sort_columns) if piece.num_rows else (self.low, self.high)
            self.low = self.low or low
            yield piece

    def bounds(self, schema: pa.Schema) -> pa.Table:
        """The bounds of the columns, as of `measure_bounds`."""
        return joined_bounds(self._bounds or [measure_bounds([schema.empty_table()], self._statistics)])

    def values(self) -> dict[str, pa.Array]:
        """The distinct values of each column."""
        return {column: _merged(arrays) for column, arrays in self._arrays.items() if arrays}


def _merged(arrays: Sequence[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pc.unique(pa.chunked_array(arrays))


# --- files that are in the store already ----------------------------------------------------------


def receipts_of_files(store: Store, request: WriteRequest, element: InputPartition) -> list[Receipt]:
    """The receipts of the files that an element names by its label, one per table.

    Raises
    ------
    KeyNotFound
        If there is no such file.
    InvalidInput
        If the label does not have the partition values of the dataset.
    """
    if element.fresh:
        raise InvalidInput(
            f"Trying to commit partitions without files: rows for dataset {request.uuid!r} have no label "
            "that says which file has them. "
            "Write them with write_single_partition, or give {'label': ..., 'data': {table: None}}."
        )
    label, receipts = element.label, []
    for table, rows in element.tables.items():
        check_table_name(table, request.uuid)
        key = data_key(request.uuid, table, label)
        try:
            with open_file(store, key, request.uuid) as source:
                # pandas stores row labels in such columns; datasets have none.
                columns = pa.schema([f for f in source.schema if not f.name.startswith("__index_level_")])
                file_schema, num_rows = stored_schema(columns, f" of the file {key!r}"), source.metadata.num_rows
        except KeyNotFound:
            raise KeyNotFound(
                f"Dataset {request.uuid!r}: the partition {label!r} should have the file {key!r}, "
                f"which is not in the store {store.name}."
            ) from None
        schema = _dataset_schema_of_file(request, table, key, file_schema, rows)
        values: Mapping[str, Any] = {}
        if request.partition_on:
            values = partition_table(pa.array([key]), request.partition_on, schema, request.uuid).to_pylist()[0]
        size = store.tail(key, 0)[1]
        receipts.append(Receipt(request.uuid, label, key, values, num_rows, size, schema, {}, table=table))
    return receipts


def _dataset_schema_of_file(
    request: WriteRequest, table: str, key: str, file_schema: pa.Schema, rows: pa.Table | None
) -> pa.Schema:
    """Types of partition columns are those of the dataset, else of the rows; others of the file."""
    stored = request.start.schemas.get(table) if request.start is not None else None
    typed = stored if stored is not None else rows.schema if rows is not None else pa.schema([])
    missing = [c for c in request.partition_on if c not in typed.names]
    if missing:
        raise InvalidInput(
            f"Dataset {request.uuid!r}: the types of the partition columns {missing} of {key!r} are unknown. "
            "Give its rows in the element's 'data'."
        )
    payload = [f for f in file_schema if f.name not in request.partition_on]
    fields = [*(typed.field(c) for c in request.partition_on), *payload]
    return ordered(dataset_schema(pa.schema(fields), request.partition_on), request.partition_on)


def with_index_values(store: Store, request: WriteRequest, receipt: Receipt) -> Receipt:
    """The receipt with values for every index of the dataset; missing ones come from the file."""
    if not receipt.key.startswith(f"{request.uuid}/"):
        raise InvalidInput(
            f"The file {receipt.key!r} belongs to dataset {receipt.dataset!r} "
            f"and cannot be a partition of {request.uuid!r}: "
            "deleting or cleaning up one dataset would damage the other. "
            "Write the rows to this dataset, or use copy_dataset."
        )
    if tuple(receipt.values) != request.partition_on:
        raise InvalidInput(
            f"The file {receipt.key!r} has the partition columns {list(receipt.values)} in its path, "
            f"but dataset {request.uuid!r} is partitioned on {list(request.partition_on)}: "
            "it was replaced since the file was written. Write the rows again."
        )
    missing = [c for c in request.index_columns if c not in receipt.entries and c in receipt.schema.names]
    if not missing:
        return receipt
    read = file_entries(store, request.uuid, receipt.schema, receipt.key, missing)
    return replace(receipt, entries={**receipt.entries, **read})


# --- all rows of a write --------------------------------------------------------------------------


class StagedWrite(Struct, frozen=True):
    """Staged rows of one write.

    Attributes
    ----------
    request : WriteRequest
        The request, completed from the data.
    receipts : tuple of Receipt
        The staged files.
    schemas : Mapping[str, pyarrow.Schema]
        The schema of each table.
    items : int
        The number of items that the data had.
    """

    request: WriteRequest
    receipts: tuple[Receipt, ...]
    schemas: Mapping[str, pa.Schema]
    items: int


def stage_data(store: Store, request: WriteRequest, data: Any) -> StagedWrite:
    """Check and stage all rows.

    Rows in memory are checked before the first file is written, those of a stream as they come.
    """
    check_store_can_commit(store)
    items, numbers = as_items(data), count()
    schemas = Schemas(request)
    partitions = chain.from_iterable(elements_in(item, request.uuid) for item, _ in zip(items, numbers, strict=False))
    prepared: Iterable[PreparedRows] = schemas.prepared(partitions)
    if not is_lazy(items):
        checked = list(prepared)
        if twice := repeated(label for rows in checked if not rows.fresh for label in rows.labels):
            raise InvalidInput(f"The labels {twice} are duplicated. Nothing was written to dataset {request.uuid!r}.")
        check_final(schemas.request, schemas.tables)
        prepared = Drained(checked)
    phase = Phase("write", "partitions")
    with uploading(store) as opened:
        # `schemas.request` changes: an element of a stream may bring another index.
        staged = map_in_threads(
            lambda rows: stage_prepared(opened, schemas.request, rows),
            prepared,
            weight=lambda rows: rows.nbytes,
            phase=phase,
        )
        receipts = tuple(chain.from_iterable(staged))
    check_final(schemas.request, schemas.tables)
    if schemas.request != request:
        # Files of a stream may have been staged before an element brought another index.
        complete = partial(with_index_values, store, schemas.request)
        receipts = tuple(map_in_threads(complete, receipts, store=store))
    return StagedWrite(schemas.request, receipts, schemas.tables, next(numbers))


def stage_prepared(store: Store, request: WriteRequest, rows: PreparedRows) -> list[Receipt]:
    """Write the files of one input partition."""
    receipts = []
    for table, parts in rows.parts.items():
        # All tables of a partition have its label, so that they cannot be cut at different rows.
        staging = request.stage_request(table, rows.fresh, may_cut=len(rows.parts) == 1)
        receipts += stage_parts(store, staging, parts, rows.schemas[table])
    return receipts
