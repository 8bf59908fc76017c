"""Lists of labels, of which equal ones exist once: intern, concatenate, join, drop labels. Pure.

A column of lists is a dictionary array: row *i* has the code of a list, a list has codes of labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.arrow.keys import IntArray

__all__ = [
    "compacted",
    "concat_lists",
    "interned",
    "joined",
    "labels_of",
    "lists_of_one",
    "names_of",
    "number_of_labels",
    "packed",
    "without_labels",
]

_Hashes: TypeAlias = np.ndarray[Any, np.dtype[np.uint64]]
_Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]

# Labels that are hashed at a time, so that eight bytes for each of them fit into the cache.
_BLOCK = 2**18
# Finding out which lists are equal takes longer than keeping so few labels.
_FEW = 1024
_ODD = np.uint64(0x9E3779B97F4A7C15)
_FIRST_MIX, _SECOND_MIX = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def lists_of_one(labels: pa.DictionaryArray) -> pa.DictionaryArray:
    """A list of one label for each label."""
    count = len(labels.dictionary)
    codes = pa.array(np.arange(count, dtype=np.int32))
    members = pa.DictionaryArray.from_arrays(codes, labels.dictionary)
    offsets = pa.array(np.arange(count + 1, dtype=np.int32))
    return pa.DictionaryArray.from_arrays(labels.indices, pa.ListArray.from_arrays(offsets, members))


def names_of(lists: pa.DictionaryArray) -> pa.Array:
    """The labels by their codes; not every one of them is in a list."""
    return _distinct(lists).values.dictionary


def number_of_labels(lists: pa.DictionaryArray) -> IntArray:
    """The length of the list of each row."""
    counts: IntArray = np.diff(_offsets(_distinct(lists)))[lists.indices.to_numpy()]
    return counts


def labels_of(lists: pa.DictionaryArray) -> pa.DictionaryArray:
    """The labels of all rows, one after the other."""
    distinct, codes = _distinct(lists), lists.indices.to_numpy()
    # Lists that differ from row to row are in the order of the rows, and need not be gathered.
    if len(codes) and (np.diff(codes) == 1).all():
        return cast("pa.DictionaryArray", distinct.slice(int(codes[0]), len(codes)).flatten())
    return cast("pa.DictionaryArray", distinct.take(lists.indices).flatten())


def interned(lists: pa.ListArray) -> pa.DictionaryArray:
    """The same lists, each one once; their items are codes, and no list is empty.

    Few lists, and those with the same hash that differ, stay apart.
    """
    offsets = _offsets(lists)
    if len(lists) < 2 or offsets[-1] < _FEW:
        return pa.DictionaryArray.from_arrays(pa.array(np.arange(len(lists), dtype=np.int32)), lists)
    if offsets[-1] == len(lists):
        return _interned_ones(lists.flatten())
    numbers = pc.dictionary_encode(pa.array(_hashes(_codes(lists), offsets))).indices.to_numpy()
    alike = np.zeros(int(numbers.max()) + 1, dtype=np.int64)
    rows = np.arange(len(lists))
    alike[numbers[::-1]] = rows[::-1]  # the first row of each hash
    first = alike[numbers]
    first = np.where(_are_equal(lists, first), first, rows)
    is_first = first == rows
    codes = (np.cumsum(is_first) - 1).astype(np.int32)[first]
    distinct = lists.take(pa.array(np.flatnonzero(is_first)))
    return pa.DictionaryArray.from_arrays(pa.array(codes), distinct)


def _interned_ones(items: pa.Array) -> pa.DictionaryArray:
    """A list of one for each item, equal ones once."""
    is_coded = isinstance(items, pa.DictionaryArray)
    used = (items.indices if is_coded else items).dictionary_encode()
    members = pa.DictionaryArray.from_arrays(used.dictionary, items.dictionary) if is_coded else used.dictionary
    offsets = pa.array(np.arange(len(members) + 1, dtype=np.int32))
    return pa.DictionaryArray.from_arrays(used.indices, pa.ListArray.from_arrays(offsets, members))


def _are_equal(lists: pa.ListArray, others: IntArray) -> _Mask:
    """Whether each list has the items of another one, whose row is given."""
    lengths = np.diff(_offsets(lists))
    equal: _Mask = lengths == lengths[others]
    # Lists of different lengths cannot be compared item by item: they are compared to themselves.
    compared = np.where(equal, others, np.arange(len(lists)))
    for start, end in _blocks(_offsets(lists)):
        part = lists.slice(start, end - start)
        same = _codes(part) == _codes(lists.take(pa.array(compared[start:end])))
        if not same.all():
            equal[start:end] &= np.logical_and.reduceat(same, _offsets(part)[:-1])
    return equal


def _hashes(codes: IntArray, offsets: IntArray) -> _Hashes:
    """A hash of each list that tells orders apart: the sum of its items' hashes times a power."""
    mixed = (np.arange(int(codes.max()) + 1, dtype=np.uint64) + np.uint64(1)) * _ODD
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST_MIX
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND_MIX
    mixed ^= mixed >> np.uint64(31)
    hashes = np.empty(len(offsets) - 1, dtype=np.uint64)
    for start, end in _blocks(offsets):
        begin = offsets[start]
        places = offsets[start:end] - begin
        items = mixed[codes[begin : offsets[end]]]
        items *= _powers(len(items), int(_ODD))
        # Odd numbers have an inverse, so a list has the same hash wherever it begins.
        hashes[start:end] = np.add.reduceat(items, places) * _powers(len(items), pow(int(_ODD), -1, 2**64))[places]
    return hashes


