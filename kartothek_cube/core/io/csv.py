"""CSV: tables to text, and text to tables in the types of the dataset.

kartothek's dialect: ``;``, UTF-8, a header, ``True`` and ``False``.
"""

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

from kartothek_cube.core.arrow.types import stored_type
from kartothek_cube.core.io.formats import CSV_GZIP_SUFFIX, CSV_SUFFIX, FileFormat, as_table, readable
from kartothek_cube.core.runtime.telemetry import record
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.errors import CorruptData, InvalidType, Unsupported

SEPARATOR = ";"
_ROWS = 65_536
# A row has to fit into a block.
_BLOCK = 64 * 2**20
# The years 1 to 9999, in microseconds and in days since 1970: others do not have four digits.
_MOMENTS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
_DAYS = (-719_162, 2_932_896)
_CARRIED = (
    pt.is_null,
    pt.is_boolean,
    pt.is_integer,
    pt.is_floating,
    pt.is_decimal,
    pt.is_string,
    pt.is_date,
    pt.is_time,
    pt.is_timestamp,
)


@dataclass(frozen=True, slots=True)
class CsvFormat(FileFormat):
    r"""CSV files as kartothek writes and reads them.

    Fields are separated by ``;``, the first line is a header, an empty field is null.

    Text is quoted where necessary. Empty text is always quoted, to tell it from null. Types come
    from the dataset when it is read.

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
    >>> table = pa.table({"COUNTRY_CODE": ["DE", None], "UNITS": [3, 4]})
    >>> CsvFormat(compress=False).encode(table).to_pybytes()
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
        if not len(schema):
            raise Unsupported("CSV cannot carry a table without columns; use Parquet.")
        for field in schema:
            _check_carried(field.type, field.name)

    def encode(self, table: pa.Table) -> pa.Buffer:
        sink = io.BytesIO()
        self.write_stream([table], table.schema, sink)
        return pa.py_buffer(sink.getbuffer())

    def write_stream(self, batches: Iterable[pa.RecordBatch | pa.Table], schema: pa.Schema, sink: Any) -> int:
        self.check(schema)
        if not self.compress:
            return _write(batches, schema, sink)
        with gzip.GzipFile(filename="", fileobj=sink, mode="wb", compresslevel=6, mtime=0) as packed:
            return _write(batches, schema, packed)


def _check_carried(data_type: pa.DataType, name: str) -> None:
    if not any(carries(stored_type(data_type)) for carries in _CARRIED):
        raise Unsupported(
            f"Column {name!r} is {data_type}, which CSV cannot carry: its text does not say the value. Use Parquet."
        )


# --- writing --------------------------------------------------------------------------------------


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
    """The rows as bytes."""
    # They are the data of an Arrow array of texts that end with a line feed: no copy, no Python
    # object per row.
    if not batch.num_rows:
        return b""
    fields = [_fields(column, name) for name, column in zip(batch.schema.names, batch.columns, strict=True)]
    if len(fields) == 1:  # readers skip an empty line, so null is written like empty text
        column, name = batch.column(0), batch.schema.names[0]
        if pt.is_string(stored_type(column.type)) and pc.any(pc.equal(fields[0], _text('""'))).as_py():
            raise Unsupported(
                f"Column {name!r} is the only one of a CSV file and has empty text, which could not be told from null. "
                "Use Parquet."
            )
        fields = [pc.fill_null(fields[0], _text('""'))]
    rows = pc.binary_join_element_wise(*fields, _text(SEPARATOR), null_handling="replace", null_replacement="")
    lines = pc.binary_join_element_wise(rows, _text(""), _text("\n"))
    return memoryview(lines.buffers()[2])[: pc.sum(pc.binary_length(lines)).as_py()]


def _text(value: str) -> pa.Scalar:
    return pa.scalar(value, pa.large_string())


def _fields(column: pa.Array, name: str) -> pa.Array:
    """The text of each value, null for null."""
    data_type = stored_type(column.type)
    if pt.is_string(data_type):
        text = column.cast(pa.large_string())
        special = pc.match_substring_regex(text, f'[{SEPARATOR}"\r\n]|^$')
        doubled = pc.replace_substring(text, '"', '""')
        return pc.if_else(special, pc.binary_join_element_wise(_text('"'), doubled, _text('"'), _text("")), text)
    # In UTC, as the text of a zone's offset has no seconds, but offsets of long ago do.
    column = column.cast(pa.timestamp("us", "UTC") if pt.is_timestamp(data_type) and data_type.tz else data_type)
    if pt.is_boolean(data_type):
        return pc.if_else(column, _text("True"), _text("False"))
    if pt.is_timestamp(data_type) or pt.is_date(data_type):
        days = pt.is_date(column.type)
        ticks = pc.min_max(column.cast(pa.int32() if days else pa.int64()))
        low, high = _DAYS if days else _MOMENTS
        if ticks["min"].is_valid and not (low <= ticks["min"].as_py() and ticks["max"].as_py() <= high):
            raise Unsupported(
                f"Column {name!r} has moments outside the years 1 to 9999, which CSV cannot carry. Use Parquet."
            )
    text = column.cast(pa.string()).cast(pa.large_string())
    # As pandas writes floats, so that it does not read them back as integers.
    return pc.replace_substring_regex(text, r"^(-?\d+)$", r"\1.0") if pt.is_floating(data_type) else text


# --- reading --------------------------------------------------------------------------------------


def csv_content(store: Store, key: str, dataset: str | None) -> pa.Buffer:
    """The text of a CSV file."""
    with readable(store, key, dataset):
        data = pa.py_buffer(store.get(key))
        record(files_read=1, bytes_read=data.size)
        return pa.CompressedInputStream(pa.BufferReader(data), "gzip").read_buffer() if key.endswith(".gz") else data


def count_csv_rows(store: Store, key: str, dataset: str) -> int:
    """Number of rows of a file, which is read whole for it."""
    return read_csv_inside(store, key, dataset, (), pa.schema([]))[1]


def read_csv_inside(
    store: Store,
    key: str,
    dataset: str | None,
    columns: Sequence[str],
    schema: pa.Schema,
) -> tuple[pa.Table, int]:
    """All rows of some columns of a file, in the types of the schema, and the number of rows.

    Columns that the file lacks are null.
    """
    content = csv_content(store, key, dataset)
    text = io.TextIOWrapper(cast("BinaryIO", pa.BufferReader(content)), encoding="utf-8-sig", newline="")
    try:
        names = next(csv.reader(text, delimiter=SEPARATOR), [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise CorruptData(f"The file {key!r} cannot be read: {error}") from error
    if not names or len(set(names)) != len(names):
        raise CorruptData(f"The file {key!r} needs a header in which each column occurs once; it has {names}.")
    present = [c for c in columns if c in names]
    for name in present:
        _check_carried(schema.field(name).type, name)
    with readable(store, key, dataset):
        table = _parsed(content, names, {c: schema.field(c).type for c in present} or {names[0]: pa.string()})
    arrays = [
        table.column(c) if c in present else pa.chunked_array([pa.nulls(table.num_rows, schema.field(c).type)])
        for c in columns
    ]
    return pa.table(arrays, names=list(columns)) if arrays else pa.table({}), table.num_rows


def _parsed(content: pa.Buffer, names: Sequence[str], types: Mapping[str, pa.DataType]) -> pa.Table:
    convert = pa_csv.ConvertOptions(
        column_types=dict(types),
        include_columns=list(types),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=len(names) == 1,
    )
    read = pa_csv.ReadOptions(use_threads=False, block_size=_BLOCK)
    parse = pa_csv.ParseOptions(delimiter=SEPARATOR, newlines_in_values=True)
    try:
        return pa_csv.read_csv(
            pa.BufferReader(content), read_options=read, parse_options=parse, convert_options=convert
        )
    except pa.ArrowInvalid as error:  # which counts columns, where users know names
        raise pa.ArrowInvalid(
            re.sub(r"CSV column #(\d+)", lambda match: f"column {names[int(match[1])]!r}", str(error))
        ) from None
