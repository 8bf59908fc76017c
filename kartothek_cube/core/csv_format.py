"""CSV: tables to text, and text to tables in the dataset's types. kartothek's dialect: ``;``, UTF-8, a header, ``True`` and ``False``."""

from __future__ import annotations

import csv
import gzip
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.types as pt

from kartothek_cube.core.formats import FileFormat, as_table, readable
from kartothek_cube.core.naming import CSV_GZIP_SUFFIX, CSV_SUFFIX
from kartothek_cube.core.predicates import Predicates
from kartothek_cube.core.schema import stored_type
from kartothek_cube.core.store import Store
from kartothek_cube.core.telemetry import record
from kartothek_cube.errors import CorruptData, InvalidType, Unsupported

__all__ = ["SEPARATOR", "CsvFormat", "count_csv_rows", "csv_content", "read_csv_inside"]

SEPARATOR = ";"
_ROWS = 65_536
# A row longer than a block could not be parsed.
_BLOCK = 64 * 2**20
# The moments of years of four digits, in microseconds and days since 1970.
_MOMENTS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
_DAYS = (-719_162, 2_932_896)
_CARRIED = (pt.is_null, pt.is_boolean, pt.is_integer, pt.is_floating, pt.is_decimal, pt.is_string, pt.is_date, pt.is_time, pt.is_timestamp)


@dataclass(frozen=True, slots=True)
class CsvFormat(FileFormat):
    r"""CSV files as kartothek writes and reads them: separated by ``;``, with a header, an empty field is null.

    Text is quoted where it has to be; empty text is, so that it is no null. Types come from the dataset when it is read.

    Parameters
    ----------
    compress : bool, default True
        Compress the file with gzip.

    Raises
    ------
    InvalidType
        If ``compress`` is not True or False.

    Examples
    --------
    >>> import pyarrow as pa
    >>> CsvFormat(compress=False).encode(pa.table({"COUNTRY_CODE": ["DE", None], "UNITS": [3, 4]})).to_pybytes()
    b'COUNTRY_CODE;UNITS\nDE;3\n;4\n'
    """

    compress: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.compress, bool):
            raise InvalidType(f"compress must be True or False but is {self.compress!r}.")

    @property
    def file_suffix(self) -> str:
        return CSV_GZIP_SUFFIX if self.compress else CSV_SUFFIX

    def check(self, schema: pa.Schema) -> None:
        _check_schema(schema)

    def encode(self, table: pa.Table) -> pa.Buffer:
        sink = io.BytesIO()
        self.write_stream([table], table.schema, sink)
        return pa.py_buffer(sink.getbuffer())

    def write_stream(self, batches: Iterable[pa.RecordBatch | pa.Table], schema: pa.Schema, sink: Any) -> int:
        _check_schema(schema)
        if not self.compress:
            return _write(batches, schema, sink)
        with gzip.GzipFile(filename="", fileobj=sink, mode="wb", compresslevel=6, mtime=0) as packed:
            return _write(batches, schema, packed)


def _check_schema(schema: pa.Schema) -> None:
    if not len(schema):
        raise Unsupported("CSV cannot carry a table without columns; use Parquet.")
    for field in schema:
        _check_carried(field.type, field.name)


def _check_carried(kind: pa.DataType, name: str) -> None:
    if not any(carries(stored_type(kind)) for carries in _CARRIED):
        raise Unsupported(f"Column {name!r} is {kind}, which CSV cannot carry: its text does not say the value. Use Parquet.")


# --- writing ----------------------------------------------------------------------------------------------------------


def _write(batches: Iterable[pa.RecordBatch | pa.Table], schema: pa.Schema, sink: IO[bytes] | gzip.GzipFile) -> int:
    header = io.StringIO()
    csv.writer(header, delimiter=SEPARATOR, lineterminator="\n").writerow(schema.names)
    sink.write(header.getvalue().encode())
    rows = 0
    for table in (as_table(batch, schema) for batch in batches):
        for piece in table.to_batches(max_chunksize=_ROWS):
            sink.write(_lines(piece))
        rows += table.num_rows
    return rows


def _lines(batch: pa.RecordBatch) -> Any:
    """The rows as one text: the data of a text column whose values end with a line feed."""
    if not batch.num_rows:
        return b""
    fields = [_fields(column, name) for name, column in zip(batch.schema.names, batch.columns, strict=True)]
    if len(fields) == 1:  # readers pass over an empty line
        fields = [_never_empty(fields[0], batch.column(0), batch.schema.names[0])]
    rows = pc.binary_join_element_wise(*fields, _text(SEPARATOR), null_handling="replace", null_replacement="")
    lines = pc.binary_join_element_wise(rows, _text(""), _text("\n"))
    return memoryview(lines.buffers()[2])[: pc.sum(pc.binary_length(lines)).as_py()]


def _text(value: str) -> pa.Scalar:
    return pa.scalar(value, pa.large_string())


