"""Cubes in PySpark: the verbs that read and write them with Spark data frames, on classic and Connect sessions.

They are imported when they are first used: a task needs few of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kartothek_cube.errors import MissingExtra

if TYPE_CHECKING:
    from types import ModuleType

    from kartothek_cube.spark.dataset_maintenance import (
        build_dataset_indices_spark,
        collect_dataset_metadata_spark,
        compact_dataset_spark,
        copy_dataset_spark,
        delete_dataset_spark,
        garbage_collect_dataset_spark,
        hash_dataset_spark,
    )
    from kartothek_cube.spark.datasource import register
    from kartothek_cube.spark.errors import driver_errors
    from kartothek_cube.spark.groups import map_cube_groups
    from kartothek_cube.spark.maintenance import (
        cleanup_cube_spark,
        collect_stats_spark,
        compact_cube_spark,
        copy_cube_spark,
        delete_cube_spark,
        remove_partitions_spark,
    )
    from kartothek_cube.spark.query import query_cube_spark
    from kartothek_cube.spark.read import read_dataset_as_spark
    from kartothek_cube.spark.write import append_to_cube_from_spark, build_cube_from_spark, extend_cube_from_spark, update_cube_from_spark
    from kartothek_cube.spark.write_dataset import store_dataset_from_spark, update_dataset_from_spark
    from kartothek_cube.testing.java import ensure_java, java_home

_HOMES = {
    "append_to_cube_from_spark": "spark.write",
    "build_cube_from_spark": "spark.write",
    "build_dataset_indices_spark": "spark.dataset_maintenance",
    "cleanup_cube_spark": "spark.maintenance",
    "collect_dataset_metadata_spark": "spark.dataset_maintenance",
    "collect_stats_spark": "spark.maintenance",
    "compact_cube_spark": "spark.maintenance",
    "compact_dataset_spark": "spark.dataset_maintenance",
    "copy_cube_spark": "spark.maintenance",
    "copy_dataset_spark": "spark.dataset_maintenance",
    "delete_cube_spark": "spark.maintenance",
    "delete_dataset_spark": "spark.dataset_maintenance",
    "driver_errors": "spark.errors",
    "ensure_java": "testing.java",
    "extend_cube_from_spark": "spark.write",
    "garbage_collect_dataset_spark": "spark.dataset_maintenance",
    "hash_dataset_spark": "spark.dataset_maintenance",
    "java_home": "testing.java",
    "map_cube_groups": "spark.groups",
    "query_cube_spark": "spark.query",
    "read_dataset_as_spark": "spark.read",
    "register": "spark.datasource",
    "remove_partitions_spark": "spark.maintenance",
    "store_dataset_from_spark": "spark.write_dataset",
    "update_cube_from_spark": "spark.write",
    "update_dataset_from_spark": "spark.write_dataset",
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


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(_home(name), name)
    raise AttributeError(f"module 'kartothek_cube.spark' has no attribute {name!r}")


def _home(name: str) -> ModuleType:
    """The module of a name."""
    try:
        return import_module(f"kartothek_cube.{_HOMES[name]}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "pyspark":
            raise
        raise MissingExtra(f"kartothek_cube.spark.{name} needs the package pyspark, which is not installed: pip install 'kartothek-cube[spark]'") from None


def __dir__() -> list[str]:
    return sorted(__all__)
