"""The page index of a Parquet file: where its pages are, which rows they have, and their bounds.

Arrow writes the index, and does not read it. What is said here about bytes is from parquet.thrift
and the compact protocol of Thrift.

In order:

- the footer
- where the pages of a column are
- bounds of pages
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from threading import Lock
from typing import NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from kartothek_cube.core.arrow.keys import BoolArray, IntArray
from kartothek_cube.core.arrow.types import is_nested
from kartothek_cube.core.expressions.predicates import Bounds
from kartothek_cube.core.io.footers import (
    Bytes,
    ChunkBytes,
    Fields,
    Wanted,
    joined_digits,
    read_fields,
    read_number,
    read_varint,
)
from kartothek_cube.core.stores.contract import Span

# Fields of FileMetaData, RowGroup, ColumnChunk, ColumnMetaData and Statistics.
_ROWS, _GROUPS, _ENCRYPTION = 3, 4, 8
_CHUNKS, _GROUP_ROWS = 1, 3
_OTHER_FILE, _META, _LOCATIONS, _LOCATIONS_SIZE, _BOUNDS, _BOUNDS_SIZE, _CRYPTO, _ENCRYPTED = 1, 3, 4, 5, 6, 7, 8, 9
_TYPE, _CODEC, _UNPACKED, _PACKED, _DATA_AT, _DICTIONARY_AT, _STATISTICS = 1, 4, 6, 7, 9, 11, 12
_MAXIMUM, _MINIMUM = 5, 6


def _leaves(*fields: int) -> Wanted:
    return {field: {} for field in fields}


_META_FIELDS: Wanted = {
    **_leaves(_TYPE, _CODEC, _UNPACKED, _PACKED, _DATA_AT, _DICTIONARY_AT),
    _STATISTICS: _leaves(_MAXIMUM, _MINIMUM),
}
_CHUNK_FIELDS: Wanted = {
    **_leaves(_OTHER_FILE, _LOCATIONS, _LOCATIONS_SIZE, _BOUNDS, _BOUNDS_SIZE, _CRYPTO, _ENCRYPTED),
    _META: _META_FIELDS,
}
_WANTED: Wanted = {
    **_leaves(_ROWS, _ENCRYPTION),
    _GROUPS: {_CHUNKS: _CHUNK_FIELDS, **_leaves(_GROUP_ROWS)},
}
_BOOLEAN, _INT32, _INT64, _FLOAT, _DOUBLE, _BYTE_ARRAY, _FIXED = 0, 1, 2, 4, 5, 6, 7
_NUMBERS = {_INT32: "<i4", _INT64: "<i8", _FLOAT: "<f4", _DOUBLE: "<f8"}
# Bytes behind the index that reading whole words may touch.
_PADDING = bytes(8)


# A key of the key-value metadata, with the CRC of the bytes between data and footer, that of the
# footer, and where both begin: another program may copy the metadata to another file. Checksums of
# pages cover neither, and who trusts a damaged index or damaged statistics loses rows.
CHECKSUM, UNKNOWN_CHECKSUM = "kartothek_cube.page_index", "-" * 40
# The key and the length of the value as they are in a footer.
_BEFORE_DIGITS = b"\x18" + bytes([len(CHECKSUM)]) + CHECKSUM.encode() + b"\x18" + bytes([len(UNKNOWN_CHECKSUM)])


def seal(end: bytearray | memoryview, begin: int = 0) -> None:
    """Put checksums of index and footer into the end of a file, which begins somewhere in the file.

    Nothing happens without a place for them, which `UNKNOWN_CHECKSUM` holds.
    """
    size = int.from_bytes(end[-8:-4], "little")
    footer = bytes(end[-8 - size : -8])
    digits = _checksum_at(footer)
    if digits is None:
        return
    footer_at = begin + len(end) - 8 - size
    try:
        index = PageIndex(footer, footer_at, pa.schema([]), {})
    except Unfit:  # readers will find no checksums, and not use the index
        return
    places = f"{index.begin:012x}{footer_at:012x}".encode()
    found = _crc(bytes(end[index.begin - begin : footer_at - begin])) + _crc(footer) + places
    at = len(end) - 8 - size + digits
    end[at : at + len(found)] = found


def _checksum_at(footer: bytes) -> int | None:
    at = footer.rfind(_BEFORE_DIGITS)
    return at + len(_BEFORE_DIGITS) if at >= 0 else None


def _index_checksum(footer: bytes, begin: int, footer_at: int) -> bytes | None:
    """The checksum of an index that begins somewhere, if the footer has one.

    Raises
    ------
    Unfit
        If the checksum is of another file.
    pyarrow.ArrowInvalid
        If the footer has another checksum itself.
    """
    at = _checksum_at(footer)
    if at is None:
        return None
    stored = footer[at : at + len(UNKNOWN_CHECKSUM)]
    if stored[16:] != f"{begin:012x}{footer_at:012x}".encode():
        raise Unfit("A checksum of another file")
    plain = footer[:at] + UNKNOWN_CHECKSUM.encode() + footer[at + len(UNKNOWN_CHECKSUM) :]
    if stored[8:16] != _crc(plain):
        raise pa.ArrowInvalid("Its footer is damaged: it has another checksum than it says")
    return stored[:8]


def _crc(data: bytes) -> bytes:
    return f"{crc32(data):08x}".encode()


class Unfit(ValueError):
    """A file that is not for reads by pages; another reader says whether it is damaged."""


class Chunk(NamedTuple):
    """A column chunk: the dictionary, if it has one, from ``begin`` to ``data_at``, then its pages.

    It takes so many bytes ``unpacked``. ``locations`` and ``bounds`` are where offset index and
    column index are, ``extremes`` the minimum and the maximum of the statistics as they are stored.
    """

    content: ChunkBytes
    kind: int
    begin: int
    data_at: int
    end: int
    unpacked: int
    locations: Span
    bounds: Span | None
    extremes: tuple[bytes, bytes] | None


class Pages(NamedTuple):
    """The pages of a column in the whole file, in order.

    Attributes
    ----------
    rows : numpy.ndarray
        The row at which each page begins, counted through the file, and the end of the last one.
        Columns whose pages begin at the same rows have the same array.
    at, sizes : numpy.ndarray
        Where in the file each page is, with its header.
    groups : numpy.ndarray
        The first page of each row group, and the end of the last one.
    """

    rows: IntArray
    at: IntArray
    sizes: IntArray
    groups: IntArray


class PageIndex:
    """The structure of a file whose footer begins at ``footer_at``. Safe for threads.

    Attributes
    ----------
    head, tail : bytes
        The footer before its number of rows, and behind its row groups.
    schema : pyarrow.Schema
        What Arrow makes of the footer.
    plain : dict[str, int]
        The positions in a row group of columns that have a value for each row.
    rows : list[int]
        The rows of each row group.
    groups : list[list[Chunk]]
        The chunks of each row group.
    begin : int
        Where the index begins.

    Raises
    ------
    Unfit
        If the footer is encrypted, names other files, or has chunks without index.
    """

    def __init__(self, footer: bytes, footer_at: int, schema: pa.Schema, positions: Mapping[str, range]) -> None:
        self.schema, self._footer = schema, footer
        # Pages of nested columns do not always begin with a row.
        self.plain = {name: places[0] for name, places in positions.items() if not is_nested(schema.field(name).type)}
        try:
            found, _ = read_fields(footer, 0, _WANTED)
            if _ENCRYPTION in found:
                raise Unfit("An encrypted file")
            groups = found[_GROUPS]
            self.head, self.tail = footer[: found[_ROWS][0]], footer[groups.end :]
            self.rows = [_number(footer, group[_GROUP_ROWS]) for group in groups]
            self.groups = [[_chunk(footer, fields) for fields in group[_CHUNKS]] for group in groups]
        except (KeyError, IndexError, ValueError) as error:
            raise Unfit(str(error)) from None
        spans = [chunk.locations for group in self.groups for chunk in group]
        spans += [chunk.bounds for group in self.groups for chunk in group if chunk.bounds is not None]
        self.begin, self._end = min((begin for begin, _ in spans), default=footer_at), footer_at
        ends = [end for _, end in spans]
        if not spans or max(ends) > footer_at or min(self.rows) < 1 or len({*map(len, self.groups)}) > 1:
            raise Unfit("An index that is not before the footer")
        self._data, self._bytes = b"", np.empty(0, np.uint8)
        self._pages, self._rows, self._lock = dict[int, Pages](), list[IntArray](), Lock()
        self._found_bounds = dict[tuple[str, pa.DataType], Bounds]()

    def provide(self, data: bytes) -> None:
        """Take the bytes of the file from `begin` up to its footer.

        Raises
        ------
        Unfit
            If these are damaged, or the checksum is of another file.
        pyarrow.ArrowInvalid
            If the footer is not the one that was written.
        """
        if len(data) != self._end - self.begin:
            raise Unfit("A file that became shorter")
        checksum = _index_checksum(self._footer, self.begin, self._end)
        if checksum is not None and checksum != _crc(data):
            raise Unfit("A damaged index")
        self._footer = b""
        self._data = data + _PADDING
        self._bytes = np.frombuffer(self._data, np.uint8)

    @property
    def nbytes(self) -> int:
        """The memory that all of it may take."""
        return 2 * (self._end - self.begin) + 500 * sum(map(len, self.groups))

    @cached_property
    def row_bytes(self) -> list[int]:
        """An estimate of the memory that a value of the column at each position takes."""
        rows, columns = sum(self.rows), zip(*self.groups, strict=True)
        return [max(16 if c[0].kind == _BYTE_ARRAY else 8, sum(one.unpacked for one in c) // rows) for c in columns]

    def pages(self, positions: Sequence[int]) -> list[Pages]:
        """The pages of the columns at some positions."""
        missing = [j for j in positions if j not in self._pages]
        if missing:
            with self._lock:
                self._pages.update(zip(missing, self._located(missing), strict=True))
        return [self._pages[j] for j in positions]

    def _located(self, positions: Sequence[int]) -> list[Pages]:
        chunks = [group[j] for j in positions for group in self.groups]
        found = _locations(self._bytes, [(c.locations[0] - self.begin, c.locations[1] - self.begin) for c in chunks])
        count = len(self.groups)
        for i, (chunk, places) in enumerate(zip(chunks, found, strict=True)):
            _check_locations(chunk, places, self.rows[i % count], self.begin)
        return [self._joined(found[i : i + count]) for i in range(0, len(chunks), count)]

    def _joined(self, parts: Sequence[IntArray]) -> Pages:
        """The pages of all row groups."""
        starts = np.cumsum([0, *self.rows])
        firsts = [part[:, 2] + start for part, start in zip(parts, starts.tolist(), strict=False)]
        rows = np.concatenate([*firsts, starts[-1:]])
        same = next((known for known in self._rows if np.array_equal(known, rows)), None)
        if same is None:
            self._rows.append(rows)
        at, sizes = (np.concatenate([part[:, k] for part in parts]) for k in (0, 1))
        groups = np.cumsum([0, *map(len, parts)], dtype=np.int64)
        return Pages(rows if same is None else same, at, sizes, groups)

    def bounds(self, column: str, data_type: pa.DataType) -> Bounds:
        """The bounds of all pages of a plain column, in a type."""
        key = (column, data_type)
        if key not in self._found_bounds:
            self._found_bounds[key] = joined_bounds([self._group_bounds(g, *key) for g in range(len(self.groups))])
        return self._found_bounds[key]

    def _group_bounds(self, group: int, column: str, data_type: pa.DataType) -> Bounds:
        position, stored = self.plain[column], self.schema.field(column).type
        chunk, (pages,) = self.groups[group][position], self.pages([position])
        n = int(pages.groups[group + 1] - pages.groups[group])
        if chunk.bounds is not None:
            try:
                begin, end = (at - self.begin for at in chunk.bounds)
                found = _column_bounds(self._data[begin:end], n, chunk, stored)
                if found is not None:
                    low, high, has_null = found
                    return Bounds(low.cast(data_type), high.cast(data_type), has_null)
            except (IndexError, ValueError, OverflowError, pa.ArrowException):
                pass  # nothing is known
        nothing = pa.nulls(n, data_type)
        return Bounds(nothing, nothing, np.ones(n, dtype=bool))


def joined_bounds(parts: Sequence[Bounds]) -> Bounds:
    """The bounds of all chunks of several sequences of chunks."""
    if len(parts) == 1:
        return parts[0]
    low, high = (pa.concat_arrays([getattr(part, side) for part in parts]) for side in ("minimum", "maximum"))
    return Bounds(low, high, np.concatenate([part.has_null for part in parts]))


def _number(data: bytes, span: Span) -> int:
    return read_number(data, span[0])


def _chunk(footer: bytes, fields: Fields) -> Chunk:
    if fields.keys() & {_OTHER_FILE, _CRYPTO, _ENCRYPTED}:
        raise Unfit("Columns that are encrypted, or in other files")
    meta = fields[_META]
    data_at, has_dictionary = _number(footer, meta[_DATA_AT]), _DICTIONARY_AT in meta
    begin = _number(footer, meta[_DICTIONARY_AT]) if has_dictionary else data_at
    if has_dictionary and not 0 < begin < data_at:  # some writers say 0 where there is none
        raise Unfit("A dictionary behind its data")
    statistics = meta.get(_STATISTICS, {})
    ends = [_binary(footer, statistics[field][0])[0] for field in (_MINIMUM, _MAXIMUM) if field in statistics]
    literal = footer[meta[_TYPE][0] - 1 : meta[_CODEC][1]]
    bounds = _span(footer, fields, _BOUNDS, _BOUNDS_SIZE) if _BOUNDS in fields else None
    return Chunk(
        ChunkBytes(literal, has_dictionary),
        _number(footer, meta[_TYPE]),
        begin,
        data_at,
        begin + _number(footer, meta[_PACKED]),
        _number(footer, meta[_UNPACKED]),
        _span(footer, fields, _LOCATIONS, _LOCATIONS_SIZE),
        bounds,
        (ends[0], ends[1]) if len(ends) == 2 else None,
    )


def _span(footer: bytes, fields: Fields, at: int, size: int) -> Span:
    begin, length = _number(footer, fields[at]), _number(footer, fields[size])
    if begin < 4 or length < 1:
        raise Unfit("An index outside of the file")
    return begin, begin + length


def _binary(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = read_varint(data, at)
    if at + length > len(data):
        raise ValueError("A value that is longer than what it is in")
    return data[at : at + length], at + length


# --- where the pages of a column are --------------------------------------------------------------


# A PageLocation is always so many bytes below 128 with others before some of them: three numbers,
# the headers of their fields, and the end.
_TOKENS, _HEADERS = 7, {0: 0x16, 2: 0x15, 4: 0x16, 6: 0}
_MOST_DIGITS = 8


def _locations(data: Bytes, spans: Sequence[Span]) -> list[IntArray]:
    """Place, size and first row of the pages of some offset indices; each page is a line."""
    counts, starts = np.array([_list_of_locations(data, *span) for span in spans]).T
    ends = np.flatnonzero(data[: len(data) - len(_PADDING)] < 128)
    first = np.searchsorted(ends, starts)
    offsets = np.cumsum([0, *counts])
    tokens = np.repeat(first - _TOKENS * offsets[:-1], _TOKENS * counts) + np.arange(_TOKENS * offsets[-1])
    if tokens[-1] >= len(ends):
        raise Unfit("An offset index without end")
    end = ends[tokens].reshape(-1, _TOKENS) + 1
    begin = (ends[tokens - 1] + 1).reshape(-1, _TOKENS)
    begin[offsets[:-1], 0] = starts  # what is before may be 128 or more
    if not (end[offsets[1:] - 1, -1] < [e for _, e in spans]).all():
        raise Unfit("An offset index that does not end where it should")
    digits = end - begin
    is_sound = all((data[begin[:, k]] == header).all() and (digits[:, k] == 1).all() for k, header in _HEADERS.items())
    if not is_sound or digits.max() > _MOST_DIGITS:
        raise Unfit("An offset index of another kind")
    values = _numbers(data, begin[:, 1::2].ravel(), digits[:, 1::2].ravel()).reshape(-1, 3)
    return np.split(values, offsets[1:-1])


def _list_of_locations(data: Bytes, begin: int, end: int) -> tuple[int, int]:
    """The number of locations in an offset index, and where the first begins."""
    head = data[begin : begin + 16].tobytes()
    if end > len(data) or head[0] != 0x19 or head[1] & 15 != 12:
        raise Unfit("An offset index of another kind")
    count, size = (head[1] >> 4, 2) if head[1] >> 4 < 15 else read_varint(head, 2)
    if not 0 < count * _TOKENS < end - begin:
        raise Unfit("An offset index that is shorter than it says")
    return count, begin + size


def _numbers(data: Bytes, begin: IntArray, digits: IntArray) -> IntArray:
    """Signed numbers of so many digits of seven bits."""
    window = np.ndarray((len(data) - 7, 8), np.uint8, data, strides=(1, 1))
    words = window[begin].view("<u8").ravel()
    unused = (8 * (_MOST_DIGITS - digits)).astype(np.uint64)
    digits_only = np.uint64(0x7F7F7F7F7F7F7F7F) & (np.uint64(2**64 - 1) >> unused)
    values = joined_digits(words & digits_only)
    return (values >> np.uint64(1)).astype(np.int64) ^ -(values & np.uint64(1)).astype(np.int64)


def _check_locations(chunk: Chunk, places: IntArray, rows: int, limit: int) -> None:
    """Pages fill their chunk without gaps, and rows ascend from the first to the last."""
    at, sizes, first = places.T
    is_filled = at[0] == chunk.data_at and at[-1] + sizes[-1] == chunk.end and (at[:-1] + sizes[:-1] == at[1:]).all()
    is_inside = chunk.begin >= 4 and chunk.end <= limit and sizes.min() > 0
    ascends = first[0] == 0 and (np.diff(first) > 0).all() and first[-1] < rows
    if not (is_filled and is_inside and ascends):
        raise Unfit("An offset index that contradicts the footer")


# --- bounds of pages ------------------------------------------------------------------------------


_ASCENDING = 1


def _column_bounds(
    data: bytes, n: int, chunk: Chunk, stored: pa.DataType
) -> tuple[pa.Array, pa.Array, BoolArray] | None:
    """Least and greatest values of ``n`` pages, and which may have nulls; None if they are unknown.

    Raises
    ------
    ValueError, IndexError
        If the index contradicts itself or the statistics of the chunk.
    """
    at = _list_of(data, 0, n, (1, 2))
    empty = np.frombuffer(data, np.uint8, n, at) == 1
    low, at = _values(data, _list_of(data, at + n, n, (8,)), empty)
    high, at = _values(data, _list_of(data, at, n, (8,)), empty)
    if data[at] != 0x15:
        raise ValueError("A column index of another kind")
    order, at = read_number(data, at + 1), read_varint(data, at + 1)[1]
    has_null = np.ones(n, dtype=bool)
    if data[at] == 0x19:
        at = _list_of(data, at, n, (6,))
        for i in range(n):
            has_null[i], at = data[at] != 0, read_varint(data, at)[1]
    if pt.is_floating(stored):  # NaN counts as null, and is not in the bounds
        has_null[:] = True
    minimum, maximum = (_typed(side, empty, chunk.kind, stored) for side in (low, high))
    if minimum is None or maximum is None:
        return None
    _check_bounds(minimum, maximum, order, chunk, stored)
    return minimum, maximum, has_null


def _list_of(data: bytes, at: int, n: int, kinds: Sequence[int]) -> int:
    """Where the first item is of a list that has ``n`` of one of these types."""
    if data[at] != 0x19:
        raise ValueError("A column index of another kind")
    count, kind, at = data[at + 1] >> 4, data[at + 1] & 15, at + 2
    if count == 15:
        count, at = read_varint(data, at)
    if count != n or kind not in kinds:
        raise ValueError("A column index of another number of pages")
    return at


def _values(data: bytes, at: int, empty: BoolArray) -> tuple[Bytes | list[bytes], int]:
    """The values of all pages as they are stored, and where they end."""
    n, step = len(empty), data[at] + 1
    if 1 < step <= 17 and at + step * n <= len(data) and not empty.any():
        block = np.frombuffer(data, np.uint8, step * n, at).reshape(n, step)
        if (block[:, 0] == step - 1).all():
            return block[:, 1:], at + step * n
    found = list[bytes]()
    for _ in range(n):
        value, at = _binary(data, at)
        found.append(value)
    return found, at


def _typed(values: Bytes | list[bytes], empty: BoolArray, kind: int, data_type: pa.DataType) -> pa.Array | None:
    """Stored values in a type, null where a page has none; None for a type without order here."""
    if pt.is_dictionary(data_type):
        data_type = data_type.value_type
    if empty.all():
        return pa.nulls(len(empty), data_type)
    if kind == _BYTE_ARRAY:
        if not (pt.is_string(data_type) or pt.is_large_string(data_type) or pt.is_binary(data_type)):
            return None
        texts = [v.tobytes() for v in values] if isinstance(values, np.ndarray) else values
        return pa.array(texts, pa.binary(), mask=empty).cast(data_type)
    width = np.dtype(_NUMBERS[kind]).itemsize if kind in _NUMBERS else 1 if kind == _BOOLEAN else None
    block = _block(values, empty, width)
    found: pa.Array | None = None
    if pt.is_decimal128(data_type):
        found = _decimals(block if kind == _FIXED else block[:, ::-1], data_type)
    elif kind in _NUMBERS:
        numbers = np.ascontiguousarray(block).view(_NUMBERS[kind]).ravel()
        found = _as_type(numbers, data_type)
    elif kind == _BOOLEAN and pt.is_boolean(data_type):
        found = pa.array(block.ravel() != 0)
    else:
        return None
    return (
        found if found is None or not empty.any() else pc.if_else(pa.array(~empty), found, pa.scalar(None, found.type))
    )


def _block(values: Bytes | list[bytes], empty: BoolArray, width: int | None) -> Bytes:
    """Values of one width as lines of bytes."""
    if isinstance(values, list):
        width = max(map(len, values)) if width is None else width
        values = [bytes(width) if is_empty else value for value, is_empty in zip(values, empty.tolist(), strict=True)]
        if {*map(len, values)} != {width}:
            raise ValueError("Values of several widths")
        return np.frombuffer(b"".join(values), np.uint8).reshape(len(values), width)
    if width is not None and values.shape[1] != width:
        raise ValueError("Values of another width")
    return values


def _as_type(numbers: IntArray, data_type: pa.DataType) -> pa.Array | None:
    if pt.is_unsigned_integer(data_type):
        return pa.array(numbers.view(f"<u{numbers.itemsize}")).cast(data_type)
    if pt.is_integer(data_type):
        return pa.array(numbers).cast(data_type)
    is_number = pt.is_float32(data_type) or pt.is_float64(data_type) or pt.is_temporal(data_type)
    if not is_number or data_type.bit_width != 8 * numbers.itemsize or pt.is_date64(data_type):
        return None
    return pa.array(numbers).view(data_type)


def _decimals(block: Bytes, data_type: pa.DataType) -> pa.Array:
    """Decimals whose numbers have their most significant byte first."""
    wide = np.repeat(np.where(block[:, :1] & 128, 255, 0).astype(np.uint8), 16, axis=1)
    wide[:, : block.shape[1]] = block[:, ::-1]
    return pa.Array.from_buffers(data_type, len(wide), [None, pa.py_buffer(wide.tobytes())])


def _check_bounds(minimum: pa.Array, maximum: pa.Array, order: int, chunk: Chunk, stored: pa.DataType) -> None:
    """Bounds agree with each other, and with the statistics of the chunk."""
    low, high = minimum.drop_null(), maximum.drop_null()
    if pc.any(pc.less(high, low)).as_py():
        raise ValueError("A minimum above its maximum")
    if order == _ASCENDING and any(pc.any(pc.less(side[1:], side[:-1])).as_py() for side in (low, high)):
        raise ValueError("Bounds that do not ascend")
    if chunk.extremes is None or not len(low):
        return
    ends = _typed([*chunk.extremes], np.zeros(2, dtype=bool), chunk.kind, stored)
    if ends is None:
        return
    least, greatest = pc.min_max(low)["min"], pc.min_max(high)["max"]
    # Texts may be cut, so that the bounds are wider.
    is_text = chunk.kind == _BYTE_ARRAY
    below = pc.less_equal(least, ends[0]) if is_text else pc.equal(least, ends[0])
    above = pc.greater_equal(greatest, ends[1]) if is_text else pc.equal(greatest, ends[1])
    if not (below.as_py() and above.as_py()):
        raise ValueError("Bounds that contradict the statistics")
