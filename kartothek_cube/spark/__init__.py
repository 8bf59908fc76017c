"""Cubes in PySpark: the verbs that read and write them with Spark data frames, on classic and Connect sessions."""

from __future__ import annotations

from kartothek_cube.spark.datasource import register
from kartothek_cube.spark.errors import driver_errors
from kartothek_cube.spark.groups import map_cube_groups
from kartothek_cube.spark.maintain_cube import cleanup_cube_spark, collect_stats_spark, compact_cube_spark, copy_cube_spark, delete_cube_spark
from kartothek_cube.spark.maintain_dataset import (
    build_dataset_indices_spark,
    collect_dataset_metadata_spark,
    compact_dataset_spark,
    copy_dataset_spark,
    delete_dataset_spark,
    garbage_collect_dataset_spark,
    hash_dataset_spark,
)
from kartothek_cube.spark.query import query_cube_spark
from kartothek_cube.spark.read import read_dataset_as_spark
from kartothek_cube.spark.remove import remove_partitions_spark
from kartothek_cube.spark.write import append_to_cube_from_spark, build_cube_from_spark, extend_cube_from_spark, update_cube_from_spark
from kartothek_cube.spark.write_dataset import store_dataset_from_spark, update_dataset_from_spark
from kartothek_cube.testing.java import ensure_java, java_home

__all__ = [
    "append_to_cube_from_spark",
    "build_cube_from_spark",
    "build_dataset_indices_spark",
    "cleanup_cube_spark",
    "collect_dataset_metadata_spark",
    "collect_stats_spark",
    "compact_cube_spark",
    "compact_dataset_spark",
    "copy_cube_spark",
    "copy_dataset_spark",
    "delete_cube_spark",
    "delete_dataset_spark",
    "driver_errors",
    "ensure_java",
    "extend_cube_from_spark",
    "garbage_collect_dataset_spark",
    "hash_dataset_spark",
    "java_home",
    "map_cube_groups",
    "query_cube_spark",
    "read_dataset_as_spark",
    "register",
    "remove_partitions_spark",
    "store_dataset_from_spark",
    "update_cube_from_spark",
    "update_dataset_from_spark",
]
