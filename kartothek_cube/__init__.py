"""Tables and cubes as Parquet files in any key-value store, read as one virtual DataFrame.

The everyday names are here; they are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kartothek_cube.core.runtime.lazy_names import lazy_names

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
    from kartothek_cube.core.dataset.history import (
        drop_dataset_tag,
        list_dataset_tags,
        read_dataset_changes,
        tag_dataset,
    )
    from kartothek_cube.core.dataset.maintain import build_statistics, drop_columns, list_datasets, set_layout
    from kartothek_cube.core.dataset.rows import delete_rows, merge_dataset, update_rows
    from kartothek_cube.core.runtime.options import Progress, options
    from kartothek_cube.core.stores.open import open_store
    from kartothek_cube.engines.verbs import connect, scan_cube, scan_dataset
    from kartothek_cube.handles import CubeHandle, DatasetHandle, open, open_dataset  # noqa: A004, F401 - not in __all__
else:
    # The same once more, for running code: a name loads its module when it is first used.
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "api.cube": [
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
                "cube_history",
                "cube_report",
                "delete_cells",
                "delete_cube",
                "describe_cube",
                "describe_cube_changes",
                "drop_cube_index",
                "drop_cube_tag",
                "extend_cube",
                "iter_cube",
                "list_cube_tags",
                "list_cubes",
                "load_group",
                "open_cube",
                "plan_cube_query",
                "query_cube",
                "query_cube_arrow",
                "query_cube_changes",
                "remove_partitions",
                "run_plan",
                "stream_cube",
                "tag_cube",
                "undo_cube",
                "update_cube",
                "verify_cube",
            ],
            "core.dataset.history": [
                "drop_dataset_tag",
                "list_dataset_tags",
                "read_dataset_changes",
                "tag_dataset",
            ],
            "core.dataset.maintain": [
                "build_statistics",
                "drop_columns",
                "list_datasets",
                "set_layout",
            ],
            "core.dataset.rows": [
                "delete_rows",
                "merge_dataset",
                "update_rows",
            ],
            "core.runtime.options": [
                "Progress",
                "options",
            ],
            "core.stores.open": [
                "open_store",
            ],
            "engines.verbs": [
                "connect",
                "scan_cube",
                "scan_dataset",
            ],
            "errors": [
                "errors",
            ],
            "handles": [
                "CubeHandle",
                "DatasetHandle",
                "open",
                "open_dataset",
            ],
        },
    )

__version__ = "0.2.0"

__all__ = [
    "C",
    "Conjunction",
    "Cube",
    "CubeHandle",
    "DatasetHandle",
    "Progress",
    "__version__",
    "append_to_cube",
    "build_cube",
    "build_cube_index",
    "build_statistics",
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
    "delete_rows",
    "describe_cube",
    "describe_cube_changes",
    "drop_columns",
    "drop_cube_index",
    "drop_cube_tag",
    "drop_dataset_tag",
    "errors",
    "extend_cube",
    "iter_cube",
    "list_cube_tags",
    "list_cubes",
    "list_dataset_tags",
    "list_datasets",
    "load_group",
    "merge_dataset",
    "open_cube",
    "open_dataset",
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
    "set_layout",
    "stream_cube",
    "tag_cube",
    "tag_dataset",
    "undo_cube",
    "update_cube",
    "update_rows",
    "verify_cube",
]
