"""`Partition`, and kartothek's `combine_metadata`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from kartothek_cube.core.metadata.document import PartitionColumns, from_mapping
from kartothek_cube.errors import InvalidInput, InvalidType

__all__ = ["Partition", "combine_metadata", "partition_columns", "partition_map"]


@dataclass(frozen=True, slots=True)
class Partition:
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
