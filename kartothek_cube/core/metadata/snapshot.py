"""A dataset at one moment: document, schemas, partition values, loaded indices, version token."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from kartothek_cube.core.arrow.bounds import has_bounds
from kartothek_cube.core.arrow.keys import IntArray, pack_one
from kartothek_cube.core.expressions.predicates import MANY, Clause, can_be_searched, matching_all, matching_ranges
from kartothek_cube.core.metadata.commit_log import Commit, chain_of, is_foreign
from kartothek_cube.core.metadata.cube_writes import CubeMark
from kartothek_cube.core.metadata.document import Document
from kartothek_cube.core.metadata.file_statistics import STATISTICS_KEY
from kartothek_cube.core.metadata.index import SecondaryIndex
from kartothek_cube.core.metadata.naming import SINGLE_TABLE
from kartothek_cube.core.metadata.partition_values import partition_table, partition_type
from kartothek_cube.core.metadata.partitions import PartitionColumns, empty_partitions
from kartothek_cube.errors import UnknownColumn

__all__ = ["CommitResult", "Snapshot", "Undecided", "make_snapshot", "type_of_column", "with_key_types"]


@dataclass(frozen=True, slots=True)
class CommitResult:
    """The outcome of a commit.

    Attributes
    ----------
    id : str
        The commit, as `history` lists it.
    tries : int
        The number of attempts; more than 1 if other commits came first.
    reapplied : bool
        Whether only ``on_conflict="reapply"`` let it pass: another commit had changed what this one
        removes or replaces.
    skipped : bool
        Whether nothing was written, because the dataset had the number of its ``txn`` or a later
        one. Then ``id`` is in no history.
    """

    id: str
    tries: int
    reapplied: bool = False
    skipped: bool = False


@dataclass(frozen=True, slots=True)
class Undecided:
    """A commit that a document has and readers do not see: its write to a cube has not committed.

    Attributes
    ----------
    mark : CubeMark
        The mark of the write.
    document : Document
        The document as it is stored, with the commit.
    is_aborted : bool
        Whether the write will never commit.
    """

    mark: CubeMark
    document: Document
    is_aborted: bool


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A dataset at one moment.

    Attributes
    ----------
    uuid : str
        The dataset.
    key : str
        Key of the document that was read.
    token : Hashable
        The store's version token of the document.
    document : Document
        The document.
    schemas : Mapping[str, pyarrow.Schema]
        Table → its columns in stored types, partition keys first, then by name.
    partition_keys : tuple of str
        Columns in the paths of the files, in order.
    partitions : PartitionColumns
        Labels and file keys; those of an implicit dataset were found by listing the store.
    values : pyarrow.Table
        One typed column per partition key, row *i* belongs to label *i*.
    indices : Mapping[str, SecondaryIndex]
        The secondary indices that were loaded whole.
    result : CommitResult | None
        The outcome of the commit that returned this snapshot.
    lost : frozenset of str
        In an older snapshot, columns of secondary indices whose files were deleted since. They are
        rebuilt where they are required.
    past_commit : str | None
        In an older snapshot, its commit.
    undecided : Undecided | None
        A commit to which this is the state before, although the document with this token has it.
    """

    uuid: str
    key: str
    token: Hashable
    document: Document
    schemas: Mapping[str, pa.Schema]
    partition_keys: tuple[str, ...]
    partitions: PartitionColumns
    values: pa.Table
    indices: Mapping[str, SecondaryIndex] = field(default_factory=dict)
    result: CommitResult | None = None
    lost: frozenset[str] = frozenset()
    past_commit: str | None = None
    undecided: Undecided | None = None

    @property
    def commit(self) -> str | None:
        """The id of its last commit; None after a writer that does not know commit ids."""
        if self.past_commit is not None:
            return self.past_commit

        def last() -> str | None:
            return None if self.has_foreign_commit else self.chain[-1].id

        return self.partitions.derived("commit", self.document, last)

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables."""
        return tuple(self.schemas)

    @property
    def schema(self) -> pa.Schema:
        """The schema of the only table."""
        first = next(iter(self.schemas.values()), pa.schema([]))
        return self.schemas.get(SINGLE_TABLE, first)

    @property
    def files(self) -> pa.Array:
        """File keys of the only table."""
        files = self.partitions.files
        first = next(iter(files.values()), pa.array([], type=pa.string()))
        return files.get(SINGLE_TABLE, first)

    @property
    def secondary_columns(self) -> frozenset[str]:
        """Columns with a secondary index."""
        return frozenset(self.document.indices)

    @property
    def pruning_columns(self) -> frozenset[str]:
        """Columns with a secondary index that is cheaper to read than the files."""
        return self.secondary_columns - (self.lost - self.indices.keys())

    @property
    def indexed_columns(self) -> frozenset[str]:
        """Columns with a partition index or a secondary index."""
        return self.secondary_columns | frozenset(self.partition_keys)

    @property
    def is_msgpack(self) -> bool:
        """Whether the document is encoded as msgpack, not JSON."""
        return self.key.endswith(".zstd")

    @property
    def chain(self) -> tuple[Commit, ...]:
        """The newest commits, as far as the document names them, oldest first."""
        return chain_of(self.document.metadata)

    @property
    def has_foreign_commit(self) -> bool:
        """Whether the last writer does not know commit ids."""
        return is_foreign(self.document.metadata, self.document.partitions)

    def is_same_state(self, other: Snapshot) -> bool:
        """Whether another snapshot certainly has the same files."""
        # A dataset whose document lists no partitions changes without its document.
        is_listed = self.document.partitions is not None
        return is_listed and self.uuid == other.uuid and self.token is not None and self.token == other.token

    def physical_partitions(self, columns: Sequence[str] | None = None) -> IntArray:
        """A number per partition, equal for equal values of these partition keys (default: all)."""
        keys = [c for c in (self.partition_keys if columns is None else columns) if c in self.values.column_names]
        if not keys or not len(self.partitions):
            return np.zeros(len(self.partitions), dtype=np.int64)
        return np.unique(pack_one(self.values, keys), return_inverse=True)[1].ravel().astype(np.int64)

    def labels_with(self, column: str, clauses: Sequence[Clause]) -> IntArray:
        """Positions of the partitions whose partition key satisfies all clauses, ascending."""
        values = self.values.column(column)
        if len(values) <= MANY or not can_be_searched(clauses):
            return np.flatnonzero(matching_all(values, clauses))
        # Sorted once, for all queries of this snapshot and of those that share its partitions.
        positions, ascending = self.partitions.derived(("ascending", column), self.values, lambda: _ascending(values))
        ranges = [positions[low:high] for low, high in matching_ranges(ascending, clauses)]
        return np.sort(np.concatenate(ranges)) if ranges else np.zeros(0, dtype=np.int64)

    def columns_with_statistics(self, columns: Iterable[str]) -> list[str]:
        """Those of some columns, ascending, of which only statistics may exclude files."""
        if STATISTICS_KEY not in self.document.metadata:
            return []
        types = {f.name: f.type for schema in self.schemas.values() for f in schema}
        others = {*columns} - {*self.partition_keys} - self.pruning_columns
        return sorted(c for c in others if c in types and has_bounds(types[c]))

    def with_indices(self, indices: Mapping[str, SecondaryIndex]) -> Snapshot:
        """The same with more indices loaded."""
        return replace(self, indices={**self.indices, **indices})


def _ascending(values: pa.ChunkedArray) -> tuple[IntArray, pa.Array]:
    """The values that are neither null nor NaN, ascending: their positions, and the values."""
    valid = np.flatnonzero(~pc.is_null(values, nan_is_null=pt.is_floating(values.type)).to_numpy())
    positions = valid[pc.sort_indices(values.take(pa.array(valid))).to_numpy()]
    return positions, pa.concat_arrays(values.take(pa.array(positions)).chunks)


def type_of_column(schemas: Mapping[str, pa.Schema], column: str, uuid: str) -> pa.DataType:
    """Type of a column in the first table in which it is not null throughout."""
    types = [schema.field(column).type for schema in schemas.values() if column in schema.names]
    if not types:
        names = sorted({name for schema in schemas.values() for name in schema.names})
        raise UnknownColumn(f"Dataset {uuid!r} has no column {column!r}. It has {names}.")
    return next((data_type for data_type in types if not pt.is_null(data_type)), types[0])


def with_key_types(schemas: Mapping[str, pa.Schema], keys: Sequence[str], uuid: str) -> dict[str, pa.Schema]:
    """The schemas with one type for each partition key."""
    # A table that began without rows may not have the type; but all tables have the same
    # partitions.
    unknown = {f.name for s in schemas.values() for f in s if f.name in keys and pt.is_null(f.type)}
    types = {key: type_of_column(schemas, key, uuid) for key in unknown}
    return {
        t: pa.schema([pa.field(f.name, types.get(f.name, f.type)) for f in s]) if unknown & {*s.names} else s
        for t, s in schemas.items()
    }


def make_snapshot(
    document: Document,
    key: str,
    token: Hashable,
    schemas: Mapping[str, pa.Schema],
    partitions: PartitionColumns | None = None,
    decoded: pa.Table | None = None,
) -> Snapshot:
    """Make a snapshot; partition values are decoded from the file keys.

    Parameters
    ----------
    document, key, token, schemas
        As in `Snapshot`.
    partitions : PartitionColumns, optional
        The partitions of an implicit dataset; by default, those of the document.
    decoded : pyarrow.Table, optional
        Values of the first partitions, which are not decoded again.
    """
    columns = partitions or document.partitions or empty_partitions()
    keys = document.partition_keys or ()
    schemas = with_key_types(schemas, keys, document.uuid)
    any_schema = next(iter(schemas.values()), pa.schema([]))
    # A partition may lack some of the tables.
    files = pc.coalesce(*columns.files.values()) if columns.files else pa.nulls(len(columns), pa.string())
    types: Any = {k: partition_type(any_schema.field(k).type) if k in any_schema.names else pa.string() for k in keys}
    values = pa.schema(types).empty_table() if types else pa.table({})
    if decoded is not None and keys and decoded.schema.equals(values.schema):
        values = decoded
    new = files.slice(values.num_rows)
    if len(new):
        added = partition_table(new, keys, any_schema, document.uuid)
        values = pa.concat_tables([values, added]).combine_chunks() if values is decoded else added
    return Snapshot(document.uuid, key, token, document, schemas, keys, columns, values)
