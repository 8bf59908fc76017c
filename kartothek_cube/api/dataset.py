"""Single datasets: kartothek's ``api.dataset``."""

from typing import TYPE_CHECKING

from kartothek_cube.core.runtime.lazy_names import lazy_names

if TYPE_CHECKING:
    from kartothek_cube.core.dataset.changes import read_dataset_changes
    from kartothek_cube.core.dataset.copy import copy_dataset, rename_dataset
    from kartothek_cube.core.dataset.distributed import (
        commit_dataset,
        commit_receipts,
        stage_partitions,
        write_single_partition,
    )
    from kartothek_cube.core.dataset.file_statistics import build_statistics
    from kartothek_cube.core.dataset.history import history, undo
    from kartothek_cube.core.dataset.inspect import collect_dataset_metadata, hash_dataset, list_datasets
    from kartothek_cube.core.dataset.layout import drop_columns, set_layout
    from kartothek_cube.core.dataset.maintain import (
        build_dataset_indices,
        convert_metadata_format,
        delete_dataset,
        garbage_collect_dataset,
        verify_dataset,
    )
    from kartothek_cube.core.dataset.read import (
        read_dataset_as_dataframes,
        read_dataset_as_dataframes__iterator,
        read_table,
        read_table_arrow,
        stream_table,
    )
    from kartothek_cube.core.dataset.rows import delete_rows, merge_dataset, update_rows
    from kartothek_cube.core.dataset.scan_plan import ScanPlan, plan_table_scan
    from kartothek_cube.core.dataset.staged_partitions import StagedPartitions
    from kartothek_cube.core.dataset.tags import drop_dataset_tag, list_dataset_tags, tag_dataset
    from kartothek_cube.core.dataset.write import (
        create_empty_dataset_header,
        store_dataframes_as_dataset,
        store_dataframes_as_dataset__iter,
        update_dataset_from_dataframes,
        update_dataset_from_dataframes__iter,
    )
    from kartothek_cube.core.kartothek.dataset_metadata import DatasetMetadata, DatasetMetadataBase
    from kartothek_cube.core.kartothek.factory import DatasetFactory, ensure_store, lazy_store
    from kartothek_cube.core.kartothek.index_base import IndexBase
    from kartothek_cube.core.kartothek.indices import ExplicitSecondaryIndex, PartitionIndex
    from kartothek_cube.core.kartothek.partition import Partition, combine_metadata
    from kartothek_cube.core.kartothek.schema_wrapper import (
        SchemaWrapper,
        empty_dataframe_from_schema,
        make_meta,
        normalize_column_order,
        normalize_type,
        read_schema_metadata,
        validate_compatible,
        validate_shared_columns,
    )
    from kartothek_cube.core.maintenance.compaction_plan import CompactionPlan, CompactionReport
    from kartothek_cube.core.maintenance.garbage import GarbageReport
    from kartothek_cube.core.maintenance.inspection import Finding, VerifyReport
    from kartothek_cube.core.rows.edits import RowsReport
    from kartothek_cube.core.write.layout import DatasetLayout
    from kartothek_cube.core.write.prepare import day, month, year
    from kartothek_cube.cube.verbs.compact import compact_dataset
    from kartothek_cube.engines.verbs import connect, scan_dataset
