"""From rows to staged files: input checked, cut into partitions, encoded under fresh keys.

Nothing is visible yet.
"""
