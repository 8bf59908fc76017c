"""Tables and cubes as Parquet files in any key-value store, read as one virtual DataFrame.

The everyday names are here; they are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kartothek_cube import errors
    from kartothek_cube.api.cube import (
        C,
        Conjunction,
        Cube,
        append_to_cube,
        build_cube,
        build_cube_index,
        cleanup_cube,
        collect_stats,
        compact_cube,
        copy_cube,
        count_cube,
        delete_cube,
        describe_cube,
        drop_cube_index,
        extend_cube,
        iter_cube,
        list_cubes,
        load_group,
        open_cube,
        plan_cube_query,
        query_cube,
        query_cube_arrow,
        remove_partitions,
        run_plan,
        stream_cube,
        update_cube,
        verify_cube,
    )
    from kartothek_cube.core.options import options
    from kartothek_cube.core.stores import open_store

__version__ = "0.1.0"

_CUBE = (
    "C",
    "Conjunction",
    "Cube",
    "append_to_cube",
    "build_cube",
    "build_cube_index",
    "cleanup_cube",
    "collect_stats",
    "compact_cube",
    "copy_cube",
    "count_cube",
    "delete_cube",
    "describe_cube",
    "drop_cube_index",
    "extend_cube",
    "iter_cube",
    "list_cubes",
    "load_group",
    "open_cube",
    "plan_cube_query",
    "query_cube",
    "query_cube_arrow",
    "remove_partitions",
    "run_plan",
    "stream_cube",
    "update_cube",
    "verify_cube",
)
_HOMES = dict.fromkeys(_CUBE, "kartothek_cube.api.cube") | {
    "errors": "kartothek_cube",
    "open_store": "kartothek_cube.core.stores",
    "options": "kartothek_cube.core.options",
}

__all__ = [
    "C",
    "Conjunction",
    "Cube",
    "__version__",
    "append_to_cube",
    "build_cube",
    "build_cube_index",
    "cleanup_cube",
    "collect_stats",
    "compact_cube",
    "copy_cube",
    "count_cube",
    "delete_cube",
    "describe_cube",
    "drop_cube_index",
    "errors",
    "extend_cube",
    "iter_cube",
    "list_cubes",
    "load_group",
    "open_cube",
    "open_store",
    "options",
    "plan_cube_query",
    "query_cube",
    "query_cube_arrow",
    "remove_partitions",
    "run_plan",
    "stream_cube",
    "update_cube",
    "verify_cube",
]


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("kartothek_cube.errors")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'kartothek_cube' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
