"""Partitions of regular form, cut out of bytes by NumPy and joined to bytes by Arrow.

No Python object is made per label.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["ParsedPartitions", "cut_json", "cut_keys", "cut_msgpack", "join_json"]

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
