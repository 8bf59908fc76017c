"""Reads a dataset that may be damaged, as far as possible; unreadable parts become findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.arrow.keys import empty_rows
from kartothek_cube.core.arrow.types import normal_schema, ordered, stored_schema
from kartothek_cube.core.maintenance.garbage.plan import is_schema_key
from kartothek_cube.core.maintenance.verify.report import Finding, Severity
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

__all__ = ["DAMAGE", "Inspection", "documents_of", "inspect_dataset", "seen_document"]

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
    for table in tables:
        key = schema_key(document.uuid, table)
        try:
            data = store.get(key)
            files[table] = (data, None)
            files[table] = (data, normal_schema(parse_common_metadata(data, key)))
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
