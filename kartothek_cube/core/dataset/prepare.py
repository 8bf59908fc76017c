"""From elements to checked, sorted, split partitions of one dataset. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from kartothek_cube.core.formats import FileFormat
from kartothek_cube.core.index import index_type
from kartothek_cube.core.input_rows import InputPartition
from kartothek_cube.core.layout import check_index_columns, check_partition_types, check_table_name
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.naming import data_key
from kartothek_cube.core.receipt import PartitionRows
from kartothek_cube.core.rowkeys import pack_one, stable_order
from kartothek_cube.core.schema import check_shared_columns, ordered, unify
from kartothek_cube.core.split import split_rows
from kartothek_cube.core.stage import StageRequest, dataset_schema
from kartothek_cube.core.store import check_key
from kartothek_cube.errors import InvalidInput, InvalidRequest, UnknownColumn, Unsupported

__all__ = ["PreparedRows", "Schemas", "WriteRequest", "check_final", "check_partition_columns", "prepare"]


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
        Columns by which rows are split, that have a secondary index, by which the rows of each element are sorted.
    serializer : FileFormat
        How data files are encoded.
    replace, add_columns : bool
        The former contents go; new columns are allowed.
    msgpack : bool
        Encoding of the document of a new dataset.
    """

    uuid: str
    base: Snapshot | None
    partition_on: tuple[str, ...]
    index_columns: tuple[str, ...]
    serializer: FileFormat
    sort_columns: tuple[str, ...] = ()
    replace: bool = False
    add_columns: bool = False
    msgpack: bool = False

    @property
    def start(self) -> Snapshot | None:
        """What the new rows come to; None where there is nothing, or nothing stays."""
        return None if self.replace else self.base

    def stage_request(self, table: str, fresh: bool) -> StageRequest:
        """How the files of one table are staged."""
        return StageRequest(self.uuid, self.partition_on, self.index_columns, self.sort_columns, self.serializer, table, fresh)


@dataclass(frozen=True, slots=True)
class PreparedRows:
    """An element, ready to be staged: schema and parts by table."""

    label: str
    fresh: bool
    schemas: Mapping[str, pa.Schema]
    parts: Mapping[str, Sequence[PartitionRows]]

    @property
    def labels(self) -> list[str]:
        """Labels of its partitions."""
        return list(dict.fromkeys(part.label for parts in self.parts.values() for part in parts))

    @property
    def nbytes(self) -> int:
        """Size of the rows in memory."""
        return sum(part.table.nbytes for parts in self.parts.values() for part in parts)


def prepare(request: WriteRequest, element: InputPartition) -> PreparedRows:
    """Check, sort and split the rows of one element."""
    tables = {table: _sorted(request, table, rows) for table, rows in _given(request, element).items()}
    for table, rows in tables.items():
        check_table_name(table, request.uuid)
        check_partition_columns(request, table, rows.schema)
        request.serializer.check(pa.schema([f for f in rows.schema if f.name not in request.partition_on]))
    _check_indexed(request, element)
    parts = {t: split_rows(rows, request.partition_on, _base_label(request, element), request.uuid) for t, rows in tables.items()}
    _check_keys(request, parts)
    schemas = {t: ordered(dataset_schema(rows.schema, request.partition_on), request.partition_on) for t, rows in tables.items()}
    return PreparedRows(element.label, element.fresh, schemas, _balanced(parts, tables, request.partition_on))


def _given(request: WriteRequest, element: InputPartition) -> dict[str, pa.Table]:
    missing = [table for table, rows in element.tables.items() if rows is None]
    if missing:
        raise InvalidInput(f"The tables {missing} of an element for dataset {request.uuid!r} have no rows: give a frame, perhaps one without rows.")
    return {table: rows for table, rows in element.tables.items() if rows is not None}


def _base_label(request: WriteRequest, element: InputPartition) -> str:
    if not element.fresh and request.partition_on and ("=" in element.label or "/" in element.label):
        raise InvalidInput(
            f"Incompatible partitioning encountered: the label {element.label!r} looks as if it had partition values already ('=' or '/'), "
            f"and dataset {request.uuid!r} is partitioned on {list(request.partition_on)}. Leave them to the rows."
        )
    return element.label


def _sorted(request: WriteRequest, table: str, rows: pa.Table) -> pa.Table:
    missing = sorted(set(request.sort_columns) - set(rows.column_names))
    if missing:
        raise UnknownColumn(f"sort_partitions_by: table {table!r} of dataset {request.uuid!r} has no columns {missing}, only {rows.column_names}.")
    nested = [c for c in request.sort_columns if pa.types.is_nested(rows.schema.field(c).type)]
    if nested:
        raise Unsupported(f"sort_partitions_by: the columns {nested} of dataset {request.uuid!r} hold lists or structs, which have no order.")
    order = stable_order(pack_one(rows, request.sort_columns)) if request.sort_columns else None
    return rows if order is None else rows.take(pa.array(order))


