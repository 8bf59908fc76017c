"""From rows to checked, sorted, split partitions of one dataset of a cube. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import pyarrow as pa

from kartothek_cube.core.arguments import drop_or_fill, pluralize
from kartothek_cube.core.arrow.keys import IntArray, ascends, pack_one, stable_order
from kartothek_cube.core.arrow.pandas import null_count
from kartothek_cube.core.io.formats import AdaptiveParquetFormat, FileFormat
from kartothek_cube.core.metadata.index import index_type
from kartothek_cube.core.metadata.naming import SINGLE_TABLE, data_key, index_key
from kartothek_cube.core.stores.contract import check_key
from kartothek_cube.core.write.layout import NO_LAYOUT, DatasetLayout
from kartothek_cube.core.write.plan import layout_of_call
from kartothek_cube.core.write.prepare import check_partition_types, split_rows
from kartothek_cube.core.write.stage import PartitionRows, StageRequest, dataset_schema
from kartothek_cube.cube.cube import KTK_CUBE_COMPRESSION, Cube, get_payload_subset, visible_columns
from kartothek_cube.errors import InvalidInput, InvalidType, Unsupported

__all__ = [
    "REPLACE_OR_APPEND",
    "DatasetWrite",
    "check_columns",
    "check_no_nulls",
    "check_payload",
    "check_repeated",
    "check_visible",
    "make_write",
    "prepare_parts",
]

REPLACE_OR_APPEND = "Say overwrite=True to replace it, or call append_to_cube to add rows."
"""What to do about a dataset that is there already."""

_FORMAT = AdaptiveParquetFormat(KTK_CUBE_COMPRESSION)


@dataclass(frozen=True, slots=True)
class DatasetWrite:
    """How rows of one dataset of a cube are checked and stored. Picklable, for Spark tasks.

    Attributes
    ----------
    id : str
        The dataset.
    schema : pyarrow.Schema
        The columns of the rows, in stored types.
    dimensions : tuple of str
        The cube's dimension columns among them.
    sort_columns : tuple of str
        The cube's partition and dimension columns among them. Rows are sorted by these and are
        distinct in them.
    null_free : tuple of (str, str)
        Columns without nulls, each with the word for its role.
    request : StageRequest
        How the files are staged.
    layout : DatasetLayout
        What the call says about files, and what is on record where the call says nothing. An order
        on record is that of compactions: new files are sorted by cell.
    """

    id: str
    schema: pa.Schema
    dimensions: tuple[str, ...]
    sort_columns: tuple[str, ...]
    null_free: tuple[tuple[str, str], ...]
    request: StageRequest
    layout: DatasetLayout = NO_LAYOUT


def make_write(
    cube: Cube,
    name: str,
    schema: pa.Schema,
    partition_on: tuple[str, ...],
    serializer: FileFormat | None = None,
    indexed: Collection[str] | None = None,
    on_record: DatasetLayout = NO_LAYOUT,
) -> DatasetWrite:
    """How a dataset with these columns is written.

    If the dataset exists already, ``indexed`` are its columns with an index, ``on_record`` its
    layout.
    """
    columns, uuid = set(schema.names), cube.ktk_dataset_uuid(name)
    dims = tuple(c for c in cube.dimension_columns if c in columns)
    for column in dims:
        if pa.types.is_nested(schema.field(column).type):
            raise InvalidType(
                f"Dimension column {column!r} of dataset {name!r} is {schema.field(column).type}; "
                "a cell needs values that can be sorted."
            )
    if indexed is None:
        indexed = (cube.index_columns & columns) - set(partition_on)
        if name == cube.seed_dataset:
            indexed |= set(dims) - cube.suppress_index_on - set(partition_on)
    secondary = tuple(sorted(indexed))
    _check_indices(schema, secondary, uuid)
    check_partition_types(schema, partition_on, name)
    if serializer is not None and not isinstance(serializer, FileFormat):
        raise InvalidType(
            "df_serializer should be a ParquetSerializer or a CsvSerializer, "
            f'e.g. ParquetSerializer(compression="ZSTD"), but is {serializer!r}.'
        )
    layout = layout_of_call(serializer, on_record=on_record).within({*schema.names} - {*partition_on})
    file_format = layout.format(serializer or _FORMAT)
    file_format.check(pa.schema([f for f in schema if f.name not in partition_on]))
    # In the order in which an error names columns with nulls.
    roles = (
        *((c, "partition") for c in partition_on),
        *((c, "dimension") for c in sorted(dims)),
        *((c, "index") for c in sorted(cube.index_columns & columns)),
    )
    sort_columns = (*(c for c in cube.partition_columns if c in columns), *dims)
    target = layout.target_file_bytes
    request = StageRequest(uuid, partition_on, secondary, dims, file_format, target_file_bytes=target)
    return DatasetWrite(name, dataset_schema(schema, partition_on), dims, sort_columns, roles, request, layout)


def _check_indices(schema: pa.Schema, columns: Sequence[str], uuid: str) -> None:
    for column in columns:
        # Any time will do: all have the same length. Keys have UTC without a zone.
        check_key(index_key(uuid, column, datetime(2000, 1, 1)))  # noqa: DTZ001
        # A column of nulls, or a dataset without rows, is refused later with a better message.
        if not pa.types.is_null(schema.field(column).type):
            index_type(schema.field(column).type, column, uuid)


def check_columns(cube: Cube, name: str, columns: Collection[str], partition_on: Sequence[str]) -> None:
    """Refuse a dataset without its dimension and partition columns, or without any other column."""
    missing = sorted(set(cube.dimension_columns) - set(columns))
    if name == cube.seed_dataset and missing:
        raise InvalidInput(f'Missing dimension columns in seed data "{name}": {", ".join(missing)}')
    if len(missing) == len(cube.dimension_columns):
        dims = ", ".join(cube.dimension_columns)
        raise InvalidInput(f'Dataset "{name}" must have at least 1 of the following dimension columns: {dims}')
    absent = sorted(set(partition_on) - set(columns))
    if absent:
        hint = ""
        if name != cube.seed_dataset:
            present = [c for c in partition_on if c in columns]
            hint = f" A dataset without them is written with partition_on={{{name!r}: {present}}}."
        raise InvalidInput(f'Missing partition columns in dataset "{name}": {", ".join(absent)}.{hint}')
    if set(columns) == set(partition_on):
        raise InvalidInput(f"No data left to save outside partition columns {list(partition_on)} in dataset {name!r}.")


def check_visible(cube: Cube, name: str, columns: Collection[str]) -> None:
    """Refuse dimension, partition and index columns that every query would hide."""
    roles = {*cube.dimension_columns, *cube.partition_columns, *cube.index_columns} & set(columns)
    hidden = sorted(roles - set(visible_columns(roles)))
    if hidden:
        raise InvalidInput(
            f'Columns of dataset "{name}" that are dimension, partition or index columns '
            f"would be hidden in every query: {', '.join(hidden)}. "
            'Names must not begin with "__" nor be KLEE_TS. Rename them.'
        )


def check_payload(
    cube: Cube, name: str, columns: Collection[str], partition_on: Sequence[str], owners: Mapping[str, str]
) -> None:
    """Refuse payload that is there, and partition columns that are not in ``partition_on``.

    ``owners``: the payload of the cube, each column with its dataset.
    """
    shared = sorted(get_payload_subset(visible_columns(columns), cube) & owners.keys())
    if shared:
        hint = f'. Dataset "{name}" exists. {REPLACE_OR_APPEND}' if all(owners[c] == name for c in shared) else ""
        raise InvalidInput(f'Payload written in "{name}" is already present in cube: {", ".join(shared)}{hint}')
    surplus = sorted((set(columns) & set(cube.partition_columns)) - set(partition_on))
    if surplus:
        raise InvalidInput(f"Unspecified but provided partition columns in {name}: {', '.join(surplus)}")


def check_no_nulls(write: DatasetWrite, table: pa.Table) -> None:
    """Refuse nulls (and NaN) in partition, dimension and index columns."""
    found: dict[str, tuple[str, str]] = {}
    for column, role in write.null_free:
        if column not in found and (nulls := null_count(table.column(column))):
            found[column] = f'{role} column "{column}"', f"({nulls:,} of {table.num_rows:,} rows)"
    if found:
        (first, count), *others = found.values()
        columns = ", ".join([f'{first} of dataset "{write.id}" {count}', *map(" ".join, others)])
        raise InvalidInput(f"Found NULL-values in {columns}. {drop_or_fill(found)}")


def prepare_parts(write: DatasetWrite, table: pa.Table, base_label: str) -> list[PartitionRows]:
    """Check rows, sort them, refuse duplicate cells, and split them into physical partitions."""
    check_no_nulls(write, table)
    if not table.num_rows:
        return []
    if set(table.column_names) != set(write.schema.names):
        table = table.select(write.schema.names)
    ordered = _sorted(write, table)
    columns = ", ".join(write.request.partition_on)
    try:
        parts = split_rows(ordered, write.request.partition_on, base_label, write.request.uuid)
        for part in parts:
            check_key(data_key(write.request.uuid, SINGLE_TABLE, part.label))
    except Unsupported as error:
        raise Unsupported(f"Partition columns {columns} of dataset {write.id!r}: {error}") from None
    except InvalidInput as error:
        raise InvalidInput(
            f"Partition columns {columns} of dataset {write.id!r}: a value makes no valid key. {error}"
        ) from None
    return parts


def _sorted(write: DatasetWrite, table: pa.Table) -> pa.Table:
    # A function of its own, so that keys and order are freed before the rows are split.
    if ascends(table, write.sort_columns):
        return table
    keys = pack_one(table, write.sort_columns)
    order = stable_order(keys)
    if order is not None:
        table, keys = table.take(pa.array(order)), keys[order]
    check_repeated(write, table, keys)
    return table


def check_repeated(write: DatasetWrite, table: pa.Table, keys: IntArray) -> None:
    """Refuse neighbouring rows with the same cell; ``keys`` are the packed sort columns."""
    duplicates = np.flatnonzero(keys[1:] == keys[:-1])
    if not len(duplicates):
        return
    one, other = table.slice(int(duplicates[0]), 2).to_pylist()
    cell = {c: one[c] for c in write.sort_columns}
    differing = {c: (one[c], other[c]) for c in table.column_names if one[c] != other[c]}
    detail = f"they differ in {differing}" if differing else "they are equal in every column"
    raise InvalidInput(
        f'Found duplicate cells by [{", ".join(write.sort_columns)}] in dataset "{write.id}": '
        f"{pluralize(len(duplicates), 'row')} with a cell that another one has. "
        f"Example: {cell} occurs twice; {detail}. A cell may occur once: "
        "aggregate such rows, or add a dimension that tells them apart."
    )
