"""Serializers: ``plateau.api.serialization``."""

from kartothek_cube.plateau.serialization import (
    CsvSerializer,
    DataFrameSerializer,
    LiteralValue,
    ParquetSerializer,
    check_predicates,
    columns_in_predicates,
    default_serializer,
    filter_array_like,
    filter_df,
    filter_df_from_predicates,
    filter_predicates_by_column,
)

__all__ = [
    "CsvSerializer",
    "DataFrameSerializer",
    "LiteralValue",
    "ParquetSerializer",
    "check_predicates",
    "columns_in_predicates",
    "default_serializer",
    "filter_array_like",
    "filter_df",
    "filter_df_from_predicates",
    "filter_predicates_by_column",
]
