"""Faster ways through large documents that rely on internals of Arrow and on the form of the text.

Each has a plain equal outside of this folder, taken where `uses_fast_paths` says no.
"""
