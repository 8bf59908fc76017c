"""The rows of a merge: one for each key, and the search for the keys of other rows. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from kartothek_cube.core.arrow.keys import KeyIndex, Positions, take_chunked
from kartothek_cube.core.expressions.predicates import Clause, Predicates
from kartothek_cube.errors import InvalidInput

# With fewer rows than this part of the source, its keys are narrowed down first.
_FEW = 16

__all__ = ["MergeSource", "SourceKeys", "check_keys", "check_no_nulls"]


class SourceKeys(Protocol):
    """The keys of a merge, wherever its rows are."""

    @property
    def on(self) -> tuple[str, ...]:
        """The key columns; none has nulls."""

    @property
    def num_rows(self) -> int:
        """The number of rows, each with another key."""

    @property
    def listed(self) -> frozenset[str]:
        """The key columns whose values are known: where an index or partition values have them."""

    def distinct(self, column: str) -> pa.Array:
        """The distinct values of a key column."""

    def combinations(self, columns: Sequence[str]) -> pa.Table:
        """All combinations of values of some key columns, perhaps several times."""

    def range_of(self, column: str) -> tuple[Clause, ...]:
        """A condition that all values of a key column satisfy."""

    def key(self, number: int) -> dict[str, Any]:
        """The key of a row."""


@dataclass(frozen=True)
class MergeSource:
    """Rows with one row for each key, in the types of the dataset.

    Attributes
    ----------
    rows : pyarrow.Table
        All rows, perhaps in a file that is mapped into memory.
    on : tuple of str
        The key columns; none has nulls.
    """

    rows: pa.Table
    on: tuple[str, ...]
    values: list[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", [c for c in self.rows.column_names if c not in self.on])

    def __reduce__(self) -> tuple[object, ...]:
        return MergeSource, (self.rows, self.on)

    # Built once: all threads that look for keys share it.
    @cached_property
    def _index(self) -> KeyIndex:
        return KeyIndex(self.rows, self.on, few_hits=True)

    @property
    def is_unique(self) -> bool:
        """Whether each key occurs once."""
        return self._index.is_unique

    @property
    def num_rows(self) -> int:
        """As in `SourceKeys`."""
        return int(self.rows.num_rows)

    @property
    def listed(self) -> frozenset[str]:
        """As in `SourceKeys`."""
        return frozenset(self.on)

    def combinations(self, columns: Sequence[str]) -> pa.Table:
        """As in `SourceKeys`."""
        return self.rows.select(list(columns))

    def key(self, number: int) -> dict[str, Any]:
        """As in `SourceKeys`."""
        return dict(self.rows.select(list(self.on)).slice(number, 1).to_pylist()[0])

    def positions(self, rows: pa.Table) -> Positions:
        """For each of these rows the position of the source row with its key, or -1."""
        pairs = [(self.rows.column(c), rows.column(c)) for c in self.on]
        can_narrow = all(mine.type.equals(other.type) and not pt.is_decimal(mine.type) for mine, other in pairs)
        if self._index.is_numeric or rows.num_rows * _FEW > self.num_rows or not can_narrow:
            return self._index.positions(rows)
        # A search in all keys costs the source again for types without a direct table, so what the
        # few rows cannot have is left out first.
        near = np.ones(self.num_rows, dtype=bool)
        for mine, others in pairs:
            # With zero added, 0.0 and -0.0 are one key.
            values, wanted = (pc.add(v, 0.0) if pt.is_floating(v.type) else v for v in (mine, pc.unique(others)))
            near &= pc.is_in(values, value_set=wanted).to_numpy()
        places = np.flatnonzero(near)
        found = KeyIndex(take_chunked(self.rows.select(list(self.on)), places), self.on).positions(rows)
        return np.where(found >= 0, places[found], -1) if len(places) else np.full(rows.num_rows, -1)

    def distinct(self, column: str) -> pa.Array:
        """The distinct values of a key column."""
        return self._distinct[column]

    def ranges(self) -> Predicates | None:
        """A condition that all keys satisfy: between least and greatest value."""
        clauses = tuple(clause for column in self.on for clause in self.range_of(column))
        return (clauses,) if clauses else None

    def range_of(self, column: str) -> tuple[Clause, ...]:
        """The clauses of `ranges` on one column: the least and the greatest value, or none."""
        return self._ranges[column]

    @cached_property
    def _distinct(self) -> dict[str, pa.Array]:
        return {column: pc.unique(self.rows.column(column)) for column in self.on}

    @cached_property
    def _ranges(self) -> dict[str, tuple[Clause, ...]]:
        return {column: _range(column, values) for column, values in self._distinct.items()}


def _range(column: str, values: pa.Array) -> tuple[Clause, ...]:
    data_type = values.type
    # Other types have no order in conditions, or constants that lose digits.
    is_plain = pt.is_integer(data_type) or pt.is_floating(data_type) or pt.is_string(data_type)
    is_time = pt.is_date(data_type) or (pt.is_timestamp(data_type) and data_type.tz is None and data_type.unit != "ns")
    if not len(values) or not (is_plain or is_time):
        return ()
    ends = pc.min_max(values)
    try:
        return Clause(column, ">=", ends["min"].as_py()), Clause(column, "<=", ends["max"].as_py())
    except (OverflowError, ValueError):  # Python knows no years beyond 9999
        return ()


def check_keys(source: MergeSource, dataset: str) -> None:
    """Raise if a key of the source occurs twice."""
    if source.is_unique:
        return
    positions = source.positions(source.rows)
    others = np.flatnonzero(positions != np.arange(len(positions)))
    if len(others):
        raise InvalidInput(
            f"The rows to be merged into dataset {dataset!r} have the key {source.key(int(others[0]))} twice. "
            "Which of the two rows should win? Give one row for each key."
        )


def check_no_nulls(rows: pa.Table, on: Sequence[str], dataset: str) -> None:
    """Raise if a key has a null or NaN."""
    for column in on:
        values = rows.column(column)
        nulls = int(pc.sum(pc.is_null(values, nan_is_null=pt.is_floating(values.type))).as_py() or 0)
        if nulls:
            raise InvalidInput(
                f"{nulls:,} rows to be merged into dataset {dataset!r} have no value in the key column {column!r}. "
                "A key without a value matches no row; leave such rows out, or append them."
            )
