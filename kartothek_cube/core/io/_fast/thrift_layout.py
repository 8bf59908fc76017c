"""Thrift of many files at once: values of equal structure, found without a parser for each file.

The structure of one file says which bytes all files have and where the numbers between them are.
What differs from it in any other way does not match.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from kartothek_cube.core.arrow.keys import BoolArray, IntArray

__all__ = ["Bytes", "Path", "Pattern", "Token", "found_values", "pattern_of", "read_struct", "read_varint"]

# Ids of fields and places in lists, from the outermost struct inwards.
Path = tuple[int, ...]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]

_BOOLEANS, _BYTE, _INTEGERS, _BINARY, _LIST, _STRUCT = (1, 2), 3, (4, 5, 6), 8, 9, 12
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


@dataclass(frozen=True, slots=True)
class Pattern:
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
            at = at + _joined_digits(words[-1]).astype(np.int64)
    begins.append(at)
    places = np.minimum(np.stack(begins)[pattern.steps] + pattern.offsets, len(data) - 1)
    matches &= ((data[places] & pattern.mask) == pattern.literal).all(axis=0)
    values = _joined_digits(np.stack(words)) if words else np.zeros((0, len(at)), dtype=np.uint64)
    signed = (values >> _ONE).astype(np.int64) ^ -(values & _ONE).astype(np.int64)
    return dict(zip(pattern.paths, signed, strict=True)), at + pattern.sizes[-1], matches


def _joined_digits(words: np.ndarray[Any, np.dtype[np.uint64]]) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Numbers whose digits of seven bits are one a byte."""
    for low, high, shift in _ROUNDS:
        words = words & low | (words & high) >> shift
    return words
