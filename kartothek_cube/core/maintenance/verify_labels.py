"""Checks of labels and of what the paths of files say: contradictions, absurd names, partitions without files. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.maintenance.verify_report import Finding
from kartothek_cube.core.maintenance.verify_subject import Inspection
from kartothek_cube.core.naming import decode_key

__all__ = ["label_findings"]

# Empty, with a control character, an empty, "." or ".." segment, or one that is too long for a name of a file.
_ABSURD = r"^$|[\x00-\x1f\x7f]|(^|/)\.{0,2}(/|$)|[^/]{256}"


def label_findings(subject: Inspection) -> Iterator[Finding]:
    """Labels that make no file names, that contradict the path of their file, or that have no file, or not one of each table."""
    yield from _absurd(subject)
    yield from _contradictions(subject)
    yield from _without_files(subject)
    yield from _tables(subject)


def _absurd(subject: Inspection) -> Iterator[Finding]:
    labels = subject.snapshot.partitions.labels
    for label in labels.filter(pc.match_substring_regex(labels, _ABSURD)).to_pylist():
        text = f"The label {label!r} makes no file name."
        yield Finding("warning", "absurd-label", subject.uuid, text, label=label)


def _contradictions(subject: Inspection) -> Iterator[Finding]:
    """Where the folders of label and file differ, their pairs are compared; the path is what readers believe. Slashes may be quoted in one of them."""
    labels, keys = subject.snapshot.partitions.labels, subject.snapshot.partition_keys
    for files in subject.snapshot.partitions.files.values() if keys else ():
        places = _unslashed(pc.replace_substring_regex(files, r"^[^/]*/[^/]*/|[^/]*$", ""))
        same = pc.equal(places, _unslashed(pc.replace_substring_regex(labels, r"[^/]*$", "")))
        for i in np.flatnonzero(~pc.fill_null(same, True).to_numpy(zero_copy_only=False)):
            yield from _compared(subject.uuid, labels[int(i)].as_py(), files[int(i)].as_py(), keys)


def _unslashed(paths: pa.Array) -> pa.Array:
    return pc.replace_substring(paths, "%2F", "/")


def _compared(uuid: str, label: str, key: str, columns: Sequence[str]) -> Iterator[Finding]:
    try:
        said, stored = (dict(decode_key(text).pairs) for text in (f"-/-/{label}", key))
    except UnicodeDecodeError:
        return  # the values say so themselves
    for column in columns:
        if column in said and said[column] != stored.get(column):
            text = f"The label says {said[column]!r}, the path of the file {stored.get(column)!r}. The path counts; kartothek believes it, too."
            yield Finding("warning", "label-path", uuid, text, key=key, label=label, column=column)


def _without_files(subject: Inspection) -> Iterator[Finding]:
    partitions = subject.snapshot.partitions
    present = [pc.is_valid(files) for files in partitions.files.values()]
    count = sum((mask.cast(pa.int64()).to_numpy() for mask in present), np.zeros(len(partitions), dtype=np.int64))
    for check, positions, text in (
        ("no-file", np.flatnonzero(count == 0), "partitions have no file at all, so they have no rows"),
        (
            "some-tables",
            np.flatnonzero((count > 0) & (count < len(present))),
            "partitions lack a file of some tables and have no rows there; kartothek cannot read that",
        ),
    ):
        if len(positions):
            label = partitions.labels[int(positions[0])].as_py()
            yield Finding("info", check, subject.uuid, f"{len(positions):,} {text}.", label=label, count=len(positions))


def _tables(subject: Inspection) -> Iterator[Finding]:
    for table in subject.snapshot.partitions.files:
        if table == "indices" or table.startswith("_") or "/" in table or not table:
            text = f"A table called {table!r} shares its folder with other things of the dataset: kartothek's garbage collection may remove its data."
            yield Finding("warning", "table-name", subject.uuid, text)
