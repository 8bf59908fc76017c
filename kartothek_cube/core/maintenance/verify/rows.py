"""The deep checks: every data file is read once, in pieces, and the partitions in parallel."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from kartothek_cube.core.arguments import pluralize
from kartothek_cube.core.arrow.keys import IntArray, pack_one, stable_order
from kartothek_cube.core.arrow.types import common_type, compatible, stored_type
from kartothek_cube.core.io.formats import DATA_SUFFIX
from kartothek_cube.core.io.parquet import open_file
from kartothek_cube.core.io.reader import FileRequest, open_rows, read_rows
from kartothek_cube.core.maintenance.verify.bounds import BoundsPass, bounds_of_files
from kartothek_cube.core.maintenance.verify.files import readable_files
from kartothek_cube.core.maintenance.verify.indices import Indices, labelled_values, rebuild
from kartothek_cube.core.maintenance.verify.inspection import DAMAGE, Inspection
from kartothek_cube.core.maintenance.verify.report import Finding, Severity
from kartothek_cube.core.metadata.statistics import FileStatistics
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.runtime.options import Phase, current_options
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.errors import Unsupported

__all__ = ["CellPass", "Contradictions", "DistinctValues", "distinct_index_values", "piece_bytes", "row_findings"]

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


@dataclass(slots=True)
class OrderPass:
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


@dataclass(slots=True)
class CellPass:
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


@dataclass(frozen=True, slots=True)
class _File:
    """One data file, as the document describes it."""

    key: str
    table: str
    position: int
    label: str
    constants: Mapping[str, pa.Scalar]


@dataclass(slots=True)
class _PartitionPass:
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
        partition.findings.extend(_column_faults(subject.uuid, file, inside, schema, payload, dropped))
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


def _column_faults(
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
