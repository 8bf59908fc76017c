"""Figures of a cube from its snapshots, the sizes and rows of its files, and its indices. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.arrow.sort_keys import IntArray, pack
from kartothek_cube.core.metadata.history_entry import HistoryEntry
from kartothek_cube.core.metadata.index import SecondaryIndex
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.cube.cube import Cube, get_payload_subset, visible_columns
from kartothek_cube.cube.query.plan_chart import bands, show_value
from kartothek_cube.cube.report.facts import BETWEEN, DatasetFacts, Growth, HeatMap, Histogram, IndexFacts

__all__ = ["CubeStatistics", "dataset_facts", "growth_of", "heat_map", "histogram", "index_facts"]

_MOST_ROWS = 30
_MOST_POINTS = 240
_EDGES = (0, *(d * 10**e for e in range(3, 13) for d in (1, 3)))


@dataclass(frozen=True, slots=True)
class CubeStatistics:
    """A dataset with the size of each of its files, as far as the store says it, the rows if they were counted, and the indices that can be read."""

    snapshot: Snapshot
    sizes: IntArray
    rows: IntArray | None
    indices: Mapping[str, SecondaryIndex]
    history: Sequence[HistoryEntry] = ()


def dataset_facts(name: str, found: CubeStatistics, cube: Cube | None) -> DatasetFacts:
    """Columns and sizes of one dataset."""
    snapshot, sizes = found.snapshot, found.sizes
    columns = visible_columns(snapshot.schema.names)
    dimensions = tuple(c for c in cube.dimension_columns if c in columns) if cube is not None else ()
    payload = get_payload_subset(columns, cube) if cube is not None else columns
    least, middle, most = np.quantile(sizes, (0, 0.5, 1)).astype(int).tolist() if len(sizes) else (0, 0, 0)
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
        rows=None if found.rows is None else int(found.rows.sum()),
        smallest=least,
        median=middle,
        largest=most,
    )


# --- partitions × datasets ------------------------------------------------------------------------


def heat_map(measured: Mapping[str, CubeStatistics], columns: Sequence[str]) -> HeatMap:
    """Bytes and rows by partition and dataset.

    More partitions than fit are put into bands; what lacks a partition column is one row of its
    own.
    """
    whole = {i: m for i, m in measured.items() if columns and set(columns) <= {*m.snapshot.values.column_names}}
    keys = dict(zip(whole, pack([m.snapshot.values for m in whole.values()], columns), strict=True)) if whole else {}
    distinct, firsts = (
        np.unique(np.concatenate(list(keys.values())), return_index=True) if keys else (np.zeros(0, np.int64),) * 2
    )
    starts = bands(len(distinct), _MOST_ROWS)
    band_of = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    where = {i: band_of[np.searchsorted(distinct, keys[i])] for i in whole}
    n, lacks = len(starts) - 1, any(len(m.sizes) for i, m in measured.items() if i not in whole)
    # The last row is that of the datasets which are not cut by all partition columns.
    rows_of = {i: where.get(i, np.full(len(m.sizes), n, dtype=np.int64)) for i, m in measured.items()}
    labels = _labels([m.snapshot.values.select(list(columns)) for m in whole.values()], firsts, starts)
    return HeatMap(
        datasets=tuple(measured),
        labels=(*labels, *(["every partition"] if lacks else [])),
        partitions=(*np.diff(starts).tolist(), *([0] if lacks else [])),
        bytes=_sums([(rows_of[i], m.sizes) for i, m in measured.items()], n + lacks),
        rows=_sums([(rows_of[i], m.rows) for i, m in measured.items() if m.rows is not None], n + lacks)
        if _counted(measured)
        else (),
    )


def _counted(measured: Mapping[str, CubeStatistics]) -> bool:
    return all(m.rows is not None for m in measured.values())


def _sums(parts: Sequence[tuple[IntArray, IntArray]], n: int) -> tuple[tuple[int | None, ...], ...]:
    """For each row and dataset the sum of its numbers; None where it has none."""
    sums = [np.bincount(where, weights=numbers, minlength=n).astype(np.int64).tolist() for where, numbers in parts]
    there = [(np.bincount(where, minlength=n) > 0).tolist() for where, _ in parts]
    return tuple(tuple(s[row] if t[row] else None for s, t in zip(sums, there, strict=True)) for row in range(n))


def _labels(values: Sequence[pa.Table], firsts: IntArray, starts: IntArray) -> list[str]:
    """The partition values of the first and the last partition of each band."""
    ends = np.cumsum([t.num_rows for t in values])

    def label(position: int) -> str:
        at = int(firsts[position])
        owner = int(np.searchsorted(ends, at, side="right"))
        row = values[owner].slice(at - (int(ends[owner - 1]) if owner else 0), 1).to_pylist()[0]
        return ", ".join(map(show_value, row.values()))

    edges = ((int(a), int(b) - 1) for a, b in pairwise(starts))
    return [label(a) if a == b else f"{label(a)}{BETWEEN}{label(b)}" for a, b in edges]


# --- sizes, indices, growth -----------------------------------------------------------------------


def histogram(sizes: IntArray) -> Histogram:
    """Numbers of files by size, in half decades; from the first that has some to the last.

    Examples
    --------
    >>> histogram(np.array([1_500, 2_000, 20_000]))
    Histogram(edges=(1000, 3000, 10000, 30000), counts=(2, 0, 1))
    """
    counts, _ = np.histogram(sizes, bins=_EDGES)
    found = np.flatnonzero(counts)
    first, last = (int(found[0]), int(found[-1])) if len(found) else (0, -1)
    return Histogram(_EDGES[first : last + 2] if len(found) else (), tuple(counts[first : last + 1].tolist()))


def index_facts(name: str, found: CubeStatistics) -> list[IndexFacts]:
    """How well the partition columns and the secondary indices of a dataset tell its files apart."""
    snapshot = found.snapshot
    keys = {c: snapshot.values.column(c) for c in snapshot.partition_keys if c in snapshot.values.column_names}
    partitions = [_selectivity(name, c, "partition", values, len(found.sizes)) for c, values in keys.items()]
    return partitions + [
        _selectivity(name, c, "secondary", i.values, len(found.sizes)) for c, i in sorted(found.indices.items())
    ]


def _selectivity(dataset: str, column: str, kind: str, values: pa.Array | pa.ChunkedArray, files: int) -> IndexFacts:
    """The pairs of a value and a file are given by their values."""
    counts = np.asarray(pc.value_counts(values).field("counts"))
    mean, most = (float(counts.mean()), int(counts.max())) if len(counts) else (0.0, 0)
    return IndexFacts(dataset, column, str(values.type), kind, len(counts), files, mean, most)


def growth_of(name: str, found: CubeStatistics) -> Growth:
    """The files after each commit, by going back from those that there are."""
    snapshot = found.snapshot
    entries = {entry.commit: entry for entry in found.history}
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
    step = -(-len(points) // _MOST_POINTS) or 1
    kept = [p for i, p in enumerate(points) if i % step == 0 or i == len(points) - 1]
    return Growth(name, tuple(kept), commits, snapshot.has_foreign_commit)
