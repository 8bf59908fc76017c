"""Cubes in PySpark: the verbs that read and write them with Spark data frames, on classic and Connect sessions."""

from __future__ import annotations

from kartothek_cube.spark.errors import driver_errors
from kartothek_cube.spark.groups import map_cube_groups
from kartothek_cube.spark.query import query_cube_spark
from kartothek_cube.spark.write import append_to_cube_from_spark, build_cube_from_spark, extend_cube_from_spark, update_cube_from_spark
from kartothek_cube.testing.java import ensure_java, java_home

__all__ = [
    "append_to_cube_from_spark",
    "build_cube_from_spark",
    "driver_errors",
    "ensure_java",
    "extend_cube_from_spark",
    "java_home",
    "map_cube_groups",
    "query_cube_spark",
    "update_cube_from_spark",
]
