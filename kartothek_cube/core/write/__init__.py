"""From rows to staged files: input checked, cut into partitions, encoded, put under new keys.

Nothing is visible yet: commits are in ``core/commit``.
"""
