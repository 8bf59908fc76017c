"""Datasets: ``plateau.core.dataset``."""

from kartothek_cube.core.kartothek.dataset_metadata import DatasetMetadata, DatasetMetadataBase

__all__ = ["DatasetMetadata", "DatasetMetadataBase"]
