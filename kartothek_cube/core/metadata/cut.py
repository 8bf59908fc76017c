"""Partitions of regular form, cut out of the bytes of a document by positions found with NumPy, without one Python object per label."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Cut", "Pieces", "constant", "cut_json", "cut_msgpack", "positions_of_byte"]

Cut: TypeAlias = tuple[pa.Array, dict[str, pa.Array]]
"""Labels, and for each table the key of its file."""

_Numbers = np.ndarray[Any, np.dtype[np.int64]]
_Bytes = np.ndarray[Any, np.dtype[np.uint8]]

_QUOTE, _BACKSLASH = 0x22, 0x5C
_HEAD = 16 * 1024
_LABEL = re.compile(r'\s*\{\s*"[^"]*"\s*:\s*')
_LARGEST = 2**31 - 1


def positions_of_byte(data: Any, byte: int) -> _Numbers:
    """Where a byte stands."""
    return np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == byte)


class Pieces:
    """What lies between one bound and the next, ``width`` pieces a row."""

    def __init__(self, data: bytes | memoryview, bounds: _Numbers, width: int) -> None:
        large = len(data) > _LARGEST
        self._width = width
        offsets = pa.py_buffer(np.ascontiguousarray(bounds, dtype=np.int64 if large else np.int32))
        self._pieces = pa.Array.from_buffers(pa.large_binary() if large else pa.binary(), len(bounds) - 1, [None, offsets, pa.py_buffer(data)])

    def column(self, number: int) -> pa.Array:
        """One piece of every row, as bytes."""
        return self._pieces.take(pa.array(np.arange(number, len(self._pieces), self._width)))

    def texts(self, number: int) -> pa.Array:
        """The same as text; an Arrow error for what is none."""
        return self.column(number).cast(pa.string())


def constant(column: pa.Array) -> bytes | None:
    """What all pieces of a column are, if they are one."""
    if not len(column):
        return b""
    return column[0].as_py() if pc.all(pc.equal(column, column[0])).as_py() else None


# --- JSON -------------------------------------------------------------------------------------------------------------


def cut_json(raw: bytes | memoryview) -> Cut | None:
    """The partitions, if between the texts of all entries stands the same; None for what only a parser can read.

    Raises
    ------
    pyarrow.ArrowException
        If a text is no UTF-8.
    """
    tables = _first_tables(bytes(raw[:_HEAD]))
    if not tables or (np.frombuffer(raw, dtype=np.uint8) == _BACKSLASH).any():
        return None
    quotes, period = positions_of_byte(raw, _QUOTE), 4 + 4 * len(tables)
    if len(quotes) % period:
        return None
    # Of each entry the label, and behind the name of each table its key; without backslashes every second quote ends a text.
    begins = [0, *range(6, period, 4)]
    entries = quotes.reshape(-1, period)
    bounds = np.stack([entries[:, begins] + 1, entries[:, [b + 1 for b in begins]]], axis=2).ravel()
    pieces = Pieces(raw, np.append(bounds, len(raw)), 2 * len(begins))
    if not _is_regular(bytes(raw[: bounds[0]]), pieces, tables):
        return None
    labels, *keys = (pieces.texts(2 * i) for i in range(len(begins)))
    return None if any(map(_has_control, (labels, *keys))) else (labels, dict(zip(tables, keys, strict=True)))


def _first_tables(head: bytes) -> list[str]:
    """The tables of the first entry; none if it is not what it should be, or long."""
    text = head.decode("utf-8", "replace")
    label = _LABEL.match(text)
    try:
        files = json.JSONDecoder().raw_decode(text, label.end())[0]["files"] if label else None
    except (ValueError, LookupError, TypeError, RecursionError):
        return []
    return list(files) if isinstance(files, dict) else []


def _is_regular(start: bytes, pieces: Pieces, tables: Sequence[str]) -> bool:
    """Whether a parser would find these texts: what stands around them, put together for two entries, is what it should be."""
    around = [pieces.column(2 * i + 1) for i in range(1 + len(tables))]
    end = around[-1][-1].as_py()
    found = [*map(constant, around[:-1]), constant(around[-1][:-1])]
    between = [piece for piece in found if piece is not None]
    if len(between) < len(found):
        return False
    entries = [str(i).encode().join([b"", *between[:-1], b""]) for i in range(min(2, len(around[-1])))]
    expected = {str(i): {"files": dict.fromkeys(tables, str(i))} for i in range(len(entries))}
    try:
        return bool(msgspec.json.decode(start + between[-1].join(entries) + end) == expected)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def _has_control(texts: pa.Array) -> bool:
    """Whether a control character stands in a text, where JSON wants it escaped."""
    _, offsets, data = texts.buffers()
    end = np.frombuffer(offsets, dtype=np.int32)[len(texts)]
    return bool((np.frombuffer(data or b"", dtype=np.uint8)[:end] < ord(" ")).any())


# --- msgpack ----------------------------------------------------------------------------------------------------------


def cut_msgpack(raw: bytes | memoryview) -> Cut | None:
    """What `cut_json` does, of the packed form."""
    first = _first_packed(bytes(raw[:_HEAD]))
    if first is None:
        return None
    count, start, marker, names, tables = first
    text = np.frombuffer(raw, dtype=np.uint8)
    label_ends = _occurrences(text, marker[:3])
    if len(label_ends) != count:
        return None
    # A constant and a key by turns: the marker and the first table, then the names of the other tables.
    bounds, at = [label_ends], label_ends
    for known in (marker, *names):
        begins, ends = _texts_at(text, at + len(known))
        if (ends < 0).any():
            return None
        bounds += [at + len(known), begins, ends]
        at = ends
    label_begins, found_ends = _texts_at(text, np.concatenate(([start], at[:-1])))
    if at[-1] != len(text) or not np.array_equal(found_ends, label_ends):
        return None
    width = len(bounds) + 1
    pieces = Pieces(raw, np.append(np.stack([label_begins, *bounds], axis=1).ravel(), len(text)), width)
    if any(constant(pieces.column(1 + 3 * i)) != known for i, known in enumerate((marker, *names))):
        return None
    return pieces.texts(0), {table: pieces.texts(3 + 3 * i) for i, table in enumerate(tables)}


def _first_packed(head: bytes) -> tuple[int, int, bytes, list[bytes], list[str]] | None:
    """The number of entries, where the first label begins, what stands between it and the first key, the further tables packed, all tables."""
    try:
        count, start = _map_at(head, 0)
        _, label_end = _text_at(head, start)
        one, at = _map_at(head, label_end)
        name, at = _text_at(head, at)
        size, at = _map_at(head, at)
        tables, cuts = [], [(label_end, label_end)]
        for _ in range(size):
            table, after = _text_at(head, at)
            tables.append(table.decode())
            cuts.append((at, after))
            _, at = _text_at(head, after)
    except (ValueError, IndexError):
        return None
    if one != 1 or name != b"files" or not count or not size or len({*tables}) < size:
        return None
    return count, start, head[label_end : cuts[1][1]], [head[a:b] for a, b in cuts[2:]], tables


def _map_at(data: bytes, at: int) -> tuple[int, int]:
    """How many pairs a map has, and where the first begins."""
    kind = data[at]
    size = {0xDE: 2, 0xDF: 4}.get(kind)
    if size is None:
        if kind >> 4 != 0x8:
            raise ValueError("no map")
        return kind & 0x0F, at + 1
    return int.from_bytes(data[at + 1 : at + 1 + size], "big"), at + 1 + size


def _text_at(data: bytes, at: int) -> tuple[bytes, int]:
    """The text that begins here, and where it ends; a `ValueError` if there is none, or not all of it."""
    begin, end = (int(found[0]) for found in _texts_at(np.frombuffer(data, dtype=np.uint8), np.array([at])))
    if end < begin or end > len(data):
        raise ValueError("no text")
    return data[begin:end], end


def _texts_at(text: _Bytes, at: _Numbers) -> tuple[_Numbers, _Numbers]:
    """Where the texts that begin at these positions have their first byte, and where they end; at -1 where there is none."""
    last = len(text) - 1
    head, one, two = (text[np.minimum(at + i, last)].astype(np.int64) for i in range(3))
    forms = [head >> 5 == 0b101, head == 0xD9, head == 0xDA]
    begins = at + np.select(forms, [1, 2, 3], 0)
    ends = begins + np.select(forms, [head & 0x1F, one, one << 8 | two], 0)
    return begins, np.where(np.logical_or.reduce(forms) & (ends <= len(text)), ends, -1)


def _occurrences(text: _Bytes, mark: bytes) -> _Numbers:
    """Where a few bytes stand one after the other."""
    found: _Numbers = np.flatnonzero(text[: 1 - len(mark)] == mark[0])
    for i in range(1, len(mark)):
        found = found[text[found + i] == mark[i]]
    return found
