"""The least and the greatest value of each column of a dataset, as far as statistics tell. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.metadata.file_statistics import FileStatistics

__all__ = ["ColumnRange", "column_ranges", "known_rows"]

# A shorter lower bound was not cut.
_CUT = 32


@dataclass(frozen=True, slots=True)
class ColumnRange:
    """The least and the greatest value of a column; the bound of a longer text ends with ``…``.

    Examples
    --------
    >>> print(ColumnRange(3, 4))
    3 to 4
    """

    minimum: object
    maximum: object

    def __str__(self) -> str:
        return f"{self.minimum} to {self.maximum}"


def known_rows(statistics: FileStatistics) -> int | None:
    """The number of rows of all files, a row of ``statistics`` each; None if one is unknown."""
    rows: int | None = pc.sum(statistics.rows, min_count=0, skip_nulls=False).as_py()
    return rows


def column_ranges(statistics: FileStatistics, fields: Iterable[pa.Field]) -> dict[str, ColumnRange]:
    """The ranges of these columns; ``statistics`` has a row for each file.

    A column is left out if a file with values has no bounds, no file has values, or Python has no
    such moment.
    """
    ranges = {}
    for field in fields:
        bounds, has_values = (
            statistics.bounds(field.name, field.type),
            pc.not_equal(statistics.nulls(field.name), statistics.rows),
        )
        places = pc.indices_nonzero(pc.fill_null(has_values, True))
        lower, upper = bounds.minimum.take(places), bounds.maximum.take(places)
        if not len(places) or lower.null_count or upper.null_count:
            continue
        least, greatest = pc.min(lower), pc.max(upper)
        try:
            minimum, maximum = least.as_py(), greatest.as_py()
        except (OverflowError, ValueError):  # outside of Python's datetime
            continue
        if pa.types.is_string(field.type):
            is_exact = statistics.is_exact(field.name)[places.to_numpy()]
            if len(minimum) >= _CUT and not is_exact[pc.index(lower, least).as_py()]:
                minimum = f"{minimum}…"
            place = pc.index(upper, greatest).as_py()
            if not is_exact[place] and (len(maximum) >= _CUT or len(lower[place].as_py()) < _CUT):
                maximum = f"{maximum}…"
        ranges[field.name] = ColumnRange(minimum, maximum)
    return ranges
