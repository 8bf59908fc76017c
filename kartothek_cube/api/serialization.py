"""Serializers: kartothek's ``api.serialization``."""

from typing import TYPE_CHECKING

from kartothek_cube.core.runtime.lazy_names import lazy_names

if TYPE_CHECKING:
    from kartothek_cube.core.kartothek.serializers import (
        ConjunctionType,
        CsvSerializer,
        DataFrameSerializer,
        LiteralType,
        LiteralValue,
        ParquetReadError,
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
else:
    # The same once more, for running code: a name loads its module when it is first used.
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "core.kartothek.serializers": [
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
            ],
        },
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
