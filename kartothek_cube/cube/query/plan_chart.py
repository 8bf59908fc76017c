"""The plan of a query as a drawing: what is drawn as a value, made from a plan's columns, bounded however many partitions there are. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from kartothek_cube.core.arrow.sort_keys import IntArray
from kartothek_cube.core.display.explain import predicates_text
from kartothek_cube.core.expressions.predicates import Predicates
from kartothek_cube.core.text import pluralize
from kartothek_cube.cube.query.align import Aligned
from kartothek_cube.cube.query.intention import DatasetRole, Intention
from kartothek_cube.cube.query.partitions import DatasetPartitions

__all__ = [
    "BANDS",
    "MOST_DATASETS",
    "MOST_ROWS",
    "ChartCell",
    "Column",
    "PlanPicture",
    "Row",
    "bands",
    "picture_of",
    "show_value",
]

# What fits on a page; more partitions than rows are drawn as bands of neighbours, more datasets as
# a number.
MOST_ROWS = 24
BANDS = 14
MOST_DATASETS = 10


@dataclass(frozen=True, slots=True)
class Column:
    """One dataset: how it joins (``"seed"``, ``"inner"``, ``"left"``), its files, those left by the conditions, and those that are read."""

    dataset: str
    join: str
    total: int
    matched: int
    read: int


@dataclass(frozen=True, slots=True)
class ChartCell:
    """One dataset in one row: its files there, and in how many of the row's partitions it has some."""

    files: int
    present: int


@dataclass(frozen=True, slots=True)
class Row:
    """One aligned partition, or a band of neighbouring ones; ``label`` has the values of the first and ``last`` those of the last, if that is another one.

    ``short`` and ``short_last`` are the same without the names of the columns.
    """

    label: str
    last: str
    short: str
    short_last: str
    partitions: int
    cells: tuple[ChartCell, ...]


@dataclass(frozen=True, slots=True)
class PlanPicture:
    """What a drawing of a plan shows.

    Attributes
    ----------
    title : str
        What it is.
    notes : tuple of str
        What was asked for and what comes of it, a line each.
    by : tuple of str
        The columns whose values tell the rows apart.
    columns : tuple of Column
        The datasets, seed first.
    rows : tuple of Row
        The partitions that are read, in their order.
    more : int
        Datasets that are not drawn.
    """

    title: str
    notes: tuple[str, ...]
    by: tuple[str, ...]
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    more: int


def picture_of(
    intention: Intention,
    aligned: Aligned,
    slice_order: IntArray,
    slice_offsets: IntArray,
    partitions: Mapping[str, DatasetPartitions],
    read: Mapping[str, int],
    groups: int,
) -> PlanPicture:
    """What to draw of a plan, from its columns; ``read`` has the number of files that are read of each dataset."""
    roles = intention.roles[:MOST_DATASETS]
    columns = tuple(Column(r.id, _join(r), partitions[r.id].total, partitions[r.id].matched, read[r.id]) for r in roles)
    n_slices = len(slice_offsets) - 1
    starts = bands(n_slices, n_slices if n_slices <= MOST_ROWS else BANDS)
    slice_of = np.repeat(np.arange(n_slices), np.diff(slice_offsets))
    band_of_slice = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    cells = [
        _cells(partitions[r.id], aligned.parts[r.id][slice_order], slice_of, band_of_slice, read[r.id]) for r in roles
    ]
    labels = _labels(aligned.keys, slice_order[slice_offsets[:-1]], starts, intention.cube.partition_columns)
    rows = [
        Row(*texts, int(n), own)
        for texts, n, own in zip(labels, np.diff(starts), zip(*cells, strict=True), strict=True)
    ]
    notes = (_asked(intention), _outcome(intention, n_slices, groups, partitions, read) + _in_bands(starts))
    title, by = f"Query of cube {intention.cube.uuid_prefix!r}", tuple(intention.cube.partition_columns)
    return PlanPicture(title, notes, by, columns, tuple(rows), len(intention.roles) - len(roles))


def bands(n: int, most: int) -> IntArray:
    """Where each of at most ``most`` bands begins in ``n`` things, and the end.

    All are equally long, so that they can be compared; the last may be shorter.

    Examples
    --------
    >>> bands(7, 3).tolist(), bands(2, 3).tolist()
    ([0, 3, 6, 7], [0, 1, 2])
    """
    width = -(-n // max(most, 1)) or 1
    return np.append(np.arange(0, n, width, dtype=np.int64), n)


def show_value(value: object) -> str:
    """A partition value in a label; nothing would be overlooked.

    Examples
    --------
    >>> show_value("DE"), show_value("")
    ('DE', "''")
    """
    return str(value) or "''"


def _in_bands(starts: IntArray) -> str:
    width = int(starts[1] - starts[0]) if len(starts) > 1 else 1
    return f"; {width:,} partitions a row" if width > 1 else ""


def _join(role: DatasetRole) -> str:
    return "seed" if role.is_seed else "inner" if role.restricts else "left"


def _cells(
    own: DatasetPartitions, parts: IntArray, slice_of: IntArray, band_of_slice: IntArray, n_files: int
) -> list[ChartCell]:
    """Distinct files of one dataset, and the aligned partitions in which it has some, by band."""
    found = parts >= 0
    n_bands, width = int(band_of_slice[-1]) + 1 if len(band_of_slice) else 0, max(n_files, 1)
    counts = own.offsets[parts[found] + 1] - own.offsets[parts[found]]
    band = np.repeat(band_of_slice[slice_of[found]], counts)
    files = np.bincount(np.unique(band * width + own.files_of(parts[found])) // width, minlength=n_bands)
    present = np.bincount(band_of_slice[np.unique(slice_of[found])], minlength=n_bands)
    return [ChartCell(int(n), int(m)) for n, m in zip(files, present, strict=True)]


def _labels(
    keys: pa.Table, firsts: IntArray, starts: IntArray, columns: Sequence[str]
) -> list[tuple[str, str, str, str]]:
    """Values of the first and the last partition of each band, with and without columns; nothing for the last where the band is one partition."""
    edges = np.stack([starts[:-1], starts[1:] - 1], axis=1).ravel()
    values = keys.select(list(columns)).take(pa.array(firsts[edges])).to_pylist()
    full = [", ".join(f"{column}={show_value(value)}" for column, value in row.items()) for row in values]
    short = [", ".join(map(show_value, row.values())) for row in values]
    several = (np.diff(starts) > 1).tolist()
    return [(full[2 * i], full[2 * i + 1] * two, short[2 * i], short[2 * i + 1] * two) for i, two in enumerate(several)]


def _asked(intention: Intention) -> str:
    clauses: Predicates | None = (tuple(intention.conjunction.clauses),) if intention.conjunction.clauses else None
    return f"where {predicates_text(clauses)}" if clauses else "without conditions"


def _outcome(
    intention: Intention, n: int, groups: int, partitions: Mapping[str, DatasetPartitions], read: Mapping[str, int]
) -> str:
    total = sum(p.total for p in partitions.values())
    by = f" in {groups:,} groups by {', '.join(intention.partition_by)}" if intention.partition_by else ""
    return f"reads {sum(read.values()):,} of {pluralize(total, 'file')}: {n:,} aligned partition{'' if n == 1 else 's'}{by}"