else:
    # The same once more, for running code: a name loads its module when it is first used.
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "core.dataset.changes": [
                "read_dataset_changes",
            ],
            "core.dataset.copy": [
                "copy_dataset",
                "rename_dataset",
            ],
            "core.dataset.distributed": [
                "commit_dataset",
                "commit_receipts",
                "stage_partitions",
                "write_single_partition",
            ],
            "core.dataset.file_statistics": [
                "build_statistics",
            ],
            "core.dataset.history": [
                "history",
                "undo",
            ],
            "core.dataset.inspect": [
                "collect_dataset_metadata",
                "hash_dataset",
                "list_datasets",
            ],
            "core.dataset.layout": [
                "drop_columns",
                "set_layout",
            ],
            "core.dataset.maintain": [
                "build_dataset_indices",
                "convert_metadata_format",
                "delete_dataset",
                "garbage_collect_dataset",
                "verify_dataset",
            ],
            "core.dataset.read": [
                "read_dataset_as_dataframes",
                "read_dataset_as_dataframes__iterator",
                "read_table",
                "read_table_arrow",
                "stream_table",
            ],
            "core.dataset.rows": [
                "delete_rows",
                "merge_dataset",
                "update_rows",
            ],
            "core.dataset.scan_plan": [
                "ScanPlan",
                "plan_table_scan",
            ],
            "core.dataset.staged_partitions": [
                "StagedPartitions",
            ],
            "core.dataset.tags": [
                "drop_dataset_tag",
                "list_dataset_tags",
                "tag_dataset",
            ],
            "core.dataset.write": [
                "create_empty_dataset_header",
                "store_dataframes_as_dataset",
                "store_dataframes_as_dataset__iter",
                "update_dataset_from_dataframes",
                "update_dataset_from_dataframes__iter",
            ],
            "core.kartothek.dataset_metadata": [
                "DatasetMetadata",
                "DatasetMetadataBase",
            ],
            "core.kartothek.factory": [
                "DatasetFactory",
                "ensure_store",
                "lazy_store",
            ],
            "core.kartothek.index_base": [
                "IndexBase",
            ],
            "core.kartothek.indices": [
                "ExplicitSecondaryIndex",
                "PartitionIndex",
            ],
            "core.kartothek.partition": [
                "Partition",
                "combine_metadata",
            ],
            "core.kartothek.schema_wrapper": [
                "SchemaWrapper",
                "empty_dataframe_from_schema",
                "make_meta",
                "normalize_column_order",
                "normalize_type",
                "read_schema_metadata",
                "validate_compatible",
                "validate_shared_columns",
            ],
            "core.maintenance.compaction_plan": [
                "CompactionPlan",
                "CompactionReport",
            ],
            "core.maintenance.garbage": [
                "GarbageReport",
            ],
            "core.maintenance.inspection": [
                "Finding",
                "VerifyReport",
            ],
            "core.rows.edits": [
                "RowsReport",
            ],
            "core.write.layout": [
                "DatasetLayout",
            ],
            "core.write.prepare": [
                "day",
                "month",
                "year",
            ],
            "cube.verbs.compact": [
                "compact_dataset",
            ],
            "engines.verbs": [
                "connect",
                "scan_dataset",
            ],
        },
    )

__all__ = [
    "CompactionPlan",
    "CompactionReport",
    "DatasetFactory",
    "DatasetLayout",
    "DatasetMetadata",
    "DatasetMetadataBase",
    "ExplicitSecondaryIndex",
    "Finding",
    "GarbageReport",
    "IndexBase",
    "Partition",
    "PartitionIndex",
    "RowsReport",
    "ScanPlan",
    "SchemaWrapper",
    "StagedPartitions",
    "VerifyReport",
    "build_dataset_indices",
    "build_statistics",
    "collect_dataset_metadata",
    "combine_metadata",
    "commit_dataset",
    "commit_receipts",
    "compact_dataset",
    "connect",
    "convert_metadata_format",
    "copy_dataset",
    "create_empty_dataset_header",
    "day",
    "delete_dataset",
    "delete_rows",
    "drop_columns",
    "drop_dataset_tag",
    "empty_dataframe_from_schema",
    "ensure_store",
    "garbage_collect_dataset",
    "hash_dataset",
    "history",
    "lazy_store",
    "list_dataset_tags",
    "list_datasets",
    "make_meta",
    "merge_dataset",
    "month",
    "normalize_column_order",
    "normalize_type",
    "plan_table_scan",
    "read_dataset_as_dataframes",
    "read_dataset_as_dataframes__iterator",
    "read_dataset_changes",
    "read_schema_metadata",
    "read_table",
    "read_table_arrow",
    "rename_dataset",
    "scan_dataset",
    "set_layout",
    "stage_partitions",
    "store_dataframes_as_dataset",
    "store_dataframes_as_dataset__iter",
    "stream_table",
    "tag_dataset",
    "undo",
    "update_dataset_from_dataframes",
    "update_dataset_from_dataframes__iter",
    "update_rows",
    "validate_compatible",
    "validate_shared_columns",
    "verify_dataset",
    "write_single_partition",
    "year",
]
