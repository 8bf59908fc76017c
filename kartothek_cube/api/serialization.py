"""Serializers: kartothek's ``api.serialization``."""

from typing import TYPE_CHECKING

from kartothek_cube.core.runtime.lazy_names import lazy_names

if TYPE_CHECKING:
    from kartothek_cube.core.kartothek.serializers import ConjunctionType as ConjunctionType
    from kartothek_cube.core.kartothek.serializers import CsvSerializer as CsvSerializer
    from kartothek_cube.core.kartothek.serializers import DataFrameSerializer as DataFrameSerializer
    from kartothek_cube.core.kartothek.serializers import LiteralType as LiteralType
    from kartothek_cube.core.kartothek.serializers import LiteralValue as LiteralValue
    from kartothek_cube.core.kartothek.serializers import ParquetReadError as ParquetReadError
    from kartothek_cube.core.kartothek.serializers import ParquetSerializer as ParquetSerializer
    from kartothek_cube.core.kartothek.serializers import PredicatesType as PredicatesType
    from kartothek_cube.core.kartothek.serializers import check_predicates as check_predicates
    from kartothek_cube.core.kartothek.serializers import columns_in_predicates as columns_in_predicates
    from kartothek_cube.core.kartothek.serializers import default_serializer as default_serializer
    from kartothek_cube.core.kartothek.serializers import filter_array_like as filter_array_like
    from kartothek_cube.core.kartothek.serializers import filter_df as filter_df
    from kartothek_cube.core.kartothek.serializers import filter_df_from_predicates as filter_df_from_predicates
    from kartothek_cube.core.kartothek.serializers import filter_predicates_by_column as filter_predicates_by_column
else:
    # The same once more, for running code: a name loads its module when it is first used.
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "core.kartothek.serializers": (
                "ConjunctionType, CsvSerializer, DataFrameSerializer, LiteralType, LiteralValue, ParquetReadError, "
                "ParquetSerializer, PredicatesType, check_predicates, columns_in_predicates, default_serializer, "
                "filter_array_like, filter_df, filter_df_from_predicates, filter_predicates_by_column"
            ),
        },
    )
