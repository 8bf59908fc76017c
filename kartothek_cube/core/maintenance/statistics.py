"""Figures per file: hashes of rows, and the statistics of row groups."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from decimal import Context
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from kartothek_cube.core.arrow.types import normal_type, stored_type
from kartothek_cube.core.io.file_format import DATA_SUFFIX
from kartothek_cube.core.io.parquet_source import open_file
from kartothek_cube.core.runtime.executor import THREADS, Executor, map_files
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.errors import Unsupported

__all__ = ["ROW_GROUP_SCHEMA", "Hashes", "row_group_table", "row_hashes", "total_hash"]

Hashes = np.ndarray[Any, np.dtype[np.uint64]]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)

_FIRST = np.uint64(0xBF58476D1CE4E5B9)

_SECOND = np.uint64(0x94D049BB133111EB)

_NULL = np.uint64(0x6B61727461746C6E)

_EXACT = Context(prec=80)


def row_hashes(table: pa.Table, columns: Sequence[str]) -> Hashes:
    """One 64-bit hash a row over these columns, whatever their order.

    Integers, floats, strings and timestamps hash as the widest type of their family; null and NaN
    are one value, and so are 0.0 and -0.0.
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
    known = np.array(
        [_text_hash(v.encode() if isinstance(v, str) else v) for v in encoded.dictionary.to_pylist()] or [_NULL],
        dtype=np.uint64,
    )
    return _mixed(known[encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)])


def _hashable(array: pa.Array) -> pa.Array:
    if pt.is_string(array.type) or pt.is_binary(array.type):
        return array
    # A decimal without the zeros that only its scale adds; a map as its pairs.
    texts = [
        None if v is None else str(v.normalize(_EXACT)) if pt.is_decimal(array.type) else repr(v)
        for v in array.to_pylist()
    ]
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


ROW_GROUP_SCHEMA = pa.schema(
    [
        ("partition_label", pa.string()),
        ("row_group_id", pa.int64()),
        ("row_group_compressed_size", pa.int64()),
        ("row_group_uncompressed_size", pa.int64()),
        ("number_rows_total", pa.int64()),
        ("number_row_groups", pa.int64()),
        ("serialized_size", pa.int64()),
        ("number_rows_per_row_group", pa.int64()),
    ]
)


def row_group_table(
    store: Store, dataset: str, files: Sequence[tuple[str, str]], executor: Executor = THREADS
) -> pa.Table:
    """One row for each row group of these files, given as ``(label, key)``, in their order; the columns are those of `ROW_GROUP_SCHEMA`."""
    rows = [
        row
        for found in map_files(partial(_row_groups, store, dataset), files, executor=executor, store=store)
        for row in found
    ]
    return pa.Table.from_pylist(rows, schema=ROW_GROUP_SCHEMA)


def _row_groups(store: Store, dataset: str, file: tuple[str, str]) -> list[dict[str, Any]]:
    label, key = file
    if not key.endswith(DATA_SUFFIX):
        raise Unsupported(f"The file {key!r} of dataset {dataset!r} is no Parquet file, so it has no row groups.")
    with open_file(store, key, dataset) as source:
        metadata, chunks = source.metadata, source.chunks(range(source.metadata.num_row_groups), {*source.schema.names})
        size = source.size
    return [_row(label, metadata, group, size, chunks[group]) for group in range(metadata.num_row_groups)]


def _row(label: str, metadata: Any, number: int, size: int, chunks: Sequence[Any]) -> dict[str, Any]:
    group = metadata.row_group(number)
    sizes = (
        np.array([[c.total_compressed_size, c.total_uncompressed_size] for c in chunks], dtype=np.int64)
        .reshape(-1, 2)
        .sum(axis=0)
    )
    values = (
        label,
        number,
        int(sizes[0]),
        int(sizes[1]),
        metadata.num_rows,
        metadata.num_row_groups,
        size,
        group.num_rows,
    )
    return dict(zip(ROW_GROUP_SCHEMA.names, values, strict=True))
