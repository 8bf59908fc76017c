"""History entries: what a commit changed, so that it can be taken back. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import zstandard
from msgspec import Struct

from kartothek_cube.core.arrow.keys import IntArray
from kartothek_cube.core.metadata.commit_log import COMMITS_KEY, SCHEMA_KEY, CubeCommit
from kartothek_cube.core.metadata.document import Document, PartitionColumns, decompress, empty_partitions
from kartothek_cube.core.metadata.snapshot import Snapshot, embedded_schemas
from kartothek_cube.core.metadata.statistics import STATISTICS_KEY
from kartothek_cube.errors import CorruptDocument

HISTORY_FOLDER = "_history"
_SUFFIX = ".json.zst"
_VERSION = 1


class DocumentHeader(Struct, frozen=True):
    """A document without its partitions.

    ``explicit`` says whether the document listed partitions. In ``indices`` an index that never had
    a file is null.
    """

    partition_keys: tuple[str, ...]
    indices: Mapping[str, Any]
    metadata: Mapping[str, Any]
    explicit: bool = True


class HistoryEntry(Struct, frozen=True):
    """What one commit changed.

    Attributes
    ----------
    commit, parent : str, str | None
        The commit, and the commit before; None for the first one, and after a foreign writer.
    time : datetime
        The time of the commit in UTC, by the writer's clock.
    added : pyarrow.Array
        Labels of the added partitions.
    removed : PartitionColumns
        The removed or replaced partitions, with their files.
    positions : pyarrow.Array
        The positions of the removed partitions among those before, from 0.
    before : DocumentHeader | None
        The rest of the document before; None if the commit created the dataset.
    cube : CubeCommit | None
        The write to a cube that the commit is a part of.
    data_change : bool
        False if the added partitions hold the rows of the removed ones, as after a compaction.
    """

    commit: str
    parent: str | None
    time: datetime
    added: pa.Array
    removed: PartitionColumns
    positions: pa.Array
    before: DocumentHeader | None
    cube: CubeCommit | None = None
    data_change: bool = True

    @property
    def files(self) -> list[str]:
        """Keys of the data files that only states before this commit name."""
        return [key for keys in self.removed.files.values() for key in keys.drop_null().to_pylist()]

    @property
    def index_files(self) -> list[str]:
        """Keys of the index files of the state before."""
        return [] if self.before is None else [key for key in self.before.indices.values() if isinstance(key, str)]


def history_key(uuid: str, commit: str) -> str:
    """Key of the entry of one commit."""
    return f"{uuid}/{HISTORY_FOLDER}/{commit}{_SUFFIX}"


def is_history_key(uuid: str, key: str) -> bool:
    """Whether a key is that of a history entry of this dataset."""
    return key.startswith(f"{uuid}/{HISTORY_FOLDER}/") and key.endswith(_SUFFIX)


def entry_of(
    commit: str, time: datetime, base: Snapshot | None, added: pa.Array, gone: pa.Array, cube: CubeCommit | None = None
) -> HistoryEntry:
    """The entry of a commit that adds and removes these labels; ``base`` is the state before."""
    if base is None:
        return HistoryEntry(commit, None, time, added, empty_partitions(), pa.array([], type=pa.int64()), None, cube)
    positions = np.array([], dtype=np.int64)
    if len(gone):
        positions = np.flatnonzero(pc.is_in(base.partitions.labels, value_set=gone).to_numpy(zero_copy_only=False))
    parent = None if base.has_foreign_commit else base.chain[-1].id
    metadata = {k: v for k, v in base.document.metadata.items() if k not in (COMMITS_KEY, STATISTICS_KEY)}
    metadata[SCHEMA_KEY] = embedded_schemas(base.schemas)
    is_explicit = base.document.partitions is not None
    before = DocumentHeader(base.partition_keys, dict(base.document.indices), metadata, is_explicit)
    return HistoryEntry(commit, parent, time, added, base.partitions.take(positions), pa.array(positions), before, cube)


def document_before(entry: HistoryEntry, after: Document) -> Document | None:
    """The document before a commit, without its chain; None if the commit created the dataset.

    It always lists the partitions, even if the original document did not.

    Raises
    ------
    CorruptDocument
        If the entry does not belong to this document.
    """
    if entry.before is None:
        return None
    return document_before_all([entry], after)


def document_before_all(entries: Sequence[HistoryEntry], after: Document) -> Document:
    """The document before several commits, the newest first; they did not create the dataset.

    Raises
    ------
    CorruptDocument
        If an entry does not belong to the document after it.
    """
    newest = after.partitions or empty_partitions()
    columns, order, count = [newest], np.arange(len(newest)), len(newest)
    # Only row numbers move from commit to commit. Labels and keys are copied once, in the end.
    some = pc.is_in(newest.labels, value_set=pa.concat_arrays([entry.added for entry in entries]))
    rows = np.flatnonzero(some.to_numpy(zero_copy_only=False))
    row_of = dict(zip(newest.labels.take(pa.array(rows)).to_pylist(), rows.tolist(), strict=True))
    for entry in entries:
        is_kept = np.ones(count, dtype=bool)
        is_kept[[row_of.pop(label) for label in entry.added.to_pylist() if label in row_of]] = False
        order = order[is_kept[order]]
        back = np.arange(count, count + len(entry.removed))
        if len(back) or len(entry.positions):
            order = np.concatenate([order, back])[_inserted_order(len(order), entry, after.uuid)]
            row_of |= zip(entry.removed.labels.to_pylist(), back.tolist(), strict=True)
            columns.append(entry.removed)
            count += len(back)
    header = entries[-1].before
    assert header is not None
    partitions = _listed(columns, order)
    # Files never change, so what is known of them now holds for the older state, too.
    metadata = {**{k: v for k, v in after.metadata.items() if k == STATISTICS_KEY}, **header.metadata}
    return Document(after.uuid, metadata, header.partition_keys, header.indices, partitions)


def _listed(columns: Sequence[PartitionColumns], order: IntArray) -> PartitionColumns:
    """Partitions of several lists in some order, without tables of which no file is left."""
    every = columns[0]
    if len(columns) > 1:
        tables = dict.fromkeys(table for each in columns for table in each.files)
        files = {t: pa.concat_arrays([each.file_column(t) for each in columns]) for t in tables}
        every = PartitionColumns(pa.concat_arrays([each.labels for each in columns]), files)
    every = every.take(order)
    return PartitionColumns(every.labels, {t: keys for t, keys in every.files.items() if keys.null_count < len(keys)})


def _inserted_order(kept: int, entry: HistoryEntry, uuid: str) -> IntArray:
    """The order of the kept partitions and those that an entry removed, before it did."""
    count = kept + len(entry.removed)
    positions = entry.positions.to_numpy(zero_copy_only=False)
    if len(positions) != len(entry.removed) or (
        len(positions)
        and (positions.min() < 0 or positions.max() >= count or len(np.unique(positions)) != len(positions))
    ):
        raise CorruptDocument(
            f"The history entry of commit {entry.commit} does not belong to dataset {uuid!r} as it was then."
        )
    others = np.ones(count, dtype=bool)
    others[positions] = False
    order = np.empty(count, dtype=np.int64)
    order[others] = np.arange(kept)
    order[positions] = np.arange(kept, count)
    return order


# --- bytes ----------------------------------------------------------------------------------------


class _Entry(Struct):
    version: int
    commit: str
    parent: str | None
    time: str
    added: list[str]
    labels: list[str]
    files: dict[str, list[str | None]]
    positions: list[int]
    before: DocumentHeader | None = None
    cube: tuple[str, list[str]] | None = None
    data_change: bool = True


def encode_entry(entry: HistoryEntry) -> bytes:
    """The bytes of an entry: JSON, compressed."""
    plain = _Entry(
        _VERSION,
        entry.commit,
        entry.parent,
        entry.time.astimezone(UTC).isoformat(),
        entry.added.to_pylist(),
        entry.removed.labels.to_pylist(),
        {table: keys.to_pylist() for table, keys in entry.removed.files.items()},
        entry.positions.to_pylist(),
        entry.before,
        None if entry.cube is None else (entry.cube.id, list(entry.cube.datasets)),
        entry.data_change,
    )
    return zstandard.compress(msgspec.json.encode(plain))


def decode_entry(data: bytes, key: str) -> HistoryEntry:
    """The reverse of `encode_entry`.

    Raises
    ------
    CorruptDocument
        If the bytes are no entry.
    """
    try:
        plain = msgspec.json.decode(decompress(data), type=_Entry)
        time = datetime.fromisoformat(plain.time).astimezone(UTC)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise CorruptDocument(f"The history entry {key} cannot be read: {error}") from error
    if plain.version != _VERSION or any(len(keys) != len(plain.labels) for keys in plain.files.values()):
        raise CorruptDocument(f"The history entry {key} is of another version, or contradicts itself.")
    files = {table: pa.array(keys, type=pa.string()) for table, keys in plain.files.items()}
    removed = PartitionColumns(pa.array(plain.labels, type=pa.string()), files)
    return HistoryEntry(
        plain.commit,
        plain.parent,
        time,
        pa.array(plain.added, type=pa.string()),
        removed,
        pa.array(plain.positions, type=pa.int64()),
        plain.before,
        None if plain.cube is None else CubeCommit(plain.cube[0], tuple(plain.cube[1])),
        plain.data_change,
    )
