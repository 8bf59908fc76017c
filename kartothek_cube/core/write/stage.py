"""Staging: partitions are encoded and put under new keys, invisible until a commit names them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain, islice, pairwise
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.arrow.schema import ordered
from kartothek_cube.core.io.file_format import FileFormat
from kartothek_cube.core.io.parquet import ParquetFormat
from kartothek_cube.core.metadata.index import distinct_values
from kartothek_cube.core.metadata.naming import SINGLE_TABLE, data_key, new_id
from kartothek_cube.core.metadata.partition_values import partition_type
from kartothek_cube.core.runtime.executor import map_in_threads, thread_count
from kartothek_cube.core.runtime.progress import Phase
from kartothek_cube.core.runtime.telemetry import record
from kartothek_cube.core.stores.contract import Data, Store, VersionMismatch
from kartothek_cube.core.write.receipt import PartitionRows, Receipt, index_entries

# Characters of a user's label that a new key repeats: file systems allow 255 per path segment.
_READABLE = 200
# The statistics of a row group with fewer rows cost more than they save.
_LEAST_GROUP = 1_024
# Pieces of a stream whose distinct values are merged at once.
_PIECES = 32
# Handing a task to a thread takes as long as writing a small file. So a task gets several small
# files, up to these bounds, as long as each thread gets enough tasks.
_BUNDLE_FILES, _BUNDLE_BYTES, _LEAST_TASKS = 64, 4 * 2**20, 8

T = TypeVar("T")

__all__ = [
    "StageRequest",
    "Staging",
    "bounded_groups",
    "dataset_schema",
    "drain",
    "stage_part",
    "stage_parts",
    "stage_stream",
    "stage_together",
]


@dataclass(frozen=True, slots=True)
class StageRequest:
    """How the files of one dataset are staged; picklable, so that it can travel to an executor.

    A receipt lists the distinct values of ``index_columns``, and the first and last row of
    ``sort_columns``. ``fresh`` means that the labels are new and random. A label that the user
    chose names the partition, not the file: if its key is taken, the file gets another key.
    """

    uuid: str
    partition_on: tuple[str, ...]
    index_columns: tuple[str, ...]
    sort_columns: tuple[str, ...]
    serializer: FileFormat
    table: str = SINGLE_TABLE
    fresh: bool = True


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
    """`stage_parts` for several datasets in one run: no thread idles between two of them."""
    total = sum(len(staging.parts) for staging in stagings)
    # An upload to a remote store takes longer than the hand-over, so each file is a task.
    limit = 1 if store.is_remote else min(_BUNDLE_FILES, total // (_LEAST_TASKS * thread_count()))
    bundles = [_bundles(staging, limit) for staging in stagings]

    def stage(bundle: _Bundle) -> list[Receipt]:
        return _stage(store, bundle.request, bundle.parts, bundle.schema)

    tasks, phase = list(chain.from_iterable(bundles)), Phase("write", "files", total, len)
    staged = iter(list(map_in_threads(stage, tasks, store=store, weight=lambda bundle: bundle.nbytes, phase=phase)))
    return [list(chain.from_iterable(islice(staged, len(of_dataset)))) for of_dataset in bundles]


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


def dataset_schema(schema: pa.Schema, partition_on: Sequence[str]) -> pa.Schema:
    """The schema of a dataset, its partition columns widened: paths keep only text."""
    return pa.schema([pa.field(f.name, partition_type(f.type)) if f.name in partition_on else f for f in schema])


def stage_part(store: Store, request: StageRequest, part: PartitionRows, schema: pa.Schema) -> Receipt:
    """Write one file."""
    return _stage(store, request, [part], schema)[0]


def _stage(store: Store, request: StageRequest, parts: Sequence[PartitionRows], schema: pa.Schema) -> list[Receipt]:
    """Encode all files, then upload all: interleaved they take 50 % longer (CPU cache misses)."""
    ends = [_ends(part.table, request.sort_columns) for part in parts]
    entries = [index_entries(part, request.index_columns) for part in parts]
    files = [memoryview(request.serializer.encode(part.table)) for part in parts]
    # Before the first put: a store may answer long after it has written.
    begun = datetime.now(UTC)
    keys = [_put(store, request, part.label, data) for part, data in zip(parts, files, strict=True)]
    record(
        rows_written=sum(part.table.num_rows for part in parts),
        files_written=len(files),
        bytes_written=sum(data.nbytes for data in files),
    )
    uuid, table = request.uuid, request.table
    return [
        Receipt(uuid, p.label, key, p.values, p.table.num_rows, data.nbytes, schema, values, low, high, table, begun)
        for p, key, data, values, (low, high) in zip(parts, keys, files, entries, ends, strict=True)
    ]


def _put(store: Store, request: StageRequest, label: str, data: Data) -> str:
    """Put a file under the key of its label, or under a new key if a user's label is taken."""
    suffix = request.serializer.file_suffix
    key = data_key(request.uuid, request.table, label, suffix)
    if request.fresh:
        store.put(key, data)
        return key
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
    return tuple(key[0].as_py() for key in keys), tuple(key[-1].as_py() for key in keys)


def drain(items: list[T]) -> Iterator[T]:
    """The items in order; each is removed from the list, so that its rows can be freed."""
    items.reverse()
    while items:
        yield items.pop()


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
) -> Receipt:
    """Write one file of rows that arrive in pieces, in the order of arrival.

    Memory holds one row group, and up to ``limit`` bytes of the file. ``stored`` has the columns of
    the file, ``schema`` those of the dataset. The label must be new.
    """
    key = data_key(request.uuid, request.table, label, request.serializer.file_suffix)
    summary = _StreamSummary([c for c in request.index_columns if c in stored.names], request.sort_columns)
    # A store takes a file at once, so a large one waits on disk until it is complete.
    with tempfile.SpooledTemporaryFile(max_size=limit) as file:
        # Without partition columns, as in `stage_part`: low and high name columns of the file only.
        observed = summary.observe(piece.select(stored.names) for piece in pieces)
        rows = request.serializer.write_stream(observed, stored, file)
        size = file.tell()
        file.seek(0)
        begun = datetime.now(UTC)
        store.put_file(key, file)  # type: ignore[arg-type]
    record(rows_written=rows, files_written=1, bytes_written=size)
    low, high = summary.low, summary.high
    entries, table = summary.values(), request.table
    return Receipt(request.uuid, label, key, values, rows, size, schema, entries, low, high, table, begun)


def bounded_groups(serializer: FileFormat, rows: int, nbytes: int, limit: int) -> FileFormat:
    """The format with row groups of about ``limit`` bytes, for ``rows`` that take ``nbytes``.

    A row group size that the user chose stays.
    """
    if not isinstance(serializer, ParquetFormat) or serializer.chunk_size is not None or nbytes <= limit:
        return serializer
    return replace(serializer, chunk_size=max(_LEAST_GROUP, rows * limit // nbytes))


class _StreamSummary:
    """Facts for the receipt of a stream: distinct values of some columns, first and last row."""

    def __init__(self, indexed: Iterable[str], sort_columns: Sequence[str]) -> None:
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
            low, self.high = _ends(piece, self._sort_columns) if piece.num_rows else (self.low, self.high)
            self.low = self.low or low
            yield piece

    def values(self) -> dict[str, pa.Array]:
        """The distinct values of each column."""
        return {column: _merged(arrays) for column, arrays in self._arrays.items() if arrays}


def _merged(arrays: Sequence[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pc.unique(pa.chunked_array(arrays))
