"""Files that lie in the store already, made into receipts: what their footers and keys say, and the values for indices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from kartothek_cube.core.dataset.prepare import WriteRequest
from kartothek_cube.core.input_rows import InputPartition
from kartothek_cube.core.layout import check_table_name
from kartothek_cube.core.metadata.partition_values import partition_table
from kartothek_cube.core.naming import data_key
from kartothek_cube.core.parquet import open_file
from kartothek_cube.core.receipt import Receipt
from kartothek_cube.core.schema import ordered, stored_schema
from kartothek_cube.core.snapshots import file_entries
from kartothek_cube.core.stage import dataset_schema
from kartothek_cube.core.store import Store
from kartothek_cube.errors import InvalidInput, KeyNotFound

__all__ = ["receipts_of_files", "with_index_values"]


def receipts_of_files(store: Store, request: WriteRequest, element: InputPartition) -> list[Receipt]:
    """The receipts of the files that an element names by its label.

    Raises
    ------
    KeyNotFound
        If there is no such file.
    InvalidInput
        If the label does not have the partition values of the dataset.
    """
    if element.fresh:
        raise InvalidInput(
            f"Trying to commit partitions without files: rows for dataset {request.uuid!r} have no label that says which file has them. "
            "Write them with write_single_partition, or give {'label': ..., 'data': {table: None}}."
        )
    return [_adopt(store, request, element.label, table, rows) for table, rows in element.tables.items()]


def _adopt(store: Store, request: WriteRequest, label: str, table: str, rows: pa.Table | None) -> Receipt:
    check_table_name(table, request.uuid)
    key = data_key(request.uuid, table, label)
    try:
        inside, count = _footer(store, request.uuid, key)
    except KeyNotFound:
        raise KeyNotFound(f"Dataset {request.uuid!r}: the partition {label!r} should have the file {key!r}, which is not in the store {store.name}.") from None
    schema = _schema(request, table, key, inside, rows)
    values: Mapping[str, Any] = partition_table(pa.array([key]), request.partition_on, schema, request.uuid).to_pylist()[0] if request.partition_on else {}
    return Receipt(request.uuid, label, key, values, count, store.tail(key, 0)[1], schema, {}, table=table)


def _footer(store: Store, uuid: str, key: str) -> tuple[pa.Schema, int]:
    """The columns of a file, without the row labels of pandas, and its number of rows."""
    with open_file(store, key, uuid) as source:
        columns = pa.schema([f for f in source.schema if not f.name.startswith("__index_level_")])
        return stored_schema(columns, f" of the file {key!r}"), source.metadata.num_rows


def _schema(request: WriteRequest, table: str, key: str, inside: pa.Schema, rows: pa.Table | None) -> pa.Schema:
    """Types of the partition columns come from the dataset, or else from the rows; all others from the file."""
    known = request.start.schemas.get(table) if request.start is not None else None
    known = known if known is not None else rows.schema if rows is not None else pa.schema([])
    missing = [c for c in request.partition_on if c not in known.names]
    if missing:
        raise InvalidInput(
            f"Dataset {request.uuid!r}: nobody says which type the partition columns {missing} of {key!r} have. Give its rows in the element's 'data'."
        )
    fields = [known.field(c) for c in request.partition_on] + [f for f in inside if f.name not in request.partition_on]
    return ordered(dataset_schema(pa.schema(fields), request.partition_on), request.partition_on)


def with_index_values(store: Store, request: WriteRequest, receipt: Receipt) -> Receipt:
    """The receipt with values for every index of the dataset; those that it lacks are read from the file."""
    if not receipt.key.startswith(f"{request.uuid}/"):
        raise InvalidInput(
            f"The file {receipt.key!r} belongs to dataset {receipt.dataset!r} and cannot be a partition of {request.uuid!r}: "
            "whoever cleans up or deletes one of them would damage the other. Write the rows to this dataset, or use copy_dataset."
        )
    if tuple(receipt.values) != request.partition_on:
        raise InvalidInput(
            f"The file {receipt.key!r} has the partition columns {list(receipt.values)} in its path, but dataset {request.uuid!r} is partitioned on "
            f"{list(request.partition_on)}: it was replaced since the file was written. Write the rows again."
        )
    missing = [c for c in request.index_columns if c not in receipt.entries and c in receipt.schema.names]
    if not missing:
        return receipt
    return replace(receipt, entries={**receipt.entries, **file_entries(store, request.uuid, receipt.schema, receipt.key, missing)})
