"""What a report of a cube says, as values without a picture: structure, sizes, selectivity of indices, growth, health."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from kartothek_cube.core.maintenance.verify.report import Severity

__all__ = ["BETWEEN", "Advice", "DatasetFacts", "Growth", "HeatMap", "Histogram", "IndexFacts", "ReportFacts"]

# Between the first and the last partition of a band.
BETWEEN = " … "


@dataclass(frozen=True, slots=True)
class DatasetFacts:
    """One dataset: its columns, and how much there is of it.

    ``partitions`` are physical ones, ``files`` and ``bytes`` those of its data; ``rows`` are stored
    rows, None if they were not counted. ``smallest``, ``median`` and ``largest`` are sizes of
    files.
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


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Bytes and rows of partitions × datasets.

    Attributes
    ----------
    datasets : tuple of str
        The columns.
    labels : tuple of str
        The rows: values of the partition columns; of a band of neighbouring partitions those of the
        first and the last.
    partitions : tuple of int
        How many partitions each row has; 0 for the row of what is not cut by all partition columns.
    bytes, rows : tuple of tuple
        One number for each row and dataset, None where there is no file; ``rows`` is empty if rows
        were not counted.
    """

    datasets: tuple[str, ...]
    labels: tuple[str, ...]
    partitions: tuple[int, ...]
    bytes: tuple[tuple[int | None, ...], ...]
    rows: tuple[tuple[int | None, ...], ...]


@dataclass(frozen=True, slots=True)
class Histogram:
    """Numbers of files by size: ``counts[i]`` files have at least ``edges[i]`` bytes, and less than ``edges[i + 1]``."""

    edges: tuple[int, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class IndexFacts:
    """How well an index tells files apart: its distinct values, and the files that one value leaves of all, on average and at most."""

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
    """Files of a dataset after each of the ``commits`` whose history is kept, oldest first; of very many commits some are left out.

    A moment is None where it is not known. ``foreign``: another library wrote last.
    """

    dataset: str
    points: tuple[tuple[datetime | None, int], ...]
    commits: int
    foreign: bool


@dataclass(frozen=True, slots=True)
class Advice:
    """Something to know or to mend, with the call and the command that mend it, if there are such.

    ``call`` may also say in words what to do. ``more`` are further subjects of which the same is
    true, and ``count`` says how many there are with those that are not listed.
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
class ReportFacts:
    """Everything that a report of a cube shows.

    Attributes
    ----------
    uuid_prefix, store : str
        The cube, and where it lies, without credentials.
    made : datetime
        When it was looked at.
    dimensions, partitions : Mapping[str, str]
        Columns of the cube with their types; empty where the metadata describe no cube.
    datasets, indices, growth, advice : tuple
        One entry for each dataset, index, dataset, finding.
    heat : HeatMap
        Partitions × datasets.
    sizes : Histogram
        Sizes of all files.
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

    def to_dict(self) -> dict[str, Any]:
        """The facts as plain dicts and lists."""
        plain: dict[str, Any] = json.loads(self.to_json())
        return plain

    def to_json(self) -> str:
        """The facts as JSON."""
        return json.dumps(asdict(self), default=_plain, indent=2)


def _plain(value: object) -> object:
    return (
        value.isoformat() if isinstance(value, datetime) else dict(value) if isinstance(value, Mapping) else str(value)
    )
