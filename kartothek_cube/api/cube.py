"""Cubes: kartothek's ``api.cube``."""

from typing import TYPE_CHECKING

from kartothek_cube.core.runtime.lazy_names import lazy_names

if TYPE_CHECKING:
    from kartothek_cube.core.delta.log import PublishedDelta as PublishedDelta
    from kartothek_cube.core.expressions.conditions import C as C
    from kartothek_cube.core.expressions.conditions import Condition as Condition
    from kartothek_cube.core.expressions.conditions import Conjunction as Conjunction
    from kartothek_cube.core.expressions.conditions import EqualityCondition as EqualityCondition
    from kartothek_cube.core.expressions.conditions import GreaterEqualCondition as GreaterEqualCondition
    from kartothek_cube.core.expressions.conditions import GreaterThanCondition as GreaterThanCondition
    from kartothek_cube.core.expressions.conditions import InequalityCondition as InequalityCondition
    from kartothek_cube.core.expressions.conditions import InIntervalCondition as InIntervalCondition
    from kartothek_cube.core.expressions.conditions import IsInCondition as IsInCondition
    from kartothek_cube.core.expressions.conditions import IsNotInCondition as IsNotInCondition
    from kartothek_cube.core.expressions.conditions import LessEqualCondition as LessEqualCondition
    from kartothek_cube.core.expressions.conditions import LessThanCondition as LessThanCondition
    from kartothek_cube.core.expressions.conditions import SimpleCondition as SimpleCondition
    from kartothek_cube.core.expressions.conditions import VirtualColumn as VirtualColumn
    from kartothek_cube.core.metadata.snapshot import (
        KTK_CUBE_METADATA_DIMENSION_COLUMNS as KTK_CUBE_METADATA_DIMENSION_COLUMNS,
    )
    from kartothek_cube.core.metadata.snapshot import KTK_CUBE_METADATA_KEY_IS_SEED as KTK_CUBE_METADATA_KEY_IS_SEED
    from kartothek_cube.cube.cube import KTK_CUBE_METADATA_STORAGE_FORMAT as KTK_CUBE_METADATA_STORAGE_FORMAT
    from kartothek_cube.cube.cube import KTK_CUBE_METADATA_VERSION as KTK_CUBE_METADATA_VERSION
    from kartothek_cube.cube.cube import KTK_CUBE_UUID_SEPERATOR as KTK_CUBE_UUID_SEPERATOR
    from kartothek_cube.cube.cube import Cube as Cube
    from kartothek_cube.cube.query.plan import Group as Group
    from kartothek_cube.cube.query.plan import QueryPlan as QueryPlan
    from kartothek_cube.cube.verbs.cells import ForgetReport as ForgetReport
    from kartothek_cube.cube.verbs.cells import delete_cells as delete_cells
    from kartothek_cube.cube.verbs.cells import delete_cube as delete_cube
    from kartothek_cube.cube.verbs.cells import forget_cells as forget_cells
    from kartothek_cube.cube.verbs.copy import copy_cube as copy_cube
    from kartothek_cube.cube.verbs.copy import rename_cube as rename_cube
    from kartothek_cube.cube.verbs.describe import CubeChanges as CubeChanges
    from kartothek_cube.cube.verbs.describe import CubeDescription as CubeDescription
    from kartothek_cube.cube.verbs.describe import describe_cube as describe_cube
    from kartothek_cube.cube.verbs.describe import describe_cube_changes as describe_cube_changes
    from kartothek_cube.cube.verbs.describe import list_cubes as list_cubes
    from kartothek_cube.cube.verbs.describe import open_cube as open_cube
    from kartothek_cube.cube.verbs.history import cube_history as cube_history
    from kartothek_cube.cube.verbs.history import drop_cube_tag as drop_cube_tag
    from kartothek_cube.cube.verbs.history import list_cube_tags as list_cube_tags
    from kartothek_cube.cube.verbs.history import query_cube_changes as query_cube_changes
    from kartothek_cube.cube.verbs.history import tag_cube as tag_cube
    from kartothek_cube.cube.verbs.history import undo_cube as undo_cube
    from kartothek_cube.cube.verbs.maintain import CleanupReport as CleanupReport
    from kartothek_cube.cube.verbs.maintain import build_cube_index as build_cube_index
    from kartothek_cube.cube.verbs.maintain import cleanup_cube as cleanup_cube
    from kartothek_cube.cube.verbs.maintain import collect_stats as collect_stats
    from kartothek_cube.cube.verbs.maintain import compact_cube as compact_cube
    from kartothek_cube.cube.verbs.maintain import drop_cube_index as drop_cube_index
    from kartothek_cube.cube.verbs.maintain import publish_cube_delta as publish_cube_delta
    from kartothek_cube.cube.verbs.read import count_cube as count_cube
    from kartothek_cube.cube.verbs.read import iter_cube as iter_cube
    from kartothek_cube.cube.verbs.read import load_group as load_group
    from kartothek_cube.cube.verbs.read import plan_cube_query as plan_cube_query
    from kartothek_cube.cube.verbs.read import query_cube as query_cube
    from kartothek_cube.cube.verbs.read import query_cube_arrow as query_cube_arrow
    from kartothek_cube.cube.verbs.read import run_plan as run_plan
    from kartothek_cube.cube.verbs.read import stream_cube as stream_cube
    from kartothek_cube.cube.verbs.report import CubeReport as CubeReport
    from kartothek_cube.cube.verbs.report import cube_report as cube_report
    from kartothek_cube.cube.verbs.verify import MigrationReport as MigrationReport
    from kartothek_cube.cube.verbs.verify import Remark as Remark
    from kartothek_cube.cube.verbs.verify import Verdict as Verdict
    from kartothek_cube.cube.verbs.verify import check_migration as check_migration
    from kartothek_cube.cube.verbs.verify import verify_cube as verify_cube
    from kartothek_cube.cube.verbs.write import CUBE_SERIALIZER as KTK_CUBE_DF_SERIALIZER
    from kartothek_cube.cube.verbs.write import append_to_cube as append_to_cube
    from kartothek_cube.cube.verbs.write import build_cube as build_cube
    from kartothek_cube.cube.verbs.write import extend_cube as extend_cube
    from kartothek_cube.cube.verbs.write import remove_partitions as remove_partitions
    from kartothek_cube.cube.verbs.write import update_cube as update_cube
    from kartothek_cube.engines.verbs import connect as connect
    from kartothek_cube.engines.verbs import scan_cube as scan_cube
