"""Columns as Arrow arrays: types, schemas, sort keys, key indices, grouping.

Only `pandas` knows frames; no store is called.
"""
