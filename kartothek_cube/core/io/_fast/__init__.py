"""Faster ways to read that lean on internals of Arrow.

Each has an equal beside it that does not.
"""
