"""Compaction: fewer, larger files for the same rows."""
