"""Consistency: kartothek's ``api.consistency``."""

from typing import TYPE_CHECKING

from kartothek_cube.core.runtime.lazy_names import lazy_names

if TYPE_CHECKING:
    from kartothek_cube.cube.cube import get_payload_subset as get_payload_subset
    from kartothek_cube.cube.verbs.describe import check_datasets as check_datasets
    from kartothek_cube.cube.verbs.describe import get_cube_payload as get_cube_payload
else:
    # The same once more, for running code: a name loads its module when it is first used.
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "cube.cube": "get_payload_subset",
            "cube.verbs.describe": "check_datasets, get_cube_payload",
        },
    )
