"""Small Parquet files of one structure, described by one footer as if they were row groups of one.

Arrow takes as long to open a small file as to decode it. The footers of a dataset differ in few
numbers, which are found in all of them at once.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kartothek_cube.core.arrow.keys import BoolArray, IntArray
from kartothek_cube.core.io._fast.thrift_layout import (
    Bytes,
    Path,
    Pattern,
    Token,
    found_values,
    pattern_of,
    read_struct,
    read_varint,
)

__all__ = ["MAGIC", "FileLayout", "FileSpans", "Matches", "SchemaBytes", "joined_footer", "layout_of", "schema_head"]

MAGIC = b"PAR1"
# Fields of FileMetaData, RowGroup, ColumnChunk, ColumnMetaData and PageHeader in parquet.thrift.
_ROWS, _GROUPS, _COLUMNS, _GROUP_BYTES, _GROUP_ROWS = (3,), 4, (4, 0, 1), (4, 0, 2), (4, 0, 3)
_META, _OTHER_FILE = 3, 1
_TYPE, _CODEC, _VALUES, _UNPACKED, _PACKED, _DATA_AT, _DICTIONARY_AT = 1, 4, 5, 6, 7, 9, 11
_PAGE_TYPE, _PAGE_BYTES, _PAGE_VALUES = (1,), (3,), (5, 1)
_PAGE_LITERALS = {_PAGE_TYPE, (5, 2), (5, 3), (5, 4), (7, 2)}  # and encodings
_DATA_PAGE, _DICTIONARY_PAGE, _BYTE_ARRAY = 0, 2, 6
# A number may have needless digits: numbers of one width make row groups of one length.
_WIDTH = 5
_SHIFTS = 7 * np.arange(_WIDTH, dtype=np.int64)
_CONTINUED = np.array([128] * (_WIDTH - 1) + [0], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class SchemaBytes:
    """How footers begin that have one schema, none of whose columns is nested.

    Attributes
    ----------
    head : bytes
        The bytes before the number of rows.
    schema : pyarrow.Schema
        What Arrow makes of it.
    writer : str
        The program that wrote the files.
    """

    head: bytes
    schema: pa.Schema
    writer: str


@dataclass(frozen=True, slots=True)
class FileLayout:
    """The structure of files of one row group.

    Attributes
    ----------
    schema : SchemaBytes
        Files of one schema may have several layouts, e.g. columns with and without dictionaries.
    pattern : Pattern
        From the number of rows to the last number of the row group.
    group : Bytes
        A row group without statistics, whose numbers are missing.
    slots : dict[Path, int]
        Where these are.
    pages : list[list[Pattern]]
        For each column the headers of its pages: a dictionary, if it has one, and the only page of
        data. Columns of equal headers have the same object.
    """

    schema: SchemaBytes
    pattern: Pattern
    group: Bytes
    slots: dict[Path, int]
    pages: list[list[Pattern]]


class Matches(NamedTuple):
    """Which files have a layout; the rows and the row group of each, and where its tail begins."""

    good: BoolArray
    rows: IntArray
    groups: list[bytes]
    tails: IntArray


@dataclass(frozen=True, slots=True)
class FileSpans:
    """Files one behind the other: where each begins, and where its footer begins and ends."""

    data: Bytes
    starts: IntArray
    begins: IntArray
    ends: IntArray

    def match(self, files: Sequence[int], layout: FileLayout, positions: Sequence[int]) -> Matches | None:
        """Which of these files have a layout, and one page of all rows in columns at ``positions``.

        None if there are none.
        """
        starts, begins, ends = (places[files] for places in (self.starts, self.begins, self.ends))
        head = layout.schema.head
        numbers, tails, good = found_values(self.data, begins + len(head), layout.pattern)
        if not good.any():
            return None
        content = self.data.data
        good &= [content[begin : begin + len(head)] == head for begin in begins.tolist()]
        rows = numbers[_ROWS]
        good &= (tails < ends) & (rows >= 0) & (rows == numbers[_GROUP_ROWS])
        for pages in {id(layout.pages[i]): layout.pages[i] for i in positions}.values():
            columns = [(*_COLUMNS, i, _META) for i in positions if layout.pages[i] is pages]
            good &= self._have_pages(pages, columns, numbers, starts, begins)
        return Matches(good, rows, _row_groups(layout, numbers, starts), tails)

    def _have_pages(
        self,
        pages: Sequence[Pattern],
        columns: Sequence[Path],
        numbers: Mapping[Path, IntArray],
        starts: IntArray,
        limits: IntArray,
    ) -> BoolArray:
        """Whether chunks of columns are these pages and nothing else, with a value for each row."""

        # Otherwise rows of one file might be taken for rows of the next one.
        def numbers_of(n: int) -> IntArray:
            return np.stack([numbers[*column, n] for column in columns])

        data_at, values = starts + numbers_of(_DATA_AT), numbers_of(_VALUES)
        at = starts + numbers_of(_DICTIONARY_AT) if len(pages) > 1 else data_at
        end = at + numbers_of(_PACKED)
        good = (at >= starts) & (at < end) & (end <= limits) & (values == numbers[_ROWS])
        for pattern in pages:
            begin = at
            header, after, matches = found_values(self.data, np.maximum(begin, 0).ravel(), pattern)
            good &= matches.reshape(good.shape)
            if not good.any():
                break
            if _PAGE_VALUES in header:
                good &= (begin == data_at) & (header[_PAGE_VALUES].reshape(good.shape) == values)
            at = (after + header[_PAGE_BYTES]).reshape(good.shape)
        found: BoolArray = (good & (at == end)).all(axis=0)
        return found


def _row_groups(layout: FileLayout, numbers: dict[Path, IntArray], starts: IntArray) -> list[bytes]:
    """A row group for each file. Its places count from the begin of the first file."""
    places = (_DATA_AT, _DICTIONARY_AT)
    values = np.stack(
        [numbers[p] + starts if p[:3] == _COLUMNS and p[-1] in places else numbers[p] for p in layout.slots], axis=1
    )
    digits = ((2 * values)[:, :, None] >> _SHIFTS & 127) | _CONTINUED  # twice: thrift has the sign last
    slots = np.add.outer(list(layout.slots.values()), np.arange(_WIDTH)).ravel()
    found = np.tile(layout.group, (len(starts), 1))
    found[:, slots] = digits.reshape(len(starts), -1)
    packed, size = found.tobytes(), len(layout.group)
    return [packed[i : i + size] for i in range(0, len(packed), size)]


def joined_footer(schema: SchemaBytes, rows: int, groups: Sequence[bytes], tail: bytes) -> bytes:
    """The footer of a file that has these row groups, with what follows a footer."""
    footer = b"".join([schema.head, _varint(2 * rows), b"\x19", _list_of_structs(len(groups)), *groups, tail[1:]])
    return footer + len(footer).to_bytes(4, "little") + MAGIC


def _varint(value: int) -> bytes:
    digits = bytearray()
    while value > 127:
        digits.append(value & 127 | 128)
        value >>= 7
    return bytes([*digits, value])


def _list_of_structs(size: int) -> bytes:
    return bytes([size << 4 | 12]) if size < 15 else b"\xfc" + _varint(size)


# --- the layout of one file -----------------------------------------------------------------------


def schema_head(footer: bytes) -> bytes | None:
    """The bytes of a footer before its number of rows; None if they cannot be told."""
    try:
        return next(footer[: token.begin] for token in read_struct(footer, 0)[0] if token.path == _ROWS)
    except (IndexError, ValueError, StopIteration):
        return None


def layout_of(content: bytes, begin: int, schema: SchemaBytes, *, is_first: bool) -> FileLayout | None:
    """The layout of a file whose footer begins there; None if it has none that is known here.

    Such files have several row groups, several pages of a column, or pages of version 2.
    """
    try:
        found = [token for token in read_struct(content, begin)[0] if token.path[0] in (*_ROWS, _GROUPS)]
        columns = [(*_COLUMNS, i, _META) for i in range(len(schema.schema))]
        places = {token.path: token for token in found}
        if any(t.path[1:2] > (0,) or t.path[4:5] == (_OTHER_FILE,) for t in found) or len(found[-1].path) != 3:
            return None
        literals = {(*column, n) for column in columns for n in range(_TYPE, _CODEC + 1)}
        values = [token for token in found if token.path[:6] not in literals]
        fixed = {token.path for token in values if _is_fixed(content, token, places, is_first=is_first)}
        group, slots = _empty_row_group(content, columns, places)
        # The same object for equal pages: their headers are found at once.
        known, pages = dict[Hashable, list[Pattern]](), list[list[Pattern]]()
        for column in columns:
            found_pages = _pages(content, column, places)
            looks = tuple((*p.sizes, *p.paths, p.literal.tobytes(), p.mask.tobytes()) for p in found_pages)
            pages.append(known.setdefault(looks, found_pages))
        return FileLayout(
            schema,
            pattern_of(
                content,
                begin + len(schema.head),
                found[-1].end,
                [token for token in values if token.path not in fixed],
                [token for token in values if token.path in fixed],
            ),
            np.frombuffer(group, np.uint8),
            slots,
            pages,
        )
    except (IndexError, ValueError, KeyError):
        return None


def _empty_row_group(
    content: bytes, columns: Sequence[Path], places: Mapping[Path, Token]
) -> tuple[bytes, dict[Path, int]]:
    """A row group without numbers, and where each of them belongs."""
    group, slots = bytearray(b"\x19" + _list_of_structs(len(columns))), dict[Path, int]()

    def number(path: Path, last: int) -> None:
        group.append((path[-1] - last) << 4 | 6)
        slots[path] = len(group)
        group.extend(bytes(_WIDTH))

    for column in columns:
        group += b"\x26\x00\x1c"  # the place of the same metadata elsewhere, which nobody reads
        group += content[places[*column, _TYPE].begin - 1 : places[*column, _CODEC].end]
        last = _CODEC
        for n in (_VALUES, _UNPACKED, _PACKED, _DATA_AT, _DICTIONARY_AT):
            if n != _DICTIONARY_AT or (*column, n) in places:
                number((*column, n), last)
                last = n
        group += b"\x00\x00"
    number(_GROUP_BYTES, 1)
    number(_GROUP_ROWS, 2)
    return bytes(group + b"\x00"), slots


def _pages(content: bytes, column: Path, places: Mapping[Path, Token]) -> list[Pattern]:
    """The headers of a column's pages."""
    has_dictionary, pages = (*column, _DICTIONARY_AT) in places, list[Pattern]()
    begin = _number(content, places[*column, _DICTIONARY_AT if has_dictionary else _DATA_AT])
    for kind in (_DICTIONARY_PAGE, _DATA_PAGE) if has_dictionary else (_DATA_PAGE,):
        found, end = read_struct(content, begin)
        numbers = {token.path: _number(content, token) for token in found}
        if numbers[_PAGE_TYPE] != kind or (_PAGE_VALUES in numbers) != (kind == _DATA_PAGE):
            raise ValueError("Pages of another kind")
        pages.append(pattern_of(content, begin, end, (token for token in found if token.path not in _PAGE_LITERALS)))
        begin = end + numbers[_PAGE_BYTES]
    return pages


def _is_fixed(content: bytes, token: Token, places: Mapping[Path, Token], *, is_first: bool) -> bool:
    """Whether nobody needs a value, and it has the same length in other files."""
    is_chunk = token.path[:3] == _COLUMNS and token.path[4:5] == (_META,)
    if not is_chunk or len(token.path) == 6:
        return False
    if token.is_number:  # a count, e.g. of nulls, and probably none
        return is_first and token.end == token.begin + 1
    return _number(content, places[*token.path[:5], _TYPE]) != _BYTE_ARRAY


def _number(content: bytes, token: Token) -> int:
    value, _ = read_varint(content, token.begin)
    return value >> 1
