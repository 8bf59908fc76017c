"""Committing: changes as values, rebase onto newer states, and one compare-and-swap per group.

Rows are staged in `core.write`; nothing here plans reads.
"""
