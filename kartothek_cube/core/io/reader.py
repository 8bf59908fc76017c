"""Data files of any format: the rows that satisfy predicates, in the types of the dataset."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from kartothek_cube.core.expressions.predicates import (
    Clause,
    Predicates,
    clause_on_scalar,
    columns_of,
    filter_table,
    matching_rows,
    resolve_constants,
)
from kartothek_cube.core.io.file_format import CSV_GZIP_SUFFIX, CSV_SUFFIX, DATA_SUFFIX
from kartothek_cube.core.io.parquet import (
    count_parquet_rows,
    open_parquet_inside,
    read_matching_files,
    read_parquet_inside,
)
from kartothek_cube.core.runtime.options import uses_fast_paths
from kartothek_cube.core.runtime.telemetry import record
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.errors import InvalidInput

__all__ = ["FileRequest", "TooLarge", "file_rows", "open_rows", "read_rows", "read_together"]


class _Reader(NamedTuple):
    """The functions that read files of one format, by the suffix of the key."""

    read_inside: Callable[
        [Store, str, str | None, Sequence[str], pa.Schema, Predicates | None, tuple[Clause, ...]], tuple[pa.Table, int]
    ]
    open_inside: Callable[
        [Store, str, str | None, Sequence[str], pa.Schema, Predicates | None, int],
        tuple[bool, Iterator[tuple[pa.Table, int]]],
    ]
    count_rows: Callable[[Store, str, str], int]


def _read_csv(
    store: Store,
    key: str,
    dataset: str | None,
    columns: Sequence[str],
    schema: pa.Schema,
    predicates: Predicates | None,
    _runtime_filter: tuple[Clause, ...] = (),
) -> tuple[pa.Table, int]:
    from kartothek_cube.core.io.csv import read_csv_inside  # Arrow's reader of CSV, which few need

    needed = [*columns, *sorted(columns_of(predicates) - set(columns))]
    table, rows = read_csv_inside(store, key, dataset, needed, schema)
    if predicates is None:
        return table, rows
    mask = matching_rows(table, predicates)
    return filter_table(table, mask).select(list(columns)), int(np.count_nonzero(mask))


def _count_csv_rows(store: Store, key: str, dataset: str) -> int:
    from kartothek_cube.core.io.csv import count_csv_rows

    return count_csv_rows(store, key, dataset)


_CSV = _Reader(_read_csv, lambda *arguments: (True, iter([_read_csv(*arguments[:-1])])), _count_csv_rows)

_PARQUET = _Reader(read_parquet_inside, open_parquet_inside, count_parquet_rows)

_READERS = {CSV_GZIP_SUFFIX: _CSV, CSV_SUFFIX: _CSV, DATA_SUFFIX: _PARQUET}


@dataclass(frozen=True, slots=True)
class FileRequest:
    """What to read of every file of a dataset.

    Attributes
    ----------
    dataset : str
        Its uuid, for errors.
    schema : pyarrow.Schema
        The types of all columns that are returned or filtered.
    columns : tuple of str
        The columns to return, in order.
    predicates : Predicates | None
        The rows to return; None: all.
    runtime_filter : tuple of Clause
        Rows that do not satisfy all of these are of no use, e.g. because a join would drop them.
        They may be among the result.
    """

    dataset: str
    schema: pa.Schema
    columns: tuple[str, ...]
    predicates: Predicates | None = None
    runtime_filter: tuple[Clause, ...] = ()


def _reader(key: str, dataset: str) -> _Reader:
    for suffix, reader in _READERS.items():
        if key.endswith(suffix):
            return reader
    raise InvalidInput(
        f"The specified file format for '{key}' is not supported (dataset {dataset!r}); "
        f"files end in {', '.join(_READERS)}."
    )


def file_rows(store: Store, key: str, dataset: str) -> int:
    """Number of rows of a file."""
    return _reader(key, dataset).count_rows(store, key, dataset)


def read_rows(store: Store, key: str, request: FileRequest, constants: Mapping[str, Any] | None = None) -> pa.Table:
    """The rows of one file that satisfy the predicates, in the types of the request.

    ``constants`` are the partition values of the file. They replace a column of the same name in
    the file.

    Raises
    ------
    InvalidInput
        If the suffix of the key belongs to no format.
    KeyNotFound
        If the file does not exist.
    CorruptData
        If the file cannot be read, or has a column of another type than the dataset.
    """
    constants = constants or {}
    reader = _reader(key, request.dataset)
    remaining = _resolve(request, constants)
    if remaining == ():
        return pa.schema([request.schema.field(c) for c in request.columns]).empty_table()
    inside = [c for c in request.columns if c not in constants]
    useful = tuple(c for c in request.runtime_filter if c.column not in constants)
    table, rows = reader.read_inside(store, key, request.dataset, inside, request.schema, remaining, useful)
    record(rows_read=rows)
    return with_constants(table, rows, request.columns, constants, request.schema)


def open_rows(
    store: Store, key: str, request: FileRequest, nbytes: int, constants: Mapping[str, Any] | None = None
) -> tuple[bool, Iterator[pa.Table]]:
    """What `read_rows` reads, in pieces of at most about ``nbytes`` bytes.

    The first value says whether the whole file takes no more. The file is opened here; each piece
    is read when it is taken, and empty pieces are left out. CSV is one piece, as its size is
    unknown before it is read.
    """
    constants = constants or {}
    reader = _reader(key, request.dataset)
    remaining = _resolve(request, constants)
    if remaining == ():
        return True, iter(())
    inside = [c for c in request.columns if c not in constants]
    is_small, pieces = reader.open_inside(store, key, request.dataset, inside, request.schema, remaining, nbytes)

    def completed() -> Iterator[pa.Table]:
        for table, rows in pieces:
            if rows:
                record(rows_read=rows)
                yield with_constants(table, rows, request.columns, constants, request.schema)

    return is_small, completed()


def _resolve(request: FileRequest, constants: Mapping[str, Any]) -> Predicates | None:
    if request.predicates is None or not constants:
        return request.predicates
    scalars = {c: pa.scalar(v, request.schema.field(c).type) for c, v in constants.items()}

    def truth(clause: Clause) -> bool | None:
        return clause_on_scalar(scalars[clause.column], clause) if clause.column in scalars else None

    return resolve_constants(request.predicates, truth)


def with_constants(
    table: pa.Table, rows: int, names: Sequence[str], constants: Mapping[str, Any], schema: pa.Schema
) -> pa.Table:
    """These columns in order, with constants repeated."""
    if names and table.column_names == list(names) and constants.keys().isdisjoint(names):
        return table
    columns = [
        pa.repeat(pa.scalar(constants[c], schema.field(c).type), rows) if c in constants else table.column(c)
        for c in names
    ]
    if not columns:  # a selection of no columns keeps the number of rows
        return pa.table({"": np.zeros(rows, dtype=np.int8)}).select([])
    return pa.table(columns, names=list(names))


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
    tables, counts = list[pa.Table](), list[int]()
    for table, rows in _tables(store, files, request, schema):
        tables.append(table)
        counts += rows
        room -= table.get_total_buffer_size()  # many times faster than `nbytes`
        if room < 0:
            raise TooLarge
    table = pa.concat_tables(tables) if tables else schema.empty_table()
    is_exact = table.schema.equals(schema, check_metadata=True)
    return table if is_exact else pa.table(table.columns, schema=schema), counts


def _tables(
    store: Store, files: Sequence[tuple[str, Mapping[str, Any]]], request: FileRequest, schema: pa.Schema
) -> Iterator[tuple[pa.Table, list[int]]]:
    """The rows of some neighbouring files after the other, and the number of rows of each file."""
    if request.predicates is not None or request.runtime_filter:
        yield from _matching_tables(store, files, request)
        return
    from kartothek_cube.core.io._fast.small_files import SmallFileReader  # 3 ms that filtered reads do without

    reader = SmallFileReader(store, schema)
    for begin in range(0, len(files), _BATCH_FILES):
        batch = files[begin : begin + _BATCH_FILES]
        rest = iter(batch)
        for found in reader.read(batch) if uses_fast_paths() else [None] * len(batch):
            if found is None:
                key, constants = next(rest)
                table = read_rows(store, key, request, constants)
                yield table, [len(table)]
            else:
                deque(islice(rest, len(found[1])), maxlen=0)
                yield found


def _matching_tables(
    store: Store, files: Sequence[tuple[str, Mapping[str, Any]]], request: FileRequest
) -> Iterator[tuple[pa.Table, list[int]]]:
    """The same for a request of some rows."""
    predicates = tuple((*conjunction, *request.runtime_filter) for conjunction in request.predicates or ((),))
    inside = {*request.columns, *columns_of(predicates)}

    def suits(file: tuple[str, Mapping[str, Any]]) -> bool:
        return file[0].endswith(DATA_SUFFIX) and bool(request.columns) and file[1].keys().isdisjoint(inside)

    for together, run in groupby(files, suits):
        if together:
            keys = (key for key, _ in run)
            for table, counts in read_matching_files(
                store, keys, request.dataset, request.columns, request.schema, predicates
            ):
                record(rows_read=table.num_rows)
                yield table, counts
        else:
            for key, constants in run:
                table = read_rows(store, key, request, constants)
                yield table, [len(table)]
