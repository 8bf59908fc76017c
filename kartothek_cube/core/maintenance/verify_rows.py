"""The deep part of a verification: every data file is read, in pieces and in threads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.files import FileRequest, open_rows, read_rows
from kartothek_cube.core.maintenance.verify_cells import CellPass, Contradictions, DistinctValues, examples, known_values
from kartothek_cube.core.maintenance.verify_files import readable_files
from kartothek_cube.core.maintenance.verify_indices import Indices, labelled_values, rebuild
from kartothek_cube.core.maintenance.verify_report import Finding
from kartothek_cube.core.maintenance.verify_subject import DAMAGE, Inspection
from kartothek_cube.core.markup import counted
from kartothek_cube.core.naming import DATA_SUFFIX
from kartothek_cube.core.options import current_options
from kartothek_cube.core.parallel import map_in_threads
from kartothek_cube.core.parquet import open_file
from kartothek_cube.core.progress import Phase
from kartothek_cube.core.rowkeys import IntArray
from kartothek_cube.core.schema import compatible, stored_type
from kartothek_cube.core.store import Store
from kartothek_cube.core.types import common_type
from kartothek_cube.errors import Unsupported

__all__ = ["piece_bytes", "row_findings"]

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


def row_findings(store: Store, subject: Inspection, indices: Indices, cells: Sequence[str]) -> tuple[list[Finding], int]:
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


# --- one file ---------------------------------------------------------------------------------------------------------


def _check_file(store: Store, subject: Inspection, file: _File, cells: Sequence[str], found: _Rows) -> None:
    try:
        columns = _columns(store, subject, file, found.findings)
        _read(store, subject, file, columns, cells, found)
    except DAMAGE as error:
        found.complete = False
        found.findings.append(Finding("error", "file-unreadable", subject.uuid, str(error), key=file.key, label=file.label))


def _read(store: Store, subject: Inspection, file: _File, columns: Sequence[str], cells: Sequence[str], found: _Rows) -> None:
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


def _column_faults(uuid: str, file: _File, inside: Mapping[str, pa.DataType], schema: pa.Schema, payload: Sequence[str]) -> Iterator[Finding]:
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
            text = f"{counted(rows, 'row')} with another value of the partition column than the path, {file.constants[column].as_py()!r}. The path counts."
            yield Finding("warning", "partition-column-in-file", uuid, text, key=file.key, label=file.label, column=column)


def _cell_faults(uuid: str, file: _File, cells: CellPass) -> Iterator[Finding]:
    for column, rows in cells.nulls.items():
        text = f"{counted(rows, 'row')} with null in a dimension. Queries take it for one value; kartothek loses such rows from groups."
        yield Finding("warning", "null-dimension", uuid, text, key=file.key, label=file.label, column=column)
    if cells.repeated:
        text = f"{counted(cells.repeated, 'row')} with a cell that the same file has before, for example {cells.example}. Which of them counts is not defined."
        yield Finding("error", "duplicate-cells", uuid, text, key=file.key, label=file.label)
    if not cells.is_sorted:
        text = "Files are not sorted by the dimension columns, as cube verbs write them; queries sort their rows each time."
        yield Finding("info", "unsorted-file", uuid, text, key=file.key, label=file.label)


# --- rows against indices ---------------------------------------------------------------------------------------------

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
        yield Finding("error", "index-values", uuid, text, key=file.key, label=file.label, column=column, mend=rebuild(uuid, column))
    if len(empty):
        text = f"The index has {len(empty):,} values that no row of the partition has ({examples(empty)}): queries for them read it in vain."
        yield Finding("warning", "index-surplus", uuid, text, key=file.key, label=file.label, column=column, mend=rebuild(uuid, column))


def _without(values: pa.Array, others: pa.Array) -> pa.Array:
    return values.filter(pc.invert(pc.is_in(values, value_set=others)))
