"""Which partitions are loaded together: one by one, or grouped by the values of indexed columns. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from kartothek_cube.core.evaluate import Mask, matching_all
from kartothek_cube.core.index import SecondaryIndex
from kartothek_cube.core.metadata.partitions import PartitionColumns
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.predicates import Clause, Predicates
from kartothek_cube.core.rowkeys import IntArray, empty_rows, expand_ranges, group_starts, pack_one, take_rows
from kartothek_cube.errors import InvalidRequest

__all__ = ["Groups", "check_dispatch", "group_key", "group_partitions", "partition_by_partition"]


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Partitions that are loaded together.

    Attributes
    ----------
    keys : pyarrow.Table
        One row a group: its values of the dispatch columns; groups ascend by them. Without columns where nothing is dispatched.
    positions, offsets : numpy.ndarray
        Group *i* has the partitions ``positions[offsets[i]:offsets[i + 1]]`` of the document, in its order.
    """

    keys: pa.Table
    positions: IntArray
    offsets: IntArray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def partitions(self, i: int) -> IntArray:
        """Positions of the partitions of a group."""
        return self.positions[self.offsets[i] : self.offsets[i + 1]]

    def amplification(self) -> float:
        """In how many groups a partition is, on average."""
        return len(self.positions) / max(1, len(np.unique(self.positions)))


def check_dispatch(columns: Iterable[str], snapshot: Snapshot) -> tuple[str, ...]:
    """The dispatch columns, each once.

    Raises
    ------
    InvalidRequest
        If one of them has no index.
    """
    chosen = tuple(dict.fromkeys(str(c) for c in columns))
    missing = [c for c in chosen if c not in snapshot.indexed_columns]
    if missing:
        indexed = sorted(snapshot.indexed_columns)
        raise InvalidRequest(f"Dispatch columns must be indexed. Dataset {snapshot.uuid!r} has no index on {missing}, only on {indexed}.")
    return chosen


def partition_by_partition(wanted: Mask) -> Groups:
    """Every partition that is wanted alone, in the order of the document."""
    positions = np.flatnonzero(wanted)
    return Groups(empty_rows(len(positions)), positions, np.arange(len(positions) + 1))


def group_partitions(
    snapshot: Snapshot, by: Sequence[str], masks: Sequence[Mask], predicates: Predicates | None, indices: Mapping[str, SecondaryIndex]
) -> Groups:
    """One group for each combination of values that some wanted partition holds and that the predicates leave possible.

    ``masks`` say for each conjunction which partitions it leaves; ``indices`` has those on ``by``. A partition that has no
    value in some column, as it is null throughout there, is in no group. Without any column there is one group, even
    without partitions: grouped by nothing, everything is one.
    """
    wanted = np.flatnonzero(np.logical_or.reduce(masks))
    if not by:
        return Groups(empty_rows(1), wanted, np.array([0, len(wanted)]))
    rows, values = wanted, empty_rows(len(wanted))
    for column in by:
        rows, values = _with_values(snapshot, column, rows, values, indices)
    possible = _possible(rows, values, masks, predicates)
    return _grouped(rows[possible], values.filter(pa.array(possible)))


def _with_values(snapshot: Snapshot, column: str, rows: IntArray, values: pa.Table, indices: Mapping[str, SecondaryIndex]) -> tuple[IntArray, pa.Table]:
    """Every row once for each value that its partition holds of one more column."""
    if column in snapshot.partition_keys:
        held: pa.Array | pa.ChunkedArray = snapshot.values.column(column).take(pa.array(rows))
    else:
        rows, values, held = _indexed_values(indices[column], snapshot.partitions, rows, values)
    known = ~pc.is_null(held, nan_is_null=pt.is_floating(held.type)).to_numpy(zero_copy_only=False)
    return rows[known], values.append_column(column, held).filter(pa.array(known))


def _indexed_values(index: SecondaryIndex, partitions: PartitionColumns, rows: IntArray, values: pa.Table) -> tuple[IntArray, pa.Table, pa.Array]:
    positions = partitions.places(index.labels)
    order = np.argsort(positions, kind="stable")
    first, last = (np.searchsorted(positions[order], rows, side=side) for side in ("left", "right"))
    repeated, found = expand_ranges(first, last - first)
    return rows[repeated], take_rows(values, repeated), index.values.take(pa.array(order[found]))


def _possible(rows: IntArray, values: pa.Table, masks: Sequence[Mask], predicates: Predicates | None) -> Mask:
    """Whether some conjunction leaves both the partition and the values."""
    result = np.zeros(len(rows), dtype=bool)
    for mask, conjunction in zip(masks, ((),) if predicates is None else predicates, strict=True):
        result |= mask[rows] & _all_of(values, conjunction, len(rows))
    return result


def _all_of(values: pa.Table, conjunction: Iterable[Clause], n: int) -> Mask:
    mask = np.ones(n, dtype=bool)
    for clause in conjunction:
        if clause.column in values.column_names:
            mask &= matching_all(values.column(clause.column), [clause])
    return mask


def _grouped(rows: IntArray, values: pa.Table) -> Groups:
    keys = pack_one(values, values.column_names)
    order = np.lexsort((rows, keys))
    keys, rows = keys[order], rows[order]
    # A foreign index may name a label twice for one value.
    fresh = np.ones(len(rows), dtype=bool)
    fresh[1:] = (keys[1:] != keys[:-1]) | (rows[1:] != rows[:-1])
    keys, rows, order = keys[fresh], rows[fresh], order[fresh]
    starts = group_starts(keys)
    return Groups(values.take(pa.array(order[starts])), rows, np.append(starts, len(rows)))


def group_key(groups: Groups, i: int) -> dict[str, Any]:
    """Values of the dispatch columns of a group."""
    return dict(groups.keys.slice(i, 1).to_pylist()[0]) if groups.keys.num_columns else {}
