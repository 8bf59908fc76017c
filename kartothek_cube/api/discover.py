"""Discovery: kartothek's ``api.discover``."""

from typing import TYPE_CHECKING

from kartothek_cube.core.runtime.lazy_names import lazy_names

if TYPE_CHECKING:
    from kartothek_cube.cube.verbs.describe import discover_cube as discover_cube
    from kartothek_cube.cube.verbs.describe import discover_datasets as discover_datasets
    from kartothek_cube.cube.verbs.describe import discover_datasets_unchecked as discover_datasets_unchecked
    from kartothek_cube.cube.verbs.describe import discover_ktk_cube_dataset_ids as discover_ktk_cube_dataset_ids
else:
    # The same once more, for running code: a name loads its module when it is first used.
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "cube.verbs.describe": (
                "discover_cube, discover_datasets, discover_datasets_unchecked, discover_ktk_cube_dataset_ids"
            ),
        },
    )
