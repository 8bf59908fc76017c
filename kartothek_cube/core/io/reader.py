"""Data files of any format: the rows that satisfy predicates, in the types of the dataset.

In order:

- how the rows of a file are ordered, as its footer says
- reading
- figures of a file from its footer, and the format of a file in its place
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby, islice
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from msgspec import Struct

from kartothek_cube.core.expressions.predicates import (
    Clause,
    Predicates,
    clause_on_scalar,
    columns_of,
    filter_table,
    matching_rows,
    resolve_constants,
)
from kartothek_cube.core.io.formats import (
    CSV_GZIP_SUFFIX,
    CSV_SUFFIX,
    DATA_SUFFIX,
    AdaptiveParquetFormat,
    FileFormat,
    ParquetFormat,
    are_small_chunks,
)
from kartothek_cube.core.io.parquet import (
    ParquetSource,
    column_bounds,
    column_statistics,
    file_codecs,
    open_file,
    unpacked_bytes,
)
from kartothek_cube.core.io.parquet_rows import (
    PageCounts,
    count_pages,
    count_parquet_rows,
    narrowed,
    open_parquet_inside,
    read_matching_files,
    read_parquet_inside,
)
from kartothek_cube.core.runtime.options import uses_fast_paths
from kartothek_cube.core.runtime.telemetry import record
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.errors import InvalidInput

SortRange: TypeAlias = tuple[tuple[Any, ...], tuple[Any, ...]]
"""Bounds of a column in sort order: ``(0, value)``, or an end that is beyond all values."""

_FIRST: tuple[Any, ...] = (-1,)
_NAN: tuple[Any, ...] = (1,)
_LAST: tuple[Any, ...] = (2,)
UNKNOWN: SortRange = (_FIRST, _LAST)
"""The range of a file about which nothing is known."""

_KEY = b"kartothek_cube.clustering"
# A condition on the column reads whole row groups: in these, 100 rows cost little more than one.
_GROUP_ROWS = 131_072


class Clustering(Struct, frozen=True):
    """The order of rows that a compaction is asked for.

    Attributes
    ----------
    columns : tuple of str
        Columns inside the files.
    is_zorder : bool
        Whether the rows are in the Z-order of the columns, and not sorted by them.

    Examples
    --------
    >>> print(Clustering(("SALES_DATE", "PRODUCT_ID")))
    sorted by SALES_DATE, PRODUCT_ID
    """

    columns: tuple[str, ...]
    is_zorder: bool = False

    @property
    def argument(self) -> str:
        """The argument that asks for it."""
        return "zorder_by" if self.is_zorder else "sort_by"

    def __str__(self) -> str:
        return f"{'in Z-order of' if self.is_zorder else 'sorted by'} {', '.join(self.columns)}"


class ClusterMark(Struct, frozen=True):
    """What the footer of a clustered file says.

    Attributes
    ----------
    clustering : Clustering
        The order of its rows.
    id : str
        That of the merge: files of one merge do not overlap each other.
    rows : int
        The number of rows. A program that copies key-value metadata to other rows copies the mark,
        too, which then says nothing.
    has_nan : bool
        Whether the first column may have NaN, which the footer does not tell.
    """

    clustering: Clustering
    id: str
    rows: int
    has_nan: bool = True

    def serves(self, wanted: Clustering) -> bool:
        """Whether the rows of the file are in the wanted order."""
        mine, asked = self.clustering.columns, wanted.columns
        if self.clustering.is_zorder or wanted.is_zorder:
            return self.clustering == wanted
        return mine[: len(asked)] == asked

    def metadata(self) -> dict[bytes, bytes]:
        """The key-value metadata of a file."""
        content = {
            self.clustering.argument: self.clustering.columns,
            "id": self.id,
            "rows": self.rows,
            "nan": self.has_nan,
        }
        return {_KEY: json.dumps(content, ensure_ascii=False).encode()}


@dataclass(frozen=True, slots=True)
class ClusteredFormat(FileFormat):
    """Parquet files with a mark about the order of their rows, which the caller has made.

    ``like`` decides codec and row groups; without a size these have 131,072 rows. It may be another
    format, which cannot say how rows are ordered: then files are Parquet.
    """

    like: FileFormat
    clustering: Clustering
    id: str

    @property
    def parquet(self) -> ParquetFormat:
        """The format of the bytes."""
        like = self.like if isinstance(self.like, ParquetFormat) else ParquetFormat()
        return replace(like, chunk_size=like.chunk_size or _GROUP_ROWS)

    @property
    def file_suffix(self) -> str:
        return self.parquet.file_suffix

    def encode(self, table: pa.Table) -> pa.Buffer:
        # Parquet counts the parts of nested columns, whose names are ambiguous.
        is_plain = not (self.clustering.is_zorder or any(map(pt.is_nested, table.schema.types)))
        first = table.column(self.clustering.columns[0])
        has_nan = pt.is_floating(first.type) and bool(pc.any(pc.is_nan(first)).as_py())
        mark = ClusterMark(self.clustering, self.id, table.num_rows, has_nan)
        return self.parquet.encode_noted(
            table, mark.metadata(), self.clustering.columns if is_plain else (), in_order=True
        )

    def write_stream(self, batches: Iterable[pa.RecordBatch | pa.Table], schema: pa.Schema, sink: object) -> int:
        # Without a mark, which has the number of rows and comes first.
        return self.parquet.write_stream(batches, schema, sink)


def mark_of(source: ParquetSource) -> ClusterMark | None:
    """The mark of a file; None if it has none, or one of other rows."""
    found = (source.metadata.metadata or {}).get(_KEY)
    try:
        content = None if found is None else json.loads(found)
    except ValueError:
        return None
    if not isinstance(content, dict) or content.get("rows") != source.metadata.num_rows:
        return None
    is_zorder = "zorder_by" in content
    columns = content.get("zorder_by" if is_zorder else "sort_by")
    if not isinstance(columns, list):
        return None
    clustering = Clustering(tuple(map(str, columns)), is_zorder)
    return ClusterMark(clustering, str(content.get("id")), content["rows"], content.get("nan") is not False)


def _range_of(floats: pa.ChunkedArray) -> SortRange:
    """The bounds of numbers whose statistics are not in the footer, since there is NaN."""
    ends = pc.min_max(floats.filter(pc.invert(pc.is_nan(floats))))
    low, high = ends["min"].as_py(), ends["max"].as_py()
    has_nan = pc.any(pc.is_nan(floats)).as_py()
    last = _LAST if floats.null_count or len(floats) == 0 else _NAN if has_nan else (0, high)
    return ((0, low) if low is not None else _NAN if has_nan else _LAST), last


def sort_range(source: ParquetSource, column: str) -> SortRange:
    """The bounds of a column in a file, in the order of a clustering: null last, before it NaN."""
    if column not in source.positions:
        return _LAST, _LAST
    data_type = source.schema.field(column).type
    descriptor = source.metadata.schema.column(source.positions[column][0])
    if descriptor.path != column:  # nested: these are the statistics of its parts
        return UNKNOWN
    groups = range(source.metadata.num_row_groups)
    chunks = list(chain.from_iterable(source.chunks(groups, {column})))
    mark, ranges = mark_of(source), list[SortRange]()
    is_told = mark is not None and not mark.has_nan and mark.clustering.columns[0] == column
    has_nan = pt.is_floating(data_type) and not is_told
    for group, chunk in zip(groups, chunks, strict=True):
        low, high, nullable = column_statistics(chunk, descriptor)
        stats = chunk.statistics
        if low is not None and high is not None:
            # Statistics leave out NaN.
            ranges.append(((0, low), _LAST if nullable else _NAN if has_nan else (0, high)))
        elif stats is not None and stats.has_null_count and stats.null_count == chunk.num_values:
            ranges.append((_LAST, _LAST))
        elif pt.is_floating(data_type):
            ranges.append(_range_of(source.read([group], [column]).column(column)))
        else:
            return UNKNOWN
    try:
        return min((low for low, _ in ranges), default=_LAST), max((high for _, high in ranges), default=_LAST)
    except TypeError:
        return UNKNOWN


# --- reading --------------------------------------------------------------------------------------


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


class FileRequest(Struct, frozen=True):
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


# Of so few rows in pages, one thread decodes a batch of files sooner than two that wait for each
# other.
_DECODED_ROWS = 131_072


def files_at_once(store: Store, key: str, request: FileRequest) -> int:
    """How many files like this one are best read together; 0 if nothing is known about it."""
    if store.local_path(key) is None:  # finding out would take a request
        return 0
    found = pages_to_decode(store, key, request)
    return 0 if found is None else _DECODED_ROWS // max(1, found.rows)


def is_small_file(store: Store, key: str, request: FileRequest) -> bool:
    """Whether `read_together` joins a local file with others before it decodes them."""
    if store.local_path(key) is None or not key.endswith(DATA_SUFFIX) or not uses_fast_paths():
        return False
    from kartothek_cube.core.io.small_files import is_small

    with open_file(store, key, request.dataset, counted=False) as source:
        return is_small(source.size, source.metadata)


def pages_to_decode(store: Store, key: str, request: FileRequest) -> PageCounts | None:
    """What is decoded of a file for a request; None if it is not read by pages."""
    predicates = narrowed(request.predicates, request.runtime_filter)
    if not key.endswith(DATA_SUFFIX) or predicates == ((),):
        return None
    return count_pages(store, key, request.dataset, request.schema, predicates)


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
    remaining = resolved_predicates(request, constants)
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
    remaining = resolved_predicates(request, constants)
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


def resolved_predicates(request: FileRequest, constants: Mapping[str, Any]) -> Predicates | None:
    """What is left of the predicates for a file with these partition values.

    None: all rows satisfy them; empty: no row does.
    """
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
        constant_array(constants[c], schema.field(c).type, rows) if c in constants else table.column(c) for c in names
    ]
    if not columns:  # a selection of no columns keeps the number of rows
        return pa.table({"": np.zeros(rows, dtype=np.int8)}).select([])
    return pa.table(columns, names=list(names))


def constant_array(value: object, data_type: pa.DataType, rows: int) -> pa.Array:
    """One value in every row."""
    if not rows or value is None:
        return pa.nulls(rows, data_type)
    return repeated(pa.array([value], data_type), [rows])


def repeated(values: pa.Array, counts: Sequence[int]) -> pa.Array:
    """Each value so many times."""
    filled = np.asarray(counts, dtype=np.int64)
    if not filled.all():
        values, filled = values.filter(pa.array(filled > 0)), filled[filled > 0]
    # Faster than pyarrow.repeat, and than positions.
    return pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(pa.array(np.cumsum(filled)), values))


# All bytes of a batch are in memory at a time; where they are filtered, about so many rows.
_BATCH_FILES, _ROWS_AT_ONCE = 64, 65_536


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
    from kartothek_cube.core.io.small_files import SmallFileReader  # 3 ms that filtered reads do without

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
    predicates = narrowed(request.predicates, request.runtime_filter)
    inside = {*request.columns, *columns_of(predicates)}

    def suits(file: tuple[str, Mapping[str, Any]]) -> bool:
        return file[0].endswith(DATA_SUFFIX) and bool(request.columns) and file[1].keys().isdisjoint(inside)

    for together, run in groupby(files, suits):
        if together:
            for table, counts in _matching_parquet(store, [key for key, _ in run], request, predicates):
                record(rows_read=table.num_rows)
                yield table, counts
        else:
            for key, constants in run:
                table = read_rows(store, key, request, constants)
                yield table, [len(table)]


def _matching_parquet(
    store: Store, keys: Sequence[str], request: FileRequest, predicates: Predicates | None
) -> Iterator[tuple[pa.Table, list[int]]]:
    """The same for Parquet files without constants: all rows of small files are decoded at once."""
    from kartothek_cube.core.io.small_files import SmallFileReader

    columns, schema, others = list(request.columns), request.schema, list[str]()
    names = [*columns, *sorted(columns_of(predicates) - set(columns))]
    reader = SmallFileReader(store, pa.schema([(name, schema.field(name).type) for name in names]))

    def read_others() -> Iterator[tuple[pa.Table, list[int]]]:
        yield from read_matching_files(store, others, request.dataset, columns, schema, predicates)
        others.clear()

    begin, are_small = 0, uses_fast_paths()
    while are_small and begin < len(keys):
        batch = keys[begin : begin + min(_BATCH_FILES, reader.files_of(_ROWS_AT_ONCE))]
        are_small = False
        for found in reader.read_known(batch):
            if found is None:
                others.append(keys[begin])
                begin += 1
                continue
            if others:
                yield from read_others()
            table, counts = found
            begin, are_small = begin + len(counts), True
            mask = matching_rows(table, predicates)
            ends = np.searchsorted(np.flatnonzero(mask), np.cumsum([0, *counts]))
            yield filter_table(table, mask).select(columns), np.diff(ends).tolist()
    others += keys[begin:]
    if others:
        yield from read_others()


# --- figures of a file from its footer ------------------------------------------------------------


FileBounds: TypeAlias = tuple[tuple[Any, Any] | None, ...]
"""Minimum and maximum of some columns of a file; None where they are unknown."""

# Compressed CSV takes a multiple of its size in memory.
_TEXT_FACTOR = 8


class FileStats(Struct, frozen=True):
    """Figures of a file from its footer.

    Attributes
    ----------
    rows, size : int
        Its rows and bytes.
    unpacked : int
        Estimated bytes of its rows in memory.
    codecs : frozenset of str
        The codecs of its column chunks.
    group_rows : int | None
        Rows of its first row group, if it has several.
    bounds : FileBounds
        Those of the columns that were asked for.
    mark : ClusterMark | None
        What its footer says about the order of its rows, if ``sorted_by`` asked for it.
    range : SortRange
        The bounds of ``sorted_by``.
    """

    rows: int
    size: int
    unpacked: int
    codecs: frozenset[str] = frozenset()
    group_rows: int | None = None
    bounds: FileBounds = ()
    mark: ClusterMark | None = None
    range: SortRange = UNKNOWN


def file_stats(
    store: Store, uuid: str, key: str, dimensions: Sequence[str] = (), sorted_by: str | None = None
) -> FileStats:
    """Read the footer of a file of a dataset, with bounds of some columns; of CSV all rows.

    ``sorted_by`` asks for the mark of a clustered file, and for the range of a column.
    """
    if not key.endswith(DATA_SUFFIX):
        size = store.tail(key, 0)[1]
        return FileStats(file_rows(store, key, uuid), size, _TEXT_FACTOR * size, bounds=(None,) * len(dimensions))
    with open_file(store, key, uuid) as source:
        metadata = source.metadata
        groups = range(metadata.num_row_groups)
        chunks = list(chain.from_iterable(source.chunks(groups, set(source.schema.names))))
        # 12 bytes: the magic numbers at both ends and the length of the footer.
        size = sum(c.total_compressed_size for c in chunks) + metadata.serialized_size + 12
        group_rows = source.rows([0]) if len(groups) > 1 else None
        bounds = tuple(column_bounds(source, name) for name in dimensions)
        mark, ends = (None, UNKNOWN) if sorted_by is None else (mark_of(source), sort_range(source, sorted_by))
        codecs = file_codecs(source)
        return FileStats(metadata.num_rows, size, unpacked_bytes(chunks), codecs, group_rows, bounds, mark, ends)


# Columns that a codec does not shrink have none, and well encoded ones a light one.
_BY_STRENGTH = ("BROTLI", "GZIP", "ZSTD", "LZ4", "SNAPPY", "UNCOMPRESSED")


def format_like(keys: Sequence[str], figures: Sequence[FileStats], columns: int, *, adaptive: bool) -> FileFormat:
    """The format of a file of ``columns`` columns that takes the place of some files.

    In Parquet the codec of what shrinks in the newest of them. ``adaptive``: they belong to a cube,
    whose format chooses codecs itself.
    """
    # CSV cannot hold all types, so one Parquet file among the inputs decides for Parquet.
    if not any(key.endswith(DATA_SUFFIX) for key in keys):
        from kartothek_cube.core.io.csv import CsvFormat

        return CsvFormat(compress=keys[-1].endswith(".gz"))
    # A file of which nothing shrinks has no codec: then another file says which one is meant.
    found = next((f.codecs for f in reversed(figures) if f.codecs - {"UNCOMPRESSED"}), figures[-1].codecs)
    codec = next((c for c in _BY_STRENGTH if c in found), "SNAPPY")
    is_chosen = codec == "ZSTD" or len(found) > 1 or are_small_chunks(figures[-1].unpacked, columns)
    if adaptive and codec in {"ZSTD", "SNAPPY"} and is_chosen:
        return AdaptiveParquetFormat()
    return ParquetFormat(codec.replace("UNCOMPRESSED", "NONE"))


def grouped_like(file_format: FileFormat, figures: FileStats) -> FileFormat:
    """The format with row groups of as many rows as the file has."""
    if figures.group_rows is None or not isinstance(file_format, ParquetFormat):
        return file_format
    return replace(file_format, chunk_size=figures.group_rows)
