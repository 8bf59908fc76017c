"""Lookup of labels by a hash of their text, which is read through unaligned views."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.arrow.keys import IntArray
from kartothek_cube.core.runtime.options import uses_fast_paths

__all__ = ["LabelOrder", "are_distinct", "are_few", "label_order", "positions_among"]

_Hashes: TypeAlias = np.ndarray[Any, np.dtype[np.uint64]]

_LONGEST_HASHED = 1000
_ODD = np.uint64(0x9E3779B97F4A7C15)
# Looking up one label costs about as much as scanning this many.
_COST = 16


def are_distinct(labels: pa.Array) -> bool:
    """Whether no label occurs twice."""
    if len(labels) < 2:
        return True
    if uses_fast_paths() and _can_be_hashed(lengths := _lengths(labels)):
        hashes = _hashes(labels, int(lengths.max()))
        hashes.sort()
        if bool((hashes[1:] != hashes[:-1]).all()):
            return True  # else two labels are equal, or have the same hash
    return bool(pc.count_distinct(labels).as_py() == len(labels))


@dataclass(frozen=True, slots=True, eq=False)
class LabelOrder:
    """Distinct hashes of labels in ascending order, their positions, and the longest length."""

    hashes: _Hashes
    positions: IntArray
    longest: int


def label_order(labels: pa.Array) -> LabelOrder | None:
    """The order that `positions_among` searches; None where hashes cannot tell the labels apart."""
    if not uses_fast_paths() or not _can_be_hashed(lengths := _lengths(labels)):
        return None
    longest = int(lengths.max())
    hashes = _hashes(labels, longest)
    order = np.argsort(hashes)
    ascending = hashes[order]
    return LabelOrder(ascending, order, longest) if bool((ascending[1:] != ascending[:-1]).all()) else None


def positions_among(names: pa.Array, labels: pa.Array, order: LabelOrder | None) -> IntArray:
    """The position of each name among the labels, -1 where it is missing.

    With the order of the labels only a few of them are compared.
    """
    if order is None or not _can_be_hashed(_lengths(names)):
        places: IntArray = pc.fill_null(pc.index_in(names, value_set=labels), -1).to_numpy().astype(np.int64)
        return places
    hashes = _hashes(names, order.longest)
    nearest = np.minimum(np.searchsorted(order.hashes, hashes), len(labels) - 1)
    positions = order.positions[nearest]
    return np.where(pc.equal(labels.take(pa.array(positions)), names).to_numpy(zero_copy_only=False), positions, -1)


def are_few(names: pa.Array, labels: pa.Array) -> bool:
    """Whether searching these names by their hashes is faster than scanning all labels."""
    return len(names) * _COST < len(labels)


def _lengths(labels: pa.Array) -> IntArray:
    return np.diff(_offsets(labels)) if len(labels) else np.zeros(0, dtype=np.int64)


def _offsets(labels: pa.Array) -> IntArray:
    first, count = labels.offset, len(labels) + 1
    return np.frombuffer(labels.buffers()[1], dtype=np.int32)[first : first + count].astype(np.int64)


def _can_be_hashed(lengths: IntArray) -> bool:
    return len(lengths) > 0 and bool(8 <= lengths.min() <= lengths.max() <= _LONGEST_HASHED)


def _hashes(labels: pa.Array, longest: int) -> _Hashes:
    """A hash over words of eight bytes, three times as fast as comparing texts."""
    offsets = _offsets(labels)
    starts, ends = offsets[:-1], offsets[1:]
    text = np.frombuffer(labels.buffers()[2], dtype=np.uint8)
    # The word at every byte, aligned or not, without a copy.
    words = np.lib.stride_tricks.as_strided(text[:8].view(np.uint64), shape=(len(text) - 7,), strides=(1,))
    hashes = np.diff(offsets).astype(np.uint64)
    for position in range(0, longest, 8):
        # The last word overlaps the one before; a label that has ended repeats it.
        hashes = (hashes ^ words[np.minimum(starts + position, ends - 8)]) * _ODD
        hashes ^= hashes >> np.uint64(29)
    return hashes
