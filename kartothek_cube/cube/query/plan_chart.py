"""The chart of a query plan as a value, of bounded size for any number of partitions. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from kartothek_cube.core.arguments import pluralize
from kartothek_cube.core.arrow.keys import IntArray
from kartothek_cube.core.display import predicates_text
from kartothek_cube.core.expressions.predicates import Predicates
from kartothek_cube.cube.query.align import Aligned
from kartothek_cube.cube.query.intention import Intention
from kartothek_cube.cube.query.partitions import DatasetPartitions

__all__ = [
    "BANDS",
    "MOST_DATASETS",
    "MOST_ROWS",
    "Box",
    "Column",
    "PlanPicture",
    "Row",
    "bands",
    "picture_of",
    "show_value",
]

# Limits of a page. More partitions are drawn as bands of neighbours, more datasets as a number.
MOST_ROWS = 24
BANDS = 14
MOST_DATASETS = 10


@dataclass(frozen=True, slots=True)
class Column:
    """One dataset: its join, and its files in total, matched by the conditions, and read.

    ``join`` is ``"seed"``, ``"inner"`` or ``"left"``.
    """

    dataset: str
    join: str
    total: int
    matched: int
    read: int


@dataclass(frozen=True, slots=True)
class Box:
    """A dataset in a row: the number of its files, and of partitions where it has any."""

    files: int
    present: int


@dataclass(frozen=True, slots=True)
class Row:
    """An aligned partition, or a band of neighbouring ones.

    ``label`` has the values of the first partition, ``last`` those of the last one of a band, else
    nothing. ``short`` and ``short_last`` are the same without column names.
    """

    label: str
    last: str
    short: str
    short_last: str
    partitions: int
    boxes: tuple[Box, ...]


@dataclass(frozen=True, slots=True)
class PlanPicture:
    """The content of a plan's chart.

    Attributes
    ----------
    title : str
        The cube.
    notes : tuple of str
        The conditions and the outcome, a line each.
    by : tuple of str
        The partition columns, whose values label the rows.
    columns : tuple of Column
        The datasets, seed first.
    rows : tuple of Row
        The partitions that are read, in their order.
    more : int
        Number of datasets that are not drawn.
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
    """The chart of a plan, from its columns; ``read`` has the number of files read by dataset."""
    roles = intention.roles[:MOST_DATASETS]
    columns = []
    for role in roles:
        join = "seed" if role.is_seed else "inner" if role.restricts else "left"
        files = partitions[role.id]
        columns.append(Column(role.id, join, files.total, files.matched, read[role.id]))
    n_slices = len(slice_offsets) - 1
    starts = bands(n_slices, n_slices if n_slices <= MOST_ROWS else BANDS)
    widths = np.diff(starts)
    slice_of = np.repeat(np.arange(n_slices), np.diff(slice_offsets))
    band_of_slice = np.repeat(np.arange(len(widths)), widths)
    boxes = [
        _boxes(partitions[r.id], aligned.parts[r.id][slice_order], slice_of, band_of_slice, read[r.id]) for r in roles
    ]
    labels = _labels(aligned.keys, slice_order[slice_offsets[:-1]], starts, intention.cube.partition_columns)
    in_rows = zip(*boxes, strict=True)
    rows = [Row(*texts, int(n), row) for texts, n, row in zip(labels, widths, in_rows, strict=True)]
    total = pluralize(sum(p.total for p in partitions.values()), "file")
    by_group = f" in {groups:,} groups by {', '.join(intention.partition_by)}" if intention.partition_by else ""
    outcome = f"reads {sum(read.values()):,} of {total}: {pluralize(n_slices, 'aligned partition')}{by_group}"
    if len(widths) and widths[0] > 1:
        outcome = f"{outcome}; {int(widths[0]):,} partitions a row"
    clauses: Predicates | None = (tuple(intention.conjunction.clauses),) if intention.conjunction.clauses else None
    conditions = f"where {predicates_text(clauses)}" if clauses else "without conditions"
    title, by = f"Query of cube {intention.cube.uuid_prefix!r}", tuple(intention.cube.partition_columns)
    more = len(intention.roles) - len(roles)
    return PlanPicture(title, (conditions, outcome), by, tuple(columns), tuple(rows), more)


def bands(n: int, limit: int) -> IntArray:
    """The starts of at most ``limit`` equal bands of ``n`` items, and the end.

    Equal bands can be compared with each other; only the last one may be shorter.

    Examples
    --------
    >>> bands(7, 3).tolist(), bands(2, 3).tolist()
    ([0, 3, 6, 7], [0, 1, 2])
    """
    width = -(-n // max(limit, 1)) or 1
    return np.append(np.arange(0, n, width, dtype=np.int64), n)


def show_value(value: object) -> str:
    """A partition value in a label; the empty text is quoted, or it would be invisible.

    Examples
    --------
    >>> show_value("DE"), show_value("")
    ('DE', "''")
    """
    return str(value) or "''"


def _boxes(
    dataset: DatasetPartitions, parts: IntArray, slice_of: IntArray, band_of_slice: IntArray, n_files: int
) -> list[Box]:
    """The boxes of one dataset, one for each band."""
    has_part = parts >= 0
    n_bands, width = int(band_of_slice[-1]) + 1 if len(band_of_slice) else 0, max(n_files, 1)
    counts = dataset.offsets[parts[has_part] + 1] - dataset.offsets[parts[has_part]]
    # A file may be in several partitions of a band: count each pair of band and file once.
    band = np.repeat(band_of_slice[slice_of[has_part]], counts)
    files = np.bincount(np.unique(band * width + dataset.files_of(parts[has_part])) // width, minlength=n_bands)
    present = np.bincount(band_of_slice[np.unique(slice_of[has_part])], minlength=n_bands)
    return [Box(int(n), int(m)) for n, m in zip(files, present, strict=True)]


def _labels(
    keys: pa.Table, firsts: IntArray, starts: IntArray, columns: Sequence[str]
) -> list[tuple[str, str, str, str]]:
    """Label, last, short and short_last of each row; see `Row`."""
    edges = np.stack([starts[:-1], starts[1:] - 1], axis=1).ravel()
    values = keys.select(list(columns)).take(pa.array(firsts[edges])).to_pylist()
    full = [", ".join(f"{column}={show_value(value)}" for column, value in row.items()) for row in values]
    short = [", ".join(map(show_value, row.values())) for row in values]
    several = (np.diff(starts) > 1).tolist()
    return [(full[2 * i], full[2 * i + 1] * two, short[2 * i], short[2 * i + 1] * two) for i, two in enumerate(several)]
