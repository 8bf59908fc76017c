"""The ``partitions`` member of a document: bytes to Arrow columns, and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeVar, cast

import msgspec
import numpy as np
import pyarrow as pa

from kartothek_cube.core.arrow.keys import IntArray
from kartothek_cube.core.metadata._fast.fast_parser import cut_json, cut_msgpack, join_json
from kartothek_cube.core.metadata._fast.label_index import are_distinct, are_few, label_order, positions_among
from kartothek_cube.core.runtime.options import uses_fast_paths
from kartothek_cube.errors import CorruptDocument, Unsupported

__all__ = ["PartitionColumns", "decode_partitions", "encoded_pieces"]

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
        order = None
        if are_few(names, self.labels):
            order = self.derived("label order", self.labels, lambda: label_order(self.labels))
        return positions_among(names, self.labels, order)

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


class _Entry(msgspec.Struct, gc=False):
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
        if cut is not None and are_distinct(cut[0]):
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
