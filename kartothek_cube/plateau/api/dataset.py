"""Everything on datasets: ``plateau.api.dataset``. Functions of dask load it when they are used."""

from kartothek_cube.core.runtime.lazy_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "core.kartothek.dataset_metadata": "ensure_store, lazy_store",
        "plateau.core.common_metadata": (
            "SchemaWrapper, empty_dataframe_from_schema, make_meta, normalize_column_order, normalize_type, "
            "validate_compatible"
        ),
        "plateau.core.dataset": "DatasetMetadata, DatasetMetadataBase",
        "plateau.core.factory": "DatasetFactory",
        "plateau.core.index": "ExplicitSecondaryIndex, IndexBase, PartitionIndex",
        "plateau.io.dask.bag": "build_dataset_indices__bag, read_dataset_as_dataframe_bag, store_bag_as_dataset",
        "plateau.io.dask.dataframe": (
            "collect_dataset_metadata, hash_dataset, read_dataset_as_ddf, store_dataset_from_ddf, "
            "update_dataset_from_ddf"
        ),
        "plateau.io.dask.delayed": (
            "delete_dataset__delayed, garbage_collect_dataset__delayed, read_dataset_as_delayed, "
            "store_delayed_as_dataset, update_dataset_from_delayed"
        ),
        "plateau.io.eager": (
            "build_dataset_indices, commit_dataset, create_empty_dataset_header, delete_dataset, "
            "garbage_collect_dataset, read_dataset_as_dataframes, read_table, store_dataframes_as_dataset, "
            "update_dataset_from_dataframes, write_single_partition"
        ),
        "plateau.io.iter": (
            "read_dataset_as_dataframes__iterator, store_dataframes_as_dataset__iter, "
            "update_dataset_from_dataframes__iter"
        ),
    },
)
