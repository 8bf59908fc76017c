"""Cubes and datasets in dask, under the names of ``kartothek.io.dask``."""

from kartothek_cube.errors import MissingExtra

try:
    import dask.dataframe  # noqa: F401 - only whether it is there
except ImportError as error:
    raise MissingExtra(
        "kartothek_cube.dask needs the packages dask and distributed, which are not installed: "
        "pip install 'kartothek-cube[dask]'"
    ) from error

from kartothek_cube.dask.tasks import DaskExecutor as DaskExecutor

__all__ = ["DaskExecutor"]
