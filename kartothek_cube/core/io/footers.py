"""The bytes of Parquet footers: read, followed in many files at once, and made.

In order:

- thrift of many files at once: the bytes that all share, and the numbers between them
- some fields of a struct
- footers of files that are put together in memory
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from msgspec import Struct

from kartothek_cube.core.arrow.keys import BoolArray, IntArray

# Ids of fields and places in lists, from the outermost struct inwards.
Path = tuple[int, ...]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]

_BOOLEANS, _BYTE, _INTEGERS, _DOUBLE, _BINARY, _LIST, _STRUCT = (1, 2), 3, (4, 5, 6), 7, 8, 9, 12
# A number takes at most so many bytes here, which is more than any that is sound.
_WORD = 8
_ONE, _STOPS = np.uint64(1), np.uint64(0x8080808080808080)
# Neighbouring digits of 7, 14 and 28 bits become one.
_ROUNDS = [
    (np.uint64(low), np.uint64(high), np.uint64(shift))
    for low, high, shift in (
        (0x007F007F007F007F, 0x7F007F007F007F00, 1),
        (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
        (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
    )
]


class Token(NamedTuple):
    """A number or some bytes, and where they begin and end."""

    path: Path
    begin: int
    end: int
    is_number: bool


class Pattern(Struct, frozen=True):
    """Bytes that files have in common, and the numbers and bytes of any length between them.

    Attributes
    ----------
    sizes : list[int]
        How many common bytes there are before each value, and behind the last one.
    paths : list[Path]
        The paths of the values.
    are_numbers : list[bool]
        Whether each value is a number.
    steps, offsets : numpy.ndarray
        For each common byte the number of values before it, and its distance from the last one.
    literal, mask : numpy.ndarray
        The common bytes, and which of their bits matter.
    """

    sizes: list[int]
    paths: list[Path]
    are_numbers: list[bool]
    steps: IntArray
    offsets: IntArray
    literal: Bytes
    mask: Bytes


def read_struct(data: bytes, at: int, path: Path = ()) -> tuple[list[Token], int]:
    """The numbers and binaries of a struct in their order, and where it ends.

    Raises
    ------
    IndexError
        If the struct has no end.
    ValueError
        If it has values of other types.
    """
    found, number = list[Token](), 0
    while header := data[at]:
        at += 1
        if header >> 4:
            number += header >> 4
        else:
            zigzag, at = read_varint(data, at)
            number = zigzag >> 1
        if header & 15 not in _BOOLEANS:
            inner, at = _read_value(data, at, header & 15, (*path, number))
            found += inner
    return found, at + 1


def _read_value(data: bytes, at: int, kind: int, path: Path) -> tuple[list[Token], int]:
    if kind == _STRUCT:
        return read_struct(data, at, path)
    if kind == _LIST:
        header, at = data[at], at + 1
        size, at = (header >> 4, at) if header >> 4 < 15 else read_varint(data, at)
        found = list[Token]()
        for i in range(size):
            inner, at = _read_value(data, at, header & 15, (*path, i))
            found += inner
        return found, at
    if kind == _BYTE:  # e.g. the width of an integer, which files of one schema have in common
        return [], at + 1
    if kind not in (*_INTEGERS, _BINARY):
        raise ValueError(f"Values of type {kind}")
    length, end = read_varint(data, at)
    end += length if kind == _BINARY else 0
    return [Token(path, at, end, kind != _BINARY)], end


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """A number, and where it ends."""
    value = shift = 0
    while (byte := data[at]) >= 128:
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
    return value | byte << shift, at + 1


def pattern_of(data: bytes, begin: int, end: int, varying: Iterable[Token], fixed: Iterable[Token] = ()) -> Pattern:
    """What the bytes between two places have in common with those of other files.

    They differ in the ``varying`` tokens, and in those of ``fixed`` length, which nobody needs.
    """
    literal, mask = np.frombuffer(data[begin:end], np.uint8), np.full(end - begin, 255, dtype=np.uint8)
    for token in fixed:
        # Of a number of one byte, the first bit says that there is no other.
        mask[token.begin - begin : token.end - begin] = 128 if token.is_number else 0
    sizes, paths, numbers, kept = list[int](), list[Path](), list[bool](), np.ones(end - begin, dtype=bool)
    steps, at = np.zeros(end - begin, dtype=np.int64), begin
    for path, start, stop, is_number in varying:
        kept[start - begin : stop - begin] = False
        steps[stop - begin :] += 1
        sizes.append(start - at)
        paths.append(path)
        numbers.append(is_number)
        at = stop
    steps, begins = steps[kept], np.cumsum([0, *np.bincount(steps[kept], minlength=len(sizes) + 1)])
    offsets = np.arange(len(steps)) - begins[steps]
    return Pattern(
        [*sizes, end - at],
        paths,
        numbers,
        steps,
        offsets[:, None],
        (literal & mask)[kept][:, None],
        mask[kept][:, None],
    )


def found_values(data: Bytes, at: IntArray, pattern: Pattern) -> tuple[dict[Path, IntArray], IntArray, BoolArray]:
    """Follow the pattern from several places: the numbers, the ends, and which places match.

    Of places that do not match, numbers and ends mean nothing. ``data`` are never left, ``at`` is
    not negative.
    """
    last, begins, words = len(data) - _WORD, list[IntArray](), list[np.ndarray[Any, np.dtype[np.uint64]]]()
    matches = np.full(len(at), last >= 0)
    if last < 0:
        return {}, at, matches
    window = np.ndarray((last + 1, _WORD), np.uint8, data, strides=(1, 1))
    for size, is_number in zip(pattern.sizes, pattern.are_numbers, strict=False):
        begins.append(at)
        at = at + size
        word = window[np.minimum(at, last)].view("<u8").ravel()
        stops = ~word & _STOPS
        matches &= stops != 0
        stop = stops & -stops
        words.append(word & (stop - _ONE))
        at = at + (np.log2(np.maximum(stop, _ONE)).astype(np.int64) + 1 >> 3)
        if not is_number:
            at = at + joined_digits(words[-1]).astype(np.int64)
    begins.append(at)
    places = np.minimum(np.stack(begins)[pattern.steps] + pattern.offsets, len(data) - 1)
    matches &= ((data[places] & pattern.mask) == pattern.literal).all(axis=0)
    values = joined_digits(np.stack(words)) if words else np.zeros((0, len(at)), dtype=np.uint64)
    signed = (values >> _ONE).astype(np.int64) ^ -(values & _ONE).astype(np.int64)
    return dict(zip(pattern.paths, signed, strict=True)), at + pattern.sizes[-1], matches


def joined_digits(words: np.ndarray[Any, np.dtype[np.uint64]]) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Numbers whose digits of seven bits are one a byte."""
    for low, high, shift in _ROUNDS:
        words = words & low | (words & high) >> shift
    return words


