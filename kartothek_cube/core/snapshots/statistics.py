"""Reading and writing statistics files. A file that is missing or damaged makes no read fail."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from kartothek_cube.core.arrow.bounds import joined_bounds, measure_bounds
from kartothek_cube.core.io.formats import DATA_SUFFIX, encode_bare
from kartothek_cube.core.io.parquet import ParquetSource, column_statistics, open_file
from kartothek_cube.core.io.parquet_rows import conform
from kartothek_cube.core.metadata.document import Document
from kartothek_cube.core.metadata.naming import STATISTICS_FOLDER, new_id
from kartothek_cube.core.metadata.snapshot import Snapshot
from kartothek_cube.core.metadata.statistics import (
    FileStatistics,
    StatisticsReference,
    StoredStatistics,
    checked_statistics,
    column_of,
    concat_statistics,
    file_names,
    make_statistics,
    reference_of,
    statistics_key,
)
from kartothek_cube.core.runtime.executor import THREADS, LruCache, map_files, map_in_threads
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.errors import CorruptData, KeyNotFound, Unsupported
from kartothek_cube.typing import Executor

# More bytes of statistics are moved from the document to a file. Each commit writes the document.
_MOST_INSIDE = 32 * 2**10
# A new file takes over older ones that know at most so many times as many files as itself: so
# there are few files, and each entry is written a few times.
_TAKES_OVER = 2
# Statistics in memory take up to so many times the bytes that they take in the document.
_RATIO = 16
_CACHED_BYTES = 64 * 2**20
# The statistics of thousands of files; a second request would take longer.
_TAIL = 2**20

# Parts of statistics files: a key is used once, so its file never changes.
_cache = LruCache[tuple[Hashable, ...], FileStatistics](_CACHED_BYTES)
# Statistics files that could not be read: the next commit of their dataset does not name them.
_lost: set[tuple[Hashable, str, str]] = set()


def read_statistics_file(store: Store, uuid: str, name: str, columns: Collection[str] | None = None) -> FileStatistics:
    """The statistics in a file, with the bounds of some columns or of all.

    Raises
    ------
    KeyNotFound
        If the file is missing.
    CorruptData, Unsupported
        If it cannot be read.
    """
    key = statistics_key(uuid, name)
    with open_file(store, key, uuid, tail=_TAIL) as source:
        wanted = [n for n in source.schema.names if columns is None or column_of(n) in {"", *columns}]
        table = source.read(range(source.metadata.num_row_groups), wanted)
    try:
        return checked_statistics(table)
    except ValueError as error:
        raise CorruptData(f"The file {key!r} of dataset {uuid!r} has no statistics. {error}") from None


def _find(store: Store, uuid: str, name: str, columns: Sequence[str] | None) -> FileStatistics:
    """What can be read of a statistics file, from the cache if it is there."""
    part = (store.identity, uuid, name, None if columns is None else tuple(columns))
    found = _cache.get(part)
    if found is None:
        try:
            found = read_statistics_file(store, uuid, name, columns)
        except (KeyNotFound, CorruptData, Unsupported):
            _lost.add((store.identity, uuid, name))
            return concat_statistics([])
        # The largest one is kept, too: alone, since each commit of its dataset would read it again.
        _cache.put(part, found, min(found.table.nbytes, _CACHED_BYTES))
    return found


def load_statistics(store: Store, snapshot: Snapshot, columns: Collection[str] | None = ()) -> FileStatistics:
    """The statistics of a dataset: rows and bytes of its files, and bounds of some columns.

    None: of all columns.
    """
    wanted = None if columns is None else sorted(columns)

    def load() -> FileStatistics:
        reference = reference_of(snapshot.document.metadata)
        names = [stored.name for stored in reversed(reference.stored)]
        stored = map_in_threads(lambda name: _find(store, snapshot.uuid, name, wanted), names, store=store)
        return concat_statistics([*reference.recent_statistics(), *stored], wanted)

    return snapshot.partitions.derived(
        ("statistics", wanted if wanted is None else tuple(wanted)), snapshot.document, load
    )


def written_reference(store: Store, document: Document, new: FileStatistics) -> StatisticsReference:
    """The reference of a document with the statistics of new files; older files may be merged.

    The statistics stay inside the document while they are few. A file that is written takes over
    the newest ones that are not much larger, without what the document does not name any more.
    """
    reference = reference_of(document.metadata)
    named = [each for each in reference.stored if not _is_lost(store, document, each)]
    reference = replace(reference, stored=tuple(named))
    if new.table.nbytes < _RATIO * _MOST_INSIDE:
        inside = reference.with_recent(new)
        if inside.size <= _MOST_INSIDE:
            return inside
    if document.partitions is None:  # each Parquet file below the dataset is a partition of it
        return reference
    merged, stored = [new, *reference.recent_statistics()], list(reference.stored)
    while stored and stored[-1].files <= _TAKES_OVER * sum(map(len, merged)):
        merged.append(_find(store, document.uuid, stored.pop().name, None))
    kept = concat_statistics(merged).kept(document.partitions, document.uuid)
    return StatisticsReference((*stored, _written(store, document.uuid, kept)))


def has_lost_statistics(store: Store, document: Document) -> bool:
    """Whether this process could not read a statistics file that the document names."""
    return any(_is_lost(store, document, each) for each in reference_of(document.metadata).stored)


def _is_lost(store: Store, document: Document, stored: StoredStatistics) -> bool:
    return (store.identity, document.uuid, stored.name) in _lost


def _written(store: Store, uuid: str, statistics: FileStatistics) -> StoredStatistics:
    name = new_id()
    store.put(statistics_key(uuid, name), memoryview(encode_bare(statistics.table)))
    return StoredStatistics(name, len(statistics))


def reference_without(store: Store, document: Document, gone: pa.Array) -> StatisticsReference:
    """The reference of a document without files of these names: what has some is written anew."""
    reference, stored = reference_of(document.metadata), list[StoredStatistics]()
    for each in reference.stored:
        files = _find(store, document.uuid, each.name, ()).files
        if _is_lost(store, document, each):
            continue
        if not pc.any(pc.is_in(files, value_set=gone)).as_py():
            stored.append(each)
        elif len(rest := _find(store, document.uuid, each.name, None).without(gone)):
            stored.append(_written(store, document.uuid, rest))
    kept = StatisticsReference(tuple(stored))
    for recent in reversed(reference.recent_statistics()):
        if len(rest := recent.without(gone)):
            kept = kept.with_recent(rest)
    return kept


def existing_statistics(store: Store, snapshot: Snapshot) -> StatisticsReference:
    """The reference of a dataset without files that are missing, which is no error."""
    reference, folder = reference_of(snapshot.document.metadata), f"{snapshot.uuid}/{STATISTICS_FOLDER}/"
    there = store.list(folder, recursive=True).keys if reference.stored else ()
    stored = tuple(each for each in reference.stored if statistics_key(snapshot.uuid, each.name) in there)
    return StatisticsReference(stored, reference.recent)


def statistics_of_files(
    store: Store, snapshot: Snapshot, files: pa.Array, columns: Collection[str] | None = ()
) -> FileStatistics:
    """The statistics of these data files, a row each."""
    return load_statistics(store, snapshot, columns).of_files(file_names(files, snapshot.uuid))


def extents_of_files(store: Store, snapshot: Snapshot, files: pa.Array) -> FileStatistics:
    """The rows and bytes of these data files, a row each; unknown where a footer is as cheap."""
    if len(files) <= 1 and reference_of(snapshot.document.metadata).stored:
        return concat_statistics([]).of_files(pa.nulls(len(files), pa.string()))
    return statistics_of_files(store, snapshot, files)


# --- files that are there already -----------------------------------------------------------------


def footer_statistics(
    store: Store, snapshot: Snapshot, schema: pa.Schema, columns: Sequence[str], key: str
) -> FileStatistics:
    """The statistics of a data file of any writer, from its footer as far as that tells them."""
    with open_file(store, key, snapshot.uuid) as source:
        present = [c for c in columns if c in source.positions]
        groups = [g for g in range(source.metadata.num_row_groups) if source.rows([g])]
        chunks = dict(zip(groups, source.chunks(groups, {*present}), strict=True))
        order = [c for c in source.positions if c in present]
        pieces = [_group_bounds(source, schema, columns, dict(zip(order, chunks[g], strict=True)), g) for g in groups]
        found = joined_bounds(pieces or [measure_bounds([schema.empty_table()], columns)])
        # The footer leaves NaN out, and what Python's datetime cannot hold.
        is_empty = {c: pc.equal(found.column(f"nulls/{c}"), found.column("rows"))[0].as_py() for c in present}
        vague = [c for c in present if found.column(f"lower/{c}").null_count and not is_empty[c]]
        if vague:
            stored = source.read(groups, vague).columns
            rows = [conform(c, schema.field(n).type, n, key) for n, c in zip(vague, stored, strict=True)]
            exact = measure_bounds([pa.table(rows, names=vague)], vague)
            found = found.drop_columns([n for n in found.column_names if n in exact.column_names])
            found = pa.table([*found.columns, *exact.columns], names=[*found.column_names, *exact.column_names])
        return make_statistics(found, snapshot.uuid, [key], [source.size])


def _group_bounds(
    source: ParquetSource, schema: pa.Schema, columns: Sequence[str], chunks: Mapping[str, Any], group: int
) -> pa.Table:
    """What the footer says of a row group, as `measure_bounds` of its rows."""
    rows = source.rows([group])
    arrays: dict[str, Any] = {"rows": pa.array([rows], type=pa.int64())}
    for column in columns:
        data_type, chunk = schema.field(column).type, chunks.get(column)
        lower, upper, nulls = None, None, rows if chunk is None else None
        if chunk is not None:
            lower, upper, _ = column_statistics(chunk, source.metadata.schema.column(source.positions[column][0]))
            counted = chunk.statistics is not None and chunk.statistics.has_null_count
            nulls = chunk.statistics.null_count if counted else None
            # The footer does not count NaN, and old writers have it as a bound.
            if pa.types.is_floating(data_type) and nulls != rows:
                nulls = None
            if lower != lower or upper != upper:  # noqa: PLR0124 - NaN
                lower, upper = None, None
        try:
            ends = [pa.array([end], type=data_type) for end in (lower, upper)]
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            ends = [pa.nulls(1, data_type)] * 2
        arrays |= {f"lower/{column}": ends[0], f"upper/{column}": ends[1]}
        arrays[f"nulls/{column}"] = pa.array([nulls], type=pa.int64())
    return pa.table(arrays)


# --- row groups: footers of files -----------------------------------------------------------------


ROW_GROUP_SCHEMA = pa.schema(
    [
        ("partition_label", pa.string()),
        ("row_group_id", pa.int64()),
        ("row_group_compressed_size", pa.int64()),
        ("row_group_uncompressed_size", pa.int64()),
        ("number_rows_total", pa.int64()),
        ("number_row_groups", pa.int64()),
        ("serialized_size", pa.int64()),
        ("number_rows_per_row_group", pa.int64()),
    ]
)


def row_group_table(
    store: Store, dataset: str, files: Sequence[tuple[str, str]], executor: Executor = THREADS
) -> pa.Table:
    """One row, of `ROW_GROUP_SCHEMA`, for each row group of these files, in their order.

    A file is a pair of partition label and key.
    """
    groups = map_files(partial(_row_groups, store, dataset), files, executor=executor, store=store)
    return pa.Table.from_pylist(list(chain.from_iterable(groups)), schema=ROW_GROUP_SCHEMA)


def _row_groups(store: Store, dataset: str, file: tuple[str, str]) -> list[dict[str, Any]]:
    label, key = file
    if not key.endswith(DATA_SUFFIX):
        raise Unsupported(f"The file {key!r} of dataset {dataset!r} is no Parquet file, so it has no row groups.")
    with open_file(store, key, dataset) as source:
        metadata, file_size = source.metadata, source.size
        chunks = source.chunks(range(metadata.num_row_groups), {*source.schema.names})
    return [
        {
            "partition_label": label,
            "row_group_id": group,
            "row_group_compressed_size": sum(int(c.total_compressed_size) for c in chunks[group]),
            "row_group_uncompressed_size": sum(int(c.total_uncompressed_size) for c in chunks[group]),
            "number_rows_total": metadata.num_rows,
            "number_row_groups": metadata.num_row_groups,
            "serialized_size": file_size,
            "number_rows_per_row_group": metadata.row_group(group).num_rows,
        }
        for group in range(metadata.num_row_groups)
    ]
