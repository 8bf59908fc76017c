"""Single datasets: kartothek's ``api.dataset``."""

from kartothek_cube.core.compat.dataset_metadata import DatasetMetadata
from kartothek_cube.core.dataset.read import read_table, read_table_arrow

__all__ = ["DatasetMetadata", "read_table", "read_table_arrow"]
