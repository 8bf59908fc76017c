"""Making the data source known to a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kartothek_cube.spark.session import cores, find_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]

_PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession | None = None) -> None:
    """Make the format ``kartothek_cube`` known to a session and switch on that filters may reach it. Calling it twice does no harm.

    Parameters
    ----------
    spark : SparkSession, optional
        By default the active session; classic or Connect.

    Raises
    ------
    InvalidInput
        If there is no session.

    Examples
    --------
    >>> from pathlib import Path
    >>> import pandas as pd
    >>> from kartothek_cube.api.cube import Cube, build_cube
    >>> from kartothek_cube.spark import register
    >>> store = f"hfs://{Path.cwd()}/store"
    >>> sales = pd.DataFrame({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = build_cube(sales, Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales"), store)
    >>> register(spark)
    >>> spark.read.format("kartothek_cube").options(store=store, cube="sales", conditions="UNITS > 3").load().collect()
    [Row(COUNTRY_CODE='FR', PRODUCT_ID=2, UNITS=4)]
    """
    from kartothek_cube.spark.datasource.source import KartothekCubeSource

    session = find_session(spark)
    # Without it Spark refuses every read with the option push_down.
    session.conf.set(_PUSH_DOWN, "true")
    # Spark plans a read in a process that knows neither session nor cluster: what it needs of them travels in the class.
    session.dataSource.register(type("KartothekCubeSource", (KartothekCubeSource,), {"cores": cores(session, None)}))
