"""`DatasetMetadata`: kartothek's view of a dataset in one state, and its factory.

In order:

- `Partition` and ``combine_metadata``
- the value behind: document, partitions, schemas, index objects
- `DatasetMetadata`
- `DatasetFactory`, loaded on first access, and store functions
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
from msgspec import Struct, field
from msgspec.structs import replace

from kartothek_cube.core.arrow.types import normal_schema
from kartothek_cube.core.expressions.predicates import parse_predicates
from kartothek_cube.core.kartothek.indices import (
    ExplicitSecondaryIndex,
    IndexBase,
    PartitionIndex,
    indices_as_frame,
    query_labels,
)
from kartothek_cube.core.kartothek.schema_wrapper import SchemaWrapper
from kartothek_cube.core.metadata.document import (
    Document,
    PartitionColumns,
    document_from_mapping,
    empty_partitions,
    from_mapping,
    parse_document,
    render_document,
    to_mapping,
)
from kartothek_cube.core.metadata.index import SecondaryIndex, column_index
from kartothek_cube.core.metadata.naming import SINGLE_TABLE, check_uuid, document_key, schema_key
from kartothek_cube.core.metadata.snapshot import CommitResult, Snapshot, make_snapshot
from kartothek_cube.core.snapshots.documents import read_document
from kartothek_cube.core.snapshots.loader import (
    is_visible,
    load_index,
    load_snapshot,
    needs_ledger,
    resolve_document,
    snapshot_of,
    with_indices,
)
from kartothek_cube.core.snapshots.time_travel import AsOf, check_as_of, load_snapshot_as_of
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.stores.key_value import is_key_value_store
from kartothek_cube.core.stores.open import StoreFactory, open_instrumented, open_store
from kartothek_cube.core.write.layout import DatasetLayout, layout_of
from kartothek_cube.errors import CorruptDocument, InvalidInput, InvalidRequest, InvalidType, UnknownColumn, Unsupported
from kartothek_cube.typing import IntoPredicates, StoreLike, UserMetadata

if TYPE_CHECKING:
    import pandas as pd


class Partition(Struct, frozen=True):
    """One partition of a dataset.

    Attributes
    ----------
    label : str
        Name of the partition, unique in the dataset. Indices refer to labels.
    files : Mapping[str, str]
        Table → key of the file.

    Examples
    --------
    >>> Partition("COUNTRY_CODE=DE/1", {"table": "sales/table/COUNTRY_CODE=DE/1.parquet"}).to_dict()
    {'files': {'table': 'sales/table/COUNTRY_CODE=DE/1.parquet'}}
    """

    label: str
    files: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The partition as in a document."""
        return {"files": dict(self.files)}

    def __getitem__(self, member: str) -> Any:
        return self.to_dict()[member]

    @staticmethod
    def from_dict(label: str, dct: object) -> Partition:
        """The reverse of `to_dict`."""
        if not isinstance(dct, Mapping) or not isinstance(dct.get("files"), Mapping):
            raise InvalidInput(f"Partition {label!r} should be {{'files': {{table: key}}}}, but is {dct!r}.")
        return Partition(label, dict(dct["files"]))


def partition_map(columns: PartitionColumns) -> dict[str, Partition]:
    """Label → partition, in the order of the document."""
    lists = {t: f.to_pylist() for t, f in columns.files.items()}
    labels = columns.labels.to_pylist()
    return {
        label: Partition(label, {t: f[i] for t, f in lists.items() if f[i] is not None})
        for i, label in enumerate(labels)
    }


def partition_columns(partitions: object, uuid: str) -> PartitionColumns:
    """The columns of a map label → `Partition`, or label → ``{"files": {table: key}}``."""
    if not isinstance(partitions, Mapping):
        raise InvalidType(
            f"The partitions of dataset {uuid!r} should be a dict label → Partition, "
            f"but are {type(partitions).__name__}."
        )
    wrong = [label for label in partitions if not isinstance(label, str)]
    if wrong:
        raise InvalidType(f"The labels of the partitions of dataset {uuid!r} are text, but there is {wrong[0]!r}.")
    members = {label: p.to_dict() if isinstance(p, Partition) else p for label, p in partitions.items()}
    return from_mapping(members, uuid)


# Not None, which is a valid value.
_CONFLICT = object()


