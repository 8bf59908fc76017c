"""Discovery: kartothek's ``api.discover``."""

from kartothek_cube.cube.verbs.discover import (
    discover_cube,
    discover_datasets,
    discover_datasets_unchecked,
    discover_ktk_cube_dataset_ids,
)

__all__ = ["discover_cube", "discover_datasets", "discover_datasets_unchecked", "discover_ktk_cube_dataset_ids"]
