"""Data files: Parquet and CSV, read and written as Arrow tables.

Nothing here knows which files belong to a dataset.
"""
