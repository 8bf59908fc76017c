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
        cube_history,
        cube_report,
        delete_cells,
        delete_cube,
        describe_cube,
        describe_cube_changes,
        drop_cube_index,
        drop_cube_tag,
        extend_cube,
        iter_cube,
        list_cube_tags,
        list_cubes,
        load_group,
        open_cube,
        plan_cube_query,
        query_cube,
        query_cube_arrow,
        query_cube_changes,
        remove_partitions,
        run_plan,
        stream_cube,
        tag_cube,
        undo_cube,
        update_cube,
        verify_cube,
    )
    from kartothek_cube.core.dataset.changes import read_dataset_changes
    from kartothek_cube.core.dataset.inspect import list_datasets
    from kartothek_cube.core.runtime.options import options
    from kartothek_cube.core.runtime.progress import Progress
    from kartothek_cube.core.stores.open import open_store
    from kartothek_cube.engines.verbs import connect, scan_cube, scan_dataset

__version__ = "0.1.0"

# Name → its module, so that importing one name does not load all verbs.
_HOMES = {
    "C": "core.expressions.conditions",
    "Conjunction": "core.expressions.conditions",
    "Cube": "cube.cube",
    "Progress": "core.runtime.progress",
    "append_to_cube": "cube.verbs.append",
    "build_cube": "cube.verbs.build",
    "build_cube_index": "cube.verbs.indices",
    "cleanup_cube": "cube.verbs.cleanup",
    "collect_stats": "cube.verbs.stats",
    "connect": "engines.verbs",
    "compact_cube": "cube.verbs.compact",
    "copy_cube": "cube.verbs.copy",
    "count_cube": "cube.verbs.stream",
    "cube_history": "cube.verbs.history",
    "cube_report": "cube.verbs.report",
    "delete_cells": "cube.verbs.delete_cells",
    "delete_cube": "cube.verbs.delete",
    "describe_cube": "cube.verbs.describe",
    "describe_cube_changes": "cube.verbs.describe_changes",
    "drop_cube_index": "cube.verbs.indices",
    "drop_cube_tag": "cube.verbs.tags",
    "extend_cube": "cube.verbs.build",
    "iter_cube": "cube.verbs.query",
    "list_cube_tags": "cube.verbs.tags",
    "list_cubes": "cube.verbs.describe",
    "list_datasets": "core.dataset.inspect",
    "load_group": "cube.verbs.query",
    "open_cube": "cube.verbs.discover",
    "open_store": "core.stores.open",
    "options": "core.runtime.options",
    "plan_cube_query": "cube.verbs.query",
    "query_cube": "cube.verbs.query",
    "query_cube_arrow": "cube.verbs.query",
    "query_cube_changes": "cube.verbs.changes",
    "read_dataset_changes": "core.dataset.changes",
    "remove_partitions": "cube.verbs.append",
    "run_plan": "cube.verbs.stream",
    "scan_cube": "engines.verbs",
    "scan_dataset": "engines.verbs",
    "stream_cube": "cube.verbs.stream",
    "tag_cube": "cube.verbs.tags",
    "undo_cube": "cube.verbs.history",
    "update_cube": "cube.verbs.append",
    "verify_cube": "cube.verbs.verify",
}

__all__ = [
    "C",
    "Conjunction",
    "Cube",
    "Progress",
    "__version__",
    "append_to_cube",
    "build_cube",
    "build_cube_index",
    "cleanup_cube",
    "collect_stats",
    "compact_cube",
    "connect",
    "copy_cube",
    "count_cube",
    "cube_history",
    "cube_report",
    "delete_cells",
    "delete_cube",
    "describe_cube",
    "describe_cube_changes",
    "drop_cube_index",
    "drop_cube_tag",
    "errors",
    "extend_cube",
    "iter_cube",
    "list_cube_tags",
    "list_cubes",
    "list_datasets",
    "load_group",
    "open_cube",
    "open_store",
    "options",
    "plan_cube_query",
    "query_cube",
    "query_cube_arrow",
    "query_cube_changes",
    "read_dataset_changes",
    "remove_partitions",
    "run_plan",
    "scan_cube",
    "scan_dataset",
    "stream_cube",
    "tag_cube",
    "undo_cube",
    "update_cube",
    "verify_cube",
]


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("kartothek_cube.errors")
    if name in _HOMES:
        return getattr(import_module(f"kartothek_cube.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'kartothek_cube' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
