"""Garbage collection: which unreferenced files may go, how old they are, and their removal."""
