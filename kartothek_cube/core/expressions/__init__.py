"""Predicates and conditions as values, their evaluation on columns and bounds, and their text form.

Pure: which files a predicate leaves is decided in ``core/scan``.
"""
