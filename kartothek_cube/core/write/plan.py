"""Plans of writes to a dataset: arguments, checked against the dataset as it is. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kartothek_cube.core.arguments import as_list, check_flag
from kartothek_cube.core.io.formats import AdaptiveParquetFormat, FileFormat, ParquetFormat
from kartothek_cube.core.metadata.commit_log import Txn, is_applied
from kartothek_cube.core.metadata.naming import document_format
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.runtime.options import current_options
from kartothek_cube.core.write.layout import NO_LAYOUT, DatasetLayout, layout_of
from kartothek_cube.core.write.prepare import WriteRequest, check_overlap, derived_in
from kartothek_cube.errors import AlreadyExists, InvalidInput, InvalidType


def plan_new(
    uuid: str,
    base: Snapshot | None,
    partition_on: object = None,
    secondary_indices: object = None,
    serializer: object = None,
    overwrite: bool = False,
    storage_format: str = "json",
    txn: Txn | None = None,
    sort_partitions_by: object = None,
) -> WriteRequest:
    """A write that creates a dataset, or with ``overwrite`` replaces it."""
    msgpack = document_format(storage_format) == "msgpack"
    given = as_list(partition_on, "partition_on")
    derived, keys = derived_in(given), column_names(given, "partition_on")
    indices = column_names(secondary_indices, "secondary_indices")
    check_overlap(indices, keys, uuid)
    # A retry whose `txn` was applied is no error: its commit will skip it.
    if not check_flag(overwrite, "overwrite") and base is not None and not is_applied(txn, base.document.metadata):
        raise AlreadyExists(
            f"Dataset {uuid!r} already exists and overwrite is not permitted! Say overwrite=True to replace it."
        )
    # Two documents in different encodings would compete: readers take the JSON one.
    if base is not None and base.key.endswith(".zstd") != msgpack:
        raise InvalidInput(
            f"Dataset {uuid!r} has the document {base.key!r}; "
            "a dataset keeps its encoding, also when it is overwritten. "
            f"Give metadata_storage_format={'json' if msgpack else 'msgpack'!r}, or call convert_metadata_format first."
        )
    sort = column_names(sort_partitions_by, "sort_partitions_by")
    on_record = NO_LAYOUT if base is None else layout_of(base.document.metadata, uuid)
    layout = layout_of_call(serializer, sort, on_record)
    layout = replace(layout, sort_by=tuple(c for c in layout.sort_by if c not in keys))
    file_format, is_own_order, sort = layout.format(check_serializer(serializer)), bool(sort), sort or layout.sort_by
    is_old = base is not None
    return WriteRequest(
        uuid,
        base,
        keys,
        indices,
        file_format,
        sort,
        sorts_as_recorded=not is_own_order,
        replace=is_old,
        msgpack=msgpack,
        layout=layout,
        derived=derived,
    )


def plan_dataset_update(
    uuid: str,
    base: Snapshot | None,
    partition_on: object = None,
    secondary_indices: object = None,
    serializer: FileFormat | None = None,
    sort_partitions_by: object = None,
    add_columns: bool = False,
) -> WriteRequest:
    """A write that adds to a dataset, and creates it if there is none."""
    given = as_list(partition_on, "partition_on")
    derived, keys = derived_in(given), column_names(given, "partition_on")
    indices = column_names(secondary_indices, "secondary_indices")
    sort = column_names(sort_partitions_by, "sort_partitions_by")
    if base is not None:
        if keys and keys != base.partition_keys:
            raise InvalidInput(
                f"Incompatible set of partition keys encountered. Input partitioning was {list(keys)} "
                f"while actual dataset {base.uuid!r} was {list(base.partition_keys)}."
            )
        new = sorted(set(indices) - base.secondary_columns)
        # A new index would lack the partitions that there are.
        if new and len(base.partitions):
            raise InvalidInput(
                f"Incorrect indices provided for dataset {base.uuid!r}: {new}. "
                f"It has {sorted(base.secondary_columns)}; "
                "build_dataset_indices builds an index for existing partitions."
            )
        keys, indices = base.partition_keys, tuple(sorted(base.secondary_columns | set(indices)))
    check_overlap(indices, keys, uuid)
    on_record, is_own_order = NO_LAYOUT, True
    if base is not None:
        columns = {name for schema in base.schemas.values() for name in schema.names}
        on_record = layout_of(base.document.metadata, uuid).within(columns)
    layout = layout_of_call(serializer, [c for c in sort if c not in keys], on_record)
    if base is not None:
        # The rows of several tables need not have the columns.
        is_own_order, sort = bool(sort), sort or (layout.sort_by if len(base.schemas) < 2 else ())
    file_format, add_columns = layout.format(check_serializer(serializer)), check_flag(add_columns, "add_columns")
    return WriteRequest(
        uuid,
        base,
        keys,
        indices,
        file_format,
        sort,
        sorts_as_recorded=not is_own_order,
        add_columns=add_columns,
        layout=layout,
        derived=derived,
    )


def layout_of_call(
    serializer: object = None, sort_by: Sequence[str] = (), on_record: DatasetLayout = NO_LAYOUT
) -> DatasetLayout:
    """What the arguments and options of a call say about files; the rest is as on record.

    A serializer that the call names wins whole: what it leaves open is not looked up.
    """
    layout = DatasetLayout(tuple(sort_by), target_file_bytes=current_options().target_file_bytes).over(on_record)
    # Nobody names the adaptive format: it is the default of cubes.
    if not isinstance(serializer, ParquetFormat) or isinstance(serializer, AdaptiveParquetFormat):
        return layout
    return replace(layout, compression=serializer.compression.upper(), row_group_rows=serializer.chunk_size)


def column_names(value: object, argument: str) -> tuple[str, ...]:
    """The column names in an argument; each may occur once."""
    columns = as_list(value, argument)
    wrong = [c for c in columns if not isinstance(c, str)]
    if wrong:
        raise InvalidType(f"The argument {argument} has column names, which are text; got {wrong[0]!r}.")
    if len(set(columns)) != len(columns):
        raise InvalidInput(f"The argument {argument} names a column twice: {columns}.")
    # Plain text, also of a derived column.
    return tuple(str(c) for c in columns)


def check_serializer(serializer: object) -> FileFormat:
    """The serializer of an argument, or the default."""
    if serializer is None:
        return ParquetFormat()
    if not isinstance(serializer, FileFormat):
        raise InvalidType(
            f'df_serializer should be a serializer, e.g. ParquetSerializer(compression="ZSTD"), but is {serializer!r}.'
        )
    return serializer
