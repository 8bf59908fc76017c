"""Reads by pages: the wanted pages of many files are put into one virtual file, which Arrow reads.

A page needs nothing but the dictionary of its chunk. So a column chunk may be its dictionary with
any of its pages behind it, and a file any row groups between the head and the tail of a footer.

In order:

- which pages may have matching rows
- the virtual file
- headers of pages, which have to say what the index says
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct
from msgspec.structs import replace

from kartothek_cube.core.arrow.keys import BoolArray, IntArray, expand_ranges, group_starts
from kartothek_cube.core.expressions.predicates import Bounds, Predicates, columns_of, possible_chunks
from kartothek_cube.core.io.footers import (
    MAGIC,
    MOST_BYTES,
    Bytes,
    ChunkBytes,
    Pattern,
    RowGroupTemplate,
    found_values,
    joined_footer,
    pattern_of,
    read_struct,
)
from kartothek_cube.core.io.page_index import Chunk, PageIndex, Unfit, joined_bounds
from kartothek_cube.core.stores.contract import Buffer

Spans: TypeAlias = IntArray
"""A line for each span of bytes: begin and end."""


class PagedFile(Struct, frozen=True):
    """A file with page index, and the function that reads spans of it, also once it is closed."""

    index: PageIndex
    writer: str
    read: Callable[[Spans], Sequence[Buffer]]

    def position(self, column: str) -> int:
        """The position of the only chunk of a column in a row group."""
        position = self.index.plain.get(column)
        if position is None:
            raise Unfit("A nested column")
        return position

    def rows_of(self, column: str) -> IntArray:
        """The rows at which the pages of a column begin: one array for columns that are aligned."""
        (pages,) = self.index.pages([self.position(column)])
        return pages.rows

    def is_like(self, other: PagedFile) -> bool:
        """Whether Arrow reads the row groups of both files alike."""
        mine, theirs = self.index, other.index
        return mine.head == theirs.head and self.writer == other.writer and mine.schema.equals(theirs.schema)


class ChosenPages(Struct, frozen=True):
    """Pages of files that are alike, in order.

    Attributes
    ----------
    files : sequence of PagedFile
        The files.
    lead : str
        The column whose pages these are.
    numbers, pages, rows : numpy.ndarray
        For each page the number of its file, its own number there, and how many rows it has.
    ascend : bool
        Whether pages of a file share values of the lead at their ends only.
    """

    files: Sequence[PagedFile]
    lead: str
    numbers: IntArray
    pages: IntArray
    rows: IntArray
    ascend: bool

    def some(self, which: BoolArray | IntArray | slice) -> ChosenPages:
        """Only some of the pages."""
        return replace(self, numbers=self.numbers[which], pages=self.pages[which], rows=self.rows[which])

    def of_files(self, begin: int, end: int) -> ChosenPages:
        """The pages of neighbouring files."""
        found = self.some((self.numbers >= begin) & (self.numbers < end))
        return replace(found, files=self.files[begin:end], numbers=found.numbers - begin)

    def rows_of_files(self) -> IntArray:
        """How many rows the pages of each file have."""
        return np.bincount(self.numbers, self.rows, len(self.files)).astype(np.int64)

    def are_few(self) -> BoolArray:
        """For each file whether it has at most half of its rows in these pages."""
        whole = np.array([sum(file.index.rows) for file in self.files])
        found: BoolArray = 2 * self.rows_of_files() <= whole
        return found

    def row_bytes(self, columns: Collection[str]) -> int:
        """An estimate of the memory that a row of some columns takes, where it takes most."""
        plain = [self.files[0].position(c) for c in columns if c in self.files[0].index.plain]
        return max(sum(file.index.row_bytes[j] for j in plain) for file in self.files) or 1

    def batches(self, rows: int) -> Iterator[ChosenPages]:
        """All pages, in batches of about so many rows; none if there are no pages."""
        if not len(self.pages):
            return
        before = np.cumsum(self.rows) - self.rows
        cuts = np.flatnonzero(np.diff(before // rows)) + 1
        for begin, end in pairwise([0, *cuts.tolist(), len(before)]):
            yield self.some(slice(begin, end))

    def read(self, columns: Sequence[str]) -> pa.Table:
        """All rows of the pages.

        Raises
        ------
        Unfit
            If a file is not what its index says.
        pyarrow.ArrowException
            If a page cannot be decoded.
        """
        files = [self.files[number] for number in np.unique(self.numbers).tolist()]
        beside = [c for c in columns if any(file.rows_of(c) is not file.rows_of(self.lead) for file in files)]
        aligned = [c for c in columns if c not in beside]
        tables = [_read(self, aligned)] if aligned else []
        found = {name: column for table in tables for name, column in zip(aligned, table.columns, strict=True)}
        found |= {c: _read_beside(self, c) for c in beside}
        return pa.table([found[c] for c in columns], names=list(columns))


def choose_pages(files: Sequence[PagedFile], schema: pa.Schema, predicates: Predicates) -> ChosenPages:
    """The pages of files that are alike in which rows may satisfy the predicates.

    Raises
    ------
    Unfit
        If no filtered column is in the files and plain.
    """
    first, filtered = files[0], sorted(columns_of(predicates))
    plain = [c for c in filtered if c in first.index.plain]
    if not plain:
        raise Unfit("No column to choose pages by")
    lead = plain[0]
    begins = [file.rows_of(lead) for file in files]
    bounds = {
        c: joined_bounds([file.index.bounds(c, schema.field(c).type) for file in files])
        for c in plain
        if c == lead or all(file.rows_of(c) is rows for file, rows in zip(files, begins, strict=True))
    }
    counts = np.array([len(rows) - 1 for rows in begins], dtype=np.int64)
    ends = np.cumsum(counts)
    chosen = np.flatnonzero(possible_chunks(bounds, int(ends[-1]), predicates))
    numbers = np.repeat(np.arange(len(files)), counts)[chosen]
    places, every = chosen + numbers, np.concatenate(begins)  # each file has an end more
    rows = every[places + 1] - every[places]
    ascend = _ascend(bounds[lead], ends[:-1])
    return ChosenPages(files, lead, numbers, chosen - (ends - counts)[numbers], rows, ascend)


def _ascend(bounds: Bounds, breaks: IntArray) -> bool:
    """Whether each maximum is at most the next minimum, but at the breaks."""
    rises = pc.fill_null(pc.less_equal(bounds.maximum[:-1], bounds.minimum[1:]), False)
    return bool(np.delete(rises.to_numpy(zero_copy_only=False), breaks - 1).all())


# --- the virtual file -----------------------------------------------------------------------------


def _read(pages: ChosenPages, columns: Sequence[str]) -> pa.Table:
    """The rows of some pages in columns whose pages begin at the same rows."""
    first = pages.files[0]
    positions = [first.position(c) for c in columns]
    content, groups = _virtual_file(pages, sorted(positions))
    reader = pq.ParquetReader()  # making a `ParquetFile` takes as long as reading two columns
    reader.open(pa.BufferReader(content), pre_buffer=False, page_checksum_verification=True)
    table = reader.read_row_groups(range(groups), column_indices=positions, use_threads=False)
    if table.num_rows != int(pages.rows.sum()) or table.column_names != list(columns):
        raise Unfit(f"{table.num_rows:,} rows where the index says {int(pages.rows.sum()):,}")
    return table


def _read_beside(pages: ChosenPages, column: str) -> pa.ChunkedArray:
    """The rows of some pages in a column whose pages begin at other rows."""
    others, positions, before = list[tuple[IntArray, ...]](), list[IntArray](), 0
    for number in np.unique(pages.numbers).tolist():
        file, own = pages.files[number], pages.pages[pages.numbers == number]
        begins, ends = file.rows_of(pages.lead)[own], file.rows_of(pages.lead)[own + 1]
        rows = file.rows_of(column)
        first, last = np.searchsorted(rows, begins, "right") - 1, np.searchsorted(rows, ends, "left")
        read = np.unique(expand_ranges(first, last - first)[1])
        _, wanted = expand_ranges(begins, ends - begins)
        sizes = rows[read + 1] - rows[read]
        owners = np.searchsorted(rows[read], wanted, "right") - 1
        positions.append(before + (np.cumsum(sizes) - sizes - rows[read])[owners] + wanted)
        others.append((np.full(len(read), number), read, sizes))
        before += int(sizes.sum())
    numbers, read, sizes = map(np.concatenate, zip(*others, strict=True))
    covering = replace(pages, lead=column, numbers=numbers, pages=read, rows=sizes)
    return _read(covering, [column]).column(0).take(pa.array(np.concatenate(positions)))


class _Runs(Struct, frozen=True):
    """Neighbouring pages of one row group each, counted through all files.

    Attributes
    ----------
    pages : numpy.ndarray
        The numbers of all pages.
    first, last : numpy.ndarray
        Of each run the places of its ends in ``pages``.
    group : numpy.ndarray
        The row group of each run, counted from the first one that has a run.
    owners : numpy.ndarray
        Of each page the number of its run.
    groups : list of tuple
        Of each row group the number of its file, and its own number there.
    """

    pages: IntArray
    first: IntArray
    last: IntArray
    group: IntArray
    owners: IntArray
    groups: list[tuple[int, int]]

    @classmethod
    def of(cls, pages: ChosenPages) -> _Runs:
        located = [file.index.pages([file.position(pages.lead)])[0] for file in pages.files]
        starts = np.cumsum([0, *(len(one.at) for one in located)])
        numbers = starts[pages.numbers] + pages.pages
        # Each file's first row group begins where the last one of the file before ends.
        begins = np.concatenate([one.groups[:-1] + start for one, start in zip(located, starts.tolist(), strict=False)])
        within = np.searchsorted(begins, numbers, "right") - 1
        is_first = np.append(True, (np.diff(numbers) != 1) | (np.diff(within) != 0))
        first = np.flatnonzero(is_first)
        used, group = np.unique(within[first], return_inverse=True)
        places = [(number, g) for number, one in enumerate(located) for g in range(len(one.groups) - 1)]
        last, owners = np.append(first[1:], len(numbers)) - 1, np.cumsum(is_first) - 1
        return cls(numbers, first, last, group, owners, [places[i] for i in used.tolist()])


def _virtual_file(pages: ChosenPages, positions: Sequence[int]) -> tuple[bytes, int]:
    """A file of some pages of columns, a row group for each that they are from; and how many."""
    runs, end = _Runs.of(pages), len(MAGIC)
    chunks = [pages.files[number].index.groups[group] for number, group in runs.groups]
    rows = np.bincount(runs.group[runs.owners], pages.rows).astype(np.int64)
    spans, numbers, headers = list[Spans](), list[IntArray](), list[IntArray]()
    if 0 not in positions:  # pyarrow before 26 asks the first chunk how many rows there are
        numbers += [rows, *(np.full(len(rows), n) for n in (0, 0, len(MAGIC), 0))]
    for j in positions:
        column = _column(pages, runs, j, [group[j] for group in chunks], end)
        spans.append(column.spans)
        headers.append(column.headers)
        numbers += [rows, column.packed, column.packed, column.data_at, column.begin]
        end += int(column.packed.sum())
    if end >= MOST_BYTES:
        raise Unfit("More bytes than a row group can name")
    total = np.sum(numbers[2::5], axis=0)
    lines = np.stack([*numbers, total, rows], axis=1)
    like = pages.files[0].index
    footer = joined_footer(like.head, int(pages.rows.sum()), _row_groups(chunks, positions, lines), like.tail)
    content = b"".join([MAGIC, *_bytes(pages.files, np.concatenate(spans)), footer])
    if len(content) != end + len(footer):
        raise Unfit("A file that became shorter")
    check_headers(content, *np.concatenate(headers).T)
    return content, len(chunks)


class _Column(NamedTuple):
    """The chunks of a column in the virtual file, one behind the other.

    ``spans`` has the number of the file, begin and end of what they are made of; ``headers`` place,
    size and rows of each page; the others a value for each chunk.
    """

    spans: IntArray
    headers: IntArray
    packed: IntArray
    data_at: IntArray
    begin: IntArray


def _column(pages: ChosenPages, runs: _Runs, position: int, chunks: Sequence[Chunk], at: int) -> _Column:
    """The chunks of the column at a position, of which the first begins ``at`` some place."""
    located = [file.index.pages([position])[0] for file in pages.files]
    places, sizes = (np.concatenate([getattr(one, side) for one in located])[runs.pages] for side in ("at", "sizes"))
    has_dictionary = np.array([chunk.content.has_dictionary for chunk in chunks])
    with_one = np.flatnonzero(has_dictionary)
    # A dictionary comes before the runs of its chunk.
    group = np.concatenate([with_one, runs.group])
    order = np.argsort(group, kind="stable")
    begins = np.array([chunk.begin for chunk in chunks])[with_one]
    ends = np.array([chunk.data_at for chunk in chunks])[with_one]
    spans = np.stack(
        [
            np.array([number for number, _ in runs.groups])[group],
            np.concatenate([begins, places[runs.first]]),
            np.concatenate([ends, places[runs.last] + sizes[runs.last]]),
        ],
        axis=1,
    )[order]
    lengths = spans[:, 2] - spans[:, 1]
    starts = at + np.cumsum(lengths) - lengths
    first = np.searchsorted(group[order], np.arange(len(chunks)))
    packed = np.add.reduceat(lengths, first)
    moved = np.empty(len(order), dtype=np.int64)
    moved[order] = starts
    run_starts = moved[len(with_one) :]
    headers = np.stack([places - places[runs.first][runs.owners] + run_starts[runs.owners], sizes, pages.rows], axis=1)
    dictionaries = np.stack([moved[: len(with_one)], ends - begins, np.full(len(with_one), _NO_ROWS)], axis=1)
    data_at = starts[first] + np.where(has_dictionary, lengths[first], 0)
    return _Column(spans, np.concatenate([dictionaries, headers]), packed, data_at, starts[first])


def _bytes(files: Sequence[PagedFile], spans: IntArray) -> list[Buffer]:
    """The bytes of spans, which are lines of the number of the file, begin and end."""
    found: list[Buffer] = [b""] * len(spans)
    order = np.argsort(spans[:, 0], kind="stable")
    for begin, end in pairwise([*group_starts(spans[order, 0]).tolist(), len(order)]):
        own = order[begin:end]
        for place, part in zip(own.tolist(), files[spans[own[0], 0]].read(spans[own, 1:]), strict=True):
            found[place] = part
    return found


def _row_groups(chunks: Sequence[Sequence[Chunk]], positions: Sequence[int], lines: IntArray) -> list[bytes]:
    """The bytes of row groups that have these lines of numbers."""
    named, by_template = sorted({0, *positions}), dict[RowGroupTemplate, list[int]]()
    for i, group in enumerate(chunks):
        contents = [chunk.content if j in positions else None for j, chunk in enumerate(group)]
        contents[0] = contents[0] or group[0].content._replace(has_dictionary=False)
        by_template.setdefault(_template(tuple(contents)), []).append(i)
    found = dict[int, bytes]()
    for template, places in by_template.items():
        group = chunks[places[0]]
        missing = [5 * i + 4 for i, j in enumerate(named) if j not in positions or not group[j].content.has_dictionary]
        filled = template.filled(np.delete(lines[places], missing, axis=1))
        found.update(zip(places, filled, strict=True))
    return [found[i] for i in range(len(chunks))]


@lru_cache(maxsize=64)
def _template(chunks: tuple[ChunkBytes | None, ...]) -> RowGroupTemplate:
    return RowGroupTemplate.of(chunks)


# --- headers of pages -----------------------------------------------------------------------------


# Fields of PageHeader, of its kinds of pages, and the number of rows of a dictionary.
_KIND, _UNPACKED, _PACKED, _CHECKSUM, _DATA, _DICTIONARY, _DATA_2 = (1,), (2,), (3,), (4,), 5, 7, 8
_NO_ROWS = -1
_VALUES, _VALUES_2, _ROWS_2, _ENTRIES = (_DATA, 1), (_DATA_2, 1), (_DATA_2, 3), (_DICTIONARY, 1)
# These numbers are of one byte, and for Arrow to judge.
_ENCODINGS = {(_DATA, 2), (_DATA, 3), (_DATA, 4), (_DATA_2, 4), (_DICTIONARY, 2)}
_LEARNED = 16
_known = deque[Pattern](maxlen=_LEARNED)


def check_headers(content: bytes, at: IntArray, sizes: IntArray, rows: IntArray) -> None:
    """Check pages that begin somewhere, with their header have so many bytes, and so many rows.

    Raises
    ------
    Unfit
        If a header says something else.
    """
    data = np.frombuffer(content, np.uint8)
    for pattern in tuple(_known):
        left = ~_agree(data, at, sizes, rows, pattern)
        at, sizes, rows = at[left], sizes[left], rows[left]
        if not len(at):
            return
    for _ in range(_LEARNED):
        pattern = _header_pattern(content, int(at[0]))
        left = ~_agree(data, at, sizes, rows, pattern)
        if left[0]:
            break
        _known.appendleft(pattern)
        at, sizes, rows = at[left], sizes[left], rows[left]
        if not len(at):
            return
    raise Unfit("A header of a page that contradicts the index")


def _header_pattern(content: bytes, at: int) -> Pattern:
    try:
        tokens, end = read_struct(content, at)
    except (IndexError, ValueError) as error:
        raise Unfit(str(error)) from None
    varying = [token for token in tokens if token.path != _KIND and token.path not in _ENCODINGS]
    return pattern_of(content, at, end, varying, [token for token in tokens if token.path in _ENCODINGS])


def _agree(data: Bytes, at: IntArray, sizes: IntArray, rows: IntArray, pattern: Pattern) -> BoolArray:
    found, ends, good = found_values(data, at, pattern)
    if _PACKED not in found:
        return np.zeros(len(at), dtype=bool)
    good &= ends - at + found[_PACKED] == sizes
    counts = [found[path] for path in (_VALUES, _VALUES_2, _ROWS_2) if path in found]
    for count in counts or ([np.full(len(at), _NO_ROWS)] if _ENTRIES in found else []):
        good &= count == rows
    return good if counts or _ENTRIES in found else np.zeros(len(at), dtype=bool)
