"""Staging: encode parts and put them under fresh keys; nothing is visible until a commit names them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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

# Of a label that a user chose; a part of a key has at most 255 characters.
_READABLE = 200
# Fewer rows make no row group worth its statistics.
_LEAST_GROUP = 1_024
# Pieces whose distinct values are put together at a time.
_PIECES = 32
# What a task has at most where files are small, and how many tasks each thread gets at least:
# handing over a task takes as long as such a file.
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

    ``index_columns`` are the columns whose distinct values a receipt lists, ``sort_columns`` those
    by which the rows are sorted. ``fresh`` says that nobody else has the labels; a label that a
    user chose names the partition, not the key: where the key is taken, the file gets another one.
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
    """Write one file per part, in threads, and return their receipts in the same order."""
    return stage_together(store, [Staging(request, parts, schema)])[0]


class Staging(NamedTuple):
    """Parts of one dataset that are to be written, with the columns of the rows that they were cut from."""

    request: StageRequest
    parts: Sequence[PartitionRows]
    schema: pa.Schema


def stage_together(store: Store, stagings: Sequence[Staging]) -> list[list[Receipt]]:
    """What `stage_parts` does, for several datasets: no thread waits between one and the next."""
    total = sum(len(staging.parts) for staging in stagings)
    # What a remote store is sent waits for it, one file in each thread.
    most = 1 if store.is_remote else min(_BUNDLE_FILES, total // (_LEAST_TASKS * thread_count()))
    bundles = [_bundles(staging, most) for staging in stagings]
    tasks, phase = list(chain.from_iterable(bundles)), Phase("write", "files", total, len)
    staged = iter(
        list(
            map_in_threads(
                lambda bundle: _stage(store, bundle.request, bundle.parts, bundle.schema),
                tasks,
                store=store,
                weight=lambda bundle: bundle.nbytes,
                phase=phase,
            )
        )
    )
    return [list(chain.from_iterable(islice(staged, len(own)))) for own in bundles]


class _Bundle(NamedTuple):
    """Parts that one task stages, and their bytes; the schema is that of the dataset."""

    request: StageRequest
    parts: Sequence[PartitionRows]
    schema: pa.Schema
    nbytes: int


def _bundles(staging: Staging, most: int) -> list[_Bundle]:
    """Neighbouring parts, as long as they are no more than ``most`` and small together."""
    request, parts, schema = staging
    full, sizes = (
        ordered(dataset_schema(schema, request.partition_on), request.partition_on),
        [part.table.nbytes for part in parts],
    )
    starts, size = [0], 0
    for i, nbytes in enumerate(sizes):
        if i > starts[-1] and (i - starts[-1] >= most or size + nbytes > _BUNDLE_BYTES):
            starts.append(i)
            size = 0
        size += nbytes
    return [_Bundle(request, parts[a:b], full, sum(sizes[a:b])) for a, b in pairwise([*starts, len(parts)]) if a < b]


def dataset_schema(schema: pa.Schema, partition_on: Sequence[str]) -> pa.Schema:
    """The schema of a dataset that is partitioned so: partition values come back as wide as their text may be."""
    return pa.schema([pa.field(f.name, partition_type(f.type)) if f.name in partition_on else f for f in schema])


def stage_part(store: Store, request: StageRequest, part: PartitionRows, schema: pa.Schema) -> Receipt:
    """Write one file."""
    return _stage(store, request, [part], schema)[0]


def _stage(store: Store, request: StageRequest, parts: Sequence[PartitionRows], schema: pa.Schema) -> list[Receipt]:
    """Encode all files, then upload all: interleaving the steps is 50 % slower (CPU cache misses)."""
    ends = [_ends(part.table, request.sort_columns) for part in parts]
    entries = [index_entries(part, request.index_columns) for part in parts]
    files = [memoryview(request.serializer.encode(part.table)) for part in parts]
    keys = [_put(store, request, part.label, data) for part, data in zip(parts, files, strict=True)]
    record(
        rows_written=sum(part.table.num_rows for part in parts),
        files_written=len(files),
        bytes_written=sum(data.nbytes for data in files),
    )
    return [
        Receipt(
            request.uuid,
            part.label,
            key,
            part.values,
            part.table.num_rows,
            data.nbytes,
            schema,
            found,
            *lowest_and_highest,
            request.table,
        )
        for part, key, data, found, lowest_and_highest in zip(parts, keys, files, entries, ends, strict=True)
    ]


def _put(store: Store, request: StageRequest, label: str, data: Data) -> str:
    suffix = request.serializer.file_suffix
    key = data_key(request.uuid, request.table, label, suffix)
    if request.fresh:
        store.put(key, data)
        return key
    try:
        _put_new(store, key, data)
    except VersionMismatch:
        folder, slash, name = label.rpartition("/")
        key = data_key(request.uuid, request.table, f"{folder}{slash}{name[:_READABLE]}-{new_id()}", suffix)
        store.put(key, data)
    return key


def _put_new(store: Store, key: str, data: Data) -> None:
    if store.capabilities.conditional_put:
        store.put_if(key, data, None)
    elif store.contains(key):
        raise store.mismatch(key, None)
    else:
        store.put(key, data)


def _ends(table: pa.Table, columns: Sequence[str]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    inside = [c for c in columns if c in table.column_names]
    if not inside or not table.num_rows:
        return (), ()
    keys = [table.column(name) for name in inside]
    return tuple(key[0].as_py() for key in keys), tuple(key[-1].as_py() for key in keys)


def drain(items: list[T]) -> Iterator[T]:
    """The items in their order; the list lets go of each, so that rows are freed once they are stored."""
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
    most: int,
) -> Receipt:
    """Write one file of rows that come in pieces, in the order in which they come; memory holds one row group and the file as far as ``most`` bytes.

    ``stored`` are the columns of the file, ``schema`` those of the dataset. The label has to be a
    fresh one.
    """
    key = data_key(request.uuid, request.table, label, request.serializer.file_suffix)
    noted = _Noted([c for c in request.index_columns if c in stored.names], request.sort_columns)
    with tempfile.SpooledTemporaryFile(max_size=most) as file:
        # Ends are those of the columns in the file, as in `stage_part`.
        rows = request.serializer.write_stream(noted.seen(piece.select(stored.names) for piece in pieces), stored, file)
        size = file.tell()
        file.seek(0)
        store.put_file(key, file)  # type: ignore[arg-type]
    record(rows_written=rows, files_written=1, bytes_written=size)
    return Receipt(
        request.uuid, label, key, values, rows, size, schema, noted.values(), noted.low, noted.high, request.table
    )


def bounded_groups(serializer: FileFormat, rows: int, nbytes: int, most: int) -> FileFormat:
    """The format with row groups of at most about ``most`` bytes, where so many rows take ``nbytes``, unless it says itself how large they are."""
    if not isinstance(serializer, ParquetFormat) or serializer.chunk_size is not None or nbytes <= most:
        return serializer
    return replace(serializer, chunk_size=max(_LEAST_GROUP, rows * most // nbytes))


class _Noted:
    """What a receipt says about rows that come in pieces: distinct values of some columns, the first and the last row."""

    def __init__(self, indexed: Iterable[str], sort_columns: Sequence[str]) -> None:
        self._found: dict[str, list[pa.Array]] = {column: [] for column in indexed}
        self._sort_columns = sort_columns
        self.low: tuple[Any, ...] = ()
        self.high: tuple[Any, ...] = ()

    def seen(self, pieces: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """The pieces, which are noted when they pass."""
        for piece in pieces:
            for column, arrays in self._found.items():
                arrays.append(distinct_values(piece.column(column)))
                if len(arrays) >= _PIECES:
                    arrays[:] = [_together(arrays)]
            low, self.high = _ends(piece, self._sort_columns) if piece.num_rows else (self.low, self.high)
            self.low = self.low or low
            yield piece

    def values(self) -> dict[str, pa.Array]:
        """Column → its values, each once."""
        return {column: _together(arrays) for column, arrays in self._found.items() if arrays}


def _together(arrays: Sequence[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pc.unique(pa.chunked_array(arrays))
