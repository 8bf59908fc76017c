"""Prepares input partitions for staging: rows are checked, sorted, cut into files. Pure.

In order:

- rows of a partition, also by columns that follow from a date
- the request, one element, the schemas of all
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from msgspec import Struct, field
from msgspec.structs import replace

from kartothek_cube.core.arguments import drop_or_fill
from kartothek_cube.core.arrow.keys import IntArray, group_starts, pack_one, sorted_table
from kartothek_cube.core.arrow.pandas import null_count
from kartothek_cube.core.arrow.types import check_shared_columns, ordered, unify
from kartothek_cube.core.io.formats import FileFormat
from kartothek_cube.core.metadata.document import dataset_schema, partition_text
from kartothek_cube.core.metadata.index import index_type
from kartothek_cube.core.metadata.naming import data_key, index_key, label_of, schema_key
from kartothek_cube.core.metadata.snapshot import Snapshot, type_of_column
from kartothek_cube.core.stores.contract import check_key
from kartothek_cube.core.write.input_rows import InputPartition
from kartothek_cube.core.write.layout import (
    NO_LAYOUT,
    DatasetLayout,
    StageRequest,
    check_types_of_dropped,
    dropped_columns,
)
from kartothek_cube.errors import InvalidInput, InvalidRequest, UnknownColumn, Unsupported

# NumPy sorts 16-bit keys by radix, five times as fast as wider ones.
_RADIX_KEYS = 2**16


class PartitionRows(Struct, frozen=True):
    """Rows of one physical partition; ``values`` has partition columns, ``table`` the others."""

    values: Mapping[str, Any]
    label: str
    table: pa.Table


def split_rows(table: pa.Table, partition_on: Sequence[str], base_label: str, uuid: str) -> list[PartitionRows]:
    """Cut rows by partition values: partitions in order of their values, rows in input order.

    At most one sort, then slices by offsets.
    """
    if not partition_on:
        return [PartitionRows({}, base_label, table)]
    nulls = {name: n for name in partition_on if (n := null_count(table.column(name)))}
    if nulls:
        counts = ", ".join(f"{name}: {n:,}" for name, n in nulls.items())
        raise InvalidInput(
            f"There are nulls in the partition columns {[*nulls]} of dataset {uuid!r} ({counts} of "
            f"{table.num_rows:,} rows); a path cannot name them. {drop_or_fill(nulls)}"
        )
    table, starts = _grouped(table, partition_on)
    firsts = _distinct_rows(table.select(list(partition_on)).take(pa.array(starts)), uuid)
    # The path has these values, and readers take them from there, whatever the file says.
    payload = table.drop_columns(list(partition_on))
    if payload.num_columns == 0:
        raise InvalidInput(f"No data left to save outside partition columns {list(partition_on)} in dataset {uuid!r}.")
    lengths = np.diff(np.append(starts, table.num_rows))
    types = {name: table.schema.field(name).type for name in partition_on}
    parts = []
    for values, start, length in zip(firsts, starts, lengths, strict=True):
        pairs: list[tuple[str, str | bytes]] = []
        for name, value in values.items():
            try:
                pairs.append((name, partition_text(value, types[name])))
            except Unsupported as error:
                raise Unsupported(f"Partition column {name!r} of dataset {uuid!r}: {error}") from None
        label = label_of(pairs, base_label)  # type: ignore[arg-type]
        parts.append(PartitionRows(values, label, payload.slice(start, length)))
    return parts


def _grouped(table: pa.Table, by: Sequence[str]) -> tuple[pa.Table, IntArray]:
    """The rows sorted by some columns, equal ones in their order, and the start of each group."""
    if not table.num_rows:
        return table, np.zeros(0, dtype=np.int64)
    changed = np.zeros(table.num_rows - 1, dtype=bool)
    for column in map(table.column, by):
        changed |= pc.not_equal(column.slice(1), column.slice(0, len(column) - 1)).to_numpy()
    starts = np.concatenate(([0], np.flatnonzero(changed) + 1)).astype(np.int64)
    # Keys are packed once per run of equal rows. Rows that are grouped already are not sorted.
    keys = pack_one(table.select(list(by)).take(pa.array(starts)), by)
    if bool((keys[1:] > keys[:-1]).all()):
        return table, starts
    keys = np.repeat(keys, np.diff(np.append(starts, table.num_rows)))
    keys = keys.astype(np.uint16) if int(keys.min()) >= 0 and int(keys.max()) < _RADIX_KEYS else keys
    order = np.argsort(keys, kind="stable")
    return table.take(pa.array(order)), group_starts(keys[order])


def _distinct_rows(rows: pa.Table, uuid: str) -> list[dict[str, Any]]:
    columns = []
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        try:
            columns.append(column.to_pylist())
        except UnicodeDecodeError:
            raise InvalidInput(
                f"Partition column {name!r} of dataset {uuid!r} has text that is not UTF-8, which a path cannot name."
            ) from None
        except (OverflowError, ValueError):
            raise InvalidInput(
                f"Partition column {name!r} of dataset {uuid!r} has moments outside the years 1 to 9999, "
                "which a path cannot name."
            ) from None
    return [dict(zip(rows.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


# --- derived columns ------------------------------------------------------------------------------

Unit: TypeAlias = Literal["year", "month", "day"]
UNITS: tuple[Unit, ...] = ("year", "month", "day")


class DerivedColumn(str):
    """The name of a column whose values follow from another one, e.g. ``SALES_DATE_month``.

    A write that is partitioned on it adds the column to its rows. From then on it is a column like
    any other.

    Examples
    --------
    >>> column = month("SALES_DATE")
    >>> column, column.source, column.unit
    ('SALES_DATE_month', 'SALES_DATE', 'month')
    """

    __slots__ = ("source", "unit")

    source: str
    unit: Unit

    def __new__(cls, source: str, unit: Unit) -> Self:
        if not isinstance(source, str) or not source:  # type: ignore[redundant-expr]
            raise InvalidInput(f"{unit}(...) takes the name of a column, not {source!r}.")
        made = super().__new__(cls, f"{source}_{unit}")
        made.source, made.unit = source, unit
        return made

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        return self.source, self.unit

    def values(self, rows: pa.Table, dataset: str) -> pa.ChunkedArray:
        """The values for some rows.

        Raises
        ------
        UnknownColumn
            If the rows do not have the source.
        Unsupported
            If it is no date and no timestamp without a zone.
        """
        if self.source not in rows.column_names:
            raise UnknownColumn(
                f"{self.unit}({self.source!r}): the rows for dataset {dataset!r} have no such column, "
                f"only {rows.column_names}."
            )
        column = rows.column(self.source)
        is_plain = pt.is_date(column.type) or (pt.is_timestamp(column.type) and column.type.tz is None)
        if not is_plain and not pt.is_null(column.type):
            raise Unsupported(
                f"{self.unit}({self.source!r}): the column of dataset {dataset!r} is {column.type}. "
                "Cast it to a date, or to a timestamp without a zone."
            )
        column = column.cast(pa.date32()) if pt.is_null(column.type) else column
        if self.unit == "year":
            return pc.year(column)
        return pc.floor_temporal(column, unit=self.unit).cast(pa.date32())


def year(column: str) -> DerivedColumn:
    """The year of a date or time as a partition column, an integer.

    Examples
    --------
    >>> year("SALES_DATE")
    'SALES_DATE_year'
    """
    return DerivedColumn(column, "year")


def month(column: str) -> DerivedColumn:
    """The month of a date or time as a partition column: the date of its first day.

    Conditions on the date itself open only the files of its months, by their statistics.

    Examples
    --------
    >>> import datetime as dt
    >>> import pyarrow as pa
    >>> from kartothek_cube import open_store
    >>> from kartothek_cube.api.dataset import month, store_dataframes_as_dataset
    >>> days = [dt.date(2024, 5, 1), dt.date(2024, 5, 31), dt.date(2024, 6, 1)]
    >>> sales = pa.table({"SALES_DATE": days, "UNITS": [3, 4, 5]})
    >>> store, by_month = open_store("hmemory://"), month("SALES_DATE")
    >>> dataset = store_dataframes_as_dataset(store, "sales", [sales], partition_on=by_month)
    >>> sorted(label.split("/")[0] for label in dataset.partitions)
    ['SALES_DATE_month=2024-05-01', 'SALES_DATE_month=2024-06-01']
    """
    return DerivedColumn(column, "month")


def day(column: str) -> DerivedColumn:
    """The day of a date or time as a partition column, a date.

    Examples
    --------
    >>> day("SOLD_AT")
    'SOLD_AT_day'
    """
    return DerivedColumn(column, "day")


def derived_in(names: Iterable[str]) -> tuple[DerivedColumn, ...]:
    """The derived columns among some names."""
    return tuple(name for name in names if isinstance(name, DerivedColumn))


def refuse_derived(names: Iterable[object], where: str) -> None:
    """Raise for a derived column in a cube, whose datasets share their partition columns."""
    for name in names:
        if isinstance(name, DerivedColumn):
            raise InvalidInput(
                f"{where}: {name.unit}({name.source!r}) is for single datasets. Add the column {str(name)!r} to the "
                "rows yourself, and name it here."
            )


def with_derived(rows: pa.Table, columns: Iterable[DerivedColumn], dataset: str) -> pa.Table:
    """The rows with derived columns.

    Raises
    ------
    InvalidInput
        If the rows have a column of the name with other values.
    """
    for column in columns:
        values, name = column.values(rows, dataset), str(column)
        if name not in rows.column_names:
            rows = rows.append_column(name, values)
            continue
        try:
            is_same = rows.column(name).cast(values.type).equals(values)
        except pa.ArrowException:
            is_same = False
        if not is_same:
            raise InvalidInput(
                f"Column {name!r} of the rows for dataset {dataset!r} is not the {column.unit} of {column.source!r}. "
                "Leave it out, or correct it."
            )
    return rows


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


class WriteRequest(Struct, frozen=True):
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


class PreparedRows(Struct, frozen=True):
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


class Schemas(Struct):
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
