"""Serializers: kartothek's ``api.serialization``."""

from kartothek_cube.core.kartothek.filters import (
    ConjunctionType,
    LiteralType,
    LiteralValue,
    PredicatesType,
    check_predicates,
    columns_in_predicates,
    filter_array_like,
    filter_df,
    filter_df_from_predicates,
    filter_predicates_by_column,
)
from kartothek_cube.core.kartothek.serializers import (
    CsvSerializer,
    DataFrameSerializer,
    ParquetReadError,
    ParquetSerializer,
    default_serializer,
)

__all__ = [
    "ConjunctionType",
    "CsvSerializer",
    "DataFrameSerializer",
    "LiteralType",
    "LiteralValue",
    "ParquetReadError",
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
