"""Cubes and datasets in PySpark: reading, writing and maintenance, on classic and Connect sessions.

The verbs are imported on first use: a task needs few of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kartothek_cube.core.runtime.lazy_names import lazy_names
from kartothek_cube.errors import MissingExtra

if TYPE_CHECKING:
    from kartothek_cube.spark.datasource import register as register
    from kartothek_cube.spark.java import ensure_java as ensure_java
    from kartothek_cube.spark.java import java_home as java_home
    from kartothek_cube.spark.maintenance import build_dataset_indices_spark as build_dataset_indices_spark
    from kartothek_cube.spark.maintenance import cleanup_cube_spark as cleanup_cube_spark
    from kartothek_cube.spark.maintenance import collect_dataset_metadata_spark as collect_dataset_metadata_spark
    from kartothek_cube.spark.maintenance import collect_stats_spark as collect_stats_spark
    from kartothek_cube.spark.maintenance import compact_cube_spark as compact_cube_spark
    from kartothek_cube.spark.maintenance import compact_dataset_spark as compact_dataset_spark
    from kartothek_cube.spark.maintenance import copy_cube_spark as copy_cube_spark
    from kartothek_cube.spark.maintenance import copy_dataset_spark as copy_dataset_spark
    from kartothek_cube.spark.maintenance import delete_cube_spark as delete_cube_spark
    from kartothek_cube.spark.maintenance import delete_dataset_spark as delete_dataset_spark
    from kartothek_cube.spark.maintenance import delete_rows_spark as delete_rows_spark
    from kartothek_cube.spark.maintenance import garbage_collect_dataset_spark as garbage_collect_dataset_spark
    from kartothek_cube.spark.maintenance import hash_dataset_spark as hash_dataset_spark
    from kartothek_cube.spark.maintenance import remove_partitions_spark as remove_partitions_spark
    from kartothek_cube.spark.read import map_cube_groups as map_cube_groups
    from kartothek_cube.spark.read import query_cube_spark as query_cube_spark
    from kartothek_cube.spark.read import read_dataset_as_spark as read_dataset_as_spark
    from kartothek_cube.spark.tasks import driver_errors as driver_errors
    from kartothek_cube.spark.write import append_to_cube_from_spark as append_to_cube_from_spark
    from kartothek_cube.spark.write import build_cube_from_spark as build_cube_from_spark
    from kartothek_cube.spark.write import extend_cube_from_spark as extend_cube_from_spark
    from kartothek_cube.spark.write import merge_dataset_from_spark as merge_dataset_from_spark
    from kartothek_cube.spark.write import store_dataset_from_spark as store_dataset_from_spark
    from kartothek_cube.spark.write import update_cube_from_spark as update_cube_from_spark
    from kartothek_cube.spark.write import update_dataset_from_spark as update_dataset_from_spark

# The same once more, for running code.
__all__, _find, __dir__ = lazy_names(
    __name__,
    {
        "spark.datasource": "register",
        "spark.java": "ensure_java, java_home",
        "spark.maintenance": (
            "build_dataset_indices_spark, cleanup_cube_spark, collect_dataset_metadata_spark, collect_stats_spark, "
            "compact_cube_spark, compact_dataset_spark, copy_cube_spark, copy_dataset_spark, delete_cube_spark, "
            "delete_dataset_spark, delete_rows_spark, garbage_collect_dataset_spark, hash_dataset_spark, "
            "remove_partitions_spark"
        ),
        "spark.read": "map_cube_groups, query_cube_spark, read_dataset_as_spark",
        "spark.tasks": "driver_errors",
        "spark.write": (
            "append_to_cube_from_spark, build_cube_from_spark, extend_cube_from_spark, merge_dataset_from_spark, "
            "store_dataset_from_spark, update_cube_from_spark, update_dataset_from_spark"
        ),
    },
)


def __getattr__(name: str) -> Any:
    try:
        return _find(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "pyspark":
            raise
        raise MissingExtra(
            f"kartothek_cube.spark.{name} needs the package pyspark, which is not installed: "
            "pip install 'kartothek-cube[spark]'"
        ) from None
