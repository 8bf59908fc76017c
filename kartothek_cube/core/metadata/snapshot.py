"""A dataset at one moment: document, schemas, partition values, loaded indices, version token.

In order:

- schemas as bytes: ``_common_metadata``, and inside a document
- columns of a cube in user metadata
- the snapshot
"""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt
import zstandard
from msgspec import Struct, field
from msgspec.structs import replace

from kartothek_cube.core.arrow.bounds import has_bounds
from kartothek_cube.core.arrow.keys import IntArray, pack_one
from kartothek_cube.core.arrow.types import normal_schema, stored_schema
from kartothek_cube.core.expressions.predicates import MANY, Clause, can_be_searched, matching_all, matching_ranges
from kartothek_cube.core.metadata.commit_log import Commit, CubeMark, chain_of, is_foreign
from kartothek_cube.core.metadata.document import (
    Document,
    PartitionColumns,
    decompress,
    empty_partitions,
    partition_table,
    partition_type,
)
from kartothek_cube.core.metadata.index import SecondaryIndex
from kartothek_cube.core.metadata.naming import SINGLE_TABLE
from kartothek_cube.core.metadata.statistics import STATISTICS_KEY
from kartothek_cube.errors import CorruptDocument, UnknownColumn


def common_metadata_bytes(schema: pa.Schema) -> bytes:
    """The schema file of a table, as kartothek 5.3 and plateau 4.6 can read and update it."""
    normal = normal_schema(schema)
    described = normal.with_metadata({b"pandas": json.dumps(_pandas_entry(normal), sort_keys=True).encode()})
    sink = io.BytesIO()
    # kartothek compares the children of lists by name, and writes the name that is not compliant.
    pq.write_metadata(described, sink, version="2.6", coerce_timestamps="us", use_compliant_nested_type=False)
    return sink.getvalue()


def _pandas_entry(schema: pa.Schema) -> dict[str, Any]:
    columns = []
    for one in schema:
        pandas_type, numpy_type, metadata = pandas_types(one.type)
        entry = {"field_name": one.name, "metadata": metadata, "name": one.name}
        columns.append({**entry, "numpy_type": numpy_type, "pandas_type": pandas_type})
    header = {
        "field_name": None,
        "metadata": {"encoding": "UTF-8"},
        "name": None,
        "numpy_type": "object",
        "pandas_type": "unicode",
    }
    return {
        "column_indexes": [header],
        "columns": columns,
        "creator": {"library": "pyarrow", "version": pa.__version__},
        "index_columns": [{"kind": "range", "name": None, "start": 0, "step": 1, "stop": 0}],
        "pandas_version": "1.5.3",
    }


_FIXED = {
    pa.int64(): ("int64", "int64"),
    pa.uint64(): ("uint64", "uint64"),
    pa.float64(): ("float64", "float64"),
    pa.bool_(): ("bool", "bool"),
    pa.string(): ("unicode", "object"),
    pa.binary(): ("bytes", "object"),
    pa.date32(): ("date", "object"),
    pa.null(): ("empty", "object"),
    pa.time64("us"): ("time", "object"),
    pa.duration("ns"): ("object", "timedelta64[ns]"),
}


def pandas_types(data_type: pa.DataType) -> tuple[str, str, dict[str, Any] | None]:
    """The pandas type, NumPy type and metadata of a column in the ``pandas`` entry of a schema.

    The type has to be in normal form.
    """
    if data_type in _FIXED:
        return (*_FIXED[data_type], None)
    if pt.is_timestamp(data_type):
        if data_type.tz is None:
            return "datetime", "datetime64[ns]", None
        return "datetimetz", "datetime64[ns]", {"timezone": data_type.tz}
    if pt.is_decimal(data_type):
        return "decimal", "object", {"precision": data_type.precision, "scale": data_type.scale}
    if pt.is_list(data_type):
        return f"list[{pandas_types(data_type.value_type)[0]}]", "object", None
    return "object", "object", None


