"""Cubes and datasets in PySpark: reading, writing and maintenance, on classic and Connect sessions.

The verbs are imported on first use: a task needs few of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kartothek_cube.errors import MissingExtra

if TYPE_CHECKING:
    from kartothek_cube.spark.datasource import register
    from kartothek_cube.spark.java import ensure_java, java_home
    from kartothek_cube.spark.maintenance import (
        build_dataset_indices_spark,
        cleanup_cube_spark,
        collect_dataset_metadata_spark,
        collect_stats_spark,
        compact_cube_spark,
        compact_dataset_spark,
        copy_cube_spark,
        copy_dataset_spark,
        delete_cube_spark,
        delete_dataset_spark,
        delete_rows_spark,
        garbage_collect_dataset_spark,
        hash_dataset_spark,
        remove_partitions_spark,
    )
    from kartothek_cube.spark.read import map_cube_groups, query_cube_spark, read_dataset_as_spark
    from kartothek_cube.spark.tasks import driver_errors
    from kartothek_cube.spark.write import (
        append_to_cube_from_spark,
        build_cube_from_spark,
        extend_cube_from_spark,
        merge_dataset_from_spark,
        store_dataset_from_spark,
        update_cube_from_spark,
        update_dataset_from_spark,
    )

_HOMES = {
    "append_to_cube_from_spark": "spark.write",
    "build_cube_from_spark": "spark.write",
    "build_dataset_indices_spark": "spark.maintenance",
    "cleanup_cube_spark": "spark.maintenance",
    "collect_dataset_metadata_spark": "spark.maintenance",
    "collect_stats_spark": "spark.maintenance",
    "compact_cube_spark": "spark.maintenance",
    "compact_dataset_spark": "spark.maintenance",
    "copy_cube_spark": "spark.maintenance",
    "copy_dataset_spark": "spark.maintenance",
    "delete_cube_spark": "spark.maintenance",
    "delete_dataset_spark": "spark.maintenance",
    "delete_rows_spark": "spark.maintenance",
    "driver_errors": "spark.tasks",
    "ensure_java": "spark.java",
    "extend_cube_from_spark": "spark.write",
    "garbage_collect_dataset_spark": "spark.maintenance",
    "hash_dataset_spark": "spark.maintenance",
    "java_home": "spark.java",
    "map_cube_groups": "spark.read",
    "merge_dataset_from_spark": "spark.write",
    "query_cube_spark": "spark.read",
    "read_dataset_as_spark": "spark.read",
    "register": "spark.datasource",
    "remove_partitions_spark": "spark.maintenance",
    "store_dataset_from_spark": "spark.write",
    "update_cube_from_spark": "spark.write",
    "update_dataset_from_spark": "spark.write",
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
