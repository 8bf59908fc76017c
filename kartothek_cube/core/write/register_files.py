"""Receipts of files that are in the store already (Iceberg: ``add_files``), from key and footer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from kartothek_cube.core.arrow.types import ordered, stored_schema
from kartothek_cube.core.io.parquet import open_file
from kartothek_cube.core.metadata.document import partition_table
from kartothek_cube.core.metadata.naming import data_key
from kartothek_cube.core.snapshots.loader import file_entries
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.write.input_rows import InputPartition
from kartothek_cube.core.write.prepare import WriteRequest, check_table_name
from kartothek_cube.core.write.receipt import Receipt
from kartothek_cube.core.write.stage import dataset_schema
from kartothek_cube.errors import InvalidInput, KeyNotFound

__all__ = ["receipts_of_files", "with_index_values"]


def receipts_of_files(store: Store, request: WriteRequest, element: InputPartition) -> list[Receipt]:
    """The receipts of the files that an element names by its label, one per table.

    Raises
    ------
    KeyNotFound
        If there is no such file.
    InvalidInput
        If the label does not have the partition values of the dataset.
    """
    if element.fresh:
        raise InvalidInput(
            f"Trying to commit partitions without files: rows for dataset {request.uuid!r} have no label "
            "that says which file has them. "
            "Write them with write_single_partition, or give {'label': ..., 'data': {table: None}}."
        )
    label, receipts = element.label, []
    for table, rows in element.tables.items():
        check_table_name(table, request.uuid)
        key = data_key(request.uuid, table, label)
        try:
            with open_file(store, key, request.uuid) as source:
                # pandas stores row labels in such columns; datasets have none.
                columns = pa.schema([f for f in source.schema if not f.name.startswith("__index_level_")])
                file_schema, num_rows = stored_schema(columns, f" of the file {key!r}"), source.metadata.num_rows
        except KeyNotFound:
            raise KeyNotFound(
                f"Dataset {request.uuid!r}: the partition {label!r} should have the file {key!r}, "
                f"which is not in the store {store.name}."
            ) from None
        schema = _dataset_schema_of_file(request, table, key, file_schema, rows)
        values: Mapping[str, Any] = {}
        if request.partition_on:
            values = partition_table(pa.array([key]), request.partition_on, schema, request.uuid).to_pylist()[0]
        size = store.tail(key, 0)[1]
        receipts.append(Receipt(request.uuid, label, key, values, num_rows, size, schema, {}, table=table))
    return receipts


def _dataset_schema_of_file(
    request: WriteRequest, table: str, key: str, file_schema: pa.Schema, rows: pa.Table | None
) -> pa.Schema:
    """Types of partition columns are those of the dataset, else of the rows; others of the file."""
    stored = request.start.schemas.get(table) if request.start is not None else None
    typed = stored if stored is not None else rows.schema if rows is not None else pa.schema([])
    missing = [c for c in request.partition_on if c not in typed.names]
    if missing:
        raise InvalidInput(
            f"Dataset {request.uuid!r}: the types of the partition columns {missing} of {key!r} are unknown. "
            "Give its rows in the element's 'data'."
        )
    payload = [f for f in file_schema if f.name not in request.partition_on]
    fields = [*(typed.field(c) for c in request.partition_on), *payload]
    return ordered(dataset_schema(pa.schema(fields), request.partition_on), request.partition_on)


def with_index_values(store: Store, request: WriteRequest, receipt: Receipt) -> Receipt:
    """The receipt with values for every index of the dataset; missing ones come from the file."""
    if not receipt.key.startswith(f"{request.uuid}/"):
        raise InvalidInput(
            f"The file {receipt.key!r} belongs to dataset {receipt.dataset!r} "
            f"and cannot be a partition of {request.uuid!r}: "
            "deleting or cleaning up one dataset would damage the other. "
            "Write the rows to this dataset, or use copy_dataset."
        )
    if tuple(receipt.values) != request.partition_on:
        raise InvalidInput(
            f"The file {receipt.key!r} has the partition columns {list(receipt.values)} in its path, "
            f"but dataset {request.uuid!r} is partitioned on {list(request.partition_on)}: "
            "it was replaced since the file was written. Write the rows again."
        )
    missing = [c for c in request.index_columns if c not in receipt.entries and c in receipt.schema.names]
    if not missing:
        return receipt
    read = file_entries(store, request.uuid, receipt.schema, receipt.key, missing)
    return replace(receipt, entries={**receipt.entries, **read})
