"""Datasets that load themselves: ``plateau.core.factory``."""

from kartothek_cube.core.kartothek.dataset_metadata import DatasetFactory

__all__ = ["DatasetFactory"]
