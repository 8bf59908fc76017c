"""The Spark data source ``kartothek_cube``: batch, stream and SQL."""

from __future__ import annotations

from kartothek_cube.spark.datasource.source import register as register
