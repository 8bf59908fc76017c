"""Secondary indices built from the data files of a snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.io.reader import FileRequest, read_rows
from kartothek_cube.core.metadata.index import SecondaryIndex, build_index, distinct_values, index_type
from kartothek_cube.core.metadata.snapshot import Snapshot, type_of_column
from kartothek_cube.core.runtime.executor import THREADS, Executor, map_files
from kartothek_cube.core.runtime.options import Phase
from kartothek_cube.core.stores.contract import Store

__all__ = ["Entries", "built_indices", "file_entries"]

Entries: TypeAlias = dict[tuple[str, tuple[str, ...]], dict[str, pa.Array]]
"""Distinct values by column, for each file (its key) and the columns that were read of it."""


def built_indices(
    store: Store, base: Snapshot, columns: Sequence[str], cached: Entries | None = None, executor: Executor = THREADS
) -> dict[str, SecondaryIndex]:
    """Whole indices on columns of a snapshot, built from its files.

    Files in ``cached`` are not read again; those that are read are added to it.
    """
    cached = {} if cached is None else cached
    tables = {table: tuple(c for c in columns if c in schema.names) for table, schema in base.schemas.items()}
    labels = base.partitions.labels.to_pylist()
    files = [
        (label, table, key)
        for table in tables
        if tables[table]
        for label, key in zip(labels, base.partitions.file_column(table).to_pylist(), strict=True)
        if key is not None
    ]
    new = [(table, key) for _, table, key in files if (key, tables[table]) not in cached]
    # A partial of a function of the module can be pickled: the executor may be Spark.
    read = partial(_entries, store, base.uuid, base.schemas, tables)
    values = map_files(read, new, executor=executor, heavy=True, phase=Phase("index", "files"))
    cached.update(zip([(key, tables[table]) for table, key in new], values, strict=True))
    by_column: dict[str, dict[str, list[pa.Array]]] = {c: {} for c in columns}
    for label, table, key in files:
        for column, array in cached[key, tables[table]].items():
            by_column[column].setdefault(label, []).append(array)
    indices = {}
    for column, by_label in by_column.items():
        data_type = index_type(type_of_column(base.schemas, column, base.uuid), column, base.uuid)
        chunked = {
            label: pa.chunked_array([array.cast(data_type) for array in arrays], type=data_type)
            for label, arrays in by_label.items()
        }
        indices[column] = build_index(column, data_type, [(pc.unique(c), label) for label, c in chunked.items()])
    return indices


def _entries(
    store: Store,
    uuid: str,
    schemas: Mapping[str, pa.Schema],
    columns: Mapping[str, Sequence[str]],
    file: tuple[str, str],
) -> dict[str, pa.Array]:
    table, key = file
    return file_entries(store, uuid, schemas[table], key, columns[table])


def file_entries(store: Store, uuid: str, schema: pa.Schema, key: str, columns: Sequence[str]) -> dict[str, pa.Array]:
    """The distinct values of each column in a file."""
    rows = read_rows(store, key, FileRequest(uuid, schema, tuple(columns)))
    return {c: distinct_values(rows.column(c)) for c in columns}
