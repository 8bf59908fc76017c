"""Serializers: kartothek's ``api.serialization``."""

from typing import TYPE_CHECKING

from kartothek_cube.core.runtime.lazy_names import lazy_names

if TYPE_CHECKING:
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
else:
    # The same once more, for running code: a name loads its module when it is first used.
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "core.kartothek.filters": [
                "ConjunctionType",
                "LiteralType",
                "LiteralValue",
                "PredicatesType",
                "check_predicates",
                "columns_in_predicates",
                "filter_array_like",
                "filter_df",
                "filter_df_from_predicates",
                "filter_predicates_by_column",
            ],
            "core.kartothek.serializers": [
                "CsvSerializer",
                "DataFrameSerializer",
                "ParquetReadError",
                "ParquetSerializer",
                "default_serializer",
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
