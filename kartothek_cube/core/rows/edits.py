"""What happens to the rows of a file: deleted, updated, merged with a source. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.arrow.keys import Positions, take_chunked
from kartothek_cube.core.expressions.predicates import Mask, Predicates, filter_table, matching_rows
from kartothek_cube.core.rows.source import MergeSource
from kartothek_cube.errors import InvalidInput, InvalidType

__all__ = ["DeleteRows", "EditedRows", "Found", "MergeRows", "RowEdit", "UpdateRows", "Values", "WhenMatched"]

WhenMatched: TypeAlias = Literal["update", "ignore", "delete", "error"]

Values: TypeAlias = Mapping[str, pa.Scalar] | Callable[[pa.Table], pa.Table]
"""One value for each column, or a function of the matching rows of a file."""


class Found(NamedTuple):
    """Numbers of rows of a file: those that match, that are to be deleted, to be updated.

    ``sources`` has the positions of the source rows that they match.
    """

    matched: int
    deleted: int = 0
    updated: int = 0
    sources: Positions | None = None


class EditedRows(NamedTuple):
    """The rows of a file after an edit.

    ``kept`` is in the order of the file; the rows in ``moved`` belong to other partitions now.
    """

    kept: pa.Table
    moved: pa.Table


class RowEdit(Protocol):
    """A change of rows, which can be pickled."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that `find` needs."""

    @property
    def predicates(self) -> Predicates | None:
        """A condition that all rows satisfy which match or change."""

    def find(self, rows: pa.Table) -> Found:
        """The matches among the rows of a file that satisfy `predicates`."""

    def apply(self, rows: pa.Table) -> EditedRows:
        """Change all rows of a file, partition columns included."""


@dataclass(frozen=True, slots=True)
class DeleteRows:
    """Rows that satisfy the predicates are deleted."""

    predicates: Predicates
    columns: tuple[str, ...] = ()

    def find(self, rows: pa.Table) -> Found:
        """As in `RowEdit`."""
        return Found(rows.num_rows, deleted=rows.num_rows)

    def apply(self, rows: pa.Table) -> EditedRows:
        """As in `RowEdit`."""
        return EditedRows(filter_table(rows, ~matching_rows(rows, self.predicates)), rows.slice(0, 0))


@dataclass(frozen=True, slots=True)
class UpdateRows:
    """Rows that satisfy the predicates get other values; a function may not change ``fixed``."""

    predicates: Predicates
    values: Values
    partition_keys: tuple[str, ...]
    fixed: tuple[str, ...]
    dataset: str
    columns: tuple[str, ...] = ()

    def find(self, rows: pa.Table) -> Found:
        """As in `RowEdit`."""
        return Found(rows.num_rows, updated=rows.num_rows)

    def apply(self, rows: pa.Table) -> EditedRows:
        """As in `RowEdit`."""
        mask = matching_rows(rows, self.predicates)
        matching = filter_table(rows, mask)
        if callable(self.values):
            after = self._checked(self.values(matching), matching)
            new = {name: after.column(name) for name in after.column_names}
        else:
            repeated = {name: pa.repeat(value, matching.num_rows) for name, value in self.values.items()}
            new = {name: pa.chunked_array([values]) for name, values in repeated.items()}
        changed, moves = _with_values(rows, mask, new, self.partition_keys)
        return EditedRows(filter_table(changed, ~moves), filter_table(changed, moves))

    def _checked(self, after: object, before: pa.Table) -> pa.Table:
        """What the function returned; an error unless length and schema are as before."""
        subject = f"The function in values for dataset {self.dataset!r}"
        if not isinstance(after, pa.Table):
            raise InvalidType(f"{subject} should return a pyarrow.Table, but returned {type(after).__name__}.")
        if after.num_rows != before.num_rows:
            raise InvalidInput(f"{subject} returned {after.num_rows:,} rows for {before.num_rows:,}.")
        if sorted(after.column_names) != sorted(before.column_names):
            raise InvalidInput(f"{subject} returned the columns {after.column_names}, not {before.column_names}.")
        for name in before.column_names:
            given, expected = after.schema.field(name).type, before.schema.field(name).type
            if given != expected:
                raise InvalidType(f"{subject} returned {given} for column {name!r}, which is {expected}. Cast it.")
            if name in self.fixed and not after.column(name).equals(before.column(name)):
                raise InvalidInput(f"{subject} changed column {name!r}, which addresses the cells of a cube.")
            if name in self.partition_keys and after.column(name).null_count:
                raise InvalidInput(f"{subject} returned nulls for the partition column {name!r}.")
        return after


