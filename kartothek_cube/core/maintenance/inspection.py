"""What a verification reads and reports.

In order:

- findings, counts, and the report as text, HTML, JSON or table
- a dataset that may be damaged, read as far as possible
- an object of a store as a binary file
"""

from __future__ import annotations

import dataclasses
import io
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import groupby
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from kartothek_cube.core.arguments import pluralize
from kartothek_cube.core.arrow.keys import empty_rows
from kartothek_cube.core.arrow.types import normal_schema, ordered, stored_schema
from kartothek_cube.core.display import Markup, code, details, escape, in_notebook, table
from kartothek_cube.core.maintenance.garbage import is_schema_key
from kartothek_cube.core.metadata.commit_log import SCHEMA_KEY, is_foreign
from kartothek_cube.core.metadata.document import Document, PartitionColumns, empty_partitions, partition_table
from kartothek_cube.core.metadata.naming import schema_key
from kartothek_cube.core.metadata.snapshot import (
    Snapshot,
    parse_common_metadata,
    parse_embedded_schemas,
    with_key_types,
)
from kartothek_cube.core.snapshots.documents import StoredDocument, document_keys, find_document
from kartothek_cube.core.snapshots.loader import load_state, needs_ledger, resolve_document
from kartothek_cube.core.stores.contract import Entry, Store
from kartothek_cube.core.write.layout import NO_LAYOUT, DatasetLayout, dropped_columns, layout_of
from kartothek_cube.errors import DatasetNotFound, KartothekCubeError, KeyNotFound, Unsupported

