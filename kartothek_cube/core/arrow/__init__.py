"""Columns as Arrow arrays: types, schemas, sort keys, search by key, grouping. pandas is met in `pandas` only."""
