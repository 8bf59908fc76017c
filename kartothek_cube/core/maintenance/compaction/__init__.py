"""Compaction of one dataset: small files of a physical partition become fewer, larger ones."""
