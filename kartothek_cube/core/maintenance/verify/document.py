"""Checks of partition labels and of schema files, as far as metadata shows. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kartothek_cube.core.arrow.types import common_type, normal_schema
from kartothek_cube.core.maintenance.verify.inspection import Inspection
from kartothek_cube.core.maintenance.verify.report import Finding
from kartothek_cube.core.metadata.naming import decode_key, schema_key
from kartothek_cube.core.metadata.snapshot import is_plain

__all__ = ["label_findings", "raw_schema", "schema_findings"]

# --- labels -------------------------------------------------------------------------------------

# Empty; a control character; an empty, "." or ".." segment; a segment too long for a file name.
_INVALID_LABEL = r"^$|[\x00-\x1f\x7f]|(^|/)\.{0,2}(/|$)|[^/]{256}"


def label_findings(subject: Inspection) -> Iterator[Finding]:
    """Labels that are no file names, contradict their path or lack files; misnamed tables."""
    labels = subject.snapshot.partitions.labels
    for label in labels.filter(pc.match_substring_regex(labels, _INVALID_LABEL)).to_pylist():
        text = f"The label {label!r} makes no file name."
        yield Finding("warning", "absurd-label", subject.uuid, text, label=label)
    yield from _path_contradictions(subject)
    yield from _partitions_without_files(subject)
    for table in subject.snapshot.partitions.files:
        if table == "indices" or table.startswith("_") or "/" in table or not table:
            text = (
                f"A table called {table!r} shares its folder with other things of the dataset: "
                "kartothek's garbage collection may remove its data."
            )
            yield Finding("warning", "table-name", subject.uuid, text)


def _path_contradictions(subject: Inspection) -> Iterator[Finding]:
    """Labels whose partition values differ from those in the path of their file."""
    labels, keys = subject.snapshot.partitions.labels, subject.snapshot.partition_keys
    for files in subject.snapshot.partitions.files.values() if keys else ():
        # Only pairs of different folders are decoded, as that is slow. Either may quote slashes.
        file_folders = _with_slashes(pc.replace_substring_regex(files, r"^[^/]*/[^/]*/|[^/]*$", ""))
        label_folders = _with_slashes(pc.replace_substring_regex(labels, r"[^/]*$", ""))
        is_same = pc.fill_null(pc.equal(file_folders, label_folders), True)
        for i in np.flatnonzero(~is_same.to_numpy(zero_copy_only=False)):
            label, key = labels[int(i)].as_py(), files[int(i)].as_py()
            try:
                in_label, in_path = (dict(decode_key(text).pairs) for text in (f"-/-/{label}", key))
            except UnicodeDecodeError:
                continue  # the check of partition values reports it
            for column in keys:
                if column in in_label and in_label[column] != in_path.get(column):
                    text = (
                        f"The label says {in_label[column]!r}, the path of the file {in_path.get(column)!r}. "
                        "The path counts; kartothek believes it, too."
                    )
                    yield Finding("warning", "label-path", subject.uuid, text, key=key, label=label, column=column)


def _with_slashes(paths: pa.Array) -> pa.Array:
    return pc.replace_substring(paths, "%2F", "/")


def _partitions_without_files(subject: Inspection) -> Iterator[Finding]:
    partitions = subject.snapshot.partitions
    masks = [pc.is_valid(files) for files in partitions.files.values()]
    count = sum((mask.cast(pa.int64()).to_numpy() for mask in masks), np.zeros(len(partitions), dtype=np.int64))
    no_file, some_tables = np.flatnonzero(count == 0), np.flatnonzero((count > 0) & (count < len(masks)))
    for check, positions, text in (
        ("no-file", no_file, "partitions have no file at all, so they have no rows"),
        (
            "some-tables",
            some_tables,
            "partitions lack a file of some tables and have no rows there; kartothek cannot read that",
        ),
    ):
        if len(positions):
            label = partitions.labels[int(positions[0])].as_py()
            yield Finding("info", check, subject.uuid, f"{len(positions):,} {text}.", label=label, count=len(positions))


# --- schema files -------------------------------------------------------------------------------

_MEND = "any commit of this library brings the file up to date"


def schema_findings(subject: Inspection) -> Iterator[Finding]:
    """What kartothek and plateau, which read only the schema files, see differently."""
    for table, (data, schema) in subject.schema_files.items():
        key = schema_key(subject.uuid, table)
        if schema is None:
            continue
        embedded = subject.embedded.get(table)
        if embedded is not None:
            yield from _schema_drift(subject.uuid, key, schema, normal_schema(embedded))
        if not is_plain(data):
            text = (
                "The schema file spells types as plateau does (large strings, list children called 'element'); "
                "kartothek cannot add to the dataset."
            )
            yield Finding("info", "schema-spelling", subject.uuid, text, key=key, mend=_MEND)
        metadata = raw_schema(data).metadata
        if not metadata or b"pandas" not in metadata:
            text = "The schema file has no pandas metadata; kartothek cannot add to the dataset."
            yield Finding("info", "schema-without-pandas", subject.uuid, text, key=key)


def _schema_drift(uuid: str, key: str, file: pa.Schema, document: pa.Schema) -> Iterator[Finding]:
    lost, surplus = sorted(set(document.names) - set(file.names)), sorted(set(file.names) - set(document.names))
    if lost or surplus:
        text = (
            f"The schema file lacks {lost} and has {surplus} more than the document, which counts. "
            "kartothek and plateau see the file."
        )
        yield Finding("warning", "schema-drift", uuid, text, key=key, column=(lost or surplus)[0], mend=_MEND)
    for field in document:
        if field.name not in file.names:
            continue
        file_type = file.field(field.name).type
        common = common_type(file_type, field.type)
        # A wider type is no fault: a later commit may have been the first to write the file.
        if common is None or not common.equals(file_type):
            relation = "contradicts it" if common is None else "is narrower"
            text = (
                f"The document, which counts, says {field.type}; the schema file says {file_type} and {relation}. "
                "kartothek and plateau see the file."
            )
            yield Finding("warning", "schema-drift", uuid, text, key=key, column=field.name, mend=_MEND)


def raw_schema(data: bytes) -> pa.Schema:
    """The schema of a file with its types as stored."""
    return pq.read_schema(pa.BufferReader(data))
