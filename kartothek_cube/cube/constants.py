"""Constants of the cube format: metadata keys and the separator of dataset uuids."""

from __future__ import annotations

from typing import Final

from kartothek_cube.core.naming import SINGLE_TABLE

__all__ = [
    "KTK_CUBE_COMPRESSION",
    "KTK_CUBE_METADATA_DIMENSION_COLUMNS",
    "KTK_CUBE_METADATA_KEY_IS_SEED",
    "KTK_CUBE_METADATA_PARTITION_COLUMNS",
    "KTK_CUBE_METADATA_STORAGE_FORMAT",
    "KTK_CUBE_METADATA_SUPPRESS_INDEX_ON",
    "KTK_CUBE_METADATA_VERSION",
    "KTK_CUBE_UUID_SEPERATOR",
    "LEGACY_DIMENSION_COLUMNS",
    "LEGACY_IS_SEED",
    "LEGACY_PARTITION_COLUMNS",
    "LEGACY_TIMESTAMP_PAYLOAD",
    "SINGLE_TABLE",
]

# Compression of the data files that cube verbs write where no df_serializer is given.
KTK_CUBE_COMPRESSION: Final = "ZSTD"

KTK_CUBE_METADATA_STORAGE_FORMAT: Final = "json"
KTK_CUBE_METADATA_VERSION: Final = 4

KTK_CUBE_METADATA_KEY_IS_SEED: Final = "ktk_cube_is_seed"
KTK_CUBE_METADATA_DIMENSION_COLUMNS: Final = "ktk_cube_dimension_columns"
KTK_CUBE_METADATA_PARTITION_COLUMNS: Final = "ktk_cube_partition_columns"
KTK_CUBE_METADATA_SUPPRESS_INDEX_ON: Final = "ktk_cube_suppress_index_on"

# Between the prefix of a cube and the id of a dataset. The spelling is kartothek's.
KTK_CUBE_UUID_SEPERATOR: Final = "++"

# Written by kartothek's predecessor; read, never written. The column is hidden everywhere.
LEGACY_IS_SEED: Final = "klee_is_seed"
LEGACY_DIMENSION_COLUMNS: Final = "klee_dimension_columns"
LEGACY_PARTITION_COLUMNS: Final = "klee_partition_columns"
LEGACY_TIMESTAMP_PAYLOAD: Final = "KLEE_TS"
