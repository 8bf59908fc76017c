"""Garbage collection: what no document and no history names, how old it is, and its removal."""
