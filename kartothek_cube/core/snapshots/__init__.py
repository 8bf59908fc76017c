"""Present and past snapshots of datasets: documents read and swapped, snapshots loaded, cached.

What a commit changes is decided in ``core/commit``.
"""
