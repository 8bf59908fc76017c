"""File formats: their contract, and how Parquet is written.

In order:

- the contract, suffixes, errors about unreadable files
- the layout of a Parquet file: row groups, pages, statistics
- encodings, chosen by what a column has
- the writer
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from base64 import b64encode
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from kartothek_cube.core.arrow.types import is_nested
from kartothek_cube.core.stores.contract import Buffer, Store, check_key
from kartothek_cube.errors import CorruptData, CorruptDocument, InvalidInput, InvalidType, KeyNotFound

NumPyArray: TypeAlias = np.ndarray[Any, Any]

INDEX_SUFFIX = ".by-dataset-index.parquet"
DATA_SUFFIX = ".parquet"
CSV_SUFFIX = ".csv"
CSV_GZIP_SUFFIX = ".csv.gz"


class FileFormat(ABC):
    """How data files are written.

    Formats are values: frozen, equal by their settings, picklable.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def file_suffix(self) -> str:
        """Suffix of the keys of data files, by which readers know the format."""

    def check(self, schema: pa.Schema) -> None:  # noqa: B027 - most formats carry everything
        """Raise `Unsupported` for columns that the format cannot carry."""

    @abstractmethod
    def encode(self, table: pa.Table) -> pa.Buffer:
        """The bytes of one file.

        Raises
        ------
        Unsupported
            If the format cannot carry a column.
        """

    @abstractmethod
    def write_stream(self, batches: Iterable[pa.RecordBatch | pa.Table], schema: pa.Schema, sink: object) -> int:
        """Write one file piece by piece and return the number of rows.

        Memory does not grow with the file.

        Parameters
        ----------
        batches : iterable of pyarrow.RecordBatch or pyarrow.Table
            The rows. Columns come in any order and are cast to the types of ``schema``.
        schema : pyarrow.Schema
            The columns of the file.
        sink : binary file object
            Where the bytes go. It is not closed.
        """


