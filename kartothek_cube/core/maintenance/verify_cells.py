"""What a pass over the rows of a file finds: distinct values, partition columns inside, and the order, nulls and repetitions of cells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from kartothek_cube.core.rowkeys import pack_one

__all__ = ["CellPass", "Contradictions", "DistinctValues", "examples", "known_values"]

_EXAMPLES = 3
_LONGEST = 60


def examples(values: pa.Array | pa.ChunkedArray) -> str:
    """The first values as text."""
    shown = [repr(v)[:_LONGEST] for v in values.slice(0, _EXAMPLES).to_pylist()]
    return ", ".join(shown) + (", …" if len(values) > _EXAMPLES else "")


def known_values(column: pa.ChunkedArray | pa.Array, kind: pa.DataType) -> pa.Array:
    """The distinct values in the type of an index, without null and NaN."""
    values = pc.unique(column.cast(kind)).drop_null()
    if not pt.is_floating(kind):
        return values
    values = pc.unique(pc.add(values, 0.0))  # -0.0 and 0.0 are one value
    return values.filter(pc.invert(pc.is_nan(values)))


class DistinctValues:
    """The distinct values of indexed columns that some rows have, and how many rows have none."""

    def __init__(self, kinds: Mapping[str, pa.DataType]) -> None:
        self._kinds = kinds
        self.values = {column: pa.array([], type=kind) for column, kind in kinds.items()}
        self.nulls = dict.fromkeys(kinds, 0)

    def add(self, rows: pa.Table) -> None:
        """Look at more rows."""
        for column in self._kinds.keys() & set(rows.column_names):
            kind, values = self._kinds[column], rows.column(column)
            self.values[column] = pc.unique(pa.concat_arrays([self.values[column], known_values(values, kind)]))
            self.nulls[column] += int(pc.sum(pc.is_null(values, nan_is_null=True)).as_py() or 0)


class Contradictions:
    """Rows whose partition columns inside the file say something else than its path."""

    def __init__(self, constants: Mapping[str, pa.Scalar]) -> None:
        self._constants = constants
        self.rows = dict.fromkeys(constants, 0)

    def add(self, rows: pa.Table) -> None:
        """Look at more rows."""
        for column, value in self._constants.items():
            same = pc.fill_null(pc.equal(rows.column(column).cast(value.type), value), False)
            self.rows[column] += rows.num_rows - int(pc.sum(same).as_py() or 0)


@dataclass(slots=True)
class CellPass:
    """Whether the cells of a file are sorted, how many rows repeat the one before, and how many have a null in each column.

    Rows come in pieces. In a sorted file the repetitions are all of them; in another one more may lie apart.
    """

    columns: Sequence[str]
    is_sorted: bool = True
    repeated: int = 0
    nulls: dict[str, int] = field(default_factory=dict)
    example: dict[str, Any] = field(default_factory=dict)
    _last: pa.Table | None = None

    def add(self, rows: pa.Table) -> None:
        """Look at more rows."""
        cells = rows.select(list(self.columns))
        for column, count in _null_counts(cells):
            self.nulls[column] = self.nulls.get(column, 0) + count
        joined = cells if self._last is None else pa.concat_tables([self._last, cells])
        keys = pack_one(joined, self.columns)
        self.is_sorted = self.is_sorted and bool(np.all(keys[1:] >= keys[:-1]))
        self._count(joined, np.flatnonzero(keys[1:] == keys[:-1]))
        self._last = cells.slice(max(0, cells.num_rows - 1))

    def count_all(self, cells: pa.Table) -> None:
        """The repetitions in the cells of the whole file, which are not sorted."""
        keys = pack_one(cells, self.columns)
        order = np.argsort(keys, kind="stable")
        self.repeated = 0
        self._count(cells, order[1:][keys[order[1:]] == keys[order[:-1]]])

    def _count(self, cells: pa.Table, positions: np.ndarray[Any, Any]) -> None:
        self.repeated += len(positions)
        if len(positions) and not self.example:
            self.example = cells.slice(int(positions[0]), 1).to_pylist()[0]


def _null_counts(cells: pa.Table) -> Iterator[tuple[str, int]]:
    for column in cells.column_names:
        count = int(pc.sum(pc.is_null(cells.column(column), nan_is_null=True)).as_py() or 0)
        if count:
            yield column, count
