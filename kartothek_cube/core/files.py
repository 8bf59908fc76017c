"""Data files of any format: the rows that satisfy predicates, in the types of the dataset. The suffix says the format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from kartothek_cube.core.csv_format import count_csv_rows, read_csv_inside
from kartothek_cube.core.evaluate import clause_on_scalar, filter_table, matching_rows
from kartothek_cube.core.naming import CSV_GZIP_SUFFIX, CSV_SUFFIX, DATA_SUFFIX
from kartothek_cube.core.parquet import count_parquet_rows, open_parquet_inside, read_parquet_inside
from kartothek_cube.core.predicates import Clause, Predicates, columns_of, resolve_constants
from kartothek_cube.core.store import Store
from kartothek_cube.core.telemetry import record
from kartothek_cube.errors import InvalidInput

__all__ = ["FileRequest", "file_rows", "filter_table", "open_rows", "read_rows"]


class _Reader(NamedTuple):
    """How files of one format are read: matching rows in the dataset's types and their number, or the number of all rows. In pieces, too."""

    read_inside: Callable[[Store, str, str | None, Sequence[str], pa.Schema, Predicates | None], tuple[pa.Table, int]]
    open_inside: Callable[[Store, str, str | None, Sequence[str], pa.Schema, Predicates | None, int], tuple[bool, Iterator[tuple[pa.Table, int]]]]
    count_rows: Callable[[Store, str, str], int]


def _read_csv(store: Store, key: str, dataset: str | None, columns: Sequence[str], schema: pa.Schema, predicates: Predicates | None) -> tuple[pa.Table, int]:
    wanted = [*columns, *sorted(columns_of(predicates) - set(columns))]
    table, rows = read_csv_inside(store, key, dataset, wanted, schema, predicates)
    if predicates is None:
        return table, rows
    mask = matching_rows(table, predicates)
    return filter_table(table, mask).select(list(columns)), int(np.count_nonzero(mask))


_CSV = _Reader(_read_csv, lambda *asked: (True, iter([_read_csv(*asked[:-1])])), count_csv_rows)
_PARQUET = _Reader(read_parquet_inside, open_parquet_inside, count_parquet_rows)
_READERS = {CSV_GZIP_SUFFIX: _CSV, CSV_SUFFIX: _CSV, DATA_SUFFIX: _PARQUET}


@dataclass(frozen=True, slots=True)
class FileRequest:
    """What to read of the files of one dataset; shared by all of them.

    ``schema`` has the types of all columns that occur here, ``columns`` those to return, in order.
    """

    dataset: str
    schema: pa.Schema
    columns: tuple[str, ...]
    predicates: Predicates | None = None


def _reader(key: str, dataset: str) -> _Reader:
    for suffix, reader in _READERS.items():
        if key.endswith(suffix):
            return reader
    raise InvalidInput(f"The specified file format for '{key}' is not supported (dataset {dataset!r}); files end in {', '.join(_READERS)}.")


def file_rows(store: Store, key: str, dataset: str) -> int:
    """Number of rows of a file; of a Parquet file from its footer."""
    return _reader(key, dataset).count_rows(store, key, dataset)


def read_rows(store: Store, key: str, request: FileRequest, constants: Mapping[str, Any] | None = None) -> pa.Table:
    """The rows of one file that satisfy the predicates, in the types of the request.

    ``constants`` are the partition values of the file: they win over a column of the same name inside.

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
        return _output_schema(request).empty_table()
    inside = [c for c in request.columns if c not in constants]
    table, rows = reader.read_inside(store, key, request.dataset, inside, request.schema, remaining)
    record(rows_read=rows)
    return with_constants(table, rows, request.columns, constants, request.schema)


def open_rows(store: Store, key: str, request: FileRequest, nbytes: int, constants: Mapping[str, Any] | None = None) -> tuple[bool, Iterator[pa.Table]]:
    """Whether all columns of a file that are needed take no more than about ``nbytes`` bytes; and `read_rows` in pieces of that size at most.

    The file is opened here, and its pieces are read one after the other when they are asked for. A piece has at least one row before it is filtered;
    those without rows after that are left out. CSV comes whole, its size is not known before.
    """
    constants = constants or {}
    reader = _reader(key, request.dataset)
    remaining = _resolve(request, constants)
    if remaining == ():
        return True, iter(())
    inside = [c for c in request.columns if c not in constants]
    is_small, pieces = reader.open_inside(store, key, request.dataset, inside, request.schema, remaining, nbytes)
    return is_small, (with_constants(table, _noted(rows), request.columns, constants, request.schema) for table, rows in pieces if rows)


def _noted(rows: int) -> int:
    record(rows_read=rows)
    return rows


def _resolve(request: FileRequest, constants: Mapping[str, Any]) -> Predicates | None:
    if request.predicates is None or not constants:
        return request.predicates
    scalars = {c: pa.scalar(v, request.schema.field(c).type) for c, v in constants.items()}

    def truth(clause: Clause) -> bool | None:
        return clause_on_scalar(scalars[clause.column], clause) if clause.column in scalars else None

    return resolve_constants(request.predicates, truth)


def _output_schema(request: FileRequest) -> pa.Schema:
    return pa.schema([request.schema.field(c) for c in request.columns])


def with_constants(table: pa.Table, rows: int, wanted: Sequence[str], constants: Mapping[str, Any], schema: pa.Schema) -> pa.Table:
    """The wanted columns in order, constants repeated; a table without columns keeps its number of rows."""
    if wanted and table.column_names == list(wanted) and constants.keys().isdisjoint(wanted):
        return table
    columns = [pa.repeat(pa.scalar(constants[c], schema.field(c).type), rows) if c in constants else table.column(c) for c in wanted]
    if not columns:
        return pa.table({"": np.zeros(rows, dtype=np.int8)}).select([])
    return pa.table(columns, names=list(wanted))
