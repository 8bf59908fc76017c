"""Single datasets: kartothek's ``api.dataset``."""

from typing import TYPE_CHECKING

from kartothek_cube.core.runtime.lazy_names import lazy_names

if TYPE_CHECKING:
    from kartothek_cube.core.dataset.history import drop_dataset_tag as drop_dataset_tag
    from kartothek_cube.core.dataset.history import history as history
    from kartothek_cube.core.dataset.history import list_dataset_tags as list_dataset_tags
    from kartothek_cube.core.dataset.history import read_dataset_changes as read_dataset_changes
    from kartothek_cube.core.dataset.history import tag_dataset as tag_dataset
    from kartothek_cube.core.dataset.history import undo as undo
    from kartothek_cube.core.dataset.maintain import build_dataset_indices as build_dataset_indices
    from kartothek_cube.core.dataset.maintain import build_statistics as build_statistics
    from kartothek_cube.core.dataset.maintain import collect_dataset_metadata as collect_dataset_metadata
    from kartothek_cube.core.dataset.maintain import compact_dataset as compact_dataset
    from kartothek_cube.core.dataset.maintain import convert_metadata_format as convert_metadata_format
    from kartothek_cube.core.dataset.maintain import copy_dataset as copy_dataset
    from kartothek_cube.core.dataset.maintain import delete_dataset as delete_dataset
    from kartothek_cube.core.dataset.maintain import drop_columns as drop_columns
    from kartothek_cube.core.dataset.maintain import garbage_collect_dataset as garbage_collect_dataset
    from kartothek_cube.core.dataset.maintain import hash_dataset as hash_dataset
    from kartothek_cube.core.dataset.maintain import list_datasets as list_datasets
    from kartothek_cube.core.dataset.maintain import publish_delta as publish_delta
    from kartothek_cube.core.dataset.maintain import rename_dataset as rename_dataset
    from kartothek_cube.core.dataset.maintain import set_layout as set_layout
    from kartothek_cube.core.dataset.maintain import unpublish_delta as unpublish_delta
    from kartothek_cube.core.dataset.maintain import verify_dataset as verify_dataset
    from kartothek_cube.core.dataset.read import ScanPlan as ScanPlan
    from kartothek_cube.core.dataset.read import plan_table_scan as plan_table_scan
    from kartothek_cube.core.dataset.read import read_dataset_as_dataframes as read_dataset_as_dataframes
    from kartothek_cube.core.dataset.read import (
        read_dataset_as_dataframes__iterator as read_dataset_as_dataframes__iterator,
    )
    from kartothek_cube.core.dataset.read import read_table as read_table
    from kartothek_cube.core.dataset.read import read_table_arrow as read_table_arrow
    from kartothek_cube.core.dataset.read import stream_table as stream_table
    from kartothek_cube.core.dataset.rows import delete_rows as delete_rows
    from kartothek_cube.core.dataset.rows import merge_dataset as merge_dataset
    from kartothek_cube.core.dataset.rows import update_rows as update_rows
    from kartothek_cube.core.dataset.write import StagedPartitions as StagedPartitions
    from kartothek_cube.core.dataset.write import commit_dataset as commit_dataset
    from kartothek_cube.core.dataset.write import commit_receipts as commit_receipts
    from kartothek_cube.core.dataset.write import create_empty_dataset_header as create_empty_dataset_header
    from kartothek_cube.core.dataset.write import stage_partitions as stage_partitions
    from kartothek_cube.core.dataset.write import store_dataframes_as_dataset as store_dataframes_as_dataset
    from kartothek_cube.core.dataset.write import store_dataframes_as_dataset__iter as store_dataframes_as_dataset__iter
    from kartothek_cube.core.dataset.write import update_dataset_from_dataframes as update_dataset_from_dataframes
    from kartothek_cube.core.dataset.write import (
        update_dataset_from_dataframes__iter as update_dataset_from_dataframes__iter,
    )
    from kartothek_cube.core.dataset.write import write_single_partition as write_single_partition
    from kartothek_cube.core.delta.log import PublishedDelta as PublishedDelta
    from kartothek_cube.core.kartothek.dataset_metadata import DatasetFactory as DatasetFactory
    from kartothek_cube.core.kartothek.dataset_metadata import DatasetMetadata as DatasetMetadata
    from kartothek_cube.core.kartothek.dataset_metadata import DatasetMetadataBase as DatasetMetadataBase
    from kartothek_cube.core.kartothek.dataset_metadata import Partition as Partition
    from kartothek_cube.core.kartothek.dataset_metadata import combine_metadata as combine_metadata
    from kartothek_cube.core.kartothek.dataset_metadata import ensure_store as ensure_store
    from kartothek_cube.core.kartothek.dataset_metadata import lazy_store as lazy_store
    from kartothek_cube.core.kartothek.indices import ExplicitSecondaryIndex as ExplicitSecondaryIndex
    from kartothek_cube.core.kartothek.indices import IndexBase as IndexBase
    from kartothek_cube.core.kartothek.indices import PartitionIndex as PartitionIndex
    from kartothek_cube.core.kartothek.schema_wrapper import SchemaWrapper as SchemaWrapper
    from kartothek_cube.core.kartothek.schema_wrapper import empty_dataframe_from_schema as empty_dataframe_from_schema
    from kartothek_cube.core.kartothek.schema_wrapper import make_meta as make_meta
    from kartothek_cube.core.kartothek.schema_wrapper import normalize_column_order as normalize_column_order
    from kartothek_cube.core.kartothek.schema_wrapper import normalize_type as normalize_type
    from kartothek_cube.core.kartothek.schema_wrapper import read_schema_metadata as read_schema_metadata
    from kartothek_cube.core.kartothek.schema_wrapper import validate_compatible as validate_compatible
    from kartothek_cube.core.kartothek.schema_wrapper import validate_shared_columns as validate_shared_columns
    from kartothek_cube.core.maintenance.compaction_plan import CompactionPlan as CompactionPlan
    from kartothek_cube.core.maintenance.compaction_plan import CompactionReport as CompactionReport
    from kartothek_cube.core.maintenance.garbage import GarbageReport as GarbageReport
    from kartothek_cube.core.maintenance.inspection import Finding as Finding
    from kartothek_cube.core.maintenance.inspection import VerifyReport as VerifyReport
    from kartothek_cube.core.rows.edits import RowsReport as RowsReport
    from kartothek_cube.core.write.layout import DatasetLayout as DatasetLayout
    from kartothek_cube.core.write.prepare import day as day
    from kartothek_cube.core.write.prepare import month as month
    from kartothek_cube.core.write.prepare import year as year
    from kartothek_cube.engines.verbs import connect as connect
    from kartothek_cube.engines.verbs import scan_dataset as scan_dataset