# --- some fields of a struct ----------------------------------------------------------------------


Wanted: TypeAlias = "Mapping[int, Wanted]"
"""Fields of a struct by id, with those that are wanted of a struct or of a list of structs."""

Fields: TypeAlias = dict[int, Any]
"""Where the value of each field begins and ends; `Fields` of a struct, `Structs` of a list."""


class Structs(list[Fields]):
    """The fields of each struct in a list, and where the list ends."""

    end = 0


def read_fields(data: bytes, at: int, wanted: Wanted) -> tuple[Fields, int]:
    """Some fields of a struct, and where it ends.

    Raises
    ------
    IndexError
        If the struct has no end.
    ValueError
        If it has values that no footer has.
    """
    found, number = Fields(), 0
    while header := data[at]:
        at += 1
        if header >> 4:
            number += header >> 4
        else:
            zigzag, at = read_varint(data, at)
            number = zigzag >> 1
        inner = wanted.get(number)
        if inner is None:
            at = _skipped(data, at, header & 15)
        elif not inner:
            end = _skipped(data, at, header & 15)
            found[number], at = (at, end), end
        elif header & 15 == _STRUCT:
            found[number], at = read_fields(data, at, inner)
        else:
            size, kind, at = _list_header(data, at, header & 15)
            if kind != _STRUCT:
                raise ValueError(f"A list of type {kind} where one of structs belongs")
            found[number] = items = Structs()
            for _ in range(size):
                item, at = read_fields(data, at, inner)
                items.append(item)
            items.end = at
    return found, at + 1


def _skipped(data: bytes, at: int, kind: int, *, in_list: bool = False) -> int:
    """Where a value ends."""
    if kind in _INTEGERS:
        while data[at] >= 128:
            at += 1
        return at + 1
    if kind in _BOOLEANS:
        return at + in_list
    if kind == _BINARY:
        length, at = read_varint(data, at)
        return at + length
    if kind == _STRUCT:
        while header := data[at]:
            at = _skipped(data, at + 1 if header >> 4 else read_varint(data, at + 1)[1], header & 15)
        return at + 1
    if kind == _LIST:
        size, item, at = _list_header(data, at, kind)
        for _ in range(size):
            at = _skipped(data, at, item, in_list=True)
        return at
    if kind in (_BYTE, _DOUBLE):
        return at + (1 if kind == _BYTE else 8)
    raise ValueError(f"Values of type {kind}")


