"""What was read of a dataset at one moment: document, schemas, typed partition values, indices loaded so far, version token."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from kartothek_cube.core.evaluate import matching_all
from kartothek_cube.core.index import SecondaryIndex
from kartothek_cube.core.metadata.chain import Commit, chain_of, is_foreign
from kartothek_cube.core.metadata.document import Document
from kartothek_cube.core.metadata.partition_values import partition_table, partition_type
from kartothek_cube.core.metadata.partitions import PartitionColumns, empty_partitions
from kartothek_cube.core.naming import SINGLE_TABLE
from kartothek_cube.core.predicates import Clause
from kartothek_cube.core.ranges import MANY, can_be_searched, matching_ranges
from kartothek_cube.core.rowkeys import IntArray, pack_one
from kartothek_cube.errors import UnknownColumn

__all__ = ["CommitResult", "Snapshot", "make_snapshot", "type_of_column", "with_key_types"]


@dataclass(frozen=True, slots=True)
class CommitResult:
    """What became of a commit.

    Attributes
    ----------
    id : str
        The commit, as `history` lists it.
    tries : int
        How often it was put before it landed; more than 1 where others came first.
    reapplied : bool
        Whether others had changed what it removes or replaces, so that it landed only because of ``on_conflict="reapply"``.
    skipped : bool
        Whether nothing was written, as the dataset had the number of its ``txn`` or a later one already. ``id`` is in no history then.
    """

    id: str
    tries: int
    reapplied: bool = False
    skipped: bool = False


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
        Labels and file keys; also of an implicit dataset, whose files were found by listing.
    values : pyarrow.Table
        One typed column per partition key, row *i* belongs to label *i*.
    indices : Mapping[str, SecondaryIndex]
        The secondary indices that were loaded whole.
    result : CommitResult | None
        Of the commit that returned this snapshot.
    lost : frozenset of str
        Columns of secondary indices whose files an older snapshot does not have any more. They are made anew where one cannot do without.
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

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables."""
        return tuple(self.schemas)

    @property
    def schema(self) -> pa.Schema:
        """The schema of the only table."""
        return self.schemas[SINGLE_TABLE] if SINGLE_TABLE in self.schemas else next(iter(self.schemas.values()), pa.schema([]))

    @property
    def files(self) -> pa.Array:
        """File keys of the only table."""
        files = self.partitions.files
        return files[SINGLE_TABLE] if SINGLE_TABLE in files else next(iter(files.values()), pa.array([], type=pa.string()))

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
        """The encoding of the document."""
        return self.key.endswith(".zstd")

    @property
    def chain(self) -> tuple[Commit, ...]:
        """The commits that the document still names, oldest first."""
        return chain_of(self.document.metadata)

    @property
    def has_foreign_commit(self) -> bool:
        """Whether a writer that knows no chain came last."""
        return is_foreign(self.document.metadata, self.document.partitions)

    def physical_partitions(self, columns: Sequence[str] | None = None) -> IntArray:
        """A number for each stored partition, equal if the values of these partition keys are (default: of all of them)."""
        keys = [c for c in (self.partition_keys if columns is None else columns) if c in self.values.column_names]
        if not keys or not len(self.partitions):
            return np.zeros(len(self.partitions), dtype=np.int64)
        return np.unique(pack_one(self.values, keys), return_inverse=True)[1].ravel().astype(np.int64)

    def labels_with(self, column: str, clauses: Sequence[Clause]) -> IntArray:
        """Positions of the partitions whose value of a partition key satisfies all comparisons, ascending."""
        values = self.values.column(column)
        if len(values) <= MANY or not can_be_searched(clauses):
            return np.flatnonzero(matching_all(values, clauses))
        positions, ascending = self.partitions.derived(("ascending", column), self.values, lambda: _ascending(values))
        found = [positions[low:high] for low, high in matching_ranges(ascending, clauses)]
        return np.sort(np.concatenate(found)) if found else np.zeros(0, dtype=np.int64)

    def with_indices(self, indices: Mapping[str, SecondaryIndex]) -> Snapshot:
        """The same with more indices loaded."""
        return replace(self, indices={**self.indices, **indices})


def _ascending(values: pa.ChunkedArray) -> tuple[IntArray, pa.Array]:
    """Positions of the values that are neither null nor NaN, in their order, and these values."""
    known = np.flatnonzero(~pc.is_null(values, nan_is_null=pt.is_floating(values.type)).to_numpy())
    positions = known[pc.sort_indices(values.take(pa.array(known))).to_numpy()]
    return positions, pa.concat_arrays(values.take(pa.array(positions)).chunks)


def type_of_column(schemas: Mapping[str, pa.Schema], column: str, uuid: str) -> pa.DataType:
    """Type of a column in whichever table has it; a table in which it is null throughout does not say."""
    kinds = [schema.field(column).type for schema in schemas.values() if column in schema.names]
    if not kinds:
        names = sorted({name for schema in schemas.values() for name in schema.names})
        raise UnknownColumn(f"Dataset {uuid!r} has no column {column!r}. It has {names}.")
    return next((kind for kind in kinds if not pt.is_null(kind)), kinds[0])


def with_key_types(schemas: Mapping[str, pa.Schema], keys: Sequence[str], uuid: str) -> dict[str, pa.Schema]:
    """The schemas with one type for each partition key: a table whose first rows were none may not know it, but all tables have the same partitions."""
    unknown = {f.name for s in schemas.values() for f in s if f.name in keys and pt.is_null(f.type)}
    types = {key: type_of_column(schemas, key, uuid) for key in unknown}
    return {t: pa.schema([pa.field(f.name, types.get(f.name, f.type)) for f in s]) if unknown & {*s.names} else s for t, s in schemas.items()}


def make_snapshot(
    document: Document,
    key: str,
    token: Hashable,
    schemas: Mapping[str, pa.Schema],
    partitions: PartitionColumns | None = None,
    known: pa.Table | None = None,
) -> Snapshot:
    """Decode the partition values of a document and put everything together. ``known``: the values of the first partitions, as they were before."""
    columns = partitions or document.partitions or empty_partitions()
    keys = document.partition_keys or ()
    schemas = with_key_types(schemas, keys, document.uuid)
    any_schema = next(iter(schemas.values()), pa.schema([]))
    # A partition may lack some of the tables.
    files = pc.coalesce(*columns.files.values()) if columns.files else pa.nulls(len(columns), pa.string())
    return Snapshot(document.uuid, key, token, document, schemas, keys, columns, _values(files, keys, any_schema, document.uuid, known))


def _values(files: pa.Array, keys: tuple[str, ...], schema: pa.Schema, uuid: str, known: pa.Table | None) -> pa.Table:
    expected = _no_values(keys, schema)
    if known is None or not keys or not known.schema.equals(expected.schema):
        return partition_table(files, keys, schema, uuid) if len(files) else expected
    new = files.slice(known.num_rows)
    return pa.concat_tables([known, partition_table(new, keys, schema, uuid)]).combine_chunks() if len(new) else known


def _no_values(keys: tuple[str, ...], schema: pa.Schema) -> pa.Table:
    types: Any = {k: partition_type(schema.field(k).type) if k in schema.names else pa.string() for k in keys}
    return pa.schema(types).empty_table() if types else pa.table({})
