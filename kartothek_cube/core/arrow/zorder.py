"""Z-order (Morton order): near rows have near values in each of several columns. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from kartothek_cube.core.arrow.sort_keys import IntArray, group_starts, pack_one

__all__ = ["interleave", "z_order_keys"]

# Bits of all columns together, so that keys are not negative.
_BITS = 62
# Tables of 256 entries spread the bits of a byte at once.
_BYTE = 8


def z_order_keys(table: pa.Table, columns: Sequence[str]) -> IntArray:
    """One int64 per row, whose order is the Z-order of some columns.

    Not values but quantiles count: each bit of a column halves the rows, however skewed the values
    are, and columns of any types are comparable. Nulls are last.

    Examples
    --------
    >>> sales = pa.table({"WEEK": [1, 9, 1, 9], "BRAND": ["Acme", "Acme", "Volt", "Volt"]})
    >>> z_order_keys(sales, ["WEEK", "BRAND"]).argsort().tolist()
    [0, 2, 1, 3]
    """
    bits, quantiles = _BITS // len(columns), list[IntArray]()
    for column in columns:
        keys = pack_one(table, [column])
        order = np.argsort(keys, kind="stable")
        starts = group_starts(keys[order])
        lesser = np.empty(len(keys), dtype=np.int64)
        lesser[order] = np.repeat(starts, np.diff(np.append(starts, len(keys))))
        # The share of rows with lesser values, as an integer of so many bits.
        quantiles.append((lesser * (2.0**bits / max(1, len(keys)))).astype(np.int64))
    return interleave(quantiles, bits)


def interleave(numbers: Sequence[IntArray], bits: int) -> IntArray:
    """The bits of several numbers in turns, the highest ones first; each has ``bits`` bits.

    Examples
    --------
    >>> interleave([np.array([0b11, 0b00]), np.array([0b00, 0b11])], 2).tolist()
    [10, 5]
    """
    step, octets = len(numbers), np.arange(2**_BYTE)
    spread = np.zeros(2**_BYTE, dtype=np.int64)
    for bit in range(min(bits, _BYTE)):
        spread |= ((octets >> bit) & 1) << (bit * step)
    keys = np.zeros(len(numbers[0]), dtype=np.int64)
    for place, number in enumerate(reversed(numbers)):
        for begin in range(0, bits, _BYTE):
            keys |= spread[(number >> begin) & (2**_BYTE - 1)] << (begin * step + place)
    return keys
