"""Handles: a cube or a dataset with its store, for notebooks."""
