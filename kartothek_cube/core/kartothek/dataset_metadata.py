"""`DatasetMetadata`: a dataset at one moment with kartothek's names, as a view of a document and of what was read with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kartothek_cube.core.expressions.predicates import parse_predicates
from kartothek_cube.core.kartothek import dataset_parts as kernel
from kartothek_cube.core.kartothek.dataset_parts import VERSION, DatasetParts
from kartothek_cube.core.kartothek.index_base import IndexBase
from kartothek_cube.core.kartothek.index_frame import indices_as_frame, query_labels
from kartothek_cube.core.kartothek.indices import ExplicitSecondaryIndex
from kartothek_cube.core.kartothek.partition import Partition, partition_map
from kartothek_cube.core.kartothek.schema_wrapper import SchemaWrapper
from kartothek_cube.core.metadata.document import render_document
from kartothek_cube.core.metadata.naming import check_uuid, document_key
from kartothek_cube.core.metadata.snapshot import CommitResult, Snapshot
from kartothek_cube.core.snapshots.document_store import read_document
from kartothek_cube.core.snapshots.time_travel import AsOf, load_snapshot_as_of
from kartothek_cube.core.stores.open import open_instrumented
from kartothek_cube.errors import UnknownColumn
from kartothek_cube.typing import IntoPredicates, StoreLike

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["DatasetMetadata", "DatasetMetadataBase"]


class DatasetMetadataBase:
    """What `DatasetMetadata` and `DatasetFactory` have in common, for ``isinstance``.

    Examples
    --------
    >>> issubclass(DatasetMetadata, DatasetMetadataBase)
    True
    """

    __slots__ = ()


class DatasetMetadata(DatasetMetadataBase):
    """A dataset at one moment.

    It does not change: whatever loads or replaces something returns another object.

    Parameters
    ----------
    uuid : str
        Name of the dataset.
    partitions : mapping, optional
        Label → `Partition`, or label → ``{"files": {table: key}}``.
    metadata : dict, optional
        User metadata; a ``creation_time`` is added if there is none.
    indices : mapping, optional
        Column → index object, key of an index file, or a map value → labels.
    metadata_version : int, default 4
        Version of the format; there is no other.
    explicit_partitions : bool, default True
        Whether the document lists the partitions. If not they are the files that the store has.
    partition_keys : str or list of str, optional
        Columns by which the dataset is partitioned, in order.
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
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self,
        uuid: str,
        partitions: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
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
        """The view of what was read."""
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
        """The dataset as the rest of the library sees it, with the indices that are loaded.

        Raises
        ------
        InvalidRequest
            If the dataset was loaded without its schema.
        """
        self._parts, snapshot = kernel.with_snapshot(self._parts)
        return snapshot

    @property
    def commit(self) -> CommitResult | None:
        """What became of the write that returned this: the commit's id, how often it was tried; None if this was read. It takes no part in comparisons."""
        return None if self._parts.snapshot is None else self._parts.snapshot.result

    @property
    def uuid(self) -> str:
        """Name of the dataset."""
        return self._parts.document.uuid

    @property
    def metadata(self) -> dict[str, Any]:
        """User metadata, without what the library keeps for itself."""
        return self._parts.document.user_metadata

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
        """Columns by which the dataset is partitioned, in order."""
        return list(self._parts.document.partition_keys or ())

    @property
    def partitions(self) -> Mapping[str, Partition]:
        """Label → `Partition`, in the order in which later partitions override earlier ones.

        It cannot be changed.
        """
        if self._partitions is None:
            self._partitions = partition_map(self._parts.columns)
        return MappingProxyType(self._partitions)

    @property
    def tables(self) -> list[str]:
        """Names of the tables."""
        return list(self._parts.schemas or self._parts.columns.files)

    @property
    def table_meta(self) -> dict[str, SchemaWrapper]:
        """Table → schema; empty if the dataset was loaded without."""
        return dict(self._parts.schemas)

    @property
    def schema(self) -> SchemaWrapper:
        """The schema of the only table; an `AttributeError` if there are more, or none."""
        if len(self._parts.schemas) != 1:
            raise AttributeError(
                f"Attribute schema can only be accessed for a single tabled dataset; {self.uuid!r} has the schemas of {list(self._parts.schemas)}."
            )
        return next(iter(self._parts.schemas.values()))

    # --- indices ----------------------------------------------------------------------------------

    @property
    def indices(self) -> dict[str, IndexBase]:
        """Column → index object: the secondary ones, loaded or not, and those of the partition keys once they are loaded."""
        return dict(self._parts.indices)

    @property
    def index_columns(self) -> set[str]:
        """Columns with a partition index or a secondary index."""
        return set(self.indices) | set(self.partition_keys)

    @property
    def secondary_indices(self) -> dict[str, ExplicitSecondaryIndex]:
        """Column → index object of the secondary indices."""
        return self._parts.secondary_indices

    @property
    def primary_indices_loaded(self) -> bool:
        """Whether there are partition keys and all their indices are loaded."""
        return bool(self.partition_keys) and self._parts.has_partition_indices

    def load_index(self, column: str, store: StoreLike | None) -> DatasetMetadata:
        """The dataset with the index on a column loaded; for a partition key with those of all of them.

        An index that is loaded, embedded in the document, or on a partition key needs no store: it
        may be None.

        Raises
        ------
        UnknownColumn
            If there is no index on the column.
        KeyNotFound, CorruptData
            If its file is missing or cannot be read.
        """
        if column in self.partition_keys:
            return self.load_partition_indices()
        if column not in self.indices:
            raise UnknownColumn(
                f"No index specified for column '{column}' of dataset {self.uuid!r}. There are indices on {sorted(self.index_columns)}."
            )
        return self._changed(kernel.load_secondary_indices(self._parts, [column], store))

    def load_all_indices(self, store: StoreLike | None, load_partition_indices: bool = True) -> DatasetMetadata:
        """The dataset with all secondary indices loaded, by default those of the partition keys as well; errors as of `load_index`."""
        loaded = self._changed(kernel.load_secondary_indices(self._parts, list(self.secondary_indices), store))
        return loaded.load_partition_indices() if load_partition_indices else loaded

    def load_partition_indices(self) -> DatasetMetadata:
        """The dataset with the indices of its partition keys, which are made of the keys of the files.

        Raises
        ------
        InvalidRequest
            If the dataset was loaded without its schema, or a file does not lie below its partition
            values.
        """
        return self._changed(kernel.load_partition_indices(self._parts))

    def _changed(self, parts: DatasetParts) -> DatasetMetadata:
        return self if parts is self._parts else self.of_parts(parts)

    def query(
        self, indices: Iterable[IndexBase] | Mapping[str, IndexBase] | None = None, **kwargs: object
    ) -> list[str]:
        """Labels of the partitions that hold all these values, as far as the indices say.

        Parameters
        ----------
        indices : list of index objects, optional
            Further indices; they go before those of the dataset.
        **kwargs
            Column → value. Without any all labels come back.

        Raises
        ------
        UnknownColumn
            If there is no index on a column.
        InvalidRequest
            If a secondary index is not loaded.

        Examples
        --------
        >>> dataset = DatasetMetadata("sales", {"1": {"files": {}}, "2": {"files": {}}}, indices={"STORE_ID": {10: ["1"], 11: ["1", "2"]}})
        >>> dataset.query(STORE_ID=10)
        ['1']
        """
        given = {i.column: i for i in (indices.values() if isinstance(indices, Mapping) else indices or [])}
        known = kernel.ready_indices(self._parts, [c for c in kwargs if c not in given])
        return query_labels(self._parts.columns.labels.to_pylist(), {**known, **given}, **kwargs)

    def get_indices_as_dataframe(
        self,
        columns: Iterable[str] | None = None,
        date_as_object: bool = True,
        predicates: IntoPredicates | None = None,
    ) -> pd.DataFrame:
        """What the indices say, as a frame: one row for each combination of values of a partition, whose label is in the index ``partition``.

        Parameters
        ----------
        columns : list of str, optional
            Indexed columns to return, in this order; by default all, by name. Without columns the
            frame has one row for each label.
        date_as_object : bool, default True
            Whether dates come as `datetime.date` instead of ``datetime64``.
        predicates : list of list of tuple, optional
            Only rows that satisfy them; clauses on columns without index count as true.

        Raises
        ------
        InvalidInput
            If a column has no index.
        InvalidRequest
            If a secondary index that is needed is not loaded.
        """
        chosen = sorted(self.index_columns) if columns is None else list(columns)
        clauses = {c.column for conjunction in parse_predicates(predicates) or () for c in conjunction}
        known = kernel.ready_indices(self._parts, {*chosen, *clauses})
        return indices_as_frame(self._parts.columns.labels.to_pylist(), known, chosen, date_as_object, predicates)

    # --- documents --------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """The dataset as a document: loaded indices as value → labels, others as the keys of their files."""
        return kernel.mapping_of(self._parts)

    def to_json(self) -> bytes:
        """`to_dict` as JSON.

        Raises
        ------
        InvalidType
            If a loaded index has values that JSON cannot have as names, e.g. dates.
        """
        return render_document(kernel.document_of(self._parts))

    def to_msgpack(self) -> bytes:
        """`to_dict` as msgpack, compressed; errors as of `to_json`."""
        return render_document(kernel.document_of(self._parts), msgpack=True)

    @staticmethod
    def from_dict(dct: Mapping[str, Any], explicit_partitions: bool = True) -> DatasetMetadata:
        """The reverse of `to_dict`.

        No store is looked at; schemas are those of the member ``table_meta``, if there is one.
        """
        return DatasetMetadata.of_parts(
            kernel.parts_of_document(kernel.described(dct), explicit_partitions, dct.get("table_meta") or {})
        )

    @staticmethod
    def from_buffer(buf: bytes | str, format: str = "json", explicit_partitions: bool = True) -> DatasetMetadata:  # noqa: A002
        """The reverse of `to_json` (``format="json"``; its text will do) and `to_msgpack` (``format="msgpack"``). No store is looked at."""
        return DatasetMetadata.of_parts(kernel.parts_of_document(kernel.parsed(buf, format), explicit_partitions))

    @staticmethod
    def load_from_dict(dct: Mapping[str, Any], store: StoreLike, load_schema: bool = True) -> DatasetMetadata:
        """The dataset that a parsed document describes, with what the document leaves to the store: schemas, partitions of an implicit dataset."""
        return DatasetMetadata.of_parts(
            kernel.parts_in_store(kernel.described(dct), open_instrumented(store), load_schema)
        )

    @staticmethod
    def load_from_buffer(buf: bytes | str, store: StoreLike, format: str = "json") -> DatasetMetadata:  # noqa: A002
        """The same of a document as bytes, as in `from_buffer`."""
        return DatasetMetadata.of_parts(kernel.parts_in_store(kernel.parsed(buf, format), open_instrumented(store)))

    @staticmethod
    def load_from_store(
        uuid: str,
        store: StoreLike,
        load_schema: bool = True,
        load_all_indices: bool = False,
        *,
        as_of: AsOf | None = None,
    ) -> DatasetMetadata:
        """Read a dataset's newest state, or an older one.

        Parameters
        ----------
        uuid : str
            Name of the dataset.
        store : str, path, store or callable
            Everything that `open_store` takes.
        load_schema : bool, default True
            Whether to read the schemas. Without them there are no partition indices.
        load_all_indices : bool, default False
            Whether to load all indices.
        as_of : str or datetime, optional
            A commit's id or a moment (without a zone: UTC): the dataset as it was then, with its
            schemas.

        Raises
        ------
        DatasetNotFound
            If it does not exist.
        InvalidInput
            If its history does not reach back to ``as_of``.
        """
        opened = open_instrumented(store)
        parts = (
            kernel.parts_of_snapshot(load_snapshot_as_of(opened, uuid, as_of))
            if load_schema or as_of is not None
            else kernel.parts_in_store(read_document(opened, uuid).document, opened, load_schema=False)
        )
        dataset = DatasetMetadata.of_parts(parts)
        return dataset.load_all_indices(opened, load_partition_indices=load_schema) if load_all_indices else dataset

    @staticmethod
    def exists(uuid: str, store: StoreLike) -> bool:
        """Whether the store has a document of this dataset. It is not read."""
        opened = open_instrumented(store)
        return any(opened.contains(document_key(check_uuid(uuid), msgpack=msgpack)) for msgpack in (False, True))

    @staticmethod
    def storage_keys(uuid: str, store: StoreLike) -> list[str]:
        """All keys of the store that belong to this dataset, sorted: also those that its document does not name."""
        opened, name = open_instrumented(store), check_uuid(uuid)
        return sorted(key for prefix in (f"{name}.", f"{name}/") for key in opened.list(prefix, recursive=True).keys)

    # --- object protocol --------------------------------------------------------------------------

    def copy(self, **kwargs: object) -> DatasetMetadata:
        """Another dataset, with the arguments of the constructor that are given and else those of this one."""
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
        """The same with the indices that a snapshot of it has."""
        return self.of_parts(kernel.with_loaded(self._parts, snapshot))

    def without_metadata(self) -> DatasetMetadata:
        """The same without user metadata."""
        return self.of_parts(replace(self._parts, document=replace(self._parts.document, metadata={})))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DatasetMetadata):
            return NotImplemented
        return self._parts.same_as(other._parts)

    def __reduce__(self) -> tuple[object, ...]:
        return (DatasetMetadata.of_parts, (self._parts,))

    def __repr__(self) -> str:
        return f"DatasetMetadata(uuid={self.uuid!r}, partitions={len(self._parts.columns)}, partition_keys={self.partition_keys})"
