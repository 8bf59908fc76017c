"""A dataset as a Delta table: the log beside its files, so that other engines read them in place.

The page `docs/design/013-delta.md` has the rules.
"""
