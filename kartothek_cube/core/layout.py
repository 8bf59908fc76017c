"""How rows are laid out in a dataset: which columns can be partition columns, index columns, names of tables. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime

import pyarrow as pa

from kartothek_cube.core.index import index_type
from kartothek_cube.core.metadata.partition_values import partition_text
from kartothek_cube.core.metadata.snapshot import type_of_column
from kartothek_cube.core.naming import index_key, schema_key
from kartothek_cube.errors import InvalidInput, InvalidRequest, Unsupported

__all__ = ["check_index_columns", "check_overlap", "check_partition_types", "check_table_name"]

_SAMPLES = {pa.bool_(): True, pa.string(): "", pa.binary(): b"", pa.date32(): "", pa.timestamp("us"): ""}
_TABLE = re.compile(r"[A-Za-z0-9+\-.=@~][A-Za-z0-9+\-._=@~ ]*")


def check_partition_types(schema: pa.Schema, partition_on: Sequence[str], dataset: str) -> None:
    """Refuse partition columns whose values no path can carry."""
    for column in partition_on:
        kind = schema.field(column).type
        if column == "partition":
            raise InvalidInput(f"A column called 'partition' cannot be a partition column of dataset {dataset!r}: index files use the name. Rename it.")
        if pa.types.is_null(kind):
            continue  # all values are null, which is refused with a better message
        try:
            partition_text(_SAMPLES.get(kind, 0), kind)
        except Unsupported as error:
            raise Unsupported(f"Partition column {column!r} of dataset {dataset!r}: {error}") from None


def check_index_columns(schemas: Mapping[str, pa.Schema], columns: Sequence[str], partition_on: Sequence[str], uuid: str) -> list[str]:
    """Refuse columns on which no secondary index can be built; the keys that their index files might have."""
    check_overlap(columns, partition_on, uuid)
    for column in columns:
        index_type(type_of_column(schemas, column, uuid), column, uuid)
    return [index_key(uuid, column, datetime(2000, 1, 1)) for column in columns]  # noqa: DTZ001 - keys have UTC without a zone


def check_overlap(columns: Sequence[str], partition_on: Sequence[str], uuid: str) -> None:
    """Refuse secondary indices on partition columns."""
    overlap = sorted(set(columns) & set(partition_on))
    if overlap:
        raise InvalidRequest(f"Cannot create secondary index on partition columns {overlap} of dataset {uuid!r}: they are indexed by their paths.")


def check_table_name(table: object, uuid: str) -> str:
    """Refuse table names that make no folder of their own; the key of the table's schema file."""
    if not isinstance(table, str) or not _TABLE.fullmatch(table):
        raise InvalidInput(f"{table!r} is no name for a table of dataset {uuid!r}: letters, digits and `+-._=@~` are, the first one no underscore.")
    if table == "indices":
        raise InvalidInput(f"A table of dataset {uuid!r} cannot be called 'indices': its files would lie among the index files.")
    return schema_key(uuid, table)
