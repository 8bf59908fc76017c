"""Cubes and datasets in dask, under the names of ``kartothek.io.dask``."""