Severity: TypeAlias = Literal["error", "warning", "info"]

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")
# Findings of one check that are listed one by one. A remark needs no more than one example.
_SHOWN = {"error": 20, "warning": 20, "info": 1}
_MARKS = {"error": "✗", "warning": "!", "info": "·"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check.

    Attributes
    ----------
    severity : str
        ``"error"``: answers are wrong, or reading fails. ``"warning"``: a fault that readers
        tolerate. ``"info"``: good to know.
    check : str
        Short stable name of the check.
    dataset : str
        Uuid of the dataset. If the finding concerns several datasets of a cube, the cube's prefix.
    message : str
        The finding in a sentence.
    key, label, column : str | None
        The file, partition and column concerned, if it is a single one.
    mend : str
        The call that mends it, or other advice; empty if nothing need or can be done.
    count : int
        The number of findings of its kind that it stands for.

    Examples
    --------
    >>> Finding("error", "missing-file", "sales", "It is gone.", key="sales/table/1.parquet").check
    'missing-file'
    """

    severity: Severity
    check: str
    dataset: str
    message: str
    key: str | None = None
    label: str | None = None
    column: str | None = None
    mend: str = ""
    count: int = 1


@dataclass(frozen=True, slots=True)
class Counts:
    """The extent of a verification.

    ``bytes`` is the size of the data files, as far as the listing has sizes. ``rows`` counts the
    stored rows; None unless data was read.
    """

    datasets: int = 0
    partitions: int = 0
    files: int = 0
    bytes: int = 0
    rows: int | None = None

    def __add__(self, other: Counts) -> Counts:
        rows = None if self.rows is None and other.rows is None else (self.rows or 0) + (other.rows or 0)
        files, nbytes = self.files + other.files, self.bytes + other.bytes
        return Counts(self.datasets + other.datasets, self.partitions + other.partitions, files, nbytes, rows)


@dataclass(frozen=True, slots=True, repr=False)
class VerifyReport:
    """The findings of a verification, errors first.

    A report prints as text, shows as a table in notebooks, and converts to JSON, Arrow and pandas.

    Attributes
    ----------
    subject : str
        What was verified: a dataset or a cube.
    findings : tuple of Finding
        Sorted by severity, dataset and check.
    counts : Counts
        The extent of the verification.
    deep : bool
        Whether data was read.

    Examples
    --------
    >>> counts = Counts(datasets=1, partitions=2, files=2, bytes=2_400)
    >>> report = VerifyReport("dataset 'sales'", (), counts)
    >>> report
    Verified dataset 'sales' without reading data: 1 dataset, 2 partitions, 2 files, 2,400 bytes.
    Nothing was found.
    >>> report.ok, report.clean
    (True, True)
    """

    subject: str
    findings: tuple[Finding, ...]
    counts: Counts
    deep: bool = False

    @property
    def ok(self) -> bool:
        """Whether there are no errors."""
        return not self.errors

    @property
    def clean(self) -> bool:
        """Whether there are neither errors nor warnings."""
        return self.ok and not self.warnings

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that are errors."""
        return tuple(f for f in self.findings if f.severity == "error")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The findings that are warnings."""
        return tuple(f for f in self.findings if f.severity == "warning")

    def of(self, check: str) -> tuple[Finding, ...]:
        """The findings of one check."""
        return tuple(f for f in self.findings if f.check == check)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain dicts and lists."""
        return {
            "subject": self.subject,
            "deep": self.deep,
            "ok": self.ok,
            "clean": self.clean,
            "counts": asdict(self.counts),
            "findings": [asdict(f) for f in self.findings],
        }

    def to_json(self) -> str:
        """The report as JSON."""
        return json.dumps(self.to_dict(), indent=2)

    def to_arrow(self) -> pa.Table:
        """The findings as rows; the columns are the attributes of `Finding`."""
        schema = pa.schema([(f.name, pa.int64() if f.name == "count" else pa.string()) for f in fields(Finding)])

        def storable(value: object) -> object:
            # Arrow holds UTF-8: a lone surrogate, from bytes that are no text, becomes an escape.
            return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value

        rows = [{name: storable(value) for name, value in asdict(f).items()} for f in self.findings]
        return pa.Table.from_pylist(rows, schema=schema)

    def to_pandas(self) -> Any:
        """`to_arrow` as a pandas frame."""
        return self.to_arrow().to_pandas()

    def __repr__(self) -> str:
        lines = list(self._headline())
        for f in self.findings:
            lines.append(f"{_MARKS[f.severity]} {f.severity} {f.check} [{_location(f)}]: {f.message}")
            lines += [f"    mend: {f.mend}"] if f.mend else []
        return "\n".join(lines)

    def _headline(self) -> tuple[str, str]:
        """The extent of the verification, and its verdict."""
        how, c = "with all data" if self.deep else "without reading data", self.counts
        extent = [pluralize(c.datasets, "dataset"), pluralize(c.partitions, "partition"), pluralize(c.files, "file")]
        extent += [f"{c.bytes:,} bytes", *([] if c.rows is None else [pluralize(c.rows, "row")])]
        number = Counter(f.severity for f in self.findings)
        words = {"error": "error", "warning": "warning", "info": "remark"}
        verdict = ", ".join(pluralize(number[s], words[s]) for s in SEVERITIES if number[s])
        verdict = f"{verdict}:" if verdict else "Nothing was found."
        return f"Verified {self.subject} {how}: {', '.join(extent)}.", verdict

    def _repr_html_(self) -> str:
        verified, verdict = self._headline()
        head = Markup(f"<strong>{escape(verified)}</strong><br>{escape(verdict)}")
        rows = table(("severity", "check", "what and where", "mend"), map(_table_row, alike(self.findings)))
        return in_notebook(head, rows) if self.findings else in_notebook(head)


def _location(finding: Finding) -> str:
    parts = (finding.dataset, finding.column, finding.key or finding.label)
    return ", ".join(part for part in parts if part)


def _table_row(group: Sequence[Finding]) -> tuple[str, ...]:
    """One row of HTML for findings that are alike."""
    first = group[0]
    mark = Markup(f'<span class="{first.severity}">{_MARKS[first.severity]}&nbsp;{first.severity}</span>')
    check = first.check if len(group) == 1 else f"{first.check}, {pluralize(sum(f.count for f in group), 'time')}"
    message = escape(first.message).replace("\n", "<br>")
    texts = (_location(first), *(f.key or f.label or _location(f) for f in group[1:]))
    location, *others = [Markup(f'<span class="q w">{escape(text)}</span>') for text in texts]
    more = details(f"{len(others):,} more of them", Markup("<br>".join(others))) if others else ""
    return mark, check, Markup(f"{message}<br>{location}{more}"), code(first.mend)


# --- making reports -------------------------------------------------------------------------------


def report_of(subject: str, findings: Iterable[Finding], counts: Counts, *, deep: bool) -> VerifyReport:
    """A report of these findings, condensed and sorted."""
    return VerifyReport(subject, tuple(sorted(condensed(findings), key=_rank)), counts, deep)


def _rank(finding: Finding) -> tuple[int, str, str, str]:
    return SEVERITIES.index(finding.severity), finding.dataset, finding.check, finding.column or ""


def condensed(findings: Iterable[Finding]) -> list[Finding]:
    """Sort the findings and keep the first of each kind; the last of them counts the rest."""
    kept: list[Finding] = []
    for _, group in groupby(sorted(findings, key=_rank), key=_rank):
        members = list(group)
        shown = _SHOWN[members[0].severity]
        kept += members[:shown]
        rest = sum(f.count for f in members[shown:])
        if rest:
            last = kept.pop()
            message = f"{last.message} And {rest:,} more of this kind."
            kept.append(dataclasses.replace(last, message=message, count=last.count + rest))
    return kept


def alike(findings: Iterable[Finding]) -> list[list[Finding]]:
    """Group the findings of a report that differ in their file or partition only.

    Examples
    --------
    >>> one, two = (Finding("error", "missing-file", "sales", "Gone.", key) for key in ("1", "2"))
    >>> other = Finding("warning", "two-documents", "sales", "There are two.")
    >>> [len(group) for group in alike([one, two, other])]
    [2, 1]
    """
    groups: list[list[Finding]] = []
    for finding in findings:
        first = groups[-1][0] if groups else finding
        # The last of a kind may end with the number of the rest.
        has_same_text = finding.message == first.message or finding.message.startswith(f"{first.message} And ")
        if groups and has_same_text and _rank(finding) == _rank(first) and finding.mend == first.mend:
            groups[-1].append(finding)
        else:
            groups.append([finding])
    return groups


# --- a dataset that may be damaged ----------------------------------------------------------------


# What reading damaged bytes may raise. Errors of the store itself are no damage: they pass.
DAMAGE = (
    KartothekCubeError,
    ValueError,
    TypeError,
    LookupError,
    NotImplementedError,
    ArithmeticError,
    RecursionError,
    pa.ArrowException,
)

# Undecodable partition values are located one by one, at one call each.
_MAX_DECODED = 10_000


_RESTORE_DOCUMENT = "restore the document from a backup of the store"
_RESTORE_SCHEMA = "restore the schema file from a backup of the store"
_MAKE = "build_cube makes the cube, delete_cube removes what is there"


@dataclass(frozen=True, slots=True)
class Inspection:
    """The readable parts of a dataset.

    Attributes
    ----------
    snapshot : Snapshot
        The dataset, with the readable schemas, without partition values that cannot be decoded.
    entries : Mapping[str, Entry]
        The objects below ``<uuid>/`` by key.
    schema_files : Mapping[str, tuple[bytes, pyarrow.Schema | None]]
        Table → the bytes of its schema file, and the schema if it can be read. Missing files are
        left out.
    embedded : Mapping[str, pyarrow.Schema]
        Table → the schema inside the document, if this library committed last.
    decoded : bool
        Whether the partition values could be decoded.
    layout : DatasetLayout
        The layout on record.
    dropped : Mapping[str, pyarrow.Schema]
        Table → columns that were dropped.
    """

    snapshot: Snapshot
    entries: Mapping[str, Entry]
    schema_files: Mapping[str, tuple[bytes, pa.Schema | None]]
    embedded: Mapping[str, pa.Schema] = field(default_factory=dict)
    decoded: bool = True
    layout: DatasetLayout = NO_LAYOUT
    dropped: Mapping[str, pa.Schema] = field(default_factory=dict)

    @property
    def uuid(self) -> str:
        """Uuid of the dataset."""
        return self.snapshot.uuid

    @property
    def is_explicit(self) -> bool:
        """Whether the document lists the partitions."""
        return self.snapshot.document.partitions is not None


# --- documents ------------------------------------------------------------------------------------


def documents_of(store: Store, uuid: str) -> tuple[StoredDocument | None, list[Finding]]:
    """The document that counts, None if it cannot be read, and the faults of both documents.

    Raises
    ------
    DatasetNotFound
        If there is no document.
    """
    stored, findings = None, list[Finding]()
    json_key, msgpack_key = document_keys(uuid)
    for key in (json_key, msgpack_key):
        try:
            stored = find_document(store, key)
        except Unsupported as error:
            findings.append(Finding("error", "document-version", uuid, str(error), key=key))
        except DAMAGE as error:
            text, mend = str(error), _RESTORE_DOCUMENT
            findings.append(Finding("error", "document-unreadable", uuid, text, key=key, mend=mend))
        if stored is not None or findings:
            break
    if stored is None and not findings:
        raise DatasetNotFound(f"Dataset does not exist. Tried {json_key} and {msgpack_key} in the store {store.name}.")
    has_json = stored.key == json_key if stored is not None else findings[0].key == json_key
    if has_json and store.contains(msgpack_key):
        text = (
            "Both documents are there. The one in JSON counts; "
            "the other is left from an update by another library, or belongs to one under way."
        )
        mend = f"convert_metadata_format({uuid!r}, store, 'json')"
        findings.append(Finding("warning", "two-documents", uuid, text, key=msgpack_key, mend=mend))
    if stored is not None and stored.document.uuid != uuid:
        text = (
            f"The document says that its dataset is {stored.document.uuid!r}, but its key says {uuid!r}. "
            "No library can read the dataset."
        )
        mend = "copy the files of a dataset with copy_dataset or rename_dataset only"
        findings.append(Finding("error", "document-uuid", uuid, text, key=stored.key, mend=mend))
        stored = replace(stored, document=replace(stored.document, uuid=uuid))
    return stored, findings


def seen_document(store: Store, stored: StoredDocument) -> tuple[StoredDocument | None, list[Finding]]:
    """The document that readers see, None if they see none, and a finding on a pending write."""
    if not needs_ledger(stored.document):
        return stored, []
    uuid = stored.document.uuid
    state = load_state(store, uuid)
    if state.undecided is None and isinstance(state, Snapshot):
        return stored, []
    if state.undecided is None:
        text = "There is no dataset: the document only records that writes to its cube were aborted."
        return None, [Finding("info", "cube-commit", uuid, text, key=stored.key, mend=_MAKE)]
    mark, was = state.undecided.mark, "was aborted" if state.undecided.is_aborted else "is under way, or stopped"
    text = f"The write {mark.write} to several datasets of the cube {was}."
    if not isinstance(state, Snapshot):
        text = f"{text} It makes this dataset, so there is none."
        return None, [Finding("warning", "cube-commit", uuid, text, key=stored.key, mend=_MAKE)]
    text = f"{text} Readers see the state before it."
    mend = "the next write to the dataset, or cleanup_cube once it is older than `grace`, takes it back"
    finding = Finding("warning", "cube-commit", uuid, text, key=stored.key, mend=mend)
    return StoredDocument(stored.key, stored.token, state.document), [finding]


# --- everything else ------------------------------------------------------------------------------


def inspect_dataset(store: Store, stored: StoredDocument) -> tuple[Inspection, list[Finding]]:
    """Read what the document, the schemas and one listing say.

    A finding is an error where readers would fail.
    """
    findings: list[Finding] = []
    try:
        document, partitions = resolve_document(store, stored.document)
    except DAMAGE as error:
        document = replace(stored.document, partition_keys=stored.document.partition_keys or ())
        partitions = document.partitions or empty_partitions()
        message = f"What the document leaves to the paths of the files does not follow from them. {error}"
        findings.append(Finding("error", "implicit-files", document.uuid, message))
    prefix = f"{document.uuid}/"
    entries = {e.key: e for e in store.list(prefix, recursive=True).entries}
    listed_tables = sorted({key.removeprefix(prefix).split("/")[0] for key in entries if is_schema_key(key)})
    files = _schema_files(store, document, list(partitions.files) or listed_tables, findings)
    embedded: dict[str, pa.Schema] = {}
    text = document.metadata.get(SCHEMA_KEY)
    # A writer that does not know the embedded schema copies it, so after its commit it is outdated.
    if text is not None and not is_foreign(document.metadata, document.partitions):
        try:
            embedded = {t: stored_schema(s) for t, s in parse_embedded_schemas(str(text), document.uuid).items()}
        except DAMAGE as error:
            findings.append(Finding("error", "embedded-schema", document.uuid, str(error), mend=_RESTORE_DOCUMENT))
    schemas = _schemas(document, partitions, files, embedded, findings)
    values, decoded = _partition_values(document, partitions, schemas, findings)
    keys = document.partition_keys or ()
    snapshot = Snapshot(document.uuid, stored.key, stored.token, document, schemas, keys, partitions, values)
    layout, dropped = NO_LAYOUT, dict[str, pa.Schema]()
    try:
        layout = layout_of(document.metadata, document.uuid)
        dropped = dropped_columns(document.metadata, document.uuid)
    except DAMAGE as error:
        findings.append(Finding("error", "layout-record", document.uuid, str(error), mend=_RESTORE_DOCUMENT))
    return Inspection(snapshot, entries, files, embedded, decoded, layout, dropped), findings


def _schema_files(
    store: Store, document: Document, tables: list[str], findings: list[Finding]
) -> dict[str, tuple[bytes, pa.Schema | None]]:
    files: dict[str, tuple[bytes, pa.Schema | None]] = {}
    # The document of our last commit has the types itself.
    is_needed = is_foreign(document.metadata, document.partitions)
    for name in tables:
        key = schema_key(document.uuid, name)
        try:
            data = store.get(key)
            files[name] = (data, None)
            files[name] = (data, normal_schema(parse_common_metadata(data, key)))
        except DAMAGE as error:
            is_missing = isinstance(error, KeyNotFound)
            check = "schema-file-missing" if is_missing else "schema-file-unreadable"
            text = "The schema file is missing." if is_missing else f"The schema file cannot be read. {error}"
            if is_needed:
                text, mend = f"{text} Its types are written nowhere else.", _RESTORE_SCHEMA
            else:
                text = f"{text} The document has the types, so only kartothek and plateau need it."
                mend = "any commit of this library writes it again"
            severity: Severity = "error" if is_needed else "warning"
            findings.append(Finding(severity, check, document.uuid, text, key=key, mend=mend))
    return files


def _schemas(
    document: Document,
    partitions: PartitionColumns,
    files: Mapping[str, tuple[bytes, pa.Schema | None]],
    embedded: Mapping[str, pa.Schema],
    findings: list[Finding],
) -> dict[str, pa.Schema]:
    """The schema of each table: of the document, else of the schema files."""
    keys = document.partition_keys or ()
    schemas = dict(embedded) or {t: schema for t, (_, schema) in files.items() if schema is not None}
    lost = sorted(set(partitions.files) - set(embedded)) if embedded else []
    if lost:
        text = f"The schema inside the document lacks the tables {lost}, which have files."
        findings.append(Finding("error", "embedded-schema", document.uuid, text))
    try:
        return with_key_types({t: ordered(s, keys) for t, s in schemas.items()}, keys, document.uuid)
    except DAMAGE as error:
        findings.append(Finding("error", "schema-columns", document.uuid, f"The schema contradicts itself. {error}"))
        return schemas


def _partition_values(
    document: Document, partitions: PartitionColumns, schemas: Mapping[str, pa.Schema], findings: list[Finding]
) -> tuple[pa.Table, bool]:
    """The typed partition values, and whether they could be decoded; if not, no columns."""
    keys, schema = document.partition_keys or (), next(iter(schemas.values()), pa.schema([]))
    if not keys or not len(partitions) or not schemas:
        return empty_rows(len(partitions)), not keys or not len(partitions)
    lacking = [c for c in keys if c not in schema.names]
    if lacking:
        text = f"The schema lacks the partition columns {lacking}. It has {schema.names}."
        findings.append(Finding("error", "partition-columns", document.uuid, text, column=lacking[0]))
        return empty_rows(len(partitions)), False
    files = pc.coalesce(*partitions.files.values()) if partitions.files else pa.nulls(len(partitions), pa.string())
    try:
        return partition_table(files, keys, schema, document.uuid), True
    except DAMAGE as error:
        located: list[Finding] = []
        # Decoding the columns whole says nothing about where the fault is: decode file by file.
        for i in range(min(len(files), _MAX_DECODED)):
            try:
                partition_table(files[i : i + 1], keys, schema, document.uuid)
            except DAMAGE as fault:
                key, label = files[i].as_py(), partitions.labels[i].as_py()
                located.append(Finding("error", "partition-value", document.uuid, str(fault), key=key, label=label))
        findings.extend(located or [Finding("error", "partition-value", document.uuid, str(error))])
        return empty_rows(len(partitions)), False


# --- an object of a store as a binary file --------------------------------------------------------


class ObjectReader(io.RawIOBase):
    """An object of a store as a binary file that is read block by block."""

    def __init__(self, store: Store, key: str, size: int) -> None:
        super().__init__()
        self._store, self._key, self._position, self._size = store, key, 0, size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        stop = min(self._position + len(buffer), self._size)
        if stop == self._position:
            return 0
        (data,) = self._store.ranges(self._key, [(self._position, stop)])
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)
