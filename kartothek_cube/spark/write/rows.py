"""How a task checks and stages the rows of a dataset, in memory or as a stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from kartothek_cube.core.arrow.keys import pack_one
from kartothek_cube.core.arrow.types import ordered
from kartothek_cube.core.commit.dataset_write import stage_prepared
from kartothek_cube.core.metadata.naming import new_id
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.write.input_rows import InputPartition
from kartothek_cube.core.write.prepare import Schemas, WriteRequest, check_final, prepare
from kartothek_cube.core.write.stage import PartitionRows, Receipt, StageRequest, dataset_schema
from kartothek_cube.cube.write.plan import DatasetWrite, check_no_null_cells, check_repeated, prepare_parts
from kartothek_cube.cube.write.stage import stage_table

__all__ = ["CubeRows", "DatasetRows", "Rows", "checked_schemas", "full_schema", "stored_schema"]


class Rows(Protocol):
    """How the rows of one dataset are checked and staged; a small picklable value."""

    @property
    def id(self) -> str:
        """The dataset of the receipts."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows, with their stored types."""

    @property
    def request(self) -> StageRequest:
        """How files are staged."""

    @property
    def sort_columns(self) -> tuple[str, ...]:
        """The sort order of the rows of a file."""

    @property
    def hashed(self) -> tuple[str, ...]:
        """The columns that are hashed to the bucket of a row, by default."""

    def staged(self, store: Store, table: pa.Table) -> list[Receipt]:
        """Check, sort, split and stage rows in memory."""

    def part(self, first: pa.Table) -> PartitionRows:
        """The physical partition of rows that share one, without the rows."""

    def checked(self, pieces: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Rows of one physical partition, in the order of the file, checked as a stream."""


def checked_schemas(request: WriteRequest, table: str, columns: pa.Schema) -> Schemas:
    """The schemas of a dataset with rows of these columns.

    Raises
    ------
    InvalidInput, InvalidType, Unsupported
        What the eager verb raises for rows of these types.
    """
    schemas = Schemas(request)
    # By preparing no rows as the eager verb would.
    schemas.add(prepare(request, InputPartition(new_id(), {table: columns.empty_table()})).schemas)
    check_final(request, schemas.tables)
    return schemas


def full_schema(rows: Rows) -> pa.Schema:
    """The schema of the dataset."""
    return ordered(dataset_schema(rows.schema, rows.request.partition_on), rows.request.partition_on)


def stored_schema(rows: Rows) -> pa.Schema:
    """The columns in the dataset's files."""
    return pa.schema([f for f in rows.schema if f.name not in rows.request.partition_on])


@dataclass(frozen=True, slots=True)
class CubeRows:
    """Rows of a dataset of a cube, without nulls in keys and without duplicate cells."""

    write: DatasetWrite

    @property
    def id(self) -> str:
        return self.write.id

    @property
    def schema(self) -> pa.Schema:
        return self.write.schema

    @property
    def request(self) -> StageRequest:
        return self.write.request

    @property
    def sort_columns(self) -> tuple[str, ...]:
        return self.write.sort_columns

    @property
    def hashed(self) -> tuple[str, ...]:
        return self.write.dimensions

    def staged(self, store: Store, table: pa.Table) -> list[Receipt]:
        return stage_table(store, self.write, table)

    def part(self, first: pa.Table) -> PartitionRows:
        return prepare_parts(self.write, first, new_id())[0]

    def checked(self, pieces: Iterable[pa.Table]) -> Iterator[pa.Table]:
        last: pa.Table | None = None
        for piece in pieces:
            check_no_null_cells(self.write, piece)
            # Duplicates may span two pieces.
            rows = piece if last is None else pa.concat_tables([last, piece])
            keys = pack_one(rows, self.sort_columns)
            check_repeated(self.write, rows, keys)
            last = piece.slice(piece.num_rows - 1)
            yield piece


@dataclass(frozen=True, slots=True)
class DatasetRows:
    """Rows of one table of a dataset.

    ``write`` has no base: a base grows with the partitions of the dataset, and this value travels
    to every task.
    """

    write: WriteRequest
    table: str
    schema: pa.Schema

    @property
    def id(self) -> str:
        return self.write.uuid

    @property
    def request(self) -> StageRequest:
        return self.write.stage_request(self.table, fresh=True)

    @property
    def sort_columns(self) -> tuple[str, ...]:
        return self.write.sort_columns

    @property
    def hashed(self) -> tuple[str, ...]:
        return tuple(self.schema.names)

    def staged(self, store: Store, table: pa.Table) -> list[Receipt]:
        return stage_prepared(store, self.write, prepare(self.write, InputPartition(new_id(), {self.table: table})))

    def part(self, first: pa.Table) -> PartitionRows:
        return prepare(self.write, InputPartition(new_id(), {self.table: first})).parts[self.table][0]

    def checked(self, pieces: Iterable[pa.Table]) -> Iterator[pa.Table]:
        return iter(pieces)
