"""Data files: Parquet and CSV, read and written as Arrow tables."""
