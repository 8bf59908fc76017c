"""Findings about the labels of partitions and about the schema files of a dataset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kartothek_cube.core.arrow.schema import normal_schema
from kartothek_cube.core.arrow.types import common_type
from kartothek_cube.core.maintenance.verify.inspection import Inspection
from kartothek_cube.core.maintenance.verify.report import Finding
from kartothek_cube.core.metadata.naming import decode_key, schema_key
from kartothek_cube.core.metadata.schema_file import is_plain

__all__ = ["label_findings", "raw_schema", "schema_findings"]

# Empty, with a control character, an empty, "." or ".." segment, or one that is too long for a name
# of a file.
_ABSURD = r"^$|[\x00-\x1f\x7f]|(^|/)\.{0,2}(/|$)|[^/]{256}"


def label_findings(subject: Inspection) -> Iterator[Finding]:
    """Labels that make no file names, that contradict the path of their file, or that have no file, or not one of each table."""
    yield from _absurd(subject)
    yield from _contradictions(subject)
    yield from _without_files(subject)
    yield from _tables(subject)


def _absurd(subject: Inspection) -> Iterator[Finding]:
    labels = subject.snapshot.partitions.labels
    for label in labels.filter(pc.match_substring_regex(labels, _ABSURD)).to_pylist():
        text = f"The label {label!r} makes no file name."
        yield Finding("warning", "absurd-label", subject.uuid, text, label=label)


def _contradictions(subject: Inspection) -> Iterator[Finding]:
    """Where the folders of label and file differ, their pairs are compared; the path is what readers believe. Slashes may be quoted in one of them."""
    labels, keys = subject.snapshot.partitions.labels, subject.snapshot.partition_keys
    for files in subject.snapshot.partitions.files.values() if keys else ():
        places = _unslashed(pc.replace_substring_regex(files, r"^[^/]*/[^/]*/|[^/]*$", ""))
        same = pc.equal(places, _unslashed(pc.replace_substring_regex(labels, r"[^/]*$", "")))
        for i in np.flatnonzero(~pc.fill_null(same, True).to_numpy(zero_copy_only=False)):
            yield from _compared(subject.uuid, labels[int(i)].as_py(), files[int(i)].as_py(), keys)


def _unslashed(paths: pa.Array) -> pa.Array:
    return pc.replace_substring(paths, "%2F", "/")


def _compared(uuid: str, label: str, key: str, columns: Sequence[str]) -> Iterator[Finding]:
    try:
        said, stored = (dict(decode_key(text).pairs) for text in (f"-/-/{label}", key))
    except UnicodeDecodeError:
        return  # the values say so themselves
    for column in columns:
        if column in said and said[column] != stored.get(column):
            text = f"The label says {said[column]!r}, the path of the file {stored.get(column)!r}. The path counts; kartothek believes it, too."
            yield Finding("warning", "label-path", uuid, text, key=key, label=label, column=column)


def _without_files(subject: Inspection) -> Iterator[Finding]:
    partitions = subject.snapshot.partitions
    present = [pc.is_valid(files) for files in partitions.files.values()]
    count = sum((mask.cast(pa.int64()).to_numpy() for mask in present), np.zeros(len(partitions), dtype=np.int64))
    for check, positions, text in (
        ("no-file", np.flatnonzero(count == 0), "partitions have no file at all, so they have no rows"),
        (
            "some-tables",
            np.flatnonzero((count > 0) & (count < len(present))),
            "partitions lack a file of some tables and have no rows there; kartothek cannot read that",
        ),
    ):
        if len(positions):
            label = partitions.labels[int(positions[0])].as_py()
            yield Finding("info", check, subject.uuid, f"{len(positions):,} {text}.", label=label, count=len(positions))


def _tables(subject: Inspection) -> Iterator[Finding]:
    for table in subject.snapshot.partitions.files:
        if table == "indices" or table.startswith("_") or "/" in table or not table:
            text = f"A table called {table!r} shares its folder with other things of the dataset: kartothek's garbage collection may remove its data."
            yield Finding("warning", "table-name", subject.uuid, text)


_MEND = "any commit of this library brings the file up to date"


def schema_findings(subject: Inspection) -> Iterator[Finding]:
    """What kartothek and plateau, who read only the schema files, see differently."""
    for table, (data, schema) in subject.schema_files.items():
        key = schema_key(subject.uuid, table)
        if schema is not None:
            embedded = subject.embedded.get(table)
            yield from () if embedded is None else _drift(subject.uuid, key, schema, normal_schema(embedded))
            yield from _spelling(subject.uuid, key, data)


def _drift(uuid: str, key: str, file: pa.Schema, document: pa.Schema) -> Iterator[Finding]:
    lost, surplus = sorted(set(document.names) - set(file.names)), sorted(set(file.names) - set(document.names))
    if lost or surplus:
        text = f"The schema file lacks {lost} and has {surplus} more than the document, which counts. kartothek and plateau see the file."
        yield Finding("warning", "schema-drift", uuid, text, key=key, column=(lost or surplus)[0], mend=_MEND)
    for field in document:
        if field.name in file.names:
            yield from _typed(uuid, key, field, file.field(field.name).type)


def _typed(uuid: str, key: str, field: pa.Field, kind: pa.DataType) -> Iterator[Finding]:
    common = common_type(kind, field.type)
    if common is not None and common.equals(kind):
        return  # the same, or wider: a commit that came later may have been the first to write the file
    what = "contradicts it" if common is None else "is narrower"
    text = f"The document, which counts, says {field.type}; the schema file says {kind} and {what}. kartothek and plateau see the file."
    yield Finding("warning", "schema-drift", uuid, text, key=key, column=field.name, mend=_MEND)


def _spelling(uuid: str, key: str, data: bytes) -> Iterator[Finding]:
    raw = raw_schema(data)
    if not is_plain(data):
        text = "The schema file spells types as plateau does (large strings, list children called 'element'); kartothek cannot add to the dataset."
        yield Finding("info", "schema-spelling", uuid, text, key=key, mend=_MEND)
    if not raw.metadata or b"pandas" not in raw.metadata:
        text = "The schema file has no pandas metadata; kartothek cannot add to the dataset."
        yield Finding("info", "schema-without-pandas", uuid, text, key=key)


def raw_schema(data: bytes) -> pa.Schema:
    """The schema of a file as it is."""
    return pq.read_schema(pa.BufferReader(data))
