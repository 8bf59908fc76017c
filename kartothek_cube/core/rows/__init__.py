"""Rows that are deleted, updated and merged: copy-on-write of the files that have them.

The way of a value: conditions or keys → files that may match → matches → new files → one commit.
"""
