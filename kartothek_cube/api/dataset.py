"""Single datasets: kartothek's ``api.dataset``."""

from kartothek_cube.core.compat.dataset_metadata import DatasetMetadata, DatasetMetadataBase
from kartothek_cube.core.compat.factory import DatasetFactory
from kartothek_cube.core.compat.indices import ExplicitSecondaryIndex, IndexBase, PartitionIndex
from kartothek_cube.core.compat.merge import combine_metadata
from kartothek_cube.core.compat.partition import Partition
from kartothek_cube.core.compat.schema_wrapper import (
    SchemaWrapper,
    empty_dataframe_from_schema,
    make_meta,
    normalize_column_order,
    normalize_type,
    read_schema_metadata,
    validate_compatible,
    validate_shared_columns,
)
from kartothek_cube.core.compat.stores import ensure_store, lazy_store
from kartothek_cube.core.dataset.build_indices import build_dataset_indices
from kartothek_cube.core.dataset.collect_garbage import garbage_collect_dataset
from kartothek_cube.core.dataset.commit import commit_dataset, write_single_partition
from kartothek_cube.core.dataset.convert import convert_metadata_format
from kartothek_cube.core.dataset.copy import copy_dataset, rename_dataset
from kartothek_cube.core.dataset.delete import delete_dataset
from kartothek_cube.core.dataset.header import create_empty_dataset_header
from kartothek_cube.core.dataset.history import history
from kartothek_cube.core.dataset.listing import list_datasets
from kartothek_cube.core.dataset.read import read_table, read_table_arrow
from kartothek_cube.core.dataset.read_frames import read_dataset_as_dataframes, read_dataset_as_dataframes__iterator
from kartothek_cube.core.dataset.scan_plan import ScanPlan, plan_table_scan
from kartothek_cube.core.dataset.stage_receipts import StagedPartitions, commit_receipts, stage_partitions
from kartothek_cube.core.dataset.statistics import collect_dataset_metadata, hash_dataset
from kartothek_cube.core.dataset.store import store_dataframes_as_dataset, store_dataframes_as_dataset__iter
from kartothek_cube.core.dataset.stream import stream_table
from kartothek_cube.core.dataset.undo import undo
from kartothek_cube.core.dataset.update import update_dataset_from_dataframes, update_dataset_from_dataframes__iter
from kartothek_cube.core.dataset.verify import verify_dataset
from kartothek_cube.core.maintenance.compaction_report import CompactionPlan, CompactionReport
from kartothek_cube.core.maintenance.garbage import GarbageReport
from kartothek_cube.core.maintenance.verify_report import Finding, VerifyReport
from kartothek_cube.cube.verbs.compact import compact_dataset

__all__ = [
    "CompactionPlan",
    "CompactionReport",
    "DatasetFactory",
    "DatasetMetadata",
    "DatasetMetadataBase",
    "ExplicitSecondaryIndex",
    "Finding",
    "GarbageReport",
    "IndexBase",
    "Partition",
    "PartitionIndex",
    "ScanPlan",
    "SchemaWrapper",
    "StagedPartitions",
    "VerifyReport",
    "build_dataset_indices",
    "collect_dataset_metadata",
    "combine_metadata",
    "commit_dataset",
    "commit_receipts",
    "compact_dataset",
    "convert_metadata_format",
    "copy_dataset",
    "create_empty_dataset_header",
    "delete_dataset",
    "empty_dataframe_from_schema",
    "ensure_store",
    "garbage_collect_dataset",
    "hash_dataset",
    "history",
    "lazy_store",
    "list_datasets",
    "make_meta",
    "normalize_column_order",
    "normalize_type",
    "plan_table_scan",
    "read_dataset_as_dataframes",
    "read_dataset_as_dataframes__iterator",
    "read_schema_metadata",
    "read_table",
    "read_table_arrow",
    "rename_dataset",
    "stage_partitions",
    "store_dataframes_as_dataset",
    "store_dataframes_as_dataset__iter",
    "stream_table",
    "undo",
    "update_dataset_from_dataframes",
    "update_dataset_from_dataframes__iter",
    "validate_compatible",
    "validate_shared_columns",
    "verify_dataset",
    "write_single_partition",
]
