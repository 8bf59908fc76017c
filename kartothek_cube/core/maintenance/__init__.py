"""Maintenance of one dataset: garbage, deletion, copies, change of encoding."""
