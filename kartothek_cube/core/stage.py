"""Staging: encode parts and put them under fresh keys; nothing is visible until a commit names them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.change import Part, Receipt, distinct_values, index_entries
from kartothek_cube.core.formats import FileFormat
from kartothek_cube.core.metadata.partition_values import partition_type
from kartothek_cube.core.naming import SINGLE_TABLE, data_key, fresh_id
from kartothek_cube.core.parallel import run
from kartothek_cube.core.parquet import ParquetFormat
from kartothek_cube.core.schema import ordered
from kartothek_cube.core.store import Store, VersionMismatch

# Of a label that a user chose; a part of a key has at most 255 characters.
_READABLE = 200
# Fewer rows make no row group worth its statistics.
_LEAST_GROUP = 1_024
# Pieces whose distinct values are put together at a time.
_PIECES = 32

__all__ = ["StageRequest", "bounded_groups", "dataset_schema", "stage_part", "stage_parts", "stage_stream"]


@dataclass(frozen=True, slots=True)
class StageRequest:
    """How the files of one dataset are staged; picklable, so that it can travel to an executor.

    ``index_columns`` are the columns whose distinct values a receipt lists, ``sort_columns`` those by which the rows
    are sorted. ``fresh`` says that nobody else has the labels; a label that a user chose names the partition, not the key:
    where the key is taken, the file gets another one.
    """

    uuid: str
    partition_on: tuple[str, ...]
    index_columns: tuple[str, ...]
    sort_columns: tuple[str, ...]
    serializer: FileFormat
    table: str = SINGLE_TABLE
    fresh: bool = True


def stage_parts(store: Store, request: StageRequest, parts: Sequence[Part], schema: pa.Schema) -> list[Receipt]:
    """Write one file per part, in threads, and return their receipts in the same order."""
    full = ordered(dataset_schema(schema, request.partition_on), request.partition_on)
    return list(run(lambda part: stage_part(store, request, part, full), parts, weight=lambda part: part.table.nbytes))


def dataset_schema(schema: pa.Schema, partition_on: Sequence[str]) -> pa.Schema:
    """The schema of a dataset that is partitioned so: partition values come back as wide as their text may be."""
    return pa.schema([pa.field(f.name, partition_type(f.type)) if f.name in partition_on else f for f in schema])


def stage_part(store: Store, request: StageRequest, part: Part, schema: pa.Schema) -> Receipt:
    """Write one file."""
    low, high = _ends(part.table, request.sort_columns)
    entries = index_entries(part, request.index_columns)
    data = request.serializer.encode(part.table)
    key = _put(store, request, part.label, memoryview(data))
    return Receipt(request.uuid, part.label, key, part.values, part.table.num_rows, data.size, schema, entries, low, high, request.table)


def _put(store: Store, request: StageRequest, label: str, data: Any) -> str:
    suffix = request.serializer.file_suffix
    key = data_key(request.uuid, request.table, label, suffix)
    if request.fresh:
        store.put(key, data)
        return key
    try:
        _put_new(store, key, data)
    except VersionMismatch:
        folder, slash, name = label.rpartition("/")
        key = data_key(request.uuid, request.table, f"{folder}{slash}{name[:_READABLE]}-{fresh_id()}", suffix)
        store.put(key, data)
    return key


def _put_new(store: Store, key: str, data: Any) -> None:
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
    rows = table.select(inside)
    return tuple(rows.slice(0, 1).to_pylist()[0].values()), tuple(rows.slice(table.num_rows - 1, 1).to_pylist()[0].values())


# --- a file of any size -----------------------------------------------------------------------------------------------


def stage_stream(
    store: Store, request: StageRequest, label: str, values: Mapping[str, Any], pieces: Iterable[pa.Table], stored: pa.Schema, schema: pa.Schema, most: int
) -> Receipt:
    """Write one file of rows that come in pieces, in the order in which they come; memory holds one row group and the file as far as ``most`` bytes.

    ``stored`` are the columns of the file, ``schema`` those of the dataset. The label has to be a fresh one.
    """
    key = data_key(request.uuid, request.table, label, request.serializer.file_suffix)
    noted = _Noted([c for c in request.index_columns if c in stored.names], request.sort_columns)
    with tempfile.SpooledTemporaryFile(max_size=most) as file:
        # Ends are those of the columns in the file, as in `stage_part`.
        rows = request.serializer.write_stream(noted.seen(piece.select(stored.names) for piece in pieces), stored, file)
        size = file.tell()
        file.seek(0)
        store.put_file(key, file)  # type: ignore[arg-type]
    return Receipt(request.uuid, label, key, values, rows, size, schema, noted.values(), noted.low, noted.high, request.table)


def bounded_groups(serializer: FileFormat, rows: int, nbytes: int, most: int) -> FileFormat:
    """The format with row groups of at most about ``most`` bytes, where so many rows take ``nbytes``, unless it says itself how large they are."""
    if not isinstance(serializer, ParquetFormat) or serializer.chunk_size is not None or nbytes <= most:
        return serializer
    return ParquetFormat(serializer.compression, max(_LEAST_GROUP, rows * most // nbytes))


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