def _list_header(data: bytes, at: int, kind: int) -> tuple[int, int, int]:
    """The size of a list, the type of its items, and where these begin."""
    if kind != _LIST:
        raise ValueError(f"A value of type {kind} where a list belongs")
    header, at = data[at], at + 1
    size, at = (header >> 4, at) if header >> 4 < 15 else read_varint(data, at)
    if size > len(data):
        raise ValueError("A list that is longer than the footer")
    return size, header & 15, at


def read_number(data: bytes, at: int) -> int:
    """A signed number."""
    value, _ = read_varint(data, at)
    return value >> 1 ^ -(value & 1)


# --- footers of files that are put together in memory ---------------------------------------------


MAGIC = b"PAR1"
# Fields of ColumnMetaData in parquet.thrift.
_CODEC, _VALUES, _UNPACKED, _PACKED, _DATA_AT, _DICTIONARY_AT = 4, 5, 6, 7, 9, 11
# A number may have needless digits: numbers of one width make row groups of one length.
_WIDTH = 5
_SHIFTS = 7 * np.arange(_WIDTH, dtype=np.int64)
_CONTINUED = np.array([128] * (_WIDTH - 1) + [0], dtype=np.int64)
MOST_BYTES = 2 ** (7 * _WIDTH - 1)
"""Numbers in a `RowGroupTemplate` are smaller."""


class ChunkBytes(NamedTuple):
    """A column chunk without numbers: its type, encodings, path and codec as they are stored."""

    literal: bytes
    has_dictionary: bool


class RowGroupTemplate(Struct, frozen=True, eq=False):
    """A row group without statistics, whose numbers are missing.

    These are, of each column that is there, the number of values, the unpacked and the packed
    bytes, where data begin, and where the dictionary, if it has one; then all bytes, and rows.
    """

    content: Bytes
    slots: IntArray

    @classmethod
    def of(cls, chunks: Sequence[ChunkBytes | None]) -> RowGroupTemplate:
        """A row group of these chunks; None for a column that nobody reads."""
        content, slots = bytearray(b"\x19" + _list_of_structs(len(chunks))), list[int]()

        def number(field: int, last: int) -> None:
            content.append((field - last) << 4 | 6)
            slots.append(len(content))
            content.extend(bytes(_WIDTH))

        for chunk in chunks:
            content += b"\x26\x00"  # the place of the same metadata elsewhere, which nobody reads
            if chunk is not None:
                content += b"\x1c" + chunk.literal
                numbers = (_CODEC, _VALUES, _UNPACKED, _PACKED, _DATA_AT, _DICTIONARY_AT)
                for last, field in pairwise(numbers if chunk.has_dictionary else numbers[:-1]):
                    number(field, last)
                content.append(0)
            content.append(0)
        number(2, 1)
        number(3, 2)
        content.append(0)
        return cls(np.frombuffer(bytes(content), np.uint8), np.array(slots))

    def filled(self, numbers: IntArray) -> list[bytes]:
        """A row group for each line of numbers."""
        digits = ((2 * numbers)[:, :, None] >> _SHIFTS & 127) | _CONTINUED  # twice: thrift has the sign last
        found = np.tile(self.content, (len(numbers), 1))
        found[:, np.add.outer(self.slots, np.arange(_WIDTH)).ravel()] = digits.reshape(len(numbers), -1)
        packed, size = found.tobytes(), len(self.content)
        return [packed[i : i + size] for i in range(0, len(packed), size)]


def joined_footer(head: bytes, rows: int, groups: Sequence[bytes], tail: bytes) -> bytes:
    """The end of a file that has these row groups between the ``head`` and ``tail`` of a footer."""
    footer = b"".join([head, _varint(2 * rows), b"\x19", _list_of_structs(len(groups)), *groups, tail])
    return footer + len(footer).to_bytes(4, "little") + MAGIC


def _varint(value: int) -> bytes:
    digits = bytearray()
    while value > 127:
        digits.append(value & 127 | 128)
        value >>= 7
    return bytes([*digits, value])


def _list_of_structs(size: int) -> bytes:
    return bytes([size << 4 | 12]) if size < 15 else b"\xfc" + _varint(size)
