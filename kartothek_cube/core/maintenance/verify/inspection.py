"""What can be read of a dataset that may be damaged: its documents, schemas, partitions and the listing of its folder, with findings for what cannot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.arrow.schema import normal_schema, ordered, stored_schema
from kartothek_cube.core.arrow.sort_keys import empty_rows
from kartothek_cube.core.maintenance.verify.report import Finding
from kartothek_cube.core.metadata.commit_log import SCHEMA_KEY, is_foreign
from kartothek_cube.core.metadata.document import Document
from kartothek_cube.core.metadata.naming import SCHEMA_FILE, schema_key
from kartothek_cube.core.metadata.partition_values import partition_table
from kartothek_cube.core.metadata.partitions import PartitionColumns, empty_partitions
from kartothek_cube.core.metadata.schema_file import parse_common_metadata, parse_embedded_schemas
from kartothek_cube.core.metadata.snapshot import Snapshot, with_key_types
from kartothek_cube.core.snapshots.document_store import StoredDocument, document_keys, find_document
from kartothek_cube.core.snapshots.loader import resolve_document
from kartothek_cube.core.stores.contract import Entry, Store
from kartothek_cube.errors import CorruptDocument, DatasetNotFound, KartothekCubeError, KeyNotFound, Unsupported

__all__ = ["DAMAGE", "Inspection", "documents_of", "inspect_dataset"]

# What reading damaged bytes may raise. The store's own errors are no damage of the dataset: they
# are raised.
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

_MOST_TRIED = 10_000


@dataclass(frozen=True, slots=True)
class Inspection:
    """A dataset as far as it can be read.

    Attributes
    ----------
    snapshot : Snapshot
        The dataset; without partition values where they cannot be decoded, with the schemas that
        can be read.
    entries : Mapping[str, Entry]
        The objects below ``<uuid>/`` by key.
    schema_files : Mapping[str, tuple[bytes, pyarrow.Schema | None]]
        Table → the bytes of its schema file, and its types if it can be read; without those that
        are missing.
    embedded : Mapping[str, pyarrow.Schema]
        Table → the schema inside the document, where a writer of ours came last.
    decoded : bool
        Whether the partition values could be decoded.
    """

    snapshot: Snapshot
    entries: Mapping[str, Entry]
    schema_files: Mapping[str, tuple[bytes, pa.Schema | None]]
    embedded: Mapping[str, pa.Schema] = field(default_factory=dict)
    decoded: bool = True

    @property
    def uuid(self) -> str:
        """The dataset."""
        return self.snapshot.uuid

    @property
    def is_explicit(self) -> bool:
        """Whether the document lists the partitions."""
        return self.snapshot.document.partitions is not None


# --- documents ------------------------------------------------------------------------------------


def documents_of(store: Store, uuid: str) -> tuple[StoredDocument | None, list[Finding]]:
    """The document that counts, None if it cannot be read, and what is wrong with the two.

    Raises
    ------
    DatasetNotFound
        If there is none.
    """
    found, findings = _first_document(store, uuid)
    json_key, msgpack_key = document_keys(uuid)
    if found is None and not findings:
        raise DatasetNotFound(f"Dataset does not exist. Tried {json_key} and {msgpack_key} in the store {store.name}.")
    has_json = found.key == json_key if found is not None else findings[0].key == json_key
    if has_json and store.contains(msgpack_key):
        text = "Both documents are there. The one in JSON counts; the other is left from an update by another library, or belongs to one under way."
        findings.append(
            Finding(
                "warning",
                "two-documents",
                uuid,
                text,
                key=msgpack_key,
                mend=f"convert_metadata_format({uuid!r}, store, 'json')",
            )
        )
    if found is not None and found.document.uuid != uuid:
        text = f"The document says that its dataset is {found.document.uuid!r}, but its key says {uuid!r}. Nobody can read the dataset."
        findings.append(
            Finding(
                "error",
                "document-uuid",
                uuid,
                text,
                key=found.key,
                mend="copy the files of a dataset with copy_dataset or rename_dataset only",
            )
        )
        found = replace(found, document=replace(found.document, uuid=uuid))
    return found, findings


def _first_document(store: Store, uuid: str) -> tuple[StoredDocument | None, list[Finding]]:
    for key in document_keys(uuid):
        try:
            found = find_document(store, key)
        except Unsupported as error:
            return None, [Finding("error", "document-version", uuid, str(error), key=key)]
        except DAMAGE as error:
            return None, [
                Finding(
                    "error",
                    "document-unreadable",
                    uuid,
                    str(error),
                    key=key,
                    mend="restore the document from a backup of the store",
                )
            ]
        if found is not None:
            return found, []
    return None, []


# --- everything else ------------------------------------------------------------------------------


def inspect_dataset(store: Store, stored: StoredDocument) -> tuple[Inspection, list[Finding]]:
    """What the document, the schemas and one listing say.

    Errors are what readers would fail with.
    """
    findings: list[Finding] = []
    document, partitions = _resolved(store, stored.document, findings)
    entries = {e.key: e for e in store.list(f"{document.uuid}/", recursive=True).entries}
    files = _schema_files(store, document, _tables(document, partitions, entries), findings)
    embedded = _embedded(document, findings)
    schemas = _schemas(document, partitions, files, embedded, findings)
    values, decoded = _values(document, partitions, schemas, findings)
    keys = document.partition_keys or ()
    snapshot = Snapshot(document.uuid, stored.key, stored.token, document, schemas, keys, partitions, values)
    return Inspection(snapshot, entries, files, embedded, decoded), findings


def _resolved(store: Store, document: Document, findings: list[Finding]) -> tuple[Document, PartitionColumns]:
    try:
        return resolve_document(store, document)
    except DAMAGE as error:
        findings.append(
            Finding(
                "error",
                "implicit-files",
                document.uuid,
                f"What the document leaves to the paths of the files does not follow from them. {error}",
            )
        )
        return replace(
            document, partition_keys=document.partition_keys or ()
        ), document.partitions or empty_partitions()


def _tables(document: Document, partitions: PartitionColumns, entries: Mapping[str, Entry]) -> list[str]:
    start = f"{document.uuid}/"
    listed = sorted(
        {
            key.removeprefix(start).split("/")[0]
            for key in entries
            if key.endswith(f"/{SCHEMA_FILE}") and key.count("/") == 2
        }
    )
    return list(partitions.files) or listed


def _schema_files(
    store: Store, document: Document, tables: list[str], findings: list[Finding]
) -> dict[str, tuple[bytes, pa.Schema | None]]:
    found: dict[str, tuple[bytes, pa.Schema | None]] = {}
    is_needed = is_foreign(document.metadata, document.partitions)
    for table in tables:
        key = schema_key(document.uuid, table)
        try:
            data = store.get(key)
            found[table] = (data, None)
            found[table] = (data, normal_schema(parse_common_metadata(data, key)))
        except DAMAGE as error:
            findings.append(_schema_fault(document.uuid, key, error, is_needed=is_needed))
    return found


def _schema_fault(uuid: str, key: str, error: Exception, *, is_needed: bool) -> Finding:
    missing = isinstance(error, KeyNotFound)
    what = "The schema file is missing." if missing else f"The schema file cannot be read. {error}"
    who = (
        "Its types are written nowhere else."
        if is_needed
        else "The document has the types, so only kartothek and plateau need it."
    )
    mend = (
        "restore the schema file from a backup of the store"
        if is_needed
        else "any commit of this library writes it again"
    )
    return Finding(
        "error" if is_needed else "warning",
        "schema-file-missing" if missing else "schema-file-unreadable",
        uuid,
        f"{what} {who}",
        key=key,
        mend=mend,
    )


def _embedded(document: Document, findings: list[Finding]) -> dict[str, pa.Schema]:
    text = document.metadata.get(SCHEMA_KEY)
    if text is None or is_foreign(document.metadata, document.partitions):
        return {}
    try:
        return {t: stored_schema(s) for t, s in parse_embedded_schemas(str(text), document.uuid).items()}
    except DAMAGE as error:
        findings.append(
            Finding(
                "error",
                "embedded-schema",
                document.uuid,
                str(error),
                mend="restore the document from a backup of the store",
            )
        )
        return {}


def _schemas(
    document: Document,
    partitions: PartitionColumns,
    files: Mapping[str, tuple[bytes, pa.Schema | None]],
    embedded: Mapping[str, pa.Schema],
    findings: list[Finding],
) -> dict[str, pa.Schema]:
    keys = document.partition_keys or ()
    found = dict(embedded) or {t: schema for t, (_, schema) in files.items() if schema is not None}
    lost = sorted(set(partitions.files) - set(embedded)) if embedded else []
    if lost:
        findings.append(
            Finding(
                "error",
                "embedded-schema",
                document.uuid,
                f"The schema inside the document lacks the tables {lost}, which have files.",
            )
        )
    try:
        return with_key_types({t: ordered(s, keys) for t, s in found.items()}, keys, document.uuid)
    except DAMAGE as error:
        findings.append(Finding("error", "schema-columns", document.uuid, f"The schema contradicts itself. {error}"))
        return found


def _values(
    document: Document, partitions: PartitionColumns, schemas: Mapping[str, pa.Schema], findings: list[Finding]
) -> tuple[pa.Table, bool]:
    """The typed partition values; rows without columns where they cannot be decoded."""
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
        findings.extend(
            _undecodable(document.uuid, partitions, files, keys, schema)
            or [Finding("error", "partition-value", document.uuid, str(error))]
        )
        return empty_rows(len(partitions)), False


def _undecodable(
    uuid: str, partitions: PartitionColumns, files: pa.Array, keys: tuple[str, ...], schema: pa.Schema
) -> list[Finding]:
    """Which labels it is; only of the first ones, as this is one call for each."""
    findings: list[Finding] = []
    for i in range(min(len(files), _MOST_TRIED)):
        try:
            partition_table(files[i : i + 1], keys, schema, uuid)
        except (CorruptDocument, *DAMAGE) as error:
            findings.append(
                Finding(
                    "error",
                    "partition-value",
                    uuid,
                    str(error),
                    key=files[i].as_py(),
                    label=partitions.labels[i].as_py(),
                )
            )
    return findings
