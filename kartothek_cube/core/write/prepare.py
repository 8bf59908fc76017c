"""Prepares input partitions for staging: the rows are checked, sorted and cut into files. Pure.

In order: what a dataset can carry, the request, one element, and the schemas of all elements.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import pyarrow as pa

from kartothek_cube.core.arrow.keys import sorted_table
from kartothek_cube.core.arrow.types import check_shared_columns, ordered, unify
from kartothek_cube.core.io.formats import FileFormat
from kartothek_cube.core.metadata.document import partition_text
from kartothek_cube.core.metadata.index import index_type
from kartothek_cube.core.metadata.naming import data_key, index_key, schema_key
from kartothek_cube.core.metadata.snapshot import Snapshot, type_of_column
from kartothek_cube.core.stores.contract import check_key
from kartothek_cube.core.write.dataset_layout import NO_LAYOUT, DatasetLayout, check_types_of_dropped, dropped_columns
from kartothek_cube.core.write.input_rows import InputPartition
from kartothek_cube.core.write.partitioner import UNITS, DerivedColumn, split_rows, with_derived
from kartothek_cube.core.write.receipt import PartitionRows
from kartothek_cube.core.write.stage import StageRequest, dataset_schema
from kartothek_cube.errors import InvalidInput, InvalidRequest, UnknownColumn, Unsupported

__all__ = [
    "PreparedRows",
    "Schemas",
    "WriteRequest",
    "check_final",
    "check_index_columns",
    "check_overlap",
    "check_partition_columns",
    "check_partition_types",
    "check_table_name",
    "prepare",
]

# A value of each type that a path may carry; 0 for all others.
_SAMPLES = {pa.bool_(): True, pa.string(): "", pa.binary(): b"", pa.date32(): "", pa.timestamp("us"): ""}

_TABLE_NAME = re.compile(r"[A-Za-z0-9+\-.=@~][A-Za-z0-9+\-._=@~ ]*")


# --- what a dataset can carry ---------------------------------------------------------------------


def check_partition_types(schema: pa.Schema, partition_on: Sequence[str], dataset: str) -> None:
    """Raise for partition columns whose values no path can carry."""
    for column in partition_on:
        data_type = schema.field(column).type
        if column == "partition":
            raise InvalidInput(
                f"A column called 'partition' cannot be a partition column of dataset {dataset!r}: "
                "index files use the name. Rename it."
            )
        if pa.types.is_null(data_type):
            continue  # `split_rows` refuses nulls with a better message
        try:
            partition_text(_SAMPLES.get(data_type, 0), data_type)
        except Unsupported as error:
            raise Unsupported(f"Partition column {column!r} of dataset {dataset!r}: {error}") from None


def check_index_columns(
    schemas: Mapping[str, pa.Schema], columns: Sequence[str], partition_on: Sequence[str], uuid: str
) -> list[str]:
    """Raise for columns that cannot have a secondary index; return keys as index files have."""
    check_overlap(columns, partition_on, uuid)
    for column in columns:
        index_type(type_of_column(schemas, column, uuid), column, uuid)
    return [index_key(uuid, column, datetime(2000, 1, 1)) for column in columns]  # noqa: DTZ001 - keys have UTC without a zone


def check_overlap(columns: Sequence[str], partition_on: Sequence[str], uuid: str) -> None:
    """Raise for secondary indices on partition columns."""
    overlap = sorted(set(columns) & set(partition_on))
    if overlap:
        raise InvalidRequest(
            f"Cannot create secondary index on partition columns {overlap} of dataset {uuid!r}: "
            "they are indexed by their paths."
        )


def check_table_name(table: object, uuid: str) -> str:
    """Raise for table names that cannot be a folder; return the key of the table's schema file."""
    if not isinstance(table, str) or not _TABLE_NAME.fullmatch(table):
        raise InvalidInput(
            f"{table!r} is no name for a table of dataset {uuid!r}: "
            "letters, digits and `+-._=@~` are, the first one no underscore."
        )
    if table == "indices":
        raise InvalidInput(
            f"A table of dataset {uuid!r} cannot be called 'indices': its files would be among the index files."
        )
    return schema_key(uuid, table)


