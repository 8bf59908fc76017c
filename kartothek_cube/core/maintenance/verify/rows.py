"""The deep part of a verification: every data file is read, in pieces and in threads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from kartothek_cube.core.arrow.schema import compatible
from kartothek_cube.core.arrow.sort_keys import IntArray, pack_one
from kartothek_cube.core.arrow.types import common_type, stored_type
from kartothek_cube.core.io.file_format import DATA_SUFFIX
from kartothek_cube.core.io.parquet_source import open_file
from kartothek_cube.core.io.reader import FileRequest, open_rows, read_rows
from kartothek_cube.core.maintenance.verify.files import readable_files
from kartothek_cube.core.maintenance.verify.indices import Indices, labelled_values, rebuild
from kartothek_cube.core.maintenance.verify.inspection import DAMAGE, Inspection
from kartothek_cube.core.maintenance.verify.report import Finding
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.runtime.options import current_options
from kartothek_cube.core.runtime.progress import Phase
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.core.text import pluralize
from kartothek_cube.errors import Unsupported

__all__ = ["CellPass", "Contradictions", "DistinctValues", "examples", "known_values", "piece_bytes", "row_findings"]

_EXAMPLES = 3

_LONGEST = 60


def examples(values: pa.Array | pa.ChunkedArray) -> str:
    """The first values as text."""
    shown = [repr(v)[:_LONGEST] for v in values.slice(0, _EXAMPLES).to_pylist()]
    return ", ".join(shown) + (", …" if len(values) > _EXAMPLES else "")


def known_values(column: pa.ChunkedArray | pa.Array, kind: pa.DataType) -> pa.Array:
    """The distinct values in the type of an index, without null and NaN."""
    values = pc.unique(column.cast(kind)).drop_null()
    if not pt.is_floating(kind):
        return values
    values = pc.unique(pc.add(values, 0.0))  # -0.0 and 0.0 are one value
    return values.filter(pc.invert(pc.is_nan(values)))


class DistinctValues:
    """The distinct values of indexed columns that some rows have, and how many rows have none."""

    def __init__(self, kinds: Mapping[str, pa.DataType]) -> None:
        self._kinds = kinds
        self.values = {column: pa.array([], type=kind) for column, kind in kinds.items()}
        self.nulls = dict.fromkeys(kinds, 0)

    def add(self, rows: pa.Table) -> None:
        """Look at more rows."""
        for column in self._kinds.keys() & set(rows.column_names):
            kind, values = self._kinds[column], rows.column(column)
            self.values[column] = pc.unique(pa.concat_arrays([self.values[column], known_values(values, kind)]))
            self.nulls[column] += int(pc.sum(pc.is_null(values, nan_is_null=True)).as_py() or 0)


class Contradictions:
    """Rows whose partition columns inside the file say something else than its path."""

    def __init__(self, constants: Mapping[str, pa.Scalar]) -> None:
        self._constants = constants
        self.rows = dict.fromkeys(constants, 0)

    def add(self, rows: pa.Table) -> None:
        """Look at more rows."""
        for column, value in self._constants.items():
            same = pc.fill_null(pc.equal(rows.column(column).cast(value.type), value), False)
            self.rows[column] += rows.num_rows - int(pc.sum(same).as_py() or 0)


@dataclass(slots=True)
class CellPass:
    """Whether the cells of a file are sorted, how many rows repeat the one before, and how many have a null in each column.

    Rows come in pieces. In a sorted file the repetitions are all of them; in another one more may
    lie apart.
    """

    columns: Sequence[str]
    is_sorted: bool = True
    repeated: int = 0
    nulls: dict[str, int] = field(default_factory=dict)
    example: dict[str, Any] = field(default_factory=dict)
    _last: pa.Table | None = None

    def add(self, rows: pa.Table) -> None:
        """Look at more rows."""
        cells = rows.select(list(self.columns))
        for column, count in _null_counts(cells):
            self.nulls[column] = self.nulls.get(column, 0) + count
        joined = cells if self._last is None else pa.concat_tables([self._last, cells])
        keys = pack_one(joined, self.columns)
        self.is_sorted = self.is_sorted and bool(np.all(keys[1:] >= keys[:-1]))
        self._count(joined, np.flatnonzero(keys[1:] == keys[:-1]))
        self._last = cells.slice(max(0, cells.num_rows - 1))

    def count_all(self, cells: pa.Table) -> None:
        """The repetitions in the cells of the whole file, which are not sorted."""
        keys = pack_one(cells, self.columns)
        order = np.argsort(keys, kind="stable")
        self.repeated = 0
        self._count(cells, order[1:][keys[order[1:]] == keys[order[:-1]]])

    def _count(self, cells: pa.Table, positions: np.ndarray[Any, Any]) -> None:
        self.repeated += len(positions)
        if len(positions) and not self.example:
            self.example = cells.slice(int(positions[0]), 1).to_pylist()[0]


def _null_counts(cells: pa.Table) -> Iterator[tuple[str, int]]:
    for column in cells.column_names:
        count = int(pc.sum(pc.is_null(cells.column(column), nan_is_null=True)).as_py() or 0)
        if count:
            yield column, count


_LEAST_PIECE = 2**16


def piece_bytes() -> int:
    """Bytes of a piece of a file, so that those of all threads stay within the option ``bytes_in_flight``."""
    settings = current_options()
    return max(_LEAST_PIECE, settings.bytes_in_flight // (4 * settings.thread_count))


@dataclass(frozen=True, slots=True)
class _File:
    """One data file, and what is known of it before it is opened."""

    key: str
    table: str
    position: int
    label: str
    constants: Mapping[str, pa.Scalar]


@dataclass(slots=True)
class _Rows:
    """What was found in the files of one partition."""

    distinct: DistinctValues
    rows: int = 0
    complete: bool = True
    findings: list[Finding] = field(default_factory=list)


def row_findings(
    store: Store, subject: Inspection, indices: Indices, cells: Sequence[str]
) -> tuple[list[Finding], int]:
    """What is wrong with the rows of a dataset, and how many there are.

    ``cells`` are the dimension columns, in order, of a dataset of a cube.
    """
    listed = {c: (index.values.type, *labelled_values(subject, index)) for c, index in indices.loaded.items()}
    partitions = _by_partition(store, subject)

    def check(files: list[_File]) -> _Rows:
        found = _Rows(DistinctValues({c: kind for c, (kind, _, _) in listed.items()}))
        for file in files:
            _check_file(store, subject, file, cells, found)
        if found.complete:
            found.findings.extend(_index_faults(subject, files[0], found, listed))
        return found

    findings, rows = list[Finding](), 0
    for found in map_in_threads(check, partitions, phase=Phase("verify", "partitions")):
        findings.extend(found.findings)
        rows += found.rows
    return findings, rows


def _by_partition(store: Store, subject: Inspection) -> list[list[_File]]:
    """The files that can be read, those of one partition together."""
    files, snapshot = readable_files(store, subject).sort_by("partition"), subject.snapshot
    groups: dict[int, list[_File]] = {}
    labels = snapshot.partitions.labels.take(files.column("partition").combine_chunks()).to_pylist()
    for row, label in zip(files.to_pylist(), labels, strict=True):
        position = row["partition"]
        constants = {c: snapshot.values.column(c)[position] for c in snapshot.values.column_names}
        groups.setdefault(position, []).append(_File(row["key"], row["table"], position, label, constants))
    return [group for group in groups.values() if all(file.table in snapshot.schemas for file in group)]


# --- one file -------------------------------------------------------------------------------------


def _check_file(store: Store, subject: Inspection, file: _File, cells: Sequence[str], found: _Rows) -> None:
    try:
        columns = _columns(store, subject, file, found.findings)
        _read(store, subject, file, columns, cells, found)
    except DAMAGE as error:
        found.complete = False
        found.findings.append(
            Finding("error", "file-unreadable", subject.uuid, str(error), key=file.key, label=file.label)
        )


def _read(
    store: Store, subject: Inspection, file: _File, columns: Sequence[str], cells: Sequence[str], found: _Rows
) -> None:
    request = FileRequest(subject.uuid, subject.snapshot.schemas[file.table], tuple(columns))
    inside = Contradictions({c: value for c, value in file.constants.items() if c in columns})
    passed = CellPass([c for c in cells if c in columns and c not in file.constants])
    found.complete &= set(found.distinct.values) & set(request.schema.names) <= set(columns)
    for piece in open_rows(store, file.key, request, piece_bytes())[1]:
        found.rows += piece.num_rows
        found.distinct.add(piece)
        inside.add(piece)
        if passed.columns:
            passed.add(piece)
    if not passed.is_sorted:
        passed.count_all(read_rows(store, file.key, FileRequest(subject.uuid, request.schema, tuple(passed.columns))))
    found.findings.extend((*_contradictions(subject.uuid, file, inside), *_cell_faults(subject.uuid, file, passed)))


def _columns(store: Store, subject: Inspection, file: _File, findings: list[Finding]) -> list[str]:
    """The columns that can be read in the types of the dataset; and what the file has otherwise."""
    schema = subject.snapshot.schemas[file.table]
    payload = [c for c in schema.names if c not in subject.snapshot.partition_keys]
    if not file.key.endswith(DATA_SUFFIX):
        return payload
    with open_file(store, file.key, subject.uuid) as source:
        inside = {f.name: f.type for f in source.schema if not f.name.startswith("__index_level_")}
    findings.extend(_column_faults(subject.uuid, file, inside, schema, payload))
    readable = [c for c in schema.names if c in inside and _fits(inside[c], schema.field(c).type)]
    return [c for c in schema.names if c in readable or (c in payload and c not in inside)]


def _fits(kind: pa.DataType, wanted: pa.DataType) -> bool:
    try:
        return compatible(stored_type(kind), wanted)
    except Unsupported:
        return False


def _column_faults(
    uuid: str, file: _File, inside: Mapping[str, pa.DataType], schema: pa.Schema, payload: Sequence[str]
) -> Iterator[Finding]:
    for column, kind in inside.items():
        if column not in schema.names:
            text = "Files have a column that the schema lacks; readers pass over it."
            yield Finding("info", "surplus-column", uuid, text, key=file.key, label=file.label, column=column)
        elif not _fits(kind, schema.field(column).type):
            text = f"The file has {kind}, but the dataset says {schema.field(column).type}. Reading the column fails."
            yield Finding("error", "file-types", uuid, text, key=file.key, label=file.label, column=column)
        elif column in payload:
            yield from _narrower(uuid, file, column, stored_type(kind), schema.field(column).type)
    for column in payload:
        if column not in inside:
            text = "Files lack a column; it is null in all of their rows."
            yield Finding("info", "lacking-column", uuid, text, key=file.key, label=file.label, column=column)


def _narrower(uuid: str, file: _File, column: str, kind: pa.DataType, wanted: pa.DataType) -> Iterator[Finding]:
    if not kind.equals(wanted) and not pa.types.is_null(kind) and wanted == common_type(kind, wanted):
        text = f'Files have {kind}, read as {wanted}; kartothek gives each file\'s own type (docs, page "Differences from kartothek", 20).'
        yield Finding("info", "narrower-column", uuid, text, key=file.key, label=file.label, column=column)


def _contradictions(uuid: str, file: _File, inside: Contradictions) -> Iterator[Finding]:
    for column, rows in inside.rows.items():
        if rows:
            text = f"{pluralize(rows, 'row')} with another value of the partition column than the path, {file.constants[column].as_py()!r}. The path counts."
            yield Finding(
                "warning", "partition-column-in-file", uuid, text, key=file.key, label=file.label, column=column
            )


def _cell_faults(uuid: str, file: _File, cells: CellPass) -> Iterator[Finding]:
    for column, rows in cells.nulls.items():
        text = f"{pluralize(rows, 'row')} with null in a dimension. Queries take it for one value; kartothek loses such rows from groups."
        yield Finding("warning", "null-dimension", uuid, text, key=file.key, label=file.label, column=column)
    if cells.repeated:
        text = f"{pluralize(cells.repeated, 'row')} with a cell that the same file has before, for example {cells.example}. Which of them counts is not defined."
        yield Finding("error", "duplicate-cells", uuid, text, key=file.key, label=file.label)
    if not cells.is_sorted:
        text = "Files are not sorted by the dimension columns, as cube verbs write them; queries sort their rows each time."
        yield Finding("info", "unsorted-file", uuid, text, key=file.key, label=file.label)


# --- rows against indices -------------------------------------------------------------------------

_Listed = tuple[pa.DataType, pa.Array, IntArray]


def _index_faults(subject: Inspection, file: _File, found: _Rows, listed: Mapping[str, _Listed]) -> Iterator[Finding]:
    for column, (kind, values, starts) in listed.items():
        first, last = int(starts[file.position]), int(starts[file.position + 1])
        entries = known_values(values.slice(first, last - first), kind)
        yield from _compared(subject.uuid, file, column, found.distinct.values[column], entries)
        if found.distinct.nulls[column]:
            text = 'An indexed column has nulls. In kartothek the index decides whether they match a condition (docs, page "Differences from kartothek", 4).'
            yield Finding("info", "null-in-index-column", subject.uuid, text, label=file.label, column=column)


def _compared(uuid: str, file: _File, column: str, stored: pa.Array, entries: pa.Array) -> Iterator[Finding]:
    unlisted, empty = _without(stored, entries), _without(entries, stored)
    if len(unlisted):
        text = f"The index does not know {len(unlisted):,} values of the file ({examples(unlisted)}): queries for them miss rows."
        yield Finding(
            "error",
            "index-values",
            uuid,
            text,
            key=file.key,
            label=file.label,
            column=column,
            mend=rebuild(uuid, column),
        )
    if len(empty):
        text = f"The index has {len(empty):,} values that no row of the partition has ({examples(empty)}): queries for them read it in vain."
        yield Finding(
            "warning",
            "index-surplus",
            uuid,
            text,
            key=file.key,
            label=file.label,
            column=column,
            mend=rebuild(uuid, column),
        )


def _without(values: pa.Array, others: pa.Array) -> pa.Array:
    return values.filter(pc.invert(pc.is_in(values, value_set=others)))
