"""Cubes and datasets as tables of Polars and DuckDB."""
