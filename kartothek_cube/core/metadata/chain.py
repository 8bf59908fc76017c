"""The chain of commit ids that a document carries, with a fingerprint that tells a foreign writer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.metadata.document import parse_document
from kartothek_cube.core.metadata.partitions import PartitionColumns
from kartothek_cube.errors import CorruptDocument, Unsupported

__all__ = [
    "COMMITS_KEY",
    "LENGTH",
    "MOVING_KEY",
    "SCHEMA_KEY",
    "Commit",
    "CubeCommit",
    "chain_of",
    "extend_chain",
    "fingerprint",
    "is_foreign",
    "stored_chain",
]

COMMITS_KEY = "kartothek_cube.commits"
SCHEMA_KEY = "kartothek_cube.schema"
# While a document with this entry is there, its encoding is being changed and nobody may commit onto it.
MOVING_KEY = "kartothek_cube.moving"
LENGTH = 32


@dataclass(frozen=True, slots=True)
class CubeCommit:
    """A write to several datasets of a cube: its id, and the uuids of all datasets that take part."""

    id: str
    datasets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Commit:
    """One entry of the chain.

    Attributes
    ----------
    id : str
        The commit.
    parent : str | None
        The one before; None for the first, and for the first after a foreign writer.
    fingerprint : str
        Of the partitions that it left.
    time : datetime | None
        When it was made, by the writer's clock; UTC.
    cube : CubeCommit | None
        The write to a cube that it is a part of.
    """

    id: str
    parent: str | None
    fingerprint: str
    time: datetime | None = None
    cube: CubeCommit | None = None


def fingerprint(partitions: PartitionColumns | None) -> str:
    """Hash of labels and file keys in their order; equal for equal partitions however they are spelled in JSON."""
    if partitions is None:
        return _digest([])
    if partitions.known_fingerprint is None:
        # Without partitions a document cannot say of which tables they were.
        files = sorted(partitions.files.items()) if len(partitions) else []
        object.__setattr__(partitions, "known_fingerprint", _digest([("", partitions.labels), *files]))
    assert partitions.known_fingerprint is not None
    return partitions.known_fingerprint


def _digest(columns: Iterable[tuple[str, pa.Array]]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for name, column in columns:
        digest.update(name.encode() + b"\0")
        digest.update(_canonical_bytes(column))
    return digest.hexdigest()


def _canonical_bytes(column: pa.Array) -> memoryview:
    texts = column.cast(pa.large_string()).fill_null("\x01")
    offsets = pa.array([0, len(texts)], type=pa.int64())
    return memoryview(pc.binary_join(pa.LargeListArray.from_arrays(offsets, texts), pa.scalar("\x00", pa.large_string()))[0].as_buffer())


def chain_of(metadata: Mapping[str, Any]) -> tuple[Commit, ...]:
    """The chain that the metadata of a document carries, oldest first; empty if there is none or it is unreadable."""
    try:
        return tuple(_decoded(*entry) for entry in json.loads(metadata[COMMITS_KEY]))
    except (LookupError, TypeError, ValueError, OverflowError, RecursionError):
        return ()


def stored_chain(data: bytes, key: str) -> tuple[Commit, ...]:
    """The chain in the bytes of a document, oldest first; empty if the document has none or cannot be read."""
    try:
        return chain_of(parse_document(data, key).metadata)
    except (CorruptDocument, Unsupported):
        return ()


def _decoded(commit: Any, parent: Any, mark: Any, time: str | None = None, cube: Any = None) -> Commit:
    moment = None if time is None else datetime.fromisoformat(time).astimezone(UTC)
    return Commit(str(commit), None if parent is None else str(parent), str(mark), moment, None if cube is None else CubeCommit(str(cube[0]), tuple(cube[1])))


def _encoded(commit: Commit) -> list[Any]:
    entry = [
        commit.id,
        commit.parent,
        commit.fingerprint,
        None if commit.time is None else commit.time.isoformat(),
        None if commit.cube is None else [commit.cube.id, list(commit.cube.datasets)],
    ]
    while entry[-1] is None:
        entry.pop()
    return entry


def is_foreign(metadata: Mapping[str, Any], partitions: PartitionColumns | None) -> bool:
    """Whether a writer that knows no chain came last."""
    chain = chain_of(metadata)
    return not chain or chain[-1].fingerprint != fingerprint(partitions)


def extend_chain(chain: tuple[Commit, ...], commit: Commit, *, foreign: bool) -> str:
    """The chain with one more commit, whose parent is set here, as it is stored; after a foreign writer a new one begins."""
    kept = () if foreign else chain[-(LENGTH - 1) :]
    last = replace(commit, parent=kept[-1].id if kept else None)
    return json.dumps([_encoded(c) for c in (*kept, last)])
