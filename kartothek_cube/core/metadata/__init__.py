"""The metadata document of a dataset as values and bytes, with its commit log, indices and history.

Nothing here reads or writes a store; only `naming` knows keys.
"""
