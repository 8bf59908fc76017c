"""The columns of a cube in the user metadata of its datasets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

__all__ = [
    "KTK_CUBE_METADATA_DIMENSION_COLUMNS",
    "KTK_CUBE_METADATA_KEY_IS_SEED",
    "KTK_CUBE_METADATA_PARTITION_COLUMNS",
    "LEGACY_DIMENSION_COLUMNS",
    "LEGACY_IS_SEED",
    "LEGACY_PARTITION_COLUMNS",
    "CubeColumns",
    "cube_columns",
    "is_seed_dataset",
]

KTK_CUBE_METADATA_KEY_IS_SEED: Final = "ktk_cube_is_seed"
KTK_CUBE_METADATA_DIMENSION_COLUMNS: Final = "ktk_cube_dimension_columns"
KTK_CUBE_METADATA_PARTITION_COLUMNS: Final = "ktk_cube_partition_columns"

# Written by kartothek's predecessor: read, never written.
LEGACY_IS_SEED: Final = "klee_is_seed"
LEGACY_DIMENSION_COLUMNS: Final = "klee_dimension_columns"
LEGACY_PARTITION_COLUMNS: Final = "klee_partition_columns"


class CubeColumns(NamedTuple):
    """The dimension and partition columns of a cube."""

    dimensions: Sequence[str]
    partitions: Sequence[str]

    def cell_columns(self, names: Sequence[str]) -> tuple[str, ...]:
        """Those of these columns that address a cell, dimensions first."""
        return tuple(c for c in (*self.dimensions, *self.partitions) if c in names)


def cube_columns(metadata: Mapping[str, object]) -> CubeColumns | None:
    """The columns of the cube that a dataset belongs to; None if it belongs to none."""

    def columns(*keys: str) -> Sequence[str] | None:
        entries = (metadata.get(key) for key in keys)
        return next((entry for entry in entries if isinstance(entry, list)), None)

    dimensions = columns(KTK_CUBE_METADATA_DIMENSION_COLUMNS, LEGACY_DIMENSION_COLUMNS)
    partitions = columns(KTK_CUBE_METADATA_PARTITION_COLUMNS, LEGACY_PARTITION_COLUMNS)
    return None if dimensions is None else CubeColumns(dimensions, partitions or ())


def is_seed_dataset(metadata: Mapping[str, object]) -> bool:
    """Whether a dataset is the seed of its cube."""
    return any(metadata.get(key) is True for key in (KTK_CUBE_METADATA_KEY_IS_SEED, LEGACY_IS_SEED))