else:
    # The same once more, for running code: a name loads its module when it is first used.
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "core.delta.log": "PublishedDelta",
            "core.expressions.conditions": (
                "C, Condition, Conjunction, EqualityCondition, GreaterEqualCondition, GreaterThanCondition, "
                "InIntervalCondition, InequalityCondition, IsInCondition, IsNotInCondition, LessEqualCondition, "
                "LessThanCondition, SimpleCondition, VirtualColumn"
            ),
            "core.metadata.snapshot": "KTK_CUBE_METADATA_DIMENSION_COLUMNS, KTK_CUBE_METADATA_KEY_IS_SEED",
            "cube.cube": "KTK_CUBE_METADATA_STORAGE_FORMAT, KTK_CUBE_METADATA_VERSION, KTK_CUBE_UUID_SEPERATOR, Cube",
            "cube.query.plan": "Group, QueryPlan",
            "cube.verbs.cells": "ForgetReport, delete_cells, delete_cube, forget_cells",
            "cube.verbs.copy": "copy_cube, rename_cube",
            "cube.verbs.describe": (
                "CubeChanges, CubeDescription, describe_cube, describe_cube_changes, list_cubes, open_cube"
            ),
            "cube.verbs.history": (
                "cube_history, drop_cube_tag, list_cube_tags, query_cube_changes, tag_cube, undo_cube"
            ),
            "cube.verbs.maintain": (
                "CleanupReport, build_cube_index, cleanup_cube, collect_stats, compact_cube, drop_cube_index, "
                "publish_cube_delta"
            ),
            "cube.verbs.read": (
                "count_cube, iter_cube, load_group, plan_cube_query, query_cube, query_cube_arrow, run_plan, "
                "stream_cube"
            ),
            "cube.verbs.report": "CubeReport, cube_report",
            "cube.verbs.verify": "MigrationReport, Remark, Verdict, check_migration, verify_cube",
            "cube.verbs.write": (
                "CUBE_SERIALIZER as KTK_CUBE_DF_SERIALIZER, append_to_cube, build_cube, extend_cube, "
                "remove_partitions, update_cube"
            ),
            "engines.verbs": "connect, scan_cube",
        },
    )
