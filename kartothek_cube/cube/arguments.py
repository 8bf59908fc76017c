"""Arguments that several verbs of a cube share: ids of datasets, conditions that select whole partitions. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeVar

from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.predicates import Clause
from kartothek_cube.core.scan import check_predicate_columns
from kartothek_cube.cube.conditions import Conjunction
from kartothek_cube.cube.cube import Cube
from kartothek_cube.errors import InvalidInput

__all__ = ["check_dataset_ids", "chosen_members", "partition_clauses", "partition_conditions"]

T = TypeVar("T")


def check_dataset_ids(cube: Cube, ids: Iterable[str], members: Collection[str]) -> None:
    """Raise `InvalidInput` for ids that no dataset of the cube has."""
    unknown = sorted(set(ids) - set(members))
    if unknown:
        raise InvalidInput(f"Unknown ktk_cube_dataset_ids: {', '.join(unknown)}. Datasets of the cube {cube.uuid_prefix!r}: {', '.join(sorted(members))}.")


def chosen_members(cube: Cube, members: Mapping[str, T], ids: Collection[str] | None) -> dict[str, T]:
    """The datasets that ``ktk_cube_dataset_ids`` names, None: all; in the order of the cube."""
    check_dataset_ids(cube, ids or (), members)
    return {i: member for i, member in members.items() if ids is None or i in ids}


def partition_conditions(cube: Cube, conditions: Any, action: str) -> Conjunction:
    """Conditions that select whole physical partitions; ``action`` says in the error what is done to these.

    Raises
    ------
    InvalidInput
        For conditions on other columns than the cube's partition columns.
    """
    conjunction = Conjunction(conditions)
    foreign = sorted(set(conjunction.columns) - set(cube.partition_columns))
    if foreign:
        raise InvalidInput(
            f"Can only {action} partitions with conditions concerning cubes physical partition columns, "
            f"not {', '.join(foreign)}. Partition columns: {', '.join(cube.partition_columns)}."
        )
    return conjunction


def partition_clauses(conjunction: Conjunction, snapshot: Snapshot) -> tuple[Clause, ...]:
    """Those of the conditions that are on partition keys of a dataset, checked against their types."""
    clauses = tuple(c for c in conjunction.clauses if c.column in snapshot.partition_keys)
    check_predicate_columns((clauses,) if clauses else None, snapshot.schema, snapshot.uuid)
    return clauses
