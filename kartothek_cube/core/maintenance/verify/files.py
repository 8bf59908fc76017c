"""Checks of files against one listing: those that the document names, and all others."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.arguments import pluralize
from kartothek_cube.core.io.formats import CSV_GZIP_SUFFIX, CSV_SUFFIX, DATA_SUFFIX, INDEX_SUFFIX
from kartothek_cube.core.maintenance.garbage.run import own_folders, tracked_keys
from kartothek_cube.core.maintenance.verify.inspection import Inspection
from kartothek_cube.core.maintenance.verify.report import Finding
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.stores.contract import Entry, Store, check_key
from kartothek_cube.errors import InvalidInput

__all__ = ["file_findings", "leftover_findings", "named_files", "readable_files"]

_SUFFIXES = (DATA_SUFFIX, CSV_SUFFIX, CSV_GZIP_SUFFIX)
# A first filter in Arrow: only keys that fail it are given to `check_key`, one by one.
_VALID = r"""^[`!"#$%&'()+,\-./<=>?@\[\]^_{}~0-9a-zA-Z ]+$"""
_SUSPICIOUS = r"(^|/)\.{0,2}(/|$)|~$|[^/]{256}"

# --- files that the document names --------------------------------------------------------------


def named_files(subject: Inspection) -> pa.Table:
    """One row for each data file: its key, the position of its partition, and its table."""
    schema = pa.schema([("key", pa.string()), ("partition", pa.int64()), ("table", pa.string())])
    positions = pa.array(range(len(subject.snapshot.partitions)), type=pa.int64())
    pieces = [
        pa.table([keys, positions, pa.repeat(table, len(keys))], schema=schema)
        for table, keys in subject.snapshot.partitions.files.items()
    ]
    files = pa.concat_tables([schema.empty_table(), *pieces])
    return files.filter(pc.is_valid(files.column("key")))


def file_findings(store: Store, subject: Inspection) -> Iterator[Finding]:
    """Data files with an invalid key or unknown format, and foreign, missing and shared ones."""
    files = named_files(subject)
    invalid = _invalid(files.column("key"))
    is_invalid = pc.is_in(files.column("key"), value_set=invalid)
    for key, label in _each(subject, files.filter(is_invalid)):
        text = f"The document names a key that no store holds. {_reason(key)}"
        yield Finding("error", "invalid-key", subject.uuid, text, key=key, label=label)
    valid = files.filter(pc.invert(is_invalid))
    for key, label in _each(subject, valid.filter(pc.invert(_has_format(valid.column("key"))))):
        text = f"A data file of this name cannot be read; its name must end in {', '.join(_SUFFIXES)}."
        yield Finding("error", "file-format", subject.uuid, text, key=key, label=label)
    for key, label in _each(subject, valid.filter(pc.invert(pc.starts_with(valid.column("key"), f"{subject.uuid}/")))):
        text = (
            f"The file is outside of {subject.uuid}/: its owner may delete it, "
            "and deleting this dataset in kartothek deletes it."
        )
        mend = f"copy_dataset({subject.uuid!r}, store, ...) copies it, too"
        yield Finding("warning", "foreign-file", subject.uuid, text, key=key, label=label, mend=mend)
    present = _present(store, subject, valid.column("key"))
    for key, label in _each(subject, valid.filter(pc.invert(pc.is_in(valid.column("key"), value_set=present)))):
        text = "The document names a file that is not in the store. Its rows are lost, and reading fails."
        mend = "restore the file, or go back with undo(...), or remove its partition with a delete scope"
        yield Finding("error", "missing-file", subject.uuid, text, key=key, label=label, mend=mend)
    counts = files.group_by("key").aggregate([("partition", "count")])
    shared = counts.filter(pc.greater(counts.column("partition_count"), 1)).column("key")
    repeated = files.filter(pc.is_in(files.column("key"), value_set=shared.combine_chunks()))
    owners: dict[str, list[str]] = {}
    for key, label in _each(subject, repeated):
        owners.setdefault(key, []).append(label)
    for key, labels in owners.items():
        examples = ", ".join(map(repr, labels[:3]))
        text = f"{len(labels)} entries of the document name this file ({examples}); its rows are read as often."
        yield Finding("error", "shared-file", subject.uuid, text, key=key, label=labels[0])


def readable_files(store: Store, subject: Inspection) -> pa.Table:
    """The `named_files` that exist and have a valid key and a known format."""
    files = named_files(subject)
    keys = files.column("key")
    present = _present(store, subject, keys.filter(pc.invert(pc.is_in(keys, value_set=_invalid(keys)))))
    return files.filter(pc.and_(pc.is_in(keys, value_set=present), _has_format(keys)))


def _invalid(keys: pa.ChunkedArray) -> pa.Array:
    """The distinct keys that a store refuses."""
    is_suspicious = pc.match_substring_regex(keys, _SUSPICIOUS)
    is_suspicious = pc.or_(pc.invert(pc.match_substring_regex(keys, _VALID)), is_suspicious)
    suspects = pc.unique(keys.filter(is_suspicious)).to_pylist()
    return pa.array([key for key in suspects if _reason(key)], type=pa.string())


def _reason(key: str) -> str:
    """Why a store refuses a key; empty if it does not."""
    try:
        check_key(key)
    except InvalidInput as error:
        return str(error)
    return ""


def _has_format(keys: pa.ChunkedArray) -> pa.ChunkedArray:
    masks = [pc.ends_with(keys, suffix) for suffix in _SUFFIXES]
    return pc.or_(pc.or_(masks[0], masks[1]), masks[2])


def _present(store: Store, subject: Inspection, keys: pa.ChunkedArray) -> pa.Array:
    """The keys below ``<uuid>/``, and below each other top-level folder that these keys name."""
    outside = keys.filter(pc.invert(pc.starts_with(keys, f"{subject.uuid}/")))
    owners = pc.unique(pc.replace_substring_regex(outside, r"/.*", "/")).to_pylist()
    listings = map_in_threads(lambda owner: store.list(owner, recursive=True).keys, owners)
    return pa.array([*subject.entries, *chain.from_iterable(listings)], type=pa.string())


def _each(subject: Inspection, files: pa.Table) -> Iterator[tuple[str, str]]:
    """Key and label of each file."""
    labels = subject.snapshot.partitions.labels.take(files.column("partition").combine_chunks())
    return zip(files.column("key").to_pylist(), labels.to_pylist(), strict=True)


# --- files that the document does not name -----------------------------------------------------


def leftover_findings(subject: Inspection, kept: Collection[str], tagged: Collection[str]) -> Iterator[Finding]:
    """Files below ``<uuid>/`` that the document does not name: of history, tags, garbage, unknown.

    ``kept`` are the files that history names, and ``tagged`` those that tags name.
    """
    tracked, uuid = tracked_keys(subject.snapshot), subject.uuid
    folders: tuple[str, ...] = (f"{uuid}/indices/",)
    if subject.is_explicit:
        folders = own_folders(uuid, {*subject.snapshot.tables, *subject.snapshot.partitions.files}, subject.entries)
    of_history, of_tags, garbage, unknown = list[Entry](), list[Entry](), list[Entry](), list[Entry]()
    for entry in subject.entries.values():
        key = entry.key
        if key in tracked or key.startswith((f"{uuid}/_history/", f"{uuid}/_tags/", f"{uuid}/_gc/")):
            continue
        if key in kept:
            of_history.append(entry)
        elif key in tagged:
            of_tags.append(entry)
        elif key.startswith(folders) and (subject.is_explicit or key.endswith(INDEX_SUFFIX)):
            garbage.append(entry)
        else:
            unknown.append(entry)
    yield from _leftover(uuid, "kept-for-snapshots", of_history, "Named by kept history only, for older snapshots")
    yield from _leftover(uuid, "kept-for-tags", of_tags, "Named by tags only")
    mend = f"garbage_collect_dataset({uuid!r}, store)"
    yield from _leftover(uuid, "garbage", garbage, "Named by no document, no history and no tag", mend)
    yield from _leftover(uuid, "unknown-files", unknown, "In no table and no index, so never read and never removed")


def _leftover(uuid: str, check: str, entries: Sequence[Entry], what: str, mend: str = "") -> Iterator[Finding]:
    if entries:
        size = pluralize(sum(e.size or 0 for e in entries), "byte")
        text = f"{what}: {pluralize(len(entries), 'file')}, {size} in all."
        yield Finding("info", check, uuid, text, key=entries[0].key, mend=mend, count=len(entries))
