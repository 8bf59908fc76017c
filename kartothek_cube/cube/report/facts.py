"""The facts of a report, measured from snapshots, files, indices and history. Pure.

In order:

- structure, sizes, selectivity of indices, growth, advice
- how they are measured
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.arrow.keys import IntArray, pack, take_rows
from kartothek_cube.core.display import ChangeCounts, ChangedRow
from kartothek_cube.core.maintenance.inspection import Severity
from kartothek_cube.core.metadata.history_entry import HistoryEntry
from kartothek_cube.core.metadata.index import SecondaryIndex, grouped, number_of_labels
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.metadata.statistics import ColumnRange
from kartothek_cube.cube.cube import Cube, get_payload_subset, visible_columns
from kartothek_cube.cube.query.picture import bands, show_value
from kartothek_cube.cube.query.plan import StatePlan, changed_pairs

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
    delta : Mapping
        Dataset id → at which version its Delta table is, of those that are one.
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
    delta: Mapping[str, str] = field(default_factory=dict)

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


# --- how they are measured ------------------------------------------------------------------------


# The most that a page shows well.
_MAX_ROWS = 30
_MAX_POINTS = 240
_MAX_LABELS = 12
# Half decades, from 1 kB to 3 TB.
_EDGES = (0, *(d * 10**e for e in range(3, 13) for d in (1, 3)))


@dataclass(frozen=True, slots=True)
class CubeStatistics:
    """A dataset with the size of each file, 0 if unknown, readable indices and history.

    ``rows`` has the rows of each file; None if they were not counted. ``ranges`` has least and
    greatest values of columns.
    """

    snapshot: Snapshot
    sizes: IntArray
    rows: IntArray | None
    indices: Mapping[str, SecondaryIndex]
    history: Sequence[HistoryEntry] = ()
    ranges: Mapping[str, ColumnRange] = field(default_factory=dict)


def dataset_facts(name: str, statistics: CubeStatistics, cube: Cube | None) -> DatasetFacts:
    """Columns and sizes of one dataset."""
    snapshot, sizes = statistics.snapshot, statistics.sizes
    columns = visible_columns(snapshot.schema.names)
    dimensions = tuple(c for c in cube.dimension_columns if c in columns) if cube is not None else ()
    payload = get_payload_subset(columns, cube) if cube is not None else columns
    smallest, median, largest = np.quantile(sizes, (0, 0.5, 1)).astype(int).tolist() if len(sizes) else (0, 0, 0)
    return DatasetFacts(
        id=name,
        is_seed=cube is not None and name == cube.seed_dataset,
        encoding="msgpack" if snapshot.is_msgpack else "JSON",
        dimensions=dimensions,
        partition_keys=snapshot.partition_keys,
        indices=tuple(sorted(snapshot.secondary_columns)),
        payload={c: str(snapshot.schema.field(c).type) for c in sorted(payload)},
        partitions=len(np.unique(snapshot.physical_partitions())),
        files=len(sizes),
        bytes=int(sizes.sum()),
        rows=None if statistics.rows is None else int(statistics.rows.sum()),
        smallest=smallest,
        median=median,
        largest=largest,
        ranges=dict(statistics.ranges),
    )


# --- partitions × datasets ----------------------------------------------------------------------


def heat_map(statistics: Mapping[str, CubeStatistics], columns: Sequence[str]) -> HeatMap:
    """Bytes and rows by partition and dataset.

    More partitions than fit are shown as bands. Datasets that lack a partition column share a row.
    """
    value_names = {name: {*s.snapshot.values.column_names} for name, s in statistics.items()}
    whole = {name: s.snapshot.values for name, s in statistics.items() if columns and value_names[name] >= {*columns}}
    keys = dict(zip(whole, pack(list(whole.values()), columns), strict=True)) if whole else {}
    distinct = firsts = np.zeros(0, np.int64)
    if keys:
        distinct, firsts = np.unique(np.concatenate(list(keys.values())), return_index=True)
    starts = bands(len(distinct), _MAX_ROWS)
    n_bands = len(starts) - 1
    band_of = np.repeat(np.arange(n_bands), np.diff(starts))
    # Datasets that lack a partition column go to one more row, behind the bands.
    row_of = {name: np.full(len(s.sizes), n_bands, dtype=np.int64) for name, s in statistics.items()}
    row_of |= {name: band_of[np.searchsorted(distinct, keys[name])] for name in whole}
    has_rest = any(len(s.sizes) for name, s in statistics.items() if name not in whole)
    labels = _labels([values.select(list(columns)) for values in whole.values()], firsts, starts)
    sizes = [(row_of[name], s.sizes) for name, s in statistics.items()]
    counts = [(row_of[name], s.rows) for name, s in statistics.items() if s.rows is not None]
    return HeatMap(
        datasets=tuple(statistics),
        labels=(*labels, *(["every partition"] if has_rest else [])),
        partitions=(*np.diff(starts).tolist(), *([0] if has_rest else [])),
        bytes=_sums(sizes, n_bands + has_rest),
        rows=_sums(counts, n_bands + has_rest) if len(counts) == len(statistics) else (),
    )


def _sums(figures: Sequence[tuple[IntArray, IntArray]], n_rows: int) -> tuple[tuple[int | None, ...], ...]:
    """For each row and dataset the sum of the figures; None without any.

    A dataset has the row of each of its files, and the figure of each.
    """
    sums = [np.bincount(rows, weights=values, minlength=n_rows).astype(np.int64).tolist() for rows, values in figures]
    has_file = [(np.bincount(rows, minlength=n_rows) > 0).tolist() for rows, _ in figures]
    columns = list(zip(sums, has_file, strict=True))
    return tuple(tuple(s[row] if has[row] else None for s, has in columns) for row in range(n_rows))


def _labels(values: Sequence[pa.Table], firsts: IntArray, starts: IntArray) -> list[str]:
    """The partition values of the first and the last partition of each band."""
    ends = np.cumsum([t.num_rows for t in values])

    def label(position: int) -> str:
        first = int(firsts[position])
        owner = int(np.searchsorted(ends, first, side="right"))
        row = values[owner].slice(first - (int(ends[owner - 1]) if owner else 0), 1).to_pylist()[0]
        return ", ".join(map(show_value, row.values()))

    edges = ((int(a), int(b) - 1) for a, b in pairwise(starts))
    return [label(a) if a == b else f"{label(a)}{BETWEEN}{label(b)}" for a, b in edges]


def changed_partitions(before: StatePlan, after: StatePlan) -> tuple[tuple[str, int, tuple[str, ...]], ...]:
    """The partitions of a cube whose files differ in two states, as `ChangeFacts` has them."""
    then, now = changed_pairs(before, after)
    keys = [state.plan.group_keys() for state in (before, after)]
    kinds = {"changed": (now[(now >= 0) & (then >= 0)], 1), "new": (now[then < 0], 1), "removed": (then[now < 0], 0)}
    found = []
    for kind, (positions, side) in kinds.items():
        rows = take_rows(keys[side], np.sort(positions)[:_MAX_LABELS]).to_pylist()
        found.append((kind, len(positions), tuple(", ".join(map(show_value, row.values())) for row in rows)))
    same = keys[1].num_rows - int(np.count_nonzero(now >= 0))
    return (*found, ("unchanged", same, ()))


# --- sizes, indices, growth -----------------------------------------------------------------------


def histogram(sizes: IntArray) -> Histogram:
    """Count files by size, in half decades, from the first that is not empty to the last.

    Examples
    --------
    >>> histogram(np.array([1_500, 2_000, 20_000]))
    Histogram(edges=(1000, 3000, 10000, 30000), counts=(2, 0, 1))
    """
    counts, _ = np.histogram(sizes, bins=_EDGES)
    filled = np.flatnonzero(counts)
    if not len(filled):
        return Histogram((), ())
    first, last = int(filled[0]), int(filled[-1])
    return Histogram(_EDGES[first : last + 2], tuple(counts[first : last + 1].tolist()))


def index_facts(name: str, statistics: CubeStatistics) -> list[IndexFacts]:
    """Selectivity of the partition columns and the secondary indices of a dataset."""
    partition_values, files = statistics.snapshot.values, len(statistics.sizes)
    keys = [c for c in statistics.snapshot.partition_keys if c in partition_values.column_names]
    found = []
    for column in keys:
        values = partition_values.column(column)
        found.append((column, "partition", values.type, np.asarray(pc.value_counts(values).field("counts"))))
    for column, index in sorted(statistics.indices.items()):
        # Each value once, with the list of its files: the pairs may be many millions.
        found.append((column, "secondary", index.type, number_of_labels(grouped(index).lists)))
    facts = []
    for column, kind, data_type, counts in found:
        mean, most = (float(counts.mean()), int(counts.max())) if len(counts) else (0.0, 0)
        facts.append(IndexFacts(name, column, str(data_type), kind, len(counts), files, mean, most))
    return facts


def growth_of(name: str, statistics: CubeStatistics) -> Growth:
    """The number of files after each commit, computed backwards from the current files."""
    snapshot = statistics.snapshot
    entries = {entry.commit: entry for entry in statistics.history}
    n, points, commits = len(snapshot.partitions), [], 0
    commit = None if snapshot.has_foreign_commit else snapshot.chain[-1].id
    while commit is not None and commit in entries:
        entry = entries.pop(commit)
        points.append((entry.time, n))
        commits += 1
        n, commit = n - len(entry.added) + len(entry.removed), entry.parent
        if entry.before is None:
            points.append((entry.time, 0))
    points.reverse()
    step = -(-len(points) // _MAX_POINTS) or 1
    kept = [p for i, p in enumerate(points) if i % step == 0 or i == len(points) - 1]
    return Growth(name, tuple(kept), commits, snapshot.has_foreign_commit)
