"""The files that may have rows with a key of a merge: partition values, indices, statistics."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from kartothek_cube.core.arrow.keys import KeyIndex
from kartothek_cube.core.expressions.predicates import Mask, may_hold
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.rows.source import SourceKeys
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.snapshots.loader import load_index
from kartothek_cube.core.snapshots.statistics import statistics_of_files
from kartothek_cube.core.stores.contract import Store

__all__ = ["partitions_with_keys"]


def partitions_with_keys(store: Store, base: Snapshot, source: SourceKeys) -> Mask:
    """One boolean per stored partition: whether a row of it may have a key of the source."""
    mask: Mask = np.full(len(base.partitions), source.num_rows > 0)
    known = [c for c in source.on if c in source.listed]
    keys = [c for c in known if c in base.partition_keys]
    if keys:
        mask &= KeyIndex(source.combinations(keys), keys).positions(base.values) >= 0
    # Where no partition is left, no index is read.
    indexed = [c for c in known if c in base.pruning_columns] if mask.any() else []
    for listed in map_in_threads(partial(_listed, store, base, source), indexed, store=store):
        mask &= listed
    # Statistics take as long to read as the one file that they could drop.
    bounded = base.columns_with_statistics(known) if np.count_nonzero(mask) > 1 else []
    if bounded:
        positions = np.flatnonzero(mask)
        statistics = statistics_of_files(store, base, base.files.take(pa.array(positions)), bounded)
        for column in bounded:
            values = source.distinct(column)
            bounds = statistics.bounds(column, values.type)
            ascending = values.take(pc.sort_indices(values)).cast(bounds.minimum.type)
            mask[positions] &= may_hold(bounds, ascending)
    return mask


def _listed(store: Store, base: Snapshot, source: SourceKeys, column: str) -> Mask:
    """Which partitions an index lists for the values of the source."""
    # The range limits which row groups of the index file are read; the set is looked up at once.
    index, _ = load_index(store, base, column, source.range_of(column))
    values, listed = source.distinct(column).cast(index.type), index.keys
    if pt.is_floating(listed.type):
        # Arrow tells -0.0 from 0.0 here; the sum is 0.0 for both.
        values, listed = pc.add(values, 0.0), pc.add(listed, 0.0)
    found = index.where(pc.is_in(listed, value_set=values).to_numpy(zero_copy_only=False))
    mask = np.zeros(len(base.partitions) + 1, dtype=bool)  # the last place: labels unknown to the document
    mask[base.partitions.places(found.labels)] = True
    return mask[:-1]
