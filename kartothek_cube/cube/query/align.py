"""Steps 4 and 5 of planning: partitions of all datasets side by side, then grouped. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.arrow.keys import (
    IntArray,
    expand_ranges,
    group_starts,
    pack,
    pack_one,
    stable_order,
    take_rows,
)
from kartothek_cube.core.expressions.predicates import Clause, matching_ranges
from kartothek_cube.cube.query.partitions import DatasetPartitions

__all__ = ["Aligned", "align", "sort_into_groups"]

# When the left rows are fewer by this factor, the right rows are searched instead of sorted.
_FEW = 64


@dataclass(frozen=True, slots=True)
class Aligned:
    """Partitions of several datasets side by side.

    ``keys`` has one row per aligned partition: the cube's partition columns and the
    ``partition_by`` columns. ``parts`` has the position of the partition of each dataset in each
    row, -1 for none.
    """

    keys: pa.Table
    parts: Mapping[str, IntArray]

    def __len__(self) -> int:
        return len(next(iter(self.parts.values())))

    def take(self, positions: IntArray | None) -> Aligned:
        """The aligned partitions at these positions; None stands for all of them, in order."""
        if positions is None:
            return self
        return Aligned(take_rows(self.keys, positions), {i: p[positions] for i, p in self.parts.items()})


def start(seed: str, partitions: DatasetPartitions) -> Aligned:
    """The partitions of the seed, which other datasets join."""
    return Aligned(partitions.keys, {seed: np.arange(len(partitions), dtype=np.int64)})


def align(left: Aligned, dataset: str, right: DatasetPartitions, *, inner: bool) -> Aligned:
    """Join one more dataset on all shared key columns; without such columns, a cross join."""
    rows, parts = _match(left.keys, len(left), right.keys, len(right), inner=inner)
    joined = left.take(rows)
    keys = {c: joined.keys.column(c) for c in joined.keys.column_names}
    new = [c for c in right.keys.column_names if c not in keys]
    if not new:
        return Aligned(joined.keys, {**joined.parts, dataset: parts})
    positions = pa.array(parts, mask=parts < 0)
    keys.update({c: right.keys.column(c).take(positions) for c in new})
    return Aligned(pa.table(keys), {**joined.parts, dataset: parts})


def _match(
    left: pa.Table, n_left: int, right: pa.Table, n_right: int, *, inner: bool
) -> tuple[IntArray | None, IntArray]:
    """Pairs of positions with equal shared columns, as `_pairs` returns them."""
    shared = [c for c in left.column_names if c in right.column_names]
    if not shared:
        return _pairs(np.zeros(n_left, np.int64), np.full(n_left, n_right), inner=inner)
    if len(shared) == right.num_columns and left.select(shared).equals(right.select(shared)):
        return None, np.arange(n_right)  # no two partitions of a dataset are alike
    skipped, near = _near(left, right) if n_left * _FEW < n_right else (0, right)
    left_keys, right_keys = pack([left, near], shared)
    order = stable_order(right_keys)
    right_keys = right_keys if order is None else right_keys[order]
    starts = group_starts(right_keys)
    first = counts = np.zeros(n_left, np.int64)
    if len(starts):
        # Search among the distinct keys: there are fewer of them.
        runs = np.minimum(np.searchsorted(right_keys[starts], left_keys), len(starts) - 1)
        first = starts[runs]
        sizes = np.diff(np.append(starts, len(right_keys)))
        counts = np.where(right_keys[first] == left_keys, sizes[runs], 0)
    rows, parts = _pairs(first, counts, inner=inner)
    # The last place is for rows without a partner: -1 finds it and stays -1.
    places = np.append(np.arange(len(right_keys)) if order is None else order, -1 - skipped) + skipped
    return rows, places[parts]


def _pairs(first: IntArray, counts: IntArray, *, inner: bool) -> tuple[IntArray | None, IntArray]:
    """Pair each row with the ``counts`` positions from its ``first`` one on.

    Without any, an inner join drops the row and a left join pairs it with -1. The rows are None if
    each of them comes once.
    """
    if len(counts) and counts.max() <= 1 and (not inner or counts.min() == 1):
        return None, np.where(counts > 0, first, -1)
    rows, positions = expand_ranges(first, counts if inner else np.maximum(counts, 1))
    return rows, np.where(counts[rows] > 0, positions, -1)


def _near(left: pa.Table, right: pa.Table) -> tuple[int, pa.Table]:
    """The rows of ``right`` whose first column is in the range of ``left``, and their offset.

    ``right`` is sorted by its columns.
    """
    column = right.column_names[0]
    if column not in left.column_names or not left.num_rows:
        return 0, right
    few, many = left.column(column), right.column(column)
    # A binary search needs one chunk, and NaN has no place in an order.
    if few.null_count or few.type != many.type or pa.types.is_floating(many.type) or many.num_chunks != 1:
        return 0, right
    span = pc.min_max(few).as_py()
    valid = many.chunk(0).slice(0, len(many) - many.null_count)  # nulls come last
    ranges = matching_ranges(valid, [Clause(column, ">=", span["min"]), Clause(column, "<=", span["max"])])
    low, high = ranges[0] if ranges else (0, 0)
    return low, right.slice(low, high - low)


def sort_into_groups(
    aligned: Aligned, partition_by: Sequence[str], partition_columns: Sequence[str]
) -> tuple[Aligned, IntArray]:
    """Aligned partitions in the order of their groups, and the offsets of the groups.

    A group is one combination of ``partition_by`` values, or one aligned partition if there are no
    such columns. A row without a value is in no group.
    """
    if partition_by:
        valid = np.logical_and.reduce([aligned.keys.column(c).is_valid().to_numpy() for c in partition_by])
        aligned = aligned.take(np.flatnonzero(valid))
    by = list(partition_by) or list(partition_columns)
    full = [*by, *(c for c in partition_columns if c not in by)]
    keys = pack_one(aligned.keys, full)
    order = stable_order(keys)
    aligned, keys = (aligned, keys) if order is None else (aligned.take(order), keys[order])
    starts = group_starts(keys if by == full else pack_one(aligned.keys, by))
    return aligned, np.append(starts, len(aligned)).astype(np.int64)