else:
    # The same once more, for running code: a name loads its module when it is first used.
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "core.dataset.history": (
                "drop_dataset_tag, history, list_dataset_tags, read_dataset_changes, tag_dataset, undo"
            ),
            "core.dataset.maintain": (
                "build_dataset_indices, build_statistics, collect_dataset_metadata, compact_dataset, "
                "convert_metadata_format, copy_dataset, delete_dataset, drop_columns, garbage_collect_dataset, "
                "hash_dataset, list_datasets, publish_delta, rename_dataset, set_layout, unpublish_delta, "
                "verify_dataset"
            ),
            "core.dataset.read": (
                "ScanPlan, plan_table_scan, read_dataset_as_dataframes, read_dataset_as_dataframes__iterator, "
                "read_table, read_table_arrow, stream_table"
            ),
            "core.dataset.rows": "delete_rows, merge_dataset, update_rows",
            "core.dataset.write": (
                "StagedPartitions, commit_dataset, commit_receipts, create_empty_dataset_header, stage_partitions, "
                "store_dataframes_as_dataset, store_dataframes_as_dataset__iter, update_dataset_from_dataframes, "
                "update_dataset_from_dataframes__iter, write_single_partition"
            ),
            "core.delta.log": "PublishedDelta",
            "core.kartothek.dataset_metadata": (
                "DatasetFactory, DatasetMetadata, DatasetMetadataBase, Partition, combine_metadata, ensure_store, "
                "lazy_store"
            ),
            "core.kartothek.indices": "ExplicitSecondaryIndex, IndexBase, PartitionIndex",
            "core.kartothek.schema_wrapper": (
                "SchemaWrapper, empty_dataframe_from_schema, make_meta, normalize_column_order, normalize_type, "
                "read_schema_metadata, validate_compatible, validate_shared_columns"
            ),
            "core.maintenance.compaction_plan": "CompactionPlan, CompactionReport",
            "core.maintenance.garbage": "GarbageReport",
            "core.maintenance.inspection": "Finding, VerifyReport",
            "core.rows.edits": "RowsReport",
            "core.write.layout": "DatasetLayout",
            "core.write.prepare": "day, month, year",
            "engines.verbs": "connect, scan_dataset",
        },
    )
