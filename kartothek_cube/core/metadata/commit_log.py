"""The commit log of a document: a chain of ids, with fingerprints that reveal foreign writers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
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
    "encode_chain",
    "extend_chain",
    "fingerprint",
    "is_foreign",
    "stored_chain",
]

COMMITS_KEY = "kartothek_cube.commits"
SCHEMA_KEY = "kartothek_cube.schema"
# Set while the encoding of the document is being changed or the dataset renamed: no commit may
# follow.
MOVING_KEY = "kartothek_cube.moving"
LENGTH = 32
# Of fewer texts a list of Python is hashed sooner than Arrow has joined them.
_MANY = 500


@dataclass(frozen=True, slots=True)
class CubeCommit:
    """A write to several datasets of a cube: its id, and the uuids of these datasets."""

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
        The commit before; None for the first one, and for the first one after a foreign writer.
    fingerprint : str
        `fingerprint` of the partitions after the commit.
    time : datetime | None
        The time of the commit in UTC, by the writer's clock.
    cube : CubeCommit | None
        The write to a cube that the commit is a part of.
    """

    id: str
    parent: str | None
    fingerprint: str
    time: datetime | None = None
    cube: CubeCommit | None = None


def fingerprint(partitions: PartitionColumns | None) -> str:
    """Hash of labels and file keys in their order; it does not depend on how JSON spells them."""
    if partitions is None:
        return _digest([])
    if partitions.known_fingerprint is None:
        # A document without partitions cannot name their tables.
        files = sorted(partitions.files.items()) if len(partitions) else []
        object.__setattr__(partitions, "known_fingerprint", _digest([("", partitions.labels), *files]))
    assert partitions.known_fingerprint is not None
    return partitions.known_fingerprint


def _digest(columns: Iterable[tuple[str, pa.Array]]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for name, column in columns:
        digest.update(name.encode() + b"\0")
        if len(column) < _MANY:
            few = column.cast(pa.binary()).to_pylist()
            digest.update(b"\0".join(b"\x01" if text is None else text for text in few))
            continue
        # All texts as one, joined by Arrow: no Python object per label.
        texts = column.cast(pa.large_string()).fill_null("\x01")
        whole = pa.LargeListArray.from_arrays(pa.array([0, len(texts)], type=pa.int64()), texts)
        joined = pc.binary_join(whole, pa.scalar("\x00", pa.large_string()))
        digest.update(memoryview(joined[0].as_buffer()))
    return digest.hexdigest()


def chain_of(metadata: Mapping[str, Any]) -> tuple[Commit, ...]:
    """The chain in the metadata of a document, oldest first; empty if missing or unreadable."""
    try:
        return _chain_in(metadata[COMMITS_KEY])
    except (LookupError, TypeError, ValueError, OverflowError, RecursionError):
        return ()


def stored_chain(data: bytes, key: str) -> tuple[Commit, ...]:
    """The chain in the bytes of a document, oldest first; empty if missing or unreadable."""
    try:
        return chain_of(parse_document(data, key).metadata)
    except (CorruptDocument, Unsupported):
        return ()


@lru_cache(maxsize=256)
def _chain_in(text: str) -> tuple[Commit, ...]:
    # A commit asks for the chains of two documents, seven times.
    return tuple(_decoded(*entry) for entry in json.loads(text))


def _decoded(
    commit: object, parent: object, mark: object, time: str | None = None, cube: tuple[str, list[str]] | None = None
) -> Commit:
    moment = None if time is None else datetime.fromisoformat(time).astimezone(UTC)
    write = None if cube is None else CubeCommit(str(cube[0]), tuple(cube[1]))
    return Commit(str(commit), None if parent is None else str(parent), str(mark), moment, write)


def is_foreign(metadata: Mapping[str, Any], partitions: PartitionColumns | None) -> bool:
    """Whether the last writer does not know commit ids, as kartothek and plateau do not."""
    chain = chain_of(metadata)
    return not chain or chain[-1].fingerprint != fingerprint(partitions)


def extend_chain(chain: tuple[Commit, ...], commit: Commit, *, foreign: bool) -> str:
    """The chain with one more commit, as it is stored; its parent is set here."""
    # After a foreign writer a new chain begins: the commits before are not its ancestors.
    kept = () if foreign else chain[-(LENGTH - 1) :]
    return encode_chain((*kept, replace(commit, parent=kept[-1].id if kept else None)))


def encode_chain(chain: Iterable[Commit]) -> str:
    """The chain as it is stored; the reverse of `chain_of`."""
    entries = []
    for each in chain:
        time = None if each.time is None else each.time.isoformat()
        cube = None if each.cube is None else [each.cube.id, list(each.cube.datasets)]
        entry: list[Any] = [each.id, each.parent, each.fingerprint, time, cube]
        # Entries end with their last known member, since older ones have no time and no cube.
        while entry[-1] is None:
            entry.pop()
        entries.append(entry)
    return json.dumps(entries)
