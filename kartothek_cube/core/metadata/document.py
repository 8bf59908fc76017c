"""The version-4 document as a value: parsing from bytes, rendering to bytes.

In order:

- partitions of regular form, by NumPy and Arrow: no Python object for each label
- partition values: typed columns from keys, texts of values in keys
- the member ``partitions``
- the document
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeAlias, TypeVar, cast

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
import zstandard
from msgspec import Struct

from kartothek_cube.core.arrow.keys import IntArray
from kartothek_cube.core.metadata.index import positions_among
from kartothek_cube.core.metadata.naming import quote, unquote
from kartothek_cube.core.runtime.options import uses_fast_paths
from kartothek_cube.errors import CorruptDocument, InvalidInput, InvalidType, Unsupported

ParsedPartitions: TypeAlias = tuple[pa.Array, dict[str, pa.Array]]
"""Labels, and for each table the key of its file."""

_Numbers = np.ndarray[Any, np.dtype[np.int64]]
_Bytes = np.ndarray[Any, np.dtype[np.uint8]]

_QUOTE, _BACKSLASH, _SLASH = 0x22, 0x5C, 0x2F
_FIRST_BEYOND_ASCII = 0x80
# The first entry is parsed to know the form of all others; a longer one is not regular.
_HEAD = 16 * 1024
_LABEL = re.compile(r'\s*\{\s*"[^"]*"\s*:\s*')
_LARGEST = 2**31 - 1
# Characters that JSON repeats as they are. For fewer entries Python is faster than Arrow.
_PLAIN = re.compile(r"[ !#-\[\]-\x7f]*")
_MANY = 500


def _positions_of_byte(data: bytes | memoryview, byte: int) -> _Numbers:
    return np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == byte)


class _ByteSlices:
    """The bytes between one bound and the next, ``width`` pieces a row."""

    def __init__(self, data: bytes | memoryview | pa.Buffer, bounds: _Numbers, width: int) -> None:
        large = len(data) > _LARGEST
        self._width = width
        offsets = pa.py_buffer(np.ascontiguousarray(bounds, dtype=np.int64 if large else np.int32))
        self._pieces = pa.Array.from_buffers(
            pa.large_binary() if large else pa.binary(), len(bounds) - 1, [None, offsets, pa.py_buffer(data)]
        )

    def column(self, number: int) -> pa.Array:
        """One piece of every row, as bytes."""
        return self._pieces.take(pa.array(np.arange(number, len(self._pieces), self._width)))

    def texts(self, number: int) -> pa.Array:
        """One piece of every row, as text; an Arrow error for bytes that are not UTF-8."""
        return self.column(number).cast(pa.string())


def _constant(column: pa.Array) -> bytes | None:
    """The value that all pieces of a column have, None if they differ."""
    if not len(column):
        return b""
    return column[0].as_py() if pc.all(pc.equal(column, column[0])).as_py() else None


# --- JSON -----------------------------------------------------------------------------------------


def cut_json(raw: bytes | memoryview) -> ParsedPartitions | None:
    """The partitions, if the bytes between the texts are the same in all entries; else None.

    Raises
    ------
    pyarrow.ArrowException
        If a text is not UTF-8.
    """
    tables = _first_tables(bytes(raw[:_HEAD]))
    if not tables or (np.frombuffer(raw, dtype=np.uint8) == _BACKSLASH).any():
        return None
    # Without backslashes every second quote ends a text: per entry the label, the word "files",
    # and for each table its name and its key.
    quotes, period = _positions_of_byte(raw, _QUOTE), 4 + 4 * len(tables)
    if len(quotes) % period:
        return None
    begins = [0, *range(6, period, 4)]
    entries = quotes.reshape(-1, period)
    bounds = np.stack([entries[:, begins] + 1, entries[:, [b + 1 for b in begins]]], axis=2).ravel()
    pieces = _ByteSlices(raw, np.append(bounds, len(raw)), 2 * len(begins))
    if not _is_regular(bytes(raw[: bounds[0]]), pieces, tables):
        return None
    labels, *keys = (pieces.texts(2 * i) for i in range(len(begins)))
    # JSON requires control characters to be escaped: the parser refuses these bytes.
    for texts in (labels, *keys):
        _, offsets, data = texts.buffers()
        end = np.frombuffer(offsets, dtype=np.int32)[len(texts)]
        if (np.frombuffer(data or b"", dtype=np.uint8)[:end] < ord(" ")).any():
            return None
    return labels, dict(zip(tables, keys, strict=True))


def _first_tables(head: bytes) -> list[str]:
    """The tables of the first entry; empty if it is irregular or longer than the head."""
    text = head.decode("utf-8", "replace")
    label = _LABEL.match(text)
    try:
        files = json.JSONDecoder().raw_decode(text, label.end())[0]["files"] if label else None
    except (ValueError, LookupError, TypeError, RecursionError):
        return []
    return list(files) if isinstance(files, dict) else []  # the parser reports other types


def _is_regular(start: bytes, pieces: _ByteSlices, tables: Sequence[str]) -> bool:
    """Whether a parser would find these texts."""
    # The bytes around the texts are the same in all entries. Joined to a document of two entries
    # with short texts, a parser has to find just these.
    around = [pieces.column(2 * i + 1) for i in range(1 + len(tables))]
    end = around[-1][-1].as_py()
    constants = [*map(_constant, around[:-1]), _constant(around[-1][:-1])]
    between = [constant for constant in constants if constant is not None]
    if len(between) < len(constants):
        return False
    entries = [str(i).encode().join([b"", *between[:-1], b""]) for i in range(min(2, len(around[-1])))]
    expected = {str(i): {"files": dict.fromkeys(tables, str(i))} for i in range(len(entries))}
    try:
        return bool(msgspec.json.decode(start + between[-1].join(entries) + end) == expected)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def join_json(labels: pa.Array, table: str, keys: pa.Array) -> memoryview | None:
    """The JSON entries of partitions of one table; None if a text has to be escaped."""
    if keys.null_count:
        return None
    if len(labels) < _MANY:
        few, name = list(zip(labels.to_pylist(), keys.to_pylist(), strict=True)), json.dumps(table)
        if not _PLAIN.fullmatch("".join(label + key for label, key in few)):
            return None
        texts = (f'"{label}": {{"files": {{{name}: "{key}"}}}}' for label, key in few)
        return memoryview(", ".join(texts).encode())
    if not (_needs_no_escape(labels) and _needs_no_escape(keys)):
        return None
    large = pa.large_string()
    start, middle, end, nothing = (
        pa.scalar(t, large) for t in ('"', f'": {{"files": {{{json.dumps(table)}: "', '"}}, ', "")
    )
    entries = pc.binary_join_element_wise(start, labels.cast(large), middle, keys.cast(large), end, nothing)
    return _data(entries)[:-2]  # without the last comma


def _needs_no_escape(texts: pa.Array) -> bool:
    data = np.frombuffer(_data(texts.cast(pa.large_string())), dtype=np.uint8)
    if not len(data):
        return True
    ascii_only = int(data.min()) >= ord(" ") and int(data.max()) < _FIRST_BEYOND_ASCII
    return ascii_only and not any((data == sign).any() for sign in (_QUOTE, _BACKSLASH))


def _data(texts: pa.Array) -> memoryview:
    """The bytes of all texts of a ``large_string`` array, one after the other."""
    first, last = np.frombuffer(texts.buffers()[1], dtype=np.int64)[[texts.offset, texts.offset + len(texts)]]
    return memoryview(texts.buffers()[2] or b"")[first:last]


# --- msgpack --------------------------------------------------------------------------------------


def cut_msgpack(raw: bytes | memoryview) -> ParsedPartitions | None:
    """As `cut_json`, for the msgpack encoding."""
    first = _first_packed(bytes(raw[:_HEAD]))
    if first is None:
        return None
    count, start, marker, names, tables = first
    text = np.frombuffer(raw, dtype=np.uint8)
    # The end of each label, since the marker follows it.
    label_ends = np.flatnonzero(text[:-2] == marker[0])
    for i in range(1, 3):
        label_ends = label_ends[text[label_ends + i] == marker[i]]
    if len(label_ends) != count:
        return None
    # Constants and keys alternate: the marker with the first table, then the names of the other
    # tables.
    bounds, position = [label_ends], label_ends
    for name in (marker, *names):
        begins, ends = _texts_at(text, position + len(name))
        if (ends < 0).any():
            return None
        bounds += [position + len(name), begins, ends]
        position = ends
    label_begins, parsed_ends = _texts_at(text, np.concatenate(([start], position[:-1])))
    if position[-1] != len(text) or not np.array_equal(parsed_ends, label_ends):
        return None
    width = len(bounds) + 1
    pieces = _ByteSlices(raw, np.append(np.stack([label_begins, *bounds], axis=1).ravel(), len(text)), width)
    if any(_constant(pieces.column(1 + 3 * i)) != name for i, name in enumerate((marker, *names))):
        return None
    return pieces.texts(0), {table: pieces.texts(3 + 3 * i) for i, table in enumerate(tables)}


def _first_packed(head: bytes) -> tuple[int, int, bytes, list[bytes], list[str]] | None:
    """The form of the map, from its first entry; None if it is irregular.

    The number of entries, the position of the first label, the marker (the bytes between a label
    and its first key), the encoded names of the other tables, and the names of all tables.
    """
    try:
        count, start = _map_at(head, 0)
        _, label_end = _text_at(head, start)
        one, position = _map_at(head, label_end)
        name, position = _text_at(head, position)
        size, position = _map_at(head, position)
        tables, spans = [], [(label_end, label_end)]
        for _ in range(size):
            table, after = _text_at(head, position)
            tables.append(table.decode())
            spans.append((position, after))
            _, position = _text_at(head, after)
    except (ValueError, IndexError):
        return None
    if one != 1 or name != b"files" or not count or not size or len({*tables}) < size:
        return None
    return count, start, head[label_end : spans[1][1]], [head[a:b] for a, b in spans[2:]], tables


def _map_at(data: bytes, position: int) -> tuple[int, int]:
    """The number of pairs of a map, and the position of the first one."""
    head = data[position]
    size = {0xDE: 2, 0xDF: 4}.get(head)
    if size is None:
        if head >> 4 != 0x8:
            raise ValueError("no map")
        return head & 0x0F, position + 1
    return int.from_bytes(data[position + 1 : position + 1 + size], "big"), position + 1 + size


def _text_at(data: bytes, position: int) -> tuple[bytes, int]:
    """The text at a position, and its end; a `ValueError` if there is none or it is incomplete."""
    begin, end = (int(bound[0]) for bound in _texts_at(np.frombuffer(data, dtype=np.uint8), np.array([position])))
    if end < begin or end > len(data):
        raise ValueError("no text")
    return data[begin:end], end


def _texts_at(text: _Bytes, positions: _Numbers) -> tuple[_Numbers, _Numbers]:
    """First byte and end of the texts at some positions; the end is -1 where there is no text."""
    last = len(text) - 1
    head, one, two = (text[np.minimum(positions + i, last)].astype(np.int64) for i in range(3))
    forms = [head >> 5 == 0b101, head == 0xD9, head == 0xDA]  # fixstr, str 8, str 16
    begins = positions + np.select(forms, [1, 2, 3], 0)
    ends = begins + np.select(forms, [head & 0x1F, one, one << 8 | two], 0)
    return begins, np.where(np.logical_or.reduce(forms) & (ends <= len(text)), ends, -1)


# --- file keys ------------------------------------------------------------------------------------


def cut_keys(keys: pa.Array, columns: Sequence[str]) -> list[pa.Array] | None:
    """The values of columns in file keys; None if a key is irregular.

    A regular key is ``<uuid>/<table>/<column>=<value>/…/<file>``. ``columns`` and values are quoted
    as in keys.

    Raises
    ------
    pyarrow.ArrowException
        If a value is not UTF-8.
    """
    if not len(keys) or keys.null_count:
        return None
    _, offsets, data = keys.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[keys.offset : keys.offset + len(keys) + 1]
    slashes = ends[0] + _positions_of_byte(memoryview(data)[ends[0] : ends[-1]], _SLASH)
    if len(slashes) != len(keys) * (len(columns) + 2):
        return None
    slashes = slashes.reshape(len(keys), -1)
    prefixes = [f"{column}=".encode() for column in columns]
    begins, values = slashes[:, 1:-1] + 1, slashes[:, 1:-1] + 1 + np.array([len(p) for p in prefixes])
    if (slashes[:, 0] < ends[:-1]).any() or (slashes[:, -1] >= ends[1:]).any() or (values > slashes[:, 2:]).any():
        return None
    # For each column the prefix, the value, and the slash up to the next prefix.
    bounds = np.append(np.stack([begins, values, slashes[:, 2:]], axis=2).ravel(), ends[-1])
    pieces = _ByteSlices(data, bounds, 3 * len(columns))
    if any(_constant(pieces.column(3 * i)) != prefix for i, prefix in enumerate(prefixes)):
        return None
    return [pieces.texts(3 * i + 1) for i in range(len(columns))]


# --- partition values -----------------------------------------------------------------------------


def partition_type(data_type: pa.DataType) -> pa.DataType:
    """The type of a partition column: numbers have 64 bits, as their text has no width."""
    if pt.is_integer(data_type):
        return pa.uint64() if pt.is_unsigned_integer(data_type) else pa.int64()
    return pa.float64() if pt.is_floating(data_type) else data_type


def dataset_schema(schema: pa.Schema, partition_on: Sequence[str]) -> pa.Schema:
    """The schema of a dataset, its partition columns widened: paths keep only text."""
    return pa.schema([pa.field(f.name, partition_type(f.type)) if f.name in partition_on else f for f in schema])


def partition_text(value: Any, data_type: pa.DataType) -> str | bytes:
    """The text of one value, unquoted."""
    if pt.is_floating(data_type):
        return repr(float(value))
    if pt.is_timestamp(data_type) and data_type.tz is not None:
        raise Unsupported("A timestamp with a zone cannot be a partition column; store it without zone.")
    if any(is_type(data_type) for is_type in (pt.is_timestamp, pt.is_date, pt.is_integer, pt.is_boolean)):
        return str(value)
    if not (pt.is_string(data_type) or pt.is_binary(data_type)):
        raise Unsupported(f"A column of type {data_type} cannot be a partition column.")
    if isinstance(value, bytes):
        try:
            value.decode("utf-8")
        except UnicodeDecodeError:
            raise Unsupported(f"Bytes that are not UTF-8 cannot be partition values, got {value!r}.") from None
    text: str | bytes = value
    return text


def partition_table(keys: pa.Array, columns: Sequence[str], schema: pa.Schema, dataset: str) -> pa.Table:
    """One column per partition key, row *i* decoded from the file key of partition *i*."""
    if not columns:
        return pa.table({"": np.zeros(len(keys), dtype=np.int8)}).select([])
    unknown = [c for c in columns if c not in schema.names]
    if unknown:
        raise CorruptDocument(
            f"Dataset {dataset} is partitioned by columns that its schema lacks: {', '.join(unknown)}. "
            f"The schema has {schema.names}."
        )
    try:
        quoted = cut_keys(keys, [quote(column) for column in columns]) if uses_fast_paths() else None
        texts = _cut(keys, columns, schema, dataset) if quoted is None else list(map(_unquoted, quoted))
    except UnicodeDecodeError as error:
        raise CorruptDocument(
            f"A partition value of the columns {list(columns)} of dataset {dataset} is no UTF-8 text: {error}"
        ) from None
    arrays = [_typed(text, schema.field(c).type, c, dataset) for c, text in zip(columns, texts, strict=True)]
    return pa.table(dict(zip(columns, arrays, strict=True)))


def _unquoted(texts: pa.Array) -> pa.Array:
    if not pc.any(pc.match_substring(texts, "%")).as_py():
        return texts
    encoded = texts.dictionary_encode()
    return pa.array([unquote(t) for t in encoded.dictionary.to_pylist()], type=pa.string()).take(encoded.indices)


def _cut(keys: pa.Array, columns: Sequence[str], schema: pa.Schema, dataset: str) -> list[pa.Array]:
    """The text of each column's values in any key; null for a partition without a file."""
    # Folders that name no column are skipped.
    regex = "[^/]+/[^/]+/(?:[^/]*/)*?"
    for column in columns:
        # An old writer left slashes in texts: a text ends at the next column, any other value at
        # the next slash.
        textual = pt.is_string(schema.field(column).type) or pt.is_binary(schema.field(column).type)
        last = column == columns[-1]
        value = ("(.*)/" if last else "(.*?)/") if textual else "([^/]*)/(?:[^/]*/)*?"
        regex += f"{re.escape(quote(column))}={value}"
    pattern = re.compile(f"{regex}[^/]*$")
    rows: list[list[str | None]] = []
    for key in keys.to_pylist():
        match = pattern.match(key) if key is not None else None
        if match is None and key is not None:
            raise CorruptDocument(
                f"The file key {key!r} of dataset {dataset} does not name the partition columns {list(columns)}."
            )
        rows.append([unquote(text) for text in match.groups()] if match else [None] * len(columns))
    return [pa.array([row[i] for row in rows], type=pa.string()) for i in range(len(columns))]


