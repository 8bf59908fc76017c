"""Consistency: kartothek's ``api.consistency``."""

from kartothek_cube.cube.cube import get_payload_subset
from kartothek_cube.cube.verbs.discover import check_datasets, get_cube_payload

__all__ = ["check_datasets", "get_cube_payload", "get_payload_subset"]