def check_partition_columns(request: WriteRequest, table: str, schema: pa.Schema) -> None:
    """Refuse tables that cannot be partitioned as the dataset is."""
    missing = [c for c in request.partition_on if c not in schema.names]
    if missing:
        raise InvalidInput(f"Partition column(s) missing: {', '.join(missing)} (table {table!r} of dataset {request.uuid!r}, which has {schema.names}).")
    if request.partition_on and set(schema.names) == set(request.partition_on):
        raise InvalidInput(f"No data left to save outside partition columns {list(request.partition_on)} in table {table!r} of dataset {request.uuid!r}.")
    check_partition_types(schema, request.partition_on, request.uuid)


def _check_indexed(request: WriteRequest, element: InputPartition) -> None:
    fields = [f for rows in element.tables.values() if rows is not None for f in rows.schema]
    names = {f.name for f in fields}
    for given in fields:
        if given.name in request.index_columns and not pa.types.is_null(given.type):
            index_type(given.type, given.name, request.uuid)
    for column in request.index_columns:
        if column not in names:
            raise InvalidRequest(
                f"Column `{column}` could not be found in the partition `{element.label}` with tables {list(element.tables)}: "
                f"dataset {request.uuid!r} has a secondary index on it. The rows have {sorted(names)}."
            )
    surplus = sorted(set(element.indexed) - set(request.index_columns))
    if surplus:
        raise InvalidInput(
            f"Incorrect indices provided for dataset {request.uuid!r}: an element has indices on {surplus}, but the dataset on {request.index_columns}."
        )


def _check_keys(request: WriteRequest, parts: Mapping[str, Sequence[PartitionRows]]) -> None:
    for table, pieces in parts.items():
        for part in pieces:
            try:
                check_key(data_key(request.uuid, table, part.label, request.serializer.file_suffix))
            except InvalidInput as error:
                what = f"the partition values {dict(part.values)} make" if part.values else "the label makes"
                raise InvalidInput(f"Dataset {request.uuid!r}: {what} no valid key. {error}") from None


def _balanced(parts: Mapping[str, Sequence[PartitionRows]], tables: Mapping[str, pa.Table], partition_on: Sequence[str]) -> dict[str, list[PartitionRows]]:
    """Every partition with every table: where one has no rows for it, a part without rows."""
    labels = {part.label: part.values for pieces in parts.values() for part in pieces}
    full = {}
    for table, pieces in parts.items():
        empty = tables[table].drop_columns(list(partition_on)).slice(0, 0)
        known = {part.label: part for part in pieces}
        full[table] = [known.get(label) or PartitionRows(values, label, empty) for label, values in labels.items()]
    return full


@dataclass(slots=True)
class Schemas:
    """The schemas and indices of a write, as they grow with each element; tells what does not fit before it is stored."""

    request: WriteRequest
    tables: dict[str, pa.Schema] = field(default_factory=dict)

    def prepared(self, elements: Iterable[InputPartition]) -> Iterator[PreparedRows]:
        """The elements, prepared, each compared with those before and with the dataset.

        The indices of a new dataset are those that were asked for, and those that any element brings.
        """
        for element in elements:
            if self.request.start is None and not set(element.indexed) <= set(self.request.index_columns):
                indexed = dict.fromkeys([*self.request.index_columns, *element.indexed])
                self.request = replace(self.request, index_columns=tuple(indexed))
            ready = prepare(self.request, element)
            self.add(ready.schemas)
            yield ready

    def add(self, schemas: Mapping[str, pa.Schema]) -> None:
        """Compare the schemas of one more partition with what is known, and keep what they add."""
        known = self.tables or (dict(self.request.start.schemas) if self.request.start is not None else {})
        if known and set(known) != set(schemas):
            raise InvalidInput(f"Input partitions for update have different tables than dataset {self.request.uuid!r}: {sorted(schemas)}, not {sorted(known)}.")
        self.tables = {table: self._merged(table, known.get(table), schema) for table, schema in schemas.items()}
        check_shared_columns(self.tables, self.request.uuid)

    def _merged(self, table: str, known: pa.Schema | None, schema: pa.Schema) -> pa.Schema:
        if known is None or known.equals(schema):
            return schema
        if self.request.add_columns:
            known, schema = self._padded(table, known, schema)
        return ordered(self._unified(table, known, schema), self.request.partition_on)

    def _unified(self, table: str, known: pa.Schema, schema: pa.Schema) -> pa.Schema:
        try:
            return unify([known, schema], f"table {table!r} of dataset {self.request.uuid!r}")
        except InvalidInput as error:
            if self.request.start is None or not set(known.names) < set(schema.names):
                raise
            raise InvalidInput(f"{error} To add new columns, say add_columns=True in the update.") from None

    def _padded(self, table: str, known: pa.Schema, schema: pa.Schema) -> tuple[pa.Schema, pa.Schema]:
        """Both with the columns that are added: not every element needs to have them."""
        old = self.request.start.schemas.get(table, known).names if self.request.start is not None else known.names
        wider = pa.schema([*known, *(f for f in schema if f.name not in known.names)])
        return wider, pa.schema([*schema, *(f for f in known if f.name not in schema.names and f.name not in old)])


def check_final(request: WriteRequest, schemas: Mapping[str, pa.Schema]) -> None:
    """What can be said when all rows have been seen: whether the indices can be built."""
    known = {**(dict(request.start.schemas) if request.start is not None else {}), **schemas}
    if known:
        for key in check_index_columns(known, request.index_columns, request.partition_on, request.uuid):
            check_key(key)
