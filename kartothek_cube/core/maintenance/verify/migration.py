"""What of a dataset reads differently here than in kartothek and plateau, as far as its metadata decide it. Pure."""

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
    """Remarks for those who come from kartothek or plateau, each with the page of the documentation that says more."""
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
        yield _info(
            subject,
            "msgpack",
            "The document is in msgpack: an update by kartothek or plateau writes one in JSON beside it.",
            f"{_PAGE}, 30",
        )
    if not subject.is_explicit:
        yield from _implicit(subject)
    if len(snapshot.partitions.files) > 1:
        yield _info(
            subject,
            "several-tables",
            "The dataset has several tables; plateau refuses to read it.",
            'docs, page "The format"',
        )
    embedded = sorted(c for c, reference in snapshot.document.indices.items() if not isinstance(reference, str))
    for column in embedded:
        text = "The index stands in the document itself; kartothek takes its values for text. The next commit that changes it writes a file."
        yield _info(subject, "embedded-index", text, f"{_PAGE}, 34", column)


def _implicit(subject: Inspection) -> Iterator[Finding]:
    yield _info(
        subject,
        "implicit",
        "The document lists no partitions: every data file is one, and each look lists the store. Any commit lists them.",
        f"{_PAGE}, 32",
    )
    if any(key.startswith(f"{subject.uuid}/indices/") for key in subject.entries):
        yield _info(
            subject,
            "implicit-index",
            "kartothek takes the index files for data, as no partitions are listed.",
            f"{_PAGE}, 31",
        )


# --- columns --------------------------------------------------------------------------------------


def _partition_columns(subject: Inspection) -> Iterator[Finding]:
    for column in subject.snapshot.values.column_names:
        values = subject.snapshot.values.column(column)
        if pt.is_boolean(values.type):
            yield _info(
                subject,
                "boolean-partition",
                "kartothek and plateau read True in every row of this partition column.",
                f"{_PAGE}, 1",
                column,
            )
        elif pt.is_binary(values.type):
            yield _info(
                subject,
                "bytes-partition",
                "In kartothek the bytes of this partition column come back as text.",
                f"{_PAGE}, 3",
                column,
            )
        elif pt.is_string(values.type):
            yield from _slashes(subject, column, values)


def _slashes(subject: Inspection, column: str, values: pa.ChunkedArray) -> Iterator[Finding]:
    """Values with a slash that the path does not encode."""
    files = pc.coalesce(*subject.snapshot.partitions.files.values())
    deeper = pc.greater(pc.count_substring(files, "/"), len(subject.snapshot.partition_keys) + 2)
    cut = pc.sum(
        pc.and_(pc.match_substring(values, "/"), pa.chunked_array([pc.fill_null(deeper, False)])).cast(pa.int64())
    ).as_py()
    if cut:
        text = f"{cut:,} partition values have a bare '/' in their path: kartothek and plateau read only what comes before it."
        yield _info(subject, "slash-in-value", text, f"{_PAGE}, 2", column, cut)


_KINDS: tuple[tuple[str, Callable[[pa.DataType], bool], str, str], ...] = (
    (
        "date-column",
        pt.is_date,
        "kartothek reads dates as timestamps, and cannot group or filter by them everywhere.",
        f"{_PAGE}, 9",
    ),
    (
        "zoned-timestamp",
        lambda kind: pt.is_timestamp(kind) and kind.tz is not None,
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
    # The types as the schema files spell them.
    files = subject.schema_files.values()
    raw = {f.name: f.type for data, schema in files if schema is not None for f in raw_schema(data)}
    fields = {f.name: f.type for schema in subject.snapshot.schemas.values() for f in schema}
    for column, kind in fields.items():
        for check, applies, text, page in _KINDS:
            if applies(kind):
                yield _info(subject, check, text, page, column)
        stored = raw.get(column)
        if stored is not None and (pt.is_time(stored) or pt.is_duration(stored)) and not stored.equals(kind):
            yield _info(
                subject, "time-unit", f"The column is {stored} in kartothek and {kind} here.", f"{_PAGE}, 23", column
            )