def _never_empty(fields: pa.Array, column: pa.Array, name: str) -> pa.Array:
    if pt.is_string(stored_type(column.type)) and pc.any(pc.equal(fields, _text('""'))).as_py():
        raise Unsupported(f"Column {name!r} is the only one of a CSV file and has empty text, which could not be told from null. Use Parquet.")
    return pc.fill_null(fields, _text('""'))


def _fields(column: pa.Array, name: str) -> pa.Array:
    """One text a value, null for null."""
    kind = stored_type(column.type)
    if pt.is_string(kind):
        return _quoted(column.cast(pa.large_string()))
    # Offsets of a zone have no seconds in text, and those of long ago have.
    column = column.cast(pa.timestamp("us", "UTC") if pt.is_timestamp(kind) and kind.tz else kind)
    if pt.is_boolean(kind):
        return pc.if_else(column, _text("True"), _text("False"))
    if pt.is_timestamp(kind) or pt.is_date(kind):
        _check_years(column, name)
    text = column.cast(pa.string()).cast(pa.large_string())
    # As pandas writes it, so that it reads a float back and no integer.
    return pc.replace_substring_regex(text, r"^(-?\d+)$", r"\1.0") if pt.is_floating(kind) else text


def _quoted(text: pa.Array) -> pa.Array:
    special = pc.match_substring_regex(text, f'[{SEPARATOR}"\r\n]|^$')
    doubled = pc.replace_substring(text, '"', '""')
    return pc.if_else(special, pc.binary_join_element_wise(_text('"'), doubled, _text('"'), _text("")), text)


def _check_years(column: pa.Array, name: str) -> None:
    days = pt.is_date(column.type)
    ticks = pc.min_max(column.cast(pa.int32() if days else pa.int64()))
    low, high = _DAYS if days else _MOMENTS
    if ticks["min"].is_valid and not (low <= ticks["min"].as_py() and ticks["max"].as_py() <= high):
        raise Unsupported(f"Column {name!r} has moments outside the years 1 to 9999, which CSV cannot carry. Use Parquet.")


# --- reading ----------------------------------------------------------------------------------------------------------


def csv_content(store: Store, key: str, dataset: str | None) -> pa.Buffer:
    """The text of a CSV file."""
    with readable(store, key, dataset):
        data = pa.py_buffer(store.get(key))
        record(files_read=1, bytes_read=data.size)
        return pa.CompressedInputStream(pa.BufferReader(data), "gzip").read_buffer() if key.endswith(".gz") else data


def count_csv_rows(store: Store, key: str, dataset: str) -> int:
    """Number of rows of a file, which has to be read whole."""
    return read_csv_inside(store, key, dataset, (), pa.schema([]), None)[1]


def read_csv_inside(
    store: Store, key: str, dataset: str | None, columns: Sequence[str], schema: pa.Schema, _predicates: Predicates | None
) -> tuple[pa.Table, int]:
    """Columns of a file in the types of the schema, and the number of rows; predicates exclude nothing here.

    Columns that the file lacks are null.
    """
    content = csv_content(store, key, dataset)
    names = _header(content, key)
    present = [c for c in columns if c in names]
    for name in present:
        _check_carried(schema.field(name).type, name)
    with readable(store, key, dataset):
        table = _parsed(content, names, {c: schema.field(c).type for c in present} or {names[0]: pa.string()})
    arrays = [table.column(c) if c in present else pa.chunked_array([pa.nulls(table.num_rows, schema.field(c).type)]) for c in columns]
    return pa.table(arrays, names=list(columns)) if arrays else pa.table({}), table.num_rows


def _header(content: pa.Buffer, key: str) -> list[str]:
    try:
        names = next(csv.reader(io.TextIOWrapper(cast("BinaryIO", pa.BufferReader(content)), encoding="utf-8-sig", newline=""), delimiter=SEPARATOR), [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise CorruptData(f"The file {key!r} cannot be read: {error}") from error
    if not names or len(set(names)) != len(names):
        raise CorruptData(f"The file {key!r} needs a header in which each column occurs once; it has {names}.")
    return names


def _parsed(content: pa.Buffer, names: Sequence[str], kinds: Mapping[str, pa.DataType]) -> pa.Table:
    convert = pa_csv.ConvertOptions(
        column_types=dict(kinds),
        include_columns=list(kinds),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=len(names) == 1,
    )
    read = pa_csv.ReadOptions(use_threads=False, block_size=_BLOCK)
    parse = pa_csv.ParseOptions(delimiter=SEPARATOR, newlines_in_values=True)
    try:
        return pa_csv.read_csv(pa.BufferReader(content), read_options=read, parse_options=parse, convert_options=convert)
    except pa.ArrowInvalid as error:
        raise pa.ArrowInvalid(re.sub(r"CSV column #(\d+)", lambda match: f"column {names[int(match[1])]!r}", str(error))) from None
