"""The arguments of the writing verbs, checked against the dataset as it is. Pure."""

from __future__ import annotations

from typing import Any

from kartothek_cube.core.dataset.arguments import as_list, check_flag
from kartothek_cube.core.dataset.prepare import WriteRequest
from kartothek_cube.core.formats import FileFormat
from kartothek_cube.core.layout import check_overlap
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.metadata.txn import Txn, is_applied
from kartothek_cube.core.naming import document_format
from kartothek_cube.core.parquet import ParquetFormat
from kartothek_cube.errors import AlreadyExists, InvalidInput, InvalidType

__all__ = ["check_serializer", "column_names", "plan_new", "plan_update"]


def plan_new(
    uuid: str,
    base: Snapshot | None,
    partition_on: Any = None,
    secondary_indices: Any = None,
    serializer: Any = None,
    overwrite: bool = False,
    storage_format: str = "json",
    txn: Txn | None = None,
) -> WriteRequest:
    """A write that makes a dataset, or with ``overwrite`` replaces one. One whose ``txn`` has been done may be planned again."""
    msgpack = document_format(storage_format) == "msgpack"
    keys, indices = column_names(partition_on, "partition_on"), column_names(secondary_indices, "secondary_indices")
    check_overlap(indices, keys, uuid)
    if not check_flag(overwrite, "overwrite") and base is not None and not is_applied(txn, base.document.metadata):
        raise AlreadyExists(f"Dataset {uuid!r} already exists and overwrite is not permitted! Say overwrite=True to replace it.")
    if base is not None and base.key.endswith(".zstd") != msgpack:
        raise InvalidInput(
            f"Dataset {uuid!r} has the document {base.key!r}; a dataset keeps its encoding, also when it is overwritten. "
            f"Give metadata_storage_format={'json' if msgpack else 'msgpack'!r}, or call convert_metadata_format first."
        )
    return WriteRequest(uuid, base, keys, indices, check_serializer(serializer), replace=base is not None, msgpack=msgpack)


def plan_update(
    uuid: str,
    base: Snapshot | None,
    partition_on: Any = None,
    secondary_indices: Any = None,
    serializer: FileFormat | None = None,
    sort_partitions_by: Any = None,
    add_columns: bool = False,
) -> WriteRequest:
    """A write that adds to a dataset, and makes it if there is none."""
    keys, indices = column_names(partition_on, "partition_on"), column_names(secondary_indices, "secondary_indices")
    sort = column_names(sort_partitions_by, "sort_partitions_by")
    if base is not None:
        keys = _stored_keys(base, keys)
        indices = _all_indices(base, indices)
    check_overlap(indices, keys, uuid)
    return WriteRequest(uuid, base, keys, indices, check_serializer(serializer), sort, add_columns=check_flag(add_columns, "add_columns"))


def column_names(value: Any, argument: str) -> tuple[str, ...]:
    """An argument that lists columns: names, each once."""
    columns = as_list(value, argument)
    wrong = [c for c in columns if not isinstance(c, str)]
    if wrong:
        raise InvalidType(f"The argument {argument} has column names, which are text; got {wrong[0]!r}.")
    if len(set(columns)) != len(columns):
        raise InvalidInput(f"The argument {argument} names a column twice: {columns}.")
    return tuple(columns)


def _stored_keys(base: Snapshot, given: tuple[str, ...]) -> tuple[str, ...]:
    if given and given != base.partition_keys:
        raise InvalidInput(
            f"Incompatible set of partition keys encountered. Input partitioning was {list(given)} "
            f"while actual dataset {base.uuid!r} was {list(base.partition_keys)}."
        )
    return base.partition_keys


def _all_indices(base: Snapshot, given: tuple[str, ...]) -> tuple[str, ...]:
    """All indices that the dataset has are maintained; one without partitions may get new ones, as they would be whole."""
    new = sorted(set(given) - base.secondary_columns)
    if new and len(base.partitions):
        raise InvalidInput(
            f"Incorrect indices provided for dataset {base.uuid!r}: {new}. It has {sorted(base.secondary_columns)}; "
            "build_dataset_indices makes an index for the partitions that are there."
        )
    return tuple(sorted(base.secondary_columns | set(given)))


def check_serializer(serializer: Any) -> FileFormat:
    """The default serializer, or the one given if it is one."""
    if serializer is None:
        return ParquetFormat()
    if not isinstance(serializer, FileFormat):
        raise InvalidType(f'df_serializer should be a serializer, e.g. ParquetSerializer(compression="ZSTD"), but is {serializer!r}.')
    return serializer