@dataclass(frozen=True, slots=True)
class MergeRows:
    """Rows with a key of a source are changed by its row; rows without one may be deleted."""

    source: MergeSource
    when_matched: WhenMatched
    deletes_others: bool
    partition_keys: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """As in `RowEdit`."""
        return self.source.on

    @property
    def predicates(self) -> Predicates | None:
        """As in `RowEdit`."""
        return None if self.deletes_others else self.source.ranges()

    def find(self, rows: pa.Table) -> Found:
        """As in `RowEdit`."""
        positions = self.source.positions(rows)
        sources = positions[positions >= 0]
        deleted = len(sources) if self.when_matched == "delete" else 0
        if self.deletes_others:
            deleted += len(positions) - len(sources)
        return Found(len(sources), deleted, len(sources) if self._updates else 0, np.unique(sources))

    def apply(self, rows: pa.Table) -> EditedRows:
        """As in `RowEdit`."""
        positions = self.source.positions(rows)
        is_matched: Mask = positions >= 0
        changed, moves = rows, np.zeros(len(positions), dtype=bool)
        if self._updates:
            found = take_chunked(self.source.rows.select(self.source.values), positions[is_matched].astype(np.int64))
            new = {name: found.column(name) for name in found.column_names}
            changed, moves = _with_values(rows, is_matched, new, self.partition_keys)
        # A row without a value in a key matches nothing, so it counts among the others.
        gone = np.zeros(len(positions), dtype=bool)
        if self.when_matched == "delete":
            gone |= is_matched
        if self.deletes_others:
            gone |= ~is_matched
        return EditedRows(filter_table(changed, ~(gone | moves)), filter_table(changed, moves))

    @property
    def _updates(self) -> bool:
        return self.when_matched == "update" and bool(self.source.values)


def _with_values(
    rows: pa.Table, mask: Mask, new: Mapping[str, pa.ChunkedArray], partition_keys: Sequence[str]
) -> tuple[pa.Table, Mask]:
    """The rows with new values where the mask is true, and which of them left their partition."""
    moves: Mask = np.zeros(rows.num_rows, dtype=bool)
    changed, chosen = rows, pa.array(mask)
    for name, values in new.items():
        field, old = rows.schema.field(name), rows.column(name)
        if name in partition_keys:
            # A null that a partition column gets here is refused when its path is made.
            moves[mask] |= ~pc.equal(old.filter(chosen), values).fill_null(False).to_numpy()
        replaced = _replaced(old, mask, values.cast(field.type))
        changed = changed.set_column(changed.schema.get_field_index(name), field, replaced)
    return changed, moves


def _replaced(column: pa.ChunkedArray, mask: Mask, values: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column with other values where the mask is true."""
    pieces, start, used = list[pa.Array](), 0, 0
    # Chunk by chunk: joined, the texts of a column may be longer than Arrow's offsets reach.
    for chunk in column.chunks:
        chosen = np.flatnonzero(mask[start : start + len(chunk)])
        order = np.arange(len(chunk))
        order[chosen] = len(chunk) + np.arange(len(chosen))
        both = pa.concat_arrays([chunk, *values.slice(used, len(chosen)).chunks]) if len(chosen) else chunk
        pieces.append(both.take(pa.array(order)) if len(chosen) else chunk)
        start, used = start + len(chunk), used + len(chosen)
    return pa.chunked_array(pieces, column.type)