def _powers(count: int, base: int) -> _Hashes:
    return _first_powers(base)[:count] if count <= 2 * _BLOCK else _accumulated(count, base)


@cache
def _first_powers(base: int) -> _Hashes:
    return _accumulated(2 * _BLOCK, base)


def _accumulated(count: int, base: int) -> _Hashes:
    factors = np.full(count, base, dtype=np.uint64)
    factors[:1] = 1
    return np.multiply.accumulate(factors)


def _blocks(offsets: IntArray) -> Iterator[tuple[int, int]]:
    """Ranges of lists that have about as many items as are hashed at a time."""
    bounds = np.searchsorted(offsets, np.arange(offsets[0], offsets[-1], _BLOCK))
    edges = np.unique(np.append(bounds, len(offsets) - 1)).tolist()
    return pairwise(edges)


def concat_lists(columns: Sequence[pa.DictionaryArray]) -> pa.DictionaryArray:
    """The rows of several columns of lists; what is equal in two of them exists twice."""
    distinct = [_distinct(lists) for lists in columns]
    firsts = np.cumsum([0, *map(len, distinct)]).astype(np.int32)
    codes = np.concatenate([lists.indices.to_numpy() + n for lists, n in zip(columns, firsts, strict=False)])
    return pa.DictionaryArray.from_arrays(pa.array(codes), pa.concat_arrays(distinct))


def joined(lists: pa.DictionaryArray, starts: IntArray) -> pa.DictionaryArray:
    """One list for each run of rows, with the labels of all of them; runs begin at ``starts``."""
    counts, codes = np.diff(np.append(starts, len(lists))), lists.indices.to_numpy()
    longer = np.flatnonzero(counts > 1)
    rows = np.repeat(counts > 1, counts)
    # Few sequences of lists are different, so few of them are joined. All other lists stay.
    offsets = np.concatenate(([0], np.cumsum(counts[longer])))
    sequences = interned(pa.ListArray.from_arrays(pa.array(offsets, type=pa.int32()), pa.array(codes[rows])))
    pieces = _distinct(lists).take(_distinct(sequences).flatten())
    ends = _offsets(pieces)[_offsets(_distinct(sequences))]
    whole = pa.ListArray.from_arrays(pa.array(ends, type=pa.int32()), pieces.flatten())
    after = codes[starts]
    after[longer] = len(lists.dictionary) + sequences.indices.to_numpy()
    column = pa.DictionaryArray.from_arrays(pa.array(after), pa.concat_arrays([_distinct(lists), whole]))
    # Packed once the rows have less than half of the labels that are kept for them.
    lengths, used = np.diff(_offsets(_distinct(column))), np.zeros(len(column.dictionary), dtype=bool)
    used[column.indices.to_numpy()] = True
    return packed(column) if 2 * lengths[used].sum() < lengths.sum() else column


def without_labels(lists: pa.DictionaryArray, gone: _Mask) -> pa.DictionaryArray:
    """The lists without the labels, by their codes, that are gone; null where none is left."""
    distinct, names = _distinct(lists), names_of(lists)
    codes, offsets = _codes(distinct), _offsets(distinct)
    kept = ~gone[codes]
    ends = np.concatenate(([0], np.cumsum(kept)))[offsets]
    members = pa.array((np.cumsum(~gone) - 1).astype(np.int32)[codes[kept]])
    labels = pa.DictionaryArray.from_arrays(members, names.filter(pa.array(~gone)))
    filled = np.flatnonzero(np.diff(ends))
    left = pa.ListArray.from_arrays(pa.array(np.append(ends[filled], ends[-1]), type=pa.int32()), labels)
    unique = interned(left)
    numbers = pc.index_in(lists.indices, value_set=pa.array(filled.astype(np.int32)))
    return pa.DictionaryArray.from_arrays(unique.indices.take(numbers), unique.dictionary)


def compacted(lists: pa.DictionaryArray) -> pa.DictionaryArray:
    """The same rows, where equal lists exist once."""
    unique = interned(_distinct(lists))
    return pa.DictionaryArray.from_arrays(unique.indices.take(lists.indices), unique.dictionary)


def packed(lists: pa.DictionaryArray) -> pa.DictionaryArray:
    """The same rows without lists and labels that none of them has."""
    used = lists.indices.dictionary_encode()
    distinct = _distinct(lists).take(used.dictionary)
    members = cast("pa.DictionaryArray", distinct.flatten())
    codes = members.indices.dictionary_encode()
    labels = pa.DictionaryArray.from_arrays(codes.indices, members.dictionary.take(codes.dictionary))
    return pa.DictionaryArray.from_arrays(used.indices, pa.ListArray.from_arrays(distinct.offsets, labels))


def _distinct(lists: pa.DictionaryArray) -> pa.ListArray:
    return cast("pa.ListArray", lists.dictionary)


def _offsets(lists: pa.ListArray) -> IntArray:
    """Begin and end of each list in `_codes`."""
    offsets: IntArray = lists.offsets.to_numpy()
    return offsets - offsets[:1]


def _codes(lists: pa.ListArray) -> IntArray:
    """The items of all lists, which are codes."""
    items = lists.flatten()
    codes: IntArray = (items.indices if isinstance(items, pa.DictionaryArray) else items).to_numpy()
    return codes
