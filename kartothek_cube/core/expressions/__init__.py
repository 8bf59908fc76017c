"""Predicates and conditions as values, their evaluation, and their text form."""
