"""Arguments that cube verbs share: dataset ids, given datasets, conditions on partition columns."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from kartothek_cube.core.arguments import converter_str
from kartothek_cube.core.expressions.conditions import Conjunction, conjunction_of
from kartothek_cube.core.expressions.predicates import Clause
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.scan.plan import check_predicate_columns
from kartothek_cube.cube.cube import Cube
from kartothek_cube.errors import InvalidInput, InvalidType
from kartothek_cube.typing import IntoConditions

if TYPE_CHECKING:
    from kartothek_cube.core.kartothek.dataset_metadata import DatasetMetadata

__all__ = [
    "check_dataset_ids",
    "check_not_loaded",
    "check_uuids",
    "chosen_members",
    "given_datasets",
    "partition_clauses",
    "partition_conditions",
]

T = TypeVar("T")


def check_dataset_ids(cube: Cube, ids: Iterable[str], members: Collection[str]) -> None:
    """Raise `InvalidInput` for ids that no dataset of the cube has."""
    unknown = sorted(set(ids) - set(members))
    if unknown:
        raise InvalidInput(
            f"Unknown ktk_cube_dataset_ids: {', '.join(unknown)}. "
            f"Datasets of the cube {cube.uuid_prefix!r}: {', '.join(sorted(members))}."
        )


def chosen_members(cube: Cube, members: Mapping[str, T], ids: Collection[str] | None) -> dict[str, T]:
    """The datasets with the given ids, in the order of the cube; all of them for None."""
    check_dataset_ids(cube, ids or (), members)
    return {i: member for i, member in members.items() if ids is None or i in ids}


def partition_conditions(
    cube: Cube, conditions: IntoConditions, members: Mapping[str, Snapshot], action: str
) -> Conjunction:
    """Conditions that select whole physical partitions; the types of a text are those of members.

    ``action`` is the verb of the error message: "remove" or "compact" partitions.

    Raises
    ------
    InvalidInput
        For conditions on other columns than the cube's partition columns, and for an empty text.
    """
    if isinstance(conditions, str) and not conditions.strip():
        raise InvalidInput(
            f"The conditions are an empty text, which would {action} every partition of cube {cube.uuid_prefix!r}. "
            "If all are meant, the empty list [] says so."
        )
    conjunction = conjunction_of(conditions, {f.name: f.type for s in members.values() for f in s.schema})
    foreign = sorted(set(conjunction.columns) - set(cube.partition_columns))
    if foreign:
        raise InvalidInput(
            f"Can only {action} partitions with conditions concerning cubes physical partition columns, "
            f"not {', '.join(foreign)}. Partition columns: {', '.join(cube.partition_columns)}. "
            "append_to_cube corrects single cells, delete_cells removes them."
        )
    return conjunction


def partition_clauses(conjunction: Conjunction, snapshot: Snapshot) -> tuple[Clause, ...]:
    """The conditions on partition keys of a dataset, checked against the types of the keys."""
    clauses = tuple(c for c in conjunction.clauses if c.column in snapshot.partition_keys)
    check_predicate_columns((clauses,) if clauses else None, snapshot.schema, snapshot.uuid)
    return clauses


def given_datasets(datasets: Mapping[str, object]) -> dict[str, DatasetMetadata]:
    """Datasets that the user passed as a dict; `InvalidType` for values that are no datasets."""
    if not datasets:
        return {}
    from kartothek_cube.core.kartothek.dataset_metadata import DatasetMetadata

    wrong = [f"{i!r}: {type(d).__name__}" for i, d in datasets.items() if not isinstance(d, DatasetMetadata)]
    if wrong:
        raise InvalidType(f"datasets should be a dict dataset id → DatasetMetadata, but has {', '.join(wrong)}.")
    return {converter_str(i): d for i, d in datasets.items() if isinstance(d, DatasetMetadata)}


def check_not_loaded(as_of: object) -> None:
    """Refuse ``as_of`` for datasets that the user has loaded: their state is fixed."""
    if as_of is not None:
        raise InvalidInput(
            "as_of cannot go together with datasets that are loaded already: give their ids, or load them with as_of."
        )


def check_uuids(datasets: Mapping[str, DatasetMetadata], cube: Cube) -> None:
    """Refuse datasets under the id of another dataset of the cube, or of another cube."""
    # A verb finds files by id: it would change another dataset than the one that was passed.
    wrong = [f"{i!r}: {d.uuid}" for i, d in datasets.items() if d.uuid != cube.ktk_dataset_uuid(i)]
    if wrong:
        raise InvalidInput(
            f"datasets has datasets that do not belong to cube {cube.uuid_prefix!r} under these ids: "
            f"{', '.join(wrong)}."
        )
