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
from kartothek_cube.core.runtime.progress import Phase
from kartothek_cube.core.stores.contract import Store

__all__ = ["Entries", "built_indices", "file_entries"]

Entries: TypeAlias = dict[tuple[str, tuple[str, ...]], dict[str, pa.Array]]


def built_indices(
    store: Store, base: Snapshot, columns: Sequence[str], known: Entries | None = None, executor: Executor = THREADS
) -> dict[str, SecondaryIndex]:
    """Whole indices on columns of a snapshot, from these columns of its files; those in ``known``, which grows, are not read again."""
    tables = {t: [c for c in columns if c in s.names] for t, s in base.schemas.items()}
    files = [(label, t, key) for t in base.schemas if tables[t] for label, key in _files_of(base, t)]
    known = {} if known is None else known
    new = [(table, key) for _, table, key in files if (key, tuple(tables[table])) not in known]
    read = map_files(
        partial(_entries, store, base.uuid, base.schemas, tables),
        new,
        executor=executor,
        heavy=True,
        phase=Phase("index", "files"),
    )
    known.update(zip([(key, tuple(tables[table])) for table, key in new], read, strict=True))
    entries = [known[key, tuple(tables[table])] for _, table, key in files]
    pairs: dict[str, dict[str, list[pa.Array]]] = {c: {} for c in columns}
    for (label, _, _), found in zip(files, entries, strict=True):
        for column, values in found.items():
            pairs[column].setdefault(label, []).append(values)
    return {c: _index_of(base, c, by_label) for c, by_label in pairs.items()}


def _entries(
    store: Store,
    uuid: str,
    schemas: Mapping[str, pa.Schema],
    columns: Mapping[str, Sequence[str]],
    file: tuple[str, str],
) -> dict[str, pa.Array]:
    table, key = file
    return file_entries(store, uuid, schemas[table], key, columns[table])


def _files_of(base: Snapshot, table: str) -> list[tuple[str, str]]:
    keys = base.partitions.file_column(table)
    return [
        (label, key)
        for label, key in zip(base.partitions.labels.to_pylist(), keys.to_pylist(), strict=True)
        if key is not None
    ]


def file_entries(store: Store, uuid: str, schema: pa.Schema, key: str, columns: Sequence[str]) -> dict[str, pa.Array]:
    """The distinct values that a file has in each column."""
    rows = read_rows(store, key, FileRequest(uuid, schema, tuple(columns)))
    return {c: distinct_values(rows.column(c)) for c in columns}


def _index_of(base: Snapshot, column: str, by_label: dict[str, list[pa.Array]]) -> SecondaryIndex:
    kind = index_type(type_of_column(base.schemas, column, base.uuid), column, base.uuid)
    entries = [
        (pc.unique(pa.chunked_array([a.cast(kind) for a in arrays], type=kind)), label)
        for label, arrays in by_label.items()
    ]
    return build_index(column, kind, entries)
