"""Cubes and datasets in PySpark: reading, writing and maintenance, on classic and Connect sessions.

The verbs are imported on first use: a task needs few of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kartothek_cube.errors import MissingExtra

if TYPE_CHECKING:
    from kartothek_cube.spark.actions import driver_errors
    from kartothek_cube.spark.cube_maintenance import (
        cleanup_cube_spark,
        collect_stats_spark,
        compact_cube_spark,
        copy_cube_spark,
        delete_cube_spark,
        remove_partitions_spark,
    )
    from kartothek_cube.spark.dataset_maintenance import (
        build_dataset_indices_spark,
        collect_dataset_metadata_spark,
        compact_dataset_spark,
        copy_dataset_spark,
        delete_dataset_spark,
        delete_rows_spark,
        garbage_collect_dataset_spark,
        hash_dataset_spark,
    )
    from kartothek_cube.spark.datasource import register
    from kartothek_cube.spark.java import ensure_java, java_home
    from kartothek_cube.spark.read.dataset import read_dataset_as_spark
    from kartothek_cube.spark.read.groups import map_cube_groups
    from kartothek_cube.spark.read.query import query_cube_spark
    from kartothek_cube.spark.write.cube import (
        append_to_cube_from_spark,
        build_cube_from_spark,
        extend_cube_from_spark,
        update_cube_from_spark,
    )
    from kartothek_cube.spark.write.dataset import store_dataset_from_spark, update_dataset_from_spark
    from kartothek_cube.spark.write.merge import merge_dataset_from_spark

_HOMES = {
    "append_to_cube_from_spark": "spark.write.cube",
    "build_cube_from_spark": "spark.write.cube",
    "build_dataset_indices_spark": "spark.dataset_maintenance",
    "cleanup_cube_spark": "spark.cube_maintenance",
    "collect_dataset_metadata_spark": "spark.dataset_maintenance",
    "collect_stats_spark": "spark.cube_maintenance",
    "compact_cube_spark": "spark.cube_maintenance",
    "compact_dataset_spark": "spark.dataset_maintenance",
    "copy_cube_spark": "spark.cube_maintenance",
    "copy_dataset_spark": "spark.dataset_maintenance",
    "delete_cube_spark": "spark.cube_maintenance",
    "delete_dataset_spark": "spark.dataset_maintenance",
    "delete_rows_spark": "spark.dataset_maintenance",
    "driver_errors": "spark.actions",
    "ensure_java": "spark.java",
    "extend_cube_from_spark": "spark.write.cube",
    "garbage_collect_dataset_spark": "spark.dataset_maintenance",
    "hash_dataset_spark": "spark.dataset_maintenance",
    "java_home": "spark.java",
    "map_cube_groups": "spark.read.groups",
    "merge_dataset_from_spark": "spark.write.merge",
    "query_cube_spark": "spark.read.query",
    "read_dataset_as_spark": "spark.read.dataset",
    "register": "spark.datasource",
    "remove_partitions_spark": "spark.cube_maintenance",
    "store_dataset_from_spark": "spark.write.dataset",
    "update_cube_from_spark": "spark.write.cube",
    "update_dataset_from_spark": "spark.write.dataset",
}

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
    "delete_rows_spark",
    "driver_errors",
    "ensure_java",
    "extend_cube_from_spark",
    "garbage_collect_dataset_spark",
    "hash_dataset_spark",
    "java_home",
    "map_cube_groups",
    "merge_dataset_from_spark",
    "query_cube_spark",
    "read_dataset_as_spark",
    "register",
    "remove_partitions_spark",
    "store_dataset_from_spark",
    "update_cube_from_spark",
    "update_dataset_from_spark",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'kartothek_cube.spark' has no attribute {name!r}")
    try:
        return getattr(import_module(f"kartothek_cube.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "pyspark":
            raise
        raise MissingExtra(
            f"kartothek_cube.spark.{name} needs the package pyspark, which is not installed: "
            "pip install 'kartothek-cube[spark]'"
        ) from None


def __dir__() -> list[str]:
    return sorted(__all__)
