"""The facts of a report as values: structure, sizes, selectivity of indices, growth, advice."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from kartothek_cube.core.display import ChangeCounts, ChangedRow
from kartothek_cube.core.maintenance.inspection import Severity
from kartothek_cube.core.metadata.statistics import ColumnRange

__all__ = [
    "BETWEEN",
    "Advice",
    "ChangeFacts",
    "DatasetFacts",
    "Growth",
    "HeatMap",
    "Histogram",
    "IndexFacts",
    "ReportFacts",
    "TagFacts",
]

# Between the first and the last partition of a band.
BETWEEN = " … "


@dataclass(frozen=True, slots=True)
class DatasetFacts:
    """Columns and extent of one dataset.

    ``partitions`` counts physical partitions, ``files`` and ``bytes`` data files, and ``rows``
    stored rows, None if not counted. ``smallest``, ``median`` and ``largest`` are file sizes.
    ``ranges`` has the columns whose least and greatest value statistics know.
    """

    id: str
    is_seed: bool
    encoding: str
    dimensions: tuple[str, ...]
    partition_keys: tuple[str, ...]
    indices: tuple[str, ...]
    payload: Mapping[str, str]
    partitions: int
    files: int
    bytes: int
    rows: int | None
    smallest: int
    median: int
    largest: int
    ranges: Mapping[str, ColumnRange] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Bytes and rows of partitions × datasets.

    Attributes
    ----------
    datasets : tuple of str
        The columns.
    labels : tuple of str
        The rows: values of the partition columns; for a band of neighbouring partitions those of
        the first and of the last.
    partitions : tuple of int
        Number of partitions of each row; 0 for datasets that lack a partition column.
    bytes, rows : tuple of tuple
        One number for each row and dataset, None without a file. ``rows`` is empty if not counted.
    """

    datasets: tuple[str, ...]
    labels: tuple[str, ...]
    partitions: tuple[int, ...]
    bytes: tuple[tuple[int | None, ...], ...]
    rows: tuple[tuple[int | None, ...], ...]


@dataclass(frozen=True, slots=True)
class Histogram:
    """Files by size: ``counts[i]`` files have from ``edges[i]`` to below ``edges[i + 1]`` bytes."""

    edges: tuple[int, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class IndexFacts:
    """Selectivity of an index: distinct ``values``, all ``files``, files of one value.

    ``mean`` and ``most`` are the average and the maximum over the values.
    """

    dataset: str
    column: str
    type: str
    kind: str
    values: int
    files: int
    mean: float
    most: int


@dataclass(frozen=True, slots=True)
class Growth:
    """Number of files after each of the ``commits`` with kept history, oldest first.

    Of very many commits some are left out. An unknown moment is None. ``foreign``: another library
    wrote last.
    """

    dataset: str
    points: tuple[tuple[datetime | None, int], ...]
    commits: int
    foreign: bool


@dataclass(frozen=True, slots=True)
class TagFacts:
    """A tag of the cube: the last commit of its state, the time of that commit, the datasets."""

    name: str
    commit: str | None
    time: datetime | None
    datasets: int


@dataclass(frozen=True, slots=True)
class Advice:
    """A finding or a hint, with the call and the command that mend it, if any.

    ``call`` may also be advice in words. ``more`` lists further subjects with the same message;
    ``count`` includes those that are not listed.
    """

    severity: Severity
    check: str
    subject: str
    message: str
    call: str = ""
    command: str = ""
    more: tuple[str, ...] = ()
    count: int = 1


@dataclass(frozen=True, slots=True)
class ChangeFacts:
    """What changed since a commit or moment.

    Attributes
    ----------
    since : str
        The older state.
    counts : tuple
        Each dataset, with how many of its cells were inserted, updated, and deleted.
    columns : Mapping[str, str]
        Columns of a query with their types.
    first : tuple
        The first rows that changed: the kind of the change, then the values as text.
    partitions : tuple
        Whether partitions of the cube are ``changed``, ``new``, ``removed`` or ``unchanged`` by
        their files; how many are, and the values of the first ones.
    note : str
        Why nothing is known of the changes.
    """

    since: str
    counts: tuple[ChangeCounts, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    first: tuple[ChangedRow, ...] = ()
    partitions: tuple[tuple[str, int, tuple[str, ...]], ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class ReportFacts:
    """Everything that a report of a cube shows.

    Attributes
    ----------
    uuid_prefix, store : str
        The cube and its store, without credentials.
    made : datetime
        The moment of the report.
    dimensions, partitions : Mapping[str, str]
        Columns of the cube with their types; empty if the metadata describe no cube.
    datasets, indices, growth, advice : tuple
        One entry for each dataset, index, dataset, finding.
    heat : HeatMap
        Partitions × datasets.
    sizes : Histogram
        Sizes of all files.
    changes : ChangeFacts, optional
        What changed since a state, if one was asked for.
    tags : tuple
        The tags of the cube.
    """

    uuid_prefix: str
    store: str
    made: datetime
    dimensions: Mapping[str, str]
    partitions: Mapping[str, str]
    datasets: tuple[DatasetFacts, ...]
    heat: HeatMap
    sizes: Histogram
    indices: tuple[IndexFacts, ...]
    growth: tuple[Growth, ...]
    advice: tuple[Advice, ...]
    changes: ChangeFacts | None = None
    tags: tuple[TagFacts, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The facts as plain dicts and lists."""
        plain: dict[str, Any] = json.loads(self.to_json())
        return plain

    def to_json(self) -> str:
        """The facts as JSON."""

        def plain(value: object) -> object:
            if isinstance(value, datetime):
                return value.isoformat()
            return dict(value) if isinstance(value, Mapping) else str(value)

        return json.dumps(asdict(self), default=plain, indent=2)
