"""The chain of commit ids that a document carries, with a fingerprint that tells a foreign writer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kartothek_cube.core.metadata.partitions import PartitionColumns

__all__ = ["COMMITS_KEY", "MOVING_KEY", "SCHEMA_KEY", "Commit", "chain_of", "extend_chain", "fingerprint", "is_foreign"]

COMMITS_KEY = "kartothek_cube.commits"
SCHEMA_KEY = "kartothek_cube.schema"
# While a document with this entry is there, its encoding is being changed and nobody may commit onto it.
MOVING_KEY = "kartothek_cube.moving"
LENGTH = 32


@dataclass(frozen=True, slots=True)
class Commit:
    """One entry of the chain: the commit's id, its parent's (None for the first), and the fingerprint of what it left."""

    id: str
    parent: str | None
    fingerprint: str


def fingerprint(partitions: PartitionColumns | None) -> str:
    """Hash of labels and file keys in their order; equal for equal partitions however they are spelled in JSON."""
    digest = hashlib.blake2b(digest_size=8)
    if partitions is not None:
        # Without partitions a document cannot say of which tables they were.
        files = sorted(partitions.files.items()) if len(partitions) else []
        for name, column in (("", partitions.labels), *files):
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
        return tuple(Commit(str(i), p, str(f)) for i, p, f in json.loads(metadata[COMMITS_KEY]))
    except (KeyError, TypeError, ValueError):
        return ()


def is_foreign(metadata: Mapping[str, Any], partitions: PartitionColumns | None) -> bool:
    """Whether a writer that knows no chain came last."""
    chain = chain_of(metadata)
    return not chain or chain[-1].fingerprint != fingerprint(partitions)


def extend_chain(chain: tuple[Commit, ...], commit: str, mark: str, *, foreign: bool) -> str:
    """The chain with one more commit, as it is stored; after a foreign writer a new one begins."""
    kept = () if foreign else chain[-(LENGTH - 1) :]
    parent = kept[-1].id if kept else None
    return json.dumps([[c.id, c.parent, c.fingerprint] for c in (*kept, Commit(commit, parent, mark))])
