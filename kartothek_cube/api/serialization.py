"""Serializers: kartothek's ``api.serialization``."""

from kartothek_cube.core.parquet import ParquetSerializer

__all__ = ["ParquetSerializer"]
