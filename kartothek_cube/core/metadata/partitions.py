"""The ``partitions`` member of a document: bytes to Arrow columns and back, without one Python object per label."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeVar, cast

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.metadata.cut import cut_json, cut_msgpack
from kartothek_cube.core.metadata.labels import are_distinct, are_few, label_order, positions_among
from kartothek_cube.core.rowkeys import IntArray
from kartothek_cube.errors import CorruptDocument, Unsupported

__all__ = ["PartitionColumns", "decode_partitions", "encoded_pieces"]

T = TypeVar("T")
_FIRST_BEYOND_ASCII = 0x80


@dataclass(frozen=True, slots=True)
class PartitionColumns:
    """Labels, and for each table the key of its file; row *i* of every column belongs to partition *i*.

    A partition that lacks a file for a table has a null there.
    """

    labels: pa.Array
    files: Mapping[str, pa.Array]
    # What `fingerprint` found: it reads every label and key, and several steps of a commit ask for it.
    known_fingerprint: str | None = field(default=None, init=False, repr=False, compare=False)
    _derived: dict[Any, tuple[Any, Any]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.labels)

    def __reduce__(self) -> tuple[Any, ...]:
        return PartitionColumns, (self.labels, self.files)

    def derived(self, name: Hashable, source: object, make: Callable[[], T]) -> T:
        """What was made of the partitions and ``source`` under this name; made now for another one than the last."""
        found = self._derived.get(name)
        if found is None or found[0] is not source:
            found = self._derived[name] = (source, make())
        return found[1]

    def positions(self, names: pa.Array) -> IntArray:
        """For each name the position of the partition with this label, -1 where there is none."""
        order = self.derived("label order", self.labels, lambda: label_order(self.labels)) if are_few(names, self.labels) else None
        return positions_among(names, self.labels, order)

    def places(self, labels: pa.DictionaryArray) -> IntArray:
        """For each of these labels, of which an index has many, the position of its partition; -1 where there is none."""
        codes, names = labels.indices.to_numpy(), labels.dictionary
        if len(codes) < len(names):
            used, inverse = np.unique(codes, return_inverse=True)
            codes, names = inverse.ravel(), names.take(pa.array(used))
        found: IntArray = self.positions(names)[codes]
        return found

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


# --- bytes to columns -------------------------------------------------------------------------------------------------


class _Entry(msgspec.Struct, gc=False):
    files: dict[str, str]


def decode_partitions(raw: bytes | memoryview, where: str, *, msgpack: bool = False) -> PartitionColumns:
    """Columns from the text of the member, JSON or msgpack.

    The regular form, files of the same tables for every label and nothing that is escaped, is cut by the positions of its texts;
    anything else goes through a parser.
    """
    try:
        cut = cut_msgpack(raw) if msgpack else cut_json(raw)
    except pa.ArrowException:  # the parser says where
        cut = None
    return PartitionColumns(*cut) if cut is not None and are_distinct(cut[0]) else _parsed(raw, where, msgpack=msgpack)


def _parsed(raw: bytes | memoryview, where: str, *, msgpack: bool) -> PartitionColumns:
    decode: Any = msgspec.msgpack.decode if msgpack else msgspec.json.decode
    try:
        entries = decode(raw, type=dict[str, _Entry])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError, TypeError):  # what it is instead says the general form
        return from_mapping(_plain(raw, where, decode), where)
    return _columns(list(entries), [entry.files for entry in entries.values()], where)


def _plain(raw: bytes | memoryview, where: str, decode: Callable[[bytes | memoryview], object]) -> Any:
    try:
        return decode(raw)
    # TypeError: older versions of msgspec say so of a key that is a map.
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError, TypeError) as error:
        raise CorruptDocument(f"The partitions of the document {where} cannot be parsed: {error}") from error


def from_mapping(partitions: object, where: str) -> PartitionColumns:
    """Columns from the parsed member ``{label: {"files": {table: key}}}``."""
    if not isinstance(partitions, dict):
        raise CorruptDocument(f"The member 'partitions' of the document {where} should be a map, but is {type(partitions).__name__}.")
    return _columns(list(partitions), [_files_of(label, entry, where) for label, entry in partitions.items()], where)


def _columns(labels: list[str], files: list[dict[str, str]], where: str) -> PartitionColumns:
    tables = dict.fromkeys(chain.from_iterable(files))
    try:
        return PartitionColumns(_texts(labels), {t: _texts([f.get(t) for f in files]) for t in tables})
    except (pa.ArrowTypeError, UnicodeEncodeError) as error:
        raise CorruptDocument(f"A label or key of the document {where} is no text: {error}") from error


def _texts(texts: Sequence[str | None]) -> pa.Array:
    array = cast("pa.Array | pa.ChunkedArray", pa.array(texts, type=pa.string()))
    if isinstance(array, pa.ChunkedArray):
        raise Unsupported("The labels or keys of a dataset take more than 2 GiB.")
    return array


def _files_of(label: object, entry: object, where: str) -> dict[str, str]:
    files = entry.get("files") if isinstance(entry, dict) else None
    if not isinstance(label, str) or not isinstance(files, dict) or not all(isinstance(text, str) for pair in files.items() for text in pair):
        raise CorruptDocument(f"Partition {label!r} of the document {where} names no files; expected {{'files': {{table: key}}}}.")
    return files


# --- columns to bytes -------------------------------------------------------------------------------------------------


def encoded_pieces(columns: PartitionColumns) -> tuple[bytes | memoryview, ...]:
    """The JSON text of the member, in the order of the labels, in pieces: it may be long, and is a part of something longer."""
    if len(columns.files) == 1 and len(columns):
        ((table, keys),) = columns.files.items()
        if keys.null_count == 0 and _needs_no_escape(columns.labels) and _needs_no_escape(keys):
            return b"{", _join_regular(columns.labels, table, keys), b"}"
    return (_dumps(to_mapping(columns)),)


def _needs_no_escape(texts: pa.Array) -> bool:
    data = np.frombuffer(_data(texts.cast(pa.large_string())), dtype=np.uint8)
    if not len(data):
        return True
    ascii_only = int(data.min()) >= ord(" ") and int(data.max()) < _FIRST_BEYOND_ASCII
    return ascii_only and not any((data == ord(sign)).any() for sign in '"\\')


def _data(texts: pa.Array) -> memoryview:
    """The bytes of all texts, one after the other."""
    first, last = np.frombuffer(texts.buffers()[1], dtype=np.int64)[[texts.offset, texts.offset + len(texts)]]
    return memoryview(texts.buffers()[2] or b"")[first:last]


def _join_regular(labels: pa.Array, table: str, keys: pa.Array) -> memoryview:
    large = pa.large_string()
    start, middle, end, nothing = (pa.scalar(t, large) for t in ('"', f'": {{"files": {{{_dumps(table).decode()}: "', '"}}, ', ""))
    entries = pc.binary_join_element_wise(start, labels.cast(large), middle, keys.cast(large), end, nothing)
    return _data(entries)[:-2]


def to_mapping(columns: PartitionColumns) -> dict[str, Any]:
    """The member as Python objects, as it stands in a document."""
    lists = {t: f.to_pylist() for t, f in columns.files.items()}
    labels = columns.labels.to_pylist()
    return {label: {"files": {t: f[i] for t, f in lists.items() if f[i] is not None}} for i, label in enumerate(labels)}


def _dumps(value: object) -> bytes:
    return json.dumps(value).encode()
