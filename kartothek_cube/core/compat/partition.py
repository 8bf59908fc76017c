"""`Partition`: the files of one label, and the columns of a document as a map of such."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kartothek_cube.core.metadata.partitions import PartitionColumns, from_mapping
from kartothek_cube.errors import InvalidInput, InvalidType

__all__ = ["Partition", "partition_columns", "partition_map"]


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition of a dataset.

    Attributes
    ----------
    label : str
        Its name, by which the indices refer to it.
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
        """As it stands in a document."""
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
    return {label: Partition(label, {t: f[i] for t, f in lists.items() if f[i] is not None}) for i, label in enumerate(labels)}


def partition_columns(partitions: object, where: str) -> PartitionColumns:
    """The columns of a map label → `Partition`, or label → ``{"files": {table: key}}``."""
    if not isinstance(partitions, Mapping):
        raise InvalidType(f"The partitions of dataset {where!r} should be a dict label → Partition, but are {type(partitions).__name__}.")
    wrong = [label for label in partitions if not isinstance(label, str)]
    if wrong:
        raise InvalidType(f"The labels of the partitions of dataset {where!r} are text, but there is {wrong[0]!r}.")
    return from_mapping({label: p.to_dict() if isinstance(p, Partition) else p for label, p in partitions.items()}, where)
