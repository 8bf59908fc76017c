"""Faster ways to read Parquet that rely on internals of Arrow.

Each has a plain equal outside of this folder, taken where `uses_fast_paths` says no.
"""
