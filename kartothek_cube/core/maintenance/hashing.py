"""Hashes of rows that depend on nothing but their values: not on widths, encodings, versions, or the order of columns and rows."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from decimal import Context
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from kartothek_cube.core.schema import normal_type, stored_type

__all__ = ["Hashes", "row_hashes", "total_hash"]

Hashes = np.ndarray[Any, np.dtype[np.uint64]]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_NULL = np.uint64(0x6B61727461746C6E)
_EXACT = Context(prec=80)


def row_hashes(table: pa.Table, columns: Sequence[str]) -> Hashes:
    """One 64-bit hash a row over these columns, whatever their order.

    Integers, floats, strings and timestamps hash as the widest type of their family; null and NaN are one value, and so are 0.0 and -0.0.
    """
    hashes = np.full(table.num_rows, _NULL, dtype=np.uint64)
    for name in sorted(columns):
        hashes = _mixed(hashes ^ _mixed(_column_hashes(table.column(name)) + _text_hash(name.encode())))
    return hashes


def total_hash(hashes: Hashes) -> np.uint64:
    """The hash of a bag of rows: the sum modulo 2^64, so that the order of rows does not matter and a row counts as often as it is there."""
    return np.uint64(hashes.sum(dtype=np.uint64))


def _mixed(values: Hashes) -> Hashes:
    """The finalizer of splitmix64: each bit of a value changes half of the bits of the result."""
    values = values + _GOLDEN
    values = (values ^ (values >> np.uint64(30))) * _FIRST
    values = (values ^ (values >> np.uint64(27))) * _SECOND
    return values ^ (values >> np.uint64(31))


def _text_hash(text: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little"))


def _column_hashes(column: pa.ChunkedArray) -> Hashes:
    arrays = [_array_hashes(chunk) for chunk in column.chunks]
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.uint64)


def _array_hashes(array: pa.Array) -> Hashes:
    """One hash a value; that of null does not depend on the type."""
    kind = normal_type(stored_type(array.type))
    array = array.cast(kind)
    hashes = _value_hashes(array, kind)
    nulls = pc.is_null(array, nan_is_null=pt.is_floating(kind)).to_numpy(zero_copy_only=False)
    return np.where(nulls, _NULL, hashes).astype(np.uint64, copy=False)


def _value_hashes(array: pa.Array, kind: pa.DataType) -> Hashes:
    if pt.is_null(kind):
        return np.full(len(array), _NULL, dtype=np.uint64)
    if pt.is_list(kind):
        return _list_hashes(array)
    if pt.is_struct(kind):
        fields = [f.name for f in kind]
        return row_hashes(pa.table([pc.struct_field(array, [i]) for i in range(len(fields))], names=fields), fields)
    numbers = _numbers(array, kind)
    return _mixed(numbers) if numbers is not None else _distinct_hashes(array)


def _numbers(array: pa.Array, kind: pa.DataType) -> Hashes | None:
    """The bits of values of fixed width; nulls are anything."""
    if pt.is_floating(kind):
        return _bits(pc.add(array, 0.0).fill_null(0.0))
    if pt.is_date(kind):
        array = array.cast(pa.int32())
    if pt.is_boolean(kind):
        array = array.cast(pa.int8())
    if not (pt.is_integer(array.type) or pt.is_temporal(array.type)):
        return None
    wide = array if pt.is_uint64(array.type) else array.cast(pa.int64())
    return _bits(wide.fill_null(0))


def _bits(array: pa.Array) -> Hashes:
    bits: Hashes = array.to_numpy(zero_copy_only=False).view(np.uint64)
    return bits


def _distinct_hashes(array: pa.Array) -> Hashes:
    """Text, bytes, decimals and what else there is: each distinct value once."""
    encoded = _hashable(array).dictionary_encode()
    known = np.array([_text_hash(v.encode() if isinstance(v, str) else v) for v in encoded.dictionary.to_pylist()] or [_NULL], dtype=np.uint64)
    return _mixed(known[encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)])


def _hashable(array: pa.Array) -> pa.Array:
    if pt.is_string(array.type) or pt.is_binary(array.type):
        return array
    # A decimal without the zeros that only its scale adds; a map as its pairs.
    texts = [None if v is None else str(v.normalize(_EXACT)) if pt.is_decimal(array.type) else repr(v) for v in array.to_pylist()]
    return pa.array(texts, type=pa.string())


def _list_hashes(array: pa.Array) -> Hashes:
    """The elements with their positions; an empty list is none of null and a list of null."""
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    elements = _array_hashes(array.flatten())
    starts = np.cumsum(lengths) - lengths
    positions = np.arange(len(elements)) - np.repeat(starts, lengths)
    placed = _mixed(elements ^ _mixed(positions.astype(np.uint64)))
    sums = np.concatenate((np.zeros(1, dtype=np.uint64), np.cumsum(placed, dtype=np.uint64)))
    return _mixed(sums[starts + lengths] - sums[starts] + lengths.astype(np.uint64))
