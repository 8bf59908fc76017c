"""Single datasets: kartothek's ``api.dataset``."""

from typing import TYPE_CHECKING

from kartothek_cube.core.runtime.lazy_names import lazy_names

if TYPE_CHECKING:
    from kartothek_cube.core.dataset.history import (
        drop_dataset_tag,
        history,
        list_dataset_tags,
        read_dataset_changes,
        tag_dataset,
        undo,
    )
    from kartothek_cube.core.dataset.maintain import (
        build_dataset_indices,
        build_statistics,
        collect_dataset_metadata,
        convert_metadata_format,
        copy_dataset,
        delete_dataset,
        drop_columns,
        garbage_collect_dataset,
        hash_dataset,
        list_datasets,
        rename_dataset,
        set_layout,
        verify_dataset,
    )
    from kartothek_cube.core.dataset.read import (
        ScanPlan,
        plan_table_scan,
        read_dataset_as_dataframes,
        read_dataset_as_dataframes__iterator,
        read_table,
        read_table_arrow,
        stream_table,
    )
    from kartothek_cube.core.dataset.rows import delete_rows, merge_dataset, update_rows
    from kartothek_cube.core.dataset.write import (
        StagedPartitions,
        commit_dataset,
        commit_receipts,
        create_empty_dataset_header,
        stage_partitions,
        store_dataframes_as_dataset,
        store_dataframes_as_dataset__iter,
        update_dataset_from_dataframes,
        update_dataset_from_dataframes__iter,
        write_single_partition,
    )
    from kartothek_cube.core.kartothek.dataset_metadata import (
        DatasetFactory,
        DatasetMetadata,
        DatasetMetadataBase,
        Partition,
        combine_metadata,
        ensure_store,
        lazy_store,
    )
    from kartothek_cube.core.kartothek.indices import ExplicitSecondaryIndex, IndexBase, PartitionIndex
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
    from kartothek_cube.cube.verbs.maintain import compact_dataset
    from kartothek_cube.engines.verbs import connect, scan_dataset
else:
    # The same once more, for running code: a name loads its module when it is first used.
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "core.dataset.history": [
                "drop_dataset_tag",
                "history",
                "list_dataset_tags",
                "read_dataset_changes",
                "tag_dataset",
                "undo",
            ],
            "core.dataset.maintain": [
                "build_dataset_indices",
                "build_statistics",
                "collect_dataset_metadata",
                "convert_metadata_format",
                "copy_dataset",
                "delete_dataset",
                "drop_columns",
                "garbage_collect_dataset",
                "hash_dataset",
                "list_datasets",
                "rename_dataset",
                "set_layout",
                "verify_dataset",
            ],
            "core.dataset.read": [
                "ScanPlan",
                "plan_table_scan",
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
            "core.dataset.write": [
                "StagedPartitions",
                "commit_dataset",
                "commit_receipts",
                "create_empty_dataset_header",
                "stage_partitions",
                "store_dataframes_as_dataset",
                "store_dataframes_as_dataset__iter",
                "update_dataset_from_dataframes",
                "update_dataset_from_dataframes__iter",
                "write_single_partition",
            ],
            "core.kartothek.dataset_metadata": [
                "DatasetFactory",
                "DatasetMetadata",
                "DatasetMetadataBase",
                "Partition",
                "combine_metadata",
                "ensure_store",
                "lazy_store",
            ],
            "core.kartothek.indices": [
                "ExplicitSecondaryIndex",
                "IndexBase",
                "PartitionIndex",
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
            "cube.verbs.maintain": [
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
