"""Checks of the files that a document names against one listing: missing, misplaced and shared ones, and those that nobody names."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.io.file_format import CSV_GZIP_SUFFIX, CSV_SUFFIX, DATA_SUFFIX, INDEX_SUFFIX
from kartothek_cube.core.maintenance.garbage.run import own_folders, tracked_keys
from kartothek_cube.core.maintenance.verify.inspection import Inspection
from kartothek_cube.core.maintenance.verify.report import Finding
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.stores.contract import Entry, Store, check_key
from kartothek_cube.core.text import pluralize
from kartothek_cube.errors import InvalidInput

__all__ = ["file_findings", "leftover_findings", "named_files", "readable_files"]

_SUFFIXES = (DATA_SUFFIX, CSV_SUFFIX, CSV_GZIP_SUFFIX)
# What `check_key` lets pass, but for the length of segments.
_VALID = r"""^[`!"#$%&'()+,\-./<=>?@\[\]^_{}~0-9a-zA-Z ]+$"""
_ODD = r"(^|/)\.{0,2}(/|$)|~$|[^/]{256}"


def named_files(subject: Inspection) -> pa.Table:
    """One row for each data file: its key, the position of its partition and its table."""
    schema = pa.schema([("key", pa.string()), ("partition", pa.int64()), ("table", pa.string())])
    positions = pa.array(range(len(subject.snapshot.partitions)), type=pa.int64())
    pieces = [
        pa.table([keys, positions, pa.repeat(table, len(keys))], schema=schema)
        for table, keys in subject.snapshot.partitions.files.items()
    ]
    found = pa.concat_tables([schema.empty_table(), *pieces])
    return found.filter(pc.is_valid(found.column("key")))


def file_findings(store: Store, subject: Inspection) -> Iterator[Finding]:
    """Data files: keys that no store may hold, unknown formats, files elsewhere, missing ones, and those that two partitions name."""
    files = named_files(subject)
    invalid = _invalid(files.column("key"))
    is_invalid = pc.is_in(files.column("key"), value_set=invalid)
    for key, label in _each(subject, files.filter(is_invalid)):
        text = f"The document names a key that no store holds. {_reason(key)}"
        yield Finding("error", "invalid-key", subject.uuid, text, key=key, label=label)
    valid = files.filter(pc.invert(is_invalid))
    for key, label in _each(subject, valid.filter(pc.invert(_has_format(valid.column("key"))))):
        text = f"Nobody can read a data file of this name; it ends in {', '.join(_SUFFIXES)}."
        yield Finding("error", "file-format", subject.uuid, text, key=key, label=label)
    for key, label in _each(subject, valid.filter(pc.invert(pc.starts_with(valid.column("key"), f"{subject.uuid}/")))):
        text = f"The file lies outside of {subject.uuid}/: its owner may delete it, and deleting this dataset in kartothek deletes it."
        mend = f"copy_dataset({subject.uuid!r}, store, ...) copies it, too"
        yield Finding("warning", "foreign-file", subject.uuid, text, key=key, label=label, mend=mend)
    yield from _missing(subject, valid, _present(store, subject, valid.column("key")))
    yield from _shared(subject, files)


def readable_files(store: Store, subject: Inspection) -> pa.Table:
    """The `named_files` that are there and can be asked for."""
    files = named_files(subject)
    keys = files.column("key")
    present = _present(store, subject, keys.filter(pc.invert(pc.is_in(keys, value_set=_invalid(keys)))))
    return files.filter(pc.and_(pc.is_in(keys, value_set=present), _has_format(keys)))


def _invalid(keys: pa.ChunkedArray) -> pa.Array:
    """Keys that a store refuses, each once."""
    odd = pc.or_(pc.invert(pc.match_substring_regex(keys, _VALID)), pc.match_substring_regex(keys, _ODD))
    return pa.array([key for key in pc.unique(keys.filter(odd)).to_pylist() if _reason(key)], type=pa.string())


def _reason(key: str) -> str:
    try:
        check_key(key)
    except InvalidInput as error:
        return str(error)
    return ""


def _has_format(keys: pa.ChunkedArray) -> pa.ChunkedArray:
    masks = [pc.ends_with(keys, suffix) for suffix in _SUFFIXES]
    return pc.or_(pc.or_(masks[0], masks[1]), masks[2])


def _present(store: Store, subject: Inspection, keys: pa.ChunkedArray) -> pa.Array:
    """Those of the keys that are in the store: one listing of the dataset, and one of each folder elsewhere."""
    outside = keys.filter(pc.invert(pc.starts_with(keys, f"{subject.uuid}/")))
    owners = pc.unique(pc.replace_substring_regex(outside, r"/.*", "/")).to_pylist()
    listed = [
        key for found in map_in_threads(lambda owner: store.list(owner, recursive=True).keys, owners) for key in found
    ]
    return pa.array([*subject.entries, *listed], type=pa.string())


def _each(subject: Inspection, files: pa.Table) -> Iterator[tuple[str, str]]:
    """Key and label of each file."""
    labels = subject.snapshot.partitions.labels.take(files.column("partition").combine_chunks())
    return zip(files.column("key").to_pylist(), labels.to_pylist(), strict=True)


def _missing(subject: Inspection, files: pa.Table, present: pa.Array) -> Iterator[Finding]:
    for key, label in _each(subject, files.filter(pc.invert(pc.is_in(files.column("key"), value_set=present)))):
        text = "The document names a file that is not in the store. Its rows are lost, and reading fails."
        mend = "restore the file, or go back with undo(...), or remove its partition with a delete scope"
        yield Finding("error", "missing-file", subject.uuid, text, key=key, label=label, mend=mend)


def _shared(subject: Inspection, files: pa.Table) -> Iterator[Finding]:
    counts = files.group_by("key").aggregate([("partition", "count")])
    shared = counts.filter(pc.greater(counts.column("partition_count"), 1)).column("key")
    repeated = files.filter(pc.is_in(files.column("key"), value_set=shared.combine_chunks()))
    owners: dict[str, list[str]] = {}
    for key, label in _each(subject, repeated):
        owners.setdefault(key, []).append(label)
    for key, labels in owners.items():
        text = f"{len(labels)} entries of the document name this file ({', '.join(map(repr, labels[:3]))}); its rows are read as often."
        yield Finding("error", "shared-file", subject.uuid, text, key=key, label=labels[0])


# --- files that nobody names ----------------------------------------------------------------------


def leftover_findings(subject: Inspection, kept: Collection[str]) -> Iterator[Finding]:
    """What lies below ``<uuid>/`` and is not named by the document: for older snapshots, as garbage, or somebody else's."""
    tracked, uuid = tracked_keys(subject.snapshot), subject.uuid
    others = [
        e
        for e in subject.entries.values()
        if e.key not in tracked and not e.key.startswith((f"{uuid}/_history/", f"{uuid}/_gc/"))
    ]
    folders = _folders(subject)
    spare = [e for e in others if e.key in kept]
    garbage = [
        e
        for e in others
        if e.key not in kept and e.key.startswith(folders) and (subject.is_explicit or e.key.endswith(INDEX_SUFFIX))
    ]
    waste = {e.key for e in garbage}
    unknown = [e for e in others if e.key not in kept and e.key not in waste]
    yield from _leftover(uuid, "kept-for-snapshots", spare, "Named by kept history only, for older snapshots")
    yield from _leftover(uuid, "garbage", garbage, "Named by nobody", f"garbage_collect_dataset({uuid!r}, store)")
    yield from _leftover(uuid, "unknown-files", unknown, "In no table and no index, read and removed by nobody")


def _folders(subject: Inspection) -> tuple[str, ...]:
    if not subject.is_explicit:
        return (f"{subject.uuid}/indices/",)
    return own_folders(subject.uuid, {*subject.snapshot.tables, *subject.snapshot.partitions.files}, subject.entries)


def _leftover(uuid: str, check: str, entries: Sequence[Entry], what: str, mend: str = "") -> Iterator[Finding]:
    if entries:
        text = (
            f"{what}: {pluralize(len(entries), 'file')}, {pluralize(sum(e.size or 0 for e in entries), 'byte')} in all."
        )
        yield Finding("info", check, uuid, text, key=entries[0].key, mend=mend, count=len(entries))
