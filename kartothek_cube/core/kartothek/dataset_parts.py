"""The value behind `DatasetMetadata`: document, partitions, schemas, index objects."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from kartothek_cube.core.arrow.types import normal_schema
from kartothek_cube.core.kartothek.index_base import IndexBase
from kartothek_cube.core.kartothek.indices import ExplicitSecondaryIndex, PartitionIndex
from kartothek_cube.core.kartothek.partition import partition_columns
from kartothek_cube.core.kartothek.schema_wrapper import SchemaWrapper
from kartothek_cube.core.metadata.document import (
    Document,
    PartitionColumns,
    document_from_mapping,
    empty_partitions,
    parse_document,
    to_mapping,
)
from kartothek_cube.core.metadata.index import SecondaryIndex, column_index
from kartothek_cube.core.metadata.naming import check_uuid, document_key, schema_key
from kartothek_cube.core.metadata.snapshot import Snapshot, make_snapshot
from kartothek_cube.core.snapshots.loader import load_index, resolve_document, snapshot_of, with_indices
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.stores.open import open_instrumented
from kartothek_cube.errors import CorruptDocument, InvalidInput, InvalidRequest, InvalidType, Unsupported
from kartothek_cube.typing import StoreLike

__all__ = ["VERSION", "DatasetParts"]

VERSION = 4


@dataclass(frozen=True, slots=True)
class DatasetParts:
    """One dataset in one state.

    ``document`` has the metadata as stored; ``indices`` supersedes its indices and also has loaded
    partition indices. ``columns`` are the partitions, from the document or from the store.
    ``schemas`` is empty if not loaded. ``snapshot`` is the snapshot that was read, or None.
    """

    document: Document
    columns: PartitionColumns
    schemas: Mapping[str, SchemaWrapper] = field(default_factory=dict)
    indices: Mapping[str, IndexBase] = field(default_factory=dict)
    snapshot: Snapshot | None = None

    @property
    def partition_keys(self) -> tuple[str, ...]:
        """Partition columns."""
        return self.document.partition_keys or ()

    @property
    def is_explicit(self) -> bool:
        """Whether the document lists the partitions."""
        return self.document.partitions is not None

    @property
    def secondary_indices(self) -> dict[str, ExplicitSecondaryIndex]:
        """The secondary indices."""
        return {c: i for c, i in self.indices.items() if isinstance(i, ExplicitSecondaryIndex)}

    @property
    def has_partition_indices(self) -> bool:
        """Whether the indices of all partition keys are loaded."""
        return set(self.partition_keys) <= set(self.indices)

    def same_as(self, other: DatasetParts) -> bool:
        """Whether two datasets have the same content."""
        if self._compared() != other._compared() or len(self.columns) != len(other.columns):
            return False
        left, right = self.columns, other.columns
        equal = (
            left.labels.equals(right.labels)
            and left.files.keys() == right.files.keys()
            and all(f.equals(right.files[t]) for t, f in left.files.items())
        )
        # Equal columns are the fast case; the dicts compare independent of the order.
        return equal or to_mapping(left) == to_mapping(right)

    def _compared(self) -> tuple[object, ...]:
        document = self.document
        return document.uuid, self.is_explicit, self.partition_keys, document.user_metadata, self.schemas, self.indices


# --- making ---------------------------------------------------------------------------------------


def check_version(uuid: str, version: int) -> None:
    """Raise for any version of the format other than 4."""
    if version != VERSION:
        raise Unsupported(
            f"Metadata version {version!r} of dataset {uuid!r} is not supported; there is only {VERSION}."
        )


def make_parts(
    uuid: str,
    partitions: Mapping[str, Any],
    metadata: Mapping[str, Any],
    indices: Mapping[str, Any],
    explicit: bool,
    partition_keys: str | Sequence[str],
    table_meta: Mapping[str, Any],
) -> DatasetParts:
    """The parts for the constructor of `DatasetMetadata`."""
    for name, given in (("metadata", metadata), ("indices", indices), ("table_meta", table_meta)):
        if not isinstance(given, Mapping):
            raise InvalidType(f"{name} of dataset {uuid!r} should be a dict, but is {type(given).__name__}.")
    columns = partition_columns(partitions, uuid) if partitions else empty_partitions()
    keys = (partition_keys,) if isinstance(partition_keys, str) else tuple(partition_keys)
    # A copy: later changes of the caller's dict must not change the dataset.
    document = Document(uuid, deepcopy(dict(metadata)), keys, indices, columns if explicit else None)
    return _parts(document, columns, _wrapped(table_meta, uuid))


def parts_of_snapshot(snapshot: Snapshot) -> DatasetParts:
    """The parts of a snapshot; of its secondary indices, only those in the document are loaded."""
    schemas = _wrapped({t: normal_schema(s) for t, s in snapshot.schemas.items()}, snapshot.uuid)
    return replace(_parts(snapshot.document, snapshot.partitions, schemas), snapshot=snapshot)


def parts_of_document(document: Document, explicit: bool, table_meta: Mapping[str, Any] | None = None) -> DatasetParts:
    """The parts of a document, without the store."""
    columns = document.partitions or empty_partitions()
    document = replace(document, partition_keys=document.partition_keys or (), partitions=columns if explicit else None)
    return _parts(document, columns, _wrapped(table_meta or {}, document.uuid))


def parts_in_store(document: Document, store: Store, load_schema: bool = True) -> DatasetParts:
    """The parts of a document, with schemas and unlisted partitions from the store."""
    if load_schema:
        return parts_of_snapshot(snapshot_of(store, document, document_key(document.uuid)))
    return _parts(*resolve_document(store, document), {})


def document_of_dict(members: Mapping[str, Any]) -> Document:
    """The document with these members."""
    return _with_valid_uuid(document_from_mapping(members, "given"))


def document_of_buffer(buf: bytes | str, encoding: str) -> Document:
    """Parse a document: bytes, or text in JSON."""
    if encoding not in ("json", "msgpack", "msgpack.zstd"):
        raise InvalidInput(f"Unknown metadata storage format {encoding!r}; there are 'json' and 'msgpack'.")
    if isinstance(buf, str) and encoding == "json":
        buf = buf.encode(errors="surrogatepass")  # the parser refuses half a surrogate pair
    if not isinstance(buf, (bytes, bytearray, memoryview)):
        raise InvalidType(f"A document is bytes, or text in JSON, not {type(buf).__name__} in {encoding}.")
    return _with_valid_uuid(parse_document(bytes(buf), "given" if encoding == "json" else "given.zstd"))


def _with_valid_uuid(document: Document) -> Document:
    check_uuid(document.uuid)
    return document


def _parts(document: Document, columns: PartitionColumns, schemas: Mapping[str, SchemaWrapper]) -> DatasetParts:
    indices = {c: _index_object(c, reference, document, schemas) for c, reference in document.indices.items()}
    if "creation_time" not in document.metadata:
        now = datetime.now(UTC).replace(tzinfo=None).isoformat(timespec="microseconds")
        document = replace(document, metadata={**document.metadata, "creation_time": now})
    return DatasetParts(document, columns, schemas, indices)


def _wrapped(schemas: Mapping[str, Any], uuid: str) -> dict[str, SchemaWrapper]:
    return {t: s if isinstance(s, SchemaWrapper) else SchemaWrapper(s, schema_key(uuid, t)) for t, s in schemas.items()}


def _index_object(
    column: str, reference: object, document: Document, schemas: Mapping[str, SchemaWrapper]
) -> IndexBase:
    """The index of an entry of a document: the key of an index file, or a dict value → labels."""
    if isinstance(reference, IndexBase):
        return reference
    data_type = _type_of(column, schemas)
    if isinstance(reference, str):
        return ExplicitSecondaryIndex(column, index_storage_key=reference, dtype=data_type)
    if not isinstance(reference, Mapping):
        raise InvalidType(
            f"The index on {column!r} of dataset {document.uuid!r} should be an index, a key or a dict, "
            f"but is {type(reference).__name__}."
        )
    index = ExplicitSecondaryIndex(column, reference, dtype=data_type)
    # `to_dict` of a dataset with loaded partition indices embeds them.
    return PartitionIndex.of(index.pairs()) if column in (document.partition_keys or ()) else index


def _type_of(column: str, schemas: Mapping[str, SchemaWrapper]) -> pa.DataType | None:
    """The type of a column, or None if no schema has it."""
    data_types = [s.field(column).type for s in schemas.values() if column in s.names]
    return next((data_type for data_type in data_types if not pa.types.is_null(data_type)), None)


def with_snapshot(parts: DatasetParts) -> tuple[DatasetParts, Snapshot]:
    """The parts with a snapshot, and the snapshot; without a read snapshot, it is built here.

    Raises
    ------
    InvalidRequest
        If the schemas were not loaded.
    """
    if parts.snapshot is not None:
        return parts, parts.snapshot
    typed = {c for schema in parts.schemas.values() for c in schema.names}
    missing = [c for c in parts.partition_keys if c not in typed]
    if missing or not parts.schemas:
        what = f'Cannot find type information for partition column "{missing[0]}"' if missing else "There is no schema"
        raise InvalidRequest(
            f"{what} of dataset {parts.document.uuid!r}. Load the dataset with load_schema=True, or give table_meta."
        )
    secondary = parts.secondary_indices
    document = replace(parts.document, indices={c: _entry(i) for c, i in secondary.items()})
    schemas = {t: s.internal() for t, s in parts.schemas.items()}
    made = make_snapshot(document, document_key(document.uuid), None, schemas, parts.columns)
    made = made.with_indices({c: i.data for c, i in secondary.items() if i.data is not None})
    return replace(parts, snapshot=made), made


# --- loading --------------------------------------------------------------------------------------


def load_secondary_indices(parts: DatasetParts, columns: Sequence[str], store: StoreLike | None) -> DatasetParts:
    """The parts with these indices loaded."""
    secondary = parts.secondary_indices
    missing = [c for c in columns if not secondary[c].loaded]
    if not missing:  # then the store may be None
        return parts
    opened = open_instrumented(store)  # type: ignore[arg-type]  # None is refused here, where a store is needed
    # Without types there is no snapshot: each index takes its type from its file.
    if any(_type_of(c, parts.schemas) is None for c in [*missing, *parts.partition_keys]):
        return _with(parts, {c: _loaded(parts, secondary[c].load(opened).data, secondary[c]) for c in missing})
    parts, snapshot = with_snapshot(parts)
    if snapshot.token is not None:
        snapshot = with_indices(opened, snapshot, missing)
    else:
        # The snapshot was not read: the cache of the store must not take it for a stored state.
        snapshot = snapshot.with_indices({c: load_index(opened, snapshot, c)[0] for c in missing})
    indices = {c: _loaded(parts, snapshot.indices[c], secondary[c]) for c in missing}
    return replace(_with(parts, indices), snapshot=snapshot)


def _loaded(
    parts: DatasetParts, index: SecondaryIndex | None, facade: ExplicitSecondaryIndex
) -> ExplicitSecondaryIndex:
    assert index is not None
    # Without a list of partitions, the index may have partitions whose files are gone.
    if not parts.is_explicit:
        index = index.filter(index.positions(parts.columns.labels) >= 0)
    return ExplicitSecondaryIndex.of(index, facade.index_storage_key)


def load_partition_indices(parts: DatasetParts) -> DatasetParts:
    """The parts with partition indices, which come from the keys of the files.

    Raises
    ------
    InvalidRequest
        If the schemas were not loaded, or the key of a file lacks the partition values.
    """
    if parts.has_partition_indices:
        return parts
    try:
        parts, snapshot = with_snapshot(parts)
    except CorruptDocument as error:
        raise InvalidRequest(f"Unknown file structure encountered. {error}") from error
    labels, values = snapshot.partitions.labels, snapshot.values
    indices = {c: PartitionIndex.of(column_index(c, values.column(c), labels)) for c in parts.partition_keys}
    return _with(parts, indices)


def _with(parts: DatasetParts, indices: Mapping[str, IndexBase]) -> DatasetParts:
    return replace(parts, indices={**parts.indices, **indices})


def loaded_indices(parts: DatasetParts, columns: Collection[str]) -> Mapping[str, IndexBase]:
    """All indices; those on ``columns`` must be loaded. Partition indices are loaded if needed."""
    indices = (load_partition_indices(parts) if set(columns) & set(parts.partition_keys) else parts).indices
    unloaded = sorted(c for c in columns if c in indices and not indices[c].loaded)
    if unloaded:
        raise InvalidRequest(
            f"The indices on {unloaded} of dataset {parts.document.uuid!r} are not loaded. "
            "Call load_all_indices(store) or load_index(column, store) first."
        )
    return indices


def with_loaded(parts: DatasetParts, snapshot: Snapshot) -> DatasetParts:
    """The parts with a snapshot of the same state and its loaded indices."""
    secondary = parts.secondary_indices
    indices = {c: _loaded(parts, i, secondary[c]) for c, i in snapshot.indices.items() if c in secondary}
    return replace(_with(parts, indices), snapshot=snapshot)


# --- writing --------------------------------------------------------------------------------------


def mapping_of(parts: DatasetParts) -> dict[str, Any]:
    """The members of the document, loaded indices as value → labels."""
    document = parts.document
    members: dict[str, Any] = {"dataset_metadata_version": VERSION, "dataset_uuid": document.uuid}
    if parts.indices:
        members["indices"] = {c: _entry(i) for c, i in parts.indices.items()}
    members["metadata"] = deepcopy(dict(document.metadata))
    if parts.is_explicit or len(parts.columns):
        members["partitions"] = to_mapping(parts.columns)
    return members | {"partition_keys": list(parts.partition_keys)}


def document_of(parts: DatasetParts) -> Document:
    """The parts as a document that can be written."""
    entries: dict[str, Any] = {}
    for column, index in parts.indices.items():
        entry = _entry(index)
        if not isinstance(entry, str):
            wrong = next((value for value in entry if not isinstance(value, (str, int, float))), None)
            if wrong is not None:
                raise InvalidType(
                    f"The loaded index on {column!r} of dataset {parts.document.uuid!r} cannot be written into a "
                    f"document: {type(wrong).__name__} is no name in JSON. "
                    "Write the dataset as it is before its indices are loaded."
                )
            # JSON has only texts as names; those of booleans are "true" and "false".
            entry = {str(v).lower() if isinstance(v, bool) else str(v): labels for v, labels in entry.items()}
        entries[column] = entry
    partitions = parts.columns if parts.is_explicit or len(parts.columns) else None
    return replace(parts.document, indices=entries, partitions=partitions, partition_keys=parts.partition_keys)


def _entry(index: IndexBase) -> Any:
    return index.to_dict() if index.loaded else getattr(index, "index_storage_key", {})
