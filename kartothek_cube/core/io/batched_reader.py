"""Many files of one dataset, read into one table within a limit of memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from kartothek_cube.core.io._fast.small_files import SmallFileReader
from kartothek_cube.core.io.reader import FileRequest, read_rows
from kartothek_cube.core.runtime.fast_paths import uses_fast_paths
from kartothek_cube.core.stores.contract import Store

__all__ = ["TooLarge", "read_together"]

# All bytes of a batch are in memory at a time.
_BATCH_FILES = 64


class TooLarge(Exception):
    """The files are larger than estimated; only the caller of `read_together` sees this."""


def read_together(
    store: Store, files: Sequence[tuple[str, Mapping[str, Any]]], request: FileRequest, room: int
) -> tuple[pa.Table, list[int]]:
    """What `read_rows` returns for each file, in one table; and the number of rows of each file.

    Raises
    ------
    TooLarge
        As soon as the rows take more than ``room`` bytes.
    KartothekCubeError
        As `read_rows`.
    """
    schema = pa.schema([(name, request.schema.field(name).type) for name in request.columns])
    tables = []
    for table in _tables(store, files, request, schema):
        tables.append(table)
        room -= table.get_total_buffer_size()  # many times faster than `nbytes`
        if room < 0:
            raise TooLarge
    table = pa.concat_tables(tables) if tables else schema.empty_table()
    is_exact = table.schema.equals(schema, check_metadata=True)
    return table if is_exact else pa.table(table.columns, schema=schema), [len(rows) for rows in tables]


def _tables(
    store: Store, files: Sequence[tuple[str, Mapping[str, Any]]], request: FileRequest, schema: pa.Schema
) -> Iterator[pa.Table]:
    """The rows of one file after the other."""
    if not uses_fast_paths():
        for key, constants in files:
            yield read_rows(store, key, request, constants)
        return
    reader = SmallFileReader(store, schema, has_predicates=request.predicates is not None)
    for begin in range(0, len(files), _BATCH_FILES):
        batch = files[begin : begin + _BATCH_FILES]
        for (key, constants), table in zip(batch, reader.read(batch), strict=True):
            yield read_rows(store, key, request, constants) if table is None else table