# --- the request ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """How rows are written to one dataset.

    Attributes
    ----------
    uuid : str
        The dataset.
    base : Snapshot | None
        The dataset as it is; None for a new one.
    partition_on, index_columns, sort_columns : tuple of str
        Columns that split the rows, that have a secondary index, and that sort the rows of each
        element.
    serializer : FileFormat
        How data files are encoded.
    replace, add_columns : bool
        Whether the rows replace the present contents; whether new columns are allowed.
    msgpack : bool
        Whether the document of a new dataset is msgpack and not JSON.
    sorts_as_recorded : bool
        Whether the order is that on record, and not asked for by the call.
    layout : DatasetLayout
        What the call says about files, and what is on record where the call says nothing.
    derived : tuple of DerivedColumn
        Partition columns that rows get from other columns.
    """

    uuid: str
    base: Snapshot | None
    partition_on: tuple[str, ...]
    index_columns: tuple[str, ...]
    serializer: FileFormat
    sort_columns: tuple[str, ...] = ()
    sorts_as_recorded: bool = False
    replace: bool = False
    add_columns: bool = False
    msgpack: bool = False
    layout: DatasetLayout = NO_LAYOUT
    derived: tuple[DerivedColumn, ...] = ()

    @property
    def start(self) -> Snapshot | None:
        """The snapshot that the rows are added to; None for a new or replaced dataset."""
        return None if self.replace else self.base

    def records(self, schemas: Mapping[str, pa.Schema]) -> dict[str, str | None]:
        """The layout for the document of a new dataset; one that is there keeps its own."""
        names = {name for schema in schemas.values() for name in schema.names}
        return self.layout.within(names).record() if self.start is None else {}

    def stage_request(self, table: str, fresh: bool, *, may_cut: bool = True) -> StageRequest:
        """How the files of one table are staged."""
        indexed, sort, file_format = self.index_columns, self.sort_columns, self.serializer
        # A label that a user chose names one file, which a later write replaces.
        target = self.layout.target_file_bytes if fresh and may_cut else None
        return StageRequest(
            self.uuid, self.partition_on, indexed, sort, file_format, table, fresh, target_file_bytes=target
        )


# --- one element ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PreparedRows:
    """An element that is ready to be staged: schema and partitions by table."""

    label: str
    fresh: bool
    schemas: Mapping[str, pa.Schema]
    parts: Mapping[str, Sequence[PartitionRows]]

    @property
    def labels(self) -> list[str]:
        """The labels of the partitions."""
        return list(dict.fromkeys(part.label for parts in self.parts.values() for part in parts))

    @property
    def nbytes(self) -> int:
        """Bytes of the rows in memory."""
        return sum(part.table.nbytes for parts in self.parts.values() for part in parts)


def prepare(request: WriteRequest, element: InputPartition) -> PreparedRows:
    """Check, sort and split the rows of one element."""
    missing = [table for table, rows in element.tables.items() if rows is None]
    if missing:
        raise InvalidInput(
            f"The tables {missing} of an element for dataset {request.uuid!r} have no rows: "
            "give a frame, perhaps one without rows."
        )
    given = {t: with_derived(r, request.derived, request.uuid) for t, r in element.tables.items() if r is not None}
    tables = {table: _sorted(request, table, rows) for table, rows in given.items()}
    for table, rows in tables.items():
        check_table_name(table, request.uuid)
        check_partition_columns(request, table, rows.schema)
        request.serializer.check(pa.schema([f for f in rows.schema if f.name not in request.partition_on]))
    _check_element(request, element, [f for rows in tables.values() for f in rows.schema])
    by = request.partition_on
    parts = {table: split_rows(rows, by, element.label, request.uuid) for table, rows in tables.items()}
    # Checked here, so that a value that makes no key fails before its file is encoded.
    for table, part in ((table, part) for table, of_table in parts.items() for part in of_table):
        try:
            check_key(data_key(request.uuid, table, part.label, request.serializer.file_suffix))
        except InvalidInput as error:
            subject = f"the partition values {dict(part.values)} make" if part.values else "the label makes"
            raise InvalidInput(f"Dataset {request.uuid!r}: {subject} no valid key. {error}") from None
    schemas = {table: ordered(dataset_schema(rows.schema, by), by) for table, rows in tables.items()}
    # Every partition gets a file of every table, perhaps without rows: kartothek derives the tables
    # of a dataset from its first partition.
    labels = {part.label: part.values for of_table in parts.values() for part in of_table}
    full = {}
    for table, of_table in parts.items():
        empty = tables[table].drop_columns(list(by)).slice(0, 0)
        by_label = {part.label: part for part in of_table}
        full[table] = [by_label.get(label) or PartitionRows(values, label, empty) for label, values in labels.items()]
    return PreparedRows(element.label, element.fresh, schemas, full)


def _sorted(request: WriteRequest, table: str, rows: pa.Table) -> pa.Table:
    if not request.sort_columns:
        return rows
    missing = sorted(set(request.sort_columns) - set(rows.column_names))
    nested = [f.name for f in rows.schema if f.name in request.sort_columns and pa.types.is_nested(f.type)]
    if (missing or nested) and request.sorts_as_recorded:
        return rows  # whether the rows may lack these columns is for the schema to say
    if missing:
        raise UnknownColumn(
            f"sort_partitions_by: table {table!r} of dataset {request.uuid!r} has no columns {missing}, "
            f"only {rows.column_names}."
        )
    if nested:
        raise Unsupported(
            f"sort_partitions_by: the columns {nested} of dataset {request.uuid!r} hold lists or structs, "
            "which have no order."
        )
    return sorted_table(rows, request.sort_columns)


def check_partition_columns(request: WriteRequest, table: str, schema: pa.Schema) -> None:
    """Raise for a table that cannot be partitioned as the dataset is."""
    missing = [c for c in request.partition_on if c not in schema.names]
    if missing:
        derived = [f'{unit}("{c[: -len(unit) - 1]}")' for c in missing for unit in UNITS if c.endswith(f"_{unit}")]
        raise InvalidInput(
            f"Partition column(s) missing: {', '.join(missing)} "
            f"(table {table!r} of dataset {request.uuid!r}, which has {schema.names})."
            + (f" For columns that are derived, repeat partition_on=[{', '.join(derived)}]." if derived else "")
        )
    if request.partition_on and set(schema.names) == set(request.partition_on):
        raise InvalidInput(
            f"No data left to save outside partition columns {list(request.partition_on)} "
            f"in table {table!r} of dataset {request.uuid!r}."
        )
    check_partition_types(schema, request.partition_on, request.uuid)


def _check_element(request: WriteRequest, element: InputPartition, fields: Sequence[pa.Field]) -> None:
    """Raise unless the element has all index columns, no other indices, and a label that fits."""
    names = {f.name for f in fields}
    for f in fields:
        if f.name in request.index_columns and not pa.types.is_null(f.type):
            index_type(f.type, f.name, request.uuid)
    for column in request.index_columns:
        if column not in names:
            raise InvalidRequest(
                f"Column `{column}` could not be found in the partition `{element.label}` "
                f"with tables {list(element.tables)}: "
                f"dataset {request.uuid!r} has a secondary index on it. The rows have {sorted(names)}."
            )
    surplus = sorted(set(element.indexed) - set(request.index_columns))
    if surplus:
        raise InvalidInput(
            f"Incorrect indices provided for dataset {request.uuid!r}: an element has indices on {surplus}, "
            f"but the dataset on {request.index_columns}."
        )
    if not element.fresh and request.partition_on and ("=" in element.label or "/" in element.label):
        raise InvalidInput(
            f"Incompatible partitioning encountered: the label {element.label!r} looks as if it had partition values "
            f"already ('=' or '/'), and dataset {request.uuid!r} is partitioned on {list(request.partition_on)}. "
            "Leave them to the rows."
        )


# --- the schemas of all elements ------------------------------------------------------------------


@dataclass(slots=True)
class Schemas:
    """The schemas and indices of a write, extended by each element before its rows are stored."""

    request: WriteRequest
    tables: dict[str, pa.Schema] = field(default_factory=dict)

    def prepared(self, elements: Iterable[InputPartition]) -> Iterator[PreparedRows]:
        """The elements, prepared; each is compared with the dataset and with those before it.

        A new dataset has the indices of the request, and those that any element brings.
        """
        for element in elements:
            if self.request.start is None and not set(element.indexed) <= set(self.request.index_columns):
                indexed = dict.fromkeys([*self.request.index_columns, *element.indexed])
                self.request = replace(self.request, index_columns=tuple(indexed))
            rows = prepare(self.request, element)
            self.add(rows.schemas)
            yield rows

    def add(self, schemas: Mapping[str, pa.Schema]) -> None:
        """Compare the schemas of one more element with the present ones, and merge them."""
        start = self.request.start
        present = self.tables or (dict(start.schemas) if start is not None else {})
        if present and set(present) != set(schemas):
            raise InvalidInput(
                "Input partitions for update have different tables than dataset "
                f"{self.request.uuid!r}: {sorted(schemas)}, not {sorted(present)}."
            )
        tables = dict(schemas)
        was_dropped = {} if start is None else dropped_columns(start.document.metadata, start.uuid)
        for table, schema in schemas.items():
            old, new = present.get(table), schema
            if self.request.add_columns:
                new = check_types_of_dropped(was_dropped.get(table, pa.schema([])), new, self.request.uuid)
            if old is None or old.equals(new):
                continue
            if self.request.add_columns:
                # Not every element needs the added columns: each side gets those of the other.
                stored = start.schemas.get(table, old).names if start is not None else old.names
                absent = [f for f in old if f.name not in new.names and f.name not in stored]
                old = pa.schema([*old, *(f for f in new if f.name not in old.names)])
                new = pa.schema([*new, *absent])
            try:
                unified = unify([old, new], f"table {table!r} of dataset {self.request.uuid!r}")
            except InvalidInput as error:
                if start is None or not set(old.names) < set(new.names):
                    raise
                raise InvalidInput(f"{error} To add new columns, say add_columns=True in the update.") from None
            tables[table] = ordered(unified, self.request.partition_on)
        self.tables = tables
        check_shared_columns(self.tables, self.request.uuid)


def check_final(request: WriteRequest, schemas: Mapping[str, pa.Schema]) -> None:
    """Check, after all rows were seen, that the indices can be built."""
    everything = {**(dict(request.start.schemas) if request.start is not None else {}), **schemas}
    if everything:
        for key in check_index_columns(everything, request.index_columns, request.partition_on, request.uuid):
            check_key(key)
