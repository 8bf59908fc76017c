"""`DatasetMetadata`: kartothek's view of a dataset in one state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from kartothek_cube.core.expressions.predicates import parse_predicates
from kartothek_cube.core.kartothek import dataset_parts as kernel
from kartothek_cube.core.kartothek.dataset_parts import VERSION, DatasetParts
from kartothek_cube.core.kartothek.index_base import IndexBase
from kartothek_cube.core.kartothek.indices import ExplicitSecondaryIndex, indices_as_frame, query_labels
from kartothek_cube.core.kartothek.partition import Partition, partition_map
from kartothek_cube.core.kartothek.schema_wrapper import SchemaWrapper
from kartothek_cube.core.metadata.document import render_document
from kartothek_cube.core.metadata.naming import check_uuid
from kartothek_cube.core.metadata.snapshot import CommitResult, Snapshot
from kartothek_cube.core.snapshots.documents import read_document
from kartothek_cube.core.snapshots.loader import is_visible, load_snapshot, needs_ledger
from kartothek_cube.core.snapshots.time_travel import AsOf, load_snapshot_as_of
from kartothek_cube.core.stores.open import open_instrumented
from kartothek_cube.core.write.layout import DatasetLayout, layout_of
from kartothek_cube.errors import UnknownColumn
from kartothek_cube.typing import IntoPredicates, StoreLike, UserMetadata

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["DatasetMetadata", "DatasetMetadataBase"]


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
    >>> from kartothek_cube.core.stores.open import open_store
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

    __slots__ = ("_partitions", "_parts")
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
    ) -> None:
        kernel.check_version(uuid, metadata_version)
        self._parts = kernel.make_parts(
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
        # Not by the constructor: the parts are checked already.
        made = cls.__new__(cls)
        made._parts, made._partitions = parts, None  # noqa: SLF001
        return made

    @classmethod
    def of(cls, snapshot: Snapshot) -> DatasetMetadata:
        """The view of a snapshot. Secondary indices are not loaded."""
        return cls.of_parts(kernel.parts_of_snapshot(snapshot))

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
        self._parts, snapshot = kernel.with_snapshot(self._parts)
        return snapshot

    @property
    def commit(self) -> CommitResult | None:
        """The commit of the write that returned this object; None if it was read.

        Comparisons ignore it.
        """
        return None if self._parts.snapshot is None else self._parts.snapshot.result

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
        return self._changed(kernel.load_secondary_indices(self._parts, [column], store))

    def load_all_indices(self, store: StoreLike | None, load_partition_indices: bool = True) -> DatasetMetadata:
        """The dataset with all indices loaded; errors as of `load_index`."""
        loaded = self._changed(kernel.load_secondary_indices(self._parts, list(self.secondary_indices), store))
        return loaded.load_partition_indices() if load_partition_indices else loaded

    def load_partition_indices(self) -> DatasetMetadata:
        """The dataset with partition indices, which come from the keys of the files.

        Raises
        ------
        InvalidRequest
            If the dataset was loaded without its schema, or the key of a file lacks the partition
            values.
        """
        return self._changed(kernel.load_partition_indices(self._parts))

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
        own = kernel.loaded_indices(self._parts, [c for c in kwargs if c not in given])
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
        indices = kernel.loaded_indices(self._parts, {*chosen, *clauses})
        return indices_as_frame(self._parts.columns.labels.to_pylist(), indices, chosen, date_as_object, predicates)

    # --- documents --------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """The document as a dict; loaded indices are value → labels, others keys of index files."""
        return kernel.mapping_of(self._parts)

    def to_json(self) -> bytes:
        """`to_dict` as JSON.

        Raises
        ------
        InvalidType
            If values of a loaded index cannot be JSON names, e.g. dates.
        """
        return render_document(kernel.document_of(self._parts))

    def to_msgpack(self) -> bytes:
        """`to_dict` as msgpack, compressed; errors as of `to_json`."""
        return render_document(kernel.document_of(self._parts), msgpack=True)

    @staticmethod
    def from_dict(dct: Mapping[str, Any], explicit_partitions: bool = True) -> DatasetMetadata:
        """The reverse of `to_dict`, without a store; schemas come from the key ``table_meta``."""
        document, table_meta = kernel.document_of_dict(dct), dct.get("table_meta") or {}
        return DatasetMetadata.of_parts(kernel.parts_of_document(document, explicit_partitions, table_meta))

    @staticmethod
    def from_buffer(buf: bytes | str, format: str = "json", explicit_partitions: bool = True) -> DatasetMetadata:  # noqa: A002
        """The reverse of `to_json` (bytes or text) and `to_msgpack`; no store is read.

        ``format`` is ``"json"`` or ``"msgpack"``.
        """
        document = kernel.document_of_buffer(buf, format)
        return DatasetMetadata.of_parts(kernel.parts_of_document(document, explicit_partitions))

    @staticmethod
    def load_from_dict(dct: Mapping[str, Any], store: StoreLike, load_schema: bool = True) -> DatasetMetadata:
        """The dataset of a parsed document.

        Schemas, and partitions that the document does not list, are read from the store.
        """
        document = kernel.document_of_dict(dct)
        return DatasetMetadata.of_parts(kernel.parts_in_store(document, open_instrumented(store), load_schema))

    @staticmethod
    def load_from_buffer(buf: bytes | str, store: StoreLike, format: str = "json") -> DatasetMetadata:  # noqa: A002
        """`load_from_dict` of a document as in `from_buffer`."""
        document = kernel.document_of_buffer(buf, format)
        return DatasetMetadata.of_parts(kernel.parts_in_store(document, open_instrumented(store)))

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
            parts = kernel.parts_of_snapshot(load_snapshot_as_of(opened, uuid, as_of))
        else:
            document = read_document(opened, uuid).document
            if needs_ledger(document):
                document = load_snapshot(opened, uuid).document
            parts = kernel.parts_in_store(document, opened, load_schema=False)
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
        return self.of_parts(kernel.with_loaded(self._parts, snapshot))

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
