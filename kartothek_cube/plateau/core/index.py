"""Indices: ``plateau.core.index``."""

from kartothek_cube.core.kartothek.indices import ExplicitSecondaryIndex, IndexBase, PartitionIndex

__all__ = ["ExplicitSecondaryIndex", "IndexBase", "PartitionIndex"]
