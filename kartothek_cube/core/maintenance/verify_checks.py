"""The deep checks: every data file is read once, in pieces, the partitions in parallel.

In order:

- statistics: they can be read, and rows are within the bounds
- files, against one listing
- the Delta table
- indices: files, types, labels, coverage
- rows
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from msgspec import Struct, field

from kartothek_cube.core.arguments import pluralize
from kartothek_cube.core.arrow.bounds import joined_bounds, measure_bounds
from kartothek_cube.core.arrow.keys import IntArray, pack_one, stable_order
from kartothek_cube.core.arrow.types import common_type, compatible, stored_type
from kartothek_cube.core.delta.log import LogListing, is_always_published, state_id
from kartothek_cube.core.delta.publication import living_logs, read_log
from kartothek_cube.core.io.formats import CSV_GZIP_SUFFIX, CSV_SUFFIX, DATA_SUFFIX, INDEX_SUFFIX
from kartothek_cube.core.io.parquet import open_file
from kartothek_cube.core.io.parquet_rows import read_columns
from kartothek_cube.core.io.reader import FileRequest, open_rows, read_rows
from kartothek_cube.core.maintenance.garbage import own_folders, tracked_keys
from kartothek_cube.core.maintenance.inspection import DAMAGE, Finding, Inspection, Severity
from kartothek_cube.core.metadata.document import DELTA_KEY
from kartothek_cube.core.metadata.index import SecondaryIndex, index_from_table, index_labels, index_type
from kartothek_cube.core.metadata.naming import folders_of_logs, is_log_key
from kartothek_cube.core.metadata.snapshot import type_of_column
from kartothek_cube.core.metadata.statistics import (
    STATISTICS_KEY,
    FileStatistics,
    StatisticsReference,
    file_names,
    reference_of,
    statistics_key,
)
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.runtime.options import Phase, current_options
from kartothek_cube.core.snapshots.loader import load_index
from kartothek_cube.core.snapshots.statistics import load_statistics, read_statistics_file
from kartothek_cube.core.stores.contract import Entry, Store, check_key
from kartothek_cube.errors import InvalidInput, KeyNotFound, Unsupported


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


# --- files ----------------------------------------------------------------------------------------


_SUFFIXES = (DATA_SUFFIX, CSV_SUFFIX, CSV_GZIP_SUFFIX)
# A first filter in Arrow: only keys that fail it are given to `check_key`, one by one.
_VALID = r"""^[`!"#$%&'()+,\-./<=>?@\[\]^_{}~0-9a-zA-Z ]+$"""
_SUSPICIOUS = r"(^|/)\.{0,2}(/|$)|~$|[^/]{256}"

# --- files that the document names --------------------------------------------------------------


def named_files(subject: Inspection) -> pa.Table:
    """One row for each data file: its key, the position of its partition, and its table."""
    schema = pa.schema([("key", pa.string()), ("partition", pa.int64()), ("table", pa.string())])
    positions = pa.array(range(len(subject.snapshot.partitions)), type=pa.int64())
    pieces = [
        pa.table([keys, positions, pa.repeat(table, len(keys))], schema=schema)
        for table, keys in subject.snapshot.partitions.files.items()
    ]
    files = pa.concat_tables([schema.empty_table(), *pieces])
    return files.filter(pc.is_valid(files.column("key")))


def file_findings(store: Store, subject: Inspection) -> Iterator[Finding]:
    """Data files with an invalid key or unknown format, and foreign, missing and shared ones."""
    files = named_files(subject)
    invalid = _invalid(files.column("key"))
    is_invalid = pc.is_in(files.column("key"), value_set=invalid)
    for key, label in _each(subject, files.filter(is_invalid)):
        text = f"The document names a key that no store holds. {_reason(key)}"
        yield Finding("error", "invalid-key", subject.uuid, text, key=key, label=label)
    valid = files.filter(pc.invert(is_invalid))
    for key, label in _each(subject, valid.filter(pc.invert(_has_format(valid.column("key"))))):
        text = f"A data file of this name cannot be read; its name must end in {', '.join(_SUFFIXES)}."
        yield Finding("error", "file-format", subject.uuid, text, key=key, label=label)
    for key, label in _each(subject, valid.filter(pc.invert(pc.starts_with(valid.column("key"), f"{subject.uuid}/")))):
        text = (
            f"The file is outside of {subject.uuid}/: its owner may delete it, "
            "and deleting this dataset in kartothek deletes it."
        )
        mend = f"copy_dataset({subject.uuid!r}, store, ...) copies it, too"
        yield Finding("warning", "foreign-file", subject.uuid, text, key=key, label=label, mend=mend)
    present = _present(store, subject, valid.column("key"))
    for key, label in _each(subject, valid.filter(pc.invert(pc.is_in(valid.column("key"), value_set=present)))):
        text = "The document names a file that is not in the store. Its rows are lost, and reading fails."
        mend = "restore the file, or go back with undo(...), or remove its partition with a delete scope"
        yield Finding("error", "missing-file", subject.uuid, text, key=key, label=label, mend=mend)
    counts = files.group_by("key").aggregate([("partition", "count")])
    shared = counts.filter(pc.greater(counts.column("partition_count"), 1)).column("key")
    repeated = files.filter(pc.is_in(files.column("key"), value_set=shared.combine_chunks()))
    owners: dict[str, list[str]] = {}
    for key, label in _each(subject, repeated):
        owners.setdefault(key, []).append(label)
    for key, labels in owners.items():
        examples = ", ".join(map(repr, labels[:3]))
        text = f"{len(labels)} entries of the document name this file ({examples}); its rows are read as often."
        yield Finding("error", "shared-file", subject.uuid, text, key=key, label=labels[0])


def readable_files(store: Store, subject: Inspection) -> pa.Table:
    """The `named_files` that exist and have a valid key and a known format."""
    files = named_files(subject)
    keys = files.column("key")
    present = _present(store, subject, keys.filter(pc.invert(pc.is_in(keys, value_set=_invalid(keys)))))
    return files.filter(pc.and_(pc.is_in(keys, value_set=present), _has_format(keys)))


def _invalid(keys: pa.ChunkedArray) -> pa.Array:
    """The distinct keys that a store refuses."""
    is_suspicious = pc.match_substring_regex(keys, _SUSPICIOUS)
    is_suspicious = pc.or_(pc.invert(pc.match_substring_regex(keys, _VALID)), is_suspicious)
    suspects = pc.unique(keys.filter(is_suspicious)).to_pylist()
    return pa.array([key for key in suspects if _reason(key)], type=pa.string())


def _reason(key: str) -> str:
    """Why a store refuses a key; empty if it does not."""
    try:
        check_key(key)
    except InvalidInput as error:
        return str(error)
    return ""


def _has_format(keys: pa.ChunkedArray) -> pa.ChunkedArray:
    masks = [pc.ends_with(keys, suffix) for suffix in _SUFFIXES]
    return pc.or_(pc.or_(masks[0], masks[1]), masks[2])


def _present(store: Store, subject: Inspection, keys: pa.ChunkedArray) -> pa.Array:
    """The keys below ``<uuid>/``, and below each other top-level folder that these keys name."""
    outside = keys.filter(pc.invert(pc.starts_with(keys, f"{subject.uuid}/")))
    owners = pc.unique(pc.replace_substring_regex(outside, r"/.*", "/")).to_pylist()
    listings = map_in_threads(lambda owner: store.list(owner, recursive=True).keys, owners)
    return pa.array([*subject.entries, *chain.from_iterable(listings)], type=pa.string())


def _each(subject: Inspection, files: pa.Table) -> Iterator[tuple[str, str]]:
    """Key and label of each file."""
    labels = subject.snapshot.partitions.labels.take(files.column("partition").combine_chunks())
    return zip(files.column("key").to_pylist(), labels.to_pylist(), strict=True)


# --- files that the document does not name -----------------------------------------------------


def leftover_findings(subject: Inspection, kept: Collection[str], tagged: Collection[str]) -> Iterator[Finding]:
    """Files below ``<uuid>/`` that the document does not name: of history, tags, garbage, unknown.

    ``kept`` are the files that history names, and ``tagged`` those that tags name.
    """
    tracked, uuid = tracked_keys(subject.snapshot), subject.uuid
    folders: tuple[str, ...] = (f"{uuid}/indices/",)
    if subject.is_explicit:
        folders = own_folders(uuid, {*subject.snapshot.tables, *subject.snapshot.partitions.files}, subject.entries)
    of_history, of_tags, garbage, unknown = list[Entry](), list[Entry](), list[Entry](), list[Entry]()
    for entry in subject.entries.values():
        key = entry.key
        bookkeeping = (f"{uuid}/_history/", f"{uuid}/_tags/", f"{uuid}/_gc/")
        if key in tracked or is_log_key(key) or key.startswith(bookkeeping):
            continue
        if key in kept:
            of_history.append(entry)
        elif key in tagged:
            of_tags.append(entry)
        elif key.startswith(folders) and (subject.is_explicit or key.endswith(INDEX_SUFFIX)):
            garbage.append(entry)
        else:
            unknown.append(entry)
    yield from _leftover(uuid, "kept-for-snapshots", of_history, "Named by kept history only, for older snapshots")
    yield from _leftover(uuid, "kept-for-tags", of_tags, "Named by tags only")
    mend = f"garbage_collect_dataset({uuid!r}, store)"
    yield from _leftover(uuid, "garbage", garbage, "Named by no document, no history and no tag", mend)
    yield from _leftover(uuid, "unknown-files", unknown, "In no table and no index, so never read and never removed")


def _leftover(uuid: str, check: str, entries: Sequence[Entry], what: str, mend: str = "") -> Iterator[Finding]:
    if entries:
        size = pluralize(sum(e.size or 0 for e in entries), "byte")
        text = f"{what}: {pluralize(len(entries), 'file')}, {size} in all."
        yield Finding("info", check, uuid, text, key=entries[0].key, mend=mend, count=len(entries))


# --- the Delta table ------------------------------------------------------------------------------


def delta_findings(store: Store, subject: Inspection) -> Iterator[Finding]:
    """Logs that cannot be read, name missing files, or are behind."""
    uuid, document = subject.uuid, subject.snapshot.document
    mend = f"publish_delta({uuid!r}, store)"
    found = folders_of_logs(subject.entries)
    living = living_logs([subject.snapshot]) if found else frozenset()
    folders = [folder for folder in found if folder in living]
    for folder in (folder for folder in found if folder not in living):
        text = "The log of a Delta table that is not published; garbage collection removes it."
        yield Finding("info", "delta-log", uuid, text, key=folder, mend=f"garbage_collect_dataset({uuid!r}, store)")
    if DELTA_KEY in document.metadata and not folders:
        text = "Its Delta table has no log any more: another library removed it as garbage, or a call was interrupted."
        yield Finding("warning", "delta-log", uuid, text, mend=mend)
    for folder in folders:
        log = read_log(store, folder, LogListing.of(key for key in subject.entries if key.startswith(folder)))
        if log.state is None:
            text = "Versions of the Delta table are missing or cannot be read."
            yield Finding("warning", "delta-log", uuid, text, key=folder, mend=mend)
            continue
        missing = [key for key in log.state.files.to_pylist() if key not in subject.entries]
        if missing:
            text = f"Version {log.last} of the Delta table names files that are not in the store; its readers fail."
            yield Finding("warning", "delta-file", uuid, text, key=missing[0], mend=mend, count=len(missing))
        elif is_always_published(document) and log.state.state != state_id(subject.snapshot):
            text = f"The Delta table stays at version {log.last}, of commit {log.state.state}: a publication failed."
            yield Finding("warning", "delta-behind", uuid, text, key=folder, mend=mend)


# --- indices --------------------------------------------------------------------------------------


class Indices(Struct, frozen=True):
    """The readable secondary indices by column, and findings about all of them."""

    loaded: Mapping[str, SecondaryIndex] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


def rebuild(uuid: str, column: str) -> str:
    """The call that rebuilds an index."""
    return f"build_dataset_indices(store, {uuid!r}, [{column!r}])"


def indices_of(store: Store, subject: Inspection) -> Indices:
    """Read all secondary indices whole, and check their columns and files."""
    columns = sorted(subject.snapshot.document.indices)
    types = {column: _index_type(subject, column) for column in columns}
    findings = [f for column in columns for f in _column_faults(subject, column, types[column])]
    usable = [(column, data_type) for column, data_type in types.items() if data_type is not None]
    phase = Phase("verify", "indices")
    results = list(map_in_threads(lambda item: _load(store, subject, *item), usable, store=store, phase=phase))
    loaded = {c: index for (c, _), (index, _) in zip(usable, results, strict=True) if index is not None}
    return Indices(loaded, (*findings, *(f for _, faults in results for f in faults)))


def _index_type(subject: Inspection, column: str) -> pa.DataType | None:
    """The type of an index on a column; None if the column cannot have one."""
    try:
        return index_type(type_of_column(subject.snapshot.schemas, column, subject.uuid), column, subject.uuid)
    except DAMAGE:
        return None


# --- rows -----------------------------------------------------------------------------------------


def _column_faults(subject: Inspection, column: str, data_type: pa.DataType | None) -> Iterator[Finding]:
    schemas = subject.snapshot.schemas
    if not any(column in schema.names for schema in schemas.values()):
        if schemas:
            text = "There is an index on a column that the schema lacks."
            yield Finding("error", "index-column", subject.uuid, text, column=column)
    elif data_type is None:
        column_type = type_of_column(schemas, column, subject.uuid)
        text = f"There is an index on a column of type {column_type}, on which there can be none."
        yield Finding("error", "index-column", subject.uuid, text, column=column)
    if column in subject.snapshot.partition_keys:
        text = "There is an index on a partition column, which needs none: every check of a cube fails."
        yield Finding("warning", "index-on-partition-column", subject.uuid, text, column=column)


def _load(
    store: Store, subject: Inspection, column: str, data_type: pa.DataType
) -> tuple[SecondaryIndex | None, list[Finding]]:
    uuid, key, mend = subject.uuid, _key(subject, column), rebuild(subject.uuid, column)
    try:
        if key is None:
            return load_index(store, subject.snapshot, column)[0], []
        table, _ = read_columns(store, key, uuid)
        findings = []
        # kartothek once wrote index files beside the documents.
        is_legacy = key == f"{uuid}.{column}{INDEX_SUFFIX}"
        if not key.startswith(f"{uuid}/") and not is_legacy:
            text = f"The index file is outside of {uuid}/: its owner may delete it."
            findings.append(Finding("warning", "foreign-file", uuid, text, key=key, column=column, mend=mend))
        # `index_from_table` casts whatever Arrow can cast, also values of another family of types.
        file_type = table.schema.field(column).type if column in table.schema.names else None
        if file_type is not None and not compatible(stored_type(file_type), data_type):
            text = f"The index file has values of type {file_type}, but the column is {data_type}."
            findings.append(Finding("error", "index-type", uuid, text, key=key, column=column, mend=mend))
            return None, findings
        return index_from_table(table, column, data_type, key), findings
    except KeyNotFound:
        text = "The index file is not in the store. Queries on the column, and all updates in kartothek, fail."
        return None, [Finding("error", "missing-index", uuid, text, key=key, column=column, mend=mend)]
    except DAMAGE as error:
        return None, [Finding("error", "index-unreadable", uuid, str(error), key=key, column=column, mend=mend)]


# --- labels of the entries ----------------------------------------------------------------------


def index_findings(subject: Inspection, indices: Indices) -> Iterator[Finding]:
    """Faults of the index files, and entries with a label that the document lacks."""
    yield from indices.findings
    for column, index in indices.loaded.items():
        labels = index_labels(index)
        dangling = labels.filter(pc.invert(pc.is_in(labels, value_set=subject.snapshot.partitions.labels)))
        if len(dangling):
            text = (
                f"The index names {len(dangling):,} labels that the document does not have; "
                "kartothek fails to read what matches them."
            )
            key, label, mend = _key(subject, column), dangling[0].as_py(), rebuild(subject.uuid, column)
            yield Finding("error", "index-label", subject.uuid, text, key, label, column, mend)


def _key(subject: Inspection, column: str) -> str | None:
    """Key of an index file; None if the document embeds the index."""
    reference = subject.snapshot.document.indices[column]
    return reference if isinstance(reference, str) else None


def uncovered(subject: Inspection, index: SecondaryIndex) -> IntArray:
    """Positions of the partitions that no entry of an index names."""
    labels = subject.snapshot.partitions.labels
    return np.flatnonzero(~pc.is_in(labels, value_set=index_labels(index)).to_numpy(zero_copy_only=False))


def coverage_findings(subject: Inspection, indices: Indices) -> Iterator[Finding]:
    """Partitions that no entry of an index names."""
    # Right for a partition without values in the column, which only its data shows; queries miss
    # the rows of any other. This library indexes every partition that it commits; others may not.
    is_ours = not subject.snapshot.has_foreign_commit
    severity: Severity = "info" if is_ours else "warning"
    for column, index in indices.loaded.items():
        positions = uncovered(subject, index)
        if len(positions):
            text = (
                f"No entry of the index names {pluralize(len(positions), 'partition')}. "
                "Either no value is there, or queries miss rows: deep=True tells."
            )
            label = subject.snapshot.partitions.labels[int(positions[0])].as_py()
            key, mend = _key(subject, column), "" if is_ours else rebuild(subject.uuid, column)
            yield Finding(
                severity, "index-coverage", subject.uuid, text, key, label, column, mend, count=len(positions)
            )


def labelled_values(subject: Inspection, index: SecondaryIndex) -> tuple[pa.Array, IntArray]:
    """The values of an index by partition: *i* has ``values[starts[i]:starts[i + 1]]``."""
    positions = index.positions(subject.snapshot.partitions.labels)
    order = np.argsort(positions, kind="stable")
    starts = np.searchsorted(positions[order], np.arange(len(subject.snapshot.partitions) + 1))
    return index.values.take(pa.array(order)), starts.astype(np.int64)


# --- figures of rows, added up piece by piece: pure ---------------------------------------------


def distinct_index_values(values: pa.ChunkedArray | pa.Array, data_type: pa.DataType) -> pa.Array:
    """The distinct values in the type of an index, without null and NaN."""
    distinct = pc.unique(values.cast(data_type)).drop_null()
    if not pt.is_floating(data_type):
        return distinct
    distinct = pc.unique(pc.add(distinct, 0.0))  # -0.0 and 0.0 are one value
    return distinct.filter(pc.invert(pc.is_nan(distinct)))


def _null_count(values: pa.ChunkedArray) -> int:
    return int(pc.sum(pc.is_null(values, nan_is_null=True)).as_py() or 0)


class DistinctValues:
    """The distinct values of indexed columns, and the number of nulls in each."""

    def __init__(self, types: Mapping[str, pa.DataType]) -> None:
        self._types = types
        self.values = {column: pa.array([], type=data_type) for column, data_type in types.items()}
        self.nulls = dict.fromkeys(types, 0)

    def add(self, rows: pa.Table) -> None:
        """Add more rows."""
        for column in self._types.keys() & set(rows.column_names):
            distinct = distinct_index_values(rows.column(column), self._types[column])
            self.values[column] = pc.unique(pa.concat_arrays([self.values[column], distinct]))
            self.nulls[column] += _null_count(rows.column(column))


class Contradictions:
    """The number of rows whose partition columns inside the file differ from its path."""

    def __init__(self, constants: Mapping[str, pa.Scalar]) -> None:
        self._constants = constants
        self.rows = dict.fromkeys(constants, 0)

    def add(self, rows: pa.Table) -> None:
        """Add more rows."""
        for column, value in self._constants.items():
            same = pc.fill_null(pc.equal(rows.column(column).cast(value.type), value), False)
            self.rows[column] += rows.num_rows - int(pc.sum(same).as_py() or 0)


class OrderPass(Struct):
    """Whether the rows of one file, which come in pieces, are sorted by some columns."""

    columns: Sequence[str]
    is_sorted: bool = True
    _last: pa.Table | None = None

    def add(self, rows: pa.Table) -> None:
        """Add more rows."""
        keys = rows.select(list(self.columns))
        joined = keys if self._last is None else pa.concat_tables([self._last, keys])
        self.is_sorted = self.is_sorted and stable_order(pack_one(joined, self.columns)) is None
        self._last = keys.slice(max(0, keys.num_rows - 1))


class CellPass(Struct):
    """Order, repetitions and nulls of the cells of one file, whose rows come in pieces.

    ``repeated`` counts the rows that repeat the one before. In a sorted file these are all
    repetitions; the others need `count_all`.
    """

    columns: Sequence[str]
    is_sorted: bool = True
    repeated: int = 0
    nulls: dict[str, int] = field(default_factory=dict)
    example: dict[str, Any] = field(default_factory=dict)
    _last: pa.Table | None = None

    def add(self, rows: pa.Table) -> None:
        """Add more rows."""
        cells = rows.select(list(self.columns))
        for column in cells.column_names:
            nulls = _null_count(cells.column(column))
            if nulls:
                self.nulls[column] = self.nulls.get(column, 0) + nulls
        # The last row of the piece before, so that repetitions across the border count.
        joined = cells if self._last is None else pa.concat_tables([self._last, cells])
        keys = pack_one(joined, self.columns)
        self.is_sorted = self.is_sorted and bool(np.all(keys[1:] >= keys[:-1]))
        self._count(joined, np.flatnonzero(keys[1:] == keys[:-1]))
        self._last = cells.slice(max(0, cells.num_rows - 1))

    def count_all(self, cells: pa.Table) -> None:
        """Count the repetitions anew, in all cells of a file that is not sorted."""
        keys = pack_one(cells, self.columns)
        order = np.argsort(keys, kind="stable")
        self.repeated = 0
        self._count(cells, order[1:][keys[order[1:]] == keys[order[:-1]]])

    def _count(self, cells: pa.Table, positions: np.ndarray[Any, Any]) -> None:
        self.repeated += len(positions)
        if len(positions) and not self.example:
            self.example = cells.slice(int(positions[0]), 1).to_pylist()[0]


# --- the run ------------------------------------------------------------------------------------

# Smaller pieces spend their time on the calls, not on the rows.
_MIN_PIECE_BYTES = 2**16


def piece_bytes() -> int:
    """Bytes of a piece, so that the pieces of all threads stay within ``bytes_in_flight``."""
    settings = current_options()
    return max(_MIN_PIECE_BYTES, settings.bytes_in_flight // (4 * settings.thread_count))


class _File(Struct, frozen=True):
    """One data file, as the document describes it."""

    key: str
    table: str
    position: int
    label: str
    constants: Mapping[str, pa.Scalar]


class _PartitionPass(Struct):
    """What the files of one partition hold."""

    distinct: DistinctValues
    rows: int = 0
    complete: bool = True
    findings: list[Finding] = field(default_factory=list)


def row_findings(
    store: Store, subject: Inspection, indices: Indices, dimensions: Sequence[str]
) -> tuple[list[Finding], int]:
    """Check the rows of a dataset; return the findings and the number of rows.

    ``dimensions`` are the dimension columns, in order, of a dataset of a cube.
    """
    listed = {c: (index.values.type, *labelled_values(subject, index)) for c, index in indices.loaded.items()}
    groups = _by_partition(store, subject)
    statistics = bounds_of_files(store, subject, [file.key for group in groups for file in group])

    def check(files: list[_File]) -> _PartitionPass:
        partition = _PartitionPass(DistinctValues({c: data_type for c, (data_type, _, _) in listed.items()}))
        for file in files:
            try:
                _check_file(store, subject, file, dimensions, partition, statistics.get(file.key))
            except DAMAGE as error:
                partition.complete = False
                text = str(error)
                partition.findings.append(
                    Finding("error", "file-unreadable", subject.uuid, text, key=file.key, label=file.label)
                )
        # Values that were not read would count as surplus entries of the index.
        if partition.complete:
            partition.findings.extend(_index_faults(subject, files[0], partition.distinct, listed))
        return partition

    findings, rows = list[Finding](), 0
    for partition in map_in_threads(check, groups, phase=Phase("verify", "partitions")):
        findings.extend(partition.findings)
        rows += partition.rows
    return findings, rows


def _by_partition(store: Store, subject: Inspection) -> list[list[_File]]:
    """The readable files, those of one partition together."""
    files, snapshot = readable_files(store, subject).sort_by("partition"), subject.snapshot
    groups: dict[int, list[_File]] = {}
    labels = snapshot.partitions.labels.take(files.column("partition").combine_chunks()).to_pylist()
    for row, label in zip(files.to_pylist(), labels, strict=True):
        position = row["partition"]
        constants = {c: snapshot.values.column(c)[position] for c in snapshot.values.column_names}
        groups.setdefault(position, []).append(_File(row["key"], row["table"], position, label, constants))
    return [group for group in groups.values() if all(file.table in snapshot.schemas for file in group)]


# --- one file -----------------------------------------------------------------------------------


def _check_file(
    store: Store,
    subject: Inspection,
    file: _File,
    dimensions: Sequence[str],
    partition: _PartitionPass,
    statistics: FileStatistics | None,
) -> None:
    schema = subject.snapshot.schemas[file.table]
    payload = [c for c in schema.names if c not in subject.snapshot.partition_keys]
    columns = payload  # CSV has no types of its own
    if file.key.endswith(DATA_SUFFIX):
        with open_file(store, file.key, subject.uuid) as source:
            inside = {f.name: f.type for f in source.schema if not f.name.startswith("__index_level_")}
        dropped = subject.dropped.get(file.table, pa.schema([])).names
        partition.findings.extend(_faults_of_columns(subject.uuid, file, inside, schema, payload, dropped))
        readable = {c for c in schema.names if c in inside and _is_readable(inside[c], schema.field(c).type)}
        columns = [c for c in schema.names if c in readable or (c in payload and c not in inside)]
    request = FileRequest(subject.uuid, schema, tuple(columns))
    contradictions = Contradictions({c: value for c, value in file.constants.items() if c in columns})
    cells = CellPass([c for c in dimensions if c in columns and c not in file.constants])
    bounds = BoundsPass(statistics, request.schema, columns)
    order = OrderPass([c for c in subject.layout.sort_by if c in columns])
    partition.complete &= set(partition.distinct.values) & set(request.schema.names) <= set(columns)
    for piece in open_rows(store, file.key, request, piece_bytes())[1]:
        partition.rows += piece.num_rows
        partition.distinct.add(piece)
        contradictions.add(piece)
        bounds.add(piece)
        if order.columns:
            order.add(piece)
        if cells.columns:
            cells.add(piece)
    if not cells.is_sorted:
        # Repetitions may be anywhere: the dimension columns are read again, all at once.
        cells.count_all(read_rows(store, file.key, FileRequest(subject.uuid, request.schema, tuple(cells.columns))))
    for column, rows in contradictions.rows.items():
        if rows:
            text = (
                f"{pluralize(rows, 'row')} with another value of the partition column than the path, "
                f"{file.constants[column].as_py()!r}. The path counts."
            )
            check = "partition-column-in-file"
            partition.findings.append(
                Finding("warning", check, subject.uuid, text, key=file.key, label=file.label, column=column)
            )
    if not order.is_sorted:
        text = (
            f"Files are not sorted by {', '.join(order.columns)}, the order on record; ranges of these open more files."
        )
        mend = f"compact_dataset({subject.uuid!r}, store)"
        finding = Finding("info", "layout-order", subject.uuid, text, key=file.key, label=file.label, mend=mend)
        partition.findings.append(finding)
    mend = "restore the file, which was changed by hand, or write its rows again"
    for name, text in bounds.faults():
        partition.findings.append(Finding("error", "statistics", subject.uuid, text, file.key, file.label, name, mend))
    partition.findings.extend(_cell_faults(subject.uuid, file, cells))


def _is_readable(file_type: pa.DataType, data_type: pa.DataType) -> bool:
    try:
        return compatible(stored_type(file_type), data_type)
    except Unsupported:
        return False


def _faults_of_columns(
    uuid: str,
    file: _File,
    inside: Mapping[str, pa.DataType],
    schema: pa.Schema,
    payload: Sequence[str],
    dropped: Collection[str],
) -> Iterator[Finding]:
    for column, file_type in inside.items():
        if column not in schema.names:
            text, mend = "Files have a column that the schema lacks; readers pass over it.", ""
            if column in dropped:
                text = "Files have the old values of a column that was dropped."
                mend = f"compact_dataset({uuid!r}, store, rewrite=True)"
            yield Finding("info", "surplus-column", uuid, text, file.key, file.label, column, mend)
            continue
        data_type = schema.field(column).type
        if not _is_readable(file_type, data_type):
            text = f"The file has {file_type}, but the dataset says {data_type}. Reading the column fails."
            yield Finding("error", "file-types", uuid, text, key=file.key, label=file.label, column=column)
            continue
        narrow = stored_type(file_type)
        is_narrower = not narrow.equals(data_type) and not pt.is_null(narrow)
        if is_narrower and column in payload and data_type == common_type(narrow, data_type):
            text = (
                f"Files have {narrow}, read as {data_type}; kartothek gives each file's own type "
                '(docs, page "Differences from kartothek", 20).'
            )
            yield Finding("info", "narrower-column", uuid, text, key=file.key, label=file.label, column=column)
    for column in payload:
        if column not in inside:
            text = "Files lack a column; it is null in all of their rows."
            yield Finding("info", "lacking-column", uuid, text, key=file.key, label=file.label, column=column)


def _cell_faults(uuid: str, file: _File, cells: CellPass) -> Iterator[Finding]:
    for column, rows in cells.nulls.items():
        text = (
            f"{pluralize(rows, 'row')} with null in a dimension. "
            "Queries take it for one value; kartothek loses such rows from groups."
        )
        yield Finding("warning", "null-dimension", uuid, text, key=file.key, label=file.label, column=column)
    if cells.repeated:
        text = (
            f"{pluralize(cells.repeated, 'row')} with a cell that the same file has before, "
            f"for example {cells.example}. Which of them counts is not defined."
        )
        yield Finding("error", "duplicate-cells", uuid, text, key=file.key, label=file.label)
    if not cells.is_sorted:
        text = (
            "Files are not sorted by the dimension columns, as cube verbs write them; "
            "queries sort their rows each time."
        )
        yield Finding("info", "unsorted-file", uuid, text, key=file.key, label=file.label)


# --- rows against indices -----------------------------------------------------------------------

# The type of an index, its values sorted by partition, and where each partition starts.
_ListedValues = tuple[pa.DataType, pa.Array, IntArray]


def _index_faults(
    subject: Inspection, file: _File, distinct: DistinctValues, listed: Mapping[str, _ListedValues]
) -> Iterator[Finding]:
    uuid = subject.uuid
    for column, (data_type, values, starts) in listed.items():
        first, last = int(starts[file.position]), int(starts[file.position + 1])
        entries = distinct_index_values(values.slice(first, last - first), data_type)
        unlisted, surplus = _without(distinct.values[column], entries), _without(entries, distinct.values[column])
        faults: list[tuple[Severity, str, str]] = []
        if len(unlisted):
            text = (
                f"The index does not know {len(unlisted):,} values of the file ({_examples(unlisted)}): "
                "queries for them miss rows."
            )
            faults.append(("error", "index-values", text))
        if len(surplus):
            text = (
                f"The index has {len(surplus):,} values that no row of the partition has ({_examples(surplus)}): "
                "queries for them read it in vain."
            )
            faults.append(("warning", "index-surplus", text))
        for severity, check, text in faults:
            mend = rebuild(uuid, column)
            yield Finding(severity, check, uuid, text, key=file.key, label=file.label, column=column, mend=mend)
        if distinct.nulls[column]:
            text = (
                "An indexed column has nulls. In kartothek the index decides whether they match a condition "
                '(docs, page "Differences from kartothek", 4).'
            )
            yield Finding("info", "null-in-index-column", uuid, text, label=file.label, column=column)


def _without(values: pa.Array, others: pa.Array) -> pa.Array:
    return values.filter(pc.invert(pc.is_in(values, value_set=others)))


_EXAMPLES = 3
_EXAMPLE_LENGTH = 60


def _examples(values: pa.Array) -> str:
    """The first values as text."""
    shown = [repr(v)[:_EXAMPLE_LENGTH] for v in values.slice(0, _EXAMPLES).to_pylist()]
    return ", ".join(shown) + (", …" if len(values) > _EXAMPLES else "")
