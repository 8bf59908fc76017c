"""Statistics of data files as Arrow columns; `docs/design/009-statistics.md` has the format. Pure.

In order:

- rows, bytes and bounds of each file
- the least and the greatest value of each column of a dataset
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
import zstandard
from msgspec import Struct

from kartothek_cube.core.arrow.bounds import cut_bounds, family_of
from kartothek_cube.core.expressions.predicates import (
    Bounds,
    Clause,
    Mask,
    Predicates,
    accepts_null,
    by_column,
    disjunction,
    possible_chunks,
)
from kartothek_cube.core.io.formats import DATA_SUFFIX
from kartothek_cube.core.metadata.document import OWN_PREFIX, Document, PartitionColumns, decompress
from kartothek_cube.core.metadata.naming import STATISTICS_FOLDER

STATISTICS_KEY = f"{OWN_PREFIX}statistics"

# More statistics inside a document are merged.
_MOST_RECENT = 8
# Names that nobody chose: no other library puts a second file under such a name. Pieces of a
# compaction have numbers.
_RANDOM_NAME = r"[/-][0-9a-f]{32}(-[0-9]+)?\.parquet$"
_RANDOM_UUID = r"(^|[/-])[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}(-[0-9]+)?$"
_STORED_NAME = re.compile(r"[0-9a-f]{32}")
_FILE, _ROWS, _BYTES = "file", "rows", "bytes"


def statistics_key(uuid: str, name: str) -> str:
    """Key of a statistics file."""
    return f"{uuid}/{STATISTICS_FOLDER}/{name}.parquet"


def file_names(files: pa.Array | pa.ChunkedArray, uuid: str) -> pa.Array:
    """The names by which statistics know data files, null for a name that somebody chose."""
    is_random = pc.match_substring_regex(files, _RANDOM_NAME)
    # Without the dataset, which a copy changes.
    names = pc.utf8_slice_codeunits(files, len(uuid) + 1, -len(DATA_SUFFIX))
    known: Any = pc.if_else(pc.fill_null(is_random, False), names, pa.scalar(None, pa.string()))
    return known.combine_chunks() if isinstance(known, pa.ChunkedArray) else known


def trusted_file_names(files: pa.Array | pa.ChunkedArray, uuid: str) -> pa.Array:
    """As `file_names` for files of any writer: null for all if one may have the name of a hash.

    kartothek draws random UUIDs. Some hashes look like one, but hardly all of several.
    """
    names = file_names(files, uuid)
    is_drawn = pc.fill_null(pc.match_substring_regex(names, _RANDOM_UUID), True)
    return names if pc.all(is_drawn, min_count=0).as_py() else pa.nulls(len(names), pa.string())


def column_of(name: str) -> str:
    """The column of the data to which a column of statistics belongs; empty for those of files."""
    part, _, rest = name.partition("/")
    return rest.partition("/")[2] if part in ("lower", "upper") else rest


# --- statistics as columns ------------------------------------------------------------------------


class FileStatistics(Struct, frozen=True):
    """Statistics of several files.

    Row *i* of ``table`` belongs to one file: its name as of `file_names`, the number of its rows
    and bytes; and for each column with bounds ``lower/<family>/<column>``, the same with ``upper``,
    and ``nulls/<column>``, for texts also ``exact/<column>``. NaN counts as null. Bounds are null
    if they are unknown, or there is no value. Bounds of texts may be cut, a lower one to something
    less, an upper one to something greater.
    """

    table: pa.Table

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __reduce__(self) -> tuple[Any, ...]:
        return _decoded, (_encoded(self.table),)

    @property
    def columns(self) -> list[str]:
        """The columns with bounds."""
        return list(dict.fromkeys(column_of(n) for n in self.table.column_names if n.startswith("lower/")))

    @property
    def files(self) -> pa.Array:
        """The name of each file, as of `file_names`."""
        return _array(self.table, _FILE, pa.string())

    @property
    def rows(self) -> pa.Array:
        """The number of rows of each file, null if unknown."""
        return _array(self.table, _ROWS, pa.int64())

    @property
    def sizes(self) -> pa.Array:
        """The bytes of each file, null if unknown."""
        return _array(self.table, _BYTES, pa.int64())

    def nulls(self, column: str) -> pa.Array:
        """The number of nulls and NaN of a column in each file, null if unknown."""
        return _array(self.table, f"nulls/{column}", pa.int64())

    def bounds(self, column: str, data_type: pa.DataType) -> Bounds:
        """The bounds of a column in each file, in a type of the same family."""
        found = family_of(data_type)
        families, wanted = ([] if found is None else [found[0]]), data_type
        if pt.is_decimal(data_type):  # if it was widened, it has the values of smaller scales
            families = [f"decimal{scale}" for scale in range(data_type.scale, -39, -1)]
        elif found is not None and pt.is_integer(data_type):
            wanted = found[1]  # those of another state of the dataset may not fit
        sides = []
        for side in ("lower", "upper"):
            names = [n for n in (f"{side}/{family}/{column}" for family in families) if n in self.table.column_names]
            arrays = [_array(self.table, name, wanted) for name in names]
            sides.append(pc.coalesce(*arrays) if arrays else pa.nulls(len(self), wanted))
        has_null = pc.fill_null(pc.not_equal(self.nulls(column), 0), True)
        return Bounds(sides[0], sides[1], has_null.to_numpy(zero_copy_only=False))

    def is_exact(self, column: str) -> Mask:
        """Whether the bounds of a column, where there are any, are values of it, for each file."""
        flags = _array(self.table, f"exact/{column}", pa.bool_())
        exact: Mask = pc.fill_null(flags, True).to_numpy(zero_copy_only=False).astype(bool)
        return exact

    def matching(self, predicates: Predicates, schema: pa.Schema) -> Mask:
        """The files of which a row may satisfy the predicates."""
        columns = self.columns
        asked = (by_column(c for c in clauses if c.column in columns) for clauses in predicates)
        return disjunction(
            len(self), ((self.possible(of_one, schema.field(c).type) for c, of_one in each.items()) for each in asked)
        )

    def possible(self, clauses: Sequence[Clause], data_type: pa.DataType) -> Mask:
        """The files in which a value of one column may satisfy all clauses."""
        if not len(self) or pt.is_null(data_type):
            return np.ones(len(self), dtype=bool)
        column = clauses[0].column
        predicates: Predicates = (tuple(clauses),)
        mask = possible_chunks({column: self.bounds(column, data_type)}, len(self), predicates)
        if not all(map(accepts_null, clauses)):
            only_nulls = pc.fill_null(pc.equal(self.nulls(column), self.rows), False)
            mask &= ~only_nulls.to_numpy(zero_copy_only=False)
        return mask

    def of_files(self, names: pa.Array) -> FileStatistics:
        """One row for each of these files, of nulls for a file that is unknown."""
        # Nulls are no names; the first of several rows of a file counts, and the newest come first.
        places = pc.index_in(names, value_set=self.table.column(_FILE).combine_chunks(), skip_nulls=True)
        return FileStatistics(self.table.take(places))

    def without(self, names: pa.Array) -> FileStatistics:
        """The statistics of all other files."""
        return FileStatistics(self.table.filter(pc.invert(pc.is_in(self.table.column(_FILE), value_set=names))))

    def kept(self, partitions: PartitionColumns, uuid: str) -> FileStatistics:
        """One row for each file, in no certain order.

        Files that partitions do not name are dropped if they are more than half: an undo brings
        back what was removed last.
        """
        known = self.table.column(_FILE).combine_chunks()
        names = pa.chunked_array([file_names(keys, uuid) for keys in partitions.files.values()], pa.string())
        named = pc.index_in(pc.unique(names).drop_null(), value_set=known).drop_null()
        every = pc.index_in(pc.unique(known).drop_null(), value_set=known)
        return FileStatistics(self.table.take(named if 2 * len(named) < len(every) else every).combine_chunks())


def _array(table: pa.Table, name: str, data_type: pa.DataType) -> pa.Array:
    if name not in table.column_names:
        return pa.nulls(table.num_rows, data_type)
    column: Any = table.column(name)
    try:
        array = column.cast(data_type).combine_chunks()
    except pa.ArrowException:  # of a file whose type its dataset does not have any more
        return pa.nulls(table.num_rows, data_type)
    return pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array


def concat_statistics(statistics: Iterable[FileStatistics], columns: Collection[str] | None = None) -> FileStatistics:
    """Several statistics as one; with ``columns`` only their bounds.

    If a file has several rows, the first counts.
    """
    tables = [each.table for each in statistics if len(each)]
    if columns is not None:
        wanted = {"", *columns}
        tables = [table.select([n for n in table.column_names if column_of(n) in wanted]) for table in tables]
    if len(tables) == 1:
        return FileStatistics(tables[0])
    if not tables:
        return FileStatistics(pa.table({_FILE: pa.nulls(0, pa.string()), _ROWS: [], _BYTES: []}))
    types: dict[str, pa.DataType] = {}
    # Neighbours of the same columns at once: there may be a table for each file.
    runs = [pa.concat_tables(list(run)) for _, run in groupby(tables, lambda table: table.schema)]
    for field in chain.from_iterable(run.schema for run in runs):
        types.setdefault(field.name, field.type)
    schema = pa.schema(types)
    # What a table lacks is unknown.
    arrays = [[_array(run, field.name, field.type) for field in schema] for run in runs]
    return FileStatistics(pa.concat_tables([pa.table(each, schema=schema) for each in arrays]))


def make_statistics(measured: pa.Table, uuid: str, files: Sequence[str], sizes: Sequence[int]) -> FileStatistics:
    """Statistics of data files, from `measure_bounds` of their rows."""
    columns: dict[str, Any] = {
        _FILE: file_names(pa.array(files, type=pa.string()), uuid),
        _ROWS: measured.column(_ROWS),
        _BYTES: pa.array(sizes, type=pa.int64()),
    }
    for name in measured.column_names:
        part, _, column = name.partition("/")
        if part != "lower":
            continue
        lower: Any = measured.column(name)
        upper: Any = measured.column(f"upper/{column}")
        found = family_of(lower.type)
        if found is None:
            continue
        family, stored = found
        try:
            if pt.is_string(lower.type):
                lower, upper, columns[f"exact/{column}"] = cut_bounds(lower, upper)
            ends = {f"lower/{family}/{column}": lower.cast(stored), f"upper/{family}/{column}": upper.cast(stored)}
        except (pa.ArrowInvalid, UnicodeDecodeError):  # texts that are no UTF-8 have no order
            continue
        columns |= ends
    columns |= {name: measured.column(name) for name in measured.column_names if name.startswith("nulls/")}
    return FileStatistics(pa.table(columns))


class StatisticsOfFile(Struct, frozen=True):
    """One row of statistics; only this row travels in a pickle."""

    source: FileStatistics
    row: int

    def __reduce__(self) -> tuple[Any, ...]:
        return StatisticsOfFile, (FileStatistics(self.source.table.slice(self.row, 1)), 0)

    @staticmethod
    def together(some: Iterable[StatisticsOfFile | None]) -> FileStatistics:
        """The statistics of several files as one."""
        rows: dict[int, tuple[FileStatistics, list[int]]] = {}
        for each in some:
            if each is not None:
                rows.setdefault(id(each.source), (each.source, []))[1].append(each.row)
        picked = (s if len(at) == len(s) else FileStatistics(s.table.take(pa.array(at))) for s, at in rows.values())
        found = concat_statistics(picked).table
        if found.column(_FILE).null_count:
            found = found.filter(found.column(_FILE).is_valid())
        return FileStatistics(found)


# --- what a document names ------------------------------------------------------------------------


class StoredStatistics(Struct, frozen=True):
    """A statistics file: its name, and the number of files that it knows."""

    name: str
    files: int


class StatisticsReference(Struct, frozen=True):
    """Where the statistics of a dataset are.

    Attributes
    ----------
    stored : tuple of StoredStatistics
        Statistics files.
    recent : tuple of str
        Statistics of the last commits, oldest first, inside the document.
    """

    stored: tuple[StoredStatistics, ...] = ()
    recent: tuple[str, ...] = ()

    def with_recent(self, statistics: FileStatistics) -> StatisticsReference:
        """The reference with the statistics of one more commit inside."""
        kept = self.recent
        if len(kept) >= _MOST_RECENT:  # names and types of columns take most of the room
            statistics, kept = concat_statistics([statistics, *self.recent_statistics()]), ()
        text = base64.b64encode(_encoded(statistics.table)).decode()
        return StatisticsReference(self.stored, (*kept, text))

    @property
    def size(self) -> int:
        """Bytes of the statistics inside the document."""
        return sum(map(len, self.recent))

    def recent_statistics(self) -> list[FileStatistics]:
        """The statistics inside the document, the newest first; what cannot be read is left out."""
        found = []
        for text in reversed(self.recent):
            try:
                found.append(_decoded(base64.b64decode(text)))
            except (ValueError, OSError, zstandard.ZstdError, pa.ArrowException):
                continue
        return found

    def render(self) -> str:
        """The entry of the document's metadata; `reference_of` is the reverse."""
        return json.dumps({"stored": [[each.name, each.files] for each in self.stored], "recent": self.recent})