def combine_metadata(
    dataset_metadata: Iterable[Mapping[str, object]], append_to_list: bool = True
) -> dict[str, object]:
    """Merge user metadata, and drop keys with conflicting values.

    Equal values are kept, None yields to any other value, dicts are merged key by key, lists are
    joined. Other unequal values are dropped with their key, as are empty dicts. The arguments are
    not changed.

    Parameters
    ----------
    dataset_metadata : iterable of dict
        At least one.
    append_to_list : bool, default True
        Keep the first of several lists and append missing values. False: also remove duplicates
        inside the first list.

    Raises
    ------
    InvalidInput
        If there is nothing to merge.
    InvalidType
        If an element is no dict.

    Examples
    --------
    >>> combine_metadata([{"years": [2023]}, {"years": [2023, 2024], "run": 1}])
    {'years': [2023, 2024], 'run': 1}
    >>> combine_metadata([{"run": 1}, {"run": 2}])
    {}
    """
    parts: list[Any] = list(dataset_metadata)
    if not parts:
        raise InvalidInput("There are no metadata to combine; give at least one dict.")
    wrong = sorted({type(part).__name__ for part in parts if not isinstance(part, Mapping)})
    if wrong:
        raise InvalidType(f"Metadata to combine should be dicts, but there are {', '.join(wrong)}.")
    return _merged(parts, append_to_list)


def _merged(parts: list[Mapping[str, Any]], append: bool) -> dict[str, Any]:
    keys = dict.fromkeys(key for part in parts for key in part)
    combined = {key: _combined([part[key] for part in parts if key in part], append) for key in keys}
    return {key: value for key, value in combined.items() if value is not _CONFLICT and value != {}}


def _combined(values: list[Any], append: bool) -> Any:
    """The value of a key, or `_CONFLICT`."""
    given = [v for v in values if v is not None]
    if given and all(isinstance(v, Mapping) for v in given):
        return _merged(given, append)
    if not given or all(v == given[0] for v in given):
        return list(given[0]) if given and isinstance(given[0], list) else (given or values)[0]
    if not all(isinstance(v, list) for v in given):
        return _CONFLICT
    joined = list(given[0]) if append else []
    for value in chain.from_iterable(given[1:] if append else given):
        if value not in joined:  # not a set: values may be lists or dicts
            joined.append(value)
    return joined


# --- the value behind -----------------------------------------------------------------------------


VERSION = 4


class DatasetParts(Struct, frozen=True):
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


# --- DatasetMetadata ------------------------------------------------------------------------------


class DatasetMetadataBase:
    """Base class of `DatasetMetadata` and `DatasetFactory`, for ``isinstance``.

    Examples
    --------
    >>> issubclass(DatasetMetadata, DatasetMetadataBase)
    True
    """

    __slots__ = ()


