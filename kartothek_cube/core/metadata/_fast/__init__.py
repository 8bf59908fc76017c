"""Faster ways through large documents that lean on their form.

Each has an equal beside it that does not.
"""
