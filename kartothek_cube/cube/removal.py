"""Which partitions of a dataset a removal concerns. Pure."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.scan import check_predicate_columns, partition_mask
from kartothek_cube.cube.conditions import Conjunction
from kartothek_cube.cube.cube import Cube
from kartothek_cube.errors import InvalidInput
from kartothek_cube.typing import IntoConditions

__all__ = ["labels_to_remove", "removal_conditions"]


def removal_conditions(cube: Cube, conditions: IntoConditions) -> Conjunction:
    """The conditions of a removal.

    Raises
    ------
    InvalidInput
        For conditions on other columns than the cube's partition columns.
    """
    conjunction = Conjunction(conditions)
    foreign = sorted(set(conjunction.columns) - set(cube.partition_columns))
    if foreign:
        raise InvalidInput(f"Can only remove partitions with conditions concerning cubes physical partition columns, not {', '.join(foreign)}.")
    return conjunction


def labels_to_remove(name: str, snapshot: Snapshot, conjunction: Conjunction, *, named: bool) -> pa.Array:
    """Labels of the physical partitions in which the conditions hold.

    Raises
    ------
    InvalidInput
        For a dataset that is partitioned by none of the columns, unless it was named: then it loses everything.
    """
    clauses = tuple(c for c in conjunction.clauses if c.column in snapshot.partition_keys)
    if conjunction.columns and not clauses and not named:
        columns = ", ".join(sorted(conjunction.columns))
        raise InvalidInput(f'Dataset "{name}" is not partitioned by {columns}, so it would lose all partitions. Name it in ktk_cube_dataset_ids to say so.')
    check_predicate_columns((clauses,) if clauses else None, snapshot.schema, snapshot.uuid)
    return snapshot.partitions.labels.take(pa.array(np.flatnonzero(partition_mask(snapshot, clauses))))