def as_table(batch: pa.RecordBatch | pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows in the columns and types of a schema."""
    table = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
    return table.select(schema.names).cast(schema)


def check_named_key(key: str, dataset: str | None) -> None:
    """Check a key that a document names.

    Raises
    ------
    CorruptDocument
        If no store can hold the key.
    """
    try:
        check_key(key)
    except InvalidInput as error:
        if dataset is None:
            raise
        raise CorruptDocument(f"The document of dataset {dataset!r} names a key that is none: {error}") from None


@contextmanager
def readable(store: Store, key: str, dataset: str | None) -> Iterator[None]:
    """Name the key and the dataset in errors about a file that is missing or damaged."""
    check_named_key(key, dataset)
    try:
        yield
    except (FileNotFoundError, KeyNotFound):
        if dataset is None:
            raise KeyNotFound(f"The file {key!r} is not in the store {store.name}.") from None
        raise KeyNotFound(
            f"The file {key!r}, which dataset {dataset!r} names, is not in the store {store.name}. If newer "
            "commits have replaced it and it was garbage collected since this read was planned, plan it again; else "
            "the dataset is damaged, and `verify` says how far."
        ) from None
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        if isinstance(error, OSError) and (type(error) is not OSError or error.errno is not None):
            raise  # the store or the network, not the file
        if isinstance(error, MemoryError):
            raise
        owner = "" if dataset is None else f" of dataset {dataset!r}"
        raise CorruptData(f"The file {key!r}{owner} cannot be read: {error}") from error


def file_suffix(key: str) -> str:
    """The suffix of an index file or a data file; empty for any other key.

    Examples
    --------
    >>> file_suffix("sales++seed/table/week-18.csv.gz")
    '.csv.gz'
    """
    return next((s for s in (INDEX_SUFFIX, DATA_SUFFIX, CSV_GZIP_SUFFIX, CSV_SUFFIX) if key.endswith(s)), "")


# --- the layout of a Parquet file -----------------------------------------------------------------


# Files of fewer rows than the second number are one row group even if they are sorted.
GROUP_ROWS, DECISIVE_ROWS = 1_048_576, 131_072
# Of a sorted file, few pages have the rows that are looked for. Larger row groups than these are
# read no faster, and readers that know no pages have more to decode.
_PAGED_GROUP_ROWS = 131_072
# So many rows of a page are read 10 % faster or slower than a page of all, by the codec and by the
# number of columns; a strong codec takes 10 us for a page. The index should come with the footer
# in one request, so that there are at most so many pages.
_PAGE_ROWS, _STRONG_PAGE_ROWS, _NARROW, _MOST_PAGES = 2_048, 8_192, 8, 3_000
_STRONG_CODECS = {"ZSTD", "GZIP", "BROTLI"}
# Rows alone end a page.
_PAGE_BYTES = 64 * 2**20
# Older versions of pyarrow cannot bound the rows of a page. Then small row groups take the place of
# pages: of a file of a million rows, one key is found 30 times as fast as without. Footers grow
# with row groups and columns, so wide files have larger ones.
_HAS_PAGES = int(pa.__version__.split(".")[0]) >= 23
_SORTED_ROWS, _FACTORS, _LARGEST = 32_768, {8: 1, 32: 2}, 4
# Rows that are compared to find out whether a column is sorted, and how many of them must differ:
# a column of fewer values tells row groups apart less well.
_PROBES, _DIFFERENT = 256, 16


def row_group_rows(table: pa.Table) -> int:
    """The rows of a row group in a file with these rows, or with these first ``DECISIVE_ROWS``.

    Examples
    --------
    >>> numbers = np.arange(200_000)
    >>> sales = pa.table({"PRODUCT_ID": numbers // 7, "UNITS": numbers % 10})
    >>> row_group_rows(sales.slice(0, 100_000))
    1048576
    """
    return _ordered_group_rows(table.num_columns) if is_sorted(table) else GROUP_ROWS


def _ordered_group_rows(columns: int) -> int:
    if _HAS_PAGES:
        return _PAGED_GROUP_ROWS
    return _SORTED_ROWS * next((factor for most, factor in _FACTORS.items() if columns <= most), _LARGEST)


def is_sorted(table: pa.Table) -> bool:
    """Whether the rows, if they are many, seem to be sorted by some column.

    Examples
    --------
    >>> numbers = np.arange(200_000)
    >>> sales = pa.table({"PRODUCT_ID": numbers // 7, "UNITS": numbers % 10})
    >>> is_sorted(sales), is_sorted(sales.select(["UNITS"]))
    (True, False)
    """
    return table.num_rows >= DECISIVE_ROWS and any(map(_seems_sorted, table.columns))


def page_options(rows: int, columns: int, codecs: Collection[str]) -> dict[str, Any]:
    """Arguments of Arrow's writer for a file of so many rows of which few pages may be read.

    Examples
    --------
    >>> page_options(500_000, 5, {"NONE", "SNAPPY"})["max_rows_per_page"]
    2048
    >>> page_options(500_000, 5, {"NONE", "ZSTD"})["max_rows_per_page"]
    8192
    """
    size = _PAGE_ROWS if _STRONG_CODECS.isdisjoint(codecs) else _STRONG_PAGE_ROWS
    size *= 1 if columns <= _NARROW else 4 if size == _PAGE_ROWS else 2
    while columns * rows > _MOST_PAGES * size:
        size *= 2
    return {"write_page_index": True, "max_rows_per_page": size, "data_page_size": _PAGE_BYTES}


def _seems_sorted(column: pa.ChunkedArray) -> bool:
    """Whether a sample of the rows ascends. Nothing but speed depends on it."""
    if not _is_text(column.type) and (not pa.types.is_primitive(column.type) or pa.types.is_boolean(column.type)):
        return False
    places = np.linspace(0, len(column) - 1, _PROBES).astype(np.int64)
    sample = column.take(pa.array(places))
    here, there = sample.slice(0, _PROBES - 1), sample.slice(1)
    rises = pc.sum(pc.less(here, there)).as_py() or 0
    # Comparisons with null are null, and not counted.
    return rises >= _DIFFERENT and not pc.any(pc.greater(here, there)).as_py()


def paths_with_statistics(schema: pa.Schema, rows: pa.Table | None = None) -> bool | list[str]:
    """The paths of columns that have statistics in Parquet, as Arrow's writer takes them.

    Statistics leave NaN out, and other readers pass over row groups whose bounds seem to exclude a
    value: where NaN is the greatest number, they lose rows. So columns of floats have statistics
    only if these ``rows``, which are all of the file, have no NaN.

    Examples
    --------
    >>> sales = pa.table({"SALES": [0.5, float("nan")], "UNITS": [1, 2]})
    >>> paths_with_statistics(sales.schema, sales), paths_with_statistics(sales.schema, sales[:1])
    (['UNITS'], True)
    """
    hidden = {
        field.name
        for field in schema
        if may_have_nan(field.type) and (rows is None or _has_nan(rows.column(field.name)))
    }
    if not hidden:
        return True
    owners = np.repeat(np.array(schema.names, dtype=object), [_number_of_leaves(t) for t in schema.types])
    return [path for path, owner in zip(leaf_paths(schema), owners, strict=True) if owner not in hidden]


def may_have_nan(data_type: pa.DataType) -> bool:
    """Whether values of a type, or parts of them, are floats."""
    if pa.types.is_dictionary(data_type):
        return may_have_nan(data_type.value_type)
    if pa.types.is_nested(data_type):
        return any(may_have_nan(data_type.field(i).type) for i in range(data_type.num_fields))
    return bool(pa.types.is_floating(data_type))


def _has_nan(column: pa.ChunkedArray) -> bool:
    """Whether there is NaN; of columns that are no plain floats, whether there may be."""
    if not pa.types.is_floating(column.type) or pa.types.is_float16(column.type):
        return len(column) > column.null_count
    numbers = column.drop_null() if column.null_count else column
    # The least of numbers with NaN is NaN to NumPy, which is faster than Arrow.
    return bool(len(numbers) and np.isnan(numbers.to_numpy().min()))


def _number_of_leaves(data_type: pa.DataType) -> int:
    if not is_nested(data_type):
        return 1
    data_type = getattr(data_type, "storage_type", data_type)
    return sum(_number_of_leaves(data_type.field(i).type) for i in range(data_type.num_fields))


def leaf_paths(schema: pa.Schema) -> list[str]:
    """The paths of all columns in a file; a nested column has several.

    Examples
    --------
    >>> leaf_paths(pa.schema([("PRODUCT_ID", pa.int64()), ("LABELS", pa.list_(pa.string()))]))
    ['PRODUCT_ID', 'LABELS.list.item']
    """
    if not any(map(is_nested, schema.types)):
        return list(schema.names)
    sink = pa.BufferOutputStream()  # only a file tells
    with pq.ParquetWriter(sink, schema.remove_metadata(), use_compliant_nested_type=False):
        pass
    leaves = pq.read_metadata(pa.BufferReader(sink.getvalue())).schema
    return [leaves.column(j).path for j in range(len(leaves))]


# --- encodings ------------------------------------------------------------------------------------


# Rows of a smaller row group are not looked at: they take about the same in any encoding.
_MANY_ROWS = 16_384
# The sample of a column: pieces of neighbouring rows, and its largest share of the rows.
_PIECES, _PIECE, _SHARE = 8, 512, 32
# Arrow gives up a dictionary of more bytes. One of a column that the rows are sorted by is of no
# use where few pages are read, so it has to be small.
_LARGEST_DICTIONARY, _LARGEST_OF_SORTED = 2**20, 2**13
# Reading deltas takes twice as long as plain numbers, and they are made of blocks of 4 x 32.
_WORTH_DELTAS, _BLOCK, _MINIBLOCK, _BLOCK_BITS = 0.8, 128, 32, 64
# A codec that leaves more of the bytes costs more than it saves.
_LEAST_SAVED = 0.9


class Encoding(Struct, frozen=True):
    """How the values of a column are stored.

    ``name`` is that of Parquet; ``shrinks``: a codec makes the encoded bytes smaller.
    """

    name: str
    shrinks: bool


def choose_encodings(table: pa.Table, rows: int, light: str, strong: str) -> dict[str, Encoding]:
    """The encodings of columns in row groups of so many rows, from a sample of the table.

    Columns that are left out have a dictionary, and any codec: nested and small ones. ``light`` is
    the codec of encoded columns, ``strong`` that of plain ones.

    Examples
    --------
    >>> numbers = np.arange(50_000)
    >>> rows = {"PRODUCT_ID": numbers // 7, "SALES": numbers**0.5, "WEEK": numbers % 52}
    >>> for name, encoding in choose_encodings(pa.table(rows), 50_000, "SNAPPY", "ZSTD").items():
    ...     print(name, encoding.name)
    PRODUCT_ID DELTA_BINARY_PACKED
    SALES PLAIN
    WEEK RLE_DICTIONARY
    """
    rows = min(rows, table.num_rows)
    if rows < _MANY_ROWS:
        return {}
    piece = min(_PIECE, rows // (_PIECES * _SHARE))
    starts = np.linspace(0, table.num_rows - piece, _PIECES).astype(np.int64).tolist()
    chosen = {}
    # Arrow cannot compare half floats.
    names = [
        f.name for f in table.schema if _is_text(f.type) or (pa.types.is_primitive(f.type) and f.type != pa.float16())
    ]
    pieces = pa.concat_tables([table.select(names).slice(start, piece) for start in starts]).combine_chunks()
    for name, column in zip(names, pieces.columns, strict=True):
        sample = column.chunk(0).drop_null()
        if len(sample) >= 2 * _BLOCK:
            chosen[name] = _encoding(sample, rows, light, strong)
    return chosen


def _is_text(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_string(data_type) or pa.types.is_binary(data_type))


def _encoding(sample: pa.Array, rows: int, light: str, strong: str) -> Encoding:
    """The encoding of a column with these values in some rows."""
    if pa.types.is_boolean(sample.type):
        return Encoding("PLAIN", _shrinks(np.packbits(sample.to_numpy(zero_copy_only=False)), strong))
    is_text = _is_text(sample.type)
    encoded = sample.dictionary_encode()
    values, codes = encoded.dictionary, encoded.indices.to_numpy()
    width = 8 * (4 + len(_bytes(sample)) / len(sample) if is_text else max(4, sample.type.byte_width))
    changes = 1 + int(np.count_nonzero(codes[1:] != codes[:-1]))
    entries = min(_number_of_values(changes, len(values)), len(values) * rows / len(sample))
    bits = max(1, int(entries).bit_length())
    runs = len(codes) / changes
    # Equal codes behind each other are counted, others packed.
    packed = bits if runs < 8 else 8 * (1 + bits / 8) / runs
    size, most = entries * width / 8, _LARGEST_DICTIONARY
    if _LARGEST_OF_SORTED < size <= most and entries > _LARGEST_OF_SORTED // 8:
        is_sorted = not pc.any(pc.less(sample.slice(1), sample.slice(0, len(sample) - 1))).as_py()
        most = _LARGEST_OF_SORTED if is_sorted else most
    in_dictionary = packed + entries * width / rows if size <= most else np.inf
    if is_text:
        if in_dictionary < width:
            return Encoding("RLE_DICTIONARY", _dictionary_shrinks(values, codes, bits, (packed * rows, entries), light))
        # Not DELTA_BYTE_ARRAY, a third of the size of sorted texts: pyarrow 6 cannot read it.
        return Encoding("PLAIN", _shrinks(_bytes(sample), strong))
    deltas, in_deltas = None, np.inf
    if _may_be_deltas(sample.type):
        deltas, in_deltas = _deltas(sample)
    if in_dictionary <= 1.15 * in_deltas and in_dictionary <= width / 2:
        return Encoding("RLE_DICTIONARY", _dictionary_shrinks(values, codes, bits, (packed * rows, entries), light))
    if deltas is not None and in_deltas <= _WORTH_DELTAS * width:
        return Encoding("DELTA_BINARY_PACKED", _shrinks(deltas, light) and in_deltas < width / 8)
    return Encoding("PLAIN", _shrinks(_bytes(sample), strong))


def _may_be_deltas(data_type: pa.DataType) -> bool:
    types = (pa.types.is_integer, pa.types.is_timestamp, pa.types.is_date, pa.types.is_time, pa.types.is_duration)
    return any(is_type(data_type) for is_type in types)


def _number_of_values(drawn: int, distinct: int) -> float:
    """An estimate of how many values a column has, of which some drawn ones have so many."""
    if distinct == drawn:
        return np.inf
    low, high = float(distinct), drawn * drawn / 2
    for _ in range(20):
        # Of d values, n that are drawn at random hit about d * (1 - e ** (-n / d)).
        middle = (low * high) ** 0.5
        low, high = (middle, high) if middle * -math.expm1(-drawn / middle) < distinct else (low, middle)
    return high


def _deltas(sample: pa.Array) -> tuple[NumPyArray, float]:
    """Differences of neighbours, and the bits that one takes packed."""
    numbers = np.frombuffer(_bytes(sample), dtype=f"i{sample.type.byte_width}").astype(np.int64)
    # Rows from two pieces are no neighbours.
    inside = np.diff(numbers[: len(numbers) // _PIECES * _PIECES].reshape(_PIECES, -1)).ravel()
    blocks = inside[: len(inside) // _BLOCK * _BLOCK].reshape(-1, _BLOCK)
    above = (blocks - blocks.min(axis=1, keepdims=True)).view(np.uint64).reshape(-1, _MINIBLOCK)
    bits = np.ceil(np.log2(above.max(axis=1).astype(np.float64) + 1))
    return inside, float(bits.mean()) + _BLOCK_BITS / _BLOCK


def _dictionary_shrinks(values: pa.Array, codes: NumPyArray, bits: int, whole: tuple[float, float], codec: str) -> bool:
    """Whether a codec shrinks a dictionary with its codes, of ``whole`` bits and entries."""
    of_codes, entries = whole
    places = np.arange(bits, dtype=codes.dtype)
    packed = np.packbits((codes[:, None] >> places & 1).astype(np.uint8), bitorder="little")
    plain = _bytes(values)
    of_values = len(plain) * entries / len(values)
    after = of_codes / 8 * _share(packed, codec) + of_values * _share(plain, codec)
    return bool(after <= _LEAST_SAVED * (of_codes / 8 + of_values))


def _bytes(values: pa.Array) -> Buffer:
    """The bytes of values without nulls."""
    if _is_text(values.type):
        offsets, data = values.buffers()[1:]
        ends = np.frombuffer(offsets, dtype=np.int32)[[values.offset, values.offset + len(values)]]
        return memoryview(data)[ends[0] : ends[1]] if data is not None else b""
    width = values.type.byte_width
    return memoryview(values.buffers()[1])[values.offset * width : (values.offset + len(values)) * width]


def _share(data: Buffer | NumPyArray, codec: str) -> float:
    """What a codec leaves of some bytes."""
    if codec == "NONE":
        return 1.0
    plain = bytes(data)
    return len(pa.Codec(codec.lower()).compress(plain, asbytes=True)) / len(plain) if plain else 1.0


def _shrinks(data: Buffer | NumPyArray, codec: str) -> bool:
    return _share(data, codec) <= _LEAST_SAVED


# --- the writer -----------------------------------------------------------------------------------


CODECS = ("SNAPPY", "ZSTD", "GZIP", "BROTLI", "LZ4", "NONE")
# kartothek compares the children of lists by name, and writes the name that is not compliant.
# The checksums let a reader refuse damaged pages.
_WRITER: dict[str, Any] = {
    "version": "2.6",
    "coerce_timestamps": "us",
    "use_compliant_nested_type": False,
    "write_page_checksum": True,
}
# Arrow makes a zstd context for each page, which takes about 30 us. In smaller column chunks this
# costs more than zstd saves: 500 rows of four numbers are read in 226 us instead of 93, and take
# 6.7 kB instead of 7.4.
_SMALL_CHUNK = 64 * 2**10


@dataclass(frozen=True, slots=True)
class ParquetFormat(FileFormat):
    """Parquet files as kartothek writes them.

    Parameters
    ----------
    compression : str, default "SNAPPY"
        Codec of the column chunks: ``SNAPPY``, ``ZSTD``, ``GZIP``, ``BROTLI``, ``LZ4`` or ``NONE``.
    chunk_size : int, optional
        Rows of a row group. By default 1,048,576; in files of at least 131,072 rows that are sorted
        by some column 131,072; with pyarrow before 23, which cannot bound pages, 32,768 to 131,072.

    Raises
    ------
    InvalidType
        If ``chunk_size`` is no integer.
    InvalidInput
        If ``chunk_size`` is less than 1, or the codec unknown.

    Examples
    --------
    >>> ParquetFormat(compression="ZSTD", chunk_size=100_000).file_suffix
    '.parquet'
    """

    compression: str = "SNAPPY"
    chunk_size: int | None = None

    def __post_init__(self) -> None:
        if self.chunk_size is not None and (isinstance(self.chunk_size, bool) or not isinstance(self.chunk_size, int)):
            raise InvalidType(
                "chunk size is not integer type: chunk_size must be an integer "
                f"but is {type(self.chunk_size).__name__}."
            )
        if str(self.compression).upper() not in CODECS:
            raise InvalidInput(f"Unknown compression {self.compression!r}; use one of {', '.join(CODECS)}.")
        if self.chunk_size is not None and self.chunk_size <= 0:
            raise InvalidInput(f"chunk size < 1: chunk_size must be > 0 but is {self.chunk_size}.")

    @property
    def file_suffix(self) -> str:
        return ".parquet"

    def encode(self, table: pa.Table) -> pa.Buffer:
        return self.encode_noted(table)

    def encode_noted(
        self,
        table: pa.Table,
        metadata: Mapping[bytes, bytes] | None = None,
        sorted_by: Sequence[str] = (),
        *,
        in_order: bool = False,
    ) -> pa.Buffer:
        """`encode`, with key-value metadata in the footer, and with the columns that sort the rows.

        With ``sorted_by``, no column may be nested. ``in_order``: the rows have an order, which may
        be none of a single column.
        """
        plain, sink = table.replace_schema_metadata(metadata), pa.BufferOutputStream()
        in_order = is_sorted(plain) or (in_order and plain.num_rows >= DECISIVE_ROWS)
        rows = self.chunk_size or (_ordered_group_rows(plain.num_columns) if in_order else GROUP_ROWS)
        statistics, has_pages = paths_with_statistics(plain.schema, plain), _HAS_PAGES and in_order
        with self._writer(plain, rows, sink, statistics, sorted_by, has_pages=has_pages) as writer:
            writer.write_table(plain, row_group_size=rows)
        content = sink.getvalue()
        if has_pages:
            _seal(memoryview(content).cast("B"))
        return content

    def write_stream(self, batches: Iterable[pa.RecordBatch | pa.Table], schema: pa.Schema, sink: Any) -> int:
        plain = schema.remove_metadata()
        groups = _row_groups(batches, plain, self.chunk_size)
        first = next(groups, plain.empty_table())
        rows, has_pages = max(1, first.num_rows), _HAS_PAGES and is_sorted(first)
        target, statistics = _HeldEnd(sink) if has_pages else sink, paths_with_statistics(plain)
        # What later groups have is not known yet.
        with self._writer(first, rows, target, statistics, has_pages=has_pages, is_stream=True) as writer:
            writer.write_table(first, row_group_size=rows)
            rows = first.num_rows
            del first  # so that one row group is in memory at a time
            for group in groups:
                writer.write_table(group, row_group_size=group.num_rows)
                rows += group.num_rows
            if has_pages:
                target.hold()
        if has_pages:
            target.release()
        return rows

    def _writer(
        self,
        table: pa.Table,
        rows: int,
        sink: object,
        statistics: bool | Sequence[str],
        sorted_by: Sequence[str] = (),
        *,
        has_pages: bool = False,
        is_stream: bool = False,
    ) -> pq.ParquetWriter:
        """A writer of row groups of so many rows; a table has all, of a stream the first."""
        light, strong = self._codecs(table, rows)
        encodings = choose_encodings(table, rows, light, strong)
        paths = leaf_paths(table.schema) if encodings else []
        # A part of a nested column may have the path of another column.
        counts = Counter(paths)
        encodings = {c: e for c, e in encodings.items() if counts[c] == 1}
        with_dictionary = [p for p in paths if p not in encodings or encodings[p].name == "RLE_DICTIONARY"]
        others = {c: e.name for c, e in encodings.items() if e.name != "RLE_DICTIONARY"}
        # Later rows of a stream may not fit into a dictionary, or be texts that do shrink.
        unknown = {c for c in encodings if is_stream and (c in with_dictionary or _is_text(table.schema.field(c).type))}
        codecs = {
            c: (strong if e.name == "PLAIN" else light) if e.shrinks or c in unknown else "NONE"
            for c, e in encodings.items()
        }
        used = {codecs.get(path, strong) for path in paths} or {strong}
        pages = page_options(table.num_rows, len(paths) or table.num_columns, used) if has_pages else {}
        order = [pq.SortingColumn(table.column_names.index(c)) for c in sorted_by] or None
        writer = pq.ParquetWriter(
            sink,
            table.schema,
            compression={path: codecs.get(path, strong) for path in paths} or strong,
            use_dictionary=with_dictionary if paths else True,
            column_encoding=others or None,
            write_statistics=statistics,
            sorting_columns=order,
            **pages,
            **_WRITER,
        )
        if has_pages:
            from kartothek_cube.core.io.page_index import CHECKSUM, UNKNOWN_CHECKSUM  # as `_seal`

            writer.add_key_value_metadata({CHECKSUM: UNKNOWN_CHECKSUM})
        return writer

    def _codecs(self, _table: pa.Table, _rows: int) -> tuple[str, str]:
        """The codecs of encoded columns, and of plain ones."""
        return self.compression.upper(), self.compression.upper()


def _seal(end: bytearray | memoryview, begin: int = 0) -> None:
    from kartothek_cube.core.io.page_index import seal  # which readers of few rows need, too

    seal(end, begin)


class _HeldEnd:
    """A sink for Arrow that keeps the end of a file until it is sealed."""

    closed = False

    def __init__(self, sink: Any) -> None:
        self._sink, self._size, self._end = sink, 0, bytearray()
        self._is_held = False

    def write(self, data: bytes) -> int:
        if self._is_held:
            self._end += data
        else:
            self._sink.write(data)
            self._size += len(data)
        return len(data)

    def flush(self) -> None:
        """Nothing is left to do: another one decides when the sink is flushed."""

    def hold(self) -> None:
        """Keep what is written from now on."""
        self._is_held = True

    def release(self) -> None:
        """Write what was kept, with the checksum of the page index."""
        _seal(self._end, self._size)
        self._sink.write(self._end)


@dataclass(frozen=True, slots=True)
class AdaptiveParquetFormat(ParquetFormat):
    """As `ParquetFormat`, but SNAPPY where another codec does not pay.

    That is in files of small column chunks, and for columns in another encoding than PLAIN.

    Examples
    --------
    >>> file = AdaptiveParquetFormat().encode(pa.table({"PRODUCT_ID": range(500)}))
    >>> pq.read_metadata(pa.BufferReader(file)).row_group(0).column(0).compression
    'SNAPPY'
    """

    compression: str = "ZSTD"

    def _codecs(self, table: pa.Table, rows: int) -> tuple[str, str]:
        nbytes = table.nbytes * min(rows, table.num_rows) // max(1, table.num_rows)
        # What is encoded well is read faster than ZSTD unpacks it.
        return "SNAPPY", "SNAPPY" if are_small_chunks(nbytes, table.num_columns) else self.compression.upper()


def are_small_chunks(nbytes: int, columns: int) -> bool:
    """Whether ZSTD does not pay for the columns of a row group of ``nbytes`` decoded bytes."""
    return nbytes < columns * _SMALL_CHUNK


def _row_groups(
    batches: Iterable[pa.RecordBatch | pa.Table], schema: pa.Schema, size: int | None
) -> Iterator[pa.Table]:
    """The same rows in tables of ``size`` rows, the last one smaller; the first rows may choose."""
    # Concatenated only once there are enough: every time costs as much as there are chunks.
    waiting: list[pa.Table] = []
    rows, enough = 0, size or DECISIVE_ROWS
    for batch in batches:
        waiting.append(as_table(batch, schema))
        rows += waiting[-1].num_rows
        while rows >= enough:
            table = pa.concat_tables(waiting)
            if size is None:
                waiting, enough = [table], row_group_rows(table)
                size = enough
                continue
            yield table.slice(0, size)
            waiting, rows = [table.slice(size)], rows - size
    if rows:
        yield pa.concat_tables(waiting)


def encode_bare(table: pa.Table) -> pa.Buffer:
    """A ZSTD file of many columns and few rows, without anything that is not needed to read it."""
    sink = pa.BufferOutputStream()
    bare = {"use_dictionary": False, "write_statistics": False, "store_schema": False}
    pq.write_table(table, sink, compression="ZSTD", **bare, **_WRITER)
    return sink.getvalue()


def encode_groups(tables: Iterable[pa.Table], schema: pa.Schema, key: str) -> pa.Buffer:
    """A ZSTD file with a row group for each table, one at least.

    The tables have dictionaries where ``schema``, which readers see, has their values. Only the
    column ``key`` has statistics; its values ascend, and no two are equal.
    """
    remaining = iter(tables)
    first, sink = next(remaining), pa.BufferOutputStream()
    encoding = "DELTA_BINARY_PACKED" if _may_be_deltas(schema.field(key).type) else "PLAIN"
    paths = leaf_paths(first.schema)
    options = {**_WRITER, "compression": "ZSTD", "store_schema": False, "write_statistics": [key]}
    options["use_dictionary"] = [path for path in paths if path != key]
    # A part of a nested column may have the same path.
    options["column_encoding"] = {key: encoding} if paths.count(key) == 1 else None
    with pq.ParquetWriter(sink, first.schema, **options) as writer:
        for table in chain([first], remaining):
            writer.write_table(table, row_group_size=max(1, table.num_rows))
        # As Arrow stores the schema of what it writes.
        writer.add_key_value_metadata({"ARROW:schema": b64encode(schema.serialize()).decode()})
    return sink.getvalue()
