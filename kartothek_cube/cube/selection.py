"""Which datasets of a cube the argument ``datasets`` of a verb means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kartothek_cube.core.compat.dataset_metadata import DatasetMetadata
from kartothek_cube.cube.converters import converter_str
from kartothek_cube.cube.cube import Cube
from kartothek_cube.errors import InvalidInput, InvalidType

__all__ = ["check_not_loaded", "check_uuids", "given_datasets"]


def given_datasets(datasets: Mapping[Any, Any]) -> dict[str, DatasetMetadata]:
    """The datasets that were given as a dict; `InvalidType` for one that holds something else."""
    wrong = [f"{i!r}: {type(d).__name__}" for i, d in datasets.items() if not isinstance(d, DatasetMetadata)]
    if wrong:
        raise InvalidType(f"datasets should be a dict dataset id → DatasetMetadata, but has {', '.join(wrong)}.")
    return {converter_str(i): d for i, d in datasets.items()}


def check_not_loaded(as_of: object) -> None:
    """Refuse ``as_of`` for datasets that were given as they were loaded."""
    if as_of is not None:
        raise InvalidInput("as_of cannot go together with datasets that are loaded already: give their ids, or load them with as_of.")


def check_uuids(datasets: Mapping[str, DatasetMetadata], cube: Cube) -> None:
    """Refuse datasets under ids that are not theirs: the verb would touch another dataset than the one that was given."""
    wrong = [f"{i!r}: {d.uuid}" for i, d in datasets.items() if d.uuid != cube.ktk_dataset_uuid(i)]
    if wrong:
        raise InvalidInput(f"datasets has datasets that do not belong to cube {cube.uuid_prefix!r} under these ids: {', '.join(wrong)}.")