class DatasetMetadata(DatasetMetadataBase):
    """A dataset in one state, immutable: methods that load or replace return a new object.

    Parameters
    ----------
    uuid : str
        Name of the dataset.
    partitions : mapping, optional
        Label → `Partition`, or label → ``{"files": {table: key}}``.
    metadata : dict, optional
        User metadata; a missing ``creation_time`` is added.
    indices : mapping, optional
        Column → index object, key of an index file, or a dict value → labels.
    metadata_version : int, default 4
        Version of the format; only 4.
    explicit_partitions : bool, default True
        Whether the document lists the partitions. If not, all files in the store are partitions.
    partition_keys : str or list of str, optional
        Partition columns, in order.
    table_meta : mapping, optional
        Table → `SchemaWrapper` or `pyarrow.Schema`.
    schema, table_name : optional
        Instead of ``table_meta``, as in plateau: the schema and the name of the only table.

    Raises
    ------
    InvalidInput
        If the uuid has illegal characters.
    Unsupported
        If the version is not 4.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.api.cube import Cube, build_cube
    >>> from kartothek_cube import open_store
    >>> store = open_store("hmemory://")
    >>> sales = pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]})
    >>> dataset = build_cube(sales, Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales"), store)["seed"]
    >>> dataset.uuid, dataset.partition_keys, len(dataset.partitions)
    ('sales++seed', ['COUNTRY_CODE'], 2)
    >>> dataset.load_all_indices(store).get_indices_as_dataframe().reset_index(drop=True)
      COUNTRY_CODE  PRODUCT_ID
    0           DE           1
    1           FR           2
    """

    __slots__ = ("_made", "_partitions", "_state")
    # Equality compares the content, which has dicts.
    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    def __init__(
        self,
        uuid: str,
        partitions: Mapping[str, Any] | None = None,
        metadata: UserMetadata | None = None,
        indices: Mapping[str, Any] | None = None,
        metadata_version: int = VERSION,
        explicit_partitions: bool = True,
        partition_keys: str | Sequence[str] | None = None,
        table_meta: Mapping[str, Any] | None = None,
        *,
        schema: SchemaWrapper | pa.Schema | None = None,
        table_name: str = SINGLE_TABLE,
    ) -> None:
        check_version(uuid, metadata_version)
        if schema is not None:
            table_meta = {**(table_meta or {}), table_name: schema}
        self._state: Snapshot | None = None
        self._made: DatasetParts | None = make_parts(
            check_uuid(uuid),
            partitions or {},
            metadata or {},
            indices or {},
            explicit_partitions,
            partition_keys or (),
            table_meta or {},
        )
        self._partitions: dict[str, Partition] | None = None

    @classmethod
    def of_parts(cls, parts: DatasetParts) -> DatasetMetadata:
        """The view of some parts."""
        return cls._view(parts, parts.snapshot)

    @classmethod
    def of(cls, snapshot: Snapshot) -> DatasetMetadata:
        """The view of a snapshot. Secondary indices are not loaded."""
        return cls._view(None, snapshot)

    @classmethod
    def _view(cls, parts: DatasetParts | None, state: Snapshot | None) -> DatasetMetadata:
        # Not by the constructor: the parts are checked already, or made when they are needed.
        made = cls.__new__(cls)
        made._made, made._state, made._partitions = parts, state, None  # noqa: SLF001
        return made

    @classmethod
    def of_each(cls, snapshots: Mapping[str, Snapshot]) -> dict[str, DatasetMetadata]:
        """Views of the datasets of a cube."""
        return {name: cls.of(snapshot) for name, snapshot in snapshots.items()}

    @property
    def _parts(self) -> DatasetParts:
        # Made when it is needed: the result of a write is seldom looked at.
        if self._made is None:
            assert self._state is not None
            self._made = parts_of_snapshot(self._state)
        return self._made

    # --- what a document says ---------------------------------------------------------------------

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot of this state, with the loaded indices.

        Raises
        ------
        InvalidRequest
            If the dataset was loaded without its schema.
        """
        # Kept, because building a snapshot parses the keys of all files.
        if self._state is None:
            self._made, self._state = with_snapshot(self._parts)
        return self._state

    @property
    def commit(self) -> CommitResult | None:
        """The commit of the write that returned this object; None if it was read.

        Comparisons ignore it.
        """
        return None if self._state is None else self._state.result

    @property
    def uuid(self) -> str:
        """Name of the dataset."""
        return self._parts.document.uuid

    @property
    def metadata(self) -> dict[str, Any]:
        """User metadata, without the keys of the library."""
        return self._parts.document.user_metadata

    @property
    def layout(self) -> DatasetLayout:
        """The layout on record, which later writes obey."""
        return layout_of(self._parts.document.metadata, self.uuid)

    @property
    def metadata_version(self) -> int:
        """Version of the format."""
        return VERSION

    @property
    def explicit_partitions(self) -> bool:
        """Whether the document lists the partitions."""
        return self._parts.document.partitions is not None

    @property
    def partition_keys(self) -> list[str]:
        """Partition columns, in order."""
        return list(self._parts.document.partition_keys or ())

    @property
    def partitions(self) -> Mapping[str, Partition]:
        """Label → `Partition`, read-only, in the order of the document.

        In a cube, later partitions override earlier ones.
        """
        # Built on first access: the library works on columns, one object per partition is slow.
        if self._partitions is None:
            self._partitions = partition_map(self._parts.columns)
        return MappingProxyType(self._partitions)

    @property
    def tables(self) -> list[str]:
        """Names of the tables."""
        return list(self._parts.schemas or self._parts.columns.files)

    @property
    def table_name(self) -> str:
        """The name of the first table, which is the only one of most datasets."""
        return next(iter(self.tables), SINGLE_TABLE)

    @property
    def table_meta(self) -> dict[str, SchemaWrapper]:
        """Table → schema; empty if the dataset was loaded without schemas."""
        return dict(self._parts.schemas)

    @property
    def schema(self) -> SchemaWrapper:
        """The schema of the only table; `AttributeError` if there are several, or none."""
        if len(self._parts.schemas) != 1:
            raise AttributeError(
                "Attribute schema can only be accessed for a single tabled dataset; "
                f"{self.uuid!r} has the schemas of {list(self._parts.schemas)}."
            )
        return next(iter(self._parts.schemas.values()))

    # --- indices ----------------------------------------------------------------------------------

    @property
    def indices(self) -> dict[str, IndexBase]:
        """Column → index object: all secondary indices, and loaded partition indices."""
        return dict(self._parts.indices)

    @property
    def index_columns(self) -> set[str]:
        """Columns with a partition index or a secondary index."""
        return set(self.indices) | set(self.partition_keys)

    @property
    def secondary_indices(self) -> dict[str, ExplicitSecondaryIndex]:
        """Column → secondary index."""
        return self._parts.secondary_indices

    @property
    def primary_indices_loaded(self) -> bool:
        """Whether the dataset has partition keys and all their indices are loaded."""
        return bool(self.partition_keys) and self._parts.has_partition_indices

    def load_index(self, column: str, store: StoreLike | None) -> DatasetMetadata:
        """The dataset with the index on a column loaded; a partition key loads all partition keys.

        ``store`` may be None if the index is loaded, embedded in the document, or on a partition
        key.

        Raises
        ------
        UnknownColumn
            If there is no index on the column.
        KeyNotFound, CorruptData
            If the index file is missing or cannot be read.
        """
        if column in self.partition_keys:
            return self.load_partition_indices()
        if column not in self.indices:
            raise UnknownColumn(
                f"No index specified for column '{column}' of dataset {self.uuid!r}. "
                f"There are indices on {sorted(self.index_columns)}."
            )
        return self._changed(load_secondary_indices(self._parts, [column], store))

    def load_all_indices(self, store: StoreLike | None, load_partition_indices: bool = True) -> DatasetMetadata:
        """The dataset with all indices loaded; errors as of `load_index`."""
        loaded = self._changed(load_secondary_indices(self._parts, list(self.secondary_indices), store))
        return loaded.load_partition_indices() if load_partition_indices else loaded

    def load_partition_indices(self) -> DatasetMetadata:
        """The dataset with partition indices, which come from the keys of the files.

        Raises
        ------
        InvalidRequest
            If the dataset was loaded without its schema, or the key of a file lacks the partition
            values.
        """
        return self._changed(load_partition_indices(self._parts))

    def _changed(self, parts: DatasetParts) -> DatasetMetadata:
        return self if parts is self._parts else self.of_parts(parts)

    def query(
        self, indices: Iterable[IndexBase] | Mapping[str, IndexBase] | None = None, **kwargs: object
    ) -> list[str]:
        """Labels of the partitions that have all these values, by the indices.

        Parameters
        ----------
        indices : list of index objects, optional
            Further indices, instead of the dataset's on the same column.
        **kwargs
            Column → value. Without any, all labels are returned.

        Raises
        ------
        UnknownColumn
            If there is no index on a column.
        InvalidRequest
            If a secondary index is not loaded.

        Examples
        --------
        >>> partitions = {"1": {"files": {}}, "2": {"files": {}}}
        >>> stores = {10: ["1"], 11: ["1", "2"]}
        >>> DatasetMetadata("sales", partitions, indices={"STORE_ID": stores}).query(STORE_ID=10)
        ['1']
        """
        given = {i.column: i for i in (indices.values() if isinstance(indices, Mapping) else indices or [])}
        own = loaded_indices(self._parts, [c for c in kwargs if c not in given])
        return query_labels(self._parts.columns.labels.to_pylist(), {**own, **given}, **kwargs)

    def get_indices_as_dataframe(
        self,
        columns: Iterable[str] | None = None,
        date_as_object: bool = True,
        predicates: IntoPredicates | None = None,
    ) -> pd.DataFrame:
        """The indices as a frame: one row per combination of the indexed values of a partition.

        The frame's index ``partition`` has the labels.

        Parameters
        ----------
        columns : list of str, optional
            Indexed columns to return, in this order; by default all, by name. With no columns the
            frame has one row per label.
        date_as_object : bool, default True
            Return dates as `datetime.date` instead of ``datetime64``.
        predicates : list of list of tuple, optional
            Keep matching rows. Clauses on columns without an index count as true.

        Raises
        ------
        InvalidInput
            If a column has no index.
        InvalidRequest
            If a needed secondary index is not loaded.
        """
        chosen = sorted(self.index_columns) if columns is None else list(columns)
        clauses = {c.column for conjunction in parse_predicates(predicates) or () for c in conjunction}
        indices = loaded_indices(self._parts, {*chosen, *clauses})
        return indices_as_frame(self._parts.columns.labels.to_pylist(), indices, chosen, date_as_object, predicates)

    # --- documents --------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """The document as a dict; loaded indices are value → labels, others keys of index files."""
        return mapping_of(self._parts)

    def to_json(self) -> bytes:
        """`to_dict` as JSON.

        Raises
        ------
        InvalidType
            If values of a loaded index cannot be JSON names, e.g. dates.
        """
        return render_document(document_of(self._parts))

    def to_msgpack(self) -> bytes:
        """`to_dict` as msgpack, compressed; errors as of `to_json`."""
        return render_document(document_of(self._parts), msgpack=True)

    @staticmethod
    def from_dict(dct: Mapping[str, Any], explicit_partitions: bool = True) -> DatasetMetadata:
        """The reverse of `to_dict`, without a store; schemas come from the key ``table_meta``."""
        document, table_meta = document_of_dict(dct), dct.get("table_meta") or {}
        return DatasetMetadata.of_parts(parts_of_document(document, explicit_partitions, table_meta))

    @staticmethod
    def from_buffer(buf: bytes | str, format: str = "json", explicit_partitions: bool = True) -> DatasetMetadata:  # noqa: A002
        """The reverse of `to_json` (bytes or text) and `to_msgpack`; no store is read.

        ``format`` is ``"json"`` or ``"msgpack"``.
        """
        document = document_of_buffer(buf, format)
        return DatasetMetadata.of_parts(parts_of_document(document, explicit_partitions))

    @staticmethod
    def load_from_dict(dct: Mapping[str, Any], store: StoreLike, load_schema: bool = True) -> DatasetMetadata:
        """The dataset of a parsed document.

        Schemas, and partitions that the document does not list, are read from the store.
        """
        document = document_of_dict(dct)
        return DatasetMetadata.of_parts(parts_in_store(document, open_instrumented(store), load_schema))

    @staticmethod
    def load_from_buffer(buf: bytes | str, store: StoreLike, format: str = "json") -> DatasetMetadata:  # noqa: A002
        """`load_from_dict` of a document as in `from_buffer`."""
        document = document_of_buffer(buf, format)
        return DatasetMetadata.of_parts(parts_in_store(document, open_instrumented(store)))

    @staticmethod
    def load_from_store(
        uuid: str,
        store: StoreLike,
        load_schema: bool = True,
        load_all_indices: bool = False,
        *,
        as_of: AsOf | None = None,
    ) -> DatasetMetadata:
        """Read the newest state of a dataset, or a past state.

        Parameters
        ----------
        uuid : str
            Name of the dataset.
        store : str, path, store or callable
            The store, in any form that `open_store` takes.
        load_schema : bool, default True
            Whether to read the schemas. Without schemas there are no partition indices.
        load_all_indices : bool, default False
            Whether to load all indices.
        as_of : str or datetime, optional
            Id of a commit, a tag, or a moment (without a zone: UTC): read this past state, with its
            schemas.

        Raises
        ------
        DatasetNotFound
            If the dataset does not exist.
        InvalidInput
            If history does not reach back to ``as_of``.
        """
        opened = open_instrumented(store)
        if load_schema or as_of is not None:
            parts = parts_of_snapshot(load_snapshot_as_of(opened, uuid, as_of))
        else:
            document = read_document(opened, uuid).document
            if needs_ledger(document):
                document = load_snapshot(opened, uuid).document
            parts = parts_in_store(document, opened, load_schema=False)
        dataset = DatasetMetadata.of_parts(parts)
        return dataset.load_all_indices(opened, load_partition_indices=load_schema) if load_all_indices else dataset

    @staticmethod
    def exists(uuid: str, store: StoreLike) -> bool:
        """Whether the store has a document of this dataset that readers see; one damaged counts.

        A dataset that an uncommitted write to a cube is to make does not exist yet.
        """
        return is_visible(open_instrumented(store), check_uuid(uuid))

    @staticmethod
    def storage_keys(uuid: str, store: StoreLike) -> list[str]:
        """All keys of this dataset in the store, sorted, whether the document names them or not."""
        opened, name = open_instrumented(store), check_uuid(uuid)
        # With the separator: `sales` is also a prefix of the keys of `sales_2024`.
        return sorted(key for prefix in (f"{name}.", f"{name}/") for key in opened.list(prefix, recursive=True).keys)

    # --- object protocol --------------------------------------------------------------------------

    def copy(self, **kwargs: object) -> DatasetMetadata:
        """A new object; keyword arguments of the constructor replace its content."""
        same: dict[str, Any] = {
            "uuid": self.uuid,
            "partitions": self.partitions,
            "metadata": self._parts.document.metadata,
            "indices": self.indices,
            "explicit_partitions": self.explicit_partitions,
            "partition_keys": self.partition_keys,
            "table_meta": self._parts.schemas,
        }
        return DatasetMetadata(**{**same, **kwargs})

    def with_snapshot(self, snapshot: Snapshot) -> DatasetMetadata:
        """The dataset with the loaded indices of a snapshot of the same state."""
        return self.of_parts(with_loaded(self._parts, snapshot))

    def without_metadata(self) -> DatasetMetadata:
        """The dataset without user metadata."""
        return self.of_parts(replace(self._parts, document=replace(self._parts.document, metadata={})))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DatasetMetadata):
            return NotImplemented
        return self._parts.same_as(other._parts)

    def __reduce__(self) -> tuple[object, ...]:
        # Without `_partitions`, which the receiver builds if needed.
        return (DatasetMetadata.of_parts, (self._parts,))

    def __repr__(self) -> str:
        partitions = len(self._parts.columns)
        return f"DatasetMetadata(uuid={self.uuid!r}, {partitions=}, partition_keys={self.partition_keys})"


# --- DatasetFactory -------------------------------------------------------------------------------


def ensure_store(store: StoreLike) -> Store:
    """Open a store, given in any form that `open_store` takes. No call of the store is made.

    The result has ``keys``, ``iter_keys``, ``in`` and ``open`` of simplekv.

    Raises
    ------
    InvalidType
        If ``store`` is none of these forms.
    InvalidInput
        If a URL is unknown or malformed.

    Examples
    --------
    >>> ensure_store("hmemory://sales")
    <MemoryStore hmemory://sales>
    """
    return open_store(store)


def lazy_store(store: StoreLike) -> Callable[[], Store]:
    """A function without arguments that opens the store at each call.

    The function is picklable if ``store`` is.

    Raises
    ------
    InvalidType
        If ``store`` is no URL, path, store or function. A wrong URL fails when the function is
        called.

    Examples
    --------
    >>> open_sales = lazy_store("hmemory://sales")
    >>> open_sales() == ensure_store("hmemory://sales")
    True
    """
    if isinstance(store, StoreFactory):
        return store
    if isinstance(store, (str, os.PathLike, Store)) or (is_key_value_store(store) and not isinstance(store, type)):
        return partial(open_store, store)
    if callable(store):
        return StoreFactory(store)
    raise InvalidType(
        f"Provided incompatible store type {type(store).__name__}. "
        "A store is a URL, a path, a store object, or a function that returns one of these."
    )


class DatasetFactory(DatasetMetadataBase):
    """A dataset that is loaded on first access and then kept until `invalidate`.

    It has all attributes of `DatasetMetadata`. Functions with ``factory=`` use the loaded state,
    and keep in the factory the indices that they load. Pickling drops the loaded state; a copy
    keeps it.

    Parameters
    ----------
    dataset_uuid : str
        Name of the dataset.
    store_factory : str, path, store or callable
        The store, in any form that `open_store` takes.
    load_schema : bool, default True
        Whether to load the schemas.
    load_all_indices : bool, default False
        Whether to load all indices with the dataset.
    load_dataset_metadata : bool, default True
        Whether to keep the user metadata.
    as_of : str or datetime, optional
        Id of a commit, a tag, or a moment (without a zone: UTC): load this past state.

    Raises
    ------
    InvalidType
        If ``store_factory`` cannot be opened.
    DatasetNotFound
        On first access, if the dataset does not exist.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.api.cube import Cube, build_cube
    >>> from kartothek_cube import open_store
    >>> store = open_store("hmemory://")
    >>> sales = pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]})
    >>> _ = build_cube(sales, Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales"), store)
    >>> factory = DatasetFactory("sales++seed", store)
    >>> factory
    <DatasetFactory: uuid=sales++seed is_loaded=False>
    >>> factory.partition_keys, factory.is_loaded
    (['COUNTRY_CODE'], True)
    """

    def __init__(
        self,
        dataset_uuid: str,
        store_factory: StoreLike,
        load_schema: bool = True,
        load_all_indices: bool = False,
        load_dataset_metadata: bool = True,
        *,
        as_of: AsOf | None = None,
    ) -> None:
        self.dataset_uuid = dataset_uuid
        self.as_of: AsOf | None = check_as_of(as_of)
        self.store_factory: Callable[[], Store] = lazy_store(store_factory)
        self.load_schema = load_schema
        self.load_dataset_metadata = load_dataset_metadata
        self._load_all_indices = load_all_indices
        self.invalidate()  # sets the loaded state to None

    def invalidate(self) -> None:
        """Drop the loaded state and the opened store."""
        self._store: Store | None = None
        self._dataset: DatasetMetadata | None = None
        self._snapshot: Snapshot | None = None

    @property
    def is_loaded(self) -> bool:
        """Whether the dataset is loaded."""
        return self._dataset is not None

    @property
    def store(self) -> Store:
        """The opened store."""
        if self._store is None:
            self._store = self.store_factory()
        return self._store

    @property
    def dataset_metadata(self) -> DatasetMetadata:
        """The dataset; loads it if needed."""
        if self._dataset is None:
            read = DatasetMetadata.load_from_store(
                self.dataset_uuid, self.store, self.load_schema, self._load_all_indices, as_of=self.as_of
            )
            self._dataset = read if self.load_dataset_metadata else read.without_metadata()
        return self._dataset

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot for functions that take this factory."""
        if self.load_schema:
            return self.dataset_metadata.snapshot
        if self._snapshot is None:
            # Schemas are read here, because planning needs types; the factory still shows none.
            self._snapshot = load_snapshot_as_of(open_instrumented(self.store), self.dataset_uuid, self.as_of)
        return self._snapshot

    def remember(self, snapshot: Snapshot) -> None:
        """Keep the loaded indices of a snapshot, which must have the state of this factory."""
        if self.load_schema:
            self._dataset = self.dataset_metadata.with_snapshot(snapshot)
        else:
            self._snapshot = snapshot

    def load_index(self, column: str, store: StoreLike | None = None) -> DatasetFactory:
        """Load an index and return this factory; errors as of `DatasetMetadata.load_index`."""
        self._dataset = self.dataset_metadata.load_index(column, self.store if store is None else store)
        return self

    def load_all_indices(self, store: StoreLike | None = None, load_partition_indices: bool = True) -> DatasetFactory:
        """Load all indices and return this factory; errors as of `DatasetMetadata.load_index`."""
        opened = self.store if store is None else store
        self._dataset = self.dataset_metadata.load_all_indices(opened, load_partition_indices)
        return self

    def load_partition_indices(self) -> DatasetFactory:
        """Load the indices of the partition keys and return this factory."""
        self._dataset = self.dataset_metadata.load_partition_indices()
        return self

    def __getattr__(self, name: str) -> Any:
        # Unpickling and copying ask for private names before they exist: without this line the
        # access to `_dataset` would recurse.
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.dataset_metadata, name)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_store": None, "_dataset": None, "_snapshot": None}

    def __copy__(self) -> DatasetFactory:
        made = DatasetFactory.__new__(DatasetFactory)
        made.__dict__.update(self.__dict__)
        return made

    def __deepcopy__(self, memo: object) -> DatasetFactory:
        # All members are immutable, so a shallow copy is enough.
        return self.__copy__()

    def __repr__(self) -> str:
        return f"<DatasetFactory: uuid={self.dataset_uuid} is_loaded={self.is_loaded}>"
