"""The result of a garbage collection: removed and waiting files, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import pyarrow as pa

from kartothek_cube.core.arguments import pluralize
from kartothek_cube.core.stores.contract import Entry

__all__ = [
    "DAMAGED_HISTORY",
    "HISTORY",
    "INDEX",
    "KEPT",
    "LEFTOVER",
    "SCHEMA",
    "STATE",
    "TAGGED",
    "UNNAMED",
    "VAIN_TAG",
    "GarbageFile",
    "GarbageReport",
]

UNNAMED = "no document names it"
INDEX = "index file that no document names"
SCHEMA = "schema file of a table that the dataset has no more"
HISTORY = "history entry older than options(retain=...)"
DAMAGED_HISTORY = "history entry that cannot be read"
LEFTOVER = "temporary file of a writer that crashed"
STATE = "state that no tag names"
VAIN_TAG = "share in a tag of a cube that was never made, or is dropped"
KEPT = "older snapshots need it"
TAGGED = "a tag needs it"

_TABLE = pa.schema(
    [
        ("key", pa.string()),
        ("size", pa.int64()),
        ("modified", pa.timestamp("us", "UTC")),
        ("age", pa.duration("us")),
        ("why", pa.string()),
        ("waits", pa.bool_()),
    ]
)


@dataclass(frozen=True, slots=True)
class GarbageFile(Entry):
    """A file that is garbage, or will be.

    ``why`` is the reason. ``age`` is the time since the file was written or, in a store without
    modification times, since a garbage collection first saw it; None if this is the first one.
    """

    why: str = UNNAMED
    age: timedelta | None = None


@dataclass(frozen=True, slots=True)
class GarbageReport:
    """The files that a garbage collection removed, or would remove, and those that wait.

    ``waiting`` are files that no document names either, but that stay: too young, so that a
    running write keeps its files, or needed by older snapshots. Each file is a `GarbageFile`.

    Examples
    --------
    >>> file = GarbageFile("sales/table/COUNTRY_CODE=DE/1.parquet", 1_200)
    >>> GarbageReport((file,), (), dry_run=True)
    GarbageReport(would remove 1 file of 1,200 bytes; 0 files of 0 bytes wait)
    """

    removed: tuple[Entry, ...]
    waiting: tuple[Entry, ...]
    dry_run: bool

    @property
    def keys(self) -> list[str]:
        """The removed keys."""
        return [e.key for e in self.removed]

    @property
    def bytes(self) -> int:
        """Size of the removed files; a file of unknown size counts as 0."""
        return sum(e.size or 0 for e in self.removed)

    @property
    def bytes_waiting(self) -> int:
        """Size of the waiting files."""
        return sum(e.size or 0 for e in self.waiting)

    @property
    def kept(self) -> tuple[Entry, ...]:
        """The waiting files that older snapshots need, tagged ones included."""
        return tuple(e for e in self.waiting if isinstance(e, GarbageFile) and e.why in (KEPT, TAGGED))

    def to_arrow(self) -> pa.Table:
        """One row a file: ``key``, ``size`` (bytes), ``modified``, ``age``, ``why``, ``waits``."""
        rows = [_row(e, waits=False) for e in self.removed] + [_row(e, waits=True) for e in self.waiting]
        columns = zip(*rows, strict=True) if rows else [()] * len(_TABLE)
        arrays = [pa.array(column, type=field.type) for column, field in zip(columns, _TABLE, strict=True)]
        return pa.table(arrays, schema=_TABLE)

    def __repr__(self) -> str:
        verb, kept = "would remove" if self.dry_run else "removed", len(self.kept)
        removed = f"{verb} {pluralize(len(self.removed), 'file')} of {self.bytes:,} bytes"
        waiting = f"{pluralize(len(self.waiting), 'file')} of {self.bytes_waiting:,} bytes wait"
        snapshots = f", {kept:,} of them for older snapshots" if kept else ""
        return f"{type(self).__name__}({removed}; {waiting}{snapshots})"


def _row(entry: Entry, *, waits: bool) -> tuple[object, ...]:
    why, age = (entry.why, entry.age) if isinstance(entry, GarbageFile) else (UNNAMED, None)
    return entry.key, entry.size, entry.modified, age, why, waits
