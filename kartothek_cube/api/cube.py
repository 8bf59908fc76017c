"""Cubes: kartothek's ``api.cube``."""

from typing import TYPE_CHECKING

from kartothek_cube.core.runtime.lazy_names import lazy_names

if TYPE_CHECKING:
    from kartothek_cube.core.expressions.conditions import (
        C,
        Condition,
        Conjunction,
        EqualityCondition,
        GreaterEqualCondition,
        GreaterThanCondition,
        InequalityCondition,
        InIntervalCondition,
        IsInCondition,
        IsNotInCondition,
        LessEqualCondition,
        LessThanCondition,
        SimpleCondition,
        VirtualColumn,
    )
    from kartothek_cube.core.metadata.snapshot import KTK_CUBE_METADATA_DIMENSION_COLUMNS, KTK_CUBE_METADATA_KEY_IS_SEED
    from kartothek_cube.cube.cube import (
        KTK_CUBE_METADATA_STORAGE_FORMAT,
        KTK_CUBE_METADATA_VERSION,
        KTK_CUBE_UUID_SEPERATOR,
        Cube,
    )
    from kartothek_cube.cube.query.plan import Group, QueryPlan
    from kartothek_cube.cube.verbs.cells import delete_cells, delete_cube
    from kartothek_cube.cube.verbs.copy import copy_cube
    from kartothek_cube.cube.verbs.describe import (
        CubeChanges,
        CubeDescription,
        describe_cube,
        describe_cube_changes,
        list_cubes,
        open_cube,
    )
    from kartothek_cube.cube.verbs.history import (
        cube_history,
        drop_cube_tag,
        list_cube_tags,
        query_cube_changes,
        tag_cube,
        undo_cube,
    )
    from kartothek_cube.cube.verbs.maintain import (
        CleanupReport,
        build_cube_index,
        cleanup_cube,
        collect_stats,
        compact_cube,
        drop_cube_index,
    )
    from kartothek_cube.cube.verbs.read import (
        count_cube,
        iter_cube,
        load_group,
        plan_cube_query,
        query_cube,
        query_cube_arrow,
        run_plan,
        stream_cube,
    )
    from kartothek_cube.cube.verbs.report import CubeReport, cube_report
    from kartothek_cube.cube.verbs.verify import verify_cube
    from kartothek_cube.cube.verbs.write import CUBE_SERIALIZER as KTK_CUBE_DF_SERIALIZER
    from kartothek_cube.cube.verbs.write import append_to_cube, build_cube, extend_cube, remove_partitions, update_cube
    from kartothek_cube.engines.verbs import connect, scan_cube
else:
    # The same once more, for running code: a name loads its module when it is first used.
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "core.expressions.conditions": [
                "C",
                "Condition",
                "Conjunction",
                "EqualityCondition",
                "GreaterEqualCondition",
                "GreaterThanCondition",
                "InIntervalCondition",
                "InequalityCondition",
                "IsInCondition",
                "IsNotInCondition",
                "LessEqualCondition",
                "LessThanCondition",
                "SimpleCondition",
                "VirtualColumn",
            ],
            "core.metadata.snapshot": [
                "KTK_CUBE_METADATA_DIMENSION_COLUMNS",
                "KTK_CUBE_METADATA_KEY_IS_SEED",
            ],
            "cube.cube": [
                "KTK_CUBE_METADATA_STORAGE_FORMAT",
                "KTK_CUBE_METADATA_VERSION",
                "KTK_CUBE_UUID_SEPERATOR",
                "Cube",
            ],
            "cube.query.plan": [
                "Group",
                "QueryPlan",
            ],
            "cube.verbs.cells": [
                "delete_cells",
                "delete_cube",
            ],
            "cube.verbs.copy": [
                "copy_cube",
            ],
            "cube.verbs.describe": [
                "CubeChanges",
                "CubeDescription",
                "describe_cube",
                "describe_cube_changes",
                "list_cubes",
                "open_cube",
            ],
            "cube.verbs.history": [
                "cube_history",
                "drop_cube_tag",
                "list_cube_tags",
                "query_cube_changes",
                "tag_cube",
                "undo_cube",
            ],
            "cube.verbs.maintain": [
                "CleanupReport",
                "build_cube_index",
                "cleanup_cube",
                "collect_stats",
                "compact_cube",
                "drop_cube_index",
            ],
            "cube.verbs.read": [
                "count_cube",
                "iter_cube",
                "load_group",
                "plan_cube_query",
                "query_cube",
                "query_cube_arrow",
                "run_plan",
                "stream_cube",
            ],
            "cube.verbs.report": [
                "CubeReport",
                "cube_report",
            ],
            "cube.verbs.verify": [
                "verify_cube",
            ],
            "cube.verbs.write": [
                "CUBE_SERIALIZER as KTK_CUBE_DF_SERIALIZER",
                "append_to_cube",
                "build_cube",
                "extend_cube",
                "remove_partitions",
                "update_cube",
            ],
            "engines.verbs": [
                "connect",
                "scan_cube",
            ],
        },
    )

__all__ = [
    "KTK_CUBE_DF_SERIALIZER",
    "KTK_CUBE_METADATA_DIMENSION_COLUMNS",
    "KTK_CUBE_METADATA_KEY_IS_SEED",
    "KTK_CUBE_METADATA_STORAGE_FORMAT",
    "KTK_CUBE_METADATA_VERSION",
    "KTK_CUBE_UUID_SEPERATOR",
    "C",
    "CleanupReport",
    "Condition",
    "Conjunction",
    "Cube",
    "CubeChanges",
    "CubeDescription",
    "CubeReport",
    "EqualityCondition",
    "GreaterEqualCondition",
    "GreaterThanCondition",
    "Group",
    "InIntervalCondition",
    "InequalityCondition",
    "IsInCondition",
    "IsNotInCondition",
    "LessEqualCondition",
    "LessThanCondition",
    "QueryPlan",
    "SimpleCondition",
    "VirtualColumn",
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
    "scan_cube",
    "stream_cube",
    "tag_cube",
    "undo_cube",
    "update_cube",
    "verify_cube",
]