def reference_of(metadata: Mapping[str, Any]) -> StatisticsReference:
    """Where the statistics of a document are; nowhere if the entry is missing or unreadable."""
    try:
        entry = json.loads(metadata[STATISTICS_KEY])
        named = [(name, int(files)) for name, files in entry["stored"] if _STORED_NAME.fullmatch(name)]
        stored = tuple(StoredStatistics(name, files) for name, files in named)
        return StatisticsReference(stored, tuple(map(str, entry["recent"])))
    except (LookupError, TypeError, ValueError, OverflowError, RecursionError):
        return StatisticsReference()


def statistics_files(document: Document) -> set[str]:
    """Keys of the statistics files that a document names."""
    return {statistics_key(document.uuid, stored.name) for stored in reference_of(document.metadata).stored}


def _encoded(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return zstandard.compress(memoryview(sink.getvalue()))


def _decoded(data: bytes) -> FileStatistics:
    table = pa.ipc.open_stream(decompress(data)).read_all()
    table.validate(full=True)
    return checked_statistics(table)


def checked_statistics(table: pa.Table) -> FileStatistics:
    """A table of statistics that somebody has stored.

    Raises
    ------
    ValueError
        If it is something else.
    """
    types = {field.name: field.type for field in table.schema}
    stored = {_FILE: pa.string(), _ROWS: pa.int64(), _BYTES: pa.int64()}
    if len(types) < table.num_columns or any(types.get(name) != data_type for name, data_type in stored.items()):
        raise ValueError(f"Statistics have the columns {list(stored)}, each once, not {table.column_names[:9]}.")
    return FileStatistics(table)


# --- the least and the greatest value of each column of a dataset ---------------------------------


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
