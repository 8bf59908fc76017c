"""`DatasetMetadata`: what kartothek's functions return of a dataset, as a view of a snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from kartothek_cube.core.metadata.partitions import to_mapping
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.snapshots import find_snapshot, load_snapshot
from kartothek_cube.core.stores import open_store

__all__ = ["DatasetMetadata"]


@dataclass(frozen=True, slots=True)
class DatasetMetadata:
    """A dataset at one moment, with kartothek's names.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube.api.cube import Cube, build_cube
    >>> from kartothek_cube.core.stores import open_store
    >>> store = open_store("hmemory://")
    >>> sales = pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"]})
    >>> dataset = build_cube(sales, Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales"), store)["seed"]
    >>> dataset.uuid, dataset.partition_keys, len(dataset.partitions)
    ('sales++seed', ['COUNTRY_CODE'], 2)
    """

    snapshot: Snapshot

    @property
    def uuid(self) -> str:
        """Name of the dataset."""
        return self.snapshot.uuid

    @property
    def metadata(self) -> dict[str, Any]:
        """User metadata, without what the library keeps for itself."""
        return self.snapshot.document.user_metadata

    @property
    def metadata_version(self) -> int:
        """Version of the format."""
        return 4

    @property
    def partition_keys(self) -> list[str]:
        """Columns by which the dataset is partitioned, in order."""
        return list(self.snapshot.partition_keys)

    @property
    def partitions(self) -> dict[str, Any]:
        """Label → ``{"files": {table: key}}``, in the order in which later partitions override earlier ones."""
        return to_mapping(self.snapshot.partitions)

    @property
    def tables(self) -> list[str]:
        """Names of the tables."""
        return list(self.snapshot.tables)

    @property
    def table_meta(self) -> Mapping[str, pa.Schema]:
        """Table → schema."""
        return self.snapshot.schemas

    @property
    def schema(self) -> pa.Schema:
        """The schema of the only table."""
        return self.snapshot.schema

    @property
    def index_columns(self) -> set[str]:
        """Columns with a partition index or a secondary index."""
        return set(self.snapshot.indexed_columns)

    @property
    def secondary_indices(self) -> dict[str, Any]:
        """Column → key of its index file."""
        return dict(self.snapshot.document.indices)

    @staticmethod
    def exists(uuid: str, store: Any) -> bool:
        """Whether the dataset exists in the store."""
        return find_snapshot(open_store(store), uuid) is not None

    @classmethod
    def load_from_store(cls, uuid: str, store: Any) -> DatasetMetadata:
        """Read a dataset's newest state; `DatasetNotFound` if it does not exist."""
        return cls(load_snapshot(open_store(store), uuid))

    def __repr__(self) -> str:
        return f"DatasetMetadata(uuid={self.uuid!r}, partitions={len(self.snapshot.partitions)}, partition_keys={self.partition_keys})"
