"""Tables and cubes as Parquet files in any key-value store, read as one virtual DataFrame.

The everyday names are here; they are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kartothek_cube.core.runtime.lazy_names import lazy_names

if TYPE_CHECKING:
    from kartothek_cube import errors as errors
    from kartothek_cube.api.cube import C as C
    from kartothek_cube.api.cube import Conjunction as Conjunction
    from kartothek_cube.api.cube import Cube as Cube
    from kartothek_cube.api.cube import append_to_cube as append_to_cube
    from kartothek_cube.api.cube import build_cube as build_cube
    from kartothek_cube.api.cube import build_cube_index as build_cube_index
    from kartothek_cube.api.cube import check_migration as check_migration
    from kartothek_cube.api.cube import cleanup_cube as cleanup_cube
    from kartothek_cube.api.cube import collect_stats as collect_stats
    from kartothek_cube.api.cube import compact_cube as compact_cube
    from kartothek_cube.api.cube import copy_cube as copy_cube
    from kartothek_cube.api.cube import count_cube as count_cube
    from kartothek_cube.api.cube import cube_history as cube_history
    from kartothek_cube.api.cube import cube_report as cube_report
    from kartothek_cube.api.cube import delete_cells as delete_cells
    from kartothek_cube.api.cube import delete_cube as delete_cube
    from kartothek_cube.api.cube import describe_cube as describe_cube
    from kartothek_cube.api.cube import describe_cube_changes as describe_cube_changes
    from kartothek_cube.api.cube import drop_cube_index as drop_cube_index
    from kartothek_cube.api.cube import drop_cube_tag as drop_cube_tag
    from kartothek_cube.api.cube import extend_cube as extend_cube
    from kartothek_cube.api.cube import forget_cells as forget_cells
    from kartothek_cube.api.cube import iter_cube as iter_cube
    from kartothek_cube.api.cube import list_cube_tags as list_cube_tags
    from kartothek_cube.api.cube import list_cubes as list_cubes
    from kartothek_cube.api.cube import load_group as load_group
    from kartothek_cube.api.cube import open_cube as open_cube
    from kartothek_cube.api.cube import plan_cube_query as plan_cube_query
    from kartothek_cube.api.cube import publish_cube_delta as publish_cube_delta
    from kartothek_cube.api.cube import query_cube as query_cube
    from kartothek_cube.api.cube import query_cube_arrow as query_cube_arrow
    from kartothek_cube.api.cube import query_cube_changes as query_cube_changes
    from kartothek_cube.api.cube import remove_partitions as remove_partitions
    from kartothek_cube.api.cube import rename_cube as rename_cube
    from kartothek_cube.api.cube import run_plan as run_plan
    from kartothek_cube.api.cube import stream_cube as stream_cube
    from kartothek_cube.api.cube import tag_cube as tag_cube
    from kartothek_cube.api.cube import undo_cube as undo_cube
    from kartothek_cube.api.cube import update_cube as update_cube
    from kartothek_cube.api.cube import verify_cube as verify_cube
    from kartothek_cube.core.dataset.history import drop_dataset_tag as drop_dataset_tag
    from kartothek_cube.core.dataset.history import list_dataset_tags as list_dataset_tags
    from kartothek_cube.core.dataset.history import read_dataset_changes as read_dataset_changes
    from kartothek_cube.core.dataset.history import tag_dataset as tag_dataset
    from kartothek_cube.core.dataset.maintain import build_statistics as build_statistics
    from kartothek_cube.core.dataset.maintain import drop_columns as drop_columns
    from kartothek_cube.core.dataset.maintain import list_datasets as list_datasets
    from kartothek_cube.core.dataset.maintain import publish_delta as publish_delta
    from kartothek_cube.core.dataset.maintain import set_layout as set_layout
    from kartothek_cube.core.dataset.maintain import unpublish_delta as unpublish_delta
    from kartothek_cube.core.dataset.rows import delete_rows as delete_rows
    from kartothek_cube.core.dataset.rows import merge_dataset as merge_dataset
    from kartothek_cube.core.dataset.rows import update_rows as update_rows
    from kartothek_cube.core.runtime.options import Progress as Progress
    from kartothek_cube.core.runtime.options import options as options
    from kartothek_cube.core.stores.open import open_store as open_store
    from kartothek_cube.engines.verbs import connect as connect
    from kartothek_cube.engines.verbs import scan_cube as scan_cube
    from kartothek_cube.engines.verbs import scan_dataset as scan_dataset
    from kartothek_cube.handles import CubeHandle as CubeHandle
    from kartothek_cube.handles import DatasetHandle as DatasetHandle
    from kartothek_cube.handles import open as open  # noqa: A004 - left out of __all__
    from kartothek_cube.handles import open_dataset as open_dataset
else:
    # The same once more, for running code: a name loads its module when it is first used.
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "api.cube": (
                "C, Conjunction, Cube, append_to_cube, build_cube, build_cube_index, check_migration, cleanup_cube, "
                "collect_stats, compact_cube, copy_cube, count_cube, cube_history, cube_report, delete_cells, "
                "delete_cube, describe_cube, describe_cube_changes, drop_cube_index, drop_cube_tag, extend_cube, "
                "forget_cells, iter_cube, list_cube_tags, list_cubes, load_group, open_cube, plan_cube_query, "
                "publish_cube_delta, query_cube, query_cube_arrow, query_cube_changes, remove_partitions, rename_cube, "
                "run_plan, stream_cube, tag_cube, undo_cube, update_cube, verify_cube"
            ),
            "core.dataset.history": "drop_dataset_tag, list_dataset_tags, read_dataset_changes, tag_dataset",
            "core.dataset.maintain": (
                "build_statistics, drop_columns, list_datasets, publish_delta, set_layout, unpublish_delta"
            ),
            "core.dataset.rows": "delete_rows, merge_dataset, update_rows",
            "core.runtime.options": "Progress, options",
            "core.stores.open": "open_store",
            "engines.verbs": "connect, scan_cube, scan_dataset",
            "errors": "errors",
            "handles": "CubeHandle, DatasetHandle, open, open_dataset",
        },
    )
    __all__ += ["__version__"]

__version__ = "0.2.0"
