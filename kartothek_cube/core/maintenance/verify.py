"""Verification of one dataset: the checks of its metadata, then those of its rows.

In order:

- commits, unfinished conversions and renames, history
- partition labels and schema files
- tags and the files of their states
- what kartothek and plateau read differently
- the run
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt
from msgspec import Struct, field
from msgspec.structs import replace

from kartothek_cube.core.arguments import pluralize
from kartothek_cube.core.arrow.types import common_type, normal_schema
from kartothek_cube.core.maintenance.inspection import (
    DAMAGE,
    Counts,
    Finding,
    Inspection,
    documents_of,
    inspect_dataset,
    seen_document,
)
from kartothek_cube.core.maintenance.verify_checks import (
    Indices,
    coverage_findings,
    delta_findings,
    file_findings,
    index_findings,
    indices_of,
    leftover_findings,
    named_files,
    row_findings,
    statistics_findings,
)
from kartothek_cube.core.metadata.commit_log import COMMITS_KEY, MOVING_KEY
from kartothek_cube.core.metadata.document import Document
from kartothek_cube.core.metadata.history_entry import HistoryEntry, decode_entry, is_history_key
from kartothek_cube.core.metadata.naming import MSGPACK_SUFFIX, decode_key, schema_key
from kartothek_cube.core.metadata.snapshot import is_plain
from kartothek_cube.core.metadata.tag import Tag, TaggedState, name_of_key
from kartothek_cube.core.runtime.executor import at_once, map_in_threads
from kartothek_cube.core.runtime.options import Phase
from kartothek_cube.core.snapshots.time_travel import read_state, stored_tags
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.errors import CorruptDocument, HistoryUnavailable, KeyNotFound


class History(Struct, frozen=True):
    """The readable history entries of a dataset, oldest first, and findings about the others."""

    entries: tuple[HistoryEntry, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def kept(self) -> frozenset[str]:
        """Keys of the data files that older snapshots need."""
        # Not those of index files: without them older snapshots are only slower.
        return frozenset(key for entry in self.entries for key in entry.files)


def commit_findings(subject: Inspection) -> Iterator[Finding]:
    """An unfinished conversion or rename, a damaged commit list, a last commit without id."""
    document, uuid = subject.snapshot.document, subject.uuid
    if MOVING_KEY in document.metadata:
        text = (
            "A rename or a conversion of the document was interrupted, or is under way. "
            "No commit succeeds until it is finished."
        )
        mend = f"call rename_dataset or convert_metadata_format({uuid!r}, ...) again, whichever it was"
        yield Finding("warning", "moving", uuid, text, key=subject.snapshot.key, mend=mend)
    chain = subject.snapshot.chain
    has_parents = all(newer.parent == older.id for older, newer in pairwise(chain))
    is_linked = bool(chain) and has_parents and len({c.id for c in chain}) == len(chain)
    if COMMITS_KEY in document.metadata and not is_linked:
        text = (
            "The list of commits cannot be read, or an entry does not name the one before it. "
            "It does not show which commits landed."
        )
        mend = "any commit of this library begins a new list"
        yield Finding("warning", "commit-chain", uuid, text, key=subject.snapshot.key, mend=mend)
    elif chain and subject.snapshot.has_foreign_commit:
        text = (
            f"A writer without commit ids (kartothek, plateau) committed after {chain[-1].id}. "
            "Two such writers at a time lose each other's rows."
        )
        mend = "let one library write at a time; the next commit of this one begins a new list"
        yield Finding("warning", "foreign-commit", uuid, text, key=subject.snapshot.key, mend=mend)


# --- history --------------------------------------------------------------------------------------


def history_of(store: Store, subject: Inspection) -> History:
    """Read the history entries of a dataset."""

    def read(key: str) -> HistoryEntry | Finding | None:
        try:
            return decode_entry(store.get(key), key)
        except KeyNotFound:
            return None  # a garbage collection removed it since the listing
        except DAMAGE as error:
            text = f"Snapshots before this commit cannot be read. {error}"
            return Finding("warning", "history-unreadable", subject.uuid, text, key=key, mend=f"delete {key!r}")

    keys = [key for key in subject.entries if is_history_key(subject.uuid, key)]
    results = list(map_in_threads(read, keys, store=store, phase=Phase("verify", "commits")))
    entries = sorted((e for e in results if isinstance(e, HistoryEntry)), key=lambda e: e.time)
    return History(tuple(entries), tuple(f for f in results if isinstance(f, Finding)))


def history_findings(subject: Inspection, history: History) -> Iterator[Finding]:
    """Older snapshots that cannot be read, and commits without id in between."""
    yield from history.findings
    data = {key for entry in history.entries for key in entry.files}
    for key in sorted(key for key in data if key.startswith(f"{subject.uuid}/") and key not in subject.entries):
        text = "A file that only older snapshots need is not in the store; they cannot be read."
        yield Finding("warning", "history-file", subject.uuid, text, key=key)
    # Entries that began a new commit list on an existing dataset; for the oldest it is normal.
    restarts = [e for e in history.entries[1:] if e.parent is None and e.before is not None]
    if restarts or subject.snapshot.has_foreign_commit:
        yield from _lost_commits(subject, history)
    if restarts:
        text = (
            f"A writer without commit ids (kartothek, plateau) committed before {restarts[-1].commit}. "
            "Older commits cannot be gone back to."
        )
        yield Finding("info", "foreign-between", subject.uuid, text, count=len(restarts))


def _lost_commits(subject: Inspection, history: History) -> Iterator[Finding]:
    """Commits whose partitions have all vanished, although no other commit removed them."""
    # A writer that does not compare and swap overwrites commits that it has not seen.
    chain = {commit.id for commit in subject.snapshot.chain}
    removed = [entry.removed.labels for entry in history.entries]
    accounted = pa.concat_arrays([subject.snapshot.partitions.labels, *removed])
    for entry in history.entries:
        if entry.commit in chain or not len(entry.added):
            continue
        if not pc.any(pc.is_in(entry.added, value_set=accounted)).as_py():
            text = (
                f"Nothing is left of the {pluralize(len(entry.added), 'partition')} that commit {entry.commit} added "
                f"at {entry.time:%Y-%m-%d %H:%M} UTC: it failed, or a writer without commit ids (kartothek, plateau) "
                "removed or overwrote them."
            )
            mend = "write the rows again if they were lost; their files stay until garbage collection"
            yield Finding("warning", "lost-commit", subject.uuid, text, label=entry.added[0].as_py(), mend=mend)


# --- partition labels and schema files ------------------------------------------------------------


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
    for one in document:
        if one.name not in file.names:
            continue
        file_type = file.field(one.name).type
        common = common_type(file_type, one.type)
        # A wider type is no fault: a later commit may have been the first to write the file.
        if common is None or not common.equals(file_type):
            relation = "contradicts it" if common is None else "is narrower"
            text = (
                f"The document, which counts, says {one.type}; the schema file says {file_type} and {relation}. "
                "kartothek and plateau see the file."
            )
            yield Finding("warning", "schema-drift", uuid, text, key=key, column=one.name, mend=_MEND)


def raw_schema(data: bytes) -> pa.Schema:
    """The schema of a file with its types as stored."""
    return pq.read_schema(pa.BufferReader(data))


# --- tags and the files of their states -----------------------------------------------------------


class TaggedFiles(Struct, frozen=True):
    """The files of tagged states by tag, and findings about the tags that cannot be read."""

    data: dict[str, frozenset[str]]
    indices: frozenset[str] = frozenset()
    findings: tuple[Finding, ...] = ()

    @property
    def kept(self) -> frozenset[str]:
        """Keys of all data and index files that tags keep."""
        return self.indices.union(*self.data.values())


def tagged_files(store: Store, subject: Inspection) -> TaggedFiles:
    """Read the tags of a dataset, and their states."""
    uuid, states, findings = subject.uuid, list[TaggedState](), list[Finding]()
    for key, tag in stored_tags(store, subject.entries).items():
        if isinstance(tag, Tag):
            states.append(tag.state)
        elif tag is not None:
            text = f"What this tag names is unknown, so garbage collection keeps every tagged state. {tag}"
            mend = f"drop_dataset_tag({uuid!r}, store, {name_of_key(key)!r})"
            findings.append(Finding("error", "tag-unreadable", uuid, text, key=key, mend=mend))

    def read(state: TaggedState) -> Document | Finding:
        try:
            return read_state(store, state)
        except (HistoryUnavailable, CorruptDocument) as error:
            text = f"Tag {state.name!r} cannot be read. {error}"
            return Finding("error", "tag-state", uuid, text, key=state.key, mend=_mend(uuid, state.name))

    read_states = dict(zip((state.name for state in states), map_in_threads(read, states, store=store), strict=True))
    documents = {name: found for name, found in read_states.items() if isinstance(found, Document)}
    findings += [found for found in read_states.values() if isinstance(found, Finding)]
    data = {name: frozenset(document.files) for name, document in documents.items()}
    indices = frozenset[str]().union(*(document.index_files for document in documents.values()))
    return TaggedFiles(data, indices, tuple(findings))


def tag_findings(subject: Inspection, tags: TaggedFiles) -> Iterator[Finding]:
    """Tags that cannot be read, as a whole or in part."""
    yield from tags.findings
    # Not those of index files: without them a tagged state is only slower.
    for name, files in sorted(tags.data.items()):
        gone = sorted(key for key in files if key.startswith(f"{subject.uuid}/") and key not in subject.entries)
        if gone:
            text = (
                f"The state of tag {name!r} lacks {pluralize(len(gone), 'file')} of {len(files):,}; reading it fails. "
                "A garbage collection by another library (kartothek, plateau) does not know tags."
            )
            mend = f"restore the files, or {_mend(subject.uuid, name)}"
            yield Finding("error", "tag-file", subject.uuid, text, key=gone[0], mend=mend, count=len(gone))


def _mend(uuid: str, name: str) -> str:
    return f"drop_dataset_tag({uuid!r}, store, {name!r}), or drop_cube_tag if it is of the cube"


# --- what kartothek and plateau read differently --------------------------------------------------


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


# --- the run --------------------------------------------------------------------------------------


_MAX_PASSES = 3


class VerifyPass(Struct, frozen=True):
    """The result of one pass; ``subject`` is None if the document cannot be read.

    ``history`` has the readable entries.
    """

    subject: Inspection | None
    indices: Indices
    findings: tuple[Finding, ...]
    counts: Counts
    history: History = field(default_factory=History)


def verify(store: Store, uuid: str, *, deep: bool) -> VerifyPass:
    """Verify the documents, schema files, index files and keys of a dataset; no data file is read.

    ``deep`` leaves the checks that need rows to `verify_rows`.

    Raises
    ------
    DatasetNotFound
        If there is no document.
    """
    # A commit during a pass can look like a fault: repeat the pass, a few times.
    result, is_disturbed = _verify_once(store, uuid, deep=deep)
    for _ in range(_MAX_PASSES - 1):
        if not is_disturbed:
            break
        result, is_disturbed = _verify_once(store, uuid, deep=deep)
    return result


def _verify_once(store: Store, uuid: str, *, deep: bool) -> tuple[VerifyPass, bool]:
    """One pass, and whether it found a fault while the document was changed."""
    stored, document_faults = documents_of(store, uuid)
    if stored is None:
        return VerifyPass(None, Indices(), tuple(document_faults), Counts(datasets=1)), False
    seen, pending = seen_document(store, stored)
    document_faults += pending
    if seen is None:
        return VerifyPass(None, Indices(), tuple(document_faults), Counts()), False
    stored = seen
    subject, damage = inspect_dataset(store, stored)
    indices, history, tags = at_once(
        store,
        lambda: indices_of(store, subject),
        lambda: history_of(store, subject),
        lambda: tagged_files(store, subject),
    )
    findings = (
        *document_faults,
        *damage,
        *commit_findings(subject),
        *history_findings(subject, history),
        *tag_findings(subject, tags),
        *file_findings(store, subject),
        *label_findings(subject),
        *schema_findings(subject),
        *index_findings(subject, indices),
        *statistics_findings(store, subject),
        *delta_findings(store, subject),
        *migration_findings(subject),
        *leftover_findings(subject, history.kept, tags.kept),
        *(() if deep else coverage_findings(subject, indices)),
    )
    keys = named_files(subject).column("key").to_pylist()
    size = sum(subject.entries[key].size or 0 for key in set(keys) & subject.entries.keys())
    counts = Counts(1, len(subject.snapshot.partitions), len(keys), size)
    has_fault = any(f.severity != "info" for f in findings)
    return VerifyPass(subject, indices, findings, counts, history), (
        has_fault and store.changed(stored.key, stored.token)
    )


def verify_rows(store: Store, metadata_pass: VerifyPass, dimensions: Sequence[str] = ()) -> VerifyPass:
    """Add the checks that read all data.

    ``dimensions`` are the dimension columns, in order, of a dataset of a cube.
    """
    subject = metadata_pass.subject
    if subject is None or not subject.decoded:
        return metadata_pass
    present = [c for c in dimensions if c in subject.snapshot.schema.names]
    findings, rows = row_findings(store, subject, metadata_pass.indices, present)
    counts = metadata_pass.counts + Counts(rows=rows)
    return replace(metadata_pass, findings=(*metadata_pass.findings, *findings), counts=counts)
