"""Schemas: ``plateau.core.common_metadata``."""

from kartothek_cube.core.kartothek.schema_wrapper import (
    SchemaWrapper,
    empty_dataframe_from_schema,
    make_meta,
    normalize_column_order,
    normalize_type,
    read_schema_metadata,
    store_schema_metadata,
    validate_compatible,
)

__all__ = [
    "SchemaWrapper",
    "empty_dataframe_from_schema",
    "make_meta",
    "normalize_column_order",
    "normalize_type",
    "read_schema_metadata",
    "store_schema_metadata",
    "validate_compatible",
]
