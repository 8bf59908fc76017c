"""What kartothek and plateau read differently from a dataset, as far as metadata shows. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from kartothek_cube.core.maintenance.verify.document import raw_schema
from kartothek_cube.core.maintenance.verify.inspection import Inspection
from kartothek_cube.core.maintenance.verify.report import Finding
from kartothek_cube.core.metadata.naming import MSGPACK_SUFFIX

__all__ = ["migration_findings"]

_PAGE = 'docs, page "Differences from kartothek"'


def migration_findings(subject: Inspection) -> Iterator[Finding]:
    """Remarks for users of kartothek and plateau, each with the page of the docs that says more."""
    yield from _document(subject)
    yield from _partition_columns(subject)
    yield from _columns(subject)


def _info(subject: Inspection, check: str, text: str, page: str, column: str | None = None, count: int = 1) -> Finding:
    return Finding("info", check, subject.uuid, f"{text} ({page})", column=column, count=count)


def _document(subject: Inspection) -> Iterator[Finding]:
    snapshot = subject.snapshot
    if not snapshot.chain:
        text = "No commit of this library yet: types are those of the schema files, numbers come back with 64 bits."
        yield _info(subject, "foreign-dataset", text, f"{_PAGE}, 20")
    if snapshot.key.endswith(MSGPACK_SUFFIX):
        text = "The document is in msgpack: an update by kartothek or plateau writes one in JSON beside it."
        yield _info(subject, "msgpack", text, f"{_PAGE}, 30")
    if not subject.is_explicit:
        text = (
            "The document lists no partitions: every data file is one, and each look lists the store. "
            "Any commit lists them."
        )
        yield _info(subject, "implicit", text, f"{_PAGE}, 32")
        if any(key.startswith(f"{subject.uuid}/indices/") for key in subject.entries):
            text = "kartothek takes the index files for data, as no partitions are listed."
            yield _info(subject, "implicit-index", text, f"{_PAGE}, 31")
    if len(snapshot.partitions.files) > 1:
        text = "The dataset has several tables; plateau refuses to read it."
        yield _info(subject, "several-tables", text, 'docs, page "The format"')
    for column, reference in sorted(snapshot.document.indices.items()):
        if not isinstance(reference, str):
            text = (
                "The index stands in the document itself; kartothek takes its values for text. "
                "The next commit that changes it writes a file."
            )
            yield _info(subject, "embedded-index", text, f"{_PAGE}, 34", column)


# --- columns ------------------------------------------------------------------------------------


def _partition_columns(subject: Inspection) -> Iterator[Finding]:
    for column in subject.snapshot.values.column_names:
        values = subject.snapshot.values.column(column)
        if pt.is_boolean(values.type):
            text = "kartothek and plateau read True in every row of this partition column."
            yield _info(subject, "boolean-partition", text, f"{_PAGE}, 1", column)
        elif pt.is_binary(values.type):
            text = "In kartothek the bytes of this partition column come back as text."
            yield _info(subject, "bytes-partition", text, f"{_PAGE}, 3", column)
        elif pt.is_string(values.type):
            # A slash that the path does not encode makes the path one folder deeper.
            files = pc.coalesce(*subject.snapshot.partitions.files.values())
            is_deeper = pc.greater(pc.count_substring(files, "/"), len(subject.snapshot.partition_keys) + 2)
            has_bare_slash = pa.chunked_array([pc.fill_null(is_deeper, False)])
            bare = pc.sum(pc.and_(pc.match_substring(values, "/"), has_bare_slash).cast(pa.int64())).as_py()
            if bare:
                text = (
                    f"{bare:,} partition values have a bare '/' in their path: "
                    "kartothek and plateau read only what comes before it."
                )
                yield _info(subject, "slash-in-value", text, f"{_PAGE}, 2", column, bare)


# Check, types that it concerns, text, page.
_TYPES: tuple[tuple[str, Callable[[pa.DataType], bool], str, str], ...] = (
    (
        "date-column",
        pt.is_date,
        "kartothek reads dates as timestamps, and cannot group or filter by them everywhere.",
        f"{_PAGE}, 9",
    ),
    (
        "zoned-timestamp",
        lambda data_type: pt.is_timestamp(data_type) and data_type.tz is not None,
        "kartothek cannot add to a column of zoned timestamps.",
        f"{_PAGE}, 22",
    ),
    (
        "null-column",
        pt.is_null,
        "The column is null in every file so far; in kartothek no condition on it matches, not even '== None'.",
        f"{_PAGE}, 4",
    ),
)


def _columns(subject: Inspection) -> Iterator[Finding]:
    # kartothek sees the types as the schema files spell them.
    files = subject.schema_files.values()
    raw = {f.name: f.type for data, schema in files if schema is not None for f in raw_schema(data)}
    fields = {f.name: f.type for schema in subject.snapshot.schemas.values() for f in schema}
    for column, data_type in fields.items():
        for check, applies, text, page in _TYPES:
            if applies(data_type):
                yield _info(subject, check, text, page, column)
        raw_type = raw.get(column)
        if raw_type is None or raw_type.equals(data_type):
            continue
        if pt.is_time(raw_type) or pt.is_duration(raw_type):
            text = f"The column is {raw_type} in kartothek and {data_type} here."
            yield _info(subject, "time-unit", text, f"{_PAGE}, 23", column)