def parse_common_metadata(data: bytes, context: str) -> pa.Schema:
    """The schema of a table from its schema file, in stored types (plain strings, microseconds)."""
    try:
        # Some writers keep the row labels of pandas, which are no columns of the table.
        fields = [f for f in pq.read_schema(pa.BufferReader(data)) if not f.name.startswith("__index_level_")]
        schema = _distinct(pa.schema(fields))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptDocument(f"The schema file {context} cannot be read: {error}") from error
    return stored_schema(schema, f" in {context}")


def _distinct(schema: pa.Schema) -> pa.Schema:
    if len({*schema.names}) != len(schema.names):
        raise ValueError(f"its columns do not have different names: {schema.names}")
    return schema


def is_plain(data: bytes) -> bool:
    """Whether a schema file has the types that kartothek reads."""
    # plateau leaves large strings, and lists of ``element``.
    raw = pq.read_schema(pa.BufferReader(data))
    plain = normal_schema(stored_schema(raw))
    return all(_spelled(f.type) == _spelled(plain.field(f.name).type) for f in raw)


def _spelled(data_type: pa.DataType) -> str:
    """A type as text, without the names that Parquet gives to the entries of a map."""
    return re.sub(r" \('[^']*'\)", "", str(data_type))


def embedded_schemas(schemas: Mapping[str, pa.Schema]) -> str:
    """The schemas of all tables as text: JSON of base64 of compressed Arrow IPC."""
    packed = {
        table: base64.b64encode(zstandard.compress(bytes(schema.serialize()))).decode()
        for table, schema in schemas.items()
    }
    return json.dumps(packed)


def parse_embedded_schemas(text: str, context: str) -> dict[str, pa.Schema]:
    """The reverse of `embedded_schemas`."""
    try:
        return {
            table: _distinct(pa.ipc.read_schema(pa.BufferReader(decompress(base64.b64decode(packed)))))
            for table, packed in json.loads(text).items()
        }
    except Exception as error:
        raise CorruptDocument(f"The schema inside the document {context} cannot be read: {error}") from error


# --- columns of a cube in user metadata -----------------------------------------------------------


KTK_CUBE_METADATA_KEY_IS_SEED: Final = "ktk_cube_is_seed"
KTK_CUBE_METADATA_DIMENSION_COLUMNS: Final = "ktk_cube_dimension_columns"
KTK_CUBE_METADATA_PARTITION_COLUMNS: Final = "ktk_cube_partition_columns"

# Written by kartothek's predecessor: read, never written.
LEGACY_IS_SEED: Final = "klee_is_seed"
LEGACY_DIMENSION_COLUMNS: Final = "klee_dimension_columns"
LEGACY_PARTITION_COLUMNS: Final = "klee_partition_columns"


class CubeColumns(NamedTuple):
    """The dimension and partition columns of a cube."""

    dimensions: Sequence[str]
    partitions: Sequence[str]

    def cell_columns(self, names: Sequence[str]) -> tuple[str, ...]:
        """Those of these columns that address a cell, dimensions first."""
        return tuple(c for c in (*self.dimensions, *self.partitions) if c in names)


def cube_columns(metadata: Mapping[str, object]) -> CubeColumns | None:
    """The columns of the cube that a dataset belongs to; None if it belongs to none."""

    def columns(*keys: str) -> Sequence[str] | None:
        entries = (metadata.get(key) for key in keys)
        return next((entry for entry in entries if isinstance(entry, list)), None)

    dimensions = columns(KTK_CUBE_METADATA_DIMENSION_COLUMNS, LEGACY_DIMENSION_COLUMNS)
    partitions = columns(KTK_CUBE_METADATA_PARTITION_COLUMNS, LEGACY_PARTITION_COLUMNS)
    return None if dimensions is None else CubeColumns(dimensions, partitions or ())


def is_seed_dataset(metadata: Mapping[str, object]) -> bool:
    """Whether a dataset is the seed of its cube."""
    return any(metadata.get(key) is True for key in (KTK_CUBE_METADATA_KEY_IS_SEED, LEGACY_IS_SEED))


# --- the snapshot ---------------------------------------------------------------------------------


class CommitResult(Struct, frozen=True):
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


class PendingWrite(Struct, frozen=True):
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


class Snapshot(Struct, frozen=True):
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
    undecided : PendingWrite | None
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
    undecided: PendingWrite | None = None

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
