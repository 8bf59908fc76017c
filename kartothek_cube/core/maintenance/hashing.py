"""Statistics of data files: order-independent hashes of rows, and sizes of row groups."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from decimal import Context
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from kartothek_cube.core.arrow.types import normal_type, stored_type
from kartothek_cube.core.io.formats import DATA_SUFFIX
from kartothek_cube.core.io.parquet import open_file
from kartothek_cube.core.runtime.executor import THREADS, Executor, map_files
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.errors import Unsupported

# --- hashes of rows: pure -------------------------------------------------------------------------

Hashes = np.ndarray[Any, np.dtype[np.uint64]]

# The increment and the two multipliers of splitmix64.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)

_NULL = np.uint64(0x6B61727461746C6E)

# Wide enough for the 76 digits of a decimal256.
_EXACT = Context(prec=80)


def row_hashes(table: pa.Table, columns: Sequence[str]) -> Hashes:
    """One 64-bit hash a row over these columns, in whatever order they are given.

    Integers, floats, strings and timestamps hash as the widest type of their family. Null and NaN
    are one value, and so are 0.0 and -0.0.
    """
    hashes = np.full(table.num_rows, _NULL, dtype=np.uint64)
    for name in sorted(columns):
        arrays = [_array_hashes(chunk) for chunk in table.column(name).chunks]
        values = np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.uint64)
        hashes = _mixed(hashes ^ _mixed(values + _text_hash(name.encode())))
    return hashes


def total_hash(hashes: Hashes) -> np.uint64:
    """The hash of a bag of rows: independent of their order, dependent on how often each occurs."""
    # The sum wraps around at 2^64. Under an exclusive or, equal rows would cancel out.
    return np.uint64(hashes.sum(dtype=np.uint64))


def _mixed(values: Hashes) -> Hashes:
    """The finalizer of splitmix64: each bit of a value changes half of the bits of the result."""
    values = values + _GOLDEN
    values = (values ^ (values >> np.uint64(30))) * _FIRST
    values = (values ^ (values >> np.uint64(27))) * _SECOND
    return values ^ (values >> np.uint64(31))


def _text_hash(text: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little"))


def _array_hashes(array: pa.Array) -> Hashes:
    """One hash a value; the hash of null does not depend on the type."""
    data_type = normal_type(stored_type(array.type))
    array = array.cast(data_type)
    if pt.is_null(data_type):
        return np.full(len(array), _NULL, dtype=np.uint64)
    if pt.is_list(data_type):
        hashes = _list_hashes(array)
    elif pt.is_struct(data_type):
        fields = [f.name for f in data_type]
        # By position: names of fields may repeat.
        columns = [pc.struct_field(array, [i]) for i in range(len(fields))]
        hashes = row_hashes(pa.table(columns, names=fields), fields)
    else:
        bits = _fixed_width_bits(array, data_type)
        hashes = _mixed(bits) if bits is not None else _distinct_hashes(array)
    nulls = pc.is_null(array, nan_is_null=pt.is_floating(data_type)).to_numpy(zero_copy_only=False)
    return np.where(nulls, _NULL, hashes).astype(np.uint64, copy=False)


def _fixed_width_bits(array: pa.Array, data_type: pa.DataType) -> Hashes | None:
    """The values as 64-bit patterns, of a null any; None for types of variable width."""
    if pt.is_floating(data_type):
        wide = pc.add(array, 0.0).fill_null(0.0)  # -0.0 + 0.0 is 0.0
    else:
        if pt.is_date(data_type):
            array = array.cast(pa.int32())
        if pt.is_boolean(data_type):
            array = array.cast(pa.int8())
        if not (pt.is_integer(array.type) or pt.is_temporal(array.type)):
            return None
        wide = (array if pt.is_uint64(array.type) else array.cast(pa.int64())).fill_null(0)
    bits: Hashes = wide.to_numpy(zero_copy_only=False).view(np.uint64)
    return bits


def _distinct_hashes(array: pa.Array) -> Hashes:
    """Hashes of text, bytes, decimals and maps."""
    if not (pt.is_string(array.type) or pt.is_binary(array.type)):
        # A decimal without the zeros that only its scale adds; a map as its pairs.
        is_decimal = pt.is_decimal(array.type)
        values = array.to_pylist()
        texts = [None if v is None else str(v.normalize(_EXACT)) if is_decimal else repr(v) for v in values]
        array = pa.array(texts, type=pa.string())
    # blake2b runs in Python, once for each value: hash each distinct value once.
    encoded = array.dictionary_encode()
    hashes = [_text_hash(v.encode() if isinstance(v, str) else v) for v in encoded.dictionary.to_pylist()]
    positions = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)
    return _mixed(np.array(hashes or [_NULL], dtype=np.uint64)[positions])


def _list_hashes(array: pa.Array) -> Hashes:
    """Hashes of the elements with their positions; ``[]``, ``[null]`` and null all differ."""
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    elements = _array_hashes(array.flatten())
    starts = np.cumsum(lengths) - lengths
    positions = np.arange(len(elements)) - np.repeat(starts, lengths)
    placed = _mixed(elements ^ _mixed(positions.astype(np.uint64)))
    # The sum of a list is the difference of two prefix sums, modulo 2^64.
    sums = np.concatenate((np.zeros(1, dtype=np.uint64), np.cumsum(placed, dtype=np.uint64)))
    return _mixed(sums[starts + lengths] - sums[starts] + lengths.astype(np.uint64))


# --- row groups: footers of files -----------------------------------------------------------------

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
    """One row, of `ROW_GROUP_SCHEMA`, for each row group of these files, in their order.

    A file is a pair of partition label and key.
    """
    groups = map_files(partial(_row_groups, store, dataset), files, executor=executor, store=store)
    return pa.Table.from_pylist(list(chain.from_iterable(groups)), schema=ROW_GROUP_SCHEMA)


def _row_groups(store: Store, dataset: str, file: tuple[str, str]) -> list[dict[str, Any]]:
    label, key = file
    if not key.endswith(DATA_SUFFIX):
        raise Unsupported(f"The file {key!r} of dataset {dataset!r} is no Parquet file, so it has no row groups.")
    with open_file(store, key, dataset) as source:
        metadata, file_size = source.metadata, source.size
        chunks = source.chunks(range(metadata.num_row_groups), {*source.schema.names})
    return [
        {
            "partition_label": label,
            "row_group_id": group,
            "row_group_compressed_size": sum(int(c.total_compressed_size) for c in chunks[group]),
            "row_group_uncompressed_size": sum(int(c.total_uncompressed_size) for c in chunks[group]),
            "number_rows_total": metadata.num_rows,
            "number_row_groups": metadata.num_row_groups,
            "serialized_size": file_size,
            "number_rows_per_row_group": metadata.row_group(group).num_rows,
        }
        for group in range(metadata.num_row_groups)
    ]
