"""Serializers and predicates: ``plateau.serialization``."""

from kartothek_cube.core.kartothek.serializers import (
    ConjunctionType,
    CsvSerializer,
    DataFrameSerializer,
    LiteralType,
    LiteralValue,
    ParquetSerializer,
    PredicatesType,
    check_predicates,
    columns_in_predicates,
    default_serializer,
    filter_array_like,
    filter_df,
    filter_df_from_predicates,
    filter_predicates_by_column,
)

__all__ = [
    "ConjunctionType",
    "CsvSerializer",
    "DataFrameSerializer",
    "LiteralType",
    "LiteralValue",
    "ParquetSerializer",
    "PredicatesType",
    "check_predicates",
    "columns_in_predicates",
    "default_serializer",
    "filter_array_like",
    "filter_df",
    "filter_df_from_predicates",
    "filter_predicates_by_column",
]
