"""Dagster: an asset is a dataset, a partition of the asset is a partition of the dataset.

What a run of a partition returns replaces that partition in one commit; a run that is
repeated leaves the same rows, and readers see the old rows or the new ones. The commit
stands in the event of the materialization, so that a state can be read again later.

    defs = Definitions(assets=[...], resources={"io_manager": DatasetIOManager(store="s3://bucket/prefix")})
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import pyarrow as pa
from dagster import ConfigurableIOManager, InputContext, OutputContext

from kartothek_cube.api.dataset import (
    DatasetMetadata,
    history,
    read_table,
    store_dataframes_as_dataset,
    update_dataset_from_dataframes,
)


def uuid_of(context: InputContext | OutputContext) -> str:
    """The dataset of an asset."""
    return "--".join(context.asset_key.path)


def column_of(context: OutputContext) -> str:
    """The partition column: the asset names it, ``metadata={"partition_column": "WEEK"}``."""
    return context.definition_metadata["partition_column"]


def values_of(keys: Sequence[str], data_type: pa.DataType) -> list[object]:
    """Dagster's keys, which are texts, as values of the column."""
    return pa.array(keys, pa.string()).cast(data_type).to_pylist()


class DatasetIOManager(ConfigurableIOManager):
    """Keeps what assets return as datasets of a store."""

    store: str

    def handle_output(self, context: OutputContext, obj: pd.DataFrame) -> None:
        """Write an asset, or the partitions of this run."""
        uuid = uuid_of(context)
        if context.has_asset_partitions:
            column = column_of(context)
            keys = values_of(context.asset_partition_keys, pa.array(obj[column]).type)
            if strangers := sorted(set(obj[column]) - set(keys)):
                raise ValueError(f"The run is for {column} in {keys}, but its rows have also {strangers}.")
            scope, partition_on = [{column: key} for key in keys], [column]
            update_dataset_from_dataframes([obj], self.store, uuid, delete_scope=scope, partition_on=partition_on)
        else:
            store_dataframes_as_dataset(self.store, uuid, [obj], overwrite=True)
        context.add_output_metadata({"commit": history(uuid, self.store)["commit"].iloc[0], "rows": len(obj)})

    def load_input(self, context: InputContext) -> pd.DataFrame:
        """Read an asset, or those of its partitions that a run needs."""
        uuid = uuid_of(context)
        if not context.has_asset_partitions:
            return read_table(uuid, self.store)
        metadata = DatasetMetadata.load_from_store(uuid, self.store)
        (column,) = metadata.partition_keys
        keys = values_of(context.asset_partition_keys, metadata.table_meta["table"].field(column).type)
        return read_table(uuid, self.store, predicates=[[(column, "in", keys)]])
