"""The rows of Parquet files: row groups and pages are pruned, columns selected and cast.

In order:

- rows
- rows of pages
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain, pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.arrow.keys import IntArray, take_rows
from kartothek_cube.core.arrow.types import compatible, stored_type
from kartothek_cube.core.expressions.predicates import (
    Bounds,
    Clause,
    Predicates,
    columns_of,
    filter_table,
    matching_rows,
    possible_chunks,
)
from kartothek_cube.core.io.parquet import ParquetSource, column_statistics, find_paged, open_file, unpacked_bytes
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.errors import CorruptData, KartothekCubeError

if TYPE_CHECKING:
    from kartothek_cube.core.io.pages import ChosenPages, PagedFile

# --- rows -----------------------------------------------------------------------------------------


# More rows are read in pieces where the caller accepts pieces.
_MANY_ROWS, _STREAMED_ROWS, _STREAMED_BYTES = 1_000_000, 262_144, 64 * 2**20
# So many texts of lists are read as dictionaries, where the file has them so.
_MANY_TEXTS = 65_536

_PIECE_ROWS = 65_536
# Decoding so many values takes as long as reading their statistics.
_FEW_ROWS = 131_072
# Joining all rows of a smaller file takes less time than leaving some of them out.
_FILTERED_ROWS = 32_768
# Where that many rows of a row group need not be decoded, reading row groups one by one pays.
_SKIPPED_ROWS = 4_096
# So few rows of a file are decoded with all columns at once, and so many of several files filtered
# at once: more steps cost more than they save.
_DECODED_AT_ONCE, _FILTERED_AT_ONCE = 65_536, 32_768
# The offsets of Arrow's texts are signed numbers of 32 bits.
_LONGEST_TEXTS = 2**31 - 1


def count_parquet_rows(store: Store, key: str, dataset: str) -> int:
    """Number of rows of a file, from its footer."""
    with open_file(store, key, dataset) as source:
        return int(source.metadata.num_rows)


def read_parquet_inside(
    store: Store,
    key: str,
    dataset: str | None,
    columns: Sequence[str],
    schema: pa.Schema,
    predicates: Predicates | None,
    runtime_filter: tuple[Clause, ...] = (),
) -> tuple[pa.Table, int]:
    """The rows that satisfy the predicates, in the types of the schema, and their number.

    Columns that the file lacks are null.
    """
    with open_file(store, key, dataset) as source:
        narrowed = with_runtime_filter(source, predicates, runtime_filter)
        pages = _few_pages(source, schema, narrowed)
        found = None if pages is None else _read_pages(pages, columns, schema, narrowed, key)
        if found is not None:
            table, (rows,) = found
            return table, rows
        return _selected(source, _matching_groups(source, schema, narrowed), columns, schema, narrowed, key)


def read_matching_files(
    store: Store,
    keys: Iterable[str],
    dataset: str | None,
    columns: Sequence[str],
    schema: pa.Schema,
    predicates: Predicates | None,
    *,
    by_pages: bool = True,
) -> Iterator[tuple[pa.Table, list[int]]]:
    """The rows of several files as by `read_parquet_inside`, and the number of rows of each file.

    Neighbouring files of which few rows have to be looked at are filtered at once.
    """
    names = [*columns, *sorted(columns_of(predicates) - set(columns))]
    waiting: list[pa.Table] = []
    paged: list[tuple[str, PagedFile]] = []
    asks_pages = by_pages and bool(predicates)

    def decoded(source: ParquetSource) -> tuple[pa.Table, bool]:
        """What may match in the file, as it is if that is little, and whether it is."""
        groups = _matching_groups(source, schema, predicates)
        rows = source.rows(groups)
        if rows <= _DECODED_AT_ONCE:
            return _typed(_read(source, groups, names), rows, names, schema, key, encoded=True), True
        return _selected(source, groups, columns, schema, predicates, key)[0], False

    def filtered() -> tuple[pa.Table, list[int]]:
        table, ends = pa.concat_tables(waiting), np.cumsum([0, *map(len, waiting)])
        mask = matching_rows(table, predicates)
        counts = np.diff(np.searchsorted(np.flatnonzero(mask), ends)).tolist()
        waiting.clear()
        return _typed(filter_table(table, mask), sum(counts), columns, schema, key), counts

    def read_paged() -> Iterator[tuple[pa.Table, list[int]]]:
        yield from _read_paged(store, paged, dataset, columns, schema, predicates)
        paged.clear()

    for key in keys:
        file = find_paged(store, key, dataset) if asks_pages else None
        if file is None:
            with open_file(store, key, dataset) as source:
                file = source.paged() if asks_pages else None
                if file is None:
                    table, is_little = decoded(source)
        if waiting and (file is not None or not (is_little and _fit(waiting, table))):
            yield filtered()
        if paged and (file is None or len(paged) == _FILES_AT_ONCE):
            yield from read_paged()
        if file is not None:
            paged.append((key, file))
        elif is_little:
            waiting.append(table)
        else:
            yield table, [table.num_rows]
    if waiting:
        yield filtered()
    if paged:
        yield from read_paged()


def _fit(tables: Sequence[pa.Table], other: pa.Table) -> bool:
    """Whether another table can be filtered together with these."""
    return sum(map(len, tables)) + len(other) <= _FILTERED_AT_ONCE and other.schema.equals(tables[0].schema)


def with_runtime_filter(
    source: ParquetSource, predicates: Predicates | None, runtime_filter: tuple[Clause, ...]
) -> Predicates | None:
    """The predicates with those of a `FileRequest.runtime_filter`, in a file where that pays."""
    is_worth_it = runtime_filter and source.metadata.num_rows >= _FILTERED_ROWS
    return narrowed(predicates, runtime_filter) if is_worth_it else predicates


def narrowed(predicates: Predicates | None, clauses: tuple[Clause, ...]) -> Predicates:
    """The predicates of rows that satisfy some clauses, too."""
    whole: Predicates = ((),) if predicates is None else predicates
    return tuple((*conjunction, *clauses) for conjunction in whole)


class PageCounts(NamedTuple):
    """How many pages of a column a file has, how many are decoded, and how many rows these have."""

    pages: int
    decoded: int
    rows: int


def count_pages(
    store: Store, key: str, dataset: str, schema: pa.Schema, predicates: Predicates | None
) -> PageCounts | None:
    """What is decoded of a file to find the rows that satisfy the predicates.

    None if it is not read by pages.
    """
    with open_file(store, key, dataset, counted=False) as source:
        pages = _few_pages(source, schema, predicates)
        if pages is None:
            return None
        (file,) = pages.files
        return PageCounts(len(file.rows_of(pages.lead)) - 1, len(pages.pages), int(pages.rows.sum()))


def read_source(
    source: ParquetSource, key: str, columns: Sequence[str], schema: pa.Schema, predicates: Predicates | None
) -> tuple[pa.Table, int]:
    """All rows of the row groups in which predicates may match, and their number."""
    return _selected(source, _matching_groups(source, schema, predicates), columns, schema, None, key)


def _selected(
    source: ParquetSource,
    groups: Sequence[int],
    columns: Sequence[str],
    schema: pa.Schema,
    predicates: Predicates | None,
    key: str,
) -> tuple[pa.Table, int]:
    """The rows of some row groups that satisfy the predicates, and their number."""
    filtered = sorted(columns_of(predicates))
    if not filtered:
        rows = source.rows(groups)
        return _typed(_read(source, groups, columns), rows, columns, schema, key), rows
    # First the columns of the predicates, then the others, only of row groups in which a row is
    # left, and there only up to the last such row. Repeated texts stay dictionaries until the rows
    # are filtered.
    rest = [c for c in columns if c not in filtered]
    source.expect(groups, {*filtered, *rest})
    table = _typed(_read(source, groups, filtered), source.rows(groups), filtered, schema, key, encoded=True)
    mask = matching_rows(table, predicates)
    positions = np.flatnonzero(mask)
    # Positions that come from the table itself need no check of their bounds.
    table = table if len(positions) == len(mask) else pc.take(table, pa.array(positions), boundscheck=False)
    others = _read_at(source, groups, [c for c in rest if c in source.positions], positions)
    if others is not None:
        table = pa.table([*table.columns, *others.columns], names=[*table.column_names, *others.column_names])
    return _typed(table, len(positions), columns, schema, key), len(positions)


# --- rows of pages --------------------------------------------------------------------------------


# So many files, rows and bytes of pages are decoded at once.
_FILES_AT_ONCE, _ROWS_OF_PAGES, _BYTES_OF_PAGES = 64, 524_288, 16 * 2**20
# In so few pages a file nearly every one has a row, so all columns are decoded at once.
_FEW_PAGES = 2
# After such an error row groups are read, which have the better error if the file is damaged.
_SURPRISES = (pa.ArrowException, OSError, ValueError, IndexError, KartothekCubeError)


def _read_paged(
    store: Store,
    files: Sequence[tuple[str, PagedFile]],
    dataset: str | None,
    columns: Sequence[str],
    schema: pa.Schema,
    predicates: Predicates | None,
) -> Iterator[tuple[pa.Table, list[int]]]:
    """What `read_matching_files` reads of files with pages."""
    keys, paged = zip(*files, strict=True)
    for begin, end in _runs([one.is_like(other) for one, other in pairwise(paged)]):
        for low, high, pages in _parts(paged[begin:end], [*columns, *columns_of(predicates)], schema, predicates):
            some = keys[begin + low : begin + high]
            found = None if pages is None else _read_pages(pages, columns, schema, predicates, some[0])
            if found is None:
                yield from read_matching_files(store, some, dataset, columns, schema, predicates, by_pages=False)
            else:
                yield found


def _parts(
    files: Sequence[PagedFile], columns: Collection[str], schema: pa.Schema, predicates: Predicates | None
) -> Iterator[tuple[int, int, ChosenPages | None]]:
    """Begin and end of files read at once, with their pages; None where most are wanted."""
    pages = _chosen(files, schema, predicates)
    if pages is None:
        yield 0, len(files), None
        return
    few = pages.are_few()
    steps = np.where(few, np.cumsum(pages.rows_of_files()) // _rows_at_once(pages, columns), -1)
    for low, high in _runs((steps[1:] == steps[:-1]).tolist()):
        yield low, high, pages.of_files(low, high) if few[low] else None


def _runs(are_alike: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """Begin and end of each run of neighbours that are alike."""
    return pairwise([0, *(i for i, alike in enumerate(are_alike, start=1) if not alike), len(are_alike) + 1])


def _few_pages(source: ParquetSource, schema: pa.Schema, predicates: Predicates | None) -> ChosenPages | None:
    """The pages to read of a file; None if it has none, or most are wanted."""
    file = source.paged() if predicates else None
    pages = None if file is None else _chosen([file], schema, predicates)
    return pages if pages is not None and pages.are_few().all() else None


def _chosen(files: Sequence[PagedFile], schema: pa.Schema, predicates: Predicates | None) -> ChosenPages | None:
    from kartothek_cube.core.io.pages import choose_pages  # few files need it

    try:
        return choose_pages(files, schema, predicates or ((),))
    except _SURPRISES:
        return None


def _rows_at_once(pages: ChosenPages, columns: Collection[str]) -> int:
    return max(1, min(_ROWS_OF_PAGES, _BYTES_OF_PAGES // pages.row_bytes(columns)))


def _read_pages(
    pages: ChosenPages, columns: Sequence[str], schema: pa.Schema, predicates: Predicates | None, key: str
) -> tuple[pa.Table, list[int]] | None:
    """The rows of pages that satisfy the predicates, and the number of rows of each file.

    None if another reader has to read the files.
    """
    tables, counts = [_typed(None, 0, columns, schema, key)], np.zeros(len(pages.files), dtype=np.int64)
    try:
        for batch in pages.batches(_rows_at_once(pages, [*columns, *columns_of(predicates)])):
            table, found = _rows_of_pages(batch, columns, schema, predicates, key)
            tables.append(table)
            counts += found
    except _SURPRISES:
        return None
    return pa.concat_tables(tables[1:] or tables), counts.tolist()


def _rows_of_pages(
    pages: ChosenPages, columns: Sequence[str], schema: pa.Schema, predicates: Predicates | None, key: str
) -> tuple[pa.Table, IntArray]:
    """The rows of some pages that satisfy the predicates, and how many each file has."""
    filtered = sorted(columns_of(predicates))
    rest = [c for c in columns if c not in filtered]
    is_late = bool(rest) and not pages.ascend and len(pages.pages) > _FEW_PAGES * len(np.unique(pages.numbers))
    first = filtered if is_late else [*filtered, *rest]
    table = _typed(_read_some(pages, first), int(pages.rows.sum()), first, schema, key, encoded=True)
    positions = np.flatnonzero(matching_rows(table, predicates))
    ends = np.cumsum(pages.rows)
    found = np.diff(np.searchsorted(positions, np.append(0, ends)))
    table = table if len(positions) == table.num_rows else pc.take(table, pa.array(positions), boundscheck=False)
    if is_late and len(positions):
        hit = np.flatnonzero(found)
        left = pages.some(hit)
        others = _read_some(left, rest)
        if others is not None:
            moved = np.cumsum(left.rows) - ends[hit]
            others = take_rows(others, positions + np.repeat(moved, found[hit]))
            table = pa.table([*table.columns, *others.columns], names=[*table.column_names, *others.column_names])
    counts = np.bincount(pages.numbers, found, len(pages.files)).astype(np.int64)
    return _typed(table, len(positions), columns, schema, key), counts


def _read_some(pages: ChosenPages, columns: Sequence[str]) -> pa.Table | None:
    present = [c for c in columns if c in pages.files[0].index.schema.names]
    return pages.read(present) if present else None


def _read_at(
    source: ParquetSource, groups: Sequence[int], columns: Sequence[str], positions: IntArray
) -> pa.Table | None:
    """The rows at some positions of the rows of these row groups."""
    if not columns or not len(positions):
        return None
    counts = np.array([source.rows([g]) for g in groups])
    ends = np.cumsum(counts)
    bounds = np.searchsorted(positions, np.append(0, ends))
    hit = np.flatnonzero(np.diff(bounds))
    begins, counts = (ends - counts)[hit], counts[hit]
    heads = positions[bounds[hit + 1] - 1] - begins + 1
    chosen = [groups[i] for i in hit.tolist()]
    if int((counts - heads).sum()) >= _SKIPPED_ROWS * len(hit):
        table, counts = source.read_heads(chosen, columns, heads.tolist()), heads
    else:
        table = source.read_encoded(chosen, columns)
    if len(positions) == table.num_rows:
        return table
    # Where the rows of a row group begin in the table, instead of among all rows.
    moved = np.cumsum(counts) - counts - begins
    return take_rows(table, positions + np.repeat(moved, np.diff(bounds)[hit]))


def _read(source: ParquetSource, groups: Sequence[int], columns: Sequence[str]) -> pa.Table | None:
    present = [c for c in columns if c in source.positions]
    return source.read_encoded(groups, present) if present and groups else None


def _typed(
    table: pa.Table | None, rows: int, columns: Sequence[str], schema: pa.Schema, key: str, *, encoded: bool = False
) -> pa.Table:
    """The columns in the types of the schema; with ``encoded``, dictionaries stay as they are."""
    stored = {} if table is None else dict(zip(table.column_names, table.columns, strict=True))
    arrays = []
    for name in columns:
        column, data_type = stored.get(name), schema.field(name).type
        if column is None:
            column = pa.chunked_array([pa.nulls(rows, data_type)])
        elif not (encoded and pa.types.is_dictionary(column.type) and column.type.value_type.equals(data_type)):
            column = conform(column, data_type, name, key)
        arrays.append(column)
    return pa.table(arrays, names=list(columns)) if arrays else pa.table({})


def open_parquet_inside(
    store: Store,
    key: str,
    dataset: str | None,
    columns: Sequence[str],
    schema: pa.Schema,
    predicates: Predicates | None,
    nbytes: int,
) -> tuple[bool, Iterator[tuple[pa.Table, int]]]:
    """What `read_parquet_inside` reads, in pieces of about ``nbytes`` bytes.

    The first value says whether all of it takes no more, estimated from the footer. A larger row
    group is decoded in pieces, with at most so many encoded bytes in memory. The file is opened
    once.
    """
    with ExitStack() as stack:
        source = stack.enter_context(open_file(store, key, dataset))
        present = {c for c in (*columns, *columns_of(predicates)) if c in source.positions}
        pages, found = _few_pages(source, schema, predicates), None
        if pages is not None and pages.rows.sum() * pages.row_bytes(present) <= nbytes:
            found = _read_pages(pages, columns, schema, predicates, key)
        if found is not None:
            table, (rows,) = found
            return True, iter([(table, rows)])
        bundles = list(_bundles(source, _matching_groups(source, schema, predicates), present, nbytes))
        opened = stack.pop_all()

    # The file stays open until the last piece, and no longer than the iterator.
    def pieces() -> Iterator[tuple[pa.Table, int]]:
        with opened:
            for groups, size in bundles:
                yield from _pieces(source, groups, columns, schema, predicates, key, size, nbytes)

    return sum(size for _, size in bundles) <= nbytes, pieces()


def _pieces(
    source: ParquetSource,
    groups: Sequence[int],
    columns: Sequence[str],
    schema: pa.Schema,
    predicates: Predicates | None,
    key: str,
    size: int,
    nbytes: int,
) -> Iterator[tuple[pa.Table, int]]:
    needed = list(dict.fromkeys((*columns, *sorted(columns_of(predicates)))))
    present = [c for c in needed if c in source.positions]
    if size <= nbytes or not present:
        yield _selected(source, groups, columns, schema, predicates, key)
        return
    rows = max(1, min(_PIECE_ROWS, source.rows(groups) * nbytes // size))
    for batch in source.batches(groups, present, rows, nbytes):
        table = _typed(pa.Table.from_batches([batch]), batch.num_rows, needed, schema, key)
        mask = matching_rows(table, predicates)
        yield filter_table(table, mask).select(list(columns)), int(np.count_nonzero(mask))


def _bundles(
    source: ParquetSource, groups: Sequence[int], columns: set[str], nbytes: int
) -> Iterator[tuple[list[int], int]]:
    """Neighbouring row groups with their size: up to ``nbytes``, or a single one that is larger."""
    bundle, total = list[int](), 0
    for g, chunks in zip(groups, source.chunks(groups, columns), strict=True):
        size = unpacked_bytes(chunks)
        if bundle and total + size > nbytes:
            yield bundle, total
            bundle, total = [], 0
        bundle.append(g)
        total += size
    if bundle:
        yield bundle, total


def _matching_groups(source: ParquetSource, schema: pa.Schema, predicates: Predicates | None) -> list[int]:
    n = source.metadata.num_row_groups
    filtered = columns_of(predicates) & source.positions.keys()
    if n == 0 or not filtered or (n == 1 and source.is_near and source.metadata.num_rows < _FEW_ROWS):
        return list(range(n))
    bounds = {c: b for c in filtered if (b := _group_bounds(source, c, schema.field(c).type)) is not None}
    return [int(g) for g in np.flatnonzero(possible_chunks(bounds, n, predicates))]


def _group_bounds(source: ParquetSource, column: str, data_type: pa.DataType) -> Bounds | None:
    bounds = source.footer.bounds
    if (column, data_type) not in bounds:
        bounds[column, data_type] = _stored_bounds(source, column, data_type)
    return bounds[column, data_type]


def _stored_bounds(source: ParquetSource, column: str, data_type: pa.DataType) -> Bounds | None:
    descriptor = source.metadata.schema.column(source.positions[column][0])
    if descriptor.path != column or pa.types.is_null(data_type):  # nested, or nothing to compare
        return None
    groups = source.chunks(range(source.metadata.num_row_groups), {column})
    stats = [column_statistics(chunk, descriptor) for (chunk,) in groups]
    try:
        low, high = (pa.array([s[i] for s in stats], type=data_type) for i in (0, 1))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
    # NaN counts as null in comparisons, but statistics do not count it.
    nullable = [s[2] or pa.types.is_floating(data_type) for s in stats]
    return Bounds(low, high, np.array(nullable, dtype=bool))


def conform(column: pa.ChunkedArray, data_type: pa.DataType, name: str, key: str) -> pa.ChunkedArray:
    """A column in the type of its dataset; `CorruptData` if the types are not compatible."""
    if column.type.equals(data_type):
        return column
    if not compatible(stored_type(column.type), data_type):
        raise CorruptData(f"Column {name!r} of the file {key!r} is {column.type}, but its dataset says {data_type}.")
    try:
        if not pa.types.is_dictionary(column.type):
            return column.cast(data_type)
        return pa.chunked_array([p.cast(data_type) for chunk in column.chunks for p in _short(chunk)], data_type)
    except pa.ArrowInvalid as error:
        raise CorruptData(f"Column {name!r} of the file {key!r} cannot be read as {data_type}: {error}") from None


def _short(chunk: pa.Array) -> list[pa.Array]:
    """A dictionary array in slices whose texts fit into one array of 2 GiB."""
    values = chunk.dictionary
    is_text = pa.types.is_string(values.type) or pa.types.is_binary(values.type)
    longest = (pc.max(pc.binary_length(values)).as_py() or 0) if is_text else 0
    rows = _LONGEST_TEXTS // max(1, longest)
    return [chunk] if len(chunk) <= rows else [chunk.slice(start, rows) for start in range(0, len(chunk), rows)]


def read_columns(
    store: Store, key: str, dataset: str, predicates: Predicates | None = None, schema: pa.Schema | None = None
) -> tuple[pa.Table, bool]:
    """The columns of a file as they are stored, and whether these are all rows.

    With a schema, row groups in which the predicates cannot match are left out.
    """
    with open_file(store, key, dataset) as source:
        count = source.metadata.num_row_groups
        groups = list(range(count)) if schema is None else _matching_groups(source, schema, predicates)
        return source.read(groups, source.schema.names), len(groups) == count


def stream_columns(
    store: Store, key: str, dataset: str, predicates: Predicates | None, schema: pa.Schema
) -> Iterator[tuple[pa.Table, bool]]:
    """What `read_columns` reads, in pieces of bounded size if there are many rows or list items.

    Texts in long lists are dictionaries where the file has them so.
    """
    with open_file(store, key, dataset) as source:
        groups, names = _matching_groups(source, schema, predicates), source.schema.names
        whole, rows = len(groups) == source.metadata.num_row_groups, source.rows(groups)
        lists = [f.name for f in source.schema if pa.types.is_list(f.type) and pa.types.is_string(f.type.value_type)]
        chunks = list(chain.from_iterable(source.chunks(groups, set(lists))))
        items = sum(chunk.num_values for chunk in chunks)
        encoded = lists if items > _MANY_TEXTS and all(chunk.has_dictionary_page for chunk in chunks) else []
        if max(rows, items) <= _MANY_ROWS and not encoded:
            yield source.read(groups, names), whole
            return
        step = max(1, _STREAMED_ROWS * rows // max(rows, items))
        for batch in source.batches(groups, names, step, _STREAMED_BYTES, encoded):
            yield pa.Table.from_batches([batch]), whole