def _typed(texts: pa.Array, data_type: pa.DataType, column: str, dataset: str) -> pa.Array:
    data_type = partition_type(data_type)
    if pt.is_null(data_type) and texts.null_count < len(texts):
        raise CorruptDocument(
            f"The partition column {column!r} of dataset {dataset} has values, "
            f"but its schema says that it is {data_type}."
        )
    if pt.is_string(data_type) or pt.is_null(data_type):
        return texts
    try:
        return _cast(texts, data_type)
    except (pa.ArrowException, ValueError) as error:
        raise CorruptDocument(
            f"A partition value of column {column!r} of dataset {dataset} cannot be read as {data_type}: {error}"
        ) from None


def _cast(texts: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Texts as Arrow reads them, or, where it cannot, each distinct text as Python reads it."""
    # Arrow reads numbers as truth values, and accepts a year 0.
    has_year_0 = pt.is_temporal(data_type) and pc.any(pc.starts_with(texts, "0000")).as_py()
    if not (pt.is_boolean(data_type) or has_year_0):
        try:
            return (pc.utf8_slice_codeunits(texts, 0, 10) if pt.is_date(data_type) else texts).cast(data_type)
        except pa.ArrowException:
            if pt.is_integer(data_type):
                raise
    encoded = texts.dictionary_encode()
    distinct, read = encoded.dictionary, _READ.get(data_type.id)
    values = distinct.cast(data_type) if read is None else pa.array(map(read, distinct.to_pylist()), type=data_type)
    return values.take(encoded.indices)


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{text!r} is neither True nor False")
    return text.lower() == "true"


def _moment(text: str) -> dt.datetime:
    """A datetime without zone; where the column has one, Arrow reads it as UTC."""
    moment = dt.datetime.fromisoformat(text)
    return moment if moment.tzinfo is None else moment.astimezone(dt.UTC).replace(tzinfo=None)


def _day(text: str) -> dt.date:
    return dt.date.fromisoformat(text[:10])


_READ: dict[int, Callable[[str], Any]] = {
    pa.bool_().id: _truth,
    pa.timestamp("us").id: _moment,
    pa.date32().id: _day,
    pa.date64().id: _day,
    pa.float64().id: float,
}


# --- the member partitions ------------------------------------------------------------------------


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PartitionColumns:
    """Labels and, for each table, file keys; row *i* of every column belongs to partition *i*.

    A partition that lacks a file for a table has a null there.
    """

    labels: pa.Array
    files: Mapping[str, pa.Array]
    # The result of `fingerprint`, which reads all labels and keys, for several steps of a commit.
    known_fingerprint: str | None = field(default=None, init=False, repr=False, compare=False)
    _derived: dict[Any, tuple[Any, Any]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.labels)

    def __reduce__(self) -> tuple[Any, ...]:
        return PartitionColumns, (self.labels, self.files)

    def derived(self, name: Hashable, source: object, make: Callable[[], T]) -> T:
        """Memoized ``make()``, recomputed when ``source`` is a different object."""
        entry = self._derived.get(name)
        if entry is None or entry[0] is not source:
            entry = self._derived[name] = (source, make())
        return entry[1]

    def positions(self, names: pa.Array) -> IntArray:
        """For each name the position of the partition with this label, -1 where there is none."""
        return positions_among(names, self.labels)

    def places(self, labels: pa.DictionaryArray) -> IntArray:
        """For each label of an index the position of its partition, -1 where there is none."""
        codes, names = labels.indices.to_numpy(), labels.dictionary
        if len(codes) < len(names):
            used, inverse = np.unique(codes, return_inverse=True)
            codes, names = inverse.ravel(), names.take(pa.array(used))
        positions: IntArray = self.positions(names)[codes]
        return positions

    def file_column(self, table: str) -> pa.Array:
        """The file keys of one table, all null for a table that is unknown."""
        return self.files[table] if table in self.files else pa.nulls(len(self), pa.string())

    def take(self, positions: object) -> PartitionColumns:
        """The partitions at these positions."""
        picked = pa.array(positions, type=pa.int64())
        return PartitionColumns(self.labels.take(picked), {t: f.take(picked) for t, f in self.files.items()})


def empty_partitions() -> PartitionColumns:
    """No partition at all."""
    return PartitionColumns(pa.array([], type=pa.string()), {})


# --- bytes to columns -----------------------------------------------------------------------------


# TypeError: older versions of msgspec raise it for a key that is a map.
_UNPARSED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError, TypeError)


class _Entry(Struct, gc=False):
    files: dict[str, str]


def decode_partitions(raw: bytes | memoryview, context: str, *, msgpack: bool = False) -> PartitionColumns:
    """Columns from the bytes of the member; ``context`` names the document in errors."""
    # The regular form has files of the same tables for every label and no escaped text. It is cut
    # at the positions of its texts, without a Python object per label. The rest needs a parser.
    if uses_fast_paths():
        try:
            cut = cut_msgpack(raw) if msgpack else cut_json(raw)
        except pa.ArrowException:  # the parser reports the position
            cut = None
        if cut is not None and len(cut[0].unique()) == len(cut[0]):
            return PartitionColumns(*cut)
    decode: Any = msgspec.msgpack.decode if msgpack else msgspec.json.decode
    try:
        entries = decode(raw, type=dict[str, _Entry])
    except _UNPARSED:
        pass  # the general form reports what is wrong
    else:
        return _columns(list(entries), [entry.files for entry in entries.values()], context)
    try:
        mapping = decode(raw)
    except _UNPARSED as error:
        raise CorruptDocument(f"The partitions of the document {context} cannot be parsed: {error}") from error
    return from_mapping(mapping, context)


def from_mapping(partitions: object, context: str) -> PartitionColumns:
    """Columns from the parsed member ``{label: {"files": {table: key}}}``."""
    if not isinstance(partitions, dict):
        raise CorruptDocument(
            f"The member 'partitions' of the document {context} should be a map, but is {type(partitions).__name__}."
        )
    every = []
    for label, entry in partitions.items():
        files = entry.get("files") if isinstance(entry, dict) else None
        if (
            not isinstance(label, str)
            or not isinstance(files, dict)
            or not all(isinstance(text, str) for pair in files.items() for text in pair)
        ):
            raise CorruptDocument(
                f"Partition {label!r} of the document {context} names no files; expected {{'files': {{table: key}}}}."
            )
        every.append(files)
    return _columns(list(partitions), every, context)


def _columns(labels: list[str], files: list[dict[str, str]], context: str) -> PartitionColumns:
    tables = dict.fromkeys(chain.from_iterable(files))
    try:
        return PartitionColumns(_texts(labels), {t: _texts([f.get(t) for f in files]) for t in tables})
    except (pa.ArrowTypeError, UnicodeEncodeError) as error:
        raise CorruptDocument(f"A label or key of the document {context} is no text: {error}") from error


def _texts(texts: Sequence[str | None]) -> pa.Array:
    array = cast("pa.Array | pa.ChunkedArray", pa.array(texts, type=pa.string()))
    if isinstance(array, pa.ChunkedArray):
        raise Unsupported("The labels or keys of a dataset take more than 2 GiB.")
    return array


# --- columns to bytes -----------------------------------------------------------------------------


def encoded_pieces(columns: PartitionColumns) -> tuple[bytes | memoryview, ...]:
    """The JSON of the member in pieces, in the order of the labels."""
    # In pieces, since it may be long, and joining it to the document copies it anyway.
    if len(columns.files) == 1 and len(columns) and uses_fast_paths():
        ((table, keys),) = columns.files.items()
        entries = join_json(columns.labels, table, keys)
        if entries is not None:
            return b"{", entries, b"}"
    return (json.dumps(to_mapping(columns)).encode(),)


def to_mapping(columns: PartitionColumns) -> dict[str, Any]:
    """The member as Python objects."""
    lists = {t: f.to_pylist() for t, f in columns.files.items()}
    labels = columns.labels.to_pylist()
    return {label: {"files": {t: f[i] for t, f in lists.items() if f[i] is not None}} for i, label in enumerate(labels)}


# --- the document ---------------------------------------------------------------------------------


# Documents shrink by a factor of 3 to 130, including the most regular labels at the highest level.
# A result above the floor with a larger ratio is a bomb.
_FLOOR = 32 * 2**20

_RATIO = 250

_CEILING = 4 * 2**30

# No frame grows by more than a factor of 32,768, so a piece yields 128 MiB at most.
_PIECE = 4096


def decompress(data: bytes) -> bytes:
    """The content of one zstd frame.

    Memory and time are bounded by the size of the frame, whatever its header says.

    Raises
    ------
    ValueError
        If the bytes are not one whole zstd frame, or the content has more than 32 MiB and 250 times
        the size of the frame, or more than 4 GiB.

    Examples
    --------
    >>> decompress(zstandard.compress(b"sales"))
    b'sales'
    """
    limit = min(max(_FLOOR, _RATIO * len(data)), _CEILING)
    try:
        size = zstandard.frame_content_size(data)
        if size > limit:
            raise _too_large(data, limit)
        if size < 0:  # the header does not name a size
            return _piecewise(data, limit)
        return zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from error


def _piecewise(data: bytes, limit: int) -> bytes:
    frame = zstandard.ZstdDecompressor().decompressobj()
    parts: list[bytes] = []
    total = 0
    for start in range(0, len(data), _PIECE):
        if frame.eof:
            raise ValueError("the frame is followed by something else")
        parts.append(frame.decompress(data[start : start + _PIECE]))
        total += len(parts[-1])
        if total > limit:
            raise _too_large(data, limit)
    if not frame.eof or frame.unused_data:
        raise ValueError("the frame is cut off, or followed by something else")
    return b"".join(parts)


def _too_large(data: bytes, limit: int) -> ValueError:
    return ValueError(f"{len(data):,} bytes would unpack to more than {limit:,}")


VERSION = 4

OWN_PREFIX = "kartothek_cube."
LAYOUT_KEY = f"{OWN_PREFIX}layout"
DROPPED_KEY = f"{OWN_PREFIX}dropped"
# Whether the dataset is published as a Delta table, and whether after each commit.
DELTA_KEY = f"{OWN_PREFIX}delta"
# Of the library's own entries those that describe a state: tags and copies have them, too.
STATE_KEYS = (LAYOUT_KEY, DROPPED_KEY)

# More deeply nested values can be parsed, but neither copied nor rendered again.
_DEEPEST = 100


def check_version(version: object) -> None:
    """Raise `Unsupported` for versions of the format other than 4."""
    if not isinstance(version, int) or version != VERSION:
        raise Unsupported(f"Only metadata version {VERSION} is supported, not {version!r}.")


class Document(Struct, frozen=True):
    """One metadata document.

    Attributes
    ----------
    uuid : str
        The dataset.
    metadata : Mapping[str, Any]
        The whole member, with the library's own entries under ``kartothek_cube.``.
    partition_keys : tuple of str | None
        None if the document leaves them to the paths of the files.
    indices : Mapping[str, Any]
        Column → key of its index file, or, in old documents, an embedded map value → labels.
    partitions : PartitionColumns | None
        None for an implicit dataset, whose partitions are found by listing the store.
    """

    uuid: str
    metadata: Mapping[str, Any] = {}
    partition_keys: tuple[str, ...] | None = ()
    indices: Mapping[str, Any] = {}
    partitions: PartitionColumns | None = None

    @property
    def files(self) -> set[str]:
        """Keys of the data files that it names."""
        columns = () if self.partitions is None else self.partitions.files.values()
        return {key for column in columns for key in column.drop_null().to_pylist()}

    @property
    def index_files(self) -> set[str]:
        """Keys of the index files that it names."""
        return {key for key in self.indices.values() if isinstance(key, str)}

    @property
    def user_metadata(self) -> dict[str, Any]:
        """A copy of the metadata without the library's own entries."""
        return deepcopy({k: v for k, v in self.metadata.items() if not str(k).startswith(OWN_PREFIX)})


class _Members(Struct):
    dataset_metadata_version: Any = msgspec.UNSET
    dataset_uuid: Any = msgspec.UNSET
    indices: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    partitions: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    partition_keys: list[str] | msgspec.UnsetType | None = msgspec.UNSET


def parse_document(data: bytes, key: str) -> Document:
    """Parse the bytes of a document. Its ``key`` names it in errors, and the suffix its encoding.

    Raises
    ------
    CorruptDocument
        If the bytes are not a document, or a mandatory member is missing.
    Unsupported
        If the format version is not 4.
    """
    msgpack = key.endswith(".zstd")
    try:
        if msgpack:
            members = msgspec.msgpack.decode(decompress(data), type=_Members)
        else:
            members = msgspec.json.decode(data, type=_Members)
    # TypeError: older versions of msgspec raise it for a key that is a map.
    except (msgspec.DecodeError, ValueError, TypeError, RecursionError) as error:
        raise CorruptDocument(f"The document {key} cannot be parsed: {error}") from error
    # Before the partitions, which may have another form in another version.
    _check_members(members, key)
    raw = members.partitions
    if isinstance(raw, msgspec.UnsetType):
        return _document(members, None)
    return _document(members, decode_partitions(memoryview(raw), key, msgpack=msgpack))


def document_from_mapping(plain: object, context: str) -> Document:
    """The document that a map of its members describes; errors as of `parse_document`."""
    rest = dict(plain) if isinstance(plain, dict) else plain
    partitions = rest.pop("partitions", msgspec.UNSET) if isinstance(rest, dict) else msgspec.UNSET
    try:
        members = msgspec.convert(rest, _Members)
    except msgspec.ValidationError as error:
        raise CorruptDocument(f"The document {context} cannot be parsed: {error}") from error
    _check_members(members, context)
    return _document(members, None if partitions is msgspec.UNSET else from_mapping(partitions, context))


def _check_members(members: _Members, key: str) -> None:
    version = members.dataset_metadata_version
    if isinstance(version, bool) or not isinstance(version, int):
        raise CorruptDocument(f"The document {key} has no integer 'dataset_metadata_version'.")
    if version < VERSION:
        raise Unsupported(f"Minimal supported metadata version is {VERSION}. The document {key} has version {version}.")
    if version > VERSION:
        raise Unsupported(
            f"Future metadata version `{version}` encountered in {key}; this library knows version {VERSION}."
        )
    if not isinstance(members.dataset_uuid, str):
        raise CorruptDocument(f"The document {key} has no 'dataset_uuid'.")
    keys = members.partition_keys or []
    if len({*keys}) != len(keys):
        raise CorruptDocument(f"The document {key} names a partition key twice: {keys}.")
    if _is_deep([members.metadata, members.indices]):
        raise CorruptDocument(f"The metadata or indices of the document {key} are nested more than {_DEEPEST} deep.")


def _is_deep(value: object) -> bool:
    level = [value]
    for _ in range(_DEEPEST + 1):
        level = [
            inner for v in level if isinstance(v, (dict, list)) for inner in (v.values() if isinstance(v, dict) else v)
        ]
        if not level:
            return False
    return True


def _document(members: _Members, partitions: PartitionColumns | None) -> Document:
    keys = members.partition_keys
    return Document(
        uuid=members.dataset_uuid,
        metadata=members.metadata or {},
        partition_keys=None if keys is None or isinstance(keys, msgspec.UnsetType) else tuple(keys),
        indices=members.indices or {},
        partitions=partitions,
    )


def render_document(document: Document, *, msgpack: bool = False) -> bytes:
    """The bytes of a document, with members in kartothek's order."""
    if msgpack:
        return zstandard.compress(msgspec.msgpack.encode(_members(document, with_partitions=True)))
    text = json.dumps(_members(document, with_partitions=False)).encode()
    if document.partitions is None:
        return text
    # The partitions, which have an encoder of their own, come before the keys or the last brace.
    name = b', "partition_keys": ' if document.partition_keys is not None else b"}"
    before, after = text.rsplit(name, 1)
    return b"".join((before, b', "partitions": ', *encoded_pieces(document.partitions), name, after))


def _members(document: Document, *, with_partitions: bool) -> dict[str, Any]:
    members: dict[str, Any] = {"dataset_metadata_version": VERSION, "dataset_uuid": document.uuid}
    if document.indices:
        members["indices"] = dict(document.indices)
    members["metadata"] = dict(document.metadata)
    if with_partitions and document.partitions is not None:
        members["partitions"] = to_mapping(document.partitions)
    if document.partition_keys is not None:
        members["partition_keys"] = list(document.partition_keys)
    return members


def check_user_metadata(metadata: object, context: str) -> dict[str, Any]:
    """User metadata as JSON returns it, after checks: JSON can hold it, and no name is reserved."""
    if not isinstance(metadata, dict):
        raise InvalidType(f"The metadata of {context} should be a dict but is {type(metadata).__name__}.")
    reserved = sorted(str(k) for k in metadata if str(k).startswith(OWN_PREFIX))
    if reserved:
        raise InvalidInput(
            f"The metadata of {context} uses names that the library keeps for itself: {', '.join(reserved)}."
        )
    try:
        plain: dict[str, Any] = json.loads(json.dumps(metadata, allow_nan=False))
    except TypeError as error:
        raise InvalidType(f"The metadata of {context} cannot be written as JSON: {error}.") from None
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"The metadata of {context} cannot be written as JSON: {error}.") from None
    if _is_deep([plain]):
        raise InvalidInput(f"The metadata of {context} are nested more than {_DEEPEST} deep.")
    return plain
