"""Checks of statistics: what the document names can be read, and the rows are within the bounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.arrow.bounds import joined_bounds, measure_bounds
from kartothek_cube.core.maintenance.verify.inspection import DAMAGE, Inspection
from kartothek_cube.core.maintenance.verify.report import Finding
from kartothek_cube.core.metadata.statistics import (
    STATISTICS_KEY,
    FileStatistics,
    StatisticsReference,
    file_names,
    reference_of,
    statistics_key,
)
from kartothek_cube.core.snapshots.statistics import load_statistics, read_statistics_file
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.errors import KeyNotFound

__all__ = ["BoundsPass", "bounds_of_files", "statistics_findings"]


def statistics_findings(store: Store, subject: Inspection) -> Iterator[Finding]:
    """Statistics that the document has or names, and that are missing or cannot be read."""
    uuid, metadata = subject.uuid, subject.snapshot.document.metadata
    reference, mend = reference_of(metadata), f"build_statistics({subject.uuid!r}, store)"
    is_lost = (
        reference == StatisticsReference() and metadata.get(STATISTICS_KEY, reference.render()) != reference.render()
    )
    if is_lost or len(reference.recent_statistics()) < len(reference.recent):
        text = "Statistics inside the document cannot be read. Reads open more files."
        yield Finding("warning", "statistics-unreadable", uuid, text, key=subject.snapshot.key, mend=mend)
    for stored in reference.stored:
        key = statistics_key(uuid, stored.name)
        try:
            read_statistics_file(store, uuid, stored.name)
        except KeyNotFound:
            text = "The statistics file is not in the store. Reads open more files."
            yield Finding("warning", "missing-statistics", uuid, text, key=key, mend=mend)
        except DAMAGE as error:
            yield Finding("warning", "statistics-unreadable", uuid, str(error), key=key, mend=mend)


def bounds_of_files(store: Store, subject: Inspection, keys: Sequence[str]) -> dict[str, FileStatistics]:
    """The statistics of each of these data files that has some."""
    names = file_names(pa.array(keys, type=pa.string()), subject.uuid)
    known = load_statistics(store, subject.snapshot, None).of_files(names)
    has_entry = known.rows.is_valid().to_pylist()
    return {key: FileStatistics(known.table.slice(i, 1)) for i, key in enumerate(keys) if has_entry[i]}


class BoundsPass:
    """The statistics of one file against its rows, which come in pieces."""

    def __init__(self, statistics: FileStatistics | None, schema: pa.Schema, columns: Sequence[str]) -> None:
        self._statistics, self._schema = statistics, schema
        self._columns = [c for c in columns if statistics is not None and c in statistics.columns]
        self._pieces: list[pa.Table] = []

    def add(self, rows: pa.Table) -> None:
        """Add more rows."""
        if self._statistics is not None:
            self._pieces.append(measure_bounds([rows], self._columns))

    def faults(self) -> Iterator[tuple[str | None, str]]:
        """What the rows contradict: the column, if it is one, and the contradiction in words."""
        if self._statistics is None:
            return
        found = joined_bounds(self._pieces or [measure_bounds([self._schema.empty_table()], self._columns)])
        (rows,), (stated,) = found.column("rows").to_pylist(), self._statistics.rows.to_pylist()
        if rows != stated:
            yield None, f"Statistics say that the file has {stated:,} rows, but it has {rows:,}."
        # A column that is null throughout may have had another type once.
        for column in (c for c in self._columns if f"nulls/{c}" in found.column_names):
            bounds = self._statistics.bounds(column, self._schema.field(column).type)
            (nulls,), (stated,) = (
                found.column(f"nulls/{column}").to_pylist(),
                self._statistics.nulls(column).to_pylist(),
            )
            if stated is not None and nulls != stated:
                yield column, f"Statistics say that {stated:,} values are null or NaN, but {nulls:,} are."
            if f"lower/{column}" not in found.column_names:  # of long texts
                continue
            is_below = pc.less(found.column(f"lower/{column}"), bounds.minimum)
            is_above = pc.greater(found.column(f"upper/{column}"), bounds.maximum)
            if pc.any(pc.or_kleene(is_below, is_above)).as_py():
                least, greatest = bounds.minimum[0].as_py(), bounds.maximum[0].as_py()
                yield column, f"Values are outside of the bounds {least!r} to {greatest!r}: reads miss rows."
