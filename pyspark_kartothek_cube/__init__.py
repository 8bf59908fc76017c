"""The data source for Spark, which imports every module ``pyspark_*`` to look for `DefaultSource`.

So ``spark.read.format("kartothek_cube")`` needs no registration. This module says nothing else: an
error in it would break the data sources of all others.
"""

from __future__ import annotations

from kartothek_cube.spark.datasource import KartothekCubeSource as DefaultSource

__all__ = ["DefaultSource"]
