"""Checks of the schema files against the schema inside the document. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from kartothek_cube.core.maintenance.verify_report import Finding
from kartothek_cube.core.maintenance.verify_subject import Inspection
from kartothek_cube.core.naming import schema_key
from kartothek_cube.core.schema import normal_schema
from kartothek_cube.core.schema_file import is_plain
from kartothek_cube.core.types import common_type

__all__ = ["raw_schema", "schema_findings"]

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
